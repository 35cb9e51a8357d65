//! Making connections: requests of this side and of peers, what each refusal leads to, races
//! (wire.md 7.6, B-30).

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use lnet_types::{Errno, Instant, Nid};
use lnet_wire::ib::{
    Body, ConnParams, FRAGS_MAX, MSG_MAX, Msg, MsgHead, Reject, RejectReason, Version,
};

use super::{IbNi, Timer};
use crate::conn::{Conn, ConnState};
use crate::credits::Credits;
use crate::fault::{CloseReason, connect_fault};
use crate::peer::rank;
use crate::tunables::{DEPTH_MAX, receive_buffers};
use crate::value::{CmCall, CmEvent, CmRejection, ConnId, Event, Output, QpSize, RequestId};

/// When a further connection to a peer is asked for again after a failure.
const MORE_LATER: Duration = Duration::from_secs(1);

/// What a refused attempt leads to.
enum Reaction {
    /// Ask again, with what the peer's record now says.
    Again,
    /// Give up.
    Fail(Errno),
}

impl IbNi {
    /// A peer asks for a connection. The answer is [`CmCall::Accept`] or [`CmCall::Reject`].
    pub fn connect_request(&mut self, now: Instant, request: RequestId, private: &[u8]) {
        self.clock(now);
        let (head, params) = match self.admit(private) {
            Ok(admitted) => admitted,
            Err(why) => return self.refuse_request(request, why, private),
        };
        let max_frags = params.max_frags.min(self.config.max_frags);
        let id = self.new_conn(
            head.src,
            false,
            ConnState::Accepting,
            head.version,
            params.queue_depth,
            max_frags,
        );
        if let Some(conn) = self.conns.get_mut(id) {
            conn.stamp = head.src_stamp;
        }
        self.accepting += 1;
        self.peer_mut(head.src).accepting.insert(id);
        let ack = ConnParams { max_frags, ..params };
        let body = Body::ConnAck(ConnParams { max_msg_size: MSG_MAX as u32, ..ack });
        let private = self.private(head.src, head.src_stamp, head.version, body);
        let qp = self.qp_size(id);
        self.outputs.push_back(Output::Cm(CmCall::Accept { conn: id, request, private, qp }));
        self.post_receives(id);
    }

    /// Whether a request is taken (wire.md 7.6), in the order of the table there.
    fn admit(&mut self, private: &[u8]) -> Result<(MsgHead, ConnParams), RejectReason> {
        let own = self.start;
        let Ok((Msg { head, body: Body::ConnReq(params) }, _)) = Msg::parse(private) else {
            return Err(RejectReason::FATAL);
        };
        if self.stopped || self.device_gone {
            return Err(RejectReason::NO_RESOURCES);
        }
        if head.dst != own.nid {
            let early = self.others_coming;
            return Err(if early { RejectReason::EARLY } else { RejectReason::FATAL });
        }
        if head.src.net() != own.nid.net() {
            return Err(RejectReason::FATAL);
        }
        if head.dst_stamp != 0 && head.dst_stamp != own.incarnation {
            return Err(RejectReason::CONN_STALE);
        }
        // Nothing could be sent with less: in the old version the last credit is a NOOP's.
        let least = if head.version == Version::V11 { 2 } else { 1 };
        if params.max_msg_size > MSG_MAX as u32
            || params.queue_depth < least
            || params.max_frags == 0
        {
            return Err(RejectReason::FATAL);
        }
        let by_version = |why| if head.version == Version::V11 { RejectReason::FATAL } else { why };
        if params.queue_depth > self.config.queue_depth {
            return Err(by_version(RejectReason::MSG_QUEUE_SIZE));
        }
        if usize::from(params.max_frags) > FRAGS_MAX {
            return Err(by_version(RejectReason::RDMA_FRAGS));
        }
        if self.close_others(head.src, head.src_stamp, head.version) {
            return Err(RejectReason::CONN_STALE);
        }
        let limits = self.config.limits;
        if let Some(peer) = self.peers.get_mut(&head.src) {
            if peer.pending.is_some() && rank(head.src) < rank(own.nid) && peer.races < limits.races
            {
                peer.races += 1;
                return Err(RejectReason::CONN_RACE);
            }
            if peer.conns.len() + peer.accepting.len() >= limits.connections_per_peer {
                return Err(RejectReason::NO_RESOURCES);
            }
        }
        if self.accepting >= limits.accepting || self.conns.len() >= limits.connections {
            return Err(RejectReason::NO_RESOURCES);
        }
        Ok((head, params))
    }

    /// Closes connections in use that another incarnation or version of the peer has made; whether
    /// there were any.
    fn close_others(&mut self, nid: Nid, stamp: u64, version: Version) -> bool {
        let conns = self.peers.get(&nid).map_or_else(Vec::new, |peer| peer.conns.clone());
        let other = |id: &ConnId| {
            self.conns.get(*id).is_some_and(|c| (c.stamp, c.version) != (stamp, version))
        };
        let stale: Vec<_> = conns.into_iter().filter(other).collect();
        for id in &stale {
            self.close(*id, CloseReason::Stale);
        }
        !stale.is_empty()
    }

    fn refuse_request(&mut self, request: RequestId, why: RejectReason, private: &[u8]) {
        *self.stats.refused.entry(why).or_default() += 1;
        // Answered in the version of the request where that is known.
        let version = match Msg::parse(private) {
            Ok((msg, _)) => msg.head.version,
            Err(_) => self.config.version,
        };
        let reject = Reject {
            queue_depth: self.config.queue_depth,
            max_frags: self.config.max_frags,
            ..Reject::new(why, version as u16, self.start.incarnation)
        };
        let private = reject.to_bytes().to_vec();
        self.outputs.push_back(Output::Cm(CmCall::Reject { request, private }));
    }

    /// An event of the connection manager (RS-055, RS-058).
    pub fn cm_event(&mut self, now: Instant, id: ConnId, event: CmEvent<'_>) {
        self.clock(now);
        let Some(conn) = self.conns.get(id) else { return };
        let (state, nid) = (conn.state, conn.peer);
        match (state, event) {
            (ConnState::Resolving, CmEvent::AddrResolved) => {
                self.set_state(id, ConnState::Routing);
                self.outputs.push_back(Output::Cm(CmCall::ResolveRoute { conn: id }));
            }
            (ConnState::Routing, CmEvent::RouteResolved) => self.connect(id),
            (ConnState::Connecting, CmEvent::Established { private }) => {
                match self.acceptance(id, private) {
                    Ok(()) => self.up(id),
                    Err(errno) => self.attempt_failed(id, errno),
                }
            }
            (ConnState::Accepting, CmEvent::Established { .. }) => self.up(id),
            (ConnState::Up, CmEvent::Disconnected) => self.close(id, CloseReason::Left),
            (ConnState::Closing, CmEvent::DeviceRemoval)
            | (ConnState::Up, CmEvent::DeviceRemoval) => self.close(id, CloseReason::DeviceGone),
            (ConnState::Up | ConnState::Closing, _) => {}
            (_, CmEvent::AddrChange | CmEvent::TimewaitExit) => {}
            (_, CmEvent::AddrError | CmEvent::RouteError) => {
                self.attempt_failed(id, Errno::EHOSTUNREACH);
            }
            (_, CmEvent::Unreachable) => self.attempt_failed(id, Errno::ENETDOWN),
            (_, CmEvent::ConnectError) => self.attempt_failed(id, Errno::ENOTCONN),
            (_, CmEvent::DeviceRemoval) => self.attempt_failed(id, Errno::ENODEV),
            (ConnState::Accepting, CmEvent::Disconnected) if !conn.early.is_empty() => {
                // The peer has used it already, and its end has overtaken the beginning here.
                self.up(id);
                self.close(id, CloseReason::Left);
            }
            (_, CmEvent::Disconnected) | (ConnState::Accepting, CmEvent::Rejected { .. }) => {
                self.attempt_failed(id, Errno::ECONNRESET);
            }
            (_, CmEvent::Rejected { why, private }) => match self.rejected(id, nid, why, private) {
                Reaction::Again => self.again(id),
                Reaction::Fail(errno) => self.attempt_failed(id, errno),
            },
            // Out of order: the connection manager does not do that.
            (_, CmEvent::AddrResolved | CmEvent::RouteResolved | CmEvent::Established { .. }) => {}
        }
    }

    fn set_state(&mut self, id: ConnId, state: ConnState) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.state = state;
        }
    }

    /// Begins an attempt if there are fewer connections than wanted and none is being made.
    pub(super) fn dial_if_wanted(&mut self, nid: Nid) {
        if self.stopped || self.device_gone {
            return;
        }
        let wanted = usize::from(self.config.conns_per_peer);
        let Some(peer) = self.peers.get(&nid) else { return };
        let coming = peer.pending.is_some() || peer.retry_at.is_some();
        if coming || peer.conns.len() + peer.accepting.len() >= wanted {
            return;
        }
        let (version, depth, frags) = (peer.version, peer.queue_depth, peer.max_frags);
        let id = self.new_conn(nid, true, ConnState::Resolving, version, depth, frags);
        self.peer_mut(nid).pending = Some(id);
        self.outputs.push_back(Output::Cm(CmCall::Resolve { conn: id, to: nid }));
        self.watch(nid, false);
    }

    fn new_conn(
        &mut self,
        peer: Nid,
        active: bool,
        state: ConnState,
        version: Version,
        depth: u16,
        max_frags: u16,
    ) -> ConnId {
        let id = self.conns.insert(Conn {
            peer,
            active,
            state,
            version,
            max_frags,
            credits: Credits::new(version, depth, self.config.highwater),
            sends_max: self.config.sends(depth),
            stamp: 0,
            requests: VecDeque::new(),
            normal: VecDeque::new(),
            free: VecDeque::new(),
            txs: BTreeSet::new(),
            posted_sends: 0,
            posted_receives: 0,
            noops: 0,
            keepalive: false,
            early: Vec::new(),
            served: Vec::new(),
            believed: false,
            rxs: BTreeSet::new(),
            last_sent: self.now,
            begun: self.now,
            moving_since: None,
            blocked_since: None,
            timer: None,
        });
        let until = self.now + self.config.connect_timeout();
        self.set_timer(id, Some(until));
        id
    }

    fn qp_size(&self, id: ConnId) -> QpSize {
        self.conns.get(id).map_or(QpSize { sends: 0, receives: 0 }, |conn| QpSize {
            sends: conn.sends_max,
            receives: receive_buffers(conn.version, conn.credits.depth()),
        })
    }

    fn post_receives(&mut self, id: ConnId) {
        let count = self.qp_size(id).receives;
        if let Some(conn) = self.conns.get_mut(id) {
            conn.posted_receives = count;
        }
        self.outputs.extend((0..count).map(|slot| Output::Receive { conn: id, slot }));
    }

    /// Private data of a request or its acceptance.
    fn private(&self, peer: Nid, stamp: u64, version: Version, body: Body) -> Vec<u8> {
        let msg = Msg { head: self.head(peer, stamp, version, 0), body };
        let mut bytes = vec![0; msg.len()];
        // NIDs with 16-byte addresses are refused where they enter.
        let written = msg.emit(0, &mut bytes);
        debug_assert!(written.is_ok(), "{msg}: {written:?}");
        bytes
    }

    /// Asks the peer.
    fn connect(&mut self, id: ConnId) {
        self.set_state(id, ConnState::Connecting);
        let Some(conn) = self.conns.get(id) else { return };
        let (nid, version) = (conn.peer, conn.version);
        let params = ConnParams {
            queue_depth: conn.credits.depth(),
            max_frags: conn.max_frags,
            max_msg_size: MSG_MAX as u32,
        };
        let stamp = self.peers.get(&nid).map_or(0, |peer| peer.stamp);
        let private = self.private(nid, stamp, version, Body::ConnReq(params));
        let qp = self.qp_size(id);
        self.outputs.push_back(Output::Cm(CmCall::Connect { conn: id, private, qp }));
        self.post_receives(id);
    }

    /// Whether a CONNACK is what was asked for; takes what it says.
    fn acceptance(&mut self, id: ConnId, private: &[u8]) -> Result<(), Errno> {
        let (own, config) = (self.start, &self.config);
        let Some(conn) = self.conns.get_mut(id) else { return Err(Errno::ENOTCONN) };
        let Ok((Msg { head, body: Body::ConnAck(params) }, _)) = Msg::parse(private) else {
            return Err(Errno::EPROTO);
        };
        let depth = params.queue_depth;
        let least = if conn.version == Version::V11 { 2 } else { 1 };
        if head.version != conn.version
            || head.src != conn.peer
            || !(least..=conn.credits.depth().min(DEPTH_MAX)).contains(&depth)
            || !(1..=conn.max_frags).contains(&params.max_frags)
            || params.max_msg_size > MSG_MAX as u32
        {
            return Err(Errno::EPROTO);
        }
        if (head.dst, head.dst_stamp) != (own.nid, own.incarnation) {
            return Err(Errno::ESTALE);
        }
        conn.credits = Credits::new(conn.version, depth, config.highwater);
        conn.sends_max = conn.sends_max.min(config.sends(depth));
        conn.max_frags = params.max_frags;
        conn.stamp = head.src_stamp;
        Ok(())
    }

    /// A connection is established.
    fn up(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.state = ConnState::Up;
        conn.last_sent = self.now;
        let (nid, active, stamp, version) = (conn.peer, conn.active, conn.stamp, conn.version);
        let early = core::mem::take(&mut conn.early);
        if active {
            self.stats.connected += 1;
        } else {
            self.stats.accepted += 1;
            self.accepting -= 1;
        }
        self.close_others(nid, stamp, version);
        let now = self.now;
        let peer = self.peer_mut(nid);
        if active {
            peer.pending = None;
            (peer.races, peer.attempts) = (0, 0);
        } else {
            peer.accepting.remove(&id);
        }
        peer.conns.push(id);
        // Further connections are asked for in the version of this one: with another each would end
        // the ones before it.
        (peer.stamp, peer.version, peer.last_alive) = (stamp, version, now);
        let retry = peer.retry_at.take();
        let waiting = core::mem::take(&mut peer.queue);
        if let Some(at) = retry {
            self.timers.remove(&(at, Timer::Peer(nid)));
        }
        self.set_conn_timer(id);
        self.new_life(nid, stamp);
        if self.degraded {
            self.report_rail(nid);
        }
        for (slot, msg, nob) in early {
            self.message(id, slot, msg, nob);
        }
        for key in waiting {
            self.enqueue_or_launch(key, id);
        }
        self.dial_if_wanted(nid);
    }

    /// A refusal's reason and its consequence (wire.md 7.6).
    fn rejected(&mut self, id: ConnId, nid: Nid, why: CmRejection, private: &[u8]) -> Reaction {
        let refused = Reaction::Fail(Errno::ECONNREFUSED);
        match why {
            CmRejection::NoListener => return Reaction::Fail(Errno::EHOSTUNREACH),
            CmRejection::Stale => return Reaction::Again,
            CmRejection::Other => return refused,
            CmRejection::Consumer => {}
        }
        let Ok(reject) = Reject::parse(private) else { return refused };
        *self.stats.rejected.entry(reject.why).or_default() += 1;
        let Some(conn) = self.conns.get(id) else { return refused };
        let (asked, depth, frags) = (conn.version, conn.credits.depth(), conn.max_frags);
        let theirs = Version::from_number(reject.version).filter(|version| *version != asked);
        let peer = self.peer_mut(nid);
        match reject.why {
            RejectReason::CONN_RACE => Reaction::Again,
            RejectReason::CONN_STALE => {
                peer.stamp = reject.incarnation;
                Reaction::Again
            }
            RejectReason::CONN_UNCOMPAT | RejectReason::FATAL => match theirs {
                // Only downwards after a refusal that may have any cause, so that it ends.
                Some(version) if reject.why == RejectReason::CONN_UNCOMPAT || version < asked => {
                    peer.version = version;
                    Reaction::Again
                }
                _ => refused,
            },
            RejectReason::MSG_QUEUE_SIZE if (2..depth).contains(&reject.queue_depth) => {
                peer.queue_depth = reject.queue_depth;
                Reaction::Again
            }
            RejectReason::RDMA_FRAGS if (1..frags).contains(&reject.max_frags) => {
                peer.max_frags = reject.max_frags;
                Reaction::Again
            }
            _ => refused,
        }
    }

    /// An attempt is to be repeated, if messages still wait when its time has come.
    fn again(&mut self, id: ConnId) {
        let Some(nid) = self.drop_attempt(id) else { return };
        let now = self.now;
        let peer = self.peer_mut(nid);
        let at = now + peer.backoff();
        peer.attempts += 1;
        peer.retry_at = Some(at);
        self.timers.insert((at, Timer::Peer(nid)));
        if at <= now {
            self.retry(nid);
        }
    }

    /// The time of the next attempt has come. A connection that the peer makes meanwhile will do.
    pub(super) fn retry(&mut self, nid: Nid) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&nid) else { return };
        let Some(at) = peer.retry_at.take() else { return };
        self.timers.remove(&(at, Timer::Peer(nid)));
        if !peer.accepting.is_empty() {
            let at = now + peer.backoff().max(Duration::from_millis(100));
            peer.retry_at = Some(at);
            self.timers.insert((at, Timer::Peer(nid)));
        } else if peer.queue.is_empty() {
            self.forget_peer(nid);
        } else {
            self.dial_if_wanted(nid);
        }
    }

    /// Ends an attempt of either side; the peer that it was to.
    fn drop_attempt(&mut self, id: ConnId) -> Option<Nid> {
        let conn = self.conns.get(id)?;
        let (nid, state) = (conn.peer, conn.state);
        self.destroy(id);
        if state == ConnState::Accepting {
            self.accepting -= 1;
        }
        let peer = self.peers.get_mut(&nid)?;
        peer.accepting.remove(&id);
        if peer.pending == Some(id) {
            peer.pending = None;
        }
        Some(nid)
    }

    /// An attempt has failed. If it was the last hope, what waits for it fails as well (B-20, B-32).
    pub(super) fn attempt_failed(&mut self, id: ConnId, errno: Errno) {
        let Some(active) = self.conns.get(id).map(|conn| conn.active) else { return };
        let Some(nid) = self.drop_attempt(id) else { return };
        self.stats.failed += 1;
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&nid) else { return };
        if active && !peer.conns.is_empty() && peer.retry_at.is_none() {
            // One more connection was wanted: not asked for again with every message.
            let at = now + MORE_LATER;
            peer.retry_at = Some(at);
            self.timers.insert((at, Timer::Peer(nid)));
            return;
        }
        if !peer.is_alone() || peer.retry_at.is_some() {
            return;
        }
        if !active && !peer.queue.is_empty() {
            // The peer's own attempt has failed; this side's has not been made.
            self.dial_if_wanted(nid);
            return;
        }
        let waiting = core::mem::take(&mut peer.queue);
        let last_alive = peer.last_alive;
        if active {
            // First, so that the node sends what fails another way.
            self.doubt_unreached(nid);
        }
        for key in waiting {
            self.fail(key, connect_fault(errno));
        }
        if active {
            self.report(Event::PeerDown { nid, last_alive });
        }
        self.forget_peer(nid);
    }

    /// The link is back: attempts that wait for their time are made at once.
    pub fn retry_all(&mut self, now: Instant) {
        self.clock(now);
        let waits = self.peers.iter().filter(|(_, peer)| peer.retry_at.is_some());
        for nid in waits.map(|(nid, _)| *nid).collect::<Vec<_>>() {
            self.retry(nid);
        }
    }

    /// Removes a peer that nothing is going on with.
    pub(super) fn forget_peer(&mut self, nid: Nid) {
        let idle = |peer: &crate::peer::Peer| {
            peer.is_alone() && peer.queue.is_empty() && peer.retry_at.is_none()
        };
        if self.peers.get(&nid).is_some_and(idle) {
            self.peers.remove(&nid);
        }
    }
}
