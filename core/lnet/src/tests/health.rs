//! Failures, resends and recovery.

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, Nid};
use lnet_wire::{Hdr, Kind};

use super::world::{Fate, PT, World, nid};
use crate::{EventKind, Link, Profile};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];

fn pair(profile: Profile) -> World {
    let mut w = World::new();
    w.host(profile, &A);
    w.host(profile, &B);
    w.discovered(0, B[0]);
    w
}

fn fault(status: HealthStatus) -> Fault {
    let errno = match status {
        HealthStatus::RemoteDropped => Errno::ECONNREFUSED,
        HealthStatus::NetworkTimeout => Errno::ETIMEDOUT,
        _ => Errno::EIO,
    };
    Fault::new(status, errno)
}

fn is_test_put(hdr: &Hdr) -> bool {
    matches!(hdr.kind, Kind::Put { portal: PT, .. })
}

/// The first `n` test PUTs fail with `status`; everything else passes.
fn fail_first(w: &mut World, n: usize, status: HealthStatus) {
    let mut left = n;
    w.decide = Box::new(move |t| {
        if is_test_put(&t.hdr) && left > 0 {
            left -= 1;
            Fate::Fail(fault(status))
        } else {
            Fate::Pass
        }
    });
}

#[test]
fn x03_a_local_timeout_is_sent_again_on_the_other_interface() {
    let mut w = pair(Profile::Kernel);
    fail_first(&mut w, 1, HealthStatus::LocalTimeout);
    w.put(0, B[0], 1, false);
    let first = w.pairs(0)[0].0.clone();
    assert_eq!(w.ni_health(0, &first), 900);
    w.run(Duration::from_millis(10));
    assert_ne!(w.pairs(0)[1].0, first);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)]);
    let s = w.hosts[0].node.stats();
    assert_eq!((s.local_timeout_count, s.resend_count, s.successful_resends), (1, 1, 1));
    // Why it went again and which way is kept without being asked for.
    assert_eq!(w.hosts[0].node.explained().len(), 0);
    let resends: Vec<_> = w.hosts[0].node.resends().collect();
    assert_eq!((resends.len(), resends[0].retries), (1, 1));
    assert_eq!(resends[0].failed, Some(HealthStatus::LocalTimeout));
    assert!(resends[0].to_string().contains("attempt 2 after local_timeout"));
    assert_eq!((w.peer_health(0, B[0]), w.peer_health(0, B[1])), (1000, 1000));
    assert_eq!(w.hosts[0].node.recovery_queues().0, [nid(&first)]);
    w.secs(2);
    assert_eq!(w.ni_health(0, &first), 1000);
}

#[test]
fn x04_with_one_interface_nothing_is_sent_again() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A[..1]);
    w.host(Profile::Kernel, &B);
    w.discovered(0, B[0]);
    fail_first(&mut w, 1, HealthStatus::LocalTimeout);
    w.put(0, B[0], 1, false);
    assert_eq!(w.ni_health(0, A[0]), 900);
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::EIO));
    let s = w.hosts[0].node.stats();
    assert_eq!((s.resend_count, s.failed_resends), (0, 0));
}

#[test]
fn x05_a_message_fails_after_its_last_retry() {
    let mut w = pair(Profile::Kernel);
    fail_first(&mut w, 9, HealthStatus::LocalTimeout);
    w.put(0, B[0], 1, false);
    assert_eq!(w.pairs(0).len(), 3);
    assert_eq!(w.ni_health(0, A[0]) + w.ni_health(0, A[1]), 1700);
    let s = w.hosts[0].node.stats();
    assert_eq!((s.local_timeout_count, s.resend_count, s.failed_resends), (3, 2, 1));
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
}

#[test]
fn x06_a_message_that_the_peer_dropped_goes_to_its_other_interface() {
    let mut w = pair(Profile::Kernel);
    fail_first(&mut w, 1, HealthStatus::RemoteDropped);
    w.put(0, B[0], 1, false);
    w.run(Duration::from_millis(10));
    let pairs = w.pairs(0);
    assert_ne!(pairs[0].1, pairs[1].1);
    assert_eq!(w.peer_health(0, &pairs[0].1), 900);
    assert_eq!((w.ni_health(0, A[0]), w.ni_health(0, A[1])), (1000, 1000));
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)]);
}

#[test]
fn x06_a_peer_with_one_interface_keeps_its_health_and_the_caller_gets_the_error() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    w.host(Profile::Kernel, &B[..1]);
    w.discovered(0, B[0]);
    fail_first(&mut w, 1, HealthStatus::RemoteDropped);
    w.put(0, B[0], 1, false);
    assert_eq!(w.peer_health(0, B[0]), 1000);
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::ECONNREFUSED));
    assert_eq!(w.hosts[0].node.stats().remote_dropped_count, 1);
}

#[test]
fn x07_a_network_timeout_costs_both_sides_and_is_not_sent_again() {
    let mut w = pair(Profile::Kernel);
    fail_first(&mut w, 1, HealthStatus::NetworkTimeout);
    w.put(0, B[0], 1, false);
    let (a, b) = w.pairs(0)[0].clone();
    assert_eq!((w.ni_health(0, &a), w.peer_health(0, &b)), (900, 900));
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::ETIMEDOUT));
    let v = w.hosts[0].node.peer_view_of(nid(&b)).unwrap();
    assert_eq!(v.nis.iter().find(|n| n.nid == nid(&b)).unwrap().failures.network_timeout, 1);
    assert_eq!(w.hosts[0].node.stats().network_timeout_count, 1);
    let (local, peer) = w.hosts[0].node.recovery_queues();
    assert_eq!((local, peer), (vec![nid(&a)], vec![nid(&b)]));
}

#[test]
fn the_documents_profile_sends_network_timeouts_again() {
    let mut w = pair(Profile::Documents);
    fail_first(&mut w, 1, HealthStatus::NetworkTimeout);
    w.put(0, B[0], 1, false);
    w.run(Duration::from_millis(10));
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)]);
}

#[test]
fn x08_an_inconsistent_report_charges_no_interface() {
    let mut w = pair(Profile::Kernel);
    fail_first(&mut w, 1, HealthStatus::Ok);
    w.put(0, B[0], 1, false);
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::EIO));
    assert_eq!(w.ni_health(0, A[0]) + w.ni_health(0, A[1]), 2000);
    assert_eq!(w.hosts[0].node.stats().resend_count, 0);
}

#[test]
fn h10_each_status_charges_the_sides_in_the_table() {
    use HealthStatus as H;
    let table = [
        (H::LocalInterrupt, 100, 0, true),
        (H::LocalDropped, 100, 0, true),
        (H::LocalAborted, 100, 0, true),
        (H::LocalNoRoute, 100, 0, true),
        (H::LocalTimeout, 100, 0, true),
        (H::LocalError, 100, 0, false),
        (H::RemoteDropped, 0, 100, true),
        (H::RemoteError, 0, 100, false),
        (H::RemoteTimeout, 0, 100, false),
        (H::NetworkTimeout, 100, 100, false),
    ];
    for (status, local, remote, again) in table {
        let mut w = pair(Profile::Kernel);
        fail_first(&mut w, 1, status);
        w.put(0, B[0], 1, false);
        let lost = 2000 - w.ni_health(0, A[0]) - w.ni_health(0, A[1]);
        let theirs = 2000 - w.peer_health(0, B[0]) - w.peer_health(0, B[1]);
        assert_eq!((lost, theirs), (local, remote), "{status}");
        assert_eq!(w.pairs(0).len(), if again { 2 } else { 1 }, "{status}");
    }
}

#[test]
fn x09_recovery_pings_back_off_by_doubling() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A[..1]);
    w.host(Profile::Kernel, &B);
    w.discovered(0, B[0]);
    w.hosts[0].node.set_tunables(w.now, &[("max_recovery_ping_interval", 10)]).unwrap();
    w.decide = Box::new(|_| Fate::Fail(fault(HealthStatus::LocalError)));
    let t0 = w.now;
    w.put(0, B[0], 1, false);
    let mut at = Vec::new();
    for _ in 0..60 {
        let before = w.hosts[0].sent.len();
        w.secs(1);
        if w.hosts[0].sent.len() > before {
            at.push(w.now.as_secs() - t0.as_secs());
        }
    }
    assert_eq!(at, [1, 3, 7, 15, 25, 35, 45, 55]);
}

#[test]
fn dec5_recovery_pings_come_every_second_while_they_succeed_and_rarer_while_they_fail() {
    let mut w = pair(Profile::Default);
    // A peer interface at 700 needs three good pings.
    w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(B[0])), 700);
    w.secs(4);
    assert_eq!(w.peer_health(0, B[0]), 1000);
    // Failing ones: after 1, then 2, 4, 5, 5 … seconds.
    w.decide = Box::new(|_| Fate::Fail(fault(HealthStatus::RemoteError)));
    w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(B[0])), 700);
    w.hosts[0].sent.clear();
    w.secs(20);
    let pings = w.hosts[0].sent.iter().filter(|(_, h)| h.dst == nid(B[0])).count();
    assert!((4..=6).contains(&pings), "{pings}");
}

/// Each ping was a sign of life that made the other one ping at once, and their answers, by another
/// rail, healed nothing.
#[test]
fn two_nodes_that_recover_the_same_rail_do_not_trigger_each_others_pings() {
    let mut w = pair(Profile::Default);
    let pings = |w: &World| w.hosts.iter().map(|h| h.sent.len()).sum::<usize>();
    for (host, own, other) in [(0, A[0], B), (1, B[0], A)] {
        let (&ni, _) = w.hosts[host].nids.iter().find(|(_, n)| **n == nid(own)).unwrap();
        let node = &mut w.hosts[host].node;
        for other in other {
            // Answers go another way.
            node.rail_changed(w.now, ni, nid(other), crate::Doubt::Silent);
        }
        node.set_peer_ni_health(w.now, Some(nid(other[0])), 700);
    }
    let before = pings(&w);
    w.secs(5);
    let sent = pings(&w) - before;
    assert!(sent < 60, "{sent}");
    assert_eq!((w.peer_health(0, B[0]), w.peer_health(1, A[0])), (1000, 1000));
}

/// A connection that was refused is not tried again for up to a minute; meanwhile the driver has nothing
/// to send by. Kernel nodes give up what happens to come to that rail (S-4).
#[test]
fn a_message_that_a_driver_rejects_goes_by_another_rail() {
    for (profile, goes) in [(Profile::Default, true), (Profile::Kernel, false)] {
        let mut w = pair(profile);
        w.decide = Box::new(|t| match t.to.nid == nid(B[0]) && is_test_put(&t.hdr) {
            true => Fate::Refuse(fault(HealthStatus::RemoteDropped)),
            false => Fate::Pass,
        });
        let mut failed = 0;
        for user in 0..8 {
            w.put(0, B[0], user, true);
            w.run(Duration::from_millis(50));
            failed += usize::from(w.events(0, user).len() < 2);
        }
        assert_eq!(failed == 0, goes, "{profile:?}: {failed} of 8");
    }
}

/// Which side is to blame for a rail is a guess. Kernel nodes give it up (H-20).
#[test]
fn a_message_that_failed_towards_the_only_peer_interface_leaves_by_another_local_one() {
    for (profile, goes) in [(Profile::Default, true), (Profile::Kernel, false)] {
        let mut w = World::new();
        w.host(profile, &["10.70.0.2@tcp", "10.70.1.2@tcp"]);
        w.host(profile, &["10.70.0.3@tcp"]);
        w.discovered(0, "10.70.0.3@tcp");
        w.decide = Box::new(|t| match t.hdr.src == nid("10.70.0.2@tcp") && is_test_put(&t.hdr) {
            true => Fate::Fail(fault(HealthStatus::RemoteDropped)),
            false => Fate::Pass,
        });
        let mut failed = 0;
        for user in 0..6 {
            w.put(0, "10.70.0.3@tcp", user, true);
            w.run(Duration::from_millis(50));
            failed += usize::from(w.events(0, user).len() < 2);
        }
        assert_eq!(failed == 0, goes, "{profile:?}: {failed} of 6");
    }
}

/// DEC-5: a peer that sends is pinged at once, but not each time.
#[test]
fn signs_of_life_make_no_more_than_one_ping_a_second() {
    let mut w = pair(Profile::Default);
    let slowly = [("health_on_success", 0), ("recovery_step", 1)];
    w.hosts[0].node.set_tunables(w.now, &slowly).unwrap();
    w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(B[0])), 100);
    w.secs(2);
    w.hosts[0].sent.clear();
    for user in 0..40 {
        w.put(1, A[0], user, false);
        w.run(Duration::from_millis(50));
    }
    let pings = w.hosts[0].sent.iter().filter(|(_, h)| matches!(h.kind, Kind::Get { .. }));
    let pings = pings.count();
    assert!((1..=3).contains(&pings), "{pings}");
}

/// S-3: a missing way back is charged to no interface.
#[test]
fn a_request_is_not_charged_for_a_response_without_a_route() {
    for (profile, pays) in [(Profile::Default, false), (Profile::Kernel, true)] {
        let (a, b, gateway) =
            ("10.70.0.2@tcp", "10.70.1.3@tcp1", ["10.70.0.4@tcp", "10.70.1.4@tcp1"]);
        let mut w = World::new();
        w.host(profile, &[a]);
        w.host(profile, &[b]);
        let r = w.router(profile, &gateway);
        w.secs(1);
        w.discovered(0, gateway[0]);
        w.get(0, gateway[0], 5);
        w.secs(1);
        // For the near interface, by way of a neighbour, from one that only the far one leads to.
        let get = w.hosts[0].sent.iter().find(|(_, h)| matches!(h.kind, Kind::Get { .. }));
        let (src, dst, dst_pid) = (nid(b), nid(gateway[0]), lnet_types::Pid::LUSTRE);
        let hdr = Hdr { src, dst, dst_pid, ..get.unwrap().1 };
        w.inject(r, nid(a), &hdr, &[]);
        w.drain();
        assert!(!w.hosts[r].sent.iter().any(|(_, h)| h.dst == hdr.src), "{profile:?}");
        assert_eq!(w.peer_health(r, a) < 1000, pays, "{profile:?}");
    }
}

/// H-10: a degraded interface that does not answer is no evidence against ours.
#[test]
fn our_interface_does_not_pay_for_pings_to_one_of_a_peer_that_is_gone() {
    for (profile, pays) in [(Profile::Default, false), (Profile::Kernel, true)] {
        let mut w = pair(profile);
        w.decide = Box::new(|t| match t.to.nid == nid(B[0]) {
            true => Fate::Fail(fault(HealthStatus::NetworkTimeout)),
            false => Fate::Pass,
        });
        w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(B[0])), 700);
        let mut least = 1000;
        for _ in 0..100 {
            w.run(Duration::from_millis(100));
            least = least.min(w.ni_health(0, A[0])).min(w.ni_health(0, A[1]));
        }
        assert!(w.peer_health(0, B[0]) < 700, "{profile:?}");
        assert_eq!(least < 1000, pays, "{profile:?}");
    }
}

#[test]
fn x10_a_peer_never_heard_from_is_not_pinged() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A);
    let now = w.now;
    w.hosts[0].node.peer_add(now, nid(B[0]), &[nid(B[1])], true, false).unwrap();
    w.hosts[0].node.set_peer_ni_health(now, Some(nid(B[0])), 900);
    assert!(w.hosts[0].node.recovery_queues().1.is_empty());
}

#[test]
fn x11_recovery_pings_end_at_the_recovery_limit() {
    let mut w = pair(Profile::Kernel);
    w.hosts[0].node.set_tunables(w.now, &[("recovery_limit", 60)]).unwrap();
    w.put(0, B[0], 1, true);
    w.secs(1);
    let heard = w.now;
    w.hosts[1].alive = false;
    w.decide = Box::new(|t| match t.hdr.kind {
        Kind::Get { .. } => Fate::Fail(fault(HealthStatus::RemoteError)),
        _ => Fate::Pass,
    });
    w.secs(9);
    w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(B[0])), 900);
    w.hosts[0].sent.clear();
    w.secs(200);
    assert!(w.now > heard);
    let pings = w.hosts[0].sent.iter().filter(|(_, h)| h.dst == nid(B[0])).count();
    assert_eq!(pings, 6, "at 11, 13, 17, 25, 41 and 73 s");
    assert!(w.hosts[0].node.recovery_queues().1.is_empty());
}

#[test]
fn x12_a_lost_ack_is_noticed_and_blamed_on_the_next_hop() {
    let mut w = World::new();
    w.host(Profile::Kernel, &A[..1]);
    w.host(Profile::Kernel, &B[..1]);
    w.discovered(0, B[0]);
    w.decide =
        Box::new(|t| if matches!(t.hdr.kind, Kind::Ack { .. }) { Fate::Lose } else { Fate::Pass });
    w.put(0, B[0], 1, true);
    w.secs(149);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false)]);
    let mut lowest = 1000;
    for _ in 0..80 {
        w.secs(1);
        lowest = lowest.min(w.peer_health(0, B[0]));
    }
    assert_eq!(lowest, 900, "even though the peer has a single interface");
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false), (EventKind::Unlink, true, true)]);
    assert_eq!(w.hosts[0].node.stats().response_timeout_count, 1);
}

#[test]
fn in_the_default_profile_a_lost_ack_is_noticed_at_the_transaction_timeout() {
    let mut w = pair(Profile::Default);
    w.decide =
        Box::new(|t| if matches!(t.hdr.kind, Kind::Ack { .. }) { Fate::Lose } else { Fate::Pass });
    w.put(0, B[0], 1, true);
    w.run(Duration::from_millis(4_999));
    assert_eq!(w.events(0, 1).len(), 1);
    w.run(Duration::from_millis(1));
    assert_eq!(w.events(0, 1).len(), 2);
}

/// H-64, H-67: the first ACK does not end the watch for the second one.
#[test]
fn a_descriptor_with_two_puts_ends_when_one_of_its_acks_is_lost() {
    for profile in [Profile::Default, Profile::Kernel] {
        let mut w = pair(profile);
        let mut acks = 0;
        w.decide = Box::new(move |t| {
            acks += u32::from(matches!(t.hdr.kind, Kind::Ack { .. }));
            if matches!(t.hdr.kind, Kind::Ack { .. }) && acks == 2 {
                Fate::Lose
            } else {
                Fate::Pass
            }
        });
        let now = w.now;
        let h = &mut w.hosts[0];
        let buf = h.mem.add(vec![1; 100]);
        let md = crate::MdSpec { threshold: Some(4), ..crate::MdSpec::new(buf, 7) };
        let md = h.node.bind(md).unwrap();
        for _ in 0..2 {
            let put = crate::Put {
                md,
                ack: true,
                src: None,
                target: lnet_types::ProcessId::lustre(nid(B[0])),
                portal: PT,
                match_bits: super::world::BITS,
                offset: 0,
                hdr_data: 7,
                timeout: None,
            };
            h.node.put(now, put).unwrap();
        }
        w.drain();
        w.secs(1);
        let of = |w: &World, kind| w.events(0, 7).iter().filter(|e| e.0 == kind).count();
        assert_eq!((of(&w, EventKind::Send), of(&w, EventKind::Ack)), (2, 1), "{profile:?}");
        w.secs(300);
        assert_eq!(w.events(0, 7).last(), Some(&(EventKind::Unlink, true, true)), "{profile:?}");
        assert_eq!(w.hosts[0].node.stats().response_timeout_count, 1, "{profile:?}");
    }
}

#[test]
fn x13_an_abandoned_operation_charges_no_interface() {
    let mut w = pair(Profile::Kernel);
    w.decide =
        Box::new(
            |t| {
                if matches!(t.hdr.kind, Kind::Reply { .. }) { Fate::Lose } else { Fate::Pass }
            },
        );
    w.get(0, B[0], 1);
    w.secs(5);
    let md = w.hosts[0].events[0].md;
    w.hosts[0].node.unlink(w.now, md).unwrap();
    w.drain();
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false), (EventKind::Unlink, true, true)]);
    w.secs(300);
    assert_eq!(w.hosts[0].node.stats().response_timeout_count, 0);
    assert_eq!(w.peer_health(0, B[0]) + w.peer_health(0, B[1]), 2000);
}

#[test]
fn x28_a_response_is_tried_again_on_the_same_interface() {
    let mut w = pair(Profile::Kernel);
    let mut left = 2;
    w.decide = Box::new(move |t| {
        if matches!(t.hdr.kind, Kind::Reply { .. }) && left > 0 {
            left -= 1;
            Fate::Fail(fault(HealthStatus::LocalTimeout))
        } else {
            Fate::Pass
        }
    });
    w.get(0, B[0], 1);
    w.secs(1);
    let used: Vec<_> = w.hosts[1]
        .sent
        .iter()
        .filter(|(_, h)| matches!(h.kind, Kind::Reply { .. }))
        .map(|(_, h)| h.src)
        .collect();
    assert_eq!(used.len(), 3);
    assert!(used.iter().all(|n| *n == used[0]));
    assert_eq!(w.events(0, 1).len(), 2);
}

#[test]
fn dec15_towards_a_multi_rail_peer_a_response_that_failed_takes_another_pair() {
    let mut w = pair(Profile::Default);
    let mut left = 1;
    w.decide = Box::new(move |t| {
        if matches!(t.hdr.kind, Kind::Reply { .. }) && left > 0 {
            left -= 1;
            Fate::Fail(fault(HealthStatus::LocalTimeout))
        } else {
            Fate::Pass
        }
    });
    w.get(0, B[0], 1);
    w.secs(1);
    let used: Vec<_> = w.hosts[1]
        .sent
        .iter()
        .filter(|(_, h)| matches!(h.kind, Kind::Reply { .. }))
        .map(|(_, h)| h.src)
        .collect();
    assert_ne!(used[0], used[1]);
}

#[test]
fn x39_a_fatal_interface_is_left_and_announced() {
    let mut w = pair(Profile::Kernel);
    let (id, _) = w.hosts[0].nids.iter().find(|(_, n)| **n == nid(A[0])).unwrap();
    let id = *id;
    let seq = w.hosts[0].node.ping_seq();
    w.hosts[0].node.link_changed(w.now, id, Link::Down);
    w.run(Duration::from_millis(500));
    assert_eq!(w.hosts[0].node.ping_seq(), seq + 1);
    assert_eq!(w.peer_health(1, A[0]), 900, "announced by push, D-45");
    for i in 0..3 {
        w.put(0, B[0], i, false);
    }
    w.secs(1);
    assert!(w.pairs(0).iter().all(|p| p.0 == A[1]));
    assert!(!w.hosts[0].node.net_views()[1].nis[0].up);
    w.hosts[0].node.link_changed(w.now, id, Link::Up);
    w.secs(20);
    assert!(w.hosts[0].node.net_views()[1].nis[0].up);
    assert_eq!(w.peer_health(1, A[0]), 1000);
}

/// Found by the swarm: an interface that comes back is met anew; if it fails before it was heard from,
/// nothing made it whole again.
#[test]
fn an_interface_of_a_multi_rail_node_is_pinged_though_it_was_never_heard_from() {
    // More than had anything to say so far.
    let many: Vec<String> = (20..32).map(|n| format!("10.77.0.{n}@tcp")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (profile, all) in [(Profile::Default, true), (Profile::Kernel, false)] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &many);
        w.discovered(0, many[0]);
        let now = w.now;
        for n in &many {
            w.hosts[0].node.set_peer_ni_health(now, Some(nid(n)), 900);
        }
        let queued = w.hosts[0].node.recovery_queues().1.len();
        assert_eq!(queued == many.len(), all, "{profile:?}: {queued}");
        w.secs(20);
        let whole = many.iter().filter(|n| w.peer_health(0, n) == 1000).count();
        assert_eq!(whole == many.len(), all, "{profile:?}: {whole}");
    }
}

#[test]
fn x40_sensitivity_zero_leaves_health_alone() {
    let mut w = pair(Profile::Kernel);
    w.hosts[0].node.set_tunables(w.now, &[("health_sensitivity", 0)]).unwrap();
    fail_first(&mut w, 1, HealthStatus::LocalTimeout);
    w.put(0, B[0], 1, false);
    assert_eq!(w.ni_health(0, A[0]) + w.ni_health(0, A[1]), 2000);
    assert_eq!(w.hosts[0].node.stats().local_timeout_count, 1);
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
}

/// Seconds from health 0 to 1000 of an interface of ours and of a peer's, by recovery pings alone.
fn recovery_seconds(sensitivity: i64, change: &[(&str, i64)]) -> (u64, u64) {
    let mut w = pair(Profile::Documents);
    w.hosts[0].node.set_tunables(w.now, &[("health_sensitivity", sensitivity)]).unwrap();
    w.hosts[0].node.set_tunables(w.now, change).unwrap();
    // What is pushed of the change would be a sign of life of the peer's.
    w.hosts[0].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
    w.secs(5);
    w.hosts[0].node.set_ni_health(w.now, Some(nid(A[0])), 0);
    w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(B[0])), 0);
    let (mut ours, mut theirs) = (0, 0);
    for second in 1..=2000 {
        w.secs(1);
        if ours == 0 && w.ni_health(0, A[0]) == 1000 {
            ours = second;
        }
        if theirs == 0 && w.peer_health(0, B[0]) == 1000 {
            theirs = second;
        }
    }
    (ours, theirs)
}

#[test]
fn dec3_documents_recover_by_one_sensitivity_each_second() {
    // The tenth ping goes out at 10 s and its answer is there a moment later.
    assert_eq!(recovery_seconds(100, &[]), (11, 11));
    assert_eq!(recovery_seconds(50, &[]), (21, 21));
    assert_eq!(recovery_seconds(100, &[("recovery_step", 1)]), (1001, 1001));
}

#[test]
fn dec4_ordinary_messages_heal_only_where_they_are_meant_to() {
    for (on, healed) in [(0, 900), (1, 1000)] {
        let mut w = pair(Profile::Documents);
        w.hosts[0].node.set_tunables(w.now, &[("health_on_success", on)]).unwrap();
        w.hosts[0].node.set_ni_health(w.now, Some(nid(A[0])), 900);
        w.hosts[0].node.set_ni_health(w.now, Some(nid(A[1])), 900);
        w.put(0, B[0], 1, false);
        w.put(0, B[0], 2, false);
        w.run(Duration::from_millis(10));
        assert_eq!((w.ni_health(0, A[0]), w.ni_health(0, A[1])), (healed, healed));
    }
}

#[test]
fn a_failure_reported_past_the_deadline_still_costs_health_but_in_the_kernel_profile() {
    for (profile, health) in [(Profile::Default, 900), (Profile::Kernel, 1000)] {
        let mut w = pair(profile);
        w.decide = Box::new(|t| if is_test_put(&t.hdr) { Fate::Hold } else { Fate::Pass });
        w.put(0, B[0], 1, false);
        w.run(Duration::from_secs(152));
        let (i, t) = w.held.pop_front().unwrap();
        w.hosts[i].node.tx_done(w.now, t.msg, Err(fault(HealthStatus::LocalTimeout)));
        w.drain();
        let from = w.pairs(0)[0].0.clone();
        assert_eq!(w.ni_health(0, &from), health, "{profile:?}");
        assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)], "and is not sent again");
    }
}

/// Each change of a link would cost a push to every peer.
#[test]
fn announcements_of_a_flapping_interface_are_limited_to_one_per_second_and_end_with_its_state() {
    for (profile, ends) in [
        (Profile::Default, Link::Up),
        (Profile::Default, Link::Down),
        (Profile::Off, Link::Down),
        (Profile::Kernel, Link::Down),
    ] {
        let mut w = pair(profile);
        for (n, link) in [Link::Down, Link::Up].into_iter().cycle().take(100).enumerate() {
            let before = w.hosts[0].sent.len();
            w.link(0, A[1], link);
            w.run(Duration::from_millis(20));
            let announced = w.hosts[0].sent.len() > before;
            assert!(announced || n >= 6, "{profile:?}: change {n} is announced at once");
        }
        let is_push = |(_, hdr): &&(Nid, Hdr)| matches!(hdr.kind, Kind::Put { portal: 0, .. });
        let pushes = w.hosts[0].sent.iter().filter(is_push).count();
        let expected = if profile == Profile::Kernel { 100..200 } else { 9..14 };
        assert!(expected.contains(&pushes), "{profile:?}: {pushes} pushes in 2 s");
        w.link(0, A[1], ends);
        w.secs(3);
        let node = &w.hosts[0].node;
        let own = node.nis.values().find(|ni| ni.nid == nid(A[1])).unwrap();
        assert_eq!(
            (own.is_up(), own.announced_up),
            (ends == Link::Up, ends == Link::Up),
            "{profile:?}"
        );
        let acked = node.peers.peers.values().map(|peer| peer.disc.acked_seq);
        assert_eq!(acked.collect::<Vec<_>>(), [node.own.seq()], "{profile:?}");
    }
}

#[test]
fn changes_of_health_are_known_one_by_one_as_far_back_as_few_are() {
    let mut w = pair(Profile::Default);
    let (now, [first, second]) = (w.now, [nid(A[0]), nid(A[1])]);
    let node = &mut w.hosts[0].node;
    let before = node.health_changes();
    assert_eq!(node.health_since(before), Some(vec![]));
    node.set_ni_health(now, Some(first), 900);
    node.set_ni_health(now, Some(second), 800);
    assert_eq!(node.health_since(before), Some(vec![(first, 900), (second, 800)]));
    assert_eq!(node.health_since(before + 1), Some(vec![(second, 800)]));
    for n in 0..100 {
        node.set_ni_health(now, Some(first), n);
    }
    assert_eq!(node.health_since(before), None, "too many to be kept");
    assert_eq!(node.health_since(node.health_changes() - 1), Some(vec![(first, 99)]));
    assert_eq!(node.health_since(node.health_changes() + 1), None, "of another life");
}
