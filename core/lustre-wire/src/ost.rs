//! Objects: attributes, ranges, space (L-68 … L-75).

use crate::fid::{ObjectId, Valid};
use crate::layout::{Text, flags, layout};

flags! {
    /// What else a request for an object says (L-70). The kind of checksum stands within,
    /// [`ObdoFlags::checksum`].
    pub struct ObdoFlags(u32) {
        /// Create: objects beyond the last one that the MDT uses go.
        DELORPHAN = 0x4, "DELORPHAN";
        /// Create: a replay.
        RECREATE = 0x20, "RECREATE";
        /// No more cached writes on behalf of the project.
        NO_PRJQUOTA = 0x80, "NO_PRJQUOTA";
        /// No more cached writes on behalf of the user.
        NO_USRQUOTA = 0x100, "NO_USRQUOTA";
        /// No more cached writes on behalf of the group.
        NO_GRPQUOTA = 0x200, "NO_GRPQUOTA";
        /// The server takes the lock.
        SRVLOCK = 0x800, "SRVLOCK";
        /// A mapped file.
        MMAP = 0x4_0000, "MMAP";
        /// Promises are given back.
        SHRINK_GRANT = 0x2_0000, "SHRINK_GRANT";
        /// The data request has been sent before.
        RECOV_RESEND = 0x8_0000, "RECOV_RESEND";
        /// The client blocks when space runs out.
        NOSPC_BLK = 0x10_0000, "NOSPC_BLK";
        /// Data of the object is written back.
        FLUSH = 0x20_0000, "FLUSH";
        /// Data is inside of the message.
        SHORT_IO = 0x40_0000, "SHORT_IO";
        /// The caller is a squashed root.
        ROOT_SQUASH = 0x80_0000, "ROOT_SQUASH";
    }

    /// Flags of a range (L-74).
    pub struct NiobufFlags(u32) {
        /// Read.
        READ = 0x1, "READ";
        /// Write.
        WRITE = 0x2, "WRITE";
        /// No delay.
        NDELAY = 0x4, "NDELAY";
        /// The transaction is committed before the reply.
        SYNC = 0x8, "SYNC";
        /// Check alone.
        CHECK = 0x10, "CHECK";
        /// The space was promised.
        FROM_GRANT = 0x20, "FROM_GRANT";
        /// The space is promised (set by the server).
        GRANTED = 0x40, "GRANTED";
        /// Direct I/O.
        NOCACHE = 0x80, "NOCACHE";
        /// No quota.
        NOQUOTA = 0x100, "NOQUOTA";
        /// The server takes the lock.
        SRVLOCK = 0x200, "SRVLOCK";
        /// The transaction may be committed later.
        ASYNC = 0x400, "ASYNC";
        /// Written to free memory.
        MEMALLOC = 0x800, "MEMALLOC";
        /// Beyond the user's quota.
        OVER_USRQUOTA = 0x1000, "OVER_USRQUOTA";
        /// Beyond the group's quota.
        OVER_GRPQUOTA = 0x2000, "OVER_GRPQUOTA";
        /// A commit soon is asked for.
        SOFT_SYNC = 0x4000, "SOFT_SYNC";
        /// Beyond the project's quota.
        OVER_PRJQUOTA = 0x8000, "OVER_PRJQUOTA";
        /// The project's quota holds for root.
        ROOT_PRJQUOTA = 0x1_0000, "ROOT_PRJQUOTA";
        /// The caller is privileged.
        SYS_RESOURCE = 0x4_0000, "SYS_RESOURCE";
        /// Compressed data.
        COMPRESSED = 0x8_0000, "COMPRESSED";
        /// Done.
        DONE = 0x4000_0000, "DONE";
        /// Of the sender alone.
        LOCAL = 0x8000_0000, "LOCAL";
    }

    /// State of a target (L-75).
    pub struct StatfsState(u32) {
        /// Degraded storage.
        DEGRADED = 0x1, "DEGRADED";
        /// Read-only.
        READONLY = 0x2, "READONLY";
        /// No new objects.
        NOCREATE = 0x4, "NOCREATE";
        /// Out of space.
        ENOSPC = 0x20, "ENOSPC";
        /// Out of inodes.
        ENOINO = 0x40, "ENOINO";
        /// Sum over all targets.
        SUM = 0x100, "SUM";
        /// Storage that does not rotate.
        NONROT = 0x200, "NONROT";
    }
}

/// Bits of [`ObdoFlags`] that hold the kind of checksum as a number.
const CHECKSUM_MASK: u32 = 0xF000;

impl ObdoFlags {
    /// The kind of checksum: 0 for none named, 1 CRC-32, 2 Adler-32, 4 CRC-32C, 5 … 8 the T10 kinds.
    pub const fn checksum(self) -> u8 {
        ((self.bits() & CHECKSUM_MASK) >> 12) as u8
    }

    /// The flags with another kind of checksum; numbers above 15 lose their higher bits.
    #[must_use]
    pub const fn with_checksum(self, kind: u8) -> Self {
        let kind = (kind as u32) << 12 & CHECKSUM_MASK;
        Self::from_bits_retain(self.bits() & !CHECKSUM_MASK | kind)
    }

    /// The flags without the kind of checksum.
    #[must_use]
    pub const fn without_checksum(self) -> Self {
        self.with_checksum(0)
    }
}

/// The name of a kind of checksum.
pub const fn checksum_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        1 => "crc32",
        2 => "adler",
        4 => "crc32c",
        5 => "t10ip512",
        6 => "t10ip4k",
        7 => "t10crc512",
        8 => "t10crc4k",
        _ => return None,
    })
}

layout! {
    /// Attributes of an object, with what requests for it say.
    pub struct Obdo("ost body", 208) {
        /// Which fields are set.
        0 valid: Valid,
        /// The object.
        8 id: ObjectId,
        /// Sequence of the parent.
        24 parent_seq: u64,
        /// Size; punch: the new end.
        32 size: u64,
        /// Time of the last change of data.
        40 mtime: i64,
        /// Time of access.
        48 atime: i64,
        /// Time of the last change.
        56 ctime: i64,
        /// Blocks of 512 bytes; data requests: dirty bytes; punch: end of what is removed.
        64 blocks: u64,
        /// Space promise: held, or given.
        72 grant: u64,
        /// Size of a block.
        80 blksize: u32,
        /// Permissions; data requests: bytes that the client wants promised.
        84 mode: u32,
        /// Owner.
        88 uid: u32,
        /// Group.
        92 gid: u32,
        /// Flags.
        96 flags: ObdoFlags,
        /// Links; data requests: checksum of the data.
        100 nlink: u32,
        /// Number of the parent in its sequence.
        104 parent_oid: u32,
        /// Destroy: number of objects; data requests: bytes that are no longer promised.
        108 misc: u32,
        /// Epoch, of old.
        112 ioepoch: u64,
        /// Which stripe of its file the object is.
        120 stripe_index: u32,
        /// Version of the parent.
        124 parent_ver: u32,
        /// Lock.
        128 handle: u64,
        /// Layout of the file.
        136 layout: StripeInfo,
        /// Version of the layout.
        164 layout_version: u32,
        /// Upper half of the owner.
        168 uid_high: u32,
        /// Upper half of the group.
        172 gid_high: u32,
        /// Version of the data; data requests: promised bytes that are used.
        176 data_version: u64,
        /// Project.
        184 projid: u32,
    }

    /// How the file of an object is striped.
    pub struct StripeInfo("stripe info", 28) {
        /// Bytes of a stripe.
        0 stripe_size: u32,
        /// Number of stripes.
        4 stripe_count: u32,
        /// Where the component begins.
        8 start: u64,
        /// Where the component ends.
        16 end: u64,
        /// Component.
        24 id: u32,
    }

    /// The object of a data request.
    pub struct IoObj("ioobj", 24) {
        /// The object.
        0 id: ObjectId,
        /// Largest number of descriptors of the connection less one, in the upper half.
        16 max_brw: u32,
        /// Number of ranges.
        20 count: u32,
    }

    /// A range of a data request.
    pub struct Niobuf("niobuf", 16) {
        /// Where it begins.
        0 offset: u64,
        /// Bytes.
        8 len: u32,
        /// Flags.
        12 flags: NiobufFlags,
    }

    /// Space of a target.
    pub struct Statfs("statfs", 144) {
        /// Kind of storage.
        0 kind: u64,
        /// Blocks.
        8 blocks: u64,
        /// Free blocks.
        16 bfree: u64,
        /// Free blocks for users.
        24 bavail: u64,
        /// Inodes.
        32 files: u64,
        /// Free inodes.
        40 ffree: u64,
        /// Name of the storage.
        48 fsid: Text<40>,
        /// Size of a block.
        88 bsize: u32,
        /// Longest name.
        92 namelen: u32,
        /// Largest object.
        96 maxbytes: u64,
        /// State.
        104 state: StatfsState,
        /// Objects that were made ahead.
        108 fprecreated: u32,
        /// Promised blocks.
        112 granted: u32,
    }
}
