//! How peers learn about each other; peers with and without Multi-Rail.

use super::*;
use crate::{Link, PeerFlags};

const A3: [&str; 3] = ["10.77.0.2@tcp", "10.77.1.2@tcp", "10.77.2.2@tcp"];
const B3: [&str; 3] = ["10.77.0.3@tcp", "10.77.1.3@tcp", "10.77.2.3@tcp"];

/// What `host` knows of the peer that owns `n`: identity, NIDs, whether it is Multi-Rail.
fn known(w: &World, host: usize, n: &str) -> (String, Vec<String>, bool) {
    let v = w.hosts[host].node.peer_view_of(nid(n)).expect("peer is known");
    let mut nids: Vec<_> = v.nis.iter().map(|n| n.nid.to_string()).collect();
    nids.sort();
    (v.primary.to_string(), nids, v.multi_rail)
}

fn whole(nids: &[&str]) -> (String, Vec<String>, bool) {
    (nids[0].to_owned(), nids.iter().map(|n| (*n).to_owned()).collect(), true)
}

/// Pushes that `host` has sent to any of these NIDs.
fn pushes(w: &World, host: usize, to: &[&str]) -> usize {
    let is_push = |h: &Hdr| {
        matches!(h.kind, Kind::Put { portal: 0, .. }) && to.iter().any(|n| nid(n) == h.dst)
    };
    w.hosts[host].sent.iter().filter(|(_, h)| is_push(h)).count()
}

/// MR-cfg-085, MR-dyn-015, MR-dyn-035, MR-dyn-040.
#[test]
fn a_first_message_makes_both_sides_know_all_interfaces_of_the_other() {
    let mut w = World::new();
    w.host(Profile::Documents, &A3);
    w.host(Profile::Documents, &B3);
    w.put(0, B3[1], 1, true);
    w.secs(1);
    assert_eq!(w.events(0, 1).len(), 2);
    assert_eq!((known(&w, 0, B3[0]), known(&w, 1, A3[0])), (whole(&B3), whole(&A3)));
    assert_eq!(pushes(&w, 0, &B3), 1);
}

/// MR-dyn-035, MRD-072, MRD-079.
#[test]
fn a_peer_without_multi_rail_gets_no_push_and_is_used_all_the_same() {
    let mut w = World::new();
    w.host(Profile::Documents, &A3);
    w.host(Profile::Documents, &B[..1]);
    set(&mut w, 1, &[("discovery", 0)]);
    for i in 0..4 {
        w.put(0, B[0], i, true);
        w.secs(1);
        assert_eq!(w.events(0, i).len(), 2);
    }
    assert!(!known(&w, 0, B[0]).2);
    assert_eq!(pushes(&w, 0, &B), 0);
    let pings =
        w.hosts[0].sent.iter().filter(|(_, h)| matches!(h.kind, Kind::Get { portal: 0, .. }));
    assert!(pings.count() >= 1, "it was asked");
}

/// MR-dyn-045.
#[test]
fn added_interfaces_are_announced_to_multi_rail_peers_alone() {
    let plain = "10.77.0.4@tcp";
    let mut w = World::new();
    w.host(Profile::Documents, &A[..1]);
    w.host(Profile::Documents, &B);
    w.host(Profile::Documents, &[plain]);
    set(&mut w, 2, &[("discovery", 0)]);
    for to in [B[0], plain] {
        w.put(0, to, 1, true);
        w.secs(1);
    }
    w.hosts[0].sent.clear();
    let id = w.add_ni(0, A[1], NetTunables::SOCK);
    w.secs(2);
    assert_eq!(known(&w, 1, A[0]), whole(&A));
    assert_eq!(pushes(&w, 0, &[plain]), 0);
    let now = w.now;
    w.hosts[0].node.del_ni(now, id).unwrap();
    w.hosts[0].nids.remove(&id);
    w.secs(2);
    assert_eq!(known(&w, 1, A[0]), whole(&A[..1]));
    assert_eq!(pushes(&w, 0, &[plain]), 0);
}

/// MR-dyn-050.
#[test]
fn a_link_that_goes_down_and_up_is_announced_to_the_peer() {
    let mut w = pair(Profile::Documents);
    let id = ni(&w, 0, A[1]);
    let up = |w: &World| {
        let v = w.hosts[1].node.peer_view_of(nid(A[1])).unwrap();
        v.nis.iter().find(|n| n.nid == nid(A[1])).unwrap().up
    };
    assert!(up(&w));
    for (link, expected) in [(Link::Down, false), (Link::Up, true)] {
        let (now, down) = (w.now, link == Link::Down);
        w.decide =
            Box::new(move |t| if down && t.hdr.dst == nid(A[1]) { Fate::Lose } else { Fate::Pass });
        w.hosts[0].node.link_changed(now, id, link);
        w.secs(2);
        assert_eq!(up(&w), expected);
    }
}

/// MRD-019.
#[test]
fn a_configured_peer_and_a_discovered_one_are_known_alike() {
    let found = pair(Profile::Documents);
    let mut by_hand = World::new();
    by_hand.host(Profile::Documents, &A);
    let now = by_hand.now;
    by_hand.hosts[0].node.peer_add(now, nid(B[0]), &[nid(B[1])], true, false).unwrap();
    assert_eq!(known(&found, 0, B[0]), known(&by_hand, 0, B[0]));
    let configured = |w: &World| {
        let state = w.hosts[0].node.peer_view_of(nid(B[0])).unwrap().state;
        PeerFlags::from_bits_truncate(state).contains(PeerFlags::CONFIGURED)
    };
    assert!(configured(&by_hand) && !configured(&found), "where it comes from");
}

/// MRD-005, MR-cfg-075.
#[test]
fn with_discovery_off_a_configured_peer_is_used_on_all_its_interfaces() {
    let mut w = World::new();
    w.host(Profile::Documents, &["10.70.0.2@tcp", "10.71.0.2@tcp1"]);
    let b = ["10.70.0.3@tcp", "10.72.0.3@tcp", "10.71.0.3@tcp1"];
    w.host(Profile::Documents, &b);
    set(&mut w, 0, &[("discovery", 0)]);
    let now = w.now;
    w.hosts[0].node.peer_add(now, nid(b[0]), &[nid(b[1]), nid(b[2])], true, false).unwrap();
    for n in b {
        assert_eq!(w.hosts[0].node.peer_view_of(nid(n)).unwrap().primary, nid(b[0]));
    }
    for i in 0..8 {
        w.put(0, b[0], i, false);
        w.run(MS * 100);
    }
    for n in b {
        assert!(w.pairs(0).iter().any(|p| p.1 == n), "{n}");
    }
}

/// MRD-082.
#[test]
fn a_ping_lists_interfaces_on_networks_that_the_asker_is_not_on() {
    let mut w = World::new();
    let client = ["10.70.0.2@tcp", "10.71.0.2@o2ib1"];
    w.host(Profile::Default, &client);
    w.host(Profile::Default, &["10.70.0.3@tcp"]);
    let now = w.now;
    let target = lnet_types::ProcessId::lustre(nid(client[0]));
    w.hosts[1].node.ping(now, target, None, Duration::from_secs(1));
    w.secs(1);
    let found = w.hosts[1].reports.remove(0).outcome.unwrap();
    assert_eq!(found.nids, client.map(nid));
}

/// MRD-081.
#[test]
fn peers_that_discover_each_other_at_once_agree_whatever_the_timing() {
    for seed in 1..=1000 {
        let mut rng = lnet_types::Prng::new(seed);
        let mut w = World::new();
        w.latency = Duration::from_micros(1 + rng.below(5000));
        w.host(Profile::Default, &A);
        w.host(Profile::Default, &B);
        for _ in 0..2 + rng.below(4) {
            let host = rng.below(2) as usize;
            let to = [B, A][host][rng.below(2) as usize];
            w.put(host, to, 1, true);
            w.run(Duration::from_micros(rng.below(8000)));
        }
        // At least one from each side.
        w.put(0, B[1], 1, true);
        w.put(1, A[1], 1, true);
        w.secs(3);
        assert_eq!((known(&w, 0, B[0]), known(&w, 1, A[0])), (whole(&B), whole(&A)), "seed {seed}");
        for host in 0..2 {
            assert_eq!(w.hosts[host].node.peer_views(None, 10).len(), 1, "seed {seed}");
        }
    }
}

/// MR-bck-025.
#[test]
fn peers_with_and_without_multi_rail_exchange_messages_both_ways() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    set(&mut w, 1, &[("discovery", 0)]);
    for i in 0..4 {
        for (host, to) in [(0, B[0]), (1, A[0])] {
            w.put(host, to, i, true);
            w.get(host, to, 100 + i);
            w.secs(1);
            assert_eq!((w.events(host, i).len(), w.events(host, 100 + i).len()), (2, 2));
        }
    }
    for host in 0..2 {
        assert!(w.hosts[host].events.iter().all(|e| e.status.is_ok()));
    }
}

/// MR-bck-030.
#[test]
fn a_peer_that_gained_multi_rail_is_known_as_such_after_the_next_discovery() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B[..1]);
    set(&mut w, 1, &[("discovery", 0)]);
    w.put(0, B[0], 1, true);
    w.secs(1);
    assert!(!known(&w, 0, B[0]).2);
    // It restarts, with both its interfaces.
    w.hosts[1].alive = false;
    w.hosts[1].nids.clear();
    w.host(Profile::Default, &B);
    let now = w.now;
    w.hosts[0].node.discover(now, nid(B[0]), true);
    w.secs(2);
    assert_eq!(known(&w, 0, B[0]), whole(&B));
}

/// HL-lnt-045.
#[test]
fn towards_a_peer_without_multi_rail_every_attempt_has_the_same_source() {
    let mut w = World::new();
    w.host(Profile::Documents, &A);
    w.host(Profile::Documents, &B[..1]);
    set(&mut w, 1, &[("discovery", 0)]);
    set(&mut w, 0, &[("retry_count", 3)]);
    w.put(0, B[0], 1, false);
    w.secs(1);
    let source = w.pairs(0)[0].0.clone();
    w.hosts[0].sent.clear();
    fail_first(&mut w, 3, fault(HealthStatus::LocalTimeout));
    w.put(0, B[0], 2, false);
    w.run(MS * 10);
    assert_eq!(w.pairs(0), vec![(source, B[0].to_owned()); 4]);
    assert_eq!(w.events(0, 2), [(EventKind::Send, true, true)]);
}

/// MRD-075.
#[test]
fn the_one_path_to_a_peer_without_multi_rail_has_no_replacement() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    set(&mut w, 1, &[("discovery", 0)]);
    w.put(0, B[0], 1, true);
    w.secs(1);
    let path = w.pairs(0)[0].clone();
    fail_to(&mut w, &B[..1], fault(HealthStatus::RemoteDropped));
    w.put(0, B[0], 2, false);
    w.run(MS * 10);
    assert_eq!(w.events(0, 2), [(EventKind::Send, false, true)]);
    assert!(w.pairs(0).iter().all(|p| *p == path));
}

/// MRD-095.
#[test]
fn a_network_goes_with_its_last_interface() {
    let mut w = World::new();
    w.host(Profile::Default, &["10.70.0.2@tcp", "10.71.0.2@tcp1", "10.72.0.2@tcp1"]);
    let nets = |w: &World| {
        let views = w.hosts[0].node.net_views();
        views.iter().map(|v| (v.net.to_string(), v.nis.len())).collect::<Vec<_>>()
    };
    let of = |s: &str, n| (s.to_owned(), n);
    assert_eq!(nets(&w), [of("lo", 1), of("tcp", 1), of("tcp1", 2)]);
    for (gone, left) in [("10.71.0.2@tcp1", 3), ("10.72.0.2@tcp1", 2)] {
        let (now, id) = (w.now, ni(&w, 0, gone));
        w.hosts[0].node.del_ni(now, id).unwrap();
        assert_eq!(nets(&w).len(), left);
    }
    assert_eq!(nets(&w), [of("lo", 1), of("tcp", 1)]);
}

/// MR-dyn-010: what a node that takes no part makes of a push.
#[test]
fn a_push_to_a_node_that_takes_no_part_changes_nothing_there() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B[..1]);
    w.discovered(0, B[0]);
    // B leaves without a word, so A pushes what is new once more.
    w.decide = Box::new(|t| if t.hdr.src == nid(B[0]) { Fate::Lose } else { Fate::Pass });
    set(&mut w, 1, &[("discovery", 0)]);
    w.secs(10);
    w.decide = Box::new(|_| Fate::Pass);
    let before = known(&w, 1, A[0]);
    for h in &mut w.hosts {
        h.sent.clear();
    }
    w.add_ni(0, A3[2], NetTunables::SOCK);
    w.run(MS * 20);
    assert!(pushes(&w, 0, &B) >= 1);
    assert_eq!(known(&w, 1, A[0]), before, "what was pushed is not taken");
}
