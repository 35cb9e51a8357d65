//! Patterns and what machines make of them.

use proptest::prelude::*;

use super::*;

/// Two NUMA nodes of four CPUs, numbered in turn as many machines do.
fn two_nodes() -> Topology {
    (0..8).map(|cpu| (cpu, cpu % 2)).collect()
}

fn pattern(text: &str) -> CpuPattern {
    CpuPattern::parse(text, 0).unwrap_or_else(|e| panic!("{e}"))
}

fn cpus(pattern: &CpuPattern, machine: &Topology) -> Vec<Vec<u32>> {
    let table = CptTable::new(pattern, machine).unwrap_or_else(|e| panic!("{e}"));
    table.iter().map(|cpt| cpt.cpus.iter().copied().collect()).collect()
}

#[test]
fn each_numa_node_is_a_partition_unless_something_else_is_wished_for() {
    let of = |text: &str| cpus(&pattern(text), &two_nodes());
    let nodes = [[0, 2, 4, 6], [1, 3, 5, 7]];
    assert_eq!(of("N"), nodes);
    assert_eq!(of(" "), nodes);
    assert_eq!(of("N 1[0] 0[1]"), [[1, 3, 5, 7], [0, 2, 4, 6]]);
    assert_eq!(of("N 0[0,1]"), [[0, 1, 2, 3, 4, 5, 6, 7]]);
    assert_eq!(of("0[0-3] 1 [4,5]"), vec![vec![0, 1, 2, 3], vec![4, 5]]);
    assert_eq!(of("0[*]"), [[0, 1, 2, 3, 4, 5, 6, 7]]);
    assert_eq!(of("0[0-6/2]1[1]"), vec![vec![0, 2, 4, 6], vec![1]]);
    assert_eq!(of("C[0]"), [[2, 4, 6], [3, 5, 7]]);
    assert_eq!(of("X[0-5]"), [[6], [7]]);
    assert_eq!(of("X[1] C[0,3]"), vec![vec![2, 4], vec![3, 5]]);
    assert_eq!(of("X[0-6/2]"), [[1, 3, 5, 7]], "a node of which nothing is left is no partition");
}

#[test]
fn a_number_of_partitions_makes_neighbours_of_them() {
    let of = |text: &str, n| cpus(&CpuPattern::parse(text, n).unwrap(), &two_nodes());
    assert_eq!(of("", 1), [[0, 1, 2, 3, 4, 5, 6, 7]]);
    assert_eq!(of("", 4), [[0, 2], [4, 6], [1, 3], [5, 7]]);
    assert_eq!(of("", 3), vec![vec![0, 2, 4], vec![1, 3, 6], vec![5, 7]]);
    assert_eq!(of("X[7]", 2), vec![vec![0, 2, 4, 6], vec![1, 3, 5]]);
    assert_eq!(of("N", 4), [[0, 2, 4, 6], [1, 3, 5, 7]], "a pattern that says all counts");
}

#[test]
fn a_machine_without_cpu_data_is_one_partition() {
    let table = CptTable::new(&CpuPattern::default(), &Topology::default()).unwrap();
    assert_eq!((table.count(), table), (1, CptTable::default()));
    let one: Topology = [(0, 0), (1, 0)].into_iter().collect();
    assert_eq!(cpus(&CpuPattern::default(), &one), [[0, 1]]);
    assert!(CptTable::new(&pattern("0[0]"), &Topology::default()).is_err());
}

#[test]
fn partitions_know_their_numa_nodes_and_back() {
    let table = CptTable::new(&pattern("0[0,1] 1[2] 2[3]"), &two_nodes()).unwrap();
    let nodes = |cpt| table.numa_nodes(cpt).collect::<Vec<_>>();
    assert_eq!((nodes(0), nodes(1), nodes(2), nodes(3)), (vec![0, 1], vec![0], vec![1], vec![]));
    let of = |node| table.of_numa_node(node).collect::<Vec<_>>();
    assert_eq!((of(0), of(1), of(2)), (vec![0, 1], vec![0, 2], vec![]));
    assert_eq!(table.cpus_of(&[1, 2, 7].into_iter().collect()), [2, 3].into_iter().collect());
}

#[test]
fn a_partition_beyond_the_machine_is_named() {
    let refused = |text: &str, n| {
        let pattern = CpuPattern::parse(text, n).unwrap();
        CptTable::new(&pattern, &two_nodes()).unwrap_err().to_string()
    };
    for (text, n, why) in [
        ("0[0] 1[8]", 0, "partition 1: CPU 8 does not exist, or this process may not run on it"),
        ("0[6-9]", 0, "partition 0: CPU 8 does not exist, or this process may not run on it"),
        ("0[0,1] 1[1]", 0, "partition 1: CPU 1 is listed twice"),
        ("0[0,0-1]", 0, "partition 0: CPU 0 is listed twice"),
        ("N 0[2]", 0, "partition 0: NUMA node 2 has no CPU that this process may run on"),
        ("N 0[0] 1[*]", 0, "partition 1: NUMA node 0 is listed twice"),
        ("X[*]", 0, "cpu_pattern 'X[0-8191]': no CPU is left"),
        ("", 9, "cpu_npartitions 9: expected at most 8, as many as there are CPUs"),
    ] {
        assert_eq!(refused(text, n), why, "{text}");
    }
    let large: Topology = (0..300).map(|n| (n, n)).collect();
    let why = CptTable::new(&CpuPattern::default(), &large).unwrap_err().to_string();
    assert_eq!(why, "300 NUMA nodes with CPUs: expected at most 256 partitions");
}

#[test]
fn a_bad_cpu_pattern_is_named_with_what_was_expected() {
    for (text, n, what) in [
        ("0", 0, "'0': expected a number or C or X, and a list: 0[0-3] 1[4,5]"),
        ("0[0-3", 0, "'0[0-3': expected a number or C or X, and a list: 0[0-3] 1[4,5]"),
        ("M 0[0]", 0, "'M 0[0]': expected a number or C or X, and a list: 0[0-3] 1[4,5]"),
        ("N0[0]", 0, "'N0[0]': expected a number or C or X, and a list: 0[0-3] 1[4,5]"),
        ("0[a]", 0, "'a', expected a number 0 to 8191, '*' or a list such as [1,5-7/2]"),
        ("1[0]", 0, "partition 1: expected 0 first, without gaps"),
        ("0[0] 2[1]", 0, "partition 2: expected 1 first, without gaps"),
        ("0[0] 0[1]", 0, "partition 0 stands there twice"),
        ("0[0] C[1]", 0, "C[…] and X[…]: expected without partitions and without N"),
        ("C[1] 0[0]", 0, "partition 0 beside C[…] or X[…]"),
        ("N C[0]", 0, "C[…] and X[…]: expected without partitions and without N"),
        ("C[0] C[1]", 0, "expected C[…] and X[…] once each"),
        ("", 257, "cpu_npartitions 257: expected at most 256"),
    ] {
        let e = CpuPattern::parse(text, n).unwrap_err();
        assert_eq!((e.pattern.as_str(), e.what.as_str()), (text, what));
    }
    let many: String = (0..257).map(|n| format!("{n}[{n}] ")).collect();
    assert_eq!(CpuPattern::parse(&many, 0).unwrap_err().what, "expected at most 256 partitions");
    assert!(CpuPattern::parse(&" ".repeat(5000), 0).is_err());
}

proptest! {
    /// Whatever is understood is printed as what it is, and no CPU is in two partitions.
    #[test]
    fn patterns_are_read_as_they_are_printed(
        text in "(N )?([0-2CXN]\\[[0-9*,/-]{1,6}\\] ?){0,4}|\\PC{0,20}",
        count in 0u32..5,
        machine in proptest::collection::btree_map(0u32..12, 0u32..3, 0..12),
    ) {
        if let Ok(pattern) = CpuPattern::parse(&text, count) {
            let again = CpuPattern::parse(&pattern.to_string(), pattern.npartitions());
            prop_assert_eq!(again, Ok(pattern.clone()));
            let machine: Topology = machine.into_iter().collect();
            if let Ok(table) = CptTable::new(&pattern, &machine) {
                let all: Vec<u32> = table.iter().flat_map(|c| c.cpus.iter().copied()).collect();
                let different: BTreeSet<u32> = all.iter().copied().collect();
                prop_assert_eq!(all.len(), different.len());
                prop_assert!(different.iter().all(|cpu| machine.0.contains_key(cpu)));
                prop_assert!(table.iter().all(|c| !c.cpus.is_empty()));
            }
        }
    }
}
