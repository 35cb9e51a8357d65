//! Every byte layout of the LNet family, and nothing else: total decoders (any bytes give a value
//! or a `WireError`, in bounded memory and time) and encoders that are their inverse.
//!
//! Three byte-order regimes meet here (wire.md 0): LNet headers are little-endian whatever the
//! hosts are; the acceptor, socklnd and ping info are in the order of their sender, which a magic
//! number announces; NID20s are bytes. We send little-endian and accept both.
//!
//! Read `hdr.rs` for the message header, then `acceptor.rs` and `sock.rs` for what TCP puts around
//! it and `ib.rs` for what RDMA does; `ping.rs` is the one payload that LNet itself reads, `selftest.rs` the RPC of LNet selftest. Every message has a `parse` from the front of a slice, an `emit` that is its inverse, and a
//! one-line `Display`; those without a fixed length have a `need` that says how many bytes to wait
//! for, so that a stream can be cut anywhere.

pub mod acceptor;
mod error;
pub mod hdr;
pub mod ib;
pub mod mark;
mod order;
pub mod ping;
pub mod selftest;
pub mod sock;

pub use error::WireError;
pub use hdr::{Handle, Hdr, HdrForm, Kind, MsgType};
pub use lnet_types::ByteOrder;
pub use order::Need;
pub use ping::{NiStatus, PingEntry, PingInfo};

/// The largest payload of one message (MTU), bytes.
pub const PAYLOAD_MAX: u32 = 1 << 20;
/// Portals are numbered 0 to 63.
pub const PORTALS: u32 = 64;
