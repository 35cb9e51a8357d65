//! How interfaces get well again.

use super::*;

/// UG-025, for an interface of ours: its pings go to itself, so only time and health are to be seen.
#[test]
fn a_local_interface_is_healthy_after_ten_pings_at_sensitivity_100_and_twenty_at_50() {
    for (sensitivity, seconds) in [(100, 10), (50, 20)] {
        let mut w = pair(Profile::Documents);
        set(&mut w, 0, &[("health_sensitivity", sensitivity)]);
        let now = w.now;
        w.hosts[0].node.set_ni_health(now, Some(nid(A[0])), 0);
        for n in 1..=seconds {
            assert_eq!(w.hosts[0].node.recovery_queues().0, [nid(A[0])]);
            w.secs(1);
            w.run(MS * 5);
            assert_eq!(w.ni_health(0, A[0]), n * sensitivity as u32, "after {n} s");
        }
        assert!(w.hosts[0].node.recovery_queues().0.is_empty());
    }
}

/// HL-lnt-035, DEC-3.
#[test]
fn by_the_strict_reading_900_is_a_hundred_good_pings_away_from_1000() {
    let mut w = pair(Profile::Documents);
    set(&mut w, 0, &[("recovery_step", 1)]);
    let now = w.now;
    w.hosts[0].node.set_peer_ni_health(now, Some(nid(B[0])), 900);
    for n in 1..=50 {
        w.secs(1);
        w.run(MS * 3);
        assert_eq!(w.peer_health(0, B[0]), 900 + n);
    }
    // One that fails in between sets it back.
    fail_to(&mut w, &B[..1], fault(HealthStatus::RemoteTimeout));
    while w.peer_health(0, B[0]) == 950 {
        w.run(MS * 100);
    }
    let set_back = w.peer_health(0, B[0]);
    assert!(set_back < 900, "{set_back}");
    w.decide = Box::new(|_| Fate::Pass);
    let mut pings = 0;
    w.hosts[0].sent.clear();
    while w.peer_health(0, B[0]) < 1000 {
        w.run(MS * 100);
        pings = w.hosts[0].sent.iter().filter(|(_, h)| h.dst == nid(B[0])).count() as u32;
        assert!(pings <= 1000, "{}", w.peer_health(0, B[0]));
    }
    assert_eq!(pings, 1000 - set_back);
}
