//! CPU partitions: which of them an interface has, how far they are, and what they decide.

use std::collections::BTreeSet;

use lnet_types::{CptTable, CpuPattern, Errno, NiId, Topology};

use super::world::{World, nid};
use crate::{NetTunables, Node, Outcome, Profile, cpt_distances};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: &str = "10.77.0.3@tcp";

/// Four NUMA nodes of two CPUs each.
fn table(pattern: &str) -> CptTable {
    let machine: Topology = (0..8).map(|cpu| (cpu, cpu / 2)).collect();
    CptTable::new(&CpuPattern::parse(pattern, 0).unwrap(), &machine).unwrap()
}

/// Two nodes that know each other, and the ids of the first one's interfaces.
fn pair(pattern: &str) -> (World, [NiId; 2]) {
    let mut w = World::new();
    w.host(Profile::Default, &A);
    w.host(Profile::Default, &[B]);
    w.discovered(0, B);
    w.hosts[0].node.set_cpts(table(pattern)).unwrap();
    let ids = A.map(|n| *w.hosts[0].nids.iter().find(|(_, x)| **x == nid(n)).unwrap().0);
    (w, ids)
}

fn set(cpts: &[u32]) -> BTreeSet<u32> {
    cpts.iter().copied().collect()
}

fn cpts(node: &Node, ni: NiId) -> (Option<u32>, Vec<u32>) {
    let view = node.ni_view(ni).unwrap();
    (view.device_cpt, view.cpts.into_iter().collect())
}

fn source(w: &World) -> String {
    match w.hosts[0].node.explain(nid(B), None, 0).outcome {
        Outcome::Path(from, _) => from.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_interface_has_the_partitions_it_was_given_else_those_of_its_device_else_all() {
    let (mut w, [a, b]) = pair("N 0[0,1] 1[2] 2[3]");
    let n = &mut w.hosts[0].node;
    assert_eq!(cpts(n, a), (None, vec![0, 1, 2]), "nothing is known of its device");
    n.set_ni_numa_node(a, Some(2)).unwrap();
    n.set_ni_numa_node(b, Some(9)).unwrap();
    assert_eq!((cpts(n, a), cpts(n, b)), ((Some(1), vec![1]), (None, vec![0, 1, 2])));
    n.set_ni_cpts(a, Some(set(&[2, 0]))).unwrap();
    assert_eq!(cpts(n, a), (Some(1), vec![0, 2]));
    for (wrong, errno) in [(set(&[0, 3]), Errno::ERANGE), (set(&[]), Errno::EINVAL)] {
        assert_eq!(n.set_ni_cpts(a, Some(wrong)), Err(errno));
    }
    assert_eq!(n.set_ni_cpts(NiId::default(), None), Err(Errno::ENOENT));
    assert_eq!(n.set_cpts(table("0[0] 1[1]")), Err(Errno::ERANGE), "partition 2 is in use");
    assert_eq!((n.cpts().count(), cpts(n, a).1), (3, vec![0, 2]), "nothing has changed");
    n.set_ni_cpts(a, None).unwrap();
    assert_eq!(cpts(n, a).1, [1]);
    n.set_cpts(CptTable::default()).unwrap();
    assert_eq!((cpts(n, a), cpts(n, b)), ((None, vec![0]), (None, vec![0])), "one partition");
}

#[test]
fn the_thread_may_run_where_any_interface_but_loopback_works() {
    let (mut w, [a, b]) = pair("N 0[0] 1[1] 2[2]");
    let n = &mut w.hosts[0].node;
    assert_eq!(n.cpus_in_use(), (0..6).collect(), "all partitions, and not the whole machine");
    n.set_ni_cpts(a, Some(set(&[1]))).unwrap();
    assert_eq!(n.cpus_in_use(), (0..6).collect(), "the other one has all");
    n.set_ni_cpts(b, Some(set(&[1, 2]))).unwrap();
    assert_eq!(n.cpus_in_use(), (2..6).collect());
    n.del_ni(w.now, b).unwrap();
    assert_eq!(n.cpus_in_use(), set(&[2, 3]));
    n.del_ni(w.now, a).unwrap();
    assert_eq!(n.cpus_in_use(), (0..6).collect(), "with loopback alone");
    n.set_cpts(CptTable::default()).unwrap();
    assert_eq!(n.cpus_in_use(), set(&[]));
}

#[test]
fn partitions_are_as_far_as_their_farthest_numa_nodes() {
    let (mut w, [a, b]) = pair("N 0[0,1] 1[2]");
    let n = &mut w.hosts[0].node;
    let rows = [[10, 16, 30, 40], [16, 10, 18, 40], [30, 19, 10, 40], [40, 40, 40, 10]];
    let given = cpt_distances(n.cpts(), &rows.map(Vec::from));
    assert_eq!(given, [[Some(16), Some(30)], [Some(30), Some(10)]]);
    assert_eq!(cpt_distances(n.cpts(), &[]), [[None; 2]; 2], "no distances given");
    // NUMA node 2 is nearer to node 1 than node 0 is; its partition is not.
    n.set_numa_home(Some(1));
    n.set_ni_numa_node(a, Some(2)).unwrap();
    n.set_ni_numa_node(b, Some(0)).unwrap();
    let rows = [[10, 16, 20, 40], [16, 10, 15, 40], [20, 15, 10, 40], [40, 40, 40, 10]];
    n.set_numa_distances(rows.map(Vec::from).to_vec()).unwrap();
    for _ in 0..3 {
        assert_eq!(source(&w), A[1], "16 within the partition, 20 to the other");
        w.put(0, B, 1, false);
        w.secs(1);
    }
    w.hosts[0].node.set_cpts(table("N")).unwrap();
    assert_eq!(source(&w), A[0], "with a partition for each NUMA node, their own distance");
    w.hosts[0].node.set_cpts(table("N 0[2]")).unwrap();
    assert_eq!(source(&w), A[0], "nodes that are in no partition stand for themselves");
    w.hosts[0].node.set_cpts(table("N 0[*]")).unwrap();
    let first = source(&w);
    w.put(0, B, 1, false);
    w.secs(1);
    assert_ne!(source(&w), first, "in one partition everything is as far, and they take turns");
}

/// MR-snd-030. Credits are an interface's own, however many partitions it has.
#[test]
fn most_free_credits_win_over_all_partitions_together() {
    let (mut w, [a, b]) = pair("0[0] 1[1]");
    let n = &mut w.hosts[0].node;
    n.set_ni_cpts(a, Some(set(&[0, 1]))).unwrap();
    n.set_ni_cpts(b, Some(set(&[0]))).unwrap();
    let whole = i32::try_from(NetTunables::SOCK.credits).unwrap();
    for ni in [a, b] {
        assert_eq!(
            n.ni_view(ni).unwrap().credits,
            whole,
            "the number of partitions divides nothing"
        );
    }
    for (of_a, of_b, expected) in [(100, 90, A[0]), (90, 100, A[1])] {
        let n = &mut w.hosts[0].node;
        n.nis.get_mut(a).unwrap().port.credits.free = of_a;
        n.nis.get_mut(b).unwrap().port.credits.free = of_b;
        assert_eq!(source(&w), expected);
    }
}

#[test]
fn a_nid_has_a_partition_of_its_network_and_always_the_same() {
    let (mut w, [a, b]) = pair("0[0] 1[1] 2[2] 3[3]");
    let n = &mut w.hosts[0].node;
    let of = |n: &Node, host: u32, net: &str| n.cpt_of_nid(nid(&format!("10.9.0.{host}@{net}")));
    let counts = |n: &Node, net: &str| {
        let mut counts = [0; 4];
        (0..200).for_each(|host| counts[of(n, host, net) as usize] += 1);
        counts
    };
    // The same in every version: administrators compare them.
    assert_eq!([1, 2, 3, 4, 5].map(|host| of(n, host, "o2ib")), [1, 0, 2, 3, 0]);
    assert!(counts(n, "o2ib").iter().all(|c| *c > 25), "{:?}", counts(n, "o2ib"));
    n.set_ni_cpts(a, Some(set(&[1]))).unwrap();
    n.set_ni_cpts(b, Some(set(&[3]))).unwrap();
    let [zero, one, two, three] = counts(n, "tcp");
    assert!(zero + two == 0 && one > 60 && three > 60, "those of its interfaces: {one}, {three}");
    n.set_ni_cpts(a, None).unwrap();
    n.set_ni_cpts(b, None).unwrap();
    n.set_cpts(CptTable::default()).unwrap();
    assert_eq!(counts(n, "tcp"), [200, 0, 0, 0]);
}
