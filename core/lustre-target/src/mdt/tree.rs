//! What a metadata target has: files by FID, names by directory, open handles, and what is known of the
//! objects of its files. All of it is in memory, and in records of the store, which are read when the
//! target is started; an [`Edit`] changes both.
//!
//! | key | record |
//! |---|---|
//! | `i` FID | a file |
//! | `n` FID name | a name in a directory: FID, type |
//! | `x` FID name | an extended attribute |
//! | `o` handle | an open handle: FID, flags, client |
//! | `s` | the next sequence for clients |
//! | `u` index | the last object that was used of an object target |
//! | `d` index number | what is owed to an object: to be destroyed, or given to another owner |
//! | `p` number | a change that is made here, and not known to be made on another target: its index |
//! | `r` index number | a name that is held for a change of another target |

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::across::NameChange;
use super::inode::{DIRECTORY, Id, Inode, take};
use super::sequences;
use crate::records::Opening;
use crate::store::{Change, Space, Store, StoreError};

/// The first object number of a target that is used: the number before is where all begins.
const FIRST_OBJECT: u64 = 1;
/// Hashes of `.` and `..`, below those of names.
const DOT_HASH: u64 = 1;
const DOT_DOT_HASH: u64 = 2;
const FIRST_HASH: u64 = 16;

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: Id,
    /// Upper bits of the mode.
    pub(super) kind: u32,
}

/// The names of a directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    names: BTreeMap<Vec<u8>, Entry>,
    /// The same in the order in which they are listed.
    order: BTreeSet<(u64, Vec<u8>)>,
}

/// An open handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) id: Id,
    /// Lower half of the flags.
    pub(super) flags: u32,
    pub(super) client: String,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Index of the target.
    index: u32,
    inodes: BTreeMap<Id, Inode>,
    dirs: BTreeMap<Id, Dir>,
    xattrs: BTreeMap<Id, BTreeMap<Vec<u8>, Vec<u8>>>,
    opens: BTreeMap<u64, Open>,
    /// Open handles of each file.
    open_counts: BTreeMap<Id, u32>,
    next_seq: u64,
    used: BTreeMap<u32, u64>,
    /// What is owed to objects.
    owed: BTreeMap<(u32, u64), Owed>,
    /// Changes that other targets have to make, and which one.
    pending: BTreeMap<u64, u32>,
    /// Changes of other targets for which names are held.
    prepared: BTreeMap<ChangeId, NameChange>,
}

/// A change of another target: its index, and its number for the change.
pub(super) type ChangeId = (u32, u64);

/// What an object target is to do to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Debt {
    /// Its file is gone.
    Destroy,
    /// Its file has this user and group now (C-120).
    Own(u32, u32),
}

/// A debt, and the transaction that must be committed before it is paid.
#[derive(Clone, Copy, Debug)]
struct Owed {
    debt: Debt,
    after: u64,
}

impl Debt {
    fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Destroy => Vec::new(),
            Self::Own(uid, gid) => [uid, gid].into_iter().flat_map(u32::to_le_bytes).collect(),
        }
    }

    fn read(mut bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::Destroy);
        }
        let b = &mut bytes;
        let debt = Self::Own(u32::from_le_bytes(take(b)?), u32::from_le_bytes(take(b)?));
        b.is_empty().then_some(debt)
    }
}

/// The hash of a name: 63 bits, as kernel clients keep a sign.
pub(super) fn hash_of(name: &[u8]) -> u64 {
    match name {
        b"." => return DOT_HASH,
        b".." => return DOT_DOT_HASH,
        _ => {}
    }
    let fnv = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    // The last bytes of a name are to reach the upper bits.
    let mixed = (fnv ^ fnv >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29) >> 1).clamp(FIRST_HASH, u64::MAX >> 1 & !0xff)
}

impl Dir {
    /// The names whose hash is not below this one, with their hashes.
    fn from(&self, hash: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let from = (Bound::Included((hash, Vec::new())), Bound::Unbounded);
        self.order.range(from).map(|(hash, name)| (*hash, name.as_slice()))
    }

    fn insert(&mut self, name: &[u8], entry: Entry) {
        self.names.insert(name.to_vec(), entry);
        self.order.insert((hash_of(name), name.to_vec()));
    }

    fn remove(&mut self, name: &[u8]) {
        self.names.remove(name);
        self.order.remove(&(hash_of(name), name.to_vec()));
    }
}

fn key(kind: u8, id: Id, name: &[u8]) -> Vec<u8> {
    [&[kind], &id.key()[..], name].concat()
}

fn numbered(kind: u8, index: u32, number: Option<u64>) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend(index.to_be_bytes());
    key.extend(number.iter().flat_map(|number| number.to_be_bytes()));
    key
}

impl Entry {
    fn to_bytes(self) -> Vec<u8> {
        [&self.id.key()[..], &self.kind.to_le_bytes()].concat()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (id, rest) = Id::of_key(bytes)?;
        Some(Self { id, kind: u32::from_le_bytes(rest.try_into().ok()?) })
    }
}

impl Open {
    fn to_bytes(&self) -> Vec<u8> {
        [&self.id.key()[..], &self.flags.to_le_bytes(), self.client.as_bytes()].concat()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (id, mut rest) = Id::of_key(bytes)?;
        let flags = u32::from_le_bytes(take(&mut rest)?);
        Some(Self { id, flags, client: String::from_utf8(rest.to_vec()).ok()? })
    }
}

fn index_of(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

impl Tree {
    /// What the store of the target of this index has.
    ///
    /// # Errors
    /// The store's, [`StoreError::Damaged`] for records that can't be read, do not fit together, or are
    /// another target's.
    pub(super) fn load(store: &mut dyn Store, index: u32) -> Result<Self, StoreError> {
        // The first sequence is the target's own.
        let next_seq = sequences::of_mdt(index).start + 1;
        let mut tree = Self { index, next_seq, ..Self::default() };
        for (key, record) in (Opening { store }).all(Space::Objects)? {
            tree.take(&key, &record).ok_or_else(|| damaged(&key, "it can't be read"))?;
        }
        for open in tree.opens.values() {
            *tree.open_counts.entry(open.id).or_default() += 1;
        }
        tree.check()?;
        Ok(tree)
    }

    fn take(&mut self, key: &[u8], record: &[u8]) -> Option<()> {
        let (kind, rest) = key.split_first()?;
        match kind {
            b'i' => {
                let (id, []) = Id::of_key(rest)? else { return None };
                let inode = Inode::read(record)?;
                if inode.is_dir() {
                    self.dirs.entry(id).or_default();
                }
                self.inodes.insert(id, inode);
            }
            b'n' => {
                let (id, name) = Id::of_key(rest)?;
                self.dirs.entry(id).or_default().insert(name, Entry::read(record)?);
            }
            b'x' => {
                let (id, name) = Id::of_key(rest)?;
                self.xattrs.entry(id).or_default().insert(name.to_vec(), record.to_vec());
            }
            b'o' => {
                let handle = u64::from_be_bytes(rest.try_into().ok()?);
                self.opens.insert(handle, Open::read(record)?);
            }
            b's' => self.next_seq = number(record)?,
            b'u' => {
                let index = u32::from_be_bytes(rest.try_into().ok()?);
                self.used.insert(index, number(record)?);
            }
            b'd' => {
                let (index, rest) = rest.split_first_chunk()?;
                let object = u64::from_be_bytes(rest.try_into().ok()?);
                let owed = Owed { debt: Debt::read(record)?, after: 0 };
                self.owed.insert((u32::from_be_bytes(*index), object), owed);
            }
            b'p' => {
                self.pending.insert(u64::from_be_bytes(rest.try_into().ok()?), index_of(record)?);
            }
            b'r' => {
                let (index, rest) = rest.split_first_chunk()?;
                let number = u64::from_be_bytes(rest.try_into().ok()?);
                let change = NameChange::read(record)?;
                self.prepared.insert((u32::from_be_bytes(*index), number), change);
            }
            _ => return None,
        }
        Some(())
    }

    /// Each name has its file, here or elsewhere, each directory that is no file's is an error.
    fn check(&self) -> Result<(), StoreError> {
        for id in self.inodes.keys() {
            if !self.is_here(*id) {
                return Err(damaged(&key(b'i', *id, b""), "it is a file of another target"));
            }
        }
        for (id, dir) in &self.dirs {
            if !self.inodes.get(id).is_some_and(Inode::is_dir) {
                return Err(damaged(&key(b'i', *id, b""), "it has names, and is no directory"));
            }
            for (name, entry) in &dir.names {
                let kind = match self.is_here(entry.id) {
                    true => self.inodes.get(&entry.id).map(Inode::kind),
                    false => sequences::mdt_of(entry.id).map(|_| DIRECTORY),
                };
                if kind != Some(entry.kind) {
                    return Err(damaged(&key(b'n', *id, name), "it names no file of its type"));
                }
            }
        }
        Ok(())
    }

    /// Whether a file of this name is on this target, if it exists.
    pub(super) fn is_here(&self, id: Id) -> bool {
        sequences::mdt_of(id) == Some(self.index)
    }

    /// Whether there is a root.
    pub(super) fn has_root(&self) -> bool {
        self.inodes.contains_key(&Id::ROOT)
    }

    pub(super) fn inode(&self, id: Id) -> Option<&Inode> {
        self.inodes.get(&id)
    }

    /// Files in all.
    pub(super) fn files(&self) -> u64 {
        self.inodes.len() as u64
    }

    pub(super) fn lookup(&self, dir: Id, name: &[u8]) -> Option<Entry> {
        match name {
            b"." => Some(Entry { id: dir, kind: DIRECTORY }),
            b".." => {
                let id = self.inodes.get(&dir)?.parent.unwrap_or(dir);
                Some(Entry { id, kind: DIRECTORY })
            }
            name => self.dirs.get(&dir)?.names.get(name).copied(),
        }
    }

    pub(super) fn is_empty(&self, dir: Id) -> bool {
        self.dirs.get(&dir).is_none_or(|dir| dir.names.is_empty())
    }

    /// The names of a directory whose hash is not below this one, in the order of hashes, `.` and `..`
    /// among them.
    pub(super) fn list(&self, dir: Id, hash: u64) -> impl Iterator<Item = (u64, &[u8], Entry)> {
        let dots = [&b"."[..], b".."].into_iter().map(|name| (hash_of(name), name));
        let names = self.dirs.get(&dir).into_iter().flat_map(move |dir| dir.from(hash));
        let all = dots.filter(move |(of, _)| *of >= hash).chain(names);
        all.filter_map(move |(hash, name)| Some((hash, name, self.lookup(dir, name)?)))
    }

    pub(super) fn xattrs(&self, id: Id) -> impl Iterator<Item = (&[u8], &[u8])> {
        let all = self.xattrs.get(&id).into_iter().flatten();
        all.map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    pub(super) fn xattr(&self, id: Id, name: &[u8]) -> Option<&[u8]> {
        Some(self.xattrs.get(&id)?.get(name)?.as_slice())
    }

    pub(super) fn open(&self, handle: u64) -> Option<&Open> {
        self.opens.get(&handle)
    }

    pub(super) fn opens(&self) -> impl Iterator<Item = (u64, &Open)> {
        self.opens.iter().map(|(handle, open)| (*handle, open))
    }

    pub(super) fn is_open(&self, id: Id) -> bool {
        self.open_counts.contains_key(&id)
    }

    pub(super) const fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The last object that was used of an object target.
    pub(super) fn used(&self, index: u32) -> u64 {
        self.used.get(&index).copied().unwrap_or(FIRST_OBJECT)
    }

    /// What is owed to objects of a target when transactions up to this one are committed.
    pub(super) fn owed(&self, index: u32, committed: u64) -> impl Iterator<Item = (u64, Debt)> {
        let all = self.owed.range((index, 0)..=(index, u64::MAX));
        let due = all.filter(move |(_, owed)| owed.after <= committed);
        due.map(|((_, object), owed)| (*object, owed.debt))
    }

    /// Changes that other targets have to make, with their indexes.
    pub(super) fn pending(&self) -> impl Iterator<Item = (u64, u32)> {
        self.pending.iter().map(|(number, index)| (*number, *index))
    }

    /// The change for which a name is held.
    pub(super) fn prepared(&self, change: ChangeId) -> Option<&NameChange> {
        self.prepared.get(&change)
    }

    pub(super) fn all_prepared(&self) -> impl Iterator<Item = (ChangeId, &NameChange)> {
        self.prepared.iter().map(|(id, change)| (*id, change))
    }

    /// A directory and those above it, as far as they are here.
    pub(super) fn upwards(&self, dir: Id) -> impl Iterator<Item = Id> {
        let above = |dir: &Id| {
            let parent = self.inodes.get(dir)?.parent?;
            (parent != *dir).then_some(parent)
        };
        core::iter::successors(Some(dir), above)
    }
}

fn damaged(key: &[u8], why: &str) -> StoreError {
    StoreError::Damaged { what: format!("record {}", key.escape_ascii()), why: why.to_owned() }
}

/// Changes of a tree, and the same as changes of its store.
#[derive(Debug)]
pub(super) struct Edit<'a> {
    tree: &'a mut Tree,
    changes: Vec<Change>,
    /// The transaction.
    transno: u64,
}

impl<'a> Edit<'a> {
    pub(super) const fn new(tree: &'a mut Tree, transno: u64) -> Self {
        Self { tree, changes: Vec::new(), transno }
    }

    pub(super) const fn tree(&self) -> &Tree {
        self.tree
    }

    pub(super) fn finish(self) -> Vec<Change> {
        self.changes
    }

    fn put(&mut self, key: Vec<u8>, record: Vec<u8>) {
        self.changes.push(Change::Put(Space::Objects, key, record));
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.changes.push(Change::Delete(Space::Objects, key));
    }

    /// A file is new, or has changed.
    pub(super) fn set_inode(&mut self, id: Id, mut inode: Inode) {
        inode.version = self.transno;
        self.put(key(b'i', id, b""), inode.to_bytes());
        if inode.is_dir() {
            self.tree.dirs.entry(id).or_default();
        }
        self.tree.inodes.insert(id, inode);
    }

    /// Changes a file.
    pub(super) fn change(&mut self, id: Id, change: impl FnOnce(&mut Inode)) {
        if let Some(mut inode) = self.tree.inodes.get(&id).cloned() {
            change(&mut inode);
            self.set_inode(id, inode);
        }
    }

    /// A file is gone, with its attributes; its objects are to be destroyed.
    pub(super) fn remove_inode(&mut self, id: Id) {
        let Some(inode) = self.tree.inodes.remove(&id) else { return };
        self.delete(key(b'i', id, b""));
        self.tree.dirs.remove(&id);
        for name in self.tree.xattrs.remove(&id).unwrap_or_default().into_keys() {
            self.delete(key(b'x', id, &name));
        }
        self.changes.extend(inode.data.iter().map(|part| Change::Cut { data: part.id, from: 0 }));
        self.owe(&inode, Debt::Destroy);
    }

    /// The objects of a file are to be treated so.
    pub(super) fn owe(&mut self, inode: &Inode, debt: Debt) {
        for (index, object) in inode.objects() {
            let number = u64::from(object.oid);
            self.put(numbered(b'd', index, Some(number)), debt.to_bytes());
            self.tree.owed.insert((index, number), Owed { debt, after: self.transno });
        }
    }

    /// An object was treated so; what it is owed by now may be something else.
    pub(super) fn paid(&mut self, index: u32, object: u64, debt: Debt) {
        if self.tree.owed.get(&(index, object)).is_some_and(|owed| owed.debt == debt) {
            self.delete(numbered(b'd', index, Some(object)));
            self.tree.owed.remove(&(index, object));
        }
    }

    pub(super) fn set_name(&mut self, dir: Id, name: &[u8], entry: Entry) {
        self.put(key(b'n', dir, name), entry.to_bytes());
        self.tree.dirs.entry(dir).or_default().insert(name, entry);
    }

    pub(super) fn remove_name(&mut self, dir: Id, name: &[u8]) {
        self.delete(key(b'n', dir, name));
        if let Some(dir) = self.tree.dirs.get_mut(&dir) {
            dir.remove(name);
        }
    }

    pub(super) fn set_xattr(&mut self, id: Id, name: &[u8], value: &[u8]) {
        self.put(key(b'x', id, name), value.to_vec());
        self.tree.xattrs.entry(id).or_default().insert(name.to_vec(), value.to_vec());
    }

    pub(super) fn remove_xattr(&mut self, id: Id, name: &[u8]) {
        self.delete(key(b'x', id, name));
        if let Some(all) = self.tree.xattrs.get_mut(&id) {
            all.remove(name);
        }
    }

    pub(super) fn set_open(&mut self, handle: u64, open: Open) {
        self.put([&b"o"[..], &handle.to_be_bytes()].concat(), open.to_bytes());
        let id = open.id;
        if self.tree.opens.insert(handle, open).is_none() {
            *self.tree.open_counts.entry(id).or_default() += 1;
        }
    }

    /// A handle is closed. A file without a name goes with its last one.
    pub(super) fn close(&mut self, handle: u64) {
        let Some(open) = self.tree.opens.remove(&handle) else { return };
        self.delete([&b"o"[..], &handle.to_be_bytes()].concat());
        if let Some(count) = self.tree.open_counts.get_mut(&open.id) {
            *count -= 1;
            if *count == 0 {
                self.tree.open_counts.remove(&open.id);
                if self.tree.inodes.get(&open.id).is_some_and(|inode| inode.nlink == 0) {
                    self.remove_inode(open.id);
                }
            }
        }
    }

    pub(super) fn set_next_seq(&mut self, seq: u64) {
        self.put(b"s".to_vec(), seq.to_le_bytes().to_vec());
        self.tree.next_seq = seq;
    }

    /// A change is made here, and another target has to make it.
    pub(super) fn set_pending(&mut self, number: u64, index: u32) {
        self.put([&b"p"[..], &number.to_be_bytes()].concat(), index.to_le_bytes().to_vec());
        self.tree.pending.insert(number, index);
    }

    /// The other target has made it.
    pub(super) fn remove_pending(&mut self, number: u64) {
        if self.tree.pending.remove(&number).is_some() {
            self.delete([&b"p"[..], &number.to_be_bytes()].concat());
        }
    }

    /// A name is held for a change.
    pub(super) fn set_prepared(&mut self, (index, number): ChangeId, change: NameChange) {
        self.put(numbered(b'r', index, Some(number)), change.to_bytes());
        self.tree.prepared.insert((index, number), change);
    }

    pub(super) fn remove_prepared(&mut self, (index, number): ChangeId) -> Option<NameChange> {
        let change = self.tree.prepared.remove(&(index, number))?;
        self.delete(numbered(b'r', index, Some(number)));
        Some(change)
    }

    pub(super) fn set_used(&mut self, index: u32, object: u64) {
        self.put(numbered(b'u', index, None), object.to_le_bytes().to_vec());
        self.tree.used.insert(index, object);
    }
}
