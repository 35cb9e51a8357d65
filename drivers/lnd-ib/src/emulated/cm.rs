//! The connection manager of an emulated adapter: requests that are repeated until they are answered,
//! and the end of connections.

use core::time::Duration;

use lnet_types::{Instant, Nid};

use super::Emulated;
use super::packet::{PacketBody, QpNum};
use super::qp::{Qp, QpState};
use crate::adapter::{CmFact, Fact};
use crate::value::{CmCall, CmEvent, CmRejection, ConnId, RequestId};

/// Time until a request is repeated, and how often: 4.096 µs × 2^20, and what the kernel's connection
/// manager does.
const REPEAT: Duration = Duration::from_micros(4_294_967);
const REPEATS: u32 = 15;

/// A request of a peer without answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    from: Nid,
    qp: QpNum,
}

/// A connection that has ended here, and perhaps not there.
#[derive(Clone, Debug)]
pub(super) struct Parting {
    to: Nid,
    qp: QpNum,
    repeats: u32,
    pub(super) due: Instant,
}

/// A packet that is repeated until it is answered.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) body: PacketBody,
    repeats: u32,
    pub(super) due: Instant,
}

impl Pending {
    fn new(now: Instant, body: PacketBody) -> Self {
        Self { body, repeats: 0, due: now + REPEAT }
    }
}

impl Emulated {
    pub(super) fn call(&mut self, now: Instant, call: CmCall) {
        match call {
            CmCall::Resolve { conn, to } => {
                self.new_qp(conn, to, None);
                self.report(conn, CmFact::Plain(CmEvent::AddrResolved));
            }
            CmCall::ResolveRoute { conn } => {
                self.report(conn, CmFact::Plain(CmEvent::RouteResolved));
            }
            CmCall::Connect { conn, private, .. } => {
                let Some(qp) = self.qps.get_mut(&conn) else {
                    return self.wrong("a connection is asked for on nothing");
                };
                let (peer, body) = (qp.peer, PacketBody::Request { qp: qp.number, private });
                qp.pending = Some(Pending::new(now, body.clone()));
                self.send(peer, body, None);
            }
            CmCall::Accept { conn, request, private, .. } => {
                let Some(asked) = self.requests.remove(&request) else {
                    return self.wrong("a request is answered that is not there");
                };
                let number = self.new_qp(conn, asked.from, Some(asked.qp));
                let body = PacketBody::Accept { to: asked.qp, qp: number, private };
                if let Some(qp) = self.qps.get_mut(&conn) {
                    qp.pending = Some(Pending::new(now, body.clone()));
                }
                self.send(asked.from, body, None);
            }
            CmCall::Reject { request, private } => {
                let Some(asked) = self.requests.remove(&request) else {
                    return self.wrong("a request is answered that is not there");
                };
                self.reject(asked, CmRejection::Consumer, private);
            }
            CmCall::Disconnect { conn } => {
                self.part(now, conn);
                if let Some(qp) = self.qps.get_mut(&conn) {
                    qp.ended = true;
                }
                self.break_qp(conn);
            }
            CmCall::Destroy { conn } => {
                if self.qps.contains_key(&conn) {
                    self.destroy(now, conn);
                } else {
                    self.wrong("a connection is destroyed twice");
                }
            }
        }
    }

    fn reject(&mut self, Asked { from, qp }: Asked, why: CmRejection, private: Vec<u8>) {
        self.send(from, PacketBody::Reject { to: qp, why, private }, None);
    }

    fn new_qp(&mut self, conn: ConnId, peer: Nid, remote: Option<QpNum>) -> QpNum {
        self.last_number = self.last_number.wrapping_add(1);
        let number = QpNum(self.last_number);
        self.qps.insert(conn, Qp::new(number, peer, remote));
        self.by_number.insert(number, conn);
        number
    }

    /// Says that a connection ends, once.
    fn part(&mut self, now: Instant, conn: ConnId) {
        let Some(qp) = self.qps.get_mut(&conn).filter(|qp| !qp.disconnected) else { return };
        qp.disconnected = true;
        qp.pending = None;
        let (own, to) = (qp.number, qp.peer);
        if let Some(other) = qp.remote {
            let parting = Parting { to, qp: other, repeats: 0, due: now + REPEAT };
            self.partings.insert(own, parting);
            self.send(to, PacketBody::Disconnect { to: other, qp: own }, None);
        }
    }

    /// Behind this the connection is not named any more, and reaches no memory.
    pub(super) fn destroy(&mut self, now: Instant, conn: ConnId) {
        self.part(now, conn);
        if let Some(qp) = self.qps.remove(&conn) {
            self.by_number.remove(&qp.number);
        }
        self.facts.retain(|fact| fact.conn() != Some(conn));
        self.flushed.retain(|(_, fact)| fact.conn() != Some(conn));
    }

    /// A packet of the connection manager has arrived.
    pub(super) fn managed(&mut self, from: Nid, body: PacketBody) {
        match body {
            PacketBody::Request { qp, private } => self.requested(from, qp, private),
            PacketBody::Accept { to, qp: other, private } => {
                let Some(conn) = self.by_number.get(&to).copied() else {
                    // It was given up here meanwhile.
                    return self.send(from, PacketBody::Disconnect { to: other, qp: to }, None);
                };
                let Some(qp) = self.qps.get_mut(&conn) else { return };
                if qp.state == QpState::Making {
                    (qp.state, qp.remote, qp.pending) = (QpState::Ready, Some(other), None);
                    self.report(conn, CmFact::Established(private));
                }
                self.send(from, PacketBody::Ready { to: other }, None);
            }
            PacketBody::Ready { to } => {
                if let Some(conn) = self.by_number.get(&to).copied() {
                    self.established(conn);
                }
            }
            PacketBody::Reject { to, why, private } => {
                let conn = self.by_number.get(&to).copied();
                if let Some(conn) = conn
                    && let Some(qp) = self.qps.get_mut(&conn)
                    && qp.pending.take().is_some()
                {
                    self.report(conn, CmFact::Rejected(why, private));
                }
            }
            PacketBody::Disconnect { to, qp: other } => {
                self.send(from, PacketBody::Gone { to: other }, None);
                let conn = self.by_number.get(&to).copied();
                if let Some(conn) = conn
                    && let Some(qp) = self.qps.get_mut(&conn)
                    && !qp.disconnected
                {
                    qp.disconnected = true;
                    qp.pending = None;
                    self.report(conn, CmFact::Plain(CmEvent::Disconnected));
                }
            }
            PacketBody::Gone { to } => {
                self.partings.remove(&to);
            }
            PacketBody::Chain { .. }
            | PacketBody::Ack { .. }
            | PacketBody::Again { .. }
            | PacketBody::Refused { .. } => {}
        }
    }

    fn requested(&mut self, from: Nid, qp: QpNum, private: Vec<u8>) {
        let asked = Asked { from, qp };
        if !self.listens {
            return self.reject(asked, CmRejection::NoListener, Vec::new());
        }
        if self.requests.values().any(|other| *other == asked) {
            return;
        }
        let is_it = |own: &&Qp| (own.peer, own.remote) == (from, Some(qp));
        if let Some(own) = self.qps.values().find(is_it) {
            // The grant was lost, or is on its way.
            if let Some(pending) = &own.pending {
                let body = pending.body.clone();
                self.send(from, body, None);
            }
            return;
        }
        self.last_request += 1;
        let request = RequestId(self.last_request);
        self.requests.insert(request, asked);
        self.facts.push_back(Fact::Request { request, private });
    }

    /// The side that was asked learns that the connection is there.
    pub(super) fn established(&mut self, conn: ConnId) {
        let Some(qp) = self.qps.get_mut(&conn).filter(|qp| qp.state == QpState::Making) else {
            return;
        };
        if qp.remote.is_some() {
            (qp.state, qp.pending) = (QpState::Ready, None);
            self.report(conn, CmFact::Established(Vec::new()));
        }
    }

    /// Repeats what has not been answered.
    pub(super) fn repeat_requests(&mut self, now: Instant) {
        let mut packets = Vec::new();
        let mut given_up = Vec::new();
        for (conn, qp) in &mut self.qps {
            let Some(pending) = qp.pending.as_mut().filter(|pending| pending.due <= now) else {
                continue;
            };
            pending.repeats += 1;
            pending.due = now + REPEAT;
            if pending.repeats > REPEATS {
                given_up.push(*conn);
            } else {
                packets.push((qp.peer, pending.body.clone()));
            }
        }
        for conn in given_up {
            if let Some(qp) = self.qps.get_mut(&conn) {
                qp.pending = None;
            }
            self.report(conn, CmFact::Plain(CmEvent::Unreachable));
        }
        self.partings.retain(|own, parting| {
            if parting.due <= now {
                parting.repeats += 1;
                parting.due = now + REPEAT;
                packets.push((parting.to, PacketBody::Disconnect { to: parting.qp, qp: *own }));
            }
            parting.repeats <= REPEATS
        });
        for (to, body) in packets {
            self.send(to, body, None);
        }
    }
}
