//! Pings of several imports, and those that learn of a commit (P-100 … P-102).

use core::time::Duration;

use super::bench::{APPEND, Bench, ECHO, append_log};
use crate::client::AT_ONCE;
use crate::{Pinger, Tunables};

/// Messages that are sent in so many seconds.
fn sent_in(bench: &mut Bench, seconds: u64) -> u64 {
    let before = bench.sent;
    bench.secs(seconds);
    bench.sent - before
}

#[test]
fn imports_of_a_node_whose_pings_are_due_within_five_seconds_ping_together() {
    // P-101: the second would ping at 29 s by itself, the third at 31 s.
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(ECHO, "first"));
    assert!(bench.end_of(call).unwrap().is_ok());
    for (name, pause) in [("client-2", 4), ("client-3", 2)] {
        bench.secs(pause);
        let client = bench.client;
        let import = bench.new_import(client, name);
        bench.rpc(client, |rpc| rpc.call(import, Bench::say(ECHO, name))).unwrap();
        bench.settle();
    }
    assert_eq!(sent_in(&mut bench, 18), 0);
    assert_eq!(sent_in(&mut bench, 2), 4, "at 25 s: two pings and their replies");
    assert_eq!(sent_in(&mut bench, 3), 0, "at 29 s");
    assert_eq!(sent_in(&mut bench, 3), 2, "at 31 s");
}

#[test]
fn p101_traffic_puts_off_a_ping_of_the_kernels_pinger_but_not_its_pass() {
    // The first import would ping at 25 s, the second at 28 s; the first has a call at 20 s.
    for (pinger, at_25, at_28) in [(Pinger::Kernel, 2, 0), (Pinger::Own, 0, 2)] {
        let mut bench = Bench::new(append_log());
        bench.party_of(bench.client, |p, _| {
            let tunables = Tunables { pinger, ..p.ptlrpc.tunables().clone() };
            p.ptlrpc.set_tunables(tunables);
        });
        let (client, first) = (bench.client, bench.import);
        let second = bench.new_import(client, "client-2");
        for (import, pause) in [(first, 3), (second, 17), (first, 4)] {
            bench.rpc(client, |rpc| rpc.call(import, Bench::say(ECHO, "call"))).unwrap();
            bench.settle();
            bench.secs(pause);
        }
        assert_eq!(sent_in(&mut bench, 2), at_25, "{pinger:?} at 25 s");
        assert_eq!(sent_in(&mut bench, 3), at_28, "{pinger:?} at 28 s");
    }
}

#[test]
fn a_ping_that_learns_of_the_commit_is_followed_by_one_a_whole_interval_later() {
    // P-75, P-100: it is the reply that leaves something uncommitted which calls the next ping sooner.
    let mut bench = Bench::with(append_log(), true);
    let call = bench.call(Bench::say(APPEND, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    assert_eq!(sent_in(&mut bench, 8), 2, "at 7 s");
    let target = bench.target;
    bench.rpc(bench.server, |rpc| rpc.committed(target, 1));
    assert_eq!(sent_in(&mut bench, 7), 2, "at 14 s");
    assert_eq!(sent_in(&mut bench, 23), 0);
    assert_eq!(sent_in(&mut bench, 2), 2, "at 39 s");
}

#[test]
fn of_pings_that_are_due_at_one_moment_a_server_can_take_each() {
    // More than a server keeps replies on their way to one node, all connected at once.
    let mut bench = Bench::new(append_log());
    let (client, imports) = (bench.client, AT_ONCE + 100);
    for n in 0..imports {
        let import = bench.new_import(client, &format!("client-{n}"));
        bench.rpc(client, |rpc| rpc.connect(import));
        if n % 500 == 0 {
            bench.settle();
        }
    }
    bench.settle();
    assert_eq!(sent_in(&mut bench, 24), 0);
    bench.pass(Duration::from_millis(1000));
    let first = bench.sent;
    assert_eq!(sent_in(&mut bench, 1), 2 * 100, "the others, and their replies");
    // The next time they do not meet.
    assert_eq!(sent_in(&mut bench, 23), 0);
    bench.pass(Duration::from_millis(1000));
    assert_eq!(bench.sent - first, 2 * (100 + AT_ONCE as u64));
}
