//! LNet in user space for C programs: `libulnet.so`, `libulnet.a` and `include/ulnet.h`, over the same
//! [`lnet_rt::NodeHandle`] that Rust programs use. Nothing here decides anything about LNet.
//!
//! ```text
//!   C program ──► abi/*.rs ──► table.rs (what a handle stands for) ──► lnet_rt
//!                    │ ▲
//!                    │ ╰── queue.rs ◄── source.rs: an operation, inbox or attachment and its events
//!                    ╰──► failure.rs: each entry ends with a code and a text, never with a panic
//! ```
//!
//! A handle is a number in the clothes of a pointer: it is looked up and never followed, so one that is
//! NULL, closed or of another kind is an error. Memory of the program is lent ([`lease`]) and comes back
//! before the call or event that says so.
//!
//! [`queue`], [`source`] and [`lease`] know nothing of C; the Python package uses them as well.
//!
//! The header is made from `abi/`: `ULNET_BLESS=1 cargo test -p libulnet` writes it.

pub mod abi;
mod failure;
pub mod lease;
pub mod queue;
pub mod source;
mod table;
