//! Requests that wait at a slow target before their turn.

use core::time::Duration;
use std::collections::BTreeMap;

use lnet_types::{Instant, Prng};
use ptlrpc::Served;

/// See the module's head.
pub(super) struct Late {
    /// Targets that are slow: by how much, and up to how much more.
    slow: BTreeMap<usize, (Duration, Duration)>,
    /// By when their turn is.
    waiting: BTreeMap<(Instant, u64), Box<Served>>,
    arrived: u64,
    rng: Prng,
}

impl Late {
    pub(super) fn new(rng: Prng) -> Self {
        Self { slow: BTreeMap::new(), waiting: BTreeMap::new(), arrived: 0, rng }
    }

    /// A target is slow from now on, or is no longer.
    pub(super) fn set(&mut self, target: usize, slow: Option<(Duration, Duration)>) {
        match slow {
            Some(slow) => _ = self.slow.insert(target, slow),
            None => _ = self.slow.remove(&target),
        }
    }

    /// When a turn comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.keys().next().map(|(at, _)| *at)
    }

    /// A request for a target; it comes back if its turn is now.
    pub(super) fn pass(
        &mut self,
        target: usize,
        served: Box<Served>,
        now: Instant,
    ) -> Option<Box<Served>> {
        let Some((by, jitter)) = self.slow.get(&target) else { return Some(served) };
        let more = match jitter.as_nanos() as u64 {
            0 => 0,
            most => self.rng.below(most),
        };
        self.arrived += 1;
        self.waiting.insert((now + *by + Duration::from_nanos(more), self.arrived), served);
        None
    }

    /// A request whose turn has come.
    pub(super) fn due(&mut self, now: Instant) -> Option<Box<Served>> {
        let first = self.waiting.first_entry().filter(|e| e.key().0 <= now)?;
        Some(first.remove())
    }
}
