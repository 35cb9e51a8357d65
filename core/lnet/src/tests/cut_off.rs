//! Interfaces that a peer does not reach, announced to it as down.

use core::time::Duration;

use super::world::{World, nid};
use crate::{Doubt, NetTunables, Profile};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];

/// A node of profile `default`, and one that neither suspects rails nor suppresses duplicates.
fn beside_a_kernel_node() -> World {
    beside(Profile::Kernel)
}

fn beside(profile: Profile) -> World {
    let mut w = World::new();
    w.host_with(Profile::Default, &A, NetTunables::SOCK);
    w.host_with(profile, &B, NetTunables::SOCK);
    w.discovered(0, B[0]);
    w.discovered(1, A[0]);
    w.run(Duration::from_millis(100));
    for h in &mut w.hosts {
        h.sent.clear();
    }
    w
}

/// Which interfaces of the first node the second one takes for up.
fn up(w: &World) -> [bool; 2] {
    A.map(|a| {
        let peer = w.hosts[1].node.peer_view_of(nid(a)).unwrap();
        peer.nis.iter().find(|ni| ni.nid == nid(a)).unwrap().up
    })
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_kernel_node_leaves_an_interface_that_it_does_not_reach_and_returns_to_it() {
    let mut w = beside_a_kernel_node();
    w.doubt(0, A[1], B[0], Doubt::Silent);
    w.run(ms(390));
    assert_eq!(up(&w), [true, true], "an accident of transmission is not announced");
    w.run(ms(110));
    assert_eq!(up(&w), [true, false]);
    let before = w.pairs(1).len();
    for user in 0..8 {
        w.put(1, A[0], user, true);
        w.run(ms(1));
    }
    let pairs = w.pairs(1).split_off(before);
    assert!(pairs.len() == 8 && pairs.iter().all(|(_, to)| to == A[0]), "{pairs:?}");

    w.doubt(0, A[1], B[0], Doubt::Unproven);
    w.run(ms(50));
    assert_eq!(up(&w), [true, true], "announced as soon as it is silent no more");
    assert_eq!(w.ni_health(0, A[1]), 1000);
}

#[test]
fn a_silence_that_ends_soon_is_not_announced() {
    let mut w = beside_a_kernel_node();
    for _ in 0..5 {
        w.doubt(0, A[1], B[0], Doubt::Silent);
        w.run(ms(300));
        w.doubt(0, A[1], B[0], Doubt::Unproven);
        w.run(ms(100));
    }
    assert!(w.hosts[0].sent.is_empty(), "{:?}", w.pairs(0));
}

#[test]
fn a_node_that_suppresses_duplicates_finds_out_by_itself() {
    let mut w = beside(Profile::Default);
    w.doubt(0, A[1], B[0], Doubt::Silent);
    w.secs(1);
    assert_eq!(up(&w), [true, true]);
    assert!(w.hosts[0].sent.is_empty(), "{:?}", w.pairs(0));
}

#[test]
fn an_interface_of_the_peers_that_none_of_ours_reaches_is_no_fault_of_ours() {
    let mut w = beside_a_kernel_node();
    for a in A {
        w.doubt(0, a, B[1], Doubt::Silent);
    }
    w.secs(1);
    assert_eq!(up(&w), [true, true]);
}

#[test]
fn with_every_interface_in_doubt_none_is_announced_until_another_rail_decides() {
    let mut w = beside_a_kernel_node();
    w.doubt(0, A[1], B[0], Doubt::Silent);
    w.doubt(0, A[0], B[1], Doubt::Silent);
    w.secs(1);
    assert_eq!(up(&w), [true, true]);
    w.doubt(0, A[1], B[1], Doubt::Silent);
    w.secs(1);
    assert_eq!(up(&w), [true, false]);
}

#[test]
fn switching_suspicion_off_withdraws_what_it_announced() {
    let mut w = beside_a_kernel_node();
    w.doubt(0, A[1], B[0], Doubt::Silent);
    w.secs(1);
    assert_eq!(up(&w), [true, false]);
    w.hosts[0].node.set_tunables(w.now, &[("rail_suspicion", 0)]).unwrap();
    w.secs(1);
    assert_eq!(up(&w), [true, true]);
}
