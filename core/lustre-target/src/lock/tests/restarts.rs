//! Servers that die: locks are replayed, fencing numbers go on, who does not come back is evicted.

use lustre_wire::Opcode;
use lustre_wire::ldlm::{LockFlags, LockMode};
use ptlrpc::{EvictReason, Part};

use super::bench::{Bench, Manner, whole};

#[test]
fn l25_locks_and_waits_are_there_again_after_a_restart() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Polite));
    let first = bench.ask_for(a, "jobs/42", LockMode::EX);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    let before = bench.held(a, first).unwrap();
    bench.restart();
    bench.secs(60);
    let after = bench.held(a, first).unwrap();
    assert!(after.granted && after.handle != before.handle, "a new name of the server's");
    assert_eq!(after.fence, before.fence, "the grant is the old one");
    assert!(!bench.granted(b, second));
    assert_eq!(bench.locks(|locks, _| locks.space().view().locks), 2);
    bench.give(a, first);
    let held = bench.held(b, second).unwrap();
    assert!(held.granted);
    assert_eq!(held.fence, (2 << 40) + 1, "above all numbers of the life before");
    assert_eq!(bench.evicted(), []);
}

#[test]
fn fencing_numbers_grow_over_restarts_without_a_grant_between() {
    let mut bench = Bench::new();
    let a = bench.client("a", Manner::Busy);
    let mut last = 0;
    for _ in 0..4 {
        let cookie = bench.ask_for(a, "jobs/42", LockMode::PW);
        bench.secs(60);
        let fence = bench.held(a, cookie).unwrap().fence;
        assert!(fence > last, "{fence:#x} after {last:#x}");
        last = fence;
        bench.give(a, cookie);
        bench.restart();
        bench.secs(60);
        bench.restart();
        bench.secs(60);
    }
}

#[test]
fn a_client_that_does_not_finish_its_replay_is_evicted_and_its_locks_are_free() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    bench.ask_for(a, "jobs/42", LockMode::EX);
    let other = bench.ask_for(b, "jobs/43", LockMode::EX);
    let waiting = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.manner(a, Manner::Stuck);
    bench.restart();
    bench.secs(100);
    // b has replayed, and waits for the end of the recovery.
    assert_eq!(bench.evicted(), []);
    bench.secs(1000);
    assert_eq!(bench.evicted(), [("a".to_owned(), EvictReason::NotRecovered)]);
    assert!(bench.granted(b, other) && bench.granted(b, waiting));
    assert_eq!(bench.locks(|locks, _| locks.space().view().locks), 2);
}

#[test]
fn a_client_that_is_evicted_while_it_replays_leaves_no_lock() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Stuck));
    bench.ask_for(a, "jobs/42", LockMode::EX);
    bench.ask_for(b, "jobs/44", LockMode::EX);
    bench.restart();
    bench.secs(60);
    // Both have replayed a lock; the recovery waits for b.
    assert_eq!(bench.locks(|locks, _| locks.space().view().locks), 2);
    bench.evict("a");
    assert_eq!(bench.locks(|locks, _| locks.space().view().locks), 1);
    bench.manner(a, Manner::Polite);
    bench.secs(1500);
    let again = bench.ask_for(a, "jobs/42", LockMode::EX);
    bench.secs(60);
    assert!(bench.granted(a, again));
}

#[test]
fn an_enqueue_that_was_not_answered_before_the_restart_is_answered_after_it() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    let first = bench.ask_for(a, "jobs/42", LockMode::EX);
    bench.lose(Opcode::LDLM_ENQUEUE, Part::Reply, 1);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.restart();
    bench.secs(120);
    assert!(bench.granted(a, first) && !bench.granted(b, second));
    assert_ne!(bench.held(b, second).unwrap().handle, 0);
    bench.give(a, first);
    assert!(bench.granted(b, second));
}

#[test]
fn locks_of_an_evicted_client_go_to_others_when_its_record_is_gone() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    bench.ask_for(a, "jobs/42", LockMode::EX);
    let waiting = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.stall(true);
    bench.evict("a");
    // A server that dies now awaits the client, and has its lock again.
    assert!(!bench.granted(b, waiting));
    assert_eq!(bench.locks(|locks, _| locks.space().view().locks), 2);
    bench.stall(false);
    assert!(bench.granted(b, waiting));
    bench.restart();
    bench.secs(1500);
    assert!(bench.granted(b, waiting));
    assert_eq!(bench.evicted(), [], "a is awaited");
}

#[test]
fn locks_are_given_after_a_recovery_when_the_records_of_missing_clients_are_gone() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    bench.ask_for(a, "jobs/42", LockMode::EX);
    let waiting = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.manner(a, Manner::Stuck);
    bench.restart();
    bench.stall(true);
    bench.secs(1100);
    assert_eq!(bench.evicted(), [("a".to_owned(), EvictReason::NotRecovered)]);
    assert!(!bench.granted(b, waiting));
    bench.stall(false);
    assert!(bench.granted(b, waiting));
}

#[test]
fn what_comes_while_the_end_of_a_recovery_is_recorded_is_answered_as_behind_it() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.manner(a, Manner::Stuck);
    bench.restart();
    bench.stall(true);
    bench.secs(1100);
    // Taken for a part of the recovery it would wait, without end.
    let nowait = LockFlags::BLOCK_NOWAIT;
    let call = bench.ask_as(b, 100, nowait, whole("jobs/42", LockMode::PR), Some("jobs/42"));
    assert_eq!(bench.end(call), None);
    bench.stall(false);
    assert!(bench.end(call).is_some());
    assert!(!bench.granted(b, 100));
}
