//! The store on files: records in one embedded database, data in a file of blocks. A directory belongs
//! to one target, and to one process at a time.
//!
//! ```text
//!  DIR/lock          held by the process that serves the target
//!  DIR/format        what this directory is; written last when it is made
//!  DIR/targets       the description of a file system, which its operator writes before
//!  DIR/records.redb  records, and for each block of data its slot, length and checksum
//!  DIR/blocks        blocks of 64 KiB, each written once before its slot is used again
//!
//!  orders ─► disk.rs ─► upper layer ─┐ freeze
//!                       lower layer ◄┘ ─► commit.rs ─► blocks synced ─► database
//!                       database
//! ```
//!
//! What is applied is in memory, over what is committed (`layer.rs`), but for the bytes of data: they
//! go to blocks that nothing committed refers to (`blocks.rs`). So a commit holds nothing up, and a
//! transaction is there whole or not at all. What is damaged, cut off or missing is refused by name.
//! Where the file system has no room, data are refused, and commits wait for some (`room.rs`).
//! `lock.rs` is the lock, `disk.rs` carries out orders, `worker.rs` says on which thread: the owner's, if
//! an order touches memory alone and comes behind no other; else one of the store, which has a second one
//! for commits.

mod blocks;
mod bytes;
mod commit;
mod disk;
mod layer;
mod lock;
mod room;
mod worker;

use std::io;
use std::path::Path;

use lustre_target::store::StoreError;
use redb::TableDefinition;

pub use disk::{Disk, DiskConfig, OpenError};
pub use lock::DirLock;
pub use worker::{FileStore, Wake, WakeUp};

/// The description of a file system in the directory of its management or metadata target.
pub const DESCRIPTION: &str = "targets";
/// The file of the database.
const DATABASE: &str = "records.redb";
/// Keys are the space's number, then the record's key.
const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
/// Slot, length and CRC-32 of each block, by its data and its number there.
const BLOCKS: TableDefinition<'_, layer::Place, (u64, u32, u32)> = TableDefinition::new("blocks");

fn io_error(path: &Path, why: &io::Error) -> StoreError {
    if room::is_full(why) {
        return StoreError::Full;
    }
    StoreError::Io { what: path.display().to_string(), why: why.to_string() }
}

fn db_error(why: impl Into<redb::Error>) -> StoreError {
    StoreError::Io { what: DATABASE.to_owned(), why: why.into().to_string() }
}

fn db_damaged(why: &str) -> StoreError {
    StoreError::Damaged { what: DATABASE.to_owned(), why: why.to_owned() }
}

/// What `f` finds in the database, which panics where a file is damaged: that is an error like others, since
/// other targets stand on the same threads.
fn total<T, E>(f: impl FnOnce() -> Result<T, E>, damaged: impl FnOnce(&str) -> E) -> Result<T, E> {
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    found.unwrap_or_else(|_| Err(damaged("not a database that can be read")))
}

#[cfg(test)]
mod tests;
