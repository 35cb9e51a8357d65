use super::*;

fn config(yaml: &str) -> Config {
    Config::from_yaml(yaml).unwrap()
}

const FULL: &str = "
net:
  - net type: tcp
    local NI(s):
      - {interfaces: {0: eth0}, tunables: {credits: 256}, lnd tunables: {tos: -1}, CPT: '[0]'}
      - {interfaces: {0: eth1}, tunables: {credits: 256}, lnd tunables: {tos: -1}, CPT: '[0]'}
peer:
  - {primary nid: 10.0.0.1@tcp, peer ni: [{nid: 10.0.0.1@tcp}, {nid: 10.0.1.1@tcp}]}
global: {discovery: 1, retry_count: 2, transaction_timeout: 50}
";

/// The steps in short.
fn short(steps: &[Step]) -> Vec<String> {
    let names = |all: &[String]| all.join("+");
    steps
        .iter()
        .map(|step| match step {
            Step::NetAdd(n) => {
                let on: Vec<_> = n.interfaces.iter().map(|i| i.name.clone()).collect();
                format!("+net {} {}", n.net, names(&on)).trim_end().to_owned()
            }
            Step::NetDel(n) => {
                format!("-net {} {}", n.net, names(&n.interfaces)).trim_end().to_owned()
            }
            Step::PeerAdd(p) => format!("+peer {} {}", p.primary, p.nids.len()),
            Step::PeerDel(p) => format!("-peer {}", p.primary),
            Step::NetCpts(n) => {
                format!("cpts {} {} {:?}", n.net, names(&n.interfaces), n.cpts.as_deref())
            }
            Step::AcceptFrom { net, list } => format!("accept {net} {list:?}"),
            Step::NetRulesAdd(r) => format!("+rules {}", r.rules.len()),
            Step::NetRulesDel(r) => format!("-rules {}", r.rules.len()),
            Step::RouteAdd(r) => format!("+route {} {}", r.net, r.gateway),
            Step::RouteDel(r) => format!("-route {} {}", r.net, r.gateway),
            Step::Routing(on) => format!("routing {on}"),
            Step::UdspAdd(add) => format!("+udsp {:?}", add.rule.src),
            Step::UdspDel(del) => format!("-udsp {del:?}"),
            Step::Set(s) => {
                let all: Vec<_> = s.iter().map(|s| format!("{}={}", s.name, s.value)).collect();
                names(&all)
            }
        })
        .collect()
}

#[test]
fn add_steps_follow_the_text_and_del_steps_undo_them_backwards() {
    let full = config(FULL);
    assert_eq!(
        short(&full.add_steps()),
        [
            "+net tcp eth0",
            "+net tcp eth1",
            "+peer 10.0.0.1@tcp 1",
            "discovery=1+retry_count=2+transaction_timeout=50",
        ]
    );
    assert_eq!(
        short(&full.del_steps()),
        ["discovery=1", "-peer 10.0.0.1@tcp", "-net tcp eth1", "-net tcp eth0"]
    );
}

#[test]
fn deletion_of_a_peer_with_secondary_nids_alone_takes_only_these() {
    let of = |nids: &str| {
        let yaml = format!("peer: [{{primary nid: 10.0.0.1@tcp, peer ni: [{nids}]}}]\n");
        match config(&yaml).del_steps().as_slice() {
            [Step::PeerDel(del)] => del.nids.iter().map(ToString::to_string).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of("{nid: 10.0.0.2@tcp}, {nid: 10.0.0.3@tcp}"), ["10.0.0.2@tcp", "10.0.0.3@tcp"]);
    assert_eq!(of("{nid: 10.0.0.1@tcp}, {nid: 10.0.0.2@tcp}"), [] as [&str; 0], "all of it goes");
    assert_eq!(of(""), [] as [&str; 0], "all of it goes");
}

#[test]
fn peers_that_are_gateways_are_configured_before_the_routes_through_them() {
    let yaml = "route: [{net: tcp1, gateway: 10.0.0.4@tcp}]
peer:
  - {primary nid: 10.0.0.9@tcp}
  - {primary nid: 10.0.0.3@tcp, peer ni: [{nid: 10.0.0.3@tcp}, {nid: 10.0.0.4@tcp}]}
";
    let steps: Vec<String> = config(yaml).add_steps().iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        ["peer add 10.0.0.9@tcp", "peer add 10.0.0.3@tcp", "route add tcp1 10.0.0.4@tcp"]
    );
}

#[test]
fn a_configuration_in_force_needs_no_steps() {
    assert_eq!(diff(&config(FULL), &config(FULL)), []);
    let sparse = "net: [{net type: tcp, local NI(s): [{interfaces: [eth0, eth1]}]}]
peer: [{primary nid: 10.0.0.1@tcp, peer ni: [{nid: 10.0.1.1@tcp}]}]\nretry_count: 2\n";
    assert_eq!(diff(&config(FULL), &config(sparse)), []);
}

#[test]
fn a_configuration_is_made_whole_from_nothing_and_removed_whole() {
    let (full, empty) = (config(FULL), Config::default());
    assert_eq!(
        short(&diff(&empty, &full)),
        [
            "discovery=1+retry_count=2+transaction_timeout=50",
            "+net tcp eth0",
            "+net tcp eth1",
            "+peer 10.0.0.1@tcp 1",
        ]
    );
    assert_eq!(short(&diff(&full, &empty)), ["-peer 10.0.0.1@tcp", "-net tcp"]);
}

#[test]
fn a_plan_between_two_configurations_changes_what_differs_alone() {
    let change = |from: &str, to: &str| {
        assert!(FULL.contains(from));
        short(&diff(&config(FULL), &config(&FULL.replacen(from, to, 1))))
    };
    assert_eq!(change("retry_count: 2", "retry_count: 3"), ["retry_count=3"]);
    assert_eq!(change("tos: -1", "tos: 8"), ["-net tcp eth0", "+net tcp eth0"]);
    assert_eq!(
        change("credits: 256", "credits: 64"),
        [
            "-peer 10.0.0.1@tcp",
            "-net tcp",
            "+net tcp eth0",
            "+net tcp eth1",
            "+peer 10.0.0.1@tcp 1"
        ]
    );
    // While it works, unless it has to go for something else.
    assert_eq!(change("CPT: '[0]'", "CPT: '[0,1]'"), ["cpts tcp eth0 Some([0, 1])"]);
    assert_eq!(change("{0: eth0}", "{0: 'eth0[2]'}"), ["cpts tcp eth0 Some([2])"]);
    assert_eq!(change(", CPT: '[0]'", "").len(), 0, "what is not said stays");
    let both = change("tos: -1}, CPT: '[0]'", "tos: 8}, CPT: '[1]'");
    assert_eq!(both, ["-net tcp eth0", "+net tcp eth0"]);
    assert_eq!(change("0: eth1", "0: eth2"), ["-net tcp eth1", "+net tcp eth2"]);
    assert_eq!(
        change("{nid: 10.0.1.1@tcp}", "{nid: 10.0.1.2@tcp}"),
        ["-peer 10.0.0.1@tcp", "+peer 10.0.0.1@tcp 1"]
    );
    // Its peer is known without a net to it.
    assert_eq!(change("net type: tcp", "net type: tcp1").len(), 5);
}

#[test]
fn a_nid_beside_an_interface_says_which_address_the_interface_has() {
    let on = |nid: &str| {
        config(&format!("net: [{{net type: tcp1, local NI(s): [{{{nid} interfaces: {{0: a}}}}]}}]"))
    };
    let (any, first, second) = (on(""), on("nid: 10.0.0.1@tcp1,"), on("nid: 10.0.0.2@tcp1,"));
    let anew = ["-net tcp1 a", "+net tcp1 a"];
    assert_eq!(short(&diff(&first, &second)), anew);
    assert_eq!(diff(&first, &first), []);
    assert_eq!(diff(&first, &any), [], "what is not said stays");
    assert_eq!(short(&diff_of_files(&first, &any)), anew);
    assert_eq!(short(&diff_of_files(&any, &first)), anew);
    // Its NID alone names it too.
    let by_nid = config("net: [{net type: tcp1, local NI(s): [{nid: 10.0.0.1@tcp1}]}]");
    assert_eq!(diff(&first, &by_nid), []);
}

#[test]
fn rules_of_selection_are_made_anew_in_their_order_if_any_differs() {
    let config = |yaml: &str| Config::from_yaml(yaml).unwrap();
    let a = config("udsp: [{idx: 0, src: tcp}, {idx: 1, src: tcp1}]");
    let b = config("udsp: [{src: tcp1}, {idx: 0, src: tcp}]");
    assert_eq!(diff(&a, &b), []);
    let turned = config("udsp: [{src: tcp1}, {src: tcp}]");
    let steps = diff(&a, &turned);
    let [Step::UdspDel(UdspDel::All), Step::UdspAdd(first), Step::UdspAdd(_)] = steps.as_slice()
    else {
        panic!("{steps:?}");
    };
    assert_eq!(first.rule.src.as_deref(), Some("tcp1"));
    assert_eq!(diff(&a, &Config::default()), [Step::UdspDel(UdspDel::All)]);
    assert_eq!(a.del_steps().len(), 2);
}

const ROUTER: &str = "
net: [{net type: tcp, interfaces: {0: eth0}}]
route: [{net: o2ib, gateway: 10.0.0.1@tcp}, {net: o2ib1, gateway: 10.0.0.1@tcp, hop: 2}]
routing: {enable: 1}
buffers: {tiny: 512, small: 0, large: 0}
";

#[test]
fn routes_come_after_the_nets_that_they_lead_over_and_go_before_them() {
    let router = config(ROUTER);
    let buffers = "tiny_buffers=512+small_buffers=0+large_buffers=0";
    assert_eq!(
        short(&router.add_steps()),
        [
            "+net tcp eth0",
            "+route o2ib 10.0.0.1@tcp",
            "+route o2ib1 10.0.0.1@tcp",
            "routing true",
            buffers
        ]
    );
    assert_eq!(
        short(&router.del_steps()),
        [
            "-route o2ib1 10.0.0.1@tcp",
            "-route o2ib 10.0.0.1@tcp",
            "tiny_buffers=0+small_buffers=0+large_buffers=0",
            "routing false",
            "-net tcp eth0"
        ]
    );
    let other = config(&ROUTER.replace("hop: 2", "hop: 3").replace("enable: 1", "enable: 0"));
    assert_eq!(
        short(&diff(&router, &other)),
        ["-route o2ib1 10.0.0.1@tcp", "+route o2ib1 10.0.0.1@tcp", "routing false"]
    );
    assert_eq!(diff(&router, &router), []);
    let sorted = "large_buffers=0+small_buffers=0+tiny_buffers=512";
    assert_eq!(
        short(&diff(&Config::default(), &router)),
        [
            sorted,
            "+net tcp eth0",
            "+route o2ib 10.0.0.1@tcp",
            "+route o2ib1 10.0.0.1@tcp",
            "routing true"
        ]
    );
}

/// The last interface of a net takes them along.
#[test]
fn routes_over_a_net_that_is_made_anew_and_its_peers_are_made_anew_too() {
    let text = "
net:
  - {net type: tcp, local NI(s): [{interfaces: {0: a}, tunables: {credits: 256}}]}
  - {net type: tcp1, local NI(s): [{interfaces: {0: b}, lnd tunables: {tos: -1}}]}
route: [{net: o2ib, gateway: 10.0.0.1@tcp}, {net: o2ib1, gateway: 10.1.0.1@tcp1}]
peer:
  - {primary nid: 10.0.0.1@tcp}
  - {primary nid: 10.0.0.2@tcp, peer ni: [{nid: 10.0.0.2@tcp}, {nid: 10.1.0.2@tcp1}]}
  - {primary nid: 10.1.0.3@tcp1}
";
    let change =
        |from: &str, to: &str| short(&diff(&config(text), &config(&text.replace(from, to))));
    assert_eq!(
        change("credits: 256", "credits: 64"),
        [
            "-route o2ib 10.0.0.1@tcp",
            "-peer 10.0.0.1@tcp",
            "-peer 10.0.0.2@tcp",
            "-net tcp",
            "+net tcp a",
            "+peer 10.0.0.1@tcp 0",
            "+route o2ib 10.0.0.1@tcp",
            "+peer 10.0.0.2@tcp 1",
        ]
    );
    // Its only interface.
    assert_eq!(
        change("tos: -1", "tos: 8"),
        [
            "-route o2ib1 10.1.0.1@tcp1",
            "-peer 10.0.0.2@tcp",
            "-peer 10.1.0.3@tcp1",
            "-net tcp1 b",
            "+net tcp1 b",
            "+route o2ib1 10.1.0.1@tcp1",
            "+peer 10.0.0.2@tcp 1",
            "+peer 10.1.0.3@tcp1 0",
        ]
    );
}

#[test]
fn routes_of_a_gateway_that_is_configured_make_room_for_the_change() {
    let route = "route: [{net: o2ib, gateway: 10.0.0.2@tcp}]\n";
    let peer = "peer: [{primary nid: 10.0.0.1@tcp, peer ni: [{nid: 10.0.0.2@tcp}]}]\n";
    let (route, both) = (config(route), config(&format!("{route}{peer}")));
    let (out, back) = ("-route o2ib 10.0.0.2@tcp", "+route o2ib 10.0.0.2@tcp");
    assert_eq!(short(&diff(&route, &both)), [out, "+peer 10.0.0.1@tcp 1", back]);
    assert_eq!(short(&diff(&both, &route)), [out, "-peer 10.0.0.1@tcp", back]);
    assert_eq!(short(&diff(&Config::default(), &both)), ["+peer 10.0.0.1@tcp 1", back]);
}

#[test]
fn accept_lists_are_set_before_their_net_is_added_and_removed_after_it() {
    let text = |list: &str| {
        config(&format!("net: [{{net type: tcp, {list} local NI(s): [{{interfaces: {{0: a}}}}]}}]"))
    };
    let (none, one) = (text(""), text("accept from: ['10.0.0.*@tcp', '10.1.0.1@tcp'],"));
    let any = text("accept from: any,");
    let said = "accept tcp Some([\"10.0.0.*@tcp\", \"10.1.0.1@tcp\"])";
    assert_eq!(short(&one.add_steps()), [said, "+net tcp a"]);
    assert_eq!(short(&one.del_steps()), ["-net tcp a", "accept tcp None"]);
    assert_eq!(short(&diff(&none, &one)), [said]);
    assert_eq!(short(&diff(&one, &none)), ["accept tcp None"]);
    assert_eq!(short(&diff(&one, &any)), ["accept tcp Some([\"any\"])"]);
    assert_eq!(diff(&one, &one), []);
    assert_eq!(Config::from_yaml(&one.to_yaml()).unwrap().add_steps(), one.add_steps());
    assert!(Config::from_yaml("net: [{net type: tcp, accept from: []}]").is_err());
}

#[test]
fn what_a_file_no_longer_names_gets_its_default_between_two_files_alone() {
    let full = "
net:
  - net type: tcp
    local NI(s):
      - {interfaces: {0: a}, tunables: {peer_credits: 16}, CPT: '[0]'}
      - {interfaces: {0: b}, lnd tunables: {tos: 8}}
global: {retry_count: 5, discovery: 0}
ulnet: {health_range: 50}
routing: {enable: 1}
buffers: {tiny: 512}
";
    let full = config(full);
    let bare = config("net: [{net type: tcp, interfaces: [a, b]}]\nretry_count: 5\n");
    let default = |name: &str| Some(i64::from(name == "discovery"));
    let between =
        |a: &Config, b: &Config| short(&diff_of_files(a, &b.with_defaults_of(a, default)));
    assert_eq!(
        between(&full, &bare),
        [
            "-net tcp",
            "discovery=1+health_range=0+tiny_buffers=0",
            "+net tcp a",
            "+net tcp b",
            "routing false"
        ]
    );
    assert_eq!(diff(&full, &bare), []);
    assert_eq!(between(&full, &full), [] as [&str; 0]);
    let others = full.to_yaml().replace("tos: 8", "tos: -1").replace("CPT: \"[0]\"", "");
    assert_eq!(between(&full, &config(&others)), ["-net tcp b", "cpts tcp a None", "+net tcp b"]);
    let untied = full.to_yaml().replace("CPT: \"[0]\"", "").replace("tos: 8", "conns_per_peer: 2");
    assert_eq!(between(&full, &config(&untied)).len(), 3);
}

/// I-21.
#[test]
fn yaml_blocks_keep_their_seq_no() {
    let c = config(
        "peer:\n- primary nid: 10.0.0.1@tcp\n  seq_no: 7\nrouting:\n  enable: 0\n  seq_no: 8\n",
    );
    let places: Vec<_> = c.add_steps_placed().into_iter().map(|(pos, _)| pos).collect();
    assert_eq!(c.seq_nos, [(places[0], 7), (places[1], 8)]);
}
