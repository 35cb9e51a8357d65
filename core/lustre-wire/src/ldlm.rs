//! Locks: what is asked for, granted, called back (L-7 … L-19).

use core::fmt;

use lnet_types::ByteOrder;
use smallvec::SmallVec;

use crate::fid::{Fid, ObjectId};
use crate::layout::{codes, flags, layout};
use crate::{Layout, Msg, WireError};

codes! {
    /// Kind of a lock.
    pub struct LockKind(u32) {
        /// The resource as a whole.
        PLAIN = 10 "PLAIN",
        /// A range of bytes.
        EXTENT = 11 "EXTENT",
        /// A lock of a file's user.
        FLOCK = 12 "FLOCK",
        /// Parts of an inode.
        IBITS = 13 "IBITS",
    }

    /// Mode of a lock.
    pub struct LockMode(u32) {
        /// None.
        NONE = 0 "-",
        /// Exclusive.
        EX = 1 "EX",
        /// Protected write.
        PW = 2 "PW",
        /// Protected read.
        PR = 4 "PR",
        /// Concurrent write.
        CW = 8 "CW",
        /// Concurrent read.
        CR = 16 "CR",
        /// Null.
        NL = 32 "NL",
        /// Group.
        GROUP = 64 "GROUP",
        /// Commit on sharing.
        COS = 128 "COS",
        /// Of a transaction.
        TXN = 256 "TXN",
    }
}

flags! {
    /// Flags of a lock on the wire (L-16). A bit may mean another thing in a request than in a reply.
    pub struct LockFlags(u32) {
        /// Reply: mode, range or resource differ from those that were asked for.
        LOCK_CHANGED = 0x1, "LOCK_CHANGED";
        /// Reply: waits behind granted locks. Replay: was granted.
        BLOCK_GRANTED = 0x2, "BLOCK_GRANTED";
        /// Reply: waits behind waiting locks. Replay: was waiting.
        BLOCK_WAIT = 0x8, "BLOCK_WAIT";
        /// Request: never wait.
        SPECULATIVE = 0x10, "SPECULATIVE";
        /// Reply, completion: a blocking callback is contained.
        AST_SENT = 0x20, "AST_SENT";
        /// Reply: the resource is contended.
        CONTENTION = 0x40, "CONTENTION";
        /// Request: a replay.
        REPLAY = 0x100, "REPLAY";
        /// Request: the intent alone.
        INTENT_ONLY = 0x200, "INTENT_ONLY";
        /// Request: an intent is contained.
        HAS_INTENT = 0x1000, "HAS_INTENT";
        /// Callback: a deadlock of file locks.
        FLOCK_DEADLOCK = 0x8000, "FLOCK_DEADLOCK";
        /// Callback: dirty data under the lock may be dropped.
        DISCARD_DATA = 0x1_0000, "DISCARD_DATA";
        /// Reply: wait without own timeout.
        NO_TIMEOUT = 0x2_0000, "NO_TIMEOUT";
        /// Request: fail instead of waiting.
        BLOCK_NOWAIT = 0x4_0000, "BLOCK_NOWAIT";
        /// Request: test alone.
        TEST_LOCK = 0x8_0000, "TEST_LOCK";
        /// Of one node alone; refused in requests.
        MATCH_LOCK = 0x10_0000, "MATCH_LOCK";
        /// Request: the server may drop the lock without waiting for a cancel.
        CANCEL_ON_BLOCK = 0x80_0000, "CANCEL_ON_BLOCK";
        /// Of one node alone.
        CONVERTING = 0x200_0000, "CONVERTING";
        /// Request: the range does not grow.
        NO_EXPANSION = 0x2000_0000, "NO_EXPANSION";
        /// Request: fail on contention.
        DENY_ON_CONTENTION = 0x4000_0000, "DENY_ON_CONTENTION";
        /// Request: holders may drop data when they cancel.
        AST_DISCARD_DATA = 0x8000_0000, "AST_DISCARD_DATA";
    }

    /// Parts of an inode (L-9).
    pub struct InodeBits(u64) {
        /// Name and existence.
        LOOKUP = 0x1, "LOOKUP";
        /// Size, times, links.
        UPDATE = 0x2, "UPDATE";
        /// An open handle.
        OPEN = 0x4, "OPEN";
        /// Layout.
        LAYOUT = 0x8, "LAYOUT";
        /// Permissions.
        PERM = 0x10, "PERM";
        /// Extended attributes.
        XATTR = 0x20, "XATTR";
        /// Data on the MDT.
        DOM = 0x40, "DOM";
    }

    /// What a lock request asks for beside the lock (L-15).
    pub struct Intent(u64) {
        /// Open.
        OPEN = 0x1, "OPEN";
        /// Create.
        CREAT = 0x2, "CREAT";
        /// Attributes.
        GETATTR = 0x8, "GETATTR";
        /// Lookup.
        LOOKUP = 0x10, "LOOKUP";
        /// Extended attributes.
        GETXATTR = 0x80, "GETXATTR";
        /// Layout.
        LAYOUT = 0x400, "LAYOUT";
        /// Quota.
        QUOTA_DQACQ = 0x800, "QUOTA_DQACQ";
        /// Connection for quota.
        QUOTA_CONN = 0x1000, "QUOTA_CONN";
        /// Size of an object.
        GLIMPSE = 0x4000, "GLIMPSE";
        /// Data.
        BRW = 0x8000, "BRW";
    }
}

/// The end of a range that goes to the end of the file.
pub const END_OF_FILE: u64 = u64::MAX;

layout! {
    /// What is locked (L-7).
    pub struct ResourceName("resource name", 32) {
        /// The words of the name.
        0 words: [u64; 4],
    }

    /// What of the resource is locked, as words whose meaning depends on the kind of lock:
    /// [`LockDesc::policy`].
    pub struct PolicyWords("lock policy", 32) {
        /// Start; bits.
        0 start: u64,
        /// End; bits to be tried, or to be cancelled.
        8 end: u64,
        /// Group; owner of a user's lock.
        16 gid: u64,
        /// Initiator; process of a user's lock.
        28 who: u32,
    }

    /// A lock (L-11).
    pub struct LockDesc("lock", 80) {
        /// Kind.
        0 kind: LockKind,
        /// What is locked.
        8 resource: ResourceName,
        /// Mode that is asked for.
        40 requested: LockMode,
        /// Mode that is granted.
        44 granted: LockMode,
        /// What of the resource.
        48 policy: PolicyWords,
    }

    /// Reply to a lock request (L-14).
    pub struct LockReply("lock reply", 112) {
        /// Flags.
        0 flags: LockFlags,
        /// The lock.
        8 desc: LockDesc,
        /// Server's cookie.
        88 handle: u64,
        /// What the intent found ([`Disposition`]).
        96 policy_res1: u64,
        /// Result of the intent.
        104 policy_res2: u64,
    }

    /// Attributes of an object, which come with its lock (L-18).
    pub struct Lvb("lock value block", 56) {
        /// Size.
        0 size: u64,
        /// Time of the last change of data.
        8 mtime: i64,
        /// Time of access.
        16 atime: i64,
        /// Time of the last change.
        24 ctime: i64,
        /// Blocks of 512 bytes.
        32 blocks: u64,
        /// Nanoseconds of `mtime`.
        40 mtime_ns: u32,
        /// Nanoseconds of `atime`.
        44 atime_ns: u32,
        /// Nanoseconds of `ctime`.
        48 ctime_ns: u32,
    }

    /// What a glimpse of a quota lock says (L-19).
    pub struct QuotaDescriptor("glimpse of quota", 64) {
        /// Whose quota.
        0 id: Fid,
        /// Flags.
        16 flags: u64,
        /// Version.
        24 version: u64,
        /// Hard limit.
        32 hard: u64,
        /// Soft limit.
        40 soft: u64,
        /// Time.
        48 time: u64,
    }

    /// What a glimpse of a barrier says (L-19).
    pub struct BarrierDescriptor("glimpse of barrier", 16) {
        /// Status.
        0 status: u32,
        /// Timeout.
        4 timeout: u32,
    }

    /// The range for which a layout is asked (C-185).
    pub struct LayoutIntent("layout intent", 24) {
        /// What for.
        0 opcode: LayoutOp,
        /// Flags.
        4 flags: u32,
        /// Where the range begins.
        8 start: u64,
        /// Where it ends.
        16 end: u64,
    }
}

codes! {
    /// What a layout is asked for (C-185).
    pub struct LayoutOp(u32) {
        /// To look at it.
        ACCESS = 0 "ACCESS",
        /// To read.
        READ = 1 "READ",
        /// To write: what is missing is made.
        WRITE = 2 "WRITE",
        /// For the size.
        GLIMPSE = 3 "GLIMPSE",
        /// To truncate.
        TRUNC = 4 "TRUNC",
        /// To release the data.
        RELEASE = 5 "RELEASE",
        /// To restore the data.
        RESTORE = 6 "RESTORE",
        /// To set the read-only cache.
        PCCRO_SET = 7 "PCCRO_SET",
        /// To clear it.
        PCCRO_CLEAR = 8 "PCCRO_CLEAR",
        /// To change it.
        CHANGE = 9 "CHANGE",
    }
}

flags! {
    /// What an intent found (C-62).
    pub struct Disposition(u64) {
        /// It was executed.
        EXECUTED = 0x1, "EXECUTED";
        /// The name was looked up.
        LOOKED_UP = 0x2, "LOOKED_UP";
        /// The name does not exist.
        NEGATIVE = 0x4, "NEGATIVE";
        /// The name exists.
        POSITIVE = 0x8, "POSITIVE";
        /// A file was created.
        CREATED = 0x10, "CREATED";
        /// The file was opened.
        OPENED = 0x20, "OPENED";
        /// An open lock came with it.
        OPEN_LOCK = 0x200_0000, "OPEN_LOCK";
        /// A lease was given.
        LEASE = 0x400_0000, "LEASE";
        /// The open made the layout.
        LAYOUT_MADE = 0x800_0000, "LAYOUT_MADE";
        /// The open was denied.
        DENIED = 0x1000_0000, "DENIED";
    }
}

impl Lvb {
    /// Bytes without the nanoseconds: what is sent if their kind was not agreed on.
    pub const LEN_SHORT: usize = 40;

    /// The block in a buffer; of a short one the nanoseconds are 0.
    ///
    /// # Errors
    /// A buffer that is neither as long as a block nor as a short one.
    pub fn parse_either(order: ByteOrder, b: &[u8]) -> Result<Self, WireError> {
        if b.len() != Self::LEN && b.len() != Self::LEN_SHORT {
            return Err(WireError::Size { what: Self::NAME, need: Self::LEN, have: b.len() });
        }
        Ok(Self::get(order, b))
    }

    /// The errno, negative, that stands in place of the attributes (L-18).
    pub const fn error(&self) -> Option<i32> {
        if self.blocks >> 32 == 0xFFBA_DBAD { Some(self.blocks as u32 as i32) } else { None }
    }
}

/// What of a resource is locked (L-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All of it.
    Plain,
    /// A range of bytes, the end included.
    Extent {
        /// First byte.
        start: u64,
        /// Last byte, or [`END_OF_FILE`].
        end: u64,
        /// Group.
        gid: u64,
    },
    /// Parts of an inode.
    Ibits {
        /// The parts.
        bits: InodeBits,
        /// Parts that are nice to have; in callbacks those to be cancelled.
        try_bits: InodeBits,
        /// Group.
        gid: u64,
        /// Initiator.
        initiator: u32,
    },
    /// A lock of a file's user.
    Flock {
        /// First byte.
        start: u64,
        /// Last byte.
        end: u64,
        /// Owner.
        owner: u64,
        /// Process.
        pid: u32,
    },
}

impl Policy {
    /// The words on the wire.
    pub const fn words(self) -> PolicyWords {
        let (start, end, gid, who) = match self {
            Self::Plain => (0, 0, 0, 0),
            Self::Extent { start, end, gid } => (start, end, gid, 0),
            Self::Ibits { bits, try_bits, gid, initiator } => {
                (bits.bits(), try_bits.bits(), gid, initiator)
            }
            Self::Flock { start, end, owner, pid } => (start, end, owner, pid),
        };
        PolicyWords { start, end, gid, who }
    }
}

impl LockDesc {
    /// What of the resource is locked; nothing for a kind that is not known, as in a cancel.
    pub const fn policy(&self) -> Option<Policy> {
        let PolicyWords { start, end, gid, who } = self.policy;
        Some(match self.kind {
            LockKind::PLAIN => Policy::Plain,
            LockKind::EXTENT => Policy::Extent { start, end, gid },
            LockKind::IBITS => Policy::Ibits {
                bits: InodeBits::from_bits_retain(start),
                try_bits: InodeBits::from_bits_retain(end),
                gid,
                initiator: who,
            },
            LockKind::FLOCK => Policy::Flock { start, end, owner: gid, pid: who },
            _ => return None,
        })
    }
}

impl ResourceName {
    /// The name of a file's or object's locks.
    pub const fn of(fid: Fid) -> Self {
        Self { words: [fid.seq, (fid.ver as u64) << 32 | fid.oid as u64, 0, 0] }
    }

    /// The name of an object's locks (L-7): its FID, or its number if it is of old.
    pub fn of_object(id: ObjectId) -> Self {
        match id.fid() {
            None => Self { words: [id.first, 0, 0, 0] },
            Some(Fid { seq: 0, oid, .. }) => Self { words: [oid.into(), 0, 0, 0] },
            Some(Fid { seq: seq @ 0x1_0000_0000..=0x1_ffff_ffff, oid, .. }) => {
                Self { words: [(seq & 0xffff) << 32 | u64::from(oid), 0, 0, 0] }
            }
            Some(fid) => Self::of(Fid { ver: 0, ..fid }),
        }
    }

    /// The name of the lock on a configuration: the first eight bytes of its name, and the kind of
    /// the configuration (P-156).
    pub fn of_config(name: &[u8], kind: u64) -> Self {
        Self { words: [u64::get(ByteOrder::Little, name), kind, 0, 0] }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.words;
        write!(f, "[{a:#x}:{b:#x}:{c:#x}:{d:#x}]")
    }
}

/// A request for a lock, a cancel, a conversion or a callback (L-12): as many handles as its buffer
/// has room for, at least two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Flags.
    pub flags: LockFlags,
    /// Number of handles that count; 0 in callbacks, and in a cancel means 1 (L-13).
    pub count: u32,
    /// The lock.
    pub desc: LockDesc,
    /// Cookies; which, depends on the operation (L-13).
    pub handles: SmallVec<[u64; 2]>,
}

layout! {
    /// What stands before the handles.
    pub struct LockRequestHead("lock request", 88) {
        /// Flags.
        0 flags: LockFlags,
        /// Number of handles that count.
        4 count: u32,
        /// The lock.
        8 desc: LockDesc,
    }
}

impl LockRequest {
    /// Bytes with two handles, the least.
    pub const LEN_MIN: usize = 104;

    /// A request with these handles, and zeros up to the least number.
    pub fn new(flags: LockFlags, count: u32, desc: LockDesc, handles: &[u64]) -> Self {
        let mut handles = SmallVec::from_slice(handles);
        while handles.len() < 2 {
            handles.push(0);
        }
        Self { flags, count, desc, handles }
    }

    /// The request in a buffer.
    ///
    /// # Errors
    /// Fewer bytes than [`Self::LEN_MIN`], a part of a handle, a count above the handles.
    pub fn parse(order: ByteOrder, b: &[u8]) -> Result<Self, WireError> {
        const HEAD: usize = LockRequestHead::LEN;
        let what = LockRequestHead::NAME;
        if b.len() < Self::LEN_MIN {
            return Err(WireError::Short { what, need: Self::LEN_MIN, have: b.len() });
        }
        let rest = b.get(HEAD..).unwrap_or_default();
        if !rest.len().is_multiple_of(8) {
            return Err(WireError::Size { what, need: 8, have: rest.len() });
        }
        let handles: SmallVec<[u64; 2]> =
            rest.chunks_exact(8).map(|b| u64::get(order, b)).collect();
        let LockRequestHead { flags, count, desc } = LockRequestHead::get(order, b);
        let max = handles.len() as u64;
        if u64::from(count) > max {
            let (field, value) = ("count", u64::from(count));
            return Err(WireError::Limit { what, field, value, min: 0, max });
        }
        Ok(Self { flags, count, desc, handles })
    }

    /// The request in a buffer of a message.
    ///
    /// # Errors
    /// No such buffer, and as [`Self::parse`].
    pub fn of(msg: &Msg<'_>, index: usize) -> Result<Self, WireError> {
        Self::parse(msg.order, msg.required(LockRequestHead::NAME, index)?)
    }

    /// The handles that count.
    pub fn counted(&self) -> &[u64] {
        self.handles.get(..self.count as usize).unwrap_or(&self.handles)
    }

    /// The bytes of the request.
    pub fn to_bytes(&self, order: ByteOrder) -> Vec<u8> {
        const HEAD: usize = LockRequestHead::LEN;
        let head = LockRequestHead { flags: self.flags, count: self.count, desc: self.desc };
        let mut bytes = vec![0; HEAD + u64::LEN * self.handles.len()];
        let (front, rest) = bytes.split_at_mut(HEAD);
        head.put(order, front);
        for (handle, place) in self.handles.iter().zip(rest.chunks_exact_mut(u64::LEN)) {
            handle.put(order, place);
        }
        bytes
    }
}
