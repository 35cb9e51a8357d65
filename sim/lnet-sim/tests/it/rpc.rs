//! The request layer on simulated nodes, under faults: each call ends once, what it asks for is
//! executed once, and its answer is its own.

use std::sync::Arc;

use lnet::upper::{Below, Upper};
use lnet::{Event as LnetEvent, Report};
use lnet_scenario::Fidelity;
use lnet_sim::{Bytes, Fabric, HostId, Messages, Sim};
use lnet_types::{Instant, Nid};
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::{ImportKind, Opcode, Portal};
use ptlrpc::{
    Answer, Call, Config, Event, ImportConfig, ImportId, Past, Ptlrpc, ServiceConfig, TargetConfig,
};

const APPEND: Opcode = Opcode(20_000);
/// Calls of a client under way at a time.
const WINDOW: usize = 4;

fn world(faults: &str, server: &str) -> String {
    format!(
        r#"
name = "rpc"
duration = "400s"
[[net]]
name = "tcp"
latency = "50ms"
[[node]]
name = "client"
count = 3
rails = ["tcp", "tcp"]
[[node]]
name = "server"
rails = ["tcp", "tcp"]
{server}
{faults}
"#
    )
}

fn data() -> ConnectData {
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

fn layer(seed: u64) -> Ptlrpc {
    let tunables = ptlrpc::Tunables::default();
    Ptlrpc::new(Config { seed, wall_secs: 1_795_000_000, tunables })
}

/// Keeps a list to which clients append; the answer is the place in it.
struct Server {
    ptlrpc: Ptlrpc,
    started: bool,
    list: Vec<u64>,
}

impl Server {
    fn drain(&mut self, below: &mut Below<'_>) {
        if !self.started {
            self.started = true;
            let (request, reply) = ImportKind::Osc.portals();
            let mut rpc = self.ptlrpc.rpc(below);
            rpc.serve(ServiceConfig::new("list", request.0, reply.0, Portal::OST_BULK.0)).unwrap();
            let uuid = "list".to_owned();
            rpc.add_target(TargetConfig {
                uuid,
                offer: data(),
                replayable: false,
                past: Past::default(),
            })
            .unwrap();
        }
        while let Some(event) = self.ptlrpc.poll_event() {
            match event {
                Event::Served(served) => {
                    self.list.push(served.msg().unwrap().get::<u64>(1).unwrap());
                    let place = self.list.len() as u64;
                    let buffers = vec![place.to_le_bytes().to_vec()];
                    let answer = Answer { buffers, transno: place, ..Answer::default() };
                    self.ptlrpc.rpc(below).reply(served.id, answer);
                }
                Event::Evicted { client, reason, .. } => panic!("{client} evicted: {reason:?}"),
                _ => {}
            }
        }
    }
}

/// Appends one number after the other.
struct Client {
    ptlrpc: Ptlrpc,
    server: Nid,
    name: u64,
    import: Option<ImportId>,
    begun: u64,
    /// Number and call of what is under way.
    open: Vec<(u64, ptlrpc::CallId)>,
    /// Number and place of what was answered.
    ended: Vec<(u64, u64)>,
    /// It begins no more.
    resting: bool,
}

impl Client {
    fn drain(&mut self, below: &mut Below<'_>) {
        let import = *self.import.get_or_insert_with(|| {
            let config = ImportConfig {
                kind: ImportKind::Osc,
                target: "list".to_owned(),
                client: format!("client-{}", self.name),
                nids: vec![self.server],
                wanted: data(),
            };
            self.ptlrpc.rpc(below).import(config).unwrap()
        });
        loop {
            while let Some(event) = self.ptlrpc.poll_event() {
                if let Event::Ended { call, result } = event {
                    let at = self.open.iter().position(|(_, open)| *open == call).unwrap();
                    let (number, _) = self.open.remove(at);
                    let reply = result.unwrap_or_else(|e| panic!("{number}: {e}"));
                    let place = reply.msg().unwrap().get::<u64>(1).unwrap();
                    self.ended.push((number, place));
                }
            }
            if self.resting || self.open.len() >= WINDOW {
                return;
            }
            self.begun += 1;
            let number = self.name << 32 | self.begun;
            let mut call = Call::new(APPEND, vec![number.to_le_bytes().to_vec()]);
            call.reply_lens = vec![8];
            let id = self.ptlrpc.rpc(below).call(import, call).unwrap();
            self.open.push((number, id));
        }
    }
}

macro_rules! upper {
    ($name:ident, $first:expr) => {
        impl Upper for $name {
            fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
                self.ptlrpc.event(event, below);
                self.drain(below);
            }

            fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

            fn handle_timeout(&mut self, below: &mut Below<'_>) {
                self.ptlrpc.handle_timeout(below);
                self.drain(below);
            }

            fn poll_timeout(&self) -> Option<Instant> {
                if $first(self) { Some(Instant::ZERO) } else { self.ptlrpc.poll_timeout() }
            }
        }
    };
}
upper!(Server, |s: &Server| !s.started);
upper!(Client, |c: &Client| c.import.is_none());

/// Plays a world to its end; gives how many calls ended.
fn play<F: Fabric>(mut sim: Sim<F>) -> usize {
    let server = HostId(3);
    let nid = sim.view().scenario.world.nodes[3].rails[0].nid;
    let make = |_| -> Box<dyn Upper> {
        Box::new(Server { ptlrpc: layer(99), started: false, list: Vec::new() })
    };
    let listens = sim.stand(server, Box::new(make)).unwrap();
    let clients: Vec<_> = (0..3u32)
        .map(|n| {
            let make = move |_| -> Box<dyn Upper> {
                Box::new(Client {
                    ptlrpc: layer(n.into()),
                    server: nid,
                    name: n.into(),
                    import: None,
                    begun: 0,
                    open: Vec::new(),
                    ended: Vec::new(),
                    resting: false,
                })
            };
            (HostId(n), sim.stand(HostId(n), Box::new(make)).unwrap())
        })
        .collect();
    let run = |sim: &mut Sim<F>, secs| {
        sim.run_until(Instant::from_secs(secs)).unwrap_or_else(|v| panic!("{v}"));
    };
    run(&mut sim, 100);
    for &(host, id) in &clients {
        sim.with_upper(host, id, |c: &mut Client, _| c.resting = true).unwrap();
    }
    run(&mut sim, 400);
    let list = sim.with_upper(server, listens, |s: &mut Server, _| s.list.clone()).unwrap();
    let mut answered = 0;
    for &(host, id) in &clients {
        sim.with_upper(host, id, |c: &mut Client, _| {
            assert!(c.open.is_empty(), "{} calls have not ended", c.open.len());
            assert_eq!(c.ended.len() as u64, c.begun, "each call ends once");
            for (number, place) in &c.ended {
                assert_eq!(list[*place as usize - 1], *number, "the answer is another's");
            }
            answered += c.ended.len();
        })
        .unwrap();
    }
    let mut once = list.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), list.len(), "executed twice");
    assert_eq!(list.len(), answered, "executed, and not asked for");
    answered
}

/// Plays a world at message level; `kernel` is whether the server is like a kernel node.
fn with_faults(faults: &str, kernel: bool) -> usize {
    let server = if kernel { "profile = \"kernel\"" } else { "" };
    let text = world(faults, server);
    let scenario = lnet_scenario::parse("rpc.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    play(Sim::new(Arc::new(scenario), Some(7), Messages::new()))
}

#[test]
fn calls_survive_messages_that_are_lost_without_a_report() {
    let faults =
        "[[fault]]\nat = \"1s\"\nfor = \"80s\"\nkind = \"drop\"\non = \"server\"\nshare = \"1%\"\n";
    for kernel in [false, true] {
        let ended = with_faults(faults, kernel);
        assert!(ended > 200, "{ended} calls");
    }
}

#[test]
fn calls_survive_a_black_hole_of_a_minute_on_all_rails() {
    let faults = "[[fault]]\nat = \"5s\"\nfor = \"60s\"\nkind = \"cut\"\non = \"server\"\n";
    for kernel in [false, true] {
        let ended = with_faults(faults, kernel);
        assert!(ended > 3000, "{ended} calls");
    }
}

#[test]
fn calls_survive_rails_that_come_and_go_at_byte_level() {
    let faults = "[[fault]]\nat = \"2s\"\nfor = \"4s\"\nkind = \"carrier\"\non = \"server/0\"\n";
    let mut scenario = lnet_scenario::parse("rpc.toml", &world(faults, "")).unwrap();
    scenario.set_fidelity(Fidelity::Bytes).unwrap();
    let fabric = Bytes::new(scenario.bytes);
    assert!(play(Sim::new(Arc::new(scenario), Some(7), fabric)) > 3000);
}

#[test]
fn two_runs_from_one_seed_are_equal() {
    let faults = "[[fault]]\nat = \"5s\"\nfor = \"20s\"\nkind = \"cut\"\non = \"server\"\n";
    assert_eq!(with_faults(faults, false), with_faults(faults, false));
}
