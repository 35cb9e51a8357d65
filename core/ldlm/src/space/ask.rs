//! What goes into the lock machine and what it returns at once: requests and their results. What it
//! decides for others stands in `effect.rs`.

use core::time::Duration;

use lustre_wire::ldlm::{LockDesc, LockFlags, LockKind, ResourceName};
use smallvec::SmallVec;

use super::LockView;
use crate::Cookie;

/// Number of a holder: a client by its export, a server, or the server itself. Given by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub u64);

/// What a holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderKind {
    /// A client: its callbacks have a timer.
    Client,
    /// A server: called back, and never evicted (L-53).
    Server,
    /// This server itself, which reads or writes for a client: as [`Self::Server`], its ranges do not
    /// grow (L-29), and glimpses pass it over: it knows no more than the target.
    Local,
    /// This server itself, which removes the object: glimpses say so (L-35.5).
    Remover,
}

impl HolderKind {
    /// Whether the holder is this server itself.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::Local | Self::Remover)
    }
}

/// A request for a lock, in the words of the wire; every value is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The client's name of the lock.
    pub client_cookie: u64,
    /// Flags of the request.
    pub flags: LockFlags,
    /// Type, resource, mode and policy; of a replayed lock also the granted mode.
    pub desc: LockDesc,
    /// The message has the flag RESENT (L-22.3).
    pub resent: bool,
}

/// State of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In the waiting queue.
    Waiting,
    /// Granted.
    Granted,
}

/// A lock that was created or, for a resent or replayed request, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Its name.
    pub lock: Cookie,
    /// Its present state. What the reply says is decided in [`answer`](super::Namespace::answer).
    pub state: State,
    /// The lock was there before this request (L-26).
    pub found: bool,
    /// The resource has no value block: to be filled from the object before the answer, unless the
    /// request is a replay (L-22.5).
    pub wants_value: bool,
}

/// What an enqueue reply says (L-22.10, L-22.12, L-26).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Flags of the reply.
    pub flags: LockFlags,
    /// The lock as it is now.
    pub desc: LockDesc,
    /// Server's name of the lock, which may be gone by now (CANCEL_ON_BLOCK).
    pub lock: Cookie,
    /// State that the reply announces.
    pub state: State,
    /// Whose lock it is.
    pub holder: HolderId,
}

/// Result of a glimpse (L-35).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Glimpse {
    /// No conflict: a lock was granted as by an enqueue.
    Granted(Enqueued),
    /// Holders that know the size better: a glimpse callback to each, then the reply with the value
    /// block and status ABORTED. With none the reply goes at once.
    Aborted(SmallVec<[super::Callback; 1]>),
    /// The object is being destroyed: policy result -ENOENT, status ABORTED.
    Destroyed,
}

/// Result of a cancel (L-42).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// Locks that were found; with none the status is ESTALE, positive.
    pub found: usize,
    /// Of each lock that had been called back, the time from the last callback to now, if it is not 0
    /// whole seconds: measurements of the holder's callback estimate (L-47).
    pub delays: SmallVec<[Duration; 1]>,
}

/// Why a lock is not converted (L-45).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertRefusal {
    /// Status NO_LOCK_DATA.
    #[error("lock to be converted: not held")]
    Gone,
    /// Status -EPROTO.
    #[error("lock to be converted: type or mode differs from that of the request")]
    Differs,
    /// Status -EINVAL: a conversion only drops bits.
    #[error("lock to be converted: bits {asked:#x} must be among those held, {held:#x}")]
    Upwards {
        /// Bits of the request.
        asked: u64,
        /// Bits of the lock.
        held: u64,
    },
}

impl ConvertRefusal {
    /// The status of the reply.
    pub const fn status(self) -> i32 {
        match self {
            Self::Gone => 303,
            Self::Differs => lnet_types::Errno::EPROTO.negative(),
            Self::Upwards { .. } => lnet_types::Errno::EINVAL.negative(),
        }
    }
}

/// How a callback ended (L-55).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackEnd {
    /// Answered with 0: the cancel follows.
    Taken,
    /// Answered with -EINVAL: the client does not have the lock.
    NotHeld,
    /// This server is stopping (-ENODEV, -ESHUTDOWN, -EIO on a closed import): ignored.
    Stopping,
    /// Anything else, or no answer until the limit: the holder is evicted.
    Failed,
}

/// I/O of a client, as far as locks are concerned (L-49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The object.
    pub resource: ResourceName,
    /// First byte; of inode bits these.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// A read: locks for reading count as well.
    pub read: bool,
    /// The lock that the request names, if any.
    pub lock: Option<Cookie>,
}

impl Io {
    /// Whether data that move so are a reason to leave a lock to its holder (L-52): it is on a part of them.
    pub fn is_under(&self, lock: &LockView) -> bool {
        let LockDesc { kind, resource, policy, .. } = &lock.desc;
        let meets = match *kind {
            LockKind::IBITS => policy.start & self.start != 0,
            _ => policy.start <= self.end && self.start <= policy.end,
        };
        *resource == self.resource && meets
    }
}

/// Locks that cover I/O (L-49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// None: the client lost its lock, the request is answered with -ESTALE.
    NoLock,
    /// At least one, none called back.
    Held,
    /// At least one was called back; their timers are refreshed. The request has high priority.
    CalledBack,
}
