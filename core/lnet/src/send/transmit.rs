//! The last step of a departure: what the driver gets.

use lnet_types::{Fault, Instant, IoVec, MsgId, Nid, Pid, ProcessId, iovec_copy};
use lnet_wire::Kind;

use crate::dedup::marks::{self, Marking};
use crate::msg::{Role, Stage};
use crate::outbox::Work;
use crate::output::{Output, Transmit};
use crate::portal::md::MdBuf;
use crate::{Node, in_doubt};

impl Node {
    /// Hands a message to its driver.
    pub(crate) fn transmit(&mut self, now: Instant, id: MsgId) {
        if self.faults.has_drops()
            && let Some(fault) = self.fails_leaving(now, id)
        {
            return self.outbox.plan(Work::Finish(id, Err(fault)));
        }
        let sink = self.name_sink(id);
        self.hand_over(now, id, sink);
    }

    /// Hands a message to its driver, and the memory that the data of a GET may be put into.
    pub(super) fn hand_over(&mut self, now: Instant, id: MsgId, sink: IoVec) {
        let Self { msgs, peers, portals, tunables, scrambler, .. } = self;
        let Some(msg) = msgs.get_mut(id) else { return };
        let mut hdr = msg.hdr;
        let mut marking = Marking { peers, portals, tunables, scrambler: *scrambler };
        if let Err(fault) = marking.with_mark(msg, &mut hdr.kind) {
            msg.no_resend = true;
            return self.outbox.plan(Work::Finish(id, Err(fault)));
        }
        let Some(ni) = msg.tx.as_ref().map(|tx| tx.ni) else { return };
        msg.stage = Stage::Driver;
        let retention = in_doubt::retention(tunables.retries(), portals, msg, &hdr.kind);
        let repeats = marks::next_hop_repeats(peers, msg);
        let own = self.nis.get(ni).and_then(|ni| ni.lnd_timeout);
        let Some(msg) = self.msgs.get(id) else { return };
        let Some(tx) = &msg.tx else { return };
        let lnd = self.tables().driver_time(msg, own);
        let request = msg.md.filter(|_| msg.role == Role::Request);
        let transmit = Transmit {
            msg: id,
            ni: tx.ni,
            to: ProcessId {
                nid: if tx.peer_ni.is_some() { tx.hop } else { msg.hdr.dst },
                // S-64: a gateway's LNet is always the same process.
                pid: if tx.routed { Pid::LUSTRE } else { msg.hop_pid },
            },
            peer_ni: tx.peer_ni,
            hdr,
            payload: msg.payload.clone(),
            sink,
            // DEC-9: never past the message's own deadline, which one that passes through has not.
            timeout: if msg.role == Role::Forward {
                lnd
            } else {
                lnd.min(msg.deadline.saturating_since(now))
            },
            retention,
            repeats,
        };
        self.outbox.order(Output::Send(transmit));
        if let Some(md) = request {
            self.handed_over(now, md);
        }
    }

    /// Where the data of a GET may be put by its driver (B-11): in the memory of a descriptor that serves
    /// nothing else, so that no other answer is taken for this one. The first attempt alone names it; the
    /// descriptor is held until that has ended.
    fn name_sink(&mut self, id: MsgId) -> IoVec {
        let Some(msg) = self.msgs.get(id) else { return IoVec::new() };
        let is_get = msg.role == Role::Request && matches!(msg.hdr.kind, Kind::Get { .. });
        let direct = msg.tx.as_ref().is_some_and(|tx| tx.peer_ni.is_some() && !tx.routed);
        if !is_get || !direct || msg.retries > 0 {
            return IoVec::new();
        }
        let Some(md) = msg.md.and_then(|md| self.portals.mds.get_mut(md)) else {
            return IoVec::new();
        };
        let one_answer = md.threshold == Some(1) && md.refs == 1 && !md.zombie;
        match &md.buf {
            MdBuf::Spans(spans) if one_answer && md.written_by.is_none() => {
                md.written_by = Some(id);
                iovec_copy(spans)
            }
            _ => IoVec::new(),
        }
    }

    /// A message that may have named its descriptor's memory has ended.
    pub(crate) fn close_sink(&mut self, id: MsgId) {
        let msg = self.msgs.get(id).filter(|msg| matches!(msg.hdr.kind, Kind::Get { .. }));
        if let Some(md) = msg.and_then(|msg| msg.md).and_then(|md| self.portals.mds.get_mut(md))
            && md.written_by == Some(id)
        {
            md.written_by = None;
        }
    }

    /// The fault with which a message that is about to leave fails (F-11, F-14). Loopback has no
    /// driver in which it could.
    fn fails_leaving(&mut self, now: Instant, id: MsgId) -> Option<Fault> {
        let msg = self.msgs.get(id)?;
        msg.tx?.peer_ni?;
        let (hdr, own) = (msg.hdr, self.own_leaving(id));
        self.faults.fails_leaving(now, &hdr, own)
    }

    /// The interface that a message leaves by, where fault rules ask for it. The kernel's do not (F-3).
    pub(super) fn own_leaving(&self, id: MsgId) -> Option<Nid> {
        let tx = self.msgs.get(id)?.tx?;
        self.nis
            .get(tx.ni)
            .map(|ni| ni.nid)
            .filter(|_| self.tunables.conduct.matches_faults_by_interface)
    }
}
