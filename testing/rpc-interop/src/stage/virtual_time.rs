//! A node in virtual time: LNet and the request layer as values, one interface.

use core::time::Duration;
use std::collections::BTreeSet;

use lnet::upper::{Arena, Below, UpperId, Uppers};
use lnet::{NetTunables, NiSpec, Node, NodeConfig, Output, Payload, Rx, Sink, Verdict};
use lnet_types::{
    Errno, Fault, HealthStatus, Instant, IoVec, Memory, MsgId, NiId, Nid, Pid, RegionId, RxId, Span,
};
use lnet_wire::{Hdr, Kind};
use lustre_wire::Msg;
use ptlrpc::{Event, Ptlrpc, Rpc, Tunables};

use super::{Party, START, Sent, Stage, lnet_tunables, pong};

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

/// A node in virtual time.
pub struct VirtualTime {
    nid: Nid,
    tunables: Tunables,
    node: Node,
    ni: NiId,
    heap: Heap,
    uppers: Uppers,
    upper: UpperId,
    rx: u64,
    /// Connections that are silent, by the handle in their requests, and what was sent over them.
    silent: BTreeSet<u64>,
    held: Vec<(MsgId, Sent)>,
    now: Instant,
    sent: Vec<Sent>,
}

impl VirtualTime {
    /// A node with this NID.
    pub fn new(nid: Nid, tunables: Tunables) -> Self {
        Self::at(nid, 7, START, tunables)
    }

    fn at(nid: Nid, seed: u64, now: Instant, rpc: Tunables) -> Self {
        let tunables = lnet_tunables();
        let config = NodeConfig { seed, interface_cookie: seed, ping_seq: 0, tunables };
        let mut node = Node::new(config, now);
        let interface = Some("eth0".to_owned());
        // One dead target's messages don't keep those of another of the same node waiting, as they
        // leave at times of their own here.
        let tunables = NetTunables { peer_credits: 256, ..NetTunables::SOCK };
        let spec = NiSpec { nid, interface, tunables, lnd_timeout: None };
        let ni = node.add_ni(now, spec).expect("an interface");
        let mut uppers = Uppers::default();
        let upper = uppers.add(Box::new(Party::new(seed, rpc.clone()))).expect("an upper");
        Self {
            nid,
            tunables: rpc,
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
            if let Some((hdr, payload)) = pong(&hdr) {
                self.receive(&hdr, &payload).expect("an answer to a ping");
            }
        }
    }

    fn settle_once(&mut self) {
        let Self { node, heap, uppers, now, sent, silent, held, .. } = self;
        loop {
            let mut more = false;
            while let Some(mut event) = node.poll_event() {
                uppers.event(*now, &mut event, node, heap);
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
    fn run(&mut self, end: Instant, mut done: impl FnMut(&Self) -> bool) {
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

impl Stage for VirtualTime {
    const PATIENCE: Duration = Duration::from_secs(6);
    const TIMED: bool = true;

    fn begin(&mut self, now: Instant) {
        *self = Self::at(self.nid, 7, now, self.tunables.clone());
    }

    fn restart(&mut self) {
        *self = Self::at(self.nid, 8, self.now, self.tunables.clone());
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn rpc<R>(&mut self, f: impl FnOnce(&mut Rpc<'_, '_>) -> R) -> R {
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

    fn look<R>(&mut self, f: impl FnOnce(&Ptlrpc) -> R) -> R {
        let Self { node, heap, uppers, upper, now, .. } = self;
        let result = uppers.with(*upper, *now, node, heap, |party: &mut Party, _| f(&party.ptlrpc));
        result.expect("the upper")
    }

    fn events(&mut self) -> Vec<Event> {
        let Self { node, heap, uppers, upper, now, .. } = self;
        let take = |party: &mut Party, _: &mut Below<'_>| core::mem::take(&mut party.events);
        uppers.with(*upper, *now, node, heap, take).expect("the upper")
    }

    fn sent(&mut self) -> &mut Vec<Sent> {
        &mut self.sent
    }

    fn memory(&mut self, bytes: Vec<u8>) -> IoVec {
        let len = bytes.len() as u32;
        self.heap.0.push(bytes);
        let region = RegionId(self.heap.0.len() as u32 - 1);
        IoVec::from([Span { region, len, offset: 0 }])
    }

    fn arrive(&mut self, hdr: &Hdr, payload: &[u8]) -> Result<(), String> {
        let result = self.receive(hdr, payload);
        self.settle();
        result
    }

    fn wait(&mut self, end: Instant) {
        self.run(end, |host| !host.sent.is_empty());
    }

    fn pass(&mut self, end: Instant) {
        if end > self.now {
            self.run(end, |_| false);
        }
    }

    fn silence(&mut self, handle: u64, silent: bool) {
        if silent {
            self.silent.insert(handle);
        } else if self.silent.remove(&handle) {
            // What was sent last has just arrived.
            self.end_held(handle, Ok(()));
        }
    }

    fn fail(&mut self, handle: u64) {
        let (status, errno) = (HealthStatus::RemoteTimeout, Errno::ETIMEDOUT);
        self.end_held(handle, Err(Fault { status, errno }));
    }
}
