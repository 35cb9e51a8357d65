//! What a client of Lustre knows. A client is a value: operations of programs, events of the request
//! layer and of locks go in; calls go down, ends of operations are polled. It opens no socket and no
//! file, and moves no payload: memory is named, the host reads and sums it.
//!
//! ```text
//!  program   write, read, size, punch, fsync, close        poll_event ─► Done, Free, Sum
//!  osc/      objects of one target: dirty data under locks, promises of space, data requests
//!  below     ldlm::client (locks), ptlrpc (calls)
//! ```
//!
//! Begin with `osc/mod.rs`; a visit to a whole file system is in `visitor/mod.rs`. `raid0.rs` is the
//! arithmetic of files that are spread over objects.

pub mod osc;
pub mod raid0;
mod sabotage;
pub mod visitor;

#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
