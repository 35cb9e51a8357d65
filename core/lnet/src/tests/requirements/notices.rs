//! What the administrator gets to read.

use super::*;
use crate::portal::RESERVED_PORTAL;
use crate::{Level, Link, NiState, Notice, Profile};

/// What has been noted since the last time.
fn notices(w: &mut World, host: usize) -> Vec<Notice> {
    core::iter::from_fn(|| w.hosts[host].node.poll_notice()).collect()
}

/// MR-dbg-110.
#[test]
fn down_is_one_warning_and_up_one_line_of_information_with_the_nid_and_both_states() {
    let mut w = pair(Profile::Default);
    notices(&mut w, 0);
    let line = |from, to| Notice::Interface { nid: nid(A[1]), from, to };
    w.link(0, A[1], Link::Down);
    let down = notices(&mut w, 0);
    assert_eq!(down, [line(NiState::Active, NiState::Failed)]);
    assert_eq!(down[0].level(), Level::Warn);
    assert_eq!(down[0].to_string(), "interface 10.77.1.2@tcp: ACTIVE -> FAILED");
    w.secs(1);
    w.link(0, A[1], Link::Up);
    w.secs(1);
    let up = notices(&mut w, 0);
    assert_eq!(up, [line(NiState::Failed, NiState::Active)]);
    assert_eq!(up[0].level(), Level::Info);
}

/// MR-dbg-030, MR-dbg-110.
#[test]
fn a_failure_degrades_an_interface_and_recovery_makes_it_active() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    notices(&mut w, 0);
    fail_first(&mut w, 1, fault(HealthStatus::LocalError));
    w.put(0, B[0], 1, false);
    w.secs(10);
    let states: Vec<_> = notices(&mut w, 0)
        .into_iter()
        .filter_map(|n| match n {
            Notice::Interface { from, to, .. } => Some((from, to)),
            _ => None,
        })
        .collect();
    let (active, degraded) = (NiState::Active, NiState::Degraded);
    assert_eq!(states, [(active, degraded), (degraded, active)]);
}

/// MR-dbg-115, MR-dbg-020.
#[test]
fn a_failed_send_names_the_pair_that_failed_and_the_one_that_it_goes_by_now() {
    let mut w = pair(Profile::Default);
    notices(&mut w, 0);
    fail_first(&mut w, 1, fault(HealthStatus::LocalTimeout));
    w.put(0, B[0], 1, false);
    let pairs = w.pairs(0);
    let pair = |i: usize| (nid(&pairs[i].0), nid(&pairs[i].1));
    let rerouted = Notice::Rerouted {
        target: nid(B[0]),
        failed: pair(0),
        status: HealthStatus::LocalTimeout,
        to: pair(1),
    };
    assert_eq!(rerouted.level(), Level::Error);
    let timed_out = Notice::TimedOut { pair: pair(0), status: HealthStatus::LocalTimeout };
    let all = notices(&mut w, 0);
    assert_eq!(all.iter().filter(|n| **n == rerouted).count(), 1, "{all:?}");
    assert_eq!(all.iter().filter(|n| **n == timed_out).count(), 1, "{all:?}");
    assert!(
        rerouted.to_string().contains(&pairs[1].0) && rerouted.to_string().contains(&pairs[0].0)
    );
}

/// A ping of an operator tells its caller how it failed: an absent NID is no error of this node.
#[test]
fn a_ping_that_goes_another_way_is_no_line_of_the_log() {
    let mut w = pair(Profile::Default);
    w.discovered(0, B[0]);
    notices(&mut w, 0);
    let is_ping = |hdr: &Hdr| matches!(hdr.kind, Kind::Get { portal: RESERVED_PORTAL, .. });
    let mut left = 1;
    w.decide = Box::new(move |t| {
        let fails = is_ping(&t.hdr) && core::mem::take(&mut left) > 0;
        if fails { Fate::Fail(fault(HealthStatus::LocalTimeout)) } else { Fate::Pass }
    });
    let target = lnet_types::ProcessId::lustre(nid(B[0]));
    w.hosts[0].node.ping(w.now, target, None, Duration::from_secs(3));
    w.secs(1);
    assert_eq!(w.hosts[0].node.stats().resend_count, 1, "the ping went again");
    let all = notices(&mut w, 0);
    assert!(!all.iter().any(|n| matches!(n, Notice::Rerouted { .. })), "{all:?}");
}

#[test]
fn a_message_that_is_given_up_says_how_often_it_was_tried_and_how_it_failed() {
    let mut w = pair(Profile::Default);
    notices(&mut w, 0);
    fail_first(&mut w, 3, fault(HealthStatus::LocalNoRoute));
    w.put(0, B[0], 1, false);
    w.secs(5);
    let all = notices(&mut w, 0);
    let last = w.pairs(0).pop().unwrap();
    let undelivered = Notice::Undelivered {
        target: nid(B[0]),
        pair: Some((nid(&last.0), nid(&last.1))),
        status: HealthStatus::LocalNoRoute,
        errno: Errno::EIO,
        attempts: 3,
    };
    assert!(all.contains(&undelivered), "{all:?}");
}

/// MR-dbg-025.
#[test]
fn a_dropped_message_is_one_line_with_its_reason() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    notices(&mut w, 0);
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
    let dropped = Notice::Dropped {
        ni: nid(A[0]),
        source: nid(B[0]),
        target: nid(A[0]),
        kind: MsgType::Put,
        reason: crate::DropReason::NoMatch,
    };
    assert_eq!(notices(&mut w, 0), [dropped]);
    assert_eq!(w.hosts[0].node.stats().drop_count, 1);
}

/// M-37: its descriptor has ended before, and so it concerns no caller.
#[test]
fn a_response_without_a_descriptor_is_dropped_in_silence() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    notices(&mut w, 0);
    let dst = lnet_wire::Handle { interface: 1, object: 2 };
    let hdr = Hdr {
        dst: nid(A[0]),
        src: nid(B[0]),
        dst_pid: lnet_types::Pid::LUSTRE,
        src_pid: lnet_types::Pid::LUSTRE,
        payload_len: 0,
        kind: Kind::Ack { dst, match_bits: 0, mlength: 0, pad: [0; 12] },
    };
    w.inject(0, nid(B[0]), &hdr, &[]);
    assert_eq!(notices(&mut w, 0), []);
    assert_eq!(w.hosts[0].node.stats().drop_count, 1);
}

/// RS-038.
#[test]
fn when_the_last_interface_of_a_peer_is_lost_that_is_said_once() {
    let mut w = pair(Profile::Default);
    notices(&mut w, 0);
    fail_to(&mut w, &B, fault(HealthStatus::RemoteDropped));
    for i in 0..20 {
        w.put(0, B[0], i, false);
        w.run(MS * 10);
    }
    assert_eq!(B.map(|n| w.peer_health(0, n)), [0, 0]);
    let lost = Notice::PeerLost { primary: nid(B[0]) };
    assert_eq!(notices(&mut w, 0).iter().filter(|n| **n == lost).count(), 1);
}

/// RS-038: to a peer that does not deduplicate an announcement is repeated, and withdrawn in between; each of
/// these messages says by itself that the interface which it came from is up.
#[test]
fn a_peer_that_announces_all_its_interfaces_as_down_is_reported_as_lost_once() {
    for (profile, nids) in [
        (Profile::Default, &B[..1]),
        (Profile::Default, &B[..]),
        (Profile::Kernel, &B[..1]),
        (Profile::Kernel, &B[..]),
    ] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(Profile::Default, nids);
        w.discovered(0, B[0]);
        w.discovered(1, A[0]);
        let lost = Notice::PeerLost { primary: nid(B[0]) };
        let times = |w: &mut World| notices(w, 0).iter().filter(|n| **n == lost).count();
        times(&mut w);
        for round in 0..3 {
            // Both are in touch.
            w.put(0, B[0], round, true);
            w.put(1, A[0], 100 + round, true);
            w.run(MS * 10);
            let nis: Vec<_> = w.hosts[1].nids.keys().copied().collect();
            nis.iter().for_each(|ni| w.hosts[1].node.link_changed(w.now, *ni, Link::Down));
            w.drain();
            w.secs(2);
            assert_eq!(times(&mut w), 1, "{profile:?} {nids:?} {round}");
            nis.iter().for_each(|ni| w.hosts[1].node.link_changed(w.now, *ni, Link::Up));
            w.drain();
            w.secs(60);
        }
    }
}

/// A connection ends for many reasons; what it means for the peer shows with the next message.
#[test]
fn the_end_of_the_last_connection_alone_does_not_report_a_peer_as_lost() {
    for (by_driver, is_lost) in [(true, false), (false, true)] {
        let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
        w.discovered(0, B[0]);
        notices(&mut w, 0);
        let ni = *w.hosts[0].nids.keys().next().unwrap();
        let (now, node) = (w.now, &mut w.hosts[0].node);
        if by_driver {
            node.peer_down(now, ni, nid(B[0]), now);
        } else {
            node.notify(now, nid(B[0]), false, now).unwrap();
        }
        let lost = Notice::PeerLost { primary: nid(B[0]) };
        assert_eq!(notices(&mut w, 0) == [lost], is_lost, "by its driver: {by_driver}");
    }
}

/// MR-dyn-060, MR-snd-065, DEC-28: a peer that was configured with a wrong NID.
#[test]
fn a_peer_that_announces_a_nid_outside_its_configuration_makes_a_notice() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    let wrong = nid("10.77.1.99@tcp");
    let now = w.now;
    w.hosts[0].node.peer_add(now, nid(B[0]), &[wrong], true, false).unwrap();
    notices(&mut w, 0);
    w.put(0, B[0], 1, true);
    w.secs(1);
    let warnings: Vec<_> = notices(&mut w, 0)
        .into_iter()
        .filter(|n| matches!(n, Notice::Contradicted { .. }))
        .map(|n| (n.level(), n.to_string()))
        .collect();
    let text = "peer 10.77.0.3@tcp announces 10.77.1.3@tcp: rejected, configuration wins \
                (Operation not permitted)";
    assert!(warnings.contains(&(Level::Warn, text.to_owned())), "{warnings:?}");
    let known = w.hosts[0].node.peer_view_of(nid(B[0])).unwrap();
    let nids: Vec<_> = known.nis.iter().map(|n| n.nid).collect();
    assert_eq!(nids, [nid(B[0]), wrong], "as configured");
}

/// Each look at a gateway that is away fails again, and each connection that its driver can't make.
#[test]
fn a_gateway_that_stays_away_is_one_warning_and_its_return_one_line_of_information() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    w.route(0, "tcp9", B[0]);
    w.secs(2);
    notices(&mut w, 0);
    let of_gateway = |w: &mut World| {
        let all = notices(w, 0).into_iter().filter(|n| matches!(n, Notice::Gateway { .. }));
        all.map(|n| n.level()).collect::<Vec<_>>()
    };
    fail_to(&mut w, &B, fault(HealthStatus::RemoteDropped));
    let (&ni, _) = w.hosts[0].nids.iter().find(|(_, x)| **x == nid(A[0])).unwrap();
    for _ in 0..20 {
        let now = w.now;
        w.hosts[0].node.peer_down(now, ni, nid(B[0]), now);
        w.secs(10);
    }
    assert_eq!(of_gateway(&mut w), [Level::Warn]);
    w.decide = Box::new(|_| Fate::Pass);
    w.secs(120);
    assert_eq!(of_gateway(&mut w), [Level::Info]);
}
