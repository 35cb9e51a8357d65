//! What the lock machine wants done: callbacks to holders, evictions. Values, polled by the server.

use lustre_wire::ldlm::{LockDesc, LockFlags};

use super::HolderId;
use crate::Cookie;

/// A callback to the holder of a lock: body of the request (L-32 to L-34).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callback {
    /// The holder.
    pub holder: HolderId,
    /// The lock, by the server's name.
    pub lock: Cookie,
    /// The lock, by the client's name.
    pub client_cookie: u64,
    /// Flags of the callback.
    pub flags: LockFlags,
    /// Blocking: the request that wants the resource, for inode bits with the conflicting bits in the
    /// second word. Completion and glimpse: the lock itself.
    pub desc: LockDesc,
}

/// Why a holder is to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictReason {
    /// The callback timer ran out (L-52).
    Expired,
    /// A callback failed (L-55.5).
    CallbackFailed,
    /// A replayed lock conflicts with one that was replayed before.
    ReplayConflict,
}

/// Something to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Call the holder of a granted lock back. The timer runs already.
    Block {
        /// The callback.
        callback: Callback,
        /// The lock whose enqueue or replay met the conflict: its reply waits for this callback's end
        /// (L-23, L-24).
        because: Cookie,
    },
    /// Announce the grant of a lock whose enqueue was answered with "blocked". With AST_SENT it is a
    /// blocking callback as well, and the timer runs already (L-32).
    Complete(Callback),
    /// Evict the holder, then call [`evict`](super::Namespace::evict). Once for each holder.
    Evict {
        /// The holder.
        holder: HolderId,
        /// The lock that was not released, or that conflicts.
        lock: Cookie,
        /// Why.
        why: EvictReason,
    },
}

impl Effect {
    /// The holder that it concerns.
    pub const fn holder(&self) -> HolderId {
        match self {
            Self::Block { callback, .. } | Self::Complete(callback) => callback.holder,
            Self::Evict { holder, .. } => *holder,
        }
    }
}
