//! A lock of a client, to be looked at.

use lnet_types::Instant;
use lustre_wire::ldlm::{Policy, ResourceName};

use super::LockId;
use super::lock::{Lock, Stage};
use crate::Mode;

/// A lock of a client, to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockView {
    /// The client's cookie.
    pub lock: LockId,
    /// The server's cookie, 0 if it is not known.
    pub remote: u64,
    /// What is locked.
    pub resource: ResourceName,
    /// Mode.
    pub mode: Mode,
    /// Part of the resource.
    pub policy: Policy,
    /// Where it stands.
    pub stage: Stage,
    /// Holds.
    pub holds: usize,
    /// Another client waits for it.
    pub called_back: bool,
    /// When it was asked for.
    pub asked_at: Instant,
}

impl LockView {
    pub(super) fn of(id: LockId, lock: &Lock) -> Self {
        let &Lock { remote, resource, mode, policy, stage, asked_at, .. } = lock;
        let (holds, called_back) = (lock.holds.len(), lock.wanted.is_some());
        Self { lock: id, remote, resource, mode, policy, stage, holds, called_back, asked_at }
    }
}
