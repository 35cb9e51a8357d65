//! How peers learn about each other.

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, ProcessId};
use lnet_wire::Kind;

use super::world::{Fate, World, nid};
use crate::{EventKind, NetTunables, PeerFlags, Profile, Rule, Transmit};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];
const C: [&str; 2] = ["10.77.0.4@tcp", "10.77.1.4@tcp"];

/// MULTI_RAIL, DISCOVERED, NIDS_UPTODATE: what `peer show -v 3` prints for a peer with which all
/// is well.
const SETTLED: u32 = 273;

fn peer(w: &World, host: usize, n: &str) -> (String, Vec<String>, u32) {
    let v = w.hosts[host].node.peer_view_of(nid(n)).expect("peer is known");
    (v.primary.to_string(), v.nis.iter().map(|n| n.nid.to_string()).collect(), v.state)
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

#[test]
fn x21_both_sides_end_with_the_same_view() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A[..1]);
    w.host(Profile::Kernel, &B);
    w.put(0, B[1], 1, true);
    w.secs(1);
    assert_eq!(peer(&w, 0, B[1]), (B[0].into(), strings(&B), SETTLED));
    assert_eq!(peer(&w, 1, A[0]), (A[0].into(), strings(&A[..1]), SETTLED));
    assert_eq!(w.events(0, 1).len(), 2, "SEND and ACK");
    let kinds: Vec<_> =
        w.hosts[0].sent.iter().map(|(_, h)| (h.kind.msg_type(), h.dst.to_string())).collect();
    use lnet_wire::MsgType as M;
    assert_eq!(kinds[0], (M::Get, B[1].to_owned()), "ping first, to the NID that was asked for");
    assert_eq!(kinds[1], (M::Put, B[1].to_owned()), "then the push, the way the ping went");
    let get = w.hosts[0].sent[0].1;
    assert!(matches!(get.kind, Kind::Get { portal: 0, sink_len: 272, .. }));
}

#[test]
fn x22_and_x23_interfaces_that_come_and_go_are_pushed() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B[..1]);
    w.discovered(0, B[0]);
    let id = w.add_ni(1, B[1], NetTunables::SOCK);
    w.secs(1);
    assert_eq!(peer(&w, 0, B[0]), (B[0].into(), strings(&B), SETTLED));
    assert_eq!(w.peer_health(0, B[1]), 1000);
    w.hosts[1].node.del_ni(w.now, id).unwrap();
    w.hosts[1].nids.remove(&id);
    w.secs(1);
    assert_eq!(peer(&w, 0, B[0]), (B[0].into(), strings(&B[..1]), SETTLED));
}

#[test]
fn a_message_for_a_nid_that_its_node_has_just_released_goes_to_that_node() {
    for (profile, arrives) in [(Profile::Default, true), (Profile::Kernel, false)] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &B);
        w.discovered(0, B[0]);
        let gone = *w.hosts[1].nids.iter().find(|(_, n)| **n == nid(B[0])).unwrap().0;
        w.hosts[1].node.del_ni(w.now, gone).unwrap();
        w.hosts[1].nids.remove(&gone);
        w.secs(1);
        assert_eq!(peer(&w, 0, B[1]).1, strings(&B[1..]), "{profile:?}");
        w.put(0, B[0], 7, true);
        w.secs(1);
        let both = [(EventKind::Send, true, false), (EventKind::Ack, true, true)];
        assert_eq!(w.events(0, 7) == both, arrives, "{profile:?}: {:?}", w.events(0, 7));
        // It means the next node with the NID, not the former one; and for ever it means none.
        w.secs(if arrives { 11 } else { 60 });
        w.put(0, B[0], 8, true);
        w.secs(60);
        assert!(!w.events(0, 8).iter().any(|e| e.0 == EventKind::Ack && e.1), "{profile:?}");
    }
}

#[test]
fn a_nid_that_has_been_given_up_is_its_new_owners_at_once() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    w.host(Profile::Default, &C);
    w.discovered(0, B[0]);
    w.discovered(0, C[0]);
    let gone = *w.hosts[1].nids.iter().find(|(_, n)| **n == nid(B[0])).unwrap().0;
    w.hosts[1].node.del_ni(w.now, gone).unwrap();
    w.hosts[1].nids.remove(&gone);
    w.secs(1);
    w.add_ni(2, B[0], NetTunables::SOCK);
    w.secs(1);
    w.put(0, B[0], 7, true);
    w.secs(1);
    let taken = |host: usize| w.hosts[host].events.iter().filter(|e| e.hdr_data == 7).count();
    assert_eq!((taken(1), taken(2)), (0, 1));
}

#[test]
fn peers_follow_when_the_ping_sequence_number_wraps() {
    for profile in [Profile::Default, Profile::Kernel] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &B[..1]);
        w.discovered(0, B[0]);
        // As if its interfaces had come and gone four thousand million times.
        w.hosts[1].node.own.set_seq(u32::MAX - 2);
        for round in 0..4 {
            let id = w.add_ni(1, B[1], NetTunables::SOCK);
            w.secs(1);
            assert_eq!(peer(&w, 0, B[0]).1, strings(&B), "{profile:?} round {round}");
            w.hosts[1].node.del_ni(w.now, id).unwrap();
            w.hosts[1].nids.remove(&id);
            w.secs(1);
            assert_eq!(peer(&w, 0, B[0]).1, strings(&B[..1]), "{profile:?} round {round}");
        }
        assert!((1..16).contains(&w.hosts[1].node.ping_seq()), "it has wrapped");
        w.put(0, B[0], 7, true);
        w.secs(1);
        assert_eq!(w.events(0, 7).len(), 2, "SEND and ACK");
    }
}

#[test]
fn x24_a_configured_peer_is_not_changed_by_discovery() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    w.hosts[0].node.peer_add(w.now, nid(B[0]), &[], true, false).unwrap();
    w.put(0, B[0], 1, true);
    w.secs(1);
    let (primary, nids, state) = peer(&w, 0, B[0]);
    assert_eq!((primary.as_str(), nids), (B[0], strings(&B[..1])));
    let want = PeerFlags::MULTI_RAIL
        | PeerFlags::CONFIGURED
        | PeerFlags::DISCOVERED
        | PeerFlags::NIDS_UPTODATE;
    assert_eq!(state, want.bits());
    assert_eq!(w.events(0, 1).len(), 2);
}

/// DEC-28; D-53 in profile `kernel`.
#[test]
fn a_configured_peer_that_switches_discovery_off_keeps_its_nids_and_its_lock() {
    for (profile, lock, keeps) in [
        (Profile::Default, false, true),
        (Profile::Default, true, true),
        (Profile::Kernel, false, false),
    ] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &B);
        w.hosts[0].node.peer_add(w.now, nid(B[0]), &[nid(ADDED)], true, lock).unwrap();
        w.discovered(0, B[0]);
        w.hosts[1].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
        w.secs(1);
        let view = w.hosts[0].node.peer_view_of(nid(ADDED));
        assert_eq!(view.is_some(), keeps, "{profile:?}");
        let Some(view) = view else { continue };
        let state = PeerFlags::from_bits_truncate(view.state);
        assert_eq!(view.primary, nid(B[0]));
        assert!(state.contains(PeerFlags::CONFIGURED | PeerFlags::NO_DISCOVERY), "{state:?}");
        assert_eq!(state.contains(PeerFlags::LOCK_PRIMARY), lock);
    }
}

#[test]
fn x25_a_configured_nid_stays_with_its_peer() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    w.hosts[0].node.peer_add(w.now, nid(C[0]), &[nid(B[1])], true, false).unwrap();
    w.put(0, B[0], 1, true);
    w.secs(1);
    assert_eq!(peer(&w, 0, B[1]).0, C[0]);
    assert_eq!(peer(&w, 0, B[0]).1, strings(&B[..1]));
    assert_eq!(w.events(0, 1).len(), 2);
}

#[test]
fn x26_with_discovery_off_the_peer_stays_plain_and_the_source_fixed() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    w.hosts[0].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
    for i in 0..4 {
        w.put(0, B[1], i, false);
        w.secs(1);
    }
    let (_, nids, state) = peer(&w, 0, B[1]);
    assert_eq!(nids, strings(&B[1..]));
    let flags = PeerFlags::from_bits_truncate(state);
    assert!(flags.contains(PeerFlags::NO_DISCOVERY) && !flags.contains(PeerFlags::MULTI_RAIL));
    let pairs = w.pairs(0);
    assert!(pairs.len() == 4 && pairs.iter().all(|p| *p == pairs[0]));
    let gets = w.hosts[0].sent.iter().filter(|(_, h)| matches!(h.kind, Kind::Get { .. })).count();
    assert_eq!(gets, 1, "one ping before the first message, and no push");
}

/// D-71, and what it leaves out.
#[test]
fn discovery_switched_on_again_makes_up_for_what_was_missed() {
    for (profile, caught_up) in [(Profile::Default, true), (Profile::Kernel, false)] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &B);
        w.discovered(0, B[0]);
        w.secs(1);
        w.hosts[0].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
        w.secs(1);
        let added = "10.77.2.3@tcp";
        w.add_ni(1, added, NetTunables::SOCK);
        w.secs(1);
        let owner = |w: &World, host: usize, n: &str| {
            w.hosts[host].node.peer_view_of(nid(n)).map(|v| v.primary.to_string())
        };
        assert_eq!(owner(&w, 0, added), None, "{profile:?}");
        w.hosts[0].node.set_tunables(w.now, &[("discovery", 1)]).unwrap();
        w.secs(1);
        let (other, us) = (owner(&w, 0, added), owner(&w, 1, A[1]));
        let all = (other.as_deref() == Some(B[0]), us.as_deref() == Some(A[0]));
        assert_eq!(all, (caught_up, caught_up), "{profile:?}");
    }
}

const ADDED: &str = "10.77.2.3@tcp";

fn is_push(hdr: &lnet_wire::Hdr) -> bool {
    matches!(hdr.kind, Kind::Put { portal: 0, .. })
}

/// D-51, and what it leaves out.
#[test]
fn a_push_that_fails_is_repeated_until_the_peer_knows() {
    for (profile, knows) in [(Profile::Default, true), (Profile::Kernel, false)] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &B);
        w.discovered(0, B[0]);
        w.secs(1);
        let no_memory = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
        w.decide =
            Box::new(move |t| if is_push(&t.hdr) { Fate::Fail(no_memory) } else { Fate::Pass });
        w.add_ni(1, ADDED, NetTunables::SOCK);
        w.secs(20);
        assert_eq!(peer(&w, 0, B[0]).1, strings(&B), "{profile:?}");
        w.decide = Box::new(|_| Fate::Pass);
        w.secs(20);
        assert_eq!(peer(&w, 0, B[0]).1.len() == 3, knows, "{profile:?}");
    }
}

/// Who changes and does not say so again has to be asked.
#[test]
fn a_question_that_fails_is_repeated_until_it_is_answered() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Kernel, &B);
    w.discovered(0, B[0]);
    w.decide = Box::new(|_| Fate::Lose);
    w.add_ni(1, ADDED, NetTunables::SOCK);
    w.hosts[0].node.discover(w.now, nid(B[0]), true);
    w.secs(70);
    assert!(w.hosts[0].reports.remove(0).outcome.is_err());
    assert_eq!(peer(&w, 0, B[0]).1, strings(&B));
    w.decide = Box::new(|_| Fate::Pass);
    w.secs(120);
    assert_eq!(peer(&w, 0, B[0]).1.len(), 3);
}

/// Traffic to a peer that cannot be pushed to causes no storm of failing pushes.
#[test]
fn a_push_that_fails_is_not_repeated_for_every_message() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    let no_memory = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
    w.decide = Box::new(move |_| Fate::Fail(no_memory));
    w.add_ni(0, "10.77.2.2@tcp", NetTunables::SOCK);
    for n in 0..1000 {
        w.put(0, B[0], n, false);
        w.run(Duration::from_millis(10));
    }
    let pushes = w.hosts[0].sent.iter().filter(|(_, hdr)| is_push(hdr)).count();
    assert!((4..=40).contains(&pushes), "{pushes} in 10 s");
}

/// Also not where nothing is known of it yet: a router that has just come back forwards to it.
#[test]
fn a_first_question_that_fails_is_not_repeated_for_every_message() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    let too_soon = Fault::new(HealthStatus::RemoteError, Errno::EIO);
    w.decide = Box::new(move |_| Fate::Fail(too_soon));
    for n in 0..500 {
        w.put(0, B[0], n, false);
        w.run(Duration::from_millis(10));
    }
    let is_ping = |hdr: &lnet_wire::Hdr| matches!(hdr.kind, Kind::Get { portal: 0, .. });
    let pings = w.hosts[0].sent.iter().filter(|(_, hdr)| is_ping(hdr)).count();
    assert!((4..=20).contains(&pings), "{pings} in 5 s");
}

/// H-16: only if it was announced as down before.
#[test]
fn a_recovered_interface_is_announced_as_up() {
    let announced_up = |w: &World| {
        let parsed = lnet_wire::ping::PingInfo::parse(w.hosts[1].node.own.bytes()).unwrap();
        let up = |e: &lnet_wire::ping::PingEntry| e.status == lnet_wire::ping::NiStatus::UP;
        parsed.info.entries.iter().filter(|e| up(e)).count()
    };
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    w.hosts[1].node.set_ni_health(w.now, Some(nid(B[0])), 0);
    w.add_ni(1, ADDED, NetTunables::SOCK);
    w.run(Duration::from_millis(100));
    assert_eq!(announced_up(&w), 2);
    w.hosts[1].sent.clear();
    w.secs(120);
    assert_eq!((announced_up(&w), w.ni_health(1, B[0])), (3, 1000));
    assert!(w.hosts[1].sent.iter().any(|(_, hdr)| is_push(hdr)));
}

#[test]
fn h80_an_interface_whose_health_is_set_to_0_is_down_for_its_peers_until_it_is_set_to_1000() {
    for profile in [Profile::Kernel, Profile::Default] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &B);
        w.discovered(0, B[0]);
        w.discovered(1, A[0]);
        let up = |w: &World| {
            let view = w.hosts[0].node.peer_view_of(nid(B[1])).unwrap();
            view.nis.iter().find(|n| n.nid == nid(B[1])).unwrap().up
        };
        assert!(up(&w), "{profile:?}");
        w.hosts[1].node.set_ni_health(w.now, Some(nid(B[1])), 0);
        w.run(Duration::from_millis(100));
        assert!(!up(&w), "{profile:?}: announced");
        w.hosts[1].node.set_ni_health(w.now, Some(nid(B[1])), 1000);
        w.run(Duration::from_millis(100));
        assert!(up(&w), "{profile:?}: announced");
    }
}

#[test]
fn a_configured_peer_of_own_nids_is_listed_apart_from_the_peers() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    w.discovered(0, B[0]);
    let own = |w: &World| {
        let all = w.hosts[0].node.peer_views_and_own(None, 10);
        all.iter().filter(|(_, v)| v.own).map(|(_, v)| v.primary.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(own(&w), [] as [&str; 0]);
    let itself = ProcessId { nid: nid(A[0]), pid: lnet_types::Pid::LUSTRE };
    w.hosts[0].node.ping(w.now, itself, None, Duration::from_secs(1));
    w.run(Duration::from_millis(100));
    assert_eq!(own(&w), [] as [&str; 0], "no administrator has configured it");
    w.hosts[0].node.peer_add(w.now, nid(A[0]), &[nid(A[1])], true, false).unwrap();
    assert_eq!(own(&w), [A[0]]);
    let peers = w.hosts[0].node.peer_views(None, 10);
    assert_eq!(peers.len(), 1, "{peers:?}");
    assert_eq!(w.hosts[0].node.peer_views_and_own(None, 10).len(), 2);
}

#[test]
fn a_ping_without_an_answer_ends_with_the_transaction_timeout_and_is_a_response_timeout() {
    for (profile, latest) in [(Profile::Kernel, 15), (Profile::Default, 10)] {
        let mut w = World::new();
        w.host(profile, &A[..1]);
        w.host(profile, &B[..1]);
        w.discovered(0, B[0]);
        w.hosts[0].node.set_tunables(w.now, &[("transaction_timeout", 10)]).unwrap();
        // A scan that was planned before comes first (H-63).
        w.secs(75);
        w.hosts[0].node.reset_stats();
        w.hosts[0].reports.clear();
        w.decide = Box::new(|_| Fate::Lose);
        let target = ProcessId { nid: nid(B[0]), pid: lnet_types::Pid::LUSTRE };
        let limit = if profile == Profile::Kernel { 180 } else { 10 };
        w.hosts[0].node.ping(w.now, target, None, Duration::from_secs(limit));
        w.run(Duration::from_millis(9_900));
        assert_eq!(w.hosts[0].reports.len(), 0, "{profile:?}");
        w.secs(latest - 9);
        let outcomes: Vec<_> = w.hosts[0].reports.iter().map(|r| r.outcome.clone()).collect();
        assert_eq!(outcomes, [Err(Errno::EIO)], "{profile:?}");
        assert_eq!(w.hosts[0].node.stats().response_timeout_count, 1, "{profile:?}");
    }
}

#[test]
fn a_node_that_takes_part_in_discovery_again_is_put_together_by_whatever_interface_it_says_so() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    w.hosts[1].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
    w.secs(1);
    w.put(0, B[0], 1, true);
    w.secs(1);
    assert_eq!(peer(&w, 0, B[0]).1, strings(&B[..1]));
    // It speaks by the other one, and answers by both.
    let broken = Fault::new(HealthStatus::LocalError, Errno::EIO);
    w.decide = Box::new(move |t| match t.hdr.kind {
        Kind::Put { .. } | Kind::Get { .. } if t.hdr.src == nid(B[0]) => Fate::Fail(broken),
        _ => Fate::Pass,
    });
    w.hosts[1].node.set_tunables(w.now, &[("discovery", 1)]).unwrap();
    w.secs(1);
    assert_eq!(peer(&w, 0, B[1]), (B[0].into(), strings(&B), SETTLED));
}

/// Answers of B stay on the way while its pushes arrive.
fn holds_answers(t: &Transmit) -> Fate {
    match t.hdr.kind {
        Kind::Reply { .. } if B.contains(&t.hdr.src.to_string().as_str()) => Fate::Hold,
        _ => Fate::Pass,
    }
}

#[test]
fn an_answer_to_a_ping_does_not_undo_a_push_that_has_overtaken_it() {
    for (profile, undone) in [(Profile::Default, false), (Profile::Kernel, true)] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &B);
        w.discovered(0, B[0]);
        // The new one does not speak yet, or whose it is would be asked first; not so by the kernel.
        let broken = Fault::new(HealthStatus::LocalError, Errno::EIO);
        w.decide = Box::new(move |t| match t.hdr.kind {
            Kind::Put { .. } if !undone && t.hdr.src == nid(ADDED) => Fate::Fail(broken),
            _ => holds_answers(t),
        });
        w.hosts[0].node.discover(w.now, nid(B[0]), true);
        w.run(Duration::from_millis(10));
        assert_eq!(w.held.len(), 1);
        w.add_ni(1, ADDED, NetTunables::SOCK);
        w.secs(2);
        assert_eq!(peer(&w, 0, B[0]).1.len(), 3, "{profile:?}");
        w.decide = Box::new(|_| Fate::Pass);
        w.release();
        w.secs(2);
        assert_eq!(peer(&w, 0, B[0]).1.len(), if undone { 2 } else { 3 }, "{profile:?}");
    }
}

#[test]
fn a_late_reply_about_a_removed_interface_does_not_add_it_to_its_node() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    // The new one speaks for the node.
    let broken = Fault::new(HealthStatus::LocalError, Errno::EIO);
    w.decide = Box::new(move |t| match t.hdr.kind {
        Kind::Put { .. } if t.hdr.src != nid(ADDED) => Fate::Fail(broken),
        _ => holds_answers(t),
    });
    let id = w.add_ni(1, ADDED, NetTunables::SOCK);
    w.run(Duration::from_millis(500));
    assert!(!w.held.is_empty());
    assert_eq!(peer(&w, 0, ADDED).1.len(), 1);
    w.decide = Box::new(holds_answers);
    w.hosts[1].node.del_ni(w.now, id).unwrap();
    w.hosts[1].nids.remove(&id);
    w.run(Duration::from_millis(100));
    assert_eq!(peer(&w, 0, B[0]).1, strings(&B));
    w.decide = Box::new(|_| Fate::Pass);
    while !w.held.is_empty() {
        w.release();
    }
    w.secs(5);
    assert_eq!(peer(&w, 0, B[0]).1, strings(&B));
}

/// What is first in its list may be where this node cannot go.
#[test]
fn the_owner_of_an_interface_is_queried_over_a_reachable_network() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.host(Profile::Default, &["10.78.0.3@tcp1", B[0]]);
    w.discovered(0, B[0]);
    w.discovered(1, A[0]);
    let both = ["10.78.0.3@tcp1", B[0]];
    assert_eq!(peer(&w, 0, B[0]), (both[0].into(), strings(&both), SETTLED));
    // The new one speaks for the node.
    let broken = Fault::new(HealthStatus::LocalError, Errno::EIO);
    w.decide = Box::new(move |t| match t.hdr.kind {
        Kind::Put { .. } if t.hdr.src == nid(B[0]) => Fate::Fail(broken),
        _ => Fate::Pass,
    });
    w.add_ni(1, B[1], NetTunables::SOCK);
    w.secs(5);
    assert_eq!(peer(&w, 0, B[1]).1, strings(&[both[0], B[0], B[1]]));
}

/// No interface of it can be queried: all known ones are gone, or out of reach of this node.
#[test]
fn a_node_that_is_back_at_a_nid_that_it_had_given_up_is_the_same_node() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    let far = "10.78.0.3@tcp1";
    w.host(Profile::Default, &[far, B[0]]);
    w.discovered(0, B[0]);
    w.discovered(1, A[0]);
    let del = |w: &mut World, n: &str| {
        let id = *w.hosts[1].nids.iter().find(|(_, x)| **x == nid(n)).unwrap().0;
        w.hosts[1].node.del_ni(w.now, id).unwrap();
        w.hosts[1].nids.remove(&id);
        w.secs(1);
    };
    w.add_ni(1, B[1], NetTunables::SOCK);
    w.secs(1);
    del(&mut w, B[0]);
    assert_eq!(peer(&w, 0, B[1]).1, strings(&[far, B[1]]));
    del(&mut w, B[1]);
    w.secs(60);
    w.add_ni(1, B[0], NetTunables::SOCK);
    w.put(0, B[0], 1, true);
    // No answer comes from the other one; then its own announcement is accepted.
    w.secs(20);
    assert_eq!(peer(&w, 0, B[0]).1, strings(&[far, B[0]]));
}

/// The second node dies, and comes back with these interfaces only.
fn is_back_without_the_added_one(w: &mut World, profile: Profile, nids: &[&str]) {
    w.hosts[1].alive = false;
    w.hosts[1].nids.clear();
    let gone = Fault::new(HealthStatus::RemoteError, Errno::ECONNREFUSED);
    w.decide = Box::new(move |t| match t.to.nid == nid(ADDED) {
        true => Fate::Fail(gone),
        false => Fate::Pass,
    });
    w.host(profile, nids);
}

/// It has no peers any more, so it announces to none.
#[test]
fn a_node_that_is_back_without_an_interface_is_asked_when_that_has_failed() {
    for (profile, asked) in [(Profile::Off, true), (Profile::Kernel, false)] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &[B[0], B[1], ADDED]);
        w.discovered(0, B[0]);
        is_back_without_the_added_one(&mut w, profile, &B);
        for n in 0..10 {
            w.put(0, B[0], n, false);
            w.secs(1);
        }
        let known = peer(&w, 0, B[0]).1.len();
        assert_eq!(known, if asked { 2 } else { 3 }, "{profile:?}");
    }
}

#[test]
fn an_unanswered_query_for_the_owner_of_an_interface_is_repeated() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.host(Profile::Default, &B[..1]);
    w.discovered(0, B[0]);
    w.discovered(1, A[0]);
    let broken = Fault::new(HealthStatus::LocalError, Errno::EIO);
    w.decide = Box::new(move |t| match (t.hdr.src, t.hdr.dst) {
        (src, _) if src == nid(B[0]) => Fate::Fail(broken),
        (_, dst) if dst == nid(B[0]) => Fate::Lose,
        _ => Fate::Pass,
    });
    w.add_ni(1, B[1], NetTunables::SOCK);
    w.secs(30);
    assert_eq!(peer(&w, 0, B[1]).1, strings(&B[1..]), "not believed alone");
    w.decide = Box::new(|_| Fate::Pass);
    w.secs(60);
    assert_eq!(peer(&w, 0, B[1]), (B[0].into(), strings(&B), SETTLED));
}

/// Whichever one messages go to.
#[test]
fn a_peer_that_does_not_answer_is_pinged_at_another_interface() {
    let mut w = World::new();
    w.host(Profile::Off, &A);
    w.host(Profile::Off, &[B[0], ADDED]);
    let preferred = Rule::new(None, Some(ADDED.parse().unwrap()), None, Some(0), None).unwrap();
    w.hosts[0].node.udsp_add(w.now, preferred, None).unwrap();
    w.discovered(0, B[0]);
    is_back_without_the_added_one(&mut w, Profile::Off, &B[..1]);
    for n in 0..10 {
        w.put(0, B[0], n, false);
        w.secs(1);
    }
    assert_eq!(peer(&w, 0, B[0]).1, strings(&B[..1]));
}

/// H-42: it was not yet known as a peer when it failed.
#[test]
fn an_interface_that_failed_before_its_first_message_is_healthy_after_it() {
    for profile in [Profile::Default, Profile::Pre213] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &B);
        w.decide = Box::new(|_| Fate::Lose);
        w.put(0, B[0], 1, true);
        w.secs(130);
        w.decide = Box::new(|_| Fate::Pass);
        assert!(w.peer_health(0, B[0]) < 1000, "{profile:?}");
        w.discovered(0, B[0]);
        w.secs(30);
        assert_eq!(w.peer_health(0, B[0]), 1000, "{profile:?}");
    }
}

#[test]
fn a_peer_that_is_gone_for_good_gets_a_few_pushes_and_no_more() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    w.hosts[1].alive = false;
    let pushes = |w: &World| w.hosts[0].sent.iter().filter(|(_, hdr)| is_push(hdr)).count();
    for _ in 0..2 {
        w.hosts[0].sent.clear();
        w.add_ni(0, "10.77.2.2@tcp", NetTunables::SOCK);
        w.secs(600);
        let tried = pushes(&w);
        assert!((4..=40).contains(&tried), "{tried}");
        w.secs(3600);
        assert_eq!(pushes(&w), tried, "it is left alone");
        let id = *w.hosts[0].nids.iter().find(|(_, n)| **n == nid("10.77.2.2@tcp")).unwrap().0;
        w.hosts[0].nids.remove(&id);
        w.hosts[0].node.del_ni(w.now, id).unwrap();
        w.secs(600);
    }
}

#[test]
fn x26b_discovery_switched_off_at_run_time_makes_the_peer_plain() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    w.discovered(0, B[0]);
    w.hosts[1].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
    w.secs(1);
    w.put(0, B[0], 1, true);
    w.secs(1);
    let flags = PeerFlags::from_bits_truncate(peer(&w, 0, B[0]).2);
    assert!(!flags.contains(PeerFlags::MULTI_RAIL));
    assert_eq!(w.events(0, 1).len(), 2);
}

#[test]
fn x27_a_discovery_that_fails_ends_the_message_and_is_repeated_for_the_next() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B[..1]);
    w.decide = Box::new(|_| Fate::Fail(Fault::new(HealthStatus::RemoteError, Errno::ECONNREFUSED)));
    w.put(0, B[0], 1, true);
    w.secs(1);
    assert_eq!(w.hosts[0].events.len(), 1);
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::ECONNREFUSED));
    assert!(PeerFlags::from_bits_truncate(peer(&w, 0, B[0]).2).contains(PeerFlags::REDISCOVER));
    w.decide = Box::new(|_| Fate::Pass);
    w.put(0, B[0], 2, true);
    w.secs(1);
    assert_eq!(w.events(0, 2).len(), 2);
    assert_eq!(peer(&w, 0, B[0]).2, SETTLED);
}

#[test]
fn both_sides_discovering_at_once_agree() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    w.put(0, B[1], 1, true);
    w.put(1, A[1], 2, true);
    w.secs(2);
    assert_eq!(peer(&w, 0, B[0]), (B[0].into(), strings(&B), SETTLED));
    assert_eq!(peer(&w, 1, A[0]), (A[0].into(), strings(&A), SETTLED));
    assert_eq!((w.events(0, 1).len(), w.events(1, 2).len()), (2, 2));
}

#[test]
fn a_peer_with_more_interfaces_than_the_first_buffer_holds_is_learnt_whole() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    let many: Vec<String> = (1..=40).map(|i| format!("10.78.0.{i}@tcp")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    w.host(Profile::Kernel, &many);
    w.put(0, many[7], 1, true);
    w.secs(1);
    let (primary, nids, state) = peer(&w, 0, many[0]);
    assert_eq!((primary.as_str(), nids.len(), state), (many[0], 40, SETTLED));
    // And the other way, where the push is larger than the push buffer.
    w.put(1, A[0], 2, true);
    w.secs(1);
    assert_eq!(peer(&w, 1, A[0]).2, SETTLED);
}

#[test]
fn a_restarted_peer_with_other_nids_is_learnt_anew() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    w.discovered(0, B[0]);
    w.hosts[1].alive = false;
    w.hosts[1].nids.clear();
    w.host(Profile::Kernel, &[B[0], C[1]]);
    w.hosts[0].node.discover(w.now, nid(B[0]), true);
    w.secs(2);
    assert_eq!(peer(&w, 0, B[0]).1, strings(&[B[0], C[1]]));
}

#[test]
fn a_reply_that_is_no_ping_data_ends_discovery_after_a_few_tries() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    // B serves garbage where its ping data should be.
    let md = w.hosts[1].node.own.mds()[0].unwrap();
    let d = w.hosts[1].node.portals.mds.get_mut(md).unwrap();
    d.buf = crate::portal::md::MdBuf::Bytes(std::sync::Arc::from([0xffu8; 64]));
    d.len = 64;
    w.put(0, B[0], 1, true);
    w.secs(1);
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::EPROTO));
    assert_eq!(w.events(0, 1)[0].0, EventKind::Send);
}

#[test]
fn a_ping_shows_what_the_peer_says_and_what_we_know() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B);
    let target = ProcessId::lustre(nid(B[1]));
    let second = Duration::from_secs(1);
    w.hosts[0].node.ping(w.now, target, None, second);
    w.secs(1);
    let found = w.hosts[0].reports.remove(0).outcome.unwrap();
    assert_eq!(found.primary, nid(B[1]), "not discovered: the peer is what was asked for");
    assert!(!found.multi_rail);
    assert_eq!(found.nids, [nid(B[0]), nid(B[1])]);
    w.discovered(0, B[0]);
    w.hosts[0].node.ping(w.now, target, None, second);
    w.secs(1);
    let found = w.hosts[0].reports.remove(0).outcome.unwrap();
    assert_eq!((found.primary, found.multi_rail), (nid(B[0]), true));
}

#[test]
fn a_ping_that_is_not_answered_ends_at_its_timeout() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.decide = Box::new(|_| Fate::Lose);
    let target = ProcessId::lustre(nid(B[0]));
    w.hosts[0].node.ping(w.now, target, None, Duration::from_secs(3));
    w.secs(2);
    assert!(w.hosts[0].reports.is_empty());
    w.secs(2);
    assert_eq!(w.hosts[0].reports[0].outcome, Err(Errno::EIO));
    assert_eq!(w.hosts[0].node.stats().response_timeout_count, 0, "no interface is charged");
}

#[test]
fn the_round_trip_of_a_ping_is_measured() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A[..1]);
    w.host(Profile::Kernel, &B[..1]);
    let target = ProcessId::lustre(nid(B[0]));
    w.hosts[0].node.ping(w.now, target, None, Duration::from_secs(3));
    w.secs(1);
    let rtt = w.hosts[0].node.net_views()[1].nis[0].stats.get_rtt;
    assert_eq!((rtt.samples, rtt.min_nsec), (1, 2_000_000));
    assert_eq!(w.hosts[0].node.stats().rst_alloc, 0);
}

#[test]
fn pinging_loopback_and_oneself_works() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    let second = Duration::from_secs(1);
    for target in ["0@lo", A[0]] {
        let target = ProcessId::lustre(nid(target));
        w.hosts[0].node.ping(w.now, target, None, second);
        w.secs(1);
        let found = w.hosts[0].reports.remove(0).outcome.unwrap();
        assert_eq!(found.nids, [nid(A[0]), nid(A[1])]);
        assert_eq!((found.primary, found.multi_rail), (target.nid, false));
    }
    w.hosts[0].node.discover(w.now, nid("0@lo"), false);
    w.secs(1);
    let found = w.hosts[0].reports.remove(0).outcome.unwrap();
    assert_eq!((found.primary, found.multi_rail), (nid(A[0]), true));
    assert_eq!(found.nids, [nid(A[0]), nid(A[1])]);
}

#[test]
fn a_refused_peer_add_leaves_nothing_behind() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    let (now, node) = (w.now, &mut w.hosts[0].node);
    node.peer_add(now, nid(C[0]), &[nid(C[1])], true, false).unwrap();
    assert_eq!(node.peer_add(now, nid(B[0]), &[nid(C[1])], true, false), Err(Errno::EEXIST));
    assert!(node.peer_view_of(nid(B[0])).is_none());
    node.peer_add(now, nid(B[0]), &[], true, false).unwrap();
    let refused = node.peer_add(now, nid(B[0]), &[nid(B[1]), nid(C[1])], true, false);
    assert_eq!(refused, Err(Errno::EEXIST));
    assert_eq!(node.peer_view_of(nid(B[0])).unwrap().nis.len(), 1, "B1 is taken back");
    assert_eq!(node.peer_view_of(nid(C[1])).unwrap().primary, nid(C[0]));
}

/// O-37.
#[test]
fn a_reset_peer_has_none_of_the_nids_of_a_ping_from_before_the_reset() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    let state = PeerFlags::from_bits_truncate(peer(&w, 0, B[0]).2) | PeerFlags::LOCK_PRIMARY;
    w.hosts[0].node.set_peer_state(nid(B[0]), state.bits()).unwrap();
    let is_reply = |t: &Transmit| matches!(t.hdr.kind, Kind::Reply { .. });
    w.decide = Box::new(move |t| if is_reply(t) { Fate::Hold } else { Fate::Pass });
    w.hosts[0].node.discover(w.now, nid(B[0]), true);
    w.secs(1);
    assert_eq!(w.held.len(), 1);
    w.hosts[0].node.peer_del(w.now, nid(B[0]), &[], false).unwrap();
    assert_eq!(peer(&w, 0, B[0]).1, strings(&B[..1]));
    w.secs(1);
    assert_eq!(w.held.len(), 2, "it is pinged anew");
    w.release();
    w.secs(1);
    assert_eq!(peer(&w, 0, B[0]).1, strings(&B[..1]), "what the earlier ping has brought");
    assert!(w.hosts[0].reports.is_empty(), "who waits, waits for the new ping");
    w.release();
    w.secs(1);
    assert_eq!(peer(&w, 0, B[0]).1, strings(&B));
    assert!(w.hosts[0].reports.remove(0).outcome.is_ok());
}

#[test]
fn a_nid_that_a_peer_has_is_added_again_where_it_has_as_many_as_it_may() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    let (now, node) = (w.now, &mut w.hosts[0].node);
    node.set_tunables(now, &[("max_interfaces", 16)]).unwrap();
    let nids: Vec<_> = (1..=17).map(|n| nid(&format!("10.77.9.{n}@tcp"))).collect();
    node.peer_add(now, nids[0], &nids[1..16], true, false).unwrap();
    assert_eq!(node.peer_add(now, nids[0], &nids[15..16], true, false), Ok(()));
    assert_eq!(node.peer_add(now, nids[0], &nids[16..], true, false), Err(Errno::ENOSPC));
}

/// O-33.
#[test]
fn a_peer_add_by_another_nid_than_the_primary_one_is_refused_with_nids_or_without() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    let (now, node) = (w.now, &mut w.hosts[0].node);
    let b = B.map(nid);
    node.peer_add(now, b[0], &b, true, false).unwrap();
    for nids in [&[][..], &b[1..], &b, &[nid(C[0])]] {
        assert_eq!(node.peer_add(now, b[1], nids, true, false), Err(Errno::EEXIST), "{nids:?}");
    }
    assert_eq!(node.peer_add(now, b[0], &b[1..], true, false), Ok(()));
}

/// Behind a router a lost answer is all there is to see of an interface that is gone.
#[test]
fn a_node_behind_a_router_is_asked_what_it_has_when_an_answer_is_missing() {
    const ROUTER: [&str; 2] = ["10.70.0.4@tcp", "10.71.0.4@tcp1"];
    const FAR: [&str; 3] = ["10.71.0.5@tcp1", "10.71.1.5@tcp1", "10.71.2.5@tcp1"];
    let mut w = World::new();
    w.host(Profile::Pre213, &["10.70.0.2@tcp"]);
    w.host(Profile::Pre213, &FAR);
    w.router(Profile::Pre213, &ROUTER);
    w.route(0, "tcp1", ROUTER[0]);
    w.route(1, "tcp", ROUTER[1]);
    w.secs(1);
    w.discovered(0, FAR[0]);
    assert_eq!(peer(&w, 0, FAR[0]).1.len(), 3);
    // It never tells that it has lost two of them.
    w.decide = Box::new(|t| match is_push(&t.hdr) && t.hdr.src == nid(FAR[0]) {
        true => Fate::Lose,
        false => Fate::Pass,
    });
    for n in &FAR[1..] {
        let id = *w.hosts[1].nids.iter().find(|(_, x)| **x == nid(n)).unwrap().0;
        w.hosts[1].nids.remove(&id);
        w.hosts[1].node.del_ni(w.now, id).unwrap();
    }
    w.secs(2000);
    assert_eq!(peer(&w, 0, FAR[0]).1.len(), 3);
    w.put(0, FAR[1], 1, true);
    w.secs(300);
    assert_eq!(peer(&w, 0, FAR[0]).1, strings(&FAR[..1]));
}

/// What was known of it here was on the network that we had left; what is left of it can't be asked.
#[test]
fn a_node_that_is_met_again_on_a_network_that_we_had_left_is_the_same_node() {
    let both = ["10.78.0.3@o2ib", B[0]];
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.host(Profile::Default, &both);
    w.discovered(0, B[0]);
    assert_eq!(peer(&w, 0, B[0]).1, strings(&both));
    let id = *w.hosts[0].nids.iter().find(|(_, n)| **n == nid(A[0])).unwrap().0;
    w.hosts[0].nids.remove(&id);
    w.hosts[0].node.del_ni(w.now, id).unwrap();
    w.secs(1);
    assert!(w.hosts[0].node.peer_view_of(nid(B[0])).is_none());
    w.add_ni(0, A[0], NetTunables::SOCK);
    w.put(0, B[0], 1, true);
    w.secs(60);
    assert_eq!(peer(&w, 0, B[0]), (both[0].into(), strings(&both), SETTLED));
}

/// Each time that an interface is pinged in vain may be the last word of it that there is.
#[test]
fn a_node_is_asked_what_it_has_when_one_of_its_interfaces_does_not_come_back() {
    for (profile, asks) in [(Profile::Default, true), (Profile::Kernel, false)] {
        let mut w = World::new();
        w.host(profile, &A[..1]);
        w.host(profile, &B);
        w.discovered(0, B[0]);
        w.decide = Box::new(|t| match is_push(&t.hdr) && t.hdr.src == nid(B[0]) {
            true => Fate::Lose,
            false => Fate::Pass,
        });
        let id = *w.hosts[1].nids.iter().find(|(_, x)| **x == nid(B[1])).unwrap().0;
        w.hosts[1].nids.remove(&id);
        w.hosts[1].node.del_ni(w.now, id).unwrap();
        w.secs(2000);
        assert_eq!(peer(&w, 0, B[0]).1.len(), 2);
        w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(B[1])), 900);
        w.secs(300);
        assert_eq!(peer(&w, 0, B[0]).1.len() == 1, asks, "{profile:?}");
    }
}

/// Whatever has kept it from its news.
#[test]
fn a_peer_in_use_is_asked_now_and_then_what_it_has_and_others_are_not() {
    let is_ping = |hdr: &lnet_wire::Hdr| matches!(hdr.kind, Kind::Get { portal: 0, .. });
    for (interval, uses, learns) in
        [(60, "put", true), (60, "ping", true), (60, "", false), (0, "put", false)]
    {
        let mut w = World::new();
        w.host(Profile::Default, &A);
        w.host(Profile::Kernel, &B);
        w.discovered(0, B[0]);
        w.secs(200);
        w.hosts[0].node.set_tunables(w.now, &[("peer_refresh_interval", interval)]).unwrap();
        w.decide = Box::new(|t| if is_push(&t.hdr) { Fate::Lose } else { Fate::Pass });
        w.add_ni(1, ADDED, NetTunables::SOCK);
        w.hosts[0].sent.clear();
        for n in 0..60 {
            match uses {
                "put" => w.put(0, B[0], 10 + n, true),
                "ping" => {
                    let target = ProcessId::lustre(nid(B[0]));
                    w.hosts[0].node.ping(w.now, target, None, Duration::from_secs(1));
                }
                _ => {}
            }
            w.secs(2);
        }
        let asked = if uses == "ping" { 60 } else { 0 };
        assert_eq!(peer(&w, 0, B[0]).1.len() == 3, learns, "{interval} {uses}");
        // Once in 60 to 75 s.
        let pings = w.hosts[0].sent.iter().filter(|(_, hdr)| is_ping(hdr)).count();
        assert_eq!(pings - asked, if learns { 1 } else { 0 }, "{interval} {uses}");
    }
}

/// Both NIDs are two peers until the node has answered at each of them.
#[test]
fn a_discovery_reports_all_interfaces_of_a_peer_whose_nids_were_pinged_one_by_one() {
    for asked in B {
        for profile in [Profile::Default, Profile::Kernel] {
            let mut w = World::new();
            w.host(profile, &A);
            w.host(profile, &B);
            for n in B {
                let target = ProcessId::lustre(nid(n));
                w.hosts[0].node.ping(w.now, target, None, Duration::from_secs(1));
            }
            w.secs(1);
            w.hosts[0].reports.clear();
            w.hosts[0].node.discover(w.now, nid(asked), false);
            w.secs(2);
            let found = w.hosts[0].reports.remove(0).outcome.unwrap();
            assert_eq!(
                (found.primary, found.nids),
                (nid(B[0]), B.map(nid).to_vec()),
                "{profile:?}"
            );
            assert_eq!(peer(&w, 0, asked).2, SETTLED);
        }
    }
}

#[test]
fn a_discovery_ends_with_what_is_known_when_a_claimed_nid_does_not_answer() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    let target = ProcessId::lustre(nid(B[1]));
    w.hosts[0].node.ping(w.now, target, None, Duration::from_secs(1));
    w.secs(1);
    w.hosts[0].reports.clear();
    w.decide = Box::new(|t| match [t.hdr.src, t.hdr.dst].contains(&nid(B[1])) {
        true => Fate::Lose,
        false => Fate::Pass,
    });
    w.hosts[0].node.discover(w.now, nid(B[0]), false);
    w.secs(1);
    assert!(w.hosts[0].reports.is_empty());
    w.secs(200);
    let found = w.hosts[0].reports.remove(0).outcome.unwrap();
    assert_eq!(found.nids, [nid(B[0])]);
}

/// A peer claims the NIDs of another one. The question to these was lost, and is due again without a link.
#[test]
fn a_question_that_is_due_without_a_link_is_asked_when_one_is_back() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    let known = B.map(nid);
    w.decide = Box::new(move |t| match [t.hdr.src, t.hdr.dst].iter().any(|n| known.contains(n)) {
        true => Fate::Fail(Fault::new(HealthStatus::LocalError, Errno::ENETDOWN)),
        false => Fate::Pass,
    });
    w.add_ni(1, ADDED, NetTunables::SOCK);
    while w.hosts[0].node.peer_view_of(nid(ADDED)).is_none() {
        w.run(Duration::from_millis(1));
    }
    w.link(0, A[0], crate::Link::Down);
    w.decide = Box::new(|_| Fate::Pass);
    w.run(Duration::from_millis(1500));
    w.link(0, A[0], crate::Link::Up);
    w.secs(3);
    assert_eq!(peer(&w, 0, B[0]).1.len(), 3);
}

/// What a kernel node has pushed from an interface that was not known is another peer at first; a push
/// to that one may be under way when the two become one.
#[test]
fn each_response_of_a_kernel_node_finds_its_descriptor() {
    for ours in [1, 2] {
        for theirs in [1, 2] {
            for starts in [0, 1] {
                let mut w = World::new();
                w.host(Profile::Default, &A[..ours]);
                w.host(Profile::Kernel, &B[..theirs]);
                let target = [B[theirs - 1], A[ours - 1]][starts];
                w.put(starts, target, 1, true);
                w.secs(5);
                w.add_ni(1, ADDED, NetTunables::SOCK);
                w.secs(5);
                assert_eq!(peer(&w, 0, B[0]).1.len(), theirs + 1);
                let drops: Vec<_> = w.hosts.iter().flat_map(|h| h.node.drops()).collect();
                assert!(drops.is_empty(), "{ours} {theirs} {starts}: {drops:?}");
            }
        }
    }
}

#[test]
fn a_ping_that_can_not_be_sent_leaves_no_tracker_behind() {
    let mut w = World::new();
    w.host(Profile::Default, &["10.77.0.2@tcp"]);
    let target = ProcessId::lustre(nid("10.99.0.1@tcp9"));
    w.hosts[0].node.ping(w.now, target, None, Duration::from_secs(1));
    w.drain();
    assert_eq!(w.hosts[0].reports.len(), 1);
    assert_eq!(w.hosts[0].node.stats().rst_alloc, 0);
}
