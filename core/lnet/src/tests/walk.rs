//! The walk of a message, as the tables in ARCHITECTURE.md have it: what is looked up by NID on the way.

use core::time::Duration;

use lnet_types::{Pid, ProcessId, RxId};
use lnet_wire::{Handle, Hdr, Kind};

use super::world::{BITS, PT, World, nid};
use crate::{EventKind, Profile, Rx, Verdict};

const A: &str = "10.77.0.2@tcp";
const B: &str = "10.77.0.3@tcp";

/// Two nodes that have heard each other.
fn pair() -> World {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.host(Profile::Default, &[B]);
    w.discovered(0, B);
    w.discovered(1, A);
    w.run(Duration::from_millis(100));
    w
}

/// Lookups by NID of both nodes while `what` is done.
fn lookups(w: &mut World, what: impl FnOnce(&mut World)) -> [u64; 2] {
    let count = |w: &World| [0, 1].map(|host: usize| w.hosts[host].node.peers.lookups.0.get());
    let before = count(w);
    what(w);
    w.run(Duration::from_millis(100));
    let after = count(w);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn a_put_with_its_ack_costs_one_lookup_by_nid_where_its_caller_names_the_target() {
    let mut w = pair();
    assert_eq!(lookups(&mut w, |w| w.put(0, B, 7, true)), [1, 0]);
    assert!(w.events(0, 7).iter().any(|e| e.0 == EventKind::Ack));
}

#[test]
fn a_get_with_its_reply_costs_one_lookup_by_nid_where_its_caller_names_the_target() {
    let mut w = pair();
    assert_eq!(lookups(&mut w, |w| w.get(0, B, 7)), [1, 0]);
    assert!(w.events(0, 7).iter().any(|e| e.0 == EventKind::Reply));
}

#[test]
fn a_message_by_an_interface_name_that_is_out_of_date_belongs_to_the_new_record() {
    let mut w = pair();
    let (from, now) = (nid(A), w.now);
    let ni = *w.hosts[1].nids.iter().find(|(_, n)| **n == nid(B)).unwrap().0;
    let node = &mut w.hosts[1].node;
    let old = node.peer_ni(None, from).unwrap();
    node.peer_del(now, from, &[], true).unwrap();
    assert_eq!(node.peer_ni(Some(old), from), None);
    let kind =
        Kind::Put { ack: Handle::NONE, match_bits: BITS, hdr_data: 0, portal: PT, offset: 0 };
    let pid = Pid::LUSTRE;
    let hdr = Hdr { dst: nid(B), src: from, dst_pid: pid, src_pid: pid, payload_len: 0, kind };
    let rx = Rx { ni, from, from_pid: pid, peer_ni: Some(old), id: RxId(77) };
    let Verdict::Deliver { msg, .. } = node.rx_header(now, rx, &hdr) else {
        panic!("the message is refused");
    };
    node.rx_done(now, msg, Ok(&[]));
    let new = node.peer_ni(Some(old), from).unwrap();
    assert_ne!(new, old);
    let event = node.poll_event().unwrap();
    assert_eq!((event.kind, event.source), (EventKind::Put, ProcessId { nid: from, pid }));
}
