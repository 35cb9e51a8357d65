//! What idle connections cost: so many imports of one request layer to a target of another, on one
//! node with its loopback driver, in virtual time (`world.rs`).
//!
//! `cargo bench -p ptlrpc --bench idle -- [IMPORTS [SECONDS]]` (100,000 and 50). Prints the bytes that
//! each side has allocated for a connection, connected and after pings, how many pings a virtual second
//! has, and how much of a processor a virtual second takes in steps of one second. That is pings and
//! their answers on both sides, the node's part included, and depends on what else the machine does.
//! Instructions do not: `valgrind --tool=callgrind target/release/deps/idle-… 2000 200`, less those of
//! `2000 0`.
#![allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]

mod world;

use std::env;

use world::{Counting, Idle};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Nanoseconds of processor time that this process has had, as Linux says it.
fn processor_time() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn main() {
    // Cargo adds an option of its own.
    let args: Vec<String> = env::args().skip(1).filter(|a| a != "--bench").collect();
    let imports: usize = args.first().map_or(100_000, |n| n.parse().unwrap());
    let seconds: u64 = args.get(1).map_or(50, |n| n.parse().unwrap());
    let mut idle = Idle::new(imports);
    let [import, export] = idle.bytes();
    println!("{import} bytes for an import, {export} for an export");
    if seconds == 0 {
        return;
    }
    idle.pass(seconds);
    let [import, export] = idle.bytes();
    println!("after {seconds} s: {import} bytes for an import, {export} for an export");
    let before = idle.pings();
    let began = processor_time();
    idle.step(seconds);
    let took = processor_time().zip(began).map(|(now, began)| (now - began) / seconds);
    println!(
        "a second: {} pings; {} failed in all",
        (idle.pings() - before) / seconds,
        idle.failed()
    );
    if let Some(took) = took {
        println!("a second takes {:.2} % of a processor", took as f64 / 1e7);
    }
    let [import, export] = idle.bytes();
    println!("in steps of 1 s: {import} bytes for an import, {export} for an export");
}
