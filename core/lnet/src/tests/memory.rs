//! The memory API end to end: events, thresholds, lazy portals, unlinking.

use lnet_types::{Errno, ProcessId};

use super::world::{BITS, Fate, World, nid};
use crate::{
    AttachError, Event, EventKind, MatchEntry, MdOptions, MdSpec, Position, Profile, Put, Unlink,
};

const A: &str = "10.77.0.2@tcp";
const B: &str = "10.77.0.3@tcp";

fn pair() -> World {
    let mut w = World::new();
    w.host(Profile::Kernel, &[A]);
    w.host(Profile::Kernel, &[B]);
    w.discovered(0, B);
    w
}

/// Sends `len` bytes from A to `portal` of B.
fn put(w: &mut World, portal: u32, bits: u64, len: usize, offset: u32, ack: bool) {
    let h = &mut w.hosts[0];
    let buf = h.mem.add((0..len).map(|i| i as u8).collect());
    let mut md = MdSpec::new(buf, 1);
    md.threshold = Some(if ack { 2 } else { 1 });
    md.unlink = Unlink::Auto;
    let md = h.node.bind(md).unwrap();
    let put = Put {
        md,
        ack,
        src: None,
        target: ProcessId::lustre(nid(B)),
        portal,
        match_bits: bits,
        offset,
        hdr_data: 7,
        timeout: None,
    };
    h.node.put(w.now, put).unwrap();
    w.run(core::time::Duration::from_millis(20));
}

/// Posts a buffer of `len` bytes at B.
fn post(w: &mut World, portal: u32, len: usize, change: impl FnOnce(&mut MdSpec, &mut MatchEntry)) {
    let h = &mut w.hosts[1];
    let mut md = MdSpec::new(h.mem.add(vec![0; len]), 2);
    md.options = MdOptions::OP_PUT;
    let mut me = MatchEntry::bits(BITS);
    change(&mut md, &mut me);
    h.node.attach(w.now, portal, me, md).unwrap();
    w.run(core::time::Duration::from_millis(20));
}

fn at_b(w: &World) -> Vec<&Event> {
    w.hosts[1].events.iter().filter(|e| e.user == 2).collect()
}

#[test]
fn a_put_with_ack_gives_send_and_ack_here_and_put_there() {
    let mut w = pair();
    post(&mut w, 9, 1000, |_, _| {});
    put(&mut w, 9, BITS, 100, 0, true);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
    let e = at_b(&w)[0];
    assert_eq!((e.kind, e.rlength, e.mlength, e.offset), (EventKind::Put, 100, 100, 0));
    assert_eq!((e.hdr_data, e.match_bits, e.portal), (7, BITS, 9));
    assert_eq!((e.initiator.nid, e.source.nid, e.sender), (nid(A), nid(A), nid(A)));
    let bytes = w.hosts[1].mem.0.last().unwrap();
    assert!(bytes[..100].iter().enumerate().all(|(i, b)| *b == i as u8));
    assert_eq!(bytes[100], 0);
}

#[test]
fn a_get_gives_send_and_reply_here_and_get_there() {
    let mut w = pair();
    w.hosts[1].mem.0[0][..4].copy_from_slice(b"data");
    w.get(0, B, 1);
    w.secs(1);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false), (EventKind::Reply, true, true)]);
    assert_eq!(&w.hosts[0].mem.0.last().unwrap()[..4], b"data");
    let e = w.hosts[1].events.iter().find(|e| e.user == 99).unwrap();
    assert_eq!((e.kind, e.rlength, e.mlength), (EventKind::Get, 0, 100));
}

#[test]
fn a_put_that_nothing_matches_is_dropped_and_counted() {
    let mut w = pair();
    put(&mut w, 9, 0x77, 10, 0, true);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false)], "no ACK");
    let s = w.hosts[1].node.stats();
    assert_eq!((s.drop_count, s.drop_length), (1, 10));
}

#[test]
fn x17_a_lazy_portal_keeps_puts_until_a_buffer_comes() {
    let mut w = pair();
    w.hosts[1].node.set_lazy(w.now, 9, true).unwrap();
    put(&mut w, 9, BITS, 100, 0, true);
    assert!(at_b(&w).is_empty());
    post(&mut w, 9, 1000, |_, _| {});
    assert_eq!(at_b(&w).len(), 1);
    assert_eq!(w.events(0, 1).len(), 2);
    // Clearing lazy drops what waits.
    put(&mut w, 9, 0x99, 100, 0, true);
    w.hosts[1].node.set_lazy(w.now, 9, false).unwrap();
    w.drain();
    assert_eq!(w.hosts[1].node.stats().drop_count, 1);
    assert_eq!(w.hosts[1].node.msgs.len(), 0);
}

#[test]
fn what_waits_on_a_lazy_portal_ends_with_its_interface_and_with_the_node() {
    for shutdown in [false, true] {
        let mut w = pair();
        w.hosts[1].node.set_lazy(w.now, 9, true).unwrap();
        put(&mut w, 9, BITS, 100, 0, true);
        assert_eq!(w.hosts[1].node.stats().drop_count, 0);
        if shutdown {
            w.hosts[1].node.shutdown(w.now);
        } else {
            for ni in w.hosts[1].nids.keys().copied().collect::<Vec<_>>() {
                w.hosts[1].node.del_ni(w.now, ni).unwrap();
            }
        }
        w.hosts[1].node.check().unwrap();
        w.drain();
        assert_eq!(w.hosts[1].node.stats().drop_count, 1);
        assert_eq!(w.hosts[1].node.msgs.len(), 0);
    }
}

#[test]
fn x18_an_entry_goes_when_its_threshold_is_reached() {
    let mut w = pair();
    post(&mut w, 9, 1000, |md, _| {
        md.threshold = Some(2);
        md.unlink = Unlink::Auto;
    });
    for _ in 0..3 {
        put(&mut w, 9, BITS, 100, 0, false);
    }
    let got: Vec<_> = at_b(&w).iter().map(|e| (e.offset, e.unlinked)).collect();
    assert_eq!(got, [(0, false), (100, true)]);
    assert_eq!(w.hosts[1].node.stats().drop_count, 1);
}

#[test]
fn x19_max_size_ends_a_buffer_when_the_next_message_might_not_fit() {
    let mut w = pair();
    post(&mut w, 9, 4096, |md, _| {
        md.options |= MdOptions::MAX_SIZE;
        md.max_size = 1024;
        md.unlink = Unlink::Auto;
    });
    for _ in 0..5 {
        put(&mut w, 9, BITS, 1000, 0, false);
    }
    let got: Vec<_> = at_b(&w).iter().map(|e| (e.offset, e.unlinked)).collect();
    assert_eq!(got, [(0, false), (1000, false), (2000, false), (3000, true)]);
    assert_eq!(w.hosts[1].node.stats().drop_count, 1);
}

#[test]
fn x20_payload_is_cut_with_truncate_alone_and_offsets_past_the_end_are_dropped() {
    let mut w = pair();
    post(&mut w, 9, 100, |md, _| md.options |= MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE);
    put(&mut w, 9, BITS, 50, 80, true);
    let e = at_b(&w)[0];
    assert_eq!((e.offset, e.rlength, e.mlength), (80, 50, 20));
    assert_eq!(w.hosts[0].events[1].mlength, 20, "the ACK tells");
    // An offset past the end: dropped, whatever the options say (wire.md 4.6).
    put(&mut w, 9, BITS, 50, 101, false);
    put(&mut w, 9, BITS, 50, u32::MAX, false);
    assert_eq!(at_b(&w).len(), 1);
    post(&mut w, 10, 100, |md, _| md.options |= MdOptions::MANAGE_REMOTE);
    put(&mut w, 10, BITS, 50, 80, false);
    assert_eq!(at_b(&w).len(), 1, "without TRUNCATE too long is dropped");
    assert_eq!(w.hosts[1].node.stats().drop_count, 3);
}

#[test]
fn ack_disable_is_obeyed() {
    let mut w = pair();
    post(&mut w, 9, 100, |md, _| md.options |= MdOptions::ACK_DISABLE);
    put(&mut w, 9, BITS, 50, 0, true);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false)]);
    assert_eq!(at_b(&w).len(), 1);
}

#[test]
fn a_silent_descriptor_makes_no_events() {
    let mut w = pair();
    post(&mut w, 9, 100, |md, _| md.events = false);
    put(&mut w, 9, BITS, 50, 0, true);
    assert_eq!(w.events(0, 1).len(), 2);
    assert!(at_b(&w).is_empty());
}

#[test]
fn unlinking_an_idle_buffer_reports_at_once_and_a_second_time_fails() {
    let mut w = pair();
    let h = &mut w.hosts[1];
    let mut md = MdSpec::new(h.mem.add(vec![0; 10]), 2);
    md.options = MdOptions::OP_PUT;
    let md = h.node.attach(w.now, 9, MatchEntry::bits(1), md).unwrap();
    h.node.unlink(w.now, md).unwrap();
    assert!(h.node.unlink(w.now, md).is_err());
    w.drain();
    let e = at_b(&w);
    assert_eq!((e.len(), e[0].kind, e[0].unlinked), (1, EventKind::Unlink, true));
}

#[test]
fn entries_are_matched_in_their_order_and_ignore_bits_widen() {
    let mut w = pair();
    post(&mut w, 9, 100, |_, me| me.match_bits = 0xf0);
    post(&mut w, 9, 200, |md, me| {
        md.user = 3;
        me.match_bits = 0xf0;
        me.position = Position::Before;
    });
    put(&mut w, 9, 0xf0, 1, 0, false);
    assert!(at_b(&w).is_empty(), "the one put before wins");
    post(&mut w, 9, 300, |md, me| {
        md.user = 4;
        me.match_bits = 0;
        me.ignore_bits = u64::MAX;
    });
    put(&mut w, 9, 0x1234, 1, 0, false);
    assert_eq!(w.hosts[1].events.last().unwrap().user, 4);
}

#[test]
fn a_portal_keeps_to_the_kind_of_its_first_entry() {
    let mut w = pair();
    post(&mut w, 9, 10, |_, _| {});
    let h = &mut w.hosts[1];
    let mut md = MdSpec::new(h.mem.add(vec![0; 10]), 2);
    md.options = MdOptions::OP_PUT;
    let mut me = MatchEntry::bits(1);
    me.from = ProcessId::lustre(nid(A));
    assert_eq!(
        h.node.attach(w.now, 9, me, md.clone()).unwrap_err(),
        AttachError::OtherMatchType(9)
    );
    h.node.attach(w.now, 11, me, md.clone()).unwrap();
    for (portal, want) in [(64, AttachError::BadPortal(64)), (0, AttachError::ReservedPortal)] {
        assert_eq!(h.node.attach(w.now, portal, me, md.clone()).unwrap_err(), want);
    }
    md.options = MdOptions::empty();
    assert_eq!(h.node.attach(w.now, 11, me, md).unwrap_err(), AttachError::NoOperation);
}

#[test]
fn a_unique_entry_matches_only_its_sender_under_any_of_its_nids() {
    let mut w = World::new();
    w.host(Profile::Kernel, &[A, "10.77.1.2@tcp"]);
    w.host(Profile::Kernel, &[B]);
    w.discovered(1, A);
    post(&mut w, 9, 1000, |_, me| me.from = ProcessId::lustre(nid(A)));
    put(&mut w, 9, BITS, 10, 0, true);
    put(&mut w, 9, BITS, 10, 0, true);
    let sources: Vec<_> = at_b(&w).iter().map(|e| e.source.nid).collect();
    assert_eq!(sources.len(), 2);
    assert_ne!(sources[0], sources[1], "both interfaces, one identity");
    assert!(at_b(&w).iter().all(|e| e.initiator.nid == nid(A)));
}

#[test]
fn loopback_delivers_to_oneself_without_credits() {
    let mut w = pair();
    w.put(0, "0@lo", 5, true);
    w.secs(1);
    let mut kinds: Vec<_> = w.events(0, 5).iter().map(|e| e.0).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [EventKind::Send, EventKind::Ack]);
    assert_eq!(w.events(0, 99).iter().filter(|e| e.0 == EventKind::Put).count(), 1);
}

#[test]
fn shutdown_ends_every_operation_once() {
    let mut w = pair();
    w.decide = Box::new(|_| Fate::Hold);
    w.put(0, B, 1, true);
    w.get(0, B, 2);
    w.hosts[0].node.shutdown(w.now);
    w.drain();
    for user in [1, 2] {
        let e: Vec<_> = w.hosts[0].events.iter().filter(|e| e.user == user).collect();
        assert_eq!(e.iter().filter(|e| e.unlinked).count(), 1, "{e:?}");
        assert_eq!(e[0].status, Err(Errno::ESHUTDOWN));
    }
    assert_eq!(w.hosts[0].node.msgs.len() + w.hosts[0].node.portals.mds.len(), 0);
}
