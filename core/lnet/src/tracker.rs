//! Response tracking (behaviour.md 5.9): until when an ACK or a REPLY is waited for. What follows when it
//! does not come is in `unlink.rs`.

use core::time::Duration;

use lnet_types::{Instant, MdId};

use crate::portal::md::Tracker;
use crate::portal::owner::Owner;
use crate::timers::{Timer, TimerKind};
use crate::{Event, Node};

impl Node {
    /// A response to an operation on `md` is expected (H-60, H-61). Its time begins when a driver
    /// has taken the request (DEC-10), in the kernel's scheme with the call.
    pub(crate) fn track(&mut self, now: Instant, md: MdId, limit: Duration) {
        let begins = self.tunables.conduct.times_response_from_call;
        let Some(d) = self.portals.mds.get_mut(md) else { return };
        let tracker = Tracker {
            limit,
            started: now,
            awaited: d.tracker.as_ref().map_or(0, |t| t.awaited) + 1,
            next_hop: None,
            target: None,
            written: None,
        };
        match d.tracker.replace(tracker) {
            Some(old) => {
                self.timers.stop(Timer::Response(md));
                if let Some(written) = old.written {
                    self.let_go(written);
                }
            }
            None => self.counts.tracker_made(),
        }
        if begins {
            self.timers.set(Timer::Response(md), now + limit);
        }
    }

    /// A driver has taken the request of `md`, for the first time or again: the time of its response
    /// begins (HL-lnt-105).
    pub(crate) fn handed_over(&mut self, now: Instant, md: MdId) {
        if self.tunables.conduct.times_response_from_call {
            return;
        }
        let Some(t) = self.portals.mds.get(md).and_then(|d| d.tracker.as_ref()) else { return };
        self.timers.set(Timer::Response(md), now + t.limit);
    }

    /// An answer to an operation on `md` has come, or will not come. Whether another one is awaited. A
    /// descriptor without a threshold is not given up for one that is lost, as on kernel nodes (H-67).
    pub(crate) fn awaits_less(&mut self, md: MdId) -> bool {
        let Some(md) = self.portals.mds.get_mut(md) else { return false };
        let Some(t) = &mut md.tracker else { return false };
        t.awaited = t.awaited.saturating_sub(1);
        t.awaited > 0 && md.threshold.is_some()
    }

    /// A request has failed for good, and its owner leaves the descriptor as it is: it is taken
    /// back in the time of a response. Health is already charged for the failure.
    pub(crate) fn request_failed(&mut self, now: Instant, md: MdId) {
        if self.tunables.conduct.times_response_from_call {
            return;
        }
        let Some(t) = self.portals.mds.get_mut(md).and_then(|d| d.tracker.as_mut()) else { return };
        t.next_hop = None;
        if !self.timers.is_set(Timer::Response(md)) {
            self.handed_over(now, md);
        }
    }

    /// Stops waiting.
    pub(crate) fn untrack(&mut self, md: MdId) -> Option<Tracker> {
        let t = self.portals.mds.get_mut(md).and_then(|d| d.tracker.take())?;
        self.timers.stop(Timer::Response(md));
        self.counts.tracker_gone();
        if let Some(written) = t.written {
            self.let_go(written);
        }
        Some(t)
    }

    /// H-63: the kernel looks for overdue responses twice per time-out, from its start on. The time
    /// of a scan is fixed when the one before is done.
    pub(crate) fn plan_scan(&mut self, now: Instant) {
        let planned = self.timers.gate_of(TimerKind::Response);
        if !self.tunables.conduct.scans_responses {
            if planned > Instant::ZERO {
                self.timers.gate(TimerKind::Response, Instant::ZERO);
            }
        } else if planned <= now {
            let period = Duration::from_secs((self.tunables.transaction_timeout as u64 / 2).max(1));
            let from = if planned == Instant::ZERO { now } else { planned };
            let missed = now.saturating_since(from).as_nanos() / period.as_nanos();
            let next = from + period.saturating_mul(missed as u32 + 1);
            self.timers.gate(TimerKind::Response, next);
        }
    }

    /// The owner of a request gives up its response at the same limit that the tracker has: that is a
    /// response timeout too, if a driver has taken the request. The kernel's has a limit of its own
    /// (H-61), and what is given up before is not counted.
    pub(crate) fn response_given_up(&mut self, md: MdId) {
        if !self.tunables.conduct.times_response_from_call
            && self.timers.at(Timer::Response(md)).is_some()
        {
            self.counts.response_timeout();
        }
    }

    /// A SEND that failed leaves a descriptor for which no response will come.
    pub(crate) fn abandon(&mut self, event: &Event) {
        if event.unlinked {
            return;
        }
        self.untrack(event.md);
        match self.portals.mds.get_mut(event.md) {
            // Its response is arriving after all: the descriptor goes with it.
            Some(md) if md.refs > 0 => (md.owner, md.zombie) = (Owner::Silent, true),
            Some(_) | None => drop(self.portals.mds.remove(event.md)),
        }
    }
}
