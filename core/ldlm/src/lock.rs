//! Words that clients and servers share: names of locks, kinds, why a lock is refused.

use core::fmt;

use lnet_types::Errno;
use lustre_wire::ldlm::LockKind;

/// Server's name of a lock; never 0, never used again while its namespace lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Kind of a resource and of all its locks (L-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The resource as a whole.
    Plain,
    /// A range of bytes.
    Extent,
    /// A range of a file's user.
    Flock,
    /// Parts of an inode.
    Ibits,
}

impl Kind {
    /// The kind of a word; `None` outside 10..=13 (L-2).
    pub const fn of(word: LockKind) -> Option<Self> {
        Some(match word {
            LockKind::PLAIN => Self::Plain,
            LockKind::EXTENT => Self::Extent,
            LockKind::FLOCK => Self::Flock,
            LockKind::IBITS => Self::Ibits,
            _ => return None,
        })
    }

    /// The word on the wire.
    pub const fn word(self) -> LockKind {
        match self {
            Self::Plain => LockKind::PLAIN,
            Self::Extent => LockKind::EXTENT,
            Self::Flock => LockKind::FLOCK,
            Self::Ibits => LockKind::IBITS,
        }
    }
}

/// Why a server refuses a lock request. No lock of the request remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Flags outside the mask of requests (L-17).
    #[error("lock flags {0:#x}: unknown or local bits; expected bits of 0xe08c131a")]
    Flags(u32),
    /// L-2.
    #[error("lock type {0}: must be 10 to 13")]
    Kind(u32),
    /// L-3.
    #[error("lock mode {0:#x}: must be exactly one of the nine modes")]
    Mode(u32),
    /// The resource has locks of another type (L-2).
    #[error("lock type {asked}: the resource has locks of type {has}")]
    OtherKind {
        /// Type of the request.
        asked: u32,
        /// Type of the resource.
        has: u32,
    },
    /// A range that ends before it begins, or no inode bit.
    #[error("lock range {start:#x} to {end:#x}: must not be empty")]
    Empty {
        /// Start, or bits.
        start: u64,
        /// End, or try bits.
        end: u64,
    },
    /// The holder is not connected (L-22.6).
    #[error("lock holder: not connected")]
    NotConnected,
    /// A limit is reached (L-22.4): the client tries again.
    #[error("{what}: limit {limit} reached")]
    Limit {
        /// Name of the limit.
        what: &'static str,
        /// Its value.
        limit: usize,
    },
    /// A conflict, and the request says not to wait (L-23).
    #[error("lock: a conflicting lock is held")]
    Conflict,
    /// The same for inode bits (L-23): a result, no error.
    #[error("lock: conflicting inode bits are held")]
    WouldBlock,
    /// The resource is contended, and the request says to fail then (L-16).
    #[error("lock: the resource is contended")]
    Contended,
    /// Waiting would never end: owners of file locks wait for each other.
    #[error("lock: deadlock of file locks")]
    Deadlock,
    /// A replayed lock conflicts with one that was replayed before.
    #[error("lock replay: a conflicting lock is held")]
    ReplayConflict,
}

impl Refusal {
    /// The status of the reply: a negative errno, or a positive result (L-21).
    pub const fn status(self) -> i32 {
        match self {
            Self::Flags(_) => Errno::EPROTO.negative(),
            Self::Kind(_) | Self::Mode(_) => Errno::EFAULT.negative(),
            Self::OtherKind { .. } | Self::Empty { .. } => Errno::EINVAL.negative(),
            Self::NotConnected => Errno::ENOTCONN.negative(),
            Self::Limit { .. } => Errno::EINPROGRESS.negative(),
            Self::Conflict => Errno::EAGAIN.negative(),
            Self::WouldBlock => 304,
            Self::Contended => Errno::EUSERS.negative(),
            // EDEADLK, which LNet itself does not have.
            Self::Deadlock => -35,
            Self::ReplayConflict => Errno::ESTALE.negative(),
        }
    }
}
