//! The sending node of the demo.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use lnet_rt::Buffer;
use lnet_types::{Net, Nid, ProcessId};
use sha2::{Digest as _, Sha256};

use super::link::{self, ChildReport, Order, SendReport};
use super::protocol::{self, BEGIN, BITS, CHUNK, END, STATE, STATE_HEAD};
use super::rails::{RailView, Rails};

/// Chunks on their way at a time.
const WINDOW: usize = 8;
/// How long an ACK may take before the receiver is asked what it has.
const ACK_TIMEOUT: Duration = Duration::from_millis(1000);
/// How often a chunk is tried before the transfer is given up.
const TRIES_MAX: u32 = 30;
/// How often news goes to the conductor.
const NEWS_EVERY: Duration = Duration::from_millis(100);

/// What the threads of one transfer share.
struct Transfer<'a> {
    rails: &'a Rails,
    file: &'a File,
    target: ProcessId,
    size: u64,
    chunk: u32,
    chunks: u64,
    /// Time between the starts of two chunks, so that there is something to see.
    pace: Duration,
    started: Instant,
    next: AtomicU64,
    done: AtomicU64,
    repeated: AtomicU64,
    acks: Mutex<Acks>,
    failed: AtomicBool,
    /// Chunks that are not held back.
    free: u64,
    /// A rail is still to be cut, or is back and does not carry its share yet: the rest of the file is
    /// held back for it.
    healing: AtomicBool,
}

/// How long the rest of the file is held back for a rail that is back, at most.
const HEALING_MAX: Duration = Duration::from_secs(15);
/// Time between two chunks meanwhile.
const HEALING_PACE: Duration = Duration::from_millis(50);
/// A rail that carries one byte in so many carries its share.
const SHARE: u64 = 4;

/// A rail that is back: when, and what the rails had carried a moment ago.
struct Healing {
    rail: usize,
    since: Instant,
    /// Of the last look.
    looked: Instant,
    before: Vec<u64>,
}

/// Over how long a share is measured.
const LOOK: Duration = Duration::from_millis(500);

impl Healing {
    /// Whether it is over: the rail has carried its share since the last look, or it took too long.
    fn is_over(&mut self, view: &[RailView]) -> Option<bool> {
        if self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        let now: Vec<u64> = view.iter().map(|r| r.bytes).collect();
        let moved = |i: usize| {
            let before = self.before.get(i).copied().unwrap_or(0);
            now.get(i).map_or(0, |n| n.saturating_sub(before))
        };
        let all: u64 = (0..now.len()).map(moved).sum();
        let carries = all > 0 && moved(self.rail) * SHARE >= all;
        self.before = now;
        match carries {
            true => Some(true),
            false => (self.since.elapsed() > HEALING_MAX).then_some(false),
        }
    }
}

/// The longest time in which chunks were on their way and none was acknowledged.
struct Acks {
    on_the_way: usize,
    last: Instant,
    longest: Duration,
}

impl Acks {
    fn sends(&mut self, now: Instant) {
        if self.on_the_way == 0 {
            self.last = now;
        }
        self.on_the_way += 1;
    }

    fn acknowledged(&mut self, now: Instant) {
        self.on_the_way = self.on_the_way.saturating_sub(1);
        self.longest = self.longest.max(now.saturating_duration_since(self.last));
        self.last = now;
    }
}

pub(crate) fn run() -> anyhow::Result<bool> {
    let orders = link::orders();
    let Ok(Order::Send { port, ips, peer, file, size, seconds, free }) = orders.recv() else {
        bail!("no order to send");
    };
    let named = || format!("file {}", file.display());
    let source = File::open(&file).with_context(named)?;
    let rails = Rails::start(&ips, port)?;
    let target = Nid::from_ip(Net::TCP, peer);
    let found = rails.node.discover(target).blocking()?;
    link::report(&ChildReport::Discovered {
        primary: found.primary.to_string(),
        nids: found.nids.iter().map(ToString::to_string).collect(),
    });

    let chunk = protocol::chunk_size(size);
    let chunks = size.div_ceil(u64::from(chunk));
    let target = ProcessId::lustre(found.primary);
    rails
        .node
        .put(target, BEGIN, BITS, protocol::begin(size, chunk))
        .ack()
        .blocking()
        .map_err(|e| anyhow!("the receiver did not take the announcement: {}", e.error))?;
    let now = Instant::now();
    let transfer = Transfer {
        rails: &rails,
        file: &source,
        target,
        size,
        chunk,
        chunks,
        pace: Duration::from_secs(u64::from(seconds))
            / u32::try_from(chunks.max(1)).unwrap_or(u32::MAX),
        started: now,
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        repeated: AtomicU64::new(0),
        acks: Mutex::new(Acks { on_the_way: 0, last: now, longest: Duration::ZERO }),
        failed: AtomicBool::new(false),
        free: (chunks * free).div_ceil(100),
        healing: AtomicBool::new(true),
    };
    let running = AtomicBool::new(true);
    let (sha256, outcome, orders) = thread::scope(|scope| {
        let hash = scope.spawn(|| hash_file(&source).with_context(named));
        let workers: Vec<_> = (0..WINDOW).map(|_| scope.spawn(|| transfer.work())).collect();
        let (transfer, running, rails) = (&transfer, &running, &rails);
        let orders = scope.spawn(move || {
            let mut healing: Option<Healing> = None;
            while running.load(Ordering::Relaxed) {
                while let Ok(order) = orders.try_recv() {
                    if let Err(e) = obey(rails, &order) {
                        link::report(&ChildReport::Failed { why: format!("{e:#}") });
                    }
                    if let (Order::Restore { rail }, Ok((view, _))) = (&order, rails.view()) {
                        let before = view.iter().map(|r| r.bytes).collect();
                        let now = Instant::now();
                        healing = Some(Healing { rail: *rail, since: now, looked: now, before });
                    }
                }
                if let Ok((view, _)) = rails.view() {
                    if let Some(over) = healing.as_mut().and_then(|h| h.is_over(&view))
                        && let Some(healing) = healing.take()
                    {
                        transfer.healing.store(false, Ordering::Relaxed);
                        let after_ms = healing.since.elapsed().as_millis() as u64;
                        if over {
                            link::report(&ChildReport::Healed { after_ms });
                        }
                    }
                    let done = transfer.done.load(Ordering::Relaxed);
                    link::report(&ChildReport::Progress { done, rails: view });
                }
                thread::sleep(NEWS_EVERY);
            }
            orders
        });
        let mut outcome = Ok(());
        for w in workers {
            let one = w.join().unwrap_or_else(|_| Err(anyhow!("a sending thread died")));
            outcome = outcome.and(one);
        }
        let hash = hash.join().unwrap_or_else(|_| Err(anyhow!("the hashing thread died")));
        running.store(false, Ordering::Relaxed);
        (hash, outcome, orders.join())
    });
    outcome?;
    let sha256 = sha256?;
    let millis = transfer.started.elapsed().as_millis() as u64;
    rails
        .node
        .put(target, END, BITS, sha256.as_bytes())
        .ack()
        .blocking()
        .map_err(|e| anyhow!("the receiver did not take the end: {}", e.error))?;
    // Recovery pings bring a rail that is back to full health within a few seconds.
    let settled = Instant::now();
    let (view, resent) = loop {
        let (view, resent) = rails.view()?;
        if view.iter().all(|r| r.health == 1000) || settled.elapsed() > Duration::from_secs(5) {
            break (view, resent);
        }
        thread::sleep(NEWS_EVERY);
    };
    let stall = transfer.acks().longest;
    link::report(&ChildReport::Sent(SendReport {
        sha256,
        resent,
        repeated: transfer.repeated.load(Ordering::Relaxed),
        stall_ms: stall.as_millis() as u64,
        millis,
        rails: view,
    }));
    // The conductor ends us when it has both reports.
    let orders = orders.map_err(|_| anyhow!("the obeying thread died"))?;
    while orders.recv().is_ok() {}
    Ok(true)
}

pub(crate) fn obey(rails: &Rails, order: &Order) -> anyhow::Result<()> {
    match order {
        Order::Cut { rail } => rails.cut(*rail, true),
        Order::Restore { rail } => rails.cut(*rail, false),
        Order::Send { .. } | Order::Receive { .. } => bail!("unexpected order {order:?}"),
    }
}

fn hash_file(file: &File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let n = file.read_at(&mut block, at)?;
        if n == 0 {
            return Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect());
        }
        hash.update(&block[..n]);
        at += n as u64;
    }
}

impl Transfer<'_> {
    /// Sends chunks until there are none left.
    fn work(&self) -> anyhow::Result<()> {
        let mut buffer = Buffer::zeroed(self.chunk as usize);
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= self.chunks || self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let due = self.started + self.pace * u32::try_from(n).unwrap_or(u32::MAX);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            self.hold(n);
            buffer = self.send(n, buffer).inspect_err(|_| {
                self.failed.store(true, Ordering::Relaxed);
            })?;
        }
    }

    /// Spreads what is left of the file over the time that a rail needs to heal: each worker waits, and
    /// longer the less is left.
    fn hold(&self, n: u64) {
        if n < self.free {
            return;
        }
        let begun = Instant::now();
        let left = self.chunks.saturating_sub(n).max(1);
        let share = HEALING_MAX / u32::try_from(left).unwrap_or(u32::MAX) * WINDOW as u32;
        let pace = HEALING_PACE.max(share);
        while self.healing.load(Ordering::Relaxed) && begun.elapsed() < pace {
            thread::sleep(HEALING_PACE);
        }
    }

    /// Sends one chunk until the receiver has it.
    fn send(&self, n: u64, mut buffer: Buffer) -> anyhow::Result<Buffer> {
        let at = n * u64::from(self.chunk);
        let len = (self.size - at).min(u64::from(self.chunk)) as usize;
        self.file.read_exact_at(&mut buffer[..len], at).with_context(|| {
            format!("reading {len} bytes at {at}: the file has changed or is unreadable")
        })?;
        self.acks().sends(Instant::now());
        for _ in 0..TRIES_MAX {
            let put = self
                .rails
                .node
                .put(self.target, CHUNK, BITS, buffer)
                .range(0..len)
                .hdr_data(n)
                .ack()
                .timeout(ACK_TIMEOUT);
            let error = match put.blocking() {
                Ok(moved) => {
                    self.acknowledged(len);
                    return Ok(moved.buffer);
                }
                Err(failed) => {
                    buffer = failed.buffer.ok_or_else(|| anyhow!("{}", failed.error))?;
                    failed.error
                }
            };
            // Only the receiver has a record of whether it arrived.
            match self.has_chunk(n) {
                Ok(true) => {
                    self.acknowledged(len);
                    return Ok(buffer);
                }
                Ok(false) => {
                    self.repeated.fetch_add(1, Ordering::Relaxed);
                }
                Err(why) => {
                    // Not even the question got through; wait a moment, ask again.
                    if let Some(far) = why.downcast_ref::<FarEnd>() {
                        bail!("far end: {}", far.0);
                    }
                    thread::sleep(NEWS_EVERY);
                    if matches!(self.has_chunk(n), Ok(true)) {
                        self.acknowledged(len);
                        return Ok(buffer);
                    }
                }
            }
            tracing::debug!(chunk = n, %error, "sent again");
        }
        bail!("chunk {n} of {}: given up after {TRIES_MAX} tries", self.chunks)
    }

    fn acknowledged(&self, len: usize) {
        self.done.fetch_add(len as u64, Ordering::Relaxed);
        self.acks().acknowledged(Instant::now());
    }

    fn acks(&self) -> MutexGuard<'_, Acks> {
        self.acks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the receiver whether it has chunk `n`.
    fn has_chunk(&self, n: u64) -> anyhow::Result<bool> {
        let head = self.fetch(0, STATE_HEAD)?;
        if let Some(error) = protocol::state_error(&head) {
            return Err(FarEnd(error).into());
        }
        let byte = u32::try_from(n / 8).context("file too large")?;
        let bits = self.fetch(STATE_HEAD as u32 + byte, 1)?;
        Ok(bits.first().is_some_and(|b| b & (1 << (n % 8)) != 0))
    }

    fn fetch(&self, offset: u32, len: usize) -> anyhow::Result<Buffer> {
        let get = self.rails.node.get(self.target, STATE, BITS, Buffer::zeroed(len));
        let got = get.offset(offset).timeout(ACK_TIMEOUT).blocking();
        got.map(|m| m.buffer).map_err(|e| anyhow!("{}", e.error))
    }
}

/// An error that the receiver reports.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct FarEnd(String);
