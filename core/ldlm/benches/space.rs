//! What a lock costs the machine: time of an uncontended enqueue, answer and cancel; the same on one
//! resource with ten and with 100,000 extent locks; bytes of a granted lock with its share of the
//! resource; ten million locks at once, with the memory that the system gave for them.
//!
//! `cargo bench -p ldlm --bench space`

#![allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]
#![allow(unsafe_code, reason = "an allocator that counts is unsafe by its trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ldlm::Cookie;
use ldlm::space::{Ask, Config, HolderId, HolderKind, Limits, Namespace, Value};
use lnet_types::Instant;
use lustre_wire::ldlm::{LockDesc, LockFlags, LockKind, LockMode, Lvb, Policy, ResourceName};

/// Counts the bytes that are allocated.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
/// The most that there were at a time: a table that grows has two sizes for a moment.
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: each call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = BYTES.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NOW: Instant = Instant(1_000_000_000);

fn request(resource: u64, cookie: u64, start: u64, end: u64) -> Ask {
    Ask {
        client_cookie: cookie,
        flags: LockFlags::NO_EXPANSION,
        desc: LockDesc {
            kind: LockKind::EXTENT,
            resource: ResourceName { words: [0x2_0000_0400, resource, 0, 0] },
            requested: LockMode::PW,
            granted: LockMode::NONE,
            policy: Policy::Extent { start, end, gid: 0 }.words(),
        },
        resent: false,
    }
}

fn space() -> Namespace {
    let limits = Limits { locks_per_holder: 10_000_000, ..Limits::default() };
    let mut space = Namespace::new(Config { limits, ..Config::new(1) });
    for client in 0..100 {
        space.connect(HolderId(client), HolderKind::Client, Duration::from_secs(10));
    }
    space
}

fn hold(space: &mut Namespace, client: u64, request: &Ask) -> Cookie {
    let lock = space.enqueue(NOW, HolderId(client), request).unwrap().lock;
    black_box(space.answer(NOW, lock).unwrap());
    lock
}

/// Runs of a measurement, each short, so that some are not disturbed by other programs.
const RUNS: u64 = 100;

/// Nanoseconds of one round, in the best of [`RUNS`].
fn nanos(rounds: u64, mut round: impl FnMut(u64)) -> f64 {
    let run = |run| {
        let start = std::time::Instant::now();
        (run * rounds..(run + 1) * rounds).for_each(&mut round);
        start.elapsed().as_nanos() as f64 / rounds as f64
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

/// Enqueue and cancel of one page on a resource with so many other locks.
fn on_one_resource(locks: u64) -> f64 {
    let mut space = space();
    for n in 0..locks {
        hold(&mut space, n % 100, &request(1, n, n * 8192, n * 8192 + 4095));
    }
    nanos(2_000, |n| {
        let at = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % locks * 8192 + 4096;
        let lock = hold(&mut space, n % 100, &request(1, locks + n, at, at + 4095));
        black_box(space.cancel(NOW, HolderId(n % 100), &[lock]));
    })
}

/// Bytes of a granted lock, with so many on each resource.
fn bytes(locks: u64, per_resource: u64, value: bool) -> f64 {
    let before = BYTES.load(Ordering::Relaxed);
    let mut space = space();
    for n in 0..locks {
        let (resource, start) = (n / per_resource, n % per_resource * 4096);
        let request = request(resource, n, start, start + 4095);
        hold(&mut space, n % 100, &request);
        if value && start == 0 {
            let size = 0;
            let lvb = Lvb {
                size,
                mtime: 0,
                atime: 0,
                ctime: 0,
                blocks: 0,
                mtime_ns: 0,
                atime_ns: 0,
                ctime_ns: 0,
            };
            space.set_value(&request.desc.resource, Value::Object(lvb));
        }
    }
    (BYTES.load(Ordering::Relaxed) - before) as f64 / locks as f64
}

/// The most resident memory of the process so far, in bytes; 0 where the system does not say.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .map_or(0, |kb: usize| kb << 10)
}

/// As many locks as a namespace takes, each alone on its resource and with attributes.
fn full() {
    let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
    let (before, locks) = (BYTES.load(Ordering::Relaxed), Limits::default().locks as u64);
    PEAK.store(before, Ordering::Relaxed);
    let held = bytes(locks, 1, true);
    println!(
        "{locks} locks: {held:.0} bytes each, {:.2} GiB at most while they were taken, {:.2} GiB resident",
        gib(PEAK.load(Ordering::Relaxed) - before),
        gib(resident())
    );
}

fn main() {
    let mut one = space();
    let uncontended = nanos(5_000, |n| {
        let lock = hold(&mut one, n % 100, &request(n % 10_000, n, 0, 4095));
        black_box(one.cancel(NOW, HolderId(n % 100), &[lock]));
    });
    println!(
        "uncontended enqueue, answer, cancel: {uncontended:.0} ns, {:.2} million a second",
        1000.0 / uncontended
    );
    let (ten, many) = (on_one_resource(10), on_one_resource(100_000));
    println!(
        "on a resource with 10 extent locks {ten:.0} ns, with 100,000 {many:.0} ns: {:.1} times",
        many / ten
    );
    for (per_resource, value) in [(1, true), (1, false), (8, true), (1000, true)] {
        // A table is fullest right before it grows, and emptiest right after.
        let sizes = [450_000, 470_000, 900_000].map(|locks| bytes(locks, per_resource, value));
        let [low, high] = [
            sizes.iter().copied().fold(f64::INFINITY, f64::min),
            sizes.iter().copied().fold(0.0, f64::max),
        ];
        let with = if value { "with" } else { "without" };
        println!(
            "granted lock, {per_resource} on a resource, {with} value block: {low:.0} to {high:.0} bytes"
        );
    }
    full();
}
