//! Whether a request may be served, at its arrival and when its turn has come (P-106, P-107, P-110).

use lnet_types::Errno;
use lustre_wire::{Body, BodyFlags, MsgKind};

use super::bench::{APPEND, Bench, keeper};
use super::raw::{Raw, connected};
use crate::{Answer, Event, EvictReason};

#[test]
fn p106_each_row_of_the_check_has_its_outcome_at_arrival() {
    let gone = (MsgKind::ERROR, Errno::ENODEV.negative());
    let replay = |flags| move |body: &mut Body| body.flags = flags;
    type Change = Box<dyn Fn(&mut Body)>;
    type Row = (&'static str, bool, Change, Option<(MsgKind, i32)>, bool);
    // What is special, failing over, the change, the reply, whether it evicts.
    let rows: [Row; 6] = [
        ("old connection", false, Box::new(|b| b.conn_cnt = 0), None, false),
        ("failing over", true, Box::new(|_| ()), Some(gone), false),
        ("replay", false, Box::new(replay(BodyFlags::REPLAY)), Some(gone), true),
        ("end of replay", false, Box::new(replay(BodyFlags::REQ_REPLAY_DONE)), Some(gone), true),
        ("transaction", false, Box::new(|b| b.transno = 7), Some(gone), true),
        ("nothing of these", false, Box::new(|_| ()), None, false),
    ];
    for (what, failed, change, reply, evicts) in rows {
        let mut bench = Bench::new(keeper());
        let (handle, xid) = connected(&mut bench);
        let (target, stats) =
            (bench.target, |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.server_stats()));
        bench.rpc(bench.server, |rpc| rpc.fail_over(target, failed));
        let mut body = Raw::body(handle);
        change(&mut body);
        bench.heard();
        let raw = Raw::send(&mut bench, xid, &body);
        let got = raw.reply(&bench).map(|reply| (reply.kind, reply.status));
        assert_eq!(got, reply, "{what}");
        let evicted =
            |e: &Event| matches!(e, Event::Evicted { reason: EvictReason::ReplayOutOfTime, .. });
        assert_eq!(bench.heard().iter().any(evicted), evicts, "{what}");
        let served = bench.kept().len() - 1;
        assert_eq!(served, usize::from(what == "nothing of these"), "{what}");
        assert_eq!(stats(&mut bench).stale, u64::from(what == "old connection"), "{what}");
    }
}

#[test]
fn p106_the_check_is_made_at_arrival_although_no_slot_is_free() {
    let mut bench = Bench::new(keeper());
    let (handle, xid) = connected(&mut bench);
    for n in 0..33 {
        bench.call(Bench::say(APPEND, &n.to_string()));
    }
    let stale = |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.server_stats().stale);
    Raw::send(&mut bench, xid, &Body { conn_cnt: 0, ..Raw::body(handle) });
    assert_eq!(stale(&mut bench), 1);
    let replay = Body { flags: BodyFlags::REPLAY, ..Raw::body(handle) };
    let raw = Raw::send(&mut bench, xid + 128, &replay);
    let reply = raw.reply(&bench).unwrap();
    assert_eq!((reply.kind, reply.status), (MsgKind::ERROR, Errno::ENODEV.negative()));
}

#[test]
fn a_target_that_another_node_takes_over_refuses_what_waits_and_what_is_answered() {
    let mut bench = Bench::new(keeper());
    let calls: Vec<_> = (0..65).map(|n| bench.call(Bench::say(APPEND, &n.to_string()))).collect();
    assert_eq!(bench.kept().len(), 64, "all slots: one waits");
    let target = bench.target;
    bench.rpc(bench.server, |rpc| rpc.fail_over(target, true));
    let first = bench.kept()[0].id;
    bench.rpc(bench.server, |rpc| rpc.reply(first, Answer::default()));
    bench.settle();
    assert_eq!((bench.kept().len(), bench.end_of(calls[0])), (64, None));
    // Connects are refused too: the target is not here.
    let refused =
        |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.server_stats().connects_refused);
    assert!(refused(&mut bench) > 0);
    // It is here after all: each call is answered.
    bench.rpc(bench.server, |rpc| rpc.fail_over(target, false));
    for _ in 0..60 {
        bench.secs(1);
        for served in bench.kept() {
            bench.rpc(bench.server, |rpc| rpc.reply(served.id, Answer::default()));
        }
    }
    let ends: Vec<_> = calls.iter().map(|call| bench.end_of(*call)).collect();
    assert!(ends.iter().all(|end| matches!(end, Some(Ok(_)))), "{ends:?}");
}

#[test]
fn a_request_of_an_older_connection_is_dropped_when_its_turn_comes_but_not_one_that_came_again() {
    let mut bench = Bench::new(keeper());
    let (handle, xid) = connected(&mut bench);
    let calls: Vec<_> = (0..65).map(|n| bench.call(Bench::say(APPEND, &n.to_string()))).collect();
    // One that its client sends once, and never again.
    let body = Body { timeout: 500, ..Raw::body(handle) };
    let raw = Raw::send(&mut bench, xid, &body);
    bench.lose(|_, _| true);
    bench.secs(30);
    bench.loses = None;
    bench.secs(30);
    let exports = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    assert_eq!((exports.len(), exports[0].conn_cnt > 1), (1, true), "the client has come back");
    let stats = |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.server_stats());
    assert_eq!((stats(&mut bench).folded, stats(&mut bench).stale), (65, 0));
    let mut answered = 1;
    while answered < bench.kept().len() {
        let served = bench.kept()[answered].id;
        bench.rpc(bench.server, |rpc| rpc.reply(served, Answer::default()));
        answered += 1;
    }
    bench.settle();
    assert_eq!((answered, stats(&mut bench).stale), (66, 1));
    assert_eq!(raw.reply(&bench), None);
    let ends: Vec<_> = calls.iter().map(|call| bench.end_of(*call)).collect();
    assert!(ends.iter().all(|end| matches!(end, Some(Ok(_)))), "{ends:?}");
}
