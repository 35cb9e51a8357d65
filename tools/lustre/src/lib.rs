//! `ulnet serve`, `ulnet rpc`, `ulnet lock`, `ulnet obj`, `ulnet lustre` and `ulnet tuning`: commands for Lustre above
//! LNet, one file per verb. `fs/` has the files of whole file systems. `serve.rs` runs targets; `put.rs` to `list.rs` use one with values, `lock/` one with locks, `obj/`
//! one with objects, through `client.rs`; `rails.rs` starts their nodes, `stop.rs` ends them before their time; `tuning/` calculates time-outs of
//! sites; `bench.rs` measures a target while its server dies; `ping.rs` and `probe.rs` ask a server; `decode.rs` lists a capture, whose TCP streams
//! `lnet_capture` takes apart. What the bytes mean stands in `lustre-wire`.

// What runs for each of many files is moved to its place: what is seldom waited for has a place of its own.
#![warn(clippy::large_futures)]

mod bench;
mod cas;
mod client;
pub mod decode;
mod del;
mod fs;
mod get;
mod list;
mod lock;
mod obj;
mod ping;
mod probe;
mod put;
mod rails;
mod serve;
mod site;
mod stop;
mod tuning;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "ulnet rpc",
    about = "Lustre's requests and replies above LNet",
    disable_help_subcommand = true
)]
struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Connect to a target of a server, ping it, disconnect
    Ping(ping::Options),
    /// Show which targets answer at a server
    Probe(probe::Options),
    /// Store a value under a key
    Put(put::Options),
    /// Read the value of a key
    Get(get::Options),
    /// Store a value if the key has the expected version
    Cas(cas::Options),
    /// Remove a key
    Del(del::Options),
    /// List keys
    List(list::Options),
    /// Measure a key-value target, and check its answers while its server dies
    Bench(bench::Options),
    /// List the messages of a packet capture
    Decode(decode::Options),
}

/// The command line, for completions.
pub fn command() -> clap::Command {
    <Options as clap::CommandFactory>::command()
}

pub use obj::bench::history;

pub use lock::{command as lock_command, main as lock_main};
pub use tuning::{command as tuning_command, main as tuning_main};

/// `ulnet serve`.
#[derive(Debug, Parser)]
#[command(
    name = "ulnet serve",
    about = "Runs a node with targets, until SIGTERM",
    disable_help_subcommand = true
)]
struct Serve {
    #[command(flatten)]
    options: serve::Options,
}

/// The command line of `ulnet serve`, for completions.
pub fn serve_command() -> clap::Command {
    <Serve as clap::CommandFactory>::command()
}

/// The command line of `ulnet obj`, for completions.
pub fn obj_command() -> clap::Command {
    <obj::Options as clap::CommandFactory>::command()
}

/// Runs `ulnet obj` with the given arguments, the first of which is its name.
pub fn obj_main(args: Vec<OsString>) -> ExitCode {
    match obj::Options::try_parse_from(args) {
        Ok(options) => ended("obj", obj::run(&options)),
        Err(e) => usage(&e),
    }
}

/// Runs `ulnet serve` with the given arguments, the first of which is its name.
pub fn serve_main(args: Vec<OsString>) -> ExitCode {
    match Serve::try_parse_from(args) {
        Ok(Serve { options }) => ended("serve", serve::run(&options)),
        Err(e) => usage(&e),
    }
}

/// The command line of `ulnet lustre`, for completions.
pub fn lustre_command() -> clap::Command {
    <fs::Options as clap::CommandFactory>::command()
}

/// Runs `ulnet lustre` with the given arguments, the first of which is its name.
pub fn lustre_main(args: Vec<OsString>) -> ExitCode {
    match fs::Options::try_parse_from(fs::find::spelled(args)) {
        Ok(options) => match fs::run(&options) {
            Ok(status) => ExitCode::from(status.code()),
            Err(e) => ended("lustre", Err(e)),
        },
        Err(e) => usage(&e),
    }
}

fn usage(e: &clap::Error) -> ExitCode {
    let _ = e.print();
    ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2))
}

fn ended(program: &str, outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ulnet {program}: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the program with the given arguments, the first of which is its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(e) => return usage(&e),
    };
    let outcome = match &options.verb {
        Verb::Ping(options) => ping::run(options),
        Verb::Probe(options) => probe::run(options),
        Verb::Put(options) => put::run(options),
        Verb::Get(options) => get::run(options),
        Verb::Cas(options) => cas::run(options),
        Verb::Del(options) => del::run(options),
        Verb::List(options) => list::run(options),
        Verb::Bench(options) => bench::run(options),
        Verb::Decode(options) => decode::run(options),
    };
    ended("rpc", outcome)
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_lines_are_well_formed() {
        super::command().debug_assert();
        super::serve_command().debug_assert();
        super::obj_command().debug_assert();
        super::lustre_command().debug_assert();
    }
}
