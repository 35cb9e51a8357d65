//! Clients of locks and a lock target in one world: what both sides make of each other, in virtual
//! time. `cases.rs` has what happens to one lock, `dead.rs` holders that die with theirs, `storm.rs`
//! everything at once against a model.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
#![allow(clippy::disallowed_types, reason = "both sides of a world write one log, in its order")]

mod cases;
mod dead;
mod storm;

use core::time::Duration;
use std::collections::BTreeMap;

use ldlm::Mode;
use ldlm::client::{
    Ask, Config as LockConfig, GoneReason, HoldId, LockClient, LockError, LockEvent, LockId,
};
use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event as LnetEvent, Report};
use lnet_types::{ByteOrder, Instant, Nid};
use lustre_target::lock::wire::{fence_of, resource_of};
use lustre_target::{Commit, Lock, MemoryStore, Targets, start};
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::ldlm::{LockFlags, Policy};
use lustre_wire::{Buffers, ImportKind, Opcode, Portal};
use ptlrpc::world::World;
use ptlrpc::{
    Config, Event, EvictReason, ImportConfig, ImportId, ImportState, Lose, Part, Past, Ptlrpc,
    ServiceConfig, TargetConfig, Tunables,
};

/// Something that happened, in the order of the world.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// A client's locks have said something.
    Lock(ImportId, LockEvent),
    /// The server has dropped a client.
    Evicted(String, EvictReason),
    /// A client has learnt that it was dropped.
    Learnt(ImportId),
}

/// Both sides write here.
type Log = std::sync::Arc<std::sync::Mutex<Vec<Seen>>>;

struct Server {
    ptlrpc: Ptlrpc,
    targets: Targets,
    log: Log,
}

impl Server {
    fn drain(&mut self, below: &mut Below<'_>) {
        loop {
            while let Some(event) = self.ptlrpc.poll_event() {
                let event = self.targets.event(event, &mut self.ptlrpc.rpc(below));
                if let Some(Event::Evicted { client, reason, .. }) = event {
                    self.log.lock().unwrap().push(Seen::Evicted(client, reason));
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

/// The clients, which share a node, its request layer and its portal of callbacks.
struct Clients {
    ptlrpc: Ptlrpc,
    locks: LockClient,
    log: Log,
}

impl Clients {
    fn drain(&mut self, below: &mut Below<'_>) {
        while let Some(event) = self.ptlrpc.poll_event() {
            if let Event::Import { import, state: ImportState::Evicted } = event {
                self.log.lock().unwrap().push(Seen::Learnt(import));
            }
            self.locks.event(event, &mut self.ptlrpc.rpc(below));
            while let Some((import, event)) = self.locks.poll_event() {
                self.log.lock().unwrap().push(Seen::Lock(import, event));
            }
        }
        while let Some((import, event)) = self.locks.poll_event() {
            self.log.lock().unwrap().push(Seen::Lock(import, event));
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
        self.locks.handle_timeout(&mut self.ptlrpc.rpc(below));
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.ptlrpc.poll_timeout(), self.locks.poll_timeout()].into_iter().flatten().min()
    }
}

fn data() -> ConnectData {
    let flags = ConnectFlags::VERSION
        | ConnectFlags::AT
        | ConnectFlags::FULL20
        | ConnectFlags::BULK_MBITS
        | ConnectFlags::LVB_TYPE
        | ConnectFlags::LRU_RESIZE
        | ConnectFlags::FLAGS2;
    ConnectData { flags, flags2: ConnectFlags2::REP_MBITS, ..ConnectData::default() }
}

fn ptlrpc_of(seed: u64, tunables: &Tunables) -> Ptlrpc {
    let wall = Duration::from_secs(1_795_000_000 + seed * 1000);
    Ptlrpc::new(Config { seed, wall, tunables: tunables.clone() })
}

struct Bench {
    world: World,
    server: UpperId,
    clients: UpperId,
    log: Log,
    seeds: u64,
    tunables: Tunables,
}

impl Bench {
    fn new(seed: u64) -> Self {
        Self::with(seed, Tunables::default())
    }

    fn with(seed: u64, tunables: Tunables) -> Self {
        let mut world = World::default();
        let log = Log::default();
        let store = MemoryStore::new(Commit::AtOnce, 1 << 20);
        let server = serve(&mut world, seed, &tunables, store, log.clone());
        let clients = clients(&mut world, seed + 1, &tunables, log.clone());
        Self { world, server, clients, log, seeds: seed + 1, tunables }
    }

    /// All clients die where they stand; those that come are others.
    fn others(&mut self) {
        drop(self.world.kill(self.clients));
        self.seeds += 1;
        self.clients = clients(&mut self.world, self.seeds, &self.tunables, self.log.clone());
        self.world.settle();
    }

    fn client(&mut self, name: &str) -> ImportId {
        let config = ImportConfig {
            kind: ImportKind::Osc,
            target: "locks".to_owned(),
            client: name.to_owned(),
            nids: vec![Nid::LOOPBACK],
            wanted: data(),
        };
        self.clients(|clients, below| {
            let rpc = &mut clients.ptlrpc.rpc(below);
            let import = rpc.import(config).unwrap();
            clients.locks.open(import, rpc).unwrap();
            import
        })
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

    fn try_ask(&mut self, import: ImportId, ask: &Ask) -> Result<HoldId, LockError> {
        self.clients(|clients, below| {
            clients.locks.enqueue(import, ask, &mut clients.ptlrpc.rpc(below))
        })
    }

    fn ask(&mut self, import: ImportId, ask: &Ask) -> HoldId {
        self.try_ask(import, ask).unwrap()
    }

    fn release(&mut self, import: ImportId, hold: HoldId, keep: bool) {
        self.clients(|clients, below| {
            clients.locks.release(import, hold, keep, &mut clients.ptlrpc.rpc(below));
        });
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

    fn restart(&mut self) {
        let store = self.server(|server, _| {
            let id = server.targets.id("locks").unwrap();
            server.targets.remove(id).unwrap()
        });
        let store: Box<dyn core::any::Any> = store;
        let store = *store.downcast::<MemoryStore>().unwrap();
        self.world.kill(self.server);
        self.seeds += 1;
        self.server =
            serve(&mut self.world, self.seeds, &self.tunables, store.crashed(), self.log.clone());
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

    fn secs(&mut self, secs: u64) {
        self.world.pass(Duration::from_secs(secs));
    }

    /// What has happened since the last look.
    fn seen(&self) -> Vec<Seen> {
        core::mem::take(&mut *self.log.lock().unwrap())
    }

    /// Locks that the server has.
    fn server_locks(&mut self) -> usize {
        self.server(|server, _| {
            server
                .targets
                .lockers()
                .map(|(_, kind)| kind.locks().unwrap().space().view().locks)
                .sum()
        })
    }
}

fn clients(world: &mut World, seed: u64, tunables: &Tunables, log: Log) -> UpperId {
    let config = LockConfig { seed, tunables: tunables.clone(), cache: Default::default() };
    let ptlrpc = ptlrpc_of(seed, tunables);
    world.add(Box::new(Clients { ptlrpc, locks: LockClient::new(config), log }))
}

fn serve(
    world: &mut World,
    seed: u64,
    tunables: &Tunables,
    mut store: MemoryStore,
    log: Log,
) -> UpperId {
    let server = Server { ptlrpc: ptlrpc_of(seed, tunables), targets: Targets::default(), log };
    let id = world.add(Box::new(server));
    world.with(id, |server: &mut Server, below| {
        let began = start(&mut store, "lock").unwrap();
        let rpc = &mut server.ptlrpc.rpc(below);
        let cancels = (Portal::LDLM_CANCEL, Portal::LDLM_CANCEL_REPLY);
        for (name, (request, reply)) in [("target", ImportKind::Osc.portals()), ("cancel", cancels)]
        {
            let service = ServiceConfig::new(name, request.0, reply.0, Portal::OST_BULK.0);
            rpc.serve(service).unwrap();
        }
        let uuid = "locks".to_owned();
        let config = TargetConfig { uuid, offer: data(), replayable: true, past: Past::default() };
        server.targets.add(config, Box::new(Lock::new()), Box::new(store), began, rpc).unwrap();
        server.drain(below);
    });
    id
}

/// An ask for a name, or a part of it.
fn ask(name: &str, mode: Mode, start: u64, end: u64) -> Ask {
    let policy = Policy::Extent { start, end, gid: 0 };
    Ask {
        flags: LockFlags::NO_EXPANSION,
        beside: Buffers::from([name]),
        ..Ask::new(resource_of(name).unwrap(), mode, policy)
    }
}

fn whole(name: &str, mode: Mode) -> Ask {
    ask(name, mode, 0, u64::MAX)
}

/// What became of holds, from what was seen.
#[derive(Debug, Default)]
struct Fate {
    granted: BTreeMap<HoldId, (LockId, Option<u64>)>,
    refused: BTreeMap<HoldId, LockError>,
    called_back: Vec<LockId>,
    lost: Vec<HoldId>,
    evicted: Vec<(String, EvictReason)>,
}

impl Fate {
    fn take(&mut self, seen: Vec<Seen>) {
        for seen in seen {
            match seen {
                Seen::Lock(_, LockEvent::Granted { hold, lock, lvb, .. }) => {
                    let fence = fence_of(ByteOrder::Little, &lvb);
                    assert_eq!(self.granted.insert(hold, (lock, fence)), None, "{hold:?} twice");
                }
                Seen::Lock(_, LockEvent::Refused { hold, error }) => {
                    assert_eq!(self.refused.insert(hold, error), None, "{hold:?} twice");
                }
                Seen::Lock(_, LockEvent::CalledBack { lock, .. }) => self.called_back.push(lock),
                Seen::Lock(_, LockEvent::Gone { holds, reason, .. }) => {
                    assert!(holds.is_empty() || reason == GoneReason::Lost);
                    self.lost.extend(holds);
                }
                Seen::Lock(..) | Seen::Learnt(_) => {}
                Seen::Evicted(client, reason) => self.evicted.push((client, reason)),
            }
        }
    }
}
