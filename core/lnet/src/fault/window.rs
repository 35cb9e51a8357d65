//! When a fault rule acts: counting windows, time windows, chance (F-7 … F-9). All randomness comes
//! from the node's own generator.

use core::time::Duration;

use lnet_types::{Instant, Prng};

use crate::fault::rule::When;

/// Where a rule is in its window.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Window {
    when: When,
    /// Matching messages of this window so far, and which of them it will be.
    seen: u32,
    hit: u32,
    /// From when on the next matching message is hit, and where the next window begins.
    at: Instant,
    base: Instant,
}

impl Window {
    /// The first window. `first_of_two`: a rate of 2 begins with a hit, as drop rules do (F-7).
    pub(crate) fn new(when: When, first_of_two: bool, now: Instant, rng: &mut Prng) -> Self {
        let mut w = Self { when, seen: 0, hit: 0, at: now, base: now };
        match when {
            When::Rate(n) if n.get() == 2 && first_of_two => {}
            When::Rate(n) => w.hit = rng.below(n.get().into()) as u32,
            When::Interval(s) => {
                w.at = now + some_seconds(s.get(), rng);
                w.base = now + Duration::from_secs(s.get().into());
            }
            When::Random(_) => {}
        }
        w
    }

    /// A message matches: whether it is hit.
    pub(crate) fn hits(&mut self, now: Instant, rng: &mut Prng) -> bool {
        match self.when {
            When::Rate(n) => {
                let hit = self.seen == self.hit;
                self.seen += 1;
                if self.seen == n.get() {
                    (self.seen, self.hit) = (0, rng.below(n.get().into()) as u32);
                }
                hit
            }
            When::Interval(s) => {
                if now < self.at {
                    return false;
                }
                self.base = self.base.max(now);
                self.at = self.base + some_seconds(s.get(), rng);
                self.base += Duration::from_secs(s.get().into());
                true
            }
            When::Random(s) => rng.below(s.get().into()) >= u64::from(s.get() / 2),
        }
    }
}

fn some_seconds(below: u32, rng: &mut Prng) -> Duration {
    Duration::from_secs(rng.below(below.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(when: When, first_of_two: bool, rng: &mut Prng) -> Window {
        Window::new(when, first_of_two, Instant::from_secs(5), rng)
    }

    #[test]
    fn a_rate_hits_one_in_each_window_at_any_place() {
        let rng = &mut Prng::new(4);
        for n in 1..20 {
            let mut w = window(When::new(n, 0, false).unwrap(), false, rng);
            let mut places = vec![0; n as usize];
            for _ in 0..n * 60 {
                let hits: Vec<_> = (0..n as usize).filter(|_| w.hits(w.at, rng)).collect();
                assert_eq!(hits.len(), 1);
                places[hits[0]] += 1;
            }
            assert!(places.iter().all(|hits| *hits > 0), "{places:?}");
        }
    }

    #[test]
    fn a_rate_of_two_begins_with_a_hit_where_the_rule_drops() {
        for seed in 0..50 {
            let rng = &mut Prng::new(seed);
            let mut w = window(When::new(2, 0, false).unwrap(), true, rng);
            assert!(w.hits(w.at, rng));
            assert!(!w.hits(w.at, rng));
        }
    }

    #[test]
    fn an_interval_hits_about_once_per_interval() {
        let rng = &mut Prng::new(9);
        let mut w = window(When::new(0, 4, false).unwrap(), true, rng);
        let start = Instant::from_secs(5);
        let mut hits = 0;
        for ms in 0..400_000u64 {
            hits += u32::from(w.hits(start + Duration::from_millis(ms), rng));
        }
        assert!((99..=101).contains(&hits), "{hits}");
        // Without traffic there is nothing to make up for.
        let later = start + Duration::from_secs(10_000);
        assert!(w.hits(later, rng));
        let again = (1..=100).filter(|s| w.hits(later + Duration::from_secs(*s), rng)).count();
        assert!((24..=26).contains(&again), "{again}");
    }

    #[test]
    fn a_random_fault_rule_hits_half_of_its_times_and_with_an_interval_of_1_s_all() {
        let rng = &mut Prng::new(3);
        let mut hits = |s| {
            let mut w = window(When::new(0, s, true).unwrap(), true, rng);
            (0..1000).filter(|_| w.hits(w.at, rng)).count()
        };
        assert_eq!(hits(1), 1000);
        assert!((450..=550).contains(&hits(2)));
        assert!((450..=550).contains(&hits(10)));
    }
}
