//! What will happen, in order of time and, at the same time, in the order in which it was decided.
//! That order is the only one there is: nothing in a world depends on addresses, hashes or threads.
//!
//! Most of what is decided is near, and later than what was decided before it: messages on networks
//! of one latency each. Such events stand in a few *lanes*, each in order already; what fits nowhere
//! goes to a heap.

use core::cmp::Ordering;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use lnet_types::Instant;

/// Networks of different latency that are served without the heap.
const LANES: usize = 4;
/// What is further away goes to the heap: it would keep a lane from nearer events.
const NEAR: Duration = Duration::from_millis(2);

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

/// Events to come. In the heap, events themselves stay in place while their small entries are sorted.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    lanes: [VecDeque<(Instant, u64, E)>; LANES],
    heap: BinaryHeap<Entry>,
    slots: Vec<Option<E>>,
    free: Vec<u32>,
    seq: u64,
    /// The time of the event that was last given.
    now: Instant,
}

impl<E> Queue<E> {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Default::default(),
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            seq: 0,
            now: Instant::ZERO,
        }
    }

    pub(crate) fn push(&mut self, at: Instant, event: E) {
        self.seq += 1;
        match self.lane_for(at) {
            Some(lane) => self.lanes[lane].push_back((at, self.seq, event)),
            None => self.push_far(at, event),
        }
    }

    /// The lane that ends closest before `at`, or one that is empty.
    fn lane_for(&self, at: Instant) -> Option<usize> {
        if at > self.now + NEAR {
            return None;
        }
        let mut best: Option<(usize, Instant)> = None;
        let mut empty = None;
        for (n, lane) in self.lanes.iter().enumerate() {
            match lane.back() {
                None => empty = empty.or(Some(n)),
                Some(&(end, ..)) if end <= at && best.is_none_or(|(_, b)| end > b) => {
                    best = Some((n, end));
                }
                Some(_) => {}
            }
        }
        best.map(|(n, _)| n).or(empty)
    }

    fn push_far(&mut self, at: Instant, event: E) {
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
        self.heap.push(Entry { at, seq: self.seq, slot });
    }

    /// The next event, if it is not later than `end`.
    pub(crate) fn pop_until(&mut self, end: Instant) -> Option<(Instant, E)> {
        let mut first = self.heap.peek().map(|e| (e.at, e.seq, None));
        for (n, lane) in self.lanes.iter().enumerate() {
            if let Some(&(at, seq, _)) = lane.front()
                && first.is_none_or(|f| (at, seq) < (f.0, f.1))
            {
                first = Some((at, seq, Some(n)));
            }
        }
        let (at, _, lane) = first.filter(|f| f.0 <= end)?;
        self.now = at;
        if let Some(n) = lane {
            return self.lanes[n].pop_front().map(|(at, _, event)| (at, event));
        }
        let Entry { at, slot, .. } = self.heap.pop()?;
        let event = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some((at, event))
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len() + self.lanes.iter().map(VecDeque::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::Prng;

    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_their_making() {
        let mut q = Queue::new();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            q.push(Instant(at), what);
        }
        assert_eq!(q.pop_until(Instant(0)), None);
        let all: String = core::iter::from_fn(|| q.pop_until(Instant(9))).map(|(_, e)| e).collect();
        assert_eq!((all.as_str(), q.len()), ("abcd", 0));
    }

    #[test]
    fn the_order_is_that_of_a_sorted_list_whatever_the_lanes_hold() {
        let mut rng = Prng::new(77);
        let mut q = Queue::new();
        let mut all: Vec<(Instant, u64)> = Vec::new();
        let (mut now, mut made) = (Instant::ZERO, 0);
        let mut given = Vec::new();
        for _ in 0..20_000 {
            if rng.below(3) > 0 || q.len() == 0 {
                // Two networks, jitter, deadlines, and what is due at once.
                let after = match rng.below(5) {
                    0 => 20_000,
                    1 => 50_000,
                    2 => rng.below(100_000),
                    3 => rng.below(5_000_000_000),
                    _ => 0,
                };
                made += 1;
                let at = Instant(now.0 + after);
                q.push(at, made);
                all.push((at, made));
            } else {
                let (at, event) = q.pop_until(Instant::FAR_FUTURE).unwrap();
                now = at;
                given.push((at, event));
            }
        }
        given.extend(core::iter::from_fn(|| q.pop_until(Instant::FAR_FUTURE)));
        all.sort_unstable();
        assert_eq!(given, all);
    }
}
