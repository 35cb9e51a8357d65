//! Being a router: buffers and credits, back-pressure, what is dropped and why, and that nothing is
//! lost when routers come and go.

use core::time::Duration;
use std::collections::BTreeSet;

use lnet_types::{Errno, Fault, HealthStatus, Nid, Pid, RxId};
use lnet_wire::{Handle, Hdr, Kind};

use super::world::{BITS, Fate, Mem, PT, World, nid};
use crate::{
    DropReason, EventKind, NetTunables, PeerMisbehaved, PeerNiState, PoolKind, Profile,
    RoutingState, Rx, Sink, Verdict,
};

const A: &str = "10.77.0.2@tcp";
const B: &str = "10.77.1.3@tcp1";
const G1: [&str; 2] = ["10.77.0.4@tcp", "10.77.1.4@tcp1"];
const G2: [&str; 2] = ["10.77.0.5@tcp", "10.77.1.5@tcp1"];

fn world(profile: Profile, routers: &[[&str; 2]]) -> World {
    let mut w = World::new();
    w.host(profile, &[A]);
    w.host(profile, &[B]);
    for g in routers {
        w.router(profile, g);
        w.route(0, "tcp1", g[0]);
        w.route(1, "tcp", g[1]);
    }
    w.secs(1);
    w.discovered(0, B);
    w
}

/// A router on its own, whose neighbours the test plays.
struct Bench {
    w: World,
    /// Names of messages that the driver has in hand, by the peer that they came from.
    in_hand: BTreeSet<RxId>,
}

impl Bench {
    fn new(profile: Profile, credits: u32) -> Self {
        let mut w = World::new();
        let tunables = NetTunables { peer_credits: credits, ..NetTunables::SOCK };
        let r = w.host_with(profile, &G1, tunables);
        let few = [("tiny_buffers", 16), ("small_buffers", 16), ("large_buffers", 2)];
        w.hosts[r].node.set_tunables(w.now, &few).unwrap();
        let h = &mut w.hosts[r];
        h.node.enable_routing(w.now, &mut h.mem).unwrap();
        w.decide = Box::new(|_| Fate::Hold);
        Self { w, in_hand: BTreeSet::new() }
    }

    fn hdr(dst: &str, len: u32) -> Hdr {
        Hdr {
            dst: nid(dst),
            src: nid(A),
            dst_pid: Pid::LUSTRE,
            src_pid: Pid::LUSTRE,
            payload_len: len,
            // On the reserved portal, so that no discovery is in the way.
            kind: Kind::Put {
                ack: Handle::NONE,
                match_bits: BITS,
                hdr_data: 0,
                portal: 0,
                offset: 0,
            },
        }
    }

    /// A header from `from`; the name under which the driver has it, and the verdict.
    fn arrives(&mut self, from: &str, hdr: &Hdr) -> (RxId, Verdict) {
        // The name of a connection that has none: as the driver does it, the same as soon as it can.
        let line = u64::from(nid(from).addr()) << 16;
        let id = (line..).map(RxId).find(|id| !self.in_hand.contains(id)).unwrap();
        let verdict = self.arrives_as(id, from, hdr);
        if matches!(verdict, Verdict::Defer) {
            self.in_hand.insert(id);
        }
        (id, verdict)
    }

    /// The same, under a name that the test chooses.
    fn arrives_as(&mut self, id: RxId, from: &str, hdr: &Hdr) -> Verdict {
        let h = &mut self.w.hosts[0];
        let near = if nid(from).net() == nid(A).net() { G1[0] } else { G1[1] };
        let (&ni, _) = h.nids.iter().find(|(_, n)| **n == nid(near)).unwrap();
        let rx = Rx { ni, from: nid(from), from_pid: Pid::LUSTRE, peer_ni: None, id };
        h.node.rx_header(self.w.now, rx, hdr)
    }

    /// The same, payload and all, up to the driver on the other side.
    fn passes(&mut self, from: &str, hdr: &Hdr) -> bool {
        let verdict = self.arrives(from, hdr).1;
        self.goes_on(verdict)
    }

    /// What was let in goes on, up to the driver on the other side.
    fn goes_on(&mut self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Deliver { msg, .. } => {
                self.w.hosts[0].node.rx_done(self.w.now, msg, Ok(&[]));
                self.w.drain();
                true
            }
            Verdict::Defer | Verdict::Drop(_) | Verdict::Close(_) => false,
        }
    }

    fn done(&mut self) {
        let (_, t) = self.w.held.pop_front().unwrap();
        self.w.hosts[0].node.tx_done(self.w.now, t.msg, Ok(()));
    }

    /// Messages that were let go on, in order.
    fn resumed(&mut self) -> Vec<(RxId, Verdict)> {
        let mut out = Vec::new();
        while let Some(o) = self.w.hosts[0].node.poll_output() {
            match o {
                crate::Output::Resume { rx, verdict, .. } => {
                    self.in_hand.remove(&rx);
                    out.push((rx, verdict));
                }
                crate::Output::Send(t) => self.w.held.push_back((0, t)),
                crate::Output::Abandon { .. } | crate::Output::Withdraw { .. } => {}
                crate::Output::Release(region) => self.w.hosts[0].released.push(region),
                crate::Output::Recall { .. } | crate::Output::Reclaim { .. } => {}
            }
        }
        out
    }

    fn router_credits(&self, from: &str) -> (i32, i32) {
        let v = self.w.hosts[0].node.peer_view_of(nid(from)).unwrap();
        (v.nis[0].router_credits, v.nis[0].router_credits_min)
    }

    fn credits(&self, kind: PoolKind) -> i32 {
        self.w.hosts[0].node.routing_view().pools[kind as usize].credits
    }

    fn drops(&self) -> Vec<(DropReason, u64)> {
        self.w.hosts[0].node.drops().collect()
    }
}

#[test]
fn x32_the_ninth_message_of_one_neighbour_waits_until_one_is_through() {
    let mut b = Bench::new(Profile::Kernel, 8);
    let hdr = Bench::hdr(B, 100);
    for _ in 0..8 {
        assert!(b.passes(A, &hdr));
    }
    let (ninth, verdict) = b.arrives(A, &hdr);
    assert!(matches!(verdict, Verdict::Defer));
    assert_eq!(b.router_credits(A), (-1, -1));
    assert_eq!(b.credits(PoolKind::Small), 8, "it has no buffer yet");
    // Another sender is not held up.
    assert!(b.passes("10.77.0.9@tcp", &hdr));
    assert_eq!(b.w.held.len(), 8, "the next hop's credits");
    b.done();
    let resumed = b.resumed();
    let [(rx, Verdict::Deliver { .. })] = resumed.as_slice() else { panic!("{resumed:?}") };
    assert_eq!(*rx, ninth);
    assert_eq!(b.router_credits(A), (0, -1));
}

/// A driver may name messages by the connection that they come over: it has one at a time in hand
/// there, but the node still forwards those before it.
#[test]
fn a_message_that_waits_goes_on_when_one_before_it_on_its_connection_is_through() {
    let conn = RxId(7);
    // For a credit, then for a buffer.
    for (credits, len, fit) in [(8, 0, 8), (32, 0, 16), (32, 100, 16), (32, 5000, 2)] {
        let mut b = Bench::new(Profile::Default, credits);
        let hdr = Bench::hdr(B, len);
        for _ in 0..fit {
            let verdict = b.arrives_as(conn, A, &hdr);
            assert!(b.goes_on(verdict));
        }
        // Each in turn is the only one that the driver has in hand.
        for _ in 0..3 {
            assert!(matches!(b.arrives_as(conn, A, &hdr), Verdict::Defer));
            b.done();
            let mut resumed = b.resumed();
            assert_eq!(resumed.len(), 1, "{credits} credits, {len} bytes");
            let (rx, verdict) = resumed.remove(0);
            assert_eq!(rx, conn);
            assert!(b.goes_on(verdict));
            assert!(b.resumed().is_empty());
        }
        // The last one waits in vain: its connection is lost, and nothing else of it.
        assert!(matches!(b.arrives_as(conn, A, &hdr), Verdict::Defer));
        let (&ni, _) = b.w.hosts[0].nids.iter().find(|(_, n)| **n == nid(G1[0])).unwrap();
        b.w.hosts[0].node.rx_gone(b.w.now, ni, conn);
        for _ in 0..fit {
            b.done();
        }
        assert!(b.resumed().is_empty());
        assert_eq!(b.router_credits(A).0, credits as i32);
        assert_eq!(b.w.hosts[0].node.stats().msgs_alloc, 0);
    }
}

#[test]
fn c24_router_credits_are_the_networks_or_the_nodes_or_peer_credits() {
    for (own, global, expected) in [(0, 0, 8), (0, 5, 5), (3, 5, 3)] {
        let mut w = World::new();
        let t = NetTunables { peer_buffer_credits: own, ..NetTunables::SOCK };
        w.host_with(Profile::Kernel, &G1, t);
        w.hosts[0].node.set_tunables(w.now, &[("peer_buffer_credits", global)]).unwrap();
        w.hosts[0].node.peer_add(w.now, nid(A), &[], true, false).unwrap();
        let v = w.hosts[0].node.peer_view_of(nid(A)).unwrap();
        assert_eq!(v.nis[0].router_credits, expected);
    }
}

#[test]
fn c21_a_message_waits_for_a_buffer_of_its_size_and_others_pass() {
    let mut b = Bench::new(Profile::Default, 8);
    let large = Bench::hdr(B, 5000);
    assert!(b.passes(A, &large) && b.passes(A, &large));
    let (waits, verdict) = b.arrives("10.77.0.9@tcp", &large);
    assert!(matches!(verdict, Verdict::Defer));
    assert_eq!(b.credits(PoolKind::Large), -1);
    assert!(b.passes(A, &Bench::hdr(B, 0)) && b.passes(A, &Bench::hdr(B, 1)));
    assert_eq!((b.credits(PoolKind::Tiny), b.credits(PoolKind::Small)), (15, 15));
    // It is the payload's spans that go out: no copy is made.
    let crate::Payload::Spans(iov) = &b.w.held[0].1.payload else { panic!("bytes") };
    assert_eq!((iov.len(), iov[0].len), (1, 5000));
    b.done();
    let resumed = b.resumed();
    assert_eq!(resumed[0].0, waits);
    let Verdict::Deliver { sink: Sink::Spans(iov), .. } = &resumed[0].1 else { panic!() };
    assert_eq!(iov[0].len, 5000);
    // T-33: what was reached stays on record.
    let pools = b.w.hosts[0].node.routing_view().pools;
    assert_eq!(pools.map(|p| p.mincredits), [15, 15, -1]);
}

#[test]
fn a_connection_that_is_lost_while_its_message_waits_takes_it_along() {
    let mut b = Bench::new(Profile::Default, 1);
    let hdr = Bench::hdr(B, 100);
    assert!(b.passes(A, &hdr));
    let (second, _) = b.arrives(A, &hdr);
    let (third, _) = b.arrives(A, &hdr);
    let (&ni, _) = b.w.hosts[0].nids.iter().find(|(_, n)| **n == nid(G1[0])).unwrap();
    let now = b.w.now;
    b.w.hosts[0].node.rx_gone(now, ni, second);
    assert_eq!(b.router_credits(A), (-1, -2));
    b.done();
    assert_eq!(b.resumed().into_iter().map(|r| r.0).collect::<Vec<_>>(), [third]);
}

#[test]
fn c26_routing_switched_off_with_messages_waiting_drops_them_without_blame() {
    let mut b = Bench::new(Profile::Default, 2);
    let hdr = Bench::hdr(B, 100);
    assert!(b.passes(A, &hdr) && b.passes(A, &hdr));
    let waiting: Vec<_> = (0..3).map(|_| b.arrives(A, &hdr).0).collect();
    let now = b.w.now;
    b.w.hosts[0].node.disable_routing(now).unwrap();
    // What it has it still forwards.
    b.w.now += Duration::from_secs(14);
    let now = b.w.now;
    b.w.hosts[0].node.handle_timeout(now);
    assert_eq!(b.w.hosts[0].node.routing_state(), RoutingState::Stopping);
    b.w.now += Duration::from_secs(1);
    let now = b.w.now;
    b.w.hosts[0].node.handle_timeout(now);
    assert_eq!(b.w.hosts[0].node.routing_state(), RoutingState::Disabled, "patience has an end");
    let resumed = b.resumed();
    assert_eq!(resumed.iter().map(|r| r.0).collect::<Vec<_>>(), waiting);
    assert!(resumed.iter().all(|r| matches!(r.1, Verdict::Drop(DropReason::NotRouter))));
    assert_eq!(b.drops(), [(DropReason::NotRouter, 3)]);
    let from = b.w.hosts[0].node.peer_view_of(nid(A)).unwrap();
    assert_eq!((from.nis[0].health, from.nis[0].router_credits), (1000, 0));
    assert_eq!(b.w.hosts[0].released.len(), 1, "two small buffers are still in use");
    b.done();
    b.done();
    b.resumed();
    assert_eq!(b.w.hosts[0].released.len(), 2);
    assert_eq!(b.router_credits(A), (2, -3));
    // And now nothing is taken any more.
    assert!(matches!(b.arrives(A, &hdr).1, Verdict::Drop(DropReason::NotRouter)));
}

#[test]
fn r28_buffers_are_more_at_once_and_fewer_as_they_return() {
    let mut b = Bench::new(Profile::Default, 8);
    let large = Bench::hdr(B, 5000);
    for _ in 0..2 {
        assert!(b.passes(A, &large));
    }
    let (waits, _) = b.arrives(A, &large);
    let now = b.w.now;
    let w = &mut b.w;
    let h = &mut w.hosts[0];
    h.node.set_tunables(now, &[("large_buffers", 3)]).unwrap();
    h.node.fit_router_buffers(now, &mut h.mem).unwrap();
    assert_eq!(b.resumed()[0].0, waits, "the new buffer is for who waited");
    let h = &mut b.w.hosts[0];
    h.node.set_tunables(now, &[("large_buffers", 1)]).unwrap();
    h.node.fit_router_buffers(now, &mut h.mem).unwrap();
    assert_eq!(h.node.routing_view().pools[2].nbuffers, 3);
    b.done();
    b.done();
    assert_eq!(b.w.hosts[0].node.routing_view().pools[2].nbuffers, 2);
    assert_eq!(b.credits(PoolKind::Large), 1);
    // Refused memory: the number is what it was.
    struct None;
    impl crate::RouterMemory for None {
        fn register(&mut self, _: u32) -> Result<lnet_types::RegionId, Errno> {
            Err(Errno::ENOMEM)
        }
    }
    let node = &mut b.w.hosts[0].node;
    node.set_tunables(now, &[("large_buffers", 9)]).unwrap();
    assert_eq!(node.fit_router_buffers(now, &mut None), Err(Errno::ENOMEM));
    assert_eq!(node.tunables().large_buffers, 1);
    let mut w = World::new();
    let r = w.host(Profile::Default, &G1);
    assert_eq!(w.hosts[r].node.enable_routing(w.now, &mut None), Err(Errno::ENOMEM));
    assert_eq!(w.hosts[r].node.routing_state(), RoutingState::Disabled);
}

#[test]
fn c8b_what_is_for_a_dead_neighbour_is_not_tried() {
    let mut b = Bench::new(Profile::Kernel, 8);
    let hdr = Bench::hdr(B, 100);
    // A sign of life, then a report of death.
    let _ = b.arrives(B, &Bench::hdr(A, 0)).1;
    let (&ni, _) = b.w.hosts[0].nids.iter().find(|(_, n)| **n == nid(G1[1])).unwrap();
    let now = b.w.now;
    b.w.hosts[0].node.peer_down(now, ni, nid(B), now);
    let view = b.w.hosts[0].node.peer_view_of(nid(B)).unwrap();
    assert_eq!(view.nis[0].state, PeerNiState::Down);
    assert!(b.passes(A, &hdr));
    assert!(b.w.held.is_empty(), "nothing sent");
    let s = b.w.hosts[0].node.stats();
    assert_eq!((s.drop_count, s.drop_length, s.remote_dropped_count), (1, 100, 1));
    assert_eq!(b.router_credits(A).0, 8);
    // It speaks: it is alive.
    let _ = b.arrives(B, &Bench::hdr(A, 0)).1;
    assert!(b.passes(A, &hdr));
    assert_eq!(b.w.held.len(), 1);
}

/// It may be up again without sending, and without discovery no node pings it.
#[test]
fn a_dead_neighbour_is_tried_now_and_then_and_is_alive_when_that_goes_well() {
    for (profile, tries) in [(Profile::Default, true), (Profile::Kernel, false)] {
        let mut b = Bench::new(profile, 8);
        let hdr = Bench::hdr(B, 100);
        let _ = b.arrives(B, &Bench::hdr(A, 0)).1;
        let (&ni, _) = b.w.hosts[0].nids.iter().find(|(_, n)| **n == nid(G1[1])).unwrap();
        b.w.hosts[0].node.peer_down(b.w.now, ni, nid(B), b.w.now);
        let goes = |b: &mut Bench| {
            let before = b.w.held.len();
            assert!(b.passes(A, &hdr));
            b.w.held.len() > before
        };
        assert!(!goes(&mut b));
        b.w.secs(9);
        assert!(!goes(&mut b), "it has just been found dead");
        b.w.secs(1);
        assert_eq!([goes(&mut b), goes(&mut b)], [tries, false], "{profile:?}");
        if tries {
            while !b.w.held.is_empty() {
                b.done();
            }
            assert!(goes(&mut b), "that one went well");
        }
    }
}

#[test]
fn s13_the_last_router_may_choose_another_interface_of_a_sick_multi_rail_destination() {
    let second = "10.77.1.7@tcp1";
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.host(Profile::Default, &[B, second]);
    let r = w.router(Profile::Default, &G1);
    w.route(0, "tcp1", G1[0]);
    w.route(1, "tcp", G1[1]);
    w.secs(1);
    w.discovered(0, B);
    w.discovered(r, B);
    let sick = nid(B);
    w.decide = Box::new(move |t| {
        if t.to.nid == sick {
            Fate::Fail(Fault::new(HealthStatus::RemoteDropped, Errno::ECONNREFUSED))
        } else {
            Fate::Pass
        }
    });
    // Only one of these is asked of the sick side; the router finds that out, and a way round.
    for i in 0..6 {
        w.put(0, B, i, true);
        w.run(Duration::from_millis(20));
        assert_eq!(w.events(0, i).len(), 2, "{i}");
    }
    let forwarded = w.test_hops(r);
    assert!(forwarded.iter().filter(|n| **n == sick).count() <= 2, "{forwarded:?}");
    assert_eq!(w.hosts[r].node.stats().drop_count, 0);
}

#[test]
fn a_forwarded_message_does_not_wait_for_the_discovery_of_its_receiver() {
    for profile in [Profile::Default, Profile::Off, Profile::Kernel] {
        let mut b = Bench::new(profile, 8);
        let mut hdr = Bench::hdr(B, 0);
        hdr.kind =
            Kind::Put { ack: Handle::NONE, match_bits: BITS, hdr_data: 0, portal: PT, offset: 0 };
        assert!(b.passes(A, &hdr));
        let sent: Vec<_> = b.w.held.iter().map(|(_, t)| (t.to.nid, t.hdr.src)).collect();
        let went_on = sent.contains(&(nid(B), nid(A)));
        assert_eq!(went_on, profile != Profile::Kernel, "{profile:?}: {sent:?}");
        assert!(sent.contains(&(nid(B), nid(G1[1]))), "{profile:?}: it is asked all the same");
    }
}

#[test]
fn a_message_that_can_not_be_forwarded_is_dropped_and_counted_by_reason() {
    let mut b = Bench::new(Profile::Default, 8);
    // No route there.
    let hdr = Bench::hdr("10.77.9.3@tcp9", 100);
    assert!(b.passes(A, &hdr), "its buffer was free, the rest shows later");
    // Our own message has come round.
    let circle = Hdr { src: nid(G1[1]), ..Bench::hdr("10.77.9.3@tcp9", 0) };
    assert!(matches!(b.arrives(A, &circle).1, Verdict::Drop(DropReason::RoutingLoop)));
    // For the far side of this router: the neighbour should know, who is behind it can not.
    let own = Bench::hdr(G1[1], 0);
    let close = Verdict::Close(PeerMisbehaved::WrongInterface(nid(G1[1])));
    assert_eq!(format!("{:?}", b.arrives(A, &own).1), format!("{close:?}"));
    let other = Hdr { src: nid("10.77.7.1@tcp7"), ..own };
    assert!(matches!(b.arrives(A, &other).1, Verdict::Drop(DropReason::OtherInterface)));
    let wrong = Bench::hdr("10.77.0.99@tcp", 0);
    assert!(matches!(b.arrives(A, &wrong).1, Verdict::Close(PeerMisbehaved::WrongNid(_))));
    let drops =
        [(DropReason::RoutingLoop, 1), (DropReason::NoRoute, 1), (DropReason::OtherInterface, 1)];
    assert_eq!(b.drops(), drops);
    assert_eq!(b.router_credits(A), (8, 7));
    assert_eq!(b.w.hosts[0].node.peer_view_of(nid(A)).unwrap().nis[0].health, 1000);
}

#[test]
fn tries_of_a_dead_neighbour_cost_the_interface_of_the_router_nothing() {
    let lost = Fault::new(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT);
    for (is_dead, health) in [(false, 900), (true, 1000)] {
        let mut b = Bench::new(Profile::Default, 8);
        let hdr = Bench::hdr(B, 100);
        let _ = b.arrives(B, &Bench::hdr(A, 0)).1;
        if is_dead {
            let (&far, _) = b.w.hosts[0].nids.iter().find(|(_, n)| **n == nid(G1[1])).unwrap();
            b.w.hosts[0].node.peer_down(b.w.now, far, nid(B), b.w.now);
            assert!(b.passes(A, &hdr) && b.w.held.is_empty(), "found dead a moment ago");
            b.w.secs(10);
        }
        assert!(b.passes(A, &hdr));
        // Pings of the router itself wait beside it.
        let (_, sent) = b.w.held.iter().find(|(_, t)| t.hdr.src == nid(A)).unwrap();
        let msg = sent.msg;
        b.w.hosts[0].node.tx_done(b.w.now, msg, Err(lost));
        assert_eq!(b.w.ni_health(0, G1[1]), health, "dead {is_dead}");
    }
}

/// A driver may try for as long as its own limit says. Tries of dead neighbours that last so long hold the
/// credits of the node that sends there, and with them what that node sends to others.
#[test]
fn own_limit_of_an_interface_does_not_lengthen_the_try_of_a_dead_neighbour() {
    let secs = Duration::from_secs;
    for (own, dead, expected) in [
        (None, false, None),
        (None, true, None),
        (Some(secs(60)), false, Some(secs(60))),
        (Some(secs(60)), true, None),
        (Some(secs(1)), true, Some(secs(1))),
    ] {
        let mut b = Bench::new(Profile::Default, 8);
        let (&far, _) = b.w.hosts[0].nids.iter().find(|(_, n)| **n == nid(G1[1])).unwrap();
        b.w.hosts[0].node.set_lnd_timeout(far, own);
        let hdr = Bench::hdr(B, 100);
        let _ = b.arrives(B, &Bench::hdr(A, 0)).1;
        if dead {
            b.w.hosts[0].node.peer_down(b.w.now, far, nid(B), b.w.now);
            assert!(b.passes(A, &hdr) && b.w.held.is_empty(), "found dead a moment ago");
            b.w.secs(10);
        }
        assert!(b.passes(A, &hdr));
        // Pings of the router itself wait beside it.
        let (_, sent) = b.w.held.iter().find(|(_, t)| t.hdr.src == nid(A)).unwrap();
        let t = b.w.hosts[0].node.tunables();
        let share = t.attempt_of(t.forward_limit(), 1);
        assert!(share <= secs(5), "{share:?}");
        assert_eq!(sent.timeout, expected.unwrap_or(share), "own {own:?}, dead {dead}");
    }
}

#[test]
fn a_message_is_never_sent_back_where_it_came_from() {
    // Two routers, each of which believes that the other leads to tcp9.
    let mut w = World::new();
    w.router(Profile::Default, &[G1[0]]);
    w.router(Profile::Default, &[G2[0]]);
    w.host(Profile::Default, &[A]);
    w.route(0, "tcp9", G2[0]);
    w.route(1, "tcp9", G1[0]);
    w.route(2, "tcp9", G1[0]);
    for h in 0..3 {
        w.hosts[h].node.set_tunables(w.now, &[("avoid_asym_router_failure", 0)]).unwrap();
    }
    w.secs(2);
    let target = lnet_types::ProcessId::lustre(nid("10.77.9.1@tcp9"));
    w.hosts[2].node.ping(w.now, target, None, Duration::from_secs(1));
    w.secs(3);
    let hops = [0, 1].map(|r| w.hosts[r].node.stats().route_count);
    assert_eq!(hops, [1, 0], "forwarded once, then given up");
    let drops: Vec<_> = w.hosts[1].node.drops().collect();
    assert_eq!(drops, [(DropReason::NoRoute, 1)]);
}

#[test]
fn hl050_a_router_tries_its_other_interface_and_the_source_stays() {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.host(Profile::Default, &[B]);
    let r = w.router(Profile::Default, &[G1[0], G1[1], "10.77.1.9@tcp1"]);
    w.route(0, "tcp1", G1[0]);
    w.route(1, "tcp", G1[1]);
    w.secs(1);
    w.discovered(0, B);
    let mut left = 1;
    w.decide = Box::new(move |t| {
        if matches!(t.hdr.kind, Kind::Put { portal: PT, .. }) && t.to.nid == nid(B) && left > 0 {
            left -= 1;
            Fate::Fail(Fault::new(HealthStatus::LocalTimeout, Errno::ETIMEDOUT))
        } else {
            Fate::Pass
        }
    });
    w.hosts[r].sent.clear();
    w.hosts[r].hops.clear();
    w.put(0, B, 1, true);
    w.secs(1);
    assert_eq!(w.events(0, 1).len(), 2);
    let test = |h: &Hdr| matches!(h.kind, Kind::Put { portal: PT, .. });
    let sent: Vec<_> = w.hosts[r].sent.iter().filter(|s| test(&s.1)).collect();
    assert_eq!(sent.len(), 2);
    assert_ne!(sent[0].0, sent[1].0, "the other interface");
    assert!(sent.iter().all(|s| s.1.src == nid(A)), "for B it is from A all the same");
    assert_eq!(w.hosts[r].node.stats().resend_count, 1);
    assert_eq!(w.hosts[0].node.stats().resend_count, 0, "each hop for itself");
}

#[test]
fn rs091_a_message_lost_behind_a_router_shows_only_in_the_routers_counters() {
    let mut w = world(Profile::Default, &[G1]);
    let unreachable = nid(B);
    w.decide = Box::new(move |t| {
        if t.to.nid == unreachable {
            Fate::Fail(Fault::new(HealthStatus::RemoteError, Errno::EHOSTUNREACH))
        } else {
            Fate::Pass
        }
    });
    w.put(0, B, 1, false);
    w.secs(1);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)], "the router has it");
    assert_eq!(w.hosts[0].node.stats().resend_count, 0);
    let drops: Vec<_> = w.hosts[2].node.drops().collect();
    assert_eq!(drops, [(DropReason::ForwardFailed, 1)]);
    assert_eq!((w.hosts[2].node.stats().rst_alloc, w.hosts[2].events.len()), (0, 0));
}

/// A PUT with ACK every 2 ms for 1.2 s; after 0.4 s one of two routers dies in the way
/// that `how` plays. The worst time from PUT to ACK, and how many ended without.
fn dies(how: fn(Nid) -> Fate) -> (Duration, usize) {
    let mut w = world(Profile::Default, &[G1, G2]);
    w.latency = Duration::from_micros(100);
    let mut waiting = Vec::new();
    let (mut worst, mut lost) = (Duration::ZERO, 0);
    for i in 0..600u64 {
        if i == 200 {
            w.hosts[2].alive = false;
            let dead = G1.map(nid);
            w.decide = Box::new(
                move |t| {
                    if dead.contains(&t.to.nid) { how(t.to.nid) } else { Fate::Pass }
                },
            );
            let now = w.now;
            // Both neighbours' drivers see their connections closed.
            for (host, far) in [(0, dead[0]), (1, dead[1])] {
                let ni = *w.hosts[host].nids.keys().next().unwrap();
                w.hosts[host].node.peer_down(now, ni, far, now);
            }
        }
        w.put(0, B, 1000 + i, true);
        waiting.push((1000 + i, w.now));
        for _ in 0..4 {
            w.run(Duration::from_micros(500));
            let h = &w.hosts[0];
            waiting.retain(|&(user, since)| {
                let acked = h
                    .events
                    .iter()
                    .rev()
                    .take(200)
                    .any(|e| e.user == user && e.kind == EventKind::Ack);
                if acked {
                    worst = worst.max(w.now.saturating_since(since));
                }
                !acked
            });
        }
    }
    w.run(Duration::from_millis(300));
    for (user, since) in waiting {
        match w.events(0, user).iter().any(|e| e.0 == EventKind::Ack) {
            true => worst = worst.max(w.now.saturating_since(since)),
            false => lost += 1,
        }
    }
    (worst, lost)
}

#[test]
fn a_router_that_dies_under_load_costs_what_was_inside_it_and_no_more() {
    let refused = |_| Fate::Fail(Fault::new(HealthStatus::RemoteDropped, Errno::ECONNREFUSED));
    let (worst, lost) = dies(refused);
    // What the router had taken is gone (RS-110); everything else arrives.
    assert!(lost <= 2, "{lost} lost");
    assert!(worst <= Duration::from_millis(300), "{worst:?}");
    let (worst, lost) = dies(|_| Fate::Lose);
    assert!(lost <= 2, "{lost} lost");
    assert!(worst <= Duration::from_millis(300), "{worst:?}");
}

#[test]
fn a_routers_interface_can_go_while_messages_wait_there() {
    let mut b = Bench::new(Profile::Default, 1);
    let hdr = Bench::hdr(B, 100);
    assert!(b.passes(A, &hdr));
    let (waits, _) = b.arrives(A, &hdr);
    let (&ni, _) = b.w.hosts[0].nids.iter().find(|(_, n)| **n == nid(G1[0])).unwrap();
    let now = b.w.now;
    b.w.hosts[0].node.del_ni(now, ni).unwrap();
    let resumed = b.resumed();
    assert_eq!(resumed[0].0, waits);
    assert!(matches!(resumed[0].1, Verdict::Drop(_)));
    b.done();
    assert_eq!(b.credits(PoolKind::Small), 16);
    assert!(b.w.hosts[0].node.msgs.is_empty());
}

#[test]
fn a_router_that_is_shut_down_gives_all_memory_back() {
    let mut mem = Mem::default();
    let mut w = World::new();
    let r = w.host(Profile::Default, &G1);
    w.hosts[r].node.enable_routing(w.now, &mut mem).unwrap();
    w.hosts[r].node.shutdown(w.now);
    let mut released = 0;
    while let Some(o) = w.hosts[r].node.poll_output() {
        released += usize::from(matches!(o, crate::Output::Release(_)));
    }
    assert_eq!((released, mem.0.len()), (68, 68), "64 MiB and 1 GiB in slabs of 16 MiB");
}

/// Neighbours name memory to destinations alone. A GET_REQ for another node, from one that does otherwise,
/// is passed on; its REPLY comes back as a message.
#[test]
fn a_get_that_names_memory_to_a_router_is_passed_on_as_a_message() {
    let mut bench = Bench::new(Profile::Default, 8);
    let ret = Handle { interface: 1, object: 2 };
    let sink_len = 65_536;
    let kind = Kind::Get { ret, match_bits: BITS, portal: 0, offset: 0, sink_len, pad: [0; 4] };
    let hdr = Hdr { kind, ..Bench::hdr(B, 0) };
    let Verdict::Deliver { msg, .. } = bench.arrives(A, &hdr).1 else { panic!("not let in") };
    bench.w.hosts[0].node.rx_asked(bench.w.now, msg);
    bench.w.drain();
    let sent: Vec<_> = bench.w.held.iter().map(|(_, t)| (t.hdr.kind, t.sink.len())).collect();
    assert_eq!(sent, [(kind, 0)]);
}
