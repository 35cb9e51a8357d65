//! Faults on purpose: requests, replies, early replies and bulk data that get lost, on the side that
//! sends them as on the side that receives them.

use lnet_types::Errno;
use lustre_wire::Opcode;

/// Most rules at a time.
pub const LOSE_MAX: usize = 64;

/// What gets lost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The request.
    Request,
    /// The reply.
    Reply,
    /// A piece of the bulk data.
    Bulk,
    /// An early reply.
    Early,
}

/// What is to get lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lose {
    /// Of requests of this operation; `None` is any.
    pub opcode: Option<Opcode>,
    /// What of them.
    pub part: Part,
    /// How many messages; then the rule does nothing any more.
    pub count: u32,
}

/// A rule, and what it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losing {
    /// The rule's name.
    pub id: LoseId,
    /// The rule.
    pub lose: Lose,
    /// Messages that it has lost.
    pub lost: u32,
}

/// The name of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoseId(pub u64);

#[derive(Debug, Default)]
pub(crate) struct Losses {
    rules: Vec<Losing>,
    made: u64,
}

impl Losses {
    pub(crate) fn add(&mut self, lose: Lose) -> Result<LoseId, Errno> {
        if lose.count == 0 {
            return Err(Errno::EINVAL);
        }
        if self.rules.len() >= LOSE_MAX {
            return Err(Errno::ENOSPC);
        }
        self.made += 1;
        let id = LoseId(self.made);
        self.rules.push(Losing { id, lose, lost: 0 });
        Ok(id)
    }

    pub(crate) fn remove(&mut self, id: LoseId) -> bool {
        let before = self.rules.len();
        self.rules.retain(|rule| rule.id != id);
        self.rules.len() < before
    }

    pub(crate) fn rules(&self) -> &[Losing] {
        &self.rules
    }

    /// Whether this message gets lost. Of the rules that match it the oldest with something left does
    /// it.
    pub(crate) fn hit(&mut self, opcode: Opcode, part: Part) -> bool {
        let hit = self.rules.iter_mut().find(|rule| {
            let lose = rule.lose;
            let is = lose.part == part && lose.opcode.is_none_or(|is| is == opcode);
            is && rule.lost < lose.count
        });
        if let Some(rule) = hit {
            rule.lost += 1;
            return true;
        }
        false
    }
}
