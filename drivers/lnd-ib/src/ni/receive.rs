//! Upwards: messages in receive buffers, the node's verdicts on them, and what answers they get.

use lnet::{DropReason, Rx, Sink, Verdict};
use lnet_types::{
    Errno, Fault, HealthStatus, Instant, IoVec, MsgId, Nid, Pid, RxId, iovec_len, iovec_slice,
};
use lnet_wire::ib::{Body, Done, Msg, RdmaDesc, Type};
use lnet_wire::{Hdr, Kind};

use super::transmit::{noop_has_credit, of_cookie};
use super::{Back, IbNi};
use crate::conn::{ConnState, Served};
use crate::fault::{CloseReason, answer_fault};
use crate::rdma::plan;
use crate::tx::{Landing, Tx, TxKey, TxKind};
use crate::value::{Access, ConnId, Event, Landed, MapMemory, Output};

/// A header without verdict, and what its message holds.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// Its payload is in a receive buffer; `have` bytes of it.
    Immediate { conn: ConnId, slot: u16, hdr: Hdr, have: u32 },
    /// Its payload is to be asked for.
    PutReq { conn: ConnId, slot: u16, cookie: u64, nob: u32 },
    /// Its data go to the peer's memory.
    GetReq { conn: ConnId, slot: u16, cookie: u64, rd: RdmaDesc, hdr: Hdr },
    /// Its data are in place already.
    Landed,
    /// Its connection has ended, and its payload was copied out of the receive buffer (`kept.rs`).
    Kept { hdr: Hdr, have: u32 },
}

impl Pending {
    pub(super) const fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Immediate { conn, .. }
            | Self::PutReq { conn, .. }
            | Self::GetReq { conn, .. } => Some(*conn),
            Self::Landed | Self::Kept { .. } => None,
        }
    }
}

/// The message was cut: its payload is not there.
pub(super) const CUT: Fault = Fault::new(HealthStatus::RemoteError, Errno::EPROTO);
/// The status of a GET_DONE for a further copy of a GET: the data go with the answer to the other copy.
/// Peers that send no copies never get it.
const DUPLICATE: Errno = Errno::EALREADY;
/// The connection has ended before the payload was asked for.
const GONE: Fault = Fault::new(HealthStatus::RemoteError, Errno::ECONNRESET);
/// Fewer bytes were written than were asked for.
const SHORT: Fault = Fault::new(HealthStatus::RemoteError, Errno::EIO);

impl IbNi {
    /// A receive buffer has completed: with these bytes, or not at all.
    pub fn received(&mut self, now: Instant, id: ConnId, slot: u16, outcome: Result<&[u8], ()>) {
        self.clock(now);
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.posted_receives = conn.posted_receives.saturating_sub(1);
        match (conn.state, outcome) {
            (ConnState::Closing, outcome) => {
                if let Some((msg, nob)) = outcome.ok().and_then(|bytes| Msg::parse(bytes).ok()) {
                    self.last_word(id, slot, msg, nob);
                }
                self.drained(id, None);
            }
            (_, Err(())) => self.close(id, CloseReason::Receive),
            (state, Ok(bytes)) => match Msg::parse(bytes) {
                Err(error) => self.close(id, CloseReason::Wire(error)),
                Ok((msg, nob)) if state == ConnState::Up => self.message(id, slot, msg, nob),
                // It overtook the event that establishes the connection.
                Ok((msg, nob)) => conn.early.push((slot, msg, nob)),
            },
        }
    }

    /// A message on an established connection.
    pub(super) fn message(&mut self, id: ConnId, slot: u16, msg: Msg, nob: usize) {
        let (own, now) = (self.start, self.now);
        // It may have ended with an earlier one of the messages that overtook its beginning.
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.state == ConnState::Up) else {
            return;
        };
        let Msg { head, body } = msg;
        if head.version != conn.version {
            return self.close(id, CloseReason::Unexpected);
        }
        if (head.src, head.src_stamp) != (conn.peer, conn.stamp)
            || (head.dst, head.dst_stamp) != (own.nid, own.incarnation)
        {
            return self.close(id, CloseReason::Stale);
        }
        if let Err(excess) = conn.credits.returned(head.credits) {
            return self.close(id, CloseReason::Credits(excess));
        }
        let (peer, version) = (conn.peer, conn.version);
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.last_alive = now;
        }
        match body {
            Body::ConnReq(_) | Body::ConnAck(_) => self.close(id, CloseReason::Unexpected),
            Body::Noop => {
                let credit = noop_has_credit(version);
                self.repost(id, slot, if credit { Back::Credit } else { Back::Buffer });
            }
            Body::Immediate(hdr) => {
                // At most a receive buffer, so it fits.
                let have = nob.saturating_sub(Body::IMMEDIATE_PAYLOAD) as u32;
                let pending = Pending::Immediate { conn: id, slot, hdr, have };
                self.header(peer, hdr.src_pid, hdr, pending);
            }
            Body::PutReq { hdr, cookie } => {
                let pending = Pending::PutReq { conn: id, slot, cookie, nob: hdr.payload_len };
                self.header(peer, hdr.src_pid, hdr, pending);
            }
            Body::GetReq { hdr, cookie, rd } if matches!(hdr.kind, Kind::Get { .. }) => {
                let pending = Pending::GetReq { conn: id, slot, cookie, rd, hdr };
                self.header(peer, hdr.src_pid, hdr, pending);
            }
            Body::GetReq { .. } => self.close(id, CloseReason::Unexpected),
            Body::PutAck { src_cookie, dst_cookie, rd } => {
                self.put_ack(id, slot, src_cookie, dst_cookie, &rd);
            }
            Body::PutNak(done) => self.put_nak(id, slot, done),
            Body::PutDone(done) => self.put_done(id, slot, done),
            Body::GetDone(done) => self.get_done(id, slot, done),
        }
        self.pump(id);
    }

    /// A message that was there before its connection ended, and is read behind that end. Its sender's
    /// adapter has seen it acknowledged, so its sender counts it as delivered: what is whole with it is
    /// taken. What needs an answer is not; its sender knows that none came.
    fn last_word(&mut self, id: ConnId, slot: u16, msg: Msg, nob: usize) {
        let own = self.start;
        let Some(conn) = self.conns.get(id).filter(|conn| conn.believed) else { return };
        let Msg { head, body } = msg;
        if (head.version, head.src, head.src_stamp) != (conn.version, conn.peer, conn.stamp)
            || (head.dst, head.dst_stamp) != (own.nid, own.incarnation)
        {
            return;
        }
        let peer = conn.peer;
        self.stats.last_words += 1;
        match body {
            Body::Immediate(hdr) => {
                let have = nob.saturating_sub(Body::IMMEDIATE_PAYLOAD) as u32;
                let pending = Pending::Immediate { conn: id, slot, hdr, have };
                self.header(peer, hdr.src_pid, hdr, pending);
            }
            Body::PutDone(done) => {
                self.ended_by(id, done, |kind| matches!(kind, TxKind::PutAck { .. }))
            }
            Body::GetDone(done) => {
                self.ended_by(id, done, |kind| matches!(kind, TxKind::Get { .. }))
            }
            _ => {}
        }
    }

    /// The data of an exchange are in place, though its connection has ended. Its memory comes back when
    /// the queue pair is destroyed, as that of the others.
    fn ended_by(&mut self, id: ConnId, done: Done, fits: impl Fn(&TxKind) -> bool) {
        let key = of_cookie(done.cookie);
        let found = self.txs.get_mut(key).filter(|tx| tx.conn == Some(id) && tx.flags.waiting);
        let Some(tx) = found.filter(|tx| fits(&tx.kind)) else { return };
        let Ok(nob) = u32::try_from(done.status) else { return };
        let whole = match &mut tx.kind {
            TxKind::PutAck { nob: wanted, .. } => nob == *wanted,
            TxKind::Get { sink, landed, .. } => {
                let fits = u64::from(nob) <= iovec_len(sink);
                *landed = fits.then_some(nob);
                fits
            }
            _ => false,
        };
        if whole {
            tx.doom = None;
            tx.flags.answered();
        }
    }

    /// Reports a header to the node, whose verdict is awaited.
    pub(super) fn header(&mut self, peer: Nid, pid: Pid, hdr: Hdr, pending: Pending) {
        self.last_rx += 1;
        let id = RxId(self.last_rx);
        if let Some(conn) = pending.conn().and_then(|conn| self.conns.get_mut(conn)) {
            conn.rxs.insert(id);
        }
        self.rxs.insert(id, pending);
        let rx = Rx { ni: self.start.ni, from: peer, from_pid: pid, peer_ni: None, id };
        self.report(Event::Header { rx, hdr });
    }

    /// The node's verdict on a header. [`Verdict::Defer`] leaves the message where it is: it holds its
    /// receive buffer, and so a credit of the peer; behind the end of its connection it is kept.
    pub fn verdict(&mut self, now: Instant, rx: RxId, verdict: Verdict) {
        self.clock(now);
        if matches!(verdict, Verdict::Defer) {
            return self.deferred(rx);
        }
        let Some(pending) = self.rxs.remove(&rx) else {
            // The node has decided before it heard that the message has gone.
            if let Verdict::Deliver { msg, .. } = verdict {
                self.report(Event::RxDone { msg, outcome: Err(GONE) });
            }
            return;
        };
        let conn = pending.conn();
        if let Some(conn) = conn.and_then(|conn| self.conns.get_mut(conn)) {
            conn.rxs.remove(&rx);
        }
        match verdict {
            Verdict::Deliver { msg, sink } => self.deliver(rx, pending, msg, sink),
            Verdict::Defer => {}
            Verdict::Drop(DropReason::Duplicate) => {
                self.reject(rx, pending, 0, DUPLICATE.negative());
            }
            Verdict::Drop(_) => self.reject(rx, pending, 0, Errno::ENODATA.negative()),
            Verdict::Close(how) => {
                if let Pending::Kept { .. } = pending {
                    self.release(rx, IoVec::new());
                }
                if let Some(conn) = pending.conn() {
                    self.close(conn, CloseReason::Misbehaved(how));
                }
            }
        }
        if let Some(id) = conn {
            // Behind the copy out of its receive buffer.
            self.drained(id, None);
        }
    }

    /// A message waits for its verdict: behind the end of its connection, of which its receive buffer would
    /// be the last, it leaves that.
    fn deferred(&mut self, rx: RxId) {
        let Some(id) = self.rxs.get(&rx).and_then(Pending::conn) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.state == ConnState::Closing && conn.rxs.remove(&rx) {
            self.leave_conn([rx].into(), true);
            self.drained(id, None);
        }
    }

    /// A message has no receiver: PUTs are answered with one status, GETs with the other.
    fn reject(&mut self, rx: RxId, pending: Pending, put: i32, get: i32) {
        match pending {
            Pending::Kept { .. } => self.release(rx, IoVec::new()),
            Pending::Immediate { conn, slot, .. } => self.backs.push((conn, slot, Back::Credit)),
            Pending::PutReq { conn, slot, cookie, .. } => {
                self.backs.push((conn, slot, Back::Credit));
                self.refuse(conn, Type::PutNak, Done { cookie, status: put });
            }
            Pending::GetReq { conn, slot, cookie, .. } => {
                self.backs.push((conn, slot, Back::Credit));
                self.refuse(conn, Type::GetDone, Done { cookie, status: get });
            }
            Pending::Landed => {}
        }
    }

    fn deliver(&mut self, rx: RxId, pending: Pending, msg: MsgId, sink: Sink) {
        match pending {
            Pending::Kept { hdr, have } => self.deliver_kept(rx, hdr, have, msg, sink),
            Pending::Landed => self.report(Event::RxDone { msg, outcome: Ok(Landed::InPlace) }),
            Pending::Immediate { conn, slot, hdr, have } => {
                self.deliver_immediate(conn, slot, hdr, have, msg, sink);
            }
            Pending::GetReq { conn: id, slot, cookie, rd, hdr } => {
                let until = self.now + self.config.timeout;
                if let (Some(conn), Kind::Get { ret, .. }) = (self.conns.get_mut(id), hdr.kind) {
                    conn.served.push(Served { ret, cookie, rd, slot, until });
                    self.set_conn_timer(id);
                }
                self.report(Event::Asked { msg });
            }
            Pending::PutReq { conn, slot, cookie, nob } => {
                let (memory, len, landing) = self.landing(sink, nob);
                if len == 0 {
                    self.report(Event::RxDone { msg, outcome: Ok(Landed::InPlace) });
                    return self.reject(rx, Pending::PutReq { conn, slot, cookie, nob }, 0, 0);
                }
                let Some(peer) = self.conns.get(conn).map(|conn| conn.peer) else { return };
                let kind = TxKind::PutAck { src_cookie: cookie, rd: None, nob: len, landing };
                let base = self.new_tx(peer, Some(msg), self.config.timeout);
                let tx = self.insert(Tx { kind, conn: Some(conn), ..base });
                if let Some(conn) = self.conns.get_mut(conn) {
                    conn.txs.insert(tx);
                }
                self.map(tx, memory, Access::RemoteWrite);
                // The credit of the request is that of its PUT_DONE.
                self.repost(conn, slot, Back::Buffer);
            }
        }
    }

    /// The memory that the peer is to write `nob` bytes to, or fewer; how many; and what follows.
    fn landing(&mut self, sink: Sink, nob: u32) -> (MapMemory, u32, Landing) {
        let spans = match sink {
            Sink::Spans(spans) => iovec_slice(&spans, 0, nob.into()),
            Sink::Bytes(max) => {
                let len = max.min(nob);
                return (MapMemory::Buffer(len), len, Landing::Node);
            }
        };
        // At most `nob`, so it fits.
        let len = iovec_len(&spans) as u32;
        if spans.len() > 1 && self.config.one_span {
            self.stats.bounced += 1;
            return (MapMemory::Buffer(len), len, Landing::Through(spans));
        }
        (MapMemory::Spans(spans), len, Landing::InPlace)
    }

    fn deliver_immediate(
        &mut self,
        conn: ConnId,
        slot: u16,
        hdr: Hdr,
        have: u32,
        msg: MsgId,
        sink: Sink,
    ) {
        let len = hdr.payload_len;
        if len > have {
            self.stats.cut += 1;
            self.report(Event::RxDone { msg, outcome: Err(CUT) });
            self.backs.push((conn, slot, Back::Credit));
            return;
        }
        let at = Body::IMMEDIATE_PAYLOAD;
        let place = match sink {
            Sink::Spans(to) => {
                if len > 0 && !to.is_empty() {
                    self.outputs.push_back(Output::Copy { conn, slot, at, len, to });
                }
                Landed::InPlace
            }
            Sink::Bytes(max) => Landed::Slot { conn, slot, at, len: len.min(max) },
        };
        if matches!(hdr.kind, Kind::Get { .. }) {
            // Nothing of it is needed any more: the credit can go with the REPLY.
            self.repost(conn, slot, Back::Credit);
        } else {
            self.backs.push((conn, slot, Back::Credit));
        }
        self.report(Event::RxDone { msg, outcome: Ok(place) });
    }

    /// The transmit on this connection that waits for an answer, if `cookie` names one and it is of the
    /// right kind; otherwise the connection ends.
    fn awaited(
        &mut self,
        id: ConnId,
        cookie: u64,
        fits: impl Fn(&TxKind) -> bool,
    ) -> Option<TxKey> {
        let key = of_cookie(cookie);
        let known = self
            .txs
            .get(key)
            .is_some_and(|tx| tx.conn == Some(id) && tx.flags.waiting && fits(&tx.kind));
        if !known {
            self.close(id, CloseReason::Cookie(cookie));
        }
        known.then_some(key)
    }

    /// The answer to a request has come: its buffer is posted again, for the answer to the next one.
    fn answered(&mut self, id: ConnId, slot: u16, key: TxKey) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.credits.unreserve();
        }
        self.repost(id, slot, Back::Buffer);
        if let Some(tx) = self.txs.get_mut(key) {
            tx.flags.answered();
        }
    }

    fn put_ack(&mut self, id: ConnId, slot: u16, src: u64, dst: u64, rd: &RdmaDesc) {
        let is_put = |kind: &TxKind| matches!(kind, TxKind::Put { done: None, .. });
        let Some(key) = self.awaited(id, src, is_put) else { return };
        self.answered(id, slot, key);
        let Some(tx) = self.txs.get_mut(key) else { return };
        let (map, TxKind::Put { nob, done, .. }) = (tx.map, &mut tx.kind) else { return };
        // The target asks for no more than was announced, and perhaps for less.
        let wanted = rd.nob();
        let planned = map.filter(|_| wanted > 0 && wanted <= *nob).and_then(|map| {
            let writes = plan(map, wanted, rd).ok()?;
            Some((i32::try_from(wanted).ok()?, writes))
        });
        match planned {
            Some((status, writes)) => *done = Some((Done { cookie: dst, status }, writes)),
            None => {
                let status = Errno::EPROTO.negative();
                *done = Some((Done { cookie: dst, status }, Vec::new()));
                tx.failed.get_or_insert_with(|| answer_fault(status));
            }
        }
        self.enqueue(key, id);
    }

    fn put_nak(&mut self, id: ConnId, slot: u16, done: Done) {
        let is_put = |kind: &TxKind| matches!(kind, TxKind::Put { done: None, .. });
        let Some(key) = self.awaited(id, done.cookie, is_put) else { return };
        self.answered(id, slot, key);
        if done.status < 0
            && let Some(tx) = self.txs.get_mut(key)
        {
            tx.failed.get_or_insert_with(|| answer_fault(done.status));
        }
        self.finish_if_complete(key);
    }

    fn get_done(&mut self, id: ConnId, slot: u16, done: Done) {
        let is_get = |kind: &TxKind| matches!(kind, TxKind::Get { .. });
        let Some(key) = self.awaited(id, done.cookie, is_get) else { return };
        let Some(tx) = self.txs.get_mut(key) else { return };
        let TxKind::Get { sink, landed, .. } = &mut tx.kind else { return };
        match u32::try_from(done.status) {
            Ok(nob) if u64::from(nob) > iovec_len(sink) => {
                return self.close(id, CloseReason::Overrun(done.status));
            }
            Ok(nob) => *landed = Some(nob),
            Err(_) if done.status == DUPLICATE.negative() => {}
            Err(_) => {
                tx.failed.get_or_insert_with(|| answer_fault(done.status));
            }
        }
        self.answered(id, slot, key);
        self.finish_if_complete(key);
    }

    fn put_done(&mut self, id: ConnId, slot: u16, done: Done) {
        let is_ack = |kind: &TxKind| matches!(kind, TxKind::PutAck { .. });
        let Some(key) = self.awaited(id, done.cookie, is_ack) else { return };
        let Some(tx) = self.txs.get_mut(key) else { return };
        let TxKind::PutAck { nob, .. } = tx.kind else { return };
        match u32::try_from(done.status) {
            Ok(written) if written > nob => {
                return self.close(id, CloseReason::Overrun(done.status));
            }
            Ok(written) if written < nob => {
                tx.failed.get_or_insert(SHORT);
            }
            Ok(_) => {}
            Err(_) => {
                tx.failed.get_or_insert_with(|| answer_fault(done.status));
            }
        }
        tx.flags.answered();
        self.backs.push((id, slot, Back::Credit));
        self.finish_if_complete(key);
    }

    /// Posts a receive buffer again. What it carried is not needed any more.
    pub(super) fn repost(&mut self, id: ConnId, slot: u16, back: Back) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.state == ConnState::Up) else {
            return;
        };
        conn.posted_receives += 1;
        if back == Back::Credit {
            conn.credits.owe();
        }
        self.outputs.push_back(Output::Receive { conn: id, slot });
        self.pump(id);
    }
}
