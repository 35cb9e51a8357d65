//! Time that the processes of one run share: microseconds since 1970, read once at the start of a
//! process and monotonic from there on. On one machine two of them agree to a few microseconds.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub type Micros = u64;

/// A clock of one process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: Micros,
    start: Instant,
}

impl Clock {
    /// Reads both clocks of the system.
    pub fn new() -> Self {
        let start = Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: micros(wall), start }
    }

    /// The time now.
    pub fn now(&self) -> Micros {
        self.wall + micros(self.start.elapsed())
    }

    /// How long it is until `at`; zero if that is past.
    pub fn until(&self, at: Micros) -> Duration {
        Duration::from_micros(at.saturating_sub(self.now()))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// A duration in microseconds.
pub fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}
