//! Peers that say too much: the work and the memory that they cost have limits of their own.

use lnet_wire::MsgType;

use super::*;
use crate::tests::world::{BITS, PT};
use crate::{DropReason, Transmit};

/// `n` NIDs without a node, the `round`-th such list.
fn many(round: usize, n: usize) -> Vec<String> {
    (0..n).map(|i| format!("10.{}.{}.{}@tcp", 100 + round % 100, i / 250, i % 250 + 1)).collect()
}

fn list(seq: u32, round: usize, n: usize) -> PingInfo {
    let more = many(round, n);
    let nids: Vec<&str> = [X[0]].into_iter().chain(more.iter().map(String::as_str)).collect();
    info(seq, &nids)
}

#[test]
fn a_peer_that_changes_its_list_without_end_has_few_of_them_merged_and_the_last_at_last() {
    const EACH: usize = 400;
    let mut w = world(Profile::Default);
    let (mut seen, mut last) = (0, String::new());
    for round in 0..300 {
        push(&mut w, X[0], &list(10 + round as u32, round, EACH));
        w.run(MS);
        let first = known(&w, 0, X[0])[1].clone();
        if first != last {
            (seen, last) = (seen + 1, first);
        }
    }
    // 16384 at once and 8192 per second, at 800 for the old list and the new.
    assert!((5..=25).contains(&seen), "{seen} of 300");
    assert!(refused(&w, 0, Refusal::TooFast) > 0);
    honest_traffic_flows(&mut w);
    w.secs(3);
    assert_eq!(known(&w, 0, X[0])[1], many(299, EACH)[0]);
    let (_, nis) = w.hosts[0].node.peer_count();
    assert!(nis <= EACH + 8, "{nis} interfaces of peers");
}

#[test]
fn a_peer_that_has_its_record_made_anew_still_owes_for_the_old_one() {
    const EACH: usize = 400;
    let mut w = world(Profile::Default);
    // It answers, and sends nothing of its own accord.
    let now = w.now;
    w.hosts[2].node.set_tunables(now, &[("discovery", 0)]).unwrap();
    w.secs(1);
    let (mut seen, mut had) = (0, 0);
    for round in 0..200u32 {
        let mut pushed = list(10 + round, 1, EACH);
        if round % 2 == 1 {
            pushed.features -= Features::DISCOVERY;
        }
        push(&mut w, X[0], &pushed);
        let has = w.hosts[0].node.peer_view_of(nid(X[0])).map_or(0, |v| v.nis.len());
        seen += u32::from(had < EACH && has > EACH);
        had = has;
        w.run(MS * 4);
    }
    assert!((5..=40).contains(&seen), "{seen} of 100 lists merged in 0.8 s");
    honest_traffic_flows(&mut w);
}

#[test]
fn a_list_longer_than_max_interfaces_is_cut() {
    let mut w = world(Profile::Default);
    let now = w.now;
    w.hosts[0].node.set_tunables(now, &[("max_interfaces", 16)]).unwrap();
    push(&mut w, X[0], &list(9, 1, 40));
    w.secs(1);
    // The first push was longer than the buffer for it: it has answered a ping since.
    serve(&mut w, 2, &list(10, 1, 40).emit());
    let now = w.now;
    w.hosts[0].node.discover(now, nid(X[0]), true);
    w.secs(1);
    // The old are counted until they have gone.
    assert!((15..=16).contains(&known(&w, 0, X[0]).len()));
    assert!(refused(&w, 0, Refusal::TooMany) > 0);
}

#[test]
fn nids_known_by_claims_alone_leave_room_for_nodes_that_send_messages() {
    let mut w = world(Profile::Default);
    let now = w.now;
    w.hosts[0].node.set_tunables(now, &[("peers_max", 64)]).unwrap();
    serve(&mut w, 2, &list(9, 1, 200).emit());
    w.hosts[0].node.discover(now, nid(X[0]), true);
    w.secs(1);
    assert_eq!(w.hosts[0].node.peer_count().1, 32, "half");
    assert!(refused(&w, 0, Refusal::NoRoom) > 0);
    for i in 0..16 {
        let n = format!("10.77.9.{}@tcp", i + 1);
        let host = w.host(Profile::Default, &[&n]);
        w.put(host, A[0], 1, true);
        w.secs(1);
        assert_eq!(w.events(host, 1).len(), 2, "{n}");
    }
}

#[test]
fn a_peer_with_thousands_of_sick_interfaces_gets_no_more_recovery_pings_than_64_a_second() {
    let mut w = world(Profile::Default);
    serve(&mut w, 2, &list(9, 1, 1000).emit());
    let now = w.now;
    w.hosts[0].node.discover(now, nid(X[0]), true);
    w.secs(1);
    assert_eq!(known(&w, 0, X[0]).len(), 1001);
    let mut sick = list(10, 1, 1000);
    for e in &mut sick.entries[1..] {
        e.status = NiStatus::DOWN;
    }
    push(&mut w, X[0], &sick);
    let now = w.now;
    w.hosts[0].node.set_peer_ni_health(now, Some(nid(B[1])), 500);
    w.hosts[0].sent.clear();
    w.secs(10);
    let sent = &w.hosts[0].sent;
    let pings = |to: &dyn Fn(Nid) -> bool| {
        sent.iter().filter(|(_, h)| h.kind.msg_type() == MsgType::Get && to(h.dst)).count()
    };
    let own = |n: Nid| B.iter().chain(&X[..1]).any(|x| nid(x) == n);
    let (theirs, honest) = (pings(&|n| !own(n)), pings(&|n| n == nid(B[1])));
    assert!((300..=11 * 64).contains(&theirs), "{theirs} in 10 s");
    assert!((4..=6).contains(&honest), "the other's come when they are due: {honest}");
    assert_eq!(w.peer_health(0, B[1]), 1000);
}

#[test]
fn few_queries_follow_a_peer_that_claims_the_nids_of_all_others() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &X);
    let others: Vec<String> = (1..=200).map(|i| format!("10.77.8.{i}@tcp")).collect();
    for n in &others {
        let host = w.host(Profile::Default, &[n]);
        w.put(host, A[0], 1, true);
    }
    w.secs(1);
    w.discovered(0, X[0]);
    let lie: Vec<&str> = [X[0]].into_iter().chain(others.iter().map(String::as_str)).collect();
    for seq in 10..30 {
        push(&mut w, X[0], &info(seq, &lie));
    }
    serve(&mut w, 1, &info(30, &lie).emit());
    w.run(MS * 500);
    let asked = w.hosts[0]
        .sent
        .iter()
        .filter(|(_, h)| h.kind.msg_type() == MsgType::Get && !X.iter().any(|x| nid(x) == h.dst));
    let asked = asked.count();
    assert!((1..=64 + 32).contains(&asked), "{asked}");
    for n in &others {
        assert_eq!(known(&w, 0, n), [n.as_str()]);
    }
}

/// The `n`-th NID that no node has.
fn invented(n: usize) -> Nid {
    nid(&format!("10.88.{}.{}@tcp", n / 250, n % 250 + 1))
}

/// A message to A that names `src` as its source.
fn to_a(src: Nid, kind: Kind) -> Hdr {
    let (dst, pid) = (nid(A[0]), Pid::LUSTRE);
    Hdr { dst, src, dst_pid: pid, src_pid: pid, payload_len: 0, kind }
}

/// A GET of the test buffer, which is answered.
const GET: Kind = Kind::Get {
    ret: Handle { interface: 1, object: 1 },
    match_bits: BITS,
    portal: PT,
    offset: 0,
    sink_len: 16,
    pad: [0; 4],
};

/// A PUT for which there is no buffer.
const PUT: Kind =
    Kind::Put { ack: Handle::NONE, match_bits: BITS + 1, hdr_data: 0, portal: PT, offset: 0 };

fn hold_replies(w: &mut World) {
    let is_reply = |t: &Transmit| t.hdr.kind.msg_type() == MsgType::Reply;
    w.decide = Box::new(move |t| if is_reply(t) { Fate::Hold } else { Fate::Pass });
}

fn release_all(w: &mut World) {
    w.decide = Box::new(|_| Fate::Pass);
    while !w.held.is_empty() {
        w.release();
        w.run(MS * 2);
    }
}

#[test]
fn senders_with_invented_nids_displace_each_other_and_no_discovered_peer() {
    let mut w = world(Profile::Default);
    let now = w.now;
    w.hosts[0].node.set_tunables(now, &[("peers_max", 64)]).unwrap();
    for n in 0..500 {
        w.inject(0, invented(n), &to_a(invented(n), PUT), &[]);
    }
    assert_eq!(w.hosts[0].node.counts.drops_for(DropReason::NoPeer), 0);
    assert_eq!(w.hosts[0].node.peers.nis.len(), 56, "seven eighths");
    assert!(w.hosts[0].node.peer_view_of(invented(0)).is_none(), "the oldest has gone");
    let c = w.host(Profile::Default, &C);
    w.put(c, A[0], 1, true);
    w.secs(1);
    assert_eq!(w.events(c, 1).len(), 2, "SEND and ACK");
    w.route(0, "tcp9", "10.77.0.200@tcp");
    for n in 500..1000 {
        w.inject(0, invented(n), &to_a(invented(n), PUT), &[]);
    }
    assert!(w.hosts[0].node.peer_view_of(nid("10.77.0.200@tcp")).is_some(), "a gateway stays");
    assert_eq!(
        (known(&w, 0, B[0]), known(&w, 0, X[0])),
        (B.map(String::from).into(), X.map(String::from).into())
    );
    honest_traffic_flows(&mut w);
}

#[test]
fn a_table_full_of_peers_in_use_has_a_reserve_for_routes_and_configured_peers() {
    let mut w = world(Profile::Default);
    let now = w.now;
    w.hosts[0].node.set_tunables(now, &[("peers_max", 64)]).unwrap();
    hold_replies(&mut w);
    for n in 0..100 {
        w.inject(0, invented(n), &to_a(invented(n), GET), &[]);
    }
    assert_eq!(w.hosts[0].node.peers.nis.len(), 56);
    assert!(w.hosts[0].node.counts.drops_for(DropReason::NoPeer) > 0, "all are in use");
    w.route(0, "tcp9", "10.77.0.200@tcp");
    let more = ["10.77.0.201@tcp", "10.77.1.201@tcp"].map(nid);
    w.hosts[0].node.peer_add(now, more[0], &more, true, false).unwrap();
    release_all(&mut w);
    honest_traffic_flows(&mut w);
}

#[test]
fn sources_that_requests_of_one_node_invent_take_half_of_the_table() {
    let mut w = world(Profile::Default);
    let now = w.now;
    w.hosts[0].node.set_tunables(now, &[("peers_max", 64)]).unwrap();
    hold_replies(&mut w);
    for n in 0..100 {
        w.inject(0, nid(X[0]), &to_a(invented(n), GET), &[]);
    }
    assert_eq!(w.hosts[0].node.peers.nis.len(), 32);
    w.decide = Box::new(|_| Fate::Pass);
    let c = w.host(Profile::Default, &C);
    w.put(c, A[0], 1, true);
    w.secs(1);
    assert_eq!(w.events(c, 1).len(), 2, "SEND and ACK");
    release_all(&mut w);
    honest_traffic_flows(&mut w);
}

#[test]
fn a_peer_that_reads_no_reply_takes_its_share_of_the_messages_and_no_more() {
    let mut w = world(Profile::Default);
    let now = w.now;
    w.hosts[0].node.set_tunables(now, &[("messages_max", 2048)]).unwrap();
    hold_replies(&mut w);
    for n in 0..3000 {
        // Whatever source it names.
        let src = if n % 2 == 0 { nid(X[0]) } else { invented(n % 50) };
        w.inject(0, nid(X[0]), &to_a(src, GET), &[]);
    }
    assert_eq!(w.hosts[0].node.msgs.in_hand(), 128, "a sixteenth");
    assert!(w.hosts[0].node.counts.drops_for(DropReason::NoResources) > 2000);
    honest_traffic_flows(&mut w);
    w.put(1, A[0], 1, true);
    w.run(MS * 10);
    assert_eq!(w.events(1, 1).len(), 2, "SEND and ACK");
    release_all(&mut w);
    assert!(w.inject(0, nid(X[0]), &to_a(nid(X[0]), GET), &[]), "when it reads again");
}
