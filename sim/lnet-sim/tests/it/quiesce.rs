//! What a site goes through when its whole fabric stands still, or all its routers are gone: the
//! requirements of the resiliency paper that a simulator can show.

use core::time::Duration;
use std::sync::Arc;

use lnet_scenario::parse;
use lnet_sim::{Detail, HostId, Messages, Sim, play};
use lnet_types::Instant;

/// A client behind one router, which it checks often.
fn routed(fault: &str) -> String {
    format!(
        r#"
name = "routed"
duration = "40s"
tunables = {{ alive_router_check_interval = 4, router_ping_timeout = 2 }}
[[net]]
name = "tcp"
[[net]]
name = "o2ib"
[[node]]
name = "client"
rails = ["tcp"]
routes = [{{ net = "o2ib", gateway = "router" }}]
[[node]]
name = "router"
router = true
rails = ["10.0.0.9@tcp", "o2ib"]
tunables = {{ tiny_buffers = 64, small_buffers = 64, large_buffers = 8 }}
[[node]]
name = "server"
rails = ["o2ib"]
routes = [{{ net = "tcp", gateway = "router" }}]
[[workload]]
kind = "request"
from = "client"
to = "server"
every = "500ms"
size = 100
reply = 100
timeout = "5s"
[[fault]]
{fault}
"#
    )
}

/// Where in the lines of a run the first one is that has these words.
fn first(lines: &[String], from: usize, words: &[&str]) -> Option<usize> {
    let has = |line: &String| words.iter().all(|w| line.contains(w));
    lines.iter().skip(from).position(has).map(|n| n + from)
}

#[test]
fn pa085_a_quiesce_longer_than_the_ping_timeout_marks_routers_down() {
    let run = |time: &str| {
        let text = routed(&format!("kind = \"quiesce\"\nat = \"10s\"\nfor = \"{time}\""));
        play(Arc::new(parse("routed", &text).unwrap()), None, Detail::Moments)
    };
    let (long, short) = (run("12s"), run("300ms"));
    assert!(long.violation.is_none() && short.violation.is_none(), "{:?}", long.violation);
    let down = ["client", "route by 10.0.0.9@tcp is down"];
    assert!(first(&long.lines, 0, &down).is_some(), "{:#?}", long.lines);
    assert_eq!(first(&short.lines, 0, &down), None, "{:#?}", short.lines);
}

#[test]
fn pa086_without_any_router_sends_are_refused_until_one_answers_again() {
    let text = routed("kind = \"kill\"\non = \"router\"\nat = \"10s\"\nfor = \"10s\"");
    let played = play(Arc::new(parse("routed", &text).unwrap()), None, Detail::Messages);
    assert!(played.violation.is_none(), "{:?}", played.violation);
    let lines = &played.lines;
    let at = |from, words: &[&str]| {
        first(lines, from, words).unwrap_or_else(|| panic!("{words:?} in {}", lines.join("\n")))
    };
    let down = at(0, &["client", "route by 10.0.0.9@tcp is down"]);
    let refused = at(down, &["client", "failed: No route to host"]);
    let back = at(refused, &["router", "is back"]);
    let up = at(back, &["client", "route by 10.0.0.9@tcp is up"]);
    // A ping of the router was answered in between, and nothing was sent through it before.
    let answered = at(back, &["router", "→ 10.0.0.1@tcp: REPLY"]);
    assert!(answered < up, "{} {}", lines[answered], lines[up]);
    let sent = first(lines, down, &["client", "PUT", "pt 12"]).unwrap();
    assert!(sent > up, "{}", lines[sent]);
    assert_eq!(first(lines, up, &["failed: No route to host"]), None);
}

#[test]
fn pa082_during_a_quiesce_servers_see_no_client_and_reach_none() {
    let text = routed("kind = \"quiesce\"\nat = \"10s\"\nfor = \"1500ms\"");
    // Routers are not checked meanwhile: what is counted is the clients' traffic.
    let text = text.replace("alive_router_check_interval = 4", "alive_router_check_interval = 0");
    let mut sim = Sim::new(Arc::new(parse("routed", &text).unwrap()), None, Messages::new());
    let mut counters = |ms: u64| {
        sim.run_until(Instant::ZERO + Duration::from_millis(ms)).unwrap();
        let stats = sim.view().host(HostId(2)).unwrap().node.stats();
        (stats.recv_count, stats.send_count)
    };
    let (before, begun, ends) = (counters(9_000), counters(10_100), counters(11_499));
    assert!(before < begun, "there was traffic: {before:?} {begun:?}");
    assert_eq!(begun, ends);
    assert!(counters(30_000) > ends, "it goes on");
}

#[test]
fn pa017_clients_crash_hang_are_slow_and_lose_their_links() {
    let world = |fault: &str| {
        format!(
            "name = \"x\"\nduration = \"20s\"\n[[net]]\nname = \"tcp\"\nbandwidth = \"1Gbit/s\"\n\
             [[node]]\nname = \"client\"\nrails = [\"tcp\"]\n\
             [[node]]\nname = \"server\"\nrails = [\"tcp\"]\n\
             [[workload]]\nkind = \"request\"\nfrom = \"client\"\nto = \"server\"\nevery = \"100ms\"\n\
             size = \"64KiB\"\nreply = 100\ntimeout = \"8s\"\n\
             [[fault]]\nat = \"5s\"\nfor = \"4s\"\n{fault}\n"
        )
    };
    let run = |fault: &str| {
        let scenario = Arc::new(parse("x", &world(fault)).unwrap());
        let played = play(scenario, None, Detail::Moments);
        assert!(played.violation.is_none(), "{fault}: {:?}", played.violation);
        played.summary
    };
    let healthy = run("kind = \"drift\"\non = \"client\"\nppm = 0");
    assert_eq!((healthy.completed, healthy.errors), (200, 0), "{healthy}");
    // It begins nothing while it is dead.
    let crash = run("kind = \"kill\"\non = \"client\"");
    assert!(crash.completed < 170, "{crash}");
    // The same, but nothing is lost: it goes on where it stood.
    let hang = run("kind = \"pause\"\non = \"client\"");
    assert!(hang.completed < 170 && hang.errors == 0, "{hang}");
    let slow = run("kind = \"slow\"\non = \"client\"\nbandwidth = \"8Mbit/s\"");
    assert!(slow.stall_max > 20 * healthy.stall_max && slow.errors == 0, "{slow}");
    let link = run("kind = \"carrier\"\non = \"client\"");
    assert!(link.stall_max > 20 * healthy.stall_max, "{link}");
}
