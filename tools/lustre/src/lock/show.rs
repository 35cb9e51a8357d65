//! `ulnet lock show`: which locks clients have and wait for, and until when.

use std::ops::ControlFlow;

use anyhow::{Result, bail};
use clap::Args;
use lnet_admin::{Client, ClientError, LockSelection, LockSnapshot, Reply, Request};

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
    Exit status: 1 if NAME is given and no client has or awaits a lock on it, or if no target has the name \
    of --target.\n\n\
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
/// No daemon, no right to ask it, no lock on the name, no such target.
pub(super) fn run(options: &Options) -> Result<()> {
    let Options { resource, all, target, daemon } = options;
    let which = match resource {
        Some(name) => LockSelection::Named(name.clone()),
        None if *all => LockSelection::All,
        None => LockSelection::Contended,
    };
    let mut locks: Vec<LockSnapshot> = Vec::new();
    let mut client = daemon.connect()?;
    if let Some(target) = target {
        known(&mut client, target)?;
    }
    daemon::each(&mut client, &which, |lock| {
        if target.as_ref().is_none_or(|target| *target == lock.target) {
            locks.push(lock);
        }
        ControlFlow::<()>::Continue(())
    })?;
    if let (Some(name), Some(target), []) = (resource, target, &locks[..]) {
        bail!("lock '{name}': no client has or awaits a lock on this name at target '{target}'");
    }
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

/// Checks that the daemon serves a target of this name that has locks.
fn known(client: &mut Client, target: &str) -> Result<()> {
    let Reply::Namespaces(all) = daemon::ask(client, &Request::NamespaceShow)? else {
        return Err(ClientError::Unexpected.into());
    };
    if all.iter().any(|space| space.target == target) {
        return Ok(());
    }
    let names: Vec<_> = all.iter().map(|space| space.target.as_str()).collect();
    bail!("target '{target}': expected a target with locks of this daemon ({})", names.join(", "));
}
