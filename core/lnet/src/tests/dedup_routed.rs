//! Each message once, through routers of any kind: what one of them lost goes again by another one
//! (DEC-6, DEC-24).

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus};
use lnet_wire::mark::Mark;
use lnet_wire::{Hdr, Kind};

use super::world::{Fate, PT, World, nid};
use crate::{DropReason, EventKind, Link, Profile, Transmit};

const A: &str = "10.77.0.2@tcp";
const B: &str = "10.77.1.3@tcp1";
const G: [[&str; 2]; 2] =
    [["10.77.0.4@tcp", "10.77.1.4@tcp1"], ["10.77.0.5@tcp", "10.77.1.5@tcp1"]];
const MS: Duration = Duration::from_millis(1);
const DONE: [(EventKind, bool, bool); 2] =
    [(EventKind::Send, true, false), (EventKind::Ack, true, true)];

/// A on tcp, B on tcp1, one or two routers between them, as hosts 2 and 3; all know each other.
fn ready<const N: usize>(routers: [Profile; N]) -> World {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.host(Profile::Default, &[B]);
    for (profile, g) in routers.into_iter().zip(G) {
        w.router(profile, &g);
        w.route(0, "tcp1", g[0]);
        w.route(1, "tcp", g[1]);
    }
    // A kernel router takes its time until it announces itself.
    let slow = routers.contains(&Profile::Kernel);
    w.secs(if slow { 200 } else { 1 });
    w.discovered(0, B);
    for h in &mut w.hosts {
        h.node.reset_stats();
        h.events.clear();
        h.sent.clear();
        h.hops.clear();
    }
    w
}

fn is_put(hdr: &Hdr) -> bool {
    matches!(hdr.kind, Kind::Put { portal: PT, .. })
}

/// The first PUT, or else its ACK, is lost behind the router that forwards it.
fn lose_behind(w: &mut World, put: bool) {
    let to = nid(if put { B } else { A });
    let mut first = true;
    w.decide = Box::new(move |t: &Transmit| {
        let wanted = t.to.nid == to
            && if put { is_put(&t.hdr) } else { matches!(t.hdr.kind, Kind::Ack { .. }) };
        if wanted && core::mem::take(&mut first) { Fate::Lose } else { Fate::Pass }
    });
}

fn delivered(w: &World, user: u64) -> usize {
    let events = w.hosts[1].events.iter();
    events.filter(|e| e.kind == EventKind::Put && e.hdr_data == user && e.user == 99).count()
}

fn duplicates(w: &World) -> u64 {
    w.hosts[1].node.counts.drops_for(DropReason::Duplicate)
}

/// The routers that the test messages of A went by, in order.
fn routers(w: &World) -> Vec<usize> {
    let hops = w.test_hops(0).into_iter();
    hops.map(|hop| G.iter().position(|g| nid(g[0]) == hop).unwrap()).collect()
}

#[test]
fn marks_pass_routers_of_any_kind() {
    for second in [Profile::Default, Profile::Kernel] {
        let mut w = ready([Profile::Kernel, second]);
        for user in 1..=4 {
            w.put(0, B, user, true);
            w.put(0, B, 10 + user, false);
            w.get(0, B, 20 + user);
        }
        w.secs(1);
        for user in 1..=4 {
            assert_eq!(w.events(0, user), DONE, "{second:?}");
            assert_eq!((delivered(&w, user), delivered(&w, 10 + user)), (1, 1), "{second:?}");
        }
        let marks = |host: usize| {
            let sent = w.hosts[host].sent.iter();
            let marks = sent.filter_map(|(_, hdr)| Some((Mark::of(&hdr.kind)?, hdr.kind)));
            let mut marks: Vec<_> = marks.map(|(mark, kind)| (mark.number(), kind)).collect();
            marks.sort_by_key(|(n, kind)| (*n, kind.msg_type()));
            marks
        };
        let ends: Vec<_> = marks(0).into_iter().chain(marks(1)).collect();
        assert_eq!(ends.len(), 12 + 8, "{second:?}: requests, and answers to eight of them");
        // What the routers emit is what the ends have sent, padding and all.
        let routers: Vec<_> = marks(2).into_iter().chain(marks(3)).collect();
        assert_eq!(routers.len(), ends.len());
        assert!(ends.iter().all(|sent| routers.contains(sent)), "{second:?}");
    }
}

#[test]
fn a_message_lost_with_a_routers_far_side_is_resent_by_the_other_router() {
    for put in [true, false] {
        let mut w = ready([Profile::Default; 2]);
        lose_behind(&mut w, put);
        w.put(0, B, 7, true);
        w.run(MS * 10);
        assert_eq!(w.events(0, 7), [(EventKind::Send, true, false)]);
        let by = routers(&w)[0];
        w.link(2 + by, G[by][1], Link::Down);
        w.run(MS * 100);
        assert_eq!(w.events(0, 7), DONE, "PUT lost: {put}");
        assert_eq!(routers(&w), [by, 1 - by]);
        assert_eq!((delivered(&w, 7), duplicates(&w)), (1, u64::from(!put)));
        assert_eq!(w.hosts[0].node.msgs.answering(), 0);
    }
}

#[test]
fn a_message_queued_for_a_router_that_lost_its_far_side_goes_by_the_other_router() {
    let mut w = ready([Profile::Default; 2]);
    // More than a router's interface has credits for, and none of them is written.
    w.decide = Box::new(|t| if is_put(&t.hdr) { Fate::Hold } else { Fate::Pass });
    for user in 0..40 {
        w.put(0, B, user, true);
    }
    w.run(MS);
    w.decide = Box::new(|_| Fate::Pass);
    w.link(2, G[0][1], Link::Down);
    w.run(MS * 10);
    w.release();
    w.run(MS * 100);
    let waited = routers(&w).split_off(16);
    assert!(!waited.is_empty() && waited.iter().all(|by| *by == 1), "{waited:?}");
}

#[test]
fn a_message_in_a_dead_router_is_resent_by_the_other_router() {
    for put in [true, false] {
        let mut w = ready([Profile::Default; 2]);
        lose_behind(&mut w, put);
        w.put(0, B, 7, true);
        w.run(MS * 10);
        let by = routers(&w)[0];
        let h = &mut w.hosts[0];
        let (&ni, _) = h.nids.iter().find(|(_, n)| **n == nid(A)).unwrap();
        h.node.peer_down(w.now, ni, nid(G[by][0]), w.now);
        h.node.written_lost(w.now, ni, nid(G[by][0]));
        w.drain();
        w.run(MS * 100);
        assert_eq!(w.events(0, 7), DONE, "PUT lost: {put}");
        assert_eq!(routers(&w), [by, 1 - by]);
        assert_eq!((delivered(&w, 7), duplicates(&w)), (1, u64::from(!put)));
    }
}

#[test]
fn a_message_lost_behind_a_router_without_a_report_is_resent_when_its_answer_is_overdue() {
    for put in [true, false] {
        let mut w = ready([Profile::Default; 2]);
        w.hosts[0].node.set_tunables(w.now, &[("transaction_timeout", 150)]).unwrap();
        lose_behind(&mut w, put);
        w.put(0, B, 7, true);
        // Long before the share of one attempt is over.
        w.run(MS * 1400);
        assert_eq!(w.events(0, 7), [(EventKind::Send, true, false)]);
        w.run(MS * 200);
        assert_eq!(w.events(0, 7), DONE, "PUT lost: {put}");
        let by = routers(&w);
        assert_ne!(by[0], by[1]);
        assert_eq!((delivered(&w, 7), duplicates(&w)), (1, u64::from(!put)));
        assert!(w.hosts[0].node.poll_timeout().is_none_or(|at| at > w.now));
    }
}

#[test]
fn a_router_whose_link_is_back_tries_its_neighbours_again_at_once() {
    let mut w = ready([Profile::Default; 2]);
    w.link(3, G[1][1], Link::Down);
    w.link(2, G[0][1], Link::Down);
    w.run(MS * 100);
    let h = &mut w.hosts[2];
    let (&far, _) = h.nids.iter().find(|(_, n)| **n == nid(G[0][1])).unwrap();
    h.node.peer_down(w.now, far, nid(B), w.now);
    w.drain();
    w.link(2, G[0][1], Link::Up);
    w.run(MS * 10);
    w.put(0, B, 7, true);
    w.run(MS * 100);
    assert_eq!((w.events(0, 7), routers(&w)), (DONE.to_vec(), vec![0]));
    assert_eq!(w.hosts[2].node.stats().drop_count, 0);
}

#[test]
fn a_message_lost_by_a_kernel_router_is_resent_when_its_answer_is_overdue() {
    for put in [true, false] {
        let mut w = ready([Profile::Kernel; 2]);
        w.hosts[0].node.set_tunables(w.now, &[("transaction_timeout", 6)]).unwrap();
        lose_behind(&mut w, put);
        w.put(0, B, 7, true);
        w.run(MS * 2100);
        assert_eq!(w.events(0, 7), DONE, "PUT lost: {put}");
        assert_eq!((delivered(&w, 7), duplicates(&w)), (1, u64::from(!put)));
    }
}

#[test]
fn a_copy_by_a_router_that_its_receiver_has_no_route_through_is_a_duplicate() {
    let mut w = ready([Profile::Default; 2]);
    // B knows no way by the second router any more.
    let net = "tcp".parse().unwrap();
    w.hosts[1].node.del_route(w.now, Some(net), Some(nid(G[1][1]))).unwrap();
    let unknown = Fault::new(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT);
    w.decide = Box::new(move |t| {
        let by_first = is_put(&t.hdr) && t.to.nid == nid(G[0][0]);
        if by_first { Fate::Doubt(unknown, MS) } else { Fate::Pass }
    });
    for user in 1..=4 {
        w.put(0, B, user, true);
    }
    w.secs(1);
    for user in 1..=4 {
        assert_eq!(delivered(&w, user), 1, "{user}");
    }
    assert!(duplicates(&w) > 0);
}

/// Nothing but time, or news of the router, can help the copy.
#[test]
fn a_copy_that_finds_no_route_goes_when_there_is_one_again() {
    let mut w = ready([Profile::Default]);
    w.hosts[0].node.set_tunables(w.now, &[("transaction_timeout", 150)]).unwrap();
    lose_behind(&mut w, true);
    w.put(0, B, 7, true);
    w.run(MS * 10);
    w.link(2, G[0][1], Link::Down);
    w.secs(3);
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false)]);
    w.link(2, G[0][1], Link::Up);
    w.secs(2);
    assert_eq!((w.events(0, 7), delivered(&w, 7)), (DONE.to_vec(), 1));
    assert_eq!(w.hosts[0].node.stats().resend_count, 1, "the others found no route (H-24)");
    assert_eq!(w.hosts[0].node.msgs.answering(), 0);
}
