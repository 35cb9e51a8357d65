//! The recovery of a target after its start (P-145 … P-153).

mod change;

pub use change::{RecoveryChange, RecoveryOutcome};
