//! How an interface becomes healthy again (behaviour.md 5): when its next recovery ping is planned. The
//! pings themselves are in `ping.rs`; what follows from health is in `health.rs`.

mod ping;

use core::time::Duration;

use lnet_types::{Instant, NiId, PeerNiId};

use crate::Node;
use crate::port::{HEALTH_MAX, PortId, Recovery};
use crate::timers::{Timer, TimerKind};

/// Signs of life make no more pings of one interface than one in this time (DEC-5: every second).
const PING_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Recovery pings in a row that fail before the peer is queried for the interfaces that it has.
pub(super) const QUERIED_FROM: u32 = 4;
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
    pub(crate) fn hasten_recovery(&mut self, now: Instant, id: PortId) {
        if !self.tunables.conduct.hastens_recovery {
            return;
        }
        let Some(port) = self.port(id).filter(|port| port.recovery.ping.is_none()) else { return };
        let due = match port.recovery.sent_at {
            Instant::ZERO => now,
            sent => now.max(sent + PING_INTERVAL_MIN),
        };
        if self.timers.at(id.recovery()).is_some_and(|next| next > due) {
            self.timers.set(id.recovery(), due);
        }
    }

    /// DEC-5: the same for all that an interface recovers, whose link is up: itself, and the peers'
    /// interfaces on its network.
    pub(crate) fn hasten_recovery_over(&mut self, now: Instant, ni: NiId) {
        let Some(net) = self.nis.get(ni).map(|ni| ni.nid.net()) else { return };
        self.hasten_recovery(now, PortId::Local(ni));
        let is_there = |id: &PeerNiId| self.peers.nis.get(*id).is_some_and(|n| n.nid.net() == net);
        let planned = self.timers.of(TimerKind::RecoverPeer).filter_map(|(_, timer)| match timer {
            Timer::RecoverPeer(id) => Some(id).filter(is_there),
            _ => None,
        });
        let mut ids: Vec<PeerNiId> = planned.collect();
        ids.sort_unstable();
        for id in ids {
            self.hasten_recovery(now, PortId::Peer(id));
        }
    }

    /// A peer of thousands of interfaces has no more recovery pings than others have.
    fn take_ping(&mut self, now: Instant, id: PeerNiId) -> Result<(), Instant> {
        let peer = self.peers.nis.get(id).map(|pni| pni.peer);
        let peer = peer.and_then(|id| self.peers.peers.get_mut(id));
        peer.map_or(Ok(()), |peer| peer.pings.take(now, 1, PINGS_MAX, PINGS_MAX))
    }
}
