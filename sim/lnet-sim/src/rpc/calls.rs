//! Records by the numbers of calls. A client numbers the calls of one life of its node in sequence, so
//! each life has a list in which a number is a place: a run has millions of calls, and each is looked up
//! several times.

use std::collections::VecDeque;

use super::seen::CallNo;
use crate::directory::HostId;

/// The records of one life, from one of its numbers on.
#[derive(Debug)]
struct Life<T> {
    first: u64,
    records: VecDeque<Option<T>>,
}

impl<T> Default for Life<T> {
    fn default() -> Self {
        Self { first: 0, records: VecDeque::new() }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Calls<T> {
    /// By the numbers of nodes: the lives of each, with their numbers.
    nodes: Vec<Vec<(u64, Life<T>)>>,
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

impl<T> Calls<T> {
    /// The list of a life.
    fn life_mut(&mut self, life: u64) -> Option<&mut Life<T>> {
        let lives = self.nodes.get_mut(CallNo::node_of(life))?;
        // The last one is asked for most.
        lives.iter_mut().rev().find(|(number, _)| *number == life).map(|(_, life)| life)
    }

    pub(super) fn get_mut(&mut self, no: CallNo) -> Option<&mut T> {
        let (life, count) = no.split();
        let life = self.life_mut(life)?;
        let at = usize::try_from(count.checked_sub(life.first)?).ok()?;
        life.records.get_mut(at)?.as_mut()
    }

    /// Enters the record of a call; gives the one that was there.
    pub(super) fn insert(&mut self, no: CallNo, record: T) -> Option<T> {
        let (life, count) = no.split();
        let node = CallNo::node_of(life);
        if self.nodes.len() <= node {
            self.nodes.resize_with(node + 1, Vec::new);
        }
        let lives = self.nodes.get_mut(node)?;
        let at = lives.binary_search_by_key(&life, |(number, _)| *number).unwrap_or_else(|at| {
            lives.insert(at, (life, Life::default()));
            at
        });
        let Life { first, records } = &mut lives.get_mut(at)?.1;
        if records.is_empty() {
            *first = count;
        }
        while count < *first {
            records.push_front(None);
            *first -= 1;
        }
        let at = (count - *first) as usize;
        if records.len() <= at {
            records.resize_with(at + 1, || None);
        }
        records.get_mut(at)?.replace(record)
    }

    /// Takes a record out.
    pub(super) fn remove(&mut self, no: CallNo) -> Option<T> {
        let (life, count) = no.split();
        let Life { first, records } = self.life_mut(life)?;
        let at = usize::try_from(count.checked_sub(*first)?).ok()?;
        let record = records.get_mut(at)?.take();
        while records.front().is_some_and(Option::is_none) {
            records.pop_front();
            *first += 1;
        }
        record
    }

    /// All records, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CallNo, &T)> {
        self.nodes.iter().flatten().flat_map(|(life, Life { first, records })| {
            let numbered = (*first..).zip(records);
            numbered
                .filter_map(|(count, record)| Some((CallNo::of(*life, count), record.as_ref()?)))
        })
    }

    /// The records of all lives of a node.
    pub(super) fn of_node(&mut self, host: HostId) -> impl Iterator<Item = &mut T> {
        let lives = self.nodes.get_mut(host.0 as usize).into_iter().flatten();
        lives.flat_map(|(_, life)| life.records.iter_mut().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_by_number_until_they_are_taken_out() {
        let mut calls: Calls<u64> = Calls::default();
        let no = |node: u64, count: u64| CallNo(node << 36 | 1 << 28 | count);
        for (node, count) in [(0, 5), (0, 7), (0, 3), (2, 1), (2, 2), (1, 9)] {
            assert_eq!(calls.insert(no(node, count), count), None);
        }
        assert_eq!(calls.insert(no(2, 2), 22), Some(2));
        let all: Vec<u64> = calls.iter().map(|(_, record)| *record).collect();
        assert_eq!(all, [3, 5, 7, 9, 1, 22]);
        let numbers: Vec<CallNo> = calls.iter().map(|(no, _)| no).collect();
        assert!(numbers.into_iter().all(|no| calls.get_mut(no).is_some()));
        assert_eq!(calls.of_node(HostId(2)).map(|record| *record).collect::<Vec<_>>(), [1, 22]);
        assert_eq!((calls.remove(no(0, 3)), calls.remove(no(0, 3))), (Some(3), None));
        assert_eq!(calls.get_mut(no(0, 4)), None);
        assert_eq!(calls.get_mut(no(0, 5)), Some(&mut 5));
        assert_eq!((calls.remove(no(0, 5)), calls.remove(no(0, 7))), (Some(5), Some(7)));
        assert_eq!(calls.insert(no(0, 8), 8), None);
        assert_eq!(calls.get_mut(no(0, 8)), Some(&mut 8));
        assert_eq!(calls.get_mut(CallNo::UNKNOWN), None);
    }
}
