//! Whether a gateway, and a route through it, can be used (behaviour.md 7.3). Pure: facts in,
//! answer out; `check.rs` supplies the facts.
//!
//! ```text
//!            answered, up, traffic*                 answered, up, traffic
//!   Assumed ───────────────────────► Alive ◄──────────────────────────────── Dead
//!   Unproven ──────────────────────►   │                                      ▲
//!      ╰───────────── failed, down ────┴──────── failed, down ────────────────╯
//! ```
//!
//! (*) Traffic proves nothing about a gateway that is believed alive anyway: `Assumed` stays.

use lnet_types::PeerId;

use super::routes::Route;
use crate::Tunables;
use crate::peer::{Facts, Peer, Peers};

/// What is believed of a gateway as a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Life {
    /// Never checked, believed alive.
    #[default]
    Assumed,
    /// Never checked, not to be used before it was (`check_routers_before_use`).
    Unproven,
    /// It answered the last check, or was heard from since.
    Alive,
    /// It did not.
    Dead,
}

/// What may change that belief.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Sign {
    /// A discovery of it succeeded (R-34).
    Answered,
    /// A discovery of it failed (R-34).
    Failed,
    /// A forwarded message came through it (R-36).
    Traffic,
    /// Reported up (R-62).
    Up,
    /// Reported down (R-62).
    Down,
}

impl Life {
    /// Whether routes through it may be used at all (R-30.1).
    pub(crate) const fn is_alive(self) -> bool {
        match self {
            Self::Assumed | Self::Alive => true,
            Self::Unproven | Self::Dead => false,
        }
    }

    /// The belief after a sign.
    pub(crate) const fn after(self, sign: Sign) -> Self {
        match (self, sign) {
            // It is there, whatever was believed.
            (
                Self::Assumed | Self::Unproven | Self::Alive | Self::Dead,
                Sign::Answered | Sign::Up,
            ) => Self::Alive,
            // It is not there.
            (
                Self::Assumed | Self::Unproven | Self::Alive | Self::Dead,
                Sign::Failed | Sign::Down,
            ) => Self::Dead,
            // Believed alive without proof; a first check is still to come.
            (Self::Assumed, Sign::Traffic) => Self::Assumed,
            // A node that forwards is alive.
            (Self::Unproven | Self::Alive | Self::Dead, Sign::Traffic) => Self::Alive,
        }
    }
}

/// O-23: what the peer says of itself is not taken.
pub(crate) fn is_discovery_off(t: &Tunables, peer: &Peer) -> bool {
    t.discovery == 0 || !peer.is_mr() || peer.facts.contains(Facts::NO_DISCOVERY)
}

/// Whether `peer` has an interface on the network that it says is up.
pub(crate) fn has_up_ni(peers: &Peers, peer: &Peer, net: lnet_types::Net) -> bool {
    let nis = peer.net(net).into_iter().flat_map(|n| &n.nis);
    nis.filter_map(|id| peers.nis.get(*id)).any(|n| n.port.status_up)
}

/// Whether the far side of a route is watched too: the gateway is the last one before it (R-30.4).
pub(crate) fn watches_far_side(t: &Tunables, route: &Route) -> bool {
    t.avoid_asym_router_failure != 0 && (route.hops == Some(1) || route.single_hop)
}

/// Whether a route can be used (R-30).
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

#[cfg(test)]
mod tests {
    use super::*;
    use Life::{Alive, Assumed, Dead, Unproven};

    #[test]
    fn each_sign_moves_each_belief_as_the_table_says() {
        // Columns: Answered, Failed, Traffic, Up, Down.
        let table = [
            (Assumed, [Alive, Dead, Assumed, Alive, Dead]),
            (Unproven, [Alive, Dead, Alive, Alive, Dead]),
            (Alive, [Alive, Dead, Alive, Alive, Dead]),
            (Dead, [Alive, Dead, Alive, Alive, Dead]),
        ];
        let signs = [Sign::Answered, Sign::Failed, Sign::Traffic, Sign::Up, Sign::Down];
        for (from, to) in table {
            for (sign, expected) in signs.into_iter().zip(to) {
                assert_eq!(from.after(sign), expected, "{from:?} after {sign:?}");
            }
        }
    }

    #[test]
    fn only_an_unproven_or_dead_gateway_is_not_used() {
        let usable = [Assumed, Unproven, Alive, Dead].map(Life::is_alive);
        assert_eq!(usable, [true, false, true, false]);
    }
}
