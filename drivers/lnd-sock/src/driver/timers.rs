//! All that depends on time. Each peer has one timer, for the earliest of its reasons; when it fires
//! the peer and its connections are examined and the timer is set anew. A reason that has moved
//! later leaves the timer where it is: firing early costs one examination. So 10,000 idle peers cost
//! an examination each per keepalive interval, and a message costs none.

use core::time::Duration;
use std::collections::VecDeque;

use lnet::Doubt;
use lnet_types::{Instant, Memory};

use super::conn::Conn;
use super::transmit::RETAINED_LOOK;
use super::{SockDriver, Timer};
use crate::error::{UNSENT, WAITED, Why};
use crate::peer::{ConnKey, PeerKey};
use crate::proto::conn::Cut;
use crate::streams::Streams;
use crate::upper::Upper;

/// No two keepalives to a peer closer than this (K-50).
const KEEPALIVE_GAP: Duration = Duration::from_secs(10);
/// Keepalives are due at multiples of this, so that many idle peers are looked at together.
const KEEPALIVE_GRAIN: u64 = 1_000_000_000;
/// Timers handled in one call, before others have their turn.
const TIMERS_BUDGET: usize = 1024;

impl<S: Streams> SockDriver<S> {
    /// Sees to it that a peer is looked at no later than `at`.
    #[inline]
    pub(super) fn arm(&mut self, key: PeerKey, at: Instant) {
        if self.peers.get(key).is_some_and(|peer| at < peer.timer) {
            self.set_timer(key, at);
        }
    }

    fn set_timer(&mut self, key: PeerKey, at: Instant) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        if peer.timer != Instant::FAR_FUTURE {
            self.timers.remove(&(peer.timer, Timer::Peer(key)));
        }
        peer.timer = at;
        self.timers.insert((at, Timer::Peer(key)));
    }

    /// Sets the time limit of a connection without a peer, or of one that has parted from it.
    pub(super) fn set_conn_timer(&mut self, key: ConnKey, at: Instant) {
        self.stop_conn_timer(key);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.timer = at;
            self.timers.insert((at, Timer::Conn(key)));
        }
    }

    pub(super) fn stop_conn_timer(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key)
            && conn.timer != Instant::FAR_FUTURE
        {
            self.timers.remove(&(conn.timer, Timer::Conn(key)));
            conn.timer = Instant::FAR_FUTURE;
        }
    }

    /// When a peer that falls silent is to be asked for a sign of life.
    pub(super) fn arm_keepalive(&mut self, now: Instant, key: PeerKey) {
        if let Some(at) = self.keepalive_due(now, key) {
            self.arm(key, at);
        }
    }

    fn keepalive_due(&self, now: Instant, key: PeerKey) -> Option<Instant> {
        let peer = self.peers.get(key)?;
        let (version, _) = peer.session?;
        if self.config.keepalive.is_zero() || !version.has_keepalives() || peer.conns.is_empty() {
            return None;
        }
        let due = (peer.last_alive + self.config.keepalive).max(peer.keepalive_after);
        if due <= now {
            return Some(due);
        }
        Some(Instant(due.0.div_ceil(KEEPALIVE_GRAIN).saturating_mul(KEEPALIVE_GRAIN)))
    }

    pub(super) fn fire_timers<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        up: &mut U,
        mem: &dyn Memory,
    ) {
        for _ in 0..TIMERS_BUDGET {
            let Some(&(at, timer)) = self.timers.first() else { return };
            if at > now {
                return;
            }
            self.timers.pop_first();
            match timer {
                Timer::Conn(key) => {
                    if let Some(conn) = self.conns.get_mut(key) {
                        conn.timer = Instant::FAR_FUTURE;
                    }
                    if self.conns.get(key).is_some_and(|conn| conn.up().is_some()) {
                        self.close_conn(now, key, Why::Orderly, false, up);
                    } else {
                        self.handshake_cut(now, key, Cut::Deadline, up);
                    }
                }
                Timer::Accept(listener) => self.accept(now, listener),
                Timer::Look(key) => self.look(now, key, up),
                Timer::Peer(key) => {
                    if let Some(peer) = self.peers.get_mut(key) {
                        peer.timer = Instant::FAR_FUTURE;
                    }
                    self.examine(now, key, up, mem);
                }
            }
        }
    }

    /// Does what has become due for a peer, and sets its timer.
    fn examine<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: PeerKey,
        up: &mut U,
        mem: &dyn Memory,
    ) {
        self.expire_waiting(now, key, up);
        let conns = self.peers.get(key).map(|peer| peer.conns.clone()).unwrap_or_default();
        // All of them first, since a connection that has timed out takes the others along.
        for conn in &conns {
            self.note_progress(now, *conn);
        }
        for conn in conns {
            self.examine_conn(now, conn, up, mem);
        }
        let Some(peer) = self.peers.get(key) else { return };
        match (peer.dialer.trying(), peer.dialer.until()) {
            (Some(conn), Some(until)) if until <= now => {
                self.handshake_cut(now, conn, Cut::Deadline, up);
            }
            _ => self.dial(now, key, up),
        }
        if self.keepalive_due(now, key).is_some_and(|due| due <= now) {
            if let Some(peer) = self.peers.get_mut(key) {
                peer.keepalive_after = now + KEEPALIVE_GAP;
            }
            self.send_keepalive(now, key);
        }
        let Some(peer) = self.peers.get(key) else { return };
        if peer.is_forgettable(now) {
            return self.remove_peer(key);
        }
        let next = self.next_look(now, key);
        self.arm(key, next);
    }

    /// Messages that have waited for a connection past their deadline (K-32).
    pub(super) fn expire_waiting<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: PeerKey,
        up: &mut U,
    ) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        if !peer.waiting.iter().any(|m| m.deadline <= now) {
            return;
        }
        let (expired, waiting): (VecDeque<_>, VecDeque<_>) =
            core::mem::take(&mut peer.waiting).into_iter().partition(|m| m.deadline <= now);
        peer.waiting = waiting;
        // Not a byte of them is on its way. Where that is looked after, they may go again.
        let fault = if self.suspicion.is_some() { UNSENT } else { WAITED };
        for m in expired {
            self.fail(now, m.transmit.msg, fault, up);
        }
    }

    /// What the peer's TCP has acknowledged extends the time limit (K-30).
    pub(super) fn note_progress(&mut self, now: Instant, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let stream = conn.stream;
        let Some(state) = conn.up_mut() else { return };
        if state.tx_deadline == Instant::FAR_FUTURE {
            return;
        }
        let acked = state.written.saturating_sub(self.streams.unacked(stream));
        let progress = acked > state.acked;
        state.acked = acked;
        if progress && let Some(peer) = self.peers.get_mut(state.peer) {
            // An acknowledgement is a sign of life too; that is what keepalives are for.
            peer.last_alive = now;
        }
        if let Some(retained) = &mut state.retained {
            retained.acknowledged(acked, &mut self.repaid);
            if retained.bytes() == 0 {
                // Its memory is for connections that are busy: for the next one of them.
                self.spare = state.retained.take().filter(|retained| retained.is_small());
            }
        }
        let waits = !state.tx.is_empty() && !state.blocked;
        if state.tx.is_empty() && acked == state.written {
            state.tx_deadline = Instant::FAR_FUTURE;
            state.patience = Duration::ZERO;
        } else if progress {
            state.tx_deadline = now + state.patience;
        }
        if waits && progress {
            // It may have stopped because it retained too much.
            self.mark_dirty(key);
        }
    }

    /// Time limits of one connection (K-30, K-31, DEC-47).
    fn examine_conn<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        up: &mut U,
        mem: &dyn Memory,
    ) {
        let Some(state) = self.conns.get(key).and_then(Conn::up) else { return };
        let replaces = self.peers.get(state.peer).is_some_and(|peer| self.replaces(peer));
        let Some(state) = self.conns.get_mut(key).and_then(Conn::up_mut) else { return };
        if state.rx_deadline <= now {
            return self.close_conn(now, key, Why::RecvTimeout, false, up);
        }
        if state.tx_deadline <= now {
            let why = if replaces { Why::Replaced } else { Why::SendTimeout };
            return match why {
                Why::Replaced => self.part_conn(now, key, why, true, up),
                _ => self.close_conn(now, key, why, true, up),
            };
        }
        // Messages have their own limits as well.
        let peer = state.peer;
        let mut expired = Vec::new();
        let legacy = self.config.legacy_close_status;
        // One that has been begun is late by itself, and no reason to throw away what others have on
        // the way (DEC-47); kernel nodes do.
        let disowned = match self.suspicion {
            Some(_) => state.tx.disown_begun(now, mem),
            None => None,
        };
        let begun = state.tx.expire(now, |msg, cookie| expired.push((msg, cookie)));
        let fault = Why::SendTimeout.fault(0, false, legacy);
        if let Some((msg, sent)) = disowned {
            self.fail(now, msg, Why::SendTimeout.fault(sent, true, legacy), up);
        }
        for (msg, cookie) in expired {
            if cookie != 0
                && let Some(peer_record) = self.peers.get_mut(peer)
            {
                peer_record.owed.push(cookie);
                if !peer_record.ack_listed {
                    peer_record.ack_listed = true;
                    self.ack_dirty.push(peer);
                }
            }
            self.fail(now, msg, fault, up);
        }
        if begun {
            self.close_conn(now, key, Why::SendTimeout, true, up);
        }
    }

    /// The earliest reason to look at a peer again.
    fn next_look(&self, now: Instant, key: PeerKey) -> Instant {
        let Some(peer) = self.peers.get(key) else { return Instant::FAR_FUTURE };
        let timeout = self.timeout(peer.ni);
        let of_conn = |conn: &ConnKey| {
            let Some(state) = self.conns.get(*conn).and_then(Conn::up) else {
                return Instant::FAR_FUTURE;
            };
            let progress = if state.tx_deadline == Instant::FAR_FUTURE {
                Instant::FAR_FUTURE
            } else {
                // Not later than the limit itself, and never now again.
                state.tx_deadline.min(now + timeout / 4)
            };
            let message = state.tx.next_deadline().unwrap_or(Instant::FAR_FUTURE);
            // It waits for its transport's acknowledgements, which come without a notice.
            let is_full = !state.tx.is_empty()
                && !state.blocked
                && state.retained.as_ref().is_some_and(|r| r.bytes() >= self.retained_max);
            let full = if is_full { now + RETAINED_LOOK } else { Instant::FAR_FUTURE };
            state.rx_deadline.min(progress).min(message).min(full)
        };
        let idle = peer.conns.is_empty()
            && peer.waiting.is_empty()
            && peer.dialer.is_resting()
            && peer.watch.doubt() == Doubt::None;
        let forget = if idle { peer.dialer.not_before.max(now) } else { Instant::FAR_FUTURE };
        peer.conns
            .iter()
            .map(of_conn)
            .chain(peer.waiting.iter().map(|m| m.deadline))
            .chain(peer.dialer.due())
            .chain(peer.dialer.until())
            .chain(self.keepalive_due(now, key))
            .chain([forget])
            .min()
            .unwrap_or(Instant::FAR_FUTURE)
    }
}
