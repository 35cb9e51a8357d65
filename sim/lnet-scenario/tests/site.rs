//! Sites as worlds: what exports become, and how mistakes in them are reported.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::time::Duration;

use lnet::Profile;
use lnet_scenario::{Export, Scenario, SiteWorld, parse, world_of};
use proptest::prelude::*;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");

/// What `lnetctl export` printed on a kernel node with two interfaces.
fn recorded() -> String {
    let text = std::fs::read_to_string(format!("{FIXTURES}/lnetctl/export.txt")).unwrap();
    let body = text.split_once('\n').unwrap().1;
    body[..body.find("# exit").unwrap()].to_owned()
}

fn three(node: &str) -> String {
    std::fs::read_to_string(format!("{FIXTURES}/sites/three/{node}.yaml")).unwrap()
}

fn made(texts: &[(&str, &str)]) -> Result<SiteWorld, String> {
    let files: Vec<String> = texts.iter().map(|(node, _)| format!("{node}.yaml")).collect();
    let exports: Vec<Export<'_>> =
        texts.iter().zip(&files).map(|((node, text), file)| Export { node, file, text }).collect();
    world_of("site", &exports, None).map_err(|e| e.to_string())
}

fn played(world: &SiteWorld) -> Scenario {
    parse("world", &world.text).unwrap_or_else(|e| panic!("{e}\n{}", world.text))
}

#[test]
fn a_site_of_client_router_and_server_becomes_a_world_with_all_that_they_have() {
    let (client, router, oss) = (three("client"), three("router"), three("oss"));
    let site = made(&[("client", &client), ("router", &router), ("oss", &oss)]).unwrap();
    let scenario = played(&site);
    let world = &scenario.world;
    assert_eq!(scenario.profile, Profile::Kernel);
    // Its router looks out for 60 and 50 s before it forwards.
    let seconds = Duration::from_secs;
    assert_eq!((scenario.warm_up, scenario.duration), (seconds(120), seconds(180)));
    assert_eq!(scenario.workload[0].start, seconds(120));
    let nids = |name: &str| {
        let id = world.find(name).unwrap();
        world.node(id).unwrap().rails.iter().map(|r| r.nid.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(nids("client"), ["10.77.0.2@tcp", "10.77.0.3@tcp"]);
    assert_eq!(nids("router"), ["10.77.0.4@tcp", "10.77.1.4@tcp1"]);
    let group = |name: &str| world.group_of(world.find(name).unwrap()).unwrap();
    assert!(group("router").router && !group("client").router);
    let route = group("client").routes[0];
    assert_eq!((route.net.to_string(), route.gateway.to_string()), {
        ("tcp1".to_owned(), "10.77.0.4@tcp".to_owned())
    });
    assert!(group("client").tunables.contains(&("transaction_timeout", 10)));
    assert!(group("router").tunables.contains(&("large_buffers", 64)));
    // One network, one node with other credits.
    let router_id = world.find("router").unwrap();
    assert_eq!(world.net_tunables(router_id, 0).credits, 512);
    assert_eq!(world.net_tunables(world.find("client").unwrap(), 0).credits, 256);
    assert_eq!(group("client").rules[0].to_string(), "src 10.77.0.3@tcp priority 0");
    // The client's peer was found; the server's was configured.
    assert!(group("client").peers.is_empty());
    assert_eq!(group("oss").peers[0].nids.len(), 2);
    let work = &scenario.workload[0];
    assert_eq!(work.to.nodes(), [world.find("oss").unwrap()]);
    assert_eq!(work.from.nodes(), [world.find("client").unwrap()]);

    let left_out = site.left_out.join("\n");
    for (what, times) in [
        ("oss.yaml:53:7: route to o2ib by 10.77.1.9@tcp1: no node of the site is on o2ib", 1),
        ("peers that were found, not configured", 1),
        ("'CPT': worlds have no processors", 1),
        ("left out", 0),
    ] {
        assert_eq!(left_out.matches(what).count(), times, "{what} in:\n{left_out}");
    }
}

#[test]
fn an_export_of_a_kernel_node_makes_a_world() {
    let site = made(&[("a", &recorded())]).unwrap();
    let scenario = played(&site);
    assert_eq!(scenario.world.nodes[0].rails.len(), 2);
    let group = &scenario.world.groups[0];
    assert_eq!((group.profile, group.tunables.len()), (Profile::Kernel, 0), "{}", site.text);
    // Two of its longest operations.
    assert_eq!(scenario.duration, Duration::from_secs(300));
}

#[test]
fn a_node_with_settings_of_this_project_is_one_of_ours_unless_a_profile_is_asked_for() {
    let ours = format!("{}ulnet:\n    health_range: 5\n    retry_count: 2\n", recorded());
    assert!(made(&[("a", &ours)]).unwrap_err().contains("invalid key 'retry_count'"));
    let ours = format!("{}ulnet:\n    health_range: 5\n", recorded());
    let scenario = played(&made(&[("a", &ours)]).unwrap());
    let group = &scenario.world.groups[0];
    assert_eq!(group.profile, Profile::Default);
    assert!(group.tunables.contains(&("health_range", 5)));
    assert!(group.tunables.contains(&("max_recovery_ping_interval", 900)), "{:?}", group.tunables);
    let export = [Export { node: "a", file: "a", text: &ours }];
    let asked = world_of("site", &export, Some(Profile::Pre213)).unwrap();
    assert_eq!(played(&asked).profile, Profile::Pre213);
    // A node is listed if it was merely taken for a kernel node.
    assert!(asked.guessed.is_empty());
    let others = recorded();
    let others = others.replace("10.77.", "10.78.");
    let site = made(&[("a", &ours), ("b", &others)]).unwrap();
    assert_eq!(site.guessed, ["b"]);
}

#[test]
fn words_that_tunables_have_survive() {
    let text = recorded().replace("retry_count: 2", "retry_count: paths");
    let site = made(&[("a", &text)]).unwrap();
    assert!(site.text.contains("retry_count = \"paths\""), "{}", site.text);
    let tunables = played(&site).world.groups[0].tunables.clone();
    assert_eq!(tunables, [("retry_count", lnet_types::RETRY_PATHS)]);
}

#[test]
fn mistakes_have_their_file_their_line_and_what_was_expected() {
    let good = recorded();
    let refused = |text: &str, expected: &str| {
        let error = made(&[("a", text)]).unwrap_err();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
    };
    refused("net: [\n", "a.yaml:");
    refused("hello: 1\n", "a.yaml:1:1: invalid key 'hello': expected what 'lnetctl export' prints");
    refused("global:\n    discovery: 1\n", "a.yaml:1:1: no network interfaces: expected");
    refused(&good.replace("10.77.0.2@tcp", "here"), "'here'");
    let backup = std::fs::read_to_string(format!("{FIXTURES}/lnetctl/export-backup.txt")).unwrap();
    let backup = backup.split_once('\n').unwrap().1.split("# exit").next().unwrap();
    refused(backup, "expected a full export, not one made with --backup");
    let short = good.replace("transaction_timeout: 150", "transaction_timeout: 1");
    refused(&short, "retry_count 2: must not exceed transaction_timeout");
    refused(&good.replace("health_sensitivity: 100", "health_sensitivity: 5000"), "expected 0 to");
    refused(&good.replace("10.77.1.2@tcp", "10.77.0.2@tcp"), "10.77.0.2@tcp twice");
    refused(&format!("{good}udsp:\n    - src: nowhere\n"), "src of a rule");
    refused(&format!("{good}global:\n    discovery: 0\n"), "duplicate key 'global'");
    let error = made(&[("a", &good), ("b", &good)]).unwrap_err();
    assert!(error.starts_with("b.yaml:58:7: 10.77.0.2@tcp is in a.yaml already"), "{error}");
    let error = made(&[("tcp", &good)]).unwrap_err();
    assert!(error.contains("'tcp' is to be a node: expected letters"), "{error}");
    let error = made(&[("a", &good), ("a", &three("oss"))]).unwrap_err();
    assert!(error.contains("expected another name"), "{error}");
}

#[test]
fn routes_that_lead_nowhere_are_left_out_and_listed() {
    let (client, router, oss) = (three("client"), three("router"), three("oss"));
    let off = router.replace("enable: 1", "enable: 0");
    let site = made(&[("client", &client), ("router", &off), ("oss", &oss)]).unwrap();
    let left_out = site.left_out.join("\n");
    assert!(
        left_out.contains("route to tcp1 by 10.77.0.4@tcp: 'router' does not forward"),
        "{left_out}"
    );
    assert!(played(&site).world.groups.iter().all(|g| g.routes.is_empty()));
    let site = made(&[("client", &client), ("oss", &oss)]).unwrap();
    let left_out = site.left_out.join("\n");
    assert!(left_out.contains("no node of the site has its gateway's NID"), "{left_out}");
}

proptest! {
    /// Any text is an error or a world, and a world is a scenario.
    #[test]
    fn no_export_is_too_strange(cut in 0usize..6000, with in "[ -~\n]{0,40}", len in 0usize..60) {
        let mut text = three("oss");
        let at = cut.min(text.len());
        let end = (at + len).min(text.len());
        text.replace_range(at..end, &with);
        if let Ok(site) = made(&[("a", &text)]) {
            prop_assert!(parse("world", &site.text).is_ok(), "{}", site.text);
        }
    }
}
