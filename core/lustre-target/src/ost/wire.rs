//! Calls of a client that holds no locks: the server takes them (L-50), and no promise is used.

use lnet_types::ByteOrder;
use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ost::{IoObj, Niobuf, NiobufFlags, Obdo, ObdoFlags, Statfs};
use lustre_wire::{Buffers, Checksum, Layout, Opcode};
use ptlrpc::Call;

/// Most bytes that go inside of a message.
pub const INLINE_MAX: u32 = super::request::INLINE_MAX as u32;
/// Most bytes of one data request.
pub const DATA_MAX: u32 = super::BRW_SIZE;

/// Bytes of a piece of bulk data.
const PIECE: u32 = 1 << 20;
/// `max_brw` of a request whose data is inside of its messages (L-88).
const INLINE_BRW: u32 = 0xffff_0000;

/// What such a client asks for when it connects.
pub fn wanted() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::SRVLOCK
            | ConnectFlags::VERSION
            | ConnectFlags::BRW_SIZE
            | ConnectFlags::AT
            | ConnectFlags::CKSUM
            | ConnectFlags::FID
            | ConnectFlags::FULL20
            | ConnectFlags::MAXBYTES
            | ConnectFlags::EINPROGRESS
            | ConnectFlags::SHORTIO
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        brw_size: DATA_MAX,
        cksum_types: ChecksumKinds::CRC32 | ChecksumKinds::ADLER | ChecksumKinds::CRC32C,
        ..ConnectData::default()
    }
}

/// A request for one object, or one sequence.
pub fn object(opcode: Opcode, body: &Obdo) -> Call {
    Call::new(opcode, Buffers::new().layout(body)).answered_by(&[Obdo::LEN as u32])
}

/// An object, and nothing else.
pub fn named(id: ObjectId) -> Obdo {
    Obdo { id, valid: Valid::ID | Valid::GROUP, ..Obdo::default() }
}

/// What an object has, without a lock of the client.
pub fn get_attributes(id: ObjectId) -> Call {
    let mut body = named(id);
    body.valid |= Valid::FLAGS;
    body.flags = ObdoFlags::SRVLOCK;
    object(Opcode::OST_GETATTR, &body)
}

/// An object ends at `size` from now on.
pub fn punch(id: ObjectId, size: u64) -> Call {
    let mut body = Obdo { size, blocks: u64::MAX, flags: ObdoFlags::SRVLOCK, ..named(id) };
    body.valid |= Valid::SIZE | Valid::BLOCKS | Valid::FLAGS;
    object(Opcode::OST_PUNCH, &body)
}

/// An object, or the whole target, is committed.
pub fn sync(id: Option<ObjectId>) -> Call {
    let mut body = Obdo { size: 0, blocks: u64::MAX, ..named(id.unwrap_or_default()) };
    body.valid |= Valid::SIZE | Valid::BLOCKS;
    object(Opcode::OST_SYNC, &body)
}

/// Objects up to this one; number 0 of old: one more. The reply names the last one that there is.
pub fn create(id: ObjectId) -> Call {
    object(Opcode::OST_CREATE, &named(id))
}

/// So many objects from this one on are removed.
pub fn destroy(id: ObjectId, count: u32) -> Call {
    let mut body = Obdo { misc: count, ..named(id) };
    body.valid |= Valid::OBJCOUNT;
    object(Opcode::OST_DESTROY, &body)
}

/// The space of a target.
pub fn statfs() -> Call {
    Call::new(Opcode::OST_STATFS, Buffers::new()).answered_by(&[Statfs::LEN as u32])
}

/// The last number of the objects of old.
pub fn last_id() -> Call {
    Call::new(Opcode::OST_GET_INFO, Buffers::new().bytes(b"last_id\0")).answered_by(&[8])
}

/// One range of a data request.
pub fn range(offset: u64, len: u32, flags: NiobufFlags) -> Niobuf {
    Niobuf { offset, len, flags: flags | NiobufFlags::SRVLOCK | NiobufFlags::SYNC }
}

/// A read or write of ranges. `data`: what is written and goes inside of the message; `None` for bulk
/// data, and for reads with room for so many bytes in the reply.
pub fn data(opcode: Opcode, body: &Obdo, ranges: &[Niobuf], inline: Option<&[u8]>) -> Call {
    let count = u32::try_from(ranges.len()).unwrap_or(u32::MAX);
    let max_brw = match inline {
        Some(_) => INLINE_BRW,
        None => (DATA_MAX.div_ceil(PIECE).next_power_of_two() - 1) << 16,
    };
    let object = IoObj { id: body.id, max_brw, count };
    let list: Vec<u8> = ranges.iter().flat_map(|range| range.to_bytes(ByteOrder::Little)).collect();
    let inside = inline.unwrap_or_default();
    let buffers = Buffers::new().layout(body).layout(&object).bytes(list).bytes(b"").bytes(inside);
    let len: u32 = ranges.iter().map(|range| range.len).fold(0, u32::saturating_add);
    let more = match opcode {
        Opcode::OST_WRITE => count.saturating_mul(4),
        _ if inline.is_some() => len,
        _ => 0,
    };
    Call::new(opcode, buffers).answered_by(&[Obdo::LEN as u32, more])
}

/// The body of a data request, with the checksum of what is written.
pub fn data_body(id: ObjectId, inline: bool, kind: Option<Checksum>, sum: u32) -> Obdo {
    let mut body = named(id);
    body.valid |= Valid::FLAGS;
    body.flags.set(ObdoFlags::SHORT_IO, inline);
    if let Some(kind) = kind {
        body.flags = body.flags.with_checksum(kind.number());
        body.valid |= Valid::CKSUM;
        body.nlink = sum;
    }
    body
}
