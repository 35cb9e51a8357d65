//! What a server serves: kinds of targets above the request layer, and their border to storage. A
//! target is a value: requests and facts of its store go in, answers and orders come out. It opens no
//! file, sends nothing itself, and has no clock.
//!
//! `store.rs` is the border to storage, `memory.rs` a store in memory, `conformance.rs` what any
//! store is put through.

pub mod conformance;
mod memory;
pub mod store;

pub use memory::{Commit, MemoryStore};
pub use store::{DataId, Store, StoreError, StoreFact, StoreOrder};
