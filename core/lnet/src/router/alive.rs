//! Whether a gateway, and a route through it, can be used (behaviour.md 7.3). Pure: facts in, answer out.
//! What is believed of a gateway is in `life.rs`; `check.rs` supplies the facts.

use lnet_types::PeerId;

use super::routes::Route;
use crate::Tunables;
use crate::peer::{Facts, Peer, Peers};

/// O-23: what the peer says of itself is not taken.
pub(crate) fn is_discovery_off(t: &Tunables, peer: &Peer) -> bool {
    t.discovery == 0 || !peer.is_mr() || peer.facts.contains(Facts::NO_DISCOVERY)
}

/// Whether `peer` has an interface on the network that it says is up.
pub(crate) fn has_up_ni(peers: &Peers, peer: &Peer, net: lnet_types::Net) -> bool {
    let nis = peer.net(net).into_iter().flat_map(|n| &n.nis);
    nis.filter_map(|id| peers.nis.get(*id)).any(|n| n.port.status_up)
}

/// Whether the far side of a route is watched too: the gateway is the last one before it.
pub(crate) fn watches_far_side(t: &Tunables, route: &Route) -> bool {
    t.avoid_asym_router_failure != 0 && (route.hops == Some(1) || route.single_hop)
}

/// Whether a route can be used.
pub(crate) fn is_route_alive(t: &Tunables, peers: &Peers, route: &Route) -> bool {
    let Some(peer) = peers.peers.get(route.gateway) else { return false };
    if !peer.gateway.life.is_alive() {
        return false;
    }
    if is_discovery_off(t, peer) {
        return route.cached;
    }
    has_up_ni(peers, peer, route.nid.net())
        && (!watches_far_side(t, route) || has_up_ni(peers, peer, route.net))
        && peer.facts.contains(Facts::ROUTER_ENABLED)
}

/// Whether the peer serves as a gateway.
pub(crate) fn is_router(peers: &Peers, id: PeerId) -> bool {
    peers.peers.get(id).is_some_and(|p| p.gateway.is_router())
}
