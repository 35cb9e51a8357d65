//! How much a rail carries: the fastest that it was seen to be, and the load by which it proves to be
//! about as fast again before it is trusted.
//!
//! The load is a burst of keepalives. They concern no caller, every peer throws them away, and the
//! transport's acknowledgement of the last one is the proof. One burst per time of proof
//! (`watch.rs`) is at most [`BURST`] bytes a second for each doubted rail.
//!
//! While callers use a rail, their own bytes tell the same ([`Run`]): a rail that moves a little all the
//! time is never silent for long, and much worse than one that was late once.

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

/// What a rail has been seen to carry while it had enough to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// A burst would have come through in time.
    Enough,
    /// It would not.
    TooLittle,
}

/// Looks in a row at a connection that has bytes on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    last: Option<Look>,
    /// How long the run is, what was acknowledged in it, and at how many looks.
    time: Duration,
    bytes: u64,
    moves: u32,
    /// What was on the way at one look was all through at the next: it might have carried more.
    idled: bool,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    acked: u64,
    written: u64,
}

impl Run {
    /// Looks with acknowledgements that make a run: segments may be large, and after one look at a fast
    /// rail that stood still everything has come through.
    const MOVES: u32 = 2;

    /// `acked` of `written` bytes are acknowledged. Gives what was acknowledged since the last look,
    /// and how long ago that was.
    pub(crate) fn look(&mut self, now: Instant, acked: u64, written: u64) -> (u64, Duration) {
        let Some(last) = self.last.replace(Look { at: now, acked, written }) else {
            return (0, Duration::ZERO);
        };
        let (moved, time) = (acked.saturating_sub(last.acked), now.saturating_since(last.at));
        self.time += time;
        self.bytes += moved;
        self.idled |= acked >= last.written;
        self.moves += u32::from(moved > 0);
        (moved, time)
    }

    /// Whether a burst would come through within `allowed`, once a run of at least `time` tells.
    pub(crate) fn judge(&mut self, time: Duration, allowed: Duration) -> Option<Carries> {
        if self.moves < Self::MOVES || self.time < time {
            return None;
        }
        let enough =
            u128::from(self.bytes) * allowed.as_nanos() >= u128::from(BURST) * self.time.as_nanos();
        let idled = self.idled;
        self.begin();
        match (enough, idled) {
            (true, _) => Some(Carries::Enough),
            (false, false) => Some(Carries::TooLittle),
            (false, true) => None,
        }
    }

    /// Begins anew with the last look.
    pub(crate) fn begin(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
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

    /// What a run shows that begins with `backlog` bytes, to which as much is added as is
    /// acknowledged: so many bytes from look to look, 12 ms apart. A burst may take 40 ms.
    fn shown(backlog: u64, acknowledged: &[u64]) -> Vec<Carries> {
        let (mut run, mut acked) = (Run::default(), 0);
        run.look(Instant::ZERO, 0, backlog);
        let looks = acknowledged.iter().zip(1u64..);
        let shown = looks.filter_map(|(bytes, n)| {
            acked += bytes;
            run.look(Instant::ZERO + Duration::from_millis(12 * n), acked, acked + backlog);
            run.judge(Duration::from_millis(48), Duration::from_millis(40))
        });
        shown.collect()
    }

    #[test]
    fn little_moved_at_every_look_is_too_little_where_more_was_on_the_way() {
        // 64 KiB in 40 ms are 19,661 bytes from look to look.
        assert_eq!(shown(500_000, &[3000; 8]), [Carries::TooLittle; 2]);
        assert_eq!(shown(500_000, &[3000, 0, 3000, 0, 0, 3000, 3000]), [Carries::TooLittle]);
        assert_eq!(shown(500_000, &[19_660; 4]), [Carries::TooLittle]);
        assert_eq!(shown(500_000, &[19_662; 4]), [Carries::Enough]);
        assert_eq!(shown(500_000, &[19_662; 3]), []);
        assert_eq!(shown(3000, &[3000; 8]), [], "there was nothing more to carry");
        assert_eq!(shown(3000, &[3000, 3000, 90_000, 3000]), [Carries::Enough]);
    }

    #[test]
    fn a_rail_on_which_all_comes_through_after_a_standstill_is_not_slow() {
        let late = [0, 0, 0, 0, 0, 0, 0, 100_000, 0, 0, 0, 0, 0, 0, 0, 100_000];
        assert_eq!(shown(100_000, &late), []);
        assert_eq!(shown(100_001, &late), [Carries::TooLittle], "more was on the way");
    }
}
