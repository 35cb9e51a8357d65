//! The bench: a lock target on its store and clients that do with callbacks what a test says, in
//! virtual time. The clients are as simple as can be: what they know of a lock is what replies and callbacks say.

use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::collections::BTreeMap;

use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event as LnetEvent, Report};
use lnet_types::{ByteOrder, Errno, Instant, Memory, Nid, Span};
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::ldlm::{
    LockDesc, LockFlags, LockKind, LockMode, LockReply, LockRequest, Policy, ResourceName,
};
use lustre_wire::{Buffers, ImportKind, Layout, Opcode, Portal};
use ptlrpc::world::World;
use ptlrpc::{
    Answer, Call, CallError, CallId, Config, Event, EvictReason, ImportConfig, ImportId,
    ImportState, Lose, Part, Past, Ptlrpc, Reply, Rpc, Served, ServiceConfig, TargetConfig,
    TargetId, Tunables,
};

use super::touching;
use crate::lock::wire;
use crate::store::{Store, StoreFact, StoreOrder};
use crate::{Commit, MemoryStore, Targets, start};

/// What a client does when it is called back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It answers, and gives the lock back at once.
    Polite,
    /// It answers, and keeps the lock.
    Busy,
    /// It does not answer.
    Silent,
    /// It replays one lock, and does not get on.
    Stuck,
}

/// A lock, as its client knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// The server's name; 0 before the reply.
    pub(super) handle: u64,
    pub(super) desc: LockDesc,
    pub(super) granted: bool,
    /// Its fencing number, 0 for none.
    pub(super) fence: u64,
    /// Whether it was called back.
    pub(super) called_back: bool,
}

/// A client: what it does, and what it knows of its locks.
pub(super) struct Client {
    pub(super) manner: Manner,
    /// By the client's cookies.
    pub(super) locks: BTreeMap<u64, Held>,
    /// Callbacks that have come.
    pub(super) called: Vec<Served>,
    /// The locks that enqueues under way are for.
    enqueues: BTreeMap<CallId, u64>,
    replays: Vec<CallId>,
    pub(super) evictions: usize,
}

/// The clients of the node, which share its request layer and its portal of callbacks.
pub(super) struct Clients {
    pub(super) ptlrpc: Ptlrpc,
    all: BTreeMap<ImportId, Client>,
    /// Calls that have ended.
    ends: BTreeMap<CallId, Result<Reply, CallError>>,
    /// Whose enqueues and replays are under way.
    callers: BTreeMap<CallId, ImportId>,
}

impl Clients {
    fn drain(&mut self, below: &mut Below<'_>) {
        while let Some(event) = self.ptlrpc.poll_event() {
            match event {
                Event::Served(served) => self.called_back(*served, below),
                Event::Ended { call, result } => self.ended(call, result, below),
                Event::ReplayLocks { import } => self.replay(import, below),
                Event::Import { import, state: ImportState::Evicted } => {
                    let client = self.all.get_mut(&import).unwrap();
                    client.evictions += 1;
                    client.locks.clear();
                }
                _ => {}
            }
        }
    }

    fn called_back(&mut self, served: Served, below: &mut Below<'_>) {
        let who = served.import.unwrap();
        let client = self.all.get_mut(&who).unwrap();
        client.called.push(served.clone());
        if client.manner == Manner::Silent && served.opcode == Opcode::LDLM_BL_CALLBACK {
            return;
        }
        let rpc = &mut self.ptlrpc.rpc(below);
        let msg = served.msg().unwrap();
        let request = LockRequest::of(&msg, 1).unwrap();
        let cookie = request.handles[0];
        let Some(held) = client.locks.get_mut(&cookie) else {
            return rpc.refuse(served.id, Errno::EINVAL);
        };
        rpc.reply(served.id, Answer::default());
        if served.opcode == Opcode::LDLM_CP_CALLBACK {
            let value = msg.buffer(2).unwrap();
            held.granted = true;
            held.handle = request.handles[1];
            held.desc = request.desc;
            held.fence = wire::fence_of(msg.order, value).unwrap_or_default();
            held.called_back = request.flags.contains(LockFlags::AST_SENT);
        } else {
            held.called_back = true;
        }
        if held.called_back && held.granted && client.manner == Manner::Polite {
            self.cancel(who, cookie, below);
        }
    }

    fn ended(&mut self, call: CallId, result: Result<Reply, CallError>, below: &mut Below<'_>) {
        self.ends.insert(call, result.clone());
        let Some(who) = self.callers.remove(&call) else { return };
        let client = self.all.get_mut(&who).unwrap();
        if let Some(cookie) = client.enqueues.remove(&call) {
            match &result {
                Ok(reply) if reply.status == 0 => client.replied(cookie, reply),
                _ => {
                    client.locks.remove(&cookie);
                }
            }
            let back = client.locks.get(&cookie).is_some_and(|l| l.granted && l.called_back);
            if back && client.manner == Manner::Polite {
                self.cancel(who, cookie, below);
            }
        }
        let client = self.all.get_mut(&who).unwrap();
        if let Some(at) = client.replays.iter().position(|replay| *replay == call) {
            client.replays.remove(at);
            if client.replays.is_empty() {
                self.ptlrpc.rpc(below).locks_replayed(who);
            }
        }
    }

    pub(super) fn send(&mut self, who: ImportId, call: Call, below: &mut Below<'_>) -> CallId {
        let call = self.ptlrpc.rpc(below).call(who, call).unwrap();
        self.callers.insert(call, who);
        call
    }

    fn cancel(&mut self, who: ImportId, cookie: u64, below: &mut Below<'_>) -> Option<CallId> {
        let held = self.all.get_mut(&who)?.locks.remove(&cookie)?;
        Some(self.send(who, cancel(&[held.handle]), below))
    }

    /// Locks are asked for again with what they were granted (L-61).
    fn replay(&mut self, who: ImportId, below: &mut Below<'_>) {
        let stuck = self.all[&who].manner == Manner::Stuck;
        for (cookie, held) in self.all[&who].locks.clone() {
            let state = if held.granted {
                LockFlags::BLOCK_GRANTED
            } else if held.handle != 0 {
                LockFlags::BLOCK_WAIT
            } else {
                // It goes again by itself.
                continue;
            };
            let call = enqueue(LockFlags::REPLAY | state, held.desc, cookie, None);
            let call = self.ptlrpc.rpc(below).replay_lock(who, call).unwrap();
            self.callers.insert(call, who);
            let client = self.all.get_mut(&who).unwrap();
            client.enqueues.insert(call, cookie);
            if stuck {
                return;
            }
            client.replays.push(call);
        }
        if self.all[&who].replays.is_empty() {
            self.ptlrpc.rpc(below).locks_replayed(who);
        }
    }
}

impl Client {
    fn replied(&mut self, cookie: u64, reply: &Reply) {
        let Some(held) = self.locks.get_mut(&cookie) else { return };
        let msg = reply.msg().unwrap();
        let said: LockReply = msg.get(1).unwrap();
        held.handle = said.handle;
        held.called_back |= said.flags.contains(LockFlags::AST_SENT);
        let waits = LockFlags::BLOCK_GRANTED | LockFlags::BLOCK_WAIT;
        if held.granted || said.flags.intersects(waits) {
            return;
        }
        held.granted = true;
        held.desc = said.desc;
        if let Some(value) = msg.buffer(2) {
            held.fence = wire::fence_of(msg.order, value).unwrap_or_default();
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
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ptlrpc.poll_timeout()
    }
}

/// The server: a target on its store.
pub(super) struct Server {
    pub(super) ptlrpc: Ptlrpc,
    pub(super) targets: Targets,
    pub(super) evicted: Vec<(String, EvictReason)>,
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

/// What both ends ask for and offer.
fn data() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::LVB_TYPE
            | ConnectFlags::LRU_RESIZE
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    }
}

/// A lock on a whole name.
pub(super) fn whole(name: &str, mode: LockMode) -> LockDesc {
    range(name, mode, 0, u64::MAX)
}

/// A lock on a part of a name.
pub(super) fn range(name: &str, mode: LockMode, start: u64, end: u64) -> LockDesc {
    LockDesc {
        kind: LockKind::EXTENT,
        resource: wire::resource_of(name).unwrap_or(ResourceName { words: [1, 2, 3, 4] }),
        requested: mode,
        granted: LockMode::NONE,
        policy: Policy::Extent { start, end, gid: 0 }.words(),
    }
}

pub(super) fn enqueue(flags: LockFlags, desc: LockDesc, cookie: u64, name: Option<&str>) -> Call {
    let request = LockRequest::new(flags, 1, desc, &[cookie]);
    let mut buffers = Buffers::from([request.to_bytes(ByteOrder::Little)]);
    buffers.extend(name.map(|name| name.as_bytes().to_vec()));
    let mut call =
        Call::new(Opcode::LDLM_ENQUEUE, buffers).answered_by(&[LockReply::LEN as u32, 56]);
    call.modifies = false;
    call
}

pub(super) fn cancel(handles: &[u64]) -> Call {
    let count = handles.len() as u32;
    let request = LockRequest::new(LockFlags::empty(), count, LockDesc::default(), handles);
    Call::new(Opcode::LDLM_CANCEL, Buffers::from([request.to_bytes(ByteOrder::Little)]))
}

/// A store whose commits can be held up.
struct Slow {
    inner: MemoryStore,
    stalled: bool,
    /// Orders to commit that wait for the end of it.
    syncs: Vec<StoreOrder>,
}

impl Slow {
    fn new(inner: MemoryStore) -> Self {
        Self { inner, stalled: false, syncs: Vec::new() }
    }
}

impl Store for Slow {
    fn order(&mut self, order: StoreOrder, memory: &mut dyn Memory) {
        match order {
            StoreOrder::Sync { .. } if self.stalled => self.syncs.push(order),
            order => self.inner.order(order, memory),
        }
    }

    fn poll(&mut self, memory: &mut dyn Memory) -> Option<StoreFact> {
        self.inner.poll(memory)
    }
}

/// An order to commit names none.
struct NoMemory;

impl Memory for NoMemory {
    fn bytes(&self, _: Span) -> &[u8] {
        &[]
    }

    fn bytes_mut(&mut self, _: Span) -> &mut [u8] {
        &mut []
    }
}

pub(super) struct Bench {
    world: World,
    pub(super) server: UpperId,
    clients: UpperId,
    tunables: Tunables,
    seeds: u64,
    /// The last cookie of any client.
    cookies: u64,
    /// Clients that earlier lives of the server have evicted.
    past: Vec<(String, EvictReason)>,
}

impl Deref for Bench {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

/// A client of the bench.
pub(super) type Who = ImportId;

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(Tunables::default())
    }

    pub(super) fn with(tunables: Tunables) -> Self {
        let mut world = World::default();
        let store = MemoryStore::new(Commit::Ordered, 1 << 20);
        let server = serve(&mut world, 1, &tunables, store);
        let clients = Clients {
            ptlrpc: ptlrpc_of(2, &Tunables::default()),
            all: BTreeMap::new(),
            ends: BTreeMap::new(),
            callers: BTreeMap::new(),
        };
        let clients = world.add(Box::new(clients));
        let (request, reply) = (Portal::LDLM_CALLBACK.0, Portal::LDLM_CALLBACK_REPLY.0);
        let service = ServiceConfig::new("callbacks", request, reply, Portal::OST_BULK.0);
        world.with(clients, |clients: &mut Clients, below| {
            clients.ptlrpc.rpc(below).serve(service).unwrap();
        });
        Self { world, server, clients, tunables, seeds: 2, cookies: 0, past: Vec::new() }
    }

    pub(super) fn client(&mut self, name: &str, manner: Manner) -> Who {
        let client = Client {
            manner,
            locks: BTreeMap::new(),
            called: Vec::new(),
            enqueues: BTreeMap::new(),
            replays: Vec::new(),
            evictions: 0,
        };
        let config = ImportConfig {
            kind: ImportKind::Osc,
            target: "locks".to_owned(),
            client: name.to_owned(),
            nids: vec![Nid::LOOPBACK],
            wanted: data(),
        };
        let who = self.all(|clients, below| {
            let rpc = &mut clients.ptlrpc.rpc(below);
            let who = rpc.import(config).unwrap();
            rpc.hold(who, true);
            rpc.replays_locks(who, true);
            rpc.connect(who);
            clients.all.insert(who, client);
            who
        });
        self.settle();
        who
    }

    pub(super) fn all<R>(&mut self, f: impl FnOnce(&mut Clients, &mut Below<'_>) -> R) -> R {
        self.world.with(self.clients, |clients: &mut Clients, below| {
            let result = f(clients, below);
            clients.drain(below);
            result
        })
    }

    pub(super) fn of<R>(&mut self, who: Who, f: impl FnOnce(&mut Client) -> R) -> R {
        self.all(|clients, _| f(clients.all.get_mut(&who).unwrap()))
    }

    pub(super) fn served<R>(&mut self, f: impl FnOnce(&mut Server, &mut Below<'_>) -> R) -> R {
        let result = self.world.with(self.server, |server: &mut Server, below| {
            let result = f(server, below);
            server.drain(below);
            result
        });
        self.settle();
        result
    }

    /// Messages of the server's that get lost.
    pub(super) fn lose(&mut self, opcode: Opcode, part: Part, count: u32) {
        let lose = Lose { opcode: Some(opcode), part, count };
        self.served(|server, below| server.ptlrpc.rpc(below).lose(lose)).unwrap();
    }

    /// Rules of losses that have something left to lose.
    pub(super) fn losing(&mut self) -> usize {
        self.served(|server, _| server.ptlrpc.losing().len())
    }

    /// Nothing gets lost any more.
    pub(super) fn mend(&mut self) {
        self.served(|server, below| {
            let rules: Vec<_> = server.ptlrpc.losing().iter().map(|rule| rule.id).collect();
            rules.into_iter().for_each(|rule| {
                server.ptlrpc.rpc(below).mend(rule);
            });
        });
    }

    /// How many messages the rules have lost.
    pub(super) fn lost(&mut self) -> u32 {
        self.served(|server, _| server.ptlrpc.losing().iter().map(|rule| rule.lost).sum())
    }

    /// Sends a request; its name.
    pub(super) fn send(&mut self, who: Who, call: Call) -> CallId {
        let call = self.all(|clients, below| clients.send(who, call, below));
        self.settle();
        call
    }

    /// How a call ended, if it has.
    pub(super) fn end(&mut self, call: CallId) -> Option<Result<Reply, CallError>> {
        self.all(|clients, _| clients.ends.get(&call).cloned())
    }

    /// Asks for the lock of a whole name.
    pub(super) fn ask_for(&mut self, who: Who, name: &str, mode: LockMode) -> u64 {
        self.cookies += 1;
        let cookie = self.cookies;
        self.ask_as(who, cookie, LockFlags::empty(), whole(name, mode), Some(name));
        cookie
    }

    pub(super) fn ask_as(
        &mut self,
        who: Who,
        cookie: u64,
        flags: LockFlags,
        desc: LockDesc,
        name: Option<&str>,
    ) -> CallId {
        let call = enqueue(flags, desc, cookie, name);
        let id = self.all(|clients, below| {
            let id = clients.send(who, call, below);
            let client = clients.all.get_mut(&who).unwrap();
            client.locks.insert(cookie, Held { desc, ..Held::default() });
            client.enqueues.insert(id, cookie);
            id
        });
        self.settle();
        id
    }

    /// A lock, as its client knows it.
    pub(super) fn held(&mut self, who: Who, cookie: u64) -> Option<Held> {
        self.of(who, |client| client.locks.get(&cookie).copied())
    }

    pub(super) fn granted(&mut self, who: Who, cookie: u64) -> bool {
        self.held(who, cookie).is_some_and(|held| held.granted)
    }

    /// Gives a lock back.
    pub(super) fn give(&mut self, who: Who, cookie: u64) -> CallId {
        let call = self.all(|clients, below| clients.cancel(who, cookie, below)).unwrap();
        self.settle();
        call
    }

    pub(super) fn manner(&mut self, who: Who, manner: Manner) {
        self.of(who, |client| client.manner = manner);
    }

    /// Callbacks of this kind that a client has had, copies that were folded not counted.
    pub(super) fn called(&mut self, who: Who, opcode: Opcode) -> Vec<Served> {
        self.of(who, |client| {
            client.called.iter().filter(|served| served.opcode == opcode).cloned().collect()
        })
    }

    /// Clients that were evicted in all lives of the server.
    pub(super) fn all_evicted(&mut self) -> Vec<(String, EvictReason)> {
        let now = self.evicted();
        self.past.iter().cloned().chain(now).collect()
    }

    /// Clients that were evicted in this life of the server, and why.
    pub(super) fn evicted(&mut self) -> Vec<(String, EvictReason)> {
        self.served(|server, _| server.evicted.clone())
    }

    /// The server's process dies and begins again with its store.
    pub(super) fn restart(&mut self) {
        self.past = self.all_evicted();
        let store = self.served(|server, _| {
            let id = server.targets.id("locks").unwrap();
            server.targets.remove(id).unwrap()
        });
        let store: Box<dyn core::any::Any> = store;
        let store = store.downcast::<Slow>().unwrap().inner;
        self.world.kill(self.server);
        self.seeds += 1;
        self.server = serve(&mut self.world, self.seeds, &self.tunables, store.crashed());
        self.settle();
    }

    /// Holds the commits of the server's store up, or no longer.
    pub(super) fn stall(&mut self, stalled: bool) {
        self.served(|server, _| {
            let id = server.targets.id("locks").unwrap();
            let store: &mut dyn core::any::Any = server.targets.store_mut(id).unwrap();
            let store = store.downcast_mut::<Slow>().unwrap();
            store.stalled = stalled;
            for sync in core::mem::take(&mut store.syncs) {
                store.order(sync, &mut NoMemory);
            }
        });
    }

    /// Evicts a client by order.
    pub(super) fn evict(&mut self, client: &str) {
        self.served(|server, below| {
            let exports = server.ptlrpc.export_views();
            let export = exports.iter().find(|export| export.client == client).unwrap().id;
            server.ptlrpc.rpc(below).evict(export);
        });
    }

    /// Looks at the locks of the server.
    pub(super) fn locks<R>(
        &mut self,
        f: impl FnOnce(&ldlm::server::LockServer, &Rpc<'_, '_>) -> R,
    ) -> R {
        self.served(|server, below| {
            let (_, kind) = server.targets.lockers().next().unwrap();
            f(kind.locks().unwrap(), &server.ptlrpc.rpc(below))
        })
    }
}

fn ptlrpc_of(seed: u64, tunables: &Tunables) -> Ptlrpc {
    let wall = Duration::from_secs(1_795_000_000 + seed * 1000);
    Ptlrpc::new(Config { seed, wall, tunables: tunables.clone() })
}

fn serve(world: &mut World, seed: u64, tunables: &Tunables, mut store: MemoryStore) -> UpperId {
    let server = Server {
        ptlrpc: ptlrpc_of(seed, tunables),
        targets: Targets::default(),
        evicted: Vec::new(),
    };
    let id = world.add(Box::new(server));
    world.with(id, |server: &mut Server, below| {
        let began = start(&mut store, "lock").unwrap();
        let rpc = &mut server.ptlrpc.rpc(below);
        let (request, reply) = ImportKind::Osc.portals();
        let bulk = Portal::OST_BULK.0;
        rpc.serve(ServiceConfig::new("target", request.0, reply.0, bulk)).unwrap();
        let (request, reply) = (Portal::LDLM_CANCEL.0, Portal::LDLM_CANCEL_REPLY.0);
        rpc.serve(ServiceConfig::new("cancel", request, reply, bulk)).unwrap();
        let uuid = "locks".to_owned();
        let config = TargetConfig { uuid, offer: data(), replayable: true, past: Past::default() };
        let kind = touching();
        let added: TargetId =
            server.targets.add(config, kind, Box::new(Slow::new(store)), began, rpc).unwrap();
        assert_eq!(server.targets.uuid(added), Some("locks"));
        server.drain(below);
    });
    id
}
