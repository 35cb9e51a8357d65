//! So many imports of one request layer that are connected to a target of another, on one node with its
//! loopback driver, in virtual time; and the bytes that each side has allocated. A program or test that
//! uses it makes [`Counting`] its allocator.
#![allow(clippy::unwrap_used, reason = "what measures ends where it fails")]

use core::time::Duration;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use lnet::upper::{Arena, Below, Upper, UpperId, Uppers};
use lnet::{Driver, Event as LnetEvent, Loopback, Node, NodeConfig, Output, Report};
use lnet_types::{Errno, Instant, Memory, Nid, RegionId, Span};
use lustre_wire::{ConnectData, ConnectFlags, ConnectFlags2, ImportKind};
use ptlrpc::{Config, ImportConfig, Ptlrpc, ServiceConfig, TargetConfig};

const TARGET: &str = "idle-OST0000_UUID";
/// Connects that are under way at a time.
const AT_A_TIME: usize = 64;
/// An idle import pings once in this time.
const INTERVAL: Duration = Duration::from_secs(25);

/// Whose memory is counted.
#[derive(Clone, Copy)]
enum Side {
    Node,
    Client,
    Server,
}

thread_local! {
    static SIDE: Cell<Side> = const { Cell::new(Side::Node) };
    static BYTES: Cell<[i64; 3]> = const { Cell::new([0; 3]) };
}

fn count(side: u8, bytes: i64) {
    let mut all = BYTES.get();
    if let Some(of) = all.get_mut(usize::from(side)) {
        *of += bytes;
    }
    BYTES.set(all);
}

/// Runs a step of one side.
fn on<R>(side: Side, f: impl FnOnce() -> R) -> R {
    let before = SIDE.replace(side);
    let result = f();
    SIDE.set(before);
    result
}

/// The system's allocator, with the bytes in use by side. The side that a block was allocated for stands
/// before the block: the node frees what it holds for a side in a step of its own.
pub(crate) struct Counting;

/// The block with its head, and the length of the head.
fn whole(layout: Layout) -> Option<(Layout, usize)> {
    let head = layout.align().max(16);
    let whole = Layout::from_size_align(layout.size().checked_add(head)?, head).ok()?;
    Some((whole, head))
}

// SAFETY: a block is one of the system's allocator behind a head as long as its alignment, so that it is
// aligned, and is freed with the same layout. The counters are plain cells of the thread, without
// destructors, and allocate nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((whole, head)) = whole(layout) else { return core::ptr::null_mut() };
        // SAFETY: its size is not zero: the head is longer.
        let base = unsafe { System.alloc(whole) };
        if base.is_null() {
            return base;
        }
        let side = SIDE.get() as u8;
        count(side, layout.size() as i64);
        // SAFETY: the head is within the block.
        unsafe {
            base.write(side);
            base.add(head)
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let Some((whole, head)) = whole(layout) else { return };
        // SAFETY: it was allocated here, with this layout: its head lies before it.
        unsafe {
            let base = at.sub(head);
            count(base.read(), -(layout.size() as i64));
            System.dealloc(base, whole);
        }
    }
}

#[derive(Default)]
struct Heap(Vec<Vec<u8>>);

impl Memory for Heap {
    fn bytes(&self, span: Span) -> &[u8] {
        &self.0[span.region.0 as usize][span.offset as usize..][..span.len as usize]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.0[span.region.0 as usize][span.offset as usize..][..span.len as usize]
    }
}

impl Arena for Heap {
    fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        on(Side::Node, || self.0.push(vec![0; len as usize]));
        Ok(RegionId(self.0.len() as u32 - 1))
    }

    fn unregister(&mut self, region: RegionId) {
        on(Side::Node, || self.0[region.0 as usize] = Vec::new());
    }

    fn contains(&self, _: &[Span]) -> bool {
        true
    }

    fn hold(&mut self, _: &[Span]) {}

    fn release(&mut self, _: &[Span]) {}
}

struct Party {
    ptlrpc: Ptlrpc,
    side: Side,
}

impl Party {
    fn step(&mut self, f: impl FnOnce(&mut Ptlrpc)) {
        on(self.side, || {
            f(&mut self.ptlrpc);
            while let Some(event) = self.ptlrpc.poll_event() {
                drop(event);
            }
        });
    }
}

impl Upper for Party {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.step(|ptlrpc| ptlrpc.event(event, below));
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, report: &Report, below: &mut Below<'_>) {
        self.step(|ptlrpc| ptlrpc.report(report, below));
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.step(|ptlrpc| ptlrpc.handle_timeout(below));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ptlrpc.poll_timeout()
    }
}

struct World {
    node: Node,
    lo: Loopback,
    heap: Heap,
    uppers: Uppers,
    now: Instant,
}

impl World {
    fn party<R>(&mut self, id: UpperId, f: impl FnOnce(&mut Party, &mut Below<'_>) -> R) -> R {
        let Self { node, heap, uppers, now, .. } = self;
        uppers.with(id, *now, node, heap, f).unwrap()
    }

    fn settle(&mut self) {
        let Self { node, lo, heap, uppers, now } = self;
        loop {
            let mut more = false;
            while let Some(mut event) = node.poll_event() {
                uppers.event(*now, &mut event, node, heap);
                more = true;
            }
            while let Some(output) = node.poll_output() {
                let Output::Send(transmit) = output else { continue };
                let msg = transmit.msg;
                if let Err(fault) = lo.send(*now, &transmit, heap) {
                    node.tx_refused(*now, msg, fault);
                }
                more = true;
            }
            lo.flush(*now, node, heap);
            if !more {
                return;
            }
        }
    }

    /// Lets time go by, from one deadline to the next.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let due = [self.node.poll_timeout(), self.uppers.poll_timeout()];
            let next = due.into_iter().flatten().min().filter(|next| *next <= end);
            self.now = next.unwrap_or(end).max(self.now);
            self.turn();
            if next.is_none() {
                return;
            }
        }
    }

    /// Lets a second go by, and looks at its end for what was due in it.
    fn step(&mut self) {
        self.now += Duration::from_secs(1);
        self.turn();
    }

    fn turn(&mut self) {
        self.node.handle_timeout(self.now);
        self.uppers.handle_timeout(self.now, &mut self.node, &mut self.heap);
        self.settle();
    }
}

fn data() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    }
}

/// What there is to be measured.
pub(crate) struct Idle {
    world: World,
    client: UpperId,
    server: UpperId,
    imports: usize,
    /// Bytes of both sides without any connection.
    before: [i64; 3],
}

impl Idle {
    /// Both sides, with so many connections.
    pub(crate) fn new(imports: usize) -> Self {
        let tunables = lnet::Tunables::default();
        let config = NodeConfig { seed: 1, interface_cookie: 1, ping_seq: 0, tunables };
        let now = Instant::from_secs(1000);
        let mut uppers = Uppers::default();
        let mut party = |seed, side| {
            let exports_per_node = ptlrpc::EXPORTS_MAX as u32;
            let tunables = ptlrpc::Tunables { exports_per_node, ..ptlrpc::Tunables::default() };
            let ptlrpc =
                Ptlrpc::new(Config { seed, wall: Duration::from_secs(1_700_000_000), tunables });
            uppers.add(Box::new(Party { ptlrpc, side })).unwrap()
        };
        let (client, server) = (party(1, Side::Client), party(2, Side::Server));
        let (node, heap) = (Node::new(config, now), Heap::default());
        let mut world = World { node, lo: Loopback::new(), heap, uppers, now };
        world.party(server, |party, below| {
            let (request, reply) = ImportKind::Osc.portals();
            let (uuid, past) = (TARGET.to_owned(), Default::default());
            let target = TargetConfig { uuid, offer: data(), replayable: false, past };
            party.step(|ptlrpc| {
                let mut rpc = ptlrpc.rpc(below);
                rpc.add_target(target).unwrap();
                rpc.serve(ServiceConfig::new("idle", request.0, reply.0, 8)).unwrap();
            });
        });
        let before = BYTES.get();
        let mut idle = Self { world, client, server, imports, before };
        idle.connect();
        idle
    }

    /// Clients have uuids of the length that Lustre's have. They come over a ping interval.
    fn connect(&mut self) {
        let Self { world, client, imports, .. } = self;
        for n in 0..*imports {
            world.party(*client, |party, below| {
                party.step(|ptlrpc| {
                    let mut rpc = ptlrpc.rpc(below);
                    let import = rpc.import(ImportConfig {
                        kind: ImportKind::Osc,
                        target: TARGET.to_owned(),
                        client: format!("{n:08x}-0000-4000-8000-000000000000"),
                        nids: vec![Nid::LOOPBACK],
                        wanted: data(),
                    });
                    rpc.connect(import.unwrap());
                });
            });
            if n % AT_A_TIME == AT_A_TIME - 1 {
                world.settle();
                world.pass(INTERVAL * AT_A_TIME as u32 / *imports as u32);
            }
        }
        world.settle();
        let exports = self.exports();
        assert_eq!(exports, self.imports, "every import has its export");
    }

    /// Clients that are connected.
    pub(crate) fn exports(&mut self) -> usize {
        self.world.party(self.server, |party, _| party.ptlrpc.export_count())
    }

    /// Lets time go by, from one deadline to the next.
    pub(crate) fn pass(&mut self, seconds: u64) {
        self.world.pass(Duration::from_secs(seconds));
    }

    /// Lets time go by, a second at a time.
    pub(crate) fn step(&mut self, seconds: u64) {
        (0..seconds).for_each(|_| self.world.step());
    }

    /// Bytes of an import, and of an export.
    pub(crate) fn bytes(&self) -> [i64; 2] {
        let [_, client, server] = BYTES.get();
        let [_, client_before, server_before] = self.before;
        [client - client_before, server - server_before].map(|bytes| bytes / self.imports as i64)
    }

    /// Requests that the client has sent.
    pub(crate) fn pings(&mut self) -> u64 {
        self.world.party(self.client, |party, _| party.ptlrpc.client_stats().sent)
    }

    /// Those that were not answered in time.
    pub(crate) fn failed(&mut self) -> u64 {
        self.world.party(self.client, |party, _| party.ptlrpc.client_stats().expired)
    }
}
