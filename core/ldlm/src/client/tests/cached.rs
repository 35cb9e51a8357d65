//! Unused locks, and the requests by which locks go (L-43, L-58).

use lnet_types::Errno;
use lustre_wire::Opcode;
use lustre_wire::ldlm::ResourceName;
use ptlrpc::CallError;

use super::{Ask, Desk, Grant, ask};
use crate::Mode;
use crate::client::wire::CANCELS_MAX;
use crate::client::{CacheLimits, GoneReason, LockEvent};

fn numbered(n: u64) -> Ask {
    Ask { resource: ResourceName { words: [n, 0, 0, 0] }, ..ask(Mode::Pr) }
}

#[test]
fn l43_a_cancel_takes_those_that_were_called_back_first_and_as_many_as_fit() {
    let mut desk = Desk::with(CacheLimits { lru_size: usize::MAX, ..CacheLimits::default() });
    let mut holds: Vec<_> = (0..1000).map(|n| desk.held(&numbered(n))).collect();
    let (hold, wanted) = holds.pop().unwrap();
    desk.block(wanted);
    // All in one turn, the one that is wanted last.
    for (hold, _) in holds {
        desk.space.release(desk.now, hold, false);
    }
    desk.space.release(desk.now, hold, false);
    desk.settle();
    let sizes: Vec<usize> = desk.out.iter().map(|o| o.request.counted().len()).collect();
    assert_eq!(sizes, [CANCELS_MAX, CANCELS_MAX, 1000 - 2 * CANCELS_MAX]);
    assert_eq!(desk.out[0].request.handles[0], 0x5e00 + 1000);
    let mut all: Vec<u64> = desk.out.iter().flat_map(|o| o.request.handles.clone()).collect();
    all.sort_unstable();
    assert_eq!(all, (1..=1000).map(|n| 0x5e00 + n).collect::<Vec<_>>());
}

#[test]
fn l43_however_a_cancel_ends_its_locks_are_gone() {
    for result in [Ok(0), Ok(116), Err(CallError::Evicted), Err(CallError::Refused(Errno::EINVAL))]
    {
        let mut desk = Desk::new();
        let (hold, lock) = desk.held(&ask(Mode::Ex));
        desk.release(hold, false);
        match result {
            Ok(status) => desk.status(Opcode::LDLM_CANCEL, status),
            Err(e) => {
                let ticket = desk.only(Opcode::LDLM_CANCEL).ticket;
                desk.end(ticket, Err(e));
            }
        }
        assert_eq!(desk.gone(lock), Some(GoneReason::Released), "{result:?}");
        assert_eq!(desk.orders, ["hold true", "hold false"]);
    }
}

#[test]
fn l58_too_many_unused_locks_go_by_the_next_round_with_a_cancel_or_with_an_enqueue() {
    let limits = CacheLimits { lru_size: 20, ..CacheLimits::default() };
    let mut desk = Desk::with(limits);
    let (hold, _) = desk.held(&numbered(99));
    for n in 0..21 {
        desk.cached(&numbered(n));
    }
    // By time.
    let early = desk.out.len();
    desk.secs(10);
    assert_eq!((early, desk.only(Opcode::LDLM_CANCEL).request.counted().len()), (0, 16));
    desk.out.clear();
    // With another cancel.
    for n in 100..116 {
        desk.cached(&numbered(n));
    }
    desk.release(hold, false);
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted().len(), 17);
    desk.out.clear();
    // With an enqueue, which needs no other request.
    for n in 200..216 {
        desk.cached(&numbered(n));
    }
    desk.ask(&numbered(300));
    assert_eq!(desk.only(Opcode::LDLM_ENQUEUE).request.count, 17);
    assert_eq!(desk.out.len(), 1);
}

#[test]
fn l58_locks_that_are_wanted_or_of_a_group_are_not_kept() {
    let mut desk = Desk::new();
    let (hold, lock) = desk.held(&ask(Mode::Pr));
    desk.block(lock);
    desk.release(hold, true);
    assert_eq!(desk.out.len(), 1);
    desk.out.clear();
    let policy = lustre_wire::ldlm::Policy::Extent { start: 0, end: 9, gid: 3 };
    let (hold, _) = desk.held(&Ask { policy, ..ask(Mode::Group) });
    desk.release(hold, true);
    assert_eq!(desk.out.len(), 1);
}

#[test]
fn l58_a_volume_that_falls_by_a_tenth_makes_the_cache_shrink_at_once() {
    let mut desk = Desk::new();
    for n in 0..40 {
        desk.cached(&numbered(n));
    }
    desk.secs(30);
    let grant = |slv| Grant { slv, ..Grant::default() };
    desk.ask(&numbered(100));
    desk.grant(&grant(1_000_000));
    let due = desk.space.due();
    assert!(desk.out.is_empty() && due > Some(desk.now));
    desk.ask(&numbered(101));
    desk.grant(&grant(900));
    desk.secs(0);
    // 30 s x 40 and less, until the product is below 900.
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted().len(), 16);
}

#[test]
fn unused_locks_that_are_too_old_are_written_back_before_they_go() {
    let mut desk = Desk::new();
    let lock = desk.cached(&Ask { writes_back: true, ..ask(Mode::Pw) });
    desk.secs(620);
    assert_eq!(desk.events.last(), Some(&LockEvent::Flush { lock, discard: false }));
    assert!(desk.out.is_empty());
}

#[test]
fn l58_lock_that_was_taken_out_of_the_cache_stays_where_younger_ones_go() {
    let mut desk = Desk::with(CacheLimits { lru_size: 20, ..CacheLimits::default() });
    desk.cached(&numbered(0));
    let hold = desk.ask(&numbered(0));
    desk.release(hold, true);
    for n in 1..=20 {
        desk.secs(0);
        desk.cached(&numbered(n));
    }
    desk.secs(10);
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted().len(), 16);
    desk.out.clear();
    // It is had without a request, and the next one in age is not.
    desk.ask(&numbered(0));
    assert!(desk.out.is_empty());
    desk.ask(&numbered(1));
    assert_eq!(desk.only(Opcode::LDLM_ENQUEUE).request.desc.resource, numbered(1).resource);
}

#[test]
fn l44_lock_that_is_in_the_way_and_too_many_as_well_is_written_back_before_its_cancel() {
    let mut desk = Desk::with(CacheLimits { lru_size: 0, ..CacheLimits::default() });
    let lock = desk.cached(&Ask { writes_back: true, ..ask(Mode::Pw) });
    desk.ask(&ask(Mode::Ex));
    assert_eq!(desk.events.last(), Some(&LockEvent::Flush { lock, discard: false }));
    assert_eq!((desk.only(Opcode::LDLM_ENQUEUE).request.count, desk.out.len()), (1, 1));
    desk.space.flushed(lock);
    desk.settle();
    assert_eq!(desk.only(Opcode::LDLM_CANCEL).request.counted().len(), 1);
}
