//! Limits of what is dirty, and promises of space.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;

use lnet_types::Errno;
use lnet_wire::Kind;
use lustre_client::osc::{OscConfig, OscError};
use lustre_wire::Opcode;
use ptlrpc::{ImportId, Part};

use super::{Bench, KIB, MIB, Setting, object, pattern};

fn small(dirty_max: u64) -> Setting {
    let osc = OscConfig { dirty_max, ..OscConfig::default() };
    Setting { osc, ..Setting::default() }
}

/// A client writes until the target has no room for any more.
fn fill(bench: &mut Bench, import: ImportId) {
    let (mut at, mut len) = (0, MIB);
    while len >= 4 * KIB {
        assert!(at < 64 * MIB, "the target is never full");
        let op = bench.begin_write(import, 2, at, &pattern(len, 2));
        let close = bench.osc(import, |osc, cx| osc.close(object(2), cx)).unwrap();
        let ends = [op, close].map(|op| bench.done(import, op));
        match ends.contains(&Some(Err(Errno::ENOSPC))) {
            true => len /= 2,
            false => at += len,
        }
    }
}

#[test]
fn dirty_data_never_exceeds_its_limit_and_all_of_it_arrives() {
    let mut bench = Bench::with(small(MIB));
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    for n in 0..64u64 {
        bench.begin_write(a, 1, n * 100 * KIB, &pattern(100 * KIB, n as u8));
        assert!(bench.dirty(a) <= MIB);
    }
    bench.secs(1);
    assert_eq!(bench.fsync(a, 1), Ok(0));
    for n in 0..64u64 {
        assert!(bench.read(b, 1, n * 100 * KIB, 100 * KIB) == pattern(100 * KIB, n as u8), "{n}");
    }
}

#[test]
fn l44_data_that_another_client_waits_for_is_written_back_before_what_there_is_too_much_of() {
    let setting = small(4 * MIB);
    let mut bench = Bench::with(Setting {
        osc: OscConfig { in_flight: 1, brw_size: 64 << 10, ..setting.osc },
        ..setting
    });
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 3, 0, b"wanted");
    let moved = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&moved);
    bench.world.loses = Some(Box::new(move |t| {
        if let Kind::Get { sink_len, .. } = t.hdr.kind {
            seen.borrow_mut().push(sink_len);
        }
        false
    }));
    // No answer comes while one object becomes dirty beyond what may be.
    bench.lose(Opcode::OST_WRITE, Part::Reply, 1);
    for n in 0..40u64 {
        bench.begin_write(a, 1, n * 128 * KIB, &pattern(128 * KIB, 1));
    }
    let (read, memory) = bench.begin_read(b, 3, 0, 6);
    assert_eq!(bench.done(b, read), None);
    bench.secs(30);
    assert_eq!(bench.done(b, read), Some(Ok(6)));
    assert_eq!(bench.bytes(&memory), b"wanted");
    let moved = moved.take();
    let place = moved.iter().position(|len| *len == 6).unwrap();
    assert!(place <= 2 && moved.len() > 60, "{place} of {}", moved.len());
}

#[test]
fn old_data_is_written_back_by_itself() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.warm(a);
    bench.secs(5);
    bench.write(a, 1, 0, b"old");
    bench.secs(4);
    bench.write(a, 2, 0, b"young");
    bench.world.pass(Duration::from_millis(5999));
    assert_eq!(bench.dirty(a), 8);
    bench.secs(1);
    assert_eq!(bench.dirty(a), 5);
    bench.secs(4);
    assert_eq!(bench.dirty(a), 0);
}

#[test]
fn l95_without_promises_data_is_written_through_and_the_lack_of_space_is_said_at_once() {
    let mut bench = Bench::with(Setting { bytes: 4 * MIB, ..Setting::default() });
    let a = bench.client("a");
    let op = bench.begin_write(a, 1, 0, &pattern(8 * MIB, 1));
    bench.secs(1);
    assert_eq!(bench.done(a, op), Some(Err(Errno::ENOSPC)));
    assert_eq!((bench.fsync(a, 1), bench.close(a, 1)), (Ok(0), Ok(0)), "it was said");
    assert_eq!(bench.of(a, |client| client.freed), 8 * MIB);
}

#[test]
fn c229_first_write_is_cached_where_a_target_promises_space_with_the_connection() {
    let mut bench = Bench::with(Setting { grant: 4 << 20, bytes: 64 * MIB, ..Setting::default() });
    let a = bench.client("a");
    bench.write(a, 1, 0, &pattern(512 * KIB, 1));
    assert_eq!(bench.dirty(a), 512 * KIB);
    assert_eq!((bench.fsync(a, 1), bench.dirty(a)), (Ok(0), 0));
    // A client that was evicted begins anew.
    bench.evict("a");
    bench.secs(60);
    bench.write(a, 1, 0, &pattern(512 * KIB, 2));
    assert_eq!((bench.dirty(a), bench.fsync(a, 1)), (512 * KIB, Ok(0)));
}

#[test]
fn l95_what_is_cached_has_its_space_however_full_the_target_becomes() {
    let mut bench = Bench::with(Setting { bytes: 16 * MIB, ..Setting::default() });
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(512 * KIB, 1));
    assert_eq!(bench.dirty(a), 512 * KIB);
    fill(&mut bench, b);
    assert_eq!((bench.fsync(a, 1), bench.close(a, 1)), (Ok(0), Ok(0)));
    assert!(bench.read(b, 1, 0, 512 * KIB) == pattern(512 * KIB, 1));
}

#[test]
fn l96_promises_are_kept_over_a_crash_of_the_server() {
    let mut bench = Bench::with(Setting {
        bytes: 16 * MIB,
        osc: OscConfig { max_age: Duration::from_secs(10_000), ..OscConfig::default() },
        ..Setting::default()
    });
    let (a, b) = (bench.client("a"), bench.client("b"));
    // More than one request brings.
    (0..3).for_each(|_| {
        bench.write(a, 4, 0, &[1; 4096]);
        assert_eq!(bench.fsync(a, 4), Ok(0));
    });
    bench.write(a, 1, 0, &pattern(3 * MIB, 1));
    bench.restart();
    bench.secs(120);
    assert_eq!(bench.dirty(a), 3 * MIB);
    // Promises are compared with the first data request of a connection.
    bench.write(a, 3, 0, &pattern(KIB, 3));
    assert_eq!(bench.fsync(a, 3), Ok(0));
    fill(&mut bench, b);
    assert_eq!(bench.dirty(a), 3 * MIB);
    assert_eq!(bench.fsync(a, 1), Ok(0));
}

#[test]
fn what_can_not_be_is_refused_before_it_begins() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    for (offset, len) in [(0, 0), (u64::MAX, 1), ((1 << 56) - 1, 2)] {
        let memory = bench.world.heap.memory(vec![0; len]);
        let refused = bench.osc(a, |osc, cx| osc.read(object(1), offset, memory, cx));
        let len = len as u64;
        assert_eq!(refused, Err(OscError::Range { offset, len }));
    }
    let refused = bench.osc(a, |osc, cx| osc.punch(object(1), u64::MAX, cx));
    assert!(matches!(refused, Err(OscError::Range { .. })));
}
