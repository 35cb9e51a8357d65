//! Early replies by the example of the reference, their end, and what is said of a server that is too
//! slow for them.

use core::time::Duration;

use lustre_wire::{BodyFlags, Opcode};

use super::bench::{APPEND, Bench, keeper};
use super::raw::{Raw, connected};
use crate::{Answer, Event, Tunables};

fn tune(bench: &mut Bench, change: impl FnOnce(&mut Tunables)) {
    bench.party_of(bench.server, |p, _| {
        let mut tunables = p.ptlrpc.tunables().clone();
        change(&mut tunables);
        p.ptlrpc.set_tunables(tunables);
    });
}

/// Second, service_time and timeout of each early reply to a request that has 11 s.
fn early_replies(bench: &mut Bench, raw: &Raw, secs: u32) -> Vec<(u32, u32, u32)> {
    let mut seen = Vec::new();
    for second in 1..=secs {
        bench.secs(1);
        if let Some(early) = raw.early(bench) {
            let last = (early.service_time, early.timeout);
            if seen.last().is_none_or(|(_, service_time, _)| *service_time != last.0) {
                seen.push((second, last.0, last.1));
            }
        }
    }
    seen
}

#[test]
fn early_replies_leave_at_6_31_and_56_seconds_and_each_asks_for_30_more() {
    // P-126.
    let mut bench = Bench::new(keeper());
    let (handle, xid) = connected(&mut bench);
    let raw = Raw::send(&mut bench, xid, &Raw::body(handle));
    let early = early_replies(&mut bench, &raw, 40);
    assert_eq!(early, [(6, 6, 36), (31, 31, 61)]);
    let served = bench.kept().last().unwrap().id;
    bench.rpc(bench.server, |rpc| rpc.reply(served, Answer::default()));
    bench.settle();
    let reply = raw.reply(&bench).unwrap();
    assert_eq!((reply.service_time, reply.timeout), (40, 61));
    // What is asked for one request is the estimate for all: a ping of the bench's client has brought
    // it 36 s, its next reply brings 61 s, and a quarter and 5 s are added (P-92).
    for expected in [50, 81] {
        let call = bench.call(Bench::say(APPEND, "next"));
        let served = bench.kept().last().unwrap().clone();
        assert_eq!(served.body.timeout, expected);
        bench.rpc(bench.server, |rpc| rpc.reply(served.id, Answer::default()));
        bench.settle();
        assert!(bench.end_of(call).unwrap().is_ok());
    }
}

#[test]
fn no_deadline_is_moved_beyond_at_max_but_with_the_defect_of_old_servers() {
    // P-125, PA-101.
    for (defect, longest) in [(false, 600), (true, 1236)] {
        let mut bench = Bench::new(keeper());
        tune(&mut bench, |t| t.early_reply_defect = defect);
        let (handle, xid) = connected(&mut bench);
        let raw = Raw::send(&mut bench, xid, &Raw::body(handle));
        let early = early_replies(&mut bench, &raw, 1210);
        assert_eq!(early[..3], [(6, 6, 36), (31, 31, 61), (56, 56, 86)]);
        assert_eq!(early.iter().map(|(_, _, timeout)| *timeout).max(), Some(longest));
        if !defect {
            assert_eq!(early.last(), Some(&(581, 581, 600)));
            assert_eq!(early.len(), 24);
        }
    }
}

#[test]
fn p110_copy_with_an_earlier_deadline_has_its_early_reply_before_that() {
    let mut bench = Bench::new(keeper());
    let (handle, xid) = connected(&mut bench);
    let body = Raw::body(handle);
    let first = Raw::send(&mut bench, xid, &body);
    assert_eq!(early_replies(&mut bench, &first, 20), [(6, 6, 36)]);
    // Its client has connected anew, and waits for 11 s from now on.
    let flags = BodyFlags::RESENT;
    Raw::send(&mut bench, xid, &lustre_wire::Body { flags, ..body });
    assert_eq!(early_replies(&mut bench, &first, 12), [(1, 6, 36), (6, 26, 56)]);
}

#[test]
fn at_early_margin_and_at_extra_say_when_and_for_how_much() {
    let mut bench = Bench::new(keeper());
    tune(&mut bench, |t| {
        t.at_early_margin = Duration::from_secs(2);
        t.at_extra = Duration::from_secs(10);
    });
    let (handle, xid) = connected(&mut bench);
    let raw = Raw::send(&mut bench, xid, &Raw::body(handle));
    assert_eq!(early_replies(&mut bench, &raw, 30), [(9, 9, 19), (17, 17, 27), (25, 25, 35)]);
}

#[test]
fn a_request_of_recovery_gets_a_quarter_of_the_window_at_most_and_teaches_nothing() {
    // P-124.2, P-122: with obd_timeout 20 a quarter of the window of 60 s is less than at_extra.
    let mut bench = Bench::new(keeper());
    tune(&mut bench, |t| t.obd_timeout = Duration::from_secs(20));
    let (handle, xid) = connected(&mut bench);
    let learnt = |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.service_views()[0].estimate);
    let before = learnt(&mut bench);
    let flags = BodyFlags::LOCK_REPLAY_DONE;
    let raw = Raw::send(&mut bench, xid, &lustre_wire::Body { flags, ..Raw::body(handle) });
    assert_eq!(early_replies(&mut bench, &raw, 28), [(6, 6, 21), (16, 16, 31), (26, 26, 41)]);
    assert_eq!(learnt(&mut bench), before);
}

#[test]
fn a_request_without_adaptive_time_outs_or_a_server_without_them_gets_no_early_reply() {
    let mut bench = Bench::new(keeper());
    tune(&mut bench, |t| t.at_max = Duration::ZERO);
    let (handle, xid) = connected(&mut bench);
    let raw = Raw::send(&mut bench, xid, &Raw::body(handle));
    assert_eq!(early_replies(&mut bench, &raw, 30), []);
}

#[test]
fn a_deadline_that_passed_before_its_early_reply_is_a_line_in_the_log() {
    // P-124.1: the server itself did not run for a while.
    let mut bench = Bench::new(keeper());
    let (handle, xid) = connected(&mut bench);
    let raw = Raw::send(&mut bench, xid, &Raw::body(handle));
    bench.heard();
    bench.sleep(Duration::from_secs(13));
    assert_eq!(raw.early(&bench), None);
    let lines: Vec<_> = bench
        .heard()
        .into_iter()
        .filter_map(|event| if let Event::Behind(b) = event { Some(b.to_string()) } else { None })
        .collect();
    let expected = format!(
        "log: This server is not able to keep up with request traffic (cpu-bound). {APPEND} \
         x{xid} of client-1 waits for 13 s, its deadline passed 2 s ago, 0 dropped; raise at_early_margin or the slots of the service"
    );
    assert_eq!(lines, [expected]);
}

#[test]
fn requests_that_are_dropped_for_their_age_are_one_line_in_ten_seconds() {
    let mut bench = Bench::new(keeper());
    // No early reply has anything to ask for.
    tune(&mut bench, |t| t.at_extra = Duration::ZERO);
    for n in 0..74 {
        bench.call(Bench::say(Opcode(20_001), &n.to_string()));
    }
    let kept = bench.kept();
    assert_eq!(kept.len(), 64, "the others wait for a slot");
    bench.secs(12);
    bench.heard();
    for served in &kept[..10] {
        bench.rpc(bench.server, |rpc| rpc.decline(served.id));
    }
    let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
    let count = |b: &mut Bench| {
        let heard = b.heard();
        heard.iter().filter(|e| matches!(e, Event::Behind(_))).count()
    };
    assert_eq!((stats.late, count(&mut bench)), (10, 1));
}
