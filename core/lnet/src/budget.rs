//! Rate limits: a measure of work that empties at a steady rate. Time comes in as an argument.

use core::time::Duration;

use lnet_types::Instant;

/// A measure of work that empties at a steady rate: what does not fit has to wait.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Budget {
    used: u32,
    at: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Self { used: 0, at: Instant::ZERO }
    }
}

impl Budget {
    /// Takes `cost` of `burst`, which comes back at `rate` per second.
    ///
    /// # Errors
    /// Not yet: when there will be room. A cost beyond `burst` counts as `burst`.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        cost: u32,
        burst: u32,
        rate: u32,
    ) -> Result<(), Instant> {
        let cost = cost.min(burst);
        let passed = now.saturating_since(self.at).as_millis();
        let back = u32::try_from(passed * u128::from(rate) / 1000).unwrap_or(u32::MAX);
        if back > 0 {
            self.used = self.used.saturating_sub(back);
            self.at = now;
        }
        let over = (self.used + cost).saturating_sub(burst);
        if over == 0 {
            self.used += cost;
            return Ok(());
        }
        let wait = Duration::from_millis(u64::from(over) * 1000 / u64::from(rate) + 1);
        Err(now + wait)
    }

    /// Whether nothing has been taken of late.
    pub(crate) const fn is_untouched(&self) -> bool {
        self.used == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_its_burst_at_once_and_then_its_rate() {
        let mut budget = Budget::default();
        let start = Instant::from_secs(100);
        for _ in 0..4 {
            assert!(budget.take(start, 10, 40, 20).is_ok());
        }
        let later = budget.take(start, 10, 40, 20).unwrap_err();
        assert!(later > start && later <= start + Duration::from_millis(501));
        assert!(budget.take(later, 10, 40, 20).is_ok(), "when it said");
        assert!(budget.take(later, 10, 40, 20).is_err());
        // Asked in small steps it gives no less than asked once.
        let mut now = later;
        let mut given = 0;
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            given += u32::from(budget.take(now, 10, 40, 20).is_ok());
        }
        assert!((19..=25).contains(&given), "10 s at 2 per second: {given}");
        assert!(budget.take(now, u32::MAX, 40, 20).is_err());
        assert!(budget.take(now + Duration::from_secs(60), u32::MAX, 40, 20).is_ok());
    }
}
