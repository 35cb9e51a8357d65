//! The handshake: connection request and HELLOs, both ways (wire.md 3.2). Bytes are gathered by
//! `proto/conn.rs`, judged by `proto/hello.rs`; here the judgement is carried out.

use core::time::Duration;

use lnet::Doubt;
use lnet_types::{Errno, Instant, Memory, NiId, Nid, Pid, ProcessId};
use lnet_wire::acceptor::{ANSWER, Request};
use lnet_wire::sock::{ConnType, Hello, Version};
use lnet_wire::{ByteOrder, WireError};

use super::SockDriver;
use super::conn::{Dialed, Phase, Up};
use crate::error::Why;
use crate::peer::{Attempt, ConnKey, Peer, PeerKey};
use crate::proto::admit::judge_name;
use crate::proto::conn::{Cut, CutStep, Fed, Inbox, Outbox, cut_short, hello_bytes};
use crate::proto::frame::FrameRx;
use crate::proto::hello::{Judged, Known, Own, Reached, judge_active, judge_passive, passive_kind};
use crate::proto::kinds::Kind;
use crate::proto::load::Run;
use crate::proto::txq::TxQueue;
use crate::proto::watch::{Loss, Mark, Seen, Watch};
use crate::stats::{Refusal, Traffic};
use crate::streams::{Stop, Streams};
use crate::tunables::AcceptMode;
use crate::upper::Upper;

use core::net::SocketAddr;
use std::io::IoSlice;

/// A message of the handshake that is complete.
enum Got {
    Request(Request),
    Hello(Hello),
}

/// What two HELLOs have settled.
struct Settled {
    kind: Kind,
    session: (Version, u64),
    order: ByteOrder,
    claimed: bool,
}

impl<S: Streams> SockDriver<S> {
    /// Reads as far as the handshake goes, never beyond the message that is due.
    pub(super) fn read_handshake<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        up: &mut U,
        mem: &mut dyn Memory,
    ) {
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return };
            let (stream, want) = (
                conn.stream,
                match &conn.phase {
                    Phase::AwaitHello { want, .. }
                    | Phase::AwaitRequest { want, .. }
                    | Phase::AwaitPeerHello { want, .. } => *want,
                    Phase::Up(_) => return self.read_messages(now, key, up, mem),
                    // A refused peer may send what it likes, and no attempt reads before it is up.
                    Phase::Connecting(_) | Phase::Draining => return,
                },
            );
            let mut buf = [0; Hello::LEN_MAX];
            let len = want.min(buf.len());
            let got = match self.streams.read(stream, &mut buf[..len], &mut []) {
                Ok(0) => return self.handshake_cut(now, key, Cut::Eof, up),
                Ok(n) => self.handshake_fed(key, buf.get(..n).unwrap_or_default()),
                Err(Stop::WouldBlock) => return,
                Err(Stop::Failed(errno)) => {
                    return self.handshake_cut(now, key, Cut::Error(errno), up);
                }
            };
            match got {
                Ok(None) => {}
                Ok(Some(Got::Request(request))) => self.got_request(now, key, &request, up),
                Ok(Some(Got::Hello(hello))) => self.got_hello(now, key, &hello, up),
                Err(why) => return self.handshake_cut(now, key, Cut::Unreadable(why), up),
            }
        }
    }

    /// Takes bytes of the handshake.
    fn handshake_fed(&mut self, key: ConnKey, bytes: &[u8]) -> Result<Option<Got>, WireError> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(None) };
        let (next, want) = match &mut conn.phase {
            Phase::AwaitRequest { inbox, want } => match inbox.fed::<Request>(bytes)? {
                Fed::Got(request) => return Ok(Some(Got::Request(request))),
                Fed::Read(n) => (n, want),
            },
            Phase::AwaitHello { inbox, want, .. } | Phase::AwaitPeerHello { inbox, want } => {
                match inbox.fed::<Hello>(bytes)? {
                    Fed::Got(hello) => return Ok(Some(Got::Hello(hello))),
                    Fed::Read(n) => (n, want),
                }
            }
            Phase::Connecting(_) | Phase::Draining | Phase::Up(_) => return Ok(None),
        };
        *want = next;
        Ok(None)
    }

    /// The handshake will not be completed.
    pub(super) fn handshake_cut<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        cut: Cut,
        up: &mut U,
    ) {
        let Some(conn) = self.conns.get(key) else { return };
        let Some(stage) = conn.stage() else { return };
        let (ni, remote) = (conn.ni, conn.remote);
        let step = cut_short(stage, cut);
        if let CutStep::Close(Some(refusal))
        | CutStep::AnswerRequest(refusal)
        | CutStep::AnswerHello(refusal)
        | CutStep::Fail(_, Some(refusal)) = step
        {
            tracing::debug!(%remote, %refusal, ?cut, "handshake ended");
            if conn.is_pending() {
                self.turn_away(now, ni, remote, None, refusal);
            } else {
                self.stats.refuse(refusal);
            }
        }
        match step {
            CutStep::Close(_) => self.close_conn(now, key, Why::Orderly, false, up),
            CutStep::AnswerRequest(_) => self.drain_and_close(now, key, ANSWER.to_vec(), up),
            CutStep::AnswerHello(_) => {
                let own = self.own(key);
                let bytes = own.and_then(|own| hello_bytes(&own.other_version(&remote)).ok());
                self.drain_and_close(now, key, bytes.unwrap_or_default(), up);
            }
            CutStep::Fail(errno, _) => self.dial_failed(now, key, errno, up),
        }
    }

    /// Our side of the connection.
    fn own(&self, key: ConnKey) -> Option<Own> {
        let ni = self.ni(self.conns.get(key)?.ni)?;
        Some(Own { nid: ni.nid, incarnation: ni.incarnation })
    }

    fn got_request<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        request: &Request,
        up: &mut U,
    ) {
        // There is one listener per interface, so the NID must be that interface's. Several of our
        // interfaces on one address would differ in their network: any of them may be meant.
        let Some(conn) = self.conns.get(key) else { return };
        let (ni, remote) = (conn.ni, conn.remote);
        let addr = self.ni(ni).map(|ni| ni.addr);
        let wanted = self.ni_list.iter().copied().find(|id| {
            self.ni(*id).is_some_and(|ni| ni.nid == request.nid && Some(ni.addr) == addr)
        });
        if wanted.and_then(|ni| self.ni(ni)).is_some_and(|ni| ni.blocked) {
            self.stats.refuse(Refusal::Blocked);
            return self.close_conn(now, key, Why::Orderly, true, up);
        }
        let Some(ni) = wanted else {
            self.turn_away(now, ni, remote, None, Refusal::RequestNid);
            tracing::debug!(%remote, %request, "connection request for a NID that is not ours");
            return self.close_conn(now, key, Why::Orderly, false, up);
        };
        if let Some(conn) = self.conns.get_mut(key) {
            conn.ni = ni;
            conn.phase = Phase::AwaitPeerHello { inbox: Inbox::default(), want: 4 };
        }
        self.set_conn_timer(key, now + self.config.accept_timeout);
    }

    fn got_hello<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        hello: &Hello,
        up: &mut U,
    ) {
        match self.conns.get(key).map(|conn| &conn.phase) {
            Some(Phase::AwaitHello { dialed, .. }) => {
                let dialed = *dialed;
                self.got_answer(now, key, dialed, hello, up);
            }
            Some(Phase::AwaitPeerHello { .. }) => self.got_opening(now, key, hello, up),
            _ => {}
        }
    }

    /// The passive side decides.
    fn got_opening<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        hello: &Hello,
        up: &mut U,
    ) {
        let Some(conn) = self.conns.get(key) else { return };
        let (ni_id, local, remote) = (conn.ni, conn.local, conn.remote);
        let (Some(own), Some(ni)) = (self.own(key), self.ni(ni_id)) else { return };
        let default_n = ni.conns_per_peer;
        let kind = match passive_kind(hello) {
            Ok(kind) => kind,
            Err(refusal) => {
                self.turn_away(now, ni_id, remote, Some(hello.src), refusal);
                return self.close_conn(now, key, Why::Orderly, false, up);
            }
        };
        let claimed = self.config.is_privileged()
            && self.config.accept == AcceptMode::All
            && remote.port() > 1023;
        let id = if claimed {
            ProcessId {
                nid: Nid::from_ip(own.nid.net(), remote.ip()),
                pid: Pid(Pid::USER_FLAG | u32::from(remote.port())),
            }
        } else {
            ProcessId { nid: hello.src, pid: hello.src_pid }
        };
        if let Some(refusal) = judge_name(&self.config, own.nid, id.nid) {
            // No answer: one would make it ask again at once.
            self.turn_away(now, ni_id, remote, Some(id.nid), refusal);
            return self.close_conn(now, key, Why::Orderly, true, up);
        }
        let (mut peer_key, mut known) = self.known(ni_id, id, (local, remote), kind);
        let hello = Hello { src: id.nid, ..hello.clone() };
        let answer = |conn_type| hello_bytes(&own.answer(&hello, conn_type)).unwrap_or_default();
        let mut judged = judge_passive(own.nid, id.nid, &hello, &known);
        if judged == Judged::Refuse(Refusal::Duplicate)
            && let Some(peer) = peer_key
            && self.drop_dead(now, peer, kind, up)
        {
            (peer_key, known) = self.known(ni_id, id, (local, remote), kind);
            judged = judge_passive(own.nid, id.nid, &hello, &known);
        }
        match judged {
            Judged::Accept => {
                let bytes = answer(kind.to_wire());
                if bytes.is_empty() {
                    // Its version can't name our NID.
                    self.turn_away(now, ni_id, remote, Some(id.nid), Refusal::HelloVersion);
                    return self.close_conn(now, key, Why::Orderly, false, up);
                }
                let peer_key = peer_key
                    .unwrap_or_else(|| self.add_peer(Peer::new(ni_id, id, remote.ip(), default_n)));
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.outbox = Outbox::new(bytes);
                }
                let session = (hello.version, hello.src_incarnation);
                // One that calls itself user space is who its connection says, too.
                let claimed = claimed || id.pid.is_user();
                let settled = Settled { kind, session, order: hello.order, claimed };
                self.establish(now, key, peer_key, &settled);
                self.write_outbox(now, key, up);
            }
            Judged::Refuse(refusal) => {
                self.stats.refuse(refusal);
                tracing::debug!(%remote, %refusal, %hello, "HELLO refused");
                self.drain_and_close(now, key, answer(ConnType::NONE), up);
                if let (Refusal::Race, Some(peer)) = (refusal, peer_key) {
                    self.reached_us(now, peer, up);
                }
            }
            Judged::RefuseStale => {
                self.stats.refuse(Refusal::Stale);
                if known.session.is_some_and(|(_, old)| old != hello.src_incarnation) {
                    self.stats.new_incarnations += 1;
                }
                tracing::info!(peer = %id, "peer has restarted: its old connections are closed");
                if let Some(peer) = peer_key {
                    self.close_peer_conns(now, peer, Why::Orderly, up);
                }
                self.drain_and_close(now, key, answer(ConnType::NONE), up);
            }
        }
    }

    /// What is known of the peer `id`, which opens a connection of `kind` from and to these addresses.
    fn known(
        &self,
        ni: NiId,
        id: ProcessId,
        (local, remote): (SocketAddr, SocketAddr),
        kind: Kind,
    ) -> (Option<PeerKey>, Known) {
        let default_n = self.ni(ni).map_or(1, |ni| ni.conns_per_peer);
        let key = self.find_peer(ni, id.nid, id.pid);
        let peer = key.and_then(|key| self.peers.get(key));
        let same = |key: &ConnKey| {
            self.conns.get(*key).is_some_and(|conn| {
                conn.local.ip() == local.ip()
                    && conn.remote.ip() == remote.ip()
                    && conn.up().is_some_and(|u| u.kind == kind)
            })
        };
        let known = Known {
            connecting: peer.is_some_and(|p| p.dialer.trying().is_some() && p.addr == remote.ip()),
            session: peer.and_then(|p| p.session),
            same_kind: peer.map_or(0, |p| p.conns.iter().filter(|c| same(c)).count()),
            limit: kind.limit(peer.map_or(default_n, |p| p.conns_per_peer)),
            same_address: local.ip() == remote.ip(),
        };
        (key, known)
    }

    /// The initiator gets the answer to its HELLO.
    fn got_answer<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        dialed: Dialed,
        hello: &Hello,
        up: &mut U,
    ) {
        let Some(peer) = self.peers.get_mut(dialed.peer) else { return };
        let id = peer.id;
        let reached = judge_active(id, dialed.kind, dialed.version, peer.session, hello);
        tracing::debug!(peer = %id, kind = %dialed.kind, ?reached, "connection attempt answered");
        match reached {
            Reached::Up(version) => {
                let session = (version, hello.src_incarnation);
                let order = hello.order;
                let settled = Settled { kind: dialed.kind, session, order, claimed: false };
                self.establish(now, key, dialed.peer, &settled);
            }
            Reached::RetryLater => {
                self.stats.dial_retries += 1;
                let patient = self.suspicion.is_some();
                let how = if patient { Attempt::Patient } else { Attempt::Later };
                self.dial_over(now, key, how, Errno::EALREADY, up);
            }
            Reached::RetryIn(version) => {
                peer.taught = Some(version);
                self.stats.version_changes += 1;
                self.dial_over(now, key, Attempt::Again, Errno::EPROTO, up);
            }
            Reached::RetryFresh => {
                self.stats.new_incarnations += 1;
                tracing::info!(peer = %id, "peer has restarted: its old connections are closed");
                self.close_peer_conns(now, dialed.peer, Why::Orderly, up);
                self.dial_over(now, key, Attempt::Again, Errno::ESTALE, up);
            }
            Reached::Failed(errno, refusal) => {
                self.stats.refuse(refusal);
                self.dial_failed(now, key, errno, up);
            }
        }
    }

    /// The connection is up: messages may flow.
    fn establish(&mut self, now: Instant, key: ConnKey, peer_key: PeerKey, settled: &Settled) {
        let &Settled { kind, session, order, claimed } = settled;
        let version = session.0;
        let was_pending = self.conns.get(key).is_some_and(|c| c.is_pending());
        self.stop_conn_timer(key);
        let (Some(conn), Some(peer)) = (self.conns.get_mut(key), self.peers.get_mut(peer_key))
        else {
            return;
        };
        if was_pending {
            self.pending -= 1;
            self.by_address.entry(conn.remote.ip()).or_default().pending -= 1;
        }
        conn.phase = Phase::Up(Box::new(Up {
            peer: peer_key,
            from: peer.id,
            peer_ni: None,
            claimed,
            kind,
            version,
            rx: FrameRx::new(version, order),
            inbound: None,
            deferred: None,
            rx_deadline: Instant::FAR_FUTURE,
            tx: TxQueue::new(version),
            retained: None,
            run: Run::default(),
            blocked: false,
            tx_deadline: Instant::FAR_FUTURE,
            patience: Duration::ZERO,
            written: 0,
            acked: 0,
            mark: Mark::default(),
            loss: Loss::default(),
            parted: None,
            used: 0,
            traffic: Traffic::default(),
        }));
        peer.conns.push(key);
        peer.controls += u32::from(kind == Kind::Control);
        peer.session = Some(session);
        peer.last_alive = now;
        self.stats.connected += 1;
        tracing::debug!(peer = %peer.id, %kind, %version, "connection up");
        // The peer is reachable again, whichever side connected.
        peer.dialer.hasten(now);
        let doubt = peer.watch.doubt();
        if peer.life.replace(session.1).is_some_and(|before| before != session.1) {
            // Another life of it: that the one before fell silent was its end, and no fault of the rail.
            peer.watch = Watch::default();
        } else if doubt == Doubt::Silent {
            // Two HELLOs have come through: whatever it is, it is not silent.
            peer.watch.saw(now, Seen::Sound);
        }
        if peer.watch.doubt() != doubt {
            self.judged.push((peer.ni, peer.id.nid, peer.watch.doubt()));
        }
        if peer.dialer.trying() == Some(key) {
            let (min, max) = (self.config.min_reconnect, self.config.max_reconnect);
            peer.dialer.ended(now, Attempt::Up, false, min, max);
        }
        self.move_waiting(now, peer_key, key);
        self.want_connections(now, peer_key);
        self.arm_keepalive(now, peer_key);
        // What follows the HELLO may be here already, and no readiness will tell.
        self.look_again(key);
    }

    /// Writes what is left of the handshake. Small, so it nearly always fits at once.
    pub(super) fn write_outbox<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        up: &mut U,
    ) {
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return };
            if conn.outbox.is_done() {
                conn.outbox = Outbox::default();
                if matches!(conn.phase, Phase::Draining) {
                    self.close_conn(now, key, Why::Orderly, false, up);
                }
                return;
            }
            match self.streams.write(conn.stream, &[IoSlice::new(conn.outbox.rest())]) {
                Ok(n) => conn.outbox.wrote(n),
                Err(Stop::WouldBlock) => return,
                Err(Stop::Failed(errno)) => {
                    return if conn.stage().is_some() {
                        self.handshake_cut(now, key, Cut::Error(errno), up);
                    } else {
                        self.close_conn(now, key, Why::Write(errno), false, up);
                    };
                }
            }
        }
    }

    /// Writes a refusal and closes behind it.
    fn drain_and_close<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        bytes: Vec<u8>,
        up: &mut U,
    ) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.phase = Phase::Draining;
            conn.outbox = Outbox::new(bytes);
        }
        self.set_conn_timer(key, now + self.config.accept_timeout);
        self.write_outbox(now, key, up);
    }
}
