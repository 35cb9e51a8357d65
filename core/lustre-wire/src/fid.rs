//! Names of files, objects, sequences (L-71, C-35, C-39).

use core::fmt;

use crate::layout::{codes, flags, layout};

layout! {
    /// The name of a file or object.
    pub struct Fid("FID", 16) {
        /// Sequence.
        0 seq: u64,
        /// Number in the sequence.
        8 oid: u32,
        /// Version, 0.
        12 ver: u32,
    }

    /// The name of an object: a FID, or a number of old, whose other fields are 0.
    pub struct ObjectId("object id", 16) {
        /// Sequence of a FID; number of old.
        0 first: u64,
        /// Number in the sequence, not 0 in a FID.
        8 oid: u32,
        /// Version of a FID.
        12 ver: u32,
    }

    /// A range of sequences, and the target that has them.
    pub struct SeqRange("sequence range", 24) {
        /// The first sequence.
        0 start: u64,
        /// The one behind the last.
        8 end: u64,
        /// Index of the target.
        16 index: u32,
        /// Kind of the target.
        20 flags: RangeKind,
    }
}

codes! {
    /// Kind of the target of a range.
    pub struct RangeKind(u32) {
        /// A metadata target.
        MDT = 0 "MDT",
        /// An object target.
        OST = 1 "OST",
        /// Any.
        ANY = 3 "any",
    }

    /// What is wanted of a range: of SEQ_QUERY, a share of the super-sequence or a sequence; of
    /// FLD_QUERY, its location.
    pub struct SeqOp(u32) {
        /// A super-sequence, for a server.
        SUPER = 0 "super",
        /// A sequence, for a client or for the objects of an MDT.
        META = 1 "meta",
        /// FLD_QUERY: the target of a sequence.
        LOOKUP = 2 "lookup",
    }
}

flags! {
    /// Which attributes a structure has, or is to have (L-69, C-45).
    pub struct Valid(u64) {
        /// Name.
        ID = 0x1, "ID";
        /// Time of access.
        ATIME = 0x2, "ATIME";
        /// Time of the last change of data.
        MTIME = 0x4, "MTIME";
        /// Time of the last change.
        CTIME = 0x8, "CTIME";
        /// Size.
        SIZE = 0x10, "SIZE";
        /// Blocks of 512 bytes.
        BLOCKS = 0x20, "BLOCKS";
        /// Size of a block.
        BLKSZ = 0x40, "BLKSZ";
        /// Permissions.
        MODE = 0x80, "MODE";
        /// Type of the file.
        TYPE = 0x100, "TYPE";
        /// Owner.
        UID = 0x200, "UID";
        /// Group.
        GID = 0x400, "GID";
        /// Flags.
        FLAGS = 0x800, "FLAGS";
        /// Size of the data on an MDT.
        DOM_SIZE = 0x1000, "DOM_SIZE";
        /// Number of links.
        NLINK = 0x2000, "NLINK";
        /// Parent.
        PARENT = 0x4000, "PARENT";
        /// Version of the layout.
        LAYOUT_VERSION = 0x8000, "LAYOUT_VERSION";
        /// Device number.
        RDEV = 0x1_0000, "RDEV";
        /// Layout of a file.
        EASIZE = 0x2_0000, "EASIZE";
        /// Text of a symbolic link.
        LINKNAME = 0x4_0000, "LINKNAME";
        /// Lock handle.
        HANDLE = 0x8_0000, "HANDLE";
        /// Checksum of the data.
        CKSUM = 0x10_0000, "CKSUM";
        /// Project's quota is exceeded.
        PRJQUOTA = 0x40_0000, "PRJQUOTA";
        /// Sequence.
        GROUP = 0x100_0000, "GROUP";
        /// FID.
        FID = 0x200_0000, "FID";
        /// Space promise.
        GRANT = 0x800_0000, "GRANT";
        /// Layout of a directory.
        DIREA = 0x1000_0000, "DIREA";
        /// User's quota is exceeded.
        USRQUOTA = 0x2000_0000, "USRQUOTA";
        /// Group's quota is exceeded.
        GRPQUOTA = 0x4000_0000, "GRPQUOTA";
        /// Largest layout.
        MODEASIZE = 0x8000_0000, "MODEASIZE";
        /// The object is on another MDT.
        MDS = 1 << 32, "MDS";
        /// Layout of a striped directory.
        MEA = 1 << 34, "MEA";
        /// State of a restore.
        TSTATE = 1 << 35, "TSTATE";
        /// One extended attribute.
        XATTR = 1 << 36, "XATTR";
        /// Names of extended attributes.
        XATTRLS = 1 << 37, "XATTRLS";
        /// Removal of an extended attribute.
        XATTRRM = 1 << 38, "XATTRRM";
        /// ACL.
        ACL = 1 << 39, "ACL";
        /// Space of the whole file system.
        AGSTATFS = 1 << 40, "AGSTATFS";
        /// The first name is that of the object itself.
        CROSSREF = 1 << 44, "CROSSREF";
        /// Of old.
        GETATTRLOCK = 1 << 45, "GETATTRLOCK";
        /// Number of objects.
        OBJCOUNT = 1 << 46, "OBJCOUNT";
        /// Version of the data.
        DATAVERSION = 1 << 52, "DATAVERSION";
        /// The close has done what it was asked for.
        CLOSE_INTENT_EXECED = 1 << 53, "CLOSE_INTENT_EXECED";
        /// Default layout of a directory.
        DEFAULT_MEA = 1 << 54, "DEFAULT_MEA";
        /// Layout of an object's file.
        OSTLAYOUT = 1 << 55, "OSTLAYOUT";
        /// Project.
        PROJID = 1 << 56, "PROJID";
        /// Security attribute.
        SECCTX = 1 << 57, "SECCTX";
        /// Size is a hint.
        LAZYSIZE = 1 << 58, "LAZYSIZE";
        /// Blocks are a hint.
        LAZYBLOCKS = 1 << 59, "LAZYBLOCKS";
        /// Time of birth.
        BTIME = 1 << 60, "BTIME";
        /// Encryption context.
        ENCCTX = 1 << 61, "ENCCTX";
        /// The name is a hash.
        NAMEHASH = 1 << 62, "NAMEHASH";
    }
}

impl ObjectId {
    /// The name that `fid` is.
    pub const fn of(fid: Fid) -> Self {
        Self { first: fid.seq, oid: fid.oid, ver: fid.ver }
    }

    /// The name of old with this number.
    pub const fn old(id: u64) -> Self {
        Self { first: id, oid: 0, ver: 0 }
    }

    /// The FID, unless it is a name of old.
    pub const fn fid(self) -> Option<Fid> {
        if self.oid == 0 && self.ver == 0 {
            return None;
        }
        Some(Fid { seq: self.first, oid: self.oid, ver: self.ver })
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}:{:#x}]", self.seq, self.oid, self.ver)
    }
}

impl fmt::Display for SeqRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}-{:#x} index={} flags={}", self.start, self.end, self.index, self.flags.0)
    }
}
