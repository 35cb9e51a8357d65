//! How long operations have waited for locks that were not cached, as a histogram: four classes for each
//! doubling of a microsecond, so a quantile is known to a quarter.

use core::time::Duration;

/// Classes for each doubling, as a power of two.
const FINE: u32 = 2;
/// The last class ends at 2^40 µs: beyond a request's longest life.
const CLASSES: usize = 41 << FINE;

/// Waits for locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaits {
    counts: Box<[u64; CLASSES]>,
    longest: Duration,
}

impl Default for LockWaits {
    fn default() -> Self {
        Self { counts: Box::new([0; CLASSES]), longest: Duration::ZERO }
    }
}

/// The class of a wait: its highest bit, and the two below.
fn class(micros: u64) -> usize {
    let top = micros.max(1).ilog2();
    let below = (micros << FINE >> top) & ((1 << FINE) - 1);
    (((top as usize) << FINE) + below as usize).min(CLASSES - 1)
}

/// The first number of microseconds that is in a later class.
fn end(class: usize) -> u64 {
    let (top, below) = (class >> FINE, (class & ((1 << FINE) - 1)) as u64);
    (((1 << FINE) + below + 1) << top).div_ceil(1 << FINE)
}

impl LockWaits {
    pub(super) fn add(&mut self, wait: Duration) {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX >> FINE);
        if let Some(count) = self.counts.get_mut(class(micros.min(u64::MAX >> FINE))) {
            *count += 1;
        }
        self.longest = self.longest.max(wait);
    }

    /// Adds those of another client.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(sum, count)| *sum += count);
        self.longest = self.longest.max(other.longest);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest.
    pub const fn longest(&self) -> Duration {
        self.longest
    }

    /// So many of a thousand are no longer than this, which is too long by a quarter at most; zero if
    /// there are none.
    pub fn quantile(&self, permille: u64) -> Duration {
        let wanted = self.count().saturating_mul(permille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(Duration::ZERO, |class| Duration::from_micros(end(class)).min(self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_without_a_gap() {
        for micros in 1..100_000 {
            let class = class(micros);
            assert!(micros < end(class), "{micros} is not beyond its class");
            assert!(class == 0 || end(class - 1) <= micros, "{micros} is not before its class");
        }
        assert_eq!((class(0), class(u64::MAX >> FINE)), (0, CLASSES - 1));
    }

    #[test]
    fn quantile_is_too_long_by_a_quarter_at_most() {
        let mut waits = LockWaits::default();
        assert_eq!((waits.quantile(990), waits.count()), (Duration::ZERO, 0));
        (1..=1000).for_each(|n| waits.add(Duration::from_micros(100 * n)));
        let p99 = waits.quantile(990);
        let exact = Duration::from_micros(99_000);
        assert!(p99 >= exact && p99 <= exact * 5 / 4, "{p99:?}");
        assert_eq!((waits.quantile(1000), waits.longest()), (waits.longest, exact + exact / 99));
        let mut sum = LockWaits::default();
        sum.merge(&waits);
        assert_eq!(sum, waits);
        waits.add(Duration::MAX);
        assert_eq!(waits.count(), 1001);
    }
}
