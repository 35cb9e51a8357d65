//! The byte level: the real driver over simulated streams.

use std::sync::Arc;

use lnet_scenario::{Fidelity, Scenario, parse};
use lnet_sim::{Detail, play};

use crate::scenarios::{load, must_hold};

fn at_bytes(name: &str) -> Arc<Scenario> {
    let mut scenario = Scenario::clone(&load(name));
    scenario.set_fidelity(Fidelity::Bytes).unwrap();
    Arc::new(scenario)
}

/// A test for each scenario that is written for messages: its bars hold byte by byte as well.
macro_rules! at_both {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                must_hold(&at_bytes($name), None);
            }
        )*
    };
}

at_both! {
    router_death: "router-death";
    carrier_down: "carrier-down";
    black_hole: "black-hole";
    flapping: "flapping";
    dark: "dark";
    dark_server: "dark-server";
    discovery_both_ways: "discovery-both-ways";
    push_during_ping: "push-during-ping";
    discovery_switched_off: "discovery-switched-off";
    other_nids: "other-nids";
    router_lost_net: "router-lost-net";
    no_way_back: "no-way-back";
    repaired: "repaired";
    thundering_herd: "thundering-herd";
    slow_behind_router: "slow-behind-router";
    many_interfaces: "many-interfaces";
    deleted_during_discovery: "deleted-during-discovery";
    sequence_wraps: "sequence-wraps";
}

#[test]
fn a_run_byte_by_byte_is_the_same_every_time_and_another_seed_gives_another_one() {
    let scenario = at_bytes("black-hole");
    let run = |seed| play(scenario.clone(), Some(seed), Detail::Moments);
    let (one, two, other) = (run(7), run(7), run(8));
    assert_eq!(one.summary.trace_hash, two.summary.trace_hash);
    assert_eq!(one.lines, two.lines);
    assert_eq!(one.summary.messages, two.summary.messages);
    assert_ne!(one.summary.trace_hash, other.summary.trace_hash);
}

#[test]
fn without_checksums_damage_that_tcp_does_not_notice_reaches_programs() {
    let mut scenario = Scenario::clone(&load("damaged"));
    scenario.bytes.checksum = false;
    let played = play(Arc::new(scenario), None, Detail::default());
    let violation = played.violation.unwrap();
    assert_eq!(violation.checker, "once-and-intact", "{violation}");
    assert!(violation.what.contains("other bytes"), "{violation}");
}

#[test]
fn damage_that_checksums_find_is_found_whatever_the_seed() {
    for seed in 2..=4 {
        must_hold(&load("damaged"), Some(seed));
    }
}

/// Two nodes on one network that speak for a while, and what befalls them.
fn two(faults: &str) -> Arc<Scenario> {
    let text = format!(
        r#"
name = "two"
duration = "40s"
fidelity = "bytes"
[[net]]
name = "tcp"
[[node]]
name = "a"
rails = ["tcp"]
[[node]]
name = "b"
rails = ["tcp"]
[[workload]]
kind = "request"
from = ["a", "b"]
to = ["a", "b"]
every = "100ms"
size = 3000
reply = 40000
timeout = "6s"
retries = 10
until = "20s"
{faults}
[bars]
errors = 0
duplicates = 0
"#
    );
    Arc::new(parse("two", &text).unwrap())
}

#[test]
fn faults_of_streams_cost_time_and_nothing_else() {
    let share = |kind: &str, more: &str| {
        format!("[[fault]]\nkind = \"{kind}\"\non = \"b\"\nat = \"3s\"\nfor = \"12s\"\n{more}\n")
    };
    for fault in [
        share("loss", "share = \"5%\""),
        share("corrupt", "share = \"5%\""),
        share("duplicate", "share = \"20%\""),
        share("reorder", "share = \"20%\"\nby = \"3ms\""),
        share("delay", "by = \"30ms\"\njitter = \"20ms\""),
        share("slow", "bandwidth = \"50Mbit/s\""),
    ] {
        let played = must_hold(&two(&fault), None);
        assert!(played.summary.completed > 350, "{fault}{}", played.summary);
    }
}

#[test]
fn connections_that_are_reset_or_refused_are_made_again() {
    for fault in [
        "[[fault]]\nkind = \"reset\"\non = \"b\"\nat = \"5s\"\n",
        "[[fault]]\nkind = \"refuse\"\non = \"b\"\nat = \"5s\"\nfor = \"3s\"\n",
        "[[fault]]\nkind = \"cut\"\non = \"b\"\ndirection = \"in\"\nat = \"5s\"\nfor = \"3s\"\n",
        "[[fault]]\nkind = \"pause\"\non = \"b\"\nat = \"5s\"\nfor = \"10s\"\n",
        "[[fault]]\nkind = \"kill\"\non = \"b\"\nat = \"5s\"\nfor = \"1s\"\n",
        "[[fault]]\nkind = \"ni_del\"\non = \"b/0\"\nat = \"5s\"\nfor = \"1s\"\n",
        "[[fault]]\nkind = \"memory\"\non = \"b\"\nat = \"5s\"\nfor = \"3s\"\n",
        "[[fault]]\nkind = \"drift\"\non = \"b\"\nat = \"5s\"\nfor = \"30s\"\nppm = 50000\n",
    ] {
        must_hold(&two(fault), None);
    }
}
