//! Queue pairs of an emulated adapter: chains in order, acknowledged, repeated, given up.

use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Instant, Memory, Nid};
use lnet_wire::ib::{Body, Msg};

use super::cm::Pending;
use super::packet::{PacketBody, QpNum, RemoteWrite};
use super::{ACK_TIMEOUT, Arrival, Emulated, RETRIES};
use crate::adapter::Fact;
use crate::value::{ConnId, Post, WorkId, Write};

/// Where the number of returned credits stands in a message.
const CREDITS_AT: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QpState {
    /// Not connected, or not known to be.
    Making,
    Ready,
    /// Everything that is posted comes back.
    Error,
}

/// A chain without acknowledgement.
#[derive(Debug)]
struct Sent {
    number: u64,
    work: WorkId,
    writes: Vec<Write>,
    message: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Qp {
    pub(super) number: QpNum,
    pub(super) peer: Nid,
    pub(super) remote: Option<QpNum>,
    pub(super) state: QpState,
    /// One of both sides has ended it, or the driver here has.
    pub(super) disconnected: bool,
    pub(super) ended: bool,
    /// What the connection manager repeats.
    pub(super) pending: Option<Pending>,
    receives: VecDeque<u16>,
    slots: BTreeMap<u16, Vec<u8>>,
    sent: VecDeque<Sent>,
    /// Credits that its peer was not given when it should have been.
    withheld: u64,
    /// The number of the next chain, in each direction.
    next: u64,
    expected: u64,
    /// A gap has been reported.
    gap: bool,
    tries: u32,
    due: Option<Instant>,
    /// When what was sent last has arrived.
    there: Instant,
}

impl Qp {
    pub(super) fn new(number: QpNum, peer: Nid, remote: Option<QpNum>) -> Self {
        Self {
            number,
            peer,
            remote,
            state: QpState::Making,
            disconnected: false,
            ended: false,
            pending: None,
            receives: VecDeque::new(),
            slots: BTreeMap::new(),
            sent: VecDeque::new(),
            withheld: 0,
            next: 0,
            expected: 0,
            gap: false,
            tries: 0,
            due: None,
            there: Instant::ZERO,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == QpState::Ready
    }

    /// Whether its driver has ended it.
    pub(super) const fn is_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn is_still(&self) -> bool {
        self.is_ready() && self.sent.is_empty()
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due.into_iter().chain(self.pending.as_ref().map(|pending| pending.due)).min()
    }

    pub(super) fn departed(&mut self, at: Instant) {
        self.there = self.there.max(at);
        if self.due.is_some() {
            self.due = Some(self.there + ACK_TIMEOUT);
        }
    }

    /// Takes a receive buffer; false if it comes back at once.
    pub(super) fn post_receive(&mut self, slot: u16) -> bool {
        self.slots.remove(&slot);
        if self.state != QpState::Error {
            self.receives.push_back(slot);
        }
        self.state != QpState::Error
    }

    pub(super) fn slot(&self, slot: u16) -> &[u8] {
        self.slots.get(&slot).map_or(&[], Vec::as_slice)
    }

    /// An acknowledgement is awaited from now on, or none is.
    fn time(&mut self, now: Instant) {
        let waits = !self.sent.is_empty() && self.state == QpState::Ready;
        self.due = waits.then(|| self.there.max(now) + ACK_TIMEOUT);
    }
}

impl Emulated {
    /// A chain is posted: the message and its payload are gathered now, writes read when they are sent.
    pub(super) fn post_chain(&mut self, now: Instant, post: Post, mem: &dyn Memory) {
        let Post { conn, work, writes, head: mut message, payload, .. } = post;
        match &payload {
            Some(lnet::Payload::Spans(spans)) => {
                spans.iter().for_each(|span| message.extend_from_slice(mem.bytes(*span)));
            }
            Some(lnet::Payload::Bytes(bytes)) => message.extend_from_slice(bytes),
            None => {}
        }
        match Msg::parse(&message) {
            Ok((Msg { body, .. }, _)) => {
                if let Body::GetReq { rd, cookie, .. } | Body::PutAck { rd, dst_cookie: cookie, .. } =
                    body
                    && !self.keys.announce(rd.key, conn, cookie)
                {
                    self.wrong("a key is announced that opens nothing");
                }
            }
            Err(error) => self.wrong(&format!("what is sent is no message: {error}")),
        }
        let withholds = self.faults.withholds_credits;
        let breaks = self.rng.one_in(self.faults.qp_error);
        let Some(qp) = self.qps.get_mut(&conn) else {
            return self.wrong("work is posted to nothing");
        };
        match qp.state {
            QpState::Error => {
                return self.flush(Fact::Done { conn, work, outcome: Err(()) });
            }
            QpState::Making => return self.wrong("work is posted before there is a connection"),
            QpState::Ready => {}
        }
        if let Some(credits) = message.get_mut(CREDITS_AT) {
            let all = qp.withheld + u64::from(*credits);
            *credits = if withholds { 0 } else { u8::try_from(all).unwrap_or(u8::MAX) };
            qp.withheld = all - u64::from(*credits);
        }
        let number = qp.next;
        qp.next += 1;
        qp.sent.push_back(Sent { number, work, writes, message });
        self.transmit(now, conn, number, mem);
        if breaks {
            self.break_qp(conn);
        }
    }

    /// Sends everything from a chain on.
    fn transmit(&mut self, now: Instant, conn: ConnId, from: u64, mem: &dyn Memory) {
        let Some(qp) = self.qps.get_mut(&conn) else { return };
        let (Some(to), peer) = (qp.remote, qp.peer) else { return };
        let mut packets = Vec::new();
        let mut unreadable = false;
        for sent in qp.sent.iter().filter(|sent| sent.number >= from) {
            let mut writes = Vec::with_capacity(sent.writes.len());
            for write in &sent.writes {
                match self.keys.read(write.from, write.offset, write.len, mem) {
                    Some(bytes) => {
                        writes.push(RemoteWrite { key: write.key, addr: write.addr, bytes });
                    }
                    None => unreadable = true,
                }
            }
            let (number, message) = (sent.number, sent.message.clone());
            packets.push(PacketBody::Chain { to, number, writes, message });
        }
        qp.time(now);
        if unreadable {
            self.wrong("memory is read that is not mapped");
        }
        for body in packets {
            self.send(peer, body, Some(conn));
        }
    }

    /// A chain has arrived.
    pub(super) fn chain(
        &mut self,
        from: Nid,
        to: QpNum,
        (number, writes, message): (u64, &[RemoteWrite], &[u8]),
        mem: &mut dyn Memory,
    ) -> Arrival {
        let mut arrival = Arrival::default();
        // Adapters say nothing of queue pairs that they do not have.
        let Some(conn) = self.by_number.get(&to).copied() else { return arrival };
        let Some(qp) = self.qps.get_mut(&conn) else { return arrival };
        let Some(other) = qp.remote.filter(|_| qp.state != QpState::Error && qp.peer == from)
        else {
            return arrival;
        };
        if number != qp.expected {
            let body = if number < qp.expected {
                PacketBody::Ack { to: other, number: qp.expected - 1 }
            } else if core::mem::replace(&mut qp.gap, true) {
                return arrival;
            } else {
                PacketBody::Again { to: other, number: qp.expected }
            };
            self.send(from, body, None);
            return arrival;
        }
        for write in writes {
            let RemoteWrite { key, addr, bytes } = write;
            if !self.keys.write(*key, *addr, bytes, mem, &mut arrival.written) {
                self.send(from, PacketBody::Refused { to: other }, None);
                self.break_qp(conn);
                return arrival;
            }
            arrival.bytes += bytes.len() as u64;
        }
        let body = Msg::parse(message).ok().map(|(msg, _)| msg.body);
        let kind = body.as_ref().map(Body::kind);
        let swallowed = kind.is_some() && kind == self.faults.swallowed;
        let Some(qp) = self.qps.get_mut(&conn) else { return arrival };
        if !swallowed {
            let Some(slot) = qp.receives.pop_front() else {
                self.wrong("a message finds no receive buffer");
                return arrival;
            };
            qp.slots.insert(slot, message.to_vec());
            let making = qp.state == QpState::Making;
            if let Some(Body::GetDone(done) | Body::PutDone(done)) = body {
                self.keys.done(conn, done.cookie);
            }
            arrival.message = Some(message.to_vec());
            let fact = Fact::Received { conn, slot, outcome: Ok(message.len()) };
            // Bytes show that the connection is there, before or behind what they bring.
            if making && self.rng.one_in(2) {
                self.established(conn);
                self.facts.push_back(fact);
            } else {
                self.facts.push_back(fact);
                self.established(conn);
            }
        }
        if let Some(qp) = self.qps.get_mut(&conn) {
            (qp.expected, qp.gap) = (number + 1, false);
        }
        self.send(from, PacketBody::Ack { to: other, number }, None);
        arrival
    }

    /// Everything up to a chain has been carried out.
    pub(super) fn acknowledged(&mut self, now: Instant, to: QpNum, number: u64) {
        let Some(conn) = self.by_number.get(&to).copied() else { return };
        let Some(qp) = self.qps.get_mut(&conn).filter(|qp| qp.is_ready()) else { return };
        let mut done = Vec::new();
        while qp.sent.front().is_some_and(|sent| sent.number <= number) {
            done.extend(qp.sent.pop_front().map(|sent| sent.work));
        }
        if !done.is_empty() {
            qp.tries = 0;
            qp.time(now);
        }
        for work in done {
            if !self.rng.one_in(self.faults.completion_loss) {
                self.facts.push_back(Fact::Done { conn, work, outcome: Ok(()) });
            }
        }
    }

    /// A chain is missing at the peer.
    pub(super) fn again(&mut self, now: Instant, to: QpNum, number: u64, mem: &dyn Memory) {
        if let Some(before) = number.checked_sub(1) {
            self.acknowledged(now, to, before);
        }
        if let Some(conn) = self.by_number.get(&to).copied()
            && self.qps.get(&conn).is_some_and(Qp::is_ready)
        {
            self.transmit(now, conn, number, mem);
        }
    }

    /// Sends again what is not acknowledged in time, and gives up in the end.
    pub(super) fn repeat_chains(&mut self, now: Instant, mem: &dyn Memory) {
        let late = |qp: &Qp| qp.due.is_some_and(|due| due <= now);
        let conns: Vec<ConnId> =
            self.qps.iter().filter(|(_, qp)| late(qp)).map(|(conn, _)| *conn).collect();
        for conn in conns {
            let Some(qp) = self.qps.get_mut(&conn) else { continue };
            qp.tries += 1;
            if qp.tries > RETRIES {
                self.break_qp(conn);
            } else {
                self.transmit(now, conn, 0, mem);
            }
        }
    }

    /// A queue pair fails: everything that is posted comes back.
    pub fn break_qp(&mut self, conn: ConnId) {
        let Some(qp) = self.qps.get_mut(&conn).filter(|qp| qp.state != QpState::Error) else {
            return;
        };
        qp.state = QpState::Error;
        qp.due = None;
        let works = qp.sent.drain(..).map(|sent| sent.work);
        let done = works.map(|work| Fact::Done { conn, work, outcome: Err(()) });
        let slots = qp.receives.drain(..);
        let back = slots.map(|slot| Fact::Received { conn, slot, outcome: Err(()) });
        for fact in done.chain(back).collect::<Vec<_>>() {
            self.flush(fact);
        }
    }
}
