//! The orders of a store, carried out one by one on files. One database transaction is open at a
//! time; orders read and change it, and its commit commits them all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lnet_types::{IoVec, Memory, iovec_len};
use lustre_target::store::{
    Change, DATA_MAX, DataId, LIST_MAX, Loaded, Outcome, Source, Space, Store, StoreError,
    StoreFact, StoreOrder, Txn, gather, limit, scatter,
};
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::DirLock;

/// What the format file says.
const FORMAT: &str = "ulnet store 1\n";
/// Keys are the space's number, then the record's key.
const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
/// Length and CRC-32 of each piece of data.
const DATA: TableDefinition<'_, u64, (u64, u32)> = TableDefinition::new("data");

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
    /// Stands before the database, which waits at its end for transactions that are open.
    open: Option<redb::WriteTransaction>,
    db: Database,
    /// The last applied transaction, and whether it is committed.
    last: u64,
    committed: u64,
    /// Written, and not kept.
    written: BTreeMap<DataId, (u64, u32)>,
    /// Kept, and not safe on disk before the next commit.
    unsynced: BTreeSet<DataId>,
    /// Dropped: the files go when that is committed.
    dropped: BTreeSet<DataId>,
    failed: bool,
    facts: VecDeque<(StoreFact, Loaded)>,
    _lock: DirLock,
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

fn io_error(path: &Path, why: &io::Error) -> StoreError {
    if why.kind() == io::ErrorKind::StorageFull {
        return StoreError::Full;
    }
    StoreError::Io { what: path.display().to_string(), why: why.to_string() }
}

fn db_error(why: impl Into<redb::Error>) -> StoreError {
    StoreError::Io { what: "records.redb".to_owned(), why: why.into().to_string() }
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

/// Runs `f` on the database; a panic on a damaged file is an error like others.
fn guarded<T>(f: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err("not a database that can be read".to_owned()),
    }
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
        let (records, format) = (dir.join("records.redb"), dir.join("format"));
        if !format.exists() {
            make(dir, &records, &format)?;
        }
        let said = fs::read_to_string(&format).map_err(|why| OpenError::io(&format, &why))?;
        if said != FORMAT {
            return Err(OpenError::damaged(&format, format!("{:?}, expected {FORMAT:?}", said)));
        }
        let size = fs::metadata(&records).map_err(|why| OpenError::damaged(&records, why))?.len();
        if size == 0 {
            return Err(OpenError::damaged(&records, "0 bytes"));
        }
        let db = guarded(|| {
            let mut db = Database::open(&records)?;
            db.check_integrity()?;
            Ok(db)
        });
        let db = db.map_err(|why| OpenError::damaged(&records, why))?;
        let kept = guarded(|| {
            let read = db.begin_read()?;
            read.open_table(RECORDS)?;
            let table = read.open_table(DATA)?;
            let mut kept = BTreeMap::new();
            for row in table.iter()? {
                let (id, row) = row?;
                kept.insert(DataId(id.value()), row.value());
            }
            Ok(kept)
        });
        let kept = kept.map_err(|why| OpenError::damaged(&records, why))?;
        let disk = Self {
            config,
            open: None,
            db,
            last: 0,
            committed: 0,
            written: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            dropped: BTreeSet::new(),
            failed: false,
            facts: VecDeque::new(),
            _lock: lock,
        };
        disk.compare_data(&kept)?;
        Ok(disk)
    }

    /// Each piece of data that was kept is there, as long as it was; other files are what a crash
    /// left, and go.
    fn compare_data(&self, kept: &BTreeMap<DataId, (u64, u32)>) -> Result<(), OpenError> {
        for (id, (len, _)) in kept {
            let path = self.path(*id);
            let have = fs::metadata(&path).map_err(|why| OpenError::damaged(&path, why))?.len();
            if have != *len {
                let why = format!("{have} bytes, expected {len}");
                return Err(OpenError::damaged(&path, why));
            }
        }
        let dir = self.config.dir.join("data");
        let entries = fs::read_dir(&dir).map_err(|why| OpenError::damaged(&dir, why))?;
        for entry in entries {
            let path = entry.map_err(|why| OpenError::io(&dir, &why))?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let id = name.and_then(|name| u64::from_str_radix(name, 16).ok()).map(DataId);
            if !id.is_some_and(|id| kept.contains_key(&id)) {
                fs::remove_file(&path).map_err(|why| OpenError::io(&path, &why))?;
            }
        }
        Ok(())
    }

    fn path(&self, id: DataId) -> PathBuf {
        self.config.dir.join("data").join(format!("{:016x}", id.0))
    }

    /// Whether something is applied and not committed.
    pub fn is_dirty(&self) -> bool {
        self.last > self.committed && !self.failed
    }

    /// Commits everything that was applied: data first, then the records that name it.
    ///
    /// # Errors
    /// The store is out of service from here on; [`StoreFact::Failed`] reports it.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        if !self.is_dirty() {
            return if self.failed { Err(StoreError::OutOfService) } else { Ok(()) };
        }
        let result = self.commit_all();
        match &result {
            Ok(()) => {
                self.committed = self.last;
                self.facts.push_back((StoreFact::Committed { up_to: self.last }, None));
                for id in core::mem::take(&mut self.dropped) {
                    // A file that stays is removed at the next opening.
                    let _ = fs::remove_file(self.path(id));
                }
            }
            Err(e) => self.fail(e.clone()),
        }
        result
    }

    fn commit_all(&mut self) -> Result<(), StoreError> {
        let unsynced = core::mem::take(&mut self.unsynced);
        for id in &unsynced {
            let path = self.path(*id);
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(|why| io_error(&path, &why))?;
        }
        if !unsynced.is_empty() {
            let dir = self.config.dir.join("data");
            sync_dir(&dir).map_err(|why| io_error(&dir, &why))?;
        }
        match self.open.take() {
            Some(open) => open.commit().map_err(db_error),
            None => Ok(()),
        }
    }

    fn fail(&mut self, e: StoreError) {
        if !self.failed {
            self.failed = true;
            self.open = None;
            self.facts.push_back((StoreFact::Failed(e), None));
        }
    }

    fn txn(&mut self) -> Result<&redb::WriteTransaction, StoreError> {
        if self.open.is_none() {
            self.open = Some(self.db.begin_write().map_err(db_error)?);
        }
        self.open.as_ref().ok_or(StoreError::OutOfService)
    }

    /// Refuses what needs space when there is none left.
    fn room(&self, len: u64) -> Result<(), StoreError> {
        let stat = rustix::fs::statvfs(&self.config.dir)
            .map_err(|why| io_error(&self.config.dir, &why.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < self.config.reserve.saturating_add(len) { Err(StoreError::Full) } else { Ok(()) }
    }

    fn apply(&mut self, txn: &Txn) -> Result<(), StoreError> {
        txn.check(self.last)?;
        let mut grows = 0;
        for change in &txn.changes {
            match change {
                Change::Put(_, key, value) => grows += (key.len() + value.len()) as u64,
                Change::Keep(id, need) => {
                    let (have, _) = *self.written.get(id).ok_or(StoreError::NoData(id.0))?;
                    let (data, need) = (id.0, *need);
                    if have != need {
                        return Err(StoreError::Length { data, have, need });
                    }
                }
                Change::Delete(..) | Change::Drop(_) => {}
            }
        }
        if grows > 0 {
            self.room(grows)?;
        }
        // From here on an error leaves half a transaction behind: the store ends with it.
        let id = txn.id;
        let changed = self.change(txn);
        match changed {
            Ok(()) => self.last = id,
            Err(e) => {
                self.fail(e);
                return Err(StoreError::OutOfService);
            }
        }
        Ok(())
    }

    fn change(&mut self, txn: &Txn) -> Result<(), StoreError> {
        let written = core::mem::take(&mut self.written);
        let open = self.txn()?;
        let mut records = open.open_table(RECORDS).map_err(db_error)?;
        let mut data = open.open_table(DATA).map_err(db_error)?;
        let (mut kept, mut dropped) = (Vec::new(), Vec::new());
        for change in &txn.changes {
            match change {
                Change::Put(space, key, value) => {
                    let key = key_of(*space, key);
                    records.insert(key.as_slice(), value.as_slice()).map_err(db_error)?;
                }
                Change::Delete(space, key) => {
                    records.remove(key_of(*space, key).as_slice()).map_err(db_error)?;
                }
                Change::Keep(id, _) => {
                    if let Some(row) = written.get(id) {
                        data.insert(id.0, *row).map_err(db_error)?;
                        kept.push(*id);
                    }
                }
                Change::Drop(id) => {
                    data.remove(id.0).map_err(db_error)?;
                    dropped.push(*id);
                }
            }
        }
        drop((records, data));
        self.written = written;
        for id in kept {
            self.written.remove(&id);
            self.unsynced.insert(id);
            self.dropped.remove(&id);
        }
        for id in dropped {
            self.written.remove(&id);
            self.unsynced.remove(&id);
            self.dropped.insert(id);
        }
        Ok(())
    }

    fn read(&mut self, from: Source) -> Result<(Outcome, Loaded), StoreError> {
        match from {
            Source::Record(space, key) => {
                let table = self.txn()?.open_table(RECORDS).map_err(db_error)?;
                let found = table.get(key_of(space, &key).as_slice()).map_err(db_error)?;
                Ok((Outcome::Record(found.map(|value| value.value().to_vec())), None))
            }
            Source::Data(id, into) => {
                let table = self.txn()?.open_table(DATA).map_err(db_error)?;
                let row = table.get(id.0).map_err(db_error)?.map(|row| row.value());
                drop(table);
                let (have, crc) = row.ok_or(StoreError::NoData(id.0))?;
                let (data, need) = (id.0, iovec_len(&into));
                if have != need {
                    return Err(StoreError::Length { data, have, need });
                }
                let path = self.path(id);
                let bytes = fs::read(&path).map_err(|why| io_error(&path, &why))?;
                if bytes.len() as u64 != have || crc32fast::hash(&bytes) != crc {
                    let what = path.display().to_string();
                    let why = "its checksum does not hold".to_owned();
                    return Err(StoreError::Damaged { what, why });
                }
                Ok((Outcome::Done, Some((into, bytes))))
            }
        }
    }

    fn write(&mut self, id: DataId, bytes: &[u8]) -> Result<Outcome, StoreError> {
        let len = bytes.len() as u64;
        limit("data", len, DATA_MAX)?;
        self.room(len)?;
        let path = self.path(id);
        if let Err(why) = fs::write(&path, bytes) {
            // Half a file is of no use.
            let _ = fs::remove_file(&path);
            return Err(io_error(&path, &why));
        }
        self.written.insert(id, (len, crc32fast::hash(bytes)));
        Ok(Outcome::Done)
    }

    fn list(
        &mut self,
        space: Space,
        after: &[u8],
        prefix: &[u8],
        max: usize,
    ) -> Result<Outcome, StoreError> {
        let table = self.txn()?.open_table(RECORDS).map_err(db_error)?;
        let prefix = key_of(space, prefix);
        let after = key_of(space, after);
        let from = after.as_slice().max(prefix.as_slice());
        let (mut entries, mut more) = (Vec::new(), false);
        for row in table.range::<&[u8]>(from..).map_err(db_error)? {
            let (key, value) = row.map_err(db_error)?;
            let key = key.value();
            if !key.starts_with(&prefix) {
                break;
            }
            // `after` without a key is the space itself, below all of its keys.
            if key == after && after.len() > 1 {
                continue;
            }
            if entries.len() >= max.min(LIST_MAX) {
                more = true;
                break;
            }
            entries.push((key.get(1..).unwrap_or_default().to_vec(), value.value().to_vec()));
        }
        Ok(Outcome::Listed { entries, more })
    }

    /// Carries out an order. `bytes` are those of a [`StoreOrder::Write`].
    pub(super) fn execute(&mut self, order: StoreOrder, bytes: &[u8]) {
        let mut loaded = None;
        let failed = self.failed;
        let (token, result) = match order {
            StoreOrder::Apply(txn) => {
                let result = if failed { Err(StoreError::OutOfService) } else { self.apply(&txn) };
                self.facts.push_back((StoreFact::Applied { txn: txn.id, result }, None));
                return;
            }
            StoreOrder::Read { token, .. }
            | StoreOrder::Write { token, .. }
            | StoreOrder::Sync { token }
            | StoreOrder::List { token, .. }
                if failed =>
            {
                (token, Err(StoreError::OutOfService))
            }
            StoreOrder::Read { token, from } => (token, self.read(from)),
            StoreOrder::Write { token, data, .. } => {
                (token, self.write(data, bytes).map(|done| (done, None)))
            }
            StoreOrder::Sync { token } => (token, self.commit().map(|()| (Outcome::Done, None))),
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
fn make(dir: &Path, records: &Path, format: &Path) -> Result<(), OpenError> {
    let entries = fs::read_dir(dir).map_err(|why| OpenError::io(dir, &why))?;
    for entry in entries {
        let name = entry.map_err(|why| OpenError::io(dir, &why))?.file_name();
        if name != "lock" {
            let why = format!("no format file beside '{}'", name.display());
            return Err(OpenError::Foreign { dir: dir.to_owned(), why });
        }
    }
    let data = dir.join("data");
    fs::create_dir(&data).map_err(|why| OpenError::io(&data, &why))?;
    let made = guarded(|| {
        let db = Database::create(records)?;
        let txn = db.begin_write()?;
        txn.open_table(RECORDS)?;
        txn.open_table(DATA)?;
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

/// The bytes that an order brings along.
pub(super) fn bytes_of(order: &StoreOrder, memory: &dyn Memory) -> Vec<u8> {
    match order {
        StoreOrder::Write { bytes, .. } => gather(memory, bytes),
        _ => Vec::new(),
    }
}

/// Writes data that was read to where it goes.
pub(super) fn deliver(fact: (StoreFact, Loaded), memory: &mut dyn Memory) -> StoreFact {
    if let Some((into, bytes)) = &fact.1 {
        scatter(memory, into as &IoVec, bytes);
    }
    fact.0
}

impl Store for Disk {
    fn order(&mut self, order: StoreOrder, memory: &dyn Memory) {
        let bytes = bytes_of(&order, memory);
        self.execute(order, &bytes);
    }

    fn poll(&mut self, memory: &mut dyn Memory) -> Option<StoreFact> {
        Some(deliver(self.next_fact()?, memory))
    }
}
