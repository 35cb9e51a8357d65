//! One interface with its adapter: carries out what [`IbNi`] decides, and brings it what the adapter
//! reports. It decides nothing. `driver.rs` has the list of them that a node uses.

use std::collections::BTreeMap;

use lnet::{Rx, Transmit};
use lnet_types::{Errno, Fault, Instant, Memory, MsgId, RxId, Span};

use crate::adapter::{Adapter, Fact};
use crate::device::DeviceEvent;
use crate::ni::IbNi;
use crate::upper::Upper;
use crate::value::{ConnId, Event, Landed, Output};

/// See the module's head.
#[derive(Debug)]
pub struct Port<A> {
    /// What decides.
    pub ib: IbNi,
    /// What carries out.
    pub adapter: A,
    /// Added to the names of received messages, so that those of several ports differ.
    names_from: u64,
    /// Payload of deferred messages whose connection has ended.
    kept: BTreeMap<RxId, Vec<u8>>,
}

/// Bits of the name of a received message that count messages; the others name the port.
const COUNTED: u32 = 48;

impl<A: Adapter> Port<A> {
    /// A port, the `number`th of its driver.
    pub const fn new(ib: IbNi, adapter: A, number: u16) -> Self {
        let names_from = (number as u64) << COUNTED;
        Self { ib, adapter, names_from, kept: BTreeMap::new() }
    }

    /// The number of the port that named a received message.
    pub(crate) const fn number_of(rx: RxId) -> u64 {
        rx.0 >> COUNTED
    }

    /// The interface's own name of a received message.
    const fn inner(rx: RxId) -> RxId {
        RxId(rx.0 & ((1 << COUNTED) - 1))
    }

    /// Takes a message.
    ///
    /// # Errors
    /// As [`IbNi::send`].
    pub fn send(&mut self, now: Instant, transmit: Transmit) -> Result<(), Fault> {
        self.ib.send(now, transmit)
    }

    /// Carries out the verdict on a deferred message.
    pub fn verdict(&mut self, now: Instant, rx: RxId, verdict: lnet::Verdict) {
        self.ib.verdict(now, Self::inner(rx), verdict);
    }

    /// Forgets that `msg` is being received, and makes its memory unreachable before it returns.
    pub fn abandon(&mut self, now: Instant, msg: MsgId) {
        if let Some(map) = self.ib.abandon(now, msg) {
            self.adapter.revoke(map);
        }
    }

    /// Ends the exchange of a GET, and makes its memory unreachable before it returns.
    pub fn withdraw(&mut self, now: Instant, msg: MsgId) {
        if let Some(map) = self.ib.withdraw(now, msg) {
            self.adapter.revoke(map);
        }
    }

    /// Does what is ready. Receive buffers whose messages are done stay with this side until
    /// [`Port::flush`], so that answers of the node go ahead of the credits for them.
    pub fn turn<U: Upper + ?Sized>(&mut self, now: Instant, up: &mut U, mem: &mut dyn Memory) {
        loop {
            while let Some(output) = self.ib.poll_decided() {
                self.carry_out(now, output, up, mem);
            }
            let Some(fact) = self.adapter.poll() else { return };
            self.take(now, fact);
        }
    }

    /// Does everything that is left to do.
    pub fn flush<U: Upper + ?Sized>(&mut self, now: Instant, up: &mut U, mem: &mut dyn Memory) {
        loop {
            self.turn(now, up, mem);
            let Some(output) = self.ib.poll_output() else { return };
            self.carry_out(now, output, up, mem);
        }
    }

    /// Ends everything: behind this call the adapter reaches no memory of this interface, and all
    /// messages have been reported.
    pub fn stop<U: Upper + ?Sized>(&mut self, now: Instant, up: &mut U, mem: &mut dyn Memory) {
        self.ib.stop(now);
        self.turn(now, up, mem);
        self.ib.destroy_all(now);
        self.flush(now, up, mem);
    }

    fn take(&mut self, now: Instant, fact: Fact) {
        let Self { ib, adapter, .. } = self;
        match fact {
            Fact::Cm { conn, event } => ib.cm_event(now, conn, event.event()),
            Fact::Request { request, private } => ib.connect_request(now, request, &private),
            Fact::Received { conn, slot, outcome } => {
                let bytes = adapter.slot(conn, slot);
                let outcome = outcome.and_then(|len| bytes.get(..len).ok_or(()));
                ib.received(now, conn, slot, outcome);
            }
            Fact::Done { work, outcome, .. } => ib.work_done(now, work, outcome),
            Fact::Device(event) => ib.device_event(now, event),
        }
    }

    fn carry_out<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        output: Output,
        up: &mut U,
        mem: &mut dyn Memory,
    ) {
        match output {
            Output::Cm(call) => self.adapter.cm(now, call),
            Output::Receive { conn, slot } => self.adapter.receive(now, conn, slot),
            Output::Post(post) => self.adapter.post(now, post, mem),
            Output::Map { map, memory, access } => {
                let outcome = self.adapter.map(map, memory, access, mem);
                self.ib.mapped(now, map, outcome);
            }
            Output::Unmap { map } => self.adapter.unmap(map),
            Output::Copy { conn, slot, at, len, to } => {
                // The interface has held `len` against what the buffer has.
                scatter(part(&self.adapter, conn, slot, at, len).unwrap_or_default(), &to, mem);
            }
            Output::Keep { rx, conn, slot, at, len } => {
                let bytes = part(&self.adapter, conn, slot, at, len).unwrap_or_default();
                self.kept.insert(rx, bytes.to_vec());
            }
            Output::Release { rx, to } => {
                let bytes = self.kept.remove(&rx).unwrap_or_default();
                scatter(&bytes, &to, mem);
            }
            Output::Scatter { map, to } => scatter(self.adapter.buffer(map), &to, mem),
            Output::Look => {
                if !self.adapter.is_there() {
                    self.ib.device_event(now, DeviceEvent::Removed);
                }
            }
            Output::Reopen => {
                if self.adapter.reopen(now).is_ok() {
                    self.ib.reopened(now);
                }
            }
            Output::Event(event) => self.report(now, event, up),
        }
    }

    fn report<U: Upper + ?Sized>(&mut self, now: Instant, event: Event, up: &mut U) {
        let ni = self.ib.ni();
        let name = |rx: RxId| RxId(rx.0 | self.names_from);
        match event {
            Event::Header { rx, hdr } => {
                let verdict = up.rx_header(now, Rx { id: name(rx.id), ..rx }, &hdr);
                self.ib.verdict(now, rx.id, verdict);
            }
            Event::Asked { msg } => up.rx_asked(now, msg),
            Event::RxDone { msg, outcome } => {
                let outcome = outcome.and_then(|landed| match landed {
                    Landed::InPlace => Ok(&[][..]),
                    Landed::Slot { conn, slot, at, len } => {
                        part(&self.adapter, conn, slot, at, len).ok_or(NOT_THERE)
                    }
                    Landed::Buffer(map) => Ok(self.adapter.buffer(map)),
                    Landed::Kept { rx, len } => {
                        let kept = self.kept.get(&rx).and_then(|bytes| bytes.get(..len as usize));
                        kept.ok_or(NOT_THERE)
                    }
                });
                up.rx_done(now, msg, outcome);
            }
            Event::RxGone { rx } => up.rx_gone(now, ni, name(rx)),
            Event::TxDone { msg, outcome } => up.tx_done(now, msg, outcome),
            Event::PeerDown { nid, last_alive } => up.peer_down(now, ni, nid, last_alive),
            Event::Link(link) => up.link_changed(now, ni, link),
            Event::Rail { nid, doubt } => up.rail_changed(now, ni, nid, doubt),
            // In listings: `IbNi::is_degraded`, `IbNi::stats`.
            Event::Degraded(_) | Event::Closed { .. } => {}
        }
    }
}

/// The adapter has lost the bytes of a buffer that it had reported.
const NOT_THERE: Fault = Fault::new(lnet_types::HealthStatus::LocalError, Errno::EIO);

fn part<A: Adapter>(adapter: &A, conn: ConnId, slot: u16, at: usize, len: u32) -> Option<&[u8]> {
    adapter.slot(conn, slot).get(at..)?.get(..len as usize)
}

/// Copies bytes into spans, as far as there is room.
fn scatter(mut bytes: &[u8], to: &[Span], mem: &mut dyn Memory) {
    for span in to {
        let (now, rest) = bytes.split_at(bytes.len().min(span.len as usize));
        if now.is_empty() {
            return;
        }
        mem.bytes_mut(Span { len: now.len() as u32, ..*span }).copy_from_slice(now);
        bytes = rest;
    }
}
