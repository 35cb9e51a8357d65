//! What can be seen of targets and clients from outside.

use core::fmt;
use core::time::Duration;

use ptlrpc::{CallError, EvictReason, ImportState};

/// A call of a client, by a number that no other call of the run has. It goes with the request, so
/// that the target knows it without the request layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallNo(pub u64);

impl fmt::Display for CallNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Something that was seen at a node. Targets are indices in
/// [`lnet_scenario::RpcWorld::targets`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcSeen {
    /// The node serves a target from now on, with what was committed.
    Served {
        /// Which target.
        target: usize,
    },
    /// A client has begun a call.
    Called {
        /// Which target.
        target: usize,
        /// Which call.
        call: CallNo,
        /// Whether it changes nothing.
        reads: bool,
    },
    /// A target has carried out a change.
    Executed {
        /// Which target.
        target: usize,
        /// Whose change.
        call: CallNo,
        /// Its transaction.
        transno: u64,
    },
    /// Changes of a target up to this transaction survive a crash.
    Committed {
        /// Which target.
        target: usize,
        /// The last one.
        transno: u64,
    },
    /// A call is over: with the transaction of its change, or the last one that it has read of.
    Ended {
        /// Which target.
        target: usize,
        /// Which call.
        call: CallNo,
        /// From its beginning.
        took: Duration,
        /// How.
        result: Result<u64, CallError>,
    },
    /// Bulk data of a call are not those that were sent.
    Damaged {
        /// Which call.
        call: CallNo,
    },
    /// A client's connection to a target has another state.
    State {
        /// Which target.
        target: usize,
        /// The state.
        state: ImportState,
    },
    /// A client has found out that it was evicted.
    Invalidated {
        /// By which target.
        target: usize,
    },
    /// A step of a target's recovery.
    Recovery {
        /// Which target.
        target: usize,
        /// The line for its log.
        line: String,
    },
    /// A target has evicted a client.
    Evicted {
        /// Which target.
        target: usize,
        /// The client's uuid.
        client: String,
        /// Why.
        reason: EvictReason,
    },
}

impl RpcSeen {
    /// A line about it, and whether it is a moment that a reader of a run wants to see.
    pub(crate) fn line(&self, names: &[lnet_scenario::TargetSpec]) -> (bool, String) {
        let name = |at: &usize| names.get(*at).map_or("?", |t| t.name.as_str());
        match self {
            Self::Served { target } => (true, format!("serves {}", name(target))),
            Self::Called { target, call, reads } => {
                let what = if *reads { "reads" } else { "changes" };
                (false, format!("call {call} {what} {}", name(target)))
            }
            Self::Executed { target, call, transno } => (
                false,
                format!("{} carries out call {call} as transaction {transno}", name(target)),
            ),
            Self::Committed { target, transno } => {
                (false, format!("{} has committed up to transaction {transno}", name(target)))
            }
            Self::Ended { target, call, took, result } => match result {
                Ok(value) => (
                    false,
                    format!("call {call} to {} answered {value} after {took:?}", name(target)),
                ),
                Err(e) => {
                    (true, format!("call {call} to {} failed after {took:?}: {e}", name(target)))
                }
            },
            Self::Damaged { call } => (true, format!("bulk data of call {call} are damaged")),
            Self::State { target, state } => {
                (true, format!("connection to {} is {}", name(target), state.name()))
            }
            Self::Invalidated { target } => (true, format!("was evicted by {}", name(target))),
            Self::Recovery { target, line } => (true, format!("{}: {line}", name(target))),
            Self::Evicted { target, client, reason } => {
                (true, format!("{} evicts {client}: {reason:?}", name(target)))
            }
        }
    }

    /// Words that tell it from others, for the hash of a run.
    pub(crate) fn words(&self) -> [u64; 3] {
        match *self {
            Self::Served { target } => [1, target as u64, 0],
            Self::Called { target, call, reads } => {
                [2, (target as u64) << 1 | u64::from(reads), call.0]
            }
            Self::Executed { target, call, transno } => [3 | (target as u64) << 8, call.0, transno],
            Self::Committed { target, transno } => [4, target as u64, transno],
            Self::Ended { call, ref result, .. } => {
                [5, call.0, result.map_or_else(|e| e.errno().0 as u64, |v| v)]
            }
            Self::Damaged { call } => [6, call.0, 0],
            Self::State { target, state } => [7, target as u64, state as u64],
            Self::Invalidated { target } => [8, target as u64, 0],
            Self::Recovery { target, ref line } => [10, target as u64, line.len() as u64],
            Self::Evicted { target, reason, .. } => [9, target as u64, reason as u64],
        }
    }
}
