//! Real nodes above two interfaces: what the interface reports reaches the node, what the node sends
//! arrives (HL-lnd-010, HLD-002).

use core::time::Duration;

use lnd_ib::{CmEvent, CmRejection, DeviceEvent, IbConfig};
use lnet::{EventKind, Get, MatchEntry, MdOptions, MdSpec, Put};
use lnet_types::{Instant, ProcessId};

use crate::flows::{A, B, SECOND};
use crate::support::fabric::World;
use crate::support::host::{Host, pattern};

fn nodes() -> World {
    let hosts = vec![
        Host::with_node(A, 0xa, IbConfig::default()),
        Host::with_node(B, 0xb, IbConfig::default()),
    ];
    World::new(5, hosts)
}

fn events(world: &mut World, host: usize) -> Vec<(EventKind, u32, bool)> {
    let (node, _) = world.hosts[host].node.as_mut().expect("a node");
    let all = core::iter::from_fn(|| node.poll_event());
    all.map(|e| (e.kind, e.mlength, e.status.is_ok())).collect()
}

#[test]
fn nodes_discover_each_other_and_move_data_both_ways() {
    let mut world = nodes();
    let now: Instant = world.now;
    let len = 65_536;
    let sink = world.hosts[1].alloc(len);
    let source = world.hosts[0].alloc(len);
    let bytes: Vec<u8> = (0..u64::from(len)).map(|at| pattern(1, at)).collect();
    world.hosts[0].write(&source, &bytes);
    let back = world.hosts[0].alloc(len);

    let (b, _) = world.hosts[1].node.as_mut().expect("a node");
    let md = MdSpec {
        options: MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE,
        ..MdSpec::new(sink.clone(), 7)
    };
    b.attach(now, 4, MatchEntry::bits(7), md).expect("attached");
    let target = ProcessId::lustre(world.hosts[1].nid);
    let (a, _) = world.hosts[0].node.as_mut().expect("a node");
    let md = a.bind(MdSpec::new(source, 1)).expect("bound");
    let put = Put {
        md,
        ack: true,
        src: None,
        target,
        portal: 4,
        match_bits: 7,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    };
    a.put(now, put).expect("sent");
    world.drain(0);
    world.run(SECOND);
    assert_eq!(world.hosts[1].bytes(&sink), bytes);
    let mut seen = events(&mut world, 0);
    seen.sort_unstable();
    assert_eq!(seen, [(EventKind::Send, len, true), (EventKind::Ack, len, true)]);
    assert_eq!(events(&mut world, 1), [(EventKind::Put, len, true)]);

    let now = world.now;
    let (a, _) = world.hosts[0].node.as_mut().expect("a node");
    let md = a.bind(MdSpec::new(back.clone(), 2)).expect("bound");
    let get = Get { md, src: None, target, portal: 4, match_bits: 7, offset: 0, timeout: None };
    a.get(now, get).expect("sent");
    world.drain(0);
    world.run(SECOND);
    assert_eq!(world.hosts[0].bytes(&back), bytes);
    let kinds: Vec<_> = world.kinds().into_iter().map(|(_, kind, _)| kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "PUT_DONE").count(), 2, "{kinds:?}");
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn a_fatal_device_event_is_the_status_of_the_node_s_interface_at_once() {
    let mut world = nodes();
    for (event, fatal) in
        [(DeviceEvent::Fatal, true), (DeviceEvent::PortActive, false), (DeviceEvent::Removed, true)]
    {
        let now = world.now;
        world.hosts[0].port.ib.device_event(now, event);
        world.drain(0);
        let (node, ni) = world.hosts[0].node.as_ref().expect("a node");
        let views = node.net_views();
        let view = views.iter().flat_map(|net| &net.nis).find(|view| view.id == *ni);
        assert_eq!(view.expect("the interface").fatal, fatal, "{event:?}");
        world.run(Duration::from_millis(10));
    }
}

/// Two nodes, the first of which has sent a PUT that waits for its connection, as no packet passes.
/// Of the peer it knows a second interface, on another network: one with a single interface is spared.
fn waiting() -> World {
    let mut world = nodes();
    world.cut.insert((0, 1));
    let (now, to) = (world.now, world.hosts[1].nid);
    let source = world.hosts[0].alloc(8);
    let (a, _) = world.hosts[0].node.as_mut().expect("a node");
    a.set_tunables(now, &[("discovery", 0)]).expect("it can be set");
    let far = "10.88.0.3@tcp".parse().expect("a NID");
    a.peer_add(now, to, &[to, far], true, false).expect("it is added");
    let md = a.bind(MdSpec::new(source, 1)).expect("bound");
    let put = Put {
        md,
        ack: false,
        src: None,
        target: ProcessId::lustre(to),
        portal: 4,
        match_bits: 7,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    };
    a.put(now, put).expect("sent");
    world.drain(0);
    assert_eq!(healths(&world), (1000, 1000));
    world
}

/// Health of the first node's interface, and of its peer's, as that node has them.
fn healths(world: &World) -> (u32, u32) {
    let (node, ni) = world.hosts[0].node.as_ref().expect("a node");
    let views = node.net_views();
    let own = views.iter().flat_map(|net| &net.nis).find(|view| view.id == *ni);
    let peer = node.peer_view_of(world.hosts[1].nid).expect("the peer");
    let other = peer.nis.iter().find(|view| view.nid == world.hosts[1].nid);
    (own.expect("the interface").health, other.expect("its interface").health)
}

/// RS-053, B-20, H-10.
#[test]
fn an_event_of_a_connection_lowers_the_health_of_the_side_to_blame() {
    let rejected = |why| CmEvent::Rejected { why, private: b"" };
    let table = [
        (rejected(CmRejection::Other), (1000, 900)),
        (rejected(CmRejection::Consumer), (1000, 900)),
        (rejected(CmRejection::NoListener), (900, 900)),
        (CmEvent::AddrError, (900, 900)),
        (CmEvent::RouteError, (900, 900)),
        (CmEvent::Unreachable, (900, 1000)),
        (CmEvent::ConnectError, (900, 1000)),
        (CmEvent::DeviceRemoval, (900, 1000)),
        (CmEvent::AddrChange, (1000, 1000)),
    ];
    for (event, expected) in table {
        let mut world = waiting();
        let conn = world.conns(0)[0];
        let now = world.now;
        world.hosts[0].port.ib.cm_event(now, conn, event);
        world.drain(0);
        assert_eq!(healths(&world), expected, "{event:?}");
        world.assert_clean();
    }
}

/// RS-053.
#[test]
fn an_event_of_the_device_costs_the_own_interface_its_health_and_the_peer_s_nothing() {
    let mut world = waiting();
    world.hosts[0].port.adapter.device(DeviceEvent::Removed);
    world.drain(0);
    let (own, peer) = healths(&world);
    assert!(own < 1000, "{own}");
    assert_eq!(peer, 1000);
    world.assert_clean();
}
