//! A server has lost the locks, or the client (L-61, L-62, L-63).

use lnet_types::Errno;
use lustre_wire::Opcode;
use lustre_wire::ldlm::{InodeBits, LockFlags, LockMode, Policy, ResourceName};
use ptlrpc::CallError;

use super::{
    Ask, Desk, Grant, LockError, LockEvent, NAME, Out, ask, blocked, extent, range, reply,
};
use crate::Mode;
use crate::client::GoneReason;
use crate::client::namespace::Ticket;

fn numbered(n: u64) -> Ask {
    Ask { resource: ResourceName { words: [n, 0, 0, 0] }, ..ask(Mode::Ex) }
}

fn replay(desk: &mut Desk) -> Vec<Out> {
    desk.space.replay();
    desk.settle();
    replays(desk)
}

fn replays(desk: &Desk) -> Vec<Out> {
    let replay = |o: &&Out| matches!(o.ticket, Ticket::Replay(..));
    desk.out.iter().filter(replay).cloned().collect()
}

#[test]
fn l61_locks_in_use_are_repeated_as_they_are_and_unused_ones_dropped() {
    let mut desk = Desk::new();
    let unused = desk.cached(&numbered(1));
    let dirty = desk.cached(&Ask { writes_back: true, ..numbered(2) });
    let by_itself = desk.held(&Ask { flags: LockFlags::CANCEL_ON_BLOCK, ..numbered(3) }).1;
    let hold = desk.ask(&range(Mode::Pw, 10, 20));
    let flags = LockFlags::LOCK_CHANGED;
    desk.grant(&Grant { flags, policy: Some(extent(0, 99)), handle: 0x20, ..Grant::default() });
    let held = desk.lock_of(hold).unwrap();
    desk.ask(&numbered(5));
    let waiting = desk.asked();
    desk.grant(&blocked());
    desk.ask(&numbered(6));
    let (left, leaving) = desk.held_twice();
    desk.out.retain(|o| o.opcode != Opcode::LDLM_CANCEL);
    let _ = left;

    let mut out = replay(&mut desk);
    out.sort_by_key(|o| o.request.handles[0]);
    let names: Vec<u64> = out.iter().map(|o| o.request.handles[0]).collect();
    assert_eq!(names, [dirty.0, held.0, waiting.0]);
    assert!(out.iter().all(|o| o.request.count == 1));
    let granted = LockFlags::REPLAY | LockFlags::BLOCK_GRANTED;
    let flags: Vec<LockFlags> = out.iter().map(|o| o.request.flags).collect();
    assert_eq!(flags, [granted, granted, LockFlags::REPLAY | LockFlags::BLOCK_WAIT]);
    // With what it was granted.
    assert_eq!(out[1].request.desc.policy(), Some(extent(0, 99)));
    assert_eq!(out[1].request.desc.granted, LockMode::PW);
    assert_eq!(out[2].request.desc.granted, LockMode::NONE);
    assert_eq!(
        (desk.gone(unused), desk.gone(by_itself)),
        (Some(GoneReason::Dropped), Some(GoneReason::Lost))
    );
    assert_eq!(desk.gone(leaving), None);

    // L-62: another cookie, and nothing else.
    for (n, o) in out.iter().enumerate() {
        assert!(!desk.orders.contains(&"replayed".to_owned()));
        let grant =
            Grant { handle: 0x900 + n as u64, policy: Some(extent(0, 0)), ..Grant::default() };
        desk.grant_of(o, &grant);
    }
    assert_eq!(desk.orders.last().unwrap(), "replayed");
    assert_eq!(desk.space.locks.get(&held).unwrap().policy, extent(0, 99));
    desk.release(hold, false);
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted(), [0x901]);
}

impl Desk {
    /// A lock whose cancel is under way.
    fn held_twice(&mut self) -> (super::HoldId, super::LockId) {
        let asked = self.out.clone();
        self.out.clear();
        let (hold, lock) = self.held(&numbered(77));
        self.release(hold, false);
        self.out.extend(asked);
        (hold, lock)
    }
}

#[test]
fn l61_at_most_eight_replays_are_under_way() {
    let mut desk = Desk::new();
    for n in 0..20 {
        desk.held(&numbered(n));
    }
    let mut done = 0;
    let mut out = replay(&mut desk);
    while let Some(o) = out.first().cloned() {
        assert_eq!(out.len(), 8.min(20 - done));
        desk.grant_of(&o, &Grant::default());
        done += 1;
        out = replays(&desk);
    }
    assert_eq!((done, desk.orders.last().unwrap().as_str()), (20, "replayed"));
}

#[test]
fn l61_without_locks_it_is_said_at_once_that_all_are_repeated() {
    let mut desk = Desk::new();
    assert!(replay(&mut desk).is_empty());
    assert_eq!(desk.orders, ["replayed"]);
}

#[test]
fn l61_a_replay_that_fails_makes_the_connection_anew_and_the_next_round_is_whole() {
    for result in [
        Err(CallError::TimedOut(lnet_types::Nid::LOOPBACK)),
        Err(CallError::Refused(Errno::ENOTCONN)),
        Ok(Grant { status: Errno::ESTALE.negative(), ..Grant::default() }),
        Ok(Grant { handle: 0, ..Grant::default() }),
    ] {
        let mut desk = Desk::new();
        for n in 0..3 {
            desk.held(&numbered(n));
        }
        let first = replay(&mut desk);
        match &result {
            Ok(grant) => desk.grant_of(&first[0], grant),
            Err(e) => desk.end(first[0].ticket, Err(*e)),
        }
        assert_eq!(desk.orders, ["hold true", "fail"]);
        // The others of that round are taken back, and what they bring counts for nothing.
        assert!(replays(&desk).is_empty());
        desk.end(first[1].ticket, Err(CallError::Cancelled));
        assert_eq!(desk.orders, ["hold true", "fail"]);
        let second = replay(&mut desk);
        assert_eq!(second.len(), 3);
        second.iter().for_each(|o| desk.grant_of(o, &Grant::default()));
        assert_eq!(desk.orders.last().unwrap(), "replayed");
    }
}

#[test]
fn a_lock_that_is_released_while_it_is_repeated_is_cancelled_by_its_new_name() {
    let mut desk = Desk::new();
    let (hold, _) = desk.held(&ask(Mode::Ex));
    let out = replay(&mut desk);
    desk.release(hold, false);
    assert_eq!(desk.out.len(), 1);
    desk.grant_of(&out[0], &Grant { handle: 0xabc, ..Grant::default() });
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted(), [0xabc]);
}

#[test]
fn a_conversion_is_asked_for_again_by_the_new_name_of_its_lock() {
    let bits = |bits| Policy::Ibits { bits, try_bits: InodeBits::empty(), gid: 0, initiator: 0 };
    let (both, lookup) = (InodeBits::LOOKUP | InodeBits::UPDATE, InodeBits::LOOKUP);
    let mut desk = Desk::new();
    let (_, lock) = desk.held(&Ask::new(NAME, Mode::Pr, bits(both)));
    desk.space.convert(lock, lookup).unwrap();
    desk.settle();
    let first = desk.only(Opcode::LDLM_CONVERT).clone();
    let out = replay(&mut desk);
    assert_eq!(out[0].request.desc.policy(), Some(bits(both)), "what it has had to give back yet");
    desk.grant_of(&out[0], &Grant { handle: 0xabc, ..Grant::default() });
    let mut converts = desk.out.iter().filter(|o| o.opcode == Opcode::LDLM_CONVERT);
    let second = converts.next_back().unwrap().clone();
    assert_eq!(second.request.counted(), [0xabc]);
    assert_ne!(second.ticket, first.ticket);
    // The server does not know the first name any more.
    desk.end(first.ticket, Ok(reply(Opcode::LDLM_CONVERT, 303, 0, &[])));
    assert_eq!(desk.gone(lock), None);
    desk.grant_of(&second, &Grant { policy: Some(bits(lookup)), ..Grant::default() });
    let converted = LockEvent::Converted { lock, result: Ok(bits(lookup)) };
    assert_eq!(desk.events.last(), Some(&converted));
}

#[test]
fn a_completion_that_came_before_the_reply_is_repeated_as_granted() {
    let mut desk = Desk::new();
    let hold = desk.ask(&ask(Mode::Ex));
    let lock = desk.asked();
    assert_eq!(desk.complete(lock), 0);
    let out = replay(&mut desk);
    assert!(out[0].request.flags.contains(LockFlags::BLOCK_GRANTED));
    desk.grant_of(&out[0], &Grant { handle: 0x33, ..Grant::default() });
    // The copy of the request is answered with what the server has.
    desk.grant(&Grant { handle: 0x33, flags: LockFlags::LOCK_CHANGED, ..Grant::default() });
    assert_eq!(desk.lock_of(hold), Some(lock));
}

#[test]
fn l63_after_an_eviction_all_locks_are_lost_once_and_nothing_is_sent_of_them() {
    let mut desk = Desk::new();
    let unused = desk.cached(&numbered(1));
    let dirty = desk.cached(&Ask { writes_back: true, ..numbered(2) });
    let (held, lock) = desk.held(&numbered(3));
    let wait = desk.ask(&numbered(4));
    desk.grant(&blocked());
    let asked = desk.ask(&Ask { limit: Some(core::time::Duration::from_secs(9)), ..numbered(5) });
    let ticket = desk.only(Opcode::LDLM_ENQUEUE).ticket;
    desk.space.release(desk.now, held, false);
    for _ in 0..2 {
        desk.space.lost();
        desk.settle();
    }
    assert_eq!(desk.out.len(), 1, "{:?}", desk.out);
    for id in [unused, dirty, lock] {
        assert_eq!(desk.gone(id), Some(GoneReason::Lost));
    }
    assert_eq!(
        (desk.refused(wait), desk.refused(asked)),
        (Some(LockError::Evicted), Some(LockError::Evicted))
    );
    desk.end(ticket, Err(CallError::Evicted));
    assert_eq!((desk.orders.last().unwrap().as_str(), desk.space.due()), ("hold false", None));
    assert!(desk.space.holds.is_empty() && desk.space.cache.len() == 0);
    // New locks are as any.
    desk.held(&numbered(1));
    // The holds of a lock go with it.
    let mut desk = Desk::new();
    let (hold, lock) = desk.held(&numbered(3));
    desk.space.lost();
    desk.settle();
    let gone = LockEvent::Gone { lock, holds: vec![hold], reason: GoneReason::Lost };
    assert_eq!(desk.events.last(), Some(&gone));
    desk.release(hold, false);
    assert!(desk.out.is_empty());
}
