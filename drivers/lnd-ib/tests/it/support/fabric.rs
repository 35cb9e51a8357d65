//! An emulated fabric: queue pairs, a connection manager, keys that open memory, and faults. It knows
//! nothing of the protocol but the memory that requests announce. What no adapter would do, or no
//! driver may ask for, is a violation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use core::time::Duration;
use lnd_ib::{
    Access, CmCall, CmEvent, CmRejection, ConnId, Event, Landed, MapId, Output, Post, RequestId,
    WorkId,
};
use lnet_types::{Errno, Instant, Prng, RxId};
use lnet_wire::Hdr;
use lnet_wire::ib::{Body, Frag, Msg, RdmaDesc, Type};

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

/// An event of the connection manager that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) enum Cm {
    AddrResolved,
    RouteResolved,
    Established(Vec<u8>),
    Rejected(CmRejection, Vec<u8>),
    Disconnected,
    Other(CmEvent<'static>),
}

#[derive(Debug)]
enum Happening {
    Cm(ConnId, Cm),
    Request(RequestId, Vec<u8>),
    Arrive { from: (usize, ConnId), post: Post, payload: Vec<u8> },
    Done(ConnId, WorkId, bool),
    Flushed(ConnId, u16),
    Decide(RxId, Hdr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QpState {
    Making,
    Ready,
    Error,
}

#[derive(Debug)]
struct Qp {
    state: QpState,
    peer: Option<(usize, ConnId)>,
    receives: VecDeque<u16>,
    slots: BTreeMap<u16, Vec<u8>>,
    sends: BTreeSet<WorkId>,
    lost: BTreeSet<WorkId>,
    /// Its driver has ended it.
    disconnected: bool,
    /// Nothing arrives, or completes, before what was posted earlier.
    last_arrival: Instant,
    last_done: Instant,
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
    /// Connection requests that went to each host.
    pub(crate) requests_seen: Vec<(usize, Msg)>,
    /// Hosts that no driver listens on.
    pub(crate) absent: BTreeSet<usize>,
    qps: BTreeMap<(usize, ConnId), Qp>,
    queue: BTreeMap<(Instant, u64), (usize, Happening)>,
    requests: BTreeMap<u64, (usize, ConnId)>,
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
            requests_seen: Vec::new(),
            absent: BTreeSet::new(),
            qps: BTreeMap::new(),
            queue: BTreeMap::new(),
            requests: BTreeMap::new(),
            count: 0,
            prng: Prng::new(seed),
        }
    }

    fn later(&mut self) -> Instant {
        let ns = 1000 + self.prng.below(LATENCY);
        self.now + Duration::from_nanos(ns)
    }

    fn at(&mut self, at: Instant, host: usize, what: Happening) {
        self.count += 1;
        self.queue.insert((at, self.count), (host, what));
    }

    fn soon(&mut self, host: usize, what: Happening) {
        let at = self.later();
        self.at(at, host, what);
    }

    fn cm(&mut self, host: usize, conn: ConnId, event: Cm) {
        if !self.prng.one_in(self.faults.cm_loss) {
            self.soon(host, Happening::Cm(conn, event));
        }
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let next = self.queue.first_key_value().map(|((at, _), _)| *at);
            let node = |h: &Host| h.node.as_ref().and_then(|(node, _)| node.poll_timeout());
            let due = |h: &Host| h.ib.poll_timeout().into_iter().chain(node(h)).min();
            let timer = self.hosts.iter().filter_map(due).min();
            let Some(at) = next.into_iter().chain(timer).min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            if next.is_some_and(|n| n <= at) {
                let ((_, _), (host, what)) = self.queue.pop_first().expect("one is there");
                self.happen(host, what);
            } else {
                for host in 0..self.hosts.len() {
                    if due(&self.hosts[host]).is_some_and(|t| t <= self.now) {
                        self.hosts[host].ib.handle_timeout(self.now);
                        if let Some((node, _)) = &mut self.hosts[host].node {
                            node.handle_timeout(self.now);
                        }
                        self.drain(host);
                    }
                }
            }
        }
        self.now = end;
    }

    fn happen(&mut self, host: usize, what: Happening) {
        let now = self.now;
        match what {
            Happening::Cm(conn, event) => self.cm_event(host, conn, event),
            Happening::Request(id, private) => {
                if let Ok((msg, _)) = Msg::parse(&private) {
                    self.requests_seen.push((host, msg));
                }
                self.hosts[host].ib.connect_request(now, id, &private);
            }
            Happening::Arrive { from, post, payload } => self.arrive(host, from, post, payload),
            Happening::Done(conn, work, ok) => {
                let Some(qp) = self.qps.get_mut(&(host, conn)) else { return };
                if qp.sends.remove(&work) {
                    self.hosts[host].ib.work_done(now, work, if ok { Ok(()) } else { Err(()) });
                }
            }
            Happening::Flushed(conn, slot) => {
                if self.qps.contains_key(&(host, conn)) {
                    self.hosts[host].ib.received(now, conn, slot, Err(()));
                }
            }
            Happening::Decide(rx, hdr) => {
                if !self.hosts[host].gone.contains(&rx) {
                    self.hosts[host].judge(now, rx, hdr, false);
                }
            }
        }
        self.drain(host);
    }

    fn cm_event(&mut self, host: usize, conn: ConnId, event: Cm) {
        let now = self.now;
        if !self.qps.contains_key(&(host, conn)) {
            return;
        }
        if matches!(event, Cm::Established(_))
            && let Some(qp) = self.qps.get_mut(&(host, conn))
            && qp.state == QpState::Making
        {
            qp.state = QpState::Ready;
            let peer = qp.peer;
            // The side that connected says that it is ready.
            if let Some((other, theirs)) = peer
                && self.qps.get(&(other, theirs)).is_some_and(|qp| qp.state == QpState::Making)
            {
                self.cm(other, theirs, Cm::Established(Vec::new()));
            }
        }
        let ib = &mut self.hosts[host].ib;
        match &event {
            Cm::AddrResolved => ib.cm_event(now, conn, CmEvent::AddrResolved),
            Cm::RouteResolved => ib.cm_event(now, conn, CmEvent::RouteResolved),
            Cm::Established(private) => ib.cm_event(now, conn, CmEvent::Established { private }),
            Cm::Rejected(why, private) => {
                ib.cm_event(now, conn, CmEvent::Rejected { why: *why, private });
            }
            Cm::Disconnected => ib.cm_event(now, conn, CmEvent::Disconnected),
            Cm::Other(event) => ib.cm_event(now, conn, *event),
        }
    }

    /// A test's own event of the connection manager.
    pub(crate) fn inject(&mut self, host: usize, conn: ConnId, event: CmEvent<'static>) {
        self.cm_event(host, conn, Cm::Other(event));
        self.drain(host);
    }

    /// The connections of a host that the fabric knows.
    pub(crate) fn conns(&self, host: usize) -> Vec<ConnId> {
        self.qps.keys().filter(|(h, _)| *h == host).map(|(_, conn)| *conn).collect()
    }

    /// A chain of work requests reaches its receiver.
    fn arrive(&mut self, host: usize, from: (usize, ConnId), post: Post, payload: Vec<u8>) {
        // What has come back already is not sent any more.
        let Some(sender) = self.qps.get(&from).filter(|qp| qp.sends.contains(&post.work)) else {
            return;
        };
        let (sender_ready, to) = (sender.state == QpState::Ready, sender.peer);
        let target = to.filter(|to| self.qps.get(to).is_some_and(|qp| qp.state != QpState::Error));
        let Some(to) = target.filter(|_| !self.is_cut(from.0, host)) else {
            if sender_ready {
                self.break_qp(from);
            }
            return;
        };
        let mut written = 0;
        for write in &post.writes {
            let source = &self.hosts[from.0].maps[&write.from];
            if !source.live {
                self.violations.push(format!("{:?} is read after its end", write.from));
            }
            let spans: Vec<_> = source.spans.to_vec();
            let bytes = if source.is_buffer {
                source.buffer.clone()
            } else {
                self.hosts[from.0].bytes(&spans)
            };
            let bytes = &bytes[write.offset as usize..][..write.len as usize];
            if !self.remote_write(host, write.key, write.addr, bytes) {
                self.break_qp(from);
                self.break_qp(to);
                return;
            }
            written += bytes.len() as u64;
        }
        let bytes = [&post.head[..], &payload].concat();
        let (msg, nob) = Msg::parse(&bytes).expect("what is sent is a message");
        assert_eq!(nob, bytes.len(), "{msg}");
        let swallowed = self.faults.swallowed == Some(post.kind);
        if !swallowed {
            let qp = self.qps.get_mut(&to).expect("looked up above");
            let Some(slot) = qp.receives.pop_front() else {
                self.violations.push(format!("no receive buffer at {host} for {msg}"));
                return;
            };
            qp.slots.insert(slot, bytes.clone());
            self.trace.push(Arrived { from: from.0, kind: post.kind, msg, written });
            // Bytes show that the connection is established, even if the last message of the
            // connection manager was lost.
            if self.qps[&to].state == QpState::Making && self.prng.one_in(2) {
                self.cm_event(host, to.1, Cm::Established(Vec::new()));
            }
            self.hosts[host].ib.received(self.now, to.1, slot, Ok(&bytes));
        }
        let lost = self.faults.no_completions || self.prng.one_in(self.faults.completion_loss);
        let at = self.later();
        let Some(qp) = self.qps.get_mut(&from) else { return };
        if lost {
            qp.lost.insert(post.work);
            qp.sends.remove(&post.work);
            return;
        }
        let at = at.max(qp.last_done);
        qp.last_done = at;
        self.at(at, from.0, Happening::Done(from.1, post.work, true));
    }

    /// The adapter of `host` writes for a peer; false if the key does not open the place.
    fn remote_write(&mut self, host: usize, key: u32, addr: u64, bytes: &[u8]) -> bool {
        let hosted = &mut self.hosts[host];
        let Some((_, map)) = hosted
            .maps
            .iter_mut()
            .find(|(_, m)| m.key == key && m.live && m.access == Access::RemoteWrite)
        else {
            return false;
        };
        let Some(offset) = addr.checked_sub(map.at) else { return false };
        let mut offset = offset as usize;
        if map.is_buffer {
            let Some(to) = map.buffer.get_mut(offset..offset + bytes.len()) else { return false };
            to.copy_from_slice(bytes);
            return true;
        }
        let spans = map.spans.clone();
        let mut rest = bytes;
        for span in &spans {
            let len = span.len as usize;
            if offset >= len {
                offset -= len;
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(len - offset));
            let at = span.offset + offset as u64;
            let over = hosted.over.range(..=at).next_back().is_some_and(|(_, end)| at < *end);
            if over && !now.is_empty() {
                self.violations
                    .push(format!("host {host}: memory at {at} is written after its end"));
            }
            hosted.mem[at as usize..][..now.len()].copy_from_slice(now);
            (rest, offset) = (later, 0);
        }
        rest.is_empty()
    }

    /// A queue pair fails: all that is posted comes back.
    pub(crate) fn break_qp(&mut self, id: (usize, ConnId)) {
        let Some(qp) = self.qps.get_mut(&id).filter(|qp| qp.state != QpState::Error) else {
            return;
        };
        qp.state = QpState::Error;
        let sends: Vec<_> = qp.sends.iter().copied().collect();
        let receives: Vec<_> = qp.receives.drain(..).collect();
        for work in sends {
            self.soon(id.0, Happening::Done(id.1, work, false));
        }
        for slot in receives {
            self.soon(id.0, Happening::Flushed(id.1, slot));
        }
    }

    /// Carries out what a host wants, until it wants nothing more.
    pub(crate) fn drain(&mut self, host: usize) {
        loop {
            while let Some(output) = self.hosts[host].ib.poll_output() {
                self.carry_out(host, output);
            }
            if !self.hosts[host].turn(self.now) {
                break;
            }
        }
        if let Err(why) = self.hosts[host].ib.check() {
            self.violations.push(format!("host {host}: {why}"));
        }
        let deferred = core::mem::take(&mut self.hosts[host].deferred);
        for (rx, hdr) in deferred {
            let spread = if self.faults.defer_long { 60_000_000_000 } else { 1_000_000 };
            let at = self.now + Duration::from_nanos(self.prng.below(spread));
            self.at(at, host, Happening::Decide(rx, hdr));
        }
    }

    fn carry_out(&mut self, host: usize, output: Output) {
        match output {
            Output::Cm(call) => self.call(host, call),
            Output::Receive { conn, slot } => {
                let Some(qp) = self.qps.get_mut(&(host, conn)) else {
                    return self.violations.push("a buffer is posted to nothing".into());
                };
                qp.slots.remove(&slot);
                if qp.state == QpState::Error {
                    self.soon(host, Happening::Flushed(conn, slot));
                } else {
                    qp.receives.push_back(slot);
                }
            }
            Output::Post(post) => self.post(host, post),
            Output::Map { map, memory, access } => {
                let failed = self.prng.one_in(self.faults.map_failure);
                let (key, at, len) = self.hosts[host].map(map, memory, access);
                let outcome = if failed {
                    self.hosts[host].maps.get_mut(&map).expect("just made").live = false;
                    Err(Errno::ENOMEM)
                } else {
                    Ok(self.describe(key, at, len))
                };
                self.hosts[host].ib.mapped(self.now, map, outcome);
            }
            Output::Unmap { map } => self.unmap(host, map),
            Output::Copy { conn, slot, at, len, to } => {
                let bytes = self.slot(host, conn, slot).unwrap_or_default();
                let bytes = &bytes[at..at + len as usize];
                self.hosts[host].write(&to, bytes);
            }
            Output::Event(event) => {
                let now = self.now;
                let in_slot = match &event {
                    Event::RxDone { outcome: Ok(Landed::Slot { conn, slot, .. }), .. } => {
                        self.slot(host, *conn, *slot)
                    }
                    _ => None,
                };
                self.hosts[host].event(now, event, &in_slot.unwrap_or_default());
            }
        }
    }

    fn slot(&self, host: usize, conn: ConnId, slot: u16) -> Option<Vec<u8>> {
        self.qps.get(&(host, conn))?.slots.get(&slot).cloned()
    }

    /// A mapping as one fragment, or as several.
    fn describe(&mut self, key: u32, at: u64, len: u32) -> RdmaDesc {
        let wanted = 1 + self.prng.below(self.faults.fragments.max(1)) as u32;
        let each = len.div_ceil(wanted).max(1);
        let frags = (0..len)
            .step_by(each as usize)
            .map(|first| Frag { addr: at + u64::from(first), nob: each.min(len - first) });
        RdmaDesc { key, frags: frags.collect() }
    }

    fn unmap(&mut self, host: usize, map: MapId) {
        let Some(mapped) = self.hosts[host].maps.get_mut(&map) else { return };
        mapped.live = false;
        // What a peer may be writing must not be taken from it before the queue pair is gone.
        let conn = mapped.announced;
        if let Some(conn) = conn
            && self.qps.get(&(host, conn)).is_some_and(|qp| qp.disconnected)
        {
            self.violations.push(format!("{map:?} is unmapped before its queue pair is destroyed"));
        }
    }

    fn post(&mut self, host: usize, post: Post) {
        let payload = match &post.payload {
            Some(lnet::Payload::Spans(spans)) => self.hosts[host].bytes(spans),
            Some(lnet::Payload::Bytes(bytes)) => bytes.to_vec(),
            None => Vec::new(),
        };
        let (msg, _) = Msg::parse(&[&post.head[..], &payload].concat()).expect("a message");
        if let Body::GetReq { rd, .. } | Body::PutAck { rd, .. } = &msg.body {
            let map = self.hosts[host].maps.values_mut().find(|m| m.key == rd.key && m.live);
            map.expect("announced memory is mapped").announced = Some(post.conn);
        }
        let id = (host, post.conn);
        let breaks = self.prng.one_in(self.faults.qp_error);
        let at = self.later();
        let Some(qp) = self.qps.get_mut(&id) else {
            return self.violations.push("work is posted to nothing".into());
        };
        qp.sends.insert(post.work);
        if qp.state == QpState::Error {
            return self.soon(host, Happening::Done(post.conn, post.work, false));
        }
        let at = at.max(qp.last_arrival);
        qp.last_arrival = at;
        let Some((to, _)) = qp.peer else {
            return self.violations.push("work is posted before there is a peer".into());
        };
        self.at(at, to, Happening::Arrive { from: id, post, payload });
        if breaks {
            self.break_qp(id);
        }
    }

    fn call(&mut self, host: usize, call: CmCall) {
        match call {
            CmCall::Resolve { conn, to } => {
                let known = self.hosts.iter().position(|h| h.nid == to);
                let peer = known.map(|other| (other, ConnId::default()));
                self.new_qp(host, conn, peer);
                if known.is_none() {
                    return self.cm(host, conn, Cm::Other(CmEvent::AddrError));
                }
                self.cm(host, conn, Cm::AddrResolved);
            }
            CmCall::ResolveRoute { conn } => self.cm(host, conn, Cm::RouteResolved),
            CmCall::Connect { conn, private, .. } => {
                let Some((to, _)) = self.qps[&(host, conn)].peer else { return };
                if self.absent.contains(&to) {
                    return self.cm(host, conn, Cm::Rejected(CmRejection::NoListener, Vec::new()));
                }
                if self.is_cut(host, to) || self.prng.one_in(self.faults.cm_loss) {
                    return;
                }
                self.count += 1;
                let request = self.count;
                self.requests.insert(request, (host, conn));
                self.soon(to, Happening::Request(RequestId(request), private));
            }
            CmCall::Accept { conn, request, private, .. } => {
                let from = self.requests.remove(&request.0).expect("a request is answered once");
                self.new_qp(host, conn, Some(from));
                if let Some(qp) = self.qps.get_mut(&from) {
                    qp.peer = Some((host, conn));
                }
                self.cm(from.0, from.1, Cm::Established(private));
            }
            CmCall::Reject { request, private } => {
                let from = self.requests.remove(&request.0).expect("a request is answered once");
                self.cm(from.0, from.1, Cm::Rejected(CmRejection::Consumer, private));
            }
            CmCall::Disconnect { conn } => {
                self.break_qp((host, conn));
                if let Some(qp) = self.qps.get_mut(&(host, conn)) {
                    qp.disconnected = true;
                }
                if let Some((other, theirs)) = self.qps.get(&(host, conn)).and_then(|qp| qp.peer)
                    && !self.is_cut(host, other)
                {
                    self.cm(other, theirs, Cm::Disconnected);
                }
            }
            CmCall::Destroy { conn } => {
                if self.qps.remove(&(host, conn)).is_none() {
                    self.violations.push("destroyed twice".into());
                }
            }
        }
    }

    fn new_qp(&mut self, host: usize, conn: ConnId, peer: Option<(usize, ConnId)>) {
        let qp = Qp {
            state: QpState::Making,
            peer,
            receives: VecDeque::new(),
            slots: BTreeMap::new(),
            sends: BTreeSet::new(),
            lost: BTreeSet::new(),
            disconnected: false,
            last_arrival: self.now,
            last_done: self.now,
        };
        self.qps.insert((host, conn), qp);
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
        for ((host, conn), qp) in &self.qps {
            let Some((other, theirs)) = qp.peer.filter(|_| qp.state == QpState::Ready) else {
                continue;
            };
            let find = |host: usize, peer: usize, id: ConnId| {
                let all = self.hosts[host].ib.credits(self.hosts[peer].nid);
                all.into_iter().find(|(conn, _)| *conn == id).map(|(_, credits)| credits.clone())
            };
            let (Some(mine), Some(yours)) = (find(*host, other, *conn), find(other, *host, theirs))
            else {
                continue;
            };
            assert_eq!(
                mine.held() + yours.owed(),
                mine.depth(),
                "{host} to {other}: {mine:?} {yours:?}"
            );
            assert_eq!(mine.reserved(), mine.depth(), "{host} to {other}: {mine:?}");
        }
    }
}

impl World {
    /// A host is gone without a word, and another one has its place.
    pub(crate) fn restart(&mut self, host: usize, fresh: Host) {
        for id in self.qps.keys().filter(|(h, _)| *h == host).copied().collect::<Vec<_>>() {
            self.qps.remove(&id);
        }
        self.queue.retain(|_, (h, _)| *h != host);
        // Names of connections begin anew: the old ones mean nothing any more.
        for qp in self.qps.values_mut().filter(|qp| qp.peer.is_some_and(|(h, _)| h == host)) {
            qp.peer = Some((host, ConnId::default()));
        }
        self.hosts[host] = fresh;
    }
}
