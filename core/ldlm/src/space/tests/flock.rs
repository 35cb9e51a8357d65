//! Locks of files' users: replaced, split, merged; deadlocks.

use lustre_wire::ldlm::{LockFlags, LockMode};

use super::*;
use crate::Refusal;

const PR: LockMode = LockMode::PR;
const PW: LockMode = LockMode::PW;
const NL: LockMode = LockMode::NL;

/// The granted locks: mode, first and last byte, by range.
fn held(world: &World) -> Vec<(LockMode, u64, u64)> {
    let locks = world.space.locks_on(&name(1)).into_iter();
    let granted = locks.filter(|lock| lock.state == State::Granted);
    let part = |lock: LockView| {
        (lock.desc.policy.start, (lock.desc.granted, lock.desc.policy.start, lock.desc.policy.end))
    };
    let mut parts: Vec<_> = granted.map(part).collect();
    parts.sort_unstable_by_key(|(start, _)| *start);
    parts.into_iter().map(|(_, part)| part).collect()
}

#[test]
fn an_owners_new_lock_replaces_what_it_covers() {
    let mut world = World::new();
    world.hold(0, &flock(PW, 1, 0, 99));
    world.hold(0, &flock(PR, 1, 40, 59));
    assert_eq!(held(&world), [(PW, 0, 39), (PR, 40, 59), (PW, 60, 99)]);
    world.hold(0, &flock(PW, 1, 30, 70));
    assert_eq!(held(&world), [(PW, 0, 99)], "parts of one mode that touch are one");
    world.take(0, &flock(NL, 1, 10, 19));
    assert_eq!(held(&world), [(PW, 0, 9), (PW, 20, 99)]);
    world.take(0, &flock(NL, 1, 0, EOF));
    assert_eq!(world.space.view().locks, 0);
}

#[test]
fn owners_differ_by_number_and_by_holder() {
    let mut world = World::new();
    world.hold(0, &flock(PW, 1, 0, 9));
    world.wait(0, &flock(PW, 2, 0, 9));
    world.wait(1, &flock(PW, 1, 0, 9));
    assert_eq!(world.effects(), [], "a file's user is not called back");
}

#[test]
fn a_release_grants_every_lock_that_waited_for_it() {
    let mut world = World::new();
    world.hold(0, &flock(PW, 1, 0, 99));
    let blocked = world.wait(1, &flock(PW, 1, 0, 99));
    let [low, high] =
        [(2, 10), (3, 50)].map(|(n, start)| world.wait(n, &flock(PW, 1, start, start)));
    world.take(0, &flock(NL, 1, 10, 10));
    assert_eq!(world.state(low), Some(State::Granted));
    world.take(0, &flock(PR, 1, 0, 99));
    assert_eq!(world.state(high), Some(State::Waiting));
    world.take(0, &flock(NL, 1, 0, 99));
    assert_eq!(world.state(high), Some(State::Granted));
    assert_eq!(world.state(blocked), Some(State::Waiting));
}

#[test]
fn a_test_describes_the_lock_that_stands_against_it() {
    let mut world = World::new();
    world.hold(0, &flock(PW, 7, 10, 19));
    let test = |start, end| Ask { flags: LockFlags::TEST_LOCK, ..flock(PW, 1, start, end) };
    let answer = world.take(1, &test(0, 12));
    let policy = answer.desc.policy;
    assert_eq!((answer.desc.granted, policy.start, policy.end, policy.who), (PW, 10, 19, 7));
    assert_eq!(world.take(1, &test(0, 9)).desc.granted, NL);
    let nowait = Ask { flags: LockFlags::BLOCK_NOWAIT, ..flock(PW, 1, 0, 12) };
    assert_eq!(world.enqueue(1, &nowait).unwrap_err(), Refusal::Conflict);
    assert_eq!(world.space.view().locks, 1);
}

#[test]
fn l16_answer_to_a_test_is_marked_as_another_lock_than_the_one_asked_for() {
    let mut world = World::new();
    world.hold(0, &flock(PW, 7, 10, 19));
    for (start, end) in [(0, 12), (0, 9), (10, 19)] {
        let test = Ask { flags: LockFlags::TEST_LOCK, ..flock(PW, 1, start, end) };
        let answer = world.take(1, &test);
        assert!(answer.flags.contains(LockFlags::LOCK_CHANGED), "{start} to {end}");
    }
    let answer = world.take(1, &flock(PW, 1, 30, 39));
    assert!(!answer.flags.contains(LockFlags::LOCK_CHANGED), "no test");
}

#[test]
fn a_request_that_would_wait_for_itself_is_refused() {
    let mut world = World::new();
    for client in 0..4 {
        world.hold(client, &flock(PW, 1, client, client));
    }
    for client in 0..3 {
        world.wait(client, &flock(PW, 1, client + 1, client + 1));
    }
    let refusal = world.enqueue(3, &flock(PW, 1, 0, 0)).unwrap_err();
    assert_eq!((refusal, refusal.status()), (Refusal::Deadlock, -35));
    world.wait(4, &flock(PW, 1, 0, 0));
}

#[test]
fn a_deadlock_that_a_grant_makes_ends_the_request_with_a_callback() {
    let mut world = World::new();
    // Owner 1 waits twice, as two threads can: for A (byte 0) and, behind owner 3, for B (byte 1).
    world.hold(2, &flock(PW, 2, 0, 0));
    world.hold(3, &flock(PW, 3, 1, 1));
    let first = world.wait(1, &flock(PW, 1, 0, 0));
    let second = world.wait(4, &flock(PW, 4, 1, 1));
    let back = world.wait(1, &flock(PW, 1, 1, 1));
    let last = world.wait(4, &flock(PW, 4, 0, 0));
    world.take(3, &flock(NL, 3, 1, 1));
    assert_eq!(world.state(second), Some(State::Granted));
    world.effects();
    world.take(2, &flock(NL, 2, 0, 0));
    assert_eq!(world.state(first), Some(State::Granted));
    let ended: Vec<_> = world
        .effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Complete(c) if c.flags.contains(LockFlags::FLOCK_DEADLOCK) => Some(c.lock),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [back]);
    assert_eq!((world.state(back), world.state(last)), (None, Some(State::Waiting)));
}
