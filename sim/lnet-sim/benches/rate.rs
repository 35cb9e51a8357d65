//! A world of a hundred nodes that exchange small messages without pause: what a message costs at
//! message level, in nodes, fabric and programs together.
//!
//! With `rpc` as the first argument they call targets over the request layer, and calls are counted.
//!
//! `cargo bench -p lnet-sim --bench rate -- [rpc] [ROUNDS [MILLISECONDS [START]]]` plays so many
//! virtual milliseconds (10) ROUNDS times in a row, in a world that goes on and is START milliseconds
//! old (20), and prints what the fastest round made. Messages are counted as `ulnet sim bench rate` does: what nodes hand to drivers, so
//! that a PUT with its ACK is two. Instructions, which do not depend on what else the machine does:
//! `valgrind --tool=callgrind target/release/deps/rate-… rpc 3 1 2`, less those of `rpc 1 1 2`.
#![allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::env;
use std::sync::Arc;
use std::time::Instant;

use lnet_sim::{Messages, Sim};

const WORLD: &str = r#"
name = "rate"
duration = "1h"
[[net]]
name = "tcp"
latency = "20us"
[[node]]
name = "client"
count = 90
rails = ["tcp"]
[[node]]
name = "server"
count = 10
rails = ["tcp"]
[[workload]]
kind = "put"
from = "client"
to = "server"
window = 4
size = 8
ack = true
verify = false
"#;

/// Nine clients call each of ten servers, eight calls at a time.
fn rpc_world() -> String {
    let mut text =
        "name = \"rate\"\nduration = \"1h\"\n[[net]]\nname = \"tcp\"\nlatency = \"20us\"\n"
            .to_owned();
    for n in 0..10 {
        text += &format!(
            r#"
[[node]]
name = "client{n}"
count = 9
rails = ["tcp"]
[[node]]
name = "server{n}"
rails = ["tcp"]
[[target]]
name = "t{n}"
kind = "list"
on = "server{n}"
commit = "10ms"
[[client]]
on = "client{n}"
targets = "t{n}"
[[workload]]
kind = "rpc"
from = "client{n}"
to = "t{n}"
window = 8
reads = "50%"
"#
        );
    }
    text
}

/// Messages, or calls that were answered.
fn done(sim: &Sim<Messages>, rpc: bool) -> u64 {
    if rpc { sim.tally().completed } else { sim.tally().messages }
}

fn main() {
    let rpc = env::args().any(|a| a == "rpc");
    let mut numbers = env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(100);
    let step = numbers.next().unwrap_or(10) * 1_000_000;
    let text = if rpc { rpc_world() } else { WORLD.to_owned() };
    let scenario = Arc::new(lnet_scenario::parse("rate", &text).unwrap());
    let mut sim = Sim::new(scenario, None, Messages::new());
    // All peers are discovered.
    let begin = numbers.next().unwrap_or(20) * 1_000_000;
    let mut best = f64::INFINITY;
    let mut all = 0;
    sim.run_until(lnet_types::Instant(begin)).unwrap();
    for round in 1..=rounds {
        let before = done(&sim, rpc);
        let began = Instant::now();
        sim.run_until(lnet_types::Instant(begin + round * step)).unwrap();
        let took = began.elapsed().as_secs_f64();
        let messages = done(&sim, rpc) - before;
        all += messages;
        best = best.min(took / messages as f64);
    }
    println!(
        "{all} {}; the fastest round: {:.0} ns each, {:.0} per second",
        if rpc { "calls" } else { "messages" },
        best * 1e9,
        1.0 / best
    );
}
