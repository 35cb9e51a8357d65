//! Callbacks and their timer: what is lost, what is late, who is evicted and who is not (L-46 … L-56).

use core::time::Duration;

use lustre_wire::ldlm::LockMode;
use lustre_wire::{BodyFlags, Buffers, Opcode};
use ptlrpc::{Call, CallError, EvictReason, Part, Tunables};

use super::READ;
use super::bench::{Bench, Manner, Who, cancel};
use crate::lock::wire;

const BL: Opcode = Opcode::LDLM_BL_CALLBACK;
const CP: Opcode = Opcode::LDLM_CP_CALLBACK;

/// A client that has the lock, another that asks for it when the test says.
fn two(tunables: Tunables, manner: Manner) -> (Bench, Who, Who, u64) {
    two_with(LockMode::EX, tunables, manner)
}

fn two_with(mode: LockMode, tunables: Tunables, manner: Manner) -> (Bench, Who, Who, u64) {
    let mut bench = Bench::with(tunables);
    let (a, b) = (bench.client("a", manner), bench.client("b", Manner::Polite));
    let first = bench.ask_for(a, "jobs/42", mode);
    assert!(bench.granted(a, first));
    (bench, a, b, first)
}

fn evicted(bench: &mut Bench) -> Vec<(String, EvictReason)> {
    bench.evicted()
}

#[test]
fn l56_a_a_callback_that_is_lost_goes_again_and_the_lock_comes_back() {
    let (mut bench, a, b, _) = two(Tunables::default(), Manner::Polite);
    bench.lose(BL, Part::Request, 3);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    // 11 s for the client, 5 s for the net: three times (L-54).
    bench.secs(47);
    assert!(!bench.granted(b, second) && bench.called(a, BL).is_empty());
    bench.secs(1);
    assert!(bench.granted(b, second));
    let called = bench.called(a, BL);
    assert_eq!(called.len(), 1);
    assert!(called[0].body.flags.contains(BodyFlags::RESENT));
    assert_eq!(evicted(&mut bench), []);
}

#[test]
fn l56_b_an_answer_to_a_callback_that_is_lost_costs_no_one_the_lock() {
    let (mut bench, a, b, first) = two(Tunables::default(), Manner::Busy);
    bench.lose(BL, Part::Reply, 2);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.secs(40);
    // Each copy is answered.
    assert_eq!(bench.lost(), 2);
    assert!(bench.called(a, BL).len() >= 2);
    bench.give(a, first);
    assert!(bench.granted(b, second));
    bench.secs(300);
    assert_eq!(evicted(&mut bench), []);
}

#[test]
fn l55_2_a_cancel_ends_a_callback_whose_answer_was_lost() {
    let (mut bench, _, b, _) = two(Tunables::default(), Manner::Polite);
    bench.lose(BL, Part::Reply, 1);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    // At once: the cancel says that the callback was heard.
    assert!(bench.granted(b, second));
    bench.secs(300);
    assert_eq!(evicted(&mut bench), []);
}

#[test]
fn l55_3_a_client_without_the_lock_says_so_and_the_lock_is_free() {
    let (mut bench, a, b, first) = two(Tunables::default(), Manner::Polite);
    bench.of(a, |client| client.locks.remove(&first));
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    assert!(bench.granted(b, second));
    assert_eq!((bench.called(a, BL).len(), evicted(&mut bench)), (1, vec![]));
}

#[test]
fn l56_c_a_cancel_that_is_lost_goes_again_within_the_timer() {
    let (mut bench, _, b, _) = two(Tunables::default(), Manner::Polite);
    bench.lose(Opcode::LDLM_CANCEL, Part::Request, 2);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    assert!(!bench.granted(b, second));
    bench.secs(149);
    assert!(bench.granted(b, second));
    assert_eq!((bench.lost(), evicted(&mut bench)), (2, vec![]));
}

#[test]
fn l56_c_a_cancel_that_never_comes_costs_the_client_its_connection() {
    let (mut bench, a, b, _) = two(Tunables::default(), Manner::Polite);
    bench.lose(Opcode::LDLM_CANCEL, Part::Request, u32::MAX);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.secs(151);
    assert!(bench.granted(b, second));
    assert_eq!(evicted(&mut bench), [("a".to_owned(), EvictReason::LockTimeout)]);
    bench.secs(60);
    assert_eq!(bench.of(a, |client| client.evictions), 1);
}

#[test]
fn l56_d_a_cancel_after_the_eviction_finds_nothing_and_ends_nothing() {
    let (mut bench, a, b, first) = two(Tunables::default(), Manner::Busy);
    let handle = bench.held(a, first).unwrap().handle;
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.secs(151);
    assert!(bench.granted(b, second));
    bench.secs(60);
    let late = bench.send(a, cancel(&[handle]));
    bench.secs(60);
    assert_eq!(bench.end(late).unwrap().unwrap().status, 116);
    assert!(bench.granted(b, second));
    let locks = bench.locks(|locks, _| locks.space().view().locks);
    assert_eq!(locks, 1);
}

#[test]
fn l56_e_a_completion_goes_again_until_the_client_has_it() {
    let (mut bench, a, b, first) = two(Tunables::default(), Manner::Busy);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.lose(CP, Part::Request, 30);
    bench.give(a, first);
    // Far beyond what a callback with a limit has: 30 times 16 s.
    bench.secs(479);
    assert!(!bench.granted(b, second));
    bench.secs(2);
    assert!(bench.granted(b, second));
    assert_eq!(bench.held(b, second).unwrap().fence, (1 << 40) + 2, "one number for all copies");
    assert_eq!(evicted(&mut bench), []);
}

#[test]
fn l47_a_client_that_keeps_a_lock_is_evicted_after_150_s_and_no_earlier() {
    let (mut bench, _, b, _) = two(Tunables::default(), Manner::Busy);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.secs(149);
    assert_eq!(evicted(&mut bench), []);
    bench.secs(2);
    assert_eq!(evicted(&mut bench), [("a".to_owned(), EvictReason::LockTimeout)]);
    assert!(bench.granted(b, second));
}

#[test]
fn l47_a_client_that_gave_locks_back_quickly_is_given_the_least_time() {
    let (mut bench, a, b, first) = two(Tunables::default(), Manner::Busy);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.secs(3);
    bench.give(a, first);
    assert!(bench.granted(b, second));
    bench.give(b, second);
    // The estimate is 5 s now, the least; 1.5 times that is below ldlm_enqueue_min.
    bench.ask_for(a, "jobs/42", LockMode::EX);
    let third = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.secs(99);
    assert_eq!(evicted(&mut bench), []);
    bench.secs(2);
    assert_eq!(evicted(&mut bench), [("a".to_owned(), EvictReason::LockTimeout)]);
    assert!(bench.granted(b, third));
}

#[test]
fn l55_5_a_client_that_does_not_answer_is_evicted_at_the_limit_of_the_callback() {
    let (mut bench, _, b, _) = two(Tunables::default(), Manner::Polite);
    bench.lose(BL, Part::Request, u32::MAX);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.secs(149);
    assert_eq!(evicted(&mut bench), []);
    // Nine times, 16 s apart (L-54).
    assert_eq!(bench.lost(), 10);
    bench.secs(2);
    let reasons: Vec<_> = evicted(&mut bench).into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(reasons, [EvictReason::LockCallback]);
    assert!(bench.granted(b, second));
}

#[test]
fn dec39_with_ast_resend_off_one_lost_callback_evicts() {
    let tunables = Tunables { ast_resend: false, ..Tunables::default() };
    for part in [Part::Request, Part::Reply] {
        let (mut bench, _, b, _) = two(tunables.clone(), Manner::Busy);
        bench.lose(BL, part, 1);
        let second = bench.ask_for(b, "jobs/42", LockMode::EX);
        bench.secs(15);
        assert_eq!(evicted(&mut bench), [], "{part:?}");
        bench.secs(2);
        assert_eq!(evicted(&mut bench), [("a".to_owned(), EvictReason::LockCallback)], "{part:?}");
        assert!(bench.granted(b, second), "{part:?}");
    }
}

#[test]
fn l51_each_copy_of_a_callback_gives_as_much_time_again() {
    let (mut bench, _, b, _) = two(Tunables::default(), Manner::Busy);
    bench.lose(BL, Part::Request, 5);
    bench.ask_for(b, "jobs/42", LockMode::EX);
    // The sixth arrives after 80 s.
    bench.secs(229);
    assert_eq!(evicted(&mut bench), []);
    bench.secs(2);
    assert_eq!(evicted(&mut bench), [("a".to_owned(), EvictReason::LockTimeout)]);
}

/// A read under the lock of `jobs/42`.
fn read(bench: &mut Bench, who: Who) -> Result<i32, CallError> {
    let words = wire::resource_of("jobs/42").unwrap().words;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut call = Call::new(READ, Buffers::new().bytes(bytes));
    call.modifies = false;
    let call = bench.send(who, call);
    bench.end(call).unwrap().map(|reply| reply.status)
}

#[test]
fn l49_reads_under_a_lock_that_was_called_back_keep_its_client() {
    let (mut bench, a, b, first) = two_with(LockMode::PW, Tunables::default(), Manner::Busy);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    // Three times as long as the timer.
    for _ in 0..9 {
        bench.secs(50);
        assert_eq!(read(&mut bench, a), Ok(0));
    }
    assert_eq!(evicted(&mut bench), []);
    assert_eq!(bench.locks(|locks, _| locks.stats().touches), 9);
    bench.give(a, first);
    assert!(bench.granted(b, second));
    assert_eq!(read(&mut bench, a), Err(CallError::Refused(lnet_types::Errno::ESTALE)));
}

#[test]
fn a_cancel_that_meets_its_callback_is_the_end_of_both() {
    let (mut bench, a, b, first) = two(Tunables::default(), Manner::Silent);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    assert!(!bench.granted(b, second));
    // It gives the lock back for a reason of its own, and has not seen the callback.
    bench.give(a, first);
    assert!(bench.granted(b, second));
    let served = bench.called(a, BL).remove(0);
    bench.all(|clients, below| {
        clients.ptlrpc.rpc(below).refuse(served.id, lnet_types::Errno::EINVAL);
    });
    bench.settle();
    bench.secs(400);
    assert!(bench.granted(b, second));
    assert_eq!(evicted(&mut bench), []);
}

#[test]
fn a_completion_that_overtakes_the_reply_of_its_enqueue_is_the_grant() {
    let (mut bench, a, b, first) = two(Tunables::default(), Manner::Busy);
    bench.lose(Opcode::LDLM_ENQUEUE, Part::Reply, 1);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    assert_eq!(bench.held(b, second).unwrap().handle, 0);
    bench.give(a, first);
    let by_completion = bench.held(b, second).unwrap();
    assert!(by_completion.granted);
    bench.secs(120);
    let by_reply = bench.held(b, second).unwrap();
    assert_eq!(by_reply, by_completion, "the copy is answered with the same lock");
    assert_eq!(bench.locks(|locks, _| locks.space().view().locks), 1);
    bench.give(b, second);
    assert_eq!(bench.locks(|locks, _| locks.space().view().locks), 0);
}

#[test]
fn a_client_s_cookie_that_is_used_again_names_the_new_lock() {
    let (mut bench, a, b, first) = two(Tunables::default(), Manner::Polite);
    let old = bench.held(a, first).unwrap().handle;
    bench.give(a, first);
    let none = lustre_wire::ldlm::LockFlags::empty();
    let desc = super::bench::whole("jobs/42", LockMode::EX);
    bench.ask_as(a, first, none, desc, None);
    let new = bench.held(a, first).unwrap();
    assert!(new.granted && new.handle != old);
    let late = bench.send(a, cancel(&[old]));
    assert_eq!(bench.end(late).unwrap().unwrap().status, 116);
    assert_eq!(bench.locks(|locks, _| locks.space().view().locks), 1, "the new one stays");
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    assert!(bench.granted(b, second));
}

#[test]
fn pa_028_a_lock_that_is_wanted_before_it_is_granted_is_asked_for_with_its_grant() {
    let (mut bench, a, b, first) = two(Tunables::default(), Manner::Busy);
    let c = bench.client("c", Manner::Polite);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    let third = bench.ask_for(c, "jobs/42", LockMode::EX);
    assert_eq!(bench.called(b, BL).len(), 0);
    bench.give(a, first);
    // b is polite: the completion asks for the lock, and it is given on.
    assert_eq!((bench.called(b, CP).len(), bench.called(b, BL).len()), (1, 0));
    assert!(!bench.granted(b, second) && bench.granted(c, third));
}

#[test]
fn ten_dead_holders_of_one_name_are_gone_in_one_timer() {
    let mut bench = Bench::new();
    let mut readers = Vec::new();
    for n in 0..10 {
        let who = bench.client(&format!("reader-{n}"), Manner::Busy);
        let cookie = bench.ask_for(who, "jobs/42", LockMode::PR);
        assert!(bench.granted(who, cookie));
        readers.push(who);
    }
    let writer = bench.client("writer", Manner::Polite);
    let wanted = bench.ask_for(writer, "jobs/42", LockMode::EX);
    bench.pass(Duration::from_secs(152));
    assert!(bench.granted(writer, wanted));
    assert_eq!(evicted(&mut bench).len(), 10);
}

#[test]
fn pa023_a_writer_calls_each_reader_back_and_is_granted_after_the_last_cancel() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    let w = bench.client("w", Manner::Polite);
    let first = bench.ask_for(a, "jobs/42", LockMode::PR);
    let second = bench.ask_for(b, "jobs/42", LockMode::PR);
    let wanted = bench.ask_for(w, "jobs/42", LockMode::PW);
    assert_eq!((bench.called(a, BL).len(), bench.called(b, BL).len()), (1, 1));
    bench.give(b, second);
    assert!(!bench.granted(w, wanted) && bench.called(w, CP).is_empty());
    bench.give(a, first);
    assert!(bench.granted(w, wanted));
    assert_eq!(bench.called(w, CP).len(), 1);
}

#[test]
fn pa028_a_callback_inside_a_completion_starts_the_timer_as_well() {
    let (mut bench, a, b, first) = two(Tunables::default(), Manner::Busy);
    let c = bench.client("c", Manner::Polite);
    bench.manner(b, Manner::Busy);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    let third = bench.ask_for(c, "jobs/42", LockMode::EX);
    bench.secs(100);
    bench.give(a, first);
    assert!(bench.granted(b, second) && bench.held(b, second).unwrap().called_back);
    bench.secs(149);
    assert_eq!(evicted(&mut bench), []);
    bench.secs(2);
    assert_eq!(evicted(&mut bench), [("b".to_owned(), EvictReason::LockTimeout)]);
    assert!(bench.granted(c, third));
}

#[test]
fn pa089_callbacks_that_are_lost_for_200_s_of_260_cost_no_one_the_connection() {
    let ldlm_enqueue_min = Duration::from_secs(260);
    let tunables = Tunables { ldlm_enqueue_min, ..Tunables::default() };
    let (mut bench, _, b, _) = two(tunables, Manner::Polite);
    // 13 times 16 s are 208 s.
    bench.lose(BL, Part::Request, 13);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.secs(207);
    assert!(!bench.granted(b, second));
    bench.secs(2);
    assert!(bench.granted(b, second));
    assert_eq!((bench.lost(), evicted(&mut bench)), (13, vec![]));
}
