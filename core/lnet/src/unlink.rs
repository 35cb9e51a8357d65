//! Descriptors that end before their operation does: taken back, full, or without a response in time; and
//! waits that last too long.

use lnet_types::{Errno, Fault, HealthStatus, Instant, MdId, MsgId};

use crate::Node;
use crate::api::OpId;
use crate::check::live;
use crate::msg::{Msg, Role, Stage};
use crate::outbox::Work;
use crate::peer::cause::Cause;
use crate::port::PortId;
use crate::portal::owner::Owner;
use crate::timers::{Timer, TimerKind};

impl Node {
    pub(crate) fn unlink_md(&mut self, now: Instant, md: MdId) {
        if let Some(owner) = self.abort_md(md) {
            self.report_unlinked(now, md, owner);
        }
    }

    /// Takes a descriptor away. Its owner, if nothing used it: it is gone.
    pub(crate) fn abort_md(&mut self, md: MdId) -> Option<Owner> {
        self.untrack(md);
        self.portals.hide(md);
        let d = self.portals.mds.get_mut(md)?;
        d.aborted = true;
        d.zombie = true;
        if d.refs > 0 {
            self.cancel_resting(md);
            return None;
        }
        let owner = d.owner;
        self.portals.mds.remove(md);
        Some(owner)
    }

    /// Ends the messages that rest and whose descriptor is unlinked (M-47): they would only learn it when
    /// they go again, and no driver has their memory.
    fn cancel_resting(&mut self, md: MdId) {
        if self.timers.count(TimerKind::Backoff) == 0 {
            return;
        }
        let rests = |timer| match timer {
            Timer::Backoff(id) => Some(id),
            _ => None,
        };
        let ids = self.timers.of(TimerKind::Backoff).filter_map(|(_, timer)| rests(timer));
        // Copies have been let go with their tracker.
        let is_its = |msg: &Msg| msg.md == Some(md) && msg.role != Role::Copy;
        let mut ids: Vec<MsgId> = ids.filter(|id| self.msgs.get(*id).is_some_and(is_its)).collect();
        ids.sort_unstable();
        for id in ids {
            self.end_rest(id);
            if let Some(msg) = self.msgs.get_mut(id) {
                msg.no_resend = true;
            }
            let unlinked = Fault::new(HealthStatus::Ok, Errno::ECANCELED);
            self.outbox.plan(Work::Finish(id, Err(unlinked)));
        }
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
            self.report_unlinked(now, md, owner);
        }
    }

    /// Ends an operation whose response is overdue (H-64, H-65).
    pub(crate) fn response_overdue(&mut self, now: Instant, md: MdId) {
        let Some(d) = live!(mut self.portals.mds, md) else { return };
        let Some(t) = d.tracker.take() else { return };
        self.counts.tracker_gone();
        let over = d.aborted || d.zombie;
        let owner = d.owner;
        if let Some(written) = t.written {
            self.let_go(written);
        }
        if over {
            return;
        }
        self.counts.response_timeout();
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

    /// Ends a message that has waited past its deadline for a credit or a discovery (UG-014). It never
    /// left, which is no evidence against any interface: none is charged (C-8, H-1).
    pub(crate) fn expire_waiting(&mut self, id: MsgId) {
        let Some(msg) = live!(mut self.msgs, id) else { return };
        msg.no_resend = true;
        if let Stage::Parked(peer) = msg.stage
            && let Some(peer) = self.peers.peers.get_mut(peer)
        {
            peer.disc.parked.retain(|x| *x != id);
        }
        let late = Fault::new(HealthStatus::Ok, Errno::ETIMEDOUT);
        self.outbox.plan(Work::Finish(id, Err(late)));
    }

    /// Ends a ping that took too long (D-82).
    pub(crate) fn expire_op(&mut self, now: Instant, op: OpId) {
        let md: Option<MdId> = self.ops.get(op).and_then(|s| s.md);
        if let Some(md) = md.filter(|md| self.portals.mds.contains_key(*md)) {
            self.response_given_up(md);
            self.unlink_md(now, md);
        }
        // With the GET still in a driver's hands no UNLINK comes now; the user has waited long enough
        // all the same.
        let error = self.ops.get(op).and_then(|s| s.error).unwrap_or(Errno::EIO);
        self.report(op, Err(error));
    }
}
