//! The table of messages, and how many of them only wait. A message is made where it begins (`send/`,
//! `recv.rs`) and freed in one place, `discard` in `send/credits.rs`.

use lnet_types::MsgId;
use slotmap::SlotMap;

use crate::msg::Msg;

/// All messages of a node.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Messages {
    table: SlotMap<MsgId, Msg>,
    /// Those that only wait for their answer.
    answering: usize,
    /// Those with drivers that another copy has replaced.
    remnants: usize,
}

impl Messages {
    #[inline]
    pub(crate) fn get(&self, id: MsgId) -> Option<&Msg> {
        self.table.get(id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: MsgId) -> Option<&mut Msg> {
        self.table.get_mut(id)
    }

    #[inline]
    pub(crate) fn insert(&mut self, msg: Msg) -> MsgId {
        self.table.insert(msg)
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: MsgId) -> Option<Msg> {
        self.table.remove(id)
    }

    pub(crate) fn contains_key(&self, id: MsgId) -> bool {
        self.table.contains_key(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (MsgId, &Msg)> {
        self.table.iter()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = MsgId> {
        self.table.keys()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Messages in hand: all but those that only wait for their answer.
    #[inline]
    pub(crate) fn in_hand(&self) -> usize {
        self.table.len().saturating_sub(self.answering)
    }

    /// One message more that only waits for its answer.
    pub(crate) fn begin_answering(&mut self) {
        self.answering += 1;
    }

    /// One less.
    pub(crate) fn end_answering(&mut self) {
        self.answering -= 1;
    }

    /// How many messages only wait for their answer.
    #[inline]
    pub(crate) const fn answering(&self) -> usize {
        self.answering
    }

    /// One more with a driver that another copy has replaced.
    pub(crate) fn remnant_made(&mut self) {
        self.remnants += 1;
    }

    /// One less.
    pub(crate) fn remnant_gone(&mut self) {
        self.remnants = self.remnants.saturating_sub(1);
    }

    /// How many messages with drivers another copy has replaced.
    pub(crate) const fn remnants(&self) -> usize {
        self.remnants
    }
}

#[cfg(test)]
impl Messages {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Msg> {
        self.table.values()
    }
}

#[cfg(test)]
impl core::ops::Index<MsgId> for Messages {
    type Output = Msg;

    fn index(&self, id: MsgId) -> &Msg {
        &self.table[id]
    }
}

#[cfg(test)]
impl core::ops::IndexMut<MsgId> for Messages {
    fn index_mut(&mut self, id: MsgId) -> &mut Msg {
        &mut self.table[id]
    }
}
