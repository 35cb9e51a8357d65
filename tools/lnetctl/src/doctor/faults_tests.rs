//! A healthy site with all that nodes say of themselves, and each fault planted into it alone.

use super::rules::Finding;
use super::site::Site;
use super::tests::{a, b, node, r, replaced};
use super::{local, merge, read, rules};

/// The gateway in A's record, and a peer that was configured and answers.
const PEERS: &str = "peer:
- primary nid: 10.1.0.9@tcp1
  peer state: 277
  peer ni:
  - nid: 10.1.0.9@tcp1
    state: up
    statistics: {send_count: 9, recv_count: 9}
    health stats: {health value: 1000, ping_count: 0}
- primary nid: 10.2.0.1@tcp2
  peer state: 9
  peer ni:
  - nid: 10.2.0.1@tcp2
    state: NA
    statistics: {send_count: 5, recv_count: 5}
    health stats: {health value: 1000, ping_count: 0}
";

/// The request layer of A, which has a connection, and of B, which serves it by the kernel's rules.
const RPC: [&str; 2] = [
    "rpc:
  in_use: 1
  by_kernel_rules: 0
  tunables: {timeout: 100, ping_interval: 25, at_min: 5, at_max: 600, evict_factor: 15, ldlm_enqueue_min: 100}
  imports:
  - {target: \"kv-1\", state: FULL, for: 4000, truncated: 0}
  - {target: \"kv-2\", state: DISCONN, for: 20, truncated: 0}
",
    "rpc:
  in_use: 1
  by_kernel_rules: 0
  tunables: {timeout: 100, ping_interval: 25, at_min: 5, at_max: 600, evict_factor: 15, ldlm_enqueue_min: 100}
  services:
  - {name: \"target\", posted: 64, buffers: 64, behind_ago: 4000, unhealthy: 0}
  evictions:
  - {target: \"kv-1\", client: \"c-9\", reason: \"silent for too long\", ago: 4000}
",
];

/// A, the router, B; more files behind them.
fn healthy() -> Vec<String> {
    let a = replaced(a(), "gateway: 10.1.0.9@tcp1\n", "gateway: 10.1.0.9@tcp1\n  state: up\n");
    vec![
        format!("saved: 10000\nincarnation: 1\n{a}{PEERS}{}", RPC[0]),
        numbered(r(), 2),
        numbered(b() + RPC[1], 3),
    ]
}

fn numbered(text: String, n: u32) -> String {
    format!("saved: 10000\nincarnation: {n}\n{text}")
}

fn found(texts: &[String]) -> Vec<Finding> {
    let nodes = texts.iter().map(|text| read::node(text, "file").unwrap()).collect();
    let mut site = Site { nodes };
    merge::merge(&mut site);
    rules::check(&site)
}

/// A replacement in the file of one of the three.
type Change = (usize, &'static str, &'static str);

/// What is planted, what finds it, and what the finding says.
const FAULTS: &[(&str, &[Change], &str, &str)] = &[
    ("an interface is down", &[(0, "status: up", "status: down")], "interface", "is down"),
    (
        "an interface does not recover",
        &[(2, "health value: 1000", "health value: 800\n      ping_count: 100")],
        "interface",
        "health 800 of 1000 and does not recover",
    ),
    (
        "an interface flaps",
        &[(0, "    status: up\n", "    status: up\n    ulnet: {flapping: 1}\n")],
        "interface",
        "again and again",
    ),
    (
        "a gateway has never answered",
        &[
            (0, "state: up\n", "state: down\n"),
            (0, "277", "0"),
            (0, "recv_count: 9", "recv_count: 0"),
        ],
        "route",
        "is down: the gateway has never answered",
    ),
    (
        "a gateway is unknown",
        &[
            (0, "state: up\n", "state: down\n"),
            (0, "peer:\n- primary nid: 10.1.0.9@tcp1", "peer:\n- primary nid: 10.1.0.8@tcp1"),
            (0, "  - nid: 10.1.0.9@tcp1", "  - nid: 10.1.0.8@tcp1"),
        ],
        "route",
        "has never answered",
    ),
    ("a gateway does not forward", &[(0, "277", "273")], "route", "answers and does not forward"),
    (
        "a gateway has gone",
        &[(0, "  state: up\n", "  state: down\n"), (0, "    state: up\n", "    state: down\n")],
        "route",
        "does not answer any more",
    ),
    (
        "the far side of a gateway is down",
        &[(0, "  state: up\n", "  state: down\n")],
        "route",
        "far side is down or missing",
    ),
    (
        "a configured peer was never reached",
        &[(0, "recv_count: 5", "recv_count: 0")],
        "peer",
        "the configured peer 10.2.0.1@tcp2 was never reached",
    ),
    (
        "a peer's interface does not recover",
        &[(
            0,
            "recv_count: 5}\n    health stats: {health value: 1000, ping_count: 0}",
            "recv_count: 5}\n    health stats: {health value: 0, ping_count: 70}",
        )],
        "peer",
        "10.2.0.1@tcp2 is degraded (health 0 of 1000",
    ),
    (
        "a peer's interface flaps",
        &[(0, "    state: NA\n", "    state: NA\n    ulnet: {flapping: 1}\n")],
        "peer",
        "10.2.0.1@tcp2 goes down and comes back",
    ),
    (
        "a rail is suspect",
        &[(
            0,
            "peer:\n",
            "suspects:\n- {local: 10.1.0.2@tcp1, peer: 10.1.0.9@tcp1, doubt: silent, for_ms: 2500}\npeer:\n",
        )],
        "rail",
        "is silent for 2.5 s",
    ),
    (
        "messages are dropped",
        &[(1, "routing:\n", "rising:\n- {counter: drop_count, by: 12}\nrouting:\n")],
        "losses",
        "r: drop_count rises, by 12",
    ),
    (
        "connections are refused",
        &[(
            2,
            "route:\n",
            "rising:\n- {counter: \"connections refused to 10.2.0.66: nid_not_accepted\", by: 1}\nroute:\n",
        )],
        "losses",
        "connections refused to 10.2.0.66: nid_not_accepted rises",
    ),
    ("a file is old", &[(1, "saved: 10000", "saved: 1000")], "clock", "r is 150 min old"),
    ("a clock is ahead", &[(2, "saved: 10000", "saved: 10060")], "clock", "b is 60 s ahead"),
    (
        "a NID is stolen",
        &[(2, "- nid: 10.2.0.1@tcp2", "- nid: 10.2.0.9@tcp2")],
        "same NID twice",
        "10.2.0.9@tcp2 is a NID of two nodes",
    ),
    (
        "a router does not forward",
        &[(1, "enable: 1", "enable: 0")],
        "gateway",
        "r does not forward",
    ),
    (
        "a gateway is on no network of the node",
        &[(2, "gateway: 10.2.0.9@tcp2", "gateway: 10.3.0.9@tcp3")],
        "gateway",
        "b is not on tcp3 itself",
    ),
    (
        "there is no way back",
        &[(2, "route:\n- net: tcp1\n  gateway: 10.2.0.9@tcp2\n", "")],
        "asymmetric route",
        "b has none back",
    ),
    (
        "a time-out ends before what it waits for",
        &[(0, "router_ping_timeout: 50", "router_ping_timeout: 5")],
        "time-outs",
        "router_ping_timeout",
    ),
    (
        "a tunable differs",
        &[(2, "retry_count: 2", "retry_count: 1")],
        "tunables differ",
        "retry_count",
    ),
    (
        "source routing is missing",
        &[(0, "source routed: \"10.1.0.2\"", "source routed: \"\"")],
        "no source routing",
        "10.1.0",
    ),
    ("a filter is strict", &[(0, "rp_filter: 2", "rp_filter: 1")], "rp_filter", "eth0"),
    ("ARP answers for others", &[(0, "arp_ignore: 1", "arp_ignore: 0")], "ARP", "answer ARP"),
    (
        "LNet tries longer than a request has time",
        &[(2, "by_kernel_rules: 0", "by_kernel_rules: 1")],
        "request times",
        "50 s (transaction_timeout), the first deadline of a request is 16 s",
    ),
    (
        "the evictor comes before two pings",
        &[(2, "evict_factor: 15", "evict_factor: 6")],
        "request times",
        "after 60 s of silence, and b pings every 25 s: two pings and a request take 66 s",
    ),
    (
        "a client pings too rarely for its server",
        &[(0, "ping_interval: 25", "ping_interval: 75")],
        "request times",
        "b: evicts a client after 150 s of silence, and a pings every 75 s",
    ),
    (
        "at_min differs",
        &[(0, "at_min: 5", "at_min: 40")],
        "request tunables differ",
        "at_min is 40, elsewhere 5",
    ),
    (
        "obd_timeout differs",
        &[(2, "{timeout: 100", "{timeout: 300")],
        "request tunables differ",
        "timeout is 300, elsewhere 100",
    ),
    (
        "ldlm_enqueue_min differs",
        &[(0, "ldlm_enqueue_min: 100", "ldlm_enqueue_min: 260")],
        "request tunables differ",
        "ldlm_enqueue_min is 260, elsewhere 100",
    ),
    (
        "one loss evicts",
        &[(2, "at_min: 5", "at_min: 40")],
        "request times",
        "ldlm_enqueue_min is 100 s, at_min 40 s: a lost message, a reconnect and a resend take 160 s",
    ),
    (
        "a router expects more pings than it gets",
        &[(0, "router_ping_timeout: 50", "router_ping_timeout: 60")],
        "router checks",
        "r: router_ping_timeout is 50 s, and a, which pings it, has 60 s",
    ),
    (
        "a router expects pings more often",
        &[
            (
                1,
                "global:\n",
                "global:\n  alive_router_check_interval: 60\n  live_router_check_interval: 0\n",
            ),
            (
                2,
                "global:\n",
                "global:\n  alive_router_check_interval: 60\n  live_router_check_interval: 120\n",
            ),
        ],
        "router checks",
        "r: alive_router_check_interval is 60 s, and b, which pings it, has 120 s",
    ),
    (
        "an import stays broken",
        &[(0, "state: DISCONN, for: 20", "state: DISCONN, for: 61")],
        "import",
        "the import of kv-2 is DISCONN for 61 s",
    ),
    (
        "reply buffers are too small",
        &[(0, "for: 4000, truncated: 0", "for: 4000, truncated: 3")],
        "import",
        "3 replies of kv-1 did not fit into their buffers",
    ),
    (
        "a service takes no request",
        &[(2, "unhealthy: 0", "unhealthy: 1")],
        "service",
        "has requests that wait, and takes none",
    ),
    (
        "a service is not able to keep up",
        &[(2, "behind_ago: 4000", "behind_ago: 30")],
        "service",
        "was not able to keep up 30 s ago",
    ),
    (
        "request buffers are missing",
        &[(2, "posted: 64", "posted: 31")],
        "service",
        "has 31 of 64 request buffers",
    ),
    (
        "a client was evicted lately",
        &[(2, "long\", ago: 4000", "long\", ago: 30")],
        "eviction",
        "client c-9 of kv-1 was evicted 30 s ago: silent for too long",
    ),
    ("an MTU differs", &[(1, "mtu: 9000", "mtu: 1500")], "MTU", "1500"),
];

#[test]
fn a_healthy_site_that_says_all_of_itself_has_no_findings() {
    assert_eq!(found(&healthy()), []);
    // A peer that was configured and never tried has done no wrong, nor has one that recovers.
    let mut site = healthy();
    site[0] = site[0].replace("send_count: 5, recv_count: 5", "send_count: 0, recv_count: 0");
    site[0] = site[0]
        .replace("health value: 1000, ping_count: 0}\n- ", "health value: 900, ping_count: 3}\n- ");
    assert_eq!(found(&site), []);
}

#[test]
fn each_of_the_planted_faults_is_found_by_its_rule_and_says_what_it_is() {
    assert!(FAULTS.len() >= 20);
    for (what, changes, rule, says) in FAULTS {
        let mut site = healthy();
        for (at, from, to) in *changes {
            assert!(site[*at].contains(from), "{what}: {from} is not in\n{}", site[*at]);
            site[*at] = site[*at].replacen(from, to, 1);
        }
        let found = found(&site);
        let is_it = |f: &Finding| f.rule == *rule && f.text.contains(says);
        assert!(found.iter().any(is_it), "{what}: no '{rule}: {says}' in {found:#?}");
        assert!(found.iter().all(|f| !f.fixes.is_empty()), "{what}: {found:#?}");
    }
}

/// A node with an interface on an RDMA network, whose port is as `net show -v 5` prints it.
fn rdma_node(n: u8) -> String {
    let rdma = format!(
        "    ulnet: {{rdma: {{active: true, rate_mbps: 100000, degraded: false, link_layer: InfiniBand, \
         mtu: 4096, gid: \"fe80::{n}\", pkey: 0x8001, connections: 3, pinned_bytes: 9, pinned_max: 99, \
         registrations: 9, registrations_found: 1}}}}\n"
    );
    let status = "    status: up\n";
    let text = node(&format!("ib{n}"), &[(&format!("10.5.0.{n}@o2ib"), "ib0")], "");
    replaced(text, status, &format!("{status}{rdma}"))
}

/// What is planted into the last of three such nodes, which rule finds it, and what it says.
const RDMA_FAULTS: &[(&str, &str, &str, &str)] = &[
    ("active: true", "active: false", "rdma", "port is not active"),
    ("degraded: false", "degraded: true", "rdma", "slower than it was"),
    ("registrations: 9", "registrations: 9, locked_limit: 8388608", "rdma", "may lock 8192 KiB"),
    ("pinned_bytes: 9,", "pinned_bytes: 95,", "rdma", "95 of 99 bytes that may be pinned"),
    ("gid: \"fe80::", "gid: \"fec0::", "RDMA ends", "GIDs of fec0::, others of the network are on"),
    ("link_layer: InfiniBand", "link_layer: Ethernet", "RDMA ends", "its port is on Ethernet"),
    ("pkey: 0x8001", "pkey: 0xffff", "RDMA ends", "partition key is 0xffff, that of others 0x8001"),
    ("mtu: 4096", "mtu: 2048", "RDMA ends", "have 2048 bytes, those of others 4096"),
    (
        "rate_mbps: 100000",
        "rate_mbps: 25000",
        "RDMA ends",
        "25000 Mbit/s is slower than the 100000",
    ),
];

#[test]
fn each_planted_fault_of_an_rdma_port_is_found_alone() {
    let site: Vec<String> = (1..=3).map(rdma_node).collect();
    assert_eq!(found(&site), []);
    for (from, to, rule, says) in RDMA_FAULTS {
        let mut site = site.clone();
        site[2] = replaced(site[2].clone(), from, to);
        let found = found(&site);
        let [one] = &found[..] else { panic!("{to}: {found:#?}") };
        assert_eq!((one.rule, one.nodes[0].as_str()), (*rule, "ib3"), "{to}");
        assert!(one.text.contains(says) && !one.fixes.is_empty(), "{to}: {one:#?}");
    }
    // Two members without the right to reach each other, and a third one that both reach.
    let mut site = site;
    for text in &mut site[1..] {
        *text = replaced(text.clone(), "pkey: 0x8001", "pkey: 0x0001");
    }
    let found = found(&site);
    assert!(found.len() == 1 && found[0].text.contains("limited member"), "{found:#?}");
}

/// The same on RoCE, the last one a router.
fn roce_site() -> Vec<String> {
    let on_roce = |n| {
        let text = replaced(rdma_node(n), "InfiniBand", "Ethernet");
        replaced(text, "pkey: 0x8001", "roce_version: 2, keepalive: 100, pkey: 0xffff")
    };
    let mut site: Vec<String> = (1..=3).map(on_roce).collect();
    let router = replaced(site[2].clone(), "peer_credits: 8", "peer_timeout: 180");
    site[2] = replaced(router, "global:\n", "routing:\n- enable: 1\nglobal:\n");
    site
}

#[test]
fn each_planted_fault_of_a_roce_port_is_found_alone() {
    assert_eq!(found(&roce_site()), []);
    // A version that is not known, and a router that takes no peer for dead, are no faults.
    for (at, from, to) in
        [(0, "roce_version: 2, ", ""), (2, "peer_timeout: 180", "peer_timeout: 0")]
    {
        let mut site = roce_site();
        site[at] = replaced(site[at].clone(), from, to);
        assert_eq!(found(&site), [], "{to}");
    }
    for (at, from, to, says) in [
        (1, "roce_version: 2", "roce_version: 1", "use RoCE v1, those of others v2"),
        (0, "keepalive: 100", "keepalive: 0", "show no sign of life, and the router ib3"),
        (0, "keepalive: 100", "keepalive: 300", "every 300 s, and the router ib3 takes a peer for"),
    ] {
        let mut site = roce_site();
        site[at] = replaced(site[at].clone(), from, to);
        let found = found(&site);
        let [one] = &found[..] else { panic!("{to}: {found:#?}") };
        assert_eq!(
            (one.rule, one.nodes[0].as_str()),
            ("RDMA ends", format!("ib{}", at + 1).as_str())
        );
        assert!(one.text.contains(says) && !one.fixes.is_empty(), "{to}: {one:#?}");
    }
    // The router's own clock is compared with no limit of its own.
    let mut site = roce_site();
    site[2] = replaced(site[2].clone(), "keepalive: 100", "keepalive: 0");
    assert_eq!(found(&site), []);
}

#[test]
fn a_saved_rdma_port_is_read_back_the_same() {
    let node = read::node(&rdma_node(1), "?").unwrap();
    assert!(node.nis[0].rdma.is_some_and(|port| port.pkey == 0x8001 && port.gid.is_some()));
    let text = local::document(&node).render(lnet_config::Style::Classic);
    assert_eq!(read::node(&text, "?").unwrap(), node);
    let node = read::node(&roce_site()[2], "?").unwrap();
    let port = node.nis[0].rdma.unwrap();
    assert_eq!(
        (port.roce, port.keepalive_s, node.nis[0].peer_timeout_s),
        (2, Some(100), Some(180))
    );
    let text = local::document(&node).render(lnet_config::Style::Classic);
    assert_eq!(read::node(&text, "?").unwrap(), node);
}

#[test]
fn a_peer_that_was_never_reached_is_one_finding_without_its_rails() {
    let mut site = healthy();
    let suspect =
        "suspects:\n- {local: 10.2.0.2@tcp2, peer: 10.2.0.1@tcp2, doubt: silent, for_ms: 2500}\n";
    site[0] = replaced(site[0].clone(), "peer:\n", &format!("{suspect}peer:\n"));
    assert!(found(&site).iter().any(|f| f.rule == "rail"));
    site[0] = replaced(site[0].clone(), "recv_count: 5", "recv_count: 0");
    let rules: Vec<_> = found(&site).iter().map(|f| f.rule).collect();
    assert!(rules.contains(&"peer") && !rules.contains(&"rail"), "{rules:?}");
}

#[test]
fn one_node_seen_twice_is_one_and_two_with_equal_names_are_two() {
    // By incarnation: a file of before it got another interface.
    let mut site = healthy();
    let once = replaced(site[0].clone(), "node: a", "node: elsewhere");
    site.push(once.replace("10.1.0.2@tcp1", "10.1.0.7@tcp1"));
    assert_eq!(found(&site), []);
    // By its NIDs: a plain export has neither name nor incarnation.
    let plain = |text: &String| {
        let text = text.replace("saved: 10000\n", "").replace("incarnation: 3\n", "");
        replaced(text, "node: b\n", "")
    };
    let mut site = healthy();
    site.push(plain(&site[2]));
    assert_eq!(found(&site), []);
    // Containers share the name of their machine.
    let mut site: Vec<String> = healthy();
    for (text, name) in site.iter_mut().zip(["a", "r", "b"]) {
        *text = replaced(text.clone(), &format!("node: {name}\n"), "node: vm\n");
    }
    assert_eq!(found(&site), []);
    let steal = site[2].replace("- nid: 10.2.0.1@tcp2", "- nid: 10.2.0.9@tcp2");
    let site = [site[0].clone(), site[1].clone(), steal];
    let found = found(&site);
    let finding = found.iter().find(|f| f.rule == "same NID twice").unwrap();
    let names = &finding.nodes;
    assert!(names[0] != names[1] && names.iter().all(|n| n.starts_with("vm ")), "{finding:#?}");
    // A remedy that deletes stands beside the evidence: this one has no such address.
    assert!(finding.text.contains("whose system has no such address"), "{finding:#?}");
    let commands: Vec<_> = finding.fixes.iter().map(|f| f.command.as_str()).collect();
    let remedy = "lnetctl net del --net tcp2 --nid 10.2.0.9@tcp2";
    assert_eq!(commands, ["ip address show to 10.2.0.9", remedy]);
    assert_eq!(finding.fixes[1].node, names[1]);
}
