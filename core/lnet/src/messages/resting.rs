//! Messages that rest (`send/rest.rs`), by the NID that they are for: a sign of life of one peer costs
//! nothing for those that rest for others.

use std::collections::{BTreeMap, BTreeSet};

use lnet_types::{MsgId, Nid};

/// All resting messages of a node.
#[derive(Debug, Default)]
pub(crate) struct Resting(BTreeMap<Nid, BTreeSet<MsgId>>);

impl Resting {
    pub(crate) fn insert(&mut self, target: Nid, id: MsgId) {
        self.0.entry(target).or_default().insert(id);
    }

    pub(crate) fn remove(&mut self, target: Nid, id: MsgId) {
        let Some(ids) = self.0.get_mut(&target) else { return };
        ids.remove(&id);
        if ids.is_empty() {
            self.0.remove(&target);
        }
    }

    /// Those for one NID.
    pub(crate) fn of(&self, target: Nid) -> impl Iterator<Item = MsgId> + '_ {
        self.0.get(&target).into_iter().flatten().copied()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = MsgId> + '_ {
        self.0.values().flatten().copied()
    }
}
