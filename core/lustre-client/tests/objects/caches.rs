//! What clients see of each other's data.

use lustre_target::ost::wire;
use lustre_wire::Opcode;
use lustre_wire::ost::NiobufFlags;

use super::{Bench, KIB, MIB, Setting, object, pattern};

#[test]
fn writes_under_a_lock_stay_with_the_client_until_another_one_reads_them() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(100 * KIB, 1));
    bench.write(a, 1, 50 * KIB, &pattern(KIB, 2));
    assert_eq!(bench.dirty(a), 100 * KIB);
    let mut whole = pattern(100 * KIB, 1);
    whole[50 * 1024..51 * 1024].copy_from_slice(&pattern(KIB, 2));
    assert!(bench.read(b, 1, 0, 200 * KIB) == whole, "and not more than there is");
    assert_eq!(bench.dirty(a), 0);
    // The memory of all writes is the program's again, when they are committed.
    assert_eq!(bench.fsync(a, 1), Ok(0));
    assert_eq!(bench.of(a, |client| client.freed), 101 * KIB + 4096);
    // And back: the reader's lock goes when the writer writes again.
    bench.write(a, 1, 0, b"changed");
    assert_eq!(bench.read(b, 1, 0, 7), b"changed");
}

#[test]
fn a_client_reads_what_it_has_written_itself() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.warm(a);
    bench.write(a, 1, 5000, b"data");
    let read = bench.read(a, 1, 0, 10_000);
    assert!(read.len() == 5004 && read[..5000].iter().all(|b| *b == 0) && read[5000..] == *b"data");
    assert_eq!(bench.read(a, 1, 5004, 10), b"");
    assert_eq!(bench.read(a, 1, 5002, 10), b"ta");
}

#[test]
fn data_under_a_lock_that_is_cached_costs_no_message() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.warm(a);
    // The lock grows to the whole object.
    bench.write(a, 1, 0, &pattern(4096, 1));
    let sent = bench.world.sent;
    for n in 0..10 {
        bench.write(a, 1, 0, &pattern(4096, n));
        bench.write(a, 1, MIB, &pattern(4096, n));
        assert_eq!(bench.size(a, 1), Ok(MIB + 4096));
    }
    assert_eq!(bench.world.sent, sent);
}

#[test]
fn l35_a_size_is_asked_of_the_writer_who_keeps_its_data() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    assert_eq!(bench.size(b, 1), Ok(0));
    bench.write(a, 1, MIB, &pattern(100, 1));
    assert_eq!((bench.size(b, 1), bench.dirty(a)), (Ok(MIB + 100), 100));
    assert_eq!(bench.size(a, 1), Ok(MIB + 100));
    // A reader below is not in the writer's way, and finds zeros.
    assert!(bench.read(b, 1, 0, 4096) == [0; 4096]);
    bench.write(a, 1, MIB + 100, &pattern(50, 2));
    assert_eq!(bench.size(b, 1), Ok(MIB + 150));
}

#[test]
fn l50_a_client_without_locks_reads_and_changes_what_others_have_cached() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, b"first data");
    let body = wire::data_body(object(1), true, None, 0);
    let range = [wire::range(0, 10, NiobufFlags::READ)];
    let read = wire::data(Opcode::OST_READ, &body, &range, Some(&[]));
    let reply = bench.call(b, read).unwrap().unwrap();
    assert_eq!(&reply.msg().unwrap().buffer(2).unwrap()[..10], b"first data");
    let range = [wire::range(6, 4, NiobufFlags::WRITE)];
    let write = wire::data(Opcode::OST_WRITE, &body, &range, Some(b"word"));
    bench.call(b, write).unwrap().unwrap();
    assert_eq!(bench.read(a, 1, 0, 20), b"first word");
    // The attributes as well: what is dirty counts.
    bench.write(a, 1, 100, b"more");
    let said = bench.call(b, wire::get_attributes(object(1))).unwrap().unwrap();
    let size = said.msg().unwrap().get::<lustre_wire::ost::Obdo>(1).unwrap().size;
    assert_eq!((size, bench.dirty(a)), (104, 0));
}

#[test]
fn p114_a_write_back_goes_first_when_those_that_wait_for_it_have_all_slots() {
    let mut bench = Bench::with(Setting { slots: 1, ..Setting::default() });
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, b"cached");
    // This one has the slot, and waits for a lock that the other client has.
    let body = wire::data_body(object(1), true, None, 0);
    let range = [wire::range(0, 6, NiobufFlags::READ)];
    let read = wire::data(Opcode::OST_READ, &body, &range, Some(&[]));
    let reply = bench.call(b, read).expect("an answer without any time").unwrap();
    assert_eq!(&reply.msg().unwrap().buffer(2).unwrap()[..6], b"cached");
    assert_eq!(bench.evicted(), []);
}

#[test]
fn l80_a_cut_drops_what_others_have_not_written_back() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(64 * KIB, 1));
    let written = bench.osc(a, |osc, _| osc.stats().written);
    assert_eq!(bench.run(b, |osc, cx| osc.punch(object(1), 0, cx)), Ok(0));
    assert_eq!((bench.dirty(a), bench.size(a, 1)), (0, Ok(0)));
    assert_eq!(bench.osc(a, |osc, _| osc.stats().written), written, "nothing was written back");
    assert_eq!((bench.fsync(a, 1), bench.close(a, 1)), (Ok(0), Ok(0)));
    // In the middle of the data nothing may be dropped.
    bench.write(a, 1, 0, &pattern(64 * KIB, 2));
    assert_eq!(bench.run(b, |osc, cx| osc.punch(object(1), 10, cx)), Ok(0));
    assert!(bench.read(b, 1, 0, 64 * KIB) == pattern(10, 2));
    assert_eq!(bench.size(a, 1), Ok(10));
}

#[test]
fn l35_an_object_that_is_removed_takes_what_is_cached_of_it_along() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(64 * KIB, 1));
    bench.hang(a, true);
    let removal = bench.begin(b, wire::destroy(object(1), 1));
    assert!(bench.end_of(removal).is_none());
    bench.hang(a, false);
    bench.end_of(removal).unwrap().unwrap();
    assert_eq!(bench.dirty(a), 0);
    assert_eq!(bench.size(b, 1), Err(lnet_types::Errno::ENOENT));
}
