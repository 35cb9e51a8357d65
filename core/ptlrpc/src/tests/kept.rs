//! Calls whose effect lives with the server's process: they are repeated after each crash, until the
//! program forgets them or their end is committed.

use core::time::Duration;

use super::bench::{APPEND, Bench};
use crate::{Call, CallError, CallId, Event, Reply};
use lustre_wire::Buffers;

fn kept(bench: &mut Bench, text: &str) -> CallId {
    let call = bench.call(Call { keep: true, ..Bench::say(APPEND, text) });
    assert!(bench.end_of(call).unwrap().is_ok());
    call
}

fn commit(bench: &mut Bench) {
    bench.store(|store, rpc| store.commit(rpc, usize::MAX));
    // A reply says so.
    bench.secs(30);
}

fn retained(bench: &mut Bench) -> usize {
    let import = bench.import;
    bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import)).unwrap().retained
}

/// The answers to replays that the client's program has seen.
fn replayed(bench: &mut Bench) -> Vec<(CallId, Reply)> {
    bench.party_of(bench.client, |party, _| {
        let seen = party.events.iter().filter_map(|event| match event {
            Event::Replayed { call, result: Ok(reply), .. } => Some((*call, reply.clone())),
            _ => None,
        });
        seen.collect()
    })
}

#[test]
fn p75_a_kept_call_is_repeated_after_each_crash_although_it_is_committed() {
    let mut bench = Bench::stored();
    let open = kept(&mut bench, "open=1");
    let transno = bench.end_of(open).unwrap().unwrap().transno;
    commit(&mut bench);
    assert_eq!(retained(&mut bench), 1);
    for crash in 1..=2 {
        bench.crash_server();
        bench.secs(60);
        let seen = replayed(&mut bench);
        assert_eq!(seen.len(), crash, "crash {crash}");
        assert!(seen.iter().all(|(call, reply)| (*call, reply.transno) == (open, transno)));
    }
    assert_eq!(bench.store(|store, _| store.now().log.len()), 1, "its change was not made again");
}

#[test]
fn p41_replay_whose_answer_has_no_room_is_repeated_with_room_for_it() {
    let mut bench = Bench::stored();
    let open = kept(&mut bench, "open=1");
    commit(&mut bench);
    bench.store(|store, _| store.again = vec![7; 20_000]);
    for crash in 1..=2 {
        bench.crash_server();
        bench.secs(60);
        let seen = replayed(&mut bench);
        assert_eq!(seen.len(), crash);
        let (call, reply) = seen.last().unwrap();
        assert_eq!(*call, open);
        assert_eq!(reply.msg().unwrap().buffer(1).unwrap(), vec![7; 20_000]);
        // The second time there is room at once.
        let import = bench.import;
        let view = bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import)).unwrap();
        assert_eq!(view.truncated, 1);
    }
}

#[test]
fn a_forgotten_call_is_not_repeated() {
    let mut bench = Bench::stored();
    let open = kept(&mut bench, "open=1");
    commit(&mut bench);
    let import = bench.import;
    assert!(bench.rpc(bench.client, |rpc| rpc.forget(import, open)));
    assert!(!bench.rpc(bench.client, |rpc| rpc.forget(import, open)));
    bench.crash_server();
    bench.secs(60);
    assert_eq!(replayed(&mut bench), []);
    assert_eq!(retained(&mut bench), 0);
}

#[test]
fn a_kept_call_is_repeated_until_the_call_that_ends_it_is_committed() {
    let mut bench = Bench::stored();
    let open = kept(&mut bench, "open=1");
    commit(&mut bench);
    let close = bench.call(Call { ends: Some(open), ..Bench::say(APPEND, "open=0") });
    assert!(bench.end_of(close).unwrap().is_ok());
    assert_eq!(retained(&mut bench), 2);
    bench.crash_server();
    bench.secs(60);
    assert_eq!(replayed(&mut bench).len(), 1);
    let value = bench.store(|store, _| store.now().map["open"].0.clone());
    assert_eq!(value, "0", "the end was lost, and is made again");
    commit(&mut bench);
    assert_eq!(retained(&mut bench), 0);
}

#[test]
fn an_end_that_is_refused_lets_the_kept_call_go() {
    let mut bench = Bench::stored();
    let open = kept(&mut bench, "open=1");
    commit(&mut bench);
    let unknown = lustre_wire::Opcode(20_002);
    let close = bench.call(Call { ends: Some(open), ..Bench::say(unknown, "open=0") });
    assert!(bench.end_of(close).unwrap().is_err());
    assert_eq!(retained(&mut bench), 0);
}

#[test]
fn c258_end_that_fails_without_an_answer_lets_the_kept_call_go() {
    for cancelled in [false, true] {
        let mut bench = Bench::stored();
        let open = kept(&mut bench, "open=1");
        commit(&mut bench);
        bench.lose(|_, _| true);
        let limit = Some(Duration::from_secs(5));
        let call = Call { ends: Some(open), limit, ..Bench::say(APPEND, "open=0") };
        let close = bench.call(call);
        if cancelled {
            bench.rpc(bench.client, |rpc| rpc.cancel(close));
        }
        bench.secs(6);
        let end = if cancelled { CallError::Cancelled } else { CallError::LimitPassed };
        assert_eq!(bench.end_of(close), Some(Err(end)));
        assert_eq!(retained(&mut bench), 0, "{end:?}");
        bench.lose(|_, _| false);
        bench.crash_server();
        bench.secs(100);
        assert_eq!(replayed(&mut bench), []);
    }
}

#[test]
fn p70_what_the_program_amends_after_a_replay_counts_for_the_next_replay() {
    let mut bench = Bench::stored();
    let open = kept(&mut bench, "open=1");
    let close = bench.call(Call { ends: Some(open), ..Bench::say(APPEND, "close=old") });
    assert!(bench.end_of(close).unwrap().is_ok());
    let import = bench.import;
    let client = bench.client;
    bench.program(
        client,
        Box::new(move |rpc, event, _| {
            if let Event::Replayed { call, .. } = event {
                assert_eq!(call, open);
                assert!(rpc.amend(import, close, Buffers::new().bytes(b"close=new")));
            }
        }),
    );
    bench.crash_server();
    bench.secs(60);
    let value = bench.store(|store, _| store.now().map["close"].0.clone());
    assert_eq!(value, "new");
}

#[test]
fn p70_a_call_that_waits_for_the_connection_goes_with_amended_buffers() {
    let mut bench = Bench::stored();
    let open = kept(&mut bench, "open=1");
    let import = bench.import;
    bench.store(|store, _| store.slow = true);
    let close = bench.call(Bench::say(APPEND, "close=old"));
    assert_eq!(bench.end_of(close), None);
    assert!(bench.rpc(bench.client, |rpc| rpc.amend(
        import,
        close,
        Buffers::new().bytes(b"close=new")
    )));
    bench.crash_server();
    bench.secs(120);
    assert!(bench.end_of(close).unwrap().is_ok());
    assert_eq!(bench.store(|store, _| store.now().map["close"].0.clone()), "new");
    let gone = CallId::from(99 << 32);
    assert!(!bench.rpc(bench.client, |rpc| rpc.amend(import, gone, Buffers::new())));
    assert_eq!(replayed(&mut bench).first().map(|(call, _)| *call), Some(open));
}

#[test]
fn p71_a_replay_with_another_status_is_logged() {
    let mut bench = Bench::stored();
    kept(&mut bench, "a=1");
    commit(&mut bench);
    // What it did is gone, and another change has been made since.
    bench.store(|store, _| store.wipe_log());
    bench.crash_server();
    bench.secs(60);
    let lines = bench.party_of(bench.client, |party, _| {
        let line = |event: &Event| match event {
            Event::Log { line, .. } => Some(line.to_string()),
            _ => None,
        };
        party.events.iter().filter_map(line).collect::<Vec<_>>()
    });
    let differs = lines.iter().any(|line| line.contains("replay of transno"));
    assert!(differs, "{lines:?}");
}
