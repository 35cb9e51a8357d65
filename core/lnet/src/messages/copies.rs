//! Copies of one message that are under way at the same time: remnants, which drivers have begun with, and
//! the message that has taken their place. They are found by their number, so that the end of a remnant costs
//! the same however many messages are under way.

use std::collections::{BTreeMap, BTreeSet};

use lnet_types::MsgId;

use super::Messages;
use crate::dedup::numbering::{Number, Numbered};
use crate::msg::{Msg, Role};

/// The copies of one message.
#[derive(Clone, Copy, Debug)]
struct Siblings {
    /// The message that has taken the place of the others.
    latest: MsgId,
    /// How many others drivers still have.
    remnants: usize,
}

/// All remnants of a node.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// In the order of their places.
    remnants: BTreeSet<MsgId>,
    by_number: BTreeMap<Number, Siblings>,
}

impl Copies {
    /// Those among all messages of a node.
    pub(super) fn among(messages: &Messages) -> Self {
        let mut copies = Self::default();
        let is_remnant = |msg: &Msg| msg.role == Role::Remnant;
        for (id, msg) in messages.iter().filter(|(_, msg)| is_remnant(msg)) {
            copies.replaced(id, id, msg.numbered);
        }
        for (id, msg) in messages.iter().filter(|(_, msg)| !is_remnant(msg)) {
            let number = msg.numbered.map(Numbered::number);
            if let Some(siblings) = number.and_then(|number| copies.by_number.get_mut(&number)) {
                siblings.latest = id;
            }
        }
        copies
    }

    /// `old` is a remnant from now on, and `latest` has taken its place.
    pub(crate) fn replaced(&mut self, old: MsgId, latest: MsgId, numbered: Option<Numbered>) {
        self.remnants.insert(old);
        if let Some(numbered) = numbered {
            let siblings = Siblings { latest, remnants: 0 };
            let siblings = self.by_number.entry(numbered.number()).or_insert(siblings);
            siblings.latest = latest;
            siblings.remnants += 1;
        }
    }

    /// A remnant has ended. Gives the message that has taken its place.
    pub(crate) fn ended(&mut self, remnant: MsgId, numbered: Option<Numbered>) -> Option<MsgId> {
        self.remnants.remove(&remnant);
        let number = numbered?.number();
        let siblings = self.by_number.get_mut(&number)?;
        let latest = siblings.latest;
        siblings.remnants = siblings.remnants.saturating_sub(1);
        if siblings.remnants == 0 {
            self.by_number.remove(&number);
        }
        Some(latest)
    }

    /// Whether drivers still have earlier copies of a message.
    pub(crate) fn has_earlier(&self, numbered: Numbered) -> bool {
        self.by_number.contains_key(&numbered.number())
    }

    /// All remnants, in the order of their places.
    pub(crate) fn remnants(&self) -> impl Iterator<Item = MsgId> {
        self.remnants.iter().copied()
    }

    /// How many remnants there are.
    pub(crate) fn len(&self) -> usize {
        self.remnants.len()
    }
}
