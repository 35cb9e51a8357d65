//! The RDMA driver, compatible on the wire with the kernel's o2iblnd: what to post to a queue pair, what
//! to ask of the connection manager and what to report to the node, given what the adapter, the
//! connection manager, the clock and the node say. It chooses no path, repeats no message and judges
//! no health. Everything but `verbs/` is pure: that (feature `io`) is the adapter over devices of the
//! system, and `emulated/` is one without.
//!
//! One [`IbNi`] is one interface. Inputs are its methods; everything that follows is polled as
//! [`Output`] and is to be carried out **in that order**: memory goes back to its owner only behind
//! the output that makes it unreachable for the adapter (RS-096).
//!
//! ```text
//!  node ── send, verdict ─►╮            ╭─► Cm, Receive, Post, Map, Unmap, Copy ── shell
//!       ◄── Event ─────────┤   IbNi     │◄─ connect_request, cm_event, received,
//!                          ╰────────────╯   work_done, mapped, device_event, time
//! ```
//!
//! Payload is named, never held: a message of up to 4 KiB is gathered from spans by the shell when
//! it posts, and copied out of the receive buffer by [`Output::Copy`]; everything larger is written
//! by the adapter of its owner into memory that the other side has mapped.
//!
//! Read `value.rs` first, then `ni/mod.rs`, and follow a message: `ni/transmit.rs` down,
//! `ni/receive.rs` up. `ni/connect.rs` makes connections, `ni/close.rs` ends them, `ni/timers.rs` is
//! all that depends on time. Small machines: `credits.rs`, `flags.rs`, `rdma.rs`, `device.rs`;
//! `fault.rs` has the fates of messages. Statements cited: wire.md 7, behaviour B-1 to B-41.

mod adapter;
mod conn;
mod credits;
mod device;
mod driver;
pub mod emulated;
mod fault;
mod flags;
mod ni;
mod peer;
mod port;
mod rdma;
mod stats;
mod suspicion;
mod tunables;
mod tx;
mod upper;
mod value;
#[cfg(feature = "io")]
mod verbs;

pub use adapter::{Adapter, CmFact, Fact};
pub use credits::{Credits, Excess};
pub use device::{DeviceEffect, DeviceEvent};
pub use driver::IbDriver;
pub use fault::{CloseReason, connect_fault};
pub use flags::Flags;
pub use ni::{IbNi, KEPT_MAX, NiStart};
pub use peer::rank;
pub use port::Port;
pub use rdma::{RdmaError, plan};
pub use stats::Stats;
pub use suspicion::Suspicion;
pub use tunables::{ConfigError, IbConfig, Limits};
pub use upper::Upper;
pub use value::{
    Access, CmCall, CmEvent, CmRejection, ConnId, Event, Landed, MapId, MapMemory, Output, Post,
    QpSize, RequestId, WorkId, Write,
};
#[cfg(feature = "io")]
pub use verbs::{CmConfig, OpenError, PinStats, PortState, Verbs, VerbsConfig, locked_limit};
