//! HL-lnt-115: interfaces that come and go are favoured less.

use super::*;
use crate::{Link, Named, Notice, Profile, Step};

/// An interface of ours goes down and up so often, 0.7 s each.
fn toggle(w: &mut World, host: usize, n: &str, times: usize) {
    for _ in 0..times {
        w.link(host, n, Link::Down);
        w.run(MS * 700);
        w.link(host, n, Link::Up);
        w.run(MS * 700);
    }
}

/// How many of `count` messages leave by each interface.
fn shares(w: &mut World, count: u64) -> [usize; 2] {
    w.hosts[0].sent.clear();
    for i in 0..count {
        w.put(0, B[0], i, false);
        w.run(MS * 10);
    }
    A.map(|n| w.pairs(0).iter().filter(|(from, _)| from == n).count())
}

#[test]
fn an_interface_that_flaps_carries_nothing_for_its_hold_down_and_then_its_share() {
    let mut w = pair(Profile::Default);
    toggle(&mut w, 0, A[0], 10);
    assert_eq!([A[0], A[1]].map(|n| w.ni_health(0, n)), [1000, 1000], "equal health");
    assert_eq!(shares(&mut w, 100), [0, 100]);
    let views = w.hosts[0].node.net_views();
    assert_eq!(views[1].nis.iter().map(|n| n.flapping).collect::<Vec<_>>(), [true, false]);
    // Twice the hold-down of 10 seconds is the longest.
    w.secs(21);
    assert_eq!(shares(&mut w, 100), [50, 50]);
}

#[test]
fn twice_in_short_time_is_no_flapping_and_the_third_time_is_said() {
    let mut w = pair(Profile::Default);
    toggle(&mut w, 0, A[0], 2);
    let mut notices = core::iter::from_fn(|| w.hosts[0].node.poll_notice());
    assert!(!notices.any(|n| matches!(n, Notice::Flapping { .. })));
    assert_eq!(shares(&mut w, 10), [5, 5]);
    toggle(&mut w, 0, A[0], 1);
    let mut notices = core::iter::from_fn(|| w.hosts[0].node.poll_notice());
    assert_eq!(
        notices.find(|n| matches!(n, Notice::Flapping { .. })),
        Some(Notice::Flapping { nid: nid(A[0]) })
    );
}

#[test]
fn health_comes_first_and_a_flapping_interface_is_better_than_none() {
    let mut w = pair(Profile::Default);
    toggle(&mut w, 0, A[0], 5);
    let now = w.now;
    w.hosts[0].node.set_ni_health(now, Some(nid(A[1])), 0);
    // What would bring it back.
    w.decide = Box::new(|t| if t.to.nid == nid(A[1]) { Fate::Hold } else { Fate::Pass });
    assert_eq!(shares(&mut w, 10), [10, 0]);
    w.hosts[0].node.set_ni_health(now, Some(nid(A[1])), 1000);
    w.link(0, A[1], Link::Down);
    assert_eq!(shares(&mut w, 10), [10, 0]);
}

#[test]
fn an_explanation_names_flapping_as_the_reason() {
    let mut w = pair(Profile::Default);
    toggle(&mut w, 0, A[0], 5);
    let why = w.hosts[0].node.explain(nid(B[0]), None, 0);
    let choice = why.choices.iter().find(|c| c.step == Step::Interface).unwrap();
    assert_eq!(choice.candidates[0].name, Named::Nid(nid(A[1])));
    assert_eq!(choice.candidates[0].decided, Some(crate::Criterion::Flapping));
    assert!(why.to_string().contains("flapping yes"), "{why}");
}

#[test]
fn a_peers_interface_that_flaps_is_favoured_less_too() {
    let mut w = pair(Profile::Default);
    toggle(&mut w, 1, B[0], 5);
    w.secs(3);
    let v = w.hosts[0].node.peer_view_of(nid(B[0])).unwrap();
    let shown: Vec<_> = v.nis.iter().map(|n| (n.flapping, n.health)).collect();
    assert_eq!(shown, [(true, 1000), (false, 1000)]);
    w.hosts[0].sent.clear();
    for i in 0..20 {
        w.put(0, B[0], i, false);
        w.run(MS * 10);
    }
    assert!(w.pairs(0).iter().all(|(_, to)| to == B[1]));
}

#[test]
fn with_a_hold_down_of_0_nothing_flaps_and_that_is_so_in_the_profiles_of_the_past() {
    for (profile, change) in
        [(Profile::Default, true), (Profile::Kernel, false), (Profile::Pre213, false)]
    {
        let mut w = pair(profile);
        if change {
            set(&mut w, 0, &[("flap_hold_down", 0)]);
        }
        toggle(&mut w, 0, A[0], 10);
        assert_eq!(shares(&mut w, 20), [10, 10], "{}", profile.name());
    }
}

#[test]
fn a_network_of_flapping_interfaces_alone_is_favoured_less_and_explained_so() {
    let rails = ["10.77.0.2@tcp", "10.88.0.2@tcp1"];
    let peers = ["10.77.0.3@tcp", "10.88.0.3@tcp1"];
    for host in [0, 1] {
        let mut w = nodes(Profile::Default, &rails, &peers);
        toggle(&mut w, host, [rails, peers][host][0], 5);
        w.secs(1);
        w.hosts[0].sent.clear();
        for i in 0..20 {
            w.put(0, peers[0], i, false);
            w.run(MS * 10);
        }
        assert!(w.pairs(0).iter().all(|(from, _)| from == rails[1]), "{:?}", w.pairs(0));
        let why = w.hosts[0].node.explain(nid(peers[0]), None, 0);
        let choice = why.choices.iter().find(|c| c.step == Step::Network).unwrap();
        assert_eq!(choice.candidates[0].decided, Some(crate::Criterion::Flapping), "{why}");
        // It is better than none.
        w.link(0, rails[1], Link::Down);
        w.hosts[0].sent.clear();
        w.put(0, peers[0], 100, false);
        w.run(MS * 10);
        assert_eq!(w.pairs(0)[0].0, rails[0]);
    }
}
