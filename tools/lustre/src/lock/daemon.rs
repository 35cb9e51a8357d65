//! The locks that the daemon of this machine knows: those of the targets that it serves. No request of
//! Lustre asks a server for the locks of other clients, so that its control socket is asked.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Args;
use lnet_admin::{
    Ask as _, Client, ClientError, LockSelection, LockSnapshot, Reply, Request, default_socket,
};

/// Which daemon is asked, and how the answer is printed.
#[derive(Clone, Debug, Args)]
pub(super) struct Daemon {
    /// Control socket of the daemon; the one that lnetctl uses if not given
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Daemon {
    pub(super) fn connect(&self) -> Result<Client> {
        Ok(Client::connect(self.socket.clone().unwrap_or_else(default_socket))?)
    }
}

/// Asks the daemon.
///
/// # Errors
/// The daemon's, with the reason of a refusal.
pub(super) fn ask(client: &mut Client, request: &Request) -> Result<Reply> {
    client.ask(request).map_err(|e| match &e {
        ClientError::Refused(refusal) => match &refusal.detail {
            Some(detail) => anyhow!("{detail}: {refusal}"),
            None => e.into(),
        },
        _ => e.into(),
    })
}

/// Visits locks page by page until `visit` breaks; what it broke with.
///
/// # Errors
/// The daemon's.
pub(super) fn each<R>(
    client: &mut Client,
    which: &LockSelection,
    mut visit: impl FnMut(LockSnapshot) -> ControlFlow<R>,
) -> Result<Option<R>> {
    let mut from = None;
    loop {
        let request = Request::LockShow { which: which.clone(), from };
        let Reply::Locks(page) = ask(client, &request)? else {
            return Err(ClientError::Unexpected.into());
        };
        for lock in page.locks {
            if let ControlFlow::Break(result) = visit(lock) {
                return Ok(Some(result));
            }
        }
        match page.next {
            next @ Some(_) if next > from => from = next,
            _ => return Ok(None),
        }
    }
}

/// A lock in one line, its target and resource not named.
pub(super) fn line(lock: &LockSnapshot) -> String {
    let seconds = |ms| Duration::from_millis(ms).as_secs();
    let mut line = format!("{:#x} {}", lock.lock, lock.mode);
    if let Some(part) = &lock.part {
        line += &format!(" {part}");
    }
    line +=
        &format!(", {} for {} s, client {}", lock.state, seconds(lock.since_ms_ago), lock.client);
    if let Some(nid) = lock.nid {
        line += &format!(" at {nid}");
    }
    if let Some(fence) = lock.fence {
        line += &format!(", number {fence}");
    }
    if let Some(ms) = lock.evicted_in_ms {
        line += &format!(", evicted in {} s", seconds(ms));
    }
    let waits_for: Vec<String> = lock.waits_for.iter().map(|l| format!("{:#x}", l.lock)).collect();
    if !waits_for.is_empty() {
        line += &format!(", waits for {}", waits_for.join(" "));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> LockSnapshot {
        LockSnapshot {
            target: "locks".to_owned(),
            resource: "jobs/42".to_owned(),
            lock: 0x5a01,
            kind: "EXTENT".to_owned(),
            mode: "EX".to_owned(),
            part: None,
            state: "granted".to_owned(),
            since_ms_ago: 12_900,
            client: "c-1".to_owned(),
            nid: None,
            fence: None,
            evicted_in_ms: None,
            waits_for: Vec::new(),
        }
    }

    #[test]
    fn line_of_a_lock_has_what_is_known_of_the_lock() {
        assert_eq!(line(&lock()), "0x5a01 EX, granted for 12 s, client c-1");
        let all = LockSnapshot {
            part: Some("0-4095".to_owned()),
            state: "called back".to_owned(),
            nid: Some("10.0.0.7@tcp".parse().unwrap()),
            fence: Some(7),
            evicted_in_ms: Some(88_000),
            waits_for: vec![LockSnapshot { lock: 0x17, ..lock() }, lock()],
            ..lock()
        };
        assert_eq!(
            line(&all),
            "0x5a01 EX 0-4095, called back for 12 s, client c-1 at 10.0.0.7@tcp, number 7, \
             evicted in 88 s, waits for 0x17 0x5a01"
        );
    }
}
