//! How long calls took: counts in buckets that grow by an eighth of a power of two, so that a
//! percentile is right to about 12 %, in a fixed amount of memory.

use core::time::Duration;

use serde::{Deserialize, Serialize};

/// Buckets of one power of two.
const STEPS: u32 = 8;
/// Powers of two of a nanosecond: up to about 18 minutes.
const POWERS: u32 = 40;

/// Durations, counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    counts: Vec<u64>,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; (STEPS * POWERS) as usize], sum_ns: 0, max_ns: 0 }
    }
}

/// Where `ns` is counted.
const fn bucket(ns: u64) -> usize {
    let ns = if ns == 0 { 1 } else { ns };
    let power = ns.ilog2();
    let step = if power >= 3 { (ns >> (power - 3)) & 7 } else { (ns << (3 - power)) & 7 };
    let place = power * STEPS + step as u32;
    let last = STEPS * POWERS - 1;
    (if place < last { place } else { last }) as usize
}

/// The upper end of a bucket.
const fn upper(place: usize) -> u64 {
    let (power, step) = (place as u32 / STEPS, place as u64 % STEPS as u64);
    ((8 + step + 1) << power) >> 3
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(ns)) {
            *count += 1;
        }
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The mean; zero of nothing.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.checked_div(self.count()).unwrap_or(0))
    }

    /// The longest.
    pub const fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// What `percent` of them do not exceed, rounded up to the end of a bucket.
    pub fn percentile(&self, percent: u64) -> Duration {
        let wanted = (self.count().saturating_mul(percent.min(100))).div_ceil(100).max(1);
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(upper(place).min(self.max_ns));
            }
        }
        Duration::ZERO
    }

    /// Adds what another one has counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// What has been counted since `before`, which is an earlier state of this one. The longest is
    /// that of the whole time.
    pub fn since(&self, before: &Self) -> Self {
        let pairs = self.counts.iter().zip(before.counts.iter().chain(std::iter::repeat(&0)));
        Self {
            counts: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
            max_ns: self.max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_an_eighth() {
        let mut h = Histogram::default();
        for us in 1..=1000 {
            h.add(Duration::from_micros(us));
        }
        assert_eq!(h.count(), 1000);
        for percent in [1, 50, 90, 99] {
            let got = h.percentile(percent).as_nanos();
            let exact = u128::from(percent) * 10_000;
            assert!(got >= exact && got <= exact * 9 / 8 + 1, "{percent}: {got} for {exact}");
        }
        assert_eq!(h.percentile(100), Duration::from_millis(1));
        assert_eq!(h.max(), Duration::from_millis(1));
    }

    #[test]
    fn every_duration_has_a_bucket_that_holds_it() {
        for shift in 0..64 {
            for near in [0, 1, 2] {
                let ns = (1_u64 << shift).saturating_add(near);
                let place = bucket(ns);
                assert!(place < (STEPS * POWERS) as usize);
                assert!(shift >= 39 || upper(place) >= ns, "{ns}");
            }
        }
        assert_eq!(Histogram::default().percentile(50), Duration::ZERO);
    }

    #[test]
    fn a_difference_has_what_came_between() {
        let mut h = Histogram::default();
        h.add(Duration::from_nanos(10));
        let before = h.clone();
        h.add(Duration::from_nanos(1000));
        let between = h.since(&before);
        assert_eq!((between.count(), between.mean()), (1, Duration::from_nanos(1000)));
    }
}
