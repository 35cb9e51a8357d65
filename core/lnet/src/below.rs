//! The values that cross the border below: what drivers report of messages, links and rails. The
//! border itself is in `driver.rs`, what goes the other way in `output.rs`.

use lnet_types::{Errno, Fault, Instant, NiId, Nid, PeerNiId, Pid, RxId};
use lnet_wire::Hdr;

use crate::Payload;

/// A message whose header has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rx {
    /// The interface that it came in on.
    pub ni: NiId,
    /// The previous hop (the connection's peer), which need not be the originator.
    pub from: Nid,
    /// The previous hop's process.
    pub from_pid: Pid,
    /// The node's name for the previous hop's interface, as [`crate::Node::peer_ni`] gave it. `None` and a name
    /// that is out of date cost a lookup by NID.
    #[serde(skip)]
    pub peer_ni: Option<PeerNiId>,
    /// The driver's own name for it; comes back in `Output::Resume`.
    pub id: RxId,
}

/// Terms under which a driver retains a message until its transport has acknowledged the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Retention {
    /// When the caller handed the message in.
    pub born: Instant,
    /// The message's deadline: no further copy leaves after it.
    pub until: Instant,
    /// Copies leave from the same interface: the caller has named it.
    pub bound: bool,
}

/// A message in doubt: its transport has taken it, and has not acknowledged it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct InDoubt {
    /// The interface that it left from.
    pub ni: NiId,
    /// The interface of the next hop.
    pub to: Nid,
    /// The header, as it was sent.
    pub hdr: Hdr,
    /// What followed it.
    pub payload: Payload,
    /// What the node said when it handed the message over.
    pub retention: Retention,
}

/// Condition of a local interface, as its driver or netlink sees it (H-90, K-60).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Link {
    /// Usable.
    Up,
    /// Not usable: no carrier, address gone, device gone.
    Down,
}

/// A driver's judgement of a *rail*: the way from one interface of ours to one of a peer (DEC-31).
/// Greater is worse.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub enum Doubt {
    /// No evidence against it.
    #[default]
    None,
    /// It carries, but badly: it loses what is sent, or takes far longer than it needs to, or has
    /// done so a moment ago.
    Shaky,
    /// It was silent and answers again, or takes several times as long as one that is merely shaky: it
    /// has yet to prove itself.
    Unproven,
    /// It carries far less than it did (drivers that measure that), until it has carried a load.
    Slow,
    /// What was sent has not been acknowledged, or a connection attempt not answered, for longer
    /// than either should take.
    Silent,
}

impl Doubt {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Shaky => "shaky",
            Self::Unproven => "unproven",
            Self::Slow => "slow",
            Self::Silent => "silent",
        }
    }
}

impl core::fmt::Display for Doubt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

/// The fault of a message whose interface went away under it (K-40).
pub const NI_STOPPED: Fault = Fault::new(lnet_types::HealthStatus::RemoteDropped, Errno::ENETDOWN);
