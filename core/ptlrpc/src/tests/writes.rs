//! Writes whose data stay for a replay, until they are committed (P-74).

use core::time::Duration;

use lnet_types::{IoVec, Memory};
use lustre_wire::{OpFlags, Portal};

use super::bench::{APPEND, Bench, data};
use super::script::{Said, config, scripted};
use crate::{Bulk, Call, CallError, CallId, Direction, Event, Tunables};

/// A write whose data stay.
fn write(bench: &mut Bench, key: &str, data: &str) -> (CallId, IoVec) {
    let memory = bench.memory(data.len(), |i| data.as_bytes()[i]);
    let bulk = Some(Bulk { direction: Direction::Write, memory: memory.clone() });
    let call = bench.call(Call { bulk, retains_bulk: true, ..Bench::say(APPEND, key) });
    assert!(bench.end_of(call).unwrap().is_ok());
    (call, memory)
}

/// The server's store takes bulk data from now on.
fn takes_bulk(bench: &mut Bench) {
    let into = bench.zeroed(3);
    bench.store(|store, _| store.into = into);
}

fn stored() -> Bench {
    let mut bench = Bench::stored();
    takes_bulk(&mut bench);
    bench
}

/// The writes whose memory was given back, and whether they are committed.
fn unretained(bench: &mut Bench) -> Vec<(CallId, bool)> {
    let events = bench.party_of(bench.client, |party, _| core::mem::take(&mut party.events));
    let freed = |event| match event {
        Event::Unretained { call, committed, .. } => Some((call, committed)),
        _ => None,
    };
    events.into_iter().filter_map(freed).collect()
}

fn retains(bench: &mut Bench, call: CallId) -> bool {
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.retains(import, call))
}

fn log(bench: &mut Bench) -> Vec<String> {
    bench.store(|store, _| {
        store.now().log.values().map(|c| format!("{}={}", c.key, c.value)).collect()
    })
}

#[test]
fn p74_answered_write_is_repeated_with_its_data_until_it_is_committed() {
    let mut bench = stored();
    let (first, _) = write(&mut bench, "a=", "one");
    let (second, memory) = write(&mut bench, "b=", "two");
    let (third, _) = write(&mut bench, "a=", "six");
    assert!([first, second, third].into_iter().all(|call| retains(&mut bench, call)));
    assert_eq!(unretained(&mut bench), []);
    let before = bench.store(|store, rpc| {
        store.commit(rpc, 1);
        store.now().log.clone()
    });
    bench.crash_server();
    takes_bulk(&mut bench);
    bench.secs(60);
    assert_eq!(bench.store(|store, _| store.now().log.clone()), before, "each with its number");
    assert_eq!(log(&mut bench), ["a=one", "b=two", "a=six"]);
    assert_eq!(bench.heap.bytes(memory[0]), b"two", "the memory is as it was");
    assert_eq!(unretained(&mut bench), [(first, true)]);
    bench.store(|store, rpc| store.commit(rpc, usize::MAX));
    bench.secs(30);
    assert_eq!(unretained(&mut bench), [(second, true), (third, true)]);
    assert!(!retains(&mut bench, second));
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn p74_write_that_is_forgotten_is_not_repeated() {
    let mut bench = stored();
    let (call, _) = write(&mut bench, "a=", "one");
    let import = bench.import;
    assert!(bench.rpc(bench.client, |rpc| rpc.forget(import, call)));
    bench.crash_server();
    takes_bulk(&mut bench);
    bench.secs(60);
    assert_eq!((log(&mut bench), unretained(&mut bench)), (vec![], vec![]), "it was forgotten");
}

#[test]
fn p71_lost_bulk_data_of_a_replay_bring_the_replay_again() {
    let mut bench = stored();
    let (call, _) = write(&mut bench, "a=", "one");
    bench.crash_server();
    takes_bulk(&mut bench);
    let mut left = 1;
    bench.lose(move |portal, _| {
        let lost = portal == Portal::OST_BULK.0 && left > 0;
        left -= u32::from(lost);
        lost
    });
    bench.secs(400);
    assert_eq!(log(&mut bench), ["a=one"]);
    bench.store(|store, rpc| store.commit(rpc, usize::MAX));
    bench.secs(30);
    assert_eq!(unretained(&mut bench), [(call, true)]);
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn p76_eviction_gives_the_memory_of_answered_writes_back() {
    let mut bench = stored();
    let (call, _) = write(&mut bench, "a=", "one");
    let exports = bench.party_of(bench.server, |party, _| party.ptlrpc.export_views());
    bench.rpc(bench.server, |rpc| rpc.evict(exports[0].id));
    bench.secs(60);
    assert_eq!(unretained(&mut bench), [(call, false)]);
    write(&mut bench, "b=", "two");
}

/// A server that answers a write, and does not fetch its data; the write.
fn write_without_fetch(limit: Option<Duration>) -> (Bench, CallId) {
    let kind = lustre_wire::ImportKind::Osc;
    let mut bench = scripted(Tunables::default(), config(kind, data()), |asked| {
        let known = if asked.body.handle == 0 { OpFlags::empty() } else { OpFlags::RECONNECT };
        if asked.connects() {
            return vec![Said::connected(7, known | OpFlags::REPLAYABLE, data())];
        }
        let mut said = Said::status(0);
        said.body.transno = if asked.body.opcode == APPEND { 5 } else { 0 };
        vec![said]
    });
    let memory = bench.memory(3, |_| b'x');
    let bulk = Some(Bulk { direction: Direction::Write, memory });
    let call = Call { bulk, retains_bulk: true, limit, ..Bench::say(APPEND, "a=") };
    let call = bench.call(call);
    assert_eq!(bench.end_of(call), None, "answered, with data to move");
    assert!(!retains(&mut bench, call), "it may go again");
    (bench, call)
}

#[test]
fn p54_write_that_goes_again_after_its_answer_is_whole() {
    let (mut bench, call) = write_without_fetch(None);
    let (client, import) = (bench.client, bench.import);
    bench.rpc(client, |rpc| rpc.fail(import));
    bench.secs(5);
    let texts: Vec<_> = bench.asked_for(APPEND).into_iter().map(|asked| asked.text).collect();
    assert_eq!(texts, [b"a=", b"a="]);
    assert!(bench.end_of(call).unwrap().is_ok());
    assert!(retains(&mut bench, call));
}

#[test]
fn p54_write_that_fails_after_its_answer_is_not_retained() {
    let (mut bench, call) = write_without_fetch(Some(Duration::from_secs(2)));
    bench.secs(3);
    assert_eq!(bench.end_of(call), Some(Err(CallError::LimitPassed)));
    assert!(!retains(&mut bench, call));
    assert_eq!(bench.client_descriptors(), 0);
}
