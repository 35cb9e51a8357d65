//! Two stacks in one thread, turned in turns, with loopback TCP between them: what a message costs in
//! the node, the driver and the turn, without a second processor, a wake-up or another process. And two
//! stacks on threads: what the threads cost each other.
//!
//! `cargo bench -p lnet-rt --bench pair -- MODE [BATCHES [RECORD]]`, where MODE is `put`, `ack` or
//! `get` (256 operations of 8 bytes under way), `handle` (256 PUTs that are begun and awaited through a
//! handle, as other threads do it), `latency` (one) or `idle` (turns of both that find nothing), and RECORD
//! how many calls the nodes' flight recorders keep (0: they are off). Prints nanoseconds per operation,
//! for both sides together. `driven` and `threads` are PUTs to a stack on a thread of its own, by a stack
//! that the caller turns, or by one on a third thread. Instructions, which do not depend on what else the
//! machine does:
//! `valgrind --tool=callgrind target/release/deps/pair-… put 10`.
#![allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]

use core::future::{Future as _, IntoFuture as _};
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::VecDeque;
use std::env;
use std::time::Instant;

use lnet::{EventKind, Get, MatchEntry, MdOptions, MdSpec, NetTunables, Put};
use lnet_rt::{Buffer, NodeBuilder, OpFuture, SockConfig, Spin, Stack, TcpNi, Wait, block_on};
use lnet_types::{MdId, Net, Nid, ProcessId};

const PORT: u16 = 7989;
const PORTAL: u32 = 5;
const BITS: u64 = 7;
const WINDOW: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Put,
    Ack,
    Get,
    Handle,
    Latency,
    Idle,
    Driven,
    Threads,
}

/// One side: its stack, and a descriptor for each operation under way.
struct Side {
    stack: Stack,
    peer: ProcessId,
    mds: Vec<MdId>,
    /// A buffer for each operation through a handle.
    buffers: Vec<Buffer>,
}

impl Side {
    fn new(n: u8, peer: u8) -> Self {
        let nid = |n: u8| Nid::from_ip(Net::TCP, [127, 73, 0, n].into());
        let mut stack = NodeBuilder::new().seed(n.into()).build().unwrap();
        stack.enable_tcp(SockConfig::on_port(PORT)).unwrap();
        let tunables = NetTunables { peer_credits: 1024, credits: 4096, ..NetTunables::SOCK };
        let ni = TcpNi { tunables, conns_per_peer: Some(1), ..TcpNi::new(nid(n)) };
        stack.add_tcp_ni(ni).unwrap();
        let shelf = stack.lend(Buffer::zeroed(4096)).map_err(|e| e.error).unwrap();
        let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
        let spec = MdSpec { options, ..MdSpec::new(stack.region(shelf), 0) };
        stack.attach(PORTAL, MatchEntry::bits(BITS), spec).unwrap();
        let data = stack.lend(Buffer::zeroed(8)).map_err(|e| e.error).unwrap();
        let mds = (0..WINDOW)
            .map(|i| stack.bind(MdSpec::new(stack.region(data), i as u64)).unwrap())
            .collect();
        let buffers = (0..WINDOW).map(|_| Buffer::zeroed(8)).collect();
        Self { stack, peer: ProcessId::lustre(nid(peer)), mds, buffers }
    }

    fn begin(&mut self, mode: Mode, md: MdId) {
        let (target, portal, match_bits) = (self.peer, PORTAL, BITS);
        let (src, offset, timeout) = (None, 0, None);
        let asked = match mode {
            Mode::Get => {
                self.stack.get(Get { md, src, target, portal, match_bits, offset, timeout })
            }
            _ => self.stack.put(Put {
                md,
                ack: mode == Mode::Ack,
                src,
                target,
                portal,
                match_bits,
                offset,
                hdr_data: 0,
                timeout,
            }),
        };
        asked.unwrap();
    }

    /// A turn; counts the events of these kinds.
    fn turn(&mut self, kinds: &[EventKind]) -> usize {
        self.stack.turn(Wait::Spin);
        let mut n = 0;
        while let Some(event) = self.stack.poll_event() {
            event.status.unwrap();
            n += usize::from(kinds.contains(&event.kind));
        }
        n
    }
}

/// So many operations from `one`, to their end on both sides.
#[inline(never)]
fn round(one: &mut Side, other: &mut Side, mode: Mode, n: usize) {
    for i in 0..n {
        let md = one.mds[i];
        one.begin(mode, md);
    }
    let answered = matches!(mode, Mode::Ack | Mode::Get);
    let (mut here, mut there) = (0, 0);
    while here < n * if answered { 2 } else { 1 } || there < n {
        here += one.turn(&[EventKind::Send, EventKind::Ack, EventKind::Reply]);
        there += other.turn(&[EventKind::Put, EventKind::Get]);
    }
}

/// The same through a handle.
#[inline(never)]
fn handle_round(one: &mut Side, other: &mut Side, n: usize) {
    let (handle, peer) = (one.stack.handle(), one.peer);
    let begin = |buffer| handle.put(peer, PORTAL, BITS, buffer).into_future();
    let begun: Vec<_> = one.buffers.drain(..n).map(begin).collect();
    let mut there = 0;
    while one.stack.in_use().0 > 0 || there < n {
        one.turn(&[]);
        there += other.turn(&[EventKind::Put]);
    }
    for future in begun {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => one.buffers.push(outcome.unwrap().buffer),
            Poll::Pending => panic!("a PUT that has no outcome"),
        }
    }
}

/// Batches of 100,000 PUTs, 256 of them under way, to a stack on a thread of its own.
fn on_threads(mut one: Side, other: Side, mode: Mode, batches: usize) {
    const BATCH: usize = 100_000;
    let server = other.stack.spawn("server", Spin::default()).unwrap();
    let mut took = Vec::new();
    if mode == Mode::Driven {
        for _ in 0..batches {
            let (begin, mut begun, mut done) = (Instant::now(), 0, 0);
            let mut free = one.mds.clone();
            while done < BATCH {
                while begun < BATCH
                    && let Some(md) = free.pop()
                {
                    one.begin(Mode::Put, md);
                    begun += 1;
                }
                one.stack.turn(Wait::Spin);
                while let Some(event) = one.stack.poll_event() {
                    event.status.unwrap();
                    free.push(event.md);
                    done += 1;
                }
            }
            took.push(begin.elapsed().as_nanos() as f64 / BATCH as f64);
        }
    } else {
        let Side { stack, peer, mut buffers, .. } = one;
        let node = stack.spawn("client", Spin::default()).unwrap();
        let mut under_way: VecDeque<OpFuture> = VecDeque::new();
        for _ in 0..batches {
            let begin = Instant::now();
            for _ in 0..BATCH {
                let buffer = buffers.pop().unwrap_or_else(|| {
                    let oldest = under_way.pop_front().unwrap();
                    block_on(oldest).unwrap().buffer
                });
                under_way.push_back(node.put(peer, PORTAL, BITS, buffer).into_future());
            }
            took.push(begin.elapsed().as_nanos() as f64 / BATCH as f64);
        }
        under_way.into_iter().for_each(|last| drop(block_on(last).unwrap()));
    }
    report(&mut took, batches);
    server.stop(Duration::ZERO).blocking();
}

fn main() {
    // Cargo adds an option of its own.
    let args: Vec<String> = env::args().skip(1).filter(|a| a != "--bench").collect();
    let mode = match args.first().map_or("put", String::as_str) {
        "put" => Mode::Put,
        "ack" => Mode::Ack,
        "get" => Mode::Get,
        "handle" => Mode::Handle,
        "latency" => Mode::Latency,
        "idle" => Mode::Idle,
        "driven" => Mode::Driven,
        "threads" => Mode::Threads,
        other => panic!("mode `{other}`: see the head of the source"),
    };
    let batches = args.get(1).map_or(30, |n| n.parse().unwrap());
    let record: usize = args.get(2).map_or(0, |n| n.parse().unwrap());
    let (mut a, mut b) = (Side::new(1, 2), Side::new(2, 1));
    for side in [&mut a, &mut b] {
        side.stack.node_mut().record(record);
    }
    // Connections and discovery, both ways.
    for _ in 0..200 {
        round(&mut a, &mut b, mode, 1);
        round(&mut b, &mut a, mode, 1);
    }
    if matches!(mode, Mode::Driven | Mode::Threads) {
        return on_threads(a, b, mode, batches);
    }
    let (window, rounds) = if mode == Mode::Latency { (1, 1000) } else { (WINDOW, 10) };
    let mut took: Vec<f64> = (0..batches)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..rounds / 2 {
                match mode {
                    Mode::Put | Mode::Ack | Mode::Get | Mode::Latency => {
                        round(&mut a, &mut b, mode, window);
                        round(&mut b, &mut a, mode, window);
                    }
                    Mode::Handle => {
                        handle_round(&mut a, &mut b, window);
                        handle_round(&mut b, &mut a, window);
                    }
                    Mode::Idle | Mode::Driven | Mode::Threads => (0..window).for_each(|_| {
                        a.turn(&[]);
                        b.turn(&[]);
                    }),
                }
            }
            begin.elapsed().as_nanos() as f64 / (rounds * window) as f64
        })
        .collect();
    report(&mut took, batches);
}

fn report(took: &mut [f64], batches: usize) {
    took.sort_by(f64::total_cmp);
    let (Some(min), Some(median)) = (took.first(), took.get(took.len() / 2)) else { return };
    println!("{min:.0} ns at least, {median:.0} ns in the median of {batches} batches");
}
