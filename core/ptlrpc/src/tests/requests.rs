//! What becomes of one request: progress, replies, deadlines (P-83 … P-86, P-94 … P-98), against a
//! scripted server.

use core::time::Duration;

use lnet::Profile;
use lnet_types::{Errno, Nid};
use lustre_wire::{BodyFlags, Opcode};

use super::bench::{Bench, ECHO};
use super::script::{Said, serving};
use crate::{Call, CallError, ImportState as S, Tunables};

fn view(bench: &mut Bench) -> crate::ImportView {
    let import = bench.import;
    bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import)).unwrap()
}

fn once() -> Call {
    Call { resend: false, ..Bench::say(ECHO, "once") }
}

/// Seconds of the bench at which copies of a request arrived.
fn sent_at(bench: &mut Bench) -> Vec<u64> {
    bench.asked_for(ECHO).iter().map(|asked| asked.at.as_secs() - 1000).collect()
}

fn connected(
    tunables: Tunables,
    play: impl FnMut(&super::script::Asked) -> Vec<Said> + Send + 'static,
) -> Bench {
    let mut bench = serving(tunables, play);
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.connect(import));
    bench.settle();
    bench
}

/// No probes: only deadlines say that there is no answer.
fn patient() -> Tunables {
    Tunables { probes: false, ..Tunables::default() }
}

#[test]
fn p83_each_row_of_a_requests_progress() {
    let nid = Nid::LOOPBACK;
    let silent = |_: &super::script::Asked| Vec::new();

    // Not answered: expired, and again with RESENT when there is a connection.
    let mut bench = connected(patient(), silent);
    let call = bench.call(Bench::say(ECHO, "again"));
    bench.secs(17);
    let copies = bench.asked_for(ECHO);
    assert_eq!(sent_at(&mut bench), [0, 16], "timed out");
    assert_eq!(copies[0].xid, copies[1].xid, "timed out");
    assert!(!copies[0].body.flags.contains(BodyFlags::RESENT), "timed out");
    assert!(copies[1].body.flags.contains(BodyFlags::RESENT), "timed out");
    assert_ne!(copies[0].body.mbits, copies[1].body.mbits, "timed out");
    assert_eq!(bench.end_of(call), None, "timed out");

    // Not answered, and may not be repeated.
    let mut bench = connected(patient(), silent);
    let call = bench.call(once());
    bench.secs(17);
    assert_eq!(bench.end_of(call), Some(Err(CallError::TimedOut(nid))), "not resendable");
    assert_eq!(bench.asked_for(ECHO).len(), 1, "not resendable");
    assert_eq!(view(&mut bench).state, S::Full, "the import has connected again");

    // A connection that broke while others were sent: each goes again, once.
    let mut bench = connected(patient(), silent);
    let calls = [0; 3].map(|_| bench.call(Bench::say(ECHO, "each")));
    let lost = bench.call(once());
    bench.secs(17);
    assert_eq!(sent_at(&mut bench), [0, 0, 0, 0, 16, 16, 16], "waiting");
    assert_eq!(bench.end_of(lost), Some(Err(CallError::TimedOut(nid))), "waiting");
    assert!(calls.iter().all(|call| bench.end_of(*call).is_none()), "waiting");

    // A limit that passes ends it, wherever it is.
    let limit = Some(Duration::from_secs(20));
    let mut bench = connected(patient(), silent);
    let call = bench.call(Call { limit, ..Bench::say(ECHO, "limited") });
    bench.secs(19);
    assert_eq!((bench.end_of(call), sent_at(&mut bench)), (None, vec![0, 16]), "limit");
    bench.secs(1);
    assert_eq!(bench.end_of(call), Some(Err(CallError::LimitPassed)), "limit");
    assert_eq!(bench.client_descriptors(), 0, "limit");

    // An early reply, then the real one.
    let mut bench = connected(Tunables::default(), |_| vec![Said::early(40), Said::status(3)]);
    let call = bench.call(Bench::say(ECHO, "early"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().status, 3, "early, real");
    // Two real ones: the call has one end.
    let mut bench = connected(Tunables::default(), |_| vec![Said::status(3), Said::status(4)]);
    let call = bench.call(Bench::say(ECHO, "twice"));
    assert!(bench.end_of(call).unwrap().is_ok(), "real, real");
    assert_eq!(bench.client_descriptors(), 0, "real, real");
}

#[test]
fn p83_p87_a_request_that_the_net_refuses_goes_again_after_a_second_or_ends_at_once() {
    let mut bench = connected(Tunables::default(), |_| vec![Said::status(0)]);
    let begin = bench.now;
    let refuse = |bench: &mut Bench| {
        bench.refuses =
            Some(Box::new(|t| matches!(t.hdr.kind, lnet_wire::Kind::Put { portal: 28, .. })));
    };
    // May be repeated: the import loses its connection at once and makes another, over which the
    // request goes as a copy, not sooner than a second after it went.
    refuse(&mut bench);
    let call = bench.call(Bench::say(ECHO, "again"));
    assert_ne!(view(&mut bench).state, S::Full, "no deadline is waited for");
    bench.refuses = None;
    bench.secs(30);
    assert!(bench.end_of(call).unwrap().is_ok());
    let copies = bench.asked_for(ECHO);
    assert_eq!(copies.len(), 1, "the first one never arrived");
    assert!(copies[0].body.flags.contains(BodyFlags::RESENT));
    assert!(copies[0].at >= begin + Duration::from_secs(1), "{:?}", copies[0].at);
    // May not.
    refuse(&mut bench);
    let call = bench.call(once());
    assert_eq!(bench.end_of(call), Some(Err(CallError::TimedOut(Nid::LOOPBACK))));
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn p85_a_server_that_forgets_its_client_again_and_again_is_asked_once_a_second() {
    let mut bench = connected(Tunables::default(), |_| vec![Said::error(Errno::ENOTCONN)]);
    let call = bench.call(Bench::say(ECHO, "who?"));
    bench.secs(3);
    // The first copy at once, further ones after a second each.
    assert_eq!(sent_at(&mut bench), [0, 0, 1, 2, 3]);
    assert_eq!(bench.end_of(call), None);
    let call = bench.call(once());
    let nid = Nid::LOOPBACK;
    assert_eq!(bench.end_of(call), Some(Err(CallError::TimedOut(nid))));
}

#[test]
fn p85_in_progress_is_asked_again_under_new_numbers_after_pauses_that_grow() {
    let mut bench =
        connected(Tunables::default(), |_| vec![Said::status(Errno::EINPROGRESS.negative())]);
    let call = bench.call(Bench::say(ECHO, "busy"));
    bench.secs(100);
    // After 1, 2, 3 … s, at most the server's time: 11 s.
    let at = sent_at(&mut bench);
    assert_eq!(at, [0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66, 77, 88, 99]);
    let mut xids: Vec<u64> = bench.asked_for(ECHO).iter().map(|asked| asked.xid).collect();
    xids.dedup();
    assert_eq!(xids.len(), at.len());
    let resent = |asked: &super::script::Asked| asked.body.flags.contains(BodyFlags::RESENT);
    assert!(!bench.asked_for(ECHO).iter().any(resent));
    assert_eq!(bench.end_of(call), None);
    let call = bench.call(once());
    assert_eq!(bench.end_of(call), Some(Err(CallError::Refused(Errno::EINPROGRESS))));
}

#[test]
fn p86_only_the_failure_of_a_request_over_the_present_connection_disconnects() {
    let mut silent = true;
    let mut bench = connected(patient(), move |asked| {
        let ping = asked.body.opcode == Opcode::OBD_PING;
        if ping || core::mem::take(&mut silent) { vec![] } else { vec![Said::status(0)] }
    });
    bench.call(Bench::say(ECHO, "never answered"));
    bench.secs(10);
    // A younger one, answered: its own silence is still a failure.
    let call = bench.call(Bench::say(ECHO, "answered"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.secs(7);
    assert_eq!(bench.states()[2..4], [S::Disconnected, S::Connecting]);
    assert_eq!(view(&mut bench).conn_cnt, 2);
    // A ping that is not answered says nothing if a younger request was.
    bench.secs(23);
    let pings = bench.asked_for(Opcode::OBD_PING).len();
    assert_eq!(pings, 0);
    bench.secs(2);
    assert_eq!(bench.asked_for(Opcode::OBD_PING).len(), 1);
    bench.call(Bench::say(ECHO, "younger"));
    bench.secs(18);
    assert_eq!(view(&mut bench).conn_cnt, 2);
    // One that is the youngest disconnects.
    bench.secs(30);
    assert_eq!(view(&mut bench).conn_cnt, 3);
}

#[test]
fn p94_each_service_has_its_estimate_and_the_net_has_one() {
    let mut bench = connected(Tunables::default(), |asked| {
        let mut said = Said::status(0);
        said.body.timeout = if asked.body.opcode == ECHO { 100 } else { 30 };
        vec![said]
    });
    bench.call(Bench::say(ECHO, "slow service"));
    bench.call(Bench::say(Opcode::OST_PUNCH, "other service"));
    let secs = |(portal, estimate): &(u32, Duration)| (*portal, estimate.as_secs());
    let services: Vec<_> = view(&mut bench).services.iter().map(secs).collect();
    assert_eq!(services, [(6, 30), (28, 100)]);
    assert_eq!(view(&mut bench).net.as_secs(), 5, "the least");
}

#[test]
fn p95_p96_deadlines_by_profile_and_by_what_was_learnt() {
    let of = Tunables::of;
    let secs = Duration::from_secs;
    let at_min = |profile| Tunables { at_min: secs(40), ..of(profile) };
    let off = |profile| Tunables { at_max: Duration::ZERO, ..of(profile) };
    for (row, tunables, deadline, field) in [
        ("defaults", of(Profile::Default), 16, 11),
        ("at_min 40", at_min(Profile::Default), 95, 55),
        ("adaptive time-outs off", off(Profile::Default), 100, 100),
        ("kernel", of(Profile::Kernel), 16, 11),
        ("documents", of(Profile::Documents), 10, 5),
        ("documents, at_min 40", at_min(Profile::Documents), 80, 40),
    ] {
        let mut bench = connected(tunables, |_| Vec::new());
        let call = bench.call(once());
        bench.secs(deadline - 1);
        assert_eq!(bench.end_of(call), None, "{row}");
        bench.secs(1);
        assert!(bench.end_of(call).is_some(), "{row}");
        assert_eq!(bench.asked_for(ECHO)[0].body.timeout, field, "{row}");
    }
}

#[test]
fn p97_replies_teach_what_the_service_says_and_what_the_net_took() {
    // (seconds until the reply, service time that it says) → the net's estimate.
    for (row, waits, worked, net) in [
        ("all of it was service", 9, 9, 5),
        ("none of it was service", 9, 0, 10),
        ("the reply to an earlier sending", 2, 6, 5),
        ("almost one", 2, 5, 5),
    ] {
        let mut bench = connected(Tunables::default(), |_| Vec::new());
        let call = bench.call(Bench::say(ECHO, "taught"));
        bench.secs(waits);
        let asked = bench.asked_for(ECHO).remove(0);
        let mut said = Said::status(0);
        (said.body.service_time, said.body.timeout) = (worked, 0);
        bench.say_late(&asked, said);
        assert!(bench.end_of(call).unwrap().is_ok(), "{row}");
        let view = view(&mut bench);
        assert_eq!(view.net.as_secs(), net, "{row}");
        assert_eq!(view.services[0].1.as_secs(), 5, "{row}: a time of 0 counts for nothing");
    }
}

#[test]
fn p97_the_reply_to_an_earlier_sending_ages_no_estimate() {
    let secs = Duration::from_secs;
    let tunables = Tunables { at_min: secs(1), at_history: secs(4), ..Tunables::default() };
    let mut bench = connected(tunables, |_| Vec::new());
    let mut answer = |waits, worked| {
        bench.call(Bench::say(ECHO, "taught"));
        bench.secs(waits);
        let asked = bench.asked_for(ECHO).pop().unwrap();
        let mut said = Said::status(0);
        said.body.service_time = worked;
        bench.say_late(&asked, said);
        view(&mut bench).net.as_secs()
    };
    assert_eq!(answer(4, 0), 5);
    // It worked longer than the reply took, and 3 s: not on what was sent last.
    assert_eq!(answer(5, 9), 5);
    assert_eq!(answer(5, 8), 1, "this one counts, and the peak is of long ago");
}

#[test]
fn p98_early_replies_move_the_deadline_and_are_not_learnt() {
    let mut bench = connected(Tunables::default(), |_| vec![Said::early(37)]);
    let call = bench.call(once());
    // 37 s for the server, 5 s for the net.
    bench.secs(41);
    assert_eq!(bench.end_of(call), None);
    assert_eq!(view(&mut bench).services[0].1.as_secs(), 5);
    bench.secs(1);
    assert!(bench.end_of(call).is_some());
    // One whose checksum is wrong, or that is no reply, is ignored.
    let mut broken = Said::early(37);
    broken.raw = Some(vec![0x5a; 224]);
    let mut bench = connected(Tunables::default(), move |_| vec![broken.clone()]);
    let call = bench.call(once());
    bench.secs(16);
    assert!(bench.end_of(call).is_some());
}

#[test]
fn p98_copy_of_a_request_has_the_time_that_an_early_reply_has_named() {
    let mut first = true;
    let mut bench = connected(patient(), move |asked| {
        let answers = asked.body.opcode == ECHO && core::mem::take(&mut first);
        if answers { vec![Said::early(37)] } else { Vec::new() }
    });
    bench.call(Bench::say(ECHO, "slow"));
    bench.secs(60);
    let times: Vec<u32> = bench.asked_for(ECHO).iter().map(|asked| asked.body.timeout).collect();
    assert!(times.len() > 1 && times[0] < 37, "{times:?}");
    assert_eq!(times[1], 37);
}

#[test]
fn p2_whole_seconds_let_a_request_expire_at_a_whole_second() {
    let tunables = Tunables::of(Profile::Kernel);
    let mut bench = connected(tunables, |_| Vec::new());
    bench.pass(Duration::from_millis(700));
    let call = bench.call(once());
    bench.pass(Duration::from_millis(15_200));
    assert_eq!(bench.end_of(call), None);
    bench.pass(Duration::from_millis(100));
    assert!(bench.end_of(call).is_some(), "at 16.0 s, sent at 0.7 s");
}
