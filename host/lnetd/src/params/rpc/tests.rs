//! Texts of a real connection, compared with what kernel nodes print: the same lines in the same order,
//! the same columns. Values differ.

use std::time::Duration;

use lnet_rt::NodeBuilder;
use lustre_rt::{
    Answer, Buffers, Call, ConnectFlags2, Handler, ImportConfig, ImportKind, Opcode, Past, Portal,
    Rpc, RpcNode, Served, ServiceConfig, TargetConfig,
};

use super::*;

/// Answers everything.
struct Yes;

impl Handler for Yes {
    fn serve(&mut self, served: Served, rpc: &mut Rpc<'_, '_>) {
        rpc.reply(served.id, Answer::default());
    }
}

/// The output of a command on a kernel node, without the command.
fn fixture(name: &str) -> String {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/parameters/ptlrpc");
    let text = std::fs::read_to_string(format!("{dir}/{name}.txt")).unwrap();
    text.lines().filter(|l| !l.starts_with(['$', '#'])).map(|l| format!("{l}\n")).collect()
}

/// The part of it that is one parameter, without its name.
fn part(text: &str, name: &str) -> String {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(name));
    let first = lines.next().and_then(|line| line.split_once('=')).unwrap().1;
    let named = |line: &&str| !line.starts_with(|c: char| c.is_alphabetic()) || !line.contains("=");
    let rest: String = lines.take_while(named).map(|line| format!("{line}\n")).collect();
    if first.is_empty() { rest } else { format!("{first}\n{rest}") }
}

/// A line without its values: words and columns stay.
fn shape(line: &str) -> String {
    let line = match line.split_once("(at ") {
        Some((before, after)) => {
            let (_, after) = after.split_once("ago)").unwrap();
            format!("{before}(at WHEN ago){after}")
        }
        None => line.to_owned(),
    };
    if let Some((key, value)) = line.split_once(": ")
        && !line.contains("cur")
        && !value.starts_with(['{', '['])
    {
        // A key of an indented document, or of a line; of the value the unit stays.
        let unit = value.rsplit_once(' ').map_or("", |(_, unit)| unit);
        let unit = if unit.chars().all(char::is_alphabetic) { unit } else { "" };
        return format!("{} {unit}", named(key));
    }
    let mut out = String::new();
    let mut column = 0;
    for c in line.chars() {
        if c == ' ' || c.is_ascii_digit() && line.contains("cur") {
            column += 1;
            continue;
        }
        if column > 0 {
            out.push_str(&format!("<{column}>"));
        }
        column = 0;
        out.push(c);
    }
    let list = |open: char| out.split_once(open).map(|(before, _)| format!("{before}{open}"));
    match (line.contains("connects:"), list('[')) {
        (true, _) => "nid: { connects, replied, uptodate, sec_ago }".to_owned(),
        (_, Some(list)) if !line.contains("import_flags") => list,
        _ => out.replace(char::is_numeric, ""),
    }
}

/// Names that are addresses, or uuids, are all alike.
fn named(key: &str) -> String {
    if key.trim_start().starts_with('"') { "NID".to_owned() } else { key.to_owned() }
}

fn shapes(text: &str) -> Vec<String> {
    text.lines().map(shape).collect()
}

struct Pair {
    server: RpcNode,
    client: RpcNode,
    import: lustre_rt::Import,
    _nodes: [lnet_rt::NodeHandle; 2],
}

/// A client that is connected to a target, both with these flags.
fn pair(host: u8, port: u16, flags: u64) -> Pair {
    let data = ConnectData {
        flags: ConnectFlags::from_bits_retain(flags),
        flags2: ConnectFlags2::REP_MBITS,
        brw_size: 4 << 20,
        cksum_types: lustre_rt::ChecksumKinds::from_bits_retain(0x32),
        maxbytes: 1 << 62,
        version: 2 << 24 | 17 << 16 | 57 << 8 | 62,
        ..ConnectData::default()
    };
    let nid = |n: u8| format!("127.{host}.0.{n}");
    let start = |n| NodeBuilder::new().tcp(nid(n).parse().unwrap(), port).start().unwrap();
    let nodes = [start(1), start(2)];
    let server = RpcNode::start(&nodes[0], Default::default()).unwrap();
    let (request, reply) = ImportKind::Osc.portals();
    let target = TargetConfig {
        uuid: "lfs-OST0000_UUID".to_owned(),
        offer: data,
        replayable: true,
        past: Past::default(),
    };
    let service = ServiceConfig::new("ost_io", request.0, reply.0, Portal::OST_BULK.0);
    server.serve(vec![target], vec![service], Yes).unwrap();
    let client = RpcNode::start(&nodes[1], Default::default()).unwrap();
    let import = client
        .import(ImportConfig {
            kind: ImportKind::Osc,
            target: "lfs-OST0000_UUID".to_owned(),
            client: "21e6650b-78f6-4d3a-956b-d7b77f4e3140".to_owned(),
            nids: vec![format!("{}@tcp", nid(1)).parse().unwrap()],
            wanted: data,
        })
        .unwrap();
    import.call(call()).unwrap().blocking().0.unwrap();
    Pair { server, client, import, _nodes: nodes }
}

/// An operation of a program's own.
fn call() -> Call {
    let mut call = Call::new(Opcode(20_001), Buffers::new());
    call.limit = Some(Duration::from_secs(20));
    call
}

/// PA-005, PA-158: what the daemon logs of both ends.
#[test]
fn an_eviction_is_logged_with_client_and_reason_and_so_is_the_way_back() {
    let pair = pair(95, 7995, 0xa042_7af2_e344_0038);
    let (tx, lines) = std::sync::mpsc::channel();
    for (node, side) in [(&pair.server, "server"), (&pair.client, "client")] {
        let tx = tx.clone();
        // The last lines may come when no reader is left.
        let log = move |_: &str, line: &str| drop(tx.send(format!("{side}: {line}")));
        node.log(log).unwrap();
    }
    let export = pair.server.exports().unwrap()[0].id;
    pair.server.with(move |rpc| rpc.evict(export)).unwrap();
    // The first request after it learns of it, and the next is on a new connection.
    let _evicted = pair.import.call(call()).unwrap().blocking();
    pair.import.call(call()).unwrap().blocking().0.unwrap();
    let lines: Vec<String> = lines.try_iter().collect();
    let client = "21e6650b-78f6-4d3a-956b-d7b77f4e3140";
    for line in [
        format!("server: client {client} was evicted: ordered"),
        "client: lfs-OST0000_UUID: connection to 127.95.0.1@tcp lost; calls wait for a new one"
            .to_owned(),
        "client: Connection restored to lfs-OST0000_UUID (at 127.95.0.1@tcp)".to_owned(),
    ] {
        assert!(lines.contains(&line), "{line}: {lines:#?}");
    }
}

#[test]
fn import_state_and_timeouts_are_laid_out_as_on_kernel_nodes() {
    let pair = pair(93, 7993, 0xa042_7af2_e344_0038);
    let (view, now) =
        pair.client.inspect(|ptlrpc, now| (ptlrpc.import_views().remove(0), now)).unwrap();
    let clock = Clock { now, wall: 1_795_240_688 };
    let recorded = fixture("import-disconnected");
    let theirs = part(&recorded, "osc.lfs-OST0000-osc-ff1e14b01fd2f800.import");
    // What it moved in bulk is no matter of the request layer.
    let theirs = theirs.split("    read_data_averages").next().unwrap();
    assert_eq!(shapes(&import("lfs-OST0000-osc-1", &view, &clock)), shapes(theirs));

    let theirs = part(&fixture("osc-state-history"), "osc.lfs-OST0000");
    let ours = state(&view, &clock);
    assert_eq!(shapes(&ours), shapes(&theirs)[..4], "{ours}");
    assert!(ours.starts_with("current_state: FULL\nstate_history:\n - [ 17952406"), "{ours}");
    assert!(ours.ends_with(", FULL ]\n"), "{ours}");

    let theirs = part(&fixture("timeouts-after-early-reply"), "osc.lfs-OST0000");
    let theirs: Vec<_> = shapes(&theirs)[..3].to_vec();
    assert_eq!(shapes(&timeouts(&view, &clock)), theirs);
}

#[test]
fn exports_and_services_are_laid_out_as_on_kernel_nodes() {
    let pair = pair(94, 7994, 0xa042_7af2_e344_0038);
    let (all, services, now) = pair
        .server
        .inspect(|ptlrpc, now| (ptlrpc.export_views(), ptlrpc.service_views(), now))
        .unwrap();
    let theirs =
        part(&fixture("exports-on-server"), "obdfilter.lfs-OST0000.exports.10.78.0.11@tcp.export");
    // Space promises are the target's.
    let theirs = theirs.split("    grant:").next().unwrap();
    assert_eq!(shapes(&exports(all.iter())), shapes(theirs));
    let clock = Clock { now, wall: 1_795_240_688 };
    let theirs = part(&fixture("timeouts-ost-io-after-early-reply"), "ost.OSS.ost_io.timeouts");
    assert_eq!(shapes(&service_timeouts(&services[0], &clock)), shapes(&theirs));
}

#[test]
fn recovery_of_a_target_is_laid_out_as_on_kernel_nodes() {
    let target = |recovery| TargetView {
        id: 1.into(),
        uuid: "kv-1".to_owned(),
        instance: 2,
        failed_over: false,
        clients: 2,
        last_transno: 7,
        committed: 7,
        uncommitted: 0,
        recovery,
    };
    let clock = Clock { now: Instant::from_secs(1000), wall: 5000 };
    let stage = |stage| lustre_rt::RecoveryView {
        stage,
        clients: 2,
        connected: 0,
        evicted: 0,
        missing: Vec::new(),
        left: None,
        since: Duration::from_secs(40),
    };
    let waiting = recovery(&target(Some(stage(RecoveryStage::Waiting))), &clock);
    assert_eq!(
        waiting,
        part(&fixture("recovery-status-during"), "mdt.lfs-MDT0000.recovery_status")
    );
    let outcome = lustre_rt::RecoveryOutcome {
        after: Duration::from_secs(3),
        clients: 2,
        recovered: 2,
        replayed: 6,
        last_transno: 9,
        ..Default::default()
    };
    let done = recovery(&target(Some(stage(RecoveryStage::Done(outcome)))), &clock);
    let theirs = part(&fixture("recovery-status-after"), "mdt.lfs-MDT0000.recovery_status");
    assert_eq!(shapes(&done), shapes(&theirs));
    assert!(done.contains("recovery_start: 4960\nrecovery_duration: 3\ncompleted_clients: 2/2\n"));
    assert_eq!(recovery(&target(None), &clock), "status: INACTIVE\n");
}

/// The daemon's own way to the parameters, with a target that has no clients.
mod of_a_daemon {
    use clap::Parser as _;
    use lnet_admin::{Reply, Request};
    use lnet_config::ModuleParameters;
    use lnet_types::Errno;

    use crate::Options;
    use crate::control::Control;
    use crate::params;

    struct Served(Control, std::path::PathBuf);

    impl Served {
        fn start(name: &str) -> Self {
            let options = Options::parse_from(["lnetd"]);
            let control = Control::new(&options, ModuleParameters::default()).unwrap();
            control.answer(Request::LnetConfigure { all: false, large: false }).unwrap();
            let dir = fresh::path(&format!("params-{name}"));
            let target = format!("kv-1=kv:{}", dir.display());
            control.answer(Request::TargetAdd { target }).unwrap();
            Self(control, dir)
        }

        fn get(&self, name: &str) -> Result<String, Errno> {
            params::get(&self.0, name).map_err(|e| e.errno)
        }

        fn set(&self, name: &str, value: &str) -> Result<(), Errno> {
            params::set(&self.0, name, value).map_err(|e| e.errno)
        }
    }

    impl Drop for Served {
        fn drop(&mut self) {
            self.0.stop(core::time::Duration::ZERO);
            let _ = std::fs::remove_dir_all(&self.1);
        }
    }

    #[test]
    fn locks_of_targets_are_counted_under_the_names_of_their_namespaces() {
        let served = Served::start("namespaces");
        for (kind, dir) in [("ost", "filter-t-ost"), ("lock", "lock-t-lock")] {
            let path = served.1.join(format!("t-{kind}"));
            let target = format!("t-{kind}={kind}:{}", path.display());
            served.0.answer(Request::TargetAdd { target }).unwrap();
            let names: Vec<_> = params::list_all(&served.0).into_iter().map(|p| p.name).collect();
            for file in ["lock_count", "resource_count", "lock_timeouts", "pool.granted"] {
                let name = format!("ldlm.namespaces.{dir}.{file}");
                assert!(names.contains(&name), "{name}: {names:?}");
                assert_eq!(served.get(&name).unwrap(), "0\n", "{name}");
                assert_eq!(served.set(&name, "1"), Err(Errno::EACCES));
            }
            let contended = served.get(&format!("ldlm.namespaces.{dir}.contended_locks"));
            assert_eq!(contended.unwrap(), "16\n");
            let volume = served.get(&format!("ldlm.namespaces.{dir}.pool.server_lock_volume"));
            assert!(volume.unwrap().trim().parse::<u64>().unwrap() > 0);
        }
        // Scripts find object targets by the name that kernel nodes have for them.
        assert_eq!(served.get("obdfilter.t-ost.num_exports").unwrap(), "0\n");
        assert_eq!(served.get("lock.t-lock.num_exports").unwrap(), "0\n");
        // One without locks has none.
        assert_eq!(served.get("ldlm.namespaces.kv-kv-1.lock_count"), Err(Errno::ENOENT));
        served.0.stop(core::time::Duration::ZERO);
        assert_eq!(served.get("ldlm.namespaces.filter-t-ost.lock_count"), Err(Errno::ENOENT));
    }

    #[test]
    fn parameters_come_with_what_they_are_about_and_go_with_it() {
        let served = Served::start("list");
        let names: Vec<_> = params::list_all(&served.0).into_iter().map(|p| p.name).collect();
        for name in [
            "at_min",
            "kv.kv-1.num_exports",
            "kv.kv-1.recovery_status",
            "ost.OSS.target.timeouts",
            "ost.OSS.target.nrs_delay_min",
        ] {
            assert!(names.iter().any(|there| there == name), "{name}: {names:?}");
        }
        assert_eq!(served.get("kv.kv-1.num_exports").unwrap(), "0\n");
        assert_eq!(served.get("kv.kv-1.recovery_status").unwrap(), "status: INACTIVE\n");
        assert!(served.get("ost.OSS.target.timeouts").unwrap().starts_with("   service : cur "));
        assert_eq!(served.set("kv.kv-1.num_exports", "1"), Err(Errno::EACCES));
        served.0.answer(Request::TargetDel { name: "kv-1".to_owned() }).unwrap();
        assert_eq!(served.get("kv.kv-1.num_exports"), Err(Errno::ENOENT));
        served.0.stop(core::time::Duration::ZERO);
        assert_eq!(served.get("ost.OSS.target.timeouts"), Err(Errno::ENOENT));
        assert_eq!(params::list_all(&served.0).len(), params::list().len());
    }

    #[test]
    fn policies_are_set_by_parameters_and_by_the_command_alike() {
        let served = Served::start("nrs");
        let p = |name: &str| format!("ost.OSS.target.{name}");
        assert_eq!(served.get(&p("nrs_policies")).unwrap(), "fifo reg\nfifo hp\n");
        // P-120, each error with its number.
        assert_eq!(served.set(&p("nrs_delay_min"), "7"), Err(Errno::ENODEV));
        assert_eq!(served.get(&p("nrs_delay_min")), Err(Errno::ENODEV));
        served.set(&p("nrs_policies"), "delay reg\n").unwrap();
        for (name, value) in [("min", "5"), ("max", "7"), ("pct", "50")] {
            served.set(&p(&format!("nrs_delay_{name}")), value).unwrap();
        }
        for (name, value, errno) in [
            ("nrs_delay_min", "8", Errno::EINVAL),
            ("nrs_delay_max", "4", Errno::EINVAL),
            ("nrs_delay_pct", "101", Errno::EINVAL),
            ("nrs_delay_max", "65536", Errno::EINVAL),
            ("nrs_delay_min", "soon", Errno::EINVAL),
            ("nrs_delay_min", "hp_delay_min:5", Errno::ENODEV),
            ("nrs_policies", "lifo", Errno::EINVAL),
        ] {
            assert_eq!(served.set(&p(name), value), Err(errno), "{name} {value}");
        }
        // `fault rpc` shows and sets the same values.
        let Reply::RpcFaults(faults) = served.0.answer(Request::RpcFaultShow).unwrap() else {
            panic!("another reply")
        };
        let delay = &faults.delay[0];
        assert_eq!((delay.min_s, delay.max_s, delay.percent), (5, 7, 50));
        let delay = lnet_admin::RpcDelay { min_s: 1, max_s: 300, ..delay.clone() };
        served.0.answer(Request::RpcDelay(delay)).unwrap();
        assert_eq!(served.get(&p("nrs_delay_max")).unwrap(), "reg_delay_max:300\n");
        served.0.answer(Request::RpcFaultDel(lnet_admin::RpcFaultDel::All)).unwrap();
        assert_eq!(served.get(&p("nrs_policies")).unwrap(), "fifo reg\nfifo hp\n");
    }

    #[test]
    fn tunables_of_the_request_layer_reach_the_layer_that_runs() {
        let served = Served::start("tunables");
        assert_eq!(served.get("timeout").unwrap(), "100\n");
        served.set("at_min", "40\n").unwrap();
        assert_eq!(served.get("at_min").unwrap(), "40\n");
        let said = served.get("ost.OSS.target.timeouts").unwrap();
        assert!(said.starts_with("   service : cur  40 "), "{said}");
        for (name, value) in
            [("at_min", "601"), ("timeout", "0"), ("at_max", "-1"), ("at_max", "x")]
        {
            assert_eq!(served.set(name, value), Err(Errno::EINVAL), "{name} {value}");
        }
        // They outlive the node, as LNet's do.
        served.0.stop(core::time::Duration::ZERO);
        assert_eq!(served.get("at_min").unwrap(), "40\n");
    }

    /// Clients on two nodes, of which the daemon serves a target over TCP.
    #[test]
    fn clients_are_shown_by_their_nodes_and_evicted_by_uuid_or_node() {
        let options = Options::parse_from(["lnetd", "--port", "7996"]);
        let control = Control::new(&options, ModuleParameters::default()).unwrap();
        control.answer(Request::LnetConfigure { all: false, large: false }).unwrap();
        let interface = lnet_config::Interface { name: "lo".to_owned(), cpts: None };
        let add = lnet_config::NetAdd {
            net: lnet_types::Net::TCP,
            interfaces: vec![interface],
            nid: None,
            cpts: None,
            tunables: Default::default(),
            lnd: Default::default(),
        };
        control.answer(Request::NetAdd(add)).unwrap();
        let dir = fresh::path("clients");
        let target = format!("kv-1=kv:{}", dir.display());
        control.answer(Request::TargetAdd { target }).unwrap();
        let served = Served(control, dir);

        let client = |node: &str, uuid: &str| {
            let node =
                lnet_rt::NodeBuilder::new().tcp(node.parse().unwrap(), 7996).start().unwrap();
            let rpc = lustre_rt::RpcNode::start(&node, Default::default()).unwrap();
            let nids = vec!["127.0.0.1@tcp".parse().unwrap()];
            let kv = lustre_rt::KvClient::new(&rpc, "kv-1", uuid, nids).unwrap();
            let kv = kv.with_limit(core::time::Duration::from_secs(20));
            kv.put(b"key", "value").unwrap();
            (node, kv)
        };
        let clients =
            [client("127.96.0.2", "c-1"), client("127.96.0.3", "c-2"), client("127.96.0.4", "c-3")];
        let exports = || match served.0.answer(Request::ExportShow { from: None }) {
            Ok(Reply::Exports(page)) => page,
            other => panic!("{other:?}"),
        };
        let names = |page: &lnet_admin::ExportPage| {
            page.exports.iter().map(|e| e.client.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&exports()), ["c-1", "c-2", "c-3"]);
        assert_eq!(served.get("kv.kv-1.num_exports").unwrap(), "3\n");
        assert_eq!(served.get("kv.kv-1.exports.127.96.0.3@tcp.uuid").unwrap(), "c-2\n");
        let export = served.get("kv.kv-1.exports.127.96.0.2@tcp.export").unwrap();
        assert!(
            export.starts_with("c-1:\n    name: kv-1\n    client: 127.96.0.2@tcp\n"),
            "{export}"
        );
        // What a command evicts is that client alone.
        let evict = |uuid: Option<&str>, nid: Option<&str>| Request::ExportEvict {
            uuid: uuid.map(str::to_owned),
            nid: nid.map(|nid| nid.parse().unwrap()),
        };
        served.0.answer(evict(Some("c-2"), None)).unwrap();
        assert_eq!(names(&exports()), ["c-1", "c-3"]);
        served.0.answer(evict(None, Some("127.96.0.2@tcp"))).unwrap();
        let page = exports();
        assert_eq!(names(&page), ["c-3"]);
        let evicted: Vec<_> =
            page.evicted.iter().map(|e| (e.client.as_str(), e.reason.as_str())).collect();
        assert_eq!(evicted, [("c-2", "ordered"), ("c-1", "ordered")]);
        // The daemon has no connection of its own to a target.
        let none = served.0.answer(Request::ImportExplain { name: "kv-1".to_owned() }).unwrap_err();
        assert_eq!(none.errno, Errno::ENOENT);
        drop(clients);
    }
}
