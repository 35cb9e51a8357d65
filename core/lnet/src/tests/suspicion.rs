//! Suspected rails: avoided, left, and nothing else (DEC-31).

use core::time::Duration;
use std::collections::BTreeMap;

use lnet_types::{Errno, Fault, HealthStatus, Prng};
use lnet_wire::Kind;

use super::policy::rule;
use super::world::{Fate, Host, PT, World, nid};
use crate::msg::Role;
use crate::{Criterion, Doubt, EventKind, Link, MdOptions, NetTunables, Outcome, Profile};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];

fn pair() -> World {
    pair_of(Profile::Default, NetTunables::SOCK)
}

fn pair_of(profile: Profile, tunables: NetTunables) -> World {
    let mut w = World::new();
    w.host_with(profile, &A, tunables);
    w.host_with(profile, &B, tunables);
    w.discovered(0, B[0]);
    w
}

impl World {
    /// The driver of `host` thinks so of the rail between two NIDs.
    pub(crate) fn doubt(&mut self, host: usize, from: &str, to: &str, doubt: Doubt) {
        let h = &mut self.hosts[host];
        let (&ni, _) = h.nids.iter().find(|(_, n)| **n == nid(from)).unwrap();
        h.node.rail_changed(self.now, ni, nid(to), doubt);
        self.drain();
    }

    /// Holds everything that leaves.
    fn hold(&mut self) {
        self.decide = Box::new(|_| Fate::Hold);
    }

    fn pass_all(&mut self) {
        self.decide = Box::new(|_| Fate::Pass);
        while !self.held.is_empty() {
            self.release();
        }
        self.run(Duration::from_millis(50));
    }

    /// Pairs of the messages that the wire holds.
    fn held_pairs(&self) -> Vec<(String, String)> {
        self.held.iter().map(|(_, t)| (t.hdr.src.to_string(), t.hdr.dst.to_string())).collect()
    }
}

/// The peer is one that does not tell a copy from a new message.
fn tells_no_copies(w: &mut World) {
    w.hosts[1].node.set_tunables(w.now, &[("suppress_duplicates", 0)]).unwrap();
    w.hosts[0].node.discover(w.now, nid(B[0]), true);
    w.secs(1);
    for h in &mut w.hosts {
        h.node.reset_stats();
        h.sent.clear();
    }
}

/// PUTs, one after the other, and the pairs that they took.
fn puts(w: &mut World, n: u64) -> Vec<(String, String)> {
    let before = w.pairs(0).len();
    for user in 0..n {
        w.put(0, B[0], user, false);
        w.run(Duration::from_millis(2));
    }
    w.pairs(0).split_off(before)
}

fn is(pair: &(String, String), from: &str, to: &str) -> bool {
    pair.0 == from && pair.1 == to
}

#[test]
fn new_messages_leave_a_silent_rail_and_both_of_its_ends_at_once() {
    let mut w = pair();
    w.doubt(0, A[0], B[0], Doubt::Silent);
    let got = puts(&mut w, 8);
    assert!(got.iter().all(|p| is(p, A[1], B[1])), "what is dead at one end is dead: {got:?}");
    // If that one falls silent too, those that share an end with both are left.
    w.doubt(0, A[1], B[1], Doubt::Silent);
    let got = puts(&mut w, 8);
    assert!(got.iter().all(|p| is(p, A[0], B[1]) || is(p, A[1], B[0])), "{got:?}");
}

#[test]
fn messages_to_a_known_peer_do_not_wait_for_a_push_that_hangs() {
    for (profile, waits) in [(Profile::Default, false), (Profile::Kernel, true)] {
        let mut w = pair_of(profile, NetTunables::SOCK);
        // The push that tells of the link, and whatever else leaves, stays on the way.
        w.hold();
        w.link(0, A[1], Link::Down);
        w.run(Duration::from_millis(10));
        let before = w.pairs(0).len();
        w.put(0, B[0], 7, false);
        w.run(Duration::from_millis(10));
        let left = w.pairs(0).len() - before;
        assert_eq!(left, usize::from(!waits), "{profile:?}");
    }
}

#[test]
fn messages_that_are_not_written_leave_an_interface_that_its_node_removes() {
    for rail in 0..2 {
        let mut w = pair();
        w.decide = Box::new(|t| match t.hdr.kind {
            Kind::Put { portal: PT, .. } => Fate::Hold,
            _ => Fate::Pass,
        });
        for user in 0..2 {
            w.put(0, B[0], user, false);
        }
        let before = w.held_pairs();
        assert_ne!(before[0].1, before[1].1);
        let (&id, _) = w.hosts[1].nids.iter().find(|(_, n)| **n == nid(B[rail])).unwrap();
        w.hosts[1].node.leave_ni(w.now, id);
        w.hosts[1].node.del_ni(w.now, id).unwrap();
        w.hosts[1].nids.remove(&id);
        w.run(Duration::from_millis(20));
        let after = w.held_pairs();
        assert_eq!(after.len(), 2);
        assert!(after.iter().all(|pair| pair.1 == B[1 - rail]), "{before:?} {after:?}");
        w.pass_all();
        let arrived = w.hosts[1].events.iter().filter(|e| e.kind == EventKind::Put).count();
        assert_eq!(arrived, 2);
        assert_eq!(w.hosts[0].node.stats().resend_count, 0);
    }
}

#[test]
fn a_rail_above_doubt_is_used_again() {
    let mut w = pair();
    w.doubt(0, A[0], B[0], Doubt::Silent);
    w.doubt(0, A[0], B[0], Doubt::None);
    let got = puts(&mut w, 8);
    assert_eq!(got.iter().filter(|p| p.0 == A[0]).count(), 4, "{got:?}");
}

#[test]
fn where_every_rail_is_silent_the_other_criteria_decide_and_messages_go() {
    let mut w = pair();
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        w.doubt(0, A[a], B[b], Doubt::Silent);
    }
    let got = puts(&mut w, 8);
    assert_eq!(got.iter().filter(|p| p.0 == A[0]).count(), 4, "{got:?}");
    assert_eq!(got.iter().filter(|p| p.1 == B[0]).count(), 4, "{got:?}");
}

#[test]
fn a_shaky_rail_is_chosen_before_a_silent_one_and_after_an_undoubted_one() {
    let mut w = pair();
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        w.doubt(0, A[a], B[b], if a == 0 { Doubt::Shaky } else { Doubt::Silent });
    }
    let got = puts(&mut w, 4);
    assert!(got.iter().all(|p| p.0 == A[0]), "{got:?}");
    w.doubt(0, A[1], B[0], Doubt::None);
    w.doubt(0, A[1], B[1], Doubt::None);
    let got = puts(&mut w, 4);
    assert!(got.iter().all(|p| p.0 == A[1]), "{got:?}");
}

#[test]
fn messages_leave_a_silent_rail_even_for_an_unproven_one() {
    let mut w = pair();
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        w.doubt(0, A[a], B[b], if a == 0 { Doubt::Shaky } else { Doubt::Unproven });
    }
    let got = puts(&mut w, 4);
    assert!(got.iter().all(|p| p.0 == A[0]), "{got:?}");
    // Nothing is given up: where the other one is no better, it carries.
    for b in B {
        w.doubt(0, A[0], b, Doubt::Silent);
    }
    let got = puts(&mut w, 4);
    assert!(got.iter().all(|p| p.0 == A[1]), "{got:?}");
}

#[test]
fn silence_goes_before_health_and_rules_and_shakiness_behind_both() {
    let health = |w: &mut World, n: &str, h| w.hosts[0].node.set_ni_health(w.now, Some(nid(n)), h);
    for (doubt, goes) in [(Doubt::Silent, A[1]), (Doubt::Shaky, A[0])] {
        let mut w = pair();
        w.hold();
        health(&mut w, A[1], 900);
        for b in B {
            w.doubt(0, A[0], b, doubt);
        }
        w.put(0, B[0], 1, false);
        assert_eq!(w.pairs(0)[0].0, goes, "{doubt} against health");
    }
    for (doubt, goes) in [(Doubt::Silent, A[1]), (Doubt::Shaky, A[0])] {
        let mut w = pair();
        for text in ["src 10.77.0.*@tcp priority 1", "src 10.77.1.*@tcp priority 2"] {
            w.hosts[0].node.udsp_add(w.now, rule(text), None).unwrap();
        }
        for b in B {
            w.doubt(0, A[0], b, doubt);
        }
        w.put(0, B[0], 1, false);
        assert_eq!(w.pairs(0)[0].0, goes, "{doubt} against a rule");
    }
}

#[test]
fn messages_that_the_driver_has_not_begun_and_those_that_queue_follow_and_arrive_once() {
    let few = NetTunables { peer_credits: 2, ..NetTunables::SOCK };
    let mut w = pair_of(Profile::Default, few);
    w.hold();
    for user in 0..20 {
        w.put(0, B[0], user, true);
    }
    let before = w.held_pairs();
    assert_eq!(before.len(), 4, "two of each interface of the peer, the others queue: {before:?}");
    // The only rail that is left takes all.
    for (a, b) in [(0, 0), (0, 1), (1, 0)] {
        w.doubt(0, A[a], B[b], Doubt::Silent);
    }
    let after = w.held_pairs();
    assert_eq!(after.len(), 2, "its credits: {after:?}");
    assert!(after.iter().all(|p| is(p, A[1], B[1])), "{after:?}");
    w.pass_all();
    for user in 0..20 {
        let got = w.events(0, user);
        assert_eq!(got.len(), 2, "message {user}: {got:?}");
        assert!(got.iter().all(|(_, ok, _)| *ok));
    }
    let s = w.hosts[0].node.stats();
    assert_eq!((s.send_count, s.resend_count, s.msgs_alloc), (20, 0, 0), "no attempt was counted");
    assert_eq!(w.hosts[1].node.stats().recv_count, 20, "nothing arrived twice");
    assert!(w.hosts[0].node.suspicion().moved >= 2);
}

/// What lies on silent rails holds no credit of the interface that the good rail leads to.
#[test]
fn messages_that_the_driver_has_begun_leave_their_credits_to_their_copies() {
    let few = NetTunables { peer_credits: 2, ..NetTunables::SOCK };
    let mut w = pair_of(Profile::Default, few);
    w.gives_back = false;
    // All leave by the first interface, which then falls silent, while the other one is back.
    for b in B {
        w.doubt(0, A[1], b, Doubt::Silent);
    }
    w.hold();
    for user in 0..20 {
        w.put(0, B[0], user, true);
    }
    w.doubt(0, A[1], B[1], Doubt::None);
    for b in B {
        w.doubt(0, A[0], b, Doubt::Silent);
    }
    let on_good = |w: &World| w.held_pairs().iter().filter(|p| is(p, A[1], B[1])).count();
    assert_eq!(on_good(&w), 2, "{:?}", w.held_pairs());
    w.pass_all();
    for user in 0..20 {
        let got = w.events(0, user);
        assert!(got.len() >= 2 && got.iter().all(|(_, ok, _)| *ok), "message {user}: {got:?}");
    }
    assert!(w.hosts[0].node.msgs.is_empty());
    let peers = w.hosts[0].node.peer_views(None, usize::MAX);
    let nis = peers.iter().flat_map(|(_, peer)| &peer.nis);
    assert!(nis.into_iter().all(|ni| ni.credits == 2), "none is lost, none given twice");
}

/// More often than `retry_count` says: what a copy is lost with that left a silent rail is no failed attempt.
#[test]
fn a_message_that_left_a_silent_rail_as_a_copy_goes_until_its_deadline() {
    const SECOND: Duration = Duration::from_secs(1);
    let broken = Fault::new(HealthStatus::NetworkTimeout, Errno::EIO);
    for (reply, lost, arrives) in [
        (false, false, true),
        (true, false, true),
        // Written, and handed back by its driver.
        (false, true, true),
        (false, false, false),
    ] {
        let case = format!("reply: {reply}, lost: {lost}, arrives: {arrives}");
        let mut w = pair();
        w.gives_back = false;
        for h in &mut w.hosts {
            h.node.set_tunables(w.now, &[("transaction_timeout", 60)]).unwrap();
        }
        let mut lost_first = lost;
        w.decide = Box::new(move |t| match t.hdr.kind {
            Kind::Put { portal: PT, .. } if !reply && core::mem::take(&mut lost_first) => {
                Fate::Lose
            }
            Kind::Put { portal: PT, .. } if !reply => Fate::Hold,
            Kind::Reply { .. } if reply => Fate::Hold,
            _ => Fate::Pass,
        });
        let sender = usize::from(reply);
        if reply {
            w.get(0, B[0], 1);
        } else {
            w.put(0, B[0], 1, false);
        }
        w.run(Duration::from_millis(10));
        let (from, to) = match w.in_doubt.first() {
            Some((_, m)) => (w.hosts[0].nids[&m.ni].to_string(), m.to.to_string()),
            None => w.held_pairs().pop().unwrap(),
        };
        w.doubt(sender, &from, &to, Doubt::Silent);
        let fail_all = |w: &mut World, after| {
            while let Some((_, t)) = w.held.pop_front() {
                w.hosts[sender].node.tx_done(w.now, t.msg, Err(broken));
            }
            w.run(after);
        };
        for n in 0..5 {
            assert!(!w.held.is_empty(), "{case}: copy {n} goes");
            fail_all(&mut w, SECOND * 2);
        }
        if arrives {
            w.pass_all();
        } else {
            (0..60).for_each(|_| fail_all(&mut w, SECOND));
        }
        let got = w.events(0, 1);
        let last = if reply { EventKind::Reply } else { EventKind::Send };
        let sent = got.iter().filter(|(kind, ..)| *kind == EventKind::Send).count();
        assert!(sent == 1 && got.last().is_some_and(|e| e.0 == last), "{case}: {got:?}");
        assert_eq!(got.last().unwrap().1, arrives, "{case}: {got:?}");
        let is_left = |h: &Host| h.node.msgs.values().any(|msg| msg.ev.portal == PT);
        assert!(!w.hosts.iter().any(is_left), "{case}");
        let puts = w.hosts[1].events.iter().filter(|e| e.kind == EventKind::Put).count();
        assert_eq!(puts, usize::from(arrives && !reply), "{case}");
    }
}

/// A later copy that has reached the receiver takes the place of an earlier one there.
#[test]
fn a_message_whose_earlier_copy_is_written_goes_again_if_a_later_one_is_lost() {
    let broken = Fault::new(HealthStatus::NetworkTimeout, Errno::EIO);
    let refused = Fault::new(HealthStatus::RemoteError, Errno::ECONNREFUSED);
    for (fault, again) in [(broken, true), (refused, false)] {
        let mut w = pair();
        w.gives_back = false;
        w.decide = Box::new(|t| match t.hdr.kind {
            Kind::Put { portal: PT, .. } => Fate::Hold,
            _ => Fate::Pass,
        });
        w.put(0, B[0], 1, false);
        let (from, to) = w.held_pairs().pop().unwrap();
        w.doubt(0, &from, &to, Doubt::Silent);
        assert_eq!(w.held.len(), 2, "{:?}", w.held_pairs());
        for outcome in [Ok(()), Err(fault)] {
            let (_, t) = w.held.pop_front().unwrap();
            w.hosts[0].node.tx_done(w.now, t.msg, outcome);
            w.drain();
        }
        w.run(Duration::from_secs(1));
        let sent = |w: &World| w.events(0, 1).iter().filter(|e| e.0 == EventKind::Send).count();
        assert_eq!((w.held.len(), sent(&w)), if again { (1, 0) } else { (0, 1) }, "{fault:?}");
        w.pass_all();
        assert_eq!(sent(&w), 1);
        let puts = w.hosts[1].events.iter().filter(|e| e.kind == EventKind::Put).count();
        assert_eq!(puts, usize::from(again), "neither of the first two has arrived here");
        assert!(w.hosts[0].node.msgs.is_empty());
    }
}

/// However many are under way: their copies are found by their numbers.
#[test]
fn the_end_of_a_remnant_looks_at_no_other_message() {
    let broken = Fault::new(HealthStatus::RemoteError, Errno::ECONNREFUSED);
    let many = NetTunables { peer_credits: 4096, credits: 4096, ..NetTunables::SOCK };
    let mut w = pair_of(Profile::Default, many);
    w.gives_back = false;
    w.hold();
    for user in 0..4000 {
        w.put(0, B[0], user, false);
    }
    let (from, to) = w.held_pairs().pop().unwrap();
    w.doubt(0, &from, &to, Doubt::Silent);
    assert!(w.held.len() > 4500, "{}", w.held.len());
    let walks = |w: &mut World, id, outcome| {
        let before = w.hosts[0].node.msgs.walks.get();
        w.hosts[0].node.tx_done(w.now, id, outcome);
        w.hosts[0].node.msgs.walks.get() - before
    };
    let msgs = |w: &World| w.held.iter().map(|(_, t)| t.msg).collect::<Vec<_>>();
    let of_role = |w: &World, role| {
        msgs(w).into_iter().filter(|id| w.hosts[0].node.msgs[*id].role == role).collect::<Vec<_>>()
    };
    let (remnants, copies) = (of_role(&w, Role::Remnant), msgs(&w).split_off(4000));
    assert_eq!(remnants.len(), copies.len());
    let alone = of_role(&w, Role::Request)[0];
    assert!(!copies.contains(&alone));
    assert_eq!(walks(&mut w, alone, Ok(())), 0);
    for id in copies.iter().take(10).chain(&remnants[..5]) {
        assert_eq!(walks(&mut w, *id, Err(broken)), 0, "a copy that fails");
    }
    for id in &remnants[5..20] {
        assert_eq!(walks(&mut w, *id, Ok(())), 0, "a copy that is written");
    }
}

/// The last of three copies fails for good while the first two are with their drivers.
#[test]
fn a_message_whose_last_copy_fails_ends_with_the_earlier_ones_that_are_under_way() {
    let broken = Fault::new(HealthStatus::RemoteError, Errno::ECONNREFUSED);
    for arrives in [true, false] {
        let mut w = pair();
        w.gives_back = false;
        w.hold();
        w.put(0, B[0], 1, false);
        for _ in 0..2 {
            let (from, to) = w.held_pairs().pop().unwrap();
            w.doubt(0, &from, &to, Doubt::Silent);
        }
        assert_eq!(w.held.len(), 3, "{:?}", w.held_pairs());
        let fail = |w: &mut World, at: usize| {
            let (_, t) = w.held.remove(at).unwrap();
            w.hosts[0].node.tx_done(w.now, t.msg, Err(broken));
            w.drain();
        };
        fail(&mut w, 2);
        assert_eq!(w.events(0, 1), [], "two copies may get there");
        if arrives {
            w.pass_all();
        } else {
            fail(&mut w, 1);
            assert_eq!(w.events(0, 1), [], "one copy may get there");
            while !w.held.is_empty() {
                fail(&mut w, 0);
            }
        }
        let mut got = w.events(0, 1);
        got.retain(|(kind, ..)| *kind == EventKind::Send);
        assert!(got.len() == 1 && got[0].1 == arrives, "{got:?}");
        w.pass_all();
        assert!(w.hosts[0].node.msgs.is_empty());
        let puts = w.hosts[1].events.iter().filter(|e| e.kind == EventKind::Put).count();
        assert_eq!(puts, usize::from(arrives));
    }
}

/// A receiver that does not deduplicate gets no copies of them; what waits behind them goes all the same.
#[test]
fn messages_stuck_on_a_silent_rail_hold_no_credits_of_the_interface_at_its_end() {
    let few = NetTunables { peer_credits: 2, ..NetTunables::SOCK };
    let mut w = pair_of(Profile::Default, few);
    tells_no_copies(&mut w);
    w.gives_back = false;
    for b in B {
        w.doubt(0, A[1], b, Doubt::Silent);
    }
    w.hold();
    for user in 0..20 {
        w.put(0, B[0], user, true);
    }
    w.doubt(0, A[1], B[1], Doubt::None);
    for b in B {
        w.doubt(0, A[0], b, Doubt::Silent);
    }
    let on_good = |w: &World| w.held_pairs().iter().filter(|p| is(p, A[1], B[1])).count();
    assert_eq!(on_good(&w), 2, "{:?}", w.held_pairs());
    // The good rail goes on while the other one is still silent.
    w.decide = Box::new(|t| if t.hdr.src == nid(A[0]) { Fate::Hold } else { Fate::Pass });
    let good = w.held.iter().position(|(_, t)| t.hdr.src == nid(A[1])).unwrap();
    w.held.swap(0, good);
    w.release();
    w.run(Duration::from_millis(50));
    let arrived = w.hosts[1].events.iter().filter(|e| e.kind == EventKind::Put).count();
    assert!(arrived >= 10, "{arrived} of 16");
    w.pass_all();
    for user in 0..20 {
        let got = w.events(0, user);
        assert!(got.len() == 2 && got.iter().all(|(_, ok, _)| *ok), "message {user}: {got:?}");
    }
    assert!(w.hosts[0].node.msgs.is_empty());
    let peers = w.hosts[0].node.peer_views(None, usize::MAX);
    let nis = peers.iter().flat_map(|(_, peer)| &peer.nis);
    assert!(nis.into_iter().all(|ni| ni.credits == 2), "none is lost, none given twice");
}

#[test]
fn messages_that_change_rails_go_before_younger_ones() {
    let few = NetTunables { peer_credits: 1, ..NetTunables::SOCK };
    let mut w = pair_of(Profile::Default, few);
    w.hold();
    for (a, b) in [(0, 1), (1, 0)] {
        w.doubt(0, A[a], B[b], Doubt::Silent);
    }
    for user in 0..20 {
        w.put(0, B[0], user, true);
        w.run(Duration::from_millis(2));
    }
    // Half of them wait behind the others now.
    w.doubt(0, A[0], B[0], Doubt::Silent);
    w.pass_all();
    let puts = w.hosts[1].events.iter().filter(|e| e.kind == EventKind::Put);
    let arrived: Vec<u64> = puts.map(|e| e.hdr_data).collect();
    // The first of the other rail was with its driver.
    assert_eq!(arrived.len(), 20);
    assert!(arrived[1..].is_sorted(), "{arrived:?}");
}

#[test]
fn messages_that_the_driver_has_begun_stay_if_the_receiver_does_not_deduplicate() {
    let mut w = pair();
    tells_no_copies(&mut w);
    w.hold();
    w.put(0, B[0], 1, false);
    let (from, to) = w.held_pairs()[0].clone();
    // The transport has some of it: the driver will not give it back.
    let (at, t) = w.held.pop_front().unwrap();
    w.doubt(0, &from, &to, Doubt::Silent);
    assert_eq!(w.pairs(0).len(), 1);
    w.held.push_back((at, t));
    w.pass_all();
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)]);
}

#[test]
fn messages_stay_where_no_rail_is_better_and_go_when_one_heals() {
    let mut w = pair();
    w.hold();
    w.put(0, B[0], 1, false);
    let (from, to) = w.held_pairs()[0].clone();
    for a in A {
        for b in B.iter().filter(|b| (a, **b) != (&from, &to)) {
            w.doubt(0, a, b, Doubt::Silent);
        }
    }
    w.doubt(0, &from, &to, Doubt::Silent);
    assert_eq!(w.held_pairs(), [(from.clone(), to.clone())]);
    let other = if from == A[0] { A[1] } else { A[0] };
    w.doubt(0, other, &to, Doubt::Shaky);
    assert_eq!(w.held_pairs(), [(other.to_owned(), to)]);
}

#[test]
fn a_response_leaves_a_silent_rail_towards_a_multi_rail_peer() {
    for (doubt, moves) in [(Doubt::None, false), (Doubt::Silent, true)] {
        let mut w = pair();
        for b in B {
            for a in A {
                w.doubt(1, b, a, if (a, b) == (A[1], B[1]) { Doubt::None } else { doubt });
            }
        }
        for user in 0..4 {
            w.get(0, B[0], user);
            w.run(Duration::from_millis(10));
        }
        let from_b = w.hosts[1].sent.iter().map(|(_, h)| (h.src.to_string(), h.dst.to_string()));
        let replies: Vec<_> = from_b.collect();
        assert_eq!(replies.len(), 4);
        assert_eq!(replies.iter().all(|p| is(p, B[1], A[1])), moves, "{replies:?}");
        assert!((0..4).all(|user| w.events(0, user).iter().all(|(_, ok, _)| *ok)));
    }
}

/// MR-snd-070: it is not tried there first.
#[test]
fn a_response_leaves_an_interface_without_a_link_towards_a_multi_rail_peer() {
    let mut w = pair();
    w.decide = Box::new(|_| Fate::Hold);
    w.get(0, B[0], 1);
    let (_, to) = w.pairs(0).pop().unwrap();
    w.decide = Box::new(|_| Fate::Pass);
    w.link(1, &to, Link::Down);
    w.release();
    w.run(Duration::from_millis(10));
    let replies = w.hosts[1].sent.iter().filter(|(_, h)| matches!(h.kind, Kind::Reply { .. }));
    let from: Vec<_> = replies.map(|(_, h)| h.src.to_string()).collect();
    assert_eq!(from.len(), 1, "{from:?}");
    assert_ne!(from[0], to);
    assert!(w.events(0, 1).iter().all(|(_, ok, _)| *ok), "{:?}", w.events(0, 1));
}

/// DEC-15: its first attempt, and a copy of it when it is in doubt.
#[test]
fn an_answer_of_a_layer_above_leaves_a_bad_rail_and_what_insists_on_its_source_does_not() {
    for (options, moves) in [(MdOptions::ANSWERS, true), (MdOptions::empty(), false)] {
        let mut w = pair();
        w.put_from(1, Some(B[0]), A[0], 1, false, options);
        assert_eq!(w.pairs(1), [(B[0].to_owned(), A[0].to_owned())], "a sound rail is kept");
        let (_, written) = w.retained(1).pop().unwrap();
        assert_eq!(written.retention.map(|r| r.bound), Some(!moves));
        for a in A {
            w.doubt(1, B[0], a, Doubt::Silent);
        }
        w.put_from(1, Some(B[0]), A[0], 2, false, options);
        let (from, _) = w.pairs(1).pop().unwrap();
        assert_eq!(from == B[1], moves, "{from}");
    }
}

#[test]
fn suspicion_lowers_no_health_and_ends_nothing() {
    let mut w = pair();
    w.hold();
    w.put(0, B[0], 1, false);
    for a in A {
        for b in B {
            w.doubt(0, a, b, Doubt::Silent);
        }
    }
    for (a, b) in A.into_iter().zip(B) {
        assert_eq!((w.ni_health(0, a), w.peer_health(0, b)), (1000, 1000));
    }
    assert!(w.hosts[0].events.is_empty());
}

#[test]
fn judgements_of_drivers_count_only_while_suspicion_is_on() {
    for profile in [Profile::Documents, Profile::Kernel, Profile::Pre213, Profile::Off] {
        let mut w = pair_of(profile, NetTunables::SOCK);
        w.doubt(0, A[0], B[0], Doubt::Silent);
        assert!(w.hosts[0].node.suspicion().rails.is_empty(), "{}", profile.name());
    }
    let mut w = pair();
    w.doubt(0, A[0], B[0], Doubt::Silent);
    let view = w.hosts[0].node.suspicion();
    assert_eq!((view.rails.len(), view.falls), (1, 1));
    assert_eq!((view.rails[0].local, view.rails[0].peer), (nid(A[0]), nid(B[0])));
    let text = view.to_string();
    assert!(text.contains("10.77.0.2@tcp") && text.contains("silent for 0.000 s"), "{text}");
    w.hosts[0].node.set_tunables(w.now, &[("rail_suspicion", 0)]).unwrap();
    assert!(w.hosts[0].node.suspicion().to_string().contains("is off"));
    assert!(w.hosts[0].node.suspicion().rails.is_empty());
}

#[test]
fn explanations_name_silence_and_suspicion() {
    let mut w = pair();
    w.doubt(0, A[0], B[0], Doubt::Shaky);
    let text = w.hosts[0].node.explain(nid(B[0]), None, 100).to_string();
    assert!(text.contains("first by suspicion") && text.contains("nearby (1)"), "{text}");
    for (doubt, by) in [(Doubt::Silent, Criterion::Silence), (Doubt::Shaky, Criterion::Suspicion)] {
        let mut w = pair();
        for (a, b) in [(0, 0), (0, 1), (1, 0)] {
            w.doubt(0, A[a], B[b], doubt);
        }
        let why = w.hosts[0].node.explain(nid(B[0]), None, 100);
        assert_eq!(why.outcome, Outcome::Path(nid(A[1]), nid(B[1])));
        for choice in why.choices.iter().filter(|c| c.candidates.len() > 1) {
            assert_eq!(choice.candidates[0].decided, Some(by), "{why}");
        }
        let text = why.to_string();
        assert!(text.contains(&format!("first by {by}")), "{text}");
        assert!(text.contains(&format!("{by} yes")), "{text}");
    }
}

#[test]
fn suspicion_of_what_is_unknown_is_not_kept() {
    let mut w = pair();
    w.doubt(0, A[0], "10.99.0.1@tcp", Doubt::Silent);
    assert!(w.hosts[0].node.suspicion().rails.is_empty());
    w.doubt(0, A[0], B[0], Doubt::Silent);
    let (&ni, _) = w.hosts[0].nids.iter().find(|(_, n)| **n == nid(A[0])).unwrap();
    w.hosts[0].node.del_ni(w.now, ni).unwrap();
    assert!(w.hosts[0].node.suspicion().rails.is_empty());
}

#[test]
fn a_pulled_cable_turns_messages_away_from_what_was_behind_it() {
    let mut w = pair();
    w.link(0, A[0], Link::Down);
    let got = puts(&mut w, 8);
    assert!(got.iter().all(|p| is(p, A[1], B[1])), "the other one is on the lost network: {got:?}");
    w.link(0, A[0], Link::Up);
    let got = puts(&mut w, 8);
    assert!(got.iter().filter(|p| p.1 == B[0]).count() >= 3, "pushes take turns too: {got:?}");
}

#[test]
fn a_push_that_the_dying_rail_swallows_does_not_hold_up_what_comes_after_it() {
    let mut w = pair();
    let internal = |t: &crate::Transmit| {
        matches!(t.hdr.kind, Kind::Put { portal: 0, .. } | Kind::Get { portal: 0, .. })
    };
    w.decide = Box::new(move |t| if internal(t) { Fate::Lose } else { Fate::Pass });
    w.link(0, A[0], Link::Down);
    w.run(Duration::from_millis(10));
    assert!(!w.hosts[0].sent.is_empty(), "the change is announced");
    w.put(0, B[0], 1, true);
    w.run(Duration::from_millis(10));
    assert_eq!(w.events(0, 1).len(), 2, "sent and acknowledged");
}

#[test]
fn fifty_messages_queued_on_an_interface_that_dies_all_leave_by_the_other() {
    let few = NetTunables { credits: 1, peer_credits: 1, ..NetTunables::SOCK };
    let mut w = pair_of(Profile::Default, few);
    w.hold();
    for user in 0..50 {
        w.put(0, B[0], user, false);
    }
    w.link(0, A[0], Link::Down);
    let held = w.held_pairs();
    assert!(!held.is_empty() && held.iter().all(|p| p.0 == A[1]), "{held:?}");
    w.hosts[0].sent.clear();
    w.pass_all();
    w.run(Duration::from_millis(50));
    assert!(w.pairs(0).iter().all(|p| p.0 == A[1]), "all leave by the other");
    for user in 0..50 {
        assert_eq!(w.events(0, user), [(EventKind::Send, true, true)]);
    }
    assert_eq!(w.hosts[1].node.stats().recv_count, 51, "none is lost or sent twice; one push");
}

/// Random doubts, links and operations: the rail that is chosen is never worse than another one of
/// equal health, and whatever was moved, each operation ends once and each message arrives once.
fn weather(seed: u64) {
    let mut rng = Prng::new(seed);
    let few = NetTunables {
        credits: 1 + rng.below(4) as u32,
        peer_credits: 1 + rng.below(3) as u32,
        ..NetTunables::SOCK
    };
    let mut w = pair_of(Profile::Default, few);
    tells_no_copies(&mut w);
    let mut doubts: BTreeMap<(usize, usize), Doubt> = BTreeMap::new();
    let mut fates = rng.split();
    w.decide = Box::new(move |_| if fates.below(3) == 0 { Fate::Hold } else { Fate::Pass });
    let mut users = 0;
    for _ in 0..200 {
        match rng.below(8) {
            0..=2 => {
                let (a, b) = (rng.below(2) as usize, rng.below(2) as usize);
                let doubt =
                    [Doubt::None, Doubt::Shaky, Doubt::Unproven, Doubt::Slow, Doubt::Silent]
                        [rng.below(5) as usize];
                doubts.insert((a, b), doubt);
                w.doubt(0, A[a], B[b], doubt);
            }
            3..=5 => {
                let of = |a: usize, b: usize| doubts.get(&(a, b)).copied().unwrap_or_default();
                let best = (0..4).map(|i| of(i / 2, i % 2)).min().unwrap();
                let why = w.hosts[0].node.explain(nid(B[0]), None, 100);
                let Outcome::Path(from, to) = why.outcome else { panic!("{why}") };
                let at = |l: [&str; 2], n| l.iter().position(|x| nid(x) == n).unwrap();
                let chosen = of(at(A, from), at(B, to));
                assert_eq!(chosen, best, "seed {seed}: a better rail was to be had\n{why}");
                w.put(0, B[rng.below(2) as usize], users, true);
                users += 1;
            }
            6 => {
                if !w.held.is_empty() {
                    w.release();
                }
            }
            _ => w.run(Duration::from_millis(rng.below(20))),
        }
    }
    w.pass_all();
    w.run(Duration::from_millis(500));
    for user in 0..users {
        let got = w.events(0, user);
        assert_eq!(got.len(), 2, "seed {seed}, message {user}: {got:?}");
        assert!(got.iter().all(|(_, ok, _)| *ok), "seed {seed}, message {user}: {got:?}");
    }
    let arrived = w.hosts[1].events.iter().filter(|e| e.kind == EventKind::Put).count();
    assert_eq!(arrived as u64, users, "seed {seed}");
    assert_eq!(w.hosts[0].node.stats().msgs_alloc, 0, "seed {seed}");
    assert_eq!(w.hosts[0].node.stats().resend_count, 0, "seed {seed}");
}

#[test]
fn doubts_that_come_and_go_lose_nothing_and_send_nothing_twice() {
    (1..=200).for_each(weather);
}

/// What the silence of the first rail that is listed looks like, with those rails silent.
fn blamed(w: &mut World, silent: &[(&str, &str)]) -> Vec<crate::Blame> {
    for (from, to) in silent {
        w.doubt(0, from, to, Doubt::Silent);
    }
    let view = w.hosts[0].node.suspicion();
    for rail in &view.rails {
        let line = format!("; seems to be {}", rail.blame.unwrap());
        assert!(view.to_string().contains(&line), "{view}");
    }
    view.rails.iter().filter_map(|rail| rail.blame).collect()
}

/// RS-028, RS-034: each fault planted in three nodes is read as what it is.
#[test]
fn silence_is_read_as_a_way_an_interface_of_the_peers_or_one_of_ours() {
    use crate::Blame;
    let third = ["10.77.0.4@tcp", "10.77.1.4@tcp"];
    let site = || {
        let mut w = pair();
        w.host(Profile::Default, &third);
        w.discovered(0, third[0]);
        w
    };
    assert_eq!(blamed(&mut site(), &[(A[0], B[0])]), [Blame::Way]);
    assert_eq!(blamed(&mut site(), &[(A[0], B[0]), (A[1], B[0])]), [Blame::Theirs; 2]);
    let cut_off = [(A[0], B[0]), (A[0], B[1]), (A[0], third[0]), (A[0], third[1])];
    assert_eq!(blamed(&mut site(), &cut_off), [Blame::Ours; 4]);
    // A rail that is only shaky is no such evidence.
    let mut w = site();
    w.doubt(0, A[0], B[0], Doubt::Shaky);
    assert_eq!(w.hosts[0].node.suspicion().rails[0].blame, None);
}

/// RS-029.
#[test]
fn with_one_local_interface_the_silent_end_of_a_rail_is_undetermined() {
    for silent in [&B[..1], &B[..]] {
        let mut w = World::new();
        w.host(Profile::Default, &A[..1]);
        w.host(Profile::Default, &B);
        w.discovered(0, B[0]);
        let rails: Vec<_> = silent.iter().map(|b| (A[0], *b)).collect();
        let got = blamed(&mut w, &rails);
        assert!(got.iter().all(|b| *b == crate::Blame::Undetermined), "{got:?}");
    }
}
