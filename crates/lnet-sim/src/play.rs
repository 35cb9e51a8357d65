//! A whole run in one call.

use std::sync::Arc;

use lnet_scenario::Scenario;

use crate::check::{Bounds, all_checkers};
use crate::message::Messages;
use crate::observe::{Observer, Violation};
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

/// Plays a scenario at message level under all checkers.
pub fn play(scenario: Arc<Scenario>, seed: Option<u64>, detail: Detail) -> Played {
    play_before(scenario, seed, detail, Vec::new())
}

/// The same before the eyes of others besides.
pub fn play_before(
    scenario: Arc<Scenario>,
    seed: Option<u64>,
    detail: Detail,
    others: Vec<Box<dyn Observer>>,
) -> Played {
    let mut sim = Sim::new(scenario.clone(), seed, Messages::new());
    let (tracer, trace) = Tracer::new(detail);
    sim.observe(Box::new(tracer));
    for observer in others {
        sim.observe(observer);
    }
    for checker in all_checkers(&Bounds::for_scenario(&scenario)) {
        sim.observe(checker);
    }
    let violation = sim.run().err();
    let trace = trace.take();
    let summary = Summary::new(&scenario, sim.seed(), sim.tally(), trace.hash());
    Played { summary, lines: trace.lines, violation }
}
