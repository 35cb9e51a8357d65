//! Servers that die and come back with what they had committed.

use lnet::upper::UpperId;
use lustre_wire::ImportKind;

use super::bench::{APPEND, Bench, ECHO};
use super::store::Change;
use crate::{
    CallError, CallId, Event, EvictReason, ImportId, ImportState, RecoveryChange, RecoveryStage,
};

fn reply_portal() -> u32 {
    ImportKind::Osc.portals().1.0
}

fn set(bench: &mut Bench, text: &str) -> CallId {
    bench.call(Bench::say(APPEND, text))
}

fn set_of(bench: &mut Bench, client: (UpperId, ImportId), text: &str) -> CallId {
    let call = bench.rpc(client.0, |rpc| rpc.call(client.1, Bench::say(APPEND, text))).unwrap();
    bench.settle();
    call
}

/// What the log holds, in the order of transactions.
fn log(bench: &mut Bench) -> Vec<String> {
    let text = |c: &Change| format!("{}={}", c.key, c.value);
    bench.store(|store, _| store.now().log.values().map(text).collect())
}

fn changes(bench: &mut Bench) -> Vec<RecoveryChange> {
    let change = |event| match event {
        Event::Recovery { change, .. } => Some(change),
        _ => None,
    };
    bench.heard().into_iter().filter_map(change).collect()
}

#[test]
fn what_was_answered_and_not_committed_is_repeated() {
    let mut bench = Bench::stored();
    for text in ["a=1", "b=2", "a=3"] {
        let call = set(&mut bench, text);
        assert!(bench.end_of(call).unwrap().is_ok());
    }
    let before = bench.store(|store, rpc| {
        store.commit(rpc, 1);
        store.now().log.clone()
    });
    bench.crash_server();
    assert_eq!(log(&mut bench), ["a=1"]);
    let call = bench.call(Bench::say(ECHO, "is it there?"));
    bench.secs(10);
    assert!(bench.end_of(call).unwrap().is_ok());
    assert_eq!(bench.store(|store, _| store.now().log.clone()), before, "each with its number");
    let recovery = [
        ImportState::Disconnected,
        ImportState::Connecting,
        ImportState::Replay,
        ImportState::ReplayLocks,
        ImportState::ReplayWait,
        ImportState::Recover,
        ImportState::Full,
    ];
    assert_eq!(bench.states()[2..], recovery);
    let lines: Vec<_> = changes(&mut bench).iter().map(ToString::to_string).collect();
    let expected = [
        "Imperative Recovery not enabled, recovery window 300-900",
        "Will be in recovery for at least 5:00, or until 1 client reconnects",
        "all clients are back or evicted, replaying requests",
        "all requests are replayed, replaying locks",
        "Recovery over after 0:00, of 1 client 1 recovered and 0 were evicted.",
    ];
    assert_eq!(lines, expected);
    // New changes have numbers above those of the life before.
    let call = set(&mut bench, "c=4");
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, (2 << 32) + 1);
}

#[test]
fn a_change_whose_answer_died_with_the_server_is_answered_from_its_record() {
    let mut bench = Bench::stored();
    let call = set(&mut bench, "a=1");
    assert!(bench.end_of(call).unwrap().is_ok());
    let reply = reply_portal();
    bench.lose(move |portal, n| portal == reply && n <= 2);
    let call = set(&mut bench, "a=2");
    assert_eq!(bench.end_of(call), None);
    bench.store(|store, rpc| store.commit(rpc, usize::MAX));
    bench.crash_server();
    bench.secs(60);
    let reply = bench.end_of(call).unwrap().unwrap();
    assert_eq!(reply.msg().unwrap().buffer(1), Some(&b"1"[..]), "the value before, as it was");
    assert_eq!(reply.transno, (1 << 32) + 2);
    assert_eq!(log(&mut bench), ["a=1", "a=2"]);
    let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
    assert_eq!((stats.served, stats.answered_again), (0, 1));
}

#[test]
fn a_change_that_died_with_the_server_before_it_was_answered_is_made_anew() {
    let mut bench = Bench::stored();
    let call = set(&mut bench, "a=1");
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.store(|store, _| store.slow = true);
    let call = set(&mut bench, "a=2");
    bench.crash_server();
    bench.secs(120);
    assert!(bench.end_of(call).unwrap().is_ok());
    assert_eq!(log(&mut bench), ["a=1", "a=2"]);
}

#[test]
fn a_client_that_does_not_come_back_is_evicted_and_new_ones_wait_until_then() {
    let mut bench = Bench::stored();
    let other = bench.new_client("client-2");
    for text in ["a=1", "a=2"] {
        let call = set(&mut bench, text);
        assert!(bench.end_of(call).unwrap().is_ok());
    }
    let call = set_of(&mut bench, other, "b=1");
    assert!(bench.end_at(other.0, call).unwrap().is_ok());
    bench.kill(other.0);
    bench.crash_server();
    let mine = set(&mut bench, "a=3");
    bench.secs(100);
    // It waits, and so does a new one.
    let new = bench.new_client("client-3");
    let news = set_of(&mut bench, new, "c=1");
    let now = bench.now;
    let target = bench.target;
    let view = |b: &mut Bench, now| {
        b.party_of(b.server, |p, _| p.ptlrpc.recovery_view(target, now)).unwrap()
    };
    let waiting = view(&mut bench, now);
    assert_eq!((waiting.stage, waiting.clients, waiting.connected), (RecoveryStage::Waiting, 2, 1));
    assert_eq!(waiting.missing, ["client-2"]);
    assert!(waiting.left.is_some_and(|left| left.as_secs() > 190), "{:?}", waiting.left);
    assert_eq!((bench.end_of(mine), bench.end_at(new.0, news)), (None, None));
    bench.secs(300);
    assert!(bench.end_of(mine).unwrap().is_ok());
    assert!(bench.end_at(new.0, news).unwrap().is_ok());
    let events = bench.heard();
    let evicted = |e: &&Event| matches!(e, Event::Evicted { client, reason: EvictReason::NotRecovered, .. } if client == "client-2");
    assert_eq!(events.iter().filter(evicted).count(), 1);
    let RecoveryStage::Done(outcome) = view(&mut bench, now).stage else { panic!("not done") };
    assert_eq!((outcome.recovered, outcome.evicted, outcome.after.as_secs()), (1, 1, 300));
    assert_eq!(log(&mut bench), ["a=1", "a=2", "a=3", "c=1"]);
}

#[test]
fn a_client_whose_change_stood_on_a_lost_one_is_evicted() {
    // P-152: client-2 overwrites what client-1 had written and has not committed; client-1 dies.
    let mut bench = Bench::stored();
    let other = bench.new_client("client-2");
    let call = set_of(&mut bench, other, "b=1");
    assert!(bench.end_at(other.0, call).unwrap().is_ok());
    let call = set(&mut bench, "a=1");
    assert!(bench.end_of(call).unwrap().is_ok());
    for text in ["a=2", "b=2"] {
        let call = set_of(&mut bench, other, text);
        assert!(bench.end_at(other.0, call).unwrap().is_ok());
    }
    bench.kill(bench.client);
    bench.crash_server();
    let after = set_of(&mut bench, other, "b=3");
    bench.secs(500);
    assert_eq!(bench.end_at(other.0, after), Some(Err(CallError::Evicted)));
    let events = bench.heard();
    let unfit = |e: &&Event| matches!(e, Event::Evicted { client, reason: EvictReason::VersionMismatch, .. } if client == "client-2");
    assert_eq!(events.iter().filter(unfit).count(), 1);
    assert_eq!(log(&mut bench), ["b=1", "b=2"], "what fits is there, what does not is not");
    let call = set_of(&mut bench, other, "b=4");
    assert!(bench.end_at(other.0, call).unwrap().is_ok());
}

#[test]
fn a_server_that_dies_while_it_recovers_recovers_again() {
    let mut bench = Bench::stored();
    let other = bench.new_client("client-2");
    let call = set_of(&mut bench, other, "b=1");
    assert!(bench.end_at(other.0, call).unwrap().is_ok());
    let texts: Vec<_> = (1..=6).map(|n| format!("a={n}")).collect();
    for text in &texts {
        let call = set(&mut bench, text);
        assert!(bench.end_of(call).unwrap().is_ok());
    }
    bench.crash_server();
    bench.store(|store, _| store.slow = true);
    bench.secs(60);
    // Three have been repeated, two of them are committed.
    for _ in 0..3 {
        bench.store(|store, rpc| store.serve_held(rpc, 1));
    }
    bench.store(|store, rpc| store.commit(rpc, 2));
    assert_eq!(log(&mut bench).len(), 4);
    bench.crash_server();
    assert_eq!(log(&mut bench).len(), 3);
    bench.secs(200);
    assert_eq!(log(&mut bench)[0], "b=1");
    assert_eq!(log(&mut bench)[1..], texts);
    let evicted = |e: &Event| matches!(e, Event::Evicted { .. });
    assert!(!bench.heard().iter().any(evicted));
    let call = set(&mut bench, "a=7");
    assert!(bench.end_of(call).unwrap().is_ok());
}

#[test]
fn a_recovery_that_is_aborted_leaves_the_target_in_use() {
    let mut bench = Bench::stored();
    let call = set(&mut bench, "a=1");
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.lose(|_, _| true);
    bench.crash_server();
    let target = bench.target;
    bench.rpc(bench.server, |rpc| rpc.abort_recovery(target));
    bench.loses = None;
    let other = bench.new_client("client-2");
    let call = set_of(&mut bench, other, "b=1");
    assert!(bench.end_at(other.0, call).unwrap().is_ok());
    let call = set(&mut bench, "a=2");
    bench.secs(60);
    // It held something that is gone.
    assert_eq!(bench.end_of(call), Some(Err(CallError::Evicted)));
    assert_eq!(log(&mut bench), ["b=1"]);
}

#[test]
fn a_client_that_waited_for_the_recovery_is_not_silent() {
    // client-2 has nothing to repeat and misses the server later than client-1. It waits for
    // client-3, which is dead, and its last word is 150 s old twice over before it has a new one.
    let mut bench = Bench::stored();
    let other = bench.new_client("client-2");
    let dead = bench.new_client("client-3");
    for client in [dead, other] {
        let call = set_of(&mut bench, client, "b=1");
        assert!(bench.end_at(client.0, call).unwrap().is_ok());
    }
    bench.store(|store, rpc| store.commit(rpc, usize::MAX));
    bench.secs(30);
    let call = set(&mut bench, "a=1");
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.kill(dead.0);
    bench.crash_server();
    bench.secs(1000);
    let evicted: Vec<_> = bench
        .heard()
        .into_iter()
        .filter_map(|event| match event {
            Event::Evicted { client, reason, .. } => Some((client, reason)),
            _ => None,
        })
        .collect();
    assert_eq!(evicted, [("client-3".to_owned(), EvictReason::NotRecovered)]);
}

#[test]
fn a_target_that_lost_its_store_is_believed_about_what_is_committed() {
    let mut bench = Bench::stored();
    for text in ["a=1", "a=2"] {
        let call = set(&mut bench, text);
        assert!(bench.end_of(call).unwrap().is_ok());
        bench.store(|store, rpc| store.commit(rpc, usize::MAX));
        bench.crash_server();
        bench.secs(60);
    }
    // Its numbers begin again below those that the client knows as committed.
    bench.store(|store, _| store.wipe());
    bench.crash_server();
    bench.secs(60);
    let call = set(&mut bench, "a=3");
    assert!(bench.end_of(call).unwrap().unwrap().transno < 2 << 32);
    bench.crash_server();
    bench.secs(60);
    assert_eq!(log(&mut bench), ["a=3"], "it is repeated");
}

#[test]
fn nothing_of_an_evicted_client_has_a_transaction() {
    let mut bench = Bench::stored();
    let call = set(&mut bench, "a=1");
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.store(|store, _| store.slow = true);
    let call = set(&mut bench, "a=2");
    let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].id);
    bench.rpc(bench.server, |rpc| rpc.evict(export));
    bench.store(|store, rpc| store.serve_held(rpc, 1));
    bench.secs(120);
    assert_eq!(bench.end_of(call), Some(Err(CallError::Evicted)));
    assert_eq!(log(&mut bench), ["a=1"]);
}

#[test]
fn an_eviction_says_how_many_answered_changes_are_not_known_to_be_committed() {
    let mut bench = Bench::stored();
    for text in ["a=1", "b=2", "a=3"] {
        let call = set(&mut bench, text);
        assert!(bench.end_of(call).unwrap().is_ok());
    }
    bench.store(|store, rpc| store.commit(rpc, 1));
    // The answer says which one is committed.
    let call = bench.call(Bench::say(ECHO, "which?"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let import = bench.import;
    let view = bench.party_of(bench.client, move |p, _| p.ptlrpc.import_view(import));
    assert_eq!(view.map(|view| view.uncommitted), Some(2));
    let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].id);
    bench.rpc(bench.server, |rpc| rpc.evict(export));
    bench.secs(120);
    let events = bench.party_of(bench.client, |p, _| p.events.clone());
    let lost = events.iter().filter_map(|event| match event {
        Event::Invalidated { lost, .. } => Some(*lost),
        _ => None,
    });
    assert_eq!(lost.collect::<Vec<_>>(), [2]);
}

#[test]
fn a_client_that_was_admitted_anew_and_has_not_heard_of_it_repeats_nothing() {
    for heard in [true, false] {
        let mut bench = Bench::stored();
        let call = set(&mut bench, "a=1");
        assert!(bench.end_of(call).unwrap().is_ok());
        let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].id);
        bench.rpc(bench.server, |rpc| rpc.evict(export));
        if !heard {
            bench.lose(|portal, _| portal == reply_portal());
        }
        // Its connect is granted in either case.
        let call = set(&mut bench, "a=2");
        bench.secs(40);
        assert_eq!(bench.end_of(call).is_some(), heard);
        assert_eq!(bench.store(|store, _| store.now().clients.len()), 1, "{heard}");
        bench.crash_server();
        bench.loses = None;
        bench.secs(100);
        if !heard {
            assert_eq!(bench.end_of(call), Some(Err(CallError::Evicted)));
        }
        assert_eq!(log(&mut bench), ["a=1"], "{heard}");
        let call = set(&mut bench, "a=3");
        bench.secs(10);
        assert!(bench.end_of(call).unwrap().is_ok());
        assert_eq!(log(&mut bench), ["a=1", "a=3"], "{heard}");
    }
}

#[test]
fn changes_of_two_clients_keep_their_order_when_a_third_is_missing() {
    let mut bench = Bench::stored();
    let other = bench.new_client("client-2");
    let dead = bench.new_client("client-3");
    for client in [(bench.client, bench.import), other, dead] {
        let call = set_of(&mut bench, client, "z=0");
        assert!(bench.end_at(client.0, call).unwrap().is_ok());
    }
    let first = (bench.client, bench.import);
    let texts = ["a=1", "a=2", "a=3", "a=4"];
    for (client, text) in [first, first, other, other].into_iter().zip(texts) {
        let call = set_of(&mut bench, client, text);
        assert!(bench.end_at(client.0, call).unwrap().is_ok());
    }
    bench.kill(dead.0);
    bench.crash_server();
    bench.secs(600);
    assert_eq!(log(&mut bench)[2..], texts);
}

#[test]
fn a_change_in_doubt_is_not_made_twice_when_its_record_is_gone() {
    // The first answer is lost, and then everything, until the server has evicted the client.
    let mut bench = Bench::stored();
    let call = bench.call(Bench::say(ECHO, "hello"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let reply = reply_portal();
    bench.lose(move |portal, _| portal == reply);
    let call = set(&mut bench, "a=1");
    bench.lose(|_, _| true);
    bench.secs(200);
    bench.loses = None;
    bench.secs(100);
    assert_eq!(bench.end_of(call), Some(Err(CallError::Evicted)));
    assert_eq!(log(&mut bench), ["a=1"]);
    assert!(!bench.states().contains(&ImportState::Evicted), "nothing was cached");
    let call = set(&mut bench, "a=2");
    assert!(bench.end_of(call).unwrap().is_ok());
}

#[test]
fn a_replay_begins_anew_when_the_answer_to_the_connect_was_lost() {
    let mut bench = Bench::stored();
    for text in ["a=1", "a=2"] {
        let call = set(&mut bench, text);
        assert!(bench.end_of(call).unwrap().is_ok());
    }
    bench.crash_server();
    bench.secs(60);
    assert_eq!(log(&mut bench), ["a=1", "a=2"]);
    // Again, with nothing committed: the client is known to the new life before it knows.
    bench.crash_server();
    let reply = reply_portal();
    let mut replies = 0;
    bench.lose(move |portal, _| {
        replies += usize::from(portal == reply);
        portal == reply && replies == 2
    });
    bench.secs(120);
    assert_eq!(log(&mut bench), ["a=1", "a=2"]);
    let evicted = |e: &Event| matches!(e, Event::Evicted { .. });
    assert!(!bench.heard().iter().any(evicted));
}
