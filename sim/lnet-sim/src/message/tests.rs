//! Messages end, whatever befalls them.

use std::sync::Arc;

use super::Messages;
use crate::sim::Sim;

const WORLD: &str = r#"
name = "losses"
duration = "20s"
[[net]]
name = "tcp"
[[net]]
name = "o2ib"
transport = "datagram"
[[node]]
name = "n"
count = 4
rails = ["tcp", "o2ib"]
[[workload]]
kind = "request"
from = "n"
to = "n"
pairing = "all"
every = "20ms"
size = 4096
reply = 100
timeout = "2s"
[[fault]]
kind = "duplicate"
at = "1s"
for = "5s"
on = "o2ib"
share = "10%"
[[fault]]
kind = "loss"
at = "1s"
for = "5s"
on = "n-2"
share = "10%"
[[fault]]
kind = "drop"
at = "1s"
for = "5s"
on = "n-3"
share = "5%"
reported = false
[[fault]]
kind = "cut"
at = "3s"
for = "4s"
on = "n-1"
[[fault]]
kind = "kill"
at = "4s"
for = "3s"
on = "n-2"
[[fault]]
kind = "reset"
at = "5s"
on = "tcp"
[[fault]]
kind = "memory"
at = "8s"
for = "1s"
on = "n-4"
[[fault]]
kind = "ni_del"
at = "9s"
for = "1s"
on = "n-3/0"
"#;

#[test]
fn a_message_that_has_ended_is_not_kept() {
    let scenario = Arc::new(lnet_scenario::parse("losses", WORLD).unwrap());
    let mut sim = Sim::new(scenario, None, Messages::new());
    let mut most = 0;
    for step in 0..1_000 {
        sim.run_until(lnet_types::Instant(step * 20_000_000)).unwrap();
        most = most.max(sim.fabric.parcels.count());
    }
    assert!(most > 10, "{most}");
    assert!(sim.tally().completed > 1000, "{}", sim.tally().completed);
    sim.run_until(lnet_types::Instant::from_secs(80)).unwrap();
    // Pings between hosts that still have to discover each other.
    let left = sim.fabric.parcels.count();
    assert!(left <= 2, "{left} of {most}");
    assert_eq!(sim.view().in_hand, 0);
}
