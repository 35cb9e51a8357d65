//! What an event costs the clients of a site, counted from outside: evictions of clients that live, when
//! those that have crashed are gone, the longest wait of a program, the span in which clients have
//! reconnected, and the course of all that second by second. `cabinets.rs` and `site.rs` play with it.

use core::fmt;
use core::time::Duration;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use lnet_scenario::{FaultKind, Scenario};
use lnet_types::Instant;
use ptlrpc::ImportState;

use crate::directory::HostId;
use crate::message::Messages;
use crate::observe::{Observer, Seen, View};
use crate::rpc::{CallNo, LockSeen, RpcSeen};
use crate::sim::Sim;

/// How a site is, at one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteSecond {
    /// Connections that are lost and not yet made again.
    pub lost: usize,
    /// Locks that programs wait for.
    pub waiting: usize,
    /// Clients that live and were evicted up to now.
    pub evicted: usize,
}

/// What came of a play.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteRun {
    /// Clients that live and were evicted.
    pub evicted: usize,
    /// Connections of clients that have crashed which a target has never dropped.
    pub dead_left: usize,
    /// The longest that a target has kept a client that had crashed.
    pub dead_gone: Duration,
    /// The longest that I/O under a lock has taken, from the event on.
    pub stall: Duration,
    /// What all of it has taken together.
    pub io: Duration,
    /// Locks that were refused or lost, and I/O that failed with them.
    pub failed: usize,
    /// The longest that a program has waited for a lock; the locks of crashed clients are among them.
    pub lock_wait: Duration,
    /// From the beginning of the event until the last client had reconnected to its last target;
    /// `None`: none had to.
    pub span: Option<Duration>,
    /// Connections that were made again.
    pub reconnects: usize,
    /// Locks that were granted.
    pub granted: u64,
    /// How many clients of a thousand held a lock that another wanted, in the mean until the event.
    pub wanted_per_mille: u64,
    /// Messages of LNet.
    pub messages: u64,
    /// When the event began, seconds; `None`: it did not.
    pub event: Option<u64>,
    /// The course, second by second.
    pub course: Vec<SiteSecond>,
}

impl fmt::Display for SiteRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span =
            self.span.map_or_else(|| "-".to_owned(), |d| format!("{:.1} s", d.as_secs_f64()));
        write!(
            f,
            "{:>7} {:>9.1} s {:>4} {:>11.3} s {:>11.3} s {:>9} {:>10} {:>7} {:>6.1} %",
            self.evicted,
            self.dead_gone.as_secs_f64(),
            self.dead_left,
            self.stall.as_secs_f64(),
            self.lock_wait.as_secs_f64(),
            span,
            self.reconnects,
            self.granted,
            self.wanted_per_mille as f64 / 10.0,
        )
    }
}

/// What stands above the figures of a [`SiteRun`].
pub const SITE_HEAD: &str =
    "evicted   dead gone left   longest I/O     lock wait      span reconnects   locks   wanted";

#[derive(Debug, Default)]
struct Notes {
    run: SiteRun,
    event: Option<Instant>,
    /// When clients have died.
    died: BTreeMap<HostId, Instant>,
    /// Connections to targets, and whether they are in use.
    known: BTreeMap<(HostId, usize), bool>,
    lost: BTreeSet<(HostId, usize)>,
    evicted: BTreeSet<HostId>,
    /// Locks that are wanted, and I/O under way.
    asked: BTreeMap<CallNo, Instant>,
    using: BTreeMap<CallNo, Instant>,
    /// Locks that programs hold and others want.
    wanted: BTreeSet<CallNo>,
    /// Until when they were counted, and how long each was held and wanted by then, milliseconds.
    counted: Instant,
    held_wanted: u64,
}

struct Watcher(Rc<RefCell<Notes>>);

impl Notes {
    /// How long something has taken that is over now, or open at the end.
    fn took(&self, since: Option<Instant>, now: Instant) -> Duration {
        // What was over before the event says nothing about it.
        let counts = self.event.is_some_and(|event| now >= event);
        since.filter(|_| counts).map_or(Duration::ZERO, |since| now.saturating_since(since))
    }

    fn second(&self) -> SiteSecond {
        let (lost, waiting) = (self.lost.len(), self.asked.len());
        SiteSecond { lost, waiting, evicted: self.evicted.len() }
    }

    fn lock(&mut self, now: Instant, seen: LockSeen) {
        match seen {
            LockSeen::Asked { ask, .. } => {
                self.asked.insert(ask, now);
            }
            LockSeen::Granted { ask, .. } => {
                self.run.granted += 1;
                let since = self.asked.remove(&ask);
                self.run.lock_wait = self.run.lock_wait.max(self.took(since, now));
            }
            LockSeen::CalledBack { ask } => {
                self.wanted.insert(ask);
            }
            LockSeen::Using { ask } => {
                self.using.insert(ask, now);
            }
            LockSeen::Used { ask, .. } => {
                let since = self.using.remove(&ask);
                let took = self.took(since, now);
                self.run.stall = self.run.stall.max(took);
                self.run.io += took;
            }
            LockSeen::Shrunk { .. } => {}
            LockSeen::Released { ask } => {
                self.wanted.remove(&ask);
            }
            LockSeen::Lost { ask } | LockSeen::Refused { ask, .. } => {
                self.run.failed += 1;
                self.wanted.remove(&ask);
                self.asked.remove(&ask);
                self.using.remove(&ask);
            }
        }
    }

    fn rpc(&mut self, now: Instant, host: HostId, seen: &RpcSeen, view: &View<'_>) {
        match *seen {
            RpcSeen::State { target, state } => {
                let full = state == ImportState::Full;
                let before = self.known.insert((host, target), full);
                if before == Some(true) && !full && self.event.is_some() {
                    self.lost.insert((host, target));
                }
                if full && self.lost.remove(&(host, target)) {
                    self.run.reconnects += 1;
                    self.run.span = self.event.map(|event| now.saturating_since(event));
                }
            }
            RpcSeen::Invalidated { .. } => {
                self.evicted.insert(host);
            }
            RpcSeen::Lock { seen, .. } => self.lock(now, seen),
            RpcSeen::Evicted { ref client, .. } => {
                let node = client.rsplit_once('_').and_then(|(name, _)| {
                    view.scenario.world.find(name).map(|node| HostId(node.0))
                });
                if let Some(died) = node.and_then(|node| self.died.get(&node)) {
                    self.run.dead_gone = self.run.dead_gone.max(now.saturating_since(*died));
                    self.run.dead_left = self.run.dead_left.saturating_sub(1);
                }
            }
            _ => {}
        }
    }
}

impl Observer for Watcher {
    fn name(&self) -> &'static str {
        "cabinets"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let mut notes = self.0.borrow_mut();
        match *seen {
            Seen::Fault { kind, begins: true, .. } => {
                let clients = |node| !view.scenario.rpc.targets_of(node).is_empty();
                let crash = matches!(kind, FaultKind::Kill { nodes, .. }
                    if nodes.nodes().into_iter().all(clients));
                if !crash {
                    notes.event.get_or_insert(view.now);
                }
            }
            Seen::Died { host } => {
                notes.died.insert(host, view.now);
                let connected = notes.known.iter().filter(|((h, _), full)| *h == host && **full);
                notes.run.dead_left += connected.count();
            }
            Seen::Rpc { host, seen } => {
                if notes.event.is_none() {
                    let passed = view.now.saturating_since(notes.counted).as_millis();
                    let wanted = notes.wanted.len() as u64;
                    if passed > 0 {
                        notes.held_wanted += u64::try_from(passed).unwrap_or(0) * wanted;
                        notes.counted = view.now;
                    }
                }
                notes.rpc(view.now, host, seen, view);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Plays a scenario to its end; nothing else looks on. Nodes with targets to call that a fault kills are
/// those that crash; so many of the others live.
///
/// # Errors
/// Something was seen that can't be.
pub(super) fn watch_site(scenario: Scenario, seed: u64, living: u32) -> Result<SiteRun, String> {
    let scenario = Arc::new(scenario);
    let notes = Rc::new(RefCell::new(Notes::default()));
    let mut sim = Sim::new(scenario.clone(), Some(seed), Messages::new());
    sim.observe(Box::new(Watcher(notes.clone())));
    let mut course = Vec::new();
    for second in 0..=scenario.duration.as_secs() {
        sim.run_until(Instant::from_secs(second)).map_err(|violation| violation.to_string())?;
        course.push(notes.borrow().second());
    }
    let messages = sim.tally().messages;
    drop(sim);
    let mut notes = notes.take();
    // What is still waited for has waited until now.
    let end = Instant::ZERO + scenario.duration;
    let longest = |open: &BTreeMap<CallNo, Instant>| {
        let dead = |ask: &CallNo| notes.died.keys().any(|host| ask.is_of(host.0));
        let since = open.iter().filter(|(ask, _)| !dead(ask)).map(|(_, since)| *since).min();
        notes.took(since, end)
    };
    let (asked, using) = (longest(&notes.asked), longest(&notes.using));
    notes.run.lock_wait = notes.run.lock_wait.max(asked);
    notes.run.stall = notes.run.stall.max(using);
    notes.run.messages = messages;
    notes.run.evicted = notes.evicted.len();
    let clients = u64::from(living).max(1);
    let millis = notes.counted.as_nanos() / 1_000_000;
    notes.run.wanted_per_mille = notes.held_wanted * 1000 / (millis.max(1) * clients);
    notes.run.course = course;
    notes.run.event = notes.event.map(|at| at.as_nanos() / 1_000_000_000);
    Ok(notes.run)
}
