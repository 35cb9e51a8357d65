//! The scenarios of the request layer under other conditions than their own: by the kernel's rules,
//! and byte by byte under the real driver.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use lnet::Profile;
use lnet_scenario::{Fidelity, Scenario};
use lnet_sim::{Detail, HostId, Messages, Observer, RpcSeen, Seen, Sim, View, play};
use lnet_types::Instant;

use crate::scenarios::{load, must_hold};

pub(crate) fn scenario(name: &str) -> Scenario {
    Scenario::clone(&load(name))
}

#[test]
fn clients_and_servers_with_the_kernels_rules_of_lnet_hold_the_same_bars() {
    for name in ["rpc-lost-request", "rpc-lost-reply", "rpc-server-restart", "rpc-failover"] {
        let mut scenario = scenario(name);
        scenario.set_profile(Profile::Kernel).unwrap();
        // A request that goes to a dead node is held by the driver, whatever its own deadline.
        scenario.bars.rpc_longest_max = None;
        must_hold(&Arc::new(scenario), None);
    }
}

#[test]
fn clients_that_wait_for_discovery_come_back_to_a_server_that_was_dead() {
    // Its process alone dies: connections are reset, and LNet takes it for unreachable.
    let changes = [("rpc.profile", "kernel"), ("fault.0.process", "true")]
        .map(|(place, value)| lnet_scenario::Change::new(place, value).unwrap());
    let text = include_str!("../../../../scenarios/rpc-server-restart.toml");
    let mut scenario = lnet_scenario::parse_changed("kernel", text, &[], &changes).unwrap();
    scenario.set_profile(Profile::Kernel).unwrap();
    scenario.bars.rpc_longest_max = Some(Duration::from_secs(200));
    must_hold(&Arc::new(scenario), None);
}

#[test]
fn a_server_that_is_killed_costs_nothing_at_byte_level() {
    let mut scenario = scenario("rpc-server-restart");
    scenario.set_fidelity(Fidelity::Bytes).unwrap();
    must_hold(&Arc::new(scenario), None);
}

#[test]
fn two_runs_of_a_failover_from_one_seed_are_equal() {
    let run = || play(load("rpc-failover"), Some(7), Detail::Hash).summary.trace_hash;
    assert_eq!(run(), run());
}

/// What is due then stays due, and it is too late for it.
#[test]
fn client_that_stands_still_over_the_end_of_its_load_calls_no_more_and_the_run_ends() {
    let text = r#"
name = "pause over the end of a load"
duration = "6s"
[[net]]
name = "tcp"
[[node]]
name = "client"
rails = ["tcp"]
[[node]]
name = "server"
rails = ["tcp"]
[[target]]
name = "t"
kind = "list"
on = "server"
[[client]]
on = "client"
targets = "t"
[[workload]]
kind = "rpc"
from = "client"
to = "t"
window = 2
think = "100ms"
start = "1s"
until = "2s"
[[fault]]
kind = "pause"
on = "client"
at = "1500ms"
for = "2s"
"#;
    let scenario = Arc::new(lnet_scenario::parse("pause", text).unwrap());
    let played = play(scenario, None, Detail::Hash);
    assert_eq!(played.violation.map(|v| v.to_string()), None);
    let rpc = played.summary.rpc.unwrap();
    assert_eq!((rpc.answered, rpc.failed, rpc.open), (10, 0, 0));
}

/// A rail that is suspected after a kill says nothing of a store that was full before.
#[test]
fn a_fault_of_a_store_is_not_said_to_be_noticed_by_a_rail() {
    let played = play(Arc::new(scenario("rpc-store-full")), None, Detail::Hash);
    let by: Vec<_> =
        played.summary.faults.iter().map(|f| (f.kind.as_str(), f.noticed_by.is_some())).collect();
    assert_eq!(by, [("store_full", false), ("kill", true)]);
}

/// What the figures of a scenario rest on: without its fault nothing of it happens.
#[test]
fn each_fault_above_lnet_leaves_its_trace_in_the_figures() {
    let figures = |name: &str, faults: bool| {
        let mut scenario = scenario(name);
        if !faults {
            scenario.faults.clear();
        }
        play(Arc::new(scenario), None, Detail::Hash).summary.rpc.unwrap()
    };
    let calm = figures("rpc-evicted", false);
    assert_eq!((calm.failed, calm.reconnects, calm.evictions, calm.copies), (0, 0, 0, 0));
    let evicted = figures("rpc-evicted", true);
    assert_eq!((evicted.evictions, evicted.evicted), (1, 1));
    assert!(figures("rpc-commit-stall", true).early_replies > 0);
    assert!(figures("rpc-lost-reply", true).copies > 0, "records are used");
    let folded = figures("rpc-beyond-at-max", true);
    assert!(folded.copies > 0 && folded.early_replies > 0, "{folded:?}");
    assert!(figures("rpc-lost-bulk", true).bulk_failed > 0);
    let full = figures("rpc-store-full", true);
    assert!(full.failed > 100 && figures("rpc-store-full", false).failed == 0, "{full:?}");
    assert!(figures("rpc-store-broken", true).reconnects > 0, "requests without answer");
    let parts = figures("rpc-lost-parts", true);
    assert!(parts.bulk_failed > 0 && parts.copies > 10 && parts.reconnects > 3, "{parts:?}");
    let keys = figures("rpc-kv-restart", true);
    assert!(keys.executed > 1000 && keys.reconnects == 4, "{keys:?}");
    let restart = figures("rpc-server-restart", true);
    assert!(restart.executed > restart.answered * 4 / 5 - 200, "{restart:?}");
}

/// What a server thinks of the ways to its clients is looked at after each event, and there are many while
/// it reaches none of them: the world of ten thousand did not end. By hand, a minute of a release build:
/// `ulnet sim run scenarios/rpc-darkness.toml --count client=10000`.
#[test]
fn four_hundred_clients_are_back_at_once_after_an_outage() {
    let count = lnet_scenario::Change::new("node.client.count", "400").unwrap();
    let text = include_str!("../../../../scenarios/rpc-darkness.toml");
    let scenario = lnet_scenario::parse_changed("darkness", text, &[], &[count]).unwrap();
    let played = must_hold(&Arc::new(scenario), None);
    assert_eq!(played.summary.rpc.unwrap().reconnects, 400);
}

/// One call after the other to a server whose process dies, and is back after `down`.
fn killed_at(at: &str, down: &str) -> Scenario {
    let text = format!(
        r#"
name = "killed"
duration = "30s"
[[net]]
name = "tcp"
latency = "100us"
bandwidth = "10Gbit/s"
[[node]]
name = "client"
count = 2
rails = ["tcp"]
[[node]]
name = "server"
rails = ["tcp"]
[[target]]
name = "list-1"
kind = "list"
on = "server"
commit = "1ms"
[[client]]
on = "client"
[[workload]]
kind = "rpc"
from = "client"
to = "list-1"
window = 1
reads = "20%"
until = "4s"
think = "150us"
[[fault]]
at = "{at}"
for = "{down}"
kind = "kill"
process = true
on = "server"
[bars]
errors = 0
executed_twice = 0
lost_writes = 0
evictions = 0
"#
    );
    lnet_scenario::parse("killed", &text).unwrap()
}

/// A call takes 200 µs, what it changed is committed within 1 ms: the kills fall on a request under way,
/// one that is being served, an answer under way, and changes that are not committed. No call waits for
/// its deadline of 16 s (DEC-48).
#[test]
fn a_server_that_is_killed_at_each_point_of_a_requests_life_costs_its_absence_and_two_seconds() {
    for at in (0..1200).step_by(60) {
        let mut scenario = killed_at(&format!("{}us", 1_000_000 + at), "1s");
        scenario.bars.rpc_longest_max = Some(Duration::from_secs(3));
        must_hold(&Arc::new(scenario), None);
    }
}

/// A router keeps its connection to the client: only an answer of the new process can show that the old
/// one is gone. A probe gets it, after a second of silence and then after each doubling (DEC-48).
#[test]
fn a_server_behind_a_router_that_is_killed_costs_twice_its_absence_and_two_seconds() {
    for (process, down) in [(true, 1), (true, 3), (false, 1), (false, 3)] {
        let text = format!(
            r#"
name = "killed-behind-a-router"
duration = "40s"
[[net]]
name = "tcp"
latency = "100us"
[[net]]
name = "tcp1"
latency = "100us"
[[node]]
name = "router"
rails = ["tcp", "tcp1"]
router = true
[[node]]
name = "server"
rails = ["tcp1"]
routes = [{{ net = "tcp", gateway = "router" }}]
[[node]]
name = "client"
count = 4
rails = ["tcp"]
routes = [{{ net = "tcp1", gateway = "router" }}]
[[target]]
name = "list-1"
kind = "list"
on = "server"
commit = "50ms"
[[client]]
on = "client"
[[workload]]
kind = "rpc"
from = "client"
to = "list-1"
window = 4
reads = "20%"
think = "10ms"
until = "30s"
[[fault]]
at = "10s"
for = "{down}s"
kind = "kill"
process = {process}
on = "server"
[bars]
errors = 0
executed_twice = 0
lost_writes = 0
evictions = 0
"#
        );
        let mut scenario = lnet_scenario::parse("routed", &text).unwrap();
        scenario.bars.rpc_longest_max = Some(Duration::from_secs(2 * down + 2));
        must_hold(&Arc::new(scenario), None);
    }
}

/// Clients of a target with a partner, whose server is out of reach for a while; `partner` is what becomes
/// of the partner's host.
fn cut_off(length: u64, partner: &str) -> Scenario {
    let text = format!(
        r#"
name = "cut-off"
duration = "60s"
[[net]]
name = "tcp"
latency = "100us"
[[node]]
name = "client"
count = 4
rails = ["tcp"]
[[node]]
name = "server"
count = 2
rails = ["tcp"]
[[target]]
name = "list-1"
kind = "list"
on = "server-1"
failover = "server-2"
commit = "50ms"
[[client]]
on = "client"
[[workload]]
kind = "rpc"
from = "client"
to = "list-1"
window = 4
reads = "20%"
think = "10ms"
until = "50s"
[[fault]]
at = "10s"
for = "{length}s"
kind = "cut"
on = "server-1"
{partner}
[bars]
errors = 0
executed_twice = 0
lost_writes = 0
evictions = 0
"#
    );
    lnet_scenario::parse("cut off", &text).unwrap()
}

/// A partner that does not serve says so at once, and the first server is asked again (P-68, DEC-48).
#[test]
fn a_server_that_is_out_of_reach_and_not_replaced_goes_on_when_it_is_back() {
    for length in [2, 5, 8] {
        let mut scenario = cut_off(length, "");
        scenario.bars.rpc_longest_max = Some(Duration::from_secs(length + 1));
        let played = must_hold(&Arc::new(scenario), None);
        let reconnects = played.summary.rpc.unwrap().reconnects;
        assert_eq!(reconnects, if length > 3 { 4 } else { 0 }, "{length} s");
    }
}

/// Nothing is gained by a partner that does not answer either.
#[test]
fn a_silent_server_is_not_left_for_a_partner_that_is_dead() {
    let dead = "[[fault]]\nat = \"5s\"\nkind = \"kill\"\non = \"server-2\"";
    let mut scenario = cut_off(5, dead);
    scenario.bars.rpc_longest_max = Some(Duration::from_secs(6));
    let played = must_hold(&Arc::new(scenario), None);
    assert_eq!(played.summary.rpc.unwrap().reconnects, 0);
}

/// A partner that takes over later is found late by a quarter of the outage, or by 5 s.
#[test]
fn a_partner_that_takes_over_late_is_found_within_a_quarter_of_the_outage() {
    let path = "../../scenarios/rpc-silent-takeover.toml";
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("after = \"1s\""), "{text}");
    for after in [12, 20, 27, 40] {
        let text = text.replace("after = \"1s\"", &format!("after = \"{after}s\""));
        let mut scenario = lnet_scenario::parse(path, &text).unwrap();
        scenario.bars.rpc_longest_max = Some(Duration::from_secs(after + 1 + (after / 4).max(5)));
        must_hold(&Arc::new(scenario), None);
    }
}

/// Times of the calls of all hosts but one, begun while that one floods the server.
#[derive(Clone, Default)]
pub(crate) struct Beside(Rc<RefCell<Vec<Duration>>>);

impl Beside {
    /// 99 of 100 took at most so long.
    pub(crate) fn p99(&self) -> Duration {
        let mut times = self.0.take();
        times.sort_unstable();
        assert!(times.len() > 1000, "{}", times.len());
        times[times.len() * 99 / 100]
    }
}

/// The node that floods, as the scenario numbers it.
pub(crate) const FLOODS: HostId = HostId(20);

impl Observer for Beside {
    fn name(&self) -> &'static str {
        "beside"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        if let Seen::Rpc { host, seen: RpcSeen::Ended { took, result, .. } } = *seen
            && host != FLOODS
            && (Instant::from_secs(6)..Instant::from_secs(9)).contains(&view.now)
        {
            let _ = result.as_ref().map_err(ToString::to_string)?;
            self.0.borrow_mut().push(*took);
        }
        Ok(())
    }
}

#[test]
fn calls_beside_a_client_that_floods_a_server_take_as_long_as_without_it() {
    let p99 = |floods: bool| {
        let mut scenario = scenario("rpc-flood");
        if !floods {
            let loads = &mut scenario.rpc.loads;
            loads.retain(|load| load.window < 1000);
        }
        let mut sim = Sim::new(Arc::new(scenario), None, Messages::new());
        let beside = Beside::default();
        sim.observe(Box::new(beside.clone()));
        sim.run().unwrap();
        beside.p99()
    };
    let (alone, beside) = (p99(false), p99(true));
    println!("p99 alone {alone:?}, beside a flood {beside:?}");
    assert!(beside <= alone * 6 / 5, "{beside:?} against {alone:?}");
}

/// LNet's own time-outs are of messages; a request waits by the deadline of its layer.
#[test]
fn ug046_service_of_30_s_is_waited_for_though_a_message_has_5_s() {
    let text = r#"
name = "service of 30 s"
duration = "200s"
tunables = { transaction_timeout = 5, retry_count = 1 }
[[net]]
name = "tcp"
latency = "100us"
[[node]]
name = "client"
count = 2
rails = ["tcp"]
[[node]]
name = "server"
rails = ["tcp"]
[[target]]
name = "list-1"
kind = "list"
on = "server"
[[client]]
on = "client"
[[workload]]
kind = "rpc"
from = "client"
to = "list-1"
window = 2
think = "1s"
until = "150s"
[[fault]]
at = "1s"
for = "160s"
kind = "handler_delay"
target = "list-1"
by = "30s"
[bars]
errors = 0
rpc_longest_max = "31s"
"#;
    let scenario = lnet_scenario::parse("service", text).unwrap();
    let summary = must_hold(&Arc::new(scenario), None).summary;
    assert!(summary.completed >= 20, "{summary}");
    assert_eq!((summary.response_timeouts, summary.resends), (0, 0), "{summary}");
}
