//! LNet alone: routers, their pings and what is learnt of a failure: `ulnet sim paper routers`. The
//! profile is `documents`, without discovery: nothing is pushed, as in the paper's time.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use lnet_types::Instant;
use lnet_wire::Kind;

use super::{PaperRow, Unit};
use crate::directory::HostId;
use crate::message::Messages;
use crate::observe::{Observer, Seen, View};
use crate::sim::Sim;

const NEAR: HostId = HostId(0);
const ROUTER: HostId = HostId(1);
const FAR: HostId = HostId(2);
const FAR_NID: &str = "10.1.0.9@tcp1";

/// Worlds have come up by then, seconds.
const WARM: u64 = 200;

#[derive(Default)]
struct Notes {
    /// When the far node has pinged the router.
    pinged: Vec<Instant>,
    /// Pings of the router by all nodes.
    pings: u64,
    /// When the route of the near node went down.
    down: Option<Instant>,
}

struct Watcher(Rc<RefCell<Notes>>);

impl Observer for Watcher {
    fn name(&self) -> &'static str {
        "paper"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let mut notes = self.0.borrow_mut();
        match *seen {
            Seen::Sent { host, transmit, .. } if matches!(transmit.hdr.kind, Kind::Get { .. }) => {
                notes.pings += 1;
                if host == FAR {
                    notes.pinged.push(view.now);
                }
            }
            Seen::Route { host: NEAR, up: false, .. } => {
                notes.down.get_or_insert(view.now);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Intervals and timeout of a role.
type Checks = (u32, u32);
const SERVER: Checks = (35, 10);
const CLIENT: Checks = (60, 50);

/// A node behind a router, with the checks of its role, and another one beyond; what else happens.
fn world((interval, timeout): Checks, faults: &str) -> Option<World> {
    let text = format!(
        r#"
name = "paper"
duration = "2000s"
profile = "documents"
[[net]]
name = "tcp"
latency = "100us"
[[net]]
name = "tcp1"
latency = "100us"
[[node]]
name = "near"
rails = ["tcp"]
routes = [{{ net = "tcp1", gateway = "router" }}]
tunables = {{ discovery = 0, live_router_check_interval = {interval}, dead_router_check_interval = {interval}, router_ping_timeout = {timeout} }}
[[node]]
name = "router"
router = true
rails = ["10.0.0.9@tcp", "10.1.0.9@tcp1"]
tunables = {{ tiny_buffers = 64, small_buffers = 64, large_buffers = 8, live_router_check_interval = 60, dead_router_check_interval = 60, router_ping_timeout = 50 }}
[[node]]
name = "far"
rails = ["tcp1"]
routes = [{{ net = "tcp", gateway = "router" }}]
tunables = {{ discovery = 0, live_router_check_interval = 60, dead_router_check_interval = 60, router_ping_timeout = 50 }}
{faults}
"#
    );
    watched(&text)
}

/// A world that is watched.
type World = (Sim<Messages>, Rc<RefCell<Notes>>);

fn watched(text: &str) -> Option<World> {
    let notes = Rc::new(RefCell::new(Notes::default()));
    // The text is ours; a test plays each.
    let scenario = lnet_scenario::parse("paper", text).ok()?;
    let mut sim = Sim::new(Arc::new(scenario), Some(1), Messages::new());
    sim.observe(Box::new(Watcher(notes.clone())));
    Some((sim, notes))
}

fn until(sim: &mut Sim<Messages>, at: Instant) {
    // The watcher objects to nothing.
    let _ = sim.run_until(at);
}

fn dies(node: &str, millis: u64) -> String {
    format!("[[fault]]\nat = \"{millis}ms\"\nkind = \"kill\"\non = \"{node}\"\n")
}

/// From the last ping from beyond until the router marks its interface there down.
fn marked_down() -> Option<Duration> {
    let (mut sim, notes) = world(CLIENT, &dies("far", WARM * 1000))?;
    until(&mut sim, Instant::from_secs(WARM));
    let last = *notes.borrow().pinged.last()?;
    for tenth in 0..3000 {
        until(&mut sim, last + Duration::from_millis(100 * tenth));
        let nets = sim.view().host(ROUTER)?.node.net_views();
        let far = nets.iter().flat_map(|net| &net.nis).find(|ni| ni.nid.to_string() == FAR_NID)?;
        if !far.up {
            return Some(sim.view().now.saturating_since(last));
        }
    }
    None
}

/// The same, until the near node knows. Its checks begin `phase` after those of the far one; each
/// message to it takes `slow` from then on.
fn learnt(phase: Duration, slow: Duration) -> Option<Duration> {
    let (phase, slow) = (phase.as_millis(), slow.as_millis());
    let mut faults = dies("far", WARM * 1000);
    faults += &format!(
        "[[fault]]\nat = \"1s\"\nfor = \"{}ms\"\nkind = \"kill\"\non = \"near\"\n",
        phase + 1
    );
    if slow > 0 {
        faults += &format!(
            "[[fault]]\nat = \"{WARM}s\"\nkind = \"delay\"\non = \"near\"\ndirection = \"in\"\nby = \"{slow}ms\"\n"
        );
    }
    let (mut sim, notes) = world(CLIENT, &faults)?;
    until(&mut sim, Instant::from_secs(WARM));
    let last = *notes.borrow().pinged.last()?;
    until(&mut sim, last + Duration::from_secs(400));
    let down = notes.borrow().down?;
    Some(down.saturating_since(last))
}

/// From the death of the router until the near node knows.
fn found(checks: Checks, phase: Duration) -> Option<Duration> {
    let dead = Duration::from_secs(WARM) + phase;
    let millis = u64::try_from(dead.as_millis()).ok()?;
    let (mut sim, notes) = world(checks, &dies("router", millis))?;
    let dead = Instant::ZERO + dead;
    until(&mut sim, dead + Duration::from_secs(400));
    let down = notes.borrow().down?;
    Some(down.saturating_since(dead))
}

/// The phases of an interval of checks.
fn phases(count: u32, interval: u32) -> impl Iterator<Item = Duration> {
    (0..count).map(move |n| Duration::from_secs(interval.into()) * n / count)
}

/// The least, the mean and the most; `None` if one did not happen.
fn spread(all: impl Iterator<Item = Option<Duration>>) -> Option<[Duration; 3]> {
    let all = all.collect::<Option<Vec<Duration>>>()?;
    let count = u32::try_from(all.len()).ok()?;
    let sum: Duration = all.iter().sum();
    Some([*all.iter().min()?, sum.checked_div(count)?, *all.iter().max()?])
}

/// Pings of one router a second by so many clients.
fn load(clients: u32, interval: u32) -> Option<f64> {
    let text = format!(
        r#"
name = "paper"
duration = "2000s"
profile = "documents"
[[net]]
name = "tcp"
latency = "100us"
[[net]]
name = "tcp1"
latency = "100us"
[[node]]
name = "router"
router = true
rails = ["10.200.0.9@tcp", "10.1.0.9@tcp1"]
tunables = {{ tiny_buffers = 64, small_buffers = 64, large_buffers = 8 }}
[[node]]
name = "client"
count = {clients}
rails = ["tcp"]
routes = [{{ net = "tcp1", gateway = "router" }}]
tunables = {{ discovery = 0, live_router_check_interval = {interval}, dead_router_check_interval = {interval} }}
"#
    );
    let (mut sim, notes) = watched(&text)?;
    until(&mut sim, Instant::from_secs(WARM));
    let before = notes.borrow().pings;
    until(&mut sim, Instant::from_secs(2 * WARM + 40));
    let pings = notes.borrow().pings - before;
    Some(pings as f64 / (WARM + 40) as f64)
}

/// The table: each spread over so many phases of the checks, the load with so many clients.
pub fn paper_routers(count: u32, clients: u32) -> Vec<PaperRow> {
    let row = PaperRow::time;
    let learnt = |slow| spread(phases(count, CLIENT.0).map(move |p| learnt(p, slow)));
    let (prompt, slow) = (learnt(Duration::ZERO), learnt(Duration::from_secs(46)));
    let found = |checks: Checks| spread(phases(count, checks.0).map(move |p| found(checks, p)));
    let most = |all: Option<[Duration; 3]>| all.map(|[.., most]| most);
    let (fast, slower) = (load(clients, 60), load(clients, 120));
    let servers = load(10, SERVER.0);
    let pings = |what, played| PaperRow { played, unit: Unit::Pings, ..row(what, "-", None) };
    let times = fast.zip(slower).map(|(fast, slower)| fast / slower);
    let halves = PaperRow {
        played: times,
        unit: Unit::Times,
        ..row("the first by the second", "2 x", None)
    };
    vec![
        row("a router marks a far interface down", "110 s", marked_down())
            .near(110.0)
            .because("60 s and 50 s"),
        row(
            "peers learn of it, all phases: at the earliest",
            "110 s",
            prompt.map(|[least, ..]| least),
        )
        .within(109.0, 112.0),
        row("in the mean", "-", prompt.map(|[_, mean, _]| mean)).within(130.0, 150.0),
        row("at the latest", "170 s", most(prompt)).within(160.0, 172.0),
        row("with answers that take 46 s: at the latest", "220 s", most(slow)).within(200.0, 220.0),
        row("a server finds a dead router, all phases: at the latest", "45 s", most(found(SERVER)))
            .within(30.0, 45.0)
            .because("a failed send is earlier than the wait for an answer"),
        row(
            "a client finds a dead router, all phases: at the latest",
            "110 s",
            most(found(CLIENT)),
        )
        .within(60.0, 110.0)
        .because("the same"),
        pings("pings of a router by ten servers, interval 35", servers)
            .within(0.2, 0.5)
            .because("ten pings in 35 s"),
        pings("pings of a router by all clients, interval 60", fast),
        pings("the same, interval 120", slower),
        halves.within(1.95, 2.05).because("as many pings as clients in each interval"),
    ]
}
