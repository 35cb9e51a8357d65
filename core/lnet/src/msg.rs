//! A message between its birth in the node and its one terminal outcome. Plain data; the code that
//! moves it along is in `send/` and `recv.rs`, and `send/finish.rs` is the only place where it ends.

use core::time::Duration;

use lnet_types::{HealthStatus, Instant, MdId, NiId, Nid, PeerId, PeerNiId, Pid, ProcessId, RxId};
use lnet_wire::{Hdr, Kind, MsgType};
use smallvec::SmallVec;

use crate::counts::Counts;
use crate::dedup::numbering::Numbered;
use crate::dedup::sessions::Copied;
use crate::output::Payload;
use crate::port::PortId;
use crate::router::buffers::Transit;

/// Why the message exists, hence what happens when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Role {
    /// A PUT or GET of ours: ends with a SEND event.
    Request,
    /// A PUT for us: ends with a PUT event and perhaps becomes an ACK.
    PutIn,
    /// A GET for us: becomes a REPLY, whose end gives the GET event.
    GetIn,
    /// The ACK that a `PutIn` has become: ends silently.
    AckOut,
    /// An ACK for us.
    AckIn,
    /// A REPLY for us.
    ReplyIn,
    /// A message for another node that passes through: ends silently.
    Forward,
    /// A request whose SEND event is out, kept until it is answered, or sent once more: ends silently
    /// (`dedup/retransmit.rs`).
    Copy,
    /// What a driver has of a message of which another copy goes another way: ends silently.
    Remnant,
    /// A further copy of a message whose SEND event is out, if it had one, and that its driver handed
    /// back in doubt: ends silently (`in_doubt.rs`).
    Repeat,
}

/// Where the message is. Exactly one place at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Stage {
    /// Being worked on right now, or about to be (it is in the work list).
    Moving,
    /// Arrived, waits for a buffer on a lazy portal.
    Deferred,
    /// Passing through, waits for a router credit of the interface that it came from.
    TransitQueue,
    /// Passing through, waits for a router buffer.
    PoolQueue,
    /// The driver reads its payload.
    Receiving,
    /// Waits for the discovery of a peer.
    Parked(PeerId),
    /// Waits for a credit of its peer NI.
    PeerQueue,
    /// Waits for a credit of its NI.
    NiQueue,
    /// Has failed everywhere, at this time; goes again with its timer, or when there is news
    /// (`send/rest.rs`).
    Resting(Instant),
    /// Held back by a fault rule, under this number.
    Held(u64),
    /// The driver has it.
    Driver,
    /// Written; waits for its answer.
    Answering,
}

/// The sending side of a message, from commit to decommit.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Tx {
    pub(crate) ni: NiId,
    /// `None` for loopback.
    pub(crate) peer_ni: Option<PeerNiId>,
    /// The NID of the next hop: the destination, or a gateway.
    pub(crate) hop: Nid,
    /// The next hop is a gateway.
    pub(crate) routed: bool,
    pub(crate) peer_credit: bool,
    pub(crate) ni_credit: bool,
    pub(crate) committed: Instant,
}

impl Tx {
    /// Whether an interface is one of its two ends.
    pub(crate) fn ends_in(&self, port: PortId) -> bool {
        match port {
            PortId::Local(ni) => self.ni == ni,
            PortId::Peer(id) => self.peer_ni == Some(id),
        }
    }
}

/// The receiving side.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct RxSide {
    pub(crate) ni: NiId,
    /// `None` for loopback.
    pub(crate) peer_ni: Option<PeerNiId>,
    pub(crate) from: Nid,
    pub(crate) id: RxId,
    pub(crate) kind: MsgType,
    /// Whether it still counts as being received (S-87).
    pub(crate) committed: bool,
    /// What it is in the session of its sender, until it is here.
    pub(crate) copied: Option<Copied>,
}

/// What the message's event will say (M-36).
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct EventInfo {
    pub(crate) target: ProcessId,
    pub(crate) initiator: ProcessId,
    pub(crate) source: ProcessId,
    pub(crate) portal: u32,
    pub(crate) match_bits: u64,
    pub(crate) hdr_data: u64,
    pub(crate) offset: u64,
    pub(crate) rlength: u32,
    pub(crate) mlength: u32,
}

/// A message.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Msg {
    pub(crate) hdr: Hdr,
    pub(crate) payload: Payload,
    pub(crate) role: Role,
    pub(crate) stage: Stage,
    pub(crate) md: Option<MdId>,
    pub(crate) tx: Option<Tx>,
    pub(crate) rx: Option<RxSide>,
    /// The source NID that was asked for; stays through resends (S-70).
    pub(crate) src: Option<Nid>,
    /// Another source will do where the one that was asked for is bad, as for a response (DEC-15).
    pub(crate) answers: bool,
    /// The NID that the request came from, where this is the response (S-51).
    pub(crate) hint: Option<Nid>,
    /// The process at the next hop, unless that is a gateway.
    pub(crate) hop_pid: Pid,
    pub(crate) retries: u32,
    /// It goes again, which counts when it has found a path (H-24).
    pub(crate) goes_again: bool,
    /// Never again (H-21).
    pub(crate) no_resend: bool,
    /// It goes until its deadline, whatever `retry_count` says: a copy of it was written, or its rail fell
    /// silent under it. What a copy is lost with is not the message's fault.
    pub(crate) until_deadline: bool,
    /// A recovery ping: exactly this NID, never again (H-46).
    pub(crate) recovery: bool,
    /// Its number towards a peer that deduplicates (DEC-6).
    pub(crate) numbered: Option<Numbered>,
    /// Pairs that this message has been tried on (DEC-8).
    pub(crate) tried: SmallVec<[(NiId, PeerNiId); 2]>,
    /// How its last attempt failed.
    pub(crate) failed: Option<HealthStatus>,
    /// When the caller handed it in, or when it arrived.
    pub(crate) born: Instant,
    /// The caller's own limit (HL-lnt-100).
    pub(crate) limit: Option<Duration>,
    /// When it is late (H-30).
    pub(crate) deadline: Instant,
    /// Whether it counts in `msgs_alloc`.
    pub(crate) counted: bool,
    pub(crate) ev: EventInfo,
    /// What it holds of this router, if it passes through.
    pub(crate) transit: Option<Transit>,
}

impl EventInfo {
    /// What the header says.
    fn of(hdr: &Hdr) -> Self {
        let (portal, match_bits, hdr_data) = match hdr.kind {
            Kind::Put { portal, match_bits, hdr_data, .. } => (portal, match_bits, hdr_data),
            Kind::Get { portal, match_bits, .. } => (portal, match_bits, 0),
            Kind::Ack { .. } | Kind::Reply { .. } => (0, 0, 0),
        };
        let source = ProcessId { nid: hdr.src, pid: hdr.src_pid };
        Self {
            target: ProcessId { nid: hdr.dst, pid: hdr.dst_pid },
            initiator: source,
            source,
            portal,
            match_bits,
            hdr_data,
            offset: 0,
            rlength: 0,
            mlength: 0,
        }
    }
}

impl Msg {
    /// A message without payload, descriptor, path and deadline, which was never tried.
    pub(crate) fn new(role: Role, hdr: Hdr, born: Instant) -> Self {
        Self {
            hdr,
            payload: Payload::empty(),
            role,
            stage: Stage::Moving,
            md: None,
            tx: None,
            rx: None,
            src: None,
            answers: false,
            hint: None,
            hop_pid: hdr.dst_pid,
            retries: 0,
            goes_again: false,
            no_resend: false,
            until_deadline: false,
            recovery: false,
            numbered: None,
            tried: SmallVec::new(),
            failed: None,
            born,
            limit: None,
            deadline: Instant::FAR_FUTURE,
            counted: false,
            ev: EventInfo::of(&hdr),
            transit: None,
        }
    }

    /// Makes of a message that has [ended](Self::end) the one that [`Self::new`] gives, without moving it:
    /// of what may be absent, that alone is written.
    #[inline]
    pub(crate) fn begin(&mut self, new_role: Role, new_hdr: &Hdr, now: Instant) {
        let Self {
            hdr,
            payload: _,
            role,
            stage,
            md,
            tx,
            rx,
            src,
            answers,
            hint,
            hop_pid,
            retries,
            goes_again,
            no_resend,
            until_deadline,
            recovery,
            numbered,
            tried: _,
            failed,
            born,
            limit,
            deadline,
            counted,
            ev,
            transit,
        } = self;
        *hdr = *new_hdr;
        (*role, *stage) = (new_role, Stage::Moving);
        (*md, *tx, *rx, *src) = (None, None, None, None);
        (*answers, *hint, *hop_pid) = (false, None, new_hdr.dst_pid);
        (*retries, *no_resend, *until_deadline, *recovery) = (0, false, false, false);
        (*numbered, *failed) = (None, None);
        (*born, *limit, *deadline) = (now, None, Instant::FAR_FUTURE);
        (*goes_again, *counted, *transit) = (false, false, None);
        *ev = EventInfo::of(new_hdr);
    }

    /// Gives up what it holds memory for.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.payload = Payload::empty();
        self.tried = SmallVec::new();
    }

    /// A further copy of a message that its driver does not give back. The copy takes the place of
    /// this one, of which a remnant is left.
    pub(crate) fn twin(&mut self) -> Self {
        let twin = Self {
            payload: self.payload.clone(),
            md: self.md,
            rx: self.rx.take(),
            src: self.src,
            answers: self.answers,
            hint: self.hint,
            hop_pid: self.hop_pid,
            retries: self.retries,
            no_resend: self.no_resend,
            until_deadline: self.until_deadline,
            recovery: self.recovery,
            numbered: self.numbered,
            tried: self.tried.clone(),
            limit: self.limit,
            deadline: self.deadline,
            ev: self.ev,
            ..Self::new(self.role, self.hdr, self.born)
        };
        self.role = Role::Remnant;
        self.no_resend = true;
        twin
    }

    /// The message is bound, so it has a deadline, and counts as in hand from the first time on (T-1).
    pub(crate) fn enter(&mut self, deadline: Instant, counts: &mut Counts) {
        self.deadline = deadline;
        if !self.counted {
            self.counted = true;
            counts.message_in();
        }
    }

    /// The rail that the message is bound to; loopback is none.
    pub(crate) fn rail(&self) -> Option<(NiId, PeerNiId)> {
        let tx = self.tx.as_ref()?;
        Some((tx.ni, tx.peer_ni?))
    }

    /// The kind under which it counts as sent (T-12): responses of our own under the kind of what
    /// they answer, what passes through under its real one.
    pub(crate) fn counted_as_sent(&self) -> MsgType {
        match self.hdr.kind.msg_type() {
            kind if self.role == Role::Forward => kind,
            MsgType::Ack => MsgType::Put,
            MsgType::Reply => MsgType::Get,
            kind => kind,
        }
    }

    /// Whether it answers a request, of this layer or of one above: then another source will do (DEC-15).
    pub(crate) fn may_move(&self) -> bool {
        self.answers || self.is_response()
    }

    /// Whether all its copies have one end, of which a program or the node gets to know: whichever copy
    /// gets through decides it.
    pub(crate) const fn has_one_end(&self) -> bool {
        matches!(self.role, Role::Request | Role::GetIn | Role::AckOut)
    }

    pub(crate) fn is_response(&self) -> bool {
        matches!(self.hdr.kind.msg_type(), MsgType::Ack | MsgType::Reply)
    }
}
