//! Two drivers talk.

use lnd_sock::{Kind, Refusal, SockConfig};
use lnet_types::{Net, Nid};
use lnet_wire::sock::Version;

use crate::support::{Decision, World, addr, ni, ni_start};

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

/// Kinds of the usable connections of a host, sorted.
fn kinds(world: &World, host: usize) -> Vec<Kind> {
    let mut kinds: Vec<_> = world.hosts[host].driver.connections().iter().map(|c| c.kind).collect();
    kinds.sort();
    kinds
}

#[test]
fn messages_of_all_sizes_arrive_as_they_were() {
    for splits in [false, true] {
        let mut world = World::pair(1);
        world.weather(|w| w.splits = splits);
        let sizes = [0, 1, 8, 927, 928, 4096, 4097, 65_536, 100_000, 1 << 20];
        for (n, size) in sizes.into_iter().enumerate() {
            world.send(0, 1, n as u64, &bytes(size, 0));
            world.send(1, 0, 100 + n as u64, &bytes(size, 1));
            world.settle();
        }
        for (n, size) in sizes.into_iter().enumerate() {
            assert_eq!(world.hosts[0].up.outcome(n as u64), Some(Ok(())), "{size} bytes");
            assert!(world.payload(1, n as u64) == Some(bytes(size, 0)), "{size} bytes");
            assert!(world.payload(0, 100 + n as u64) == Some(bytes(size, 1)), "{size} bytes");
        }
    }
}

#[test]
fn the_initiator_opens_one_connection_of_each_type_and_both_use_them() {
    let mut world = World::pair(1);
    world.send(0, 1, 1, b"hello");
    world.settle();
    assert_eq!(kinds(&world, 0), [Kind::Control, Kind::BulkIn, Kind::BulkOut]);
    assert_eq!(kinds(&world, 1), [Kind::Control, Kind::BulkIn, Kind::BulkOut]);
    world.send(1, 0, 2, &bytes(100_000, 0));
    world.settle();
    assert_eq!(world.hosts[1].up.outcome(2), Some(Ok(())));
    let stats = world.hosts[1].driver.stats();
    assert_eq!((stats.dialed, stats.connected), (0, 3), "the other side opened none");
    // Bulk went out on the connection for it.
    let out = world.hosts[1].driver.connections();
    let bulk_out = out.iter().find(|c| c.kind == Kind::BulkOut).expect("it is there");
    assert_eq!(bulk_out.traffic.bytes_out, 96 + 100_000);
    assert!(bulk_out.remote.port() <= 1023);
}

#[test]
fn conns_per_peer_counts_bulk_connections_each_way() {
    let mut world = World::new(1);
    for n in [1, 2] {
        let start = lnd_sock::NiStart { conns_per_peer: 3, ..ni_start(n) };
        world.host(SockConfig::default(), start);
    }
    world.send(0, 1, 1, b"hello");
    world.settle();
    assert_eq!(kinds(&world, 0).len(), 7);
    // Bulk messages are spread over them.
    for n in 0..6 {
        world.send(0, 1, 10 + n, &bytes(5000, 0));
    }
    world.settle();
    let out = world.hosts[0].driver.connections();
    let bulk = out.iter().filter(|c| c.kind == Kind::BulkOut);
    assert_eq!(bulk.map(|c| c.traffic.msgs_out).collect::<Vec<_>>(), [2, 2, 2]);
}

#[test]
fn a_peer_that_wants_fewer_connections_gets_fewer() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), lnd_sock::NiStart { conns_per_peer: 4, ..ni_start(1) });
    world.host(SockConfig::default(), lnd_sock::NiStart { conns_per_peer: 2, ..ni_start(2) });
    world.send(0, 1, 1, b"hello");
    world.pass(core::time::Duration::from_secs(20));
    assert_eq!(kinds(&world, 0).len(), 5);
    assert_eq!(world.hosts[1].driver.stats().refused(Refusal::Duplicate), 3);
    assert_eq!(world.hosts[0].driver.stats().dial_failures, 0, "it settles for what it has");
}

#[test]
fn both_may_connect_at_once_and_one_set_of_connections_remains() {
    for seed in 0..50 {
        let mut world = World::pair(seed);
        world.weather(|w| w.splits = true);
        for n in 0..20 {
            world.send(0, 1, n, &bytes(3000, 0));
            world.send(1, 0, n, &bytes(3000, 1));
        }
        world.pass(core::time::Duration::from_secs(10));
        for host in [0, 1] {
            let up = &world.hosts[host].up;
            assert!((0..20).all(|n| up.outcome(n) == Some(Ok(()))), "seed {seed}: {:?}", up.ended);
            assert_eq!(up.arrived().len(), 20, "seed {seed}");
            assert_eq!(kinds(&world, host), [Kind::Control, Kind::BulkIn, Kind::BulkOut]);
        }
    }
}

#[test]
fn in_a_race_the_connection_of_the_higher_nid_survives() {
    let mut world = World::pair(1);
    world.send(0, 1, 1, b"one");
    world.send(1, 0, 2, b"two");
    // Both begin before either hears of the other.
    world.weather(|w| w.dead = true);
    world.turn();
    world.weather(|w| w.dead = false);
    world.wake();
    world.settle();
    let refused = |w: &World, host: usize| w.hosts[host].driver.stats().refused(Refusal::Race);
    assert_eq!(refused(&world, 0), 0);
    assert!(refused(&world, 1) >= 1, "host 1 has the higher NID and refuses");
    assert_eq!(world.hosts[0].up.outcome(1), Some(Ok(())));
    assert_eq!(world.hosts[1].up.outcome(2), Some(Ok(())));
}

#[test]
fn truncated_and_unwanted_payload_is_read_away() {
    let mut world = World::pair(1);
    world.weather(|w| w.splits = true);
    world.hosts[1].up.decisions = vec![
        Decision::Truncate(3),
        Decision::Drop,
        Decision::Bytes(5),
        Decision::Truncate(90_000),
        Decision::Drop,
        Decision::Keep,
    ];
    let sizes = [10, 20, 30, 100_000, 200_000, 7];
    // One connection only, so that they come in order.
    for (n, size) in sizes.into_iter().enumerate() {
        world.send(0, 1, n as u64, &bytes(size, 0));
        world.settle();
    }
    assert_eq!(world.payload(1, 0), Some(bytes(10, 0)[..7].to_vec()));
    assert_eq!(world.payload(1, 1), None);
    assert_eq!(world.payload(1, 2), Some(bytes(30, 0)[..5].to_vec()));
    assert_eq!(world.payload(1, 3), Some(bytes(100_000, 0)[..10_000].to_vec()));
    assert_eq!(world.payload(1, 5), Some(bytes(7, 0)));
    assert!((0..6).all(|n| world.hosts[0].up.outcome(n) == Some(Ok(()))));
    assert_eq!(world.hosts[1].driver.stats().msgs_dropped, 2);
}

#[test]
fn a_deferred_message_holds_up_its_connection_until_it_is_resumed() {
    for then in [Decision::Keep, Decision::Drop, Decision::Truncate(2), Decision::Bytes(3)] {
        let mut world = World::pair(1);
        world.hosts[1].up.decisions = vec![Decision::Keep, Decision::Defer, Decision::Keep];
        world.send(0, 1, 0, b"first");
        world.settle();
        for n in 1..10 {
            world.send(0, 1, n, &bytes(50, n as u8));
        }
        world.pass(core::time::Duration::from_secs(200));
        assert_eq!(world.hosts[1].up.arrived(), [0], "nothing behind it is read");
        assert_eq!(world.hosts[1].driver.stats().recv_timeouts, 0, "we hold it up ourselves");
        // Bulk has a connection of its own and overtakes.
        world.send(0, 1, 99, &bytes(5000, 0));
        world.settle();
        assert_eq!(world.hosts[1].up.arrived(), [0, 99]);
        world.resume(1, 1, &then);
        let mut want: Vec<u64> = vec![0, 99];
        want.extend(if matches!(then, Decision::Drop) { 2..10 } else { 1..10 });
        let mut got = world.hosts[1].up.arrived();
        got.sort_unstable();
        want.sort_unstable();
        assert_eq!(got, want, "{then:?}");
        assert_eq!(world.payload(1, 9), Some(bytes(50, 9)));
    }
}

#[test]
fn a_large_deferred_message_is_resumed_as_well() {
    let mut world = World::pair(1);
    world.hosts[1].up.decisions = vec![Decision::Defer, Decision::Keep];
    world.send(0, 1, 1, &bytes(300_000, 0));
    world.settle();
    world.send(0, 1, 2, &bytes(300_000, 1));
    world.settle();
    world.resume(1, 0, &Decision::Keep);
    assert!(world.payload(1, 1) == Some(bytes(300_000, 0)));
    assert!(world.payload(1, 2) == Some(bytes(300_000, 1)));
}

#[test]
fn ipv6_means_version_4_and_large_nids() {
    let mut world = World::new(1);
    for n in [1u8, 2] {
        let addr = format!("fd00::{n}").parse().expect("an address");
        let nid = Nid::from_ip(Net::TCP, addr);
        world.host(SockConfig::default(), lnd_sock::NiStart { nid, addr, ..ni_start(n) });
    }
    world.send(0, 1, 1, &bytes(2000, 0));
    world.send(0, 1, 2, b"small");
    world.settle();
    assert_eq!(world.payload(1, 1), Some(bytes(2000, 0)));
    assert!(world.hosts[1].driver.connections().iter().all(|c| c.version == Version::V4));
    assert_eq!(world.hosts[1].up.received[0].hdr.src, world.hosts[0].nid);
}

#[test]
fn two_nets_may_share_an_address() {
    let mut world = World::pair(1);
    let tcp1 = Nid::from_ip("tcp1".parse().expect("a net"), addr(2));
    let now = world.now;
    world.hosts[1]
        .driver
        .ni_start(now, lnd_sock::NiStart { ni: ni(2), nid: tcp1, ..ni_start(2) })
        .expect("the listener is shared");
    world.send(0, 1, 1, b"to tcp");
    world.send_with(0, tcp1, 2, b"to tcp1", |_| ());
    world.settle();
    let rx: Vec<_> = world.hosts[1].up.received.iter().map(|r| r.rx.ni).collect();
    assert_eq!(world.hosts[1].up.arrived().len(), 2);
    assert!(rx.contains(&ni(1)) && rx.contains(&ni(2)));
}

#[test]
fn a_net_on_a_high_port_asks_for_no_privilege() {
    let mut world = World::new(1);
    world.weather(|w| w.privileged = false);
    for n in [1, 2] {
        world.host(SockConfig::on_port(7988), ni_start(n));
    }
    world.send(0, 1, 1, b"hello");
    world.settle();
    assert_eq!(world.payload(1, 1), Some(b"hello".to_vec()));
    assert_eq!(world.hosts[1].up.received[0].rx.from, world.hosts[0].nid);
}

#[test]
fn without_permission_for_privileged_ports_others_are_used_and_secure_peers_refuse_them() {
    let mut world = World::pair(1);
    world.weather(|w| w.privileged = false);
    world.send(0, 1, 1, b"hello");
    world.settle();
    assert_eq!(world.hosts[1].driver.stats().refused(Refusal::InsecurePort), 1);
    assert_eq!(world.fault(0, 1).status, lnet_types::HealthStatus::RemoteDropped);
}

#[test]
fn in_mode_all_an_unprivileged_peer_gets_an_identity_of_its_address_and_port() {
    let mut world = World::new(1);
    world.weather(|w| w.privileged = false);
    world.host(SockConfig::default(), ni_start(1));
    let accept = lnd_sock::AcceptMode::All;
    world.host(SockConfig { accept, ..SockConfig::default() }, ni_start(2));
    world.send(0, 1, 1, b"hello");
    world.settle();
    let got = &world.hosts[1].up.received[0];
    assert_eq!(got.rx.from, world.hosts[0].nid);
    assert!(got.rx.from_pid.is_user());
    assert_eq!((got.hdr.src, got.hdr.src_pid), (got.rx.from, got.rx.from_pid));
    // Each connection is a peer of its own.
    assert_eq!(world.hosts[1].driver.peers().len(), world.hosts[1].driver.connections().len());
    // It can be answered there, but not connected to.
    let (nid, pid) = (got.rx.from, got.rx.from_pid);
    world.send_with(1, nid, 2, b"back", |t| t.to.pid = pid);
    world.settle();
    assert_eq!(world.hosts[1].up.outcome(2), Some(Ok(())));
    assert_eq!(world.payload(0, 2), Some(b"back".to_vec()));
    world.send_with(1, nid, 3, b"x", |t| t.to.pid = lnet_types::Pid(0x8000_0001));
    assert_eq!(world.fault(1, 3).errno, lnet_types::Errno::EHOSTUNREACH);
}

#[test]
fn traffic_is_counted_where_it_goes() {
    let mut world = World::pair(1);
    world.send(0, 1, 1, &bytes(100, 0));
    world.send(0, 1, 2, &bytes(5000, 0));
    world.settle();
    let wire = 100 + 5000 + 2 * 96;
    let out = world.hosts[0].driver.ni_traffic(ni(1)).expect("it is served");
    assert_eq!((out.bytes_out, out.msgs_out, out.bytes_in), (wire, 2, 0));
    let peers = world.hosts[1].driver.peers();
    assert_eq!(peers.len(), 1);
    assert_eq!((peers[0].traffic.bytes_in, peers[0].traffic.msgs_in), (wire, 2));
    assert_eq!(peers[0].connections, 3);
}
