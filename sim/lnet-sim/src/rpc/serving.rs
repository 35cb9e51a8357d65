//! Targets of one node: requests are carried out, perhaps late, and what they change is committed
//! some time afterwards.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use lnet::upper::Below;
use lnet_scenario::Scenario;
use lnet_types::{Errno, Instant, IoVec, Prng, Span};
use lustre_wire::{ImportKind, Portal};
use ptlrpc::{Answer, Direction, Ptlrpc, Served, ServedId, ServiceConfig, TargetConfig, TargetId};

use super::host::{Buffers, stamp};
use super::seen::{CallNo, RpcSeen};
use super::{APPEND, READ, connect_data};

/// What of a target survives the death of its node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// The list: a transaction for each entry.
    entries: BTreeMap<u64, CallNo>,
}

/// How a target misbehaves now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    /// Requests are late by so much, and up to so much more.
    pub(crate) slow: Option<(Duration, Duration)>,
    /// Nothing is committed.
    pub(crate) stalled: bool,
}

/// A target that is served here.
struct Mounted {
    /// Index in the scenario.
    index: usize,
    id: TargetId,
    entries: BTreeMap<u64, CallNo>,
    /// Up to here they survive.
    committed: u64,
    commit: Duration,
    due: Option<Instant>,
    /// Answers that wait for their change to be committed.
    held: Vec<(ServedId, Answer)>,
    trouble: Trouble,
}

/// A request in work.
struct Work {
    served: ServedId,
    target: TargetId,
    call: CallNo,
    reads: bool,
    bulk: u32,
}

/// All targets of a node.
pub(crate) struct Serving {
    scenario: Arc<Scenario>,
    mounted: Vec<Mounted>,
    /// Requests that are late, by when their turn is.
    late: BTreeMap<(Instant, u64), Work>,
    arrived: u64,
    moving: BTreeMap<ServedId, (Work, Span)>,
    buffers: Buffers,
    rng: Prng,
}

impl Serving {
    pub(super) fn new(scenario: Arc<Scenario>, rng: Prng) -> Self {
        Self {
            scenario,
            mounted: Vec::new(),
            late: BTreeMap::new(),
            arrived: 0,
            moving: BTreeMap::new(),
            buffers: Buffers::default(),
            rng,
        }
    }

    /// Listens on the portal of targets, whether it has any or not: one without says so.
    pub(super) fn listen(ptlrpc: &mut Ptlrpc, below: &mut Below<'_>) -> Result<(), Errno> {
        let (request, reply) = ImportKind::Osc.portals();
        let config = ServiceConfig::new("targets", request.0, reply.0, Portal::OST_BULK.0);
        ptlrpc.rpc(below).serve(config).map(|_| ())
    }

    /// Serves a target from its disk.
    pub(super) fn mount(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        index: usize,
        disk: Disk,
        trouble: Trouble,
        notes: &mut Vec<RpcSeen>,
    ) {
        let Some(spec) = self.scenario.rpc.targets.get(index) else { return };
        let uuid = spec.name.clone();
        let config = TargetConfig { uuid, offer: connect_data(), replayable: false };
        // Each name once per node: the scenario has each once.
        let Ok(id) = ptlrpc.rpc(below).add_target(config) else { return };
        let committed = disk.entries.last_key_value().map_or(0, |(transno, _)| *transno);
        self.mounted.push(Mounted {
            index,
            id,
            entries: disk.entries,
            committed,
            commit: spec.commit,
            due: None,
            held: Vec::new(),
            trouble,
        });
        ptlrpc.rpc(below).committed(id, committed);
        notes.push(RpcSeen::Served { target: index });
    }

    /// The disks of all targets, as the node's death leaves them.
    pub(super) fn disks(&mut self) -> Vec<(usize, Disk)> {
        let left = core::mem::take(&mut self.mounted).into_iter().map(|mut m| {
            m.entries.split_off(&(m.committed + 1));
            (m.index, Disk { entries: m.entries })
        });
        left.collect()
    }

    /// The target of this name, in the scenario.
    pub(super) fn target_called(&self, name: &str) -> Option<usize> {
        self.scenario.rpc.target(name)
    }

    pub(super) fn trouble(&mut self, index: usize, trouble: Trouble, now: Instant) {
        for m in self.mounted.iter_mut().filter(|m| m.index == index) {
            m.trouble = trouble;
            let waits = m.entries.last_key_value().is_some_and(|(last, _)| *last > m.committed);
            if waits && !trouble.stalled {
                m.due = Some(now + m.commit);
            }
        }
    }

    /// When [`Self::run`] is wanted.
    pub(super) fn next(&self) -> Option<Instant> {
        let late = self.late.keys().next().map(|(at, _)| *at);
        let commits = self.mounted.iter().filter(|m| !m.trouble.stalled).filter_map(|m| m.due);
        commits.chain(late).min()
    }

    /// A request for one of the targets.
    pub(super) fn served(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        served: &Served,
        notes: &mut Vec<RpcSeen>,
    ) {
        let known = served.opcode == APPEND || served.opcode == READ;
        let read = served.msg().and_then(|msg| Ok((msg.get::<u64>(1)?, msg.get::<u32>(2)?)));
        let (Ok((call, bulk)), true) = (read, known) else {
            return ptlrpc.rpc(below).refuse(served.id, Errno::EINVAL);
        };
        let reads = served.opcode == READ;
        let work =
            Work { served: served.id, target: served.target, call: CallNo(call), reads, bulk };
        let slow = self.mounted.iter().find(|m| m.id == served.target).and_then(|m| m.trouble.slow);
        let Some((by, jitter)) = slow else { return self.begin(ptlrpc, below, work, notes) };
        let more = match jitter.as_nanos() as u64 {
            0 => 0,
            most => self.rng.below(most),
        };
        self.arrived += 1;
        let at = below.now() + by + Duration::from_nanos(more);
        self.late.insert((at, self.arrived), work);
    }

    /// Does what is due.
    pub(super) fn run(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let now = below.now();
        while let Some(next) = self.late.first_entry().filter(|e| e.key().0 <= now) {
            let work = next.remove();
            self.begin(ptlrpc, below, work, notes);
        }
        for m in &mut self.mounted {
            if !m.trouble.stalled && m.due.is_some_and(|at| at <= now) {
                m.commit_now(ptlrpc, below, notes);
            }
        }
    }

    /// The turn of a request: its bulk data move first.
    fn begin(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        work: Work,
        notes: &mut Vec<RpcSeen>,
    ) {
        if work.bulk == 0 {
            return self.execute(ptlrpc, below, &work, notes);
        }
        let Some(span) = self.buffers.take(below, work.bulk) else {
            return ptlrpc.rpc(below).refuse(work.served, Errno::ENOMEM);
        };
        let direction = if work.reads { Direction::Read } else { Direction::Write };
        if work.reads {
            stamp(below, span, work.call);
        }
        match ptlrpc.rpc(below).bulk(work.served, direction, &IoVec::from([span])) {
            Ok(()) => _ = self.moving.insert(work.served, (work, span)),
            Err(_) => self.buffers.give(span),
        }
    }

    /// Bulk data have moved, or have not: then the request is over.
    pub(super) fn moved(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        served: ServedId,
        result: Result<(), Errno>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let Some((work, span)) = self.moving.remove(&served) else { return };
        if result.is_ok() {
            if !work.reads && !super::host::is_stamped(below, span, work.call) {
                notes.push(RpcSeen::Damaged { call: work.call });
            }
            self.execute(ptlrpc, below, &work, notes);
        }
        self.buffers.give(span);
    }

    fn execute(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        work: &Work,
        notes: &mut Vec<RpcSeen>,
    ) {
        let Some(m) = self.mounted.iter_mut().find(|m| m.id == work.target) else { return };
        let last = m.entries.last_key_value().map_or(0, |(transno, _)| *transno);
        let value = if work.reads { last } else { last + 1 };
        let buffers = vec![value.to_le_bytes().to_vec()];
        if work.reads {
            let answer = Answer { buffers, ..Answer::default() };
            return ptlrpc.rpc(below).reply(work.served, answer);
        }
        m.entries.insert(value, work.call);
        notes.push(RpcSeen::Executed { target: m.index, call: work.call, transno: value });
        let answer = Answer { buffers, transno: value, ..Answer::default() };
        let now = below.now();
        m.due.get_or_insert(now + m.commit);
        if m.commit.is_zero() {
            m.held.push((work.served, answer));
            if !m.trouble.stalled {
                m.commit_now(ptlrpc, below, notes);
            }
        } else {
            ptlrpc.rpc(below).reply(work.served, answer);
        }
    }
}

impl Mounted {
    /// All that is there survives from now on; answers that waited for it leave.
    fn commit_now(&mut self, ptlrpc: &mut Ptlrpc, below: &mut Below<'_>, notes: &mut Vec<RpcSeen>) {
        self.due = None;
        self.committed = self.entries.last_key_value().map_or(0, |(transno, _)| *transno);
        notes.push(RpcSeen::Committed { target: self.index, transno: self.committed });
        ptlrpc.rpc(below).committed(self.id, self.committed);
        for (served, answer) in core::mem::take(&mut self.held) {
            ptlrpc.rpc(below).reply(served, answer);
        }
    }
}
