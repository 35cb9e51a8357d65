//! What the client makes of the answers to its connects (P-65, P-67), against a scripted server.

use lnet_types::Errno;
use lustre_wire::connect::{ChecksumKinds, ConnectFlags, ConnectFlags2};
use lustre_wire::{BodyFlags, ConnectData, ImportKind, OpFlags, Opcode};

use super::bench::{APPEND, Bench, ECHO, data};
use super::script::{Said, config, scripted, serving};
use crate::{CallError, Event, ImportState as S, ImportView, LogLine, Tunables};

const NONE: OpFlags = OpFlags::empty();

/// Answers connects one after the other; the last answer is that to all that follow. Calls are
/// answered; one that appends has transaction 5.
fn connecting(kind: ImportKind, wanted: ConnectData, mut answers: Vec<Said>) -> Bench {
    scripted(Tunables::default(), config(kind, wanted), move |asked| {
        if asked.connects() {
            return vec![if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }];
        }
        let mut said = Said::status(0);
        said.body.transno = if asked.body.opcode == APPEND { 5 } else { 0 };
        vec![said]
    })
}

fn view(bench: &mut Bench) -> ImportView {
    let import = bench.import;
    bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import)).unwrap()
}

fn connected(handle: u64, flags: OpFlags) -> Said {
    Said::connected(handle, flags, data())
}

/// Connect data of our version with more in them.
fn with(change: impl FnOnce(&mut ConnectData)) -> ConnectData {
    let mut data = ConnectData { version: crate::VERSION, ..data() };
    change(&mut data);
    data
}

/// Connects, has one call answered, loses the connection, connects again: the states from there.
fn again(first: Said, cached: bool, second: Said) -> (Bench, Vec<S>) {
    let mut bench = connecting(ImportKind::Osc, data(), vec![first, second]);
    let call = bench.call(Bench::say(if cached { APPEND } else { ECHO }, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let known = bench.states().len();
    bench.lose(|_, n| n == 1);
    bench.call(Bench::say(ECHO, "lost"));
    bench.secs(17);
    let states = bench.states()[known..].to_vec();
    (bench, states)
}

#[test]
fn p65_1_an_import_that_ends_before_its_connect_is_answered_ends_its_export() {
    let mut bench = serving(Tunables::default(), |_| Vec::new());
    let import = bench.import;
    bench.rpc(bench.client, |rpc| {
        rpc.connect(import);
        rpc.disconnect(import);
    });
    bench.secs(20);
    assert_eq!(bench.states()[..3], [S::Connecting, S::Full, S::Connecting]);
    assert_eq!(bench.states().last(), Some(&S::Closed));
    assert!(!bench.asked_for(Opcode::OST_DISCONNECT).is_empty());
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn p65_2_a_failed_connect_ends_the_calls_that_may_not_be_repeated() {
    let mut bench =
        connecting(ImportKind::Osc, data(), vec![connected(7, NONE), Said::error(Errno::ENOMEM)]);
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.connect(import));
    bench.settle();
    bench.lose(|_, n| n == 1);
    let lost = bench.call(Bench::say(ECHO, "lost"));
    bench.secs(16);
    let once = crate::Call { resend: false, ..Bench::say(ECHO, "once") };
    let once = bench.call(once);
    bench.secs(12);
    assert_eq!(bench.end_of(once), Some(Err(CallError::ConnectFailed)));
    assert_eq!(CallError::ConnectFailed.errno(), Errno::EIO);
    assert_eq!(bench.end_of(lost), None, "this one goes again");
}

#[test]
fn p65_2_a_busy_server_is_tried_again_at_the_same_node() {
    for errno in [Errno::EBUSY, Errno::EAGAIN] {
        let mut config = config(ImportKind::Osc, data());
        config.nids.push("10.9.9.9@tcp".parse().unwrap());
        let mut busy = 3;
        let mut bench = scripted(Tunables::default(), config, move |asked| {
            busy -= i32::from(asked.connects() && busy > 0);
            vec![if busy > 0 { Said::error(errno) } else { connected(7, NONE) }]
        });
        let import = bench.import;
        bench.rpc(bench.client, |rpc| rpc.connect(import));
        bench.secs(40);
        let view = view(&mut bench);
        assert_eq!((view.state, view.conn_cnt), (S::Full, 3), "{errno:?}");
        assert_eq!(view.connections[1].attempts, 0, "the other node was not tried");
    }
}

#[test]
fn p65_3_to_7_terms_that_were_not_asked_for_are_refused() {
    let refused = |kind, wanted: ConnectData, said: Said| {
        let mut bench = connecting(kind, wanted, vec![said]);
        let import = bench.import;
        bench.rpc(bench.client, |rpc| rpc.connect(import));
        bench.settle();
        (bench.states()[1], view(&mut bench).refusal)
    };
    let granted = |data| Said::connected(7, NONE, data);
    let eproto = (S::Disconnected, Some(CallError::Refused(Errno::EPROTO)));
    let osc = ImportKind::Osc;

    let (state, why) = refused(osc, data(), Said::status(0));
    assert_eq!(state, S::Disconnected, "3");
    assert_eq!(why.map(CallError::errno), Some(Errno::EPROTO), "3: {why:?}");
    let more = with(|d| d.flags |= ConnectFlags::GRANT);
    assert_eq!(refused(osc, data(), granted(more)), eproto, "5, first word");
    let more = with(|d| d.flags2 |= ConnectFlags2::LSEEK);
    assert_eq!(refused(osc, data(), granted(more)), eproto, "5, second word");
    let sums = with(|d| d.flags |= ConnectFlags::CKSUM);
    let wanted = ConnectData { cksum_types: ChecksumKinds::CRC32, ..sums };
    let other = ConnectData { cksum_types: ChecksumKinds::ADLER, ..sums };
    assert_eq!(refused(osc, wanted, granted(other)), eproto, "7");
}

#[test]
fn p65_4_to_7_what_a_connect_settles() {
    let flags = ConnectFlags::CKSUM | ConnectFlags::BRW_SIZE | ConnectFlags::MULTIMODRPCS;
    let wanted = with(|d| {
        d.flags |= flags;
        d.cksum_types = ChecksumKinds::ADLER | ChecksumKinds::CRC32;
        d.brw_size = 4 << 20;
        d.maxmodrpcs = 8;
    });
    let granted = ConnectData {
        cksum_types: ChecksumKinds::CRC32 | ChecksumKinds::CRC32C,
        brw_size: (1 << 20) + 5,
        maxmodrpcs: 3,
        ..wanted
    };
    for (row, said, sums, brw_size, mod_rpcs) in [
        ("all granted", granted, ChecksumKinds::CRC32, 1 << 20, 3),
        ("none granted", with(|_| {}), ChecksumKinds::ADLER, 4096, 1),
    ] {
        let mut bench = connecting(ImportKind::Osc, wanted, vec![Said::connected(7, NONE, said)]);
        let import = bench.import;
        bench.rpc(bench.client, |rpc| rpc.connect(import));
        bench.settle();
        let view = view(&mut bench);
        let terms = view.terms;
        assert_eq!((terms.checksums, terms.brw_size), (sums, brw_size), "{row}");
        assert_eq!((terms.mod_rpcs, view.granted), (mod_rpcs, said), "{row}");
        assert_eq!(view.connections[0].replies, 1, "{row}");
    }
}

#[test]
fn p65_6_the_nets_estimate_begins_anew_with_a_connection() {
    let mut bench = serving(Tunables::default(), |_| vec![Said::status(0)]);
    let import = bench.import;
    bench.lose(|_, n| n <= 3);
    bench.rpc(bench.client, |rpc| rpc.connect(import));
    bench.secs(46);
    let pace = view(&mut bench);
    // P-61: 10, 15, 20 s with one NID, so the estimate has grown to 15 s by the third.
    assert_eq!((pace.conn_cnt, pace.state, pace.net.as_secs()), (4, S::Full, 5));
    let at: Vec<u64> = bench.states_at().iter().map(|(at, _)| at - 1000).collect();
    assert_eq!(at[..7], [0, 10, 10, 25, 25, 45, 45]);
}

#[test]
fn p65_8_the_first_connect() {
    for (row, flags, states) in [
        ("in use", NONE, &[S::Connecting, S::Full][..]),
        (
            "recovering",
            OpFlags::RECOVERING,
            &[S::Connecting, S::ReplayLocks, S::ReplayWait, S::Recover, S::Full],
        ),
    ] {
        for replayable in [false, true] {
            let flags = if replayable { flags | OpFlags::REPLAYABLE } else { flags };
            let mut bench = connecting(ImportKind::Osc, data(), vec![connected(7, flags)]);
            bench.call(Bench::say(APPEND, "one"));
            assert_eq!(bench.states(), states, "{row}");
            assert_eq!(view(&mut bench).replayable, replayable, "{row}");
        }
    }
}

#[test]
fn p65_9_to_12_a_reconnect_by_what_the_server_says_and_what_was_cached() {
    let (known, recovering) = (OpFlags::RECONNECT, OpFlags::RECOVERING);
    let lost = [S::Disconnected, S::Connecting];
    let evicted = [S::Evicted, S::Recover, S::Full];
    let replays = [S::Replay, S::ReplayLocks, S::ReplayWait, S::Recover, S::Full];
    for (step, first, cached, handle, flags, wanted) in [
        ("9 same export", NONE, true, 7, known, &[S::Recover, S::Full][..]),
        ("9 new export", NONE, true, 8, known, &evicted),
        ("9 new export, nothing cached", NONE, false, 8, known, &[S::Recover, S::Full]),
        ("9 recovering", NONE, true, 7, known | recovering, &replays),
        ("9 recovering, requests replayed", recovering, true, 7, known | recovering, &replays[1..]),
        ("9 no export named", NONE, true, 0, known, &[S::Disconnected]),
        ("10 restarted, recovering", NONE, true, 8, recovering, &replays),
        ("12 restarted", NONE, true, 8, NONE, &evicted),
        ("12 restarted, nothing cached", NONE, false, 8, NONE, &[S::Full]),
    ] {
        let (mut bench, states) = again(connected(7, first), cached, connected(handle, flags));
        assert_eq!(states[..lost.len() + wanted.len()], [&lost[..], wanted].concat(), "{step}");
        let invalidated = bench.party_of(bench.client, |p, _| {
            p.events.iter().filter(|e| matches!(e, Event::Invalidated { .. })).count()
        });
        assert_eq!(invalidated == 1, wanted.contains(&S::Evicted), "{step}");
    }
}

#[test]
fn p65_13_a_server_that_lost_commits_is_reported_and_used() {
    let mut less = connected(7, OpFlags::RECONNECT);
    less.body.last_committed = 2;
    let mut bench = serving(Tunables::default(), |_| {
        let mut said = Said::status(0);
        (said.body.transno, said.body.last_committed) = (5, 5);
        vec![said]
    });
    bench.call(Bench::say(APPEND, "one"));
    assert_eq!(view(&mut bench).committed, 5);
    bench.play(move |asked| vec![if asked.connects() { less.clone() } else { Said::status(0) }]);
    bench.lose(|_, n| n == 1);
    let call = bench.call(Bench::say(ECHO, "lost"));
    bench.secs(17);
    assert!(bench.end_of(call).unwrap().is_ok());
    let target = "log-1".to_owned();
    let line = LogLine::LostCommits { target, known: 5, now: 2 };
    assert!(bench.log().contains(&line), "{:?}", bench.log());
}

#[test]
fn p65_14_what_is_replayed_is_unanswered_again() {
    let first = connected(7, OpFlags::REPLAYABLE);
    let restarted = connected(8, OpFlags::REPLAYABLE | OpFlags::RECOVERING);
    let (mut bench, _) = again(first, true, restarted);
    let appends = bench.asked_for(APPEND);
    assert_eq!(appends.len(), 2);
    let replay = &appends[1];
    assert!(replay.body.flags.contains(BodyFlags::REPLAY));
    assert_eq!((replay.xid, replay.body.transno), (appends[0].xid, 5));
    assert_eq!(replay.body.last_xid, replay.xid - 1);
}

#[test]
fn p65_15_a_replay_that_the_server_does_not_know_connects_again() {
    let replayable = OpFlags::REPLAYABLE;
    let mut exports = 7;
    let mut refuse = true;
    let mut bench = scripted(Tunables::default(), config(ImportKind::Osc, data()), move |asked| {
        if asked.connects() {
            exports += 1;
            let flags = if exports == 8 { NONE } else { OpFlags::RECOVERING };
            return vec![connected(exports, replayable | flags)];
        }
        if asked.body.flags.contains(BodyFlags::REPLAY) && core::mem::take(&mut refuse) {
            return vec![Said::error(Errno::ENOTCONN)];
        }
        let mut said = Said::status(0);
        said.body.transno = if asked.body.opcode == APPEND { 5 } else { 0 };
        vec![said]
    });
    bench.call(Bench::say(APPEND, "one"));
    bench.lose(|_, n| n == 1);
    bench.call(Bench::say(ECHO, "lost"));
    bench.secs(17);
    let states = bench.states();
    let wanted = [
        S::Disconnected,
        S::Connecting,
        S::Replay,
        S::Connecting,
        S::Replay,
        S::ReplayLocks,
        S::ReplayWait,
        S::Recover,
        S::Full,
    ];
    assert_eq!(states[2..], wanted);
    assert_eq!(bench.asked_for(APPEND).len(), 3);
}

#[test]
fn p67_a_server_that_refuses_for_good_is_not_asked_again_before_the_program_wants_it() {
    for errno in [Errno::EACCES, Errno::EROFS, Errno::EPERM] {
        let mut bench =
            connecting(ImportKind::Osc, data(), vec![Said::error(errno), connected(7, NONE)]);
        let call = bench.call(Bench::say(ECHO, "refused"));
        assert_eq!(bench.end_of(call), Some(Err(CallError::Refused(errno))));
        bench.secs(300);
        assert_eq!(bench.asked().len(), 1);
        let late = bench.call(Bench::say(ECHO, "late"));
        assert_eq!(bench.end_of(late), Some(Err(CallError::Refused(errno))));
        assert!(view(&mut bench).deactivated);
        let import = bench.import;
        bench.rpc(bench.client, |rpc| rpc.connect(import));
        bench.settle();
        let call = bench.call(Bench::say(ECHO, "once more"));
        assert!(bench.end_of(call).unwrap().is_ok());
    }
}

#[test]
fn p67_a_refusal_for_good_of_a_known_client_makes_void_what_it_has() {
    let (mut bench, states) = again(connected(7, NONE), true, Said::error(Errno::EACCES));
    assert_eq!(states, [S::Disconnected, S::Connecting, S::Disconnected]);
    let events = bench.party_of(bench.client, |p, _| p.events.clone());
    assert_eq!(events.iter().filter(|e| matches!(e, Event::Invalidated { .. })).count(), 1);
}

#[test]
fn p67_terms_of_another_version_close_the_import() {
    let more = ConnectData { version: 99 << 24, ..with(|d| d.flags |= ConnectFlags::GRANT) };
    let mut bench = connecting(ImportKind::Osc, data(), vec![Said::connected(7, NONE, more)]);
    let call = bench.call(Bench::say(ECHO, "one"));
    assert_eq!(bench.end_of(call), Some(Err(CallError::Closed)));
    assert_eq!(bench.states(), [S::Connecting, S::Closed]);
}

#[test]
fn p64_a_connect_carries_what_the_server_needs_to_know() {
    let mut bench = serving(Tunables::default(), |_| Vec::new());
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.connect(import));
    bench.settle();
    let asked = bench.asked_for(Opcode::OST_CONNECT).remove(0);
    let body = asked.body;
    // P-64, P-93: 5 s for the server, the estimate behind 11 s; nothing of a connection yet.
    assert_eq!((body.timeout, body.service_time, body.conn_cnt), (5, 4, 1));
    assert_eq!((body.op_flags, body.handle, body.mbits), (OpFlags::INITIAL, 0, 0));
    assert_eq!(asked.header.flags.bits(), 0);
}
