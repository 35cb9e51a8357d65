//! The life of an import: idle and roused, slots, invalidation, its end, what it shows (P-55, P-58,
//! P-60, P-76, P-81, P-82, P-88, P-103, P-104).

use core::time::Duration;

use lnet::{Found, OpId, Profile, Report};
use lnet_types::{Errno, Nid};
use lustre_wire::connect::ConnectFlags;
use lustre_wire::{ConnectData, ImportKind, OpFlags, Opcode};

use super::bench::{APPEND, Bench, ECHO, append_log, data, keeper};
use super::script::{Said, config, scripted, serving};
use crate::{
    Answer, Call, CallError, ChoiceReason, Event, Explanation, ImportConfig, ImportState as S,
    ImportTunables, ImportView, LogLine, Readiness, Tunables,
};

fn view(bench: &mut Bench) -> ImportView {
    let import = bench.import;
    bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import)).unwrap()
}

fn idle_after(bench: &mut Bench, secs: u64) {
    let import = bench.import;
    let idle_timeout = Duration::from_secs(secs);
    let tunables =
        ImportTunables { max_rpcs_in_flight: 8, max_mod_rpcs_in_flight: 7, idle_timeout };
    bench.rpc(bench.client, |rpc| rpc.tune(import, tunables));
}

fn exports(bench: &mut Bench) -> usize {
    bench.party_of(bench.server, |p, _| p.ptlrpc.export_views().len())
}

#[test]
fn p103_an_import_without_calls_disconnects_and_its_next_call_connects() {
    let mut bench = Bench::new(append_log());
    idle_after(&mut bench, 20);
    let call = bench.call(Bench::say(ECHO, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.secs(24);
    assert_eq!(view(&mut bench).state, S::Full);
    bench.secs(2);
    assert_eq!((view(&mut bench).state, exports(&mut bench)), (S::Idle, 0));
    // Nothing is sent by an idle import.
    let sent = bench.sent;
    bench.secs(1000);
    assert_eq!(bench.sent, sent);
    // P-81: a call that may neither wait nor go again is worth the connection that it has woken.
    let hasty = Call { delay: false, resend: false, ..Bench::say(ECHO, "two") };
    let call = bench.call(hasty);
    assert!(bench.end_of(call).unwrap().is_ok());
    let states = [S::Connecting, S::Full, S::Connecting, S::Idle, S::New, S::Connecting, S::Full];
    assert_eq!(bench.states(), states);
}

#[test]
fn p103_an_import_that_is_held_or_has_calls_or_may_have_to_replay_is_not_idle() {
    // Held.
    let mut bench = Bench::new(append_log());
    idle_after(&mut bench, 20);
    let import = bench.import;
    bench.call(Bench::say(ECHO, "one"));
    bench.rpc(bench.client, |rpc| rpc.hold(import, true));
    bench.secs(100);
    assert_eq!(view(&mut bench).state, S::Full);
    bench.rpc(bench.client, |rpc| rpc.hold(import, false));
    bench.secs(26);
    assert_eq!(view(&mut bench).state, S::Idle);
    // With a call.
    let mut bench = Bench::new(keeper());
    idle_after(&mut bench, 20);
    bench.call(Bench::say(ECHO, "slow"));
    bench.secs(100);
    assert_eq!(view(&mut bench).state, S::Full);
    // With what is not committed.
    let mut bench = Bench::with(append_log(), true);
    idle_after(&mut bench, 20);
    bench.call(Bench::say(APPEND, "one"));
    bench.secs(100);
    assert_eq!(view(&mut bench).state, S::Full);
    let target = bench.target;
    bench.rpc(bench.server, |rpc| rpc.committed(target, 1));
    bench.secs(60);
    assert_eq!(view(&mut bench).state, S::Idle);
}

#[test]
fn p103_a_call_that_comes_while_an_idle_import_disconnects_is_the_first_of_the_next_connection() {
    let mut bench = Bench::new(append_log());
    idle_after(&mut bench, 20);
    bench.call(Bench::say(ECHO, "one"));
    // The disconnect is lost: it is waited for 5 s.
    bench.secs(24);
    bench.lose(|_, _| true);
    bench.secs(2);
    assert_eq!(view(&mut bench).state, S::Connecting);
    let call = bench.call(Bench::say(ECHO, "meanwhile"));
    bench.loses = None;
    bench.secs(5);
    assert_eq!(bench.states()[2..5], [S::Connecting, S::Idle, S::New]);
    bench.secs(20);
    assert!(bench.end_of(call).unwrap().is_ok(), "{:?}", bench.states());
}

/// A target that grants `slots` modifying requests at a time, and answers nothing.
fn slotted(slots: u16) -> Bench {
    let offer = ConnectData {
        flags: data().flags | ConnectFlags::MULTIMODRPCS,
        maxmodrpcs: slots,
        ..data()
    };
    let wanted = ConnectData { maxmodrpcs: 9, ..offer };
    let mut bench = scripted(Tunables::default(), config(ImportKind::Osc, wanted), move |asked| {
        if asked.connects() { vec![Said::connected(7, OpFlags::empty(), offer)] } else { vec![] }
    });
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.connect(import));
    bench.settle();
    bench
}

#[test]
fn p82_changes_take_slots_whose_numbers_are_tags_and_their_xids_when_they_have_them() {
    let mut bench = slotted(2);
    let calls = [0; 4].map(|_| bench.call(Bench::say(APPEND, "change")));
    let reads = bench.call(Call { modifies: false, ..Bench::say(ECHO, "none") });
    let tags = |b: &mut Bench| -> Vec<u16> {
        b.asked_for(APPEND).iter().map(|asked| asked.body.tag).collect()
    };
    assert_eq!(tags(&mut bench), [1, 2]);
    assert_eq!(bench.asked_for(ECHO)[0].body.tag, 0);
    assert_eq!(view(&mut bench).slots, ([0, 0, 2], 2));
    // The second is answered: the third takes its slot.
    let second = bench.asked_for(APPEND).remove(1);
    bench.say_late(&second, Said::status(0));
    assert!(bench.end_of(calls[1]).is_some());
    assert_eq!(tags(&mut bench), [1, 2, 2]);
    let xids: Vec<u64> = bench.asked_for(APPEND).iter().map(|asked| asked.xid).collect();
    let read = bench.asked_for(ECHO)[0].xid;
    assert!(xids[2] > xids[1] && xids[2] > read, "numbered when it has its slot");
    // One that waits for a slot can be taken back, and does not keep one.
    bench.rpc(bench.client, |rpc| rpc.cancel(calls[3]));
    assert_eq!(bench.end_of(calls[3]), Some(Err(CallError::Cancelled)));
    bench.rpc(bench.client, |rpc| {
        rpc.cancel(calls[0]);
        rpc.cancel(calls[2]);
        rpc.cancel(reads);
    });
    bench.settle();
    assert_eq!(view(&mut bench).slots, ([0, 0, 0], 0));
}

#[test]
fn p82_a_limit_passes_for_a_call_that_waits_for_a_slot() {
    let mut bench = slotted(1);
    bench.call(Bench::say(APPEND, "first"));
    let limit = Some(Duration::from_secs(3));
    let call = bench.call(Call { limit, ..Bench::say(APPEND, "second") });
    bench.secs(3);
    assert_eq!(bench.end_of(call), Some(Err(CallError::LimitPassed)));
    assert_eq!(bench.asked_for(APPEND).len(), 1);
}

#[test]
fn p88_reads_and_writes_of_objects_are_limited_each_for_itself() {
    let mut bench = serving(Tunables::default(), |_| Vec::new());
    for _ in 0..10 {
        bench.call(Bench::say(Opcode::OST_READ, "read"));
        bench.call(Bench::say(Opcode::OST_WRITE, "write"));
        bench.call(Bench::say(Opcode::OST_STATFS, "neither"));
    }
    assert_eq!(bench.asked_for(Opcode::OST_READ).len(), 8);
    assert_eq!(bench.asked_for(Opcode::OST_WRITE).len(), 8);
    assert_eq!(view(&mut bench).slots, ([8, 8, 0], 4));
    // More are let go by a greater limit.
    let import = bench.import;
    let tunables = ImportTunables {
        max_rpcs_in_flight: 9,
        max_mod_rpcs_in_flight: 7,
        idle_timeout: Duration::ZERO,
    };
    bench.rpc(bench.client, |rpc| rpc.tune(import, tunables));
    bench.settle();
    assert_eq!(view(&mut bench).slots, ([9, 9, 0], 2));
}

#[test]
fn p76_an_eviction_ends_all_calls_before_it_is_reported_and_before_new_ones_go() {
    let mut bench = Bench::new(keeper());
    let call = bench.call(Bench::say(APPEND, "held"));
    let first = bench.kept()[0].clone();
    bench.rpc(bench.server, |rpc| rpc.reply(first.id, Answer { transno: 1, ..Answer::default() }));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
    let calls = [0; 3].map(|_| bench.call(Bench::say(APPEND, "in flight")));
    bench.restart_server(append_log());
    bench.secs(20);
    let events = bench.party_of(bench.client, |p, _| p.events.clone());
    let at = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).unwrap();
    let invalidated = at(&|e| matches!(e, Event::Invalidated { .. }));
    for call in calls {
        let ended = at(
            &|e| matches!(e, Event::Ended { call: c, result: Err(CallError::Evicted) } if *c == call),
        );
        assert!(ended < invalidated);
    }
    let state = |s| move |e: &Event| matches!(e, Event::Import { state, .. } if *state == s);
    assert!(at(&state(S::Evicted)) < invalidated && invalidated < at(&state(S::Recover)));
    let (target, nid) = ("log-1".to_owned(), Nid::LOOPBACK);
    let lines = [
        LogLine::Lost { target: target.clone(), nid },
        LogLine::Evicted { target: target.clone(), nid },
        LogLine::Restored { target, nid },
    ];
    assert_eq!(bench.log(), lines);
    let call = bench.call(Bench::say(APPEND, "anew"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 1);
}

#[test]
fn p58_by_profile_requests_to_a_target_without_transactions_end_with_the_connection() {
    for (profile, ends) in [(Profile::Kernel, true), (Profile::Default, false)] {
        let mut bench = serving(Tunables::of(profile), |_| Vec::new());
        let import = bench.import;
        bench.rpc(bench.client, |rpc| rpc.connect(import));
        bench.settle();
        let call = bench.call(Bench::say(ECHO, "one"));
        bench.secs(17);
        let end = bench.end_of(call);
        assert_eq!(end, ends.then_some(Err(CallError::Evicted)), "{profile:?}");
    }
}

#[test]
fn p104_an_import_that_recovers_is_disconnected_when_it_has_recovered() {
    let connected = |flags| Said::connected(7, flags, data());
    let mut bench = scripted(Tunables::default(), config(ImportKind::Osc, data()), move |asked| {
        match asked.body.opcode {
            Opcode::OST_CONNECT if asked.body.conn_cnt == 1 => vec![connected(OpFlags::empty())],
            Opcode::OST_DISCONNECT => vec![Said::status(0)],
            _ => vec![],
        }
    });
    bench.call(Bench::say(ECHO, "never answered"));
    bench.secs(20);
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.disconnect(import));
    bench.settle();
    let states = [S::Connecting, S::Full, S::Disconnected, S::Connecting];
    assert_eq!(bench.states(), states, "it waits");
    let connect = bench.asked_for(Opcode::OST_CONNECT).pop().unwrap();
    bench.say_late(&connect, connected(OpFlags::RECONNECT));
    assert_eq!(bench.states()[4..], [S::Recover, S::Full, S::Connecting, S::Closed]);
    assert_eq!(bench.asked_for(Opcode::OST_DISCONNECT).len(), 1);
}

#[test]
fn p104_an_import_that_does_not_recover_is_closed_without_a_disconnect() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(ECHO, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.without_probes();
    bench.lose(|_, n| n <= 2);
    bench.call(Bench::say(ECHO, "lost"));
    // The first reconnect is lost too.
    bench.secs(20);
    assert_eq!(view(&mut bench).state, S::Connecting);
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.disconnect(import));
    bench.settle();
    assert_eq!(bench.states().last(), Some(&S::Connecting), "it waits");
    bench.secs(12);
    assert_eq!(bench.states().last(), Some(&S::Closed));
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn p104_a_disconnect_that_is_not_answered_is_waited_for_five_seconds() {
    let mut bench = serving(Tunables::default(), |_| Vec::new());
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.connect(import));
    bench.settle();
    bench.rpc(bench.client, |rpc| rpc.disconnect(import));
    bench.secs(4);
    assert_eq!(bench.states().last(), Some(&S::Connecting));
    let asked = bench.asked_for(Opcode::OST_DISCONNECT).remove(0);
    assert_eq!((asked.body.timeout, asked.body.last_xid), (11, 0));
    bench.secs(1);
    assert_eq!(bench.states().last(), Some(&S::Closed));
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn p55_the_last_sixteen_states_are_kept() {
    let mut bench = serving(Tunables::default(), |_| Vec::new());
    bench.call(Bench::say(ECHO, "never answered"));
    bench.secs(400);
    let states = bench.states();
    let history: Vec<S> = bench.states_at().iter().map(|(_, state)| *state).collect();
    assert!(states.len() > 16);
    assert_eq!(history, states[states.len() - 16..]);
}

#[test]
fn p60_an_import_says_which_node_is_next_and_why() {
    let other: Nid = "10.9.9.9@tcp".parse().unwrap();
    let mut both = config(ImportKind::Osc, data());
    both.nids.push(other);
    let mut bench = scripted(Tunables::default(), both, |asked| {
        if asked.connects() { vec![Said::connected(7, OpFlags::empty(), data())] } else { vec![] }
    });
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.connect(import));
    bench.settle();
    let view = view(&mut bench);
    use ChoiceReason as R;
    assert_eq!(view.choice, [(Nid::LOOPBACK, R::TurnedReady), (other, R::Behind)]);
    // The last good one is first.
    assert_eq!(view.next, [(Nid::LOOPBACK, R::Untried), (other, R::Behind)]);
}

#[test]
fn p60_each_connect_goes_where_its_explanation_said() {
    let nids: [Nid; 3] =
        ["10.9.9.9@tcp", "10.9.9.8@tcp", "10.9.9.7@tcp"].map(|n| n.parse().unwrap());
    for profile in [Profile::Kernel, Profile::Documents, Profile::Default] {
        let mut nowhere = config(ImportKind::Osc, data());
        nowhere.nids = nids.to_vec();
        let mut bench = scripted(Tunables::of(profile), nowhere, |_| vec![]);
        let import = bench.import;
        let said = |b: &mut Bench| b.rpc(b.client, |rpc| rpc.explain(import)).unwrap();
        let first = said(&mut bench);
        assert_eq!((first.due, first.never, first.all_tried), (None, None, false));
        assert_eq!(first.sent, profile != Profile::Kernel, "no node was discovered");
        bench.rpc(bench.client, |rpc| rpc.connect(import));
        let (mut last, mut compared) = (first, 0);
        for _ in 0..200 {
            bench.pass(Duration::from_millis(500));
            let now = said(&mut bench);
            let attempts = |e: &Explanation, nid| {
                e.nodes.iter().find(|node| node.nid == nid).map_or(0, |node| node.attempts)
            };
            // Two that fail at once may have had their turn.
            let tried = |nid: &Nid| attempts(&now, *nid) > attempts(&last, *nid);
            if let Some(next) = last.nodes.iter().find(|node| node.next)
                && nids.iter().any(&tried)
            {
                assert!(tried(&next.nid), "{profile:?}: {last}{now}");
                compared += 1;
            }
            last = now;
        }
        assert!(compared > 5, "{profile:?}: {compared}");
    }
}

#[test]
fn an_explanation_is_a_text_that_names_each_node_with_its_reason() {
    let other: Nid = "10.9.9.9@tcp".parse().unwrap();
    let mut both = config(ImportKind::Osc, data());
    both.nids.push(other);
    let mut bench = scripted(Tunables::default(), both, |asked| {
        if asked.connects() { vec![Said::connected(7, OpFlags::empty(), data())] } else { vec![] }
    });
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.connect(import));
    bench.settle();
    bench.secs(3);
    let text = bench.rpc(bench.client, |rpc| rpc.explain(import)).unwrap().to_string();
    let view = view(&mut bench);
    let expected = format!(
        "import {} of client {}: FULL\n\
         next: 0@lo, when the connection breaks\n\
         deadline: 10.0 s (5.0 s for the server, 5.0 s for the net)\n\
         pace: a node is left that was not tried since the last success; fast\n\
         * 0@lo: next: not tried since the last success; LNet: reachable; 1 of 1 attempts answered, \
         the last 3.0 s ago\n  \
         10.9.9.9@tcp: behind the next one; LNet: not discovered; 0 of 0 attempts answered\n",
        view.target, view.client
    );
    assert_eq!(text, expected);
    let unknown = bench.rpc(bench.client, |rpc| rpc.explain(99.into()));
    assert_eq!(unknown, None);
}

#[test]
fn imports_that_are_not_in_use_come_first_and_all_are_counted_by_state() {
    let mut bench = Bench::new(keeper());
    bench.call(Bench::say(APPEND, "kept"));
    let other = ImportConfig { client: "client-9".to_owned(), ..config(ImportKind::Osc, data()) };
    bench.rpc(bench.client, |rpc| rpc.import(other)).unwrap();
    let (states, worst, all) = bench.party_of(bench.client, |p, _| {
        (p.ptlrpc.import_states(), p.ptlrpc.worst_imports(1), p.ptlrpc.worst_imports(9).len())
    });
    assert_eq!(states.into_iter().collect::<Vec<_>>(), [(S::New, 1), (S::Full, 1)]);
    assert_eq!((worst[0].state, worst.len(), all), (S::New, 1, 2));
    let (second, import) = bench.new_client("client-2");
    bench.rpc(second, |rpc| rpc.connect(import));
    bench.settle();
    let exports = |b: &mut Bench, n| b.party_of(b.server, |p, _| p.ptlrpc.busiest_exports(n));
    let busiest = exports(&mut bench, 1);
    assert_eq!((busiest.len(), busiest[0].in_work), (1, 1));
    assert_eq!(exports(&mut bench, 9).len(), 2);
}

#[test]
fn p62_a_node_that_lnet_has_not_discovered_is_not_tried_in_profile_kernel() {
    for (profile, wanted) in [(Profile::Kernel, false), (Profile::Default, true)] {
        let mut nowhere = config(ImportKind::Osc, data());
        nowhere.nids = vec!["10.9.9.9@tcp".parse().unwrap(), Nid::LOOPBACK];
        let mut bench = scripted(Tunables::of(profile), nowhere, |asked| {
            let connect = Said::connected(7, OpFlags::empty(), data());
            if asked.connects() { vec![connect] } else { vec![] }
        });
        let import = bench.import;
        bench.rpc(bench.client, |rpc| rpc.connect(import));
        bench.secs(120);
        let view = view(&mut bench);
        assert_eq!((view.state, view.nid), (S::Full, Nid::LOOPBACK), "{profile:?}");
        let far = view.connections.iter().find(|c| c.nid != Nid::LOOPBACK).unwrap();
        assert_eq!(far.attempts > 0, wanted, "{profile:?}");
    }
}

#[test]
fn p62_a_connect_to_a_node_that_lnet_has_not_discovered_is_not_sent_and_fails_after_a_second() {
    let mut nowhere = config(ImportKind::Osc, data());
    nowhere.nids = vec!["10.9.9.9@tcp".parse().unwrap()];
    let mut bench = scripted(Tunables::of(Profile::Kernel), nowhere, |_| vec![]);
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.connect(import));
    bench.secs(2);
    let states = [(1000, S::Connecting), (1001, S::Disconnected)];
    assert_eq!(bench.states_at()[..2], states);
    let stats = bench.party_of(bench.client, |p, _| p.ptlrpc.client_stats());
    assert_eq!((stats.connects_failed, stats.sent), (1, 0));
}

#[test]
fn dec40_profile_kernel_leaves_lnet_its_own_time_and_says_so_once() {
    for (profile, warns) in [(Profile::Kernel, true), (Profile::Default, false)] {
        let mut bench = serving(Tunables::of(profile), |_| vec![Said::status(0)]);
        for _ in 0..3 {
            bench.call(Bench::say(ECHO, "one"));
        }
        let long = |line: &LogLine| matches!(line, LogLine::SlowLnet { .. });
        assert_eq!(bench.log().iter().filter(|line| long(line)).count(), usize::from(warns));
    }
}

#[test]
fn a_node_that_lnet_reaches_again_is_tried_at_once_but_not_more_than_once_a_second() {
    let far: Nid = "10.9.9.9@tcp".parse().unwrap();
    let mut nowhere = config(ImportKind::Osc, data());
    nowhere.nids = vec![far];
    let mut bench = scripted(Tunables::default(), nowhere, |_| vec![]);
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.connect(import));
    bench.settle();
    let tried = view(&mut bench).conn_cnt;
    assert_eq!(
        (view(&mut bench).state, view(&mut bench).refusal),
        (S::Disconnected, Some(CallError::TimedOut(far)))
    );
    // LNet has found it, and it is lost again each time.
    for _ in 0..10 {
        for op in 0..100 {
            let found = Found { asked: far, primary: far, multi_rail: false, nids: vec![far] };
            let report = Report { op: OpId(op), outcome: Ok(found) };
            bench.party_of(bench.client, |p, below| p.ptlrpc.report(&report, below));
        }
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(view(&mut bench).conn_cnt, tried + 1);
    // Without a report the pace is that of P-67: 5 s after the last attempt.
    bench.secs(3);
    assert_eq!(view(&mut bench).conn_cnt, tried + 1);
    bench.secs(3);
    assert_eq!(view(&mut bench).conn_cnt, tried + 2);
}

#[test]
fn p68_a_node_that_does_not_serve_the_target_is_not_asked_again_for_one_that_is_unreachable() {
    let far: Nid = "10.9.9.9@tcp".parse().unwrap();
    for profile in [Profile::Kernel, Profile::Default] {
        let mut both = config(ImportKind::Osc, data());
        both.nids = vec![far, Nid::LOOPBACK];
        let mut bench = scripted(Tunables::of(profile), both, |asked| {
            if asked.connects() { vec![Said::error(Errno::ENODEV)] } else { vec![] }
        });
        let now = bench.now;
        bench.node.peer_add(now, far, &[far], true, false).unwrap();
        bench.node.set_peer_ni_health(now, Some(far), 0);
        let import = bench.import;
        bench.rpc(bench.client, |rpc| rpc.connect(import));
        bench.secs(60);
        let of = |bench: &mut Bench, nid| {
            let mut connections = view(bench).connections.into_iter();
            let found = connections.find(|c| c.nid == nid).unwrap();
            (found.attempts, found.ready)
        };
        assert_eq!(of(&mut bench, far), (0, Readiness::Unreachable), "{profile:?}");
        let (attempts, _) = of(&mut bench, Nid::LOOPBACK);
        assert!((5..20).contains(&attempts), "{profile:?}: {attempts}");
        // LNet has been asked whether it reaches the other one again.
        while of(&mut bench, Nid::LOOPBACK).0 == attempts {
            bench.pass(Duration::from_millis(100));
        }
        let now = bench.now;
        bench.node.set_peer_ni_health(now, Some(far), 1000);
        for op in 0..100 {
            let found = Found { asked: far, primary: far, multi_rail: false, nids: vec![far] };
            let report = Report { op: OpId(op), outcome: Ok(found) };
            bench.party_of(bench.client, |p, below| p.ptlrpc.report(&report, below));
        }
        bench.pass(Duration::from_millis(1100));
        assert_ne!(of(&mut bench, far).1, Readiness::Unreachable, "{profile:?}");
    }
}

#[test]
fn calls_beyond_the_limit_of_an_import_are_refused_by_name() {
    let mut bench = serving(Tunables::default(), |_| Vec::new());
    let import = bench.import;
    bench.lose(|_, _| true);
    let limit = crate::CALLS_PER_IMPORT_MAX;
    let refused = bench.rpc(bench.client, |rpc| {
        rpc.connect(import);
        let calls = (0..=limit).map(|_| rpc.call(import, Bench::say(ECHO, "one")));
        calls.filter_map(Result::err).collect::<Vec<_>>()
    });
    assert_eq!(refused, [CallError::TooMany { what: "calls", limit }]);
    assert_eq!(refused[0].to_string(), "calls: the limit is 65536");
}

#[test]
fn p101_the_pinger_looks_again_five_seconds_after_its_connect_unless_a_request_went_before() {
    for with_call in [false, true] {
        let mut bench = Bench::new(append_log());
        let call = bench.call(Bench::say(ECHO, "one"));
        assert!(bench.end_of(call).unwrap().is_ok());
        // A ping is lost, and the attempts to connect after it, but for the last one.
        bench.lose(|_, _| true);
        bench.secs(50);
        if with_call {
            bench.call(Bench::say(ECHO, "two"));
        }
        bench.loses = None;
        while view(&mut bench).state != S::Full {
            bench.secs(1);
        }
        bench.pass(Duration::from_millis(10));
        let sent = bench.sent;
        bench.secs(6);
        let pings = bench.sent - sent;
        assert_eq!(pings, if with_call { 0 } else { 2 }, "a ping with its reply");
        let sent = bench.sent;
        bench.secs(10);
        assert_eq!(bench.sent, sent);
    }
}
