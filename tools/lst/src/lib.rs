//! `lst`: the console of LNet selftest, with the commands, texts and exit codes that people know
//! from kernel LNet (lnetctl.md 9).
//!
//! The session lives in the daemon, so it goes on between calls; this program reads words, asks
//! over the control socket, and prints. The holder of the session's key, LST_SESSION, commands it.
//!
//! ```text
//!   words ──frame.rs──► table.rs ──► command/NOUN.rs ──Ask──► lnetd (lnet-selftest's console)
//!                                        │
//!                                        ╰──► stdout, stderr, exit code
//! ```
//!
//! `table.rs` has every command with its options and usage; `quick.rs` is a whole session for the
//! impatient, `html.rs` its plots. What the original did wrongly with mistakes is put right
//! (DEC-33): a second `new_session` does not end the first, NIDs are printed as they are.

mod command;
mod errors;
mod frame;
mod html;
mod nids;
mod quick;
mod table;

pub use frame::{Lst, main, run};
pub use table::manual;
