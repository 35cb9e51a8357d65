//! A host: a port, memory, and a stand-in for the node, which takes what comes and insists that each
//! message ends once.

use std::collections::{BTreeMap, BTreeSet};

use core::ops::{Deref, DerefMut};
use core::time::Duration;
use lnd_ib::emulated::Emulated;
use lnd_ib::{Event, IbConfig, IbNi, NiStart, Port, Upper};
use lnet::{
    Doubt, DropReason, Link, NetTunables, NiSpec, Node, NodeConfig, Payload, Profile, Rx, Sink,
    Transmit, Tunables, Verdict,
};
use lnet_types::{
    Fault, Instant, IoVec, Memory, MsgId, NiId, Nid, Pid, ProcessId, RegionId, RxId, Span,
};
use lnet_wire::{Handle, Hdr, Kind};
use slotmap::SlotMap;

/// Memory of a host. Places are given out once and never again, so that a write into a place that is
/// over can't be taken for one into its successor.
const MEM: usize = 192 << 20;

/// What is done with PUTs that come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taste {
    Keep,
    /// Into memory that is this much too short.
    Truncate(u32),
    Bytes,
    Drop,
    /// Thrown away as a further copy.
    Duplicate,
    Defer,
}

/// A received PUT or REPLY.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) hdr: Hdr,
    pub(crate) place: IoVec,
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) outcome: Option<Result<(), Fault>>,
}

/// Memory that knows which places are over.
pub(crate) struct HostMem {
    bytes: Vec<u8>,
    /// Places that are over: by first byte, their end.
    over: BTreeMap<u64, u64>,
}

impl HostMem {
    /// Whether a part of a place is over.
    pub(crate) fn is_over(&self, span: Span) -> bool {
        let before = self.over.range(..span.offset + u64::from(span.len)).next_back();
        before.is_some_and(|(_, end)| span.offset < *end)
    }
}

impl Memory for HostMem {
    fn bytes(&self, span: Span) -> &[u8] {
        &self.bytes[span.offset as usize..][..span.len as usize]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.bytes[span.offset as usize..][..span.len as usize]
    }
}

/// What is to be sent in answer.
struct Answer {
    number: u64,
    len: u32,
    to: Nid,
    kind: Kind,
}

pub(crate) struct Host {
    pub(crate) port: Port<Emulated>,
    pub(crate) nid: Nid,
    pub(crate) mem: HostMem,
    up: StandIn,
    /// Whether GETs name their sink.
    pub(crate) rdma_get: bool,
    /// REPLYs of the node wait for the test.
    pub(crate) holds_replies: bool,
    pub(crate) held: Vec<Transmit>,
    /// A node in the place of the stand-in, with its name for the interface.
    pub(crate) node: Option<(Node, NiId)>,
}

pub(crate) struct StandIn {
    next: usize,
    pub(crate) taste: Vec<Taste>,
    ids: SlotMap<MsgId, ()>,
    /// Messages in the driver's hands.
    pub(crate) out: BTreeMap<MsgId, u64>,
    pub(crate) ended: Vec<(u64, Result<(), Fault>)>,
    /// Memory of each message under way.
    lent: BTreeMap<MsgId, IoVec>,
    /// Memory that is its owner's again.
    given_back: Vec<Span>,
    pub(crate) received: Vec<Received>,
    /// Deliveries whose bytes are to be looked at.
    arrived: Vec<usize>,
    open: BTreeMap<MsgId, usize>,
    /// GETs of ours, by their number: where the data go.
    gets: BTreeMap<u64, IoVec>,
    pub(crate) deferred: Vec<(RxId, Hdr)>,
    /// What is deferred is decided by the test alone.
    pub(crate) keep_deferred: bool,
    pub(crate) undecided: Vec<(RxId, Hdr)>,
    pub(crate) gone: BTreeSet<RxId>,
    pub(crate) events: Vec<Event>,
    /// Numbers of GETs whose data were right.
    pub(crate) got: Vec<u64>,
    answers: Vec<Answer>,
    /// Bytes of a REPLY, at most.
    pub(crate) reply_max: u32,
    /// GETs are matched, but never answered.
    pub(crate) silent_gets: bool,
    pub(crate) wrong: Vec<String>,
}

impl Deref for Host {
    type Target = StandIn;
    fn deref(&self) -> &StandIn {
        &self.up
    }
}

impl DerefMut for Host {
    fn deref_mut(&mut self) -> &mut StandIn {
        &mut self.up
    }
}

/// The byte at `at` of message `number`.
pub(crate) fn pattern(number: u64, at: u64) -> u8 {
    (number.wrapping_mul(131) ^ at.wrapping_mul(7) ^ (at >> 8)) as u8
}

impl Host {
    pub(crate) fn new(nid: &str, incarnation: u64, config: IbConfig) -> Self {
        let nid: Nid = nid.parse().expect("a NID");
        let start = NiStart { ni: NiId::default(), nid, incarnation };
        let up = StandIn {
            next: 0,
            taste: vec![Taste::Keep],
            ids: SlotMap::with_key(),
            out: BTreeMap::new(),
            ended: Vec::new(),
            lent: BTreeMap::new(),
            given_back: Vec::new(),
            received: Vec::new(),
            arrived: Vec::new(),
            open: BTreeMap::new(),
            gets: BTreeMap::new(),
            deferred: Vec::new(),
            keep_deferred: false,
            undecided: Vec::new(),
            gone: BTreeSet::new(),
            events: Vec::new(),
            got: Vec::new(),
            answers: Vec::new(),
            reply_max: u32::MAX,
            silent_gets: false,
            wrong: Vec::new(),
        };
        let mem = HostMem { bytes: vec![0; MEM], over: BTreeMap::new() };
        let port = port(config, start);
        Self {
            port,
            nid,
            mem,
            up,
            rdma_get: true,
            holds_replies: false,
            held: Vec::new(),
            node: None,
        }
    }

    /// A host with a node of its own.
    pub(crate) fn with_node(
        nid: &str,
        incarnation: u64,
        config: IbConfig,
        profile: Profile,
    ) -> Self {
        let mut host = Self::new(nid, incarnation, config.clone());
        let node = NodeConfig {
            seed: incarnation,
            interface_cookie: incarnation,
            ping_seq: 0,
            tunables: Tunables::new(profile),
        };
        let mut node = Node::new(node, Instant::ZERO);
        let tunables = NetTunables { peer_credits: 8, credits: 256, ..NetTunables::default() };
        let spec = NiSpec { nid: host.nid, interface: None, tunables, lnd_timeout: None };
        let ni = node.add_ni(Instant::ZERO, spec).expect("an interface");
        host.port = port(config, NiStart { ni, nid: host.nid, incarnation });
        host.node = Some((node, ni));
        host
    }

    /// A turn as a real node has it: the driver, what the node says to that, and the rest.
    pub(crate) fn turn(&mut self, now: Instant) {
        loop {
            match &mut self.node {
                Some((node, _)) => self.port.turn(now, node, &mut self.mem),
                None => self.port.turn(now, &mut self.up, &mut self.mem),
            }
            if self.answer(now) {
                continue;
            }
            match &mut self.node {
                Some((node, _)) => self.port.flush(now, node, &mut self.mem),
                None => self.port.flush(now, &mut self.up, &mut self.mem),
            }
            if !self.answer(now) {
                return;
            }
        }
    }

    /// Hands over what the node, or its stand-in, wants sent; whether there was anything.
    fn answer(&mut self, now: Instant) -> bool {
        let mut any = false;
        self.look();
        for Answer { number, len, to, kind } in core::mem::take(&mut self.up.answers) {
            any = true;
            let payload = self.filled(number, len);
            let hdr = self.hdr(to, len, kind);
            let limit = Duration::from_secs(50);
            let _ = self.order(now, number, hdr, payload, IoVec::new(), limit);
        }
        let Some((node, _)) = &mut self.node else { return any };
        while let Some(output) = node.poll_output() {
            any = true;
            match output {
                lnet::Output::Send(transmit) => {
                    let msg = transmit.msg;
                    if self.holds_replies && matches!(transmit.hdr.kind, Kind::Reply { .. }) {
                        self.held.push(transmit);
                        continue;
                    }
                    if let Err(fault) = self.port.send(now, transmit) {
                        node.tx_refused(now, msg, fault);
                    }
                }
                lnet::Output::Resume { rx, verdict, .. } => self.port.verdict(now, rx, verdict),
                lnet::Output::Withdraw { msg, .. } => self.port.withdraw(now, msg),
                _ => {}
            }
        }
        any
    }

    /// Looks at what has arrived, and takes memory back.
    fn look(&mut self) {
        for at in core::mem::take(&mut self.up.arrived) {
            let received = &self.up.received[at];
            let (hdr, place) = (received.hdr, received.place.clone());
            if received.bytes.is_none() {
                let mut bytes = self.bytes(&place);
                bytes.truncate(hdr.payload_len as usize);
                self.up.received[at].bytes = Some(bytes);
            }
            let bytes = self.up.received[at].bytes.clone().unwrap_or_default();
            self.up.check(hdr, &bytes);
        }
        for span in core::mem::take(&mut self.up.given_back) {
            self.mem.over.insert(span.offset, span.offset + u64::from(span.len));
        }
    }

    /// A message that was deferred is decided.
    pub(crate) fn decide(&mut self, now: Instant, rx: RxId, hdr: Hdr) {
        if !self.up.gone.contains(&rx) {
            let verdict = self.up.judge(rx, hdr, false);
            self.port.verdict(now, rx, verdict);
        }
    }

    pub(crate) fn bytes(&self, spans: &[Span]) -> Vec<u8> {
        spans.iter().flat_map(|span| self.mem.bytes(*span)).copied().collect()
    }

    pub(crate) fn write(&mut self, spans: &[Span], mut bytes: &[u8]) {
        for span in spans {
            let (now, rest) = bytes.split_at(bytes.len().min(span.len as usize));
            self.mem.bytes[span.offset as usize..][..now.len()].copy_from_slice(now);
            bytes = rest;
        }
    }

    fn filled(&mut self, number: u64, len: u32) -> IoVec {
        let spans = self.alloc(len);
        let bytes: Vec<u8> = (0..u64::from(len)).map(|at| pattern(number, at)).collect();
        self.write(&spans, &bytes);
        spans
    }

    fn order(
        &mut self,
        now: Instant,
        number: u64,
        hdr: Hdr,
        payload: IoVec,
        sink: IoVec,
        timeout: Duration,
    ) -> Result<MsgId, Fault> {
        let msg = self.up.ids.insert(());
        let memory: IoVec = payload.iter().chain(&sink).copied().collect();
        let transmit = Transmit {
            msg,
            ni: NiId::default(),
            to: ProcessId { nid: hdr.dst, pid: Pid::LUSTRE },
            peer_ni: None,
            hdr,
            payload: Payload::Spans(payload),
            sink,
            timeout,
            retention: None,
            repeats: false,
        };
        self.port.send(now, transmit)?;
        self.up.out.insert(msg, number);
        self.up.lent.insert(msg, memory);
        Ok(msg)
    }

    pub(crate) fn put(
        &mut self,
        now: Instant,
        to: Nid,
        number: u64,
        len: u32,
    ) -> Result<MsgId, Fault> {
        self.put_within(now, to, number, len, Duration::from_secs(50))
    }

    pub(crate) fn put_within(
        &mut self,
        now: Instant,
        to: Nid,
        number: u64,
        len: u32,
        timeout: Duration,
    ) -> Result<MsgId, Fault> {
        let payload = self.filled(number, len);
        let kind =
            Kind::Put { ack: Handle::NONE, match_bits: number, hdr_data: 0, portal: 4, offset: 0 };
        let hdr = self.hdr(to, len, kind);
        self.order(now, number, hdr, payload, IoVec::new(), timeout)
    }

    pub(crate) fn get(
        &mut self,
        now: Instant,
        to: Nid,
        number: u64,
        len: u32,
    ) -> Result<MsgId, Fault> {
        let sink = self.alloc(len);
        let ret = Handle { interface: 1, object: number };
        let kind =
            Kind::Get { ret, match_bits: number, portal: 4, offset: 0, sink_len: len, pad: [0; 4] };
        let hdr = self.hdr(to, 0, kind);
        self.up.gets.insert(number, sink.clone());
        let sink = if self.rdma_get { sink } else { IoVec::new() };
        self.order(now, number, hdr, IoVec::new(), sink, Duration::from_secs(50))
    }

    fn hdr(&self, to: Nid, payload_len: u32, kind: Kind) -> Hdr {
        Hdr {
            dst: to,
            src: self.nid,
            dst_pid: Pid::LUSTRE,
            src_pid: Pid::LUSTRE,
            payload_len,
            kind,
        }
    }
}

fn port(config: IbConfig, start: NiStart) -> Port<Emulated> {
    let ib = IbNi::new(config, start).expect("good settings");
    Port::new(ib, Emulated::new(start.nid, start.incarnation), 0)
}

impl StandIn {
    /// `len` new bytes, in two spans with a gap where that is possible.
    pub(crate) fn alloc(&mut self, len: u32) -> IoVec {
        let mut spans = IoVec::new();
        let first = if len > 64 { len / 3 } else { len };
        for len in [first, len - first] {
            if len > 0 {
                let offset = self.next as u64;
                spans.push(Span { region: RegionId(0), len, offset });
                self.next += len as usize + 8;
            }
        }
        assert!(self.next < MEM, "a test moves too much");
        spans
    }

    /// The node's verdict on a header.
    fn judge(&mut self, rx: RxId, hdr: Hdr, may_defer: bool) -> Verdict {
        let taste = if self.taste.len() > 1 { self.taste.remove(0) } else { self.taste[0] };
        if taste == Taste::Defer && may_defer {
            let list = if self.keep_deferred { &mut self.undecided } else { &mut self.deferred };
            list.push((rx, hdr));
            return Verdict::Defer;
        }
        if taste == Taste::Duplicate {
            return Verdict::Drop(DropReason::Duplicate);
        }
        if taste == Taste::Drop && !matches!(hdr.kind, Kind::Reply { .. }) {
            return Verdict::Drop(DropReason::NoMatch);
        }
        let (place, sink) = match hdr.kind {
            Kind::Reply { dst, .. } => {
                let Some(sink) = self.gets.remove(&dst.object) else {
                    return Verdict::Drop(DropReason::BadHandle);
                };
                (sink.clone(), Sink::Spans(sink))
            }
            Kind::Get { .. } | Kind::Ack { .. } => (IoVec::new(), Sink::Spans(IoVec::new())),
            Kind::Put { .. } if taste == Taste::Bytes => {
                (IoVec::new(), Sink::Bytes(hdr.payload_len))
            }
            Kind::Put { .. } => {
                let less = if let Taste::Truncate(less) = taste { less } else { 0 };
                let place = self.alloc(hdr.payload_len.saturating_sub(less));
                (place.clone(), Sink::Spans(place))
            }
        };
        let msg = self.ids.insert(());
        self.open.insert(msg, self.received.len());
        self.lent.insert(msg, place.clone());
        self.received.push(Received { hdr, place, bytes: None, outcome: None });
        Verdict::Deliver { msg, sink }
    }

    /// Memory of a message is its owner's again.
    fn give_back(&mut self, msg: MsgId) {
        self.given_back.extend(self.lent.remove(&msg).unwrap_or_default());
    }

    /// Whether the bytes are those of the message.
    fn check(&mut self, hdr: Hdr, bytes: &[u8]) {
        let number = match hdr.kind {
            Kind::Put { match_bits, .. } => match_bits,
            Kind::Reply { dst, .. } => {
                self.got.push(dst.object);
                dst.object
            }
            _ => return,
        };
        let bad = bytes.iter().enumerate().find(|(at, b)| **b != pattern(number, *at as u64));
        if let Some((at, byte)) = bad {
            self.wrong.push(format!("{hdr}: byte {at} of {} is {byte:#x}", bytes.len()));
        }
    }

    /// The name of a delivery that is open.
    pub(crate) fn receiving(&self, at: usize) -> MsgId {
        let (msg, _) = self.open.iter().find(|(_, open)| **open == at).expect("it is open");
        *msg
    }

    /// A delivery was abandoned: its memory is its owner's again.
    pub(crate) fn forget(&mut self, msg: MsgId) {
        self.open.remove(&msg);
        self.give_back(msg);
    }

    /// How message `number` ended.
    pub(crate) fn end(&self, number: u64) -> Option<Result<(), Fault>> {
        self.ended.iter().find(|(n, _)| *n == number).map(|(_, outcome)| *outcome)
    }
}

impl Upper for StandIn {
    fn rx_header(&mut self, _now: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        self.judge(rx.id, *hdr, true)
    }

    fn rx_done(&mut self, _now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {
        let Some(at) = self.open.remove(&msg) else {
            return self.wrong.push(format!("{msg:?} received twice or unknown"));
        };
        let own = self.received[at].place.is_empty();
        self.received[at].outcome = Some(outcome.map(|_| ()));
        match outcome {
            Ok(bytes) => {
                self.received[at].bytes = own.then(|| bytes.to_vec());
                self.arrived.push(at);
            }
            Err(_) => self.received[at].bytes = Some(Vec::new()),
        }
        self.give_back(msg);
        let hdr = self.received[at].hdr;
        if let (Kind::Get { ret, match_bits, sink_len, .. }, Ok(_)) = (hdr.kind, outcome)
            && !self.silent_gets
        {
            let len = sink_len.min(self.reply_max);
            let kind = Kind::Reply { dst: ret, pad: [0; 24] };
            self.answers.push(Answer { number: match_bits, len, to: hdr.src, kind });
        }
    }

    fn rx_asked(&mut self, now: Instant, msg: MsgId) {
        self.rx_done(now, msg, Ok(&[]));
    }

    fn rx_gone(&mut self, _now: Instant, _ni: NiId, rx: RxId) {
        self.deferred.retain(|(id, _)| *id != rx);
        self.gone.insert(rx);
    }

    fn tx_done(&mut self, _now: Instant, msg: MsgId, outcome: Result<(), Fault>) {
        let Some(number) = self.out.remove(&msg) else {
            return self.wrong.push(format!("{msg:?} ended twice or unknown"));
        };
        self.give_back(msg);
        self.ended.push((number, outcome));
    }

    fn peer_down(&mut self, _now: Instant, _ni: NiId, nid: Nid, last_alive: Instant) {
        self.events.push(Event::PeerDown { nid, last_alive });
    }

    fn link_changed(&mut self, _now: Instant, _ni: NiId, link: Link) {
        self.events.push(Event::Link(link));
    }

    fn rail_changed(&mut self, _now: Instant, _ni: NiId, nid: Nid, doubt: Doubt) {
        self.events.push(Event::Rail { nid, doubt });
    }
}
