//! Networks of transport "rdma": the real driver over emulated adapters, alone, beside streams and
//! behind routers, and what befalls adapters (RS-052 to RS-096, HL-lnd-010 to HL-lnd-035).

use std::sync::Arc;

use lnet_scenario::{Scenario, parse};
use lnet_sim::{Detail, Played, Round, Summary, play, seed_of};
use lnet_types::Prng;

use crate::scenarios::must_hold;

fn scenario(text: &str) -> Arc<Scenario> {
    Arc::new(parse("rdma", text).unwrap())
}

/// Two nodes on one RDMA network that speak for a while, and what befalls them.
fn two(workload: &str, faults: &str) -> Arc<Scenario> {
    scenario(&format!(
        r#"
name = "two"
duration = "24s"
fidelity = "bytes"
[[net]]
name = "o2ib"
transport = "rdma"
latency = "5us"
[[node]]
name = "a"
rails = ["o2ib"]
[[node]]
name = "b"
rails = ["o2ib"]
[[workload]]
from = ["a", "b"]
to = ["a", "b"]
{workload}
timeout = "20s"
retries = 10
until = "12s"
{faults}
[bars]
errors = 0
duplicates = 0
"#
    ))
}

const REQUESTS: &str = "kind = \"request\"\nevery = \"100ms\"\nsize = 3000\nreply = 20000";

const GETS: &str = "kind = \"get\"\nevery = \"100ms\"\nsize = 65536";

#[test]
fn every_kind_of_exchange_passes_and_credits_come_home() {
    for (workload, least) in [
        ("kind = \"ping\"\nevery = \"500ms\"", 40),
        ("kind = \"put\"\nevery = \"100ms\"\nsize = 0", 200),
        ("kind = \"put\"\nevery = \"100ms\"\nsize = 4096", 200),
        ("kind = \"put\"\nwindow = 8\nthink = \"2s\"\nsize = \"1MiB\"", 60),
        ("kind = \"get\"\nevery = \"100ms\"\nsize = 65536", 200),
        ("kind = \"write\"\nevery = \"500ms\"\nsize = \"1MiB\"", 40),
        ("kind = \"read\"\nevery = \"500ms\"\nsize = \"1MiB\"", 40),
        (REQUESTS, 200),
    ] {
        let played = must_hold(&two(workload, ""), None);
        assert!(played.summary.completed >= least, "{workload}\n{}", played.summary);
    }
}

#[test]
fn a_run_is_the_same_every_time_and_another_seed_gives_another_one() {
    let scenario = two(
        REQUESTS,
        "[[fault]]\nkind = \"loss\"\non = \"b\"\nat = \"3s\"\nfor = \"5s\"\nshare = \"5%\"",
    );
    let run = |seed| play(scenario.clone(), Some(seed), Detail::Moments);
    let (one, two, other) = (run(7), run(7), run(8));
    assert_eq!(one.summary.trace_hash, two.summary.trace_hash);
    assert_ne!(one.summary.trace_hash, other.summary.trace_hash);
}

#[test]
fn whatever_befalls_an_adapter_costs_time_and_no_message() {
    let fault = |kind: &str, more: &str| {
        format!("[[fault]]\nkind = \"{kind}\"\non = \"b/0\"\nat = \"5s\"\n{more}\n")
    };
    for fault in [
        fault("device", "for = \"3s\""),
        fault("carrier", "for = \"3s\""),
        fault("carrier", "for = \"3s\"\nknown_after = \"1s\""),
        fault("degraded", "for = \"5s\"\nbandwidth = \"100Mbit/s\""),
        fault("completions", "for = \"3s\"\nshare = \"5%\""),
        fault("reset", ""),
        fault("refuse", "for = \"3s\""),
        fault("cut", "for = \"5s\""),
        fault("loss", "for = \"5s\"\nshare = \"5%\""),
        fault("corrupt", "for = \"5s\"\nshare = \"5%\""),
        fault("duplicate", "for = \"5s\"\nshare = \"20%\""),
        fault("reorder", "for = \"5s\"\nshare = \"20%\"\nby = \"1ms\""),
        fault("slow", "for = \"5s\"\nbandwidth = \"100Mbit/s\""),
        fault("ni_del", "for = \"1s\""),
        fault("kill", "for = \"1s\"").replace("b/0", "b"),
        fault("kill", "for = \"1s\"\nprocess = true").replace("b/0", "b"),
        fault("pause", "for = \"6s\"").replace("b/0", "b"),
        fault("memory", "for = \"2s\"").replace("b/0", "b"),
    ] {
        for workload in [REQUESTS, GETS] {
            let played = play(two(workload, &fault), None, Detail::default());
            assert_eq!(played.violation, None, "{workload}{fault}");
            assert!(played.summary.holds(), "{workload}{fault}{}", played.summary);
        }
    }
}

/// Two nodes with two rails each, on RDMA networks or one of them on streams.
fn rails(second: &str, fault: &str) -> Played {
    rails_with("kind = \"request\"\nsize = 3000\nreply = 20000", second, fault)
}

/// The same with these exchanges.
fn rails_with(workload: &str, second: &str, fault: &str) -> Played {
    let text = format!(
        r#"
name = "rails"
duration = "20s"
fidelity = "bytes"
[[net]]
name = "o2ib"
transport = "rdma"
latency = "5us"
{second}
[[node]]
name = "a"
rails = ["o2ib", "{net}"]
[[node]]
name = "b"
rails = ["o2ib", "{net}"]
[[workload]]
{workload}
from = "a"
to = "b"
every = "5ms"
timeout = "8s"
until = "9s"
{fault}
[bars]
errors = 0
duplicates = 0
"#,
        net = if second.is_empty() { "o2ib" } else { "tcp" },
    );
    play(scenario(&text), None, Detail::default())
}

const TCP: &str = "[[net]]\nname = \"tcp\"\nlatency = \"50us\"";

/// No node gets a report of it: only the age of completions shows it.
const PULLED: &str = "[[fault]]\nkind = \"cut\"\non = \"b/0\"\nat = \"4s\"\nfor = \"4s\"\n";

#[test]
fn a_pulled_cable_costs_at_most_100_ms_where_another_rail_lives() {
    for second in ["", TCP] {
        let played = rails(second, PULLED);
        assert_eq!(played.violation, None, "{second}");
        assert!(played.summary.holds(), "{second}{}", played.summary);
        let stall = played.summary.stall_max;
        assert!(stall <= 100_000_000, "{second}: {stall} ns\n{}", played.summary);
        assert!(played.summary.completed > 1500, "{}", played.summary);
    }
}

/// What leaves for the second host by its first rail vanishes, or what comes from there; the links stay up.
#[test]
fn a_black_hole_in_either_direction_costs_at_most_100_ms() {
    for direction in ["in", "out"] {
        for second in ["", TCP] {
            let fault = format!("{PULLED}direction = \"{direction}\"\n");
            let played = rails(second, &fault);
            assert_eq!(played.violation, None, "{direction} {second}");
            assert!(played.summary.holds(), "{direction} {second}{}", played.summary);
            let stall = played.summary.stall_max;
            assert!(stall <= 100_000_000, "{direction} {second}: {stall} ns\n{}", played.summary);
        }
    }
}

#[test]
fn a_dead_device_costs_at_most_100_ms_where_another_rail_lives() {
    let fault = PULLED.replace("\"cut\"", "\"device\"");
    for second in ["", TCP] {
        let played = rails(second, &fault);
        assert_eq!(played.violation, None, "{second}");
        assert!(played.summary.holds(), "{second}{}", played.summary);
        let stall = played.summary.stall_max;
        assert!(stall <= 100_000_000, "{second}: {stall} ns\n{}", played.summary);
    }
}

/// A GET has its memory open for its peer while the data are awaited, so each fault meets some of them. No
/// write reaches memory of one that has ended (checker `drivers`), none is lost, and data that come by another
/// rail meanwhile are taken.
#[test]
fn gets_in_the_middle_of_a_fault_lose_nothing_where_another_rail_lives() {
    let in_hole = format!("{PULLED}direction = \"in\"\n");
    let out_hole = format!("{PULLED}direction = \"out\"\n");
    let on_asker = PULLED.replace("b/0", "a/0");
    let device = PULLED.replace("\"cut\"", "\"device\"");
    let asker_device = device.replace("b/0", "a/0");
    let workload = "kind = \"get\"\nsize = 65536";
    for fault in [PULLED, &in_hole, &out_hole, &on_asker, &device, &asker_device] {
        for second in ["", TCP] {
            let played = rails_with(workload, second, fault);
            assert_eq!(played.violation, None, "{fault} {second}");
            assert!(played.summary.holds(), "{fault} {second}{}", played.summary);
            let stall = played.summary.stall_max;
            assert!(stall <= 100_000_000, "{fault} {second}: {stall} ns\n{}", played.summary);
            assert!(played.summary.completed > 1500, "{}", played.summary);
        }
    }
}

#[test]
fn a_degraded_link_is_left_for_another_rail() {
    let fault = "[[fault]]\nkind = \"degraded\"\non = [\"a/0\", \"b/0\"]\nat = \"4s\"\n\
                 for = \"4s\"\nbandwidth = \"1Mbit/s\"\n";
    let played = rails("", fault);
    assert_eq!(played.violation, None);
    assert!(played.summary.holds(), "{}", played.summary);
    // A reply takes 160 ms over the slow link, and requests come every 5 ms.
    let stall = played.summary.stall_max;
    assert!(stall < 200_000_000, "{stall} ns\n{}", played.summary);
}

/// Which host stands still, from when, and how long, in milliseconds: adapters repeat what gets no
/// acknowledgement meanwhile, all rails are doubted in turns, and connections end.
const PAUSES: [(&str, u32, u32); 24] = [
    ("a", 6419, 1203),
    ("a", 7664, 545),
    ("a", 10117, 86),
    ("a", 10998, 32),
    ("a", 14371, 403),
    ("a", 19320, 207),
    ("a", 23286, 257),
    ("a", 33527, 246),
    ("a", 34509, 274),
    ("a", 36425, 329),
    ("a", 39390, 372),
    ("a", 53893, 1735),
    ("b", 8525, 1680),
    ("b", 11139, 292),
    ("b", 11712, 264),
    ("b", 13650, 53),
    ("b", 15129, 320),
    ("b", 17563, 246),
    ("b", 20112, 488),
    ("b", 21112, 23),
    ("b", 27947, 1088),
    ("b", 35085, 1948),
    ("b", 37985, 386),
    ("b", 49796, 319),
];

/// Two hosts with two rails each, which stand still at these times.
fn loaded(seed: u64, pauses: &[(&str, u32, u32)]) -> Arc<Scenario> {
    let mut text = format!(
        r#"
name = "loaded"
duration = "130s"
fidelity = "bytes"
seed = {seed}
[[net]]
name = "o2ib"
transport = "rdma"
latency = "2ms"
jitter = "150ms"
[[node]]
name = "a"
rails = ["o2ib", "o2ib"]
[[node]]
name = "b"
rails = ["o2ib", "o2ib"]
[[workload]]
kind = "request"
from = "a"
to = "b"
window = 1
size = 2000
reply = 20000
timeout = "45s"
start = "5s"
until = "55s"
[bars]
errors = 0
duplicates = 0
"#
    );
    for (host, at, span) in pauses {
        text += &format!(
            "[[fault]]\nkind = \"pause\"\non = \"{host}\"\nat = \"{at}ms\"\nfor = \"{span}ms\"\n"
        );
    }
    scenario(&text)
}

/// Times at which two hosts stand still from `first` on: as a rule for less than half a second, in one case
/// of five for up to two, with up to `gap_max` ms between two of them.
fn pauses(seed: u64, first: u64, gap_max: u64) -> Vec<(&'static str, u32, u32)> {
    let mut prng = Prng::new(seed);
    let mut pauses = Vec::new();
    for host in ["a", "b"] {
        let mut at = first + prng.below(gap_max);
        while at < 55_000 {
            let span = if prng.one_in(5) { 500 + prng.below(1500) } else { 20 + prng.below(500) };
            pauses.push((host, at as u32, span as u32));
            at += span + 100 + prng.below(gap_max);
        }
    }
    pauses
}

/// How many calls fail in forty such worlds. Prints what each has shown.
fn failed_in_forty(what: &str, first: u64, gap_max: u64) -> u64 {
    let (mut failed, mut completed, mut worlds) = (0, 0, 0);
    for seed in 1..=40 {
        let played = play(loaded(seed, &pauses(seed, first, gap_max)), None, Detail::default());
        assert_eq!(played.violation, None, "{what}: world {seed}");
        let Summary { completed: calls, errors, stall_max, .. } = played.summary;
        let stall = stall_max / 1_000_000;
        println!("{what}: world {seed}: {calls} calls, {errors} failed, longest stall {stall} ms");
        (failed, completed) = (failed + errors, completed + calls);
        worlds += u32::from(errors > 0);
    }
    println!("{what}: {completed} calls, {failed} failed in {worlds} worlds");
    failed
}

/// Worlds drawn like the one below. Where pauses begin before the nodes know each other, the first messages
/// bear no number, and are not sent again. 0, 2 and 14 calls fail as of now; the bars leave some room.
#[test]
fn few_calls_fail_in_worlds_of_hosts_that_stand_still_drawn_at_random() {
    assert_eq!(failed_in_forty("a quarter of the time", 6000, 2600), 0);
    assert!(failed_in_forty("nearly half of the time", 6000, 1000) <= 4);
    assert!(failed_in_forty("from the beginning", 0, 2600) <= 20);
}

/// The data of a PUT and its last message had come, and their receiver had not seen its own PUT_ACK
/// acknowledged: it failed what it had.
#[test]
fn hosts_that_stand_still_lose_no_message_over_two_rails() {
    let played = must_hold(&loaded(3, &PAUSES), None);
    assert!(played.summary.completed > 50, "{}", played.summary);
}

/// A client on streams, a server on RDMA, and two routers between them.
fn routed(fault: &str) -> Played {
    let text = format!(
        r#"
name = "routed"
duration = "30s"
fidelity = "bytes"
[[net]]
name = "tcp"
[[net]]
name = "o2ib"
transport = "rdma"
[[node]]
name = "r"
count = 2
rails = ["tcp", "o2ib"]
router = true
tunables = {{ tiny_buffers = 512, small_buffers = 256, large_buffers = 32 }}
[[node]]
name = "c"
rails = ["tcp"]
routes = [{{ net = "o2ib", gateway = "r" }}]
[[node]]
name = "s"
rails = ["o2ib"]
routes = [{{ net = "tcp", gateway = "r" }}]
[[workload]]
kind = "request"
from = ["c", "s"]
to = ["c", "s"]
every = "100ms"
size = 20000
reply = 20000
timeout = "8s"
retries = 10
until = "15s"
{fault}
[bars]
errors = 0
duplicates = 0
"#
    );
    play(scenario(&text), None, Detail::default())
}

#[test]
fn routers_between_streams_and_rdma_forward_both_ways_and_lose_nothing_with_one_of_them() {
    for fault in [
        "",
        "[[fault]]\nkind = \"kill\"\non = \"r-1\"\nat = \"8s\"\nfor = \"5s\"\n",
        "[[fault]]\nkind = \"carrier\"\non = \"r-1/o2ib\"\nat = \"8s\"\nfor = \"5s\"\n",
        "[[fault]]\nkind = \"cut\"\non = \"r-1/o2ib\"\nat = \"8s\"\nfor = \"5s\"\n",
    ] {
        let played = routed(fault);
        assert_eq!(played.violation, None, "{fault}");
        assert!(played.summary.holds(), "{fault}{}", played.summary);
        assert!(played.summary.completed > 250, "{fault}{}", played.summary);
    }
}

#[test]
fn selftest_moves_checked_bytes_over_rdma() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/selftest.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let text = text
        .replace("name = \"tcp\"", "name = \"o2ib\"\ntransport = \"rdma\"")
        .replace("\"tcp\"", "\"o2ib\"");
    must_hold(&scenario(&format!("fidelity = \"bytes\"\n{text}")), None);
}

#[test]
fn networks_of_adapters_need_bytes_and_addresses_of_their_driver() {
    let text = |net: &str, fidelity: &str, fault: &str| {
        format!(
            "name = 'x'\nfidelity = '{fidelity}'\n[[net]]\nname = '{net}'\ntransport = 'rdma'\n\
             [[net]]\nname = 'tcp7'\n[[node]]\nname = 'a'\nrails = ['{net}', 'tcp7']\n{fault}"
        )
    };
    let fault = |on: &str| format!("[[fault]]\nkind = 'device'\nat = '1s'\non = '{on}'\n");
    for (text, says) in [
        (text("o2ib", "messages", ""), "expected fidelity = \"bytes\""),
        (text("tcp", "bytes", ""), "needs 4-byte addresses: expected o2ib"),
        (text("o2ib", "bytes", &fault("a/1")), "interfaces of transport \"rdma\""),
        (text("o2ib", "bytes", &fault("a")), "@tcp7 is none"),
    ] {
        let error = parse("x", &text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(parse("x", &text("o2ib", "bytes", &fault("a/0"))).is_ok());
}

#[test]
fn the_swarm_draws_networks_of_adapters_beside_streams_and_what_befalls_them() {
    let texts: Vec<String> =
        (0..800).map(|round| Round::draw(seed_of(1, round)).unwrap().text).collect();
    let with = |word: &str| texts.iter().filter(|text| text.contains(word)).count();
    assert!(with("transport = \"rdma\"") > 20, "{}", with("transport = \"rdma\""));
    for kind in ["device", "degraded", "completions", "credits"] {
        assert!(with(&format!("kind = \"{kind}\"")) > 2, "{kind}");
    }
    let both = |text: &&String| text.contains("\"rdma\"") && text.contains("router = true");
    assert!(texts.iter().filter(both).count() > 3);
}

#[test]
fn two_rounds_of_the_swarm_with_networks_of_adapters_break_no_rule() {
    let rounds = (0..).map(|n| Round::draw(seed_of(3, n)).unwrap());
    for round in rounds.filter(|round| round.text.contains("\"rdma\"")).take(2) {
        let played = round.play(Detail::default());
        assert!(played.summary.completed > 0, "seed {}: {}", round.seed, played.summary);
        if let Some(violation) = played.violation {
            panic!("ulnet sim swarm --seed {} --one\n{violation}\n{}", round.seed, round.text);
        }
    }
}
