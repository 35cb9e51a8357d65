//! A server of locks with attributes of objects, and clients over the request layer, in virtual time:
//! enqueues (L-22, L-23), glimpses (L-34, L-35, L-40), conversions (L-45) and what releases differ in,
//! through both ends.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod convert;
mod enqueue;
mod glimpse;
mod variants;

use core::time::Duration;

use ldlm::Mode;
use ldlm::client::{Ask, Config as ClientConfig, GlimpseId, HoldId, LockClient, LockEvent, LockId};
use ldlm::server::{LockServer, Values};
use ldlm::space::{Config as SpaceConfig, Value};
use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event as LnetEvent, Report};
use lnet_types::{ByteOrder, Instant, Nid};
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::ldlm::{LockDesc, LockFlags, LockReply, LockRequest, Lvb, Policy, ResourceName};
use lustre_wire::{Buffers, ImportKind, Layout, Opcode, Portal};
use ptlrpc::world::World;
use ptlrpc::{
    Call, CallError, CallId, Config, Event, EvictReason, ImportConfig, ImportId, Past, Ptlrpc,
    Reply, ServiceConfig, TargetConfig, Tunables,
};

/// What the object layer knows: an object of this size.
const SIZE: u64 = 10;

/// An object.
const OBJECT: ResourceName = ResourceName { words: [0x2_4000_0400, 3, 0, 0] };

fn lvb(size: u64) -> Lvb {
    Lvb { size, ..Lvb::default() }
}

struct Server {
    ptlrpc: Ptlrpc,
    locks: LockServer,
    evicted: Vec<EvictReason>,
}

impl Server {
    fn drain(&mut self, below: &mut Below<'_>) {
        while let Some(event) = self.ptlrpc.poll_event() {
            let rpc = &mut self.ptlrpc.rpc(below);
            match event {
                Event::Served(served) => {
                    // As targets do: what is known is not read again.
                    let (name, space) = (LockServer::resource_of(&served), self.locks.space());
                    let known = name.is_some_and(|name| space.value(&name).is_some());
                    let value = (!known).then(|| Value::Object(lvb(SIZE)));
                    self.locks.serve(&served, Ok(value), rpc);
                }
                Event::Joining { export, .. } => rpc.admit(export, Ok(())),
                Event::Disconnected { export, .. } => {
                    self.locks.left(export, rpc);
                    rpc.left(export);
                }
                Event::Evicted { export, reason, .. } => {
                    self.evicted.push(reason);
                    self.locks.left(export, rpc);
                }
                Event::Ended { call, result } => {
                    self.locks.called(call, &result, rpc);
                }
                Event::CalledAgain { call } => {
                    self.locks.called_again(call, rpc);
                }
                _ => {}
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
        self.locks.handle_timeout(&mut self.ptlrpc.rpc(below), |_, _, _| false);
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.ptlrpc.poll_timeout(), self.locks.poll_timeout()].into_iter().flatten().min()
    }
}

/// Clients that share a node.
struct Clients {
    ptlrpc: Ptlrpc,
    locks: LockClient,
    seen: Vec<(ImportId, LockEvent)>,
    /// Calls that the tests have made themselves.
    ended: Vec<(CallId, Result<Reply, CallError>)>,
}

impl Clients {
    fn drain(&mut self, below: &mut Below<'_>) {
        while let Some(event) = self.ptlrpc.poll_event() {
            let event = self.locks.event(event, &mut self.ptlrpc.rpc(below));
            if let Some(Event::Ended { call, result }) = event {
                self.ended.push((call, result));
            }
        }
        self.seen.extend(core::iter::from_fn(|| self.locks.poll_event()));
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
        | ConnectFlags::FLAGS2;
    let flags2 = ConnectFlags2::REP_MBITS | ConnectFlags2::LOCK_CONVERT;
    ConnectData { flags, flags2, ..ConnectData::default() }
}

fn ptlrpc_of(seed: u64, tunables: &Tunables) -> Ptlrpc {
    let wall = Duration::from_secs(1_795_000_000 + seed * 1000);
    Ptlrpc::new(Config { seed, wall, tunables: tunables.clone() })
}

struct Bench {
    world: World,
    server: UpperId,
    clients: UpperId,
}

impl Bench {
    fn new() -> Self {
        let tunables = Tunables::default();
        let config = SpaceConfig { enqueue_min: tunables.ldlm_enqueue_min, ..SpaceConfig::new(1) };
        let locks = LockServer::new(config, Values::Objects, false);
        let mut world = World::default();
        let server = Server { ptlrpc: ptlrpc_of(1, &tunables), locks, evicted: Vec::new() };
        let server = world.add(Box::new(server));
        world.with(server, |server: &mut Server, below| {
            let rpc = &mut server.ptlrpc.rpc(below);
            let cancels = (Portal::LDLM_CANCEL, Portal::LDLM_CANCEL_REPLY);
            for (name, ports) in [("target", ImportKind::Osc.portals()), ("cancel", cancels)] {
                let (request, reply) = (ports.0.0, ports.1.0);
                rpc.serve(ServiceConfig::new(name, request, reply, Portal::OST_BULK.0)).unwrap();
            }
            let (uuid, past) = ("objects".to_owned(), Past::default());
            let flags2 = data().flags2 | ConnectFlags2::LOCK_CONTENTION;
            let offer = ConnectData { flags2, ..data() };
            rpc.add_target(TargetConfig { uuid, offer, replayable: true, past }).unwrap();
            server.drain(below);
        });
        let config =
            ClientConfig { seed: 2, tunables: tunables.clone(), cache: Default::default() };
        let clients = Clients {
            ptlrpc: ptlrpc_of(2, &tunables),
            locks: LockClient::new(config),
            seen: Vec::new(),
            ended: Vec::new(),
        };
        let clients = world.add(Box::new(clients));
        Self { world, server, clients }
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

    fn client(&mut self, name: &str) -> ImportId {
        self.client_with(name, data())
    }

    /// A client that wants this of the server.
    fn client_with(&mut self, name: &str, wanted: ConnectData) -> ImportId {
        let config = ImportConfig {
            kind: ImportKind::Osc,
            target: "objects".to_owned(),
            client: name.to_owned(),
            nids: vec![Nid::LOOPBACK],
            wanted,
        };
        self.clients(|clients, below| {
            let rpc = &mut clients.ptlrpc.rpc(below);
            let import = rpc.import(config).unwrap();
            clients.locks.open(import, rpc).unwrap();
            import
        })
    }

    fn secs(&mut self, secs: u64) {
        self.world.pass(Duration::from_secs(secs));
    }

    fn seen(&mut self) -> Vec<(ImportId, LockEvent)> {
        self.clients(|clients, _| core::mem::take(&mut clients.seen))
    }

    fn ask(&mut self, import: ImportId, ask: &Ask) -> HoldId {
        self.clients(|clients, below| {
            clients.locks.enqueue(import, ask, &mut clients.ptlrpc.rpc(below)).unwrap()
        })
    }

    /// The lock of a hold that is granted at once.
    fn granted(&mut self, import: ImportId, ask: &Ask) -> (HoldId, LockId) {
        let hold = self.ask(import, ask);
        let lock = self.seen().into_iter().find_map(|(_, event)| match event {
            LockEvent::Granted { hold: of, lock, .. } if of == hold => Some(lock),
            _ => None,
        });
        (hold, lock.unwrap_or_else(|| panic!("{ask:?} is not granted")))
    }

    /// Sends a request of the test's own.
    fn call(&mut self, import: ImportId, opcode: Opcode, buffers: Buffers) -> CallId {
        let mut call =
            Call::new(opcode, buffers).answered_by(&[LockReply::LEN as u32, Lvb::LEN as u32]);
        call.modifies = false;
        self.clients(|clients, below| clients.ptlrpc.rpc(below).call(import, call).unwrap())
    }

    /// How a request has ended, if it has.
    fn ended(&mut self, call: CallId) -> Option<Result<Reply, CallError>> {
        self.clients(|clients, _| {
            let at = clients.ended.iter().position(|(of, _)| *of == call)?;
            Some(clients.ended.swap_remove(at).1)
        })
    }

    fn answer(&mut self, glimpse: GlimpseId, size: Option<u64>) {
        let bytes = size.map(|size| lvb(size).to_bytes(ByteOrder::Little));
        self.clients(|clients, below| {
            clients.locks.glimpsed(glimpse, bytes, &mut clients.ptlrpc.rpc(below));
        });
    }

    /// Cookie of the server for a lock.
    fn cookie(&mut self, import: ImportId, lock: LockId) -> u64 {
        let views = self.clients(|clients, _| clients.locks.views(import));
        views.iter().find(|view| view.lock == lock).unwrap().remote
    }
}

fn whole(mode: Mode) -> Ask {
    let part = Policy::Extent { start: 0, end: u64::MAX, gid: 0 };
    Ask { flags: LockFlags::NO_EXPANSION, ..Ask::new(OBJECT, mode, part) }
}

/// A lock request without handles.
fn request(flags: LockFlags, handle: u64, desc: LockDesc) -> Vec<u8> {
    LockRequest::new(flags, 1, desc, &[handle]).to_bytes(ByteOrder::Little)
}
