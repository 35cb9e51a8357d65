//! The timer table of whole nodes: why a node wakes, and in which order.

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, ProcessId};
use lnet_wire::{Kind, MsgType};

use super::world::{Fate, PT, World, nid};
use crate::port::HEALTH_MAX;
use crate::timers::{Timer, TimerKind};
use crate::{Link, Profile};

const A: &str = "10.77.0.2@tcp";
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];
const MS: Duration = Duration::from_millis(1);

fn pair() -> World {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.host(Profile::Default, &B);
    w.discovered(0, B[0]);
    w
}

#[test]
fn the_next_timer_names_the_destination_of_a_request_without_response() {
    let mut w = pair();
    w.decide = Box::new(|t| match t.hdr.kind {
        Kind::Ack { .. } => Fate::Lose,
        Kind::Put { portal: PT, .. } => Fate::Pass,
        _ => Fate::Lose,
    });
    w.put(0, B[0], 1, true);
    w.run(MS);
    let node = &w.hosts[0].node;
    let (at, timer) = node.next_timer().unwrap();
    assert_eq!(node.poll_timeout(), Some(at));
    let view = node.timer_view(at, timer);
    assert!(matches!(timer, Timer::Response(_)), "{timer:?}");
    assert_eq!(view.to_string(), format!("response {}", B[0]));
    assert_eq!(node.timers().first(), Some(&view));
}

#[test]
fn a_message_that_waits_for_a_discovery_is_listed_with_its_type() {
    let mut w = World::new();
    w.host(Profile::Default, &[A]);
    w.host(Profile::Default, &B);
    w.decide = Box::new(|_| Fate::Lose);
    w.put(0, B[0], 1, false);
    let timers = w.hosts[0].node.timers();
    let waiting: Vec<_> = timers.iter().filter(|t| matches!(t.timer, Timer::Waiting(_))).collect();
    assert_eq!(waiting.len(), 1, "{timers:?}");
    assert_eq!((waiting[0].nid, waiting[0].message), (Some(nid(B[0])), Some(MsgType::Put)));
    assert_eq!(waiting[0].to_string(), format!("deadline PUT {}", B[0]));
    assert!(timers.windows(2).all(|two| two[0].at <= two[1].at), "{timers:?}");
}

/// D-82, H-64: both timeouts have passed when the node wakes.
#[test]
fn a_ping_that_times_out_lowers_no_health_however_late_the_node_wakes() {
    for late in [0, 5000] {
        let mut w = pair();
        w.decide = Box::new(|t| match t.hdr.kind {
            Kind::Reply { .. } => Fate::Lose,
            _ => Fate::Pass,
        });
        let target = ProcessId::lustre(nid(B[0]));
        w.hosts[0].node.ping(w.now, target, None, MS * 1000);
        w.drain();
        let node = &mut w.hosts[0].node;
        assert_eq!(node.timers.count(TimerKind::Response), 1, "the response has its own timeout");
        node.handle_timeout(w.now + MS * (1000 + late));
        let report = node.poll_report().unwrap();
        assert_eq!(report.outcome.unwrap_err(), Errno::EIO);
        assert_eq!(node.health_of(nid(B[0])), Some(HEALTH_MAX), "{late} ms late");
    }
}

#[test]
fn timers_of_a_peer_end_with_its_record() {
    let mut w = pair();
    let node = &mut w.hosts[0].node;
    node.set_peer_ni_health(w.now, Some(nid(B[1])), 10);
    node.discover(w.now, nid(B[0]), false);
    w.run(MS * 10);
    w.put(0, B[0], 1, false);
    w.drain();
    let node = &mut w.hosts[0].node;
    let about = |node: &crate::Node| {
        node.timers().into_iter().filter(|t| B.iter().any(|b| t.nid == Some(nid(b)))).count()
    };
    assert!(about(node) >= 1, "{:?}", node.timers());
    node.peer_del(w.now, nid(B[0]), &[], false).unwrap();
    assert_eq!((about(node), node.timers.count(TimerKind::RecoverPeer)), (0, 0));
    assert_eq!(node.timers.count(TimerKind::Discover), 0);
}

/// DEC-5.
#[test]
fn a_link_that_is_back_makes_the_recovery_pings_over_it_due() {
    let mut w = pair();
    let ni = *w.hosts[0].nids.keys().next().unwrap();
    let peer_ni = w.hosts[0].node.peers.find(nid(B[1])).unwrap();
    let node = &mut w.hosts[0].node;
    node.set_ni_health(w.now, None, 500);
    node.set_peer_ni_health(w.now, Some(nid(B[1])), 10);
    w.decide = Box::new(|_| Fate::Fail(Fault::new(HealthStatus::LocalError, Errno::EIO)));
    // Each failure has doubled the time to the next one.
    w.secs(60);
    for timer in [Timer::RecoverNi(ni), Timer::RecoverPeer(peer_ni)] {
        let left = |w: &World| {
            let at = w.hosts[0].node.timers.at(timer);
            at.unwrap_or_else(|| panic!("{timer:?}")).saturating_since(w.now)
        };
        for _ in 0..100 {
            if (MS * 1500..MS * 3500).contains(&left(&w)) {
                break;
            }
            w.run(MS * 100);
        }
        assert!(left(&w) >= MS * 1500, "{timer:?}: {:?}", left(&w));
        w.link(0, A, Link::Down);
        w.link(0, A, Link::Up);
        assert_eq!(left(&w), Duration::ZERO, "{timer:?}");
    }
}
