//! The rate of locks by name as programs take them, against a server that runs already; for
//! `bench/locks.sh`, which holds it beside another lock server.
//!
//! `cargo bench -p lustre-rt --bench lock_rate -- IP PORT SERVER TARGET CLIENTS SECONDS`: as many
//! threads take and give back a lock of a name of their own, by way of one node at IP, each as a client of
//! its own. A lock is given back as it is dropped, which is not waited for. Prints one JSON object: locks
//! per second, and microseconds of one from the request to the grant.
#![allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]

use std::thread;
use std::time::{Duration, Instant};

use lnet_rt::NodeBuilder;
use lustre_rt::{Locks, Mode, RpcNode, Tunables};

/// How long each lock of one client took to be granted, microseconds.
fn run(locks: &Locks, name: &str, time: Duration) -> Vec<f64> {
    // Connected before the time runs.
    drop(locks.enqueue(name, Mode::Ex).blocking().unwrap());
    let (begin, mut took) = (Instant::now(), Vec::new());
    loop {
        let asked = Instant::now();
        if asked - begin >= time {
            return took;
        }
        let lock = locks.enqueue(name, Mode::Ex).blocking().unwrap();
        took.push(asked.elapsed().as_nanos() as f64 / 1000.0);
        assert!(lock.fence().is_some() && !lock.is_lost(), "{name}: no lock");
    }
}

fn main() {
    // Cargo adds an option of its own.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [ip, port, server, target, clients, seconds] = args[..] else {
        println!("expected IP PORT SERVER TARGET CLIENTS SECONDS: nothing is measured");
        return;
    };
    let (clients, time): (usize, _) =
        (clients.parse().unwrap(), Duration::from_secs_f64(seconds.parse().unwrap()));
    let node = NodeBuilder::new().tcp(ip.parse().unwrap(), port.parse().unwrap()).start().unwrap();
    let rpc = RpcNode::start(&node, Tunables::default()).unwrap();
    let mut all: Vec<f64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|n| {
                let uuid = format!("rate-{}-{n}", std::process::id());
                let locks = Locks::new(&rpc, target, &uuid, vec![server.parse().unwrap()]).unwrap();
                scope.spawn(move || {
                    let took = run(&locks, &format!("jobs/{n}"), time);
                    locks.disconnect().unwrap();
                    took
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_by(f64::total_cmp);
    let at = |q: f64| all.get((all.len() as f64 * q) as usize).copied().unwrap_or(f64::NAN);
    println!(
        "{{\"clients\": {clients}, \"per_second\": {:.0}, \"p50_us\": {:.1}, \"p99_us\": {:.1}}}",
        all.len() as f64 / time.as_secs_f64(),
        at(0.5),
        at(0.99)
    );
    node.stop(Duration::from_secs(1)).blocking();
}
