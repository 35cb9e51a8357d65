//! Fault scenarios over real sockets: hosts of network namespaces, nodes under load in them, what
//! `scenarios/sockets/*.toml` lets befall them, and figures of what the load felt.
//!
//! Needs root, `ip`, `tc`, `nft` and `ss`; no packet leaves the hosts, and they go away with the
//! process whatever it dies of. Where to read: `play.rs` is the run of one scenario, `stage.rs` its
//! hosts, `fault.rs` what is done to them, `load/` the processes in them, `measure.rs` the figures,
//! `table.rs` how they are shown and held against the bars; `simulated.rs` plays the same in virtual
//! time, `beside.rs` shows both worlds; `rpc.rs` plays them under requests of `ulnet rpc bench`; `files/`
//! is a file system with clients, `objects/` objects and locks with clients. `docs/performance.md`, "Failures on real sockets", has the results.

mod beside;
mod child;
pub mod clock;
mod concern;
mod course;
mod fault;
mod files;
pub mod load;
mod measure;
pub mod mptcp;
mod objects;
pub mod options;
mod play;
mod router;
mod rpc;
mod selftest;
mod simulated;
mod stage;
mod table;

pub use files::{FilesFigures, FilesRow, FilesSetup, Score, Size, play_files, tools};
pub use measure::{Figures, Spread};
pub use objects::{ObjectsFigures, ObjectsSetup, ObjectsTimes, play_objects};
pub use options::main;
pub use play::{Over, Setup, play, scratch};
pub use rpc::{RpcFigures, play_rpc, read_rpc, rpc_table};
pub use simulated::simulate;
pub use table::{Miss, PlayedIn, Row, misses, table};

/// First argument of a process that is a load process.
pub const LOAD: &str = "load-process";
/// First argument of a process that is a daemon: `lnetd`.
pub const DAEMON: &str = "daemon-process";
/// First argument of a process that uses a target: `ulnet rpc`.
pub const RPC: &str = "rpc";
/// First argument of a process that serves one: `ulnet serve`.
pub const SERVE: &str = "serve";
/// First argument of a process that uses files: `ulnet lustre`.
pub const LUSTRE: &str = "lustre";
/// First argument of a process that works with files, and of what it is to do.
pub const FILES: &str = "files-process";

/// First argument of a process that works with objects, and of what it is to do.
pub const OBJECTS: &str = "objects-process";

/// Runs a process that works with objects.
pub fn objects_main(task: &str) -> std::process::ExitCode {
    objects::worker_main(task)
}

/// Runs a process that works with files.
pub fn files_main(task: &str) -> std::process::ExitCode {
    files::worker_main(task)
}
