//! Files in a world: a file system of our own, visitors that work with its files, and what must hold of
//! them.
//!
//! ```text
//!   target.rs   the file system of a scenario
//!   program.rs  programs that visit it: an operation (op.rs), its end, a rest ──► seen.rs ──► model.rs
//!     visits.rs   the calls of visits (wire.rs) over the request layer               tree.rs ◄──╯
//!     cached.rs   the data of files behind a cache of `lustre_client::osc`   shared.rs ◄──╯
//!     work.rs     an operation by the means of `lustre_client::visitor`
//! ```
//!
//! What a visitor decides is the same code that `lustre_rt::Mount` runs; `visits.rs` is what that crate's
//! host does on a real node.

mod cached;
mod model;
mod op;
mod program;
mod seen;
mod shared;
mod target;
mod tree;
mod visits;
mod wire;
mod work;

pub use model::FileModel;
pub use op::{FileAnswer, FileAt, FileBytes, FileOp, FilePath, FileShown};
pub(super) use program::{Filing, is_visit_of};
pub use seen::{Dump, Dumps, FileFailure, FileSeen, Found};
#[cfg(feature = "sabotage")]
pub(super) use target::metadata;
pub(super) use target::{made, services};
