//! Rails that fall silent, lose, and come back, in virtual time (DEC-31).

use core::time::Duration;

use lnd_sock::{SockConfig, Suspicion};
use lnet::{Doubt, InDoubt, Payload, Retention};
use lnet_types::{Errno, Instant, ProcessId};
use lnet_wire::{Handle, Kind};

use crate::support::upstairs::number_of;
use crate::support::{Raw, World, addr, ni, ni_start, nid};

const LIMITS: Suspicion = Suspicion { after: Duration::from_millis(50), rtts: 8 };

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Two hosts that suspect, with all connections up.
fn pair() -> World {
    let mut world = World::pair(1);
    for host in 0..2 {
        world.call(host, |driver, _| driver.set_suspicion(Some(LIMITS)));
    }
    world.send(0, 1, 0, b"hello");
    world.send(0, 1, 1, &[7; 5000]);
    world.pass(ms(100));
    assert!(world.hosts[0].up.rails.is_empty(), "nothing speaks against the rail");
    world
}

/// What host 0 has said of rails, and how long after `since`.
fn said(world: &World, since: Instant) -> Vec<(Doubt, Duration)> {
    world.hosts[0].up.rails.iter().map(|(_, d, at)| (*d, at.saturating_since(since))).collect()
}

#[test]
fn a_rail_is_silent_when_its_oldest_byte_is_older_than_the_limit_and_not_before() {
    for (rtt, limit) in [(0, 50), (1, 50), (10, 80), (40, 320)] {
        let mut world = pair();
        world.weather(|w| {
            w.dead = true;
            (w.transport.rtt, w.transport.rtt_min) = (ms(rtt), ms(rtt));
        });
        let cut = world.now;
        world.send(0, 1, 2, b"into the void");
        world.pass(ms(limit));
        assert_eq!(said(&world, cut), [], "round trips of {rtt} ms");
        // Looks are a quarter of the shortest limit apart.
        world.pass(ms(13));
        let said = said(&world, cut);
        assert!(matches!(said[..], [(Doubt::Silent, _)]), "round trips of {rtt} ms: {said:?}");
    }
}

#[test]
fn steady_traffic_hides_no_silence() {
    let mut world = pair();
    for n in 0..20 {
        world.send(0, 1, 10 + n, b"tick");
        world.pass(ms(5));
    }
    world.weather(|w| w.dead = true);
    let cut = world.now;
    for n in 0..20 {
        world.send(0, 1, 100 + n, b"tick");
        world.pass(ms(5));
    }
    let said = said(&world, cut);
    assert!(matches!(said[..], [(Doubt::Silent, at)] if at > ms(50) && at <= ms(75)), "{said:?}");
}

#[test]
fn an_attempt_that_is_not_answered_makes_the_rail_silent_and_its_messages_can_be_had_back() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    world.call(0, |driver, _| driver.set_suspicion(Some(LIMITS)));
    let _raw = Raw::listen(&world, addr(9));
    world.weather(|w| w.dead = true);
    let cut = world.now;
    world.send_with(0, nid(9), 1, b"x", |_| ());
    world.pass(ms(50));
    assert_eq!(said(&world, cut), []);
    world.pass(ms(13));
    assert_eq!(said(&world, cut).len(), 1);
    let msg = *world.hosts[0].up.out.first_key_value().expect("it waits").0;
    let to = ProcessId::lustre(nid(9));
    assert!(world.call(0, |driver, _| driver.recall(ni(1), to, msg)));
    assert!(!world.call(0, |driver, _| driver.recall(ni(1), to, msg)), "it is gone");
    world.pass(Duration::from_secs(100));
    assert_eq!(world.hosts[0].up.outcome(1), None, "what was given back is not reported");
    assert_eq!(world.hosts[0].driver.stats().msgs_recalled, 1);
}

/// An interface that was taken from its peer and given back has a new record in the node.
#[test]
fn a_new_record_of_the_node_hears_what_is_thought_of_its_rail() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    world.call(0, |driver, _| driver.set_suspicion(Some(LIMITS)));
    let _raw = Raw::listen(&world, addr(9));
    world.weather(|w| w.dead = true);
    let mut records = slotmap::SlotMap::<lnet_types::PeerNiId, ()>::with_key();
    let (old, new) = (records.insert(()), records.insert(()));
    let cut = world.now;
    let by = |record| move |t: &mut lnet::Transmit| t.peer_ni = Some(record);
    world.send_with(0, nid(9), 1, b"x", by(old));
    world.send_with(0, nid(9), 2, b"x", by(old));
    world.pass(ms(63));
    assert_eq!(said(&world, cut).len(), 1);
    let back = world.now;
    world.send_with(0, nid(9), 3, b"x", by(new));
    world.pass(ms(0));
    assert_eq!(said(&world, back)[1..], [(Doubt::Silent, ms(0))]);
    world.send_with(0, nid(9), 4, b"x", by(new));
    world.pass(ms(1));
    assert_eq!(said(&world, back).len(), 2, "once");
}

#[test]
fn only_messages_without_a_byte_on_the_way_are_given_back() {
    let mut world = pair();
    world.weather(|w| {
        w.window = 300;
        w.dead = true;
    });
    // Written whole, in part, not at all.
    for (n, len) in [(2, 10), (3, 500), (4, 20)] {
        world.send(0, 1, n, &vec![n as u8; len]);
    }
    world.pass(ms(100));
    let to = ProcessId::lustre(nid(2));
    let out = world.hosts[0].up.out.clone();
    assert_eq!(
        out.values().copied().collect::<Vec<_>>(),
        [3, 4],
        "the first is with the transport"
    );
    let had: Vec<u64> = out
        .into_iter()
        .filter(|(msg, _)| world.call(0, |driver, _| driver.recall(ni(1), to, *msg)))
        .map(|(_, n)| n)
        .collect();
    assert_eq!(had, [4]);
    // What remains arrives whole: nothing was torn out of the stream.
    world.weather(|w| {
        w.window = 1 << 20;
        w.dead = false;
    });
    world.wake();
    world.pass(ms(100));
    assert_eq!(world.hosts[1].up.arrived(), [0, 1, 2, 3]);
    assert_eq!(world.payload(1, 3), Some(vec![3; 500]));
}

/// Terms of a message that may be repeated.
const TERMS: Retention =
    Retention { born: Instant::ZERO, until: Instant::FAR_FUTURE, bound: false };

fn numbers(messages: &[InDoubt]) -> Vec<u64> {
    messages.iter().map(|m| number_of(&m.hdr)).collect()
}

/// A pair whose messages are retained from now on, and that has sent two.
fn retaining() -> World {
    let mut world = pair();
    world.hosts[0].up.retention = Some(TERMS);
    world.send(0, 1, 2, b"one");
    world.send(0, 1, 3, &[9; 3000]);
    world.pass(ms(100));
    world
}

#[test]
fn messages_that_the_transport_has_not_acknowledged_are_reclaimed_in_order_and_once() {
    let mut world = retaining();
    world.weather(|w| w.dead = true);
    for n in 4..7 {
        world.send(0, 1, n, &vec![n as u8; 1000 * n as usize]);
    }
    world.pass(ms(100));
    assert_eq!(world.hosts[0].up.outcome(4), Some(Ok(())), "its memory is free again");
    let to = Some(ProcessId::lustre(nid(2)));
    let back = world.call(0, |driver, _| driver.reclaim(ni(1), to));
    assert_eq!(numbers(&back), [4, 5, 6]);
    for (n, m) in (4..).zip(back) {
        let Payload::Bytes(bytes) = m.payload else { panic!("bytes of its own") };
        assert_eq!(*bytes, *vec![n as u8; 1000 * n as usize]);
        assert_eq!((m.ni, m.to), (ni(1), nid(2)));
    }
    assert!(world.call(0, |driver, _| driver.reclaim(ni(1), None)).is_empty());
    assert_eq!(world.hosts[0].driver.stats().msgs_in_doubt, 3);
    // The stream is as it was: what the transport has may arrive all the same.
    world.weather(|w| w.dead = false);
    world.wake();
    world.pass(ms(100));
    assert_eq!(world.hosts[1].up.arrived(), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_connection_that_breaks_hands_back_what_is_in_doubt_and_nothing_else() {
    let mut world = retaining();
    world.break_all(Errno::ECONNRESET);
    world.settle();
    assert_eq!(numbers(&world.hosts[0].up.in_doubt), [], "all of it was acknowledged");
    let mut world = retaining();
    world.weather(|w| w.dead = true);
    world.send(0, 1, 4, b"into the void");
    world.hosts[0].up.retention = None;
    world.send(0, 1, 5, b"into the void");
    world.pass(ms(20));
    world.break_all(Errno::ECONNRESET);
    world.weather(|w| w.dead = false);
    world.wake();
    world.settle();
    assert_eq!(numbers(&world.hosts[0].up.in_doubt), [4]);
}

/// Sends a large REPLY.
fn send_reply(world: &mut World, number: u64) {
    let reply = |transmit: &mut lnet::Transmit| {
        let dst = Handle { interface: 1, object: number };
        transmit.hdr.kind = Kind::Reply { dst, pad: [0; 24] };
    };
    world.send_with(0, nid(2), number, &[number as u8; LARGE], reply);
}

/// A world in which a large REPLY was written on a rail that has just died, and a small message behind it.
fn lending() -> World {
    let mut world = retaining();
    world.weather(|w| w.dead = true);
    send_reply(&mut world, 4);
    world.send(0, 1, 5, &[5; 3000]);
    world.settle();
    assert_eq!(world.hosts[0].up.out.len(), 2, "they have not ended");
    world
}

const LARGE: usize = 300_000;

fn own_bytes(message: &InDoubt) -> &[u8] {
    let Payload::Bytes(bytes) = &message.payload else { panic!("bytes of its own") };
    bytes
}

#[test]
fn a_large_reply_ends_when_the_transport_has_acknowledged_it() {
    let mut world = retaining();
    send_reply(&mut world, 4);
    world.pass(ms(2));
    assert_eq!(world.hosts[0].up.outcome(4), Some(Ok(())));
    assert_eq!(world.payload(1, 4), Some(vec![4; LARGE]));
    assert!(world.call(0, |driver, _| driver.reclaim(ni(1), None)).is_empty());
}

#[test]
fn a_large_reply_that_is_not_acknowledged_ends_soon_and_is_reclaimed() {
    let mut world = lending();
    world.pass(ms(3));
    assert_eq!(world.hosts[0].up.outcome(4), None);
    world.pass(ms(3));
    assert_eq!(world.hosts[0].up.outcome(4), Some(Ok(())));
    assert_eq!(world.hosts[0].up.outcome(5), Some(Ok(())));
    let back = world.call(0, |driver, _| driver.reclaim(ni(1), None));
    assert_eq!(numbers(&back), [4, 5]);
    assert_eq!(own_bytes(&back[0]), [4; LARGE]);
}

#[test]
fn a_large_reply_whose_connection_ends_at_once_is_in_doubt_and_ends() {
    let mut world = lending();
    world.break_all(Errno::ECONNRESET);
    world.weather(|w| w.dead = false);
    world.wake();
    world.settle();
    let up = &world.hosts[0].up;
    assert_eq!((up.outcome(4), up.outcome(5)), (Some(Ok(())), Some(Ok(()))));
    assert_eq!(numbers(&up.in_doubt), [4, 5]);
    assert_eq!(own_bytes(&up.in_doubt[0]), [4; LARGE]);
    assert_eq!(world.hosts[0].driver.stats().msgs_in_doubt, 2);
}

#[test]
fn a_large_reply_that_is_reclaimed_at_once_is_in_doubt_and_ends() {
    let mut world = lending();
    let back = world.call(0, |driver, _| driver.reclaim(ni(1), None));
    world.settle();
    let up = &world.hosts[0].up;
    let all: Vec<InDoubt> = back.into_iter().chain(up.in_doubt.iter().cloned()).collect();
    assert_eq!(numbers(&all), [4, 5]);
    assert_eq!(own_bytes(&all[0]), [4; LARGE]);
    assert_eq!((up.outcome(4), up.outcome(5)), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_large_reply_of_an_interface_that_stops_has_ended_and_is_not_in_doubt() {
    let mut world = lending();
    world.call(0, |driver, up| driver.ni_stop(Instant::ZERO + ms(1000), ni(1), up));
    let up = &world.hosts[0].up;
    assert_eq!((up.outcome(4), up.outcome(5)), (Some(Ok(())), Some(Ok(()))));
    assert!(up.in_doubt.is_empty() && up.out.is_empty());
}

#[test]
fn a_connection_that_retains_too_much_writes_no_more_until_something_is_acknowledged() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    world.call(0, |driver, _| driver.set_retained_per_connection(20_000));
    world.host(SockConfig::default(), ni_start(2));
    world.send(0, 1, 0, &[7; 5000]);
    world.pass(ms(100));
    world.hosts[0].up.retention = Some(TERMS);
    world.weather(|w| w.dead = true);
    for n in 1..20 {
        world.send(0, 1, n, &[7; 3000]);
        world.pass(ms(1));
    }
    let written = world.hosts[0].up.ended.len() - 1;
    assert!((5..=7).contains(&written), "{written} messages of 3000 bytes");
    world.weather(|w| w.dead = false);
    world.wake();
    world.pass(ms(200));
    assert_eq!(world.hosts[1].up.arrived().len(), 20);
}

#[test]
fn a_silent_rail_that_heals_is_unproven_and_after_a_second_of_proof_trusted() {
    let mut world = pair();
    world.weather(|w| w.dead = true);
    world.send(0, 1, 2, b"into the void");
    world.pass(ms(200));
    world.weather(|w| w.dead = false);
    world.wake();
    let healed = world.now;
    world.pass(Duration::from_secs(2));
    let said = said(&world, healed);
    let doubts: Vec<Doubt> = said.iter().map(|(doubt, _)| *doubt).collect();
    assert_eq!(doubts, [Doubt::Silent, Doubt::Unproven, Doubt::None]);
    assert!(said[1].1 <= ms(13) && said[2].1 >= ms(1000), "{said:?}");
    assert!(world.hosts[0].driver.stats().keepalives_sent >= 4, "it was asked for proof");
    assert_eq!(world.hosts[1].up.arrived(), [0, 1, 2]);
}

/// A pair whose rail was seen to be fast, has been silent, and carries again.
fn fast_and_healed() -> World {
    let mut world = pair();
    for n in 0..20 {
        world.send(0, 1, 10 + n, &[7; 50_000]);
        world.pass(ms(5));
    }
    world.pass(ms(100));
    assert_eq!(world.hosts[0].up.rails, [], "nothing speaks against the rail");
    world.weather(|w| w.dead = true);
    world.send(0, 1, 2, b"into the void");
    world.pass(ms(200));
    world.weather(|w| w.dead = false);
    world.wake();
    world
}

/// Until the first burst is on its way; how long that took.
fn until_burst(world: &mut World) -> Duration {
    let healed = world.now;
    while world.hosts[0].driver.stats().proof_bursts == 0 {
        world.pass(ms(1));
    }
    world.now.saturating_since(healed)
}

#[test]
fn a_rail_that_was_fast_is_trusted_when_it_has_carried_a_load() {
    let mut world = fast_and_healed();
    let healed = world.now;
    let took = until_burst(&mut world);
    assert!(took >= ms(500), "half of the proof is over: {took:?}");
    world.pass(Duration::from_secs(2));
    let said = said(&world, healed);
    assert!(matches!(said[2..], [(Doubt::None, at)] if at < ms(1100)), "{said:?}");
    assert_eq!(world.hosts[0].driver.stats().proof_bursts, 1);
}

#[test]
fn a_rail_that_carries_a_load_too_slowly_proves_itself_twice_as_long() {
    let mut world = fast_and_healed();
    let healed = world.now;
    while world.hosts[0].driver.stats().proof_bursts == 0 {
        world.weather(|w| w.dead = false);
        world.wake();
        world.settle();
        world.weather(|w| w.dead = true);
        world.pass(ms(1));
    }
    // Late, and not so late that anything else is wrong with it.
    world.pass(ms(48));
    world.weather(|w| w.dead = false);
    world.wake();
    world.pass(Duration::from_secs(4));
    let said = said(&world, healed);
    assert!(matches!(said[2..], [(Doubt::None, at)] if at > ms(2000)), "{said:?}");
    assert_eq!(world.hosts[0].driver.stats().proof_bursts, 2);
}

#[test]
fn a_rail_without_connections_is_asked_for_proof_by_connecting() {
    let mut world = pair();
    world.weather(|w| w.dead = true);
    world.send(0, 1, 2, b"into the void");
    world.pass(ms(100));
    world.break_all(Errno::ETIMEDOUT);
    world.weather(|w| w.dead = false);
    world.wake();
    world.settle();
    assert!(world.hosts[0].driver.connections().is_empty());
    world.pass(Duration::from_secs(5));
    let doubts: Vec<Doubt> = world.hosts[0].up.rails.iter().map(|(_, d, _)| *d).collect();
    assert_eq!(doubts, [Doubt::Silent, Doubt::Unproven, Doubt::None]);
}

#[test]
fn segments_sent_twice_make_a_rail_shaky() {
    let mut world = pair();
    for n in 0..100 {
        world.weather(|w| {
            w.transport.sent += 20;
            w.transport.resent += 2;
        });
        world.send(0, 1, 10 + n, b"tick");
        world.pass(ms(5));
    }
    assert_eq!(world.hosts[0].up.rails.len(), 1);
    assert_eq!(world.hosts[0].up.rails[0].1, Doubt::Shaky);
}

#[test]
fn a_receiver_that_does_not_read_raises_no_suspicion() {
    let mut world = pair();
    world.weather(|w| {
        w.dead = true;
        w.transport.unsent = u64::MAX;
    });
    world.send(0, 1, 2, b"x");
    world.pass(Duration::from_secs(5));
    assert!(world.hosts[0].up.rails.is_empty());
}

#[test]
fn rails_are_watched_only_while_suspicion_is_on() {
    let mut world = World::pair(1);
    world.send(0, 1, 0, b"hello");
    world.settle();
    world.weather(|w| w.dead = true);
    world.send(0, 1, 2, b"x");
    world.pass(Duration::from_secs(5));
    assert!(world.hosts[0].up.rails.is_empty());

    let mut world = pair();
    world.weather(|w| w.dead = true);
    world.send(0, 1, 2, b"x");
    world.pass(ms(100));
    world.call(0, |driver, _| driver.set_suspicion(None));
    world.pass(ms(100));
    let doubts: Vec<Doubt> = world.hosts[0].up.rails.iter().map(|(_, d, _)| *d).collect();
    assert_eq!(doubts, [Doubt::Silent, Doubt::None]);
}

#[test]
fn an_idle_rail_is_not_looked_at() {
    let mut world = pair();
    let before = world.rounds;
    world.pass(Duration::from_secs(20));
    // Keepalives alone, and the sides' examinations.
    assert!(world.rounds - before < 30, "{} rounds", world.rounds - before);
}

#[test]
fn an_unused_rail_is_probed_no_more_and_its_peer_forgotten() {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    world.call(0, |driver, _| driver.set_suspicion(Some(LIMITS)));
    let _raw = Raw::listen(&world, addr(9));
    world.weather(|w| w.dead = true);
    world.send_with(0, nid(9), 1, b"x", |_| ());
    // Its caller's own patience is 1000 s.
    world.pass(Duration::from_secs(1100));
    let doubts: Vec<Doubt> = world.hosts[0].up.rails.iter().map(|(_, d, _)| *d).collect();
    assert_eq!(doubts, [Doubt::Silent, Doubt::None]);
    assert!(world.hosts[0].driver.peers().is_empty());
    assert_eq!(world.hosts[0].driver.poll_timeout(), None);
}
