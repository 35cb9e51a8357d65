//! The request layer of one node, with its targets and clients: a protocol on the node, as it stands
//! on a real one.

use core::time::Duration;
use std::sync::Arc;

use lnet::upper::{Below, Upper};
use lnet::{Event as LnetEvent, Report};
use lnet_scenario::{NodeId, RpcLoss, RpcOperation, Scenario};
use lnet_types::{Instant, Nid, Prng, Span};
use lustre_target::AcrossWire;
use lustre_target::kv::wire::Operation;
use lustre_wire::Opcode;
use ptlrpc::{
    Config, Event, ExportId, Lose, LoseId, Ptlrpc, RecoveryChange, ServerStats, TargetId,
};

use super::calling::Calling;
use super::disk::{Disk, Trouble};
use super::file::Filing;
use super::keeping::Keeping;
use super::late::Late;
use super::lock::Locking;
use super::seen::{CallNo, RpcSeen};
use super::serving::{Joining, Serving};
use super::{APPEND, IO, READ};

/// Memory for bulk data, used again and again.
#[derive(Default)]
pub(super) struct Buffers {
    free: Vec<Span>,
}

impl Buffers {
    pub(super) fn take(&mut self, below: &mut Below<'_>, len: u32) -> Option<Span> {
        if let Some(at) = self.free.iter().position(|span| span.len == len) {
            return Some(self.free.swap_remove(at));
        }
        below.register(len).ok().map(|region| Span { region, len, offset: 0 })
    }

    pub(super) fn give(&mut self, span: Span) {
        self.free.push(span);
    }
}

/// The two ends of a buffer, where the number of its call stands.
fn ends(span: Span) -> [Span; 2] {
    let len = span.len.min(8);
    [Span { len, ..span }, Span { len, offset: span.offset + u64::from(span.len - len), ..span }]
}

/// Writes the number of a call to both ends of a buffer.
pub(super) fn stamp(below: &mut Below<'_>, span: Span, call: CallNo) {
    for end in ends(span) {
        let bytes = below.bytes_mut(end);
        bytes.copy_from_slice(call.0.to_le_bytes().get(..bytes.len()).unwrap_or_default());
    }
}

/// Whether the number of a call stands at both ends of a buffer.
pub(super) fn is_stamped(below: &Below<'_>, span: Span, call: CallNo) -> bool {
    ends(span).into_iter().all(|end| {
        let bytes = below.bytes(end);
        Some(bytes) == call.0.to_le_bytes().get(..bytes.len())
    })
}

/// What a node begins its life with.
pub(crate) struct Begin {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) node: NodeId,
    pub(crate) life: u32,
    pub(crate) seed: u64,
    /// Seconds since 1970.
    pub(crate) wall: Duration,
    /// What the node's clock shows when the world begins.
    pub(crate) zero: Instant,
    /// Whether targets may be served here, and the disks of those that are.
    pub(crate) serves: bool,
    pub(crate) disks: Vec<(usize, Disk, Trouble)>,
    /// Losses that befall the node, by their faults.
    pub(crate) losses: Vec<(usize, RpcLoss)>,
    /// Whether programs of the node keep their locks.
    pub(crate) hangs: bool,
}

/// See the module's head.
pub(crate) struct RpcHost {
    ptlrpc: Ptlrpc,
    serves: bool,
    /// Targets that are to be served, as soon as there is a border below.
    disks: Vec<(usize, Disk, Trouble)>,
    late: Late,
    serving: Serving,
    keeping: Keeping,
    calling: Calling,
    locking: Locking,
    filing: Filing,
    /// Seconds since 1970 when this life began.
    wall: Duration,
    /// Rules of the request layer by which messages get lost, by their faults.
    losses: Vec<(usize, LoseId)>,
    /// Losses that are to begin, as soon as there is a border below.
    losing: Vec<(usize, RpcLoss)>,
    started: bool,
    /// What was seen here since it was asked for.
    notes: Vec<RpcSeen>,
    /// Copies of requests that have come without their mark.
    unmarked: u64,
    /// What could not be done.
    complaint: Option<String>,
}

impl RpcHost {
    pub(crate) fn new(begin: Begin) -> Self {
        let Begin { scenario, node, life, seed, wall, zero, serves, disks, .. } = begin;
        let losses = begin.losses;
        let mut rng = Prng::new(seed);
        let tunables = scenario.rpc.tunables.clone();
        let ptlrpc = Ptlrpc::new(Config { seed: rng.next_u64(), wall, tunables });
        let (ours, theirs) = (rng.split(), rng.split());
        Self {
            ptlrpc,
            serves,
            disks,
            late: Late::new(ours),
            serving: Serving::new(scenario.clone()),
            keeping: Keeping::new(scenario.clone(), rng.split()),
            locking: Locking::new(scenario.clone(), (node, life), zero, begin.hangs, rng.split()),
            filing: Filing::new(scenario.clone(), (node, life), zero, rng.split()),
            wall,
            calling: Calling::new(scenario, node, life, zero, theirs),
            losses: Vec::new(),
            losing: losses,
            started: false,
            notes: Vec::new(),
            unmarked: 0,
            complaint: None,
        }
    }

    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotaged(mut self, rule: Option<ptlrpc::Sabotage>) -> Self {
        if let Some(rule) = rule {
            self.sabotage(rule);
        }
        self
    }

    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotage(&mut self, rule: ptlrpc::Sabotage) {
        self.ptlrpc.sabotage(rule);
    }

    /// Locks of targets that are served from now on break a rule.
    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotage_locks(&mut self, rule: ldlm::Sabotage) {
        self.keeping.sabotage(rule);
    }

    /// Metadata targets that are served from now on break a rule of changes over two of them.
    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotage_across(&mut self, rule: lustre_target::Sabotage) {
        self.keeping.sabotage_across(rule);
    }

    /// Visits that begin from now on break a rule.
    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotage_files(&mut self, rule: lustre_client::Sabotage) {
        self.filing.sabotage(rule);
    }

    /// Programs of the node keep their locks from now on, or do no longer.
    pub(crate) fn hang(&mut self, below: &mut Below<'_>, hangs: bool) {
        self.locking.hang(hangs);
        self.go_on(below);
    }

    /// What was seen since the last time is put behind `notes`; what could not be done.
    pub(crate) fn take_notes(&mut self, notes: &mut Vec<RpcSeen>) -> Option<String> {
        notes.append(&mut self.notes);
        let unmarked = self.ptlrpc.server_stats().unmarked;
        let copies = unmarked - core::mem::replace(&mut self.unmarked, unmarked);
        if copies > 0 {
            notes.push(RpcSeen::Unmarked { copies });
        }
        self.complaint.take()
    }

    /// The node dies: what is left of its targets.
    pub(crate) fn disks(&mut self) -> Vec<(usize, Disk)> {
        let waiting = core::mem::take(&mut self.disks).into_iter().map(|(n, disk, _)| (n, disk));
        let lists = self.serving.disks().into_iter();
        lists.chain(self.keeping.disks()).chain(waiting).collect()
    }

    /// The node serves another target from now on.
    pub(crate) fn mount(&mut self, below: &mut Below<'_>, target: (usize, Disk, Trouble)) {
        self.disks.push(target);
        self.go_on(below);
    }

    /// A target misbehaves, or does no longer.
    pub(crate) fn trouble(&mut self, below: &mut Below<'_>, target: usize, trouble: Trouble) {
        for (n, _, waiting) in &mut self.disks {
            if *n == target {
                *waiting = trouble;
            }
        }
        self.late.set(target, trouble.slow);
        self.serving.trouble(target, trouble, below.now());
        self.keeping.trouble(target, trouble);
        self.go_on(below);
    }

    /// Messages get lost here from now on, because of a fault.
    pub(crate) fn lose(&mut self, below: &mut Below<'_>, fault: usize, loss: RpcLoss) {
        self.losing.push((fault, loss));
        self.go_on(below);
    }

    /// A fault is over.
    pub(crate) fn mend(&mut self, below: &mut Below<'_>, fault: usize) {
        let Self { ptlrpc, losses, losing, .. } = self;
        // A loss that is over when its node begins has no rule yet.
        losing.retain(|(of, _)| *of != fault);
        let over = losses.extract_if(.., |(of, _)| *of == fault);
        for (_, rule) in over {
            ptlrpc.rpc(below).mend(rule);
        }
    }

    /// A target drops the clients of a node in this life of theirs.
    pub(crate) fn evict(&mut self, below: &mut Below<'_>, target: &str, is: impl Fn(&str) -> bool) {
        let views = self.ptlrpc.export_views();
        let meant = views.iter().filter(|e| e.target == target && is(&e.client));
        let exports: Vec<ExportId> = meant.map(|e| e.id).collect();
        for export in exports {
            self.ptlrpc.rpc(below).evict(export);
        }
        self.go_on(below);
    }

    /// What the server's side has counted in this life.
    pub(crate) fn stats(&self) -> ServerStats {
        self.ptlrpc.server_stats()
    }

    fn start(&mut self, below: &mut Below<'_>) {
        self.started = true;
        if self.serves {
            let listens = self.serving.listen(&mut self.ptlrpc, below);
            self.complaint = listens.err().map(|errno| format!("no service for targets: {errno}"));
        }
        self.filing.open(self.wall, below.now());
        self.calling.connect(&mut self.ptlrpc, below);
        let opened = self.locking.open(self.calling.imports(), &mut self.ptlrpc, below);
        if let Err(errno) = opened {
            self.complaint = Some(format!("no service for callbacks: {errno}"));
        }
    }

    /// Takes in all that has happened, and begins what is due.
    fn go_on(&mut self, below: &mut Below<'_>) {
        if !self.started {
            self.start(below);
        }
        if !self.disks.is_empty() || !self.losing.is_empty() {
            self.settle(below);
        }
        self.late_turns(below);
        self.serving.run(&mut self.ptlrpc, below, &mut self.notes);
        loop {
            self.calling.run(&mut self.ptlrpc, below, &mut self.notes);
            self.locking.run(&mut self.ptlrpc, below, &mut self.notes);
            self.filing.run(&mut self.ptlrpc, below, &mut self.notes);
            if let Some(event) = self.ptlrpc.poll_event() {
                self.take(below, event);
                continue;
            }
            self.keeping.poll(&mut self.ptlrpc, below, &mut self.notes);
            if !self.ptlrpc.has_event() {
                return;
            }
        }
    }

    /// What was waiting for a border below.
    fn settle(&mut self, below: &mut Below<'_>) {
        let Self { ptlrpc, serving, keeping, late, notes, disks, losses, losing, .. } = self;
        for (target, disk, trouble) in disks.drain(..) {
            late.set(target, trouble.slow);
            match disk {
                Disk::List(disk) => serving.mount(ptlrpc, below, target, disk, trouble),
                Disk::Store(left) => {
                    let mounted = keeping.mount(ptlrpc, below, target, *left, trouble);
                    if let Err(complaint) = mounted {
                        self.complaint = Some(complaint);
                    }
                }
            }
            notes.push(RpcSeen::Served { target });
        }
        for (fault, loss) in losing.drain(..) {
            let RpcLoss { operation, part, count } = loss;
            let lose =
                Lose { opcode: operation.map(opcode), part, count: count.unwrap_or(u32::MAX) };
            match ptlrpc.rpc(below).lose(lose) {
                Ok(rule) => losses.push((fault, rule)),
                Err(errno) => self.complaint = Some(format!("rpc_lose: {errno}")),
            }
        }
    }

    /// The turns of requests that were late.
    fn late_turns(&mut self, below: &mut Below<'_>) {
        while let Some(served) = self.late.due(below.now()) {
            self.serve(below, Event::Served(served));
        }
    }

    /// The turn of a request has come.
    fn serve(&mut self, below: &mut Below<'_>, event: Event) {
        let Self { ptlrpc, serving, keeping, notes, .. } = self;
        if let Some(Event::Served(served)) = keeping.event(ptlrpc, below, event) {
            serving.served(ptlrpc, below, &served, notes);
        }
    }

    fn index_of(&self, id: TargetId) -> Option<usize> {
        self.serving.index_of(id).or_else(|| self.keeping.index_of(id))
    }

    /// Takes in something that has happened.
    fn take(&mut self, below: &mut Below<'_>, event: Event) {
        let Self { ptlrpc, locking, filing, notes, .. } = self;
        let Some(event) = locking.event(ptlrpc, below, event, notes) else { return };
        let Some(event) = filing.event(ptlrpc, below, event) else { return };
        if let Event::Served(served) = event {
            let turn = match self.index_of(served.target) {
                Some(target) => self.late.pass(target, served, below.now()),
                None => Some(served),
            };
            if let Some(served) = turn {
                self.serve(below, Event::Served(served));
            }
            return;
        }
        let Self { ptlrpc, serving, keeping, calling, notes, .. } = self;
        let Some(event) = keeping.event(ptlrpc, below, event) else { return };
        match event {
            Event::BulkDone { served, result } => {
                serving.moved(ptlrpc, below, served, result, notes);
            }
            Event::Ended { call, result } => calling.ended(below, call, result, notes),
            Event::Import { import, state } => {
                if let Some(target) = calling.target_of(import) {
                    notes.push(RpcSeen::State { target, state });
                }
            }
            Event::Invalidated { import, .. } => {
                if let Some(target) = calling.target_of(import) {
                    notes.push(RpcSeen::Invalidated { target });
                }
            }
            Event::Joining { export, target, client, admission } => {
                let joining = Joining { export, client, admission };
                serving.joining(ptlrpc, below, target, joining, notes);
            }
            Event::Disconnected { export, target, client } => {
                serving.left(below.now(), target, client);
                ptlrpc.rpc(below).left(export);
            }
            Event::Evicted { target, client, reason, .. } => {
                if let Some(target) = self.index_of(target) {
                    let client = client.clone();
                    self.notes.push(RpcSeen::Evicted { target, client, reason });
                }
                self.serving.left(below.now(), target, client);
            }
            Event::Recovery { target, change } => {
                if let RecoveryChange::Done { outcome } | RecoveryChange::Aborted { outcome } =
                    &change
                {
                    let epoch = outcome.last_transno;
                    let Self { serving, ptlrpc, notes, .. } = self;
                    serving.recovered(ptlrpc, below, target, epoch, notes);
                }
                if let Some(target) = self.index_of(target) {
                    self.notes.push(RpcSeen::Recovery { target, line: change.to_string() });
                }
            }
            _ => {}
        }
    }
}

/// The operation of requests that get lost.
fn opcode(operation: RpcOperation) -> Opcode {
    match operation {
        RpcOperation::Append => APPEND,
        RpcOperation::Read => READ,
        RpcOperation::Put => Operation::Put.opcode(),
        RpcOperation::Get => Operation::Get.opcode(),
        RpcOperation::Cas => Operation::Cas.opcode(),
        RpcOperation::Del => Operation::Del.opcode(),
        RpcOperation::Ping => Opcode::OBD_PING,
        RpcOperation::Connect => Opcode::OST_CONNECT,
        RpcOperation::Disconnect => Opcode::OST_DISCONNECT,
        RpcOperation::Enqueue => Opcode::LDLM_ENQUEUE,
        RpcOperation::Cancel => Opcode::LDLM_CANCEL,
        RpcOperation::Convert => Opcode::LDLM_CONVERT,
        RpcOperation::Blocking => Opcode::LDLM_BL_CALLBACK,
        RpcOperation::Completion => Opcode::LDLM_CP_CALLBACK,
        RpcOperation::Io => IO,
        RpcOperation::Reint => Opcode::MDS_REINT,
        RpcOperation::Close => Opcode::MDS_CLOSE,
        RpcOperation::Write => Opcode::OST_WRITE,
        RpcOperation::Across => AcrossWire::OPCODE,
    }
}

impl Upper for RpcHost {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.go_on(below);
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, report: &Report, below: &mut Below<'_>) {
        self.ptlrpc.report(report, below);
        self.go_on(below);
    }

    fn connection_lost(&mut self, primary: Nid, below: &mut Below<'_>) {
        self.ptlrpc.connection_lost(primary, below);
        self.go_on(below);
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.go_on(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !self.started {
            return Some(Instant::ZERO);
        }
        let due = [
            self.ptlrpc.poll_timeout(),
            self.late.next(),
            self.serving.next(),
            self.keeping.next(),
            self.calling.next(),
            self.locking.next(),
            self.filing.next(),
        ];
        due.into_iter().fold(None, |first, due| match (first, due) {
            (Some(first), Some(due)) => Some(first.min(due)),
            (first, due) => first.or(due),
        })
    }
}
