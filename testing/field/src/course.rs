//! The course of a run: when the faults came and went, and when there was no way at all.

use std::time::Duration;

use lnet_scenario::{Fault, FaultKind, NodeId, Scenario};

use crate::clock::{Micros, micros};
use crate::fault::{self, Step};

/// A step, when it was begun and when it was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) step: Step,
    pub(crate) began: Micros,
    pub(crate) done: Micros,
}

/// What was done, and when.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) begin: Micros,
    pub(crate) end: Micros,
    /// When the first fault began, and when the last was over (the end, if it stayed).
    pub(crate) faults: (Micros, Micros),
    /// When each of them began.
    pub(crate) begun: Vec<Micros>,
    /// When each change of a carrier that flaps was begun.
    pub(crate) flaps: Vec<Micros>,
    /// When there was no way between the two ends of the load.
    pub(crate) dark: Vec<(Micros, Micros)>,
}

impl Course {
    /// The course of `scenario` for the ends `a` and `b`, from `begin` on.
    pub(crate) fn new(
        scenario: &Scenario,
        (a, b): (NodeId, NodeId),
        begin: Micros,
        done: &[Done],
    ) -> Self {
        let end = begin + micros(scenario.duration);
        let of = |d: &Done| scenario.faults.get(d.step.fault);
        let first = done.first().map(|d| d.began);
        let lasting = done.iter().filter_map(of).any(|f| f.until.is_none());
        let last = done.last().map(|d| d.done).filter(|_| !lasting);
        let is_flap = |d: &&Done| of(d).is_some_and(|f| matches!(f.kind, FaultKind::Flap { .. }));
        // As it was done rather than as it was planned.
        let real = |at: Duration, on: bool| {
            let meant = |f: &Fault| if on { f.at == at } else { f.until == Some(at) };
            let step = done.iter().find(|d| d.step.on == on && of(d).is_some_and(meant));
            step.map_or_else(|| begin + micros(at), |d| if on { d.began } else { d.done })
        };
        let dark = fault::dark(scenario, a, b).into_iter();
        Self {
            begin,
            end,
            faults: (first.unwrap_or(end), last.unwrap_or(end)),
            begun: done.iter().filter(|d| d.step.on).map(|d| d.began).collect(),
            flaps: done.iter().filter(is_flap).map(|d| d.began).collect(),
            dark: dark.map(|(from, to)| (real(from, true), real(to, false))).collect(),
        }
    }
}
