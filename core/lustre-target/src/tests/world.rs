//! A node with a target and its clients on it, over the loopback interface, in virtual time. The
//! server can die, and begin again with what its store has committed.

use core::time::Duration;

use lnet::upper::{Arena, Below, Upper, UpperId, Uppers};
use lnet::{Driver, Event as LnetEvent, Loopback, Node, NodeConfig, Output, Report};
use lnet_types::{Errno, Instant, IoVec, Memory, Nid, RegionId, Span};
use lustre_wire::connect::ConnectData;
use lustre_wire::{ImportKind, Opcode, Portal};
use ptlrpc::{
    Answer, Call, CallError, CallId, Config, Event, ImportConfig, ImportId, Lose, Part, Past,
    Ptlrpc, Reply, Rpc, ServiceConfig, TargetConfig, Tunables,
};

use crate::store::Store;
use crate::{Kind, MemoryStore, Targets, start};

/// Memory in regions of their own.
#[derive(Default)]
pub(super) struct Heap(Vec<Vec<u8>>, usize);

impl Memory for Heap {
    fn bytes(&self, span: Span) -> &[u8] {
        &self.0[span.region.0 as usize][span.offset as usize..][..span.len as usize]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.0[span.region.0 as usize][span.offset as usize..][..span.len as usize]
    }
}

impl Arena for Heap {
    fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        // Not zeros: what was not written must not be taken for data.
        self.0.push(vec![0xA5; len as usize]);
        self.1 += 1;
        Ok(RegionId(self.0.len() as u32 - 1))
    }

    fn unregister(&mut self, region: RegionId) {
        self.0[region.0 as usize] = Vec::new();
    }

    fn contains(&self, spans: &[Span]) -> bool {
        let has = |s: &Span| self.0.get(s.region.0 as usize).map_or(0, Vec::len) as u64;
        spans.iter().all(|s| s.offset + u64::from(s.len) <= has(s))
    }

    fn hold(&mut self, _: &[Span]) {}

    fn release(&mut self, _: &[Span]) {}
}

/// A request layer, and the targets on it.
struct Party {
    ptlrpc: Ptlrpc,
    targets: Targets,
    ended: Vec<(CallId, Result<Reply, CallError>)>,
    /// Requests for locks that a client repeats when its server has lost them.
    replays: Vec<Call>,
    /// Attributes that came with locks after a wait.
    completed: Vec<Vec<u8>>,
}

impl Party {
    fn drain(&mut self, below: &mut Below<'_>) {
        loop {
            while let Some(event) = self.ptlrpc.poll_event() {
                let rpc = &mut self.ptlrpc.rpc(below);
                match self.targets.event(event, rpc) {
                    Some(Event::Ended { call, result }) => self.ended.push((call, result)),
                    Some(Event::ReplayLocks { import }) => {
                        for call in self.replays.drain(..) {
                            rpc.replay_lock(import, call).unwrap();
                        }
                        rpc.locks_replayed(import);
                    }
                    Some(Event::Served(served)) => {
                        if served.opcode == Opcode::LDLM_CP_CALLBACK {
                            let value =
                                served.msg().unwrap().buffer(2).unwrap_or_default().to_vec();
                            self.completed.push(value);
                        }
                        rpc.reply(served.id, Answer::default());
                    }
                    _ => {}
                }
            }
            // A store that has failed is what some tests want.
            let failed = self.targets.poll(&mut self.ptlrpc.rpc(below)).is_some();
            if !failed && !self.ptlrpc.has_event() {
                return;
            }
        }
    }
}

impl Upper for Party {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.drain(below);
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.targets.handle_timeout(&mut self.ptlrpc.rpc(below));
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.ptlrpc.poll_timeout(), self.targets.poll_timeout()].into_iter().flatten().min()
    }
}

/// A client.
#[derive(Clone, Copy)]
pub(super) struct Client {
    upper: UpperId,
    pub(super) import: ImportId,
}

pub(super) struct World {
    node: Node,
    lo: Loopback,
    heap: Heap,
    uppers: Uppers,
    now: Instant,
    server: UpperId,
    seeds: u64,
    /// Slots of each service of the server.
    slots: usize,
}

const TARGET: &str = "target-1";
const PORTALS: [Portal; 3] = [Portal::OST_REQUEST, Portal::OST_IO, Portal::OST_CREATE];

fn party(uppers: &mut Uppers, seed: u64) -> UpperId {
    let tunables = Tunables::default();
    let ptlrpc = Ptlrpc::new(Config {
        seed,
        wall: Duration::from_secs(1_795_000_000 + seed * 1000),
        tunables,
    });
    let (ended, replays, completed) = (Vec::new(), Vec::new(), Vec::new());
    let party = Party { ptlrpc, targets: Targets::default(), ended, replays, completed };
    uppers.add(Box::new(party)).unwrap()
}

impl World {
    /// A server with a target of a kind on a store.
    pub(super) fn new(kind: impl Kind + 'static, store: impl Store + 'static) -> Self {
        Self::with_slots(64, kind, store)
    }

    /// The same, with services that have one slot each.
    pub(super) fn narrow(kind: impl Kind + 'static, store: impl Store + 'static) -> Self {
        Self::with_slots(1, kind, store)
    }

    fn with_slots(slots: usize, kind: impl Kind + 'static, store: impl Store + 'static) -> Self {
        let tunables = lnet::Tunables::default();
        let config = NodeConfig { seed: 1, interface_cookie: 1, ping_seq: 0, tunables };
        let now = Instant::from_secs(1000);
        let mut uppers = Uppers::default();
        let server = party(&mut uppers, 1);
        let (lo, heap) = (Loopback::new(), Heap::default());
        let mut world =
            Self { node: Node::new(config, now), lo, heap, uppers, now, server, seeds: 1, slots };
        world.serve(kind, store);
        world
    }

    fn party_of<R>(&mut self, id: UpperId, f: impl FnOnce(&mut Party, &mut Below<'_>) -> R) -> R {
        let Self { node, heap, uppers, now, .. } = self;
        uppers.with(id, *now, node, heap, f).unwrap()
    }

    /// Does something with a request layer.
    fn rpc<R>(&mut self, id: UpperId, f: impl FnOnce(&mut Rpc<'_, '_>) -> R) -> R {
        self.party_of(id, |party, below| {
            let result = f(&mut party.ptlrpc.rpc(below));
            party.drain(below);
            result
        })
    }

    fn serve(&mut self, kind: impl Kind + 'static, mut store: impl Store + 'static) {
        let begun = start(&mut store, kind.name()).unwrap();
        let (offer, replayable) = (kind.offer(), kind.keeps_records());
        let slots = self.slots;
        self.party_of(self.server, |party, below| {
            let rpc = &mut party.ptlrpc.rpc(below);
            let reply = Portal::OSC_REPLY.0;
            for portal in PORTALS {
                let mut service = ServiceConfig::new("ost", portal.0, reply, Portal::OST_BULK.0);
                service.slots = slots;
                service.hears_of_waiting = portal == Portal::OST_IO;
                rpc.serve(service).unwrap();
            }
            let (uuid, past) = (TARGET.to_owned(), Past::default());
            let config = TargetConfig { uuid, offer, replayable, past };
            party.targets.add(config, Box::new(kind), Box::new(store), begun, rpc).unwrap();
        });
        self.settle();
    }

    /// The server dies; what it had is dropped. It begins again with another store.
    pub(super) fn restart(&mut self, kind: impl Kind + 'static, store: impl Store + 'static) {
        self.uppers.remove(self.server, self.now, &mut self.node).unwrap();
        self.settle();
        self.seeds += 1;
        self.server = party(&mut self.uppers, self.seeds);
        self.serve(kind, store);
    }

    /// A client that wants what `wanted` says.
    pub(super) fn client(&mut self, wanted: ConnectData) -> Client {
        self.seeds += 1;
        let upper = party(&mut self.uppers, self.seeds);
        let client = format!("client-{}", self.seeds);
        let config = ImportConfig {
            kind: ImportKind::Osc,
            target: TARGET.to_owned(),
            client,
            nids: vec![Nid::LOOPBACK],
            wanted,
        };
        let import = self.rpc(upper, |rpc| rpc.import(config)).unwrap();
        Client { upper, import }
    }

    /// A client repeats a request for a lock when its server has lost it, and hears of its grant.
    pub(super) fn replays(&mut self, client: Client, call: Call) {
        self.party_of(client.upper, |party, below| {
            party.replays.push(call);
            let rpc = &mut party.ptlrpc.rpc(below);
            rpc.replays_locks(client.import, true);
            let (request, reply) = (Portal::LDLM_CALLBACK.0, Portal::LDLM_CALLBACK_REPLY.0);
            let bulk = Portal::OST_BULK.0;
            rpc.serve(ServiceConfig::new("callbacks", request, reply, bulk)).unwrap();
        });
    }

    /// The attributes that came with the locks that a client was granted after a wait.
    pub(super) fn completed(&mut self, client: Client) -> Vec<Vec<u8>> {
        self.party_of(client.upper, |party, _| core::mem::take(&mut party.completed))
    }

    /// The requests that wait for a slot of the server, and whether they are of high priority.
    pub(super) fn waiting(&mut self) -> Vec<(Opcode, bool)> {
        self.party_of(self.server, |party, below| {
            let exports = party.ptlrpc.export_views();
            let rpc = party.ptlrpc.rpc(below);
            let waiting = exports.iter().flat_map(|view| rpc.waiting(view.id));
            waiting.map(|one| (one.body.opcode, one.high)).collect()
        })
    }

    /// The next reply of the server to an operation gets lost.
    pub(super) fn lose_reply(&mut self, opcode: Opcode) {
        let lose = Lose { opcode: Some(opcode), part: Part::Reply, count: 1 };
        self.rpc(self.server, |rpc| rpc.lose(lose)).unwrap();
    }

    /// A client dies without a word.
    pub(super) fn kill(&mut self, client: Client) {
        self.uppers.remove(client.upper, self.now, &mut self.node).unwrap();
        self.settle();
    }

    /// Until nothing happens without time.
    pub(super) fn settle(&mut self) {
        let Self { node, lo, heap, uppers, now, .. } = self;
        loop {
            let mut more = false;
            while let Some(mut event) = node.poll_event() {
                uppers.event(*now, &mut event, node, heap);
                more = true;
            }
            while let Some(output) = node.poll_output() {
                let Output::Send(transmit) = output else { continue };
                let msg = transmit.msg;
                if let Err(fault) = lo.send(*now, &transmit, heap) {
                    node.tx_refused(*now, msg, fault);
                }
                more = true;
            }
            lo.flush(*now, node, heap);
            if !more {
                return;
            }
        }
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.settle();
            let due = [self.node.poll_timeout(), self.uppers.poll_timeout()];
            let Some(next) = due.into_iter().flatten().min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = next.max(self.now);
            self.node.handle_timeout(self.now);
            self.uppers.handle_timeout(self.now, &mut self.node, &mut self.heap);
        }
    }

    /// Begins a call.
    pub(super) fn begin(&mut self, client: Client, call: Call) -> CallId {
        let id = self.rpc(client.upper, |rpc| rpc.call(client.import, call)).unwrap();
        self.settle();
        id
    }

    /// How a call has ended, if it has.
    pub(super) fn end_of(
        &mut self,
        client: Client,
        call: CallId,
    ) -> Option<Result<Reply, CallError>> {
        self.party_of(client.upper, |party, _| {
            let at = party.ended.iter().position(|(ended, _)| *ended == call)?;
            Some(party.ended.remove(at).1)
        })
    }

    /// A call, and its end, which it has without any time.
    pub(super) fn call(&mut self, client: Client, call: Call) -> Result<Reply, CallError> {
        let id = self.begin(client, call);
        self.end_of(client, id).expect("an end")
    }

    /// Regions that the node has registered for messages and bulk data, beside those of programs.
    pub(super) fn registered(&self) -> usize {
        self.heap.1
    }

    /// How many finished requests a client has repeated.
    pub(super) fn replayed(&mut self, client: Client) -> u64 {
        self.party_of(client.upper, |party, _| party.ptlrpc.client_stats().replayed)
    }

    /// The store, which is one in memory, has room for so many bytes from now on.
    pub(super) fn room(&mut self, bytes: u64) {
        self.party_of(self.server, |party, _| {
            let uuid = party.targets.lockers().next().expect("a target").0.to_owned();
            let id = party.targets.id(&uuid).expect("a target");
            let store: &mut dyn core::any::Any = party.targets.store_mut(id).expect("its store");
            store.downcast_mut::<MemoryStore>().expect("one in memory").set_max(bytes);
        });
    }

    /// What the clients of the server were granted, if that is the same for all.
    pub(super) fn granted(&mut self) -> ConnectData {
        self.party_of(self.server, |party, below| {
            let exports = party.ptlrpc.export_views();
            let rpc = party.ptlrpc.rpc(below);
            let mut granted = exports.iter().filter_map(|view| rpc.granted(view.id));
            let first = granted.next().expect("a client");
            assert!(granted.all(|other| other == first));
            first
        })
    }

    /// Memory of a program, filled.
    pub(super) fn memory(&mut self, bytes: &[u8]) -> IoVec {
        self.heap.0.push(bytes.to_vec());
        let region = RegionId(self.heap.0.len() as u32 - 1);
        IoVec::from([Span { region, len: bytes.len() as u32, offset: 0 }])
    }

    /// What is in memory.
    pub(super) fn bytes(&self, memory: &IoVec) -> Vec<u8> {
        memory.iter().flat_map(|span| self.heap.bytes(*span).to_vec()).collect()
    }
}
