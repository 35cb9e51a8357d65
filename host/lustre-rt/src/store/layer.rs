//! What is applied and not committed, over what is committed. Reads look through the layers from the
//! newest down; a commit writes the lower one out while orders go on in the upper.

use std::collections::BTreeMap;
use std::sync::Arc;

use lustre_target::store::{LIST_MAX, StoreError};
use redb::{Database, ReadOnlyTable, ReadableDatabase as _};

use super::blocks::Block;
use super::{BLOCKS, RECORDS, db_error};

/// Bytes of changes, in memory, that wait for their commit: further orders wait then.
pub(super) const LAYER_MAX: usize = 64 << 20;
/// Bytes of a change beside those of its record.
const CHANGE: usize = 128;

/// A block by its name: its data, and its number there.
pub(super) type Place = (u64, u64);
/// A key and its record.
pub(super) type Entry = (Vec<u8>, Vec<u8>);

/// Changes that are committed together.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// Records; `None` for one that was removed.
    pub(super) records: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The first block of some data from which on nothing below this layer is there.
    pub(super) cuts: BTreeMap<u64, u64>,
    /// Blocks that were written.
    pub(super) blocks: BTreeMap<Place, Block>,
    bytes: usize,
}

/// What is committed, as it was when that was looked at last.
pub(super) struct Snapshot {
    records: ReadOnlyTable<&'static [u8], &'static [u8]>,
    blocks: ReadOnlyTable<Place, (u64, u32, u32)>,
}

/// All that can be seen.
pub(super) struct Layers {
    /// Blocks of the transaction that is being applied; none between two.
    pub(super) draft: Layer,
    /// Its records, of which it reads none; likewise.
    pub(super) records: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// What is applied.
    pub(super) upper: Layer,
    /// On its way to be committed.
    pub(super) lower: Option<Arc<Layer>>,
    /// Committed.
    pub(super) floor: Snapshot,
}

impl Snapshot {
    /// What is committed now.
    ///
    /// # Errors
    /// The database's.
    pub(super) fn of(db: &Database) -> Result<Self, redb::Error> {
        let read = db.begin_read()?;
        Ok(Self { records: read.open_table(RECORDS)?, blocks: read.open_table(BLOCKS)? })
    }

    /// All blocks that are committed.
    ///
    /// # Errors
    /// The database's.
    pub(super) fn all_blocks(&self) -> Result<Vec<Block>, redb::Error> {
        let mut all = Vec::new();
        for row in self.blocks.range::<Place>(..)? {
            let (slot, len, crc) = row?.1.value();
            all.push(Block { slot, len, crc });
        }
        Ok(all)
    }
}

impl Layer {
    /// Whether there are so many changes that orders have to wait for their commit.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= LAYER_MAX
    }

    /// A record is put, or removed.
    pub(super) fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.bytes += CHANGE + key.len() + value.as_ref().map_or(0, Vec::len);
        self.records.insert(key, value);
    }

    /// A block was written; the slot of an earlier one of this layer is free.
    pub(super) fn write(&mut self, place: Place, block: Block) -> Option<u64> {
        self.bytes += CHANGE + block.held();
        self.blocks.insert(place, block).map(|old| old.slot)
    }

    /// The blocks of some data from `first` on are gone; slots of this layer that are free.
    pub(super) fn cut(&mut self, data: u64, first: u64) -> Vec<u64> {
        self.bytes += CHANGE;
        let cut = self.cuts.entry(data).or_insert(first);
        *cut = first.min(*cut);
        let gone: Vec<Place> =
            self.blocks.range((data, first)..=(data, u64::MAX)).map(|(place, _)| *place).collect();
        gone.iter().filter_map(|place| self.blocks.remove(place)).map(|block| block.slot).collect()
    }
}

impl Layers {
    /// Nothing that is not committed.
    pub(super) fn over(floor: Snapshot) -> Self {
        let (draft, upper) = (Layer::default(), Layer::default());
        Self { draft, records: Vec::new(), upper, lower: None, floor }
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        [&self.draft, &self.upper].into_iter().chain(self.lower.as_deref())
    }

    /// The transaction is applied; slots that are free.
    pub(super) fn accept(&mut self) -> Vec<u64> {
        let Layer { cuts, blocks, .. } = core::mem::take(&mut self.draft);
        let mut freed = Vec::new();
        for (data, first) in cuts {
            freed.extend(self.upper.cut(data, first));
        }
        for (place, block) in blocks {
            freed.extend(self.upper.write(place, block));
        }
        for (key, value) in self.records.drain(..) {
            self.upper.put(key, value);
        }
        freed
    }

    /// Nothing of the transaction is applied; slots that are free.
    pub(super) fn refuse(&mut self) -> Vec<u64> {
        self.records.clear();
        let draft = core::mem::take(&mut self.draft);
        draft.blocks.into_values().map(|block| block.slot).collect()
    }

    /// A record.
    ///
    /// # Errors
    /// The database's.
    pub(super) fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(found) = self.layers().find_map(|layer| layer.records.get(key)) {
            return Ok(found.clone());
        }
        let found = self.floor.records.get(key).map_err(db_error)?;
        Ok(found.map(|value| value.value().to_vec()))
    }

    /// Where a block lies, if there is one.
    ///
    /// # Errors
    /// The database's.
    pub(super) fn block(&self, place: Place) -> Result<Option<Block>, StoreError> {
        for layer in self.layers() {
            if let Some(block) = layer.blocks.get(&place) {
                return Ok(Some(*block));
            }
            if layer.cuts.get(&place.0).is_some_and(|first| *first <= place.1) {
                return Ok(None);
            }
        }
        let found = self.floor.blocks.get(place).map_err(db_error)?;
        Ok(found.map(|value| {
            let (slot, len, crc) = value.value();
            Block { slot, len, crc }
        }))
    }

    /// Records with keys from `from` on, but for `without`, that begin with `prefix`, at most `max`;
    /// whether there are more.
    ///
    /// # Errors
    /// The database's.
    pub(super) fn list(
        &self,
        from: &[u8],
        without: Option<&[u8]>,
        prefix: &[u8],
        max: usize,
    ) -> Result<(Vec<Entry>, bool), StoreError> {
        let mut above: Vec<_> = self
            .layers()
            .map(|layer| layer.records.range::<[u8], _>((from_bound(from), UNBOUNDED)).peekable())
            .collect();
        let mut floor = self.floor.records.range::<&[u8]>(from..).map_err(db_error)?;
        let mut next = floor.next().transpose().map_err(db_error)?;
        let mut entries = Vec::new();
        loop {
            let committed = next.as_ref().map(|(key, _)| key.value());
            let keys =
                above.iter_mut().filter_map(|layer| layer.peek().map(|(key, _)| key.as_slice()));
            let Some(key) = keys.chain(committed).min().map(<[u8]>::to_vec) else { break };
            if !key.starts_with(prefix) {
                break;
            }
            // The newest layer that knows the key decides; the others are passed over.
            let mut found: Option<Option<Vec<u8>>> = None;
            for layer in &mut above {
                if let Some((_, value)) = layer.next_if(|(at, _)| **at == key) {
                    found.get_or_insert_with(|| value.clone());
                }
            }
            if let Some((_, value)) = next.as_ref().filter(|(at, _)| at.value() == key.as_slice()) {
                found.get_or_insert_with(|| Some(value.value().to_vec()));
                next = floor.next().transpose().map_err(db_error)?;
            }
            let Some(value) = found.flatten() else { continue };
            if without == Some(key.as_slice()) {
                continue;
            }
            if entries.len() >= max.min(LIST_MAX) {
                return Ok((entries, true));
            }
            entries.push((key, value));
        }
        Ok((entries, false))
    }
}

const UNBOUNDED: core::ops::Bound<&[u8]> = core::ops::Bound::Unbounded;

fn from_bound(from: &[u8]) -> core::ops::Bound<&[u8]> {
    core::ops::Bound::Included(from)
}
