//! Failures become health (behaviour.md 5): whose health a failure lowers, whether the message
//! may go again, and what follows from the health of an interface.
//!
//! [`charge_of`] is the table H-10 and is written once; `judge` applies it. How an interface becomes
//! healthy again is in `recovery/`.

use core::time::Duration;

use lnet_types::{Fault, HealthStatus, Instant, MsgId, NiId, PeerNiId};

use crate::check::live;
use crate::msg::Role;
use crate::peer::cause::Cause;
use crate::port::{HEALTH_MAX, PortId};
use crate::portal::is_internal;
use crate::send::Next;
use crate::timers::Timer;
use crate::{Node, Notice};

/// Whose health a failure lowers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Charge {
    /// Ours.
    Local,
    /// The peer's.
    Remote,
    /// Both.
    Both,
    /// Neither side's.
    None,
}

/// Interfaces that come back within this time are announced together.
const ANNOUNCE_UP_AFTER: Duration = Duration::from_secs(1);

/// The middle columns of H-10.
pub(crate) const fn charge_of(status: HealthStatus) -> Charge {
    match status {
        HealthStatus::Ok => Charge::None,
        HealthStatus::LocalInterrupt
        | HealthStatus::LocalDropped
        | HealthStatus::LocalAborted
        | HealthStatus::LocalNoRoute
        | HealthStatus::LocalError
        | HealthStatus::LocalTimeout => Charge::Local,
        HealthStatus::RemoteError | HealthStatus::RemoteDropped | HealthStatus::RemoteTimeout => {
            Charge::Remote
        }
        HealthStatus::NetworkTimeout => Charge::Both,
    }
}

impl Node {
    /// Accounts for one outcome, and says what follows it (H-1 … H-22, `send/attempts.rs`).
    pub(crate) fn judge(&mut self, now: Instant, id: MsgId, outcome: Result<(), Fault>) -> Next {
        let Some(msg) = self.msgs.get(id) else { return Next::End };
        let status = outcome.map_or_else(|f| f.status, |()| HealthStatus::Ok);
        // H-1: status and health status must agree.
        if outcome.is_err() && status == HealthStatus::Ok {
            return Next::End;
        }
        // H-2: the sending side if there is one.
        let (ni, peer_ni) = match (&msg.tx, &msg.rx) {
            (Some(tx), _) => (tx.ni, tx.peer_ni),
            (None, Some(rx)) => (rx.ni, rx.peer_ni),
            (None, None) => return Next::End,
        };
        let Some(peer_ni) = peer_ni else {
            // Loopback: its health value means nothing, but moves once per answer (S-net-6).
            if status == HealthStatus::Ok && matches!(msg.role, Role::AckIn | Role::ReplyIn) {
                self.raise(now, PortId::Local(ni), self.sensitivity());
            }
            return Next::End;
        };
        let (deadline, md) = (msg.deadline, msg.md);
        // H-2: of what passes through, sending is judged alone, after receiving was.
        let passed = msg.role == Role::Forward && msg.tx.is_some();
        let received = msg.rx.as_ref().is_some_and(|rx| rx.committed) && !passed;
        // H-4: late.
        if now > msg.deadline {
            // The kernel leaves it at that. Where the deadline is the call's own, the last failure of
            // a chain often comes just past it and is no less a failure.
            if status != HealthStatus::Ok && !self.tunables.conduct.charges_late_failures {
                return Next::End;
            }
        }
        if status == HealthStatus::Ok {
            if msg.retries > 0 && msg.tx.is_some() {
                self.counts.resend_succeeded();
            }
            // DEC-4
            let heals = self.tunables.health_on_success != 0;
            if heals {
                self.raise(now, PortId::Local(ni), self.sensitivity());
            }
            if passed {
                self.passed_on(now, peer_ni);
            }
            if received {
                self.begin_afresh(ni, peer_ni);
                if heals {
                    self.raise(now, PortId::Peer(peer_ni), self.sensitivity());
                }
            }
            return Next::End;
        }
        let is_users =
            matches!(msg.role, Role::Request | Role::Copy) && !is_internal(&msg.hdr.kind);
        self.counts.failure(status);
        self.count_against(ni, peer_ni, status);
        if is_users
            && matches!(charge_of(status), Charge::Remote | Charge::Both)
            && let Some(peer) = self.peers.nis.get(peer_ni).map(|n| n.peer)
        {
            self.query(now, peer, Cause::Undelivered);
        }
        match charge_of(status) {
            Charge::Local => self.lower(now, PortId::Local(ni)),
            Charge::Remote => self.lower_peer_if_it_matters(now, peer_ni),
            Charge::Both => {
                let owner = md.and_then(|md| self.portals.mds.get(md)).map(|d| d.owner);
                let was_in_doubt = owner.is_some_and(|owner| self.was_in_doubt(owner));
                if !was_in_doubt && !self.was_known_down(id) {
                    self.lower(now, PortId::Local(ni));
                }
                self.lower_peer_if_it_matters(now, peer_ni);
            }
            Charge::None => {}
        }
        // An attempt without any time left would fail at once, and the next one too.
        if !self.tunables.conduct.deadline_per_attempt && now >= deadline {
            return Next::End;
        }
        let Some(msg) = live!(self.msgs, id) else { return Next::End };
        let attempt = (peer_ni, status);
        let next = self.tables().next_attempt(now, msg, attempt, || self.can_repeat(msg));
        if next == Next::Spent {
            self.counts.resend_failed();
        }
        next
    }

    /// Whether a message was a try of an interface that is known to be down (C-8): that it fails is no
    /// evidence against ours.
    fn was_known_down(&self, id: MsgId) -> bool {
        !self.tunables.conduct.charges_bystanders
            && self.msgs.get(id).is_some_and(|msg| self.tables().tries_dead_hop(msg))
    }

    /// The object columns of H-14.
    fn count_against(&mut self, ni: NiId, peer_ni: PeerNiId, status: HealthStatus) {
        let (Some(ni), Some(pni)) = (self.nis.get_mut(ni), self.peers.nis.get_mut(peer_ni)) else {
            return;
        };
        let counter = match status {
            HealthStatus::Ok => return,
            HealthStatus::LocalInterrupt => &mut ni.failures.interrupt,
            HealthStatus::LocalDropped => &mut ni.failures.dropped,
            HealthStatus::LocalAborted => &mut ni.failures.aborted,
            HealthStatus::LocalNoRoute => &mut ni.failures.no_route,
            HealthStatus::LocalError => &mut ni.failures.error,
            HealthStatus::LocalTimeout => &mut ni.failures.timeout,
            HealthStatus::RemoteError => &mut pni.failures.error,
            HealthStatus::RemoteDropped => &mut pni.failures.dropped,
            HealthStatus::RemoteTimeout => &mut pni.failures.timeout,
            HealthStatus::NetworkTimeout => {
                ni.failures.network_timeout = ni.failures.network_timeout.wrapping_add(1);
                &mut pni.failures.network_timeout
            }
        };
        *counter = counter.wrapping_add(1);
        if matches!(
            status,
            HealthStatus::LocalTimeout | HealthStatus::RemoteTimeout | HealthStatus::NetworkTimeout
        ) {
            self.outbox.notice(Notice::TimedOut { pair: (ni.nid, pni.nid), status });
        }
    }

    pub(crate) fn sensitivity(&self) -> u32 {
        self.tunables.health_sensitivity as u32
    }

    /// H-6, H-7; routers, and peers of a router, are healthy at once.
    pub(crate) fn raise(&mut self, now: Instant, id: PortId, step: u32) {
        let Some(port) = self.port(id).filter(|port| port.health < HEALTH_MAX) else { return };
        let health = (port.health + step).min(HEALTH_MAX);
        let at_once = match id {
            PortId::Local(_) => false,
            PortId::Peer(id) => self.router.is_on() || self.is_of_router(id),
        };
        self.set_health(now, id, if at_once { HEALTH_MAX } else { health });
    }

    /// H-16.
    pub(crate) fn lower(&mut self, now: Instant, id: PortId) {
        let sens = self.sensitivity();
        let Some(port) = self.port(id).filter(|_| sens != 0) else { return };
        let health = port.health.saturating_sub(sens);
        self.set_health(now, id, health);
    }

    /// H-12: a peer's health matters only where there is a choice.
    fn lower_peer_if_it_matters(&mut self, now: Instant, id: PeerNiId) {
        let Some(pni) = self.peers.nis.get(id) else { return };
        let several = self.peers.peers.get(pni.peer).is_some_and(|p| p.ni_count() > 1);
        let routes = self.router.is_on() || self.is_of_router(id);
        if (several || routes) && !self.nis.owns(pni.nid) {
            self.lower(now, PortId::Peer(id));
        }
    }

    /// Sets the health of an interface and what follows from it: its status, recovery, notices.
    pub(crate) fn set_health(&mut self, now: Instant, id: PortId, health: u32) {
        let Some(port) = self.port_mut(id) else { return };
        let before = core::mem::replace(&mut port.health, health);
        self.counts.health_changed(id);
        if health == HEALTH_MAX {
            self.timers.stop(id.recovery());
        }
        match id {
            PortId::Local(id) => self.local_health_set(id),
            PortId::Peer(id) => {
                let Some(pni) = self.peers.nis.get_mut(id) else { return };
                pni.usability_changed(now);
                let (peer, net) = (pni.peer, pni.nid.net());
                self.peers.net_health(peer, net);
                if health == 0 && before > 0 {
                    self.note_peer(id);
                }
            }
        }
        self.queue_recovery(now, id);
    }

    /// A local interface at full health is up, one without health is down (H-16). If it was announced
    /// as down and is up again, that is announced soon. Kernel nodes announce it with the next change.
    fn local_health_set(&mut self, id: NiId) {
        let Some(ni) = self.nis.get_mut(id) else { return };
        match ni.port.health {
            0 => ni.port.status_up = false,
            HEALTH_MAX => {
                ni.port.status_up = true;
                let is_news = ni.is_up() && !ni.announced_up;
                if is_news && self.tunables.conduct.announces_recovery {
                    self.timers.hasten(Timer::AnnounceUp, self.now() + ANNOUNCE_UP_AFTER);
                }
            }
            _ => {}
        }
        self.note_ni(id);
    }

    /// Announces interfaces that are up again, if no other announcement has covered them meanwhile.
    pub(crate) fn announce_up(&mut self, now: Instant) {
        if self.nis.values().any(|ni| ni.is_up() && !ni.announced_up) {
            self.announce(now, false);
        }
    }

    /// H-51: something came over this pair, so recovery begins afresh.
    fn begin_afresh(&mut self, ni: NiId, id: PeerNiId) {
        self.each_port(ni, Some(id), |port| {
            (port.recovery.sent, port.recovery.failed) = (0, 0);
        });
    }

    /// Sets the health of several interfaces, and returns the time of the node.
    pub(crate) fn set_healths(
        &mut self,
        now: Instant,
        ids: impl Iterator<Item = PortId>,
        health: u32,
    ) -> Instant {
        let now = self.clock(now);
        for id in ids {
            self.set_health(now, id, health.min(HEALTH_MAX));
        }
        now
    }
}
