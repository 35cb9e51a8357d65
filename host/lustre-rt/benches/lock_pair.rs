//! What a lock by name costs beside two empty calls: two stacks in one thread, turned in turns, with
//! loopback TCP between them, a client of locks on one and a lock target on the other.
//!
//! `cargo bench -p lustre-rt --bench lock_pair -- [WINDOW] [BATCHES]` takes and gives back locks of
//! different names, WINDOW of them under way (256 if not given), in turns with twice as many empty
//! calls, and prints nanoseconds of both sides together and the ratio of the rates. A call goes to the
//! node of the target and is answered without a look at it, by way of the same layers. Instructions,
//! which do not depend on what else the machine does:
//! `valgrind --tool=callgrind --toggle-collect='lock_pair::Pair::lock_batch' target/release/deps/lock_pair-…
//! 256 2`, by the 2560 locks of a batch; `lock_pair::Pair::call_batch` for the 5120 calls of one.
#![allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]

use core::time::Duration;
use std::env;
use std::time::Instant;

use ldlm::Mode;
use ldlm::client::{Ask, CacheLimits, HoldId, LockClient, LockEvent};
use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event as LnetEvent, NetTunables, Report};
use lnet_rt::{NodeBuilder, SockConfig, Stack, TcpNi, Wait};
use lnet_types::{Instant as Time, Net, Nid};
use lustre_rt::{
    Answer, Call, ConnectData, ConnectFlags, ImportConfig, ImportId, ImportKind, Kind, Opcode,
    Past, Portal, Ptlrpc, ServiceConfig, TargetConfig,
};
use lustre_target::lock::wire::resource_of;
use lustre_target::{Commit, Lock, MemoryStore, Targets, start};
use lustre_wire::Buffers;
use lustre_wire::ldlm::{END_OF_FILE, LockFlags, Policy};
use ptlrpc::{Config, Event, Tunables};

const PORT: u16 = 7989;
const EMPTY: Opcode = Opcode(20_000);
/// Locks of a batch.
const BATCH: usize = 2560;
/// The lock target, and one that answers calls.
const LOCKS: &str = "locks";
const CALLS: &str = "calls";

fn nid(n: u8) -> Nid {
    Nid::from_ip(Net::TCP, [127, 75, 0, n].into())
}

/// Both ends of locks, targets, and a target whose calls do nothing.
struct Side {
    ptlrpc: Ptlrpc,
    locks: LockClient,
    targets: Targets,
    /// Empty calls that have ended.
    ended: usize,
    granted: Vec<HoldId>,
    /// Locks that are given back.
    gone: usize,
}

impl Side {
    fn new(seed: u64) -> Self {
        let tunables = Tunables::default();
        let client = ldlm::client::Config {
            seed,
            tunables: tunables.clone(),
            cache: CacheLimits::default(),
        };
        let wall = Duration::from_secs(1_700_000_000);
        Self {
            ptlrpc: Ptlrpc::new(Config { seed, wall, tunables }),
            locks: LockClient::new(client),
            targets: Targets::default(),
            ended: 0,
            granted: Vec::new(),
            gone: 0,
        }
    }

    fn drain(&mut self, below: &mut Below<'_>) {
        loop {
            while let Some(event) = self.ptlrpc.poll_event() {
                let rpc = &mut self.ptlrpc.rpc(below);
                let Some(event) = self.locks.event(event, rpc) else { continue };
                match self.targets.event(event, rpc) {
                    Some(Event::Ended { result, .. }) => {
                        result.unwrap();
                        self.ended += 1;
                    }
                    Some(Event::Served(served)) => rpc.reply(served.id, Answer::default()),
                    Some(Event::Joining { export, .. }) => rpc.admit(export, Ok(())),
                    _ => {}
                }
            }
            while let Some((_, event)) = self.locks.poll_event() {
                match event {
                    LockEvent::Granted { hold, .. } => self.granted.push(hold),
                    LockEvent::Gone { .. } => self.gone += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert!(self.targets.poll(&mut self.ptlrpc.rpc(below)).is_none(), "a store failed");
            if !self.ptlrpc.has_event() {
                return;
            }
        }
    }
}

impl Upper for Side {
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
        self.locks.handle_timeout(&mut self.ptlrpc.rpc(below));
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let due = [self.ptlrpc.poll_timeout(), self.targets.poll_timeout()];
        due.into_iter().chain([self.locks.poll_timeout()]).flatten().min()
    }
}

fn stack(n: u8) -> (Stack, UpperId) {
    let mut stack = NodeBuilder::new().seed(n.into()).build().unwrap();
    stack.enable_tcp(SockConfig::on_port(PORT)).unwrap();
    let tunables = NetTunables { peer_credits: 1024, credits: 4096, ..NetTunables::SOCK };
    let ni = TcpNi { tunables, conns_per_peer: Some(1), ..TcpNi::new(nid(n)) };
    stack.add_tcp_ni(ni).unwrap();
    let upper = stack.add_upper(Box::new(Side::new(n.into()))).unwrap();
    (stack, upper)
}

/// The server's targets and services.
fn serve(side: &mut Side, below: &mut Below<'_>) {
    let mut rpc = side.ptlrpc.rpc(below);
    let kind = Lock::new();
    let offer = kind.offer();
    let target = |uuid: &str, replayable| TargetConfig {
        uuid: uuid.to_owned(),
        offer,
        replayable,
        past: Past::default(),
    };
    let mut store = MemoryStore::new(Commit::AtOnce, 1 << 20);
    let begun = start(&mut store, kind.name()).unwrap();
    let config = target(LOCKS, true);
    side.targets.add(config, Box::new(kind), Box::new(store), begun, &mut rpc).unwrap();
    rpc.add_target(target(CALLS, false)).unwrap();
    let portals = [
        (Portal::OST_REQUEST, Portal::OSC_REPLY),
        (Portal::LDLM_CANCEL, Portal::LDLM_CANCEL_REPLY),
    ];
    for (request, reply) in portals {
        let service = ServiceConfig::new("pair", request.0, reply.0, Portal::OST_BULK.0);
        rpc.serve(ServiceConfig { slots: 1024, ..service }).unwrap();
    }
}

/// What is asked for, of the name of this number, as programs ask.
fn ask(n: usize) -> Ask {
    let name = format!("jobs/{n}");
    let whole = Policy::Extent { start: 0, end: END_OF_FILE, gid: 0 };
    let flags = LockFlags::NO_EXPANSION;
    let resource = resource_of(&name).unwrap();
    Ask { flags, beside: Buffers::from([name]), ..Ask::new(resource, Mode::Ex, whole) }
}

struct Pair {
    client: (Stack, UpperId),
    server: (Stack, UpperId),
    locks: ImportId,
    calls: ImportId,
    asks: Vec<Ask>,
}

impl Pair {
    fn new(window: usize) -> Self {
        let (mut client, mut server) = (stack(1), stack(2));
        server.0.with_upper(server.1, serve).unwrap();
        let offer = Lock::new().offer();
        let wanted = ConnectData { flags: offer.flags | ConnectFlags::LRU_RESIZE, ..offer };
        let [locks, calls] = [LOCKS, CALLS].map(|target| {
            let import = client.0.with_upper(client.1, |side: &mut Side, below| {
                side.ptlrpc.rpc(below).import(ImportConfig {
                    kind: ImportKind::Osc,
                    target: target.to_owned(),
                    client: "pair-client".to_owned(),
                    nids: vec![nid(2)],
                    wanted,
                })
            });
            import.unwrap().unwrap()
        });
        client.0.with_upper(client.1, |side: &mut Side, below| {
            side.locks.open(locks, &mut side.ptlrpc.rpc(below)).unwrap();
        });
        Self { client, server, locks, calls, asks: (0..window).map(ask).collect() }
    }

    /// Something of the client's side.
    fn client<R>(&mut self, f: impl FnOnce(&mut Side, &mut Below<'_>) -> R) -> R {
        self.client.0.with_upper(self.client.1, f).unwrap()
    }

    #[inline(never)]
    fn client_turn(&mut self) {
        self.client.0.turn(Wait::Spin);
    }

    #[inline(never)]
    fn server_turn(&mut self) {
        self.server.0.turn(Wait::Spin);
    }

    /// Turns until the client's side has as much as `n` of something.
    fn turns(&mut self, n: usize, so_far: impl Fn(&Side) -> usize) {
        while self.client(|side, _| so_far(side)) < n {
            self.client_turn();
            self.server_turn();
        }
    }

    fn calls(&mut self, n: usize) {
        let (import, window) = (self.calls, self.asks.len());
        for _ in 0..n / window {
            for _ in 0..window {
                self.client(|side, below| {
                    side.ptlrpc.rpc(below).call(import, Call::new(EMPTY, Buffers::new())).unwrap();
                    side.drain(below);
                });
            }
            self.turns(window, |side| side.ended);
            self.client(|side, _| side.ended = 0);
        }
    }

    fn locks(&mut self, n: usize) {
        let (import, window) = (self.locks, self.asks.len());
        for _ in 0..n / window {
            for at in 0..window {
                let ask = self.asks.get(at).cloned().unwrap();
                self.client(|side, below| {
                    side.locks.enqueue(import, &ask, &mut side.ptlrpc.rpc(below)).unwrap();
                    side.drain(below);
                });
            }
            self.turns(window, |side| side.granted.len());
            for hold in self.client(|side, _| core::mem::take(&mut side.granted)) {
                self.client(|side, below| {
                    side.locks.release(import, hold, false, &mut side.ptlrpc.rpc(below));
                    side.drain(below);
                });
            }
            self.turns(window, |side| side.gone);
            self.client(|side, _| side.gone = 0);
        }
    }

    #[inline(never)]
    fn call_batch(&mut self) {
        self.calls(2 * BATCH);
    }

    #[inline(never)]
    fn lock_batch(&mut self) {
        self.locks(BATCH);
    }

    /// Requests that the client has sent.
    fn sent(&mut self) -> u64 {
        self.client(|side, _| side.ptlrpc.client_stats().sent)
    }
}

/// Nanoseconds of a run, by how many pairs of requests it has.
fn timed(run: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    run();
    begin.elapsed().as_nanos() as f64 / BATCH as f64
}

fn median(took: &mut [f64]) -> f64 {
    took.sort_by(f64::total_cmp);
    took.get(took.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    // Cargo adds an option of its own.
    let args: Vec<String> = env::args().skip(1).filter(|a| a != "--bench").collect();
    let window: usize = args.first().map_or(256, |n| n.parse().unwrap());
    assert!(window > 0 && BATCH.is_multiple_of(window), "window {window}: must divide {BATCH}");
    let batches = args.get(1).map_or(30, |n| n.parse().unwrap());
    let mut pair = Pair::new(window);
    // Connections, discovery, the connects; tables as large as they get.
    pair.calls(window);
    pair.locks(window);
    let before = pair.sent();
    let (mut calls, mut locks) = (Vec::new(), Vec::new());
    for _ in 0..batches {
        calls.push(timed(|| pair.call_batch()));
        locks.push(timed(|| pair.lock_batch()));
    }
    let sent = pair.sent() - before;
    let (calls, locks) = (median(&mut calls), median(&mut locks));
    println!(
        "{window} under way: enqueue and cancel {locks:.0} ns, two empty calls {calls:.0} ns: {:.2} of their \
         rate (medians of {batches} batches of {BATCH}; {:.2} requests a pair)",
        calls / locks,
        sent as f64 / (2 * batches * BATCH) as f64
    );
}
