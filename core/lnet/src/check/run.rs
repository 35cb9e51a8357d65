//! Runs the checks: for callers, and after each call in tests.

use super::{ENTRIES_PER_CHECK, Violation, expect};
use crate::Node;

impl Node {
    /// Times that an entry was missing that must exist: 0 unless the node has a defect. It is not
    /// reset with the counters.
    pub fn invariant_violations(&self) -> u64 {
        self.invariants.violations.get()
    }

    /// Compares all tables with each other. To be called between calls of the node, when it has
    /// nothing left to do.
    ///
    /// # Errors
    /// The first invariant that does not hold: the node has a defect.
    pub fn check(&self) -> Result<(), Violation> {
        expect("the work list is empty", "work", 0, self.outbox.planned())?;
        self.check_messages()?;
        self.check_tables()
    }

    /// Checks the node in the tests of this crate, so often that it costs no more than the calls
    /// themselves. Simulators and fuzz targets call [`Node::check`] when they like.
    ///
    /// # Panics
    /// An invariant does not hold.
    pub(crate) fn check_settled(&mut self) {
        if !cfg!(test) || self.invariants.is_from_file {
            return;
        }
        self.invariants.unchecked += 1;
        if self.invariants.unchecked.saturating_mul(ENTRIES_PER_CHECK) < self.entries() {
            return;
        }
        self.invariants.unchecked = 0;
        #[cfg(test)]
        let (lookups, walks) = (self.peers.lookups.0.get(), self.msgs.walks.get());
        if let Err(violation) = self.check() {
            panic!("{violation}");
        }
        // Those of the check are none of a message's.
        #[cfg(test)]
        self.peers.lookups.0.set(lookups);
        #[cfg(test)]
        self.msgs.walks.set(walks);
    }

    /// Entries of the tables that a check walks.
    fn entries(&self) -> usize {
        let mds = self.portals.mds.capacity();
        self.msgs.capacity() + self.peers.nis.capacity() + mds + self.sessions.len()
    }
}
