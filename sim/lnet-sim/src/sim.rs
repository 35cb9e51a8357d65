//! A world that runs: hosts, the fabric between them, what happens and who looks on.
//!
//! ```text
//!   Scenario ─► Sim::new ─► step: next event ─► host, fabric, program or fault
//!                                                  │
//!                            settle: outputs to the fabric, events to programs, until all is quiet
//!                                                  │
//!                            observers see it; the next event
//! ```
//!
//! One event at a time, one clock, one order. After each event every host that was touched is
//! drained, as the turn of a real node does it (`lnet-rt`, `shard.rs`).

mod coordinate;
mod faults;
mod life;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lnet::upper::UpperId;
use lnet::{Driver, Event as NodeEvent, Node, Output};
use lnet_scenario::Scenario;
use lnet_types::{Instant, Nid, Prng};

use crate::directory::{Directory, HostId, RailIx};
use crate::fabric::{Cx, Fabric, Happening};
use crate::host::{Host, KERNEL_LND_TIMEOUT};
use crate::links::{Links, RuleId};
use crate::message::Messages;
use crate::observe::{Observer, Seen, View, Violation, is_control};
use crate::programs::{Note, Programs, Wish};
use crate::queue::Queue;
use crate::routes::Inconsistent;
use crate::rpc::{Stage, settled_after};
use crate::tally::Tally;
use crate::uppers::MakeUpper;
use coordinate::Step;

/// Something to come.
#[derive(Debug)]
pub(crate) enum Event<E> {
    Fabric(E),
    /// A node's timer may be due.
    Timer(HostId),
    Wish(HostId, Wish),
    FaultBegins(usize),
    FaultEnds(usize),
    /// A node learns that a carrier went.
    CarrierKnown(RailIx),
    /// The carrier of a flapping rail goes or comes.
    Flap {
        index: usize,
        down: bool,
    },
    /// Other nodes take over the targets of those that a fault has killed.
    TakeOver(usize),
    /// A step of the recovery from a link event.
    Coordinate(usize, Step),
    Sample,
}

/// How a world is watched.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// How often observers are shown [`Seen::Sample`].
    pub sample_every: Duration,
    /// How long after the scenario's end things may still come to an end, before observers judge
    /// what is left.
    pub grace: Duration,
}

impl Default for Watch {
    fn default() -> Self {
        Self { sample_every: Duration::from_millis(500), grace: Duration::from_secs(30) }
    }
}

impl Watch {
    /// How the world of a scenario is watched: drivers with a time limit of their own hold messages
    /// longer than any program waits for them.
    pub fn of(scenario: &Scenario) -> Self {
        let mut watch = Self::default();
        if scenario.world.groups.iter().any(|g| g.settings().conduct.keeps_driver_timeout) {
            watch.grace += KERNEL_LND_TIMEOUT;
        }
        if !scenario.rpc.targets.is_empty() {
            watch.grace += settled_after(scenario);
        }
        watch
    }
}

/// A world, over some fabric.
pub struct Sim<F: Fabric = Messages> {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) seed: u64,
    pub(crate) now: Instant,
    pub(crate) queue: Queue<Event<F::Event>>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) directory: Directory,
    pub(crate) links: Links,
    pub(crate) fabric: F,
    pub(crate) programs: Programs,
    pub(crate) rng: Prng,
    pub(crate) dirty: Vec<HostId>,
    pub(crate) observers: Vec<Box<dyn Observer>>,
    pub(crate) tally: Tally,
    pub(crate) violation: Option<Violation>,
    /// Rules of faults that are in force.
    pub(crate) rules: BTreeMap<usize, Vec<RuleId>>,
    /// What hosts that stand still will do when they go on.
    pub(crate) stash: BTreeMap<HostId, Vec<Event<F::Event>>>,
    /// Rails without carrier: how many faults say so.
    pub(crate) carriers: BTreeMap<RailIx, u16>,
    /// Rails that a fault has added or removed, with their NIDs.
    pub(crate) moved: BTreeMap<usize, Vec<(HostId, Nid, u16)>>,
    pub(crate) gateways: BTreeMap<(HostId, Nid), bool>,
    /// What was wrong with routes of fabrics that change, by fault.
    pub(crate) inconsistent: BTreeMap<usize, Inconsistent>,
    /// What stands on the nodes of hosts, in each of their lives.
    pub(crate) standing: BTreeMap<HostId, Vec<MakeUpper>>,
    /// Where targets are served, and their disks.
    pub(crate) stage: Stage,
    /// The console of LNet selftest.
    pub(crate) console: Option<(HostId, UpperId)>,
    watch: Watch,
    /// Memory of [`Self::look_after`].
    events: VecDeque<NodeEvent>,
    wanted: VecDeque<Output>,
}

impl<F: Fabric> Sim<F> {
    /// The world of a scenario, at its beginning. `seed` instead of the scenario's own gives
    /// another play of the same.
    pub fn new(scenario: Arc<Scenario>, seed: Option<u64>, fabric: F) -> Self {
        let seed = seed.unwrap_or(scenario.seed);
        let mut rng = Prng::new(seed);
        let programs = Programs::new(scenario.clone(), rng.split());
        let mut sim = Self {
            links: Links::new(&scenario.world),
            seed,
            now: Instant::ZERO,
            queue: Queue::new(),
            hosts: Vec::new(),
            directory: Directory::default(),
            fabric,
            programs,
            rng,
            dirty: Vec::new(),
            observers: Vec::new(),
            tally: Tally::new(&scenario),
            violation: None,
            rules: BTreeMap::new(),
            stash: BTreeMap::new(),
            carriers: BTreeMap::new(),
            moved: BTreeMap::new(),
            gateways: BTreeMap::new(),
            inconsistent: BTreeMap::new(),
            standing: BTreeMap::new(),
            stage: Stage::new(&scenario),
            console: None,
            watch: Watch::of(&scenario),
            events: VecDeque::new(),
            wanted: VecDeque::new(),
            scenario,
        };
        sim.populate();
        sim.stand_selftest(life::CLOCKS_BEGIN);
        for (n, fault) in sim.scenario.faults.iter().enumerate() {
            sim.queue.push(time(fault.at), Event::FaultBegins(n));
        }
        sim
    }

    /// Adds an observer. To be called before the run.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    /// Changes how the world is watched. To be called before the run.
    pub fn set_watch(&mut self, watch: Watch) {
        self.watch = watch;
    }

    /// The world as it is.
    pub fn view(&self) -> View<'_> {
        View {
            now: self.now,
            scenario: &self.scenario,
            hosts: &self.hosts,
            directory: &self.directory,
            links: &self.links,
            in_hand: self.fabric.in_hand(),
        }
    }

    /// What was counted so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The seed of this play.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Events that are to come.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// An operator does something at a node that lives: adds, deletes, sets, asks. What follows from
    /// it happens when the world goes on.
    pub fn operate<R>(
        &mut self,
        host: HostId,
        what: impl FnOnce(&mut Node, Instant) -> R,
    ) -> Option<R> {
        let h = self.hosts.get_mut(host.0 as usize).filter(|h| h.is_running())?;
        let local = h.clock.local(self.now);
        let done = what(&mut h.node, local);
        self.touch(host);
        Some(done)
    }

    /// Plays the scenario to its end, and lets what is under way come to an end.
    ///
    /// # Errors
    /// The first thing that an observer did not allow.
    pub fn run(&mut self) -> Result<(), Violation> {
        if !self.observers.is_empty() {
            self.queue.push(self.now, Event::Sample);
        }
        let ends = [self.scenario.duration, self.scenario.duration + self.watch.grace];
        let played = ends.into_iter().try_for_each(|end| self.run_until(time(end)));
        // Figures are asked for just when something was found.
        for stats in self.rpc_stats() {
            self.tally.rpc.add(&stats);
        }
        if let Some(figures) = self.selftest_figures() {
            self.tally.selftest(figures);
        }
        self.tally.close(&self.hosts);
        played?;
        self.finish()
    }

    /// Plays up to `end`, that included.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_until(&mut self, end: Instant) -> Result<(), Violation> {
        self.programs.watched = !self.observers.is_empty();
        self.settle();
        while let Some((at, event)) = self.queue.pop_until(end) {
            self.now = self.now.max(at);
            self.tally.events += 1;
            self.handle(event);
            self.settle();
            self.hold_to(at);
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Notes what drivers did that none may do.
    fn hold_to(&mut self, at: Instant) {
        if let Some(what) = self.fabric.violations().into_iter().next() {
            self.violation.get_or_insert(Violation { at, checker: DRIVERS, what });
        }
    }

    fn finish(&mut self) -> Result<(), Violation> {
        self.fabric.check().map_err(|what| Violation { at: self.now, checker: DRIVERS, what })?;
        let mut observers = core::mem::take(&mut self.observers);
        let view = self.view();
        let outcome = observers.iter_mut().try_for_each(|o| {
            let checker = o.name();
            o.finish(&view).map_err(|what| Violation { at: view.now, checker, what })
        });
        self.observers = observers;
        outcome
    }

    fn handle(&mut self, event: Event<F::Event>) {
        match event {
            Event::Fabric(event) => self.with_fabric(|fabric, cx| fabric.event(cx, event)),
            Event::Timer(id) => {
                let host = &mut self.hosts[id.0 as usize];
                if host.paused {
                    return self.stash.entry(id).or_default().push(Event::Timer(id));
                }
                // Only the earliest counts: others were meant for something that is over.
                if host.armed > self.now || !host.alive {
                    return;
                }
                host.armed = Instant::FAR_FUTURE;
                let local = host.clock.local(self.now);
                host.uppers.handle_timeout(local, &mut host.node, &mut host.mem);
                if let Some((at, timer)) = host.node.next_timer().filter(|next| next.0 <= local) {
                    let timer = host.node.timer_view(at, timer);
                    host.node.handle_timeout(local);
                    self.see(&Seen::Timer { host: id, timer: &timer });
                }
                self.touch(id);
            }
            Event::Wish(id, wish) => {
                let host = &mut self.hosts[id.0 as usize];
                if host.paused {
                    return self.stash.entry(id).or_default().push(Event::Wish(id, wish));
                }
                if host.alive {
                    self.programs.due(self.now, id, host, wish);
                    self.collect();
                    self.touch(id);
                }
            }
            Event::FaultBegins(n) => self.fault_begins(n),
            Event::FaultEnds(n) => self.fault_ends(n),
            Event::CarrierKnown(ix) => self.carrier_known(ix),
            Event::Flap { index, down } => self.flap(index, down),
            Event::TakeOver(index) => self.taken_over(index),
            Event::Coordinate(index, step) => self.coordinate(index, step),
            Event::Sample => {
                if self.hosts.len() > ROUTES_WATCHED_HOSTS_MAX {
                    for n in 0..self.hosts.len() as u32 {
                        self.watch_routes(HostId(n));
                    }
                }
                self.see(&Seen::Sample);
                let end = time(self.scenario.duration + self.watch.grace);
                if self.now < end {
                    self.queue.push(self.now + self.watch.sample_every, Event::Sample);
                }
            }
        }
    }

    /// Lets the fabric do something.
    pub(crate) fn with_fabric<R>(
        &mut self,
        f: impl FnOnce(&mut F, &mut Cx<'_, F::Event>) -> R,
    ) -> R {
        let mut cx = Cx {
            now: self.now,
            hosts: &mut self.hosts,
            directory: &mut self.directory,
            links: &self.links,
            rng: &mut self.rng,
            queue: &mut self.queue,
            dirty: &mut self.dirty,
        };
        f(&mut self.fabric, &mut cx)
    }

    pub(crate) fn notify_fabric(&mut self, what: &Happening<'_>) {
        self.with_fabric(|fabric, cx| fabric.happened(cx, what));
    }

    /// Puts a host on the list of those to be looked after.
    pub(crate) fn touch(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        if !host.dirty {
            host.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Shows observers something.
    pub(crate) fn see(&mut self, seen: &Seen<'_>) {
        self.tally.see(self.now, seen, &self.scenario, &self.directory);
        if self.observers.is_empty() || self.violation.is_some() {
            return;
        }
        let mut observers = core::mem::take(&mut self.observers);
        let view = self.view();
        let mut violation = None;
        for o in &mut observers {
            if let Err(what) = o.see(seen, &view) {
                violation = Some(Violation { at: self.now, checker: o.name(), what });
                break;
            }
        }
        self.observers = observers;
        self.violation = violation;
    }

    /// Takes over what programs wish for and tell.
    pub(crate) fn collect(&mut self) {
        if !self.programs.wishes.is_empty() {
            for (host, at, wish) in self.programs.wishes.drain(..) {
                self.queue.push(at.max(self.now), Event::Wish(host, wish));
            }
        }
        if self.programs.notes.is_empty() {
            return;
        }
        let mut notes = core::mem::take(&mut self.programs.notes);
        for note in notes.drain(..) {
            match note {
                Note::Begun { host, workload, attempt, to, again } => {
                    self.see(&Seen::Begun { host, workload, attempt, to, again });
                }
                Note::Failed { host, attempt, why } => {
                    self.see(&Seen::Failed { host, attempt, why });
                }
                Note::Ended { host, workload, attempt, took, well } => {
                    self.see(&Seen::Ended { host, workload, attempt, took, well });
                }
                Note::Delivered { host, attempt, answer, intact } => {
                    self.see(&Seen::Delivered { host, attempt, answer, intact });
                }
                Note::Posted { host, buffer, floating } => {
                    self.see(&Seen::Posted { host, buffer, floating });
                }
                Note::Event { host, buffer, event } => {
                    self.see(&Seen::Event { host, buffer, event: &event });
                }
                Note::Gap { length } => self.tally.gap(length),
            }
        }
        self.programs.notes = notes;
    }

    /// Looks after all hosts that were touched, until all is quiet.
    fn settle(&mut self) {
        let mut at = 0;
        while let Some(&id) = self.dirty.get(at) {
            at += 1;
            self.look_after(id);
        }
        self.dirty.clear();
    }

    /// The turn of one host.
    fn look_after(&mut self, id: HostId) {
        let n = id.0 as usize;
        if self.hosts[n].is_running() {
            self.turn(id);
        }
        // What its own turn does to it belongs to that turn.
        self.hosts[n].dirty = false;
        if !self.hosts[n].is_running() {
            return;
        }
        self.with_fabric(|fabric, cx| fabric.flush(cx, id));
        self.arm(id);
        self.watch_health(id);
        self.watch_rails(id);
        if self.hosts.len() <= ROUTES_WATCHED_HOSTS_MAX {
            self.watch_routes(id);
        }
    }

    /// Takes from the node of a host whatever it has to give, until that is nothing.
    fn turn(&mut self, id: HostId) {
        let n = id.0 as usize;
        let lo_ni = self.hosts[n].node.loopback();
        let mut events = core::mem::take(&mut self.events);
        let mut wanted = core::mem::take(&mut self.wanted);
        loop {
            let mut busy = false;
            while self.hosts[n].node.take_events(&mut events) {
                for event in &mut events {
                    if !self.hosts[n].upper_event(self.now, event) {
                        self.programs.event(self.now, id, &mut self.hosts[n], event);
                    }
                }
                busy = true;
            }
            while let Some(report) = self.hosts[n].node.poll_report() {
                if !self.hosts[n].upper_report(self.now, &report) {
                    self.programs.report(self.now, id, &mut self.hosts[n], report);
                }
                busy = true;
            }
            while let Some(peer) = self.hosts[n].node.poll_lost_connection() {
                self.hosts[n].upper_lost_connection(self.now, peer);
                busy = true;
            }
            self.programs.go_on(self.now, id, &mut self.hosts[n]);
            if self.hosts[n].rpc.is_some() {
                self.collect_rpc(id);
            }
            if busy {
                self.collect();
            }
            let mut looped = false;
            while self.hosts[n].node.take_outputs(&mut wanted) {
                for output in &wanted {
                    looped |= self.carry_out(id, lo_ni, output);
                }
                busy = true;
            }
            if looped {
                let host = &mut self.hosts[n];
                let local = host.clock.local(self.now);
                host.lo.flush(local, &mut host.node, &mut host.mem);
            }
            let more = self.hosts[n].node.has_work() || (busy && self.programs.has_soon());
            if !more {
                break;
            }
        }
        (self.events, self.wanted) = (events, wanted);
    }

    /// Carries out an output of a node; whether the loopback driver has something to do.
    fn carry_out(&mut self, id: HostId, lo: Option<lnet_types::NiId>, output: &Output) -> bool {
        let n = id.0 as usize;
        match *output {
            Output::Send(ref t) if Some(t.ni) == lo => {
                let host = &mut self.hosts[n];
                let (local, msg) = (host.clock.local(self.now), t.msg);
                if let Err(fault) = host.lo.send(local, t, &host.mem) {
                    host.node.tx_refused(local, msg, fault);
                }
                true
            }
            Output::Send(ref t) => {
                let msg = t.msg;
                self.tally.sent(self.now, id, t, is_control(t));
                let rail = self.hosts[n].rail_of(t.ni);
                let outcome = self.with_fabric(|fabric, cx| fabric.send(cx, id, t));
                if let Some(rail) = rail.filter(|_| !self.observers.is_empty()) {
                    let refused = outcome.err();
                    self.see(&Seen::Sent { host: id, rail, transmit: t, refused });
                }
                if let Err(fault) = outcome {
                    let host = &mut self.hosts[n];
                    let local = host.clock.local(self.now);
                    host.node.tx_refused(local, msg, fault);
                }
                false
            }
            Output::Resume { ni, rx, ref verdict } if Some(ni) == lo => {
                let host = &mut self.hosts[n];
                let local = host.clock.local(self.now);
                host.lo.resume(local, rx, verdict.clone(), &mut host.node, &mut host.mem);
                true
            }
            Output::Resume { ni, rx, ref verdict } => {
                let verdict = verdict.clone();
                self.with_fabric(|fabric, cx| fabric.resume(cx, id, ni, rx, verdict));
                false
            }
            Output::Recall { ni, to, msg } => {
                let back = self.with_fabric(|fabric, cx| fabric.recall(cx, id, ni, to, msg));
                let host = &mut self.hosts[n];
                let local = host.clock.local(self.now);
                if back {
                    host.node.tx_recalled(local, msg);
                } else {
                    host.node.tx_begun(local, msg);
                }
                false
            }
            Output::Reclaim { ni, to } => {
                let messages = self.with_fabric(|fabric, cx| fabric.reclaim(cx, id, ni, to));
                if !messages.is_empty() {
                    let host = &mut self.hosts[n];
                    host.node.tx_in_doubt(host.clock.local(self.now), messages);
                }
                false
            }
            Output::Abandon { ni, .. } if Some(ni) == lo => false,
            Output::Abandon { ni, rx, msg } => {
                self.with_fabric(|fabric, cx| fabric.abandon(cx, id, ni, rx, msg));
                false
            }
            Output::Withdraw { ni, msg } => {
                self.with_fabric(|fabric, cx| fabric.withdraw(cx, id, ni, msg));
                false
            }
            Output::Release(region) => {
                self.hosts[n].mem.remove(region);
                false
            }
        }
    }

    /// Sees to it that a node's next deadline is kept.
    pub(crate) fn arm(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        let due = [host.node.poll_timeout(), host.uppers.poll_timeout()];
        let Some(local) = due.into_iter().flatten().min() else { return };
        let at = host.clock.global(local).max(self.now);
        if at < host.armed {
            host.armed = at;
            self.queue.push(at, Event::Timer(id));
        }
    }
}

/// The checker of drivers, which is the fabric's own.
const DRIVERS: &str = "drivers";
/// In larger worlds routes are looked at with each sample only.
const ROUTES_WATCHED_HOSTS_MAX: usize = 64;

/// A time of the scenario as one of the world.
pub(crate) fn time(d: Duration) -> Instant {
    Instant::ZERO + d
}
