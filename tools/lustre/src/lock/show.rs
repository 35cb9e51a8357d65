//! `ulnet lock show`: which locks clients have and wait for, and until when.

use std::ops::ControlFlow;

use anyhow::Result;
use clap::Args;
use lnet_admin::{LockSelection, LockSnapshot};

use super::daemon::{self, Daemon};

/// Which locks.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The locks are those of the targets that the daemon of this machine serves \
    (lnetctl target add): a server's daemon is asked on its own machine, as no request of Lustre asks for \
    the locks of other clients. 'ulnet serve' has no control socket.\n\n\
    A line has the lock's number, its mode and part, its state and for how long, its client and the \
    client's NID, its fencing number, the time after which the client is evicted if it keeps the lock, \
    and the locks that it waits for.\n\n\
    Examples:\n  \
    ulnet lock show\n  \
    ulnet lock show jobs/42\n  \
    ulnet lock show --all --target locks --json"
)]
pub(super) struct Options {
    /// Name of what is locked; without it the locks that wait or are waited for
    #[arg(value_name = "NAME")]
    resource: Option<String>,
    /// All locks
    #[arg(long, conflicts_with = "resource")]
    all: bool,
    /// Name of the target; all targets of the daemon if not given
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
}

/// Runs the command.
///
/// # Errors
/// No daemon, or no right to ask it.
pub(super) fn run(options: &Options) -> Result<()> {
    let Options { resource, all, target, daemon } = options;
    let which = match resource {
        Some(name) => LockSelection::Named(name.clone()),
        None if *all => LockSelection::All,
        None => LockSelection::Contended,
    };
    let mut locks: Vec<LockSnapshot> = Vec::new();
    daemon::each(&mut daemon.connect()?, &which, |lock| {
        if target.as_ref().is_none_or(|target| *target == lock.target) {
            locks.push(lock);
        }
        ControlFlow::<()>::Continue(())
    })?;
    if daemon.json {
        println!("{:#}", serde_json::to_value(&locks)?);
        return Ok(());
    }
    let mut last = None;
    for lock in &locks {
        let place = Some((&lock.target, &lock.resource));
        if place != last {
            println!("{} {}", lock.target, lock.resource);
            last = place;
        }
        println!("  {}", daemon::line(lock));
    }
    Ok(())
}
