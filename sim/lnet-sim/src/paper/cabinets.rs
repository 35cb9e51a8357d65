//! Nineteen cabinets: the site of the paper in three events (`scenarios/xc30-*.toml`), each played in
//! four arms, as `watch.rs` counts it.

use core::fmt::Write as _;
use core::time::Duration;

use lnet_scenario::{Change, Scenario, parse_changed};

use super::watch::{SiteRun, watch_site};

/// An event that befalls the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CabinetEvent {
    /// What happens.
    pub name: &'static str,
    /// The file of the scenario.
    pub file: &'static str,
    /// Its text.
    pub(super) text: &'static str,
    /// Messages are lost with a node: where callbacks are not sent again, clients are evicted.
    loses: bool,
    /// The fabric stands still.
    quiesces: bool,
}

/// The three events.
pub const EVENTS: [CabinetEvent; 3] = [
    CabinetEvent {
        name: "a router dies",
        file: "scenarios/xc30-router-dies.toml",
        text: include_str!("../../../../scenarios/xc30-router-dies.toml"),
        loses: true,
        quiesces: false,
    },
    CabinetEvent {
        name: "a router loses its far side",
        file: "scenarios/xc30-router-far-side.toml",
        text: include_str!("../../../../scenarios/xc30-router-far-side.toml"),
        loses: false,
        quiesces: false,
    },
    CabinetEvent {
        name: "two quiesces",
        file: "scenarios/xc30-link-event.toml",
        text: include_str!("../../../../scenarios/xc30-link-event.toml"),
        loses: false,
        quiesces: true,
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

/// Of these, what makes nodes find dead routers late.
pub(super) const FOUND_LATE: &[(&str, &str)] = BEFORE.split_at(5).1;

/// The same with callbacks that are sent again.
const RESEND: [(&str, &str); 12] = {
    let mut all = BEFORE;
    all[0] = ("rpc.ast_resend", "true");
    all
};

/// Values of the paper with the behaviour of the profile, discovery among it.
const OURS: [(&str, &str); 7] = [
    ("profile", "\"default\""),
    ("rpc.profile", "\"default\""),
    ("tunables.discovery", "1"),
    ("node.client.tunables.discovery", "1"),
    ("node.crash.tunables.discovery", "1"),
    ("node.router.tunables.discovery", "1"),
    ("node.server.tunables.discovery", "1"),
];

/// The four arms.
pub const ARMS: [Arm; 4] = [
    Arm { name: "A", what: "before the paper", changes: &BEFORE },
    Arm { name: "B", what: "callbacks sent again", changes: &RESEND },
    Arm { name: "C", what: "as the paper recommends", changes: &[] },
    Arm { name: "D", what: "profile default, as advised", changes: &OURS },
];

/// The callback timer of arms A and B, seconds.
const TIMER: Duration = Duration::from_secs(100);
/// 1.5 times `timeout` of the files, and a second: a client that has crashed is gone by then.
const DEAD_MAX: Duration = Duration::from_secs(451);

/// What the runs of an event with one seed, in the order of [`ARMS`], should have shown and have not. An
/// arm that was not played shows nothing.
pub fn unmet(event: &CabinetEvent, runs: &[Option<SiteRun>; 4]) -> Vec<String> {
    let mut all = Vec::new();
    for (arm, run) in ARMS.iter().zip(runs) {
        let (name, Some(run)) = (arm.name, run) else { continue };
        if matches!(name, "C" | "D") && run.evicted > 0 {
            all.push(format!("{name} evicts {} clients that live", run.evicted));
        }
        if run.dead_left > 0 || run.dead_gone > DEAD_MAX {
            let secs = run.dead_gone.as_secs();
            all.push(format!("{name} keeps {} dead connections, others {secs} s", run.dead_left));
        }
    }
    let [before, resent, ..] = runs.each_ref().map(|run| run.as_ref().map(|run| run.evicted));
    if event.loses && before == Some(0) {
        all.push("A evicts no client".to_owned());
    }
    if let (Some(before), Some(resent)) = (before, resent) {
        if event.loses && before > 0 && resent >= before {
            all.push(format!("B evicts {resent}, not fewer than A"));
        }
        if resent > before {
            all.push(format!("B evicts {resent}, more than A"));
        }
    }
    let span = runs.get(1).and_then(|run| run.as_ref()?.span);
    if event.quiesces && span.is_some_and(|span| span > TIMER) && resent == Some(0) {
        all.push("B evicts no client although reconnecting took longer than its timer".to_owned());
    }
    all
}

/// How many nodes of each kind a play has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CabinetSize {
    /// Clients that live; five more crash.
    pub clients: u32,
    /// Routers.
    pub routers: u32,
    /// Servers of each file system.
    pub servers: u32,
    /// Targets on them.
    pub targets: u32,
    /// File systems that each client has mounted.
    pub file_systems: u32,
    /// Names of a file system for each client: so many that one in twenty clients holds a lock that another
    /// wants.
    pub share: u32,
    /// How long a program rests after a lock, seconds; each client has a program for each target.
    pub think: u32,
    /// In what time programs begin, seconds.
    pub ramp: u32,
}

impl CabinetSize {
    /// As the files have it.
    pub const TENTH: Self = Self {
        clients: 355,
        routers: 4,
        servers: 2,
        targets: 4,
        file_systems: 1,
        share: 3,
        think: 20,
        ramp: 0,
    };
    /// All 3,648 slots of the cabinets. A client asks for as many locks as one of [`Self::TENTH`], of eight
    /// times as many targets, and so one after the other.
    pub const FULL: Self = Self {
        clients: 3611,
        routers: 32,
        servers: 8,
        targets: 32,
        file_systems: 1,
        share: 1,
        think: 160,
        ramp: 160,
    };

    /// Names for which clients compete, on each target.
    fn names(self) -> u32 {
        (self.clients * self.share / self.targets).max(1)
    }

    /// Targets of all file systems.
    const fn all_targets(self) -> u32 {
        self.targets * self.file_systems
    }

    /// Servers of all file systems.
    const fn all_servers(self) -> u32 {
        self.servers * self.file_systems
    }
}

/// The text of a site with as many targets.
fn with_targets(text: &str, size: CabinetSize) -> Option<String> {
    let (before, rest) = text.split_once("[[target]]")?;
    let (_, after) = rest.split_once("[[client]]")?;
    let mut text = before.to_owned();
    // Those of one file system stand together, on servers of their own.
    for n in 0..size.all_targets() {
        let server = n * size.servers / size.targets + 1;
        let _ = write!(
            text,
            "[[target]]\nname = \"ost-{n}\"\nkind = \"lock\"\non = \"server-{server}\"\n\n"
        );
    }
    Some(text + "[[client]]" + after)
}

/// The scenario of an event in an arm.
///
/// # Errors
/// A text and an arm that do not fit; a test reads all.
pub fn cabinets(event: &CabinetEvent, arm: &Arm, size: CabinetSize) -> Result<Scenario, String> {
    sized(event.file, event.text, arm.changes, size)
}

/// The scenario of a text with some values changed, at a size.
pub(super) fn sized(
    file: &str,
    text: &str,
    changes: &[(&str, &str)],
    size: CabinetSize,
) -> Result<Scenario, String> {
    let mut changes = changes
        .iter()
        .map(|(place, value)| Change::new(place, value))
        .collect::<Result<Vec<_>, _>>()?;
    let targets: Vec<String> = (0..size.all_targets()).map(|n| format!("\"ost-{n}\"")).collect();
    changes.push(Change::new("workload.0.names", &size.names().to_string())?);
    for (word, seconds) in [("think", size.think), ("ramp", size.ramp)] {
        changes.push(Change::new(&format!("workload.0.{word}"), &format!("\"{seconds}s\""))?);
    }
    // Each file system is used as one alone is.
    changes.push(Change::new("workload.0.window", &size.file_systems.to_string())?);
    changes.push(Change::new("workload.0.to", &format!("[{}]", targets.join(", ")))?);
    let count = |name: &str, n| (name.to_owned(), n);
    let counts = [
        count("client", size.clients),
        count("router", size.routers),
        count("server", size.all_servers()),
    ];
    let text = with_targets(text, size).ok_or("a text without targets")?;
    parse_changed(file, &text, &counts, &changes).map_err(|e| e.to_string())
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
) -> Result<SiteRun, String> {
    watch_site(cabinets(event, arm, size)?, seed, size.clients)
}
