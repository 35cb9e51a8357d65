//! Unused locks of a client, and which of them go (L-58): the least recently used first, those behind
//! that were used again and again, by the volume that the server allows or by their number, and by age.

use core::time::Duration;
use std::collections::BTreeSet;

use lnet_types::Instant;

use super::LockId;

/// The cache is looked at so often.
const PERIOD: Duration = Duration::from_secs(10);
/// Unused locks of one import, however large a volume the server names: clients of it keep what they know of as
/// many objects.
const UNUSED_MAX: usize = 32_768;
/// A round that begins removes at least so many.
const ROUND_MIN: usize = 16;
/// In a round at most so many lose their protection.
const DEMOTED_MAX: usize = 10;

/// What an administrator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Unused locks of one import, where the server says nothing of its volume.
    pub lru_size: usize,
    /// An unused lock goes after so long.
    pub max_age: Duration,
    /// The volume of a lock grows so many times as fast as it is idle.
    pub factor: u64,
    /// Percent of all unused locks that may be protected: those that were taken out of the cache before
    /// go after the others. 0: plain LRU.
    pub protected: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { lru_size: 800, max_age: Duration::from_secs(600), factor: 1, protected: 30 }
    }
}

/// Locks by last use.
type ByUse = BTreeSet<(Instant, LockId)>;

#[derive(Clone, Debug)]
pub(super) struct Cache {
    limits: CacheLimits,
    /// Those that go first.
    plain: ByUse,
    /// Those that were used again.
    protected: ByUse,
    /// The server's volume; 0: it has named none.
    slv: u64,
    /// When it is looked at next.
    due: Option<Instant>,
}

impl Cache {
    pub(super) const fn new(limits: CacheLimits) -> Self {
        Self { limits, plain: BTreeSet::new(), protected: BTreeSet::new(), slv: 0, due: None }
    }

    /// A lock that is unused from now on, and whether it has been in the cache before.
    pub(super) fn insert(&mut self, now: Instant, lock: LockId, again: bool) {
        let protects = again && self.limits.protected > 0;
        let list = if protects { &mut self.protected } else { &mut self.plain };
        list.insert((now, lock));
        self.due.get_or_insert(now + PERIOD);
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, used: Instant, lock: LockId) -> bool {
        self.plain.remove(&(used, lock)) || self.protected.remove(&(used, lock))
    }

    pub(super) fn clear(&mut self) {
        self.plain.clear();
        self.protected.clear();
        self.due = None;
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn len(&self) -> usize {
        self.plain.len() + self.protected.len()
    }

    /// A reply names the server's volume. Whether the cache is to be looked at now: it fell by a tenth.
    pub(super) fn volume(&mut self, now: Instant, slv: u64) -> bool {
        let fell = slv != 0 && slv <= self.slv / 10 * 9;
        if slv != 0 {
            self.slv = slv;
        }
        if fell && self.len() > 0 {
            self.due = Some(now);
        }
        fell
    }

    /// Locks that are to go now. The cache is due again after its period.
    pub(super) fn round(&mut self, now: Instant) -> Vec<LockId> {
        let begins = self.surplus(now) > 0;
        if begins {
            self.demote();
        }
        let count = if begins { self.surplus(now).max(ROUND_MIN) } else { 0 };
        let mut oldest = || self.plain.pop_first().or_else(|| self.protected.pop_first());
        let mut gone: Vec<LockId> =
            (0..count).map_while(|_| oldest()).map(|(_, lock)| lock).collect();
        // Of the protected ones too none is older than that.
        while let Some(&(used, lock)) = self.protected.first()
            && now.saturating_since(used) >= self.limits.max_age
        {
            self.protected.pop_first();
            gone.push(lock);
        }
        self.due = (self.len() > 0).then_some(now + PERIOD);
        gone
    }

    /// The oldest of those that are protected are so no longer, where they are too many.
    fn demote(&mut self) {
        let most = self.len() * self.limits.protected / 100;
        let over = self.protected.len().saturating_sub(most).min(DEMOTED_MAX);
        self.plain.extend((0..over).map_while(|_| self.protected.pop_first()));
    }

    /// How many are too many, counted in the order in which they go.
    fn surplus(&self, now: Instant) -> usize {
        let CacheLimits { lru_size, max_age, factor, .. } = self.limits;
        let most = if self.slv == 0 { lru_size } else { lru_size.max(UNUSED_MAX) };
        let over = self.len().saturating_sub(most);
        let unused = self.len() as u64;
        let goes = |(n, (used, _)): &(usize, &(Instant, LockId))| {
            let idle = now.saturating_since(*used);
            let left = unused - *n as u64;
            let volume = idle.as_secs().saturating_mul(left).saturating_mul(factor);
            idle >= max_age || self.slv != 0 && volume >= self.slv || *n < over
        };
        self.plain.iter().chain(&self.protected).enumerate().take_while(goes).count()
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
        (0..100).for_each(|n| cache.insert(at(n), LockId(n), false));
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
    fn l58_however_large_the_volume_is_unused_locks_are_bounded() {
        let mut cache = Cache::new(CacheLimits::default());
        cache.volume(at(0), u64::MAX);
        (0..UNUSED_MAX as u64).for_each(|n| cache.insert(at(0), LockId(n), false));
        assert_eq!(cache.round(at(1)), []);
        (0..20).for_each(|n| cache.insert(at(1), LockId(u64::MAX - n), false));
        assert_eq!(cache.round(at(1)), (0..20).map(LockId).collect::<Vec<_>>());
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
        cache.insert(at(0), LockId(1), false);
        assert_eq!(cache.due(), Some(at(10)));
        assert_eq!((cache.round(at(599)), cache.due()), (vec![], Some(at(609))));
        assert_eq!((cache.round(at(600)), cache.due()), (vec![LockId(1)], None));
    }

    /// A hundred locks, the n-th of which was used last at second n; the first so many for the second
    /// time.
    fn used_again(count: u64, limits: CacheLimits) -> Cache {
        let mut cache = Cache::new(limits);
        (0..100).for_each(|n| cache.insert(at(n), LockId(n), n < count));
        cache
    }

    #[test]
    fn l58_locks_that_were_used_again_go_after_the_others_but_for_three_tenths_of_all() {
        let limits = CacheLimits { lru_size: 84, ..CacheLimits::default() };
        let ids = |from: u64, to: u64| (from..to).map(LockId).collect::<Vec<_>>();
        assert_eq!(used_again(10, limits).round(at(100)), ids(10, 26), "the oldest stay");
        // Ten of the fifteen above three tenths lose their protection, and are the oldest.
        assert_eq!(used_again(45, limits).round(at(100)), [ids(0, 10), ids(45, 51)].concat());
        let plain = CacheLimits { protected: 0, ..limits };
        assert_eq!(used_again(45, plain).round(at(100)), ids(0, 16), "plain LRU");
        // Nothing else is left.
        let few = CacheLimits { lru_size: 20, ..limits };
        let gone = used_again(30, few).round(at(100));
        assert_eq!(gone, [ids(30, 100), ids(0, 10)].concat());
    }

    #[test]
    fn l58_lock_that_was_used_again_is_not_older_than_ten_minutes_either() {
        let mut cache = Cache::new(CacheLimits { protected: 100, ..CacheLimits::default() });
        cache.insert(at(0), LockId(1), true);
        cache.insert(at(300), LockId(2), false);
        assert_eq!(cache.round(at(599)), []);
        assert_eq!(cache.round(at(600)), [LockId(1)]);
        assert_eq!((cache.len(), cache.remove(at(300), LockId(2))), (1, true));
        assert!(!cache.remove(at(300), LockId(2)));
    }
}
