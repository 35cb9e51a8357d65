//! Reads what a scenario says of a file system: the names of its targets, which are their uuids, and what
//! programs of a workload of kind `files` do with its files.

use core::time::Duration;

use crate::error::ScenarioError;
use crate::read::{Table, Value};
use crate::rpc::{RpcWorld, TargetKind};

/// Operations on files, again and again, by visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLoad {
    /// Whether all programs of the load work in one directory; else each has one of its own.
    pub shared: bool,
    /// Whether the data of files is cached under locks until a file is synced or closed, or another client
    /// wants it; else each write is with its target when it has ended.
    pub cached: bool,
    /// Whether the first bytes of new files are on the metadata target.
    pub on_mdt: bool,
    /// Whether programs make small files whole as well, as `ulnet lustre cp` does: those come to be with all
    /// that is in them, and wait for their commit together.
    pub whole: bool,
    /// Names that are used in a directory.
    pub names: u32,
    /// Where files end at the latest, bytes.
    pub size: u32,
    /// Objects of a new file, at most; the metadata target chooses from 1 up.
    pub stripes: u32,
    /// When all directories of the load are read again by other visitors, from the beginning; `None`:
    /// never.
    pub check: Option<Duration>,
}

/// The name of the management target.
const MGS: &str = "MGS";
/// The end of the name of the metadata target that has the root.
const MDT: &str = "-MDT0000_UUID";
/// Most names of a directory, and how many there are where nothing is said.
const NAMES_MAX: i64 = 64;
const NAMES: u32 = 4;
/// Longest file, and how long one may be where nothing is said.
const SIZE_MAX: u64 = 4 << 20;
const SIZE: u32 = 256 << 10;
/// Most objects of a file.
const STRIPES_MAX: i64 = 8;

/// The file system that a name of a target is of; `None` for that of the management target.
fn fsname(name: &str, kind: TargetKind) -> Result<Option<&str>, ()> {
    let index = |name: &str| {
        let digits = |index: &&str| index.len() == 4 && u32::from_str_radix(index, 16).is_ok();
        name.strip_suffix("_UUID").filter(digits).map(|_| ())
    };
    match kind {
        TargetKind::Mgs if name == MGS => Ok(None),
        TargetKind::Mdt | TargetKind::Ost => {
            let part = if kind == TargetKind::Mdt { "-MDT" } else { "-OST" };
            let (fsname, rest) = name.rsplit_once(part).ok_or(())?;
            index(rest).map(|()| Some(fsname)).ok_or(())
        }
        _ => Err(()),
    }
}

/// Whether a target of a file system has a name that says of which one, and there is no other one.
pub(crate) fn check_name(
    value: &Value<'_, '_>,
    name: &str,
    kind: TargetKind,
    rpc: &RpcWorld,
) -> Result<(), ScenarioError> {
    if !kind.is_of_files() {
        return Ok(());
    }
    let forms = "MGS, FSNAME-MDTxxxx_UUID or FSNAME-OSTxxxx_UUID, as its kind says";
    let of = fsname(name, kind).map_err(|()| value.wrong(forms))?;
    let others = rpc.targets.iter().filter_map(|t| fsname(&t.name, t.kind).ok().flatten());
    let other = others.into_iter().find(|other| of.is_some_and(|of| of != *other));
    match other {
        Some(other) => Err(value.wrong(&format!("targets of one file system: '{other}'"))),
        None => Ok(()),
    }
}

/// Whether a file system is whole.
pub(crate) fn check(top: &Table<'_, '_>, rpc: &RpcWorld) -> Result<(), ScenarioError> {
    let has = |kind| rpc.targets.iter().any(|t| t.kind == kind);
    let all = [TargetKind::Mgs, TargetKind::Mdt, TargetKind::Ost];
    let lacks = all.into_iter().find(|kind| !has(*kind));
    match lacks {
        Some(kind) if all.into_iter().any(has) => {
            let kind = kind.name();
            Err(top.wrong(&format!("has a file system and no target of kind \"{kind}\"")))
        }
        None if !rpc.targets.iter().any(|t| t.kind == TargetKind::Mdt && t.name.ends_with(MDT)) => {
            Err(top.wrong(&format!("has a file system and no target FSNAME{MDT}")))
        }
        _ => Ok(()),
    }
}

/// The words of a workload of files that no other has.
pub(crate) fn read(t: &mut Table<'_, '_>) -> Result<FileLoad, ScenarioError> {
    let names = t.take("names").map(|v| v.number(1, NAMES_MAX)).transpose()?;
    let size = t.take("size").map(|v| v.size(SIZE_MAX)).transpose()?;
    let stripes = t.take("stripes").map(|v| v.number(1, STRIPES_MAX)).transpose()?;
    let shared = t.take("shared").map(|v| v.flag()).transpose()?.unwrap_or(false);
    let cached = match t.take("cached") {
        Some(value) if value.flag()? && shared => {
            return Err(value.wrong("false with shared: programs work on names alone then"));
        }
        Some(value) => value.flag()?,
        None => false,
    };
    let on_mdt = match t.take("on_mdt") {
        Some(value) if value.flag()? && cached => {
            return Err(value.wrong("false with cached: data of objects alone are cached"));
        }
        Some(value) => value.flag()?,
        None => false,
    };
    let whole = match t.take("whole") {
        Some(value) if value.flag()? && (shared || cached) => {
            return Err(
                value.wrong("false with shared or cached: a copy has a directory, and no cache")
            );
        }
        Some(value) => value.flag()?,
        None => false,
    };
    let check = t.take("check").map(|v| v.duration_above_zero()).transpose()?;
    Ok(FileLoad {
        shared,
        cached,
        on_mdt,
        whole,
        names: names.map_or(NAMES, |n| n as u32),
        size: size.unwrap_or(SIZE),
        stripes: stripes.map_or(1, |n| n as u32),
        check,
    })
}

impl RpcWorld {
    /// The name of the file system, if there is one.
    pub fn fsname(&self) -> Option<&str> {
        self.targets.iter().find_map(|t| fsname(&t.name, t.kind).ok().flatten())
    }
}
