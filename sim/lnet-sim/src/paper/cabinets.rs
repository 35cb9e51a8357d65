//! Nineteen cabinets: the site of the paper in three events (`scenarios/xc30-*.toml`), each played in
//! four arms. What must hold is counted from outside: evictions of clients that live, when those that have
//! crashed are gone, the longest wait of a program, the span in which clients have reconnected.

use core::fmt;
use core::time::Duration;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use lnet_scenario::{Change, FaultKind, Scenario, parse_changed};
use lnet_types::Instant;
use ptlrpc::ImportState;

use crate::directory::HostId;
use crate::message::Messages;
use crate::observe::{Observer, Seen, View};
use crate::rpc::{CallNo, LockSeen, RpcSeen};
use crate::sim::Sim;

/// An event that befalls the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CabinetEvent {
    /// What happens.
    pub name: &'static str,
    /// The file of the scenario.
    pub file: &'static str,
    text: &'static str,
}

/// The three events.
pub const EVENTS: [CabinetEvent; 3] = [
    CabinetEvent {
        name: "a router dies",
        file: "scenarios/xc30-router-dies.toml",
        text: include_str!("../../../../scenarios/xc30-router-dies.toml"),
    },
    CabinetEvent {
        name: "a router loses its far side",
        file: "scenarios/xc30-router-far-side.toml",
        text: include_str!("../../../../scenarios/xc30-router-far-side.toml"),
    },
    CabinetEvent {
        name: "two quiesces",
        file: "scenarios/xc30-link-event.toml",
        text: include_str!("../../../../scenarios/xc30-link-event.toml"),
    },
];

/// Values of a site: those of the files with some changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Its letter.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    changes: &'static [(&'static str, &'static str)],
}

/// Defaults of the time, which the paper begins with.
const BEFORE: [(&str, &str); 12] = [
    ("rpc.ast_resend", "false"),
    ("rpc.at_min", "5s"),
    ("rpc.at_max", "600s"),
    ("rpc.ldlm_enqueue_min", "100s"),
    ("net.gni.fast_reconnect", "false"),
    // No report of a node arrives while the scenario lasts.
    ("net.gni.node_events", "24h"),
    ("net.o2ib.timeout", "50s"),
    ("net.o2ib.keepalive", "100s"),
    ("node.server.tunables.live_router_check_interval", "60"),
    ("node.server.tunables.dead_router_check_interval", "60"),
    ("node.server.tunables.router_ping_timeout", "50"),
    ("node.router.nets.1.peer_timeout", "180"),
];

/// The same with callbacks that are sent again.
const RESEND: [(&str, &str); 12] = {
    let mut all = BEFORE;
    all[0] = ("rpc.ast_resend", "true");
    all
};

/// The four arms.
pub const ARMS: [Arm; 4] = [
    Arm { name: "A", what: "before the paper", changes: &BEFORE },
    Arm { name: "B", what: "callbacks sent again", changes: &RESEND },
    Arm { name: "C", what: "as the paper recommends", changes: &[] },
    Arm {
        name: "D",
        what: "profile default, as advised",
        changes: &[("profile", "\"default\""), ("rpc.profile", "\"default\"")],
    },
];

/// How many nodes of each kind a play has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CabinetSize {
    /// Clients that live.
    pub clients: u32,
    /// Names for which they compete, on each target.
    pub names: u32,
}

impl CabinetSize {
    /// As the files have it: a tenth.
    pub const TENTH: Self = Self { clients: 355, names: 270 };
}

/// What came of a play.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CabinetRun {
    /// Clients that live and were evicted.
    pub evicted: usize,
    /// Connections of clients that have crashed which a target has never dropped.
    pub dead_left: usize,
    /// The longest that a target has kept a client that had crashed.
    pub dead_gone: Duration,
    /// The longest that I/O under a lock has taken, from the event on.
    pub stall: Duration,
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
}

impl fmt::Display for CabinetRun {
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

/// What stands above the figures of a [`CabinetRun`].
pub const CABINET_HEAD: &str =
    "evicted   dead gone left   longest I/O     lock wait      span reconnects   locks   wanted";

#[derive(Debug, Default)]
struct Notes {
    run: CabinetRun,
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
                self.run.stall = self.run.stall.max(self.took(since, now));
            }
            LockSeen::Shrunk { .. } => {}
            LockSeen::Released { ask } => {
                self.wanted.remove(&ask);
            }
            LockSeen::Lost { ask } | LockSeen::Refused { ask, .. } => {
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

/// The scenario of an event in an arm.
///
/// # Errors
/// A text and an arm that do not fit; a test reads all.
pub fn cabinets(event: &CabinetEvent, arm: &Arm, size: CabinetSize) -> Result<Scenario, String> {
    let mut changes = arm
        .changes
        .iter()
        .map(|(place, value)| Change::new(place, value))
        .collect::<Result<Vec<_>, _>>()?;
    changes.push(Change::new("workload.0.names", &size.names.to_string())?);
    let counts = [("client".to_owned(), size.clients)];
    parse_changed(event.file, event.text, &counts, &changes).map_err(|e| e.to_string())
}

/// Plays an event in an arm. Nothing else looks on.
///
/// # Errors
/// As [`cabinets`].
pub fn play_cabinets(
    event: &CabinetEvent,
    arm: &Arm,
    size: CabinetSize,
    seed: u64,
) -> Result<CabinetRun, String> {
    let scenario = Arc::new(cabinets(event, arm, size)?);
    let notes = Rc::new(RefCell::new(Notes::default()));
    let mut sim = Sim::new(scenario.clone(), Some(seed), Messages::new());
    sim.observe(Box::new(Watcher(notes.clone())));
    sim.run_until(Instant::ZERO + scenario.duration).map_err(|violation| violation.to_string())?;
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
    let clients = u64::from(size.clients).max(1);
    let millis = notes.counted.as_nanos() / 1_000_000;
    notes.run.wanted_per_mille = notes.held_wanted * 1000 / (millis.max(1) * clients);
    Ok(notes.run)
}
