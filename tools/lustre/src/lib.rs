//! `ulnet rpc`: commands for Lustre above LNet, one file per verb. `ping.rs` pings a server, `decode.rs` lists a capture;
//! `walk.rs` takes its TCP streams apart. What the bytes mean stands in `lustre-wire`.

pub mod decode;
mod ping;
mod walk;

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
    /// List the messages of a packet capture
    Decode(decode::Options),
}

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
    let outcome = match &options.verb {
        Verb::Ping(options) => ping::run(options),
        Verb::Decode(options) => decode::run(options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ulnet rpc: {e:#}");
            ExitCode::FAILURE
        }
    }
}
