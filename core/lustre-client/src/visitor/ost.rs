//! Requests to object targets: sizes and data under the server's own locks (C-205 … C-208). Pure.

use lnet_types::ByteOrder;
use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ost::{IoObj, Niobuf, NiobufFlags, Obdo, ObdoFlags, Statfs};
use lustre_wire::{Checksum, Layout, Opcode};
use ptlrpc::Call;

const LITTLE: ByteOrder = ByteOrder::Little;
/// Bytes of a piece of bulk data.
const PIECE: u32 = 1 << 20;
/// Most bytes of a read, and those of a target that names no limit.
pub(super) const READ_MAX: u32 = 4 << 20;
const READ_LEAST: u32 = 1 << 20;

/// What a visitor asks an object target for (C-9).
pub(super) fn wanted() -> ConnectData {
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
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        brw_size: READ_MAX,
        cksum_types: ChecksumKinds::CRC32 | ChecksumKinds::ADLER | ChecksumKinds::CRC32C,
        ..ConnectData::default()
    }
}

fn named(id: ObjectId) -> Obdo {
    Obdo { id, valid: Valid::ID | Valid::GROUP | Valid::FLAGS, ..Obdo::default() }
}

/// Size and times of an object. The server takes the lock, so that writers write back (C-208).
pub(super) fn attributes(id: ObjectId) -> Call {
    let body = Obdo { flags: ObdoFlags::SRVLOCK, ..named(id) };
    let mut call = Call::new(Opcode::OST_GETATTR, vec![body.to_bytes(LITTLE)]);
    call.reply_lens = vec![Obdo::LEN as u32];
    call
}

/// The space of an object target.
pub(super) fn statfs() -> Call {
    let mut call = Call::new(Opcode::OST_STATFS, Vec::new());
    call.reply_lens = vec![Statfs::LEN as u32];
    call
}

/// Bytes of an object, as bulk data; `again` counts how often it was tried before.
pub(super) fn read(
    id: ObjectId,
    offset: u64,
    len: u32,
    checksum: Option<Checksum>,
    again: bool,
) -> Call {
    let mut body = named(id);
    body.flags.set(ObdoFlags::RECOV_RESEND, again);
    if let Some(kind) = checksum {
        body.flags = body.flags.with_checksum(kind.number());
        body.valid |= Valid::CKSUM;
    }
    let max_brw = (READ_MAX.div_ceil(PIECE).next_power_of_two() - 1) << 16;
    let object = IoObj { id, max_brw, count: 1 };
    let flags = NiobufFlags::READ | NiobufFlags::SYNC | NiobufFlags::NOCACHE | NiobufFlags::SRVLOCK;
    let range = Niobuf { offset, len, flags };
    let buffers = vec![
        body.to_bytes(LITTLE),
        object.to_bytes(LITTLE),
        range.to_bytes(LITTLE),
        Vec::new(),
        Vec::new(),
    ];
    let mut call = Call::new(Opcode::OST_READ, buffers);
    call.reply_lens = vec![Obdo::LEN as u32, 0];
    call
}

/// Most bytes of a read from a target with these terms.
pub(super) fn read_max(terms: &ConnectData) -> u32 {
    match terms.flags.contains(ConnectFlags::BRW_SIZE) {
        true => terms.brw_size.clamp(4096, READ_MAX),
        false => READ_LEAST,
    }
}

/// The kind of checksum for a target with these terms.
pub(super) fn checksum(terms: &ConnectData) -> Option<Checksum> {
    let known = terms.flags.contains(ConnectFlags::CKSUM);
    let kinds = [Checksum::Crc32c, Checksum::Crc32, Checksum::Adler];
    let has = |kind: &Checksum| terms.cksum_types.bits() & u32::from(kind.number()) != 0;
    kinds.into_iter().find(has).filter(|_| known)
}
