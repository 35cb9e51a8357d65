//! The border above: what a user of the node hands in. Semantics in `portal/` (buffers) and
//! `send/` (operations); behaviour.md section 2 is the law.

use core::time::Duration;

use lnet_types::{Errno, IoVec, MdId, Nid, Pid, ProcessId, iovec_len};
use thiserror::Error;

bitflags::bitflags! {
    /// What a memory descriptor allows and asks for (M-4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[derive(serde::Serialize, serde::Deserialize)]
    pub struct MdOptions: u32 {
        /// Incoming PUTs may match.
        const OP_PUT = 0x1;
        /// Incoming GETs may match.
        const OP_GET = 0x2;
        /// The initiator chooses the offset.
        const MANAGE_REMOTE = 0x4;
        /// Longer messages are cut to what fits.
        const TRUNCATE = 0x10;
        /// Never acknowledge.
        const ACK_DISABLE = 0x20;
        /// `max_size` bounds each message, and the descriptor is spent when that much is not left.
        const MAX_SIZE = 0x80;
        /// The descriptor is spent when it is full, and when a message that an empty one would hold does
        /// not fit behind those before it: it goes away, and the message looks for the next. Without
        /// effect where the initiator chooses the offset or `TRUNCATE` makes everything fit.
        const SPENT_WHEN_FULL = 0x1000;
        /// What is sent answers a request: its source is the interface that the request came to, and
        /// another one where a response of the network layer would take another (DEC-15).
        const ANSWERS = 0x2000;
        /// Only failures have events. When the descriptor is gone and nothing has failed, its user word
        /// is what is left of it ([`Node::poll_spent`](crate::Node::poll_spent)).
        const QUIET = 0x4000;
        /// Always time the response.
        const TRACK_RESPONSE = 0x400;
        /// Never time the response.
        const NO_TRACK_RESPONSE = 0x800;
    }
}

/// What happens to an entry or a descriptor when it is spent (M-2, M-15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Unlink {
    /// It goes away by itself.
    #[default]
    Auto,
    /// It stays until it is unlinked.
    Retain,
}

/// Memory behind a descriptor, how often it may be used, and by what.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct MdSpec {
    /// The buffer.
    pub buf: IoVec,
    /// Operations allowed; `None` is no limit. A PUT with ACK, like a GET, counts twice.
    pub threshold: Option<u32>,
    /// With [`MdOptions::MAX_SIZE`]: the most that one message may bring, bytes.
    pub max_size: u32,
    /// Options.
    pub options: MdOptions,
    /// A word for the owner, returned in every event.
    pub user: u64,
    /// Whether events are wanted (M-5: a descriptor without handler is silent).
    pub events: bool,
    /// Whether it goes away when spent.
    pub unlink: Unlink,
}

impl MdSpec {
    /// A descriptor over `buf` that reports its events under `user`, lives until unlinked, and has
    /// no limit and no options.
    pub fn new(buf: IoVec, user: u64) -> Self {
        Self {
            buf,
            threshold: None,
            max_size: 0,
            options: MdOptions::empty(),
            user,
            events: true,
            unlink: Unlink::Retain,
        }
    }

    /// Length of the buffer in bytes.
    pub fn len(&self) -> u64 {
        iovec_len(&self.buf)
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where in a portal's list a new entry goes (M-8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Position {
    /// Matched before those that are there.
    Before,
    /// Matched after them.
    #[default]
    After,
}

/// Which messages an attached buffer is for (M-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MatchEntry {
    /// The initiator; NID and pid may be `ANY`.
    pub from: ProcessId,
    /// Bits that a message must carry …
    pub match_bits: u64,
    /// … but for these.
    pub ignore_bits: u64,
    /// Whether the entry goes away with its descriptor.
    pub unlink: Unlink,
    /// Its place in the list.
    pub position: Position,
}

impl MatchEntry {
    /// Matches exactly `match_bits`, from any initiator.
    pub const fn bits(match_bits: u64) -> Self {
        Self {
            from: ProcessId { nid: Nid::ANY, pid: Pid::ANY },
            match_bits,
            ignore_bits: 0,
            unlink: Unlink::Auto,
            position: Position::After,
        }
    }
}

/// The two time limits of one operation, where they are not the node's `transaction_timeout`
/// (HL-lnt-100, DEC-10). `Timeouts::from(limit)` is the same limit for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Timeouts {
    /// From the call to the last attempt to send, waiting and retries included. One attempt has its
    /// share of it (DEC-9).
    pub send: Option<Duration>,
    /// From the moment that a driver has taken the request to its ACK or REPLY; as `send` if `None`.
    pub response: Option<Duration>,
}

impl From<Duration> for Timeouts {
    fn from(limit: Duration) -> Self {
        Self { send: Some(limit), response: Some(limit) }
    }
}

/// A PUT: sends the whole of `md` (M-48, M-49).
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct Put {
    /// The free-floating descriptor that holds the data.
    pub md: MdId,
    /// Whether an ACK is wanted.
    pub ack: bool,
    /// The NID to send from; any if `None`.
    pub src: Option<Nid>,
    /// The target of the PUT.
    pub target: ProcessId,
    /// Portal at the target.
    pub portal: u32,
    /// Match bits.
    pub match_bits: u64,
    /// Offset, for targets that let the initiator manage it.
    pub offset: u32,
    /// 64 bits that the target's event shows.
    pub hdr_data: u64,
    /// Limits of this operation; the node's `transaction_timeout` for both if `None`.
    pub timeout: Option<Timeouts>,
}

/// A GET: fetches up to the length of `md` into it (M-48, M-49).
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct Get {
    /// The free-floating descriptor that receives the data.
    pub md: MdId,
    /// The NID to send from; any if `None`.
    pub src: Option<Nid>,
    /// The target of the GET.
    pub target: ProcessId,
    /// Portal at the target.
    pub portal: u32,
    /// Match bits.
    pub match_bits: u64,
    /// Offset, for targets that let the initiator manage it.
    pub offset: u32,
    /// Limits of this operation; the node's `transaction_timeout` for both if `None`.
    pub timeout: Option<Timeouts>,
}

/// Why a buffer was not attached or bound (M-6 … M-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// No such portal.
    #[error("portal {0}: expected 0 to 63")]
    BadPortal(u32),
    /// Portal 0 belongs to the node itself.
    #[error("portal 0 is reserved for LNet itself")]
    ReservedPortal,
    /// The portal holds entries of the other kind, unique or wildcard (M-7).
    #[error("portal {0} holds entries of the other kind (unique or wildcard)")]
    OtherMatchType(u32),
    /// Neither PUT nor GET allowed: nothing could ever match (M-12).
    #[error("an attached buffer must allow PUT or GET")]
    NoOperation,
    /// PUT or GET allowed on a free-floating descriptor (M-14).
    #[error("a free-floating buffer can't allow PUT or GET")]
    OperationOnFree,
    /// `max_size` exceeds the buffer (M-11).
    #[error("max_size {max_size} exceeds the buffer's {len} bytes")]
    MaxSize {
        /// What was asked for.
        max_size: u32,
        /// What the buffer holds.
        len: u64,
    },
    /// More than one message can carry (M-14).
    #[error("{0} bytes exceed the 1 MiB of one message")]
    TooLong(u64),
    /// More than 256 fragments (M-11).
    #[error("{0} fragments, expected at most 256")]
    TooManyFragments(usize),
    /// The node holds as many descriptors as it may.
    #[error("limit of {0} memory descriptors reached")]
    NoSpace(usize),
}

impl AttachError {
    /// The error number that kernel LNet returns.
    pub const fn errno(self) -> Errno {
        match self {
            Self::OtherMatchType(_) | Self::ReservedPortal => Errno::EPERM,
            Self::NoSpace(_) => Errno::ENOMEM,
            Self::BadPortal(_)
            | Self::NoOperation
            | Self::OperationOnFree
            | Self::MaxSize { .. }
            | Self::TooLong(_)
            | Self::TooManyFragments(_) => Errno::EINVAL,
        }
    }
}

/// Why an operation was not even begun. Failures after that arrive as events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The descriptor does not exist, is spent, or is attached to a portal (M-48).
    #[error("no such memory descriptor, or it is spent or attached")]
    BadMd,
    /// The limit on messages in hand is reached.
    #[error("limit of {0} messages reached")]
    NoSpace(usize),
    /// The target is the wildcard.
    #[error("the target NID can't be the wildcard")]
    AnyTarget,
    /// The target is one that has been ordered to fail (F-40).
    #[error("the target is made to fail on purpose")]
    Simulated,
}

impl SendError {
    /// The error number that kernel LNet returns.
    pub const fn errno(self) -> Errno {
        match self {
            Self::BadMd => Errno::ENOENT,
            Self::NoSpace(_) => Errno::ENOMEM,
            Self::AnyTarget => Errno::EINVAL,
            Self::Simulated => Errno::EIO,
        }
    }
}

/// The descriptor named in an unlink is not there (M-43).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no such memory descriptor")]
pub struct UnlinkError;

/// The number of a ping or discovery.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct OpId(pub u64);

/// What a ping or discovery found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Found {
    /// The NID that was asked for.
    pub asked: Nid,
    /// The identity of its peer.
    pub primary: Nid,
    /// Whether this node takes the peer for Multi-Rail.
    pub multi_rail: bool,
    /// The peer's NIDs: in its answer (ping), or as known now (discovery). Without loopback.
    pub nids: Vec<Nid>,
}

/// The end of a ping or discovery.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Which one.
    pub op: OpId,
    /// What came of it.
    pub outcome: Result<Found, Errno>,
}

/// Which counters are to begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Reset {
    /// All: the node's, and those of each interface of ours and of peers.
    #[default]
    All,
    /// The node's alone.
    Node,
    /// Those of one interface, ours or a peer's.
    Interface(Nid),
}
