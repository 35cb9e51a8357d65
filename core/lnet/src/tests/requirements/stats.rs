//! Counters and averages, per node, per interface of ours and of peers.

use super::*;

/// UG-055.
#[test]
fn an_interface_counts_each_kind_of_failure_by_itself() {
    use HealthStatus as H;
    let ours = [
        H::LocalInterrupt,
        H::LocalDropped,
        H::LocalAborted,
        H::LocalNoRoute,
        H::LocalTimeout,
        H::LocalError,
    ];
    for (i, status) in ours.into_iter().enumerate() {
        let mut w = nodes(Profile::Documents, &A[..1], &B[..1]);
        fail_first(&mut w, 1, fault(status));
        w.put(0, B[0], 1, false);
        let f = w.hosts[0].node.net_views()[1].nis[0].failures;
        let got = [f.interrupt, f.dropped, f.aborted, f.no_route, f.timeout, f.error];
        assert_eq!(got.iter().position(|n| *n == 1), Some(i), "{status}");
        assert_eq!(got.iter().sum::<u32>(), 1, "{status}");
    }
    let theirs = [H::RemoteDropped, H::RemoteTimeout, H::RemoteError, H::NetworkTimeout];
    for (i, status) in theirs.into_iter().enumerate() {
        let mut w = nodes(Profile::Documents, &A[..1], &B[..1]);
        fail_first(&mut w, 1, fault(status));
        w.put(0, B[0], 1, false);
        let f = w.hosts[0].node.peer_view_of(nid(B[0])).unwrap().nis[0].failures;
        let got = [f.dropped, f.timeout, f.error, f.network_timeout];
        assert_eq!(got.iter().position(|n| *n == 1), Some(i), "{status}");
        assert_eq!(got.iter().sum::<u32>(), 1, "{status}");
    }
}

/// HL-stt-005, HL-stt-010.
#[test]
fn three_timeouts_are_counted_at_the_interface_that_had_them() {
    let timeouts_by = |status: HealthStatus, at: fn(&Hdr) -> bool| {
        let mut w = pair(Profile::Documents);
        set(&mut w, 0, &[("health_range", 1001)]);
        let mut left = 3;
        w.decide = Box::new(move |t| {
            if is_request(&t.hdr) && at(&t.hdr) && left > 0 {
                left -= 1;
                Fate::Fail(fault(status))
            } else {
                Fate::Pass
            }
        });
        for i in 0..10 {
            w.put(0, B[0], i, false);
            w.run(MS * 10);
        }
        assert_eq!(w.hosts[0].node.stats().resend_count, 3);
        let nis = &w.hosts[0].node.net_views()[1].nis;
        let peer = w.hosts[0].node.peer_view_of(nid(B[0])).unwrap();
        (
            [nis[0].failures.timeout, nis[1].failures.timeout],
            [peer.nis[0].failures.timeout, peer.nis[1].failures.timeout],
        )
    };
    let ours = timeouts_by(HealthStatus::LocalTimeout, |h| h.src == nid(A[0]));
    assert_eq!(ours, ([3, 0], [0, 0]));
    let theirs = timeouts_by(HealthStatus::RemoteTimeout, |h| h.dst == nid(B[1]));
    assert_eq!(theirs, ([0, 0], [0, 3]));
}

/// UG-054.
#[test]
fn a_put_with_ack_and_a_get_are_counted_by_kind() {
    let mut w = nodes(Profile::Documents, &A[..1], &B[..1]);
    w.put(0, B[0], 1, true);
    w.get(0, B[0], 2);
    w.run(MS * 10);
    for s in [ni_stats(&w, 0, A[0]), peer_stats(&w, 0, B[0])] {
        let kinds = |k: crate::KindCounts| (k.put, k.get, k.reply, k.ack);
        assert_eq!((kinds(s.sent), kinds(s.received)), ((1, 1, 0, 0), (0, 0, 1, 1)));
        assert_eq!(s.dropped.sum(), 0);
    }
}

/// UG-053, MR-dbg-010, MR-dbg-015, MR-dbg-050, MR-dbg-055.
#[test]
fn ten_sends_four_receives_and_one_drop_are_counted_as_such() {
    let mut w = nodes(Profile::Documents, &A[..1], &B[..1]);
    for i in 0..10 {
        w.put(0, B[0], i, false);
        w.run(MS * 10);
    }
    for i in 0..4 {
        w.put(1, A[0], i, false);
        w.run(MS * 10);
    }
    // A PUT without a matching ME.
    let md = w.hosts[1].node.bind(crate::MdSpec::new(lnet_types::IoVec::new(), 1)).unwrap();
    let put = crate::Put {
        md,
        ack: false,
        src: None,
        target: lnet_types::ProcessId::lustre(nid(A[0])),
        portal: PT,
        match_bits: 0xdead,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    };
    let now = w.now;
    w.hosts[1].node.put(now, put).unwrap();
    w.run(MS * 10);
    let s = ni_stats(&w, 0, A[0]);
    assert_eq!((s.sent.sum(), s.received.sum(), s.dropped.sum()), (10, 4, 1));
    let s = peer_stats(&w, 0, B[0]);
    assert_eq!((s.sent.sum(), s.received.sum()), (10, 4));
    for i in 4..10 {
        w.put(1, A[0], i, false);
        w.run(MS * 10);
    }
    assert_eq!(ni_stats(&w, 0, A[0]).received.sum(), 10);
    assert_eq!(peer_stats(&w, 0, B[0]).received.sum(), 10);
}

/// UG-059, UG-060.
#[test]
fn totals_follow_traffic_and_msgs_max_keeps_the_peak() {
    let mut w = nodes(Profile::Documents, &A[..1], &B[..1]);
    w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Hold } else { Fate::Pass });
    for i in 0..6 {
        w.get(0, B[0], i);
    }
    let s = w.hosts[0].node.stats();
    assert_eq!((s.msgs_alloc, s.msgs_max, s.rst_alloc), (6, 6, 6));
    while !w.held.is_empty() {
        w.release();
        w.run(MS * 5);
    }
    let s = w.hosts[0].node.stats();
    assert_eq!((s.msgs_alloc, s.msgs_max, s.rst_alloc), (0, 6, 0));
    assert_eq!((s.send_count, s.recv_count, s.recv_length), (6, 6, 600));
}

/// UG-061.
#[test]
fn one_resend_and_one_missing_ack_are_counted_once_each() {
    let mut w = pair(Profile::Documents);
    fail_first(&mut w, 1, fault(HealthStatus::LocalTimeout));
    w.put(0, B[0], 1, false);
    w.run(MS * 10);
    lose(&mut w, MsgType::Ack);
    w.put(0, B[0], 2, true);
    w.secs(6);
    let s = w.hosts[0].node.stats();
    assert_eq!((s.resend_count, s.response_timeout_count), (1, 1));
}

/// HL-stt-030, HL-stt-035.
#[test]
fn times_of_sends_and_of_whole_operations_are_averaged_per_interface_of_the_peer() {
    let mut w = nodes(Profile::Documents, &A[..1], &B[..1]);
    w.latency = Duration::from_millis(10);
    for i in 0..20 {
        w.put(0, B[0], i, true);
        w.get(0, B[0], 100 + i);
        w.run(MS * 100);
    }
    let s = peer_stats(&w, 0, B[0]);
    let about = |l: crate::Latency, millis: u64| {
        let avg = l.avg_nsec();
        assert_eq!(l.samples, 20);
        assert!((millis * 900_000..=millis * 1_100_000).contains(&avg), "{avg} ns");
    };
    about(s.put_egress, 10);
    about(s.put_ack, 20);
    about(s.get_rtt, 20);
}

/// HL-stt-040, MR-dbg-120.
#[test]
fn a_reset_zeroes_every_counter() {
    let mut w = pair(Profile::Documents);
    fail_first(&mut w, 2, fault(HealthStatus::LocalTimeout));
    for i in 0..6 {
        w.put(0, B[0], i, true);
        w.get(0, B[0], 100 + i);
        w.run(MS * 10);
    }
    w.secs(10);
    assert!(w.hosts[0].node.stats().rows().iter().any(|(_, v)| *v > 0));
    w.hosts[0].node.reset_stats();
    assert!(w.hosts[0].node.stats().rows().iter().all(|(_, v)| *v == 0));
    for (a, b) in A.into_iter().zip(B) {
        assert_eq!(ni_stats(&w, 0, a), InterfaceStats::default());
        assert_eq!(peer_stats(&w, 0, b), InterfaceStats::default());
    }
}

/// MR-dbg-065, MR-dbg-100.
#[test]
fn a_thousand_peers_are_read_in_pages_of_a_hundred() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    for i in 0..1000u32 {
        let n = nid(&format!("10.{}.{}.9@tcp", 80 + i / 250, i % 250));
        let now = w.now;
        w.hosts[0].node.peer_add(now, n, &[], true, false).unwrap();
    }
    let (mut after, mut seen) = (None, std::collections::BTreeSet::new());
    for _ in 0..10 {
        let page = w.hosts[0].node.peer_views(after, 100);
        assert_eq!(page.len(), 100);
        after = page.last().map(|(at, _)| *at);
        seen.extend(page.into_iter().map(|(_, v)| v.primary));
    }
    assert_eq!(seen.len(), 1000);
    assert!(w.hosts[0].node.peer_views(after, 100).is_empty());
}

/// MR-dbg-095, MRD-030.
#[test]
fn one_call_shows_all_interfaces_and_what_they_belong_to() {
    let a = ["10.70.0.2@tcp", "10.71.0.2@tcp", "10.72.0.2@tcp1"];
    let w = nodes(Profile::Default, &a, &B);
    let views = w.hosts[0].node.net_views();
    let shown: Vec<_> = views.iter().flat_map(|v| v.nis.iter().map(|n| (v.net, n.nid))).collect();
    assert_eq!(shown.iter().skip(1).map(|(_, n)| n.to_string()).collect::<Vec<_>>(), a);
    assert!(shown.iter().all(|(net, n)| *net == n.net()));
    for b in B {
        let peer = w.hosts[0].node.peer_view_of(nid(b)).unwrap();
        assert_eq!(peer.primary, nid(B[0]), "from an interface to its peer");
        assert!(peer.nis.iter().any(|n| n.nid == nid(b)), "and back");
    }
}
