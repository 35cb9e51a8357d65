//! Dirty data of one object: pieces that do not overlap, by where they begin.

use core::ops::Range;
use std::collections::BTreeMap;

use lnet_types::Instant;

use super::OpId;
use super::buffers::BufferId;

/// Bytes that were written, and that the target does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) len: u64,
    /// Where the bytes are.
    pub(super) buffer: BufferId,
    pub(super) at: u64,
    pub(super) since: Instant,
    /// Space is promised for them.
    pub(super) granted: bool,
    /// How much (L-95): more than the bytes, as targets count whole blocks.
    pub(super) space: u64,
    /// The write that waits until they are at the target.
    pub(super) op: Option<OpId>,
    /// Something waits for them to be written back.
    pub(super) urgent: bool,
}

#[derive(Debug, Default)]
pub(super) struct Dirty(BTreeMap<u64, Piece>);

impl Dirty {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Cuts the pieces at `at`, so that none goes over it.
    fn split(&mut self, at: u64) {
        let Some((&start, piece)) = self.0.range_mut(..at).next_back() else { return };
        let head = at - start;
        if head >= piece.len {
            return;
        }
        let len = piece.len - head;
        // Each part has its share of the promise.
        let share = u128::from(piece.space) * u128::from(len) / u128::from(piece.len.max(1));
        let space = u64::try_from(share).unwrap_or(piece.space).min(piece.space);
        let tail = Piece { len, at: piece.at + head, space, ..*piece };
        piece.len = head;
        piece.space -= space;
        self.0.insert(at, tail);
    }

    /// Takes the pieces of a range out.
    pub(super) fn cut(&mut self, range: Range<u64>) -> Vec<(u64, Piece)> {
        self.split(range.start);
        self.split(range.end);
        let starts: Vec<u64> = self.0.range(range).map(|(start, _)| *start).collect();
        starts.into_iter().filter_map(|start| self.0.remove_entry(&start)).collect()
    }

    /// Puts a piece in. Those whose place it takes are returned; if one of them was waited for, the new
    /// one is as well.
    pub(super) fn insert(&mut self, start: u64, piece: Piece) -> Vec<(u64, Piece)> {
        let old = self.cut(start..start.saturating_add(piece.len));
        let urgent = piece.urgent || old.iter().any(|(_, old)| old.urgent);
        self.0.insert(start, Piece { urgent, ..piece });
        old
    }

    fn over(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Piece)> {
        let before = self.0.range(..range.start).next_back();
        let before = before.filter(|(start, piece)| *start + piece.len > range.start);
        let all = before.into_iter().chain(self.0.range(range.clone()));
        all.map(|(start, piece)| (*start, piece))
    }

    /// Whether something in a range is waited for.
    pub(super) fn is_urgent(&self, range: &Range<u64>) -> bool {
        self.over(range).any(|(_, piece)| piece.urgent)
    }

    /// From now on what is in a range is waited for, as far as `which` says. Whether there is any.
    pub(super) fn urge(&mut self, range: &Range<u64>, which: impl Fn(&Piece) -> bool) -> bool {
        let starts: Vec<u64> = self.over(range).map(|(start, _)| start).collect();
        let mut any = false;
        for start in starts {
            if let Some(piece) = self.0.get_mut(&start).filter(|piece| which(piece)) {
                piece.urgent = true;
                any = true;
            }
        }
        any
    }

    /// Takes out what one request writes: from the first piece that is waited for on, in one of the ranges
    /// `first` if there is one, as far as pieces follow each other whose space is promised in the same way, up
    /// to the next multiple of `max`: a run that ends inside of a page makes all that follow begin inside of
    /// one, and pages count as whole ones (P-46). Nothing that overlaps `busy`.
    pub(super) fn take_run(
        &mut self,
        max: u64,
        busy: &[Range<u64>],
        first: &[Range<u64>],
    ) -> Vec<(u64, Piece)> {
        let max = max.max(1);
        let free = |start: u64, piece: &Piece| {
            busy.iter().all(|busy| busy.end <= start || start + piece.len <= busy.start)
        };
        let all = 0..u64::MAX;
        let first = first.iter().chain([&all]).find_map(|range| {
            self.over(range).find(|(start, piece)| piece.urgent && free(*start, piece))
        });
        let Some((start, &Piece { granted, .. })) = first else { return Vec::new() };
        let border = start.saturating_add(max - start % max);
        let mut end = start;
        for (&at, piece) in self.0.range(start..) {
            let follows = at == end && piece.granted == granted && free(at, piece);
            if !follows || end >= border {
                break;
            }
            end = at + piece.len;
        }
        self.cut(start..end.min(border))
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.values().map(|piece| piece.len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Behind the last dirty byte; 0 for none.
    pub(super) fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(start, piece)| start + piece.len)
    }

    /// Since when the oldest has been dirty that nothing waits for.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.0.values().filter(|piece| !piece.urgent).map(|piece| piece.since).min()
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::{IoVec, RegionId, Span};
    use proptest::prelude::*;

    use super::super::buffers::Buffers;
    use super::*;

    fn buffer(buffers: &mut Buffers, len: u32) -> BufferId {
        buffers.insert(IoVec::from([Span { region: RegionId(1), offset: 0, len }]))
    }

    fn piece(buffer: BufferId, len: u64) -> Piece {
        let since = Instant::ZERO;
        Piece { len, buffer, at: 0, since, granted: true, space: len, op: None, urgent: false }
    }

    fn shape(run: &[(u64, Piece)]) -> Vec<(u64, u64, u64)> {
        run.iter().map(|(start, piece)| (*start, piece.len, piece.at)).collect()
    }

    #[test]
    fn newer_bytes_take_the_place_of_older_ones_and_what_waited_waits_for_them() {
        let id = buffer(&mut Buffers::default(), 100);
        let mut dirty = Dirty::default();
        assert_eq!(dirty.insert(0, piece(id, 100)), []);
        assert!(dirty.urge(&(10..11), |_| true));
        let old = dirty.insert(40, piece(id, 20));
        assert_eq!(shape(&old), [(40, 20, 40)]);
        assert!(dirty.is_urgent(&(59..60)));
        let run = dirty.take_run(1000, &[], &[]);
        assert_eq!(shape(&run), [(0, 40, 0), (40, 20, 0), (60, 40, 60)]);
        assert!(dirty.is_empty());
    }

    #[test]
    fn parts_of_a_piece_hold_together_the_space_that_it_held() {
        let id = buffer(&mut Buffers::default(), 100);
        let mut dirty = Dirty::default();
        dirty.insert(0, Piece { space: 4096, ..piece(id, 100) });
        let old = dirty.insert(40, Piece { space: 4096, ..piece(id, 20) });
        let taken: u64 = old.iter().map(|(_, piece)| piece.space).sum();
        let left: u64 = dirty.cut(0..100).iter().map(|(_, piece)| piece.space).sum();
        assert_eq!(taken + left, 8192);
        assert!(taken > 0 && taken < 4096);
    }

    #[test]
    fn a_run_ends_at_gaps_at_borders_and_where_promises_end_and_keeps_off_what_is_on_its_way() {
        let id = buffer(&mut Buffers::default(), 100);
        let mut dirty = Dirty::default();
        dirty.insert(0, piece(id, 10));
        dirty.insert(10, Piece { granted: false, ..piece(id, 10) });
        dirty.insert(30, piece(id, 30));
        assert_eq!(dirty.take_run(1000, &[], &[]), [], "nothing waits");
        dirty.urge(&(0..100), |_| true);
        assert_eq!(
            shape(&dirty.take_run(1000, core::slice::from_ref(&(5..6)), &[])),
            [(10, 10, 0)]
        );
        assert_eq!(shape(&dirty.take_run(1000, &[], &[])), [(0, 10, 0)]);
        assert_eq!(shape(&dirty.take_run(20, &[], &[])), [(30, 10, 0)]);
        assert_eq!(shape(&dirty.take_run(20, &[], &[])), [(40, 20, 10)]);
        assert_eq!((dirty.end(), dirty.oldest()), (0, None));
    }

    proptest! {
        /// As a map of bytes: the last write of each byte is there, and no byte is counted twice.
        #[test]
        fn bytes_are_those_of_the_last_write(
            writes in proptest::collection::vec((0..200u64, 1..50u64, any::<bool>()), 1..40)
        ) {
            let mut buffers = Buffers::default();
            let (mut dirty, mut model) = (Dirty::default(), BTreeMap::new());
            for (start, len, cuts) in writes {
                if cuts {
                    dirty.cut(start..start + len);
                    (start..start + len).for_each(|at| { model.remove(&at); });
                    continue;
                }
                let id = buffer(&mut buffers, len as u32);
                dirty.insert(start, piece(id, len));
                (0..len).for_each(|at| { model.insert(start + at, (id, at)); });
            }
            let all = dirty.cut(0..1000);
            let bytes = all.iter().flat_map(|(start, piece)| {
                (0..piece.len).map(move |i| (start + i, (piece.buffer, piece.at + i)))
            });
            let bytes: Vec<_> = bytes.collect();
            prop_assert_eq!(bytes, model.into_iter().collect::<Vec<_>>());
        }
    }
}
