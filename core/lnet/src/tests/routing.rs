//! Using routers: routes, gateways, their aliveness, and the choice between them.

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, Instant, Nid, Pid, ProcessId};
use lnet_wire::Kind;
use lnet_wire::ping::PingInfo;

use super::world::{BITS, Fate, Mem, PT, World, nid};
use crate::{
    Criterion, EventKind, PeerNiState, Profile, RouteError, RouteSpec, RoutingState, Step, Tunables,
};

const A: &str = "10.77.0.2@tcp";
const B: &str = "10.77.1.3@tcp1";
const G1: [&str; 2] = ["10.77.0.4@tcp", "10.77.1.4@tcp1"];
const G2: [&str; 2] = ["10.77.0.5@tcp", "10.77.1.5@tcp1"];

/// A on tcp, B on tcp1, routers between them; discovery and first checks are over.
fn world(profile: Profile, routers: &[[&str; 2]]) -> World {
    let mut w = World::new();
    w.host(profile, &[A]);
    w.host(profile, &[B]);
    for g in routers {
        w.router(profile, g);
    }
    for g in routers {
        w.route(0, "tcp1", g[0]);
        w.route(1, "tcp", g[1]);
    }
    w.secs(1);
    w
}

fn forget(w: &mut World) {
    for h in &mut w.hosts {
        h.node.reset_stats();
        h.events.clear();
        h.sent.clear();
        h.hops.clear();
    }
}

fn ready(profile: Profile, routers: &[[&str; 2]]) -> World {
    let mut w = world(profile, routers);
    w.discovered(0, B);
    forget(&mut w);
    w
}

fn add(
    w: &mut World,
    net: &str,
    gateway: &str,
    hops: Option<u32>,
) -> Result<(), (Errno, RouteError)> {
    let spec = RouteSpec { net: net.parse().unwrap(), gateway: nid(gateway), hops, priority: 0 };
    w.hosts[0].node.add_route(w.now, spec).map_err(|e| (e.errno(), e))
}

#[test]
fn r01_routes_are_refused_as_on_kernel_nodes_and_the_reason_is_named() {
    let mut w = World::new();
    w.host(Profile::Kernel, &[A]);
    w.host(Profile::Kernel, &G1);
    add(&mut w, "tcp1", G1[0], None).unwrap();
    let table = [
        ("tcp1", G1[0], None, Errno::EEXIST),
        ("tcp", G1[0], None, Errno::EINVAL),
        ("tcp2", "10.77.1.9@tcp1", None, Errno::EHOSTUNREACH),
        ("tcp3", "10.77.0.9@tcp3", None, Errno::EINVAL),
        ("tcp4", G1[0], Some(0), Errno::EINVAL),
        ("tcp4", G1[0], Some(256), Errno::EINVAL),
        ("tcp4", A, None, Errno::EINVAL),
        ("tcp4", "0@lo", None, Errno::EINVAL),
        ("lo", G1[0], None, Errno::EINVAL),
    ];
    for (net, gateway, hops, errno) in table {
        let e = add(&mut w, net, gateway, hops).unwrap_err();
        assert_eq!(e.0, errno, "{net} by {gateway}: {}", e.1);
    }
    assert_eq!(
        add(&mut w, "tcp4", G1[0], Some(256)).unwrap_err().1.to_string(),
        "hop count 256: expected 1 to 255"
    );
    assert_eq!(add(&mut w, "tcp4", A, None).unwrap_err().1, RouteError::Oneself(nid(A)));
    // A local network can't be reached by a route, a network with routes can't become local.
    w.add_ni(0, "10.77.8.2@tcp8", crate::NetTunables::SOCK);
    assert_eq!(add(&mut w, "tcp8", G1[0], None).unwrap_err().0, Errno::EEXIST);
    let spec = crate::NiSpec {
        nid: nid("10.77.1.2@tcp1"),
        interface: None,
        tunables: crate::NetTunables::SOCK,
        lnd_timeout: None,
    };
    assert_eq!(w.hosts[0].node.add_ni(w.now, spec), Err(Errno::EUSERS));
}

#[test]
fn another_nid_of_the_same_gateway_is_a_duplicate_and_deletes_the_route_too() {
    let mut w = World::new();
    w.host(Profile::Kernel, &[A]);
    w.host(Profile::Kernel, &["10.77.0.4@tcp", "10.77.0.6@tcp"]);
    add(&mut w, "tcp1", "10.77.0.4@tcp", None).unwrap();
    w.secs(1);
    assert_eq!(add(&mut w, "tcp1", "10.77.0.6@tcp", None).unwrap_err().0, Errno::EEXIST);
    let node = &mut w.hosts[0].node;
    let (net, other) = ("tcp1".parse().unwrap(), Some(nid("10.77.0.6@tcp")));
    //
    assert_eq!(node.peer_del(w.now, nid("10.77.0.4@tcp"), &[], true), Err(Errno::EBUSY));
    let refused = node.peer_add(w.now, nid("10.77.0.4@tcp"), &[], true, false);
    assert_eq!(refused, Err(Errno::EBUSY), "its routes would go");
    let unknown = Some(nid("10.77.0.99@tcp"));
    assert_eq!(node.del_route(w.now, Some(net), unknown), Ok(()));
    assert_eq!(node.route_views().len(), 1);
    let tcp9 = "tcp9".parse().unwrap();
    let e = node.del_route(w.now, Some(tcp9), None).unwrap_err();
    assert_eq!(e.errno(), Errno::ENOENT);
    assert_eq!(node.del_route(w.now, Some(net), other), Ok(()));
    assert!(node.route_views().is_empty());
    assert_eq!(node.peer_del(w.now, nid("10.77.0.4@tcp"), &[], true), Ok(()));
}

#[test]
fn a_put_and_its_ack_travel_over_a_router_and_keep_their_source() {
    let mut w = world(Profile::Kernel, &[]);
    w.router(Profile::Kernel, &G1);
    // A kernel router announces itself after 110 s, if it is pinged meanwhile.
    w.route(0, "tcp1", G1[0]);
    w.route(1, "tcp", G1[1]);
    w.secs(1);
    assert!(!w.route_up(0, "tcp1", G1[0]));
    w.secs(171);
    assert!(w.route_up(0, "tcp1", G1[0]));
    forget(&mut w);
    w.put(0, B, 1, true);
    w.secs(1);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
    let put = w.hosts[1].events.iter().find(|e| e.kind == EventKind::Put).unwrap();
    assert_eq!((put.source.nid, put.sender, put.target.nid), (nid(A), nid(G1[1]), nid(B)));
    let ack = w.hosts[0].events.iter().find(|e| e.kind == EventKind::Ack).unwrap();
    assert_eq!((ack.source.nid, ack.sender), (nid(B), nid(G1[0])));
}

/// Bytes at the start of the test buffer of `host`.
fn buffer(w: &World, host: usize, n: usize) -> &[u8] {
    &w.hosts[host].mem.0[0][..n]
}

fn put_bytes(w: &mut World, host: usize, target: &str, bytes: Vec<u8>, user: u64) {
    let h = &mut w.hosts[host];
    let mut md = crate::MdSpec::new(h.mem.add(bytes), user);
    md.threshold = Some(2);
    md.unlink = crate::Unlink::Auto;
    let md = h.node.bind(md).unwrap();
    let put = crate::Put {
        md,
        ack: true,
        src: None,
        target: ProcessId::lustre(nid(target)),
        portal: PT,
        match_bits: BITS,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    };
    h.node.put(w.now, put).unwrap();
    w.drain();
}

#[test]
fn payload_is_the_same_byte_for_byte_behind_one_and_two_routers() {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.host(Profile::Default, &["10.77.2.3@tcp2"]);
    w.router(Profile::Default, &G1);
    w.router(Profile::Default, &["10.77.1.6@tcp1", "10.77.2.6@tcp2"]);
    w.host(Profile::Default, &[B]);
    w.route(0, "tcp1", G1[0]);
    w.route_with(0, "tcp2", G1[0], Some(2), 0);
    w.route(2, "tcp2", "10.77.1.6@tcp1");
    w.route(3, "tcp", G1[1]);
    w.route_with(1, "tcp", "10.77.2.6@tcp2", Some(2), 0);
    w.route(4, "tcp", G1[1]);
    w.secs(2);
    for (i, len) in [0usize, 1, 4096, 4097, 60_000].into_iter().enumerate() {
        for (host, target) in [(1, "10.77.2.3@tcp2"), (4, B)] {
            let bytes: Vec<u8> = (0..len).map(|x| (x * 7 + i) as u8).collect();
            let user = 100 * host as u64 + i as u64;
            put_bytes(&mut w, 0, target, bytes.clone(), user);
            w.secs(2);
            let ok = [(EventKind::Send, true, false), (EventKind::Ack, true, true)];
            assert_eq!(w.events(0, user), ok, "{len} bytes to {target}");
            assert_eq!(buffer(&w, host, len), bytes);
        }
    }
    // Reading back what was written last.
    w.get(0, "10.77.2.3@tcp2", 7);
    w.secs(1);
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false), (EventKind::Reply, true, true)]);
    assert_eq!(w.hosts[0].mem.0.last().unwrap(), &buffer(&w, 1, 100).to_vec());
    for router in [2, 3] {
        let v = w.hosts[router].node.routing_view();
        assert!(v.pools.iter().all(|p| p.credits == p.nbuffers as i32), "{v:?}");
    }
    // M-51
    let node = &w.hosts[0].node;
    let far = node.distance(nid("10.77.2.3@tcp2")).unwrap();
    assert_eq!((far.hops, far.source, far.order), (3, nid(A), 4));
    assert_eq!(node.distance(nid(G1[0])).unwrap().hops, 1);
    assert_eq!(node.distance(nid("10.77.9.3@tcp9")), Err(Errno::EHOSTUNREACH));
}

#[test]
fn ug064_a_router_counts_what_it_forwards() {
    let mut w = ready(Profile::Default, &[G1]);
    for i in 0..10 {
        put_bytes(&mut w, 0, B, vec![1; 4096], i);
        w.secs(1);
    }
    let s = w.hosts[2].node.stats();
    // Ten PUTs and their ACKs; what is sent and received for itself counts elsewhere.
    assert_eq!((s.route_count, s.route_length), (20, 40_960));
    assert_eq!((s.send_length, s.drop_count), (0, 0));
    let views = w.hosts[2].node.net_views();
    let kinds = |v: usize| views[v].nis[0].stats;
    // T-11: forwarded messages count under their real kind.
    assert_eq!((kinds(1).received.put, kinds(2).sent.put), (10, 10));
    assert_eq!((kinds(2).received.ack, kinds(1).sent.ack), (10, 10));
}

#[test]
fn the_path_of_a_response_is_that_of_its_request() {
    let mut w = world(Profile::Kernel, &[]);
    for g in [G1, G2] {
        w.router(Profile::Default, &g);
        w.route(0, "tcp1", g[0]);
        w.route(1, "tcp", g[1]);
    }
    w.secs(1);
    forget(&mut w);
    for i in 0..4 {
        w.put(0, B, i, true);
        w.secs(1);
    }
    let far = |n: &Nid| if *n == nid(G1[0]) { nid(G1[1]) } else { nid(G2[1]) };
    let forth: Vec<_> = w.test_hops(0).iter().map(far).collect();
    let h = &w.hosts[1];
    let acks = h.sent.iter().zip(&h.hops).filter(|((_, hdr), _)| hdr.dst == nid(A));
    let back: Vec<_> =
        acks.filter(|((_, h), _)| matches!(h.kind, Kind::Ack { match_bits: BITS, .. })).collect();
    let back: Vec<_> = back.into_iter().map(|(_, hop)| *hop).collect();
    assert_eq!(back, forth);
    assert_eq!(forth.iter().filter(|n| **n == nid(G1[1])).count(), 2, "they take turns");
}

#[test]
fn gateways_with_which_nothing_is_wrong_are_not_compared_for_each_message() {
    let names: Vec<[String; 2]> =
        (10..42).map(|n| [format!("10.77.0.{n}@tcp"), format!("10.77.1.{n}@tcp1")]).collect();
    let routers: Vec<[&str; 2]> = names.iter().map(|n| [n[0].as_str(), n[1].as_str()]).collect();
    let mut w = ready(Profile::Default, &routers);
    let compared = |w: &World| w.hosts[0].node.router.routes.compared.0.get();
    let before = compared(&w);
    for _ in 0..96 {
        w.put(0, B, 7, false);
        w.run(Duration::from_millis(10));
    }
    assert_eq!(compared(&w), before);
    let hops = w.test_hops(0);
    for g in &routers {
        assert_eq!(hops.iter().filter(|h| **h == nid(g[0])).count(), 3, "{} in its turn", g[0]);
    }
}

/// Routers used for eight PUTs, each complete before the next.
fn chosen(w: &mut World) -> Vec<Nid> {
    forget(w);
    for i in 0..8 {
        w.put(0, B, i, false);
        w.secs(1);
    }
    w.test_hops(0)
}

#[test]
fn x29_a_route_is_chosen_by_priority_life_and_health_and_equals_alternate() {
    let mut w = World::new();
    w.host(Profile::Kernel, &[A]);
    w.host(Profile::Default, &[B]);
    for g in [G1, G2] {
        w.router(Profile::Default, &g);
        w.route(1, "tcp", g[1]);
    }
    w.route_with(0, "tcp1", G1[0], None, 0);
    w.route_with(0, "tcp1", G2[0], None, 1);
    w.secs(1);
    w.discovered(0, B);
    let (g1, g2) = (nid(G1[0]), nid(G2[0]));
    assert_eq!(chosen(&mut w), [g1; 8], "the better priority");
    let dead = w.hosts[0].node.peers.owner(g1).unwrap();
    w.hosts[0].node.peers.peers[dead].gateway.life = super::super::router::life::Life::Dead;
    assert_eq!(chosen(&mut w), [g2; 8], "the one that is alive");
    w.secs(60);
    assert_eq!(chosen(&mut w), [g1; 8], "alive again after the next check");
    let net = "tcp1".parse().unwrap();
    w.hosts[0].node.del_route(w.now, Some(net), Some(g2)).unwrap();
    w.route_with(0, "tcp1", G2[0], None, 0);
    w.secs(1);
    let turns = chosen(&mut w);
    assert!(turns.windows(2).all(|p| p[0] != p[1]), "equals alternate: {turns:?}");
    // S-55.3, S-56; recovery would heal it between the messages.
    w.decide = Box::new(|t| {
        let ping = matches!(t.hdr.kind, Kind::Get { portal: 0, .. });
        if ping { Fate::Hold } else { Fate::Pass }
    });
    w.hosts[0].node.set_peer_ni_health(w.now, Some(g1), 900);
    assert_eq!(chosen(&mut w), [g2; 8], "the healthier gateway");
}

#[test]
fn a_router_rule_sends_what_is_for_a_peer_through_its_routers_while_they_live() {
    let mut w = ready(Profile::Default, &[G1, G2]);
    let (g1, g2) = (nid(G1[0]), nid(G2[0]));
    let rule = super::policy::rule("dst 10.77.1.3@tcp1 rte 10.77.0.5@tcp");
    w.hosts[0].node.udsp_add(w.now, rule, None).unwrap();
    assert_eq!(chosen(&mut w), [g2; 8]);
    let why = w.hosts[0].node.explain(nid(B), None, 100);
    let choice = &why.choices[0];
    assert_eq!(choice.step, Step::Gateway);
    let named: Vec<_> = choice.candidates.iter().map(|c| (c.name.to_string(), c.decided)).collect();
    let by = Some(Criterion::Router);
    assert_eq!(named, [(G2[0].to_owned(), by), (G1[0].to_owned(), by)]);
    assert!(why.to_string().contains("gateway"), "{why}");
    w.hosts[0].node.notify(w.now, g2, false, w.now).unwrap();
    w.drain();
    assert_eq!(w.hosts[0].node.explain(nid(B), None, 100).choices[0].candidates.len(), 1);
    w.put(0, B, 50, false);
    assert_eq!(w.test_hops(0).last(), Some(&g1), "better another one than none");
}

#[test]
fn pa060_four_equal_routes_get_equal_shares() {
    for profile in [Profile::Default, Profile::Pre213] {
        let mut w = World::new();
        w.host(profile, &[A]);
        w.host(profile, &[B]);
        let nids: Vec<_> =
            (4..8).map(|i| [format!("10.77.0.{i}@tcp"), format!("10.77.1.{i}@tcp1")]).collect();
        for n in &nids {
            w.router(profile, &[&n[0], &n[1]]);
            w.route(0, "tcp1", &n[0]);
            w.route(1, "tcp", &n[1]);
        }
        w.secs(1);
        w.discovered(0, B);
        for i in 0..40 {
            w.put(0, B, i, false);
            w.run(Duration::from_millis(10));
        }
        let hops = w.test_hops(0);
        for n in &nids {
            assert_eq!(hops.iter().filter(|h| **h == nid(&n[0])).count(), 10, "{profile:?}");
        }
    }
}

/// A gateway as its ping data describe it.
fn gateway_says(far: Option<bool>, hops: Option<u32>) -> bool {
    let mut w = World::new();
    w.host(Profile::Kernel, &[A]);
    let nids: &[&str] = if far.is_some() { &G1 } else { &G1[..1] };
    let r = w.router(Profile::Default, nids);
    if far == Some(false) {
        w.link(r, G1[1], crate::Link::Down);
        w.secs(1);
    }
    w.route_with(0, "tcp1", G1[0], hops, 0);
    w.secs(1);
    w.route_up(0, "tcp1", G1[0])
}

#[test]
fn x30_a_single_hop_route_is_down_when_its_gateways_far_side_is() {
    assert!(!gateway_says(Some(false), Some(1)), "its far side is down, one hop");
    assert!(!gateway_says(Some(false), None), "single-hop by its own data");
    assert!(gateway_says(None, None), "multi-hop, hops undefined");
    assert!(gateway_says(None, Some(3)), "multi-hop, hops 3");
    assert!(!gateway_says(None, Some(1)), "one hop, but no interface there at all");
    assert!(gateway_says(Some(true), Some(1)));
}

#[test]
fn pa142_without_avoid_asym_router_failure_a_dead_far_side_is_not_looked_at() {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    let r = w.router(Profile::Default, &G1);
    w.hosts[0].node.set_tunables(w.now, &[("avoid_asym_router_failure", 0)]).unwrap();
    w.link(r, G1[1], crate::Link::Down);
    w.secs(1);
    w.route(0, "tcp1", G1[0]);
    w.secs(1);
    assert!(w.route_up(0, "tcp1", G1[0]));
}

#[test]
fn pa047_a_gateway_with_one_dead_side_is_left_for_that_network_only() {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    let r = w.router(Profile::Default, &[G1[0], G1[1], "10.77.2.4@tcp2"]);
    w.route(0, "tcp1", G1[0]);
    w.route(0, "tcp2", G1[0]);
    w.secs(1);
    w.link(r, G1[1], crate::Link::Down);
    w.secs(1);
    assert!(!w.route_up(0, "tcp1", G1[0]), "announced by push");
    assert!(w.route_up(0, "tcp2", G1[0]));
}

#[test]
fn x31_a_routers_interface_is_down_110_seconds_after_the_last_ping() {
    let mut w = world(Profile::Kernel, &[]);
    let r = w.router(Profile::Kernel, &G1);
    w.hosts[r].node.set_tunables(w.now, &[("discovery", 1)]).unwrap();
    w.route(0, "tcp1", G1[0]);
    w.route(1, "tcp", G1[1]);
    w.secs(171);
    assert!(w.route_up(0, "tcp1", G1[0]));
    // The last ping on tcp1, then none; A goes on with its own.
    w.hosts[1].node.del_route(w.now, None, None).unwrap();
    let last = w.hosts[r].node.nis.nets()[2].last_alive;
    let up = |w: &World, n: usize| w.hosts[r].node.net_views()[n].nis[0].up;
    let seq = w.hosts[r].node.ping_seq();
    w.run(Duration::from_secs(109).saturating_sub(w.now.saturating_since(last)));
    // Ordinary traffic does not count in the kernel.
    w.put(0, B, 1, true);
    w.run(Duration::from_millis(900));
    assert!(up(&w, 2));
    w.run(Duration::from_millis(101));
    assert_eq!((up(&w, 1), up(&w, 2)), (true, false));
    w.run(Duration::from_millis(100));
    assert!(!w.route_up(0, "tcp1", G1[0]), "announced by push");
    assert_eq!(w.hosts[r].node.ping_seq(), seq, "the status changes in place");
    // A ping sets it up again.
    let target = ProcessId::lustre(nid(G1[1]));
    w.hosts[1].node.ping(w.now, target, None, Duration::from_secs(1));
    w.secs(1);
    assert!(up(&w, 2) && w.route_up(0, "tcp1", G1[0]));
}

#[test]
fn pa070_with_the_documents_defaults_a_silent_interface_is_down_after_110_s() {
    let mut w = ready(Profile::Documents, &[G1]);
    w.hosts[1].alive = false;
    let last = w.hosts[2].node.nis.nets()[2].last_alive;
    let down = |w: &World| !w.hosts[2].node.net_views()[2].nis[0].up;
    w.hosts[1].node.del_route(w.now, None, None).unwrap();
    w.run(Duration::from_millis(109_999) - w.now.saturating_since(last));
    assert!(!down(&w));
    w.run(Duration::from_millis(2));
    assert!(down(&w));
    assert!(w.hosts[2].node.net_views()[1].nis[0].up, "the other side is still pinged");
}

/// Time from the last sign of life behind a router until a node that gets no push notices,
/// with its checks at `phase` seconds of their interval and answers that take `slow`.
fn learns_after(phase: u64, slow: Duration) -> f64 {
    let mut w = World::new();
    // Without discovery nothing is pushed: pings alone tell, as in the documents' time.
    for n in [A, B] {
        let h = w.host(Profile::Documents, &[n]);
        w.hosts[h].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
    }
    w.router(Profile::Documents, &G1);
    w.route_with(1, "tcp", G1[1], Some(1), 0);
    w.secs(phase);
    w.route_with(0, "tcp1", G1[0], Some(1), 0);
    w.secs(61);
    assert!(w.route_up(0, "tcp1", G1[0]));
    w.hosts[1].node.del_route(w.now, None, None).unwrap();
    let last = w.hosts[2].node.nis.nets()[2].last_alive;
    // From now on replies to A lie in the router for a while.
    w.decide = Box::new(move |t| {
        if matches!(t.hdr.kind, Kind::Reply { .. }) && !slow.is_zero() {
            Fate::Hold
        } else {
            Fate::Pass
        }
    });
    let mut held: Vec<Instant> = Vec::new();
    while w.route_up(0, "tcp1", G1[0]) {
        w.run(Duration::from_millis(500));
        held.extend((held.len()..w.held.len()).map(|_| w.now));
        if held.first().is_some_and(|at| w.now.saturating_since(*at) >= slow) {
            held.remove(0);
            w.release();
        }
        assert!(w.now.saturating_since(last).as_secs() < 400, "never learnt");
    }
    w.now.saturating_since(last).as_secs_f64()
}

#[test]
fn pa072_an_asymmetric_failure_is_learnt_within_about_170_s() {
    let worst = (0..60).step_by(4).map(|p| learns_after(p, Duration::ZERO)).fold(0.0, f64::max);
    assert!((160.0..=172.0).contains(&worst), "{worst}");
}

#[test]
fn pa071_with_slow_answers_an_asymmetric_failure_is_learnt_within_220_s() {
    let slow = Duration::from_secs(47);
    let worst = (0..60).step_by(4).map(|p| learns_after(p, slow)).fold(0.0, f64::max);
    assert!((200.0..=220.0).contains(&worst), "{worst}");
}

#[test]
fn pa061_a_router_that_dies_is_found_out_within_interval_and_timeout() {
    let mut w = ready(Profile::Documents, &[G1]);
    for extra in [0, 13, 29, 59] {
        w.secs(extra);
        w.hosts[2].alive = false;
        let killed = w.now;
        while w.route_up(0, "tcp1", G1[0]) {
            w.run(Duration::from_millis(250));
        }
        let took = w.now.saturating_since(killed).as_secs();
        assert!((49..=110).contains(&took), "{took}");
        w.hosts[2].alive = true;
        w.secs(130);
        assert!(w.route_up(0, "tcp1", G1[0]), "and up at the next answered ping");
    }
}

#[test]
fn pa133_live_and_dead_gateways_are_pinged_at_their_own_intervals() {
    let mut w = world(Profile::Default, &[G1]);
    let set = [("live_router_check_interval", 40), ("dead_router_check_interval", 20)];
    w.hosts[0].node.set_tunables(w.now, &set).unwrap();
    let at = |w: &mut World, secs: u64| {
        let mut starts = Vec::new();
        for _ in 0..secs {
            w.hosts[0].sent.clear();
            w.secs(1);
            if w.hosts[0].sent.iter().any(|(_, h)| matches!(h.kind, Kind::Get { .. })) {
                starts.push(w.now.as_secs());
            }
        }
        starts.windows(2).map(|p| p[1] - p[0]).collect::<Vec<_>>()
    };
    w.secs(61);
    let gaps = at(&mut w, 170);
    assert!(gaps.len() >= 3 && gaps.iter().all(|g| *g == 40), "{gaps:?}");
    // Recovery pings would be in the way of counting.
    w.hosts[0].node.set_tunables(w.now, &[("health_sensitivity", 0)]).unwrap();
    w.hosts[2].alive = false;
    w.secs(60);
    let gaps = at(&mut w, 90);
    assert!(gaps.len() >= 3 && gaps.iter().all(|g| *g == 20), "{gaps:?}");
}

#[test]
fn r32_each_local_network_of_a_gateway_is_checked_once_per_interval() {
    let mut w = World::new();
    let a = ["10.77.0.2@tcp", "10.77.5.2@tcp5"];
    let g = ["10.77.0.4@tcp", "10.77.5.4@tcp5", "10.77.1.4@tcp1"];
    w.host(Profile::Kernel, &a);
    w.router(Profile::Default, &g);
    w.route(0, "tcp1", g[0]);
    w.secs(5);
    for _ in 0..3 {
        w.hosts[0].sent.clear();
        w.secs(60);
        let pings = w.hosts[0].sent.iter().filter(|s| matches!(s.1.kind, Kind::Get { .. }));
        let mut nets: Vec<_> = pings.map(|s| s.1.dst).collect();
        nets.sort();
        assert_eq!(nets, [nid(g[0]), nid(g[1])]);
    }
}

#[test]
fn check_routers_before_use_waits_for_the_first_answer() {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.router(Profile::Default, &G1);
    w.hosts[0].node.set_tunables(w.now, &[("check_routers_before_use", 1)]).unwrap();
    w.route(0, "tcp1", G1[0]);
    assert!(!w.route_up(0, "tcp1", G1[0]) && !w.hosts[0].node.are_routers_checked());
    w.secs(1);
    assert!(w.route_up(0, "tcp1", G1[0]) && w.hosts[0].node.are_routers_checked());
}

#[test]
fn a_gateway_that_never_answered_counts_as_checked_but_not_as_alive() {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.route(0, "tcp1", G1[0]);
    assert!(w.route_up(0, "tcp1", G1[0]), "believed until proven otherwise");
    w.secs(6);
    assert!(!w.route_up(0, "tcp1", G1[0]) && w.hosts[0].node.are_routers_checked());
    let view = w.hosts[0].node.peer_view_of(nid(G1[0])).unwrap();
    assert_eq!(view.nis[0].state, PeerNiState::Down);
}

#[test]
fn a_message_that_fails_at_one_gateway_goes_by_the_other() {
    let mut w = ready(Profile::Default, &[G1, G2]);
    let dead = nid(G1[0]);
    w.decide = Box::new(move |t| {
        if t.to.nid == dead {
            Fate::Fail(Fault::new(HealthStatus::RemoteDropped, Errno::ECONNREFUSED))
        } else {
            Fate::Pass
        }
    });
    for i in 0..20 {
        w.put(0, B, i, true);
        w.run(Duration::from_millis(20));
    }
    for i in 0..20 {
        let ok = [(EventKind::Send, true, false), (EventKind::Ack, true, true)];
        assert_eq!(w.events(0, i), ok, "{i}");
    }
    let tried = w.test_hops(0).iter().filter(|n| **n == dead).count();
    assert_eq!(tried, 1, "health keeps the rest away");
}

#[test]
fn a_gateway_reported_down_is_left_at_once_and_what_waits_for_it_goes_elsewhere() {
    let mut w = ready(Profile::Default, &[G1, G2]);
    let dead = nid(G1[0]);
    w.decide = Box::new(move |t| if t.to.nid == dead { Fate::Hold } else { Fate::Pass });
    for i in 0..30 {
        w.put(0, B, i, true);
    }
    w.run(Duration::from_millis(50));
    let (held, now) = (w.held.len(), w.now);
    assert_eq!(held, 8, "as many as its credits allow");
    let ni = *w.hosts[0].nids.keys().next().unwrap();
    let waiting = w.hosts[0].node.peer_view_of(dead).unwrap().nis[0].credits;
    assert!(waiting < 0);
    w.hosts[0].node.peer_down(now, ni, dead, now);
    w.drain();
    assert!(!w.route_up(0, "tcp1", G1[0]));
    w.run(Duration::from_millis(100));
    // The driver fails what it had; all of it arrives.
    let fault = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNRESET);
    for (_, t) in core::mem::take(&mut w.held) {
        w.hosts[0].node.tx_done(w.now, t.msg, Err(fault));
    }
    w.run(Duration::from_millis(100));
    for i in 0..30 {
        let ok = [(EventKind::Send, true, false), (EventKind::Ack, true, true)];
        assert_eq!(w.events(0, i), ok, "{i}");
    }
    // It answers again: recovery finds it, before the next check would.
    w.decide = Box::new(|_| Fate::Pass);
    w.held.clear();
    w.secs(12);
    assert!(w.route_up(0, "tcp1", G1[0]));
}

#[test]
fn a_gateway_that_refuses_each_connection_at_once_is_not_asked_with_every_report_of_that() {
    let mut w = World::new();
    w.host(Profile::Default, &[A, "10.77.0.12@tcp"]);
    w.router(Profile::Default, &G1);
    w.route(0, "tcp1", G1[0]);
    w.secs(3);
    assert!(w.route_up(0, "tcp1", G1[0]));
    forget(&mut w);
    let dead = nid(G1[0]);
    let refused = Fault::new(HealthStatus::NetworkTimeout, Errno::EHOSTUNREACH);
    w.decide = Box::new(move |t| if t.to.nid == dead { Fate::Fail(refused) } else { Fate::Pass });
    let rails: Vec<_> = w.hosts[0].nids.keys().copied().collect();
    // Each of our interfaces has another one beside it that might not be to blame.
    for ni in &rails {
        let now = w.now;
        w.hosts[0].node.peer_down(now, *ni, dead, now);
    }
    let mut seen = 0;
    for _ in 0..20_000 {
        w.run(Duration::from_micros(100));
        let sent = w.hosts[0].sent.len();
        if sent > seen {
            for ni in &rails {
                let now = w.now;
                w.hosts[0].node.peer_down(now, *ni, dead, now);
            }
        }
        seen = sent;
    }
    assert!(!w.route_up(0, "tcp1", G1[0]), "two seconds are enough to see that");
    assert!((2..=30).contains(&seen), "{seen} messages in two seconds");
    w.decide = Box::new(|_| Fate::Pass);
    w.secs(12);
    assert!(w.route_up(0, "tcp1", G1[0]));
}

/// H-24.
#[test]
fn a_resend_that_finds_no_route_is_not_counted() {
    let mut w = world(Profile::Kernel, &[G1]);
    w.add_ni(0, "10.77.0.12@tcp", crate::NetTunables::SOCK);
    w.secs(200);
    w.discovered(0, B);
    w.decide = Box::new(|t| {
        if matches!(t.hdr.kind, Kind::Put { portal: PT, .. }) { Fate::Hold } else { Fate::Pass }
    });
    w.put(0, B, 7, false);
    let (_, held) = w.held.pop_front().unwrap();
    let (now, node) = (w.now, &mut w.hosts[0].node);
    node.del_route(now, Some("tcp1".parse().unwrap()), Some(nid(G1[0]))).unwrap();
    node.tx_done(now, held.msg, Err(Fault::new(HealthStatus::LocalTimeout, Errno::ETIMEDOUT)));
    w.drain();
    let e: Vec<_> = w.hosts[0].events.iter().map(|e| (e.kind, e.status)).collect();
    assert_eq!(e, [(EventKind::Send, Err(Errno::EHOSTUNREACH))]);
    assert_eq!(w.hosts[0].node.stats().resend_count, 0);
}

#[test]
fn r60_reports_are_weighed_by_their_time_and_by_auto_down() {
    let mut w = world(Profile::Kernel, &[]);
    w.router(Profile::Default, &G1);
    w.route(0, "tcp1", G1[0]);
    w.secs(1);
    let state = |w: &World| w.hosts[0].node.peer_view_of(nid(G1[0])).unwrap().nis[0].state;
    let later = w.now + Duration::from_secs(1);
    let node = &mut w.hosts[0].node;
    assert_eq!(node.notify(w.now, nid(G1[0]), false, later), Err(Errno::EINVAL));
    node.notify(w.now, nid(G1[0]), false, w.now).unwrap();
    assert_eq!(state(&w), PeerNiState::Down);
    assert!(!w.route_up(0, "tcp1", G1[0]));
    // An older report changes nothing, a newer one does.
    let node = &mut w.hosts[0].node;
    node.notify(w.now, nid(G1[0]), true, Instant::from_secs(1)).unwrap();
    assert_eq!(state(&w), PeerNiState::Down);
    w.hosts[0].node.notify(w.now, nid(G1[0]), true, w.now).unwrap();
    assert!(w.route_up(0, "tcp1", G1[0]));
    let ni = *w.hosts[0].nids.keys().next().unwrap();
    let node = &mut w.hosts[0].node;
    node.set_tunables(w.now, &[("auto_down", 0)]).unwrap();
    node.peer_down(w.now, ni, nid(G1[0]), w.now);
    assert_eq!(state(&w), PeerNiState::Up);
}

#[test]
fn a_gateway_with_two_nids_on_one_network_survives_the_death_of_one() {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.host(Profile::Default, &[B]);
    w.router(Profile::Default, &["10.77.0.4@tcp", "10.77.0.6@tcp", "10.77.1.4@tcp1"]);
    w.route(0, "tcp1", "10.77.0.4@tcp");
    w.route(1, "tcp", "10.77.1.4@tcp1");
    w.secs(1);
    w.discovered(0, B);
    let dead = nid("10.77.0.4@tcp");
    w.decide = Box::new(move |t| {
        if t.to.nid == dead {
            Fate::Fail(Fault::new(HealthStatus::RemoteDropped, Errno::ECONNREFUSED))
        } else {
            Fate::Pass
        }
    });
    for i in 0..10 {
        w.put(0, B, i, true);
        w.run(Duration::from_millis(20));
        assert_eq!(w.events(0, i).len(), 2);
    }
    assert!(w.route_up(0, "tcp1", "10.77.0.4@tcp"));
}

#[test]
fn a_route_follows_its_gateway_to_the_peer_that_it_turns_out_to_be() {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.host(Profile::Default, &[B]);
    let nids = ["10.77.0.4@tcp", "10.77.0.6@tcp", "10.77.1.4@tcp1"];
    w.router(Profile::Default, &nids);
    // Known already by its first NID, named by its second.
    w.hosts[0].node.discover(w.now, nid(nids[0]), false);
    w.secs(1);
    w.route(1, "tcp", nids[2]);
    w.route(0, "tcp1", nids[1]);
    w.secs(1);
    // Two names that discovery finds to be one peer; of the two routes one stays.
    let mut v = World::new();
    v.host(Profile::Default, &[A]);
    v.router(Profile::Default, &nids);
    v.hosts[0].alive = false;
    v.route_with(0, "tcp1", nids[0], None, 1);
    v.route_with(0, "tcp1", nids[1], None, 0);
    assert_eq!(v.hosts[0].node.route_views().len(), 2);
    v.hosts[0].alive = true;
    v.secs(70);
    let views = v.hosts[0].node.route_views();
    assert_eq!(views.len(), 1, "{views:?}");
    for (w, hosts) in [(&w, 2u32), (&v, 1)] {
        let node = &w.hosts[0].node;
        let primary = node.peers.owner(nid(nids[0])).unwrap();
        assert_eq!(node.peers.peers[primary].gateway.routes, 1, "{hosts}");
        assert!(node.route_views()[0].up, "{:?}", node.peer_view_of(nid(nids[0])));
        assert!(node.route_views()[0].single_hop);
    }
}

#[test]
fn a_gateway_that_stops_taking_part_in_discovery_keeps_its_routes() {
    let mut w = ready(Profile::Default, &[G1]);
    w.hosts[2].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
    w.secs(70);
    let view = w.hosts[0].node.peer_view_of(nid(G1[0])).unwrap();
    assert!(!view.multi_rail);
    assert!(w.route_up(0, "tcp1", G1[0]), "{:?}", w.hosts[0].node.route_views());
    w.put(0, B, 1, true);
    w.secs(2);
    assert_eq!(w.events(0, 1).len(), 2);
}

#[test]
fn s83_messages_by_a_way_that_we_would_not_take_are_dropped_if_so_wished() {
    let mut w = ready(Profile::Default, &[G1]);
    w.hosts[1].node.set_tunables(w.now, &[("drop_asym_route", 1)]).unwrap();
    w.put(0, B, 1, false);
    w.secs(1);
    assert_eq!(w.hosts[1].node.stats().drop_count, 0);
    w.hosts[1].node.del_route(w.now, None, None).unwrap();
    w.put(0, B, 2, false);
    w.secs(1);
    let drops: Vec<_> = w.hosts[1].node.drops().collect();
    assert_eq!(drops, [(crate::DropReason::AsymmetricRoute, 1)]);
}

#[test]
fn a_routers_ping_data_show_whether_routing_is_on() {
    let mut w = ready(Profile::Default, &[G1]);
    let features = |w: &World| {
        let bytes = w.hosts[2].node.own.bytes();
        let features = PingInfo::parse(bytes).unwrap().info.features;
        (features - lnet_wire::ping::Features::DEDUPLICATES).bits()
    };
    assert_eq!(features(&w), 0x1a);
    w.hosts[2].node.disable_routing(w.now).unwrap();
    assert_eq!(features(&w), 0x1e);
    w.run(Duration::from_millis(100));
    assert!(!w.route_up(0, "tcp1", G1[0]), "announced by push");
    w.put(0, B, 1, true);
    w.drain();
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::EHOSTUNREACH));
    assert_eq!(w.hosts[2].node.routing_state(), RoutingState::Stopping);
    w.secs(5);
    assert_eq!(w.hosts[2].node.routing_state(), RoutingState::Disabled);
    assert!(w.hosts[2].node.routing_view().was_on);
    assert!(!w.hosts[0].node.routing_view().was_on, "it has never been a router");
    let h = &mut w.hosts[2];
    h.node.enable_routing(w.now, &mut h.mem).unwrap();
    w.drain();
    w.run(Duration::from_millis(100));
    assert!(w.route_up(0, "tcp1", G1[0]));
}

#[test]
fn a_router_that_is_enabled_while_it_stops_goes_on_forwarding() {
    let mut w = ready(Profile::Default, &[G1]);
    w.hosts[2].node.disable_routing(w.now).unwrap();
    w.run(Duration::from_millis(100));
    assert_eq!(w.hosts[2].node.routing_state(), RoutingState::Stopping);
    let h = &mut w.hosts[2];
    assert_eq!(h.node.enable_routing(w.now, &mut h.mem), Ok(()));
    assert_eq!(w.hosts[2].node.routing_state(), RoutingState::Enabled);
    w.secs(10);
    assert_eq!(w.hosts[2].node.routing_state(), RoutingState::Enabled, "nothing ends it later");
    assert!(w.route_up(0, "tcp1", G1[0]));
    w.put(0, B, 1, true);
    w.secs(1);
    let outcomes: Vec<_> = w.events(0, 1).into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(outcomes, [EventKind::Send, EventKind::Ack]);
}

#[test]
fn s34_a_remote_peer_without_multi_rail_is_pinged_from_the_nid_that_it_knows() {
    const A2: &str = "10.77.0.22@tcp";
    for profile in [Profile::Kernel, Profile::Default] {
        let mut w = World::new();
        w.host(profile, &[A, A2]);
        w.host(profile, &[B]);
        w.router(profile, &G1);
        w.route(0, "tcp1", G1[0]);
        w.route(1, "tcp", G1[1]);
        // A kernel router says that it forwards after 110 s.
        w.secs(200);
        // Without discovery it stays without Multi-Rail.
        w.hosts[0].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
        w.hosts[0].sent.clear();
        let target = ProcessId { nid: nid(B), pid: Pid::LUSTRE };
        let second = Duration::from_secs(1);
        w.hosts[0].node.ping(w.now, target, Some(nid(A2)), second);
        w.run(Duration::from_millis(10));
        for _ in 0..4 {
            w.hosts[0].node.ping(w.now, target, None, second);
            w.run(Duration::from_millis(10));
        }
        let pings = w.hosts[0].sent.iter().filter(|(_, h)| h.dst == nid(B));
        let sources: Vec<String> = pings.map(|(_, h)| h.src.to_string()).collect();
        assert_eq!(sources, [A2; 5], "{profile:?}");
    }
}

#[test]
fn r23_r25_a_kernel_router_starts_and_stops_in_110_seconds() {
    let mut w = World::new();
    let r = w.router(Profile::Kernel, &G1);
    let state = |w: &World| w.hosts[r].node.routing_state();
    assert_eq!(state(&w), RoutingState::Starting);
    assert_eq!(w.hosts[r].node.disable_routing(w.now), Err(Errno::EBUSY));
    w.run(Duration::from_millis(109_999));
    assert_eq!(state(&w), RoutingState::Starting);
    w.run(Duration::from_millis(1));
    assert_eq!(state(&w), RoutingState::Enabled);
    w.hosts[r].node.disable_routing(w.now).unwrap();
    w.run(Duration::from_millis(109_999));
    assert_eq!(state(&w), RoutingState::Stopping);
    let h = &mut w.hosts[r];
    assert_eq!(h.node.enable_routing(w.now, &mut h.mem), Err(Errno::EBUSY));
    w.run(Duration::from_millis(1));
    assert_eq!(state(&w), RoutingState::Disabled);
    assert_eq!(w.hosts[r].released.len(), 2, "one slab of each size");
}

#[test]
fn s52_without_router_checks_a_gateway_is_discovered_like_a_destination() {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.host(Profile::Default, &[B]);
    w.router(Profile::Default, &G1);
    for h in 0..2 {
        w.hosts[h].node.set_tunables(w.now, &[("alive_router_check_interval", 0)]).unwrap();
    }
    w.route(0, "tcp1", G1[0]);
    w.route(1, "tcp", G1[1]);
    assert!(w.hosts[0].sent.is_empty());
    w.put(0, B, 1, true);
    w.secs(1);
    assert_eq!(w.events(0, 1).len(), 2);
    let gateway = w.hosts[0].node.peer_view_of(nid(G1[0])).unwrap();
    assert!(gateway.multi_rail);
}

#[test]
fn the_tables_defaults_keep_the_figures_of_the_documents() {
    for profile in Profile::ALL {
        let t = Tunables::new(profile);
        assert_eq!(t.alive_router_check_interval + t.router_ping_timeout, 110);
    }
    let mut mem = Mem::default();
    let mut w = World::new();
    let r = w.host(Profile::Default, &G1);
    w.hosts[r].node.enable_routing(w.now, &mut mem).unwrap();
    let v = w.hosts[r].node.routing_view();
    assert_eq!(v.wanted, [2048, 16_384, 1024]);
    let shown = v.pools.map(|p| (p.npages, p.nbuffers, p.credits, p.mincredits));
    assert_eq!(
        shown,
        [(0, 2048, 2048, 2048), (1, 16_384, 16_384, 16_384), (256, 1024, 1024, 1024)]
    );
}

#[test]
fn a_router_whose_link_is_back_tries_its_neighbours_again() {
    let mut w = ready(Profile::Default, &[G1]);
    let far = *w.hosts[2].nids.iter().find(|(_, n)| **n == nid(G1[1])).unwrap().0;
    let is_up = |w: &World| {
        let view = w.hosts[2].node.peer_view_of(nid(B)).unwrap();
        view.nis.iter().find(|n| n.nid == nid(B)).unwrap().up
    };
    assert!(is_up(&w));
    w.link(2, G1[1], crate::Link::Down);
    let now = w.now;
    w.hosts[2].node.peer_down(now, far, nid(B), now);
    w.drain();
    assert!(!is_up(&w));
    w.link(2, G1[1], crate::Link::Up);
    assert!(is_up(&w));
}

/// What it could not say: it had no interface left on this side when it got its old NID back.
#[test]
fn a_gateway_that_has_its_nid_back_after_it_had_given_it_up_is_used_again() {
    let (old, other, far) = ("10.70.0.9@tcp", "10.70.1.9@tcp", "10.71.0.9@tcp1");
    let mut w = World::new();
    w.host(Profile::Default, &["10.70.0.2@tcp"]);
    let often = [("alive_router_check_interval", 4), ("router_ping_timeout", 3)];
    w.hosts[0].node.set_tunables(w.now, &often).unwrap();
    w.router(Profile::Default, &[old, far]);
    w.route(0, "tcp1", old);
    w.secs(5);
    let remove = |w: &mut World, n: &str| {
        let h = &mut w.hosts[1];
        let id = *h.nids.iter().find(|(_, x)| **x == nid(n)).unwrap().0;
        h.nids.remove(&id);
        h.node.del_ni(w.now, id).unwrap();
        w.secs(1);
    };
    w.add_ni(1, other, crate::NetTunables::SOCK);
    w.secs(1);
    remove(&mut w, old);
    assert!(w.route_up(0, "tcp1", old), "by its other interface");
    remove(&mut w, other);
    w.secs(20);
    assert!(!w.route_up(0, "tcp1", old));
    w.add_ni(1, old, crate::NetTunables::SOCK);
    w.secs(20);
    assert!(w.route_up(0, "tcp1", old));
}

/// H-66: a missing answer of a peer behind it is charged to the gateway once.
#[test]
fn a_gateway_pays_once_for_a_peer_behind_it_that_is_gone() {
    for (profile, once) in [(Profile::Default, true), (Profile::Kernel, false)] {
        let mut w = World::new();
        w.host(profile, &[A]);
        w.host(Profile::Default, &[B]);
        w.router(Profile::Default, &G1);
        // An answer to a check would make it whole before the test has looked.
        w.hosts[0].node.set_tunables(w.now, &[("alive_router_check_interval", 0)]).unwrap();
        w.route(0, "tcp1", G1[0]);
        w.route(1, "tcp", G1[1]);
        w.secs(1);
        w.discovered(0, B);
        w.hosts[1].alive = false;
        let mut paid = 0;
        for asked in 1..4 {
            w.hosts[0].node.discover(w.now, nid(B), true);
            for _ in 0..3000 {
                w.run(Duration::from_millis(100));
                if w.peer_health(0, G1[0]) < 1000 {
                    paid += 1;
                    w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(G1[0])), 1000);
                }
            }
            assert_eq!(paid, if once { 1 } else { asked }, "{profile:?}");
        }
    }
}
