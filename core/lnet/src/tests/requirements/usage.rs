//! Heat, rates, times and transitions per interface; sums over networks and peers; resets of parts.

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::{Link, Profile, Reset};

fn ni_view(w: &World, host: usize, n: &str) -> crate::NiView {
    let views = w.hosts[host].node.net_views();
    views.into_iter().flat_map(|v| v.nis).find(|v| v.nid == nid(n)).unwrap()
}

fn peer_view(w: &World, host: usize, n: &str) -> crate::PeerNiView {
    let v = w.hosts[host].node.peer_view_of(nid(n)).unwrap();
    v.nis.into_iter().find(|v| v.nid == nid(n)).unwrap()
}

/// MR-dbg-070, MR-dbg-075.
#[test]
fn heat_rises_with_use_and_halves_every_minute_without() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    let heat =
        |w: &World| (ni_view(w, 0, A[0]).usage.heat_milli, peer_view(w, 0, B[0]).usage.heat_milli);
    assert_eq!(heat(&w), (0, 0), "pings are not measured");
    for i in 0..100 {
        w.put(0, B[0], i, false);
        w.run(MS);
    }
    let (ours, theirs) = heat(&w);
    assert_eq!(ours, theirs);
    assert!((99_000..=100_000).contains(&ours), "{ours}");
    // The clock of a node moves with its inputs: here, by a timer.
    for expected in [ours / 2, ours / 4] {
        w.secs(60);
        let now = w.now;
        w.hosts[0].node.handle_timeout(now);
        let (ours, theirs) = heat(&w);
        assert_eq!(ours, theirs);
        assert!(ours.abs_diff(expected) * 50 <= expected, "{ours} for {expected}");
    }
}

/// MR-dbg-105.
#[test]
fn the_rate_of_an_interface_is_the_load_that_is_offered() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    // 50 PUTs of 100 bytes a second, each with an ACK.
    for i in 0..750 {
        w.put(0, B[0], i, true);
        w.run(MS * 20);
    }
    for rates in [ni_view(&w, 0, A[0]).usage.rates, peer_view(&w, 0, B[0]).usage.rates] {
        assert_eq!(rates.over_s, 10);
        assert!((450..=550).contains(&rates.sent), "{rates:?}");
        assert_eq!(rates.per_second(rates.sent), 50);
        assert_eq!(rates.per_second(rates.received), 50);
        assert_eq!(rates.per_second(rates.sent_bytes), 5000);
    }
}

/// HL-stt-030, HL-stt-035.
#[test]
fn sends_and_whole_operations_are_timed_per_interface_of_the_peer() {
    let mut w = nodes(Profile::Default, &A[..1], &B[..1]);
    // One in ten is slow.
    for i in 0..100 {
        w.latency = MS * if i % 10 == 9 { 100 } else { 10 };
        w.put(0, B[0], i, true);
        w.get(0, B[0], 1000 + i);
        w.run(MS * 500);
    }
    for usage in [peer_view(&w, 0, B[0]).usage, ni_view(&w, 0, A[0]).usage] {
        let (send, all) = (usage.send, usage.complete);
        assert_eq!((send.samples, all.samples), (200, 200));
        assert_eq!((send.min, send.max, send.avg), (MS * 10, MS * 100, MS * 19));
        assert_eq!((all.min, all.max, all.avg), (MS * 20, MS * 200, MS * 38));
        for (time, one_way) in [(send, 1), (all, 2)] {
            let near = |got: Duration, ms: u32| {
                let exact = MS * ms * one_way;
                assert!(got.abs_diff(exact) * 8 <= exact, "{got:?} for {exact:?}");
            };
            near(time.p50, 10);
            near(time.p90, 10);
            near(time.p99, 100);
        }
    }
}

/// HL-stt-020, HL-stt-025.
#[test]
fn an_interface_that_goes_down_and_up_twice_is_counted_so_here_and_at_the_peer() {
    let mut w = pair(Profile::Default);
    let dead = Rc::new(Cell::new(false));
    let seen = Rc::clone(&dead);
    w.decide = Box::new(move |t| match [t.to.nid, t.hdr.src].contains(&nid(A[1])) {
        true if seen.get() => Fate::Fail(fault(HealthStatus::LocalDropped)),
        _ => Fate::Pass,
    });
    for _ in 0..2 {
        dead.set(true);
        w.link(0, A[1], Link::Down);
        w.secs(1);
        dead.set(false);
        w.link(0, A[1], Link::Up);
        w.secs(1);
    }
    let t = ni_view(&w, 0, A[1]).transitions;
    assert_eq!((t.downs, t.ups), (2, 2));
    assert_eq!(ni_view(&w, 0, A[0]).transitions, crate::Transitions::default());
    let t = peer_view(&w, 1, A[1]).transitions;
    assert_eq!((t.downs, t.ups), (2, 2));
    assert_eq!(peer_view(&w, 1, A[0]).transitions, crate::Transitions::default());
}

#[test]
fn a_router_that_is_lost_and_comes_back_is_counted_so() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.router(Profile::Default, &["10.77.0.4@tcp", "10.77.1.4@tcp1"]);
    set(&mut w, 0, &[("alive_router_check_interval", 1), ("router_ping_timeout", 1)]);
    w.route(0, "tcp1", "10.77.0.4@tcp");
    w.secs(3);
    let seen = |w: &World| w.hosts[0].node.route_views()[0].transitions;
    let before = seen(&w);
    w.hosts[1].alive = false;
    w.secs(60);
    assert_eq!(seen(&w).downs, before.downs + 1);
    w.hosts[1].alive = true;
    w.secs(60);
    assert_eq!(seen(&w).ups, before.ups + 1);
}

/// MR-dbg-085, MR-dbg-090.
#[test]
fn the_sums_of_a_network_and_of_a_peer_are_those_of_their_interfaces() {
    let mut w = pair(Profile::Default);
    for i in 0..11 {
        w.put(0, B[0], i, true);
        w.get(0, B[0], 100 + i);
        w.run(MS * 10);
    }
    let net = w.hosts[0].node.net_views().remove(1);
    let sum = net.sum();
    assert!(net.nis.iter().all(|ni| ni.stats.sent.sum() > 0), "both were used");
    let each = |f: fn(&InterfaceStats) -> u64| net.nis.iter().map(|ni| f(&ni.stats)).sum::<u64>();
    assert_eq!(u64::from(sum.sent.sum()), each(|s| s.sent.sum().into()));
    assert_eq!(sum.sent.put + sum.sent.get, 22);
    assert_eq!((sum.received.ack, sum.received.reply), (11, 11));
    assert_eq!(sum.sent_bytes, each(|s| s.sent_bytes));
    assert_eq!(u64::from(sum.put_ack.samples), each(|s| s.put_ack.samples.into()));
    assert_eq!(
        sum.put_ack.max_nsec,
        net.nis.iter().map(|n| n.stats.put_ack.max_nsec).max().unwrap()
    );
    assert_eq!(w.hosts[0].node.peer_view_of(nid(B[0])).unwrap().sum().sent, sum.sent);
}

/// MR-dbg-040.
#[test]
fn the_interfaces_of_a_network_are_read_one_by_one() {
    let w = pair(Profile::Default);
    let at = |i| w.hosts[0].node.ni_view_at("tcp".parse().unwrap(), i).map(|v| v.nid);
    assert_eq!([at(0), at(1), at(2)], [Some(nid(A[0])), Some(nid(A[1])), None]);
    assert!(w.hosts[0].node.ni_view_at("tcp9".parse().unwrap(), 0).is_none());
}

/// HL-stt-040.
#[test]
fn one_interface_or_the_node_alone_is_reset_without_the_rest() {
    let mut w = pair(Profile::Default);
    fail_first(&mut w, 2, fault(HealthStatus::LocalTimeout));
    for i in 0..20 {
        w.put(0, B[0], i, true);
        w.run(MS * 10);
    }
    w.secs(10);
    for i in 0..20 {
        w.put(0, B[0], i, true);
        w.run(MS * 10);
    }
    w.link(0, A[0], Link::Down);
    w.link(0, A[0], Link::Up);
    let failures = |w: &World, n| ni_view(w, 0, n).failures.timeout;
    assert_eq!(A.map(|n| failures(&w, n)), [1, 1]);
    let node = &mut w.hosts[0].node;
    assert_eq!(
        node.reset_counters(Reset::Interface(nid("10.1.1.1@tcp")), true),
        Err(Errno::ENOENT)
    );
    node.reset_counters(Reset::Interface(nid(A[0])), false).unwrap();
    let v = ni_view(&w, 0, A[0]);
    assert_eq!(
        (v.stats, v.transitions),
        (InterfaceStats::default(), crate::Transitions::default())
    );
    assert_eq!(
        (v.usage.send.samples, failures(&w, A[0])),
        (0, 1),
        "failures stay unless asked for"
    );
    assert_ne!(ni_stats(&w, 0, A[1]), InterfaceStats::default());
    w.hosts[0].node.reset_counters(Reset::Interface(nid(A[1])), true).unwrap();
    assert_eq!(failures(&w, A[1]), 0);
    assert_ne!(peer_stats(&w, 0, B[0]), InterfaceStats::default());
    w.hosts[0].node.reset_counters(Reset::Interface(nid(B[0])), false).unwrap();
    assert_eq!(peer_stats(&w, 0, B[0]), InterfaceStats::default());
    assert_ne!(w.hosts[0].node.stats().send_count, 0);
    w.hosts[0].node.reset_counters(Reset::Node, false).unwrap();
    assert_eq!(w.hosts[0].node.stats().send_count, 0);
    assert_ne!(peer_stats(&w, 0, B[1]), InterfaceStats::default());
}

/// MR-dbg-035, MR-dbg-060.
#[test]
fn credits_show_the_depth_of_a_burst_here_and_at_the_peer() {
    let few = NetTunables { credits: 4, peer_credits: 2, ..NetTunables::SOCK };
    let mut w = World::new();
    w.host_with(Profile::Default, &A[..1], few);
    w.host_with(Profile::Default, &B[..1], few);
    w.discovered(0, B[0]);
    w.hosts[0].node.reset_peer_minima();
    w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Hold } else { Fate::Pass });
    for i in 0..5 {
        w.put(0, B[0], i, false);
    }
    let p = peer_view(&w, 0, B[0]);
    assert_eq!((p.credits_max, p.credits, p.credits_min, p.local), (2, -3, -3, true));
    assert_eq!(p.queued_bytes, 5 * 172);
    assert_eq!(ni_view(&w, 0, A[0]).credits, 2);
    for _ in 0..5 {
        w.release();
        w.run(MS * 5);
    }
    let p = peer_view(&w, 0, B[0]);
    assert_eq!((p.credits, p.credits_min, p.queued_bytes), (2, -3, 0));
    let v = ni_view(&w, 0, A[0]);
    assert_eq!((v.credits, v.credits_min), (4, 2));
    w.hosts[0].node.reset_ni_minima();
    w.hosts[0].node.reset_peer_minima();
    assert_eq!((ni_view(&w, 0, A[0]).credits_min, peer_view(&w, 0, B[0]).credits_min), (4, 2));
}

#[test]
fn a_peer_that_was_only_discovered_costs_little_memory() {
    let w = pair(Profile::Default);
    assert_eq!(peer_view(&w, 0, B[0]).usage, crate::Usage::default());
    let ni = size_of::<crate::peer::PeerNi>();
    assert!(ni <= 1024, "{ni} bytes");
}
