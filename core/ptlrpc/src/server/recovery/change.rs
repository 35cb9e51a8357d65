//! What a recovery reports, and the lines that logs have for it. The words of the lines are those of
//! the kernel's console where it has some, so that what searches logs finds them.

use core::fmt;
use core::time::Duration;

/// A step of a target's recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryChange {
    /// The target was started, and waits for clients; no time runs before the first is back.
    Waiting {
        /// How long it will wait at first.
        soft: Duration,
        /// The longest that it waits.
        hard: Duration,
        /// Uuids of the clients that it knows.
        missing: Vec<String>,
    },
    /// The first client is back: the window has begun.
    Began {
        /// Its length.
        window: Duration,
        /// Clients that are known.
        clients: usize,
    },
    /// All clients are back, or given up: requests are repeated.
    Requests,
    /// All requests have been repeated: locks are.
    Locks,
    /// The window is over; those that are missing are evicted.
    TimedOut {
        /// Their uuids.
        missing: Vec<String>,
    },
    /// It is over: the target is in use.
    Done {
        /// How it went.
        outcome: RecoveryOutcome,
    },
    /// It took too long, or was ended: all clients that had not finished are evicted.
    Aborted {
        /// How it went.
        outcome: RecoveryOutcome,
    },
}

/// How a recovery went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryOutcome {
    /// From the first client's return to the end.
    pub after: Duration,
    /// Clients that were known at the start.
    pub clients: usize,
    /// Those that came back and finished.
    pub recovered: usize,
    /// Those that were evicted, or disconnected.
    pub evicted: usize,
    /// Requests that were executed again.
    pub replayed: u64,
    /// New transactions have numbers above this one (P-153).
    pub last_transno: u64,
}

/// Minutes and seconds.
struct Clock(Duration);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.as_secs();
        write!(f, "{}:{:02}", secs / 60, secs % 60)
    }
}

const fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

impl fmt::Display for RecoveryChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { soft, hard, .. } => write!(
                f,
                "Imperative Recovery not enabled, recovery window {}-{}",
                soft.as_secs(),
                hard.as_secs()
            ),
            Self::Began { window, clients } => write!(
                f,
                "Will be in recovery for at least {}, or until {clients} client{} reconnect{}",
                Clock(*window),
                plural(*clients),
                if *clients == 1 { "s" } else { "" },
            ),
            Self::Requests => f.write_str("all clients are back or evicted, replaying requests"),
            Self::Locks => f.write_str("all requests are replayed, replaying locks"),
            Self::TimedOut { missing } => {
                write!(f, "recovery is timed out, evict stale exports")?;
                for client in missing {
                    write!(f, "\ndisconnect stale client {client}")?;
                }
                let n = missing.len();
                write!(f, "\ndisconnecting {n} stale clients")
            }
            Self::Done { outcome } => write!(f, "Recovery over after {outcome}"),
            Self::Aborted { outcome } => write!(f, "Recovery aborted after {outcome}"),
        }
    }
}

impl fmt::Display for RecoveryOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, clients, recovered, evicted, .. } = self;
        let were = if *evicted == 1 { "was" } else { "were" };
        write!(
            f,
            "{}, of {clients} client{} {recovered} recovered and {evicted} {were} evicted.",
            Clock(*after),
            plural(*clients),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn lines_have_the_words_of_the_kernels_console() {
        let missing = vec!["c4f352a4-6f4c-411e-a95a-fa92c8866d63".to_owned()];
        let done = |after, clients, recovered, evicted| RecoveryChange::Done {
            outcome: RecoveryOutcome {
                after: secs(after),
                clients,
                recovered,
                evicted,
                ..RecoveryOutcome::default()
            },
        };
        // As captured in fixtures of a server's restart.
        for (change, line) in [
            (
                RecoveryChange::Waiting { soft: secs(300), hard: secs(900), missing: Vec::new() },
                "Imperative Recovery not enabled, recovery window 300-900",
            ),
            (
                RecoveryChange::Began { window: secs(300), clients: 2 },
                "Will be in recovery for at least 5:00, or until 2 clients reconnect",
            ),
            (
                RecoveryChange::Began { window: secs(95), clients: 1 },
                "Will be in recovery for at least 1:35, or until 1 client reconnects",
            ),
            (
                RecoveryChange::TimedOut { missing },
                "recovery is timed out, evict stale exports\n\
                 disconnect stale client c4f352a4-6f4c-411e-a95a-fa92c8866d63\n\
                 disconnecting 1 stale clients",
            ),
            (
                done(3, 2, 2, 0),
                "Recovery over after 0:03, of 2 clients 2 recovered and 0 were evicted.",
            ),
            (
                done(300, 3, 2, 1),
                "Recovery over after 5:00, of 3 clients 2 recovered and 1 was evicted.",
            ),
        ] {
            assert_eq!(change.to_string(), line);
        }
    }
}
