//! Unused locks of a client, and which of them go (L-58): the least recently used first, by the volume
//! that the server allows or by their number, and by age.

use core::time::Duration;
use std::collections::BTreeSet;

use lnet_types::Instant;

use super::LockId;

/// The cache is looked at so often.
const PERIOD: Duration = Duration::from_secs(10);
/// A round that begins removes at least so many.
const ROUND_MIN: usize = 16;

/// What an administrator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Unused locks of one import, where the server says nothing of its volume.
    pub lru_size: usize,
    /// An unused lock goes after so long.
    pub max_age: Duration,
    /// The volume of a lock grows so many times as fast as it is idle.
    pub factor: u64,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { lru_size: 800, max_age: Duration::from_secs(600), factor: 1 }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Cache {
    limits: CacheLimits,
    /// By last use.
    locks: BTreeSet<(Instant, LockId)>,
    /// The server's volume; 0: it has named none.
    slv: u64,
    /// When it is looked at next.
    due: Option<Instant>,
}

impl Cache {
    pub(super) const fn new(limits: CacheLimits) -> Self {
        Self { limits, locks: BTreeSet::new(), slv: 0, due: None }
    }

    pub(super) fn insert(&mut self, now: Instant, used: Instant, lock: LockId) {
        self.locks.insert((used, lock));
        self.due.get_or_insert(now + PERIOD);
    }

    pub(super) fn remove(&mut self, used: Instant, lock: LockId) {
        self.locks.remove(&(used, lock));
    }

    pub(super) fn clear(&mut self) {
        self.locks.clear();
        self.due = None;
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.locks.len()
    }

    /// A reply names the server's volume. Whether the cache is to be looked at now: it fell by a tenth.
    pub(super) fn volume(&mut self, now: Instant, slv: u64) -> bool {
        let fell = slv != 0 && slv <= self.slv / 10 * 9;
        if slv != 0 {
            self.slv = slv;
        }
        if fell && !self.locks.is_empty() {
            self.due = Some(now);
        }
        fell
    }

    /// Locks that are to go now. The cache is due again after its period.
    pub(super) fn round(&mut self, now: Instant) -> Vec<LockId> {
        let surplus = self.surplus(now);
        let count = if surplus == 0 { 0 } else { surplus.max(ROUND_MIN) };
        let gone: Vec<LockId> =
            (0..count).map_while(|_| self.locks.pop_first()).map(|(_, lock)| lock).collect();
        self.due = (!self.locks.is_empty()).then_some(now + PERIOD);
        gone
    }

    /// How many of the oldest are too many.
    fn surplus(&self, now: Instant) -> usize {
        let CacheLimits { lru_size, max_age, factor } = self.limits;
        let over = if self.slv == 0 { self.locks.len().saturating_sub(lru_size) } else { 0 };
        let unused = self.locks.len() as u64;
        let goes = |(n, (used, _)): &(usize, &(Instant, LockId))| {
            let idle = now.saturating_since(*used);
            let left = unused - *n as u64;
            let volume = idle.as_secs().saturating_mul(left).saturating_mul(factor);
            idle >= max_age || self.slv != 0 && volume >= self.slv || *n < over
        };
        self.locks.iter().enumerate().take_while(goes).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_secs(1000);

    fn at(secs: u64) -> Instant {
        START + Duration::from_secs(secs)
    }

    /// A hundred locks, the n-th of which was used last at second n.
    fn hundred(limits: CacheLimits) -> Cache {
        let mut cache = Cache::new(limits);
        (0..100).for_each(|n| cache.insert(at(n), at(n), LockId(n)));
        cache
    }

    #[test]
    fn l58_without_a_volume_at_most_lru_size_locks_stay_and_a_round_takes_at_least_16() {
        let limits = CacheLimits { lru_size: 98, ..CacheLimits::default() };
        let mut cache = hundred(limits);
        let gone = cache.round(at(100));
        assert_eq!(gone, (0..16).map(LockId).collect::<Vec<_>>());
        assert_eq!(cache.round(at(101)), []);
        let mut cache = hundred(CacheLimits { lru_size: 50, ..limits });
        assert_eq!(cache.round(at(100)).len(), 50);
    }

    #[test]
    fn l58_with_a_volume_the_oldest_goes_while_its_share_reaches_it() {
        let mut cache = hundred(CacheLimits { lru_size: 1, ..CacheLimits::default() });
        // The oldest is idle for 100 s: 100 x 100.
        assert!(!cache.volume(at(100), 10_001));
        assert_eq!(cache.round(at(100)), []);
        assert!(cache.volume(at(100), 9_000));
        assert_eq!(cache.due(), Some(at(100)));
        // 100 x 100, 99 x 99 and so on down to 95 x 95, and the least of a round.
        assert_eq!(cache.round(at(100)).len(), 16);
        // 0: the server names none.
        assert!(!cache.volume(at(101), 0));
        // 84 that are left: 84 x 85 is below 9,000.
        assert_eq!(cache.round(at(101)), []);
        // A little less is no reason to look at once.
        assert!(!cache.volume(at(101), 8_999));
    }

    #[test]
    fn l58_a_lock_that_is_idle_for_ten_minutes_goes_and_the_cache_is_looked_at_each_ten_seconds() {
        let mut cache = Cache::new(CacheLimits::default());
        assert_eq!(cache.due(), None);
        cache.insert(at(0), at(0), LockId(1));
        assert_eq!(cache.due(), Some(at(10)));
        assert_eq!((cache.round(at(599)), cache.due()), (vec![], Some(at(609))));
        assert_eq!((cache.round(at(600)), cache.due()), (vec![LockId(1)], None));
    }
}
