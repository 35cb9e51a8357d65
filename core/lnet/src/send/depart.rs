//! Departure: a message on its way from the work list to its driver, in one go: [`Node::depart`]. It may
//! have to wait, for the discovery of its peer, for credits (`admit.rs`) or for a delay rule (`fault/`);
//! each goes on here when that has passed.
//!
//! ```text
//!   depart ─► find_path ─► commit ─► admit ─► transmit ─► Output::Send
//!                │ park        ▲       │ queue, hold
//!                ╰── news ─────╯       ╰── resume, release
//! ```

use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, Nid, PeerNiId};

use super::select;
use super::trace::Trace;
use crate::Node;
use crate::msg::{Role, Stage, Tx};
use crate::outbox::Work;
use crate::peer::Facts;
use crate::peer::cause::Cause;
use crate::peer::eviction::Purpose;
use crate::portal::is_internal;
use crate::timers::Timer;

impl Node {
    /// Finds a path for a message and puts it on its way; or parks it, or ends it.
    pub(crate) fn depart(&mut self, now: Instant, id: MsgId) {
        match self.find_path(now, id) {
            Ok(Some(path)) => {
                self.count_resend(id);
                self.commit(now, id, path);
                self.admit(now, id);
            }
            Ok(None) => {}
            Err(errno) => self.end_uncommitted(id, errno),
        }
    }

    /// H-24.
    fn count_resend(&mut self, id: MsgId) {
        if let Some(msg) = self.msgs.get_mut(id)
            && core::mem::take(&mut msg.goes_again)
        {
            self.counts.resend();
        }
    }

    /// S-3: without effect on health, because the message isn't committed. One that passes through, or that
    /// has become a response, was received, and its sender has no part in this; kernel nodes hold the
    /// latter against it.
    fn end_uncommitted(&mut self, id: MsgId, errno: Errno) {
        let Some(msg) = self.msgs.get_mut(id) else { return };
        msg.no_resend = true;
        let responds = matches!(msg.role, Role::GetIn | Role::AckOut);
        let status = match errno {
            _ if msg.role == Role::Forward => HealthStatus::Ok,
            _ if responds && !self.tunables.conduct.charges_bystanders => HealthStatus::Ok,
            Errno::EHOSTUNREACH => HealthStatus::RemoteError,
            _ => HealthStatus::LocalError,
        };
        self.outbox.plan(Work::Finish(id, Err(Fault::new(status, errno))));
    }

    /// The path of a message. `None`: it waits for a discovery, or has gone by loopback.
    fn find_path(&mut self, now: Instant, id: MsgId) -> Result<Option<select::Path>, Errno> {
        if self.peers.has_previous_owners(now)
            && let Some(msg) = self.msgs.get_mut(id)
        {
            self.peers.follow(now, msg);
        }
        let Some(msg) = self.msgs.get(id) else { return Ok(None) };
        let target = msg.hdr.dst;
        if !self.running {
            return Err(Errno::ESHUTDOWN);
        }
        if msg.role == Role::Copy && !self.is_wanted(id) {
            return Err(Errno::ECANCELED);
        }
        if target.is_loopback() {
            return self.depart_by_loopback(now, id).map(|()| None);
        }
        let is_gated = !msg.is_response() && !is_internal(&msg.hdr.kind);
        // A response nearly always goes where its request came from.
        let came_from = msg.rx.as_ref().and_then(|rx| rx.peer_ni);
        // Who forwards names its target, and who requests names where the response goes.
        let is_named = msg.rx.as_ref().is_some_and(|rx| rx.from != target);
        let purpose = if is_named { Purpose::Named } else { Purpose::Traffic };
        let peer_ni = self.peer_ni_or_new(came_from, target, None, purpose)?;
        if is_gated && self.park(id, peer_ni)? {
            return Ok(None);
        }
        let Some(msg) = self.msgs.get(id) else { return Ok(None) };
        let request = self.tables().request(msg, peer_ni);
        // Resends are rare: their reasons are always kept.
        let path = if self.tunables.explain_last == 0 && msg.retries == 0 {
            select::path(self.tables(), &request, &mut None)?
        } else {
            let mut trace = Trace::default();
            let path = select::path(self.tables(), &request, &mut Some(&mut trace));
            self.keep_explanation(id, target, trace, path);
            path?
        };
        // S-52: gateways that are not checked are discovered like destinations.
        let unchecked = path.via.is_some() && self.tunables.alive_router_check_interval <= 0;
        if unchecked && is_gated && self.park(id, path.peer_ni)? {
            return Ok(None);
        }
        Ok(Some(path))
    }

    /// The discovery gate (S-6): true if the message now waits for its peer to be discovered. In
    /// kernel LNet it waits for every later round as well, and in routers, too.
    fn park(&mut self, id: MsgId, peer_ni: PeerNiId) -> Result<bool, Errno> {
        let peer_id = self.peers.nis.get(peer_ni).ok_or(Errno::EFAULT)?.peer;
        if self.is_up_to_date(peer_id) {
            // As a rule its next query is planned already.
            if !self.timers.is_set(Timer::Discover(peer_id)) {
                self.query(self.now(), peer_id, Cause::Refresh);
            }
            return Ok(false);
        }
        let checking = |p: &crate::peer::Peer| p.facts.contains(Facts::ROUTER_CHECK);
        if self.peers.peers.get(peer_id).is_some_and(checking) {
            return Ok(false);
        }
        let limit = self.tunables.parked_max as usize;
        let renews = self.tunables.conduct.sends_during_rediscovery;
        let now = self.now();
        let peer = self.peers.peers.get_mut(peer_id).ok_or(Errno::EFAULT)?;
        // What is known will do while it is renewed: a ping or push that a dying rail has swallowed
        // must not hold up the traffic on the others until its time-out. Nor is it asked for each
        // message when it has failed just now.
        let backs_off = peer.disc.retry.backs_off(now);
        // Nor does a router hold up what it forwards, for which the NID in the header will do: the
        // answer to its ping would stay behind further such messages, which it has no room for.
        let forwards = self.msgs.get(id).is_some_and(|m| m.role == Role::Forward);
        if renews && (backs_off || forwards || peer.disc.discovered) && !peer.disc.rebuild {
            if !backs_off {
                self.query(now, peer_id, Cause::Used);
            }
            return Ok(false);
        }
        if peer.disc.parked.len() >= limit {
            return Err(Errno::ENOBUFS);
        }
        peer.disc.parked.push_back(id);
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.stage = Stage::Parked(peer_id);
        }
        self.wait_until_deadline(id);
        self.query(now, peer_id, Cause::Used);
        Ok(true)
    }

    /// S-5: no credits, no peer, no health.
    fn depart_by_loopback(&mut self, now: Instant, id: MsgId) -> Result<(), Errno> {
        let ni =
            self.nis.nets().first().and_then(|n| n.nis.first()).copied().ok_or(Errno::ESHUTDOWN)?;
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.hdr.src = Nid::LOOPBACK;
            msg.tx = Some(Tx {
                ni,
                peer_ni: None,
                hop: Nid::LOOPBACK,
                routed: false,
                peer_credit: false,
                ni_credit: false,
                committed: now,
            });
        }
        if let Some(msg) = self.msgs.get(id) {
            let deadline = self.tables().deadline_of(now, msg, ni);
            if let Some(msg) = self.msgs.get_mut(id) {
                msg.enter(deadline, &mut self.counts);
            }
        }
        self.transmit(now, id);
        Ok(())
    }

    /// Binds a message to its pair (S-2.7 … S-2.10, S-60, S-64).
    pub(super) fn commit(&mut self, now: Instant, id: MsgId, path: select::Path) {
        let select::Path { ni: ni_id, peer_ni: pni_id, remember, counted, via } = path;
        let dest_id = via.map_or(pni_id, |via| via.dest);
        let Some(src_nid) = self.nis.bind(ni_id) else { return };
        let Some(hop) = self.peers.count_turn(pni_id, 1) else { return };
        let mut dst = hop;
        if via.is_some() {
            dst = self.peers.count_turn(dest_id, 0).unwrap_or(hop);
        }
        if remember && let Some(dest) = self.peers.nis.get_mut(dest_id) {
            dest.preferred = Some(src_nid);
        }
        if let Some(used) = via.and_then(|via| via.route) {
            self.router.routes.used(used.net, used.gateway, used.seq);
        }
        if counted && self.peers.policy.counts() {
            self.take_turns(src_nid, dst);
        }
        let Some(msg) = self.msgs.get(id) else { return };
        let deadline = self.tables().deadline_of(now, msg, ni_id);
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.enter(deadline, &mut self.counts);
            if msg.role != Role::Forward {
                msg.hdr.src = src_nid;
            }
            msg.hdr.dst = dst;
            // An answer that leaves by another pair than it was addressed by is for another interface
            // of its node now, which its first source may not lead to: it moves on from here (DEC-15).
            if msg.may_move() && msg.src.is_some() && msg.role != Role::Forward {
                msg.src = Some(src_nid);
            }
            msg.tx = Some(Tx {
                ni: ni_id,
                peer_ni: Some(pni_id),
                hop,
                routed: via.is_some(),
                peer_credit: false,
                ni_credit: false,
                committed: now,
            });
            let asks = matches!(msg.role, Role::Request | Role::Copy);
            let (md, retries) = (msg.md.filter(|_| asks), msg.retries);
            // H-62
            if let Some(t) =
                md.and_then(|md| self.portals.mds.get_mut(md)).and_then(|md| md.tracker.as_mut())
            {
                t.next_hop = Some(hop);
                t.target = Some(dst);
            }
            if retries > 0 {
                self.note_rerouted(id, (src_nid, hop));
            }
        }
    }
}
