//! How an interface becomes healthy again (behaviour.md 5): recovery pings, which are ordinary GETs on the
//! reserved portal, made here when their timer is due. What follows from health is in `health.rs`.

use core::time::Duration;

use lnet_types::{Instant, MdId, Nid, PeerNiId};

use crate::Node;
use crate::internal::PingTo;
use crate::peer::cause::Cause;
use crate::port::{HEALTH_MAX, PortId, Recovery};
use crate::portal::PING_BYTES_MIN;
use crate::portal::owner::Internal;
use crate::timers::Timer;

/// Signs of life make no more pings of one interface than one in this time (DEC-5: every second).
const PING_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Recovery pings in a row that fail before the peer is queried for the interfaces that it has.
const QUERIED_FROM: u32 = 4;
/// Recovery pings to one peer per second, at most.
const PINGS_MAX: u32 = 64;

impl Node {
    /// Plans the recovery ping of an interface that is not healthy, unless it is planned (H-40, H-42).
    pub(crate) fn queue_recovery(&mut self, now: Instant, id: PortId) {
        let Some(port) = self.port(id) else { return };
        let Recovery { failed, sent, .. } = port.recovery;
        if port.health >= HEALTH_MAX || self.timers.is_set(id.recovery()) {
            return;
        }
        let recovers = match id {
            PortId::Local(id) => self.nis.get(id).is_some_and(|ni| !ni.is_loopback()),
            PortId::Peer(id) => self.recovers_peer(now, id),
        };
        if recovers && let Some(wait) = self.tunables.recovery_interval_after(failed, sent) {
            self.timers.set(id.recovery(), now + wait);
        }
    }

    /// Whether an interface of a peer is worth recovery (H-42, H-43).
    fn recovers_peer(&mut self, now: Instant, id: PeerNiId) -> bool {
        let limit = self.tunables.recovery_limit as u64;
        // One that has not been heard from yet was met anew (it came back, or was added) and has
        // failed before it was of use: nothing else would make it whole again. The kernel leaves it
        // as it is.
        let met = self.is_near(id).then_some(now);
        let Some(pni) = self.peers.nis.get_mut(id).filter(|pni| !pni.deleting) else {
            return false;
        };
        let Some(alive) = pni.last_alive.or(met) else { return false };
        let is_forgotten = limit != 0 && now.saturating_since(alive).as_secs() > limit;
        if is_forgotten {
            pni.port.recovery.sent = 0;
        }
        !is_forgotten
    }

    /// Whether this is an interface of a Multi-Rail node or of a gateway, on one of our networks (not
    /// in the kernel's scheme).
    fn is_near(&self, id: PeerNiId) -> bool {
        let Some(pni) = self.peers.nis.get(id).filter(|_| self.tunables.conduct.recovers_unheard)
        else {
            return false;
        };
        let net = pni.nid.net();
        let is_near = self.nis.iter().any(|(_, ni)| ni.nid.net() == net);
        let is_mr = self.peers.peers.get(pni.peer).is_some_and(|p| p.is_mr());
        is_near && (is_mr || self.is_of_router(id))
    }

    /// DEC-5: a sign of life makes the next ping due now, or a second after the last one: two nodes
    /// that recover the same rail are signs of life to each other (not in the kernel's scheme).
    pub(crate) fn hasten_recovery(&mut self, now: Instant, id: PeerNiId) {
        if !self.tunables.conduct.hastens_recovery {
            return;
        }
        let Some(pni) = self.peers.nis.get(id).filter(|pni| pni.port.recovery.ping.is_none())
        else {
            return;
        };
        let due = match pni.port.recovery.sent_at {
            Instant::ZERO => now,
            sent => now.max(sent + PING_INTERVAL_MIN),
        };
        if self.timers.at(Timer::RecoverPeer(id)).is_some_and(|next| next > due) {
            self.timers.set(Timer::RecoverPeer(id), due);
        }
    }

    /// Pings an interface whose recovery ping is due (H-44).
    pub(crate) fn recover(&mut self, now: Instant, id: PortId) {
        let Some(port) = self.port(id).filter(|port| port.health < HEALTH_MAX) else { return };
        if port.recovery.ping.is_none() {
            if let PortId::Peer(peer_ni) = id
                && let Err(later) = self.take_ping(now, peer_ni)
            {
                return self.timers.set(id.recovery(), later);
            }
            if let Some(port) = self.port_mut(id) {
                port.recovery.sent += 1;
                port.recovery.sent_at = now;
            }
            let ping = self.recovery_ping(now, id);
            if let Some(port) = self.port_mut(id) {
                port.recovery.ping = ping;
            }
        }
        self.queue_recovery(now, id);
    }

    /// A peer of thousands of interfaces has no more recovery pings than others have.
    fn take_ping(&mut self, now: Instant, id: PeerNiId) -> Result<(), Instant> {
        let peer = self.peers.nis.get(id).map(|pni| pni.peer);
        let peer = peer.and_then(|id| self.peers.peers.get_mut(id));
        peer.map_or(Ok(()), |peer| peer.pings.take(now, 1, PINGS_MAX, PINGS_MAX))
    }

    /// H-46, H-47.
    fn recovery_ping(&mut self, now: Instant, id: PortId) -> Option<MdId> {
        let to = PingTo { direct: true, ..PingTo::from(self.nid_of_port(id)?) };
        let what = Internal::Recover(id);
        self.internal_ping(now, to, what, PING_BYTES_MIN, self.own_limits()).ok()
    }

    /// A recovery ping has come back, or has not (H-48). `by` is the sender of the response.
    pub(crate) fn recovery_answered(&mut self, now: Instant, id: PortId, by: Option<Nid>) {
        // DEC-3
        let step = match self.tunables.recovery_step as u32 {
            0 => self.sensitivity(),
            step => step,
        };
        let nid = self.nid_of_port(id);
        let Some(port) = self.port_mut(id) else { return };
        port.recovery.ping = None;
        let failed = if by.is_some() { 0 } else { port.recovery.failed + 1 };
        port.recovery.failed = failed;
        // With `health_on_success` its REPLY has healed a peer's already (H-48), unless that came by
        // another interface.
        let is_peer = matches!(id, PortId::Peer(_));
        let is_healed = is_peer && self.tunables.health_on_success != 0 && by == nid;
        if by.is_some() && !is_healed {
            self.raise(now, id, step);
        }
        if let PortId::Peer(peer_ni) = id
            && failed >= QUERIED_FROM
            && failed.is_power_of_two()
            && let Some(peer) = self.peers.nis.get(peer_ni).map(|pni| pni.peer)
        {
            self.query(now, peer, Cause::Gone);
        }
        self.reschedule(now, id);
    }

    /// In the adaptive scheme the interval depends on how the last ping ended (DEC-5); it counts
    /// from when that was sent (H-45).
    fn reschedule(&mut self, now: Instant, id: PortId) {
        if !self.tunables.conduct.hastens_recovery {
            return;
        }
        if let Some(port) = self.port(id)
            && let sent = port.recovery.sent_at
            && self.timers.stop(id.recovery()).is_some()
        {
            self.queue_recovery(sent, id);
            // What should have been done already is done now.
            if self.timers.at(id.recovery()).is_some_and(|at| at < now) {
                self.timers.set(id.recovery(), now);
            }
        }
    }
}
