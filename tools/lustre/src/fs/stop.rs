//! The end of a command that the user wants, by Ctrl-C or SIGTERM. It is looked for between requests. Those
//! under way are waited for a moment, and abandoned then: a server that does not answer holds up no user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lustre_rt::Interrupt;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::lines;

/// How long requests under way are waited for.
const GRACE: Duration = Duration::from_secs(1);

/// Whether the user wants the command to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop {
    wanted: Arc<AtomicBool>,
    /// Of the visits of the command.
    pub(super) interrupt: Interrupt,
}

impl Stop {
    pub(super) fn listen() -> Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // A second one ends the program at once.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop.wanted))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop.wanted)))
                .context("signals")?;
        }
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
        let interrupt = stop.interrupt.clone();
        let watch = move || {
            if signals.forever().next().is_some() {
                thread::sleep(GRACE);
                interrupt.raise();
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(watch).context("signals")?;
        Ok(stop)
    }

    /// # Errors
    /// The user wants it, or reads no more.
    pub(super) fn check(&self) -> Result<()> {
        if lines::are_unread() {
            bail!("standard output is closed");
        }
        if self.wanted.load(Ordering::Relaxed) { bail!("interrupted") } else { Ok(()) }
    }
}
