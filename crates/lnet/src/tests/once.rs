//! Each message once: nodes that number their messages (DEC-6), under loss, doubt and restarts.

use std::collections::BTreeMap;

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, Pid, Prng};
use lnet_wire::Kind;
use lnet_wire::mark::Mark;

use super::world::{Fate, PT, World, nid};
use crate::portal::RESERVED_PORTAL;
use crate::timers::{Timer, TimerKind};
use crate::{Doubt, DropReason, EventKind, Link, NetTunables, NodeConfig, Profile, Tunables};

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

fn is_push(hdr: &lnet_wire::Hdr) -> bool {
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
    w.hosts[host].node.drops.get(&reason).copied().unwrap_or(0)
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
            assert_eq!(hdr.dst_pid, Pid::LUSTRE, "{hdr}");
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
        let marked = |(_, h): &&(_, lnet_wire::Hdr)| Mark::of(h.dst_pid).is_some();
        assert_eq!(w.hosts[host].sent.iter().filter(marked).count(), 2, "a PUT and an ACK");
    }
    let pid = w.hosts[1].events.iter().find(|e| e.hdr_data == 1).unwrap().target.pid;
    assert_eq!(pid, Pid::LUSTRE, "users never see a mark");
}

#[test]
fn messages_are_numbered_while_news_of_an_interface_is_on_its_way() {
    let mut w = pair(Profile::Default, Profile::Default);
    // The push that tells of it gets lost.
    w.decide = Box::new(|t| match t.hdr.kind {
        Kind::Put { portal: RESERVED_PORTAL, .. } => Fate::Lose,
        _ => Fate::Pass,
    });
    let before = w.hosts[0].node.ping_seq;
    w.link(0, A[1], Link::Down);
    w.run(MS);
    assert_ne!(w.hosts[0].node.ping_seq, before, "there is news");
    w.put(0, B[0], 1, true);
    // What the peer does not know of yet is no sender that it could tell copies from.
    w.add_ni(0, "10.77.2.2@tcp", NetTunables::SOCK);
    w.put(0, B[0], 2, true);
    w.run(MS * 100);
    let put =
        |h: &&(lnet_types::Nid, lnet_wire::Hdr)| matches!(h.1.kind, Kind::Put { portal: PT, .. });
    let marks = w.hosts[0].sent.iter().filter(put).map(|h| Mark::of(h.1.dst_pid).is_some());
    assert_eq!(marks.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn switching_it_off_ends_it_and_on_begins_it() {
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
fn what_was_delivered_is_known_after_the_record_of_its_sender_was_made_anew() {
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
    let cookie = 0x5000_0000_0000 + w.now.as_nanos();
    restart_as(w, host, cookie);
}

/// The new life has this cookie.
fn restart_as(w: &mut World, host: usize, interface_cookie: u64) {
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
    let mut md = crate::MdSpec::new(buf, 99);
    md.options = crate::MdOptions::OP_PUT
        | crate::MdOptions::OP_GET
        | crate::MdOptions::MANAGE_REMOTE
        | crate::MdOptions::TRUNCATE;
    let me = crate::MatchEntry::bits(super::world::BITS);
    h.node.attach(w.now, PT, me, md).unwrap();
    w.hosts[host] = h;
    for n in nids {
        w.add_ni(host, &n, NetTunables::SOCK);
    }
}

/// Cookies of lives, of which one has the same bits in its marks as any life before.
fn cookies() -> impl Iterator<Item = u64> {
    (0..8).map(|bits| 0x5000_0000_0000 + (bits << 30))
}

/// Two that know each other, and messages that have come.
fn pair_in_use() -> World {
    let mut w = pair(Profile::Default, Profile::Default);
    for n in 1..=8 {
        w.put(0, B[0], n, false);
        w.secs(1);
    }
    w
}

/// What the new life of the first one sends is delivered, each message once.
fn the_new_life_is_heard(w: &mut World, cookie: u64) {
    for n in 11..=26 {
        w.put(0, B[0], n, n % 2 == 0);
        w.run(MS * 10);
        assert_eq!(delivered(w, 1, n), 1, "message {n}, life {cookie:x}");
    }
    assert_eq!(drops(w, 1, DropReason::Duplicate), 0, "life {cookie:x}");
}

#[test]
fn a_new_life_whose_session_gets_no_window_is_not_taken_for_the_one_before() {
    for cookie in cookies() {
        let mut w = pair_in_use();
        // One of its NIDs is another peer's from here on: what it sends can't be told from copies.
        let now = w.now;
        w.hosts[1].node.peer_del(now, nid(A[0]), &[], true).unwrap();
        w.hosts[1].node.peer_add(now, nid(A[1]), &[], false, false).unwrap();
        restart_as(&mut w, 0, cookie);
        w.discovered(0, B[0]);
        the_new_life_is_heard(&mut w, cookie);
    }
}

#[test]
fn a_new_life_whose_session_has_no_window_yet_is_not_taken_for_the_one_before() {
    for cookie in cookies() {
        let mut w = pair_in_use();
        // It has an interface that was another node's, as far as is known; nobody answers whose it is.
        const OTHER: &str = "10.77.0.99@tcp";
        let now = w.now;
        w.hosts[1].node.discover(now, nid(OTHER), false);
        w.secs(10);
        restart_as(&mut w, 0, cookie);
        w.add_ni(0, OTHER, NetTunables::SOCK);
        w.decide = Box::new(|t| {
            let asks = matches!(t.hdr.kind, Kind::Get { portal: RESERVED_PORTAL, .. });
            if asks && t.hdr.src == nid(B[0]) { Fate::Hold } else { Fate::Pass }
        });
        w.discovered(0, B[0]);
        the_new_life_is_heard(&mut w, cookie);
    }
}

/// Its other NID counts as another node's when it tells its session, and comes to the record of the
/// life before without it.
#[test]
fn nor_is_one_whose_nids_come_together_after_it_has_told_its_session() {
    for cookie in cookies() {
        let mut w = pair_in_use();
        let now = w.now;
        let (&second, _) = w.hosts[0].nids.iter().find(|(_, n)| **n == nid(A[1])).unwrap();
        w.hosts[0].node.del_ni(now, second).unwrap();
        w.hosts[0].nids.remove(&second);
        w.secs(2);
        restart_as(&mut w, 0, cookie);
        w.add_ni(0, A[1], NetTunables::SOCK);
        // Of its first interface nothing is heard at first.
        w.decide = Box::new(|t| match [t.hdr.src, t.hdr.dst].contains(&nid(A[0])) {
            true => Fate::Lose,
            false => Fate::Pass,
        });
        w.hosts[0].node.discover(w.now, nid(B[0]), false);
        w.secs(8);
        w.decide = Box::new(|_| Fate::Pass);
        for _ in 0..10 {
            w.secs(1);
            the_new_life_is_heard(&mut w, cookie);
            w.hosts[1].events.clear();
        }
    }
}

/// A gateway that is not of our kind has brought the push: it bears no mark.
#[test]
fn nor_is_one_that_told_its_session_without_a_mark() {
    for cookie in cookies() {
        let mut w = pair_in_use();
        restart_as(&mut w, 0, cookie);
        w.decide = Box::new(|t| if is_push(&t.hdr) { Fate::Hold } else { Fate::Pass });
        w.hosts[0].node.discover(w.now, nid(B[0]), false);
        w.secs(1);
        w.decide = Box::new(|_| Fate::Pass);
        for (host, mut push) in core::mem::take(&mut w.held) {
            assert_eq!(host, 0);
            let bytes = w.hosts[0].node.ping_bytes.clone();
            push.hdr.dst_pid = Pid::LUSTRE;
            w.hosts[0].node.tx_done(w.now, push.msg, Ok(()));
            assert!(w.inject(1, push.hdr.src, &push.hdr, &bytes));
        }
        w.run(MS);
        the_new_life_is_heard(&mut w, cookie);
    }
}

#[test]
fn nor_is_one_that_tells_more_than_there_is_room_for() {
    for cookie in cookies() {
        let mut w = pair_in_use();
        restart_as(&mut w, 0, cookie);
        for n in 1..=20 {
            w.add_ni(0, &format!("10.77.2.{n}@tcp"), NetTunables::SOCK);
        }
        w.hosts[0].node.discover(w.now, nid(B[0]), false);
        w.secs(1);
        the_new_life_is_heard(&mut w, cookie);
    }
}

/// Its answer to a question says the same and is not merged yet, for it has said too much of late.
#[test]
fn nor_is_one_that_has_said_before_what_it_tells() {
    for cookie in cookies() {
        let mut w = pair_in_use();
        restart_as(&mut w, 0, cookie);
        let node = &mut w.hosts[1].node;
        let id = node.peers.owner(nid(A[0])).unwrap();
        node.timers.set(Timer::Merge(id), w.now + MS * 60_000);
        node.discover(w.now, nid(A[0]), true);
        w.run(MS * 10);
        w.hosts[0].node.discover(w.now, nid(B[0]), false);
        w.secs(1);
        the_new_life_is_heard(&mut w, cookie);
    }
}

/// Its push was acknowledged and never came: whatever the reason, it is not deaf to it for long.
#[test]
fn a_session_that_nobody_has_told_is_asked_for_when_it_contradicts_the_one_that_is_known() {
    let mut asked = 0;
    for cookie in cookies() {
        let mut w = pair_in_use();
        for n in 100..140 {
            w.put(0, B[0], n, false);
            w.run(MS * 10);
        }
        restart_as(&mut w, 0, cookie);
        w.decide = Box::new(|t| if is_push(&t.hdr) { Fate::Hold } else { Fate::Pass });
        w.hosts[0].node.discover(w.now, nid(B[0]), false);
        w.secs(1);
        w.decide = Box::new(|_| Fate::Pass);
        let (host, push) = w.held.pop_front().unwrap();
        assert!(host == 0 && w.held.is_empty());
        w.hosts[0].node.tx_done(w.now, push.msg, Ok(()));
        let Kind::Put { ack, match_bits, .. } = push.hdr.kind else { unreachable!() };
        let kind = Kind::Ack { dst: ack, match_bits, mlength: push.hdr.payload_len };
        let (src, dst) = (push.hdr.dst, push.hdr.src);
        let dst_pid = Pid::LUSTRE;
        let ack = lnet_wire::Hdr { src, dst, dst_pid, payload_len: 0, kind, ..push.hdr };
        w.inject(0, src, &ack, &[]);
        for n in 11..=40 {
            w.put(0, B[0], n, false);
            w.run(MS * 10);
        }
        assert!((21..=40).all(|n| delivered(&w, 1, n) == 1), "life {cookie:x}");
        asked += drops(&w, 1, DropReason::Duplicate);
    }
    assert_eq!(asked, 8, "one life had the bits of the one before");
}

/// The answer of one that is two peers here came from the other one's interface, so that it is told
/// there.
#[test]
fn a_push_bears_the_mark_of_the_peer_that_is_told_whoever_has_the_interface() {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &B);
    let now = w.now;
    w.hosts[0].node.peer_add(now, nid(B[1]), &[], false, false).unwrap();
    w.decide = Box::new(|t| match t.hdr.kind {
        Kind::Reply { .. } => Fate::Hold,
        _ => Fate::Pass,
    });
    w.hosts[0].node.discover(now, nid(B[0]), false);
    w.run(MS * 100);
    w.decide = Box::new(|_| Fate::Pass);
    let (_, mut reply) = w.held.pop_front().unwrap();
    w.hosts[1].node.tx_done(w.now, reply.msg, Ok(()));
    reply.hdr.src = nid(B[1]);
    let bytes = w.hosts[1].node.ping_bytes.clone();
    assert!(w.inject(0, nid(B[1]), &reply.hdr, &bytes));
    w.secs(1);
    let mut pushes = w.hosts[0].sent.iter().filter(|(_, hdr)| is_push(hdr)).map(|(_, hdr)| hdr);
    let first = pushes.next().unwrap();
    assert_eq!(first.dst, nid(B[1]));
    let Kind::Put { hdr_data: session, .. } = first.kind else { unreachable!() };
    assert!(Mark::of(first.dst_pid).is_some_and(|mark| mark.is_of(session)), "{first}");
}

/// Where a message names its life, the bits of its session do not matter.
#[test]
fn what_comes_late_of_an_old_life_takes_no_number_of_the_new_one() {
    for cookie in cookies() {
        let mut w = pair_in_use();
        w.decide = Box::new(|t| if is_test(t) { Fate::Hold } else { Fate::Pass });
        w.put(0, B[0], 9, true);
        let (_, late) = w.held.pop_front().unwrap();
        restart_as(&mut w, 0, cookie);
        w.decide = Box::new(|_| Fate::Pass);
        w.discovered(0, B[0]);
        assert!(w.inject(1, late.hdr.src, &late.hdr, &[9; 100]), "the first copy");
        the_new_life_is_heard(&mut w, cookie);
    }
}

/// A life was told of and got no window; the next one has the same bits, and gets one.
#[test]
fn a_session_without_window_is_forgotten_when_the_node_gets_one() {
    let mut w = pair_in_use();
    let now = w.now;
    w.hosts[1].node.peer_del(now, nid(A[0]), &[], true).unwrap();
    w.hosts[1].node.peer_add(now, nid(A[1]), &[], false, false).unwrap();
    let cookie = 0x5000_0000_0000;
    restart_as(&mut w, 0, cookie);
    w.discovered(0, B[0]);
    let now = w.now;
    w.hosts[1].node.peer_del(now, nid(A[1]), &[], true).unwrap();
    restart_as(&mut w, 0, cookie + (8 << 30));
    w.discovered(0, B[0]);
    w.secs(2);
    let mut first = true;
    w.decide = Box::new(move |t| {
        let lost = is_test(t) && core::mem::take(&mut first);
        if lost { Fate::Fail(unknown()) } else { Fate::Pass }
    });
    w.put(0, B[0], 9, false);
    w.secs(2);
    assert_eq!(delivered(&w, 1, 9), 1, "the further copy, whose first was lost");
    assert_eq!(drops(&w, 1, DropReason::AncientCopy), 0);
}

/// Neither can give the other a window, so that neither asks for its session.
#[test]
fn two_that_are_several_peers_to_each_other_do_not_ask_for_ever() {
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
    for n in 1..=30 {
        w.put(0, B[0], n, false);
        w.put(1, A[0], n, false);
        w.secs(1);
    }
    for (host, h) in w.hosts.iter().enumerate() {
        let pushes = h.sent.iter().filter(|(_, hdr)| is_push(hdr)).count();
        assert!(pushes <= 4, "host {host} has pushed {pushes} times");
        assert_eq!((1..=30).filter(|n| delivered(&w, host, *n) == 1).count(), 30);
    }
}

#[test]
fn a_receiver_that_restarted_takes_what_nobody_has_answered_and_takes_it_once() {
    let mut w = pair(Profile::Default, Profile::Default);
    w.put(0, B[0], 1, true);
    w.secs(1);
    // One is on its way, nobody knows how far, when the receiver restarts.
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
    // That has made them agree anew. What comes late from before is known all the same.
    for again in [false, true] {
        let mut mark = Mark::of(t.hdr.dst_pid).unwrap();
        mark.again = again;
        let mut late = t.clone();
        late.hdr.dst_pid = mark.pid();
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
        assert_eq!((h.node.answering, resting), (0, 0), "seed {seed}");
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
fn no_life_of_a_receiver_gets_anything_twice() {
    (1..=60).for_each(lives);
}
