//! Metadata: attributes of files, changes of names and attributes, close (C-43, C-75, C-102, C-112,
//! C-116, C-136).

use lnet_types::ByteOrder;

use crate::fid::{Fid, Valid};
use crate::layout::{codes, flags, layout};
use crate::{Layout, WireError};

layout! {
    /// Attributes of a file, with what requests for them say.
    pub struct MdtBody("mdt body", 216) {
        /// The file, or the directory of a name.
        0 fid1: Fid,
        /// The child, where both are named.
        16 fid2: Fid,
        /// Open handle.
        32 open_handle: u64,
        /// Which fields are set, or wanted.
        40 valid: Valid,
        /// Size; reading of a directory: hash to begin with.
        48 size: u64,
        /// Time of the last change of data.
        56 mtime: i64,
        /// Time of access.
        64 atime: i64,
        /// Time of the last change.
        72 ctime: i64,
        /// Blocks of 512 bytes.
        80 blocks: u64,
        /// Version of the data.
        88 version: u64,
        /// State of a restore.
        96 t_state: u64,
        /// User of the caller, for the file system.
        104 fsuid: u32,
        /// Group of the caller, for the file system.
        108 fsgid: u32,
        /// Capabilities of the caller.
        112 capability: u32,
        /// Type and permissions; reading of a directory: attributes of the entries.
        116 mode: u32,
        /// Owner; in requests the caller.
        120 uid: u32,
        /// Group; in requests the caller's.
        124 gid: u32,
        /// Flags of the inode.
        128 flags: u32,
        /// Device number.
        132 rdev: u32,
        /// Links; reading of a directory: bytes.
        136 nlink: u32,
        /// Generation of the layout.
        140 layout_gen: u32,
        /// A supplementary group.
        144 suppgid: u32,
        /// Length of the layout, or room for it.
        148 eadatasize: u32,
        /// Length of the ACL.
        152 aclsize: u32,
        /// Largest layout.
        156 max_mdsize: u32,
        /// Upper half of the owner.
        164 uid_high: u32,
        /// Upper half of the group.
        168 gid_high: u32,
        /// Project.
        172 projid: u32,
        /// Size of the data on the MDT.
        176 dom_size: u64,
        /// Blocks of the data on the MDT.
        184 dom_blocks: u64,
        /// Time of birth.
        192 btime: i64,
        /// Security attributes that do not exist.
        200 xattr_absent: u64,
    }

    /// The open handle of a close.
    pub struct Epoch("epoch", 24) {
        /// Open handle.
        0 handle: u64,
    }
}

codes! {
    /// Which change of metadata.
    pub struct ReintOp(u32) {
        /// Of attributes.
        SETATTR = 1 "SETATTR",
        /// A new inode.
        CREATE = 2 "CREATE",
        /// A new name.
        LINK = 3 "LINK",
        /// A name less.
        UNLINK = 4 "UNLINK",
        /// Another name.
        RENAME = 5 "RENAME",
        /// Open, in an intent alone.
        OPEN = 6 "OPEN",
        /// Of an extended attribute.
        SETXATTR = 7 "SETXATTR",
        /// A directory entry less, of servers alone.
        RMENTRY = 8 "RMENTRY",
        /// Of the place of an inode.
        MIGRATE = 9 "MIGRATE",
        /// Of mirrors.
        RESYNC = 10 "RESYNC",
    }
}

flags! {
    /// Which attributes a record changes, and how (C-116).
    pub struct SetattrValid(u64) {
        /// Permissions.
        MODE = 0x1, "MODE";
        /// Owner.
        UID = 0x2, "UID";
        /// Group.
        GID = 0x4, "GID";
        /// Size.
        SIZE = 0x8, "SIZE";
        /// Time of access.
        ATIME = 0x10, "ATIME";
        /// Time of the last change of data.
        MTIME = 0x20, "MTIME";
        /// Time of the last change.
        CTIME = 0x40, "CTIME";
        /// The time of access is given.
        ATIME_SET = 0x80, "ATIME_SET";
        /// The time of the last change of data is given.
        MTIME_SET = 0x100, "MTIME_SET";
        /// Whatever the permissions are.
        FORCE = 0x200, "FORCE";
        /// Flags of the inode.
        ATTR_FLAG = 0x400, "ATTR_FLAG";
        /// The set-user-id bit goes.
        KILL_SUID = 0x800, "KILL_SUID";
        /// The set-group-id bit goes.
        KILL_SGID = 0x1000, "KILL_SGID";
        /// The time of the last change is given.
        CTIME_SET = 0x2000, "CTIME_SET";
        /// A truncation by an open.
        FROM_OPEN = 0x4000, "FROM_OPEN";
        /// Blocks.
        BLOCKS = 0x8000, "BLOCKS";
        /// Project.
        PROJID = 0x1_0000, "PROJID";
        /// Size, as a hint.
        LSIZE = 0x2_0000, "LSIZE";
        /// Blocks, as a hint.
        LBLOCKS = 0x4_0000, "LBLOCKS";
        /// The file is open for writing.
        OVERRIDE = 0x200_0000, "OVERRIDE";
    }
}

layout! {
    /// Who makes a change, and of what: the front of most records (C-112).
    pub struct RecordHead("record head", 72) {
        /// Which change.
        0 opcode: ReintOp,
        /// Capabilities.
        4 cap: u32,
        /// User, for the file system.
        8 fsuid: u32,
        /// Version of the parent's layout, of creations.
        12 parent_layout_version: u32,
        /// Group, for the file system.
        16 fsgid: u32,
        /// Supplementary group for the first name.
        24 suppgid1: u32,
        /// Supplementary group for the second name.
        32 suppgid2: u32,
        /// The first name: most often a directory.
        40 fid1: Fid,
        /// The second name.
        56 fid2: Fid,
    }

    /// Creation or open (C-75).
    pub struct CreateRecord("create record", 136) {
        /// Who, and where.
        0 head: RecordHead,
        /// Replay: the handle of the first open.
        72 old_handle: u64,
        /// Time.
        80 time: i64,
        /// Device number.
        88 rdev: u64,
        /// Type and permissions.
        112 mode: u32,
        /// Further circumstances (C-123).
        116 bias: u32,
        /// Open flags, lower half.
        120 flags_low: u32,
        /// Open flags, upper half.
        124 flags_high: u32,
        /// Mask of permissions.
        128 umask: u32,
    }

    /// Link, unlink, rename, and removal of an entry: a change of names.
    pub struct NameRecord("name record", 136) {
        /// Who, and where.
        0 head: RecordHead,
        /// Time.
        72 time: i64,
        /// Further circumstances (C-123).
        112 bias: u32,
        /// Type and permissions.
        116 mode: u32,
        /// Flags, lower half.
        120 flags_low: u32,
        /// Flags, upper half.
        124 flags_high: u32,
    }

    /// Change of attributes (C-116).
    pub struct SetattrRecord("setattr record", 136) {
        /// Which change.
        0 opcode: ReintOp,
        /// Capabilities.
        4 cap: u32,
        /// User, for the file system.
        8 fsuid: u32,
        /// Upper half of the user.
        12 fsuid_high: u32,
        /// Group, for the file system.
        16 fsgid: u32,
        /// Upper half of the group.
        20 fsgid_high: u32,
        /// Supplementary group.
        24 suppgid: u32,
        /// Upper half of the supplementary group.
        28 suppgid_high: u32,
        /// The file.
        40 fid: Fid,
        /// Which attributes.
        56 valid: SetattrValid,
        /// Owner.
        64 uid: u32,
        /// Group.
        68 gid: u32,
        /// Size.
        72 size: u64,
        /// Blocks of 512 bytes.
        80 blocks: u64,
        /// Time of the last change of data.
        88 mtime: i64,
        /// Time of access.
        96 atime: i64,
        /// Time of the last change.
        104 ctime: i64,
        /// Flags of the inode.
        112 attr_flags: u32,
        /// Permissions.
        116 mode: u32,
        /// Further circumstances (C-123).
        120 bias: u32,
        /// Project.
        124 projid: u32,
    }

    /// Change of an extended attribute (C-136).
    pub struct SetxattrRecord("setxattr record", 136) {
        /// Which change.
        0 opcode: ReintOp,
        /// Capabilities.
        4 cap: u32,
        /// User, for the file system.
        8 fsuid: u32,
        /// Group, for the file system.
        16 fsgid: u32,
        /// Supplementary group for the first name.
        24 suppgid1: u32,
        /// Supplementary group for the second name.
        32 suppgid2: u32,
        /// The file.
        40 fid: Fid,
        /// Set or remove.
        72 valid: Valid,
        /// Time.
        80 time: i64,
        /// Length of the value.
        112 size: u32,
        /// 1: create alone, 2: replace alone.
        116 flags: u32,
    }
}

/// A change of metadata (C-111). All have the same length, and their opcode first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Creation or open.
    Create(CreateRecord),
    /// Change of names.
    Name(NameRecord),
    /// Change of attributes.
    Setattr(SetattrRecord),
    /// Change of an extended attribute.
    Setxattr(SetxattrRecord),
}

impl Record {
    /// Bytes of a record.
    pub const LEN: usize = 136;

    /// The record in a buffer.
    ///
    /// # Errors
    /// Another length than [`Self::LEN`], another opcode than those that a client sends.
    pub fn parse(order: ByteOrder, b: &[u8]) -> Result<Self, WireError> {
        let what = "record";
        if b.len() != Self::LEN {
            return Err(WireError::Size { what, need: Self::LEN, have: b.len() });
        }
        let opcode = ReintOp::get(order, b);
        Ok(match opcode {
            ReintOp::SETATTR => Self::Setattr(Layout::get(order, b)),
            ReintOp::CREATE | ReintOp::OPEN => Self::Create(Layout::get(order, b)),
            ReintOp::SETXATTR => Self::Setxattr(Layout::get(order, b)),
            ReintOp::LINK
            | ReintOp::UNLINK
            | ReintOp::RENAME
            | ReintOp::RMENTRY
            | ReintOp::MIGRATE => Self::Name(Layout::get(order, b)),
            ReintOp(other) => {
                return Err(WireError::Value { what, field: "opcode", value: other.into() });
            }
        })
    }

    /// Which change it is.
    pub const fn opcode(&self) -> ReintOp {
        match self {
            Self::Create(record) => record.head.opcode,
            Self::Name(record) => record.head.opcode,
            Self::Setattr(record) => record.opcode,
            Self::Setxattr(record) => record.opcode,
        }
    }

    /// The bytes of the record.
    pub fn to_bytes(&self, order: ByteOrder) -> Vec<u8> {
        match self {
            Self::Create(record) => record.to_bytes(order),
            Self::Name(record) => record.to_bytes(order),
            Self::Setattr(record) => record.to_bytes(order),
            Self::Setxattr(record) => record.to_bytes(order),
        }
    }
}
