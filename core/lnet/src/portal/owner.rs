//! Whose a memory descriptor is: a user's, or the node's own, and then what it is for.

use lnet_types::{Nid, PeerId};
use lnet_wire::MsgType;

use crate::port::PortId;

/// The recipient of a descriptor's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Owner {
    /// A user of the node, by the word that it gave.
    User(u64),
    /// The same, by its user word, of failures alone; of all else the user gets that word, once the
    /// descriptor is gone.
    Quiet(u64),
    /// The node itself.
    Internal(Internal),
    /// None (M-5).
    Silent,
}

impl Owner {
    /// The word that its events bear.
    pub(crate) const fn user(self) -> u64 {
        match self {
            Self::User(user) | Self::Quiet(user) => user,
            Self::Internal(_) | Self::Silent => 0,
        }
    }

    /// Whether it is a user that hears of its descriptor.
    pub(crate) const fn is_user(self) -> bool {
        matches!(self, Self::User(_) | Self::Quiet(_))
    }
}

/// What one of the node's own descriptors is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Internal {
    /// What peers read when they ping us (D-8).
    PingTarget,
    /// What peers write when they push (D-8).
    PushTarget,
    /// The ping by which a peer is discovered (D-30).
    DiscoveryPing(PeerId),
    /// Our data on the way to a peer (D-50).
    Push(PeerId),
    /// The recovery ping of an interface, ours or a peer's (H-46, H-47).
    Recover(PortId),
    /// Asks the node at a NID that `claimant` claims, who it is.
    Ask {
        /// Whose data list the NID.
        claimant: PeerId,
        /// The NID.
        nid: Nid,
        /// The number of the data known of its owner when the ping was sent.
        seq: u32,
    },
    /// A ping whose answer a user waits for (D-81).
    UserPing(crate::OpId),
}

impl Internal {
    /// The response that a descriptor for this waits for. Another one would use it up, and what waits
    /// for it would wait for ever.
    pub(crate) const fn response(self) -> Option<MsgType> {
        match self {
            Self::PingTarget | Self::PushTarget => None,
            Self::Push(_) => Some(MsgType::Ack),
            Self::DiscoveryPing(_) | Self::Recover(_) | Self::Ask { .. } | Self::UserPing(_) => {
                Some(MsgType::Reply)
            }
        }
    }
}
