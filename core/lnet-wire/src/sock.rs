//! What the TCP driver puts around LNet messages (wire.md 3): `hello.rs` opens a connection,
//! `frame.rs` delimits the messages on it and carries zero-copy acknowledgements, `checksum.rs`
//! is the sum that frames may have.

mod checksum;
mod conn_type;
mod frame;
mod hello;

pub use checksum::Checksum;
pub use conn_type::ConnType;
pub use frame::{COOKIE_FIRST, COOKIE_KEEPALIVE, FrameHdr, FrameType, Noop};
pub use hello::{Hello, IPS_MAX, MAGIC, MAGIC_V1, Version};
