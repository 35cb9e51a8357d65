//! Each message once: nodes that mark their messages (DEC-6), under loss, doubt and restarts.

use std::collections::BTreeMap;

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, NiId, Nid, Pid, Prng, RxId};
use lnet_wire::mark::Mark;
use lnet_wire::{Hdr, Kind};

use super::world::{Fate, PT, World, nid};
use crate::portal::RESERVED_PORTAL;
use crate::timers::TimerKind;
use crate::{
    Doubt, DropReason, EventKind, Link, MatchEntry, MdOptions, MdSpec, NetTunables, NodeConfig,
    Output, Profile, Rx, Tunables, Unlink, Verdict,
};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];
const MS: Duration = Duration::from_millis(1);

fn unknown() -> Fault {
    Fault::new(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT)
}

fn pair(a: Profile, b: Profile) -> World {
    let mut w = World::new();
    w.host(a, &A);
    w.host(b, &B);
    w.discovered(0, B[0]);
    w
}

fn is_test(t: &crate::Transmit) -> bool {
    matches!(t.hdr.kind, Kind::Put { portal: PT, .. } | Kind::Get { portal: PT, .. })
}

fn is_push(hdr: &Hdr) -> bool {
    matches!(hdr.kind, Kind::Put { portal: RESERVED_PORTAL, .. })
}

/// The first test message is reported as lost in the network and arrives `later` all the same.
fn doubt_first(w: &mut World, later: Duration) {
    let mut first = true;
    w.decide = Box::new(move |t| {
        if is_test(t) && core::mem::take(&mut first) {
            Fate::Doubt(unknown(), later)
        } else {
            Fate::Pass
        }
    });
}

fn delivered(w: &World, host: usize, user: u64) -> usize {
    let events = w.hosts[host].events.iter();
    events.filter(|e| e.kind == EventKind::Put && e.hdr_data == user && e.user == 99).count()
}

fn drops(w: &World, host: usize, reason: DropReason) -> u64 {
    w.hosts[host].node.counts.drops_for(reason)
}

#[test]
fn dec6_what_may_have_arrived_is_sent_again_and_delivered_once() {
    for later in [Duration::ZERO, MS * 500] {
        let mut w = pair(Profile::Default, Profile::Default);
        doubt_first(&mut w, later);
        w.put(0, B[0], 7, true);
        w.secs(4);
        assert_eq!(w.hosts[0].node.stats().resend_count, 1);
        assert_eq!(w.events(0, 7), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
        assert_eq!(delivered(&w, 1, 7), 1);
        assert_eq!(drops(&w, 1, DropReason::Duplicate), 1);
    }
}

#[test]
fn dec6_responses_too_are_sent_again_and_delivered_once() {
    let mut w = pair(Profile::Default, Profile::Default);
    let mut first = true;
    w.decide = Box::new(move |t| {
        if matches!(t.hdr.kind, Kind::Reply { .. }) && core::mem::take(&mut first) {
            Fate::Doubt(unknown(), MS * 2)
        } else {
            Fate::Pass
        }
    });
    w.get(0, B[0], 7);
    w.secs(1);
    assert_eq!(w.hosts[1].node.stats().resend_count, 1);
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false), (EventKind::Reply, true, true)]);
}

#[test]
fn dec6_towards_a_kernel_node_nothing_is_marked_and_nothing_repeated() {
    for (a, b) in [(Profile::Default, Profile::Kernel), (Profile::Kernel, Profile::Default)] {
        let mut w = pair(a, b);
        doubt_first(&mut w, MS);
        w.put(0, B[0], 7, true);
        w.get(0, B[0], 8);
        w.secs(1);
        assert_eq!(w.hosts[0].node.stats().resend_count, 0);
        assert_eq!(w.events(0, 7)[0], (EventKind::Send, false, false));
        for (_, hdr) in w.hosts.iter().flat_map(|h| &h.sent) {
            assert_eq!((Mark::of(&hdr.kind), hdr.dst_pid), (None, Pid::LUSTRE), "{hdr}");
            match hdr.kind {
                Kind::Ack { pad, .. } => assert_eq!(pad, [0; 12]),
                Kind::Reply { pad, .. } => assert_eq!(pad, [0; 24]),
                Kind::Put { .. } | Kind::Get { .. } => {}
            }
        }
    }
}

#[test]
fn dec6_both_sides_mark_after_one_of_them_has_discovered_the_other() {
    let mut w = pair(Profile::Default, Profile::Default);
    w.put(0, B[0], 1, true);
    w.put(1, A[1], 2, true);
    w.secs(1);
    for host in 0..2 {
        let sent = &w.hosts[host].sent;
        let marks: Vec<Mark> = sent.iter().filter_map(|(_, hdr)| Mark::of(&hdr.kind)).collect();
        let [one, other] = marks[..] else { panic!("a PUT and an ACK: {marks:?}") };
        assert_eq!((one.session, one.number() + 1), (other.session, other.number()));
        assert!(sent.iter().all(|(_, hdr)| hdr.dst_pid == Pid::LUSTRE));
    }
}

#[test]
fn switching_deduplication_off_ends_it_and_on_begins_it() {
    let mut w = pair(Profile::Default, Profile::Default);
    w.hosts[1].node.set_tunables(w.now, &[("suppress_duplicates", 0)]).unwrap();
    w.hosts[0].node.discover(w.now, nid(B[0]), true);
    w.secs(1);
    doubt_first(&mut w, MS);
    w.put(0, B[0], 7, false);
    w.secs(1);
    assert_eq!((w.hosts[0].node.stats().resend_count, delivered(&w, 1, 7)), (0, 1));
    w.hosts[1].node.set_tunables(w.now, &[("suppress_duplicates", 1)]).unwrap();
    w.hosts[0].node.discover(w.now, nid(B[0]), true);
    w.secs(1);
    doubt_first(&mut w, MS);
    w.put(0, B[0], 8, false);
    w.secs(1);
    assert_eq!((w.hosts[0].node.stats().resend_count, delivered(&w, 1, 8)), (1, 1));
}

/// The first copy was on its way for long; meanwhile the receiver has made its record of the sender
/// anew.
#[test]
fn delivered_messages_stay_known_after_their_senders_peer_record_is_made_anew() {
    // Without ACK a message does not say which life of its node it is from.
    for n in 0..8 {
        let [anew, ack, early] = [1, 2, 4].map(|bit| n & bit != 0);
        let mut w = pair(Profile::Default, Profile::Default);
        doubt_first(&mut w, MS * 3000);
        w.put(0, B[0], 7, ack);
        w.secs(1);
        assert_eq!(delivered(&w, 1, 7), 1, "the further copy");
        let now = w.now;
        if anew {
            w.hosts[1].node.peer_del(now, nid(A[0]), &[], true).unwrap();
        }
        if early {
            // By this it is known anew before the first copy comes.
            w.put(0, B[0], 8, true);
        }
        w.secs(3);
        assert_eq!(delivered(&w, 1, 7), 1, "anew {anew} ack {ack} early {early}");
        w.put(0, B[0], 9, true);
        w.secs(1);
        let came = [8, 9].map(|n| delivered(&w, 1, n));
        assert_eq!(came, [usize::from(early), 1]);
        assert_eq!(drops(&w, 1, DropReason::Duplicate), 1);
    }
}

/// The node of `host` is gone, and another one is there with its NIDs.
fn restart(w: &mut World, host: usize) {
    let interface_cookie = 0x5000_0000_0000 + w.now.as_nanos();
    let nids: Vec<String> = w.hosts[host].nids.values().map(ToString::to_string).collect();
    let fresh = w.host(Profile::Default, &[]);
    let mut h = w.hosts.swap_remove(fresh);
    let config = NodeConfig {
        seed: 77,
        interface_cookie,
        ping_seq: 0,
        tunables: Tunables::new(Profile::Default),
    };
    h.node = crate::Node::new(config, w.now);
    h.lo = crate::Loopback::new();
    let buf = h.mem.add(vec![0; 1 << 16]);
    let mut md = MdSpec::new(buf, 99);
    md.options =
        MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE;
    let me = MatchEntry::bits(super::world::BITS);
    h.node.attach(w.now, PT, me, md).unwrap();
    w.hosts[host] = h;
    for n in nids {
        w.add_ni(host, &n, NetTunables::SOCK);
    }
}

#[test]
fn a_receiver_that_restarted_takes_an_unanswered_request_once() {
    let mut w = pair(Profile::Default, Profile::Default);
    w.put(0, B[0], 1, true);
    w.secs(1);
    // One is on its way, at an unknown place, when the receiver restarts.
    let mut first = true;
    w.decide =
        Box::new(
            move |t| {
                if is_test(t) && core::mem::take(&mut first) { Fate::Hold } else { Fate::Pass }
            },
        );
    w.put(0, B[0], 2, true);
    restart(&mut w, 1);
    let (_, t) = w.held.pop_front().unwrap();
    w.hosts[0].node.tx_done(w.now, t.msg, Err(unknown()));
    w.run(MS * 100);
    assert_eq!(delivered(&w, 1, 2), 1);
    assert_eq!(drops(&w, 1, DropReason::AncientCopy), 0);
    for further in [false, true] {
        let mark = Mark::of(&t.hdr.kind).unwrap().copy(further);
        let mut late = t.clone();
        late.hdr.kind = mark.on(late.hdr.kind, 0);
        w.held.push_back((0, late));
        w.release();
        w.run(MS * 10);
    }
    assert_eq!(delivered(&w, 1, 2), 1);
    assert_eq!(drops(&w, 1, DropReason::Duplicate), 2);
    doubt_first(&mut w, MS * 20);
    w.put(0, B[0], 3, true);
    w.secs(6);
    assert_eq!(delivered(&w, 1, 3), 1);
    assert_eq!(w.events(0, 3), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
    assert_eq!(drops(&w, 1, DropReason::Duplicate), 3);
}

#[test]
fn a_sender_that_restarted_begins_a_new_session() {
    let mut w = pair(Profile::Default, Profile::Default);
    for user in 1..40 {
        w.put(0, B[0], user, true);
    }
    w.secs(1);
    restart(&mut w, 0);
    w.discovered(0, B[0]);
    doubt_first(&mut w, MS * 20);
    for user in 100..110 {
        w.put(0, B[0], user, true);
    }
    w.secs(6);
    for user in 100..110 {
        assert_eq!(delivered(&w, 1, user), 1, "{user}");
        let ends = [(EventKind::Send, true, false), (EventKind::Ack, true, true)];
        assert_eq!(w.events(0, user), ends);
    }
    assert_eq!(w.hosts[0].node.stats().resend_count, 1);
}

#[test]
fn a_late_message_of_a_previous_incarnation_takes_no_number_of_the_new_one() {
    let mut w = pair(Profile::Default, Profile::Default);
    w.decide = Box::new(|t| if is_test(t) { Fate::Hold } else { Fate::Pass });
    w.put(0, B[0], 9, false);
    let (_, late) = w.held.pop_front().unwrap();
    restart(&mut w, 0);
    w.decide = Box::new(|_| Fate::Pass);
    w.discovered(0, B[0]);
    assert!(w.inject(1, late.hdr.src, &late.hdr, &[9; 100]), "the first copy");
    for n in 11..=26 {
        w.put(0, B[0], n, n % 2 == 0);
        w.run(MS * 10);
        assert_eq!(delivered(&w, 1, n), 1, "message {n}");
    }
    assert_eq!(drops(&w, 1, DropReason::Duplicate), 0);
}

#[test]
fn a_copy_by_an_interface_that_its_receiver_does_not_know_is_a_duplicate() {
    let mut w = pair(Profile::Default, Profile::Default);
    // The push that announces the new interface is lost.
    w.decide = Box::new(|t| if is_push(&t.hdr) { Fate::Lose } else { Fate::Pass });
    w.put(0, B[0], 1, false);
    w.run(MS);
    let Some(&(_, mut copy)) = w.hosts[0].sent.last() else { unreachable!() };
    copy.src = nid("10.77.0.9@tcp");
    for further in [true, false] {
        let mark = Mark::of(&copy.kind).unwrap().copy(further);
        copy.kind = mark.on(copy.kind, 0);
        assert!(!w.inject(1, copy.src, &copy, &[1; 100]));
    }
    assert_eq!((delivered(&w, 1, 1), drops(&w, 1, DropReason::Duplicate)), (1, 2));
}

#[test]
fn peers_that_are_several_in_each_others_configuration_deduplicate() {
    const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp1"];
    const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp1"];
    let mut w = World::new();
    for nids in [A, B] {
        w.host(Profile::Default, &nids);
    }
    for (host, theirs) in [(0, B), (1, A)] {
        let now = w.now;
        w.hosts[host].node.peer_add(now, nid(theirs[1]), &[], false, false).unwrap();
    }
    w.discovered(0, B[0]);
    w.discovered(1, A[0]);
    let mut resent = Vec::new();
    for n in 1..=30 {
        doubt_first(&mut w, MS * 10);
        w.put(0, B[0], n, false);
        w.put(1, A[0], n, false);
        w.secs(2);
        resent.push(w.hosts.iter().map(|h| h.node.stats().resend_count).sum::<u32>());
    }
    for (host, h) in w.hosts.iter().enumerate() {
        let pushes = h.sent.iter().filter(|(_, hdr)| is_push(hdr)).count();
        assert!(pushes <= 4, "host {host} has pushed {pushes} times");
        assert_eq!((1..=30).filter(|n| delivered(&w, host, *n) == 1).count(), 30);
    }
    assert_eq!(resent, (1..=30).collect::<Vec<_>>());
}

#[test]
fn a_further_copy_keeps_name_and_number_when_the_record_of_its_peer_is_made_anew() {
    let mut w = pair(Profile::Default, Profile::Default);
    w.decide = Box::new(|t| if is_test(t) { Fate::Hold } else { Fate::Pass });
    w.put(0, B[0], 7, true);
    let (_, t) = w.held.pop_front().unwrap();
    let now = w.now;
    w.hosts[0].node.peer_del(now, nid(B[0]), &[], true).unwrap();
    w.hosts[0].node.discover(now, nid(B[0]), false);
    w.secs(1);
    w.decide = Box::new(|_| Fate::Pass);
    w.put(0, B[0], 8, true);
    w.hosts[0].node.tx_done(w.now, t.msg, Err(unknown()));
    w.secs(1);
    let puts = w.hosts[0].sent.iter().filter(|(_, hdr)| hdr.payload_len == 100);
    let marks: Vec<Mark> = puts.filter_map(|(_, hdr)| Mark::of(&hdr.kind)).collect();
    let [first, other, further] = marks[..] else { panic!("{marks:?}") };
    assert_ne!(first.session, other.session, "another record, another name");
    assert_eq!(further, first.copy(true));
    for user in [7, 8] {
        assert_eq!(
            w.events(0, user),
            [(EventKind::Send, true, false), (EventKind::Ack, true, true)]
        );
    }
}

/// A buffer for one message, as requests offer it for their answer, is free for the further copy when
/// the connection ends in the middle of the first.
#[test]
fn a_copy_that_breaks_off_leaves_a_single_use_buffer_for_the_next() {
    const ONE: u64 = 0x1234;
    let mut w = pair(Profile::Default, Profile::Default);
    let h = &mut w.hosts[1];
    let buf = h.mem.add(vec![0; 100]);
    let mut md = MdSpec::new(buf, 5);
    (md.threshold, md.unlink) = (Some(1), Unlink::Auto);
    md.options = MdOptions::OP_PUT;
    let (now, at) = (w.now, w.hosts[1].node.loopback());
    w.hosts[1].node.attach(now, PT, MatchEntry::bits(ONE), md).unwrap();
    w.decide = Box::new(|t| if is_test(t) { Fate::Hold } else { Fate::Pass });
    w.put(0, B[0], 7, false);
    let (_, first) = w.held.pop_front().unwrap();
    let Kind::Put { ack, hdr_data, portal, offset, .. } = first.hdr.kind else { panic!() };
    let kind = Kind::Put { ack, match_bits: ONE, hdr_data, portal, offset };
    let hdr = Hdr { kind, ..first.hdr };
    let is_there = |(id, n): &(&NiId, &Nid)| **n == hdr.dst && Some(**id) != at;
    let ni = *w.hosts[1].nids.iter().find(is_there).unwrap().0;
    let (from, from_pid) = (hdr.src, Pid::LUSTRE);
    let rx = Rx { ni, from, from_pid, peer_ni: None, id: RxId(900) };
    let Verdict::Deliver { msg, .. } = w.hosts[1].node.rx_header(w.now, rx, &hdr) else { panic!() };
    w.hosts[1].node.rx_done(w.now, msg, Err(unknown()));
    w.drain();
    assert_eq!(w.events(1, 5), [], "it is not over");
    let further = Hdr { kind: Mark::further_copy(kind).unwrap(), ..hdr };
    assert!(w.inject(1, hdr.src, &further, &[9; 100]));
    assert_eq!(w.events(1, 5), [(EventKind::Put, true, true)]);
    assert!(!w.inject(1, hdr.src, &hdr, &[9; 100]), "the first copy in full is a duplicate");
}

/// M-13, M-26: a PUT that waits on a lazy portal gets the buffer that a copy has left.
#[test]
fn a_copy_that_breaks_off_leaves_its_single_use_buffer_to_a_deferred_put() {
    const ONE: u64 = 0x1234;
    let mut w = pair(Profile::Default, Profile::Default);
    let (now, at) = (w.now, w.hosts[1].node.loopback());
    let h = &mut w.hosts[1];
    let buf = h.mem.add(vec![0; 100]);
    let mut md = MdSpec::new(buf, 5);
    (md.threshold, md.unlink) = (Some(1), Unlink::Auto);
    md.options = MdOptions::OP_PUT;
    h.node.set_lazy(now, PT, true).unwrap();
    h.node.attach(now, PT, MatchEntry::bits(ONE), md).unwrap();
    w.decide = Box::new(|t| if is_test(t) { Fate::Hold } else { Fate::Pass });
    w.put(0, B[0], 7, false);
    let (_, first) = w.held.pop_front().unwrap();
    let Kind::Put { ack, hdr_data, portal, offset, .. } = first.hdr.kind else { panic!() };
    let kind = Kind::Put { ack, match_bits: ONE, hdr_data, portal, offset };
    let marked = Hdr { kind, ..first.hdr };
    let kind =
        Kind::Put { ack: lnet_wire::Handle::NONE, match_bits: ONE, hdr_data, portal, offset };
    let waiting = Hdr { kind, src: nid("10.77.0.9@tcp"), ..first.hdr };
    let is_there = |(id, n): &(&NiId, &Nid)| **n == marked.dst && Some(**id) != at;
    let ni = *w.hosts[1].nids.iter().find(is_there).unwrap().0;
    let rx = |from: Nid, id| Rx { ni, from, from_pid: Pid::LUSTRE, peer_ni: None, id: RxId(id) };
    let node = &mut w.hosts[1].node;
    let verdict = node.rx_header(now, rx(marked.src, 900), &marked);
    let Verdict::Deliver { msg, .. } = verdict else { panic!("{verdict:?}") };
    let verdict = node.rx_header(now, rx(waiting.src, 901), &waiting);
    assert!(matches!(verdict, Verdict::Defer), "{verdict:?}");
    node.rx_done(now, msg, Err(unknown()));
    let is_resumed = |out: Output| match out {
        Output::Resume { rx: RxId(901), verdict: Verdict::Deliver { msg, .. }, .. } => Some(msg),
        _ => None,
    };
    let outputs = core::iter::from_fn(|| node.poll_output());
    let resumed = outputs.filter_map(is_resumed).next().expect("the deferred PUT goes on");
    node.rx_done(now, resumed, Ok(&[]));
    w.drain();
    assert_eq!(w.events(1, 5), [(EventKind::Put, true, true)]);
}

#[test]
fn an_ack_from_a_kernel_node_for_a_marked_put_without_ack_is_dropped() {
    let mut w = pair(Profile::Default, Profile::Default);
    // Until its ping data come, a kernel node that has taken over the NID gets marked messages.
    w.put(0, B[0], 7, false);
    w.put(0, B[0], 8, true);
    w.run(MS * 10);
    let puts: Vec<_> = w.hosts[0].sent.iter().map(|(_, hdr)| *hdr).collect();
    let before = w.hosts[0].events.len();
    for hdr in puts.into_iter().filter(|hdr| hdr.payload_len == 100) {
        let Kind::Put { ack: dst, match_bits, .. } = hdr.kind else { unreachable!() };
        assert_ne!(dst, lnet_wire::Handle::NONE, "to a kernel node an ACK is wanted");
        let kind = Kind::Ack { dst, match_bits, mlength: 100, pad: [0; 12] };
        let (src, dst) = (hdr.dst, hdr.src);
        let ack = Hdr { src, dst, payload_len: 0, kind, ..hdr };
        assert!(!w.inject(0, src, &ack, &[]), "the answered one is answered");
    }
    assert_eq!(drops(&w, 0, DropReason::BadHandle), 2);
    assert_eq!(w.hosts[0].events.len(), before);
    // Its data are heard, and nothing is marked any more.
    let id = w.hosts[0].node.peers.owner(nid(B[0])).unwrap();
    w.hosts[0].node.peers.note_ability(id, lnet_wire::ping::Features::MULTI_RAIL);
    w.put(0, B[0], 9, false);
    let Some((_, last)) = w.hosts[0].sent.last() else { unreachable!() };
    assert!(matches!(last.kind, Kind::Put { ack: lnet_wire::Handle::NONE, .. }));
}

/// Headers and ping data of version 0.1.0 (85d5bd4), recorded from a node with the NIDs of A that
/// talks to one with those of B.
mod version_0_1 {
    pub(super) const PING: &str = "676e69701e00004039300000030000000000000000000900030000000000000002004d0a00000200dec0aa150000000002014d0a00000200dec0aa1500000000";
    pub(super) const PUSH: &str = "03004d0a0000020002004d0a00000200000000603930000001000000400000000010000000000000f32cf2da3a24bab5000000000000008000100000000000000000000000000000";
    pub(super) const PUT_WITH_ACK: &str = "03004d0a0000020002004d0a00000200010000403930000001000000640000000010000000000000e6ecd6aca7ce5fde100000000000000007000000000000000500000000000000";
    pub(super) const PUT: &str = "03014d0a0000020002014d0a0000020002000040393000000100000064000000ffffffffffffffffffffffffffffffff100000000000000008000000000000000500000000000000";
    pub(super) const GET: &str = "03004d0a0000020002004d0a000002000300004039300000020000000000000000100000000000004ea1763603fd7494100000000000000005000000000000006400000000000000";

    pub(super) fn bytes(hex: &str) -> Vec<u8> {
        let (pairs, _) = hex.as_bytes().as_chunks::<2>();
        let digit = |c: u8| char::from(c).to_digit(16).unwrap() as u8;
        pairs.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
    }
}

#[test]
fn a_node_of_version_0_1_is_served_without_marks() {
    use version_0_1::{GET, PING, PUSH, PUT, PUT_WITH_ACK, bytes};
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.hosts[0].alive = false;
    w.host(Profile::Default, &B);
    let hdr = |hex| Hdr::parse(lnet_wire::HdrForm::Short, &bytes(hex)).unwrap();
    assert!(w.inject(1, nid(A[0]), &hdr(PUSH), &bytes(PING)));
    w.secs(1);
    let peer = w.hosts[1].node.peers.owner(nid(A[0])).unwrap();
    assert_eq!(w.hosts[1].node.peers.owner(nid(A[1])), Some(peer), "its data were taken");
    // It may mark its messages by its own rules until it has our data: all of them are delivered.
    assert!(w.inject(1, nid(A[0]), &hdr(PUT_WITH_ACK), &[7; 100]));
    assert!(w.inject(1, nid(A[1]), &hdr(PUT), &[8; 100]));
    assert!(w.inject(1, nid(A[0]), &hdr(GET), &[]));
    assert_eq!([7, 8].map(|n| delivered(&w, 1, n)), [1, 1]);
    w.put(1, A[0], 1, true);
    w.put(1, A[0], 2, false);
    w.get(1, A[0], 3);
    w.secs(1);
    let sent = &w.hosts[1].sent;
    for (_, hdr) in sent {
        assert_eq!((Mark::of(&hdr.kind), hdr.dst_pid), (None, Pid::LUSTRE), "{hdr}");
    }
    // The answers are what they were, but for the process.
    let golden = [
        "02004d0a0000020003004d0a00000200393000003930000000000000000000000010000000000000e6ecd6aca7ce5fde100000000000000064000000000000000000000000000000",
        "02004d0a0000020003004d0a000002003930000039300000030000006400000000100000000000004ea1763603fd7494000000000000000000000000000000000000000000000000",
    ];
    for hex in golden {
        let is_it = |h: &Hdr| {
            let mut out = [0; 96];
            let n = h.emit(lnet_wire::HdrForm::Short, &mut out).unwrap();
            out[..n] == bytes(hex)
        };
        assert!(sent.iter().any(|(_, h)| is_it(h)), "{hex}");
    }
    let node = &mut w.hosts[1].node;
    assert_eq!(node.drops().filter(|(_, n)| *n > 0).count(), 0, "nothing is dropped");
    assert_eq!(node.refusals().filter(|(_, n)| *n > 0).count(), 0, "nothing is refused");
    let notices = core::iter::from_fn(|| node.poll_notice()).collect::<Vec<_>>();
    assert!(notices.iter().all(|notice| notice.level() > crate::Level::Warn), "{notices:?}");
}

/// Loss, doubt and delay at random on two rails: whatever is acknowledged was delivered once, nothing
/// is delivered twice, each operation ends once.
fn storm(seed: u64) {
    let mut rng = Prng::new(seed);
    let mut w = pair(Profile::Default, Profile::Default);
    let retries = [2, 5, lnet_types::RETRY_PATHS][rng.below(3) as usize];
    for host in 0..2 {
        let change = [("retry_count", retries), ("transaction_timeout", 10)];
        w.hosts[host].node.set_tunables(w.now, &change).unwrap();
    }
    let badness = [5, 20, 50][rng.below(3) as usize];
    let mut dice = rng.split();
    w.decide = Box::new(move |_| {
        if dice.below(100) >= badness {
            return Fate::Pass;
        }
        match dice.below(4) {
            0 => Fate::Fail(unknown()),
            1 => Fate::Fail(Fault::new(HealthStatus::LocalDropped, Errno::EIO)),
            2 => Fate::Lose,
            _ => Fate::Doubt(unknown(), MS * dice.below(3000) as u32),
        }
    });
    let mut asked: BTreeMap<u64, (usize, bool)> = BTreeMap::new();
    for user in 1000..1200 {
        let host = rng.below(2) as usize;
        let target = [B, A][host][rng.below(2) as usize];
        if rng.below(4) == 0 {
            w.get(host, target, user);
            asked.insert(user, (host, false));
        } else {
            w.put(host, target, user, rng.below(2) == 0);
            asked.insert(user, (host, true));
        }
        if rng.below(3) == 0 {
            w.run(MS * rng.below(200) as u32);
        }
        if rng.below(60) == 0 {
            let n = nid([A, B][host][0]);
            let link = if rng.below(2) == 0 { Link::Down } else { Link::Up };
            w.link(host, &n.to_string(), link);
        }
        if rng.below(60) == 0 {
            w.hosts[host].node.discover(w.now, nid(target), true);
        }
        if rng.below(15) == 0 {
            let (own, theirs) = ([A, B][host][rng.below(2) as usize], target);
            let doubt = [Doubt::None, Doubt::Shaky, Doubt::Silent][rng.below(3) as usize];
            w.doubt(host, own, theirs, doubt);
        }
        if rng.below(15) == 0 {
            let own = nid([A, B][host][rng.below(2) as usize]);
            let h = &mut w.hosts[host];
            let (&ni, _) = h.nids.iter().find(|(_, n)| **n == own).unwrap();
            h.node.written_lost(w.now, ni, nid(target));
            w.drain();
        }
    }
    w.decide = Box::new(|_| Fate::Pass);
    w.secs(60);
    for (&user, &(host, put)) in &asked {
        let events: Vec<_> = w.hosts[host].events.iter().filter(|e| e.user == user).collect();
        let of = |kind| events.iter().filter(|e| e.kind == kind && e.status.is_ok()).count();
        let sends = events.iter().filter(|e| e.kind == EventKind::Send).count();
        assert_eq!(sends, 1, "seed {seed}: one SEND for {user}: {events:#?}");
        assert!(of(EventKind::Ack) <= 1 && of(EventKind::Reply) <= 1, "seed {seed}: {events:#?}");
        assert_eq!(events.iter().filter(|e| e.unlinked).count(), 1, "seed {seed}: {events:#?}");
        if put {
            let times = delivered(&w, 1 - host, user);
            assert!(times <= 1, "seed {seed}: {user} was delivered {times} times");
            assert!(times >= of(EventKind::Ack), "seed {seed}: {user} acknowledged, not delivered");
        }
    }
    for h in &w.hosts {
        // A recovery ping may just be under way.
        let (pings, left): (Vec<_>, Vec<_>) = h.node.msgs.values().partition(|m| m.recovery);
        assert!(left.is_empty(), "seed {seed}: {left:#?}");
        assert!(h.node.timers.count(TimerKind::Response) <= pings.len(), "seed {seed}");
        let resting = h.node.timers.count(TimerKind::Backoff);
        assert_eq!((h.node.msgs.answering(), resting), (0, 0), "seed {seed}");
    }
}

#[test]
fn whatever_is_lost_late_or_repeated_nothing_is_delivered_twice() {
    let seeds = match option_env!("STORM_SEED").and_then(|s| s.parse().ok()) {
        Some(seed) => seed..=seed,
        None => 1..=60,
    };
    for seed in seeds {
        storm(seed);
    }
}

/// The receiver restarts again and again, under loss, doubt and delay on two rails: no life of it gets
/// anything twice, and each operation ends once.
fn lives(seed: u64) {
    let mut rng = Prng::new(seed);
    let mut w = pair(Profile::Default, Profile::Default);
    let change = [("retry_count", 4), ("transaction_timeout", 10)];
    w.hosts[0].node.set_tunables(w.now, &change).unwrap();
    let mut dice = rng.split();
    w.decide = Box::new(move |_| match dice.below(12) {
        0 => Fate::Fail(unknown()),
        1 => Fate::Lose,
        2 => Fate::Doubt(unknown(), MS * dice.below(3000) as u32),
        _ => Fate::Pass,
    });
    let once = |w: &World| {
        for user in 1000..1150 {
            assert!(delivered(w, 1, user) <= 1, "seed {seed}: {user} was delivered twice");
        }
    };
    for user in 1000..1150 {
        let target = B[rng.below(2) as usize];
        w.put(0, target, user, rng.below(4) != 0);
        if rng.below(3) == 0 {
            w.run(MS * rng.below(200) as u32);
        }
        if rng.below(10) == 0 {
            let (own, theirs) = (A[rng.below(2) as usize], target);
            let h = &mut w.hosts[0];
            let (&ni, _) = h.nids.iter().find(|(_, n)| **n == nid(own)).unwrap();
            h.node.written_lost(w.now, ni, nid(theirs));
            w.drain();
        }
        if rng.below(20) == 0 {
            once(&w);
            restart(&mut w, 1);
        }
        if rng.below(30) == 0 {
            w.hosts[1].node.discover(w.now, nid(A[0]), true);
        }
    }
    w.decide = Box::new(|_| Fate::Pass);
    w.secs(60);
    once(&w);
    for user in 1000..1150 {
        let ends = w.events(0, user).iter().filter(|e| e.2).count();
        assert_eq!(ends, 1, "seed {seed}: {user}");
    }
}

#[test]
fn no_incarnation_of_a_receiver_gets_a_message_twice() {
    (1..=60).for_each(lives);
}
