//! The slots of a service, and whose turn it is: regular requests and high-priority ones (P-113 …
//! P-115, P-167).
//!
//! Intake needs no slot here. Of `slots` + 1 one serves high-priority requests only, so that a service
//! whose slots are all taken by slow requests still takes what they may wait for.
//!
//! A client, which is a NID, takes no slot when it has as many as are free: one that floods the service
//! has half of the slots, two have a third each, and a request of any other client finds one free.

use std::collections::BTreeMap;

use lnet_types::{Instant, Nid};

use super::nrs::{Head, Next, Place};
use crate::table::ServedId;

/// High-priority requests in a row while regular ones wait and one of them is being served (P-115).
const ROW_MAX: u32 = 10;

/// The requests of one client that are being served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    regular: usize,
    high: usize,
}

impl Held {
    const fn of(&mut self, high: bool) -> &mut usize {
        if high { &mut self.high } else { &mut self.regular }
    }
}

#[derive(Debug)]
pub(crate) struct Heads {
    pub(crate) regular: Head,
    /// Of a service that has one.
    pub(crate) high: Option<Head>,
    slots: usize,
    /// Being served.
    busy: usize,
    /// High-priority ones among them.
    busy_high: usize,
    /// The same by client, for clients that have any.
    held: BTreeMap<Nid, Held>,
    /// High-priority ones that were taken since the last regular one.
    row: u32,
}

impl Heads {
    pub(crate) fn new(slots: usize, high: bool) -> Self {
        Self {
            regular: Head::new(),
            high: high.then(Head::new),
            slots,
            busy: 0,
            busy_high: 0,
            held: BTreeMap::new(),
            row: 0,
        }
    }

    /// Requests that are being served.
    pub(crate) const fn busy(&self) -> usize {
        self.busy
    }

    /// Requests that wait: regular ones, high-priority ones.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.regular.len(), self.high.as_ref().map_or(0, Head::len))
    }

    /// A request arrives, or moves to the other head.
    pub(crate) fn enqueue(&mut self, now: Instant, id: ServedId, from: Nid, high: bool) -> Place {
        match &mut self.high {
            Some(head) if high => head.enqueue(now, id, from),
            _ => self.regular.enqueue(now, id, from),
        }
    }

    /// Takes a request that waits out of its head.
    pub(crate) fn remove(&mut self, place: Place, high: bool) {
        let head = if high { self.high.as_mut() } else { Some(&mut self.regular) };
        if let Some(head) = head {
            head.remove(place);
        }
    }

    /// The next request, which takes a slot (P-115); whether it is a high-priority one.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(Next, bool)> {
        let Self { regular, high, slots, busy, busy_high, held, row } = self;
        let of = |from: Nid| held.get(&from).copied().unwrap_or_default();
        // The slot beyond is for high-priority requests; one of them being served is in it.
        let free = (*slots + (*busy_high).min(1)).saturating_sub(*busy);
        let free_high = (*slots + 1).saturating_sub(*busy);
        let may = |from: Nid| of(from).regular < free;
        let may_high = |from: Nid| of(from).high < free_high;
        let turn = *busy_high == 0 || *row < ROW_MAX || !regular.ready(now, &may);
        let first = high.as_mut().filter(|_| turn).and_then(|head| head.next(now, &may_high));
        let is_high = first.is_some();
        let next = first.or_else(|| regular.next(now, &may))?;
        *row = if is_high { *row + 1 } else { 0 };
        *busy += 1;
        *busy_high += usize::from(is_high);
        *held.entry(next.from).or_default().of(is_high) += 1;
        Some((next, is_high))
    }

    /// A request of this client has been served.
    pub(crate) fn release(&mut self, from: Nid, high: bool) {
        self.busy -= 1;
        self.busy_high -= usize::from(high);
        if let Some(held) = self.held.get_mut(&from) {
            *held.of(high) -= 1;
            if *held == Held::default() {
                self.held.remove(&from);
            }
        }
    }

    /// When the next of the requests that wait for a time may go.
    pub(crate) fn due(&self) -> Option<Instant> {
        let high = self.high.as_ref().and_then(Head::due);
        [self.regular.due(), high].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const NOW: Instant = Instant::from_secs(1);

    fn heads(slots: usize) -> Heads {
        Heads::new(slots, true)
    }

    fn client(n: u64) -> Nid {
        format!("10.0.{}.{}@tcp", n >> 8, n & 0xFF).parse().unwrap()
    }

    /// Each of another client.
    fn add(heads: &mut Heads, high: bool, ids: core::ops::Range<u64>) {
        for id in ids {
            heads.enqueue(NOW, ServedId::from(id), client(id), high);
        }
    }

    fn taken(heads: &mut Heads) -> Vec<(u64, bool)> {
        let all = core::iter::from_fn(|| heads.next(NOW));
        all.map(|(next, high)| (next.id.into(), high)).collect()
    }

    /// Requests of one client.
    fn flood(heads: &mut Heads, from: u64, high: bool, count: u64) {
        for id in 0..count {
            heads.enqueue(NOW, ServedId::from(1000 * from + id), client(from), high);
        }
    }

    #[test]
    fn clients_that_flood_a_service_leave_as_many_slots_as_each_of_them_has() {
        for (clients, each) in [(1, 32), (2, 21), (3, 16), (7, 8)] {
            let mut heads = heads(64);
            (1..=clients).for_each(|from| flood(&mut heads, from, false, 1000));
            let mut served: VecDeque<u64> = VecDeque::new();
            for _ in 0..200 {
                served.extend(taken(&mut heads).iter().map(|(id, _)| id / 1000));
                // The request that was taken first ends.
                heads.release(client(served.pop_front().unwrap()), false);
            }
            let of = |from| served.iter().filter(|client| **client == from).count();
            let shares: Vec<usize> = (1..=clients).map(of).collect();
            assert!(shares.iter().all(|share| share.abs_diff(each) <= 1), "{shares:?}");
            // Another client finds a slot at once, although thousands of requests came before.
            taken(&mut heads);
            heads.enqueue(NOW, ServedId::from(1), client(200), false);
            assert_eq!(taken(&mut heads), [(1, false)], "{clients}");
        }
    }

    #[test]
    fn cancels_of_a_client_find_the_slot_beyond_although_it_has_its_share() {
        let mut heads = heads(2);
        flood(&mut heads, 1, false, 10);
        assert_eq!(taken(&mut heads), [(1000, false)]);
        flood(&mut heads, 1, true, 10);
        assert_eq!(taken(&mut heads), [(1000, true)]);
        add(&mut heads, false, 7..8);
        assert_eq!(taken(&mut heads), [(7, false)], "another client");
        heads.release(client(1), true);
        assert_eq!(taken(&mut heads), [(1001, true)]);
    }

    #[test]
    fn one_slot_beyond_the_regular_ones_is_for_high_priority() {
        let mut heads = heads(2);
        add(&mut heads, false, 0..5);
        assert_eq!(taken(&mut heads), [(0, false), (1, false)]);
        add(&mut heads, true, 10..13);
        assert_eq!(taken(&mut heads), [(10, true)]);
        // The slot of a regular one that ended goes to a high-priority one first.
        heads.release(client(0), false);
        assert_eq!(taken(&mut heads), [(11, true)]);
        heads.release(client(10), true);
        heads.release(client(11), true);
        assert_eq!(taken(&mut heads), [(12, true), (2, false)]);
        assert_eq!((heads.busy(), heads.waiting()), (3, (2, 0)));
    }

    #[test]
    fn after_ten_high_priority_requests_in_a_row_a_regular_one_is_taken() {
        let mut heads = heads(1);
        add(&mut heads, false, 0..2);
        add(&mut heads, true, 10..40);
        let mut order = Vec::new();
        // Two slots; each request ends when the next one but one begins.
        for _ in 0..12 {
            order.extend(taken(&mut heads));
            let (id, high) = order[order.len() - 2];
            heads.release(client(id), high);
        }
        let regular: Vec<_> =
            order.iter().enumerate().filter(|(_, (_, high))| !high).map(|(n, _)| n).collect();
        assert_eq!(regular, [10], "{order:?}");
    }

    #[test]
    fn a_service_without_a_high_priority_head_has_its_slots_and_no_more() {
        let mut heads = Heads::new(2, false);
        add(&mut heads, true, 0..1);
        add(&mut heads, false, 1..4);
        assert_eq!(taken(&mut heads), [(0, false), (1, false)]);
    }
}
