//! Messages that get lost on purpose, on either side.

use lnet_types::{Errno, Memory};

use super::bench::{APPEND, Bench, ECHO, append_log, keeper};
use crate::{Answer, Bulk, Call, Direction, LOSE_MAX, Lose, Losing, Part};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Client,
    Server,
}

fn lose(bench: &mut Bench, side: Side, lose: Lose) -> Result<crate::LoseId, Errno> {
    let party = if side == Side::Client { bench.client } else { bench.server };
    bench.rpc(party, |rpc| rpc.lose(lose))
}

fn lost(bench: &mut Bench, side: Side) -> Vec<u32> {
    let party = if side == Side::Client { bench.client } else { bench.server };
    bench.party_of(party, |p, _| p.ptlrpc.losing().iter().map(|l: &Losing| l.lost).collect())
}

#[test]
fn a_request_or_reply_that_a_rule_loses_costs_a_deadline_and_is_executed_once() {
    for side in [Side::Client, Side::Server] {
        for part in [Part::Request, Part::Reply] {
            let mut bench = Bench::new(append_log());
            let call = bench.call(Bench::say(ECHO, "connect"));
            assert!(bench.end_of(call).unwrap().is_ok());
            lose(&mut bench, side, Lose { opcode: Some(APPEND), part, count: 1 }).unwrap();
            // Other operations are not concerned.
            let call = bench.call(Bench::say(ECHO, "arrives"));
            assert!(bench.end_of(call).unwrap().is_ok());
            let call = bench.call(Bench::say(APPEND, "lost once"));
            bench.secs(15);
            assert_eq!((bench.end_of(call), lost(&mut bench, side)), (None, vec![1]));
            bench.secs(2);
            let reply = bench.end_of(call).unwrap().unwrap();
            assert_eq!(reply.transno, 1, "{side:?} {part:?}");
            // The rule has done what it was for.
            let call = bench.call(Bench::say(APPEND, "arrives"));
            assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 2);
            assert_eq!(lost(&mut bench, side), [1]);
            assert_eq!(bench.client_descriptors(), 0);
        }
    }
}

#[test]
fn early_replies_that_a_rule_loses_make_the_client_come_again() {
    for side in [Side::Client, Side::Server] {
        let mut bench = Bench::new(keeper());
        lose(&mut bench, side, Lose { opcode: None, part: Part::Early, count: 1 }).unwrap();
        let call = bench.call(Bench::say(APPEND, "slow"));
        bench.secs(20);
        let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
        assert_eq!((stats.folded, bench.kept().len()), (1, 1), "{side:?}");
        assert_eq!(lost(&mut bench, side), [1]);
        let served = bench.kept()[0].id;
        bench.rpc(bench.server, |rpc| rpc.reply(served, Answer::default()));
        bench.settle();
        assert!(bench.end_of(call).unwrap().is_ok());
    }
}

#[test]
fn bulk_data_that_a_rule_loses_fail_the_request_and_come_again_whole() {
    for side in [Side::Client, Side::Server] {
        for direction in [Direction::Read, Direction::Write] {
            let mut bench = Bench::new(keeper());
            let rule = Lose { opcode: Some(APPEND), part: Part::Bulk, count: 1 };
            lose(&mut bench, side, rule).unwrap();
            let at_client = bench.memory(3 << 20, |i| (i % 251) as u8);
            let at_server = bench.memory(3 << 20, |i| (i % 13) as u8);
            let bulk = Some(Bulk { direction, memory: at_client.clone() });
            let call = bench.call(Call { bulk, ..Bench::say(APPEND, "bulk") });
            let first = bench.kept()[0].id;
            bench.rpc(bench.server, |rpc| rpc.bulk(first, direction, &at_server)).unwrap();
            bench.secs(200);
            let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
            assert_eq!((stats.bulk_failed, lost(&mut bench, side)), (1, vec![1]), "{side:?}");
            let again = bench.kept()[1].id;
            bench.rpc(bench.server, |rpc| rpc.bulk(again, direction, &at_server)).unwrap();
            bench.settle();
            bench.rpc(bench.server, |rpc| rpc.reply(again, Answer::default()));
            bench.settle();
            assert!(bench.end_of(call).unwrap().is_ok(), "{side:?} {direction:?}");
            assert!(bench.heap.bytes(at_client[0]) == bench.heap.bytes(at_server[0]));
        }
    }
}

#[test]
fn rules_that_lose_messages_are_bounded_in_number_and_can_be_ended() {
    let mut bench = Bench::new(append_log());
    let rule = Lose { opcode: None, part: Part::Request, count: 1000 };
    let none = lose(&mut bench, Side::Client, Lose { count: 0, ..rule });
    assert_eq!(none, Err(Errno::EINVAL));
    let ids: Vec<_> =
        (0..LOSE_MAX).map(|_| lose(&mut bench, Side::Client, rule).unwrap()).collect();
    assert_eq!(lose(&mut bench, Side::Client, rule), Err(Errno::ENOSPC));
    let call = bench.call(Bench::say(APPEND, "lost"));
    bench.secs(10);
    assert_eq!(bench.end_of(call), None);
    for id in ids {
        assert!(bench.rpc(bench.client, |rpc| rpc.mend(id)));
        assert!(!bench.rpc(bench.client, |rpc| rpc.mend(id)));
    }
    bench.secs(60);
    assert!(bench.end_of(call).unwrap().is_ok());
}
