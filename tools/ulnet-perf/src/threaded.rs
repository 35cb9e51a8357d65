//! Measuring through a node on its own thread, as programs use it by default: each operation crosses
//! from the caller's thread to the node's, and its outcome comes back.

use std::collections::VecDeque;
use std::future::IntoFuture as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use hdrhistogram::Histogram;
use lnet::MatchEntry;
use lnet_rt::{AttachOptions, Attachment, Buffer, NodeHandle, Spin, block_on};
use lnet_types::ProcessId;

use super::client::Bench;
use super::node;
use super::options::{Common, Limit, Size, Test};
use super::protocol::{CLIENT, COUNTERS, Counters, ECHO, SERVER, SINK, SOURCE, cpu_time};
use super::report::{Ran, histogram};

/// How long the server may take to have seen what was sent.
const PATIENCE: Duration = Duration::from_secs(30);

/// A node and what it shares with its server.
pub(super) struct Threaded {
    node: NodeHandle,
    target: ProcessId,
    threads: u8,
    echo: Attachment,
    counters: Attachment,
}

impl Threaded {
    pub(super) fn new(common: &Common, own: &[IpAddr], target: ProcessId) -> anyhow::Result<Self> {
        let node = node::stack(common, target.nid.net(), own)?.spawn("lnet", Spin::default())?;
        let attach = |bits, len| {
            let options = AttachOptions { manage_remote: true, ..AttachOptions::PUT };
            node.attach(CLIENT, MatchEntry::bits(bits), Buffer::zeroed(len), options)
                .map_err(|e| e.error)
        };
        let (echo, counters) =
            (attach(ECHO, Size::MAX as usize)?, attach(COUNTERS, Counters::LEN)?);
        let this = Self { node, target, threads: common.threads, echo, counters };
        // Connections are made and the peer is discovered before anything is measured.
        this.counters()?;
        Ok(this)
    }

    fn counters(&self) -> anyhow::Result<Counters> {
        let put = self.node.put(self.target, SERVER, COUNTERS, vec![0; 8]).blocking();
        put.map_err(|e| e.error).with_context(|| format!("server at {}", self.target))?;
        self.counters.recv_blocking().context("the node has stopped")?;
        let mut record = [0; Counters::LEN];
        self.counters.read_at_blocking(0, &mut record)?;
        Counters::from_bytes(&record).context("counters")
    }

    fn wire_bytes(&self) -> anyhow::Result<u64> {
        Ok(self.node.call(|stack, _| node::wire_bytes(stack)).blocking()?)
    }

    fn latency(&self, size: u32, limit: Limit) -> anyhow::Result<(Duration, Histogram<u64>)> {
        let mut round_trips = histogram()?;
        let mut buffer = Buffer::zeroed(size as usize);
        let begin = Instant::now();
        let mut last = begin;
        while round_trips.len() < limit.count && last - begin < limit.time {
            let put = self.node.put(self.target, SERVER, ECHO, buffer).into_future();
            self.echo.recv_blocking().context("the node has stopped")?;
            let now = Instant::now();
            round_trips.saturating_record((now - last).as_nanos() as u64);
            last = now;
            // Sent long ago: this fetches the buffer.
            buffer = block_on(put).map_err(|e| e.error)?.buffer;
        }
        Ok((last - begin, round_trips))
    }

    /// One thread's part of a stream: how many operations it did.
    fn stream(&self, test: Test, size: u32, window: u16, limit: Limit) -> anyhow::Result<u64> {
        let start = |buffer: Buffer| match test {
            Test::Get => self.node.get(self.target, SERVER, SOURCE, buffer).into_future(),
            Test::PutAck => self.node.put(self.target, SERVER, SINK, buffer).ack().into_future(),
            Test::Put | Test::Latency => {
                self.node.put(self.target, SERVER, SINK, buffer).into_future()
            }
        };
        let mut spare: Vec<Buffer> = (0..window).map(|_| Buffer::zeroed(size as usize)).collect();
        let mut under_way = VecDeque::with_capacity(window.into());
        let begin = Instant::now();
        let mut issued = 0;
        loop {
            if issued < limit.count
                && begin.elapsed() < limit.time
                && let Some(buffer) = spare.pop()
            {
                under_way.push_back(start(buffer));
                issued += 1;
            } else if let Some(oldest) = under_way.pop_front() {
                spare.push(block_on(oldest).map_err(|e| e.error)?.buffer);
            } else {
                return Ok(issued);
            }
        }
    }
}

impl Drop for Threaded {
    /// The addresses are free afterwards.
    fn drop(&mut self) {
        self.node.stop(Duration::ZERO).blocking();
    }
}

impl Bench for Threaded {
    fn run(
        &mut self,
        test: Test,
        size: u32,
        window: u16,
        limit: Limit,
    ) -> anyhow::Result<(Ran, Option<Histogram<u64>>)> {
        let before = self.counters()?;
        let (cpu, wire) = (cpu_time(), self.wire_bytes()?);
        let begin = Instant::now();
        let mut latency = None;
        let mut after = None;
        let (operations, elapsed) = if test == Test::Latency {
            let (elapsed, round_trips) = self.latency(size, limit)?;
            let n = round_trips.len();
            latency = Some(round_trips);
            (n, elapsed)
        } else {
            let this = Arc::new(&*self);
            let share = Limit { count: limit.count.div_ceil(self.threads.into()), ..limit };
            let operations = thread::scope(|scope| {
                let started: Vec<_> = (0..self.threads)
                    .map(|_| {
                        let this = Arc::clone(&this);
                        scope.spawn(move || this.stream(test, size, window, share))
                    })
                    .collect();
                started
                    .into_iter()
                    .map(|t| t.join().unwrap_or_else(|_| Err(anyhow!("a measuring thread died"))))
                    .sum::<anyhow::Result<u64>>()
            })?;
            // A PUT that was sent has not arrived yet: the server says when it has.
            let waiting = Instant::now();
            let mut seen = self.counters()?;
            while test != Test::Get && seen.puts - before.puts < operations {
                let arrived = seen.puts - before.puts;
                ensure!(waiting.elapsed() < PATIENCE, "{arrived} of {operations} PUTs arrived");
                seen = self.counters()?;
            }
            after = Some(seen);
            (operations, begin.elapsed())
        };
        let own = cpu_time() - cpu;
        let after = match after {
            Some(after) => after,
            None => self.counters()?,
        };
        let cpu = (own, after.cpu - before.cpu);
        let wire_bytes = self.wire_bytes()? - wire;
        Ok((Ran { operations, elapsed, cpu, wire_bytes }, latency))
    }
}
