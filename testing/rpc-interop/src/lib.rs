//! Conversations of kernel nodes, played to the request layer and compared field by field.
//!
//! ```text
//!  fixtures/ptlrpc/*.pcap ─► recording ─► exchange ─► player ◄──► stage (lnet + ptlrpc)
//!                                                       │
//!                                        fields ─► judge ─► report
//! ```
//!
//! `fields.rs` has the one table that says which field is equal, alike or free, and why. `player/`
//! says which recorded message is the program's doing and which the machine's. `stage/` is
//! the node of ours with its wire: in virtual time, or on TCP. `archive.rs` is for visits to file systems, which
//! ask in their own order, `visit.rs` what those begin with, `alike.rs` which of their fields may differ. The tables are in `tests/`. `kernel.rs` is a recorded server for the tests of whole
//! programs.

pub mod alike;
pub mod archive;
pub mod exchange;
pub mod fields;
pub mod judge;
pub mod kernel;
pub mod player;
pub mod recording;
pub mod report;
pub mod stage;
pub mod visit;
