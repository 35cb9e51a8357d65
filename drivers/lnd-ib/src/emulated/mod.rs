//! An emulated adapter: queue pairs, keys that open memory, a connection manager, and the packets that
//! adapters exchange, as values. The simulator and the tests of this crate carry the packets; what
//! they do to them on the way (loss, delay, nothing passes) is theirs.
//!
//! ```text
//!   Port<Emulated> ── Adapter ──► Emulated ── take_packets ──► the fabric ── arrive ──► Emulated
//! ```
//!
//! Connections are reliable as those of InfiniBand and RoCE: chains of work requests are numbered,
//! carried out in order, acknowledged by the adapter, and sent again until it gives the queue pair up,
//! seconds later. Requests of the connection manager are repeated as well. Of the protocol it knows which
//! message gives a peer a key, and which one says that the peer is through. What no adapter would do, or
//! no driver may ask for, is a violation: work on nothing, no receive buffer for a message, memory that is
//! read behind its end, or unmapped while a peer may still write it through a closing queue pair.
//!
//! `cm.rs` has the connection manager, `qp.rs` queue pairs, `keys.rs` memory, `packet.rs` the packets.

mod cm;
mod keys;
mod packet;
mod qp;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Errno, Instant, Memory, Nid, Prng, Span};
use lnet_wire::ib::{RdmaDesc, Type};

use crate::adapter::{Adapter, CmFact, Fact};
use crate::device::DeviceEvent;
use crate::value::{Access, CmCall, CmEvent, ConnId, MapId, MapMemory, Post, RequestId};

use cm::{Asked, Parting};
use keys::Keys;
use qp::Qp;

pub use packet::{Packet, PacketBody, QpNum};

/// Time until an acknowledgement is missed, and how often a chain is sent again: 4.096 µs × 2^17, and
/// what the kernel's driver asks for.
const ACK_TIMEOUT: Duration = Duration::from_micros(536_871);
const RETRIES: u32 = 5;
/// Time in which a failed queue pair gives back what is posted.
const FLUSH: Duration = Duration::from_micros(10);

/// What is wrong with an adapter. Each rate is "one in n", never if 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Completions that are lost.
    pub completion_loss: u64,
    /// Posts that put their queue pair into the error state.
    pub qp_error: u64,
    /// Memory that cannot be mapped.
    pub map_failure: u64,
    /// Maps have up to this many fragments; 1 if 0.
    pub fragments: u64,
    /// Messages of this type are lost between adapter and driver where they arrive.
    pub swallowed: Option<Type>,
    /// Messages leave without the credits that they return; the next ones afterwards bring them.
    pub withholds_credits: bool,
}

/// A packet to be carried, and what it is timed by.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The packet.
    pub packet: Packet,
    /// For [`Emulated::departed`]: an acknowledgement is awaited.
    pub timed: Option<ConnId>,
}

/// What a packet has done where it arrived.
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    /// The message that it brought to a receive buffer.
    pub message: Option<Vec<u8>>,
    /// Registered memory that it wrote.
    pub written: Vec<Span>,
    /// Bytes that it wrote, in all.
    pub bytes: u64,
}

/// An adapter port.
#[derive(Debug)]
pub struct Emulated {
    nid: Nid,
    rng: Prng,
    /// What is wrong with it.
    pub faults: Faults,
    /// Whether connection requests reach a driver.
    pub listens: bool,
    /// What no adapter would do, or no driver may ask for.
    pub violations: Vec<String>,
    /// A device that was taken away may be opened again.
    returned: bool,
    /// The device is being taken away.
    vanished: bool,
    qps: BTreeMap<ConnId, Qp>,
    by_number: BTreeMap<QpNum, ConnId>,
    requests: BTreeMap<RequestId, Asked>,
    partings: BTreeMap<QpNum, Parting>,
    keys: Keys,
    facts: VecDeque<Fact>,
    /// What comes back of queue pairs that have failed, and when.
    flushed: VecDeque<(Instant, Fact)>,
    /// The latest time that a call has brought.
    now: Instant,
    out: Vec<Outgoing>,
    last_number: u64,
    last_request: u64,
}

impl Emulated {
    /// An adapter with this address. Another life of a host has another seed.
    pub fn new(nid: Nid, seed: u64) -> Self {
        let mut rng = Prng::new(seed);
        // No number of an earlier life names a queue pair of this one.
        let last_number = rng.next_u64() >> 16 << 16;
        Self {
            nid,
            rng,
            faults: Faults::default(),
            listens: true,
            violations: Vec::new(),
            returned: false,
            vanished: false,
            qps: BTreeMap::new(),
            by_number: BTreeMap::new(),
            requests: BTreeMap::new(),
            partings: BTreeMap::new(),
            keys: Keys::default(),
            facts: VecDeque::new(),
            flushed: VecDeque::new(),
            now: Instant::ZERO,
            out: Vec::new(),
            last_number,
            last_request: 0,
        }
    }

    /// The packets that are to leave.
    pub fn take_packets(&mut self) -> Vec<Outgoing> {
        core::mem::take(&mut self.out)
    }

    /// Whether there is something for the driver.
    pub fn has_facts(&self) -> bool {
        !self.facts.is_empty()
    }

    /// A timed packet is with its receiver at `at`, or would be: an acknowledgement is missed so long
    /// after that.
    pub fn departed(&mut self, conn: ConnId, at: Instant) {
        if let Some(qp) = self.qps.get_mut(&conn) {
            qp.departed(at);
        }
    }

    /// A packet has arrived.
    pub fn arrive(&mut self, now: Instant, packet: Packet, mem: &mut dyn Memory) -> Arrival {
        self.now = self.now.max(now);
        match packet.body {
            PacketBody::Chain { to, number, writes, message } => {
                self.chain(packet.from, to, (number, &writes, &message), mem)
            }
            PacketBody::Ack { to, number } => {
                self.acknowledged(now, to, number);
                Arrival::default()
            }
            PacketBody::Again { to, number } => {
                self.again(now, to, number, mem);
                Arrival::default()
            }
            PacketBody::Refused { to } => {
                if let Some(conn) = self.by_number.get(&to).copied() {
                    self.break_qp(conn);
                }
                Arrival::default()
            }
            body => {
                self.managed(packet.from, body);
                Arrival::default()
            }
        }
    }

    /// Does what has become due.
    pub fn handle_timeout(&mut self, now: Instant, mem: &dyn Memory) {
        self.now = self.now.max(now);
        while self.flushed.front().is_some_and(|(at, _)| *at <= self.now) {
            self.facts.extend(self.flushed.pop_front().map(|(_, fact)| fact));
        }
        self.repeat_requests(now);
        self.repeat_chains(now, mem);
    }

    /// When [`Emulated::handle_timeout`] is next due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let qps = self.qps.values().filter_map(Qp::due);
        let partings = self.partings.values().map(|parting| parting.due);
        qps.chain(partings).chain(self.flushed.front().map(|(at, _)| *at)).min()
    }

    /// Reports an event of the device. Where it says that the device is of no use, all queue pairs are
    /// in the error state.
    pub fn device(&mut self, event: DeviceEvent) {
        if matches!(event, DeviceEvent::Fatal | DeviceEvent::Removed) {
            self.break_all();
        }
        self.facts.push_back(Fact::Device(event));
    }

    /// The device is being taken away, and no event tells of it.
    pub const fn vanish(&mut self) {
        self.vanished = true;
    }

    /// A device that was reported as removed is back, to be opened again.
    pub const fn come_back(&mut self) {
        self.returned = true;
    }

    /// All queue pairs fail.
    pub fn break_all(&mut self) {
        for conn in self.qps.keys().copied().collect::<Vec<_>>() {
            self.break_qp(conn);
        }
    }

    /// The owner of the adapter ends without a word of its driver: peers learn that connections end.
    pub fn leave(&mut self, now: Instant) {
        for conn in self.qps.keys().copied().collect::<Vec<_>>() {
            self.destroy(now, conn);
        }
    }

    /// The connections that it knows.
    pub fn conns(&self) -> impl Iterator<Item = ConnId> {
        self.qps.keys().copied()
    }

    /// The other end of a connection that is in use: its address, and the queue pair there.
    pub fn other_end(&self, conn: ConnId) -> Option<(Nid, QpNum)> {
        let qp = self.qps.get(&conn).filter(|qp| qp.is_ready())?;
        Some((qp.peer, qp.remote?))
    }

    /// The connection of a queue pair.
    pub fn conn_of(&self, number: QpNum) -> Option<ConnId> {
        self.by_number.get(&number).copied()
    }

    /// Whether nothing of a connection is on its way.
    pub fn is_still(&self, conn: ConnId) -> bool {
        self.qps.get(&conn).is_some_and(Qp::is_still)
    }

    /// Maps that are open.
    pub fn open_maps(&self) -> usize {
        self.keys.open()
    }

    /// A driver's own event, in a test.
    pub fn inject(&mut self, conn: ConnId, event: CmEvent<'static>) {
        self.report(conn, CmFact::Plain(event));
    }

    fn report(&mut self, conn: ConnId, event: CmFact) {
        self.facts.push_back(Fact::Cm { conn, event });
    }

    fn send(&mut self, to: Nid, body: PacketBody, timed: Option<ConnId>) {
        let packet = Packet { from: self.nid, to, body };
        self.out.push(Outgoing { packet, timed });
    }

    /// Comes back, in a moment.
    fn flush(&mut self, fact: Fact) {
        self.flushed.push_back((self.now + FLUSH, fact));
    }

    fn wrong(&mut self, what: &str) {
        self.violations.push(format!("{}: {what}", self.nid));
    }
}

impl Adapter for Emulated {
    fn cm(&mut self, now: Instant, call: CmCall) {
        self.now = self.now.max(now);
        self.call(now, call);
    }

    fn receive(&mut self, now: Instant, conn: ConnId, slot: u16) {
        self.now = self.now.max(now);
        let Some(qp) = self.qps.get_mut(&conn) else {
            return self.wrong("a buffer is posted to nothing");
        };
        if !qp.post_receive(slot) {
            self.flush(Fact::Received { conn, slot, outcome: Err(()) });
        }
    }

    fn post(&mut self, now: Instant, post: Post, mem: &dyn Memory) {
        self.now = self.now.max(now);
        self.post_chain(now, post, mem);
    }

    fn map(
        &mut self,
        map: MapId,
        memory: MapMemory,
        access: Access,
        _mem: &mut dyn Memory,
    ) -> Result<RdmaDesc, Errno> {
        if self.rng.one_in(self.faults.map_failure) {
            return Err(Errno::ENOMEM);
        }
        let pieces = 1 + self.rng.below(self.faults.fragments.max(1));
        Ok(self.keys.open_map(map, memory, access, pieces))
    }

    fn unmap(&mut self, map: MapId) {
        let through = self.keys.close_map(map);
        // What a peer may be writing must not be taken from it before the queue pair is gone.
        if through.and_then(|conn| self.qps.get(&conn)).is_some_and(Qp::is_ended) {
            self.wrong("memory is unmapped before its queue pair is destroyed");
        }
    }

    fn revoke(&mut self, map: MapId) {
        self.keys.close_map(map);
    }

    fn slot(&self, conn: ConnId, slot: u16) -> &[u8] {
        self.qps.get(&conn).map_or(&[], |qp| qp.slot(slot))
    }

    fn buffer(&self, map: MapId) -> &[u8] {
        self.keys.buffer(map)
    }

    fn is_there(&self) -> bool {
        !self.vanished
    }

    fn reopen(&mut self, _now: Instant) -> Result<(), Errno> {
        if !core::mem::take(&mut self.returned) {
            return Err(Errno::ENODEV);
        }
        if !self.qps.is_empty() || self.keys.open() > 0 {
            self.wrong("a device is opened again with something left of before");
        }
        self.vanished = false;
        self.facts.push_back(Fact::Device(DeviceEvent::PortActive));
        Ok(())
    }

    fn poll(&mut self) -> Option<Fact> {
        self.keys.forget_closed();
        self.facts.pop_front()
    }
}
