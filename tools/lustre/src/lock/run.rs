//! `ulnet lock run`: a command that runs while its lock is held, and no longer.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use lnet_rt::Nid;
use lustre_rt::{
    CallError, ImportState, Lock, LockError, LockWatch, Locks, LocksError, Mode, Tunables,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::client::{self, Target, Way};
use crate::ping::client_uuid;
use crate::rails::{Routes, Source};

/// The lock was lost while the command ran.
const LOST: u8 = 75;
/// A holder pings its server so often.
const PING: Duration = Duration::from_secs(5);
/// After so long a command says if no server has answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// The command can't be executed; there is no such command.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Which lock, where, for what.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit status: that of the command, 128 and its number after a signal; 75 if the \
    lock was lost while the command ran; 126 or 127 if the command cannot run; 1 or that of \
    --conflict-exit-code if there is no lock.\n\n\
    The command finds the fencing number of the lock in ULNET_FENCE (modes EX and PW) and the name in \
    ULNET_RESOURCE. A lock that is lost may belong to another holder since an unknown time: what must \
    not be written by two compares the number where it is written.\n\n\
    A lock that another client wants is lost as well if the command keeps it for longer than the server \
    allows, 100 s or more by default, however alive it is: for longer commands that others wait for, set \
    --ldlm-enqueue-min of 'ulnet serve' (ldlm_enqueue_min of a daemon) above the longest of them.\n\n\
    SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 go to the command; SIGINT and SIGQUIT are left to it.\n\n\
    Examples:\n  \
    ulnet lock run --resource jobs/42 --server 10.0.0.1@tcp,10.0.0.2@tcp -- ./nightly.sh\n  \
    ulnet lock run --mode PR --resource catalog --server 10.0.0.1@tcp --try -- ./report.sh"
)]
pub(crate) struct Options {
    /// Name of what is locked, 1 to 255 bytes
    #[arg(long, value_name = "NAME", value_parser = client::key)]
    resource: String,
    /// Mode: EX and PW exclude all other holders but readers without claims, PR other writers
    #[arg(long, default_value = "EX", value_parser = mode)]
    mode: Mode,
    /// Nodes that may serve the locks, the likeliest first
    #[arg(long, value_name = "NID[,NID]", required = true, value_delimiter = ',', value_parser = client::nid)]
    server: Vec<Nid>,
    /// Name of the lock target
    #[arg(long, value_name = "NAME", default_value = "locks")]
    target: String,
    /// Give up when the lock is not granted after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: Option<u64>,
    /// Give up when the lock is held by others
    #[arg(long = "try")]
    at_once: bool,
    /// Exit status when there is no lock
    #[arg(long, value_name = "STATUS", default_value_t = 1)]
    conflict_exit_code: u8,
    /// SIGKILL for a command that still runs so many seconds after its lock was lost
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3600))]
    kill_after: u64,
    /// Addresses of this machine to send from; the one that the system would use if not given
    #[arg(long, value_name = "IP[@NET],…", value_delimiter = ',')]
    source: Vec<Source>,
    #[command(flatten)]
    routes: Routes,
    /// TCP port of both nodes
    #[arg(long, default_value_t = 988)]
    port: u16,
    /// Print at the end what happened, as a line of JSON on standard error
    #[arg(long)]
    json: bool,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn mode(text: &str) -> Result<Mode> {
    let modes = [Mode::Ex, Mode::Pw, Mode::Pr, Mode::Cw, Mode::Cr];
    modes
        .into_iter()
        .find(|mode| mode.to_string() == text)
        .ok_or_else(|| anyhow!("mode '{text}': expected EX, PW, PR, CW or CR"))
}

/// What is waited for.
enum Happened {
    Signal(i32),
    Lock(Result<Lock, LocksError>),
    Wanted,
    Lost,
    Ended(std::io::Result<ExitStatus>),
}

/// How it went.
#[derive(Default)]
struct Account {
    fence: Option<u64>,
    waited: Duration,
    held: Duration,
    lost: bool,
    /// The command's own status.
    status: Option<i32>,
    signal: Option<i32>,
}

/// Runs the command; its status is this one's.
///
/// # Errors
/// No way to the servers, a target that refuses.
pub(crate) fn run(options: &Options) -> Result<u8> {
    let Options { server, target, source, routes, port, json, .. } = options;
    let target = Target { name: target.clone(), nids: server.clone() };
    let (source, routes) = (source.clone(), routes.clone());
    let way = Way { timeout: 0, source, routes, port: *port, json: *json };
    let (tx, rx) = channel();
    // From here on a signal is an event: a server that is not asked to forget this client would wait
    // for it.
    signals(tx.clone())?;
    // A holder that was evicted learns it from the answer to its next ping.
    let tunables = Tunables { ping_interval: PING, ..Tunables::default() };
    let (node, rpc) = client::node_with(&target, &way, tunables)?;
    let locks = Locks::new(&rpc, &target.name, &client_uuid(), target.nids.clone())?;
    let mut account = Account::default();
    let outcome = hold(options, &locks, &tx, &rx, &mut account);
    if options.json {
        say(options, &account, &outcome);
    }
    locks.disconnect()?;
    node.stop(Duration::from_secs(1)).blocking();
    outcome
}

fn signals(tx: Sender<Happened>) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2]).context("signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if tx.send(Happened::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Gets the lock, and runs the command under it.
fn hold(
    options: &Options,
    locks: &Locks,
    tx: &Sender<Happened>,
    rx: &Receiver<Happened>,
    account: &mut Account,
) -> Result<u8> {
    let begun = Instant::now();
    let mut enqueue = locks.enqueue(&options.resource, options.mode);
    if let Some(secs) = options.timeout {
        enqueue = enqueue.limit(Duration::from_secs(secs));
    }
    if options.at_once {
        enqueue = enqueue.nowait();
    }
    let asked = tx.clone();
    thread::spawn(move || {
        // One that has stopped to wait gives the lock back with the node.
        let _ = asked.send(Happened::Lock(enqueue.blocking()));
    });
    let mut patience = Some(PATIENCE);
    let lock = loop {
        let happened = match patience.take().map(|patience| rx.recv_timeout(patience)) {
            Some(Err(RecvTimeoutError::Timeout)) => {
                if let Some(state) = unreached(locks) {
                    let Options { resource, target, .. } = options;
                    eprintln!(
                        "ulnet lock: {resource}: no server of '{target}' has answered yet ({state})"
                    );
                }
                continue;
            }
            Some(happened) => happened.context("lock")?,
            None => rx.recv().context("lock")?,
        };
        match happened {
            Happened::Lock(Ok(lock)) => break lock,
            Happened::Lock(Err(e)) => return no_lock(options, locks, &e),
            Happened::Signal(signal @ (SIGINT | SIGTERM | SIGHUP | SIGQUIT)) => {
                return Ok(128 + u8::try_from(signal).unwrap_or_default());
            }
            _ => {}
        }
    };
    account.waited = begun.elapsed();
    account.fence = lock.fence();
    let begun = Instant::now();
    let result = under(options, &lock, tx, rx, account);
    account.held = begun.elapsed();
    result
}

/// Why the servers can't be asked, if that is so: the state of the connection, and what the last connect has
/// met.
fn unreached(locks: &Locks) -> Option<String> {
    let view = locks.import().view().ok().flatten()?;
    let state = format!("state {}", view.state.name());
    let waits = [ImportState::New, ImportState::Disconnected, ImportState::Connecting];
    match view.refusal {
        // One that recovers has answered.
        _ if !waits.contains(&view.state) => None,
        Some(CallError::Refused(errno)) => Some(format!(
            "{state}; the last connect was refused with {}: {errno}",
            errno.negative()
        )),
        _ => Some(state),
    }
}

fn no_lock(options: &Options, locks: &Locks, e: &LocksError) -> Result<u8> {
    let Options { resource, target, .. } = options;
    match e {
        LocksError::Lock(LockError::Conflict) => {
            eprintln!("ulnet lock: {resource}: held by others");
        }
        LocksError::Lock(LockError::LimitPassed) => {
            let secs = options.timeout.unwrap_or_default();
            if let Some(state) = unreached(locks) {
                bail!("{resource}: no server of '{target}' has answered within {secs} s ({state})");
            }
            eprintln!("ulnet lock: {resource}: not granted within {secs} s");
        }
        LocksError::Lock(LockError::Call(CallError::Refused(errno))) => {
            bail!("{resource}: the server answered {}: {errno}", errno.negative());
        }
        e => bail!("{resource}: {e}"),
    }
    Ok(options.conflict_exit_code)
}

/// Runs the command under the lock.
fn under(
    options: &Options,
    lock: &Lock,
    tx: &Sender<Happened>,
    rx: &Receiver<Happened>,
    account: &mut Account,
) -> Result<u8> {
    let Options { resource, command, .. } = options;
    let (program, arguments) = command.split_first().ok_or_else(|| anyhow!("no command"))?;
    let mut builder = Command::new(program);
    builder.args(arguments).env("ULNET_RESOURCE", resource).env_remove("ULNET_FENCE");
    if let Some(fence) = lock.fence() {
        builder.env("ULNET_FENCE", fence.to_string());
    }
    let mut child = match builder.spawn() {
        Ok(child) => child,
        Err(e) => {
            eprintln!("ulnet lock: {}: {e}", program.display());
            let missing = e.kind() == ErrorKind::NotFound;
            return Ok(if missing { NOT_FOUND } else { NOT_EXECUTABLE });
        }
    };
    // A name of the process that is never another's.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| anyhow!("process {}: not a number of one", child.id()))?;
    let process = pidfd_open(pid, PidfdFlags::empty()).context("pidfd")?;
    let send = |signal: Signal| {
        // One that has ended needs no signal.
        let _ = pidfd_send_signal(&process, signal);
    };
    let ended = tx.clone();
    thread::spawn(move || ended.send(Happened::Ended(child.wait())));
    watch(lock.watch(), Happened::Lost, tx.clone());
    watch(lock.watch_wanted(), Happened::Wanted, tx.clone());
    let mut kill_at = None;
    loop {
        let happened = match kill_at {
            None => rx.recv().context("command")?,
            Some(at) => {
                match rx.recv_timeout(Instant::saturating_duration_since(&at, Instant::now())) {
                    Ok(happened) => happened,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("ulnet lock: {resource}: SIGKILL to the command");
                        send(Signal::KILL);
                        kill_at = None;
                        continue;
                    }
                    Err(e) => return Err(e).context("command"),
                }
            }
        };
        match happened {
            Happened::Ended(status) => {
                let status = status.context("command")?;
                (account.status, account.signal) = (status.code(), status.signal());
                account.lost |= lock.is_lost();
                return Ok(if account.lost { LOST } else { code(status) });
            }
            Happened::Lost if !account.lost => {
                account.lost = true;
                eprintln!("ulnet lock: {resource}: the lock is lost, SIGTERM to the command");
                send(Signal::TERM);
                kill_at = Some(Instant::now() + Duration::from_secs(options.kill_after));
            }
            // The end of the lock ends both watches.
            Happened::Wanted if !account.lost && !lock.is_lost() => {
                eprintln!(
                    "ulnet lock: {resource}: another client waits for the lock, which is lost if the \
                     command keeps it for longer than the server allows"
                );
            }
            Happened::Signal(SIGTERM) => send(Signal::TERM),
            Happened::Signal(SIGHUP) => send(Signal::HUP),
            Happened::Signal(SIGUSR1) => send(Signal::USR1),
            Happened::Signal(SIGUSR2) => send(Signal::USR2),
            _ => {}
        }
    }
}

fn watch(watch: LockWatch, happened: Happened, tx: Sender<Happened>) {
    thread::spawn(move || {
        watch.blocking();
        // The command may have ended before.
        let _ = tx.send(happened);
    });
}

/// The status of a command as a shell names it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn say(options: &Options, account: &Account, outcome: &Result<u8>) {
    let Account { fence, waited, held, lost, status, signal } = account;
    eprintln!(
        "{}",
        json!({
            "resource": options.resource,
            "mode": options.mode.to_string(),
            "fence": fence,
            "waited_s": waited.as_secs_f64(),
            "held_s": held.as_secs_f64(),
            "lost": lost,
            "status": status,
            "signal": signal,
            "exit": outcome.as_ref().ok(),
        })
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_a_command_is_that_of_a_shell() {
        assert_eq!(code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code(ExitStatus::from_raw(15)), 143);
    }

    #[test]
    fn modes_are_those_that_scripts_have_a_use_for() {
        assert_eq!(mode("PR").unwrap(), Mode::Pr);
        for text in ["pr", "GROUP", ""] {
            assert!(mode(text).unwrap_err().to_string().contains("expected EX"), "{text}");
        }
    }
}
