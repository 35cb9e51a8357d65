//! Estimates of how long things take, which learn (P-89 … P-93).

use core::time::Duration;

use lnet_types::Instant;

/// Parts of the history.
const BINS: usize = 4;

/// What every estimate of a node is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least that an estimate says.
    pub min: Duration,
    /// The most that it says; zero is no limit.
    pub max: Duration,
    /// How long it remembers a peak.
    pub history: Duration,
}

/// The worst of what was measured lately (P-89). Nanoseconds inside: idle imports have one or two each,
/// and a [`Duration`] takes twice the room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    current: u64,
    worst: u64,
    worst_at: Instant,
    /// When the first bin began.
    since: Instant,
    bins: [u64; BINS],
    /// Something was measured: the two times mean something.
    measured: bool,
    history: bool,
}

/// A duration, as estimates hold it; one of centuries is as good as any longer one.
pub(crate) fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

impl Estimate {
    /// One that begins with `initial` and remembers peaks.
    pub fn new(initial: Duration) -> Self {
        Self {
            current: nanos(initial),
            worst: nanos(initial),
            worst_at: Instant::ZERO,
            since: Instant::ZERO,
            bins: [0; BINS],
            measured: false,
            history: true,
        }
    }

    /// One that says what was measured last.
    pub fn without_history(initial: Duration) -> Self {
        Self { history: false, ..Self::new(initial) }
    }

    /// What it says.
    pub fn get(&self, bounds: &Bounds) -> Duration {
        Duration::from_nanos(self.current).max(bounds.min)
    }

    /// The worst that was ever measured.
    pub fn worst(&self) -> Duration {
        Duration::from_nanos(self.worst)
    }

    /// When that was; `None` before the first measurement.
    pub fn worst_at(&self) -> Option<Instant> {
        self.measured.then_some(self.worst_at)
    }

    /// The measured peaks, newest part of the history first.
    pub fn bins(&self) -> [Duration; BINS] {
        self.bins.map(Duration::from_nanos)
    }

    /// Takes in a measurement (P-90); zero counts for nothing.
    pub fn measure(&mut self, now: Instant, value: Duration, bounds: &Bounds) {
        let value = nanos(value);
        if value == 0 {
            return;
        }
        let part =
            (nanos(bounds.history) / BINS as u64).max(Duration::from_secs(1).as_nanos() as u64);
        let passed = now.0.saturating_sub(self.since.0);
        if !core::mem::replace(&mut self.measured, true) {
            self.current = value;
            (self.worst, self.worst_at) = (value, now);
            self.bins[0] = value;
            self.since = now;
        } else if passed < part {
            self.bins[0] = self.bins[0].max(value);
            self.current = self.current.max(value);
        } else {
            let shift = passed / part;
            let moved = shift.min(BINS as u64) as usize;
            self.bins.rotate_right(moved);
            self.bins[..moved].fill(0);
            self.current = self.bins.iter().copied().fold(value, u64::max);
            self.bins[0] = value;
            self.since = Instant(self.since.0 + part * shift);
        }
        if self.current > self.worst {
            (self.worst, self.worst_at) = (self.current, now);
        }
        if !self.history {
            self.current = value;
        }
        if !bounds.max.is_zero() {
            self.current = self.current.min(nanos(bounds.max));
        }
        self.current = self.current.max(nanos(bounds.min));
    }
}

/// What a server is given that is estimated to take `e` (P-92).
pub fn timeout_of(e: Duration) -> Duration {
    e + Duration::from_secs(e.as_secs() / 4 + 5)
}

/// The estimate behind a time that a server was given (P-93).
pub fn estimate_of(timeout: Duration) -> Duration {
    let secs = timeout.as_secs();
    Duration::from_secs((secs * 4 / 5).max(5) - 4)
}

/// Whole seconds, rounded up, as they are on the wire.
pub(crate) fn wire_secs(time: Duration) -> u32 {
    let secs = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(secs).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds {
        min: Duration::from_secs(5),
        max: Duration::from_secs(600),
        history: Duration::from_secs(600),
    };

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_peak_is_forgotten_after_three_to_four_parts_of_the_history() {
        // P-91.
        let mut e = Estimate::new(Duration::ZERO);
        let mut measure = |t, v| {
            e.measure(Instant::from_secs(t), secs(v), &BOUNDS);
            (e.get(&BOUNDS).as_secs(), e.bins().map(|b| b.as_secs()))
        };
        assert_eq!(measure(1000, 20), (20, [20, 0, 0, 0]));
        assert_eq!(measure(1100, 3), (20, [20, 0, 0, 0]));
        assert_eq!(measure(1160, 4), (20, [4, 20, 0, 0]));
        assert_eq!(measure(1610, 6), (6, [6, 0, 0, 4]));
        assert_eq!(e.worst(), secs(20));
    }

    #[test]
    fn without_history_the_last_value_counts_within_the_bounds() {
        let mut e = Estimate::without_history(secs(5));
        for (value, says) in [(90, 90), (2, 5), (7, 7), (10_000, 600), (0, 600)] {
            e.measure(Instant::from_secs(9), secs(value), &BOUNDS);
            assert_eq!(e.get(&BOUNDS), secs(says), "after {value}");
        }
    }

    #[test]
    fn estimates_become_timeouts_and_the_way_back() {
        // P-92, P-93, P-95: 11 s with the defaults, 55 s with at_min 40.
        assert_eq!(timeout_of(secs(5)), secs(11));
        assert_eq!(timeout_of(secs(40)), secs(55));
        assert_eq!(estimate_of(secs(11)), secs(4));
        assert_eq!(estimate_of(secs(0)), secs(1));
    }

    /// P-90 once more, without bins: the greatest of what was measured in the present part of
    /// the history and the three before it, parts being counted from the first measurement.
    fn model(steps: &[(u64, u64)], bounds: &Bounds) -> u64 {
        let part = (bounds.history.as_secs() / 4).max(1);
        let Some((first, _)) = steps.iter().find(|(_, v)| *v > 0) else {
            return bounds.min.as_secs();
        };
        let last = steps.iter().rfind(|(_, v)| *v > 0).map_or(0, |(t, _)| (t - first) / part);
        let counts = steps.iter().filter(|(t, v)| *v > 0 && (t - first) / part + 3 >= last);
        let greatest = counts.map(|(_, v)| *v).max().unwrap_or(0);
        greatest.min(bounds.max.as_secs()).max(bounds.min.as_secs())
    }

    proptest! {
        #[test]
        fn p90_an_estimate_is_the_greatest_of_the_last_four_parts_of_its_history(
            pauses in proptest::collection::vec((0u64..400, 0u64..900), 1..40),
            quarter in 0u64..500,
        ) {
            let bounds = Bounds { history: Duration::from_secs(4 * quarter), ..BOUNDS };
            let mut e = Estimate::new(Duration::ZERO);
            let mut steps = Vec::new();
            let mut now = 1000;
            for (pause, value) in pauses {
                now += pause;
                steps.push((now, value));
                e.measure(Instant::from_secs(now), secs(value), &bounds);
                prop_assert_eq!(e.get(&bounds).as_secs(), model(&steps, &bounds));
            }
        }

        #[test]
        fn p92_p93_the_way_back_from_a_timeout_loses_at_most_a_second(e in 5u64..2000) {
            let back = estimate_of(timeout_of(secs(e))).as_secs();
            prop_assert!(back == e || back + 1 == e, "{e} {back}");
        }

        #[test]
        fn an_estimate_stays_in_its_bounds_and_is_never_below_what_was_just_measured(
            steps in proptest::collection::vec((0u64..2000, 0u64..2000), 1..40),
        ) {
            let mut e = Estimate::new(Duration::ZERO);
            let mut now = Instant::from_secs(5);
            for (pause, value) in steps {
                now += secs(pause);
                e.measure(now, secs(value), &BOUNDS);
                let says = e.get(&BOUNDS);
                prop_assert!(says >= BOUNDS.min && says <= BOUNDS.max);
                prop_assert!(says >= secs(value).min(BOUNDS.max));
            }
        }
    }
}
