//! Real nodes above two interfaces: what the interface reports reaches the node, what the node sends
//! arrives (HL-lnd-010, HLD-002).

use core::time::Duration;

use lnd_ib::{DeviceEvent, IbConfig};
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
