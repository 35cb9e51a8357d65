//! The size of an object, asked for by a client that writes back what makes the object longer.

use ldlm::client::LockEvent;
use lustre_wire::Opcode;
use ptlrpc::{ImportId, Part};

use super::{Bench, KIB, MIB, OpId, object, pattern};

/// Below this the writer has a lock, from it on another client.
const BORDER: u64 = MIB;

/// A client whose lock ends in the middle of an object, with 26 bytes at the target, and 74 more on their way
/// that the target does not have: the end of an fsync waits for them.
fn writes_back(bench: &mut Bench) -> (ImportId, OpId) {
    let (a, b, c) = (bench.client("a"), bench.client("b"), bench.client("c"));
    bench.warm(a);
    bench.write(b, 1, 0, b"old");
    bench.hang(b, true);
    // Both wait for a lock at the same time, so that neither gets one on all of the object.
    let first = bench.begin_write(a, 1, 0, &pattern(26, 1));
    let (beyond, _) = bench.begin_read(c, 1, BORDER, KIB);
    bench.hang(b, false);
    assert_eq!((bench.done(a, first), bench.done(c, beyond)), (Some(Ok(26)), Some(Ok(0))));
    assert_eq!(bench.fsync(a, 1), Ok(0));
    bench.write(a, 1, 26, &pattern(74, 2));
    bench.lose(Opcode::OST_WRITE, Part::Request, u32::MAX);
    let fsync = bench.osc(a, |osc, cx| osc.fsync(object(1), cx)).unwrap();
    assert_eq!(bench.done(a, fsync), None);
    (a, fsync)
}

/// The client asks for the size while a glimpse finds it without an answer, as one does that meets a lock on
/// its way out: the target says what it has. The reply lies there until the client does not hang any more.
fn asks_the_target(bench: &mut Bench, a: ImportId) -> OpId {
    bench.hang(a, true);
    let size = bench.osc(a, |osc, cx| osc.size(object(1), cx)).unwrap();
    let is_glimpse = |event: &LockEvent| matches!(event, LockEvent::Glimpse { .. });
    let glimpse = bench.of(a, |client| {
        let at = client.unheard.iter().position(is_glimpse);
        at.and_then(|at| client.unheard.remove(at))
    });
    let Some(LockEvent::Glimpse { glimpse, .. }) = glimpse else { panic!("{glimpse:?}") };
    bench.osc(a, |_, cx| cx.locks.glimpsed(glimpse, None, cx.rpc));
    assert_eq!(bench.done(a, size), None);
    size
}

#[test]
fn size_that_a_writer_asks_for_counts_what_it_writes_back() {
    let mut bench = Bench::new();
    let (a, fsync) = writes_back(&mut bench);
    let size = asks_the_target(&mut bench, a);
    bench.hang(a, false);
    assert_eq!(bench.done(a, size), Some(Ok(100)));
    bench.mend();
    bench.secs(100);
    assert_eq!(bench.done(a, fsync), Some(Ok(0)));
    assert_eq!(bench.size(a, 1), Ok(100));
}

#[test]
fn size_from_before_a_write_back_is_not_believed_when_that_has_ended_first() {
    let mut bench = Bench::new();
    let (a, fsync) = writes_back(&mut bench);
    let size = asks_the_target(&mut bench, a);
    bench.mend();
    bench.secs(100);
    bench.hang(a, false);
    assert_eq!((bench.done(a, fsync), bench.done(a, size)), (Some(Ok(0)), Some(Ok(100))));
}
