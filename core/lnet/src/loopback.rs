//! The driver of `0@lo`: a message to the node itself goes straight back in (behaviour.md 9.1).

use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Fault, Instant, Memory, NiId, Nid, Pid, RxId, Span};

use core::time::Duration;

use crate::{Driver, Node, Payload, Ready, Rx, Sink, Transmit, Verdict};

/// The loopback driver. Pure: it needs nothing but the memory that it copies within.
#[derive(Debug, Default)]
pub struct Loopback {
    queue: VecDeque<Transmit>,
    /// Messages whose reception the node has deferred.
    deferred: BTreeMap<RxId, Transmit>,
    next: u64,
    scratch: Vec<u8>,
}

impl Loopback {
    /// A loopback driver with nothing in hand.
    pub fn new() -> Self {
        Self::default()
    }

    /// L-1: the receiving side is done first, then the sending side.
    fn deliver(
        &mut self,
        now: Instant,
        t: Transmit,
        rx: RxId,
        verdict: Verdict,
        node: &mut Node,
        mem: &mut dyn Memory,
    ) {
        match verdict {
            Verdict::Deliver { msg, sink: Sink::Spans(iov) } => {
                self.copy(&t.payload, usize::MAX, mem);
                let mut rest = self.scratch.as_slice();
                for span in iov {
                    let n = rest.len().min(span.len as usize);
                    let (now_part, later) = rest.split_at(n);
                    mem.bytes_mut(Span { len: n as u32, ..span }).copy_from_slice(now_part);
                    rest = later;
                }
                node.rx_done(now, msg, Ok(&[]));
            }
            Verdict::Deliver { msg, sink: Sink::Bytes(max) } => {
                self.copy(&t.payload, max as usize, mem);
                node.rx_done(now, msg, Ok(&self.scratch));
            }
            Verdict::Defer => {
                self.deferred.insert(rx, t);
                return;
            }
            Verdict::Drop(_) | Verdict::Close(_) => {}
        }
        node.tx_done(now, t.msg, Ok(()));
    }

    fn copy(&mut self, payload: &Payload, max: usize, mem: &dyn Memory) {
        self.scratch.clear();
        match payload {
            Payload::Spans(iov) => {
                for span in iov {
                    self.scratch.extend_from_slice(mem.bytes(*span));
                }
            }
            Payload::Bytes(b) => self.scratch.extend_from_slice(b),
        }
        self.scratch.truncate(max);
    }
}

impl Driver for Loopback {
    fn turn(
        &mut self,
        _now: Instant,
        _ready: &[Ready],
        _spin: bool,
        _node: &mut Node,
        _mem: &mut dyn Memory,
    ) {
    }

    fn send(&mut self, _now: Instant, transmit: &Transmit, _mem: &dyn Memory) -> Result<(), Fault> {
        self.queue.push_back(transmit.clone());
        Ok(())
    }

    fn resume(
        &mut self,
        now: Instant,
        rx: RxId,
        verdict: Verdict,
        node: &mut Node,
        mem: &mut dyn Memory,
    ) {
        if let Some(t) = self.deferred.remove(&rx) {
            self.deliver(now, t, rx, verdict, node, mem);
        }
    }

    fn flush(&mut self, now: Instant, node: &mut Node, mem: &mut dyn Memory) {
        while let Some(t) = self.queue.pop_front() {
            self.next += 1;
            let id = RxId(self.next);
            let rx = Rx { ni: t.ni, from: Nid::LOOPBACK, from_pid: Pid::LUSTRE, peer_ni: None, id };
            let verdict = node.rx_header(now, rx, &t.hdr);
            self.deliver(now, t, id, verdict, node, mem);
        }
    }

    fn handle_timeout(&mut self, _now: Instant, _node: &mut Node, _mem: &mut dyn Memory) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn ni_stop(&mut self, now: Instant, _ni: NiId, node: &mut Node, _mem: &mut dyn Memory) {
        let deferred = core::mem::take(&mut self.deferred);
        for t in self.queue.drain(..).chain(deferred.into_values()) {
            node.tx_done(now, t.msg, Err(crate::NI_STOPPED));
        }
    }

    fn lnd_timeout(&self, _ni: NiId) -> Option<Duration> {
        None
    }
}
