//! What several rails of limited bandwidth carry together.

use core::time::Duration;
use std::sync::Arc;

use lnet_sim::{Bounds, Messages, Sim, all_checkers};
use lnet_types::Instant;

/// Bytes per second of a rail of 1 Gbit/s.
const RAIL: f64 = 125e6;
/// How long is measured, milliseconds.
const TIME: u32 = 500;

/// Bytes that PUTs of a mebibyte carry from one node to another over so many rails of one network.
fn carried(rails: usize) -> f64 {
    let list = vec!["\"tcp\""; rails].join(", ");
    let text = format!(
        r#"
name = "rails"
duration = "2s"
[[net]]
name = "tcp"
latency = "20us"
bandwidth = "1Gbit/s"
[[node]]
name = "a"
rails = [{list}]
[[node]]
name = "b"
rails = [{list}]
[[workload]]
kind = "put"
from = "a"
to = "b"
window = 64
size = "1MiB"
verify = false
"#
    );
    let scenario = Arc::new(lnet_scenario::parse("rails", &text).unwrap());
    let mut sim = Sim::new(scenario.clone(), None, Messages::new());
    for checker in all_checkers(&Bounds::for_scenario(&scenario)) {
        sim.observe(checker);
    }
    // What is under way then is not counted.
    sim.run_until(Instant::ZERO + Duration::from_millis(TIME.into())).unwrap();
    assert_eq!(sim.tally().errors, 0);
    sim.tally().completed as f64 * f64::from(1 << 20)
}

/// MRD-001, MRD-008: nine tenths of what each adds, at least.
#[test]
fn throughput_grows_with_one_two_and_four_rails_of_a_network() {
    for rails in [1, 2, 4] {
        let (carried, ideal) = (carried(rails), RAIL * f64::from(TIME) / 1000.0 * rails as f64);
        let share = carried / ideal;
        assert!((0.9..=1.0).contains(&share), "{rails} rails: {share:.3} of the ideal");
    }
}
