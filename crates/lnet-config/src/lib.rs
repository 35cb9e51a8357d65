//! Configuration: texts in, one validated model out, and what has to be done to get there.
//!
//! Pure: no files, no sockets, no clock. `model.rs` has the nouns, which the control socket
//! (`lnet-admin`) carries as they are; `text.rs` how NIDs look in serialized data.

mod model;
pub mod text;

pub use model::{Interface, LndTunables, NetAdd, NetDel, NetTunables, PeerAdd, PeerDel, Setting};
