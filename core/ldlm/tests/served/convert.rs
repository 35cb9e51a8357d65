//! Inode bits that another client wants are given back, the others stay.

use ldlm::Mode;
use ldlm::client::{Ask, HoldId, LockEvent, LockId};
use lnet_types::Errno;
use lustre_wire::ldlm::{InodeBits, LockDesc, LockFlags, LockKind, LockReply, Policy};
use lustre_wire::{Buffers, Opcode};
use ptlrpc::{CallError, ImportId};

use super::{Bench, OBJECT, request};

const NO_LOCK_DATA: i32 = 303;

fn part(bits: u64) -> Policy {
    let (bits, try_bits) = (InodeBits::from_bits_retain(bits), InodeBits::empty());
    Policy::Ibits { bits, try_bits, gid: 0, initiator: 0 }
}

fn bits(mode: Mode, bits: u64) -> Ask {
    Ask::new(OBJECT, mode, part(bits))
}

/// Locks that were called back, with the bits that are wanted.
fn called_back(bench: &mut Bench) -> Vec<(ImportId, LockId, u64)> {
    let called = |(import, event)| match event {
        LockEvent::CalledBack { lock, wanted, .. } => match wanted.policy() {
            Some(Policy::Ibits { try_bits, .. }) => Some((import, lock, try_bits.bits())),
            other => panic!("{other:?}"),
        },
        _ => None,
    };
    bench.seen().into_iter().filter_map(called).collect()
}

fn convert(bench: &mut Bench, import: ImportId, lock: LockId, keep: u64) {
    let keep = InodeBits::from_bits_retain(keep);
    bench.clients(|clients, below| {
        clients.locks.convert(import, lock, keep, &mut clients.ptlrpc.rpc(below)).unwrap();
    });
}

/// Whether a hold is granted, and what is left of a converted lock.
fn fate(bench: &mut Bench, hold: HoldId) -> (bool, Option<Policy>) {
    let (mut granted, mut left) = (false, None);
    for (_, event) in bench.seen() {
        match event {
            LockEvent::Granted { hold: of, .. } => granted |= of == hold,
            LockEvent::Converted { result, .. } => left = Some(result.unwrap()),
            _ => {}
        }
    }
    (granted, left)
}

#[test]
fn l45_bits_that_are_given_back_go_to_the_client_that_waits_and_the_lock_has_no_timer() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    let (_, lock) = bench.granted(a, &bits(Mode::Pr, 7));
    let waits = bench.ask(b, &bits(Mode::Ex, 2));
    assert_eq!(called_back(&mut bench), [(a, lock, 2)]);
    convert(&mut bench, a, lock, 5);
    assert_eq!(fate(&mut bench, waits), (true, Some(part(5))));
    bench.secs(1000);
    assert!(bench.server(|server, _| server.evicted.is_empty()));
    assert_eq!(bench.server(|server, _| server.locks.stats().converts), 1);
    // What is left is called back again.
    let waits = bench.ask(b, &bits(Mode::Ex, 4));
    assert_eq!(called_back(&mut bench), [(a, lock, 4)]);
    convert(&mut bench, a, lock, 1);
    assert_eq!(fate(&mut bench, waits), (true, Some(part(1))));
}

#[test]
fn l45_a_lock_that_still_blocks_after_its_conversion_is_called_back_again() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    let (_, lock) = bench.granted(a, &bits(Mode::Pr, 7));
    let waits = bench.ask(b, &bits(Mode::Ex, 3));
    assert_eq!(called_back(&mut bench), [(a, lock, 3)]);
    convert(&mut bench, a, lock, 6);
    assert_eq!(fate(&mut bench, waits), (false, Some(part(6))));
    // With a timer of its own, at whose end its holder is evicted.
    bench.secs(200);
    assert_eq!(bench.server(|server, _| server.evicted.len()), 1);
    assert!(fate(&mut bench, waits).0);
}

#[test]
fn l45_a_client_that_gives_back_what_one_waits_for_hears_of_the_next_that_waits() {
    let mut bench = Bench::new();
    let (a, b, c) = (bench.client("a"), bench.client("b"), bench.client("c"));
    let (_, lock) = bench.granted(a, &bits(Mode::Pr, 7));
    let first = bench.ask(b, &bits(Mode::Ex, 1));
    let second = bench.ask(c, &bits(Mode::Ex, 2));
    // One callback, however many wait.
    assert_eq!(called_back(&mut bench), [(a, lock, 1)]);
    convert(&mut bench, a, lock, 6);
    let seen = bench.seen();
    let granted =
        |event: &LockEvent| matches!(event, LockEvent::Granted { hold, .. } if *hold == first);
    assert!(seen.iter().any(|(_, event)| granted(event)), "{seen:?}");
    let wanted = seen.iter().find_map(|(_, event)| match event {
        LockEvent::CalledBack { wanted, .. } => wanted.policy(),
        _ => None,
    });
    assert!(matches!(wanted, Some(Policy::Ibits { try_bits, .. }) if try_bits.bits() == 2));
    convert(&mut bench, a, lock, 4);
    assert_eq!(fate(&mut bench, second), (true, Some(part(4))));
    bench.secs(1000);
    assert!(bench.server(|server, _| server.evicted.is_empty()));
}

#[test]
fn l45_a_conversion_upwards_of_another_mode_or_of_a_lock_that_is_gone_is_refused() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let (hold, lock) = bench.granted(a, &bits(Mode::Pr, 6));
    let cookie = bench.cookie(a, lock);
    let convert = |bench: &mut Bench, mode: Mode, keep: u64, handle: u64| {
        let desc = LockDesc {
            kind: LockKind::IBITS,
            resource: OBJECT,
            requested: mode.word(),
            granted: mode.word(),
            policy: part(keep).words(),
        };
        let lock = request(LockFlags::empty(), handle, desc);
        let call = bench.call(a, Opcode::LDLM_CONVERT, Buffers::from([lock]));
        bench.ended(call).unwrap()
    };
    let refused = |errno| Err(CallError::Refused(errno));
    assert_eq!(convert(&mut bench, Mode::Pr, 7, cookie), refused(Errno::EINVAL));
    assert_eq!(convert(&mut bench, Mode::Ex, 4, cookie), refused(Errno::EPROTO));
    let gone = convert(&mut bench, Mode::Pr, 4, cookie + 1).unwrap();
    assert_eq!(gone.status, NO_LOCK_DATA);
    // Nothing of it has changed the lock.
    let reply = convert(&mut bench, Mode::Pr, 6, cookie).unwrap();
    let said: LockReply = reply.msg().unwrap().get(1).unwrap();
    assert_eq!((reply.status, said.desc.policy()), (0, Some(part(6))));
    bench.clients(|clients, below| {
        clients.locks.release(a, hold, false, &mut clients.ptlrpc.rpc(below));
    });
    let gone = convert(&mut bench, Mode::Pr, 4, cookie).unwrap();
    assert_eq!(gone.status, NO_LOCK_DATA);
}
