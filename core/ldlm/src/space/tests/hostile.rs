//! Any value of any field: a refusal or a lock, never a panic.

use core::time::Duration;

use lustre_wire::ldlm::{
    InodeBits, LockDesc, LockFlags, LockKind, LockMode, Lvb, PolicyWords, ResourceName,
};
use proptest::prelude::*;

use super::*;
use crate::Mode;

/// A word that is more often than not near one that means something.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..4u64,
        (0..64u32).prop_map(|n| 1 << n),
        (0..4u64).prop_map(|n| u64::MAX - n),
    ]
}

fn request() -> impl Strategy<Value = Ask> {
    let kind = prop_oneof![8 => 10..14u32, 1 => any::<u32>()];
    let mode = || prop_oneof![8 => (0..9u32).prop_map(|n| 1 << n), 1 => any::<u32>()];
    let flags = prop_oneof![
        3 => Just(0u32),
        6 => any::<u32>().prop_map(|bits| bits & 0xe08c_131a),
        1 => any::<u32>(),
    ];
    let policy = (word(), word(), word(), 0..3u32);
    (kind, mode(), mode(), flags, policy, 0..3u64, 0..8u64, any::<bool>()).prop_map(
        |(kind, requested, granted, flags, (start, end, gid, who), n, client_cookie, resent)| Ask {
            client_cookie,
            flags: LockFlags::from_bits_retain(flags),
            desc: LockDesc {
                kind: LockKind(kind),
                resource: ResourceName { words: [n, 0, 0, 0] },
                requested: LockMode(requested),
                granted: LockMode(granted),
                policy: PolicyWords { start, end, gid, who },
            },
            resent,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn no_value_of_any_field_makes_the_machine_panic(
        steps in proptest::collection::vec((request(), 0..8u64, word(), word(), 0..14u8), 1..40),
    ) {
        let mut world = World::with(Config {
            limits: Limits { locks: 25, locks_per_holder: 15, waiting_per_resource: 5, ..Limits::default() },
            ..Config::new(7)
        });
        let mut locks = vec![Cookie(0)];
        for (request, holder, a, b, what) in steps {
            let now = if what == 0 { Instant(a) } else { world.now };
            let holder = HolderId(holder * 2);
            let lock = if b % 3 == 0 { Cookie(a) } else { locks[a as usize % locks.len()] };
            let space = &mut world.space;
            match what {
                0..4 => {
                    if let Ok(enqueued) = space.enqueue(now, holder, &request) {
                        locks.push(enqueued.lock);
                        if b % 2 == 0 {
                            space.answer(now, enqueued.lock);
                        }
                    }
                }
                4 => {
                    if let Ok(Glimpse::Granted(enqueued)) = space.glimpse(now, holder, &request) {
                        locks.push(enqueued.lock);
                    }
                }
                5 => {
                    space.answer(now, lock);
                }
                6 => {
                    space.cancel(now, holder, &[lock, Cookie(b), lock]);
                }
                7 => {
                    let mode = Mode::ALL[b as usize % 9];
                    let keep = InodeBits::from_bits_retain(a);
                    let _ = space.convert(now, holder, lock, mode, keep);
                }
                8 => {
                    let resource = request.desc.resource;
                    let io = Io { resource, start: a, end: b, read: a % 2 == 0, lock: Some(lock) };
                    space.touch(now, holder, &io, Duration::from_nanos(a));
                }
                9 => {
                    space.set_estimate(holder, Duration::from_nanos(b));
                    space.handle_timeout(Instant(a), &mut |_| b % 2 == 0);
                }
                10 => space.callback_ended(now, lock, CallbackEnd::Failed),
                11 => {
                    space.evict(now, holder);
                }
                12 => {
                    let lvb = Lvb { size: a, mtime: b as i64, atime: 0, ctime: 0, blocks: b,
                        mtime_ns: 0, atime_ns: 0, ctime_ns: 0 };
                    space.set_value(&request.desc.resource, Value::Object(lvb));
                    space.grow_value(&request.desc.resource, &lvb);
                }
                _ if b % 2 == 0 => space.begin_replay(),
                _ => space.end_replay(now),
            }
            space.blockers(lock, 3);
            space.callback_resent(now, lock);
            space.recalculate_slv(now);
            let view = space.view();
            prop_assert!(view.locks <= 25 + 1 && view.waiting <= view.locks, "{view:?}");
        }
    }
}
