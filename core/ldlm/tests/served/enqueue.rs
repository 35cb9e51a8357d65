//! Requests as they go over the wire: locks that are given back with them, holders that are called back for
//! them, what their replies say.

use lnet_types::ByteOrder;
use lustre_wire::connect::{ConnectData, ConnectFlags2};
use lustre_wire::ldlm::{
    LockDesc, LockFlags, LockKind, LockMode, LockReply, LockRequest, Lvb, Policy,
};
use lustre_wire::{Buffers, Opcode};
use ptlrpc::{CallId, ImportId, Lose, Part};

use super::{Bench, OBJECT, SIZE, data};

/// Asks for a lock on this range, and gives others back with the request.
fn enqueue(
    bench: &mut Bench,
    import: ImportId,
    (flags, mode): (LockFlags, LockMode),
    (start, end): (u64, u64),
    handles: &[u64],
) -> CallId {
    let desc = LockDesc {
        kind: LockKind::EXTENT,
        resource: OBJECT,
        requested: mode,
        policy: Policy::Extent { start, end, gid: 0 }.words(),
        ..LockDesc::default()
    };
    let flags = flags | LockFlags::NO_EXPANSION;
    let request = LockRequest::new(flags, handles.len() as u32, desc, handles);
    bench.call(import, Opcode::LDLM_ENQUEUE, Buffers::from([request.to_bytes(ByteOrder::Little)]))
}

/// The lock in the reply, and the size that came with it; `None`: there is no reply yet.
fn reply(bench: &mut Bench, call: CallId) -> Option<(LockReply, Option<u64>)> {
    let reply = bench.ended(call)?.unwrap();
    let msg = reply.msg().unwrap();
    let lvb = Lvb::parse_either(ByteOrder::Little, msg.buffer(2).unwrap()).ok();
    Some((msg.get(1).unwrap(), lvb.map(|lvb| lvb.size)))
}

const WHOLE: (u64, u64) = (0, u64::MAX);
const NONE: LockFlags = LockFlags::empty();

#[test]
fn l60_lock_that_comes_for_the_last_one_of_its_object_has_the_attributes() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let first = enqueue(&mut bench, a, (NONE, LockMode::PR), WHOLE, &[1]);
    let (lock, size) = reply(&mut bench, first).unwrap();
    assert_eq!(size, Some(SIZE));
    let second = enqueue(&mut bench, a, (NONE, LockMode::PW), WHOLE, &[2, lock.handle]);
    let (lock, size) = reply(&mut bench, second).unwrap();
    assert_eq!((lock.desc.granted, size), (LockMode::PW, Some(SIZE)));
    assert_eq!(bench.server(|server, _| server.locks.space().view().locks), 1);
}

#[test]
fn l39_request_does_not_wait_for_the_callback_of_a_lock_that_its_server_drops() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    let held = enqueue(&mut bench, a, (LockFlags::CANCEL_ON_BLOCK, LockMode::PW), WHOLE, &[1]);
    assert!(reply(&mut bench, held).is_some());
    let lose = Lose { opcode: Some(Opcode::LDLM_BL_CALLBACK), part: Part::Request, count: 100 };
    bench.server(|server, below| server.ptlrpc.rpc(below).lose(lose).unwrap());
    let asked = enqueue(&mut bench, b, (NONE, LockMode::PW), WHOLE, &[2]);
    let (lock, _) = reply(&mut bench, asked).expect("at once");
    assert_eq!(lock.desc.granted, LockMode::PW);
    bench.secs(1000);
    let (again, evicted) =
        bench.server(|server, _| (server.locks.stats().again, server.evicted.len()));
    assert_eq!((again, evicted), (0, 0));
}

/// A client with this many locks, and another one that asks for all that they cover.
fn many(bench: &mut Bench, count: u64) -> CallId {
    let (a, b) = (bench.client("a"), bench.client("b"));
    for n in 0..count {
        let call = enqueue(bench, a, (NONE, LockMode::PR), (n * 10, n * 10 + 9), &[1 + n]);
        assert!(reply(bench, call).is_some());
    }
    enqueue(bench, b, (NONE, LockMode::EX), WHOLE, &[5000])
}

#[test]
fn l23_holders_of_one_round_are_called_back_1024_at_a_time() {
    let mut bench = Bench::new();
    let lose = Lose { opcode: Some(Opcode::LDLM_BL_CALLBACK), part: Part::Request, count: 9000 };
    bench.server(|server, below| server.ptlrpc.rpc(below).lose(lose).unwrap());
    let asked = many(&mut bench, 1100);
    bench.secs(1);
    assert_eq!(bench.server(|server, _| server.locks.stats().blocking), 1024);
    assert_eq!(reply(&mut bench, asked), None);
    // Those that were to follow go with their client.
    bench.server(|server, below| {
        let views = server.ptlrpc.export_views();
        let export = views.iter().find(|view| view.client == "a").unwrap().id;
        server.ptlrpc.rpc(below).evict(export);
    });
    let (lock, _) = reply(&mut bench, asked).expect("all callbacks have ended");
    assert_eq!(lock.desc.granted, LockMode::EX);
    assert_eq!(bench.server(|server, _| server.locks.stats().blocking), 1024);
}

#[test]
fn l23_callbacks_above_1024_follow_when_others_have_ended() {
    let mut bench = Bench::new();
    many(&mut bench, 1100);
    bench.secs(1);
    assert_eq!(bench.server(|server, _| server.locks.stats().blocking), 1100);
    assert!(bench.server(|server, _| server.evicted.is_empty()));
}

#[test]
fn client_answers_more_callbacks_at_once_than_its_buffers_have_room_for() {
    let mut bench = Bench::new();
    let asked = many(&mut bench, 1000);
    let served = bench.clients(|clients, _| clients.ptlrpc.server_stats().served);
    assert_eq!(served, 1000);
    let (lock, _) = reply(&mut bench, asked).expect("at once");
    assert_eq!(lock.desc.granted, LockMode::EX);
}

#[test]
fn l31_client_that_has_not_agreed_on_contention_hears_nothing_of_it() {
    for hears in [false, true] {
        let mut bench = Bench::new();
        let mut flags2 = data().flags2;
        flags2.set(ConnectFlags2::LOCK_CONTENTION, hears);
        let b = bench.client_with("b", ConnectData { flags2, ..data() });
        let a = bench.client("a");
        bench.granted(a, &super::whole(ldlm::Mode::Pw));
        let said: Vec<bool> = (1..=8)
            .map(|n| {
                let call = enqueue(&mut bench, b, (NONE, LockMode::PW), WHOLE, &[n]);
                let (lock, _) = reply(&mut bench, call).unwrap();
                lock.flags.contains(LockFlags::CONTENTION)
            })
            .collect();
        assert_eq!(said.contains(&true), hears, "{said:?}");
    }
}
