//! A target as operators write it, `NAME=KIND:DIR`, and its start: the lock of its directory, its
//! store, its kind. `ulnet serve` and `lnetctl target add` both come here. An echo target is in
//! memory, and has no directory. The directory of an mgs or mdt target has the description of its file
//! system, which is read with each start.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lustre_target::kv::Kv;
use lustre_target::{Commit, Lock, MGS_UUID, Mdt, MemoryStore, Mgs, Ost, OstLimits, Part, Site};

use crate::node::{RpcError, RpcNode};
use crate::store::{DESCRIPTION, DirLock, Disk, DiskConfig, OpenError};

/// Longest name of a target, bytes: its uuid on the wire has 40 with the zero behind it.
const NAME_MAX: usize = 38;
/// Most bytes of an echo target.
const ECHO_MAX: u64 = 1 << 30;

/// What a target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetKind {
    /// Values by key.
    Kv,
    /// Locks by name.
    Lock,
    /// Objects with ranges of bytes.
    Ost,
    /// Objects in memory, for tests of clients.
    Echo,
    /// The configuration of a file system.
    Mgs,
    /// Names and attributes of a file system.
    Mdt,
}

impl TargetKind {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Lock => "lock",
            Self::Ost => "ost",
            Self::Echo => "echo",
            Self::Mgs => "mgs",
            Self::Mdt => "mdt",
        }
    }

    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Kv, Self::Lock, Self::Ost, Self::Echo, Self::Mgs, Self::Mdt];

    /// The kind of a word.
    ///
    /// # Errors
    /// There is none; the text says which there are.
    fn of(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == word).ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            format!("kind '{}': expected {}", word.escape_debug(), names.join(", "))
        })
    }

    /// Whether it needs the description of a file system.
    const fn is_described(self) -> bool {
        matches!(self, Self::Mgs | Self::Mdt)
    }

    /// Whether what it holds survives its process.
    pub const fn has_dir(self) -> bool {
        !matches!(self, Self::Echo)
    }
}

/// A target: its name, its kind and its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// Its uuid.
    pub name: String,
    /// What it does.
    pub kind: TargetKind,
    /// Where its store is; empty for one in memory.
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
        if kind.has_dir() && dir.is_empty() {
            return bad(format!("directory of '{name}': expected a path"));
        }
        if !kind.has_dir() && !dir.is_empty() {
            let dir = dir.escape_debug();
            return bad(format!("directory '{dir}': expected none, an echo target is in memory"));
        }
        Ok(Self { name: name.to_owned(), kind, dir: dir.into() })
    }
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}:{}", self.name, self.kind.name(), self.dir.display())
    }
}

impl TargetSpec {
    /// Takes the lock of its directory; `None` for a target in memory.
    ///
    /// # Errors
    /// As [`DirLock::take`].
    pub fn lock(&self) -> Result<Option<DirLock>, OpenError> {
        self.kind.has_dir().then(|| DirLock::take(&self.dir)).transpose()
    }
}

/// The description in the directory of a target of this name, and its index there.
fn described(name: &str, kind: TargetKind, dir: &Path) -> Result<(Site, u32), RpcError> {
    let path = dir.join(DESCRIPTION);
    let bad = |e: &dyn fmt::Display| RpcError::Store(format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|e| bad(&e))?;
    let site: Site = text.parse().map_err(|e| bad(&e))?;
    let index = match kind {
        TargetKind::Mdt => site.mdt(name),
        _ => (name == MGS_UUID).then_some(0),
    };
    let Some(index) = index else {
        let mdts = site.targets().iter().filter(|target| target.part == Part::Mdt);
        let expected: Vec<String> = match kind {
            TargetKind::Mdt => mdts.map(|target| format!("'{}'", site.uuid(target))).collect(),
            _ => vec![format!("'{MGS_UUID}'")],
        };
        let (kind, expected) = (kind.name(), expected.join(" or "));
        return Err(bad(&format!("name of the {kind} target '{name}': expected {expected}")));
    };
    Ok((site, index))
}

impl RpcNode {
    /// Starts a target whose directory is locked ([`TargetSpec::lock`]), and the services of its kind.
    /// It recovers what clients of its life before had under way.
    ///
    /// # Errors
    /// The directory is damaged, holds something else or is not locked; there is a target of this
    /// name.
    pub fn start_target(
        &self,
        spec: &TargetSpec,
        lock: impl Into<Option<DirLock>>,
    ) -> Result<(), RpcError> {
        self.start_limited_target(spec, lock, OstLimits::default())
    }

    /// The same for a target whose objects are limited.
    ///
    /// # Errors
    /// As [`RpcNode::start_target`].
    pub fn start_limited_target(
        &self,
        spec: &TargetSpec,
        lock: impl Into<Option<DirLock>>,
        limits: OstLimits,
    ) -> Result<(), RpcError> {
        self.begin(spec, lock.into(), limits)?;
        self.serve_kind(spec.kind)
    }

    fn begin(
        &self,
        spec: &TargetSpec,
        lock: Option<DirLock>,
        limits: OstLimits,
    ) -> Result<(), RpcError> {
        let TargetSpec { name, kind, dir } = spec;
        if !kind.has_dir() {
            let store = MemoryStore::new(Commit::AtOnce, ECHO_MAX);
            return self.add_target_in_memory(name, Ost::echo(), store).map(|_| ());
        }
        let unlocked = || RpcError::Store(format!("{}: not locked", dir.display()));
        let lock = lock.ok_or_else(unlocked)?;
        let site = kind.is_described().then(|| described(name, *kind, dir)).transpose()?;
        let disk = Disk::open_locked(DiskConfig::new(dir), lock);
        let mut disk = disk.map_err(|e| RpcError::Store(e.to_string()))?;
        if let Some((site, index)) = site {
            return match kind {
                TargetKind::Mgs => self.add_target(name, Mgs::new(&[site]), disk),
                _ => {
                    let mdt = Mdt::load_at(site, index, &mut disk);
                    let mdt = mdt.map_err(|e| RpcError::Store(format!("{name}: {e}")))?;
                    self.add_target(name, mdt, disk)
                }
            }
            .map(|_| ());
        }
        let added = match kind {
            TargetKind::Kv => self.add_target(name, Kv::new(), disk),
            TargetKind::Lock => self.add_target(name, Lock::new(), disk),
            _ => self.add_target(name, Ost::new(limits), disk),
        };
        added.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_that_is_not_well_formed_is_refused_by_its_part() {
        let spec: TargetSpec = "a=kv:/b:c".parse().unwrap();
        assert_eq!((spec.dir.to_str(), spec.to_string()), (Some("/b:c"), "a=kv:/b:c".to_owned()));
        for text in ["a=ost:d", "a=echo:", "MGS=mgs:d", "lfs-MDT0000_UUID=mdt:d"] {
            assert_eq!(text.parse::<TargetSpec>().unwrap().to_string(), text);
        }
        let long = format!("{}=kv:d", "n".repeat(NAME_MAX + 1));
        for (text, part) in [
            ("a", "NAME=KIND:DIR"),
            ("a=kv", "NAME"),
            ("=kv:d", "name"),
            ("a@b=kv:d", "'a@b'"),
            ("a\n=kv:d", "'a\\n'"),
            (&long, "1 to 38"),
            ("a=mdd:d", "'mdd'"),
            ("a=ost:", "directory"),
            ("a=echo:d", "in memory"),
            ("a=kv:", "directory"),
        ] {
            let e = text.parse::<TargetSpec>().unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
