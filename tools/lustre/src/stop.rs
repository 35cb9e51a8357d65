//! The end of a command that the user wants, by Ctrl-C or SIGTERM, or that has lost its terminal (SIGHUP). It is looked for between requests. Those
//! under way are waited for a moment, and abandoned then: a server that does not answer holds up no user.
//! The command leaves its servers as at any other end, so that none of them waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use lustre_rt::RpcNode;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long requests under way are waited for.
const GRACE: Duration = Duration::from_secs(1);
/// How long servers have to let go of the client then.
const LEAVE: Duration = Duration::from_secs(2);
/// Between two looks of a pause.
const LOOK: Duration = Duration::from_millis(50);

/// Signals that end a command. One that is to outlive its terminal, as by `nohup`, ignores SIGHUP, and goes on to.
fn signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    match ignores(&status, SIGHUP) {
        true => vec![SIGINT, SIGTERM],
        false => vec![SIGINT, SIGTERM, SIGHUP],
    }
}

/// Whether a process ignores a signal, as its status says.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Whether the user wants the command to end.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    wanted: Arc<AtomicBool>,
}

impl Stop {
    /// From now on signals are looked for; `abandon` ends what is under way.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn listen(abandon: impl FnOnce() + Send + 'static) -> Result<Self> {
        let wanted = Arc::new(AtomicBool::new(false));
        let ends = signals();
        for signal in ends.iter().copied() {
            // A second one ends the program at once.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&wanted))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&wanted)))
                .context("signals")?;
        }
        let mut signals = Signals::new(ends).context("signals")?;
        let watch = move || {
            if signals.forever().next().is_some() {
                thread::sleep(GRACE);
                abandon();
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(watch).context("signals")?;
        Ok(Self { wanted })
    }

    /// The same for all calls of a node.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn of(rpc: &RpcNode) -> Result<Self> {
        let rpc = rpc.clone();
        Self::listen(move || {
            // A node that has stopped has nothing under way.
            let _ = rpc.disconnect_all(LEAVE);
        })
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// # Errors
    /// The user wants it.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_wanted() { bail!("interrupted") } else { Ok(()) }
    }

    /// Why a command failed: that the user wanted it, if so.
    pub(crate) fn explain(&self, e: anyhow::Error) -> anyhow::Error {
        if self.is_wanted() { anyhow!("interrupted") } else { e }
    }

    /// Sleeps until `at`, or until the user wants the end.
    pub(crate) fn sleep_until(&self, at: Instant) {
        while !self.is_wanted() && Instant::now() < at {
            thread::sleep(at.saturating_duration_since(Instant::now()).min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_a_process() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(ignores(status, SIGHUP) && !ignores(status, SIGINT));
        assert!(!ignores("SigIgn:\t0000000000001000\n", SIGHUP));
        assert!(!ignores("", SIGHUP));
    }
}
