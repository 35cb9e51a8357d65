//! Every byte layout of the LNet family, and nothing else: total decoders (any bytes give a value
//! or a `WireError`, in bounded memory and time) and encoders that are their inverse.
//!
//! Three byte-order regimes meet here (wire.md 0): LNet headers are little-endian whatever the
//! hosts are; the acceptor, socklnd and ping info are in the order of their sender, which a magic
//! number announces; NID20s are bytes. We send little-endian and accept both.
//!
//! Read `hdr.rs` for the message header, then `sock.rs` for what TCP puts around it.

mod error;
pub mod hdr;

pub use error::WireError;
pub use hdr::{Handle, Hdr, HdrForm, Kind, MsgType};

/// The largest payload of one message (MTU), bytes.
pub const PAYLOAD_MAX: u32 = 1 << 20;
/// Portals are numbered 0 to 63.
pub const PORTALS: u32 = 64;
