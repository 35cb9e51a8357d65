//! `ulnet lustre find`: files of a tree by name, type and size, as they are found.

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use lustre_rt::visitor::{Access, FileKind, Place, join};
use serde_json::Value;

use super::bytes::Bytes;
use super::operands::{self, At, Done, Shape};
use super::walker::{Found, Walker};
use super::{Visit, show};

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "-name, -type and -size may be written with one dash, as for find.\n\nExamples:\n  \
    ulnet lustre find 10.0.0.1@tcp:/lfs/data --name '*.h5' --size +1G\n  \
    ulnet lustre find /data/in /data/out -type d"
)]
pub(super) struct Options {
    /// Directories and files, with all that is in them
    #[arg(required = true, value_name = "PLACE", value_parser = super::place)]
    places: Vec<Place>,
    /// Name: '*' stands for any bytes, '?' for one, '[…]' for one of a set
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    /// More (+), fewer (-) or exactly so many bytes
    #[arg(long, value_name = "[+-]BYTES", allow_hyphen_values = true, value_parser = bound)]
    size: Option<Bound>,
    #[command(flatten)]
    visit: Visit,
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
}

/// A bound of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    More(u64),
    Fewer(u64),
    Exactly(u64),
}

impl Bound {
    const fn has(self, size: u64) -> bool {
        match self {
            Self::More(bound) => size > bound,
            Self::Fewer(bound) => size < bound,
            Self::Exactly(bound) => size == bound,
        }
    }
}

fn bound(text: &str) -> Result<Bound> {
    let bytes = |text: &str| {
        let bytes: Result<Bytes, String> = text.parse();
        bytes.map(|bytes| bytes.0).map_err(|e| anyhow!("{e}; expected a size such as +1G"))
    };
    match text.split_at_checked(1) {
        Some(("+", rest)) => bytes(rest).map(Bound::More),
        Some(("-", rest)) => bytes(rest).map(Bound::Fewer),
        _ => bytes(text).map(Bound::Exactly),
    }
}

/// Whether a name fits a pattern. Takes no more time than their lengths multiplied.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where the last star was, and how much of the name it stands for.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        let one = pattern.get(p..).and_then(|pattern| first(pattern, name.get(n).copied()?));
        match (pattern.get(p), one) {
            (Some(b'*'), _) => {
                star = Some((p + 1, n));
                p += 1;
            }
            (Some(_), Some(len)) => {
                p += len;
                n += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (p, n) = (after, from + 1);
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// The length of what stands for one byte at the front of a pattern, if it stands for this one.
fn first(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => {
            let (not, rest) = match rest {
                [b'!' | b'^', rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            // A bracket at the front is one of the set.
            let close = rest.iter().skip(1).position(|byte| *byte == b']').map(|at| at + 1);
            let Some(close) = close else { return (byte == b'[').then_some(1) };
            let mut set = rest.get(..close).unwrap_or_default();
            let mut has = false;
            while let Some((low, behind)) = set.split_first() {
                if let [b'-', high, behind @ ..] = behind {
                    has |= (*low..=*high).contains(&byte);
                    set = behind;
                } else {
                    has |= *low == byte;
                    set = behind;
                }
            }
            (has != not).then_some(close + 2 + usize::from(not))
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// Arguments as `find` has them, as those of this command: long options may have one dash.
pub(crate) fn spelled(args: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    if args.get(1).is_none_or(|verb| verb != "find") {
        return args;
    }
    let spelled = |arg: std::ffi::OsString| match arg.to_str() {
        Some("-name") => "--name".into(),
        Some("-type") => "--type".into(),
        Some("-size") => "--size".into(),
        _ => arg,
    };
    args.into_iter().map(spelled).collect()
}

impl Options {
    fn wants(&self, found: &Found) -> bool {
        let is = match found.node.kind() {
            FileKind::File => Some(Kind::File),
            FileKind::Dir => Some(Kind::Dir),
            FileKind::Link => Some(Kind::Link),
            _ => None,
        };
        let named = self.name.as_ref().is_none_or(|name| fits(name.as_bytes(), &found.name));
        named && self.kind.is_none_or(|kind| is == Some(kind))
    }
}

/// A path as those below it begin.
fn shown(name: &str) -> String {
    match name.trim_end_matches('/') {
        "" => "/".to_owned(),
        name => name.to_owned(),
    }
}

async fn one(at: &At<'_>, options: &Options) -> Result<Done> {
    let At { mount, stop, place, name } = *at;
    let (size, json) = (&options.size, options.visit.way.json);
    let node = mount.find(place.path.as_bytes(), true).await?;
    // What is named is looked at first, as by find.
    let last = super::names(&place.path).last().copied().unwrap_or("/");
    let top = Found { node: node.clone(), path: shown(name), name: last.as_bytes().to_vec() };
    let is_dir = node.kind() == FileKind::Dir;
    let mut walker = Walker::new(mount, stop, node, name);
    let mut rows = Vec::new();
    let mut first = Some(top);
    loop {
        let batch = match first.take() {
            Some(top) => vec![top],
            None if is_dir => walker.next().await?,
            None => Vec::new(),
        };
        if batch.is_empty() {
            return Ok(Done { value: Value::Array(rows), whole: !walker.has_failed() });
        }
        let one = |found: Found| async move {
            // Sizes are asked of objects: only where they matter.
            let needs = size.is_some() || json;
            let attributes = match needs {
                true => Some(mount.attributes(&found.node).await),
                false => None,
            };
            (found, attributes)
        };
        let some = batch.into_iter().filter(|found| options.wants(found)).map(one);
        for (found, attributes) in join(some, 8).await {
            let attributes = match attributes.transpose() {
                Ok(attributes) => attributes,
                Err(e) => {
                    walker.fail(&found.path, &e.into());
                    continue;
                }
            };
            let sized = |bound: &Bound| attributes.is_some_and(|a| bound.has(a.size));
            if size.as_ref().is_some_and(|bound| !sized(bound)) {
                continue;
            }
            match attributes.filter(|_| json) {
                Some(attributes) => rows.push(show::json(&found.path, &attributes)),
                None => println!("{}", found.path),
            }
        }
    }
}

/// Runs the command. `false`: a part could not be read, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, visit, .. } = options;
    operands::each(places, visit, Access::Read, Shape::Rows, async |at| one(at, options).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_as_find_has_them() {
        for (pattern, name, expected) in [
            ("*.h5", "a.h5", true),
            ("*.h5", "a.h5x", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?", "", false),
            ("?", "x", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
        let (pattern, name) = ("*a".repeat(40), "a".repeat(200));
        assert!(fits(pattern.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn bounds_have_a_sign_and_a_unit() {
        assert_eq!(bound("+1G").unwrap(), Bound::More(1 << 30));
        assert_eq!(bound("-4K").unwrap(), Bound::Fewer(4096));
        assert_eq!(bound("7").unwrap(), Bound::Exactly(7));
        for text in ["", "+", "1Q", "--1"] {
            assert!(bound(text).unwrap_err().to_string().contains("+1G"), "{text}");
        }
    }

    #[test]
    fn long_options_of_find_may_have_one_dash() {
        let args = |texts: &[&str]| texts.iter().map(Into::into).collect::<Vec<_>>();
        let given = args(&["lustre", "find", "/d", "-name", "x", "-size", "+1"]);
        assert_eq!(spelled(given), args(&["lustre", "find", "/d", "--name", "x", "--size", "+1"]));
        let other = args(&["lustre", "ls", "-name"]);
        assert_eq!(spelled(other.clone()), other);
    }
}
