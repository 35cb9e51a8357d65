//! What routers that die, and sides of routers that die, cost until they are found out, and how
//! they come back.

use super::*;
use crate::Link;
use lnet_types::Nid;

const A: &str = "10.77.0.2@tcp";
const B: &str = "10.77.1.3@tcp1";
const G: [&str; 2] = ["10.77.0.4@tcp", "10.77.1.4@tcp1"];

/// A on tcp, B on tcp1, a router between them as the documents have it: pings alone tell.
fn routed(profile: Profile) -> World {
    let mut w = World::new();
    for n in [A, B] {
        let host = w.host(profile, &[n]);
        set(&mut w, host, &[("discovery", 0)]);
    }
    w.router(profile, &G);
    w.route_with(0, "tcp1", G[0], Some(1), 0);
    w.route_with(1, "tcp", G[1], Some(1), 0);
    w.secs(125);
    // The first message to an unknown peer starts its discovery.
    w.put(0, B, 99, false);
    w.secs(1);
    for h in &mut w.hosts {
        h.sent.clear();
        h.hops.clear();
    }
    assert!(w.route_up(0, "tcp1", G[0]) && w.route_up(1, "tcp", G[1]));
    w
}

/// Nothing crosses the network behind the router, in either direction.
fn cut_behind(w: &mut World) {
    let far = [nid(B), nid(G[1])];
    w.decide = Box::new(move |t| if far.contains(&t.to.nid) { Fate::Lose } else { Fate::Pass });
}

fn far_side_up(w: &World) -> bool {
    w.hosts[2].node.net_views()[2].nis[0].up
}

/// Seconds until `so`, looked at four times a second.
fn seconds_until(w: &mut World, so: impl Fn(&World) -> bool) -> f64 {
    let begin = w.now;
    while !so(w) {
        w.run(MS * 250);
        assert!(w.now.saturating_since(begin) < Duration::from_secs(600), "never");
    }
    w.now.saturating_since(begin).as_secs_f64()
}

/// PA-052: until the far side is known to be dead, what goes there is lost. PA-066, PA-067, PA-068:
/// the peers' own pings bring it back, the router says so from the first message on, and the next
/// node that queries it uses the route again.
#[test]
fn a_side_of_a_router_that_was_cut_off_comes_back_by_the_pings_of_its_own_network() {
    for phase in [0, 17, 42] {
        let mut w = routed(Profile::Documents);
        w.secs(phase);
        cut_behind(&mut w);
        w.put(0, B, 1, true);
        w.secs(6);
        assert!(w.route_up(0, "tcp1", G[0]), "not yet noticed");
        let lost = [(EventKind::Send, true, false), (EventKind::Unlink, true, true)];
        assert_eq!(w.events(0, 1), lost);
        seconds_until(&mut w, |w| !w.route_up(0, "tcp1", G[0]));
        assert!(!far_side_up(&w));
        // B has found out as well, and asks at the interval for dead gateways.
        seconds_until(&mut w, |w| !w.route_up(1, "tcp", G[1]));
        w.secs(phase);
        w.decide = Box::new(|_| Fate::Pass);
        let took = seconds_until(&mut w, far_side_up);
        assert!(took <= 60.25, "{took} s for the router's side");
        let took = seconds_until(&mut w, |w| w.route_up(0, "tcp1", G[0]));
        assert!(took <= 60.25, "{took} s for the route");
        w.put(0, B, 2, true);
        w.secs(1);
        assert_eq!(w.events(0, 2), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
    }
}

/// PA-066: at the first message, whatever it is.
#[test]
fn the_first_message_from_outside_raises_a_routers_interface() {
    let mut w = routed(Profile::Documents);
    cut_behind(&mut w);
    seconds_until(&mut w, |w| !far_side_up(w));
    w.decide = Box::new(|_| Fate::Pass);
    let now = w.now;
    let target = lnet_types::ProcessId::lustre(nid(G[1]));
    w.hosts[1].node.ping(now, target, None, Duration::from_secs(1));
    w.run(MS * 2);
    assert!(far_side_up(&w));
}

/// where nodes do not announce the end of a failure by itself (H-92), a ping that comes in ends it.
#[test]
fn ping_raises_an_interface_whose_recovery_is_not_announced() {
    let mut w = World::new();
    for n in [A, B] {
        w.host(Profile::Kernel, &[n]);
    }
    w.router(Profile::Kernel, &G);
    w.route_with(0, "tcp1", G[0], Some(1), 0);
    w.route_with(1, "tcp", G[1], Some(1), 0);
    w.secs(125);
    assert!(w.route_up(0, "tcp1", G[0]));
    // Nothing is heard from B while the failure lasts; a change of the other link lets A know.
    w.decide = Box::new(|t| if t.to.nid == nid(G[1]) { Fate::Lose } else { Fate::Pass });
    let now = w.now;
    w.hosts[2].node.set_ni_health(now, Some(nid(G[1])), 0);
    for link in [Link::Down, Link::Up] {
        w.link(2, G[0], link);
        w.secs(2);
    }
    assert!(!w.route_up(0, "tcp1", G[0]), "A knows");
    w.decide = Box::new(|_| Fate::Pass);
    let (now, target) = (w.now, lnet_types::ProcessId::lustre(nid(G[1])));
    w.hosts[1].node.ping(now, target, None, Duration::from_secs(1));
    w.run(MS * 20);
    assert!(far_side_up(&w) && w.route_up(0, "tcp1", G[0]));
}

/// PA-141: a router asks no router, and judges its interfaces by the same intervals.
#[test]
fn a_router_sends_no_pings_of_its_own() {
    let mut w = routed(Profile::Documents);
    w.hosts[2].sent.clear();
    w.secs(300);
    let own = w.hosts[2].sent.iter().filter(|(_, h)| matches!(h.kind, Kind::Get { .. }));
    assert_eq!(own.count(), 0);
    let t = w.hosts[2].node.tunables();
    let (interval, timeout) = (t.live_router_check_interval, t.router_ping_timeout);
    let last = w.hosts[2].node.nis.nets()[2].last_alive;
    w.hosts[1].node.del_route(w.now, None, None).unwrap();
    seconds_until(&mut w, |w| !far_side_up(w));
    let silent = w.now.saturating_since(last).as_secs_f64();
    let limit = (interval + timeout) as f64;
    assert!((limit..=limit + 60.5).contains(&silent), "{silent} s, and {limit} s are allowed");
}

/// PA-062, PA-042: what goes to a dead router before it is known to be one, and what that holds.
#[test]
fn a_dead_router_takes_messages_and_credits_until_it_is_found_out() {
    let mut w = routed(Profile::Pre213);
    w.hosts[2].alive = false;
    let dead = nid(G[0]);
    // The driver has them, and will not get rid of them.
    w.decide = Box::new(move |t| {
        let stuck = t.to.nid == dead && is_request(&t.hdr);
        if stuck { Fate::Hold } else { Fate::Lose }
    });
    let credits = |w: &World| {
        let v = w.hosts[0].node.peer_view_of(dead).unwrap();
        (v.nis[0].credits, v.nis[0].credits_max)
    };
    assert_eq!(credits(&w), (8, 8));
    let to_dead = |w: &World| w.test_hops(0).iter().filter(|n: &&Nid| **n == dead).count();
    for i in 0..8 {
        w.put(0, B, i, false);
        assert_eq!(to_dead(&w), i as usize + 1, "still the next hop");
        assert_eq!(credits(&w).0, 7 - i as i32, "and one credit less each time");
    }
    w.put(0, B, 8, false);
    assert_eq!((to_dead(&w), credits(&w).0), (8, -1), "and the next one waits for them");
    // Its driver gives up, and there is another router by now: each is sent again.
    let other = ["10.77.0.5@tcp", "10.77.1.5@tcp1"];
    w.router(Profile::Pre213, &other);
    w.route_with(0, "tcp1", other[0], Some(1), 0);
    w.run(MS * 10);
    for (_, t) in core::mem::take(&mut w.held) {
        let now = w.now;
        w.hosts[0].node.tx_done(now, t.msg, Err(fault(HealthStatus::LocalTimeout)));
        w.drain();
    }
    let by_other = w.test_hops(0).iter().filter(|n| **n == nid(other[0])).count();
    assert_eq!((by_other, w.hosts[0].node.stats().resend_count), (4, 8), "in plain turns");
}

/// PA-063: one router for three networks of two kinds.
#[test]
fn the_router_of_the_documents_with_two_o2ib_networks_and_gni() {
    let router = ["10.100.0.0@o2ib", "10.100.1.1@o2ib1", "27@gni"];
    let servers = ["10.100.0.9@o2ib", "10.100.1.9@o2ib1"];
    let mut w = World::new();
    let client = w.host(Profile::Documents, &["5@gni"]);
    for s in servers {
        w.host(Profile::Documents, &[s]);
    }
    w.router(Profile::Documents, &router);
    for (host, gateway) in [(1, router[0]), (2, router[1])] {
        w.route(host, "gni", gateway);
    }
    for net in ["o2ib", "o2ib1"] {
        w.route(client, net, router[2]);
    }
    w.secs(1);
    for (i, s) in servers.into_iter().enumerate() {
        let net = nid(s).net().to_string();
        assert!(w.route_up(client, &net, router[2]), "{net}");
        w.put(client, s, i as u64, true);
        w.secs(1);
        assert_eq!(w.events(client, i as u64).len(), 2, "{s}");
    }
    assert_eq!(w.test_hops(client), [nid(router[2]); 2]);
}

/// Free buffers of 4 KiB in a router after ten messages to each of ten clients that died, with
/// aliveness on or off.
fn free_buffers_with_dead_clients(aliveness: bool) -> i32 {
    let peer_timeout = if aliveness { NetTunables::SOCK.peer_timeout } else { 0 };
    let tunables = NetTunables { peer_timeout, credits: 8, ..NetTunables::SOCK };
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    let r = w.host_with(Profile::Default, &G, tunables);
    let buffers = [("tiny_buffers", 64), ("small_buffers", 64), ("large_buffers", 4)];
    set(&mut w, r, &buffers);
    set(&mut w, r, &[("peer_buffer_credits", 1000)]);
    let (now, h) = (w.now, &mut w.hosts[r]);
    h.node.enable_routing(now, &mut h.mem).unwrap();
    w.drain();
    w.route(0, "tcp1", G[0]);
    let clients: Vec<String> = (1..=10).map(|n| format!("10.77.1.{}@tcp1", 100 + n)).collect();
    for (i, client) in clients.iter().enumerate() {
        let host = w.host(Profile::Default, &[client]);
        w.route(host, "tcp", G[1]);
        w.secs(1);
        w.put(0, client, 1000 + i as u64, true);
        w.secs(1);
        assert_eq!(w.events(0, 1000 + i as u64).len(), 2);
    }
    let far = ni(&w, r, G[1]);
    for client in &clients {
        let now = w.now;
        w.hosts[r].node.peer_down(now, far, nid(client), now);
    }
    let dead: Vec<Nid> = clients.iter().map(|c| nid(c)).collect();
    w.decide = Box::new(move |t| if dead.contains(&t.to.nid) { Fate::Hold } else { Fate::Pass });
    for i in 0..100 {
        w.put(0, &clients[i as usize % 10], i, false);
        w.run(MS);
    }
    w.hosts[r].node.routing_view().pools[1].credits
}

/// PA-109.
#[test]
fn dead_clients_hold_no_buffers_of_a_router_that_knows_them_to_be_dead() {
    assert_eq!(free_buffers_with_dead_clients(true), 64);
    let left = free_buffers_with_dead_clients(false);
    assert!(left <= 0, "{left}");
}
