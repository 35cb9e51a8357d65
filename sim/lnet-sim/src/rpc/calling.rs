//! Clients of one node: calls to targets, each load at its pace.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use lnet::upper::Below;
use lnet_scenario::{NodeId, Pace, Scenario, Share, World};
use lnet_types::{Instant, IoVec, Nid, Prng, Span};
use lustre_wire::ImportKind;
use ptlrpc::{Bulk, Call, CallError, CallId, Direction, ImportConfig, ImportId, Ptlrpc, Reply};

use super::host::{Buffers, is_stamped, stamp};
use super::seen::{CallNo, RpcSeen};
use super::{APPEND, READ, connect_data};

/// Bits of a call's number that count the calls of one life of a node.
const COUNT_BITS: u32 = 28;
/// Bits that count its lives.
const LIFE_BITS: u32 = 8;

/// A call under way.
struct Open {
    call: CallNo,
    stream: usize,
    begun: Instant,
    reads: bool,
    memory: Option<Span>,
}

/// One load of the scenario to one target.
struct Stream {
    load: usize,
    target: usize,
    import: ImportId,
    /// Room for calls, each from when on.
    free: Vec<Instant>,
    /// The next one is due then, at a fixed pace.
    next: Instant,
}

/// All calls of a node.
pub(crate) struct Calling {
    scenario: Arc<Scenario>,
    node: NodeId,
    life: u32,
    /// What the node's clock shows when the world begins.
    zero: Instant,
    imports: Vec<(usize, ImportId)>,
    streams: Vec<Stream>,
    open: BTreeMap<CallId, Open>,
    count: u64,
    buffers: Buffers,
    rng: Prng,
}

/// The uuid of a client: another one in each life of its node.
pub(super) fn uuid(world: &World, node: NodeId, life: u32) -> String {
    match format!("{}_{life}", world.name(node)) {
        name if name.len() <= ptlrpc::UUID_MAX => name,
        _ => format!("node-{}_{life}", node.0),
    }
}

impl Calling {
    pub(super) fn new(
        scenario: Arc<Scenario>,
        node: NodeId,
        life: u32,
        zero: Instant,
        rng: Prng,
    ) -> Self {
        Self {
            scenario,
            node,
            life,
            zero,
            imports: Vec::new(),
            streams: Vec::new(),
            open: BTreeMap::new(),
            count: 0,
            buffers: Buffers::default(),
            rng,
        }
    }

    /// Makes the connections of the node; they connect with the first call.
    pub(super) fn connect(&mut self, ptlrpc: &mut Ptlrpc, below: &mut Below<'_>) {
        let scenario = self.scenario.clone();
        let world = &scenario.world;
        let nid = |node: NodeId| world.node(node).and_then(|n| n.rails.first()).map(|r| r.nid);
        for target in scenario.rpc.targets_of(self.node) {
            let Some(spec) = scenario.rpc.targets.get(target) else { continue };
            let nids: Vec<Nid> =
                [Some(spec.on), spec.failover].into_iter().flatten().filter_map(nid).collect();
            let config = ImportConfig {
                kind: ImportKind::Osc,
                target: spec.name.clone(),
                client: uuid(world, self.node, self.life),
                nids,
                wanted: connect_data(),
            };
            // Names were checked when the scenario was read.
            let Ok(id) = ptlrpc.rpc(below).import(config) else { continue };
            self.imports.push((target, id));
        }
        for (load, l) in scenario.rpc.loads.iter().enumerate() {
            if !l.from.nodes().contains(&self.node) {
                continue;
            }
            let begin = (self.zero + l.start).max(below.now());
            for &target in &l.to {
                let Some(&(_, import)) = self.imports.iter().find(|(t, _)| *t == target) else {
                    continue;
                };
                let free = vec![begin; l.window as usize];
                self.streams.push(Stream { load, target, import, free, next: begin });
            }
        }
    }

    pub(super) fn target_of(&self, import: ImportId) -> Option<usize> {
        self.imports.iter().find(|(_, id)| *id == import).map(|(target, _)| *target)
    }

    /// When [`Self::run`] is wanted.
    pub(super) fn next(&self) -> Option<Instant> {
        let due = self.streams.iter().filter_map(|s| {
            let load = self.scenario.rpc.loads.get(s.load)?;
            let at = (*s.free.iter().min()?).max(s.next);
            (at < self.zero + load.end).then_some(at)
        });
        due.min()
    }

    /// Begins what is due.
    pub(super) fn run(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        for at in 0..self.streams.len() {
            while self.begin(ptlrpc, below, at, notes) {}
        }
    }

    /// Begins a call of a stream if one is due.
    fn begin(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        at: usize,
        notes: &mut Vec<RpcSeen>,
    ) -> bool {
        let now = below.now();
        let scenario = self.scenario.clone();
        let Some(stream) = self.streams.get_mut(at) else { return false };
        let Some(load) = scenario.rpc.loads.get(stream.load) else { return false };
        let room = stream.free.iter().position(|from| *from <= now);
        let (Some(room), true) = (room, stream.next <= now && now < self.zero + load.end) else {
            return false;
        };
        stream.free.swap_remove(room);
        if let Pace::Every(every) = load.pace {
            stream.next = (stream.next + every).max(now);
        }
        let (import, target) = (stream.import, stream.target);
        self.count += 1;
        let life = u64::from(self.life) & ((1 << LIFE_BITS) - 1);
        let number = u64::from(self.node.0) << (COUNT_BITS + LIFE_BITS)
            | life << COUNT_BITS
            | self.count & ((1 << COUNT_BITS) - 1);
        let call = CallNo(number);
        let reads = load.reads != Share::NONE && self.rng.below(1_000_000) < load.reads.0.into();
        let opcode = if reads { READ } else { APPEND };
        let words = vec![number.to_le_bytes().to_vec(), load.bulk.to_le_bytes().to_vec()];
        let mut made = Call::new(opcode, words);
        made.reply_lens = vec![8];
        made.limit = load.timeout;
        let memory = match load.bulk {
            0 => None,
            bulk => self.buffers.take(below, bulk),
        };
        if let Some(span) = memory {
            let direction = if reads { Direction::Read } else { Direction::Write };
            // What is read is written over; a call that brings nothing must not look as if it had.
            stamp(below, span, if reads { CallNo(!number) } else { call });
            made.bulk = Some(Bulk { direction, memory: IoVec::from([span]) });
        }
        notes.push(RpcSeen::Called { target, call, reads });
        match ptlrpc.rpc(below).call(import, made) {
            Ok(id) => {
                self.open.insert(id, Open { call, stream: at, begun: now, reads, memory });
                true
            }
            Err(e) => {
                let took = Duration::ZERO;
                notes.push(RpcSeen::Ended { target, call, took, result: Err(e) });
                self.over(at, now + Duration::from_secs(1), memory);
                true
            }
        }
    }

    fn over(&mut self, stream: usize, from: Instant, memory: Option<Span>) {
        if let Some(span) = memory {
            self.buffers.give(span);
        }
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.free.push(from);
        }
    }

    /// A call has ended.
    pub(super) fn ended(
        &mut self,
        below: &Below<'_>,
        id: CallId,
        result: Result<Reply, CallError>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let now = below.now();
        let Some(open) = self.open.remove(&id) else { return };
        let Some(stream) = self.streams.get(open.stream) else { return };
        let target = stream.target;
        let think = match self.scenario.rpc.loads.get(stream.load).map(|l| l.pace) {
            Some(Pace::Window { think, .. }) => think,
            _ => Duration::ZERO,
        };
        if let (Some(span), true, Ok(_)) = (open.memory, open.reads, &result)
            && !is_stamped(below, span, open.call)
        {
            notes.push(RpcSeen::Damaged { call: open.call });
        }
        let result = result.and_then(|reply| {
            let value = reply.msg().and_then(|msg| msg.get::<u64>(1));
            value.map_err(CallError::BadReply)
        });
        let took = now.saturating_since(open.begun);
        // One that fails at once is not tried again in the same instant for ever.
        let rest = if result.is_err() { think.max(Duration::from_millis(100)) } else { think };
        notes.push(RpcSeen::Ended { target, call: open.call, took, result });
        self.over(open.stream, now + rest, open.memory);
    }
}
