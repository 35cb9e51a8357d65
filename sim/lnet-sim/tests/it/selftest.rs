//! LNet selftest on simulated nodes: the same value as stands on a real node, under faults and in
//! virtual time.

use core::time::Duration;
use std::sync::Arc;

use lnet::upper::{Upper, UpperId};
use lnet_scenario::{Fidelity, Scenario};
use lnet_selftest::{
    Answer, Brw, Check, Command, CommandId, Counters, Kind, Report, Runner, Settings, Target,
    TestSpec,
};
use lnet_sim::{Bounds, Bytes, Fabric, HostId, Messages, Sim, all_checkers};
use lnet_types::{Instant, Nid};

/// Two clients and two servers; the servers lose one rail after the other while tests run.
const WORLD: &str = r#"
name = "selftest"
duration = "120s"
[[net]]
name = "tcp"
latency = "100us"
bandwidth = "10Gbit/s"
[[node]]
name = "client"
count = 2
rails = ["tcp", "tcp"]
[[node]]
name = "server"
count = 2
rails = ["tcp", "tcp"]
[[fault]]
at = "2s"
for = "40ms"
kind = "carrier"
on = "server/0"
[[fault]]
at = "2050ms"
for = "40ms"
kind = "carrier"
on = "server/1"
"#;

const KEY: u32 = 4242;
/// The time since 1970 at the instant zero of the nodes' clocks.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);

/// A world with selftest on every node; the console is on the first.
struct Bench<F: Fabric> {
    sim: Sim<F>,
    ids: Vec<UpperId>,
    commands: u64,
}

impl<F: Fabric> Bench<F> {
    fn new(mut sim: Sim<F>, settings: Settings) -> Self {
        let hosts = sim.view().hosts.len() as u32;
        let stand = |n| {
            let make = move |_| -> Box<dyn Upper> { Box::new(Runner::new(settings, EPOCH)) };
            sim.stand(HostId(n), Box::new(make)).unwrap()
        };
        let ids = (0..hosts).map(stand).collect();
        for checker in all_checkers(&Bounds::for_scenario(sim.view().scenario)) {
            sim.observe(checker);
        }
        Self { sim, ids, commands: 0 }
    }

    fn nid(&self, n: usize) -> Nid {
        self.sim.view().scenario.world.nodes[n].rails[0].nid
    }

    fn wait(&mut self, d: Duration) {
        let until = self.sim.view().now + d;
        self.sim.run_until(until).unwrap_or_else(|v| panic!("{v}"));
    }

    /// Gives the console a command and waits for its answer.
    fn order(&mut self, command: Command) -> Answer {
        self.commands += 1;
        let (id, at) = (CommandId(self.commands), self.ids[0]);
        let shown = format!("{command:?}");
        self.sim
            .with_upper(HostId(0), at, |runner: &mut Runner, below| {
                runner.command(id, KEY, 7, command, below);
            })
            .unwrap();
        for _ in 0..100_000 {
            let polled = self.sim.with_upper(HostId(0), at, |r: &mut Runner, _| r.poll_answer());
            if let Some((of, answer)) = polled.unwrap() {
                assert_eq!(of, id);
                return answer.unwrap_or_else(|e| panic!("{shown}: {e}"));
            }
            self.wait(Duration::from_millis(1));
        }
        panic!("{shown}: no answer");
    }

    fn counters(&mut self, group: &str) -> Vec<Counters> {
        let target = Target::Group(group.to_owned());
        let Answer::Nodes(nodes) = self.order(Command::Stat { target, timeout_s: 5 }) else {
            panic!("nodes were asked")
        };
        let of = |report| match report {
            Ok(Report::Counters(counters)) => *counters,
            other => panic!("{other:?}"),
        };
        nodes.into_iter().map(|node| of(node.outcome)).collect()
    }

    /// Runs each kind so many times from both clients to both servers, then gives the counters of
    /// clients and servers, and ends the session.
    fn session(&mut self, kinds: &[Kind], repeat: u32) -> [Vec<Counters>; 2] {
        let (name, batch) = ("sim".to_owned(), "b".to_owned());
        self.order(Command::NewSession { name, timeout_s: 100, force: false, features: 1 });
        for (name, nodes) in [("clients", [0, 1]), ("servers", [2, 3])] {
            let name = name.to_owned();
            self.order(Command::AddGroup { name: name.clone() });
            let nids = nodes.map(|n| self.nid(n)).to_vec();
            self.order(Command::AddNodes { group: name, nids });
        }
        self.order(Command::AddBatch { name: batch.clone() });
        for kind in kinds {
            self.order(Command::AddTest(TestSpec {
                batch: batch.clone(),
                from: "clients".to_owned(),
                to: "servers".to_owned(),
                repeat: Some(repeat),
                concurrency: 4,
                clients: 2,
                servers: 2,
                kind: *kind,
            }));
        }
        self.order(Command::Run { batch: batch.clone(), timeout_s: 0 });
        loop {
            let batch = batch.clone();
            let query = Command::Query { batch, test: 0, server: false, timeout_s: 5 };
            let Answer::Nodes(nodes) = self.order(query) else { panic!("nodes were asked") };
            if nodes.iter().all(|n| n.outcome == Ok(Report::Active(0))) {
                break;
            }
            self.wait(Duration::from_millis(100));
        }
        let counters = ["clients", "servers"].map(|group| self.counters(group));
        self.order(Command::EndSession);
        // Replies that are on their way arrive.
        self.wait(Duration::from_secs(1));
        counters
    }

    /// Nothing is left of a session: whether, and how many regions each node has.
    fn at_rest(&mut self) -> Vec<(bool, usize)> {
        let idle = |sim: &mut Sim<F>, n: u32, id| {
            sim.with_upper(HostId(n), id, |runner: &mut Runner, _| runner.is_idle()).unwrap()
        };
        let ids = self.ids.clone();
        let rest = (0..).zip(ids).map(|(n, id)| {
            (idle(&mut self.sim, n, id), self.sim.view().hosts[n as usize].mem.count())
        });
        rest.collect()
    }
}

const fn brw(write: bool, size: u32) -> Kind {
    Kind::Brw(Brw { write, size, offset: 0, check: Check::Full })
}

fn world() -> Scenario {
    lnet_scenario::parse("selftest", WORLD).unwrap()
}

/// Each test of both clients' concurrency of four and two servers ends well, while rails come and go.
fn no_error_while_rails_go<F: Fabric>(sim: Sim<F>, repeat: u32) -> [Vec<Counters>; 2] {
    let mut bench = Bench::new(sim, Settings::default());
    bench.wait(Duration::from_millis(1950));
    let counters = bench.session(&[Kind::Ping, brw(true, 4096), brw(false, 1 << 14)], repeat);
    assert!(bench.sim.view().now > Instant(2_100_000_000), "it has seen both faults");
    for c in counters.iter().flatten() {
        assert_eq!((c.brw_errors, c.ping_errors, c.rpc_errors, c.rpcs_dropped), (0, 0, 0, 0));
    }
    let [_, servers] = &counters;
    assert!(servers.iter().all(|c| c.bulk_get >= u64::from(repeat) * 4 * 4096), "{servers:?}");
    assert!(servers.iter().all(|c| c.bulk_put >= (u64::from(repeat) * 4) << 14), "{servers:?}");
    for (idle, regions) in bench.at_rest() {
        // Buffers for requests, whose memory has doubled four times, and the pattern.
        assert!(idle && regions == 6, "{regions} regions");
    }
    counters
}

#[test]
fn selftest_ends_without_error_while_rails_go_and_leaves_no_memory_behind() {
    let run =
        || no_error_while_rails_go(Sim::new(Arc::new(world()), Some(1), Messages::new()), 250);
    assert_eq!(run(), run(), "the same each time");
}

#[test]
fn selftest_runs_over_simulated_streams() {
    let mut scenario = world();
    scenario.set_fidelity(Fidelity::Bytes).unwrap();
    let fabric = Bytes::new(scenario.bytes);
    no_error_while_rails_go(Sim::new(Arc::new(scenario), Some(1), fabric), 250);
}

#[test]
fn damaged_data_are_found() {
    let settings = Settings { inject_errors: 1, ..Settings::default() };
    let sim = Sim::new(Arc::new(world()), Some(1), Messages::new());
    let mut bench = Bench::new(sim, settings);
    let [clients, servers] = bench.session(&[brw(true, 4096), brw(false, 4096)], 20);
    // Each node damages one block, which another one finds.
    let found: u32 = clients.iter().chain(&servers).map(|c| c.brw_errors).sum();
    assert!(found >= 4, "{clients:?} {servers:?}");
}

#[test]
fn a_server_that_dies_is_an_error_and_its_next_life_takes_part_again() {
    let text = WORLD.split("[[fault]]").next().unwrap().to_owned()
        + "[[fault]]\nat = \"2s\"\nfor = \"1s\"\nkind = \"kill\"\non = \"server\"\n";
    let scenario = lnet_scenario::parse("selftest", &text).unwrap();
    let settings = Settings { rpc_timeout: Duration::from_secs(2), ..Settings::default() };
    let mut bench = Bench::new(Sim::new(Arc::new(scenario), Some(1), Messages::new()), settings);
    bench.session(&[Kind::Ping], 10);
    bench.sim.run_until(Instant::from_secs(10)).unwrap_or_else(|v| panic!("{v}"));
    let [clients, servers] = bench.session(&[Kind::Ping, brw(true, 4096)], 10);
    let wrong = |c: &Counters| c.ping_errors + c.brw_errors;
    assert!(clients.iter().chain(&servers).all(|c| wrong(c) == 0), "{clients:?} {servers:?}");
    assert!(servers.iter().all(|c| c.rpcs_rcvd < 200), "of this life alone: {servers:?}");
}
