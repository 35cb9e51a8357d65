//! Room on the file system that other programs may have taken since it was counted. What has to be written
//! waits for some: the database never sees the system refuse, as it could not go on after that.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use redb::backends::FileBackend;
use redb::{DatabaseError, StorageBackend};

/// A write that found no room is tried again after so long.
const AGAIN: Duration = Duration::from_millis(100);

/// Whether the system refused for want of room, its own or that of a user.
pub(super) fn is_full(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether to wait for room; shared by all that write to a store.
#[derive(Clone, Default)]
pub(super) struct Patience(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: AtomicU8,
    /// What to do when something begins to wait.
    short: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Nothing waits.
const NONE: u8 = 0;
/// What finds no room waits.
const SOME: u8 = 1;
/// Something does.
const USED: u8 = 2;

impl core::fmt::Debug for Patience {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Patience").field(&self.0.state).finish()
    }
}

impl Patience {
    /// From now on what finds no room waits for some, and the first that does calls `short`.
    pub(super) fn begin(&self, short: impl Fn() + Send + Sync + 'static) {
        // Nothing begins twice.
        let _ = self.0.short.set(Box::new(short));
        self.0.state.store(SOME, Ordering::Release);
    }

    /// Nothing waits any more; what does ends with the system's error.
    pub(super) fn end(&self) {
        self.0.state.store(NONE, Ordering::Release);
    }

    /// What waits from now on is reported again.
    pub(super) fn renew(&self) {
        self.exchange(USED, SOME);
    }

    fn exchange(&self, from: u8, to: u8) -> bool {
        self.0.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Writes, as soon as there is room. `written` is called again from its beginning.
    ///
    /// # Errors
    /// The system's; for want of room if nothing waits any more.
    pub(super) fn with_room<T>(&self, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match write() {
                Err(why) if is_full(&why) && self.0.state.load(Ordering::Acquire) != NONE => {
                    // Not if that has ended meanwhile.
                    if self.exchange(SOME, USED)
                        && let Some(short) = self.0.short.get()
                    {
                        short();
                    }
                    thread::sleep(AGAIN);
                }
                result => return result,
            }
        }
    }
}

/// The file of the database.
#[derive(Debug)]
pub(super) struct Roomy<B> {
    file: B,
    patience: Patience,
}

impl Roomy<FileBackend> {
    /// A file that is there.
    ///
    /// # Errors
    /// It can't be locked.
    pub(super) fn new(file: File, patience: Patience) -> Result<Self, DatabaseError> {
        Ok(Self { file: FileBackend::new(file)?, patience })
    }
}

impl<B: StorageBackend> StorageBackend for Roomy<B> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.patience.with_room(|| self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.patience.with_room(|| self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use redb::{Database, ReadableDatabase as _, TableDefinition};

    use super::*;

    const TABLE: TableDefinition<'_, u64, u64> = TableDefinition::new("table");

    /// A file in memory whose file system is full for so many writes.
    #[derive(Clone, Debug, Default)]
    struct Crowded {
        bytes: Arc<Mutex<Vec<u8>>>,
        full: Arc<Mutex<u32>>,
    }

    impl Crowded {
        fn room(&self) -> io::Result<()> {
            let mut full = self.full.lock().unwrap();
            if *full == 0 {
                return Ok(());
            }
            *full -= 1;
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    impl StorageBackend for Crowded {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().unwrap().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            out.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..out.len()]);
            Ok(())
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.room()?;
            self.bytes.lock().unwrap().resize(len as usize, 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.room()?;
            self.bytes.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn put(db: &Database, key: u64) -> Result<(), redb::Error> {
        let txn = db.begin_write()?;
        txn.open_table(TABLE)?.insert(key, key)?;
        Ok(txn.commit()?)
    }

    #[test]
    fn database_whose_file_system_was_full_goes_on_when_there_is_room() {
        let (file, patience) = (Crowded::default(), Patience::default());
        let roomy = Roomy { file: file.clone(), patience: patience.clone() };
        let db = Database::builder().create_with_backend(roomy).unwrap();
        let (said, heard) = channel();
        patience.begin(move || said.send(()).unwrap());
        put(&db, 1).unwrap();
        assert_eq!(heard.try_iter().count(), 0);
        *file.full.lock().unwrap() = 2;
        put(&db, 2).unwrap();
        assert_eq!(heard.try_iter().count(), 1);
        patience.renew();
        *file.full.lock().unwrap() = 1;
        put(&db, 2).unwrap();
        assert_eq!(heard.try_iter().count(), 1);
        // Otherwise a store could not be closed where there is no room.
        patience.end();
        *file.full.lock().unwrap() = 1;
        assert!(put(&db, 3).is_err());
        drop(db);
        let db = Database::builder().create_with_backend(file).unwrap();
        let table = db.begin_read().unwrap().open_table(TABLE).unwrap();
        let found = [1, 2, 3].map(|key| table.get(key).unwrap().is_some());
        assert_eq!(found, [true, true, false]);
    }
}
