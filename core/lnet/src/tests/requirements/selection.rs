//! Which pair is compared with which, what leaves a pair alone, and what peers without Multi-Rail
//! and nodes with one interface get.

use super::*;
use crate::{Criterion, Doubt, Named, RouteSpec, Step};

const TWO_NETS: [&str; 4] = ["10.70.0.2@tcp", "10.71.0.2@tcp", "10.72.0.2@tcp1", "10.73.0.2@tcp1"];
const THEIRS: [&str; 4] = ["10.70.0.3@tcp", "10.71.0.3@tcp", "10.72.0.3@tcp1", "10.73.0.3@tcp1"];

/// MRD-051, MRD-052, MRD-054, MRD-055: from the peer's networks to one interface of ours, and from
/// there to one of the peer's on the same network.
#[test]
fn selection_narrows_from_networks_to_local_interfaces_to_peer_interfaces() {
    let mut w = nodes(Profile::Default, &TWO_NETS, &THEIRS);
    for i in 0..8 {
        let e = w.hosts[0].node.explain(nid(THEIRS[0]), None, 100);
        let steps: Vec<_> = e.choices.iter().map(|c| c.step).collect();
        assert_eq!(steps, [Step::Network, Step::Interface, Step::PeerInterface], "{e}");
        assert_eq!(e.choices[0].candidates.len(), 2, "both networks of the peer: {e}");
        let Named::Net(net) = e.choices[0].candidates[0].name else { panic!("{e}") };
        for (choice, all) in e.choices[1..].iter().zip([TWO_NETS, THEIRS]) {
            let mut named: Vec<_> = choice.candidates.iter().map(|c| c.name.to_string()).collect();
            named.sort();
            let on_net: Vec<_> = all.into_iter().filter(|n| nid(n).net() == net).collect();
            assert_eq!(named, on_net, "{e}");
            assert!(choice.candidates.iter().all(|c| c.decided.is_some()), "{e}");
        }
        w.put(0, THEIRS[0], i, false);
        w.run(MS * 10);
    }
}

/// MRD-042: credits of the peer's interfaces see to what choosing ours first leaves open.
#[test]
fn a_saturated_interface_of_a_peer_is_passed_over() {
    for profile in [Profile::Default, Profile::Kernel] {
        let mut w = nodes(profile, &A[..1], &B);
        w.decide = Box::new(|_| Fate::Hold);
        let now = w.now;
        w.hosts[0].node.set_peer_ni_health(now, Some(nid(B[1])), 900);
        for i in 0..8 {
            w.put(0, B[0], i, false);
        }
        assert!(w.pairs(0).iter().all(|p| p.1 == B[0]), "all of its credits are taken");
        w.hosts[0].node.set_peer_ni_health(now, Some(nid(B[1])), 1000);
        for i in 8..14 {
            w.put(0, B[0], i, false);
        }
        assert!(w.pairs(0)[8..].iter().all(|p| p.1 == B[1]), "{profile:?}: {:?}", w.pairs(0));
    }
}

/// MRD-060: a network that is dead and interfaces that are dead look the same from here.
#[test]
fn a_dead_network_and_dead_interfaces_on_it_look_the_same() {
    let seen = |dead: fn(&str) -> bool| {
        let mut w = nodes(Profile::Default, &TWO_NETS, &THEIRS);
        w.decide = Box::new(move |t| {
            let to = t.to.nid.to_string();
            if dead(&to) { Fate::Fail(fault(HealthStatus::RemoteDropped)) } else { Fate::Pass }
        });
        for i in 0..20 {
            w.put(0, THEIRS[0], i, false);
            w.run(MS * 200);
        }
        let healths = THEIRS.map(|n| w.peer_health(0, n));
        assert_eq!((healths[0], healths[1]), (1000, 1000));
        assert!(healths[2] < 1000 && healths[3] < 1000, "{healths:?}");
        (healths, TWO_NETS.map(|n| w.ni_health(0, n)), w.pairs(0), w.hosts[0].node.stats())
    };
    let network = seen(|n| n.ends_with("@tcp1"));
    let interfaces = seen(|n| n == THEIRS[2] || n == THEIRS[3]);
    assert_eq!(format!("{network:?}"), format!("{interfaces:?}"));
}

/// RS-033: three of five peers are out of reach of one interface of ours.
#[test]
fn peers_out_of_reach_of_one_interface_are_reached_from_the_other_and_the_rest_from_both() {
    let peers = ["10.77.0.11@tcp", "10.77.0.12@tcp", "10.77.0.13@tcp", "10.77.0.14@tcp"];
    let last = "10.77.0.15@tcp";
    let mut w = World::new();
    w.host(Profile::Default, &A);
    for p in peers.into_iter().chain([last]) {
        w.host(Profile::Default, &[p]);
        w.discovered(0, p);
    }
    let (now, first) = (w.now, ni(&w, 0, A[0]));
    for p in &peers[..3] {
        w.hosts[0].node.rail_changed(now, first, nid(p), Doubt::Silent);
    }
    w.hosts[0].sent.clear();
    for i in 0..8 {
        for p in peers.into_iter().chain([last]) {
            w.put(0, p, i, false);
            w.run(MS * 10);
        }
    }
    let from_first = |to: &str| w.pairs(0).iter().filter(|p| p.0 == A[0] && p.1 == to).count();
    assert_eq!(peers.map(from_first)[..3], [0, 0, 0]);
    // Of the sixteen messages that are left it carries its half.
    assert_eq!(from_first(peers[3]) + from_first(last), 8, "{:?}", w.pairs(0));
    assert_eq!(A.map(|n| w.ni_health(0, n)), [1000, 1000], "none has failed");
}

/// RS-107: an interface of the peer that is known to be dead costs neither a credit nor an attempt.
#[test]
fn an_interface_that_a_peer_has_announced_as_down_is_not_chosen() {
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|t| if t.to.nid == nid(B[0]) { Fate::Lose } else { Fate::Pass });
    w.link(1, B[0], crate::Link::Down);
    w.secs(1);
    w.hosts[0].sent.clear();
    for i in 0..6 {
        let e = w.hosts[0].node.explain(nid(B[0]), None, 100);
        let choice = e.choices.iter().find(|c| c.step == Step::PeerInterface).unwrap();
        assert_eq!(choice.candidates[0].name, Named::Nid(nid(B[1])), "{e}");
        assert_ne!(choice.candidates[0].decided, Some(Criterion::Credits), "{e}");
        w.put(0, B[0], i, false);
        w.run(MS * 10);
    }
    assert!(w.pairs(0).iter().all(|p| p.1 == B[1]), "{:?}", w.pairs(0));
}

/// MRD-014.
#[test]
fn a_node_with_one_interface_on_a_dead_network_is_cut_off_until_it_has_a_route() {
    let (a, b) = (["10.70.0.2@tcp", "10.71.0.2@tcp1"], "10.70.0.3@tcp");
    let g = ["10.70.0.4@tcp", "10.71.0.4@tcp1"];
    let mut w = World::new();
    let mut without_discovery = |nids: &[&str]| {
        let host = w.host(Profile::Default, nids);
        set(&mut w, host, &[("discovery", 0)]);
        host
    };
    let (us, peer) = (without_discovery(&a[..1]), without_discovery(&[b]));
    w.put(us, b, 1, true);
    w.secs(1);
    assert_eq!(w.events(us, 1).len(), 2);
    // Its only network dies for it; there is another one, with a router to where the peer is.
    let now = w.now;
    let only = ni(&w, us, a[0]);
    w.hosts[us].node.del_ni(now, only).unwrap();
    w.hosts[us].nids.remove(&only);
    w.put(us, b, 2, true);
    w.secs(1);
    assert_eq!(w.events(us, 2), [(EventKind::Send, false, false)]);
    w.add_ni(us, a[1], NetTunables::SOCK);
    w.router(Profile::Default, &g);
    for (host, net, gateway) in [(us, "tcp", g[1]), (peer, "tcp1", g[0])] {
        let (now, net, gateway) = (w.now, net.parse().unwrap(), nid(gateway));
        let spec = RouteSpec { net, gateway, hops: None, priority: 0 };
        w.hosts[host].node.add_route(now, spec).unwrap();
    }
    w.secs(2);
    w.put(us, b, 3, true);
    w.secs(1);
    assert_eq!(w.events(us, 3), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
}

/// MRD-071.
#[test]
fn each_nid_of_a_peer_without_multi_rail_is_used_and_answers_for_itself() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    set(&mut w, 1, &[("discovery", 0)]);
    for i in 0..4 {
        for b in B {
            w.get(0, b, i);
            w.secs(1);
        }
    }
    let asked: Vec<_> = w.pairs(0);
    let answers = w.hosts[1]
        .sent
        .iter()
        .filter(|(_, h)| matches!(h.kind, Kind::Reply { .. }) && h.payload_len == 100);
    let answers: Vec<_> = answers.map(|(_, h)| (h.dst.to_string(), h.src.to_string())).collect();
    assert_eq!(answers, asked);
    assert_eq!(B.map(|b| asked.iter().filter(|p| p.1 == b).count()), [4, 4]);
}
