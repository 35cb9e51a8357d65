//! Ends of imports whose server is away: its next recovery is not to wait for a client that has left.

use core::time::Duration;

use lnet::upper::UpperId;

use super::bench::{APPEND, Bench};
use crate::{ImportId, ImportState as S};

const WITHIN: Option<Duration> = Some(Duration::from_secs(30));

fn clients(bench: &mut Bench) -> Vec<String> {
    bench.store(|store, _| store.now().clients.keys().cloned().collect())
}

fn change(bench: &mut Bench, client: (UpperId, ImportId), text: &str) {
    let call = bench.rpc(client.0, |rpc| rpc.call(client.1, Bench::say(APPEND, text))).unwrap();
    bench.settle();
    assert!(bench.end_at(client.0, call).unwrap().is_ok());
}

/// A server with a client that has died, and one that lives; what they have changed is committed.
fn two_clients() -> (Bench, (UpperId, ImportId)) {
    let mut bench = Bench::stored();
    let own = (bench.client, bench.import);
    let other = bench.new_client("client-2");
    change(&mut bench, own, "a=1");
    change(&mut bench, other, "b=2");
    bench.store(|store, rpc| store.commit(rpc, usize::MAX));
    bench.kill(other.0);
    (bench, own)
}

#[test]
fn client_that_leaves_a_restarted_server_is_not_waited_for() {
    let (mut bench, own) = two_clients();
    bench.crash_server();
    // It does not know yet.
    bench.rpc(own.0, |rpc| rpc.disconnect_within(own.1, WITHIN));
    bench.secs(5);
    assert_eq!(bench.states().last(), Some(&S::Closed), "{:?}", bench.states());
    // The recovery goes on for the client that has died.
    assert_eq!(clients(&mut bench), ["client-2"]);
}

#[test]
fn client_that_leaves_during_recovery_disconnects_at_once() {
    let (mut bench, own) = two_clients();
    bench.crash_server();
    let (client, import) = own;
    bench.rpc(client, |rpc| rpc.fail(import));
    bench.secs(5);
    assert_eq!(bench.states().last(), Some(&S::ReplayWait));
    bench.rpc(client, |rpc| rpc.disconnect(import));
    bench.settle();
    assert_eq!(bench.states().last(), Some(&S::Closed));
    assert_eq!(clients(&mut bench), ["client-2"]);
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn changes_that_a_server_has_lost_are_repeated_before_their_client_leaves() {
    let mut bench = Bench::stored();
    let own = (bench.client, bench.import);
    change(&mut bench, own, "a=1");
    bench.crash_server();
    bench.rpc(own.0, |rpc| rpc.disconnect_within(own.1, WITHIN));
    bench.secs(5);
    assert_eq!(bench.states().last(), Some(&S::Closed));
    assert_eq!(bench.store(|store, _| store.now().log.len()), 1);
    assert_eq!(clients(&mut bench), [""; 0]);
}

#[test]
fn client_with_changes_that_can_not_be_repeated_leaves_at_its_bound() {
    let mut bench = Bench::stored();
    let own = (bench.client, bench.import);
    let other = bench.new_client("client-2");
    // What was changed before a client is stored is stored with it.
    change(&mut bench, other, "b=2");
    change(&mut bench, own, "a=1");
    bench.kill(other.0);
    bench.crash_server();
    bench.rpc(own.0, |rpc| rpc.disconnect_within(own.1, WITHIN));
    bench.secs(29);
    assert_eq!(bench.states().last(), Some(&S::Replay), "{:?}", bench.states());
    bench.secs(2);
    assert_eq!(bench.states().last(), Some(&S::Closed));
    assert_eq!(clients(&mut bench), ["client-2"]);
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn disconnect_that_is_lost_goes_again_within_the_bound() {
    let mut bench = Bench::stored();
    let own = (bench.client, bench.import);
    change(&mut bench, own, "a=1");
    bench.lose(|_, n| n == 1);
    bench.rpc(own.0, |rpc| rpc.disconnect_within(own.1, WITHIN));
    bench.secs(4);
    assert_eq!(clients(&mut bench), ["client-1"]);
    bench.secs(2);
    assert_eq!(bench.states().last(), Some(&S::Closed));
    assert_eq!(clients(&mut bench), [""; 0]);
}

#[test]
fn server_that_stays_away_is_left_at_the_bound() {
    let mut bench = Bench::stored();
    let own = (bench.client, bench.import);
    change(&mut bench, own, "a=1");
    bench.lose(|_, _| true);
    bench.rpc(own.0, |rpc| rpc.disconnect_within(own.1, WITHIN));
    bench.secs(29);
    assert_ne!(bench.states().last(), Some(&S::Closed));
    bench.secs(2);
    assert_eq!(bench.states().last(), Some(&S::Closed), "{:?}", bench.states());
    assert_eq!(bench.client_descriptors(), 0);
}

#[test]
fn client_that_leaves_before_its_first_connect_is_answered_leaves_no_export() {
    let mut bench = Bench::stored();
    let (client, import) = (bench.client, bench.import);
    bench.rpc(client, |rpc| {
        rpc.connect(import);
        rpc.disconnect(import);
    });
    bench.secs(1);
    assert_eq!(bench.states().last(), Some(&S::Closed));
    assert_eq!(clients(&mut bench), [""; 0]);
    assert_eq!(bench.client_descriptors(), 0);
}
