//! Targets that answer before they commit, and die: what they have lost is written again.

use lnet_types::Errno;
use lustre_client::osc::OscConfig;
use lustre_target::Commit;
use lustre_wire::Opcode;
use ptlrpc::{ImportId, Part};

use super::{Bench, KIB, MIB, Setting, object, pattern};

/// The target commits when a request wants it.
fn late() -> Bench {
    Bench::with(Setting { commit: Commit::Ordered, ..Setting::default() })
}

/// A client of it with promises of space, and nothing that is not committed.
fn warm(bench: &mut Bench, name: &str) -> ImportId {
    let import = bench.client(name);
    bench.warm(import);
    assert_eq!(uncommitted(bench, import), 0);
    import
}

fn uncommitted(bench: &mut Bench, import: ImportId) -> u64 {
    bench.osc(import, |osc, _| osc.uncommitted())
}

fn freed(bench: &mut Bench, import: ImportId) -> u64 {
    bench.of(import, |client| core::mem::take(&mut client.freed))
}

/// Writes, and waits until the target has answered.
fn write_back(bench: &mut Bench, import: ImportId, offset: u64, bytes: &[u8]) {
    bench.write(import, 1, offset, bytes);
    age(bench, import);
}

/// What is dirty is written back for its age.
fn age(bench: &mut Bench, import: ImportId) {
    bench.secs(11);
    assert_eq!(bench.dirty(import), 0);
}

#[test]
fn p74_answered_writes_come_back_in_their_order_after_a_crash_of_the_target() {
    let mut bench = late();
    let a = warm(&mut bench, "a");
    write_back(&mut bench, a, 0, &pattern(64 * KIB, 1));
    write_back(&mut bench, a, 32 * KIB, &pattern(64 * KIB, 2));
    write_back(&mut bench, a, 40 * KIB, b"newest");
    assert_eq!(uncommitted(&mut bench, a), 128 * KIB + 6);
    bench.restart();
    bench.secs(120);
    assert_eq!((bench.evicted(), bench.fsync(a, 1), bench.close(a, 1)), (vec![], Ok(0), Ok(0)));
    let mut whole = pattern(64 * KIB, 1);
    whole.truncate(32 << 10);
    whole.extend(pattern(64 * KIB, 2));
    whole[40 << 10..][..6].copy_from_slice(b"newest");
    assert!(bench.read(a, 1, 0, 128 * KIB) == whole);
    assert_eq!(bench.osc(a, |osc, _| osc.stats().lost), 0);
}

#[test]
fn p74_writes_of_two_clients_to_the_same_bytes_come_back_in_their_order() {
    let mut bench = late();
    let (a, b) = (warm(&mut bench, "a"), warm(&mut bench, "b"));
    for (client, bytes) in [(a, b"a-1"), (b, b"b-2"), (a, b"a-3"), (b, b"b-4")] {
        write_back(&mut bench, client, 0, bytes);
    }
    bench.restart();
    bench.secs(120);
    assert_eq!((bench.fsync(a, 1), bench.fsync(b, 1), bench.evicted()), (Ok(0), Ok(0), vec![]));
    assert_eq!(bench.read(a, 1, 0, 3), b"b-4");
}

#[test]
fn what_was_closed_well_survives_a_target_that_dies_with_its_client() {
    let mut bench = late();
    let (a, b) = (warm(&mut bench, "a"), warm(&mut bench, "b"));
    write_back(&mut bench, a, 0, b"written for its age, ");
    assert_ne!(uncommitted(&mut bench, a), 0);
    assert_eq!(bench.close(a, 1), Ok(0));
    assert_eq!(uncommitted(&mut bench, a), 0);
    // What it brings itself is committed with its answer: no other request is needed.
    bench.lose(Opcode::OST_SYNC, Part::Request, u32::MAX);
    bench.write(a, 1, 21, b"brought by the close");
    assert_eq!((bench.close(a, 1), uncommitted(&mut bench, a)), (Ok(0), 0));
    bench.mend();
    bench.restart();
    bench.evict("a");
    bench.secs(120);
    assert_eq!(bench.read(b, 1, 0, 100), b"written for its age, brought by the close");
}

#[test]
fn p75_memory_of_a_write_is_free_when_it_is_committed() {
    let mut bench = late();
    let a = warm(&mut bench, "a");
    freed(&mut bench, a);
    write_back(&mut bench, a, 0, &pattern(64 * KIB, 1));
    assert_eq!((freed(&mut bench, a), uncommitted(&mut bench, a)), (0, 64 * KIB));
    let unsettled = bench.osc(a, |osc, _| osc.unsettled());
    assert_eq!(unsettled.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [object(1)]);
    // A sync of another object commits this one as well.
    assert_eq!(bench.fsync(a, 2), Ok(0));
    assert_eq!((freed(&mut bench, a), uncommitted(&mut bench, a)), (64 * KIB, 0));
    assert_eq!(bench.osc(a, |osc, _| osc.unsettled()), []);
    bench.restart();
    bench.secs(120);
    assert!(bench.read(a, 1, 0, 64 * KIB) == pattern(64 * KIB, 1));
}

#[test]
fn p76_eviction_loses_answered_writes_and_each_file_says_so_once() {
    let mut bench = late();
    let a = warm(&mut bench, "a");
    freed(&mut bench, a);
    write_back(&mut bench, a, 0, &pattern(64 * KIB, 1));
    bench.evict("a");
    bench.secs(60);
    assert_eq!((bench.fsync(a, 1), bench.close(a, 1)), (Err(Errno::EIO), Err(Errno::EIO)));
    assert_eq!((bench.fsync(a, 1), bench.close(a, 1)), (Ok(0), Ok(0)));
    let lost = bench.osc(a, |osc, _| osc.stats().lost);
    assert_eq!((freed(&mut bench, a), uncommitted(&mut bench, a), lost), (64 * KIB, 0, 64 * KIB));
}

#[test]
fn l92_as_much_as_may_be_dirty_is_uncommitted_at_most() {
    let osc = OscConfig { dirty_max: 256 * KIB, ..OscConfig::default() };
    let mut bench = Bench::with(Setting { commit: Commit::Ordered, osc, ..Setting::default() });
    let a = warm(&mut bench, "a");
    freed(&mut bench, a);
    let mut most = 0;
    for n in 0..100 {
        write_back(&mut bench, a, n * 64 * KIB, &pattern(64 * KIB, n as u8));
        most = most.max(uncommitted(&mut bench, a));
    }
    assert_eq!(most, 256 * KIB);
    assert_eq!(freed(&mut bench, a), 100 * 64 * KIB - uncommitted(&mut bench, a));
    bench.restart();
    bench.secs(120);
    assert_eq!((bench.fsync(a, 1), bench.evicted()), (Ok(0), vec![]));
    for n in 0..100 {
        assert!(bench.read(a, 1, n * 64 * KIB, 64 * KIB) == pattern(64 * KIB, n as u8), "{n}");
    }
}

#[test]
fn l94_answered_write_whose_sum_differs_is_repeated_with_its_better_copy() {
    let mut bench = late();
    let a = warm(&mut bench, "a");
    bench.of(a, |client| client.lies = 1);
    write_back(&mut bench, a, 0, &pattern(64 * KIB, 1));
    assert_eq!(uncommitted(&mut bench, a), 128 * KIB, "both");
    bench.restart();
    bench.secs(120);
    assert_eq!((bench.fsync(a, 1), bench.evicted()), (Ok(0), vec![]));
    assert!(bench.read(a, 1, 0, 64 * KIB) == pattern(64 * KIB, 1));
}

#[test]
fn c261_end_of_the_connection_gives_the_memory_of_answered_writes_back() {
    let mut bench = late();
    let a = warm(&mut bench, "a");
    freed(&mut bench, a);
    write_back(&mut bench, a, 0, &pattern(MIB, 1));
    bench.clients(|clients, below| clients.ptlrpc.rpc(below).disconnect(a));
    bench.secs(10);
    assert_eq!((freed(&mut bench, a), uncommitted(&mut bench, a)), (MIB, 0));
}
