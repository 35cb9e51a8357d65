//! Other values at some places of a scenario's text, for sweeps: `tunables.retry_count=3`,
//! `net.tcp.loss=1%`, `workload.0.size=4KiB`, `seed=7`.
//!
//! A place is a path of keys. In a list of tables (`[[net]]`) the next word is the `name` of one of
//! them, or its number from 0. All but the last must exist; the last may be new, and is then held to
//! the known keys like any other when the scenario is read.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One value at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    place: String,
    value: String,
    /// The same as TOML.
    toml: String,
}

impl Change {
    /// The change `place=value`. The value is written as in a scenario; text needs no quotes.
    ///
    /// # Errors
    /// What is wrong with the place.
    pub fn new(place: &str, value: &str) -> Result<Self, String> {
        if place.is_empty() || place.split('.').any(|word| word.trim() != word || word.is_empty()) {
            return Err(format!(
                "place '{place}': expected keys and dots, like tunables.retry_count"
            ));
        }
        let is_toml = DeValue::parse(value).is_ok();
        let toml = if is_toml { value.to_owned() } else { crate::quoted(value) };
        Ok(Self { place: place.to_owned(), value: value.to_owned(), toml })
    }

    /// Where.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What, as it was written.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Puts the value in its place.
    pub(crate) fn apply<'t>(&'t self, root: &mut DeTable<'t>) -> Result<(), String> {
        let value = DeValue::parse(&self.toml);
        let value = value.map_err(|e| format!("{}: {}", self.place, e.message()))?;
        let mut words = self.place.split('.').peekable();
        let mut at = root;
        while let Some(word) = words.next() {
            if words.peek().is_none() {
                at.insert(Spanned::new(0..0, word.into()), value);
                return Ok(());
            }
            let missing = || format!("{}: the scenario has no '{word}'", self.place);
            // A table of settings may be left out of a scenario, as that of tunables often is.
            let settings = matches!(word, "tunables" | "conduct" | "bytes" | "bars" | "rpc");
            if settings && !at.contains_key(word) {
                let empty = DeValue::Table(DeTable::new());
                at.insert(Spanned::new(0..0, word.into()), Spanned::new(0..0, empty));
            }
            at = match at.get_mut(word).ok_or_else(missing)?.get_mut() {
                DeValue::Table(table) => table,
                DeValue::Array(list) => {
                    let which = words.next().filter(|_| words.peek().is_some());
                    let which = which.ok_or_else(|| {
                        format!(
                            "{}: expected the name or number of one '{word}', and a key",
                            self.place
                        )
                    })?;
                    let number = which.parse::<usize>().ok();
                    let mut tables =
                        list.iter_mut().enumerate().filter_map(|(n, item)| match item.get_mut() {
                            DeValue::Table(table) => Some((n, table)),
                            _ => None,
                        });
                    let found =
                        tables.find(|(n, table)| Some(*n) == number || is_named(table, which));
                    let none = || {
                        format!("{}: there is no '{word}' called or numbered '{which}'", self.place)
                    };
                    found.ok_or_else(none)?.1
                }
                _ => return Err(format!("{}: '{word}' has no keys", self.place)),
            };
        }
        Ok(())
    }
}

fn is_named(table: &DeTable<'_>, name: &str) -> bool {
    let own = table.get("name").map(Spanned::get_ref);
    matches!(own, Some(DeValue::String(own)) if own == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = 'x'\n[[net]]\nname = 'tcp'\nlatency = '10us'\n\
        [[node]]\nname = 'a'\nrails = ['tcp']\n[[node]]\nname = 'b'\nrails = ['tcp']\n\
        [[workload]]\nkind = 'put'\nfrom = 'a'\nto = 'b'\nevery = '1ms'\n";

    fn with(place: &str, value: &str) -> Result<crate::Scenario, String> {
        let change = Change::new(place, value)?;
        crate::parse_changed("x.toml", TEXT, &[], &[change]).map_err(|e| e.to_string())
    }

    #[test]
    fn a_change_reaches_tunables_tables_by_name_and_by_number() {
        assert_eq!(with("seed", "7").unwrap().seed, 7);
        assert_eq!(
            with("tunables.retry_count", "5").unwrap().world.groups[0].tunables,
            [("retry_count", 5)]
        );
        assert_ne!(with("net.tcp.loss", "2%"), with("seed", "1"));
        assert_ne!(with("workload.0.size", "4KiB"), with("seed", "1"));
    }

    #[test]
    fn a_change_at_a_place_that_does_not_exist_names_the_place() {
        for (place, says) in [
            ("nets.tcp.loss", "the scenario has no 'nets'"),
            ("net.o2ib.loss", "called or numbered 'o2ib'"),
            ("net.tcp", "expected the name or number"),
            ("name.x", "'name' has no keys"),
            ("tunables.nothing", "nothing"),
            ("net.tcp.lost", "lost"),
        ] {
            let error = with(place, "1").unwrap_err();
            assert!(error.contains(says), "{place}: {error}");
        }
        assert!(Change::new("a..b", "1").is_err() && Change::new("", "1").is_err());
    }
}
