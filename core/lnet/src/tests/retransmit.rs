//! Requests that were written and are in doubt: another copy goes at once, and is delivered once.

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus};
use lnet_wire::Kind;

use super::world::{Fate, PT, World, nid};
use crate::{Doubt, DropReason, EventKind, Link, Profile, Transmit};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.78.0.2@tcp1"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.78.0.3@tcp1"];
const MS: Duration = Duration::from_millis(1);
const DONE: [(EventKind, bool, bool); 2] =
    [(EventKind::Send, true, false), (EventKind::Ack, true, true)];

fn pair(b: Profile) -> World {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(b, &B);
    w.discovered(0, B[0]);
    w
}

fn refused() -> Fault {
    Fault::new(HealthStatus::RemoteDropped, Errno::ECONNREFUSED)
}

fn is_put(t: &Transmit) -> bool {
    matches!(t.hdr.kind, Kind::Put { portal: PT, .. } | Kind::Get { portal: PT, .. })
}

fn is_answer(t: &Transmit) -> bool {
    matches!(t.hdr.kind, Kind::Ack { .. } | Kind::Reply { .. })
}

/// The first message that `what` fits has this fate; the others pass.
fn first(w: &mut World, what: fn(&Transmit) -> bool, fate: Fate) {
    let mut first = true;
    w.decide =
        Box::new(move |t| if what(t) && core::mem::take(&mut first) { fate } else { Fate::Pass });
}

/// The rail that the last test message of host 0 took.
fn last_rail(w: &World) -> usize {
    let (from, _) = w.pairs(0).pop().unwrap();
    A.iter().position(|n| *n == from).unwrap()
}

fn delivered(w: &World, user: u64) -> usize {
    let events = w.hosts[1].events.iter();
    events.filter(|e| e.kind == EventKind::Put && e.hdr_data == user && e.user == 99).count()
}

fn duplicates(w: &World) -> u64 {
    w.hosts[1].node.counts.drops_for(DropReason::Duplicate)
}

/// What makes a written message doubtful.
fn break_rail(w: &mut World, rail: usize, how: usize) {
    match how {
        0 => w.doubt(0, A[rail], B[rail], Doubt::Silent),
        1 => w.link(0, A[rail], Link::Down),
        _ => {
            let h = &mut w.hosts[0];
            let (&ni, _) = h.nids.iter().find(|(_, n)| **n == nid(A[rail])).unwrap();
            h.node.written_lost(w.now, ni, nid(B[rail]));
            w.drain();
        }
    }
}

#[test]
fn a_message_written_to_a_rail_that_dies_is_resent_at_once() {
    for how in 0..3 {
        let mut w = pair(Profile::Default);
        first(&mut w, is_put, Fate::Lose);
        w.put(0, B[0], 7, true);
        w.run(MS * 10);
        assert_eq!(w.events(0, 7), [(EventKind::Send, true, false)]);
        let rail = last_rail(&w);
        break_rail(&mut w, rail, how);
        w.run(MS * 10);
        assert_eq!(w.events(0, 7), DONE, "{how}");
        assert_ne!(last_rail(&w), rail);
        assert_eq!((delivered(&w, 7), duplicates(&w)), (1, 0));
        assert_eq!(w.hosts[0].node.stats().resend_count, 1);
        assert!(w.hosts[0].node.msgs.is_empty());
        assert_eq!(w.hosts[0].node.msgs.answering(), 0);
    }
}

#[test]
fn a_message_written_to_an_interface_that_its_peer_gives_up_is_resent_at_once() {
    for user in 1..=2 {
        let mut w = pair(Profile::Default);
        if user == 2 {
            w.put(0, B[0], 1, true);
            w.run(MS * 10);
        }
        first(&mut w, is_put, Fate::Lose);
        w.put(0, B[0], user, true);
        w.run(MS * 10);
        let rail = last_rail(&w);
        let (&id, _) = w.hosts[1].nids.iter().find(|(_, n)| **n == nid(B[rail])).unwrap();
        w.hosts[1].node.leave_ni(w.now, id);
        w.hosts[1].node.del_ni(w.now, id).unwrap();
        w.hosts[1].nids.remove(&id);
        w.run(MS * 20);
        assert_eq!(w.events(0, user), DONE, "rail {rail}");
        assert_ne!(last_rail(&w), rail);
        assert_eq!((delivered(&w, user), duplicates(&w)), (1, 0));
    }
}

#[test]
fn a_copy_of_what_was_acknowledged_is_acknowledged_again() {
    let mut w = pair(Profile::Default);
    first(&mut w, is_answer, Fate::Lose);
    w.put(0, B[0], 7, true);
    w.run(MS * 10);
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false)]);
    let rail = last_rail(&w);
    break_rail(&mut w, rail, 0);
    w.run(MS * 10);
    assert_eq!(w.events(0, 7), DONE);
    assert_eq!((delivered(&w, 7), duplicates(&w)), (1, 1));
}

#[test]
fn a_second_ack_of_one_put_is_refused() {
    let mut w = pair(Profile::Default);
    // The ACK is late, so that the copy brings about a second one.
    first(&mut w, is_answer, Fate::Hold);
    w.put(0, B[0], 7, true);
    w.run(MS * 10);
    let rail = last_rail(&w);
    break_rail(&mut w, rail, 2);
    w.run(MS * 10);
    w.release();
    w.run(MS * 10);
    assert_eq!(w.events(0, 7), DONE);
    assert_eq!(delivered(&w, 7), 1);
}

#[test]
fn an_answer_calls_a_copy_back_that_is_not_under_way_yet() {
    for gives_back in [true, false] {
        let mut w = pair(Profile::Default);
        w.gives_back = gives_back;
        first(&mut w, is_answer, Fate::Hold);
        w.put(0, B[0], 7, true);
        w.run(MS * 10);
        first(&mut w, is_put, Fate::Hold);
        let rail = last_rail(&w);
        break_rail(&mut w, rail, 2);
        assert_eq!(w.held.len(), 2, "the ACK, and the copy");
        w.release();
        w.run(MS * 10);
        let send = (EventKind::Send, true, false);
        if gives_back {
            assert!(w.held.is_empty());
        } else {
            // Its memory is in use until the driver is through with it.
            assert_eq!(w.events(0, 7), [send, (EventKind::Ack, true, false)]);
            w.release();
            w.run(MS * 10);
        }
        let ends = [send, (EventKind::Ack, true, false), (EventKind::Unlink, true, true)];
        assert_eq!(w.events(0, 7), ends, "{gives_back}");
        assert!(w.hosts[0].node.msgs.is_empty());
    }
}

#[test]
fn a_message_that_a_driver_has_begun_leaves_a_remnant_and_goes_another_way() {
    let mut w = pair(Profile::Default);
    w.gives_back = false;
    first(&mut w, is_put, Fate::Hold);
    w.put(0, B[0], 7, true);
    let rail = last_rail(&w);
    break_rail(&mut w, rail, 0);
    w.run(MS * 10);
    assert_eq!(delivered(&w, 7), 1);
    let ends = [(EventKind::Send, true, false), (EventKind::Ack, true, false)];
    assert_eq!(w.events(0, 7), ends, "its memory is in use");
    w.release();
    w.run(MS * 10);
    assert_eq!(w.events(0, 7).last(), Some(&(EventKind::Unlink, true, true)));
    assert_eq!((delivered(&w, 7), duplicates(&w)), (1, 1), "the remnant arrives in the end");
    assert!(w.hosts[0].node.msgs.is_empty());
    assert!(w.hosts[1].node.msgs.is_empty());
}

#[test]
fn a_message_that_is_written_between_the_silence_of_its_rail_and_the_recall_is_resent() {
    let mut w = pair(Profile::Default);
    w.gives_back = false;
    first(&mut w, is_put, Fate::Hold);
    w.put(0, B[0], 7, true);
    let rail = last_rail(&w);
    let h = &mut w.hosts[0];
    let (&ni, _) = h.nids.iter().find(|(_, n)| **n == nid(A[rail])).unwrap();
    h.node.rail_changed(w.now, ni, nid(B[rail]), Doubt::Silent);
    let (_, written) = w.held.pop_back().unwrap();
    h.node.tx_done(w.now, written.msg, Ok(()));
    w.drain();
    w.run(MS * 10);
    assert_eq!(w.events(0, 7), DONE);
    assert_eq!(delivered(&w, 7), 1);
}

#[test]
fn towards_a_kernel_node_nothing_that_was_written_goes_again() {
    for how in 0..3 {
        let mut w = pair(Profile::Kernel);
        first(&mut w, is_put, Fate::Lose);
        w.put(0, B[0], 7, true);
        w.run(MS * 10);
        let rail = last_rail(&w);
        break_rail(&mut w, rail, how);
        w.run(MS * 10);
        assert_eq!(w.pairs(0).len(), 1);
        assert!(w.hosts[0].node.msgs.is_empty(), "nothing is kept either");
    }
}

#[test]
fn a_descriptor_that_may_get_other_answers_is_not_repeated() {
    let mut w = pair(Profile::Default);
    first(&mut w, is_put, Fate::Lose);
    let h = &mut w.hosts[0];
    let buf = h.mem.add(vec![1; 100]);
    let md = h.node.bind(crate::MdSpec::new(buf, 7)).unwrap();
    let put = crate::Put {
        md,
        ack: true,
        src: None,
        target: lnet_types::ProcessId::lustre(nid(B[0])),
        portal: PT,
        match_bits: super::world::BITS,
        offset: 0,
        hdr_data: 7,
        timeout: None,
    };
    h.node.put(w.now, put).unwrap();
    w.drain();
    let rail = last_rail(&w);
    break_rail(&mut w, rail, 2);
    w.run(MS * 10);
    assert_eq!(w.pairs(0).len(), 1);
}

/// More often than `retry_count` says: a rail that dies under a copy is no failed attempt.
#[test]
fn copies_go_until_the_callers_time_is_over() {
    let mut w = pair(Profile::Default);
    w.hosts[0].node.set_tunables(w.now, &[("retry_count", 2)]).unwrap();
    w.decide = Box::new(|t| if is_put(t) { Fate::Lose } else { Fate::Pass });
    w.put(0, B[0], 7, true);
    for breaks in 1..=6 {
        let rail = last_rail(&w);
        break_rail(&mut w, rail, 2);
        w.run(MS * 400);
        assert_eq!(w.pairs(0).len(), 1 + breaks);
    }
    w.secs(6);
    assert_eq!(w.pairs(0).len(), 7);
    assert_eq!(
        w.events(0, 7),
        [(EventKind::Send, true, false), (EventKind::Unlink, true, true)],
        "the response timer says how it ended"
    );
    assert!(w.hosts[0].node.msgs.is_empty());
}

#[test]
fn copies_that_fail_at_once_are_few_to_the_end_of_their_callers_time() {
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|t| if is_put(t) { Fate::Lose } else { Fate::Pass });
    w.put(0, B[0], 7, true);
    w.decide = Box::new(|_| Fate::Fail(refused()));
    let rail = last_rail(&w);
    break_rail(&mut w, rail, 2);
    w.secs(20);
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false), (EventKind::Unlink, true, true)]);
    assert!(w.pairs(0).len() < 20, "{} attempts", w.pairs(0).len());
    assert!(w.hosts[0].node.msgs.is_empty());
}

/// Where failures cost hardly any health, each copy prefers the rail of better health, on which it has
/// failed, to the other one.
#[test]
fn copies_that_never_take_the_rail_that_is_left_rest_all_the_same() {
    let mut w = pair(Profile::Default);
    w.hosts[0].node.set_tunables(w.now, &[("health_sensitivity", 1)]).unwrap();
    let now = w.now;
    w.hosts[0].node.set_peer_ni_health(now, Some(nid(B[1])), 500);
    w.decide = Box::new(|t| if is_put(t) { Fate::Lose } else { Fate::Pass });
    w.put(0, B[0], 7, true);
    w.decide = Box::new(|_| Fate::Fail(refused()));
    break_rail(&mut w, 0, 2);
    w.secs(20);
    let rails: Vec<_> = w.pairs(0).into_iter().map(|(from, _)| from).collect();
    assert!(rails.iter().all(|from| from == A[0]) && rails.len() < 20, "{rails:?}");
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false), (EventKind::Unlink, true, true)]);
}

/// Its connections end one after the other, and nothing listens there for some time.
#[test]
fn copies_for_a_node_that_dies_rest_longer_and_longer_until_its_next_life() {
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|t| if is_put(t) { Fate::Lose } else { Fate::Pass });
    w.put(0, B[0], 7, true);
    w.decide = Box::new(|_| Fate::Fail(refused()));
    let rail = last_rail(&w);
    break_rail(&mut w, rail, 2);
    let mut times = Vec::new();
    let mut before = w.pairs(0).len();
    for at in 0..2000 {
        w.run(MS);
        if w.pairs(0).len() > before {
            before = w.pairs(0).len();
            times.push(at);
        }
    }
    let gaps: Vec<u64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(gaps.len() >= 4 && gaps.is_sorted() && gaps[0] >= 20, "{gaps:?}");
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false)]);
    // A sign of life.
    w.decide = Box::new(|_| Fate::Pass);
    w.put(1, A[0], 8, true);
    w.run(MS * 10);
    assert_eq!(w.events(0, 7), DONE);
    assert_eq!(delivered(&w, 7), 1);
    assert!(w.hosts[0].node.msgs.is_empty());
}
