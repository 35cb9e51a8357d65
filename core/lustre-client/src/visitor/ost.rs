//! Requests to holders of data: sizes, times, bytes, under the server's own locks (C-205 … C-212).
//! Object targets are such, and metadata targets for the data that they have themselves (C-220). Pure.

use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ost::{IoObj, Niobuf, NiobufFlags, Obdo, ObdoFlags, Statfs, StripeInfo};
use lustre_wire::{Buffers, Checksum, Fid, Layout, Opcode};
use ptlrpc::Call;

use crate::osc::Payer;

/// Bytes of a piece of bulk data.
const PIECE: u32 = 1 << 20;
/// Most bytes of a data request, and those towards a target that names no limit.
pub(super) const DATA_MAX: u32 = 4 << 20;
const DATA_LEAST: u32 = 1 << 20;
/// Data count by so many bytes (P-46).
const PAGE: u32 = 4096;
/// Most bytes that go inside of a message (L-88).
pub(super) const INLINE_MAX: u32 = 16 << 10;

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
            | ConnectFlags::SHORTIO
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        brw_size: DATA_MAX,
        cksum_types: ChecksumKinds::CRC32 | ChecksumKinds::ADLER | ChecksumKinds::CRC32C,
        ..ConnectData::default()
    }
}

/// What a target has agreed to, as far as it concerns data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Most bytes of a data request.
    pub(super) max: u32,
    pub(super) checksum: Option<Checksum>,
    /// Short data goes inside of messages.
    inline: bool,
    /// The caller may use space that is kept for administrators (C-205).
    pub(super) privileged: bool,
    /// What is written inside of a message may be answered before it is committed, as it is repeated to a
    /// target that has lost it.
    pub(super) later: bool,
}

impl Terms {
    pub(super) fn of(granted: &ConnectData) -> Self {
        let has = |flag| granted.flags.contains(flag);
        let sums = [Checksum::Crc32c, Checksum::Crc32, Checksum::Adler];
        let known = |kind: &Checksum| granted.cksum_types.bits() & u32::from(kind.number()) != 0;
        Self {
            max: match has(ConnectFlags::BRW_SIZE) {
                true => (granted.brw_size / PAGE * PAGE).clamp(PAGE, DATA_MAX),
                false => DATA_LEAST,
            },
            checksum: sums.into_iter().find(known).filter(|_| has(ConnectFlags::CKSUM)),
            inline: has(ConnectFlags::SHORTIO),
            privileged: false,
            later: false,
        }
    }

    /// Bytes from `offset` on that one data request may have: up to the next border, as its pages count as
    /// whole ones (P-46).
    pub(super) const fn most_at(&self, offset: u64) -> u32 {
        // Less than the limit, which fits.
        self.max - (offset % self.max as u64) as u32
    }

    /// Whether so many bytes go inside of a message.
    pub(super) const fn inlines(&self, len: u32) -> bool {
        self.inline && len <= INLINE_MAX
    }

    /// The largest number of descriptors of a data request, less one (L-72).
    fn max_brw(&self, len: u32) -> u32 {
        match self.inlines(len) {
            true => 0xffff_0000,
            false => (self.max.div_ceil(PIECE).next_power_of_two() - 1) << 16,
        }
    }
}

/// A holder of a part of a file's data, and the file (C-202).
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) id: ObjectId,
    pub(super) file: Fid,
    /// Number of the stripe.
    pub(super) stripe: u32,
    /// The holder is the file itself, on its metadata target.
    pub(super) on_mdt: bool,
    pub(super) layout: StripeInfo,
    pub(super) payer: Payer,
}

impl Object {
    /// The object, and the file that it is of.
    fn named(&self) -> Obdo {
        Obdo {
            valid: named(self.id).valid | Valid::FID | Valid::PARENT | Valid::OSTLAYOUT,
            parent_seq: self.file.seq,
            parent_oid: self.file.oid,
            stripe_index: self.stripe,
            layout: self.layout,
            ..named(self.id)
        }
    }
}

fn named(id: ObjectId) -> Obdo {
    Obdo { id, valid: Valid::ID | Valid::GROUP, ..Obdo::default() }
}

fn object(opcode: Opcode, body: &Obdo) -> Call {
    Call::new(opcode, Buffers::new().layout(body).bytes(b"")).answered_by(&[Obdo::LEN as u32])
}

/// Size and times of an object. The server takes the lock, so that writers write back (C-208).
pub(super) fn attributes(id: ObjectId) -> Call {
    let mut body = Obdo { flags: ObdoFlags::SRVLOCK, ..named(id) };
    body.valid |= Valid::FLAGS;
    Call::new(Opcode::OST_GETATTR, Buffers::new().layout(&body)).answered_by(&[Obdo::LEN as u32])
}

/// Times of an object: of the last change, and those that a user has set (C-120).
pub(super) fn set_times(of: &Object, ctime: i64, mtime: Option<i64>, atime: Option<i64>) -> Call {
    let mut body = Obdo { ctime, ..of.named() };
    body.valid |= Valid::CTIME;
    if let Some(mtime) = mtime {
        body.mtime = mtime;
        body.valid |= Valid::MTIME;
    }
    if let Some(atime) = atime {
        body.atime = atime;
        body.valid |= Valid::ATIME;
    }
    object(Opcode::OST_SETATTR, &body)
}

/// An object ends there from now on; the server takes the lock (C-210).
pub(super) fn punch(of: &Object, size: u64, now: i64) -> Call {
    // Of its own data a metadata target wants no parent.
    let named = if of.on_mdt { named(of.id) } else { of.named() };
    let mut body =
        Obdo { size, blocks: u64::MAX, mtime: now, ctime: now, flags: ObdoFlags::SRVLOCK, ..named };
    body.valid |= Valid::MTIME | Valid::CTIME | Valid::SIZE | Valid::BLOCKS | Valid::FLAGS;
    of.payer.named_in(&mut body);
    object(Opcode::OST_PUNCH, &body)
}

/// An object is committed (C-230).
pub(super) fn sync(of: &Object) -> Call {
    let end = if of.on_mdt { of.layout.end } else { u64::MAX };
    let mut body = Obdo { size: 0, blocks: end, ..of.named() };
    body.valid |= Valid::SIZE | Valid::BLOCKS;
    body.valid.remove(Valid::OSTLAYOUT);
    (body.layout, body.stripe_index) = Default::default();
    object(Opcode::OST_SYNC, &body)
}

/// All of an object target is committed (C-230).
pub(super) fn sync_all() -> Call {
    let mut body = Obdo { size: 0, blocks: u64::MAX, ..named(ObjectId::default()) };
    body.valid |= Valid::SIZE | Valid::BLOCKS;
    object(Opcode::OST_SYNC, &body)
}

/// Nothing, but that the target is there.
pub(super) fn ping() -> Call {
    Call::new(Opcode::OBD_PING, Buffers::new())
}

/// The space of an object target.
pub(super) fn statfs() -> Call {
    Call::new(Opcode::OST_STATFS, Buffers::new()).answered_by(&[Statfs::LEN as u32])
}

fn data(
    opcode: Opcode,
    mut body: Obdo,
    terms: &Terms,
    (offset, len): (u64, u32),
    flags: NiobufFlags,
) -> Call {
    body.flags.set(ObdoFlags::SHORT_IO, terms.inlines(len));
    let ioobj = IoObj { id: body.id, max_brw: terms.max_brw(len), count: 1 };
    let commit =
        if terms.later && terms.inlines(len) { NiobufFlags::ASYNC } else { NiobufFlags::SYNC };
    let mut flags = flags | commit | NiobufFlags::NOCACHE | NiobufFlags::SRVLOCK;
    flags.set(NiobufFlags::SYS_RESOURCE, terms.privileged);
    let range = Niobuf { offset, len, flags };
    let buffers = Buffers::new().layout(&body).layout(&ioobj).layout(&range).bytes(b"").bytes(b"");
    Call::new(opcode, buffers)
}

/// Bytes of an object; `again`: they were asked for before.
pub(super) fn read(id: ObjectId, range: (u64, u32), terms: &Terms, again: bool) -> Call {
    let mut body = named(id);
    body.valid |= Valid::FLAGS;
    body.flags.set(ObdoFlags::RECOV_RESEND, again);
    if let Some(kind) = terms.checksum {
        body.flags = body.flags.with_checksum(kind.number());
        body.valid |= Valid::CKSUM;
    }
    let inline = if terms.inlines(range.1) { range.1 } else { 0 };
    data(Opcode::OST_READ, body, terms, range, NiobufFlags::READ)
        .answered_by(&[Obdo::LEN as u32, inline])
}

/// Writes to an object. The data is committed before the reply, so that nothing is to be kept for a
/// crash of the server (C-231), unless the terms say that it is kept; without a promise of space, as no promise is kept by a visitor either
/// (C-212). `sum` is the checksum of the kind that the terms name; times are of the last change of data,
/// and of now.
pub(super) fn write(
    of: &Object,
    range: (u64, u32),
    terms: &Terms,
    sum: u32,
    again: bool,
    (mtime, ctime): (i64, i64),
) -> Call {
    let mut body = Obdo { mtime, ctime, ..of.named() };
    body.valid |= Valid::MTIME | Valid::CTIME | Valid::FLAGS;
    of.payer.named_in(&mut body);
    body.flags.set(ObdoFlags::RECOV_RESEND, again);
    if let Some(kind) = terms.checksum {
        body.flags = body.flags.with_checksum(kind.number());
        body.valid |= Valid::CKSUM;
        body.nlink = sum;
    }
    let mut call = data(Opcode::OST_WRITE, body, terms, range, NiobufFlags::WRITE)
        .answered_by(&[Obdo::LEN as u32, 4]);
    // An eviction counts it, also by a target to which nothing is repeated.
    call.retains_bulk = terms.later && terms.inlines(range.1);
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_requests_end_at_borders_of_whole_pages() {
        let granted = |brw_size| ConnectData {
            flags: ConnectFlags::BRW_SIZE,
            brw_size,
            ..ConnectData::default()
        };
        for (brw_size, offset, most) in [
            (4 << 20, 0, 4 << 20),
            (4 << 20, 100, (4 << 20) - 100),
            (4 << 20, (8 << 20) - 1, 1),
            ((1 << 20) + 5, 0, 1 << 20),
            (64 << 20, 1 << 20, 3 << 20),
            (0, 4097, 4095),
        ] {
            let terms = Terms::of(&granted(brw_size));
            assert_eq!(terms.most_at(offset), most, "{brw_size} bytes granted, {offset}");
        }
    }
}
