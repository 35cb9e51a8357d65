//! A target as operators write it, `NAME=KIND:DIR`, and its start: the lock of its directory, its
//! store, its kind. `ulnet serve` and `lnetctl target add` both come here.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use lustre_target::Lock;
use lustre_target::kv::Kv;

use crate::node::{RpcError, RpcNode};
use crate::store::{DirLock, Disk, DiskConfig};

/// Longest name of a target, bytes: its uuid on the wire has 40 with the zero behind it.
const NAME_MAX: usize = 38;

/// What a target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetKind {
    /// Values by key.
    Kv,
    /// Locks by name.
    Lock,
}

impl TargetKind {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Lock => "lock",
        }
    }

    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Kv, Self::Lock];

    /// The kind of a word.
    ///
    /// # Errors
    /// There is none; the text says which there are.
    fn of(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == word).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            format!("kind '{}': expected {}", word.escape_debug(), names.join(" or "))
        })
    }
}

/// A target: its name, its kind and its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// Its uuid.
    pub name: String,
    /// What it does.
    pub kind: TargetKind,
    /// Where its store is.
    pub dir: PathBuf,
}

/// A text is no `NAME=KIND:DIR`: which part, its value, what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseTargetError(String);

impl FromStr for TargetSpec {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        let bad = |what: String| Err(ParseTargetError(what));
        let parts = text.split_once('=').and_then(|(name, rest)| {
            let (kind, dir) = rest.split_once(':')?;
            Some((name, kind, dir))
        });
        let Some((name, kind, dir)) = parts else {
            return bad(format!("target '{text}': expected NAME=KIND:DIR"));
        };
        let printable = name.bytes().all(|b| b.is_ascii_graphic() && b != b'@');
        if name.is_empty() || name.len() > NAME_MAX || !printable {
            return bad(format!(
                "name '{}': expected 1 to {NAME_MAX} printable characters without '@'",
                name.escape_debug()
            ));
        }
        let kind = TargetKind::of(kind).map_err(ParseTargetError)?;
        if dir.is_empty() {
            return bad(format!("directory of '{name}': expected a path"));
        }
        Ok(Self { name: name.to_owned(), kind, dir: dir.into() })
    }
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}:{}", self.name, self.kind.name(), self.dir.display())
    }
}

impl RpcNode {
    /// Starts a target whose directory is locked. It recovers what clients of its life before had
    /// under way.
    ///
    /// # Errors
    /// The directory is damaged or holds something else; there is a target of this name.
    pub fn start_target(&self, spec: &TargetSpec, lock: DirLock) -> Result<(), RpcError> {
        let disk = Disk::open_locked(DiskConfig::new(&spec.dir), lock);
        let disk = disk.map_err(|e| RpcError::Store(e.to_string()))?;
        match spec.kind {
            TargetKind::Kv => self.add_target(&spec.name, Kv::new(), disk).map(|_| ()),
            TargetKind::Lock => self.add_target(&spec.name, Lock::new(), disk).map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_that_is_not_well_formed_is_refused_by_its_part() {
        let spec: TargetSpec = "a=kv:/b:c".parse().unwrap();
        assert_eq!((spec.dir.to_str(), spec.to_string()), (Some("/b:c"), "a=kv:/b:c".to_owned()));
        let long = format!("{}=kv:d", "n".repeat(NAME_MAX + 1));
        for (text, part) in [
            ("a", "NAME=KIND:DIR"),
            ("a=kv", "NAME"),
            ("=kv:d", "name"),
            ("a@b=kv:d", "'a@b'"),
            ("a\n=kv:d", "'a\\n'"),
            (&long, "1 to 38"),
            ("a=ost:d", "'ost'"),
            ("a=kv:", "directory"),
        ] {
            let e = text.parse::<TargetSpec>().unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
