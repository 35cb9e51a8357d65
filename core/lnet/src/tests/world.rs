//! Nodes, and a wire between them, in virtual time: the bench on which the node's tests stand.
//!
//! A message that a node hands to its wire arrives `latency` later at the node that owns the NID,
//! unless the test has said otherwise: links fail with a given fault, hold messages back, or lose
//! them after they were reported as sent. Payload is really moved.

use std::collections::{BTreeMap, VecDeque};

use core::time::Duration;

use lnet_types::{
    Fault, Instant, IoVec, Memory, NiId, Nid, PeerNiId, Pid, ProcessId, RegionId, RxId, Span,
};
use lnet_wire::{Hdr, HdrForm};

use crate::{
    Driver, Event, EventKind, InDoubt, Loopback, MatchEntry, MdOptions, MdSpec, NetTunables,
    NiSpec, Node, NodeConfig, Output, Payload, Profile, Report, RouteSpec, RouterMemory, Rx, Sink,
    Transmit, Tunables, Verdict,
};

/// Plain vectors as registered memory.
#[derive(Debug, Default)]
pub(crate) struct Mem(pub(crate) Vec<Vec<u8>>);

impl Mem {
    pub(crate) fn add(&mut self, bytes: Vec<u8>) -> IoVec {
        let span =
            Span { region: RegionId(self.0.len() as u32), len: bytes.len() as u32, offset: 0 };
        self.0.push(bytes);
        IoVec::from_slice(&[span])
    }
}

impl Memory for Mem {
    fn bytes(&self, s: Span) -> &[u8] {
        &self.0[s.region.0 as usize][s.offset as usize..s.offset as usize + s.len as usize]
    }
    fn bytes_mut(&mut self, s: Span) -> &mut [u8] {
        &mut self.0[s.region.0 as usize][s.offset as usize..s.offset as usize + s.len as usize]
    }
}

impl RouterMemory for Mem {
    fn register(&mut self, len: u32) -> Result<RegionId, lnet_types::Errno> {
        self.0.push(vec![0; len as usize]);
        Ok(RegionId(self.0.len() as u32 - 1))
    }
}

/// One node under test.
pub(crate) struct Host {
    pub(crate) node: Node,
    pub(crate) mem: Mem,
    pub(crate) lo: Loopback,
    pub(crate) nids: BTreeMap<NiId, Nid>,
    pub(crate) events: Vec<Event>,
    pub(crate) reports: Vec<Report>,
    /// Everything that this node has handed to its wire, oldest first.
    pub(crate) sent: Vec<(Nid, Hdr)>,
    /// The next hops of those.
    pub(crate) hops: Vec<Nid>,
    /// Regions that this node has given back.
    pub(crate) released: Vec<RegionId>,
    pub(crate) alive: bool,
}

/// What a link does to a message, chosen by the test.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// Arrives, and is reported as sent.
    Pass,
    /// Is not sent: this fault is reported at once.
    Fail(Fault),
    /// The driver does not take it at all.
    Refuse(Fault),
    /// Is reported as sent and never arrives.
    Lose,
    /// Stays in the driver until released.
    Hold,
    /// This fault is reported at once, and so much later it arrives all the same.
    Doubt(Fault, Duration),
}

type Decide = Box<dyn FnMut(&Transmit) -> Fate>;

struct InFlight {
    at: Instant,
    seq: u64,
    from: usize,
    from_nid: Nid,
    t: Transmit,
    bytes: Vec<u8>,
    /// What became of it was reported before it arrived.
    reported: bool,
}

/// All nodes, the wire and the clock.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Host>,
    pub(crate) latency: Duration,
    pub(crate) decide: Decide,
    flying: Vec<InFlight>,
    pub(crate) held: VecDeque<(usize, Transmit)>,
    /// What was lost after it was written, and is retained by its driver.
    pub(crate) in_doubt: Vec<(usize, InDoubt)>,
    /// Messages that were to be retained by drivers.
    pub(crate) retained: Vec<(usize, Transmit)>,
    /// What is held has not been begun, so that it is given back when asked for.
    pub(crate) gives_back: bool,
    parked: BTreeMap<(usize, RxId), (Nid, Transmit, Vec<u8>)>,
    /// Who has sent to which interface, in order of the first message.
    lines: Vec<(Nid, Nid)>,
    /// What each host calls the interfaces that it has heard. As with drivers, out of date now and then.
    names: BTreeMap<(usize, Nid), Option<PeerNiId>>,
    seq: u64,
}

/// Connections of one line: a name of a message is its connection's.
const CONNECTIONS: u64 = 1 << 16;

pub(crate) fn nid(s: &str) -> Nid {
    s.parse().unwrap()
}

/// Portal, bits and options of the buffer that every host posts for tests.
pub(crate) const PT: u32 = 5;
pub(crate) const BITS: u64 = 0x10;

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: Instant::from_secs(10),
            hosts: Vec::new(),
            latency: Duration::from_millis(1),
            decide: Box::new(|_| Fate::Pass),
            flying: Vec::new(),
            held: VecDeque::new(),
            in_doubt: Vec::new(),
            retained: Vec::new(),
            gives_back: true,
            parked: BTreeMap::new(),
            lines: Vec::new(),
            names: BTreeMap::new(),
            seq: 0,
        }
    }

    /// A node with the given NIDs and a buffer for PUTs and GETs; returns its index.
    pub(crate) fn host(&mut self, profile: Profile, nids: &[&str]) -> usize {
        self.host_with(profile, nids, NetTunables::SOCK)
    }

    pub(crate) fn host_with(
        &mut self,
        profile: Profile,
        nids: &[&str],
        tunables: NetTunables,
    ) -> usize {
        let i = self.hosts.len();
        let mut own = Tunables::new(profile);
        if profile == Profile::Default {
            // Callers on this bench wait no longer than the node's own pings.
            own.transaction_timeout = own.ping_timeout;
        }
        let config = NodeConfig {
            seed: i as u64,
            interface_cookie: 0x1000 + i as u64,
            ping_seq: 0,
            tunables: own,
        };
        let mut h = Host {
            node: Node::new(config, self.now),
            mem: Mem::default(),
            lo: Loopback::new(),
            nids: BTreeMap::new(),
            events: Vec::new(),
            reports: Vec::new(),
            sent: Vec::new(),
            hops: Vec::new(),
            released: Vec::new(),
            alive: true,
        };
        let buf = h.mem.add(vec![0; 1 << 16]);
        let mut md = MdSpec::new(buf, 99);
        md.options =
            MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE;
        h.node.attach(self.now, PT, MatchEntry::bits(BITS), md).unwrap();
        self.hosts.push(h);
        for n in nids {
            self.add_ni(i, n, tunables);
        }
        i
    }

    pub(crate) fn add_ni(&mut self, host: usize, n: &str, tunables: NetTunables) -> NiId {
        let spec = NiSpec {
            nid: nid(n),
            interface: None,
            tunables,
            lnd_timeout: matches!(self.hosts[host].node.tunables().profile, Profile::Kernel)
                .then_some(Duration::from_secs(50)),
        };
        let id = self.hosts[host].node.add_ni(self.now, spec).unwrap();
        self.hosts[host].nids.insert(id, nid(n));
        self.drain();
        id
    }

    /// A node that forwards, with few and so easily exhausted buffers.
    pub(crate) fn router(&mut self, profile: Profile, nids: &[&str]) -> usize {
        let i = self.host(profile, nids);
        let few = [("tiny_buffers", 64), ("small_buffers", 64), ("large_buffers", 4)];
        self.hosts[i].node.set_tunables(self.now, &few).unwrap();
        let h = &mut self.hosts[i];
        h.node.enable_routing(self.now, &mut h.mem).unwrap();
        self.drain();
        i
    }

    /// The interface `n` of `host` loses its carrier, or gets it back.
    pub(crate) fn link(&mut self, host: usize, n: &str, link: crate::Link) {
        let h = &mut self.hosts[host];
        let (&ni, _) = h.nids.iter().find(|(_, x)| **x == nid(n)).unwrap();
        h.node.link_changed(self.now, ni, link);
        self.drain();
    }

    /// A route to `net` through `gateway`.
    pub(crate) fn route(&mut self, host: usize, net: &str, gateway: &str) {
        self.route_with(host, net, gateway, None, 0);
    }

    pub(crate) fn route_with(
        &mut self,
        host: usize,
        net: &str,
        gateway: &str,
        hops: Option<u32>,
        priority: u32,
    ) {
        let net = net.parse().unwrap();
        let spec = RouteSpec { net, gateway: nid(gateway), hops, priority };
        self.hosts[host].node.add_route(self.now, spec).unwrap();
        self.drain();
    }

    /// Whether the route of `host` to `net` through `gateway` is up.
    pub(crate) fn route_up(&self, host: usize, net: &str, gateway: &str) -> bool {
        let (net, gateway) = (net.parse().unwrap(), nid(gateway));
        let views = self.hosts[host].node.route_views();
        views.iter().find(|r| r.net == net && r.gateway == gateway).unwrap().up
    }

    /// Next hops of the messages on the test portal that `host` has sent.
    pub(crate) fn test_hops(&self, host: usize) -> Vec<Nid> {
        let h = &self.hosts[host];
        let test = |hdr: &Hdr| {
            matches!(
                hdr.kind,
                lnet_wire::Kind::Put { portal: PT, .. } | lnet_wire::Kind::Get { portal: PT, .. }
            )
        };
        h.sent.iter().zip(&h.hops).filter(|((_, hdr), _)| test(hdr)).map(|(_, hop)| *hop).collect()
    }

    /// Moves everything that moves without time passing.
    pub(crate) fn drain(&mut self) {
        loop {
            let mut busy = false;
            for i in 0..self.hosts.len() {
                busy |= self.drain_host(i);
            }
            if !busy {
                return;
            }
        }
    }

    fn drain_host(&mut self, i: usize) -> bool {
        let now = self.now;
        let mut busy = false;
        loop {
            let h = &mut self.hosts[i];
            let Some(out) = h.node.poll_output() else { break };
            busy = true;
            match out {
                Output::Send(t) if Some(t.ni) == h.node.loopback() => {
                    h.lo.send(now, &t, &h.mem).unwrap();
                }
                Output::Send(t) => self.carry(i, t),
                Output::Resume { ni, rx, verdict } if Some(ni) == h.node.loopback() => {
                    h.lo.resume(now, rx, verdict, &mut h.node, &mut h.mem);
                }
                Output::Resume { rx, verdict, .. } => {
                    let (_, _, bytes) = self.parked.remove(&(i, rx)).unwrap();
                    self.place(i, verdict, &bytes);
                }
                Output::Recall { ni, to, msg } => {
                    let asked =
                        |(at, t): &(usize, Transmit)| (*at, t.msg, t.ni, t.to) == (i, msg, ni, to);
                    if let Some(at) = self.held.iter().position(asked).filter(|_| self.gives_back) {
                        self.held.remove(at);
                        h.node.tx_recalled(now, msg);
                    } else {
                        h.node.tx_begun(now, msg);
                    }
                }
                Output::Reclaim { ni, to } => {
                    let all = core::mem::take(&mut self.in_doubt);
                    let (back, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|(at, m)| {
                        (*at, m.ni) == (i, ni) && to.is_none_or(|to| to.nid == m.to)
                    });
                    self.in_doubt = rest;
                    let messages = back.into_iter().map(|(_, message)| message).collect();
                    h.node.tx_in_doubt(now, messages);
                }
                // Payload arrives at once here.
                Output::Abandon { .. } | Output::Withdraw { .. } => {}
                Output::Release(region) => {
                    // Any later access is a defect.
                    h.mem.0[region.0 as usize] = Vec::new();
                    h.released.push(region);
                }
            }
        }
        let h = &mut self.hosts[i];
        h.lo.flush(now, &mut h.node, &mut h.mem);
        while let Some(e) = h.node.poll_event() {
            busy = true;
            h.events.push(e);
        }
        while let Some(r) = h.node.poll_report() {
            busy = true;
            h.reports.push(r);
        }
        busy
    }

    fn carry(&mut self, i: usize, t: Transmit) {
        let from = self.hosts[i].nids[&t.ni];
        // MRD-013, in whatever is played on this bench.
        assert_eq!(from.net(), t.to.nid.net(), "{from} and the next hop share a network");
        self.hosts[i].sent.push((from, t.hdr));
        self.hosts[i].hops.push(t.to.nid);
        // What goes on the wire must survive the wire.
        let mut b = [0; Hdr::LEN_MAX];
        let n = t.hdr.emit(HdrForm::Long, &mut b).unwrap();
        assert_eq!(Hdr::parse(HdrForm::Long, &b[..n]).unwrap(), t.hdr);
        if !self.hosts[i].alive {
            return self.hosts[i].node.tx_done(self.now, t.msg, Ok(()));
        }
        if t.retention.is_some() {
            self.retained.push((i, t.clone()));
        }
        match (self.decide)(&t) {
            Fate::Pass => self.fly(i, t),
            Fate::Fail(fault) => self.hosts[i].node.tx_done(self.now, t.msg, Err(fault)),
            Fate::Refuse(fault) => self.hosts[i].node.tx_refused(self.now, t.msg, fault),
            Fate::Lose => {
                if let Some(retention) = t.retention {
                    let (ni, to, hdr, payload) = (t.ni, t.to.nid, t.hdr, t.payload);
                    let message = InDoubt { ni, to, hdr, payload, retention };
                    self.in_doubt.push((i, message));
                }
                self.hosts[i].node.tx_done(self.now, t.msg, Ok(()));
            }
            Fate::Hold => self.held.push_back((i, t)),
            Fate::Doubt(fault, later) => {
                let msg = t.msg;
                self.fly(i, t);
                if let Some(copy) = self.flying.last_mut() {
                    copy.at += later;
                    copy.reported = true;
                }
                self.hosts[i].node.tx_done(self.now, msg, Err(fault));
            }
        }
    }

    fn fly(&mut self, i: usize, t: Transmit) {
        let h = &self.hosts[i];
        let bytes: Vec<u8> = match &t.payload {
            Payload::Spans(iov) => iov.iter().flat_map(|s| h.mem.bytes(*s).to_vec()).collect(),
            Payload::Bytes(b) => b.to_vec(),
        };
        assert_eq!(bytes.len(), t.hdr.payload_len as usize);
        self.seq += 1;
        let from_nid = h.nids[&t.ni];
        let at = self.now + self.latency;
        self.flying.push(InFlight {
            at,
            seq: self.seq,
            from: i,
            from_nid,
            t,
            bytes,
            reported: false,
        });
    }

    /// The messages that a host has handed over to be retained, and the interfaces that they left from.
    pub(crate) fn retained(&self, host: usize) -> Vec<(NiId, Transmit)> {
        let of_host = self.retained.iter().filter(|(at, _)| *at == host);
        of_host.map(|(_, t)| (t.ni, t.clone())).collect()
    }

    /// Lets the oldest held message go.
    pub(crate) fn release(&mut self) {
        let (i, t) = self.held.pop_front().unwrap();
        self.fly(i, t);
    }

    fn arrive(&mut self, f: InFlight) {
        let now = self.now;
        let dst = f.t.to.nid;
        let to = self.hosts.iter().position(|h| h.alive && h.nids.values().any(|n| *n == dst));
        // The sender's driver sees the bytes gone when they have gone.
        if !f.reported {
            self.hosts[f.from].node.tx_done(now, f.t.msg, Ok(()));
        }
        let Some(to) = to else { return };
        let ni = *self.hosts[to].nids.iter().find(|(_, n)| **n == dst).unwrap().0;
        let id = self.connection(to, f.from_nid, dst);
        let name = self.names.entry((to, f.from_nid)).or_default();
        let rx = Rx { ni, from: f.from_nid, from_pid: Pid::LUSTRE, peer_ni: *name, id };
        let node = &mut self.hosts[to].node;
        let verdict = node.rx_header(now, rx, &f.t.hdr);
        *name = node.peer_ni(*name, f.from_nid);
        if matches!(verdict, Verdict::Defer) {
            self.parked.insert((to, id), (f.from_nid, f.t, f.bytes));
        } else {
            self.place(to, verdict, &f.bytes);
        }
    }

    /// A message that no node has sent comes in at `host`: `from` is the peer by word of its driver.
    /// Returns whether it was neither dropped nor ended its connection.
    pub(crate) fn inject(&mut self, host: usize, from: Nid, hdr: &Hdr, bytes: &[u8]) -> bool {
        let dst = hdr.dst;
        let ni = *self.hosts[host].nids.iter().find(|(_, n)| **n == dst).unwrap().0;
        let id = self.connection(host, from, dst);
        let rx = Rx { ni, from, from_pid: Pid::LUSTRE, peer_ni: None, id };
        let verdict = self.hosts[host].node.rx_header(self.now, rx, hdr);
        let taken = matches!(verdict, Verdict::Deliver { .. });
        if taken {
            self.place(host, verdict, bytes);
        } else if matches!(verdict, Verdict::Defer) {
            self.hosts[host].node.rx_gone(self.now, ni, id);
        }
        self.drain();
        taken
    }

    /// The name of a message that has come in: as with the driver of sockets, that of the
    /// connection, which has one message in hand at a time and then the next under the same name.
    /// There are as many connections as it takes for none to wait behind another.
    fn connection(&mut self, to: usize, from: Nid, dst: Nid) -> RxId {
        let line = self.lines.iter().position(|l| *l == (from, dst)).unwrap_or_else(|| {
            self.lines.push((from, dst));
            self.lines.len() - 1
        });
        let mut all = (0..CONNECTIONS).map(|n| RxId(line as u64 * CONNECTIONS + n));
        all.find(|id| !self.parked.contains_key(&(to, *id))).unwrap()
    }

    fn place(&mut self, to: usize, verdict: Verdict, bytes: &[u8]) {
        let h = &mut self.hosts[to];
        match verdict {
            Verdict::Deliver { msg, sink: Sink::Spans(iov) } => {
                let mut rest = bytes;
                for s in iov {
                    let n = (s.len as usize).min(rest.len());
                    h.mem.bytes_mut(Span { len: n as u32, ..s }).copy_from_slice(&rest[..n]);
                    rest = &rest[n..];
                }
                h.node.rx_done(self.now, msg, Ok(&[]));
            }
            Verdict::Deliver { msg, sink: Sink::Bytes(max) } => {
                h.node.rx_done(self.now, msg, Ok(&bytes[..bytes.len().min(max as usize)]));
            }
            Verdict::Drop(_) => {}
            Verdict::Defer => panic!("deferred twice"),
            Verdict::Close(why) => panic!("protocol broken: {why}"),
        }
    }

    fn next_at(&self) -> Option<Instant> {
        let timers = self.hosts.iter().filter_map(|h| h.node.poll_timeout());
        timers.chain(self.flying.iter().map(|f| f.at)).min()
    }

    /// Lets `d` pass, with all that falls due in it.
    pub(crate) fn run(&mut self, d: Duration) {
        let end = self.now + d;
        self.drain();
        while let Some(at) = self.next_at().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let now = self.now;
            let (mut due, rest): (Vec<_>, Vec<_>) =
                core::mem::take(&mut self.flying).into_iter().partition(|f| f.at <= now);
            self.flying = rest;
            due.sort_by_key(|f| (f.at, f.seq));
            for f in due {
                self.arrive(f);
                self.drain();
            }
            for h in &mut self.hosts {
                if h.node.poll_timeout().is_some_and(|t| t <= now) {
                    h.node.handle_timeout(now);
                }
            }
            self.drain();
        }
        self.now = end;
    }

    pub(crate) fn secs(&mut self, n: u64) {
        self.run(Duration::from_secs(n));
    }

    /// A PUT of 100 bytes to the test buffer of `target`; its events carry `user`.
    pub(crate) fn put(&mut self, host: usize, target: &str, user: u64, ack: bool) {
        self.put_from(host, None, target, user, ack, MdOptions::default());
    }

    /// The same from a source, with options of its descriptor.
    pub(crate) fn put_from(
        &mut self,
        host: usize,
        src: Option<&str>,
        target: &str,
        user: u64,
        ack: bool,
        options: MdOptions,
    ) {
        let h = &mut self.hosts[host];
        let buf = h.mem.add(vec![user as u8; 100]);
        let mut md = MdSpec::new(buf, user);
        md.threshold = Some(if ack { 2 } else { 1 });
        md.unlink = crate::Unlink::Auto;
        md.options = options;
        let md = h.node.bind(md).unwrap();
        let put = crate::Put {
            md,
            ack,
            src: src.map(nid),
            target: ProcessId::lustre(nid(target)),
            portal: PT,
            match_bits: BITS,
            offset: 0,
            hdr_data: user,
            timeout: None,
        };
        h.node.put(self.now, put).unwrap();
        self.drain();
    }

    /// A GET of 100 bytes.
    pub(crate) fn get(&mut self, host: usize, target: &str, user: u64) {
        let h = &mut self.hosts[host];
        let buf = h.mem.add(vec![0; 100]);
        let mut md = MdSpec::new(buf, user);
        md.threshold = Some(2);
        md.unlink = crate::Unlink::Auto;
        let md = h.node.bind(md).unwrap();
        let get = crate::Get {
            md,
            src: None,
            target: ProcessId::lustre(nid(target)),
            portal: PT,
            match_bits: BITS,
            offset: 0,
            timeout: None,
        };
        h.node.get(self.now, get).unwrap();
        self.drain();
    }

    /// Discovers `target`, as the recorded scenarios do before they begin, then forgets counters.
    pub(crate) fn discovered(&mut self, host: usize, target: &str) {
        self.hosts[host].node.discover(self.now, nid(target), false);
        self.secs(1);
        let r = self.hosts[host].reports.pop().expect("discovery reports");
        assert!(r.outcome.is_ok(), "{r:?}");
        for h in &mut self.hosts {
            h.node.reset_stats();
            h.events.clear();
            h.sent.clear();
            h.hops.clear();
        }
    }

    /// Events of `host` that belong to `user`, as (kind, status, unlinked).
    pub(crate) fn events(&self, host: usize, user: u64) -> Vec<(EventKind, bool, bool)> {
        self.hosts[host]
            .events
            .iter()
            .filter(|e| e.user == user)
            .map(|e| (e.kind, e.status.is_ok(), e.unlinked))
            .collect()
    }

    /// Pairs (source, destination) of the messages on `portal` that `host` has sent.
    pub(crate) fn pairs(&self, host: usize) -> Vec<(String, String)> {
        self.hosts[host]
            .sent
            .iter()
            .filter(|(_, h)| {
                matches!(
                    h.kind,
                    lnet_wire::Kind::Put { portal: PT, .. }
                        | lnet_wire::Kind::Get { portal: PT, .. }
                )
            })
            .map(|(_, h)| (h.src.to_string(), h.dst.to_string()))
            .collect()
    }

    pub(crate) fn ni_health(&self, host: usize, n: &str) -> u32 {
        let views = self.hosts[host].node.net_views();
        views.iter().flat_map(|v| &v.nis).find(|v| v.nid == nid(n)).unwrap().health
    }

    pub(crate) fn peer_health(&self, host: usize, n: &str) -> u32 {
        let v = self.hosts[host].node.peer_view_of(nid(n)).unwrap();
        v.nis.iter().find(|v| v.nid == nid(n)).unwrap().health
    }
}
