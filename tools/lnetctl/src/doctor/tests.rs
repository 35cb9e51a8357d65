//! A site of two nodes and a router, healthy and with faults planted into it.

use std::collections::BTreeSet;

use super::*;

/// A node as `doctor --save` writes it.
pub(super) fn node(name: &str, nis: &[(&str, &str)], rest: &str) -> String {
    let mut text = format!("node: {name}\nnet:\n");
    for (nid, device) in nis {
        let net = nid.split_once('@').unwrap().1;
        text += &format!(
            "- net type: {net}\n  local NI(s):\n  - nid: {nid}\n    status: up\n    interfaces:\n      \
             0: {device}\n    health stats:\n      health value: 1000\n    tunables:\n      \
             peer_credits: 8\n    lnd tunables:\n      timeout: 0\n"
        );
    }
    text += rest;
    if !rest.contains("global:") {
        text += GLOBAL;
    }
    text += "system:\n";
    for (nid, device) in nis {
        let ip = nid.split_once('@').unwrap().0;
        text += &format!(
            "- device: {device}\n  mtu: 9000\n  addresses: \"{ip}/24\"\n  rp_filter: 2\n  \
             arp_ignore: 1\n  arp_announce: 2\n  source routed: \"{ip}\"\n"
        );
    }
    text
}

const GLOBAL: &str = "global:\n  transaction_timeout: 50\n  retry_count: 2\n  \
                      health_sensitivity: 100\n  discovery: 1\n  drop_asym_route: 0\n  \
                      lnd_timeout: 16\n  router_ping_timeout: 50\n";

pub(super) fn a() -> String {
    let nis = [("10.1.0.1@tcp1", "eth0"), ("10.1.0.2@tcp1", "eth1")];
    node("a", &nis, "route:\n- net: tcp2\n  gateway: 10.1.0.9@tcp1\n")
}

pub(super) fn r() -> String {
    let nis = [("10.1.0.9@tcp1", "eth0"), ("10.2.0.9@tcp2", "eth1")];
    node("r", &nis, "routing:\n- enable: 1\n")
}

pub(super) fn b() -> String {
    node("b", &[("10.2.0.1@tcp2", "eth0")], "route:\n- net: tcp1\n  gateway: 10.2.0.9@tcp2\n")
}

fn check(texts: [String; 3]) -> Vec<Finding> {
    let nodes = texts.iter().map(|text| read::node(text, "?").unwrap()).collect();
    rules::check(&Site { nodes })
}

pub(super) fn replaced(text: String, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is not in:\n{text}");
    text.replace(from, to)
}

/// Rule, first node, first command of the findings.
fn summary(found: &[Finding]) -> Vec<(&str, &str, &str)> {
    let fix = |f: &'_ Finding| f.fixes.first().map(|fix| fix.command.clone()).unwrap_or_default();
    found.iter().map(|f| (f.rule, f.nodes[0].as_str(), fix(f).leak() as &str)).collect()
}

#[test]
fn a_healthy_site_has_no_findings() {
    assert_eq!(check([a(), r(), b()]), []);
}

#[test]
fn six_faults_planted_in_three_nodes_are_all_found_with_their_remedies() {
    // 1: no way back. 2: a time-out of the wrong order. 3: a tunable that differs (so does what
    // was set too low). 4: two interfaces without source routing. 5: an MTU. 6: a strict filter.
    let a = replaced(a(), "source routed: \"10.1.0.2\"", "source routed: \"\"");
    let a = a.replacen("rp_filter: 2", "rp_filter: 1", 1);
    let a = replaced(a, "router_ping_timeout: 50", "router_ping_timeout: 5");
    let r = r().replacen("mtu: 9000", "mtu: 1500", 1);
    let b = replaced(b(), "route:\n- net: tcp1\n  gateway: 10.2.0.9@tcp2\n", "");
    let b = replaced(b, "retry_count: 2", "retry_count: 1");
    let found = check([a, r, b]);
    assert_eq!(
        summary(&found),
        [
            ("asymmetric route", "a", "lnetctl route add --net tcp1 --gateway 10.2.0.9@tcp2"),
            ("time-outs", "a", "lnetctl set router_ping_timeout 16"),
            ("no source routing", "a", "ip route replace 10.1.0.0/24 dev eth1 table 101"),
            ("rp_filter", "a", "sysctl -w net.ipv4.conf.eth0.rp_filter=2"),
            ("MTU", "r", "ip link set dev eth0 mtu 9000"),
            ("tunables differ", "b", "lnetctl set retry_count 2"),
        ]
    );
    assert!(found.iter().all(|f| !f.fixes.is_empty() && f.text.contains(&f.nodes[0])));
}

#[test]
fn each_other_fault_is_found_alone() {
    let first = |texts| {
        let found = check(texts);
        assert_eq!(found.len(), 1, "{found:#?}");
        (found[0].rule, found[0].fixes[0].node.clone(), found[0].fixes[0].command.clone())
    };
    let expect = |got: (&str, String, String), rule, node: &str, command: &str| {
        assert_eq!((got.0, got.1.as_str(), got.2.as_str()), (rule, node, command));
    };
    let down = a().replacen("status: up", "status: down", 1);
    expect(first([down, r(), b()]), "interface", "a", "ip link set dev eth0 up");
    let degraded = b().replace("health value: 1000", "health value: 800");
    expect(first([a(), r(), degraded]), "interface", "b", "lnetctl debug recovery --local");
    let flux = a().replacen("arp_ignore: 1", "arp_ignore: 0", 1);
    expect(first([flux, r(), b()]), "ARP", "a", "sysctl -w net.ipv4.conf.eth0.arp_ignore=1");
    let long = b().replace("timeout: 0\n", "timeout: 60\n");
    let long = replaced(long, "router_ping_timeout: 50", "router_ping_timeout: 60");
    // The router expects that much.
    let patient = r().replace("router_ping_timeout: 50", "router_ping_timeout: 60");
    expect(
        first([a(), patient, long]),
        "time-outs",
        "b",
        "lnetctl net set --net tcp2 --lnd-timeout 0",
    );
    // Interfaces show the limit that follows from the tunables: it was not given, and there is nothing to put back.
    let derived = b().replace("timeout: 0\n", "timeout: 16\n");
    let derived = replaced(derived, "retry_count: 2", "retry_count: 3");
    assert!(check([a(), r(), derived]).iter().all(|found| found.rule != "time-outs"));
    let slow = r().replace("lnd_timeout: 16", "lnd_timeout: 60");
    expect(first([a(), slow, b()]), "time-outs", "r", "lnetctl set retry_count 2");
    let credits = b().replace("peer_credits: 8", "peer_credits: 16");
    let rule = first([a(), r(), credits]);
    assert_eq!((rule.0, rule.1.as_str()), ("tunables differ", "b"));
}

#[test]
fn a_router_that_does_not_forward_is_named_with_all_that_follows() {
    let found = check([a(), replaced(r(), "enable: 1", "enable: 0"), b()]);
    let rules: BTreeSet<_> = found.iter().map(|f| f.rule).collect();
    assert_eq!(rules, BTreeSet::from(["gateway", "unreachable"]));
    assert_eq!(found[0].fixes[0].command, "lnetctl set routing 1");
    assert_eq!(found[0].fixes[0].node, "r");
}

#[test]
fn nodes_without_any_route_get_a_remedy() {
    let strip = |text: String, net: &str, gateway: &str| {
        replaced(text, &format!("route:\n- net: {net}\n  gateway: {gateway}\n"), "")
    };
    let found =
        check([strip(a(), "tcp2", "10.1.0.9@tcp1"), r(), strip(b(), "tcp1", "10.2.0.9@tcp2")]);
    assert_eq!(found.len(), 1, "{found:#?}");
    let commands: Vec<_> = found[0].fixes.iter().map(|f| f.command.as_str()).collect();
    assert_eq!(
        commands,
        [
            "lnetctl route add --net tcp2 --gateway 10.1.0.9@tcp1",
            "lnetctl route add --net tcp1 --gateway 10.2.0.9@tcp2",
        ]
    );
}

#[test]
fn answers_that_come_another_way_are_found_and_worse_where_they_are_dropped() {
    let other = [("10.1.0.8@tcp1", "eth0"), ("10.2.0.8@tcp2", "eth1")];
    let r2 = read::node(&node("r2", &other, "routing:\n- enable: 1\n"), "?").unwrap();
    let b = replaced(b(), "gateway: 10.2.0.9@tcp2", "gateway: 10.2.0.8@tcp2");
    let site = |b: &str| {
        let mut nodes: Vec<_> =
            [&a(), &r(), b].map(|text| read::node(text, "?").unwrap()).into_iter().collect();
        nodes.push(r2.clone());
        rules::check(&Site { nodes })
    };
    let found = site(&b);
    assert_eq!(summary(&found)[0].0, "asymmetric route", "{found:#?}");
    assert_eq!((found.len(), found[0].level), (1, Level::Warning));
    let drops = replaced(b, "drop_asym_route: 0", "drop_asym_route: 1");
    let found = site(&drops);
    assert_eq!((found[0].rule, found[0].level), ("asymmetric route", Level::Error));
}

#[test]
fn exports_of_kernel_nodes_are_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/lnetctl/export.txt");
    let text = fs::read_to_string(path).unwrap();
    let body: String = text.lines().skip(1).map(|l| format!("{l}\n")).collect();
    let body = body.split("\n[exit").next().unwrap().split("\n# ").next().unwrap();
    let node = read::node(body, "kernel").unwrap();
    assert!(node.outward().count() > 0);
    assert!(node.tunable("transaction_timeout").is_some());
}

#[test]
fn a_saved_node_is_read_back_the_same() {
    let node = read::node(&r(), "?").unwrap();
    let again = read::node(&local::document(&node).render(Style::Classic), "?").unwrap();
    assert_eq!(again, node);
}

#[test]
fn texts_that_are_no_export_are_refused_with_the_place() {
    for (text, culprit) in [
        ("hello: 1\n", "expected what"),
        ("net:\n- local NI(s):\n  - nid: here\n", "'here' is no NID, at line 3"),
        ("net:\n- local NI(s):\n  - status: up\n", "no 'nid' at line 3"),
        ("global: [\n", "line"),
    ] {
        let error = read::node(text, "?").unwrap_err();
        assert!(error.contains(culprit), "{text}: {error}");
    }
}
