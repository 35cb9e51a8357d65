//! Time limits, back-off and keepalives, in virtual time.

use core::time::Duration;

use lnd_sock::{Refusal, SockConfig};
use lnet_types::{Errno, Fault, HealthStatus, Instant};
use lnet_wire::sock::Version;

use crate::support::{Decision, Raw, Stands, World, addr, ni, ni_start, nid};

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn fault(status: HealthStatus, errno: Errno) -> Fault {
    Fault::new(status, errno)
}

#[test]
fn attempts_to_connect_back_off_and_messages_between_them_are_refused() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    let refused = fault(HealthStatus::RemoteDropped, Errno::ECONNREFUSED);
    let too_soon = fault(HealthStatus::RemoteError, Errno::EIO);
    let mut number = 0;
    for delay in [1, 2, 4, 8] {
        world.send_with(0, nid(9), number, b"x", |_| ());
        world.settle();
        assert_eq!(world.fault(0, number), refused, "a real attempt, delay {delay}");
        // The last moment at which it is too soon.
        world.pass(secs(delay) - Duration::from_nanos(1));
        world.send_with(0, nid(9), number + 1, b"x", |_| ());
        assert_eq!(world.fault(0, number + 1), too_soon, "delay {delay}");
        // An unused record goes with its back-off, so ask just in time.
        let now = world.now + Duration::from_nanos(1);
        world.now = now;
        number += 2;
    }
    let stats = world.hosts[0].driver.stats();
    assert_eq!((stats.dialed, stats.dial_failures), (4, 4));
    assert_eq!(world.hosts[0].up.down.len(), 4);
}

#[test]
fn an_unused_peer_is_forgotten() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    world.send_with(0, nid(9), 1, b"x", |_| ());
    world.settle();
    assert_eq!(world.hosts[0].driver.peers().len(), 1);
    world.pass(secs(2));
    assert!(world.hosts[0].driver.peers().is_empty());
    assert_eq!(world.hosts[0].driver.poll_timeout(), None, "nothing is left to wait for");
}

#[test]
fn an_attempt_that_gets_no_answer_ends_with_the_time_limit() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    let mut raw = Raw::listen(&world, addr(9));
    world.send_with(0, nid(9), 1, b"x", |_| ());
    world.settle();
    assert!(raw.accept());
    world.pass(secs(50) - Duration::from_nanos(1));
    assert_eq!(world.hosts[0].up.outcome(1), None);
    world.pass(Duration::from_nanos(1));
    assert_eq!(world.fault(0, 1), fault(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT));
    raw.look();
    assert_ne!(raw.look(), Stands::Open);
}

#[test]
fn a_message_waits_no_longer_than_its_own_limit() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    let _raw = Raw::listen(&world, addr(9));
    world.send_with(0, nid(9), 1, b"x", |t| t.timeout = Duration::from_millis(1700));
    world.pass(Duration::from_millis(1699));
    assert_eq!(world.hosts[0].up.outcome(1), None);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.fault(0, 1), fault(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT));
}

#[test]
fn an_acceptor_waits_five_seconds_for_request_and_hello() {
    for part in [0, 1, 10, 16, 20, 60] {
        let mut world = World::new(1);
        world.host(SockConfig::default(), ni_start(1));
        let mut raw = Raw::connect(&world, addr(9), addr(1), true);
        let mut opening = vec![0x00, 0x71, 0xce, 0xac, 1, 0, 0, 0, 1, 0, 0, 10, 0, 0, 2, 0];
        opening.extend([0x63, 0x69, 0x72, 0x45, 3, 0, 0, 0]);
        opening.extend([0; 48]);
        raw.write(&opening[..part]);
        world.pass(secs(5) - Duration::from_nanos(1));
        assert_eq!(raw.look(), Stands::Open, "{part} bytes");
        world.pass(Duration::from_nanos(1));
        assert_ne!(raw.look(), Stands::Open, "{part} bytes");
        let stats = world.hosts[0].driver.stats();
        assert_eq!(stats.refused(Refusal::HandshakeTimeout), 1, "{part} bytes");
    }
}

/// Two hosts with all connections up, and then a network that moves nothing.
fn stalled(config: &SockConfig) -> World {
    let mut world = World::new(1);
    world.host(config.clone(), ni_start(1));
    world.host(config.clone(), ni_start(2));
    world.send(0, 1, 0, b"hello");
    world.settle();
    // The other side reads no more, so what is written stays unacknowledged.
    world.weather(|w| {
        w.window = 1000;
        w.dead = true;
    });
    world
}

#[test]
fn a_message_without_acknowledgement_in_time_ends_by_the_share_that_was_handed_over() {
    for legacy in [false, true] {
        let config = SockConfig { legacy_close_status: legacy, ..SockConfig::default() };
        let mut world = stalled(&config);
        // The first is written whole, the second in part, the third not at all.
        world.send(0, 1, 1, &[1; 500]);
        world.send(0, 1, 2, &[2; 900]);
        world.send(0, 1, 3, &[3; 100]);
        // Bulk has its own connection, which suffers the same.
        world.send(0, 1, 4, &[4; 5000]);
        world.pass(Duration::from_millis(49_999));
        assert_eq!(world.hosts[0].up.outcome(1), Some(Ok(())), "written is done (K-41)");
        assert_eq!(world.hosts[0].up.outcome(2), None);
        world.pass(secs(13));
        let (local, network) = if legacy {
            let closed = fault(HealthStatus::LocalError, Errno::EIO);
            (closed, closed)
        } else {
            (
                fault(HealthStatus::LocalTimeout, Errno::ETIMEDOUT),
                fault(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT),
            )
        };
        assert_eq!(world.fault(0, 2), network);
        assert_eq!(world.fault(0, 3), local);
        assert_eq!(world.fault(0, 4), network);
        let stats = world.hosts[0].driver.stats();
        assert!(stats.send_timeouts >= 1);
        assert!(world.hosts[0].driver.connections().is_empty(), "siblings go with it");
        assert_eq!(world.hosts[0].up.down.len(), 1);
    }
}

#[test]
fn progress_extends_the_time_limit() {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    world.settle();
    world.weather(|w| w.window = 1000);
    // 100 kB through a window of 1 kB, a window each 20 s: 40 minutes.
    world.send(0, 1, 1, &[1; 20_000]);
    for _ in 0..25 {
        world.weather(|w| w.dead = true);
        world.pass(secs(20));
        world.weather(|w| w.dead = false);
        world.wake();
        // One look of each side.
        world.turn();
        world.turn();
    }
    world.settle();
    assert_eq!(world.hosts[0].up.outcome(1), Some(Ok(())));
    assert_eq!(world.hosts[0].driver.stats().send_timeouts, 0);
    assert_eq!(world.hosts[1].driver.stats().recv_timeouts, 0);
}

#[test]
fn a_message_with_a_short_limit_leaves_the_queue_without_harm_to_others() {
    let mut world = stalled(&SockConfig::default());
    world.send(0, 1, 1, &[1; 900]);
    world.send(0, 1, 2, &[2; 900]);
    let to = nid(2);
    world.send_with(0, to, 3, &[3; 100], |t| t.timeout = secs(3));
    world.send(0, 1, 4, &[4; 100]);
    world.pass(secs(3));
    assert_eq!(world.fault(0, 3), fault(HealthStatus::LocalTimeout, Errno::ETIMEDOUT));
    world.weather(|w| w.dead = false);
    world.wake();
    world.settle();
    for n in [1, 2, 4] {
        assert_eq!(world.hosts[0].up.outcome(n), Some(Ok(())), "{n}");
    }
    let mut arrived = world.hosts[1].up.arrived();
    arrived.sort_unstable();
    assert_eq!(arrived, [0, 1, 2, 4]);
}

#[test]
fn a_message_that_was_begun_takes_its_connection_along_when_its_limit_is_over() {
    let mut world = stalled(&SockConfig::default());
    let to = nid(2);
    world.send_with(0, to, 1, &[1; 5000], |t| t.timeout = secs(3));
    world.pass(secs(3));
    assert_eq!(world.fault(0, 1), fault(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT));
    assert!(world.hosts[0].driver.connections().is_empty());
}

/// RS-061.
#[test]
fn a_limit_that_is_over_closes_the_connections_to_that_peer_and_no_others() {
    let mut world = World::new(1);
    for n in 1..=3 {
        world.host(SockConfig::default(), ni_start(n));
    }
    world.send(0, 1, 0, b"hello");
    world.send(0, 2, 1, b"hello");
    world.settle();
    let connections = |world: &World, n: u8| {
        let all = world.hosts[0].driver.connections();
        all.iter().filter(|c| c.peer.nid == nid(n)).count()
    };
    let (before, others) = (connections(&world, 2), connections(&world, 3));
    assert!(before > 0 && others > 0);
    world.weather(|w| {
        w.window = 1000;
        w.dead = true;
    });
    world.send_with(0, nid(2), 2, &[1; 5000], |t| t.timeout = secs(3));
    world.pass(secs(3));
    assert_eq!(world.fault(0, 2), fault(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT));
    assert_eq!((connections(&world, 2), connections(&world, 3)), (0, others));
}

#[test]
fn a_message_that_stops_arriving_closes_the_connection() {
    let mut world = World::new(1);
    // The scripted peer would not read keepalives.
    let config = SockConfig { keepalive: Duration::ZERO, ..SockConfig::default() };
    world.host(config, ni_start(1));
    let mut raw =
        crate::raw_peer::accepted(&mut world, Version::V3, lnet_wire::sock::ConnType::CONTROL);
    let put =
        crate::raw_peer::wire_put(Version::V3, lnet_wire::sock::FrameHdr::lnet(0, 0), 1, &[0; 100]);
    raw.write(&put[..150]);
    world.pass(secs(40));
    raw.write(&put[150..151]);
    world.pass(secs(50) - Duration::from_nanos(1));
    assert_eq!(raw.look(), Stands::Open, "each byte begins the time anew");
    world.pass(Duration::from_nanos(1));
    assert_ne!(raw.look(), Stands::Open);
    assert_eq!(world.hosts[0].driver.stats().recv_timeouts, 1);
    let outcome = world.hosts[0].up.received[0].outcome.clone();
    assert_eq!(outcome, Some(Err(fault(HealthStatus::RemoteError, Errno::EIO))));
}

#[test]
fn silence_is_broken_by_a_noop_every_thirty_seconds() {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    world.pass(secs(29));
    let sent = |w: &World, host: usize| w.hosts[host].driver.stats().keepalives_sent;
    assert_eq!((sent(&world, 0), sent(&world, 1)), (0, 0));
    world.pass(secs(3));
    let both = sent(&world, 0) + sent(&world, 1);
    assert!(both >= 1, "one side breaks the silence, and the other has heard it");
    world.pass(secs(120));
    let more = sent(&world, 0) + sent(&world, 1) - both;
    assert!((3..=8).contains(&more), "{more} in two minutes");
    for host in [0, 1] {
        assert_eq!(world.hosts[host].driver.connections().len(), 3);
    }
    let heard = |host: usize| world.hosts[host].driver.stats().keepalives_received;
    assert_eq!(heard(0) + heard(1), sent(&world, 0) + sent(&world, 1));
}

#[test]
fn keepalives_can_be_turned_off() {
    let mut world = World::new(1);
    for n in [1, 2] {
        let config = SockConfig { keepalive: Duration::ZERO, ..SockConfig::default() };
        world.host(config, ni_start(n));
    }
    world.send(0, 1, 0, b"hello");
    world.pass(secs(1000));
    let sent = |host: usize| world.hosts[host].driver.stats().keepalives_sent;
    assert_eq!(sent(0) + sent(1), 0);
}

#[test]
fn a_refused_race_is_tried_again_after_a_second() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    let mut raw = Raw::listen(&world, addr(9));
    world.send_with(0, nid(9), 1, b"x", |_| ());
    world.settle();
    let refusal = crate::raw_peer::hello_bytes_of(9, lnet_wire::sock::ConnType::NONE);
    for n in 0..2 {
        assert!(raw.accept(), "attempt {n}");
        raw.write(&refusal);
        raw.close();
        world.pass(Duration::from_millis(999));
        assert!(!raw.accept());
        world.pass(Duration::from_millis(1));
    }
    // The third in a row is a failure.
    assert!(raw.accept());
    raw.write(&refusal);
    raw.close();
    world.settle();
    assert_eq!(world.fault(0, 1), fault(HealthStatus::LocalError, Errno::EALREADY));
    assert_eq!(world.hosts[0].driver.stats().dial_retries, 3);
}

#[test]
fn many_idle_peers_are_not_walked() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    let others = 60;
    for n in 2..2 + others {
        world.host(SockConfig::default(), ni_start(n));
    }
    for n in 0..u64::from(others) {
        world.send(0, 1 + n as usize, n, b"hello");
    }
    world.settle();
    assert_eq!(world.hosts[0].driver.connections().len(), 3 * usize::from(others));
    let reads = world.hosts[0].driver.stats().reads;
    let now = world.now;
    for _ in 0..1000 {
        world.call(0, |driver, up| {
            let mut mem = crate::support::upstairs::NoMem;
            driver.turn(now, &[], true, up, &mut mem);
            driver.flush(now, up, &mut mem);
        });
    }
    let spent = world.hosts[0].driver.stats().reads - reads;
    assert!(spent <= 8 * 1000, "{spent} reads in 1000 spinning turns");
    // And the next thing to do is a keepalive, not a look at each.
    let next = world.hosts[0].driver.poll_timeout().expect("keepalives are on");
    assert!(next > now + secs(10), "{now} {next}");
}

#[test]
fn stopping_an_interface_ends_everything_on_it() {
    let mut world = stalled(&SockConfig::default());
    world.hosts[1].up.decisions = vec![Decision::Defer];
    world.send(0, 1, 1, &[1; 5000]);
    world.settle();
    world.send_with(0, nid(9), 2, b"waits", |_| ());
    world.turn();
    let now = world.now;
    world.call(0, |driver, up| driver.ni_stop(now, ni(1), up));
    let stopped = fault(HealthStatus::RemoteDropped, Errno::ENETDOWN);
    assert_eq!(world.fault(0, 1), stopped);
    assert_eq!(world.fault(0, 2), stopped);
    assert!(world.hosts[0].up.out.is_empty());
    assert!(world.hosts[0].driver.peers().is_empty());
    assert_eq!(lnet::Driver::lnd_timeout(&world.hosts[0].driver, ni(1)), None);
    world.send_with(0, nid(9), 3, b"late", |_| ());
    assert_eq!(world.fault(0, 3), stopped);
    // The address is free again.
    let start = ni_start(1);
    world.hosts[0].driver.ni_start(Instant::ZERO, start).expect("it can be started again");
}
