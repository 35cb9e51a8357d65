//! A commit: changes go from memory to the database, after the blocks that they name. It needs nothing
//! of the store while it works, so that another thread can do it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use lustre_target::store::StoreError;
use redb::Database;

use super::blocks::{BLOCK, Shorts};
use super::layer::Layer;
use super::room::Patience;
use super::{BLOCKS, RECORDS, db_error, io_error};

/// Changes on their way to be committed.
#[derive(Clone)]
pub(super) struct Batch {
    pub(super) db: Arc<Database>,
    /// The file of blocks, and what is to be written to it.
    pub(super) blocks: (PathBuf, Arc<File>, Arc<Shorts>),
    /// What was applied can't be refused: it waits for room.
    pub(super) patience: Patience,
    pub(super) layer: Arc<Layer>,
    /// The last transaction in it.
    pub(super) last: u64,
}

/// A batch that is committed.
#[derive(Debug)]
pub(super) struct Committed {
    /// Its last transaction.
    pub(super) up_to: u64,
    /// Slots that are free from now on.
    pub(super) freed: Vec<u64>,
}

impl Batch {
    /// Commits it.
    ///
    /// # Errors
    /// The system's, or the database's: nothing of it may count as committed.
    pub(super) fn commit(&self) -> Result<Committed, StoreError> {
        let Self { db, blocks: (path, file, shorts), patience, layer, last } = self;
        for (slot, bytes) in shorts.iter() {
            let write = || file.write_all_at(bytes, slot.saturating_mul(BLOCK));
            patience.with_room(write).map_err(|why| io_error(path, &why))?;
        }
        if !layer.blocks.is_empty() {
            file.sync_data().map_err(|why| io_error(path, &why))?;
        }
        let mut freed = Vec::new();
        let txn = db.begin_write().map_err(db_error)?;
        {
            let mut records = txn.open_table(RECORDS).map_err(db_error)?;
            let mut blocks = txn.open_table(BLOCKS).map_err(db_error)?;
            for (data, first) in &layer.cuts {
                let range = (*data, *first)..=(*data, u64::MAX);
                let gone = blocks.extract_from_if(range, |_, _| true).map_err(db_error)?;
                for row in gone {
                    let (slot, ..) = row.map_err(db_error)?.1.value();
                    freed.push(slot);
                }
            }
            for (place, block) in &layer.blocks {
                let row = (block.slot, block.len, block.crc);
                let old = blocks.insert(place, row).map_err(db_error)?;
                freed.extend(old.map(|old| old.value().0));
            }
            for (key, value) in &layer.records {
                match value {
                    Some(value) => records.insert(key.as_slice(), value.as_slice()),
                    None => records.remove(key.as_slice()),
                }
                .map_err(db_error)?;
            }
        }
        txn.commit().map_err(db_error)?;
        Ok(Committed { up_to: *last, freed })
    }
}
