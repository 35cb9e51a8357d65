//! The LNet message header, in its short (72 bytes, 8-byte NIDs) and long (96 bytes, 20-byte NIDs)
//! forms (wire.md 4). Little-endian always; handles and `hdr_data` are opaque to all but their maker.

use core::fmt;

use lnet_types::{MdId, Nid, Pid};
use slotmap::{Key, KeyData};

use crate::WireError;

/// Which of the two layouts is on the wire. The driver knows it from its protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// What a message is, with the fields that only this kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Acknowledges a PUT.
    Ack {
        /// Copy of the PUT's `ack` handle.
        dst: Handle,
        /// Match bits of the PUT; informative.
        match_bits: u64,
        /// Bytes deposited.
        mlength: u32,
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
    },
    /// Answers a GET.
    Reply {
        /// Copy of the GET's `ret` handle.
        dst: Handle,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Hdr {
    /// Bytes of the longer form: a buffer of this size holds any header.
    pub const LEN_MAX: usize = 96;

    /// Reads a header of the given form from the front of `b`.
    ///
    /// Only what makes the header meaningless is refused here (length, unknown type, NID20 of an
    /// impossible size). Payload limits per kind are the receiver's judgement (wire.md 8.3).
    pub fn parse(form: HdrForm, b: &[u8]) -> Result<Self, WireError> {
        let Some(b) = b.get(..form.len()) else {
            return Err(WireError::Short { what: WHAT, need: form.len(), have: b.len() });
        };
        let (dst, src, rest) = match form {
            HdrForm::Short => {
                (Nid::from_nid4(u64_at(b, 0)), Nid::from_nid4(u64_at(b, 8)), &b[16..])
            }
            HdrForm::Long => (nid20_at(b, 0, "dest_nid")?, nid20_at(b, 20, "src_nid")?, &b[40..]),
        };
        let body = &rest[16..];
        let kind = match u32_at(rest, 8) {
            0 => Kind::Ack {
                dst: handle_at(body, 0),
                match_bits: u64_at(body, 16),
                mlength: u32_at(body, 24),
            },
            1 => Kind::Put {
                ack: handle_at(body, 0),
                match_bits: u64_at(body, 16),
                hdr_data: u64_at(body, 24),
                portal: u32_at(body, 32),
                offset: u32_at(body, 36),
            },
            2 => Kind::Get {
                ret: handle_at(body, 0),
                match_bits: u64_at(body, 16),
                portal: u32_at(body, 24),
                offset: u32_at(body, 28),
                sink_len: u32_at(body, 32),
            },
            3 => Kind::Reply { dst: handle_at(body, 0) },
            other => {
                return Err(WireError::Value { what: WHAT, field: "type", value: other.into() });
            }
        };
        Ok(Self {
            dst,
            src,
            dst_pid: Pid(u32_at(rest, 0)),
            src_pid: Pid(u32_at(rest, 4)),
            payload_len: u32_at(rest, 12),
            kind,
        })
    }

    /// Writes the header to the front of `out` and returns its length.
    ///
    /// # Errors
    /// A large NID in the short form. `out` shorter than the form is refused as `Short`.
    pub fn emit(&self, form: HdrForm, out: &mut [u8]) -> Result<usize, WireError> {
        let have = out.len();
        let Some(out) = out.get_mut(..form.len()) else {
            return Err(WireError::Short { what: WHAT, need: form.len(), have });
        };
        let rest = match form {
            HdrForm::Short => {
                let short = |nid: Nid, field| {
                    nid.to_nid4().ok_or(WireError::LargeNid { what: WHAT, field })
                };
                put(out, 0, &short(self.dst, "dest_nid")?.to_le_bytes());
                put(out, 8, &short(self.src, "src_nid")?.to_le_bytes());
                &mut out[16..]
            }
            HdrForm::Long => {
                put(out, 0, self.dst.as_wire());
                put(out, 20, self.src.as_wire());
                &mut out[40..]
            }
        };
        put(rest, 0, &self.dst_pid.0.to_le_bytes());
        put(rest, 4, &self.src_pid.0.to_le_bytes());
        put(rest, 8, &(self.kind.msg_type() as u32).to_le_bytes());
        put(rest, 12, &self.payload_len.to_le_bytes());
        let body = &mut rest[16..];
        body.fill(0);
        match self.kind {
            Kind::Ack { dst, match_bits, mlength } => {
                put_handle(body, dst);
                put(body, 16, &match_bits.to_le_bytes());
                put(body, 24, &mlength.to_le_bytes());
            }
            Kind::Put { ack, match_bits, hdr_data, portal, offset } => {
                put_handle(body, ack);
                put(body, 16, &match_bits.to_le_bytes());
                put(body, 24, &hdr_data.to_le_bytes());
                put(body, 32, &portal.to_le_bytes());
                put(body, 36, &offset.to_le_bytes());
            }
            Kind::Get { ret, match_bits, portal, offset, sink_len } => {
                put_handle(body, ret);
                put(body, 16, &match_bits.to_le_bytes());
                put(body, 24, &portal.to_le_bytes());
                put(body, 28, &offset.to_le_bytes());
                put(body, 32, &sink_len.to_le_bytes());
            }
            Kind::Reply { dst } => put_handle(body, dst),
        }
        Ok(form.len())
    }
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
                if ack == Handle::NONE { Ok(()) } else { f.write_str(" ack") }
            }
            Kind::Get { match_bits, portal, sink_len, .. } => {
                write!(f, "GET {src} → {dst} pt {portal} bits {match_bits:#x} sink {sink_len}")
            }
            Kind::Reply { .. } => write!(f, "REPLY {src} → {dst} len {}", self.payload_len),
        }
    }
}

// Offsets below are constants inside slices whose length was checked above.

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

fn handle_at(b: &[u8], at: usize) -> Handle {
    Handle { interface: u64_at(b, at), object: u64_at(b, at + 8) }
}

fn nid20_at(b: &[u8], at: usize, field: &'static str) -> Result<Nid, WireError> {
    let mut nid = [0; Nid::WIRE_LEN];
    nid.copy_from_slice(&b[at..at + Nid::WIRE_LEN]);
    Nid::from_wire(nid).map_err(|source| WireError::Nid { what: WHAT, field, source })
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_handle(out: &mut [u8], h: Handle) {
    put(out, 0, &h.interface.to_le_bytes());
    put(out, 8, &h.object.to_le_bytes());
}
