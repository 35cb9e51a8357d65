//! What a namespace is made with: its seed and its limits, each with a name.

use core::time::Duration;

/// Limits of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Locks of which clients are advised to keep no more, through SLV (L-59).
    pub locks_soft: usize,
    /// Locks of the namespace; at the limit -EINPROGRESS (L-22.4).
    pub locks: usize,
    /// Locks of one holder.
    pub locks_per_holder: usize,
    /// Waiting locks of one resource.
    pub waiting_per_resource: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            locks_soft: 1_000_000,
            locks: 10_000_000,
            locks_per_holder: 1_000_000,
            waiting_per_resource: 65_536,
        }
    }
}

/// What a namespace is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Cookies and tables follow from it. Another one for each incarnation of a server, so that a
    /// cookie of the former one finds nothing.
    pub seed: u64,
    /// Lower bound of the callback timer, `ldlm_enqueue_min` (L-47).
    pub enqueue_min: Duration,
    /// Limits.
    pub limits: Limits,
}

impl Config {
    /// The defaults, with a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, enqueue_min: Duration::from_secs(100), limits: Limits::default() }
    }
}
