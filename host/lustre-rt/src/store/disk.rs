//! The orders of a store, carried out one by one on files. What is applied is visible to each later
//! order at once; [`Disk::freeze`] hands it over to be committed.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lnet_types::{Memory, iovec_len};
use lustre_target::store::{
    Change, DataId, Outcome, Source, Space, Store, StoreError, StoreFact, StoreOrder, Txn, checksum,
};
use redb::Database;

use crate::spare::Spare;

use super::blocks::{BLOCK, Block, Blocks, SHORT};
use super::bytes::{Loaded, Pieces, deliver, written};
use super::commit::{Batch, Committed};
use super::layer::{Layers, Place, Snapshot};
use super::room::{Patience, Roomy};
use super::{
    BLOCKS, DATABASE, DESCRIPTION, DirLock, RECORDS, db_damaged, db_error, io_error, total,
};

/// What the format file says.
const FORMAT: &str = "ulnet store 2\n";
/// Bytes of the database that stay in memory. It is read whole when it is opened.
const CACHE: usize = 1 << 30;
/// Changes of a transaction that is carried out at once, at most.
const FEW: usize = 64;
/// So long ago an order that is carried out at once may have looked for room.
const RECENT: Duration = Duration::from_millis(100);

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The directory.
    pub dir: PathBuf,
    /// Bytes of the file system that stay free: an order that needs space is refused below that.
    pub reserve: u64,
}

impl DiskConfig {
    /// The store in a directory, which leaves 16 MiB free.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), reserve: 16 << 20 }
    }
}

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it.
    #[error("{dir}: in use by {holder}", dir = dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// What its holder says of itself.
        holder: String,
    },
    /// The directory holds something else, or a store that was not made completely.
    #[error("{dir}: {why}; expected a store or an empty directory", dir = dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// What it holds.
        why: String,
    },
    /// A file is missing, cut off or not what was written.
    #[error("{path}: damaged, {why}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How that shows.
        why: String,
    },
    /// The system refused.
    #[error("{path}: {why}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: String,
    },
}

impl OpenError {
    pub(super) fn io(path: &Path, why: &io::Error) -> Self {
        Self::Io { path: path.to_owned(), why: why.to_string() }
    }

    fn damaged(path: &Path, why: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.to_string() }
    }
}

/// A store on files. Orders are carried out at once; commits come with [`StoreOrder::Sync`] and
/// [`Disk::commit`].
pub struct Disk {
    config: DiskConfig,
    /// Stands before the database, which waits at its end for reads that are open.
    layers: Layers,
    db: Arc<Database>,
    blocks: Blocks,
    /// The last applied transaction, and the last that is committed.
    last: u64,
    committed: u64,
    failed: bool,
    facts: VecDeque<(StoreFact, Loaded)>,
    /// Whether all of the database is in memory.
    cached: bool,
    /// When the space was looked up, its bytes, and those of them that the store may use.
    room: Option<(Instant, u64, u64)>,
    /// What waits where there is no room.
    patience: Patience,
    /// Memory of data on their way to blocks and from there.
    spare: Arc<Spare>,
    _lock: DirLock,
}

/// An order, with what of the target's memory it needs.
pub(super) struct Ready {
    order: StoreOrder,
    /// The bytes of each write of a transaction.
    writes: Vec<Pieces>,
    /// The sum of a [`StoreOrder::Checksum`].
    sum: u32,
}

impl core::fmt::Debug for Disk {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Disk")
            .field("dir", &self.config.dir)
            .field("last", &self.last)
            .field("committed", &self.committed)
            .finish_non_exhaustive()
    }
}

/// Whether a transaction is refused where there is no room for it.
fn needs_room_for(txn: &Txn) -> bool {
    !txn.must && txn.grows() > 0
}

/// Whether an order looks how much room there is.
fn needs_room(order: &StoreOrder) -> bool {
    match order {
        StoreOrder::Apply(txn) => needs_room_for(txn),
        order => matches!(order, StoreOrder::Space { .. }),
    }
}

/// Whether the database of this path stays in memory.
fn fits(records: &Path) -> bool {
    fs::metadata(records).is_ok_and(|file| file.len() <= CACHE as u64 / 2)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn key_of(space: Space, key: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(1 + key.len());
    whole.push(space as u8);
    whole.extend_from_slice(key);
    whole
}

/// Runs `f` on a database that is not open yet; a panic on a damaged file is an error like others.
fn guarded<T>(f: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, String> {
    total(|| f().map_err(|e| e.to_string()), str::to_owned)
}

impl Disk {
    /// Opens the store in a directory, or makes one if the directory is empty.
    ///
    /// # Errors
    /// Another process has it, it is damaged, or holds something else.
    pub fn open(config: DiskConfig) -> Result<Self, OpenError> {
        let lock = DirLock::take(&config.dir)?;
        Self::open_locked(config, lock)
    }

    /// Opens the store of a directory whose lock is held.
    ///
    /// # Errors
    /// It is damaged, or holds something else.
    pub fn open_locked(config: DiskConfig, lock: DirLock) -> Result<Self, OpenError> {
        let dir = &config.dir;
        let (records, format) = (dir.join(DATABASE), dir.join("format"));
        let path = dir.join("blocks");
        if !format.exists() {
            make(dir, &records, &path, &format)?;
        }
        let said = fs::read_to_string(&format).map_err(|why| OpenError::io(&format, &why))?;
        if said != FORMAT {
            return Err(OpenError::damaged(&format, format!("{:?}, expected {FORMAT:?}", said)));
        }
        let size = fs::metadata(&records).map_err(|why| OpenError::damaged(&records, why))?.len();
        if size == 0 {
            return Err(OpenError::damaged(&records, "0 bytes"));
        }
        let patience = Patience::default();
        let file = File::options().read(true).write(true).open(&records);
        let file = file.map_err(|why| OpenError::io(&records, &why))?;
        let db = guarded(|| {
            let file = Roomy::new(file, patience.clone())?;
            let mut db = Database::builder().set_cache_size(CACHE).create_with_backend(file)?;
            db.check_integrity()?;
            Ok(db)
        });
        let db = db.map_err(|why| OpenError::damaged(&records, why))?;
        let seen = guarded(|| {
            let floor = Snapshot::of(&db)?;
            let used = floor.all_blocks()?;
            Ok((floor, used))
        });
        let (floor, used) = seen.map_err(|why| OpenError::damaged(&records, why))?;
        let blocks = Blocks::open(&path, used.into_iter());
        let blocks = blocks.map_err(|why| OpenError::damaged(&path, why))?;
        Ok(Self {
            cached: fits(&records),
            room: None,
            config,
            layers: Layers::over(floor),
            db: Arc::new(db),
            blocks,
            last: 0,
            committed: 0,
            failed: false,
            facts: VecDeque::new(),
            patience,
            spare: Arc::default(),
            _lock: lock,
        })
    }

    /// Whether something is applied and not committed.
    pub fn is_dirty(&self) -> bool {
        self.last > self.committed && !self.failed
    }

    /// Whether orders have to wait for a commit.
    pub(super) fn is_full(&self) -> bool {
        self.layers.upper.is_full()
    }

    /// Whether the store is out of service.
    pub(super) const fn is_failed(&self) -> bool {
        self.failed
    }

    /// What waits where there is no room.
    pub(super) fn patience(&self) -> Patience {
        self.patience.clone()
    }

    /// Memory of data on their way.
    pub(super) fn spare(&self) -> Arc<Spare> {
        Arc::clone(&self.spare)
    }

    /// The last transaction that was applied, and the last that is committed.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.last, self.committed)
    }

    /// What was applied, to be committed: [`Disk::settle`] takes the result. `None` if there is nothing,
    /// or a batch is on its way.
    pub(super) fn freeze(&mut self) -> Option<Batch> {
        if !self.is_dirty() || self.layers.lower.is_some() {
            return None;
        }
        let layer = Arc::new(core::mem::take(&mut self.layers.upper));
        self.layers.lower = Some(Arc::clone(&layer));
        Some(Batch {
            db: Arc::clone(&self.db),
            blocks: self.blocks.leave(),
            patience: self.patience(),
            layer,
            last: self.last,
        })
    }

    /// A batch is committed, or is not: the store is out of service then.
    pub(super) fn settle(&mut self, result: Result<Committed, StoreError>) {
        let settled = result.and_then(|done| {
            self.layers.floor = Snapshot::of(&self.db).map_err(db_error)?;
            self.layers.lower = None;
            self.blocks.left();
            Ok(done)
        });
        match settled {
            Ok(Committed { up_to, freed }) => {
                self.cached = fits(&self.config.dir.join(DATABASE));
                self.blocks.free(freed);
                self.committed = up_to;
                self.facts.push_back((StoreFact::Committed { up_to }, None));
            }
            Err(e) => self.fail(e),
        }
    }

    /// Commits everything that was applied.
    ///
    /// # Errors
    /// The store is out of service from here on; [`StoreFact::Failed`] reports it.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        while let Some(batch) = self.freeze() {
            let result = batch.commit();
            let failed = result.as_ref().err().cloned();
            self.settle(result);
            if let Some(e) = failed {
                return Err(e);
            }
        }
        if self.failed { Err(StoreError::OutOfService) } else { Ok(()) }
    }

    fn fail(&mut self, e: StoreError) {
        if !self.failed {
            self.failed = true;
            self.facts.push_back((StoreFact::Failed(e), None));
        }
    }

    /// Bytes of the file system, and those of them that the store may use, as they were a moment ago.
    fn space(&mut self) -> Result<(u64, u64), StoreError> {
        if let Some((_, total, free)) = self.room.filter(|(at, ..)| at.elapsed() < RECENT) {
            return Ok((total, free));
        }
        let stat = rustix::fs::statvfs(&self.config.dir)
            .map_err(|why| io_error(&self.config.dir, &why.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize).saturating_sub(self.config.reserve);
        let total = stat.f_blocks.saturating_mul(stat.f_frsize);
        let free = free.saturating_add(self.blocks.spare()).min(total);
        self.room = Some((Instant::now(), total, free));
        Ok((total, free))
    }

    fn apply(&mut self, txn: Txn, writes: Vec<Pieces>) -> Result<(), StoreError> {
        txn.check(self.last)?;
        if needs_room_for(&txn) && self.space()?.1 < txn.grows() {
            return Err(StoreError::Full);
        }
        let id = txn.id;
        let changed = self.change(txn, writes);
        let freed = match changed {
            Ok(()) => self.layers.accept(),
            Err(_) => self.layers.refuse(),
        };
        self.blocks.free(freed);
        match changed {
            Ok(()) => self.last = id,
            // Another program has taken the space since it was counted.
            Err(StoreError::Full) => return Err(StoreError::Full),
            Err(e) => {
                self.fail(e);
                return Err(StoreError::OutOfService);
            }
        }
        Ok(())
    }

    fn change(&mut self, txn: Txn, writes: Vec<Pieces>) -> Result<(), StoreError> {
        // Nothing that waits while this is carried out could be carried out before it.
        self.blocks.be_patient(txn.must.then(|| self.patience()));
        let mut writes = writes.into_iter();
        for change in txn.changes {
            match change {
                Change::Put(space, key, value) => {
                    self.layers.records.push((key_of(space, &key), Some(value)));
                }
                Change::Delete(space, key) => {
                    self.layers.records.push((key_of(space, &key), None));
                }
                Change::Write { data, mut offset, .. } => {
                    for bytes in writes.next().unwrap_or_default() {
                        self.write(data, offset, &bytes)?;
                        offset += bytes.len() as u64;
                        self.spare.give(bytes);
                    }
                }
                Change::Cut { data, from } => self.cut(data, from)?,
            }
        }
        Ok(())
    }

    /// Where a block lies, if there is one.
    fn place(&self, place: Place) -> Result<Option<Block>, StoreError> {
        total(|| self.layers.block(place), db_damaged)
    }

    /// The bytes of a block, none if there is no such block.
    fn block(&self, data: DataId, number: u64) -> Result<Vec<u8>, StoreError> {
        let block = self.place((data.0, number))?;
        block.map_or(Ok(Vec::new()), |block| self.blocks.read(block))
    }

    /// Writes whole blocks; those that are written in part are read before.
    fn write(&mut self, data: DataId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (first, skip) = (offset / BLOCK, (offset % BLOCK) as usize);
        let head = if skip == 0 { 0 } else { bytes.len().min(BLOCK as usize - skip) };
        let (head, rest) = bytes.split_at(head);
        let (whole, tail) = rest.split_at(rest.len() - rest.len() % BLOCK as usize);
        if !head.is_empty() {
            self.write_part(data, (first, skip), head)?;
        }
        let next = first + u64::from(!head.is_empty());
        self.write_blocks(data, next, whole)?;
        if !tail.is_empty() {
            self.write_part(data, (next + whole.len() as u64 / BLOCK, 0), tail)?;
        }
        Ok(())
    }

    /// Writes a part of a block, from a place in it on.
    fn write_part(
        &mut self,
        data: DataId,
        (number, at): (u64, usize),
        part: &[u8],
    ) -> Result<(), StoreError> {
        let old = self.place((data.0, number))?;
        if at == 0 && old.is_none_or(|old| old.len as usize <= part.len()) {
            return self.write_blocks(data, number, part);
        }
        let mut whole = old.map_or(Ok(Vec::new()), |old| self.blocks.read(old))?;
        whole.resize(whole.len().max(at + part.len()), 0);
        whole.splice(at..at + part.len(), part.iter().copied());
        self.write_blocks(data, number, &whole)
    }

    /// Writes bytes in place of blocks, from the beginning of one on.
    fn write_blocks(&mut self, data: DataId, first: u64, bytes: &[u8]) -> Result<(), StoreError> {
        for (number, block) in (first..).zip(self.blocks.write(bytes)?) {
            let old = self.layers.draft.write((data.0, number), block);
            self.blocks.free(old);
        }
        Ok(())
    }

    fn cut(&mut self, data: DataId, from: u64) -> Result<(), StoreError> {
        let freed = self.layers.draft.cut(data.0, from.div_ceil(BLOCK));
        self.blocks.free(freed);
        let (number, keep) = (from / BLOCK, (from % BLOCK) as usize);
        if keep == 0 {
            return Ok(());
        }
        let mut border = self.block(data, number)?;
        if border.len() > keep {
            border.truncate(keep);
            self.write_blocks(data, number, &border)?;
        }
        Ok(())
    }

    /// Reads a part of a block, from a place in it on; zeros where there is none.
    fn read_block(
        &self,
        data: DataId,
        (number, at): (u64, usize),
        to: &mut [u8],
    ) -> Result<(), StoreError> {
        let block = self.place((data.0, number))?;
        let len = block.map_or(0, |block| block.len as usize);
        if let Some(block) = block.filter(|_| at == 0)
            && let Some((here, behind)) = to.split_at_mut_checked(len)
        {
            behind.fill(0);
            return self.blocks.read_to(block, here);
        }
        let whole = block.map_or(Ok(Vec::new()), |block| self.blocks.read(block))?;
        let stored = whole.get(at..).unwrap_or_default();
        let (here, behind) = to.split_at_mut(to.len().min(stored.len()));
        here.iter_mut().zip(stored).for_each(|(to, from)| *to = *from);
        behind.fill(0);
        Ok(())
    }

    fn read(&self, from: Source) -> Result<(Outcome, Loaded), StoreError> {
        from.check()?;
        match from {
            Source::Record(space, key) => {
                let key = key_of(space, &key);
                let record = total(|| self.layers.record(&key), db_damaged)?;
                Ok((Outcome::Record(record), None))
            }
            Source::Data { data, offset, into } => {
                let (mut at, mut pieces) = (offset, Pieces::new());
                for span in &into {
                    let mut bytes = self.spare.take(span.len as usize);
                    let mut rest = bytes.as_mut_slice();
                    while !rest.is_empty() {
                        let skip = (at % BLOCK) as usize;
                        let len = rest.len().min(BLOCK as usize - skip);
                        let (here, behind) = rest.split_at_mut(len);
                        self.read_block(data, (at / BLOCK, skip), here)?;
                        (at, rest) = (at + len as u64, behind);
                    }
                    pieces.push(bytes);
                }
                Ok((Outcome::Done, Some((into, pieces))))
            }
        }
    }

    fn list(
        &self,
        space: Space,
        after: &[u8],
        prefix: &[u8],
        max: usize,
    ) -> Result<Outcome, StoreError> {
        let (prefix, after) = (key_of(space, prefix), key_of(space, after));
        // `after` without a key is the space itself, below all of its keys.
        let without = (after.len() > 1).then_some(after.as_slice());
        let from = after.as_slice().max(prefix.as_slice());
        let list = || self.layers.list(from, without, &prefix, max);
        let (entries, more) = total(list, db_damaged)?;
        let bare =
            |(key, value): (Vec<u8>, Vec<u8>)| (key.get(1..).unwrap_or_default().to_vec(), value);
        Ok(Outcome::Listed { entries: entries.into_iter().map(bare).collect(), more })
    }

    /// Whether an order needs nothing but memory, so that it never waits.
    pub(super) fn has_at_hand(&self, ready: &Ready) -> bool {
        let recent = || self.room.is_some_and(|(at, ..)| at.elapsed() < RECENT);
        if needs_room(&ready.order) && !recent() {
            return false;
        }
        match &ready.order {
            StoreOrder::Apply(txn) => {
                let has = |change| self.has_change_at_hand(change);
                txn.changes.len() <= FEW && txn.changes.iter().all(has)
            }
            StoreOrder::Read { from: Source::Record(..), .. } => self.cached,
            StoreOrder::Read { from: Source::Data { data, offset, into }, .. } => {
                let block = self.short_place((*data, *offset), iovec_len(into));
                let here = |block| self.blocks.is_here(block) || self.blocks.is_cached(block);
                block.is_some_and(|block| block.is_none_or(here))
            }
            StoreOrder::Checksum { .. } | StoreOrder::Space { .. } => true,
            StoreOrder::Sync { .. } | StoreOrder::List { .. } => false,
        }
    }

    /// Whether a change touches memory alone: a write of a short block that is new, or in memory itself.
    fn has_change_at_hand(&self, change: &Change) -> bool {
        match change {
            Change::Put(..) | Change::Delete(..) => true,
            Change::Write { data, offset, bytes } => {
                let block = self.short_place((*data, *offset), iovec_len(bytes));
                let short = |block: Block| block.held() > 0 && self.blocks.is_here(block);
                block.is_some_and(|block| block.is_none_or(short))
            }
            Change::Cut { .. } => false,
        }
    }

    /// The block of so many bytes of data from an offset on, if there is one, where that is known without a
    /// look at the disk and they are in the front of it.
    fn short_place(&self, (data, offset): (DataId, u64), len: u64) -> Option<Option<Block>> {
        let short = self.cached && (offset % BLOCK).saturating_add(len) <= SHORT as u64;
        short.then(|| self.place((data.0, offset / BLOCK)).ok())?
    }

    /// Carries out an order, and looks for room anew if it needs some.
    pub(super) fn execute(&mut self, ready: Ready) {
        if needs_room(&ready.order) {
            self.room = None;
        }
        self.execute_at_once(ready);
    }

    /// Carries out an order that [`Disk::has_at_hand`].
    pub(super) fn execute_at_once(&mut self, ready: Ready) {
        let mut loaded = None;
        let failed = self.failed;
        let Ready { order, writes, sum } = ready;
        let (token, result) = match order {
            StoreOrder::Apply(txn) => {
                let id = txn.id;
                let result =
                    if failed { Err(StoreError::OutOfService) } else { self.apply(txn, writes) };
                self.facts.push_back((StoreFact::Applied { txn: id, result }, None));
                return;
            }
            StoreOrder::Read { token, .. }
            | StoreOrder::Sync { token }
            | StoreOrder::Checksum { token, .. }
            | StoreOrder::Space { token }
            | StoreOrder::List { token, .. }
                if failed =>
            {
                (token, Err(StoreError::OutOfService))
            }
            StoreOrder::Read { token, from } => (token, self.read(from)),
            StoreOrder::Sync { token } => (token, self.commit().map(|()| (Outcome::Done, None))),
            StoreOrder::Checksum { token, .. } => (token, Ok((Outcome::Checksum(sum), None))),
            StoreOrder::Space { token } => {
                let space = self.space();
                (token, space.map(|(total, free)| (Outcome::Space { total, free }, None)))
            }
            StoreOrder::List { token, space, after, prefix, max } => {
                (token, self.list(space, &after, &prefix, max).map(|done| (done, None)))
            }
        };
        let outcome = result.map(|(outcome, data)| {
            loaded = data;
            outcome
        });
        if let Err(e) = &outcome
            && !e.is_refusal()
        {
            self.fail(e.clone());
        }
        self.facts.push_back((StoreFact::Done { token, outcome }, loaded));
    }

    /// The next fact, with data that is still to be written to memory.
    pub(super) fn next_fact(&mut self) -> Option<(StoreFact, Loaded)> {
        self.facts.pop_front()
    }
}

/// Makes an empty store. The format file is written last, so that a store that was not made
/// completely is known as such.
fn make(dir: &Path, records: &Path, blocks: &Path, format: &Path) -> Result<(), OpenError> {
    let entries = fs::read_dir(dir).map_err(|why| OpenError::io(dir, &why))?;
    for entry in entries {
        let name = entry.map_err(|why| OpenError::io(dir, &why))?.file_name();
        if name != "lock" && name != DESCRIPTION {
            let why = format!("no format file beside '{}'", name.display());
            return Err(OpenError::Foreign { dir: dir.to_owned(), why });
        }
    }
    let made = File::create(blocks).and_then(|file| file.sync_all());
    made.map_err(|why| OpenError::io(blocks, &why))?;
    let made = guarded(|| {
        let db = Database::create(records)?;
        let txn = db.begin_write()?;
        txn.open_table(RECORDS)?;
        txn.open_table(BLOCKS)?;
        txn.commit()?;
        Ok(())
    });
    made.map_err(|why| OpenError::Io { path: records.to_owned(), why })?;
    let written = sync_dir(dir).and_then(|()| {
        let partial = dir.join("format.new");
        fs::write(&partial, FORMAT)?;
        File::open(&partial)?.sync_all()?;
        fs::rename(&partial, format)?;
        sync_dir(dir)
    });
    written.map_err(|why| OpenError::io(format, &why))
}

impl Ready {
    /// An order, and the bytes of its spans: a thread of its own has no other way to them. A sum is taken
    /// where the bytes lie, which costs no more.
    pub(super) fn of(order: StoreOrder, memory: &mut dyn Memory, spare: &Spare) -> Self {
        let (mut writes, mut sum) = (Vec::new(), 0);
        match &order {
            StoreOrder::Apply(txn) => writes = written(txn, memory, spare),
            StoreOrder::Checksum { kind, bytes, .. } => sum = checksum(memory, *kind, bytes),
            _ => {}
        }
        Self { order, writes, sum }
    }

    /// The token of an order to commit.
    pub(super) fn sync(&self) -> Option<u64> {
        match self.order {
            StoreOrder::Sync { token } => Some(token),
            _ => None,
        }
    }
}

impl Store for Disk {
    fn order(&mut self, order: StoreOrder, memory: &mut dyn Memory) {
        self.execute(Ready::of(order, memory, &self.spare));
    }

    fn poll(&mut self, memory: &mut dyn Memory) -> Option<StoreFact> {
        Some(deliver(self.next_fact()?, memory, &self.spare))
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::{RegionId, Span};
    use lustre_target::conformance::Slate;

    use super::*;

    fn applied(disk: &mut Disk, txn: Txn, slate: &mut Slate) -> Result<(), StoreError> {
        let id = txn.id;
        disk.order(StoreOrder::Apply(txn), slate);
        let Some(StoreFact::Applied { txn, result }) = disk.poll(slate) else { panic!("no fact") };
        assert_eq!(txn, id);
        result
    }

    #[test]
    fn what_finds_no_room_is_refused_whole_and_the_store_goes_on() {
        let dir = fresh::path("store-disk-full");
        fs::create_dir_all(&dir).unwrap();
        let config = DiskConfig { reserve: 0, ..DiskConfig::new(&dir) };
        let mut disk = Disk::open(config.clone()).unwrap();
        let mut slate = Slate(vec![7; 3 * BLOCK as usize]);
        let write = |len| {
            let bytes = [Span { region: RegionId(0), offset: 0, len }].into_iter().collect();
            Change::Write { data: DataId(1), offset: 100, bytes }
        };
        let put = |value| Change::Put(Space::Objects, b"key".to_vec(), vec![value]);
        let txn = |id, changes| Txn { id, changes, must: false };
        applied(&mut disk, txn(1, vec![put(1), write(1000)]), &mut slate).unwrap();

        let full = File::options().read(true).write(true).open("/dev/full").unwrap();
        let file = disk.blocks.exchange(Arc::new(full));
        slate.0.fill(8);
        let cut = Change::Cut { data: DataId(1), from: 0 };
        let large = vec![put(2), cut, write(2 * BLOCK as u32)];
        let refused = applied(&mut disk, txn(2, large.clone()), &mut slate);
        assert_eq!(refused, Err(StoreError::Full));
        assert!(!disk.is_failed());
        let record = || Source::Record(Space::Objects, b"key".to_vec());
        assert_eq!(disk.read(record()).unwrap().0, Outcome::Record(Some(vec![1])));

        disk.blocks.exchange(file);
        assert_eq!(disk.block(DataId(1), 0).unwrap(), [vec![0; 100], vec![7; 1000]].concat());
        applied(&mut disk, txn(2, large), &mut slate).unwrap();
        disk.commit().unwrap();
        drop(disk);
        let disk = Disk::open(config).unwrap();
        assert_eq!(disk.read(record()).unwrap().0, Outcome::Record(Some(vec![2])));
        assert_eq!(disk.block(DataId(1), 1).unwrap(), vec![8; BLOCK as usize]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn order_that_needs_room_is_at_hand_while_it_is_known_and_others_look_anew() {
        let dir = fresh::path("store-disk-room");
        fs::create_dir_all(&dir).unwrap();
        let mut disk = Disk::open(DiskConfig::new(&dir)).unwrap();
        let mut slate = Slate(Vec::new());
        let put = |id, must| {
            let put = Change::Put(Space::Objects, b"key".to_vec(), vec![1]);
            StoreOrder::Apply(Txn { id, changes: vec![put], must })
        };
        let ready = |order| Ready::of(order, &mut Slate(Vec::new()), &Spare::default());
        let at_hand = |disk: &Disk| {
            [put(1, false), StoreOrder::Space { token: 1 }, put(1, true)]
                .map(|order| disk.has_at_hand(&ready(order)))
        };
        assert_eq!(at_hand(&disk), [false, false, true]);
        // Known for as long as the test takes: none is free.
        disk.room = Some((Instant::now() + Duration::from_secs(3600), 1 << 40, 0));
        assert_eq!(at_hand(&disk), [true, true, true]);
        disk.execute_at_once(ready(put(1, false)));
        let refused = StoreFact::Applied { txn: 1, result: Err(StoreError::Full) };
        assert_eq!(disk.poll(&mut slate), Some(refused));
        disk.execute(ready(put(1, false)));
        assert_eq!(disk.poll(&mut slate), Some(StoreFact::Applied { txn: 1, result: Ok(()) }));
        disk.room = Some((Instant::now() - RECENT, 1 << 40, 0));
        assert_eq!(at_hand(&disk), [false, false, true]);
        drop(disk);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn short_block_is_in_memory_until_it_is_committed() {
        let dir = fresh::path("store-disk-short");
        fs::create_dir_all(&dir).unwrap();
        let config = DiskConfig { reserve: 0, ..DiskConfig::new(&dir) };
        let mut disk = Disk::open(config.clone()).unwrap();
        let slate = || Slate(vec![7; SHORT + 1]);
        let len = || fs::metadata(dir.join("blocks")).unwrap().len();
        let write = |id, data, len: usize| {
            let bytes = [Span { region: RegionId(0), offset: 0, len: len as u32 }];
            let bytes = bytes.into_iter().collect();
            let changes = vec![Change::Write { data: DataId(data), offset: 0, bytes }];
            let txn = Txn { id, changes, must: true };
            Ready::of(StoreOrder::Apply(txn), &mut slate(), &Spare::default())
        };
        let at_hand = |disk: &Disk, data, len| disk.has_at_hand(&write(9, data, len));
        assert!(at_hand(&disk, 1, SHORT) && !at_hand(&disk, 1, SHORT + 1));
        disk.execute_at_once(write(1, 1, 100));
        disk.execute_at_once(write(2, 2, 100));
        assert_eq!((len(), disk.block(DataId(1), 0).unwrap()), (0, vec![7; 100]));
        // What is written again has never been in the file.
        assert!(at_hand(&disk, 1, 200));
        disk.execute_at_once(write(3, 1, 200));
        let batch = disk.freeze().unwrap();
        assert_eq!((len(), disk.block(DataId(1), 0).unwrap()), (0, vec![7; 200]));
        assert!(at_hand(&disk, 1, 300), "it is on its way");
        disk.execute_at_once(write(4, 2, 50));
        let done = batch.commit();
        assert!(len() > 0);
        drop(batch);
        disk.settle(done);
        assert_eq!(disk.block(DataId(1), 0).unwrap(), vec![7; 200]);
        assert!(!at_hand(&disk, 1, 300), "it is in the file");
        let read = |data, len| {
            let into = [Span { region: RegionId(0), offset: 0, len }].into_iter().collect();
            let from = Source::Data { data: DataId(data), offset: 0, into };
            Ready::of(StoreOrder::Read { token: 1, from }, &mut slate(), &Spare::default())
        };
        let reads = [read(2, 50), read(3, SHORT as u32), read(3, SHORT as u32 + 1)];
        assert_eq!(reads.map(|read| disk.has_at_hand(&read)), [true, true, false]);
        // The system has it in memory, if its file system says so.
        let block = disk.place((1, 0)).unwrap().unwrap();
        assert_eq!(disk.has_at_hand(&read(1, 200)), disk.blocks.is_cached(block));
        // The other one is in memory again.
        assert!(at_hand(&disk, 2, 300));
        disk.commit().unwrap();
        drop(disk);
        let disk = Disk::open(config).unwrap();
        assert_eq!(disk.block(DataId(1), 0).unwrap(), vec![7; 200]);
        assert_eq!(disk.block(DataId(2), 0).unwrap(), vec![7; 100]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn short_block_of_a_file_system_in_memory_is_at_hand() {
        let dir = Path::new("/dev/shm").join(fresh::path("store-disk-shm").file_name().unwrap());
        fs::create_dir_all(&dir).unwrap();
        let mut disk = Disk::open(DiskConfig { reserve: 0, ..DiskConfig::new(&dir) }).unwrap();
        let mut slate = Slate(vec![7; 2 * SHORT]);
        let mut write = |id, len| {
            let bytes = [Span { region: RegionId(0), offset: 0, len }].into_iter().collect();
            let changes = vec![Change::Write { data: DataId(id), offset: 0, bytes }];
            disk.order(StoreOrder::Apply(Txn { id, changes, must: true }), &mut slate);
        };
        write(1, 100);
        write(2, SHORT as u32 + 1);
        disk.commit().unwrap();
        let cached = |data| disk.blocks.is_cached(disk.place((data, 0)).unwrap().unwrap());
        assert_eq!([cached(1), cached(2)], [true, false]);
        drop(disk);
        fs::remove_dir_all(dir).unwrap();
    }
}
