//! Requests of a client that has locks (L-80 … L-92), and what their replies say.

use lnet_types::IoVec;
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ost::{IoObj, Niobuf, NiobufFlags, Obdo, ObdoFlags};
use lustre_wire::{Buffers, Checksum, Layout, Opcode};
use ptlrpc::{Bulk, Call, Direction, Reply};

use super::FilePart;
use super::grant::Account;

/// Bytes of a piece of bulk data.
const PIECE: u32 = 1 << 20;

/// One data request.
#[derive(Clone, Debug)]
pub(super) struct Data {
    pub(super) id: ObjectId,
    pub(super) direction: Direction,
    pub(super) offset: u64,
    pub(super) memory: IoVec,
    pub(super) len: u32,
    /// Most bytes of a data request of this import.
    pub(super) brw: u32,
    /// Space is promised for it.
    pub(super) granted: bool,
    /// A write that may be answered before it is committed.
    pub(super) later: bool,
    /// It was sent before under another number (L-93).
    pub(super) again: bool,
    /// How its bytes are summed up, and to what if they are written.
    pub(super) checksum: Option<(Checksum, u32)>,
    pub(super) account: Option<Account>,
    pub(super) mtime: Option<i64>,
    pub(super) part: Option<FilePart>,
}

fn named(id: ObjectId) -> Obdo {
    Obdo { id, valid: Valid::ID | Valid::GROUP, ..Obdo::default() }
}

fn object(opcode: Opcode, body: &Obdo) -> Call {
    Call::new(opcode, Buffers::new().layout(body)).answered_by(&[Obdo::LEN as u32])
}

/// What an object has. No lock is taken for it: the client has one.
pub(super) fn attributes(id: ObjectId) -> Call {
    object(Opcode::OST_GETATTR, &named(id))
}

/// An object ends at `size` from now on; the server takes the lock (L-80).
pub(super) fn punch(id: ObjectId, size: u64) -> Call {
    let mut body = Obdo { size, blocks: u64::MAX, flags: ObdoFlags::SRVLOCK, ..named(id) };
    body.valid |= Valid::SIZE | Valid::BLOCKS | Valid::FLAGS;
    object(Opcode::OST_PUNCH, &body)
}

/// An object is committed (L-81).
pub(super) fn sync(id: ObjectId) -> Call {
    let mut body = Obdo { size: 0, blocks: u64::MAX, ..named(id) };
    body.valid |= Valid::SIZE | Valid::BLOCKS;
    object(Opcode::OST_SYNC, &body)
}

/// Data of one range is moved under a lock of this client. A write that is answered before it is committed
/// (L-92) keeps its memory, and is repeated after a crash of the target (P-74).
pub(super) fn data(data: &Data) -> Call {
    let mut body = named(data.id);
    body.valid |= Valid::FLAGS;
    body.flags.set(ObdoFlags::RECOV_RESEND, data.again);
    if let Some((kind, sum)) = data.checksum {
        body.flags = body.flags.with_checksum(kind.number());
        body.valid |= Valid::CKSUM;
        body.nlink = sum;
    }
    if let Some(Account { dirty, wanted, held, used }) = data.account {
        (body.blocks, body.mode, body.grant, body.data_version) = (dirty, wanted, held, used);
        // As recorded clients say it: both words are read, or none.
        body.valid |= Valid::GRANT | Valid::BLOCKS;
    }
    if let Some(FilePart { file, stripe, layout, payer, privileged: _ }) = data.part {
        (body.parent_seq, body.parent_oid, body.stripe_index) = (file.seq, file.oid, stripe);
        body.layout = layout;
        body.valid |= Valid::FID | Valid::PARENT | Valid::OSTLAYOUT;
        payer.named_in(&mut body);
    }
    if let Some(mtime) = data.mtime {
        body.mtime = mtime;
        body.valid |= Valid::MTIME;
    }
    let (opcode, mut flags) = match data.direction {
        Direction::Write => {
            let commit = if data.later { NiobufFlags::ASYNC } else { NiobufFlags::SYNC };
            (Opcode::OST_WRITE, NiobufFlags::WRITE | commit)
        }
        Direction::Read => (Opcode::OST_READ, NiobufFlags::READ | NiobufFlags::SYNC),
    };
    flags.set(NiobufFlags::FROM_GRANT, data.granted);
    // Of the caller, where it is known: that of a write (L-74).
    flags.set(NiobufFlags::SYS_RESOURCE, data.part.is_some_and(|part| part.privileged));
    let max_brw = (data.brw.div_ceil(PIECE).next_power_of_two() - 1) << 16;
    let ioobj = IoObj { id: data.id, max_brw, count: 1 };
    let range = Niobuf { offset: data.offset, len: data.len, flags };
    let buffers = Buffers::new().layout(&body).layout(&ioobj).layout(&range).bytes(b"").bytes(b"");
    let result = if data.direction == Direction::Write { 4 } else { 0 };
    let mut call = Call::new(opcode, buffers).answered_by(&[Obdo::LEN as u32, result]);
    call.bulk = Some(Bulk { direction: data.direction, memory: data.memory.clone() });
    call.retains_bulk = data.direction == Direction::Write;
    call
}

/// What the reply to a data request says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    /// Bytes that were read.
    pub(super) status: i32,
    pub(super) body: Obdo,
    /// What became of the range that was written.
    pub(super) result: Option<i32>,
}

impl Said {
    /// `None` for a reply that is none of its kind.
    pub(super) fn of(reply: &Reply) -> Option<Self> {
        let msg = reply.msg().ok()?;
        let body = msg.get::<Obdo>(1).ok()?;
        Some(Self { status: reply.status, body, result: msg.get::<i32>(2).ok() })
    }

    /// Whether a range is written, with the sum that it should have.
    pub(super) fn is_written(&self, expected: Option<(Checksum, u32)>) -> bool {
        let sum = expected.map(|(kind, ours)| (ours, self.sum(kind)));
        let differs = sum.is_some_and(|(ours, theirs)| theirs.is_some_and(|sum| sum != ours));
        self.result == Some(0) && !differs
    }

    /// The checksum of a kind, if the reply has one.
    pub(super) fn sum(&self, kind: Checksum) -> Option<u32> {
        let has = self.body.valid.contains(Valid::CKSUM | Valid::FLAGS);
        (has && self.body.flags.checksum() == kind.number()).then_some(self.body.nlink)
    }

    /// Bytes that the target promises beside those that it had.
    pub(super) fn grant(&self) -> u64 {
        if self.body.valid.contains(Valid::GRANT) { self.body.grant } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use lustre_wire::Fid;
    use lustre_wire::ost::StripeInfo;

    use super::super::Payer;
    use super::*;

    fn write_of(part: FilePart) -> Data {
        Data {
            id: ObjectId::default(),
            direction: Direction::Write,
            offset: 0,
            memory: IoVec::new(),
            len: 0,
            brw: 4 << 20,
            granted: false,
            later: false,
            again: false,
            checksum: None,
            account: None,
            mtime: None,
            part: Some(part),
        }
    }

    #[test]
    fn l74_a_write_of_a_privileged_user_may_take_space_that_is_kept_for_administrators() {
        let flags = |privileged| {
            let part = FilePart {
                file: Fid::default(),
                stripe: 0,
                layout: StripeInfo::default(),
                payer: Payer::default(),
                privileged,
            };
            let call = data(&write_of(part));
            Niobuf::parse(lnet_types::ByteOrder::Little, call.buffers.get(2).unwrap())
                .unwrap()
                .flags
        };
        let written = NiobufFlags::WRITE | NiobufFlags::SYNC;
        assert_eq!(flags(false), written);
        assert_eq!(flags(true), written | NiobufFlags::SYS_RESOURCE);
    }

    #[test]
    fn c202_a_write_to_a_part_of_a_file_names_the_file_and_who_pays() {
        let part = FilePart {
            file: Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 },
            stripe: 3,
            layout: StripeInfo { stripe_size: 1 << 20, stripe_count: 4, ..StripeInfo::default() },
            payer: Payer { uid: 1000, gid: 100, project: Some(7) },
            privileged: false,
        };
        let mut whole = write_of(part);
        let body = |data_: &Data| {
            let call = data(data_);
            Obdo::parse(lnet_types::ByteOrder::Little, call.buffers.get(0).unwrap()).unwrap()
        };
        let pays = Valid::UID | Valid::GID | Valid::PROJID;
        let named = Valid::FID | Valid::PARENT | Valid::OSTLAYOUT | pays;
        let said = body(&whole);
        assert!(said.valid.contains(named));
        assert_eq!((said.parent_seq, said.parent_oid, said.stripe_index), (part.file.seq, 7, 3));
        assert_eq!((said.layout, said.uid, said.gid), (part.layout, 1000, 100));
        assert_eq!(said.projid, 7);
        whole.part = None;
        assert!(!body(&whole).valid.intersects(named));
        assert!(!said.valid.intersects(Valid::GRANT | Valid::BLOCKS));
        whole.account = Some(Account { dirty: 1, wanted: 2, held: 3, used: 4 });
        let said = body(&whole);
        assert!(said.valid.contains(Valid::GRANT | Valid::BLOCKS), "L-95");
        assert_eq!((said.blocks, said.mode, said.grant, said.data_version), (1, 2, 3, 4));
    }
}
