//! The messages of a connection (wire.md 7.2, 7.3) and the checks that make bytes a message (7.7).
//! Whether a message fits its connection is the receiver's judgement.

use core::fmt;
use core::mem::{offset_of, size_of};

use lnet_types::Nid;
use zerocopy::byteorder::{BigEndian, I32, LittleEndian, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{MAGIC, MSG_MAX, RdmaDesc, Sign, Version, checksum};
use crate::order::{first4, room, short_nid};
use crate::{ByteOrder, Hdr, HdrForm, WireError};

const WHAT: &str = "o2iblnd message";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw<O: zerocopy::ByteOrder> {
    magic: U32<O>,
    version: U16<O>,
    kind: u8,
    credits: u8,
    nob: U32<O>,
    checksum: U32<O>,
    src_nid: U64<O>,
    src_stamp: U64<O>,
    dst_nid: U64<O>,
    dst_stamp: U64<O>,
}

const _: () = {
    type R = Raw<LittleEndian>;
    assert!(size_of::<R>() == MsgHead::LEN);
    assert!(offset_of!(R, version) == 4);
    assert!(offset_of!(R, kind) == 6);
    assert!(offset_of!(R, credits) == 7);
    assert!(offset_of!(R, nob) == 8);
    assert!(offset_of!(R, checksum) == 12);
    assert!(offset_of!(R, src_nid) == 16);
    assert!(offset_of!(R, src_stamp) == 24);
    assert!(offset_of!(R, dst_nid) == 32);
    assert!(offset_of!(R, dst_stamp) == 40);
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawParams<O: zerocopy::ByteOrder> {
    queue_depth: U16<O>,
    max_frags: U16<O>,
    max_msg_size: U32<O>,
}

/// The cookie is opaque: its sender reads it as it wrote it, so any fixed order will do.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDone<O: zerocopy::ByteOrder> {
    cookie: U64<LittleEndian>,
    status: I32<O>,
}

const _: () = {
    assert!(size_of::<RawParams<LittleEndian>>() == 8);
    assert!(offset_of!(RawParams<LittleEndian>, max_frags) == 2);
    assert!(offset_of!(RawParams<LittleEndian>, max_msg_size) == 4);
    assert!(size_of::<RawDone<LittleEndian>>() == 12);
    assert!(offset_of!(RawDone<LittleEndian>, status) == 8);
};

const HDR: usize = HdrForm::Short.len();
const COOKIE: usize = 8;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Type {
    /// Asks for a connection; private data of the connection manager's request.
    ConnReq = 0xC0,
    /// Accepts a connection; private data of the connection manager's reply.
    ConnAck = 0xC1,
    /// Gives credits back, or shows a sign of life.
    Noop = 0xD0,
    /// An LNet message with its payload.
    Immediate = 0xD1,
    /// A PUT or REPLY whose payload is to be fetched into place.
    PutReq = 0xD2,
    /// The PUT is not wanted.
    PutNak = 0xD3,
    /// Where the PUT's payload goes.
    PutAck = 0xD4,
    /// The PUT's payload is in place.
    PutDone = 0xD5,
    /// A GET with the place of its data.
    GetReq = 0xD6,
    /// The GET's data are in place.
    GetDone = 0xD7,
}

impl Type {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::ConnReq,
        Self::ConnAck,
        Self::Noop,
        Self::Immediate,
        Self::PutReq,
        Self::PutNak,
        Self::PutAck,
        Self::PutDone,
        Self::GetReq,
        Self::GetDone,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConnReq => "CONNREQ",
            Self::ConnAck => "CONNACK",
            Self::Noop => "NOOP",
            Self::Immediate => "IMMEDIATE",
            Self::PutReq => "PUT_REQ",
            Self::PutNak => "PUT_NAK",
            Self::PutAck => "PUT_ACK",
            Self::PutDone => "PUT_DONE",
            Self::GetReq => "GET_REQ",
            Self::GetDone => "GET_DONE",
        }
    }

    /// Whether sending one takes a credit (wire.md 7.3).
    pub const fn takes_credit(self, version: Version) -> bool {
        match self {
            Self::Immediate | Self::PutReq | Self::GetReq => true,
            Self::Noop => matches!(version, Version::V11),
            _ => false,
        }
    }

    /// Bytes of the smallest message of the type.
    const fn len_min(self) -> usize {
        MsgHead::LEN
            + match self {
                Self::ConnReq | Self::ConnAck => size_of::<RawParams<LittleEndian>>(),
                Self::Noop => 0,
                Self::Immediate => HDR,
                Self::PutReq => HDR + COOKIE,
                Self::PutNak | Self::PutDone | Self::GetDone => size_of::<RawDone<LittleEndian>>(),
                Self::PutAck => 2 * COOKIE + 8,
                Self::GetReq => HDR + COOKIE + 8,
            }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What every message begins with, without the numbers that follow from its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsgHead {
    /// The order of the sender.
    pub order: ByteOrder,
    /// The version of the connection.
    pub version: Version,
    /// Credits that the sender gives back to the receiver.
    pub credits: u8,
    /// The sender.
    pub src: Nid,
    /// Incarnation of the sender.
    pub src_stamp: u64,
    /// The receiver.
    pub dst: Nid,
    /// Incarnation of the receiver; 0 in a CONNREQ to a node whose incarnation is not known.
    pub dst_stamp: u64,
}

impl MsgHead {
    /// Bytes of the header.
    pub const LEN: usize = 48;
}

/// What both sides of a connection agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnParams {
    /// Messages in flight in each direction.
    pub queue_depth: u16,
    /// Fragments of a descriptor.
    pub max_frags: u16,
    /// Bytes of the largest message.
    pub max_msg_size: u32,
}

/// The end of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The cookie of the exchange, chosen by the receiver of this message.
    pub cookie: u64,
    /// Bytes transferred, or a negative errno.
    pub status: i32,
}

/// What follows the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Asks for a connection.
    ConnReq(ConnParams),
    /// Accepts a connection.
    ConnAck(ConnParams),
    /// Nothing.
    Noop,
    /// An LNet message; its payload follows at [`Body::IMMEDIATE_PAYLOAD`].
    Immediate(Hdr),
    /// A PUT or REPLY whose payload is to be fetched into place.
    PutReq {
        /// Its header.
        hdr: Hdr,
        /// The sender's name for the exchange.
        cookie: u64,
    },
    /// The PUT is not wanted, or failed.
    PutNak(Done),
    /// Where the PUT's payload goes.
    PutAck {
        /// The cookie of the PUT_REQ.
        src_cookie: u64,
        /// The sender's name for the exchange, for the PUT_DONE.
        dst_cookie: u64,
        /// The memory.
        rd: RdmaDesc,
    },
    /// The PUT's payload is in place, or will not come.
    PutDone(Done),
    /// A GET with the place of its data.
    GetReq {
        /// Its header.
        hdr: Hdr,
        /// The sender's name for the exchange.
        cookie: u64,
        /// The memory.
        rd: RdmaDesc,
    },
    /// The GET's data are in place, or will not come.
    GetDone(Done),
}

impl Body {
    /// Where the payload of an IMMEDIATE message begins.
    pub const IMMEDIATE_PAYLOAD: usize = MsgHead::LEN + HDR;

    /// The type of a message with this body.
    pub const fn kind(&self) -> Type {
        match self {
            Self::ConnReq(_) => Type::ConnReq,
            Self::ConnAck(_) => Type::ConnAck,
            Self::Noop => Type::Noop,
            Self::Immediate(_) => Type::Immediate,
            Self::PutReq { .. } => Type::PutReq,
            Self::PutNak(_) => Type::PutNak,
            Self::PutAck { .. } => Type::PutAck,
            Self::PutDone(_) => Type::PutDone,
            Self::GetReq { .. } => Type::GetReq,
            Self::GetDone(_) => Type::GetDone,
        }
    }

    /// Bytes of a message with this body, without the payload of an IMMEDIATE.
    pub fn msg_len(&self) -> usize {
        // A descriptor's head is counted by `len_min`, its fragments are not.
        let frags = match self {
            Self::PutAck { rd, .. } | Self::GetReq { rd, .. } => rd.wire_len() - 8,
            _ => 0,
        };
        self.kind().len_min() + frags
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Msg {
    /// Its header.
    pub head: MsgHead,
    /// The rest.
    pub body: Body,
}

/// Order and version of the message that begins `b`, as far as six bytes say it: enough to answer a
/// request that makes no sense otherwise. The version is any number.
///
/// # Errors
/// Fewer than six bytes; another magic number.
pub fn peek_version(b: &[u8]) -> Result<(ByteOrder, u16), WireError> {
    let magic = first4(WHAT, b)?;
    let order = ByteOrder::of_magic(magic, MAGIC)
        .ok_or_else(|| WireError::Magic { what: WHAT, magic: u32::from_le_bytes(magic) })?;
    let version = b.get(4..).and_then(<[u8]>::first_chunk::<2>);
    let version = *version.ok_or(WireError::Short { what: WHAT, need: 6, have: b.len() })?;
    Ok(match order {
        ByteOrder::Little => (order, u16::from_le_bytes(version)),
        ByteOrder::Big => (order, u16::from_be_bytes(version)),
    })
}

impl Msg {
    /// Reads the message in a receive buffer, or in private data of the connection manager. Returns
    /// its length as well: what is behind it in `b` is padding.
    ///
    /// # Errors
    /// What makes bytes no message (wire.md 7.7): magic, version, type, a length beyond what is there
    /// or below what the type needs, a wrong checksum, the wildcard as sender, a fragment count out
    /// of range.
    pub fn parse(b: &[u8]) -> Result<(Self, usize), WireError> {
        match peek_version(b)?.0 {
            ByteOrder::Little => parse_as::<LittleEndian>(ByteOrder::Little, b),
            ByteOrder::Big => parse_as::<BigEndian>(ByteOrder::Big, b),
        }
    }

    /// Bytes of the message, without the payload of an IMMEDIATE.
    pub fn len(&self) -> usize {
        self.body.msg_len()
    }

    /// A message has a header, so it is never empty.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the message to the front of `out`, without checksum, and returns its length. It
    /// announces `payload` bytes behind it, which only an IMMEDIATE has.
    ///
    /// # Errors
    /// A 16-byte address; a fragment count out of range; a message longer than [`MSG_MAX`]; `out`
    /// shorter than the message.
    pub fn emit(&self, payload: usize, out: &mut [u8]) -> Result<usize, WireError> {
        match self.head.order {
            ByteOrder::Little => self.emit_as::<LittleEndian>(payload, out),
            ByteOrder::Big => self.emit_as::<BigEndian>(payload, out),
        }
    }

    fn emit_as<O: zerocopy::ByteOrder>(
        &self,
        payload: usize,
        out: &mut [u8],
    ) -> Result<usize, WireError> {
        let len = self.len();
        let nob = len.saturating_add(payload);
        if nob > MSG_MAX {
            let max = MSG_MAX as u64;
            return Err(WireError::Limit { what: WHAT, field: "nob", value: nob as u64, max });
        }
        let raw = Raw::<O> {
            magic: U32::new(MAGIC),
            version: U16::new(self.head.version as u16),
            kind: self.body.kind() as u8,
            credits: self.head.credits,
            nob: U32::new(nob as u32),
            checksum: U32::new(0),
            src_nid: U64::new(short_nid(self.head.src, WHAT, "src_nid")?),
            src_stamp: U64::new(self.head.src_stamp),
            dst_nid: U64::new(short_nid(self.head.dst, WHAT, "dst_nid")?),
            dst_stamp: U64::new(self.head.dst_stamp),
        };
        let (head, body) = room(WHAT, out, len)?.split_at_mut(MsgHead::LEN);
        head.copy_from_slice(raw.as_bytes());
        self.emit_body::<O>(body)?;
        Ok(len)
    }

    /// Writes the body; `out` has its length.
    fn emit_body<O: zerocopy::ByteOrder>(&self, out: &mut [u8]) -> Result<(), WireError> {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            if let Some(to) = out.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
            at += bytes.len();
        };
        let short = |hdr: &Hdr| {
            let mut bytes = [0; HDR];
            hdr.emit(HdrForm::Short, &mut bytes).map(|_| bytes)
        };
        match &self.body {
            Body::Noop => {}
            Body::ConnReq(params) | Body::ConnAck(params) => put(RawParams::<O> {
                queue_depth: U16::new(params.queue_depth),
                max_frags: U16::new(params.max_frags),
                max_msg_size: U32::new(params.max_msg_size),
            }
            .as_bytes()),
            Body::PutNak(done) | Body::PutDone(done) | Body::GetDone(done) => {
                put(RawDone::<O> { cookie: U64::new(done.cookie), status: I32::new(done.status) }
                    .as_bytes())
            }
            Body::Immediate(hdr) => put(&short(hdr)?),
            Body::PutReq { hdr, cookie } => {
                put(&short(hdr)?);
                put(&cookie.to_le_bytes());
            }
            Body::PutAck { src_cookie, dst_cookie, rd } => {
                put(&src_cookie.to_le_bytes());
                put(&dst_cookie.to_le_bytes());
                rd.emit::<O>(WHAT, out.get_mut(at..).unwrap_or_default())?;
            }
            Body::GetReq { hdr, cookie, rd } => {
                put(&short(hdr)?);
                put(&cookie.to_le_bytes());
                rd.emit::<O>(WHAT, out.get_mut(at..).unwrap_or_default())?;
            }
        }
        Ok(())
    }
}

fn parse_as<O: zerocopy::ByteOrder>(order: ByteOrder, b: &[u8]) -> Result<(Msg, usize), WireError> {
    let short = |need| WireError::Short { what: WHAT, need, have: b.len() };
    let (raw, _) = Raw::<O>::ref_from_prefix(b).map_err(|_| short(MsgHead::LEN))?;
    let version = raw.version.get();
    let version = Version::from_number(version)
        .ok_or_else(|| WireError::Version { what: WHAT, version: version.into() })?;
    let kind = Type::ALL
        .into_iter()
        .find(|kind| *kind as u8 == raw.kind)
        .ok_or_else(|| WireError::Value { what: WHAT, field: "type", value: raw.kind.into() })?;
    let nob = usize::try_from(raw.nob.get()).unwrap_or(usize::MAX);
    if nob < kind.len_min() {
        return Err(WireError::Value { what: WHAT, field: "nob", value: nob as u64 });
    }
    if nob > MSG_MAX {
        let max = MSG_MAX as u64;
        return Err(WireError::Limit { what: WHAT, field: "nob", value: nob as u64, max });
    }
    let msg = b.get(..nob).ok_or_else(|| short(nob))?;
    let sum = raw.checksum.get();
    if sum != 0 && ![Sign::Unsigned, Sign::Signed].iter().any(|s| checksum(*s, msg) == sum) {
        return Err(WireError::Value { what: WHAT, field: "checksum", value: sum.into() });
    }
    let src = Nid::from_nid4(raw.src_nid.get());
    if src.is_any() {
        return Err(WireError::Value { what: WHAT, field: "src_nid", value: raw.src_nid.get() });
    }
    let head = MsgHead {
        order,
        version,
        credits: raw.credits,
        src,
        src_stamp: raw.src_stamp.get(),
        dst: Nid::from_nid4(raw.dst_nid.get()),
        dst_stamp: raw.dst_stamp.get(),
    };
    let body = parse_body::<O>(kind, msg.get(MsgHead::LEN..).unwrap_or_default())?;
    Ok((Msg { head, body }, nob))
}

/// Reads the body of a message of `kind`: `b` is all of it, and not too short for the type.
fn parse_body<O: zerocopy::ByteOrder>(kind: Type, b: &[u8]) -> Result<Body, WireError> {
    let too_short =
        || WireError::Value { what: WHAT, field: "nob", value: (MsgHead::LEN + b.len()) as u64 };
    let cookie = |at: usize| {
        b.get(at..)
            .and_then(<[u8]>::first_chunk)
            .map(|c| u64::from_le_bytes(*c))
            .ok_or_else(too_short)
    };
    // Fragments beyond the announced length are a wrong length, not a message that is cut.
    let rd = |at: usize| match RdmaDesc::parse::<O>(WHAT, b.get(at..).unwrap_or_default()) {
        Err(WireError::Short { .. }) => Err(too_short()),
        other => other,
    };
    let params = || {
        let (raw, _) = RawParams::<O>::ref_from_prefix(b).map_err(|_| too_short())?;
        Ok(ConnParams {
            queue_depth: raw.queue_depth.get(),
            max_frags: raw.max_frags.get(),
            max_msg_size: raw.max_msg_size.get(),
        })
    };
    let done = || {
        let (raw, _) = RawDone::<O>::ref_from_prefix(b).map_err(|_| too_short())?;
        Ok(Done { cookie: raw.cookie.get(), status: raw.status.get() })
    };
    let hdr = || Hdr::parse(HdrForm::Short, b);
    Ok(match kind {
        Type::ConnReq => Body::ConnReq(params()?),
        Type::ConnAck => Body::ConnAck(params()?),
        Type::Noop => Body::Noop,
        Type::Immediate => Body::Immediate(hdr()?),
        Type::PutReq => Body::PutReq { hdr: hdr()?, cookie: cookie(HDR)? },
        Type::PutNak => Body::PutNak(done()?),
        Type::PutAck => Body::PutAck {
            src_cookie: cookie(0)?,
            dst_cookie: cookie(COOKIE)?,
            rd: rd(2 * COOKIE)?,
        },
        Type::PutDone => Body::PutDone(done()?),
        Type::GetReq => Body::GetReq { hdr: hdr()?, cookie: cookie(HDR)?, rd: rd(HDR + COOKIE)? },
        Type::GetDone => Body::GetDone(done()?),
    })
}

impl fmt::Display for Msg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.body.kind())?;
        match &self.body {
            Body::Noop => {}
            Body::ConnReq(p) | Body::ConnAck(p) => {
                write!(f, " {} → {}", self.head.src, self.head.dst)?;
                write!(f, " version {} depth {}", self.head.version, p.queue_depth)?;
                write!(f, " frags {} size {}", p.max_frags, p.max_msg_size)?;
            }
            Body::Immediate(hdr) => write!(f, " {hdr}")?,
            Body::PutReq { hdr, cookie } => write!(f, " cookie {cookie:#x} {hdr}")?,
            Body::PutNak(d) | Body::PutDone(d) | Body::GetDone(d) => {
                write!(f, " cookie {:#x} status {}", d.cookie, d.status)?;
            }
            Body::PutAck { src_cookie, dst_cookie, rd } => {
                write!(f, " cookie {src_cookie:#x} answer to {dst_cookie:#x} {rd}")?;
            }
            Body::GetReq { hdr, cookie, rd } => write!(f, " cookie {cookie:#x} {rd} {hdr}")?,
        }
        if self.head.credits == 0 { Ok(()) } else { write!(f, " credits {}", self.head.credits) }
    }
}
