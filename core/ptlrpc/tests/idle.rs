//! Idle connections take at most 1 KiB on each side, before and after they have pinged: a node may have
//! a hundred thousand. `cargo bench -p ptlrpc --bench idle` measures as many.

#[path = "../benches/idle/world.rs"]
mod world;

use world::{Counting, Idle};

#[global_allocator]
static COUNTING: Counting = Counting;

/// A side's part of an idle connection, bytes.
const MOST: i64 = 1024;
/// As many as there are pings of one second among a hundred thousand, twice.
const IMPORTS: usize = 8192;

#[test]
fn idle_imports_and_exports_take_a_kibibyte_each_at_most() {
    let mut idle = Idle::new(IMPORTS);
    holds("connected", &mut idle);
    let before = idle.pings();
    idle.pass(60);
    assert!(idle.pings() - before >= 2 * IMPORTS as u64, "{} pings", idle.pings() - before);
    holds("after pings", &mut idle);
    // A host that turns once in a second has those of a second to send at once.
    idle.step(60);
    holds("after pings of a second at a time", &mut idle);
}

fn holds(when: &str, idle: &mut Idle) {
    let [import, export] = idle.bytes();
    println!("{when}: {import} bytes for an import, {export} for an export");
    assert!(import <= MOST && export <= MOST, "{when}: {import} and {export} bytes");
    assert_eq!((idle.failed(), idle.exports()), (0, IMPORTS), "{when}");
}
