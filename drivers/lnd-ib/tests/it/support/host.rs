//! A host: an interface, memory, and a stand-in for the node, which takes what comes and insists that
//! each message ends once.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;
use lnd_ib::{Access, ConnId, Event, IbConfig, IbNi, Landed, MapId, MapMemory, NiStart, Order};
use lnet::{
    DropReason, NetTunables, NiSpec, Node, NodeConfig, Payload, Profile, Rx, Sink, Transmit,
    Tunables, Verdict,
};
use lnet_types::{Fault, Instant, IoVec, MsgId, NiId, Nid, Pid, ProcessId, RegionId, RxId, Span};
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
    Defer,
}

/// Memory that the adapter reaches.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    pub(crate) spans: IoVec,
    pub(crate) buffer: Vec<u8>,
    pub(crate) is_buffer: bool,
    pub(crate) access: Access,
    pub(crate) key: u32,
    /// Address of each fragment.
    pub(crate) at: u64,
    pub(crate) live: bool,
    /// The connection on which its key was announced.
    pub(crate) announced: Option<ConnId>,
}

/// A received PUT or REPLY.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) hdr: Hdr,
    pub(crate) place: IoVec,
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) outcome: Option<Result<(), Fault>>,
}

pub(crate) struct Host {
    pub(crate) ib: IbNi,
    pub(crate) nid: Nid,
    pub(crate) mem: Vec<u8>,
    next: usize,
    pub(crate) maps: BTreeMap<MapId, Mapped>,
    pub(crate) taste: Vec<Taste>,
    ids: SlotMap<MsgId, ()>,
    /// Messages in the driver's hands.
    pub(crate) out: BTreeMap<MsgId, u64>,
    pub(crate) ended: Vec<(u64, Result<(), Fault>)>,
    /// Places that are over: by first byte, their end.
    pub(crate) over: BTreeMap<u64, u64>,
    /// Memory of each message under way.
    pub(crate) lent: BTreeMap<MsgId, IoVec>,
    pub(crate) received: Vec<Received>,
    open: BTreeMap<MsgId, usize>,
    /// GETs of ours, by their number: where the data go.
    gets: BTreeMap<u64, IoVec>,
    pub(crate) deferred: Vec<(RxId, Hdr)>,
    pub(crate) gone: BTreeSet<RxId>,
    pub(crate) events: Vec<Event>,
    /// Numbers of GETs whose data were right.
    pub(crate) got: Vec<u64>,
    /// Whether GETs name their sink.
    pub(crate) rdma_get: bool,
    /// Bytes of a REPLY, at most.
    pub(crate) reply_max: u32,
    /// GETs are matched, but never answered.
    pub(crate) silent_gets: bool,
    pub(crate) wrong: Vec<String>,
    /// A node in the place of the stand-in, with its name for the interface.
    pub(crate) node: Option<(Node, NiId)>,
}

/// The byte at `at` of message `number`.
pub(crate) fn pattern(number: u64, at: u64) -> u8 {
    (number.wrapping_mul(131) ^ at.wrapping_mul(7) ^ (at >> 8)) as u8
}

impl Host {
    pub(crate) fn new(nid: &str, incarnation: u64, config: IbConfig) -> Self {
        let nid: Nid = nid.parse().expect("a NID");
        let start = NiStart { ni: NiId::default(), nid, incarnation };
        Self {
            ib: IbNi::new(config, start).expect("good settings"),
            nid,
            mem: vec![0; MEM],
            next: 0,
            maps: BTreeMap::new(),
            taste: vec![Taste::Keep],
            ids: SlotMap::with_key(),
            out: BTreeMap::new(),
            ended: Vec::new(),
            over: BTreeMap::new(),
            lent: BTreeMap::new(),
            received: Vec::new(),
            open: BTreeMap::new(),
            gets: BTreeMap::new(),
            deferred: Vec::new(),
            gone: BTreeSet::new(),
            events: Vec::new(),
            got: Vec::new(),
            rdma_get: true,
            reply_max: u32::MAX,
            silent_gets: false,
            wrong: Vec::new(),
            node: None,
        }
    }

    /// A host with a node of its own.
    pub(crate) fn with_node(nid: &str, incarnation: u64, config: IbConfig) -> Self {
        let mut host = Self::new(nid, incarnation, config.clone());
        let node = NodeConfig {
            seed: incarnation,
            interface_cookie: incarnation,
            ping_seq: 0,
            tunables: Tunables::new(Profile::Default),
        };
        let mut node = Node::new(node, Instant::ZERO);
        let tunables = NetTunables { peer_credits: 8, credits: 256, ..NetTunables::default() };
        let spec = NiSpec { nid: host.nid, interface: None, tunables, lnd_timeout: None };
        let ni = node.add_ni(Instant::ZERO, spec).expect("an interface");
        let start = NiStart { ni, nid: host.nid, incarnation };
        host.ib = IbNi::new(config, start).expect("good settings");
        host.node = Some((node, ni));
        host
    }

    /// Carries what the node wants to its interface; whether there was anything.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        let Some((node, _)) = &mut self.node else { return false };
        let mut any = false;
        while let Some(output) = node.poll_output() {
            any = true;
            match output {
                lnet::Output::Send(transmit) => {
                    let msg = transmit.msg;
                    if let Err(fault) = self.ib.send(now, Order { transmit, sink: IoVec::new() }) {
                        node.tx_refused(now, msg, fault);
                    }
                }
                lnet::Output::Resume { rx, verdict, .. } => self.ib.verdict(now, rx, verdict),
                _ => {}
            }
        }
        any
    }

    /// A report of the interface goes to the node.
    fn pass_on(&mut self, now: Instant, event: &Event, slot: &[u8]) {
        let Some((node, ni)) = &mut self.node else { return };
        match event {
            Event::Header { rx, hdr } => {
                let verdict = node.rx_header(now, *rx, hdr);
                self.ib.verdict(now, rx.id, verdict);
            }
            Event::RxDone { msg, outcome } => {
                let bytes = match outcome {
                    Ok(Landed::Slot { at, len, .. }) => &slot[*at..*at + *len as usize],
                    Ok(Landed::Buffer(map)) => &self.maps[map].buffer[..],
                    _ => &[],
                };
                node.rx_done(now, *msg, outcome.map(|_| bytes));
            }
            Event::RxGone { rx } => node.rx_gone(now, *ni, *rx),
            Event::TxDone { msg, outcome } => node.tx_done(now, *msg, *outcome),
            Event::PeerDown { nid, last_alive } => node.peer_down(now, *ni, *nid, *last_alive),
            Event::Link(link) => node.link_changed(now, *ni, *link),
            _ => {}
        }
    }

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

    pub(crate) fn bytes(&self, spans: &[Span]) -> Vec<u8> {
        let of = |s: &Span| self.mem[s.offset as usize..][..s.len as usize].to_vec();
        spans.iter().flat_map(of).collect()
    }

    pub(crate) fn write(&mut self, spans: &[Span], mut bytes: &[u8]) {
        for span in spans {
            let (now, rest) = bytes.split_at(bytes.len().min(span.len as usize));
            self.mem[span.offset as usize..][..now.len()].copy_from_slice(now);
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
        let msg = self.ids.insert(());
        let memory: IoVec = payload.iter().chain(&sink).copied().collect();
        let transmit = Transmit {
            msg,
            ni: NiId::default(),
            to: ProcessId { nid: hdr.dst, pid: Pid::LUSTRE },
            peer_ni: None,
            hdr,
            payload: Payload::Spans(payload),
            timeout,
            retention: None,
            repeats: false,
        };
        self.ib.send(now, Order { transmit, sink })?;
        self.out.insert(msg, number);
        self.lent.insert(msg, memory);
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
        self.gets.insert(number, sink.clone());
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

    /// The node's verdict on a header.
    pub(crate) fn judge(&mut self, now: Instant, rx: RxId, hdr: Hdr, may_defer: bool) {
        let taste = if self.taste.len() > 1 { self.taste.remove(0) } else { self.taste[0] };
        if taste == Taste::Defer && may_defer {
            self.deferred.push((rx, hdr));
            return self.ib.verdict(now, rx, Verdict::Defer);
        }
        if taste == Taste::Drop && !matches!(hdr.kind, Kind::Reply { .. }) {
            return self.ib.verdict(now, rx, Verdict::Drop(DropReason::NoMatch));
        }
        let (place, sink) = match hdr.kind {
            Kind::Reply { dst, .. } => {
                let Some(sink) = self.gets.remove(&dst.object) else {
                    return self.ib.verdict(now, rx, Verdict::Drop(DropReason::BadHandle));
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
        self.ib.verdict(now, rx, Verdict::Deliver { msg, sink });
    }

    /// Memory of a message is its owner's again.
    fn give_back(&mut self, msg: MsgId) {
        for span in self.lent.remove(&msg).unwrap_or_default() {
            self.over.insert(span.offset, span.offset + u64::from(span.len));
        }
    }

    /// What the interface reports; `slot` holds the receive buffer that it names.
    pub(crate) fn event(&mut self, now: Instant, event: Event, slot: &[u8]) {
        if self.node.is_some() {
            self.pass_on(now, &event, slot);
            return self.events.push(event);
        }
        match event {
            Event::Header { rx: Rx { id, .. }, hdr } => self.judge(now, id, hdr, true),
            Event::RxDone { msg, outcome } => {
                let Some(at) = self.open.remove(&msg) else {
                    return self.wrong.push(format!("{msg:?} received twice or unknown"));
                };
                let bytes = match outcome {
                    Ok(Landed::InPlace) => {
                        let mut bytes = self.bytes(&self.received[at].place);
                        bytes.truncate(self.received[at].hdr.payload_len as usize);
                        bytes
                    }
                    Ok(Landed::Slot { at, len, .. }) => {
                        slot.get(at..at + len as usize).unwrap_or_default().to_vec()
                    }
                    Ok(Landed::Buffer(map)) => self.maps[&map].buffer.clone(),
                    Err(_) => Vec::new(),
                };
                self.give_back(msg);
                let received = &mut self.received[at];
                received.outcome = Some(outcome.map(|_| ()));
                let hdr = received.hdr;
                if outcome.is_ok() {
                    self.check(hdr, &bytes);
                }
                self.received[at].bytes = Some(bytes);
                if let (Kind::Get { ret, match_bits, sink_len, .. }, Ok(_)) = (hdr.kind, outcome)
                    && !self.silent_gets
                {
                    let len = sink_len.min(self.reply_max);
                    let payload = self.filled(match_bits, len);
                    let kind = Kind::Reply { dst: ret, pad: [0; 24] };
                    let reply = self.hdr(hdr.src, len, kind);
                    let limit = Duration::from_secs(50);
                    let _ = self.order(now, match_bits, reply, payload, IoVec::new(), limit);
                }
            }
            Event::RxGone { rx } => {
                self.deferred.retain(|(id, _)| *id != rx);
                self.gone.insert(rx);
            }
            Event::TxDone { msg, outcome } => {
                let Some(number) = self.out.remove(&msg) else {
                    return self.wrong.push(format!("{msg:?} ended twice or unknown"));
                };
                self.give_back(msg);
                self.ended.push((number, outcome));
            }
            other => self.events.push(other),
        }
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

    /// How message `number` ended.
    pub(crate) fn end(&self, number: u64) -> Option<Result<(), Fault>> {
        self.ended.iter().find(|(n, _)| *n == number).map(|(_, outcome)| *outcome)
    }

    /// A new mapping.
    pub(crate) fn map(&mut self, map: MapId, memory: MapMemory, access: Access) -> (u32, u64, u32) {
        let key = 0x100 + map.0 as u32 * 7;
        let at = 0x1000_0000 * (map.0 + 1);
        let (spans, buffer, is_buffer) = match memory {
            MapMemory::Spans(spans) | MapMemory::Payload(Payload::Spans(spans)) => {
                (spans, Vec::new(), false)
            }
            MapMemory::Payload(Payload::Bytes(bytes)) => (IoVec::new(), bytes.to_vec(), true),
            MapMemory::Buffer(len) => (IoVec::new(), vec![0; len as usize], true),
        };
        let len = if is_buffer { buffer.len() } else { spans.iter().map(|s| s.len as usize).sum() };
        let mapped =
            Mapped { spans, buffer, is_buffer, access, key, at, live: true, announced: None };
        self.maps.insert(map, mapped);
        (key, at, len as u32)
    }
}
