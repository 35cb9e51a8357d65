//! Response tracking: ACKs and REPLYs that do not come (behaviour.md 5.9), and messages that wait
//! for something of ours longer than they may.

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, Instant, MdId, MsgId};

use crate::check::live;
use crate::msg::Stage;
use crate::node::Work;
use crate::peer::cause::Cause;
use crate::port::PortId;
use crate::portal::md::Tracker;
use crate::timers::{Timer, TimerKind};
use crate::{Node, UnlinkError};

impl Node {
    /// A response to an operation on `md` is expected (H-60, H-61). Its time begins when a driver
    /// has taken the request (DEC-10), in the kernel's scheme with the call.
    pub(crate) fn track(&mut self, now: Instant, md: MdId, limit: Duration) {
        let begins = self.tunables.conduct.times_response_from_call;
        let Some(d) = self.portals.mds.get_mut(md) else { return };
        let tracker = Tracker { limit, started: now, next_hop: None, target: None, written: None };
        match d.tracker.replace(tracker) {
            Some(old) => {
                self.timers.stop(Timer::Response(md));
                if let Some(written) = old.written {
                    self.let_go(written);
                }
            }
            None => self.stats.rst_alloc = self.stats.rst_alloc.wrapping_add(1),
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
        self.stats.rst_alloc = self.stats.rst_alloc.wrapping_sub(1);
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
            self.stats.response_timeout_count = self.stats.response_timeout_count.wrapping_add(1);
        }
    }

    /// Ends an operation whose response is overdue (H-64, H-65).
    pub(crate) fn response_overdue(&mut self, now: Instant, md: MdId) {
        let Some(d) = live!(mut self.portals.mds, md) else { return };
        let Some(t) = d.tracker.take() else { return };
        self.stats.rst_alloc = self.stats.rst_alloc.wrapping_sub(1);
        let over = d.aborted || d.zombie;
        let owner = d.owner;
        if let Some(written) = t.written {
            self.let_go(written);
        }
        if over {
            return;
        }
        self.stats.response_timeout_count = self.stats.response_timeout_count.wrapping_add(1);
        if let Some(pni) = t.next_hop.and_then(|nid| self.peers.find(nid))
            && !self.is_no_news_of(pni, owner)
        {
            self.lower(now, PortId::Peer(pni));
        }
        // Behind a router that is all there is to see of it.
        let target = t.target.filter(|_| t.target != t.next_hop);
        if let Some(peer) = target.and_then(|nid| self.peers.owner(nid)) {
            self.query(now, peer, Cause::Silent);
        }
        self.unlink_md(now, md);
    }

    /// Ends a message that has waited past its deadline for a credit or a discovery (UG-014).
    pub(crate) fn expire_waiting(&mut self, id: MsgId) {
        let Some(msg) = live!(mut self.msgs, id) else { return };
        msg.no_resend = true;
        if let Stage::Parked(peer) = msg.stage
            && let Some(peer) = self.peers.peers.get_mut(peer)
        {
            peer.disc.parked.retain(|x| *x != id);
        }
        let late = Fault::new(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT);
        self.work.push_back(Work::Finish(id, Err(late)));
    }

    /// Takes a descriptor back (M-43). If nothing uses it, its UNLINK event follows at once;
    /// otherwise the last operation's event says `unlinked`.
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn unlink(&mut self, now: Instant, md: MdId) -> Result<(), UnlinkError> {
        self.note_usual(|live| live.unlink(now, md));
        let now = self.clock(now);
        if self.portals.mds.get(md).is_none_or(|d| d.aborted) {
            return Err(UnlinkError);
        }
        self.unlink_md(now, md);
        self.settle(now);
        Ok(())
    }

    /// Takes a descriptor away that is full. What is under way with it goes on, as after the last
    /// operation of one that is spent.
    pub(crate) fn retire_md(&mut self, now: Instant, md: MdId) {
        self.portals.hide(md);
        let Some(d) = self.portals.mds.get_mut(md) else { return };
        d.zombie = true;
        if d.refs == 0 {
            let owner = d.owner;
            self.portals.mds.remove(md);
            self.tell_unlinked(now, md, owner);
        }
    }

    pub(crate) fn unlink_md(&mut self, now: Instant, md: MdId) {
        self.untrack(md);
        self.portals.hide(md);
        let Some(d) = self.portals.mds.get_mut(md) else { return };
        d.aborted = true;
        d.zombie = true;
        if d.refs == 0 {
            let owner = d.owner;
            self.portals.mds.remove(md);
            self.tell_unlinked(now, md, owner);
        }
    }
}
