//! A client asks for locks (L-36, L-37, L-45, L-60).

use core::time::Duration;

use lustre_wire::Opcode;
use lustre_wire::ldlm::{InodeBits, LockFlags, LockMode, Policy};
use ptlrpc::CallError;

use super::{Ask, Desk, Grant, LockError, LockEvent, NAME, ask, blocked, extent, range};
use crate::Mode;
use crate::client::{GoneReason, Share};

#[test]
fn l36_an_enqueue_says_what_is_asked_for_and_its_grant_is_an_event() {
    let mut desk = Desk::new();
    let hold = desk.ask(&Ask { flags: LockFlags::NO_EXPANSION, ..range(Mode::Pw, 4096, 8191) });
    let lock = desk.asked();
    let out = desk.only(Opcode::LDLM_ENQUEUE);
    assert_eq!((out.request.count, out.request.handles[0]), (1, lock.0));
    assert_eq!(out.request.flags, LockFlags::NO_EXPANSION);
    assert_eq!(
        (out.request.desc.requested, out.request.desc.granted),
        (LockMode::PW, LockMode::NONE)
    );
    assert_eq!(out.request.desc.policy(), Some(extent(4096, 8191)));
    assert_eq!(out.call.reply_max, out.call.clone().answered_by(&[112, 56]).reply_max);
    assert!(!out.call.modifies);
    assert_eq!(
        (desk.orders.as_slice(), desk.events.as_slice()),
        (&["hold true".to_owned()][..], &[][..])
    );
    // L-36.3: a larger range than was asked for.
    let flags = LockFlags::LOCK_CHANGED;
    let lvb = vec![9; 40];
    desk.grant(&Grant {
        flags,
        policy: Some(extent(0, u64::MAX)),
        lvb: lvb.clone(),
        ..Grant::default()
    });
    let policy = extent(0, u64::MAX);
    assert_eq!(desk.events, [LockEvent::Granted { hold, lock, mode: Mode::Pw, policy, lvb }]);
}

#[test]
fn l36_a_lock_that_is_there_serves_without_a_request() {
    let mut desk = Desk::new();
    let lock = desk.cached(&range(Mode::Pw, 0, u64::MAX));
    for (mode, share) in
        [(Mode::Pr, Share::Holder), (Mode::Pw, Share::Client), (Mode::Cr, Share::Holder)]
    {
        let hold = desk.ask(&Ask { share, ..range(mode, 10, 20) });
        assert_eq!(desk.lock_of(hold), Some(lock), "{mode}");
        desk.release(hold, true);
    }
    assert!(desk.out.is_empty());
    // Asked not to, another resource, a stronger mode, another kind, a larger range: the server is asked.
    let other = lustre_wire::ldlm::ResourceName { words: [1, 2, 3, 4] };
    for ask in [
        Ask { share: Share::Never, ..range(Mode::Pw, 0, 1) },
        Ask { resource: other, ..range(Mode::Pw, 0, 1) },
        range(Mode::Ex, 0, 1),
        ask(Mode::Pw),
        Ask { policy: Policy::Extent { start: 0, end: 1, gid: 5 }, ..range(Mode::Pw, 0, 1) },
    ] {
        let hold = desk.ask(&ask);
        assert_eq!(desk.lock_of(hold), None, "{ask:?}");
        assert_eq!(desk.out.len(), 1, "{ask:?}");
        let ticket = desk.out[0].ticket;
        desk.end(ticket, Err(CallError::Closed));
    }
}

#[test]
fn holds_of_one_client_exclude_each_other_unless_the_program_wants_it_otherwise() {
    let mut desk = Desk::new();
    let (first, lock) = desk.held(&ask(Mode::Ex));
    // The same lock, as kernels do it.
    let hold = desk.ask(&Ask { share: Share::Client, ..ask(Mode::Ex) });
    assert_eq!(desk.lock_of(hold), Some(lock));
    desk.release(hold, true);
    // The server calls the first one back for the second one, as if they were two clients.
    let second = desk.ask(&ask(Mode::Ex));
    assert_eq!((desk.lock_of(second), desk.out.len()), (None, 1));
    desk.grant(&blocked());
    let waiting = desk.out.len();
    assert_eq!((desk.block(lock), waiting), (0, 0));
    desk.release(first, true);
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted().len(), 1);
}

#[test]
fn holds_of_parts_that_do_not_meet_share_a_lock() {
    let mut desk = Desk::new();
    let hold = desk.ask(&range(Mode::Pw, 0, 9));
    let flags = LockFlags::LOCK_CHANGED;
    desk.grant(&Grant { flags, policy: Some(extent(0, u64::MAX)), ..Grant::default() });
    let lock = desk.lock_of(hold);
    let beside = desk.ask(&range(Mode::Pw, 10, 19));
    assert_eq!(desk.lock_of(beside), lock);
    let across = desk.ask(&range(Mode::Pw, 9, 10));
    assert_eq!(desk.lock_of(across), None);
}

#[test]
fn l36_1_an_error_drops_the_lock_and_aborted_brings_attributes_and_no_lock() {
    let mut desk = Desk::new();
    for (result, error) in [
        (CallError::Refused(lnet_types::Errno::EAGAIN), LockError::Conflict),
        (CallError::Evicted, LockError::Evicted),
        (CallError::LimitPassed, LockError::Call(CallError::LimitPassed)),
    ] {
        let hold = desk.ask(&ask(Mode::Pr));
        let ticket = desk.out[0].ticket;
        desk.end(ticket, Err(result));
        assert_eq!(desk.refused(hold), Some(error));
    }
    let hold = desk.ask(&ask(Mode::Pr));
    desk.grant(&Grant { status: 304, ..Grant::default() });
    assert_eq!(desk.refused(hold), Some(LockError::Conflict));
    let hold = desk.ask(&ask(Mode::Pr));
    desk.grant(&Grant { status: 301, handle: 0, lvb: vec![1; 56], ..Grant::default() });
    let aborted = LockEvent::Aborted { hold, results: (0, 0), lvb: vec![1; 56] };
    assert_eq!(desk.events.last(), Some(&aborted));
    assert!(desk.space.locks.is_empty() && desk.space.holds.is_empty() && desk.out.is_empty());
    assert_eq!(desk.orders.last().unwrap(), "hold false");
}

#[test]
fn l36_4_a_lock_that_is_called_back_in_its_reply_is_granted_and_then_wanted_back() {
    let mut desk = Desk::new();
    let hold = desk.ask(&ask(Mode::Ex));
    desk.grant(&Grant { flags: LockFlags::AST_SENT, ..Grant::default() });
    let lock = desk.lock_of(hold).unwrap();
    assert!(matches!(desk.events[..], [LockEvent::Granted { .. }, LockEvent::CalledBack { .. }]));
    // It serves for nothing else.
    let other = desk.ask(&Ask { share: Share::Client, ..ask(Mode::Ex) });
    assert_eq!(desk.lock_of(other), None);
    desk.release(hold, true);
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted(), [0x5e11]);
    desk.status(Opcode::LDLM_CANCEL, 0);
    assert_eq!(desk.gone(lock), Some(GoneReason::Released));
}

#[test]
fn l37_a_lock_that_waits_for_too_long_fails_the_import_once_and_waits_on() {
    let mut desk = Desk::new();
    let hold = desk.ask(&ask(Mode::Ex));
    let lock = desk.asked();
    desk.grant(&blocked());
    // Three times the estimate, which begins with `ldlm_enqueue_min`.
    desk.secs(299);
    assert_eq!(desk.orders, ["hold true"]);
    desk.secs(1);
    assert_eq!(desk.orders, ["hold true", "fail"]);
    desk.secs(100_000);
    assert_eq!(desk.orders, ["hold true", "fail"]);
    assert_eq!(desk.complete(lock), 0);
    assert_eq!(desk.lock_of(hold), Some(lock));
    // That has taught: the longest that is remembered, within `at_max`.
    assert_eq!(desk.space.patience(), Duration::from_secs(1800));
}

#[test]
fn l37_an_estimate_learns_from_locks_that_waited_and_is_never_below_its_least() {
    let mut desk = Desk::new();
    for (waits, patience) in [(40, 120), (1, 120)] {
        let hold = desk.ask(&ask(Mode::Ex));
        let lock = desk.asked();
        desk.grant(&blocked());
        desk.secs(waits);
        desk.complete(lock);
        assert_eq!(desk.space.patience(), Duration::from_secs(patience));
        desk.release(hold, false);
    }
    // The memory of the peak has an end.
    desk.secs(2000);
    desk.out.clear();
    let hold = desk.ask(&ask(Mode::Ex));
    let lock = desk.asked();
    desk.grant(&blocked());
    desk.secs(2);
    desk.complete(lock);
    desk.release(hold, false);
    assert_eq!(desk.space.patience(), Duration::from_secs(100));
}

#[test]
fn l37_a_lock_with_no_timeout_waits_without_limit() {
    let mut desk = Desk::new();
    desk.ask(&ask(Mode::Ex));
    let flags = LockFlags::BLOCK_GRANTED | LockFlags::NO_TIMEOUT;
    desk.grant(&Grant { flags, ..blocked() });
    desk.secs(100_000);
    assert_eq!(desk.orders, ["hold true"]);
    assert_eq!(desk.space.due(), None);
}

#[test]
fn a_hold_whose_limit_passes_is_refused_and_its_lock_is_given_back() {
    let limit = Some(Duration::from_secs(5));
    // While it waits.
    let mut desk = Desk::new();
    let hold = desk.ask(&Ask { limit, ..ask(Mode::Ex) });
    desk.grant(&blocked());
    desk.secs(4);
    assert_eq!(desk.refused(hold), None);
    desk.secs(1);
    assert_eq!(desk.refused(hold), Some(LockError::LimitPassed));
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted(), [0x5e11]);
    // Before its answer: the answer says what is to be given back.
    for answer in [Grant::default(), blocked()] {
        let mut desk = Desk::new();
        let hold = desk.ask(&Ask { limit, ..ask(Mode::Ex) });
        desk.secs(5);
        assert_eq!(desk.refused(hold), Some(LockError::LimitPassed));
        desk.grant(&answer);
        assert_eq!((desk.lock_of(hold), desk.events.len()), (None, 1));
        desk.status(Opcode::LDLM_CANCEL, 0);
        assert!(desk.space.locks.is_empty());
    }
    // One that was granted in time has no limit any more.
    let mut desk = Desk::new();
    let hold = desk.ask(&Ask { limit, ..ask(Mode::Ex) });
    desk.grant(&Grant::default());
    desk.secs(100);
    assert_eq!((desk.refused(hold), desk.space.due()), (None, None));
}

#[test]
fn l60_cached_locks_that_conflict_go_with_the_request_and_need_no_callback() {
    let mut desk = Desk::new();
    let (near, far) = (desk.cached(&range(Mode::Pr, 0, 9)), desk.cached(&range(Mode::Pr, 50, 59)));
    let alone = Ask { share: Share::Never, writes_back: true, ..range(Mode::Pr, 4, 5) };
    let kept = desk.cached(&alone);
    desk.ask(&range(Mode::Pw, 0, 20));
    let out = desk.only(Opcode::LDLM_ENQUEUE);
    assert_eq!((out.request.count, &out.request.handles[1..]), (2, &[0x5e01][..]));
    assert_eq!((desk.gone(near), desk.gone(far)), (Some(GoneReason::Dropped), None));
    // What is under the third is written back before it goes.
    assert!(desk.events.contains(&LockEvent::Flush { lock: kept, discard: false }));
}

#[test]
fn l45_a_conversion_keeps_the_bits_that_the_server_says() {
    let bits = |bits| Policy::Ibits { bits, try_bits: InodeBits::empty(), gid: 0, initiator: 0 };
    let (both, lookup) = (InodeBits::LOOKUP | InodeBits::UPDATE, InodeBits::LOOKUP);
    let mut desk = Desk::new();
    let (hold, lock) = desk.held(&Ask::new(NAME, Mode::Pr, bits(both)));
    desk.block(lock);
    for keep in [InodeBits::empty(), InodeBits::DOM] {
        assert!(desk.space.convert(lock, keep).is_err());
    }
    desk.space.convert(lock, lookup).unwrap();
    desk.settle();
    let out = desk.only(Opcode::LDLM_CONVERT).clone();
    assert_eq!(
        (out.request.counted(), out.request.desc.policy()),
        (&[0x5e01][..], Some(bits(lookup)))
    );
    desk.grant_of(&out, &Grant { policy: Some(bits(lookup)), ..Grant::default() });
    let converted = LockEvent::Converted { lock, result: Ok(bits(lookup)) };
    assert_eq!(desk.events.last(), Some(&converted));
    // It is in the cache again when its hold goes, and has the bits that it has.
    desk.release(hold, true);
    assert!(desk.out.is_empty());
    let hold = desk.ask(&Ask::new(NAME, Mode::Cr, bits(lookup)));
    assert_eq!(desk.lock_of(hold), Some(lock));
    // A lock that the server does not have is lost.
    desk.space.convert(lock, lookup).unwrap();
    desk.settle();
    desk.status(Opcode::LDLM_CONVERT, 303);
    assert_eq!(desk.gone(lock), Some(GoneReason::Lost));
}

#[test]
fn what_cannot_be_asked_for_is_refused_by_its_field() {
    let mut desk = Desk::new();
    let none =
        Policy::Ibits { bits: InodeBits::empty(), try_bits: InodeBits::DOM, gid: 0, initiator: 0 };
    for (ask, part) in [
        (range(Mode::Pw, 1, 0), "range"),
        (Ask { policy: none, ..ask(Mode::Pr) }, "inode bits"),
        (Ask { flags: LockFlags::REPLAY, ..ask(Mode::Pr) }, "flags"),
        (ask(Mode::Group), "GROUP"),
    ] {
        let e = desk.try_ask(&ask).unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    }
    assert!(desk.space.locks.is_empty() && desk.out.is_empty());
}
