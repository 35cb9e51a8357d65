//! `ulnet lock`: locks by name for scripts. `run.rs` holds one while a command runs; `show.rs` and
//! `break_lock.rs` are for the operator of a server, and ask its daemon (`daemon.rs`).

mod break_lock;
mod daemon;
mod run;
mod show;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::usage;

#[derive(Debug, Parser)]
#[command(name = "ulnet lock", about = "Locks by name", disable_help_subcommand = true)]
struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Hold a lock while a command runs
    Run(run::Options),
    /// Show locks of this machine's targets
    Show(show::Options),
    /// Evict the client that has a lock, or waits for it
    Break(break_lock::Options),
}

/// The command line, for completions.
pub fn command() -> clap::Command {
    <Options as clap::CommandFactory>::command()
}

/// Runs `ulnet lock` with the given arguments, the first of which is its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(e) => return usage(&e),
    };
    let outcome = match &options.verb {
        Verb::Run(run) => run::run(run),
        Verb::Show(show) => show::run(show).map(|()| 0),
        Verb::Break(lock) => break_lock::run(lock).map(|()| 0),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("ulnet lock: {e:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_is_well_formed() {
        super::command().debug_assert();
    }
}
