//! The end of connections, peers and interfaces, and the fate of what they held (K-40 to K-43). Those that
//! are read to their end before are in `part.rs`.

use std::collections::VecDeque;

use lnet::{NI_STOPPED, Transmit};
use lnet_types::{Errno, Fault, Instant, IoVec, MsgId, NiId, Nid};
use smallvec::SmallVec;

use super::SockDriver;
use super::conn::{Conn, Outgoing};
use crate::error::{RX_BROKEN, Why};
use crate::peer::{ConnKey, PeerKey, Waiting};
use crate::proto::admit::{AcceptFrom, judge_name};
use crate::proto::kinds::Kind;
use crate::proto::txq::{Queued, Unwritten};
use crate::stats::Refusal;
use crate::streams::Streams;
use crate::upper::Upper;

impl<S: Streams> SockDriver<S> {
    /// Puts a connection into the tables.
    pub(super) fn add_conn(&mut self, conn: Conn) -> ConnKey {
        let at = conn.stream.0 as usize;
        self.by_address.entry(conn.remote.ip()).or_default().conns += 1;
        let key = self.conns.insert(conn);
        if self.by_stream.len() <= at {
            self.by_stream.resize(at + 1, None);
        }
        if let Some(place) = self.by_stream.get_mut(at) {
            *place = Some(key);
        }
        key
    }

    /// Closes a connection in any phase, whatever of it is unread. `reset` sends a reset even if nothing is.
    pub(super) fn close_conn<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        why: Why,
        reset: bool,
        up: &mut U,
    ) {
        self.stop_conn_timer(key);
        let Some(mut conn) = self.conns.remove(key) else { return };
        let parted = conn.up().and_then(|state| state.parted);
        if let Some(place) = self.by_stream.get_mut(conn.stream.0 as usize) {
            *place = None;
        }
        self.streams.close(conn.stream, reset || parted.is_some_and(|parted| parted.reset));
        let pending = conn.is_pending();
        self.pending -= usize::from(pending);
        let ip = conn.remote.ip();
        if let Some(held) = self.by_address.get_mut(&ip) {
            held.conns -= 1;
            held.pending -= usize::from(pending);
            held.ahead -= conn.ahead();
            if held.conns == 0 {
                self.by_address.remove(&ip);
            }
        }
        let ni = conn.ni;
        let Some(state) = conn.up_mut() else { return };
        let outgoing = parted.is_none().then(|| state.take_outgoing(ni));
        if let Some(msg) = state.inbound.take().and_then(|inbound| inbound.msg) {
            up.rx_done(now, msg, Err(RX_BROKEN));
        }
        if let Some(deferred) = state.deferred.take() {
            up.rx_gone(now, ni, deferred.rx);
        }
        if let Some(outgoing) = outgoing {
            self.ended(now, key, outgoing, why, up);
        }
    }

    /// What a usable connection had for its peer, and what its end means for the peer's others.
    pub(super) fn ended<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        outgoing: Outgoing,
        why: Why,
        up: &mut U,
    ) {
        let Outgoing { ni, peer, from, kind, written, retained, items } = outgoing;
        self.stats.closed += 1;
        match why {
            Why::Orderly | Why::Left | Why::Stopped | Why::Cut => {}
            _ => self.stats.closed_with_error += 1,
        }
        match why {
            Why::SendTimeout | Why::Replaced => self.stats.send_timeouts += 1,
            Why::RecvTimeout => self.stats.recv_timeouts += 1,
            Why::Protocol(refusal) => self.stats.refuse(refusal),
            Why::Misbehaved(_) => self.stats.refuse(Refusal::Misbehaved),
            _ => {}
        }
        match why {
            Why::Protocol(_) | Why::Misbehaved(_) => {
                tracing::info!(peer = %from, %kind, ?why, "peer broke the protocol");
            }
            _ => tracing::debug!(peer = %from, %kind, ?why, "connection closed"),
        }
        // An interface that is stopped in order sends what it has; any other may not have.
        let in_order = matches!(why, Why::Stopped);
        if let Some(mut retained) = retained {
            let in_doubt = self.hand_back(&mut retained, ni, from.nid, in_order);
            self.end_repaid(now, up);
            if !in_doubt.is_empty() {
                up.tx_in_doubt(now, in_doubt);
            }
        }
        let legacy = self.config.legacy_close_status;
        if matches!(why, Why::Replaced) {
            self.wait_again(now, peer, items);
        } else {
            for (n, item) in items.into_iter().enumerate() {
                if let Some(msg) = item.msg() {
                    self.fail(now, msg, why.fault(item.sent(), n == 0, legacy), up);
                }
            }
        }
        if written > 0 && !in_order {
            up.written_lost(now, ni, from.nid);
        }
        let Some(record) = self.peers.get_mut(peer) else { return };
        record.conns.retain(|conn| *conn != key);
        record.controls -= u32::from(kind == Kind::Control);
        record.dialer.unsettle();
        if why.takes_siblings() {
            for sibling in record.conns.clone() {
                match why {
                    // Of one who breaks the protocol nothing more is taken.
                    Why::Protocol(_) | Why::Misbehaved(_) => {
                        self.close_conn(now, sibling, why.for_sibling(), false, up);
                    }
                    _ => self.part_conn(now, sibling, why.for_sibling(), false, up),
                }
            }
        }
        let Some(record) = self.peers.get(peer) else { return };
        if record.conns.is_empty() {
            // A sibling may have been the last one and said so already.
            self.last_closed(now, peer, why, up);
        }
    }

    /// Messages of a connection that is replaced wait for the next one.
    fn wait_again(&mut self, now: Instant, key: PeerKey, items: VecDeque<Queued>) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        // One that has always connected to us may not know that it has to.
        peer.active = true;
        peer.dialer.unsettle();
        for unwritten in items.into_iter().filter_map(Queued::into_message) {
            let Unwritten { msg, hdr, payload, until, retention } = unwritten;
            let (ni, to, repeats) = (peer.ni, peer.id, peer.repeats);
            let timeout = until.saturating_since(now);
            let transmit = Transmit {
                msg,
                ni,
                to,
                peer_ni: None,
                hdr,
                payload,
                // This driver lets no peer write to memory.
                sink: IoVec::new(),
                timeout,
                retention,
                repeats,
            };
            peer.waiting.push_back(Waiting { transmit, deadline: until, until });
        }
        let next = peer.waiting.iter().map(|m| m.deadline).min();
        if let Some(next) = next {
            self.want_connections(now, key);
            self.watch(now, key);
            self.arm(key, next);
        }
    }

    /// The last connection to a peer is gone (K-42).
    fn last_closed<U: Upper + ?Sized>(&mut self, now: Instant, key: PeerKey, why: Why, up: &mut U) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        if peer.session.take().is_none() {
            return;
        }
        peer.taught = None;
        // The acknowledgements were for messages of connections that are gone.
        while peer.owed.pop().is_some() {}
        if !peer.dialer.is_resting() {
            return;
        }
        let (ni, nid, last_alive, active) = (peer.ni, peer.id.nid, peer.last_alive, peer.active);
        let fault = why.fault(0, false, self.config.legacy_close_status);
        self.fail_waiting(now, key, fault, up);
        // The kernel's driver does not report that the other side has closed all connections. But
        // that is how the end of a process looks, and a gateway is to be left at once: the
        // node asks for a sign of life before it counts on this peer again.
        let left = matches!(why, Why::Left) && !self.config.legacy_close_status;
        if why.errno() != Errno::OK || left {
            up.peer_down(now, ni, nid, last_alive);
        }
        if active || self.keep_doubted(key) {
            self.arm(key, now + self.config.min_reconnect);
        } else {
            self.remove_peer(key);
        }
    }

    /// Closes all connections to a peer.
    pub(super) fn close_peer_conns<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: PeerKey,
        why: Why,
        up: &mut U,
    ) {
        for conn in self.conns_of(key) {
            self.close_conn(now, conn, why, false, up);
        }
    }

    fn conns_of(&self, key: PeerKey) -> SmallVec<[ConnKey; 3]> {
        self.peers.get(key).map(|peer| peer.conns.clone()).unwrap_or_default()
    }

    /// Reports a message as failed.
    pub(super) fn fail<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        msg: MsgId,
        fault: Fault,
        up: &mut U,
    ) {
        self.stats.msgs_failed += 1;
        up.tx_done(now, msg, Err(fault));
    }

    /// Reports all messages that wait for a connection to a peer as failed.
    pub(super) fn fail_waiting<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: PeerKey,
        fault: Fault,
        up: &mut U,
    ) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        for waiting in core::mem::take(&mut peer.waiting) {
            self.fail(now, waiting.transmit.msg, fault, up);
        }
    }

    /// Sets which peers may connect from now on. What others have opened that may no longer is closed,
    /// and what was on it fails as on any connection that goes; what we opened to them stays.
    pub fn set_accept_from<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        accept_from: AcceptFrom,
        up: &mut U,
    ) {
        self.config.accept_from = accept_from;
        let shut_out: Vec<ConnKey> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.came)
            .filter(|(_, conn)| {
                let (Some(peer), Some(ni)) = (conn.up(), self.ni(conn.ni)) else { return false };
                judge_name(&self.config, ni.nid, peer.from.nid).is_some()
            })
            .map(|(key, _)| key)
            .collect();
        for key in shut_out {
            let Some(conn) = self.conns.get(key) else { continue };
            let (ni, remote) = (conn.ni, conn.remote);
            let peer = conn.up().map(|up| up.from.nid);
            self.turn_away(now, ni, remote, peer, Refusal::NidNotAccepted);
            self.close_conn(now, key, Why::Orderly, true, up);
        }
    }

    /// Closes the connections to the peers that `meant` picks by interface and NID, or with `forget`
    /// everything that is kept of them: attempts too, and what waits for one. What was on them ends as on
    /// any connection that is closed in order, and the next message connects anew. Returns how many peers
    /// were picked.
    pub fn disconnect<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        meant: impl Fn(NiId, Nid) -> bool,
        forget: bool,
        up: &mut U,
    ) -> usize {
        let picked: Vec<PeerKey> = self
            .peers
            .iter()
            .filter(|(_, peer)| meant(peer.ni, peer.id.nid))
            .filter(|(_, peer)| forget || !peer.conns.is_empty())
            .map(|(key, _)| key)
            .collect();
        for key in &picked {
            if forget && let Some(peer) = self.peers.get_mut(*key) {
                let attempt = peer.dialer.trying();
                peer.dialer.rest();
                if let Some(attempt) = attempt {
                    self.close_conn(now, attempt, Why::Orderly, false, up);
                }
            }
            for conn in self.conns_of(*key) {
                self.part_conn(now, conn, Why::Orderly, false, up);
            }
            if forget {
                let fault = Why::Orderly.fault(0, false, self.config.legacy_close_status);
                self.fail_waiting(now, *key, fault, up);
                self.remove_peer(*key);
            }
        }
        picked.len()
    }

    /// Stops serving an interface: what it held ends with `ENETDOWN`.
    pub fn ni_stop<U: Upper + ?Sized>(&mut self, now: Instant, ni: NiId, up: &mut U) {
        if !self.nis.contains_key(ni) {
            return;
        }
        self.unlisten(ni);
        self.end_all(now, ni, Why::Stopped, NI_STOPPED, up);
        let peers: Vec<PeerKey> =
            self.peers.iter().filter(|(_, peer)| peer.ni == ni).map(|(key, _)| key).collect();
        for key in peers {
            self.remove_peer(key);
        }
        self.nis.remove(ni);
        self.ni_list.retain(|other| *other != ni);
    }

    /// Ends all connections, attempts and waiting messages of an interface.
    pub(super) fn end_all<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        ni: NiId,
        why: Why,
        waiting: Fault,
        up: &mut U,
    ) {
        let conns: Vec<ConnKey> =
            self.conns.iter().filter(|(_, conn)| conn.ni == ni).map(|(key, _)| key).collect();
        let peers: Vec<PeerKey> =
            self.peers.iter().filter(|(_, peer)| peer.ni == ni).map(|(key, _)| key).collect();
        for key in &peers {
            self.fail_waiting(now, *key, waiting, up);
            if let Some(peer) = self.peers.get_mut(*key) {
                peer.dialer.rest();
            }
        }
        for key in conns {
            self.close_conn(now, key, why, matches!(why, Why::Cut), up);
        }
    }
}
