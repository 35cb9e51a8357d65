//! `ulnet perf`: how fast messages go between two nodes, beside what a bare socket does.
//!
//! A server answers any client (`serve.rs`, `protocol.rs`); a client measures latency, message rate
//! and bandwidth, driving a stack itself (`inline.rs`) or through a node on its own thread
//! (`threaded.rs`); `bare.rs` is the same over a socket without LNet. `local.rs` starts both sides
//! and alternates the two; `report.rs` prints. `rpc/` does the same with requests and replies. `idle.rs` fills a node with peers that say nothing.

mod bare;
mod client;
mod idle;
mod inline;
mod local;
mod node;
mod options;
mod protocol;
mod report;
mod rpc;
mod serve;
mod threaded;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use options::{Options, Program};

/// The command line, for completions.
pub fn command() -> clap::Command {
    <Options as clap::CommandFactory>::command()
}

/// Runs the program with the given arguments, the first of which is its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    let outcome = match options.program {
        Program::Server(server) => serve::run(&server),
        Program::Client(client) => client::run(&client),
        Program::Local(local) => local::run(&local),
        Program::Rpc(options) => rpc::run(&options),
        Program::IdlePeers(idle) => idle::run(&idle),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ulnet perf: {e:#}");
            ExitCode::FAILURE
        }
    }
}
