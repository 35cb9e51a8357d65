//! What selection is asked about a message.

use lnet_types::{Net, PeerNiId};
use lnet_wire::Kind;

use super::select::{Request, Tables};
use crate::msg::{Msg, Role};
use crate::peer::Facts;
use crate::portal::{RESERVED_PORTAL, is_internal};
use crate::router::choose::Passing;

impl Tables<'_> {
    /// What selection asks about a message for `target`.
    #[inline]
    pub(crate) fn request<'a>(&self, msg: &'a Msg, target: PeerNiId) -> Request<'a> {
        let is_ping = matches!(msg.hdr.kind, Kind::Get { portal: RESERVED_PORTAL, .. });
        Request {
            target,
            src: msg.src,
            recovery: msg.recovery,
            internal: is_internal(&msg.hdr.kind),
            response: msg.is_response(),
            may_move: msg.may_move(),
            numa_node: self.numa.node_of(msg, self.portals),
            tried: &msg.tried,
            until_deadline: msg.until_deadline,
            hint: msg.hint,
            passing: if msg.role == Role::Forward { Some(self.passing(msg)) } else { None },
            check_net: if is_ping { self.check_net(target) } else { None },
        }
    }

    /// The network over which a gateway is being checked, for the ping that does it (S-36).
    fn check_net(&self, target: PeerNiId) -> Option<Net> {
        let peer = self.peers.peers.get(self.peers.nis.get(target)?.peer)?;
        let checking = peer.facts.contains(Facts::ROUTER_CHECK);
        peer.gateway.ping_net.filter(|_| checking)
    }

    /// What path selection needs to know of a message that is passing through.
    fn passing(&self, msg: &Msg) -> Passing {
        let from = self.peers.owner(msg.hdr.src).and_then(|p| self.peers.peers.get(p));
        let previous = msg.rx.and_then(|rx| rx.peer_ni).and_then(|n| self.peers.nis.get(n));
        Passing { from_mr: from.is_some_and(|p| p.is_mr()), previous: previous.map(|n| n.peer) }
    }
}
