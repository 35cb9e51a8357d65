//! LNet selftest (wire.md 6): the responder that kernel consoles drive, and the console that drives
//! kernel nodes, as one value without sockets, clock or memory of its own.
//!
//! ```text
//!   LNet     request (portals 50, 51)   done (what became of an action)      Action
//!                    │                            │                            ▲
//!   responder  session ─ batches ─ tests ─ units ─┤                            │
//!              serve (brw, ping)                  ├──► calls (RPCs of ours) ───┤
//!   console    groups ─ batches ─ transactions ───┘                            │
//!                    ▲                                                         │
//!   people     Command ──► Answer                       io: tokens, counters ──╯
//! ```
//!
//! The host of a [`Selftest`] carries out what [`Selftest::poll_action`] gives (PUTs, GETs, buffers
//! to be posted), reports each end by its token, and comes back at [`Selftest::poll_timeout`].
//! [`Runner`] does this on a node, as a value that stands on it (`lnet::upper`). Data to be moved is
//! named, not held: a pattern has a length, and only what is to be checked comes back as bytes.
//!
//! Everything is bounded by the numbers in `limits.rs`. Read `node.rs` first, then `session.rs` and
//! `units.rs` for the responder, `console/` for the console, `runner/` for the way to the network.

mod calls;
mod console;
mod histogram;
mod io;
mod limits;
mod node;
mod pattern;
mod runner;
mod serve;
mod session;
mod units;

pub use console::command::{
    Answer, BatchShown, Brw, Check, Command, Counters, Kind, LocalTest, NodeFailure, NodeResult,
    NodeShown, NodeState, Nodes, Report, SessionShown, Target, TestShown, TestSpec,
};
pub use histogram::Histogram;
pub use io::{Action, Data, Done, LnetCounters, Offered, Sink, Token, Wanted};
pub use limits::Settings;
pub use node::{CommandId, Here, Selftest};
pub use pattern::{damage, fill, poison};
pub use runner::Runner;
