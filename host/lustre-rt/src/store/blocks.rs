//! The file of blocks: data of all names, in blocks that are written once, each with its checksum.
//! A block that is written again goes to another slot; its old slot is free when that is committed.
//! Short ones stay in memory until the commit that they are part of writes them, many at a time: so
//! they wait for no disk, and those that are gone by then are never written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lustre_target::store::StoreError;
use rustix::io::ReadWriteFlags;

use super::io_error;
use super::room::Patience;

/// Bytes of a block.
pub(super) const BLOCK: u64 = 64 << 10;
/// Bytes of a block that stays in memory until it is committed, at most.
pub(super) const SHORT: usize = 16 << 10;

/// What `statfs` calls a file system in memory, which does not say what of it is there.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Short blocks, by their slots.
pub(super) type Shorts = BTreeMap<u64, Vec<u8>>;

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Its place in the file, counted in blocks.
    pub(super) slot: u64,
    /// Bytes that were written; those behind are zeros.
    pub(super) len: u32,
    /// CRC-32 of them.
    pub(super) crc: u32,
}

impl Block {
    /// Bytes of memory that it takes until it is committed.
    pub(super) const fn held(&self) -> usize {
        let len = self.len as usize;
        if len <= SHORT { len } else { 0 }
    }
}

/// The file, and which of its slots are free.
#[derive(Debug)]
pub(super) struct Blocks {
    path: PathBuf,
    file: Arc<File>,
    /// It is on a file system in memory: no read of it waits for a disk.
    in_memory: bool,
    free: BTreeSet<u64>,
    /// The first slot behind all that are in use or free.
    end: u64,
    /// Short blocks that were written.
    shorts: Shorts,
    /// Those that are on their way to be committed.
    leaving: Arc<Shorts>,
    /// Whether writes wait for room.
    patience: Option<Patience>,
}

impl Blocks {
    /// The file at `path`, with these blocks in it.
    ///
    /// # Errors
    /// Two blocks have one slot, or the file ends before a block does.
    pub(super) fn open(path: &Path, used: impl Iterator<Item = Block>) -> Result<Self, String> {
        let file = File::options().read(true).write(true).open(path).map_err(|e| e.to_string())?;
        let (mut taken, mut need) = (BTreeSet::new(), 0);
        for block in used {
            if !taken.insert(block.slot) {
                return Err(format!("two blocks have slot {}", block.slot));
            }
            let end = block.slot.saturating_mul(BLOCK).saturating_add(u64::from(block.len));
            need = need.max(end);
        }
        let have = file.metadata().map_err(|e| e.to_string())?.len();
        if have < need {
            return Err(format!("{have} bytes, expected at least {need}"));
        }
        let end = taken.last().map_or(0, |slot| slot + 1);
        let free = (0..end).filter(|slot| !taken.contains(slot)).collect();
        // What stands behind is what a crash left.
        file.set_len(need).map_err(|e| e.to_string())?;
        let in_memory = rustix::fs::fstatfs(&file).is_ok_and(|stat| stat.f_type == TMPFS);
        let (path, file) = (path.to_owned(), Arc::new(file));
        let (shorts, leaving) = (Shorts::new(), Arc::default());
        Ok(Self { path, file, in_memory, free, end, shorts, leaving, patience: None })
    }

    /// The file, for another thread to sync, and the short blocks that it writes before.
    pub(super) fn leave(&mut self) -> (PathBuf, Arc<File>, Arc<Shorts>) {
        self.leaving = Arc::new(core::mem::take(&mut self.shorts));
        (self.path.clone(), Arc::clone(&self.file), Arc::clone(&self.leaving))
    }

    /// What was on its way is in the file.
    pub(super) fn left(&mut self) {
        self.leaving = Arc::default();
    }

    /// Whether a block is in memory.
    pub(super) fn is_here(&self, block: Block) -> bool {
        self.short(block).is_some()
    }

    /// Whether the system has a short block in memory, if the store has not: then a read does not wait for
    /// the disk. Some storage does not say.
    pub(super) fn is_cached(&self, block: Block) -> bool {
        if self.in_memory {
            return block.held() > 0;
        }
        let (mut bytes, flags) = ([0; SHORT], ReadWriteFlags::NOWAIT);
        let Some(room) = bytes.get_mut(..block.held()).filter(|room| !room.is_empty()) else {
            return false;
        };
        let (at, len) = (block.slot.saturating_mul(BLOCK), room.len());
        let read = rustix::io::preadv2(&self.file, &mut [io::IoSliceMut::new(room)], at, flags);
        read == Ok(len)
    }

    fn short(&self, block: Block) -> Option<&Vec<u8>> {
        self.shorts.get(&block.slot).or_else(|| self.leaving.get(&block.slot))
    }

    /// Whether writes wait for room from now on.
    pub(super) fn be_patient(&mut self, patience: Option<Patience>) {
        self.patience = patience;
    }

    /// Takes another file in place of its own.
    #[cfg(test)]
    pub(super) fn exchange(&mut self, file: Arc<File>) -> Arc<File> {
        core::mem::replace(&mut self.file, file)
    }

    /// Bytes of the file that can be written without making it longer.
    pub(super) fn spare(&self) -> u64 {
        self.free.len() as u64 * BLOCK
    }

    /// These slots can be used again.
    pub(super) fn free(&mut self, slots: impl IntoIterator<Item = u64>) {
        for slot in slots {
            self.shorts.remove(&slot);
            self.free.insert(slot);
        }
    }

    fn slot(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    /// Writes bytes from the beginning of a block on to slots that are free, what goes to slots in a row
    /// at once: blocks that are whole, but for the last one.
    ///
    /// # Errors
    /// The system's; nothing is in use then that was not before.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<Vec<Block>, StoreError> {
        let mut written: Vec<Block> = Vec::with_capacity(bytes.len().div_ceil(BLOCK as usize));
        for part in bytes.chunks(BLOCK as usize) {
            let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
            written.push(Block { slot: self.slot(), len, crc: crc32fast::hash(part) });
        }
        if let [short] = *written
            && short.held() > 0
        {
            self.shorts.insert(short.slot, bytes.to_vec());
            return Ok(written);
        }
        let mut rest = bytes;
        for row in written.chunk_by(|one, next| one.slot + 1 == next.slot) {
            let (here, behind) = rest.split_at(rest.len().min(row.len() * BLOCK as usize));
            rest = behind;
            let at = row.first().map_or(0, |block| block.slot * BLOCK);
            let write = || self.file.write_all_at(here, at);
            let patience = self.patience.as_ref();
            let result = patience.map_or_else(write, |patience| patience.with_room(write));
            if let Err(why) = result {
                self.free(written.iter().map(|block| block.slot));
                return Err(io_error(&self.path, &why));
            }
        }
        Ok(written)
    }

    /// The bytes of a block, as they were written.
    ///
    /// # Errors
    /// As [`Blocks::read_to`].
    pub(super) fn read(&self, block: Block) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; block.len as usize];
        self.read_to(block, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the bytes of a block, as they were written, to memory of their length.
    ///
    /// # Errors
    /// The system's, or [`StoreError::Damaged`] if they are others.
    pub(super) fn read_to(&self, block: Block, bytes: &mut [u8]) -> Result<(), StoreError> {
        let damaged = |why: &str| {
            let what = format!("{} slot {}", self.path.display(), block.slot);
            StoreError::Damaged { what, why: why.to_owned() }
        };
        let mut read = || match self.short(block) {
            Some(short) => io::Read::read_exact(&mut short.as_slice(), bytes),
            None => self.file.read_exact_at(bytes, block.slot.saturating_mul(BLOCK)),
        };
        match read() {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(damaged("the file ends before it"));
            }
            Err(why) => return Err(io_error(&self.path, &why)),
        }
        if crc32fast::hash(bytes) != block.crc {
            return Err(damaged("its checksum does not hold"));
        }
        Ok(())
    }
}
