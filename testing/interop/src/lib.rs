//! Golden interop, for tests alone: captures of kernel nodes are played to a running ulnet node over
//! real sockets, and what it does is compared with what the kernel node did in its place.
//!
//! ```text
//!  fixtures/*.pcap ─► capture ─► player ◄── sockets in two namespaces ──► a ulnet node
//!                                  │  └─► traffic ─► tshark
//!                                  ▼
//!                     layout ─► compare ─► report
//! ```
//!
//! `layout.rs` cuts streams into messages and names their fields; `compare.rs` says which fields
//! must be equal and which only used alike; `player.rs` plays; `tshark.rs` asks a second judge.
//! The cases, and how the node is started, are in `tests/interop`. The layouts are written a second
//! time here, apart from `lnet-wire`, so that the judge shares no mistake with the judged.

pub mod capture;
pub mod compare;
pub mod layout;
pub mod player;
pub mod report;
pub mod stage;
pub mod traffic;
pub mod tshark;
