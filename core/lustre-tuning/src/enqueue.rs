//! The least that the lock callback timer must be (L-64): time for one lost message, one reconnect and
//! one resend, in and after a quiesce.

use serde::Serialize;

use crate::rule::{Contradiction, Rule, within};

/// The longest time that a tunable may be set to, seconds: a month.
pub const LONGEST: u32 = 2_592_000;
/// at_min that the paper recommends, seconds (PA-116).
pub const AT_MIN: u32 = 40;
/// at_max that the paper recommends, seconds (PA-119).
pub const AT_MAX: u32 = 400;

/// The formula with its terms, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EnqueueMin {
    /// The net's latency, at least at_min (PA-128).
    pub net: u32,
    /// The service's time, at least at_min (PA-128).
    pub service: u32,
    /// The time in which all clients reconnect to all targets after a quiesce (PA-129).
    pub quiesce: u32,
    /// `ldlm_enqueue_min`.
    pub seconds: u32,
}

impl EnqueueMin {
    /// `max(2 × net, net + quiesce) + 2 × service`, net and service being at least `at_min` (L-64).
    ///
    /// # Errors
    /// A value out of its bounds, `at_min` above `at_max`, an estimate above `at_max`, a result that
    /// the tunable can't have or that is below one callback deadline (L-67).
    pub fn of(
        net: u32,
        service: u32,
        quiesce: u32,
        (at_min, at_max): (u32, u32),
    ) -> Result<Self, Contradiction> {
        within("at_min", at_min, 0, LONGEST)?;
        within("at_max", at_max, 1, LONGEST)?;
        within("quiesce", quiesce, 0, LONGEST)?;
        if at_min > at_max {
            let what = format!("at_min {at_min}: at_max is {at_max}");
            return Err(Contradiction::new(Rule::AtBounds, what));
        }
        for (name, value) in [("net", net), ("service", service)] {
            if value > at_max {
                let what = format!("{name} {value}: at_max is {at_max}");
                return Err(Contradiction::new(Rule::EstimateMax, what));
            }
        }
        let (net, service) = (net.max(at_min), service.max(at_min));
        // No sum of numbers of this size overflows.
        let seconds = (2 * net).max(net + quiesce) + 2 * service;
        within("ldlm_enqueue_min", seconds, 1, LONGEST)?;
        let all = Self { net, service, quiesce, seconds };
        all.covers_callback(at_min)?;
        Ok(all)
    }

    /// The least value with these estimates at their least and no quiesce: what one loss needs.
    /// `None` for an `at_min` that no tunable has.
    pub fn least(at_min: u32) -> Option<u32> {
        let needed = at_min.checked_mul(4)?.max(callback_deadline(at_min)?);
        (needed <= LONGEST).then_some(needed)
    }

    /// L-67 (a): else no callback is sent again in time.
    fn covers_callback(&self, at_min: u32) -> Result<(), Contradiction> {
        let deadline = callback_deadline(at_min).unwrap_or(u32::MAX);
        if self.seconds >= deadline {
            return Ok(());
        }
        let what = format!(
            "ldlm_enqueue_min {}: a callback is sent again after {deadline} s (at_min {at_min})",
            self.seconds
        );
        Err(Contradiction::new(Rule::EnqueueCovers, what))
    }
}

impl core::fmt::Display for EnqueueMin {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { net, service, quiesce, seconds } = self;
        write!(f, "{seconds} = max(2 x {net}, {net} + {quiesce}) + 2 x {service}")
    }
}

/// When a callback to a client of which nothing is known yet is sent again, seconds (P-96, L-54): the
/// estimate of the client's service, a quarter of it and 5 s, and the least of the net.
pub fn callback_deadline(at_min: u32) -> Option<u32> {
    let estimate = at_min.max(5);
    estimate.checked_add(estimate / 4 + 5)?.checked_add(estimate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l65_the_seven_rows_come_out() {
        for (at_min, quiesce, net, service, result) in [
            (40, 140, 40, 40, 260),
            (40, 0, 40, 40, 160),
            (5, 0, 5, 5, 20),
            (5, 60, 5, 5, 75),
            (5, 140, 5, 5, 155),
            (40, 40, 40, 40, 160),
            (100, 60, 100, 100, 400),
        ] {
            let all = EnqueueMin::of(net, service, quiesce, (at_min, 600)).unwrap();
            assert_eq!(all.seconds, result, "{all}");
        }
    }

    #[test]
    fn pa128_estimates_below_at_min_count_as_at_min() {
        let all = EnqueueMin::of(1, 2, 140, (40, 400)).unwrap();
        assert_eq!((all.net, all.service, all.seconds), (40, 40, 260));
        assert_eq!(all.to_string(), "260 = max(2 x 40, 40 + 140) + 2 x 40");
    }

    #[test]
    fn values_that_contradict_each_other_are_refused_with_their_rule() {
        for (net, service, quiesce, bounds, text) in [
            (40, 40, 0, (50, 40), "at_min 50: at_max is 40: at_min must not be above at_max"),
            (700, 40, 0, (5, 600), "net 700: at_max is 600: an estimate is never above at_max"),
            (5, 601, 0, (5, 600), "service 601: at_max is 600: an estimate is never above at_max"),
            (
                1,
                1,
                1,
                (0, 600),
                "ldlm_enqueue_min 4: a callback is sent again after 16 s (at_min 0): \
                 ldlm_enqueue_min must cover a lost message, a reconnect and a resend",
            ),
            (
                5,
                5,
                LONGEST,
                (5, 600),
                "ldlm_enqueue_min 2592015: expected 1 to 2592000: a value must be within the bounds \
                 of its tunable",
            ),
            (
                5,
                5,
                u32::MAX,
                (5, 600),
                "quiesce 4294967295: expected 0 to 2592000: a value must be within the bounds of its \
                 tunable",
            ),
        ] {
            let e = EnqueueMin::of(net, service, quiesce, bounds).unwrap_err();
            assert_eq!(e.to_string(), text);
        }
    }

    #[test]
    fn the_bounds_and_the_deadline_are_those_of_the_request_layer() {
        let row = ptlrpc::Tunables::setting("ldlm_enqueue_min").unwrap();
        assert_eq!(row.max, LONGEST);
        let with = |at_min: u32| ptlrpc::Tunables {
            at_min: core::time::Duration::from_secs(at_min.into()),
            ..ptlrpc::Tunables::default()
        };
        for at_min in [5, 40, 100, 333] {
            let tunables = with(at_min);
            let deadline = tunables.server_part(tunables.at_min) + tunables.at_min;
            assert_eq!(callback_deadline(at_min).map(u64::from), Some(deadline.as_secs()));
        }
        assert_eq!((EnqueueMin::least(5), EnqueueMin::least(40)), (Some(20), Some(160)));
        assert_eq!(EnqueueMin::least(u32::MAX), None);
    }
}
