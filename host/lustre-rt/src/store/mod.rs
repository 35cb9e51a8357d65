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
//! `lock.rs` is the lock, `disk.rs` carries out orders, `worker.rs` does it on a thread of its own,
//! with a second one for commits.

mod blocks;
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
    StoreError::Io { what: "records.redb".to_owned(), why: why.into().to_string() }
}

#[cfg(test)]
mod tests;
