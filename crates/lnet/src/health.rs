//! Failures become health (behaviour.md 5): who pays, whether the message may go again, how an
//! interface gets well.
//!
//! [`charge_of`] is the table H-10 and is written once; `judge` applies it. Recovery pings are
//! ordinary GETs on the reserved portal, made here when they are due.

use core::time::Duration;

use lnet_types::{Fault, HealthStatus, Instant, MdId, MsgId, NiId, Nid, PeerNiId};

use crate::internal::{Internal, PingTo};
use crate::local::{HEALTH_MAX, Recovery};
use crate::msg::Role;
use crate::peer::PeerNi;
use crate::peer::query::Cause;
use crate::ping::PING_BYTES_MIN;
use crate::record::Input;
use crate::router::alive;
use crate::send::{Next, is_internal};
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
    /// Nobody's.
    None,
}

/// Interfaces that come back together are told together.
const TELL_UP_AFTER: Duration = Duration::from_secs(1);

/// Signs of life make no more pings of one interface than one in this time (DEC-5: every second).
const PING_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Recovery pings in a row that fail before it is asked whether there still is such an interface.
const ASKED_FROM: u32 = 4;

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

/// Recovery pings to one peer per second, at most.
const PINGS_MAX: u32 = 64;

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
        let (ni, peer_ni) = match (msg.tx, msg.rx) {
            (Some(tx), _) => (tx.ni, tx.peer_ni),
            (None, Some(rx)) => (rx.ni, rx.peer_ni),
            (None, None) => return Next::End,
        };
        let Some(peer_ni) = peer_ni else {
            // Loopback: its health value means nothing, but moves once per answer (S-net-6).
            if status == HealthStatus::Ok && matches!(msg.role, Role::AckIn | Role::ReplyIn) {
                self.raise_ni(now, ni);
            }
            return Next::End;
        };
        let (deadline, md) = (msg.deadline, msg.md);
        // H-2: of what passes through, sending is judged alone, after receiving was.
        let passed = msg.role == Role::Forward && msg.tx.is_some();
        let received = msg.rx.is_some_and(|rx| rx.committed) && !passed;
        // H-4: late.
        if now > msg.deadline {
            self.late.0 += 1;
            self.late.1 += now.saturating_since(msg.deadline);
            // The kernel leaves it at that. Where the deadline is the call's own, the last failure of
            // a chain often comes just past it and is no less a failure.
            if status != HealthStatus::Ok && !self.tunables.conduct.charges_late_failures {
                return Next::End;
            }
        }
        if status == HealthStatus::Ok {
            if msg.retries > 0 && msg.tx.is_some() {
                self.stats.successful_resends = self.stats.successful_resends.wrapping_add(1);
            }
            // DEC-4
            let heals = self.tunables.health_on_success != 0;
            if heals {
                self.raise_ni(now, ni);
            }
            if passed {
                self.passed_on(now, peer_ni);
            }
            if received {
                self.begin_afresh(ni, peer_ni);
                if heals {
                    self.raise_peer(now, peer_ni, self.sensitivity());
                }
            }
            return Next::End;
        }
        let is_users =
            matches!(msg.role, Role::Request | Role::Copy) && !is_internal(&msg.hdr.kind);
        self.stats.count_failure(status);
        self.count_against(ni, peer_ni, status);
        if is_users
            && matches!(charge_of(status), Charge::Remote | Charge::Both)
            && let Some(peer) = self.peers.nis.get(peer_ni).map(|n| n.peer)
        {
            self.query(now, peer, Cause::Undelivered);
        }
        match charge_of(status) {
            Charge::Local => self.lower_ni(now, ni),
            Charge::Remote => self.lower_peer_if_it_matters(now, peer_ni),
            Charge::Both => {
                let owner = md.and_then(|md| self.portals.mds.get(md)).map(|d| d.owner);
                if !owner.is_some_and(|owner| self.was_in_doubt(owner)) {
                    self.lower_ni(now, ni);
                }
                self.lower_peer_if_it_matters(now, peer_ni);
            }
            Charge::None => {}
        }
        // An attempt without any time left would fail at once, and the next one too.
        if self.tunables.conduct.deadline_per_attempt || now < deadline {
            self.next_attempt(now, id, peer_ni, status)
        } else {
            Next::End
        }
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
            self.notices.push(Notice::TimedOut { pair: (ni.nid, pni.nid), status });
        }
    }

    fn sensitivity(&self) -> u32 {
        self.tunables.health_sensitivity as u32
    }

    /// H-6.
    pub(crate) fn raise_ni(&mut self, now: Instant, id: NiId) {
        self.raise_ni_by(now, id, self.sensitivity());
    }

    fn raise_ni_by(&mut self, _now: Instant, id: NiId, step: u32) {
        let Some(ni) = self.nis.get_mut(id) else { return };
        if ni.health < HEALTH_MAX {
            ni.health = (ni.health + step).min(HEALTH_MAX);
            self.health_changes += 1;
            self.ni_may_be_whole(id);
            self.note_ni(id);
        }
    }

    /// A local interface at full health is up and needs no recovery. If peers have been told that it is
    /// down, they are told so, soon; kernel nodes don't, until something else is to be told.
    fn ni_may_be_whole(&mut self, id: NiId) {
        let Some(ni) = self.nis.get_mut(id).filter(|ni| ni.health == HEALTH_MAX) else { return };
        ni.status_up = true;
        let is_news = ni.is_up() && !ni.told_up;
        self.timers.stop(Timer::RecoverNi(id));
        if is_news && self.tunables.conduct.announces_recovery {
            self.timers.hasten(Timer::AnnounceUp, self.now() + TELL_UP_AFTER);
        }
    }

    /// Tells peers that interfaces are up again, if nothing else has told them meanwhile.
    pub(crate) fn announce_up(&mut self, now: Instant) {
        if self.nis.values().any(|ni| ni.is_up() && !ni.told_up) {
            self.announce(now, false);
        }
    }

    /// H-51: something came over this pair, so recovery begins afresh.
    fn begin_afresh(&mut self, ni: NiId, id: PeerNiId) {
        if let Some(ni) = self.nis.get_mut(ni) {
            (ni.recovery.sent, ni.recovery.failed) = (0, 0);
        }
        if let Some(pni) = self.peers.nis.get_mut(id) {
            (pni.recovery.sent, pni.recovery.failed) = (0, 0);
        }
    }

    /// H-7; routers, and peers of a router, are well at once.
    fn raise_peer(&mut self, now: Instant, id: PeerNiId, step: u32) {
        let Some(pni) = self.peers.nis.get(id) else { return };
        if pni.health < HEALTH_MAX {
            let (peer, health) = (pni.peer, (pni.health + step).min(HEALTH_MAX));
            let whole = self.router.is_on() || alive::is_router(&self.peers, peer);
            self.set_peer_health(now, id, if whole { HEALTH_MAX } else { health });
        }
    }

    /// H-16.
    pub(crate) fn lower_ni(&mut self, now: Instant, id: NiId) {
        let sens = self.sensitivity();
        let Some(ni) = self.nis.get_mut(id).filter(|_| sens != 0) else { return };
        ni.health = ni.health.saturating_sub(sens);
        self.health_changes += 1;
        if ni.health == 0 {
            ni.status_up = false;
        }
        self.note_ni(id);
        self.queue_ni(now, id);
    }

    /// H-12: a peer's health matters only where there is a choice.
    fn lower_peer_if_it_matters(&mut self, now: Instant, id: PeerNiId) {
        let Some(pni) = self.peers.nis.get(id) else { return };
        let several = self.peers.peers.get(pni.peer).is_some_and(|p| p.ni_count() > 1);
        let routes = self.router.is_on() || alive::is_router(&self.peers, pni.peer);
        if (several || routes) && !self.is_own(pni.nid) {
            self.lower_peer(now, id);
        }
    }

    pub(crate) fn lower_peer(&mut self, now: Instant, id: PeerNiId) {
        let sens = self.sensitivity();
        let Some(pni) = self.peers.nis.get(id).filter(|_| sens != 0) else { return };
        let health = pni.health.saturating_sub(sens);
        self.set_peer_health(now, id, health);
    }

    /// Sets the health of a peer's interface and everything that hangs on it.
    pub(crate) fn set_peer_health(&mut self, now: Instant, id: PeerNiId, health: u32) {
        let Some(pni) = self.peers.nis.get_mut(id) else { return };
        let before = core::mem::replace(&mut pni.health, health);
        self.health_changes += 1;
        let (peer, net) = (pni.peer, pni.nid.net());
        if health == HEALTH_MAX {
            self.timers.stop(Timer::RecoverPeer(id));
        }
        self.peers.net_health(peer, net);
        if health == 0 && before > 0 {
            self.note_peer(id);
        }
        self.queue_peer(now, id);
    }

    /// H-40.
    pub(crate) fn queue_ni(&mut self, now: Instant, id: NiId) {
        let Some(ni) = self.nis.get(id) else { return };
        if ni.health < HEALTH_MAX && !self.timers.is_set(Timer::RecoverNi(id)) {
            let Recovery { failed, sent, .. } = ni.recovery;
            if let Some(wait) = self.tunables.recovery_interval_after(failed, sent) {
                self.timers.set(Timer::RecoverNi(id), now + wait);
            }
        }
    }

    /// H-42, H-43.
    pub(crate) fn queue_peer(&mut self, now: Instant, id: PeerNiId) {
        let limit = self.tunables.recovery_limit as u64;
        // One that has not been heard from yet was met anew (it came back, or was added) and has
        // failed before it was of use: nothing else would make it whole again. The kernel leaves it
        // as it is.
        let told = self.is_near(id).then_some(now);
        let Some(pni) = self.peers.nis.get_mut(id) else { return };
        let Some(alive) = pni.last_alive.or(told) else { return };
        let is_queued = self.timers.is_set(Timer::RecoverPeer(id));
        if pni.health >= HEALTH_MAX || is_queued || pni.deleting {
            return;
        }
        if limit != 0 && now.saturating_since(alive).as_secs() > limit {
            pni.recovery.sent = 0;
            return;
        }
        let Recovery { failed, sent, .. } = pni.recovery;
        if let Some(wait) = self.tunables.recovery_interval_after(failed, sent) {
            self.timers.set(Timer::RecoverPeer(id), now + wait);
        }
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
        is_near && (is_mr || alive::is_router(&self.peers, pni.peer))
    }

    /// DEC-5: a sign of life makes the next ping due now, or a second after the last one: two nodes
    /// that recover the same rail are signs of life to each other (not in the kernel's scheme).
    pub(crate) fn hasten_recovery(&mut self, now: Instant, id: PeerNiId) {
        if !self.tunables.conduct.hastens_recovery {
            return;
        }
        let Some(pni) = self.peers.nis.get(id).filter(|pni| pni.recovery.ping.is_none()) else {
            return;
        };
        let due = match pni.recovery.sent_at {
            Instant::ZERO => now,
            sent => now.max(sent + PING_INTERVAL_MIN),
        };
        if self.timers.at(Timer::RecoverPeer(id)).is_some_and(|next| next > due) {
            self.timers.set(Timer::RecoverPeer(id), due);
        }
    }

    /// Pings an interface of ours whose recovery ping is due (H-44).
    pub(crate) fn recover_ni(&mut self, now: Instant, id: NiId) {
        let Some(ni) = self.nis.get_mut(id).filter(|ni| ni.health < HEALTH_MAX) else { return };
        if ni.recovery.ping.is_none() {
            ni.recovery.sent += 1;
            ni.recovery.sent_at = now;
            let nid = ni.nid;
            let ping = self.recovery_ping(now, nid, Internal::RecoverLocal(id));
            if let Some(ni) = self.nis.get_mut(id) {
                ni.recovery.ping = ping;
            }
        }
        self.queue_ni(now, id);
    }

    /// The same for an interface of a peer.
    pub(crate) fn recover_peer(&mut self, now: Instant, id: PeerNiId) {
        let is_ill = |pni: &&mut PeerNi| pni.health < HEALTH_MAX && !pni.deleting;
        let Some(pni) = self.peers.nis.get_mut(id).filter(is_ill) else { return };
        if pni.recovery.ping.is_none() {
            // A peer of thousands of interfaces has no more pings than others have.
            let pings = self.peers.peers.get_mut(pni.peer).map(|p| &mut p.pings);
            let turn = pings.map_or(Ok(()), |b| b.take(now, 1, PINGS_MAX, PINGS_MAX));
            if let Err(later) = turn {
                return self.timers.set(Timer::RecoverPeer(id), later);
            }
            pni.recovery.sent += 1;
            pni.recovery.sent_at = now;
            let nid = pni.nid;
            let ping = self.recovery_ping(now, nid, Internal::RecoverPeer(id));
            if let Some(pni) = self.peers.nis.get_mut(id) {
                pni.recovery.ping = ping;
            }
        }
        self.queue_peer(now, id);
    }

    /// H-46.
    fn recovery_ping(&mut self, now: Instant, nid: Nid, what: Internal) -> Option<MdId> {
        let to = PingTo { direct: true, ..PingTo::from(nid) };
        self.internal_ping(now, to, what, PING_BYTES_MIN, self.own_limits()).ok()
    }

    /// A recovery ping has come back, or has not (H-48).
    /// `by` is who has brought the answer.
    pub(crate) fn recovery_answered(&mut self, now: Instant, what: Internal, by: Option<Nid>) {
        let ok = by.is_some();
        // DEC-3
        let step = match self.tunables.recovery_step as u32 {
            0 => self.sensitivity(),
            step => step,
        };
        match what {
            Internal::RecoverLocal(id) => {
                let Some(ni) = self.nis.get_mut(id) else { return };
                ni.recovery.ping = None;
                ni.recovery.failed = if ok { 0 } else { ni.recovery.failed + 1 };
                if ok {
                    self.raise_ni_by(now, id, step);
                }
                self.reschedule_ni(now, id);
            }
            Internal::RecoverPeer(id) => {
                let Some(pni) = self.peers.nis.get_mut(id) else { return };
                pni.recovery.ping = None;
                let failed = if ok { 0 } else { pni.recovery.failed + 1 };
                pni.recovery.failed = failed;
                let peer = pni.peer;
                // With `health_on_success` its REPLY has healed it already (H-48), unless that came
                // by another interface.
                let is_healed = self.tunables.health_on_success != 0 && by == Some(pni.nid);
                if ok && !is_healed {
                    self.raise_peer(now, id, step);
                }
                if failed >= ASKED_FROM && failed.is_power_of_two() {
                    self.query(now, peer, Cause::Gone);
                }
                self.reschedule_peer(now, id);
            }
            Internal::PingTarget
            | Internal::PushTarget
            | Internal::DiscoveryPing(_)
            | Internal::Push(_)
            | Internal::Ask { .. }
            | Internal::UserPing(_) => {}
        }
    }

    /// In the adaptive scheme the interval depends on how the last ping ended (DEC-5); it counts
    /// from when that was sent (H-45).
    fn reschedule_ni(&mut self, now: Instant, id: NiId) {
        if !self.tunables.conduct.hastens_recovery {
            return;
        }
        if let Some(ni) = self.nis.get(id)
            && self.timers.stop(Timer::RecoverNi(id)).is_some()
        {
            let sent = ni.recovery.sent_at;
            self.queue_ni(sent, id);
            self.not_before(now, Timer::RecoverNi(id));
        }
    }

    fn reschedule_peer(&mut self, now: Instant, id: PeerNiId) {
        if !self.tunables.conduct.hastens_recovery {
            return;
        }
        if let Some(pni) = self.peers.nis.get(id)
            && self.timers.stop(Timer::RecoverPeer(id)).is_some()
        {
            let sent = pni.recovery.sent_at;
            self.queue_peer(sent, id);
            self.not_before(now, Timer::RecoverPeer(id));
        }
    }

    /// What should have been done already is done now.
    fn not_before(&mut self, now: Instant, timer: Timer) {
        if self.timers.at(timer).is_some_and(|at| at < now) {
            self.timers.set(timer, now);
        }
    }

    /// Sets the health of local interfaces, one or all (H-80). Values above 1000 mean 1000.
    pub fn set_ni_health(&mut self, now: Instant, nid: Option<Nid>, health: u32) {
        self.note(|| Input::SetNiHealth { now, nid, health });
        let now = self.clock(now);
        let health = health.min(HEALTH_MAX);
        let ids: Vec<NiId> = self
            .nis
            .iter()
            .filter(|(_, ni)| !ni.is_loopback() && nid.is_none_or(|nid| nid == ni.nid))
            .map(|(id, _)| id)
            .collect();
        let mut is_news = false;
        for id in ids {
            let Some(ni) = self.nis.get_mut(id) else { continue };
            ni.health = health;
            self.health_changes += 1;
            if health == 0 {
                ni.status_up = false;
            }
            self.ni_may_be_whole(id);
            is_news |= self.nis.get(id).is_some_and(|ni| ni.is_up() != ni.told_up);
            self.note_ni(id);
            self.queue_ni(now, id);
        }
        if is_news {
            self.announce(now, false);
        }
        self.settle(now);
    }

    /// Sets the health of peers' interfaces, one or all (H-81).
    pub fn set_peer_ni_health(&mut self, now: Instant, nid: Option<Nid>, health: u32) {
        self.note(|| Input::SetPeerNiHealth { now, nid, health });
        let now = self.clock(now);
        let health = health.min(HEALTH_MAX);
        let ids: Vec<PeerNiId> = match nid {
            Some(nid) => self.peers.find(nid).into_iter().collect(),
            None => self.peers.nis.keys().collect(),
        };
        for id in ids {
            self.set_peer_health(now, id, health);
        }
        self.settle(now);
    }
}
