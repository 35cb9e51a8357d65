//! What the bytes of objects cost beside those of LNet: two stacks in one thread, turned in turns, with
//! loopback TCP between them, a client of objects on one and an object target in memory on the other.
//!
//! `cargo bench -p lustre-rt --bench object_pair -- [ROUNDS [WHAT…]]` moves 256 MiB by each of `put` and `get`
//! (LNet, 1 MiB each, four under way, in memory that stays in the cache, as `ulnet perf` does it), `put16`
//! and `get16` (the same in 16 MiB of memory on both sides), `write` and `read` (an object of 16 MiB, with
//! CRC-32C) and `plainwrite` and `plainread` (without), in turns, ROUNDS times (10 if not given). Prints the
//! processor time of a MiB on both sides together, its least and median, what the clock says, page faults of
//! a MiB, and each rate by that of `put` or `get`. For copies:
//! `valgrind --tool=dhat --mode=copy target/release/deps/object_pair-… 1 write`.
#![allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]

use core::time::Duration;
use std::time::Instant;
use std::{env, fs};

use ldlm::client::{CacheLimits, LockClient};
use lnet::upper::{Below, Upper, UpperId};
use lnet::{
    Event as LnetEvent, EventKind, Get, MatchEntry, MdOptions, MdSpec, NetTunables, Put, Report,
};
use lnet_rt::{NodeBuilder, RegionId, SockConfig, Stack, TcpNi, Wait};
use lnet_types::{Instant as Time, IoVec, MdId, Net, Nid, ProcessId, iovec_slice};
use lustre_client::osc::{Cx, OpId, Osc, OscConfig, OscError, OscEvent, wanted};
use lustre_rt::{
    ImportConfig, ImportKind, Kind, ObjectId, Ost, OstLimits, Past, Portal, Ptlrpc, ServiceConfig,
    TargetConfig,
};
use lustre_target::{Commit, MemoryStore, Targets, start};
use ptlrpc::{Config, Event, ImportId, Tunables};

const PORT: u16 = 7990;
const TARGET: &str = "pair-OST0000_UUID";
const MIB: usize = 1 << 20;
/// Bytes of an object.
const OBJECT: usize = 16 * MIB;
/// Bytes of a batch.
const BATCH: usize = 256 * MIB;
/// Operations of LNet under way.
const WINDOW: usize = 4;
/// Where operations of LNet go: memory of 1 MiB, and of [`OBJECT`].
const PORTAL: u32 = 60;
const SMALL: u64 = 1;
const LARGE: u64 = 2;

fn nid(n: u8) -> Nid {
    Nid::from_ip(Net::TCP, [127, 76, 0, n].into())
}

const fn object(n: usize) -> ObjectId {
    ObjectId::old(n as u64 + 1)
}

/// Both ends of objects.
struct Side {
    ptlrpc: Ptlrpc,
    locks: LockClient,
    targets: Targets,
    oscs: Vec<Osc>,
    /// Operations that have ended.
    ended: usize,
    bytes: u64,
}

impl Side {
    fn new(seed: u64) -> Self {
        let tunables = Tunables::default();
        let cache = CacheLimits::default();
        let locks = ldlm::client::Config { seed, tunables: tunables.clone(), cache };
        let wall = Duration::from_secs(1_700_000_000);
        Self {
            ptlrpc: Ptlrpc::new(Config { seed, wall, tunables }),
            locks: LockClient::new(locks),
            targets: Targets::default(),
            oscs: Vec::new(),
            ended: 0,
            bytes: 0,
        }
    }

    fn begin(
        &mut self,
        import: ImportId,
        below: &mut Below<'_>,
        f: impl FnOnce(&mut Osc, &mut Cx<'_, '_, '_>) -> Result<OpId, OscError>,
    ) {
        let Self { ptlrpc, locks, oscs, .. } = self;
        let rpc = &mut ptlrpc.rpc(below);
        let osc = oscs.iter_mut().find(|osc| osc.import() == import).unwrap();
        f(osc, &mut Cx { locks, rpc }).unwrap();
        self.drain(below);
    }

    fn event_of_call(&mut self, mut event: Event, below: &mut Below<'_>) {
        let Self { ptlrpc, locks, oscs, targets, .. } = self;
        let rpc = &mut ptlrpc.rpc(below);
        let Some(left) = locks.event(event, rpc) else { return };
        event = left;
        for osc in oscs {
            let Some(left) = osc.event(event, &mut Cx { locks, rpc }) else { return };
            event = left;
        }
        match targets.event(event, rpc) {
            Some(Event::Joining { export, .. }) => rpc.admit(export, Ok(())),
            Some(Event::Ended { result, .. }) => {
                result.unwrap();
                self.ended += 1;
            }
            _ => {}
        }
    }

    /// Whether the machines of objects have said something.
    fn drain_objects(&mut self, below: &mut Below<'_>) -> bool {
        let Self { ptlrpc, locks, oscs, ended, bytes, .. } = self;
        let rpc = &mut ptlrpc.rpc(below);
        let mut any = false;
        while let Some((import, event)) = locks.poll_event() {
            any = true;
            let osc = oscs.iter_mut().find(|osc| osc.import() == import).unwrap();
            osc.lock_event(event, &mut Cx { locks, rpc });
        }
        for osc in oscs {
            while let Some(event) = osc.poll_event() {
                any = true;
                match event {
                    OscEvent::Done { result, .. } => {
                        *bytes += result.unwrap();
                        *ended += 1;
                    }
                    OscEvent::Free(_) => {}
                    OscEvent::Sum { id, kind, memory } => {
                        let mut sum = kind.begin();
                        memory.iter().for_each(|span| sum.update(rpc.below().bytes(*span)));
                        osc.summed(id, sum.value(), &mut Cx { locks, rpc });
                    }
                }
            }
        }
        any
    }

    fn drain(&mut self, below: &mut Below<'_>) {
        loop {
            while let Some(event) = self.ptlrpc.poll_event() {
                self.event_of_call(event, below);
            }
            while self.drain_objects(below) {}
            assert!(self.targets.poll(&mut self.ptlrpc.rpc(below)).is_none(), "a store failed");
            if !self.ptlrpc.has_event() {
                return;
            }
        }
    }
}

impl Upper for Side {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.drain(below);
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        let Self { ptlrpc, locks, oscs, targets, .. } = self;
        let rpc = &mut ptlrpc.rpc(below);
        targets.handle_timeout(rpc);
        locks.handle_timeout(rpc);
        oscs.iter_mut().for_each(|osc| osc.handle_timeout(&mut Cx { locks, rpc }));
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let due = [self.ptlrpc.poll_timeout(), self.targets.poll_timeout()];
        let clients = self.oscs.iter().map(Osc::poll_timeout).chain([self.locks.poll_timeout()]);
        due.into_iter().chain(clients).flatten().min()
    }
}

/// One side: its stack, and memory of 1 MiB and of an object.
struct End {
    stack: Stack,
    upper: UpperId,
    small: RegionId,
    large: RegionId,
}

impl End {
    fn new(n: u8) -> Self {
        let mut stack = NodeBuilder::new().seed(n.into()).build().unwrap();
        stack.enable_tcp(SockConfig::on_port(PORT)).unwrap();
        let tunables = NetTunables { peer_credits: 1024, credits: 4096, ..NetTunables::SOCK };
        let ni = TcpNi { tunables, conns_per_peer: Some(1), ..TcpNi::new(nid(n)) };
        stack.add_tcp_ni(ni).unwrap();
        let upper = stack.add_upper(Box::new(Side::new(n.into()))).unwrap();
        let [small, large] = [MIB, OBJECT].map(|len| {
            let bytes: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
            stack.lend(bytes.into()).map_err(|e| e.error).unwrap()
        });
        let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
        for (bits, region) in [(SMALL, small), (LARGE, large)] {
            let spec = MdSpec { options, ..MdSpec::new(stack.region(region), 0) };
            stack.attach(PORTAL, MatchEntry::bits(bits), spec).unwrap();
        }
        Self { stack, upper, small, large }
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut Side, &mut Below<'_>) -> R) -> R {
        self.stack.with_upper(self.upper, f).unwrap()
    }
}

/// The server's target and services.
fn serve(side: &mut Side, below: &mut Below<'_>) {
    let mut rpc = side.ptlrpc.rpc(below);
    let kind = Ost::new(OstLimits::default());
    let offer = kind.offer();
    let mut store = MemoryStore::new(Commit::AtOnce, 1 << 32);
    let begun = start(&mut store, kind.name()).unwrap();
    let past = Past::default();
    let config = TargetConfig { uuid: TARGET.to_owned(), offer, replayable: true, past };
    side.targets.add(config, Box::new(kind), Box::new(store), begun, &mut rpc).unwrap();
    let portals = [
        (Portal::OST_REQUEST, Portal::OSC_REPLY),
        (Portal::OST_IO, Portal::OSC_REPLY),
        (Portal::OST_CREATE, Portal::OSC_REPLY),
        (Portal::LDLM_CANCEL, Portal::LDLM_CANCEL_REPLY),
    ];
    for (request, reply) in portals {
        rpc.serve(ServiceConfig::new("pair", request.0, reply.0, Portal::OST_BULK.0)).unwrap();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Put,
    Get,
    PutLarge,
    GetLarge,
    Write,
    Read,
    PlainWrite,
    PlainRead,
}

const ALL: [(What, &str); 8] = [
    (What::Put, "put"),
    (What::Get, "get"),
    (What::PutLarge, "put16"),
    (What::GetLarge, "get16"),
    (What::Write, "write"),
    (What::Read, "read"),
    (What::PlainWrite, "plainwrite"),
    (What::PlainRead, "plainread"),
];

struct Pair {
    client: End,
    server: End,
    /// Clients that sum data up, and that do not, each with an object of its own.
    imports: [ImportId; 2],
}

impl Pair {
    fn new() -> Self {
        let (mut client, mut server) = (End::new(1), End::new(2));
        server.with(serve);
        let plain = OscConfig { checksum: None, ..OscConfig::default() };
        let imports = [("sums", OscConfig::default()), ("plain", plain)].map(|(name, config)| {
            client.with(|side, below| {
                let mut rpc = side.ptlrpc.rpc(below);
                let config_of = ImportConfig {
                    kind: ImportKind::Osc,
                    target: TARGET.to_owned(),
                    client: name.to_owned(),
                    nids: vec![nid(2)],
                    wanted: wanted(),
                };
                let import = rpc.import(config_of).unwrap();
                side.locks.open(import, &mut rpc).unwrap();
                side.oscs.push(Osc::new(import, config));
                import
            })
        });
        let mut pair = Self { client, server, imports };
        pair.client.with(|side, below| {
            let call = lustre_target::ost::wire::create(object(1));
            side.ptlrpc.rpc(below).call(imports[0], call).unwrap();
            side.drain(below);
        });
        pair.until_ended(1);
        pair
    }

    fn turns(&mut self) {
        self.client.stack.turn(Wait::Spin);
        self.server.stack.turn(Wait::Spin);
    }

    /// Turns until so many operations have ended.
    fn until_ended(&mut self, n: usize) {
        while self.client.with(|side, _| side.ended) < n {
            self.turns();
        }
        self.client.with(|side, _| side.ended = 0);
    }

    /// Moves [`BATCH`] bytes.
    #[inline(never)]
    fn batch(&mut self, what: What) {
        match what {
            What::Put => self.lnet(SMALL, false),
            What::Get => self.lnet(SMALL, true),
            What::PutLarge => self.lnet(LARGE, false),
            What::GetLarge => self.lnet(LARGE, true),
            What::Write => self.write(0),
            What::Read => self.read(0),
            What::PlainWrite => self.write(1),
            What::PlainRead => self.read(1),
        }
    }

    fn write(&mut self, which: usize) {
        let (import, id) = (self.imports[which], object(which));
        let memory: IoVec = self.client.stack.region(self.client.large);
        for _ in 0..BATCH / OBJECT {
            let memory = memory.clone();
            self.client.with(|side, below| {
                side.begin(import, below, |osc, cx| osc.write(id, 0, memory, None, cx));
            });
            self.until_ended(1);
            self.client.with(|side, below| side.begin(import, below, |osc, cx| osc.fsync(id, cx)));
            self.until_ended(1);
        }
        self.moved();
    }

    fn read(&mut self, which: usize) {
        let (import, id) = (self.imports[which], object(which));
        let memory: IoVec = self.client.stack.region(self.client.large);
        for _ in 0..BATCH / OBJECT {
            let memory = memory.clone();
            self.client.with(|side, below| {
                side.begin(import, below, |osc, cx| osc.read(id, 0, memory, cx));
            });
            self.until_ended(1);
        }
        self.moved();
    }

    fn moved(&mut self) {
        let moved = self.client.with(|side, _| core::mem::take(&mut side.bytes));
        assert_eq!(moved, BATCH as u64);
    }

    fn lnet(&mut self, match_bits: u64, gets: bool) {
        let stack = &mut self.client.stack;
        let region = if match_bits == SMALL { self.client.small } else { self.client.large };
        let memory = stack.region(region);
        let parts = if match_bits == SMALL { 1 } else { OBJECT / MIB };
        let mut mds: Vec<(MdId, usize)> = (0..parts.max(WINDOW))
            .map(|i| {
                let at = i % parts;
                let part = iovec_slice(&memory, (at * MIB) as u64, MIB as u64);
                (stack.bind(MdSpec::new(part, i as u64)).unwrap(), at)
            })
            .collect();
        let (target, portal, src, timeout) = (ProcessId::lustre(nid(2)), PORTAL, None, None);
        let (mut begun, mut done, mut there) = (0, 0, 0);
        let n = BATCH / MIB;
        while done < n || there < n {
            while begun < n && begun < done + WINDOW {
                let (md, at) = mds[begun % mds.len()];
                let offset = (at * MIB) as u32;
                let stack = &mut self.client.stack;
                if gets {
                    let get = Get { md, src, target, portal, match_bits, offset, timeout };
                    stack.get(get).unwrap();
                } else {
                    let (ack, hdr_data) = (true, 0);
                    let put =
                        Put { md, ack, src, target, portal, match_bits, offset, hdr_data, timeout };
                    stack.put(put).unwrap();
                }
                begun += 1;
            }
            self.turns();
            while let Some(event) = self.client.stack.poll_event() {
                event.status.unwrap();
                done += usize::from(matches!(event.kind, EventKind::Ack | EventKind::Reply));
            }
            while let Some(event) = self.server.stack.poll_event() {
                there += usize::from(matches!(event.kind, EventKind::Put | EventKind::Get));
            }
        }
        for (md, _) in mds.drain(..) {
            self.client.stack.unlink(md).unwrap();
        }
        self.turns();
        while self.client.stack.poll_event().is_some() {}
    }
}

/// Processor time of this thread, ns, to a tick of the scheduler; page faults so far.
fn spent() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let took = stat.split_whitespace().next().unwrap().parse().unwrap();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let faults = stat.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap();
    (took, faults.parse().unwrap())
}

/// What the batches of one kind took, µs a MiB.
#[derive(Clone, Default)]
struct Took {
    processor: Vec<f64>,
    clock: Vec<f64>,
    faults: u64,
}

impl Took {
    fn add(&mut self, run: impl FnOnce()) {
        let mib = (BATCH / MIB) as f64;
        let (begin, (took, faults)) = (Instant::now(), spent());
        run();
        let after = spent();
        self.processor.push((after.0 - took) as f64 / 1000.0 / mib);
        self.clock.push(begin.elapsed().as_nanos() as f64 / 1000.0 / mib);
        self.faults += after.1 - faults;
    }
}

fn of(values: &[f64]) -> (f64, f64) {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    (values.first().copied().unwrap_or(f64::NAN), values[values.len() / 2])
}

fn main() {
    // Cargo adds an option of its own.
    let args: Vec<String> = env::args().skip(1).filter(|a| a != "--bench").collect();
    let rounds: usize = args.first().map_or(10, |n| n.parse().unwrap());
    let named = args.get(1..).unwrap_or_default();
    let wants = |name: &str| named.is_empty() || named.iter().any(|n| n == name);
    let kinds: Vec<_> = ALL.into_iter().filter(|(_, name)| wants(name)).collect();
    let mut pair = Pair::new();
    // Connections, discovery, locks; memory of all that is read; the store as large as it gets.
    pair.batch(What::Write);
    kinds.iter().for_each(|(what, _)| pair.batch(*what));
    let mut took = vec![Took::default(); kinds.len()];
    for _ in 0..rounds {
        for ((what, _), took) in kinds.iter().zip(&mut took) {
            took.add(|| pair.batch(*what));
        }
    }
    let base = |reads: bool| {
        let of_base = if reads { What::Get } else { What::Put };
        let place = kinds.iter().position(|(what, _)| *what == of_base)?;
        Some(of(&took[place].processor))
    };
    println!(
        "µs a MiB, both sides    least  median   clock   faults   of the rate (least, median)"
    );
    for ((what, name), took) in kinds.iter().zip(&took) {
        let ((least, median), (_, clock)) = (of(&took.processor), of(&took.clock));
        let faults = took.faults as f64 / (rounds * BATCH / MIB) as f64;
        let reads = matches!(what, What::Get | What::GetLarge | What::Read | What::PlainRead);
        let ratio = base(reads)
            .map_or(String::new(), |(b, m)| format!("{:.2}  {:.2}", b / least, m / median));
        println!("{name:<20} {least:>8.1} {median:>7.1} {clock:>7.1} {faults:>8.1}   {ratio}");
    }
}
