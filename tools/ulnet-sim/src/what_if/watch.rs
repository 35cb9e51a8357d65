//! Plays one of the two worlds and remembers what their comparison needs.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use lnet::Doubt;
use lnet_scenario::Scenario;
use lnet_sim::{
    AttemptId, Course, Detail, HostId, Observer, Played, Seen, Summary, View, Violation,
    play_before,
};
use lnet_types::{Instant, Nid};

/// A slower exchange than in the healthy run is a stall if it is slower by so much.
const STALL_MIN: Duration = Duration::from_millis(10);

/// Sender and target.
type Flow = (HostId, Nid);

/// How a node notices, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sense {
    Suspicion,
    Health,
    Route,
}

/// What was seen from the moment of the fault on.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Longest exchange, and how many failed.
    pub(super) flows: BTreeMap<Flow, (Duration, u64)>,
    /// After which time a node first noticed what, by each of its senses.
    pub(super) noticed: BTreeMap<(HostId, Sense), (Duration, String)>,
    under_way: BTreeMap<AttemptId, Nid>,
}

/// One of the two plays.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) summary: Summary,
    pub(super) watched: Watched,
    /// How it went over time.
    pub(super) course: Course,
    /// Moments.
    pub(super) lines: Vec<String>,
    /// What a checker did not allow.
    pub(super) violation: Option<Violation>,
}

/// Two that wait for each other longer than in the healthy world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    pub(super) from: HostId,
    pub(super) to: Nid,
    /// Longest exchange in the healthy world.
    pub(super) before: Duration,
    /// And in the other one.
    pub(super) after: Duration,
    /// Exchanges that failed in that one only.
    pub(super) failed: u64,
}

/// Fills a [`Watched`].
struct Watcher {
    seen: Rc<RefCell<Watched>>,
    from: Instant,
}

impl Observer for Watcher {
    fn name(&self) -> &'static str {
        "what-if"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let mut to_note = self.seen.borrow_mut();
        let since = view.now.saturating_since(self.from);
        let mut notice = |host: HostId, sense, what: &dyn Fn() -> String| {
            if view.now >= self.from {
                to_note.noticed.entry((host, sense)).or_insert_with(|| (since, what()));
            }
        };
        match *seen {
            Seen::Begun { attempt, to, .. } => {
                to_note.under_way.insert(attempt, to);
            }
            Seen::Ended { host, attempt, took, well, .. } => {
                let Some(to) = to_note.under_way.remove(&attempt) else { return Ok(()) };
                if view.now >= self.from {
                    let flow = to_note.flows.entry((host, to)).or_default();
                    flow.0 = flow.0.max(took);
                    flow.1 += u64::from(!well);
                }
            }
            Seen::Doubt { host, local, peer, doubt } if doubt > Doubt::None => {
                notice(host, Sense::Suspicion, &|| {
                    format!("suspects the rail {local} → {peer}: {doubt}")
                });
            }
            Seen::Health { host, nid, from, to } if to < from => {
                notice(host, Sense::Health, &|| format!("health of {nid} {from} → {to}"));
            }
            Seen::Route { host, gateway, up: false } => {
                notice(host, Sense::Route, &|| format!("route by {gateway} is down"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Plays a scenario under all checkers, and what was seen from `from` on.
pub(super) fn play(scenario: Arc<Scenario>, seed: Option<u64>, from: Instant) -> Side {
    let seen = Rc::new(RefCell::new(Watched::default()));
    let (recorder, course) = crate::recorder(&scenario);
    let watcher = Watcher { seen: seen.clone(), from };
    let others: Vec<Box<dyn Observer>> = vec![Box::new(watcher), Box::new(recorder)];
    let Played { summary, lines, violation } = play_before(scenario, seed, Detail::Moments, others);
    Side { summary, watched: seen.take(), course: course.take(), lines, violation }
}

/// Pairs that are slower than in the healthy world or have lost something, the worst first.
pub(super) fn stalls(sound: &Side, faulted: &Side) -> Vec<Stall> {
    let flows = faulted.watched.flows.iter();
    let mut all: Vec<Stall> = flows
        .filter_map(|(&(from, to), &(after, failed))| {
            let (before, failed_before) =
                sound.watched.flows.get(&(from, to)).copied().unwrap_or_default();
            let failed = failed.saturating_sub(failed_before);
            let stalls = after > before + STALL_MIN || failed > 0;
            stalls.then_some(Stall { from, to, before, after, failed })
        })
        .collect();
    all.sort_by_key(|s| (core::cmp::Reverse((s.failed, s.after)), s.from, s.to));
    all
}
