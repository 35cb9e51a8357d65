//! Where an object has bytes: ranges of pages that were written, so that holes take no blocks.

use super::request::PAGE;

/// Most ranges that are kept apart: the smallest holes between more of them count as written.
pub(crate) const RANGES_MAX: usize = 16;

/// Ranges of bytes at borders of pages, ascending and apart; behind them there are empty ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents([(u64, u64); RANGES_MAX]);

impl Extents {
    /// Those of an object of this size without holes.
    pub(crate) fn whole(size: u64) -> Self {
        let mut all = Self::default();
        all.add(0, size);
        all
    }

    /// The ranges: their first byte, and the one behind their last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().copied().filter(|(from, to)| from < to)
    }

    /// Takes a range in, whose end is not near that of numbers.
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let (mut from, mut to) = (from - from % PAGE, to.next_multiple_of(PAGE));
        let mut all: Vec<(u64, u64)> = Vec::with_capacity(RANGES_MAX + 1);
        for (start, end) in self.iter() {
            if end < from || to < start {
                all.push((start, end));
            } else {
                (from, to) = (from.min(start), to.max(end));
            }
        }
        all.push((from, to));
        all.sort_unstable();
        if all.len() > RANGES_MAX {
            let hole = |pair: &[(u64, u64)]| match pair {
                [(_, end), (start, _)] => start.saturating_sub(*end),
                _ => u64::MAX,
            };
            let holes = all.windows(2).map(hole).enumerate();
            if let Some((place, _)) = holes.min_by_key(|(_, len)| *len) {
                let (_, end) = all.remove(place + 1);
                all.iter_mut().skip(place).take(1).for_each(|range| range.1 = end);
            }
        }
        *self = Self::default();
        self.0.iter_mut().zip(all).for_each(|(place, range)| *place = range);
    }

    /// What lies at and behind `size` is gone.
    pub(crate) fn cut(&mut self, size: u64) {
        let end = size.next_multiple_of(PAGE);
        for range in &mut self.0 {
            *range = if range.0 < end { (range.0, range.1.min(end)) } else { (0, 0) };
        }
    }

    /// Blocks of 512 bytes.
    pub(crate) fn blocks(&self) -> u64 {
        self.iter().map(|(from, to)| (to - from) / 512).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pages of writes and cuts, and what is left of them, page by page.
    fn played(steps: &[(bool, u64, u64)]) -> (Extents, Vec<bool>) {
        let (mut extents, mut pages) = (Extents::default(), vec![false; 64]);
        for (cuts, from, len) in steps.iter().copied() {
            if cuts {
                extents.cut(from * PAGE);
                pages.iter_mut().skip(from as usize).for_each(|page| *page = false);
            } else {
                extents.add(from * PAGE + 1, (from + len) * PAGE);
                let written = pages.iter_mut().skip(from as usize).take(len as usize);
                written.for_each(|page| *page = true);
            }
        }
        (extents, pages)
    }

    proptest! {
        #[test]
        fn blocks_are_those_of_pages_that_were_written(
            steps in proptest::collection::vec((any::<bool>(), 0u64..56, 1u64..8), 0..12),
        ) {
            let (extents, pages) = played(&steps);
            let written = pages.iter().filter(|page| **page).count() as u64;
            prop_assert_eq!(extents.blocks(), written * PAGE / 512);
            let ends: Vec<u64> = extents.iter().flat_map(|(from, to)| [from, to]).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", ends);
        }
    }

    #[test]
    fn smallest_hole_counts_as_written_when_there_are_too_many() {
        let mut extents = Extents::default();
        for n in 0..=RANGES_MAX as u64 {
            let from = if n == 5 { 4 * 16 + 2 } else { n * 16 };
            extents.add(from * PAGE, from * PAGE + 1);
        }
        assert_eq!(extents.iter().count(), RANGES_MAX);
        assert_eq!(extents.blocks(), (RANGES_MAX as u64 + 2) * 8);
        assert_eq!(Extents::whole(100_000).blocks(), 200);
    }
}
