//! Requests, grants, glimpses and replay, statement by statement; callbacks' timers are in `timers.rs`.

use lustre_wire::ldlm::{InodeBits, LockFlags, LockKind, LockMode, Lvb};

use super::*;
use crate::{Mode, Refusal};

const MIB: u64 = 1 << 20;

fn blocks(effects: &[Effect]) -> Vec<Cookie> {
    let block = |effect: &Effect| match effect {
        Effect::Block { callback, .. } => Some(callback.lock),
        _ => None,
    };
    effects.iter().filter_map(block).collect()
}

fn completions(effects: &[Effect]) -> Vec<Cookie> {
    let complete = |effect: &Effect| match effect {
        Effect::Complete(callback) => Some(callback.lock),
        _ => None,
    };
    effects.iter().filter_map(complete).collect()
}

#[test]
fn l2_a_resource_keeps_the_type_of_its_first_lock() {
    let mut world = World::new();
    world.hold(0, &plain(LockMode::CR));
    let refusal = world.enqueue(1, &extent(LockMode::PR, 0, 9)).unwrap_err();
    assert_eq!(refusal, Refusal::OtherKind { asked: 11, has: 10 });
    for kind in [0, 9, 14, u32::MAX] {
        let mut request = plain(LockMode::CR);
        request.desc.kind = LockKind(kind);
        assert_eq!(world.enqueue(1, &request).unwrap_err().status(), -14);
    }
}

#[test]
fn l4_two_locks_are_granted_together_as_the_matrix_allows() {
    for held in Mode::ALL {
        for wanted in Mode::ALL {
            let mut world = World::new();
            let request = |mode: Mode| Ask { flags: NONE, ..plain(mode.word()) };
            world.hold(0, &request(held));
            // Both groups have gid 0.
            let group = held == Mode::Group && wanted == Mode::Group;
            let granted = world.take(1, &request(wanted)).state == State::Granted;
            assert_eq!(granted, held.allows(wanted) || group, "{held} held, {wanted} wanted");
        }
    }
}

#[test]
fn l5_locks_on_other_parts_of_a_resource_do_not_conflict() {
    let mut world = World::new();
    world.hold(0, &fixed(LockMode::PW, 0, 99));
    world.hold(1, &fixed(LockMode::PW, 100, 199));
    world.wait(2, &fixed(LockMode::PR, 99, 100));
    let mut other = fixed(LockMode::PW, 0, 99);
    other.desc.resource = name(2);
    world.hold(3, &other);
}

#[test]
fn l5_cos_is_compatible_with_its_client_and_txn_with_its_initiator() {
    let mut world = World::new();
    world.hold(0, &ibits(LockMode::PW, 1, 0));
    world.hold(0, &ibits(LockMode::COS, 1, 0));
    world.wait(1, &ibits(LockMode::COS, 1, 0));
    let mut world = World::new();
    let by = |who, mode| {
        let mut request = ibits(mode, 1, 0);
        request.desc.policy.who = who;
        request
    };
    world.hold(0, &by(7, LockMode::PW));
    world.hold(1, &by(7, LockMode::TXN));
    world.wait(2, &by(8, LockMode::TXN));
}

#[test]
fn l9_inode_bits_conflict_only_where_they_meet() {
    let mut world = World::new();
    world.hold(0, &ibits(LockMode::EX, 0b011, 0));
    world.hold(1, &ibits(LockMode::EX, 0b100, 0));
    world.wait(2, &ibits(LockMode::PR, 0b110, 0));
}

#[test]
fn l17_flags_outside_the_mask_of_requests_are_refused() {
    let mut world = World::new();
    for bit in (0..32).map(|n| 1u32 << n) {
        let flags = LockFlags::from_bits_retain(bit);
        let result = world.enqueue(0, &Ask { flags, ..plain(LockMode::NL) });
        let unknown = bit & 0xe08c_131a == 0;
        assert_eq!(result.err() == Some(Refusal::Flags(bit)), unknown, "{bit:#x}");
    }
}

#[test]
fn l22_values_of_a_request_are_checked_before_anything_is_made() {
    let mut world = World::new();
    assert_eq!(world.enqueue(0, &plain(LockMode(3))).unwrap_err().status(), -14);
    assert_eq!(world.enqueue(0, &plain(LockMode(0))).unwrap_err().status(), -14);
    let backwards = world.enqueue(0, &extent(LockMode::PR, 5, 4)).unwrap_err();
    assert_eq!(backwards, Refusal::Empty { start: 5, end: 4 });
    assert_eq!(world.enqueue(0, &ibits(LockMode::PR, 0, 0)).unwrap_err().status(), -22);
    assert_eq!(world.enqueue(77, &plain(LockMode::PR)).unwrap_err(), Refusal::NotConnected);
    assert_eq!(world.space.view(), SpaceView { holders: 10, ..SpaceView::default() });
}

#[test]
fn l22_at_each_limit_a_request_is_to_be_tried_again() {
    let limits =
        Limits { locks: 5, locks_per_holder: 3, waiting_per_resource: 1, ..Limits::default() };
    let mut world = World::with(Config { limits, ..Config::new(1) });
    let status = |result: Result<Enqueued, Refusal>| result.unwrap_err().status();
    (0..3).for_each(|_| {
        world.hold(0, &plain(LockMode::CR));
    });
    assert_eq!(status(world.enqueue(0, &plain(LockMode::CR))), -115);
    world.wait(1, &plain(LockMode::EX));
    assert_eq!(status(world.enqueue(2, &plain(LockMode::EX))), -115);
    let mut other = plain(LockMode::EX);
    other.desc.resource = name(2);
    world.hold(2, &other);
    assert_eq!(status(world.enqueue(3, &other)), -115);
}

/// What one client has taken it may keep, but no more; the others are served as before.
#[test]
fn client_with_a_million_locks_has_its_limit_and_others_have_theirs() {
    let mut world = World::new();
    let of = |n: u64| {
        let mut ask = plain(LockMode::EX);
        ask.desc.resource = name(n);
        ask
    };
    for n in 0..1_000_000 {
        world.enqueue(0, &of(n)).expect("it is below its limit");
    }
    let refusal = world.enqueue(0, &of(1_000_000)).unwrap_err();
    assert_eq!(refusal.status(), -115);
    assert!(refusal.to_string().contains("1000000"), "{refusal}");
    world.hold(1, &of(1_000_000));
    world.wait(1, &of(7));
    assert_eq!(world.space.evict(world.now, HolderId(0)), 1_000_000);
    let SpaceView { locks, waiting, .. } = world.space.view();
    assert_eq!((locks, waiting), (2, 0));
}

#[test]
fn l23_each_conflicting_holder_is_called_back_before_the_answer_says_blocked() {
    let mut world = World::new();
    let readers = [0, 1].map(|n| world.hold(n, &extent(LockMode::PR, 0, 4095)));
    let other = world.hold(2, &fixed(LockMode::PR, MIB, MIB));
    let flags = LockFlags::NO_EXPANSION | LockFlags::AST_DISCARD_DATA;
    let request = Ask { flags, ..extent(LockMode::PW, 0, 4095) };
    let enqueued = world.enqueue(3, &request).expect("it waits");
    let effects = world.effects();
    assert_eq!(blocks(&effects), readers);
    for effect in &effects {
        let Effect::Block { callback, because } = effect else { panic!("{effect:?}") };
        assert_eq!(*because, enqueued.lock);
        assert_eq!(callback.flags, LockFlags::DISCARD_DATA);
        assert_eq!(callback.desc.requested, LockMode::PW);
    }
    let answer = world.space.answer(world.now, enqueued.lock).expect("it is there");
    assert_eq!(
        answer.flags,
        LockFlags::BLOCK_GRANTED | LockFlags::NO_TIMEOUT | LockFlags::AST_DISCARD_DATA
    );
    assert_eq!(answer.desc.granted, LockMode::NONE);
    assert!(!world.space.lock(other).expect("it is held").called_back);
    let blockers: Vec<_> = world.space.blockers(enqueued.lock, 9).iter().map(|l| l.lock).collect();
    assert_eq!(blockers, readers);
}

#[test]
fn l23_behind_waiting_locks_alone_the_answer_says_so() {
    let mut world = World::new();
    world.hold(0, &plain(LockMode::PR));
    world.wait(1, &plain(LockMode::PW));
    let answer = world.take(2, &plain(LockMode::PR));
    assert_eq!((answer.state, answer.flags), (State::Waiting, LockFlags::BLOCK_WAIT));
}

#[test]
fn l23_a_request_that_must_not_wait_is_refused_without_callbacks() {
    let mut world = World::new();
    world.hold(0, &ibits(LockMode::EX, 1, 0));
    let with = |flags| Ask { flags, ..ibits(LockMode::PR, 1, 0) };
    let speculative = world.enqueue(1, &with(LockFlags::SPECULATIVE)).unwrap_err();
    assert_eq!(speculative.status(), -11);
    let nowait = world.enqueue(1, &with(LockFlags::BLOCK_NOWAIT)).unwrap_err();
    assert_eq!((nowait, nowait.status()), (Refusal::WouldBlock, 304));
    let mut world = World::new();
    world.hold(0, &group(1));
    let nowait = Ask { flags: LockFlags::BLOCK_NOWAIT, ..extent(LockMode::PR, 0, 9) };
    assert_eq!(world.enqueue(1, &nowait).unwrap_err(), Refusal::Conflict);
    let mut world = World::new();
    world.hold(0, &extent(LockMode::PW, 0, 9));
    world.wait(1, &nowait);
    assert_eq!(blocks(&world.effects()).len(), 1, "only a group keeps it from waiting");
}

#[test]
fn l24_a_lock_whose_conflict_ends_before_its_answer_is_answered_as_granted() {
    let mut world = World::new();
    let held = world.hold(0, &plain(LockMode::EX));
    let enqueued = world.enqueue(1, &plain(LockMode::EX)).expect("it waits");
    assert_eq!(enqueued.state, State::Waiting);
    world.space.callback_ended(world.now, held, CallbackEnd::NotHeld);
    let answer = world.space.answer(world.now, enqueued.lock).expect("it is there");
    assert_eq!((answer.state, answer.flags), (State::Granted, NONE));
    assert_eq!(completions(&world.effects()), []);
}

fn replayed(request: &Ask, flags: LockFlags) -> Ask {
    let mut replay = Ask { flags: LockFlags::REPLAY | flags, ..*request };
    replay.desc.granted = replay.desc.requested;
    replay
}

#[test]
fn l25_replayed_locks_are_granted_or_wait_as_before_and_queues_stand_still() {
    let mut world = World::new();
    world.space.begin_replay();
    let pw = extent(LockMode::PW, 100, 5000);
    // The lock that waited comes first, and the one without an answer is not granted in between.
    let waits = world.wait(1, &replayed(&pw, LockFlags::BLOCK_WAIT));
    let new = world.wait(2, &replayed(&pw, NONE));
    let held = world.hold(0, &replayed(&pw, LockFlags::BLOCK_GRANTED));
    assert_eq!(world.range(held), (100, 5000), "no growth");
    assert_eq!(world.effects(), []);
    let gone = world.hold(3, &replayed(&fixed(LockMode::PR, 9000, 9001), LockFlags::BLOCK_GRANTED));
    world.cancel(3, gone);
    assert_eq!(world.effects(), []);
    world.space.end_replay(world.now);
    assert_eq!(blocks(&world.effects()), [held], "the one walk sends callbacks");
    world.cancel(0, held);
    assert_eq!(completions(&world.effects()), [waits]);
    assert_eq!(world.state(new), Some(State::Waiting));
}

#[test]
fn l25_of_two_conflicting_replays_the_second_is_refused_and_its_client_evicted() {
    let mut world = World::new();
    world.space.begin_replay();
    let replay = replayed(&plain(LockMode::EX), LockFlags::BLOCK_GRANTED);
    world.hold(0, &replay);
    assert_eq!(world.enqueue(1, &replay).unwrap_err(), Refusal::ReplayConflict);
    let effects = world.effects();
    let reason = EvictReason::ReplayConflict;
    assert!(
        matches!(effects[..], [Effect::Evict { holder: HolderId(1), why, .. }] if why == reason)
    );
}

#[test]
fn l26_a_resent_enqueue_is_answered_from_the_lock_that_is_there() {
    let mut world = World::new();
    let held = world.hold(0, &extent(LockMode::PW, 0, 4095));
    let request = Ask { client_cookie: 77, ..extent(LockMode::PW, 0, 4095) };
    let lock = world.wait(1, &request);
    let resent = Ask { resent: true, ..request };
    let enqueued = world.enqueue(1, &resent).expect("it is found");
    assert_eq!((enqueued.lock, enqueued.found), (lock, true));
    let blocked = LockFlags::LOCK_CHANGED | LockFlags::BLOCK_GRANTED | LockFlags::NO_TIMEOUT;
    assert_eq!(world.take(1, &resent).flags, blocked);
    world.cancel(0, held);
    let granted = LockFlags::LOCK_CHANGED | LockFlags::NO_TIMEOUT;
    assert_eq!(world.take(1, &resent).flags, granted);
    assert_eq!(world.space.view().locks, 1);
}

#[test]
fn l27_a_lock_is_called_back_once_however_many_wait_for_it() {
    let mut world = World::new();
    let held = world.hold(0, &plain(LockMode::PR));
    (1..5).for_each(|client| {
        world.wait(client, &plain(LockMode::EX));
    });
    assert_eq!(blocks(&world.effects()), [held]);
}

#[test]
fn l28_a_group_is_granted_together_and_waits_in_front_of_others() {
    let mut world = World::new();
    let first = world.hold(0, &group(1));
    world.hold(1, &group(1));
    let other = world.wait(2, &group(2));
    let reader = world.wait(3, &extent(LockMode::PR, 0, 9));
    let mate = world.wait(4, &group(2));
    let late = world.hold(5, &group(1));
    assert!(world.space.lock(late).expect("it is held").called_back, "others wait for it");
    let queue: Vec<_> = world.space.locks_on(&name(1)).iter().skip(3).map(|l| l.lock).collect();
    assert_eq!(queue, [other, mate, reader]);
    world.effects();
    world.cancel(0, first);
    world.cancel(5, late);
    world.space.evict(world.now, HolderId(1));
    assert_eq!(completions(&world.effects()), [other, mate]);
}

#[test]
fn l29_a_lone_range_grows_to_the_whole_file() {
    let mut world = World::new();
    let answer = world.take(0, &extent(LockMode::PW, 4096, 8191));
    assert_eq!((answer.desc.policy.start, answer.desc.policy.end), (0, EOF));
    assert_eq!(answer.flags, LockFlags::LOCK_CHANGED);
}

#[test]
fn l29_a_range_does_not_grow_for_this_server_nor_against_its_flag() {
    let mut world = World::new();
    world.space.connect(HolderId(99), HolderKind::Local, Duration::ZERO);
    let local = world.hold(99, &extent(LockMode::PW, 0, 4095));
    let still = world.hold(0, &fixed(LockMode::PW, 8192, 12_287));
    assert_eq!((world.range(local), world.range(still)), ((0, 4095), (8192, 12_287)));
}

#[test]
fn l29_growth_ends_before_granted_locks_and_does_not_go_downwards_then() {
    let mut world = World::new();
    world.hold(0, &fixed(LockMode::PW, 0, 4095));
    world.hold(1, &fixed(LockMode::PW, MIB, 2 * MIB - 1));
    let lock = world.hold(2, &extent(LockMode::PW, 8192, 12_287));
    assert_eq!(world.range(lock), (8192, MIB - 1));
    let reader = world.hold(3, &extent(LockMode::PR, 2 * MIB, 2 * MIB + 4095));
    assert_eq!(world.range(reader), (2 * MIB, EOF));
}

#[test]
fn l29_growth_leaves_out_what_others_wait_for() {
    let mut world = World::new();
    let held = world.hold(0, &fixed(LockMode::PW, 0, 64 * MIB - 1));
    let first = world.wait(1, &extent(LockMode::PW, 4 * MIB, 5 * MIB - 1));
    let below = world.wait(2, &extent(LockMode::PW, 0, MIB - 1));
    let above = world.wait(3, &extent(LockMode::PW, 8 * MIB, 9 * MIB - 1));
    world.cancel(0, held);
    assert_eq!(world.range(first), (MIB, 8 * MIB - 1));
    assert_eq!((world.range(below), world.range(above)), ((0, MIB - 1), (8 * MIB, EOF)));
}

#[test]
fn l29_beside_more_than_32_locks_a_writer_grows_by_32_mib_at_most() {
    let mut world = World::new();
    for n in 0..33 {
        world.hold(n % 8, &fixed(LockMode::PW, n * 4096, n * 4096 + 4095));
    }
    let lock = world.hold(9, &extent(LockMode::PW, 64 * MIB, 65 * MIB - 1));
    assert_eq!(world.range(lock), (64 * MIB, 96 * MIB - 1));
    let reader = world.hold(8, &extent(LockMode::PR, 128 * MIB, 128 * MIB + 4095));
    assert_eq!(world.range(reader), (128 * MIB, EOF));
}

#[test]
fn l30_waiting_locks_are_granted_in_order_up_to_the_first_that_conflicts() {
    let mut world = World::new();
    let held = world.hold(0, &plain(LockMode::EX));
    let waits: Vec<_> = [LockMode::PR, LockMode::PR, LockMode::EX, LockMode::PR]
        .into_iter()
        .enumerate()
        .map(|(n, mode)| world.wait(n as u64 + 1, &plain(mode)))
        .collect();
    world.effects();
    world.cancel(0, held);
    let effects = world.effects();
    assert_eq!(completions(&effects), waits[..2]);
    assert_eq!(blocks(&effects), [], "no callbacks in the walk");
    world.cancel(1, waits[0]);
    assert_eq!(completions(&world.effects()), []);
    world.cancel(2, waits[1]);
    assert_eq!(completions(&world.effects()), waits[2..3]);
}

#[test]
fn l30_of_inode_bits_the_walk_goes_on_past_bits_that_are_not_blocked() {
    let mut world = World::new();
    let [a, b] = [1, 2].map(|bits| world.hold(bits, &ibits(LockMode::EX, bits, 0)));
    let first = world.wait(3, &ibits(LockMode::EX, 0b01, 0));
    let second = world.wait(4, &ibits(LockMode::EX, 0b10, 0));
    let third = world.wait(5, &ibits(LockMode::PR, 0b11, 0));
    world.effects();
    world.cancel(2, b);
    assert_eq!(completions(&world.effects()), [second]);
    world.cancel(4, second);
    assert_eq!(completions(&world.effects()), []);
    world.cancel(1, a);
    assert_eq!(completions(&world.effects()), [first]);
    world.cancel(3, first);
    assert_eq!(completions(&world.effects()), [third]);
}

#[test]
fn l31_many_conflicts_in_4_s_are_announced_and_may_be_refused() {
    let mut world = World::new();
    (0..9).for_each(|n| {
        world.hold(n % 8, &fixed(LockMode::PR, 0, 4095));
    });
    let eight = world.take(8, &fixed(LockMode::PW, 0, 4095));
    assert!(!eight.flags.contains(LockFlags::CONTENTION));
    let many = world.take(9, &fixed(LockMode::PW, 0, 4095));
    assert!(many.flags.contains(LockFlags::CONTENTION), "{many:?}");
    let deny = LockFlags::NO_EXPANSION | LockFlags::DENY_ON_CONTENTION;
    let request = Ask { flags: deny, ..fixed(LockMode::PW, 0, 4095) };
    assert_eq!(world.enqueue(9, &request).unwrap_err(), Refusal::Contended);
    world.now += Duration::from_secs(31);
    world.take(9, &request);
}

#[test]
fn l31_readers_of_the_whole_file_and_grown_ranges_count_no_conflict() {
    let mut world = World::new();
    world.hold(0, &extent(LockMode::PW, 0, 4095));
    for n in 0..40 {
        let answer = world.take(n % 9 + 1, &extent(LockMode::PR, 0, EOF));
        assert!(!answer.flags.contains(LockFlags::CONTENTION), "{n}");
    }
    let mut world = World::new();
    for n in 1..40 {
        world.hold(0, &extent(LockMode::PW, 0, 4095));
        let grown = world.take(1, &extent(LockMode::PW, n << 30, (n << 30) + 4095));
        assert!(!grown.flags.contains(LockFlags::CONTENTION), "{n}");
        for client in [0, 1] {
            world.space.evict(world.now, HolderId(client));
            world.space.connect(HolderId(client), HolderKind::Client, Duration::ZERO);
        }
    }
}

#[test]
fn l33_the_callback_of_a_lock_that_waits_travels_with_its_completion() {
    let mut world = World::new();
    let held = world.hold(0, &ibits(LockMode::EX, 0b11, 0));
    let first = world.wait(1, &ibits(LockMode::EX, 0b11, 0));
    world.wait(2, &ibits(LockMode::EX, 0b10, 0));
    assert_eq!(blocks(&world.effects()), [held]);
    world.cancel(0, held);
    let effects = world.effects();
    let [Effect::Complete(callback)] = effects[..] else { panic!("{effects:?}") };
    assert_eq!((callback.lock, callback.flags), (first, LockFlags::AST_SENT));
    assert_eq!(callback.desc.policy.end, 0b10, "the bits to be cancelled");
    assert!(world.space.lock(first).expect("it is held").expires.is_some());
}

#[test]
fn l33_a_blocking_callback_has_the_conflicting_bits_and_no_range() {
    let mut world = World::new();
    world.hold(0, &ibits(LockMode::PR, 0b11, 0));
    world.wait(1, &ibits(LockMode::EX, 0b110, 0));
    let effects = world.effects();
    let [Effect::Block { callback, .. }] = effects[..] else { panic!("{effects:?}") };
    assert_eq!((callback.desc.policy.start, callback.desc.policy.end), (0b110, 0b10));
    let mut world = World::new();
    world.hold(0, &extent(LockMode::PR, 0, 4095));
    world.wait(1, &extent(LockMode::PW, 8, 4095));
    let effects = world.effects();
    let [Effect::Block { callback, .. }] = effects[..] else { panic!("{effects:?}") };
    assert_eq!((callback.desc.policy.start, callback.desc.policy.end), (8, 8));
}

#[test]
fn l33_a_conflict_before_the_answer_goes_with_it() {
    let mut world = World::new();
    let enqueued = world.enqueue(0, &plain(LockMode::EX)).expect("it is granted");
    world.wait(1, &plain(LockMode::EX));
    assert_eq!(world.effects(), []);
    let answer = world.space.answer(world.now, enqueued.lock).expect("it is there");
    assert_eq!((answer.state, answer.flags), (State::Granted, LockFlags::AST_SENT));
    assert!(world.space.lock(enqueued.lock).expect("it is held").expires.is_some());
}

#[test]
fn cancel_on_block_locks_go_with_their_callback() {
    let mut world = World::new();
    let request = Ask { flags: LockFlags::CANCEL_ON_BLOCK, ..plain(LockMode::PR) };
    let lock = world.hold(0, &request);
    let answer = world.take(1, &plain(LockMode::EX));
    assert_eq!((answer.state, world.state(lock)), (State::Granted, None));
    assert_eq!(blocks(&world.effects()), [lock]);
    // Of one whose client does not know of it yet, the answer is the callback.
    let enqueued = world.enqueue(2, &Ask { client_cookie: 9, ..request }).expect("it waits");
    world.cancel(1, answer.lock);
    let waits = world.wait(3, &plain(LockMode::EX));
    let answer = world.space.answer(world.now, enqueued.lock).expect("it is there");
    assert_eq!((answer.state, answer.flags), (State::Granted, LockFlags::AST_SENT));
    assert_eq!(world.state(enqueued.lock), None);
    assert_eq!(completions(&world.effects()), [waits]);
}

#[test]
fn try_bits_are_granted_as_far_as_they_are_free() {
    let mut world = World::new();
    world.hold(0, &ibits(LockMode::PR, 0b001, 0));
    world.hold(1, &ibits(LockMode::EX, 0b010, 0));
    let answer = world.take(2, &ibits(LockMode::PR, 0b001, 0b110));
    assert_eq!((answer.state, answer.desc.policy.start), (State::Granted, 0b101));
    assert_eq!(answer.flags, LockFlags::LOCK_CHANGED);
    let none = world.enqueue(3, &ibits(LockMode::PR, 0, 0b010)).unwrap_err();
    assert_eq!(none, Refusal::WouldBlock);
}

const fn lvb(size: u64, mtime: i64) -> Lvb {
    let (atime, ctime, blocks) = (0, 0, 0);
    Lvb { size, mtime, atime, ctime, blocks, mtime_ns: 0, atime_ns: 0, ctime_ns: 0 }
}

#[test]
fn l34_values_of_a_resource_increase_and_never_decrease() {
    let mut world = World::new();
    assert!(!world.space.set_value(&name(1), Value::Object(lvb(1, 1))));
    let enqueued = world.enqueue(0, &extent(LockMode::PW, 0, 9)).expect("it is granted");
    assert!(enqueued.wants_value);
    assert!(world.space.set_value(&name(1), Value::Object(lvb(10, 10))));
    world.space.grow_value(&name(1), &lvb(20, 5));
    world.space.grow_value(&name(1), &lvb(15, 12));
    let error = Lvb { blocks: 0xFFBA_DBAD << 32 | 5, ..lvb(99, 99) };
    world.space.grow_value(&name(1), &error);
    assert_eq!(world.space.value(&name(1)), Some(&Value::Object(lvb(20, 12))));
    world.space.abort(world.now, enqueued.lock);
    assert_eq!(world.space.value(&name(1)), None, "it ends with the last lock");
}

fn glimpse(world: &mut World, client: u64, flags: LockFlags) -> Glimpse {
    let request = Ask { flags: flags | LockFlags::HAS_INTENT, ..extent(LockMode::PR, 0, EOF) };
    let request = Ask { client_cookie: 1000, ..request };
    world.space.glimpse(world.now, HolderId(client), &request).expect("it is not refused")
}

fn glimpsed(glimpse: &Glimpse) -> Vec<Cookie> {
    match glimpse {
        Glimpse::Aborted(asked) => asked.iter().map(|callback| callback.lock).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn l35_a_glimpse_without_conflict_is_a_lock() {
    let mut world = World::new();
    world.hold(0, &extent(LockMode::PR, 0, EOF));
    assert!(matches!(glimpse(&mut world, 1, NONE), Glimpse::Granted(_)));
    assert_eq!(world.space.view().locks, 2);
}

#[test]
fn l35_a_glimpse_asks_the_writers_above_the_known_size_from_the_end() {
    let mut world = World::new();
    let low = world.hold(0, &fixed(LockMode::PW, 0, 99));
    world.space.set_value(&name(1), Value::Object(lvb(150, 0)));
    let [middle, high, own] = [(1, 200, 299), (2, 300, 399), (2, 400, 499)]
        .map(|(client, start, end)| world.hold(client, &fixed(LockMode::PW, start, end)));
    assert_eq!(glimpsed(&glimpse(&mut world, 5, NONE)), [own, middle]);
    assert_eq!(world.effects(), [], "no blocking callbacks");
    assert_eq!(glimpsed(&glimpse(&mut world, 5, LockFlags::BLOCK_NOWAIT)), []);
    // Behind a lock that may grow there is no other writer.
    world.cancel(2, own);
    world.cancel(2, high);
    let last = world.hold(3, &extent(LockMode::PW, 1 << 20, (1 << 21) - 1));
    assert_eq!(glimpsed(&glimpse(&mut world, 5, NONE)), [last]);
    world.space.grow_value(&name(1), &lvb(EOF, 0));
    world.cancel(3, last);
    assert_eq!(glimpsed(&glimpse(&mut world, 5, NONE)), []);
    assert!(world.space.lock(low).is_some() && world.space.view().waiting == 0);
}

#[test]
fn l35_a_glimpse_of_an_object_that_is_being_destroyed_says_so() {
    let mut world = World::new();
    world.space.connect(HolderId(99), HolderKind::Remover, Duration::ZERO);
    world.hold(99, &extent(LockMode::PW, 0, EOF));
    assert_eq!(glimpse(&mut world, 5, NONE), Glimpse::Destroyed);
}

#[test]
fn l35_a_glimpse_passes_over_what_the_server_itself_writes() {
    let mut world = World::new();
    world.space.connect(HolderId(99), HolderKind::Local, Duration::ZERO);
    let below = world.hold(0, &fixed(LockMode::PW, 0, 99));
    world.hold(99, &extent(LockMode::PW, 100, 199));
    assert_eq!(glimpsed(&glimpse(&mut world, 5, NONE)), [below]);
}

#[test]
fn l42_a_cancel_takes_the_locks_of_its_holder_alone() {
    let mut world = World::new();
    let [a, b] = [0, 1].map(|client| world.hold(client, &plain(LockMode::CR)));
    let found = world.space.cancel(world.now, HolderId(0), &[b, a, a, Cookie(5)]).found;
    assert_eq!((found, world.state(a), world.state(b)), (1, None, Some(State::Granted)));
    assert_eq!(world.cancel(0, a).found, 0);
}

#[test]
fn l45_a_conversion_drops_bits_and_ends_the_callback_if_none_is_wanted_any_more() {
    let mut world = World::new();
    let lock = world.hold(0, &ibits(LockMode::PR, 0b111, 0));
    let mut waits = [0b001, 0b010].map(|bits| world.wait(bits, &ibits(LockMode::EX, bits, 0)));
    world.effects();
    let convert = |world: &mut World, keep| {
        let keep = InodeBits::from_bits_retain(keep);
        world.space.convert(world.now, HolderId(0), lock, Mode::Pr, keep).map(|bits| bits.bits())
    };
    assert_eq!(convert(&mut world, 0b110), Ok(0b110));
    assert_eq!(completions(&world.effects()), waits[..1]);
    let view = world.space.lock(lock).expect("it is held");
    assert!(view.called_back && view.expires.is_some(), "the second still waits for it");
    assert_eq!(convert(&mut world, 0b100), Ok(0b100));
    let view = world.space.lock(lock).expect("it is held");
    assert!(!view.called_back && view.expires.is_none());
    let upwards = convert(&mut world, 0b101).unwrap_err();
    assert_eq!(upwards, ConvertRefusal::Upwards { asked: 0b101, held: 0b100 });
    assert_eq!(convert(&mut world, 0), Ok(0));
    assert_eq!(convert(&mut world, 0).unwrap_err().status(), 303);
    waits.reverse();
    let other = world.space.convert(world.now, HolderId(2), waits[0], Mode::Pr, InodeBits::empty());
    assert_eq!(other.unwrap_err().status(), -71);
}

#[test]
fn a_cookie_is_never_used_again() {
    let mut world = World::new();
    let cookies: Vec<_> = (0..1000)
        .map(|_| {
            let lock = world.hold(0, &plain(LockMode::EX));
            world.cancel(0, lock);
            lock
        })
        .collect();
    let mut once = cookies.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), 1000);
    world.hold(0, &plain(LockMode::EX));
    assert_eq!(world.space.cancel(world.now, HolderId(0), &cookies).found, 0);
    let other = World::with(Config::new(2)).hold(0, &plain(LockMode::EX));
    assert!(!cookies.contains(&other), "another incarnation has other cookies");
}

#[test]
fn a_test_leaves_no_lock() {
    let mut world = World::new();
    let test = Ask { flags: LockFlags::TEST_LOCK, ..plain(LockMode::PW) };
    assert_eq!(world.take(0, &test).desc.granted, LockMode::PW);
    assert_eq!(world.space.view().locks, 0);
    world.hold(1, &plain(LockMode::PR));
    assert_eq!(world.enqueue(0, &test).unwrap_err(), Refusal::Conflict);
}
