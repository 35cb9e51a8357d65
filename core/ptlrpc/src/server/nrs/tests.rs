//! Each policy, started, stopped and drained while requests wait in it.

use super::*;

const NOW: Instant = Instant::from_secs(1000);

fn nid(n: u8) -> Nid {
    format!("10.0.0.{n}@tcp").parse().unwrap()
}

fn head(kind: PolicyKind) -> (Head, Prng) {
    let (mut head, mut prng) = (Head::new(), Prng::new(1));
    assert!(head.start(kind, &mut prng).is_empty(), "nothing waits");
    (head, prng)
}

fn add(head: &mut Head, id: u64, from: u8) -> Place {
    head.enqueue(NOW, ServedId::from(id), nid(from))
}

fn next(head: &mut Head, now: Instant, may: impl Fn(Nid) -> bool) -> Option<Next> {
    let place = head.first(now, &may)?;
    head.take(place)
}

fn drain(head: &mut Head, now: Instant) -> Vec<u64> {
    core::iter::from_fn(|| next(head, now, |_| true)).map(|next| next.id.into()).collect()
}

#[test]
fn fifo_serves_in_order_of_arrival() {
    let (mut head, _) = head(PolicyKind::Fifo);
    for id in 0..5 {
        add(&mut head, id, (id % 2) as u8);
    }
    assert_eq!(drain(&mut head, NOW), [0, 1, 2, 3, 4]);
}

#[test]
fn crrn_lets_a_client_with_few_requests_wait_for_one_quantum_of_another_and_no_more() {
    let (mut head, _) = head(PolicyKind::Crrn);
    for id in 0..100 {
        add(&mut head, id, 1);
    }
    add(&mut head, 500, 2);
    add(&mut head, 501, 3);
    let order = drain(&mut head, NOW);
    assert_eq!(order.iter().position(|id| *id == 500), Some(16));
    assert_eq!(order.iter().position(|id| *id == 501), Some(17));
    // A client that comes back begins in the round of the others, and not behind or before them.
    for id in 0..40 {
        add(&mut head, id, 1);
    }
    assert_eq!(next(&mut head, NOW, |_| true).map(|next| next.id.into()), Some(0));
    add(&mut head, 600, 2);
    let order = drain(&mut head, NOW);
    assert_eq!(order.iter().position(|id| *id == 600), Some(15));
    let Some(Queue { policy: Policy::Crrn(crrn), .. }) = &head.primary else { panic!() };
    assert!(
        !format!("{crrn:?}").contains("waiting"),
        "no client is kept without a request: {crrn:?}"
    );
}

#[test]
fn a_delayed_request_waits_between_min_and_max_and_ends_in_order_of_its_time() {
    let (mut head, _) = head(PolicyKind::Delay);
    for id in 0..200 {
        add(&mut head, id, 1);
    }
    assert_eq!(drain(&mut head, NOW), []);
    let mut out = Vec::new();
    for secs in 0..=300 {
        let now = NOW + core::time::Duration::from_secs(secs);
        let due = head.due();
        let went = drain(&mut head, now);
        assert_eq!(due.is_some_and(|at| at <= now), !went.is_empty(), "the timer is right");
        out.extend(went.iter().map(|_| secs));
    }
    assert_eq!((out.len(), head.len(), head.due()), (200, 0, None));
    assert!(*out.first().unwrap() >= 5, "{out:?}");
    // Uniform: about as many in each half.
    let early = out.iter().filter(|secs| **secs <= 152).count();
    assert!((70..=130).contains(&early), "{early} of 200 in the first half");
}

#[test]
fn the_share_of_requests_that_are_delayed_is_one_percent_more_than_pct_but_for_0_and_100() {
    for (pct, least, most) in [(0, 0, 0), (50, 450, 570), (100, 1000, 1000)] {
        let mut delay = Delay::new(Prng::new(3));
        delay.range.pct = pct;
        let taken = (0..1000).filter(|_| delay.rank(NOW).is_some()).count();
        assert!((least..=most).contains(&taken), "{pct} %: {taken} of 1000");
    }
}

#[test]
fn what_a_policy_declines_is_served_beside_what_it_holds_back() {
    let (mut head, _) = head(PolicyKind::Delay);
    add(&mut head, 0, 1);
    let Some(Queue { policy: Policy::Delay(delay), .. }) = &mut head.primary else { panic!() };
    delay.range.pct = 0;
    add(&mut head, 1, 1);
    assert_eq!(drain(&mut head, NOW), [1]);
    assert_eq!(head.len(), 1);
}

#[test]
fn a_policy_that_stops_is_drained_in_its_order_at_once() {
    for kind in [PolicyKind::Crrn, PolicyKind::Delay] {
        let (mut head, mut prng) = head(kind);
        for id in 0..40 {
            add(&mut head, id, (id % 3) as u8);
        }
        let moved = head.start(PolicyKind::Fifo, &mut prng);
        assert_eq!((moved.len(), head.len(), head.due()), (40, 40, None));
        add(&mut head, 99, 9);
        let order: Vec<u64> = moved.iter().map(|(id, _)| u64::from(*id)).collect();
        assert_eq!(drain(&mut head, NOW), [order, vec![99]].concat(), "{kind:?}");
    }
}

#[test]
fn a_request_is_taken_out_of_any_queue_and_from_its_new_place_after_a_change() {
    for kind in [PolicyKind::Fifo, PolicyKind::Crrn, PolicyKind::Delay] {
        let (mut head, mut prng) = head(kind);
        let places: Vec<_> = (0..4).map(|id| add(&mut head, id, 1)).collect();
        assert_eq!(head.remove(places[2]).map(u64::from), Some(2));
        assert_eq!(head.remove(places[2]), None);
        let other = if kind == PolicyKind::Fifo { PolicyKind::Delay } else { PolicyKind::Fifo };
        for (id, place) in head.start(other, &mut prng) {
            if u64::from(id) == 1 {
                assert_eq!(head.remove(place), Some(id));
            }
        }
        let left = drain(&mut head, NOW);
        let mut sorted = left.clone();
        sorted.sort_unstable();
        let expected = if kind == PolicyKind::Fifo { vec![0, 1, 3] } else { vec![0, 3] };
        assert_eq!(sorted, expected, "{kind:?}");
    }
}

#[test]
fn the_primary_policy_and_the_fallback_take_turns() {
    let (mut head, mut prng) = head(PolicyKind::Fifo);
    for id in 0..3 {
        add(&mut head, id, 1);
    }
    head.start(PolicyKind::Crrn, &mut prng);
    for id in 10..13 {
        add(&mut head, id, 1);
    }
    assert_eq!(drain(&mut head, NOW), [10, 0, 11, 1, 12, 2]);
}

#[test]
fn a_client_that_may_have_no_slot_is_passed_over_in_each_policy() {
    for kind in [PolicyKind::Fifo, PolicyKind::Crrn, PolicyKind::Delay] {
        let (mut head, _) = head(kind);
        for id in 0..40 {
            add(&mut head, id, (id / 20) as u8);
        }
        let (end, second) = (NOW + core::time::Duration::from_secs(300), nid(1));
        let may = |from| from == second;
        let passed =
            core::iter::from_fn(|| next(&mut head, end, may)).map(|next| u64::from(next.id));
        let mut passed: Vec<u64> = passed.collect();
        passed.sort_unstable();
        assert_eq!(passed, (20..40).collect::<Vec<_>>(), "{kind:?}");
        assert!(head.first(end, &may).is_none() && head.first(end, &|_| true).is_some());
        assert_eq!((head.len(), drain(&mut head, end).len()), (20, 20));
    }
}
