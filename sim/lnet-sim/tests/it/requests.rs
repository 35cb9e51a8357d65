//! What the request layer makes of rails and routers: which interfaces its messages take, and what the
//! death of a router costs a call. Requirements of the resiliency paper, and of Multi-Rail towards
//! PtlRPC.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use core::time::Duration;

use lnet_scenario::Scenario;
use lnet_sim::{Bytes, Fabric, HostId, Messages, Observer, RpcFigures, RpcSeen, Seen, Sim, View};
use lnet_types::{Instant, Nid};
use lnet_wire::Kind;
use lustre_wire::ImportKind;
use ptlrpc::ImportState;

/// A message of the request layer, as it left its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    at: Instant,
    src: Nid,
    dst: Nid,
    bits: u64,
}

/// What was seen of requests, replies and connections.
#[derive(Clone, Debug, Default)]
struct Notes {
    requests: Vec<Left>,
    replies: Vec<Left>,
    /// Changes of connections, by client.
    states: BTreeMap<HostId, Vec<(Instant, ImportState)>>,
    longest: Duration,
}

#[derive(Clone, Default)]
struct Watcher(Rc<RefCell<Notes>>);

impl Observer for Watcher {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let mut notes = self.0.borrow_mut();
        let (requests, replies) = ImportKind::Osc.portals();
        match *seen {
            Seen::Sent { transmit, .. } => {
                let Kind::Put { portal, match_bits: bits, .. } = transmit.hdr.kind else {
                    return Ok(());
                };
                let left =
                    Left { at: view.now, src: transmit.hdr.src, dst: transmit.hdr.dst, bits };
                if portal == requests.0 {
                    notes.requests.push(left);
                } else if portal == replies.0 {
                    notes.replies.push(left);
                }
            }
            Seen::Rpc { host, seen: RpcSeen::State { state, .. } } => {
                notes.states.entry(host).or_default().push((view.now, *state));
            }
            Seen::Rpc { seen: RpcSeen::Ended { took, .. }, .. } => {
                notes.longest = notes.longest.max(*took);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Notes {
    /// How often each client gave a connection up between two times.
    fn gave_up(&self, from: Instant, until: Instant) -> Vec<usize> {
        let lost = |(at, state): &&(Instant, ImportState)| {
            *state == ImportState::Disconnected && (from..until).contains(at)
        };
        self.states.values().map(|all| all.iter().filter(lost).count()).collect()
    }
}

fn played(text: &str) -> (Notes, RpcFigures) {
    played_over(lnet_scenario::parse("requests", text).unwrap(), Messages::new())
}

fn played_over<F: Fabric>(scenario: Scenario, fabric: F) -> (Notes, RpcFigures) {
    let mut sim = Sim::new(Arc::new(scenario), Some(1), fabric);
    let watcher = Watcher::default();
    sim.observe(Box::new(watcher.clone()));
    sim.run().unwrap();
    let figures = sim.tally().rpc.figures().unwrap();
    assert_eq!((figures.executed_twice, figures.lost_writes), (0, 0), "{figures:?}");
    (watcher.0.take(), figures)
}

const fn secs(n: u64) -> Instant {
    Instant::from_secs(n)
}

/// A client and a server with two rails each.
fn two_rails(faults: &str) -> String {
    format!(
        r#"
name = "two-rails"
duration = "60s"
[[net]]
name = "tcp"
latency = "100us"
[[node]]
name = "client"
rails = ["tcp", "tcp"]
[[node]]
name = "server"
rails = ["tcp", "tcp"]
[[target]]
name = "t"
kind = "list"
on = "server"
[[client]]
on = "client"
[[workload]]
kind = "rpc"
from = "client"
to = "t"
window = 4
think = "20ms"
until = "50s"
{faults}
"#
    )
}

/// Replies and the requests that they answer: those that went once.
fn pairs(notes: &Notes) -> Vec<(Left, Left)> {
    let mut by_bits: BTreeMap<u64, Vec<Left>> = BTreeMap::new();
    for request in &notes.requests {
        by_bits.entry(request.bits).or_default().push(*request);
    }
    let asked = |reply: &Left| match by_bits.get(&reply.bits).map(Vec::as_slice) {
        Some([one]) => Some((*one, *reply)),
        _ => None,
    };
    notes.replies.iter().filter_map(asked).collect()
}

#[test]
fn requests_leave_by_all_interfaces_and_each_reply_by_the_one_that_was_addressed() {
    let (notes, figures) = played(&two_rails(""));
    assert_eq!(figures.failed, 0);
    let sources: BTreeSet<Nid> = notes.requests.iter().map(|left| left.src).collect();
    let addressed: BTreeSet<Nid> = notes.requests.iter().map(|left| left.dst).collect();
    assert_eq!((sources.len(), addressed.len()), (2, 2), "{sources:?} → {addressed:?}");
    let pairs = pairs(&notes);
    assert!(pairs.len() > 1000, "{}", pairs.len());
    for (request, reply) in pairs {
        assert_eq!((reply.src, reply.dst), (request.dst, request.src), "{request:?}");
    }
}

/// P-42, DEC-15: bulk data and replies as well; those that are lost when the rail dies go again.
#[test]
fn replies_leave_a_rail_that_has_died_under_their_requests() {
    for direction in ["out", "both"] {
        let cut = format!(
            r#"
bulk = "16KiB"
[[fault]]
kind = "cut"
at = "10s"
for = "20s"
on = "server/0"
direction = "{direction}"
"#
        );
        let scenario = lnet_scenario::parse("requests", &two_rails(&cut)).unwrap();
        let fabric = Bytes::new(scenario.bytes);
        let (notes, figures) = played_over(scenario, fabric);
        assert_eq!((figures.failed, figures.reconnects), (0, 0), "{figures:?}");
        assert!(notes.longest < Duration::from_secs(2), "{direction}: {:?}", notes.longest);
    }
}

/// Clients that reach their server through two routers, one of which dies with what is in it at second
/// `kill`. They call until half a minute later.
fn routed(top: &str, kill: u64) -> String {
    let until = kill + 30;
    format!(
        r#"
name = "routed"
duration = "600s"
{top}
[[net]]
name = "tcp"
latency = "20ms"
[[net]]
name = "o2ib"
latency = "20ms"
[[node]]
name = "client"
count = 8
rails = ["tcp"]
routes = [{{ net = "o2ib", gateway = "router" }}]
[[node]]
name = "router"
count = 2
router = true
rails = ["tcp", "o2ib"]
tunables = {{ tiny_buffers = 512, small_buffers = 1024, large_buffers = 64 }}
[[node]]
name = "server"
rails = ["o2ib"]
routes = [{{ net = "tcp", gateway = "router" }}]
[[target]]
name = "t"
kind = "list"
on = "server"
[[client]]
on = "client"
[[workload]]
kind = "rpc"
from = "client"
to = "t"
window = 2
think = "50ms"
until = "{until}s"
[[fault]]
kind = "kill"
at = "{kill}s"
on = "router-1"
"#
    )
}

/// RS-111, PA-038: by our rules, and by the paper's with its at_min.
#[test]
fn a_router_that_dies_costs_each_request_one_timeout_at_most() {
    for (rpc, timeout) in [("", 16), ("[rpc]\nprofile = \"documents\"\nat_min = \"40s\"", 80)] {
        let (notes, figures) = played(&routed(rpc, 40));
        assert_eq!((figures.failed, figures.evictions), (0, 0), "{figures:?}");
        // What was in the router is lost, and comes again.
        let gave_up = notes.gave_up(secs(40), secs(600));
        assert!(gave_up.iter().sum::<usize>() > 0, "nothing was lost: {figures:?}");
        println!("timeout {timeout} s: longest {:?}, given up {gave_up:?}", notes.longest);
        let longest = notes.longest.as_secs();
        assert!((timeout - 1..timeout * 3 / 2).contains(&longest), "{:?}", notes.longest);
    }
}

/// PA-102: whatever the estimates have learnt before.
#[test]
fn a_router_that_dies_stalls_no_client_for_longer_than_twice_at_max() {
    let mut gave_up = 0;
    for (at_max, slow) in [(30, 1), (30, 20), (60, 50)] {
        let rpc = format!("[rpc]\nprofile = \"documents\"\nat_max = \"{at_max}s\"");
        let delay = format!(
            "[[fault]]\nkind = \"handler_delay\"\ntarget = \"t\"\nat = \"1s\"\nfor = \"500ms\"\nby = \"{slow}s\""
        );
        // The clients have learnt of the slow server when the router dies.
        let (notes, figures) = played(&(routed(&rpc, 131) + &delay));
        assert_eq!((figures.failed, figures.evictions), (0, 0), "{figures:?}");
        gave_up += notes.gave_up(secs(131), secs(600)).iter().sum::<usize>();
        let stall = notes.longest;
        println!("at_max {at_max:>3} s, a service of {slow:>3} s: longest {stall:?}");
        assert!(stall <= Duration::from_secs(2 * at_max), "at_max {at_max} s: {stall:?}");
    }
    assert!(gave_up > 0, "nothing was lost");
}

/// PA-120. The server's estimate was learnt from a handler that took at_max, the net's from a server
/// that stood still as long, and the request after both is lost.
#[test]
fn the_longest_stall_is_the_longest_timeout_and_the_time_of_a_reconnect() {
    for at_max in [30, 60, 120] {
        let (still, lost) = (20 + at_max * 3 / 2, 29 + at_max * 3);
        let text = format!(
            r#"
name = "stall"
duration = "2000s"
tunables = {{ transaction_timeout = 4000 }}
[rpc]
profile = "documents"
at_max = "{at_max}s"
at_history = "9000s"
obd_timeout = "2000s"
ping_interval = "900s"
[[net]]
name = "tcp"
latency = "100us"
[[node]]
name = "client"
rails = ["tcp"]
[[node]]
name = "server"
rails = ["tcp"]
[[target]]
name = "t"
kind = "list"
on = "server"
[[client]]
on = "client"
[[workload]]
kind = "rpc"
from = "client"
to = "t"
every = "{}ms"
start = "10s"
until = "{}s"
[[fault]]
kind = "handler_delay"
at = "9s"
for = "5s"
target = "t"
by = "{}s"
[[fault]]
kind = "pause"
at = "{}500ms"
for = "{}s"
on = "server"
[[fault]]
kind = "rpc_lose"
at = "{lost}s"
on = "server"
part = "request"
count = 1
"#,
            at_max * 1500 + 10_000,
            lost + 3,
            at_max - 1,
            still - 1,
            at_max + 1,
        );
        let (notes, figures) = played(&text);
        assert_eq!((figures.failed, figures.reconnects), (0, 1), "{figures:?}");
        let over = notes.longest.saturating_sub(Duration::from_secs(2 * at_max));
        println!("at_max {at_max:>3} s: longest {:?}", notes.longest);
        assert!(notes.longest >= Duration::from_secs(2 * at_max - 1), "{:?}", notes.longest);
        assert!(over < Duration::from_secs(6), "at_max {at_max} s: {:?}", notes.longest);
    }
}
