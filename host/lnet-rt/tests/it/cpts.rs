//! CPU partitions on this machine: a node's own thread runs where its interfaces are tied to, and
//! that may change under load (MR-cfg-025, MR-cfg-030).

use std::collections::BTreeSet;

use lnet_rt::{
    AttachOptions, Buffer, CptTable, CpuPattern, Errno, MatchEntry, Net, NiError, NiId, Nid,
    NodeBuilder, NodeHandle, SockConfig, TcpNi, Wait, cpt_table,
};
use rustix::thread::{CpuSet, sched_getaffinity};

const PORTAL: u32 = 5;

/// The CPUs that the current thread may run on.
fn allowed() -> BTreeSet<u32> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

fn of(node: &NodeHandle) -> BTreeSet<u32> {
    node.call(|_, _| allowed()).blocking().unwrap()
}

fn nid(host: u8) -> Nid {
    Nid::from_ip(Net::TCP, [127, 0, 25, host].into())
}

/// Partitions of one CPU each, of the first two; `None`, and why not is said, if there is but one.
fn two() -> Option<(CptTable, [u32; 2])> {
    let mut cpus = allowed().into_iter();
    let (Some(a), Some(b)) = (cpus.next(), cpus.next()) else {
        eprintln!("skipped: two partitions need two CPUs");
        return None;
    };
    let pattern = CpuPattern::parse(&format!("0[{a}] 1[{b}]"), 0).unwrap();
    Some((cpt_table(&pattern).unwrap(), [a, b]))
}

fn tied(host: u8, cpts: &[u32]) -> TcpNi {
    TcpNi { cpts: Some(cpts.iter().copied().collect()), ..TcpNi::new(nid(host)) }
}

fn add(node: &NodeHandle, ni: TcpNi) -> Result<NiId, NiError> {
    node.call(|stack, _| stack.add_tcp_ni(ni)).blocking().unwrap()
}

fn node(cpts: CptTable, port: u16) -> NodeHandle {
    let node = NodeBuilder::new().cpts(cpts).start().unwrap();
    let tcp = SockConfig::on_port(port);
    node.call(|stack, _| stack.enable_tcp(tcp)).blocking().unwrap().unwrap();
    node
}

#[test]
fn the_thread_runs_on_the_partitions_of_all_interfaces_and_comes_back() {
    let Some((cpts, [a, b])) = two() else { return };
    let all = allowed();
    let node = node(cpts, 7925);
    let one = |cpu| BTreeSet::from([cpu]);
    let first = add(&node, tied(1, &[1])).unwrap();
    assert_eq!(of(&node), one(b));
    let second = add(&node, tied(2, &[0])).unwrap();
    assert_eq!(of(&node), BTreeSet::from([a, b]), "two interfaces, two partitions, one thread");
    match add(&node, tied(3, &[2])) {
        Err(NiError::Refused { errno: Errno::ERANGE, nid: refused }) => assert_eq!(refused, nid(3)),
        other => panic!("{other:?}"),
    }
    node.call(move |stack, _| stack.del_ni(first)).blocking().unwrap().unwrap();
    assert_eq!(of(&node), one(a));
    node.call(move |stack, _| stack.del_ni(second)).blocking().unwrap().unwrap();
    assert!(all.is_superset(&of(&node)) && of(&node).len() == 2, "all partitions again");
    assert_eq!(allowed(), all, "the thread that asks is where it was");
}

#[test]
fn traffic_goes_on_while_an_interface_moves_from_partition_to_partition() {
    let Some((cpts, cpus)) = two() else { return };
    let (from, to) = (node(cpts.clone(), 7926), node(cpts, 7926));
    let ni = add(&from, tied(11, &[0])).unwrap();
    add(&to, tied(12, &[1])).unwrap();
    let options = AttachOptions::PUT;
    let inbox = to.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(1 << 16), options).unwrap();
    for n in 0..20_u8 {
        let cpt = u32::from(n % 2);
        let moved = from.call(move |stack, _| stack.set_ni_cpts(ni, Some([cpt].into())));
        moved.blocking().unwrap().unwrap();
        assert_eq!(of(&from), BTreeSet::from([cpus[n as usize % 2]]));
        from.put(nid(12), PORTAL, 7, vec![n; 8]).ack().blocking().unwrap();
        assert_eq!(inbox.recv_blocking().unwrap()[..], [n; 8]);
    }
    let wrong = from.call(move |stack, _| stack.set_ni_cpts(ni, Some([9].into())));
    assert_eq!(wrong.blocking().unwrap(), Err(Errno::ERANGE));
    assert_eq!(of(&from), BTreeSet::from([cpus[1]]), "nothing has changed");
}

#[test]
fn a_thread_that_the_caller_drives_is_left_alone() {
    let Some((cpts, _)) = two() else { return };
    let all = allowed();
    let mut stack = NodeBuilder::new().cpts(cpts).build().unwrap();
    stack.enable_tcp(SockConfig::on_port(7927)).unwrap();
    stack.add_tcp_ni(tied(21, &[1])).unwrap();
    stack.turn(Wait::None);
    assert_eq!(allowed(), all);
}
