//! Questions to metadata targets, and what is asked for when a visitor connects. Pure: values to calls.
//! Opens and locks are in `intent.rs`, changes in `reint.rs`.

use lnet_types::ByteOrder;
use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::fid::{RangeKind, SeqOp, SeqRange, Valid};
use lustre_wire::mds::MdtBody;
use lustre_wire::ost::Statfs;
use lustre_wire::{Buffers, Fid, Layout, Opcode};
use ptlrpc::Call;

pub(super) const LITTLE: ByteOrder = ByteOrder::Little;
/// Room for a layout; a longer one makes the request go again.
pub(super) const LAYOUT_ROOM: u32 = 4096;
/// Most bytes of the text of a symbolic link, its NUL included.
const LINK_ROOM: u32 = 4096;
/// No group.
pub(super) const NO_GROUP: u32 = u32::MAX;
/// Changes and closes of a visit that are under way at a time on one target.
const CHANGES: u16 = 8;
/// Attributes of entries that are wanted: FID and type (C-143).
const ENTRY_ATTRS: u32 = 3;

/// What a visit may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Look and read. Servers refuse all else.
    #[default]
    Read,
    /// Change too.
    Change,
}

/// In whose name a visit is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Permissions that new files do not get.
    pub umask: u32,
}

impl Identity {
    /// Whether it may do what an ordinary user may not.
    pub(super) const fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Capability mask (C-245).
    pub(super) const fn capability(&self) -> u32 {
        if self.is_root() { u32::MAX } else { 0 }
    }

    /// The group of a file, if this user is in it (C-246).
    pub(super) fn group(&self, gid: u32) -> u32 {
        if self.gid == gid || self.groups.contains(&gid) { gid } else { NO_GROUP }
    }

    /// A request for `fid`, whose group is `gid`.
    pub(super) fn body(&self, fid: Fid, gid: u32, valid: Valid) -> MdtBody {
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
/// (C-8, C-11). One that only reads asks not to be let change anything (C-12).
pub(super) fn wanted(access: Access) -> ConnectData {
    let flags = match access {
        Access::Read => ConnectFlags::RDONLY,
        Access::Change => ConnectFlags::UMASK | ConnectFlags::SHORTIO,
    };
    ConnectData {
        flags: flags
            // Closes need slots, also of what was only read.
            | ConnectFlags::MULTIMODRPCS
            | ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::FID
            | ConnectFlags::ATTRFID
            | ConnectFlags::IBITS
            | ConnectFlags::BRW_SIZE
            | ConnectFlags::HASH_64BIT
            // Several locks are given back in one request.
            | ConnectFlags::CANCELSET
            | ConnectFlags::ACL
            | ConnectFlags::LARGE_ACL
            | ConnectFlags::XATTR
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
        maxmodrpcs: CHANGES,
        cksum_types: ChecksumKinds::CRC32 | ChecksumKinds::ADLER | ChecksumKinds::CRC32C,
        ..ConnectData::default()
    }
}

/// A name in a request.
pub(super) fn named(name: &[u8]) -> Vec<u8> {
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
    Call::new(Opcode::MDS_GET_ROOT, Buffers::new().layout(&body))
        .answered_by(&[MdtBody::LEN as u32, 0])
}

/// The space of a metadata target.
pub(super) fn statfs() -> Call {
    Call::new(Opcode::MDS_STATFS, Buffers::new()).answered_by(&[Statfs::LEN as u32])
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

/// Of a reply with attributes.
const ATTRIBUTES_REPLY: [u32; 6] = [MdtBody::LEN as u32, LAYOUT_ROOM, 0, 0, 0, 0];

/// Attributes and layout of a file, without a lock (C-56).
pub(super) fn attributes(who: &Identity, fid: Fid, gid: u32) -> Call {
    let body = MdtBody { eadatasize: LAYOUT_ROOM, ..who.body(fid, gid, ATTRIBUTES) };
    Call::new(Opcode::MDS_GETATTR, Buffers::new().layout(&body).bytes(b""))
        .answered_by(&ATTRIBUTES_REPLY)
}

/// Attributes and layout of a name in a directory, without a lock (C-57).
pub(super) fn lookup(who: &Identity, dir: Fid, gid: u32, name: &[u8]) -> Call {
    let body = MdtBody { eadatasize: LAYOUT_ROOM, ..who.body(dir, gid, ATTRIBUTES) };
    let buffers = Buffers::new().layout(&body).bytes(b"").text(name);
    Call::new(Opcode::MDS_GETATTR_NAME, buffers).answered_by(&ATTRIBUTES_REPLY)
}

/// The text of a symbolic link (C-242).
pub(super) fn link_text(who: &Identity, fid: Fid) -> Call {
    let valid = Valid::ID | Valid::LINKNAME;
    let body = MdtBody { eadatasize: LINK_ROOM, ..who.body(fid, NO_GROUP, valid) };
    Call::new(Opcode::MDS_GETATTR, Buffers::new().layout(&body).bytes(b"")).answered_by(&[
        MdtBody::LEN as u32,
        LINK_ROOM,
        0,
        0,
        0,
        0,
    ])
}

/// Pages of a directory from a hash on: at most `room` bytes, as bulk data (C-143).
pub(super) fn pages(who: &Identity, dir: Fid, hash: u64, room: u32) -> Call {
    let body = MdtBody {
        size: hash,
        mode: ENTRY_ATTRS,
        nlink: room,
        ..who.body(dir, NO_GROUP, Valid::ID)
    };
    Call::new(Opcode::MDS_READPAGE, Buffers::new().layout(&body).bytes(b""))
        .answered_by(&[MdtBody::LEN as u32])
}

/// The metadata target of a sequence (C-41).
pub(super) fn locate(seq: u64) -> Call {
    let range = SeqRange { start: seq, flags: RangeKind::MDT, ..SeqRange::default() };
    let buffers = Buffers::new().layout(&SeqOp::LOOKUP).layout(&range);
    Call::new(Opcode::FLD_QUERY, buffers).answered_by(&[SeqRange::LEN as u32])
}

/// The place of a sequence of FIDs for new files, from the target that will have them (C-38).
pub(super) fn sequence() -> Call {
    let buffers = Buffers::new().layout(&SeqOp::META).layout(&SeqRange::default());
    Call::new(Opcode::SEQ_QUERY, buffers).answered_by(&[SeqRange::LEN as u32])
}

/// What was changed of a file, or all of a target, is committed (C-230).
pub(super) fn sync(who: &Identity, fid: Fid) -> Call {
    let valid = if fid == Fid::default() { Valid::empty() } else { Valid::ID };
    let body = who.body(fid, NO_GROUP, valid);
    Call::new(Opcode::MDS_SYNC, Buffers::new().layout(&body).bytes(b""))
        .answered_by(&[MdtBody::LEN as u32])
}

/// The value of an extended attribute, or the names of all; `room` of 0 asks for the length alone
/// (C-235).
pub(super) fn xattr(who: &Identity, fid: Fid, name: Option<&[u8]>, room: u32) -> Call {
    let valid = if name.is_some() { Valid::XATTR } else { Valid::XATTRLS };
    let body = MdtBody { eadatasize: room, ..who.body(fid, NO_GROUP, valid | Valid::ID) };
    let buffers = Buffers::new()
        .layout(&body)
        .bytes(b"")
        .bytes(name.map(named).unwrap_or_default())
        .bytes(b"")
        .bytes(b"");
    Call::new(Opcode::MDS_GETXATTR, buffers).answered_by(&[MdtBody::LEN as u32, room])
}

/// The default layout that files in a directory get (C-100).
pub(super) fn default_layout(who: &Identity, dir: Fid) -> Call {
    let valid = Valid::ID | Valid::EASIZE | Valid::DIREA;
    let body = MdtBody { eadatasize: LAYOUT_ROOM, ..who.body(dir, NO_GROUP, valid) };
    Call::new(Opcode::MDS_GETATTR, Buffers::new().layout(&body).bytes(b""))
        .answered_by(&ATTRIBUTES_REPLY)
}

/// The default layout that directories in a directory get (C-155, C-285).
pub(super) fn default_dir_layout(who: &Identity, dir: Fid) -> Call {
    let valid = Valid::ID | Valid::EASIZE | Valid::DIREA | Valid::DEFAULT_MEA;
    let body = MdtBody { eadatasize: LAYOUT_ROOM, ..who.body(dir, NO_GROUP, valid) };
    Call::new(Opcode::MDS_GETATTR, Buffers::new().layout(&body).bytes(b""))
        .answered_by(&ATTRIBUTES_REPLY)
}
