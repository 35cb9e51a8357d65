//! Real nodes above two interfaces: what the interface reports reaches the node, what the node sends
//! arrives (HL-lnd-010, HLD-002).

use core::time::Duration;

use lnd_ib::{CmEvent, CmRejection, DeviceEvent, IbConfig};
use lnet::{Event, EventKind, Get, MatchEntry, MdOptions, MdSpec, Profile, Put, Rx, Verdict};
use lnet_types::{Errno, Instant, IoVec, ProcessId, RxId};

use crate::flows::{A, B, SECOND, pair};
use crate::support::fabric::World;
use crate::support::host::{Host, Taste, pattern};

fn nodes() -> World {
    nodes_like(Profile::Default)
}

/// Nodes that suppress duplicates, or such as kernel nodes.
fn nodes_like(profile: Profile) -> World {
    let hosts = vec![
        Host::with_node(A, 0xa, IbConfig::default(), profile),
        Host::with_node(B, 0xb, IbConfig::default(), profile),
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
    for profile in [Profile::Default, Profile::Kernel] {
        move_both_ways(nodes_like(profile));
    }
}

/// A PUT and a GET of 64 KiB.
fn move_both_ways(mut world: World) {
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
    let md = MdSpec { threshold: Some(2), ..MdSpec::new(back.clone(), 2) };
    let md = a.bind(md).expect("bound");
    let get = Get { md, src: None, target, portal: 4, match_bits: 7, offset: 0, timeout: None };
    a.get(now, get).expect("sent");
    world.drain(0);
    world.run(SECOND);
    assert_eq!(world.hosts[0].bytes(&back), bytes);
    let kinds: Vec<_> = world.kinds().into_iter().map(|(_, kind, _)| kind).collect();
    let bulk: Vec<_> = kinds.iter().filter(|kind| kind.ends_with("_DONE")).copied().collect();
    assert_eq!(bulk, ["PUT_DONE", "GET_DONE"], "{kinds:?}");
    let seen = events(&mut world, 0);
    assert_eq!(seen, [(EventKind::Send, len, true), (EventKind::Reply, len, true)]);
    assert_eq!(events(&mut world, 1), [(EventKind::Get, len, true)]);
    assert!(world.hosts.iter().all(|host| host.port.adapter.open_maps() == 0));
    world.assert_clean();
    world.assert_balance();
}

/// Offers memory of one host, filled with the pattern `number`, for GETs of any other.
fn offer(world: &mut World, host: usize, number: u64, len: u32) {
    let now = world.now;
    let source = world.hosts[host].alloc(len);
    let bytes: Vec<u8> = (0..u64::from(len)).map(|at| pattern(number, at)).collect();
    world.hosts[host].write(&source, &bytes);
    let md = MdSpec {
        options: MdOptions::OP_GET | MdOptions::MANAGE_REMOTE,
        threshold: None,
        ..MdSpec::new(source, number)
    };
    let (node, _) = world.hosts[host].node.as_mut().expect("a node");
    node.attach(now, 4, MatchEntry::bits(7), md).expect("attached");
}

/// A GET of one host from another one; where its data go.
fn fetch(world: &mut World, (from, to): (usize, usize), match_bits: u64, len: u32) -> IoVec {
    let now = world.now;
    let sink = world.hosts[from].alloc(len);
    let target = ProcessId::lustre(world.hosts[to].nid);
    let (node, _) = world.hosts[from].node.as_mut().expect("a node");
    let md = MdSpec { threshold: Some(2), ..MdSpec::new(sink.clone(), 1) };
    let md = node.bind(md).expect("bound");
    let get = Get { md, src: None, target, portal: 4, match_bits, offset: 0, timeout: None };
    node.get(now, get).expect("sent");
    world.drain(from);
    sink
}

fn all_events(world: &mut World, host: usize) -> Vec<Event> {
    let (node, _) = world.hosts[host].node.as_mut().expect("a node");
    core::iter::from_fn(|| node.poll_event()).collect()
}

/// Each node has eight credits for the other one. A GET holds one until its data are there, so a REPLY that
/// needed one would never leave.
#[test]
fn nodes_that_ask_each_other_with_all_their_credits_get_their_data() {
    for profile in [Profile::Default, Profile::Kernel] {
        let mut world = nodes_like(profile);
        let len = 65_536;
        offer(&mut world, 0, 1, len);
        offer(&mut world, 1, 2, len);
        // Each knows the other before the rush.
        fetch(&mut world, (0, 1), 7, 8);
        fetch(&mut world, (1, 0), 7, 8);
        world.run(SECOND);
        let mut sinks = Vec::new();
        for _ in 0..24 {
            sinks.push((0, 2, fetch(&mut world, (0, 1), 7, len)));
            sinks.push((1, 1, fetch(&mut world, (1, 0), 7, len)));
        }
        world.run(SECOND);
        for (host, number, sink) in sinks {
            let whole = (0..u64::from(len)).map(|at| pattern(number, at));
            assert!(world.hosts[host].bytes(&sink).into_iter().eq(whole), "{profile:?}");
        }
        let kinds = world.kinds();
        assert_eq!(kinds.iter().filter(|(_, kind, _)| *kind == "GET_DONE").count(), 48);
        assert_eq!(kinds.iter().filter(|(_, kind, _)| *kind == "PUT_REQ").count(), 0);
        world.assert_clean();
        world.assert_balance();
    }
}

#[test]
fn a_get_that_nothing_matches_fails_at_once_and_its_memory_is_not_written() {
    let mut world = nodes_like(Profile::Kernel);
    let sink = fetch(&mut world, (0, 1), 9, 65_536);
    world.run(SECOND);
    let events = all_events(&mut world, 0);
    let seen: Vec<_> = events.iter().map(|event| (event.kind, event.status)).collect();
    assert_eq!(seen, [(EventKind::Send, Err(Errno::ENODATA))]);
    assert!(world.hosts[0].bytes(&sink).iter().all(|byte| *byte == 0));
    assert_eq!(world.hosts[0].port.adapter.open_maps(), 0);
    world.assert_clean();
    world.assert_balance();
}

/// The last event of a descriptor comes when no peer can write to its memory any more (RS-096).
#[test]
fn a_reply_by_another_way_ends_the_exchange_of_its_get_and_late_data_reach_nothing() {
    let mut world = nodes();
    let len = 65_536;
    offer(&mut world, 1, 2, len);
    fetch(&mut world, (0, 1), 7, 8);
    world.run(SECOND);
    all_events(&mut world, 0);
    world.hosts[1].holds_replies = true;
    let sink = fetch(&mut world, (0, 1), 7, len);
    world.run(SECOND);
    assert_eq!(world.kinds().last(), Some(&(0, "GET_REQ", 0)));
    assert_eq!(world.hosts[0].port.adapter.open_maps(), 1);
    let held = world.hosts[1].held.pop().expect("a REPLY");

    let (now, from) = (world.now, world.hosts[1].nid);
    let (a, ni) = world.hosts[0].node.as_mut().expect("a node");
    let from_pid = held.hdr.src_pid;
    let rx = Rx { ni: *ni, from, from_pid, peer_ni: None, id: RxId(9 << 40) };
    let Verdict::Deliver { msg, .. } = a.rx_header(now, rx, &held.hdr) else { panic!("not taken") };
    a.rx_done(now, msg, Ok(&[]));
    let before: Vec<_> = all_events(&mut world, 0).iter().map(|e| (e.kind, e.unlinked)).collect();
    assert_eq!(before, [(EventKind::Reply, false)]);
    world.drain(0);
    assert_eq!(world.hosts[0].port.adapter.open_maps(), 0);
    let after: Vec<_> = all_events(&mut world, 0).iter().map(|e| (e.kind, e.status)).collect();
    assert_eq!(after, [(EventKind::Send, Ok(()))]);

    world.hosts[1].holds_replies = false;
    let now = world.now;
    world.hosts[1].port.send(now, held).expect("sent");
    world.drain(1);
    world.run(SECOND);
    assert!(world.hosts[0].bytes(&sink).iter().all(|byte| *byte == 0), "written late");
    world.run(100 * SECOND);
    assert_eq!(all_events(&mut world, 0), []);
    assert_eq!(world.hosts[0].port.adapter.open_maps(), 0);
    world.assert_clean();
}

/// The data of the first copy are on their way, so a further one needs none.
#[test]
fn a_get_that_is_a_duplicate_ends_without_error_and_without_data() {
    let mut world = pair(IbConfig::default());
    world.hosts[1].taste = vec![Taste::Duplicate];
    world.get(0, 1, 1, 65_536);
    world.run(SECOND);
    assert_eq!(world.kinds(), [(0, "GET_REQ", 0), (1, "GET_DONE", 0)]);
    assert_eq!(world.hosts[0].end(1), Some(Ok(())));
    assert!(world.hosts[0].got.is_empty() && world.hosts[0].received.is_empty());
    assert_eq!(world.hosts[0].port.adapter.open_maps(), 0);
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
