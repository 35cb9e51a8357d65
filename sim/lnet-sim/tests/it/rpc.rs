//! The scenarios of the request layer under other conditions than their own: by the kernel's rules,
//! and byte by byte under the real driver.

use std::sync::Arc;

use lnet::Profile;
use lnet_scenario::{Fidelity, Scenario};
use lnet_sim::{Detail, play};

use crate::scenarios::{load, must_hold};

fn scenario(name: &str) -> Scenario {
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
    scenario.bars.rpc_longest_max = Some(core::time::Duration::from_secs(200));
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
