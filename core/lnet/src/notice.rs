//! Notices: log lines as values for the administrator. The node writes no log of its
//! own accord about traffic; its host polls [`crate::Node::poll_notice`] and prints the notices, at
//! the level that it asks for (MR-dbg-020, -025, -110, -115; RS-038).

use core::fmt;

use lnet_types::{Errno, HealthStatus, Nid};
use lnet_wire::MsgType;

use crate::peer::refusal::Refusal;
use crate::{DropReason, NiState};

/// How loud a notice is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Level {
    /// The administrator should look.
    Error,
    /// Something was lost or late.
    Warn,
    /// Good to know.
    Info,
}

/// A pair of interfaces: ours, and the next hop's.
pub type Pair = (Nid, Nid);

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[derive(serde::Serialize, serde::Deserialize)]
pub enum Notice {
    /// A local interface has another state (MR-dbg-110).
    Interface {
        /// Which.
        nid: Nid,
        /// What it was.
        from: NiState,
        /// What it is.
        to: NiState,
    },
    /// A local interface comes and goes too often, and is favoured less from now on (HL-lnt-115).
    Flapping {
        /// Which.
        nid: Nid,
    },
    /// A message that failed goes another way (MR-dbg-115).
    Rerouted {
        /// Its target.
        target: Nid,
        /// The pair that failed.
        failed: Pair,
        /// How.
        status: HealthStatus,
        /// The pair that it takes now.
        to: Pair,
    },
    /// A message of ours is given up.
    Undelivered {
        /// Its target.
        target: Nid,
        /// The last pair that was tried; none: there was no path.
        pair: Option<Pair>,
        /// How that failed.
        status: HealthStatus,
        /// What the caller gets to see.
        errno: Errno,
        /// How often it was tried.
        attempts: u32,
    },
    /// A transmission timed out (MR-dbg-020).
    TimedOut {
        /// The pair.
        pair: Pair,
        /// Which kind of time-out.
        status: HealthStatus,
    },
    /// A message was thrown away (MR-dbg-025).
    Dropped {
        /// The interface that it came in on.
        ni: Nid,
        /// Its originator.
        source: Nid,
        /// Its final destination.
        target: Nid,
        /// Its kind.
        kind: MsgType,
        /// Why.
        reason: DropReason,
    },
    /// Not one interface of a peer is up and has any health left (RS-038).
    PeerLost {
        /// Its primary NID.
        primary: Nid,
    },
    /// What is believed of a gateway has changed: its routes are not used any more, or again.
    Gateway {
        /// Its primary NID.
        primary: Nid,
        /// Whether they are used.
        usable: bool,
    },
    /// A configured peer announces an interface that its configuration does not have, or that belongs
    /// to another peer; configuration wins (DEC-28, MR-dyn-060).
    Contradicted {
        /// The peer's primary NID.
        primary: Nid,
        /// What it announces.
        announced: Nid,
        /// Why that was rejected.
        errno: Errno,
    },
    /// A peer announces something that cannot be, or that another node contradicts; it was rejected. At
    /// most one a second for each peer; all are counted (`Node::refusals`).
    Refused {
        /// The peer's primary NID.
        primary: Nid,
        /// The NID that it is about, if it is about one.
        nid: Option<Nid>,
        /// What was rejected.
        why: Refusal,
    },
    /// So many more came than were asked for in time.
    Lost(u64),
}

impl Notice {
    /// At which level it is to be printed.
    pub const fn level(&self) -> Level {
        match self {
            Self::Rerouted { .. } => Level::Error,
            // A state that gets better is no trouble.
            Self::Interface { from, to, .. } if (*to as u8) < *from as u8 => Level::Info,
            Self::Gateway { usable: true, .. } => Level::Info,
            // Nothing is lost: the message itself has arrived.
            Self::Dropped { reason: DropReason::Duplicate, .. } => Level::Info,
            Self::Interface { .. }
            | Self::PeerLost { .. }
            | Self::Gateway { .. }
            | Self::Flapping { .. }
            | Self::Undelivered { .. }
            | Self::TimedOut { .. }
            | Self::Dropped { .. }
            | Self::Contradicted { .. }
            | Self::Refused { .. }
            | Self::Lost(_) => Level::Warn,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface { nid, from, to } => write!(f, "interface {nid}: {from} -> {to}"),
            Self::Flapping { nid } => {
                write!(f, "interface {nid}: flapping, favoured less")
            }
            Self::Rerouted { target, failed: (ni, hop), status, to: (ni2, hop2) } => {
                write!(
                    f,
                    "{ni} -> {hop} failed with {status}: message for {target} goes by {ni2} -> {hop2}"
                )
            }
            Self::Undelivered { target, pair, status, errno, attempts } => {
                match attempts {
                    0 => write!(f, "message for {target} abandoned unsent: {errno}")?,
                    _ => write!(
                        f,
                        "message for {target} abandoned after {attempts} attempts: {errno}"
                    )?,
                }
                match pair {
                    // It never left, or no interface is to blame.
                    Some((ni, hop)) if *status == HealthStatus::Ok => {
                        write!(f, ", last {ni} -> {hop}")
                    }
                    Some((ni, hop)) => write!(f, ", last {ni} -> {hop} with {status}"),
                    None => Ok(()),
                }
            }
            Self::TimedOut { pair: (ni, hop), status } => {
                write!(f, "{ni} -> {hop}: {status}")
            }
            Self::Dropped { ni, source, target, kind, reason } => {
                write!(f, "{ni}: {kind:?} from {source} for {target} dropped: {reason:?}")
            }
            Self::PeerLost { primary } => write!(f, "peer {primary}: all interfaces are down"),
            Self::Gateway { primary, usable } => {
                let state = if *usable { "usable" } else { "down, its routes are not used" };
                write!(f, "gateway {primary}: {state}")
            }
            Self::Contradicted { primary, announced, errno } => {
                write!(
                    f,
                    "peer {primary} announces {announced}: rejected, configuration wins ({errno})"
                )
            }
            Self::Refused { primary, nid, why } => {
                write!(f, "peer {primary} {why}: rejected")?;
                nid.map_or(Ok(()), |nid| write!(f, " ({nid})"))
            }
            Self::Lost(n) => write!(f, "{n} more notices were not kept"),
        }
    }
}

/// Notices that wait to be polled; more are only counted.
pub const NOTICES_MAX: usize = 256;

/// The queue of them.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Notices {
    queue: std::collections::VecDeque<Notice>,
    lost: u64,
}

impl Notices {
    pub(crate) fn push(&mut self, notice: Notice) {
        if self.queue.len() < NOTICES_MAX {
            self.queue.push_back(notice);
        } else {
            self.lost += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.lost == 0
    }

    pub(crate) fn pop(&mut self) -> Option<Notice> {
        self.queue.pop_front().or_else(|| {
            let lost = core::mem::take(&mut self.lost);
            (lost > 0).then_some(Notice::Lost(lost))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_duplicate_is_no_trouble_and_any_other_drop_is() {
        let dropped = |reason| Notice::Dropped {
            ni: Nid::ANY,
            source: Nid::ANY,
            target: Nid::ANY,
            kind: MsgType::Put,
            reason,
        };
        assert_eq!(dropped(DropReason::Duplicate).level(), Level::Info);
        assert_eq!(dropped(DropReason::NoMatch).level(), Level::Warn);
    }

    #[test]
    fn beyond_the_limit_notices_are_counted_and_the_count_comes_last() {
        let mut notices = Notices::default();
        for _ in 0..NOTICES_MAX + 3 {
            notices.push(Notice::PeerLost { primary: Nid::ANY });
        }
        let all: Vec<_> = core::iter::from_fn(|| notices.pop()).collect();
        assert_eq!(all.len(), NOTICES_MAX + 1);
        assert_eq!(all.last(), Some(&Notice::Lost(3)));
    }
}
