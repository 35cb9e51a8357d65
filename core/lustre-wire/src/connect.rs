//! Connect data: what the two ends of a connection ask for and grant (P-21 … P-30).

use lnet_types::ByteOrder;

use crate::layout::{flags, layout};
use crate::{Layout, Msg, WireError};

flags! {
    /// First word of what is asked for or granted (P-23).
    pub struct ConnectFlags(u64) {
        /// Read-only client.
        RDONLY = 0x1, "RDONLY";
        /// `index` is set.
        INDEX = 0x2, "INDEX";
        /// The client is an MDT.
        MDS = 0x4, "MDS";
        /// The client keeps space promises; `grant` is set.
        GRANT = 0x8, "GRANT";
        /// The server takes locks for data requests itself.
        SRVLOCK = 0x10, "SRVLOCK";
        /// `version` is set.
        VERSION = 0x20, "VERSION";
        /// Lists of NIDs from the MGS.
        MGS_NIDLIST = 0x40, "MGS_NIDLIST";
        /// POSIX ACLs.
        ACL = 0x80, "ACL";
        /// Extended attributes of users.
        XATTR = 0x100, "XATTR";
        /// ACLs of more than 32 entries.
        LARGE_ACL = 0x200, "LARGE_ACL";
        /// `transno` is set.
        TRANSNO = 0x800, "TRANSNO";
        /// Locks on inode bits; `ibits_known` is set.
        IBITS = 0x1000, "IBITS";
        /// Write barriers.
        BARRIER = 0x2000, "BARRIER";
        /// Attributes by FID.
        ATTRFID = 0x4000, "ATTRFID";
        /// No open handle for devices.
        NODEVOH = 0x8000, "NODEVOH";
        /// `brw_size` is set.
        BRW_SIZE = 0x40000, "BRW_SIZE";
        /// Capabilities of the MDT, of old.
        MDS_CAPA = 0x100000, "MDS_CAPA";
        /// Capabilities of the OST, of old.
        OSS_CAPA = 0x200000, "OSS_CAPA";
        /// Several locks in one cancel.
        CANCELSET = 0x400000, "CANCELSET";
        /// Size on MDT, of old.
        SOM = 0x800000, "SOM";
        /// Adaptive timeouts.
        AT = 0x1000000, "AT";
        /// Lock caches sized by the server.
        LRU_RESIZE = 0x2000000, "LRU_RESIZE";
        /// MDT to MDT.
        MDS_MDS = 0x4000000, "MDS_MDS";
        /// A real client.
        REAL = 0x8000000, "REAL";
        /// Checksums of bulk data; `cksum_types` is set.
        CKSUM = 0x20000000, "CKSUM";
        /// Objects are named by FIDs.
        FID = 0x40000000, "FID";
        /// Recovery by versions.
        VBR = 0x80000000, "VBR";
        /// Layouts of version 3, with pools.
        LOV_V3 = 1 << 32, "LOV_V3";
        /// The client gives promises back.
        GRANT_SHRINK = 1 << 33, "GRANT_SHRINK";
        /// No reuse of orphaned object ids.
        SKIP_ORPHAN = 1 << 34, "SKIP_ORPHAN";
        /// `max_easize` is set.
        MAX_EASIZE = 1 << 35, "MAX_EASIZE";
        /// Protocol of release 2.0; required.
        FULL20 = 1 << 36, "FULL20";
        /// Locks on layouts.
        LAYOUTLOCK = 1 << 37, "LAYOUTLOCK";
        /// Directory hashes of 64 bits.
        HASH_64BIT = 1 << 38, "64BITHASH";
        /// `maxbytes` is set.
        MAXBYTES = 1 << 39, "MAXBYTES";
        /// Imperative recovery.
        IMP_RECOV = 1 << 40, "IMP_RECOV";
        /// Statistics by job.
        JOBSTATS = 1 << 41, "JOBSTATS";
        /// The server applies the umask.
        UMASK = 1 << 42, "UMASK";
        /// The client repeats after EINPROGRESS.
        EINPROGRESS = 1 << 43, "EINPROGRESS";
        /// `grant_blkbits` … `grant_max_blks` are set.
        GRANT_PARAM = 1 << 44, "GRANT_PARAM";
        /// Priority of requests under a waiting lock.
        HPREQ_CHECK1 = 1 << 45, "HPREQ_CHECK1";
        /// The kind of lock value block is named.
        LVB_TYPE = 1 << 46, "LVB_TYPE";
        /// Times in nanoseconds.
        NANOSEC_TIME = 1 << 47, "NANOSEC_TIME";
        /// A connection without record.
        LIGHTWEIGHT = 1 << 48, "LIGHTWEIGHT";
        /// Data inside of requests and replies.
        SHORTIO = 1 << 49, "SHORTIO";
        /// Pings may be left out.
        PINGLESS = 1 << 50, "PINGLESS";
        /// Deadlocks of file locks are found.
        FLOCK_DEAD = 1 << 51, "FLOCK_DEAD";
        /// The reply of an open says that it made the layout.
        DISP_STRIPE = 1 << 52, "DISP_STRIPE";
        /// Open by FID.
        OPEN_BY_FID = 1 << 53, "OPEN_BY_FID";
        /// Online check.
        LFSCK = 1 << 54, "LFSCK";
        /// Unlink in a close.
        UNLINK_CLOSE = 1 << 56, "UNLINK_CLOSE";
        /// Several modifying requests at once; `maxmodrpcs` is set.
        MULTIMODRPCS = 1 << 57, "MULTIMODRPCS";
        /// Striped directories.
        DIR_STRIPE = 1 << 58, "DIR_STRIPE";
        /// Mount of a subdirectory.
        SUBTREE = 1 << 59, "SUBTREE";
        /// Match bits of bulk data in the body.
        BULK_MBITS = 1 << 61, "BULK_MBITS";
        /// Packed attributes of objects.
        OBDOPACK = 1 << 62, "OBDOPACK";
        /// `flags2` is set.
        FLAGS2 = 1 << 63, "FLAGS2";
    }

    /// Second word, valid with [`ConnectFlags::FLAGS2`] (P-24).
    pub struct ConnectFlags2(u64) {
        /// Security context of new files.
        FILE_SECCTX = 1 << 0, "FILE_SECCTX";
        /// Locks asked for ahead.
        LOCKAHEAD = 1 << 1, "LOCKAHEAD";
        /// Migration of striped directories.
        DIR_MIGRATE = 1 << 2, "DIR_MIGRATE";
        /// Sum of space over all targets.
        SUM_STATFS = 1 << 3, "SUM_STATFS";
        /// Several stripes on one OST.
        OVERSTRIPING = 1 << 4, "OVERSTRIPING";
        /// Mirrored files.
        FLR = 1 << 5, "FLR";
        /// Intents of a write-back cache.
        WBC_INTENTS = 1 << 6, "WBC_INTENTS";
        /// Locks lose bits without a cancel.
        LOCK_CONVERT = 1 << 7, "LOCK_CONVERT";
        /// Archives by array.
        ARCHIVE_ID_ARRAY = 1 << 8, "ARCHIVE_ID_ARRAY";
        /// Each request has its own xid.
        INC_XID = 1 << 9, "INC_XID";
        /// The SELinux policy is checked.
        SELINUX_POLICY = 1 << 10, "SELINUX_POLICY";
        /// Lazy size on MDT.
        LSOM = 1 << 11, "LSOM";
        /// Persistent client cache.
        PCC = 1 << 12, "PCC";
        /// Directory hash for stable placement.
        CRUSH = 1 << 13, "CRUSH";
        /// Data on MDT is discarded in the background.
        ASYNC_DISCARD = 1 << 14, "ASYNC_DISCARD";
        /// Encrypted files.
        ENCRYPT = 1 << 15, "ENCRYPT";
        /// Mapped FIDs.
        FIDMAP = 1 << 16, "FIDMAP";
        /// FID of the parent with attributes.
        GETATTR_PFID = 1 << 17, "GETATTR_PFID";
        /// Seek for data and holes.
        LSEEK = 1 << 18, "LSEEK";
        /// Lock value block for data on MDT.
        DOM_LVB = 1 << 19, "DOM_LVB";
        /// Replies are matched by `mbits`.
        REP_MBITS = 1 << 20, "REP_MBITS";
        /// Lock modes are converted.
        MODE_CONVERT = 1 << 21, "MODE_CONVERT";
        /// Batched requests.
        BATCH_RPC = 1 << 22, "BATCH_RPC";
        /// Read-only client cache.
        PCCRO = 1 << 23, "PCCRO";
        /// Type of NIDs in target tables.
        MNE_TYPE = 1 << 24, "MNE_TYPE";
        /// Contention is reported.
        LOCK_CONTENTION = 1 << 25, "LOCK_CONTENTION";
        /// Open with its lock in one step.
        ATOMIC_OPEN_LOCK = 1 << 26, "ATOMIC_OPEN_LOCK";
        /// Encrypted names.
        ENCRYPT_NAME = 1 << 27, "ENCRYPT_NAME";
        /// Inherited default layouts of directories.
        DMV_IMP_INHERIT = 1 << 29, "DMV_IMP_INHERIT";
        /// Paths of encrypted files.
        ENCRYPT_FID2PATH = 1 << 30, "ENCRYPT_FID2PATH";
        /// Creates are replayed.
        REPLAY_CREATE = 1 << 31, "REPLAY_CREATE";
        /// NIDs of 16 bytes.
        LARGE_NID = 1 << 32, "LARGE_NID";
        /// Compressed files.
        COMPRESS = 1 << 33, "COMPRESS";
        /// Direct I/O off page borders.
        UNALIGNED_DIO = 1 << 34, "UNALIGNED_DIO";
        /// `conn_policy` is set.
        CONN_POLICY = 1 << 35, "CONN_POLICY";
        /// Sparse reads.
        SPARSE = 1 << 36, "SPARSE";
        /// Mirror ids stay.
        MIRROR_ID_FIX = 1 << 37, "MIRROR_ID_FIX";
        /// Layouts are updated.
        UPDATE_LAYOUT = 1 << 38, "UPDATE_LAYOUT";
        /// A directory's first pages with its open.
        READDIR_OPEN = 1 << 39, "READDIR_OPEN";
        /// Erasure coding.
        FLR_EC = 1 << 40, "FLR_EC";
        /// Immediate mirrors.
        FLR_IMMED_MIRROR = 1 << 41, "FLR_IMMED_MIRROR";
        /// No append.
        NO_APPEND = 1 << 42, "NO_APPEND";
        /// Erasure coding with writes.
        FLR_EC_WR = 1 << 43, "FLR_EC_WR";
        /// Performance statistics.
        PERFSTATS = 1 << 44, "PERFSTATS";
    }

    /// Kinds of checksums of bulk data (P-30).
    pub struct ChecksumKinds(u32) {
        /// CRC-32.
        CRC32 = 1, "crc32";
        /// Adler-32.
        ADLER = 2, "adler";
        /// CRC-32C.
        CRC32C = 4, "crc32c";
        /// T10 with IP checksums over 512 bytes.
        T10IP512 = 0x10, "t10ip512";
        /// T10 with IP checksums over 4 KiB.
        T10IP4K = 0x20, "t10ip4k";
        /// T10 with CRC over 512 bytes.
        T10CRC512 = 0x40, "t10crc512";
        /// T10 with CRC over 4 KiB.
        T10CRC4K = 0x80, "t10crc4k";
    }
}

layout! {
    /// Connect data. A field that a flag announces means nothing without the flag (P-22).
    pub struct ConnectData("connect data", 192) {
        /// What is asked for or granted.
        0 flags: ConnectFlags,
        /// Version of the sender: major, minor, patch and fix, a byte each.
        8 version: u32,
        /// Space promise: bytes that the client holds or requests, bytes granted.
        12 grant: u32,
        /// Index of the target.
        16 index: u32,
        /// Largest bulk, bytes.
        20 brw_size: u32,
        /// Lock bits that are understood.
        24 ibits_known: u64,
        /// Client: log2 of its page. Server: log2 of its block.
        32 grant_blkbits: u8,
        /// Server: log2 of the space of an inode.
        33 grant_inobits: u8,
        /// Server: overhead of an extent, KiB.
        34 grant_tax_kb: u16,
        /// Server: most blocks of an extent.
        36 grant_max_blks: u32,
        /// Lowest transaction that the client will replay.
        40 transno: u64,
        /// Group of an MDT on an OST.
        48 group: u32,
        /// Kinds of checksums.
        52 cksum_types: ChecksumKinds,
        /// Largest extended attribute, bytes.
        56 max_easize: u32,
        /// Server: number of its start.
        60 instance: u32,
        /// Largest object, bytes.
        64 maxbytes: u64,
        /// Modifying requests at once.
        72 maxmodrpcs: u16,
        /// Policy of the connection.
        74 conn_policy: u8,
        /// What else is asked for or granted.
        80 flags2: ConnectFlags2,
        /// Kinds of compression.
        88 compr_type: u64,
    }
}

impl ConnectData {
    /// The connect data in a buffer of a message. There is no check of its size (P-19): of a shorter
    /// structure the rest is 0, of a longer one the rest is ignored.
    ///
    /// # Errors
    /// No such buffer.
    pub fn of(msg: &Msg<'_>, index: usize) -> Result<Self, WireError> {
        Ok(Self::get(msg.order, msg.required(Self::NAME, index)?))
    }

    /// The reply to this request from a server that supports `flags` and `flags2`: the flags that
    /// both know, everything else as it was (P-26).
    #[must_use]
    pub fn masked(mut self, flags: ConnectFlags, flags2: ConnectFlags2) -> Self {
        self.flags &= flags;
        self.flags2 &= flags2;
        self
    }

    /// The first `len` bytes: a reply is no longer than its request.
    pub fn cut(&self, order: ByteOrder, len: usize) -> Vec<u8> {
        let mut bytes = self.to_bytes(order);
        bytes.truncate(len);
        bytes
    }
}
