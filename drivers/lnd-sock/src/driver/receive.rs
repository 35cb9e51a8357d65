//! The way up: bytes are read, cut into messages (`proto/frame.rs`), and the node is asked where each
//! payload goes. Large payloads are read straight into place.

use lnet::{Rx, Verdict};
use lnet_types::{Instant, Memory, MsgId, ProcessId, RxId};
use lnet_wire::Hdr;
use lnet_wire::sock::{FrameHdr, FrameType};
use slotmap::{Key, KeyData};

use super::SockDriver;
use super::conn::{Conn, Deferred, Phase, Up};
use crate::error::{RX_BROKEN, Why};
use crate::peer::ConnKey;
use crate::proto::frame::{DIRECT_MIN, Item};
use crate::proto::sink::Inbound;
use crate::proto::zc::{self, Heard};
use crate::stats::Refusal;
use crate::streams::{Stop, Streams};
use crate::upper::Upper;

/// Why reading stopped.
enum End {
    /// Nothing more is there.
    Drained,
    /// Probably nothing more.
    Short,
    /// Others have their turn.
    Budget,
    /// A message waits for a buffer, or the connection is gone.
    Held,
    /// The connection must be closed; `unread` bytes of it were taken and not used.
    Close { why: Why, unread: bool },
}

/// The connection must be closed.
struct Broken {
    why: Why,
    unread: bool,
}

/// What stands behind a header.
enum Next {
    Payload,
    Held,
}

impl<S: Streams> SockDriver<S> {
    /// The stream may have something to read, or an error to tell.
    pub(super) fn readable<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        up: &mut U,
        mem: &mut dyn Memory,
    ) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        match &conn.phase {
            Phase::Up(state) if state.deferred.is_some() => {
                // Nothing is read now, but a broken stream is noticed.
                if let Some(errno) = self.streams.take_error(conn.stream) {
                    self.part_conn(now, key, Why::Read(errno), false, up);
                }
            }
            Phase::Up(_) => self.read_messages(now, key, up, mem),
            Phase::Connecting(_) => self.connect_ended(now, key, up),
            Phase::Draining => {}
            Phase::AwaitHello { .. }
            | Phase::AwaitRequest { .. }
            | Phase::AwaitPeerHello { .. } => self.read_handshake(now, key, up, mem),
        }
    }

    /// Reads messages until the stream is drained or its turn is over.
    pub(super) fn read_messages<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        up: &mut U,
        mem: &mut dyn Memory,
    ) {
        let mut room = core::mem::take(&mut self.rbuf);
        let (mut total, before) = (0, self.stats.msgs_received);
        let end = loop {
            if self.room.read == 0 {
                break End::Budget;
            }
            match self.read_once(now, key, &mut room, up, mem) {
                Ok((n, short)) => {
                    total += n;
                    self.room.read = self.room.read.saturating_sub(n);
                    if self.is_held(key) {
                        break End::Held;
                    }
                    if short {
                        break End::Short;
                    }
                }
                Err(end) => break end,
            }
        };
        self.rbuf = room;
        let msgs = self.stats.msgs_received - before;
        if total > 0 || msgs > 0 {
            self.heard(now, key, total, msgs);
        }
        match end {
            End::Drained | End::Held => {}
            End::Short => self.verify_later(key),
            End::Budget => self.look_again(key),
            End::Close { why, unread } => self.close_conn(now, key, why, unread, up),
        }
    }

    /// Whether a connection is not to be read now.
    fn is_held(&self, key: ConnKey) -> bool {
        self.conns.get(key).and_then(Conn::up).is_none_or(|state| state.deferred.is_some())
    }

    /// One read. Tells how many bytes it gave and whether there was room for more.
    fn read_once<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        room: &mut [u8],
        up: &mut U,
        mem: &mut dyn Memory,
    ) -> Result<(usize, bool), End> {
        let Some(conn) = self.conns.get_mut(key) else { return Err(End::Held) };
        let stream = conn.stream;
        let Some(state) = conn.up_mut() else { return Err(End::Held) };
        self.stats.reads += 1;
        let want = state.rx.read_len(room.len());
        // A large piece of payload goes straight into place, the next header into the buffer.
        let target = state.inbound.as_ref().and_then(|inbound| inbound.target(state.rx.left()));
        let (direct, asked, got) = match target.filter(|(span, _)| span.len >= DIRECT_MIN) {
            Some((span, ends)) => {
                let len = span.len as usize;
                let behind = if ends { want.saturating_sub(len).max(1) } else { 0 };
                let behind = room.get_mut(..behind).unwrap_or_default();
                let asked = len + behind.len();
                (Some(span), asked, self.streams.read(stream, mem.bytes_mut(span), behind))
            }
            None => {
                let room = room.get_mut(..want).unwrap_or_default();
                (None, want, self.streams.read(stream, room, &mut []))
            }
        };
        let n = match got {
            Ok(0) if state.rx.is_between() => {
                return Err(End::Close { why: Why::Left, unread: false });
            }
            Ok(0) => return Err(End::Close { why: Why::Truncated, unread: false }),
            Ok(n) => n,
            Err(Stop::WouldBlock) => return Err(End::Drained),
            Err(Stop::Failed(errno)) => {
                return Err(End::Close { why: Why::Read(errno), unread: false });
            }
        };
        let mut in_place = 0;
        let mut fed = Ok(());
        if let Some(mut span) = direct {
            in_place = n.min(span.len as usize);
            span.len = in_place as u32;
            state.rx.direct(mem.bytes(span));
            if let Some(inbound) = &mut state.inbound {
                inbound.filled(span.len);
            }
            fed = self.payload_arrived(now, key, up);
        }
        let behind = room.get(..n - in_place).unwrap_or_default();
        fed.and_then(|()| self.feed(now, key, behind, up, mem))
            .map(|()| (n, n < asked))
            .map_err(|Broken { why, unread }| End::Close { why, unread })
    }

    /// Takes bytes that were read into the buffer.
    fn feed<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        mut input: &[u8],
        up: &mut U,
        mem: &mut dyn Memory,
    ) -> Result<(), Broken> {
        loop {
            let Some(state) = self.conns.get_mut(key).and_then(Conn::up_mut) else {
                return Ok(());
            };
            let item = match state.rx.next(&mut input) {
                Ok(item) => item,
                Err(refusal) => return Err(broken(refusal, input)),
            };
            match item {
                Item::More => return Ok(()),
                Item::Payload(bytes) => {
                    if let Some(inbound) = &mut state.inbound {
                        inbound.take(bytes, mem);
                    }
                }
                Item::Noop(frame) => {
                    heard_frame(state, &frame, &mut self.stats)
                        .map_err(|refusal| broken(refusal, input))?;
                    continue;
                }
                Item::Message(frame, hdr) => {
                    heard_frame(state, &frame, &mut self.stats)
                        .map_err(|refusal| broken(refusal, input))?;
                    let due = hdr.payload_len;
                    match self.message(now, key, &frame, hdr, input, up)? {
                        Next::Payload if due > 0 => continue,
                        Next::Payload => {}
                        Next::Held => return Ok(()),
                    }
                }
            }
            self.payload_arrived(now, key, up)
                .map_err(|b| Broken { unread: !input.is_empty(), ..b })?;
        }
    }

    /// A header is here: the node says where its payload goes.
    fn message<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        frame: &FrameHdr,
        mut hdr: Hdr,
        behind: &[u8],
        up: &mut U,
    ) -> Result<Next, Broken> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(Next::Held) };
        let (ni, remote) = (conn.ni, conn.remote.ip());
        let Some(state) = conn.up_mut() else { return Ok(Next::Held) };
        if state.claimed {
            hdr.src = state.from.nid;
            hdr.src_pid = state.from.pid;
        }
        self.stats.msgs_received += 1;
        let id = RxId(key.data().as_ffi());
        let ProcessId { nid: from, pid: from_pid } = state.from;
        // The second message finds the name, as the first may have made the record; others compare.
        state.peer_ni = up.peer_ni(state.peer_ni, from);
        let rx = Rx { ni, from, from_pid, peer_ni: state.peer_ni, id };
        let verdict = up.rx_header(now, rx, &hdr);
        if let Verdict::Defer = verdict {
            self.stats.msgs_deferred += 1;
            let (cookie, behind) = (frame.cookie0, behind.to_vec());
            let ahead = behind.len() as u64;
            state.deferred = Some(Box::new(Deferred { rx: id, hdr, cookie, behind }));
            let held = self.by_address.entry(remote).or_default();
            held.ahead += ahead;
            if held.bytes() > self.config.limits.memory_per_address {
                return Err(broken(Refusal::TooMuchMemory, &[]));
            }
            return Ok(Next::Held);
        }
        self.judged(key, &hdr, frame.cookie0, verdict)
            .map_err(|b| Broken { unread: !behind.is_empty(), ..b })?;
        Ok(Next::Payload)
    }

    /// Carries out a verdict that is not `Defer`.
    fn judged(
        &mut self,
        key: ConnKey,
        hdr: &Hdr,
        cookie: u64,
        verdict: Verdict,
    ) -> Result<(), Broken> {
        let Some(state) = self.conns.get_mut(key).and_then(Conn::up_mut) else { return Ok(()) };
        state.inbound = Some(match verdict {
            Verdict::Deliver { msg, sink } => Inbound::to_sink(msg, sink, cookie),
            Verdict::Drop(why) => {
                self.stats.msgs_dropped += 1;
                tracing::trace!(%hdr, ?why, "message dropped");
                Inbound::to_nowhere(cookie)
            }
            Verdict::Close(why) => {
                tracing::debug!(%hdr, %why, "message refused");
                return Err(Broken { why: Why::Misbehaved(why), unread: false });
            }
            // The node promises never to defer twice; if it did, the message is dropped.
            Verdict::Defer => Inbound::to_nowhere(cookie),
        });
        Ok(())
    }

    /// If all payload of the message is here, it is complete.
    fn payload_arrived<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        up: &mut U,
    ) -> Result<(), Broken> {
        let Some(state) = self.conns.get_mut(key).and_then(Conn::up_mut) else { return Ok(()) };
        let kept = state.inbound.as_ref().is_some_and(Inbound::kept);
        match state.rx.end(kept) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(refusal) => return Err(broken(refusal, &[])),
        }
        let Some(inbound) = state.inbound.take() else { return Ok(()) };
        // The acknowledgement comes first: the node may answer, and carry it.
        let mut owes = Ok(());
        if zc::is_request(inbound.cookie)
            && let Some(peer) = self.peers.get_mut(state.peer)
        {
            self.stats.acks_requested += 1;
            if peer.owed.len() >= self.config.limits.acks_per_peer {
                owes = Err(broken(Refusal::TooManyAcks, &[]));
            } else {
                peer.owed.push(inbound.cookie);
                if !peer.ack_listed {
                    peer.ack_listed = true;
                    self.ack_dirty.push(state.peer);
                }
            }
        }
        if let Some(msg) = inbound.msg {
            let outcome = if owes.is_ok() { Ok(inbound.bytes()) } else { Err(RX_BROKEN) };
            up.rx_done(now, msg, outcome);
        }
        owes
    }

    /// Carries out the verdict on a message that was deferred, and goes on reading.
    pub fn resume<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        rx: RxId,
        verdict: Verdict,
        up: &mut U,
        mem: &mut dyn Memory,
    ) {
        let key = ConnKey::from(KeyData::from_ffi(rx.0));
        let conn = self.conns.get_mut(key);
        let deferred = conn.and_then(|conn| {
            let remote = conn.remote.ip();
            let deferred = conn.up_mut()?.deferred.take_if(|d| d.rx == rx)?;
            Some((remote, deferred))
        });
        let Some((remote, deferred)) = deferred else {
            // The connection ended meanwhile; the node may not have known when it decided.
            if let Verdict::Deliver { msg, .. } = verdict {
                up.rx_done(now, msg, Err(RX_BROKEN));
            }
            return;
        };
        let Deferred { hdr, cookie, behind, .. } = *deferred;
        if let Some(held) = self.by_address.get_mut(&remote) {
            held.ahead -= behind.len() as u64;
        }
        let before = self.stats.msgs_received;
        let went_on = self
            .judged(key, &hdr, cookie, verdict)
            .and_then(|()| self.payload_arrived(now, key, up))
            .and_then(|()| self.feed(now, key, &behind, up, mem));
        self.heard(now, key, 0, self.stats.msgs_received - before);
        match went_on {
            Ok(()) => self.look_again(key),
            Err(Broken { why, unread }) => self.close_conn(now, key, why, unread, up),
        }
    }

    /// Throws the rest of a message away that is being read, and says no more of it.
    pub fn abandon(&mut self, rx: RxId, msg: MsgId) {
        let key = ConnKey::from(KeyData::from_ffi(rx.0));
        let state = self.conns.get_mut(key).and_then(Conn::up_mut);
        if let Some(inbound) = state.and_then(|state| state.inbound.as_mut())
            && inbound.msg == Some(msg)
        {
            *inbound = Inbound::to_nowhere(inbound.cookie);
        }
    }

    /// Notes a sign of life, what came with it, and when the next one is due if a message has begun.
    fn heard(&mut self, now: Instant, key: ConnKey, bytes: usize, msgs: u64) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let ni_id = conn.ni;
        let Some(state) = conn.up_mut() else { return };
        let Some(peer) = self.peers.get_mut(state.peer) else { return };
        let peer_key = state.peer;
        peer.last_alive = now;
        let bytes = bytes as u64;
        let ni = self.nis.get_mut(ni_id).map(|ni| &mut ni.traffic);
        for traffic in [&mut state.traffic, &mut peer.traffic].into_iter().chain(ni) {
            traffic.bytes_in += bytes;
            traffic.msgs_in += msgs;
        }
        // While a message is deferred we are the ones who hold up the stream.
        if state.rx.is_between() || state.deferred.is_some() {
            state.rx_deadline = Instant::FAR_FUTURE;
        } else {
            let deadline = now + self.progress_timeout(peer_key);
            if let Some(state) = self.conns.get_mut(key).and_then(Conn::up_mut) {
                state.rx_deadline = deadline;
            }
            self.arm(peer_key, deadline);
        }
        if bytes > 0 {
            self.recent.note(key);
        }
    }

    /// Reads the connection again soon, without waiting for readiness.
    pub(super) fn look_again(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key)
            && !conn.in_backlog
        {
            conn.in_backlog = true;
            self.backlog.push_back(key);
        }
    }

    fn verify_later(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key)
            && !conn.in_verify
        {
            conn.in_verify = true;
            self.verify.push(key);
        }
    }
}

fn broken(refusal: Refusal, input: &[u8]) -> Broken {
    Broken { why: Why::Protocol(refusal), unread: !input.is_empty() }
}

/// The acknowledgement in a frame, of either type.
fn heard_frame(
    state: &Up,
    frame: &FrameHdr,
    stats: &mut crate::stats::Stats,
) -> Result<(), Refusal> {
    match zc::heard(state.version, frame)? {
        Heard::Nothing => Ok(()),
        Heard::Keepalive => {
            stats.keepalives_received += u64::from(frame.kind == FrameType::Noop);
            Ok(())
        }
    }
}
