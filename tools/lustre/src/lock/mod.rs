//! `ulnet lock`: locks by name for scripts. `run.rs` holds one while a command runs.

mod run;

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
    let Verb::Run(run) = &options.verb;
    match run::run(run) {
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
