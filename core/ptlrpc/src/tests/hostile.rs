//! Clients that say anything.

use lnet_types::{Errno, Prng};
use lustre_wire::body::MsgKind;
use lustre_wire::{Body, BodyFlags, Header, ImportKind, MsgBuilder, Opcode};

use super::bench::{APPEND, Bench, append_log, keeper};
use super::raw::{
    Raw, connect, connect_message, connect_with, connected, throw, throw_at, throw_many,
};
use crate::server::QUEUED_BYTES_PER_NODE_MAX;
use crate::{
    Answer, Call, CallError, Event, QUEUED_BYTES_PER_EXPORT_MAX, QUEUED_PER_EXPORT_MAX,
    RECORDS_PER_EXPORT_MAX, REPLIES_PER_PEER_MAX, ServerStats, Tunables,
};

fn stats(bench: &mut Bench) -> ServerStats {
    bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats())
}

/// What is said to a request that is made by hand.
fn said(bench: &mut Bench, xid: u64, body: &Body) -> Option<(MsgKind, i32)> {
    let raw = Raw::send(bench, xid, body);
    raw.reply(bench).map(|reply| (reply.kind, reply.status))
}

/// An error of the service.
const fn failed(errno: Errno) -> Option<(MsgKind, i32)> {
    Some((MsgKind::ERROR, errno.negative()))
}

#[test]
fn garbage_is_counted_and_others_are_served() {
    let mut bench = Bench::new(append_log());
    let mut prng = Prng::new(7);
    for n in 0..3000u64 {
        let len = 1 + prng.below(600) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| prng.next_u64() as u8).collect();
        throw(&mut bench, &bytes, n);
    }
    let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
    assert_eq!((stats.malformed, stats.served), (3000, 0));
    let call = bench.call(Bench::say(APPEND, "one"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 1);
}

#[test]
fn every_field_of_a_request_may_be_anything() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(APPEND, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let good = connect_message("client-x");
    let mut prng = Prng::new(9);
    for n in 0..20_000u64 {
        let mut bytes = good.clone();
        for _ in 0..1 + prng.below(4) {
            let at = prng.below(bytes.len() as u64) as usize;
            bytes[at] = prng.next_u64() as u8;
        }
        throw(&mut bench, &bytes, n + 1);
    }
    bench.secs(400);
    // Their exports are gone with their silence, and the one who pings is still there.
    let exports = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    assert_eq!(exports.len(), 1, "{exports:?}");
    let call = bench.call(Bench::say(APPEND, "two"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 2);
}

#[test]
fn a_handle_that_no_export_has_is_refused_and_evicts_no_other() {
    let mut bench = Bench::new(keeper());
    let (handle, xid) = connected(&mut bench);
    for (n, wrong) in [0, 1, handle ^ 1, handle.swap_bytes(), u64::MAX].into_iter().enumerate() {
        let said = said(&mut bench, xid + n as u64, &Raw::body(wrong));
        // Match bits of the reply are those of the request: there is no export that has granted others.
        assert_eq!(said, failed(Errno::ENOTCONN), "{wrong:x}");
    }
    let exports = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    assert_eq!(exports.len(), 1);
}

#[test]
fn numbers_that_go_back_are_refused_by_name() {
    // P-112.
    let mut bench = Bench::new(keeper());
    let (handle, xid) = connected(&mut bench);
    let body = Body { last_xid: xid, ..Raw::body(handle) };
    assert_eq!(said(&mut bench, xid + 128, &body), None, "it waits for the test");
    for back in [0, 1, xid - 128, xid] {
        assert_eq!(said(&mut bench, back, &body), failed(Errno::EPROTO), "{back}");
    }
    assert_eq!((stats(&mut bench).bad_xid, bench.kept().len()), (4, 2));
}

#[test]
fn flags_that_are_not_known_are_ignored() {
    let mut bench = Bench::new(keeper());
    let (handle, xid) = connected(&mut bench);
    let known = BodyFlags::REPLAY | BodyFlags::REQ_REPLAY_DONE | BodyFlags::LOCK_REPLAY_DONE;
    let flags = BodyFlags::from_bits_retain(!known.bits());
    assert_eq!(said(&mut bench, xid, &Body { flags, ..Raw::body(handle) }), None);
    assert_eq!(bench.kept().len(), 2, "it is served");
}

#[test]
fn copies_that_do_not_say_so_are_known_by_their_numbers_and_counted() {
    // P-110, P-141.
    let mut bench = Bench::new(keeper());
    let (handle, xid) = connected(&mut bench);
    // Copies: folded, answered from the record, without their mark. Requests that were served.
    let say = |bench: &mut Bench, flags| {
        said(bench, xid, &Body { flags, ..Raw::body(handle) });
        let stats = stats(bench);
        (stats.folded, stats.answered_again, stats.unmarked, stats.served)
    };
    let (marked, bare) = (BodyFlags::RESENT, BodyFlags::empty());
    assert_eq!(say(&mut bench, bare), (0, 0, 0, 2));
    assert_eq!(say(&mut bench, marked), (1, 0, 0, 2));
    assert_eq!(say(&mut bench, bare), (2, 0, 1, 2));
    let served = bench.kept().last().unwrap().id;
    bench.rpc(bench.server, |rpc| rpc.reply(served, Answer { transno: 7, ..Answer::default() }));
    assert_eq!(say(&mut bench, marked), (2, 1, 1, 2));
    assert_eq!(say(&mut bench, bare), (2, 2, 2, 2));
}

#[test]
fn slots_beyond_those_that_were_granted_cost_the_clients_own_room_for_records() {
    let (mut bench, handle) = answering();
    let most = RECORDS_PER_EXPORT_MAX as u64;
    for n in 0..most + 50 {
        let body = Body { tag: n as u16, ..Raw::body(handle) };
        let bytes = MsgBuilder::new(Header::default(), &body).bytes(b"x").build().unwrap();
        throw(&mut bench, &bytes, (1 << 61) + n * 128);
    }
    let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].clone());
    // One is for the call that connected.
    assert_eq!((export.records as u64, stats(&mut bench).too_many), (most, 51));
}

/// A bench whose program answers at once, and the handle of its client.
fn answering() -> (Bench, u64) {
    let mut transno = 0;
    let mut bench = Bench::new(Box::new(move |rpc, event, kept| {
        if let Event::Served(served) = event {
            transno += 1;
            rpc.reply(served.id, Answer { transno, ..Answer::default() });
            kept.truncate(0);
            kept.push(*served);
        }
    }));
    let call = bench.call(Bench::say(APPEND, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let handle = bench.kept()[0].body.handle;
    (bench, handle)
}

#[test]
fn connect_data_may_be_shorter_or_longer_within_bounds() {
    // P-22, P-129.2.
    let mut bench = Bench::new(append_log());
    for (n, (len, result)) in [
        (0, Err(Errno::EPROTO)),
        // Without FULL20.
        (4, Err(Errno::EPROTO)),
        (72, Ok(())),
        (192, Ok(())),
        (200, Ok(())),
        (8 * 192, Ok(())),
        (8 * 192 + 1, Err(Errno::EPROTO)),
    ]
    .into_iter()
    .enumerate()
    {
        let before = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views().len());
        let refused = stats(&mut bench).connects_refused;
        let message = connect_with(&format!("client-{n}-x"), len);
        throw(&mut bench, &message, n as u64 + 1);
        let after = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views().len());
        let refused = stats(&mut bench).connects_refused - refused;
        let expected = if result.is_ok() { (1, 0) } else { (0, 1) };
        assert_eq!((after - before, refused), expected, "{len} bytes");
    }
}

#[test]
fn replies_without_a_call_and_requests_to_other_portals_do_nothing() {
    let (mut bench, handle) = answering();
    let bytes = MsgBuilder::new(Header::default(), &Raw::body(handle)).build().unwrap();
    let before = stats(&mut bench);
    for portal in 0..64 {
        if portal != ImportKind::Osc.portals().0.0 {
            throw_at(&mut bench, portal, &bytes, 1 << 61 | u64::from(portal));
        }
    }
    assert_eq!(stats(&mut bench), before);
    let call = bench.call(Bench::say(APPEND, "two"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 2);
}

#[test]
fn early_replies_for_ever_end_with_the_limit_of_the_call() {
    let mut bench = Bench::new(keeper());
    bench.party_of(bench.server, |p, _| {
        let tunables = Tunables { early_reply_defect: true, ..p.ptlrpc.tunables().clone() };
        p.ptlrpc.set_tunables(tunables);
    });
    let limit = Some(core::time::Duration::from_secs(3000));
    let call = bench.call(Call { limit, ..Bench::say(APPEND, "for ever") });
    bench.secs(2999);
    assert_eq!((bench.end_of(call), bench.kept().len()), (None, 1));
    assert!(stats(&mut bench).early > 100);
    bench.secs(1);
    assert_eq!(bench.end_of(call), Some(Err(CallError::LimitPassed)));
}

#[test]
fn one_client_fills_its_own_room_in_the_queue_and_others_are_served() {
    for (len, most) in [(8usize, QUEUED_PER_EXPORT_MAX), (12_000, 0)] {
        let mut bench = Bench::new(keeper());
        let (handle, xid) = connected(&mut bench);
        let build = |len: usize| {
            let buffer = vec![0; len];
            MsgBuilder::new(Header::default(), &Raw::body(handle)).bytes(&buffer).build().unwrap()
        };
        let bytes = build(len);
        let most = if most > 0 { most } else { QUEUED_BYTES_PER_EXPORT_MAX / bytes.len() };
        for n in 0..1500 {
            throw(&mut bench, &bytes, xid + n * 128);
        }
        let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].clone());
        assert_eq!((export.in_work, stats(&mut bench).too_many), (most, 1500 - most as u64));
        // What is answered makes room.
        let served = bench.kept().last().unwrap().id;
        bench.rpc(bench.server, |rpc| rpc.reply(served, Answer::default()));
        throw(&mut bench, &bytes, xid + 2000 * 128);
        assert_eq!(stats(&mut bench).too_many, 1500 - most as u64);
        // Cancels of others have a slot.
        connect(&mut bench, "client-x");
        let exports = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
        assert_eq!(exports.len(), 2);
    }
}

#[test]
fn clients_of_one_node_fill_no_more_than_its_room_in_the_queue() {
    let mut bench = Bench::new(keeper());
    let (first, xid) = connected(&mut bench);
    let others = (2..=9).map(|n| {
        let (upper, import) = bench.new_client(&format!("client-{n}"));
        bench.rpc(upper, |rpc| rpc.call(import, Bench::say(APPEND, "first"))).unwrap();
        bench.settle();
        bench.kept().last().unwrap().body.handle
    });
    let handles: Vec<u64> = others.chain([first]).collect();
    let of = |bench: &mut Bench| bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    assert_eq!(of(&mut bench).len(), 9);
    let buffer = vec![0; 12_000];
    let build = |handle: u64| {
        MsgBuilder::new(Header::default(), &Raw::body(handle)).bytes(&buffer).build().unwrap()
    };
    let mut number = xid;
    for handle in &handles {
        let bytes = build(*handle);
        for _ in 0..QUEUED_BYTES_PER_EXPORT_MAX / bytes.len() {
            number += 128;
            throw(&mut bench, &bytes, number);
        }
    }
    let waiting: usize = of(&mut bench).iter().map(|export| export.in_work).sum();
    let most = QUEUED_BYTES_PER_NODE_MAX / (buffer.len() + 300);
    assert!(waiting > most && waiting <= QUEUED_BYTES_PER_NODE_MAX / buffer.len(), "{waiting}");
    // What is answered makes room.
    let before = stats(&mut bench).too_many;
    assert!(before > 0);
    let served = bench.kept().last().unwrap().id;
    bench.rpc(bench.server, |rpc| rpc.reply(served, Answer::default()));
    throw(&mut bench, &build(first), number + 128);
    assert_eq!(stats(&mut bench).too_many, before);
}

#[test]
fn p137_lock_is_prolonged_by_what_the_server_knows_of_the_net_and_not_by_what_a_peer_says() {
    let mut bench = Bench::new(keeper());
    bench.party_of(bench.server, |p, _| {
        let at_min = core::time::Duration::from_secs(40);
        p.ptlrpc.set_tunables(Tunables { at_min, ..p.ptlrpc.tunables().clone() });
    });
    let (handle, xid) = connected(&mut bench);
    for (n, service_time) in [(1, 0), (2, u32::MAX)] {
        let body = Body { service_time, ..Raw::body(handle) };
        Raw::send(&mut bench, xid + n * 128, &body);
        let served = bench.kept().last().unwrap().id;
        let time = bench.rpc(bench.server, |rpc| rpc.prolongation(served));
        // 55 s and 40 s, twice, 5 s to connect and 40 s, and a sixteenth.
        assert_eq!(time.as_secs(), (95 + 95 + 5 + 40) * 17 / 16);
    }
}

#[test]
fn ten_thousand_connects_of_one_node_are_refused_beyond_its_share_and_evicted() {
    let mut bench = Bench::new(append_log());
    bench.party_of(bench.server, |p, _| {
        let tunables = Tunables { exports_per_node: 100, ..p.ptlrpc.tunables().clone() };
        p.ptlrpc.set_tunables(tunables);
    });
    let call = bench.call(Bench::say(APPEND, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    for n in 0..10_000 {
        connect(&mut bench, &format!("client-{n}-x"));
    }
    let exports = |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.export_views().len());
    assert_eq!((exports(&mut bench), stats(&mut bench).connects_refused), (100, 9901));
    let call = bench.call(Bench::say(APPEND, "two"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 2);
    bench.secs(151);
    assert_eq!(exports(&mut bench), 1, "they were silent");
    connect(&mut bench, "client-late");
    assert_eq!(exports(&mut bench), 2, "there is room again");
}

#[test]
fn a_node_that_takes_no_replies_is_not_served_until_it_does() {
    let (mut bench, handle) = answering();
    let body = Body { opcode: Opcode::OBD_PING, version: 0x1_0003, ..Raw::body(handle) };
    let ping = MsgBuilder::new(Header::default(), &body).build().unwrap();
    // They arrive before any reply has left.
    throw_many(&mut bench, &ping, 1 << 61, REPLIES_PER_PEER_MAX as usize + 100);
    let dropped = stats(&mut bench).not_taken;
    assert!(dropped > 0 && dropped <= 100, "{dropped}");
    let call = bench.call(Bench::say(APPEND, "two"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 2);
}
