//! How much a rail carries: the fastest that it was seen to be, and the load by which it proves to be
//! about as fast again before it is trusted.
//!
//! The load is a burst of keepalives. They concern no caller, every peer throws them away, and the
//! transport's acknowledgement of the last one is the proof. One burst per time of proof
//! (`watch.rs`) is at most [`BURST`] bytes a second for each doubted rail.

use core::time::Duration;

use lnet_types::Instant;

use crate::peer::ConnKey;

/// Bytes of a burst: long enough for a slow rail to show, at 2 Mbit/s a quarter of a second.
pub(crate) const BURST: u64 = 64 << 10;
/// A rail counts as fast as it was if it is slower by no more than this factor.
const FACTOR: u32 = 4;

/// The fastest that a rail was seen to be, bytes per second; 0 while it never had enough to carry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace(u64);

impl Pace {
    /// So many bytes were acknowledged between two looks with so much time between them.
    pub(crate) fn saw(&mut self, bytes: u64, time: Duration) {
        if bytes >= BURST && !time.is_zero() {
            let pace = u128::from(bytes) * 1_000_000_000 / time.as_nanos();
            self.0 = self.0.max(u64::try_from(pace).unwrap_or(u64::MAX));
        }
    }

    /// How long a burst may take, beside the time of round trips and looks. A rail that never had
    /// enough to carry is measured by `limit`, what a byte on the way may take at all: that of a node
    /// that only answers is not trusted for its keepalives either.
    pub(crate) fn burst_time(self, limit: Duration) -> Duration {
        match self.0 {
            0 => limit,
            pace => Duration::from_nanos(BURST * 1_000_000_000 / pace).saturating_mul(FACTOR),
        }
    }
}

/// A burst on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub(crate) conn: ConnKey,
    /// Where it ends in the stream.
    pub(crate) end: u64,
    pub(crate) since: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_observed_load_counts_and_little_traffic_is_no_sample() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        pace.saw(BURST - 1, ms(1));
        assert_eq!(pace.burst_time(ms(50)), ms(50), "nothing is known of it");
        pace.saw(1 << 20, ms(100));
        pace.saw(1 << 20, ms(10));
        pace.saw(1 << 20, ms(1000));
        // 64 KiB of 100 MiB/s, four times.
        assert_eq!(pace.burst_time(ms(50)), Duration::from_micros(2500));
    }
}
