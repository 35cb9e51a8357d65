//! Everything at once, from a seed: hosts of either version exchange PUTs and GETs of all sizes while
//! messages of the connection manager are lost, queue pairs break, completions vanish, memory can't
//! be mapped, cables are cut, devices go and hosts restart. Whatever happens, no peer writes into
//! memory that is over, no receive buffer is missing, each message ends once; and when all is quiet
//! again, credits are where they belong.

use core::time::Duration;

use lnd_ib::{DeviceEvent, IbConfig};
use lnet_types::Prng;
use lnet_wire::ib::Version;

use crate::support::fabric::{Faults, World};
use crate::support::host::{Host, Taste};

fn config(prng: &mut Prng) -> IbConfig {
    IbConfig {
        version: if prng.one_in(3) { Version::V11 } else { Version::V12 },
        queue_depth: 8 + prng.below(24) as u16,
        highwater: prng.below(8) as u16,
        concurrent_sends: prng.below(4) as u16,
        max_frags: if prng.one_in(4) { 3 } else { 257 },
        conns_per_peer: 1 + prng.below(3) as u8,
        timeout: Duration::from_secs(4 + prng.below(20)),
        keepalive: Duration::from_secs(prng.below(3) * 5),
        drain: Duration::from_millis(500 + prng.below(2000)),
        legacy_status: prng.one_in(2),
        ..IbConfig::default()
    }
}

fn host(index: usize, life: u64, prng: &mut Prng) -> Host {
    let config = config(prng);
    let mut host = Host::new(&format!("10.77.0.{}@o2ib", index + 2), 1 + life, config);
    host.rdma_get = !prng.one_in(4);
    host
}

fn tastes(prng: &mut Prng) -> Vec<Taste> {
    let mut all: Vec<_> = (0..40)
        .map(|_| match prng.below(8) {
            0 => Taste::Drop,
            1 => Taste::Defer,
            2 => Taste::Bytes,
            3 => Taste::Truncate(prng.below(70_000) as u32),
            _ => Taste::Keep,
        })
        .collect();
    all.push(Taste::Keep);
    all
}

fn faults(prng: &mut Prng) -> Faults {
    let mut rate = |n: u64| if prng.one_in(2) { 0 } else { n + prng.below(4 * n) };
    Faults {
        cm_loss: rate(6),
        completion_loss: rate(100),
        qp_error: rate(80),
        map_failure: rate(20),
        fragments: rate(2),
        ..Faults::default()
    }
}

/// What a run did.
#[derive(Default)]
struct Account {
    moved: usize,
    failed: usize,
    closed: u64,
    undrained: u64,
    refused: u64,
}

fn run(seed: u64, steps: u64, account: &mut Account) {
    let mut prng = Prng::new(seed);
    let count = 2 + prng.below(3) as usize;
    let hosts = (0..count).map(|i| host(i, 0, &mut prng)).collect();
    let mut world = World::new(seed, hosts);
    let mut number = 0;
    for step in 0..steps {
        if step % 10 == 0 {
            world.faults = faults(&mut prng);
            world.faults.defer_long = prng.one_in(5);
        }
        let from = prng.below(count as u64) as usize;
        let to = (from + 1 + prng.below(count as u64 - 1) as usize) % count;
        match prng.below(40) {
            0 => {
                world.cut.insert((from.min(to), from.max(to)));
            }
            1..=3 => world.cut.clear(),
            4 => {
                let now = world.now;
                let event = match prng.below(4) {
                    0 => DeviceEvent::CompletionQueue,
                    1 => DeviceEvent::PortError,
                    2 => DeviceEvent::PortActive,
                    _ => DeviceEvent::Rate(prng.below(1000) as u32),
                };
                world.hosts[from].port.ib.device_event(now, event);
                world.drain(from);
            }
            5 if prng.one_in(3) => {
                // It ends in order first, or not.
                if prng.one_in(2) {
                    let now = world.now;
                    world.hosts[from].port.ib.stop(now);
                    world.drain(from);
                    world.run(Duration::from_secs(4));
                    assert!(world.hosts[from].port.ib.is_stopped(), "seed {seed}");
                    assert!(world.hosts[from].out.is_empty(), "seed {seed}");
                }
                let fresh = host(from, step + 1, &mut prng);
                world.restart(from, fresh);
            }
            6 => {
                for conn in world.conns(from) {
                    if prng.one_in(2) {
                        world.break_qp((from, conn));
                    }
                }
            }
            7 => world.hosts[to].taste = tastes(&mut prng),
            8 => world.hosts[to].silent_gets = prng.one_in(2),
            9 | 10 => {
                // The data of some of its GETs have come another way: their memory is given out anew.
                let now = world.now;
                for msg in world.hosts[from].out.keys().copied().collect::<Vec<_>>() {
                    if prng.one_in(2) {
                        world.hosts[from].port.withdraw(now, msg);
                    }
                }
                world.drain(from);
            }
            _ => {
                for _ in 0..=prng.below(12) {
                    number += 1;
                    let len = match prng.below(4) {
                        0 => prng.below(64),
                        1 => 3900 + prng.below(200),
                        2 => prng.below(70_000),
                        _ => prng.below(4000),
                    } as u32;
                    if prng.one_in(2) {
                        world.put(from, to, number, len);
                    } else {
                        world.get(from, to, number, len);
                    }
                }
            }
        }
        let nanos = match prng.below(8) {
            0 => prng.below(8_000_000_000),
            1..=3 => prng.below(50_000_000),
            _ => prng.below(50_000),
        };
        world.run(Duration::from_nanos(nanos));
        assert_eq!(world.violations, [""; 0], "seed {seed} step {step}");
    }
    world.faults = Faults::default();
    world.cut.clear();
    world.run(Duration::from_secs(200));
    world.assert_clean();
    world.assert_balance();
    for host in &world.hosts {
        assert!(host.out.is_empty(), "seed {seed}: {} still has {:?}", host.nid, host.out);
        assert_eq!(host.port.adapter.open_maps(), 0, "seed {seed}: {} has mapped memory", host.nid);
        let stats = host.port.ib.stats();
        account.moved += host.ended.iter().filter(|(_, end)| end.is_ok()).count();
        account.failed += host.ended.iter().filter(|(_, end)| end.is_err()).count();
        account.closed += stats.closed.values().sum::<u64>();
        account.undrained += stats.undrained;
        account.refused += stats.refused.values().sum::<u64>();
    }
}

#[test]
fn whatever_befalls_the_fabric_memory_credits_and_messages_are_accounted_for() {
    let mut account = Account::default();
    for seed in 0..30 {
        run(seed, 60, &mut account);
    }
    let Account { moved, failed, closed, undrained, refused } = account;
    println!(
        "{moved} moved, {failed} failed, {closed} closed, {undrained} undrained, {refused} refused"
    );
    assert!(moved > 4000 && failed > 400 && closed > 200 && undrained > 5 && refused > 50);
}
