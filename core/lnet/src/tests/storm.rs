//! Random weather: many operations, random faults, rules that come and go, then calm. Whatever happened, every operation
//! has ended exactly once, credits are home, health is back, nothing is left in any list.
//!
//! A failing run prints its seed; `STORM_SEED=… cargo test -p lnet storm` replays it.

use std::collections::BTreeMap;

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, Nid, Pid, Prng, ProcessId, RxId};
use lnet_wire::{Handle, Hdr, Kind};

use super::fault::{any_delay_rule, any_drop_rule};
use super::policy::any_rule;
use super::world::{Fate, PT, World, nid};
use crate::timers::TimerKind;
use crate::{EventKind, NetTunables, NidMatch, Profile, Rx};

fn seeds(n: u64) -> Vec<u64> {
    match option_env!("STORM_SEED").and_then(|s| s.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=n).collect(),
    }
}

const HOSTS: [[&str; 2]; 3] = [
    ["10.77.0.2@tcp", "10.77.1.2@tcp"],
    ["10.77.0.3@tcp", "10.77.1.3@tcp"],
    ["10.77.0.4@tcp", "10.77.1.4@tcp1"],
];

/// Faults as a driver might report them, and losses behind its back.
fn weather(mut rng: Prng, badness: u64) -> Box<dyn FnMut(&crate::Transmit) -> Fate> {
    Box::new(move |_| {
        if rng.below(100) >= badness {
            return Fate::Pass;
        }
        let status = HealthStatus::ALL[rng.below(11) as usize];
        match rng.below(4) {
            0 => Fate::Lose,
            1 => Fate::Hold,
            _ => Fate::Fail(Fault::new(status, Errno::EIO)),
        }
    })
}

fn storm(seed: u64) {
    let mut rng = Prng::new(seed);
    let profile = Profile::ALL[rng.below(5) as usize];
    let badness = [0, 2, 20, 60][rng.below(4) as usize];
    let few = NetTunables {
        credits: 1 + rng.below(4) as u32,
        peer_credits: 1 + rng.below(3) as u32,
        ..NetTunables::SOCK
    };
    let mut w = World::new();
    for nids in HOSTS {
        let n = 1 + rng.below(2) as usize;
        let host = w.host_with(profile, &nids[..n], few);
        w.hosts[host].node.record(1 + rng.below(300) as usize);
    }
    w.decide = weather(rng.split(), badness);
    // user word → (host, is it a request with response)
    let mut asked: BTreeMap<u64, (usize, bool)> = BTreeMap::new();
    let mut user = 1000;
    for _ in 0..300 {
        let host = rng.below(3) as usize;
        let target = HOSTS[rng.below(3) as usize][rng.below(2) as usize];
        match rng.below(15) {
            0..=3 => {
                let ack = rng.below(2) == 0;
                user += 1;
                asked.insert(user, (host, ack));
                w.put(host, target, user, ack);
            }
            4..=6 => {
                user += 1;
                asked.insert(user, (host, true));
                w.get(host, target, user);
            }
            7 => w.run(Duration::from_millis(rng.below(3000))),
            8 => {
                if !w.held.is_empty() {
                    w.release();
                }
            }
            9 => {
                w.hosts[host].node.discover(w.now, nid(target), rng.below(2) == 0);
            }
            10 => {
                let md = w.hosts[host].node.portals.mds.keys().nth(rng.below(9) as usize);
                // Anything but the ping buffers, which users can't name.
                let own = w.hosts[host].node.own.mds();
                if let Some(md) = md.filter(|md| !own.contains(&Some(*md)))
                    && w.hosts[host].node.portals.mds[md].place.is_none()
                {
                    let _ = w.hosts[host].node.unlink(w.now, md);
                }
            }
            11 => {
                let n = &mut w.hosts[host].node;
                let rules = n.udsp_rules().len() as u64;
                if rules > 0 && rng.below(2) == 0 {
                    n.udsp_del(w.now, rng.below(rules) as usize).unwrap();
                } else {
                    // It may be there already.
                    let at = Some(rng.below(rules + 1) as usize);
                    let _ = n.udsp_add(w.now, any_rule(&mut rng), at);
                }
            }
            12 => {
                let n = &mut w.hosts[host].node;
                match rng.below(4) {
                    0 => n.add_drop_rule(w.now, any_drop_rule(&mut rng)).unwrap(),
                    1 => n.add_delay_rule(w.now, any_delay_rule(&mut rng)).unwrap(),
                    2 => {
                        let traffic = n.drop_rules().next().map(|(r, _)| r.traffic);
                        if let Some(t) = traffic {
                            assert!(n.del_drop_rules(w.now, t.src, t.dst) > 0);
                        }
                    }
                    _ => {
                        let traffic = n.delay_rules().next().map(|(r, _)| r.traffic);
                        if let Some(t) = traffic {
                            assert!(n.del_delay_rules(w.now, t.src, t.dst) > 0);
                        }
                    }
                }
            }
            13 => {
                let settings = [
                    ("explain_last", rng.below(3) as i64),
                    ("udsp_first", rng.below(2) as i64),
                    ("exclude_at_zero", rng.below(2) as i64),
                ];
                w.hosts[host].node.set_tunables(w.now, &settings).unwrap();
                let e = w.hosts[host].node.explain(nid(target), None, 100);
                assert!(!e.to_string().is_empty());
            }
            _ => {
                let ni = w.hosts[host].nids.keys().next().copied();
                if let Some(ni) = ni {
                    let link = if rng.below(2) == 0 { crate::Link::Down } else { crate::Link::Up };
                    w.hosts[host].node.link_changed(w.now, ni, link);
                }
            }
        }
        w.drain();
    }
    // Calm: everything passes, links are up, rules are gone, what was held is let go.
    w.decide = Box::new(|_| Fate::Pass);
    for host in 0..3 {
        let any = NidMatch::Any;
        w.hosts[host].node.udsp_clear(w.now);
        w.hosts[host].node.del_drop_rules(w.now, any, any);
        w.hosts[host].node.del_delay_rules(w.now, any, any);
        let ids: Vec<_> = w.hosts[host].nids.keys().copied().collect();
        for ni in ids {
            w.hosts[host].node.link_changed(w.now, ni, crate::Link::Up);
        }
    }
    while !w.held.is_empty() {
        w.release();
        w.run(Duration::from_millis(10));
    }
    w.secs(2000);
    for (&user, &(host, response)) in &asked {
        let events: Vec<_> = w.hosts[host].events.iter().filter(|e| e.user == user).collect();
        let sends = events.iter().filter(|e| e.kind == EventKind::Send).count();
        assert_eq!(sends, 1, "seed {seed}: one SEND for {user}: {events:#?}");
        // A descriptor of threshold 2 whose SEND failed stays until the tracker ends it.
        let last = events.iter().filter(|e| e.unlinked).count();
        assert!(last == 1 || (last == 0 && !response), "seed {seed}: {user}: {events:#?}");
        assert!(events.last().is_some_and(|e| e.unlinked), "seed {seed}: {user}: {events:#?}");
    }
    all_home(&w, seed, profile);
}

/// Nothing is left in any list, credits are home, health is back.
fn all_home(w: &World, seed: u64, profile: Profile) {
    for (i, h) in w.hosts.iter().enumerate() {
        let n = &h.node;
        assert!(n.msgs.is_empty(), "seed {seed}: host {i} still has {:#?}", n.msgs);
        assert_eq!(n.timers.count(TimerKind::Waiting), 0, "seed {seed}: host {i} still waits");
        assert_eq!(n.timers.count(TimerKind::Response), 0, "seed {seed}: host {i} still tracks");
        assert_eq!((n.stats().msgs_alloc, n.stats().rst_alloc), (0, 0), "seed {seed}: gauges");
        // The test buffer, ping and push targets.
        assert_eq!(n.portals.mds.len(), 3, "seed {seed}: host {i} keeps descriptors");
        for v in n.net_views().iter().skip(1) {
            for ni in &v.nis {
                assert_eq!(ni.credits, v.tunables.credits as i32, "seed {seed}: {}", ni.nid);
                if profile != Profile::Off {
                    assert_eq!(ni.health, 1000, "seed {seed}: {}", ni.nid);
                }
            }
        }
        assert_eq!(
            n.timers.count(TimerKind::Delay),
            0,
            "seed {seed}: host {i} still holds messages"
        );
        assert!(n.explained().len() as i64 <= n.tunables().explain_last, "seed {seed}");
        for pni in n.peers.nis.values() {
            assert_eq!((pni.port.grade, &pni.mapping), (Default::default(), &None), "seed {seed}");
            let max = pni.local.map_or(0, |t| t.peer_credits as i32);
            assert_eq!(
                (pni.port.credits.free, pni.queued_bytes, pni.port.refs),
                (max, 0, 0),
                "seed {seed}"
            );
            assert_eq!((pni.transit.held, pni.transit.queue.len()), (0, 0), "seed {seed}");
        }
        let replayed = n.recording().map(|r| r.replay().map(|r| r.calls));
        assert!(matches!(replayed, Some(Ok(1..))), "seed {seed}: host {i}: {replayed:?}");
        assert_eq!(h.reports.len() as u64, n.ops.count(), "seed {seed}: one report per question");
        assert!(n.router.deferred.is_empty(), "seed {seed}: host {i} still lets drivers wait");
        for p in n.routing_view().pools {
            assert_eq!(p.credits, p.nbuffers as i32, "seed {seed}: host {i}: {p:?}");
        }
    }
}

#[test]
fn under_random_failures_every_operation_ends_once_and_all_credits_return() {
    for seed in seeds(200) {
        storm(seed);
    }
}

/// Two leaves on three networks in a row, two routers at each joint, and everything happens to
/// them. Messages may be lost inside a router, so an operation may end with its time-out; it ends.
fn routed_storm(seed: u64) {
    let mut rng = Prng::new(seed);
    let profile = Profile::ALL[rng.below(5) as usize];
    let badness = [0, 2, 20, 50][rng.below(4) as usize];
    let few = NetTunables {
        credits: 1 + rng.below(4) as u32,
        peer_credits: 1 + rng.below(3) as u32,
        ..NetTunables::SOCK
    };
    const LEAVES: [&str; 3] = ["10.77.0.2@tcp", "10.77.1.2@tcp1", "10.77.2.2@tcp2"];
    const JOINTS: [[&str; 2]; 4] = [
        ["10.77.0.4@tcp", "10.77.1.4@tcp1"],
        ["10.77.0.5@tcp", "10.77.1.5@tcp1"],
        ["10.77.1.6@tcp1", "10.77.2.6@tcp2"],
        ["10.77.1.7@tcp1", "10.77.2.7@tcp2"],
    ];
    let mut w = World::new();
    for leaf in LEAVES {
        w.host_with(profile, &[leaf], few);
    }
    for joint in JOINTS {
        let r = w.host_with(profile, &joint, few);
        let n = 1 + rng.below(3) as i64;
        let buffers = [("tiny_buffers", n), ("small_buffers", n), ("large_buffers", n)];
        w.hosts[r].node.set_tunables(w.now, &buffers).unwrap();
        let h = &mut w.hosts[r];
        h.node.enable_routing(w.now, &mut h.mem).unwrap();
    }
    for [left, right] in &JOINTS[..2] {
        w.route(0, "tcp1", left);
        w.route(0, "tcp2", left);
        w.route(1, "tcp", right);
        w.route(5, "tcp", right);
        w.route(6, "tcp", right);
    }
    for [left, right] in &JOINTS[2..] {
        w.route(2, "tcp1", right);
        w.route(2, "tcp", right);
        w.route(1, "tcp2", left);
        w.route(3, "tcp2", left);
        w.route(4, "tcp2", left);
    }
    for h in &mut w.hosts {
        h.node.record(1 + rng.below(300) as usize);
    }
    // In the kernel's time, so that routers are up.
    w.secs(if profile == Profile::Kernel { 300 } else { 2 });
    w.decide = weather(rng.split(), badness);
    let mut asked: BTreeMap<u64, (usize, bool)> = BTreeMap::new();
    let mut user = 1000;
    for _ in 0..300 {
        let host = rng.below(3) as usize;
        let target = LEAVES[rng.below(3) as usize];
        let router = 3 + rng.below(4) as usize;
        match rng.below(16) {
            0..=4 => {
                let ack = rng.below(2) == 0;
                user += 1;
                asked.insert(user, (host, ack));
                w.put(host, target, user, ack);
            }
            5..=7 => {
                user += 1;
                asked.insert(user, (host, true));
                w.get(host, target, user);
            }
            8 => w.run(Duration::from_millis(rng.below(8000))),
            9 => {
                if !w.held.is_empty() {
                    w.release();
                }
            }
            10 => {
                w.hosts[host].node.discover(w.now, nid(target), rng.below(2) == 0);
            }
            11 => {
                let n = JOINTS[router - 3][rng.below(2) as usize];
                let link = if rng.below(2) == 0 { crate::Link::Down } else { crate::Link::Up };
                w.link(router, n, link);
            }
            12 => {
                let h = &mut w.hosts[router];
                let _ = if rng.below(2) == 0 {
                    h.node.disable_routing(w.now)
                } else {
                    h.node.enable_routing(w.now, &mut h.mem)
                };
            }
            13 => {
                let pools = ["tiny_buffers", "small_buffers", "large_buffers"];
                let change = (pools[rng.below(3) as usize], 1 + rng.below(4) as i64);
                let h = &mut w.hosts[router];
                h.node.set_tunables(w.now, &[change]).unwrap();
                h.node.fit_router_buffers(w.now, &mut h.mem).unwrap();
            }
            14 => {
                let gateway = nid(JOINTS[rng.below(4) as usize][rng.below(2) as usize]);
                let ni = *w.hosts[host].nids.keys().next().unwrap();
                w.hosts[host].node.peer_down(w.now, ni, gateway, w.now);
            }
            _ => w.hosts[router].alive = rng.below(2) == 0,
        }
        w.drain();
    }
    w.decide = Box::new(|_| Fate::Pass);
    for h in 0..7 {
        w.hosts[h].alive = true;
        let nids: Vec<_> = w.hosts[h].nids.values().map(Nid::to_string).collect();
        for n in nids {
            w.link(h, &n, crate::Link::Up);
        }
    }
    while !w.held.is_empty() {
        w.release();
        w.run(Duration::from_millis(10));
    }
    w.secs(2000);
    for r in 3..7 {
        let h = &mut w.hosts[r];
        h.node.enable_routing(w.now, &mut h.mem).unwrap();
    }
    w.secs(400);
    // Checks go on for ever: not while we look.
    let interval = |w: &mut World, secs: i64| {
        for h in 0..7 {
            let change = ("alive_router_check_interval", secs);
            w.hosts[h].node.set_tunables(w.now, &[change]).unwrap();
        }
    };
    interval(&mut w, 0);
    w.secs(300);
    for (&user, &(host, response)) in &asked {
        let events: Vec<_> = w.hosts[host].events.iter().filter(|e| e.user == user).collect();
        let sends = events.iter().filter(|e| e.kind == EventKind::Send).count();
        assert_eq!(sends, 1, "seed {seed}: one SEND for {user}: {events:#?}");
        let last = events.iter().filter(|e| e.unlinked).count();
        assert!(last == 1 || (last == 0 && !response), "seed {seed}: {user}: {events:#?}");
    }
    all_home(&w, seed, profile);
    // And all of it works again.
    interval(&mut w, 60);
    w.secs(3);
    for (i, (host, target)) in [(0, 2), (2, 0), (1, 0), (0, 1)].into_iter().enumerate() {
        w.put(host, LEAVES[target], 10 + i as u64, true);
        w.secs(3);
        assert_eq!(w.events(host, 10 + i as u64).len(), 2, "seed {seed}: {host} to {target}");
    }
}

#[test]
fn routers_hold_no_message_after_random_failures() {
    for seed in seeds(25) {
        routed_storm(seed);
    }
}

/// A header of random fields, now and then plausible.
fn any_header(rng: &mut Prng, own: Nid) -> Hdr {
    let some_nid = |rng: &mut Prng| match rng.below(4) {
        0 => own,
        1 => Nid::from_nid4(rng.next_u64()),
        2 => nid(HOSTS[rng.below(3) as usize][rng.below(2) as usize]),
        _ => Nid::ANY,
    };
    let number = |rng: &mut Prng| match rng.below(3) {
        0 => rng.below(64) as u32,
        1 => rng.next_u64() as u32,
        _ => rng.below(1 << 20) as u32,
    };
    let handle = Handle {
        interface: if rng.below(2) == 0 { 0x1000 } else { rng.next_u64() },
        object: rng.next_u64() & 0x0000_0007_0000_001f,
    };
    let bits = [super::world::BITS, 1 << 63, rng.next_u64()][rng.below(3) as usize];
    let kind = match rng.below(4) {
        0 => Kind::Ack { dst: handle, match_bits: bits, mlength: number(rng), pad: [0; 12] },
        1 => Kind::Put {
            ack: handle,
            match_bits: bits,
            hdr_data: 1,
            portal: [0, PT, number(rng)][rng.below(3) as usize],
            offset: number(rng),
        },
        2 => Kind::Get {
            ret: handle,
            match_bits: bits,
            portal: [0, PT, number(rng)][rng.below(3) as usize],
            offset: number(rng),
            sink_len: number(rng),
            pad: [0; 4],
        },
        _ => Kind::Reply { dst: handle, pad: [0; 24] },
    };
    Hdr {
        dst: if rng.below(4) > 0 { own } else { some_nid(rng) },
        src: some_nid(rng),
        dst_pid: Pid(number(rng)),
        src_pid: Pid(number(rng)),
        payload_len: if rng.below(2) == 0 { 0 } else { number(rng) },
        kind,
    }
}

#[test]
fn any_calls_in_any_order_leave_a_node_that_works() {
    for seed in seeds(60) {
        let mut rng = Prng::new(seed);
        let mut w = World::new();
        let a = w.host(Profile::ALL[rng.below(5) as usize], &HOSTS[0]);
        let own = nid(HOSTS[0][0]);
        let ni = *w.hosts[a].nids.keys().next().unwrap();
        w.hosts[a].node.set_lazy(w.now, 7, true).unwrap();
        if rng.below(2) == 0 {
            let few = [("tiny_buffers", 2), ("small_buffers", 2), ("large_buffers", 1)];
            w.hosts[a].node.set_tunables(w.now, &few).unwrap();
            let h = &mut w.hosts[a];
            h.node.enable_routing(w.now, &mut h.mem).unwrap();
            w.route(a, "tcp7", HOSTS[1][0]);
        }
        let mut receiving = Vec::new();
        let mut ids = Vec::new();
        for _ in 0..2000 {
            w.now += Duration::from_millis(rng.below(50));
            let now = w.now;
            let node = &mut w.hosts[a].node;
            match rng.below(10) {
                0..=4 => {
                    let hdr = any_header(&mut rng, own);
                    let from = nid(HOSTS[1][rng.below(2) as usize]);
                    // A connection's, which is used again when it has nothing in hand.
                    let id = (0..).map(RxId).find(|id| !ids.contains(id)).unwrap();
                    let rx = Rx { ni, from, from_pid: Pid::LUSTRE, peer_ni: None, id };
                    match node.rx_header(now, rx, &hdr) {
                        crate::Verdict::Deliver { msg, .. } => receiving.push(msg),
                        crate::Verdict::Defer => ids.push(id),
                        crate::Verdict::Drop(_) | crate::Verdict::Close(_) => {}
                    }
                }
                5 => {
                    if let Some(msg) = receiving.pop() {
                        let junk = vec![rng.next_u64() as u8; rng.below(300) as usize];
                        node.rx_done(now, msg, Ok(&junk));
                    }
                }
                6 => {
                    if let Some(msg) = receiving.pop() {
                        let fault = Fault::new(HealthStatus::RemoteError, Errno::EIO);
                        node.rx_done(now, msg, Err(fault));
                    }
                }
                7 => {
                    if let Some(id) = ids.pop() {
                        node.rx_gone(now, ni, id);
                    }
                }
                8 => node.handle_timeout(now),
                _ => {
                    let target = ProcessId::lustre(nid(HOSTS[1][0]));
                    node.ping(now, target, None, Duration::from_secs(rng.below(3)));
                }
            }
            while let Some(out) = w.hosts[a].node.poll_output() {
                if let crate::Output::Resume {
                    verdict: crate::Verdict::Deliver { msg, .. }, ..
                } = out
                {
                    receiving.push(msg);
                } else if let crate::Output::Send(t) = out {
                    let fault = Fault::new(HealthStatus::ALL[rng.below(11) as usize], Errno::EIO);
                    let outcome = if rng.below(2) == 0 { Ok(()) } else { Err(fault) };
                    w.hosts[a].node.tx_done(now, t.msg, outcome);
                }
            }
            while w.hosts[a].node.poll_event().is_some() {}
        }
        // It still answers a ping.
        for msg in receiving {
            w.hosts[a].node.rx_done(w.now, msg, Ok(&[]));
        }
        w.drain();
        let b = w.host(Profile::Kernel, &["10.77.0.9@tcp"]);
        let second = Duration::from_secs(1);
        w.hosts[b].node.ping(w.now, ProcessId::lustre(own), None, second);
        w.secs(2);
        assert!(w.hosts[b].reports[0].outcome.is_ok(), "seed {seed}");
    }
}
