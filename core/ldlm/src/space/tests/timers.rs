//! Callback timers, statement by statement (L-46 to L-55).

use lnet_types::Instant;
use lustre_wire::ldlm::LockMode;

use super::*;

/// Client 0 holds, client 1 waits: the lock that was called back, at second 1000, and the one that
/// waits. The estimate is 10 s, `ldlm_enqueue_min` 100 s.
fn called_back() -> (World, Cookie, Cookie) {
    let mut world = World::new();
    let held = world.hold(0, &fixed(LockMode::PW, 0, 4095));
    let waits = world.wait(1, &fixed(LockMode::PW, 0, 4095));
    world.effects();
    (world, held, waits)
}

fn expires(world: &World, lock: Cookie) -> Option<Instant> {
    world.space.lock(lock).expect("the lock is there").expires
}

fn pass(world: &mut World, second: u64, busy: bool) -> Vec<Effect> {
    world.now = secs(second);
    world.space.handle_timeout(world.now, &mut |_| busy);
    world.effects()
}

fn evicted(lock: Cookie, why: EvictReason) -> Effect {
    Effect::Evict { holder: HolderId(0), lock, why }
}

#[test]
fn l46_the_timer_begins_with_the_callback_and_further_ones_do_not_move_it() {
    let (mut world, held, _) = called_back();
    assert_eq!(
        (expires(&world, held), world.space.poll_timeout()),
        (Some(secs(1100)), Some(secs(1100)))
    );
    world.now = secs(1050);
    world.wait(2, &fixed(LockMode::PW, 0, 4095));
    assert_eq!(expires(&world, held), Some(secs(1100)));
}

#[test]
fn l46_a_shorter_time_does_not_shorten_the_timer() {
    let (mut world, held, _) = called_back();
    world.space.set_enqueue_min(Duration::from_secs(10));
    assert_eq!(world.space.callback_resent(secs(1010), held), Some(secs(1100)));
}

#[test]
fn l47_the_timer_is_one_and_a_half_estimates_and_at_least_the_minimum() {
    let mut world = World::new();
    assert_eq!(world.space.callback_limit(HolderId(0)), Duration::from_secs(100));
    world.space.set_estimate(HolderId(0), Duration::from_secs(100));
    assert_eq!(world.space.callback_limit(HolderId(0)), Duration::from_secs(150));
    let held = world.hold(0, &plain(LockMode::EX));
    world.wait(1, &plain(LockMode::EX));
    assert_eq!(expires(&world, held), Some(secs(1150)));
}

#[test]
fn l47_a_cancel_measures_the_time_since_the_last_callback() {
    let (mut world, held, _) = called_back();
    world.space.callback_resent(secs(1007), held);
    world.now = secs(1012);
    let cancelled = world.cancel(0, held);
    assert_eq!(cancelled.delays[..], [Duration::from_secs(5)]);
    let (mut world, held, _) = called_back();
    world.now += Duration::from_millis(999);
    assert_eq!(world.cancel(0, held).delays[..], [], "0 whole seconds");
    let mut world = World::new();
    let early = world.hold(0, &plain(LockMode::EX));
    world.now = secs(2000);
    assert_eq!(world.cancel(0, early).delays[..], [], "never called back");
}

#[test]
fn l48_a_timer_ends_at_its_whole_second_and_waits_for_no_longer_one() {
    let mut world = World::new();
    world.space.set_estimate(HolderId(3), Duration::from_secs(600));
    world.now += Duration::from_millis(1);
    let [slow, fast] = [(3, 0), (0, 8192)].map(|(client, start)| {
        let lock = world.hold(client, &fixed(LockMode::PW, start, start + 4095));
        world.wait(1, &fixed(LockMode::PW, start, start + 4095));
        lock
    });
    world.effects();
    assert_eq!(expires(&world, fast), Some(secs(1101)));
    assert_eq!(pass(&mut world, 1100, false), []);
    assert_eq!(pass(&mut world, 1101, false), [evicted(fast, EvictReason::Expired)]);
    assert_eq!(world.space.poll_timeout(), expires(&world, slow));
}

#[test]
fn l49_io_under_a_lock_that_was_called_back_moves_its_timer() {
    let (mut world, held, _) = called_back();
    let io = Io { resource: name(1), start: 100, end: 200, read: false, lock: None };
    let prolong = Duration::from_secs(150);
    let touch = |world: &mut World, client, io: &Io| {
        world.space.touch(world.now, HolderId(client), io, prolong)
    };
    assert_eq!(touch(&mut world, 0, &io), Touched::CalledBack);
    assert_eq!(expires(&world, held), Some(secs(1150)));
    world.now = secs(990);
    touch(&mut world, 0, &io);
    assert_eq!(expires(&world, held), Some(secs(1150)), "it only grows");
    world.now = secs(1000);
    let elsewhere = Io { start: 4096, end: 5000, ..io };
    assert_eq!(touch(&mut world, 0, &elsewhere), Touched::NoLock);
    assert_eq!(touch(&mut world, 1, &io), Touched::NoLock, "it waits");
    let reader = world.hold(2, &fixed(LockMode::PR, 8192, 9000));
    let there = Io { start: 8192, end: 8193, ..io };
    assert_eq!(touch(&mut world, 2, &there), Touched::NoLock, "a write under a lock for reading");
    assert_eq!(touch(&mut world, 2, &Io { read: true, ..there }), Touched::Held);
    let named = Io { read: true, lock: Some(reader), ..there };
    assert_eq!(touch(&mut world, 2, &named), Touched::Held);
    assert_eq!(touch(&mut world, 0, &Io { lock: Some(held), ..io }), Touched::CalledBack);
}

#[test]
fn l49_io_is_under_locks_on_inode_bits_that_have_its_bit() {
    let mut world = World::new();
    let dom = 0x40;
    let io = |read, lock| Io { resource: name(1), start: dom, end: dom, read, lock };
    let held = world.hold(0, &ibits(LockMode::PR, 0x1b, 0));
    let touch = |world: &mut World, io: &Io| {
        world.space.touch(world.now, HolderId(0), io, Duration::from_secs(150))
    };
    assert_eq!(touch(&mut world, &io(true, None)), Touched::NoLock, "attributes are no data");
    assert_eq!(touch(&mut world, &io(true, Some(held))), Touched::NoLock, "though it is named");
    let reader = world.hold(0, &ibits(LockMode::PR, dom | 0x8, 0));
    for lock in [None, Some(reader), Some(held)] {
        assert_eq!(touch(&mut world, &io(true, lock)), Touched::Held);
        assert_eq!(touch(&mut world, &io(false, lock)), Touched::NoLock, "one for reading");
    }
    world.wait(1, &ibits(LockMode::PW, dom, 0));
    assert_eq!(touch(&mut world, &io(true, Some(reader))), Touched::CalledBack);
    // Data that move are no reason to keep a lock on attributes, nor one of another file.
    let under = |world: &World, io: Io, lock| io.is_under(&world.space.lock(lock).unwrap());
    assert!(under(&world, io(true, None), reader) && !under(&world, io(true, None), held));
    assert!(!under(&world, Io { resource: name(2), ..io(true, None) }, reader));
}

#[test]
fn pa031_io_for_three_times_the_timer_keeps_a_client() {
    let (mut world, held, waits) = called_back();
    let io = Io { resource: name(1), start: 0, end: 4095, read: false, lock: Some(held) };
    for second in (1000..1300).step_by(50) {
        assert_eq!(pass(&mut world, second, false), []);
        world.space.touch(world.now, HolderId(0), &io, Duration::from_secs(100));
    }
    world.cancel(0, held);
    assert_eq!(world.state(waits), Some(State::Granted));
}

#[test]
fn l51_a_callback_that_is_sent_again_moves_the_timer() {
    let (mut world, held, _) = called_back();
    assert_eq!(world.space.callback_resent(secs(1011), held), Some(secs(1111)));
    assert_eq!(pass(&mut world, 1110, false), []);
    world.cancel(0, held);
    assert_eq!(world.space.callback_resent(secs(1111), held), None);
}

#[test]
fn l52_at_its_end_a_timer_evicts_or_with_io_in_the_queue_gets_half_its_time() {
    let (mut world, held, waits) = called_back();
    assert_eq!(pass(&mut world, 1100, true), []);
    assert_eq!(expires(&world, held), Some(secs(1150)));
    let effects = pass(&mut world, 1150, false);
    assert_eq!(effects, [evicted(held, EvictReason::Expired)]);
    assert_eq!(world.state(waits), Some(State::Waiting), "not before the holder is gone");
    let refused = world.enqueue(0, &plain(LockMode::NL)).unwrap_err();
    assert_eq!(refused, crate::Refusal::NotConnected);
    assert_eq!(world.space.evict(world.now, HolderId(0)), 1);
    assert_eq!(world.state(waits), Some(State::Granted));
}

#[test]
fn l52_an_eviction_drops_called_back_locks_first_and_then_all_others() {
    let mut world = World::new();
    let on = |n| Ask {
        desc: LockDesc { resource: name(n), ..plain(LockMode::EX).desc },
        ..plain(LockMode::EX)
    };
    (1..6).for_each(|n| {
        world.hold(0, &on(n));
    });
    let waits = world.wait(1, &on(3));
    let queued = world.wait(2, &on(3));
    world.wait(0, &on(3));
    world.effects();
    assert_eq!(world.space.evict(world.now, HolderId(0)), 6);
    let effects = world.effects();
    assert!(matches!(effects[..], [Effect::Complete(callback)] if callback.lock == waits));
    assert_eq!(world.state(queued), Some(State::Waiting));
    assert_eq!(world.space.view().resources, 1);
    assert_eq!(world.space.locks_of(HolderId(0)), []);
}

#[test]
fn l53_locks_of_groups_and_of_servers_have_no_timer() {
    let mut world = World::new();
    world.hold(0, &group(1));
    world.wait(1, &extent(LockMode::PR, 0, 9));
    world.space.connect(HolderId(50), HolderKind::Server, Duration::ZERO);
    let mut other = plain(LockMode::EX);
    other.desc.resource = name(2);
    world.hold(50, &other);
    world.wait(1, &other);
    assert_eq!(world.effects().len(), 2, "both are called back");
    assert_eq!(world.space.poll_timeout(), None);
}

#[test]
fn l55_the_end_of_a_callback_decides_about_its_lock() {
    let (mut world, held, waits) = called_back();
    for end in [CallbackEnd::Taken, CallbackEnd::Stopping] {
        world.space.callback_ended(world.now, held, end);
        assert_eq!((world.state(held), world.effects()), (Some(State::Granted), vec![]));
    }
    world.space.callback_ended(world.now, held, CallbackEnd::Failed);
    world.space.callback_ended(world.now, held, CallbackEnd::Failed);
    let failed = evicted(held, EvictReason::CallbackFailed);
    assert_eq!(world.effects(), [failed], "once for each holder");
    let (mut world, held, _) = called_back();
    world.space.callback_ended(world.now, held, CallbackEnd::NotHeld);
    assert_eq!((world.state(held), world.state(waits)), (None, Some(State::Granted)));
    // The cancel overtook the callback's end.
    world.space.callback_ended(world.now, held, CallbackEnd::Failed);
    let effects = world.effects();
    assert!(matches!(effects[..], [Effect::Complete(_)]), "{effects:?}");
}

#[test]
fn l56_a_cancel_after_the_eviction_finds_nothing() {
    let (mut world, held, waits) = called_back();
    world.space.evict(world.now, HolderId(0));
    world.space.connect(HolderId(0), HolderKind::Client, Duration::ZERO);
    world.hold(0, &fixed(LockMode::PW, 8192, 9000));
    assert_eq!(world.cancel(0, held).found, 0);
    assert_eq!(world.state(waits), Some(State::Granted));
}
