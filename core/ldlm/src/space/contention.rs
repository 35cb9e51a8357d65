//! Contention of a resource (L-31): many conflicts in a short time. Advice only: clients may then go
//! without locks.

use core::time::Duration;

use lnet_types::Instant;

/// Conflicts in a short time above which a resource is contended.
pub const CONTENDED_LOCKS: u32 = 16;
/// Time in which conflicts are counted.
const WINDOW: Duration = Duration::from_secs(4);
/// Time for which a resource stays contended after the last excess.
const HOLD: Duration = Duration::from_secs(30);

/// Conflicts of a resource.
#[derive(Debug)]
pub(super) struct Contention {
    since: Instant,
    count: u32,
    until: Instant,
}

impl Contention {
    pub(super) const fn new(now: Instant) -> Self {
        Self { since: now, count: 0, until: Instant::ZERO }
    }

    /// Counts the conflicts that one request met.
    pub(super) fn count(&mut self, now: Instant, conflicts: u32) {
        if now.saturating_since(self.since) >= WINDOW {
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(conflicts);
        if self.count > CONTENDED_LOCKS {
            self.until = now + HOLD;
        }
    }

    pub(super) fn holds(&self, now: Instant) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Instant {
        Instant::from_secs(n)
    }

    #[test]
    fn more_than_16_conflicts_in_4_s_hold_for_30_s() {
        let mut contention = Contention::new(secs(100));
        contention.count(secs(100), 16);
        assert!(!contention.holds(secs(100)));
        contention.count(secs(103), 1);
        assert!(contention.holds(secs(103)) && contention.holds(secs(132)));
        assert!(!contention.holds(secs(133)));
    }

    #[test]
    fn conflicts_that_are_4_s_apart_are_not_counted_together() {
        let mut contention = Contention::new(secs(100));
        contention.count(secs(100), 16);
        contention.count(secs(104), 16);
        assert!(!contention.holds(secs(104)));
    }
}
