//! Delay (P-119): selected requests wait for a time that is drawn for each. A test makes a server
//! slow with it.

use lnet_types::{Instant, Prng};

/// What an administrator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The least that a request waits, seconds.
    pub(super) min: u16,
    /// The most, seconds; never below `min`.
    pub(super) max: u16,
    /// Share of the requests that wait, percent.
    pub(super) pct: u16,
}

#[derive(Debug)]
pub(super) struct Delay {
    pub(super) range: Range,
    prng: Prng,
}

impl Delay {
    pub(super) const fn new(prng: Prng) -> Self {
        Self { range: Range { min: 5, max: 300, pct: 100 }, prng }
    }

    /// The time from which a request that arrives now may be served, nanoseconds; `None` if it is not
    /// among those that wait.
    pub(super) fn rank(&mut self, now: Instant) -> Option<u64> {
        let Range { min, max, pct } = self.range;
        let waits = match pct {
            0 => false,
            100.. => true,
            // P-119: a draw of 0 … 99 that is not above the share.
            pct => self.prng.below(100) <= u64::from(pct),
        };
        let span = u64::from(max.saturating_sub(min));
        let secs = u64::from(min) + if waits { self.prng.below(span + 1) } else { 0 };
        waits.then(|| (now + core::time::Duration::from_secs(secs)).as_nanos())
    }
}
