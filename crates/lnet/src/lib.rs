//! The LNet node as a value: no sockets, threads, clocks or payload in it. Facts and commands go in
//! as calls that carry `now`; messages, verdicts and events are polled out. (under construction)

mod api;
mod driver;
mod node;
mod output;

pub use api::{
    AttachError, Get, MatchEntry, MdOptions, MdSpec, Position, Put, SendError, Unlink, UnlinkError,
};
pub use driver::{Driver, Link, NI_STOPPED, Ready, Rx};
pub use node::{NiSpec, Node, NodeConfig};
pub use output::{
    DropReason, Event, EventKind, Output, Payload, PeerMisbehaved, Sink, Transmit, Verdict,
};
