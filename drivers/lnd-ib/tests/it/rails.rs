//! Suspicion by the age of completions (DEC-31), and deliveries that the node abandons.

use core::time::Duration;

use lnd_ib::{Event, IbConfig, Suspicion};
use lnet::Doubt;

use crate::flows::{B, SECOND, pair};
use crate::support::fabric::World;
use crate::support::host::{Host, Taste};

const MS: Duration = Duration::from_millis(1);

/// Two hosts with a connection, of which the first suspects.
fn suspecting() -> World {
    let mut world = pair(IbConfig::default());
    let limits = Suspicion { after: 50 * MS, completions: 8 };
    world.hosts[0].port.ib.set_suspicion(Some(limits));
    world.put(0, 1, 0, 8);
    world.run(SECOND);
    assert_eq!(world.hosts[0].end(0), Some(Ok(())));
    world
}

fn doubts(world: &World) -> Vec<Doubt> {
    let rails = world.hosts[0].events.iter().filter_map(|event| match event {
        Event::Rail { doubt, .. } => Some(*doubt),
        _ => None,
    });
    rails.collect()
}

#[test]
fn a_pulled_cable_is_silence_after_50_ms_and_the_rail_is_back_when_it_has_proved_itself() {
    let mut world = suspecting();
    world.cut.insert((0, 1));
    world.put(0, 1, 1, 8);
    world.run(49 * MS);
    assert_eq!(doubts(&world), []);
    world.run(16 * MS);
    assert_eq!(doubts(&world), [Doubt::Silent], "a look in a quarter of the limit");
    world.run(SECOND);
    world.cut.clear();
    world.run(5 * SECOND);
    assert_eq!(world.hosts[0].end(1), Some(Ok(())), "the adapter has sent it again");
    assert_eq!(doubts(&world), [Doubt::Silent, Doubt::Unproven, Doubt::None]);
    world.run(200 * SECOND);
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn a_connection_attempt_without_answer_is_silence() {
    let mut world = suspecting();
    for conn in world.conns(0) {
        world.break_qp((0, conn));
    }
    world.run(SECOND);
    world.cut.insert((0, 1));
    world.put(0, 1, 1, 8);
    world.run(70 * MS);
    assert_eq!(doubts(&world), [Doubt::Silent]);
    world.assert_clean();
}

#[test]
fn a_failed_connection_attempt_makes_its_rail_silent_until_another_one_succeeds() {
    let mut world = suspecting();
    for conn in world.conns(0) {
        world.break_qp((0, conn));
    }
    world.run(SECOND);
    world.absent.insert(1);
    world.put(0, 1, 1, 8);
    world.run(MS);
    assert!(world.hosts[0].end(1).is_some_and(|end| end.is_err()), "nothing listens there");
    assert_eq!(doubts(&world), [Doubt::Silent]);
    let events = &world.hosts[0].events;
    let at = |wanted: fn(&Event) -> bool| events.iter().rposition(wanted);
    let (doubted, ended) = (
        at(|event| matches!(event, Event::Rail { .. })),
        at(|event| matches!(event, Event::PeerDown { .. })),
    );
    assert!(doubted < ended, "the message that fails goes by another rail at once");
    world.absent.clear();
    world.run(5 * SECOND);
    assert_eq!(doubts(&world), [Doubt::Silent, Doubt::Unproven, Doubt::None]);
    world.run(200 * SECOND);
    world.assert_clean();
    world.assert_balance();
}

/// The end of a process is no fault of the way to it.
#[test]
fn another_life_of_a_peer_is_above_the_doubts_of_the_one_before() {
    for (incarnation, expected) in [(0xb, Doubt::Unproven), (0xc, Doubt::None)] {
        let mut world = suspecting();
        for conn in world.conns(0) {
            world.break_qp((0, conn));
        }
        world.run(SECOND);
        world.absent.insert(1);
        world.put(0, 1, 1, 8);
        world.run(MS);
        assert_eq!(doubts(&world), [Doubt::Silent]);
        world.absent.clear();
        world.restart(1, Host::new(B, incarnation, IbConfig::default()));
        world.put(0, 1, 2, 8);
        world.run(200 * MS);
        let doubts = doubts(&world);
        assert_eq!(doubts.get(1), Some(&expected), "incarnation {incarnation:#x}: {doubts:?}");
    }
}

#[test]
fn a_peer_that_returns_no_credits_is_not_suspected() {
    let mut world = suspecting();
    world.hosts[1].taste = vec![Taste::Defer];
    world.faults.defer_long = true;
    for number in 1..=40 {
        world.put(0, 1, number, 8);
    }
    world.run(10 * SECOND);
    assert!(!world.hosts[0].out.is_empty(), "messages wait for credits");
    assert_eq!(doubts(&world), []);
    world.run(200 * SECOND);
    world.assert_clean();
}

#[test]
fn a_connection_that_posts_nothing_for_the_time_limit_ends_although_no_message_waits_so_long() {
    let mut world = pair(IbConfig::default());
    world.put(0, 1, 0, 8);
    world.run(SECOND);
    world.hosts[1].taste = vec![Taste::Defer];
    world.hosts[1].keep_deferred = true;
    let to = world.hosts[1].nid;
    for number in 1..=70 {
        let now = world.now;
        world.hosts[0].put_within(now, to, number, 8, 5 * SECOND).expect("it is taken");
        world.drain(0);
        world.run(SECOND);
    }
    let closed = &world.hosts[0].port.ib.stats().closed;
    assert_eq!(closed.get("timeout"), Some(&1), "{closed:?}");
    world.assert_clean();
}

#[test]
fn without_limits_no_rail_is_looked_at_and_a_stopped_interface_looks_at_none() {
    let mut world = pair(IbConfig::default());
    world.put(0, 1, 0, 8);
    world.run(SECOND);
    world.cut.insert((0, 1));
    world.put(0, 1, 1, 8);
    world.run(SECOND);
    assert_eq!(doubts(&world), []);
    let mut world = suspecting();
    world.put(0, 1, 1, 8);
    let now = world.now;
    world.hosts[0].port.ib.stop(now);
    world.drain(0);
    world.run(SECOND);
    assert_eq!(world.hosts[0].port.ib.poll_timeout(), None);
}

#[test]
fn memory_of_an_abandoned_delivery_is_out_of_reach_at_once() {
    let mut world = pair(IbConfig::default());
    world.put(0, 1, 0, 8);
    world.run(SECOND);
    world.put(0, 1, 1, 65536);
    // PUT_REQ has arrived, and PUT_ACK is on its way.
    while world.hosts[1].received.len() < 2 {
        world.run(Duration::from_nanos(500));
    }
    let at = world.hosts[1].received.len() - 1;
    let (msg, now) = (world.hosts[1].receiving(at), world.now);
    assert_eq!(world.hosts[1].port.adapter.open_maps(), 1);
    world.hosts[1].port.abandon(now, msg);
    assert_eq!(world.hosts[1].port.adapter.open_maps(), 0);
    world.hosts[1].forget(msg);
    world.drain(1);
    world.run(SECOND);
    assert_eq!(world.hosts[1].received[at].outcome, None, "nothing is said of it");
    let place = world.hosts[1].received[at].place.clone();
    assert!(world.hosts[1].bytes(&place).iter().all(|byte| *byte == 0), "nothing is written");
    assert!(world.hosts[0].end(1).is_some_and(|end| end.is_err()), "the peer's write is refused");
    world.put(0, 1, 2, 65536);
    world.run(SECOND);
    assert_eq!(world.hosts[0].end(2), Some(Ok(())));
    world.assert_clean();
    world.assert_balance();
}
