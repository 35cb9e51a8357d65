//! The slots of a service, and whose turn it is: regular requests and high-priority ones (P-113 …
//! P-115, P-167).
//!
//! Intake needs no slot here. Of `slots` + 1 one serves high-priority requests only, so that a service
//! whose slots are all taken by slow requests still takes what they may wait for.

use lnet_types::{Instant, Nid};

use super::nrs::{Head, Place};
use crate::table::ServedId;

/// High-priority requests in a row while regular ones wait and one of them is being served (P-115).
const ROW_MAX: u32 = 10;

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
    pub(crate) fn next(&mut self, now: Instant) -> Option<(ServedId, bool)> {
        let regular_ready = self.regular.ready(now);
        let turn = self.busy_high == 0 || !regular_ready || self.row < ROW_MAX;
        if turn
            && self.busy <= self.slots
            && let Some(id) = self.high.as_mut().and_then(|head| head.next(now))
        {
            self.row += 1;
            self.busy += 1;
            self.busy_high += 1;
            return Some((id, true));
        }
        // The slot beyond is for high-priority requests; one of them being served is in it.
        if self.busy >= self.slots + self.busy_high.min(1) {
            return None;
        }
        let id = self.regular.next(now)?;
        self.row = 0;
        self.busy += 1;
        Some((id, false))
    }

    /// A request has been served.
    pub(crate) fn release(&mut self, high: bool) {
        self.busy -= 1;
        self.busy_high -= usize::from(high);
    }

    /// When the next of the requests that wait for a time may go.
    pub(crate) fn due(&self) -> Option<Instant> {
        let high = self.high.as_ref().and_then(Head::due);
        [self.regular.due(), high].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_secs(1);

    fn heads(slots: usize) -> Heads {
        Heads::new(slots, true)
    }

    fn add(heads: &mut Heads, high: bool, ids: core::ops::Range<u64>) {
        for id in ids {
            heads.enqueue(NOW, ServedId::from(id), Nid::LOOPBACK, high);
        }
    }

    fn taken(heads: &mut Heads) -> Vec<(u64, bool)> {
        core::iter::from_fn(|| heads.next(NOW)).map(|(id, high)| (id.into(), high)).collect()
    }

    #[test]
    fn one_slot_beyond_the_regular_ones_is_for_high_priority() {
        let mut heads = heads(2);
        add(&mut heads, false, 0..5);
        assert_eq!(taken(&mut heads), [(0, false), (1, false)]);
        add(&mut heads, true, 10..13);
        assert_eq!(taken(&mut heads), [(10, true)]);
        // The slot of a regular one that ended goes to a high-priority one first.
        heads.release(false);
        assert_eq!(taken(&mut heads), [(11, true)]);
        heads.release(true);
        heads.release(true);
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
            let (_, high) = order[order.len() - 2];
            heads.release(high);
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
