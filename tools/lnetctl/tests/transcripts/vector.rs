//! Recorded commands: `$ command`, standard output, `# stderr:` and that text, `# exit N`.

use std::fs;
use std::path::PathBuf;

/// Where they are.
pub(crate) const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/lnetctl");

/// One recorded command, or what ours printed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) exit: i32,
}

impl Vector {
    /// The vector of that name.
    pub(crate) fn read(name: &str) -> Self {
        Self::read_from(FIXTURES, name)
    }

    /// The vector of that name in another directory.
    pub(crate) fn read_from(dir: &str, name: &str) -> Self {
        let path = PathBuf::from(dir).join(format!("{name}.txt"));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self::parse(name, &text).unwrap_or_else(|| panic!("{name}: not a vector"))
    }

    fn parse(name: &str, text: &str) -> Option<Self> {
        let (command, rest) = text.strip_prefix("$ ")?.split_once('\n')?;
        let (body, exit) = rest.trim_end().rsplit_once("# exit ")?;
        let (out, err) = match body.split_once("# stderr:\n") {
            Some((out, err)) => (out, err),
            None => (body, ""),
        };
        Some(Self {
            name: name.to_owned(),
            command: command.to_owned(),
            out: out.to_owned(),
            err: err.to_owned(),
            exit: exit.parse().ok()?,
        })
    }

    /// The words behind `lnetctl` of a command that is nothing but a call of it.
    pub(crate) fn words(&self) -> Option<Vec<String>> {
        let line = self.command.strip_prefix("lnetctl ")?;
        if line.contains([';', '|', '>', '<']) {
            return None;
        }
        // Double quotes around blanks are all the shell that the recordings use.
        let mut words = Vec::new();
        for (i, part) in line.split('"').enumerate() {
            match i % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        Some(words)
    }
}

/// The names of all vectors, sorted.
pub(crate) fn names() -> Vec<String> {
    names_in(FIXTURES)
}

/// Those in another directory.
pub(crate) fn names_in(dir: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("a directory of recordings")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".txt").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// The first difference between two texts, for people.
pub(crate) fn difference(expected: &str, got: &str) -> String {
    let (mut a, mut b) = (expected.lines(), got.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (a.next(), b.next()) {
            (None, None) => return "the end of the last line".to_owned(),
            (a, b) if a == b => {}
            (a, b) => {
                let show = |line: Option<&str>| {
                    line.map_or_else(|| "nothing".to_owned(), |l| format!("{l:?}"))
                };
                return format!("line {number}: recorded {}, got {}", show(a), show(b));
            }
        }
    }
}
