//! The store on files: records in one embedded database, larger data in files of their own. A
//! directory belongs to one target, and to one process at a time.
//!
//! ```text
//!  DIR/lock          held by the process that serves the target
//!  DIR/format        what this directory is; written last when it is made
//!  DIR/records.redb  records, and for each piece of data its length and checksum
//!  DIR/data/…        one file for each piece of data
//! ```
//!
//! Data reaches its file before the record that names it is committed. What is damaged, cut off or
//! missing is refused by name. `lock.rs` is the lock, `disk.rs` carries out orders, `worker.rs` does
//! it on a thread of its own.

mod disk;
mod lock;
mod worker;

pub use disk::{Disk, DiskConfig, OpenError};
pub use lock::DirLock;
pub use worker::{FileStore, Wake, WakeUp};

#[cfg(test)]
mod tests;
