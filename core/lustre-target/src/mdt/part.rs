//! The data of a file that is on its metadata target: which bytes of the store they are, and where the file
//! has some (C-182, C-220).

use crate::ost::{EXTENTS_MAX, Extents};
use crate::store::{DATA_END, DataId};

use super::inode::take;

/// Data of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its bytes in the store.
    pub(super) id: DataId,
    /// Where they end.
    pub(super) size: u64,
    /// Where bytes were written.
    pub(super) extents: Extents,
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_le_bytes)
}

impl Part {
    /// Data without bytes.
    pub(super) fn new(id: DataId) -> Self {
        Self { id, size: 0, extents: Extents::default() }
    }

    /// As it stands at the end of a file's record.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let ranges: Vec<(u64, u64)> = self.extents.iter().collect();
        let words = [self.id.0, self.size, ranges.len() as u64];
        let ranges = ranges.into_iter().flat_map(|(from, to)| [from, to]);
        words.into_iter().chain(ranges).flat_map(u64::to_le_bytes).collect()
    }

    /// Takes the data off the front of some bytes, if they begin with it.
    pub(super) fn take(bytes: &mut &[u8]) -> Option<Self> {
        let id = DataId(take_u64(bytes)?);
        let (size, count) = (take_u64(bytes)?, take_u64(bytes)?);
        if count > EXTENTS_MAX as u64 {
            return None;
        }
        let mut ranges = Vec::new();
        let mut extents = Extents::default();
        for _ in 0..count {
            let (from, to) = (take_u64(bytes)?, take_u64(bytes)?);
            if from >= to || to > DATA_END {
                return None;
            }
            extents.add(from, to);
            ranges.push((from, to));
        }
        // Ranges in another form than they are written in were not written here.
        let same = extents.iter().eq(ranges);
        same.then_some(Self { id, size, extents })
    }

    /// Blocks of 512 bytes.
    pub(super) fn blocks(&self) -> u64 {
        self.extents.blocks()
    }
}
