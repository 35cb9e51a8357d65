//! A whole run in one call.

use std::sync::Arc;

use lnet_scenario::{Fidelity, Scenario};

use crate::bytes::Bytes;
use crate::check::{Bounds, all_checkers};
use crate::fabric::Fabric;
use crate::message::Messages;
use crate::observe::{Observer, Violation};
use crate::rpc::{FileModel, LockModel, RpcModel};
use crate::sim::Sim;
use crate::summary::Summary;
use crate::trace::{Detail, Tracer};

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Played {
    /// Its figures.
    pub summary: Summary,
    /// Its lines.
    pub lines: Vec<String>,
    /// What must not be, if it was.
    pub violation: Option<Violation>,
}

impl Played {
    /// Whether nothing was violated and all bars hold.
    pub fn holds(&self) -> bool {
        self.violation.is_none() && self.summary.holds()
    }
}

/// Plays a scenario under all checkers, at its fidelity.
pub fn play(scenario: Arc<Scenario>, seed: Option<u64>, detail: Detail) -> Played {
    play_before(scenario, seed, detail, Vec::new())
}

/// The same before the eyes of others besides.
pub fn play_before(
    scenario: Arc<Scenario>,
    seed: Option<u64>,
    detail: Detail,
    mut others: Vec<Box<dyn Observer>>,
) -> Played {
    others.extend(all_checkers(&Bounds::for_scenario(&scenario)));
    play_under(scenario, seed, detail, others)
}

/// Plays a scenario, at its fidelity, while these look on.
pub(crate) fn play_under(
    scenario: Arc<Scenario>,
    seed: Option<u64>,
    detail: Detail,
    judges: Vec<Box<dyn Observer>>,
) -> Played {
    match scenario.fidelity {
        Fidelity::Messages => play_over(Messages::new(), scenario, seed, detail, judges),
        Fidelity::Bytes => {
            let fabric = Bytes::new(scenario.bytes);
            play_over(fabric, scenario, seed, detail, judges)
        }
    }
}

fn play_over<F: Fabric>(
    fabric: F,
    scenario: Arc<Scenario>,
    seed: Option<u64>,
    detail: Detail,
    judges: Vec<Box<dyn Observer>>,
) -> Played {
    let mut sim = Sim::new(scenario.clone(), seed, fabric);
    let (tracer, trace) = Tracer::new(detail);
    sim.observe(Box::new(tracer));
    for judge in judges {
        sim.observe(judge);
    }
    if !scenario.rpc.targets.is_empty() {
        sim.observe(Box::new(RpcModel::new(&scenario)));
    }
    if LockModel::is_about(&scenario) {
        sim.observe(Box::new(LockModel::new(&scenario)));
    }
    if FileModel::is_about(&scenario) {
        sim.observe(Box::new(FileModel::new(&scenario)));
    }
    let violation = sim.run().err();
    let trace = trace.take();
    let summary = Summary::new(&scenario, sim.seed(), sim.tally(), trace.hash());
    Played { summary, lines: trace.lines, violation }
}
