//! How a run went over time, in equal parts of it: what each rail carried and was thought of, how long
//! exchanges took, and what happened when. What pages and tables are made of.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;

use hdrhistogram::Histogram;
use lnet::{Doubt, HEALTH_MAX};
use lnet_types::{Instant, Nid};

use crate::directory::{HostId, RailIx};
use crate::observe::{Observer, Seen, View};

/// Parts of the time.
pub const SLOTS: usize = 240;

/// The worst judgement of a rail during a part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Full health, no suspicion.
    #[default]
    Healthy,
    /// A node suspected it (DEC-31).
    Suspected,
    /// This much health is lacking.
    Degraded {
        /// 1 to 1000.
        lacks: u32,
    },
    /// Its host was dead.
    Dead,
}

/// What became of one rail.
#[derive(Clone, Debug, Default)]
pub struct RailCourse {
    /// Messages that left by it, by parts of the time.
    pub messages: Vec<u32>,
    /// Their payload, bytes.
    pub bytes: Vec<u64>,
    /// What was thought of it, by parts of the time. Empty: always well.
    pub standing: Vec<Standing>,
}

/// Exchanges that ended in a part of the time.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// Times of those that ended well, nanoseconds.
    pub times: Option<Histogram<u64>>,
    /// Those that failed.
    pub failed: u64,
}

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// How long one part is.
    pub slot: Duration,
    /// Rails by number, those that did anything.
    pub rails: BTreeMap<RailIx, RailCourse>,
    /// Their NIDs.
    pub nids: BTreeMap<RailIx, Nid>,
    /// Exchanges by parts of the time.
    pub ends: Vec<Ends>,
    /// Parts of the time that there were: a run may end early.
    pub reached: usize,
    /// Faults: index in the scenario, when it began, and when it ended, since the scenario's
    /// beginning.
    pub faults: Vec<(usize, Duration, Option<Duration>)>,
}

/// Writes a [`Course`].
#[derive(Debug)]
pub struct Recorder {
    course: Rc<RefCell<Course>>,
    /// Judgements of rails now, by host; full health is not here.
    health: BTreeMap<RailIx, BTreeMap<HostId, u32>>,
    doubts: BTreeMap<(HostId, Nid, Nid), Doubt>,
    doubted: BTreeMap<RailIx, u32>,
    /// Until which part of the time the standing of a rail is written down.
    written: BTreeMap<RailIx, usize>,
}

impl Recorder {
    /// A recorder of a run that takes so long, warm-up not included, and what it writes.
    pub fn new(whole: Duration) -> (Self, Rc<RefCell<Course>>) {
        let slot = (whole / SLOTS as u32).max(Duration::from_nanos(1));
        let ends = vec![Ends::default(); SLOTS];
        let course = Rc::new(RefCell::new(Course { slot, ends, ..Course::default() }));
        let recorder = Self {
            course: course.clone(),
            health: BTreeMap::new(),
            doubts: BTreeMap::new(),
            doubted: BTreeMap::new(),
            written: BTreeMap::new(),
        };
        (recorder, course)
    }

    /// The part of the time that it is now; of the warm-up what is thought at its end counts.
    fn slot(&self, view: &View<'_>) -> usize {
        let slot = self.course.borrow().slot.as_nanos().max(1);
        let passed = view.now.saturating_since(Instant::ZERO + view.scenario.warm_up);
        usize::try_from(passed.as_nanos() / slot).unwrap_or(usize::MAX).min(SLOTS - 1)
    }

    fn standing(&self, rail: RailIx, view: &View<'_>) -> Standing {
        let host = view.directory.rail(rail).host.and_then(|h| view.host(h));
        if host.is_some_and(|h| !h.alive) { Standing::Dead } else { self.opinion(rail) }
    }

    /// The worst that is thought of a rail, dead or alive.
    fn opinion(&self, rail: RailIx) -> Standing {
        let worst = self.health.get(&rail).and_then(|by| by.values().min());
        match worst {
            Some(health) => Standing::Degraded { lacks: HEALTH_MAX.saturating_sub(*health) },
            None if self.doubted.contains_key(&rail) => Standing::Suspected,
            None => Standing::Healthy,
        }
    }

    /// Something is to change for a rail: what was until now is written down, and what is then counts
    /// for the same part of the time, if it is worse.
    fn change(&mut self, rail: RailIx, view: &View<'_>, change: impl FnOnce(&mut Self)) {
        let (slot, before) = (self.slot(view), self.standing(rail, view));
        change(self);
        let after = self.standing(rail, view);
        self.write(rail, view, slot, before, after);
    }

    fn write(
        &mut self,
        rail: RailIx,
        view: &View<'_>,
        slot: usize,
        before: Standing,
        after: Standing,
    ) {
        let mut course = self.course.borrow_mut();
        course.nids.insert(rail, view.directory.rail(rail).nid);
        let standing = &mut course.rails.entry(rail).or_default().standing;
        if standing.is_empty() {
            standing.resize(SLOTS, Standing::Healthy);
        }
        let from = self.written.insert(rail, slot).unwrap_or(0);
        for (n, s) in standing.iter_mut().enumerate().take(slot + 1).skip(from) {
            *s = (*s).max(before);
            if n == slot {
                *s = (*s).max(after);
            }
        }
    }
}

impl Observer for Recorder {
    fn name(&self) -> &'static str {
        "course"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let slot = self.slot(view);
        match *seen {
            Seen::Sent { .. } if view.now < Instant::ZERO + view.scenario.warm_up => {}
            Seen::Sent { rail, transmit, .. } => {
                let mut course = self.course.borrow_mut();
                let nid = view.directory.rail(rail).nid;
                course.nids.entry(rail).or_insert(nid);
                let of = course.rails.entry(rail).or_default();
                if of.messages.is_empty() {
                    (of.messages, of.bytes) = (vec![0; SLOTS], vec![0; SLOTS]);
                }
                of.messages[slot] += 1;
                of.bytes[slot] += u64::from(transmit.hdr.payload_len);
            }
            Seen::Ended { took, well, .. } => {
                let ends = &mut self.course.borrow_mut().ends[slot];
                if !well {
                    ends.failed += 1;
                } else if let Some(times) = match &mut ends.times {
                    Some(times) => Some(times),
                    // Two digits are more than a picture shows; it grows with its greatest value.
                    none => Histogram::new(2).ok().map(|h| none.insert(h)),
                } {
                    // As long as the scenario at most: it fits.
                    let _ = times.record(took.as_nanos() as u64);
                }
            }
            Seen::Health { host, nid, to, .. } => {
                let Some(rail) = view.directory.find(nid) else { return Ok(()) };
                self.change(rail, view, |all| {
                    let by = all.health.entry(rail).or_default();
                    match to < HEALTH_MAX {
                        true => _ = by.insert(host, to),
                        false => _ = by.remove(&host),
                    }
                    if by.is_empty() {
                        all.health.remove(&rail);
                    }
                });
            }
            Seen::Doubt { host, local, peer, doubt } => {
                // Which of the two ends it is, is unknown; it is the other one for the reporting
                // host.
                if let Some(rail) = view.directory.find(peer) {
                    self.change(rail, view, |all| all.doubt((host, local, peer), rail, doubt));
                }
                match doubt {
                    Doubt::None => _ = self.doubts.remove(&(host, local, peer)),
                    doubt => _ = self.doubts.insert((host, local, peer), doubt),
                }
            }
            Seen::Died { host } => self.died(host, view, slot),
            Seen::Born { host } => {
                for rail in rails_of(host, view) {
                    self.write(rail, view, slot, Standing::Dead, self.opinion(rail));
                }
            }
            Seen::Fault { index, begins: true, .. } => {
                self.course.borrow_mut().faults.push((index, since(view), None));
            }
            Seen::Fault { index, begins: false, .. } => {
                let mut course = self.course.borrow_mut();
                let mine = course.faults.iter_mut().rev().find(|(n, ..)| *n == index);
                if let Some((_, _, end)) = mine {
                    *end = Some(since(view));
                }
            }
            Seen::Sample => self.up_to_date(view),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, view: &View<'_>) -> Result<(), String> {
        self.up_to_date(view);
        Ok(())
    }
}

impl Recorder {
    /// Writes down what is so now.
    fn up_to_date(&mut self, view: &View<'_>) {
        let slot = self.slot(view);
        let rails: Vec<RailIx> = self.written.keys().copied().collect();
        for rail in rails {
            let standing = self.standing(rail, view);
            self.write(rail, view, slot, standing, standing);
        }
        self.course.borrow_mut().reached = slot + 1;
    }

    fn doubt(&mut self, rail: (HostId, Nid, Nid), at: RailIx, doubt: Doubt) {
        let before = self.doubts.get(&rail).copied().unwrap_or_default();
        let count = self.doubted.entry(at).or_default();
        match (before, doubt) {
            (Doubt::None, Doubt::None) => {}
            (Doubt::None, _) => *count += 1,
            (_, Doubt::None) => *count = count.saturating_sub(1),
            _ => {}
        }
        if *count == 0 {
            self.doubted.remove(&at);
        }
    }

    /// A host dies, and what it thought with it.
    fn died(&mut self, host: HostId, view: &View<'_>, slot: usize) {
        for rail in rails_of(host, view) {
            self.write(rail, view, slot, self.opinion(rail), Standing::Dead);
        }
        let judged: Vec<RailIx> =
            self.health.iter().filter(|(_, by)| by.contains_key(&host)).map(|(r, _)| *r).collect();
        for rail in judged {
            self.change(rail, view, |all| {
                if let Some(by) = all.health.get_mut(&rail) {
                    by.remove(&host);
                    if by.is_empty() {
                        all.health.remove(&rail);
                    }
                }
            });
        }
        let doubts: Vec<(HostId, Nid, Nid)> =
            self.doubts.keys().filter(|(h, ..)| *h == host).copied().collect();
        for rail in doubts {
            if let Some(at) = view.directory.find(rail.2) {
                self.change(at, view, |all| all.doubt(rail, at, Doubt::None));
            }
            self.doubts.remove(&rail);
        }
    }
}

fn since(view: &View<'_>) -> Duration {
    view.now.saturating_since(Instant::ZERO + view.scenario.warm_up)
}

fn rails_of(host: HostId, view: &View<'_>) -> Vec<RailIx> {
    view.host(host).map(|h| h.rails.iter().map(|r| r.ix).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Messages, Sim};

    #[test]
    fn a_dead_server_is_dead_from_its_death_to_its_return_and_all_messages_are_counted() {
        let text = "name = \"x\"\nduration = \"30s\"\n[[net]]\nname = \"tcp\"\n\
                    [[node]]\nname = \"a\"\nrails = [\"tcp\", \"tcp\"]\n\
                    [[node]]\nname = \"b\"\nrails = [\"tcp\"]\n\
                    [[workload]]\nkind = \"put\"\nfrom = \"a\"\nto = \"b\"\nevery = \"100ms\"\nsize = 10\n\
                    timeout = \"5s\"\n\
                    [[fault]]\nkind = \"kill\"\non = \"b\"\nat = \"10s\"\nfor = \"10s\"\n";
        let scenario = Arc::new(lnet_scenario::parse("x", text).unwrap());
        let mut sim = Sim::new(scenario, None, Messages::new());
        let (recorder, course) = Recorder::new(Duration::from_secs(60));
        sim.observe(Box::new(recorder));
        sim.run().unwrap();
        let course = course.borrow();
        let sent: u64 =
            course.rails.values().flat_map(|r| &r.messages).map(|n| u64::from(*n)).sum();
        assert_eq!(sent, sim.tally().messages);
        let ended: u64 = course.ends.iter().map(|e| e.failed).sum();
        assert_eq!(ended, sim.tally().errors);
        let nid = sim.view().scenario.world.nodes[1].rails[0].nid;
        let rail = sim.view().directory.find(nid).unwrap();
        let standing = &course.rails[&rail].standing;
        // Four parts a second.
        assert_eq!(standing[41..79], [Standing::Dead; 38], "{standing:?}");
        assert!(standing[..39].iter().all(|s| *s == Standing::Healthy), "{standing:?}");
        assert!(standing[85..].iter().all(|s| *s != Standing::Dead), "{standing:?}");
        let [(0, began, Some(ended))] = course.faults[..] else { panic!("{:?}", course.faults) };
        assert_eq!((began.as_secs(), ended.as_secs()), (10, 20));
    }
}
