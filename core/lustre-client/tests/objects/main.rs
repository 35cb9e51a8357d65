//! Clients with caches and an object target in one world: what they make of each other, in virtual
//! time. `borders.rs` has data off page borders, `caches.rs` what clients see of each other, `commits.rs`
//! what a target loses that commits after it has answered, `losses.rs` what happens when a client hangs,
//! dies or is full, `sizes.rs` what a client learns of a size while it writes back, `space.rs` limits and
//! promises, `storm.rs` everything at once against a model.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod borders;
mod caches;
mod commits;
mod losses;
mod sizes;
mod space;
mod storm;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ldlm::client::{Config as LockConfig, LockClient, LockEvent};
use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event as LnetEvent, Report};
use lnet_types::{Errno, Instant, IoVec, Memory, Nid};
use lustre_client::osc::{Cx, OpId, Osc, OscConfig, OscError, OscEvent, wanted};
use lustre_target::ost::wire;
use lustre_target::{Commit, MemoryStore, Ost, OstLimits, Targets, start};
use lustre_wire::fid::{Fid, ObjectId};
use lustre_wire::{ConnectData, ImportKind, Opcode, Portal};
use ptlrpc::world::World;
use ptlrpc::{
    Call, CallError, CallId, Config, Event, EvictReason, ImportConfig, ImportId, Lose, Part, Past,
    Ptlrpc, Reply, ServiceConfig, TargetConfig, Tunables,
};

const TARGET: &str = "ost-0";
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

struct Server {
    ptlrpc: Ptlrpc,
    targets: Targets,
    evicted: Vec<(String, EvictReason)>,
}

impl Server {
    fn drain(&mut self, below: &mut Below<'_>) {
        loop {
            while let Some(event) = self.ptlrpc.poll_event() {
                let event = self.targets.event(event, &mut self.ptlrpc.rpc(below));
                if let Some(Event::Evicted { client, reason, .. }) = event {
                    self.evicted.push((client, reason));
                }
            }
            assert_eq!(self.targets.poll(&mut self.ptlrpc.rpc(below)), None);
            if !self.ptlrpc.has_event() {
                return;
            }
        }
    }
}

impl Upper for Server {
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

/// One client, and what it has heard.
struct Client {
    osc: Osc,
    /// It hangs: what its locks say lies there.
    hangs: bool,
    unheard: VecDeque<LockEvent>,
    /// So many sums are wrong.
    lies: u32,
    ended: BTreeMap<OpId, Result<u64, Errno>>,
    /// Memory of writes that came back, bytes.
    freed: u64,
}

/// The clients, which share a node, its request layer and its portal of callbacks.
struct Clients {
    ptlrpc: Ptlrpc,
    locks: LockClient,
    all: BTreeMap<ImportId, Client>,
    ended: BTreeMap<CallId, Result<Reply, CallError>>,
    flushes: u64,
}

impl Clients {
    fn drain(&mut self, below: &mut Below<'_>) {
        loop {
            let mut more = false;
            while let Some(event) = self.ptlrpc.poll_event() {
                more = true;
                let rpc = &mut self.ptlrpc.rpc(below);
                let mut event = self.locks.event(event, rpc);
                for client in self.all.values_mut() {
                    let Some(one) = event else { break };
                    let cx = &mut Cx { locks: &mut self.locks, rpc };
                    event = client.osc.event(one, cx);
                }
                if let Some(Event::Ended { call, result }) = event {
                    self.ended.insert(call, result);
                }
            }
            while let Some((import, event)) = self.locks.poll_event() {
                more = true;
                self.flushes += u64::from(matches!(event, LockEvent::Flush { .. }));
                self.all.get_mut(&import).unwrap().unheard.push_back(event);
            }
            for client in self.all.values_mut().filter(|client| !client.hangs) {
                let rpc = &mut self.ptlrpc.rpc(below);
                while let Some(event) = client.unheard.pop_front() {
                    more = true;
                    client.osc.lock_event(event, &mut Cx { locks: &mut self.locks, rpc });
                }
                while let Some(event) = client.osc.poll_event() {
                    more = true;
                    match event {
                        OscEvent::Done { op, result } => {
                            assert_eq!(client.ended.insert(op, result), None);
                        }
                        OscEvent::Free(memory) => client.freed += lnet_types::iovec_len(&memory),
                        OscEvent::Sum { id, kind, memory } => {
                            let mut sum = kind.begin();
                            for span in &memory {
                                sum.update(rpc.below().bytes(*span));
                            }
                            let lie = u32::from(client.lies > 0);
                            client.lies = client.lies.saturating_sub(1);
                            let cx = &mut Cx { locks: &mut self.locks, rpc };
                            client.osc.summed(id, sum.value() ^ lie, cx);
                        }
                    }
                }
            }
            if !more {
                return;
            }
        }
    }
}

impl Upper for Clients {
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
        let rpc = &mut self.ptlrpc.rpc(below);
        self.locks.handle_timeout(rpc);
        for client in self.all.values_mut().filter(|client| !client.hangs) {
            client.osc.handle_timeout(&mut Cx { locks: &mut self.locks, rpc });
        }
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = [self.ptlrpc.poll_timeout(), self.locks.poll_timeout()];
        let awake = self.all.values().filter(|client| !client.hangs);
        own.into_iter().chain(awake.map(|client| client.osc.poll_timeout())).flatten().min()
    }
}

fn ptlrpc_of(seed: u64) -> Ptlrpc {
    let wall = Duration::from_secs(1_795_000_000 + seed * 1000);
    Ptlrpc::new(Config { seed, wall, tunables: Tunables::default() })
}

/// What a server is made with.
#[derive(Clone, Copy)]
struct Setting {
    bytes: u64,
    /// Data requests that are served at a time.
    slots: usize,
    hears: bool,
    commit: Commit,
    /// Bytes that the target promises a client when it connects.
    grant: u32,
    osc: OscConfig,
}

impl Default for Setting {
    fn default() -> Self {
        let (commit, osc) = (Commit::AtOnce, OscConfig::default());
        Self { bytes: 1 << 30, slots: 64, hears: true, commit, grant: 0, osc }
    }
}

struct Bench {
    world: World,
    server: UpperId,
    clients: UpperId,
    setting: Setting,
    seeds: u64,
}

/// The object that tests write to.
fn object(oid: u32) -> ObjectId {
    ObjectId::of(Fid { seq: 0x2_4000_0400, oid, ver: 0 })
}

fn pattern(len: u64, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 3) as u8 ^ seed).collect()
}

impl Bench {
    fn new() -> Self {
        Self::with(Setting::default())
    }

    fn with(setting: Setting) -> Self {
        let mut world = World::default();
        let store = MemoryStore::new(setting.commit, setting.bytes);
        let server = serve(&mut world, 1, store, setting);
        let config =
            LockConfig { seed: 2, tunables: Tunables::default(), cache: Default::default() };
        let clients = Clients {
            ptlrpc: ptlrpc_of(2),
            locks: LockClient::new(config),
            all: BTreeMap::new(),
            ended: BTreeMap::new(),
            flushes: 0,
        };
        let clients = world.add(Box::new(clients));
        Self { world, server, clients, setting, seeds: 2 }
    }

    fn clients<R>(&mut self, f: impl FnOnce(&mut Clients, &mut Below<'_>) -> R) -> R {
        let result = self.world.with(self.clients, |clients: &mut Clients, below| {
            let result = f(clients, below);
            clients.drain(below);
            result
        });
        self.world.settle();
        result
    }

    fn server<R>(&mut self, f: impl FnOnce(&mut Server, &mut Below<'_>) -> R) -> R {
        let result = self.world.with(self.server, |server: &mut Server, below| {
            let result = f(server, below);
            server.drain(below);
            result
        });
        self.world.settle();
        result
    }

    /// A client that has made the first four objects.
    fn client(&mut self, name: &str) -> ImportId {
        let config = ImportConfig {
            kind: ImportKind::Osc,
            target: TARGET.to_owned(),
            client: name.to_owned(),
            nids: vec![Nid::LOOPBACK],
            wanted: wanted(),
        };
        let osc = self.setting.osc;
        let import = self.clients(|clients, below| {
            let rpc = &mut clients.ptlrpc.rpc(below);
            let import = rpc.import(config).unwrap();
            clients.locks.open(import, rpc).unwrap();
            let osc = Osc::new(import, osc);
            let client = Client {
                osc,
                hangs: false,
                unheard: VecDeque::new(),
                lies: 0,
                ended: BTreeMap::new(),
                freed: 0,
            };
            clients.all.insert(import, client);
            import
        });
        self.call(import, wire::create(object(4))).unwrap().unwrap();
        import
    }

    fn begin(&mut self, import: ImportId, call: Call) -> CallId {
        self.clients(|clients, below| clients.ptlrpc.rpc(below).call(import, call).unwrap())
    }

    fn end_of(&mut self, call: CallId) -> Option<Result<Reply, CallError>> {
        self.clients(|clients, _| clients.ended.remove(&call))
    }

    /// A call, and its end, if it has one without any time.
    fn call(&mut self, import: ImportId, call: Call) -> Option<Result<Reply, CallError>> {
        let id = self.begin(import, call);
        self.end_of(id)
    }

    fn osc<R>(
        &mut self,
        import: ImportId,
        f: impl FnOnce(&mut Osc, &mut Cx<'_, '_, '_>) -> R,
    ) -> R {
        self.clients(|clients, below| {
            let rpc = &mut clients.ptlrpc.rpc(below);
            let osc = &mut clients.all.get_mut(&import).unwrap().osc;
            f(osc, &mut Cx { locks: &mut clients.locks, rpc })
        })
    }

    fn of<R>(&mut self, import: ImportId, f: impl FnOnce(&mut Client) -> R) -> R {
        self.clients(|clients, _| f(clients.all.get_mut(&import).unwrap()))
    }

    fn begin_write(&mut self, import: ImportId, oid: u32, offset: u64, bytes: &[u8]) -> OpId {
        let memory = self.world.heap.memory(bytes.to_vec());
        let begun = self.osc(import, |osc, cx| osc.write(object(oid), offset, memory, None, cx));
        begun.unwrap()
    }

    fn begin_read(&mut self, import: ImportId, oid: u32, offset: u64, len: u64) -> (OpId, IoVec) {
        let memory = self.world.heap.memory(vec![0xEE; len as usize]);
        let into = memory.clone();
        let begun = self.osc(import, |osc, cx| osc.read(object(oid), offset, into, cx));
        (begun.unwrap(), memory)
    }

    /// How an operation has ended, if it has.
    fn done(&mut self, import: ImportId, op: OpId) -> Option<Result<u64, Errno>> {
        self.of(import, |client| client.ended.remove(&op))
    }

    /// Writes, which ends without any time.
    fn write(&mut self, import: ImportId, oid: u32, offset: u64, bytes: &[u8]) {
        let op = self.begin_write(import, oid, offset, bytes);
        assert_eq!(self.done(import, op), Some(Ok(bytes.len() as u64)));
    }

    fn bytes(&self, memory: &IoVec) -> Vec<u8> {
        memory.iter().flat_map(|span| self.world.heap.bytes(*span).to_vec()).collect()
    }

    /// Reads, which ends without any time.
    fn read(&mut self, import: ImportId, oid: u32, offset: u64, len: u64) -> Vec<u8> {
        let (op, memory) = self.begin_read(import, oid, offset, len);
        let read = self.done(import, op).expect("an end").unwrap();
        let mut bytes = self.bytes(&memory);
        bytes.truncate(read as usize);
        bytes
    }

    /// An operation that ends without any time.
    fn run(
        &mut self,
        import: ImportId,
        f: impl FnOnce(&mut Osc, &mut Cx<'_, '_, '_>) -> Result<OpId, OscError>,
    ) -> Result<u64, Errno> {
        let op = self.osc(import, f).unwrap();
        self.done(import, op).expect("an end")
    }

    fn fsync(&mut self, import: ImportId, oid: u32) -> Result<u64, Errno> {
        self.run(import, |osc, cx| osc.fsync(object(oid), cx))
    }

    fn close(&mut self, import: ImportId, oid: u32) -> Result<u64, Errno> {
        self.run(import, |osc, cx| osc.close(object(oid), cx))
    }

    fn size(&mut self, import: ImportId, oid: u32) -> Result<u64, Errno> {
        self.run(import, |osc, cx| osc.size(object(oid), cx))
    }

    fn dirty(&mut self, import: ImportId) -> u64 {
        self.osc(import, |osc, _| osc.dirty())
    }

    /// A client that writes has promises of space after its first write, which is written through.
    fn warm(&mut self, import: ImportId) {
        self.write(import, 4, 0, &[1; 4096]);
        assert_eq!(self.dirty(import), 0);
    }

    fn hang(&mut self, import: ImportId, hangs: bool) {
        self.of(import, |client| client.hangs = hangs);
        // What lies there is heard now.
        self.clients(|_, _| ());
    }

    /// The next messages of this kind get lost, on the server's side.
    fn lose(&mut self, opcode: Opcode, part: Part, count: u32) {
        let lose = Lose { opcode: Some(opcode), part, count };
        self.server(|server, below| {
            // There may be as many rules as there may be.
            let _ = server.ptlrpc.rpc(below).lose(lose);
        });
    }

    fn mend(&mut self) {
        self.server(|server, below| {
            let rules: Vec<_> = server.ptlrpc.losing().iter().map(|rule| rule.id).collect();
            rules.into_iter().for_each(|rule| {
                server.ptlrpc.rpc(below).mend(rule);
            });
        });
    }

    /// The server dies, and begins again with what its store has committed.
    fn restart(&mut self) {
        let store = self.server(|server, _| {
            let id = server.targets.id(TARGET).unwrap();
            server.targets.remove(id).unwrap()
        });
        let store: Box<dyn core::any::Any> = store;
        let store = *store.downcast::<MemoryStore>().unwrap();
        self.world.kill(self.server);
        self.seeds += 1;
        self.server = serve(&mut self.world, self.seeds, store.crashed(), self.setting);
        self.world.settle();
    }

    fn evict(&mut self, name: &str) {
        self.server(|server, below| {
            let views = server.ptlrpc.export_views();
            if let Some(view) = views.iter().find(|view| view.client == name) {
                server.ptlrpc.rpc(below).evict(view.id);
            }
        });
    }

    fn evicted(&mut self) -> Vec<(String, EvictReason)> {
        self.server(|server, _| core::mem::take(&mut server.evicted))
    }

    fn secs(&mut self, secs: u64) {
        self.world.pass(Duration::from_secs(secs));
    }

    /// Clients whose locks the server has.
    fn holders(&mut self) -> BTreeSet<String> {
        self.server(|server, below| {
            let rpc = server.ptlrpc.rpc(below);
            let (_, kind) = server.targets.lockers().next().unwrap();
            let resource = lustre_wire::ldlm::ResourceName::of_object(object(1));
            let lines = kind.locks().unwrap().locks_on(&resource, &rpc);
            lines.into_iter().map(|line| line.client).collect()
        })
    }
}

fn serve(world: &mut World, seed: u64, mut store: MemoryStore, setting: Setting) -> UpperId {
    let (ptlrpc, targets) = (ptlrpc_of(seed), Targets::default());
    let id = world.add(Box::new(Server { ptlrpc, targets, evicted: Vec::new() }));
    world.with(id, |server: &mut Server, below| {
        let kind: Box<dyn lustre_target::Kind> = Box::new(Ost::new(OstLimits::default()));
        let began = start(&mut store, kind.name()).unwrap();
        let rpc = &mut server.ptlrpc.rpc(below);
        let reply = Portal::OSC_REPLY;
        for (portal, reply) in [
            (Portal::OST_REQUEST, reply),
            (Portal::OST_IO, reply),
            (Portal::OST_CREATE, reply),
            (Portal::LDLM_CANCEL, Portal::LDLM_CANCEL_REPLY),
        ] {
            let mut service = ServiceConfig::new("ost", portal.0, reply.0, Portal::OST_BULK.0);
            if portal == Portal::OST_IO {
                (service.slots, service.hears_of_waiting) = (setting.slots, setting.hears);
            }
            rpc.serve(service).unwrap();
        }
        let (uuid, past) = (TARGET.to_owned(), Past::default());
        let offer = ConnectData { grant: setting.grant, ..kind.offer() };
        let config = TargetConfig { uuid, offer, replayable: true, past };
        server.targets.add(config, kind, Box::new(store), began, rpc).unwrap();
        server.drain(below);
    });
    world.settle();
    id
}
