//! Measuring with stacks that the measuring thread turns itself: no other thread, no wake-up.

use std::net::IpAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use lnet::{Event, EventKind, Get, MatchEntry, MdOptions, MdSpec, Put};
use lnet_rt::{Buffer, Stack, Wait};
use lnet_types::{MdId, ProcessId, RegionId, Span};

use super::client::Bench;
use super::node;
use super::options::{Common, Limit, Size, Test};
use super::protocol::{CLIENT, COUNTERS, Counters, ECHO, SERVER, SINK, SOURCE, cpu_time};
use super::report::{Ran, histogram};

/// User words of what is not a slot of the window.
const ARRIVED: u64 = 1 << 32;
const COUNTED: u64 = 2 << 32;
const QUIET: u64 = 3 << 32;

/// Nothing happening for so long is an error.
const PATIENCE: Duration = Duration::from_secs(30);

/// Stacks, each turned by a thread of its own while a test runs.
pub(super) struct Inline(Vec<One>);

struct One {
    stack: Stack,
    target: ProcessId,
    data: RegionId,
    counters: RegionId,
    ask: MdId,
    wait: Wait,
}

impl Inline {
    /// A stack for each pair of own addresses and target.
    pub(super) fn new(
        common: &Common,
        pairs: Vec<(Vec<IpAddr>, ProcessId)>,
    ) -> anyhow::Result<Self> {
        let one = |(own, target): (Vec<IpAddr>, ProcessId)| One::new(common, &own, target);
        Ok(Self(pairs.into_iter().map(one).collect::<anyhow::Result<_>>()?))
    }
}

impl Bench for Inline {
    fn run(
        &mut self,
        test: Test,
        size: u32,
        window: u16,
        limit: Limit,
    ) -> anyhow::Result<(Ran, Option<Histogram<u64>>)> {
        let begin = Barrier::new(self.0.len());
        let run = |one: &mut One| {
            begin.wait();
            match test {
                Test::Latency => one.latency(size, limit).map(|(ran, h)| (ran, Some(h))),
                Test::Put | Test::PutAck | Test::Get => {
                    one.stream(test, size, window, limit).map(|ran| (ran, None))
                }
            }
        };
        if let [one] = self.0.as_mut_slice() {
            return run(one);
        }
        let all: Vec<_> = thread::scope(|scope| {
            let run = &run;
            let started: Vec<_> =
                self.0.iter_mut().map(|one| scope.spawn(move || run(one))).collect();
            started
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err(anyhow!("a measuring thread died"))))
                .collect::<anyhow::Result<_>>()
        })?;
        let mut all = all.into_iter();
        let (mut ran, mut latency): (Ran, Option<Histogram<u64>>) =
            all.next().context("no stack")?;
        for (other, h) in all {
            ran.operations += other.operations;
            ran.wire_bytes += other.wire_bytes;
            ran.elapsed = ran.elapsed.max(other.elapsed);
            if let (Some(all), Some(h)) = (&mut latency, h) {
                all.add(h).map_err(|e| anyhow!("histogram: {e:?}"))?;
            }
        }
        Ok((ran, latency))
    }
}

impl One {
    fn new(common: &Common, own: &[IpAddr], target: ProcessId) -> anyhow::Result<Self> {
        let mut stack = node::stack(common, target.nid.net(), own)?;
        let data = stack.lend(Buffer::zeroed(Size::MAX as usize)).map_err(|e| e.error)?;
        let counters = stack.lend(Buffer::zeroed(Counters::LEN)).map_err(|e| e.error)?;
        let echoed = stack.lend(Buffer::zeroed(Size::MAX as usize)).map_err(|e| e.error)?;
        for (bits, region, user) in [(COUNTERS, counters, COUNTED), (ECHO, echoed, ARRIVED)] {
            let options = MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE;
            let spec = MdSpec { options, ..MdSpec::new(stack.region(region), user) };
            stack.attach(CLIENT, MatchEntry::bits(bits), spec)?;
        }
        let ask = [Span { region: data, len: 8, offset: 0 }].into_iter().collect();
        let ask = stack.bind(MdSpec::new(ask, QUIET))?;
        let wait = node::wait();
        let mut one = Self { stack, target, data, counters, ask, wait };
        // Connections are made and the peer is discovered before anything is measured.
        one.counters()?;
        Ok(one)
    }

    /// Asks the server what it has seen.
    fn counters(&mut self) -> anyhow::Result<Counters> {
        self.stack.put(self.put(self.ask, false, COUNTERS))?;
        let since = Instant::now();
        loop {
            while let Some(event) = self.turn() {
                check(&event).context("asking the server")?;
                if event.user == COUNTED {
                    let span = Span { region: self.counters, len: Counters::LEN as u32, offset: 0 };
                    return Counters::from_bytes(self.stack.bytes(span)).context("counters");
                }
            }
            ensure!(since.elapsed() < PATIENCE, "the server at {} does not answer", self.target);
        }
    }

    /// The next event, after a turn if there is none yet.
    fn turn(&mut self) -> Option<Event> {
        self.stack.poll_event().or_else(|| {
            self.stack.turn(self.wait);
            self.stack.poll_event()
        })
    }

    fn bind(&mut self, size: u32, user: u64) -> anyhow::Result<MdId> {
        let buf = [Span { region: self.data, len: size, offset: 0 }].into_iter().collect();
        Ok(self.stack.bind(MdSpec::new(buf, user))?)
    }

    fn put(&self, md: MdId, ack: bool, match_bits: u64) -> Put {
        Put {
            md,
            ack,
            src: None,
            target: self.target,
            portal: SERVER,
            match_bits,
            offset: 0,
            hdr_data: 0,
            timeout: None,
        }
    }

    fn wire_bytes(&self) -> u64 {
        node::wire_bytes(&self.stack)
    }

    fn latency(&mut self, size: u32, limit: Limit) -> anyhow::Result<(Ran, Histogram<u64>)> {
        let md = self.bind(size, QUIET)?;
        let mut round_trips = histogram()?;
        let before = self.counters()?;
        let (cpu, wire) = (cpu_time(), self.wire_bytes());
        let begin = Instant::now();
        let mut last = begin;
        let mut operations = 0;
        while operations < limit.count && last - begin < limit.time {
            self.stack.put(self.put(md, false, ECHO))?;
            let mut looks = 0u32;
            'answer: loop {
                while let Some(event) = self.turn() {
                    check(&event)?;
                    if event.user == ARRIVED {
                        break 'answer;
                    }
                }
                looks += 1;
                if looks.is_multiple_of(1 << 16) {
                    ensure!(last.elapsed() < PATIENCE, "the server has stopped answering");
                }
            }
            let now = Instant::now();
            round_trips.saturating_record((now - last).as_nanos() as u64);
            last = now;
            operations += 1;
        }
        let cpu = (cpu_time() - cpu, self.counters()?.cpu - before.cpu);
        let wire_bytes = self.wire_bytes() - wire;
        self.stack.unlink(md)?;
        Ok((Ran { operations, elapsed: last - begin, cpu, wire_bytes }, round_trips))
    }

    fn stream(&mut self, test: Test, size: u32, window: u16, limit: Limit) -> anyhow::Result<Ran> {
        let (done, bits) = match test {
            Test::Put | Test::Latency => (EventKind::Send, SINK),
            Test::PutAck => (EventKind::Ack, SINK),
            Test::Get => (EventKind::Reply, SOURCE),
        };
        let ack = test == Test::PutAck;
        let mds = (0..window)
            .map(|slot| self.bind(size, slot.into()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut free = mds.clone();
        let before = self.counters()?;
        let (cpu, wire) = (cpu_time(), self.wire_bytes());
        let begin = Instant::now();
        let mut progress = begin;
        let (mut issued, mut completed) = (0, 0);
        let mut issuing = true;
        while issuing || completed < issued {
            while issuing && let Some(md) = free.pop() {
                if test == Test::Get {
                    self.stack.get(Get {
                        md,
                        src: None,
                        target: self.target,
                        portal: SERVER,
                        match_bits: bits,
                        offset: 0,
                        timeout: None,
                    })?;
                } else {
                    self.stack.put(self.put(md, ack, bits))?;
                }
                issued += 1;
                issuing = issued < limit.count;
            }
            self.stack.turn(self.wait);
            let so_far = completed;
            while let Some(event) = self.stack.poll_event() {
                check(&event)?;
                if event.kind == done && event.user < ARRIVED {
                    completed += 1;
                    free.push(event.md);
                }
            }
            let now = Instant::now();
            if completed > so_far {
                progress = now;
            }
            issuing &= now - begin < limit.time;
            ensure!(now - progress < PATIENCE, "nothing has completed for {PATIENCE:?}");
        }
        // A PUT that was sent has not arrived yet: the server says when it has.
        let mut after = self.counters()?;
        let waiting = Instant::now();
        while test != Test::Get && after.puts - before.puts < issued {
            ensure!(
                waiting.elapsed() < PATIENCE,
                "{} of {issued} PUTs arrived",
                after.puts - before.puts
            );
            after = self.counters()?;
        }
        let elapsed = begin.elapsed();
        let cpu = (cpu_time() - cpu, after.cpu - before.cpu);
        let wire_bytes = self.wire_bytes() - wire;
        for md in mds {
            self.stack.unlink(md)?;
        }
        Ok(Ran { operations: issued, elapsed, cpu, wire_bytes })
    }
}

fn check(event: &Event) -> anyhow::Result<()> {
    match event.status {
        Ok(()) => Ok(()),
        // What was unlinked after its test is over says so.
        Err(_) if event.kind == EventKind::Unlink => Ok(()),
        Err(errno) => bail!("{:?}: {errno}", event.kind),
    }
}
