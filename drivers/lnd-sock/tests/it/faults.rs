//! Things break, on purpose.

use core::time::Duration;

use lnd_sock::{AcceptMode, Limits, Refusal, SockConfig, StartError};
use lnet_types::{Errno, Fault, HealthStatus, MsgId, NiId, Nid};

use crate::support::{Decision, Raw, Stands, World, addr, ni, ni_start, nid};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn killed_connections_are_made_again_by_the_next_message() {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    world.settle();
    let now = world.now;
    assert_eq!(world.call(0, |driver, up| driver.kill_connections(now, ni(1), up)), 3);
    world.settle();
    assert!(world.hosts[1].driver.connections().is_empty(), "the other side sees it");
    assert_eq!(world.hosts[0].up.down.len(), 1);
    assert_eq!(world.hosts[1].up.down.len(), 1);
    world.send(0, 1, 1, b"again");
    world.settle();
    assert_eq!(world.hosts[0].up.outcome(1), Some(Ok(())));
    assert_eq!(world.hosts[1].up.arrived(), [0, 1]);
}

#[test]
fn messages_on_a_connection_that_breaks_were_certainly_not_delivered() {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    world.settle();
    world.weather(|w| w.window = 100);
    world.hosts[1].up.decisions = vec![Decision::Defer];
    for n in 1..5 {
        world.send(0, 1, n, &[7; 500]);
    }
    world.settle();
    world.break_all(Errno::ECONNRESET);
    world.settle();
    for n in 1..5 {
        let lost = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNRESET);
        assert_eq!(world.fault(0, n), lost, "{n}");
    }
    assert_eq!(world.hosts[1].up.gone, [], "the held message may be whole");
    world.pass(secs(51));
    assert_eq!(world.hosts[1].up.gone.len(), 1, "but it does not wait for ever");
    assert_eq!(world.hosts[1].up.gone[0], world.hosts[1].up.received[1].rx.id);
    // A verdict that was under way meanwhile finds nothing and gets that answer.
    world.resume(1, 1, &Decision::Keep);
    let outcome = world.hosts[1].up.received[1].outcome.clone();
    assert_eq!(outcome, Some(Err(Fault::new(HealthStatus::RemoteError, Errno::EIO))));
}

/// A message that waits for a buffer and two behind it, all acknowledged by the receiver's system.
fn with_unread(weather: impl FnOnce(&mut World)) -> World {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    world.settle();
    world.weather(|w| w.taken = true);
    world.hosts[1].up.decisions = vec![Decision::Defer, Decision::Keep];
    for n in 1..4 {
        world.send(0, 1, n, &[7; 5000]);
    }
    world.settle();
    assert_eq!(world.hosts[1].up.arrived(), [0]);
    assert_eq!(world.hosts[1].up.received.len(), 2, "what is behind it is not read");
    weather(&mut world);
    world
}

#[test]
fn what_was_acknowledged_before_a_reset_is_read_and_delivered() {
    for at in [0, 1] {
        let mut world = with_unread(|world| {
            let now = world.now;
            world.call(at, |driver, up| driver.kill_connections(now, ni(1), up));
        });
        world.settle();
        for n in 1..4 {
            assert_eq!(
                world.hosts[0].up.outcome(n),
                Some(Ok(())),
                "the sender has nothing to repeat"
            );
        }
        assert!(world.hosts[1].driver.connections().is_empty(), "nothing goes by it any more");
        world.resume(1, 1, &Decision::Keep);
        assert_eq!(world.hosts[1].up.arrived(), [0, 1, 2, 3], "reset by host {at}");
    }
}

#[test]
fn a_connection_that_is_closed_in_order_is_read_to_its_end() {
    let mut world = with_unread(|world| {
        let now = world.now;
        let all = |_, _| true;
        assert_eq!(world.call(1, |driver, up| driver.disconnect(now, all, false, up)), 1);
    });
    world.settle();
    assert!(world.hosts[0].driver.connections().is_empty(), "the other side has its end of file");
    // New messages don't wait for the old connection.
    world.send(0, 1, 4, &[8; 500]);
    world.settle();
    assert_eq!(world.hosts[1].up.arrived(), [0, 4]);
    world.resume(1, 1, &Decision::Keep);
    assert_eq!(world.hosts[1].up.arrived(), [0, 1, 4, 2, 3]);
}

#[test]
fn of_a_peer_that_breaks_the_protocol_nothing_more_is_read() {
    let mut world = with_unread(|world| {
        world.hosts[1].up.decisions = vec![Decision::Close];
        // By the connection for small messages, while that for large ones is held.
        world.send(0, 1, 9, &[]);
    });
    world.settle();
    assert_eq!(world.hosts[1].up.gone.len(), 1, "the held message is gone at once");
}

#[test]
fn payload_that_will_not_come_is_reported_once() {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    world.settle();
    world.weather(|w| w.window = 1000);
    world.send(0, 1, 1, &[7; 50_000]);
    world.turn();
    world.turn();
    world.break_all(Errno::ECONNRESET);
    world.settle();
    let broken = Fault::new(HealthStatus::RemoteError, Errno::EIO);
    assert_eq!(world.hosts[1].up.received[1].outcome, Some(Err(broken)));
    let lost = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNRESET);
    assert_eq!(world.fault(0, 1), lost);
}

#[test]
fn an_abandoned_message_is_read_away_in_silence_and_the_one_behind_it_arrives() {
    for decision in [Decision::Keep, Decision::Bytes(50_000)] {
        let mut world = World::pair(1);
        world.send(0, 1, 0, b"hello");
        world.settle();
        world.weather(|w| w.window = 1000);
        world.hosts[1].up.decisions = vec![decision.clone(), Decision::Keep];
        world.send(0, 1, 1, &[7; 50_000]);
        world.send(0, 1, 2, &[8; 50_000]);
        while world.hosts[1].up.received.len() < 2 {
            world.turn();
        }
        world.turn();
        let msg = world.hosts[1].up.receiving(1).expect("it is on its way");
        let rx = world.hosts[1].up.received[1].rx.id;
        let place = world.hosts[1].up.received[1].place.clone();
        let other = MsgId::default();
        world.call(1, |driver, _| driver.abandon(rx, other));
        world.turn();
        let before = world.hosts[1].mem.read(&place);
        world.call(1, |driver, _| driver.abandon(rx, msg));
        world.settle();
        assert_eq!(world.hosts[1].up.received[1].outcome, None, "{decision:?}: no more is said");
        assert!(world.hosts[1].mem.read(&place) == before, "and no memory is written");
        if matches!(decision, Decision::Keep) {
            let arrived = before.iter().filter(|b| **b == 7).count();
            assert!((1..50_000).contains(&arrived), "it had begun: {arrived}");
        }
        assert_eq!(world.hosts[0].up.outcome(1), Some(Ok(())), "its sender could write it");
        assert!(world.payload(1, 2) == Some(vec![8; 50_000]), "{decision:?}");
        // What has ended is not touched by another word about it.
        world.call(1, |driver, _| driver.abandon(rx, msg));
        world.send(0, 1, 3, &[9; 50_000]);
        world.settle();
        assert!(world.payload(1, 3) == Some(vec![9; 50_000]), "{decision:?}");
    }
}

#[test]
fn a_cut_interface_neither_connects_nor_accepts_until_it_is_restored() {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    world.settle();
    let now = world.now;
    let block = |world: &mut World, blocked| {
        world
            .call(0, |driver, up| driver.ni_block(now, ni(1), blocked, up))
            .expect("the address is ours");
    };
    block(&mut world, true);
    world.settle();
    assert!(world.hosts[0].driver.connections().is_empty());
    assert!(world.hosts[1].driver.connections().is_empty());
    let unreachable = Fault::new(HealthStatus::LocalNoRoute, Errno::ENETUNREACH);
    for n in 1..4 {
        world.send(0, 1, n, b"out");
        world.settle();
        assert_eq!(world.fault(0, n), unreachable, "each time, without back-off");
    }
    world.send(1, 0, 10, b"in");
    world.settle();
    assert_eq!(world.fault(1, 10), Fault::new(HealthStatus::RemoteDropped, Errno::ECONNREFUSED));
    block(&mut world, false);
    world.send(0, 1, 4, b"back");
    world.settle();
    assert_eq!(world.hosts[0].up.outcome(4), Some(Ok(())));
    world.pass(secs(2));
    world.send(1, 0, 11, b"back");
    world.settle();
    assert_eq!(world.hosts[1].up.outcome(11), Some(Ok(())));
}

#[test]
fn a_restarted_peer_is_reached_again() {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    world.settle();
    // Host 1 vanishes without a word and comes back as another process.
    let now = world.now;
    world.weather(|w| w.dead = true);
    world.call(1, |driver, up| driver.ni_stop(now, ni(1), up));
    let start = lnd_sock::NiStart { incarnation: 9999, ..ni_start(2) };
    world.hosts[1].driver.ni_start(now, start).expect("the address is free");
    world.weather(|w| w.dead = false);
    // It connects to us while we still hold the old connections.
    world.send(1, 0, 7, b"I am new");
    world.pass(secs(5));
    assert_eq!(world.hosts[1].up.outcome(7), Some(Ok(())), "{:?}", world.hosts[1].up.ended);
    world.send(0, 1, 1, b"hello again");
    world.pass(secs(5));
    assert_eq!(world.hosts[0].up.outcome(1), Some(Ok(())));
}

#[test]
fn pending_handshakes_are_limited_altogether_and_from_each_address() {
    let limits = Limits { pending_accepts: 5, pending_accepts_per_address: 2, ..Limits::default() };
    let mut world = World::new(1);
    world.host(SockConfig { limits, ..SockConfig::default() }, ni_start(1));
    let mut raws: Vec<Raw> = Vec::new();
    for n in 0..9 {
        raws.push(Raw::connect(&world, addr(20 + n / 3), addr(1), true));
    }
    world.settle();
    let open = raws.iter_mut().filter_map(|raw| (raw.look() == Stands::Open).then_some(())).count();
    assert_eq!(open, 5);
    assert_eq!(world.hosts[0].driver.stats().refused(Refusal::TooManyPending), 4);
    // Time makes room.
    world.pass(secs(6));
    let mut late = Raw::connect(&world, addr(20), addr(1), true);
    world.settle();
    assert_eq!(late.look(), Stands::Open);
}

#[test]
fn connections_of_one_address_are_limited() {
    let limits = Limits { connections_per_address: 2, ..Limits::default() };
    let mut world = World::new(1);
    world.host(SockConfig { limits, ..SockConfig::default() }, ni_start(1));
    world.host(SockConfig::default(), ni_start(2));
    world.send(1, 0, 1, b"hello");
    world.pass(secs(1));
    assert_eq!(world.hosts[0].driver.connections().len(), 2);
    assert!(world.hosts[0].driver.stats().refused(Refusal::TooManyConnections) >= 1);
    assert_eq!(world.hosts[1].up.outcome(1), Some(Ok(())));
}

#[test]
fn messages_that_wait_are_limited() {
    let limits = Limits { waiting_per_peer: 3, ..Limits::default() };
    let mut world = World::new(1);
    world.host(SockConfig { limits, ..SockConfig::default() }, ni_start(1));
    let _silent = Raw::listen(&world, addr(9));
    for n in 0..5 {
        world.send_with(0, nid(9), n, b"x", |_| ());
    }
    assert_eq!(world.hosts[0].up.out.len(), 3);
    assert_eq!(world.fault(0, 4), Fault::new(HealthStatus::LocalError, Errno::ENOMEM));
}

#[test]
fn accept_mode_none_has_no_listener() {
    let mut world = World::new(1);
    let config = SockConfig { accept: AcceptMode::None, ..SockConfig::default() };
    world.host(config, ni_start(1));
    world.host(SockConfig::default(), ni_start(2));
    world.send(1, 0, 1, b"in");
    world.settle();
    assert_eq!(world.fault(1, 1).errno, Errno::ECONNREFUSED);
    world.send(0, 1, 2, b"out");
    world.settle();
    assert_eq!(world.hosts[0].up.outcome(2), Some(Ok(())));
}

#[test]
fn settings_out_of_range_are_named() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    let now = world.now;
    let driver = &mut world.hosts[0].driver;
    let start = |change: fn(&mut lnd_sock::NiStart)| {
        let mut start = lnd_sock::NiStart { ni: ni(2), ..ni_start(2) };
        change(&mut start);
        start
    };
    let table: [(&str, lnd_sock::NiStart, &str); 6] = [
        ("twice", ni_start(1), "interface NiId(1v1) is already started"),
        ("no connections", start(|s| s.conns_per_peer = 0), "conns_per_peer 0: expected 1 to 127"),
        ("too many", start(|s| s.conns_per_peer = 128), "conns_per_peer 128: expected 1 to 127"),
        (
            "tos",
            start(|s| s.tos = 256),
            "tos 256: expected 0 to 255, or -1 for the system's default",
        ),
        ("tos", start(|s| s.tos = -2), "tos -2: expected 0 to 255, or -1 for the system's default"),
        (
            "timeout",
            start(|s| s.lnd_timeout = Duration::ZERO),
            "lnd_timeout 0: must be greater than 0",
        ),
    ];
    for (what, start, text) in table {
        let error = driver.ni_start(now, start).expect_err(what);
        assert_eq!(error.to_string(), text, "{what}");
    }
    assert_eq!(driver.set_conns_per_peer(ni(1), 0), Err(StartError::ConnsPerPeer(0)));
    assert_eq!(driver.set_timeout(ni(1), Duration::ZERO), Err(StartError::Timeout));
    driver.set_conns_per_peer(ni(1), 3).expect("in range");
    driver.set_timeout(ni(1), secs(7)).expect("in range");
    assert_eq!(lnet::Driver::lnd_timeout(driver, ni(1)), Some(secs(7)));
}

#[test]
fn messages_to_what_has_no_address_are_refused() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    let gni = "7@gni".parse().expect("a NID");
    world.send_with(0, gni, 1, b"x", |_| ());
    assert_eq!(world.fault(0, 1), Fault::new(HealthStatus::RemoteError, Errno::EHOSTUNREACH));
    world.send_with(0, nid(2), 2, b"x", |t| t.ni = ni(77));
    assert_eq!(world.fault(0, 2), Fault::new(HealthStatus::RemoteDropped, Errno::ENETDOWN));
}

#[test]
fn a_peer_that_is_let_go_is_connected_to_again_by_the_next_message() {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    world.settle();
    let now = world.now;
    let other = |_: NiId, to: Nid| to == nid(9);
    assert_eq!(world.call(0, |driver, up| driver.disconnect(now, other, true, up)), 0);
    assert_eq!(world.hosts[0].driver.connections().len(), 3);
    let meant = |_: NiId, to: Nid| to == nid(2);
    assert_eq!(world.call(0, |driver, up| driver.disconnect(now, meant, false, up)), 1);
    assert!(world.hosts[0].driver.connections().is_empty());
    assert_eq!(world.hosts[0].driver.peers().len(), 1, "it is still known");
    assert!(world.hosts[0].up.down.is_empty(), "nothing has failed");
    world.settle();
    assert!(world.hosts[1].driver.connections().is_empty(), "the other side sees it");
    world.send(0, 1, 1, b"again");
    world.settle();
    assert_eq!(world.hosts[1].up.arrived(), [0, 1]);
}

#[test]
fn messages_waiting_for_a_forgotten_peer_end() {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    let now = world.now;
    let all = |_: NiId, _: Nid| true;
    assert_eq!(world.call(0, |driver, up| driver.disconnect(now, all, false, up)), 0);
    assert_eq!(world.hosts[0].up.outcome(0), None, "an attempt is not a connection");
    assert_eq!(world.call(0, |driver, up| driver.disconnect(now, all, true, up)), 1);
    let lost = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNRESET);
    assert_eq!(world.fault(0, 0), lost);
    assert!(world.hosts[0].driver.peers().is_empty());
    world.settle();
    world.send(0, 1, 1, b"again");
    world.settle();
    assert_eq!(world.hosts[1].up.arrived(), [1]);
}
