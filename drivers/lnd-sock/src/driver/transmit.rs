//! The way down: a message is queued on the best connection of its peer (K-14), or waits for one
//! (K-15); `flush` writes what is queued with as few calls as possible.

use core::time::Duration;
use std::io::IoSlice;

use lnet::{Doubt, Transmit};
use lnet_types::{Fault, Instant, Memory};
use lnet_wire::sock::Noop;
use smallvec::SmallVec;

use super::SockDriver;
use super::conn::{Conn, Phase, Up};
use crate::error::{CUT, LARGE_NID, NO_ROOM, NOT_CONNECTABLE, TOO_SOON, Why};
use crate::peer::{ConnKey, Peer, PeerKey, Waiting};
use crate::proto::conn::can_name;
use crate::proto::kinds::{Kind, Load};
use crate::proto::txq::{Piece, Pieces};
use crate::streams::{Stop, Streams};
use crate::upper::Upper;

/// How long a connection that retains too much waits before it asks its transport again.
pub(super) const RETAINED_LOOK: Duration = Duration::from_millis(1);

impl<S: Streams> SockDriver<S> {
    /// Queues a message; it goes out with the next `flush`.
    ///
    /// # Errors
    /// It is refused and will not be reported again: the interface is not served, the peer can't be
    /// connected to, or not yet again, or too many messages wait for it.
    pub fn send(&mut self, now: Instant, transmit: &Transmit) -> Result<(), Fault> {
        let Some(ni) = self.nis.get(transmit.ni) else { return Err(lnet::NI_STOPPED) };
        if ni.blocked {
            self.stats.msgs_queued += 1;
            self.ended.push((transmit.msg, CUT));
            return Ok(());
        }
        let ni_timeout = ni.timeout;
        let limit = self.config.limits.waiting_per_peer;
        // A caller with more patience than the interface has it for its connection too; where rails
        // are looked after, that is, and no caller waits for the connection to be abandoned.
        let patience = if self.suspicion.is_some() { transmit.timeout } else { Duration::ZERO };
        let until = now + transmit.timeout;
        let deadline = until.min(now + ni_timeout.max(patience));
        let key = self.peer_for(transmit)?;
        let Some(peer) = self.peers.get_mut(key) else { return Err(NOT_CONNECTABLE) };
        peer.wanted = now;
        peer.repeats = transmit.repeats;
        let Some(peer) = self.peers.get(key) else { return Err(NOT_CONNECTABLE) };
        let is_complete = is_complete(peer);
        let version = peer.session.map_or_else(
            || peer.taught.unwrap_or_else(|| self.config.first_version(&peer.addr)),
            |(version, _)| version,
        );
        let load = Load::of(version, transmit.payload.len(), self.config.min_bulk);
        if let Some(conn) = self.best_conn_of(peer, load) {
            if !can_name(version, &[transmit.hdr.dst, transmit.hdr.src]) {
                return Err(LARGE_NID);
            }
            let timeout = self.progress_limit(peer, ni_timeout, patience);
            self.stats.msgs_queued += 1;
            self.queue(now, conn, transmit, until, timeout);
            if !is_complete {
                self.want_connections(now, key);
            }
            return Ok(());
        }
        if !self.want_connections(now, key) {
            return Err(TOO_SOON);
        }
        let Some(peer) = self.peers.get_mut(key) else { return Err(NOT_CONNECTABLE) };
        if peer.waiting.len() >= limit {
            return Err(NO_ROOM);
        }
        self.stats.msgs_queued += 1;
        peer.waiting.push_back(Waiting { transmit: transmit.clone(), deadline, until });
        self.watch(now, key);
        self.arm(key, deadline);
        Ok(())
    }

    /// The peer that a message goes to; a record is made for one that can be connected to (K-11).
    fn peer_for(&mut self, transmit: &Transmit) -> Result<PeerKey, Fault> {
        let (ni, to) = (transmit.ni, transmit.to);
        let known = transmit.peer_ni.and_then(|id| self.nis.get(ni)?.peers.get(id).copied());
        let is_it = |key: &PeerKey| self.peers.get(*key).is_some_and(|peer| peer.id == to);
        if let Some(key) = known.filter(is_it) {
            return Ok(key);
        }
        if let Some(key) = self.find_peer(ni, to.nid, to.pid) {
            if let (Some(id), Some(ni)) = (transmit.peer_ni, self.nis.get_mut(ni)) {
                ni.peers.insert(id, key);
                // The node's record may be a new one, which knows of no doubt.
                let doubt = self.peers.get(key).map_or(Doubt::None, |peer| peer.watch.doubt());
                if doubt != Doubt::None {
                    self.judged.push((transmit.ni, to.nid, doubt));
                }
            }
            return Ok(key);
        }
        let (Some(addr), false) = (to.nid.ip(), to.pid.is_user()) else {
            return Err(NOT_CONNECTABLE);
        };
        let n = self.ni(ni).map_or(1, |ni| ni.conns_per_peer);
        let mut peer = Peer::new(ni, to, addr, n);
        peer.active = true;
        Ok(self.add_peer(peer))
    }

    /// The connection for a load: the best type, then the fewest bytes queued, then the least
    /// recently used (K-14).
    pub(super) fn best_conn(&self, key: PeerKey, load: Load) -> Option<ConnKey> {
        self.best_conn_of(self.peers.get(key)?, load)
    }

    fn best_conn_of(&self, peer: &Peer, load: Load) -> Option<ConnKey> {
        let mut best = None;
        for conn in &peer.conns {
            let Some(up) = self.conns.get(*conn).and_then(Conn::up) else { continue };
            let Some(rank) = load.rank(up.version, up.kind) else { continue };
            // From version 3 on small messages have a type of their own.
            let is_own = rank == 0 && up.kind == Kind::Control && up.version.has_keepalives();
            if is_own && peer.controls == 1 {
                // Nearly always the first: the others are not looked at.
                return Some(*conn);
            }
            let standing = (rank, up.tx.bytes(), up.used, *conn);
            if best.is_none_or(|least| standing < least) {
                best = Some(standing);
            }
        }
        best.map(|(.., conn)| conn)
    }

    /// Queues a message on a connection.
    #[inline]
    fn queue(
        &mut self,
        now: Instant,
        key: ConnKey,
        transmit: &Transmit,
        until: Instant,
        timeout: Duration,
    ) {
        self.uses += 1;
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Conn { phase: Phase::Up(up), in_dirty, .. } = conn else { return };
        up.used = self.uses;
        let Transmit { msg, hdr, payload, retention, .. } = transmit;
        up.tx.push(*msg, hdr, payload.clone(), until, *retention);
        let (peer, look) = (up.peer, up.expect_progress(now, timeout));
        if !core::mem::replace(in_dirty, true) {
            self.dirty.push(key);
        }
        self.arm(peer, look.map_or(until, |look| look.min(until)));
        if look.is_some() {
            self.watch(now, peer);
        }
    }

    /// Something was queued: it is to be written, and must make progress within the time limit.
    pub(super) fn queued(&mut self, now: Instant, key: ConnKey, timeout: Duration) {
        self.mark_dirty(key);
        let Some(up) = self.conns.get_mut(key).and_then(Conn::up_mut) else { return };
        let peer = up.peer;
        if let Some(look) = up.expect_progress(now, timeout) {
            self.arm(peer, look);
            self.watch(now, peer);
        }
    }

    pub(super) fn mark_dirty(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key)
            && !conn.in_dirty
        {
            conn.in_dirty = true;
            self.dirty.push(key);
        }
    }

    /// Moves the messages that can go on a new connection to it, in order (K-16).
    pub(super) fn move_waiting(&mut self, now: Instant, peer: PeerKey, conn: ConnKey) {
        let Some(state) = self.conns.get(conn).and_then(Conn::up) else { return };
        let (version, kind, min_bulk) = (state.version, state.kind, self.config.min_bulk);
        let Some(record) = self.peers.get_mut(peer) else { return };
        let patient = self.suspicion.is_some();
        let waiting = core::mem::take(&mut record.waiting);
        for m in waiting {
            let load = Load::of(version, m.transmit.payload.len(), min_bulk);
            if load.rank(version, kind).is_none() {
                if let Some(record) = self.peers.get_mut(peer) {
                    record.waiting.push_back(m);
                }
            } else if can_name(version, &[m.transmit.hdr.dst, m.transmit.hdr.src]) {
                let rest = m.until.saturating_since(now);
                let patience = if patient { rest } else { Duration::ZERO };
                let timeout = self.progress_timeout_of(peer, patience);
                self.queue(now, conn, &m.transmit, m.until, timeout);
            } else {
                self.ended.push((m.transmit.msg, LARGE_NID));
            }
        }
    }

    /// The stream takes bytes again, or a connection attempt has ended.
    pub(super) fn writable<U: Upper + ?Sized>(&mut self, now: Instant, key: ConnKey, up: &mut U) {
        let timeout = self.timeout_of(key);
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.stage().is_some() {
            self.connect_ended(now, key, up);
            return self.write_outbox(now, key, up);
        }
        if let Some(state) = conn.up_mut()
            && state.blocked
        {
            state.blocked = false;
            // What was written before has moved on, so the time limit begins again.
            state.tx_deadline = now + timeout.max(state.patience);
            if let Some(peer) = self.peers.get_mut(state.peer)
                && !peer.owed.is_empty()
                && !peer.ack_listed
            {
                peer.ack_listed = true;
                self.ack_dirty.push(state.peer);
            }
        }
        // In turn with those that have waited.
        self.mark_dirty(key);
    }

    fn progress_timeout_of(&self, key: PeerKey, patience: Duration) -> Duration {
        let Some(peer) = self.peers.get(key) else { return Duration::MAX };
        self.progress_limit(peer, self.timeout(peer.ni), patience)
    }

    /// How long a connection may stay unacknowledged with a message whose caller has `patience`: as long
    /// as that, unless the message goes by another connection then. `timeout` is the interface's.
    fn progress_limit(&self, peer: &Peer, timeout: Duration, patience: Duration) -> Duration {
        if self.replaces(peer) { self.limits.reconnect.min(timeout) } else { timeout.max(patience) }
    }

    pub(super) fn timeout_of(&self, key: ConnKey) -> Duration {
        let state = self.conns.get(key).and_then(Conn::up);
        state.map_or(Duration::MAX, |state| self.progress_timeout(state.peer))
    }

    /// Writes what is queued on a connection, until it is empty, the stream is full, or the turn is over.
    pub(super) fn write_out<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        up: &mut U,
        mem: &dyn Memory,
    ) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.in_dirty = false;
        if !conn.outbox.is_done() {
            self.write_outbox(now, key, up);
        }
        let failed = loop {
            let limit = self.retained_max;
            let Some(conn) = self.conns.get(key) else { return };
            let is_full = |up: &Up| up.retained.as_ref().is_some_and(|r| r.bytes() >= limit);
            if conn.up().is_some_and(is_full) && self.retains_too_much(now, key) {
                break None;
            }
            let Some(conn) = self.conns.get_mut(key) else { return };
            let (stream, ni, ready) = (conn.stream, conn.ni, conn.outbox.is_done());
            let Some(state) = conn.up_mut() else { return };
            if !ready || state.blocked || state.tx.is_empty() {
                break None;
            }
            if self.room.write == 0 && state.kind != Kind::Control {
                self.mark_dirty(key);
                break None;
            }
            let Some(peer) = self.peers.get_mut(state.peer) else { return };
            let piggybacked = state.tx.lay_out(
                &mut peer.owed,
                self.config.checksum,
                self.room.write,
                mem,
                &mut self.stage,
                &mut self.pieces,
            );
            self.stats.acks_sent += piggybacked;
            self.stats.acks_piggybacked += piggybacked;
            self.stats.writes += 1;
            let (asked, written) = write(&mut self.streams, stream, &self.stage, &self.pieces, mem);
            match written {
                Ok(n) => {
                    self.room.write = self.room.write.saturating_sub(n);
                    let (done, spare) = (&mut self.done, &mut self.spare);
                    let (before, retained) = (state.written, &mut state.retained);
                    let (mut msgs, mut lends) = (0, false);
                    state.tx.wrote(n, |item, end| {
                        let Some(msg) = item.msg() else { return };
                        msgs += 1;
                        let has_ended =
                            item.to_retain(before + end).is_none_or(|(message, payload)| {
                                let retained = retained
                                    .get_or_insert_with(|| spare.take().unwrap_or_default());
                                retained.retain(now, msg, message, payload, mem)
                            });
                        if has_ended {
                            done.push(msg);
                        }
                    });
                    state.written += n as u64;
                    if let Some(retained) = retained {
                        if retained.is_release_due() {
                            let unacked = self.streams.unacked(stream);
                            retained.acknowledged(state.written.saturating_sub(unacked), done);
                        }
                        lends = retained.lends();
                    }
                    state.mark.wrote(now, state.written);
                    state.blocked = n < asked;
                    let ni = self.nis.get_mut(ni).map(|ni| &mut ni.traffic);
                    for traffic in [&mut state.traffic, &mut peer.traffic].into_iter().chain(ni) {
                        traffic.bytes_out += n as u64;
                        traffic.msgs_out += msgs;
                    }
                    self.stats.msgs_sent += msgs;
                    if lends {
                        self.note_lender(now, key);
                    }
                }
                Err(Stop::WouldBlock) => state.blocked = true,
                Err(Stop::Failed(errno)) => break Some(errno),
            }
            for msg in self.done.drain(..) {
                up.tx_done(now, msg, Ok(()));
            }
        };
        if let Some(errno) = failed {
            self.part_conn(now, key, Why::Write(errno), false, up);
        }
    }

    /// Whether a connection has so much in doubt that nothing more is written to it for now.
    fn retains_too_much(&mut self, now: Instant, key: ConnKey) -> bool {
        let limit = self.retained_max;
        let Some(conn) = self.conns.get_mut(key) else { return false };
        let stream = conn.stream;
        let Some(state) = conn.up_mut() else { return false };
        let Some(retained) = state.retained.as_mut().filter(|r| r.bytes() >= limit) else {
            return false;
        };
        let acked = state.written.saturating_sub(self.streams.unacked(stream));
        retained.acknowledged(acked, &mut self.repaid);
        let full = retained.bytes() >= limit;
        let peer = state.peer;
        if full {
            self.arm(peer, now + RETAINED_LOOK);
        }
        full
    }

    /// Writes acknowledgements that found no message to ride on.
    pub(super) fn flush_acks<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        up: &mut U,
        mem: &dyn Memory,
    ) {
        if self.ack_dirty.is_empty() {
            return;
        }
        let mut peers = core::mem::take(&mut self.ack_dirty);
        for key in peers.drain(..) {
            if let Some(peer) = self.peers.get_mut(key) {
                peer.ack_listed = false;
            }
            let Some(conn) = self.best_conn(key, Load::Noop) else { continue };
            let (Some(peer), Some(state)) =
                (self.peers.get_mut(key), self.conns.get_mut(conn).and_then(Conn::up_mut))
            else {
                continue;
            };
            // While nothing can be written they stay owed, which is limited; `writable` goes on with them.
            if peer.owed.is_empty() || state.blocked {
                continue;
            }
            while let Some((noop, cookies)) = peer.owed.next_noop(state.version) {
                state.tx.push_noop(noop, self.config.checksum);
                self.stats.acks_sent += cookies;
            }
            self.queued(now, conn, self.timeout_of(conn));
            self.write_out(now, conn, up, mem);
        }
        if self.ack_dirty.is_empty() {
            self.ack_dirty = peers;
        }
    }

    /// Puts a NOOP on the connection that suits it, unless something is queued there (K-50).
    pub(super) fn send_keepalive(&mut self, now: Instant, key: PeerKey) {
        if let Some(conn) = self.best_conn(key, Load::Noop) {
            self.ask(now, conn);
        }
    }

    /// Puts a NOOP on a connection, unless something is queued there: its end will tell of it.
    pub(super) fn ask(&mut self, now: Instant, conn: ConnKey) {
        let Some(state) = self.conns.get_mut(conn).and_then(Conn::up_mut) else { return };
        if !state.tx.is_empty() {
            return;
        }
        state.tx.push_noop(Noop::Keepalive, false);
        self.stats.keepalives_sent += 1;
        self.queued(now, conn, self.timeout_of(conn));
    }
}

/// Whether the peer has all the connections that it will get. A quick no for the usual case.
fn is_complete(peer: &Peer) -> bool {
    !peer.active || peer.conns.len() > 2 * usize::from(peer.conns_per_peer)
}

/// One write of the pieces laid out; also returns how many bytes they have.
fn write<S: Streams>(
    streams: &mut S,
    stream: crate::streams::StreamId,
    stage: &[u8],
    pieces: &Pieces,
    mem: &dyn Memory,
) -> (usize, Result<usize, Stop>) {
    let mut asked = 0;
    let slices: SmallVec<[IoSlice<'_>; 8]> = pieces
        .iter()
        .map(|piece| {
            let bytes = match piece {
                Piece::Staged(range) => stage.get(range.clone()).unwrap_or_default(),
                Piece::Memory(span) => mem.bytes(*span),
                Piece::Own(bytes, range) => bytes.get(range.clone()).unwrap_or_default(),
            };
            asked += bytes.len();
            IoSlice::new(bytes)
        })
        .collect();
    let written = streams.write(stream, &slices);
    (asked, written)
}
