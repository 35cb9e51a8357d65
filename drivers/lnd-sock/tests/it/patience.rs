//! How long connections that fall silent are kept (DEC-47), in virtual time.

use core::time::Duration;

use lnd_sock::{SockConfig, Suspicion, TimeLimits};
use lnet_types::{Errno, Fault, HealthStatus};

use crate::support::{World, ni, ni_start, nid};

const LIMITS: Suspicion = Suspicion { after: Duration::from_millis(50), rtts: 8 };
const TIMES: TimeLimits = TimeLimits {
    connect: Duration::from_millis(1500),
    reconnect: Duration::from_millis(1500),
    rto_max: Duration::ZERO,
};

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Two hosts that suspect, with an LND timeout of 49 s and all connections up.
fn pair() -> World {
    let mut world = World::new(1);
    for n in 1..=2 {
        let start = lnd_sock::NiStart { lnd_timeout: secs(49), ..ni_start(n) };
        world.host(SockConfig::default(), start);
    }
    for host in 0..2 {
        world.call(host, |driver, _| {
            driver.set_suspicion(Some(LIMITS));
            driver.set_time_limits(TIMES);
        });
    }
    world.send(0, 1, 0, b"hello");
    world.send(0, 1, 1, &[7; 5000]);
    world.pass(Duration::from_millis(100));
    world
}

/// Sends from host 0 to host 1 with a limit of `limit`; `repeats`: the peer suppresses duplicates.
fn send(world: &mut World, number: u64, payload: &[u8], limit: Duration, repeats: bool) {
    world.send_with(0, nid(2), number, payload, |t| (t.timeout, t.repeats) = (limit, repeats));
}

fn fall_silent(world: &World, window: usize) {
    world.weather(|w| (w.dead, w.window) = (true, window));
}

fn come_back(world: &World) {
    world.weather(|w| (w.dead, w.window) = (false, 1 << 20));
    world.wake();
}

#[test]
fn a_silent_connection_to_a_peer_without_deduplication_is_kept_and_delivers_all_when_the_rail_is_back()
 {
    let mut world = pair();
    fall_silent(&world, 1000);
    for n in 2..6 {
        send(&mut world, n, &[n as u8; 3000], secs(49), false);
    }
    world.pass(secs(20));
    assert_eq!(world.hosts[0].driver.stats().closed, 0, "nothing is certain");
    come_back(&world);
    world.settle();
    let mut arrived = world.hosts[1].up.arrived();
    arrived.sort_unstable();
    assert_eq!(arrived, [0, 1, 2, 3, 4, 5]);
    assert_eq!(world.payload(1, 2), Some(vec![2; 3000]));
}

#[test]
fn a_silent_connection_ends_when_the_lnd_timeout_is_over() {
    let mut world = pair();
    fall_silent(&world, 1000);
    send(&mut world, 2, &[2; 3000], secs(150), false);
    world.pass(secs(48));
    assert_eq!(world.hosts[0].driver.stats().closed, 0);
    world.pass(secs(150));
    assert!(world.hosts[0].driver.stats().closed > 0);
}

#[test]
fn a_late_message_that_was_begun_fails_alone_and_its_connection_goes_on() {
    let mut world = pair();
    fall_silent(&world, 1000);
    send(&mut world, 2, &[2; 3000], secs(3), false);
    send(&mut world, 3, &[3; 3000], secs(49), false);
    world.pass(secs(4));
    let late = Fault::new(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT);
    assert_eq!(world.fault(0, 2), late);
    assert_eq!(world.hosts[0].up.outcome(3), None, "it has its time");
    assert_eq!(world.hosts[0].driver.stats().closed, 0);
    come_back(&world);
    world.settle();
    // Its frame is completed with bytes of the driver's own.
    assert_eq!(world.payload(1, 2), Some(vec![2; 3000]));
    assert_eq!(world.payload(1, 3), Some(vec![3; 3000]));
    assert_eq!(world.hosts[0].up.outcome(3), Some(Ok(())));
}

#[test]
fn a_silent_connection_to_a_peer_that_deduplicates_is_replaced_and_its_messages_go_by_the_next() {
    let mut world = pair();
    fall_silent(&world, 1000);
    for n in 2..6 {
        send(&mut world, n, &[n as u8; 3000], secs(49), true);
    }
    world.pass(secs(5));
    assert!(world.hosts[0].driver.stats().closed > 0, "it was silent for longer than its limit");
    for n in 2..6 {
        assert_eq!(world.hosts[0].up.outcome(n), None, "{n}: no attempt has failed");
    }
    // What the other host learns of its old connections, it learns before it is reached again.
    let now = world.now;
    world.call(1, |driver, up| driver.kill_connections(now, ni(1), up));
    come_back(&world);
    world.pass(secs(2));
    let mut arrived = world.hosts[1].up.arrived();
    arrived.sort_unstable();
    assert_eq!(arrived, [0, 1, 2, 3, 4, 5]);
    for n in 2..6 {
        assert_eq!(world.hosts[0].up.outcome(n), Some(Ok(())), "{n}");
        assert_eq!(world.payload(1, n), Some(vec![n as u8; 3000]), "{n}");
    }
}

#[test]
fn a_message_of_a_replaced_connection_fails_when_its_own_limit_is_over() {
    let mut world = pair();
    fall_silent(&world, 1000);
    send(&mut world, 2, &[2; 3000], secs(10), true);
    world.pass(secs(9));
    assert_eq!(world.hosts[0].up.outcome(2), None);
    world.pass(secs(2));
    let unsent = Fault::new(HealthStatus::RemoteDropped, Errno::ETIMEDOUT);
    assert_eq!(world.fault(0, 2), unsent);
}
