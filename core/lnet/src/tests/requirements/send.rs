//! Operations, their events, and messages that are sent again.

use super::*;
use crate::{MdSpec, Rx, Unlink, Verdict};
use lnet_types::{ProcessId, RxId};
use std::collections::BTreeMap;

/// RS-013, RS-019, RS-022.
#[test]
fn a_thousand_operations_give_a_thousand_events_of_each_kind() {
    let mut w = pair(Profile::Default);
    for i in 0..1000 {
        w.get(0, B[0], 10_000 + i);
        w.put(0, B[0], 20_000 + i, true);
        w.put(0, B[0], 30_000 + i, false);
        w.run(MS * 5);
    }
    let mut count: BTreeMap<(u64, String), usize> = BTreeMap::new();
    for e in w.hosts[0].events.iter().filter(|e| e.user >= 10_000) {
        assert_eq!(e.status, Ok(()));
        *count.entry((e.user / 10_000, format!("{:?}", e.kind))).or_default() += 1;
    }
    let count: Vec<_> = count.iter().map(|((of, kind), n)| (*of, kind.as_str(), *n)).collect();
    let kinds = [(1, "Reply"), (1, "Send"), (2, "Ack"), (2, "Send"), (3, "Send")];
    let expected = kinds.map(|(of, kind)| (of, kind, 1000));
    assert_eq!(count, expected);
}

/// A REPLY to the GET in the driver's hands, as it would come in, its handle changed by `damage`.
fn reply_to_held(w: &mut World, damage: u64) -> Verdict {
    let t = &w.held[0].1;
    let Kind::Get { mut ret, .. } = t.hdr.kind else { panic!("{:?}", t.hdr) };
    ret.object ^= damage;
    let kind = Kind::Reply { dst: ret, pad: [0; 24] };
    let hdr = Hdr { dst: t.hdr.src, src: t.hdr.dst, payload_len: 100, kind, ..t.hdr };
    let rx =
        Rx { ni: t.ni, from: hdr.src, from_pid: t.hdr.dst_pid, peer_ni: None, id: RxId(u64::MAX) };
    let now = w.now;
    w.hosts[0].node.rx_header(now, rx, &hdr)
}

/// RS-014.
#[test]
fn the_reply_may_come_before_its_request_was_reported_as_sent() {
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|_| Fate::Hold);
    w.get(0, B[0], 1);
    let Verdict::Deliver { msg, .. } = reply_to_held(&mut w, 0) else { panic!("not delivered") };
    let now = w.now;
    w.hosts[0].node.rx_done(now, msg, Ok(&[]));
    w.drain();
    assert_eq!(w.events(0, 1), [(EventKind::Reply, true, false)]);
    let sent = w.held[0].1.msg;
    w.hosts[0].node.tx_done(now, sent, Ok(()));
    w.drain();
    assert_eq!(w.events(0, 1), [(EventKind::Reply, true, false), (EventKind::Send, true, true)]);
    assert_eq!(w.hosts[0].node.stats().rst_alloc, 0);
}

/// RS-017.
#[test]
fn a_damaged_reply_is_dropped_and_the_get_ends_by_its_timeout() {
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|_| Fate::Hold);
    w.get(0, B[0], 1);
    let sent = w.held[0].1.msg;
    let verdict = reply_to_held(&mut w, 1 << 40);
    assert!(matches!(verdict, Verdict::Drop(_)), "{verdict:?}");
    let now = w.now;
    w.hosts[0].node.tx_done(now, sent, Ok(()));
    assert_eq!(w.hosts[0].node.stats().drop_count, 1);
    w.run(MS * 4999);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false)]);
    w.run(MS);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false), (EventKind::Unlink, true, true)]);
}

/// RS-015.
#[test]
fn a_get_that_can_not_be_sent_ends_in_one_failed_send_and_its_owner_cleans_up() {
    let mut w = pair(Profile::Default);
    fail_to(&mut w, &B, fault(HealthStatus::RemoteDropped));
    let before = w.hosts[0].node.portals.mds.len();
    w.get(0, B[0], 1);
    w.secs(5);
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, false)]);
    let md = w.hosts[0].events[0].md;
    let now = w.now;
    w.hosts[0].node.unlink(now, md).unwrap();
    w.drain();
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, false), (EventKind::Unlink, true, true)]);
    // Recovery pings that are under way have descriptors of their own.
    w.decide = Box::new(|_| Fate::Pass);
    w.secs(30);
    assert_eq!((w.hosts[0].node.portals.mds.len(), w.hosts[0].node.msgs.len()), (before, 0));
    assert_eq!(w.hosts[0].node.stats().rst_alloc, 0);
}

/// RS-005.
#[test]
fn a_bare_put_to_a_dead_node_of_the_same_net_is_a_failed_send() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    fail_to(&mut w, &B, Fault::new(HealthStatus::RemoteDropped, Errno::EHOSTUNREACH));
    w.put(0, B[0], 1, false);
    w.run(MS * 10);
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::EHOSTUNREACH));
}

/// RS-086.
#[test]
fn an_ack_is_sent_only_if_asked_for_and_matched() {
    let mut w = pair(Profile::Default);
    let acks = |w: &World| {
        w.hosts[1].sent.iter().filter(|(_, h)| matches!(h.kind, Kind::Ack { .. })).count()
    };
    w.put(0, B[0], 1, false);
    w.run(MS * 10);
    assert_eq!((delivered(&w, 1, EventKind::Put), acks(&w)), (1, 0));
    w.put(0, B[0], 2, true);
    w.run(MS * 10);
    assert_eq!((delivered(&w, 1, EventKind::Put), acks(&w)), (2, 1));
    let buf = w.hosts[0].mem.add(vec![0; 8]);
    let md = w.hosts[0].node.bind(MdSpec { unlink: Unlink::Auto, ..MdSpec::new(buf, 3) }).unwrap();
    let put = crate::Put {
        md,
        ack: true,
        src: None,
        target: ProcessId::lustre(nid(B[0])),
        portal: PT,
        match_bits: 0xdead,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    };
    let now = w.now;
    w.hosts[0].node.put(now, put).unwrap();
    w.run(MS * 10);
    assert_eq!((delivered(&w, 1, EventKind::Put), acks(&w)), (2, 1), "no ME matches those bits");
}

/// HLD-005.
#[test]
fn puts_gets_acks_and_replies_are_all_sent_again() {
    for kind in [MsgType::Put, MsgType::Get, MsgType::Ack, MsgType::Reply] {
        let mut w = pair(Profile::Default);
        let mut left = 1;
        w.decide = Box::new(move |t| {
            if t.hdr.kind.msg_type() == kind && left > 0 {
                left -= 1;
                Fate::Fail(fault(HealthStatus::LocalTimeout))
            } else {
                Fate::Pass
            }
        });
        w.put(0, B[0], 1, true);
        w.get(0, B[0], 2);
        w.run(MS * 100);
        let ok = |kind| vec![(EventKind::Send, true, false), (kind, true, true)];
        assert_eq!(w.events(0, 1), ok(EventKind::Ack), "{kind:?}");
        assert_eq!(w.events(0, 2), ok(EventKind::Reply), "{kind:?}");
        let resends: u32 = w.hosts.iter().map(|h| h.node.stats().resend_count).sum();
        assert_eq!(resends, 1, "{kind:?}");
    }
}

/// UG-014.
#[test]
fn with_all_acks_lost_each_put_is_delivered_once() {
    let mut w = pair(Profile::Documents);
    set(&mut w, 0, &[("retry_count", 3)]);
    lose(&mut w, MsgType::Ack);
    for i in 0..100 {
        w.put(0, B[0], i, true);
        w.run(MS * 5);
    }
    w.secs(20);
    assert_eq!(delivered(&w, 1, EventKind::Put), 100);
    assert_eq!(w.hosts[0].node.stats().resend_count, 0);
}

/// RS-094: what may have arrived is not sent again, what is sent again has not arrived.
#[test]
fn no_failure_makes_the_receiver_see_a_message_twice() {
    use HealthStatus as H;
    for status in H::ALL {
        let mut w = pair(Profile::Default);
        let certain = matches!(
            status,
            H::LocalInterrupt
                | H::LocalDropped
                | H::LocalAborted
                | H::LocalNoRoute
                | H::LocalTimeout
                | H::RemoteDropped
        );
        if certain {
            fail_first(&mut w, 1, fault(status));
            w.put(0, B[0], 1, false);
            w.run(MS * 10);
        } else {
            // Reported as failed, and arrives all the same.
            w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Hold } else { Fate::Pass });
            w.put(0, B[0], 1, false);
            let (now, msg) = (w.now, w.held[0].1.msg);
            w.hosts[0].node.tx_done(now, msg, Err(fault(status)));
            w.decide = Box::new(|_| Fate::Pass);
            w.release();
            w.run(MS * 10);
        }
        w.secs(10);
        assert_eq!(delivered(&w, 1, EventKind::Put), 1, "{status}");
    }
}

/// HL-lnt-090.
#[test]
fn with_retry_count_0_nothing_is_sent_again() {
    let mut w = pair(Profile::Documents);
    set(&mut w, 0, &[("retry_count", 0)]);
    fail_first(&mut w, 1, fault(HealthStatus::LocalTimeout));
    w.put(0, B[0], 1, false);
    w.secs(1);
    assert_eq!((w.pairs(0).len(), w.hosts[0].node.stats().resend_count), (1, 0));
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
}

/// UG-035.
#[test]
fn a_permanent_fault_with_retry_count_2_takes_three_transmissions_and_one_event() {
    let mut w = pair(Profile::Documents);
    fail_to(&mut w, &B, fault(HealthStatus::LocalTimeout));
    w.put(0, B[0], 1, false);
    w.secs(1);
    assert_eq!(w.pairs(0).len(), 3);
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
}

/// HL-lnt-060, RS-048: limits on attempts and on time, under random faults and stalls.
#[test]
fn attempts_and_time_never_exceed_their_limits() {
    for seed in 1..=40 {
        let mut rng = lnet_types::Prng::new(seed);
        let profile = [Profile::Default, Profile::Documents, Profile::Pre213][seed as usize % 3];
        let mut w = pair(profile);
        let retries = rng.below(5) as i64;
        set(&mut w, 0, &[("retry_count", retries)]);
        let mut weather = rng.split();
        let mut stalled = Stalled::new(&mut w, HealthStatus::LocalTimeout);
        w.decide = Box::new(move |t| match weather.below(4) {
            0 if is_request(&t.hdr) => Fate::Hold,
            1 | 2 => Fate::Fail(fault(HealthStatus::ALL[1 + weather.below(10) as usize])),
            _ => Fate::Pass,
        });
        let begin = w.now;
        for i in 1..=10 {
            w.put(0, B[0], i, false);
        }
        let transaction = w.hosts[0].node.tunables().transaction();
        stalled.run(&mut w, transaction + MS);
        let mut attempts: BTreeMap<u64, i64> = BTreeMap::new();
        for (_, h) in &w.hosts[0].sent {
            if let Kind::Put { portal: PT, hdr_data, .. } = h.kind {
                *attempts.entry(hdr_data).or_default() += 1;
            }
        }
        for i in 1..=10 {
            assert!(attempts[&i] <= retries + 1, "seed {seed}: {attempts:?}");
            assert_eq!(w.events(0, i).len(), 1, "seed {seed}: {i} has ended in time");
        }
        assert!(w.now.saturating_since(begin) <= Duration::from_millis(5_002));
    }
}

/// HL-lnt-075.
#[test]
fn with_all_paths_dead_each_message_fails_exactly_once() {
    let mut w = pair(Profile::Default);
    let mut stalled = Stalled::new(&mut w, HealthStatus::LocalTimeout);
    for i in 1..=20 {
        w.put(0, B[0], i, false);
    }
    stalled.run(&mut w, Duration::from_secs(20));
    for i in 1..=20 {
        assert_eq!(w.events(0, i), [(EventKind::Send, false, true)]);
    }
}

/// RS-079.
#[test]
fn a_peer_with_two_of_three_interfaces_dead_is_reached_and_with_all_dead_each_was_tried() {
    let b = ["10.77.0.3@tcp", "10.77.1.3@tcp", "10.77.2.3@tcp"];
    for dead in [vec![b[0], b[1]], vec![b[1], b[2]], vec![b[0], b[2]]] {
        let mut w = nodes(Profile::Default, &A[..1], &b);
        fail_to(&mut w, &dead, fault(HealthStatus::RemoteDropped));
        w.put(0, b[0], 1, false);
        w.run(MS * 10);
        assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)]);
        assert_eq!(delivered(&w, 1, EventKind::Put), 1);
    }
    let mut w = nodes(Profile::Default, &A[..1], &b);
    fail_to(&mut w, &b, fault(HealthStatus::RemoteDropped));
    w.put(0, b[0], 1, false);
    w.run(MS * 10);
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
    let mut tried: Vec<_> = w.pairs(0).into_iter().map(|p| p.1).collect();
    tried.sort();
    assert_eq!(tried, b);
}

/// MRD-009, DEC-11: as many retries as there are other rails.
#[test]
fn with_three_of_four_rails_dead_all_messages_arrive() {
    let a = ["10.70.0.2@tcp", "10.71.0.2@tcp1", "10.72.0.2@tcp2", "10.73.0.2@tcp3"];
    let b = ["10.70.0.3@tcp", "10.71.0.3@tcp1", "10.72.0.3@tcp2", "10.73.0.3@tcp3"];
    for alive in b {
        let mut w = nodes(Profile::Default, &a, &b);
        set(&mut w, 0, &[("retry_count", 3)]);
        let alive = nid(alive);
        w.decide = Box::new(move |t| {
            let dead = t.hdr.dst != alive && is_request(&t.hdr);
            if dead { Fate::Fail(fault(HealthStatus::RemoteDropped)) } else { Fate::Pass }
        });
        for i in 0..50 {
            w.put(0, b[0], i, false);
            w.run(MS * 100);
            assert_eq!(w.events(0, i), [(EventKind::Send, true, true)]);
        }
        assert_eq!(delivered(&w, 1, EventKind::Put), 50);
    }
}

/// HLD-003, RS-046.
#[test]
fn a_message_that_fails_on_one_kind_of_network_arrives_by_another() {
    for status in [HealthStatus::LocalTimeout, HealthStatus::RemoteDropped] {
        let mut w = nodes(
            Profile::Default,
            &["10.70.0.2@o2ib", "10.77.0.2@tcp"],
            &["10.70.0.3@o2ib", "10.77.0.3@tcp"],
        );
        fail_to(&mut w, &["10.70.0.3@o2ib"], fault(status));
        for i in 0..10 {
            w.put(0, "10.70.0.3@o2ib", i, false);
            w.run(MS * 10);
            assert_eq!(w.events(0, i), [(EventKind::Send, true, true)], "{status}");
        }
        assert_eq!(delivered(&w, 1, EventKind::Put), 10);
        assert!(w.pairs(0).iter().any(|p| p.1.ends_with("o2ib")), "{status}: it was tried");
    }
}

/// UG-004, MRD-011, MRD-016.
#[test]
fn several_interfaces_of_several_nets_all_carry_messages() {
    let a = ["10.70.0.2@tcp", "10.71.0.2@tcp", "10.72.0.2@tcp1", "10.73.0.2@tcp1"];
    let b = ["10.70.0.3@tcp", "10.71.0.3@tcp", "10.72.0.3@tcp1", "10.73.0.3@tcp1"];
    let mut w = nodes(Profile::Default, &a, &b);
    for i in 0..40 {
        w.put(0, b[0], i, false);
        w.run(MS * 10);
    }
    for (a, b) in a.into_iter().zip(b) {
        assert_eq!((ni_stats(&w, 0, a).sent.put, peer_stats(&w, 0, b).sent.put), (10, 10));
    }
    assert!(w.pairs(0).iter().all(|p| nid(&p.0).net() == nid(&p.1).net()));
    let nets: Vec<_> = w.hosts[0].node.net_views().iter().map(|v| v.nis.len()).collect();
    assert_eq!(nets, [1, 2, 2], "loopback, tcp, tcp1");
}

/// MRD-015.
#[test]
fn the_networks_of_the_peer_decide_which_interfaces_serve_it() {
    let mut w = World::new();
    let client = ["10.70.0.2@tcp", "10.71.0.2@o2ib1", "10.72.0.2@o2ib"];
    w.host(Profile::Default, &client);
    w.host(Profile::Default, &["10.70.0.3@tcp", "10.71.0.3@o2ib1"]);
    w.host(Profile::Default, &["10.72.0.4@o2ib"]);
    w.discovered(0, "10.70.0.3@tcp");
    w.discovered(0, "10.72.0.4@o2ib");
    for i in 0..20 {
        w.put(0, "10.70.0.3@tcp", i, false);
        w.put(0, "10.72.0.4@o2ib", i, false);
        w.run(MS * 10);
    }
    let pairs = w.pairs(0);
    assert_eq!(pairs.len(), 40);
    assert!(pairs.iter().all(|p| (p.1 == "10.72.0.4@o2ib") == (p.0 == client[2])), "{pairs:?}");
    for a in client {
        assert!(pairs.iter().any(|p| p.0 == a), "{a}");
    }
}

/// MRD-058, MRD-062: a rule makes tcp the network of choice, so that it has to fail first.
#[test]
fn when_all_interfaces_of_a_network_have_failed_the_other_network_is_used() {
    let a = ["10.70.0.2@tcp", "10.80.0.2@tcp1"];
    for (b, retries) in [
        (vec!["10.70.0.3@tcp", "10.71.0.3@tcp", "10.80.0.3@tcp1"], 2),
        (vec!["10.70.0.3@tcp", "10.71.0.3@tcp", "10.72.0.3@tcp", "10.80.0.3@tcp1"], 3),
    ] {
        let mut w = nodes(Profile::Default, &a, &b);
        let rule = crate::tests::policy::rule("src tcp priority 0");
        let now = w.now;
        w.hosts[0].node.udsp_add(now, rule, None).unwrap();
        set(&mut w, 0, &[("retry_count", retries)]);
        let (last, dead) = b.split_last().unwrap();
        fail_to(&mut w, dead, fault(HealthStatus::RemoteDropped));
        w.put(0, b[0], 1, false);
        w.run(MS * 10);
        let used: Vec<_> = w.pairs(0).into_iter().map(|p| p.1).collect();
        assert_eq!(used.len(), b.len(), "{used:?}");
        assert_eq!(used.last().unwrap(), last);
        assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)]);
    }
}

/// MRD-061: what one message has tried is forgotten with it.
#[test]
fn the_next_message_tries_again_what_failed_for_the_last() {
    let mut w = pair(Profile::Default);
    set(&mut w, 0, &[("health_range", 1001), ("health_sensitivity", 1)]);
    fail_to(&mut w, &B[..1], fault(HealthStatus::RemoteDropped));
    for i in 0..6 {
        w.put(0, B[0], i, false);
        w.run(MS * 10);
        assert_eq!(w.events(0, i), [(EventKind::Send, true, true)]);
    }
    let tried = w.pairs(0).iter().filter(|p| p.1 == B[0]).count();
    assert!(tried >= 3, "{tried}");
}

/// MR-snd-045.
#[test]
fn a_reply_swaps_the_nids_of_its_get() {
    let mut w = pair(Profile::Default);
    let buf = w.hosts[0].mem.add(vec![0; 100]);
    let md = w.hosts[0].node.bind(MdSpec::new(buf, 1)).unwrap();
    let get = crate::Get {
        md,
        src: Some(nid(A[1])),
        target: ProcessId::lustre(nid(B[0])),
        portal: PT,
        match_bits: crate::tests::world::BITS,
        offset: 0,
        timeout: None,
    };
    let now = w.now;
    w.hosts[0].node.get(now, get).unwrap();
    w.run(MS * 10);
    assert_eq!(w.pairs(0), [(A[1].to_owned(), B[0].to_owned())]);
    let reply = w.hosts[1].sent.iter().find(|(_, h)| matches!(h.kind, Kind::Reply { .. })).unwrap();
    assert_eq!((reply.1.src, reply.1.dst), (nid(B[0]), nid(A[1])));
}

/// MR-snd-050.
#[test]
fn a_request_and_its_response_each_find_another_interface_of_the_peer() {
    let mut w = pair(Profile::Default);
    // B's first interface hears nothing, nor does A's first.
    fail_to(&mut w, &[B[0], A[0]], fault(HealthStatus::RemoteDropped));
    for i in 0..8 {
        w.put(0, B[0], i, false);
        w.get(0, B[0], 100 + i);
        w.run(MS * 50);
        assert_eq!(w.events(0, i), [(EventKind::Send, true, true)]);
        let replied = [(EventKind::Send, true, false), (EventKind::Reply, true, true)];
        assert_eq!(w.events(0, 100 + i), replied);
    }
    let moved = |host: usize| w.hosts[host].node.stats().resend_count;
    assert!(moved(0) > 0 && moved(1) > 0, "{} and {}", moved(0), moved(1));
}

/// HLD-018.
#[test]
fn a_message_that_is_not_resent_fails_at_once_with_its_own_cause() {
    for (status, errno) in [
        (HealthStatus::LocalError, Errno::ENOMEM),
        (HealthStatus::LocalError, Errno::EINVAL),
        (HealthStatus::RemoteError, Errno::EPROTO),
        (HealthStatus::Ok, Errno::EFAULT),
    ] {
        let mut w = pair(Profile::Default);
        fail_first(&mut w, 1, Fault::new(status, errno));
        w.put(0, B[0], 1, false);
        // No time has passed.
        let e = w.hosts[0].events.iter().find(|e| e.user == 1).unwrap();
        assert_eq!((e.kind, e.status), (EventKind::Send, Err(errno)));
        assert_eq!(w.hosts[0].node.stats().resend_count, 0);
    }
}

/// MRD-044, with `peer show -v` printing what is seen here.
#[test]
fn credits_of_a_peers_interface_fall_with_what_is_in_flight_and_come_back() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Hold } else { Fate::Pass });
    let credits = |w: &World| {
        let v = w.hosts[0].node.peer_view_of(nid(B[0])).unwrap();
        (v.nis[0].credits, v.nis[0].credits_max, v.nis[0].queued_bytes)
    };
    for i in 0..5 {
        w.put(0, B[0], i, false);
        let n = i as i32 + 1;
        assert_eq!(credits(&w), (8 - n, 8, 172 * n as u64));
    }
    for n in (0..5).rev() {
        w.release();
        w.run(MS * 2);
        assert_eq!(credits(&w).0, 8 - n);
    }
    assert_eq!(credits(&w), (8, 8, 0));
}

/// HLD-011, HL-lnt-105 (the half about PUTs without ACK), UG-060.
#[test]
fn only_gets_and_puts_with_ack_wait_for_a_response() {
    let mut w = pair(Profile::Default);
    let gauge = |w: &World| w.hosts[0].node.stats().rst_alloc;
    w.put(0, B[0], 1, false);
    assert_eq!(gauge(&w), 0);
    w.run(MS * 10);
    w.put(0, B[0], 2, true);
    assert_eq!(gauge(&w), 1);
    w.run(MS * 10);
    assert_eq!(gauge(&w), 0);
    w.get(0, B[0], 3);
    assert_eq!(gauge(&w), 1);
    w.run(MS * 10);
    assert_eq!(gauge(&w), 0);
}

/// RS-024: a PUT that is lost behind the driver's back.
#[test]
fn a_put_that_is_lost_is_noticed_only_by_the_ack_that_it_asked_for() {
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Lose } else { Fate::Pass });
    w.put(0, B[0], 1, false);
    w.put(0, B[0], 2, true);
    w.secs(6);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)]);
    assert_eq!(w.events(0, 2), [(EventKind::Send, true, false), (EventKind::Unlink, true, true)]);
    let s = w.hosts[0].node.stats();
    assert_eq!((s.resend_count, s.response_timeout_count), (0, 1));
}

/// MR-snd-055, DEC-11: whatever their health, each of the four pairs is tried once; then the message
/// is given up.
#[test]
fn with_paths_for_a_retry_count_each_path_is_tried_once() {
    for weak in [None, Some(300)] {
        let mut w = pair(Profile::Default);
        set(&mut w, 0, &[("retry_count", lnet_types::RETRY_PATHS)]);
        if let Some(health) = weak {
            let now = w.now;
            w.hosts[0].node.set_ni_health(now, Some(nid(A[1])), health);
            w.hosts[0].node.set_peer_ni_health(now, Some(nid(B[1])), health);
        }
        let mut stalled = Stalled::new(&mut w, HealthStatus::LocalTimeout);
        w.put(0, B[0], 1, false);
        stalled.run(&mut w, MS * 5010);
        let mut pairs = w.pairs(0);
        assert_eq!(pairs.len(), 4, "{pairs:?}");
        pairs.sort();
        pairs.dedup();
        assert_eq!(pairs.len(), 4, "{pairs:?}");
        assert_eq!(stalled.limits, [MS * 1250; 4], "each has its share of the time");
        assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
    }
}

/// DEC-11, with two interfaces of ours and one of the peer.
#[test]
fn with_paths_for_a_retry_count_there_are_as_many_attempts_as_paths() {
    let mut w = nodes(Profile::Default, &A, &B[..1]);
    set(&mut w, 0, &[("retry_count", lnet_types::RETRY_PATHS)]);
    fail_to(&mut w, &B, fault(HealthStatus::LocalDropped));
    w.put(0, B[0], 1, false);
    w.run(MS * 10);
    assert_eq!(w.pairs(0).len(), 2);
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
}

/// DEC-6, DEC-7, HL-lnt-040: the set is the administrator's.
#[test]
fn resend_on_says_which_failures_are_sent_again() {
    use HealthStatus as H;
    for status in H::ALL.into_iter().skip(1) {
        for on in [false, true] {
            let mut w = pair(Profile::Default);
            let bits = if on { 1 << status as u8 } else { 0 };
            let now = w.now;
            let set = w.hosts[0].node.set_tunables(now, &[("resend_on", bits)]);
            let never = matches!(status, H::LocalError | H::RemoteError);
            // After an unknown delivery, peers of our kind may get the message again all the same.
            let now = w.now;
            w.hosts[0].node.set_tunables(now, &[("suppress_duplicates", 0)]).unwrap();
            assert_eq!(set.is_err(), never && on, "{status}");
            fail_first(&mut w, 1, fault(status));
            w.put(0, B[0], 1, false);
            w.run(MS * 10);
            let resent = w.hosts[0].node.stats().resend_count;
            assert_eq!(resent, u32::from(on && !never), "{status} {on}");
        }
    }
}
