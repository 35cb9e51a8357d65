//! The scenarios of the project, each with its bars. A failure prints how to see the run.

use std::sync::Arc;

use lnet_scenario::{Scenario, parse};
use lnet_sim::{Detail, Played, play};

pub(crate) fn load(name: &str) -> Arc<Scenario> {
    let path = format!("{}/../../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    Arc::new(parse(&path, &std::fs::read_to_string(&path).unwrap()).unwrap())
}

pub(crate) fn must_hold(scenario: &Arc<Scenario>, seed: Option<u64>) -> Played {
    let played = play(scenario.clone(), seed, Detail::Moments);
    if !played.holds() {
        let lines = played.lines.join("\n");
        let violation = played.violation.map(|v| v.to_string()).unwrap_or_default();
        panic!(
            "{lines}\n{}VIOLATION {violation}\nulnet sim run scenarios/{}.toml --seed {}",
            played.summary, scenario.name, played.summary.seed
        );
    }
    played
}

#[test]
fn router_death_holds_its_bars() {
    must_hold(&load("router-death"), None);
}

#[test]
fn carrier_down_holds_its_bars() {
    must_hold(&load("carrier-down"), None);
}

#[test]
fn black_hole_holds_its_bars() {
    must_hold(&load("black-hole"), None);
}

#[test]
fn flapping_holds_its_bars() {
    must_hold(&load("flapping"), None);
}

#[test]
fn dark_holds_its_bars() {
    must_hold(&load("dark"), None);
}
