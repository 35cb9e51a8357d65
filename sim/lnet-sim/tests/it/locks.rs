//! Locks in virtual time: rounds of the swarm, and single faults upon two clients and a target.

use std::sync::Arc;

use lnet_scenario::{Scenario, parse};
use lnet_sim::{Detail, Floor, Played, play, seed_of};

use crate::rounds;

/// A target, two clients that want the same lock, and what befalls them.
fn two(load: &str, fault: &str) -> Arc<Scenario> {
    let text = format!(
        r#"
name = "two"
duration = "900s"
[rpc]
obd_timeout = "20s"
ldlm_enqueue_min = "30s"
[[net]]
name = "tcp"
[[node]]
name = "a"
rails = ["tcp"]
[[node]]
name = "b"
rails = ["tcp"]
[[node]]
name = "s"
rails = ["tcp"]
[[target]]
name = "locks"
kind = "lock"
on = "s"
[[client]]
on = ["a", "b"]
[[workload]]
kind = "lock"
from = ["a", "b"]
to = "locks"
names = 1
window = 1
{load}
{fault}
"#
    );
    Arc::new(parse("two.toml", &text).unwrap_or_else(|e| panic!("{e}")))
}

const WRITES: &str = "modes = [\"PW\"]\nhold = \"5s\"\nthink = \"1s\"\n";

fn holds(load: &str, fault: &str) -> Played {
    let played = play(two(load, fault), None, Detail::Moments);
    if let Some(violation) = &played.violation {
        panic!("{}\n{violation}\n{}", played.lines.join("\n"), played.summary);
    }
    played
}

fn evictions(played: &Played) -> u64 {
    played.summary.rpc.as_ref().map_or(0, |rpc| rpc.evicted)
}

#[test]
fn two_clients_take_turns_and_none_is_evicted() {
    let played = holds(WRITES, "");
    assert!(played.summary.completed > 250, "{}", played.summary);
    assert_eq!((played.summary.errors, evictions(&played)), (0, 0), "{}", played.summary);
}

#[test]
fn pa040_a_cancel_that_is_lost_goes_again_before_the_timer_of_the_callback_ends() {
    let fault = "[[fault]]\nkind = \"rpc_lose\"\nat = \"20s\"\non = \"a\"\nopcode = \"cancel\"\n\
                 part = \"request\"\ncount = 1";
    let played = holds(WRITES, fault);
    let rpc = played.summary.rpc.clone().unwrap();
    assert_eq!((evictions(&played), rpc.evictions), (0, 0), "{}", played.summary);
    assert!(rpc.reconnects >= 1, "the client has connected again: {}", played.summary);
    assert!(played.summary.completed > 200, "{}", played.summary);
}

#[test]
fn a_holder_that_hangs_is_evicted_and_its_lock_goes_to_the_other_client() {
    let fault = "[[fault]]\nkind = \"hang\"\nat = \"20s\"\nfor = \"100s\"\non = \"a\"";
    let played = holds(WRITES, fault);
    assert!(evictions(&played) >= 1, "{}", played.summary);
}

#[test]
fn a_holder_with_io_for_three_times_the_timer_is_not_evicted() {
    let load = "modes = [\"PW\"]\nhold = \"90s\"\nio = \"3s\"\nthink = \"1s\"\nuntil = \"600s\"\n";
    let played = holds(load, "");
    assert!(played.summary.completed > 5, "{}", played.summary);
    assert_eq!(evictions(&played), 0, "{}", played.summary);
}

#[test]
fn a_lost_message_of_a_lock_costs_no_eviction() {
    for opcode in ["enqueue", "cancel", "blocking", "completion"] {
        for part in ["request", "reply"] {
            let fault = format!(
                "[[fault]]\nkind = \"rpc_lose\"\nat = \"20s\"\non = \"a\"\npart = \"{part}\"\n\
                 opcode = \"{opcode}\"\ncount = 1"
            );
            // A fault with a count has no end, so that the model waits for none: bars do.
            let played = holds(WRITES, &fault);
            assert_eq!(evictions(&played), 0, "{opcode} {part}: {}", played.summary);
            assert!(played.summary.completed > 200, "{opcode} {part}: {}", played.summary);
        }
    }
}

#[test]
fn locks_are_in_force_again_when_their_server_comes_back() {
    let fault = "[[fault]]\nkind = \"kill\"\nat = \"20s\"\nfor = \"30s\"\non = \"s\"";
    let played = holds(WRITES, fault);
    assert_eq!(evictions(&played), 0, "{}", played.summary);
}

#[test]
fn a_dead_holder_loses_its_lock() {
    let fault = "[[fault]]\nkind = \"kill\"\nat = \"22s\"\non = \"a\"";
    let played = holds(WRITES, fault);
    assert!(evictions(&played) >= 1, "{}", played.summary);
    assert!(played.summary.completed > 80, "{}", played.summary);
}

#[test]
fn a_drawn_scenario_of_locks_is_valid_and_has_each_kind_of_fault() {
    let (kinds, words) = rounds::drawn(Floor::Locks);
    let all = [
        "commit_stall",
        "cut",
        "drift",
        "drop",
        "evict",
        "failover",
        "handler_delay",
        "hang",
        "kill",
        "pause",
        "rpc_lose",
    ];
    assert_eq!(kinds, all);
    for word in ["whole", "touching", "random", "bits", "plain", "GROUP", "io = "] {
        assert!(words.contains(word), "{word}");
    }
}

#[test]
fn some_rounds_of_locks_hold() {
    for seed in (0..8).map(|n| seed_of(3, n)) {
        let played = rounds::holds(Floor::Locks, seed);
        assert!(played.summary.completed > 100, "seed {seed}: {}", played.summary);
    }
}

#[test]
fn two_runs_of_a_round_of_locks_are_equal() {
    rounds::is_equal_twice(Floor::Locks);
}

/// Rounds in which the swarm has found something, as docs/simulation.md lists it.
#[test]
fn earlier_findings_of_the_swarm_of_locks_hold_now() {
    let seeds = [
        4890121111172079280,
        2225341791436959231,
        3158570661815299655,
        8517773111974315043,
        8560996727250426380,
        4684795410455628150,
        1499763052456248319,
        8216073467577373606,
        4439641682066005552,
    ];
    for seed in seeds {
        rounds::holds(Floor::Locks, seed);
    }
}
