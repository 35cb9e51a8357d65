//! Numbers of requests (P-44): one counter for a node.

use lnet_types::Prng;

/// Between two numbers there is room for the match bits of the bulk data of one request.
pub(crate) const STEP: u64 = 128;
/// 2004-01-01: a clock before that is not set.
const CLOCK_IS_SET: u64 = 1_072_915_200;

#[derive(Debug)]
pub(crate) struct Xids(u64);

impl Xids {
    /// Numbers above all that were given out before `wall_secs`, seconds since 1970.
    pub(crate) fn new(wall_secs: u64, prng: &mut Prng) -> Self {
        let first =
            if wall_secs < CLOCK_IS_SET { prng.next_u64() >> 2 | 1 << 61 } else { wall_secs << 20 };
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
        let mut xids = Xids::new(1_795_000_000, &mut Prng::new(1));
        let first = xids.next();
        assert_eq!((first >> 20, first % STEP), (1_795_000_000, 0));
        assert_eq!(xids.next(), first + STEP);
        let random = Xids::new(5, &mut Prng::new(1)).next();
        assert!(random >= 1 << 61 && random.is_multiple_of(STEP));
    }
}
