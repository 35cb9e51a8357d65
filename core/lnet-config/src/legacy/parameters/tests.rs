use super::*;

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/modprobe");

fn sample(name: &str) -> ModuleParameters {
    let text = std::fs::read_to_string(format!("{SAMPLES}/{name}.conf")).unwrap();
    ModuleParameters::from_modprobe(&text).unwrap()
}

/// The settings of a file as `MODULE NAME=VALUE`; nothing in it may be unknown.
fn settings(name: &str) -> Vec<String> {
    let all = sample(name);
    for note in &all.notes {
        let why = note.ignored.as_deref().unwrap_or_default();
        assert!(!why.contains("no parameter") && !why.contains("not known"), "{note:?}");
        assert_ne!(why, "not understood", "{note:?}");
    }
    all.notes.into_iter().map(|note| note.text).collect()
}

#[test]
fn pa147_the_sample_of_a_router_has_its_six_settings() {
    assert_eq!(
        settings("router"),
        [
            "ko2iblnd timeout=10",
            "ko2iblnd peer_timeout=40",
            "kgnilnd peer_health=1",
            "lnet router_ping_timeout=50",
            "lnet live_router_check_interval=60",
            "lnet dead_router_check_interval=60"
        ]
    );
    let of_node = sample("router").settings;
    let expected = [
        ("router_ping_timeout", 50),
        ("live_router_check_interval", 60),
        ("dead_router_check_interval", 60),
    ];
    assert_eq!(of_node, expected.map(|(name, value)| Setting::new(name, value)));
}

#[test]
fn pa148_the_sample_of_a_server_has_its_ten_settings() {
    assert_eq!(
        settings("server"),
        [
            "ko2iblnd timeout=10",
            "ko2iblnd peer_timeout=0",
            "ko2iblnd keepalive=30",
            "lnet router_ping_timeout=10",
            "lnet live_router_check_interval=35",
            "lnet dead_router_check_interval=35",
            "lnet avoid_asym_router_failure=1",
            "ptlrpc at_max=400",
            "ptlrpc at_min=40",
            "ptlrpc ldlm_enqueue_min=260"
        ]
    );
}

#[test]
fn pa149_the_sample_of_an_aries_client_has_its_eight_settings() {
    assert_eq!(
        settings("aries-client"),
        [
            "kgnilnd peer_health=0",
            "lnet router_ping_timeout=50",
            "lnet live_router_check_interval=60",
            "lnet dead_router_check_interval=60",
            "lnet avoid_asym_router_failure=1",
            "ptlrpc at_max=400",
            "ptlrpc at_min=40",
            "ptlrpc ldlm_enqueue_min=260"
        ]
    );
}

#[test]
fn pa150_the_sample_of_an_infiniband_client_has_its_six_settings() {
    assert_eq!(
        settings("ib-client"),
        [
            "ko2iblnd timeout=10",
            "ko2iblnd peer_timeout=0",
            "ko2iblnd keepalive=30",
            "ptlrpc at_max=400",
            "ptlrpc at_min=40",
            "ptlrpc ldlm_enqueue_min=260"
        ]
    );
}

#[test]
fn pa151_what_is_not_known_is_noted_with_its_line() {
    let all = ModuleParameters::from_modprobe(
        "# comment\noptions lnet frob=1\noptions kfoo x=1\nfrobnicate\noptions ksocklnd nscheds=4\n",
    )
    .unwrap();
    let notes: Vec<_> =
        all.notes.iter().map(|n| (n.line, n.ignored.as_deref().unwrap_or_default())).collect();
    assert_eq!(
        notes,
        [
            (2, "module lnet has no parameter 'frob'"),
            (3, "module kfoo is not known"),
            (4, "not understood"),
            (5, DIFFERENT)
        ]
    );
}

#[test]
fn a_modprobe_file_of_a_whole_node_is_read_with_all_its_settings() {
    let all = ModuleParameters::from_modprobe(
        "options lnet networks=tcp(eth0),tcp1 routes=\"o2ib 2 10.0.0.[1-2]@tcp\" forwarding=enabled\n\
         options lnet lnet_peer_discovery_disabled=1 lnet_retry_count=3 accept=all accept_port=9988\n\
         options ksocklnd credits=64 peer_timeout=-1 conns_per_peer=2 nagle=1 tos=-1\n\
         options lnet lnet_retry_count=1\n",
    )
    .unwrap();
    let nets: Vec<String> = all.networks.iter().map(ToString::to_string).collect();
    assert_eq!(nets, ["tcp(eth0)", "tcp1"]);
    assert_eq!((all.routes.len(), all.forwarding), (2, Some(true)));
    assert_eq!(all.settings, [Setting::new("discovery", 0), Setting::new("retry_count", 1)]);
    let expected = SockParameters {
        accept: Some(AcceptFrom::All),
        accept_port: Some(9988),
        credits: Some(64),
        peer_timeout: Some(0),
        conns_per_peer: Some(2),
        nagle: Some(true),
        tos: Some(-1),
        ..SockParameters::default()
    };
    assert_eq!(all.sock, expected);
    assert!(all.notes.iter().all(|note| note.ignored.is_none()));
}

#[test]
fn options_of_the_rdma_driver_are_kept_and_those_without_effect_have_a_reason() {
    let all = ModuleParameters::from_modprobe(
        "options ko2iblnd peer_credits=32 peer_credits_hiw=16 credits=1024 concurrent_sends=64\n\
         options ko2iblnd timeout=10 peer_timeout=-1 keepalive=30 conns_per_peer=4 tos=106\n\
         options ko2iblnd service=1987 ipif_name=ib1 retry_count=3 rnr_retry_count=0 peer_credits=64\n\
         options ko2iblnd use_privileged_port=0 require_privileged_port=1 peer_buffer_credits=8\n\
         options ko2iblnd map_on_demand=256 cksum=1 ib_mtu=2048 nscheds=2 frob=1\n",
    )
    .unwrap();
    let expected = IbParameters {
        service: Some(1987),
        timeout: Some(10),
        conns_per_peer: Some(4),
        credits: Some(1024),
        peer_credits: Some(64),
        peer_credits_hiw: Some(16),
        peer_buffer_credits: Some(8),
        peer_timeout: Some(0),
        ipif_name: Some("ib1".to_owned()),
        retry_count: Some(3),
        rnr_retry_count: Some(0),
        keepalive: Some(30),
        concurrent_sends: Some(64),
        require_privileged_port: Some(true),
        use_privileged_port: Some(false),
        tos: Some(106),
    };
    assert_eq!(all.ib, expected);
    assert_eq!(all.sock, SockParameters::default());
    let ignored: Vec<_> =
        all.notes.iter().filter_map(|n| Some((n.line, n.ignored.as_deref()?))).collect();
    assert_eq!(
        ignored,
        [
            (5, MAPPED),
            (5, NO_SUMS),
            (5, BY_ROUTE),
            (5, DIFFERENT),
            (5, "module ko2iblnd has no parameter 'frob'")
        ]
    );
}

#[test]
fn options_of_each_driver_go_to_its_own_networks_in_yaml() {
    let all = ModuleParameters::from_modprobe(
        "options lnet networks=\"tcp(eth0),o2ib(ib0),o2ib1(ib1)\"\n\
         options ksocklnd peer_credits=16\noptions ko2iblnd peer_credits=32 concurrent_sends=64 tos=9\n",
    )
    .unwrap();
    let config = Config::from_yaml(&all.to_config().to_yaml()).unwrap();
    let nets = config.blocks.iter().filter_map(|(_, block)| match block {
        Block::Net(net) => Some(net),
        _ => None,
    });
    let said = |net: &NetBlock| {
        let ni = &net.nis[0];
        let of_net = ni.tunables.peer_credits;
        (net.net.to_string(), of_net, ni.lnd.concurrent_sends, ni.lnd.tos)
    };
    let found: Vec<_> = nets.map(said).collect();
    let o2ib = |net: &str| (net.to_owned(), Some(32), Some(64), Some(9));
    assert_eq!(found, [("tcp".to_owned(), Some(16), None, None), o2ib("o2ib"), o2ib("o2ib1")]);
}

#[test]
fn partitions_are_what_the_pattern_says_else_as_many_as_asked_for() {
    let of = |text: &str| {
        let all = ModuleParameters::from_modprobe(text).unwrap();
        let lost: Vec<_> = all.notes.into_iter().filter_map(|note| note.ignored).collect();
        (all.cpus, lost)
    };
    let pattern = |text, count| Some(CpuPattern::parse(text, count).unwrap());
    assert_eq!(of("options lnet networks=tcp"), (None, vec![]));
    assert_eq!(of("options libcfs cpu_npartitions=2"), (pattern("", 2), vec![]));
    assert_eq!(of("options lnet cpu_pattern=\"0[0] 1[1]\""), (pattern("0[0] 1[1]", 0), vec![]));
    let both = "options libcfs cpu_npartitions=2 cpu_pattern=";
    assert_eq!(of(&format!("{both}C[0]")), (pattern("C[0]", 2), vec![]));
    assert_eq!(of(&format!("{both}\"\"")), (pattern("", 2), vec![]));
    assert_eq!(of(&format!("{both}N")), (pattern("N", 0), vec!["cpu_pattern decides".to_owned()]));
    let twice = "options libcfs cpu_npartitions=2\noptions libcfs cpu_npartitions=3";
    assert_eq!(of(twice), (pattern("", 3), vec![]));
}

#[test]
fn values_that_can_not_be_are_errors_with_their_line() {
    for (text, what) in [
        ("options libcfs cpu_npartitions=-1", "expected 0 to 256 CPU partitions, on line 1"),
        ("options libcfs cpu_npartitions=257", "expected 0 to 256 CPU partitions, on line 1"),
        (
            "options libcfs cpu_pattern=1[0]",
            "partition 1: expected 0 first, without gaps, on line 1",
        ),
        ("options lnet networks=foo", "'foo' is not a network such as tcp or o2ib1, on line 1"),
        (
            "options lnet networks=tpc(eth0)",
            "'tpc' is not a network such as tcp or o2ib1: did you mean 'tcp'?, on line 1",
        ),
        ("\noptions lnet lnet_retry_count=x", "expected a number, on line 2"),
        ("options lnet forwarding=yes", "expected enabled or disabled, on line 1"),
        ("options lnet accept=some", "expected secure, all or none, on line 1"),
        ("options lnet accept_port=0", "expected 1 to 65535, on line 1"),
        ("options lnet accept_port=65536", "expected 1 to 65535, on line 1"),
        ("options ksocklnd conns_per_peer=256", "expected 0 to 127, on line 1"),
        ("options ko2iblnd peer_credits=many", "expected 0 to 2147483647, on line 1"),
        ("options ko2iblnd peer_credits=-1", "expected 0 to 2147483647, on line 1"),
        ("options ko2iblnd service=0", "expected 1 to 65535, on line 1"),
        ("options ko2iblnd conns_per_peer=128", "expected 0 to 127, on line 1"),
        ("options ko2iblnd retry_count=8", "expected 0 to 7, on line 1"),
        ("options ko2iblnd tos=256", "expected -1 to 255, on line 1"),
        ("options ko2iblnd ipif_name=", "of at most 15 characters, on line 1"),
        ("options ko2iblnd ipif_name=a-name-of-16-bytes", "of at most 15 characters, on line 1"),
        (
            "options lnet networks=tcp ip2nets=\"tcp *.*.*.*\"",
            "'tcp *.*.*.*': must stand without networks, on line 1",
        ),
        ("options lnet routes=\"tcp\"", "expected a gateway such as 10.0.0.1@tcp, on line 1"),
    ] {
        let e = ModuleParameters::from_modprobe(text).unwrap_err().to_string();
        assert!(e.contains(what), "{text}: {e}");
    }
}

#[test]
fn without_networks_a_node_is_on_tcp_by_its_first_interface() {
    let nets = ModuleParameters::default().networks_or_default();
    assert_eq!((nets.len(), nets[0].net, nets[0].interfaces.len()), (1, Net::TCP, 0));
}

#[test]
fn n15_a_file_of_parameters_becomes_yaml_that_is_read_back() {
    let all = ModuleParameters::from_modprobe(
        "options lnet ip2nets=\"tcp(eth0),tcp1 192.168.0.*; o2ib *.*.*.*\" routes=\"o2ib1 10.0.0.1@o2ib\"\n\
         options lnet lnet_retry_count=1 router_ping_timeout=10 tiny_router_buffers=512\n\
         options ksocklnd credits=64\n",
    )
    .unwrap();
    let config = all.to_config();
    let yaml = config.to_yaml();
    let expected = "ip2nets:\n-     net-spec: tcp\n      interfaces:\n            0: eth0\n      tunables:\n            credits: 64\n      ip-range:\n            0: 192.168.0.*\n";
    assert!(yaml.starts_with(expected), "{yaml}");
    for line in ["retry_count: 1", "router_ping_timeout: 10", "tiny: 512", "net: o2ib1"] {
        assert!(yaml.contains(line), "{yaml}");
    }
    let again = Config::from_yaml(&yaml).unwrap();
    let blocks = |c: &Config| c.blocks.iter().map(|(_, b)| b.clone()).collect::<Vec<_>>();
    // A block of buffers names all three.
    assert_eq!(again.to_yaml(), yaml);
    assert_eq!(blocks(&again).len(), blocks(&config).len());
}

/// Each parameter that kernel modules have is known, has the effect that the table of the fixture says,
/// and no other is; only modules of other programs are not in it.
#[test]
fn the_parameters_of_kernel_modules_are_those_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/parameters/modules.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    let mut listed = Vec::new();
    for row in rows {
        let words: Vec<&str> = row.split_whitespace().collect();
        let [module, name, default, _, _, _, option] = words[..] else { panic!("{row}") };
        let value = if matches!(default, "\"\"" | "-") { "" } else { default };
        // What is no text needs some number.
        let texts = ["networks", "ip2nets", "routes", "forwarding"];
        let value = if value.is_empty() && !texts.contains(&name) { "0" } else { value };
        let line = format!("options {module} {name}=\"{value}\"\n");
        let parameters = ModuleParameters::from_modprobe(&line).unwrap();
        let [note] = &parameters.notes[..] else { panic!("{line}: {:?}", parameters.notes) };
        let ignored = note.ignored.as_deref();
        assert!(ignored.is_none_or(|why| !why.contains("parameter '")), "{line}: {ignored:?}");
        assert!(ignored.is_none_or(|why| !why.ends_with("not known")), "{line}: {ignored:?}");
        let expected = match option {
            "used" => false,
            "ignored" => true,
            other => panic!("{row}: {other}"),
        };
        assert_eq!(ignored.is_some(), expected, "{line}: {ignored:?}");
        listed.push((module.to_owned(), name.to_owned()));
    }
    let others = OTHERS.iter().flat_map(|(m, _, names)| names.iter().map(move |n| (*m, *n)));
    for (module, name) in TABLE.iter().map(|(m, n, _)| (*m, *n)).chain(others) {
        let elsewhere = ["ptlrpc", "libcfs"].contains(&module);
        let there = listed.contains(&(module.to_owned(), name.to_owned()));
        assert!(elsewhere || there, "{module} {name} is not in the table");
    }
}
