//! Faults on purpose: what rules do to messages, and that nothing is left of them.

use core::num::NonZeroU32;
use core::time::Duration;

use lnet_types::{Errno, HealthStatus, Nid, Pid, Prng};
use lnet_wire::{Handle, Hdr, Kind};

use super::world::{PT, World, nid};
use crate::timers::TimerKind;
use crate::{
    DelayRule, DropReason, DropRule, Errors, EventKind, FaultRuleError, Kinds, Link, NetTunables,
    NidMatch, Profile, SendError, Traffic, When,
};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];

fn pair(profile: Profile) -> World {
    let mut w = World::new();
    w.host(profile, &A);
    w.host(profile, &B);
    w.discovered(0, B[0]);
    w
}

fn traffic(src: &str, dst: &str, kinds: Kinds) -> Traffic {
    Traffic { src: src.parse().unwrap(), dst: dst.parse().unwrap(), kinds, ..Traffic::ALL }
}

fn add_drop(w: &mut World, host: usize, rule: DropRule) {
    let now = w.now;
    w.hosts[host].node.add_drop_rule(now, rule).unwrap();
}

fn add_delay(w: &mut World, host: usize, traffic: Traffic, latency: Duration) {
    let rule = DelayRule { traffic, when: When::ALWAYS, latency, times: None };
    let now = w.now;
    w.hosts[host].node.add_delay_rule(now, rule).unwrap();
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn x37_a_drop_rule_loses_messages_without_a_word() {
    let mut w = pair(Profile::Kernel);
    add_drop(&mut w, 1, DropRule::lose(traffic("*@tcp", "*@tcp", Kinds::PUT)));
    w.put(0, B[0], 1, true);
    w.secs(1);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false)], "no ACK");
    let n = &w.hosts[1].node;
    let dropped: u32 = n.net_views().iter().flat_map(|v| &v.nis).map(|v| v.stats.dropped.put).sum();
    assert_eq!(dropped, 1);
    assert_eq!((n.stats().drop_count, n.stats().drop_length, n.stats().recv_count), (1, 100, 0));
    assert_eq!(n.drops().collect::<Vec<_>>(), [(DropReason::Injected, 1)]);
    let (rule, stats) = n.drop_rules().next().unwrap();
    assert_eq!((stats.acted, stats.matched, stats.kinds.put, stats.kinds.ack), (1, 1, 1, 0));
    assert_eq!(rule.traffic.src.to_string(), "255.255.255.255@tcp");
    // No health is charged.
    assert_eq!(w.ni_health(0, A[0]) + w.ni_health(0, A[1]), 2000);
}

#[test]
fn x38_a_rule_with_an_error_makes_puts_to_one_nid_fail_and_the_resend_takes_the_other() {
    let mut w = pair(Profile::Kernel);
    let to_first = traffic("*", B[0], Kinds::PUT);
    add_drop(&mut w, 0, DropRule::fail(to_first, Errors::LOCAL_TIMEOUT));
    for i in 0..4 {
        w.put(0, B[0], i, false);
        w.run(ms(10));
        assert_eq!(w.events(0, i), [(EventKind::Send, true, true)]);
    }
    let pairs = w.pairs(0);
    assert_eq!(pairs.len(), 4, "a simulated failure sends nothing");
    assert!(pairs.iter().all(|p| p.1 == B[1]), "{pairs:?}");
    let s = w.hosts[0].node.stats();
    let hit = w.hosts[0].node.drop_rules().next().unwrap().1.acted;
    assert!(hit > 0);
    assert_eq!((s.local_timeout_count, s.resend_count), (hit, hit));
    assert!(s.successful_resends > 0);
    assert!(w.ni_health(0, A[0]) + w.ni_health(0, A[1]) < 2000);
    assert_eq!((w.peer_health(0, B[0]), w.peer_health(0, B[1])), (1000, 1000));
}

#[test]
fn the_next_n_messages_end_as_local_remote_or_network_timeout() {
    let table = [
        (Errors::LOCAL_TIMEOUT, HealthStatus::LocalTimeout),
        (Errors::REMOTE_TIMEOUT, HealthStatus::RemoteTimeout),
        (Errors::NETWORK_TIMEOUT, HealthStatus::NetworkTimeout),
    ];
    for (errors, status) in table {
        let mut w = pair(Profile::Kernel);
        w.hosts[0].node.set_tunables(w.now, &[("retry_count", 0)]).unwrap();
        let rule = DropRule::fail(traffic("*", "*", Kinds::PUT), errors);
        add_drop(&mut w, 0, DropRule { times: NonZeroU32::new(2), ..rule });
        for i in 0..4 {
            w.put(0, B[0], i, false);
            w.run(ms(10));
        }
        let failed: Vec<_> = w.hosts[0].events.iter().map(|e| e.status.is_err()).collect();
        assert_eq!(failed, [true, true, false, false], "{status}");
        let s = w.hosts[0].node.stats();
        let counted = [s.local_timeout_count, s.remote_timeout_count, s.network_timeout_count];
        let expected = match status {
            HealthStatus::LocalTimeout => [2, 0, 0],
            HealthStatus::RemoteTimeout => [0, 2, 0],
            _ => [0, 0, 2],
        };
        assert_eq!(counted, expected, "{status}");
    }
}

#[test]
fn a_lost_ack_and_a_lost_reply_are_timed_out() {
    let mut w = pair(Profile::Default);
    add_drop(&mut w, 0, DropRule::lose(traffic("*", "*", Kinds::ACK)));
    w.put(0, B[0], 1, true);
    w.secs(6);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false), (EventKind::Unlink, true, true)]);
    let mut w = pair(Profile::Default);
    // Only what comes from one NID.
    for b in B {
        add_drop(&mut w, 0, DropRule::lose(traffic(b, "*@tcp", Kinds::REPLY)));
    }
    w.get(0, B[0], 2);
    w.secs(6);
    assert_eq!(w.events(0, 2), [(EventKind::Send, true, false), (EventKind::Unlink, true, true)]);
    assert_eq!(w.hosts[0].node.stats().response_timeout_count, 1);
    // And without the rules they come.
    w.hosts[0].node.del_drop_rules(w.now, NidMatch::Any, NidMatch::Any);
    w.get(0, B[0], 3);
    w.secs(1);
    assert_eq!(w.events(0, 3), [(EventKind::Send, true, false), (EventKind::Reply, true, true)]);
}

#[test]
fn an_interface_plays_dead_until_the_fault_is_lifted_whatever_its_driver_reports() {
    let mut w = pair(Profile::Default);
    let up = |w: &World| w.hosts[0].node.net_views()[1].nis[0].up;
    w.hosts[0].node.simulate_link(w.now, nid(A[0]), Link::Down).unwrap();
    w.secs(1);
    assert!(!up(&w));
    for i in 0..4 {
        w.put(0, B[0], i, false);
    }
    w.secs(1);
    assert!(w.pairs(0).iter().all(|p| p.0 == A[1]));
    let id = *w.hosts[0].nids.iter().find(|(_, n)| **n == nid(A[0])).unwrap().0;
    w.hosts[0].node.link_changed(w.now, id, Link::Down);
    w.hosts[0].node.link_changed(w.now, id, Link::Up);
    assert!(!up(&w), "still plays dead");
    w.hosts[0].node.link_changed(w.now, id, Link::Down);
    w.hosts[0].node.simulate_link(w.now, nid(A[0]), Link::Up).unwrap();
    assert!(!up(&w), "really down by now");
    w.hosts[0].node.link_changed(w.now, id, Link::Up);
    w.secs(20);
    assert!(up(&w));
    w.hosts[0].sent.clear();
    for i in 0..4 {
        w.put(0, B[0], i, false);
    }
    assert!(w.pairs(0).iter().any(|p| p.0 == A[0]), "traffic returns");
    let view = &w.hosts[0].node.net_views()[1].nis[0];
    assert_eq!((view.transitions.downs, view.transitions.ups), (1, 1));
    let of =
        |n: &str| w.hosts[0].node.net_views().iter().any(|v| v.nis.iter().any(|x| x.nid == nid(n)));
    assert!(of("0@lo"));
    let lo = w.hosts[0].node.simulate_link(w.now, Nid::LOOPBACK, Link::Down);
    assert_eq!(lo, Err(Errno::EINVAL));
    let unknown = w.hosts[0].node.simulate_link(w.now, nid("10.9.9.9@tcp"), Link::Down);
    assert_eq!(unknown, Err(Errno::ENOENT));
}

#[test]
fn a_failing_peer_is_neither_sent_to_nor_heard() {
    let mut w = pair(Profile::Default);
    w.hosts[0].node.fail_peer(w.now, nid(B[0]).into(), NonZeroU32::new(1)).unwrap();
    let md = w.hosts[0].node.bind(crate::MdSpec::new(lnet_types::IoVec::new(), 5)).unwrap();
    let put = crate::Put {
        md,
        ack: false,
        src: None,
        target: lnet_types::ProcessId::lustre(nid(B[0])),
        portal: PT,
        match_bits: super::world::BITS,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    };
    assert_eq!(w.hosts[0].node.put(w.now, put), Err(SendError::Simulated));
    assert_eq!(SendError::Simulated.errno(), Errno::EIO);
    assert_eq!(w.hosts[0].node.put(w.now, put), Ok(()), "once only");
    w.drain();
    w.hosts[1].node.fail_peer(w.now, NidMatch::Any, None).unwrap();
    w.put(0, B[0], 7, true);
    w.secs(6);
    assert_eq!(w.events(0, 7), [(EventKind::Send, true, false), (EventKind::Unlink, true, true)]);
    w.hosts[1].node.mend_peer(w.now, NidMatch::Any);
    w.secs(10);
    w.put(0, B[0], 8, true);
    w.secs(1);
    assert_eq!(w.events(0, 8), [(EventKind::Send, true, false), (EventKind::Ack, true, true)]);
}

#[test]
fn the_newest_rule_is_asked_first_and_those_behind_it_only_if_it_lets_pass() {
    let mut w = pair(Profile::Default);
    let all = Traffic { kinds: Kinds::PUT, ..Traffic::ALL };
    add_drop(&mut w, 1, DropRule::lose(all));
    let half = When::new(2, 0, false).unwrap();
    add_drop(&mut w, 1, DropRule { when: half, ..DropRule::lose(all) });
    for i in 0..10 {
        w.put(0, B[0], i, false);
    }
    w.run(ms(10));
    let counted: Vec<_> = w.hosts[1].node.drop_rules().map(|(_, s)| (s.matched, s.acted)).collect();
    assert_eq!(counted, [(10, 5), (5, 5)]);
    w.hosts[1].node.reset_drop_rules(w.now);
    assert!(w.hosts[1].node.drop_rules().all(|(_, s)| s == crate::FaultStats::default()));
    // Deletion is by exactly the NIDs of the rule.
    let b = nid(B[0]).into();
    assert_eq!(w.hosts[1].node.del_drop_rules(w.now, b, NidMatch::Any), 0);
    add_drop(&mut w, 1, DropRule::lose(traffic(B[0], "*@tcp", Kinds::PUT)));
    assert_eq!(w.hosts[1].node.del_drop_rules(w.now, b, NidMatch::Any), 1);
    assert_eq!(w.hosts[1].node.del_drop_rules(w.now, NidMatch::Any, NidMatch::Any), 2);
}

#[test]
fn a_rule_filters_by_portal_kind_nids_and_interface() {
    type Expected = [bool; 6];
    // PUT to B1 and B2 on the test portal, GET to B1, ACK to B1, PUT to B1 on portal 9, PUT from A2.
    let table: [(Traffic, Expected); 7] = [
        (Traffic::ALL, [true; 6]),
        (
            Traffic { kinds: Kinds::GET | Kinds::ACK, ..Traffic::ALL },
            [false, false, true, true, false, false],
        ),
        (Traffic { portals: 1 << PT, ..Traffic::ALL }, [true, true, true, false, false, true]),
        (Traffic { portals: 1 << 9, ..Traffic::ALL }, [false, false, false, false, true, false]),
        (traffic("*", B[1], Kinds::all()), [false, true, false, false, false, false]),
        (traffic(A[1], "*@tcp", Kinds::all()), [false, false, false, false, false, true]),
        (
            Traffic { local: Some(nid(B[1])), ..Traffic::ALL },
            [false, true, false, false, false, false],
        ),
    ];
    let hdr = |src: &str, dst: &str, kind| Hdr {
        dst: nid(dst),
        src: nid(src),
        dst_pid: Pid::LUSTRE,
        src_pid: Pid::LUSTRE,
        payload_len: 0,
        kind,
    };
    let put =
        |portal| Kind::Put { ack: Handle::NONE, match_bits: 0, hdr_data: 0, portal, offset: 0 };
    let (ret, dst) = (Handle::NONE, Handle::NONE);
    let get = Kind::Get { ret, match_bits: 0, portal: PT, offset: 0, sink_len: 0, pad: [0; 4] };
    let ack = Kind::Ack { dst, match_bits: 0, mlength: 0, pad: [0; 12] };
    let messages = [
        hdr(A[0], B[0], put(PT)),
        hdr(A[0], B[1], put(PT)),
        hdr(A[0], B[0], get),
        hdr(A[0], B[0], ack),
        hdr(A[0], B[0], put(9)),
        hdr(A[1], B[0], put(PT)),
    ];
    for (i, (traffic, expected)) in table.into_iter().enumerate() {
        let mut w = pair(Profile::Default);
        add_drop(&mut w, 1, DropRule::lose(traffic));
        let now = w.now;
        let lost = messages.map(|hdr| w.hosts[1].node.faults.loses(now, hdr.dst, &hdr));
        assert_eq!(lost, expected, "row {i}");
    }
    let mut w = pair(Profile::Default);
    let bad = DropRule::lose(Traffic { portals: 1, kinds: Kinds::ACK, ..Traffic::ALL });
    let e = w.hosts[0].node.add_drop_rule(w.now, bad).unwrap_err();
    assert_eq!((e, e.errno()), (FaultRuleError::NoKinds, Errno::EINVAL));
}

#[test]
fn a_rule_for_one_interface_of_ours_applies_to_what_leaves_by_it_except_in_the_kernel() {
    for (profile, expected) in [(Profile::Default, 1), (Profile::Kernel, 0)] {
        let mut w = pair(profile);
        let by_first = Traffic { local: Some(nid(A[0])), kinds: Kinds::PUT, ..Traffic::ALL };
        let rule = DropRule::fail(by_first, Errors::LOCAL_ERROR);
        add_drop(&mut w, 0, DropRule { times: NonZeroU32::new(1), ..rule });
        for i in 0..4 {
            w.put(0, B[0], i, false);
        }
        w.run(ms(10));
        let failed = w.hosts[0].events.iter().filter(|e| e.status.is_err()).count();
        assert_eq!(failed, expected, "F-3");
        // And what is held back.
        let mut w = pair(profile);
        add_delay(&mut w, 0, by_first, Duration::from_secs(1));
        for i in 0..4 {
            w.put(0, B[0], i, false);
        }
        w.run(ms(10));
        let done = w.hosts[0].events.len();
        assert_eq!(done, if profile == Profile::Kernel { 4 } else { 2 }, "F-20");
    }
}

#[test]
fn a_rule_that_drops_all_acts_on_both_ways() {
    let mut w = pair(Profile::Default);
    let rule = DropRule {
        when: When::new(1000, 0, false).unwrap(),
        all: true,
        ..DropRule::lose(traffic("*", "*", Kinds::PUT))
    };
    w.hosts[0].node.set_tunables(w.now, &[("retry_count", 0)]).unwrap();
    add_drop(&mut w, 0, rule);
    w.put(0, B[0], 1, false);
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
    w.put(1, A[0], 2, true);
    w.secs(1);
    assert_eq!(w.events(1, 2), [(EventKind::Send, true, false)]);
    let stats = w.hosts[0].node.drop_rules().next().unwrap().1;
    assert!(stats.acted >= 2);
    assert_eq!(stats.matched, 0, "F-12");
}

#[test]
fn a_message_that_leaves_is_held_with_its_credits_until_its_time() {
    let mut w = World::new();
    let few = NetTunables { credits: 2, peer_credits: 2, ..NetTunables::SOCK };
    w.host_with(Profile::Default, &A[..1], few);
    w.host_with(Profile::Default, &B[..1], few);
    w.discovered(0, B[0]);
    let puts = traffic("*", "*", Kinds::PUT);
    add_delay(&mut w, 0, puts, ms(500));
    for i in 0..3 {
        w.put(0, B[0], i, false);
    }
    let credits = |w: &World| w.hosts[0].node.net_views()[1].nis[0].credits;
    let peer = |w: &World| w.hosts[0].node.peer_view_of(nid(B[0])).unwrap().nis[0].credits;
    assert_eq!((w.pairs(0).len(), credits(&w), peer(&w)), (0, 0, -1));
    w.run(ms(499));
    assert_eq!(w.pairs(0).len(), 0);
    w.run(ms(1));
    assert_eq!(w.pairs(0).len(), 2);
    w.run(ms(600));
    assert_eq!((w.pairs(0).len(), credits(&w), peer(&w)), (3, 2, 2));
    let (_, stats) = w.hosts[0].node.delay_rules().next().unwrap();
    assert_eq!((stats.matched, stats.acted, stats.kinds.put), (3, 3, 3));
    // Deletion lets go at once what is held, and only that.
    w.put(0, B[0], 5, false);
    let src = NidMatch::Any;
    assert_eq!(w.hosts[0].node.del_delay_rules(w.now, src, nid(B[0]).into()), 0);
    w.drain();
    assert_eq!(w.pairs(0).len(), 3);
    assert_eq!(w.hosts[0].node.del_delay_rules(w.now, src, src), 1);
    w.drain();
    assert_eq!(w.pairs(0).len(), 4);
}

#[test]
fn a_message_held_past_its_deadline_ends() {
    let mut w = pair(Profile::Default);
    add_delay(&mut w, 0, traffic("*", "*", Kinds::PUT), Duration::from_secs(60));
    w.put(0, B[0], 1, false);
    w.secs(6);
    assert_eq!(w.hosts[0].events[0].status, Err(Errno::ETIMEDOUT));
    w.secs(100);
    assert_eq!((w.hosts[0].events.len(), w.pairs(0).len()), (1, 0));
    assert!(w.hosts[0].node.msgs.is_empty());
}

#[test]
fn a_message_that_arrives_is_held_and_then_goes_to_what_it_is_for() {
    let mut w = pair(Profile::Default);
    add_delay(&mut w, 1, traffic("*", "*", Kinds::PUT), ms(300));
    w.put(0, B[0], 1, true);
    w.run(ms(200));
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, false)]);
    assert!(w.hosts[1].events.is_empty());
    w.run(ms(200));
    assert_eq!(w.events(0, 1).last(), Some(&(EventKind::Ack, true, true)));
    let e = &w.hosts[1].events[0];
    assert_eq!((e.kind, e.mlength), (EventKind::Put, 100));
    assert_eq!(w.hosts[1].mem.0[0][..100], [1; 100]);
}

#[test]
fn a_message_delayed_on_arrival_is_dropped_with_its_interface_and_at_shutdown() {
    for shutdown in [false, true] {
        let mut w = pair(Profile::Default);
        add_delay(&mut w, 1, traffic("*", "*", Kinds::PUT), Duration::from_secs(9));
        w.put(0, B[0], 1, false);
        w.run(ms(100));
        assert_eq!(w.hosts[1].node.stats().drop_count, 0);
        if shutdown {
            w.hosts[1].node.shutdown(w.now);
        } else {
            for ni in w.hosts[1].nids.keys().copied().collect::<Vec<_>>() {
                w.hosts[1].node.del_ni(w.now, ni).unwrap();
            }
        }
        w.drain();
        assert_eq!(w.hosts[1].node.stats().drop_count, 1);
        assert_eq!(w.hosts[1].node.timers.count(TimerKind::Delay), 0);
    }
}

#[test]
fn delay_rules_without_latency_or_at_random_are_refused() {
    let mut w = pair(Profile::Default);
    let rule = DelayRule {
        traffic: Traffic::ALL,
        when: When::ALWAYS,
        latency: Duration::ZERO,
        times: None,
    };
    let n = &mut w.hosts[0].node;
    assert_eq!(n.add_delay_rule(w.now, rule), Err(FaultRuleError::NoLatency));
    let when = When::new(0, 2, true).unwrap();
    let rule = DelayRule { when, latency: ms(1), ..rule };
    assert_eq!(n.add_delay_rule(w.now, rule), Err(FaultRuleError::RandomDelay));
    for _ in 0..crate::FAULT_RULES_MAX {
        n.add_drop_rule(w.now, DropRule::lose(Traffic::ALL)).unwrap();
    }
    let full = n.add_drop_rule(w.now, DropRule::lose(Traffic::ALL));
    assert_eq!(full, Err(FaultRuleError::NoSpace(crate::FAULT_RULES_MAX)));
}

fn any_nid(rng: &mut Prng) -> NidMatch {
    let any = ["*", "*@tcp", A[0], A[1], B[0], B[1], "*@tcp1"];
    any[rng.below(7) as usize].parse().unwrap()
}

fn any_traffic(rng: &mut Prng) -> Traffic {
    let t = Traffic {
        src: any_nid(rng),
        dst: any_nid(rng),
        local: (rng.below(4) == 0).then(|| nid(B[rng.below(2) as usize])),
        portals: [0, 0, 1 << PT, 1, 1 << 9 | 1 << PT][rng.below(5) as usize],
        kinds: Kinds::from_bits_truncate(rng.below(16) as u32),
    };
    t.checked().unwrap_or(Traffic::ALL)
}

/// A drop rule of random content, for the storm too.
pub(super) fn any_drop_rule(rng: &mut Prng) -> DropRule {
    let when = [
        When::ALWAYS,
        When::new(1 + rng.below(4) as u32, 0, false).unwrap(),
        When::new(0, 1 + rng.below(4) as u32, false).unwrap(),
        When::new(0, 1 + rng.below(4) as u32, true).unwrap(),
    ];
    DropRule {
        traffic: any_traffic(rng),
        when: when[rng.below(4) as usize],
        all: rng.below(8) == 0,
        errors: match rng.below(3) {
            0 => Errors::empty(),
            1 => Errors::RANDOM,
            _ => Errors::from_bits_retain(1 << (1 + rng.below(10))),
        },
        times: NonZeroU32::new(rng.below(4) as u32),
    }
}

/// A delay rule of random content, for the storm too.
pub(super) fn any_delay_rule(rng: &mut Prng) -> DelayRule {
    let when = if rng.below(2) == 0 {
        When::new(1 + rng.below(4) as u32, 0, false).unwrap()
    } else {
        When::new(0, 1 + rng.below(4) as u32, false).unwrap()
    };
    let latency = ms(1 + rng.below(3000));
    DelayRule {
        traffic: any_traffic(rng),
        when,
        latency,
        times: NonZeroU32::new(rng.below(4) as u32),
    }
}

/// A model of F-4, F-6, F-7 (rate 1), F-10 and of `times`, which knows nothing of windows.
#[test]
fn rules_that_act_always_do_what_a_simple_model_says() {
    for seed in 1..=200 {
        let mut rng = Prng::new(seed);
        let mut w = World::new();
        w.host(Profile::Default, &B);
        let n = &mut w.hosts[0].node;
        // Newest first, with how often each may still act.
        let mut model: Vec<(DropRule, u32)> = Vec::new();
        for _ in 0..rng.below(6) {
            let rule = DropRule { when: When::ALWAYS, ..any_drop_rule(&mut rng) };
            n.add_drop_rule(w.now, rule).unwrap();
            model.insert(0, (rule, rule.times.map_or(u32::MAX, NonZeroU32::get)));
        }
        for i in 0..60 {
            let portal = [0, PT, 9, 70][rng.below(4) as usize];
            let (src, dst) = (A[rng.below(2) as usize], B[rng.below(2) as usize]);
            let kind = match rng.below(4) {
                0 => Kind::Put { ack: Handle::NONE, match_bits: 0, hdr_data: 0, portal, offset: 0 },
                1 => {
                    let ret = Handle::NONE;
                    Kind::Get { ret, match_bits: 0, portal, offset: 0, sink_len: 0, pad: [0; 4] }
                }
                2 => Kind::Ack { dst: Handle::NONE, match_bits: 0, mlength: 0, pad: [0; 12] },
                _ => Kind::Reply { dst: Handle::NONE, pad: [0; 24] },
            };
            let pid = Pid::LUSTRE;
            let (dst, src) = (nid(dst), nid(src));
            let hdr = Hdr { dst, src, dst_pid: pid, src_pid: pid, payload_len: 0, kind };
            let bit = Kinds::of(hdr.kind.msg_type());
            let expected = model.iter_mut().find(|(r, left)| {
                let t = &r.traffic;
                let means = |m: NidMatch, nid: Nid| match m {
                    NidMatch::Any => true,
                    NidMatch::Net(net) => net == nid.net(),
                    NidMatch::Nid(n) => n == nid,
                };
                *left > 0
                    && (r.errors.is_empty() || r.all)
                    && means(t.src, src)
                    && means(t.dst, dst)
                    && t.local.is_none_or(|l| l == dst)
                    && t.kinds.contains(bit)
                    && (t.portals == 0 || (portal < 64 && t.portals >> portal & 1 == 1))
            });
            let lost = n.faults.loses(w.now, dst, &hdr);
            assert_eq!(lost, expected.is_some(), "seed {seed}, message {i}");
            if let Some((_, left)) = expected {
                *left -= 1;
            }
        }
        for ((rule, stats), (_, left)) in n.drop_rules().zip(&model) {
            let times = rule.times.map_or(u32::MAX, NonZeroU32::get);
            assert_eq!(stats.acted, times - left, "seed {seed}");
            assert_eq!(stats.acted, stats.kinds.sum(), "seed {seed}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let run = |seed: u64| {
        let mut w = pair(Profile::Default);
        w.hosts[0].node.faults = crate::fault::Faults::new(seed);
        let half = When::new(0, 2, true).unwrap();
        let puts = traffic("*", "*", Kinds::PUT);
        let rule = DropRule { when: half, ..DropRule::fail(puts, Errors::LOCAL_ERROR) };
        add_drop(&mut w, 0, rule);
        for i in 0..40 {
            w.put(0, B[0], i, false);
            w.run(ms(5));
        }
        w.hosts[0].events.iter().map(|e| (e.user, e.status)).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn rules_added_and_deleted_leave_messages_alone() {
    let mut w = pair(Profile::Default);
    let mut rng = Prng::new(11);
    for _ in 0..20 {
        add_drop(&mut w, 0, any_drop_rule(&mut rng));
        let rule = any_delay_rule(&mut rng);
        w.hosts[0].node.add_delay_rule(w.now, rule).unwrap();
    }
    w.hosts[0].node.del_drop_rules(w.now, NidMatch::Any, NidMatch::Any);
    w.hosts[0].node.del_delay_rules(w.now, NidMatch::Any, NidMatch::Any);
    for i in 0..10 {
        w.put(0, B[0], i, true);
        w.run(ms(10));
        assert_eq!(w.events(0, i).len(), 2);
    }
}
