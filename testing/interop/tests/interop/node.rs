//! A ulnet node in the part of a kernel node, and the judgement of what it did there.

use std::fs;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use interop::player::{Player, Setting, Trigger, WAIT};
use interop::{report, traffic, tshark};
use lnd_sock::SockConfig;
use lnet::{RouteSpec, Tunables};
use lnet_rt::{NodeBuilder, NodeHandle, Stack, TcpNi};
use lnet_selftest::Settings;
use lnet_types::{Instant, Net, Nid};
use lnetd::selftest::Selftest;

use crate::cases::{BY_DESIGN, Case};
use crate::judge::{kernel, out_dir};
use crate::support::{capture, stage};
use crate::unmarked;

/// A command to a node in the course of a conversation; what it is to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    /// `lnetctl ping`.
    Ping(&'static str),
    /// `lnetctl discover`.
    Discover(&'static str),
    /// `lnetctl route add`: network and gateway.
    Route(&'static str, &'static str),
    /// `lnetctl set routing 1`.
    Routing,
    /// Nothing, for so many seconds.
    Rest(u64),
    /// These networks of a router count as silent from now on, and no other: a matter of time
    /// in the capture, of its place in the conversation here.
    Silent(&'static [&'static str]),
    /// A script of `lst` commands.
    Lst(fn(&Selftest)),
}

/// Longer than any case takes: what comes of a command is seen on the wire, not here.
const PING: Duration = Duration::from_secs(60);

fn nid(text: &str) -> Nid {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A node as `case` wants it, in the namespace of the calling thread.
fn start(case: &Case) -> NodeHandle {
    let tunables = Tunables::new(case.profile);
    let handle = NodeBuilder::new().tunables(tunables).start().expect("a node starts");
    let case = *case;
    let configure = move |stack: &mut Stack, now| {
        stack.set_tunables(&[("discovery", i64::from(case.discovery))]).expect("it is 0 or 1");
        stack.set_tunables(case.tunables).expect("they are a kernel node's");
        let mut config = SockConfig { checksum: case.checksum, ..SockConfig::default() };
        config.keepalive = case.keepalive.unwrap_or(config.keepalive);
        stack.enable_tcp(config).expect("it is the first");
        for text in case.nids {
            let mut ni = TcpNi::new(nid(text));
            ni.conns_per_peer = Some(case.conns_per_peer);
            stack.add_tcp_ni(ni).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
        for portal in case.lazy {
            stack.node_mut().set_lazy(now, *portal, true).expect("there is such a portal");
        }
    };
    handle.call(configure).blocking().expect("the node runs");
    handle
}

/// Lets a router look at its networks once, with a limit between the time since it has heard on those
/// in `silent` and the time since it has heard on the others: the moment does not depend on how
/// fast the nodes are, if a second lies between them.
fn silence(stack: &mut Stack, now: Instant, silent: &[&str]) {
    // The node's own clock goes with its calls.
    stack.node_mut().handle_timeout(now);
    let (mut wanted, mut others) = (Duration::MAX, Duration::ZERO);
    for view in stack.node().net_views().into_iter().filter(|view| view.net != Net::LO) {
        let time = view.silent.expect("it is a router");
        if silent.contains(&view.net.to_string().as_str()) {
            wanted = wanted.min(time);
        } else {
            others = others.max(time);
        }
    }
    let limit = others.as_secs() + 1;
    assert!(wanted.as_secs() >= limit, "{silent:?}: for {wanted:?}, the others for {others:?}");
    let names = ["alive_router_check_interval", "router_ping_timeout"];
    let usual = names.map(|name| (name, stack.node().tunables().value(name).expect("its name")));
    let timeout = i64::try_from(limit - 1).expect("a test is short");
    stack.set_tunables(&[(names[0], 1), (names[1], timeout)]).expect("they are in bounds");
    stack.node_mut().handle_timeout(now);
    stack.set_tunables(&usual).expect("they were in bounds");
}

/// Gives a command and does not wait for what comes of it.
fn give(handle: &NodeHandle, selftest: Option<&Arc<Selftest>>, command: Command) {
    // The command is under way when this returns; its answer has no receiver.
    match command {
        Command::Ping(target) => drop(handle.ping(nid(target), PING)),
        Command::Discover(target) => drop(handle.discover_again(nid(target))),
        Command::Route(net, gateway) => {
            let net = net.parse().unwrap_or_else(|e| panic!("{net}: {e}"));
            let spec = RouteSpec { net, gateway: nid(gateway), hops: None, priority: 0 };
            let add = move |stack: &mut Stack, now| stack.node_mut().add_route(now, spec);
            handle.call(add).blocking().expect("the node runs").expect("the gateway is near");
        }
        Command::Routing => {
            let on = |stack: &mut Stack, _| stack.enable_routing();
            handle.call(on).blocking().expect("the node runs").expect("there is memory");
        }
        Command::Silent(nets) => {
            let look = move |stack: &mut Stack, now| silence(stack, now, nets);
            handle.call(look).blocking().expect("the node runs");
        }
        Command::Rest(seconds) => thread::sleep(Duration::from_secs(seconds)),
        Command::Lst(script) => {
            let selftest = Arc::clone(selftest.expect("the case has selftest"));
            thread::spawn(move || script(&selftest));
        }
    }
}

/// Plays a case and judges it.
pub(crate) fn run(case: &Case) {
    let name = format!("{}.{}", case.capture, case.part);
    let mut capture = capture(case.capture);
    capture.conns.truncate(case.conns);
    capture.events.retain(|event| event.conn < case.conns);
    let node: Vec<IpAddr> = case.nids.iter().filter_map(|text| nid(text).ip()).collect();
    let Some(stage) = stage(&name, &capture, &node) else { return };
    let handle = stage.node.enter(|| start(case));
    let selftest = case
        .selftest
        .then(|| Arc::new(Selftest::start(&handle, Settings::default()).expect("selftest starts")));
    let triggers = case
        .commands
        .iter()
        .map(|&(conn, message, command)| Trigger { conn, message, command })
        .collect();
    let setting =
        Setting { capture: &capture, node: &node, host: &stage.player, port: 988, wait: WAIT };
    let mut command = |command: &Command| give(&handle, selftest.as_ref(), *command);
    let player = Player::new(&setting, triggers, &mut command, case.leave_out);
    let outcome = player.expect("addresses are there").play();
    assert!(!handle.is_stopped(), "{name}: the node has died");
    let trouble = if case.peer_is_0_1 { unmarked::trouble(&handle) } else { Vec::new() };
    handle.stop(Duration::ZERO).blocking();

    fs::create_dir_all(out_dir()).expect("a directory for reports");
    let file = out_dir().join(format!("{name}.pcap"));
    let bytes = traffic::pcap(&capture.conns, &outcome.traffic);
    fs::write(&file, bytes).expect("our traffic can be written");
    let second = match kernel(&name) {
        Some(kernel) => {
            let ours = tshark::dissect(&file, &node).expect("tshark reads our traffic");
            tshark::compare(&kernel, &ours)
        }
        None => Vec::new(),
    };
    let verdict = report::judge(&name, &outcome, &second, BY_DESIGN);
    report::save(&out_dir(), &name, &verdict.table).expect("a report can be written");
    let compared: usize = outcome.rows.iter().map(|row| row.compared).sum();
    assert!(compared > 0, "{name}: nothing compared");
    assert!(verdict.unexpected.is_empty(), "\n{}", verdict.table);
    if case.peer_is_0_1 {
        let (marks, seen) = unmarked::sent(&outcome);
        assert!(seen > 5, "{name}: only {seen} messages of ours");
        assert_eq!((marks, trouble), (Vec::new(), Vec::new()), "{name}");
    }
}
