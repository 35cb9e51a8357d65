//! Replay of locks: a stage of recovery that the program fills (P-57, P-69).

use lustre_wire::{BodyFlags, Opcode};

use super::bench::{APPEND, Bench, ECHO, append_log};
use crate::{Call, CallError, CallId, Event, ImportState};

fn lock(name: &str) -> Call {
    Bench::say(Opcode::LDLM_ENQUEUE, name)
}

/// A client with a change that a crash takes away, and locks.
fn with_locks() -> Bench {
    let mut bench = Bench::stored();
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.replays_locks(import, true));
    let call = bench.call(Bench::say(APPEND, "a=1"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench
}

fn asked(bench: &mut Bench) -> usize {
    bench.party_of(bench.client, |party, _| {
        party.events.iter().filter(|e| matches!(e, Event::ReplayLocks { .. })).count()
    })
}

fn state(bench: &mut Bench) -> ImportState {
    let import = bench.import;
    bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import)).unwrap().state
}

fn replay(bench: &mut Bench, name: &str) -> Result<CallId, CallError> {
    let import = bench.import;
    let call = bench.rpc(bench.client, |rpc| rpc.replay_lock(import, lock(name)));
    bench.settle();
    call
}

fn over(bench: &mut Bench) {
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.locks_replayed(import));
    bench.settle();
}

#[test]
fn recovery_waits_until_the_program_has_replayed_its_locks() {
    let mut bench = with_locks();
    bench.crash_server();
    bench.secs(30);
    assert_eq!((asked(&mut bench), state(&mut bench)), (1, ImportState::ReplayLocks));
    let locks = [replay(&mut bench, "one").unwrap(), replay(&mut bench, "two").unwrap()];
    assert_eq!(state(&mut bench), ImportState::ReplayLocks);
    over(&mut bench);
    bench.secs(1);
    for lock in locks {
        assert!(bench.end_of(lock).unwrap().is_ok());
    }
    assert_eq!((asked(&mut bench), state(&mut bench)), (1, ImportState::Full));
    let flags = bench.store(|store, _| store.locks.clone());
    assert_eq!(flags, [BodyFlags::REQ_REPLAY_DONE; 2]);
    assert_eq!(replay(&mut bench, "late"), Err(CallError::NotConnected));
}

#[test]
fn a_program_without_locks_is_not_asked() {
    let mut bench = with_locks();
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.replays_locks(import, false));
    bench.crash_server();
    bench.secs(30);
    assert_eq!((asked(&mut bench), state(&mut bench)), (0, ImportState::Full));
}

#[test]
fn p57_the_program_is_asked_for_all_locks_again_after_a_replay_that_failed() {
    let mut bench = with_locks();
    bench.crash_server();
    bench.secs(30);
    // Its answer gets lost: the request is not sent again, the import connects anew.
    bench.lose(|portal, _| portal == lustre_wire::ImportKind::Osc.portals().1.0);
    let lost = replay(&mut bench, "one").unwrap();
    let other = replay(&mut bench, "two").unwrap();
    bench.secs(20);
    bench.loses = None;
    assert!(bench.end_of(lost).unwrap().is_err());
    assert!(bench.end_of(other).unwrap().is_err());
    bench.secs(30);
    assert_eq!((asked(&mut bench), state(&mut bench)), (2, ImportState::ReplayLocks));
    let again = replay(&mut bench, "one").unwrap();
    over(&mut bench);
    bench.secs(30);
    assert!(bench.end_of(again).unwrap().is_ok());
    assert_eq!(state(&mut bench), ImportState::Full);
}

#[test]
fn the_end_of_an_import_does_not_wait_for_locks() {
    let mut bench = with_locks();
    bench.crash_server();
    bench.secs(30);
    assert_eq!(state(&mut bench), ImportState::ReplayLocks);
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.disconnect(import));
    bench.secs(5);
    assert_eq!(bench.states().last(), Some(&ImportState::Closed));
}

#[test]
fn l37_an_import_that_its_program_fails_connects_again() {
    use ImportState as S;
    let mut bench = Bench::new(append_log());
    bench.call(Bench::say(ECHO, "one"));
    assert_eq!(state(&mut bench), S::Full);
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.fail(import));
    bench.secs(1);
    let states = [S::Connecting, S::Full, S::Disconnected, S::Connecting, S::Recover, S::Full];
    assert_eq!(bench.states(), states);
}
