//! Tunables of the request layer (P-3), and what profiles make of them: one table, read by both
//! sides.

use core::time::Duration;

use lnet::Profile;
use lnet_types::Instant;

use crate::estimate::{Bounds, timeout_of};

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// How a deadline is made of estimates (DEC-38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineRule {
    /// The server's part is its estimate, a quarter of it and 5 s (P-95).
    Margin,
    /// The server's part is its estimate.
    Plain,
}

/// When and where a lost connection is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnect {
    /// At once when LNet reaches a node again, else in rounds that get slower (P-61).
    OnNotice,
    /// In rounds of the same pace, the last good node first.
    Interval,
    /// In rounds that get slower, and only to nodes that LNet has discovered (P-60 to P-62).
    Readiness,
}

/// The unit in which requests count time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// As the host's clock says; the wire has whole seconds, rounded up.
    Nanoseconds,
    /// Whole seconds (P-2).
    Seconds,
}

/// When a silent client is evicted (DEC-42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evictor {
    /// After [`Tunables::evict_factor`] (DEC-20).
    Own,
    /// By a deadline of each client that adapts.
    Kernel,
}

/// When idle imports ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinger {
    /// Each when its time has come, with a few others.
    Own,
    /// In passes over all imports, each at the earliest time that was known at the end of the one before:
    /// traffic puts off a ping, and not the pass (P-101).
    Kernel,
}

/// What an administrator sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Base of all times that are not adaptive.
    pub obd_timeout: Duration,
    /// An import without traffic pings after so long. Where servers have a shorter [`Tunables::obd_timeout`],
    /// a quarter of that: they evict who is silent for [`Tunables::evict_factor`] of it.
    pub ping_interval: Duration,
    /// The least that an estimate says.
    pub at_min: Duration,
    /// The most that an estimate says.
    pub at_max: Duration,
    /// How long estimates remember.
    pub at_history: Duration,
    /// An early reply leaves so long before the deadline.
    pub at_early_margin: Duration,
    /// An early reply asks for so much more.
    pub at_extra: Duration,
    /// A service whose requests have waited for so many times [`Tunables::at_max`], none of them taken,
    /// is unhealthy.
    pub at_unhealthy_factor: u32,
    /// Early replies ask for time beyond arrival plus [`Tunables::at_max`], as those of old servers
    /// did (PA-101). For comparisons.
    pub early_reply_defect: bool,
    /// The most that the bulk data of one request take; zero: as long as [`Tunables::at_max`], as it
    /// was before there was a limit of their own (PA-106).
    pub bulk_timeout: Duration,
    /// The least time that clients have for what a server asks of them.
    pub ldlm_enqueue_min: Duration,
    /// A client is evicted when it was silent for this many times [`Tunables::obd_timeout`], in
    /// tenths (DEC-20).
    pub evict_factor: u32,
    /// Exports of the clients on one node; a connect of a further one is refused.
    pub exports_per_node: u32,
    /// Which rule evicts.
    pub evictor: Evictor,
    /// When idle imports ping.
    pub pinger: Pinger,
    /// How a deadline is made of estimates.
    pub deadline: DeadlineRule,
    /// When and where a lost connection is made again.
    pub reconnect: Reconnect,
    /// Whether an import whose call is not answered asks if the server is still the same (DEC-48).
    pub probes: bool,
    /// The unit in which requests count time.
    pub unit: TimeUnit,
    /// Whether a callback to a client goes again when it was not answered (DEC-39).
    pub ast_resend: bool,
    /// Whether LNet has no more time for a request than is left of its deadline (DEC-40).
    pub deadline_limits_lnet: bool,
    /// Whether requests to a target without transactions end with the connection (P-58), and do not
    /// go again.
    pub abort_unreplayable: bool,
    /// Requests of a class that an import has under way at a time (P-88).
    pub max_rpcs_in_flight: u16,
    /// Modifying requests that an import has under way at a time, if the server grants as many
    /// (P-82).
    pub max_mod_rpcs_in_flight: u16,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            obd_timeout: secs(100),
            ping_interval: secs(25),
            at_min: secs(5),
            at_max: secs(600),
            at_history: secs(600),
            at_early_margin: secs(5),
            at_extra: secs(30),
            at_unhealthy_factor: 3,
            early_reply_defect: false,
            bulk_timeout: secs(100),
            ldlm_enqueue_min: secs(100),
            evict_factor: 15,
            exports_per_node: 16_384,
            evictor: Evictor::Own,
            pinger: Pinger::Own,
            deadline: DeadlineRule::Margin,
            reconnect: Reconnect::OnNotice,
            probes: true,
            unit: TimeUnit::Nanoseconds,
            ast_resend: true,
            deadline_limits_lnet: true,
            abort_unreplayable: false,
            max_rpcs_in_flight: 8,
            max_mod_rpcs_in_flight: 7,
        }
    }
}

/// Pace of the second and each further connection (P-3, `CONNECTION_SWITCH_MIN` and `_INC`).
pub(crate) const SWITCH: Duration = secs(5);

/// The longest until a client connects again (P-3, `RECONNECT_DELAY_MAX`).
pub(crate) const RECONNECT_MAX: Duration = secs(60);

impl Tunables {
    /// How long a target waits for its clients at first (P-146).
    pub(crate) fn recovery_soft(&self) -> Duration {
        self.obd_timeout * 3
    }

    /// The longest that a target waits for its clients (P-146).
    pub(crate) fn recovery_hard(&self) -> Duration {
        self.obd_timeout * 9
    }

    /// The rows of a profile. LNet's profiles that have no rows of their own here are those of the
    /// kernel that they describe, or of ours.
    pub fn of(profile: Profile) -> Self {
        let own = Self::default();
        match profile {
            Profile::Default | Profile::Off => own,
            Profile::Documents => {
                let (deadline, reconnect) = (DeadlineRule::Plain, Reconnect::Interval);
                Self { deadline, reconnect, probes: false, ..own }
            }
            Profile::Kernel | Profile::Pre213 => Self {
                evictor: Evictor::Kernel,
                pinger: Pinger::Kernel,
                reconnect: Reconnect::Readiness,
                probes: false,
                unit: TimeUnit::Seconds,
                deadline_limits_lnet: false,
                abort_unreplayable: true,
                ..own
            },
        }
    }

    /// The server's part of the time of a connect (P-3, `INITIAL_CONNECT`).
    pub(crate) fn initial_connect(&self) -> Duration {
        (self.obd_timeout / 20).max(secs(5))
    }

    /// The slowest pace of connects (P-3, `CONNECTION_SWITCH_MAX`).
    pub(crate) fn switch_max(&self) -> Duration {
        match self.reconnect {
            Reconnect::Interval => SWITCH,
            Reconnect::OnNotice | Reconnect::Readiness => {
                self.obd_timeout.max(secs(5)).min(secs(50))
            }
        }
    }

    /// A ping after so long when a commit is expected (P-3).
    pub(crate) fn short_ping(&self) -> Duration {
        self.ping_interval.min(secs(7))
    }

    /// A client that was silent for so long is evicted (DEC-20).
    pub(crate) fn evict_after(&self) -> Duration {
        self.obd_timeout * self.evict_factor / 10
    }

    /// A service that takes none of the requests that wait for so long is unhealthy (P-127).
    pub(crate) fn unhealthy_after(&self) -> Duration {
        self.at_max.saturating_mul(self.at_unhealthy_factor)
    }

    /// The most that the bulk data of one request take (P-52).
    pub(crate) fn bulk_limit(&self) -> Duration {
        if self.bulk_timeout.is_zero() { self.at_max } else { self.bulk_timeout }
    }

    /// What an early reply asks for while its target recovers: a quarter of the window at most (P-124).
    pub(crate) fn extra_in_recovery(&self) -> Duration {
        self.at_extra.min(self.recovery_soft() / 4)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { min: self.at_min, max: self.at_max, history: self.at_history }
    }

    /// The server's part of the time of a request whose service is estimated to take `estimate`
    /// (P-95, DEC-38).
    pub fn server_part(&self, estimate: Duration) -> Duration {
        match self.deadline {
            DeadlineRule::Margin => timeout_of(estimate),
            DeadlineRule::Plain => estimate,
        }
    }

    /// The longest that a request may take, both parts together (PA-122).
    pub fn longest_request(&self) -> Duration {
        if self.at_max.is_zero() {
            return self.obd_timeout;
        }
        self.server_part(self.at_max) + self.at_max
    }

    /// A time as requests count it.
    pub(crate) fn count(&self, at: Instant) -> Instant {
        match self.unit {
            TimeUnit::Nanoseconds => at,
            TimeUnit::Seconds => Instant::from_secs(at.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dec38_each_profile_has_its_longest_request() {
        for (profile, at_600, at_400) in [
            (Profile::Default, 1355, 905),
            (Profile::Documents, 1200, 800),
            (Profile::Kernel, 1355, 905),
        ] {
            let at = |at_max| Tunables { at_max: secs(at_max), ..Tunables::of(profile) };
            assert_eq!(at(600).longest_request(), secs(at_600), "{profile:?}");
            assert_eq!(at(400).longest_request(), secs(at_400), "{profile:?}");
        }
    }

    #[test]
    fn each_profile_has_its_rows() {
        for (profile, deadline, reconnect, unit, evictor, pinger) in [
            (
                Profile::Default,
                DeadlineRule::Margin,
                Reconnect::OnNotice,
                TimeUnit::Nanoseconds,
                Evictor::Own,
                Pinger::Own,
            ),
            (
                Profile::Documents,
                DeadlineRule::Plain,
                Reconnect::Interval,
                TimeUnit::Nanoseconds,
                Evictor::Own,
                Pinger::Own,
            ),
            (
                Profile::Kernel,
                DeadlineRule::Margin,
                Reconnect::Readiness,
                TimeUnit::Seconds,
                Evictor::Kernel,
                Pinger::Kernel,
            ),
        ] {
            let t = Tunables::of(profile);
            assert_eq!((t.deadline, t.reconnect), (deadline, reconnect), "{profile:?}");
            let found = (t.unit, t.evictor, t.pinger);
            assert_eq!(found, (unit, evictor, pinger), "{profile:?}");
            assert_eq!((t.at_min, t.at_max), (secs(5), secs(600)), "{profile:?}");
        }
    }

    #[test]
    fn whole_seconds_forget_what_is_behind_the_point() {
        let at = Instant::from_secs(7) + Duration::from_millis(999);
        assert_eq!(Tunables::of(Profile::Kernel).count(at), Instant::from_secs(7));
        assert_eq!(Tunables::default().count(at), at);
    }
}
