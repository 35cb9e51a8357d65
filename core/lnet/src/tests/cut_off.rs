//! Interfaces that a peer does not reach, announced to it as down.

use core::time::Duration;

use lnet_types::Pid;
use lnet_wire::{Handle, Hdr, Kind};

use super::world::{World, nid};
use crate::{Doubt, Link, NetTunables, Profile};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];

/// A node of profile `default`, and one that neither suspects rails nor suppresses duplicates.
fn beside_a_kernel_node() -> World {
    beside(Profile::Kernel)
}

fn beside(profile: Profile) -> World {
    let mut w = World::new();
    w.latency = Duration::from_micros(100);
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

/// The second node writes to the slow rail all the same, and what it hears by it undoes the announcement.
#[test]
fn a_slow_rail_that_delivers_is_announced_until_a_kernel_node_leaves_it() {
    let mut w = beside_a_kernel_node();
    w.doubt(0, A[1], B[0], Doubt::Silent);
    w.run(ms(200));
    w.doubt(0, A[1], B[0], Doubt::Slow);
    w.run(ms(190));
    assert_eq!(up(&w), [true, true], "it has not been so for long");
    w.run(ms(20));
    assert_eq!(up(&w), [true, false]);
    assert_eq!(w.peer_health(1, A[1]), 900);
    // A message of the first node that arrives late.
    w.hosts[1].node.set_peer_ni_health(w.now, Some(nid(A[1])), 1000);
    w.run(ms(100));
    assert_eq!(w.peer_health(1, A[1]), 1000, "the rail is silent");
    w.put_from(1, Some(B[0]), A[1], 1, false, crate::MdOptions::empty());
    w.run(ms(3));
    assert!(w.peer_health(1, A[1]) <= 700, "{}", w.peer_health(1, A[1]));
    w.run(ms(600));
    assert_eq!(up(&w), [true, false], "the last word is the truth");
    // What it hears while it repeats them does not make it repeat more.
    w.hosts[0].sent.clear();
    for user in 2..102 {
        w.put_from(1, Some(B[0]), A[1], user, false, crate::MdOptions::empty());
        w.run(ms(10));
    }
    let pushes =
        w.hosts[0].sent.iter().filter(|(_, h)| matches!(h.kind, Kind::Put { portal: 0, .. }));
    let pushes = pushes.count();
    assert!((13..=40).contains(&pushes), "in a second: {pushes}");

    w.doubt(0, A[1], B[0], Doubt::Unproven);
    w.run(ms(50));
    assert_eq!(up(&w), [true, true]);
    w.hosts[0].sent.clear();
    w.secs(1);
    assert!(w.hosts[0].sent.is_empty(), "{:?}", w.pairs(0));
}

#[test]
fn a_rail_that_is_all_of_its_network_is_announced_to_a_host_with_another_network() {
    let (a, b) = (["10.77.0.2@tcp", "10.77.1.2@tcp1"], ["10.77.0.3@tcp", "10.77.1.3@tcp1"]);
    for (doubt, nets, forwards, expected) in [
        (Doubt::Silent, 2, false, false),
        (Doubt::Slow, 2, false, false),
        // It has no other way to us.
        (Doubt::Silent, 1, false, true),
        // It would drop what others send to us there.
        (Doubt::Silent, 2, true, true),
        (Doubt::Slow, 2, true, true),
    ] {
        let mut w = World::new();
        w.host_with(Profile::Default, &a, NetTunables::SOCK);
        match forwards {
            true => w.router(Profile::Documents, &b[..nets]),
            false => w.host_with(Profile::Kernel, &b[..nets], NetTunables::SOCK),
        };
        w.hosts[1].node.set_tunables(w.now, &[("suppress_duplicates", 0)]).unwrap();
        w.discovered(0, b[0]);
        w.discovered(1, a[0]);
        w.doubt(0, a[0], b[0], doubt);
        w.secs(1);
        let peer = w.hosts[1].node.peer_view_of(nid(a[0])).unwrap();
        let first = peer.nis.iter().find(|ni| ni.nid == nid(a[0])).unwrap();
        assert_eq!(first.up, expected, "{doubt}, {nets} networks, forwards: {forwards}");
    }
}

/// The first node's second interface has lost its link, and the second node has been notified.
fn with_a_lost_link(profile: Profile) -> World {
    with_a_link_lost_after(profile, ms(0))
}

/// The same when it has been quiet for so long.
fn with_a_link_lost_after(profile: Profile, quiet: Duration) -> World {
    let mut w = beside(profile);
    w.put(1, A[0], 1, true);
    w.run(ms(1));
    w.run(quiet);
    let (id, _) = w.hosts[0].nids.iter().find(|(_, n)| **n == nid(A[1])).unwrap();
    let id = *id;
    w.hosts[0].node.link_changed(w.now, id, Link::Down);
    w.run(Duration::from_micros(300));
    assert_eq!(up(&w), [true, false]);
    assert_eq!(w.peer_health(1, A[1]), 900);
    w
}

#[test]
fn a_message_that_is_read_late_from_an_interface_without_link_brings_it_back_for_a_moment_only() {
    let mut w = with_a_lost_link(Profile::Kernel);
    let kind = Kind::Put { ack: Handle::NONE, match_bits: 0, hdr_data: 0, portal: 9, offset: 0 };
    let pid = Pid::LUSTRE;
    let (src, dst) = (nid(A[1]), nid(B[0]));
    let hdr = Hdr { dst, src, dst_pid: pid, src_pid: pid, payload_len: 0, kind };
    w.inject(1, src, &hdr, &[]);
    assert_eq!(up(&w), [true, true], "S-81.9: a sign of life");
    w.run(ms(30));
    assert_eq!(up(&w), [true, false]);
    assert!(w.peer_health(1, A[1]) < 1000);
}

#[test]
fn late_replies_make_an_interface_without_link_healthy_for_moments_only() {
    let mut w = with_a_lost_link(Profile::Kernel);
    let mut healthy = 0;
    for tenth in 0..300 {
        // H-9: each REPLY raises health, and the status remains. A window of them ends in the first milliseconds.
        if tenth % 8 == 0 && tenth < 64 {
            let health = w.peer_health(1, A[1]) + 100;
            w.hosts[1].node.set_peer_ni_health(w.now, Some(nid(A[1])), health);
        }
        w.run(Duration::from_micros(100));
        healthy += u32::from(w.peer_health(1, A[1]) == 1000);
    }
    assert!((1..=60).contains(&healthy), "tenths of a millisecond: {healthy}");
    assert_eq!(up(&w), [true, false]);
    w.secs(1);
    assert_eq!(up(&w), [true, false], "the last word is the truth");
}

#[test]
fn a_link_that_is_lost_again_is_announced_again_from_the_beginning() {
    let mut w = with_a_lost_link(Profile::Kernel);
    w.run(ms(550));
    let (&id, _) = w.hosts[0].nids.iter().find(|(_, n)| **n == nid(A[1])).unwrap();
    for link in [Link::Up, Link::Down] {
        w.hosts[0].node.link_changed(w.now, id, link);
        w.run(ms(30));
    }
    assert_eq!(up(&w), [true, false]);
    // The steps of the first loss would have ended meanwhile.
    w.hosts[1].node.set_peer_ni_health(w.now, Some(nid(A[1])), 1000);
    w.run(ms(150));
    assert!(w.peer_health(1, A[1]) < 1000);
    assert_eq!(up(&w), [true, false]);
}

#[test]
fn a_node_that_had_nothing_in_hand_is_notified_of_a_lost_link_once() {
    let mut w = with_a_link_lost_after(Profile::Kernel, ms(600));
    w.hosts[0].sent.clear();
    w.run(ms(700));
    assert!(w.hosts[0].sent.is_empty(), "{:?}", w.pairs(0));
}

#[test]
fn a_node_that_suppresses_duplicates_is_notified_of_a_lost_link_once() {
    let mut w = with_a_lost_link(Profile::Default);
    w.hosts[0].sent.clear();
    w.run(ms(700));
    assert!(w.hosts[0].sent.is_empty(), "{:?}", w.pairs(0));
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

/// A connection is there, where another pair of interfaces may have to make one first, while calls go on
/// ending up in the dead rail.
#[test]
fn the_loss_of_a_link_is_announced_by_a_pair_that_was_just_heard() {
    // Addresses that do not tell which interfaces are close to each other.
    let (a, b) = (["10.77.0.4@tcp", "10.77.0.5@tcp"], ["10.77.0.8@tcp", "10.77.0.9@tcp"]);
    for (prefers, to) in [(true, b[0]), (false, b[1])] {
        let mut w = World::new();
        w.host_with(Profile::Default, &a, NetTunables::SOCK);
        w.host_with(Profile::Kernel, &b, NetTunables::SOCK);
        w.discovered(0, b[0]);
        w.discovered(1, a[0]);
        w.hosts[0].node.tunables.conduct.prefers_heard = prefers;
        for (mine, theirs) in b.into_iter().zip(a) {
            w.put_from(1, Some(mine), theirs, 1, false, crate::MdOptions::empty());
        }
        // The other one would be next.
        w.put_from(0, Some(a[0]), b[0], 2, false, crate::MdOptions::empty());
        w.run(ms(1));
        w.hosts[0].sent.clear();
        w.link(0, a[1], Link::Down);
        w.run(ms(1));
        let says = |h: &Hdr| matches!(h.kind, Kind::Put { portal: 0, .. });
        let pushes = w.hosts[0].sent.iter().filter(|(_, h)| says(h));
        let pairs: Vec<_> = pushes.map(|(_, h)| (h.src, h.dst)).collect();
        assert_eq!(pairs, [(nid(a[0]), nid(to))], "{prefers}");
    }
}
