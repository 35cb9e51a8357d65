//! Difficult replies: when what a request has locked may go (P-144).

use lustre_wire::ImportKind;

use super::bench::{APPEND, Bench, keeper};
use crate::{Answer, Event, Hold, Release};

/// A bench whose server answers one call with such a hold and transaction.
fn answered(hold: Hold, transno: u64, lost: bool) -> Bench {
    let mut bench = Bench::new(keeper());
    bench.call(Bench::say(APPEND, "one"));
    let served = bench.kept()[0].id;
    let reply = ImportKind::Osc.portals().1.0;
    if lost {
        bench.lose(move |portal, _| portal == reply);
    }
    let answer = Answer { transno, hold, ..Answer::default() };
    bench.rpc(bench.server, |rpc| rpc.reply(served, answer));
    bench.settle();
    bench
}

/// What the server's program has heard of holds since the last time.
fn released(bench: &mut Bench) -> Vec<Release> {
    let heard = bench.heard();
    let why = heard.iter().filter_map(|event| match event {
        Event::Released { why, .. } => Some(*why),
        _ => None,
    });
    why.collect()
}

fn commit(bench: &mut Bench, transno: u64) {
    let target = bench.target;
    bench.rpc(bench.server, |rpc| rpc.committed(target, transno));
}

#[test]
fn p144_each_way_in_which_a_hold_ends() {
    use Hold as H;
    use Release as R;
    for (row, hold, transno, lost, at_once, after_commit) in [
        ("plain", H::No, 5, false, None, None),
        ("the ACK", H::UntilAck, 5, false, Some(R::Acknowledged), None),
        ("the ACK, without a transaction", H::UntilAck, 0, false, Some(R::Acknowledged), None),
        ("the reply is lost", H::UntilAck, 5, true, None, Some(R::Committed)),
        ("the commit alone", H::UntilCommit, 5, false, None, Some(R::Committed)),
        ("nothing to commit", H::UntilCommit, 0, false, Some(R::Committed), None),
        ("another transaction", H::UntilCommit, 6, false, None, None),
    ] {
        let mut bench = answered(hold, transno, lost);
        assert_eq!(released(&mut bench), Vec::from_iter(at_once), "{row}");
        commit(&mut bench, 5);
        commit(&mut bench, 5);
        assert_eq!(released(&mut bench), Vec::from_iter(after_commit), "{row}");
    }
}

#[test]
fn p144_a_hold_ends_with_its_client() {
    let mut bench = answered(Hold::UntilCommit, 5, false);
    let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].id);
    bench.rpc(bench.server, |rpc| rpc.evict(export));
    assert_eq!(released(&mut bench), [Release::ClientGone]);
    commit(&mut bench, 5);
    assert_eq!(released(&mut bench), []);
    // One that is answered after its client has gone holds nothing.
    let mut bench = Bench::new(keeper());
    bench.call(Bench::say(APPEND, "one"));
    let served = bench.kept()[0].clone();
    bench.rpc(bench.server, |rpc| {
        rpc.evict(served.export);
        rpc.reply(served.id, Answer { transno: 5, hold: Hold::UntilAck, ..Answer::default() });
    });
    assert_eq!(released(&mut bench), [Release::ClientGone]);
}

#[test]
fn p144_a_reply_that_is_not_acknowledged_in_lnets_time_holds_nothing() {
    let mut bench = answered(Hold::UntilAck, 5, true);
    bench.secs(10);
    assert_eq!(released(&mut bench), []);
    bench.loses = None;
    bench.secs(200);
    assert_eq!(released(&mut bench), [Release::NotDelivered]);
}
