//! Selection with its reasons: which candidate, and by which criterion; NUMA; the ring of reasons.

use core::time::Duration;

use lnet_types::{Errno, Nid, Prng};

use super::world::{Fate, World, nid};
use crate::{
    Candidate, Criterion, Explanation, Freedom, Named, NetTunables, Outcome, Profile, Step,
};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];

fn pair(profile: Profile) -> World {
    let mut w = World::new();
    w.host(profile, &A);
    w.host(profile, &B);
    w.discovered(0, B[0]);
    // Both sides have been used as often.
    while !is_even(&w) {
        w.put(0, B[0], 1, false);
        w.run(Duration::from_millis(10));
    }
    w.hosts[0].sent.clear();
    w
}

/// Whether the first interfaces are next by rotation, on both sides.
fn is_even(w: &World) -> bool {
    chosen(&w.hosts[0].node.explain(nid(B[0]), None, 0)) == (nid(A[0]), nid(B[0]))
}

fn chosen(e: &Explanation) -> (Nid, Nid) {
    match e.outcome {
        Outcome::Path(from, to) => (from, to),
        other => panic!("{other:?}: {e}"),
    }
}

fn first(e: &Explanation, step: Step) -> (Named, Criterion) {
    let choice = e.choices.iter().find(|c| c.step == step).unwrap();
    (choice.candidates[0].name, choice.candidates[0].decided.unwrap())
}

fn ni_id(w: &World, n: &str) -> lnet_types::NiId {
    *w.hosts[0].nids.iter().find(|(_, x)| **x == nid(n)).unwrap().0
}

#[test]
fn an_explanation_names_the_criterion_that_put_one_interface_first() {
    type Prepare = fn(&mut World);
    // Each row makes A2 or B2 better than A1 or B1 by one criterion only.
    let table: [(Profile, Prepare, Step, Criterion); 10] = [
        (
            Profile::Default,
            |w| {
                let id = ni_id(w, A[0]);
                w.hosts[0].node.link_changed(w.now, id, crate::Link::Down);
            },
            Step::Interface,
            Criterion::Usable,
        ),
        (
            Profile::Kernel,
            |w| w.hosts[0].node.set_ni_health(w.now, Some(nid(A[0])), 999),
            Step::Interface,
            Criterion::Health,
        ),
        (
            Profile::Kernel,
            |w| {
                let r = super::policy::rule("src 10.77.1.2@tcp priority 9");
                w.hosts[0].node.udsp_add(w.now, r, None).unwrap();
            },
            Step::Interface,
            Criterion::Priority,
        ),
        (
            Profile::Default,
            |w| {
                let r = super::policy::rule("src 10.77.1.2@tcp dst *@tcp");
                w.hosts[0].node.udsp_add(w.now, r, None).unwrap();
            },
            Step::Interface,
            Criterion::Pairing,
        ),
        (
            Profile::Kernel,
            |w| {
                let n = &mut w.hosts[0].node;
                n.set_numa_distances(vec![vec![10, 21], vec![21, 10]]).unwrap();
                n.set_numa_home(Some(1));
                for (i, a) in A.into_iter().enumerate() {
                    let id = ni_id(w, a);
                    w.hosts[0].node.set_ni_numa_node(id, Some(i as u32)).unwrap();
                }
            },
            Step::Interface,
            Criterion::Distance,
        ),
        (
            Profile::Kernel,
            |w| {
                w.decide = Box::new(|_| Fate::Hold);
                w.put(0, B[0], 1, false);
            },
            Step::Interface,
            Criterion::Credits,
        ),
        (
            Profile::Kernel,
            |w| {
                w.put(0, B[0], 1, false);
                w.run(Duration::from_millis(10));
            },
            Step::Interface,
            Criterion::Rotation,
        ),
        (
            Profile::Kernel,
            |w| w.hosts[0].node.set_peer_ni_health(w.now, Some(nid(B[0])), 999),
            Step::PeerInterface,
            Criterion::Health,
        ),
        (
            Profile::Default,
            |w| {
                w.decide = Box::new(|_| Fate::Hold);
                w.put(0, B[0], 1, false);
            },
            Step::PeerInterface,
            Criterion::QueuedBytes,
        ),
        (
            Profile::Kernel,
            |w| {
                let r = super::policy::rule("src 10.77.0.2@tcp dst 10.77.1.3@tcp");
                w.hosts[0].node.udsp_add(w.now, r, None).unwrap();
            },
            Step::PeerInterface,
            Criterion::Pairing,
        ),
    ];
    for (i, (profile, prepare, step, criterion)) in table.into_iter().enumerate() {
        let mut w = pair(profile);
        prepare(&mut w);
        let e = w.hosts[0].node.explain(nid(B[0]), None, 100);
        let second = if step == Step::Interface { A[1] } else { B[1] };
        assert_eq!(first(&e, step), (Named::Nid(nid(second)), criterion), "row {i}:\n{e}");
    }
}

#[test]
fn the_explained_path_is_the_path_taken() {
    for seed in 1..=150 {
        let mut rng = Prng::new(seed);
        let mut w = pair(Profile::ALL[rng.below(5) as usize]);
        for _ in 0..rng.below(4) {
            let rule = super::policy::any_rule(&mut rng);
            let _ = w.hosts[0].node.udsp_add(w.now, rule, None);
        }
        w.decide = Box::new(|t| {
            let put = matches!(t.hdr.kind, lnet_wire::Kind::Put { .. });
            if put { Fate::Hold } else { Fate::Pass }
        });
        for i in 0..20 {
            if rng.below(4) == 0 {
                let a = nid(A[rng.below(2) as usize]);
                w.hosts[0].node.set_ni_health(w.now, Some(a), 900 + 50 * rng.below(3) as u32);
            }
            let expected = chosen(&w.hosts[0].node.explain(nid(B[0]), None, 100));
            w.hosts[0].node.set_tunables(w.now, &[("explain_last", 1)]).unwrap();
            w.put(0, B[0], i, false);
            let explained = w.hosts[0].node.explained().next().unwrap();
            assert_eq!(chosen(explained), expected, "seed {seed}");
            if rng.below(2) == 0 && !w.held.is_empty() {
                w.release();
                w.run(Duration::from_millis(2));
            }
        }
    }
}

#[test]
fn explaining_a_path_leaves_the_node_unchanged() {
    let w = pair(Profile::Default);
    let before = format!("{:?}", w.hosts[0].node);
    for (target, src) in [(B[0], None), (B[0], Some(A[1])), ("10.77.9.9@tcp", None), ("0@lo", None)]
    {
        let e = w.hosts[0].node.explain(nid(target), src.map(nid), 10);
        assert!(e.to_string().lines().count() >= 2, "{e}");
    }
    assert_eq!(format!("{:?}", w.hosts[0].node), before);
}

#[test]
fn an_explanation_says_how_free_the_choice_of_a_path_was() {
    let mut w = pair(Profile::Default);
    let ask = |w: &World, target: &str, src: Option<&str>| {
        let e = w.hosts[0].node.explain(nid(target), src.map(nid), 10);
        (e.freedom, e.outcome, e.discovers)
    };
    let path = |a: &str, b: &str| Outcome::Path(nid(a), nid(b));
    assert_eq!(ask(&w, B[1], Some(A[1])), (Freedom::None, path(A[1], B[1]), false));
    assert_eq!(
        ask(&w, B[1], Some("10.9.9.9@tcp")),
        (Freedom::None, Outcome::NoPath(Errno::EINVAL), false)
    );
    assert_eq!(ask(&w, "10.77.9.9@tcp", None), (Freedom::All, Outcome::DiscoverFirst, true));
    w.put(0, "10.77.9.9@tcp", 1, false);
    w.secs(1);
    let tried = w.hosts[0].node.explain(nid("10.77.9.9@tcp"), None, 10);
    assert_eq!(tried.freedom, Freedom::Unheard, "{tried}");
    w.hosts[0].node.peer_add(w.now, nid("10.77.9.8@tcp"), &[], true, false).unwrap();
    let configured = w.hosts[0].node.explain(nid("10.77.9.8@tcp"), None, 10);
    assert_eq!(configured.freedom, Freedom::Unheard, "{configured}");
    assert_eq!(ask(&w, "0@lo", None), (Freedom::Loopback, path("0@lo", "0@lo"), false));
    let long = w.hosts[0].node.explain(nid(B[0]), None, 2 << 20).outcome;
    assert_eq!(long, Outcome::NoPath(Errno::EMSGSIZE));
}

#[test]
fn an_explanation_prints_as_a_table_with_a_line_for_each_candidate() {
    let mut w = pair(Profile::Kernel);
    let r = super::policy::rule("src 10.77.1.2@tcp");
    w.hosts[0].node.udsp_add(w.now, r, None).unwrap();
    let text = w.hosts[0].node.explain(nid(B[0]), None, 4096).to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0], "message of 4096 bytes to 10.77.0.3@tcp: any interface of both sides",
        "{text}"
    );
    assert!(lines[1].starts_with("  network           1  tcp "), "{text}");
    assert!(lines[1].contains("the only one"), "{text}");
    assert!(
        lines[2].starts_with("  interface         1  10.77.1.2@tcp             first by priority"),
        "{text}"
    );
    assert!(
        lines[3].contains("2  10.77.0.2@tcp             next by priority: health 1000"),
        "{text}"
    );
    assert_eq!(lines[6], "  goes from 10.77.1.2@tcp to 10.77.0.3@tcp", "{text}");
}

/// The word of the other views: `lnet-admin`'s `InterfaceState`.
#[test]
fn an_interface_without_a_link_is_shown_as_down() {
    let mut w = pair(Profile::Default);
    let id = ni_id(&w, A[0]);
    w.hosts[0].node.link_changed(w.now, id, crate::Link::Down);
    let text = w.hosts[0].node.explain(nid(B[0]), None, 0).to_string();
    let line = text.lines().find(|line| line.contains("2  10.77.0.2@tcp")).unwrap();
    assert!(line.contains("next by state: state down"), "{text}");
}

#[test]
fn the_time_of_the_last_message_is_seen_on_our_interface_and_the_peers() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.host(Profile::Default, &B[..1]);
    let times = |w: &World| {
        let node = &w.hosts[0].node;
        let ours = node.ni_view(ni_id(w, A[0])).unwrap().last_received;
        let theirs = node.peer_view_of(nid(B[0])).and_then(|p| p.nis[0].last_received);
        (ours, theirs)
    };
    assert_eq!(times(&w), (None, None), "no message yet");
    w.discovered(0, B[0]);
    let (ours, theirs) = times(&w);
    assert!(ours.is_some() && ours == theirs, "{ours:?} {theirs:?}");
    let sent = w.now;
    w.put(1, A[0], 1, false);
    w.run(Duration::from_millis(10));
    let (ours, theirs) = times(&w);
    assert!(ours > Some(sent) && ours == theirs, "{ours:?} {theirs:?}");
}

#[test]
fn the_ring_keeps_the_last_messages_and_costs_nothing_when_off() {
    let mut w = pair(Profile::Default);
    w.put(0, B[0], 1, false);
    assert_eq!(w.hosts[0].node.explained().len(), 0);
    w.hosts[0].node.set_tunables(w.now, &[("explain_last", 3)]).unwrap();
    for i in 0..5 {
        w.put(0, B[0], i, true);
    }
    let kinds: Vec<_> = w.hosts[0].node.explained().map(|e| (e.kind.unwrap(), e.size)).collect();
    assert_eq!(kinds, [(lnet_wire::MsgType::Put, 100); 3]);
    w.hosts[0].node.set_tunables(w.now, &[("explain_last", 0)]).unwrap();
    assert_eq!(w.hosts[0].node.explained().len(), 0);
}

#[test]
fn a_message_sent_again_says_what_it_had_tried() {
    let mut w = pair(Profile::Default);
    w.hosts[0].node.set_tunables(w.now, &[("explain_last", 8), ("health_range", 1000)]).unwrap();
    let mut left = 1;
    w.decide = Box::new(move |t| {
        let put = matches!(t.hdr.kind, lnet_wire::Kind::Put { .. });
        if put && left > 0 {
            left -= 1;
            return Fate::Fail(lnet_types::Fault::new(
                lnet_types::HealthStatus::LocalTimeout,
                Errno::EIO,
            ));
        }
        Fate::Pass
    });
    w.put(0, B[0], 1, false);
    w.run(Duration::from_millis(10));
    let explained: Vec<_> = w.hosts[0].node.explained().collect();
    let again = explained.iter().find(|e| e.retries == 1).unwrap();
    assert_eq!(first(again, Step::Interface).1, Criterion::Tried, "{again}");
    assert_ne!(chosen(explained[0]), chosen(again));
}

#[test]
fn a_path_on_which_the_message_failed_is_shown_as_tried_before() {
    let mut w = World::new();
    w.host(Profile::Default, &A[..1]);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    w.hosts[0].node.set_tunables(w.now, &[("explain_last", 8), ("health_range", 1000)]).unwrap();
    let mut failed = None;
    w.decide = Box::new(move |t| {
        let put = matches!(t.hdr.kind, lnet_wire::Kind::Put { .. });
        match put && failed.replace(()).is_none() {
            true => Fate::Fail(lnet_types::Fault::new(
                lnet_types::HealthStatus::RemoteDropped,
                Errno::EIO,
            )),
            false => Fate::Pass,
        }
    });
    w.put(0, B[0], 1, false);
    w.run(Duration::from_millis(10));
    let all: Vec<_> = w.hosts[0].node.explained().collect();
    let (at_first, again) = (all[0], *all.iter().find(|e| e.retries == 1).unwrap());
    let tried = |e: &Explanation| {
        let choice = e.choices.iter().find(|c| c.step == Step::PeerInterface).unwrap();
        let of = |c: &Candidate| {
            let fact = c.facts.iter().find(|(criterion, _)| *criterion == Criterion::Tried);
            (c.name.to_string(), fact.map(|(_, value)| value.clone()))
        };
        choice.candidates.iter().map(of).collect::<Vec<_>>()
    };
    assert!(tried(at_first).iter().all(|(_, fact)| fact.is_none()), "{at_first}");
    let (_, before) = chosen(at_first);
    for (nid, fact) in tried(again) {
        let expected = (nid == before.to_string()).then(|| "yes".to_owned());
        assert_eq!(fact, expected, "{nid}: {again}");
    }
    assert!(again.to_string().contains("tried before yes"), "{again}");
}

#[test]
fn x36_interfaces_within_numa_range_rotate_beyond_it_the_nearest_carries_everything() {
    let mut w = pair(Profile::Kernel);
    let near = w.hosts[0].mem.add(vec![7; 64]);
    let region = near[0].region;
    w.hosts[0].node.set_numa_distances(vec![vec![10, 20], vec![20, 10]]).unwrap();
    for (i, a) in A.into_iter().enumerate() {
        let id = ni_id(&w, a);
        w.hosts[0].node.set_ni_numa_node(id, Some(i as u32)).unwrap();
    }
    let send = |w: &mut World, numa_node: u32, range: i64| {
        w.hosts[0].node.set_tunables(w.now, &[("numa_range", range)]).unwrap();
        w.hosts[0].node.set_region_numa_node(region, Some(numa_node));
        w.hosts[0].sent.clear();
        for _ in 0..6 {
            let md = w.hosts[0].node.bind(crate::MdSpec::new(near.clone(), 1)).unwrap();
            let put = crate::Put {
                md,
                ack: false,
                src: None,
                target: lnet_types::ProcessId::lustre(nid(B[0])),
                portal: super::world::PT,
                match_bits: super::world::BITS,
                offset: 0,
                hdr_data: 0,
                timeout: None,
            };
            w.hosts[0].node.put(w.now, put).unwrap();
            w.run(Duration::from_millis(10));
        }
        let from = |a| w.pairs(0).iter().filter(|p| p.0 == a).count();
        let to = |b| w.pairs(0).iter().filter(|p| p.1 == b).count();
        assert_eq!(to(B[0]), 3, "distance plays no part in the choice of the peer's interface");
        (from(A[0]), from(A[1]))
    };
    assert_eq!(send(&mut w, 0, 0), (6, 0));
    assert_eq!(send(&mut w, 1, 0), (0, 6));
    assert_eq!(send(&mut w, 0, 15), (6, 0));
    assert_eq!(send(&mut w, 0, 20), (3, 3));
    assert_eq!(send(&mut w, 0, 1000), (3, 3));
}

#[test]
fn numa_range_0_middle_and_huge_leave_one_two_and_four_interfaces_and_a_rule_beats_distance() {
    let ours = ["10.77.0.2@tcp", "10.77.1.2@tcp", "10.77.2.2@tcp", "10.77.3.2@tcp"];
    let mut w = World::new();
    w.host(Profile::Default, &ours);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    let n = &mut w.hosts[0].node;
    n.set_numa_distances(vec![vec![10, 15, 21, 31]; 4]).unwrap();
    n.set_numa_home(Some(0));
    for (i, nid) in ours.iter().enumerate() {
        let id = ni_id(&w, nid);
        w.hosts[0].node.set_ni_numa_node(id, Some(i as u32)).unwrap();
    }
    let used = |w: &mut World, range: i64| {
        w.hosts[0].node.set_tunables(w.now, &[("numa_range", range)]).unwrap();
        w.hosts[0].sent.clear();
        for i in 0..8 {
            w.put(0, B[0], i, false);
            w.run(Duration::from_millis(10));
        }
        ours.map(|a| w.pairs(0).iter().filter(|p| p.0 == a).count())
    };
    assert_eq!(used(&mut w, 0), [8, 0, 0, 0]);
    assert_eq!(used(&mut w, 16), [4, 4, 0, 0]);
    assert_eq!(used(&mut w, 1000), [2, 2, 2, 2]);
    let rule = super::policy::rule("src 10.77.3.2@tcp");
    w.hosts[0].node.udsp_add(w.now, rule, None).unwrap();
    assert_eq!(used(&mut w, 0), [0, 0, 0, 8]);
}

#[test]
fn interfaces_within_health_range_of_the_best_share_the_traffic() {
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|t| match t.hdr.kind {
        lnet_wire::Kind::Get { .. } => Fate::Hold,
        _ => Fate::Pass,
    });
    for (range, health, expected) in [(0, 950, (0, 8)), (100, 950, (4, 4)), (1001, 0, (4, 4))] {
        w.hosts[0].node.set_tunables(w.now, &[("health_range", range)]).unwrap();
        w.hosts[0].sent.clear();
        for i in 0..8 {
            w.hosts[0].node.set_ni_health(w.now, Some(nid(A[0])), health);
            w.put(0, B[0], i, false);
            w.run(Duration::from_millis(10));
        }
        let from = |a| w.pairs(0).iter().filter(|p| p.0 == a).count();
        assert_eq!((from(A[0]), from(A[1])), expected, "range {range}");
    }
}

#[test]
fn distances_that_make_no_matrix_are_refused() {
    let mut w = pair(Profile::Default);
    let n = &mut w.hosts[0].node;
    assert_eq!(n.set_numa_distances(vec![vec![10, 20], vec![20]]), Err(Errno::EINVAL));
    assert_eq!(n.set_numa_distances(vec![vec![0; 1025]; 1025]), Err(Errno::EINVAL));
    assert_eq!(n.set_numa_distances(Vec::new()), Ok(()));
}

#[test]
fn paths_not_tried_come_before_paths_tried_until_all_were() {
    let mut w = World::new();
    let tunables = NetTunables::SOCK;
    w.host_with(Profile::Default, &A, tunables);
    w.host_with(Profile::Default, &B, tunables);
    w.discovered(0, B[0]);
    let settings = [("retry_count", 4), ("health_range", 1000), ("health_sensitivity", 1)];
    w.hosts[0].node.set_tunables(w.now, &settings).unwrap();
    w.decide = Box::new(|t| {
        let put = matches!(t.hdr.kind, lnet_wire::Kind::Put { .. });
        let fault = lnet_types::Fault::new(lnet_types::HealthStatus::LocalDropped, Errno::EIO);
        if put { Fate::Fail(fault) } else { Fate::Pass }
    });
    w.put(0, B[0], 1, false);
    w.secs(6);
    let mut first: Vec<_> = w.pairs(0).into_iter().take(4).collect();
    assert_eq!(w.pairs(0).len(), 5);
    first.sort();
    first.dedup();
    assert_eq!(first.len(), 4, "each of the four pairs once");
}

/// S-41.5, S-42.
#[test]
fn an_interface_of_unknown_numa_node_counts_as_near_as_the_nearest() {
    for (places, used) in [
        ([Some(0), None], (2, 2)),
        ([None, Some(0)], (2, 2)),
        ([None, None], (2, 2)),
        ([Some(0), Some(1)], (4, 0)),
    ] {
        let mut w = pair(Profile::Default);
        let n = &mut w.hosts[0].node;
        n.set_numa_distances(vec![vec![10, 21], vec![21, 10]]).unwrap();
        n.set_numa_home(Some(0));
        for (a, place) in A.into_iter().zip(places) {
            let id = ni_id(&w, a);
            w.hosts[0].node.set_ni_numa_node(id, place).unwrap();
        }
        w.hosts[0].sent.clear();
        for user in 0..4 {
            w.put(0, B[0], user, false);
            w.run(Duration::from_millis(10));
        }
        let from = |a| w.pairs(0).iter().filter(|p| p.0 == a).count();
        assert_eq!((from(A[0]), from(A[1])), used, "{places:?}");
    }
}
