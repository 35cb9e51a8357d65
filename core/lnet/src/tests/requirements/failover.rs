//! Failover by policy: preferred networks and NIDs, whose rules they are, and what a second try is
//! worth on a single rail.

use super::*;
use crate::tests::policy::rule;

const NETS_A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp1"];
const NETS_B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp1"];

fn add(w: &mut World, host: usize, text: &str) {
    let now = w.now;
    w.hosts[host].node.udsp_add(now, rule(text), None).unwrap();
}

/// Which of the interfaces `of` (ours, with `ours`; else the peer's) four PUTs use.
fn used(w: &mut World, host: usize, target: &str, of: &[&str; 2], ours: bool) -> [usize; 2] {
    w.hosts[host].sent.clear();
    for i in 0..4 {
        w.put(host, target, i, false);
        w.run(MS * 10);
    }
    let pairs = w.pairs(host);
    of.map(|n| pairs.iter().filter(|(src, dst)| if ours { src == n } else { dst == n }).count())
}

/// MRD-025, MRD-063 (by network).
#[test]
fn a_preferred_network_is_left_when_it_fails_and_taken_again_when_it_is_repaired() {
    let mut w = nodes(Profile::Default, &NETS_A, &NETS_B);
    add(&mut w, 0, "src tcp priority 0");
    assert_eq!(used(&mut w, 0, NETS_B[0], &NETS_A, true), [4, 0]);
    w.link(0, NETS_A[0], crate::Link::Down);
    assert_eq!(used(&mut w, 0, NETS_B[0], &NETS_A, true), [0, 4]);
    w.link(0, NETS_A[0], crate::Link::Up);
    w.secs(30);
    assert_eq!(used(&mut w, 0, NETS_B[0], &NETS_A, true), [4, 0]);
}

/// MRD-063 (by NID), for an interface of ours and for one of the peer's.
#[test]
fn a_preferred_nid_is_left_when_it_fails_and_taken_again_when_it_is_repaired() {
    for (text, ours) in
        [(format!("src {} priority 0", A[1]), true), (format!("dst {} priority 0", B[1]), false)]
    {
        let mut w = pair(Profile::Default);
        w.discovered(1, A[0]);
        add(&mut w, 0, &text);
        let (host, of) = if ours { (0, &A) } else { (1, &B) };
        assert_eq!(used(&mut w, 0, B[0], of, ours), [0, 4], "{text}");
        w.link(host, of[1], crate::Link::Down);
        fail_to(&mut w, &[B[1]], fault(HealthStatus::RemoteDropped));
        w.secs(1);
        assert_eq!(used(&mut w, 0, B[0], of, ours), [4, 0], "{text}");
        w.link(host, of[1], crate::Link::Up);
        w.decide = Box::new(|_| Fate::Pass);
        w.secs(30);
        assert_eq!(used(&mut w, 0, B[0], of, ours), [0, 4], "{text}");
    }
}

/// MRD-064, MRD-065.
#[test]
fn a_node_without_the_rules_of_its_peer_uses_the_interface_that_the_peer_avoids() {
    let mut w = nodes(Profile::Default, &NETS_A, &NETS_B);
    add(&mut w, 0, "src tcp priority 0");
    w.discovered(1, NETS_A[0]);
    assert_eq!(used(&mut w, 0, NETS_B[0], &NETS_A, true), [4, 0]);
    let [_, avoided] = used(&mut w, 1, NETS_A[0], &NETS_B, true);
    assert!(avoided > 0, "the other side knows nothing of the rule");
    add(&mut w, 1, "src tcp priority 0");
    assert_eq!(used(&mut w, 1, NETS_A[0], &NETS_B, true), [4, 0]);
}

/// UG-042: a way that takes eight seconds there and back.
#[test]
fn a_transaction_timeout_above_the_delay_of_the_way_lets_requests_end_well() {
    for (seconds, good) in [(5, false), (30, true)] {
        let mut w = pair(Profile::Documents);
        set(&mut w, 0, &[("transaction_timeout", seconds)]);
        w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Hold } else { Fate::Pass });
        w.get(0, B[0], 1);
        w.secs(8);
        if !w.held.is_empty() {
            w.release();
        }
        w.secs(1);
        let replies = w.events(0, 1).iter().filter(|e| e.0 == EventKind::Reply && e.1).count();
        assert_eq!(replies, usize::from(good), "{seconds} s: {:?}", w.events(0, 1));
    }
}

/// HLD-017: why the documents leave `retry_count` at 0 for a node of one interface. As there is no
/// other path, nothing is sent a second time (H-20).
#[test]
fn on_a_single_dead_rail_retries_do_not_change_the_outcome() {
    for retries in [0, 1, 3] {
        let mut w = nodes(Profile::Documents, &A[..1], &B[..1]);
        set(&mut w, 0, &[("retry_count", retries)]);
        fail_to(&mut w, &B[..1], fault(HealthStatus::RemoteDropped));
        w.put(0, B[0], 1, false);
        w.secs(6);
        assert_eq!(w.pairs(0).len(), 1, "{retries}");
        assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
    }
}
