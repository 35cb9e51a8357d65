//! What a server serves: kinds of targets above the request layer, and their border to storage. A
//! target is a value: requests and facts of its store go in, answers and orders come out. It opens no
//! file, sends nothing itself, and has no clock.
//!
//! ```text
//!  ptlrpc ── events ──► targets.rs ──► kv/, lock/, ost/, mgs/, mdt/ (kinds)
//!                           │             │ orders        commit: effect, number, reply record
//!                           │ facts       ▼                       ▼
//!                           ◄───────── store.rs ◄──────────── journal.rs
//! ```
//!
//! `targets.rs` begins; `records.rs` is what a target stores of its clients, and reads back when it
//! starts; `site.rs` describes a file system of `mgs`, `mdt` and `ost`; `store.rs` is the border to storage, `memory.rs` a store in memory, `conformance.rs` what
//! any store is put through.

pub mod conformance;
mod intercepted;
mod journal;
pub mod kv;
pub mod lock;
mod lock_server;
mod mdt;
mod memory;
mod mgs;
pub mod ost;
mod records;
mod sabotage;
mod site;
pub mod store;
mod targets;

pub use intercepted::Intercepted;
pub use journal::{Cx, Journal, When};
pub use kv::Kv;
pub use lock::Lock;
pub use mdt::{Acl, AcrossWire, Mdt};
pub use memory::{Commit, MemoryStore};
pub use mgs::{MGS_UUID, Mgs};
pub use ost::{Ost, OstLimits};
pub use records::{Origin, Start, start};
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use site::{MDTS_MAX, OSTS_MAX, Part, Site, SiteError, SiteTarget};
pub use store::{DataId, Store, StoreError, StoreFact, StoreOrder};
pub use targets::{Beginning, CallbackFact, Kind, Targets, Trouble};

#[cfg(test)]
mod tests;
