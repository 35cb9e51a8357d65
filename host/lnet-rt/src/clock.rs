//! The one clock of a stack, and the two things that a node needs from the machine at its start:
//! a seed and the wall time (O-11). Nothing else in the workspace reads a clock for the node.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use lnet_types::Instant;

/// Monotonic time since the stack was made, as the node counts it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// A clock that reads zero now.
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        // 584 years fit.
        Instant(self.start.elapsed().as_nanos() as u64)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// 64 unguessable bits: of the keys that the library asks the system for by a call. There may
/// be no `/dev` to read them from.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Wall-clock nanoseconds since 1970: identifies this life of a node in wire handles.
pub(crate) fn incarnation() -> u64 {
    // A clock before 1970 is a machine without a clock: any constant is as good as another there.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
}
