//! What a program asks for, what it hears of it, and why it does not get it.

use core::fmt;
use core::time::Duration;

use lnet_types::Errno;
use lustre_wire::Buffers;
use lustre_wire::ldlm::{LockDesc, LockFlags, Policy, ResourceName};
use ptlrpc::CallError;

use crate::{Kind, Mode};

/// A lock of this client, by the cookie that its server knows it by (L-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub u64);

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A program's hold of a lock: several may hold one lock, and it is kept while there is one (L-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

/// A glimpse that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlimpseId(pub u64);

/// Which locks that the client has serve a new hold, without a request (L-36).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// None: the server is asked.
    Never,
    /// Those whose other holds, if any, are compatible with it: holds of one client exclude each other
    /// as those of different clients do.
    Holder,
    /// All that cover it: holds of one client do not exclude each other.
    Client,
}

/// What a program asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What is locked.
    pub resource: ResourceName,
    /// Which part of it; says the kind of the lock too.
    pub policy: Policy,
    /// Mode.
    pub mode: Mode,
    /// Flags of the request, of those that programs set: [`Ask::FLAGS`].
    pub flags: LockFlags,
    /// Which locks that the client has will do.
    pub share: Share,
    /// Most bytes of attributes that come with the lock; more are a failure (L-38).
    pub lvb_max: u32,
    /// The program keeps data under the lock, which are written back before it goes:
    /// [`LockEvent::Flush`].
    pub writes_back: bool,
    /// The program answers glimpses itself: [`LockEvent::Glimpse`].
    pub glimpses: bool,
    /// It is refused when it is not granted after so long.
    pub limit: Option<Duration>,
    /// Buffers behind the lock request: what the server wants to know beside it, such as the name of
    /// the resource. A replay has them too.
    pub beside: Buffers,
}

impl Ask {
    /// Flags that a program may set; HAS_INTENT with the intent as the first buffer beside.
    pub const FLAGS: LockFlags = LockFlags::SPECULATIVE
        .union(LockFlags::BLOCK_NOWAIT)
        .union(LockFlags::CANCEL_ON_BLOCK)
        .union(LockFlags::NO_EXPANSION)
        .union(LockFlags::DENY_ON_CONTENTION)
        .union(LockFlags::AST_DISCARD_DATA)
        .union(LockFlags::HAS_INTENT);

    /// One that waits until it is granted, and shares what the client has as if each hold were a
    /// client.
    pub const fn new(resource: ResourceName, mode: Mode, policy: Policy) -> Self {
        Self {
            resource,
            policy,
            mode,
            flags: LockFlags::empty(),
            share: Share::Holder,
            lvb_max: 56,
            writes_back: false,
            glimpses: false,
            limit: None,
            beside: Buffers::new(),
        }
    }

    /// The kind of the lock.
    pub const fn kind(&self) -> Kind {
        match self.policy {
            Policy::Plain => Kind::Plain,
            Policy::Extent { .. } => Kind::Extent,
            Policy::Ibits { .. } => Kind::Ibits,
            Policy::Flock { .. } => Kind::Flock,
        }
    }
}

/// Why a lock is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// A conflicting lock is held, and the request says not to wait.
    #[error("a conflicting lock is held")]
    Conflict,
    /// It was not granted within its limit.
    #[error("not granted within the limit")]
    LimitPassed,
    /// The server has evicted this client.
    #[error("evicted by the server")]
    Evicted,
    /// Owners of file locks wait for each other.
    #[error("deadlock of file locks")]
    Deadlock,
    /// A range that ends before it begins, no inode bit, or a flag that programs do not set.
    #[error("lock request: {0}")]
    Invalid(&'static str),
    /// What the server has said of the lock is not what was asked for.
    #[error("bad answer from the server: {0}")]
    BadAnswer(&'static str),
    /// There are as many as there may be.
    #[error("locks: limit {0} reached")]
    TooMany(usize),
    /// The request has failed.
    #[error(transparent)]
    Call(CallError),
}

impl LockError {
    /// The error number that stands for it.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Conflict => Errno::EAGAIN,
            Self::LimitPassed => Errno::ETIMEDOUT,
            Self::Evicted => Errno::EIO,
            // EDEADLK, which LNet itself does not have.
            Self::Deadlock => Errno(35),
            Self::Invalid(_) => Errno::EINVAL,
            Self::BadAnswer(_) => Errno::EPROTO,
            Self::TooMany(_) => Errno::EBUSY,
            Self::Call(e) => e.errno(),
        }
    }
}

impl From<CallError> for LockError {
    fn from(e: CallError) -> Self {
        match e {
            CallError::Evicted | CallError::Inactive => Self::Evicted,
            CallError::Refused(Errno::EAGAIN) => Self::Conflict,
            e => Self::Call(e),
        }
    }
}

/// Why a lock has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoneReason {
    /// It was given back, and the server has it.
    Released,
    /// It was not in use, and went without a word (L-60, L-61).
    Dropped,
    /// The server has taken it away: the client was evicted, or its connection has ended. What it
    /// protected may belong to another client since an unknown time.
    Lost,
}

/// What a program hears of its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// A hold has its lock; the server knows that this client knows (L-38).
    Granted {
        /// Which hold.
        hold: HoldId,
        /// Its lock.
        lock: LockId,
        /// The mode of the lock, which may be stronger than what was asked for.
        mode: Mode,
        /// The part of the resource, which may be larger.
        policy: Policy,
        /// Attributes that came with it.
        lvb: Vec<u8>,
    },
    /// A hold is refused, and there is no such hold any more.
    Refused {
        /// Which hold.
        hold: HoldId,
        /// Why.
        error: LockError,
    },
    /// The server has done what was asked beside the lock, and gives none (L-36.1).
    Aborted {
        /// Which hold; there is none any more.
        hold: HoldId,
        /// What it has found: the second word of results is the errno.
        results: (u64, u64),
        /// Attributes.
        lvb: Vec<u8>,
    },
    /// Another client waits for the lock: its holds are to be released soon. Once for each lock.
    CalledBack {
        /// Which lock.
        lock: LockId,
        /// Its holds.
        holds: Vec<HoldId>,
        /// What the other one wants; of extents the end is not to be relied on (L-33).
        wanted: LockDesc,
    },
    /// Data under the lock are to be written back, then [`flushed`](super::LockClient::flushed): no
    /// hold is left (L-44).
    Flush {
        /// Which lock.
        lock: LockId,
        /// They may be dropped instead.
        discard: bool,
    },
    /// The server wants to know the attributes that belong to the lock:
    /// [`glimpsed`](super::LockClient::glimpsed) answers.
    Glimpse {
        /// By which it is answered.
        glimpse: GlimpseId,
        /// Which lock.
        lock: LockId,
    },
    /// The server has taken bits of the lock back, or not.
    Converted {
        /// Which lock.
        lock: LockId,
        /// The part that is left, or why nothing has changed.
        result: Result<Policy, LockError>,
    },
    /// A lock is gone. If it is lost, so are its holds.
    Gone {
        /// Which lock.
        lock: LockId,
        /// Its holds, if it had some.
        holds: Vec<HoldId>,
        /// Why.
        reason: GoneReason,
    },
}
