//! Turns: how rules with a number of messages share traffic exactly (MR-cfg-145).
//!
//! Each thing under such a rule sends its number of messages in a row; that is one round. Who has
//! done the fewest rounds is next. What could not be used for a while does not catch up: its rounds
//! count from the floor, which is the round of the last choice.

use core::num::NonZeroU32;

/// Priority where no rule gives one (U-27).
pub(crate) const NO_PRIORITY: u32 = u32::MAX;

/// What rules say of a local network, a local interface, a peer's network or a peer's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Grade {
    /// Smaller is better.
    pub(crate) priority: u32,
    /// Messages in a row.
    pub(crate) messages: Option<NonZeroU32>,
}

impl Default for Grade {
    fn default() -> Self {
        Self { priority: NO_PRIORITY, messages: None }
    }
}

impl Grade {
    /// The priority, if a rule gives one.
    pub(crate) fn given_priority(self) -> Option<u32> {
        (self.priority != NO_PRIORITY).then_some(self.priority)
    }
}

/// How far something is with its rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Turn {
    round: u64,
    /// Messages of this round.
    used: u32,
    /// When it was last chosen, as a number that grows with every message.
    last: u64,
}

/// The order of turns; smaller is next. Things without a number of messages come after those with
/// one, equal among themselves.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct Standing {
    pub(crate) round: u64,
    /// In the middle of a row, which goes on.
    waits: bool,
    last: u64,
}

impl Standing {
    pub(crate) const NONE: Self = Self { round: u64::MAX, waits: false, last: 0 };
}

impl Turn {
    /// Where it stands among those whose floor is `floor`.
    pub(crate) fn standing(self, messages: Option<NonZeroU32>, floor: u64) -> Standing {
        let Some(messages) = messages else { return Standing::NONE };
        let now = self.at(messages, floor);
        Standing { round: now.round, waits: now.used == 0, last: now.last }
    }

    /// The turn with rounds that are done counted, and those that were missed too.
    fn at(self, messages: NonZeroU32, floor: u64) -> Self {
        let done = self.used >= messages.get();
        let round = self.round.saturating_add(done.into());
        let used = if done { 0 } else { self.used };
        if round < floor {
            Self { round: floor, used: 0, ..self }
        } else {
            Self { round, used, ..self }
        }
    }

    /// It was chosen for message number `seq`. Moves the floor along.
    pub(crate) fn take(&mut self, messages: Option<NonZeroU32>, floor: &mut u64, seq: u64) {
        let Some(messages) = messages else { return };
        let now = self.at(messages, *floor);
        *floor = now.round;
        *self = Self { round: now.round, used: now.used + 1, last: seq };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who of `weights` is chosen in `n` messages, if `usable` says who may be.
    fn run(weights: &[u32], n: u64, usable: impl Fn(usize, u64) -> bool) -> Vec<usize> {
        let mut turns = vec![Turn::default(); weights.len()];
        let mut floor = 0;
        (1..=n)
            .map(|seq| {
                let at = (0..weights.len())
                    .filter(|i| usable(*i, seq))
                    .min_by_key(|i| turns[*i].standing(NonZeroU32::new(weights[*i]), floor))
                    .unwrap();
                turns[at].take(NonZeroU32::new(weights[at]), &mut floor, seq);
                at
            })
            .collect()
    }

    #[test]
    fn message_counts_of_5_and_2_give_runs_of_5_and_2_turns() {
        let got = run(&[5, 2], 14, |_, _| true);
        assert_eq!(got, [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn a_path_that_was_out_of_use_does_not_catch_up_its_turns() {
        let got = run(&[3, 1], 80, |i, seq| i == 0 || !(10..50).contains(&seq));
        let after: Vec<_> = got[52..].to_vec();
        assert_eq!(after.iter().filter(|i| **i == 1).count(), after.len() / 4);
    }

    #[test]
    fn a_path_with_a_message_count_stands_before_one_without() {
        let counted = Turn::default().standing(NonZeroU32::new(1), 7);
        assert!(counted < Turn::default().standing(None, 7));
    }
}
