use super::*;
use crate::{RouteAdd, Style};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/lnetctl");

/// What a recorded command printed to its standard output.
fn stdout_of(name: &str) -> String {
    let text = std::fs::read_to_string(format!("{FIXTURES}/{name}.txt")).unwrap();
    let body = text.split_once('\n').unwrap().1;
    let end = body.find("# stderr:").or_else(|| body.find("# exit")).unwrap();
    body[..end].to_owned()
}

fn read(yaml: &str) -> Config {
    Config::from_yaml(yaml).unwrap()
}

fn refused(yaml: &str) -> String {
    Config::from_yaml(yaml).unwrap_err().to_string()
}

#[test]
fn a_recorded_backup_is_read_and_written_back_to_the_byte() {
    for name in ["export-backup", "export-fresh-backup"] {
        let yaml = stdout_of(name);
        // `lnd_timeout` is derived, so it is read and not kept.
        assert_eq!(read(&yaml).to_yaml(), yaml.replace("    lnd_timeout: 49\n", ""), "{name}");
    }
}

#[test]
fn every_full_export_can_be_imported_and_loopback_is_skipped() {
    for name in ["export", "export-fresh"] {
        let config = read(&stdout_of(name));
        let blocks: Vec<&Block> = config.blocks.iter().map(|(_, b)| b).collect();
        let [Block::Net(net), Block::Peer(peer), Block::Settings(settings)] = blocks.as_slice()
        else {
            panic!("{blocks:?}");
        };
        assert_eq!(net.net, Net::TCP);
        let names: Vec<_> = net.nis.iter().map(|ni| ni.interfaces[0].name.as_str()).collect();
        assert_eq!(names, ["eth0", "eth1"]);
        // Beside an interface a NID says which address of it is meant.
        assert!(net.nis.iter().all(|ni| ni.nid.is_some_and(|nid| nid.net() == Net::TCP)));
        assert_eq!(peer.primary.to_string(), "10.77.0.3@tcp");
        assert_eq!(settings.len(), 12);
    }
}

#[test]
fn a_recorded_backup_with_routes_is_read_and_written_back_to_the_byte() {
    let text = stdout_of("route-export-backup");
    let config = read(&text);
    let route = config.blocks.iter().find_map(|(_, b)| match b {
        Block::Route(route) => Some(*route),
        _ => None,
    });
    let expected = RouteAdd {
        net: "tcp1".parse().unwrap(),
        gateway: "10.77.0.4@tcp".parse().unwrap(),
        hops: None,
        priority: 0,
    };
    assert_eq!(route, Some(expected));
    let without = |text: &str| text.replace("    lnd_timeout: 49\n", "");
    assert_eq!(config.to_yaml(), without(&text));
}

#[test]
fn routes_have_an_item_for_each_gateway_and_forwarding_is_read_in_either_form() {
    let config = read(
        "route: [{net: o2ib1, gateway: '10.0.0.[1-2]@tcp', hop: 3, priority: 1, state: up}]\n\
         routing:\n    - cpt[0]:\n          tiny:\n              npages: 0\n    - enable: 1\n\
         buffers: {tiny: 512}\nulnet: {health_range: 5}\n",
    );
    let blocks: Vec<&Block> = config.blocks.iter().map(|(_, b)| b).collect();
    let [Block::Route(a), Block::Route(b), routing, buffers, own] = blocks.as_slice() else {
        panic!("{blocks:?}")
    };
    assert_eq!((a.hops, a.priority, b.hops), (Some(3), 1, Some(3)));
    assert_eq!((a.gateway.to_string(), b.gateway.to_string()), {
        ("10.0.0.1@tcp".to_owned(), "10.0.0.2@tcp".to_owned())
    });
    assert_eq!(**routing, Block::Routing(true));
    let n = |name: &str, v| Setting::new(name, v);
    let numbers = vec![n("tiny_buffers", 512), n("small_buffers", 0), n("large_buffers", 0)];
    assert_eq!(**buffers, Block::Buffers(numbers));
    assert_eq!(**own, Block::Own(vec![n("health_range", 5)]));
    let again = read(&config.to_yaml());
    let values = |c: &Config| c.blocks.iter().map(|(_, b)| b.clone()).collect::<Vec<_>>();
    assert_eq!(values(&again), values(&config));
    assert_eq!(read("routing: {enable: 0}").blocks[0].1, Block::Routing(false));
}

#[test]
fn each_ni_keeps_its_own_settings_and_nets_lend_theirs() {
    let config = read(
        "net:
  - tunables: {credits: 64, peer_credits: 0, peer_timeout: 0}
    net type: tcp3
    local NI(s):
      - interfaces: {0: 'eth0[0]'}
        lnd tunables: {conns_per_peer: 4, tos: 10, timeout: 5}
        CPT: \"[0,1]\"
      - interfaces: [eth1, eth2]
        tunables: {credits: 32}
        CPT: [2-3, 1]
",
    );
    let (_, Block::Net(net)) = &config.blocks[0] else { panic!() };
    assert_eq!(net.net.to_string(), "tcp3");
    let [one, two] = net.nis.as_slice() else { panic!() };
    assert_eq!(one.interfaces, [Interface { name: "eth0".to_owned(), cpts: Some(vec![0]) }]);
    assert_eq!(
        one.tunables,
        NetTunables {
            peer_timeout_s: Some(0),
            peer_credits: None,
            peer_buffer_credits: None,
            credits: Some(64)
        }
    );
    assert_eq!(
        one.lnd,
        LndTunables { conns_per_peer: Some(4), tos: Some(10), ..LndTunables::default() }
    );
    assert_eq!(one.cpts, Some(vec![0, 1]));
    assert_eq!(two.interfaces.len(), 2);
    assert_eq!((two.tunables.credits, two.tunables.peer_timeout_s), (Some(32), Some(0)));
    assert_eq!((two.lnd, two.cpts.clone()), (LndTunables::default(), Some(vec![1, 2, 3])));
}

#[test]
fn flat_items_and_bare_nets_make_one_ni() {
    let config = read("net:\n- net type: tcp\n  interfaces:\n    0: eth0\n- net type: tcp1\n");
    let nets: Vec<&NetBlock> = config
        .blocks
        .iter()
        .map(|(_, b)| match b {
            Block::Net(net) => net,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(nets[0].nis.len(), 1);
    assert_eq!(nets[0].nis[0].interfaces[0].name, "eth0");
    assert_eq!(nets[1].nis, [NiBlock::default()]);
}

#[test]
fn a_nid_beside_one_interface_picks_its_address() {
    let config = read(
        "net: [{net type: tcp, local NI(s): [{nid: fd00::1@tcp, interfaces: {0: eth0}},
          {nid: 10.0.0.1@tcp}, {nid: 10.0.0.2@tcp, interfaces: {0: eth1}},
          {nid: 10.0.0.3@tcp, interfaces: {0: eth2, 1: eth3}}]}]",
    );
    let (_, Block::Net(net)) = &config.blocks[0] else { panic!() };
    let all = net.nis.iter().map(|ni| (ni.nid.map(|n| n.to_string()), ni.interfaces.len()));
    let nid = |nid: &str| Some(nid.to_owned());
    assert_eq!(
        all.collect::<Vec<_>>(),
        [(nid("fd00::1@tcp"), 0), (nid("10.0.0.1@tcp"), 0), (nid("10.0.0.2@tcp"), 1), (None, 2)]
    );
}

#[test]
fn a_peer_block_takes_nid_ranges_and_every_spelling_of_a_boolean() {
    let config = read(
        "peer:
    - primary nid: 10.0.0.1@tcp
      Multi-Rail: False
      peer_ni:
        - nid: 10.0.0.1@tcp
        - nid: 10.0.0.[2-3]@tcp
    - primary nid: 10.0.1.1@tcp
",
    );
    let (_, Block::Peer(peer)) = &config.blocks[0] else { panic!() };
    let nids: Vec<_> = peer.nids.iter().map(ToString::to_string).collect();
    assert_eq!(nids, ["10.0.0.2@tcp", "10.0.0.3@tcp"]);
    assert!(!peer.multi_rail);
    let (_, Block::Peer(peer)) = &config.blocks[1] else { panic!() };
    assert!(peer.multi_rail && peer.nids.is_empty());
}

#[test]
fn tunables_stand_in_global_in_numa_or_alone() {
    let config =
        read("numa: {range: 3}\nretry_count: 0x3\nglobal: {max_intf: 200, lnd_timeout: 9}\n");
    let all: Vec<_> = config.blocks.into_iter().map(|(_, b)| b).collect();
    let set = |name: &str, value| Block::Settings(vec![Setting::new(name, value)]);
    assert_eq!(all, [set("numa_range", 3), set("retry_count", 3), set("max_interfaces", 200)]);
    let profile = read("global: {profile: kernel, retry_count: 1}\n").profile.unwrap();
    assert_eq!(profile, (Pos { line: 1, column: 19 }, "kernel".to_owned()));
}

#[test]
fn ping_and_discover_blocks_have_two_forms() {
    let config = read(
        "ping: {nids: [10.0.0.1@tcp, '10.0.0.[2-3]@tcp'], timeout: 500, source: 10.0.0.9@tcp}
discover:
  - primary nid: 10.0.0.1@tcp
    force: 1
",
    );
    let (_, Block::Ping(ping)) = &config.blocks[0] else { panic!() };
    assert_eq!((ping.nids.len(), ping.timeout_ms), (3, Some(500)));
    let (_, Block::Discover(discover)) = &config.blocks[1] else { panic!() };
    assert!(discover.force && discover.nids.len() == 1);
}

#[test]
fn nids_that_a_map_numbers_are_read_as_those_of_a_list() {
    let list = read(
        "ping: {nids: [10.0.0.1@tcp, '10.0.0.[2-3]@tcp']}\ndiscover: {nids: [10.0.0.4@tcp]}\n",
    );
    let map = read(
        "ping:\n  nids:\n    0: 10.0.0.1@tcp\n    1: 10.0.0.[2-3]@tcp\n\
         discover:\n  nids: {0: 10.0.0.4@tcp}\n",
    );
    let blocks = |config: &Config| config.blocks.iter().map(|(_, b)| b.clone()).collect::<Vec<_>>();
    assert_eq!(blocks(&map), blocks(&list));
    let wrong = Config::from_yaml("ping: {nids: {first: 10.0.0.1@tcp}}\n").unwrap_err();
    assert_eq!(wrong.to_string(), "invalid key 'first' at line 1, column 15: expected '0'");
}

#[test]
fn a_recorded_backup_with_rules_is_read_and_written_back_to_the_byte() {
    let yaml = stdout_of("udsp-export");
    let config = read(&yaml);
    assert_eq!(config.to_yaml(), yaml.replace("    lnd_timeout: 49\n", ""));
    let rules: Vec<&UdspAdd> = config
        .blocks
        .iter()
        .filter_map(|(_, b)| if let Block::Udsp(add) = b { Some(add) } else { None })
        .collect();
    let priorities: Vec<_> = rules.iter().map(|add| add.rule.priority).collect();
    // 0 is a priority, and none is carried over to the next item (I-16).
    assert_eq!(priorities, [Some(3), Some(0), Some(1), Some(2), None, None]);
}

#[test]
fn rules_of_selection_have_every_part_and_older_spelling() {
    let config = read(
        "udsp: [{src: tcp, dst: NA, action: {priority: 1, messages: 3}}, {idx: 0, dst: '*@tcp', seq_no: 2}]",
    );
    let rules: Vec<_> = config.blocks.into_iter().map(|(_, b)| b).collect();
    let rule = UdspRule {
        src: Some("tcp".to_owned()),
        priority: Some(1),
        messages: NonZeroU32::new(3),
        ..UdspRule::default()
    };
    let to = UdspRule { dst: Some("*@tcp".to_owned()), ..UdspRule::default() };
    assert_eq!(
        rules,
        [
            Block::Udsp(UdspAdd { rule, index: None }),
            Block::Udsp(UdspAdd { rule: to, index: Some(0) })
        ]
    );
}

#[test]
fn errors_name_the_culprit_and_its_place() {
    for (yaml, text) in [
        ("frob:\n  - foo: 1\n", "invalid key 'frob' at line 1, column 1"),
        (
            "net:\n  - foo: 1\n",
            "Malformed input. Expect 'net type' found 'foo' at line 2, column 5",
        ),
        ("net: [{net type: foo}]", "Invalid network ID 'foo' at line 1, column 18"),
        ("net: 5", "Malformed input. Expect a list of nets at line 1, column 6"),
        ("net: [{net type: }]", "no value specified for key 'net type' at line 1, column 16"),
        (
            "global: {retry_count: x}",
            "invalid value 'x' for key 'retry_count' at line 1, column 23",
        ),
        ("global: {retries: 1}", "invalid key 'retries' at line 1, column 10"),
        ("numa: {ranges: 1}", "invalid key 'ranges' at line 1, column 8"),
        ("net: [{net type: tcp, CPT: '[0'}]", "Unable to parse CPT '[0' at line 1, column 28"),
        ("net: [{net type: tcp, tunables: {foo: 1}}]", "invalid key 'foo' at line 1, column 34"),
        (
            "net: [{net type: tcp, lnd tunables: {tos: 256}}]",
            "invalid value '256' for key 'tos' at line 1, column 43",
        ),
        (
            "net: [{net type: tcp, lnd tunables: {conns_per_peer: 128}}]",
            "invalid value '128' for key 'conns_per_peer' at line 1, column 54",
        ),
        (
            "net: [{net type: tcp, lnd tunables: {ntx: 1}}]",
            "'ntx' is not a tunable of this network's driver here at line 1, column 38",
        ),
        (
            "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp1}]}]",
            "NID '10.0.0.1@tcp1' is not on net 'tcp' at line 1, column 43",
        ),
        ("route: [{net: o2ib}]", "a route needs 'gateway' at line 1, column 9"),
        (
            "route: [{net: foo, gateway: 10.0.0.1@tcp}]",
            "cannot parse remote net 'foo' at line 1, column 15",
        ),
        (
            "route: [{net: o2ib, gateway: 10.0.0.1@tcp, hop: 256}]",
            "invalid hop count must be between 1 and 255 at line 1, column 49",
        ),
        (
            "route: [{net: o2ib, gateway: 10.0.0.1@tcp, priority: -1}]",
            "invalid priority, must not be negative at line 1, column 54",
        ),
        ("routing: {on: 1}", "invalid key 'on' at line 1, column 11"),
        ("routing: {enable: 4}", "invalid value '4' for key 'enable' at line 1, column 19"),
        ("buffers: {tiny: -1}", "invalid value '-1' for key 'tiny' at line 1, column 17"),
        ("ulnet: {retry_count: 1}", "invalid key 'retry_count' at line 1, column 9"),
        ("udsp: [{idx: 0}]", "a rule needs src, dst or rte at line 1, column 8"),
        (
            "udsp: [{src: tcp, action: {prio: 1}}]",
            "bad action type specified: prio at line 1, column 28",
        ),
        (
            "udsp: [{src: tcp, action: {messages: 0}}]",
            "invalid value '0' for key 'messages' at line 1, column 38",
        ),
        (
            "udsp: [{src: tcp, action: {priority: -1}}]",
            "invalid value '-1' for key 'priority' at line 1, column 38",
        ),
        ("peer: [{Multi-Rail: true}]", "missing primary NID at line 1, column 8"),
        (
            "peer: [{primary nid: x@tcp, Multi-Rail: maybe}]",
            "\"Unable to parse nidlist: invalid NID in nidstr\": 'x@tcp' at line 1, column 22",
        ),
        (
            "peer: [{primary nid: 10.0.0.1@tcp, Multi-Rail: maybe}]",
            "invalid value 'maybe' for key 'Multi-Rail' at line 1, column 48",
        ),
    ] {
        // What was expected follows.
        let refusal = refused(yaml);
        let rest =
            refusal.strip_prefix(text).unwrap_or_else(|| panic!("{refusal}: expected {text}"));
        assert!(rest.is_empty() || rest.starts_with(": "), "{refusal}");
    }
}

#[test]
fn errors_say_what_was_expected_or_may_have_been_meant() {
    for (yaml, hint) in [
        ("nett: []", "did you mean 'net'?"),
        ("global: {retry_cuont: 1}", "did you mean 'retry_count'?"),
        ("global: {rail_suspicion: 1}", "'rail_suspicion' stands below 'ulnet'"),
        ("ulnet: {retry_count: 1}", "'retry_count' stands below 'global'"),
        ("net: [{net type: tcp, tunables: {creditz: 1}}]", "did you mean 'credits'?"),
        ("net: [{net type: tpc1}]", "did you mean 'tcp1'?"),
        ("udsp: [{src: tcp, priority: 0}]", "expected 'idx', 'src', 'dst', 'rte' or 'action'"),
        ("ping: {nid: 10.0.0.1@tcp}", "did you mean 'nids'?"),
        ("peer: [{primary nid: 10.1.0.2}]", "did you mean '10.1.0.2@tcp'?"),
        ("route: [{net: tpc1, gateway: 10.1.0.2@tcp}]", "did you mean 'tcp1'?"),
        ("route: [{net: tcp1, gateway: 10.1.0.2@tpc}]", "did you mean '10.1.0.2@tcp'?"),
        ("global: {retry_count: x}", "retry_count: must be a number"),
        ("peer: [{primary nid: 10.0.0.1@tcp, Multi-Rail: maybe}]", "must be true or false"),
        ("net: [{net type: tcp, lnd tunables: {tos: 256}}]", "tos: must be -1 to 255"),
    ] {
        let refusal = refused(yaml);
        assert!(refusal.ends_with(hint), "{refusal}: expected {hint}");
    }
}

#[test]
fn a_configuration_of_defaults_is_read_back_from_its_yaml() {
    let config = read("net: [{net type: tcp}]\nglobal: {profile: off}\n");
    let again = read(&config.to_yaml());
    assert_eq!(again.blocks[0].1, config.blocks[0].1);
    assert_eq!(again.profile.map(|p| p.1).as_deref(), Some("off"));
    let many = "discover: {nids: [10.0.0.1@tcp]}\nping: {nids: [10.0.0.1@tcp], timeout: 3}\nretry_count: 1\n---\nretry_count: 2\n";
    let (a, b) = (read(many), read(&read(many).to_yaml()));
    let blocks = |c: Config| c.blocks.into_iter().map(|(_, b)| b).collect::<Vec<_>>();
    assert_eq!(blocks(a), blocks(b));
    assert_eq!(crate::Tree::map([("a", crate::Tree::plain(1))]).render(Style::Classic), "a: 1\n");
}

#[test]
fn a_damaged_export_is_read_or_refused_without_panic() {
    let seed = 0x5eed_c0f1;
    println!("seed {seed:#x}");
    let mut prng = lnet_types::Prng::new(seed);
    let (good, mut read, mut refused) = (stdout_of("export"), 0, 0);
    for _ in 0..500 {
        let mut bytes = good.as_bytes().to_vec();
        for _ in 0..=prng.below(6) {
            let at = prng.below(bytes.len() as u64) as usize;
            match prng.below(3) {
                0 => bytes[at] = b"-:#[]{}\"'&*! \n\t0a"[prng.below(17) as usize],
                1 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        match Config::from_yaml(&String::from_utf8_lossy(&bytes)) {
            // What was read can be written and read again.
            Ok(config) => {
                read += 1;
                let again = Config::from_yaml(&config.to_yaml());
                assert!(again.is_ok(), "{again:?}\n{}", config.to_yaml());
            }
            Err(_) => refused += 1,
        }
    }
    assert!(read > 20 && refused > 20, "{read} read, {refused} refused");
}

#[test]
fn rules_by_address_stand_in_a_block_of_their_own_or_in_an_item_of_net() {
    let config = read(
        "ip2nets:\n  - {net-spec: tcp, interfaces: {0: eth0}, ip-range: {0: 10.0.0.*, 1: 'fd00::/64'}}\n  - {net-spec: tcp1, CPT: '[0]'}\n\
         net:\n  - ip2net: tcp6(eth1) 10.77.1.*\n",
    );
    let [(_, Block::NetRules(yaml)), (_, Block::NetRules(legacy))] = config.blocks.as_slice()
    else {
        panic!("{:?}", config.blocks)
    };
    assert_eq!((yaml.choice, yaml.rules.len()), (crate::Choice::FirstPerNet, 2));
    assert_eq!(yaml.rules[0].to_string(), "tcp(eth0) 10.0.0.* fd00::/64");
    assert_eq!((legacy.choice, legacy.rules.len()), (crate::Choice::All, 1));
    let blocks = |c: &Config| c.blocks.iter().map(|(_, b)| b.clone()).collect::<Vec<_>>();
    assert_eq!(blocks(&read(&config.to_yaml())), blocks(&config), "{}", config.to_yaml());
    for (yaml, text) in [
        ("ip2nets: [{ip-range: 1}]", "address pattern '1': expected four parts"),
        ("ip2nets: [{interfaces: eth0}]", "Malformed input. Expect 'net-spec'"),
        ("ip2nets: [{net-spec: lo}]", "Invalid network ID 'lo'"),
        ("net: [{ip2net: tcp}]", "ip2nets 'tcp': expected networks"),
        ("net: [{ip2net: tcp *.*.*.*, net type: tcp}]", "'net type' besides 'ip2net'"),
    ] {
        assert!(refused(yaml).starts_with(text), "{}", refused(yaml));
    }
}

#[test]
fn an_export_that_describes_a_node_keeps_nids_and_says_what_it_passes_over() {
    let (config, passed) = Config::from_export(&stdout_of("export")).unwrap();
    let [(_, Block::Net(net)), (_, Block::Settings(_))] = config.blocks.as_slice() else {
        panic!("{config:?}");
    };
    let nids: Vec<String> = net.nis.iter().map(|ni| ni.nid.unwrap().to_string()).collect();
    assert_eq!(nids, ["10.77.0.2@tcp", "10.77.1.2@tcp"]);
    assert_eq!(net.nis[0].interfaces[0].name, "eth0");
    // Its state is 273: Multi-Rail, discovered, up to date.
    let [(_, PassedOver::FoundPeer(nid))] = passed.as_slice() else { panic!("{passed:?}") };
    assert_eq!(nid.to_string(), "10.77.0.3@tcp");

    // Another driver, and a backup, whose peers are all configuration.
    let text = stdout_of("o2ib-export-backup");
    let (config, passed) = Config::from_export(&text).unwrap();
    let peers = config.blocks.iter().filter(|(_, b)| matches!(b, Block::Peer(_))).count();
    assert_eq!((peers, passed.len()), (2, 0));
    let config = Config::from_yaml(&text).unwrap();
    let net = config.blocks.iter().find_map(|(_, b)| match b {
        Block::Net(net) => Some(net),
        _ => None,
    });
    let lnd = net.unwrap().nis[0].lnd;
    assert_eq!((lnd.peercredits_hiw, lnd.concurrent_sends), (Some(4), Some(8)));
    // How memory is registered is no choice, and no driver of TCP has any of it.
    let other = text.replace("fmr_pool_size: 512", "fmr_pool_size: 1024");
    assert_eq!(Config::from_yaml(&other).unwrap_err().errno(), Errno::EOPNOTSUPP);
    let tcp = text.replace("o2ib", "tcp");
    assert_eq!(Config::from_yaml(&tcp).unwrap_err().errno(), Errno::EOPNOTSUPP);
    let (_, passed) = Config::from_export(&tcp).unwrap();
    assert_eq!(passed[0].1, PassedOver::ForeignTunable("peercredits_hiw".to_owned()));
}

#[test]
fn patterns_of_selection_rules_come_back_from_their_export() {
    for pattern in [
        "tcp",
        "*",
        "*@tcp",
        "*@o2ib",
        "tcp[1-3]",
        "10.0.0.*@tcp",
        "[10-20].0.0.[0-255]@tcp",
        "[1-4]@gni1",
        "10.0.0.0/16@tcp1",
        "fd00::/64@tcp",
        "::1@tcp",
    ] {
        let rule = UdspRule {
            src: Some(pattern.to_owned()),
            dst: Some(pattern.to_owned()),
            rte: Some(pattern.to_owned()),
            ..UdspRule::default()
        };
        let add = UdspAdd { rule, index: None };
        let block = (Pos::default(), Block::Udsp(add.clone()));
        let config = Config { blocks: vec![block], ..Config::default() };
        let yaml = config.to_yaml();
        assert_eq!(read(&yaml).add_steps(), [crate::Step::UdspAdd(add)], "{yaml}");
    }
}
