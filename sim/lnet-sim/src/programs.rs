//! What the scenario's programs do on their hosts: clients with exchanges under way, and servers that
//! take, give and answer. They use the node as any program does, and know nothing of paths.
//!
//! An exchange has a slot; each attempt has a number of its own, which goes over the wire and says
//! to which slot it belongs. What is for later (the next exchange, the end of a program's patience)
//! is wished for in [`Programs::wishes`], what others may need is left in
//! [`Programs::notes`]; the world collects both.

mod client;
mod flow;
mod server;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use lnet::{Event, MdSpec, Node, OpId, Report, Timeouts, Unlink};
use lnet_scenario::{RailRef, Scenario};
use lnet_types::{Errno, Instant, IoVec, MdId, Nid, Prng, ProcessId, RegionId};

use crate::directory::HostId;
use crate::host::Host;
use crate::observe::{AttemptId, BufferId};
pub(crate) use flow::Flow;

/// Something that a program wants to do later.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    /// The next exchange of a flow, in this life of its host.
    Next { flow: u32, life: u32 },
    /// Another attempt.
    Again { slot: u32, attempt: u64 },
    /// Patience with the oldest attempts of a flow may be over.
    Patience { flow: u32 },
}

/// What others may want to know; see [`crate::observe::Seen`].
#[derive(Clone, Debug)]
pub(crate) enum Note {
    Begun {
        host: HostId,
        workload: usize,
        attempt: AttemptId,
        to: Nid,
        again: u32,
    },
    Failed {
        host: HostId,
        attempt: AttemptId,
        why: Option<Errno>,
    },
    Ended {
        host: HostId,
        workload: usize,
        attempt: AttemptId,
        took: Duration,
        well: bool,
    },
    Delivered {
        host: HostId,
        attempt: AttemptId,
        answer: bool,
        intact: Option<bool>,
    },
    Posted {
        host: HostId,
        buffer: BufferId,
        floating: bool,
    },
    Event {
        host: HostId,
        buffer: BufferId,
        event: Event,
    },
    /// So long a flow with something under way had finished nothing.
    Gap {
        length: Duration,
    },
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A server's, for PUTs.
    Sink,
    /// A server's, for GETs.
    Source,
    /// A server's, for requests.
    Requests,
    /// A client's, that it sends or fetches into.
    Own { attempt: u64 },
    /// A client's, for the answer to a request.
    Answer { attempt: u64 },
    /// A client's, that the server moves the bulk of an RPC into or out of.
    Bulk { attempt: u64 },
    /// A server's, that it answers with.
    Reply,
    /// A server's, that it brings or fetches the bulk of an RPC with.
    Moved(Rpc),
}

/// An RPC, as its server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rpc {
    attempt: u64,
    write: bool,
    looked_at: bool,
    /// Where the answer goes, and which of the server's NIDs was asked.
    client: ProcessId,
    asked: Nid,
}

#[derive(Clone, Copy, Debug)]
struct Buffer {
    id: BufferId,
    role: Role,
    region: RegionId,
    /// Whether the region goes with the buffer.
    owned: bool,
}

/// What the programs of one host have.
#[derive(Debug, Default)]
struct Desk {
    buffers: Vec<Option<Buffer>>,
    free: Vec<u32>,
    ops: BTreeMap<OpId, u64>,
    /// A place without bytes that is as long as any message.
    blank: Option<RegionId>,
    flows: Vec<u32>,
    serves: Option<Service>,
}

/// What a host serves.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    /// Whether bytes are looked at.
    real: bool,
    /// The longest message that clients send it.
    largest: u32,
}

/// One exchange under way.
#[derive(Debug)]
struct Slot {
    flow: u32,
    /// Number of the attempt; 0 while there is none.
    attempt: u64,
    target: RailRef,
    begun: Instant,
    again: u32,
    /// What the attempt waits for still: see [`ACK`].
    awaits: u8,
    own: Option<MdId>,
    answer: Option<MdId>,
    bulk: Option<MdId>,
    /// What came as bulk was not what was sent.
    damaged: bool,
}

/// All programs of all hosts.
#[derive(Debug)]
pub(crate) struct Programs {
    scenario: Arc<Scenario>,
    flows: Vec<Flow>,
    slots: Vec<Slot>,
    desks: Vec<Desk>,
    /// The NIDs that each node has now, rail by rail.
    nids: Vec<Vec<Nid>>,
    attempts: u64,
    buffers: u64,
    rng: Prng,
    pub(crate) wishes: Vec<(HostId, Instant, Wish)>,
    /// Flows of the host that is looked after now of which one more exchange begins at once.
    soon: Vec<u32>,
    pub(crate) notes: Vec<Note>,
    /// Whether notes are read that are only for observers.
    pub(crate) watched: bool,
}

/// What an attempt may wait for, one bit each.
const ACK: u8 = 1;
/// The answer to a request.
const ANSWER: u8 = 2;
/// The bulk of an RPC.
const MOVED: u8 = 4;

/// Portals of servers and clients.
const SINK: u32 = 10;
const SOURCE: u32 = 11;
const REQUESTS: u32 = 12;
const ANSWERS: u32 = 13;
const BULK: u32 = 14;
/// Bytes of the request and of the reply of an RPC.
const RPC_LEN: u32 = 224;
/// Most bytes of a message.
const MESSAGE_MAX: u32 = lnet_wire::PAYLOAD_MAX;
/// Bits of an attempt's number that name its slot.
const SLOT_BITS: u32 = 24;

impl Programs {
    /// Slot of an attempt, if it is still the one under way there.
    fn slot_of(&self, attempt: u64) -> Option<u32> {
        let slot = (attempt & ((1 << SLOT_BITS) - 1)) as u32;
        let live = self.slots.get(slot as usize).is_some_and(|s| s.attempt == attempt);
        (live && attempt != 0).then_some(slot)
    }

    /// How long the program waits that made an attempt, as its flow says.
    fn patience_of(&self, attempt: u64) -> Option<Duration> {
        let slot = self.slots.get((attempt & ((1 << SLOT_BITS) - 1)) as usize)?;
        let flow = self.flows.get(slot.flow as usize)?;
        self.scenario.workload.get(flow.workload).map(|w| w.timeout)
    }

    fn post(&mut self, host: HostId, role: Role, region: RegionId, owned: bool) -> (u64, BufferId) {
        self.buffers += 1;
        let id = BufferId(self.buffers);
        let desk = &mut self.desks[host.0 as usize];
        let buffer = Some(Buffer { id, role, region, owned });
        let user = match desk.free.pop() {
            Some(at) => {
                desk.buffers[at as usize] = buffer;
                at
            }
            None => {
                desk.buffers.push(buffer);
                desk.buffers.len() as u32 - 1
            }
        };
        if self.watched {
            let floating = matches!(role, Role::Own { .. } | Role::Reply | Role::Moved(_));
            self.notes.push(Note::Posted { host, buffer: id, floating });
        }
        (u64::from(user), id)
    }

    /// Takes back a buffer whose descriptor never was, or is no more.
    fn unpost(&mut self, host: HostId, at: &mut Host, user: u64) {
        let desk = &mut self.desks[host.0 as usize];
        if let Some(buffer) = desk.buffers.get_mut(user as usize).and_then(Option::take) {
            desk.free.push(user as u32);
            if buffer.owned {
                at.mem.remove(buffer.region);
            }
        }
    }

    /// Memory for `len` bytes: with this pattern if bytes count, else a part of the blank place.
    fn memory(
        &mut self,
        host: HostId,
        at: &mut Host,
        len: u32,
        real: Option<Vec<u8>>,
    ) -> (IoVec, RegionId, bool) {
        let mut iov = match real {
            Some(bytes) => {
                let iov = at.mem.add_bytes(bytes);
                return (iov.clone(), iov[0].region, true);
            }
            None => {
                let desk = &mut self.desks[host.0 as usize];
                let region =
                    *desk.blank.get_or_insert_with(|| at.mem.add(MESSAGE_MAX, false)[0].region);
                IoVec::from_slice(&[lnet_types::Span { region, len, offset: 0 }])
            }
        };
        let region = iov[0].region;
        if len == 0 {
            iov.clear();
        }
        (iov, region, false)
    }

    /// A node tells something about a descriptor.
    pub(crate) fn event(&mut self, now: Instant, host: HostId, at: &mut Host, event: &Event) {
        let found = self.desks[host.0 as usize].buffers.get(event.user as usize);
        let Some(Some(buffer)) = found.copied() else { return };
        if self.watched {
            self.notes.push(Note::Event { host, buffer: buffer.id, event: *event });
        }
        match buffer.role {
            Role::Sink | Role::Source | Role::Requests | Role::Reply => {
                self.serve(now, host, at, &buffer, event);
            }
            Role::Own { attempt } => self.own_event(now, host, at, &buffer, attempt, event),
            Role::Answer { attempt } => self.answer_event(now, host, at, &buffer, attempt, event),
            Role::Bulk { attempt } => self.bulk_event(now, host, at, &buffer, attempt, event),
            Role::Moved(rpc) => self.moved(now, host, at, &buffer, rpc, event),
        }
        if event.unlinked {
            self.unpost(host, at, event.user);
            if matches!(buffer.role, Role::Sink | Role::Requests) {
                self.take_in(now, host, at, buffer.role);
            }
        }
    }

    /// A ping is answered, or not.
    pub(crate) fn report(&mut self, now: Instant, host: HostId, at: &mut Host, report: Report) {
        let Some(attempt) = self.desks[host.0 as usize].ops.remove(&report.op) else { return };
        let Some(slot) = self.slot_of(attempt) else { return };
        match report.outcome {
            Ok(_) => self.ended(now, host, at, slot, true),
            Err(errno) => self.failed(now, host, at, slot, Some(errno)),
        }
    }

    /// Whether [`Self::go_on`] has something to begin.
    pub(crate) fn has_soon(&self) -> bool {
        !self.soon.is_empty()
    }

    /// Begins what is to follow at once what has just ended well on this host.
    pub(crate) fn go_on(&mut self, now: Instant, host: HostId, at: &mut Host) {
        if self.soon.is_empty() {
            return;
        }
        let mut soon = core::mem::take(&mut self.soon);
        for flow in soon.drain(..) {
            self.begin(now, host, at, flow);
        }
        if self.soon.is_empty() {
            self.soon = soon;
        }
    }

    /// Something that was wished for is due.
    pub(crate) fn due(&mut self, now: Instant, host: HostId, at: &mut Host, wish: Wish) {
        match wish {
            Wish::Next { flow, life } => {
                if life == at.incarnation {
                    self.next(now, host, at, flow);
                }
            }
            Wish::Again { slot, attempt } => {
                let s = &self.slots[slot as usize];
                if s.attempt == attempt {
                    self.attempt(now, host, at, slot);
                }
            }
            Wish::Patience { flow } => self.patience(now, host, at, flow),
        }
    }
}

/// The bytes of a message: a block that `seed` decides, again and again. Its length has no part in
/// common with those of buffers, so that what lands in the wrong place is noticed.
fn pattern(seed: u64, len: u32) -> Vec<u8> {
    let mut block = [0; 8 * 31];
    let mut word = seed;
    for place in block.as_chunks_mut::<8>().0 {
        word = (word ^ (word >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed | 1);
        *place = word.to_le_bytes();
    }
    let mut bytes = block.repeat((len as usize).div_ceil(block.len()));
    bytes.truncate(len as usize);
    bytes
}

/// The limits that a program gives its operations: as long as it waits itself, where that is shorter
/// than the node's own. Programs of nodes whose messages have no deadline of their own can give none.
fn limits(node: &Node, patience: Duration) -> Option<Timeouts> {
    let tunables = node.tunables();
    let can = !tunables.conduct.deadline_per_attempt && patience < tunables.transaction();
    can.then(|| patience.into())
}

/// A descriptor that goes away by itself after `threshold` operations.
fn once(iov: IoVec, user: u64, threshold: u32) -> MdSpec {
    let mut md = MdSpec::new(iov, user);
    md.threshold = Some(threshold);
    md.unlink = Unlink::Auto;
    md
}
