//! Lists of one node: requests are carried out, and what they change is committed some time afterwards.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use lnet::upper::Below;
use lnet_scenario::{Scenario, TargetKind};
use lnet_types::{Errno, Instant, IoVec, Span};
use lustre_wire::{ImportKind, Portal};
use ptlrpc::{
    Answer, ClientRecord, Direction, ExportId, Past, Ptlrpc, ReplyRecord, Served, ServedId,
    ServiceConfig, TargetConfig, TargetId,
};

use super::ascending::Ascending;
use super::disk::{Disk, Trouble};
use super::host::{Buffers, stamp};
use super::seen::{CallNo, RpcSeen};
use super::{APPEND, READ, connect_data};

/// What of a list survives the death of its node.
#[derive(Debug, Default)]
pub(crate) struct ListDisk {
    /// The list: a transaction for each entry.
    entries: Ascending<CallNo>,
    /// Clients by uuid.
    clients: BTreeMap<String, Client>,
    /// What the transactions of this life are above (P-153).
    epoch: u64,
}

/// What survives of a client.
#[derive(Debug, Default)]
struct Client {
    admission: u32,
    /// Answers that it may not have, by number of the request.
    replies: BTreeMap<u64, ReplyRecord>,
}

/// A client that is new to a target.
pub(super) struct Joining {
    pub(super) export: ExportId,
    pub(super) client: String,
    pub(super) admission: u32,
}

/// A step that is not committed yet.
enum Step {
    Append { transno: u64, call: CallNo, answer: Option<(String, ReplyRecord)>, had: u64 },
    Join(String, u32),
    Leave(String),
    Epoch(u64),
}

impl ListDisk {
    fn last(&self) -> u64 {
        self.entries.last().unwrap_or(0)
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Append { transno, call, answer, had } => {
                self.entries.insert(transno, call);
                let Some((client, record)) = answer else { return };
                if let Some(Client { replies, .. }) = self.clients.get_mut(&client) {
                    // The client has those up to there.
                    while replies.first_key_value().is_some_and(|(xid, _)| *xid <= had) {
                        replies.pop_first();
                    }
                    replies.insert(record.xid, record);
                }
            }
            Step::Join(client, admission) => {
                self.clients.entry(client).or_default().admission = admission;
            }
            Step::Leave(client) => _ = self.clients.remove(&client),
            Step::Epoch(epoch) => self.epoch = epoch,
        }
    }

    /// What a target that is started from it remembers.
    fn past(&self) -> Past {
        let clients = self.clients.iter().map(|(uuid, client)| ClientRecord {
            uuid: uuid.clone(),
            admission: Some(client.admission),
            replies: client.replies.values().cloned().collect(),
            ..ClientRecord::default()
        });
        Past { last_transno: self.last().max(self.epoch), clients: clients.collect() }
    }
}

/// A target that is served here.
struct Mounted {
    /// Index in the scenario.
    index: usize,
    id: TargetId,
    disk: ListDisk,
    /// What is to be committed, and its part of the list.
    steps: Vec<Step>,
    fresh: Ascending<CallNo>,
    commit: Duration,
    due: Option<Instant>,
    /// Answers that wait for their change to be committed.
    held: Vec<(ServedId, Answer)>,
    /// Clients that wait for their record to be committed.
    joining: Vec<ExportId>,
    stalled: bool,
    /// Requests behind the end of a recovery that is not committed yet; `None` at other times. Numbers
    /// that they were given would be given again if the node died now (P-153).
    behind: Option<Vec<Work>>,
}

/// A request in work.
struct Work {
    served: ServedId,
    target: TargetId,
    call: CallNo,
    reads: bool,
    bulk: u32,
    /// The transaction that it had before a crash.
    replay: Option<u64>,
    /// The client has the answers up to this number.
    had: u64,
}

/// All targets of a node.
pub(crate) struct Serving {
    scenario: Arc<Scenario>,
    mounted: Vec<Mounted>,
    /// Requests whose bulk data move, from when on.
    moving: BTreeMap<ServedId, (Work, Span, Instant)>,
    buffers: Buffers,
}

impl Serving {
    pub(super) fn new(scenario: Arc<Scenario>) -> Self {
        let (mounted, moving, buffers) = (Vec::new(), BTreeMap::new(), Buffers::default());
        Self { scenario, mounted, moving, buffers }
    }

    /// Listens on the portals of targets, whether it has any or not: one without says so.
    pub(super) fn listen(&self, ptlrpc: &mut Ptlrpc, below: &mut Below<'_>) -> Result<(), Errno> {
        let mut listen = |name: &str, (request, reply): (Portal, Portal)| {
            let mut config = ServiceConfig::new(name, request.0, reply.0, Portal::OST_BULK.0);
            if self.scenario.rpc.fsname().is_some() {
                // Data of an object goes inside of a message.
                config.request_max = config.request_max.max(96 << 10);
            }
            ptlrpc.rpc(below).serve(config).map(|_| ())
        };
        listen("targets", ImportKind::Osc.portals())?;
        let targets = &self.scenario.rpc.targets;
        // Locks are given back beside all else.
        if targets.iter().any(|t| t.kind == TargetKind::Lock || t.kind.is_of_files()) {
            listen("cancels", (Portal::LDLM_CANCEL, Portal::LDLM_CANCEL_REPLY))?;
        }
        // I/O under locks, too: how long others wait for a lock says nothing about how long it takes.
        let files = self.scenario.rpc.fsname().is_some();
        if !files && targets.iter().any(|t| t.kind == TargetKind::Lock) {
            listen("target_io", (Portal::OST_IO, ImportKind::Osc.portals().1))?;
        }
        for (name, [request, reply, bulk], max) in super::file::services(&self.scenario) {
            let mut config = ServiceConfig::new(name, request.0, reply.0, bulk.0);
            config.request_max = max;
            config.hears_of_waiting = matches!(request, Portal::OST_IO | Portal::MDS_IO);
            ptlrpc.rpc(below).serve(config)?;
        }
        Ok(())
    }

    /// Serves a target from its disk.
    pub(super) fn mount(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        index: usize,
        mut disk: ListDisk,
        trouble: Trouble,
    ) {
        let Some(spec) = self.scenario.rpc.targets.get(index) else { return };
        let uuid = spec.name.clone();
        let offer = connect_data();
        let past = disk.past();
        if past.clients.is_empty() {
            // With clients to await it is stored when they are back.
            disk.epoch = past.next_epoch();
        }
        let config = TargetConfig { uuid, offer, replayable: true, past };
        // Each name once per node: the scenario has each once.
        let Ok(id) = ptlrpc.rpc(below).add_target(config) else { return };
        self.mounted.push(Mounted {
            index,
            id,
            disk,
            steps: Vec::new(),
            fresh: Ascending::default(),
            commit: spec.commit,
            due: None,
            held: Vec::new(),
            joining: Vec::new(),
            stalled: trouble.stalled,
            behind: None,
        });
    }

    /// The disks of all targets, as the node's death leaves them.
    pub(super) fn disks(&mut self) -> Vec<(usize, Disk)> {
        core::mem::take(&mut self.mounted)
            .into_iter()
            .map(|m| (m.index, Disk::List(m.disk)))
            .collect()
    }

    /// The index of a target in the scenario.
    pub(super) fn index_of(&self, id: TargetId) -> Option<usize> {
        self.mounted.iter().find(|m| m.id == id).map(|m| m.index)
    }

    /// A client is new to a target: it is connected when its record is committed.
    pub(super) fn joining(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        id: TargetId,
        Joining { export, client, admission }: Joining,
        notes: &mut Vec<RpcSeen>,
    ) {
        let Some(m) = self.mounted.iter_mut().find(|m| m.id == id) else { return };
        m.steps.push(Step::Join(client, admission));
        m.joining.push(export);
        let now = below.now();
        m.due.get_or_insert(now);
        if !m.stalled {
            m.commit_now(ptlrpc, below, notes);
        }
    }

    /// A client is gone: its record goes with the next commit.
    pub(super) fn left(&mut self, now: Instant, id: TargetId, client: String) {
        let Some(m) = self.mounted.iter_mut().find(|m| m.id == id) else { return };
        m.steps.push(Step::Leave(client));
        m.due.get_or_insert(now + m.commit);
    }

    /// The recovery of a target is over: its transactions are above this one from now on (P-153).
    pub(super) fn recovered(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        id: TargetId,
        epoch: u64,
        notes: &mut Vec<RpcSeen>,
    ) {
        let Some(m) = self.mounted.iter_mut().find(|m| m.id == id) else { return };
        m.steps.push(Step::Epoch(epoch));
        if m.stalled {
            m.behind.get_or_insert_default();
            m.due = Some(below.now());
        } else {
            m.commit_now(ptlrpc, below, notes);
        }
    }

    pub(super) fn trouble(&mut self, index: usize, trouble: Trouble, now: Instant) {
        for m in self.mounted.iter_mut().filter(|m| m.index == index) {
            m.stalled = trouble.stalled;
            if !m.steps.is_empty() && !trouble.stalled {
                m.due = Some(now);
            }
        }
    }

    /// When [`Self::run`] is wanted.
    pub(super) fn next(&self) -> Option<Instant> {
        self.mounted.iter().filter(|m| !m.stalled).filter_map(|m| m.due).min()
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
        let work = Work {
            served: served.id,
            target: served.target,
            call: CallNo(call),
            reads,
            bulk,
            replay: served.replay.map(|replay| replay.transno),
            had: served.body.last_xid,
        };
        self.begin(ptlrpc, below, work, notes);
    }

    /// Does what is due.
    pub(super) fn run(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let now = below.now();
        let mut behind = Vec::new();
        for m in &mut self.mounted {
            if !m.stalled && m.due.is_some_and(|at| at <= now) {
                m.commit_now(ptlrpc, below, notes);
                behind.extend(m.behind.take().unwrap_or_default());
            }
        }
        for work in behind {
            self.begin(ptlrpc, below, work, notes);
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
        let target = self.mounted.iter_mut().find(|m| m.id == work.target);
        if let Some(behind) = target.and_then(|m| m.behind.as_mut()) {
            return behind.push(work);
        }
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
            Ok(()) => _ = self.moving.insert(work.served, (work, span, below.now())),
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
        let Some((work, span, from)) = self.moving.remove(&served) else { return };
        if result.is_ok() {
            if !work.reads && !super::host::is_stamped(below, span, work.call) {
                notes.push(RpcSeen::Damaged { call: work.call });
            }
            self.execute(ptlrpc, below, &work, notes);
        } else if let Some(target) = self.index_of(work.target) {
            let took = below.now().saturating_since(from);
            notes.push(RpcSeen::Unmoved { target, call: work.call, took });
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
        let mut rpc = ptlrpc.rpc(below);
        if work.reads {
            let last = m.fresh.last().unwrap_or_else(|| m.disk.last());
            let buffers = lustre_wire::Buffers::new().layout(&last);
            return rpc.reply(work.served, Answer { buffers, ..Answer::default() });
        }
        let transno = rpc.transno(work.served);
        if transno == 0 {
            // It is over: its client was evicted meanwhile.
            return rpc.decline(work.served);
        }
        let buffers = lustre_wire::Buffers::new().layout(&transno);
        let answer = Answer { buffers, transno, ..Answer::default() };
        // A crash has not taken it: the answer alone is repeated.
        let has = work
            .replay
            .is_some_and(|transno| m.disk.entries.contains(transno) || m.fresh.contains(transno));
        if has {
            return rpc.reply(work.served, answer);
        }
        let record = rpc.record(work.served, &answer);
        m.fresh.insert(transno, work.call);
        m.steps.push(Step::Append { transno, call: work.call, answer: record, had: work.had });
        let (target, call) = (m.index, work.call);
        notes.push(RpcSeen::Executed { target, call, transno, key: None });
        let now = below.now();
        // Clients can't repeat a change with bulk data: their memory is their own again.
        let at_once = m.commit.is_zero() || work.bulk != 0;
        let due = if at_once { now } else { now + m.commit };
        m.due = Some(m.due.map_or(due, |before| before.min(due)));
        if at_once {
            m.held.push((work.served, answer));
            if !m.stalled {
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
        self.fresh.clear();
        for step in self.steps.drain(..) {
            self.disk.apply(step);
        }
        let last = self.disk.last();
        notes.push(RpcSeen::Committed { target: self.index, transno: last });
        ptlrpc.rpc(below).committed(self.id, last);
        for export in core::mem::take(&mut self.joining) {
            ptlrpc.rpc(below).admit(export, Ok(()));
        }
        for (served, answer) in core::mem::take(&mut self.held) {
            ptlrpc.rpc(below).reply(served, answer);
        }
    }
}
