//! Connections that hold: connects, calls, pings, early replies, limits, ends.

use core::time::Duration;

use lnet_types::Errno;
use lustre_wire::body::MsgKind;
use lustre_wire::{BodyFlags, Buffers, Opcode};

use super::bench::{APPEND, Bench, ECHO, append_log, data, keeper};
use crate::{Answer, Call, CallError, Event, ImportState};

#[test]
fn the_first_call_connects_and_is_answered() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(APPEND, "one"));
    let reply = bench.end_of(call).unwrap().unwrap();
    assert_eq!((reply.status, reply.transno), (0, 1));
    assert_eq!(reply.msg().unwrap().buffer(1), Some(&b"one"[..]));
    assert_eq!(bench.states(), [ImportState::Connecting, ImportState::Full]);
    let view = bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(1.into()));
    assert!(view.is_none(), "there is no such import");
    let import = bench.import;
    let view = bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import)).unwrap();
    assert_eq!(
        (view.state, view.conn_cnt, view.granted.flags),
        (ImportState::Full, 1, data().flags)
    );
    // The reply was taken, and everything for it is gone; the server keeps its request buffers.
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn an_idle_import_pings_before_the_server_misses_it() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(ECHO, "hello"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let before = bench.sent;
    bench.secs(600);
    // A ping and its reply each 25 s (P-100, P-102).
    assert_eq!(bench.sent - before, 2 * 24);
    let exports = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    assert_eq!(exports.len(), 1);
    assert_eq!(bench.states(), [ImportState::Connecting, ImportState::Full]);
}

#[test]
fn a_client_that_falls_silent_is_evicted_after_one_and_a_half_obd_timeouts() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(APPEND, "hello"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.lose(|_, _| true);
    // DEC-20, DEC-42: 150 s after the last request that arrived.
    bench.secs(149);
    let exports = |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.export_views().len());
    assert_eq!(exports(&mut bench), 1);
    bench.secs(2);
    assert_eq!(exports(&mut bench), 0);
    // It comes back, learns that what it held is void, and goes on.
    bench.loses = None;
    bench.secs(60);
    let states = bench.states();
    assert!(
        states.ends_with(&[ImportState::Evicted, ImportState::Recover, ImportState::Full]),
        "{states:?}"
    );
    let events = bench.party_of(bench.client, |p, _| p.events.clone());
    assert_eq!(events.iter().filter(|e| matches!(e, Event::Invalidated { .. })).count(), 1);
    let call = bench.call(Bench::say(APPEND, "again"));
    assert!(bench.end_of(call).unwrap().is_ok());
}

#[test]
fn a_disconnect_ends_calls_and_the_export() {
    let mut bench = Bench::new(keeper());
    let open = bench.call(Bench::say(APPEND, "never answered"));
    assert_eq!(bench.kept().len(), 1);
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.disconnect(import));
    bench.settle();
    assert_eq!(bench.end_of(open), Some(Err(CallError::Closed)));
    assert_eq!(bench.states().last(), Some(&ImportState::Closed));
    let exports = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    assert!(exports.is_empty());
    let late = bench.rpc(bench.client, |rpc| rpc.call(import, Bench::say(ECHO, "late")));
    assert_eq!(late, Err(CallError::NoImport));
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn early_replies_keep_a_slow_request_alive_until_at_max() {
    // P-126: the server has 11 s; early replies leave at 6, 31, 56 … s, each asks for 30 s more.
    let mut bench = Bench::new(keeper());
    let call = bench.call(Bench::say(APPEND, "slow"));
    let mut early_at = Vec::new();
    let mut seen = 0;
    for second in 1..=560 {
        bench.secs(1);
        let early = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats().early);
        if early > seen {
            early_at.push(second);
            seen = early;
        }
    }
    assert_eq!(early_at[..4], [6, 31, 56, 81]);
    assert_eq!(bench.end_of(call), None, "it still waits");
    assert_eq!(bench.kept().len(), 1, "it was sent once");
    let served = bench.kept()[0].id;
    bench.rpc(bench.server, |rpc| rpc.reply(served, Answer::default()));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
}

#[test]
fn no_early_reply_leaves_when_at_max_is_reached() {
    // PA-101: however many there are, none moves the deadline beyond arrival + 600 s.
    let mut bench = Bench::new(keeper());
    bench.call(Bench::say(APPEND, "for ever"));
    let early = |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.server_stats().early);
    bench.secs(600);
    let until_at_max = early(&mut bench);
    assert!((20..=25).contains(&until_at_max), "{until_at_max} early replies");
    bench.secs(900);
    assert_eq!(early(&mut bench), until_at_max);
    assert_eq!(bench.kept().len(), 1, "copies are folded into the first");
}

#[test]
fn a_call_ends_with_its_limit_wherever_it_is() {
    let mut bench = Bench::new(keeper());
    let limited =
        Call { limit: Some(Duration::from_secs(3)), ..Bench::say(APPEND, "with a limit") };
    let call = bench.call(limited.clone());
    bench.secs(2);
    assert_eq!(bench.end_of(call), None);
    bench.secs(1);
    assert_eq!(bench.end_of(call), Some(Err(CallError::LimitPassed)));
    // And while it waits for a connection.
    bench.lose(|_, _| true);
    let open = bench.call(Bench::say(APPEND, "lost"));
    bench.secs(40);
    let call = bench.call(limited);
    bench.secs(3);
    assert_eq!(bench.end_of(call), Some(Err(CallError::LimitPassed)));
    bench.rpc(bench.client, |rpc| rpc.cancel(open));
    bench.settle();
    assert_eq!(bench.end_of(open), Some(Err(CallError::Cancelled)));
}

#[test]
fn what_the_program_refuses_is_the_callers_error() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(Opcode(20_002), "no such operation"));
    assert_eq!(bench.end_of(call), Some(Err(CallError::Refused(Errno::EOPNOTSUPP))));
    let unknown = bench.call(Bench::say(Opcode::OST_GETATTR, "not built"));
    assert_eq!(bench.end_of(unknown), Some(Err(CallError::Refused(Errno::EOPNOTSUPP))));
    let import = bench.import;
    let huge = Call::new(ECHO, Buffers::from([vec![0; 2 << 20]]));
    let refused = bench.rpc(bench.client, |rpc| rpc.call(import, huge));
    assert!(matches!(refused, Err(CallError::BadRequest(_))), "{refused:?}");
}

#[test]
fn p85_an_error_comes_with_its_reply_to_a_call_that_wants_that_alone() {
    // A program whose refusals say more than a number.
    let mut bench = Bench::new(Box::new(|rpc, event, _| {
        if let Event::Joining { export, .. } = event {
            rpc.admit(export, Ok(()));
        } else if let Event::Served(served) = event {
            let status = Errno::EREMOTE.negative();
            let buffers = Buffers::new().bytes(b"elsewhere");
            rpc.reply(served.id, Answer { status, buffers, ..Answer::default() });
        }
    }));
    let plain = bench.call(Bench::say(ECHO, "where"));
    assert_eq!(bench.end_of(plain), Some(Err(CallError::Refused(Errno::EREMOTE))));
    let call = bench.call(Call { error_reply: true, ..Bench::say(ECHO, "where") });
    let reply = bench.end_of(call).unwrap().unwrap();
    assert_eq!(reply.status, Errno::EREMOTE.negative());
    assert_eq!(reply.msg().unwrap().buffer(1), Some(&b"elsewhere"[..]));
    // What is no answer of the operation stays a failure.
    let unplanned =
        Call { error_reply: true, ..Call::new(ECHO, Buffers::from([vec![0; 2 << 20]])) };
    let import = bench.import;
    let refused = bench.rpc(bench.client, |rpc| rpc.call(import, unplanned));
    assert!(matches!(refused, Err(CallError::BadRequest(_))), "{refused:?}");
}

#[test]
fn a_reply_longer_than_planned_is_asked_for_again_with_room() {
    let mut bench = Bench::new(append_log());
    let text = "x".repeat(4000);
    let mut call = Bench::say(APPEND, &text);
    call = call.answered_by(&[16]);
    let id = bench.call(call.clone());
    bench.secs(2);
    let reply = bench.end_of(id).unwrap().unwrap();
    assert_eq!(reply.msg().unwrap().buffer(1), Some(text.as_bytes()));
    assert_eq!(reply.transno, 1, "it was executed once");
    let import = bench.import;
    let view = bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import)).unwrap();
    assert_eq!(view.truncated, 1);
    call.resend = false;
    let id = bench.call(call);
    assert_eq!(bench.end_of(id), Some(Err(CallError::TooLong)));
}

#[test]
fn a_request_that_is_being_worked_on_comes_again_under_a_new_number() {
    let mut bench = Bench::new(keeper());
    let call = bench.call(Bench::say(APPEND, "busy"));
    let first = bench.kept()[0].clone();
    bench.rpc(bench.server, |rpc| rpc.refuse(first.id, Errno::EINPROGRESS));
    bench.secs(2);
    let kept = bench.kept();
    assert_eq!(kept.len(), 2);
    assert!(kept[1].xid > first.xid && !kept[1].body.flags.contains(BodyFlags::RESENT));
    bench.rpc(bench.server, |rpc| rpc.reply(kept[1].id, Answer::default()));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
}

#[test]
fn a_connect_to_a_target_that_is_not_there_is_tried_again_for_ever() {
    let mut bench = Bench::new(append_log());
    let other = bench.rpc(bench.client, |rpc| {
        rpc.import(crate::ImportConfig {
            kind: lustre_wire::ImportKind::Osc,
            target: "elsewhere".to_owned(),
            client: "client-1".to_owned(),
            nids: vec![lnet_types::Nid::LOOPBACK],
            wanted: data(),
        })
    });
    let other = other.unwrap();
    let call = bench.rpc(bench.client, |rpc| rpc.call(other, Bench::say(ECHO, "anyone?"))).unwrap();
    bench.secs(120);
    assert_eq!(bench.end_of(call), None);
    let view = bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(other)).unwrap();
    // P-67: an attempt each 5 s, and never many at once.
    assert!((24..=25).contains(&view.conn_cnt), "{} attempts", view.conn_cnt);
    let refused = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats().connects_refused);
    assert_eq!(u64::from(view.conn_cnt), refused);
}

#[test]
fn what_is_not_committed_is_kept_until_a_reply_says_that_it_is() {
    // P-74, P-75, P-100: an early ping learns of the commit.
    let mut bench = Bench::with(append_log(), true);
    let retained = |b: &mut Bench| {
        let import = b.import;
        b.party_of(b.client, |p, _| p.ptlrpc.import_view(import)).unwrap().retained
    };
    for text in ["one", "two"] {
        let call = bench.call(Bench::say(APPEND, text));
        assert!(bench.end_of(call).unwrap().is_ok());
    }
    let call = bench.call(Bench::say(ECHO, "changes nothing"));
    assert!(bench.end_of(call).unwrap().is_ok());
    assert_eq!(retained(&mut bench), 2);
    let target = bench.target;
    bench.rpc(bench.server, |rpc| rpc.committed(target, 1));
    bench.secs(8);
    assert_eq!(retained(&mut bench), 1);
    // Bulk memory is the program's again: such a request can't be repeated, and is not kept.
    let memory = bench.memory(100, |_| 0);
    let bulk = crate::Bulk { direction: crate::Direction::Read, memory };
    bench.call(Call { bulk: Some(bulk), ..Bench::say(APPEND, "three") });
    assert_eq!(retained(&mut bench), 1);
}

#[test]
fn last_committed_of_a_reply_is_that_of_its_client_and_not_of_the_target() {
    let mut bench = Bench::with(append_log(), true);
    let committed = |b: &mut Bench, text: &str| {
        let call = b.call(Bench::say(ECHO, text));
        let reply = b.end_of(call).unwrap().unwrap();
        reply.msg().unwrap().body().unwrap().last_committed
    };
    let call = bench.call(Bench::say(APPEND, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    assert_eq!(committed(&mut bench, "before the commit"), 0);
    let target = bench.target;
    bench.rpc(bench.server, |rpc| rpc.committed(target, 1));
    assert_eq!(committed(&mut bench, "after the commit"), 1);
    let second = bench.rpc(bench.client, |rpc| {
        rpc.import(crate::ImportConfig {
            kind: lustre_wire::ImportKind::Osc,
            target: "log-1".to_owned(),
            client: "client-2".to_owned(),
            nids: vec![lnet_types::Nid::LOOPBACK],
            wanted: data(),
        })
    });
    bench.import = second.unwrap();
    assert_eq!(committed(&mut bench, "changed nothing"), 0);
}

#[test]
fn a_client_with_a_lock_is_evicted_by_a_server_that_forgot_its_connection() {
    // P-66: the reply to a lock enqueue is state of the server, even without a transaction.
    for (opcode, evicted) in [(Opcode::LDLM_ENQUEUE, true), (ECHO, false)] {
        let mut bench = Bench::new(keeper());
        let call = bench.call(Bench::say(opcode, "lock"));
        let served = bench.kept()[0].clone();
        bench.rpc(bench.server, |rpc| rpc.reply(served.id, Answer::default()));
        bench.settle();
        assert!(bench.end_of(call).unwrap().is_ok());
        bench.rpc(bench.server, |rpc| rpc.evict(served.export));
        bench.call(Bench::say(ECHO, "next"));
        bench.secs(2);
        assert_eq!(bench.states().contains(&ImportState::Evicted), evicted, "{opcode}");
    }
}

#[test]
fn a_call_with_portals_of_its_own_goes_to_the_service_there() {
    let mut bench = Bench::new(keeper());
    let (request, reply) = lustre_wire::opcode::RENAME;
    let io = bench.rpc(bench.server, |rpc| {
        rpc.serve(crate::ServiceConfig::new("io", request.0, reply.0, 14)).unwrap()
    });
    let portals = Some(lustre_wire::opcode::RENAME);
    let call = bench.call(Call { portals, ..Bench::say(Opcode::MDS_REINT, "rename") });
    let served = bench.kept()[0].clone();
    assert_eq!(served.service, io);
    bench.rpc(bench.server, |rpc| rpc.reply(served.id, Answer::default()));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
}

#[test]
fn replies_say_what_they_are() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(APPEND, "one"));
    let reply = bench.end_of(call).unwrap().unwrap();
    let msg = reply.msg().unwrap();
    let body = msg.body().unwrap();
    assert_eq!((body.kind, body.opcode, body.service_time), (MsgKind::REPLY, APPEND, 1));
    assert_eq!(body.timeout, 5, "the least that an estimate says");
}
