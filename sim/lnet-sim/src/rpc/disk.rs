//! What of a target survives the death of its node, and how a target misbehaves. Both are the world's.

use core::time::Duration;

use lnet_scenario::{Share, TargetKind, TargetSpec};
use lustre_target::{Commit, MemoryStore};

use super::serving::ListDisk;
use super::store::StoreTrouble;

/// What a target has committed.
#[derive(Debug)]
pub(crate) enum Disk {
    List(ListDisk),
    Store(Box<MemoryStore>),
}

impl Disk {
    /// An empty one.
    pub(super) fn new(spec: &TargetSpec) -> Self {
        match spec.kind {
            TargetKind::List => Self::List(ListDisk::default()),
            TargetKind::Kv
            | TargetKind::Lock
            | TargetKind::Mgs
            | TargetKind::Mdt
            | TargetKind::Ost => {
                Self::Store(Box::new(MemoryStore::new(Commit::Ordered, spec.store.size.into())))
            }
        }
    }
}

/// How a target misbehaves now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    /// Requests are late by so much, and up to so much more.
    pub(super) slow: Option<(Duration, Duration)>,
    /// Nothing is committed.
    pub(super) stalled: bool,
    /// No value finds room.
    pub(super) full: bool,
    /// Part of its store's orders that fail.
    pub(super) errors: Share,
}

impl Trouble {
    /// What of it its store feels.
    pub(super) fn of_store(self) -> StoreTrouble {
        StoreTrouble { stalled: self.stalled, full: self.full, errors: self.errors }
    }
}
