//! Bulk data both ways.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use lnet::{Get, MdSpec, Put};
use lnet_types::{Errno, IoVec, Memory, Nid, ProcessId, Span};
use lnet_wire::Kind;
use lustre_wire::ost::{Niobuf, NiobufFlags};
use lustre_wire::{Buffers, Opcode, Portal};

use super::bench::{APPEND, Bench, keeper};
use crate::{Answer, Bulk, Call, Direction, Event};

const LEN: usize = (1 << 20) + 5000;

fn with_bulk(direction: Direction, memory: &IoVec) -> Call {
    Call { bulk: Some(Bulk { direction, memory: memory.clone() }), ..Bench::say(APPEND, "bulk") }
}

#[test]
fn data_of_more_than_one_piece_move_both_ways() {
    for direction in [Direction::Write, Direction::Read] {
        let mut bench = Bench::new(keeper());
        let at_client = bench.memory(LEN, |i| (i % 251) as u8);
        let at_server = bench.memory(LEN, |i| (i % 13) as u8);
        let call = bench.call(with_bulk(direction, &at_client));
        let served = bench.kept()[0].id;
        bench.rpc(bench.server, |rpc| rpc.bulk(served, direction, &at_server)).unwrap();
        bench.settle();
        let expected = if direction == Direction::Write { 251 } else { 13 };
        for memory in [&at_client, &at_server] {
            let bytes = bench.heap.bytes(memory[0]);
            assert!(
                bytes.iter().enumerate().all(|(i, b)| *b == (i % expected) as u8),
                "{direction:?}"
            );
        }
        assert_eq!(bench.end_of(call), None, "the reply is still to come");
        bench.rpc(bench.server, |rpc| rpc.reply(served, Answer { status: 7, ..Answer::default() }));
        bench.settle();
        assert_eq!(bench.end_of(call).unwrap().unwrap().status, 7);
        assert_eq!(bench.client_descriptors(), 0);
    }
}

#[test]
fn lost_bulk_data_bring_the_whole_request_again() {
    let mut bench = Bench::new(keeper());
    let at_client = bench.memory(LEN, |i| (i % 251) as u8);
    let at_server = bench.memory(LEN, |_| 0);
    let call = bench.call(with_bulk(Direction::Write, &at_client));
    let portal = Portal::OST_BULK.0;
    bench.lose(move |p, n| p == portal && n == 2);
    let first = bench.kept()[0].clone();
    bench.rpc(bench.server, |rpc| rpc.bulk(first.id, Direction::Write, &at_server)).unwrap();
    // P-53: no reply. P-86: the client comes again after its deadline.
    bench.secs(200);
    let kept = bench.kept();
    assert_eq!(kept.len(), 2);
    assert_eq!(kept[1].xid, first.xid);
    assert_ne!(kept[1].body.mbits, first.body.mbits, "what is left of the first does no harm");
    bench.rpc(bench.server, |rpc| rpc.bulk(kept[1].id, Direction::Write, &at_server)).unwrap();
    bench.settle();
    bench.rpc(bench.server, |rpc| rpc.reply(kept[1].id, Answer::default()));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
    assert!(bench.heap.bytes(at_server[0]).iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
}

#[test]
fn memory_that_is_not_the_nodes_fails_the_request_and_nothing_else() {
    let mut bench = Bench::new(keeper());
    bench.call(Bench::say(APPEND, "one"));
    let memory = bench.memory(100, |_| 0);
    let far = IoVec::from([Span { len: 1 << 20, ..memory[0] }]);
    let first = bench.kept()[0].id;
    bench.rpc(bench.server, |rpc| rpc.bulk(first, Direction::Read, &far)).unwrap();
    bench.settle();
    let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
    assert_eq!(stats.bulk_failed, 1);
    let again = bench.rpc(bench.server, |rpc| rpc.bulk(first, Direction::Read, &memory));
    assert_eq!(again, Err(Errno::ENOENT), "that request is over");
}

#[test]
fn sixty_four_mebibytes_move_in_sixty_four_pieces_both_ways() {
    const LEN: usize = 64 << 20;
    for direction in [Direction::Write, Direction::Read] {
        let mut bench = Bench::new(keeper());
        let (at_client, at_server) = (bench.zeroed(LEN), bench.zeroed(LEN));
        let source = if direction == Direction::Write { &at_client } else { &at_server };
        // A mark at each end of each piece.
        for piece in 0..64usize {
            let bytes = bench.heap.bytes_mut(source[0]);
            bytes[piece << 20] = piece as u8 + 1;
            bytes[((piece + 1) << 20) - 1] = 128 + piece as u8;
        }
        let call = bench.call(with_bulk(direction, &at_client));
        let served = bench.kept()[0].clone();
        assert_eq!(served.body.mbits, served.xid + 63);
        let (bulk, pieces) = (Portal::OST_BULK.0, Rc::new(Cell::new(0)));
        let count = Rc::clone(&pieces);
        bench.lose(move |portal, _| {
            count.set(count.get() + u32::from(portal == bulk));
            false
        });
        bench.rpc(bench.server, |rpc| rpc.bulk(served.id, direction, &at_server)).unwrap();
        bench.settle();
        bench.rpc(bench.server, |rpc| rpc.reply(served.id, Answer::default()));
        bench.settle();
        assert!(bench.end_of(call).unwrap().is_ok(), "{direction:?}");
        assert!(bench.heap.bytes(at_client[0]) == bench.heap.bytes(at_server[0]), "{direction:?}");
        assert_eq!((pieces.get(), bench.client_descriptors()), (64, 0));
    }
    // One byte more is no call.
    let mut bench = Bench::new(keeper());
    let memory = bench.zeroed(LEN + 1);
    let import = bench.import;
    let call = with_bulk(Direction::Read, &memory);
    let refused = bench.rpc(bench.client, |rpc| rpc.call(import, call));
    assert!(matches!(refused, Err(crate::CallError::BadRequest(_))), "{refused:?}");
}

#[test]
fn a_short_read_fills_what_there_is_and_ends_all_pieces() {
    // P-49, P-50: nothing, a part of a piece, a piece, one and a half of three.
    for len in [0usize, 5000, 1 << 20, 3 << 19] {
        let mut bench = Bench::new(keeper());
        let at_client = bench.zeroed(3 << 20);
        let at_server = bench.memory(len.max(1), |i| (i % 251) as u8);
        let mut part = IoVec::new();
        if len > 0 {
            part.push(Span { len: len as u32, ..at_server[0] });
        }
        let call = bench.call(with_bulk(Direction::Read, &at_client));
        let served = bench.kept()[0].id;
        bench.rpc(bench.server, |rpc| rpc.bulk(served, Direction::Read, &part)).unwrap();
        bench.settle();
        let status = len as i32;
        bench.rpc(bench.server, |rpc| rpc.reply(served, Answer { status, ..Answer::default() }));
        bench.settle();
        assert_eq!(bench.end_of(call).unwrap().unwrap().status, status);
        let bytes = bench.heap.bytes(at_client[0]);
        assert!(bytes[..len].iter().enumerate().all(|(i, b)| *b == (i % 251) as u8), "{len}");
        assert!(bytes[len..].iter().all(|b| *b == 0), "{len}");
        assert_eq!(bench.client_descriptors(), 0);
    }
}

#[test]
fn bulk_data_in_other_pieces_than_were_posted_are_refused_by_name() {
    let mut bench = Bench::new(keeper());
    let at_client = bench.zeroed(2 << 20);
    bench.call(with_bulk(Direction::Write, &at_client));
    let served = bench.kept()[0].id;
    for (len, direction, result) in [
        (1 << 20, Direction::Write, Err(Errno::EPROTO)),
        (3 << 20, Direction::Write, Err(Errno::EPROTO)),
        ((2 << 20) + 1, Direction::Read, Err(Errno::EPROTO)),
        (2 << 20, Direction::Write, Ok(())),
        (2 << 20, Direction::Write, Err(Errno::EBUSY)),
    ] {
        let memory = bench.zeroed(len);
        let got = bench.rpc(bench.server, |rpc| rpc.bulk(served, direction, &memory));
        assert_eq!(got, result, "{len} {direction:?}");
    }
}

#[test]
fn bulk_data_that_never_come_end_after_bulk_timeout_however_long_the_request_may_take() {
    // P-51, P-52, PA-106: 100 s, however long early replies keep the request alive.
    for (bulk_timeout, fails_at) in [(100, 100), (20, 20)] {
        let mut bench = Bench::new(keeper());
        bench.party_of(bench.server, |p, _| {
            let bulk_timeout = core::time::Duration::from_secs(bulk_timeout);
            let tunables = crate::Tunables { bulk_timeout, ..p.ptlrpc.tunables().clone() };
            p.ptlrpc.set_tunables(tunables);
        });
        let at_client = bench.zeroed(1 << 20);
        bench.call(with_bulk(Direction::Write, &at_client));
        let served = bench.kept()[0].id;
        bench.lose(|portal, _| portal == Portal::OST_BULK.0);
        let memory = bench.zeroed(1 << 20);
        bench.rpc(bench.server, |rpc| rpc.bulk(served, Direction::Write, &memory)).unwrap();
        let failed =
            |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.server_stats().bulk_failed);
        bench.secs(fails_at - 1);
        assert_eq!(failed(&mut bench), 0);
        bench.secs(1);
        assert_eq!(failed(&mut bench), 1);
        let heard = bench.heard();
        let done = heard.iter().find_map(|event| match event {
            Event::BulkDone { result, .. } => Some(*result),
            _ => None,
        });
        assert_eq!(done, Some(Err(Errno::ETIMEDOUT)));
    }
}

#[test]
fn bulk_data_for_a_client_that_has_connected_anew_are_not_begun() {
    // P-53.
    let mut bench = Bench::new(keeper());
    let at_client = bench.zeroed(1 << 20);
    bench.call(Call { resend: false, ..with_bulk(Direction::Write, &at_client) });
    let served = bench.kept()[0].id;
    bench.lose(|_, _| true);
    bench.secs(20);
    bench.loses = None;
    bench.secs(30);
    let exports = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    assert!(exports[0].conn_cnt > 1);
    bench.heard();
    let memory = bench.zeroed(1 << 20);
    bench.rpc(bench.server, |rpc| rpc.bulk(served, Direction::Write, &memory)).unwrap();
    let failed = Event::BulkDone { served, result: Err(Errno::ENOTCONN) };
    assert!(bench.heard().contains(&failed));
}

#[test]
fn a_request_with_bulk_data_that_is_put_off_is_posted_anew() {
    let mut bench = Bench::new(keeper());
    let at_client = bench.memory(LEN, |i| (i % 251) as u8);
    let at_server = bench.memory(LEN, |_| 0);
    let call = bench.call(with_bulk(Direction::Write, &at_client));
    let first = bench.kept()[0].clone();
    bench.rpc(bench.server, |rpc| rpc.refuse(first.id, Errno::EINPROGRESS));
    bench.settle();
    assert_eq!(bench.client_descriptors(), 0, "nothing is posted while it waits");
    bench.secs(1);
    let second = bench.kept()[1].clone();
    assert!(second.xid > first.xid && second.body.mbits == second.xid + 1);
    bench.rpc(bench.server, |rpc| rpc.bulk(second.id, Direction::Write, &at_server)).unwrap();
    bench.settle();
    bench.rpc(bench.server, |rpc| rpc.reply(second.id, Answer::default()));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
    assert!(bench.heap.bytes(at_server[0]) == bench.heap.bytes(at_client[0]), "the bytes moved");
}

#[test]
fn a_write_that_is_answered_from_its_record_ends_though_no_data_move_for_the_copy() {
    let mut bench = Bench::new(keeper());
    let at_client = bench.memory(LEN, |i| (i % 251) as u8);
    let at_server = bench.memory(LEN, |_| 0);
    let call = bench.call(with_bulk(Direction::Write, &at_client));
    let first = bench.kept()[0].clone();
    bench.rpc(bench.server, |rpc| rpc.bulk(first.id, Direction::Write, &at_server)).unwrap();
    bench.settle();
    let reply = lustre_wire::ImportKind::Osc.portals().1.0;
    bench.lose(move |portal, n| portal == reply && n == 1);
    bench.rpc(bench.server, |rpc| rpc.reply(first.id, Answer { transno: 1, ..Answer::default() }));
    bench.secs(30);
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 1);
    assert_eq!((bench.kept().len(), bench.client_descriptors()), (1, 0));
}

#[test]
fn the_memory_of_a_call_is_free_when_it_has_ended() {
    let mut bench = Bench::new(keeper());
    let memory = bench.memory(LEN, |_| 1);
    let call = bench.call(with_bulk(Direction::Read, &memory));
    bench.rpc(bench.client, |rpc| rpc.cancel(call));
    bench.settle();
    let ended = bench.party_of(bench.client, |p, _| {
        p.events.iter().filter(|e| matches!(e, Event::Ended { .. })).count()
    });
    assert_eq!((ended, bench.client_descriptors()), (1, 0));
}

const MIB: usize = 1 << 20;

/// A read or write of an object from `offset` on.
fn of_object(direction: Direction, offset: u64, memory: &IoVec) -> Call {
    let range = Niobuf { offset, len: memory[0].len, flags: NiobufFlags::empty() };
    let opcode = match direction {
        Direction::Read => Opcode::OST_READ,
        Direction::Write => Opcode::OST_WRITE,
    };
    let buffers = Buffers::new().bytes(b"body").bytes(b"object").layout(&range);
    let mut call = Call::new(opcode, buffers).answered_by(&[64]);
    call.portals = Some(lustre_wire::ImportKind::Osc.portals());
    call.bulk = Some(Bulk { direction, memory: memory.clone() });
    call
}

/// Where data lie, and how long the pieces of them are (P-46).
fn unaligned() -> [(u64, usize, Vec<usize>); 5] {
    [
        (5 << 20, 3 * MIB / 2, vec![MIB, MIB / 2]),
        ((5 << 20) + 100, 3 * MIB / 2, vec![MIB - 100, MIB / 2 + 100]),
        (4095, MIB, vec![MIB - 4095, 4095]),
        (4097, 2 * MIB, vec![MIB - 1, MIB, 1]),
        (8191, 1, vec![1]),
    ]
}

/// Bytes that the descriptors of a request take or give, one after the other from its first match bits on, as
/// a server finds out that moves 1 MiB with each.
fn attached(bench: &mut Bench, direction: Direction, first: u64) -> Vec<usize> {
    let moved = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&moved);
    bench.loses = Some(Box::new(move |t| {
        match t.hdr.kind {
            Kind::Reply { .. } => seen.borrow_mut().push(t.hdr.payload_len as usize),
            Kind::Ack { mlength, .. } => seen.borrow_mut().push(mlength as usize),
            Kind::Put { .. } | Kind::Get { .. } => {}
        }
        false
    }));
    let memory = bench.zeroed(MIB);
    for match_bits in first..first + 5 {
        bench.rpc(bench.server, |rpc| {
            let below = rpc.below();
            let md = MdSpec { events: false, ..MdSpec::new(memory.clone(), 0) };
            let md = below.bind(MdSpec { threshold: Some(2), ..md }).unwrap();
            let (target, portal) = (ProcessId::from(Nid::LOOPBACK), Portal::OST_BULK.0);
            let (src, offset, hdr_data, timeout) = (None, 0, 0, None);
            let moved = match direction {
                Direction::Read => {
                    let ack = true;
                    let put =
                        Put { md, ack, src, target, portal, match_bits, offset, hdr_data, timeout };
                    below.put(put)
                }
                Direction::Write => {
                    below.get(Get { md, src, target, portal, match_bits, offset, timeout })
                }
            };
            moved.unwrap();
        });
        bench.settle();
    }
    bench.loses = None;
    moved.take()
}

#[test]
fn p46_client_posts_the_pages_of_the_first_niobuf_in_pieces() {
    for direction in [Direction::Read, Direction::Write] {
        for (offset, len, lens) in unaligned() {
            let mut bench = Bench::new(keeper());
            let memory = bench.zeroed(len);
            bench.call(of_object(direction, offset, &memory));
            let served = bench.kept()[0].clone();
            // P-48.
            let last = served.xid + lens.len() as u64 - 1;
            assert_eq!(served.body.mbits, last, "{direction:?} {len} bytes at {offset}");
            let posted = attached(&mut bench, direction, served.xid);
            assert_eq!(posted, lens, "{direction:?} {len} bytes at {offset}");
        }
    }
}

#[test]
fn p46_server_moves_the_pages_of_the_first_niobuf_in_pieces() {
    for direction in [Direction::Read, Direction::Write] {
        for (offset, len, lens) in unaligned() {
            let mut bench = Bench::new(keeper());
            let at_client = bench.memory(len, |i| (i % 251) as u8);
            let at_server = bench.memory(len, |i| (i % 13) as u8);
            let call = bench.call(of_object(direction, offset, &at_client));
            let served = bench.kept()[0].clone();
            let moved = Rc::new(RefCell::new(Vec::new()));
            let seen = Rc::clone(&moved);
            bench.loses = Some(Box::new(move |t| {
                match t.hdr.kind {
                    Kind::Put { match_bits, portal, .. } if portal == Portal::OST_BULK.0 => {
                        seen.borrow_mut().push((match_bits, t.hdr.payload_len as usize));
                    }
                    Kind::Get { match_bits, sink_len, .. } => {
                        seen.borrow_mut().push((match_bits, sink_len as usize));
                    }
                    _ => {}
                }
                false
            }));
            bench.rpc(bench.server, |rpc| rpc.bulk(served.id, direction, &at_server)).unwrap();
            bench.settle();
            bench.rpc(bench.server, |rpc| rpc.reply(served.id, Answer::default()));
            bench.settle();
            assert!(bench.end_of(call).unwrap().is_ok());
            let expected: Vec<_> = (served.xid..).zip(lens).collect();
            assert_eq!(moved.take(), expected, "{direction:?} {len} bytes at {offset}");
            let same = bench.heap.bytes(at_client[0]) == bench.heap.bytes(at_server[0]);
            assert!(same, "{direction:?} {len} bytes at {offset}");
        }
    }
}

#[test]
fn p50_short_read_off_a_page_fills_what_there_is() {
    let mut bench = Bench::new(keeper());
    let at_client = bench.zeroed(3 * MIB);
    let call = bench.call(of_object(Direction::Read, 100, &at_client));
    let served = bench.kept()[0].clone();
    assert_eq!(served.body.mbits, served.xid + 3);
    let at_server = bench.memory(MIB, |i| (i % 251) as u8);
    bench.rpc(bench.server, |rpc| rpc.bulk(served.id, Direction::Read, &at_server)).unwrap();
    bench.settle();
    bench.rpc(bench.server, |rpc| rpc.reply(served.id, Answer::default()));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
    let bytes = bench.heap.bytes(at_client[0]);
    assert!(bytes[..MIB].iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
    assert!(bytes[MIB..].iter().all(|b| *b == 0));
}

#[test]
fn p46_data_that_would_need_a_65th_piece_are_no_call() {
    let mut bench = Bench::new(keeper());
    let import = bench.import;
    let all = bench.zeroed(64 * MIB);
    let fits = IoVec::from([Span { len: all[0].len - 100, ..all[0] }]);
    let begin = |bench: &mut Bench, memory| {
        let call = of_object(Direction::Write, 100, memory);
        bench.rpc(bench.client, |rpc| rpc.call(import, call))
    };
    let refused = begin(&mut bench, &all);
    assert!(matches!(refused, Err(crate::CallError::BadRequest(_))), "{refused:?}");
    begin(&mut bench, &fits).unwrap();
    bench.settle();
    let served = bench.kept()[0].clone();
    assert_eq!(served.body.mbits, served.xid + 63);
}
