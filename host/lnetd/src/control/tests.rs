//! Each refusal says which thing, which value and what was expected, beside the errno and the text that
//! scripts know.

use clap::Parser as _;
use lnet_admin::{
    FaultDel, FaultKind, LockPage, LockSelection, NiTarget, Reply, Request, RpcDelay, RpcFaultDel,
    RpcFaults, RpcLose, RpcPart,
};
use lnet_config::{
    Interface, ModuleParameters, NetAdd, NetDel, PeerAdd, PeerDel, RouteAdd, RouteDel, Setting,
    UdspDel,
};
use lnet_types::{Net, Nid};

use super::{Control, NOT_CONFIGURED};
use crate::Options;

fn control() -> Control {
    let options = Options::parse_from(["lnetd", "--profile", "kernel", "--port", "9987"]);
    Control::new(&options, ModuleParameters::default()).unwrap()
}

fn nid(text: &str) -> Nid {
    text.parse().unwrap()
}

fn net(text: &str) -> Net {
    text.parse().unwrap()
}

/// What the daemon says to a request that it refuses.
fn reason(control: &Control, request: Request) -> String {
    let shown = format!("{request:?}");
    let refusal = control.answer(request).expect_err(&shown);
    let reason = refusal.detail.clone().unwrap_or_else(|| panic!("{shown}: {refusal}"));
    assert_ne!(reason, refusal.errno.to_string(), "{shown}: the errno alone");
    reason
}

#[test]
fn without_a_node_each_request_for_it_is_answered_with_how_to_start_one() {
    let control = control();
    for request in [
        Request::NetShow { net: None, detail: true },
        Request::PeerShow { nid: None, detail: false, from: None },
        Request::RouteShow { from: None },
        Request::RoutingShow,
        Request::StatsShow,
        Request::UdspShow,
        Request::NetDel(NetDel { net: Net::TCP, interfaces: Vec::new(), nid: None }),
        Request::Set { settings: vec![Setting::new("numa_range", 1)] },
    ] {
        assert_eq!(reason(&control, request), NOT_CONFIGURED);
    }
}

#[test]
fn each_refusal_names_the_thing_its_value_and_what_was_expected() {
    let control = control();
    control.answer(Request::LnetConfigure { all: false, large: false }).unwrap();
    let peer = |primary: &str, nids: &[&str]| {
        Request::PeerAdd(PeerAdd {
            primary: nid(primary),
            nids: nids.iter().map(|text| nid(text)).collect(),
            multi_rail: true,
            lock_primary: false,
        })
    };
    control.answer(peer("10.9.0.2@tcp", &["10.9.1.2@tcp"])).unwrap();
    let peer_del = |primary: &str| {
        let (primary, nids) = (nid(primary), Vec::new());
        Request::PeerDel(PeerDel { primary, nids, force: false })
    };
    let add = |name: &str, interface: &str| {
        let interface = Interface { name: interface.to_owned(), cpts: None };
        Request::NetAdd(NetAdd {
            net: net(name),
            interfaces: vec![interface],
            nid: None,
            cpts: None,
            tunables: Default::default(),
            lnd: Default::default(),
        })
    };
    let route =
        |hops| RouteAdd { net: net("tcp1"), gateway: nid("10.9.0.2@tcp"), hops, priority: 0 };
    let set = |name: &str, value| Request::Set { settings: vec![Setting::new(name, value)] };
    let del = |interfaces| NetDel { net: net("tcp9"), interfaces, nid: None };
    let fault =
        FaultDel { kind: FaultKind::Drop, src: nid("1.1.1.1@tcp"), dst: nid("2.2.2.2@tcp") };
    let target = NiTarget::Nid(nid("10.9.0.9@tcp"));
    for (request, expected) in [
        (
            Request::NetShow { net: Some(net("tcp9")), detail: false },
            "net tcp9: not configured, expected lo",
        ),
        (Request::NetDel(del(Vec::new())), "net tcp9: not configured"),
        (add("gni", "lo"), "net gni: no driver for it here, expected tcp or o2ib"),
        (add("tcp", "lo0"), "interface lo0: no such interface: did you mean 'lo'?"),
        (
            Request::NetSet { target, health: Some(1), conns_per_peer: None },
            "10.9.0.9@tcp: must be",
        ),
        (
            Request::PeerShow { nid: Some(nid("10.9.0.9@tcp")), detail: false, from: None },
            "10.9.0.9@tcp: must be a NID of a peer",
        ),
        (
            Request::PeerSet { target, health: Some(1), state: None },
            "10.9.0.9@tcp: must be a NID of a peer",
        ),
        (peer("0@lo", &[]), "peer 0@lo: must have NIDs of other nodes"),
        (peer("10.9.0.3@tcp", &["10.9.1.2@tcp"]), "peer 10.9.0.3@tcp: a NID of it belongs"),
        (peer_del("10.9.0.9@tcp"), "peer 10.9.0.9@tcp: not known"),
        (peer_del("10.9.1.2@tcp"), "did you mean '10.9.0.2@tcp'?"),
        (Request::RouteAdd(route(None)), "gateway 10.9.0.2@tcp"),
        (Request::RouteAdd(route(Some(500))), "hop count 500: expected 1 to 255"),
        (Request::RouteDel(RouteDel { net: net("tcp1"), gateway: nid("10.9.0.2@tcp") }), "tcp1"),
        (set("health_sensitivity", 5000), "health_sensitivity 5000: expected 0 to 1000"),
        (Request::UdspDel(UdspDel::Index(9)), "no rule has index 9"),
        (Request::FaultDel(fault), "no rule from 1.1.1.1@tcp to 2.2.2.2@tcp"),
        (
            Request::CountersReset { nid: Some(nid("10.9.0.9@tcp")), failures: false },
            "10.9.0.9@tcp: must be a NID",
        ),
        (Request::PeerDump { nid: nid("10.9.0.9@tcp") }, "no peer has the NID 10.9.0.9@tcp"),
        (
            Request::ParamGet { name: "lnet_retry_cuont".to_owned() },
            "did you mean 'lnet_retry_count'?",
        ),
    ] {
        let said = reason(&control, request);
        assert!(said.contains(expected), "{said}: expected {expected}");
    }
    control.stop(core::time::Duration::ZERO);
}

/// A directory for a target, gone afterwards.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = fresh::path(&format!("lnetd-{name}"));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }

    fn target(&self, name: &str) -> Request {
        Request::TargetAdd { target: format!("{name}=kv:{}", self.0.display()) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn states(control: &Control) -> Vec<(String, String)> {
    match control.answer(Request::TargetShow) {
        Ok(Reply::Targets(all)) => all.into_iter().map(|t| (t.name, t.state)).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn locks_of_a_daemon_are_shown_and_broken_by_their_names() {
    let (control, scratch) = (control(), Scratch::new("locks"));
    control.answer(Request::LnetConfigure { all: false, large: false }).unwrap();
    let all = Request::LockShow { which: LockSelection::All, from: None };
    let none = || Reply::Locks(LockPage { locks: Vec::new(), next: None });
    assert_eq!(control.answer(all.clone()), Ok(none()), "without a target");
    let target = format!("locks=lock:{}", scratch.0.display());
    control.answer(Request::TargetAdd { target }).unwrap();
    assert_eq!(control.answer(all), Ok(none()));
    match control.answer(Request::NamespaceShow) {
        Ok(Reply::Namespaces(spaces)) => {
            let seen: Vec<_> = spaces.iter().map(|s| (s.target.as_str(), s.locks)).collect();
            assert_eq!(seen, [("locks", 0)]);
            assert!(spaces[0].counters.contains(&("enqueues".to_owned(), 0)));
        }
        other => panic!("{other:?}"),
    }
    assert!(reason(&control, Request::LockBreak { lock: 31 }).contains("lock 0x1f"));
    let named = |from| Request::LockShow { which: LockSelection::Named("jobs/1".to_owned()), from };
    assert!(reason(&control, named(None)).contains("lock 'jobs/1': no client has or awaits"));
    assert_eq!(control.answer(named(Some(1))), Ok(none()), "given back since the page before");
}

#[test]
fn target_of_a_daemon_is_served_until_it_is_removed_or_the_node_ends() {
    let (control, scratch) = (control(), Scratch::new("served"));
    assert_eq!(reason(&control, scratch.target("kv-1")), NOT_CONFIGURED);
    control.answer(Request::LnetConfigure { all: false, large: false }).unwrap();
    assert_eq!(states(&control), []);
    control.answer(scratch.target("kv-1")).unwrap();
    assert_eq!(states(&control), [("kv-1".to_owned(), "serving".to_owned())]);
    match control.answer(Request::ServiceShow) {
        Ok(Reply::Services(all)) => {
            let names: Vec<_> = all.iter().map(|s| s.name.as_str()).collect();
            assert_eq!(names, ["target", "target_io", "target_create", "cancel"]);
            assert!(all.iter().all(|s| s.policy == "fifo"));
            assert!(all[0].posted > 0, "requests can arrive");
        }
        other => panic!("{other:?}"),
    }
    for (request, expected) in [
        (scratch.target("kv-1"), "serves it already"),
        (scratch.target("kv-2"), "process"),
        (Request::TargetAdd { target: "kv-2=osd:/srv".to_owned() }, "kind 'osd': expected kv"),
        (Request::TargetAdd { target: "kv-2=kv:srv".to_owned() }, "expected an absolute path"),
        (Request::TargetDel { name: "kv-9".to_owned() }, "target 'kv-9': not served here"),
        (Request::ExportEvict { uuid: None, nid: Some(nid("10.9.0.9@tcp")) }, "on 10.9.0.9@tcp"),
        (Request::ExportEvict { uuid: Some("c-1".to_owned()), nid: None }, "client 'c-1'"),
        (Request::ExportEvict { uuid: None, nid: None }, "expected the uuid"),
    ] {
        let said = reason(&control, request);
        assert!(said.contains(expected), "{said}: expected {expected}");
    }
    control.answer(Request::TargetDel { name: "kv-1".to_owned() }).unwrap();
    assert_eq!(states(&control), []);
    // The directory is free for another one, and for the next life of the node.
    control.answer(scratch.target("kv-1")).unwrap();
    assert!(reason(&control, Request::LnetUnconfigure).contains("targets are served: kv-1"));
    control.stop(core::time::Duration::ZERO);
    control.answer(Request::LnetConfigure { all: false, large: false }).unwrap();
    assert_eq!(states(&control), []);
    control.answer(scratch.target("kv-1")).unwrap();
    control.stop(core::time::Duration::ZERO);
}

#[test]
fn faults_of_the_request_layer_are_set_shown_and_ended_by_name() {
    let control = control();
    control.answer(Request::LnetConfigure { all: false, large: false }).unwrap();
    let target = "echo-1=echo:".to_owned();
    let early = Request::RpcDelay(RpcDelay {
        service: "target".to_owned(),
        min_s: 1,
        max_s: 2,
        percent: 100,
    });
    assert!(reason(&control, early).contains("service 'target': no service runs"));
    control.answer(Request::TargetAdd { target }).unwrap();
    let lose = |opcode: Option<&str>, count| {
        let opcode = opcode.map(str::to_owned);
        Request::RpcLose(RpcLose { opcode, part: RpcPart::Reply, count })
    };
    let delay = |service: &str, min_s, max_s, percent| {
        let service = service.to_owned();
        Request::RpcDelay(RpcDelay { service, min_s, max_s, percent })
    };
    let faults = || match control.answer(Request::RpcFaultShow) {
        Ok(Reply::RpcFaults(faults)) => faults,
        other => panic!("{other:?}"),
    };
    assert_eq!(faults(), RpcFaults { lose: Vec::new(), delay: Vec::new() });
    assert!(reason(&control, Request::RpcFaultDel(RpcFaultDel::All)).contains("no fault"));
    control.answer(lose(Some("ost_write"), 3)).unwrap();
    control.answer(lose(None, 1)).unwrap();
    control.answer(delay("target", 5, 300, 100)).unwrap();
    // Both ends move at once, in either direction.
    control.answer(delay("target", 400, 500, 50)).unwrap();
    control.answer(delay("target", 1, 2, 50)).unwrap();
    let shown = faults();
    let rules: Vec<_> =
        shown.lose.iter().map(|(n, rule, lost)| (*n, rule.opcode.as_deref(), *lost)).collect();
    assert_eq!(rules, [(1, Some("OST_WRITE"), 0), (2, None, 0)]);
    // Operations that Lustre has not.
    for (said, shown) in [("kv_put", "KV_PUT"), ("20484", "KV_LIST"), ("20100", "20100")] {
        control.answer(lose(Some(said), 1)).unwrap();
        let last = faults().lose.pop().unwrap();
        assert_eq!(last.1.opcode.as_deref(), Some(shown), "{said}");
        control.answer(Request::RpcFaultDel(RpcFaultDel::Rule(last.0))).unwrap();
    }
    let service = "target".to_owned();
    assert_eq!(shown.delay, [RpcDelay { service, min_s: 1, max_s: 2, percent: 50 }]);
    for (request, expected) in [
        (lose(Some("OST_WRIET"), 1), "did you mean OST_WRITE?"),
        (lose(None, 0), "count 0: expected 1 or more"),
        (delay("ost_oi", 1, 2, 100), "service 'ost_oi': expected one of target"),
        (delay("target", 3, 2, 100), "nrs_delay_min must not be above nrs_delay_max"),
        (delay("target", 1, 2, 101), "share 101%: expected 0 to 100%"),
        (Request::RpcFaultDel(RpcFaultDel::Rule(9)), "rule 9: not set"),
        (Request::RpcFaultDel(RpcFaultDel::Service("x".to_owned())), "service 'x': not delayed"),
    ] {
        let said = reason(&control, request);
        assert!(said.contains(expected), "{said}: expected {expected}");
    }
    // By the name that Lustre has for it.
    control.answer(delay("ost_io", 5, 300, 100)).unwrap();
    assert_eq!(faults().delay[1].service, "target_io");
    let del = RpcFaultDel::Service("ost_io".to_owned());
    control.answer(Request::RpcFaultDel(del)).unwrap();
    control.answer(Request::RpcFaultDel(RpcFaultDel::Rule(1))).unwrap();
    assert_eq!((faults().lose.len(), faults().delay.len()), (1, 1));
    control.answer(Request::RpcFaultDel(RpcFaultDel::All)).unwrap();
    assert_eq!(faults(), RpcFaults { lose: Vec::new(), delay: Vec::new() });
    control.stop(core::time::Duration::ZERO);
}
