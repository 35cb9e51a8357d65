//! Server lock volume (L-59): a number that tells clients how long unused locks may stay in their
//! caches. It grows while clients take fewer locks than planned, and shrinks under load. Advice only.

use lnet_types::Instant;

/// Seconds for which a client may keep a lock at most, in the volume.
const MAX_AGE: u64 = 36_000;

/// The volume of a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slv {
    limit: u64,
    slv: u64,
    /// Locks that were expected for now at the last look.
    plan: u64,
    last: Instant,
}

impl Slv {
    pub(super) fn new(limit: usize) -> Self {
        // The field on the wire has 32 bits.
        let limit = (limit as u64).clamp(1, u32::MAX.into());
        Self { limit, slv: limit * MAX_AGE, plan: limit / 100, last: Instant::ZERO }
    }

    /// The volume and the limit, as in the body of a reply.
    pub(super) const fn fields(self) -> (u64, u32) {
        (self.slv, self.limit as u32)
    }

    /// A look at the number of granted locks. The plan for the next one: 1 % of the free number more
    /// for each second since the last, at most 30 %, and never above the limit.
    pub(super) fn recalculate(&mut self, now: Instant, granted: usize) {
        let period = now.saturating_since(self.last).as_secs();
        if period == 0 {
            return;
        }
        let granted = granted as u64;
        let factor = (self.limit + self.plan).saturating_sub(granted);
        let slv = u128::from(self.slv) * u128::from(factor) / u128::from(self.limit);
        let max = self.limit * MAX_AGE;
        self.slv = u64::try_from(slv).unwrap_or(max).clamp(1, max);
        let step = self.limit.saturating_sub(granted) * period.min(30) / 100;
        (self.plan, self.last) = ((granted + step).min(self.limit), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(slv: &mut Slv, from: u64, granted: impl IntoIterator<Item = usize>) -> Vec<u64> {
        let look = |(n, granted): (u64, usize)| {
            slv.recalculate(Instant::from_secs(from + n), granted);
            slv.fields().0
        };
        (0..).zip(granted).map(look).collect()
    }

    #[test]
    fn the_volume_starts_at_36000_s_for_each_lock_of_the_limit() {
        assert_eq!(Slv::new(1000).fields(), (36_000_000, 1000));
        assert_eq!(Slv::new(0).fields(), (36_000, 1));
        assert_eq!(Slv::new(usize::MAX).fields().1, u32::MAX);
    }

    #[test]
    fn locks_above_the_plan_shrink_the_volume_and_fewer_let_it_grow_to_its_bound() {
        let mut slv = Slv::new(1000);
        let down = looks(&mut slv, 1, [500, 900, 990, 1200, 1200]);
        assert!(down.windows(2).all(|pair| pair[0] > pair[1]), "{down:?}");
        let up = looks(&mut slv, 6, [100; 2000]);
        assert!(up.windows(2).all(|pair| pair[0] <= pair[1]), "{up:?}");
        assert_eq!(up.last(), Some(&36_000_000));
    }

    #[test]
    fn no_load_takes_the_volume_below_1() {
        let mut slv = Slv::new(10);
        let down = looks(&mut slv, 1, [1_000_000; 3]);
        assert_eq!(down, [1, 1, 1]);
    }
}
