//! Pings and discoveries that a caller waits for, by number. Each ends with one report (`ops.rs`).

use std::collections::BTreeMap;

use lnet_types::{Errno, MdId, Nid};

use crate::OpId;

/// A ping or discovery with a waiting caller.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct OpState {
    pub(crate) asked: Nid,
    pub(crate) md: Option<MdId>,
    pub(crate) error: Option<Errno>,
}

/// All of them.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ops {
    open: BTreeMap<OpId, OpState>,
    /// How many there ever were.
    count: u64,
}

impl Ops {
    /// The number of a new one.
    pub(crate) fn number(&mut self) -> OpId {
        self.count += 1;
        OpId(self.count)
    }

    /// A caller waits from now on: for what is `asked`, by an answer to `md`.
    pub(crate) fn open(&mut self, op: OpId, asked: Nid, md: Option<MdId>) {
        self.open.insert(op, OpState { asked, md, error: None });
    }

    /// No caller waits any more. False if none did.
    pub(crate) fn close(&mut self, op: OpId) -> bool {
        self.open.remove(&op).is_some()
    }

    pub(crate) fn get(&self, op: OpId) -> Option<&OpState> {
        self.open.get(&op)
    }

    pub(crate) fn get_mut(&mut self, op: OpId) -> Option<&mut OpState> {
        self.open.get_mut(&op)
    }

    /// How many there ever were.
    #[cfg(test)]
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }
}
