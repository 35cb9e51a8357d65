//! A server calls its client back (L-38, L-39, L-40, L-44).

use lnet_types::Errno;
use lustre_wire::Opcode;
use lustre_wire::ldlm::{LockFlags, ResourceName};

use super::{Ask, CallbackAnswer, Desk, Grant, LockError, LockEvent, ask, blocked, range};
use crate::Mode;
use crate::client::{GoneReason, Share};

const EINVAL: i32 = Errno::EINVAL.negative();

#[test]
fn l38_a_completion_is_answered_and_the_lock_is_granted_then() {
    let mut desk = Desk::new();
    let hold = desk.ask(&ask(Mode::Ex));
    let lock = desk.asked();
    desk.grant(&blocked());
    assert_eq!(desk.lock_of(hold), None);
    let answer = desk.call_with(Opcode::LDLM_CP_CALLBACK, lock.0, &[1, 2, 3], |_| {});
    assert_eq!(answer, CallbackAnswer::Status(0));
    let LockEvent::Granted { ref lvb, .. } = desk.events[0] else { panic!("{:?}", desk.events) };
    assert_eq!(lvb, &[1, 2, 3]);
    // A second one changes nothing.
    assert_eq!((desk.complete(lock), desk.events.len()), (0, 1));
    desk.release(hold, false);
    assert_eq!(desk.complete(lock), 0);
}

#[test]
fn l38_a_completion_before_the_reply_grants_with_the_reply_and_its_attributes_stay() {
    let mut desk = Desk::new();
    let hold = desk.ask(&ask(Mode::Ex));
    let lock = desk.asked();
    let answer = desk.call_with(Opcode::LDLM_CP_CALLBACK, lock.0, &[7; 8], |r| r.handles[1] = 0x77);
    assert_eq!((answer, desk.lock_of(hold)), (CallbackAnswer::Status(0), None));
    desk.grant(&Grant { lvb: vec![1; 8], handle: 0x77, ..blocked() });
    let LockEvent::Granted { ref lvb, .. } = desk.events[0] else { panic!("{:?}", desk.events) };
    assert_eq!(lvb, &[7; 8]);
    desk.release(hold, false);
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted(), [0x77]);
}

#[test]
fn l38_a_completion_may_bring_a_callback_and_another_resource() {
    let mut desk = Desk::new();
    let hold = desk.ask(&ask(Mode::Ex));
    let lock = desk.asked();
    desk.grant(&blocked());
    let moved = ResourceName { words: [9, 9, 9, 9] };
    desk.call_back(Opcode::LDLM_CP_CALLBACK, lock.0, |r| {
        r.flags = LockFlags::AST_SENT;
        r.desc.resource = moved;
    });
    assert!(matches!(desk.events[..], [LockEvent::Granted { .. }, LockEvent::CalledBack { .. }]));
    assert_eq!(desk.space.locks.get(&lock).unwrap().resource, moved);
    desk.release(hold, true);
    assert_eq!(desk.out.len(), 1);
    // Nothing of it is left where it would be found.
    desk.status(Opcode::LDLM_CANCEL, 0);
    let other = desk.ask(&Ask { resource: moved, share: Share::Client, ..ask(Mode::Ex) });
    assert_eq!(desk.lock_of(other), None);
}

#[test]
fn l38_a_deadlock_of_file_locks_refuses_the_lock() {
    let mut desk = Desk::new();
    let policy = lustre_wire::ldlm::Policy::Flock { start: 0, end: 9, owner: 1, pid: 2 };
    let hold = desk.ask(&Ask { policy, ..ask(Mode::Pw) });
    let lock = desk.asked();
    desk.grant(&blocked());
    desk.call_back(Opcode::LDLM_CP_CALLBACK, lock.0, |r| r.flags = LockFlags::FLOCK_DEADLOCK);
    assert_eq!(desk.refused(hold), Some(LockError::Deadlock));
}

#[test]
fn l39_an_unused_lock_goes_at_once_and_a_used_one_with_its_last_hold() {
    let mut desk = Desk::new();
    let lock = desk.cached(&ask(Mode::Ex));
    assert_eq!(desk.block(lock), 0);
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted(), [0x5e01]);
    assert_eq!(desk.called_back(lock), 0);
    // Its data are gone: it is as if it were not there.
    assert_eq!(desk.block(lock), EINVAL);
    desk.status(Opcode::LDLM_CANCEL, 0);
    assert_eq!((desk.block(lock), desk.gone(lock)), (EINVAL, Some(GoneReason::Released)));

    let (hold, lock) = desk.held(&ask(Mode::Pr));
    let second = desk.ask(&ask(Mode::Pr));
    assert_eq!((desk.block(lock), desk.block(lock)), (0, 0));
    assert_eq!((desk.called_back(lock), desk.out.len()), (1, 0));
    desk.release(hold, true);
    assert_eq!(desk.out.len(), 0);
    desk.release(second, true);
    assert_eq!(desk.out.len(), 1);
}

#[test]
fn l39_a_lock_that_the_server_drops_by_itself_is_not_cancelled() {
    let mut desk = Desk::new();
    let flags = LockFlags::CANCEL_ON_BLOCK;
    let lock = desk.cached(&Ask { flags, ..ask(Mode::Pr) });
    assert_eq!((desk.block(lock), desk.out.len()), (0, 0));
    assert_eq!(desk.gone(lock), Some(GoneReason::Released));
}

#[test]
fn l39_a_lock_that_is_called_back_before_its_reply_is_wanted_back_when_granted() {
    let mut desk = Desk::new();
    let hold = desk.ask(&ask(Mode::Ex));
    let lock = desk.asked();
    assert_eq!((desk.block(lock), desk.called_back(lock)), (0, 0));
    desk.grant(&Grant::default());
    assert_eq!((desk.lock_of(hold), desk.called_back(lock)), (Some(lock), 1));
}

#[test]
fn l44_data_under_a_lock_are_written_back_before_its_cancel_leaves() {
    let mut desk = Desk::new();
    let lock = desk.cached(&Ask { writes_back: true, ..range(Mode::Pw, 0, 9) });
    let discard = |r: &mut lustre_wire::ldlm::LockRequest| r.flags = LockFlags::DISCARD_DATA;
    assert_eq!(desk.call_back(Opcode::LDLM_BL_CALLBACK, lock.0, discard), 0);
    assert_eq!(desk.events.last(), Some(&LockEvent::Flush { lock, discard: true }));
    // The server asks again meanwhile: the lock is still there.
    assert_eq!((desk.block(lock), desk.out.len()), (0, 0));
    desk.space.flushed(lock);
    desk.settle();
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted(), [0x5e01]);
    // Said twice.
    desk.space.flushed(lock);
    desk.settle();
    assert_eq!(desk.out.len(), 1);
}

#[test]
fn l40_a_glimpse_is_answered_with_nothing_unless_the_program_has_attributes() {
    let mut desk = Desk::new();
    let (_, lock) = desk.held(&ask(Mode::Pw));
    assert_eq!(desk.call_back(Opcode::LDLM_GL_CALLBACK, lock.0, |_| {}), -303);
    assert_eq!(desk.call_back(Opcode::LDLM_GL_CALLBACK, 0xdead, |_| {}), EINVAL);
    let other = Ask { share: Share::Never, glimpses: true, ..ask(Mode::Pw) };
    let (_, lock) = desk.held(&other);
    let answer = desk.call_with(Opcode::LDLM_GL_CALLBACK, lock.0, &[], |_| {});
    assert_eq!(answer, CallbackAnswer::Glimpse(lock));
    assert!(matches!(desk.events.last(), Some(LockEvent::Glimpse { .. })));
}

#[test]
fn l40_a_glimpse_is_answered_by_the_program_while_its_data_are_written_back() {
    let mut desk = Desk::new();
    let writes = Ask { writes_back: true, glimpses: true, ..range(Mode::Pw, 0, 9) };
    let lock = desk.cached(&writes);
    assert_eq!(desk.block(lock), 0);
    assert!(matches!(desk.events.last(), Some(LockEvent::Flush { .. })));
    let glimpse = |desk: &mut Desk| desk.call_with(Opcode::LDLM_GL_CALLBACK, lock.0, &[], |_| {});
    assert_eq!(glimpse(&mut desk), CallbackAnswer::Glimpse(lock));
    // The server has them.
    desk.space.flushed(lock);
    desk.settle();
    assert_eq!(glimpse(&mut desk), CallbackAnswer::Status(-303));
}

#[test]
fn l40_a_write_lock_that_is_unused_for_ten_seconds_goes_after_a_glimpse() {
    for (mode, secs, goes) in [(Mode::Pw, 10, 1), (Mode::Pw, 9, 0), (Mode::Pr, 10, 0)] {
        let mut desk = Desk::new();
        let lock = desk.cached(&ask(mode));
        desk.secs(secs);
        assert_eq!(desk.call_back(Opcode::LDLM_GL_CALLBACK, lock.0, |_| {}), -303);
        assert_eq!(desk.out.len(), goes, "{mode} after {secs} s");
    }
}
