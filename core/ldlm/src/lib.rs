//! LDLM, the lock manager of Lustre, as a value: locks on resources, conflicts, callbacks with their
//! timers, the cache of a client. What a lock protects is not known here; no type of LNet, no socket
//! and no clock either.
//!
//! ```text
//!  client/   enqueue, match, cache, replay      on ptlrpc
//!  server/   requests, replies, callbacks       on ptlrpc
//!  space/    the lock machine of a server: decisions alone, holders are numbers
//! ```
//!
//! Begin with `mode.rs` (the matrix), then `space/mod.rs`. Statements `L-n` are those of the
//! reference.

pub mod client;
mod lock;
mod lookup;
mod mode;
mod sabotage;
pub mod server;
pub mod space;

pub use lock::{Cookie, Kind, Refusal};
pub use mode::Mode;
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
