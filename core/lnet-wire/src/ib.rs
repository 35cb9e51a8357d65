//! What the RDMA driver puts around LNet messages (wire.md 7): `msg.rs` every message of a
//! connection with its checks, `rdma.rs` the descriptor of remote memory in two of them, `reject.rs`
//! the answer that refuses a connection, `checksum.rs` the sum that messages may have.
//!
//! One message fills one receive buffer, so there is no stream to cut: a message is parsed from the
//! bytes of its buffer. Integers are in the order of the sender, which the magic number announces;
//! LNet headers inside are little-endian always, cookies are opaque.

mod checksum;
mod msg;
mod rdma;
mod reject;

pub use checksum::{Sign, checksum};
pub use msg::{Body, ConnParams, Done, Msg, MsgHead, Type, peek_version};
pub use rdma::{Frag, RdmaDesc};
pub use reject::{Reject, RejectReason};

use core::fmt;

/// The magic number of every message, and of the answer that refuses a connection.
pub const MAGIC: u32 = 0x0BE9_1B91;
/// Bytes of the largest message: that of a receive buffer.
pub const MSG_MAX: usize = 4096;
/// The largest payload of an IMMEDIATE message, bytes.
pub const IMMEDIATE_MAX: usize = MSG_MAX - Body::IMMEDIATE_PAYLOAD;
/// Fragments that a descriptor of remote memory may have.
pub const FRAGS_MAX: usize = 257;

/// The protocol version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Version {
    /// The old one: NOOP messages take credits.
    V11 = 0x11,
    /// The current one.
    V12 = 0x12,
}

impl Version {
    /// The version with that number, if it is known.
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            0x11 => Some(Self::V11),
            0x12 => Some(Self::V12),
            _ => None,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", *self as u16)
    }
}
