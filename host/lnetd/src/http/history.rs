//! Health of every interface over the last hour, and traffic of the node: a ring of slots for each,
//! of which a slot holds the worst health that was seen in it, so that a short dip stays visible.
//! Plain data: who looks, and when, is `mod.rs`.

use std::collections::{BTreeMap, VecDeque};

use lnet::NodeStats;
use lnet_types::Nid;
use serde::Serialize;

use crate::picture::Side;

/// Length of a slot, seconds.
pub(super) const SLOT_SECONDS: u64 = 30;
/// Slots that are kept: one hour.
pub(super) const SLOTS: usize = 120;
/// The most interfaces that are followed; each costs about a third of a KiB.
pub(super) const SERIES_MAX: usize = 65_536;

/// The last hour.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Number of the slot that is being filled.
    slot: Option<u64>,
    health: BTreeMap<(Side, Nid), Series>,
    traffic: VecDeque<Traffic>,
    last: Option<NodeStats>,
}

#[derive(Debug)]
struct Series {
    /// Worst health in each slot, newest last.
    worst: VecDeque<u16>,
    /// The slot of the newest.
    newest: u64,
}

/// What the node has moved in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Traffic {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) resends: u64,
}

impl History {
    /// What was seen `seconds` after some beginning; calls go forward in time.
    pub(super) fn add(&mut self, seconds: u64, healths: &[(Side, Nid, u32)], stats: &NodeStats) {
        let now = seconds / SLOT_SECONDS;
        let passed = self.slot.map_or(1, |slot| now.saturating_sub(slot));
        for _ in 0..passed.min(SLOTS as u64) {
            push(&mut self.traffic, Traffic::default());
        }
        self.slot = Some(now);
        if let (Some(last), Some(slot)) = (&self.last, self.traffic.back_mut()) {
            slot.count(last, stats);
        }
        self.last = Some(*stats);
        for (side, nid, health) in healths {
            let health = u16::try_from(*health).unwrap_or(u16::MAX);
            let room = self.health.len() < SERIES_MAX;
            match self.health.get_mut(&(*side, *nid)) {
                Some(series) => series.add(now, health),
                None if room => {
                    let series = Series { worst: VecDeque::from([health]), newest: now };
                    self.health.insert((*side, *nid), series);
                }
                None => {}
            }
        }
        if passed > 0 {
            // Those that have not been seen for an hour are gone.
            self.health.retain(|_, series| now - series.newest < SLOTS as u64);
        }
    }

    /// The node is not there: what was counted before begins anew.
    pub(super) fn pause(&mut self) {
        self.last = None;
    }

    /// Worst health of an interface in each slot, oldest first; `None` where it was not seen.
    pub(super) fn health(&self, side: Side, nid: Nid) -> Vec<Option<u16>> {
        let (Some(now), Some(series)) = (self.slot, self.health.get(&(side, nid))) else {
            return Vec::new();
        };
        let unseen = usize::try_from(now - series.newest).unwrap_or(usize::MAX).min(SLOTS);
        let seen = series.worst.iter().copied().map(|h| (h != UNSEEN).then_some(h));
        let mut all: Vec<_> = seen.chain(core::iter::repeat_n(None, unseen)).collect();
        all.drain(..all.len().saturating_sub(SLOTS));
        all
    }

    /// What the node has moved in each slot, oldest first.
    pub(super) fn traffic(&self) -> impl Iterator<Item = &Traffic> {
        self.traffic.iter()
    }
}

/// The value of a slot in which an interface was not there.
const UNSEEN: u16 = u16::MAX;

impl Series {
    fn add(&mut self, slot: u64, health: u16) {
        let passed = slot.saturating_sub(self.newest);
        for _ in 1..passed.min(SLOTS as u64) {
            push(&mut self.worst, UNSEEN);
        }
        if passed > 0 {
            push(&mut self.worst, health);
            self.newest = slot;
        } else if let Some(worst) = self.worst.back_mut() {
            *worst = health.min(*worst);
        }
    }
}

impl Traffic {
    fn count(&mut self, before: &NodeStats, now: &NodeStats) {
        // Counters wrap, and go back to zero by command: that counts as no traffic.
        let since = |before: u32, now: u32| {
            let moved = now.wrapping_sub(before);
            if moved > u32::MAX / 2 { 0 } else { u64::from(moved) }
        };
        self.sent += since(before.send_count, now.send_count);
        self.received += since(before.recv_count, now.recv_count);
        self.resends += since(before.resend_count, now.resend_count);
        self.sent_bytes += now.send_length.saturating_sub(before.send_length);
        self.received_bytes += now.recv_length.saturating_sub(before.recv_length);
    }
}

fn push<T>(ring: &mut VecDeque<T>, value: T) {
    if ring.len() == SLOTS {
        ring.pop_front();
    }
    ring.push_back(value);
}

#[cfg(test)]
mod tests {
    use lnet_types::Net;

    use super::*;

    fn nid(n: u32) -> Nid {
        Nid::new(Net::TCP, n)
    }

    fn stats(sent: u32) -> NodeStats {
        NodeStats { send_count: sent, ..NodeStats::default() }
    }

    #[test]
    fn a_slot_keeps_the_worst_that_was_seen_in_it() {
        let mut history = History::default();
        for (second, health) in [(0, 1000), (1, 900), (2, 1000), (29, 1000), (30, 950)] {
            history.add(second, &[(Side::Peer, nid(1), health)], &stats(0));
        }
        assert_eq!(history.health(Side::Peer, nid(1)), [Some(900), Some(950)]);
        assert_eq!(history.health(Side::Peer, nid(2)), []);
    }

    #[test]
    fn an_absent_interface_has_a_gap_in_the_history_and_goes_after_an_hour() {
        let mut history = History::default();
        history.add(0, &[(Side::Peer, nid(1), 1000), (Side::Peer, nid(2), 1000)], &stats(0));
        history.add(90, &[(Side::Peer, nid(1), 800)], &stats(0));
        assert_eq!(history.health(Side::Peer, nid(1)), [Some(1000), None, None, Some(800)]);
        assert_eq!(history.health(Side::Peer, nid(2)), [Some(1000), None, None, None]);
        history.add(3600, &[(Side::Peer, nid(1), 1000)], &stats(0));
        assert_eq!(history.health(Side::Peer, nid(2)), []);
        assert_eq!(history.health(Side::Peer, nid(1)).len(), SLOTS);
        history.add(1_000_000, &[(Side::Peer, nid(1), 1000)], &stats(0));
        assert_eq!(history.health(Side::Peer, nid(1)).iter().flatten().count(), 1);
    }

    #[test]
    fn traffic_is_kept_by_slot_and_survives_wrapping_and_zeroing() {
        let mut history = History::default();
        let mut add = |second, sent| history.add(second, &[], &stats(sent));
        add(0, u32::MAX - 1);
        add(10, 3);
        add(40, 10);
        add(41, 0);
        add(42, 5);
        let sent: Vec<u64> = history.traffic().map(|t| t.sent).collect();
        assert_eq!(sent, [5, 12]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = History::default();
        let all: Vec<_> = (0..SERIES_MAX as u32 + 10).map(|n| (Side::Peer, nid(n), 1000)).collect();
        history.add(0, &all, &stats(0));
        assert_eq!(history.health.len(), SERIES_MAX);
    }
}
