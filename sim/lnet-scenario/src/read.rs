//! Tables held to their known keys: a key is taken by name, and a key left over is refused.

use core::ops::Range;
use core::time::Duration;

use lnet::Profile;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::ScenarioError;
use crate::units::{self, Share};

/// The text under the reader.
#[derive(Clone, Copy)]
pub(crate) struct Source<'t> {
    pub(crate) file: &'t str,
    pub(crate) text: &'t str,
}

impl Source<'_> {
    /// An error at byte `offset`.
    pub(crate) fn at(self, offset: usize, what: String) -> ScenarioError {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        ScenarioError { file: self.file.to_owned(), line: line as u32, column: column as u32, what }
    }

    /// The line of byte `offset`, from 1.
    pub(crate) fn line(self, offset: usize) -> u32 {
        // Bytes, many at once: each table asks, and there may be ten thousand.
        let before = self.text.get(..offset).unwrap_or(self.text);
        before.bytes().filter(|b| *b == b'\n').count() as u32 + 1
    }
}

/// A table of which keys are taken one by one.
pub(crate) struct Table<'a, 't> {
    source: Source<'t>,
    /// How errors call it; empty for the top.
    pub(crate) name: String,
    pub(crate) start: usize,
    entries: &'a DeTable<'t>,
    taken: Vec<&'static str>,
}

impl<'a, 't> Table<'a, 't> {
    pub(crate) fn new(
        source: Source<'t>,
        name: String,
        span: Range<usize>,
        entries: &'a DeTable<'t>,
    ) -> Self {
        Self { source, name, start: span.start, entries, taken: Vec::new() }
    }

    /// The value of `key`, if it is there.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Value<'a, 't>> {
        self.taken.push(key);
        let value = self.entries.get(key)?;
        let name = match self.name.as_str() {
            "" => key.to_owned(),
            name => format!("{name}: {key}"),
        };
        Some(Value { source: self.source, name, value })
    }

    /// The value of `key`, which must be there.
    pub(crate) fn require(
        &mut self,
        key: &'static str,
        what: &str,
    ) -> Result<Value<'a, 't>, ScenarioError> {
        match self.take(key) {
            Some(v) => Ok(v),
            None => Err(self.wrong(&format!("has no '{key}': expected {what}"))),
        }
    }

    /// The tables of the list `key`: `[[key]]`.
    pub(crate) fn list(&mut self, key: &'static str) -> Result<Vec<Self>, ScenarioError> {
        let Some(v) = self.take(key) else { return Ok(Vec::new()) };
        let DeValue::Array(items) = v.value.get_ref() else {
            return Err(v.wrong(&format!("a list of tables, each begun by [[{key}]]")));
        };
        let mut tables = Vec::with_capacity(items.len());
        for (n, item) in items.iter().enumerate() {
            let name = format!("{key} {}", n + 1);
            let v = Value { source: self.source, name, value: item };
            tables.push(v.table()?);
        }
        Ok(tables)
    }

    /// All entries, for tables whose keys are names of something else.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'a str, Value<'a, 't>)> + use<'a, 't, '_> {
        self.entries.iter().map(|(key, value)| {
            let key: &str = key.get_ref();
            (key, Value { source: self.source, name: format!("{}: {key}", self.name), value })
        })
    }

    /// An error about the table as a whole.
    pub(crate) fn wrong(&self, what: &str) -> ScenarioError {
        let name = if self.name.is_empty() { "the scenario" } else { &self.name };
        self.source.at(self.start, format!("{name} {what}"))
    }

    pub(crate) fn line(&self) -> u32 {
        self.source.line(self.start)
    }

    /// Refuses keys that are left over.
    pub(crate) fn finish(&self) -> Result<(), ScenarioError> {
        let unknown = self.entries.keys().find(|k| !self.taken.contains(&k.get_ref().as_ref()));
        let Some(key) = unknown else { return Ok(()) };
        let place = if self.name.is_empty() { String::new() } else { format!("{}: ", self.name) };
        let known = self.taken.join(", ");
        let what = format!("{place}unknown key '{}': expected one of {known}", key.get_ref());
        Err(self.source.at(key.span().start, what))
    }
}

/// A value and how errors call it.
pub(crate) struct Value<'a, 't> {
    source: Source<'t>,
    name: String,
    value: &'a Spanned<DeValue<'t>>,
}

impl<'a, 't> Value<'a, 't> {
    /// "this is …: expected `expected`".
    pub(crate) fn wrong(&self, expected: &str) -> ScenarioError {
        let what = format!("{} is {}: expected {expected}", self.name, self.show());
        self.source.at(self.value.span().start, what)
    }

    fn show(&self) -> String {
        const SHOWN_MAX: usize = 60;
        let text = self.source.text.get(self.value.span()).unwrap_or("something else");
        let first = text.lines().next().unwrap_or_default();
        match first.char_indices().nth(SHOWN_MAX) {
            Some((end, _)) => format!("{}…", first.get(..end).unwrap_or_default()),
            None => first.to_owned(),
        }
    }

    pub(crate) fn text(&self) -> Result<&'a str, ScenarioError> {
        self.value.get_ref().as_str().ok_or_else(|| self.wrong("a text in quotes"))
    }

    /// One text or a list of texts, each with itself for errors.
    pub(crate) fn texts(&self) -> Result<Vec<(&'a str, Self)>, ScenarioError> {
        let items = match self.value.get_ref() {
            DeValue::Array(_) => self.items("texts in quotes")?,
            _ => vec![Value { source: self.source, name: self.name.clone(), value: self.value }],
        };
        items.into_iter().map(|v| Ok((v.text()?, v))).collect()
    }

    pub(crate) fn items(&self, of: &str) -> Result<Vec<Self>, ScenarioError> {
        let DeValue::Array(items) = self.value.get_ref() else {
            return Err(self.wrong(&format!("a list of {of}")));
        };
        let item = |value| Value { source: self.source, name: self.name.clone(), value };
        Ok(items.iter().map(item).collect())
    }

    pub(crate) fn table(&self) -> Result<Table<'a, 't>, ScenarioError> {
        match self.value.get_ref() {
            DeValue::Table(t) => {
                Ok(Table::new(self.source, self.name.clone(), self.value.span(), t))
            }
            _ => Err(self.wrong("a table")),
        }
    }

    pub(crate) fn number(&self, min: i64, max: i64) -> Result<i64, ScenarioError> {
        let number = self
            .value
            .get_ref()
            .as_integer()
            .and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok());
        number
            .filter(|n| (min..=max).contains(n))
            .ok_or_else(|| self.wrong(&format!("a number from {min} to {max}")))
    }

    pub(crate) fn flag(&self) -> Result<bool, ScenarioError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    pub(crate) fn duration(&self) -> Result<Duration, ScenarioError> {
        let text = self.value.get_ref().as_str();
        text.and_then(units::duration).ok_or_else(|| self.wrong(units::DURATION_EXPECTED))
    }

    pub(crate) fn duration_above_zero(&self) -> Result<Duration, ScenarioError> {
        match self.duration()? {
            Duration::ZERO => Err(self.wrong("a time above 0")),
            d => Ok(d),
        }
    }

    pub(crate) fn size(&self, max: u64) -> Result<u32, ScenarioError> {
        let n = match self.value.get_ref().as_str() {
            Some(text) => units::size(text).ok_or_else(|| self.wrong(units::SIZE_EXPECTED))?,
            None => self.number(0, i64::MAX)? as u64,
        };
        match u32::try_from(n) {
            Ok(size) if n <= max => Ok(size),
            _ => Err(self.wrong(&format!("at most {max} bytes"))),
        }
    }

    pub(crate) fn rate(&self) -> Result<u64, ScenarioError> {
        let text = self.value.get_ref().as_str();
        text.and_then(units::rate).ok_or_else(|| self.wrong(units::RATE_EXPECTED))
    }

    pub(crate) fn share(&self) -> Result<Share, ScenarioError> {
        let text = self.value.get_ref().as_str();
        text.and_then(units::share).ok_or_else(|| self.wrong(units::SHARE_EXPECTED))
    }

    pub(crate) fn profile(&self) -> Result<Profile, ScenarioError> {
        Profile::from_name(self.text()?).ok_or_else(|| {
            let names: Vec<&str> = Profile::ALL.iter().map(|p| p.name()).collect();
            self.wrong(&format!("a profile: {}", names.join(", ")))
        })
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, ScenarioError> {
        let text = self.text()?;
        words.iter().find(|(word, _)| *word == text).map(|(_, t)| *t).ok_or_else(|| {
            let names: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
            self.wrong(&format!("one of {}", names.join(", ")))
        })
    }
}
