//! Operations of the node's own: pings, pushes, recovery. They use descriptors and messages like
//! everybody's; only their events come back inside.

use lnet_types::{NiId, Nid, PeerId, PeerNiId};

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
    /// Asks a failed interface of ours for a sign of life (H-47).
    RecoverLocal(NiId),
    /// Asks a failed interface of a peer (H-46).
    RecoverPeer(PeerNiId),
    /// Asks the node at a NID that `claimant` claims, who it is.
    Ask {
        /// Whose data list the NID.
        claimant: PeerId,
        /// The NID.
        nid: Nid,
    },
    /// A ping that a user wants to see the answer of (D-81).
    UserPing(crate::OpId),
}
