//! Which path a message takes.

use super::world::World;
use crate::Profile;

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];

fn pair() -> World {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    w.discovered(0, B[0]);
    w
}

/// The pairs that a run of PUTs uses, as indices of interfaces.
fn used(w: &World) -> Vec<(usize, usize)> {
    let at = |list: [&str; 2], n: &str| list.iter().position(|x| *x == n).unwrap();
    w.pairs(0).iter().map(|(s, d)| (at(A, s), at(B, d))).collect()
}

#[test]
fn x01_puts_rotate_over_both_interfaces_of_both_sides() {
    let mut w = pair();
    for i in 0..4 {
        w.put(0, B[0], i, false);
        w.secs(1);
    }
    let got = used(&w);
    assert_eq!(got.len(), 4);
    for pair in got.windows(2) {
        assert_ne!(pair[0].0, pair[1].0, "local interfaces alternate: {got:?}");
        assert_ne!(pair[0].1, pair[1].1, "the peer's alternate: {got:?}");
    }
    assert_eq!(got[0], got[2]);
}

#[test]
fn x01_credits_keep_the_same_order_when_nothing_completes() {
    let mut w = pair();
    w.decide = Box::new(|_| super::world::Fate::Hold);
    for i in 0..4 {
        w.put(0, B[0], i, false);
    }
    let got = used(&w);
    assert_eq!(got.iter().filter(|p| p.0 == 0).count(), 2);
    assert_eq!(got.iter().filter(|p| p.1 == 0).count(), 2);
    for pair in got.windows(2) {
        assert_ne!(pair[0], pair[1]);
    }
}

#[test]
fn x02_the_healthier_interface_is_preferred() {
    let mut w = pair();
    w.hosts[0].node.set_ni_health(w.now, Some(super::world::nid(A[0])), 999);
    for i in 0..3 {
        w.put(0, B[0], i, false);
    }
    assert!(used(&w).iter().all(|p| p.0 == 1));
    w.secs(5);
    assert_eq!(w.ni_health(0, A[0]), 1000, "one successful recovery ping heals it");
}

#[test]
fn a_given_source_is_used_whatever_its_health() {
    let mut w = pair();
    w.hosts[0].node.set_ni_health(w.now, Some(super::world::nid(A[0])), 1);
    let h = &mut w.hosts[0];
    let md = h.node.bind(crate::MdSpec::new(lnet_types::IoVec::new(), 1)).unwrap();
    let put = crate::Put {
        md,
        ack: false,
        src: Some(super::world::nid(A[0])),
        target: lnet_types::ProcessId::lustre(super::world::nid(B[1])),
        portal: super::world::PT,
        match_bits: super::world::BITS,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    };
    h.node.put(w.now, put).unwrap();
    w.secs(1);
    assert_eq!(used(&w), [(0, 1)]);
}

#[test]
fn a_peer_that_is_not_multi_rail_always_sees_the_same_source() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    for h in 0..2 {
        w.hosts[h].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
    }
    for i in 0..5 {
        w.put(0, B[1], i, false);
        w.secs(1);
    }
    let got = used(&w);
    assert_eq!(got.len(), 5);
    assert!(got.iter().all(|p| *p == got[0] && p.1 == 1), "{got:?}");
}

#[test]
fn a_net_without_interface_here_has_no_path() {
    let mut w = pair();
    w.put(0, "10.77.0.3@tcp9", 7, true);
    w.secs(1);
    let e = &w.hosts[0].events;
    assert_eq!(e.len(), 1);
    assert_eq!(e[0].status, Err(lnet_types::Errno::EHOSTUNREACH));
}

#[test]
fn health_range_makes_small_differences_equal() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    w.hosts[0].node.set_tunables(w.now, &[("health_range", 100)]).unwrap();
    w.decide = Box::new(|t| {
        if matches!(t.hdr.kind, lnet_wire::Kind::Get { .. }) {
            super::world::Fate::Hold
        } else {
            super::world::Fate::Pass
        }
    });
    w.hosts[0].node.set_ni_health(w.now, Some(super::world::nid(A[0])), 900);
    for i in 0..4 {
        w.put(0, B[0], i, false);
        w.run(core::time::Duration::from_millis(5));
    }
    assert_eq!(used(&w).iter().filter(|p| p.0 == 0).count(), 2);
}
