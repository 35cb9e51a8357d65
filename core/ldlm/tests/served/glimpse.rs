//! Who asks for the size of an object gets it from the client that knows it better.

use ldlm::Mode;
use ldlm::client::{Ask, GlimpseId, LockEvent};
use ldlm::space::Value;
use lnet_types::ByteOrder;
use lustre_wire::ldlm::{Intent, LockDesc, LockFlags, LockKind, LockMode, LockReply, Lvb, Policy};
use lustre_wire::{Buffers, Opcode};
use ptlrpc::{CallId, ImportId};

use super::{Bench, OBJECT, SIZE, lvb, request, whole};

const GRANTED: i32 = 0;
const ABORTED: i32 = 301;

pub(super) fn glimpse(bench: &mut Bench, import: ImportId, flags: LockFlags) -> CallId {
    let desc = LockDesc {
        kind: LockKind::EXTENT,
        resource: OBJECT,
        requested: LockMode::PR,
        policy: Policy::Extent { start: 0, end: u64::MAX, gid: 0 }.words(),
        ..LockDesc::default()
    };
    let intent = Intent::GLIMPSE.bits().to_le_bytes().to_vec();
    let lock = request(flags | LockFlags::HAS_INTENT, 0xC11E_0001, desc);
    bench.call(import, Opcode::LDLM_ENQUEUE, Buffers::from([lock, intent]))
}

/// Status, flags and size in the reply to a glimpse; `None`: there is none yet.
fn reply(bench: &mut Bench, call: CallId) -> Option<(i32, LockFlags, u64)> {
    let reply = bench.ended(call)?.unwrap();
    let msg = reply.msg().unwrap();
    let lock: LockReply = msg.get(1).unwrap();
    let lvb = Lvb::parse_either(ByteOrder::Little, msg.buffer(2).unwrap()).unwrap();
    Some((reply.status, lock.flags, lvb.size))
}

pub(super) fn asked(bench: &mut Bench) -> Option<GlimpseId> {
    let seen = bench.seen().into_iter();
    let mut glimpses = seen.filter_map(|(_, event)| match event {
        LockEvent::Glimpse { glimpse, .. } => Some(glimpse),
        _ => None,
    });
    let first = glimpses.next();
    assert_eq!(glimpses.next(), None, "one for each client");
    first
}

pub(super) fn writer() -> Ask {
    Ask { glimpses: true, ..whole(Mode::Pw) }
}

#[test]
fn l35_a_writer_is_asked_for_the_size_and_keeps_its_lock() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.granted(a, &writer());
    let call = glimpse(&mut bench, b, LockFlags::empty());
    let asks = asked(&mut bench).expect("the writer is asked");
    assert_eq!(reply(&mut bench, call), None);
    bench.answer(asks, Some(100));
    assert_eq!(reply(&mut bench, call), Some((ABORTED, LockFlags::empty(), 100)));
    // It was no callback: the lock has no timer.
    bench.secs(1000);
    assert!(bench.server(|server, _| server.evicted.is_empty()));
    assert_eq!(bench.server(|server, _| server.locks.space().view().locks), 1);
}

#[test]
fn l34_attributes_of_an_object_never_decrease_by_a_glimpse() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.granted(a, &writer());
    for (says, size) in [(Some(100), 100), (Some(50), 100), (None, 100), (Some(101), 101)] {
        let call = glimpse(&mut bench, b, LockFlags::empty());
        let asks = asked(&mut bench).expect("the writer is asked");
        bench.answer(asks, says);
        let (_, _, known) = reply(&mut bench, call).unwrap();
        assert_eq!(known, size, "{says:?}");
    }
}

#[test]
fn l40_a_writer_that_knows_nothing_leaves_the_size_of_the_object() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.granted(a, &whole(Mode::Pw));
    let call = glimpse(&mut bench, b, LockFlags::empty());
    assert_eq!(asked(&mut bench), None, "its program answers none");
    assert_eq!(reply(&mut bench, call), Some((ABORTED, LockFlags::empty(), SIZE)));
}

#[test]
fn l35_without_a_writer_a_glimpse_is_a_lock() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.granted(a, &whole(Mode::Pr));
    let call = glimpse(&mut bench, b, LockFlags::empty());
    let (status, flags, size) = reply(&mut bench, call).unwrap();
    assert_eq!((status, size), (GRANTED, SIZE));
    assert!(flags.contains(LockFlags::LOCK_CHANGED), "{flags:?}");
    assert_eq!(bench.server(|server, _| server.locks.space().view().locks), 2);
}

#[test]
fn l35_an_asynchronous_glimpse_asks_no_client() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.granted(a, &writer());
    let call = glimpse(&mut bench, b, LockFlags::BLOCK_NOWAIT);
    assert_eq!(asked(&mut bench), None);
    assert_eq!(reply(&mut bench, call), Some((ABORTED, LockFlags::empty(), SIZE)));
}

#[test]
fn l34_a_glimpse_ends_when_the_writer_is_gone() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.granted(a, &writer());
    let call = glimpse(&mut bench, b, LockFlags::empty());
    assert!(asked(&mut bench).is_some());
    bench.secs(60);
    assert_eq!(reply(&mut bench, call), None, "it has no limit of its own");
    bench.server(|server, below| {
        let views = server.ptlrpc.export_views();
        let export = views.iter().find(|view| view.client == "a").unwrap().id;
        server.ptlrpc.rpc(below).evict(export);
    });
    assert_eq!(reply(&mut bench, call), Some((ABORTED, LockFlags::empty(), SIZE)));
}

#[test]
fn l34_writer_that_gives_the_last_lock_back_while_it_is_asked_leaves_the_size_that_it_wrote() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    let (hold, _) = bench.granted(a, &writer());
    let call = glimpse(&mut bench, b, LockFlags::empty());
    assert!(asked(&mut bench).is_some());
    bench.server(|server, _| server.locks.set_value(&OBJECT, Value::Object(lvb(100))));
    // The lock goes, and its client has nothing to say of it any more.
    bench.clients(|clients, below| {
        clients.locks.release(a, hold, false, &mut clients.ptlrpc.rpc(below));
    });
    assert_eq!(bench.server(|server, _| server.locks.space().view().locks), 0);
    assert_eq!(reply(&mut bench, call), Some((ABORTED, LockFlags::empty(), 100)));
    assert_eq!(bench.server(|server, _| server.locks.space().view().resources), 0);
}
