//! Health and recovery: what failures cost, how interfaces get well.

use super::*;
use crate::{Link, NiState};

/// A node of one interface and its peer of two, discovered.
fn single(profile: Profile) -> World {
    nodes(profile, &A[..1], &B)
}

/// One PUT that fails as `status`, at once.
fn failed_put(w: &mut World, status: HealthStatus) {
    fail_first(w, 1, fault(status));
    w.put(0, B[0], 1, false);
    w.run(MS * 10);
}

/// UG-023, HL-lnt-020.
#[test]
fn each_failure_costs_the_sensitivity_and_health_ends_at_0() {
    let mut w = single(Profile::Documents);
    let mut healths = Vec::new();
    for _ in 0..3 {
        failed_put(&mut w, HealthStatus::LocalError);
        healths.push(w.ni_health(0, A[0]));
    }
    assert_eq!(healths, [900, 800, 700]);
    let mut w = single(Profile::Documents);
    set(&mut w, 0, &[("health_sensitivity", 300)]);
    healths.clear();
    for _ in 0..4 {
        failed_put(&mut w, HealthStatus::LocalError);
        healths.push(w.ni_health(0, A[0]));
    }
    assert_eq!(healths, [700, 400, 100, 0]);
}

/// HLD-010: a driver that knows nothing of health reports errors without a status.
#[test]
fn a_driver_without_health_carries_traffic_and_its_interfaces_stay_at_1000() {
    for profile in [Profile::Default, Profile::Documents, Profile::Kernel] {
        let mut w = single(profile);
        failed_put(&mut w, HealthStatus::Ok);
        assert_eq!((w.ni_health(0, A[0]), w.peer_health(0, B[0])), (1000, 1000), "{profile:?}");
        let before = w.hosts[1].node.stats().recv_count;
        w.put(0, B[0], 1, false);
        w.run(MS * 10);
        assert!(w.hosts[1].node.stats().recv_count > before, "{profile:?}");
        assert_eq!((w.ni_health(0, A[0]), w.peer_health(0, B[0])), (1000, 1000), "{profile:?}");
    }
}

/// HL-lnt-025.
#[test]
fn health_ends_at_1000() {
    let mut w = single(Profile::Documents);
    set(&mut w, 0, &[("health_on_success", 1)]);
    let now = w.now;
    w.hosts[0].node.set_ni_health(now, Some(nid(A[0])), 950);
    w.put(0, B[0], 1, false);
    w.run(MS * 10);
    assert_eq!(w.ni_health(0, A[0]), 1000);
}

/// HL-lnt-015.
#[test]
fn whatever_happens_health_stays_between_0_and_1000() {
    for seed in 1..=30 {
        let mut rng = lnet_types::Prng::new(seed);
        let profile = [Profile::Default, Profile::Documents, Profile::Kernel][seed as usize % 3];
        let mut w = pair(profile);
        set(&mut w, 0, &[("health_sensitivity", 1 + rng.below(1000) as i64)]);
        let (mut weather, bad) = (rng.split(), rng.below(100));
        w.decide = Box::new(move |_| {
            if weather.below(100) < bad {
                Fate::Fail(fault(HealthStatus::ALL[weather.below(11) as usize]))
            } else {
                Fate::Pass
            }
        });
        for i in 0..100 {
            w.put(0, B[rng.below(2) as usize], i, rng.below(2) == 0);
            w.run(MS * rng.below(700) as u32);
            for (a, b) in A.into_iter().zip(B) {
                let (ours, theirs) = (w.ni_health(0, a), w.peer_health(0, b));
                assert!(ours <= 1000 && theirs <= 1000, "seed {seed}: {ours}, {theirs}");
            }
        }
    }
}

/// UG-026.
#[test]
fn with_sensitivity_0_fifty_failures_cost_nothing() {
    let mut w = pair(Profile::Documents);
    set(&mut w, 0, &[("health_sensitivity", 0)]);
    for i in 0..50 {
        failed_put(&mut w, HealthStatus::ALL[1 + i % 10]);
    }
    for (a, b) in A.into_iter().zip(B) {
        assert_eq!((w.ni_health(0, a), w.peer_health(0, b)), (1000, 1000));
    }
}

/// UG-066.
#[test]
fn with_sensitivity_0_nothing_enters_recovery_and_interfaces_take_turns() {
    let mut w = pair(Profile::Documents);
    set(&mut w, 0, &[("health_sensitivity", 0)]);
    for _ in 0..20 {
        failed_put(&mut w, HealthStatus::NetworkTimeout);
        assert_eq!(w.hosts[0].node.recovery_queues(), (vec![], vec![]));
    }
    w.hosts[0].sent.clear();
    for i in 0..100 {
        w.put(0, B[0], i, false);
        w.run(MS * 10);
    }
    let share = |f: fn(&(String, String)) -> bool| w.pairs(0).into_iter().filter(f).count();
    assert_eq!((share(|p| p.0 == A[0]), share(|p| p.1 == B[0])), (50, 50));
}

/// UG-010, UG-011, UG-012.
#[test]
fn out_of_memory_costs_local_health_and_is_not_sent_again() {
    let mut w = pair(Profile::Documents);
    set(&mut w, 0, &[("retry_count", 5)]);
    fail_first(&mut w, 1, Fault::new(HealthStatus::LocalError, Errno::ENOMEM));
    w.put(0, B[0], 1, false);
    w.run(MS * 10);
    let (a, b) = w.pairs(0)[0].clone();
    assert_eq!((w.ni_health(0, &a), w.peer_health(0, &b)), (900, 1000));
    let s = w.hosts[0].node.stats();
    assert_eq!((s.local_error_count, s.resend_count), (1, 0));
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::ENOMEM));
}

/// UG-008, UG-009.
#[test]
fn a_missing_route_costs_our_interface_and_the_next_messages_prefer_the_other() {
    let mut w = pair(Profile::Documents);
    fail_first(&mut w, 1, fault(HealthStatus::LocalNoRoute));
    w.put(0, B[0], 1, false);
    w.run(MS * 10);
    let (a, b) = w.pairs(0)[0].clone();
    assert_eq!((w.ni_health(0, &a), w.peer_health(0, &b)), (900, 1000));
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)]);
    assert_eq!(delivered(&w, 1, EventKind::Put), 1);
    assert_eq!(w.hosts[0].node.stats().resend_count, 1);
    for i in 2..6 {
        w.put(0, B[0], i, false);
        w.run(MS * 10);
    }
    assert!(w.pairs(0)[1..].iter().all(|p| p.0 != a));
}

/// UG-017, UG-018, RS-079 (the first half), MRD-057.
#[test]
fn a_refused_connection_costs_the_peers_interface_and_the_message_takes_another() {
    for dead in B {
        let mut w = pair(Profile::Documents);
        let refused = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNREFUSED);
        fail_to(&mut w, &[dead], refused);
        // Of two messages one meets the dead interface first.
        for i in 1..3 {
            w.put(0, B[0], i, false);
            w.run(MS * 10);
            assert_eq!(w.events(0, i), [(EventKind::Send, true, true)]);
        }
        let alive = B[usize::from(dead == B[0])];
        assert_eq!((w.peer_health(0, dead), w.peer_health(0, alive)), (900, 1000));
        assert_eq!(w.hosts[0].node.stats().resend_count, 1);
        let pairs = w.pairs(0);
        let at = pairs.iter().position(|p| p.1 == dead).unwrap();
        assert_eq!(pairs[at + 1].1, alive, "the second attempt");
    }
}

/// UG-016.
#[test]
fn refusals_and_drops_by_the_remote_side_are_one_class() {
    let mut w = pair(Profile::Documents);
    for errno in [Errno::ECONNREFUSED, Errno::ECONNRESET, Errno::EHOSTUNREACH] {
        fail_first(&mut w, 1, Fault::new(HealthStatus::RemoteDropped, errno));
        w.put(0, B[0], 1, false);
        w.run(MS * 10);
    }
    let s = w.hosts[0].node.stats();
    assert_eq!((s.remote_dropped_count, s.resend_count), (3, 3));
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, true); 3]);
}

/// UG-015.
#[test]
fn a_lost_ack_costs_the_peers_interface_alone() {
    let mut w = pair(Profile::Documents);
    lose(&mut w, MsgType::Ack);
    w.put(0, B[0], 1, true);
    w.secs(5);
    let (a, b) = w.pairs(0)[0].clone();
    assert_eq!((w.ni_health(0, &a), w.peer_health(0, &b)), (1000, 900));
}

/// UG-019.
#[test]
fn a_sole_interface_at_health_0_still_sends() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    for _ in 0..12 {
        failed_put(&mut w, HealthStatus::LocalError);
    }
    assert_eq!(w.ni_health(0, A[0]), 0);
    w.put(0, B[0], 7, true);
    w.run(MS * 10);
    let expected = [(EventKind::Send, true, false), (EventKind::Ack, true, true)];
    assert_eq!(w.events(0, 7), expected);
}

/// UG-006.
#[test]
fn the_healthiest_carries_everything_and_then_the_next_healthiest() {
    let a = ["10.77.0.2@tcp", "10.77.1.2@tcp", "10.77.2.2@tcp"];
    let mut w = nodes(Profile::Documents, &a, &B[..1]);
    // Recovery pings do not come back, so healths stay where they are put.
    w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Pass } else { Fate::Hold });
    let used = |w: &mut World, healths: [u32; 3]| {
        w.hosts[0].sent.clear();
        for i in 0..10 {
            for (n, health) in a.into_iter().zip(healths) {
                let now = w.now;
                w.hosts[0].node.set_ni_health(now, Some(nid(n)), health);
            }
            w.put(0, B[0], i, false);
            w.run(MS * 10);
        }
        let mut from: Vec<_> = w.pairs(0).into_iter().map(|p| p.0).collect();
        assert_eq!(from.len(), 10);
        from.dedup();
        from
    };
    assert_eq!(used(&mut w, [1000, 900, 400]), [a[0]]);
    assert_eq!(used(&mut w, [800, 900, 400]), [a[1]]);
}

/// HLD-024.
#[test]
fn a_range_of_three_times_the_sensitivity_forgives_three_failures() {
    let bad = nid(A[0]);
    let from_bad = |w: &mut World| {
        // Nothing completes, so no health changes any more.
        w.decide = Box::new(|_| Fate::Hold);
        w.hosts[0].sent.clear();
        for i in 0..6 {
            w.put(0, B[0], i, false);
        }
        w.pairs(0).iter().filter(|p| p.0 == A[0]).count()
    };
    for failures in 3..=4 {
        let mut w = pair(Profile::Documents);
        set(&mut w, 0, &[("health_range", 300)]);
        let faulty = fault(HealthStatus::LocalError);
        w.decide = Box::new(move |t| {
            if !is_request(&t.hdr) {
                Fate::Hold
            } else if t.hdr.src == bad {
                Fate::Fail(faulty)
            } else {
                Fate::Pass
            }
        });
        while w.ni_health(0, A[0]) > 1000 - 100 * failures {
            w.put(0, B[0], 1, false);
        }
        assert_eq!(from_bad(&mut w), if failures == 3 { 3 } else { 0 }, "{failures} failures");
    }
}

/// UG-025, for interfaces of peers.
#[test]
fn recovery_takes_ten_pings_at_sensitivity_100_and_twenty_at_50() {
    for (sensitivity, pings) in [(100, 10), (50, 20)] {
        let mut w = pair(Profile::Documents);
        set(&mut w, 0, &[("health_sensitivity", sensitivity)]);
        let now = w.now;
        w.hosts[0].node.set_peer_ni_health(now, Some(nid(B[0])), 0);
        let begin = w.now;
        let mut sent = 0;
        while w.peer_health(0, B[0]) < 1000 {
            w.run(MS * 100);
            sent = w.hosts[0].sent.iter().filter(|(_, h)| h.dst == nid(B[0])).count();
            assert!(w.now.saturating_since(begin) < Duration::from_secs(30));
        }
        assert_eq!(sent, pings, "sensitivity {sensitivity}");
        let took = w.now.saturating_since(begin).as_millis();
        assert!((pings as u128 * 1000..=pings as u128 * 1000 + 200).contains(&took), "{took} ms");
    }
}

/// UG-031, for interfaces of peers.
#[test]
fn five_good_pings_bring_500_to_1000_and_out_of_the_queue() {
    let mut w = pair(Profile::Documents);
    let now = w.now;
    w.hosts[0].node.set_peer_ni_health(now, Some(nid(B[0])), 500);
    let mut healths = Vec::new();
    for _ in 0..5 {
        assert_eq!(w.hosts[0].node.recovery_queues().1, [nid(B[0])]);
        w.run(MS * 1010);
        healths.push(w.peer_health(0, B[0]));
    }
    assert_eq!(healths, [600, 700, 800, 900, 1000]);
    assert_eq!(w.hosts[0].node.recovery_queues(), (vec![], vec![]));
}

/// UG-027, UG-003.
#[test]
fn a_failure_lowers_health_and_puts_the_interface_into_recovery() {
    let mut w = single(Profile::Documents);
    fail_first(&mut w, 1, fault(HealthStatus::LocalError));
    w.put(0, B[0], 1, false);
    let view = w.hosts[0].node.net_views().remove(1).nis.remove(0);
    assert_eq!((view.health, view.next_ping), (900, Some(w.now + Duration::from_secs(1))));
    assert_eq!(w.hosts[0].node.recovery_queues(), (vec![nid(A[0])], vec![]));
    w.secs(2);
    let view = w.hosts[0].node.net_views().remove(1).nis.remove(0);
    assert_eq!((view.health, view.next_ping), (1000, None));
}

/// UG-030.
#[test]
fn at_a_fixed_interval_a_failed_interface_is_pinged_ten_times_in_ten_seconds() {
    for profile in [Profile::Documents, Profile::Pre213] {
        let mut w = pair(profile);
        fail_to(&mut w, &B[..1], fault(HealthStatus::RemoteError));
        while w.peer_health(0, B[0]) == 1000 {
            w.put(0, B[0], 1, false);
            w.run(MS * 10);
        }
        w.hosts[0].sent.clear();
        w.secs(10);
        let pings = w.hosts[0].sent.iter().filter(|(_, h)| h.dst == nid(B[0])).count();
        assert!((9..=11).contains(&pings), "{pings}");
    }
}

/// UG-069.
#[test]
fn at_sensitivity_1_one_ping_undoes_one_failure() {
    let mut w = single(Profile::Pre213);
    failed_put(&mut w, HealthStatus::LocalError);
    assert_eq!(w.ni_health(0, A[0]), 999);
    w.run(MS * 900);
    assert_eq!(w.ni_health(0, A[0]), 999);
    w.run(MS * 200);
    assert_eq!(w.ni_health(0, A[0]), 1000);
}

/// HL-cfg-035.
#[test]
fn health_that_is_set_to_1000_takes_the_interface_back_at_once() {
    let mut w = pair(Profile::Documents);
    let now = w.now;
    w.hosts[0].node.set_ni_health(now, Some(nid(A[0])), 0);
    assert_eq!(w.hosts[0].node.recovery_queues().0, [nid(A[0])]);
    w.hosts[0].node.set_ni_health(now, Some(nid(A[0])), 1000);
    assert_eq!(w.ni_health(0, A[0]), 1000);
    assert!(w.hosts[0].node.recovery_queues().0.is_empty());
    for i in 0..2 {
        w.put(0, B[0], i, false);
        w.run(MS * 10);
    }
    assert!(w.pairs(0).iter().any(|p| p.0 == A[0]));
}

/// RS-101, RS-080, RS-081, RS-068 (with several interfaces), HL-lnt-040.
#[test]
fn a_timeout_of_any_kind_makes_the_next_attempt_avoid_the_side_to_blame() {
    use HealthStatus as H;
    for (status, ours, theirs) in [
        (H::LocalTimeout, true, false),
        (H::RemoteTimeout, false, true),
        (H::NetworkTimeout, true, true),
    ] {
        let mut w = pair(Profile::Documents);
        fail_first(&mut w, 1, fault(status));
        w.put(0, B[0], 1, false);
        w.run(MS * 10);
        let pairs = w.pairs(0);
        assert_eq!(pairs.len(), 2, "{status}");
        let (a, b) = &pairs[0];
        assert_eq!(w.ni_health(0, a), if ours { 900 } else { 1000 }, "{status}");
        assert_eq!(w.peer_health(0, b), if theirs { 900 } else { 1000 }, "{status}");
        if ours {
            assert_ne!(*a, pairs[1].0, "{status}");
        }
        if theirs {
            assert_ne!(*b, pairs[1].1, "{status}");
        }
        assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)], "{status}");
    }
}

/// RS-068 (with one interface).
#[test]
fn after_a_send_timeout_a_sole_interface_is_used_again() {
    let mut w = single(Profile::Default);
    failed_put(&mut w, HealthStatus::LocalTimeout);
    assert_eq!(w.ni_health(0, A[0]), 900);
    w.put(0, B[0], 2, false);
    w.run(MS * 10);
    assert_eq!(w.events(0, 2), [(EventKind::Send, true, true)]);
    assert_eq!(w.pairs(0).last().unwrap().0, A[0]);
}

/// RS-070, RS-032.
#[test]
fn an_unreachable_interface_of_a_peer_is_left_until_pings_bring_it_back() {
    let errnos = [Errno::EHOSTUNREACH, Errno::ECONNREFUSED, Errno::ECONNRESET];
    for errno in errnos {
        let mut w = pair(Profile::Default);
        fail_to(&mut w, &B[..1], Fault::new(HealthStatus::RemoteDropped, errno));
        while w.peer_health(0, B[0]) == 1000 {
            w.put(0, B[0], 1, false);
            w.run(MS * 10);
        }
        w.hosts[0].sent.clear();
        for i in 0..10 {
            w.put(0, B[0], i, false);
            w.run(MS * 300);
        }
        assert!(w.pairs(0).iter().all(|p| p.1 == B[1]), "{errno}");
        w.decide = Box::new(|_| Fate::Pass);
        w.hosts[0].sent.clear();
        // A ping at most 5 s from now, and then one each second.
        w.secs(15);
        assert!(w.hosts[0].sent.iter().any(|(_, h)| h.dst == nid(B[0])), "{errno}");
        assert_eq!(w.peer_health(0, B[0]), 1000, "{errno}");
        for i in 0..2 {
            w.put(0, B[0], i, false);
            w.run(MS * 10);
        }
        assert!(w.pairs(0).iter().any(|p| p.1 == B[0]), "{errno}");
    }
}

/// RS-103.
#[test]
fn a_peer_that_returns_after_ten_times_its_timeout_is_used_again() {
    let mut w = pair(Profile::Default);
    let gone = Fault::new(HealthStatus::RemoteDropped, Errno::EHOSTUNREACH);
    fail_to(&mut w, &B, gone);
    w.put(0, B[0], 1, false);
    w.secs(10 * NetTunables::SOCK.peer_timeout as u64);
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
    w.decide = Box::new(|_| Fate::Pass);
    w.secs(20);
    assert_eq!((w.peer_health(0, B[0]), w.peer_health(0, B[1])), (1000, 1000));
    w.put(0, B[0], 2, true);
    w.run(MS * 10);
    assert_eq!(w.events(0, 2).len(), 2);
}

/// RS-104, DEC-18.
#[test]
fn a_peer_silent_for_longer_than_its_timeout_is_still_tried() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    let timeout = NetTunables::SOCK.peer_timeout as u64;
    let (now, id) = (w.now, ni(&w, 0, A[0]));
    w.hosts[0].node.peer_down(now, id, nid(B[0]), now);
    w.secs(2 * timeout);
    w.put(0, B[0], 1, true);
    w.run(MS * 10);
    assert_eq!(w.pairs(0).len(), 1);
    assert_eq!(w.events(0, 1).len(), 2);
}

/// RS-037.
#[test]
fn a_dead_peer_is_an_error_for_the_caller_and_one_ping_per_interface_and_second() {
    for profile in [Profile::Default, Profile::Documents] {
        let mut w = pair(profile);
        w.hosts[1].alive = false;
        fail_to(&mut w, &B, Fault::new(HealthStatus::RemoteDropped, Errno::EHOSTUNREACH));
        w.put(0, B[0], 1, false);
        if profile == Profile::Default {
            // It might come back in the time that the caller gives it.
            w.run(MS * 4000);
            assert_eq!(w.events(0, 1), []);
            w.run(MS * 1000);
        }
        w.run(MS * 10);
        assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
        for _ in 0..60 {
            w.hosts[0].sent.clear();
            w.secs(1);
            for b in B {
                let pings = w.hosts[0].sent.iter().filter(|(_, h)| h.dst == nid(b)).count();
                assert!(pings <= 1, "{pings}");
            }
        }
    }
}

/// RS-024: some interfaces of a peer on a net.
#[test]
fn with_some_of_a_peers_interfaces_dead_the_others_carry_everything() {
    let b = ["10.77.0.3@tcp", "10.77.1.3@tcp", "10.77.2.3@tcp", "10.77.3.3@tcp"];
    let mut w = nodes(Profile::Default, &A, &b);
    fail_to(&mut w, &b[..2], fault(HealthStatus::RemoteDropped));
    for i in 0..20 {
        w.put(0, b[0], i, false);
        w.run(MS * 10);
        assert_eq!(w.events(0, i), [(EventKind::Send, true, true)]);
    }
    let last = &w.pairs(0)[w.pairs(0).len() - 10..];
    assert!(last.iter().all(|p| p.1 == b[2] || p.1 == b[3]), "{last:?}");
}

/// RS-105, RS-066, RS-067, MRD-029, RS-027 (interfaces whose driver tells).
#[test]
fn an_interface_whose_link_is_down_is_left_until_the_link_is_up() {
    let mut w = pair(Profile::Default);
    let (now, id) = (w.now, ni(&w, 0, A[0]));
    w.hosts[0].sent.clear();
    let state = |w: &World| {
        let v = &w.hosts[0].node.net_views()[1].nis[0];
        (v.up, v.state)
    };
    assert_eq!(state(&w), (true, NiState::Active));
    w.hosts[0].node.link_changed(now, id, Link::Down);
    assert_eq!(state(&w), (false, NiState::Failed), "before anything was sent");
    assert!(w.hosts[0].sent.is_empty());
    for i in 0..10 {
        w.put(0, B[0], i, false);
        w.run(MS * 100);
    }
    let from_down = w.hosts[0].sent.iter().filter(|(from, _)| *from == nid(A[0])).count();
    assert_eq!(from_down, 0, "not even a ping or a push");
    let now = w.now;
    w.hosts[0].node.link_changed(now, id, Link::Up);
    assert!(state(&w).0);
    w.hosts[0].sent.clear();
    // Pushes and their ACKs take turns too.
    for i in 0..4 {
        w.put(0, B[0], i, false);
        w.run(MS * 100);
    }
    assert!(w.pairs(0).iter().any(|p| p.0 == A[0]), "within a second");
    assert_eq!(state(&w), (true, NiState::Active));
    let v = &w.hosts[0].node.net_views()[1].nis[0];
    assert_eq!((v.transitions.downs, v.transitions.ups), (1, 1));
}

/// MR-hlt-025, DEC-26.
#[test]
fn an_interface_is_active_degraded_or_failed() {
    let mut w = single(Profile::Default);
    let id = ni(&w, 0, A[0]);
    let state = |w: &World| w.hosts[0].node.net_views()[1].nis[0].state;
    assert_eq!(state(&w), NiState::Active);
    failed_put(&mut w, HealthStatus::LocalError);
    assert_eq!(state(&w), NiState::Degraded);
    let now = w.now;
    w.hosts[0].node.link_changed(now, id, Link::Down);
    assert_eq!(state(&w), NiState::Failed);
    w.hosts[0].node.link_changed(now, id, Link::Up);
    w.secs(5);
    assert_eq!(state(&w), NiState::Active);
}
