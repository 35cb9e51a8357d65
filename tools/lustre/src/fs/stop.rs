//! The end of a visit that the user wants ([`crate::stop`]), or that has no reader any more. It is looked for
//! between requests; those under way are interrupted.

use anyhow::{Result, bail};
use lustre_rt::Interrupt;

use super::lines;
use crate::stop;

/// Whether the command is to end.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    signals: stop::Stop,
    /// Of the visits of the command.
    pub(super) interrupt: Interrupt,
}

impl Stop {
    pub(super) fn listen() -> Result<Self> {
        let interrupt = Interrupt::default();
        let raised = interrupt.clone();
        Ok(Self { signals: stop::Stop::listen(move || raised.raise())?, interrupt })
    }

    /// # Errors
    /// The user wants it, or reads no more.
    pub(super) fn check(&self) -> Result<()> {
        if lines::are_unread() {
            bail!("standard output is closed");
        }
        self.signals.check()
    }
}
