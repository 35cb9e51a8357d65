//! The slots of a service, and whose turn it is: regular requests and high-priority ones (P-113 …
//! P-115, P-167).
//!
//! Intake needs no slot here. Of `slots` + 1 one serves high-priority requests only, so that a service
//! whose slots are all taken by slow requests still takes what they may wait for.
//!
//! A client, which is a NID, takes no slot when it has as many as are free: of two clients one that floods
//! the service has half of the slots, two have a third each, and a request of any other client finds one
//! free. A client beside which no other has been seen of late has all slots, as free ones would be of no
//! use; the next slot that is free again is the first other client's.

use core::time::Duration;

use lnet_types::{Instant, Nid};

use super::by_node::ByNode;
use super::nrs::{Head, Next, Place};
use crate::table::ServedId;

/// High-priority requests in a row while regular ones wait and one of them is being served (P-115).
const ROW_MAX: u32 = 10;

/// A client is seen of late while it has a request here, and for so long after one.
const LATELY: Duration = Duration::from_secs(10);

/// The two clients that were seen last. Beside whichever client, the last other one is among them.
#[derive(Debug, Default)]
struct Seen {
    last: Option<(Nid, Instant)>,
    other: Option<(Nid, Instant)>,
}

impl Seen {
    fn note(&mut self, now: Instant, from: Nid) {
        let before = self.last.replace((from, now));
        if let Some(before) = before.filter(|(nid, _)| *nid != from) {
            self.other = Some(before);
        }
    }

    /// Whether another client than this one was seen of late.
    fn beside(&self, now: Instant, from: Nid) -> bool {
        let lately = |(nid, at): (Nid, Instant)| nid != from && now.saturating_since(at) < LATELY;
        [self.last, self.other].into_iter().flatten().any(lately)
    }
}

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
    held: ByNode<Held>,
    seen: Seen,
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
            held: ByNode::default(),
            seen: Seen::default(),
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
        self.seen.note(now, from);
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

    /// Slots for regular requests that are free, and for high-priority ones.
    const fn free(&self) -> (usize, usize) {
        // The slot beyond is for high-priority requests; one of them being served is in it.
        let beyond = if self.busy_high > 0 { 1 } else { 0 };
        let free = (self.slots + beyond).saturating_sub(self.busy);
        (free, (self.slots + 1).saturating_sub(self.busy))
    }

    /// Whether a client may have one of so many free slots (P-115).
    fn may(&self, now: Instant, from: Nid, free: usize, high: bool) -> bool {
        let mut its = self.held.get(from);
        let own = usize::from(its != Held::default());
        // No other client has a slot, or may want one soon.
        let alone = || self.held.len() == own && !self.seen.beside(now, from);
        free > 0 && (*its.of(high) < free || alone())
    }

    /// Gives a client a slot.
    fn grant(&mut self, now: Instant, from: Nid, high: bool) {
        self.row = if high { self.row + 1 } else { 0 };
        self.busy += 1;
        self.busy_high += usize::from(high);
        self.held.change(from, |held| *held.of(high) += 1);
        self.seen.note(now, from);
    }

    /// A request arrives: `true` if it takes a slot now, as none waits that could go before it. It is
    /// the one that [`Heads::next`] would give if it waited, which most need not.
    pub(crate) fn admit(&mut self, now: Instant, from: Nid, high: bool) -> bool {
        let (free, free_high) = self.free();
        let open = self.regular.is_open() && self.high.as_ref().is_none_or(Head::is_open);
        let free = if high { free_high } else { free };
        let admits = open && self.may(now, from, free, high);
        if admits {
            self.grant(now, from, high);
        }
        admits
    }

    /// The next request, which takes a slot (P-115); whether it is a high-priority one.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(Next, bool)> {
        if self.waiting() == (0, 0) {
            return None;
        }
        let (free, free_high) = self.free();
        // Without a free slot no client may have one: those that wait, thousands of them when all
        // connect at once, are not looked at. With one, only clients that have slots are passed over.
        let first = |head: &Head, free, high| {
            let may = |from| self.may(now, from, free, high);
            (free > 0).then(|| head.first(now, &may)).flatten()
        };
        let regular = first(&self.regular, free, false);
        let high = self.high.as_ref();
        let turn = self.busy_high == 0 || self.row < ROW_MAX || regular.is_none();
        let high = high.filter(|_| turn).and_then(|head| first(head, free_high, true));
        let next = match (high, &mut self.high) {
            (Some(place), Some(head)) => head.take(place)?,
            _ => self.regular.take(regular?)?,
        };
        self.grant(now, next.from, high.is_some());
        Some((next, high.is_some()))
    }

    /// A request of this client has been served.
    pub(crate) fn release(&mut self, from: Nid, high: bool) {
        self.busy -= 1;
        self.busy_high -= usize::from(high);
        self.held.change(from, |held| *held.of(high) = held.of(high).saturating_sub(1));
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
    use proptest::prelude::*;

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
        for (clients, each) in [(2, 21), (3, 16), (7, 8)] {
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
    fn a_client_that_has_all_slots_leaves_half_of_them_when_another_is_seen() {
        let mut heads = heads(64);
        flood(&mut heads, 1, false, 1000);
        assert_eq!(taken(&mut heads).len(), 64, "no other client");
        heads.enqueue(NOW, ServedId::from(9), client(2), false);
        assert_eq!(taken(&mut heads), [], "no slot is free");
        heads.release(client(1), false);
        assert_eq!(taken(&mut heads), [(9, false)], "not the flood, which came first");
        heads.release(client(2), false);
        // The flood takes no slot until it has as many as are free.
        for _ in 0..32 {
            assert_eq!(taken(&mut heads), []);
            heads.release(client(1), false);
        }
        assert_eq!(taken(&mut heads).len(), 1);
        // The other one has not come again: all slots are taken.
        let later = NOW + LATELY;
        assert_eq!(core::iter::from_fn(|| heads.next(later)).count(), 32);
        assert_eq!(heads.busy(), 64);
    }

    proptest! {
        #[test]
        fn one_client_has_all_slots_and_several_have_shares_alike(
            slots in 1usize..40,
            clients in 1u64..6,
            ends in proptest::collection::vec(any::<proptest::sample::Index>(), 1..200),
        ) {
            let mut heads = heads(slots);
            (1..=clients).for_each(|from| flood(&mut heads, from, false, 1000));
            let mut served: VecDeque<u64> = VecDeque::new();
            let shares = |heads: &mut Heads, served: &mut VecDeque<u64>| {
                served.extend(taken(heads).iter().map(|(id, _)| id / 1000));
                let of = |from| served.iter().filter(|client| **client == from).count();
                (1..=clients).map(of).collect::<Vec<usize>>()
            };
            for end in ends {
                let shares = shares(&mut heads, &mut served);
                prop_assert!(served.len() <= slots);
                let free = slots - served.len();
                if clients == 1 {
                    prop_assert_eq!(free, 0);
                } else {
                    // A client that has less than is free would have taken one more.
                    prop_assert!(shares.iter().all(|share| *share >= free), "{shares:?}");
                }
                if let Some(from) = served.remove(end.index(served.len())) {
                    heads.release(client(from), false);
                }
            }
            // Whatever the shares were: requests that take as long as each other make them alike.
            for _ in 0..4 * slots {
                shares(&mut heads, &mut served);
                if let Some(from) = served.pop_front() {
                    heads.release(client(from), false);
                }
            }
            let shares = shares(&mut heads, &mut served);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{shares:?}");
        }

        #[test]
        fn the_slots_that_are_free_again_are_other_clients(
            slots in 2usize..40,
            others in 1usize..6,
        ) {
            let mut heads = heads(slots);
            flood(&mut heads, 1, false, 1000);
            prop_assert_eq!(taken(&mut heads).len(), slots);
            let others = 2..2 + others.min(slots - 1) as u64;
            others.clone().for_each(|other| flood(&mut heads, other, false, 1));
            for other in others {
                heads.release(client(1), false);
                prop_assert_eq!(taken(&mut heads), [(1000 * other, false)]);
            }
        }
    }

    #[test]
    fn cancels_of_a_client_find_the_slot_beyond_although_it_has_its_share() {
        let mut heads = heads(2);
        heads.seen.note(NOW, client(7));
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
