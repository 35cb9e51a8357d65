//! Counts of durations by size, for views and metrics: what an average hides.

use core::time::Duration;

use crate::estimate::nanos;

/// A histogram of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// One more than there are bounds: the last counts what is beyond all of them.
    counts: [u64; Self::BOUNDS.len() + 1],
    /// Nanoseconds: of 500 years, as of all more.
    sum: u64,
}

impl Histogram {
    /// Upper bounds of the classes, each included. They end at the longest that a request may take
    /// with at_max at its default.
    pub const BOUNDS: [Duration; 12] = [
        Duration::from_millis(1),
        Duration::from_millis(10),
        Duration::from_millis(100),
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_secs(5),
        Duration::from_secs(10),
        Duration::from_secs(30),
        Duration::from_secs(60),
        Duration::from_secs(120),
        Duration::from_secs(300),
        Duration::from_secs(600),
    ];

    /// Counts a duration.
    pub fn add(&mut self, took: Duration) {
        let took = nanos(took);
        let class = NANOS.partition_point(|bound| *bound < took);
        if let Some(count) = self.counts.get_mut(class) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(took);
    }

    /// Counts by class; the last one has no bound.
    pub const fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    pub const fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }
}

/// [`Histogram::BOUNDS`] in nanoseconds.
const NANOS: [u64; Histogram::BOUNDS.len()] = {
    let mut nanos = [0; Histogram::BOUNDS.len()];
    let mut at = 0;
    while at < nanos.len() {
        // Far below 500 years.
        nanos[at] = Histogram::BOUNDS[at].as_nanos() as u64;
        at += 1;
    }
    nanos
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_class_whose_bound_it_does_not_exceed() {
        let mut histogram = Histogram::default();
        for (millis, class) in
            [(0, 0), (1, 0), (2, 1), (500, 3), (501, 4), (600_000, 11), (600_001, 12)]
        {
            let before = histogram.counts()[class];
            histogram.add(Duration::from_millis(millis));
            assert_eq!(histogram.counts()[class], before + 1, "{millis} ms");
        }
        assert_eq!((histogram.count(), histogram.sum()), (7, Duration::from_millis(1_201_005)));
    }
}
