//! What `find` asks of a file: name, type, size, age, emptiness, with the words and meanings of `find`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use lustre_rt::visitor::{Attributes, FileKind, Place};

use super::bytes::Bytes;
use super::operands::{At, same_system};
use super::sentences::said;
use super::walker::Found;
use lustre_rt::visitor::pattern::fits;

const DAY: i64 = 86_400;
const MINUTE: i64 = 60;

/// Tests of files.
#[derive(Clone, Debug, Args)]
pub(super) struct Tests {
    /// Name: '*' stands for any bytes, '?' for one, '[…]' for one of a set
    #[arg(long, value_name = "PATTERN", value_parser = pattern())]
    name: Option<OsString>,
    /// Type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    /// More (+), fewer (-) or exactly so many bytes; c is bytes too
    #[arg(long, value_name = "[+-]BYTES", allow_hyphen_values = true, value_parser = bytes)]
    size: Option<Bound>,
    /// Changed more than (+), less than (-) or exactly so many days ago; parts of a day do not count
    #[arg(long, value_name = "[+-]DAYS", allow_hyphen_values = true, value_parser = number)]
    mtime: Option<Bound>,
    /// Changed more than (+), less than (-) or exactly so many minutes ago
    #[arg(long, value_name = "[+-]MINUTES", allow_hyphen_values = true, value_parser = number)]
    mmin: Option<Bound>,
    /// Changed after this file of the file system was
    #[arg(long, value_name = "PLACE", value_parser = super::places())]
    newer: Option<Place>,
    /// Files without bytes, and directories without names
    #[arg(long)]
    empty: bool,
}

/// Types of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// File
    #[value(name = "f")]
    File,
    /// Directory
    #[value(name = "d")]
    Dir,
    /// Symbolic link
    #[value(name = "l")]
    Link,
    /// Pipe
    #[value(name = "p")]
    Fifo,
    /// Socket
    #[value(name = "s")]
    Socket,
    /// Block device
    #[value(name = "b")]
    Block,
    /// Character device
    #[value(name = "c")]
    Char,
}

impl Kind {
    const fn of(kind: FileKind) -> Option<Self> {
        Some(match kind {
            FileKind::File => Self::File,
            FileKind::Dir => Self::Dir,
            FileKind::Link => Self::Link,
            FileKind::Fifo => Self::Fifo,
            FileKind::Socket => Self::Socket,
            FileKind::Block => Self::Block,
            FileKind::Char => Self::Char,
            FileKind::Unknown => return None,
        })
    }
}

/// Patterns of a command line.
fn pattern() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|text| match has_class(text.as_bytes()) {
        true => Err("classes such as [:digit:] in a set: expected its bytes, such as [0-9]"),
        false => Ok(text),
    })
}

/// Whether a set of a pattern has a class, an equivalence or a name in it: bytes have none.
fn has_class(pattern: &[u8]) -> bool {
    let mut rest = pattern;
    loop {
        rest = match rest {
            [] => return false,
            [b'\\', _, rest @ ..] => rest,
            [b'[', rest @ ..] => {
                let rest = match rest {
                    [b'!' | b'^', rest @ ..] => rest,
                    rest => rest,
                };
                // A bracket at the front is one of the set.
                let close = rest.iter().skip(1).position(|byte| *byte == b']').map(|at| at + 1);
                let Some(close) = close else { return false };
                let (set, rest) = rest.split_at(close);
                if set.windows(2).any(|two| matches!(two, b"[:" | b"[=" | b"[.")) {
                    return true;
                }
                rest
            }
            [_, rest @ ..] => rest,
        }
    }
}

/// A bound of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    More(u64),
    Fewer(u64),
    Exactly(u64),
}

impl Bound {
    const fn has(self, number: u64) -> bool {
        match self {
            Self::More(bound) => number > bound,
            Self::Fewer(bound) => number < bound,
            Self::Exactly(bound) => number == bound,
        }
    }

    /// Whether something was so many whole days ago. What is to come was less than a day ago.
    fn has_days(self, age: i64) -> bool {
        match u64::try_from(age.div_euclid(DAY)) {
            Ok(days) => self.has(days),
            Err(_) => matches!(self, Self::Fewer(_)),
        }
    }

    /// Whether something was so many minutes ago: a part of one counts as the whole of it where they are to be
    /// exactly so many.
    fn has_minutes(self, age: i64) -> bool {
        let seconds =
            |minutes: u64| i64::try_from(minutes).unwrap_or(i64::MAX).saturating_mul(MINUTE);
        match self {
            Self::More(minutes) => age > seconds(minutes),
            Self::Fewer(minutes) => age < seconds(minutes),
            Self::Exactly(minutes) => {
                let end = seconds(minutes);
                (end.saturating_sub(MINUTE)..end).contains(&age)
            }
        }
    }
}

/// A bound with a sign.
fn bound(text: &str, number: impl Fn(&str) -> Result<u64>) -> Result<Bound> {
    match text.split_at_checked(1) {
        Some(("+", rest)) => number(rest).map(Bound::More),
        Some(("-", rest)) => number(rest).map(Bound::Fewer),
        _ => number(text).map(Bound::Exactly),
    }
}

fn bytes(text: &str) -> Result<Bound> {
    bound(text, |text| {
        // As find calls bytes.
        let digits =
            text.strip_suffix('c').filter(|text| text.ends_with(|c: char| c.is_ascii_digit()));
        let text = digits.unwrap_or(text);
        let bytes: Result<Bytes, String> = text.parse();
        bytes.map(|bytes| bytes.0).map_err(|e| anyhow!("{e}; expected a size such as +1G"))
    })
}

fn number(text: &str) -> Result<Bound> {
    bound(text, |digits| {
        super::bytes::number(digits)
            .ok_or_else(|| anyhow!("'{text}': expected a number such as 7, +7 or -7"))
    })
}

/// The tests of a search, with what they compare with.
pub(super) struct Wanted<'a> {
    tests: &'a Tests,
    /// Seconds since 1970.
    now: i64,
    /// The time of the file of `--newer`.
    newer: Option<i64>,
}

impl<'a> Wanted<'a> {
    /// # Errors
    /// The file of `--newer` can't be looked at.
    pub(super) async fn of(tests: &'a Tests, at: &At<'_>) -> Result<Self> {
        let newer = match &tests.newer {
            None => None,
            Some(place) if !same_system(place, at.place) => {
                bail!("newer than '{place}': expected a file of the same file system");
            }
            Some(place) => {
                let found = async {
                    let node = at.mount.find(&place.path, true).await?;
                    Ok::<_, anyhow::Error>(at.mount.attributes(&node).await?.mtime)
                };
                let said = |e| anyhow!("newer than '{place}': {}", said(&e));
                Some(found.await.map_err(said)?)
            }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Ok(Self { tests, now: i64::try_from(now).unwrap_or(i64::MAX), newer })
    }

    /// What name and type say.
    pub(super) fn by_name(&self, found: &Found) -> bool {
        let kind = found.node.kind();
        let Tests { name, kind: wanted, empty, .. } = self.tests;
        name.as_ref().is_none_or(|name| fits(name.as_bytes(), &found.name))
            && wanted.is_none_or(|wanted| Kind::of(kind) == Some(wanted))
            && (!empty || matches!(kind, FileKind::File | FileKind::Dir))
    }

    /// Whether more is asked of a file: sizes and times are asked of objects.
    pub(super) const fn needs_attributes(&self, is_dir: bool) -> bool {
        let Tests { size, mtime, mmin, empty, .. } = self.tests;
        let by_age = mtime.is_some() || mmin.is_some() || self.newer.is_some();
        size.is_some() || by_age || (*empty && !is_dir)
    }

    pub(super) fn by_attributes(&self, attributes: &Attributes) -> bool {
        let Tests { size, mtime, mmin, empty, .. } = self.tests;
        let age = self.now.saturating_sub(attributes.mtime);
        size.is_none_or(|bound| bound.has(attributes.size))
            && mtime.is_none_or(|bound| bound.has_days(age))
            && mmin.is_none_or(|bound| bound.has_minutes(age))
            && self.newer.is_none_or(|than| attributes.mtime > than)
            && (!empty || attributes.kind == FileKind::Dir || attributes.size == 0)
    }

    /// Whether directories are to have no names.
    pub(super) const fn is_empty(&self) -> bool {
        self.tests.empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_have_a_sign_and_a_unit() {
        assert_eq!(bytes("+1G").unwrap(), Bound::More(1 << 30));
        assert_eq!(bytes("-4K").unwrap(), Bound::Fewer(4096));
        assert_eq!(bytes("7").unwrap(), Bound::Exactly(7));
        assert_eq!(bytes("+100c").unwrap(), Bound::More(100));
        for text in ["", "+", "1Q", "--1", "++1", "+-1", "c", "1Kc"] {
            assert!(bytes(text).unwrap_err().to_string().contains("+1G"), "{text}");
        }
        assert_eq!(number("-3").unwrap(), Bound::Fewer(3));
        for text in ["", "+", "1d", "1.5", "++1"] {
            assert!(number(text).unwrap_err().to_string().contains("+7"), "{text}");
        }
    }

    #[test]
    fn classes_of_patterns_are_refused_and_sets_are_not() {
        for (pattern, expected) in [
            ("[[:digit:]]*", true),
            ("x[a[:alpha:]]", true),
            ("[![=a=]]", true),
            ("[^[.a.]]", true),
            ("[[:digit:]", true),
            ("[0-9]*", false),
            ("\\[[0-9]", false),
            ("\\[:x:]", false),
            ("[]:[]", false),
            ("[:a]", false),
            ("a[:b", false),
            ("[", false),
            ("", false),
        ] {
            assert_eq!(has_class(pattern.as_bytes()), expected, "{pattern}");
        }
    }

    /// As GNU find: `-mtime` leaves parts of days out, and `-mmin N` has the Nth minute.
    #[test]
    fn ages_count_as_by_find() {
        for (bound, age, days, minutes) in [
            (Bound::Exactly(1), 30, false, true),
            (Bound::Exactly(1), 61, false, false),
            (Bound::Exactly(0), 30, true, false),
            (Bound::Exactly(1), DAY + 5, true, false),
            (Bound::More(1), 2 * DAY - 1, false, true),
            (Bound::More(1), 2 * DAY, true, true),
            (Bound::More(0), DAY - 1, false, true),
            (Bound::Fewer(1), DAY - 1, true, false),
            (Bound::Fewer(1), 59, true, true),
            (Bound::Fewer(0), -5, true, true),
            (Bound::Exactly(0), -5, false, true),
        ] {
            assert_eq!(bound.has_days(age), days, "{bound:?} {age}");
            assert_eq!(bound.has_minutes(age), minutes, "{bound:?} {age}");
        }
    }
}
