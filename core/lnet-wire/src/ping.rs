//! Ping info: what a node tells about its own interfaces, as the payload of the REPLY to a ping and
//! of the PUT that is a push (wire.md 5).
//!
//! Layouts, in the order of the sender: `RawHead` (16 bytes), then one `RawSmall` (16 bytes) for
//! each 4-byte NID, the first of them 0@lo, then one `RawLarge` (24 bytes) for each 16-byte NID.
//! Driver metadata may follow; it is not read and not sent.

use core::fmt;
use core::mem::{offset_of, size_of};

use bitflags::bitflags;
use lnet_types::{Nid, Pid};
use zerocopy::byteorder::{BigEndian, LittleEndian, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::order::first4;
use crate::{ByteOrder, WireError};

/// `LNET_PROTO_PING_MAGIC`.
pub const MAGIC: u32 = 0x7069_6E67;
/// The portal of pings and pushes.
pub const PORTAL: u32 = 0;
/// The match bits of pings and pushes.
pub const MATCH_BITS: u64 = 1 << 63;
/// Entries that we accept from a peer, unless a setting says otherwise.
pub const ENTRIES_MAX: u32 = 4096;
/// The smallest buffer used for discovery: the head and 16 entries, bytes.
pub const BUFFER_MIN: usize = HEAD_LEN + 16 * SMALL_LEN;

const WHAT: &str = "ping info";
const HEAD_LEN: usize = size_of::<RawHead<LittleEndian>>();
const SMALL_LEN: usize = size_of::<RawSmall<LittleEndian>>();
const LARGE_LEN: usize = size_of::<RawLarge<LittleEndian>>();
/// Head and entry 0: without them there is nothing to say.
const LEN_MIN: usize = HEAD_LEN + SMALL_LEN;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead<O: zerocopy::ByteOrder> {
    magic: U32<O>,
    features: U32<O>,
    pid: U32<O>,
    nnis: U32<O>,
}

const _: () = {
    type R = RawHead<LittleEndian>;
    assert!(size_of::<R>() == 16);
    assert!(offset_of!(R, features) == 4);
    assert!(offset_of!(R, pid) == 8);
    assert!(offset_of!(R, nnis) == 12);
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSmall<O: zerocopy::ByteOrder> {
    nid: U64<O>,
    status: U32<O>,
    msg_size: U32<O>,
}

const _: () = {
    type R = RawSmall<LittleEndian>;
    assert!(size_of::<R>() == 16);
    assert!(offset_of!(R, status) == 8);
    assert!(offset_of!(R, msg_size) == 12);
};

/// The only length of large entry that we send. Received ones may be shorter or longer: their NID
/// says how long it is.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLarge<O: zerocopy::ByteOrder> {
    status: U32<O>,
    nid: [u8; Nid::WIRE_LEN],
}

const _: () = {
    type R = RawLarge<LittleEndian>;
    assert!(size_of::<R>() == 24);
    assert!(offset_of!(R, nid) == 4);
};

bitflags! {
    /// What a node says it can do. Unknown bits are kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[derive(serde::Serialize, serde::Deserialize)]
    pub struct Features: u32 {
        /// Plain ping; not set by current nodes.
        const BASE = 0x01;
        /// Entries carry a status. Required by every receiver.
        const NI_STATUS = 0x02;
        /// The node does not forward messages.
        const RTE_DISABLED = 0x04;
        /// The node may be addressed on any of its NIDs and may answer from any.
        const MULTI_RAIL = 0x08;
        /// The node takes part in discovery: it accepts pushes.
        const DISCOVERY = 0x10;
        /// Large entries follow, and entry 0 tells the size.
        const LARGE_ADDR = 0x20;
        /// The primary NID is the first large entry.
        const PRIMARY_LARGE = 0x40;
        /// Driver metadata follows the entries.
        const METADATA = 0x80;
        /// The node deduplicates messages with marks (`mark.rs`). Ours; no other node reads it, and it
        /// is far from the bits that others may come to use. Version 0.1 had `0x4000_0000` for marks
        /// that are not read any more.
        const DEDUPLICATES = 0x2000_0000;

        const _ = !0;
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (name, _) in self.iter_names() {
            write!(f, "{between}{name}")?;
            between = "|";
        }
        match self.bits() & !(0xFF | Self::DEDUPLICATES.bits()) {
            0 if self.is_empty() => f.write_str("none"),
            0 => Ok(()),
            unknown => write!(f, "{between}{unknown:#x}"),
        }
    }
}

/// What a node says about one of its interfaces. Unknown numbers are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct NiStatus(pub u32);

impl NiStatus {
    /// It works.
    pub const UP: Self = Self(0x15AA_C0DE);
    /// It does not.
    pub const DOWN: Self = Self(0xDEAD_FACE);
    /// Nothing is said.
    pub const INVALID: Self = Self(0);
}

impl fmt::Display for NiStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UP => f.write_str("up"),
            Self::DOWN => f.write_str("down"),
            Self::INVALID => f.write_str("invalid"),
            Self(other) => write!(f, "{other:#x}"),
        }
    }
}

impl fmt::Debug for NiStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One interface of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PingEntry {
    /// Its NID.
    pub nid: Nid,
    /// How it is.
    pub status: NiStatus,
}

/// What a node tells about itself.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PingInfo {
    /// What it can do. [`emit`](Self::emit) decides `LARGE_ADDR`, `PRIMARY_LARGE` and `METADATA`
    /// itself, from what there is to send; the others are sent as they are.
    pub features: Features,
    /// Its process.
    pub pid: Pid,
    /// Goes up with every change of the node's interfaces; a lower one hints at a reboot.
    pub seq: u32,
    /// Its interfaces without 0@lo; the first is the primary NID (unless a large primary was cut
    /// off, see [`Parsed::truncated`]). The wire keeps 4-byte and 16-byte NIDs apart, so of a
    /// mixture only the primary and the order within each kind survive.
    pub entries: Vec<PingEntry>,
}

/// A ping info as received, perhaps only the beginning of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// What was there.
    pub info: PingInfo,
    /// The order of the sender.
    pub order: ByteOrder,
    /// Bytes that the whole info has by its own account (5.4).
    pub size: usize,
    /// Bytes that were read, at most `size`.
    pub have: usize,
}

impl Parsed {
    /// If only a part of the info was there: how many bytes the whole needs.
    pub fn truncated(&self) -> Option<usize> {
        (self.have < self.size).then_some(self.size)
    }
}

impl PingInfo {
    /// Reads an info, or the beginning of one, that accepts up to [`ENTRIES_MAX`] entries.
    ///
    /// # Errors
    /// See [`parse_limited`](Self::parse_limited).
    pub fn parse(b: &[u8]) -> Result<Parsed, WireError> {
        Self::parse_limited(b, ENTRIES_MAX)
    }

    /// Reads an info of at most `max_entries` short entries, 0@lo included, and as many large ones.
    /// A buffer that is shorter than the info gives what is in it; more than the info is ignored.
    /// Large entries that are no NIDs are skipped.
    ///
    /// # Errors
    /// What makes an info invalid (wire.md 5.5): fewer than 32 bytes, a wrong magic, no
    /// `NI_STATUS`, no entries or too many, entry 0 not 0@lo; and a size that no info of so many
    /// entries can have.
    pub fn parse_limited(b: &[u8], max_entries: u32) -> Result<Parsed, WireError> {
        let magic = first4(WHAT, b)?;
        match ByteOrder::of_magic(magic, MAGIC) {
            Some(order @ ByteOrder::Little) => parse_as::<LittleEndian>(order, b, max_entries),
            Some(order @ ByteOrder::Big) => parse_as::<BigEndian>(order, b, max_entries),
            None => Err(WireError::Magic { what: WHAT, magic: u32::from_le_bytes(magic) }),
        }
    }

    /// The features as they are sent.
    pub fn wire_features(&self) -> Features {
        let mut features = self.features - Features::METADATA - Features::PRIMARY_LARGE;
        if self.entries.iter().any(|e| e.nid.is_large()) {
            features |= Features::LARGE_ADDR;
        }
        if self.entries.first().is_some_and(|e| e.nid.is_large()) {
            features |= Features::PRIMARY_LARGE;
        }
        features
    }

    /// Bytes that [`emit`](Self::emit) gives.
    pub fn size(&self) -> usize {
        let large = self.entries.iter().filter(|e| e.nid.is_large()).count();
        LEN_MIN + SMALL_LEN * (self.entries.len() - large) + LARGE_LEN * large
    }

    /// The bytes that go on the wire.
    pub fn emit(&self) -> Vec<u8> {
        self.emit_in(ByteOrder::Little)
    }

    /// The bytes that a sender of the given order puts on the wire.
    pub fn emit_in(&self, order: ByteOrder) -> Vec<u8> {
        match order {
            ByteOrder::Little => self.emit_as::<LittleEndian>(),
            ByteOrder::Big => self.emit_as::<BigEndian>(),
        }
    }

    fn emit_as<O: zerocopy::ByteOrder>(&self) -> Vec<u8> {
        let features = self.wire_features();
        let large = self.entries.iter().filter(|e| e.nid.is_large());
        let nnis = 1 + (self.entries.len() - large.clone().count()) as u32;
        let msg_size = if features.contains(Features::LARGE_ADDR) { self.size() as u32 } else { 0 };
        let mut out = Vec::with_capacity(self.size());
        out.extend_from_slice(
            RawHead::<O> {
                magic: U32::new(MAGIC),
                features: U32::new(features.bits()),
                pid: U32::new(self.pid.0),
                nnis: U32::new(nnis),
            }
            .as_bytes(),
        );
        let mut small = |nid, status, msg_size| {
            let raw = RawSmall::<O> {
                nid: U64::new(nid),
                status: U32::new(status),
                msg_size: U32::new(msg_size),
            };
            out.extend_from_slice(raw.as_bytes());
        };
        small(NID4_LOOPBACK, self.seq, msg_size);
        for entry in &self.entries {
            if let Some(nid) = entry.nid.to_nid4() {
                small(nid, entry.status.0, 0);
            }
        }
        for entry in large {
            let raw = RawLarge::<O> { status: U32::new(entry.status.0), nid: *entry.nid.as_wire() };
            out.extend_from_slice(raw.as_bytes());
        }
        out
    }
}

/// 0@lo as a number.
const NID4_LOOPBACK: u64 = 9 << 48;

fn parse_as<O: zerocopy::ByteOrder>(
    order: ByteOrder,
    b: &[u8],
    max_entries: u32,
) -> Result<Parsed, WireError> {
    let short = || WireError::Short { what: WHAT, need: LEN_MIN, have: b.len() };
    let (head, rest) = RawHead::<O>::ref_from_prefix(b).map_err(|_| short())?;
    let (lo, _) = RawSmall::<O>::ref_from_prefix(rest).map_err(|_| short())?;
    let features = Features::from_bits_retain(head.features.get());
    if !features.contains(Features::NI_STATUS) {
        let value = features.bits().into();
        return Err(WireError::Value { what: WHAT, field: "features", value });
    }
    let nnis = head.nnis.get();
    let limit =
        |field, value: u32, max| WireError::Limit { what: WHAT, field, value: value.into(), max };
    if nnis == 0 {
        return Err(WireError::Value { what: WHAT, field: "nnis", value: 0 });
    }
    if nnis > max_entries {
        return Err(limit("nnis", nnis, max_entries.into()));
    }
    if lo.nid.get() != NID4_LOOPBACK {
        let value = lo.nid.get();
        return Err(WireError::Value { what: WHAT, field: "ni[0].nid", value });
    }

    let small_end = HEAD_LEN + SMALL_LEN * nnis as usize;
    let mut size = small_end;
    if features.contains(Features::LARGE_ADDR) {
        let claimed = lo.msg_size.get() & !3;
        let max = HEAD_LEN as u64 + (SMALL_LEN + LARGE_LEN) as u64 * u64::from(max_entries);
        if u64::from(claimed) > max {
            return Err(limit("msg_size", claimed, max));
        }
        // A size below the end of the short entries counts no large ones.
        size = small_end.max(claimed as usize);
    }
    let have = size.min(b.len());
    let b = &b[..have];

    let small = &b[HEAD_LEN..small_end.min(have)];
    let (small, _) = <[RawSmall<O>]>::ref_from_prefix_with_elems(small, small.len() / SMALL_LEN)
        .map_err(|_| short())?;
    let mut entries: Vec<_> = small
        .iter()
        .skip(1)
        .map(|raw| PingEntry {
            nid: Nid::from_nid4(raw.nid.get()),
            status: NiStatus(raw.status.get()),
        })
        .collect();
    let primary_after = entries.len();
    if let Some(large) = b.get(small_end..) {
        large_entries::<O>(large, &mut entries);
    }
    if features.contains(Features::PRIMARY_LARGE) && primary_after < entries.len() {
        entries[..=primary_after].rotate_right(1);
    }
    let info = PingInfo { features, pid: Pid(head.pid.get()), seq: lo.status.get(), entries };
    Ok(Parsed { info, order, size, have })
}

/// Adds the large entries in `b` to `entries`. An entry has 4 bytes of status and as many bytes of
/// NID as its first byte says, padded to a multiple of 4.
fn large_entries<O: zerocopy::ByteOrder>(mut b: &[u8], entries: &mut Vec<PingEntry>) {
    while let Some((status, rest)) = b.split_at_checked(4).filter(|_| b.len() >= 8) {
        let significant = usize::from(rest[0]) + 8;
        let Some((nid, next)) = rest.split_at_checked(significant.next_multiple_of(4)) else {
            return;
        };
        b = next;
        let mut wire = [0; Nid::WIRE_LEN];
        let Some(to) = wire.get_mut(..significant) else {
            continue;
        };
        to.copy_from_slice(&nid[..significant]);
        if let (Ok(nid), Ok(status)) = (Nid::from_wire(wire), U32::<O>::read_from_bytes(status)) {
            entries.push(PingEntry { nid, status: NiStatus(status.get()) });
        }
    }
}

impl fmt::Display for PingInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ping info seq {} pid {} {}", self.seq, self.pid.0, self.features)?;
        self.entries.iter().try_for_each(|e| write!(f, " {} {}", e.nid, e.status))
    }
}

impl fmt::Display for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.fmt(f)?;
        if let Some(size) = self.truncated() {
            write!(f, " truncated: needs {size} bytes, {} there", self.have)?;
        }
        if self.order == ByteOrder::Big { f.write_str(" big-endian") } else { Ok(()) }
    }
}
