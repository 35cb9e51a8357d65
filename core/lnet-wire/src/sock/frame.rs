//! Frame headers of versions 2 to 4, and what the cookies in a NOOP mean (wire.md 3.9, 3.10).
//! Version 1 has no frames: LNet headers follow each other bare.
//!
//! Layout: `Raw`, 24 bytes in the order of the sender.

use core::fmt;
use core::mem::{offset_of, size_of};

use zerocopy::byteorder::{BigEndian, LittleEndian, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ByteOrder, WireError};

/// The cookie of keepalives; never names a message.
pub const COOKIE_KEEPALIVE: u64 = 1;
/// The first cookie that can name a message, also after a wrap.
pub const COOKIE_FIRST: u64 = 2;

const WHAT: &str = "socklnd frame";
const WHAT_NOOP: &str = "socklnd NOOP";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw<O: zerocopy::ByteOrder> {
    kind: U32<O>,
    checksum: U32<O>,
    cookie0: U64<O>,
    cookie1: U64<O>,
}

const _: () = {
    type R = Raw<LittleEndian>;
    assert!(size_of::<R>() == FrameHdr::LEN);
    assert!(offset_of!(R, checksum) == 4);
    assert!(offset_of!(R, cookie0) == 8);
    assert!(offset_of!(R, cookie1) == 16);
};

/// What follows a frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum FrameType {
    /// Nothing.
    Noop = 0xC0,
    /// An LNet header and its payload.
    Lnet = 0xC1,
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHdr {
    /// What follows.
    pub kind: FrameType,
    /// The sum, 0 for none. What it covers depends on the version: see [`super::Checksum`].
    pub checksum: u32,
    /// LNET: the cookie with which the receiver shall acknowledge this message, 0 for none. NOOP:
    /// see [`Noop`].
    pub cookie0: u64,
    /// LNET: the one message that this acknowledges on the way, 0 for none. NOOP: see [`Noop`].
    pub cookie1: u64,
}

impl FrameHdr {
    /// Bytes of a frame header.
    pub const LEN: usize = 24;

    /// The frame of an LNet message. `request` asks for an acknowledgement of this message, `ack`
    /// acknowledges another one; 0 for neither.
    pub const fn lnet(request: u64, ack: u64) -> Self {
        Self { kind: FrameType::Lnet, checksum: 0, cookie0: request, cookie1: ack }
    }

    /// The NOOP that means `noop`.
    pub const fn noop(noop: Noop) -> Self {
        let (cookie0, cookie1) = noop.cookies();
        Self { kind: FrameType::Noop, checksum: 0, cookie0, cookie1 }
    }

    /// Reads a frame header from the front of `b`; `order` is that of the peer's HELLO.
    ///
    /// # Errors
    /// Fewer than [`LEN`](Self::LEN) bytes; an unknown frame type.
    pub fn parse(order: ByteOrder, b: &[u8]) -> Result<Self, WireError> {
        match order {
            ByteOrder::Little => parse_as::<LittleEndian>(b),
            ByteOrder::Big => parse_as::<BigEndian>(b),
        }
    }

    /// The header in the given order.
    pub fn to_bytes(self, order: ByteOrder) -> [u8; Self::LEN] {
        match order {
            ByteOrder::Little => self.bytes_as::<LittleEndian>(),
            ByteOrder::Big => self.bytes_as::<BigEndian>(),
        }
    }

    fn bytes_as<O: zerocopy::ByteOrder>(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw::<O> {
            kind: U32::new(self.kind as u32),
            checksum: U32::new(self.checksum),
            cookie0: U64::new(self.cookie0),
            cookie1: U64::new(self.cookie1),
        })
    }
}

fn parse_as<O: zerocopy::ByteOrder>(b: &[u8]) -> Result<FrameHdr, WireError> {
    let (raw, _) = Raw::<O>::ref_from_prefix(b).map_err(|_| WireError::Short {
        what: WHAT,
        need: FrameHdr::LEN,
        have: b.len(),
    })?;
    let kind = match raw.kind.get() {
        0xC0 => FrameType::Noop,
        0xC1 => FrameType::Lnet,
        other => {
            return Err(WireError::Value { what: WHAT, field: "type", value: other.into() });
        }
    };
    Ok(FrameHdr {
        kind,
        checksum: raw.checksum.get(),
        cookie0: raw.cookie0.get(),
        cookie1: raw.cookie1.get(),
    })
}

impl fmt::Display for FrameHdr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FrameType::Noop => match Noop::from_cookies(self.cookie0, self.cookie1) {
                Ok(noop) => write!(f, "NOOP {noop}")?,
                Err(_) => write!(f, "NOOP cookies {:#x} {:#x}", self.cookie0, self.cookie1)?,
            },
            FrameType::Lnet => {
                f.write_str("LNET")?;
                if self.cookie0 != 0 {
                    write!(f, " zc-req {:#x}", self.cookie0)?;
                }
                if self.cookie1 != 0 {
                    write!(f, " zc-ack {:#x}", self.cookie1)?;
                }
            }
        }
        if self.checksum != 0 { write!(f, " csum {:#010x}", self.checksum) } else { Ok(()) }
    }
}

/// What the two cookies of a NOOP mean. Whether the cookies named are outstanding, and whether the
/// version has keepalives and more than one cookie (3 and 4 only), is the receiver's judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noop {
    /// Nothing; accepted and ignored.
    Nothing,
    /// "I am here."
    Keepalive,
    /// Acknowledges one message.
    One(u64),
    /// Acknowledges two messages, the higher cookie first.
    Two(u64, u64),
    /// Acknowledges every message from the first to the last cookie, both included.
    Range(u64, u64),
}

impl Noop {
    /// The meaning of `cookie0` and `cookie1`.
    ///
    /// # Errors
    /// The keepalive cookie beside another one.
    pub const fn from_cookies(cookie0: u64, cookie1: u64) -> Result<Self, WireError> {
        match (cookie0, cookie1) {
            (_, 0) => Ok(Self::Nothing),
            (0 | 1, COOKIE_KEEPALIVE) => Ok(Self::Keepalive),
            (_, COOKIE_KEEPALIVE) => {
                Err(WireError::Value { what: WHAT_NOOP, field: "cookie0", value: cookie0 })
            }
            (0, one) => Ok(Self::One(one)),
            (a, b) if a > b => Ok(Self::Two(a, b)),
            (first, last) => Ok(Self::Range(first, last)),
        }
    }

    /// The two cookies that say this.
    pub const fn cookies(self) -> (u64, u64) {
        match self {
            Self::Nothing => (0, 0),
            Self::Keepalive => (0, COOKIE_KEEPALIVE),
            Self::One(c) => (0, c),
            Self::Two(a, b) | Self::Range(a, b) => (a, b),
        }
    }
}

impl fmt::Display for Noop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Keepalive => f.write_str("keepalive"),
            Self::One(c) => write!(f, "zc-ack {c:#x}"),
            Self::Two(a, b) => write!(f, "zc-ack {a:#x} and {b:#x}"),
            Self::Range(a, b) => write!(f, "zc-ack {a:#x} to {b:#x}"),
        }
    }
}
