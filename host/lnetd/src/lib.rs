//! `lnetd`: one LNet node as a process, driven through a control socket.
//!
//! It assembles; it decides nothing about LNet. The node runs on its own thread (`lnet-rt`); each
//! client of the control socket has a thread of its own that asks the node's thread and waits, so
//! that a slow or hostile client holds up no other.
//!
//! Read `daemon.rs` for the life of the process, `background.rs` for how it leaves the terminal, `server.rs` for the socket, `clients.rs` for how many may be
//! connected, `credentials.rs` for who may do what there, `control/` for what
//! each request does (a file for each noun), `nets.rs` for interfaces, `views.rs` and `rpc_views.rs` for what is shown, `selftest.rs` for LNet selftest.

mod background;
mod clients;
mod control;
mod cpus;
mod credentials;
mod daemon;
mod http;
mod manual;
mod nets;
mod options;
mod params;
mod picture;
mod rdma;
mod recorder;
mod reload;
mod rpc_views;
pub mod selftest;
mod server;
mod service;
mod views;

pub use daemon::main;
pub use manual::{manual, render_manual};
pub use options::Options;
