//! The lock in a store's directory: two processes never serve the same target, as long as the file
//! system has locks that work between their nodes. Fencing of storage that two nodes can reach
//! without such locks is the site's business.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use super::OpenError;

/// The lock, held. Dropping it, or the end of the process, lets it go.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the lock of a directory, which is made if there is none.
    ///
    /// # Errors
    /// [`OpenError::Locked`] with what its holder wrote into it; a file that can't be made.
    pub fn take(dir: &Path) -> Result<Self, OpenError> {
        let mut file = Self::file(dir)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // A holder that is not known is still a holder.
                let _ = file.read_to_string(&mut holder);
                let (dir, holder) = (dir.to_owned(), holder.trim().to_owned());
                return Err(OpenError::Locked { dir, holder });
            }
            Err(TryLockError::Error(why)) => return Err(OpenError::io(&dir.join("lock"), &why)),
        }
        Self::sign(dir, file)
    }

    /// Waits until the lock is free, and takes it.
    ///
    /// # Errors
    /// A file that can't be made or locked.
    pub fn wait(dir: &Path) -> Result<Self, OpenError> {
        let file = Self::file(dir)?;
        file.lock().map_err(|why| OpenError::io(&dir.join("lock"), &why))?;
        Self::sign(dir, file)
    }

    fn file(dir: &Path) -> Result<File, OpenError> {
        std::fs::create_dir_all(dir).map_err(|why| OpenError::io(dir, &why))?;
        let path = dir.join("lock");
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        opened.map_err(|why| OpenError::io(&path, &why))
    }

    fn sign(dir: &Path, mut file: File) -> Result<Self, OpenError> {
        let signed = file.set_len(0).and_then(|()| {
            file.rewind()?;
            writeln!(file, "process {}", std::process::id())
        });
        signed.map_err(|why| OpenError::io(&dir.join("lock"), &why))?;
        Ok(Self { _file: file })
    }
}
