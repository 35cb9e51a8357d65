//! Lines of the log that a client writes: what an operator is to know of a connection.

use core::fmt;
use core::time::Duration;

use lnet_types::{Errno, Nid};

/// One line. Its text is what [`fmt::Display`] writes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogLine {
    /// A connection in use has failed.
    Lost {
        /// Uuid of the target.
        target: String,
        /// The node.
        nid: Nid,
    },
    /// A connection is in use again (PA-158).
    Restored {
        /// Uuid of the target.
        target: String,
        /// The node.
        nid: Nid,
    },
    /// The server has dropped this client.
    Evicted {
        /// Uuid of the target.
        target: String,
        /// The node.
        nid: Nid,
    },
    /// The server will have nothing to do with this client.
    Refused {
        /// Uuid of the target.
        target: String,
        /// The node.
        nid: Nid,
        /// What it has answered.
        errno: Errno,
    },
    /// The server has lost transactions that it had reported as committed (P-65.13).
    LostCommits {
        /// Uuid of the target.
        target: String,
        /// What was committed.
        known: u64,
        /// What the server has now.
        now: u64,
    },
    /// A replay had another result than the first time (P-71).
    ReplayDiffers {
        /// Uuid of the target.
        target: String,
        /// The transaction.
        transno: u64,
        /// The result.
        status: i32,
    },
    /// LNet may take longer for a message than a request has time (RS-051). Said once.
    SlowLnet {
        /// LNet's transaction timeout.
        longest: Duration,
        /// The time of the request.
        left: Duration,
    },
    /// Calls of the time before an eviction have not ended yet (P-76).
    StillEnding {
        /// Uuid of the target.
        target: String,
        /// How many.
        calls: usize,
    },
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { target, nid } => {
                write!(f, "{target}: connection to {nid} lost; calls wait for a new one")
            }
            Self::Restored { target, nid } => {
                write!(f, "Connection restored to {target} (at {nid})")
            }
            Self::Evicted { target, nid } => {
                write!(f, "{target}: evicted by {nid}; calls under way fail, locks are void")
            }
            Self::Refused { target, nid, errno } => {
                write!(f, "{target}: connection refused for good by {nid}: {errno}")
            }
            Self::LostCommits { target, known, now } => {
                write!(f, "{target}: the server lost commits: transno {now}, expected {known}")
            }
            Self::ReplayDiffers { target, transno, status } => {
                write!(f, "{target}: replay of transno {transno} returned {status}")
            }
            Self::SlowLnet { longest, left } => {
                let (longest, left) = (longest.as_secs(), left.as_secs());
                write!(
                    f,
                    "transaction_timeout {longest}: expected at most {left}, the time of a request"
                )
            }
            Self::StillEnding { target, calls } => {
                write!(f, "{target}: {calls} calls still end after an eviction")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_target_node_and_value() {
        let target = || "log-1".to_owned();
        let nid: Nid = "10.0.0.1@tcp".parse().unwrap();
        for (line, text) in [
            (
                LogLine::Lost { target: target(), nid },
                "log-1: connection to 10.0.0.1@tcp lost; calls wait for a new one",
            ),
            (
                LogLine::Restored { target: target(), nid },
                "Connection restored to log-1 (at 10.0.0.1@tcp)",
            ),
            (
                LogLine::LostCommits { target: target(), known: 9, now: 7 },
                "log-1: the server lost commits: transno 7, expected 9",
            ),
        ] {
            assert_eq!(line.to_string(), text);
        }
    }
}
