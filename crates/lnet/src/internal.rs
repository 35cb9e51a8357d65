//! Operations of the node's own: pings, pushes, recovery. They use descriptors and messages like
//! everybody's; only their events come back inside.

use lnet_types::{Nid, PeerId, PeerNiId};

use crate::Node;
use crate::port::PortId;
use crate::portal::md::Owner;

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
    },
    /// A ping that a user wants to see the answer of (D-81).
    UserPing(crate::OpId),
}

impl Node {
    /// Whether this node asks of its own accord, and was in doubt of whom it asks before: if there is no
    /// answer, that says nothing of anybody else. Kernel nodes charge whoever had to do with it (H-10,
    /// H-66).
    pub(crate) fn was_in_doubt(&self, owner: Owner) -> bool {
        let Owner::Internal(what) = owner else { return false };
        !self.tunables.kernel_clocks()
            && match what {
                Internal::Recover(PortId::Peer(_)) | Internal::Ask { .. } => true,
                Internal::DiscoveryPing(id) | Internal::Push(id) => {
                    self.peers.peers.get(id).is_some_and(|p| p.disc.error.is_some())
                }
                Internal::PingTarget
                | Internal::PushTarget
                | Internal::Recover(PortId::Local(_))
                | Internal::UserPing(_) => false,
            }
    }

    /// The same where the answer was to come by `hop`, if that is a gateway. It has its own checks.
    pub(crate) fn is_no_news_of(&self, hop: PeerNiId, owner: Owner) -> bool {
        let asked = match owner {
            Owner::Internal(Internal::Recover(PortId::Peer(id))) => {
                self.peers.nis.get(id).map(|n| n.peer)
            }
            Owner::Internal(Internal::Ask { nid, .. }) => self.peers.owner(nid),
            Owner::Internal(Internal::DiscoveryPing(id) | Internal::Push(id)) => Some(id),
            Owner::Internal(_) | Owner::User(_) | Owner::Silent => return false,
        };
        self.was_in_doubt(owner) && self.peers.nis.get(hop).map(|n| n.peer) != asked
    }
}
