//! Two or three drivers under random faults: whatever happens, each message that was given away
//! comes back exactly once, none arrives twice or changed, and when the weather clears up messages
//! flow again.

use core::time::Duration;

use lnd_sock::SockConfig;
use lnet_types::{Errno, Prng};

use crate::support::upstairs::{Decision, number_of};
use crate::support::{World, ni, ni_start};

fn payload(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number as u8).wrapping_add(i as u8).wrapping_mul(13)).collect()
}

/// Payload lengths by number, so that receivers can check what they get.
fn len_of(number: u64) -> usize {
    let mut prng = Prng::new(number);
    let max = [1, 100, 1000, 20_000, 300_000][prng.below(5) as usize];
    prng.below(max) as usize
}

struct Run {
    world: World,
    prng: Prng,
    next: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let mut world = World::new(seed);
        for n in 1..=2 + prng.below(2) as u8 {
            let conns_per_peer = 1 + prng.below(3) as u8;
            let lnd_timeout = Duration::from_secs(5 + prng.below(20));
            let config = SockConfig {
                keepalive: Duration::from_secs(prng.below(2) * 10),
                ..SockConfig::default()
            };
            world.host(config, lnd_sock::NiStart { conns_per_peer, lnd_timeout, ..ni_start(n) });
        }
        Self { world, prng, next: 0 }
    }

    fn send(&mut self) {
        let hosts = self.world.hosts.len() as u64;
        let from = self.prng.below(hosts) as usize;
        let to = (from + 1 + self.prng.below(hosts - 1) as usize) % hosts as usize;
        let number = self.next;
        self.next += 1;
        let to = self.world.hosts[to].nid;
        let timeout = Duration::from_millis(200 + self.prng.below(20_000));
        let bytes = payload(number, len_of(number));
        self.world.send_with(from, to, number, &bytes, |t| t.timeout = timeout);
    }

    fn decide(&mut self) {
        for host in 0..self.world.hosts.len() {
            let decision = match self.prng.below(12) {
                0 => Decision::Drop,
                1 => Decision::Truncate(self.prng.below(500) as u32),
                2 => Decision::Defer,
                3 => Decision::Bytes(self.prng.below(5000) as u32),
                4 if self.prng.one_in(8) => Decision::Close,
                _ => Decision::Keep,
            };
            self.world.hosts[host].up.decisions = vec![decision, Decision::Keep];
        }
    }

    /// Decides on messages that wait.
    fn resume(&mut self) {
        for host in 0..self.world.hosts.len() {
            let up = &self.world.hosts[host].up;
            let held: Vec<usize> = up.held().collect();
            for at in held {
                if self.prng.one_in(2) {
                    self.world.hosts[host].up.take_held(at);
                    let decision =
                        if self.prng.one_in(4) { Decision::Drop } else { Decision::Keep };
                    self.world.resume(host, at, &decision);
                }
            }
        }
    }

    fn trouble(&mut self) {
        let now = self.world.now;
        let host = self.prng.below(self.world.hosts.len() as u64) as usize;
        match self.prng.below(10) {
            0 => self.world.break_all(Errno::ECONNRESET),
            1 => {
                self.world.call(host, |driver, up| driver.kill_connections(now, ni(1), up));
            }
            2 => {
                let blocked = self.prng.one_in(2);
                self.world
                    .call(host, |driver, up| driver.ni_block(now, ni(1), blocked, up))
                    .expect("the address is free");
            }
            3 | 4 => {
                let dead = self.prng.one_in(2);
                self.world.weather(|w| w.dead = dead);
                self.world.wake();
            }
            5 => {
                let window = 1 << (6 + self.prng.below(14));
                self.world.weather(|w| w.window = window);
            }
            6 => {
                self.world.call(host, |driver, up| driver.ni_stop(now, ni(1), up));
                let incarnation = 5000 + self.next;
                let start = lnd_sock::NiStart { incarnation, ..ni_start(host as u8 + 1) };
                self.world.hosts[host].driver.ni_start(now, start).expect("the address is free");
            }
            _ => {}
        }
    }

    fn check(&self, seed: u64) {
        for (n, host) in self.world.hosts.iter().enumerate() {
            let mut seen = std::collections::BTreeSet::new();
            for r in host.up.received.iter().filter(|r| matches!(r.outcome, Some(Ok(_)))) {
                let number = number_of(&r.hdr);
                assert!(seen.insert(number), "seed {seed}: {number} arrived twice at {n}");
                let whole = payload(number, len_of(number));
                let got = match &r.outcome {
                    Some(Ok(bytes)) if r.place.is_empty() => bytes.clone(),
                    _ => host.mem.read(&r.place),
                };
                assert!(whole.starts_with(&got), "seed {seed}: {number} arrived changed at {n}");
            }
        }
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    run.world.weather(|w| w.splits = true);
    for _ in 0..60 {
        for _ in 0..run.prng.below(6) {
            run.send();
        }
        if run.prng.one_in(3) {
            run.decide();
        }
        if run.prng.one_in(4) {
            run.trouble();
        }
        for _ in 0..run.prng.below(10) {
            run.world.turn();
        }
        run.resume();
        if run.prng.one_in(2) {
            let time = Duration::from_millis(run.prng.below(3000));
            run.world.pass(time);
        }
    }
    // The weather clears up. Everything that is out must end, within the longest of limits.
    let now = run.world.now;
    run.world.weather(|w| {
        w.dead = false;
        w.window = 1 << 20;
    });
    for host in 0..run.world.hosts.len() {
        run.world
            .call(host, |driver, up| driver.ni_block(now, ni(1), false, up))
            .expect("the address is free");
        run.world.hosts[host].up.decisions = vec![Decision::Keep];
    }
    run.world.wake();
    for _ in 0..20 {
        run.resume();
        run.world.pass(Duration::from_secs(10));
    }
    for (n, host) in run.world.hosts.iter().enumerate() {
        assert!(host.up.out.is_empty(), "seed {seed}: host {n} still waits for {:?}", host.up.out);
    }
    // And messages flow again.
    let first = run.next;
    for _ in 0..5 {
        run.send();
        run.world.pass(Duration::from_secs(5));
    }
    for number in first..run.next {
        let ends: Vec<_> =
            run.world.hosts.iter().filter_map(|host| host.up.outcome(number)).collect();
        assert_eq!(ends, [Ok(())], "seed {seed}: message {number} in good weather");
    }
    run.check(seed);
}

#[test]
fn every_message_ends_exactly_once_under_random_faults() {
    let seeds = 30;
    for seed in 0..seeds {
        // A panic inside names the seed as well.
        println!("seed {seed}");
        run(seed);
    }
}
