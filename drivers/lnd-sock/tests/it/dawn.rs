//! Connections after an outage, while rails are suspected: a race is not reported, attempts that
//! were lost on the way are begun anew, and what one side has lost the other lets go.

use core::time::Duration;

use lnd_sock::{Refusal, SockConfig, Suspicion};
use lnet::Doubt;
use lnet_types::Errno;
use lnet_wire::sock::{ConnType, FrameHdr, Hello, Version};

use crate::raw_peer::{accepted, bytes_of, hello, hello_bytes_of, request, wire_put};
use crate::support::{Decision, Raw, Stands, World, addr, ni_start, nid};

const LIMITS: Suspicion = Suspicion { after: Duration::from_millis(50), rtts: 8 };

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn suspecting(hosts: &[u8]) -> World {
    let mut world = World::new(1);
    for n in hosts {
        let host = world.host(SockConfig::default(), ni_start(*n));
        world.call(host, |driver, _| driver.set_suspicion(Some(LIMITS)));
    }
    world
}

fn doubts(world: &World, host: usize) -> Vec<Doubt> {
    world.hosts[host].up.rails.iter().map(|(_, doubt, _)| *doubt).collect()
}

#[test]
fn a_race_that_is_lost_again_and_again_is_waited_out_and_its_rail_counts_as_silent() {
    let mut world = suspecting(&[1]);
    let mut raw = Raw::listen(&world, addr(9));
    world.send_with(0, nid(9), 1, b"x", |_| ());
    world.settle();
    for n in 0..30 {
        assert!(raw.accept(), "attempt {n}");
        raw.write(&hello_bytes_of(9, ConnType::NONE));
        raw.close();
        world.pass(ms(100));
        assert_eq!(world.hosts[0].up.outcome(1), None, "attempt {n}");
    }
    assert_eq!(doubts(&world, 0), [Doubt::Silent], "what waits may go another way");
    assert!(raw.accept());
    raw.write(&hello_bytes_of(9, ConnType::CONTROL));
    world.settle();
    assert_eq!(world.hosts[0].up.outcome(1), Some(Ok(())));
    assert_eq!(doubts(&world, 0), [Doubt::Silent, Doubt::Unproven], "reported with the connection");
}

#[test]
fn a_message_hears_of_no_race_when_the_time_of_all_attempts_is_over() {
    let mut world = suspecting(&[]);
    let start = lnd_sock::NiStart { lnd_timeout: ms(250), ..ni_start(1) };
    let host = world.host(SockConfig::default(), start);
    world.call(host, |driver, _| driver.set_suspicion(Some(LIMITS)));
    let mut raw = Raw::listen(&world, addr(9));
    world.send_with(0, nid(9), 1, b"x", |t| t.timeout = ms(1000));
    for _ in 0..100 {
        if raw.accept() {
            raw.write(&hello_bytes_of(9, ConnType::NONE));
            raw.close();
        }
        world.pass(ms(10));
    }
    assert_eq!(world.fault(0, 1).errno, Errno::ETIMEDOUT);
    let took = world.hosts[0].driver.stats().dial_retries;
    assert!(took >= 6, "it went on beyond the time of the first attempts: {took}");
}

#[test]
fn an_attempt_that_was_lost_is_begun_anew_when_the_peer_reaches_us() {
    let mut world = suspecting(&[1, 2]);
    world.weather(|w| w.lost = true);
    world.send(1, 0, 1, b"lost on the way");
    world.pass(ms(60));
    world.weather(|w| w.lost = false);
    world.send(0, 1, 2, b"gets through");
    world.settle();
    assert_eq!(world.hosts[1].driver.stats().refused(Refusal::Race), 1, "the higher NID refuses");
    assert_eq!(world.hosts[0].up.arrived(), [1]);
    assert_eq!(world.hosts[1].up.arrived(), [2], "over the connection of the other side");
}

#[test]
fn an_attempt_that_has_just_begun_is_left_alone() {
    let mut world = suspecting(&[1, 2]);
    world.weather(|w| w.lost = true);
    world.send(1, 0, 1, b"x");
    world.pass(ms(40));
    world.weather(|w| w.lost = false);
    world.send(0, 1, 2, b"x");
    world.settle();
    assert_eq!(world.hosts[1].driver.stats().dialed, 1);
    assert_eq!(world.hosts[0].up.arrived(), []);
    world.pass(ms(200));
    assert_eq!((world.hosts[0].up.arrived(), world.hosts[1].up.arrived()), (vec![1], vec![2]));
}

/// A new connection of a peer at `10.0.0.9`: what it is answered, and how it stands.
fn connects_again(world: &mut World) -> (ConnType, Stands) {
    let mut raw = Raw::connect(world, addr(9), addr(1), true);
    raw.write(&request(nid(1)));
    raw.write(&bytes_of(&hello(9, Version::V3, ConnType::CONTROL)));
    world.settle();
    let stands = raw.look();
    (Hello::parse(&raw.got).expect("a HELLO").0.conn_type, stands)
}

#[test]
fn a_connection_that_its_peer_has_lost_makes_room_for_a_new_one() {
    let mut world = suspecting(&[1]);
    let _gone = accepted(&mut world, Version::V3, ConnType::CONTROL);
    world.send_with(0, nid(9), 1, b"into the void", |_| ());
    world.pass(ms(40));
    let again = connects_again(&mut world);
    assert_eq!(again, (ConnType::NONE, Stands::Eof), "it may be as well as can be");
    world.pass(ms(40));
    assert_eq!(connects_again(&mut world), (ConnType::CONTROL, Stands::Open));
    assert_eq!(world.hosts[0].up.lost, [nid(9)], "what was written to it is in doubt");
    assert_eq!(world.hosts[0].driver.connections().len(), 1);
}

#[test]
fn a_connection_that_makes_room_for_a_new_one_is_read_to_its_end() {
    let mut world = suspecting(&[1]);
    let mut gone = accepted(&mut world, Version::V3, ConnType::CONTROL);
    world.hosts[0].up.decisions = vec![Decision::Defer, Decision::Keep];
    for n in 1..4 {
        gone.write(&wire_put(Version::V3, FrameHdr::lnet(0, 0), n, b"acknowledged by our system"));
    }
    world.send_with(0, nid(9), 9, b"into the void", |_| ());
    world.pass(ms(80));
    assert_eq!(connects_again(&mut world), (ConnType::CONTROL, Stands::Open));
    assert_eq!(world.hosts[0].driver.connections().len(), 1);
    assert_eq!(world.hosts[0].up.arrived(), [], "the first still waits for a buffer");
    world.resume(0, 0, &Decision::Keep);
    assert_eq!(world.hosts[0].up.arrived(), [1, 2, 3]);
}

/// Its system acknowledges what arrives, whether or not its process comes to read it.
#[test]
fn what_was_acknowledged_and_not_answered_is_in_doubt_when_its_connection_is_reset() {
    let mut world = suspecting(&[1]);
    let mut raw = accepted(&mut world, Version::V3, ConnType::CONTROL);
    world.weather(|w| w.taken = true);
    world.send_with(0, nid(9), 1, b"taken and never read", |_| ());
    world.pass(ms(200));
    assert_eq!(world.hosts[0].up.lost, []);
    // Unread bytes make it a reset.
    raw.close();
    world.settle();
    assert_eq!(world.hosts[0].up.lost, [nid(9)]);
}

#[test]
fn a_doubted_peer_that_has_always_connected_to_us_is_remembered() {
    let mut world = suspecting(&[1, 2]);
    world.send(0, 1, 1, b"hello");
    world.pass(ms(100));
    world.weather(|w| w.dead = true);
    world.send(1, 0, 2, b"into the void");
    world.pass(ms(100));
    world.break_all(Errno::ETIMEDOUT);
    world.weather(|w| {
        w.dead = false;
        w.lost = true;
    });
    world.wake();
    world.pass(ms(500));
    assert!(world.hosts[1].driver.connections().is_empty());
    assert_eq!(doubts(&world, 1), [Doubt::Silent], "no better for having lost its connections");
    assert!(world.hosts[1].driver.stats().dialed > 0, "it is asked for proof");
}

/// The end of a process is no fault of the way to it.
#[test]
fn another_life_of_a_peer_is_above_the_doubts_of_the_one_before() {
    for (incarnation, expected) in [(0, Doubt::Unproven), (1, Doubt::None)] {
        let mut world = suspecting(&[1]);
        let gone = accepted(&mut world, Version::V3, ConnType::CONTROL);
        world.weather(|w| w.dead = true);
        world.send_with(0, nid(9), 1, b"into the void", |_| ());
        world.pass(ms(100));
        assert_eq!(doubts(&world, 0), [Doubt::Silent]);
        world.weather(|w| w.dead = false);
        let mut again = hello(9, Version::V3, ConnType::CONTROL);
        again.src_incarnation += incarnation;
        // The first one makes the old connections go.
        for _ in 0..2 {
            let mut raw = Raw::connect(&world, addr(9), addr(1), true);
            raw.write(&request(nid(1)));
            raw.write(&bytes_of(&again));
            world.settle();
        }
        drop(gone);
        assert_eq!(doubts(&world, 0), [Doubt::Silent, expected], "incarnation {incarnation}");
    }
}
