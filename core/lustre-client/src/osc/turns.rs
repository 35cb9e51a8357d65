//! Which object is written back next: first one whose lock another client wants, since the target drops a client
//! that keeps it waiting (L-44, L-57), then one that an operation waits for; among those in turns, so that a
//! program that writes to one object without end holds up no other. Pure.

use std::collections::BTreeMap;

use super::locks::Key;

/// Who waits for data of an object. Those that come first go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// Another client.
    CalledBack,
    /// An operation of this one.
    Awaited,
    /// No one: it has been dirty for long, or there is too much.
    Kept,
}

/// A place in the order.
pub(super) type Turn = (Urgency, u64);

/// Objects with data that is to be written back, each once.
#[derive(Debug, Default)]
pub(super) struct Turns {
    order: BTreeMap<Turn, Key>,
    of: BTreeMap<Key, Turn>,
    last: u64,
}

impl Turns {
    /// An object joins at the end of those that are as urgent, unless it has a place that is no worse.
    pub(super) fn insert(&mut self, key: Key, urgency: Urgency) {
        if self.of.get(&key).is_some_and(|(has, _)| *has <= urgency) {
            return;
        }
        self.remove(key);
        self.last += 1;
        let turn = (urgency, self.last);
        self.order.insert(turn, key);
        self.of.insert(key, turn);
    }

    pub(super) fn remove(&mut self, key: Key) {
        if let Some(turn) = self.of.remove(&key) {
            self.order.remove(&turn);
        }
    }

    /// The first object, or the one that follows a turn.
    pub(super) fn after(&self, turn: Option<Turn>) -> Option<(Turn, Key)> {
        use core::ops::Bound::{Excluded, Unbounded};
        let from = turn.map_or(Unbounded, Excluded);
        self.order.range((from, Unbounded)).next().map(|(turn, key)| (*turn, *key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(turns: &Turns) -> Vec<u64> {
        let first = turns.after(None);
        let all = std::iter::successors(first, |(turn, _)| turns.after(Some(*turn)));
        all.map(|(_, key)| key[0]).collect()
    }

    #[test]
    fn l44_what_another_client_waits_for_goes_first_and_the_others_in_turns() {
        let mut turns = Turns::default();
        for (key, urgency) in [
            (1, Urgency::Kept),
            (2, Urgency::Awaited),
            (3, Urgency::Kept),
            (4, Urgency::CalledBack),
            (1, Urgency::Kept),
        ] {
            turns.insert([key; 4], urgency);
        }
        assert_eq!(order(&turns), [4, 2, 1, 3]);
        // One that has had its turn, and has more.
        turns.remove([1; 4]);
        turns.insert([1; 4], Urgency::Kept);
        assert_eq!(order(&turns), [4, 2, 3, 1]);
        turns.insert([1; 4], Urgency::CalledBack);
        turns.insert([4; 4], Urgency::Kept);
        assert_eq!(order(&turns), [4, 1, 2, 3], "no object loses its place to a worse one");
    }
}
