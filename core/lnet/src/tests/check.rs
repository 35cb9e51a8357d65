//! Each invariant is seen to fail when a table is changed behind its back, and a missing id ends a test.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lnet_types::{Instant, MsgId, PeerId, PeerNiId};
use slotmap::Key;

use super::world::{Fate, World, nid};
use crate::check::live;
use crate::msg::Stage;
use crate::outbox::Work;
use crate::timers::Timer;
use crate::{NetTunables, Node, Profile};

const A: &str = "10.77.0.2@tcp";
const B: &str = "10.77.0.3@tcp";

/// A node that knows a peer. Of its three messages to it one is with the driver and two wait for the
/// credit that it has.
fn busy() -> World {
    let mut w = World::new();
    let few = NetTunables { peer_credits: 1, ..NetTunables::SOCK };
    w.host_with(Profile::Default, &[A], few);
    w.host(Profile::Default, &[B]);
    w.discovered(0, B);
    w.decide = Box::new(|_| Fate::Hold);
    for user in 1..4 {
        w.put(0, B, user, true);
    }
    assert_eq!(w.hosts[0].node.check(), Ok(()));
    w
}

fn peer_ni(node: &Node) -> PeerNiId {
    node.peers.find(nid(B)).unwrap()
}

fn peer(node: &Node) -> PeerId {
    node.peers.owner(nid(B)).unwrap()
}

/// A message in a stage like this.
fn message(node: &Node, stage: Stage) -> MsgId {
    node.msgs.iter().find(|(_, msg)| msg.stage == stage).unwrap().0
}

#[test]
fn a_table_that_does_not_agree_with_the_others_is_named() {
    type Change = fn(&mut Node);
    let cases: &[(&str, Change)] = &[
        ("the work list is empty", |n| n.outbox.plan(Work::RehomeRoutes)),
        ("no message is without a place", |n| {
            let id = message(n, Stage::Driver);
            n.msgs[id].stage = Stage::Moving;
        }),
        ("a message is in the place of its stage", |n| {
            let id = peer_ni(n);
            n.peers.nis[id].port.credits.queue.pop_front();
        }),
        ("a message waits in one place", |n| {
            let id = message(n, Stage::PeerQueue);
            let peer = peer(n);
            n.peers.peers[peer].disc.parked.push_back(id);
        }),
        ("messages in queues exist", |n| {
            let id = message(n, Stage::PeerQueue);
            n.msgs.remove(id);
        }),
        ("a message has the credits of its stage", |n| {
            let id = message(n, Stage::Driver);
            n.msgs[id].tx.as_mut().unwrap().ni_credit = false;
        }),
        ("a message that waits has its deadline set", |n| {
            let id = message(n, Stage::PeerQueue);
            n.timers.stop(Timer::Waiting(id));
        }),
        ("credits of a peer's interface", |n| {
            let id = peer_ni(n);
            n.peers.nis[id].port.credits.free += 1;
        }),
        ("credits of an interface", |n| {
            n.nis.values_mut().for_each(|ni| ni.port.credits.free -= 1);
        }),
        ("messages bound to a peer's interface", |n| {
            let id = peer_ni(n);
            n.peers.nis[id].port.refs += 1;
        }),
        ("bytes queued for a peer", |n| {
            let id = peer_ni(n);
            n.peers.nis[id].queued_bytes += 1;
        }),
        ("msgs_alloc counts messages in hand", |n| n.counts.stats_mut().msgs_alloc += 1),
        ("messages that wait for answers are counted", |n| n.msgs.begin_answering()),
        ("operations of a descriptor", |n| {
            n.portals.mds.values_mut().for_each(|md| md.refs += 1);
        }),
        ("rst_alloc counts trackers", |n| n.counts.stats_mut().rst_alloc += 1),
        ("a timer is about an entry that needs it", |n| {
            n.timers.set(Timer::RecoverPeer(peer_ni(n)), Instant::from_secs(100));
        }),
        ("a recovering interface has its timer", |n| {
            n.nis.values_mut().for_each(|ni| ni.port.health -= ni.port.health.min(1));
        }),
        ("peers are listed by age", |n| n.peers.by_age.clear()),
        ("health of a peer's network", |n| {
            let id = peer(n);
            n.peers.peers[id].nets[0].health = 7;
        }),
        ("interfaces of a peer", |n| {
            let id = peer_ni(n);
            n.peers.nis[id].deleting = true;
        }),
        ("routes through a peer", |n| {
            let id = peer(n);
            n.peers.peers[id].gateway.routes = 1;
        }),
        ("what waits for a discovery exists", |n| {
            let id = peer(n);
            n.peers.peers[id].disc.waiters.push(crate::OpId(99));
        }),
    ];
    for (invariant, change) in cases {
        let node = &mut busy().hosts[0].node;
        change(node);
        assert_eq!(node.check().unwrap_err().invariant, *invariant);
    }
}

#[test]
fn an_id_that_must_exist_and_does_not_is_counted_and_ends_a_test() {
    let world = busy();
    let node = &world.hosts[0].node;
    let lookup = |id| catch_unwind(AssertUnwindSafe(|| live!(node.msgs, id).is_some())).ok();
    assert_eq!(lookup(message(node, Stage::Driver)), Some(true));
    assert_eq!(node.invariant_violations(), 0);
    assert_eq!(lookup(MsgId::null()), None, "it panics");
    assert_eq!(node.invariant_violations(), 1);
}
