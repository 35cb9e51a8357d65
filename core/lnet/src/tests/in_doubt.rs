//! Messages in doubt at the first hop: written, not acknowledged by the transport. Each arrives once.

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, ProcessId, RETRY_PATHS};
use lnet_wire::Kind;

use super::world::{BITS, Fate, PT, World, nid};
use crate::{
    Doubt, DropReason, EventKind, InDoubt, Link, MdSpec, Profile, Put, Retention, Transmit,
};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.78.0.2@tcp1"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.78.0.3@tcp1"];
const MS: Duration = Duration::from_millis(1);

fn pair(b: Profile) -> World {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(b, &B);
    w.discovered(0, B[0]);
    w.run(MS * 100);
    w.retained.clear();
    w
}

/// The same with one interface each.
fn single() -> World {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.host(Profile::Default, &B[..1]);
    w.discovered(0, B[0]);
    w.run(MS * 100);
    w.retained.clear();
    w
}

/// The first message that `what` fits is lost after it was written; the others pass.
fn lose_first(w: &mut World, what: fn(&Transmit) -> bool) {
    let mut first = true;
    w.decide =
        Box::new(
            move |t| {
                if what(t) && core::mem::take(&mut first) { Fate::Lose } else { Fate::Pass }
            },
        );
}

fn is_put(t: &Transmit) -> bool {
    matches!(t.hdr.kind, Kind::Put { portal: PT, .. })
}

fn is_ack(t: &Transmit) -> bool {
    matches!(t.hdr.kind, Kind::Ack { .. })
}

fn is_reply(t: &Transmit) -> bool {
    matches!(t.hdr.kind, Kind::Reply { .. })
}

fn rail_of(own: [&str; 2], w: &World, message: &InDoubt) -> usize {
    let host = usize::from(own != A);
    let nid = w.hosts[host].nids[&message.ni].to_string();
    own.iter().position(|n| *n == nid).unwrap()
}

fn delivered(w: &World, user: u64) -> usize {
    let events = w.hosts[1].events.iter();
    events.filter(|e| e.kind == EventKind::Put && e.hdr_data == user && e.user == 99).count()
}

fn duplicates(w: &World, host: usize) -> u64 {
    w.hosts[host].node.counts.drops_for(DropReason::Duplicate)
}

fn is_empty(w: &World) -> bool {
    w.hosts.iter().all(|h| h.node.msgs.is_empty())
}

#[test]
fn a_message_lost_on_a_rail_that_falls_silent_arrives_over_the_other() {
    type Case = (fn(&Transmit) -> bool, usize, [&'static str; 2], [&'static str; 2]);
    let cases: [Case; 3] = [(is_put, 0, A, B), (is_ack, 1, B, A), (is_reply, 1, B, A)];
    for (what, (lost, sender, own, theirs)) in cases.into_iter().enumerate() {
        let mut w = pair(Profile::Default);
        lose_first(&mut w, lost);
        match what {
            0 => w.put(0, B[0], 7, false),
            1 => w.put(0, B[0], 7, true),
            _ => w.get(0, B[0], 7),
        }
        w.run(MS * 10);
        let rail = rail_of(own, &w, &w.in_doubt[0].1);
        w.doubt(sender, own[rail], theirs[rail], Doubt::Silent);
        w.run(MS * 10);
        let last = match what {
            0 => EventKind::Send,
            1 => EventKind::Ack,
            _ => EventKind::Reply,
        };
        assert_eq!(w.events(0, 7).last(), Some(&(last, true, true)), "case {what}");
        assert_eq!(delivered(&w, 7), usize::from(what < 2), "case {what}");
        assert_eq!(w.hosts[sender].node.in_doubt().repeated, 1, "case {what}");
        assert!(w.in_doubt.is_empty() && is_empty(&w), "case {what}");
    }
}

#[test]
fn a_rail_without_a_link_gives_back_what_is_in_doubt() {
    let mut w = pair(Profile::Default);
    lose_first(&mut w, is_put);
    w.put(0, B[0], 7, false);
    w.run(MS * 10);
    let rail = rail_of(A, &w, &w.in_doubt[0].1);
    w.link(0, A[rail], Link::Down);
    w.run(MS * 10);
    assert_eq!((delivered(&w, 7), duplicates(&w, 1)), (1, 0));
}

#[test]
fn a_rail_whose_far_end_is_announced_as_down_gives_back_what_is_in_doubt() {
    type Case = (fn(&Transmit) -> bool, usize, [&'static str; 2], [&'static str; 2]);
    let cases: [Case; 3] = [(is_put, 0, A, B), (is_ack, 1, B, A), (is_reply, 1, B, A)];
    for (what, (lost, sender, own, theirs)) in cases.into_iter().enumerate() {
        let mut w = pair(Profile::Default);
        lose_first(&mut w, lost);
        match what {
            0 => w.put(0, B[0], 7, false),
            1 => w.put(0, B[0], 7, true),
            _ => w.get(0, B[0], 7),
        }
        w.run(MS * 10);
        let rail = rail_of(own, &w, &w.in_doubt[0].1);
        w.link(1 - sender, theirs[rail], Link::Down);
        w.run(MS * 10);
        assert!(w.in_doubt.is_empty() && is_empty(&w), "case {what}");
        assert_eq!(w.hosts[sender].node.in_doubt().repeated, 1, "case {what}");
        assert_eq!(delivered(&w, 7), usize::from(what < 2), "case {what}");
    }
}

#[test]
fn requests_leave_an_interface_that_its_node_announces_as_down() {
    for written in [false, true] {
        let mut w = pair(Profile::Default);
        // One PUT with ACK that is lost after it was written, or that its driver has not begun.
        let mut first = true;
        w.decide = Box::new(move |t| match is_put(t) && core::mem::take(&mut first) {
            true if written => Fate::Lose,
            true => Fate::Hold,
            false => Fate::Pass,
        });
        w.put(0, B[0], 7, true);
        w.run(MS * 10);
        let (from, _) = w.pairs(0)[0].clone();
        let rail = A.iter().position(|n| *n == from).unwrap();
        w.link(1, B[rail], Link::Down);
        w.run(MS * 10);
        assert_eq!(w.pairs(0).last().unwrap().0, A[1 - rail], "written: {written}");
        assert_eq!(w.events(0, 7).last(), Some(&(EventKind::Ack, true, true)));
        assert_eq!((delivered(&w, 7), is_empty(&w)), (1, true), "written: {written}");
        assert_eq!(w.hosts[0].node.stats().resend_count, u32::from(written));
    }
}

#[test]
fn messages_stay_where_all_interfaces_of_their_peer_are_announced_as_down() {
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|t| if is_put(t) { Fate::Hold } else { Fate::Pass });
    for user in 0..4 {
        w.put(0, B[0], user, true);
    }
    let before = w.pairs(0);
    // Both are in one announcement: the first link has no announcement of its own on the way.
    let peer = w.hosts[1].nids.keys().copied().collect::<Vec<_>>();
    for ni in peer {
        w.hosts[1].node.link_changed(w.now, ni, Link::Down);
    }
    w.drain();
    w.run(MS * 10);
    let nis = w.hosts[0].node.peer_view_of(nid(B[0])).unwrap().nis;
    assert!(nis.iter().all(|ni| !ni.up), "{nis:?}");
    assert_eq!(w.pairs(0), before);
}

#[test]
fn an_interface_that_its_node_removes_gives_back_what_is_in_doubt() {
    let mut w = pair(Profile::Default);
    lose_first(&mut w, is_put);
    w.put(0, B[0], 7, false);
    w.run(MS * 10);
    let rail = rail_of(A, &w, &w.in_doubt[0].1);
    let (&id, _) = w.hosts[1].nids.iter().find(|(_, n)| **n == nid(B[rail])).unwrap();
    w.hosts[1].node.leave_ni(w.now, id);
    w.hosts[1].node.del_ni(w.now, id).unwrap();
    w.hosts[1].nids.remove(&id);
    w.run(MS * 20);
    assert_eq!((delivered(&w, 7), duplicates(&w, 1)), (1, 0));
    assert!(w.in_doubt.is_empty() && is_empty(&w));
}

#[test]
fn a_message_that_arrived_and_was_in_doubt_is_delivered_once() {
    for what in 0..3 {
        let mut w = pair(Profile::Default);
        match what {
            0 => w.put(0, B[0], 7, false),
            1 => w.put(0, B[0], 7, true),
            _ => w.get(0, B[0], 7),
        }
        w.run(MS * 10);
        let sender = usize::from(what > 0);
        let (ni, t) = w.retained(sender).pop().unwrap();
        let events = w.hosts[0].events.len() + w.hosts[1].events.len();
        let message = InDoubt {
            ni,
            to: t.to.nid,
            hdr: t.hdr,
            payload: t.payload,
            retention: t.retention.unwrap(),
        };
        w.hosts[sender].node.tx_in_doubt(w.now, vec![message]);
        w.run(MS * 10);
        assert_eq!(w.hosts[0].events.len() + w.hosts[1].events.len(), events, "case {what}");
        assert_eq!(w.hosts[sender].node.in_doubt().repeated, 1);
        assert!(is_empty(&w), "case {what}");
    }
}

#[test]
fn a_message_past_its_deadline_is_not_repeated() {
    let mut w = pair(Profile::Default);
    lose_first(&mut w, is_put);
    w.put(0, B[0], 7, false);
    w.run(MS * 10);
    let (_, mut message) = w.in_doubt.pop().unwrap();
    message.retention.until = w.now;
    w.hosts[0].node.tx_in_doubt(w.now, vec![message]);
    w.run(MS * 10);
    assert_eq!(delivered(&w, 7), 0);
    let counts = w.hosts[0].node.in_doubt();
    assert_eq!((counts.repeated, counts.expired), (0, 1));
}

#[test]
fn nothing_is_reclaimed_while_all_rails_are_silent() {
    let mut w = pair(Profile::Default);
    lose_first(&mut w, is_put);
    w.put(0, B[0], 7, false);
    w.run(MS * 10);
    let rail = rail_of(A, &w, &w.in_doubt[0].1);
    w.doubt(0, A[1 - rail], B[1 - rail], Doubt::Silent);
    w.doubt(0, A[rail], B[rail], Doubt::Silent);
    w.run(MS * 10);
    assert_eq!(w.in_doubt.len(), 1);
    // The other one carries again.
    w.doubt(0, A[1 - rail], B[1 - rail], Doubt::Unproven);
    w.run(MS * 10);
    assert_eq!((delivered(&w, 7), w.in_doubt.len()), (1, 0));
}

#[test]
fn a_copy_of_a_message_with_a_named_source_leaves_from_there() {
    let mut w = pair(Profile::Default);
    lose_first(&mut w, is_put);
    let h = &mut w.hosts[0];
    let buf = h.mem.add(vec![1; 100]);
    let md = h.node.bind(MdSpec { threshold: Some(1), ..MdSpec::new(buf, 7) }).unwrap();
    let put = Put {
        md,
        ack: false,
        src: Some(nid(A[1])),
        target: ProcessId::lustre(nid(B[1])),
        portal: PT,
        match_bits: BITS,
        offset: 0,
        hdr_data: 7,
        timeout: None,
    };
    h.node.put(w.now, put).unwrap();
    w.drain();
    let (_, message) = w.in_doubt.pop().unwrap();
    assert!(message.retention.bound);
    w.hosts[0].node.tx_in_doubt(w.now, vec![message]);
    w.run(MS * 10);
    assert_eq!(delivered(&w, 7), 1);
    let sources: Vec<String> = w.pairs(0).into_iter().map(|(from, _)| from).collect();
    assert_eq!(sources, [A[1], A[1]]);
}

#[test]
fn drivers_retain_only_what_nothing_else_would_repeat() {
    let retained = |b, ack| {
        let mut w = pair(b);
        w.put(0, B[0], 7, ack);
        w.run(MS * 10);
        [w.retained(0).len(), w.retained(1).len()]
    };
    assert_eq!(retained(Profile::Default, false), [1, 0], "a PUT without ACK");
    assert_eq!(retained(Profile::Default, true), [0, 1], "its sender keeps a PUT until the ACK");
    assert_eq!(retained(Profile::Kernel, false), [0, 0], "a kernel node recognizes no duplicates");
    let mut w = pair(Profile::Default);
    let until = w.now + Duration::from_secs(2);
    w.put(0, B[0], 7, false);
    w.run(MS * 10);
    let terms: Vec<Option<Retention>> = w.retained(0).iter().map(|(_, t)| t.retention).collect();
    assert!(terms[0].is_some_and(|terms| !terms.bound && terms.until >= until), "{terms:?}");
}

#[test]
fn over_the_only_rail_a_message_in_doubt_goes_until_it_arrives() {
    let mut w = single();
    lose_first(&mut w, is_put);
    w.put(0, B[0], 7, false);
    w.run(MS * 10);
    let (_, message) = w.in_doubt.pop().unwrap();
    let refused = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNREFUSED);
    w.decide = Box::new(move |_| Fate::Fail(refused));
    let sent = w.pairs(0).len();
    w.hosts[0].node.tx_in_doubt(w.now, vec![message]);
    w.run(MS * 1000);
    let copies = w.pairs(0).len() - sent;
    assert!((4..20).contains(&copies), "{copies} copies in a second");
    w.decide = Box::new(|_| Fate::Pass);
    w.run(MS * 2000);
    assert_eq!((delivered(&w, 7), w.hosts[0].node.in_doubt().expired), (1, 0));
    assert!(is_empty(&w));
}

#[test]
fn a_message_in_doubt_that_does_not_arrive_ends_at_its_deadline() {
    let mut w = single();
    lose_first(&mut w, is_put);
    w.put(0, B[0], 7, false);
    w.run(MS * 10);
    let (_, message) = w.in_doubt.pop().unwrap();
    let until = message.retention.until;
    let refused = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNREFUSED);
    w.decide = Box::new(move |t| if is_put(t) { Fate::Fail(refused) } else { Fate::Pass });
    w.hosts[0].node.tx_in_doubt(w.now, vec![message]);
    let left = |w: &World| w.hosts[0].node.msgs.values().filter(|m| !m.recovery).count();
    w.run(until.saturating_since(w.now) - MS);
    assert_eq!((left(&w), w.hosts[0].node.in_doubt().expired), (1, 0));
    let copies = w.pairs(0).len();
    w.run(MS * 2);
    assert_eq!((left(&w), w.hosts[0].node.in_doubt().expired), (0, 1));
    assert_eq!(w.pairs(0).len(), copies, "none without any time left");
}

/// The sender has lost an interface, and its announcement has come, before the answer was written.
#[test]
fn an_answer_that_has_left_the_rail_of_its_request_leaves_the_next_one_too() {
    for begun in [false, true] {
        let mut w = pair(Profile::Default);
        // The request goes by the first rail, its answer by the second one.
        w.doubt(0, A[1], B[1], Doubt::Shaky);
        w.doubt(1, B[0], A[0], Doubt::Shaky);
        let mut first = true;
        w.decide = Box::new(move |t| match is_reply(t) && core::mem::take(&mut first) {
            false => Fate::Pass,
            true if begun => Fate::Lose,
            true => Fate::Hold,
        });
        w.get(0, B[0], 7);
        w.run(MS * 10);
        w.doubt(1, B[1], A[1], Doubt::Silent);
        w.run(MS * 10);
        assert_eq!(w.events(0, 7).last(), Some(&(EventKind::Reply, true, true)), "{begun}");
        assert!(is_empty(&w), "{begun}");
    }
}

#[test]
fn an_answer_follows_its_node_from_an_interface_that_it_has_removed() {
    let layouts =
        [(A, B), (["10.77.0.2@tcp", "10.77.1.2@tcp"], ["10.77.0.3@tcp", "10.77.1.3@tcp"])];
    for (own, theirs) in layouts {
        for gets in [true, false] {
            let mut w = World::new();
            w.host(Profile::Default, &own);
            w.host(Profile::Default, &theirs);
            w.discovered(0, theirs[0]);
            let mut first = true;
            w.decide = Box::new(move |t| {
                let held = (is_reply(t) || is_ack(t)) && core::mem::take(&mut first);
                if held { Fate::Hold } else { Fate::Pass }
            });
            if gets {
                w.get(0, theirs[0], 7);
            } else {
                w.put(0, theirs[0], 7, true);
            }
            w.run(MS * 10);
            let gone = w.held.front().unwrap().1.to.nid;
            let (&id, _) = w.hosts[0].nids.iter().find(|(_, n)| **n == gone).unwrap();
            w.hosts[0].node.leave_ni(w.now, id);
            w.hosts[0].node.del_ni(w.now, id).unwrap();
            w.hosts[0].nids.remove(&id);
            w.run(MS * 20);
            let answer = if gets { EventKind::Reply } else { EventKind::Ack };
            assert_eq!(w.events(0, 7).last(), Some(&(answer, true, true)), "{own:?}");
            assert_eq!(w.hosts[1].node.peers.find(gone), None, "{own:?}: no peer of its own");
            assert!(is_empty(&w), "{own:?}");
        }
    }
}

/// DEC-11: a path that was only doubted has not failed.
#[test]
fn with_paths_for_a_retry_count_what_is_in_doubt_goes_by_the_only_rail_again() {
    for ack in [false, true] {
        let mut w = single();
        w.hosts[0].node.set_tunables(w.now, &[("retry_count", RETRY_PATHS)]).unwrap();
        lose_first(&mut w, is_put);
        w.put(0, B[0], 7, ack);
        w.run(MS * 10);
        let ni = *w.hosts[0].nids.keys().next().unwrap();
        w.hosts[0].node.written_lost(w.now, ni, nid(B[0]));
        let messages = core::mem::take(&mut w.in_doubt).into_iter().map(|(_, m)| m).collect();
        w.hosts[0].node.tx_in_doubt(w.now, messages);
        w.run(MS * 10);
        assert_eq!((delivered(&w, 7), w.hosts[0].node.in_doubt().expired), (1, 0), "ack: {ack}");
        assert!(is_empty(&w), "ack: {ack}");
    }
}

/// DEC-11.
#[test]
fn with_retry_count_0_drivers_retain_nothing_and_nothing_in_doubt_is_repeated() {
    let mut w = pair(Profile::Default);
    lose_first(&mut w, is_put);
    w.put(0, B[0], 7, false);
    w.run(MS * 10);
    let (_, message) = w.in_doubt.pop().unwrap();
    w.retained.clear();
    for host in 0..2 {
        w.hosts[host].node.set_tunables(w.now, &[("retry_count", 0)]).unwrap();
    }
    w.put(0, B[0], 8, false);
    w.put(0, B[0], 9, true);
    w.run(MS * 10);
    assert_eq!([w.retained(0).len(), w.retained(1).len()], [0, 0]);
    w.hosts[0].node.tx_in_doubt(w.now, vec![message]);
    w.run(MS * 10);
    let counts = w.hosts[0].node.in_doubt();
    assert_eq!((delivered(&w, 7), counts.repeated, counts.expired), (0, 0, 1));
}
