//! Two stacks in one thread, turned in turns, with loopback TCP between them and a request layer on
//! each: what an empty call costs on both sides, without a second processor, a wake-up or another
//! process.
//!
//! `cargo bench -p lustre-rt --bench rpc_pair -- MODE [BATCHES]`, where MODE is `call` (256 calls
//! under way) or `latency` (one). Prints nanoseconds per call, for both sides together. Instructions,
//! which do not depend on what else the machine does:
//! `valgrind --tool=callgrind --toggle-collect='rpc_pair::Pair::batch' target/release/deps/rpc_pair-…
//! call 10`, by the 2560 calls of a batch; `client_turn`, `client_call` and `server_turn` are the
//! shares of the sides.
#![allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]

use core::time::Duration;
use std::env;
use std::time::Instant;

use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event as LnetEvent, NetTunables, Report};
use lnet_rt::{NodeBuilder, SockConfig, Stack, TcpNi, Wait};
use lnet_types::{Instant as Time, Net, Nid};
use lustre_rt::{
    Answer, Buffers, Call, ConnectData, ConnectFlags, ConnectFlags2, ImportConfig, ImportKind,
    Opcode, ServiceConfig, TargetConfig,
};
use ptlrpc::{Config, Event, ImportId, Ptlrpc};

const PORT: u16 = 7988;
const OPCODE: Opcode = Opcode(20_000);
const WINDOW: usize = 256;
const TARGET: &str = "pair";

fn nid(n: u8) -> Nid {
    Nid::from_ip(Net::TCP, [127, 74, 0, n].into())
}

fn granted() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    }
}

/// A request layer that answers each request at once, and counts the calls that have ended.
struct Side {
    ptlrpc: Ptlrpc,
    ended: usize,
}

impl Side {
    fn new(seed: u64) -> Self {
        let tunables = ptlrpc::Tunables::default();
        Self {
            ptlrpc: Ptlrpc::new(Config {
                seed,
                wall: Duration::from_secs(1_700_000_000),
                tunables,
            }),
            ended: 0,
        }
    }

    fn drain(&mut self, below: &mut Below<'_>) {
        while let Some(event) = self.ptlrpc.poll_event() {
            match event {
                Event::Ended { result, .. } => {
                    result.unwrap();
                    self.ended += 1;
                }
                Event::Served(served) => {
                    self.ptlrpc.rpc(below).reply(served.id, Answer::default());
                }
                _ => {}
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
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.ptlrpc.poll_timeout()
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

struct Pair {
    client: (Stack, UpperId),
    import: ImportId,
    server: (Stack, UpperId),
}

impl Pair {
    fn new() -> Self {
        let (mut client, mut server) = (stack(1), stack(2));
        let served = server.0.with_upper(server.1, |side: &mut Side, below| {
            let (request, reply) = ImportKind::Osc.portals();
            let mut rpc = side.ptlrpc.rpc(below);
            let (uuid, past) = (TARGET.to_owned(), Default::default());
            let target = TargetConfig { uuid, offer: granted(), replayable: false, past };
            rpc.add_target(target).unwrap();
            let service = ServiceConfig::new(TARGET, request.0, reply.0, 8);
            rpc.serve(ServiceConfig { slots: 1024, ..service }).unwrap();
        });
        served.unwrap();
        let import = client.0.with_upper(client.1, |side: &mut Side, below| {
            side.ptlrpc.rpc(below).import(ImportConfig {
                kind: ImportKind::Osc,
                target: TARGET.to_owned(),
                client: "pair-client".to_owned(),
                nids: vec![nid(2)],
                wanted: granted(),
            })
        });
        Self { client, import: import.unwrap().unwrap(), server }
    }

    #[inline(never)]
    fn client_call(&mut self, call: Call) {
        let import = self.import;
        let begun = self.client.0.with_upper(self.client.1, |side: &mut Side, below| {
            side.ptlrpc.rpc(below).call(import, call)
        });
        begun.unwrap().unwrap();
    }

    #[inline(never)]
    fn client_turn(&mut self) {
        self.client.0.turn(Wait::Spin);
    }

    #[inline(never)]
    fn server_turn(&mut self) {
        self.server.0.turn(Wait::Spin);
    }

    #[inline(never)]
    fn batch(&mut self, window: usize, rounds: usize) {
        for _ in 0..rounds {
            self.round(window);
        }
    }

    /// So many calls, to their end.
    fn round(&mut self, n: usize) {
        for _ in 0..n {
            self.client_call(Call::new(OPCODE, Buffers::new()));
        }
        let mut ended = 0;
        while ended < n {
            self.client_turn();
            self.server_turn();
            let taken = self
                .client
                .0
                .with_upper(self.client.1, |side: &mut Side, _| core::mem::take(&mut side.ended));
            ended += taken.unwrap();
        }
    }
}

fn main() {
    // Cargo adds an option of its own.
    let args: Vec<String> = env::args().skip(1).filter(|a| a != "--bench").collect();
    let (window, rounds) = match args.first().map_or("call", String::as_str) {
        "call" => (WINDOW, 10),
        "latency" => (1, 1000),
        other => panic!("mode `{other}`: expected call or latency"),
    };
    let batches = args.get(1).map_or(30, |n| n.parse().unwrap());
    let mut pair = Pair::new();
    // Connections, discovery, and the connect.
    for _ in 0..200 {
        pair.round(1);
    }
    pair.round(window);
    let mut took: Vec<f64> = (0..batches)
        .map(|_| {
            let begin = Instant::now();
            pair.batch(window, rounds);
            begin.elapsed().as_nanos() as f64 / (rounds * window) as f64
        })
        .collect();
    took.sort_by(f64::total_cmp);
    let (Some(min), Some(median)) = (took.first(), took.get(took.len() / 2)) else { return };
    println!("{min:.0} ns at least, {median:.0} ns in the median of {batches} batches");
}
