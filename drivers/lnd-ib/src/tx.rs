//! A transmit: one exchange with a peer, from the order or request that begins it to its end.

use lnet::Payload;
use lnet_types::{Fault, Instant, IoVec, MsgId, Nid};
use lnet_wire::Hdr;
use lnet_wire::ib::{Done, RdmaDesc, Type};

use crate::flags::{Flags, expects_answer};
use crate::value::{ConnId, MapId, Write};

slotmap::new_key_type! {
    /// A transmit; as a number it is the cookie of its exchange.
    pub(crate) struct TxKey;
}

/// What a transmit is for.
#[derive(Debug)]
pub(crate) enum TxKind {
    /// An IMMEDIATE message.
    Immediate { hdr: Hdr, payload: Payload },
    /// PUT_REQ, and PUT_DONE behind the data.
    Put {
        hdr: Hdr,
        nob: u64,
        /// The message behind the data, once the place of these is known.
        done: Option<(Done, Vec<Write>)>,
    },
    /// GET_REQ.
    Get {
        hdr: Hdr,
        sink: IoVec,
        rd: Option<RdmaDesc>,
        /// What GET_DONE said.
        landed: Option<u32>,
    },
    /// PUT_ACK: the data of a peer's PUT are to come.
    PutAck {
        src_cookie: u64,
        rd: Option<RdmaDesc>,
        nob: u32,
        /// Where the data are when they have come.
        landing: Landing,
    },
    /// GET_DONE behind the data of a peer's GET.
    GetData { done: Done, to: RdmaDesc, writes: Vec<Write> },
    /// PUT_NAK, or GET_DONE without data.
    Refusal { kind: Type, done: Done },
    /// NOOP.
    Noop,
}

impl TxKind {
    /// The type of the message that is to be sent next.
    pub(crate) const fn next_type(&self) -> Type {
        match self {
            Self::Immediate { .. } => Type::Immediate,
            Self::Put { done: None, .. } => Type::PutReq,
            Self::Put { done: Some(_), .. } => Type::PutDone,
            Self::Get { .. } => Type::GetReq,
            Self::PutAck { .. } => Type::PutAck,
            Self::GetData { .. } => Type::GetDone,
            Self::Refusal { kind, .. } => *kind,
            Self::Noop => Type::Noop,
        }
    }
}

/// Where the data of a peer's PUT go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Landing {
    /// Into the spans of the verdict.
    InPlace,
    /// To the node itself, in a buffer of the shell's.
    Node,
    /// Into a buffer of the shell's, and from there into the spans of the verdict.
    Through(IoVec),
}

/// Where a transmit is, before it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its memory is being mapped.
    Mapping,
    /// It waits for a connection to its peer.
    Peer,
    /// It is with a connection: queued, posted or waiting.
    Conn,
}

/// A transmit.
#[derive(Debug)]
pub(crate) struct Tx {
    pub(crate) peer: Nid,
    pub(crate) conn: Option<ConnId>,
    pub(crate) place: Place,
    pub(crate) kind: TxKind,
    pub(crate) flags: Flags,
    /// The node's message that ends with it: one sent, or of PUT_ACK one received.
    pub(crate) msg: Option<MsgId>,
    /// The first thing that went wrong.
    pub(crate) failed: Option<Fault>,
    /// What becomes of it if nothing of its connection, which has ended, is still to be read that says
    /// otherwise.
    pub(crate) doom: Option<Fault>,
    /// Memory that is mapped for it.
    pub(crate) map: Option<MapId>,
    /// A message with the key of its memory has been posted.
    pub(crate) announced: bool,
    /// When it was queued last.
    pub(crate) since: Instant,
    /// When it has to be complete.
    pub(crate) deadline: Instant,
    /// The caller's limit for a transmission.
    pub(crate) limit: core::time::Duration,
}

impl Tx {
    /// Whether the peer's answer to what was posted is here. It shows that the posting has arrived, however
    /// its completion, which is still to come, ends: an acknowledgement may be lost behind the answer.
    pub(crate) const fn is_answered(&self) -> bool {
        let Flags { sending, waiting, queued } = self.flags;
        sending > 0 && !waiting && !queued && expects_answer(self.kind.next_type())
    }

    /// Whether the peer knows the key of its memory, and may be writing there as long as the queue pair
    /// lives.
    pub(crate) const fn is_exposed(&self) -> bool {
        self.announced
    }
}
