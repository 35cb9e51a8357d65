//! Ranges of files as ranges of objects: pieces that follow each other in an object make one request,
//! although others of the file are between them. Pure.

use super::Part;
use super::stripes::{FileLayout, Piece, Spot};

/// A range of a holder of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where it begins.
    pub(super) at: Spot,
    /// Bytes.
    pub(super) len: u64,
    /// First bytes in the file and lengths of its pieces, in order.
    pub(super) pieces: Vec<(u64, u64)>,
}

impl Run {
    const fn of(piece: Piece) -> Self {
        Self { at: piece.at, len: piece.len, pieces: Vec::new() }
    }

    /// Its first byte in the file.
    pub(super) fn first(&self) -> u64 {
        self.pieces.first().map_or(0, |(offset, _)| *offset)
    }

    /// The parts of the file that were read; zeros where the holder has ended.
    pub(super) fn parts(self, mut bytes: Vec<u8>) -> Vec<Part> {
        let one = |(offset, len)| {
            let here = bytes.len().min(usize::try_from(len).unwrap_or(usize::MAX));
            let rest = bytes.split_off(here);
            Part { offset, len, bytes: core::mem::replace(&mut bytes, rest) }
        };
        self.pieces.into_iter().map(one).collect()
    }

    /// Whether a piece goes on where the run ends.
    fn takes(&self, piece: &Piece, max: u64) -> bool {
        match (self.at, piece.at) {
            (
                Spot::Object { component: a, stripe: b, offset, .. },
                Spot::Object { component: c, stripe: d, offset: next, .. },
            ) => {
                let fits = self.len.saturating_add(piece.len) <= max - offset % max;
                (a, b) == (c, d) && offset.checked_add(self.len) == Some(next) && fits
            }
            _ => false,
        }
    }
}

/// The runs of a range of a file, each of at most `max` bytes, and up to a multiple of `max` in its holder.
pub(super) fn runs(layout: &FileLayout, offset: u64, len: u64, max: u64) -> Vec<Run> {
    let max = max.max(1);
    let mut runs: Vec<Run> = Vec::new();
    for piece in layout.pieces(offset, len, max) {
        // The last run of its object, if there is one.
        let same = |run: &&mut Run| run.takes(&piece, max);
        let run = match runs.iter_mut().rev().find(same) {
            Some(run) => {
                run.len += piece.len;
                run
            }
            None => {
                runs.push(Run::of(piece));
                let Some(run) = runs.last_mut() else { continue };
                run
            }
        };
        run.pieces.push((piece.offset, piece.len));
    }
    runs
}

#[cfg(test)]
mod tests {
    use lustre_wire::fid::ObjectId;
    use proptest::prelude::*;

    use super::super::stripes::{Component, END, FileObject, Holder};
    use super::*;
    use crate::raid0::{Raid0, STRIPE_UNIT};

    fn striped(unit: u64, count: u32) -> FileLayout {
        let raid = Raid0::new(unit * STRIPE_UNIT, count).unwrap();
        let object = |n: u32| Some(FileObject { id: ObjectId::old(u64::from(n) + 1), ost: n });
        let holder = Holder::Objects { raid, objects: (0..count).map(object).collect() };
        FileLayout {
            components: vec![Component { id: 0, start: 0, end: END, holder }],
            ..FileLayout::default()
        }
    }

    #[test]
    fn rows_of_small_stripes_are_one_request_for_each_object() {
        let runs = runs(&striped(1, 4), 0, 1 << 20, 4 << 20);
        assert_eq!(runs.iter().map(|run| run.len).collect::<Vec<_>>(), [262_144; 4]);
        let starts: Vec<u64> = runs[1].pieces.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(starts, [1, 5, 9, 13].map(|n| n * STRIPE_UNIT));
    }

    #[test]
    fn runs_of_a_range_off_a_page_end_at_borders() {
        let mib = 1 << 20;
        let lens = |stripes| {
            let runs = runs(&striped(64, stripes), 100, 9 * mib, 4 * mib);
            runs.iter().map(|run| run.len).collect::<Vec<_>>()
        };
        assert_eq!(lens(1), [4 * mib - 100, 4 * mib, mib + 100]);
        assert_eq!(lens(2), [4 * mib - 100, 4 * mib, mib + 100]);
    }

    proptest! {
        #[test]
        fn runs_have_each_byte_once_and_are_whole_in_their_objects(
            unit in 1u64..4, count in 1u32..6, offset in 0u64..1_000_000, len in 1u64..2_000_000,
            max in 1u64..700_000,
        ) {
            let layout = striped(unit, count);
            let mut seen: Vec<(u64, u64)> = Vec::new();
            for run in runs(&layout, offset, len, max) {
                prop_assert!(run.len <= max.max(1));
                let Spot::Object { stripe, offset: mut inside, .. } = run.at else {
                    panic!("all bytes are in objects");
                };
                prop_assert_eq!(inside / max, (inside + run.len - 1) / max, "no border inside");
                let raid = Raid0::new(unit * STRIPE_UNIT, count).unwrap();
                for (at, len) in run.pieces {
                    prop_assert_eq!(raid.place(at), (stripe as u32, inside));
                    seen.push((at, len));
                    inside += len;
                }
            }
            seen.sort_unstable();
            let mut at = offset;
            for (start, len) in seen {
                prop_assert_eq!(start, at);
                at += len;
            }
            prop_assert_eq!(at, offset + len);
        }
    }
}
