//! Programs of one node that take locks, over the real client of locks (`ldlm::client`): each asks for
//! a lock, uses it, gives it back, and rests. It has one lock at a time, and waits for none while it
//! has one.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ldlm::Mode;
use ldlm::client::{Ask, CacheLimits, Config, GoneReason, HoldId, LockClient, LockEvent, LockId};
use ldlm::space::Io;
use lnet::upper::Below;
use lnet_scenario::{LoadKind, LockLoad, LockPart, NodeId, Pace, RpcLoad, Scenario, Share};
use lnet_types::{ByteOrder, Errno, Instant, Prng};
use lustre_target::lock::wire::{fence_of, resource_of};
use lustre_wire::ldlm::{InodeBits, LockFlags, Policy, ResourceName};
use lustre_wire::{Buffers, ImportKind, Portal};
use ptlrpc::{Call, CallError, CallId, Event, ImportId, Ptlrpc, Reply};

use super::super::IO;
use super::super::seen::{CallNo, KeyNo, RpcSeen};
use super::target::request;
use super::{LockSeen, LockWant};

/// A program that is called back ends what it does within so many milliseconds.
const LETS_GO_MS: u64 = 200;
/// A page of a range.
const PAGE: u64 = 4096;
/// Inode bits that programs lock.
const BITS: u64 = 0x3F;

/// What a program does.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing, until then.
    Rests(Instant),
    /// It waits for a lock.
    Waits { since: Instant },
    /// It has the lock.
    Holds(Holding),
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    hold: HoldId,
    /// The part of the lock, which may be larger than what was wanted.
    part: Policy,
    /// When it is given back.
    until: Instant,
    /// When the next I/O begins.
    io_at: Option<Instant>,
    /// I/O is under way.
    busy: bool,
}

struct Program {
    stream: usize,
    ask: CallNo,
    want: LockWant,
    state: State,
}

/// One load of the scenario to one target.
#[derive(Clone, Copy)]
struct Stream {
    index: usize,
    load: LockLoad,
    target: usize,
    import: ImportId,
    /// The next one asks then, at a fixed pace.
    next: Instant,
}

/// All programs of a node that take locks.
pub(in crate::rpc) struct Locking {
    scenario: Arc<Scenario>,
    node: NodeId,
    life: u32,
    /// What the node's clock shows when the world begins.
    zero: Instant,
    client: LockClient,
    streams: Vec<Stream>,
    programs: Vec<Program>,
    /// When the first of them is due, unless one has changed since.
    due: Option<Instant>,
    changed: bool,
    /// Which program a hold is of.
    holds: BTreeMap<HoldId, usize>,
    /// I/O under way: its program, and the ask that it is under.
    calls: BTreeMap<CallId, (usize, CallNo)>,
    count: u64,
    hangs: bool,
    rng: Prng,
}

/// The words of a name.
fn resource(name: KeyNo) -> (String, ResourceName) {
    let text = name.to_string();
    let words = resource_of(&text).unwrap_or(ResourceName { words: [name.0, 0, 0, 0] });
    (text, words)
}

impl Locking {
    pub(in crate::rpc) fn new(
        scenario: Arc<Scenario>,
        (node, life): (NodeId, u32),
        zero: Instant,
        hangs: bool,
        mut rng: Prng,
    ) -> Self {
        let (seed, tunables) = (rng.next_u64(), scenario.rpc.tunables.clone());
        let cache = CacheLimits::default();
        let client = LockClient::new(Config { seed, tunables, cache });
        Self {
            scenario,
            node,
            life,
            zero,
            client,
            streams: Vec::new(),
            programs: Vec::new(),
            due: None,
            changed: true,
            holds: BTreeMap::new(),
            calls: BTreeMap::new(),
            count: 0,
            hangs,
            rng,
        }
    }

    /// Makes the programs of the node over its connections.
    ///
    /// # Errors
    /// Callbacks can't be served.
    pub(in crate::rpc) fn open(
        &mut self,
        imports: &[(usize, ImportId)],
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
    ) -> Result<(), Errno> {
        let scenario = self.scenario.clone();
        for (index, l) in scenario.rpc.loads.iter().enumerate() {
            let LoadKind::Lock(load) = l.kind else { continue };
            if !l.from.nodes().contains(&self.node) {
                continue;
            }
            let begin = (self.zero + l.start).max(below.now());
            for &target in &l.to {
                let Some(&(_, import)) = imports.iter().find(|(t, _)| *t == target) else {
                    continue;
                };
                self.client.open(import, &mut ptlrpc.rpc(below))?;
                let stream = self.streams.len();
                self.streams.push(Stream { index, load, target, import, next: begin });
                for _ in 0..l.window {
                    let want = LockWant {
                        name: KeyNo::new(index, 0),
                        mode: Mode::Nl,
                        part: Policy::Plain,
                    };
                    // One without a ramp draws nothing.
                    let ramp = u64::try_from(load.ramp.as_nanos()).unwrap_or(u64::MAX);
                    let later = if ramp == 0 { 0 } else { self.rng.below(ramp) };
                    let state = State::Rests(begin + Duration::from_nanos(later));
                    self.programs.push(Program { stream, ask: CallNo(0), want, state });
                }
            }
        }
        Ok(())
    }

    pub(in crate::rpc) fn hang(&mut self, hangs: bool) {
        self.hangs = hangs;
        self.changed = true;
    }

    fn load(&self, stream: &Stream) -> Option<&RpcLoad> {
        self.scenario.rpc.loads.get(stream.index)
    }

    /// When a program has something to do.
    fn due(&self, program: &Program) -> Option<Instant> {
        let stream = self.streams.get(program.stream)?;
        match program.state {
            State::Rests(from) => {
                let at = from.max(stream.next);
                (at < self.zero + self.load(stream)?.end).then_some(at)
            }
            State::Waits { .. } => None,
            State::Holds(Holding { busy: true, .. }) => None,
            State::Holds(_) if self.hangs => None,
            State::Holds(Holding { until, io_at, .. }) => {
                Some(io_at.map_or(until, |at| at.min(until)))
            }
        }
    }

    /// When the first program has something to do.
    fn first(&self) -> Option<Instant> {
        self.programs.iter().filter_map(|program| self.due(program)).min()
    }

    /// A program, to be changed.
    fn program_mut(&mut self, at: usize) -> Option<&mut Program> {
        self.changed = true;
        self.programs.get_mut(at)
    }

    /// When [`Self::run`] is wanted.
    pub(in crate::rpc) fn next(&self) -> Option<Instant> {
        if self.programs.is_empty() {
            return None;
        }
        debug_assert!(self.changed || self.due == self.first());
        let programs = if self.changed { self.first() } else { self.due };
        [programs, self.client.poll_timeout()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(in crate::rpc) fn run(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        if self.programs.is_empty() {
            return;
        }
        let now = below.now();
        if self.client.poll_timeout().is_some_and(|at| at <= now) {
            self.client.handle_timeout(&mut ptlrpc.rpc(below));
        }
        loop {
            self.learn(ptlrpc, below, notes);
            if core::mem::take(&mut self.changed) {
                self.due = self.first();
            }
            if self.due.is_none_or(|due| due > now) {
                return;
            }
            let due = |program: &Program| self.due(program).is_some_and(|at| at <= now);
            let Some(at) = self.programs.iter().position(due) else { return };
            match self.programs.get(at).map(|program| program.state) {
                Some(State::Rests(_)) => self.ask(at, ptlrpc, below, notes),
                Some(State::Holds(holding)) if holding.until <= now => {
                    self.release(at, ptlrpc, below, notes);
                }
                Some(State::Holds(_)) => self.use_lock(at, ptlrpc, below, notes),
                _ => return,
            }
        }
    }

    fn note(&self, stream: usize, seen: LockSeen, notes: &mut Vec<RpcSeen>) {
        let target = self.streams.get(stream).map_or(usize::MAX, |stream| stream.target);
        notes.push(RpcSeen::Lock { target, seen });
    }

    /// What a program wants next.
    fn choose(&mut self, index: usize, load: &LockLoad) -> LockWant {
        let rng = &mut self.rng;
        let name = KeyNo::new(index, rng.below(load.names.into()));
        let nth = rng.below(load.modes.len().into()) as usize;
        let mode = load.modes.iter().nth(nth).unwrap_or(Mode::Ex);
        let gid = if mode == Mode::Group { 1 + rng.below(2) } else { 0 };
        let part = match load.part {
            LockPart::Whole => Policy::Extent { start: 0, end: u64::MAX, gid },
            LockPart::Touching => {
                let start = rng.below(8) * PAGE;
                Policy::Extent { start, end: start + PAGE - 1 + rng.below(2), gid }
            }
            LockPart::Random => {
                let start = rng.below(64 * PAGE);
                let end = match rng.one_in(4) {
                    true => u64::MAX,
                    false => start + rng.below(16 * PAGE),
                };
                Policy::Extent { start, end, gid }
            }
            LockPart::Bits => {
                let bits = (rng.below(BITS) + 1) & (rng.below(BITS) + 1);
                let bits = InodeBits::from_bits_retain(bits.max(1));
                Policy::Ibits { bits, try_bits: InodeBits::empty(), gid, initiator: 0 }
            }
            LockPart::Plain => Policy::Plain,
        };
        LockWant { name, mode, part }
    }

    fn ask(
        &mut self,
        at: usize,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let now = below.now();
        let Some(program) = self.programs.get(at) else { return };
        let (nth, Some(stream)) = (program.stream, self.streams.get_mut(program.stream)) else {
            return;
        };
        let scenario = self.scenario.clone();
        let Some(load) = scenario.rpc.loads.get(stream.index) else { return };
        if let Pace::Every(every) = load.pace {
            stream.next = (stream.next + every).max(now);
        }
        let stream = *stream;
        self.count += 1;
        // A node that makes calls too counts those from below.
        let ask = CallNo::new(self.node.0, self.life, self.count | 1 << 27);
        let want = self.choose(stream.index, &stream.load);
        self.note(nth, LockSeen::Asked { ask, want }, notes);
        let (name, words) = resource(want.name);
        let mut made = Ask::new(words, want.mode, want.part);
        made.beside = Buffers::from([name]);
        made.limit = load.timeout;
        // Half of the locks grow as the server likes.
        made.flags.set(LockFlags::NO_EXPANSION, self.rng.one_in(2));
        let state = match self.client.enqueue(stream.import, &made, &mut ptlrpc.rpc(below)) {
            Ok(hold) => {
                self.holds.insert(hold, at);
                State::Waits { since: now }
            }
            Err(error) => {
                self.note(nth, LockSeen::Refused { ask, error }, notes);
                State::Rests(now + Duration::from_secs(1))
            }
        };
        if let Some(program) = self.program_mut(at) {
            (program.ask, program.want, program.state) = (ask, want, state);
        }
    }

    /// A program has nothing any more.
    fn rest(&mut self, at: usize, now: Instant, least: Duration) {
        let Some(program) = self.programs.get(at) else { return };
        let stream = self.streams.get(program.stream);
        let think = match stream.and_then(|stream| self.load(stream)).map(|load| load.pace) {
            Some(Pace::Window { think, .. }) => think,
            _ => Duration::ZERO,
        };
        if let Some(program) = self.program_mut(at) {
            program.state = State::Rests(now + think.max(least));
        }
    }

    fn release(
        &mut self,
        at: usize,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let Some(Program { stream, ask, state: State::Holds(holding), .. }) = self.programs.get(at)
        else {
            return;
        };
        let (nth, ask, hold) = (*stream, *ask, holding.hold);
        let Some(stream) = self.streams.get(nth).copied() else { return };
        self.note(nth, LockSeen::Released { ask }, notes);
        self.holds.remove(&hold);
        let keep = self.rng.below(1_000_000) < u64::from(stream.load.keep.0);
        let keep = keep && stream.load.keep != Share::NONE;
        self.client.release(stream.import, hold, keep, &mut ptlrpc.rpc(below));
        self.rest(at, below.now(), Duration::ZERO);
    }

    /// Reads or writes under the lock.
    fn use_lock(
        &mut self,
        at: usize,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        self.changed = true;
        let Some(program) = self.programs.get_mut(at) else { return };
        let (nth, ask, want) = (program.stream, program.ask, program.want);
        let (State::Holds(holding), Some(stream)) = (&mut program.state, self.streams.get(nth))
        else {
            return;
        };
        let (Policy::Extent { start, end, .. }, Some(every)) = (want.part, stream.load.io) else {
            return;
        };
        holding.io_at = Some(below.now() + every);
        let io = Io {
            resource: resource(want.name).1,
            start,
            end: end.min(start.saturating_add(PAGE - 1)),
            read: want.mode == Mode::Pr,
            lock: None,
        };
        let mut call = Call::new(IO, request(&io));
        call.modifies = false;
        call.portals = Some((Portal::OST_IO, ImportKind::Osc.portals().1));
        match ptlrpc.rpc(below).call(stream.import, call) {
            Ok(call) => {
                holding.busy = true;
                self.calls.insert(call, (at, ask));
                self.note(nth, LockSeen::Using { ask }, notes);
            }
            Err(_) => {
                // The end of the lock says why.
                holding.io_at = Some(below.now() + every.max(Duration::from_secs(1)));
            }
        }
    }

    /// I/O has ended.
    fn used(
        &mut self,
        (at, ask): (usize, CallNo),
        result: Result<&Reply, CallError>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let Some(program) = self.program_mut(at).filter(|program| program.ask == ask) else {
            return;
        };
        if let State::Holds(holding) = &mut program.state {
            holding.busy = false;
        }
        let (stream, result) = (program.stream, result.map(|_| ()));
        self.note(stream, LockSeen::Used { ask, result }, notes);
    }

    /// Takes an event of the request layer; it comes back if it is for another part of the node.
    pub(in crate::rpc) fn event(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        event: Event,
        notes: &mut Vec<RpcSeen>,
    ) -> Option<Event> {
        if self.programs.is_empty() {
            return Some(event);
        }
        if let Event::Ended { call, result } = &event
            && let Some(by) = self.calls.remove(call)
        {
            self.used(by, result.as_ref().map_err(|e| *e), notes);
            return None;
        }
        let event = self.client.event(event, &mut ptlrpc.rpc(below));
        self.learn(ptlrpc, below, notes);
        event
    }

    /// What the client of locks says to the programs.
    fn learn(&mut self, ptlrpc: &mut Ptlrpc, below: &mut Below<'_>, notes: &mut Vec<RpcSeen>) {
        while let Some((import, event)) = self.client.poll_event() {
            match event {
                LockEvent::Granted { hold, policy, lvb, mode, .. } => {
                    let fence = fence_of(ByteOrder::Little, &lvb);
                    self.granted(below.now(), hold, (mode, policy), fence, notes);
                }
                LockEvent::Refused { hold, error } => {
                    let Some(at) = self.holds.remove(&hold) else { continue };
                    let Some(program) = self.programs.get(at) else { continue };
                    let (stream, ask) = (program.stream, program.ask);
                    self.note(stream, LockSeen::Refused { ask, error }, notes);
                    self.rest(at, below.now(), Duration::from_millis(100));
                }
                LockEvent::CalledBack { lock, holds, wanted } => {
                    let one = holds.len() == 1;
                    for hold in holds {
                        let part = wanted.policy().filter(|_| one);
                        self.called_back((import, lock), hold, part, ptlrpc, below, notes);
                    }
                }
                LockEvent::Gone { holds, reason: GoneReason::Lost, .. } => {
                    for hold in holds {
                        let Some(at) = self.holds.remove(&hold) else { continue };
                        let Some(program) = self.programs.get(at) else { continue };
                        let (stream, ask) = (program.stream, program.ask);
                        self.note(stream, LockSeen::Lost { ask }, notes);
                        self.rest(at, below.now(), Duration::from_millis(100));
                    }
                }
                // Programs have asked for neither.
                LockEvent::Aborted { .. } | LockEvent::Flush { .. } | LockEvent::Glimpse { .. } => {
                }
                LockEvent::Gone { .. } | LockEvent::Converted { .. } => {}
            }
        }
    }

    fn granted(
        &mut self,
        now: Instant,
        hold: HoldId,
        (mode, part): (Mode, Policy),
        fence: Option<u64>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let Some(at) = self.holds.get(&hold).copied() else { return };
        self.changed = true;
        let Some(program) = self.programs.get_mut(at) else { return };
        let Some(stream) = self.streams.get(program.stream) else { return };
        let State::Waits { since } = program.state else { return };
        let until = now + stream.load.hold;
        let io_at = stream.load.io.map(|_| now);
        program.state = State::Holds(Holding { hold, part, until, io_at, busy: false });
        let (ask, want, stream) = (program.ask, program.want, program.stream);
        // A lock of a stronger mode excludes all that one of this mode does.
        let strong = Mode::ALL.into_iter().all(|m| want.mode.allows(m) || !mode.allows(m));
        let covers = (strong || want.mode == mode) && want.is_within(&part);
        let took = now.saturating_since(since);
        self.note(stream, LockSeen::Granted { ask, fence, covers, took }, notes);
    }

    /// Another client wants the lock of a program.
    fn called_back(
        &mut self,
        (import, lock): (ImportId, LockId),
        hold: HoldId,
        wanted: Option<Policy>,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let Some(at) = self.holds.get(&hold).copied() else { return };
        let Some(program) = self.programs.get(at) else { return };
        let (nth, ask, want, state) = (program.stream, program.ask, program.want, program.state);
        self.note(nth, LockSeen::CalledBack { ask }, notes);
        let (State::Holds(mut holding), false) = (state, self.hangs) else { return };
        if self.streams.get(nth).is_none_or(|stream| stream.load.io.is_some()) {
            return;
        }
        let left = left_of(&want.part, &holding.part, wanted);
        if let (Some((mine, of_lock)), true) = (left, self.rng.one_in(2)) {
            let Policy::Ibits { bits: keep, .. } = of_lock else { return };
            self.note(nth, LockSeen::Shrunk { ask, left: mine }, notes);
            holding.part = of_lock;
            if let Some(program) = self.program_mut(at) {
                (program.want.part, program.state) = (mine, State::Holds(holding));
            }
            // One that can't be converted stays called back, and goes when its time has come.
            if self.client.convert(import, lock, keep, &mut ptlrpc.rpc(below)).is_ok() {
                return;
            }
        }
        let soon = below.now() + Duration::from_millis(self.rng.below(LETS_GO_MS));
        holding.until = holding.until.min(soon);
        if let Some(program) = self.program_mut(at) {
            program.state = State::Holds(holding);
        }
    }
}

/// What is left of a hold and of its lock without the bits that another client wants; `None` if one of
/// them has nothing then, or there are no bits.
fn left_of(hold: &Policy, lock: &Policy, wanted: Option<Policy>) -> Option<(Policy, Policy)> {
    // Bits that conflict stand in the second word of a callback (L-33).
    let Some(Policy::Ibits { try_bits: gone, .. }) = wanted else { return None };
    let without = |part: &Policy| match *part {
        Policy::Ibits { bits, try_bits, gid, initiator } => {
            let bits = bits.difference(gone);
            (!bits.is_empty()).then_some(Policy::Ibits { bits, try_bits, gid, initiator })
        }
        _ => None,
    };
    if gone.is_empty() { None } else { Some((without(hold)?, without(lock)?)) }
}
