//! The request layer of Lustre on a running node: calls that wait for their end on any thread, and
//! services that are run on the node's own. Decides nothing: what is sent, again, where and when is
//! `ptlrpc`'s.
//!
//! A *target* is what a client connects to, by its uuid; a *service* is a portal with request buffers
//! and a queue. An [`Import`] is the client's end of a connection: it connects with its first call,
//! connects again when the connection breaks, and sends again what was not answered. A call ends
//! once: with a reply, or with an error that says why there is none. A request that changes something
//! is answered with a transaction number; while the server lives a copy of it is not executed again.
//!
//! `node.rs` is how a program reaches the machine, `host.rs` what runs inside of the node's turn.

mod host;
mod node;

pub use host::Handler;
pub use node::{Done, Import, RpcError, RpcNode};

pub use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
pub use lustre_wire::{ImportKind, Opcode, Portal};
pub use ptlrpc::{
    Answer, Call, CallError, Direction, ExportView, ImportConfig, ImportState, ImportView, Reply,
    Rpc, Served, ServedId, ServerStats, ServiceConfig, ServiceView, TargetConfig,
};
