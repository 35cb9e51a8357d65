//! Invariants: what must hold of a node's tables whenever control returns to its caller, and the count
//! of what did not.
//!
//! [`crate::Node::check`] compares all tables with each other: `messages.rs` has messages, the queues that they
//! wait in and what they hold, `tables.rs` timers, interfaces, peers, routes and sessions. It changes
//! nothing. In this crate's tests each call that works off the work list ends with it, as often as it costs no
//! more than the calls themselves (`run.rs`); simulators and fuzz targets call it in any build.
//!
//! `live.rs` has `live!`, the lookup of an id that must exist.

mod live;
mod messages;
mod run;
mod tables;

use core::cell::Cell;
use core::fmt;

pub(crate) use live::live;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub invariant: &'static str,
    /// The entry of which it does not hold.
    pub subject: String,
    /// What the other tables say.
    pub expected: String,
    /// What the entry says.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, subject, expected, found } = self;
        write!(f, "{invariant}: {subject}: expected {expected}, found {found}")
    }
}

impl core::error::Error for Violation {}

/// Compares what an entry says with what the other tables say.
fn expect<T: PartialEq + fmt::Debug>(
    invariant: &'static str,
    subject: impl fmt::Debug,
    expected: T,
    found: T,
) -> Result<(), Violation> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
    Err(Violation { invariant, subject: format!("{subject:?}"), expected, found })
}

/// Upkeep of the invariants. No part of a node's state: recordings do not have it.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    /// Ids that must exist and did not.
    violations: Cell<u64>,
    /// Calls since the last check.
    unchecked: usize,
    /// The node was read from a file, which may say anything: what is missing is counted alone.
    is_from_file: bool,
}

/// Entries that are checked at each call. With more of them, the check comes as many times less often.
const ENTRIES_PER_CHECK: usize = 256;

impl Invariants {
    /// Those of a node that was read from a file.
    pub(crate) fn of_file() -> Self {
        Self { is_from_file: true, ..Self::default() }
    }

    /// An id that must exist does not.
    ///
    /// # Panics
    /// In debug builds, unless the node was read from a file.
    #[cold]
    #[track_caller]
    pub(crate) fn missing(&self, table: &'static str, id: &dyn fmt::Debug) {
        self.violations.set(self.violations.get().saturating_add(1));
        tracing::error!(table, ?id, "an entry that must exist is missing");
        debug_assert!(self.is_from_file, "{table}: {id:?} must exist");
    }
}
