//! Everything that leaves the node: messages for drivers, verdicts on messages that waited, and the
//! events that its users see. All of it is polled; nothing is called back.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use lnet_types::{
    Errno, IoVec, MdId, MsgId, NiId, Nid, PeerNiId, ProcessId, RegionId, RxId, iovec_copy,
    iovec_len,
};
use lnet_wire::{Hdr, MsgType};

use crate::below::Retention;

/// Bytes to be sent behind a header.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum Payload {
    /// Registered memory.
    Spans(IoVec),
    /// Bytes of the node's own: ping data.
    Bytes(Arc<[u8]>),
}

impl Clone for Payload {
    fn clone(&self) -> Self {
        match self {
            Self::Spans(iov) => Self::Spans(iovec_copy(iov)),
            Self::Bytes(bytes) => Self::Bytes(Arc::clone(bytes)),
        }
    }
}

impl Payload {
    /// No bytes.
    pub fn empty() -> Self {
        Self::Spans(IoVec::new())
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::Spans(iov) => iovec_len(iov),
            Self::Bytes(b) => b.len() as u64,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where the payload of an arriving message goes.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Sink {
    /// Into registered memory, in order; bytes beyond the spans are read and thrown away.
    Spans(IoVec),
    /// To the node itself: the driver collects at most this many bytes, throws the rest away, and
    /// passes them to [`crate::Node::rx_done`].
    Bytes(u32),
}

/// A message on its way to a driver.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Transmit {
    /// Its name; comes back in [`crate::Node::tx_done`].
    pub msg: MsgId,
    /// The interface that it leaves from.
    pub ni: NiId,
    /// The next hop.
    pub to: ProcessId,
    /// The node's name for the next hop's interface; `None` for loopback. For drivers that find their
    /// own record of it by that.
    #[serde(skip)]
    pub peer_ni: Option<PeerNiId>,
    /// The header, complete.
    pub hdr: Hdr,
    /// What follows it.
    pub payload: Payload,
    /// Of a GET: where the data of its REPLY may be put until the message has ended, or is withdrawn
    /// ([`Output::Withdraw`]). A driver that lets the peer write there reports the REPLY itself, behind
    /// that end. Empty where no driver may, and for all other messages.
    pub sink: IoVec,
    /// How long the driver may try before it reports a time-out.
    pub timeout: Duration,
    /// Whether the driver retains a copy of its own until the transport has acknowledged the message:
    /// the receiver recognizes duplicates, so that it may be repeated.
    pub retention: Option<Retention>,
    /// The next hop suppresses duplicates, and has its own part in repeating what a connection loses:
    /// a silent connection to it may be replaced (DEC-47).
    pub repeats: bool,
}

/// What to do with a message whose header has arrived.
#[derive(Clone, Debug)]
#[must_use]
#[derive(serde::Serialize, serde::Deserialize)]
pub enum Verdict {
    /// Read the payload into `sink`, then call [`crate::Node::rx_done`] with `msg`.
    Deliver {
        /// The node's name for the message.
        msg: MsgId,
        /// Where the payload goes.
        sink: Sink,
    },
    /// Read nothing more from this connection: no buffer is posted yet, or no router buffer is
    /// free. An [`Output::Resume`] follows, unless the driver says [`crate::Node::rx_gone`] first.
    Defer,
    /// Read the payload away. There is no `rx_done`.
    Drop(DropReason),
    /// The peer broke the protocol (S-81): close its connections.
    Close(PeerMisbehaved),
}

/// Something for the shell to carry out.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Output {
    /// Transmit this.
    Send(Transmit),
    /// A deferred message has been decided. Never again `Defer`.
    Resume {
        /// The interface it came in on.
        ni: NiId,
        /// The driver's name for it.
        rx: RxId,
        /// What to do with it now.
        verdict: Verdict,
    },
    /// Ask the driver of `ni` to give a message back ([`crate::Driver::recall`]); if it does, say
    /// [`crate::Node::tx_recalled`], otherwise [`crate::Node::tx_begun`].
    Recall {
        /// The interface that it was to leave from.
        ni: NiId,
        /// Its next hop.
        to: ProcessId,
        /// Its name.
        msg: MsgId,
    },
    /// Ask the driver of `ni` for what it retains for one peer, or for all ([`crate::Driver::reclaim`]),
    /// and pass that to [`crate::Node::tx_in_doubt`]: it can leave by another rail.
    Reclaim {
        /// The interface that it left from.
        ni: NiId,
        /// The next hop; every one if `None`.
        to: Option<ProcessId>,
    },
    /// The rest of this message has no receiver any more: the driver reads on, but writes no more
    /// of it to memory and does not report it ([`crate::Driver::abandon`]).
    Abandon {
        /// The interface it comes in on.
        ni: NiId,
        /// The driver's name for it.
        rx: RxId,
        /// The node's.
        msg: MsgId,
    },
    /// The data of a GET have come another way: the driver that has the GET lets its peer write there no
    /// more, and reports the message as sent ([`crate::Driver::withdraw`]).
    Withdraw {
        /// The interface that it left from.
        ni: NiId,
        /// Its name.
        msg: MsgId,
    },
    /// The node has no more use for a region that it was lent by [`crate::RouterMemory`].
    Release(RegionId),
}

/// Why a message that arrived was thrown away. Counted by reason; the sender gets no report (S-82).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[derive(serde::Serialize, serde::Deserialize)]
pub enum DropReason {
    /// PUT or GET for a portal that does not exist (M-16).
    BadPortal,
    /// Nothing matched and the portal is not lazy (M-26).
    NoMatch,
    /// It matched, but is longer than the buffer allows (M-24).
    TooLong,
    /// ACK or REPLY for a handle that is unknown, stale or of another incarnation (M-37).
    BadHandle,
    /// For another node, and this one does not route (S-81).
    NotRouter,
    /// For another node, but sent by this one: it has come round in a circle.
    RoutingLoop,
    /// For another node, and no route leads there.
    NoRoute,
    /// For another node, and every attempt to pass it on has failed.
    ForwardFailed,
    /// For another interface of this node, passed on by a node that could not know.
    OtherInterface,
    /// Came through a router that this node would not use (S-83).
    AsymmetricRoute,
    /// A drop rule or simulated failure said so.
    Injected,
    /// No peer record could be made for the sender.
    NoPeer,
    /// A limit was reached.
    NoResources,
    /// Another copy of it has been delivered (DEC-6).
    Duplicate,
    /// A further copy of a message that may have been delivered, as far as is known (DEC-6).
    AncientCopy,
    /// It waited on a portal that is not lazy any more, or for an interface that is gone (M-41).
    NotLazy,
    /// The node is stopping.
    Stopping,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 17] = [
        Self::BadPortal,
        Self::NoMatch,
        Self::TooLong,
        Self::BadHandle,
        Self::NotRouter,
        Self::RoutingLoop,
        Self::NoRoute,
        Self::ForwardFailed,
        Self::OtherInterface,
        Self::AsymmetricRoute,
        Self::Injected,
        Self::NoPeer,
        Self::NoResources,
        Self::Duplicate,
        Self::AncientCopy,
        Self::NotLazy,
        Self::Stopping,
    ];

    /// Its name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadPortal => "bad_portal",
            Self::NoMatch => "no_match",
            Self::TooLong => "too_long",
            Self::BadHandle => "bad_handle",
            Self::NotRouter => "not_router",
            Self::RoutingLoop => "routing_loop",
            Self::NoRoute => "no_route",
            Self::ForwardFailed => "forward_failed",
            Self::OtherInterface => "other_interface",
            Self::AsymmetricRoute => "asymmetric_route",
            Self::Injected => "injected",
            Self::NoPeer => "no_peer",
            Self::NoResources => "no_resources",
            Self::Duplicate => "duplicate",
            Self::AncientCopy => "ancient_copy",
            Self::NotLazy => "not_lazy",
            Self::Stopping => "stopping",
        }
    }
}

/// How a peer broke the protocol: its connections are closed (wire.md 8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[derive(serde::Serialize, serde::Deserialize)]
pub enum PeerMisbehaved {
    /// An ACK or GET with payload.
    PayloadNotAllowed(MsgType),
    /// A PUT or REPLY longer than 1 MiB.
    PayloadTooLong(u32),
    /// Addressed to another NID of the network that it came in on.
    WrongNid(Nid),
    /// Addressed to another interface of this node.
    WrongInterface(Nid),
}

impl fmt::Display for PeerMisbehaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PayloadNotAllowed(kind) => write!(f, "{kind:?} with payload"),
            Self::PayloadTooLong(len) => write!(f, "payload of {len} bytes, expected ≤ 1048576"),
            Self::WrongNid(nid) => write!(f, "addressed to {nid}, which is not this interface"),
            Self::WrongInterface(nid) => write!(f, "addressed to {nid}, another interface"),
        }
    }
}

/// What happened to a memory descriptor (M-29).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum EventKind {
    /// A PUT or GET of ours was transmitted, or failed for good.
    Send,
    /// A PUT has arrived in the buffer.
    Put,
    /// The buffer was read by a GET and its REPLY is on the way.
    Get,
    /// The target has our PUT.
    Ack,
    /// The data of our GET are here.
    Reply,
    /// The descriptor is gone without another operation to report.
    Unlink,
}

/// An event on a memory descriptor. Fields by kind as in M-36.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The descriptor; stale if `unlinked`.
    pub md: MdId,
    /// The owner's word, from [`crate::MdSpec::user`].
    pub user: u64,
    /// The target of the message.
    pub target: ProcessId,
    /// Who began the operation: the primary NID of the peer, whichever NID it used.
    pub initiator: ProcessId,
    /// The NID that the message came from, as its header says.
    pub source: ProcessId,
    /// The previous hop.
    pub sender: Nid,
    /// Kind of the message behind a `Send` event (PUT or GET) or of the one received.
    pub msg_type: MsgType,
    /// Portal.
    pub portal: u32,
    /// Match bits.
    pub match_bits: u64,
    /// The initiator's 64 bits (PUT only).
    pub hdr_data: u64,
    /// Where in the descriptor, bytes.
    pub offset: u64,
    /// Bytes asked for.
    pub rlength: u32,
    /// Bytes moved.
    pub mlength: u32,
    /// How it ended.
    pub status: Result<(), Errno>,
    /// Whether this is the descriptor's last event.
    pub unlinked: bool,
}
