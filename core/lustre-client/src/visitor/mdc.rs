//! Requests to metadata targets, and what is asked for when a visitor connects. Pure: values to calls.

use lnet_types::ByteOrder;
use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::fid::{RangeKind, SeqOp, SeqRange, Valid};
use lustre_wire::ldlm::{
    InodeBits, Intent, LockDesc, LockFlags, LockKind, LockMode, LockRequest, Policy, ResourceName,
};
use lustre_wire::mds::{CreateRecord, Epoch, MdtBody, RecordHead, ReintOp, SetattrRecord};
use lustre_wire::ost::Statfs;
use lustre_wire::{Fid, Layout, Opcode};
use ptlrpc::Call;

const LITTLE: ByteOrder = ByteOrder::Little;
/// Room for a layout; a longer one makes the request go again.
const LAYOUT_ROOM: u32 = 4096;
/// Most bytes of the text of a symbolic link, its NUL included.
const LINK_ROOM: u32 = 4096;
/// No group.
const NO_GROUP: u32 = u32::MAX;
/// Open: for reading; by FID, not by name; must be a directory. High half: no restore from the archive,
/// as a visit would wait for it; a default layout in the reply is understood (C-77).
const OPEN_READ: u32 = 0x1;
const OPEN_BY_FID: u32 = 0x80_0000;
const OPEN_DIRECTORY: u32 = 0x1_0000;
const OPEN_HIGH: u32 = 0x202;
/// The directory of the name is on another target (C-123).
const CROSS_REF: u32 = 0x2;
/// Attributes of entries that are wanted: FID and type (C-143).
const ENTRY_ATTRS: u32 = 3;

/// In whose name a visit is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Whether it may do what an ordinary user may not.
    pub(super) const fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Capability mask (C-245).
    const fn capability(&self) -> u32 {
        if self.is_root() { u32::MAX } else { 0 }
    }

    /// The group of a file, if this user is in it (C-246).
    fn group(&self, gid: u32) -> u32 {
        if self.gid == gid || self.groups.contains(&gid) { gid } else { NO_GROUP }
    }

    /// A request for `fid`, whose group is `gid`.
    fn body(&self, fid: Fid, gid: u32, valid: Valid) -> MdtBody {
        MdtBody {
            fid1: fid,
            valid,
            fsuid: self.uid,
            fsgid: self.gid,
            capability: self.capability(),
            uid: self.uid,
            gid: self.gid,
            suppgid: self.group(gid),
            ..MdtBody::default()
        }
    }
}

/// What a visitor asks a metadata target for: nothing by which the server would count on this client
/// (C-8, C-11), and not to change anything (C-12).
pub(super) fn wanted() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::RDONLY
            | ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::FID
            | ConnectFlags::ATTRFID
            | ConnectFlags::IBITS
            | ConnectFlags::BRW_SIZE
            | ConnectFlags::HASH_64BIT
            | ConnectFlags::LAYOUTLOCK
            | ConnectFlags::LVB_TYPE
            | ConnectFlags::LOV_V3
            | ConnectFlags::MAX_EASIZE
            | ConnectFlags::DIR_STRIPE
            | ConnectFlags::DISP_STRIPE
            | ConnectFlags::OPEN_BY_FID
            | ConnectFlags::SRVLOCK
            | ConnectFlags::CKSUM
            | ConnectFlags::EINPROGRESS
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS
            | ConnectFlags2::OVERSTRIPING
            | ConnectFlags2::LSOM
            | ConnectFlags2::CRUSH
            | ConnectFlags2::DOM_LVB,
        ibits_known: 0x7f,
        brw_size: 1 << 20,
        cksum_types: ChecksumKinds::CRC32 | ChecksumKinds::ADLER | ChecksumKinds::CRC32C,
        ..ConnectData::default()
    }
}

/// A name in a request.
fn named(name: &[u8]) -> Vec<u8> {
    let mut bytes = name.to_vec();
    bytes.push(0);
    bytes
}

/// A body that names no file and no caller, as kernel nodes send it.
pub(super) fn empty() -> MdtBody {
    MdtBody { suppgid: NO_GROUP, capability: u32::MAX, ..MdtBody::default() }
}

/// The root of the file system, or of the part of it that this client may see (C-31).
pub(super) fn root() -> Call {
    let body = empty();
    let mut call = Call::new(Opcode::MDS_GET_ROOT, vec![body.to_bytes(LITTLE)]);
    call.reply_lens = vec![MdtBody::LEN as u32, 0];
    call
}

/// The space of a metadata target.
pub(super) fn statfs() -> Call {
    let mut call = Call::new(Opcode::MDS_STATFS, Vec::new());
    call.reply_lens = vec![Statfs::LEN as u32];
    call
}

/// What `ls -l` shows, and the layout of a file or directory (C-46).
const ATTRIBUTES: Valid = Valid::ID
    .union(Valid::ATIME)
    .union(Valid::MTIME)
    .union(Valid::CTIME)
    .union(Valid::SIZE)
    .union(Valid::BLOCKS)
    .union(Valid::BLKSZ)
    .union(Valid::MODE)
    .union(Valid::TYPE)
    .union(Valid::UID)
    .union(Valid::GID)
    .union(Valid::FLAGS)
    .union(Valid::NLINK)
    .union(Valid::RDEV)
    .union(Valid::EASIZE)
    .union(Valid::GROUP)
    .union(Valid::DIREA)
    .union(Valid::MODEASIZE)
    .union(Valid::MEA)
    .union(Valid::PROJID)
    .union(Valid::BTIME);

fn attributes_reply() -> Vec<u32> {
    vec![MdtBody::LEN as u32, LAYOUT_ROOM, 0, 0, 0, 0]
}

/// Attributes and layout of a file, without a lock (C-56).
pub(super) fn attributes(who: &Identity, fid: Fid, gid: u32) -> Call {
    let body = MdtBody { eadatasize: LAYOUT_ROOM, ..who.body(fid, gid, ATTRIBUTES) };
    let mut call = Call::new(Opcode::MDS_GETATTR, vec![body.to_bytes(LITTLE), Vec::new()]);
    call.reply_lens = attributes_reply();
    call
}

/// Attributes and layout of a name in a directory, without a lock (C-57).
pub(super) fn lookup(who: &Identity, dir: Fid, gid: u32, name: &[u8]) -> Call {
    let body = MdtBody { eadatasize: LAYOUT_ROOM, ..who.body(dir, gid, ATTRIBUTES) };
    let buffers = vec![body.to_bytes(LITTLE), Vec::new(), named(name)];
    let mut call = Call::new(Opcode::MDS_GETATTR_NAME, buffers);
    call.reply_lens = attributes_reply();
    call
}

/// The text of a symbolic link (C-242).
pub(super) fn link_text(who: &Identity, fid: Fid) -> Call {
    let valid = Valid::ID | Valid::LINKNAME;
    let body = MdtBody { eadatasize: LINK_ROOM, ..who.body(fid, NO_GROUP, valid) };
    let mut call = Call::new(Opcode::MDS_GETATTR, vec![body.to_bytes(LITTLE), Vec::new()]);
    call.reply_lens = vec![MdtBody::LEN as u32, LINK_ROOM, 0, 0, 0, 0];
    call
}

/// Pages of a directory from a hash on: at most `room` bytes, as bulk data (C-143).
pub(super) fn pages(who: &Identity, dir: Fid, hash: u64, room: u32) -> Call {
    let body = MdtBody {
        size: hash,
        mode: ENTRY_ATTRS,
        nlink: room,
        ..who.body(dir, NO_GROUP, Valid::ID)
    };
    let mut call = Call::new(Opcode::MDS_READPAGE, vec![body.to_bytes(LITTLE), Vec::new()]);
    call.reply_lens = vec![MdtBody::LEN as u32];
    call
}

/// The metadata target of a sequence (C-41).
pub(super) fn locate(seq: u64) -> Call {
    let range = SeqRange { start: seq, flags: RangeKind::MDT, ..SeqRange::default() };
    let buffers = vec![SeqOp::LOOKUP.to_bytes(LITTLE), range.to_bytes(LITTLE)];
    let mut call = Call::new(Opcode::FLD_QUERY, buffers);
    call.reply_lens = vec![SeqRange::LEN as u32];
    call
}

/// What is opened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Opened<'a> {
    /// A file, by its name in a directory.
    File(&'a [u8]),
    /// A directory, by its FID.
    Dir(Fid),
    /// A file whose name is on another target than it is itself (C-110).
    Remote(Fid),
}

/// Opens for reading. `dir` is the parent, `gids` are the groups of parent and file, `cookie` names the lock that the server
/// may grant with it (C-74, C-76).
pub(super) fn open(
    who: &Identity,
    dir: Fid,
    gids: (u32, u32),
    opened: Opened<'_>,
    cookie: u64,
) -> Call {
    let policy = Policy::Ibits {
        bits: InodeBits::LOOKUP,
        try_bits: InodeBits::empty(),
        gid: 0,
        initiator: 0,
    };
    let by_fid = OPEN_READ | OPEN_BY_FID | OPEN_DIRECTORY;
    let (flags, fid1, fid2, name, bias) = match opened {
        Opened::File(name) => (OPEN_READ, dir, Fid::default(), named(name), 0),
        Opened::Dir(fid) => (by_fid, dir, fid, named(b""), 0),
        Opened::Remote(fid) => (OPEN_READ, fid, dir, named(b""), CROSS_REF),
    };
    let desc = LockDesc {
        kind: LockKind::IBITS,
        resource: ResourceName::of(fid1),
        requested: LockMode::CR,
        policy: policy.words(),
        ..LockDesc::default()
    };
    let lock = LockRequest::new(LockFlags::HAS_INTENT, 1, desc, &[cookie]);
    let record = CreateRecord {
        head: RecordHead {
            opcode: ReintOp::OPEN,
            cap: who.capability(),
            fsuid: who.uid,
            fsgid: who.gid,
            suppgid1: who.group(gids.0),
            suppgid2: who.group(gids.1),
            fid1,
            fid2,
            ..RecordHead::default()
        },
        mode: 0x8000,
        bias,
        flags_low: flags,
        flags_high: OPEN_HIGH,
        ..CreateRecord::default()
    };
    let mut buffers = vec![
        lock.to_bytes(LITTLE),
        Intent::OPEN.to_bytes(LITTLE),
        record.to_bytes(LITTLE),
        Vec::new(),
        Vec::new(),
        name,
    ];
    buffers.resize(11, Vec::new());
    let mut call = Call::new(Opcode::LDLM_ENQUEUE, buffers);
    call.modifies = true;
    call.reply_lens = vec![112, MdtBody::LEN as u32, LAYOUT_ROOM, 0, 0, 0, 16, 0, 0, 0];
    call
}

/// Ends an open, and changes nothing of the file (C-102, C-104).
pub(super) fn close(who: &Identity, fid: Fid, handle: u64) -> Call {
    let record = SetattrRecord {
        opcode: ReintOp::SETATTR,
        cap: who.capability(),
        fsuid: who.uid,
        fsgid: who.gid,
        suppgid: NO_GROUP,
        fid,
        ..SetattrRecord::default()
    };
    let buffers = vec![Epoch { handle }.to_bytes(LITTLE), record.to_bytes(LITTLE), Vec::new()];
    let mut call = Call::new(Opcode::MDS_CLOSE, buffers);
    call.reply_lens = vec![MdtBody::LEN as u32, 0, 0, 0, 0];
    call
}

/// Gives a lock back that came with an answer (C-67).
pub(super) fn cancel(handle: u64) -> Call {
    let request = LockRequest::new(LockFlags::empty(), 1, LockDesc::default(), &[handle]);
    Call::new(Opcode::LDLM_CANCEL, vec![request.to_bytes(LITTLE)])
}

/// Size and times of the part of a file that is on its metadata target, from those that know them
/// (C-209).
pub(super) fn glimpse(fid: Fid, cookie: u64) -> Call {
    let policy =
        Policy::Ibits { bits: InodeBits::DOM, try_bits: InodeBits::empty(), gid: 0, initiator: 0 };
    let desc = LockDesc {
        kind: LockKind::IBITS,
        resource: ResourceName::of(fid),
        requested: LockMode::PR,
        policy: policy.words(),
        ..LockDesc::default()
    };
    let lock = LockRequest::new(LockFlags::HAS_INTENT, 1, desc, &[cookie]);
    let mut call = Call::new(Opcode::LDLM_ENQUEUE, vec![lock.to_bytes(LITTLE)]);
    call.reply_lens = vec![112, 56];
    call
}
