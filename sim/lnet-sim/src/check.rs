//! Checkers: what must hold in every world, seen from outside.

mod control;
mod ends;
mod settled;
mod steady;
mod tables;

use core::time::Duration;

use lnet_scenario::Scenario;

pub(crate) use settled::is_mistaken;

use crate::observe::Observer;

/// What checkers allow.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How long a descriptor's operation may take beyond the node's time limit for it.
    pub late_max: Duration,
    /// Control messages of its own that a node may send in one second, beside some for each peer.
    pub control_per_second: u64,
    /// Messages that drivers may hold at any time.
    pub in_hand_max: usize,
    /// Whether a world that was left alone must be well at its end: no fault lasts, and there was
    /// time.
    pub must_be_well: bool,
    /// Whether all that was under way must have come to its end.
    pub must_be_home: bool,
}

impl Bounds {
    /// What a scenario should keep.
    pub fn for_scenario(scenario: &Scenario) -> Self {
        let lasting = scenario.faults.iter().any(|f| {
            use lnet_scenario::FaultKind as K;
            f.until.is_none()
                && !matches!(f.kind, K::Reset(_) | K::Tune { .. } | K::NiAdd { .. } | K::NiDel(_))
                // Its old NIDs are dead for ever.
                || matches!(f.kind, K::Kill { nids: Some(_), .. })
        });
        let calm = scenario
            .faults
            .iter()
            .filter_map(|f| f.until)
            .max()
            .is_none_or(|end| end + Duration::from_secs(15) <= scenario.duration);
        Self {
            late_max: Duration::from_secs(30),
            control_per_second: 100,
            in_hand_max: 1 << 20,
            // Where exchanges are expected to fail, so are the pings that would find all well.
            must_be_well: calm && !lasting && scenario.bars.errors == Some(0),
            must_be_home: true,
        }
    }
}

/// All checkers.
pub fn all_checkers(bounds: &Bounds) -> Vec<Box<dyn Observer>> {
    vec![
        Box::new(ends::OneEnd::new(*bounds)),
        Box::new(ends::OnceAndIntact::default()),
        Box::new(steady::Health),
        Box::new(tables::Tables::default()),
        Box::new(control::ControlTraffic::new(*bounds)),
        Box::new(steady::Memory::new(*bounds)),
        Box::new(settled::AllHome::new(*bounds)),
    ]
}
