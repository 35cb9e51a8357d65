//! Session names: floods of them, names of others, numbers of any kind.

use lnet_types::{Pid, Prng};
use lnet_wire::mark::{Mark, SessionName};
use lnet_wire::{Handle, Hdr, Kind};

use super::{A, B, MS, X, handle, honest_traffic_flows, world};
use crate::dedup::sessions::{ENTRIES_MAX, SESSION_ENTRIES};
use crate::tests::world::{BITS, Fate, PT, World, nid};
use crate::{DropReason, EventKind, Profile, Rx, Verdict};

/// A PUT without ACK from X to B that bears this mark.
fn put(mark: Mark) -> Hdr {
    let kind =
        Kind::Put { ack: Handle::NONE, match_bits: BITS, hdr_data: 1, portal: PT, offset: 0 };
    Hdr {
        dst: nid(B[0]),
        src: nid(X[0]),
        dst_pid: Pid::LUSTRE,
        src_pid: Pid::LUSTRE,
        payload_len: 0,
        kind: mark.on(kind, 0),
    }
}

/// The mark of the last message of A.
fn last_mark(w: &World) -> Mark {
    w.hosts[0].sent.iter().rev().find_map(|(_, hdr)| Mark::of(&hdr.kind)).unwrap()
}

/// How often B got what A has sent as `user`.
fn delivered(w: &World, user: u64) -> usize {
    let events = w.hosts[1].events.iter();
    events.filter(|e| e.kind == EventKind::Put && e.hdr_data == user && e.user == 99).count()
}

#[test]
fn a_flood_of_session_names_costs_only_the_neighbour_that_brings_them() {
    let mut w = world(Profile::Default);
    honest_traffic_flows(&mut w);
    let mark = last_mark(&w);
    let b = &mut w.hosts[1];
    let (&ni, _) = b.nids.iter().find(|(_, n)| **n == nid(B[0])).unwrap();
    let rx =
        Rx { ni, from: nid(X[0]), from_pid: Pid::LUSTRE, peer_ni: None, id: lnet_types::RxId(77) };
    for name in 0..(ENTRIES_MAX / SESSION_ENTRIES) as u64 {
        let mut hdr = put(Mark::new(SessionName::new(name * 0x1_0001), name, name % 2 == 0));
        if let Kind::Put { match_bits, .. } = &mut hdr.kind {
            *match_bits = 1;
        }
        let _ = b.node.rx_header(w.now, rx, &hdr);
    }
    b.node.sessions.check();
    assert!(w.inject(1, nid(X[0]), &put(Mark::new(SessionName::new(3), 1, false)), &[]));
    assert!(!w.inject(1, nid(X[0]), &put(Mark::new(SessionName::new(4), 1, true)), &[]));
    assert!(w.hosts[1].node.counts.drops_for(DropReason::AncientCopy) > 0);
    // A's session is known as before, and another one may begin with a further copy.
    let copy = Hdr { src: nid(A[0]), ..put(mark.copy(true)) };
    let before = w.hosts[1].node.counts.drops_for(DropReason::Duplicate);
    assert!(!w.inject(1, nid(A[0]), &copy, &[]));
    assert_eq!(w.hosts[1].node.counts.drops_for(DropReason::Duplicate), before + 1);
    let first = Hdr { src: nid(A[0]), ..put(Mark::new(SessionName::new(2), 1, true)) };
    assert!(w.inject(1, nid(A[0]), &first, &[]));
    w.hosts[0].events.clear();
    honest_traffic_flows(&mut w);
}

/// One host may connect under many NIDs.
#[test]
fn a_flood_of_session_names_from_100_nids_is_refused_from_these_alone() {
    let mut w = world(Profile::Default);
    let b = &mut w.hosts[1];
    let (&ni, _) = b.nids.iter().find(|(_, n)| **n == nid(B[0])).unwrap();
    for name in 0..(ENTRIES_MAX / SESSION_ENTRIES) as u64 {
        let from = nid(&format!("10.88.0.{}@tcp", name % 100 + 1));
        let rx = Rx { ni, from, from_pid: Pid::LUSTRE, peer_ni: None, id: lnet_types::RxId(77) };
        let mark = Mark::new(SessionName::new(name * 0x1_0001), name, name < 100);
        let mut hdr = Hdr { src: from, ..put(mark) };
        // One that arrives, and so leaves a further copy behind; of the others no more than the name.
        if name >= 100
            && let Kind::Put { match_bits, .. } = &mut hdr.kind
        {
            *match_bits = 1;
        }
        if let Verdict::Deliver { msg, .. } = b.node.rx_header(w.now, rx, &hdr) {
            b.node.rx_done(w.now, msg, Ok(&[]));
        }
    }
    b.node.sessions.check();
    w.drain();
    let a = nid(A[0]);
    for (name, further) in [(2, false), (4, true)] {
        let hdr = Hdr { src: a, ..put(Mark::new(SessionName::new(name), 1, further)) };
        assert!(w.inject(1, a, &hdr, &[]), "further copy: {further}");
    }
    w.hosts[0].events.clear();
    honest_traffic_flows(&mut w);
}

#[test]
fn a_mark_with_one_bit_flipped_in_its_name_leaves_the_session_alone() {
    let mut w = world(Profile::Default);
    honest_traffic_flows(&mut w);
    let mark = last_mark(&w);
    for bit in 0..64 {
        let Some(session) = SessionName::of(mark.session.word() ^ 1 << bit) else { continue };
        // The numbers that A is about to use.
        for n in 0..40 {
            for further in [true, false] {
                let n = u64::from(mark.number()) + n;
                w.inject(1, nid(X[0]), &put(Mark::new(session, n, further)), &[]);
            }
        }
    }
    w.hosts[1].node.sessions.check();
    w.hosts[0].events.clear();
    honest_traffic_flows(&mut w);
    for user in 1000..1010 {
        assert_eq!(delivered(&w, user), 2, "{user}, before and after");
    }
}

#[test]
fn an_answer_with_one_bit_of_its_handle_flipped_is_dropped() {
    for marked in [true, false] {
        let mut w = world(Profile::Default);
        if !marked {
            w.hosts[0].node.set_tunables(w.now, &[("suppress_duplicates", 0)]).unwrap();
        }
        w.decide = Box::new(|_| Fate::Hold);
        for user in 1..=3 {
            w.put(0, B[0], user, true);
            w.get(0, X[0], 10 + user);
        }
        let to_b = handle(&w.held[2].1.hdr);
        assert_eq!(Mark::of(&w.held[2].1.hdr.kind).is_some(), marked);
        for bit in 0..128u32 {
            let Handle { mut interface, mut object } = to_b;
            match bit {
                0..64 => interface ^= 1 << bit,
                _ => object ^= 1 << (bit - 64),
            }
            // An ACK returns the bit of a further copy, which is no fact about its request.
            if marked && bit == 64 + 31 {
                continue;
            }
            let dst = Handle { interface, object };
            let kind = Kind::Ack { dst, match_bits: BITS, mlength: 100, pad: [0; 12] };
            let (src, dst) = (nid(B[0]), nid(A[0]));
            let hdr = Hdr { dst, src, payload_len: 0, kind, ..w.held[2].1.hdr };
            assert!(!w.inject(0, nid(X[0]), &hdr, &[]), "bit {bit}, marked: {marked}");
        }
        w.decide = Box::new(|_| Fate::Pass);
        while !w.held.is_empty() {
            w.release();
        }
        w.secs(1);
        for user in 1..=3 {
            assert_eq!(w.events(0, user).iter().filter(|e| e.1).count(), 2, "SEND and ACK");
        }
    }
}

#[test]
fn numbers_that_jump_or_go_back_cost_their_own_session_alone() {
    let mut w = world(Profile::Default);
    let mut rng = Prng::new(5);
    for _ in 0..20_000 {
        let session = SessionName::new(rng.below(3));
        let n = [rng.below(5000), rng.next_u64(), u64::from(u32::MAX) >> rng.below(3)];
        let mark = Mark::new(session, n[rng.below(3) as usize], rng.below(2) == 0);
        w.inject(1, nid(X[0]), &put(mark), &[]);
    }
    w.hosts[1].node.sessions.check();
    w.run(MS);
    honest_traffic_flows(&mut w);
}
