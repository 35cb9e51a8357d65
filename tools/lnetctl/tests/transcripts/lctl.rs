//! `lctl`: its recorded outputs from rebuilt state, and what it asks.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use core::num::NonZeroU32;
use std::time::Duration;

use lnet_admin::{
    AdminError, Ask, ClientError, Contact, Contacted, DriverLine, DriverPage, FaultAction,
    FaultKind, FaultRule, FaultSnapshot, KindCounts, NetSnapshot, NiSnapshot, ParamInfo, Reply,
    Request, RoutePage, RouteSnapshot,
};
use lnet_types::{Errno, Nid};
use lnetctl::Session;

use super::vector::Vector;

/// Answers each request with what the function says.
struct Node<F>(F, Vec<Request>);

impl<F: FnMut(&Request) -> Result<Reply, AdminError> + Send> Ask for Node<F> {
    fn ask_within(&mut self, request: &Request, _: Duration) -> Result<Reply, ClientError> {
        self.1.push(request.clone());
        (self.0)(request).map_err(ClientError::from)
    }
}

/// Standard output, standard error, the exit code, and what was asked.
fn lctl(
    line: &str,
    net: Option<&str>,
    answer: impl FnMut(&Request) -> Result<Reply, AdminError> + Send,
) -> (String, String, i32, Vec<Request>) {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let mut node = Node(answer, Vec::new());
    let mut session = Session::lctl(&mut node);
    if let Some(net) = net {
        assert_eq!(lnetctl::run(&mut session, &["network".to_owned(), net.to_owned()]), 0);
    }
    let code = lnetctl::run(&mut session, &words).abs() & 0xff;
    let (out, err) = (core::mem::take(&mut session.out), core::mem::take(&mut session.err));
    (out, err, code, node.1)
}

/// A recording is printed from this answer.
fn recorded(name: &str, answer: impl Fn() -> Result<Reply, AdminError> + Sync) {
    let vector = Vector::read(name);
    let line = vector.command.strip_prefix("lctl ").unwrap();
    let (net, line) = match line.strip_prefix("--net tcp ") {
        Some(rest) => (Some("tcp"), rest),
        None => (None, line),
    };
    let (out, err, exit, _) = lctl(line, net, |_| answer());
    assert_eq!((out, err, exit), (vector.out.clone(), vector.err.clone(), vector.exit), "{name}");
}

fn nid(text: &str) -> Nid {
    text.parse().unwrap()
}

#[test]
fn nids_are_listed_as_recorded() {
    let net = |name: &str, nids: &[&str]| NetSnapshot {
        net: name.parse().unwrap(),
        nis: nids
            .iter()
            .map(|n| NiSnapshot { nid: nid(n), up: true, interface: None, detail: None })
            .collect(),
        sum: None,
        accept_from: Vec::new(),
        refused: Vec::new(),
    };
    let lo = || net("lo", &["0@lo"]);
    recorded("lo-only-list_nids", || Ok(Reply::Nets(vec![lo()])));
    let both = || vec![lo(), net("tcp", &["10.77.0.2@tcp", "10.77.1.2@tcp"])];
    recorded("list_nids", || Ok(Reply::Nets(both())));
    let (out, ..) = lctl("list_nids all", None, |_| Ok(Reply::Nets(both())));
    assert!(out.starts_with("0@lo\n"));
    // Scripts look for the last line of what the original says.
    let (out, err, code, _) = lctl("list_nids", None, |_| Err(AdminError::errno(Errno::ENETDOWN)));
    let recorded = Vector::read("unconf-list_nids");
    assert_eq!((out, code), (recorded.out, recorded.exit));
    assert!(recorded.err.ends_with(&err) && err.contains("IOC_LIBCFS_GET_NI error 100"), "{err}");
}

#[test]
fn pings_are_answered_as_recorded() {
    let contacted = |outcome| Ok(Reply::Contacted(vec![Contacted { nid: Nid::ANY, outcome }]));
    recorded("lctl-ping", || {
        contacted(Ok(Contact {
            primary: nid("10.77.0.3@tcp"),
            multi_rail: true,
            pid: 12345,
            nids: vec![nid("10.77.0.3@tcp"), nid("10.77.1.3@tcp")],
        }))
    });
    recorded("lctl-ping-bad", || contacted(Err(AdminError::errno(Errno::EHOSTUNREACH))));
    for (line, code, text) in [
        ("ping foo", 22, "Invalid PID argument \"foo\""),
        ("ping 10.0.0.1@tcp 121", 1, "Timeout 121 is to large"),
        ("ping 10.0.0.1@tcp x", 1, "Can't parse timeout 'x'"),
    ] {
        let (_, err, got, asked) = lctl(line, None, |_| Ok(Reply::Done));
        assert_eq!((got, asked.len()), (code, 0), "{line}");
        assert!(err.contains(text), "{line}: {err}");
    }
    let (.., asked) =
        lctl("ping 12345-10.0.0.1@tcp 7", None, |_| contacted(Err(AdminError::errno(Errno::EIO))));
    let [Request::Ping(ping)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!((ping.nids.as_slice(), ping.timeout_ms), (&[nid("10.0.0.1@tcp")][..], Some(7000)));
}

#[test]
fn records_of_the_driver_are_listed_as_recorded() {
    let page = |lines| Ok(Reply::Driver(DriverPage { lines, next: None }));
    recorded("lctl-interface_list", || {
        page(vec![DriverLine::Interface {
            addr: "10.77.0.2".parse().unwrap(),
            prefix: Some(24),
            peers: 0,
            connections: 3,
        }])
    });
    // The recorded ones, each line rebuilt from its words.
    for name in ["lctl-conn_list", "lctl-peer_list"] {
        let vector = Vector::read(name);
        let lines = || vector.out.lines().filter(|l| !l.contains("[0]0.0.0.0")).map(driver_line);
        let (out, _, code, _) =
            lctl(name.strip_prefix("lctl-").unwrap(), Some("tcp"), |_| page(lines().collect()));
        let expected: Vec<_> = vector.out.lines().filter(|l| !l.contains("[0]0.0.0.0")).collect();
        assert_eq!((out.lines().collect::<Vec<_>>(), code), (expected, 0), "{name}");
    }
    for (line, none) in [
        ("peer_list", "<no peers>\n"),
        ("conn_list", "<no connections>\n"),
        ("interface_list", "<no interfaces>\n"),
    ] {
        let (out, ..) = lctl(line, Some("tcp"), |_| page(Vec::new()));
        assert_eq!(out, none);
        let (_, err, code, _) = lctl(line, None, |_| page(Vec::new()));
        assert_eq!((err.contains("'--net <network>'"), code), (true, 1), "{err}");
        let (_, err, code, _) = lctl(line, Some("o2ib"), |_| page(Vec::new()));
        assert_eq!((err.contains("not compatible with o2ib NAL"), code), (true, 1), "{err}");
    }
}

fn driver_line(line: &str) -> DriverLine {
    let mut words = line.split_whitespace();
    let (pid, nid) = words.next().unwrap().split_once('-').unwrap();
    let (nid, pid) = (nid.parse().unwrap(), pid.parse().unwrap());
    let (head, addr) = words.next().unwrap().split_once("->").unwrap();
    let (mark, own) = head.split_once(']').unwrap();
    let (own, addr) = (own.parse().unwrap(), addr.parse().unwrap());
    let word = words.next().unwrap();
    if let Some(n) = word.strip_prefix('#') {
        return DriverLine::Peer { nid, pid, own, addr, connections: n.parse().unwrap() };
    }
    let (tx, rx) = word.split_once('/').unwrap();
    DriverLine::Connection {
        nid,
        pid,
        kind: mark.chars().next().unwrap(),
        own,
        addr,
        buffers: (tx.parse().unwrap(), rx.parse().unwrap()),
        nagle: words.next() == Some("nagle"),
    }
}

fn fault(src: &str, dst: &str, kinds: u32, when: (u32, u32), hits: (u32, u32)) -> FaultSnapshot {
    FaultSnapshot {
        rule: FaultRule {
            src: nid(src),
            dst: nid(dst),
            local: None,
            portals: 0,
            kinds,
            rate: when.0,
            interval_s: when.1,
            times: NonZeroU32::new(0),
            action: FaultAction::Drop { random: false, all: false, errors: 0 },
        },
        matched: hits.1,
        acted: hits.0,
        kinds: KindCounts { get: hits.0, ..KindCounts::default() },
    }
}

/// The recorded version prints the heading on standard error and ends with 22; so it was not before
/// and was not meant (K-8, DEC-33).
#[test]
fn rules_are_listed_as_recorded_but_for_stream_and_exit_code() {
    let any = "255.255.255.255@tcp";
    let rules = |hits| {
        vec![
            fault("10.77.0.2@tcp", any, 2, (1000, 0), (0, 0)),
            fault(any, "10.77.1.3@tcp", 4, (0, 3), hits),
            fault(any, "10.77.0.3@tcp", 0xf, (4, 0), (0, 0)),
        ]
    };
    for (name, hits) in [("lctl-net_drop_list", (0, 0)), ("lctl-net_drop_list-hits", (1, 4))] {
        let vector = Vector::read(name);
        let (out, err, code, _) = lctl("net_drop_list", None, |_| Ok(Reply::Faults(rules(hits))));
        assert_eq!(
            (out, err, code),
            (format!("LNet drop rules:\n{}", vector.out), String::new(), 0)
        );
    }
    let (out, _, code, _) = lctl("net_drop list", None, |_| Ok(Reply::Faults(Vec::new())));
    assert_eq!((out.as_str(), code), ("LNet drop rules:\nfound total 0\n", 0));
    let mut delay = fault(any, "10.77.0.3@tcp", 0xf, (1, 0), (0, 0));
    delay.rule.action = FaultAction::Delay { latency_s: 1 };
    let (out, ..) = lctl("net_delay_list", None, |_| Ok(Reply::Faults(vec![delay])));
    assert_eq!(out, format!("LNet delay rules:\n{}", Vector::read("lctl-net_delay_list").out));
}

#[test]
fn rules_are_asked_for_and_refused_as_recorded() {
    for name in [
        "err-lctl-net_drop_add-noarg",
        "err-lctl-net_drop_add-noattr",
        "err-lctl-net_drop_add-bad-nid",
    ] {
        recorded(name, || panic!("nothing is asked"));
    }
    for name in [
        "lctl-net_drop_add",
        "lctl-net_drop_add-err",
        "lctl-net_drop_add-random",
        "lctl-net_drop_del",
        "lctl-net_drop_del-all",
        "lctl-net_delay_add",
        "lctl-net_delay_del",
    ] {
        recorded(name, || Ok(Reply::Done));
    }
    let (.., asked) =
        lctl("net_delay_add -s *@tcp -d 10.0.0.1@tcp -r 1 -l 2", None, |_| Ok(Reply::Done));
    let [Request::FaultAdd(rule)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(rule.action, FaultAction::Delay { latency_s: 2 });
    let (.., asked) = lctl("net_delay reset", None, |_| Ok(Reply::Done));
    assert_eq!(asked, [Request::FaultReset(FaultKind::Delay)]);
    let (_, err, code, _) = lctl("net_drop_add --bogus", None, |_| Ok(Reply::Done));
    assert_eq!((err.as_str(), code), ("error: net_drop_add: unrecognized option '--bogus'\n", 1));
    let refused = || Err(AdminError::errno(Errno::ENOENT));
    let (out, _, code, _) = lctl("net_drop_del -a", None, |_| refused());
    assert_eq!(
        (out.as_str(), code),
        ("failed to delete drop rule: No such file or directory\n", 2)
    );
    let (out, _, code, asked) = lctl("fail _all_ 3", None, |_| Ok(Reply::Done));
    assert_eq!((out.as_str(), code), ("Failing _all_\n", 0));
    assert_eq!(asked, [Request::PeerFail { nid: Nid::ANY, times: Some(3) }]);
    let (out, ..) = lctl("fail 10.0.0.1@tcp 0", None, |_| Ok(Reply::Done));
    assert_eq!(out, "Unfailing 10.0.0.1@tcp\n");
}

#[test]
fn routes_are_listed_as_recorded_and_added_for_the_network_that_is_set() {
    let page = |routes| Ok(Reply::Routes(RoutePage { routes, next: None }));
    let route = RouteSnapshot {
        net: "tcp1".parse().unwrap(),
        gateway: nid("10.77.0.4@tcp"),
        hops: None,
        priority: 0,
        up: true,
        single_hop: false,
    };
    for name in ["route-lctl-route_list", "route-lctl-show_route"] {
        recorded(name, || page(vec![route]));
    }
    recorded("lctl-route_list", || page(Vec::new()));
    let (.., code, asked) = lctl("add_route 10.0.0.9@tcp 2 5", Some("tcp7"), |_| Ok(Reply::Done));
    let [Request::RouteAdd(add)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(
        (add.net.to_string(), add.hops, add.priority, code),
        ("tcp7".to_owned(), Some(2), 5, 0)
    );
    let (_, err, code, asked) = lctl("add_route 10.0.0.9@tcp 0", Some("tcp7"), |_| Ok(Reply::Done));
    assert_eq!((asked.len(), code), (0, 1), "{err}");
    assert!(err.contains("hop count '0': expected 1 to 255"), "{err}");
    let (_, err, code, _) = lctl("del_route 10.0.0.9@tcp", None, |_| Ok(Reply::Done));
    assert_eq!((err.contains("'--net <network>'"), code), (true, 1));
}

#[test]
fn the_nearest_nid_is_printed() {
    let line = "which_nid 10.0.0.1@tcp 10.0.0.2@tcp 10.0.0.3@tcp";
    let far = |far: [Option<(u32, u32)>; 3]| move |_: &Request| Ok(Reply::Distances(far.to_vec()));
    let (out, ..) = lctl(line, None, far([None, Some((2, 0)), Some((1, 9))]));
    assert_eq!(out, "10.0.0.3@tcp\n");
    let (out, ..) = lctl(line, None, far([Some((1, 3)), Some((1, 2)), Some((1, 2))]));
    assert_eq!(out, "10.0.0.2@tcp\n", "of equals the first");
    let (_, err, code, _) = lctl(line, None, far([None; 3]));
    assert_eq!((err.as_str(), code), ("No reachable NID\n", 1));
}

#[test]
fn parameters_are_read_and_set_by_name_and_pattern() {
    let param = |name: &str, writable| ParamInfo { name: name.to_owned(), writable };
    let answer = |request: &Request| match request {
        Request::ParamList => Ok(Reply::Params(vec![
            param("lnet_retry_count", true),
            param("lnet_transaction_timeout", true),
            param("peers", false),
        ])),
        Request::ParamGet { name } if name == "peers" => {
            Ok(Reply::Texts(vec!["nid refs\na 1\n".to_owned()]))
        }
        Request::ParamGet { .. } => Ok(Reply::Texts(vec!["2\n".to_owned()])),
        Request::ParamSet { value, .. } if value == "x" => Err(AdminError::errno(Errno::EINVAL)),
        _ => Ok(Reply::Done),
    };
    let out = |line: &str| lctl(line, None, answer).0;
    assert_eq!(out("get_param lnet_retry_count"), "lnet_retry_count=2\n");
    assert_eq!(out("get_param -n lnet_retry_count"), "2\n");
    assert_eq!(out("get_param peers"), "peers=\nnid refs\na 1\n");
    assert_eq!(out("get_param -n peers"), "nid refs\na 1\n");
    assert_eq!(out("get_param -N lnet_*"), "lnet_retry_count\nlnet_transaction_timeout\n");
    assert_eq!(out("list_param -F"), "lnet_retry_count=\nlnet_transaction_timeout=\npeers\n");
    assert_eq!(out("list_param -w peers"), "");
    assert_eq!(out("set_param lnet_retry_count=3"), "lnet_retry_count=3\n");
    assert_eq!(out("set_param -n lnet_retry_count=3"), "");
    assert_eq!(out("get_param -H lnet_retry_count"), "lnet_retry_count=\n2\n");
    assert_eq!(
        out("get_param -y lnet_retry_count peers"),
        "lnet_retry_count: 2\npeers: |\n  nid refs\n  a 1\n"
    );
    assert_eq!(out("list_param -t -p -o *"), "lnet_retry_count\nlnet_transaction_timeout\n");
    let file = fresh::path("set-param");
    std::fs::write(&file, "# two\nlnet_retry_count: 4\nlnet_transaction_timeout: 9\n").unwrap();
    assert_eq!(
        out(&format!("set_param -F {}", file.display())),
        "lnet_retry_count=4\nlnet_transaction_timeout=9\n"
    );
    std::fs::remove_file(&file).unwrap();
    let (_, err, code, _) = lctl("set_param -P lnet_retry_count=4", None, answer);
    assert!(code == 22 && err.contains("--permanent"), "{err}");
    let (_, err, code, _) = lctl("get_param nothing", None, answer);
    let text = "error: get_param: param_path 'nothing': No such file or directory\n";
    assert_eq!((err.as_str(), code), (text, 2));
    let (_, err, code, _) = lctl("set_param lnet_retry_count=x", None, answer);
    let text = "error: set_param: setting lnet_retry_count=x: Invalid argument\n";
    assert_eq!((err.as_str(), code), (text, 22));
}

#[test]
fn a_parameter_without_a_value_hides_none_of_those_behind_it() {
    let param = |name: &str| ParamInfo { name: name.to_owned(), writable: false };
    let answer = |request: &Request| match request {
        Request::ParamList => Ok(Reply::Params(vec![param("nrs_delay_min"), param("peers")])),
        Request::ParamGet { name } if name == "peers" => Ok(Reply::Texts(vec!["2\n".to_owned()])),
        _ => Err(AdminError::errno(Errno::ENODEV)),
    };
    let (out, err, code, _) = lctl("get_param *", None, answer);
    assert_eq!((out.as_str(), code), ("peers=2\n", 19));
    assert_eq!(err, "error: get_param: reading 'nrs_delay_min': No such device\n");
}

#[test]
fn a_gateway_is_reported_as_it_was_seen() {
    let (out, err, code, asked) = lctl("set_route 10.0.0.9@tcp down", None, |_| Ok(Reply::Done));
    assert_eq!((out.as_str(), err.as_str(), code), ("", "", 0));
    let gateway = nid("10.0.0.9@tcp");
    assert_eq!(asked, [Request::PeerNotify { nid: gateway, up: false, ago_s: 0 }]);
    let line = "set_route 10.0.0.9@tcp up 2000-01-01-00:00:00";
    let (.., asked) = lctl(line, Some("tcp1"), |_| Ok(Reply::Done));
    let [Request::PeerNotify { up: true, ago_s, .. }] = asked[..] else { panic!("{asked:?}") };
    assert!(ago_s > 800_000_000, "{ago_s}");
    for (line, code, text) in [
        ("set_route 10.0.0.9@tcp sideways", 1, "'sideways': expected up or down"),
        ("set_route foo up", 1, "gateway NID \"foo\""),
        ("set_route 10.0.0.9@tcp up yesterday", 1, "time 'yesterday': expected YYYY-MM-DD"),
        ("set_route 10.0.0.9@tcp up 9999-01-01-00:00:00", 22, "expected one that is over"),
    ] {
        let (_, err, got, asked) = lctl(line, None, |_| Ok(Reply::Done));
        assert_eq!((got, asked.len()), (code, 0), "{line}: {err}");
        assert!(err.contains(text), "{line}: {err}");
    }
    let (.., code, _) = lctl("set_route 10.0.0.9@tcp", None, |_| Ok(Reply::Done));
    assert_eq!(code, 22);
}

#[test]
fn connections_are_closed_to_one_peer_of_the_network_or_to_all() {
    let net = "tcp".parse().unwrap();
    let one = Some(nid("10.0.0.3@tcp"));
    for (line, nid, forget) in [
        ("disconnect", None, false),
        ("disconnect 10.0.0.3@tcp", one, false),
        ("del_peer _all_", None, true),
        ("del_peer 10.0.0.3@tcp", one, true),
    ] {
        let (out, err, code, asked) = lctl(line, Some("tcp"), |_| Ok(Reply::Done));
        assert_eq!((out.as_str(), err.as_str(), code), ("", "", 0), "{line}");
        assert_eq!(asked, [Request::DriverDisconnect { net, nid, forget }], "{line}");
    }
    for (line, net, text) in [
        ("disconnect", None, "'--net <network>'"),
        ("del_peer", Some("o2ib"), "not compatible with o2ib NAL"),
        ("disconnect 10.0.0.3@tcp1", Some("tcp"), "10.0.0.3@tcp1 is not on tcp"),
        ("del_peer foo", Some("tcp"), "Can't parse NID foo"),
    ] {
        let (_, err, code, asked) = lctl(line, net, |_| Ok(Reply::Done));
        assert_eq!((code, asked.len()), (1, 0), "{line}");
        assert!(err.contains(text), "{line}: {err}");
    }
    let gone = || Err(AdminError::errno(Errno::ENOENT));
    let (_, err, code, _) = lctl("del_peer 10.0.0.3@tcp", Some("tcp"), |_| gone());
    assert_eq!((err.as_str(), code), ("del_peer: No such file or directory\n", 2));
}
