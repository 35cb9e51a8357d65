//! HELLO, the first message of each side on a connection (wire.md 3.3).
//!
//! Layouts: `RawV1` (72 bytes, little-endian always), `RawV3` (versions 2 and 3, 56 bytes) and
//! `RawV4` (80 bytes), these two in the order of the sender. IPv4 addresses of the sender may
//! follow in versions 1 to 3; unused today, but old nodes send them.

use core::fmt;
use core::mem::{offset_of, size_of};
use core::net::Ipv4Addr;

use lnet_types::{Nid, Pid};
use smallvec::SmallVec;
use zerocopy::byteorder::{BigEndian, LittleEndian, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ConnType;
use crate::order::{first4, room, short_nid};
use crate::{ByteOrder, Need, WireError};

/// The magic of versions 2 to 4: the generic LNet magic.
pub const MAGIC: u32 = 0x4572_6963;
/// The magic of version 1.
pub const MAGIC_V1: u32 = 0xEEBC_0DED;
/// Addresses that a HELLO may carry.
pub const IPS_MAX: usize = 16;

const WHAT: &str = "HELLO";
/// The message type of a version 1 HELLO, in the place of an LNet header's.
const V1_TYPE: u32 = 4;
/// Version 1 has major and minor; this is 1.0 read as one little-endian number.
const V1_VERSION: u32 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawV1 {
    magic: U32<LittleEndian>,
    version_major: U16<LittleEndian>,
    version_minor: U16<LittleEndian>,
    src_nid: U64<LittleEndian>,
    dest_pid: U32<LittleEndian>,
    src_pid: U32<LittleEndian>,
    kind: U32<LittleEndian>,
    payload_length: U32<LittleEndian>,
    incarnation: U64<LittleEndian>,
    conn_type: U32<LittleEndian>,
    unused: [u8; 28],
}

const _: () = {
    assert!(size_of::<RawV1>() == 72);
    assert!(offset_of!(RawV1, version_major) == 4);
    assert!(offset_of!(RawV1, version_minor) == 6);
    assert!(offset_of!(RawV1, src_nid) == 8);
    assert!(offset_of!(RawV1, dest_pid) == 16);
    assert!(offset_of!(RawV1, src_pid) == 20);
    assert!(offset_of!(RawV1, kind) == 24);
    assert!(offset_of!(RawV1, payload_length) == 28);
    assert!(offset_of!(RawV1, incarnation) == 32);
    assert!(offset_of!(RawV1, conn_type) == 40);
    assert!(offset_of!(RawV1, unused) == 44);
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawV3<O: zerocopy::ByteOrder> {
    magic: U32<O>,
    version: U32<O>,
    src_nid: U64<O>,
    dst_nid: U64<O>,
    src_pid: U32<O>,
    dst_pid: U32<O>,
    src_incarnation: U64<O>,
    dst_incarnation: U64<O>,
    conn_type: U32<O>,
    nips: U32<O>,
}

const _: () = {
    type R = RawV3<LittleEndian>;
    assert!(size_of::<R>() == 56);
    assert!(offset_of!(R, version) == 4);
    assert!(offset_of!(R, src_nid) == 8);
    assert!(offset_of!(R, dst_nid) == 16);
    assert!(offset_of!(R, src_pid) == 24);
    assert!(offset_of!(R, dst_pid) == 28);
    assert!(offset_of!(R, src_incarnation) == 32);
    assert!(offset_of!(R, dst_incarnation) == 40);
    assert!(offset_of!(R, conn_type) == 48);
    assert!(offset_of!(R, nips) == 52);
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawV4<O: zerocopy::ByteOrder> {
    magic: U32<O>,
    version: U32<O>,
    src_nid: [u8; Nid::WIRE_LEN],
    dst_nid: [u8; Nid::WIRE_LEN],
    src_pid: U32<O>,
    dst_pid: U32<O>,
    src_incarnation: U64<O>,
    dst_incarnation: U64<O>,
    conn_type: U32<O>,
    nips: U32<O>,
}

const _: () = {
    type R = RawV4<LittleEndian>;
    assert!(size_of::<R>() == 80);
    assert!(offset_of!(R, version) == 4);
    assert!(offset_of!(R, src_nid) == 8);
    assert!(offset_of!(R, dst_nid) == 28);
    assert!(offset_of!(R, src_pid) == 48);
    assert!(offset_of!(R, dst_pid) == 52);
    assert!(offset_of!(R, src_incarnation) == 56);
    assert!(offset_of!(R, dst_incarnation) == 64);
    assert!(offset_of!(R, conn_type) == 72);
    assert!(offset_of!(R, nips) == 76);
};

const V1_LEN: usize = size_of::<RawV1>();
const V3_LEN: usize = size_of::<RawV3<LittleEndian>>();
const V4_LEN: usize = size_of::<RawV4<LittleEndian>>();

/// The protocol version of a connection: it decides the HELLO, whether there are frames, and the
/// form of LNet headers (wire.md 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Version {
    /// Bare LNet headers.
    V1 = 1,
    /// Frames, checksums.
    V2 = 2,
    /// Keepalives, acknowledgements of several messages at once.
    V3 = 3,
    /// As 3, with large NIDs.
    V4 = 4,
}

impl Version {
    /// Which form LNet headers have.
    pub const fn hdr_form(self) -> crate::HdrForm {
        match self {
            Self::V1 | Self::V2 | Self::V3 => crate::HdrForm::Short,
            Self::V4 => crate::HdrForm::Long,
        }
    }

    /// Whether LNet headers come in frames ([`super::FrameHdr`]).
    pub const fn has_frames(self) -> bool {
        !matches!(self, Self::V1)
    }

    /// Whether there are keepalives and NOOPs that acknowledge more than one message.
    pub const fn has_keepalives(self) -> bool {
        matches!(self, Self::V3 | Self::V4)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", *self as u32)
    }
}

/// A HELLO of any version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The order of the sender, also that of all its frame headers. Version 1 is always little.
    pub order: ByteOrder,
    /// The version, hence the layout.
    pub version: Version,
    /// Who sends it.
    pub src: Nid,
    /// The target that the sender assumes; not to be trusted, and not an error if it is no NID
    /// ([`Nid::ANY`] then). Version 1 does not have it: [`Nid::ANY`].
    pub dst: Nid,
    /// Process of the sender.
    pub src_pid: Pid,
    /// Process of the receiver, 0 from an initiator; not to be trusted.
    pub dst_pid: Pid,
    /// Incarnation of the sender's interface.
    pub src_incarnation: u64,
    /// Incarnation of the receiver by the sender's record, 0 from an initiator; not to be
    /// trusted. Version 1 does not have it: 0.
    pub dst_incarnation: u64,
    /// What the sender calls the connection.
    pub conn_type: ConnType,
    /// Addresses of the sender, none zero, at most [`IPS_MAX`]. Version 4 does not have them.
    pub ips: SmallVec<[Ipv4Addr; IPS_MAX]>,
}

impl Hello {
    /// Bytes of the longest HELLO: version 1 with all its addresses.
    pub const LEN_MAX: usize = V1_LEN + 4 * IPS_MAX;

    /// How many bytes the HELLO that begins with `prefix` has.
    ///
    /// # Errors
    /// A wrong magic, an unknown version (which is to be answered, wire.md 3.4) or too many
    /// addresses, each as soon as its bytes are there.
    pub fn need(prefix: &[u8]) -> Result<Need, WireError> {
        let Ok(magic) = first4(WHAT, prefix) else {
            return Ok(Need::AtLeast(4));
        };
        let order = Layout::order(magic)?;
        if prefix.len() < 8 {
            return Ok(Need::AtLeast(8));
        }
        match Layout::of(order, prefix)? {
            Layout::V1 => match RawV1::ref_from_prefix(prefix) {
                Ok((raw, _)) => raw.ips().map(|n| Need::Exactly(V1_LEN + 4 * n)),
                Err(_) => Ok(Need::AtLeast(V1_LEN)),
            },
            Layout::V3(_) => {
                let n = match order {
                    ByteOrder::Little => RawV3::<LittleEndian>::ips_in(prefix),
                    ByteOrder::Big => RawV3::<BigEndian>::ips_in(prefix),
                };
                n.map_or(Ok(Need::AtLeast(V3_LEN)), |n| Ok(Need::Exactly(V3_LEN + 4 * n?)))
            }
            Layout::V4 => Ok(Need::Exactly(V4_LEN)),
        }
    }

    /// Reads a HELLO from the front of `b`; also returns how many bytes it took.
    ///
    /// Only what makes it meaningless is refused: who may connect, and as what, is the receiver's
    /// judgement (wire.md 3.6).
    ///
    /// # Errors
    /// As [`need`](Self::need); too few bytes; an address of zero; a sender that is no NID; a
    /// version 1 HELLO of another message type.
    pub fn parse(b: &[u8]) -> Result<(Self, usize), WireError> {
        let order = Layout::order(first4(WHAT, b)?)?;
        if b.len() < 8 {
            return Err(short(8, b));
        }
        match (Layout::of(order, b)?, order) {
            (Layout::V1, _) => parse_v1(b),
            (Layout::V3(version), ByteOrder::Little) => parse_v3::<LittleEndian>(order, version, b),
            (Layout::V3(version), ByteOrder::Big) => parse_v3::<BigEndian>(order, version, b),
            (Layout::V4, ByteOrder::Little) => parse_v4::<LittleEndian>(order, b),
            (Layout::V4, ByteOrder::Big) => parse_v4::<BigEndian>(order, b),
        }
    }

    /// Writes the HELLO to the front of `out` and returns its length.
    ///
    /// # Errors
    /// What its version cannot say: a large NID before version 4, addresses in version 4 or too
    /// many of them, version 1 in big-endian. `out` shorter than the HELLO.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let max = if self.version == Version::V4 { 0 } else { IPS_MAX };
        check_ips(self.ips.len() as u64, max)?;
        match (self.version, self.order) {
            (Version::V1, ByteOrder::Little) => self.emit_v1(out),
            (Version::V1, ByteOrder::Big) => {
                Err(WireError::Value { what: WHAT, field: "magic", value: MAGIC_V1.into() })
            }
            (Version::V2 | Version::V3, ByteOrder::Little) => self.emit_v3::<LittleEndian>(out),
            (Version::V2 | Version::V3, ByteOrder::Big) => self.emit_v3::<BigEndian>(out),
            (Version::V4, ByteOrder::Little) => self.emit_v4::<LittleEndian>(out),
            (Version::V4, ByteOrder::Big) => self.emit_v4::<BigEndian>(out),
        }
    }

    fn emit_v1(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let raw = RawV1 {
            magic: U32::new(MAGIC_V1),
            version_major: U16::new(1),
            version_minor: U16::new(0),
            src_nid: U64::new(short_nid(self.src, WHAT, "src_nid")?),
            dest_pid: U32::new(self.dst_pid.0),
            src_pid: U32::new(self.src_pid.0),
            kind: U32::new(V1_TYPE),
            payload_length: U32::new(4 * self.nips()),
            incarnation: U64::new(self.src_incarnation),
            conn_type: U32::new(self.conn_type.0),
            unused: [0; 28],
        };
        self.emit_with_ips::<LittleEndian>(raw.as_bytes(), out)
    }

    fn emit_v3<O: zerocopy::ByteOrder>(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let raw = RawV3::<O> {
            magic: U32::new(MAGIC),
            version: U32::new(self.version as u32),
            src_nid: U64::new(short_nid(self.src, WHAT, "src_nid")?),
            dst_nid: U64::new(short_nid(self.dst, WHAT, "dst_nid")?),
            src_pid: U32::new(self.src_pid.0),
            dst_pid: U32::new(self.dst_pid.0),
            src_incarnation: U64::new(self.src_incarnation),
            dst_incarnation: U64::new(self.dst_incarnation),
            conn_type: U32::new(self.conn_type.0),
            nips: U32::new(self.nips()),
        };
        self.emit_with_ips::<O>(raw.as_bytes(), out)
    }

    fn emit_v4<O: zerocopy::ByteOrder>(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let raw = RawV4::<O> {
            magic: U32::new(MAGIC),
            version: U32::new(self.version as u32),
            src_nid: *self.src.as_wire(),
            dst_nid: *self.dst.as_wire(),
            src_pid: U32::new(self.src_pid.0),
            dst_pid: U32::new(self.dst_pid.0),
            src_incarnation: U64::new(self.src_incarnation),
            dst_incarnation: U64::new(self.dst_incarnation),
            conn_type: U32::new(self.conn_type.0),
            nips: U32::new(0),
        };
        self.emit_with_ips::<O>(raw.as_bytes(), out)
    }

    fn emit_with_ips<O: zerocopy::ByteOrder>(
        &self,
        head: &[u8],
        out: &mut [u8],
    ) -> Result<usize, WireError> {
        let len = head.len() + 4 * self.ips.len();
        let (to_head, to_ips) = room(WHAT, out, len)?.split_at_mut(head.len());
        to_head.copy_from_slice(head);
        for (to, ip) in to_ips.chunks_exact_mut(4).zip(&self.ips) {
            to.copy_from_slice(U32::<O>::new(u32::from(*ip)).as_bytes());
        }
        Ok(len)
    }

    /// The number of addresses, which `emit` has checked against a limit far below 2³².
    fn nips(&self) -> u32 {
        self.ips.len() as u32
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HELLO {} {} {}", self.version, self.conn_type, self.src)?;
        if self.version != Version::V1 {
            write!(f, " → {}", self.dst)?;
        }
        write!(f, " pid {} incarnation {:#x}", self.src_pid.0, self.src_incarnation)?;
        if self.dst_incarnation != 0 {
            write!(f, " for {:#x}", self.dst_incarnation)?;
        }
        if !self.ips.is_empty() {
            write!(f, " ips {}", self.ips.len())?;
        }
        if self.order == ByteOrder::Big { f.write_str(" big-endian") } else { Ok(()) }
    }
}

/// Which of the layouts lies before us.
enum Layout {
    V1,
    V3(Version),
    V4,
}

impl Layout {
    /// The order that the magic announces.
    fn order(magic: [u8; 4]) -> Result<ByteOrder, WireError> {
        if u32::from_le_bytes(magic) == MAGIC_V1 {
            return Ok(ByteOrder::Little);
        }
        ByteOrder::of_magic(magic, MAGIC)
            .ok_or_else(|| WireError::Magic { what: WHAT, magic: u32::from_le_bytes(magic) })
    }

    /// The layout of `b`, whose magic was found good and in `order`.
    fn of(order: ByteOrder, b: &[u8]) -> Result<Self, WireError> {
        let (magic, version) = match order {
            ByteOrder::Little => first2::<LittleEndian>(b)?,
            ByteOrder::Big => first2::<BigEndian>(b)?,
        };
        match version {
            V1_VERSION if magic == MAGIC_V1 => Ok(Self::V1),
            2 if magic == MAGIC => Ok(Self::V3(Version::V2)),
            3 if magic == MAGIC => Ok(Self::V3(Version::V3)),
            4 if magic == MAGIC => Ok(Self::V4),
            version => Err(WireError::Version { what: WHAT, version }),
        }
    }
}

fn first2<O: zerocopy::ByteOrder>(b: &[u8]) -> Result<(u32, u32), WireError> {
    let (head, _) = <[U32<O>; 2]>::ref_from_prefix(b).map_err(|_| short(8, b))?;
    Ok((head[0].get(), head[1].get()))
}

impl RawV1 {
    /// How many addresses follow, if this is a HELLO at all.
    fn ips(&self) -> Result<usize, WireError> {
        if self.kind.get() != V1_TYPE {
            let value = self.kind.get().into();
            return Err(WireError::Value { what: WHAT, field: "type", value });
        }
        let len = self.payload_length.get();
        if len > 4 * IPS_MAX as u32 {
            let max = 4 * IPS_MAX as u64;
            return Err(WireError::Limit {
                what: WHAT,
                field: "payload_length",
                value: len.into(),
                max,
            });
        }
        if !len.is_multiple_of(4) {
            return Err(WireError::Value {
                what: WHAT,
                field: "payload_length",
                value: len.into(),
            });
        }
        Ok(len as usize / 4)
    }
}

impl<O: zerocopy::ByteOrder> RawV3<O> {
    /// How many addresses follow the fixed part at the front of `b`, once it is there.
    fn ips_in(b: &[u8]) -> Option<Result<usize, WireError>> {
        let (raw, _) = Self::ref_from_prefix(b).ok()?;
        Some(raw.ips())
    }

    fn ips(&self) -> Result<usize, WireError> {
        check_ips(self.nips.get().into(), IPS_MAX)
    }
}

fn check_ips(value: u64, max: usize) -> Result<usize, WireError> {
    match usize::try_from(value) {
        Ok(n) if n <= max => Ok(n),
        _ => Err(WireError::Limit { what: WHAT, field: "nips", value, max: max as u64 }),
    }
}

fn parse_v1(b: &[u8]) -> Result<(Hello, usize), WireError> {
    let (raw, rest) = RawV1::ref_from_prefix(b).map_err(|_| short(V1_LEN, b))?;
    let n = raw.ips()?;
    let hello = Hello {
        order: ByteOrder::Little,
        version: Version::V1,
        src: Nid::from_nid4(raw.src_nid.get()),
        dst: Nid::ANY,
        src_pid: Pid(raw.src_pid.get()),
        dst_pid: Pid(raw.dest_pid.get()),
        src_incarnation: raw.incarnation.get(),
        dst_incarnation: 0,
        conn_type: ConnType(raw.conn_type.get()),
        ips: parse_ips::<LittleEndian>(rest, n, V1_LEN)?,
    };
    Ok((hello, V1_LEN + 4 * n))
}

fn parse_v3<O: zerocopy::ByteOrder>(
    order: ByteOrder,
    version: Version,
    b: &[u8],
) -> Result<(Hello, usize), WireError> {
    let (raw, rest) = RawV3::<O>::ref_from_prefix(b).map_err(|_| short(V3_LEN, b))?;
    let n = raw.ips()?;
    let hello = Hello {
        order,
        version,
        src: Nid::from_nid4(raw.src_nid.get()),
        dst: Nid::from_nid4(raw.dst_nid.get()),
        src_pid: Pid(raw.src_pid.get()),
        dst_pid: Pid(raw.dst_pid.get()),
        src_incarnation: raw.src_incarnation.get(),
        dst_incarnation: raw.dst_incarnation.get(),
        conn_type: ConnType(raw.conn_type.get()),
        ips: parse_ips::<O>(rest, n, V3_LEN)?,
    };
    Ok((hello, V3_LEN + 4 * n))
}

fn parse_v4<O: zerocopy::ByteOrder>(
    order: ByteOrder,
    b: &[u8],
) -> Result<(Hello, usize), WireError> {
    let (raw, _) = RawV4::<O>::ref_from_prefix(b).map_err(|_| short(V4_LEN, b))?;
    let src = Nid::from_wire(raw.src_nid).map_err(|source| WireError::Nid {
        what: WHAT,
        field: "src_nid",
        source,
    })?;
    let hello = Hello {
        order,
        version: Version::V4,
        src,
        dst: Nid::from_wire(raw.dst_nid).unwrap_or(Nid::ANY),
        src_pid: Pid(raw.src_pid.get()),
        dst_pid: Pid(raw.dst_pid.get()),
        src_incarnation: raw.src_incarnation.get(),
        dst_incarnation: raw.dst_incarnation.get(),
        conn_type: ConnType(raw.conn_type.get()),
        ips: SmallVec::new(),
    };
    Ok((hello, V4_LEN))
}

/// Reads `n` addresses from `b`, which follows a fixed part of `before` bytes.
fn parse_ips<O: zerocopy::ByteOrder>(
    b: &[u8],
    n: usize,
    before: usize,
) -> Result<SmallVec<[Ipv4Addr; IPS_MAX]>, WireError> {
    let (ips, _) = <[U32<O>]>::ref_from_prefix_with_elems(b, n).map_err(|_| WireError::Short {
        what: WHAT,
        need: before + 4 * n,
        have: before + b.len(),
    })?;
    ips.iter()
        .map(|ip| match ip.get() {
            0 => Err(WireError::Value { what: WHAT, field: "ips", value: 0 }),
            ip => Ok(Ipv4Addr::from(ip)),
        })
        .collect()
}

fn short(need: usize, b: &[u8]) -> WireError {
    WireError::Short { what: WHAT, need, have: b.len() }
}
