//! The LNet node as a value: no sockets, threads, clocks or payload in it.
//!
//! Facts and commands go in as calls that carry `now`; messages for drivers, verdicts and events
//! are polled out. Same calls, same results, to the byte.
//!
//! ```text
//!   user      put, get, attach, unlink …            poll_event, poll_report
//!                  │                                       ▲
//!   node      send/ ──► select ──► credits ──► Output   events ◄── finish ◄── recv ◄── portal/
//!                  │                                       ▲
//!   driver    Driver::send … tx_done            rx_header → Verdict … rx_done
//! ```
//!
//! The shell that runs a node drains it after every call: `poll_output` to the drivers, then their
//! `flush`, then `poll_event` and `poll_report` upwards, until all are empty; then it sleeps until
//! `poll_timeout`.
//!
//! A message is a PUT or a GET to a *portal* of a node, with 64 *match bits*; the first match entry
//! there that takes those bits, and whose memory descriptor has room, gets it. What matches nothing
//! is dropped and counted; on a lazy portal it waits for a buffer. `lnet-rt`'s first page explains
//! these words to those who don't come from Lustre.
//!
//! Where to read: `driver.rs` and `output.rs` for the border below, `api.rs` for the one above,
//! `entry/` for the calls that cross them and `turn.rs` for what these set in motion; `send/mod.rs` for
//! the way of a message out, `recv.rs` for the way in, `send/finish.rs` for its end, `health.rs` and
//! `peer/discovery.rs` for what follows from it; `policy/` for the administrator's rules, `send/explain.rs` for why a message goes where it goes; `router/` for
//! networks behind other networks; `upper/` for what protocols on a node call and are called by.

mod api;
mod below;
mod blame;
mod budget;
mod check;
mod conduct;
mod counts;
mod cpt;
mod cut_off;
mod dedup;
mod driver;
mod entry;
mod events;
mod fault;
mod flap;
mod handle;
mod health;
mod in_doubt;
mod interfaces;
mod internal;
mod local;
mod loopback;
mod messages;
mod meter;
mod msg;
mod node;
mod notice;
mod numa;
mod op_table;
mod ops;
mod outbox;
mod output;
mod own_data;
mod peer;
mod ping;
mod policy;
mod port;
mod portal;
mod rails;
mod record;
mod recovery;
mod recv;
mod reporting;
mod router;
mod send;
mod snapshot;
mod stats;
mod suspicion;
mod table;
mod timers;
mod tracker;
mod tunables;
mod turn;
mod unlink;
pub mod upper;

pub use api::{
    AttachError, Found, Get, MatchEntry, MdOptions, MdSpec, OpId, Position, Put, Report, Reset,
    SendError, Timeouts, Unlink, UnlinkError,
};
pub use below::{Doubt, InDoubt, Link, NI_STOPPED, Retention, Rx};
pub use blame::Blame;
pub use check::Violation;
pub use conduct::{AttemptLimit, Conduct, ConductError, ConductRow, RecoveryPace, RouterPingLimit};
pub use driver::{Driver, Ready};
pub use fault::rule::{
    DelayRule, DropRule, Errors, FaultRuleError, Kinds, NidMatch, ParseNidMatchError, Traffic, When,
};
pub use fault::{FAULT_RULES_MAX, FaultStats};
pub use local::{NetTunables, NiSpec, NiState};
pub use loopback::Loopback;
pub use meter::{HEAT_HALF_LIFE, Rates, Times, Usage};
pub use node::{Node, NodeConfig};
pub use notice::{Level, NOTICES_MAX, Notice, Pair};
pub use numa::cpt_distances;
pub use output::{
    DropReason, Event, EventKind, Output, Payload, PeerMisbehaved, Sink, Transmit, Verdict,
};
pub use peer::PeerFlags;
pub use peer::refusal::Refusal;
pub use policy::RULES_MAX;
pub use policy::rule::{ParsePatternError, Pattern, Rule, RuleError, RuleKind};
pub use port::HEALTH_MAX;
pub use record::{Difference, Input, Lent, MarkKind, Recording, RecordingError, Replayed};
pub use router::{
    Distance, PoolKind, PoolView, RouteError, RouteSpec, RouteView, RouterMemory, RoutingState,
    RoutingView,
};
pub use send::key::{Criterion, Fact};
pub use send::trace::{
    Candidate, Choice, Explanation, Freedom, Named, Outcome, RESENDS_KEPT, Step,
};
pub use snapshot::{NetView, NiView, PeerNiState, PeerNiView, PeerView};
pub use stats::{
    InDoubtStats, InterfaceStats, KindCounts, Latency, NiFailures, NodeStats, PeerNiFailures,
    Transitions,
};
pub use suspicion::{RailView, SuspicionView};
pub use timers::{Timer, TimerView};
pub use tunables::{Profile, Retries, Row, TunableError, Tunables, Writable};

#[cfg(test)]
mod tests;
