//! Connections that break: lost requests and replies, dead servers, copies.

use lnet_types::Errno;
use lustre_wire::{BodyFlags, ImportKind};

use super::bench::{APPEND, Bench, ECHO, append_log, keeper};
use crate::{Answer, CallError, ImportState};

/// Portals of the bench's service.
fn portals() -> (u32, u32) {
    let (request, reply) = ImportKind::Osc.portals();
    (request.0, reply.0)
}

#[test]
fn a_lost_request_is_sent_again_after_its_deadline_and_a_reconnect() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(ECHO, "connect"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let request = portals().0;
    bench.lose(move |portal, n| portal == request && n == 1);
    let call = bench.call(Bench::say(APPEND, "lost"));
    // P-95, P-96: 11 s for the server, 5 s for the net.
    bench.secs(15);
    assert_eq!(bench.end_of(call), None);
    bench.secs(1);
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 1);
    let reconnect = [
        ImportState::Disconnected,
        ImportState::Connecting,
        ImportState::Recover,
        ImportState::Full,
    ];
    assert_eq!(bench.states()[2..], reconnect);
}

#[test]
fn a_lost_reply_is_given_again_and_nothing_is_done_twice() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(ECHO, "connect"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let reply = portals().1;
    bench.lose(move |portal, n| portal == reply && n <= 2);
    let call = bench.call(Bench::say(APPEND, "answered into the void"));
    bench.secs(30);
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 1);
    let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
    assert_eq!((stats.served, stats.answered_again), (2, 1));
    // The next request says that the answer is here: the record goes.
    let call = bench.call(Bench::say(ECHO, "thanks"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let exports = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    assert_eq!(exports[0].records, 0);
}

#[test]
fn a_copy_of_what_is_being_worked_on_is_folded_into_it() {
    let mut bench = Bench::new(keeper());
    bench.without_probes();
    let call = bench.call(Bench::say(APPEND, "slow"));
    let first = bench.kept()[0].clone();
    // Early replies are lost: the client gives up waiting, comes again, and is the same client.
    let reply = portals().1;
    bench.lose(move |portal, n| portal == reply && n <= 1);
    bench.secs(40);
    let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
    assert_eq!((bench.kept().len(), stats.folded), (1, 1));
    bench.rpc(bench.server, |rpc| rpc.reply(first.id, Answer { transno: 1, ..Answer::default() }));
    bench.settle();
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 1);
}

#[test]
fn a_server_that_comes_back_without_memory_costs_nothing_that_it_did_not_know() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(ECHO, "before"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.restart_server(append_log());
    let call = bench.call(Bench::say(APPEND, "after"));
    bench.secs(5);
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 1);
    // P-66: nothing was cached, so nothing was lost, and this is no eviction.
    assert!(!bench.states().contains(&ImportState::Evicted));
}

#[test]
fn what_a_server_without_memory_has_refused_goes_again_as_a_copy() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(ECHO, "before"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.restart_server(keeper());
    let call = bench.call(Bench::say(APPEND, "after"));
    bench.secs(5);
    // P-73; it was refused, so that it is not in doubt.
    let kept = bench.kept();
    assert_eq!((kept.len(), bench.end_of(call)), (1, None));
    assert!(kept[0].body.flags.contains(BodyFlags::RESENT));
}

#[test]
fn a_lost_answer_to_the_connect_after_a_restart_is_no_eviction_either() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(ECHO, "before"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.restart_server(append_log());
    let reply = portals().1;
    let mut replies = 0;
    bench.lose(move |portal, _| {
        // The first says that the client is not known, the second that it is connected.
        replies += usize::from(portal == reply);
        portal == reply && replies == 2
    });
    let call = bench.call(Bench::say(ECHO, "after"));
    bench.secs(30);
    assert!(bench.end_of(call).unwrap().is_ok());
    assert!(!bench.states().contains(&ImportState::Evicted));
}

#[test]
fn a_server_that_comes_back_without_memory_evicts_who_held_something() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(APPEND, "held"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.restart_server(keeper());
    let waiting = bench.call(Bench::say(APPEND, "in flight"));
    bench.secs(5);
    assert_eq!(bench.end_of(waiting), Some(Err(CallError::Evicted)));
    let call = bench.call(Bench::say(APPEND, "anew"));
    let kept = bench.kept();
    assert_eq!(kept.len(), 1);
    assert!(!kept[0].body.flags.contains(BodyFlags::RESENT));
    bench.rpc(bench.server, |rpc| rpc.reply(kept[0].id, Answer::default()));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
}

#[test]
fn an_evicted_client_learns_it_with_its_next_request() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(APPEND, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].id);
    bench.rpc(bench.server, |rpc| rpc.evict(export));
    let call = bench.call(Bench::say(APPEND, "two"));
    bench.secs(3);
    assert_eq!(bench.end_of(call), Some(Err(CallError::Evicted)));
    let call = bench.call(Bench::say(APPEND, "three"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 2);
}

#[test]
fn a_request_that_may_not_wait_fails_at_once_without_a_connection() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(ECHO, "connect"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.lose(|_, _| true);
    let lost = bench.call(Bench::say(ECHO, "lost"));
    bench.secs(30);
    let hasty = crate::Call { delay: false, ..Bench::say(ECHO, "now or never") };
    let call = bench.call(hasty);
    assert_eq!(bench.end_of(call), Some(Err(CallError::NotConnected)));
    assert_eq!(CallError::NotConnected.errno(), Errno::EAGAIN);
    assert_eq!(bench.end_of(lost), None, "this one waits");
    bench.loses = None;
    bench.secs(60);
    assert!(bench.end_of(lost).unwrap().is_ok());
}
