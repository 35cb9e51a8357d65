//! The connection request: the first bytes on every TCP connection, naming the NID that is wanted,
//! and the 16 bytes with which an acceptor answers what it does not understand (wire.md 2).
//!
//! Layouts: `RawV1` (16 bytes), `RawV2` (28 bytes), in the order of the sender.

use core::fmt;
use core::mem::{offset_of, size_of};

use lnet_types::Nid;
use zerocopy::byteorder::{BigEndian, LittleEndian, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::order::{first4, room, short_nid};
use crate::{ByteOrder, Need, WireError};

/// `LNET_PROTO_ACCEPTOR_MAGIC`.
pub const MAGIC: u32 = 0xACCE_7100;
/// The generic LNet magic; an acceptor that meets it answers with its version.
pub const GENERIC_MAGIC: u32 = 0x4572_6963;

const WHAT: &str = "connection request";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawV1<O: zerocopy::ByteOrder> {
    magic: U32<O>,
    version: U32<O>,
    nid: U64<O>,
}

const _: () = {
    type R = RawV1<LittleEndian>;
    assert!(size_of::<R>() == 16);
    assert!(offset_of!(R, version) == 4);
    assert!(offset_of!(R, nid) == 8);
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawV2<O: zerocopy::ByteOrder> {
    magic: U32<O>,
    version: U32<O>,
    nid: [u8; Nid::WIRE_LEN],
}

const _: () = {
    type R = RawV2<LittleEndian>;
    assert!(size_of::<R>() == 28);
    assert!(offset_of!(R, version) == 4);
    assert!(offset_of!(R, nid) == 8);
};

const V1_LEN: usize = size_of::<RawV1<LittleEndian>>();
const V2_LEN: usize = size_of::<RawV2<LittleEndian>>();

/// The version of a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Version {
    /// 16 bytes, for a target with a 4-byte address.
    V1 = 1,
    /// 28 bytes, for any target.
    V2 = 2,
}

/// What an initiator asks of an acceptor: the interface with this NID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The order of the sender.
    pub order: ByteOrder,
    /// Which layout.
    pub version: Version,
    /// The NID of the wanted interface; what follows is for its driver.
    pub nid: Nid,
}

impl Request {
    /// Bytes of the longest request.
    pub const LEN_MAX: usize = V2_LEN;

    /// The request for `nid`, in the oldest version that can name it.
    pub const fn to(nid: Nid) -> Self {
        let version = if nid.is_large() { Version::V2 } else { Version::V1 };
        Self { order: ByteOrder::Little, version, nid }
    }

    /// How many bytes the request that begins with `prefix` has.
    ///
    /// # Errors
    /// A magic or version that is not known, as soon as its bytes are there: [`wants_answer`] tells
    /// whether the acceptor owes [`ANSWER`] before it closes.
    pub fn need(prefix: &[u8]) -> Result<Need, WireError> {
        let Ok(magic) = first4(WHAT, prefix) else {
            return Ok(Need::AtLeast(4));
        };
        let order = order_of(magic)?;
        if prefix.len() < 8 {
            return Ok(Need::AtLeast(8));
        }
        let version = match order {
            ByteOrder::Little => version_of::<LittleEndian>(prefix)?,
            ByteOrder::Big => version_of::<BigEndian>(prefix)?,
        };
        Ok(Need::Exactly(match version {
            Version::V1 => V1_LEN,
            Version::V2 => V2_LEN,
        }))
    }

    /// Reads a request from the front of `b`; also returns how many bytes it took.
    ///
    /// # Errors
    /// As [`need`](Self::need); too few bytes; a NID20 of an impossible size.
    pub fn parse(b: &[u8]) -> Result<(Self, usize), WireError> {
        match order_of(first4(WHAT, b)?)? {
            ByteOrder::Little => parse_as::<LittleEndian>(ByteOrder::Little, b),
            ByteOrder::Big => parse_as::<BigEndian>(ByteOrder::Big, b),
        }
    }

    /// Writes the request to the front of `out` and returns its length.
    ///
    /// # Errors
    /// A large NID in version 1; `out` shorter than the request.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        match self.order {
            ByteOrder::Little => self.emit_as::<LittleEndian>(out),
            ByteOrder::Big => self.emit_as::<BigEndian>(out),
        }
    }

    fn emit_as<O: zerocopy::ByteOrder>(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let (magic, version) = (U32::<O>::new(MAGIC), U32::new(self.version as u32));
        match self.version {
            Version::V1 => {
                let nid = U64::new(short_nid(self.nid, WHAT, "nid")?);
                let raw = RawV1 { magic, version, nid };
                room(WHAT, out, V1_LEN)?.copy_from_slice(raw.as_bytes());
                Ok(V1_LEN)
            }
            Version::V2 => {
                let raw = RawV2 { magic, version, nid: *self.nid.as_wire() };
                room(WHAT, out, V2_LEN)?.copy_from_slice(raw.as_bytes());
                Ok(V2_LEN)
            }
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CONNREQ v{} nid {}", self.version as u32, self.nid)?;
        if self.order == ByteOrder::Big { f.write_str(" big-endian") } else { Ok(()) }
    }
}

fn order_of(magic: [u8; 4]) -> Result<ByteOrder, WireError> {
    ByteOrder::of_magic(magic, MAGIC)
        .ok_or_else(|| WireError::Magic { what: WHAT, magic: u32::from_le_bytes(magic) })
}

fn parse_as<O: zerocopy::ByteOrder>(
    order: ByteOrder,
    b: &[u8],
) -> Result<(Request, usize), WireError> {
    let version = version_of::<O>(b)?;
    match version {
        Version::V1 => {
            let (raw, _) = RawV1::<O>::ref_from_prefix(b).map_err(|_| short(V1_LEN, b))?;
            Ok((Request { order, version, nid: Nid::from_nid4(raw.nid.get()) }, V1_LEN))
        }
        Version::V2 => {
            let (raw, _) = RawV2::<O>::ref_from_prefix(b).map_err(|_| short(V2_LEN, b))?;
            let nid = Nid::from_wire(raw.nid).map_err(|source| WireError::Nid {
                what: WHAT,
                field: "nid",
                source,
            })?;
            Ok((Request { order, version, nid }, V2_LEN))
        }
    }
}

/// The version of a request whose magic was found good and in order `O`.
fn version_of<O: zerocopy::ByteOrder>(b: &[u8]) -> Result<Version, WireError> {
    let (head, _) = <[U32<O>; 2]>::ref_from_prefix(b).map_err(|_| short(8, b))?;
    match head[1].get() {
        1 => Ok(Version::V1),
        2 => Ok(Version::V2),
        version => Err(WireError::Version { what: WHAT, version }),
    }
}

fn short(need: usize, b: &[u8]) -> WireError {
    WireError::Short { what: WHAT, need, have: b.len() }
}

/// What an acceptor sends, just before it closes, to those who speak another version or the
/// generic protocol: a version 1 request without a target.
pub const ANSWER: [u8; V1_LEN] = [0x00, 0x71, 0xCE, 0xAC, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Whether an acceptor that refused a request for `why` sends [`ANSWER`] before it closes.
pub fn wants_answer(why: &WireError) -> bool {
    match *why {
        WireError::Version { .. } => true,
        WireError::Magic { magic, .. } => {
            magic == GENERIC_MAGIC || magic.swap_bytes() == GENERIC_MAGIC
        }
        _ => false,
    }
}

/// Whether the bytes that came where a HELLO was expected are an acceptor's [`ANSWER`], in the
/// order of any sender: the other end has another version of connection requests.
pub fn is_answer(b: &[u8]) -> bool {
    b.first_chunk().is_some_and(|m| ByteOrder::of_magic(*m, MAGIC).is_some())
}
