//! What happens to data and locks when a client hangs, when messages are lost, when the server dies.

use lnet_types::{ByteOrder, Errno};
use lustre_target::ost::wire;
use lustre_wire::ldlm::{LockDesc, LockFlags, LockKind, LockMode, LockRequest, PolicyWords};
use lustre_wire::ldlm::{LockReply, ResourceName};
use lustre_wire::ost::{Niobuf, NiobufFlags};
use lustre_wire::{Buffers, Layout as _, Opcode, Portal};
use ptlrpc::{Call, CallError, EvictReason, ImportId, Part};

use super::{Bench, KIB, object, pattern};

/// A read under a lock of the client itself.
fn read_under_lock(bench: &mut Bench, import: ImportId) -> Result<(), CallError> {
    let body = wire::data_body(object(1), true, None, 0);
    let range = [Niobuf { offset: 0, len: 4, flags: NiobufFlags::READ }];
    let read = wire::data(Opcode::OST_READ, &body, &range, Some(&[]));
    bench.call(import, read).expect("an end").map(|_| ())
}

fn write_under_lock(bench: &mut Bench, import: ImportId) -> Result<(), CallError> {
    let body = wire::data_body(object(1), true, None, 0);
    let range = [Niobuf { offset: 0, len: 4, flags: NiobufFlags::WRITE }];
    let write = wire::data(Opcode::OST_WRITE, &body, &range, Some(b"late"));
    bench.call(import, write).expect("an end").map(|_| ())
}

#[test]
fn a_holder_that_hangs_is_evicted_at_the_timer_and_what_it_writes_late_is_refused() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(8 * KIB, 1));
    bench.hang(a, true);
    let second = bench.begin_write(b, 1, 0, b"newer");
    bench.secs(149);
    assert_eq!((bench.done(b, second), bench.evicted()), (None, vec![]));
    bench.secs(2);
    assert_eq!(bench.done(b, second), Some(Ok(5)));
    assert_eq!(bench.evicted(), [("a".to_owned(), EvictReason::LockTimeout)]);
    bench.secs(60);
    assert_eq!(write_under_lock(&mut bench, a), Err(CallError::Refused(Errno::ESTALE)));
    bench.hang(a, false);
    bench.secs(60);
    // What was lost is said once by each.
    assert_eq!((bench.dirty(a), bench.fsync(a, 1)), (0, Err(Errno::EIO)));
    assert_eq!((bench.fsync(a, 1), bench.close(a, 1)), (Ok(0), Err(Errno::EIO)));
    assert_eq!(bench.close(a, 1), Ok(0));
    let stats = bench.osc(a, |osc, _| osc.stats());
    assert_eq!((stats.lost, stats.evicted), (8 * KIB, 1));
    let waits = bench.osc(b, |osc, _| osc.lock_waits().clone());
    assert_eq!((waits.count(), waits.longest().as_secs()), (1, 150));
    assert_eq!(bench.read(a, 1, 0, 5), b"newer");
    assert_eq!(bench.size(a, 1), Ok(5));
}

#[test]
fn a_write_back_whose_requests_are_all_lost_ends_with_the_eviction_and_an_error_once_each() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(8 * KIB, 1));
    bench.lose(Opcode::OST_WRITE, Part::Request, u32::MAX);
    let (second, _) = bench.begin_read(b, 1, 0, 4);
    bench.secs(160);
    assert_eq!(bench.done(b, second), Some(Ok(0)));
    assert_eq!(bench.evicted(), [("a".to_owned(), EvictReason::LockTimeout)]);
    bench.mend();
    bench.secs(100);
    assert_eq!((bench.fsync(a, 1), bench.close(a, 1)), (Err(Errno::EIO), Err(Errno::EIO)));
    assert_eq!((bench.fsync(a, 1), bench.close(a, 1)), (Ok(0), Ok(0)));
    assert_eq!(bench.size(b, 1), Ok(0));
}

#[test]
fn a_write_back_whose_replies_are_lost_is_written_once_and_goes_on() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, b"once");
    bench.lose(Opcode::OST_WRITE, Part::Reply, 2);
    let (second, memory) = bench.begin_read(b, 1, 0, 4);
    bench.secs(100);
    assert_eq!(bench.done(b, second), Some(Ok(4)));
    assert_eq!((bench.bytes(&memory), bench.evicted()), (b"once".to_vec(), vec![]));
    assert_eq!(bench.fsync(a, 1), Ok(0));
}

#[test]
fn l49_data_under_a_called_back_lock_keeps_it_for_three_times_the_timer() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(KIB, 1));
    assert_eq!(bench.fsync(a, 1), Ok(0));
    bench.hang(a, true);
    let second = bench.begin_write(b, 1, 0, b"newer");
    // The estimate of the service is small: P-137 gives as much as the least timer.
    for _ in 0..45 {
        bench.secs(10);
        assert_eq!(read_under_lock(&mut bench, a), Ok(()));
    }
    assert_eq!((bench.done(b, second), bench.evicted()), (None, vec![]));
    bench.secs(200);
    assert_eq!(bench.done(b, second), Some(Ok(5)));
    assert_eq!(bench.evicted(), [("a".to_owned(), EvictReason::LockTimeout)]);
}

#[test]
fn data_that_is_cached_survives_a_crash_of_the_server() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(64 * KIB, 1));
    let written = bench.begin_write(a, 2, 0, &pattern(64 * KIB, 2));
    assert_eq!(bench.done(a, written), Some(Ok(64 * KIB)));
    bench.restart();
    bench.secs(120);
    assert_eq!(bench.dirty(a), 0, "it has grown old meanwhile");
    assert_eq!((bench.fsync(a, 1), bench.evicted()), (Ok(0), vec![]));
    assert!(bench.read(b, 1, 0, 64 * KIB) == pattern(64 * KIB, 1));
    assert!(bench.read(b, 2, 0, 64 * KIB) == pattern(64 * KIB, 2));
}

#[test]
fn a_crash_in_the_middle_of_a_write_back_loses_nothing() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(64 * KIB, 1));
    bench.lose(Opcode::OST_WRITE, Part::Reply, 1);
    let second = bench.begin_write(b, 1, 0, b"newer");
    bench.restart();
    bench.secs(200);
    assert_eq!((bench.done(b, second), bench.evicted()), (Some(Ok(5)), vec![]));
    let mut whole = pattern(64 * KIB, 1);
    whole[..5].copy_from_slice(b"newer");
    assert!(bench.read(a, 1, 0, 64 * KIB) == whole);
    assert_eq!((bench.fsync(a, 1), bench.fsync(b, 1)), (Ok(0), Ok(0)));
}

#[test]
fn l94_data_whose_sum_differs_is_written_and_read_again() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.warm(a);
    bench.of(a, |client| client.lies = 1);
    bench.write(a, 1, 0, b"data");
    let op = bench.osc(a, |osc, cx| osc.fsync(object(1), cx)).unwrap();
    assert_eq!(bench.done(a, op), None);
    bench.secs(1);
    assert_eq!(bench.done(a, op), Some(Ok(0)));
    bench.of(a, |client| client.lies = 2);
    let (op, memory) = bench.begin_read(a, 1, 0, 4);
    bench.secs(1);
    assert_eq!(bench.done(a, op), None);
    bench.secs(2);
    assert_eq!((bench.done(a, op), bench.bytes(&memory)), (Some(Ok(4)), b"data".to_vec()));
    assert_eq!(bench.osc(a, |osc, _| osc.stats().retries), 3);
    // In the end it is given up.
    bench.of(a, |client| client.lies = u32::MAX);
    let (op, _) = bench.begin_read(a, 1, 0, 4);
    bench.secs(60);
    assert_eq!(bench.done(a, op), Some(Err(Errno::EIO)));
}

#[test]
fn what_waits_for_a_lock_of_the_target_leaves_with_its_client() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(KIB, 1));
    bench.hang(a, true);
    let body = wire::data_body(object(1), true, None, 0);
    let range = [wire::range(0, 4, NiobufFlags::READ)];
    let read = wire::data(Opcode::OST_READ, &body, &range, Some(&[]));
    let read = bench.begin(b, read);
    assert!(bench.end_of(read).is_none());
    assert_eq!(bench.holders().into_iter().collect::<Vec<_>>(), ["a", "target"]);
    bench.evict("b");
    assert_eq!(bench.holders().into_iter().collect::<Vec<_>>(), ["a"]);
    bench.hang(a, false);
    assert_eq!((bench.fsync(a, 1), bench.read(a, 1, 0, KIB)), (Ok(0), pattern(KIB, 1)));
}

/// An enqueue as anyone may send it.
fn enqueue(resource: ResourceName, kind: LockKind) -> Call {
    let desc = LockDesc {
        kind,
        resource,
        requested: LockMode::PW,
        granted: LockMode::NONE,
        policy: PolicyWords { start: 0, end: u64::MAX, gid: 0, who: 0 },
    };
    let request = LockRequest::new(LockFlags::empty(), 1, desc, &[7]);
    let buffers = Buffers::from([request.to_bytes(ByteOrder::Little)]);
    let mut call =
        Call::new(Opcode::LDLM_ENQUEUE, buffers).answered_by(&[LockReply::LEN as u32, 56]);
    call.portals = Some((Portal::OST_REQUEST, Portal::OSC_REPLY));
    call
}

#[test]
fn locks_of_other_kinds_and_of_what_is_no_object_are_refused() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let good = ResourceName::of_object(object(1));
    let none = ResourceName::of_object(object(99));
    let odd = ResourceName { words: [1, 2, 3, 4] };
    for (resource, kind, errno) in [
        (good, LockKind::PLAIN, Errno::EINVAL),
        (good, LockKind::IBITS, Errno::EINVAL),
        (good, LockKind::FLOCK, Errno::EINVAL),
        (good, LockKind(99), Errno::EFAULT),
        (none, LockKind::EXTENT, Errno::ENOENT),
        (odd, LockKind::EXTENT, Errno::EPROTO),
    ] {
        let end = bench.call(a, enqueue(resource, kind)).unwrap();
        assert_eq!(end.map(|_| ()), Err(CallError::Refused(errno)), "{resource} {kind:?}");
    }
    bench.call(a, enqueue(good, LockKind::EXTENT)).unwrap().unwrap();
    assert_eq!(bench.holders().len(), 1);
}

#[test]
fn c261_object_is_unsettled_until_its_target_has_its_data_or_its_program_has_heard_of_their_loss() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.warm(a);
    let unsettled = |bench: &mut Bench| -> Vec<_> {
        let all = bench.osc(a, |osc, _| osc.unsettled());
        all.into_iter().map(|(id, _)| id).collect()
    };
    assert_eq!(unsettled(&mut bench), [], "written through, and committed");
    bench.write(a, 1, 0, b"dirty");
    assert_eq!(unsettled(&mut bench), [object(1)]);
    bench.secs(11);
    assert_eq!(unsettled(&mut bench), [object(1)], "answered, and not known to be committed");
    assert_eq!(bench.fsync(a, 1), Ok(0));
    assert_eq!(unsettled(&mut bench), []);
    bench.write(a, 1, 0, b"closed");
    assert_eq!(bench.close(a, 1), Ok(0));
    assert_eq!(unsettled(&mut bench), []);
    bench.write(a, 1, 0, b"lost");
    bench.evict("a");
    bench.secs(100);
    assert_eq!(unsettled(&mut bench), [object(1)]);
    assert_eq!(bench.fsync(a, 1), Err(Errno::EIO));
    assert_eq!(unsettled(&mut bench), []);
}

#[test]
fn l57_data_of_before_an_eviction_is_not_written_behind_what_others_have_written_since() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.warm(a);
    bench.write(a, 1, 0, &pattern(512 * KIB, 1));
    bench.evict("a");
    bench.write(b, 4, 0, b"warm");
    bench.write(b, 1, 0, &pattern(512 * KIB, 2));
    assert_eq!(bench.fsync(b, 1), Ok(0));
    // It waits for what is dirty, and learns of the eviction by that.
    let written = bench.osc(a, |osc, _| osc.stats().written);
    let op = bench.osc(a, |osc, cx| osc.fsync(object(1), cx)).unwrap();
    bench.secs(60);
    assert_eq!(bench.done(a, op), Some(Err(Errno::EIO)));
    let stats = bench.osc(a, |osc, _| osc.stats());
    assert_eq!((stats.written - written, stats.lost), (0, 512 * KIB));
    assert!(bench.read(b, 1, 0, 512 * KIB) == pattern(512 * KIB, 2));
}
