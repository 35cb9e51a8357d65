//! A fabric as Aries: quiesces, connections that end in them, reports of dead nodes, a coordinator; and the
//! clocks of other networks' drivers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use lnet_scenario::parse;
use lnet_sim::{Detail, Observer, Played, Seen, View, play, play_before};
use lnet_types::Instant;

/// Clients on a gni network behind a router, which nothing checks but messages.
fn site(net: &str, fault: &str) -> String {
    format!(
        r#"
name = "site"
duration = "135s"
profile = "off"
tunables = {{ discovery = 0, transaction_timeout = 60 }}
[[net]]
name = "gni"
transport = "gni"
{net}
[[net]]
name = "o2ib"
timeout = "10s"
keepalive = "30s"
[[node]]
name = "client"
count = 8
rails = ["gni"]
routes = [{{ net = "o2ib", gateway = "router" }}]
tunables = {{ discovery = 0, transaction_timeout = 60, live_router_check_interval = 0, dead_router_check_interval = 60 }}
[[node]]
name = "router"
router = true
rails = ["900@gni", "10.4.200.9@o2ib"]
nets = [{{ name = "gni", peer_timeout = 1 }}, {{ name = "o2ib", peer_timeout = 40 }}]
tunables = {{ discovery = 0, transaction_timeout = 60, tiny_buffers = 64, small_buffers = 64, large_buffers = 8 }}
[[node]]
name = "server"
rails = ["10.4.200.1@o2ib"]
routes = [{{ net = "gni", gateway = "router" }}]
tunables = {{ discovery = 0, transaction_timeout = 60, live_router_check_interval = 0 }}
{fault}
"#
    )
}

const REQUESTS: &str = r#"
[[workload]]
kind = "request"
from = "client"
to = "server"
every = "500ms"
size = 100
reply = 100
timeout = "50s"
until = "120s"
"#;

fn run(text: &str) -> Played {
    let scenario = Arc::new(parse("site", text).unwrap());
    let played = play(scenario, None, Detail::Messages);
    assert!(played.violation.is_none(), "{:?}", played.violation);
    played
}

/// The second at which a line is.
fn at(line: &str) -> f64 {
    let clock = line.split_whitespace().next().unwrap_or_default();
    clock.trim_end_matches('s').parse().unwrap_or_else(|_| panic!("no time: {line}"))
}

/// Lines with all of these words.
fn all<'a>(played: &'a Played, words: &[&str]) -> Vec<&'a String> {
    played.lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).collect()
}

fn quiesce(seconds: u32) -> String {
    format!("[[fault]]\nat = \"60s\"\nfor = \"{seconds}s\"\nkind = \"quiesce\"\nnets = \"gni\"\n")
}

/// When requests have reached their server, and the numbers of their attempts.
#[derive(Default)]
struct Arrivals(Rc<RefCell<Vec<(Instant, u64)>>>);

impl Observer for Arrivals {
    fn name(&self) -> &'static str {
        "arrivals"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        if let Seen::Delivered { attempt, answer: false, .. } = *seen {
            self.0.borrow_mut().push((view.now, attempt.0));
        }
        Ok(())
    }
}

#[test]
fn pa094_nothing_is_sent_in_a_quiesce_and_what_waited_leaves_in_order() {
    let text = (site("timeout = \"60s\"", &quiesce(15)) + REQUESTS)
        .replace("count = 8", "count = 1")
        .replace("every = \"500ms\"", "every = \"500ms\"\nretries = 0");
    let arrivals = Arrivals::default();
    let seen = arrivals.0.clone();
    let scenario = Arc::new(parse("site", &text).unwrap());
    let played = play_before(scenario, None, Detail::Moments, vec![Box::new(arrivals)]);
    assert!(played.violation.is_none(), "{:?}", played.violation);
    let seen = seen.borrow();
    let within = |from: u64, to: u64| {
        let meant = |(at, _): &&(Instant, u64)| {
            *at > Instant::from_secs(from) && *at < Instant::from_secs(to)
        };
        seen.iter().filter(meant).map(|(_, attempt)| *attempt).collect::<Vec<_>>()
    };
    assert!(within(55, 60).len() > 8, "there was traffic");
    // What was on its way when the fabric stopped is there some microseconds later.
    assert!(within(60, 75).len() <= 1, "{:?}", within(60, 75));
    let waited = within(75, 76);
    assert!(waited.len() >= 29, "each of them leaves when the quiesce is over: {waited:?}");
    assert!(waited.is_sorted(), "{waited:?}");
    assert_eq!(played.summary.errors, 0, "{}", played.summary);
}

#[test]
fn pa157_a_quiesce_is_two_lines_on_the_console_of_each_node_of_the_fabric() {
    let played = run(&(site("", &quiesce(15)) + REQUESTS));
    let starts = all(&played, &["LNet: Quiesce start: hardware quiesce"]);
    let ends = all(&played, &["LNet: Quiesce complete: hardware quiesce"]);
    // Eight clients and the router; the server is on another network.
    assert_eq!((starts.len(), ends.len()), (9, 9));
    assert!(starts.iter().all(|line| at(line) == 60.0), "{starts:?}");
    assert!(ends.iter().all(|line| at(line) == 75.0), "{ends:?}");
    assert!(starts.iter().any(|line| line.contains("client-3")), "{starts:?}");
    assert_eq!(all(&played, &["server", "Quiesce"]).len(), 0);
}

#[test]
fn pa095_a_quiesce_longer_than_the_drivers_time_ends_connections() {
    let down = |seconds| {
        let played = run(&(site("timeout = \"20s\"", &quiesce(seconds)) + REQUESTS));
        let lines = all(&played, &["client-1", "route by 900@gni is down"]);
        lines.iter().map(|line| at(line)).collect::<Vec<_>>()
    };
    assert_eq!(down(15), [0.0; 0]);
    let long = down(30);
    assert!(matches!(long[..], [second] if (80.0..81.0).contains(&second)), "{long:?}");
}

#[test]
fn pa097_fast_reconnect_connects_to_the_router_as_soon_as_a_quiesce_is_over() {
    // No request is begun in the quiesce, nor for 15 s after it.
    let load = REQUESTS.replace("until = \"120s\"", "until = \"59s\"")
        + &REQUESTS.replace("until = \"120s\"", "start = \"105s\"\nuntil = \"120s\"");
    let play = |switch: bool, checks: u32| {
        let net = format!("timeout = \"20s\"\nfast_reconnect = {switch}");
        let interval = format!("dead_router_check_interval = {checks}");
        let text = site(&net, &quiesce(30)) + &load;
        run(&text.replace("dead_router_check_interval = 60", &interval))
    };
    let up = |played: &Played| {
        let lines = all(played, &["client-1", "route by 900@gni is up"]);
        lines.iter().map(|line| at(line)).collect::<Vec<_>>()
    };
    // Nothing else would find the router alive.
    let fast = up(&play(true, 0));
    assert!(matches!(fast[..], [second] if (90.0..91.0).contains(&second)), "{fast:?}");
    // PA-096: without it no connection is made before something is sent, here a ping.
    let slow = play(false, 20);
    let found = up(&slow)[0];
    assert!(found > 91.0, "{found}");
    let pings = all(&slow, &["client-1", "→ 900@gni: GET"]);
    let first = pings.iter().map(|line| at(line)).find(|second| *second > 90.0);
    // The connection and the ping that wants it are of one moment.
    let together = first.is_some_and(|first| (first - found).abs() < 0.1);
    assert!(together, "{first:?} {found}");
}

#[test]
fn pa078_a_blade_that_is_swapped_costs_the_others_no_eviction() {
    let text = site("timeout = \"60s\"\nnode_events = \"500ms\"\nfast_reconnect = true", "")
        .replace("duration = \"135s\"", "duration = \"400s\"")
        + r#"
[rpc]
profile = "documents"
[[node]]
name = "blade"
count = 4
rails = ["gni"]
routes = [{ net = "o2ib", gateway = "router" }]
[[target]]
name = "locks"
kind = "lock"
on = "server"
[[client]]
on = ["client", "blade"]
[[workload]]
kind = "lock"
from = ["client", "blade"]
to = "locks"
names = 8
modes = ["PR", "PW"]
window = 1
hold = "1s"
think = "5s"
until = "350s"
[[fault]]
at = "60s"
for = "100s"
kind = "kill"
on = "blade"
[[fault]]
at = "60s"
kind = "link_event"
on = "blade"
quiesce = "15s"
[[fault]]
at = "157s"
kind = "link_event"
on = "blade"
quiesce = "15s"
"#;
    let scenario = Arc::new(parse("site", &text).unwrap());
    let played = play(scenario, None, Detail::Moments);
    assert!(played.violation.is_none(), "{:?}", played.violation);
    let rpc = played.summary.rpc.clone().unwrap();
    assert_eq!(rpc.evictions, 0, "{}", played.summary);
    assert!(played.summary.completed > 300, "{}", played.summary);
}

#[test]
fn pa091_a_node_that_dies_is_reported_and_the_router_forwards_nothing_to_it() {
    let fault = "[[fault]]\nat = \"60s\"\nkind = \"kill\"\non = \"client-1\"\n";
    let back = REQUESTS
        .replace("from = \"client\"", "from = \"server\"")
        .replace("to = \"server\"", "to = \"client-1\"")
        .replace("timeout = \"50s\"", "timeout = \"2s\"");
    let sent = |net: &str| {
        let played = run(&(site(net, fault) + &back));
        let to = all(&played, &["router", "→ 167772161@gni: PUT"]);
        to.iter().filter(|line| at(line) > 60.6 && at(line) < 70.0).count()
    };
    assert_eq!(sent("timeout = \"60s\"\nnode_events = \"500ms\""), 0);
    assert!(sent("timeout = \"60s\"") > 8, "without reports it is tried");
}

#[test]
fn pa092_a_router_that_dies_is_left_within_a_second_where_nodes_are_reported() {
    let fault = "[[fault]]\nat = \"60s\"\nkind = \"kill\"\non = \"router\"\n";
    let down = |net: &str| {
        let played = run(&(site(net, fault) + REQUESTS));
        let lines = all(&played, &["client-1", "route by 900@gni is down"]);
        at(lines.first().unwrap())
    };
    let reported = down("timeout = \"60s\"\nnode_events = \"500ms\"");
    assert!((60.0..61.0).contains(&reported), "{reported}");
    assert!(down("timeout = \"60s\"") > 70.0);
}

#[test]
fn pa143_an_idle_connection_to_a_dead_peer_is_found_within_keepalive_and_timeout() {
    let fault = "[[fault]]\nat = \"60s\"\nkind = \"kill\"\non = \"server\"\n";
    let idle = REQUESTS.replace("until = \"120s\"", "until = \"50s\"");
    let found = |clocks: bool| {
        let text = site("", fault) + &idle;
        let text = match clocks {
            true => text,
            false => text.replace("keepalive = \"30s\"\n", ""),
        };
        let scenario = Arc::new(parse("site", &text).unwrap());
        let mut sim = lnet_sim::Sim::new(scenario, None, lnet_sim::Messages::new());
        let router = lnet_sim::HostId(8);
        (600..1300).find_map(|tenth: u64| {
            sim.run_until(Instant(tenth * 100_000_000)).unwrap();
            let server = "10.4.200.1@o2ib".parse().ok()?;
            let view = sim.view().host(router)?.node.peer_view_of(server)?;
            let server = view.nis.iter().find(|ni| ni.nid == server)?;
            (!server.up).then_some(tenth as f64 / 10.0 - 60.0)
        })
    };
    // PA-146: with the router's peer_timeout of as much.
    let after = found(true);
    assert!(after.is_some_and(|after| (9.0..=40.0).contains(&after)), "{after:?}");
    assert_eq!(found(false), None, "without a keepalive it is believed alive");
}

/// A link of the fabric fails.
fn link_event(quiesce: &str) -> String {
    format!(
        "[[fault]]\nat = \"60s\"\nkind = \"link_event\"\non = \"client-2\"\nquiesce = \"{quiesce}\"\n"
    )
}

#[test]
fn pa080_a_coordinator_computes_quiesces_installs_and_unquiesces() {
    let played = run(&(site("timeout = \"60s\"", &link_event("15s")) + REQUESTS));
    let log: Vec<(f64, &str)> = all(&played, &["coordinator:"])
        .into_iter()
        .map(|line| (at(line), line.split("coordinator: ").nth(1).unwrap_or_default()))
        .collect();
    let steps: Vec<&str> = log.iter().map(|(_, what)| *what).collect();
    assert_eq!(
        steps,
        [
            // PA-079: a blade reports it first.
            "a blade reports a failed link",
            "routes computed without the failed link",
            "network quiesced",
            "routes installed",
            "network unquiesced",
        ]
    );
    let times: Vec<f64> = log.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [62.0, 63.0, 63.0, times[3], 78.0]);
    assert!((77.0..78.0).contains(&times[3]), "{times:?}");
    assert_eq!(played.summary.errors, 0, "{}", played.summary);
    assert!(played.summary.complaints.is_empty(), "{:?}", played.summary.complaints);
}

#[test]
fn pa081_without_a_quiesce_routes_that_change_have_loops_and_dead_ends() {
    // Six blades, so that there is more than one way round.
    let text = (site("timeout = \"60s\"", &link_event("0s")) + REQUESTS)
        .replace("count = 8", "count = 24");
    let skipped = run(&text);
    let note = skipped.summary.complaints.join("\n");
    assert!(note.contains("routes have changed while packets moved"), "{note}");
    let whole = run(&text.replace("quiesce = \"0s\"", "quiesce = \"15s\""));
    assert!(whole.summary.complaints.is_empty(), "{:?}", whole.summary.complaints);
}
