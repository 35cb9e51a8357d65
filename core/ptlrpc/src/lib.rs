//! PtlRPC as a value: requests with replies and bulk data over LNet, connections to targets that are
//! made again when they break, deadlines that learn, requests that are sent again and executed once.
//! No sockets, threads, clocks or payload in it: it stands on `lnet::upper` and is run by the runtime
//! and the simulator alike.
//!
//! ```text
//!  program   import, call, cancel, disconnect      poll_event ─► Ended, Import, Invalidated
//!            serve, add_target, reply, bulk …                 ─► Served, BulkDone, Connected, Evicted
//!  ptlrpc    client/  imports, calls               server/  services, exports, requests in work
//!  lnet      attach, bind, put, get                events of descriptors
//! ```
//!
//! `client/mod.rs` and `server/mod.rs` begin the two halves, which know nothing of each other; what
//! they share is in `common.rs`. Statements `P-n` are those of the reference.

mod client;
mod common;
mod cut;
mod error;
mod estimate;
mod event;
mod histogram;
mod lose;
mod numbered;
mod piece;
mod rpc;
mod sabotage;
mod server;
mod settings;
mod table;
mod timers;
mod tunables;
#[cfg(any(test, feature = "world"))]
pub mod world;
mod xid;

pub use client::{
    BULK_MAX, Bulk, CALLS_PER_IMPORT_MAX, Call, ChoiceReason, ClientStats, Connection, Direction,
    ExplainedNode, Explanation, IMPORTS_MAX, ImportConfig, ImportState, ImportTunables, ImportView,
    LogLine, Never, RETAINED_PER_IMPORT_MAX, Readiness, Terms, UUID_MAX,
};
pub use error::CallError;
pub use estimate::{Bounds, Estimate, estimate_of, timeout_of};
pub use event::{Behind, Event, EvictReason, Replay, Reply, Served, Stuck};
pub use histogram::Histogram;
pub use lose::{LOSE_MAX, Lose, LoseId, Losing, Part};
pub use rpc::{Config, Ptlrpc, Rpc};
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use server::{
    Answer, ClientRecord, EXPORTS_MAX, ExportView, Hold, NrsError, Past, PolicyKind,
    QUEUED_BYTES_PER_EXPORT_MAX, QUEUED_PER_EXPORT_MAX, RECORD_BYTES_PER_EXPORT_MAX,
    RECORDS_PER_EXPORT_MAX, REPLIES_PER_PEER_MAX, RecoveryChange, RecoveryOutcome, RecoveryStage,
    RecoveryView, Release, ReplyRecord, ServerStats, ServiceConfig, ServiceView, TargetConfig,
    TargetView, Waiting,
};
pub use settings::{Setting, SettingError};
pub use table::{CallId, ExportId, ImportId, ServedId, ServiceId, TargetId};
pub use tunables::{DeadlineRule, Evictor, Pinger, Reconnect, TimeUnit, Tunables};

/// The level of the protocol that is spoken, as connect data name it: 2.17.57.
pub const VERSION: u32 = 2 << 24 | 17 << 16 | 57 << 8;

#[cfg(test)]
mod tests;
