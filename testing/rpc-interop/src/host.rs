//! Our node: LNet and the request layer as values, one interface, a wire whose other end is the
//! recording.

use core::time::Duration;
use std::collections::BTreeSet;

use lnet::upper::{Arena, Below, Upper, UpperId, Uppers};
use lnet::{Event as LnetEvent, NetTunables, NiSpec, Node, NodeConfig, Output, Payload, Report};
use lnet::{Rx, Sink, Verdict};
use lnet_types::{
    Errno, Fault, HealthStatus, Instant, IoVec, Memory, MsgId, NiId, Nid, Pid, RegionId, RxId, Span,
};
use lnet_wire::ping::{Features, NiStatus, PingEntry, PingInfo};
use lnet_wire::{Hdr, Kind};
use lustre_wire::Msg;
use ptlrpc::{Config, Event, Ptlrpc, Rpc, Tunables};

/// Time at which recordings begin: late enough for whatever came before.
pub const START: Instant = Instant::from_secs(100_000);

/// An import pings this long after its last request: 25 s (P-100) by the recorded kernel's timers,
/// which run late by a fortieth, and sometimes by a second more. Pings came after 25.6 and 26.6 s.
pub const PING: Duration = Duration::from_secs(26);

#[derive(Default)]
struct Heap(Vec<Vec<u8>>);

impl Memory for Heap {
    fn bytes(&self, s: Span) -> &[u8] {
        &self.0[s.region.0 as usize][s.offset as usize..][..s.len as usize]
    }

    fn bytes_mut(&mut self, s: Span) -> &mut [u8] {
        &mut self.0[s.region.0 as usize][s.offset as usize..][..s.len as usize]
    }
}

impl Arena for Heap {
    fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        self.0.push(vec![0; len as usize]);
        Ok(RegionId(self.0.len() as u32 - 1))
    }

    fn unregister(&mut self, region: RegionId) {
        self.0[region.0 as usize] = Vec::new();
    }

    fn contains(&self, spans: &[Span]) -> bool {
        let has = |s: &Span| self.0.get(s.region.0 as usize).map_or(0, Vec::len) as u64;
        spans.iter().all(|s| s.offset + u64::from(s.len) <= has(s))
    }

    fn hold(&mut self, _: &[Span]) {}

    fn release(&mut self, _: &[Span]) {}
}

struct Party {
    ptlrpc: Ptlrpc,
    events: Vec<Event>,
}

impl Party {
    fn drain(&mut self, below: &mut Below<'_>) {
        while let Some(event) = self.ptlrpc.poll_event() {
            match event {
                // The program stores records of clients at once.
                Event::Joining { export, .. } => self.ptlrpc.rpc(below).admit(export, Ok(())),
                event => {
                    if let Event::Disconnected { export, .. } = event {
                        self.ptlrpc.rpc(below).left(export);
                    }
                    self.events.push(event);
                }
            }
        }
    }
}

impl Upper for Party {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.drain(below);
    }

    fn report(&mut self, report: &Report, below: &mut Below<'_>) {
        self.ptlrpc.report(report, below);
        self.drain(below);
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ptlrpc.poll_timeout()
    }
}

/// A message that our node has sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// Header.
    pub hdr: Hdr,
    /// Payload.
    pub payload: Vec<u8>,
    /// It was sent to a server that was dead, or not reached.
    pub unheard: bool,
}

/// Our node.
pub struct Host {
    node: Node,
    ni: NiId,
    heap: Heap,
    uppers: Uppers,
    upper: UpperId,
    rx: u64,
    /// Connections that are silent, by the handle in their requests, and what was sent over them.
    silent: BTreeSet<u64>,
    held: Vec<(MsgId, Sent)>,
    /// The time.
    pub now: Instant,
    /// What the node has sent and the caller has not taken.
    pub sent: Vec<Sent>,
}

impl Host {
    /// A node with this NID, at [`START`] less what may come before.
    ///
    /// # Panics
    /// A NID that can't be an interface's.
    pub fn new(nid: Nid, seed: u64, now: Instant, rpc: Tunables) -> Self {
        // Discovery is a subject of the captures of LNet, and so are its resends.
        let kernel = lnet::Tunables::new(lnet::Profile::Kernel);
        let tunables = lnet::Tunables { discovery: 0, retry_count: 0, ..kernel };
        let config = NodeConfig { seed, interface_cookie: seed, ping_seq: 0, tunables };
        let mut node = Node::new(config, now);
        let interface = Some("eth0".to_owned());
        // One dead target's messages don't keep those of another of the same node waiting, as they
        // leave at times of their own here.
        let tunables = NetTunables { peer_credits: 256, ..NetTunables::SOCK };
        let spec = NiSpec { nid, interface, tunables, lnd_timeout: None };
        let ni = node.add_ni(now, spec).expect("an interface");
        let mut uppers = Uppers::default();
        let wall_secs = 1_795_000_000 + seed;
        let config = Config { seed, wall_secs, tunables: rpc };
        let party = Party { ptlrpc: Ptlrpc::new(config), events: Vec::new() };
        let upper = uppers.add(Box::new(party)).expect("an upper");
        Self {
            node,
            ni,
            heap: Heap::default(),
            uppers,
            upper,
            rx: 0,
            silent: BTreeSet::new(),
            held: Vec::new(),
            now,
            sent: Vec::new(),
        }
    }

    /// Calls the request layer as its program.
    ///
    /// # Panics
    /// Never: the upper is there.
    pub fn rpc<R>(&mut self, f: impl FnOnce(&mut Rpc<'_, '_>) -> R) -> R {
        let Self { node, heap, uppers, upper, now, .. } = self;
        let result = uppers.with(*upper, *now, node, heap, |party: &mut Party, below| {
            let result = f(&mut party.ptlrpc.rpc(below));
            party.drain(below);
            result
        });
        let result = result.expect("the upper");
        self.settle();
        result
    }

    /// Looks at the request layer.
    ///
    /// # Panics
    /// Never: the upper is there.
    pub fn look<R>(&mut self, f: impl FnOnce(&Ptlrpc) -> R) -> R {
        let Self { node, heap, uppers, upper, now, .. } = self;
        let result = uppers.with(*upper, *now, node, heap, |party: &mut Party, _| f(&party.ptlrpc));
        result.expect("the upper")
    }

    /// What the request layer has reported since the last call.
    ///
    /// # Panics
    /// Never: the upper is there.
    pub fn events(&mut self) -> Vec<Event> {
        let Self { node, heap, uppers, upper, now, .. } = self;
        let take = |party: &mut Party, _: &mut Below<'_>| core::mem::take(&mut party.events);
        uppers.with(*upper, *now, node, heap, take).expect("the upper")
    }

    /// Memory of the program with these bytes.
    pub fn memory(&mut self, bytes: Vec<u8>) -> IoVec {
        let len = bytes.len() as u32;
        self.heap.0.push(bytes);
        let region = RegionId(self.heap.0.len() as u32 - 1);
        IoVec::from([Span { region, len, offset: 0 }])
    }

    /// The bytes of memory.
    pub fn bytes(&self, memory: &IoVec) -> Vec<u8> {
        memory.iter().flat_map(|span| self.heap.bytes(*span).to_vec()).collect()
    }

    /// A message arrives. `Err` says why LNet dropped it.
    ///
    /// # Errors
    /// The reason of the drop.
    pub fn arrive(&mut self, hdr: &Hdr, payload: &[u8]) -> Result<(), String> {
        let result = self.receive(hdr, payload);
        self.settle();
        result
    }

    fn receive(&mut self, hdr: &Hdr, payload: &[u8]) -> Result<(), String> {
        self.rx += 1;
        let id = RxId(self.rx);
        let rx = Rx { ni: self.ni, from: hdr.src, from_pid: Pid::LUSTRE, peer_ni: None, id };
        let verdict = self.node.rx_header(self.now, rx, hdr);
        match verdict {
            Verdict::Deliver { msg, sink: Sink::Spans(iov) } => {
                let mut rest = payload;
                for span in iov {
                    let (part, later) = rest.split_at(rest.len().min(span.len as usize));
                    let span = Span { len: part.len() as u32, ..span };
                    self.heap.bytes_mut(span).copy_from_slice(part);
                    rest = later;
                }
                self.node.rx_done(self.now, msg, Ok(&[]));
                Ok(())
            }
            Verdict::Deliver { msg, sink: Sink::Bytes(_) } => {
                self.node.rx_done(self.now, msg, Ok(payload));
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    }

    fn settle(&mut self) {
        loop {
            self.settle_once();
            // Discovery is a subject of the captures of LNet: peers here have one interface.
            let is_ping = |sent: &Sent| matches!(sent.hdr.kind, Kind::Get { portal: 0, .. });
            let Some(ping) = self.sent.iter().position(is_ping) else { return };
            let hdr = self.sent.remove(ping).hdr;
            self.answer_ping(&hdr);
        }
    }

    fn answer_ping(&mut self, ping: &Hdr) {
        let Kind::Get { ret, .. } = ping.kind else { return };
        let entry = |nid| PingEntry { nid, status: NiStatus::UP };
        let info = PingInfo {
            features: Features::BASE | Features::NI_STATUS,
            pid: Pid::LUSTRE,
            seq: 1,
            entries: vec![entry(Nid::LOOPBACK), entry(ping.dst)],
        };
        let bytes = info.emit();
        let hdr = Hdr {
            dst: ping.src,
            src: ping.dst,
            payload_len: bytes.len() as u32,
            kind: Kind::Reply { dst: ret, pad: [0; 24] },
            ..*ping
        };
        self.receive(&hdr, &bytes).expect("an answer to a ping");
    }

    fn settle_once(&mut self) {
        let Self { node, heap, uppers, now, sent, silent, held, .. } = self;
        loop {
            let mut more = false;
            while let Some(event) = node.poll_event() {
                uppers.event(*now, &event, node, heap);
                more = true;
            }
            while let Some(report) = node.poll_report() {
                uppers.report(*now, &report, node, heap);
                more = true;
            }
            while let Some(output) = node.poll_output() {
                more = true;
                let Output::Send(transmit) = output else { continue };
                let payload = match &transmit.payload {
                    Payload::Spans(iov) => {
                        iov.iter().flat_map(|span| heap.bytes(*span).to_vec()).collect()
                    }
                    Payload::Bytes(bytes) => bytes.to_vec(),
                };
                let unheard = !silent.is_empty()
                    && handle_of(&payload).is_some_and(|handle| silent.contains(&handle));
                let message = Sent { at: *now, hdr: transmit.hdr, payload, unheard };
                if unheard {
                    held.push((transmit.msg, message.clone()));
                } else {
                    node.tx_done(*now, transmit.msg, Ok(()));
                }
                sent.push(message);
            }
            if !more {
                return;
            }
        }
    }

    /// Requests with this handle reach no server from now on, or do again: what was sent last has
    /// just arrived.
    pub fn silence(&mut self, handle: u64, silent: bool) {
        if silent {
            self.silent.insert(handle);
        } else if self.silent.remove(&handle) {
            self.end_held(handle, Ok(()));
        }
    }

    /// LNet finds out that it can't deliver what was sent with this handle.
    pub fn fail(&mut self, handle: u64) {
        let (status, errno) = (HealthStatus::RemoteTimeout, Errno::ETIMEDOUT);
        self.end_held(handle, Err(Fault { status, errno }));
    }

    fn end_held(&mut self, handle: u64, outcome: Result<(), Fault>) {
        let (ends, held) = core::mem::take(&mut self.held)
            .into_iter()
            .partition::<Vec<_>, _>(|(_, sent)| handle_of(&sent.payload) == Some(handle));
        self.held = held;
        for (msg, _) in ends {
            self.node.tx_done(self.now, msg, outcome);
        }
        // What follows at once, with its timers.
        self.run(self.now, |_| false);
    }

    /// Lets time pass, up to `end` or until `done`.
    pub fn run(&mut self, end: Instant, mut done: impl FnMut(&Self) -> bool) {
        loop {
            self.settle();
            if done(self) {
                return;
            }
            let due = [self.node.poll_timeout(), self.uppers.poll_timeout()];
            let Some(next) = due.into_iter().flatten().min().filter(|next| *next <= end) else {
                self.now = end.max(self.now);
                return;
            };
            self.now = next.max(self.now);
            self.node.handle_timeout(self.now);
            self.uppers.handle_timeout(self.now, &mut self.node, &mut self.heap);
        }
    }
}

/// The handle in a request.
fn handle_of(payload: &[u8]) -> Option<u64> {
    Some(Msg::parse(payload).ok()?.body().ok()?.handle)
}

/// A time of the recording as one of the node.
pub fn instant(at: Duration) -> Instant {
    START + at
}
