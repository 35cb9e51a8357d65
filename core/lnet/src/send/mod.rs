//! Sending: from a PUT or GET of the user, or a response of the node, to a message in a driver's
//! hands. The order of steps is that of behaviour.md 3.1.
//!
//! `depart.rs` has the way out, on which `select.rs` chooses the path, `admit.rs` decides when the
//! message goes, and `transmit.rs` hands it to its driver; `finish.rs` what becomes of it afterwards,
//! `attempts.rs` whether it goes again, `again.rs` how; `credits.rs` has the credits that come back,
//! `key.rs` orders candidates, `trace.rs` writes the reasons down.

mod admit;
mod again;
mod attempts;
mod credits;
mod deadline;
mod depart;
pub(crate) mod explain;
mod finish;
pub(crate) mod key;
mod paths;
mod request;
pub(crate) mod rest;
pub(crate) mod select;
pub(crate) mod standing;
pub(crate) mod trace;
mod transmit;

pub(crate) use again::Reason;
pub(crate) use attempts::Next;
pub(crate) use credits::queued_bytes;

use lnet_types::{Instant, IoVec, MdId, MsgId, Nid, Pid, ProcessId, iovec_copy, iovec_slice};
use lnet_wire::{Handle, Hdr, Kind};

use crate::msg::{Role, Stage};
use crate::output::Payload;
use crate::portal::md::MdBuf;
use crate::{MdOptions, Node, SendError, Timeouts};
use select::Path;

/// One PUT or GET, of a caller or of the node itself.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct Operation {
    pub(crate) md: MdId,
    pub(crate) src: Option<Nid>,
    pub(crate) target: ProcessId,
    pub(crate) portal: u32,
    pub(crate) match_bits: u64,
    pub(crate) limits: Timeouts,
    pub(crate) recovery: bool,
    pub(crate) verb: Verb,
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) enum Verb {
    Put { ack: bool, hdr_data: u64, offset: u32 },
    Get { offset: u32 },
}

impl Node {
    /// Begins an operation: the message that is to depart.
    pub(crate) fn operate(&mut self, now: Instant, op: Operation) -> Result<MsgId, SendError> {
        if op.target.nid.is_any() {
            return Err(SendError::AnyTarget);
        }
        if self.faults.fails(op.target.nid) {
            return Err(SendError::Simulated);
        }
        let limit = self.tunables.messages_max as usize;
        if self.msgs.in_hand() >= limit {
            return Err(SendError::NoSpace(limit));
        }
        let scrambler = self.scrambler;
        let handle = || scrambler.handle(op.md);
        let md = self
            .portals
            .mds
            .get_mut(op.md)
            .filter(|md| md.place.is_none() && !md.zombie && md.threshold != Some(0))
            .ok_or(SendError::BadMd)?;
        md.take();
        let len = md.len as u32;
        let (kind, payload, offset, tracked) = match op.verb {
            Verb::Put { ack, hdr_data, offset } => {
                let payload = match &md.buf {
                    MdBuf::Spans(iov) => Payload::Spans(iovec_copy(iov)),
                    MdBuf::Bytes(bytes) => Payload::Bytes(bytes.clone()),
                    MdBuf::Collect(_) => Payload::empty(),
                };
                let kind = Kind::Put {
                    ack: if ack { handle() } else { Handle::NONE },
                    match_bits: op.match_bits,
                    hdr_data,
                    portal: op.portal,
                    offset,
                };
                (kind, payload, offset, ack.then_some(2))
            }
            Verb::Get { offset } => {
                let kind = Kind::Get {
                    ret: handle(),
                    match_bits: op.match_bits,
                    portal: op.portal,
                    offset,
                    sink_len: len,
                    pad: [0; 4],
                };
                (kind, Payload::empty(), offset, Some(1))
            }
        };
        // H-60: bit 1 GETs, bit 2 PUTs, unless the descriptor says otherwise.
        let track = tracked.is_some_and(|bit| {
            md.options.contains(MdOptions::TRACK_RESPONSE)
                || (!md.options.contains(MdOptions::NO_TRACK_RESPONSE)
                    && self.tunables.response_tracking & bit != 0)
        });
        let hdr = Hdr {
            dst: op.target.nid,
            src: Nid::ANY,
            dst_pid: op.target.pid,
            src_pid: Pid::LUSTRE,
            payload_len: payload.len() as u32,
            kind,
        };
        let answers = md.options.contains(MdOptions::ANSWERS);
        let (id, msg) = self.msgs.begin(Role::Request, &hdr, now);
        msg.payload = payload;
        msg.md = Some(op.md);
        msg.src = op.src;
        msg.answers = answers;
        msg.recovery = op.recovery;
        msg.limit = op.limits.send;
        (msg.ev.offset, msg.ev.rlength, msg.ev.mlength) = (u64::from(offset), len, len);
        if track {
            let limit = op.limits.response.or(op.limits.send);
            self.track(now, op.md, limit.unwrap_or_else(|| self.tunables.transaction()));
        }
        Ok(id)
    }

    /// Answers a GET: the message becomes its REPLY (M-35).
    pub(crate) fn reply(&mut self, now: Instant, id: MsgId) {
        if let Some(own) = self.make_reply(id) {
            self.respond(now, id, own);
        }
    }

    /// Answers a GET in the exchange that brought it (RS-087): on the rail of the request, without choice,
    /// credits and injected faults. If that fails, the REPLY goes again as others do.
    pub(crate) fn reply_in_exchange(&mut self, now: Instant, id: MsgId) {
        let Some(own) = self.make_reply(id) else { return };
        let came_by = self.msgs.get(id).and_then(|msg| msg.rx.as_ref());
        let Some((ni, peer_ni)) = came_by.and_then(|rx| Some((rx.ni, rx.peer_ni?))) else {
            return self.respond(now, id, own);
        };
        self.become_response(now, id, own);
        self.commit(now, id, Path::plain(ni, peer_ni));
        if self.msgs.get(id).is_some_and(|msg| msg.tx.is_some()) {
            self.hand_over(now, id, IoVec::new());
        } else {
            self.depart(now, id);
        }
    }

    /// Makes of a GET its REPLY. Gives the NID that it leaves from.
    fn make_reply(&mut self, id: MsgId) -> Option<Nid> {
        let msg = self.msgs.get_mut(id)?;
        let (Kind::Get { ret, .. }, Some(rx)) = (msg.hdr.kind, msg.rx) else { return None };
        let payload = match msg.md.and_then(|md| self.portals.mds.get(md)).map(|md| &md.buf) {
            Some(MdBuf::Spans(iov)) => {
                Payload::Spans(iovec_slice(iov, msg.ev.offset, u64::from(msg.ev.mlength)))
            }
            Some(MdBuf::Bytes(b)) if msg.ev.offset == 0 && b.len() == msg.ev.mlength as usize => {
                Payload::Bytes(b.clone())
            }
            Some(MdBuf::Bytes(b)) => {
                let from = msg.ev.offset as usize;
                let to = from + msg.ev.mlength as usize;
                Payload::Bytes(b.get(from..to).unwrap_or_default().into())
            }
            Some(MdBuf::Collect(_)) | None => Payload::empty(),
        };
        let own = self.nis.get(rx.ni).map_or(msg.hdr.dst, |ni| ni.nid);
        msg.hdr = Hdr {
            dst: msg.hdr.src,
            src: own,
            dst_pid: msg.hdr.src_pid,
            src_pid: Pid::LUSTRE,
            payload_len: payload.len() as u32,
            kind: Kind::Reply { dst: ret, pad: [0; 24] },
        };
        msg.payload = payload;
        Some(own)
    }

    /// Sends a message that has become a response from `own` (S-16, DEC-15).
    pub(crate) fn respond(&mut self, now: Instant, id: MsgId, own: Nid) {
        self.become_response(now, id, own);
        self.depart(now, id);
    }

    fn become_response(&mut self, now: Instant, id: MsgId, own: Nid) {
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.src = Some(own);
            msg.hint = msg.rx.map(|rx| rx.from);
            msg.hop_pid = msg.hdr.dst_pid;
            msg.stage = Stage::Moving;
            msg.born = now;
            msg.retries = 0;
            msg.until_deadline = false;
            msg.numbered = None;
            msg.tried.clear();
        }
    }
}
