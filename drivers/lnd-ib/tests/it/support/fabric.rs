//! Hosts with emulated adapters (`lnd_ib::emulated`), and what carries packets between them: in order,
//! unless they are lost.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;
use lnd_ib::emulated::{self, Outgoing, Packet};
use lnd_ib::{CmEvent, ConnId};
use lnet_types::{Instant, Prng, RxId};
use lnet_wire::Hdr;
use lnet_wire::ib::{Msg, Type};

use super::host::Host;

/// What is wrong with the fabric; each "one in n", never if 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) cm_loss: u64,
    pub(crate) completion_loss: u64,
    pub(crate) qp_error: u64,
    pub(crate) map_failure: u64,
    /// A deferred message is decided late.
    pub(crate) defer_long: bool,
    /// Types of messages that vanish on their way, although they complete.
    pub(crate) swallowed: Option<Type>,
    /// Maps have up to this many fragments; 1 if 0.
    pub(crate) fragments: u64,
    /// No completion comes at all.
    pub(crate) no_completions: bool,
}

#[derive(Debug)]
enum Happening {
    Packet(Packet),
    Decide(RxId, Hdr),
}

/// A message that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) from: usize,
    pub(crate) kind: Type,
    pub(crate) msg: Msg,
    pub(crate) written: u64,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Host>,
    pub(crate) faults: Faults,
    pub(crate) trace: Vec<Arrived>,
    pub(crate) violations: Vec<String>,
    /// Pairs of hosts between which nothing passes.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// Hosts that no driver listens on.
    pub(crate) absent: BTreeSet<usize>,
    queue: BTreeMap<(Instant, u64), (usize, Happening)>,
    /// When the last packet between two hosts arrives.
    last: BTreeMap<(usize, usize), Instant>,
    count: u64,
    pub(crate) prng: Prng,
}

const LATENCY: u64 = 20_000;

impl World {
    pub(crate) fn new(seed: u64, hosts: Vec<Host>) -> Self {
        Self {
            now: Instant::from_secs(1),
            hosts,
            faults: Faults::default(),
            trace: Vec::new(),
            violations: Vec::new(),
            cut: BTreeSet::new(),
            absent: BTreeSet::new(),
            queue: BTreeMap::new(),
            last: BTreeMap::new(),
            count: 0,
            prng: Prng::new(seed),
        }
    }

    fn at(&mut self, at: Instant, host: usize, what: Happening) {
        self.count += 1;
        self.queue.insert((at, self.count), (host, what));
    }

    /// Gives adapters what is wrong with them now.
    fn set_faults(&mut self) {
        let faults = self.faults;
        for (n, host) in self.hosts.iter_mut().enumerate() {
            host.port.adapter.listens = !self.absent.contains(&n);
            host.port.adapter.faults = emulated::Faults {
                completion_loss: if faults.no_completions { 1 } else { faults.completion_loss },
                qp_error: faults.qp_error,
                map_failure: faults.map_failure,
                fragments: faults.fragments,
                swallowed: faults.swallowed,
                withholds_credits: false,
            };
        }
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, span: Duration) {
        self.set_faults();
        let end = self.now + span;
        let due = |h: &Host| {
            let node = h.node.as_ref().and_then(|(node, _)| node.poll_timeout());
            [node, h.port.ib.poll_timeout(), h.port.adapter.poll_timeout()]
                .into_iter()
                .flatten()
                .min()
        };
        loop {
            let next = self.queue.first_key_value().map(|((at, _), _)| *at);
            let timer = self.hosts.iter().filter_map(due).min();
            let Some(at) = next.into_iter().chain(timer).min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            if next.is_some_and(|n| n <= at) {
                let ((_, _), (host, what)) = self.queue.pop_first().expect("one is there");
                self.happen(host, what);
                continue;
            }
            for host in 0..self.hosts.len() {
                if due(&self.hosts[host]).is_some_and(|t| t <= self.now) {
                    let now = self.now;
                    let h = &mut self.hosts[host];
                    h.port.adapter.handle_timeout(now, &h.mem);
                    h.port.ib.handle_timeout(now);
                    if let Some((node, _)) = &mut h.node {
                        node.handle_timeout(now);
                    }
                    self.drain(host);
                }
            }
        }
        self.now = end;
    }

    fn happen(&mut self, host: usize, what: Happening) {
        let now = self.now;
        match what {
            Happening::Packet(packet) => self.arrive(host, packet),
            Happening::Decide(rx, hdr) => self.hosts[host].decide(now, rx, hdr),
        }
        self.drain(host);
    }

    fn arrive(&mut self, host: usize, packet: Packet) {
        let from = self.hosts.iter().position(|h| h.nid == packet.from).expect("a host");
        let h = &mut self.hosts[host];
        let arrival = h.port.adapter.arrive(self.now, packet, &mut h.mem);
        let late = arrival.written.iter().filter(|span| h.mem.is_over(**span));
        let late = late.map(|span| format!("host {host}: {span:?} is written after its end"));
        self.violations.extend(late);
        if let Some(message) = arrival.message {
            let (msg, nob) = Msg::parse(&message).expect("what is sent is a message");
            assert_eq!(nob, message.len(), "{msg}");
            self.trace.push(Arrived { from, kind: msg.body.kind(), msg, written: arrival.bytes });
        }
    }

    /// A test's own event of the connection manager.
    pub(crate) fn inject(&mut self, host: usize, conn: ConnId, event: CmEvent<'static>) {
        self.hosts[host].port.adapter.inject(conn, event);
        self.drain(host);
    }

    /// The connections of a host that its adapter knows.
    pub(crate) fn conns(&self, host: usize) -> Vec<ConnId> {
        self.hosts[host].port.adapter.conns().collect()
    }

    /// A queue pair fails: all that is posted comes back.
    pub(crate) fn break_qp(&mut self, (host, conn): (usize, ConnId)) {
        self.hosts[host].port.adapter.break_qp(conn);
        self.drain(host);
    }

    /// Carries out what a host wants, until it wants nothing more.
    pub(crate) fn drain(&mut self, host: usize) {
        self.set_faults();
        let h = &mut self.hosts[host];
        h.turn(self.now);
        if let Err(why) = h.port.ib.check() {
            self.violations.push(format!("host {host}: {why}"));
        }
        self.violations.append(&mut h.port.adapter.violations);
        let packets = h.port.adapter.take_packets();
        let deferred = core::mem::take(&mut h.deferred);
        for Outgoing { packet, .. } in packets {
            self.carry(host, packet);
        }
        for (rx, hdr) in deferred {
            let spread = if self.faults.defer_long { 60_000_000_000 } else { 1_000_000 };
            let at = self.now + Duration::from_nanos(self.prng.below(spread));
            self.at(at, host, Happening::Decide(rx, hdr));
        }
    }

    fn carry(&mut self, from: usize, packet: Packet) {
        let Some(to) = self.hosts.iter().position(|h| h.nid == packet.to) else { return };
        let lost = packet.is_managing() && self.prng.one_in(self.faults.cm_loss);
        if lost || self.cut.contains(&(from.min(to), from.max(to))) {
            return;
        }
        let later = self.now + Duration::from_nanos(1000 + self.prng.below(LATENCY));
        let last = self.last.entry((from, to)).or_default();
        let at = later.max(*last);
        *last = at;
        self.at(at, to, Happening::Packet(packet));
    }

    pub(crate) fn put(&mut self, from: usize, to: usize, number: u64, len: u32) {
        let nid = self.hosts[to].nid;
        if let Err(fault) = self.hosts[from].put(self.now, nid, number, len) {
            self.hosts[from].ended.push((number, Err(fault)));
        }
        self.drain(from);
    }

    pub(crate) fn get(&mut self, from: usize, to: usize, number: u64, len: u32) {
        let nid = self.hosts[to].nid;
        if let Err(fault) = self.hosts[from].get(self.now, nid, number, len) {
            self.hosts[from].ended.push((number, Err(fault)));
        }
        self.drain(from);
    }

    /// The types of the messages that arrived, with the bytes that were written ahead of them.
    pub(crate) fn kinds(&self) -> Vec<(usize, &'static str, u64)> {
        self.trace.iter().map(|a| (a.from, a.kind.name(), a.written)).collect()
    }

    /// No rule was broken.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.violations, [""; 0]);
        for host in &self.hosts {
            assert_eq!(host.wrong, [""; 0], "{}", host.nid);
        }
    }

    /// Nothing is going on, so all credits are somewhere: held by one side or owed by the other.
    pub(crate) fn assert_balance(&self) {
        for host in &self.hosts {
            for conn in host.port.adapter.conns() {
                let Some((nid, number)) = host.port.adapter.other_end(conn) else { continue };
                let other = self.hosts.iter().find(|h| h.nid == nid).expect("a host");
                let Some(far) = other.port.adapter.conn_of(number) else { continue };
                let find = |of: &Host, peer, id: ConnId| {
                    let all = of.port.ib.credits(peer);
                    all.into_iter().find(|(conn, _)| *conn == id).map(|(_, c)| c.clone())
                };
                let (Some(mine), Some(yours)) = (find(host, nid, conn), find(other, host.nid, far))
                else {
                    continue;
                };
                let who = format!("{} to {nid}: {mine:?} {yours:?}", host.nid);
                assert_eq!(mine.held() + yours.owed(), mine.depth(), "{who}");
                assert_eq!(mine.reserved(), mine.depth(), "{who}");
            }
        }
    }

    /// A host is gone without a word, and another one has its place.
    pub(crate) fn restart(&mut self, host: usize, fresh: Host) {
        self.queue.retain(|_, (h, _)| *h != host);
        self.hosts[host] = fresh;
    }
}
