//! What a lock costs over the request layer, beside requests that carry nothing. It measures, and
//! asserts nothing:
//!
//! `cargo test --release -p ldlm --test served -- --ignored --nocapture rate`

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use ldlm::Mode;
use lustre_wire::Opcode;
use ptlrpc::{Call, ImportId};

use super::{Bench, whole};

/// Short runs, in turns; of each kind the best one counts.
const RUNS: usize = 40;
const ROUNDS: u32 = 200;

/// A lock that is taken and given back: two requests.
fn lock(bench: &mut Bench, import: ImportId) {
    let (hold, _) = bench.granted(import, &whole(Mode::Pw));
    bench.clients(|clients, below| {
        clients.locks.release(import, hold, false, &mut clients.ptlrpc.rpc(below));
    });
    assert!(bench.clients(|clients, _| clients.locks.views(import)).is_empty());
}

/// Two requests without content.
fn two_calls(bench: &mut Bench, import: ImportId) {
    for _ in 0..2 {
        let mut call = Call::new(Opcode::OBD_PING, Vec::new());
        call.modifies = false;
        let call =
            bench.clients(|clients, below| clients.ptlrpc.rpc(below).call(import, call).unwrap());
        assert!(bench.ended(call).is_some_and(|end| end.is_ok()));
    }
}

#[test]
#[ignore = "measures"]
fn rate_of_enqueue_and_cancel_against_two_empty_calls() {
    let mut bench = Bench::new();
    let import = bench.client("a");
    let mut best = [f64::INFINITY; 2];
    for _ in 0..RUNS {
        let works = [lock as fn(&mut Bench, ImportId), two_calls];
        for (work, best) in works.into_iter().zip(&mut best) {
            let start = std::time::Instant::now();
            (0..ROUNDS).for_each(|_| work(&mut bench, import));
            *best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
        }
    }
    let [lock, calls] = best;
    println!(
        "enqueue and cancel {lock:.0} ns, two empty calls {calls:.0} ns: {:.2} of their rate",
        calls / lock
    );
}
