//! Servers that say what no server says.

use lnet_types::Errno;
use lustre_wire::Opcode;
use lustre_wire::ldlm::{LockFlags, LockKind, LockMode, LockRequest};
use proptest::prelude::*;

use super::{
    Ask, CallbackAnswer, Desk, Grant, LITTLE, LockError, ask, blocked, extent, range, reply,
};
use crate::Mode;
use crate::client::ask::GlimpseId;

const EINVAL: i32 = Errno::EINVAL.negative();

#[test]
fn callbacks_for_locks_that_the_client_never_had_are_refused() {
    let mut desk = Desk::new();
    for opcode in [Opcode::LDLM_BL_CALLBACK, Opcode::LDLM_CP_CALLBACK, Opcode::LDLM_GL_CALLBACK] {
        for cookie in [0, 1, u64::MAX] {
            assert_eq!(desk.call_back(opcode, cookie, |_| {}), EINVAL, "{opcode}");
        }
    }
    assert!(desk.events.is_empty() && desk.out.is_empty());
}

#[test]
fn l38_attributes_longer_than_expected_fail_the_lock() {
    let mut desk = Desk::new();
    let hold = desk.ask(&Ask { lvb_max: 8, ..ask(Mode::Ex) });
    let lock = desk.asked();
    desk.grant(&blocked());
    let answer = desk.call_with(Opcode::LDLM_CP_CALLBACK, lock.0, &[0; 9], |_| {});
    assert_eq!(answer, CallbackAnswer::Status(EINVAL));
    assert!(matches!(desk.refused(hold), Some(LockError::BadAnswer(_))));
    assert!(desk.space.locks.is_empty());
    // In a reply: the server holds it to be granted, so it goes back.
    let hold = desk.ask(&Ask { lvb_max: 8, ..ask(Mode::Ex) });
    desk.grant(&Grant { lvb: vec![0; 9], ..Grant::default() });
    assert!(matches!(desk.refused(hold), Some(LockError::BadAnswer(_))));
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted(), [0x5e11]);
}

#[test]
fn a_completion_of_another_type_with_no_mode_a_weaker_one_or_another_range_fails_the_lock() {
    type Change = fn(&mut LockRequest);
    let changes: [Change; 6] = [
        |r| r.desc.kind = LockKind::IBITS,
        |r| r.desc.kind = LockKind(0),
        |r| r.desc.granted = LockMode::NONE,
        |r| r.desc.granted = LockMode(3),
        |r| r.desc.granted = LockMode::PR,
        |r| r.desc.policy.start = 11,
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut desk = Desk::new();
        let hold = desk.ask(&range(Mode::Pw, 10, 20));
        let lock = desk.asked();
        desk.grant(&blocked());
        assert_eq!(desk.call_back(Opcode::LDLM_CP_CALLBACK, lock.0, change), EINVAL, "{n}");
        assert!(matches!(desk.refused(hold), Some(LockError::BadAnswer(_))), "{n}");
        assert!(desk.space.locks.is_empty() && desk.space.due().is_none(), "{n}");
    }
}

#[test]
fn a_reply_without_a_lock_or_with_another_one_is_refused() {
    let mut desk = Desk::new();
    for grant in [
        Grant { handle: 0, ..Grant::default() },
        Grant { granted: Some(LockMode::CR), ..Grant::default() },
        Grant { granted: Some(LockMode(0xffff)), ..Grant::default() },
        Grant { policy: Some(extent(0, 3)), ..Grant::default() },
        Grant { status: 303, ..Grant::default() },
    ] {
        let hold = desk.ask(&range(Mode::Pw, 0, 9));
        desk.grant(&grant);
        assert!(matches!(desk.refused(hold), Some(LockError::BadAnswer(_))), "{grant:?}");
        desk.out.clear();
    }
    let hold = desk.ask(&range(Mode::Pw, 0, 9));
    desk.status(Opcode::LDLM_ENQUEUE, 0);
    assert!(matches!(desk.refused(hold), Some(LockError::BadAnswer(_))));
}

proptest! {
    /// Whatever comes, in whatever order: no panic, and each hold ends at most once.
    #[test]
    fn whatever_a_server_says_nothing_breaks(
        steps in prop::collection::vec((0u8..9, any::<u32>(), any::<u64>(), prop::collection::vec(any::<u8>(), 104..200)), 1..60)
    ) {
        let mut desk = Desk::new();
        let mut holds = Vec::new();
        for (step, word, long, mut bytes) in steps {
            let mode = Mode::ALL[word as usize % Mode::COUNT];
            match step {
                0 | 1 => {
                    let limit = (word & 1 == 1).then(|| core::time::Duration::from_secs(long % 100));
                    let ask = Ask { limit, lvb_max: word % 64, writes_back: word & 2 == 2,
                        glimpses: word & 4 == 4, ..range(mode, long % 8, long % 8 + u64::from(word % 8)) };
                    holds.extend(desk.try_ask(&ask));
                }
                2 => {
                    if let Some(o) = desk.out.get(word as usize % desk.out.len().max(1)).cloned() {
                        let flags = LockFlags::from_bits_retain(word);
                        desk.grant_of(&o, &Grant { status: (long % 310) as i32 * ((word % 3) as i32 / 2), flags,
                            handle: long, lvb: bytes, slv: long % 5000, ..Grant::default() });
                    }
                }
                3 => {
                    if let Some(o) = desk.out.get(word as usize % desk.out.len().max(1)).cloned() {
                        let message = reply(o.opcode, 0, 0, &[bytes]);
                        desk.end(o.ticket, Ok(message));
                    }
                }
                4 | 5 => {
                    let len = bytes.len() / 8 * 8;
                    if step == 4 && !desk.space.locks.is_empty() {
                        let nth = word as usize % desk.space.locks.len();
                        let cookie = desk.space.locks.sorted_keys()[nth];
                        bytes[88..96].copy_from_slice(&cookie.0.to_le_bytes());
                    }
                    if let Ok(request) = LockRequest::parse(LITTLE, &bytes[..len]) {
                        let opcode = Opcode(104 + word % 4);
                        desk.space.callback(desk.now, opcode, &request, &bytes[..8], GlimpseId(long), word & 1 == 0);
                    }
                }
                6 => desk.secs(long % 300),
                7 => {
                    if let Some(hold) = holds.get(word as usize % holds.len().max(1)) {
                        desk.release(*hold, long & 1 == 1);
                    }
                }
                _ if word % 3 == 0 => desk.space.lost(),
                _ if word % 3 == 1 => desk.space.replay(),
                _ => {
                    if let Some(lock) = desk.space.locks.sorted_keys().first().copied() {
                        desk.space.flushed(lock);
                    }
                }
            }
            desk.settle();
        }
        for hold in holds {
            let granted = desk.lock_of(hold).is_some();
            prop_assert!(!granted || desk.refused(hold).is_none());
        }
        // Nothing is left of what has gone.
        desk.space.lost();
        desk.settle();
        prop_assert!(desk.space.locks.is_empty() && desk.space.holds.is_empty());
        prop_assert_eq!((desk.space.due(), desk.space.cache.len()), (None, 0));
    }
}
