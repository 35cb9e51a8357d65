//! Drivers of networks: idle connections that are probed, silent peers of a router, connections after a
//! quiesce: `ulnet sim paper drivers`. The profile is `off` without discovery: nothing but what is
//! played uses the connections.

use core::time::Duration;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use lnet_types::{Instant, Nid};

use super::PaperRow;
use crate::directory::HostId;
use crate::message::Messages;
use crate::observe::{Observer, Seen, View};
use crate::sim::Sim;

const CLIENTS: u32 = 4;
const ROUTERS: u32 = 4;
/// The end of a quiesce, which ends all connections, seconds.
const QUIESCE_ENDS: u64 = 90;

/// Clients on a gni network, routers, a server on InfiniBand; the hosts are numbered in this order.
fn site(gni: &str, o2ib: &str, dead_checks: u32, faults: &str) -> String {
    format!(
        r#"
name = "paper"
duration = "200s"
profile = "off"
tunables = {{ discovery = 0, transaction_timeout = 60, live_router_check_interval = 0, dead_router_check_interval = {dead_checks} }}
[[net]]
name = "gni"
transport = "gni"
{gni}
[[net]]
name = "o2ib"
{o2ib}
[[node]]
name = "client"
count = {CLIENTS}
rails = ["gni"]
routes = [{{ net = "o2ib", gateway = "router" }}]
[[node]]
name = "router"
count = {ROUTERS}
router = true
rails = ["gni", "o2ib"]
nets = [{{ name = "gni", peer_timeout = 1 }}, {{ name = "o2ib", peer_timeout = 40 }}]
tunables = {{ discovery = 0, transaction_timeout = 60, live_router_check_interval = 0, dead_router_check_interval = 0, tiny_buffers = 64, small_buffers = 64, large_buffers = 8 }}
[[node]]
name = "server"
rails = ["10.100.0.1@o2ib"]
routes = [{{ net = "gni", gateway = "router" }}]
{faults}
"#
    )
}

const SERVER: &str = "10.100.0.1@o2ib";

/// Requests of the clients, until the 50th second.
const REQUESTS: &str = "[[workload]]\nkind = \"request\"\nfrom = \"client\"\nto = \"server\"\n\
    every = \"500ms\"\nsize = 100\nreply = 100\ntimeout = \"50s\"\nuntil = \"50s\"\n";

#[derive(Default)]
struct Notes {
    /// Routes of clients that are down, by host and gateway, and how many there were at most.
    down: BTreeSet<(HostId, Nid)>,
    most_down: usize,
    /// After the quiesce: when a route was first up again, and when the last one was.
    first_up: Option<Instant>,
    all_up: Option<Instant>,
    /// When a client first sent something after it.
    first_sent: Option<Instant>,
}

struct Watcher(Rc<RefCell<Notes>>);

impl Observer for Watcher {
    fn name(&self) -> &'static str {
        "paper"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let mut notes = self.0.borrow_mut();
        let is_client = |host: HostId| host.0 < CLIENTS;
        let over = view.now >= Instant::from_secs(QUIESCE_ENDS);
        match *seen {
            Seen::Route { host, gateway, up: false } if is_client(host) => {
                notes.down.insert((host, gateway));
                notes.most_down = notes.most_down.max(notes.down.len());
            }
            Seen::Route { host, gateway, up: true } if is_client(host) => {
                notes.down.remove(&(host, gateway));
                if over {
                    notes.first_up.get_or_insert(view.now);
                }
                if over && notes.down.is_empty() {
                    notes.all_up.get_or_insert(view.now);
                }
            }
            Seen::Sent { host, .. } if over && is_client(host) => {
                notes.first_sent.get_or_insert(view.now);
            }
            _ => {}
        }
        Ok(())
    }
}

fn world(text: &str) -> Option<(Sim<Messages>, Rc<RefCell<Notes>>)> {
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

/// From the death of the server, so long after the last request, until a router holds it for dead;
/// `None`: it does not within two minutes.
fn found_dead(clocks: &str, phase: Duration) -> Option<Duration> {
    let dead = Duration::from_secs(50) + phase;
    let fault =
        format!("[[fault]]\nat = \"{}ms\"\nkind = \"kill\"\non = \"server\"\n", dead.as_millis());
    let text = site("timeout = \"60s\"", clocks, 0, &(fault + REQUESTS));
    let (mut sim, _) = world(&text)?;
    let dead = Instant::ZERO + dead;
    until(&mut sim, dead);
    let server = SERVER.parse().ok()?;
    let router = HostId(CLIENTS);
    (0..1200_u64).find_map(|tenth| {
        let after = Duration::from_millis(100 * tenth);
        until(&mut sim, dead + after);
        let view = sim.view().host(router)?.node.peer_view_of(server)?;
        let ni = view.nis.iter().find(|ni| ni.nid == server)?;
        (!ni.up).then_some(after)
    })
}

/// The same for all phases of the probes, at the latest.
fn found_dead_at_latest() -> Option<Duration> {
    let phases = (0..30).map(|n| found_dead(CLOCKS, Duration::from_secs(n)));
    phases.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Clocks of InfiniBand as the paper sets them.
const CLOCKS: &str = "timeout = \"10s\"\nkeepalive = \"30s\"";

/// Plays a quiesce that is longer than the time of a transmission.
fn quiesce(fast: bool, dead_checks: u32) -> Option<Notes> {
    let fault = "[[fault]]\nat = \"60s\"\nfor = \"30s\"\nkind = \"quiesce\"\nnets = \"gni\"\n";
    let gni = format!("timeout = \"20s\"\nfast_reconnect = {fast}");
    let (mut sim, notes) = world(&site(&gni, CLOCKS, dead_checks, &(fault.to_owned() + REQUESTS)))?;
    until(&mut sim, Instant::from_secs(200));
    let notes = notes.take();
    // Connections that did not end say nothing.
    (notes.most_down == (CLIENTS * ROUTERS) as usize).then_some(notes)
}

/// The table.
pub fn paper_drivers() -> Vec<PaperRow> {
    let row = PaperRow::time;
    let end = Instant::from_secs(QUIESCE_ENDS);
    let fast = quiesce(true, 0).and_then(|notes| notes.all_up);
    let slow = quiesce(false, 20).unwrap_or_default();
    let sent = slow.first_sent;
    let with_first = slow.first_up.zip(sent).map(|(up, sent)| up.saturating_since(sent));
    // Silent from its last word on: it dies in that moment.
    let silent = found_dead(CLOCKS, Duration::ZERO);
    vec![
        row(
            "keepalive 30, timeout 10: dead idle connection, all phases",
            "40 s",
            found_dead_at_latest(),
        )
        .within(10.0, 40.0)
        .because("at the latest, after its death"),
        row("silent peer at a router, peer_timeout 40: dead after", "40 s", silent)
            .near(40.0)
            .because("keepalive and timeout: the value itself is no time (C-10)"),
        row("fast_reconnect 1: all routers connected after a quiesce", "1 s", {
            fast.map(|at| at.saturating_since(end))
        })
        .within(0.0, 1.0)
        .because("nothing was sent"),
        row("fast_reconnect 0: first message after a quiesce", "-", {
            sent.map(|at| at.saturating_since(end))
        })
        .within(1.0, 60.0)
        .because("a ping of a router"),
        row("fast_reconnect 0: connected after the first message", "0 s", with_first)
            .within(0.0, 0.1)
            .because("with it"),
    ]
}
