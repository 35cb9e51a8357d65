//! Every byte of Lustre above LNet, and nothing else: total decoders (any bytes give a value or a
//! [`WireError`], in bounded memory and time) and encoders that are their inverse. Decides nothing,
//! and has no part of LNet's own headers.
//!
//! A message is in the byte order of its sender, which its magic number announces (P-5). We write
//! little-endian and read both; every structure takes the order as an argument ([`Layout`]).
//!
//! Read `msg.rs` for the envelope and `body.rs` for what every message says, then `opcode.rs`, the
//! table of what can be asked for, and `format.rs`, which buffers belong to it. The structures
//! stand by subject: `connect.rs`, `ldlm.rs` (locks), `ost.rs` (objects) and
//! `checksum.rs` (of their data), `mds.rs` (files and
//! names), `striping.rs` (where data lies), `dir.rs` (entries of directories), `llog.rs` and
//! `mgs.rs` (configuration), `fid.rs` (what they are called), `records.rs` (what a target keeps of its
//! clients). `listing.rs` prints messages.

pub mod body;
mod buffers;
pub mod checksum;
pub mod connect;
pub mod dir;
mod error;
pub mod fid;
pub mod format;
mod layout;
pub mod ldlm;
pub mod listing;
pub mod llog;
pub mod mds;
pub mod mgs;
pub mod msg;
pub mod opcode;
pub mod ost;
pub mod portal;
pub mod records;
pub mod striping;

pub use body::{Body, BodyFlags, MsgKind, OpFlags};
pub use buffers::Buffers;
pub use checksum::{Checksum, Sum};
pub use connect::{ConnectData, ConnectFlags, ConnectFlags2};
pub use error::WireError;
pub use fid::Fid;
pub use format::{Format, Part, Variant};
pub use layout::{Layout, Text};
pub use msg::{Header, HeaderFlags, Msg, MsgBuilder};
pub use opcode::{Opcode, Service};
pub use portal::{ImportKind, Portal};
