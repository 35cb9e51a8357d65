//! Flap damping (HL-lnt-115): an interface that goes down again and again is favoured less for a
//! while, though it is up and healthy. The scheme is that of route flap damping in BGP: each time
//! down is a penalty that halves with `flap_hold_down`; above one bound the interface counts as
//! flapping, until the penalty has decayed below another. An interface that has begun again before
//! that was forgotten has to be steady for longer each time.

use core::time::Duration;

use lnet_types::Instant;

use crate::meter::Decay;

/// Penalties that make an interface flap, thousandths: the third in short time.
const SUPPRESS: u64 = 2000;
/// Below this it is trusted again.
const REUSE: u64 = 1000;
/// Limit of the counted penalties, so that no interface is held down for ever.
const MOST: u64 = 4;
/// An interface that has not gone down for so many hold-downs is treated as new.
const FORGET: u32 = 30;
/// It is not held down for longer than 2 to the power of this hold-downs after its last fall.
const DOUBLINGS_MAX: u8 = 3;

/// The record of an interface, which begins when it goes down for the first time.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Flaps(Option<Box<Falls>>);

impl Flaps {
    /// It went down. `hold_down` in seconds; 0 turns damping off.
    pub(crate) fn down(&mut self, now: Instant, hold_down: i64) {
        self.0.get_or_insert_default().down(now, hold_down);
    }

    /// Whether it is to be favoured less.
    #[inline]
    pub(crate) fn is_flapping(&self, now: Instant, hold_down: i64) -> bool {
        self.0.as_ref().is_some_and(|falls| falls.is_flapping(now, hold_down))
    }
}

/// What is kept of the times that an interface went down.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
struct Falls {
    penalty: Decay,
    suppressed: bool,
    /// When it went down last.
    fell: Instant,
    /// How often it has begun to flap, since it was new.
    spells: u8,
}

impl Falls {
    fn down(&mut self, now: Instant, hold_down: i64) {
        let Some(half_life) = half_life(hold_down) else { return };
        if now >= self.fell + half_life * FORGET {
            self.spells = 0;
        }
        self.suppressed = self.is_flapping(now, hold_down);
        self.penalty.add(now, half_life, MOST);
        self.fell = now;
        if !self.suppressed && self.penalty.milli(now, half_life) > SUPPRESS {
            self.suppressed = true;
            self.spells = self.spells.saturating_add(1);
        }
    }

    fn is_flapping(&self, now: Instant, hold_down: i64) -> bool {
        let Some(half_life) = half_life(hold_down).filter(|_| self.suppressed) else {
            return false;
        };
        let doublings = self.spells.saturating_sub(1).min(DOUBLINGS_MAX);
        let relapsed = doublings > 0 && now < self.fell + half_life * (1 << doublings);
        relapsed || (!self.penalty.is_empty() && self.penalty.milli(now, half_life) > REUSE)
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
    fn the_third_fall_in_short_time_makes_an_interface_flap_until_time_has_passed() {
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

    /// Three falls, a second apart, from `from` ms on.
    fn spell(flaps: &mut Flaps, from: u64) {
        for i in 0..3 {
            flaps.down(at(from + 1000 * i), 10);
        }
    }

    #[test]
    fn an_interface_that_flaps_again_is_held_down_twice_as_long_up_to_a_limit() {
        let mut flaps = Flaps::default();
        let mut from = 0;
        for hold in [20, 20, 40, 80, 80] {
            spell(&mut flaps, from);
            let steady =
                (1..).find(|s| !flaps.is_flapping(at(from + 2000 + 1000 * s), 10)).unwrap();
            assert!((hold - 8..=hold).contains(&steady), "{steady} s instead of {hold}");
            from += 2000 + 1000 * steady;
        }
        // After five minutes of quiet it is as new.
        from += 300_000;
        spell(&mut flaps, from);
        assert!(!flaps.is_flapping(at(from + 22_000), 10));
    }

    #[test]
    fn rare_falls_and_a_hold_down_of_0_make_no_interface_flap() {
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
