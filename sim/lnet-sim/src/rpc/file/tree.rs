//! Files as a program may expect them: a tree in memory with the rules of POSIX, as far as Lustre promises
//! them. No target, no object and no handle stands in it.

mod across;

use std::collections::BTreeMap;
use std::sync::Arc;

use lnet_types::Errno;

use super::op::{FileAnswer, FileAt, FileBytes, FileOp, FilePath, FileShown};
use super::seen::{Dump, Found};
use super::work::{DIR_MODE, FILE_MODE};

/// Links that are followed on the way of one path.
const LINKS_MAX: usize = 40;

/// A file of a tree.
pub(super) type Id = u32;

/// The directory of the program.
const BASE: Id = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    File(Arc<Vec<u8>>),
    Dir(BTreeMap<u8, Id>),
    /// A path from the directory of the link on.
    Link(FilePath),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inode {
    body: Body,
    mode: u32,
    /// Names of a file; directories count those in them.
    names: u32,
    /// It was made whole, and not written since: no part of its data is there without the rest.
    whole: bool,
    /// The time of the last change of its data that a copy has given it; `None`: the time is some other one.
    mtime: Option<i64>,
}

/// A file that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    file: Id,
    /// Where it ends, as far as the program knows: it keeps no lock, and hears nothing of what others
    /// write.
    size: u64,
}

/// See the module's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    inodes: BTreeMap<Id, Arc<Inode>>,
    next: Id,
    open: BTreeMap<u8, Open>,
    /// Files that another metadata target than the first one has, or had.
    away: BTreeMap<Id, u32>,
    /// How the program works with data.
    pub(super) manner: Manner,
}

/// How a program works with the data of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Manner {
    /// It hears of what others write, as it has locks.
    pub(super) cached: bool,
    /// The data of each file have one holder, which gets each change in its turn.
    pub(super) single: bool,
}

/// The bytes of a file, longer or shorter.
fn resized(data: &[u8], size: u64) -> Vec<u8> {
    let mut data = data.to_vec();
    data.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
    data
}

impl Tree {
    /// Nothing yet, of a program that works in this manner.
    pub(super) fn of(manner: Manner) -> Self {
        Self { manner, ..Self::default() }
    }

    /// Whether the data of a file, if it is there, are what they were between two changes at any time, and never
    /// a mixture.
    pub(super) fn is_exact(&self, id: Id) -> bool {
        self.manner.single || self.inode(id).map_or(true, |inode| inode.whole)
    }

    /// Whether the directory of the program was made.
    pub(super) fn is_there(&self) -> bool {
        self.inodes.contains_key(&BASE)
    }

    fn inode(&self, id: Id) -> Result<&Inode, Errno> {
        self.inodes.get(&id).map(|inode| &**inode).ok_or(Errno::ENOENT)
    }

    fn change(&mut self, id: Id, f: impl FnOnce(&mut Inode)) {
        if let Some(inode) = self.inodes.get_mut(&id) {
            f(Arc::make_mut(inode));
        }
    }

    fn entries(&self, id: Id) -> Result<&BTreeMap<u8, Id>, Errno> {
        match &self.inode(id)?.body {
            Body::Dir(entries) => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn entries_mut(&mut self, id: Id, f: impl FnOnce(&mut BTreeMap<u8, Id>)) {
        self.change(id, |inode| {
            if let Body::Dir(entries) = &mut inode.body {
                f(entries);
            }
        });
    }

    pub(super) fn data(&self, id: Id) -> Result<&Arc<Vec<u8>>, Errno> {
        match &self.inode(id)?.body {
            Body::File(data) => Ok(data),
            Body::Dir(_) => Err(Errno::EISDIR),
            Body::Link(_) => Err(Errno::ELOOP),
        }
    }

    /// The file of a path.
    pub(super) fn find(&self, path: &FilePath, follow: bool) -> Result<Id, Errno> {
        let mut names: Vec<u8> = path.0.iter().rev().copied().collect();
        let mut at = BASE;
        self.inode(at)?;
        let mut links = 0;
        while let Some(name) = names.pop() {
            let id = *self.entries(at)?.get(&name).ok_or(Errno::ENOENT)?;
            if let Body::Link(to) = &self.inode(id)?.body
                && (follow || !names.is_empty())
            {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::ELOOP);
                }
                names.extend(to.0.iter().rev());
                continue;
            }
            at = id;
        }
        Ok(at)
    }

    /// The directory of a path, and the name in it.
    fn parent(&self, path: &FilePath) -> Result<(Id, u8), Errno> {
        let (dir, name) = path.split().ok_or(Errno::EINVAL)?;
        let dir = self.find(&dir, true)?;
        self.entries(dir)?;
        Ok((dir, name))
    }

    fn add(&mut self, dir: Id, name: u8, body: Body, mode: u32) -> Id {
        let id = self.next.max(BASE + 1);
        self.next = id + 1;
        let (whole, mtime) = (false, None);
        self.inodes.insert(id, Arc::new(Inode { body, mode, names: 1, whole, mtime }));
        self.place(id, self.on(dir));
        self.entries_mut(dir, |entries| _ = entries.insert(name, id));
        id
    }

    /// The metadata target that has a file, or had it.
    pub(super) fn on(&self, id: Id) -> u32 {
        self.away.get(&id).copied().unwrap_or(0)
    }

    fn place(&mut self, id: Id, mdt: u32) {
        match mdt {
            0 => _ = self.away.remove(&id),
            mdt => _ = self.away.insert(id, mdt),
        }
    }

    fn is_open(&self, id: Id) -> bool {
        self.open.values().any(|open| open.file == id)
    }

    /// A name goes, and its file with the last one, unless it is open.
    fn drop_name(&mut self, dir: Id, name: u8, id: Id) {
        self.entries_mut(dir, |entries| _ = entries.remove(&name));
        self.change(id, |inode| inode.names -= 1);
        self.forget(id);
    }

    fn forget(&mut self, id: Id) {
        if self.inode(id).is_ok_and(|inode| inode.names == 0) && !self.is_open(id) {
            self.inodes.remove(&id);
        }
    }

    /// Whether a directory is another one, or above it.
    fn is_above(&self, id: Id, other: Id) -> bool {
        let below = |at: Id| match self.entries(at) {
            Ok(entries) => entries.values().copied().collect(),
            Err(_) => Vec::new(),
        };
        let mut rest = vec![id];
        while let Some(at) = rest.pop() {
            if at == other {
                return true;
            }
            rest.extend(below(at));
        }
        false
    }

    /// A file that is opened by its name, or made.
    fn make(&mut self, path: &FilePath, exclusive: bool) -> Result<Id, Errno> {
        let (dir, name) = self.parent(path)?;
        match self.entries(dir)?.get(&name).copied() {
            Some(_) if exclusive => Err(Errno::EEXIST),
            Some(id) => match self.inode(id)?.body {
                Body::File(_) => Ok(id),
                Body::Dir(_) => Err(Errno::EISDIR),
                // A visitor does not follow a link that has the name of a new file.
                Body::Link(_) => Err(Errno::EOPNOTSUPP),
            },
            None => {
                let body = Body::File(Arc::default());
                Ok(self.add(dir, name, body, FILE_MODE))
            }
        }
    }

    fn make_dir(&mut self, path: &FilePath) -> Result<Id, Errno> {
        let (dir, name) = self.parent(path)?;
        match self.entries(dir)?.contains_key(&name) {
            true => Err(Errno::EEXIST),
            false => Ok(self.add(dir, name, Body::Dir(BTreeMap::new()), DIR_MODE)),
        }
    }

    fn set(&mut self, id: Id, data: Vec<u8>) {
        self.change(id, |inode| {
            inode.body = Body::File(Arc::new(data));
            (inode.whole, inode.mtime) = (false, None);
        });
    }

    /// A copy of a file of this machine.
    fn make_whole(&mut self, path: &FilePath, data: FileBytes, mtime: i64) -> Result<(), Errno> {
        let before = self.next;
        let id = self.make(path, false)?;
        self.set(id, data.bytes(0));
        let made = self.next != before;
        self.change(id, |inode| {
            inode.mode = FILE_MODE;
            (inode.whole, inode.mtime) = (made, Some(mtime));
        });
        Ok(())
    }

    /// A file to be read or written through its path.
    fn file(&self, path: &FilePath) -> Result<Id, Errno> {
        let id = self.find(path, true)?;
        self.data(id)?;
        Ok(id)
    }

    /// Writes; gives where it ended.
    fn write(&mut self, id: Id, known: u64, bytes: FileBytes) -> Result<u64, Errno> {
        let from = match bytes.at {
            FileAt::Offset(from) => from,
            FileAt::End => known,
        };
        let end = from + u64::from(bytes.len);
        let before = self.data(id)?;
        let mut data = resized(before, end.max(before.len() as u64));
        let place = usize::try_from(from).unwrap_or(usize::MAX);
        let to = place.saturating_add(bytes.len as usize);
        if let Some(part) = data.get_mut(place..to) {
            part.copy_from_slice(&bytes.bytes(from));
        }
        self.set(id, data);
        Ok(end)
    }

    fn rename(&mut self, from: &FilePath, to: &FilePath) -> Result<(), Errno> {
        let id = self.find(from, false)?;
        let (source, old) = self.parent(from)?;
        let (target, new) = self.parent(to)?;
        let is_dir = self.entries(id).is_ok();
        let victim = self.entries(target)?.get(&new).copied();
        if victim == Some(id) {
            return Ok(());
        }
        if is_dir && self.is_above(id, target) {
            return Err(Errno::EINVAL);
        }
        if let Some(victim) = victim {
            match (is_dir, self.entries(victim)) {
                (true, Err(_)) => return Err(Errno::ENOTDIR),
                (false, Ok(_)) => return Err(Errno::EISDIR),
                (true, Ok(entries)) if !entries.is_empty() => return Err(Errno::ENOTEMPTY),
                _ => {}
            }
            self.drop_name(target, new, victim);
        }
        self.entries_mut(source, |entries| _ = entries.remove(&old));
        self.entries_mut(target, |entries| _ = entries.insert(new, id));
        Ok(())
    }

    /// Gives a file one more name.
    pub(super) fn link(&mut self, id: Id, to: &FilePath) -> Result<(), Errno> {
        let (dir, name) = self.parent(to)?;
        self.inode(id)?;
        if self.entries(id).is_ok() {
            return Err(Errno::EPERM);
        }
        if self.entries(dir)?.contains_key(&name) {
            return Err(Errno::EEXIST);
        }
        self.entries_mut(dir, |entries| _ = entries.insert(name, id));
        self.change(id, |inode| inode.names += 1);
        Ok(())
    }

    /// The text of a link.
    pub(super) fn text(&self, id: Id) -> Result<FileAnswer, Errno> {
        match &self.inode(id)?.body {
            Body::Link(text) => Ok(FileAnswer::Text(text.bytes())),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Whether a file has no name any more.
    pub(super) fn is_gone(&self, id: Id) -> bool {
        !self.inodes.contains_key(&id)
    }

    fn remove(&mut self, path: &FilePath) -> Result<(), Errno> {
        let id = self.find(path, false)?;
        let (dir, name) = self.parent(path)?;
        if self.entries(id).is_ok_and(|entries| !entries.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        self.drop_name(dir, name, id);
        Ok(())
    }

    /// Names of a file, of a directory those in it that are directories, itself and its own name.
    fn nlink(&self, id: Id) -> u32 {
        match self.inode(id).map(|inode| (&inode.body, inode.names)) {
            Ok((Body::Dir(entries), _)) => {
                let dirs = entries.values().filter(|id| self.entries(**id).is_ok());
                2 + dirs.count() as u32
            }
            Ok((_, names)) => names,
            Err(_) => 0,
        }
    }

    pub(super) fn kind(&self, id: Id) -> FileShown {
        match self.inode(id).map(|inode| &inode.body) {
            Ok(Body::Dir(_)) => FileShown::Dir,
            Ok(Body::Link(_)) => FileShown::Link,
            _ => FileShown::File,
        }
    }

    /// What an operation does, and what its program gets.
    pub(super) fn apply(&mut self, op: &FileOp) -> Result<FileAnswer, Errno> {
        match op {
            FileOp::Base => {
                if !self.is_there() {
                    let body = Body::Dir(BTreeMap::new());
                    let (mode, names, whole, mtime) = (DIR_MODE, 1, false, None);
                    let inode = Inode { body, mode, names, whole, mtime };
                    self.inodes.insert(BASE, Arc::new(inode));
                }
            }
            FileOp::Mkdir(path) => _ = self.make_dir(path)?,
            FileOp::MkdirOn(path, mdt) => {
                let id = self.make_dir(path)?;
                self.place(id, *mdt);
            }
            FileOp::Create(path) => _ = self.make(path, true)?,
            FileOp::Write { path, create, truncate, data, .. } => {
                let id = if *create { self.make(path, false)? } else { self.file(path)? };
                if *truncate {
                    self.set(id, Vec::new());
                }
                let known = self.data(id)?.len() as u64;
                self.write(id, known, *data)?;
            }
            FileOp::Whole { path, data, times: (_, mtime) } => {
                self.make_whole(path, *data, *mtime)?;
            }
            FileOp::Read(path) => {
                return Ok(FileAnswer::Bytes(self.data(self.file(path)?)?.to_vec()));
            }
            FileOp::Truncate(path, size) => {
                let id = self.file(path)?;
                let data = resized(self.data(id)?, *size);
                self.set(id, data);
            }
            FileOp::Rename(from, to) => self.rename(from, to)?,
            FileOp::Link(from, to) => {
                let id = self.find(from, false)?;
                self.link(id, to)?;
            }
            FileOp::Symlink(path, text) => {
                let (dir, name) = self.parent(path)?;
                if self.entries(dir)?.contains_key(&name) {
                    return Err(Errno::EEXIST);
                }
                self.add(dir, name, Body::Link(text.clone()), 0o777);
            }
            FileOp::ReadLink(path) => return self.text(self.find(path, false)?),
            FileOp::Remove(path) => self.remove(path)?,
            FileOp::List(path) => {
                let entries = self.entries(self.find(path, true)?)?;
                let mut names: Vec<_> = entries.keys().map(|name| FilePath::name(*name)).collect();
                names.sort();
                return Ok(FileAnswer::Names(names));
            }
            FileOp::Stat(path) => {
                let id = self.find(path, false)?;
                let (kind, mode) = (self.kind(id), self.inode(id)?.mode);
                let size = self.data(id).map_or(0, |data| data.len() as u64);
                return Ok(FileAnswer::Attributes { kind, mode, nlink: self.nlink(id), size });
            }
            FileOp::Chmod(path, mode) => {
                let id = self.find(path, true)?;
                self.change(id, |inode| inode.mode = *mode);
            }
            FileOp::Open(slot, path, create) => {
                let file = if *create { self.make(path, false)? } else { self.file(path)? };
                let size = self.data(file)?.len() as u64;
                self.open.insert(*slot, Open { file, size });
            }
            FileOp::WriteOpen(slot, data, _) => {
                let Open { file, size } = *self.open.get(slot).ok_or(Errno::EBADF)?;
                let end = self.write(file, size, *data)?;
                self.open.insert(*slot, Open { file, size: size.max(end) });
            }
            FileOp::ReadOpen(slot) => {
                let Open { file, size } = *self.open.get(slot).ok_or(Errno::EBADF)?;
                let data = self.data(file)?;
                let bytes = if self.manner.cached { data.to_vec() } else { resized(data, size) };
                return Ok(FileAnswer::Bytes(bytes));
            }
            FileOp::Close(slot) => {
                let Open { file, .. } = self.open.remove(slot).ok_or(Errno::EBADF)?;
                // It says when the file was written through this open.
                self.change(file, |inode| inode.mtime = None);
                self.forget(file);
            }
            FileOp::Sync | FileOp::Settle => {}
        }
        Ok(FileAnswer::Done)
    }

    /// The paths below a directory, each with its file.
    fn paths(&self) -> BTreeMap<Vec<u8>, Id> {
        let mut all = BTreeMap::new();
        let mut rest = vec![(FilePath::default(), BASE)];
        while let Some((path, dir)) = rest.pop() {
            for (name, id) in self.entries(dir).into_iter().flatten() {
                let mut path = path.clone();
                path.0.push(*name);
                all.insert(path.bytes(), *id);
                rest.push((path, *id));
            }
        }
        all
    }

    /// The files whose data are others than in the tree before, and what they are now.
    pub(super) fn changed<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (Id, Arc<Vec<u8>>)> + 'a {
        self.inodes.keys().filter_map(|id| {
            let data = self.data(*id).ok()?;
            let same = before.data(*id).is_ok_and(|old| Arc::ptr_eq(old, data));
            (!same).then(|| (*id, data.clone()))
        })
    }

    /// The file that an operation has synced.
    pub(super) fn synced(&self, op: &FileOp) -> Option<Id> {
        match op {
            FileOp::Write { path, fsync: true, .. } => self.find(path, true).ok(),
            FileOp::WriteOpen(slot, _, true) => self.open.get(slot).map(|open| open.file),
            _ => None,
        }
    }

    /// The file whose data are committed as an operation has left them, names aside: what is written without a
    /// cache is with its one holder when the write has ended, but for what a copy writes.
    pub(super) fn stored(&self, op: &FileOp) -> Option<Id> {
        match op {
            _ if self.manner.cached || !self.manner.single => None,
            FileOp::Write { path, .. } => self.find(path, true).ok(),
            FileOp::WriteOpen(slot, ..) => self.open.get(slot).map(|open| open.file),
            _ => None,
        }
    }

    /// The file whose data an operation of a program with a cache has brought to the targets.
    pub(super) fn written_back(&self, op: &FileOp) -> Option<Id> {
        match op {
            _ if !self.manner.cached => None,
            FileOp::Write { path, .. } => self.find(path, true).ok(),
            FileOp::Close(slot) => self.open.get(slot).map(|open| open.file),
            _ => None,
        }
    }

    /// Whether an operation is on an open file that has no name any more: it is there as long as it is open.
    pub(super) fn is_nameless(&self, op: &FileOp) -> bool {
        let gone = |slot| {
            let file = self.open.get(slot).and_then(|open| self.inode(open.file).ok());
            file.is_some_and(|inode| inode.names == 0)
        };
        match op {
            FileOp::WriteOpen(slot, ..) | FileOp::ReadOpen(slot) => gone(slot),
            // Of all that are open.
            FileOp::Sync => self.open.keys().any(gone),
            _ => false,
        }
    }

    /// Why what was found is not this tree.
    pub(super) fn differs(&self, dump: &Dump, may: &May<'_>) -> Option<String> {
        let paths = self.paths();
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        if let Some(path) = paths.keys().find(|path| !dump.contains_key(*path)) {
            return Some(format!("{} is not there", shown(path)));
        }
        let mut fids: BTreeMap<Id, (u64, u32)> = BTreeMap::new();
        for (path, found) in dump {
            let name = shown(path);
            let Some(id) = paths.get(path).copied() else {
                return Some(format!("{name} is there"));
            };
            let Ok(inode) = self.inode(id) else { continue };
            let expected = (self.kind(id), inode.mode, self.nlink(id));
            let Found { fid, kind, mode, nlink, bytes, size, mtime } = found;
            if (*kind, *mode, *nlink) != expected {
                return Some(format!(
                    "{name} has kind, mode, links {:?}: expected {expected:?}",
                    (kind, mode, nlink)
                ));
            }
            if *fids.entry(id).or_insert(*fid) != *fid {
                return Some(format!("{name} is another file than under its other name"));
            }
            if let Some(expected) = inode.mtime.filter(|time| may.times && time != mtime) {
                return Some(format!("{name} has the time {mtime}, expected {expected}"));
            }
            match &inode.body {
                Body::Dir(_) => {}
                Body::Link(text) if text.bytes() == *bytes => {}
                Body::Link(text) => {
                    return Some(format!("{name} leads to '{}', not to {text}", shown(bytes)));
                }
                Body::File(_) if bytes.len() as u64 != *size => {
                    let have = bytes.len();
                    return Some(format!("{name} shows a size of {size} and has {have} bytes"));
                }
                Body::File(data) => {
                    if !may.be(id, data, bytes) {
                        return Some(difference(&name, data, bytes));
                    }
                }
            }
        }
        let mut all: Vec<_> = fids.values().collect();
        all.sort_unstable();
        all.dedup();
        (all.len() != fids.len()).then(|| "two files are one".to_owned())
    }
}

/// Data that files may have, by file.
pub(super) type Versions = BTreeMap<Id, Vec<Arc<Vec<u8>>>>;

/// How files may differ from those of a tree.
pub(super) struct May<'a> {
    /// Those that are named here have one of these data, or a mixture of them.
    pub(super) versions: &'a Versions,
    /// Whether those of a file are no mixture.
    pub(super) exact: &'a dyn Fn(Id) -> bool,
    /// Their times are those of the tree.
    pub(super) times: bool,
}

impl May<'_> {
    /// Whether a file that has some data in the tree may have these. What is committed of it is there also
    /// where the names are those of an earlier tree.
    fn be(&self, id: Id, expected: &[u8], bytes: &[u8]) -> bool {
        match self.versions.get(&id).filter(|all| !all.is_empty()) {
            None => expected == bytes,
            Some(all) if (self.exact)(id) => all.iter().any(|data| **data == *bytes),
            Some(all) => is_mixed(bytes, all),
        }
    }
}

/// Whether each byte is of one of some versions of a file. It may be shorter than each of them: one object
/// was made longer for the end of a file that another one had, and has lost that alone.
fn is_mixed(bytes: &[u8], versions: &[Arc<Vec<u8>>]) -> bool {
    let Some(most) = versions.iter().map(|data| data.len()).max() else { return false };
    let at = |data: &[u8], place: usize| data.get(place).copied().unwrap_or(0);
    let mut places = bytes.iter().enumerate();
    bytes.len() <= most
        && places.all(|(place, byte)| versions.iter().any(|data| *byte == at(data, place)))
}

/// Where data differ.
pub(super) fn difference(name: &str, expected: &[u8], found: &[u8]) -> String {
    let differ = expected.iter().zip(found).enumerate().find(|(_, (a, b))| a != b);
    let (want, have) = (expected.len(), found.len());
    match differ {
        Some((at, (a, b))) => {
            format!("{name} has {have} bytes, expected {want}, and byte {at} is {b}, expected {a}")
        }
        None => format!("{name} has {have} bytes: expected {want}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(names: &[u8]) -> FilePath {
        FilePath(names.to_vec())
    }

    fn write(names: &[u8], at: FileAt, len: u32) -> FileOp {
        let data = FileBytes { at, len, fill: 7 };
        FileOp::Write { path: path(names), create: true, truncate: false, data, fsync: false }
    }

    #[test]
    fn operations_have_the_results_of_posix() {
        let mut tree = Tree::default();
        let (a, b, inner) = (path(&[1]), path(&[2]), path(&[1, 2]));
        for (op, expected) in [
            (FileOp::Mkdir(a.clone()), Err(Errno::ENOENT)),
            (FileOp::Base, Ok(FileAnswer::Done)),
            (FileOp::Mkdir(a.clone()), Ok(FileAnswer::Done)),
            (FileOp::Mkdir(a.clone()), Err(Errno::EEXIST)),
            (write(&[1, 2], FileAt::Offset(2), 1), Ok(FileAnswer::Done)),
            (write(&[1, 2], FileAt::End, 1), Ok(FileAnswer::Done)),
            (FileOp::Remove(a.clone()), Err(Errno::ENOTEMPTY)),
            (FileOp::Rename(a.clone(), path(&[1, 3])), Err(Errno::EINVAL)),
            (FileOp::Rename(inner.clone(), a.clone()), Err(Errno::EISDIR)),
            (FileOp::Link(a.clone(), b.clone()), Err(Errno::EPERM)),
            (FileOp::Link(inner.clone(), b.clone()), Ok(FileAnswer::Done)),
            (FileOp::Rename(inner.clone(), b.clone()), Ok(FileAnswer::Done)),
            (
                FileOp::Stat(b.clone()),
                Ok(FileAnswer::Attributes {
                    kind: FileShown::File,
                    mode: FILE_MODE,
                    nlink: 2,
                    size: 4,
                }),
            ),
            (FileOp::Rename(a.clone(), b.clone()), Err(Errno::ENOTDIR)),
            (FileOp::Read(a.clone()), Err(Errno::EISDIR)),
            (FileOp::Symlink(path(&[4]), path(&[4])), Ok(FileAnswer::Done)),
            (FileOp::Read(path(&[4])), Err(Errno::ELOOP)),
            (FileOp::Read(path(&[2, 1])), Err(Errno::ENOTDIR)),
            (FileOp::Open(0, b.clone(), false), Ok(FileAnswer::Done)),
            (FileOp::Remove(b), Ok(FileAnswer::Done)),
            (FileOp::Remove(inner.clone()), Ok(FileAnswer::Done)),
            (FileOp::Remove(inner), Err(Errno::ENOENT)),
            (FileOp::Close(0), Ok(FileAnswer::Done)),
            (FileOp::ReadOpen(0), Err(Errno::EBADF)),
            (FileOp::List(a), Ok(FileAnswer::Names(Vec::new()))),
        ] {
            assert_eq!(tree.apply(&op), expected, "{op:?}");
        }
        assert_eq!(tree.inodes.len(), 3, "the base, a directory, a link: {tree:?}");
    }

    #[test]
    fn holes_are_zeros_and_no_written_byte_is() {
        let mut tree = Tree::default();
        tree.apply(&FileOp::Base).unwrap();
        tree.apply(&write(&[1], FileAt::Offset(3), 2)).unwrap();
        tree.apply(&FileOp::Truncate(path(&[1]), 7)).unwrap();
        let Ok(FileAnswer::Bytes(bytes)) = tree.apply(&FileOp::Read(path(&[1]))) else { panic!() };
        let holes: Vec<bool> = bytes.iter().map(|byte| *byte == 0).collect();
        assert_eq!(holes, [true, true, true, false, false, true, true]);
    }

    #[test]
    fn a_mixture_is_of_its_versions_alone() {
        let mixed = |bytes: &[u8], one: &[u8], other: &[u8]| {
            is_mixed(bytes, &[Arc::new(one.to_vec()), Arc::new(other.to_vec())])
        };
        assert!(mixed(&[1, 2], &[1, 1], &[2, 2]));
        assert!(mixed(&[1], &[1], &[2, 2]));
        assert!(mixed(&[1, 0, 2], &[1], &[2, 2, 2]));
        assert!(!mixed(&[3, 2], &[1, 1], &[2, 2]));
        assert!(!mixed(&[1, 2, 2], &[1, 1], &[2, 2]));
    }
}
