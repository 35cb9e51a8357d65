//! Admission, and what an address may cost: lists, the accept mode, memory, and reports.

use core::time::Duration;

use lnd_sock::{AcceptMode, CONN_BYTES, Limits, Refusal, Refused, SockConfig};
use lnet_wire::sock::{ConnType, FrameHdr, Hello, Version};

use crate::raw_peer::{accepted, bytes_of, hello, request, wire_put};
use crate::support::{Decision, Raw, Stands, World, addr, ni, ni_start, nid};

fn host(config: SockConfig) -> World {
    let mut world = World::new(1);
    world.host(config, ni_start(1));
    world
}

fn listed(list: &str) -> SockConfig {
    SockConfig { accept_from: list.parse().expect("a list"), ..SockConfig::default() }
}

/// What becomes of a peer at `10.0.0.at` that calls itself `10.0.0.named`.
fn knock(world: &mut World, at: u8, named: u8) -> (Stands, Vec<u8>) {
    let mut raw = Raw::connect(world, addr(at), addr(1), true);
    raw.write(&request(nid(1)));
    raw.write(&bytes_of(&hello(named, Version::V3, ConnType::CONTROL)));
    world.settle();
    let stands = raw.look();
    (stands, raw.got)
}

fn refused(world: &World) -> Vec<Refused> {
    world.hosts[0].driver.refused()
}

#[test]
fn an_address_that_is_not_on_the_list_is_refused_before_a_byte_is_read() {
    let mut world = host(listed("10.0.0.[9-10]@tcp"));
    assert_eq!(knock(&mut world, 9, 9).0, Stands::Open);
    let (stands, got) = knock(&mut world, 20, 9);
    assert_ne!(stands, Stands::Open);
    assert_eq!(got, b"", "it hears nothing");
    let stats = world.hosts[0].driver.stats();
    assert_eq!(stats.refused(Refusal::AddressNotAccepted), 1);
    assert_eq!(stats.connected, 1);
    let [who] = refused(&world)[..] else { panic!("one line: {:?}", refused(&world)) };
    assert_eq!((who.addr, who.nid, who.ni, who.count), (addr(20), None, ni(1), 1));
}

#[test]
fn a_peer_that_calls_itself_what_is_not_on_the_list_is_refused_and_named() {
    let mut world = host(listed("10.0.0.[9-10]@tcp"));
    for _ in 0..3 {
        let (stands, got) = knock(&mut world, 10, 66);
        assert_ne!(stands, Stands::Open);
        assert_eq!(got, b"", "it hears nothing");
    }
    assert_eq!(world.hosts[0].driver.stats().refused(Refusal::NidNotAccepted), 3);
    let [who] = refused(&world)[..] else { panic!("one line: {:?}", refused(&world)) };
    assert_eq!(
        (who.addr, who.nid, who.why, who.count),
        (addr(10), Some(nid(66)), Refusal::NidNotAccepted, 3)
    );
    // The loopback NID, which the kernel accepts in a HELLO, is not on the list either.
    let mut raw = Raw::connect(&world, addr(9), addr(1), true);
    let lo = Hello { src: lnet_types::Nid::LOOPBACK, ..hello(9, Version::V3, ConnType::CONTROL) };
    raw.write(&request(nid(1)));
    raw.write(&bytes_of(&lo));
    world.settle();
    assert_ne!(raw.look(), Stands::Open);
    assert!(world.hosts[0].driver.connections().is_empty());
}

#[test]
fn a_new_list_keeps_those_on_it_and_closes_what_others_have_opened() {
    let mut world = host(SockConfig::default());
    let mut first = accepted(&mut world, Version::V3, ConnType::CONTROL);
    let mut other = Raw::connect(&world, addr(10), addr(1), true);
    other.write(&request(nid(1)));
    other.write(&bytes_of(&hello(10, Version::V3, ConnType::CONTROL)));
    world.settle();
    assert_eq!(other.look(), Stands::Open);
    let now = world.now;
    let host = &mut world.hosts[0];
    let list = "10.0.0.[9,50]@tcp".parse().expect("a list");
    host.driver.set_accept_from(now, list, &mut host.up);
    world.settle();
    assert_ne!(other.look(), Stands::Open, "it may no longer");
    assert_eq!(world.hosts[0].driver.stats().refused(Refusal::NidNotAccepted), 1);
    first.write(&wire_put(Version::V3, FrameHdr::lnet(0, 0), 1, b"still here"));
    world.settle();
    assert_eq!(first.look(), Stands::Open);
    assert_eq!(world.payload(0, 1), Some(b"still here".to_vec()));
    assert_ne!(knock(&mut world, 10, 10).0, Stands::Open);
}

#[test]
fn accept_modes_are_the_kernels() {
    for (accept, privileged, open) in [
        (AcceptMode::Secure, true, true),
        (AcceptMode::Secure, false, false),
        (AcceptMode::All, true, true),
        (AcceptMode::All, false, true),
    ] {
        let mut world = host(SockConfig { accept, ..SockConfig::default() });
        let mut raw = Raw::connect(&world, addr(9), addr(1), privileged);
        world.settle();
        assert_eq!(raw.look() == Stands::Open, open, "{accept:?}, privileged: {privileged}");
        let insecure = world.hosts[0].driver.stats().refused(Refusal::InsecurePort);
        assert_eq!((insecure == 1, refused(&world).len() == 1), (!open, !open));
    }
    // Without a listener the port is free for another program.
    let world = host(SockConfig { accept: AcceptMode::None, ..SockConfig::default() });
    Raw::listen(&world, addr(1));
}

#[test]
fn the_memory_held_for_one_address_is_limited() {
    let limits = Limits { memory_per_address: 2 * CONN_BYTES + 100, ..Limits::default() };
    let mut world = host(SockConfig { limits, ..SockConfig::default() });
    let mut first = accepted(&mut world, Version::V3, ConnType::BULK_OUT);
    let mut second = accepted(&mut world, Version::V3, ConnType::CONTROL);
    let mut third = Raw::connect(&world, addr(9), addr(1), true);
    world.settle();
    assert_ne!(third.look(), Stands::Open, "a third connection is one too many");
    assert_eq!(world.hosts[0].driver.stats().refused(Refusal::TooMuchMemory), 1);
    // Another address has its own measure.
    let mut other = Raw::connect(&world, addr(10), addr(1), true);
    world.settle();
    assert_eq!(other.look(), Stands::Open);
    // A message that waits for its buffer is held with what was read behind it: 60 bytes fit …
    world.hosts[0].up.decisions = vec![Decision::Defer, Decision::Defer];
    first.write(&wire_put(Version::V3, FrameHdr::lnet(0, 0), 1, &[7; 60]));
    world.settle();
    assert_eq!(first.look(), Stands::Open);
    // … and 60 more do not.
    second.write(&wire_put(Version::V3, FrameHdr::lnet(0, 0), 2, &[8; 60]));
    world.settle();
    assert_ne!(second.look(), Stands::Open);
    assert_eq!(world.hosts[0].driver.stats().refused(Refusal::TooMuchMemory), 2);
    // What was held is free again.
    world.pass(Duration::from_secs(1));
    let mut again = Raw::connect(&world, addr(9), addr(1), true);
    world.settle();
    assert_eq!(again.look(), Stands::Open);
}
