//! Looking at rails (DEC-31). A rail with something on the way is looked at every few milliseconds by
//! a timer of its own; one that is idle and above doubt is not looked at, and a message costs no
//! system call. What a look means is judged in `proto/watch.rs`.
//!
//! A doubted rail is asked to prove itself: with keepalives while it is idle, and with connection
//! attempts while it has none. That ends after a minute without traffic for the rail.

use core::time::Duration;

use lnet::{Doubt, InDoubt};
use lnet_types::{Instant, MsgId, NiId, ProcessId};
use lnet_wire::sock::Noop;

use super::conn::{Conn, Phase, Up};
use super::{SockDriver, Timer};
use crate::peer::{ConnKey, Peer, PeerKey};
use crate::proto::kinds::Load;
use crate::proto::load::{BURST, Burst, Run};
use crate::proto::watch::{Seen, waits_for_receiver};
use crate::streams::Streams;
use crate::tunables::{Suspicion, TimeLimits};
use crate::upper::Upper;

/// Looks at one rail are so many to the shortest limit ...
const LOOKS_PER_LIMIT: u32 = 4;
/// ... but no more than a look anywhere in this time: ten thousand busy rails are looked at ten times
/// a second each.
const LOOK_COST: Duration = Duration::from_micros(10);
/// Looks from one keepalive that proves a rail to the next.
const LOOKS_PER_PROOF: u32 = 4;
/// A rail that has had a message so lately is not given a load: callers would wait behind it, and their
/// messages show how it is.
const IN_USE: Duration = Duration::from_millis(100);
/// A doubted rail is left alone after so long without traffic.
const FORGET: Duration = Duration::from_secs(60);

impl<S: Streams> SockDriver<S> {
    /// Switches suspicion on, with its limits, or off. Switched off, rails are above doubt.
    pub fn set_suspicion(&mut self, limits: Option<Suspicion>) {
        self.suspicion = limits;
        for ni in self.nis.values_mut() {
            ni.options.even_retries = limits.is_some();
        }
    }

    /// Sets the driver's own time limits; that of retransmission for streams from now on.
    pub fn set_time_limits(&mut self, limits: TimeLimits) {
        self.limits = limits;
        for ni in self.nis.values_mut() {
            ni.options.rto_max = limits.rto_max;
        }
    }

    /// Sets how many bytes one connection retains until they are acknowledged, towards a peer that
    /// recognizes duplicates (`retained_per_connection`). At the limit nothing more is written to it;
    /// one write may go beyond.
    pub fn set_retained_per_connection(&mut self, bytes: usize) {
        self.retained_max = bytes;
    }

    /// A message is on its way to a peer, or waits for it: its rail is worth a look.
    pub(super) fn watch(&mut self, now: Instant, key: PeerKey) {
        let Some(limits) = self.suspicion else { return };
        let every = self.look_interval(limits);
        let Some(peer) = self.peers.get_mut(key) else { return };
        if peer.look_at == Instant::FAR_FUTURE {
            peer.look_at = now + every;
            self.timers.insert((peer.look_at, Timer::Look(key)));
            self.watched += 1;
        }
    }

    fn look_interval(&self, limits: Suspicion) -> Duration {
        let looks = u32::try_from(self.watched).unwrap_or(u32::MAX);
        (limits.after / LOOKS_PER_LIMIT).max(LOOK_COST.saturating_mul(looks))
    }

    /// The record of a peer goes: its rail is watched no more. Its last judgement is reported with
    /// the next flush.
    pub(super) fn unwatch(&mut self, key: PeerKey, peer: &Peer) {
        if peer.look_at != Instant::FAR_FUTURE {
            self.timers.remove(&(peer.look_at, Timer::Look(key)));
            self.watched -= 1;
        }
        if peer.watch.doubt() != Doubt::None {
            self.judged.push((peer.ni, peer.id.nid, Doubt::None));
        }
    }

    /// Keeps the record of a peer that has always connected to us, if its rail is in doubt: the next
    /// message to it would make a new one, and that would be above doubt. From here on we connect to
    /// it as well, as that one would.
    pub(super) fn keep_doubted(&mut self, key: PeerKey) -> bool {
        let Some(peer) = self.peers.get_mut(key) else { return false };
        peer.active = peer.watch.doubt() != Doubt::None && !peer.id.pid.is_user();
        peer.active
    }

    /// Reports what has been found out of rails between two looks.
    pub(super) fn report_judged<U: Upper + ?Sized>(&mut self, now: Instant, up: &mut U) {
        for (ni, nid, doubt) in core::mem::take(&mut self.judged) {
            up.rail_changed(now, ni, nid, doubt);
        }
    }

    /// The timer of a rail has fired.
    pub(super) fn look<U: Upper + ?Sized>(&mut self, now: Instant, key: PeerKey, up: &mut U) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        peer.look_at = Instant::FAR_FUTURE;
        self.watched -= 1;
        let Some(limits) = self.suspicion else {
            if peer.watch.doubt() != Doubt::None {
                peer.watch.trust(now);
                let (ni, nid) = (peer.ni, peer.id.nid);
                up.rail_changed(now, ni, nid, Doubt::None);
            }
            return;
        };
        let conns = peer.conns.clone();
        let attempt = peer.dialer.trying();
        let (mut busy, mut seen) = (attempt.is_some(), Seen::Nothing);
        for conn in conns {
            if let Some(shown) = self.look_at_conn(now, limits, conn) {
                busy = true;
                seen = seen.max(shown);
            }
        }
        if let Some(Phase::Connecting(dialed) | Phase::AwaitHello { dialed, .. }) =
            attempt.and_then(|attempt| self.conns.get(attempt)).map(|conn| &conn.phase)
            && now.saturating_since(dialed.begun) > limits.limit(Duration::ZERO)
        {
            seen = Seen::Silent;
        }
        let Some(peer) = self.peers.get_mut(key) else { return };
        busy |= !peer.waiting.is_empty();
        if !peer.waiting.is_empty()
            && peer.conns.is_empty()
            && let Some(since) = peer.dialer.refused_since()
            && now.saturating_since(since) > limits.limit(Duration::ZERO)
        {
            // It is there and takes nothing: what waits may do better elsewhere.
            seen = Seen::Silent;
        }
        let in_use = now < peer.wanted + IN_USE;
        let has_keepalives = peer.session.is_none_or(|(version, _)| version.has_keepalives());
        peer.watch.must_carry = has_keepalives && !in_use;
        self.judge_burst(now, limits, key);
        let Some(peer) = self.peers.get_mut(key) else { return };
        let news = if now <= peer.wanted + FORGET {
            peer.watch.saw(now, seen)
        } else if peer.watch.doubt() != Doubt::None {
            peer.watch.trust(now);
            self.arm(key, now);
            Some(Doubt::None)
        } else {
            None
        };
        let Some(peer) = self.peers.get(key) else { return };
        let (ni, nid, doubted) = (peer.ni, peer.id.nid, peer.watch.doubt() != Doubt::None);
        if doubted && !busy {
            self.ask_for_proof(now, key);
        }
        self.redial(now, key, up);
        if busy || doubted {
            self.watch(now, key);
        }
        if let Some(doubt) = news {
            self.stats.rails_doubted += u64::from(doubt == Doubt::Silent);
            up.rail_changed(now, ni, nid, doubt);
        }
    }

    /// An attempt to connect to a peer without connections has failed: as long as no other succeeds, no
    /// rail that carries is worse than this one.
    pub(super) fn doubt_unreached<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: PeerKey,
        up: &mut U,
    ) {
        if self.suspicion.is_none() {
            return;
        }
        let Some(peer) = self.peers.get_mut(key).filter(|peer| now <= peer.wanted + FORGET) else {
            return;
        };
        let (ni, nid) = (peer.ni, peer.id.nid);
        if let Some(doubt) = peer.watch.saw(now, Seen::Silent) {
            self.stats.rails_doubted += 1;
            up.rail_changed(now, ni, nid, doubt);
        }
        self.watch(now, key);
    }

    /// What one connection shows; `None` if nothing was on the way since the last look.
    pub(super) fn look_at_conn(
        &mut self,
        now: Instant,
        limits: Suspicion,
        key: ConnKey,
    ) -> Option<Seen> {
        let state = self.conns.get_mut(key)?.up_mut()?;
        if state.tx_deadline == Instant::FAR_FUTURE {
            state.mark.clear();
            state.run = Run::default();
            return None;
        }
        let before = state.acked;
        let look = self.look_interval(limits);
        self.note_progress(now, key);
        let conn = self.conns.get_mut(key)?;
        let stream = conn.stream;
        let state = conn.up_mut()?;
        let progress = state.acked > before;
        let (acked, key) = (state.acked, state.peer);
        let (moved, time) = state.run.look(now, acked, state.written);
        if let Some(peer) = self.peers.get_mut(key) {
            if peer.watch.doubt() == Doubt::None {
                peer.pace.saw(moved, time);
            }
            if let Some(carries) = state.run.judge(limits.after, burst_limit(limits, look, peer)) {
                peer.watch.in_use(carries);
            }
        }
        let age = state.mark.age(now, state.acked, state.written);
        let Some(transport) = self.streams.transport(stream) else {
            return Some(if progress { Seen::Sound } else { Seen::Nothing });
        };
        let loses = state.loss.look(&transport);
        let probation = self.peers.get(state.peer).is_some_and(|peer| peer.watch.on_probation(now));
        if !transport.rtt_min.is_zero()
            && let Some(peer) = self.peers.get_mut(state.peer)
        {
            peer.rtt = Some(transport.rtt_min);
        }
        if waits_for_receiver(&transport) {
            // All that was sent is acknowledged, so what comes now is as new as this look.
            state.mark.clear();
            state.mark.wrote(now, state.written);
            state.run.begin();
        }
        Some(limits.judge(&transport, age, loses, progress, probation))
    }

    /// Sends something over an idle rail that will tell how it is.
    fn ask_for_proof(&mut self, now: Instant, key: PeerKey) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        peer.looks = peer.looks.wrapping_add(1);
        if !peer.looks.is_multiple_of(LOOKS_PER_PROOF) {
            return;
        }
        if peer.conns.is_empty() {
            self.want_connections(now, key);
        } else if peer.session.is_some_and(|(version, _)| version.has_keepalives()) {
            if peer.watch.wants_load(now) {
                self.send_burst(now, key);
            } else {
                self.send_keepalive(now, key);
            }
        } else {
            // Nothing harmless can be said to it: silence is the only proof.
            let _ = peer.watch.saw(now, Seen::Sound);
        }
    }

    /// Gives a doubted rail a load to carry.
    fn send_burst(&mut self, now: Instant, key: PeerKey) {
        let Some(conn) = self.best_conn(key, Load::Noop) else { return };
        let timeout = self.timeout_of(conn);
        let Some(state) = self.conns.get_mut(conn).and_then(Conn::up_mut) else { return };
        if !state.tx.is_empty() {
            return;
        }
        while state.tx.bytes() < BURST {
            state.tx.push_noop(Noop::Keepalive, false);
        }
        let end = state.written + state.tx.bytes();
        if let Some(peer) = self.peers.get_mut(key) {
            peer.burst = Some(Burst { conn, end, since: now });
        }
        self.stats.proof_bursts += 1;
        self.queued(now, conn, timeout);
    }

    /// Whether a burst has come through, and at what pace.
    fn judge_burst(&mut self, now: Instant, limits: Suspicion, key: PeerKey) {
        let look = self.look_interval(limits);
        let Some(peer) = self.peers.get_mut(key) else { return };
        let Some(burst) = peer.burst else { return };
        let allowed = burst_limit(limits, look, peer);
        let took = now.saturating_since(burst.since);
        let acked = self.conns.get(burst.conn).and_then(Conn::up).map(|state| state.acked);
        let through = acked.is_some_and(|acked| acked >= burst.end);
        if through && took <= allowed {
            peer.watch.carries();
        } else if through || took > allowed || acked.is_none() {
            peer.watch.falls_short();
        } else {
            return;
        }
        peer.burst = None;
    }

    /// [`lnet::Driver::reclaim`].
    pub fn reclaim(&mut self, ni: NiId, to: Option<ProcessId>) -> Vec<InDoubt> {
        let is_meant = |state: &Up| to.is_none_or(|to| state.from == to);
        let mut taken = Vec::new();
        for conn in self.conns.values_mut().filter(|conn| conn.ni == ni) {
            let Some(state) = conn.up_mut().filter(|state| is_meant(state)) else { continue };
            let Some(mut retained) = state.retained.take() else { continue };
            retained.acknowledged(state.acked, &mut self.repaid);
            taken.push((retained, state.from.nid));
        }
        let mut in_doubt = Vec::new();
        for (mut retained, from) in taken {
            in_doubt.extend(self.hand_back(&mut retained, ni, from, false));
        }
        in_doubt.sort_by_key(|message| message.retention.born);
        in_doubt
    }

    /// [`lnet::Driver::recall`].
    pub fn recall(&mut self, ni: NiId, to: ProcessId, msg: MsgId) -> bool {
        let Some(key) = self.find_peer(ni, to.nid, to.pid) else { return false };
        let Some(peer) = self.peers.get_mut(key) else { return false };
        if let Some(at) = peer.waiting.iter().position(|m| m.transmit.msg == msg) {
            peer.waiting.remove(at);
            self.stats.msgs_recalled += 1;
            return true;
        }
        for conn in &peer.conns {
            let Some(up) = self.conns.get_mut(*conn).and_then(Conn::up_mut) else { continue };
            if let Some(cookie) = up.tx.take_back(msg) {
                if cookie != 0 {
                    peer.owed.push(cookie);
                    if !peer.ack_listed {
                        peer.ack_listed = true;
                        self.ack_dirty.push(key);
                    }
                }
                self.stats.msgs_recalled += 1;
                return true;
            }
        }
        false
    }
}

/// How long a burst may take to a peer whose rail is looked at every `look`.
fn burst_limit(limits: Suspicion, look: Duration, peer: &Peer) -> Duration {
    let round_trips = peer.rtt.unwrap_or_default().saturating_mul(limits.rtts);
    look * 2 + round_trips + peer.pace.burst_time(limits.after)
}
