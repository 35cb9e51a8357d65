//! Operators at work while nodes are.

use core::time::Duration;
use std::sync::Arc;

use lnet_sim::{Bounds, HostId, Messages, Sim, all_checkers};
use lnet_types::{Instant, Prng};

const TWO: &str = r#"
name = "two"
duration = "20s"
[[net]]
name = "tcp"
latency = "20ms"
[[node]]
name = "a"
rails = ["tcp", "tcp"]
[[node]]
name = "b"
rails = ["tcp", "tcp"]
[[workload]]
kind = "request"
from = "a"
to = "b"
every = "50ms"
size = 100
reply = 100
timeout = "6s"
retries = 5
until = "15s"
"#;

/// Deletes the peer again and again, at any point of its discovery.
#[test]
fn a_peer_deleted_while_it_is_being_discovered_is_found_again() {
    for seed in 1..=8 {
        let scenario = Arc::new(lnet_scenario::parse("two", TWO).unwrap());
        let mut sim = Sim::new(scenario.clone(), Some(seed), Messages::new());
        for checker in all_checkers(&Bounds::for_scenario(&scenario)) {
            sim.observe(checker);
        }
        let mut rng = Prng::new(seed);
        let mut at = Instant::ZERO;
        for _ in 0..40 {
            at += Duration::from_millis(1 + rng.below(150));
            sim.run_until(at).unwrap_or_else(|v| panic!("seed {seed}: {v}"));
            let nid = scenario.world.nodes[1].rails[0].nid;
            sim.operate(HostId(0), |node, now| {
                // It may be unknown at this moment.
                let _ = node.peer_del(now, nid, &[], true);
            });
        }
        sim.run().unwrap_or_else(|v| panic!("seed {seed}: {v}"));
        assert_eq!(sim.tally().errors, 0, "seed {seed}");
        assert!(sim.tally().completed > 250, "seed {seed}: {}", sim.tally().completed);
    }
}
