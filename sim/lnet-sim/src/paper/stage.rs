//! The stage of worlds with locks: one server with lock targets, clients on hosts of their own, each with
//! the real lock client and the request layer. What happens is recorded with its time; tables in
//! `locks.rs` ask for it.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ldlm::client::{Ask, CacheLimits, HoldId, LockClient, LockEvent};
use ldlm::space::{Io, Touched};
use ldlm::{Mode, client};
use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event as LnetEvent, Report};
use lnet_types::{Errno, Instant, Nid};
use lustre_target::lock::wire::resource_of;
use lustre_target::{Commit, Cx, Intercepted, Lock, MemoryStore, Targets, start};
use lustre_wire::connect::{ConnectData, ConnectFlags};
use lustre_wire::ldlm::{END_OF_FILE, Policy, ResourceName};
use lustre_wire::{Buffers, ImportKind, Opcode, Portal};
use ptlrpc::{
    Answer, Call, Config, Event, EvictReason, ImportConfig, ImportId, Lose, LoseId, Part, Past,
    Ptlrpc, Served, ServiceConfig, TargetConfig, Tunables,
};

use crate::directory::HostId;
use crate::message::Messages;
use crate::rpc::connect_data;
use crate::sim::Sim;

/// Reads under a lock: the request names the resource.
const READ: Opcode = Opcode(20_490);
/// The server's host; clients follow.
const SERVER: HostId = HostId(0);
const SERVER_NID: &str = "10.0.0.9@tcp";
/// Seconds since 1970 when worlds begin.
const WALL: u64 = 1_795_000_000;
/// The targets.
pub(super) const TARGETS: [&str; 2] = ["a", "b"];

fn ptlrpc(seed: u64, tunables: &Tunables) -> Ptlrpc {
    Ptlrpc::new(Config { seed, wall: Duration::from_secs(WALL + seed), tunables: tunables.clone() })
}

fn wanted() -> ConnectData {
    let plain = connect_data();
    let flags = ConnectFlags::LVB_TYPE | ConnectFlags::CANCELSET | ConnectFlags::LRU_RESIZE;
    ConnectData { flags: plain.flags | flags, ..plain }
}

/// A lock target has something to read.
fn read(lock: &mut Lock, served: Served, cx: &mut Cx<'_, '_, '_>) -> Option<Served> {
    if served.opcode != READ {
        return Some(served);
    }
    let words = served.msg().ok().and_then(|msg| msg.get::<[u64; 4]>(1).ok());
    let io = |words| Io {
        resource: ResourceName { words },
        start: 0,
        end: 4095,
        read: true,
        lock: None,
    };
    match words.map(|words| lock.touch(&served, &io(words), cx.rpc)) {
        None => cx.rpc.refuse(served.id, Errno::EPROTO),
        Some(Touched::NoLock) => cx.rpc.refuse(served.id, Errno::ESTALE),
        Some(_) => cx.rpc.reply(served.id, Answer::default()),
    }
    None
}

/// An eviction.
#[derive(Clone, Debug)]
pub(super) struct Eviction {
    pub(super) at: Instant,
    pub(super) target: String,
    pub(super) reason: EvictReason,
}

/// The server.
struct Server {
    ptlrpc: Ptlrpc,
    targets: Targets,
    evicted: Vec<Eviction>,
    /// When callbacks that ask for a lock have left, copies included.
    called: Vec<Instant>,
}

impl Server {
    fn begin(&mut self, below: &mut Below<'_>) -> Result<(), Errno> {
        let rpc = &mut self.ptlrpc.rpc(below);
        let bulk = Portal::OST_BULK.0;
        let (request, reply) = ImportKind::Osc.portals();
        rpc.serve(ServiceConfig::new("targets", request.0, reply.0, bulk))?;
        let (request, reply) = (Portal::LDLM_CANCEL.0, Portal::LDLM_CANCEL_REPLY.0);
        rpc.serve(ServiceConfig::new("cancel", request, reply, bulk))?;
        for uuid in TARGETS {
            let mut store = MemoryStore::new(Commit::AtOnce, 1 << 20);
            let began = start(&mut store, "lock").map_err(|_| Errno::EIO)?;
            let config = TargetConfig {
                uuid: uuid.to_owned(),
                offer: wanted(),
                replayable: true,
                past: Past::default(),
            };
            let kind = Box::new(Intercepted::new(Lock::new(), read));
            self.targets.add(config, kind, Box::new(store), began, rpc)?;
        }
        self.drain(below);
        Ok(())
    }

    fn drain(&mut self, below: &mut Below<'_>) {
        loop {
            while let Some(event) = self.ptlrpc.poll_event() {
                let event = self.targets.event(event, &mut self.ptlrpc.rpc(below));
                if let Some(Event::Evicted { target, reason, .. }) = event {
                    let target = self.targets.uuid(target).unwrap_or_default().to_owned();
                    self.evicted.push(Eviction { at: below.now(), target, reason });
                }
            }
            // A store in memory does not fail.
            let _ = self.targets.poll(&mut self.ptlrpc.rpc(below));
            if !self.ptlrpc.has_event() {
                break;
            }
        }
        let locks = self.targets.lockers().filter_map(|(_, kind)| kind.locks());
        let called: u64 = locks.map(|locks| locks.stats().blocking + locks.stats().again).sum();
        while (self.called.len() as u64) < called {
            self.called.push(below.now());
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

    fn report(&mut self, report: &Report, below: &mut Below<'_>) {
        self.ptlrpc.report(report, below);
        self.drain(below);
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.targets.handle_timeout(&mut self.ptlrpc.rpc(below));
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.ptlrpc.poll_timeout(), self.targets.poll_timeout()].into_iter().flatten().min()
    }
}

/// A client with an import of each target.
struct Client {
    name: String,
    ptlrpc: Ptlrpc,
    locks: LockClient,
    imports: Vec<ImportId>,
    /// A hold goes as soon as another client wants its lock.
    polite: bool,
    granted: BTreeMap<HoldId, Instant>,
}

impl Client {
    fn begin(&mut self, server: Nid, below: &mut Below<'_>) -> Result<(), Errno> {
        for target in TARGETS {
            let config = ImportConfig {
                kind: ImportKind::Osc,
                target: target.to_owned(),
                client: self.name.clone(),
                nids: vec![server],
                wanted: wanted(),
            };
            let rpc = &mut self.ptlrpc.rpc(below);
            let import = rpc.import(config).map_err(|_| Errno::EINVAL)?;
            rpc.connect(import);
            self.locks.open(import, rpc)?;
            self.imports.push(import);
        }
        self.drain(below);
        Ok(())
    }

    fn drain(&mut self, below: &mut Below<'_>) {
        while self.ptlrpc.has_event() || self.took(below) {
            while let Some(event) = self.ptlrpc.poll_event() {
                let _ = self.locks.event(event, &mut self.ptlrpc.rpc(below));
            }
        }
    }

    /// Takes what the locks say; whether they said something.
    fn took(&mut self, below: &mut Below<'_>) -> bool {
        let mut some = false;
        while let Some((import, event)) = self.locks.poll_event() {
            some = true;
            match event {
                LockEvent::Granted { hold, .. } => {
                    self.granted.insert(hold, below.now());
                }
                LockEvent::CalledBack { holds, .. } if self.polite => {
                    for hold in holds {
                        self.locks.release(import, hold, false, &mut self.ptlrpc.rpc(below));
                    }
                }
                _ => {}
            }
        }
        some
    }
}

impl Upper for Client {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.drain(below);
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, report: &Report, below: &mut Below<'_>) {
        self.ptlrpc.report(report, below);
        self.drain(below);
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.locks.handle_timeout(&mut self.ptlrpc.rpc(below));
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.ptlrpc.poll_timeout(), self.locks.poll_timeout()].into_iter().flatten().min()
    }
}

/// A client of a stage, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who(pub(super) u32);

/// A world with a server and clients, which has come up.
pub(super) struct LockStage {
    sim: Sim<Messages>,
    server: UpperId,
    clients: Vec<UpperId>,
}

impl LockStage {
    /// So many clients, of which the last one asks and the others hold; faults as a scenario has them,
    /// on `holder-1` and further. `None`: the world can't be.
    pub(super) fn new(holders: u32, tunables: &Tunables, faults: &str) -> Option<Self> {
        let text = format!(
            r#"
name = "paper"
duration = "9000s"
profile = "documents"
[[net]]
name = "tcp"
latency = "100us"
[[node]]
name = "server"
rails = ["{SERVER_NID}"]
[[node]]
name = "holder"
count = {holders}
rails = ["tcp"]
[[node]]
name = "asker"
rails = ["tcp"]
{faults}
"#
        );
        // The text is ours; a test plays each.
        let scenario = lnet_scenario::parse("paper", &text).ok()?;
        let mut sim = Sim::new(Arc::new(scenario), Some(1), Messages::new());
        let theirs = tunables.clone();
        let server = move |life: u32| -> Box<dyn Upper> {
            Box::new(Server {
                ptlrpc: ptlrpc(life.into(), &theirs),
                targets: Targets::default(),
                evicted: Vec::new(),
                called: Vec::new(),
            })
        };
        let server = sim.stand(SERVER, Box::new(server))?;
        sim.with_upper(SERVER, server, Server::begin)?.ok()?;
        let nid = SERVER_NID.parse().ok()?;
        let mut clients = Vec::new();
        for n in 1..=holders + 1 {
            let ours = tunables.clone();
            let client = move |life: u32| -> Box<dyn Upper> {
                let seed = u64::from(n) * 1000 + u64::from(life);
                let cache = CacheLimits::default();
                let config = client::Config { seed, tunables: ours.clone(), cache };
                Box::new(Client {
                    name: format!("client-{n}"),
                    ptlrpc: ptlrpc(seed, &ours),
                    locks: LockClient::new(config),
                    imports: Vec::new(),
                    polite: true,
                    granted: BTreeMap::new(),
                })
            };
            let id = sim.stand(HostId(n), Box::new(client))?;
            sim.with_upper(HostId(n), id, |c: &mut Client, below| c.begin(nid, below))?.ok()?;
            clients.push(id);
        }
        let mut stage = Self { sim, server, clients };
        stage.until(5.0);
        Some(stage)
    }

    /// The client that asks.
    pub(super) fn asker(&self) -> Who {
        Who(self.clients.len() as u32)
    }

    /// The time by the hosts' clocks, which is that of all records.
    pub(super) fn now(&mut self) -> Instant {
        self.server(|_, below| below.now()).unwrap_or(Instant::ZERO)
    }

    /// Plays until this second of the world.
    pub(super) fn until(&mut self, second: f64) {
        // No observer is there to object.
        let _ = self.sim.run_until(Instant::ZERO + Duration::from_secs_f64(second));
    }

    /// Plays so many seconds more.
    pub(super) fn pass(&mut self, seconds: f64) {
        let now = self.sim.view().now.saturating_since(Instant::ZERO);
        self.until(now.as_secs_f64() + seconds);
    }

    fn server<R>(&mut self, f: impl FnOnce(&mut Server, &mut Below<'_>) -> R) -> Option<R> {
        self.sim.with_upper(SERVER, self.server, f)
    }

    fn client<R>(
        &mut self,
        who: Who,
        f: impl FnOnce(&mut Client, &mut Below<'_>) -> R,
    ) -> Option<R> {
        let id = *self.clients.get(who.0 as usize - 1)?;
        self.sim.with_upper(HostId(who.0), id, |client: &mut Client, below| {
            let done = f(client, below);
            client.drain(below);
            done
        })
    }

    /// Whether a client gives a lock back when it is called back.
    pub(super) fn polite(&mut self, who: Who, polite: bool) {
        self.client(who, |client, _| client.polite = polite);
    }

    /// Asks for a lock of a target, by the target's place.
    pub(super) fn ask(
        &mut self,
        who: Who,
        target: usize,
        name: &str,
        mode: Mode,
    ) -> Option<HoldId> {
        let resource = resource_of(name)?;
        let policy = Policy::Extent { start: 0, end: END_OF_FILE, gid: 0 };
        let ask = Ask { beside: Buffers::from([name]), ..Ask::new(resource, mode, policy) };
        self.client(who, |client, below| {
            let import = *client.imports.get(target)?;
            client.locks.enqueue(import, &ask, &mut client.ptlrpc.rpc(below)).ok()
        })?
    }

    /// When a hold was granted.
    pub(super) fn granted(&mut self, who: Who, hold: HoldId) -> Option<Instant> {
        self.client(who, |client, _| client.granted.get(&hold).copied())?
    }

    /// Gives a hold back.
    pub(super) fn release(&mut self, who: Who, target: usize, hold: HoldId) {
        self.client(who, |client, below| {
            let import = *client.imports.get(target)?;
            client.locks.release(import, hold, false, &mut client.ptlrpc.rpc(below));
            Some(())
        });
    }

    /// Reads under a lock of the first target.
    pub(super) fn read(&mut self, who: Who, name: &str) {
        let Some(resource) = resource_of(name) else { return };
        let call =
            Call { modifies: false, ..Call::new(READ, Buffers::new().layout(&resource.words)) };
        self.client(who, |client, below| {
            let import = *client.imports.first()?;
            client.ptlrpc.rpc(below).call(import, call).ok()
        });
    }

    /// From now on the server loses so many callbacks that ask for a lock, or their replies.
    pub(super) fn lose(&mut self, part: Part, count: u32) -> Option<LoseId> {
        let lose = Lose { opcode: Some(Opcode::LDLM_BL_CALLBACK), part, count };
        self.server(|server, below| server.ptlrpc.rpc(below).lose(lose))?.ok()
    }

    /// It loses them no more.
    pub(super) fn mend(&mut self, rule: LoseId) {
        self.server(|server, below| server.ptlrpc.rpc(below).mend(rule));
    }

    /// Evictions up to now.
    pub(super) fn evicted(&mut self) -> Vec<Eviction> {
        self.server(|server, _| server.evicted.clone()).unwrap_or_default()
    }

    /// When callbacks that ask for a lock have left.
    pub(super) fn called(&mut self) -> Vec<Instant> {
        self.server(|server, _| server.called.clone()).unwrap_or_default()
    }

    /// The server learns that a client gives locks back soon: its timer is as short as it may be
    /// (L-47).
    pub(super) fn teach(&mut self, who: Who) -> Option<()> {
        let asker = self.asker();
        self.polite(who, false);
        let first = self.ask(who, 0, "lesson", Mode::Ex)?;
        self.pass(1.0);
        let second = self.ask(asker, 0, "lesson", Mode::Ex)?;
        self.pass(2.0);
        self.release(who, 0, first);
        self.pass(1.0);
        self.granted(asker, second)?;
        self.release(asker, 0, second);
        self.pass(1.0);
        self.polite(who, true);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One way between hosts of a stage.
    const MESSAGE: Duration = Duration::from_micros(100);

    #[test]
    fn contended_lock_changes_hands_in_at_most_six_message_times() {
        let mut stage = LockStage::new(1, &Tunables::default(), "").unwrap();
        let (holder, asker) = (Who(1), stage.asker());
        stage.ask(holder, 0, "page", Mode::Pw).unwrap();
        stage.pass(1.0);
        // To and fro: each client gives the lock back as soon as the other one asks.
        for turn in 0..8 {
            let who = if turn % 2 == 0 { asker } else { holder };
            let asked = stage.now();
            let hold = stage.ask(who, 0, "page", Mode::Pw).unwrap();
            stage.pass(1.0);
            let took = stage.granted(who, hold).unwrap().saturating_since(asked);
            // A request, a callback, a cancel and a completion; less is no conversation.
            assert!((MESSAGE * 4..=MESSAGE * 6).contains(&took), "turn {turn}: {took:?}");
        }
    }
}
