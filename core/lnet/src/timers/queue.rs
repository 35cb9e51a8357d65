//! The deadlines of one kind of timer: a binary heap that tracks the place of each subject in it,
//! so that a deadline is changed or removed without a search.

use std::collections::BTreeMap;

use lnet_types::Instant;

/// No place in the heap.
const NOWHERE: u32 = u32::MAX;

/// Where in the heap each subject stands.
#[derive(Debug)]
enum Places {
    /// Subjects are places in a table: by the upper half of their key. A place that has a new
    /// occupant has lost the old one, and the old one's deadline with it.
    Slots(Vec<u32>),
    /// Subjects are numbers that never come again.
    Numbers(BTreeMap<u64, u32>),
}

/// Deadlines by subject, the earliest at hand. Equal deadlines are in the order of their keys.
#[derive(Debug)]
pub(super) struct Queue {
    /// Each deadline is not after those at twice its place and one or two more.
    heap: Vec<(Instant, u64)>,
    places: Places,
}

impl Queue {
    pub(super) const fn new(slots: bool) -> Self {
        let places =
            if slots { Places::Slots(Vec::new()) } else { Places::Numbers(BTreeMap::new()) };
        Self { heap: Vec::new(), places }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<(Instant, u64)> {
        self.heap.first().copied()
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Instant, u64)> + '_ {
        self.heap.iter().copied()
    }

    /// The deadline of a subject.
    #[inline]
    pub(super) fn at(&self, key: u64) -> Option<Instant> {
        let &(at, occupant) = self.heap.get(self.place(key)?)?;
        (occupant == key).then_some(at)
    }

    /// Sets the deadline of a subject, which had one or not.
    pub(super) fn set(&mut self, at: Instant, key: u64) {
        let place = self.place(key).filter(|place| *place < self.heap.len());
        let place = place.unwrap_or_else(|| {
            self.heap.push((at, key));
            self.heap.len() - 1
        });
        self.heap[place] = (at, key);
        self.settle(place);
    }

    /// Removes the deadline of a subject: what it was.
    pub(super) fn stop(&mut self, key: u64) -> Option<Instant> {
        let place = self.place(key)?;
        let &(at, occupant) = self.heap.get(place)?;
        if occupant != key {
            return None;
        }
        self.note(key, NOWHERE);
        let last = self.heap.pop()?;
        if place < self.heap.len() {
            self.heap[place] = last;
            self.settle(place);
        }
        Some(at)
    }

    /// Where the deadline of a subject, or of a former occupant of its place, stands.
    #[inline]
    fn place(&self, key: u64) -> Option<usize> {
        let place = match &self.places {
            Places::Slots(slots) => *slots.get(slot(key))?,
            Places::Numbers(numbers) => *numbers.get(&key)?,
        };
        (place != NOWHERE).then_some(place as usize)
    }

    /// Notes where the deadline of a subject stands.
    fn note(&mut self, key: u64, place: u32) {
        match &mut self.places {
            Places::Slots(slots) => {
                let slot = slot(key);
                if slot >= slots.len() {
                    slots.resize(slot + 1, NOWHERE);
                }
                slots[slot] = place;
            }
            Places::Numbers(numbers) if place == NOWHERE => drop(numbers.remove(&key)),
            Places::Numbers(numbers) => drop(numbers.insert(key, place)),
        }
    }

    /// Moves what stands at `place` to where it belongs.
    fn settle(&mut self, mut place: usize) {
        let moved = self.heap[place];
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above] <= moved {
                break;
            }
            self.put(place, self.heap[above]);
            place = above;
        }
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let Some(&first) = self.heap.get(left) else { break };
            let (below, first) = match self.heap.get(right) {
                Some(&second) if second < first => (right, second),
                _ => (left, first),
            };
            if moved <= first {
                break;
            }
            self.put(place, first);
            place = below;
        }
        self.put(place, moved);
    }

    fn put(&mut self, place: usize, entry: (Instant, u64)) {
        self.heap[place] = entry;
        self.note(entry.1, place as u32);
    }

    /// Fails unless the heap is one, and each place is noted.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (place, entry) in self.heap.iter().enumerate() {
            assert_eq!(self.place(entry.1), Some(place), "of {entry:?}");
            assert!(place == 0 || self.heap[(place - 1) / 2] < *entry, "{:?}", self.heap);
        }
        let noted = match &self.places {
            Places::Slots(slots) => slots.iter().filter(|place| **place != NOWHERE).count(),
            Places::Numbers(numbers) => numbers.len(),
        };
        assert_eq!(noted, self.heap.len());
    }
}

/// The place in its table that a subject has.
const fn slot(key: u64) -> usize {
    (key >> 32) as usize
}
