//! What commands ask of the daemon, and what they say where no recording shows it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use lnet_admin::{
    AdminError, Ask, ClientError, FaultAction, NetSnapshot, PeerNiSnapshot, PeerNiState, PeerPage,
    PeerSnapshot, Reply, Request, TimerSnapshot,
};
use lnet_types::{Errno, Nid};
use lnetctl::Session;

use super::rebuild::Recorded;
use super::vector::Vector;

/// Accepts every request, but for those that it is set to refuse; records them.
#[derive(Default)]
struct Node {
    asked: Vec<Request>,
    refuse: Option<(usize, AdminError)>,
}

impl Ask for Node {
    fn ask_within(&mut self, request: &Request, _: Duration) -> Result<Reply, ClientError> {
        self.asked.push(request.clone());
        match &self.refuse {
            Some((nth, error)) if *nth == self.asked.len() => Err(error.clone().into()),
            _ => Ok(Reply::Done),
        }
    }
}

impl Node {
    fn refusing(nth: usize, error: AdminError) -> Self {
        Self { asked: Vec::new(), refuse: Some((nth, error)) }
    }

    /// Standard output, standard error, exit code.
    fn run(&mut self, line: &str) -> (String, String, i32) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let mut session = Session::new(self);
        session.explain = true;
        let code = lnetctl::run(&mut session, &words) & 0xff;
        (session.out, session.err, code)
    }

    /// What was asked, in short.
    fn asked(&self) -> Vec<String> {
        let short = |request: &Request| match request {
            Request::NetAdd(n) => format!(
                "+{} {:?} {:?} credits {:?} conns {:?}",
                n.net,
                n.interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(),
                n.nid,
                n.tunables.credits,
                n.lnd.conns_per_peer
            ),
            Request::NetDel(n) => format!("-{} {:?} {:?}", n.net, n.interfaces, n.nid),
            Request::PeerAdd(p) => format!("+{} {:?} mr {}", p.primary, p.nids, p.multi_rail),
            Request::PeerDel(p) => format!("-{} {:?}", p.primary, p.nids),
            Request::Set { settings } => format!("set {}", settings.len()),
            other => format!("{other:?}"),
        };
        self.asked.iter().map(short).collect()
    }
}

/// A file with the backup that was recorded.
struct Backup(PathBuf);

impl Backup {
    fn new(name: &str) -> Self {
        let path = fresh::path(&format!("{name}.yaml"));
        fs::write(&path, Vector::read("export-backup").out).expect("a temporary file");
        Self(path)
    }

    fn import(&self, mode: &str) -> String {
        format!("import {mode} {}", self.0.display())
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn an_import_creates_in_order_and_undoes_backwards() {
    let backup = Backup::new("order");
    let mut node = Node::default();
    assert_eq!(node.run(&backup.import("")), (String::new(), String::new(), 0));
    let nets = |name| format!("+tcp [\"{name}\"] None credits Some(256) conns Some(1)");
    let peer = "+10.77.0.3@tcp [10.77.1.3@tcp] mr true".to_owned();
    assert_eq!(node.asked(), [nets("eth0"), nets("eth1"), peer, "set 12".to_owned()]);
    let mut node = Node::default();
    assert_eq!(node.run(&backup.import("--del")).2, 0);
    assert_eq!(
        node.asked(),
        ["set 3", "-10.77.0.3@tcp []", "-tcp [\"eth1\"] None", "-tcp [\"eth0\"] None"]
    );
}

#[test]
fn an_import_stops_at_the_first_refusal_and_says_where() {
    let backup = Backup::new("refusal");
    let recorded = Vector::read("import-again");
    let mut node = Node::refusing(1, AdminError::new(Errno::EEXIST, "cannot add LNet NI"));
    let (out, err, code) = node.run(&backup.import("--add"));
    // The notes name the block, and what makes a configured node equal to the file.
    let file = backup.0.display();
    let block = format!("# {file}: the block at line 2, column 7 (net add tcp)\n");
    let sync = "# import --sync makes a node that is configured equal to the file\n";
    let recorded_err = recorded.err + &block + sync;
    assert_eq!((out, err, code), (recorded.out, recorded_err, recorded.exit));
    assert_eq!(node.asked.len(), 1);

    let mut node = Node::refusing(4, AdminError::errno(Errno::EINVAL).because("numa_range 7: x"));
    let (_, err, code) = node.run(&backup.import(""));
    assert_eq!(code, 234);
    assert!(err.contains("      errno: -22\n"), "{err}");
    assert!(err.contains("# numa_range 7: x\n"), "{err}");
}

/// An interface that is named and not there is found by importers themselves, with an exit code of its
/// own; a net that cannot be added otherwise is not (I-9).
#[test]
fn an_interface_that_is_not_there_is_named_by_an_import() {
    let backup = Backup::new("interface");
    let mut refusal = AdminError::new(Errno::ENETDOWN, "cannot add LNet NI");
    let (_, err, code) = Node::refusing(2, refusal.clone()).run(&backup.import(""));
    assert_eq!((code, err.contains("errno: -100")), (234, true), "{err}");
    refusal.no_interface = Some("eth1".to_owned());
    let mut node = Node::refusing(2, refusal);
    let (out, err, code) = node.run(&backup.import(""));
    let text = "---\nadd:\n-     import:\n      errno: -42\n      descr: ! \"No interface matching \
                'eth1'\"\n...\n";
    let block = format!("# {}: the block at line 2, column 7 (net add tcp)\n", backup.0.display());
    assert_eq!((out, err, code), (String::new(), text.to_owned() + &block, 214));
    assert_eq!(node.asked.len(), 2, "it stops there");
}

#[test]
fn nothing_of_a_wrong_file_is_applied() {
    let path = fresh::path("wrong.yaml");
    for (yaml, expected) in [
        ("net: [{net type: tcp}]\nfrob: 1\n", "-wrong.yaml: line 2, column 1\n"),
        ("net: [{net type: tcp}]\nping: {nids: [10.0.0.1@tcp]}\n", "\"invalid key 'ping'\""),
        (
            "net: [{net type: tcp}]\nglobal: {profile: kernel}\n",
            "cannot change in a running daemon",
        ),
        ("net: [\n", "Parser error: "),
    ] {
        fs::write(&path, yaml).unwrap();
        let mut node = Node::default();
        let (out, err, code) = node.run(&format!("import {}", path.display()));
        assert_eq!((out.as_str(), code), ("", 234), "{yaml}");
        assert!(err.contains(expected), "{yaml}: {err}");
        assert_eq!(node.asked, [], "{yaml}");
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    let (_, err, code) = Node::default().run(&format!("import {}", path.display()));
    assert_eq!((err.as_str(), code), ("Parser error: not UTF-8 behind byte 0\n", 234));
    fs::remove_file(&path).unwrap();
    let (_, err, code) = Node::default().run(&format!("import {}", path.display()));
    assert!(err.contains("No such file or directory") && code == 254, "{err}");
}

#[test]
fn net_add_turns_options_into_one_request_or_two() {
    let asked = |line: &str| {
        let mut node = Node::default();
        assert_eq!(node.run(line), (String::new(), String::new(), 0), "{line}");
        node.asked()
    };
    assert_eq!(
        asked("net add --net tcp -i eth0,eth1 --credits 0x10 --conns-per 4"),
        ["+tcp [\"eth0\", \"eth1\"] None credits Some(16) conns Some(4)"]
    );
    assert_eq!(
        asked("net add --nid fd00::1@tcp3"),
        ["+tcp3 [] Some(fd00::1@tcp3) credits None conns None"]
    );
    assert_eq!(
        asked("net add --nid 10.0.0.1@tcp --if eth0 --credits 0"),
        [
            "+tcp [\"eth0\"] None credits None conns None",
            "+tcp [] Some(10.0.0.1@tcp) credits None conns None"
        ]
    );
    assert_eq!(asked("net del --nid 10.0.0.1@tcp"), ["-tcp [] Some(10.0.0.1@tcp)"]);
    assert_eq!(asked("net set"), [] as [&str; 0]);
}

#[test]
fn wrong_words_are_named_and_nothing_is_sent() {
    for (line, code, text) in [
        ("net add --net tcp --if eth0 --tos 256", 234, "Invalid ToS argument"),
        (
            "net add --net tcp --if eth0 -m 128",
            255,
            "invalid conns-per-peer value (valid range 0-127)",
        ),
        (
            "net add --net tcp --if eth0 -m x",
            255,
            "invalid conns-per-peer value (valid range 0-127)",
        ),
        ("net add --net tcp --if eth0[", 234, "bad interface list"),
        ("net add --net tcp --if eth0 --cpt [x", 234, "CPT list '[x'"),
        ("net add --nid foo", 234, "bad NID list"),
        (
            "net add --net tcp --if eth0 --peer-credits 99999999999",
            234,
            "invalid peer-credits value",
        ),
        ("net add --net tcp --if eth0 eth1", 234, "unexpected argument 'eth1'"),
        ("net add --net tcp --bogus", 234, "net add: unrecognized option '--bogus'"),
        ("net add --net", 234, "option '--net' requires an argument"),
        ("net add --peer 1 --net tcp", 234, "'--peer' is ambiguous"),
        ("net set --nid 10.0.0.1@tcp --all --health 1", 234, "--nid is invalid with --all option"),
        ("net set --lnd-timeout 5", 234, "Specified --lnd-timeout without --net option"),
        ("net set --net foo --lnd-timeout 5", 234, "Invalid network type: foo"),
        ("net set --net tcp --lnd-timeout -5", 234, "Invalid LND timeout value '-5', must be >= 0"),
        ("net set --cpt 0", 234, "Specified --cpt without --nid option"),
        ("net set --all --cpt 0", 234, "Specified --cpt without --nid option"),
        ("net set --nid 10.0.0.1@tcp --cpt [x", 234, "CPT list '[x'"),
        ("net set --health x", 234, "invalid health value 'x'"),
        ("net show --net foo", 234, "cannot parse net"),
        ("peer set --health 5", 234, "--nid or --all must be specified"),
        ("peer set --nid x --health 5", 234, "cannot parse NID 'x'"),
        ("peer set --all --health 1001", 234, "expected 0 to 1000"),
        ("peer add --nid 10.0.0.1@tcp", 234, "missing primary NID"),
        ("peer add --prim_nid 10.0.0.[1-2]@tcp", 234, "unsupported primary NID"),
        ("ping --timeout x 10.0.0.1@tcp", 234, "invalid timeout value 'x'"),
        ("ping --source x 10.0.0.1@tcp", 234, "cannot parse NID 'x'"),
        ("ping 10.0.0.[1-100]@tcp 10.0.1.[1-100]@tcp", 234, "specifies more NIDs than allowed"),
        ("ping", 234, "ping needs NID targets"),
        ("set retry_count 1 2", 234, "unexpected argument '2'"),
        ("import --add --del x", 234, "one of --add, --del, --show and --exec"),
    ] {
        let mut node = Node::default();
        let (out, err, got) = node.run(line);
        assert_eq!((out.as_str(), got), ("", code), "{line}: {err}");
        assert!(err.contains(text), "{line}: {err}");
        assert_eq!(node.asked, [], "{line}");
    }
    let (out, err, code) = Node::default().run("net add --net tcp --nid 10.0.0.1@tcp");
    assert_eq!(
        (out.as_str(), err.as_str(), code),
        ("--net is invalid with --nid option\n", "", 234)
    );
}

#[test]
fn a_missing_argument_is_answered_with_the_usage_and_one_exit_status() {
    for (line, code) in [
        ("net add", 234),
        ("net add --net tcp", 234),
        ("net del", 234),
        ("ping", 234),
        // As the original has it.
        ("discover", 255),
        ("peer add --nid 10.0.0.1@tcp", 234),
        ("peer del --nid 10.0.0.1@tcp", 234),
        ("peer set --health 5", 234),
        ("route add --net tcp1", 234),
        ("route del --gateway 10.0.0.1@tcp", 234),
        ("udsp del", 234),
        ("debug peer", 234),
        ("debug dump", 234),
        // As the original has it.
        ("fault drop add -s * -d *", 255),
        ("fault drop del -s *", 255),
    ] {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let path = match words[0].as_str() {
            "ping" | "discover" => words[0].clone(),
            "fault" => words[..3].join(" "),
            _ => words[..2].join(" "),
        };
        for is_terminal in [true, false] {
            let mut node = Node::default();
            let mut session = Session::new(&mut node);
            (session.explain, session.is_terminal) = (true, is_terminal);
            let got = lnetctl::run(&mut session, &words) & 0xff;
            let err = session.err;
            assert_eq!(got, code, "{line}: {err}");
            let usage = match is_terminal {
                true => err.lines().any(|l| l.starts_with(&path) && l.contains(": ")),
                false => err.ends_with(&format!("# see 'lnetctl help {path}'\n")),
            };
            assert!(usage, "{line}: {err}");
            assert_eq!(node.asked, [], "{line}");
        }
    }
}

#[test]
fn a_mistyped_net_or_nid_is_answered_with_what_may_have_been_meant() {
    for (line, meant) in [
        ("ping 10.1.0.2", "10.1.0.2@tcp"),
        ("ping --source 10.1.0.2 10.1.0.3@tcp", "10.1.0.2@tcp"),
        ("discover 10.1.0.2@tpc1", "10.1.0.2@tcp1"),
        ("peer add --prim_nid 10.1.0.2", "10.1.0.2@tcp"),
        ("peer show --nid 10.1.0.2", "10.1.0.2@tcp"),
        ("peer set --nid 10.1.0.2 --health 5", "10.1.0.2@tcp"),
        ("net set --nid 10.1.0.2 --health 5", "10.1.0.2@tcp"),
        ("net del --nid 10.1.0.2", "10.1.0.2@tcp"),
        ("net add --net tpc1 --if eth0", "tcp1"),
        ("net del --net tpc1", "tcp1"),
        ("net show --net tpc1", "tcp1"),
        ("net set --net tpc --lnd-timeout 5", "tcp"),
        ("route add --net o2bi --gateway 10.1.0.2@tcp", "o2ib"),
        ("route add --net o2ib --gateway 10.1.0.2", "10.1.0.2@tcp"),
        ("route show --net tpc", "tcp"),
        ("fault drop add -s 10.1.0.2 -d * -r 5", "10.1.0.2@tcp"),
        ("stats reset --nid 10.1.0.2", "10.1.0.2@tcp"),
        ("debug peer --nid 10.1.0.2", "10.1.0.2@tcp"),
        ("explain 10.1.0.2", "10.1.0.2@tcp"),
    ] {
        let mut node = Node::default();
        let (_, err, code) = node.run(line);
        assert_ne!(code, 0, "{line}");
        assert!(err.contains(&format!("did you mean '{meant}'?")), "{line}: {err}");
        assert_eq!(node.asked, [], "{line}");
    }
}

#[test]
fn people_hear_why_and_scripts_what() {
    let refusal = || AdminError::new(Errno::ENETDOWN, "cannot add LNet NI").because("eth9: absent");
    let mut node = Node::refusing(1, refusal());
    let (_, err, _) = node.run("net add --net tcp --if eth9");
    let recorded = Vector::read("err-net-add-no-such-if").err;
    assert_eq!(err, format!("{recorded}# eth9: absent\n"));
    let mut node = Node::refusing(1, refusal());
    let mut session = Session::new(&mut node);
    let words = "net add --net tcp --if eth9".split(' ').map(str::to_owned).collect::<Vec<_>>();
    lnetctl::run(&mut session, &words);
    assert_eq!(session.err, recorded);
}

#[test]
fn ping_passes_time_limits_as_the_original_reads_them() {
    for (option, expected) in [
        ("", None),
        ("-t 2", Some(2000)),
        ("--timeout 1", Some(1000)),
        ("-t 179", Some(179_000)),
        ("-t 180", Some(180_000)),
        ("-t 0", Some(180_000)),
        ("--timeout=-5", Some(180_000)),
    ] {
        let mut node = Node::default();
        node.run(&format!("ping {option} 10.0.0.1@tcp"));
        let [Request::Ping(ping)] = node.asked.as_slice() else { panic!("{option}") };
        assert_eq!(ping.timeout_ms, expected, "{option}");
    }
}

#[test]
fn words_of_every_command_level_work() {
    for line in ["net help", "net --version", "peer list-commands", "version", "quit", "set exit"] {
        let (_, err, code) = Node::default().run(line);
        assert_eq!((err.as_str(), code), ("", 0), "{line}");
    }
    let (out, err, code) = Node::default().run("help net add");
    assert_eq!((out.as_str(), code), ("", 0));
    assert!(err.starts_with("net add: "), "{err}");
    let (out, _, code) = Node::default().run("net");
    assert!(out.contains("net add: ") && out.contains("net set: ") && code == 234, "{out}");
    let (out, _, code) = Node::default().run("net add --if eth0 --help");
    assert!(out.starts_with("net add: ") && code == 0, "{out}");
}

/// MRD-067, MRD-094: what the design decided against.
#[test]
fn bonds_and_switches_of_policies_do_not_exist() {
    for line in ["bond show", "bond add --net tcp", "set policy 1", "set weighted_round_robin 1"] {
        let mut node = Node::default();
        let (_, err, code) = node.run(line);
        assert!(code != 0 && err.contains("is not a valid command"), "{line}: {err}");
        assert_eq!(node.asked, [], "{line}");
    }
    let (_, help, _) = Node::default().run("--list-commands");
    assert!(!help.contains("bond"), "{help}");
}

#[test]
fn fault_rules_are_asked_for_as_kernels_store_them() {
    let mut node = Node::default();
    let line = "fault drop add -s *@tcp -d * -i 5 -n -m put -m GET -p 3 -e local_timeout --times 2";
    assert_eq!(node.run(line), (String::new(), String::new(), 0));
    let [Request::FaultAdd(rule)] = node.asked.as_slice() else { panic!("{:?}", node.asked) };
    assert_eq!((rule.src.to_string(), rule.dst), ("255.255.255.255@tcp".to_owned(), Nid::ANY));
    assert_eq!((rule.kinds, rule.portals, rule.rate, rule.interval_s), (6, 8, 0, 5));
    assert_eq!(rule.action, FaultAction::Drop { random: true, all: false, errors: 1 << 6 });
    assert_eq!(rule.times.map(|n| n.get()), Some(2));
    let mut node = Node::default();
    assert_eq!(node.run("fault delay add -s * -d 10.0.0.1@tcp -r 4 -l 2").2, 0);
    let [Request::FaultAdd(rule)] = node.asked.as_slice() else { panic!("{:?}", node.asked) };
    assert_eq!((rule.rate, rule.action), (4, FaultAction::Delay { latency_s: 2 }));

    for (line, code, text) in [
        ("fault drop add -s * -d *", 255, "either drop rate or interval but not both"),
        ("fault delay add -s * -d * -r 1 --interval 1 -l 1", 255, "either delay rate or interval"),
        ("fault drop add -s * -d * -r 1 -n", 255, "please provide an interval to randomize"),
        ("fault delay add -s * -d * -r 1", 255, "latency cannot be zero"),
        ("fault drop add -s * -r 1", 255, "both source and destination of drop rule"),
        ("fault drop add -s * -d * -r 1 -m FOO", 255, "unknown message type FOO"),
        ("fault drop add -s * -d * -r 1 -p 64", 255, "invalid portal: 64"),
        ("fault drop add -s * -d * -r 1 -e ok", 255, "unknown health error ok"),
        ("fault drop add -s foo -d * -r 1", 234, "Invalid NID: foo"),
        ("fault drop del -s *", 255, "Failed, please provide source and destination of rule"),
        ("fault drop del -a -s *", 255, "'-s' or '-d' cannot be combined with '-a'"),
        (
            "fault delay add -s * -d * -r 1 -l 1 --random",
            255,
            "--random means nothing for delay rules",
        ),
        ("fault drop add -s * -d * -r 1 -l 1", 255, "--latency means nothing for drop rules"),
        ("explain 10.0.0.1@tcp --last 1", 234, "give a NID or --last, not both"),
        ("explain 10.0.0.1@tcp --size x", 234, "invalid size value 'x'"),
        ("explain --last 3 --from 10.0.0.1@tcp", 234, "not about the last"),
    ] {
        let mut node = Node::default();
        let (out, err, got) = node.run(line);
        assert_eq!((out.as_str(), got), ("", code), "{line}: {err}");
        assert!(err.contains(text), "{line}: {err}");
        assert_eq!(node.asked, [], "{line}");
    }
    let mut node = Node::refusing(1, AdminError::errno(Errno::ENOENT));
    let refused = "failed to delete drop rule: No such file or directory\n".to_owned();
    assert_eq!(node.run("fault drop del -a"), (refused, String::new(), 254));
}

/// Has peers, and tells of so many at a time.
struct Paged {
    peers: Vec<PeerSnapshot>,
    per: usize,
}

impl Ask for Paged {
    fn ask_within(&mut self, request: &Request, _: Duration) -> Result<Reply, ClientError> {
        let Request::PeerShow { from, .. } = request else { panic!("{request:?}") };
        let from = from.unwrap_or(0) as usize;
        let to = (from + self.per).min(self.peers.len());
        let next = (to < self.peers.len()).then_some(to as u64);
        Ok(Reply::Peers(PeerPage { peers: self.peers[from..to].to_vec(), next }))
    }
}

#[test]
fn a_long_list_of_peers_reads_the_same_however_it_is_paged() {
    let peer = |n: u8| PeerSnapshot {
        own: false,
        sum: None,
        primary: format!("10.0.0.{n}@tcp").parse().unwrap(),
        multi_rail: n.is_multiple_of(2),
        state: 1,
        nis: (0..n % 3)
            .map(|m| PeerNiSnapshot {
                nid: format!("10.{m}.0.{n}@tcp").parse().unwrap(),
                state: PeerNiState::Up,
                detail: None,
            })
            .collect(),
    };
    for line in ["peer show", "peer list", "--format 2.15 peer show", "--json peer show"] {
        let shown = |per| {
            let mut node = Paged { peers: (1..=7).map(peer).collect(), per };
            let mut session = Session::new(&mut node);
            let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            // These go behind the command as well.
            let front = words.iter().take_while(|w| !w.starts_with("peer")).count();
            words.rotate_left(front);
            assert_eq!(lnetctl::run(&mut session, &words), 0, "{}", session.err);
            session.out
        };
        let whole = shown(100);
        assert!(whole.contains("10.0.0.7@tcp"), "{line}: {whole}");
        assert_eq!(shown(1), whole, "{line}");
        assert_eq!(shown(3), whole, "{line}");
    }
}

#[test]
fn a_service_id_is_refused_as_where_the_driver_is_not_loaded() {
    struct WithoutNets;
    impl Ask for WithoutNets {
        fn ask_within(&mut self, _: &Request, _: Duration) -> Result<Reply, ClientError> {
            Ok(Reply::Nets(Vec::new()))
        }
    }
    let recorded = Vector::read("help-service-id");
    let mut node = WithoutNets;
    let mut session = Session::new(&mut node);
    let code = lnetctl::run(&mut session, &["service-id".to_owned()]) & 0xff;
    assert_eq!((session.out, session.err, code), (recorded.out, recorded.err, recorded.exit));
}

#[test]
fn c_misc_1_the_service_id_is_that_of_the_rdma_drivers_port() {
    struct WithRdma(Option<&'static str>);
    impl Ask for WithRdma {
        fn ask_within(&mut self, r: &Request, _: Duration) -> Result<Reply, ClientError> {
            if let (Request::ParamGet { name }, Some(port)) = (r, self.0) {
                assert_eq!(name, "ko2iblnd/service");
                return Ok(Reply::Texts(vec![port.to_owned()]));
            }
            Ok(Reply::Nets(vec![NetSnapshot {
                net: "o2ib3".parse().unwrap(),
                nis: Vec::new(),
                sum: None,
                accept_from: Vec::new(),
                refused: Vec::new(),
            }]))
        }
    }
    let ports = [(None, "0xdb03060100000000"), (Some("1987\n"), "0xc307060100000000")];
    for (port, id) in ports {
        let mut node = WithRdma(port);
        let mut session = Session::new(&mut node);
        assert_eq!(lnetctl::run(&mut session, &["service-id".to_owned()]), 0);
        assert_eq!(session.out, format!("service_id:\n    value: {id}\n"));
    }
}

#[test]
fn cpts_are_shown_for_each_nid() {
    struct Cpts;
    impl Ask for Cpts {
        fn ask_within(&mut self, r: &Request, _: Duration) -> Result<Reply, ClientError> {
            let Request::CptOfNid { nids } = r else { panic!("{r:?}") };
            Ok(Reply::Cpts(vec![0; nids.len()]))
        }
    }
    let run = |line: &str| {
        let mut node = Cpts;
        let mut session = Session::new(&mut node);
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let code = lnetctl::run(&mut session, &words) & 0xff;
        (session.out, session.err, code)
    };
    let (out, err, code) = run("cpt-of-nid 10.0.0.[1-2]@tcp 10.0.0.9@o2ib");
    assert_eq!((err.as_str(), code), ("", 0));
    assert_eq!(
        out,
        "cpt-of-nid:\n- nid: 10.0.0.1@tcp\n  cpt: 0\n- nid: 10.0.0.2@tcp\n  cpt: 0\n\
         - nid: 10.0.0.9@o2ib\n  cpt: 0\n"
    );
    let (out, _, code) = run("cpt-of-nid");
    assert!(out.starts_with("cpt-of-nid") && code == 234);
    let (_, err, code) = run("cpt-of-nid foo");
    assert!(err.contains("cpt-of-nid") && code == 234, "{err}");
}

#[test]
fn lists_of_nids_are_shown_as_they_are_understood() {
    let run = |list: &str, nid: &str| {
        let mut node = Node::default();
        let mut session = Session::new(&mut node);
        let mut words = vec!["debug".to_owned(), "nidlist".to_owned(), list.to_owned()];
        words.extend((!nid.is_empty()).then(|| nid.to_owned()));
        let code = lnetctl::run(&mut session, &words) & 0xff;
        (session.out, code)
    };
    let list = "10.0.[1-3].*@tcp 5@gni";
    let parsed = "nidlist parsed to: 10.0.[1-3].[0-255]@tcp 5@gni\n";
    assert_eq!(run(list, ""), (parsed.to_owned(), 0));
    let (out, code) = run(list, "10.0.2.9@tcp");
    assert!(out.ends_with("10.0.2.9@tcp matches nidlist 10.0.[1-3].*@tcp 5@gni\n"), "{out}");
    assert_eq!(code, 0);
    let (out, _) = run(list, "10.0.4.9@tcp");
    assert!(out.ends_with("10.0.4.9@tcp does not match nidlist 10.0.[1-3].*@tcp 5@gni\n"));
    assert_eq!(run("10.0.0.[1@tcp", "").1, 234);
    assert_eq!(run(list, "foo").1, 234);
}

#[test]
fn a_peer_is_dumped_by_its_nid_alone() {
    let (out, err, code) = Node::default().run("debug peer");
    assert_eq!((out.as_str(), code), ("", 234));
    assert!(
        err.starts_with("debug:\n    - peer:\n          errno: -22\n          descr: --nid must")
    );
    let (_, err, code) = Node::default().run("debug peer --nid foo");
    assert_eq!(code, 234);
    assert!(err.contains("descr: \"badly formatted primary NID: foo\""), "{err}");
    let none = Node::refusing(1, AdminError::errno(Errno::ENOENT)).run("debug peer -k 1.2.3.4@tcp");
    assert_eq!(none.2, 254);
    assert!(none.1.contains("errno: -2\n          descr: Error"), "{}", none.1);
}

#[test]
fn options_of_drivers_that_are_not_here_are_refused_by_name() {
    for (option, named) in [("--auth-key 5", "--auth-key"), ("-T best", "--traffic-class")] {
        let mut node = Node::default();
        let (_, err, code) = node.run(&format!("net add --net tcp --if eth0 {option}"));
        assert!(code == 234 && err.contains(named) && err.contains("kfi"), "{err}");
        assert_eq!(node.asked, []);
        let mut session = Session::new(&mut node);
        session.strict = true;
        let line = format!("net add --net tcp --if eth0 {option}");
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(lnetctl::run(&mut session, &words), 0, "drivers ignore it in the original");
    }
    let long = "x".repeat(64);
    let (_, err, code) = Node::default().run(&format!("net add --net tcp --if eth0 -T {long}"));
    assert!(code == 234 && err.contains("Invalid traffic-class argument"), "{err}");
}

#[test]
fn the_old_importer_goes_on_after_errors_and_ends_with_the_last() {
    let file = fresh::path("old-api.yaml");
    let yaml = "net:\n  - net type: tcp\n    local NI(s):\n      - interfaces:\n          0: eth0\n\
                route:\n  - net: o2ib\n    gateway: 10.0.0.9@tcp\n\
                peer:\n  - primary nid: 10.0.0.2@tcp\n    seq_no: 7\n\
                discover:\n  - primary nid: 10.0.0.2@tcp\n";
    fs::write(&file, yaml).unwrap();
    let import = |nth, errno| {
        let mut node = Node::refusing(nth, AdminError::errno(errno));
        let (_, err, code) = node.run(&format!("import --old-api {}", file.display()));
        (node.asked.len(), err, code)
    };
    let (asked, err, code) = import(1, Errno::EEXIST);
    assert!(err.contains("add:\n    - net:\n") && err.contains("cannot add network: File exists"));
    // The stand-in does not answer discoveries, which is the last error.
    assert_eq!(asked, 4, "net, route, peer, and the discovery at the end: {err}");
    assert_ne!(code, 0);
    let (asked, err, _) = import(2, Errno::EEXIST);
    assert!(!err.contains("route"), "a route that is there is no mistake: {err}");
    assert_eq!(asked, 4);
    let (asked, err, _) = import(3, Errno::EEXIST);
    let document = "add:\n    - peer_ni:\n          seq_no: 7\n          errno: -17\n";
    assert!(err.contains(document) && err.contains("add peer ni operation failed"), "{err}");
    assert_eq!(asked, 4);
    fs::remove_file(&file).unwrap();
}

#[test]
fn help_with_dashes_has_a_line_for_each_command() {
    let said = |word: &str| {
        let mut daemon = Recorded::from(&Vector::read("help-no-args"));
        let mut session = Session::new(&mut daemon);
        assert_eq!(lnetctl::run(&mut session, &[word.to_owned()]), 0);
        session.out.clone()
    };
    let (plain, dashes) = (said("help"), said("--help"));
    assert!(dashes.starts_with(&plain), "{dashes}");
    for line in ["  net                add, del, show, set", "  export             "] {
        assert!(!plain.contains(line) && dashes.contains(line), "{line} in {dashes}");
    }
}

/// Answers with the timers of a node.
struct Timers(u64);

impl Ask for Timers {
    fn ask_within(&mut self, request: &Request, _: Duration) -> Result<Reply, ClientError> {
        assert_eq!(*request, Request::TimersShow);
        let timer =
            |kind: &str, nid: Option<&str>, message: Option<&str>, due_in_ms| TimerSnapshot {
                kind: kind.to_owned(),
                nid: nid.and_then(|nid| nid.parse().ok()),
                message: message.map(str::to_owned),
                due_in_ms,
            };
        let timers = vec![
            timer("announce", None, None, 0),
            timer("deadline", Some("10.0.0.2@tcp"), Some("PUT"), 4998),
            timer("discovery", Some("10.0.0.1@tcp"), None, 60_000),
        ];
        Ok(Reply::Timers { timers, total: self.0 })
    }
}

#[test]
fn timers_are_listed_with_kind_subject_and_time_left() {
    let run = |total, json| {
        let mut node = Timers(total);
        let mut session = Session::new(&mut node);
        session.json = json;
        let code = lnetctl::run(&mut session, &["debug".to_owned(), "timers".to_owned()]);
        (session.out, code)
    };
    let listed = "timers:\n    - type: announce\n      due_in_ms: 0\n    - type: deadline\n      \
                  nid: 10.0.0.2@tcp\n      message: PUT\n      due_in_ms: 4998\n    \
                  - type: discovery\n      nid: 10.0.0.1@tcp\n      due_in_ms: 60000\n";
    assert_eq!(run(3, false), (listed.to_owned(), 0));
    let (out, _) = run(5000, false);
    assert_eq!(out, format!("{listed}left_out: 4997\n"));
    let (out, _) = run(3, true);
    assert!(out.contains("\"message\":\"PUT\"") || out.contains("\"message\": \"PUT\""), "{out}");
}
