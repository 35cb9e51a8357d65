//! `ulnet lock break`: evicts the client of a lock.

use std::ops::ControlFlow;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use lnet_admin::{ClientError, LockSelection, Reply, Request};
use serde_json::json;

use super::daemon::{self, Daemon};

/// Which lock.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The client is evicted from the target, with all locks that it has there: a client that \
    lives loses what it has not written, and its next request connects again. A lock cannot be taken away \
    alone, as its holder would go on.\n\n\
    The lock is one of a target that the daemon of this machine serves, as with 'ulnet lock show'.\n\n\
    Examples:\n  \
    ulnet lock show jobs/42\n  \
    ulnet lock break 0x9c1185a5c5e9fc54\n  \
    ulnet lock break 0x9c1185a5c5e9fc54 --json"
)]
pub(super) struct Options {
    /// Number of the lock, as 'ulnet lock show' prints it
    #[arg(value_name = "LOCK", value_parser = number)]
    lock: u64,
    #[command(flatten)]
    daemon: Daemon,
}

fn number(text: &str) -> Result<u64> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_| anyhow!("lock '{text}': expected a number, as 'ulnet lock show' prints it"))
}

/// Runs the command.
///
/// # Errors
/// No daemon, no right to do that, or no such lock.
pub(super) fn run(options: &Options) -> Result<()> {
    let Options { lock, daemon } = options;
    let mut client = daemon.connect()?;
    let found =
        daemon::each(&mut client, &LockSelection::All, |found| match found.lock == *lock {
            true => ControlFlow::Break(found),
            false => ControlFlow::Continue(()),
        })?;
    let Some(found) = found else {
        bail!("lock {lock:#x}: not one of the targets of this daemon");
    };
    if !daemon.json {
        println!("{} {}\n  {}", found.target, found.resource, daemon::line(&found));
    }
    match daemon::ask(&mut client, &Request::LockBreak { lock: *lock })? {
        Reply::Done => {}
        _ => return Err(ClientError::Unexpected.into()),
    }
    if daemon.json {
        println!("{:#}", json!({ "lock": found, "evicted": found.client }));
    } else {
        println!("evicted: client {} of {}", found.client, found.target);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_lock_is_hexadecimal_or_decimal() {
        assert_eq!((number("0x1f").unwrap(), number("31").unwrap()), (31, 31));
        for text in ["", "0x", "jobs/42", "-1", "0x10000000000000000"] {
            assert!(number(text).unwrap_err().to_string().contains("expected a number"), "{text}");
        }
    }
}
