//! Messages for others, and what they hold on this router while they pass: a credit of the peer that they
//! came from, and a buffer (behaviour.md 4.2). Also whether the next hop is worth an attempt.

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, PeerNiId};

use super::buffers::{Buffer, PoolKind};
use crate::Node;
use crate::check::live;
use crate::msg::{Role, RxSide, Stage};
use crate::output::{Output, Payload, Sink, Verdict};
use crate::peer::PeerNi;

/// How often something is forwarded to an interface that is taken for down: seldom, since it may hold
/// a buffer until its driver gives it up.
const KNOCK_INTERVAL: Duration = Duration::from_secs(10);

impl Node {
    /// Router credits of a peer's interface (C-24).
    pub(crate) fn router_credits_max(&self, pni: &PeerNi) -> i32 {
        let Some(local) = pni.local else { return 0 };
        let global = self.tunables.peer_buffer_credits as u32;
        let n = match (local.peer_buffer_credits, global) {
            (0, 0) => local.peer_credits,
            (0, global) => global,
            (own, _) => own,
        };
        n as i32
    }

    /// Takes what a message needs to be received (C-22). `None`: it waits.
    pub(crate) fn admit_transit(&mut self, id: MsgId) -> Option<Verdict> {
        let msg = live!(mut self.msgs, id)?;
        let from = msg.rx?.peer_ni?;
        let transit = msg.transit.as_mut()?;
        let pool = transit.pool as usize;
        if !transit.credit {
            transit.credit = true;
            let max = self.peers.nis.get(from).map_or(0, |pni| self.router_credits_max(pni));
            let pni = live!(mut self.peers.nis, from)?;
            pni.transit.held += 1;
            let free = max - pni.transit.held;
            pni.transit.credits_min = Some(pni.transit.credits_min.map_or(free, |m| m.min(free)));
            if free < 0 {
                pni.transit.queue.push_back(id);
                self.msgs.get_mut(id)?.stage = Stage::TransitQueue;
                return None;
            }
        }
        match self.router.pools.get_mut(pool)?.take(id) {
            Some(buffer) => self.fill(id, buffer),
            None => {
                self.msgs.get_mut(id)?.stage = Stage::PoolQueue;
                None
            }
        }
    }

    /// Gives a message its buffer: its payload can come.
    fn fill(&mut self, id: MsgId, buffer: Buffer) -> Option<Verdict> {
        let msg = live!(mut self.msgs, id)?;
        let iov = buffer.spans(msg.hdr.payload_len);
        msg.payload = Payload::Spans(iov.clone());
        msg.stage = Stage::Receiving;
        msg.transit.as_mut()?.buffer = Some(buffer);
        Some(Verdict::Deliver { msg: id, sink: Sink::Spans(iov) })
    }

    /// Tells the driver of a message that waited.
    pub(crate) fn resume_transit(&mut self, id: MsgId, verdict: Verdict) {
        let Some(rx) = self.msgs.get(id).and_then(|m| m.rx) else { return };
        if self.stop_deferring(id, rx) {
            self.outbox.order(Output::Resume { ni: rx.ni, rx: rx.id, verdict });
        }
    }

    /// Whether a message has been deferred until now. Its driver's name for it does not say: once its
    /// payload was asked for, the name may be that of the next message on the same connection.
    fn stop_deferring(&mut self, id: MsgId, rx: RxSide) -> bool {
        let name = (rx.ni, rx.id);
        let waits = self.router.deferred.get(&name) == Some(&id);
        if waits {
            self.router.deferred.remove(&name);
        }
        waits
    }

    /// Returns what a message holds on this router (C-23): the buffer first, then the credit.
    pub(crate) fn return_transit(&mut self, id: MsgId) {
        let Some(msg) = live!(mut self.msgs, id) else { return };
        let Some(transit) = msg.transit.take() else { return };
        let (rx, stage) = (msg.rx, msg.stage);
        if let Some(rx) = rx {
            self.stop_deferring(id, rx);
        }
        if let Some(pool) = self.router.pools.get_mut(transit.pool as usize) {
            if stage == Stage::PoolQueue {
                pool.leave(id);
            }
            if let Some(buffer) = transit.buffer {
                let slab = pool.give(buffer);
                if let Some(slab) = slab {
                    self.outbox.order(Output::Release(slab));
                }
                self.serve_pool(transit.pool);
            }
        }
        if self.routing_state() == super::RoutingState::Stopping {
            // It was perhaps the last one that the router waited for.
            self.router.arm(&mut self.timers, &self.nis, &self.tunables);
        }
        let Some(from) = rx.and_then(|rx| rx.peer_ni) else { return };
        if let Some(pni) = live!(mut self.peers.nis, from)
            && transit.credit
        {
            pni.transit.held -= 1;
            if stage == Stage::TransitQueue {
                pni.transit.queue.retain(|x| *x != id);
            }
        }
        self.serve_peer(from);
        self.peers.release(from);
    }

    /// Lets those go on that wait for a buffer that is there.
    pub(crate) fn serve_pool(&mut self, kind: PoolKind) {
        while let Some((msg, buffer)) =
            self.router.pools.get_mut(kind as usize).and_then(|p| p.serve())
        {
            if let Some(verdict) = self.fill(msg, buffer) {
                self.resume_transit(msg, verdict);
            }
        }
    }

    /// Lets those go on that wait for a credit that is there.
    fn serve_peer(&mut self, from: PeerNiId) {
        loop {
            let Some(pni) = self.peers.nis.get(from) else { return };
            let max = self.router_credits_max(pni);
            let waiting = pni.transit.queue.len() as i32;
            if waiting == 0 || pni.transit.held - waiting >= max {
                return;
            }
            let next = self.peers.nis.get_mut(from).and_then(|n| n.transit.queue.pop_front());
            if let Some(next) = next
                && let Some(verdict) = self.admit_transit(next)
            {
                self.resume_transit(next, verdict);
            }
        }
    }

    /// C-8b: on a router, what is for an interface known to be down is not even tried. One message
    /// is, now and then, except in profile `kernel`: the interface may be up again without sending,
    /// and without discovery and health no node pings it.
    pub(crate) fn is_next_hop_dead(&mut self, now: Instant, id: MsgId) -> Option<Fault> {
        let msg = self.msgs.get(id).filter(|m| m.role == Role::Forward)?;
        let (hop, from_user) = (msg.tx?.peer_ni?, msg.hop_pid.is_user());
        let pni = self.peers.nis.get(hop)?;
        if from_user || pni.port.status_up || !self.watches_aliveness(pni) {
            return None;
        }
        let due = pni.knocked.map(|last| now >= last + KNOCK_INTERVAL);
        let tries = self.tunables.conduct.tries_dead_hops;
        if let Some(pni) = self.peers.nis.get_mut(hop).filter(|_| tries && due != Some(false)) {
            pni.knocked = Some(now);
        }
        // Not at once: it has just been found down.
        let knocks = tries && due == Some(true);
        (!knocks).then_some(Fault::new(HealthStatus::RemoteDropped, Errno::EHOSTUNREACH))
    }

    /// Something was forwarded to this interface. If it was a try, it is up.
    pub(crate) fn passed_on(&mut self, now: Instant, id: PeerNiId) {
        let hold_down = self.tunables.flap_hold_down;
        let Some(pni) = self.peers.nis.get_mut(id) else { return };
        if pni.knocked.take().is_some() {
            pni.set_up(now, hold_down, true);
        }
    }

    /// Whether the node keeps track of this interface being up or down (C-10).
    pub(crate) fn watches_aliveness(&self, pni: &PeerNi) -> bool {
        self.router.is_on() && pni.local.is_some_and(|t| t.peer_timeout > 0)
    }
}
