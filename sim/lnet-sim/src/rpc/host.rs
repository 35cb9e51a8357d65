//! The request layer of one node, with its targets and clients: a protocol on the node, as it stands
//! on a real one.

use std::sync::Arc;

use lnet::upper::{Below, Upper};
use lnet::{Event as LnetEvent, Report};
use lnet_scenario::{NodeId, Scenario};
use lnet_types::{Errno, Instant, Prng, Span};
use ptlrpc::{Config, Event, ExportId, Ptlrpc, ServerStats};

use super::calling::Calling;
use super::seen::{CallNo, RpcSeen};
use super::serving::{Disk, Serving, Trouble};

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
    pub(crate) wall_secs: u64,
    /// What the node's clock shows when the world begins.
    pub(crate) zero: Instant,
    /// Whether targets may be served here, and the disks of those that are.
    pub(crate) serves: bool,
    pub(crate) disks: Vec<(usize, Disk, Trouble)>,
}

/// See the module's head.
pub(crate) struct RpcHost {
    ptlrpc: Ptlrpc,
    serves: bool,
    /// Targets that are to be served, as soon as there is a border below.
    disks: Vec<(usize, Disk, Trouble)>,
    serving: Serving,
    calling: Calling,
    started: bool,
    /// What was seen here since it was asked for.
    notes: Vec<RpcSeen>,
    /// What could not be done.
    complaint: Option<Errno>,
}

impl RpcHost {
    pub(crate) fn new(begin: Begin) -> Self {
        let Begin { scenario, node, life, seed, wall_secs, zero, serves, disks } = begin;
        let mut rng = Prng::new(seed);
        let tunables = scenario.rpc.tunables.clone();
        let ptlrpc = Ptlrpc::new(Config { seed: rng.next_u64(), wall_secs, tunables });
        let (ours, theirs) = (rng.split(), rng.split());
        Self {
            ptlrpc,
            serves,
            disks,
            serving: Serving::new(scenario.clone(), ours),
            calling: Calling::new(scenario, node, life, zero, theirs),
            started: false,
            notes: Vec::new(),
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

    /// What was seen since the last time.
    pub(crate) fn take_notes(&mut self) -> (Vec<RpcSeen>, Option<Errno>) {
        (core::mem::take(&mut self.notes), self.complaint.take())
    }

    /// The node dies: what is left of its targets.
    pub(crate) fn disks(&mut self) -> Vec<(usize, Disk)> {
        let waiting = core::mem::take(&mut self.disks).into_iter().map(|(n, disk, _)| (n, disk));
        self.serving.disks().into_iter().chain(waiting).collect()
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
        self.serving.trouble(target, trouble, below.now());
        self.go_on(below);
    }

    /// A target drops the clients of a node in this life of theirs.
    pub(crate) fn evict(&mut self, below: &mut Below<'_>, target: &str, client: &str) {
        let views = self.ptlrpc.export_views();
        let meant = views.iter().filter(|e| e.target == target && e.client == client);
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
            self.complaint = Serving::listen(&mut self.ptlrpc, below).err();
        }
        self.calling.connect(&mut self.ptlrpc, below);
    }

    /// Takes in all that has happened, and begins what is due.
    fn go_on(&mut self, below: &mut Below<'_>) {
        if !self.started {
            self.start(below);
        }
        let Self { ptlrpc, serving, calling, notes, disks, .. } = self;
        for (target, disk, trouble) in disks.drain(..) {
            serving.mount(ptlrpc, below, target, disk, trouble, notes);
        }
        serving.run(ptlrpc, below, notes);
        loop {
            calling.run(ptlrpc, below, notes);
            let Some(event) = ptlrpc.poll_event() else { break };
            match event {
                Event::Served(served) => serving.served(ptlrpc, below, &served, notes),
                Event::BulkDone { served, result } => {
                    serving.moved(ptlrpc, below, served, result, notes);
                }
                Event::Ended { call, result } => calling.ended(below, call, result, notes),
                Event::Import { import, state } => {
                    if let Some(target) = calling.target_of(import) {
                        notes.push(RpcSeen::State { target, state });
                    }
                }
                Event::Invalidated { import } => {
                    if let Some(target) = calling.target_of(import) {
                        notes.push(RpcSeen::Invalidated { target });
                    }
                }
                Event::Joining { export, target, client } => {
                    serving.joining(ptlrpc, below, (target, export, client), notes);
                }
                Event::Disconnected { export, target, client } => {
                    serving.left(below.now(), target, client);
                    ptlrpc.rpc(below).left(export);
                }
                Event::Evicted { target, client, reason, .. } => {
                    if let Some(index) = serving.index_of(target) {
                        let client = client.clone();
                        notes.push(RpcSeen::Evicted { target: index, client, reason });
                    }
                    serving.left(below.now(), target, client);
                }
                Event::Recovery { target, change } => {
                    if let Some(target) = serving.index_of(target) {
                        notes.push(RpcSeen::Recovery { target, line: change.to_string() });
                    }
                }
                _ => {}
            }
        }
    }
}

impl Upper for RpcHost {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.go_on(below);
    }

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.go_on(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !self.started {
            return Some(Instant::ZERO);
        }
        let due = [self.ptlrpc.poll_timeout(), self.serving.next(), self.calling.next()];
        due.into_iter().flatten().min()
    }
}
