//! Locks of programs over sockets: a target on files, clients on nodes of their own.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod stage;

use std::time::Duration;

use lnet_rt::NodeHandle;
use lustre_rt::{LockError, Locks, LocksError, Mode, RpcNode};

use stage::Dir;

const PORT: u16 = 7918;

fn serve(dir: &Dir, ip: &str) -> (NodeHandle, RpcNode) {
    stage::serve(dir, ip, PORT, "locks=lock")
}

fn client(ip: &str, server: &str) -> (NodeHandle, RpcNode, Locks) {
    let (node, rpc) = stage::node(ip, PORT);
    let nids = vec![format!("{server}@tcp").parse().unwrap()];
    let locks = Locks::new(&rpc, "locks", ip, nids).unwrap();
    (node, rpc, locks)
}

#[test]
fn a_lock_goes_from_one_client_to_the_next_when_it_is_dropped() {
    let dir = Dir::new("locks-next");
    let _server = serve(&dir, "127.118.0.1");
    let (_a_node, _a_rpc, a) = client("127.118.0.2", "127.118.0.1");
    let (_b_node, _b_rpc, b) = client("127.118.0.3", "127.118.0.1");
    let first = a.enqueue("jobs/42", Mode::Ex).blocking().unwrap();
    let refused = b.enqueue("jobs/42", Mode::Ex).nowait().blocking().unwrap_err();
    assert!(matches!(refused, LocksError::Lock(LockError::Conflict)), "{refused}");
    let late = b.enqueue("jobs/42", Mode::Ex).limit(Duration::from_millis(50)).blocking();
    assert!(matches!(late, Err(LocksError::Lock(LockError::LimitPassed))), "{late:?}");
    // Another name is another lock.
    drop(b.enqueue("jobs/43", Mode::Ex).blocking().unwrap());
    let waits = {
        let b = b.clone();
        std::thread::spawn(move || b.enqueue("jobs/42", Mode::Ex).blocking().unwrap())
    };
    // The second client has asked.
    while !first.is_wanted() {
        std::thread::yield_now();
    }
    let fence = first.fence().unwrap();
    drop(first);
    let second = waits.join().unwrap();
    assert!(second.fence().unwrap() > fence);
    assert!(!second.is_lost());
    drop(second);
    // Readers share, and have no number.
    let readers = [&a, &b].map(|locks| locks.enqueue("jobs/42", Mode::Pr).blocking().unwrap());
    assert_eq!(readers.each_ref().map(|lock| lock.fence()), [None, None]);
}

#[test]
fn tasks_of_one_client_exclude_each_other_as_clients_do() {
    let dir = Dir::new("locks-tasks");
    let _server = serve(&dir, "127.118.1.1");
    let (_node, _rpc, locks) = client("127.118.1.2", "127.118.1.1");
    let counter = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let lock = locks.enqueue("counter", Mode::Ex).blocking().unwrap();
                    let seen = counter.load(std::sync::atomic::Ordering::Relaxed);
                    std::thread::yield_now();
                    counter.store(seen + 1, std::sync::atomic::Ordering::Relaxed);
                    drop(lock);
                }
            });
        }
    });
    assert_eq!(counter.into_inner(), 100);
    // Parts that do not meet are held side by side.
    let low = locks.enqueue("file", Mode::Pw).range(..4096).blocking().unwrap();
    let high = locks.enqueue("file", Mode::Pw).range(4096..).blocking().unwrap();
    let across = locks.enqueue("file", Mode::Pw).range(4000..5000).nowait().blocking();
    assert!(matches!(across, Err(LocksError::Lock(LockError::Conflict))), "{across:?}");
    drop((low, high));
}

#[test]
fn a_lock_is_lost_when_its_client_is_evicted_and_the_next_one_has_a_greater_number() {
    let dir = Dir::new("locks-evicted");
    let (_server, rpc) = serve(&dir, "127.118.2.1");
    let (_node, _rpc, locks) = client("127.118.2.2", "127.118.2.1");
    let lock = locks.enqueue("jobs/42", Mode::Ex).blocking().unwrap();
    let fence = lock.fence().unwrap();
    let watch = lock.watch();
    let export = rpc.exports().unwrap()[0].id;
    rpc.with(move |rpc| rpc.evict(export)).unwrap();
    // The client learns of it with its next request.
    let next = locks.enqueue("jobs/43", Mode::Ex).blocking();
    watch.blocking();
    assert!(lock.is_lost());
    drop(next);
    drop(lock);
    let lock = locks.enqueue("jobs/42", Mode::Ex).blocking().unwrap();
    assert!(lock.fence().unwrap() > fence);
}

#[test]
fn a_lock_is_held_over_a_restart_of_its_server() {
    let dir = Dir::new("locks-restart");
    let (server, rpc) = serve(&dir, "127.118.3.1");
    let (_node, _rpc, locks) = client("127.118.3.2", "127.118.3.1");
    let lock = locks.enqueue("jobs/42", Mode::Ex).blocking().unwrap();
    rpc.stop_targets().unwrap();
    server.stop(Duration::from_secs(1)).blocking();
    let _server = serve(&dir, "127.118.3.1");
    // Answered when the recovery is over.
    let refused = locks.enqueue("jobs/42", Mode::Pr).nowait().blocking();
    assert!(matches!(refused, Err(LocksError::Lock(LockError::Conflict))), "{refused:?}");
    assert!(!lock.is_lost());
    let fence = lock.fence();
    drop(lock);
    let lock = locks.enqueue("jobs/42", Mode::Ex).blocking().unwrap();
    assert!(lock.fence() > fence);
}

#[test]
fn what_cannot_be_locked_is_refused_by_its_field() {
    let (_node, _rpc, locks) = client("127.118.4.2", "127.118.4.1");
    for (enqueue, part) in [
        (locks.enqueue("", Mode::Ex), "name of 0 bytes"),
        (locks.enqueue(&"n".repeat(256), Mode::Ex), "name of 256 bytes"),
        (locks.enqueue("a", Mode::Ex).range(5..5), "range"),
        (locks.enqueue("a", Mode::Ex).range(..0), "range"),
    ] {
        let e = enqueue.blocking().unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    }
}
