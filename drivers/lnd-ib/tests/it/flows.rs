//! One exchange at a time: what goes over the wire, and how it ends (wire.md 7.4, RS-082 to RS-089).

use core::time::Duration;

use lnd_ib::IbConfig;
use lnet_types::{Errno, HealthStatus};
use lnet_wire::ib::{IMMEDIATE_MAX, Version};

use crate::support::fabric::World;
use crate::support::host::{Host, Taste};

pub(crate) const A: &str = "10.77.0.2@o2ib";
pub(crate) const B: &str = "10.77.0.3@o2ib";

pub(crate) fn pair(config: IbConfig) -> World {
    let hosts = vec![Host::new(A, 0xa, config.clone()), Host::new(B, 0xb, config)];
    World::new(1, hosts)
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_put_that_fits_a_message_goes_at_once_and_a_larger_one_by_rdma() {
    let mut world = pair(IbConfig::default());
    let most = IMMEDIATE_MAX as u32;
    for (number, len) in [(1, 0), (2, 1), (3, most), (4, most + 1), (5, 1 << 20)] {
        world.put(0, 1, number, len);
        world.run(SECOND);
        assert_eq!(world.hosts[0].end(number), Some(Ok(())), "{len}");
    }
    let large = |len| [(0, "PUT_REQ", 0), (1, "PUT_ACK", 0), (0, "PUT_DONE", len)];
    let mut expected = vec![(0, "IMMEDIATE", 0); 3];
    expected.extend(large(u64::from(most) + 1));
    expected.extend(large(1 << 20));
    let mut kinds = world.kinds();
    kinds.retain(|(_, kind, _)| *kind != "NOOP");
    assert_eq!(kinds, expected);
    let lens: Vec<_> =
        world.hosts[1].received.iter().map(|r| r.bytes.as_ref().map(Vec::len)).collect();
    assert_eq!(lens, [Some(0), Some(1), Some(3976), Some(3977), Some(1 << 20)]);
    // IMMEDIATE, PUT_REQ, PUT_DONE and NOOP without payload (wire.md 7.3), and the payload.
    let stats = world.hosts[0].port.ib.stats();
    let heads = 3 * 120 + 2 * 128 + 2 * 60 + 48 * stats.noops;
    assert_eq!(stats.bytes_out, heads + 1 + 3976 + 3977 + (1 << 20));
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn a_get_with_a_named_sink_is_served_by_rdma_and_without_one_by_a_reply() {
    let mut world = pair(IbConfig::default());
    world.get(0, 1, 1, 3976);
    world.run(SECOND);
    world.get(0, 1, 2, 4096);
    world.run(SECOND);
    world.hosts[0].rdma_get = false;
    world.get(0, 1, 3, 4096);
    world.run(SECOND);
    let expected = [
        (0, "IMMEDIATE", 0),
        (1, "IMMEDIATE", 0),
        (0, "GET_REQ", 0),
        (1, "GET_DONE", 4096),
        (0, "IMMEDIATE", 0),
        (1, "PUT_REQ", 0),
        (0, "PUT_ACK", 0),
        (1, "PUT_DONE", 4096),
    ];
    assert_eq!(world.kinds(), expected);
    assert_eq!(world.hosts[0].got, [1, 2, 3]);
    for number in 1..=3 {
        assert_eq!(world.hosts[0].end(number), Some(Ok(())));
        assert_eq!(world.hosts[1].end(number), Some(Ok(())), "the REPLY");
    }
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn a_get_of_nothing_is_done_without_data() {
    let mut world = pair(IbConfig::default());
    world.hosts[1].reply_max = 0;
    world.get(0, 1, 1, 4096);
    world.run(SECOND);
    world.hosts[1].reply_max = 1000;
    world.get(0, 1, 2, 4096);
    world.run(SECOND);
    let expected =
        [(0, "GET_REQ", 0), (1, "GET_DONE", 0), (0, "GET_REQ", 0), (1, "GET_DONE", 1000)];
    assert_eq!(world.kinds(), expected);
    let lens = world.hosts[0].received.iter().map(|r| r.hdr.payload_len);
    assert_eq!(lens.collect::<Vec<_>>(), [0, 1000], "the REPLY that the node sees");
    assert_eq!((world.hosts[0].end(1), world.hosts[1].end(1)), (Some(Ok(())), Some(Ok(()))));
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn what_is_not_wanted_is_refused_without_data() {
    let mut world = pair(IbConfig::default());
    world.hosts[1].taste = vec![Taste::Drop];
    world.put(0, 1, 1, 65536);
    world.get(0, 1, 2, 65536);
    world.put(0, 1, 3, 16);
    world.run(SECOND);
    let mut kinds = world.kinds();
    kinds.sort_unstable();
    let expected = [
        (0, "GET_REQ", 0),
        (0, "IMMEDIATE", 0),
        (0, "PUT_REQ", 0),
        (1, "GET_DONE", 0),
        (1, "PUT_NAK", 0),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(world.hosts[0].end(1), Some(Ok(())), "a PUT that nothing matches is sent");
    let fault = world.hosts[0].end(2).expect("it has ended").expect_err("no data");
    assert_eq!((fault.status, fault.errno), (HealthStatus::RemoteError, Errno::ENODATA));
    assert_eq!(world.hosts[0].end(3), Some(Ok(())));
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn a_target_takes_less_or_into_its_own_buffer_or_later() {
    let mut world = pair(IbConfig::default());
    world.faults.fragments = 5;
    let tastes = [
        (Taste::Truncate(5000), 60536),
        (Taste::Bytes, 65536),
        (Taste::Truncate(65536), 0),
        (Taste::Defer, 65536),
    ];
    for (number, (taste, len)) in (1..).zip(tastes) {
        world.hosts[1].taste = vec![taste, Taste::Keep];
        world.put(0, 1, number, 65536);
        world.run(SECOND);
        assert_eq!(world.hosts[0].end(number), Some(Ok(())), "{taste:?}");
        let received = world.hosts[1].received.last().expect("it came");
        assert_eq!(received.bytes.as_ref().map(Vec::len), Some(len), "{taste:?}");
    }
    for (number, (taste, len)) in
        (11..).zip([(Taste::Truncate(100), 924), (Taste::Bytes, 1024), (Taste::Defer, 1024)])
    {
        world.hosts[1].taste = vec![taste, Taste::Keep];
        world.put(0, 1, number, 1024);
        world.run(SECOND);
        let received = world.hosts[1].received.last().expect("it came");
        assert_eq!(received.bytes.as_ref().map(Vec::len), Some(len), "{taste:?}");
    }
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn a_delivery_into_several_spans_goes_through_a_buffer_where_an_adapter_maps_one() {
    for one_span in [false, true] {
        let mut world = pair(IbConfig { one_span, ..IbConfig::default() });
        world.put(0, 1, 1, 65536);
        world.run(SECOND);
        assert_eq!(world.hosts[0].end(1), Some(Ok(())));
        let received = world.hosts[1].received.last().expect("it came");
        assert!(received.place.len() > 1, "{:?}", received.place);
        assert_eq!(received.bytes.as_ref().map(Vec::len), Some(65536), "each byte was compared");
        let bounced = world.hosts[1].port.ib.stats().bounced;
        assert_eq!(bounced, u64::from(one_span));
        world.assert_clean();
        world.assert_balance();
    }
}

#[test]
fn a_burst_beyond_the_credits_arrives_whole_in_either_version() {
    for version in [Version::V12, Version::V11] {
        let config = IbConfig { version, ..IbConfig::default() };
        let mut world = pair(config);
        for number in 0..200 {
            let (from, to) = if number % 3 == 0 { (1, 0) } else { (0, 1) };
            match number % 4 {
                0 => world.put(from, to, number, 10_000),
                1 => world.get(from, to, number, 10_000),
                _ => world.put(from, to, number, 100),
            }
        }
        world.run(Duration::from_secs(10));
        for host in &world.hosts {
            assert!(host.out.is_empty(), "{version}: {:?}", host.out);
            assert!(host.ended.iter().all(|(_, outcome)| outcome.is_ok()), "{version}");
            // Both sides begin: the second request may come when the first has been granted.
            assert!((1..=2).contains(&host.port.ib.connections(None)), "{version}");
        }
        world.assert_clean();
        world.assert_balance();
    }
}

#[test]
fn credits_come_back_by_a_noop_when_half_of_them_are_owed_and_nothing_else_goes() {
    let mut world = pair(IbConfig::default());
    for number in 0..4 {
        world.put(0, 1, number, 8);
        world.run(SECOND);
        let noops = world.kinds().iter().filter(|(_, kind, _)| *kind == "NOOP").count();
        assert_eq!(noops, usize::from(number == 3), "after message {number}");
    }
    let noop = world.trace.last().expect("a NOOP");
    assert_eq!((noop.from, noop.msg.head.credits), (1, 4));
    world.assert_balance();
}

#[test]
fn a_silent_connection_shows_a_sign_of_life_after_the_keepalive() {
    let mut world = pair(IbConfig::default());
    world.put(0, 1, 1, 8);
    world.run(Duration::from_secs(99));
    assert_eq!(world.trace.len(), 1);
    world.run(Duration::from_secs(3));
    let noops: Vec<_> = world.trace[1..].iter().map(|a| (a.from, a.kind.name())).collect();
    assert!(
        noops == [(0, "NOOP"), (1, "NOOP")] || noops == [(1, "NOOP"), (0, "NOOP")],
        "{noops:?}"
    );
    world.assert_clean();
}

#[test]
fn messages_take_turns_on_several_connections() {
    let mut world = pair(IbConfig { conns_per_peer: 3, ..IbConfig::default() });
    world.put(0, 1, 1, 8);
    world.run(SECOND);
    assert_eq!(world.hosts[0].port.ib.connections(None), 3);
    for number in 2..32 {
        world.put(0, 1, number, 8);
        world.run(SECOND);
    }
    let credits = world.hosts[0].port.ib.credits(world.hosts[1].nid);
    assert_eq!(credits.len(), 3);
    let sent = world.trace.iter().filter(|a| a.from == 0 && a.kind.name() == "IMMEDIATE").count();
    assert_eq!(sent, 31);
    world.assert_clean();
    world.assert_balance();
}
