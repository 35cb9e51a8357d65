//! Attempts that fail at once, where there is no other path: spread, woken by news, and over at the
//! message's deadline.

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus};

use super::world::{Fate, World, nid};
use crate::timers::TimerKind;
use crate::{EventKind, Link, Profile, Transmit};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.78.0.2@tcp1"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.78.0.3@tcp1"];
const MS: Duration = Duration::from_millis(1);

fn refused() -> Fault {
    Fault::new(HealthStatus::RemoteDropped, Errno::ECONNREFUSED)
}

/// Two hosts with a rail on each of two networks, that know each other; the transaction takes 6 s and
/// three attempts, so that each has 2 s.
fn pair(profile: Profile) -> World {
    let mut w = World::new();
    w.host(profile, &A);
    w.host(profile, &B);
    w.discovered(0, B[0]);
    let times = [("transaction_timeout", 6), ("retry_count", 2)];
    w.hosts[0].node.set_tunables(w.now, &times).unwrap();
    w
}

fn refuse_all(w: &mut World) {
    w.decide = Box::new(|_| Fate::Fail(refused()));
}

fn light(w: &mut World) {
    w.decide = Box::new(|_| Fate::Pass);
}

fn tries(w: &World) -> usize {
    w.pairs(0).len()
}

#[test]
fn attempts_without_another_path_are_spread_over_the_messages_time() {
    let mut w = pair(Profile::Default);
    w.hosts[0].node.set_tunables(w.now, &[("retry_count", 3)]).unwrap();
    refuse_all(&mut w);
    w.put(0, B[0], 7, true);
    // Each rail at once, the third at two of four shares of 6 s, the last half a share before its end.
    for (at, n) in [(0, 2), (2900, 2), (3100, 3), (5200, 3)] {
        w.run(MS * at - (w.now.saturating_since(lnet_types::Instant::from_secs(11))));
        assert_eq!(tries(&w), n, "after {at} ms");
    }
    light(&mut w);
    w.run(MS * 100);
    assert_eq!(tries(&w), 4);
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
    assert_eq!(w.hosts[0].node.stats().resend_count, 3);
}

#[test]
fn a_link_that_is_back_wakes_resting_messages() {
    let mut w = pair(Profile::Default);
    refuse_all(&mut w);
    for n in A {
        w.link(0, n, Link::Down);
    }
    w.put(0, B[0], 7, true);
    w.secs(1);
    assert_eq!(w.events(0, 7), []);
    light(&mut w);
    w.link(0, A[1], Link::Up);
    w.run(MS * 10);
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
}

#[test]
fn a_sign_of_life_of_the_peer_wakes_resting_messages() {
    let mut w = pair(Profile::Default);
    refuse_all(&mut w);
    w.put(0, B[0], 7, true);
    w.put(0, B[0], 8, true);
    w.run(MS * 900);
    assert_eq!((tries(&w), w.events(0, 7)), (4, vec![]));
    light(&mut w);
    w.put(1, A[0], 9, true);
    w.run(MS * 50);
    for user in [7, 8] {
        let ends = [(EventKind::Send, true, false), (EventKind::Ack, true, true)];
        assert_eq!(w.events(0, user), ends);
    }
    assert_eq!(w.hosts[0].node.stats().failed_resends, 0);
}

#[test]
fn a_message_received_at_the_time_of_a_failure_is_no_sign_of_life() {
    let mut w = pair(Profile::Default);
    let us = w.hosts[0].nids.keys().copied().collect::<Vec<_>>();
    w.decide = Box::new(move |t| {
        let ours = us.contains(&t.ni) && t.to.nid.to_string().contains(".3@");
        if ours { Fate::Fail(refused()) } else { Fate::Pass }
    });
    w.put(0, B[0], 7, false);
    w.put(1, A[0], 8, false);
    w.run(MS * 40);
    assert_eq!(tries(&w), 2);
    w.put(1, A[0], 9, false);
    w.run(MS * 40);
    assert_eq!(tries(&w), 2);
    w.put(1, A[0], 10, false);
    w.run(MS * 40);
    assert_eq!(tries(&w), 3, "that one was later");
}

#[test]
fn messages_that_rest_for_one_peer_cost_no_lookup_when_another_is_heard() {
    let mut w = pair(Profile::Default);
    let c = w.host(Profile::Default, &["10.77.0.4@tcp"]);
    w.discovered(c, A[0]);
    let is_for_b = |t: &Transmit| B.iter().any(|b| nid(b) == t.to.nid);
    w.decide = Box::new(move |t| if is_for_b(t) { Fate::Fail(refused()) } else { Fate::Pass });
    for user in 0..1000 {
        w.put(0, B[0], user, true);
    }
    let node = |w: &World| {
        let node = &w.hosts[0].node;
        (node.timers.count(TimerKind::Backoff), node.peers.lookups.0.get())
    };
    let (resting, before) = node(&w);
    assert_eq!(resting, 1000);
    w.put(c, A[0], 1, false);
    w.run(MS * 5);
    let events = w.hosts[0].events.iter();
    assert_eq!(events.filter(|e| e.kind == EventKind::Put).count(), 1);
    let (resting, after) = node(&w);
    assert_eq!(resting, 1000);
    assert!(after - before < 20, "{} lookups", after - before);
}

#[test]
fn a_resting_message_ends_with_one_error_at_its_deadline() {
    let mut w = pair(Profile::Default);
    refuse_all(&mut w);
    w.put(0, B[0], 7, false);
    w.run(MS * 4990);
    assert_eq!(w.events(0, 7), []);
    w.run(MS * 20);
    assert_eq!(w.events(0, 7), [(EventKind::Send, false, true)]);
    assert_eq!((tries(&w), w.hosts[0].node.stats().failed_resends), (3, 1));
    assert_eq!(w.hosts[0].node.timers.count(TimerKind::Backoff), 0);
}

#[test]
fn crossed_paths_of_tried_interfaces_wake_no_resting_message() {
    let (a, b) = (["10.77.0.2@tcp", "10.77.1.2@tcp"], ["10.77.0.3@tcp", "10.77.1.3@tcp"]);
    let mut w = World::new();
    w.host(Profile::Default, &a);
    w.host(Profile::Default, &b);
    w.discovered(0, b[0]);
    refuse_all(&mut w);
    w.put(0, b[0], 7, true);
    w.run(MS * 500);
    assert_eq!(tries(&w), 2, "all four ends were tried");
    light(&mut w);
    w.put(1, a[0], 9, true);
    w.run(MS * 50);
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
}

#[test]
fn kernel_like_nodes_use_up_their_attempts_at_once() {
    for profile in [Profile::Kernel, Profile::Documents] {
        let mut w = pair(profile);
        refuse_all(&mut w);
        w.put(0, B[0], 7, false);
        w.run(MS * 10);
        assert_eq!(w.events(0, 7), [(EventKind::Send, false, true)], "{profile:?}");
    }
}

#[test]
fn shutting_down_ends_resting_messages() {
    let mut w = pair(Profile::Default);
    refuse_all(&mut w);
    w.put(0, B[0], 7, false);
    w.run(MS * 10);
    w.hosts[0].node.shutdown(w.now);
    w.drain();
    assert_eq!(w.events(0, 7), [(EventKind::Send, false, true)]);
    assert_eq!(w.hosts[0].node.timers.count(TimerKind::Backoff), 0);
}

#[test]
fn the_last_attempt_is_not_wasted_on_a_rail_whose_far_end_is_known_to_be_down() {
    let mut w = pair(Profile::Default);
    // The second rail has no listener, and the first has the better health in spite of its
    // failures.
    let (now, h) = (w.now, &mut w.hosts[0]);
    let (&second, _) = h.nids.iter().find(|(_, n)| **n == nid(A[1])).unwrap();
    h.node.peer_down(now, second, nid(B[1]), now);
    h.node.set_peer_ni_health(now, Some(nid(B[1])), 500);
    refuse_all(&mut w);
    w.put(0, B[0], 7, true);
    w.run(MS * 100);
    assert_eq!(w.pairs(0).iter().map(|p| p.1.as_str()).collect::<Vec<_>>(), [B[0], B[0]]);
    light(&mut w);
    w.secs(6);
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
}

/// M-43, M-47: nothing holds the memory of a message that rests.
#[test]
fn a_message_whose_descriptor_is_unlinked_while_it_rests_ends_at_once() {
    let mut w = pair(Profile::Default);
    refuse_all(&mut w);
    w.put(0, B[0], 7, true);
    w.put(0, B[0], 8, true);
    w.run(MS * 10);
    let now = w.now;
    let node = &mut w.hosts[0].node;
    assert_eq!(node.timers.count(TimerKind::Backoff), 2);
    let md = node.msgs.values().find(|m| m.ev.hdr_data == 7).and_then(|m| m.md).unwrap();
    node.unlink(now, md).unwrap();
    w.drain();
    let ends: Vec<_> = w.hosts[0].events.iter().map(|e| (e.user, e.status, e.unlinked)).collect();
    assert_eq!(ends, [(7, Err(Errno::ECANCELED), true)]);
    let node = &w.hosts[0].node;
    assert_eq!((node.timers.count(TimerKind::Backoff), node.stats().resend_count), (1, 2));
}
