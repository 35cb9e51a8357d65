//! Bulk data both ways.

use lnet_types::{Errno, IoVec, Memory, Span};
use lustre_wire::Portal;

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
    let far = IoVec::from([Span { len: 5 << 20, ..memory[0] }]);
    let first = bench.kept()[0].id;
    bench.rpc(bench.server, |rpc| rpc.bulk(first, Direction::Read, &far)).unwrap();
    bench.settle();
    let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
    assert_eq!(stats.bulk_failed, 1);
    let again = bench.rpc(bench.server, |rpc| rpc.bulk(first, Direction::Read, &memory));
    assert_eq!(again, Err(Errno::ENOENT), "that request is over");
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
