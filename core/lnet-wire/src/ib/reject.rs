//! The answer that refuses a connection request: private data of the connection manager's reject
//! (wire.md 7.6).

use core::fmt;
use core::mem::{offset_of, size_of};

use zerocopy::byteorder::{BigEndian, LittleEndian, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{MAGIC, MSG_MAX};
use crate::order::{first4, room};
use crate::{ByteOrder, WireError};

const WHAT: &str = "o2iblnd reject";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw<O: zerocopy::ByteOrder> {
    magic: U32<O>,
    version: U16<O>,
    why: u8,
    padding: u8,
    incarnation: U64<O>,
    queue_depth: U16<O>,
    max_frags: U16<O>,
    max_msg_size: U32<O>,
}

const _: () = {
    type R = Raw<LittleEndian>;
    assert!(size_of::<R>() == Reject::LEN);
    assert!(offset_of!(R, version) == 4);
    assert!(offset_of!(R, why) == 6);
    assert!(offset_of!(R, incarnation) == 8);
    assert!(offset_of!(R, queue_depth) == 16);
    assert!(offset_of!(R, max_frags) == 18);
    assert!(offset_of!(R, max_msg_size) == 20);
};

/// Why a connection is refused. Unknown numbers are kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RejectReason(pub u8);

impl RejectReason {
    /// Both sides connect at once, and the other connection is the one that stays.
    pub const CONN_RACE: Self = Self(1);
    /// Out of memory, or at a limit.
    pub const NO_RESOURCES: Self = Self(2);
    /// The request makes no sense here.
    pub const FATAL: Self = Self(3);
    /// Another version is spoken.
    pub const CONN_UNCOMPAT: Self = Self(4);
    /// For another incarnation, or from another one than that of the present connections.
    pub const CONN_STALE: Self = Self(5);
    /// Too many fragments are asked for.
    pub const RDMA_FRAGS: Self = Self(6);
    /// Too many messages in flight are asked for.
    pub const MSG_QUEUE_SIZE: Self = Self(7);
    /// The request names no route of this node.
    pub const INVALID_SRV_ID: Self = Self(8);
    /// Interfaces are still being set up.
    pub const EARLY: Self = Self(9);

    /// Its name.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::CONN_RACE => "CONN_RACE",
            Self::NO_RESOURCES => "NO_RESOURCES",
            Self::FATAL => "FATAL",
            Self::CONN_UNCOMPAT => "CONN_UNCOMPAT",
            Self::CONN_STALE => "CONN_STALE",
            Self::RDMA_FRAGS => "RDMA_FRAGS",
            Self::MSG_QUEUE_SIZE => "MSG_QUEUE_SIZE",
            Self::INVALID_SRV_ID => "INVALID_SRV_ID",
            Self::EARLY => "EARLY",
            _ => return None,
        })
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A refusal, with the limits of the refusing side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The order of the sender.
    pub order: ByteOrder,
    /// The version that the refusing side speaks; any number, since it is what the sides differ in.
    pub version: u16,
    /// Why.
    pub why: RejectReason,
    /// Incarnation of the refusing side, 0 if unknown.
    pub incarnation: u64,
    /// Messages in flight that the refusing side allows.
    pub queue_depth: u16,
    /// Fragments that the refusing side allows.
    pub max_frags: u16,
    /// Bytes of the largest message of the refusing side.
    pub max_msg_size: u32,
}

impl Reject {
    /// Bytes of a refusal.
    pub const LEN: usize = 24;

    /// Reads a refusal from the front of `b`.
    ///
    /// # Errors
    /// Fewer than [`LEN`](Self::LEN) bytes; another magic number.
    pub fn parse(b: &[u8]) -> Result<Self, WireError> {
        let magic = first4(WHAT, b)?;
        match ByteOrder::of_magic(magic, MAGIC) {
            Some(ByteOrder::Little) => parse_as::<LittleEndian>(ByteOrder::Little, b),
            Some(ByteOrder::Big) => parse_as::<BigEndian>(ByteOrder::Big, b),
            None => Err(WireError::Magic { what: WHAT, magic: u32::from_le_bytes(magic) }),
        }
    }

    /// The bytes of the refusal.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        // The room is what is asked for.
        let _ = match self.order {
            ByteOrder::Little => self.emit_as::<LittleEndian>(&mut out),
            ByteOrder::Big => self.emit_as::<BigEndian>(&mut out),
        };
        out
    }

    fn emit_as<O: zerocopy::ByteOrder>(&self, out: &mut [u8]) -> Result<(), WireError> {
        let raw = Raw::<O> {
            magic: U32::new(MAGIC),
            version: U16::new(self.version),
            why: self.why.0,
            padding: 0,
            incarnation: U64::new(self.incarnation),
            queue_depth: U16::new(self.queue_depth),
            max_frags: U16::new(self.max_frags),
            max_msg_size: U32::new(self.max_msg_size),
        };
        room(WHAT, out, Self::LEN)?.copy_from_slice(raw.as_bytes());
        Ok(())
    }

    /// The refusal of a little-endian node, for `why`, with the largest message of the protocol.
    pub const fn new(why: RejectReason, version: u16, incarnation: u64) -> Self {
        Self {
            order: ByteOrder::Little,
            version,
            why,
            incarnation,
            queue_depth: 0,
            max_frags: 0,
            max_msg_size: MSG_MAX as u32,
        }
    }
}

fn parse_as<O: zerocopy::ByteOrder>(order: ByteOrder, b: &[u8]) -> Result<Reject, WireError> {
    let (raw, _) = Raw::<O>::ref_from_prefix(b).map_err(|_| WireError::Short {
        what: WHAT,
        need: Reject::LEN,
        have: b.len(),
    })?;
    Ok(Reject {
        order,
        version: raw.version.get(),
        why: RejectReason(raw.why),
        incarnation: raw.incarnation.get(),
        queue_depth: raw.queue_depth.get(),
        max_frags: raw.max_frags.get(),
        max_msg_size: raw.max_msg_size.get(),
    })
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, why, incarnation, queue_depth, max_frags, .. } = self;
        write!(
            f,
            "REJECT {why} version {version:#x} incarnation {incarnation:#x} depth {queue_depth} \
             frags {max_frags}"
        )
    }
}
