//! How much is moved in one turn: small messages, and whatever else the caller looks at between turns, wait
//! for a megabyte or two of bulk data and not for all that there is.

use lnd_sock::SockConfig;

use crate::support::{World, ni_start};

const MIB: usize = 1 << 20;

/// `n` hosts, the first of which is connected to all others, for small messages and for bulk data.
fn hosts(n: u8) -> World {
    let mut world = World::new(1);
    for n in 1..=n {
        world.host(SockConfig::default(), ni_start(n));
    }
    for to in 1..usize::from(n) {
        world.send(0, to, 0, b"hello");
        world.send(0, to, 1, &[7; 5000]);
    }
    world.settle();
    world.weather(|w| w.window = 32 * MIB);
    world
}

/// Messages of a megabyte that have come to `host`.
fn large(world: &World, host: usize) -> usize {
    world.hosts[host].up.arrived().iter().filter(|n| (100..200).contains(*n)).count()
}

#[test]
fn a_turn_writes_a_megabyte_or_two_and_the_rest_follows() {
    let mut world = hosts(2);
    for n in 100..108 {
        world.send(0, 1, n, &vec![n as u8; MIB]);
    }
    let before = world.hosts[0].up.ended.len();
    world.turn();
    let written = world.hosts[0].up.ended.len() - before;
    assert!((1..=2).contains(&written), "{written} MiB in one turn");
    world.settle();
    assert_eq!(large(&world, 1), 8);
}

#[test]
fn a_small_message_overtakes_bulk_data_that_have_arrived_before_it() {
    let mut world = hosts(2);
    for n in 100..108 {
        world.send(0, 1, n, &vec![n as u8; MIB]);
    }
    world.send(0, 1, 2, b"small");
    // All of it is under way before the other host looks.
    let now = world.now;
    let sender = &mut world.hosts[0];
    while sender.up.ended.iter().filter(|(n, _)| *n >= 100).count() < 8 {
        sender.driver.handle_timeout(now, &mut sender.up, &mut sender.mem);
        sender.driver.flush(now, &mut sender.up, &mut sender.mem);
    }
    world.turn();
    assert!(world.hosts[1].up.arrived().contains(&2), "{:?}", world.hosts[1].up.arrived());
    assert!(large(&world, 1) <= 2, "{:?}", world.hosts[1].up.arrived());
    world.settle();
    assert_eq!(large(&world, 1), 8);
}

#[test]
fn connections_with_more_than_a_turn_holds_take_turns() {
    let mut world = hosts(4);
    for to in 1..4 {
        for n in 100..120 {
            world.send(0, to, n, &vec![n as u8; MIB]);
        }
    }
    for _ in 0..6 {
        world.turn();
    }
    let got: Vec<usize> = (1..4).map(|to| large(&world, to)).collect();
    assert!(got.iter().all(|n| (2..=6).contains(n)), "{got:?}");
    world.settle();
    for to in 1..4 {
        assert_eq!(large(&world, to), 20, "host {to}");
    }
}

#[test]
fn connections_with_more_to_read_than_a_turn_holds_take_turns() {
    let mut world = hosts(4);
    for from in 1..4 {
        for n in 0..20 {
            world.send(from, 0, 100 + 30 * from as u64 + n, &vec![n as u8; MIB]);
        }
    }
    for _ in 0..9 {
        world.turn();
    }
    let arrived = world.hosts[0].up.arrived();
    let of = |from: u64| {
        let own = 100 + 30 * from..130 + 30 * from;
        arrived.iter().filter(|n| own.contains(*n)).count()
    };
    let got = [1, 2, 3].map(of);
    assert!(got.iter().all(|n| (2..=9).contains(n)), "{got:?}");
    world.settle();
    assert_eq!(world.hosts[0].up.arrived().iter().filter(|n| **n >= 100).count(), 60);
}
