//! Worlds of real nodes in virtual time: thousands of `lnet::Node`s, a fabric between them that
//! fails as a scenario says, programs that use them, and judges who look on from outside.
//!
//! ```text
//!   lnet-scenario ─► Sim (sim.rs)
//!                     │ one queue, one clock (queue.rs)
//!      programs.rs ◄──┤──► hosts (host.rs): Node, memory, clock ──► observe.rs: Seen, View
//!                     │                                                │
//!                     ╰──► Fabric (fabric.rs) ◄── links.rs             ├─ trace.rs, check.rs, course.rs
//!                     message/  bytes/, rdma/                         ╰─ tally.rs ─► summary.rs
//! ```
//!
//! The same scenario and the same seed give the same run, to the last message: there are no threads,
//! no clock, and no order but that of the queue. A run is `Sim::new(…)`, [`Sim::observe`] for each
//! who looks on, [`Sim::run`], and [`Summary::new`] of its [`Tally`]; [`play()`] does that.
//!
//! # To build on it
//!
//! - *Another fidelity*: implement [`Fabric`]; there are two. Worlds, faults, workloads and checkers stay. Ask
//!   [`Links::way`] whenever something is to move.
//! - *A checker, recorder or report*: implement [`Observer`]. It is shown [`Seen`] in order, with the
//!   [`View`] of the world at that moment (every host's node can be asked anything), and
//!   [`Seen::Sample`] at regular intervals. Share state with `Rc<RefCell<…>>`, as [`Tracer`] does.
//! - *A protocol on a node*: [`Sim::stand`] puts an `lnet::upper::Upper` on a host, as a real
//!   node's stack has it.
//! - *Targets, clients and calls above LNet*: `rpc/` has them, as scenarios name them.
//! - *Another world*: make a [`lnet_scenario::Scenario`], from a text or in code.
//! - *What if*: add faults to a scenario and [`play()`] it; the [`Summary`] says who noticed when.

mod arrivals;
mod bytes;
mod check;
mod course;
mod directory;
mod fabric;
mod host;
mod links;
mod loss;
mod memory;
mod message;
mod observe;
mod paper;
mod play;
mod programs;
mod queue;
mod rdma;
mod routes;
mod rpc;
mod selftest;
mod sim;
mod summary;
mod swarm;
mod tally;
mod trace;
mod travel;
mod uppers;

pub use bytes::{ByteEvent, Bytes};
pub use check::{Bounds, all_checkers};
pub use course::{Course, Ends, RailCourse, Recorder, SLOTS, Standing};
pub use directory::{Directory, HostId, RailInfo, RailIx};
pub use fabric::{AdapterChange, Cx, Fabric, Happening};
pub use host::{Clock, Host, HostRail};
pub use links::{Effect, Links, Way};
pub use loss::{LossRow, loss_sweep};
pub use memory::{Body, Mem};
pub use message::{MessageEvent, Messages};
pub use observe::{AttemptId, BufferId, Observer, Seen, View, Violation, is_control};
pub use paper::{
    ARMS, Arm, CabinetEvent, CabinetSize, EVENTS, OutageRow, Proof, ProofEvent, SITE_HEAD, SiteRun,
    SiteSecond, SpanRow, cabinets, not_rising, outage_sweep, play_cabinets, prove, span_sweep,
    unmet,
};
pub use paper::{
    Moment, PaperRow, Unit, paper_drivers, paper_locks, paper_routers, paper_rpc, paper_sweeps,
};
pub use play::{Played, play, play_before};
pub use rpc::{
    Answered, Asked, CallNo, Dump, Dumps, FileAnswer, FileAt, FileBytes, FileFailure, FileModel,
    FileOp, FilePath, FileSeen, FileShown, Found, KeyNo, LockModel, LockSeen, LockWant, RpcFigures,
    RpcModel, RpcSeen, RpcTally,
};
pub use selftest::SelftestFigures;
pub use sim::{Sim, Watch};
pub use summary::{FaultSummary, Summary};
pub use swarm::{Floor, Model, Round, seed_of};
pub use tally::{FaultSeen, Tally};
pub use trace::{Detail, Trace, Tracer};
pub use uppers::MakeUpper;
