//! Which metadata target has a file: each sequence of FIDs is on one of them, for ever (C-41, C-166).

use std::sync::OnceLock;

use lustre_wire::Fid;
use lustre_wire::fid::{RangeKind, SeqRange};

use super::remote::Remote;
use super::{VisitError, Visitor, Wire, mdc};

/// Ranges of sequences that are remembered.
const RANGES_MAX: usize = 256;
/// Sequences of which files were found, that are remembered.
const FOUND_MAX: usize = 256;

/// Where sequences are, as far as it is known.
#[derive(Debug)]
pub(super) struct Places {
    /// As a target has said.
    ranges: Vec<OnceLock<SeqRange>>,
    /// A target has shown a file of it as its own: sequence and index.
    found: Vec<OnceLock<(u64, u32)>>,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            ranges: (0..RANGES_MAX).map(|_| OnceLock::new()).collect(),
            found: (0..FOUND_MAX).map(|_| OnceLock::new()).collect(),
        }
    }
}

fn holds(range: &SeqRange, seq: u64) -> bool {
    range.start <= seq && seq < range.end
}

impl Places {
    /// The target of a sequence.
    fn of(&self, seq: u64) -> Option<u32> {
        let mut ranges = self.ranges.iter().map_while(OnceLock::get);
        let mut found = self.found.iter().map_while(OnceLock::get);
        let range = ranges.find(|range| holds(range, seq)).map(|range| range.index);
        range.or_else(|| found.find(|(of, _)| *of == seq).map(|(_, index)| *index))
    }

    /// The first place that is free is taken; without one it is asked again.
    fn learn(&self, range: SeqRange) {
        let _ = self.ranges.iter().find(|place| place.set(range).is_ok());
    }

    /// A target has shown a file of this sequence as its own.
    fn find(&self, seq: u64, index: u32) {
        if self.of(seq).is_none() {
            let _ = self.found.iter().find(|place| place.set((seq, index)).is_ok());
        }
    }
}

impl<W: Wire> Visitor<W> {
    fn first_mdt(&self) -> Result<&Remote<W::Link>, VisitError> {
        let first = self.mdts.values().next();
        first.ok_or(VisitError::NoTarget { kind: "MDT", index: 0 })
    }

    /// The metadata target that has a file.
    pub(super) async fn mdt_of(&self, fid: Fid) -> Result<&Remote<W::Link>, VisitError> {
        let first = self.first_mdt()?;
        if self.mdts.len() == 1 {
            return Ok(first);
        }
        let index = match self.places.of(fid.seq) {
            Some(index) => index,
            None => {
                let answer = first.ask(&self.wire, mdc::locate(fid.seq)).await?;
                let range: Option<SeqRange> = answer.get(1);
                let is_it =
                    |range: &SeqRange| holds(range, fid.seq) && range.flags == RangeKind::MDT;
                let range = range.filter(is_it);
                let range = range.ok_or_else(|| first.bad("expected the place of a sequence"))?;
                self.places.learn(range);
                range.index
            }
        };
        self.mdts.get(&index).ok_or(VisitError::NoTarget { kind: "MDT", index })
    }

    /// A target has shown a file as its own (C-165): where its sequence is need not be asked.
    pub(super) fn found_at(&self, mdt: &Remote<W::Link>, fid: Fid) {
        if let Some(index) = self.index_in(mdt) {
            self.places.find(fid.seq, index);
        }
    }

    fn index_in(&self, mdt: &Remote<W::Link>) -> Option<u32> {
        let mut all = self.mdts.iter();
        all.find(|(_, remote)| remote.uuid == mdt.uuid).map(|(index, _)| *index)
    }

    /// Index of the metadata target that has a file.
    pub(super) async fn index_of(&self, fid: Fid) -> Result<u32, VisitError> {
        let mdt = self.mdt_of(fid).await?;
        self.index_in(mdt).ok_or(VisitError::NoTarget { kind: "MDT", index: 0 })
    }

    /// The root of the file system.
    pub(super) async fn find_root(&self) -> Result<Fid, VisitError> {
        let first = self.first_mdt()?;
        let root: Option<lustre_wire::mds::MdtBody> =
            first.ask(&self.wire, mdc::root()).await?.get(1);
        Ok(root.ok_or_else(|| first.bad("expected the root"))?.fid1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64, index: u32) -> SeqRange {
        SeqRange { start, end, index, flags: RangeKind::MDT }
    }

    #[test]
    fn sequences_are_where_ranges_or_files_of_them_were_found() {
        let places = Places::default();
        assert_eq!(places.of(7), None);
        places.learn(range(10, 20, 1));
        places.find(7, 2);
        places.find(12, 3);
        let of = [7, 8, 9, 10, 12, 19, 20].map(|seq| places.of(seq));
        assert_eq!(of, [Some(2), None, None, Some(1), Some(1), Some(1), None]);
    }

    #[test]
    fn files_of_many_sequences_leave_room_for_ranges() {
        let places = Places::default();
        for seq in 0..2 * FOUND_MAX as u64 {
            places.find(seq, 0);
        }
        assert_eq!(places.of(FOUND_MAX as u64), None);
        places.learn(range(FOUND_MAX as u64, 1 << 30, 1));
        assert_eq!(places.of(FOUND_MAX as u64), Some(1));
    }
}
