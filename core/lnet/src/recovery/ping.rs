//! Recovery pings: ordinary GETs on the reserved portal, made when their timer is due. When that is planned
//! is in `mod.rs`.

use lnet_types::{Instant, MdId, Nid};

use super::QUERIED_FROM;
use crate::Node;
use crate::internal::PingTo;
use crate::peer::cause::Cause;
use crate::port::{HEALTH_MAX, PortId};
use crate::portal::PING_BYTES_MIN;
use crate::portal::owner::Internal;

impl Node {
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
