//! `lnetctl`: configures and shows a running node, with the commands, texts and exit codes that
//! scripts know from kernel LNet. Decides nothing about LNet: it reads words, asks the daemon over
//! its control socket (`lnet-admin`), and prints.
//!
//! ```text
//!   words ──frame.rs──► table.rs ──args.rs──► command/NOUN.rs ──Ask──► lnetd
//!                                                  │
//!                                  show/NOUN.rs, report.rs ──► stdout, stderr, exit code
//! ```
//!
//! `table.rs` has every command with its options and help; a new one is a row there and a function.
//! `lctl` (`lctl/`) is a second program of the same make, and `routerstat.rs` a small third.
//!
//! What the original did silently with mistakes is an error here, unless `--strict-compat` asks for
//! its silence (DEC-33).

pub mod args;
mod command;
mod doctor;
mod frame;
mod json;
mod lctl;
mod link;
mod report;
pub mod routerstat;
mod session;
mod shell;
mod show;
mod table;
mod top;
mod waiting;

pub use frame::{COMPATIBLE_WITH, lctl_main, main, run};
pub use link::Link;
pub use session::Session;
pub use shell::lines::{Complete, Lines};
pub use shell::man::{
    Entry as ManualEntry, Manual, lctl_contents as lctl_manual, page as manual,
    routerstat_contents as routerstat_manual,
};
pub use show::format::Format;
