//! What happens to one lock.

use ldlm::Mode;
use ldlm::client::{HoldId, LockError};
use lustre_wire::Opcode;
use ptlrpc::{EvictReason, ImportId, Part};

use super::{Ask, Bench, Fate, ask, whole};

struct Two {
    bench: Bench,
    fate: Fate,
    a: ImportId,
    b: ImportId,
}

/// A client that has the lock, and another one.
fn two() -> (Two, HoldId) {
    let mut bench = Bench::new(1);
    let (a, b) = (bench.client("a"), bench.client("b"));
    let mut two = Two { bench, fate: Fate::default(), a, b };
    let first = two.bench.ask(a, &whole("jobs/42", Mode::Ex));
    assert!(two.fence(first).is_some());
    (two, first)
}

impl Two {
    fn look(&mut self) -> &Fate {
        let seen = self.bench.seen();
        self.fate.take(seen);
        &self.fate
    }

    fn granted(&mut self, hold: HoldId) -> bool {
        self.look().granted.contains_key(&hold)
    }

    fn fence(&mut self, hold: HoldId) -> Option<u64> {
        self.look().granted.get(&hold)?.1
    }
}

#[test]
fn a_lock_goes_to_the_next_client_when_its_holder_is_called_back_and_releases_it() {
    let (mut t, first) = two();
    let second = t.bench.ask(t.b, &whole("jobs/42", Mode::Ex));
    assert!(!t.granted(second));
    assert_eq!(t.look().called_back.len(), 1);
    t.bench.secs(30);
    assert!(!t.granted(second));
    let (a, fence) = (t.a, t.fence(first));
    t.bench.release(a, first, true);
    assert!(t.fence(second) > fence);
}

#[test]
fn a_lock_in_the_cache_serves_again_without_a_message_and_goes_when_another_client_wants_it() {
    let (mut t, first) = two();
    let a = t.a;
    t.bench.release(a, first, true);
    let sent = t.bench.world.sent;
    let again = t.bench.ask(a, &whole("jobs/42", Mode::Pr));
    assert!(t.granted(again));
    assert_eq!(t.bench.world.sent, sent);
    t.bench.release(a, again, true);
    let second = t.bench.ask(t.b, &whole("jobs/42", Mode::Ex));
    assert!(t.granted(second));
    assert_eq!((t.bench.server_locks(), t.look().called_back.len()), (1, 0));
}

#[test]
fn l60_a_stronger_lock_takes_the_place_of_a_cached_one_in_one_request() {
    let mut t = two().0;
    let a = t.a;
    let reads = t.bench.ask(a, &whole("file", Mode::Pr));
    t.bench.release(a, reads, true);
    let writes = t.bench.ask(a, &whole("file", Mode::Pw));
    assert!(t.granted(writes));
    assert_eq!((t.bench.server_locks(), t.look().called_back.len()), (2, 0));
}

#[test]
fn l37_a_client_that_waits_for_too_long_connects_again_and_is_granted_the_lock_at_last() {
    let (mut t, first) = two();
    // Waits without a time of its own have no end here: extents are said to (NO_TIMEOUT).
    let second = t.bench.ask(t.b, &whole("jobs/42", Mode::Ex));
    t.bench.secs(140);
    let a = t.a;
    t.bench.release(a, first, false);
    assert!(t.granted(second));
}

#[test]
fn an_enqueue_whose_reply_is_lost_makes_one_lock() {
    let (mut t, _) = two();
    t.bench.lose(Opcode::LDLM_ENQUEUE, Part::Reply, 1);
    let b = t.b;
    let hold = t.bench.ask(b, &whole("jobs/43", Mode::Ex));
    t.bench.secs(60);
    assert!(t.granted(hold));
    assert_eq!(t.bench.server_locks(), 2);
    t.bench.release(b, hold, false);
    assert_eq!(t.bench.server_locks(), 1);
}

#[test]
fn a_completion_that_overtakes_the_reply_grants_with_the_reply_and_the_cancel_finds_the_lock() {
    let (mut t, first) = two();
    t.bench.lose(Opcode::LDLM_ENQUEUE, Part::Reply, 1);
    let (a, b) = (t.a, t.b);
    let second = t.bench.ask(b, &whole("jobs/42", Mode::Ex));
    t.bench.release(a, first, false);
    // The completion has come; the reply is lost.
    assert!(!t.granted(second));
    t.bench.secs(60);
    assert!(t.granted(second));
    t.bench.release(b, second, false);
    assert_eq!(t.bench.server_locks(), 0);
}

#[test]
fn a_holder_that_keeps_its_lock_is_evicted_and_its_hold_is_lost_once() {
    let (mut t, first) = two();
    let second = t.bench.ask(t.b, &whole("jobs/42", Mode::Ex));
    t.bench.secs(151);
    assert!(t.granted(second));
    assert_eq!(t.look().evicted, [("a".to_owned(), EvictReason::LockTimeout)]);
    t.bench.secs(60);
    assert_eq!(t.look().lost, [first]);
    // It is a client as any again.
    let a = t.a;
    let third = t.bench.ask(a, &whole("jobs/44", Mode::Ex));
    assert!(t.granted(third));
    t.bench.secs(400);
    assert_eq!(t.look().lost, [first]);
}

#[test]
fn what_waits_when_its_client_is_evicted_is_refused() {
    let (mut t, first) = two();
    let b = t.b;
    let second = t.bench.ask(b, &whole("jobs/42", Mode::Ex));
    t.bench.evict("b");
    t.bench.secs(60);
    assert_eq!(t.look().refused.get(&second), Some(&LockError::Evicted));
    let a = t.a;
    t.bench.release(a, first, false);
    assert_eq!(t.bench.server_locks(), 0);
}

#[test]
fn l61_locks_and_waits_are_there_after_a_restart_and_unused_ones_are_not() {
    let (mut t, first) = two();
    let (a, b) = (t.a, t.b);
    let unused = t.bench.ask(a, &whole("jobs/43", Mode::Ex));
    t.bench.release(a, unused, true);
    let second = t.bench.ask(b, &whole("jobs/42", Mode::Ex));
    t.bench.restart();
    t.bench.secs(120);
    assert!(t.look().evicted.is_empty() && t.look().lost.is_empty());
    assert_eq!(t.bench.server_locks(), 2);
    assert!(!t.granted(second));
    let fence = t.fence(first);
    t.bench.release(a, first, false);
    assert!(t.fence(second) > fence);
    t.bench.release(b, second, false);
    assert_eq!(t.bench.server_locks(), 0);
}

#[test]
fn l61_a_request_that_was_not_answered_before_a_restart_makes_one_lock_after_it() {
    for part in [Part::Request, Part::Reply] {
        let (mut t, first) = two();
        let (a, b) = (t.a, t.b);
        t.bench.lose(Opcode::LDLM_ENQUEUE, part, 1);
        let second = t.bench.ask(b, &whole("jobs/42", Mode::Ex));
        t.bench.restart();
        // One that has never left.
        let third = t.bench.ask(b, &whole("jobs/45", Mode::Ex));
        t.bench.secs(120);
        assert_eq!((t.granted(second), t.granted(third)), (false, true), "{part:?}");
        assert_eq!(t.bench.server_locks(), 3, "{part:?}");
        t.bench.release(a, first, false);
        assert!(t.granted(second), "{part:?}");
    }
}

#[test]
fn a_server_that_dies_while_locks_are_repeated_gets_them_in_its_next_life() {
    let (mut t, first) = two();
    let a = t.a;
    let many: Vec<HoldId> =
        (0..30).map(|n| t.bench.ask(a, &whole(&format!("many/{n}"), Mode::Ex))).collect();
    t.bench.restart();
    t.bench.lose(Opcode::LDLM_ENQUEUE, Part::Reply, 3);
    t.bench.secs(9);
    t.bench.restart();
    t.bench.secs(300);
    assert!(t.look().evicted.is_empty() && t.look().lost.is_empty(), "{:?}", t.fate);
    assert_eq!(t.bench.server_locks(), 31);
    for hold in many {
        t.bench.release(a, hold, false);
    }
    t.bench.release(a, first, false);
    assert_eq!(t.bench.server_locks(), 0);
}

#[test]
fn what_is_asked_for_without_waiting_is_refused_and_leaves_nothing() {
    let (mut t, _) = two();
    let b = t.b;
    let flags = lustre_wire::ldlm::LockFlags::SPECULATIVE;
    let hold = t.bench.ask(b, &Ask { flags, ..whole("jobs/42", Mode::Pr) });
    assert_eq!(t.look().refused.get(&hold), Some(&LockError::Conflict));
    assert_eq!(t.bench.server_locks(), 1);
    // Its holder was not called back.
    assert_eq!(t.look().called_back.len(), 0);
    let beside = t.bench.ask(b, &Ask { flags, ..ask("file", Mode::Pr, 0, 9) });
    assert!(t.granted(beside));
}

#[test]
fn a_wait_that_is_given_up_leaves_the_queue() {
    let (mut t, first) = two();
    let (a, b) = (t.a, t.b);
    let limit = Some(core::time::Duration::from_secs(5));
    let second = t.bench.ask(b, &Ask { limit, ..whole("jobs/42", Mode::Ex) });
    t.bench.secs(6);
    assert_eq!(t.look().refused.get(&second), Some(&LockError::LimitPassed));
    assert_eq!(t.bench.server_locks(), 1);
    t.bench.release(a, first, false);
    assert_eq!(t.bench.server_locks(), 0);
}

#[test]
fn p103_a_client_with_locks_stays_connected_and_one_without_is_held_by_none() {
    let (mut t, first) = two();
    let a = t.a;
    t.bench.secs(10_000);
    assert!(t.look().lost.is_empty() && t.look().evicted.is_empty());
    t.bench.release(a, first, false);
    t.bench.secs(1000);
    assert_eq!(t.bench.server_locks(), 0);
}
