//! Scenarios as texts: what is read, and how mistakes are reported.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::time::Duration;

use lnet::Profile;
use lnet_scenario::{
    Direction, Exchange, FaultKind, LoadKind, LockPart, NodeId, Pace, Pairing, RailRef, RpcLoss,
    RpcOperation, Scenario, ScenarioError, SelftestKind, Share, StoreSpec, TargetKind, Transport,
    parse,
};
use proptest::prelude::*;

const WHOLE: &str = r#"
name = "everything"
description = "each key once"
seed = 7
duration = "60s"
profile = "documents"
tunables = { transaction_timeout = 10 }

[[net]]
name = "tcp"
latency = "100us"
jitter = "10us"
bandwidth = "10Gbit/s"
loss = "0.1%"
credits = 128
peer_credits = 16
peer_timeout = 100

[[net]]
name = "o2ib1"
transport = "datagram"

[[node]]
name = "client"
count = 3
rails = ["tcp", "tcp"]
routes = [{ net = "o2ib1", gateway = "router", hops = 1, priority = 2 }]

[[node]]
name = "router"
router = true
rails = ["10.0.0.9@tcp", "o2ib1"]
tunables = { small_buffers = 64 }
ping_seq = 7

[[node]]
name = "server"
profile = "kernel"
rails = ["o2ib1"]
routes = [{ net = "tcp", gateway = "router/1" }]

[[workload]]
kind = "request"
from = "client"
to = "server"
window = 4
think = "1ms"
size = "4KiB"
reply = 512
retries = 2
timeout = "3s"

[[workload]]
kind = "put"
from = ["client-1", "client-3"]
to = "router/tcp"
pairing = "all"
rate = "10MB/s"
size = "1MiB"
ack = false
verify = false
start = "1s"
until = "50s"

[[fault]]
at = "10s"
for = "5s"
kind = "cut"
on = "client-2/1"
peer = "router"
direction = "out"

[[fault]]
at = "20s"
until = "30s"
kind = "kill"
on = "router"

[[fault]]
at = "31s"
kind = "tune"
on = "client"
tunables = { retry_count = 3 }

[[fault]]
at = "31500ms"
kind = "peer_del"
on = "client"
peer = "router"

[[fault]]
at = "32s"
kind = "partition"
sides = ["client", ["server", "router"]]

[bars]
errors = 0
stall_max = "3s"
control_share = "5%"
"#;

fn whole() -> Scenario {
    parse("whole.toml", WHOLE).unwrap()
}

#[test]
fn a_scenario_has_the_values_of_its_text() {
    let s = whole();
    assert_eq!((s.name.as_str(), s.seed, s.profile), ("everything", 7, Profile::Documents));
    let tcp = &s.world.nets[0];
    assert_eq!(tcp.bandwidth, Some(1_250_000_000));
    assert_eq!((tcp.loss, tcp.transport), (Share(1_000), Transport::Stream));
    assert_eq!((tcp.tunables.credits, tcp.tunables.peer_credits), (128, 16));
    assert_eq!(s.world.nets[1].transport, Transport::Datagram);
    let [put, request] = [&s.workload[1], &s.workload[0]];
    assert_eq!(request.exchange, Exchange::Request { reply: 512, ack: false });
    assert_eq!(request.pace, Pace::Window { window: 4, think: Duration::from_millis(1) });
    assert_eq!((request.size, request.retries), (4096, 2));
    assert_eq!(put.exchange, Exchange::Put { ack: false });
    assert_eq!((put.pace, put.pairing), (Pace::Rate(10_000_000), Pairing::All));
    assert_eq!(put.from.nodes(), [NodeId(0), NodeId(2)]);
    assert_eq!(put.to.rails(&s.world), [RailRef { node: NodeId(3), rail: 0 }]);
    assert!(!put.verify && request.verify);
    assert_eq!(s.bars.stall_max, Some(Duration::from_secs(3)));
    assert_eq!(s.bars.control_share, Some(Share(50_000)));
}

#[test]
fn nids_that_are_left_open_are_given_in_order_and_never_twice() {
    let s = whole();
    let nids: Vec<String> =
        s.world.nodes.iter().flat_map(|n| n.rails.iter().map(|r| r.nid.to_string())).collect();
    assert_eq!(
        nids,
        [
            "10.0.0.1@tcp",
            "10.0.0.2@tcp",
            "10.0.0.3@tcp",
            "10.0.0.4@tcp",
            "10.0.0.5@tcp",
            "10.0.0.6@tcp",
            "10.0.0.9@tcp",
            "10.4.0.1@o2ib1",
            "10.4.0.2@o2ib1",
        ]
    );
}

#[test]
fn nodes_are_found_by_name_and_group() {
    let w = whole().world;
    assert_eq!(w.find("client-3"), Some(NodeId(2)));
    assert_eq!(w.find("server"), Some(NodeId(4)));
    assert_eq!((w.find("client"), w.find("client-4"), w.find("server-1")), (None, None, None));
    assert_eq!(w.name(NodeId(1)), "client-2");
    assert_eq!(w.group_of(NodeId(3)).unwrap().tunables.len(), 2, "the shared one and its own");
}

#[test]
fn gateways_are_the_routers_nids_on_ones_own_networks() {
    let w = whole().world;
    let routes = &w.groups[0].routes;
    assert_eq!(routes.len(), 1);
    assert_eq!(routes[0].gateway.to_string(), "10.0.0.9@tcp");
    assert_eq!((routes[0].hops, routes[0].priority), (Some(1), 2));
    assert_eq!(w.groups[2].routes[0].gateway.to_string(), "10.4.0.1@o2ib1");
}

#[test]
fn another_profile_is_for_nodes_that_name_none() {
    let mut s = whole();
    s.set_profile(Profile::Off).unwrap();
    let profiles: Vec<Profile> = s.world.groups.iter().map(|g| g.profile).collect();
    assert_eq!(profiles, [Profile::Off, Profile::Off, Profile::Kernel]);
    s.world.groups[0].tunables.push(("retry_count", 9));
    s.world.groups[0].tunables.push(("transaction_timeout", 4));
    assert!(s.set_profile(Profile::Default).is_err());
    assert_eq!(s.world.groups[1].profile, Profile::Off, "nothing is half done");
}

#[test]
fn faults_know_their_time_place_and_line() {
    let s = whole();
    let FaultKind::Cut(links) = &s.faults[0].kind else { panic!("{:?}", s.faults[0]) };
    assert_eq!(links.direction, Direction::Out);
    assert_eq!(links.on.rails(&s.world), [RailRef { node: NodeId(1), rail: 1 }]);
    assert_eq!(links.peer.as_ref().unwrap().nodes(), [NodeId(3)]);
    assert_eq!(s.faults[0].until, Some(Duration::from_secs(15)));
    assert_eq!(s.faults[1].until, Some(Duration::from_secs(30)));
    let line = WHOLE.lines().position(|l| l == "[[fault]]").unwrap() as u32 + 1;
    assert_eq!(s.faults[0].line, line);
    let FaultKind::Tune { tunables, .. } = &s.faults[2].kind else { panic!("not a tune") };
    assert_eq!(tunables[..], [("retry_count", 3)], "only what the fault names");
    let FaultKind::PeerDel { nodes, peers } = &s.faults[3].kind else {
        panic!("{:?}", s.faults[3])
    };
    assert_eq!((nodes.nodes().len(), peers.nodes()), (3, vec![NodeId(3)]));
    assert_eq!(s.world.groups.iter().map(|g| g.ping_seq).collect::<Vec<_>>(), [0, 7, 0]);
}

/// The whole text with one part replaced, which must be there.
fn spoilt(from: &str, to: &str) -> ScenarioError {
    assert!(WHOLE.contains(from), "{from}");
    parse("s.toml", &WHOLE.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn every_mistake_in_a_scenario_is_reported_with_its_line_and_what_was_expected() {
    let line = |text: &str| {
        WHOLE.lines().position(|l| l.contains(text)).unwrap_or_else(|| panic!("{text}")) as u32 + 1
    };
    for (from, to, at, says) in [
        ("name = \"everything\"", "", "", "has no 'name'"),
        ("duration = \"60s\"", "duration = \"-1s\"", "duration", "a time of 0 or more"),
        ("duration = \"60s\"", "duration = 60", "duration", "with its unit"),
        ("duration = \"60s\"", "duration = \"0s\"", "duration", "longer than 0s"),
        ("seed = 7", "sead = 7", "seed", "unknown key 'sead'"),
        ("transaction_timeout = 10", "transaction_timeout = 0", "tunables =", "1 to 2147483647"),
        ("transaction_timeout = 10", "transaction_time = 1", "tunables =", "'transaction_time'"),
        ("jitter = \"10us\"", "jittre = \"10us\"", "jitter", "unknown key 'jittre'"),
        ("loss = \"0.1%\"", "loss = \"101%\"", "loss", "from \"0%\" to \"100%\""),
        ("peer_credits = 16", "peer_credits = 0", "peer_credits", "from 1 to"),
        (
            "rails = [\"tcp\", \"tcp\"]",
            "rails = [\"tcp9\"]",
            "\"tcp\", \"tcp\"",
            "there are tcp, o2ib1",
        ),
        ("rails = [\"tcp\", \"tcp\"]", "rails = []", "\"tcp\", \"tcp\"", "1 to 64 rails"),
        ("10.0.0.9@tcp", "10.0.0.9@tcp5", "10.0.0.9@tcp", "a network of the scenario"),
        ("gateway = \"router\"", "gateway = \"server\"", "gateway = \"router\",", "a router"),
        (
            "gateway = \"router/1\"",
            "gateway = \"router/0\"",
            "router/1",
            "on a network of 'server'",
        ),
        ("net = \"o2ib1\"", "net = \"tcp\"", "net = \"o2ib1\"", "that the node is not on"),
        ("to = \"server\"", "to = \"sever\"", "to = \"server\"", "no node is called 'sever'"),
        ("to = \"router/tcp\"", "to = \"router/7\"", "router/tcp", "has no rail 7"),
        ("window = 4", "", "kind = \"request\"", "expected every or rate, or a window alone"),
        ("window = 4", "every = \"0s\"", "window = 4", "a time above 0"),
        ("window = 4", "every = \"1s\"\nwindow = 4", "", "but with a window alone"),
        ("window = 4", "window = 65537", "window = 4", "a number from 1 to 65536"),
        ("kind = \"request\"", "kind = \"read\"", "reply = 512", "unknown key 'reply'"),
        (
            "transport = \"datagram\"",
            "burst = 9",
            "transport",
            "no burst where there is no bandwidth",
        ),
        ("jitter = \"10us\"", "burst = \"65MiB\"", "jitter", "at most 67108864 bytes"),
        ("size = \"1MiB\"", "size = \"2MiB\"", "1MiB", "at most 1048576 bytes"),
        ("until = \"50s\"", "until = \"70s\"", "until = \"50s\"", "not after the end"),
        ("kind = \"cut\"", "kind = \"cat\"", "kind = \"cut\"", "one of cut, partition"),
        ("for = \"5s\"", "for = \"50.1s\"", "for = \"5s\"", "not after that of the scenario"),
        ("at = \"31s\"", "at = \"31s\"\nfor = \"1s\"", "", "no end: it is done at once"),
        ("peer = \"router\"\n\n", "\n", "31500ms", "the nodes that they forget"),
        ("ping_seq = 7", "ping_seq = -1", "ping_seq", "a number from 0 to 4294967295"),
        ("direction = \"out\"", "direction = \"up\"", "direction", "one of both, in, out"),
        (
            "retry_count = 3",
            "retry_count = 3000",
            "retry_count = 3",
            "must not exceed transaction_timeout",
        ),
        (
            "[\"server\", \"router\"]",
            "[\"server\", \"client-1\"]",
            "sides",
            "without a node in common",
        ),
        ("errors = 0", "errors = -1", "errors", "a number from 0"),
        ("name = \"server\"", "name = \"client-1\"", "name = \"server\"", "a name of its own"),
        ("name = \"server\"", "name = \"tcp7\"", "name = \"server\"", "not the name of a network"),
        ("count = 3", "count = 300000", "count", "a number from 1 to 200000"),
    ] {
        let e = spoilt(from, to);
        assert!(e.what.contains(says), "{from} → {to}: {e}");
        assert!(at.is_empty() || e.line == line(at) || e.line + 1 == line(at), "{to}: {e}");
        assert!(e.to_string().starts_with("s.toml:"), "{e}");
    }
}

#[test]
fn a_request_asks_for_acks_only_where_its_text_says_so() {
    let ask = |text: &str| {
        let text = WHOLE.replacen("reply = 512", &format!("reply = 512\n{text}"), 1);
        parse("s.toml", &text).unwrap().workload[0].exchange
    };
    assert_eq!(ask(""), Exchange::Request { reply: 512, ack: false });
    assert_eq!(ask("ack = true"), Exchange::Request { reply: 512, ack: true });
}

#[test]
fn a_window_beside_a_pace_bounds_what_is_under_way() {
    let s = parse("s.toml", &WHOLE.replacen("rate =", "window = 16\nrate =", 1)).unwrap();
    assert_eq!((s.workload[1].pace, s.workload[1].window), (Pace::Rate(10_000_000), 16));
    let s = whole();
    assert_eq!(s.workload.iter().map(|w| w.window).collect::<Vec<_>>(), [4, 1024]);
}

#[test]
fn reads_and_writes_are_rpcs_with_bulk() {
    let rpc = |kind: &str| {
        let text = WHOLE.replacen("kind = \"put\"", &format!("kind = \"{kind}\""), 1);
        parse("s.toml", &text.replacen("ack = false\n", "", 1)).unwrap().workload[1].exchange
    };
    assert_eq!(rpc("read"), Exchange::Rpc { write: false });
    assert_eq!(rpc("write"), Exchange::Rpc { write: true });
}

#[test]
fn a_network_has_no_burst_unless_its_text_gives_one() {
    let burst = |text: &str| {
        let text = WHOLE.replacen("jitter =", &format!("{text}\njitter ="), 1);
        parse("s.toml", &text).unwrap().world.nets[0].burst
    };
    assert_eq!((burst(""), burst("burst = \"64KiB\"")), (0, 65_536));
}

#[test]
fn a_carrier_is_known_to_be_gone_at_once_unless_the_text_says_later() {
    let known_after = |kind: &str| {
        let text = WHOLE.replacen("kind = \"cut\"", &format!("kind = {kind}"), 1);
        let text = text.replacen("peer = \"router\"\ndirection = \"out\"\n", "", 1);
        match parse("s.toml", &text).unwrap().faults[0].kind {
            FaultKind::Carrier { known_after, .. } | FaultKind::Flap { known_after, .. } => {
                known_after
            }
            ref other => panic!("{other:?}"),
        }
    };
    let flap = "\"flap\"\ndown = \"1s\"\nup = \"1s\"\nknown_after = \"3ms\"";
    assert_eq!(known_after("\"carrier\""), Duration::ZERO);
    assert_eq!(known_after("\"carrier\"\nknown_after = \"2ms\""), Duration::from_millis(2));
    assert_eq!(known_after(flap), Duration::from_millis(3));
}

#[test]
fn the_process_of_a_node_dies_alone_only_where_the_text_says_so() {
    let dies_alone = |text: &str| {
        let text = WHOLE.replacen("kind = \"kill\"", &format!("kind = \"kill\"\n{text}"), 1);
        let faults = parse("s.toml", &text).unwrap().faults;
        let FaultKind::Kill { process, .. } = faults[1].kind else { panic!("{faults:?}") };
        process
    };
    assert!(!dies_alone(""));
    assert!(dies_alone("process = true"));
}

#[test]
fn broken_toml_is_reported_with_its_line() {
    let e = parse("x.toml", "name = \"a\"\nduration = \n").unwrap_err();
    assert_eq!((e.file.as_str(), e.line), ("x.toml", 2), "{e}");
    assert!(parse("x.toml", "").unwrap_err().what.contains("has no 'name'"));
}

#[test]
fn a_node_comes_back_with_one_nid_for_each_rail() {
    let with = |nids: &str| {
        let kill = format!("kind = \"kill\"\nnids = [{nids}]\non = \"router\"");
        parse("s.toml", &WHOLE.replacen("kind = \"kill\"\non = \"router\"", &kill, 1))
    };
    let s = with("\"10.0.9.9@tcp\", \"10.9.0.1@o2ib1\"").unwrap();
    assert!(matches!(&s.faults[1].kind, FaultKind::Kill { nids: Some(n), .. } if n.len() == 2));
    assert!(with("\"10.0.9.9@tcp\"").unwrap_err().what.contains("2 NIDs"));
    assert!(
        with("\"10.0.0.1@tcp\", \"10.9.0.1@o2ib1\"").unwrap_err().what.contains("no other node")
    );
    assert!(
        with("\"10.9.0.1@o2ib1\", \"10.0.9.9@tcp\"").unwrap_err().what.contains("on tcp, o2ib1")
    );
}

#[test]
fn the_scenarios_of_the_project_are_scenarios() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Those for real sockets are read by the tests of what plays them.
            continue;
        }
        let s = parse(&path.to_string_lossy(), &std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(path.file_stem().unwrap().to_str(), Some(s.name.as_str()));
        assert_ne!(s.bars, Default::default(), "{}: nothing must hold", s.name);
        count += 1;
    }
    assert!(count >= 5, "{count}");
}

proptest! {
    #[test]
    fn any_text_is_a_scenario_or_an_error(text in ".{0,400}") {
        let _ = parse("any", &text);
    }

    #[test]
    fn a_scenario_with_bytes_changed_is_a_scenario_or_an_error(
        cuts in proptest::collection::vec((0usize..2200, 0usize..20, "[a-z0-9\"=@/\\[\\]{}.\n -]{0,6}"), 1..4)
    ) {
        let mut text = WHOLE.to_owned();
        for (at, len, new) in cuts {
            let at = at.min(text.len());
            let end = (at + len).min(text.len());
            text.replace_range(at..end, &new);
        }
        if let Ok(s) = parse("any", &text) {
            // Every reference leads somewhere.
            for w in &s.workload {
                prop_assert!(w.from.nodes().iter().all(|n| s.world.node(*n).is_some()));
                prop_assert!(w.to.rails(&s.world).iter().all(|r| s.world.rail(*r).is_some()));
                prop_assert!(w.start < w.end && w.end <= s.duration);
            }
            for f in &s.faults {
                prop_assert!(f.at < s.duration && f.until.is_none_or(|u| f.at < u && u <= s.duration));
            }
        }
    }
}

#[test]
fn a_table_with_a_count_can_be_played_at_another_size() {
    let sized = |counts: &[(&str, u32)]| {
        let counts: Vec<(String, u32)> =
            counts.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
        lnet_scenario::parse_sized("file", WHOLE, &counts)
    };
    let count = |s: &Scenario| s.world.groups[0].count;
    assert_eq!(count(&sized(&[]).unwrap()), 3);
    let large = sized(&[("client", 5000)]).unwrap();
    assert_eq!((count(&large), large.world.nodes.len()), (5000, 5002));
    let error = |counts| sized(counts).unwrap_err().to_string();
    assert!(error(&[("router", 2)]).contains("no [[node]] 'router' with a count"));
    assert!(error(&[("client", 0)]).contains("instead of 0"));
    assert!(error(&[("client", u32::MAX)]).contains("expected 1 to "));
}

#[test]
fn conduct_of_a_node_is_the_profile_then_the_top_then_its_own_rows() {
    let text = r#"
        name = "rows"
        duration = "1s"
        [conduct]
        retries_discovery = false
        recovery_pace = "constant"
        [[net]]
        name = "tcp"
        [[node]]
        name = "a"
        rails = ["tcp"]
        conduct = { retries_discovery = true, believes_last_claim = true }
        [[node]]
        name = "b"
        rails = ["tcp"]
    "#;
    let scenario = parse("rows.toml", text).unwrap();
    let rows = ["retries_discovery", "recovery_pace", "believes_last_claim", "resends_refused"];
    let of = |n: usize| {
        let conduct = scenario.world.groups[n].settings().conduct;
        rows.map(|row| conduct.get(row).unwrap())
    };
    assert_eq!(of(0), ["yes", "constant", "yes", "yes"]);
    assert_eq!(of(1), ["no", "constant", "no", "yes"]);
    for (wrong, word) in [
        ("is_nice = true", "sets 'is_nice': expected one of"),
        ("recovery_pace = \"fast\"", "one of adaptive, constant, exponential, off"),
        ("resends_refused = 1", "resends_refused"),
    ] {
        let text = text.replace("retries_discovery = false", wrong);
        let text = text.replace("recovery_pace = \"constant\"", "");
        let error = parse("rows.toml", &text).unwrap_err().to_string();
        assert!(error.contains(word), "{wrong}: {error}");
    }
}

const CALLS: &str = r#"
name = "calls"
warm_up = "10s"

[rpc]
obd_timeout = "300s"
at_max = "400s"
evict_factor = 20

[[net]]
name = "tcp"

[[node]]
name = "client"
count = 2
rails = ["tcp"]

[[node]]
name = "server"
count = 2
rails = ["tcp"]

[[target]]
name = "list-1"
kind = "list"
on = "server-1"
failover = "server-2"
commit = "500ms"

[[target]]
name = "list-2"
kind = "list"
on = "server-2"

[[client]]
on = "client"
targets = ["list-1", "list-2"]

[[workload]]
kind = "rpc"
from = "client"
to = "list-1"
window = 4
reads = "20%"
bulk = "64KiB"
timeout = "30s"
until = "20s"

[[fault]]
at = "1s"
for = "2s"
kind = "handler_delay"
target = "list-1"
by = "20s"
jitter = "1s"

[[fault]]
at = "5s"
for = "2s"
kind = "commit_stall"
target = ["list-1", "list-2"]

[[fault]]
at = "8s"
for = "10s"
kind = "failover"
on = "server-1"
after = "3s"

[[fault]]
at = "9s"
kind = "evict"
target = "list-2"
on = "client-2"

[bars]
executed_twice = 0
lost_writes = 0
evictions = 1
rpc_longest_max = "30s"
"#;

#[test]
fn targets_clients_calls_and_their_faults_are_read() {
    let s = parse("calls.toml", CALLS).unwrap();
    let secs = Duration::from_secs;
    let t = &s.rpc.tunables;
    assert_eq!((t.obd_timeout, t.at_max, t.evict_factor), (secs(300), secs(400), 20));
    assert_eq!(t.at_min, secs(5), "what is not named is as it is");
    let one = &s.rpc.targets[0];
    assert_eq!((one.on, one.failover), (NodeId(2), Some(NodeId(3))));
    assert_eq!(one.commit, Duration::from_millis(500));
    assert_eq!(s.rpc.targets[1].commit, Duration::ZERO);
    assert_eq!(s.rpc.targets_of(NodeId(1)), [0, 1]);
    assert_eq!(s.rpc.targets_of(NodeId(2)), [0; 0]);
    let load = &s.rpc.loads[0];
    assert_eq!((load.to.as_slice(), load.window), (&[0][..], 4));
    assert_eq!(load.kind, LoadKind::List { bulk: 65536 });
    assert_eq!((load.start, load.end), (secs(10), secs(30)), "after the warm-up");
    assert_eq!(load.timeout, Some(secs(30)));
    assert!(s.workload.is_empty());
    let kinds: Vec<&str> = s.faults.iter().map(|f| f.kind.name()).collect();
    assert_eq!(kinds, ["handler_delay", "commit_stall", "failover", "evict"]);
    assert_eq!(s.bars.rpc_longest_max, Some(secs(30)));
    assert_eq!((s.bars.executed_twice, s.bars.evictions), (Some(0), Some(1)));
    let change = lnet_scenario::Change::new("rpc.at_max", "600s").unwrap();
    let changed = lnet_scenario::parse_changed("calls.toml", CALLS, &[], &[change]).unwrap();
    assert_eq!(changed.rpc.tunables.at_max, secs(600));
}

#[test]
fn mistakes_above_lnet_are_named_with_value_and_expectation() {
    for (from, to, says) in [
        (
            "at_max = \"400s\"",
            "at_max = \"3s\"",
            "has at_max 3s: expected 0s, or at least at_min 5s",
        ),
        ("obd_timeout = \"300s\"", "obd_timeout = \"0s\"", "expected a time from 1s to 24h"),
        (
            "at_max",
            "at_most",
            "unknown key 'at_most': expected one of profile, obd_timeout, ping_interval",
        ),
        ("kind = \"list\"\non = \"server-1\"", "kind = \"disk\"\non = \"server-1\"", "one of list"),
        ("on = \"server-1\"\nfailover", "on = \"server\"\nfailover", "expected one node"),
        ("failover = \"server-2\"", "failover = \"server-1\"", "expected another node than 'on'"),
        ("name = \"list-2\"", "name = \"list-1\"", "expected each target once"),
        ("to = \"list-1\"", "to = \"list-3\"", "expected the name of a target: list-1, list-2"),
        (
            "from = \"client\"",
            "from = \"server\"",
            "a [[client]] of 'list-1' at each node: 'server-1'",
        ),
        ("target = \"list-2\"", "target = \"\"", "expected the name of a target: list-1, list-2"),
        ("after = \"3s\"", "", "has no 'after': expected how long until the other node takes over"),
        (
            "kind = \"failover\"\non = \"server-1\"",
            "kind = \"failover\"\non = \"client-1\"",
            "'client-1' serves none",
        ),
        ("failover = \"server-2\"\n", "", "'server-1' serves none"),
        ("window = 4\n", "rate = \"1MiB/s\"\n", "expected no rate where there is no size"),
        ("reads = \"20%\"", "pairing = \"all\"", "unknown key 'pairing'"),
    ] {
        assert!(CALLS.contains(from), "{from}");
        let error = parse("calls.toml", &CALLS.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(says), "{to}: {error}");
        assert!(error.starts_with("calls.toml:"), "{error}");
    }
    let alone = "name = \"x\"\n[rpc]\nat_min = \"4s\"\n[[net]]\nname = \"tcp\"\n\
                 [[node]]\nname = \"a\"\nrails = [\"tcp\"]\n";
    let error = parse("x.toml", alone).unwrap_err().to_string();
    assert!(error.contains("nothing that uses it: expected a [[target]]"), "{error}");
}

const KEYS: &str = r#"
name = "keys"

[rpc]
profile = "documents"
early_reply_defect = true

[[net]]
name = "tcp"

[[node]]
name = "client"
rails = ["tcp"]

[[node]]
name = "server"
rails = ["tcp"]

[[node]]
name = "idle"
rails = ["tcp"]

[[target]]
name = "kv-1"
kind = "kv"
on = "server"
commit = "5s"
store = { latency = "1ms", bandwidth = "100MiB/s", size = "1MiB" }

[[target]]
name = "list-1"
kind = "list"
on = "server"

[[client]]
on = "client"

[[workload]]
kind = "kv"
from = "client"
to = "kv-1"
window = 4
keys = 100
size = "64KiB"
reads = "20%"
cas = "30%"
dels = "10%"

[[fault]]
at = "1s"
for = "2s"
kind = "rpc_lose"
on = "server"
opcode = "put"
part = "reply"

[[fault]]
at = "5s"
kind = "rpc_lose"
on = ["client", "server"]
part = "bulk"
count = 3

[[fault]]
at = "8s"
for = "10s"
kind = "store_full"
target = "kv-1"

[[fault]]
at = "9s"
for = "3s"
kind = "store_error"
target = "kv-1"
share = "30%"
"#;

#[test]
fn stores_keys_and_their_faults_are_read() {
    let s = parse("keys.toml", KEYS).unwrap();
    let ms = Duration::from_millis;
    assert_eq!(s.rpc.tunables.deadline, ptlrpc::DeadlineRule::Plain, "of the profile");
    assert!(s.rpc.tunables.early_reply_defect);
    let kv = &s.rpc.targets[0];
    let store = StoreSpec { latency: ms(1), bandwidth: Some(100 << 20), size: 1 << 20 };
    assert_eq!((kv.kind, kv.store), (TargetKind::Kv, store));
    let kind = LoadKind::Kv { keys: 100, size: 65536, cas: Share(300_000), dels: Share(100_000) };
    assert_eq!(s.rpc.loads[0].kind, kind);
    let kinds: Vec<&str> = s.faults.iter().map(|f| f.kind.name()).collect();
    assert_eq!(kinds, ["rpc_lose", "rpc_lose", "store_full", "store_error"]);
    let losses: Vec<RpcLoss> = s
        .faults
        .iter()
        .filter_map(|f| match &f.kind {
            FaultKind::RpcLose { loss, .. } => Some(*loss),
            _ => None,
        })
        .collect();
    let (operation, part, count) = (Some(RpcOperation::Put), ptlrpc::Part::Reply, None);
    assert_eq!(losses[0], RpcLoss { operation, part, count });
    let (operation, part, count) = (None, ptlrpc::Part::Bulk, Some(3));
    assert_eq!(losses[1], RpcLoss { operation, part, count });
}

#[test]
fn mistakes_about_stores_and_keys_are_named_with_value_and_expectation() {
    for (from, to, says) in [
        ("profile = \"documents\"", "profile = \"cray\"", "expected a profile: default, "),
        ("early_reply_defect = true", "early_reply_defect = 1", "expected true or false"),
        ("latency = \"1ms\"", "latency = \"11s\"", "expected a time of at most 10s"),
        ("bandwidth = \"100MiB/s\"", "bandwidth = \"fast\"", "expected a rate above 0"),
        ("size = \"1MiB\"", "size = \"1KiB\"", "expected at least 65536 bytes"),
        ("size = \"1MiB\" }", "seeks = 1 }", "unknown key 'seeks': expected one of latency"),
        ("kind = \"list\"", "kind = \"list\"\nstore = {}", "a list has none, kinds \"kv\" and"),
        ("keys = 100", "keys = 0", "expected a number from 1 to 65536"),
        ("size = \"64KiB\"", "size = 7", "expected at least 8 bytes"),
        ("size = \"64KiB\"", "bulk = \"64KiB\"", "unknown key 'bulk'"),
        ("cas = \"30%\"", "cas = \"95%\"", "cas and dels of more than 100% together"),
        ("to = \"kv-1\"", "to = \"list-1\"", "targets of kind \"kv\": 'list-1' is a list"),
        ("opcode = \"put\"", "opcode = \"OST_PUT\"", "expected one of append, read, put, get"),
        ("part = \"reply\"", "part = \"half\"", "expected one of request, reply, bulk, early"),
        ("count = 3", "count = 0", "expected a number from 1 to 1000000"),
        ("on = [\"client\", \"server\"]", "on = \"idle\"", "'idle' has none"),
        ("store_full\"\ntarget = \"kv-1\"", "store_full\"\ntarget = \"list-1\"", "has no store"),
        ("share = \"30%\"", "share = \"200%\"", "expected a share from \"0%\" to \"100%\""),
    ] {
        assert!(KEYS.contains(from), "{from}");
        let error = parse("keys.toml", &KEYS.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(says), "{to}: {error}");
        assert!(error.starts_with("keys.toml:"), "{error}");
    }
}

const LOCKS: &str = r#"
name = "locks"

[rpc]
ldlm_enqueue_min = "30s"
ast_resend = false

[[net]]
name = "tcp"

[[node]]
name = "client"
count = 2
rails = ["tcp"]

[[node]]
name = "server"
rails = ["tcp"]

[[target]]
name = "locks-1"
kind = "lock"
on = "server"

[[client]]
on = "client"

[[workload]]
kind = "lock"
from = "client"
to = "locks-1"
window = 2
names = 3
part = "touching"
modes = ["PR", "PW", "GROUP"]
hold = "30s"
keep = "50%"
ramp = "7s"
io = "2s"

[[fault]]
at = "5s"
for = "10s"
kind = "hang"
on = "client-1"

[[fault]]
at = "6s"
for = "3s"
kind = "rpc_lose"
on = "client"
part = "request"
opcode = "blocking"
"#;

#[test]
fn locks_and_their_faults_are_read() {
    let s = parse("locks.toml", LOCKS).unwrap();
    let t = &s.rpc.tunables;
    assert_eq!((t.ldlm_enqueue_min, t.ast_resend), (Duration::from_secs(30), false));
    assert_eq!(s.rpc.targets[0].kind, TargetKind::Lock);
    let LoadKind::Lock(load) = s.rpc.loads[0].kind else { panic!("{:?}", s.rpc.loads) };
    assert_eq!((load.names, load.part, load.keep), (3, LockPart::Touching, Share(500_000)));
    assert_eq!((load.hold, load.io), (Duration::from_secs(30), Some(Duration::from_secs(2))));
    assert_eq!(load.ramp, Duration::from_secs(7));
    let modes: Vec<String> = load.modes.iter().map(|mode| mode.to_string()).collect();
    assert_eq!(modes, ["PW", "PR", "GROUP"]);
    assert!(matches!(&s.faults[0].kind, FaultKind::Hang(on) if on.nodes() == [NodeId(0)]));
    let FaultKind::RpcLose { loss, .. } = &s.faults[1].kind else { panic!("{:?}", s.faults) };
    assert_eq!(loss.operation, Some(RpcOperation::Blocking));
}

#[test]
fn mistakes_about_locks_are_named_with_value_and_expectation() {
    for (from, to, says) in [
        ("kind = \"lock\"\non", "kind = \"lock\"\nstore = {}\non", "a lock has none, kinds \"kv\""),
        ("ldlm_enqueue_min = \"30s\"", "ldlm_enqueue_min = \"0s\"", "a time from 1s to 24h"),
        ("ast_resend = false", "ast_resend = 0", "expected true or false"),
        ("modes = [\"PR\", \"PW\", \"GROUP\"]", "", "has no 'modes': expected modes like"),
        ("modes = [\"PR\", \"PW\", \"GROUP\"]", "modes = []", "expected at least one mode"),
        ("\"GROUP\"]", "\"NL\"]", "expected one of EX, PW, PR, CW, CR, GROUP"),
        ("\"GROUP\"]", "\"EX\"]", "no I/O but under ranges of modes PR, PW and GROUP"),
        ("part = \"touching\"", "part = \"bits\"", "no I/O but under ranges of modes PR, PW"),
        ("part = \"touching\"", "part = \"plain\"", "GROUP requires a range or bits"),
        ("part = \"touching\"", "part = \"half\"", "expected one of whole, touching, random"),
        ("names = 3", "names = 0", "expected a number from 1 to 65536"),
        ("keep = \"50%\"", "reads = \"50%\"", "unknown key 'reads'"),
        ("on = \"client-1\"", "on = \"server\"", "workload of kind \"lock\" is from: 'server'"),
        ("opcode = \"blocking\"", "opcode = \"ast\"", "expected one of append, read, put, get"),
    ] {
        assert!(LOCKS.contains(from), "{from}");
        let error = parse("locks.toml", &LOCKS.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(says), "{to}: {error}");
        assert!(error.starts_with("locks.toml:"), "{error}");
    }
}

const FILES: &str = r#"
name = "files"
duration = "60s"
[[net]]
name = "tcp"
[[node]]
name = "server"
rails = ["tcp"]
[[node]]
name = "client"
rails = ["tcp"]
[[target]]
name = "MGS"
kind = "mgs"
on = "server"
[[target]]
name = "lfs-MDT0000_UUID"
kind = "mdt"
on = "server"
[[target]]
name = "lfs-OST000a_UUID"
kind = "ost"
on = "server"
store = { size = "1MiB" }
[[client]]
on = "client"
[[workload]]
kind = "files"
from = "client"
to = "lfs-MDT0000_UUID"
names = 3
size = "64KiB"
stripes = 2
shared = true
check = "50s"
window = 1
[[fault]]
kind = "store_full"
target = "lfs-OST000a_UUID"
at = "10s"
until = "20s"
"#;

#[test]
fn a_file_system_and_its_workload_are_read_and_their_mistakes_are_named() {
    let s = parse("files.toml", FILES).unwrap();
    assert_eq!(s.rpc.fsname(), Some("lfs"));
    let LoadKind::Files(load) = s.rpc.loads[0].kind else { panic!("{:?}", s.rpc.loads) };
    assert_eq!((load.names, load.size, load.stripes, load.shared), (3, 65536, 2, true));
    assert_eq!(load.check, Some(Duration::from_secs(50)));
    for (from, to, says) in [
        ("name = \"MGS\"", "name = \"mgs\"", "expected MGS, FSNAME-MDTxxxx_UUID"),
        ("lfs-OST000a_UUID\"\nkind", "lfs-OST00a_UUID\"\nkind", "FSNAME-OSTxxxx_UUID"),
        ("lfs-OST000a_UUID\"\nkind", "old-OST000a_UUID\"\nkind", "one file system: 'lfs'"),
        ("kind = \"mdt\"", "kind = \"kv\"", "no target of kind \"mdt\""),
        ("\"lfs-MDT0000_UUID\"", "\"lfs-MDT0001_UUID\"", "no target FSNAME-MDT0000_UUID"),
        ("to = \"lfs-MDT0000_UUID\"", "to = \"MGS\"", "targets of kind \"mdt\": 'MGS' is a mgs"),
        ("names = 3", "names = 0", "expected a number from 1 to 64"),
        ("stripes = 2", "stripes = 9", "expected a number from 1 to 8"),
        ("shared = true", "shared = true\ncached = true", "expected false with shared"),
        ("shared = true", "cached = true\non_mdt = true", "expected false with cached"),
        ("shared = true", "shared = true\nwhole = true", "expected false with shared or cached"),
        ("check = \"50s\"", "reads = \"50%\"", "unknown key 'reads'"),
        ("target = \"lfs-OST000a_UUID\"", "target = \"MGS\"", "'MGS' has no store"),
    ] {
        assert!(FILES.contains(from), "{from}");
        let error = parse("files.toml", &FILES.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(says), "{to}: {error}");
    }
}

#[test]
fn selftest_is_read_and_its_mistakes_are_named() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/selftest.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let s = parse("selftest.toml", &text).unwrap();
    let tests: Vec<SelftestKind> = s.selftests.iter().map(|load| load.test).collect();
    let brw = |write, size| SelftestKind::Brw { write, size };
    assert_eq!(tests, [SelftestKind::Ping, brw(true, 4096), brw(false, 16384)]);
    assert_eq!(s.selftests[2].start, Duration::from_millis(1200));
    for (from, to, says) in [
        ("test = \"ping\"", "test = \"pong\"", "expected one of ping, read, write"),
        ("test = \"ping\"", "test = \"ping\"\nsize = 8", "expected no size: pings have none"),
        ("size = \"4KiB\"", "size = 12", "expected a multiple of 8 bytes, above 0"),
        ("size = \"4KiB\"", "size = \"2MiB\"", "expected at most 1048576 bytes"),
        ("window = 2", "window = 0", "expected a number from 1 to 1024"),
        ("window = 2", "every = \"1s\"", "unknown key 'every'"),
        ("until = \"2500ms\"", "until = \"1500ms\"", "lasts 500ms: expected at least 1s"),
        ("from = \"client\"", "from = \"tcp\"", "expected"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = parse("selftest.toml", &text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(says), "{to}: {error}");
    }
}
