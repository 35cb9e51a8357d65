//! A device that is taken away, and comes back.

use core::time::Duration;

use lnd_ib::{DeviceEvent, Event, IbConfig};
use lnet::Link;

use crate::flows::{SECOND, pair};
use crate::support::fabric::World;

/// Two hosts with a connection, the first of which then loses its device.
fn bereft() -> World {
    let mut world = pair(IbConfig::default());
    world.put(0, 1, 0, 65_536);
    world.run(SECOND);
    assert_eq!(world.hosts[0].end(0), Some(Ok(())));
    world.hosts[0].port.adapter.device(DeviceEvent::Removed);
    world.drain(0);
    assert_eq!(world.hosts[0].port.ib.connections(None), 0);
    world
}

fn links(world: &World) -> Vec<Link> {
    let links = world.hosts[0].events.iter().filter_map(|event| match event {
        Event::Link(link) => Some(*link),
        _ => None,
    });
    links.collect()
}

#[test]
fn a_device_that_returns_is_opened_again_and_serves_both_ways() {
    let mut world = bereft();
    world.run(10 * SECOND);
    world.put(0, 1, 1, 8);
    world.run(SECOND);
    assert!(world.hosts[0].end(1).is_some_and(|end| end.is_err()), "it is not back");
    assert_eq!(links(&world), [Link::Down]);
    world.hosts[0].port.adapter.come_back();
    world.run(3 * SECOND);
    assert_eq!(links(&world), [Link::Down, Link::Up]);
    world.put(0, 1, 2, 65_536);
    world.put(1, 0, 3, 65_536);
    world.run(5 * SECOND);
    assert_eq!(world.hosts[0].end(2), Some(Ok(())));
    assert_eq!(world.hosts[1].end(3), Some(Ok(())));
    world.run(200 * SECOND);
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn a_device_that_goes_without_an_event_is_missed_while_port_or_link_is_down() {
    for by_port in [true, false] {
        let mut world = pair(IbConfig::default());
        world.put(0, 1, 0, 65_536);
        world.run(SECOND);
        world.hosts[0].port.adapter.vanish();
        if by_port {
            world.hosts[0].port.adapter.device(DeviceEvent::PortError);
        } else {
            let now = world.now;
            world.hosts[0].port.ib.link_changed(now, Link::Down);
        }
        world.drain(0);
        assert_eq!(world.hosts[0].port.ib.connections(None), 1, "a port may come back");
        world.run(3 * SECOND);
        assert_eq!(world.hosts[0].port.ib.connections(None), 0);
        assert_eq!(world.conns(0), [], "the system waits for that");
        world.hosts[0].port.adapter.come_back();
        world.run(3 * SECOND);
        assert_eq!(links(&world), [Link::Down, Link::Up]);
        world.put(0, 1, 1, 65_536);
        world.run(5 * SECOND);
        assert_eq!(world.hosts[0].end(1), Some(Ok(())));
        world.assert_clean();
    }
}

#[test]
fn a_port_that_comes_back_is_not_looked_at_any_more() {
    let mut world = pair(IbConfig::default());
    for event in [DeviceEvent::PortError, DeviceEvent::PortActive] {
        world.hosts[0].port.adapter.device(event);
        world.drain(0);
        let waits = world.hosts[0].port.ib.poll_timeout().is_some();
        assert_eq!(waits, event == DeviceEvent::PortError);
        world.run(Duration::from_millis(1));
    }
}

#[test]
fn a_link_that_comes_back_ends_the_looks_at_its_device() {
    let mut world = pair(IbConfig::default());
    for link in [Link::Down, Link::Up] {
        let now = world.now;
        world.hosts[0].port.ib.link_changed(now, link);
        world.run(3 * SECOND);
        assert_eq!(world.hosts[0].port.ib.poll_timeout().is_some(), link == Link::Down);
    }
    assert_eq!(links(&world), [], "the node knows it already");
}

#[test]
fn a_device_is_opened_again_only_behind_the_last_connection_and_map() {
    let mut world = pair(IbConfig::default());
    world.hosts[1].silent_gets = true;
    world.get(0, 1, 0, 65_536);
    world.run(Duration::from_millis(1));
    assert_eq!(world.hosts[0].port.adapter.open_maps(), 1);
    world.hosts[0].port.adapter.come_back();
    world.hosts[0].port.adapter.device(DeviceEvent::Removed);
    world.drain(0);
    world.run(5 * SECOND);
    // The adapter itself would report what is left.
    assert_eq!(links(&world), [Link::Down, Link::Up]);
    assert!(world.hosts[0].end(0).is_some_and(|end| end.is_err()));
    world.assert_clean();
}

#[test]
fn a_stopped_interface_looks_for_no_device() {
    let mut world = bereft();
    assert!(world.hosts[0].port.ib.poll_timeout().is_some());
    let now = world.now;
    world.hosts[0].port.ib.stop(now);
    world.drain(0);
    world.hosts[0].port.adapter.come_back();
    world.run(10 * SECOND);
    assert_eq!(world.hosts[0].port.ib.poll_timeout(), None);
    assert_eq!(links(&world), [Link::Down]);
}
