//! Interfaces that come and go (HL-lnt-115): whoever goes down again and again is favoured less for
//! a while, though it is up and well. The scheme is that of route flap damping in BGP: each time
//! down is a penalty that halves with `flap_hold_down`; above one bound the interface counts as
//! flapping, until the penalty has decayed below another.

use core::time::Duration;

use lnet_types::Instant;

use crate::meter::Decay;

/// Penalties that make an interface flap, thousandths: the third in short time.
const SUPPRESS: u64 = 2000;
/// Below this it is trusted again.
const REUSE: u64 = 1000;
/// More than so many are not counted: nobody is held down for ever.
const MOST: u64 = 4;

/// The record of an interface.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Flaps {
    penalty: Decay,
    suppressed: bool,
}

impl Flaps {
    /// It went down. `hold_down` seconds, 0: nobody flaps.
    pub(crate) fn down(&mut self, now: Instant, hold_down: i64) {
        let Some(half_life) = half_life(hold_down) else { return };
        if self.penalty.milli(now, half_life) <= REUSE {
            self.suppressed = false;
        }
        self.penalty.add(now, half_life, MOST);
        self.suppressed |= self.penalty.milli(now, half_life) > SUPPRESS;
    }

    /// Whether it is to be favoured less.
    pub(crate) fn is_flapping(&self, now: Instant, hold_down: i64) -> bool {
        self.suppressed
            && !self.penalty.is_empty()
            && half_life(hold_down).is_some_and(|h| self.penalty.milli(now, h) > REUSE)
    }
}

fn half_life(hold_down: i64) -> Option<Duration> {
    u64::try_from(hold_down).ok().filter(|s| *s > 0).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_secs(50) + Duration::from_millis(ms)
    }

    #[test]
    fn the_third_time_down_in_short_time_makes_it_flap_and_time_heals() {
        let mut flaps = Flaps::default();
        for (i, flapping) in [false, false, true, true].into_iter().enumerate() {
            flaps.down(at(1400 * i as u64), 10);
            assert_eq!(flaps.is_flapping(at(1400 * i as u64), 10), flapping, "time {i}");
        }
        assert!(flaps.is_flapping(at(4200 + 10_000), 10));
        assert!(!flaps.is_flapping(at(4200 + 20_000), 10));
        // Trusted again: it has to go down three times more.
        flaps.down(at(60_000), 10);
        assert!(!flaps.is_flapping(at(60_000), 10));
    }

    #[test]
    fn no_interface_is_held_down_for_longer_than_twice_the_hold_down() {
        let mut flaps = Flaps::default();
        for i in 0..10_000 {
            flaps.down(at(i), 10);
        }
        assert!(flaps.is_flapping(at(10_000 + 19_000), 10));
        assert!(!flaps.is_flapping(at(10_000 + 20_200), 10));
    }

    #[test]
    fn rare_losses_and_a_hold_down_of_0_do_not_make_it_flap() {
        let mut flaps = Flaps::default();
        for i in 0..10 {
            flaps.down(at(30_000 * i), 10);
            assert!(!flaps.is_flapping(at(30_000 * i), 10));
        }
        let mut off = Flaps::default();
        for i in 0..10 {
            off.down(at(i), 0);
        }
        assert!(!off.is_flapping(at(10), 0));
    }
}
