//! The LNet message header, in its short (72 bytes, 8-byte NIDs) and long (96 bytes, 20-byte NIDs)
//! forms (wire.md 4). Little-endian always; handles and `hdr_data` are opaque to all but their maker.
//! What follows a body up to its 40 bytes is kept: routers forward it as it came (wire.md 4.3).
//!
//! Layouts: `RawHdr4` and `RawHdr16`, whose common end `RawRest` holds one of the 40-byte bodies
//! `RawAck`, `RawPut`, `RawGet`, `RawReply`.

use core::fmt;
use core::mem::{offset_of, size_of};

use lnet_types::{MdId, Nid, Pid};
use slotmap::{Key, KeyData};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::WireError;
use crate::order::{room, short_nid};

/// Which of the two layouts is on the wire. The driver's protocol version determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum HdrForm {
    /// 72 bytes, NIDs with 4-byte addresses.
    Short,
    /// 96 bytes, any NIDs.
    Long,
}

impl HdrForm {
    /// Bytes of a header.
    #[expect(clippy::len_without_is_empty, reason = "a layout, not a container")]
    pub const fn len(self) -> usize {
        match self {
            Self::Short => 72,
            Self::Long => 96,
        }
    }
}

/// A wire handle: made by the initiator, returned unchanged by the target (wire.md 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Handle {
    /// The incarnation of the node that made it.
    pub interface: u64,
    /// The object.
    pub object: u64,
}

impl Handle {
    /// "No ACK wanted."
    pub const NONE: Self = Self { interface: u64::MAX, object: u64::MAX };

    /// The handle of `md` in the incarnation `interface`.
    pub fn of(interface: u64, md: MdId) -> Self {
        Self { interface, object: md.data().as_ffi() }
    }

    /// The object as an MD; stale and foreign numbers give an id that no table holds.
    pub fn md(self) -> MdId {
        MdId::from(KeyData::from_ffi(self.object))
    }
}

/// The kind of a message, without its fields. Wire values as in V-5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[derive(serde::Serialize, serde::Deserialize)]
pub enum MsgType {
    /// Acknowledges a PUT.
    Ack = 0,
    /// Carries data to the target.
    Put = 1,
    /// Asks for data.
    Get = 2,
    /// Carries the data of a GET.
    Reply = 3,
}

impl MsgType {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ack => "ACK",
            Self::Put => "PUT",
            Self::Get => "GET",
            Self::Reply => "REPLY",
        }
    }
}

/// What a message is, with the fields that only this kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// Acknowledges a PUT.
    Ack {
        /// Copy of the PUT's `ack` handle.
        dst: Handle,
        /// Match bits of the PUT; informative.
        match_bits: u64,
        /// Bytes deposited.
        mlength: u32,
        /// What follows up to the body's end: zeros, or a mark (`mark.rs`).
        pad: [u8; 12],
    },
    /// Carries data.
    Put {
        /// What the ACK returns, or [`Handle::NONE`].
        ack: Handle,
        /// Match bits.
        match_bits: u64,
        /// 64 bits for the user, never swapped.
        hdr_data: u64,
        /// Portal index, not yet checked.
        portal: u32,
        /// Offset for buffers that the initiator manages.
        offset: u32,
    },
    /// Asks for data.
    Get {
        /// What the REPLY returns.
        ret: Handle,
        /// Match bits.
        match_bits: u64,
        /// Portal index, not yet checked.
        portal: u32,
        /// Offset for buffers that the initiator manages.
        offset: u32,
        /// Size of the requester's buffer.
        sink_len: u32,
        /// What follows up to the body's end: zeros.
        pad: [u8; 4],
    },
    /// Answers a GET.
    Reply {
        /// Copy of the GET's `ret` handle.
        dst: Handle,
        /// What follows up to the body's end: zeros, or a mark (`mark.rs`).
        pad: [u8; 24],
    },
}

impl Kind {
    /// The kind alone.
    pub const fn msg_type(&self) -> MsgType {
        match self {
            Self::Ack { .. } => MsgType::Ack,
            Self::Put { .. } => MsgType::Put,
            Self::Get { .. } => MsgType::Get,
            Self::Reply { .. } => MsgType::Reply,
        }
    }
}

/// A message header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Hdr {
    /// Final destination.
    pub dst: Nid,
    /// Originator.
    pub src: Nid,
    /// Destination process.
    pub dst_pid: Pid,
    /// Originating process.
    pub src_pid: Pid,
    /// Bytes of payload behind the header.
    pub payload_len: u32,
    /// What it is.
    pub kind: Kind,
}

const WHAT: &str = "LNet header";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHdr4 {
    dest_nid: U64,
    src_nid: U64,
    rest: RawRest,
}

const _: () = {
    assert!(size_of::<RawHdr4>() == HdrForm::Short.len());
    assert!(offset_of!(RawHdr4, src_nid) == 8);
    assert!(offset_of!(RawHdr4, rest) == 16);
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHdr16 {
    dest_nid: [u8; Nid::WIRE_LEN],
    src_nid: [u8; Nid::WIRE_LEN],
    rest: RawRest,
}

const _: () = {
    assert!(size_of::<RawHdr16>() == HdrForm::Long.len());
    assert!(offset_of!(RawHdr16, src_nid) == 20);
    assert!(offset_of!(RawHdr16, rest) == 40);
};

/// What follows the NIDs in both forms.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawRest {
    dest_pid: U32,
    src_pid: U32,
    kind: U32,
    payload_length: U32,
    body: [u8; BODY_LEN],
}

const BODY_LEN: usize = 40;

const _: () = {
    assert!(size_of::<RawRest>() == 56);
    assert!(offset_of!(RawRest, src_pid) == 4);
    assert!(offset_of!(RawRest, kind) == 8);
    assert!(offset_of!(RawRest, payload_length) == 12);
    assert!(offset_of!(RawRest, body) == 16);
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHandle {
    interface: U64,
    object: U64,
}

const _: () = {
    assert!(size_of::<RawHandle>() == 16);
    assert!(offset_of!(RawHandle, object) == 8);
};

// The bodies, each with its padding up to 40 bytes.

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawAck {
    dst_handle: RawHandle,
    match_bits: U64,
    mlength: U32,
    pad: [u8; 12],
}

const _: () = {
    assert!(size_of::<RawAck>() == BODY_LEN);
    assert!(offset_of!(RawAck, match_bits) == 16);
    assert!(offset_of!(RawAck, mlength) == 24);
    assert!(offset_of!(RawAck, pad) == 28);
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawPut {
    ack_handle: RawHandle,
    match_bits: U64,
    hdr_data: U64,
    portal: U32,
    offset: U32,
}

const _: () = {
    assert!(size_of::<RawPut>() == BODY_LEN);
    assert!(offset_of!(RawPut, match_bits) == 16);
    assert!(offset_of!(RawPut, hdr_data) == 24);
    assert!(offset_of!(RawPut, portal) == 32);
    assert!(offset_of!(RawPut, offset) == 36);
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawGet {
    return_handle: RawHandle,
    match_bits: U64,
    portal: U32,
    src_offset: U32,
    sink_length: U32,
    pad: [u8; 4],
}

const _: () = {
    assert!(size_of::<RawGet>() == BODY_LEN);
    assert!(offset_of!(RawGet, match_bits) == 16);
    assert!(offset_of!(RawGet, portal) == 24);
    assert!(offset_of!(RawGet, src_offset) == 28);
    assert!(offset_of!(RawGet, sink_length) == 32);
    assert!(offset_of!(RawGet, pad) == 36);
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawReply {
    dst_handle: RawHandle,
    pad: [u8; 24],
}

const _: () = {
    assert!(size_of::<RawReply>() == BODY_LEN);
    assert!(offset_of!(RawReply, pad) == 16);
};

impl From<RawHandle> for Handle {
    fn from(raw: RawHandle) -> Self {
        Self { interface: raw.interface.get(), object: raw.object.get() }
    }
}

impl From<Handle> for RawHandle {
    fn from(h: Handle) -> Self {
        Self { interface: U64::new(h.interface), object: U64::new(h.object) }
    }
}

impl Hdr {
    /// Bytes of the longer form: a buffer of this size holds any header.
    pub const LEN_MAX: usize = HdrForm::Long.len();

    /// Reads a header of the given form from the front of `b`.
    ///
    /// Only what makes the header meaningless is refused here (length, unknown type, NID20 of an
    /// impossible size). Payload limits per kind are the receiver's judgement (wire.md 8.3).
    pub fn parse(form: HdrForm, b: &[u8]) -> Result<Self, WireError> {
        let short = || WireError::Short { what: WHAT, need: form.len(), have: b.len() };
        let (dst, src, rest) = match form {
            HdrForm::Short => {
                let (raw, _) = RawHdr4::ref_from_prefix(b).map_err(|_| short())?;
                let nid = |raw: U64| Nid::from_nid4(raw.get());
                (nid(raw.dest_nid), nid(raw.src_nid), &raw.rest)
            }
            HdrForm::Long => {
                let (raw, _) = RawHdr16::ref_from_prefix(b).map_err(|_| short())?;
                (nid20(raw.dest_nid, "dest_nid")?, nid20(raw.src_nid, "src_nid")?, &raw.rest)
            }
        };
        Ok(Self {
            dst,
            src,
            dst_pid: Pid(rest.dest_pid.get()),
            src_pid: Pid(rest.src_pid.get()),
            payload_len: rest.payload_length.get(),
            kind: Kind::parse(rest.kind.get(), rest.body)?,
        })
    }

    /// Writes the header to the front of `out` and returns its length.
    ///
    /// # Errors
    /// A large NID in the short form. `out` shorter than the form is refused as `Short`.
    pub fn emit(&self, form: HdrForm, out: &mut [u8]) -> Result<usize, WireError> {
        let rest = RawRest {
            dest_pid: U32::new(self.dst_pid.0),
            src_pid: U32::new(self.src_pid.0),
            kind: U32::new(self.kind.msg_type() as u32),
            payload_length: U32::new(self.payload_len),
            body: self.kind.body(),
        };
        let out = room(WHAT, out, form.len())?;
        match form {
            HdrForm::Short => {
                let dest_nid = U64::new(short_nid(self.dst, WHAT, "dest_nid")?);
                let src_nid = U64::new(short_nid(self.src, WHAT, "src_nid")?);
                out.copy_from_slice(RawHdr4 { dest_nid, src_nid, rest }.as_bytes());
            }
            HdrForm::Long => {
                let (dest_nid, src_nid) = (*self.dst.as_wire(), *self.src.as_wire());
                out.copy_from_slice(RawHdr16 { dest_nid, src_nid, rest }.as_bytes());
            }
        }
        Ok(form.len())
    }
}

impl Kind {
    fn parse(kind: u32, body: [u8; BODY_LEN]) -> Result<Self, WireError> {
        Ok(match kind {
            0 => {
                let raw: RawAck = transmute!(body);
                Self::Ack {
                    dst: raw.dst_handle.into(),
                    match_bits: raw.match_bits.get(),
                    mlength: raw.mlength.get(),
                    pad: raw.pad,
                }
            }
            1 => {
                let raw: RawPut = transmute!(body);
                Self::Put {
                    ack: raw.ack_handle.into(),
                    match_bits: raw.match_bits.get(),
                    hdr_data: raw.hdr_data.get(),
                    portal: raw.portal.get(),
                    offset: raw.offset.get(),
                }
            }
            2 => {
                let raw: RawGet = transmute!(body);
                Self::Get {
                    ret: raw.return_handle.into(),
                    match_bits: raw.match_bits.get(),
                    portal: raw.portal.get(),
                    offset: raw.src_offset.get(),
                    sink_len: raw.sink_length.get(),
                    pad: raw.pad,
                }
            }
            3 => {
                let raw: RawReply = transmute!(body);
                Self::Reply { dst: raw.dst_handle.into(), pad: raw.pad }
            }
            other => {
                return Err(WireError::Value { what: WHAT, field: "type", value: other.into() });
            }
        })
    }

    fn body(&self) -> [u8; BODY_LEN] {
        match *self {
            Self::Ack { dst, match_bits, mlength, pad } => transmute!(RawAck {
                dst_handle: dst.into(),
                match_bits: U64::new(match_bits),
                mlength: U32::new(mlength),
                pad,
            }),
            Self::Put { ack, match_bits, hdr_data, portal, offset } => transmute!(RawPut {
                ack_handle: ack.into(),
                match_bits: U64::new(match_bits),
                hdr_data: U64::new(hdr_data),
                portal: U32::new(portal),
                offset: U32::new(offset),
            }),
            Self::Get { ret, match_bits, portal, offset, sink_len, pad } => transmute!(RawGet {
                return_handle: ret.into(),
                match_bits: U64::new(match_bits),
                portal: U32::new(portal),
                src_offset: U32::new(offset),
                sink_length: U32::new(sink_len),
                pad,
            }),
            Self::Reply { dst, pad } => transmute!(RawReply { dst_handle: dst.into(), pad }),
        }
    }
}

fn nid20(wire: [u8; Nid::WIRE_LEN], field: &'static str) -> Result<Nid, WireError> {
    Nid::from_wire(wire).map_err(|source| WireError::Nid { what: WHAT, field, source })
}

impl fmt::Display for Hdr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (src, dst) = (self.src, self.dst);
        match self.kind {
            Kind::Ack { match_bits, mlength, .. } => {
                write!(f, "ACK {src} → {dst} bits {match_bits:#x} mlength {mlength}")
            }
            Kind::Put { ack, match_bits, portal, offset, .. } => {
                let len = self.payload_len;
                write!(f, "PUT {src} → {dst} pt {portal} bits {match_bits:#x} len {len}")?;
                if offset != 0 {
                    write!(f, " offset {offset}")?;
                }
                if ack.wants_ack() { f.write_str(" ack") } else { Ok(()) }
            }
            Kind::Get { match_bits, portal, sink_len, offset, .. } => {
                write!(f, "GET {src} → {dst} pt {portal} bits {match_bits:#x} sink {sink_len}")?;
                if offset == 0 { Ok(()) } else { write!(f, " offset {offset}") }
            }
            Kind::Reply { .. } => write!(f, "REPLY {src} → {dst} len {}", self.payload_len),
        }
    }
}
