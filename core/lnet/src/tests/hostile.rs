//! Peers that lie, contradict others, are late, or say too much: what they say is contained, named
//! and counted, and no other node's traffic suffers. `X` is the one who misbehaves; it is a whole
//! node, so that it answers, and messages that no node would send are put on the wire in its name.
//!
//! `anything.rs` lets it say anything at all.

mod anything;
mod sessions;
mod volume;

use core::time::Duration;

use lnet_types::{Nid, Pid};
use lnet_wire::ping::{Features, MAGIC, NiStatus, PingEntry, PingInfo};
use lnet_wire::{ByteOrder, Handle, Hdr, Kind};

use super::world::{Fate, World, nid};
use crate::{EventKind, NetTunables, Notice, Profile, Refusal, TunableError, Tunables};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];
const X: [&str; 2] = ["10.77.0.66@tcp", "10.77.1.66@tcp"];
const C: [&str; 2] = ["10.77.0.4@tcp", "10.77.1.4@tcp"];

const MS: Duration = Duration::from_millis(1);

/// What every node of today says of itself.
fn usual() -> Features {
    Features::NI_STATUS | Features::RTE_DISABLED | Features::MULTI_RAIL | Features::DISCOVERY
}

fn info(seq: u32, nids: &[&str]) -> PingInfo {
    let entries = nids.iter().map(|n| PingEntry { nid: nid(n), status: NiStatus::UP }).collect();
    PingInfo { features: usual(), pid: Pid::LUSTRE, seq, entries }
}

/// A push to `host`, whose header names `src`, over a connection with `from`.
fn push_as(w: &mut World, host: usize, from: Nid, src: Nid, bytes: &[u8]) {
    let dst = *w.hosts[host].nids.values().min().unwrap();
    let hdr = Hdr {
        dst,
        src,
        dst_pid: Pid::LUSTRE,
        src_pid: Pid::LUSTRE,
        payload_len: bytes.len() as u32,
        kind: Kind::Put {
            ack: Handle::NONE,
            match_bits: lnet_wire::ping::MATCH_BITS,
            hdr_data: 0,
            portal: 0,
            offset: 0,
        },
    };
    w.inject(host, from, &hdr, bytes);
}

fn push(w: &mut World, from: &str, info: &PingInfo) {
    push_as(w, 0, nid(from), nid(from), &info.emit());
}

/// From now on `host` answers pings with these bytes.
fn serve(w: &mut World, host: usize, bytes: &[u8]) {
    let md = w.hosts[host].node.own.mds()[0].unwrap();
    let d = w.hosts[host].node.portals.mds.get_mut(md).unwrap();
    d.buf = crate::portal::md::MdBuf::Bytes(bytes.into());
    d.len = bytes.len() as u64;
}

/// The NIDs of the peer of `host` that has `n`, its identity first.
fn known(w: &World, host: usize, n: &str) -> Vec<String> {
    let v = w.hosts[host].node.peer_view_of(nid(n)).expect("peer is known");
    let mut nids: Vec<_> = v.nis.iter().map(|n| n.nid.to_string()).collect();
    nids.sort_by_key(|n| *n != v.primary.to_string());
    nids
}

fn refused(w: &World, host: usize, why: Refusal) -> u64 {
    w.hosts[host].node.refusals().find(|(w, _)| *w == why).map_or(0, |(_, n)| n)
}

fn notices(w: &mut World, host: usize) -> Vec<Notice> {
    core::iter::from_fn(|| w.hosts[host].node.poll_notice()).collect()
}

/// A knows B and X, both whole.
fn world(profile: Profile) -> World {
    let mut w = World::new();
    for nids in [A, B, X] {
        w.host(profile, &nids);
    }
    w.discovered(0, X[0]);
    w.discovered(0, B[0]);
    notices(&mut w, 0);
    w
}

/// Messages from A to B arrive, at B, and are answered.
fn honest_traffic_flows(w: &mut World) {
    w.hosts[0].sent.clear();
    for user in 1000..1010 {
        w.put(0, B[user as usize % 2], user, true);
        w.run(MS * 10);
        assert_eq!(w.events(0, user).iter().filter(|e| e.1).count(), 2, "SEND and ACK");
    }
    assert!(w.pairs(0).iter().all(|(_, to)| B.contains(&to.as_str())), "{:?}", w.pairs(0));
}

#[test]
fn a_nid_of_another_peer_stays_with_the_node_that_answers_there() {
    for lie in [&[X[0], X[1], B[1]][..], &[X[0], B[0], B[1]], &[B[0], X[0], X[1]], &[B[1], X[0]]] {
        let mut w = world(Profile::Default);
        push(&mut w, X[0], &info(9, lie));
        w.secs(1);
        assert_eq!(known(&w, 0, B[0]), B, "{lie:?}");
        assert_eq!(known(&w, 0, B[1]), B, "{lie:?}");
        assert_eq!(known(&w, 0, X[0])[0], X[0]);
        assert!(refused(&w, 0, Refusal::Claimed) > 0, "{lie:?}");
        let notices = notices(&mut w, 0).iter().map(ToString::to_string).collect::<Vec<_>>();
        let line = format!("peer {} lists a NID where another node answers: rejected", X[0]);
        assert!(notices.iter().any(|t| t.starts_with(&line)), "{notices:?}");
        honest_traffic_flows(&mut w);
    }
}

#[test]
fn a_nid_of_another_node_in_a_ping_reply_is_rejected() {
    for lie in [&[X[0], B[1]][..], &[B[0], B[1], X[0]]] {
        let mut w = world(Profile::Default);
        serve(&mut w, 2, &info(9, lie).emit());
        let now = w.now;
        w.hosts[0].node.discover(now, nid(X[0]), true);
        w.secs(1);
        assert_eq!(known(&w, 0, B[0]), B, "{lie:?}");
        assert!(refused(&w, 0, Refusal::Claimed) > 0);
        honest_traffic_flows(&mut w);
    }
}

#[test]
fn the_last_claim_of_a_nid_is_accepted_in_profile_kernel() {
    let mut w = world(Profile::Kernel);
    push(&mut w, X[0], &info(9, &[X[0], X[1], B[1]]));
    w.secs(1);
    assert_eq!(known(&w, 0, B[1])[0], X[0], "O-35.6");
}

#[test]
fn a_node_whose_interfaces_were_met_one_by_one_is_put_together() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    let now = w.now;
    w.hosts[0].node.set_tunables(now, &[("discovery", 0)]).unwrap();
    for n in B {
        w.put(0, n, 1, true);
        w.secs(1);
        assert_eq!(known(&w, 0, n), [n], "plain, each on its own");
    }
    let now = w.now;
    w.hosts[0].node.set_tunables(now, &[("discovery", 1)]).unwrap();
    w.hosts[0].node.discover(now, nid(B[1]), true);
    w.secs(1);
    assert_eq!(known(&w, 0, B[0]), B);
    assert_eq!(known(&w, 0, B[1]), B);
    assert_eq!(refused(&w, 0, Refusal::Claimed), 0);
}

#[test]
fn an_address_that_moves_to_another_node_follows_it() {
    let mut w = world(Profile::Default);
    // B is gone, and C comes up with one of its addresses beside its own.
    w.hosts[1].alive = false;
    w.hosts[1].nids.clear();
    let c = w.host(Profile::Default, &[C[0], B[1]]);
    w.put(c, A[0], 1, true);
    w.secs(1);
    assert_eq!(known(&w, 0, C[0]), [C[0], B[1]]);
    assert_eq!(known(&w, 0, B[0]), [B[0]]);
    assert_eq!(refused(&w, 0, Refusal::Claimed), 0);
}

#[test]
fn a_new_owner_of_a_released_nid_does_not_get_the_other_nids_of_the_node() {
    let mut w = world(Profile::Default);
    let id = *w.hosts[1].nids.iter().find(|(_, n)| **n == nid(B[1])).unwrap().0;
    let now = w.now;
    w.hosts[1].node.del_ni(now, id).unwrap();
    w.hosts[1].nids.remove(&id);
    w.secs(1);
    assert_eq!(known(&w, 0, B[0]), [B[0]]);
    // X is given the address, and says that it is all of B.
    w.add_ni(2, B[1], NetTunables::SOCK);
    serve(&mut w, 2, &info(9, &[B[0], B[1]]).emit());
    push(&mut w, B[1], &info(9, &[B[0], B[1]]));
    w.secs(20);
    assert_eq!(known(&w, 0, B[0]), [B[0]]);
    w.put(0, B[0], 1, true);
    w.run(MS * 10);
    assert_eq!(w.events(0, 1).iter().filter(|e| e.1).count(), 2, "SEND and ACK");
}

#[test]
fn our_own_nids_and_invalid_ones_are_rejected_from_every_peer() {
    let none = Nid::ANY.to_string();
    for (lie, why) in [
        (&[X[0], A[1]][..], Refusal::OurNid),
        (&[A[0], X[0]], Refusal::OurNid),
        (&[X[0], "0@lo"], Refusal::NoNid),
        (&["0@lo", X[0]], Refusal::NoNid),
        (&[&none, X[0]], Refusal::NoNid),
    ] {
        let mut w = world(Profile::Default);
        push(&mut w, X[0], &info(9, lie));
        w.secs(1);
        assert_eq!(known(&w, 0, X[0]), [X[0]], "{lie:?}: the rest is taken");
        assert_eq!(refused(&w, 0, why), 1, "{lie:?}");
        assert!(w.hosts[0].node.peer_view_of(nid(A[1])).is_none(), "{lie:?}");
        honest_traffic_flows(&mut w);
    }
}

#[test]
fn a_configured_or_locked_peer_loses_nothing_to_anothers_push() {
    for lock in [false, true] {
        let mut w = World::new();
        for nids in [A, B, X] {
            w.host(Profile::Default, &nids);
        }
        let now = w.now;
        w.hosts[0].node.peer_add(now, nid(B[0]), &[nid(B[1])], true, lock).unwrap();
        w.discovered(0, X[0]);
        for lie in [&[X[0], B[1]][..], &[X[0], B[0]], &[B[0], X[0]], &[B[1], X[0]]] {
            push(&mut w, X[0], &info(9, lie));
            w.secs(1);
            assert_eq!(known(&w, 0, B[1]), B, "{lie:?}");
            assert_eq!(known(&w, 0, X[0])[0], X[0], "{lie:?}");
        }
        assert!(refused(&w, 0, Refusal::Configured) > 0);
        honest_traffic_flows(&mut w);
    }
}

/// Ping data that are none, by what is wrong with them.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let good = info(9, &X).emit();
    let with = |at: usize, word: u32| {
        let mut b = good.clone();
        b[at..at + 4].copy_from_slice(&word.to_le_bytes());
        b
    };
    vec![
        ("empty", Vec::new()),
        ("a head alone", good[..16].to_vec()),
        ("magic", with(0, MAGIC + 1)),
        ("no status", with(4, usual().difference(Features::NI_STATUS).bits())),
        ("no entries", with(12, 0)),
        ("too many entries", with(12, u32::MAX)),
        ("first entry is not loopback", with(16, 7)),
        ("garbage", vec![0xFF; 300]),
    ]
}

#[test]
fn pushes_that_are_no_ping_data_are_counted_and_the_pusher_is_asked() {
    for (what, bytes) in malformed() {
        let mut w = world(Profile::Default);
        push_as(&mut w, 0, nid(X[0]), nid(X[0]), &bytes);
        w.secs(1);
        assert_eq!(refused(&w, 0, Refusal::Malformed), 1, "{what}");
        assert_eq!(known(&w, 0, X[0]), X, "{what}: as it answers");
        assert_eq!(known(&w, 0, B[0]), B, "{what}");
    }
}

#[test]
fn answers_that_are_no_ping_data_end_the_discovery_of_their_sender_alone() {
    for (what, bytes) in malformed() {
        let mut w = World::new();
        for nids in [A, B, X] {
            w.host(Profile::Default, &nids);
        }
        serve(&mut w, 2, &bytes);
        w.put(0, X[0], 1, true);
        w.put(0, B[0], 2, true);
        w.secs(1);
        assert_eq!(w.events(0, 1), [(EventKind::Send, false, false)], "{what}");
        assert_eq!(w.events(0, 2).len(), 2, "{what}");
        assert!((1..=8).contains(&refused(&w, 0, Refusal::Malformed)), "{what}");
    }
}

#[test]
fn a_count_beyond_the_data_brings_what_is_there_and_no_more_questions_than_a_few() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &X);
    let mut bytes = info(9, &X).emit();
    bytes[12..16].copy_from_slice(&4000u32.to_le_bytes());
    serve(&mut w, 1, &bytes);
    w.put(0, X[0], 1, true);
    w.secs(1);
    let pings = w.hosts[0].sent.iter().filter(|(_, h)| matches!(h.kind, Kind::Get { .. })).count();
    assert!(pings <= 8, "{pings}");
    assert_eq!(w.events(0, 1).len(), 1, "it has ended, one way");
}

#[test]
fn ping_data_of_the_other_byte_order_are_read_like_ours() {
    let mut w = world(Profile::Default);
    let more = info(9, &[X[0], X[1], "10.77.2.66@tcp"]);
    push_as(&mut w, 0, nid(X[0]), nid(X[0]), &more.emit_in(ByteOrder::Big));
    w.secs(1);
    assert_eq!(known(&w, 0, X[0]), [X[0], X[1], "10.77.2.66@tcp"]);
    assert_eq!(w.hosts[0].node.refusals().count(), 0);
}

#[test]
fn unknown_features_are_passed_over() {
    let mut w = world(Profile::Default);
    let mut odd = info(9, &X);
    odd.features |= Features::from_bits_retain(0x3FFF_FF00);
    push(&mut w, X[0], &odd);
    w.secs(1);
    assert_eq!(known(&w, 0, X[0]), X);
    assert_eq!(w.hosts[0].node.refusals().count(), 0);
}

#[test]
fn a_push_that_was_overtaken_does_not_undo_the_later_one() {
    let mut w = world(Profile::Default);
    let third = "10.77.2.3@tcp";
    w.add_ni(1, third, NetTunables::SOCK);
    w.secs(1);
    let now = known(&w, 0, B[0]);
    assert_eq!(now, [B[0], B[1], third]);
    let seq = w.hosts[1].node.ping_seq();
    push(&mut w, B[0], &info(seq - 1, &B));
    assert_eq!(known(&w, 0, B[0]), now, "at no time");
    w.secs(1);
    assert_eq!(known(&w, 0, B[0]), now);
    assert_eq!(refused(&w, 0, Refusal::Stale), 1);
}

#[test]
fn a_node_that_counts_from_the_beginning_again_is_believed_after_it_has_been_asked() {
    let mut w = world(Profile::Default);
    for _ in 0..5 {
        let id = w.add_ni(1, "10.77.2.3@tcp", NetTunables::SOCK);
        w.secs(1);
        let now = w.now;
        w.hosts[1].node.del_ni(now, id).unwrap();
        w.hosts[1].nids.remove(&id);
        w.secs(1);
    }
    w.hosts[1].alive = false;
    w.hosts[1].nids.clear();
    let again = w.host(Profile::Default, &[B[0], C[1]]);
    w.put(again, A[0], 1, true);
    w.secs(1);
    assert_eq!(known(&w, 0, B[0]), [B[0], C[1]]);
}

#[test]
fn a_push_in_anothers_name_is_not_believed() {
    let mut w = world(Profile::Default);
    push_as(&mut w, 0, nid(X[0]), nid(B[0]), &info(99, &B[..1]).emit());
    push_as(&mut w, 0, nid(X[0]), nid(B[0]), &info(99, &[B[0], B[1], X[0]]).emit());
    w.secs(1);
    assert_eq!(known(&w, 0, B[0]), B);
    assert_eq!(known(&w, 0, X[0]), X);
    assert_eq!(refused(&w, 0, Refusal::Impostor), 2);
    honest_traffic_flows(&mut w);
}

/// It may have been its own: by a router that is not known at this NID yet.
#[test]
fn a_push_by_a_stranger_in_a_peers_name_makes_the_peer_be_queried() {
    let mut w = world(Profile::Default);
    serve(&mut w, 1, &info(50, &[B[0], B[1], C[0]]).emit());
    push_as(&mut w, 0, nid(X[0]), nid(B[0]), &info(50, &[B[0], B[1], C[0]]).emit());
    w.secs(1);
    assert_eq!(refused(&w, 0, Refusal::Impostor), 1);
    assert_eq!(known(&w, 0, B[0]), [B[0], B[1], C[0]]);
}

/// The handle that `hdr`, a PUT or GET, asks to be answered by.
fn handle(hdr: &Hdr) -> Handle {
    match hdr.kind {
        Kind::Get { ret, .. } => ret,
        Kind::Put { ack, .. } => ack,
        Kind::Ack { dst, .. } | Kind::Reply { dst, .. } => dst,
    }
}

#[test]
fn an_answer_to_what_was_never_asked_of_its_sender_is_dropped() {
    for marked in [true, false] {
        let mut w = world(Profile::Default);
        if !marked {
            w.hosts[0].node.set_tunables(w.now, &[("suppress_duplicates", 0)]).unwrap();
        }
        // What X has seen: handles of requests to itself, the last a moment before.
        w.decide = Box::new(|_| Fate::Hold);
        w.get(0, X[0], 1);
        w.get(0, B[0], 2);
        let [to_x, to_b] = [0, 1].map(|i| handle(&w.held[i].1.hdr));
        assert_eq!(to_x.interface != to_b.interface, marked);
        let plain = Handle::of(0x1000, w.hosts[0].node.md_of(to_b).unwrap());
        let near = (0..200u64)
            .map(|n| Handle { object: to_x.object.wrapping_add(n).wrapping_sub(100), ..to_x });
        let keys =
            (0..200u64).map(|n| Handle { object: to_x.object.wrapping_add(n << 32), ..to_x });
        let small = (0..2000u64).map(|n| Handle { object: 1 << 32 | n, ..to_x });
        let of_its_own = Handle { object: to_b.object, ..to_x };
        let all = near.chain(keys).chain(small).chain([plain, of_its_own]);
        for dst in all.filter(|h| *h != to_x && *h != to_b) {
            for kind in [
                Kind::Reply { dst, pad: [0; 24] },
                Kind::Ack { dst, match_bits: 0, mlength: 0, pad: [0; 12] },
            ] {
                let hdr = Hdr {
                    dst: nid(A[0]),
                    src: nid(B[0]),
                    dst_pid: Pid::LUSTRE,
                    src_pid: Pid::LUSTRE,
                    payload_len: 0,
                    kind,
                };
                assert!(!w.inject(0, nid(X[0]), &hdr, &[]), "{dst:?}");
            }
        }
        w.decide = Box::new(|_| Fate::Pass);
        while !w.held.is_empty() {
            w.release();
        }
        w.secs(1);
        let ends = [(EventKind::Send, true, false), (EventKind::Reply, true, true)];
        assert_eq!(w.events(0, 2), ends);
    }
}

/// Every tunable, one below and one above its bounds.
#[test]
fn no_tunable_leaves_its_bounds_and_a_refused_one_changes_nothing() {
    for profile in Profile::ALL {
        for row in Tunables::TABLE {
            for bad in [row.min.checked_sub(1), row.max.checked_add(1), Some(i64::MIN)] {
                let bad = bad.unwrap();
                if row.name == "retry_count" && bad == lnet_types::RETRY_PATHS {
                    continue;
                }
                let mut w = World::new();
                w.host(profile, &A[..1]);
                let before = w.hosts[0].node.tunables().clone();
                let now = w.now;
                let outcome =
                    w.hosts[0].node.set_tunables(now, &[("numa_range", 3), (row.name, bad)]);
                let bounds = |e: &TunableError| {
                    let text = e.to_string();
                    text.contains(row.name) && text.contains("expected")
                };
                assert!(outcome.as_ref().is_err_and(bounds), "{} {bad}: {outcome:?}", row.name);
                assert_eq!(*w.hosts[0].node.tunables(), before, "{}", row.name);
            }
        }
    }
}

/// D-45: of an interface behind a router the report is all there will be.
#[test]
fn an_interface_behind_a_router_announced_down_and_up_again_is_healthy() {
    for (profile, whole) in
        [(Profile::Default, true), (Profile::Documents, true), (Profile::Kernel, false)]
    {
        let mut w = World::new();
        w.host(profile, &["10.70.0.2@tcp"]);
        w.router(Profile::Default, &["10.70.0.9@tcp", "10.71.0.9@tcp1"]);
        let b = ["10.71.0.3@tcp1", "10.71.1.3@tcp1"];
        w.host(Profile::Default, &b);
        w.route(0, "tcp1", "10.70.0.9@tcp");
        w.route(2, "tcp", "10.71.0.9@tcp1");
        w.secs(3);
        w.put(0, b[0], 1, true);
        w.secs(2);
        assert_eq!(w.events(0, 1).len(), 2, "{profile:?}");
        let sensitivity = w.hosts[0].node.tunables().health_sensitivity as u32;
        let mut pushed = info(50, &b);
        pushed.entries[1].status = NiStatus::DOWN;
        let router = nid("10.70.0.9@tcp");
        push_as(&mut w, 0, router, nid(b[0]), &pushed.emit());
        assert_eq!(w.peer_health(0, b[1]), 1000 - sensitivity, "{profile:?}: announced as down");
        // Announced once, and never heard itself.
        push_as(&mut w, 0, router, nid(b[0]), &info(51, &b).emit());
        let health = w.peer_health(0, b[1]);
        assert_eq!(health == 1000, whole, "{profile:?}: {health}");
    }
}

/// D-52: the first that is heard of an interface that was added may be its own push.
#[test]
fn a_push_from_an_unknown_interface_makes_its_node_be_queried() {
    let (b, new) = ("10.71.0.3@tcp1", "10.71.1.3@tcp1");
    for (profile, lists, asked) in [
        (Profile::Default, [b, new], true),
        (Profile::Default, [new, b], true),
        (Profile::Kernel, [b, new], false),
    ] {
        let mut w = World::new();
        w.host(profile, &["10.70.0.2@tcp"]);
        w.router(Profile::Default, &["10.70.0.9@tcp", "10.71.0.9@tcp1"]);
        w.host(Profile::Default, &[b]);
        w.route(0, "tcp1", "10.70.0.9@tcp");
        w.route(2, "tcp", "10.71.0.9@tcp1");
        w.secs(3);
        w.discovered(0, b);
        w.secs(1);
        w.hosts[0].sent.clear();
        let router = nid("10.70.0.9@tcp");
        push_as(&mut w, 0, router, nid(new), &info(60, &lists).emit());
        w.run(100 * MS);
        let to_b = w.hosts[0].sent.iter().filter(|(_, hdr)| hdr.dst == nid(b)).count();
        assert_eq!(to_b > 0, asked, "{profile:?}");
        assert_eq!(known(&w, 0, b), [b], "{profile:?}: what it said is not believed");
    }
}

#[test]
fn an_ack_for_a_ping_is_dropped_and_the_discovery_ends() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.decide = Box::new(|_| Fate::Hold);
    w.hosts[0].node.discover(w.now, nid(X[0]), false);
    w.drain();
    let ping = w.held[0].1.hdr;
    let ack = Hdr {
        dst: ping.src,
        src: ping.dst,
        dst_pid: Pid::LUSTRE,
        src_pid: Pid::LUSTRE,
        payload_len: 0,
        kind: Kind::Ack { dst: handle(&ping), match_bits: 0, mlength: 0, pad: [0; 12] },
    };
    assert!(!w.inject(0, nid(X[0]), &ack, &[]));
    w.release();
    w.secs(60);
    assert_eq!(w.hosts[0].reports.len(), 1, "no answer is an end too");
}
