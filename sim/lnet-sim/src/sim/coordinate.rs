//! The coordinator of a gni fabric (PA-079, PA-080): a blade reports a failed link, routes without the link
//! are computed, the fabric is suspended, routes are installed, the fabric goes on. Each step is a line of
//! the coordinator's log; while packets move, routes are checked as they change.

use core::time::Duration;

use lnet_scenario::{Direction, FaultKind, LinkEvent, Links as Ends, Transport};

use super::{Event, Sim};
use crate::directory::HostId;
use crate::fabric::{Fabric, Happening};
use crate::links::Effect;
use crate::observe::Seen;
use crate::routes::{Inconsistent, Ring};

/// How often routes are looked at while they are installed.
const MOMENTS: u32 = 16;

/// A step of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A blade's daemon has reported the failure.
    Reported,
    /// Routes are computed; the fabric is suspended.
    Computed,
    /// So many parts of [`MOMENTS`] of the blades have the new routes.
    Installing(u32),
}

impl<F: Fabric> Sim<F> {
    /// A link fails.
    pub(super) fn link_fails(&mut self, index: usize, event: &LinkEvent) {
        let links = Ends { on: event.on.clone(), peer: None, direction: Direction::Both };
        self.rule(index, &links, Effect::Cut);
        self.queue.push(self.now + event.detect, Event::Coordinate(index, Step::Reported));
        let computed = event.detect + event.compute;
        self.queue.push(self.now + computed, Event::Coordinate(index, Step::Computed));
        let begins = computed + event.quiesce.saturating_sub(event.install);
        for n in 0..=MOMENTS {
            let at = begins + event.install * n / MOMENTS;
            // The last part is there just before the fabric goes on.
            let at = at.min(event.lasts().saturating_sub(Duration::from_nanos(1)));
            self.queue.push(self.now + at, Event::Coordinate(index, Step::Installing(n)));
        }
    }

    pub(super) fn coordinate(&mut self, index: usize, step: Step) {
        let scenario = self.scenario.clone();
        let Some(FaultKind::LinkEvent(event)) = scenario.faults.get(index).map(|f| &f.kind) else {
            return;
        };
        match step {
            Step::Reported => self.say(None, "coordinator: a blade reports a failed link"),
            Step::Computed => {
                self.say(None, "coordinator: routes computed without the failed link");
                if !event.quiesce.is_zero() {
                    self.say(None, "coordinator: network quiesced");
                    self.suspend(&[event.net], true);
                }
            }
            Step::Installing(part) => self.install(index, event, part),
        }
    }

    /// Part of the blades have the new routes. What is wrong with them counts if packets move.
    fn install(&mut self, index: usize, event: &LinkEvent, part: u32) {
        let on_net = |id: &HostId| {
            let rails = &self.hosts[id.0 as usize].rails;
            rails.iter().any(|r| self.directory.rail(r.ix).net == event.net)
        };
        let nodes: Vec<HostId> = (0..self.hosts.len() as u32).map(HostId).filter(on_net).collect();
        let first = event.on.nodes().first().map_or(0, |node| node.0);
        let place = nodes.iter().position(|id| id.0 == first).unwrap_or(0);
        let ring = Ring::new(nodes.len(), place);
        if !self.links.is_quiet(event.net) && (1..MOMENTS).contains(&part) {
            let found = ring.check(ring.blades() * part as usize / MOMENTS as usize);
            let sum = self.inconsistent.entry(index).or_default();
            sum.loops = sum.loops.max(found.loops);
            sum.dead_ends = sum.dead_ends.max(found.dead_ends);
        }
        if part == MOMENTS {
            self.say(None, "coordinator: routes installed");
        }
    }

    /// New routes are in force.
    pub(super) fn link_avoided(&mut self, index: usize, event: &LinkEvent) {
        if !event.quiesce.is_zero() {
            self.suspend(&[event.net], false);
            self.say(None, "coordinator: network unquiesced");
        }
        let found = self.inconsistent.remove(&index).unwrap_or_default();
        if found != Inconsistent::default() {
            let Inconsistent { loops, dead_ends } = found;
            let line = self.scenario.faults.get(index).map_or(0, |fault| fault.line);
            self.tally.complaints.push(format!(
                "link_event (line {line}): routes have changed while packets moved: {loops} pairs of \
                 blades in a loop, {dead_ends} at a dead end"
            ));
        }
    }

    /// Networks stand still, or go on; nodes of a gni fabric log it (PA-157).
    pub(super) fn suspend(&mut self, nets: &[u16], begins: bool) {
        self.links.quiesce(nets, begins);
        let (what, line) = match begins {
            true => (Happening::Suspended(nets), "LNet: Quiesce start: hardware quiesce"),
            false => (Happening::Resumed(nets), "LNet: Quiesce complete: hardware quiesce"),
        };
        self.notify_fabric(&what);
        for id in (0..self.hosts.len() as u32).map(HostId) {
            let host = &self.hosts[id.0 as usize];
            let logs = |net: u16| {
                nets.contains(&net) && self.links.transport(net.into()) == Transport::Gni
            };
            if host.alive && host.rails.iter().any(|r| logs(self.directory.rail(r.ix).net)) {
                self.say(Some(id), line);
            }
        }
    }

    fn say(&mut self, host: Option<HostId>, line: &str) {
        self.see(&Seen::Console { host, line });
    }
}
