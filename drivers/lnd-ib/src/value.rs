//! The values that cross the border below (to a shell with verbs, or to an emulated fabric) and the
//! border above (to the node). Inputs are methods of [`crate::IbNi`].

use lnet::{Doubt, Link, Payload, Rx};
use lnet_types::{Fault, Instant, IoVec, MsgId, Nid, RxId};
use lnet_wire::Hdr;
use lnet_wire::ib::Type;

use crate::fault::CloseReason;

slotmap::new_key_type! {
    /// A connection: an identifier of the connection manager with its queue pair.
    pub struct ConnId;
}

/// The shell's name for a connection request that has arrived and has not been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A chain of work requests, which completes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkId(pub u64);

/// Memory that the adapter can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapId(pub u64);

/// How large a queue pair has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSize {
    /// Chains of work requests that are posted at a time.
    pub sends: u16,
    /// Receive buffers, each of [`lnet_wire::ib::MSG_MAX`] bytes.
    pub receives: u16,
}

/// A call of the connection manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmCall {
    /// Make an identifier and resolve the address of a NID, on port 987.
    Resolve {
        /// The new connection.
        conn: ConnId,
        /// The peer.
        to: Nid,
    },
    /// Resolve the route of a resolved address.
    ResolveRoute {
        /// The connection.
        conn: ConnId,
    },
    /// Make a queue pair and ask for the connection.
    Connect {
        /// The connection.
        conn: ConnId,
        /// What the request carries.
        private: Vec<u8>,
        /// The queue pair.
        qp: QpSize,
    },
    /// Make a queue pair and accept a request.
    Accept {
        /// The new connection.
        conn: ConnId,
        /// The request.
        request: RequestId,
        /// What the reply carries.
        private: Vec<u8>,
        /// The queue pair.
        qp: QpSize,
    },
    /// Refuse a request.
    Reject {
        /// The request.
        request: RequestId,
        /// What the refusal carries.
        private: Vec<u8>,
    },
    /// Say that the connection ends, and put its queue pair into the error state: all posted work
    /// completes, as failed where it was not done.
    Disconnect {
        /// The connection.
        conn: ConnId,
    },
    /// Destroy queue pair and identifier. When the call returns, the adapter reads and writes nothing
    /// of this connection any more, and nothing is reported of it.
    Destroy {
        /// The connection.
        conn: ConnId,
    },
}

/// Why the connection manager reports a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmRejection {
    /// No service listens there.
    NoListener,
    /// The connection is not known there any more.
    Stale,
    /// The other driver refused, with private data.
    Consumer,
    /// Any other reason.
    Other,
}

/// An event of the connection manager on one connection (RS-055).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEvent<'a> {
    /// The address is resolved.
    AddrResolved,
    /// The address cannot be resolved.
    AddrError,
    /// The route is resolved.
    RouteResolved,
    /// The route cannot be resolved.
    RouteError,
    /// The attempt failed.
    ConnectError,
    /// The peer does not answer.
    Unreachable,
    /// The peer refuses.
    Rejected {
        /// Why.
        why: CmRejection,
        /// What the refusal carries.
        private: &'a [u8],
    },
    /// The connection is there.
    Established {
        /// What the reply carries, on the side that connected.
        private: &'a [u8],
    },
    /// The peer has ended the connection.
    Disconnected,
    /// The device goes away.
    DeviceRemoval,
    /// The address of the interface has changed.
    AddrChange,
    /// The queue pair may be used again.
    TimewaitExit,
}

/// What memory is mapped.
#[derive(Clone, Debug)]
pub enum MapMemory {
    /// Memory of the node's users.
    Spans(IoVec),
    /// Bytes of the node's own, to be read.
    Payload(Payload),
    /// A buffer of the shell's, to be written. Its bytes stay readable behind [`Output::Unmap`] until
    /// the outputs have been drained.
    Buffer(u32),
}

/// What the adapter may do with mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it for writes of ours.
    LocalRead,
    /// Let the peer write it.
    RemoteWrite,
}

/// One RDMA write of a chain: contiguous at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The memory that it reads.
    pub from: MapId,
    /// First byte in that memory.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Where at the peer.
    pub addr: u64,
    /// The peer's key.
    pub key: u32,
}

/// A chain of work requests: the writes, then a message. It completes as one, with its message.
#[derive(Clone, Debug)]
pub struct Post {
    /// The connection.
    pub conn: ConnId,
    /// Its name.
    pub work: WorkId,
    /// RDMA writes, in order.
    pub writes: Vec<Write>,
    /// The type of the message.
    pub kind: Type,
    /// The message, without payload.
    pub head: Vec<u8>,
    /// The payload behind it, of an IMMEDIATE.
    pub payload: Option<Payload>,
}

/// Where the payload of a received message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landed {
    /// In the spans of the verdict.
    InPlace,
    /// In a receive buffer, `len` bytes at `at`, for the node itself.
    Slot {
        /// The connection.
        conn: ConnId,
        /// The receive buffer.
        slot: u16,
        /// First byte.
        at: usize,
        /// Bytes.
        len: u32,
    },
    /// In a mapped buffer of the shell's ([`MapMemory::Buffer`]), for the node itself.
    Buffer(MapId),
    /// With the shell, which has kept it ([`Output::Keep`]): the first `len` bytes, for the node itself.
    Kept {
        /// The message.
        rx: RxId,
        /// Bytes.
        len: u32,
    },
}

/// What the node is to hear.
#[derive(Clone, Debug)]
pub enum Event {
    /// A header has arrived: [`crate::IbNi::verdict`] is to follow, now or later.
    Header {
        /// The message.
        rx: Rx,
        /// Its header.
        hdr: Hdr,
    },
    /// A delivered message is in place, or will never be.
    RxDone {
        /// The node's name for it.
        msg: MsgId,
        /// Where its payload is.
        outcome: Result<Landed, Fault>,
    },
    /// A peer's GET is here whose REPLY is to go in the exchange that brought it.
    Asked {
        /// The node's name for it.
        msg: MsgId,
    },
    /// A header without verdict is gone with its connection.
    RxGone {
        /// The message.
        rx: RxId,
    },
    /// A message of the node has ended; its memory is the caller's again.
    TxDone {
        /// The node's name for it.
        msg: MsgId,
        /// How.
        outcome: Result<(), Fault>,
    },
    /// The last connection to a peer has failed and none is being made (B-32).
    PeerDown {
        /// The peer.
        nid: Nid,
        /// When it was last heard.
        last_alive: Instant,
    },
    /// The interface has become usable or unusable (B-40).
    Link(Link),
    /// The judgement of the rail to a peer has changed (DEC-31).
    Rail {
        /// The peer.
        nid: Nid,
        /// The judgement.
        doubt: Doubt,
    },
    /// The link is slower than it has been, or as fast again.
    Degraded(bool),
    /// A connection has ended.
    Closed {
        /// The peer.
        nid: Nid,
        /// Why.
        reason: CloseReason,
    },
}

/// What is to be done, in the order in which it is polled.
#[derive(Clone, Debug)]
pub enum Output {
    /// Call the connection manager.
    Cm(CmCall),
    /// Post a receive buffer.
    Receive {
        /// The connection.
        conn: ConnId,
        /// The buffer.
        slot: u16,
    },
    /// Post work requests.
    Post(Post),
    /// Make memory reachable for the adapter, and answer with [`crate::IbNi::mapped`].
    Map {
        /// Its name.
        map: MapId,
        /// The memory.
        memory: MapMemory,
        /// What for.
        access: Access,
    },
    /// Make memory unreachable: when this returns, its key opens nothing any more. A registration
    /// cache keeps the pages, not the key.
    Unmap {
        /// Its name.
        map: MapId,
    },
    /// Copy payload out of a receive buffer.
    Copy {
        /// The connection.
        conn: ConnId,
        /// The receive buffer.
        slot: u16,
        /// First byte in it.
        at: usize,
        /// Bytes; where the spans hold less, the rest is thrown away.
        len: u32,
        /// Where to.
        to: IoVec,
    },
    /// Keep payload of a receive buffer whose connection is about to be destroyed, until
    /// [`Output::Release`].
    Keep {
        /// The message.
        rx: RxId,
        /// The connection.
        conn: ConnId,
        /// The receive buffer.
        slot: u16,
        /// First byte in it.
        at: usize,
        /// Bytes.
        len: u32,
    },
    /// Copy what was kept of a message into spans, as far as there is room, and keep it no longer.
    Release {
        /// The message.
        rx: RxId,
        /// Where to.
        to: IoVec,
    },
    /// Copy the bytes of a mapped buffer of the shell's, which has just been unmapped.
    Scatter {
        /// Its name.
        map: MapId,
        /// Where to, as many bytes as there are.
        to: IoVec,
    },
    /// The device was taken away: open it again if it is back, and answer with
    /// [`crate::IbNi::reopened`] then. No connection and no memory is left of before.
    Reopen,
    /// The port is down, perhaps because the device is being taken away without a word: if the system
    /// does not have it any more, answer with [`crate::DeviceEvent::Removed`].
    Look,
    /// Report to the node.
    Event(Event),
}
