//! Real nodes above two interfaces: what the interface reports reaches the node, what the node sends
//! arrives (HL-lnd-010, HLD-002).

use core::time::Duration;

use lnd_ib::{DeviceEvent, IbConfig};
use lnet::{EventKind, Get, MatchEntry, MdOptions, MdSpec, PeerNiView, Profile, Put};
use lnet_types::{Errno, Instant, ProcessId};

use crate::flows::{A, B, SECOND};
use crate::support::fabric::World;
use crate::support::host::{Host, pattern};

fn nodes(profile: Profile) -> World {
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
    for (profile, answer) in [(Profile::Default, "PUT_DONE"), (Profile::Kernel, "GET_DONE")] {
        move_both_ways(nodes(profile), answer);
    }
}

/// A PUT and a GET of 64 KiB, and the message that shows the data of the GET.
fn move_both_ways(mut world: World, answer: &str) {
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
    let bulk: Vec<_> = kinds.iter().filter(|kind| kind.ends_with("_DONE")).copied().collect();
    assert_eq!(bulk, ["PUT_DONE", answer], "{kinds:?}");
    let mut seen = events(&mut world, 0);
    seen.sort_unstable();
    assert_eq!(seen, [(EventKind::Send, len, true), (EventKind::Reply, len, true)]);
    assert_eq!(events(&mut world, 1), [(EventKind::Get, len, true)]);
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn a_fatal_device_event_is_the_status_of_the_node_s_interface_at_once() {
    let mut world = nodes(Profile::Default);
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

#[test]
fn a_get_that_nothing_matches_fails_at_once_and_its_memory_is_not_written() {
    let mut world = nodes(Profile::Kernel);
    let sink = world.hosts[0].alloc(65_536);
    let target = ProcessId::lustre(world.hosts[1].nid);
    let now = world.now;
    let (a, _) = world.hosts[0].node.as_mut().expect("a node");
    let md = a.bind(MdSpec::new(sink.clone(), 1)).expect("bound");
    let get = Get { md, src: None, target, portal: 4, match_bits: 9, offset: 0, timeout: None };
    a.get(now, get).expect("sent");
    world.drain(0);
    world.run(SECOND);
    let (node, _) = world.hosts[0].node.as_mut().expect("a node");
    let event = node.poll_event().expect("an event");
    assert_eq!((event.kind, event.status), (EventKind::Send, Err(Errno::ENODATA)));
    assert_eq!(node.poll_event(), None);
    assert!(world.hosts[0].bytes(&sink).iter().all(|byte| *byte == 0));
    assert_eq!(world.hosts[0].port.adapter.open_maps(), 0);
    world.assert_clean();
    world.assert_balance();
}

/// A's record of B.
fn record(world: &World) -> PeerNiView {
    let (node, _) = world.hosts[0].node.as_ref().expect("a node");
    let nis = node.peer_view_of(world.hosts[1].nid).expect("a record").nis;
    nis.into_iter().find(|ni| ni.nid == world.hosts[1].nid).expect("its interface")
}

#[test]
fn a_device_event_is_charged_to_the_own_interface_and_a_connection_event_to_the_peer_s() {
    let mut world = nodes(Profile::Default);
    let target = ProcessId::lustre(world.hosts[1].nid);
    let now = world.now;
    let (a, ni) = world.hosts[0].node.as_mut().expect("a node");
    let ni = *ni;
    // Health matters where there is a choice (H-12).
    let second = "10.77.0.9@o2ib".parse().expect("a NID");
    a.peer_add(now, target.nid, &[second], true, false).expect("a second interface");
    a.ping(now, target, None, SECOND);
    world.drain(0);
    world.run(SECOND);
    assert_eq!(record(&world).health, 1000);
    let own = |world: &World| {
        let (node, _) = world.hosts[0].node.as_ref().expect("a node");
        let views = node.net_views();
        let view = views.iter().flat_map(|net| &net.nis).find(|view| view.id == ni).cloned();
        view.expect("the interface")
    };
    // The device: the interface has no link, the record of the peer stays.
    let now = world.now;
    world.hosts[0].port.adapter.device(DeviceEvent::PortError);
    world.drain(0);
    assert_eq!((own(&world).fatal, record(&world).health), (true, 1000));
    world.hosts[0].port.adapter.device(DeviceEvent::PortActive);
    world.drain(0);
    assert!(!own(&world).fatal && now == world.now);
    // The connection: the peer ends it, and refuses the next one.
    world.hosts[1].port.ib.stop(now);
    world.drain(1);
    world.run(SECOND);
    let now = world.now;
    let (a, _) = world.hosts[0].node.as_mut().expect("a node");
    a.ping(now, target, None, SECOND);
    world.drain(0);
    world.run(SECOND);
    assert!(record(&world).health < 1000, "{:?}", record(&world).failures);
    assert!(!own(&world).fatal);
}
