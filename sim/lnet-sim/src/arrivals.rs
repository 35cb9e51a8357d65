//! What has reached which program: whether it is there for the second time.
//!
//! A node that has died and come back has never had what its last life was given: what was on its way
//! to that life may be taken by the next one (docs/duplicates.md), and comes once to each.

use std::collections::BTreeMap;

use crate::directory::{HostId, Lookup};
use crate::observe::AttemptId;

/// What arrived last.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Attempts, with the receiver's life, by slot and kind.
    recent: Lookup<u64, [(u64, u32); 4]>,
    /// How often a host has died.
    deaths: BTreeMap<HostId, u32>,
}

impl Arrivals {
    /// Notes an arrival, and says whether it is the second one.
    pub(crate) fn is_second(&mut self, host: HostId, attempt: AttemptId, answer: bool) -> bool {
        let slot = (attempt.0 & 0xff_ffff) << 1 | u64::from(answer);
        let life = self.deaths.get(&host).copied().unwrap_or_default();
        let recent = self.recent.entry(slot).or_default();
        if recent.contains(&(attempt.0, life)) {
            return true;
        }
        recent.rotate_right(1);
        recent[0] = (attempt.0, life);
        false
    }

    /// The host has died.
    pub(crate) fn died(&mut self, host: HostId) {
        *self.deaths.entry(host).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_once_to_each_life_of_its_receiver() {
        let (mut arrivals, one, other) = (Arrivals::default(), HostId(1), HostId(2));
        let comes = |arrivals: &mut Arrivals, answer| {
            arrivals.is_second(one, AttemptId(0x5_0000_0003), answer)
        };
        assert!(!comes(&mut arrivals, false));
        assert!(!comes(&mut arrivals, true));
        arrivals.died(other);
        assert!(comes(&mut arrivals, false));
        arrivals.died(one);
        assert!(!comes(&mut arrivals, false));
        assert!(comes(&mut arrivals, false));
    }
}
