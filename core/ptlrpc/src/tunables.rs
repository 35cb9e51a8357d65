//! Tunables of the request layer (P-3).

use core::time::Duration;

use crate::estimate::Bounds;

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// What an administrator sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Base of all times that are not adaptive.
    pub obd_timeout: Duration,
    /// An import without traffic pings after so long.
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
    /// The most that the bulk data of one request take.
    pub bulk_timeout: Duration,
    /// The least time that clients have for what a server asks of them.
    pub ldlm_enqueue_min: Duration,
    /// A client is evicted when it was silent for this many times [`Tunables::obd_timeout`], in
    /// tenths (DEC-20).
    pub evict_factor: u32,
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
            bulk_timeout: secs(100),
            ldlm_enqueue_min: secs(100),
            evict_factor: 15,
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

    /// The server's part of the time of a connect (P-3, `INITIAL_CONNECT`).
    pub(crate) fn initial_connect(&self) -> Duration {
        (self.obd_timeout / 20).max(secs(5))
    }

    /// The slowest pace of connects (P-3, `CONNECTION_SWITCH_MAX`).
    pub(crate) fn switch_max(&self) -> Duration {
        self.obd_timeout.max(secs(5)).min(secs(50))
    }

    /// A ping after so long when a commit is expected (P-3).
    pub(crate) fn short_ping(&self) -> Duration {
        self.ping_interval.min(secs(7))
    }

    /// A client that was silent for so long is evicted (DEC-20).
    pub(crate) fn evict_after(&self) -> Duration {
        self.obd_timeout * self.evict_factor / 10
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { min: self.at_min, max: self.at_max, history: self.at_history }
    }
}
