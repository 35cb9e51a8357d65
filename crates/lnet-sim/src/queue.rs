//! What will happen, in order of time and, at the same time, in the order in which it was decided.
//! That order is the only one there is: nothing in a world depends on addresses, hashes or threads.

use core::cmp::Ordering;
use std::collections::BinaryHeap;

use lnet_types::Instant;

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at: Instant,
    seq: u64,
    slot: u32,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives its greatest first: the earliest.
        (other.at, other.seq).cmp(&(self.at, self.seq))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Events to come. Events themselves stay in place while their small entries are sorted.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Entry>,
    slots: Vec<Option<E>>,
    free: Vec<u32>,
    seq: u64,
}

impl<E> Queue<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), seq: 0 }
    }

    pub(crate) fn push(&mut self, at: Instant, event: E) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(event);
                slot
            }
            None => {
                self.slots.push(Some(event));
                self.slots.len() as u32 - 1
            }
        };
        self.seq += 1;
        self.heap.push(Entry { at, seq: self.seq, slot });
    }

    /// When the next one is.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|e| e.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, E)> {
        let Entry { at, slot, .. } = self.heap.pop()?;
        let event = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some((at, event))
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_their_making() {
        let mut q = Queue::new();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            q.push(Instant(at), what);
        }
        let all: String = core::iter::from_fn(|| q.pop()).map(|(_, e)| e).collect();
        assert_eq!((all.as_str(), q.len()), ("abcd", 0));
    }
}
