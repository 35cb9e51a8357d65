//! How messages end: when they are tried again and when not, which events they make, and when the
//! memory is the caller's again.

use super::*;
use crate::{Link, MdSpec, SendError, Unlink};
use lnet_types::{IoVec, ProcessId};

/// A PUT of nothing from `host` that only fills in what the test is about.
fn put_of(w: &mut World, target: &str, src: Option<&str>) -> crate::Put {
    let spec = MdSpec { unlink: Unlink::Auto, threshold: Some(1), ..MdSpec::new(IoVec::new(), 7) };
    let md = w.hosts[0].node.bind(spec).unwrap();
    crate::Put {
        md,
        ack: false,
        src: src.map(nid),
        target: ProcessId::lustre(nid(target)),
        portal: PT,
        match_bits: 0,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    }
}

/// The only event of `user`, which must be a SEND that failed, and after no attempt was repeated.
fn failed_at_once(w: &World, user: u64) -> Errno {
    assert_eq!(w.events(0, user), [(EventKind::Send, false, true)]);
    assert_eq!(w.hosts[0].node.stats().resend_count, 0);
    w.hosts[0].events.iter().find(|e| e.user == user).unwrap().status.unwrap_err()
}

/// HL-lnt-055: each of the causes after which nothing is sent again, and its error at once.
#[test]
fn shutdown_memory_discovery_descriptors_arguments_and_inner_failures_are_never_sent_again() {
    // Shutting down.
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|_| Fate::Hold);
    w.put(0, B[0], 1, false);
    let now = w.now;
    w.hosts[0].node.shutdown(now);
    w.drain();
    assert_eq!(failed_at_once(&w, 1), Errno::ESHUTDOWN);
    // Out of memory, and a failure inside the driver.
    for errno in [Errno::ENOMEM, Errno::EFAULT] {
        let mut w = pair(Profile::Default);
        fail_first(&mut w, 1, Fault::new(HealthStatus::LocalError, errno));
        w.put(0, B[0], 1, false);
        assert_eq!(failed_at_once(&w, 1), errno);
    }
    // A discovery that ends so.
    let mut w = World::new();
    w.host(Profile::Default, &A);
    let unwell = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
    w.decide = Box::new(move |_| Fate::Fail(unwell));
    w.put(0, B[0], 1, false);
    assert_eq!(failed_at_once(&w, 1), Errno::ENOMEM);
    assert!(w.pairs(0).is_empty());
    // A descriptor that is none any more: the call itself fails.
    let mut w = pair(Profile::Default);
    let put = put_of(&mut w, B[0], None);
    let now = w.now;
    w.hosts[0].node.unlink(now, put.md).unwrap();
    assert_eq!(w.hosts[0].node.put(now, put), Err(SendError::BadMd));
    w.drain();
    // Wrong information: a source that is not ours.
    let put = put_of(&mut w, B[0], Some("10.9.9.9@tcp"));
    w.hosts[0].events.clear();
    w.hosts[0].node.put(now, put).unwrap();
    w.drain();
    assert_eq!(failed_at_once(&w, 7), Errno::EINVAL);
}

/// RS-016: what shows at once is the call's error and no event; what fails later is an event alone.
#[test]
fn a_call_that_fails_makes_no_event_and_one_that_succeeds_promises_nothing() {
    let mut w = pair(Profile::Default);
    let put = put_of(&mut w, B[0], None);
    let now = w.now;
    w.hosts[0].node.unlink(now, put.md).unwrap();
    w.drain();
    w.hosts[0].events.clear();
    assert_eq!(w.hosts[0].node.put(now, put).unwrap_err().errno(), Errno::ENOENT);
    w.secs(10);
    assert!(w.hosts[0].events.is_empty());
    fail_to(&mut w, &B, fault(HealthStatus::RemoteError));
    let put = put_of(&mut w, B[0], None);
    let now = w.now;
    assert_eq!(w.hosts[0].node.put(now, put), Ok(()));
    w.run(MS * 10);
    assert_eq!(w.events(0, 7), [(EventKind::Send, false, true)]);
    // No way there is known only when a way is looked for.
    let put = put_of(&mut w, "10.77.0.3@tcp9", None);
    w.hosts[0].events.clear();
    let now = w.now;
    assert_eq!(w.hosts[0].node.put(now, put), Ok(()));
    w.run(MS * 10);
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::EHOSTUNREACH));
}

/// RS-018, RS-021: whatever fails, a REPLY or an ACK that comes is good; one that does not come is
/// reported as a time-out of the response.
#[test]
fn every_reply_and_ack_reports_success() {
    for kind in [MsgType::Put, MsgType::Get, MsgType::Ack, MsgType::Reply] {
        for status in HealthStatus::ALL.into_iter().skip(1) {
            for times in [1, usize::MAX] {
                let mut w = pair(Profile::Default);
                let mut left = times;
                w.decide = Box::new(move |t| {
                    if t.hdr.kind.msg_type() != kind || left == 0 {
                        return Fate::Pass;
                    }
                    left -= 1;
                    Fate::Fail(fault(status))
                });
                w.put(0, B[0], 1, true);
                w.get(0, B[0], 2);
                w.secs(12);
                let of_test = |e: &&crate::Event| e.user == 1 || e.user == 2;
                for e in w.hosts[0].events.iter().filter(of_test) {
                    let response = matches!(e.kind, EventKind::Reply | EventKind::Ack);
                    assert!(!response || e.status.is_ok(), "{kind:?} {status} {times}: {e:?}");
                }
                for user in [1, 2] {
                    let events = w.events(0, user);
                    let answered = |k| matches!(k, EventKind::Reply | EventKind::Ack);
                    let sent = events.iter().any(|e| e.0 == EventKind::Send && e.1);
                    let came = events.iter().any(|e| answered(e.0));
                    let given_up = events.iter().any(|e| e.0 == EventKind::Unlink);
                    let at = format!("{kind:?} {status} {times}: {events:?}");
                    assert!(!sent || came != given_up, "{at}");
                }
            }
        }
    }
}

/// RS-020: until the SEND the memory is LNet's, through every attempt; from then on it is the
/// caller's.
#[test]
fn memory_may_be_written_again_after_the_send_event() {
    let mut w = pair(Profile::Default);
    let mut left = 2;
    w.decide = Box::new(move |t| {
        if is_request(&t.hdr) && left > 0 {
            left -= 1;
            Fate::Hold
        } else {
            Fate::Pass
        }
    });
    w.put(0, B[0], 1, false);
    for _ in 0..2 {
        assert_eq!(w.events(0, 1), [], "not yet");
        let (now, (_, t)) = (w.now, w.held.pop_front().unwrap());
        w.hosts[0].node.tx_done(now, t.msg, Err(fault(HealthStatus::LocalTimeout)));
        w.drain();
    }
    while w.events(0, 1).is_empty() {
        w.run(MS / 10);
    }
    let region = w.hosts[0].mem.0.len() - 1;
    assert_eq!(w.hosts[0].mem.0[region], [1; 100]);
    w.hosts[0].mem.0[region].fill(0xEE);
    w.secs(5);
    assert_eq!(delivered(&w, 1, EventKind::Put), 1);
    assert_eq!(w.hosts[1].mem.0[0][..100], [1; 100], "what was there before");
}

/// HLD-026: an attempt that fails at once is followed by the next from the list of work, not from
/// within itself: a thousand of them need no more stack than one.
#[test]
fn attempts_follow_one_another_and_do_not_nest() {
    let attempts = std::thread::Builder::new().stack_size(256 << 10).spawn(|| {
        let mut w = pair(Profile::Documents);
        set(&mut w, 0, &[("transaction_timeout", 10_000), ("retry_count", 5000)]);
        set(&mut w, 0, &[("health_sensitivity", 1)]);
        fail_to(&mut w, &B, fault(HealthStatus::LocalTimeout));
        w.put(0, B[0], 1, false);
        w.run(MS);
        assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
        w.pairs(0).len()
    });
    assert_eq!(attempts.unwrap().join().unwrap(), 5001);
}

/// RS-065: the lost link is reported, and so is the end of the message; it fails once.
#[test]
fn a_lost_link_and_the_message_that_it_took_along_are_one_failure() {
    let mut w = pair(Profile::Kernel);
    let mut first = true;
    w.decide = Box::new(move |t| {
        let hold = is_request(&t.hdr) && core::mem::take(&mut first);
        if hold { Fate::Hold } else { Fate::Pass }
    });
    w.put(0, B[0], 1, false);
    let (_, t) = w.held.pop_front().unwrap();
    let now = w.now;
    w.hosts[0].node.link_changed(now, t.ni, Link::Down);
    w.drain();
    assert_eq!(w.events(0, 1), [], "the report of the link ends no message");
    w.hosts[0].node.tx_done(now, t.msg, Err(fault(HealthStatus::LocalDropped)));
    w.run(MS * 10);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)]);
    let s = w.hosts[0].node.stats();
    assert_eq!((s.local_dropped_count, s.resend_count), (1, 1));
    let view = &w.hosts[0].node.net_views()[1];
    let down = view.nis.iter().find(|n| !n.up).unwrap();
    assert_eq!((down.transitions.downs, down.failures.dropped), (1, 1));
}

/// HL-cfg-030: however it was set (`lnetctl set` and the parameter file are the same request).
#[test]
fn a_missing_reply_is_reported_at_the_transaction_timeout() {
    for seconds in [3, 7] {
        let mut w = pair(Profile::Documents);
        set(&mut w, 0, &[("transaction_timeout", seconds)]);
        lose(&mut w, MsgType::Reply);
        w.get(0, B[0], 1);
        w.run(MS * (1000 * seconds as u32 - 1));
        assert_eq!(w.events(0, 1), [(EventKind::Send, true, false)]);
        w.run(MS);
        let ended = [(EventKind::Send, true, false), (EventKind::Unlink, true, true)];
        assert_eq!(w.events(0, 1), ended);
        assert_eq!(w.hosts[0].node.stats().response_timeout_count, 1);
    }
}

/// RS-106: a failure that shows at once leads to another choice without time passing.
#[test]
fn a_send_that_fails_at_once_is_followed_by_another_choice_at_once() {
    for errno in [Errno::EHOSTUNREACH, Errno::ECONNREFUSED] {
        let mut w = pair(Profile::Default);
        fail_first(&mut w, 1, Fault::new(HealthStatus::RemoteDropped, errno));
        w.put(0, B[0], 1, false);
        let pairs = w.pairs(0);
        assert_eq!(pairs.len(), 2, "no time has passed");
        assert_ne!(pairs[0].1, pairs[1].1);
    }
}
