//! Numbers of requests (P-44): one counter for a node.

use core::time::Duration;

use lnet_types::Prng;

/// Between two numbers there is room for the match bits of the bulk data of one request.
pub(crate) const STEP: u64 = 128;
/// 2004-01-01: a clock before that is not set.
const CLOCK_IS_SET: u64 = 1_072_915_200;
const NANOS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct Xids(u64);

impl Xids {
    /// Numbers above all that were given out before `wall`, the time since 1970. The part of a second
    /// counts: what is late of a program that ended a moment ago must not fit a request of the next
    /// one.
    pub(crate) fn new(wall: Duration, prng: &mut Prng) -> Self {
        let first = match wall.as_secs() {
            ..CLOCK_IS_SET => prng.next_u64() >> 2 | 1 << 61,
            secs => (secs << 20) + (u64::from(wall.subsec_nanos()) << 20) / NANOS,
        };
        Self(first & !(STEP - 1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 += STEP;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_by_128_from_the_time_or_a_random_start() {
        let at = |millis| Xids::new(Duration::from_millis(millis), &mut Prng::new(1));
        let mut xids = at(1_795_000_000_000);
        let first = xids.next();
        assert_eq!((first >> 20, first % STEP), (1_795_000_000, 0));
        assert_eq!(xids.next(), first + STEP);
        assert!(at(1_795_000_000_001).next() > first + 7 * STEP, "a millisecond later");
        assert!(at(1_795_000_000_999).next() < at(1_795_000_001_000).next());
        let random = at(5000).next();
        assert!(random >= 1 << 61 && random.is_multiple_of(STEP));
    }
}
