//! How long a recovery waits, as pure arithmetic (P-146 … P-148).

use core::time::Duration;

use lnet_types::Instant;

use crate::estimate::timeout_of;
use crate::tunables::{RECONNECT_MAX, Tunables};

/// The timer stands so much behind the end of the window (P-147).
const SLACK: Duration = Duration::from_millis(500);

/// The time that a target gives its clients. It begins with the first that returns, only grows, and
/// has an end that nothing moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    began: Option<Instant>,
    span: Duration,
    hard: Duration,
}

/// What the timer of a window has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// It came too early.
    Running,
    /// The window was over, and has been extended for those that are at work.
    Extended,
    /// There is no more time.
    Hard,
}

impl Window {
    pub(super) fn new(tunables: &Tunables) -> Self {
        let hard = tunables.recovery_hard();
        Self { began: None, span: tunables.recovery_soft().min(hard), hard }
    }

    /// Begins with the first client; `false` if it has begun before.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let first = self.began.is_none();
        self.began.get_or_insert(now);
        first
    }

    pub(super) fn span(&self) -> Duration {
        self.span
    }

    pub(super) fn hard(&self) -> Duration {
        self.hard
    }

    /// When the timer is due; `None` before the first client is back.
    pub(super) fn due(&self) -> Option<Instant> {
        self.began.map(|began| began + self.span + SLACK)
    }

    /// How long it has lasted.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now.saturating_since(began))
    }

    /// What is left of it.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.span.saturating_sub(self.elapsed(now))
    }

    /// It lasts at least so long.
    pub(super) fn at_least(&mut self, span: Duration) {
        self.span = self.span.max(span.min(self.hard));
    }

    /// At least `time` is left.
    pub(super) fn prolong(&mut self, now: Instant, time: Duration) {
        self.at_least(self.elapsed(now).saturating_add(time));
    }

    /// The timer is due (P-148).
    pub(super) fn expire(&mut self, now: Instant) -> Expiry {
        if self.due().is_none_or(|due| now < due) {
            return Expiry::Running;
        }
        if self.span >= self.hard {
            return Expiry::Hard;
        }
        self.at_least(self.elapsed(now).saturating_add(RECONNECT_MAX));
        Expiry::Extended
    }
}

/// The least that a window lasts for a client that says how long its requests take (P-147).
pub(crate) fn floor_of(said: Duration, tunables: &Tunables) -> Duration {
    let switches = (tunables.switch_max() + crate::tunables::SWITCH) * 2;
    timeout_of(said).saturating_add(tunables.initial_connect() * 2 + switches)
}

/// What a client needs for its next request after one that was repeated (P-137, P-147). `service` is
/// the estimate of the portal, `net` what the client says of the net, `left` what is left of the time
/// of the request.
pub(crate) fn prolong_time(
    service: Duration,
    net: Duration,
    left: Duration,
    tunables: &Tunables,
) -> Duration {
    if tunables.at_max.is_zero() {
        return tunables.obd_timeout;
    }
    let at = timeout_of(service) + net;
    let request = at.max(left + net / 2);
    let whole = request + at + tunables.initial_connect() + net;
    (whole + whole / 16).max(tunables.ldlm_enqueue_min)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn at(n: u64) -> Instant {
        Instant::from_secs(n)
    }

    #[test]
    fn the_window_is_three_obd_timeouts_from_the_first_client_on() {
        let mut window = Window::new(&Tunables::default());
        assert_eq!((window.due(), window.expire(at(5000))), (None, Expiry::Running));
        assert!(window.begin(at(100)));
        assert!(!window.begin(at(150)));
        let half = Duration::from_millis(500);
        assert_eq!(window.due(), Some(at(400) + half));
        assert_eq!(window.expire(at(400)), Expiry::Running);
        // P-148: 60 s more for those that are at work, again and again, up to nine obd_timeouts.
        let mut ends = Vec::new();
        loop {
            let due = window.due().unwrap();
            ends.push((due.saturating_since(at(100)) - half).as_secs());
            if window.expire(due) == Expiry::Hard {
                break;
            }
        }
        assert_eq!(ends, [300, 360, 421, 481, 542, 602, 663, 723, 784, 844, 900]);
    }

    #[test]
    fn a_slow_client_widens_the_window() {
        let tunables = Tunables::default();
        // t(5) = 11, two connects of 5 s, two pauses of 55 s.
        assert_eq!(floor_of(secs(5), &tunables), secs(11 + 10 + 110));
        let mut window = Window::new(&tunables);
        window.at_least(floor_of(secs(5), &tunables));
        assert_eq!(window.span(), secs(300));
        window.at_least(floor_of(secs(300), &tunables));
        assert_eq!(window.span(), secs(300 + 75 + 5 + 120));
        window.at_least(floor_of(secs(u64::from(u32::MAX)), &tunables));
        assert_eq!(window.span(), window.hard());
    }

    #[test]
    fn each_replay_leaves_time_for_the_next() {
        let tunables = Tunables::default();
        // at = 11 + 5, request = 16, whole = 16 + 16 + 5 + 5 = 42: less than the least.
        let time = prolong_time(secs(5), secs(5), secs(3), &tunables);
        assert_eq!(time, secs(100));
        // at = 80, request = 80, whole = 80 + 80 + 5 + 0 = 165.
        let time = prolong_time(secs(60), secs(0), secs(7), &tunables);
        assert_eq!(time, secs(165) + secs(165) / 16);
        let off = Tunables { at_max: Duration::ZERO, ..tunables };
        assert_eq!(prolong_time(secs(60), secs(5), secs(7), &off), secs(100));
        let mut window = Window::new(&off);
        window.begin(at(0));
        window.prolong(at(200), secs(100));
        assert_eq!(window.span(), secs(300));
        window.prolong(at(250), secs(100));
        assert_eq!(window.span(), secs(350));
    }

    proptest! {
        #[test]
        fn a_window_only_grows_and_never_beyond_its_hard_end(
            obd in 1u64..10_000,
            steps in prop::collection::vec((0u8..4, 0u64..2_000), 1..60),
        ) {
            let tunables = Tunables { obd_timeout: secs(obd), ..Tunables::default() };
            let mut window = Window::new(&tunables);
            let began = at(1000);
            let mut now = began;
            window.begin(now);
            let mut hard = false;
            for (step, value) in steps {
                let before = window;
                match step {
                    0 => now += secs(value),
                    1 => window.at_least(secs(value)),
                    2 => {
                        window.prolong(now, secs(value));
                        prop_assert!(
                            window.left(now) >= secs(value) || window.span() == window.hard()
                        );
                    }
                    _ => match window.expire(now) {
                        Expiry::Running => prop_assert!(window == before),
                        Expiry::Extended => {
                            prop_assert!(before.due().unwrap() <= now);
                            prop_assert!(
                                window.left(now) == RECONNECT_MAX || window.span() == window.hard()
                            );
                        }
                        Expiry::Hard => {
                            prop_assert!(now >= began + window.hard());
                            hard = true;
                        }
                    },
                }
                prop_assert!(window.span() >= before.span());
                prop_assert!(window.due().unwrap() <= began + window.hard() + SLACK);
            }
            // Two expiries behind the hard end are always enough to be over.
            let late = began + window.hard() + secs(1);
            window.expire(late);
            prop_assert!(hard || window.expire(late) == Expiry::Hard);
        }
    }
}
