//! What emulated adapters say to each other.

use lnet_types::Nid;

use crate::value::CmRejection;

/// A queue pair of some adapter, in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QpNum(pub u64);

/// Bytes around each piece of a message on a wire, and the payload of a piece.
const AROUND: u64 = 58;
const PIECE: u64 = 4096;

/// A packet.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The address that it comes from.
    pub from: Nid,
    /// The address that it goes to.
    pub to: Nid,
    /// What it says.
    pub body: PacketBody,
}

/// RDMA write of a chain, as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteWrite {
    /// The key of the memory.
    pub key: u32,
    /// Where.
    pub addr: u64,
    /// What.
    pub bytes: Vec<u8>,
}

/// What a packet says.
#[derive(Clone, Debug)]
pub enum PacketBody {
    /// A connection is asked for.
    Request {
        /// The queue pair that asks.
        qp: QpNum,
        /// Private data.
        private: Vec<u8>,
    },
    /// It is granted.
    Accept {
        /// The queue pair that asked.
        to: QpNum,
        /// The other one.
        qp: QpNum,
        /// Private data.
        private: Vec<u8>,
    },
    /// The grant has arrived.
    Ready {
        /// The queue pair that granted.
        to: QpNum,
    },
    /// It is refused.
    Reject {
        /// The queue pair that asked.
        to: QpNum,
        /// Why.
        why: CmRejection,
        /// Private data.
        private: Vec<u8>,
    },
    /// A connection ends.
    Disconnect {
        /// The queue pair here.
        to: QpNum,
        /// The other one.
        qp: QpNum,
    },
    /// That is known.
    Gone {
        /// The queue pair that has ended.
        to: QpNum,
    },
    /// A chain of work requests.
    Chain {
        /// The receiving queue pair.
        to: QpNum,
        /// Its place in the order.
        number: u64,
        /// The writes.
        writes: Vec<RemoteWrite>,
        /// The message.
        message: Vec<u8>,
    },
    /// Everything up to this chain has been carried out.
    Ack {
        /// The queue pair that posted.
        to: QpNum,
        /// The chain.
        number: u64,
    },
    /// This chain is missing.
    Again {
        /// The queue pair that posted.
        to: QpNum,
        /// The chain.
        number: u64,
    },
    /// A write has been refused: both queue pairs are in the error state.
    Refused {
        /// The queue pair that posted.
        to: QpNum,
    },
}

impl Packet {
    /// Bytes on a wire.
    pub fn wire_len(&self) -> u64 {
        let inner = match &self.body {
            PacketBody::Chain { writes, message, .. } => {
                let written: usize = writes.iter().map(|write| write.bytes.len()).sum();
                written + message.len()
            }
            PacketBody::Request { .. }
            | PacketBody::Accept { .. }
            | PacketBody::Reject { .. }
            | PacketBody::Ready { .. }
            | PacketBody::Disconnect { .. }
            | PacketBody::Gone { .. } => 256,
            PacketBody::Ack { .. } | PacketBody::Again { .. } | PacketBody::Refused { .. } => 4,
        } as u64;
        inner + inner.div_ceil(PIECE).max(1) * AROUND
    }

    /// Whether it is one of the connection manager's.
    pub const fn is_managing(&self) -> bool {
        !matches!(
            self.body,
            PacketBody::Chain { .. }
                | PacketBody::Ack { .. }
                | PacketBody::Again { .. }
                | PacketBody::Refused { .. }
        )
    }
}
