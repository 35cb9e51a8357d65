//! The selection policy (UDSP): its rules, what they do to selection, and that they leave no trace.

use core::num::NonZeroU32;
use core::time::Duration;

use lnet_types::{HealthStatus, Prng};

use super::world::{World, nid};
use crate::{Profile, Rule, RuleError, RuleKind};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];

fn pair(profile: Profile) -> World {
    let mut w = World::new();
    w.host(profile, &A);
    w.host(profile, &B);
    w.discovered(0, B[0]);
    w
}

/// A rule as on the command line: `src X dst X rte X priority N messages N`.
pub(super) fn rule(text: &str) -> Rule {
    let words: Vec<_> = text.split_whitespace().collect();
    let word = |name: &str| words.iter().position(|w| *w == name).map(|i| words[i + 1]);
    let pattern = |name: &str| word(name).map(|w| w.parse().unwrap());
    let number = |name: &str| word(name).map(|w| w.parse::<u32>().unwrap());
    let messages = number("messages").and_then(NonZeroU32::new);
    let (src, dst, rte) = (pattern("src"), pattern("dst"), pattern("rte"));
    Rule::new(src, dst, rte, number("priority"), messages).unwrap()
}

fn add(w: &mut World, text: &str) -> usize {
    let now = w.now;
    w.hosts[0].node.udsp_add(now, rule(text), None).unwrap()
}

/// Sends `n` PUTs one after the other and returns the pairs used, as indices of interfaces.
fn burst(w: &mut World, n: u64) -> Vec<(usize, usize)> {
    let at = |list: [&str; 2], n: &str| list.iter().position(|x| *x == n).unwrap();
    w.hosts[0].sent.clear();
    for i in 0..n {
        w.put(0, B[0], i, false);
        w.run(Duration::from_millis(10));
    }
    let used: Vec<_> = w.pairs(0).iter().map(|(s, d)| (at(A, s), at(B, d))).collect();
    assert_eq!(used.len(), n as usize);
    used
}

/// How many of a burst of `n` left from each interface and went to each one.
fn shares(w: &mut World, n: u64) -> ([usize; 2], [usize; 2]) {
    let used = burst(w, n);
    let from = |i| used.iter().filter(|p| p.0 == i).count();
    let to = |i| used.iter().filter(|p| p.1 == i).count();
    ([from(0), from(1)], [to(0), to(1)])
}

/// Priorities: (network, interface) of ours, then of the peer's, in the order of `A` and `B`.
type Priorities = [(Option<u32>, Option<u32>); 2];

fn priorities(w: &World) -> (Priorities, Priorities) {
    let node = &w.hosts[0].node;
    let nets = node.net_views();
    let ours = A.map(|n| {
        let net = nets.iter().find(|v| v.net == nid(n).net()).unwrap();
        (net.priority, net.nis.iter().find(|v| v.nid == nid(n)).unwrap().priority)
    });
    let theirs = B.map(|n| {
        let v = node.peer_view_of(nid(n)).unwrap();
        let v = v.nis.iter().find(|v| v.nid == nid(n)).unwrap();
        (v.net_priority, v.priority)
    });
    (ours, theirs)
}

const NEUTRAL: (Priorities, Priorities) = ([(None, None); 2], [(None, None); 2]);

/// The first rank-2 reason of the last choice of `step`.
fn reason(w: &World, step: crate::Step) -> crate::Criterion {
    let e = w.hosts[0].node.explain(nid(B[0]), None, 100);
    let choice = e.choices.iter().find(|c| c.step == step).unwrap();
    choice.candidates[0].decided.unwrap()
}

#[test]
fn x33_an_interface_with_priority_carries_everything_while_healths_are_equal() {
    let mut w = pair(Profile::Kernel);
    assert_eq!(shares(&mut w, 6), ([3, 3], [3, 3]));
    add(&mut w, "src 10.77.1.2@tcp priority 0");
    let (ours, theirs) = priorities(&w);
    assert_eq!(ours, [(None, None), (None, Some(0))]);
    assert_eq!(theirs, NEUTRAL.1);
    assert_eq!(reason(&w, crate::Step::Interface), crate::Criterion::Priority);
    assert_eq!(shares(&mut w, 6), ([0, 6], [3, 3]));
    // Health comes before priority. Recovery pings fail meanwhile, as they did when recorded.
    w.decide = Box::new(|t| match t.hdr.kind {
        lnet_wire::Kind::Get { .. } => super::world::Fate::Fail(lnet_types::Fault::new(
            HealthStatus::LocalError,
            lnet_types::Errno::EIO,
        )),
        _ => super::world::Fate::Pass,
    });
    let now = w.now;
    w.hosts[0].node.set_ni_health(now, Some(nid(A[1])), 900);
    assert_eq!(reason(&w, crate::Step::Interface), crate::Criterion::Health);
    assert_eq!(shares(&mut w, 4), ([4, 0], [2, 2]));
    w.hosts[0].node.set_ni_health(w.now, Some(nid(A[1])), 0);
    assert_eq!(shares(&mut w, 4), ([4, 0], [2, 2]));
}

#[test]
fn x34_the_lowest_index_wins_and_deletion_reverts() {
    let mut w = pair(Profile::Kernel);
    add(&mut w, "src 10.77.0.2@tcp priority 5");
    add(&mut w, "src 10.77.[0-1].2@tcp priority 1");
    let shown: Vec<_> = w.hosts[0].node.udsp_rules().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["src 10.77.0.2@tcp priority 5", "src 10.77.[0-1].2@tcp priority 1"]);
    assert_eq!(priorities(&w).0, [(None, Some(5)), (None, Some(1))]);
    assert_eq!(shares(&mut w, 4), ([0, 4], [2, 2]));
    w.hosts[0].node.udsp_del(w.now, 0).unwrap();
    // The kernel leaves the first interface without priority until a rule is added (U-27); here the
    // rule that remains has its full effect at once.
    assert_eq!(priorities(&w).0, [(None, Some(1)), (None, Some(1))]);
    // As recorded after the next addition, which changes nothing else.
    add(&mut w, "src 10.77.0.2@tcp priority 5");
    assert_eq!(priorities(&w).0, [(None, Some(1)), (None, Some(1))]);
    // A rule about the same changes its number and keeps its place.
    let now = w.now;
    let again = rule("src 10.77.0.2@tcp priority 7");
    assert_eq!(w.hosts[0].node.udsp_add(now, again.clone(), Some(0)), Ok(1));
    assert_eq!(priorities(&w).0, [(None, Some(1)), (None, Some(1))]);
    let e = w.hosts[0].node.udsp_add(now, again, None).unwrap_err();
    assert_eq!((&e, e.errno()), (&RuleError::Exists(1), lnet_types::Errno::EALREADY));
    w.hosts[0].node.udsp_clear(now);
    assert_eq!(priorities(&w), NEUTRAL);
    let e = w.hosts[0].node.udsp_del(now, 3).unwrap_err();
    assert_eq!(e.errno(), lnet_types::Errno::ENOENT);
}

#[test]
fn x35_a_pair_rule_ties_an_interface_of_ours_to_one_of_the_peers() {
    let mut w = pair(Profile::Kernel);
    add(&mut w, "src 10.77.0.2@tcp dst 10.77.1.3@tcp");
    assert_eq!(priorities(&w), NEUTRAL, "not shown as a priority");
    let used = burst(&mut w, 12);
    for p in used {
        assert_eq!(p.0, 1 - p.1, "A1 goes to B2, and rotation leaves B1 to A2");
    }
    // In the kernel a pair rule with a priority is kept without effect (U-4).
    add(&mut w, "src 10.77.0.2@tcp dst 10.77.0.3@tcp priority 3");
    assert_eq!(w.hosts[0].node.udsp_rules().len(), 2);
    assert!(burst(&mut w, 4).iter().all(|p| p.0 == 1 - p.1));
    w.hosts[0].node.udsp_clear(w.now);
    let v = w.hosts[0].node.peer_view_of(nid(B[0])).unwrap();
    assert!(v.nis.iter().all(|n| n.preferred.is_empty()));
}

#[test]
fn rules_about_peers_and_networks_set_their_priorities() {
    let mut w = pair(Profile::Kernel);
    add(&mut w, "dst 10.77.1.3@tcp");
    assert_eq!(priorities(&w).1, [(None, None), (None, Some(0))]);
    assert_eq!(shares(&mut w, 6), ([3, 3], [0, 6]));
    w.hosts[0].node.udsp_clear(w.now);
    add(&mut w, "src tcp priority 4");
    assert_eq!(priorities(&w).0, [(Some(4), None); 2]);
    add(&mut w, "dst tcp priority 2");
    assert_eq!(priorities(&w), ([(Some(4), None); 2], [(Some(2), None); 2]));
    let at = add(&mut w, "rte 10.77.0.4@tcp");
    assert_eq!(w.hosts[0].node.udsp_rules()[at].kind(), RuleKind::Idle);
    // Priorities of peers that come later, and of peers that come back.
    w.hosts[0].node.peer_add(w.now, nid("10.77.7.7@tcp"), &[], true, false).unwrap();
    let v = w.hosts[0].node.peer_view_of(nid("10.77.7.7@tcp")).unwrap();
    assert_eq!((v.nis[0].net_priority, v.nis[0].priority), (Some(2), None));
    w.hosts[0].node.udsp_clear(w.now);
    assert_eq!(priorities(&w), NEUTRAL);
}

#[test]
fn a_network_with_priority_carries_everything_until_it_fails() {
    let mut w = World::new();
    w.host(Profile::Default, &["10.77.0.2@tcp", "10.77.1.2@tcp1"]);
    w.host(Profile::Default, &["10.77.0.3@tcp", "10.77.1.3@tcp1"]);
    w.discovered(0, B[0]);
    add(&mut w, "src tcp1");
    let from = |w: &mut World| {
        w.hosts[0].sent.clear();
        for i in 0..4 {
            w.put(0, B[0], i, false);
            w.run(Duration::from_millis(10));
        }
        w.pairs(0).iter().filter(|p| p.0.ends_with("tcp1")).count()
    };
    assert_eq!(from(&mut w), 4);
    assert_eq!(reason(&w, crate::Step::Network), crate::Criterion::LocalPriority);
    let ni = *w.hosts[0].nids.iter().find(|(_, n)| **n == nid("10.77.1.2@tcp1")).unwrap().0;
    w.hosts[0].node.link_changed(w.now, ni, crate::Link::Down);
    assert_eq!(from(&mut w), 0);
    assert_eq!(reason(&w, crate::Step::Network), crate::Criterion::Usable);
}

#[test]
fn udsp_first_puts_priority_before_health_but_not_before_a_lost_link() {
    let mut w = pair(Profile::Default);
    w.hosts[0].node.set_tunables(w.now, &[("udsp_first", 1)]).unwrap();
    add(&mut w, "src 10.77.1.2@tcp");
    w.hosts[0].node.set_ni_health(w.now, Some(nid(A[1])), 300);
    w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(B[0])), 300);
    assert_eq!(shares(&mut w, 4), ([0, 4], [0, 4]));
    let ni = *w.hosts[0].nids.iter().find(|(_, n)| **n == nid(A[1])).unwrap().0;
    w.hosts[0].node.link_changed(w.now, ni, crate::Link::Down);
    assert_eq!(shares(&mut w, 4).0, [4, 0]);
}

#[test]
fn exclude_at_zero_leaves_interfaces_at_zero_to_recovery() {
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|t| match t.hdr.kind {
        lnet_wire::Kind::Get { .. } => super::world::Fate::Hold,
        _ => super::world::Fate::Pass,
    });
    w.hosts[0].node.set_ni_health(w.now, None, 0);
    // DEC-14: used when there is nothing better.
    burst(&mut w, 1);
    w.hosts[0].node.set_ni_health(w.now, None, 0);
    w.hosts[0].node.set_tunables(w.now, &[("exclude_at_zero", 1)]).unwrap();
    w.hosts[0].events.clear();
    w.put(0, B[0], 9, false);
    assert_eq!(w.hosts[0].events[0].status, Err(lnet_types::Errno::EHOSTUNREACH));
    // Recovery goes on, and brings them back.
    w.decide = Box::new(|_| super::world::Fate::Pass);
    w.secs(60);
    w.hosts[0].events.clear();
    w.put(0, B[0], 10, false);
    w.run(Duration::from_millis(10));
    assert_eq!(w.hosts[0].events[0].status, Ok(()));
}

/// What the pairs of a burst may be, for each form of a mapping (MR-cfg-120 … MR-cfg-140).
#[test]
fn mappings_one_to_one_one_to_many_many_to_one_and_many_to_many() {
    type Allowed = fn((usize, usize)) -> bool;
    let table: [(&[&str], &str, Allowed); 6] = [
        (&["src 10.77.0.2@tcp dst 10.77.1.3@tcp"], "1:1, the other free", |p| p.0 == 1 - p.1),
        (&["src 10.77.0.2@tcp dst 10.77.*.3@tcp"], "1:N", |p| p.0 == 0),
        (&["src 10.77.[0-1].2@tcp dst 10.77.1.3@tcp"], "N:1", |p| p.1 == 1),
        (&["src 10.77.[0-1].2@tcp dst 10.77.[0-1].3@tcp"], "N:N", |_| true),
        (
            &["src 10.77.0.2@tcp dst 10.77.0.3@tcp", "src 10.77.1.2@tcp dst 10.77.1.3@tcp"],
            "two of 1:1",
            |p| p.0 == p.1,
        ),
        (&["src 10.77.1.2@tcp dst tcp"], "1:net", |p| p.0 == 1),
    ];
    for (rules, what, allowed) in table {
        let mut w = pair(Profile::Default);
        for r in rules {
            add(&mut w, r);
        }
        let used = burst(&mut w, 12);
        assert!(used.iter().all(|p| allowed(*p)), "{what}: {used:?}");
    }
}

#[test]
fn the_mapping_of_higher_priority_is_used_for_an_interface_with_two() {
    let table: [(&[&str], usize); 4] = [
        // By index, where the priorities are the same or absent.
        (&["src 10.77.0.2@tcp dst 10.77.*.3@tcp", "src 10.77.1.2@tcp dst 10.77.*.3@tcp"], 0),
        (&["src 10.77.1.2@tcp dst 10.77.*.3@tcp", "src 10.77.0.2@tcp dst 10.77.*.3@tcp"], 1),
        // By number.
        (
            &[
                "src 10.77.0.2@tcp dst 10.77.*.3@tcp priority 4",
                "src 10.77.1.2@tcp dst 10.77.*.3@tcp priority 3",
            ],
            1,
        ),
        // No number is the highest (DEC-27).
        (
            &[
                "src 10.77.0.2@tcp dst 10.77.*.3@tcp priority 0",
                "src 10.77.1.2@tcp dst 10.77.*.3@tcp",
            ],
            1,
        ),
    ];
    for (rules, expected) in table {
        let mut w = pair(Profile::Default);
        for r in rules {
            add(&mut w, r);
        }
        let used = burst(&mut w, 6);
        assert!(used.iter().all(|p| p.0 == expected), "{rules:?}: {used:?}");
    }
}

#[test]
fn a_mapping_gives_way_to_health_on_either_side() {
    let mut w = pair(Profile::Default);
    add(&mut w, "src 10.77.0.2@tcp dst 10.77.*.3@tcp");
    assert!(burst(&mut w, 4).iter().all(|p| p.0 == 0));
    w.hosts[0].node.set_ni_health(w.now, Some(nid(A[0])), 100);
    assert!(burst(&mut w, 4).iter().all(|p| p.0 == 1));
    let mut w = pair(Profile::Default);
    add(&mut w, "src 10.77.0.2@tcp dst 10.77.0.3@tcp");
    add(&mut w, "src 10.77.1.2@tcp dst 10.77.1.3@tcp");
    w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(B[0])), 100);
    assert!(burst(&mut w, 4).iter().all(|p| *p == (1, 1)), "who may not send to B2 stands back");
}

#[test]
fn rules_with_3_and_1_messages_split_400_messages_75_to_25() {
    let rules: [[&str; 2]; 3] = [
        ["src 10.77.0.2@tcp messages 3", "src 10.77.1.2@tcp messages 1"],
        ["dst 10.77.0.3@tcp messages 3", "dst 10.77.1.3@tcp messages 1"],
        [
            "src 10.77.0.2@tcp dst 10.77.0.3@tcp messages 3",
            "src 10.77.1.2@tcp dst 10.77.1.3@tcp messages 1",
        ],
    ];
    for (i, rules) in rules.into_iter().enumerate() {
        for profile in [Profile::Default, Profile::Documents] {
            let mut w = pair(profile);
            for r in rules {
                add(&mut w, r);
            }
            let (from, to) = shares(&mut w, 400);
            let got = if i == 1 { to } else { from };
            assert!((299..=301).contains(&got[0]), "{rules:?}: {got:?}");
        }
    }
}

#[test]
fn counts_5_and_2_give_runs_of_5_and_2() {
    let mut w = pair(Profile::Default);
    add(&mut w, "src 10.77.0.2@tcp dst 10.77.*.3@tcp messages 5");
    add(&mut w, "src 10.77.1.2@tcp dst 10.77.0.3@tcp messages 2");
    let used = burst(&mut w, 70);
    let mut runs = Vec::new();
    for p in used {
        match runs.last_mut() {
            Some((own, n)) if *own == p.0 => *n += 1,
            _ => runs.push((p.0, 1)),
        }
    }
    runs.pop();
    // Both of the peer's interfaces take part in the first rule: two pathways of five each.
    assert!(runs.iter().all(|(own, n)| *n == [10, 2][*own] || (*own, *n) == (0, 5)), "{runs:?}");
    assert!(runs.len() > 6, "{runs:?}");
}

#[test]
fn rules_with_4_and_1_messages_split_traffic_between_networks() {
    let mut w = World::new();
    w.host(Profile::Default, &["10.77.0.2@tcp", "10.77.1.2@tcp1"]);
    w.host(Profile::Default, &["10.77.0.3@tcp", "10.77.1.3@tcp1"]);
    w.discovered(0, B[0]);
    for side in ["dst", "src"] {
        w.hosts[0].node.udsp_clear(w.now);
        w.hosts[0].sent.clear();
        add(&mut w, &format!("{side} tcp messages 4"));
        add(&mut w, &format!("{side} tcp1 messages 1"));
        for i in 0..50 {
            w.put(0, B[0], i, false);
            w.run(Duration::from_millis(10));
        }
        let second = w.pairs(0).iter().filter(|p| p.0.ends_with("tcp1")).count();
        assert_eq!(second, 10, "{side}");
    }
}

#[test]
fn a_peer_that_is_not_multi_rail_is_reached_from_the_interface_that_a_rule_gives() {
    for profile in [Profile::Kernel, Profile::Default] {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &B);
        for h in 0..2 {
            w.hosts[h].node.set_tunables(w.now, &[("discovery", 0)]).unwrap();
        }
        let used = burst(&mut w, 3);
        let before = used[0].0;
        assert!(used.iter().all(|p| p.0 == before));
        let other = A[1 - before];
        add(&mut w, &format!("src {other} dst {}", B[0]));
        assert!(burst(&mut w, 3).iter().all(|p| p.0 != before));
        // What was learnt before is back when the rule is gone.
        w.hosts[0].node.udsp_clear(w.now);
        assert!(burst(&mut w, 3).iter().all(|p| p.0 == before));
    }
}

#[test]
fn router_rules_give_each_peer_its_preferred_gateways() {
    let mut w = pair(Profile::Default);
    let gateways = ["10.77.0.4@tcp", "10.77.0.5@tcp"].map(nid);
    add(&mut w, "dst 10.77.0.3@tcp rte 10.77.0.[4-9]@tcp");
    add(&mut w, "dst 10.77.*.3@tcp rte 10.77.0.5@tcp");
    let routers = |w: &World| {
        let v = w.hosts[0].node.peer_view_of(nid(B[0])).unwrap();
        B.map(|b| v.nis.iter().find(|n| n.nid == nid(b)).unwrap().preferred_routers.clone())
    };
    assert_eq!(routers(&w), [vec![], vec![]], "no routes yet");
    w.hosts[0].node.policy_gateways_changed(gateways.to_vec());
    assert_eq!(routers(&w), [gateways.to_vec(), vec![gateways[1]]]);
    w.hosts[0].node.policy_gateways_changed(vec![gateways[1]]);
    assert_eq!(routers(&w), [vec![gateways[1]], vec![gateways[1]]]);
    w.hosts[0].node.udsp_clear(w.now);
    assert_eq!(routers(&w), [vec![], vec![]]);
}

/// U-25.
#[test]
fn router_rules_follow_a_gateway_that_a_configured_peer_takes_in() {
    let mut w = pair(Profile::Default);
    let (gateway, primary) = ("10.77.0.4@tcp", "10.77.0.5@tcp");
    w.route(0, "tcp1", gateway);
    add(&mut w, "dst 10.77.0.3@tcp rte 10.77.0.[4-9]@tcp");
    let routers = |w: &World| {
        let v = w.hosts[0].node.peer_view_of(nid(B[0])).unwrap();
        v.nis.iter().find(|n| n.nid == nid(B[0])).unwrap().preferred_routers.clone()
    };
    assert_eq!(routers(&w), [nid(gateway)]);
    w.hosts[0].node.peer_add(w.now, nid(primary), &[nid(gateway)], true, false).unwrap();
    assert_eq!(routers(&w), [nid(primary)]);
}

#[test]
fn interfaces_that_come_later_are_under_the_rules_too() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.host(Profile::Default, &B);
    add(&mut w, "src 10.77.1.2@tcp");
    add(&mut w, "src 10.77.1.2@tcp dst 10.77.1.3@tcp");
    w.discovered(0, B[0]);
    let preferred = |w: &World| {
        let v = w.hosts[0].node.peer_view_of(nid(B[1])).unwrap();
        v.nis.iter().find(|n| n.nid == nid(B[1])).unwrap().preferred.clone()
    };
    assert_eq!(preferred(&w), []);
    let ni = w.add_ni(0, A[1], crate::NetTunables::SOCK);
    w.secs(2);
    assert_eq!(preferred(&w), [nid(A[1])]);
    assert_eq!(shares(&mut w, 4).0, [0, 4]);
    w.hosts[0].node.del_ni(w.now, ni).unwrap();
    assert_eq!(preferred(&w), [], "an interface that is gone is not preferred");
}

/// A rule of random content about the interfaces of the two hosts.
pub(super) fn any_rule(rng: &mut Prng) -> Rule {
    let ours = ["tcp", "10.77.0.2@tcp", "10.77.[0-1].2@tcp", "*@tcp", "10.77.1.*@tcp", "tcp[0-1]"];
    let theirs =
        ["tcp", "10.77.1.3@tcp", "10.77.[0-1].[3-4]@tcp", "*@tcp", "10.77.0.*@tcp", "tcp1"];
    let mut text = match rng.below(4) {
        0 => format!("src {}", ours[rng.below(6) as usize]),
        1 => format!("dst {}", theirs[rng.below(6) as usize]),
        2 => {
            let (s, d) = (ours[rng.below(6) as usize], theirs[rng.below(6) as usize]);
            format!("src {s} dst {d}")
        }
        _ => format!("dst {} rte 10.77.0.[4-5]@tcp", theirs[rng.below(6) as usize]),
    };
    if rng.below(2) == 0 {
        text += &format!(" priority {}", rng.below(3));
    }
    if rng.below(2) == 0 && !text.contains("rte") {
        text += &format!(" messages {}", 1 + rng.below(3));
    }
    rule(&text)
}

/// All that selection reads, as text.
fn state(w: &World) -> String {
    let n = &w.hosts[0].node;
    format!("{:?} {:?} {:?}", n.nis.nets(), n.nis.iter().collect::<Vec<_>>(), n.nis.floor())
        + &format!("{:?} {:?}", n.peers.peers, n.peers.nis)
}

#[test]
fn any_rules_added_and_deleted_leave_the_state_of_selection_as_it_was() {
    for seed in 1..=300 {
        let mut rng = Prng::new(seed);
        let profile = [Profile::Default, Profile::Kernel][rng.below(2) as usize];
        let mut w = pair(profile);
        w.hosts[0].node.policy_gateways_changed(vec![nid("10.77.0.4@tcp")]);
        // Some rules stay, with traffic under them.
        for _ in 0..rng.below(3) {
            let _ = w.hosts[0].node.udsp_add(w.now, any_rule(&mut rng), None);
        }
        burst(&mut w, rng.below(8));
        w.secs(1);
        let before = (state(&w), w.hosts[0].node.udsp_rules().to_vec());
        let mut added = Vec::new();
        for _ in 0..=rng.below(5) {
            let r = any_rule(&mut rng);
            // Changing the number of a rule is not an addition.
            if !w.hosts[0].node.udsp_rules().iter().any(|x| x.about_the_same(&r)) {
                let len = w.hosts[0].node.udsp_rules().len() as u64;
                let at = Some(rng.below(len + 2) as usize);
                let _ = w.hosts[0].node.udsp_add(w.now, r.clone(), at).unwrap();
                added.push(r);
            }
        }
        while !added.is_empty() {
            let r = added.swap_remove(rng.below(added.len() as u64) as usize);
            let at = w.hosts[0].node.udsp_rules().iter().position(|x| *x == r).unwrap();
            w.hosts[0].node.udsp_del(w.now, at).unwrap();
        }
        let after = (state(&w), w.hosts[0].node.udsp_rules().to_vec());
        assert_eq!(before, after, "seed {seed}");
    }
}

#[test]
fn the_state_of_selection_depends_on_its_present_rules_alone() {
    for seed in 1..=200 {
        let mut rng = Prng::new(seed);
        let mut w = pair(Profile::Default);
        let mut fresh = pair(Profile::Default);
        for _ in 0..12 {
            let len = w.hosts[0].node.udsp_rules().len() as u64;
            if rng.below(3) == 0 && len > 0 {
                w.hosts[0].node.udsp_del(w.now, rng.below(len) as usize).unwrap();
            } else {
                let at = Some(rng.below(len + 1) as usize);
                let _ = w.hosts[0].node.udsp_add(w.now, any_rule(&mut rng), at);
            }
        }
        for r in w.hosts[0].node.udsp_rules().to_vec() {
            fresh.hosts[0].node.udsp_add(fresh.now, r, None).unwrap();
        }
        assert_eq!(state(&w), state(&fresh), "seed {seed}");
    }
}

/// A model of U-20 … U-23: the first rule that matches, by looking at all of them.
#[test]
fn priorities_are_those_of_the_first_rule_that_matches() {
    for seed in 1..=300 {
        let mut rng = Prng::new(seed);
        let mut w = pair(Profile::Default);
        for _ in 0..6 {
            let _ = w.hosts[0].node.udsp_add(w.now, any_rule(&mut rng), None);
        }
        let rules = w.hosts[0].node.udsp_rules().to_vec();
        let first = |kind, matches: &dyn Fn(&Rule) -> bool| {
            rules.iter().find(|r| r.kind() == kind && matches(r)).and_then(Rule::priority)
        };
        let (ours, theirs) = priorities(&w);
        for (i, n) in A.map(nid).into_iter().enumerate() {
            let by_net = first(RuleKind::Local, &|r| r.src().unwrap().matches_net(n.net()));
            let by_nid = first(RuleKind::Local, &|r| r.src().unwrap().matches_nid(n));
            assert_eq!(ours[i], (by_net, by_nid), "seed {seed}: {rules:#?}");
        }
        for (i, n) in B.map(nid).into_iter().enumerate() {
            let by_net = first(RuleKind::Remote, &|r| r.dst().unwrap().matches_net(n.net()));
            let by_nid = first(RuleKind::Remote, &|r| r.dst().unwrap().matches_nid(n));
            assert_eq!(theirs[i], (by_net, by_nid), "seed {seed}: {rules:#?}");
        }
    }
}
