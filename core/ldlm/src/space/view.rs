//! What can be seen of locks from outside: for commands, status pages, explanations.

use lnet_types::Instant;
use lustre_wire::ldlm::{LockDesc, LockFlags};

use super::{HolderId, State};
use crate::Cookie;

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockView {
    /// Server's name.
    pub lock: Cookie,
    /// Client's name.
    pub client_cookie: u64,
    /// Holder.
    pub holder: HolderId,
    /// State.
    pub state: State,
    /// Kind, resource, modes, policy.
    pub desc: LockDesc,
    /// Flags that stay with the lock (L-17).
    pub flags: LockFlags,
    /// Since when it is in its state.
    pub since: Instant,
    /// The lock was called back, or will be when it is granted.
    pub called_back: bool,
    /// When its callback timer ends.
    pub expires: Option<Instant>,
}

/// Counts of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceView {
    /// Locks.
    pub locks: usize,
    /// Locks that wait.
    pub waiting: usize,
    /// Locks with a callback timer.
    pub called_back: usize,
    /// Resources.
    pub resources: usize,
    /// Holders.
    pub holders: usize,
}
