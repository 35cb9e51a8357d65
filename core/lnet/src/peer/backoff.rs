//! Where the retries of one peer stand, as data. `retry.rs` plans them.

use core::time::Duration;

use lnet_types::Instant;

use crate::peer::cause::Cause;

/// From a failure to the first try; each further interval is twice as long. Use of the peer does not
/// cause another query within this time either.
pub(super) const FIRST: Duration = Duration::from_secs(1);

/// The retries of one peer.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Retry {
    /// Tries since the last success.
    pub(super) tries: u8,
    /// Queries in a row without an answer.
    pub(super) unanswered: u8,
    /// Why the next query is made, whose timer is set.
    pub(super) planned: Option<Cause>,
    /// Until then its use causes no query: one has just failed.
    pub(super) backoff_until: Option<Instant>,
}

impl Retry {
    /// There is something new to announce.
    pub(crate) const fn restart_backoff(&mut self) {
        self.tries = 0;
    }

    /// Whether a query has failed just now.
    pub(crate) fn backs_off(&self, now: Instant) -> bool {
        self.backoff_until.is_some_and(|until| now < until)
    }

    /// A query has failed; `unanswered`: it was sent.
    pub(crate) fn fail(&mut self, now: Instant, unanswered: bool) {
        self.backoff_until = Some(now + FIRST);
        if unanswered {
            self.unanswered = self.unanswered.wrapping_add(1);
        }
    }
}
