//! The bench: a world whose protocols hold one `Ptlrpc` each, and a net that loses what a test wants
//! lost.

use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::collections::VecDeque;

use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event as LnetEvent, Report, Transmit};
use lnet_types::{Errno, Instant, IoVec, Nid};
use lnet_wire::Kind;
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::{Buffers, ImportKind, Opcode, Portal};

use super::store::Store;
use crate::world::World;
use crate::{
    Answer, Call, CallError, CallId, Config, Event, ImportConfig, ImportId, ImportState, Past,
    Ptlrpc, Reply, Rpc, Served, ServiceConfig, TargetConfig, TargetId, Tunables,
};

/// An operation that changes something, of no kind that Lustre knows.
pub(super) const APPEND: Opcode = Opcode(20_000);
/// One that changes nothing.
pub(super) const ECHO: Opcode = Opcode(20_001);

/// What a server's program does with requests.
pub(super) type Program = Box<dyn FnMut(&mut Rpc<'_, '_>, Event, &mut Vec<Served>) + Send>;

/// A request layer with a program on it.
pub(super) struct Party {
    pub(super) ptlrpc: Ptlrpc,
    pub(super) events: Vec<Event>,
    /// Requests that the program keeps.
    pub(super) kept: Vec<Served>,
    program: Option<Program>,
    /// What serves instead of a program.
    pub(super) store: Option<Store>,
}

impl Party {
    fn drain(&mut self, below: &mut Below<'_>) {
        while let Some(event) = self.ptlrpc.poll_event() {
            if !matches!(event, Event::Served(_)) {
                self.events.push(event.clone());
            }
            let rpc = &mut self.ptlrpc.rpc(below);
            if let Some(program) = &mut self.program {
                program(rpc, event, &mut self.kept);
            } else if let Some(store) = &mut self.store {
                store.event(rpc, event);
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
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ptlrpc.poll_timeout()
    }
}

pub(super) struct Bench {
    world: World,
    pub(super) client: UpperId,
    pub(super) server: UpperId,
    pub(super) target: TargetId,
    pub(super) import: ImportId,
    /// Parties that there were.
    seeds: u64,
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

fn party(world: &mut World, seed: u64, program: Option<Program>, store: Option<Store>) -> UpperId {
    let tunables = Tunables::default();
    // No two parties share a number, as no two nodes do.
    let ptlrpc = Ptlrpc::new(Config {
        seed,
        wall: Duration::from_secs(1_795_000_000 + seed * 1000),
        tunables,
    });
    let party = Party { ptlrpc, events: Vec::new(), kept: Vec::new(), program, store };
    world.add(Box::new(party))
}

/// What both ends ask for and offer.
pub(super) fn data() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    }
}

/// A program that appends and echoes at once.
pub(super) fn append_log() -> Program {
    let mut log = 0u64;
    Box::new(move |rpc, event, _| {
        if let Event::Joining { export, .. } = event {
            rpc.admit(export, Ok(()));
        } else if let Event::Disconnected { export, .. } = event {
            rpc.left(export);
        } else if let Event::Served(served) = event {
            let buffers = Buffers::new().bytes(served.msg().unwrap().buffer(1).unwrap_or_default());
            match served.opcode {
                APPEND => {
                    log += 1;
                    rpc.reply(served.id, Answer { buffers, transno: log, ..Answer::default() });
                }
                ECHO => rpc.reply(served.id, Answer { buffers, ..Answer::default() }),
                _ => rpc.refuse(served.id, Errno::EOPNOTSUPP),
            }
        }
    })
}

/// A program that keeps all requests, so that the test answers them.
pub(super) fn keeper() -> Program {
    Box::new(|_, event, kept| {
        if let Event::Served(served) = event {
            kept.push(*served);
        }
    })
}

impl Bench {
    pub(super) fn new(program: Program) -> Self {
        Self::with(program, false)
    }

    /// One whose target keeps transactions, or not.
    pub(super) fn with(program: Program, replayable: bool) -> Self {
        let mut bench = Self::of(Some(program), None);
        bench.target = bench.start_server(replayable, Past::default());
        bench
    }

    /// One whose target has a store.
    pub(super) fn stored() -> Self {
        let mut bench = Self::of(None, Some(Store::new()));
        bench.start_stored();
        bench
    }

    fn of(program: Option<Program>, store: Option<Store>) -> Self {
        let mut world = World::default();
        let client = party(&mut world, 1, None, None);
        let server = party(&mut world, 2, program, store);
        let (target, import) = (TargetId::from(0), ImportId::from(0));
        let mut bench = Self { world, client, server, target, import, seeds: 3 };
        bench.import = bench.new_import(client, "client-1");
        bench
    }

    pub(super) fn new_import(&mut self, upper: UpperId, client: &str) -> ImportId {
        self.rpc(upper, |rpc| {
            rpc.import(ImportConfig {
                kind: ImportKind::Osc,
                target: "log-1".to_owned(),
                client: client.to_owned(),
                nids: vec![Nid::LOOPBACK],
                wanted: data(),
            })
        })
        .unwrap()
    }

    /// Another client.
    pub(super) fn new_client(&mut self, name: &str) -> (UpperId, ImportId) {
        self.seeds += 1;
        let upper = party(&mut self.world, self.seeds, None, None);
        (upper, self.new_import(upper, name))
    }

    /// A party's process dies.
    pub(super) fn kill(&mut self, upper: UpperId) {
        self.world.kill(upper);
    }

    /// The target on the store of the server.
    fn start_stored(&mut self) {
        let server = self.server;
        let past = self.party_of(server, |party, _| party.store.as_ref().unwrap().past());
        let target = self.start_server(true, past);
        self.target = target;
        self.party_of(server, |party, _| party.store.as_mut().unwrap().target = target);
    }

    /// The server's process dies, and begins again with what its store has committed.
    pub(super) fn crash_server(&mut self) {
        let store = self.party_of(self.server, |party, _| party.store.take().unwrap());
        self.kill(self.server);
        self.seeds += 1;
        self.server = party(&mut self.world, self.seeds, None, Some(store.crashed()));
        self.start_stored();
        self.settle();
    }

    /// Does something with the server's store.
    pub(super) fn store<R>(&mut self, f: impl FnOnce(&mut Store, &mut Rpc<'_, '_>) -> R) -> R {
        let result = self.party_of(self.server, |party, below| {
            let result = f(party.store.as_mut().unwrap(), &mut party.ptlrpc.rpc(below));
            party.drain(below);
            result
        });
        self.settle();
        result
    }

    /// The target and its service on the upper `server`.
    fn start_server(&mut self, replayable: bool, past: Past) -> TargetId {
        self.rpc(self.server, |rpc| {
            let (request, reply) = ImportKind::Osc.portals();
            rpc.serve(ServiceConfig::new("log", request.0, reply.0, Portal::OST_BULK.0)).unwrap();
            let uuid = "log-1".to_owned();
            rpc.add_target(TargetConfig { uuid, offer: data(), replayable, past }).unwrap()
        })
    }

    /// The server process dies, and starts again without memory of the past.
    pub(super) fn restart_server(&mut self, program: Program) {
        self.kill(self.server);
        self.server = party(&mut self.world, 3, Some(program), None);
        self.target = self.start_server(false, Past::default());
        self.settle();
    }

    /// What a party does with its events.
    pub(super) fn program(&mut self, id: UpperId, program: Program) {
        self.party_of(id, |party, _| party.program = Some(program));
    }

    /// Another protocol in the place of the server.
    pub(super) fn replace_server(&mut self, upper: Box<dyn Upper>) {
        self.kill(self.server);
        self.server = self.world.add(upper);
    }

    /// An upper that is no request layer.
    pub(super) fn upper<T: Upper, R>(
        &mut self,
        id: UpperId,
        f: impl FnOnce(&mut T, &mut Below<'_>) -> R,
    ) -> R {
        self.world.with(id, f)
    }

    /// Calls a request layer as its program.
    pub(super) fn rpc<R>(&mut self, id: UpperId, f: impl FnOnce(&mut Rpc<'_, '_>) -> R) -> R {
        self.party_of(id, |party, below| {
            let result = f(&mut party.ptlrpc.rpc(below));
            party.drain(below);
            result
        })
    }

    pub(super) fn party_of<R>(
        &mut self,
        id: UpperId,
        f: impl FnOnce(&mut Party, &mut Below<'_>) -> R,
    ) -> R {
        self.world.with(id, f)
    }

    /// Begins a call of the client.
    pub(super) fn call(&mut self, call: Call) -> CallId {
        let import = self.import;
        let id = self.rpc(self.client, |rpc| rpc.call(import, call)).unwrap();
        self.settle();
        id
    }

    /// A call with one buffer, which may come back.
    pub(super) fn say(opcode: Opcode, text: &str) -> Call {
        Call::new(opcode, Buffers::new().bytes(text.as_bytes())).answered_by(&[64])
    }

    /// How a call ended, if it has.
    pub(super) fn end_of(&mut self, call: CallId) -> Option<Result<Reply, CallError>> {
        self.end_at(self.client, call)
    }

    /// How a call of some client ended, if it has.
    pub(super) fn end_at(
        &mut self,
        client: UpperId,
        call: CallId,
    ) -> Option<Result<Reply, CallError>> {
        self.party_of(client, |party, _| {
            let mut ends = party.events.iter().filter_map(|event| match event {
                Event::Ended { call: ended, result } if *ended == call => Some(result.clone()),
                _ => None,
            });
            let end = ends.next();
            assert!(ends.next().is_none(), "{call:?} ended twice");
            end
        })
    }

    pub(super) fn states(&mut self) -> Vec<ImportState> {
        self.party_of(self.client, |party, _| {
            let states = party.events.iter().filter_map(|event| match event {
                Event::Import { state, .. } => Some(*state),
                _ => None,
            });
            states.collect()
        })
    }

    /// The client waits for its deadlines, and asks nothing before.
    pub(super) fn without_probes(&mut self) {
        self.party_of(self.client, |party, _| {
            let tunables = party.ptlrpc.tunables().clone();
            party.ptlrpc.set_tunables(Tunables { probes: false, ..tunables });
        });
    }

    /// What the server's program has heard since the last time, but for requests.
    pub(super) fn heard(&mut self) -> Vec<Event> {
        self.party_of(self.server, |party, _| core::mem::take(&mut party.events))
    }

    /// Requests that the program keeps.
    pub(super) fn kept(&mut self) -> Vec<Served> {
        self.party_of(self.server, |party, _| party.kept.clone())
    }

    /// Descriptors that the client still has.
    pub(super) fn client_descriptors(&mut self) -> usize {
        self.party_of(self.client, |party, _| party.ptlrpc.descriptors())
    }

    /// Memory of a program, all zeros.
    pub(super) fn zeroed(&mut self, len: usize) -> IoVec {
        self.heap.memory(vec![0; len])
    }

    /// Memory of a program, filled.
    pub(super) fn memory(&mut self, len: usize, fill: impl Fn(usize) -> u8) -> IoVec {
        self.heap.memory((0..len).map(fill).collect())
    }

    /// Loses messages while `lost` says so, of portals and in order of sending.
    pub(super) fn lose(&mut self, mut lost: impl FnMut(u32, usize) -> bool + 'static) {
        let mut count = VecDeque::from([0usize]);
        self.loses = Some(Box::new(move |t: &Transmit| {
            let Some(portal) = portal_of(t) else { return false };
            count[0] += 1;
            lost(portal, count[0])
        }));
    }
}

/// The portal of a PUT or GET.
fn portal_of(t: &Transmit) -> Option<u32> {
    match t.hdr.kind {
        Kind::Put { portal, .. } | Kind::Get { portal, .. } => Some(portal),
        _ => None,
    }
}
