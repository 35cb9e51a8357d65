//! `ulnet tuning`: time-outs of a site. `enqueue_min.rs` and `roles.rs` calculate, `advise.rs` prints the
//! tunables of each role (`prove.rs` plays them), `log.rs` reads console lines. What is decided stands in `lustre-tuning`.

mod advise;
mod enqueue_min;
mod log;
mod prove;
mod roles;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lustre_rt::Tunables;

use crate::usage;

#[derive(Debug, Parser)]
#[command(
    name = "ulnet tuning",
    about = "Time-outs of a site: calculated, advised, measured",
    disable_help_subcommand = true,
    after_help = "Exit status: 0, or 1 for values that contradict each other, a file that can't be read or an advice that does not hold, \
                  2 for a command line that is none.\n\nExamples:\n  \
                  ulnet tuning enqueue-min 40 40 140\n  \
                  ulnet tuning roles --server 35/35/10 --client 60/60/50\n  \
                  ulnet tuning log /var/log/messages\n  \
                  ulnet tuning advise --net o2ib --clients 400\n  \
                  ulnet tuning advise --routed --net gni --prove\n  \
                  ulnet tuning advise --routed --net gni --role server --as modprobe"
)]
struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print the least time of the lock callback timer, seconds
    EnqueueMin(enqueue_min::Options),
    /// Print what routers need, given how servers and clients ping them
    Roles(roles::Options),
    /// Print quiesces, reconnects and evictions of a console log, and the timer that covers them
    Log(log::Options),
    /// Print the tunables of each role of a site with their reasons
    Advise(advise::Options),
}

/// The command line, for completions.
pub fn command() -> clap::Command {
    <Options as clap::CommandFactory>::command()
}

/// Runs `ulnet tuning` with the given arguments, the first of which is its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(e) => return usage(&e),
    };
    let outcome = match &options.verb {
        Verb::EnqueueMin(options) => enqueue_min::run(options),
        Verb::Roles(options) => roles::run(options),
        Verb::Log(options) => log::run(options),
        Verb::Advise(options) => advise::run(options),
    };
    crate::ended("tuning", outcome)
}

/// Seconds: a number, with `s` or `m` behind it if wanted.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(number) => (number, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let whole = number.parse::<u32>().ok().and_then(|n| n.checked_mul(unit));
    whole.ok_or_else(|| "expected seconds or minutes, like 140, 140s or 3m".to_owned())
}

/// Bounds of estimates.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Bounds {
    /// at_min of the nodes, seconds
    #[arg(long, value_name = "SPAN", value_parser = seconds)]
    at_min: Option<u32>,
    /// at_max of the nodes, seconds
    #[arg(long, value_name = "SPAN", value_parser = seconds)]
    at_max: Option<u32>,
}

impl Bounds {
    /// What is given, or the defaults of a node.
    fn or_default(self) -> (u32, u32) {
        let defaults = Tunables::default();
        let whole = |time: core::time::Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let (at_min, at_max) = (whole(defaults.at_min), whole(defaults.at_max));
        (self.at_min.unwrap_or(at_min), self.at_max.unwrap_or(at_max))
    }
}

/// To standard output; a reader that has gone away is no error of ours.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// A document, indented.
fn print_json(document: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(document)? + "\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn spans_are_read_in_seconds_and_minutes() {
        for (text, wanted) in [("140", 140), ("140s", 140), ("3m", 180), ("0", 0)] {
            assert_eq!(seconds(text), Ok(wanted), "{text}");
        }
        for text in ["", "s", "m", "-1", "1.5", "3h", "99999999m", "4294967296"] {
            assert!(seconds(text).unwrap_err().contains("expected"), "{text}");
        }
    }
}
