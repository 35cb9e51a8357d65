//! When messages go: credits, queues, deadlines.

use lnet_types::{Errno, Fault, HealthStatus};

use super::world::{Fate, World, nid};
use crate::{EventKind, NetTunables, Profile};

const A: &str = "10.77.0.2@tcp";
const B: &str = "10.77.0.3@tcp";
const C: &str = "10.77.0.4@tcp";

fn narrow(profile: Profile) -> World {
    let one = NetTunables { credits: 1, peer_credits: 1, ..NetTunables::SOCK };
    let mut w = World::new();
    w.host_with(profile, &[A], one);
    w.host(profile, &[B]);
    w.host(profile, &[C]);
    w.discovered(0, B);
    w.discovered(0, C);
    w.decide = Box::new(|_| Fate::Hold);
    w
}

#[test]
fn x16_credits_return_to_the_interface_first() {
    let mut w = narrow(Profile::Kernel);
    w.put(0, B, 1, false);
    w.put(0, B, 2, false);
    w.put(0, C, 3, false);
    let view = w.hosts[0].node.peer_view_of(B.parse().unwrap()).unwrap();
    assert_eq!((view.nis[0].credits, view.nis[0].credits_min), (-1, -1));
    assert_eq!(w.hosts[0].node.net_views()[1].nis[0].credits, -1);
    let mut order = Vec::new();
    while let Some((_, t)) = w.held.front() {
        order.push(t.hdr.dst.to_string());
        w.release();
        w.run(core::time::Duration::from_millis(2));
    }
    assert_eq!(order, [B, C, B]);
    assert_eq!(w.hosts[0].node.net_views()[1].nis[0].credits, 1, "credits come home");
}

/// The order in which three messages to one peer leave: two PUTs, of which one has the only credit, and a
/// ping of LNet's own.
fn order_of_two_puts_with_a_ping(profile: Profile) -> Vec<bool> {
    let mut w = narrow(profile);
    w.put(0, B, 1, false);
    w.put(0, B, 2, false);
    w.hosts[0].node.discover(w.now, nid(B), true);
    w.run(core::time::Duration::from_millis(1));
    let mut is_own = Vec::new();
    while let Some((_, t)) = w.held.front() {
        is_own.push(crate::portal::is_internal(&t.hdr.kind));
        w.release();
        w.run(core::time::Duration::from_millis(2));
    }
    is_own.truncate(3);
    is_own
}

#[test]
fn what_lnet_itself_asks_and_says_does_not_wait_behind_messages_that_wait() {
    assert_eq!(order_of_two_puts_with_a_ping(Profile::Default), [false, true, false]);
    // C-12: a kernel node's queue is in order of arrival.
    assert_eq!(order_of_two_puts_with_a_ping(Profile::Kernel), [false, false, true]);
}

#[test]
fn x14_a_message_unlinked_while_it_waits_is_cancelled_and_one_in_the_driver_times_out() {
    let mut w = narrow(Profile::Kernel);
    w.put(0, B, 1, false);
    w.put(0, B, 2, false);
    // Find the descriptors through the messages that are in hand.
    let mds: Vec<_> = w.hosts[0].node.msgs.values().filter_map(|m| m.md).collect();
    for md in mds {
        w.hosts[0].node.unlink(w.now, md).unwrap();
    }
    assert!(w.hosts[0].events.is_empty(), "operations are still in progress");
    w.release();
    w.secs(1);
    let e: Vec<_> = w.hosts[0].events.iter().map(|e| (e.kind, e.status, e.unlinked)).collect();
    assert_eq!(
        e,
        [
            (EventKind::Send, Err(Errno::ETIMEDOUT), true),
            (EventKind::Send, Err(Errno::ECANCELED), true)
        ]
    );
}

#[test]
fn x15_a_message_that_waited_too_long_is_dropped_when_its_turn_comes() {
    let mut w = narrow(Profile::Kernel);
    w.put(0, B, 1, false);
    w.put(0, B, 2, false);
    w.secs(152);
    assert!(w.hosts[0].events.is_empty(), "a queued message is not checked before its turn");
    let drops = w.hosts[0].node.stats().drop_count;
    w.release();
    w.secs(1);
    let of_2 = w.hosts[0].events.iter().find(|e| e.user == 2).unwrap();
    assert_eq!(of_2.status, Err(Errno::ETIMEDOUT));
    let s = w.hosts[0].node.stats();
    assert_eq!((s.drop_count - drops, s.network_timeout_count), (1, 0));
    assert_eq!(w.ni_health(0, A), 1000);
}

#[test]
fn in_the_default_profile_a_waiting_message_ends_at_its_deadline() {
    let mut w = narrow(Profile::Default);
    w.put(0, B, 1, false);
    w.put(0, B, 2, false);
    w.secs(4);
    assert!(w.hosts[0].events.is_empty());
    w.secs(2);
    let e = &w.hosts[0].events;
    assert_eq!((e.len(), e[0].user, e[0].status), (1, 2, Err(Errno::ETIMEDOUT)));
    w.release();
    w.secs(1);
    let v = w.hosts[0].node.peer_view_of(B.parse().unwrap()).unwrap();
    assert_eq!((v.nis[0].credits, v.nis[0].queued_bytes), (1, 0), "credits come home");
}

/// C-8, H-4: what never left is no evidence against an interface.
#[test]
fn messages_that_only_waited_for_a_credit_cost_no_health() {
    let mut w = narrow(Profile::Default);
    for user in 0..13 {
        w.put(0, B, user, false);
    }
    w.secs(6);
    let ends = w.hosts[0].events.iter().filter(|e| e.status == Err(Errno::ETIMEDOUT));
    assert_eq!(ends.count(), 12, "all but the one in the driver");
    let s = w.hosts[0].node.stats();
    assert_eq!((w.ni_health(0, A), s.network_timeout_count), (1000, 0));
}

#[test]
fn removing_an_interface_ends_its_messages_with_one_event_each() {
    let mut w = narrow(Profile::Kernel);
    for i in 0..3 {
        w.put(0, B, i, false);
    }
    let ni = *w.hosts[0].nids.keys().next().unwrap();
    w.hosts[0].node.del_ni(w.now, ni).unwrap();
    w.drain();
    let mut users: Vec<_> = w.hosts[0].events.iter().map(|e| (e.user, e.status.is_ok())).collect();
    users.sort_unstable();
    assert_eq!(users, [(0, false), (1, false), (2, false)]);
    assert_eq!(w.hosts[0].node.msgs.len(), 0);
}

#[test]
fn a_late_report_about_a_finished_message_is_ignored() {
    let mut w = narrow(Profile::Kernel);
    w.put(0, B, 1, false);
    let msg = w.held[0].1.msg;
    let fault = Fault::new(HealthStatus::LocalError, Errno::EIO);
    w.hosts[0].node.tx_done(w.now, msg, Err(fault));
    w.hosts[0].node.tx_done(w.now, msg, Ok(()));
    w.drain();
    assert_eq!(w.hosts[0].events.len(), 1);
}

/// MR-snd-085: fifty messages wait at one of two interfaces when that goes; all arrive, in order.
#[test]
fn messages_queued_at_a_removed_interface_leave_by_the_other_in_order() {
    for announced_before in [false, true] {
        let mut w = World::new();
        let one = NetTunables { credits: 1, peer_credits: 64, ..NetTunables::SOCK };
        w.host_with(Profile::Default, &["10.77.0.2@tcp", "10.77.1.2@tcp1"], one);
        w.host_with(Profile::Default, &["10.77.0.3@tcp", "10.77.1.3@tcp1"], one);
        w.discovered(0, "10.77.0.3@tcp");
        // The other network comes second while this one is well.
        w.hosts[0].node.set_ni_health(w.now, Some(nid("10.77.1.2@tcp1")), 900);
        w.secs(1);
        w.hosts[0].node.set_ni_health(w.now, Some(nid("10.77.1.2@tcp1")), 900);
        w.decide = Box::new(|t| match t.hdr.src.to_string().as_str() {
            "10.77.0.2@tcp" => Fate::Hold,
            _ => Fate::Pass,
        });
        for user in 0..51 {
            w.put(0, "10.77.0.3@tcp", user, true);
        }
        assert_eq!(w.held.len(), 1, "one is with the driver, fifty wait");
        let (&ni, _) = w.hosts[0].nids.iter().find(|(_, n)| **n == nid("10.77.0.2@tcp")).unwrap();
        if announced_before {
            w.hosts[0].node.leave_ni(w.now, ni);
            w.drain();
        }
        let (_, t) = w.held.pop_front().unwrap();
        w.hosts[0].node.tx_done(w.now, t.msg, Err(crate::NI_STOPPED));
        w.hosts[0].node.del_ni(w.now, ni).unwrap();
        w.secs(4);
        let acked = w.hosts[0].events.iter().filter(|e| e.kind == EventKind::Ack);
        assert_eq!(acked.filter(|e| e.status.is_ok()).count(), 51);
        let order: Vec<_> = w.hosts[1]
            .events
            .iter()
            .filter(|e| e.kind == EventKind::Put)
            .map(|e| e.hdr_data)
            .filter(|n| *n != 0)
            .collect();
        assert_eq!(order, (1..51).collect::<Vec<_>>());
        assert!(w.hosts[0].node.stats().resend_count <= 2, "only what the driver had is a resend");
    }
}

#[test]
fn messages_queued_at_the_only_interface_fail_when_it_is_removed() {
    let mut w = narrow(Profile::Default);
    let ni = *w.hosts[0].nids.keys().next().unwrap();
    for i in 0..3 {
        w.put(0, B, i, false);
    }
    w.hosts[0].node.leave_ni(w.now, ni);
    assert_eq!(w.hosts[0].events.len(), 0, "there is no other interface to go by");
    w.hosts[0].node.del_ni(w.now, ni).unwrap();
    w.drain();
    assert_eq!(w.hosts[0].events.iter().filter(|e| e.status.is_err()).count(), 3);
    assert_eq!(w.hosts[0].node.msgs.len(), 0);
}
