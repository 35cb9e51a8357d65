//! Which changes of another target are over here, so that a copy of a question that comes late holds no name
//! again. Each message of the target says below which number none of its changes is under way; of the few
//! above that the numbers are kept. Nothing of it is stored: with each connection the target settles anew.

use std::collections::BTreeSet;

/// Changes are over in any order. One that is begun so far behind the oldest one under way waits for it, which
/// bounds what is kept.
const SPAN: u64 = 4096;

/// What is over of one target's changes.
#[derive(Debug)]
pub(super) struct Past {
    /// All up to this number.
    floor: u64,
    /// And these.
    over: BTreeSet<u64>,
}

impl Past {
    /// The target has settled: changes up to `floor` are to be prepared no more.
    pub(super) const fn settled(floor: u64) -> Self {
        Self { floor, over: BTreeSet::new() }
    }

    /// No change below `lowest` is under way. A message that comes late says less, and changes nothing.
    pub(super) fn rise(&mut self, lowest: u64) {
        let floor = lowest.saturating_sub(1);
        if floor > self.floor {
            self.floor = floor;
            self.over = self.over.split_off(&lowest);
        }
    }

    const fn is_near(&self, number: u64) -> bool {
        number > self.floor && number - self.floor <= SPAN
    }

    /// A change was made, dropped or refused.
    pub(super) fn end(&mut self, number: u64) {
        if self.is_near(number) {
            self.over.insert(number);
        }
    }

    /// Whether a change may be prepared.
    pub(super) fn admits(&self, number: u64) -> bool {
        self.is_near(number) && !self.over.contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_admitted_until_it_is_over() {
        let mut past = Past::settled(7);
        assert!(!past.admits(7) && past.admits(8) && past.admits(9));
        past.end(9);
        assert!(past.admits(8) && !past.admits(9) && past.admits(10));
        past.rise(10);
        assert_eq!((past.floor, past.over.len()), (9, 0));
        past.rise(8);
        assert!(!past.admits(9) && past.admits(10));
    }

    #[test]
    fn numbers_that_jump_are_not_kept() {
        let mut past = Past::settled(0);
        for number in [0, SPAN + 1, u64::MAX] {
            past.end(number);
            assert!(!past.admits(number), "{number}");
        }
        for number in 1..=SPAN {
            past.end(number);
        }
        assert_eq!(past.over.len() as u64, SPAN);
        past.rise(u64::MAX);
        assert!(past.over.is_empty() && past.admits(u64::MAX));
    }
}
