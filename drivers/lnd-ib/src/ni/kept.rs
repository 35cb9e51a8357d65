//! Deferred messages that outlive their connection. The adapter has acknowledged an IMMEDIATE that waits in
//! its receive buffer for the node's verdict, so its sender counts it as delivered: its payload is copied out
//! of the buffer before the queue pair goes, and the verdict may come later. What needs an exchange ends with
//! the connection, which its sender sees.

use std::collections::BTreeSet;

use lnet::Sink;
use lnet_types::{IoVec, MsgId, RxId};
use lnet_wire::Hdr;
use lnet_wire::ib::Body;

use super::IbNi;
use super::receive::{CUT, Pending};
use crate::value::{Event, Landed, Output};

/// Messages of an interface that are kept without a connection, at most: 4 MiB.
pub const KEPT_MAX: usize = 1024;

impl IbNi {
    /// The connection of these headers ends: what is whole is kept if its peer is `believed`, the node gets
    /// to know of the others.
    pub(super) fn leave_conn(&mut self, rxs: BTreeSet<RxId>, believed: bool) {
        for rx in rxs {
            if !(believed && self.keep(rx)) {
                self.rxs.remove(&rx);
                self.report(Event::RxGone { rx });
            }
        }
    }

    /// Copies a message out of its receive buffer, if it lies in one and there is room.
    pub(super) fn keep(&mut self, rx: RxId) -> bool {
        let has_room = self.kept < KEPT_MAX;
        let Some(pending) = self.rxs.get_mut(&rx).filter(|_| has_room) else { return false };
        let Pending::Immediate { conn, slot, hdr, have } = *pending else { return false };
        *pending = Pending::Kept { hdr, have };
        self.kept += 1;
        self.stats.kept += 1;
        let len = hdr.payload_len.min(have);
        self.outputs.push_back(Output::Keep { rx, conn, slot, at: Body::IMMEDIATE_PAYLOAD, len });
        true
    }

    /// The verdict on a kept message is to deliver it.
    pub(super) fn deliver_kept(&mut self, rx: RxId, hdr: Hdr, have: u32, msg: MsgId, sink: Sink) {
        let len = hdr.payload_len;
        if len > have {
            self.stats.cut += 1;
            self.report(Event::RxDone { msg, outcome: Err(CUT) });
            return self.release(rx, IoVec::new());
        }
        match sink {
            Sink::Spans(to) => {
                self.release(rx, to);
                self.report(Event::RxDone { msg, outcome: Ok(Landed::InPlace) });
            }
            Sink::Bytes(max) => {
                let landed = Landed::Kept { rx, len: len.min(max) };
                self.report(Event::RxDone { msg, outcome: Ok(landed) });
                self.release(rx, IoVec::new());
            }
        }
    }

    /// A kept message ends: its bytes go `to` these spans, and their place is free.
    pub(super) fn release(&mut self, rx: RxId, to: IoVec) {
        self.kept -= 1;
        self.outputs.push_back(Output::Release { rx, to });
    }

    /// The interface stops: nothing is kept any more.
    pub(super) fn release_all(&mut self) {
        let is_kept = |pending: &Pending| matches!(pending, Pending::Kept { .. });
        let all = self.rxs.iter().filter(|(_, pending)| is_kept(pending));
        for rx in all.map(|(rx, _)| *rx).collect::<Vec<_>>() {
            self.rxs.remove(&rx);
            self.release(rx, IoVec::new());
            self.report(Event::RxGone { rx });
        }
    }

    /// Messages that are kept without a connection.
    pub const fn kept(&self) -> usize {
        self.kept
    }
}
