//! What an enqueue is answered: grants with their fencing numbers, waits, refusals.

use lnet_types::Errno;
use lustre_wire::ldlm::{LockDesc, LockFlags, LockKind, LockMode, LockReply};
use lustre_wire::{Buffers, Opcode};
use ptlrpc::CallError;

use super::bench::{Bench, Manner, cancel, enqueue, range, whole};
use crate::lock::wire;

const BL: Opcode = Opcode::LDLM_BL_CALLBACK;
const CP: Opcode = Opcode::LDLM_CP_CALLBACK;

#[test]
fn a_lock_goes_from_holder_to_holder_with_growing_fencing_numbers() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Polite), bench.client("b", Manner::Polite));
    let mut fences = Vec::new();
    for turn in 0..6 {
        let (who, other) = if turn % 2 == 0 { (a, b) } else { (b, a) };
        let cookie = bench.ask_for(who, "jobs/42", LockMode::EX);
        let held = bench.held(who, cookie).unwrap();
        assert!(held.granted && held.handle != 0, "turn {turn}");
        assert_eq!(bench.of(other, |client| client.locks.len()), 0, "it was given back");
        fences.push(held.fence);
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    // The first start of the target, and the first grant.
    assert_eq!(fences[0], (1 << 40) + 1);
    assert_eq!(bench.called(a, BL).len() + bench.called(b, BL).len(), 5);
    assert_eq!(bench.called(b, CP).len(), 3, "the answer to a callback comes before its cancel");
    let resource = wire::resource_of("jobs/42").unwrap();
    let lines = bench.locks(|locks, rpc| locks.locks_on(&resource, rpc));
    let seen: Vec<_> = lines.iter().map(|l| (l.client.as_str(), l.fence, l.waits)).collect();
    assert_eq!(seen, [("b", fences[5], false)]);
}

#[test]
fn readers_share_and_have_no_fencing_number() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    for who in [a, b] {
        let cookie = bench.ask_for(who, "jobs/42", LockMode::PR);
        let held = bench.held(who, cookie).unwrap();
        assert_eq!((held.granted, held.fence), (true, 0));
    }
}

#[test]
fn a_lock_that_its_holder_keeps_is_waited_for_and_its_grant_announced() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    let first = bench.ask_for(a, "jobs/42", LockMode::EX);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    assert!(!bench.granted(b, second));
    assert_ne!(bench.held(b, second).unwrap().handle, 0, "the reply has come");
    bench.secs(20);
    bench.give(a, first);
    let held = bench.held(b, second).unwrap();
    assert!(held.granted);
    assert_eq!(held.fence, (1 << 40) + 2);
    assert_eq!(bench.called(b, CP).len(), 1);
}

#[test]
fn l28_parts_of_one_name_are_locked_beside_each_other() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    let flags = LockFlags::NO_EXPANSION;
    bench.ask_as(a, 101, flags, range("file", LockMode::PW, 0, 4095), Some("file"));
    bench.ask_as(b, 102, flags, range("file", LockMode::PW, 4096, 8191), Some("file"));
    assert!(bench.granted(a, 101) && bench.granted(b, 102));
    bench.ask_as(b, 103, flags, range("file", LockMode::PW, 4095, 4095), Some("file"));
    assert!(!bench.granted(b, 103));
}

#[test]
fn a_client_that_leaves_gives_its_locks_back() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    bench.ask_for(a, "jobs/42", LockMode::EX);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    bench.all(|clients, below| clients.ptlrpc.rpc(below).disconnect(a));
    bench.settle();
    assert!(bench.granted(b, second));
    assert_eq!(bench.evicted(), []);
}

#[test]
fn l22_2_and_l17_requests_that_are_not_well_formed_are_refused_by_name() {
    let mut bench = Bench::new();
    let a = bench.client("a", Manner::Busy);
    let with = |change: fn(&mut LockDesc)| {
        let mut desc = whole("x", LockMode::EX);
        change(&mut desc);
        desc
    };
    let none = LockFlags::empty();
    for (what, flags, desc, errno) in [
        ("two modes", none, with(|d| d.requested = LockMode(3)), 14),
        ("no mode", none, with(|d| d.requested = LockMode::NONE), 14),
        ("unknown mode", none, with(|d| d.requested = LockMode(512)), 14),
        ("no type", none, with(|d| d.kind = LockKind(0)), 14),
        ("unknown type", none, with(|d| d.kind = LockKind(14)), 14),
        ("unknown flag", LockFlags::from_bits_retain(0x4), whole("x", LockMode::EX), 71),
        ("local flag", LockFlags::MATCH_LOCK, whole("x", LockMode::EX), 71),
        (
            "replay in peace",
            LockFlags::REPLAY | LockFlags::BLOCK_GRANTED,
            whole("x", LockMode::EX),
            71,
        ),
        ("end before start", none, range("x", LockMode::PW, 9, 3), 22),
        ("intent", LockFlags::HAS_INTENT, whole("x", LockMode::PR), 95),
    ] {
        let call = bench.ask_as(a, 7, flags, desc, None);
        assert_eq!(bench.end(call), Some(Err(CallError::Refused(Errno(errno)))), "{what}");
    }
    assert_eq!(bench.locks(|locks, _| locks.space().view().locks), 0);
}

#[test]
fn a_name_that_does_not_fit_to_its_words_is_refused() {
    let mut bench = Bench::new();
    let a = bench.client("a", Manner::Busy);
    let call = bench.ask_as(a, 7, LockFlags::empty(), whole("x", LockMode::EX), Some("y"));
    assert_eq!(bench.end(call), Some(Err(CallError::Refused(Errno::EPROTO))));
    let call = enqueue(LockFlags::empty(), whole("x", LockMode::EX), 8, None);
    let nameless = bench.send(a, call);
    assert!(bench.end(nameless).unwrap().is_ok());
}

#[test]
fn handles_of_other_clients_and_of_no_lock_cancel_nothing() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    let first = bench.ask_for(a, "jobs/42", LockMode::EX);
    let handle = bench.held(a, first).unwrap().handle;
    let status = |bench: &mut Bench, who, handles: &[u64]| {
        let call = bench.send(who, cancel(handles));
        bench.end(call).unwrap().unwrap().status
    };
    assert_eq!(status(&mut bench, b, &[handle]), 116);
    let many: Vec<u64> = (1..400).chain([handle]).collect();
    assert_eq!(status(&mut bench, b, &many), 116);
    let second = bench.ask_for(b, "jobs/42", LockMode::EX);
    assert!(!bench.granted(b, second), "it is still held");
    assert_eq!(status(&mut bench, a, &many), 0);
    assert!(bench.granted(b, second));
    assert_eq!(status(&mut bench, a, &[handle]), 116, "once");
}

#[test]
fn l60_an_enqueue_gives_locks_back_beside() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    let first = bench.ask_for(a, "one", LockMode::EX);
    let second = bench.ask_for(b, "one", LockMode::EX);
    let handle = bench.held(a, first).unwrap().handle;
    let mut call = enqueue(LockFlags::empty(), whole("two", LockMode::EX), 9, None);
    let request = lustre_wire::ldlm::LockRequest::new(
        LockFlags::empty(),
        2,
        whole("two", LockMode::EX),
        &[9, handle],
    );
    call.buffers = Buffers::new().bytes(request.to_bytes(lnet_types::ByteOrder::Little));
    let call = bench.send(a, call);
    assert!(bench.end(call).unwrap().is_ok());
    assert!(bench.granted(b, second));
}

#[test]
fn a_lock_that_may_not_be_waited_for_is_refused_when_another_has_it() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Busy));
    bench.ask_for(a, "jobs/42", LockMode::EX);
    let flags = LockFlags::SPECULATIVE;
    let call = bench.ask_as(b, 77, flags, whole("jobs/42", LockMode::EX), None);
    assert_eq!(bench.end(call), Some(Err(CallError::Refused(Errno::EAGAIN))));
    assert_eq!(bench.called(a, BL).len(), 0);
    assert_eq!(bench.held(b, 77), None);
}

#[test]
fn l26_a_copy_of_an_answered_enqueue_finds_its_lock() {
    let mut bench = Bench::new();
    let a = bench.client("a", Manner::Busy);
    bench.lose(Opcode::LDLM_ENQUEUE, ptlrpc::Part::Reply, 1);
    let cookie = bench.ask_for(a, "jobs/42", LockMode::EX);
    assert!(!bench.granted(a, cookie));
    bench.secs(60);
    let held = bench.held(a, cookie).unwrap();
    assert!(held.granted);
    assert_eq!(held.fence, (1 << 40) + 1, "the number of the grant, and no other");
    let (locks, resent) =
        bench.locks(|locks, _| (locks.space().view().locks, locks.stats().resent));
    assert_eq!((locks, resent), (1, 1));
}

#[test]
fn l14_the_reply_has_the_lock_as_it_is_granted() {
    let mut bench = Bench::new();
    let a = bench.client("a", Manner::Busy);
    let desc = range("file", LockMode::PR, 4096, 8191);
    let call = bench.ask_as(a, 5, LockFlags::empty(), desc, None);
    let reply = bench.end(call).unwrap().unwrap();
    let said: LockReply = reply.msg().unwrap().get(1).unwrap();
    assert!(said.flags.contains(LockFlags::LOCK_CHANGED), "alone it has all (L-29)");
    assert_eq!(
        (said.desc.granted, said.desc.policy.start, said.desc.policy.end),
        (LockMode::PR, 0, u64::MAX)
    );
}

#[test]
fn l58_replies_say_what_locks_are_worth() {
    let mut bench = Bench::new();
    let a = bench.client("a", Manner::Busy);
    let call = bench.ask_as(a, 5, LockFlags::empty(), whole("x", LockMode::PR), None);
    let body = bench.end(call).unwrap().unwrap().msg().unwrap().body().unwrap();
    let (slv, limit) = bench.locks(|locks, _| locks.space().slv());
    assert_eq!((body.slv, body.limit), (slv, limit));
    assert!(slv > 0 && limit > 0);
}
