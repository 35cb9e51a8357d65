//! Locks in a world: lock targets, programs on clients that take locks, and what must hold of them.
//!
//! ```text
//!   target.rs    the lock target of `lustre-target`, with I/O under its locks
//!   program.rs   programs over `ldlm`'s client: take, use, give back ──► seen.rs ──► model.rs
//! ```

mod model;
mod program;
mod seen;
mod target;

pub use model::LockModel;
pub(super) use program::Locking;
pub use seen::{LockSeen, LockWant};
pub(super) use target::guard;
