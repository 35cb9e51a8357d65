//! Clients of one node: calls to targets, each load at its pace.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use lnet::upper::Below;
use lnet_scenario::{LoadKind, NodeId, Pace, Scenario, Share, World};
use lnet_types::{Errno, Instant, IoVec, Nid, Prng, Span};
use lustre_target::kv::wire::{self, Ask, INLINE_MAX, Info, InfoFlags, Operation};
use lustre_wire::ImportKind;
use ptlrpc::{Bulk, Call, CallError, CallId, Direction, ImportConfig, ImportId, Ptlrpc, Reply};

use super::host::{Buffers, is_stamped, stamp};
use super::keeping::CALL_AT;
use super::seen::{Answered, Asked, CallNo, KeyNo, RpcSeen};
use super::{APPEND, READ, wanted};
use crate::directory::Lookup;

/// A call under way.
struct Open {
    call: CallNo,
    stream: usize,
    begun: Instant,
    asked: Asked,
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
    open: Lookup<CallId, Open>,
    /// When the next call is to begin, whichever it is.
    due: Option<Instant>,
    count: u64,
    /// Versions of keys as they were last seen, by target.
    versions: BTreeMap<(usize, KeyNo), u64>,
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
            open: Lookup::default(),
            due: None,
            count: 0,
            versions: BTreeMap::new(),
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
            // Visits have connections of their own.
            if spec.kind.is_of_files() {
                continue;
            }
            let nids: Vec<Nid> =
                [Some(spec.on), spec.failover].into_iter().flatten().filter_map(nid).collect();
            let config = ImportConfig {
                kind: ImportKind::Osc,
                target: spec.name.clone(),
                client: uuid(world, self.node, self.life),
                nids,
                wanted: wanted(spec.kind),
            };
            // Names were checked when the scenario was read.
            let Ok(id) = ptlrpc.rpc(below).import(config) else { continue };
            self.imports.push((target, id));
        }
        for (load, l) in scenario.rpc.loads.iter().enumerate() {
            let others = matches!(l.kind, LoadKind::Lock(_) | LoadKind::Files(_));
            if others || !l.from.nodes().contains(&self.node) {
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
        self.due = self.earliest(below.now());
    }

    /// The connections of the node, by target.
    pub(super) fn imports(&self) -> &[(usize, ImportId)] {
        &self.imports
    }

    pub(super) fn target_of(&self, import: ImportId) -> Option<usize> {
        self.imports.iter().find(|(_, id)| *id == import).map(|(target, _)| *target)
    }

    /// When [`Self::run`] is wanted.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.due
    }

    /// When a call of a stream that has room from `from` on is to begin.
    fn begins(&self, stream: &Stream, from: Instant, now: Instant) -> Option<Instant> {
        let load = self.scenario.rpc.loads.get(stream.load)?;
        let at = from.max(stream.next);
        (at.max(now) < self.zero + load.end).then_some(at)
    }

    fn earliest(&self, now: Instant) -> Option<Instant> {
        let of = |stream| self.begins(stream, *stream.free.iter().min()?, now);
        self.streams.iter().filter_map(of).min()
    }

    /// Begins what is due.
    pub(super) fn run(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let now = below.now();
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for at in 0..self.streams.len() {
            while self.begin(ptlrpc, below, at, notes) {}
        }
        self.due = self.earliest(now);
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
        let Some(stream) = self.streams.get_mut(at).filter(|stream| stream.next <= now) else {
            return false;
        };
        let Some(room) = stream.free.iter().position(|from| *from <= now) else { return false };
        let scenario = self.scenario.clone();
        let load = scenario.rpc.loads.get(stream.load);
        let Some(load) = load.filter(|load| now < self.zero + load.end) else { return false };
        stream.free.swap_remove(room);
        if let Pace::Every(every) = load.pace {
            stream.next = (stream.next + every).max(now);
        }
        let (import, target) = (stream.import, stream.target);
        self.count += 1;
        let call = CallNo::new(self.node.0, self.life, self.count);
        let (load_index, kind, reads) = (stream.load, load.kind, load.reads);
        let asked = self.choose(load_index, kind, reads, target);
        let (mut made, bulk) = request(asked, kind, call);
        made.limit = load.timeout;
        let memory = match bulk {
            0 => None,
            bulk => self.buffers.take(below, bulk),
        };
        if let Some(span) = memory {
            let direction = if asked.reads() { Direction::Read } else { Direction::Write };
            // What is read is written over; a call that brings nothing must not look as if it had.
            stamp(below, span, if asked.reads() { CallNo(!call.0) } else { call });
            made.bulk = Some(Bulk { direction, memory: IoVec::from([span]) });
        }
        notes.push(RpcSeen::Called { target, call, asked });
        match ptlrpc.rpc(below).call(import, made) {
            Ok(id) => {
                self.open.insert(id, Open { call, stream: at, begun: now, asked, memory });
                true
            }
            Err(e) => {
                let took = Duration::ZERO;
                notes.push(RpcSeen::Ended { target, call, took, result: Err(e) });
                self.over(at, now + Duration::from_secs(1), memory, now);
                true
            }
        }
    }

    /// What the next call of a load asks for.
    fn choose(&mut self, load: usize, kind: LoadKind, reads: Share, target: usize) -> Asked {
        let reads = hits(&mut self.rng, reads);
        let LoadKind::Kv { keys, cas, dels, .. } = kind else {
            return if reads { Asked::Length } else { Asked::Append };
        };
        let key = KeyNo::new(load, self.rng.below(keys.into()));
        if reads {
            return Asked::Get(key);
        }
        match Share(self.rng.below(1_000_000) as u32) {
            dice if dice < cas => {
                Asked::Cas(key, self.versions.get(&(target, key)).copied().unwrap_or(0))
            }
            dice if dice < Share(cas.0 + dels.0) => Asked::Del(key),
            _ => Asked::Put(key),
        }
    }

    fn over(&mut self, stream: usize, from: Instant, memory: Option<Span>, now: Instant) {
        if let Some(span) = memory {
            self.buffers.give(span);
        }
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.free.push(from);
        }
        let begins = self.streams.get(stream).and_then(|stream| self.begins(stream, from, now));
        self.due = self.due.into_iter().chain(begins).min();
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
        let result = match (result, open.asked) {
            (Ok(reply), asked) => answered(&reply, asked, open.memory, below),
            // There is no such key.
            (Err(CallError::Refused(Errno::ENOENT)), Asked::Get(_) | Asked::Del(_)) => {
                Ok(Answered::Read { value: 0, by: None })
            }
            (Err(e), _) => Err(e),
        };
        // A list brings the number of the call that asked, a key that of the call which stored it.
        let meant = match (open.asked, &result) {
            (Asked::Length, Ok(_)) => Some(open.call),
            (Asked::Get(_), Ok(Answered::Read { by, .. })) => *by,
            _ => None,
        };
        if let (Some(span), Some(meant)) = (open.memory, meant)
            && !is_stamped(below, span, meant)
        {
            notes.push(RpcSeen::Damaged { call: open.call });
        }
        if let (Some(key), Ok(answered)) = (open.asked.key(), &result) {
            let gone = matches!(open.asked, Asked::Del(_));
            self.versions.insert((target, key), if gone { 0 } else { answered.value() });
        }
        let took = now.saturating_since(open.begun);
        // One that fails at once is not tried again in the same instant for ever.
        let rest = if result.is_err() { think.max(Duration::from_millis(100)) } else { think };
        notes.push(RpcSeen::Ended { target, call: open.call, took, result });
        self.over(open.stream, now + rest, open.memory, now);
    }
}

fn hits(rng: &mut Prng, share: Share) -> bool {
    share != Share::NONE && rng.below(1_000_000) < share.0.into()
}

/// A value of so many bytes, with the number of its call at both ends.
fn value(size: u32, call: CallNo) -> Vec<u8> {
    let mut value = vec![0; size as usize];
    for end in [0, value.len().saturating_sub(8)] {
        if let Some(end) = value.get_mut(end..).and_then(|rest| rest.first_chunk_mut()) {
            *end = call.0.to_le_bytes();
        }
    }
    value
}

/// The request of a call, and how many bytes of bulk data go with it.
fn request(asked: Asked, kind: LoadKind, call: CallNo) -> (Call, u32) {
    let (size, bulk) = match kind {
        // Locks and files have calls of their own.
        LoadKind::Lock(_) | LoadKind::Files(_) => (0, 0),
        LoadKind::List { bulk } => (0, bulk),
        LoadKind::Kv { size, .. } if size as usize > INLINE_MAX => (0, size),
        LoadKind::Kv { size, .. } => (size, 0),
    };
    let list = |opcode| {
        let words = lustre_wire::Buffers::new().layout(&call.0).layout(&bulk);
        (Call::new(opcode, words).answered_by(&[8]), bulk)
    };
    let keyed = |operation: Operation, key: KeyNo, expect: u64, bulk: u32, value: &[u8]| {
        let ask = Ask { expect, len: bulk.into() };
        let mut made = wire::call(operation, ask, &key.bytes(), value);
        let number = made.buffers.get_mut(0).and_then(|ask| ask.get_mut(CALL_AT..));
        if let Some(number) = number.and_then(|rest| rest.first_chunk_mut()) {
            *number = call.0.to_le_bytes();
        }
        (made, bulk)
    };
    let inline = if size == 0 { Vec::new() } else { value(size, call) };
    match asked {
        Asked::Append => list(APPEND),
        Asked::Length => list(READ),
        Asked::Put(key) => keyed(Operation::Put, key, 0, bulk, &inline),
        Asked::Cas(key, version) => keyed(Operation::Cas, key, version, bulk, &inline),
        Asked::Del(key) => keyed(Operation::Del, key, 0, 0, &[]),
        Asked::Get(key) => keyed(Operation::Get, key, 0, bulk, &[]),
    }
}

/// What a reply says.
fn answered(
    reply: &Reply,
    asked: Asked,
    memory: Option<Span>,
    below: &Below<'_>,
) -> Result<Answered, CallError> {
    let msg = reply.msg().map_err(CallError::BadReply)?;
    if asked.key().is_none() {
        let value = msg.get::<u64>(1).map_err(CallError::BadReply)?;
        return Ok(match asked.reads() {
            true => Answered::Read { value, by: None },
            false => Answered::Changed { transno: value, before: None },
        });
    }
    let info = Info::of(&msg).unwrap_or_default();
    if !asked.reads() && info.flags.contains(InfoFlags::APPLIED) {
        return Ok(Answered::Changed { transno: reply.transno, before: Some(info.previous) });
    }
    let first = |bytes: &[u8]| bytes.first_chunk().map(|b| CallNo(u64::from_le_bytes(*b)));
    let by = match (asked.reads(), memory) {
        (false, _) => None,
        (true, Some(span)) => first(below.bytes(span)),
        (true, None) => msg.buffer(2).and_then(first),
    };
    Ok(Answered::Read { value: info.version, by })
}
