//! Adding and removing routes (behaviour.md 7.1), and what becomes of routes when gateways turn out to
//! be other peers than was thought (R-16, D-42, D-48). The table is in `routes.rs`.

use lnet_types::{Errno, Instant, Net, Nid, PeerId};

use super::life::{Life, Sign};
use super::routes::{ROUTES_MAX, Route, RouteError, RouteSpec};
use crate::Node;
use crate::peer::Facts;
use crate::peer::eviction::Purpose;

impl Node {
    /// Adds a route, and has its gateway checked.
    ///
    /// # Errors
    /// Names what is wrong with the network, the gateway or the hop count.
    pub(crate) fn insert_route(&mut self, now: Instant, spec: RouteSpec) -> Result<(), RouteError> {
        let RouteSpec { net, gateway, hops, priority } = spec;
        if !self.running {
            return Err(RouteError::Stopping);
        }
        if gateway.is_any() || gateway.is_loopback() {
            return Err(RouteError::Gateway(gateway));
        }
        if net == Net::ANY || net.kind == Net::LO.kind {
            return Err(RouteError::Net(net));
        }
        if gateway.net() == net {
            return Err(RouteError::Loop { gateway, net });
        }
        if self.nis.owns(gateway) {
            return Err(RouteError::Oneself(gateway));
        }
        let hops = match hops {
            None => None,
            Some(n) => match u8::try_from(n) {
                Ok(n) if n > 0 => Some(n),
                Ok(_) | Err(_) => return Err(RouteError::Hops(n)),
            },
        };
        if self.nis.tunables_of(net).is_some() {
            return Err(RouteError::Local(net));
        }
        if self.nis.tunables_of(gateway.net()).is_none() {
            return Err(RouteError::Unreachable(gateway));
        }
        if self.router.routes.len() >= ROUTES_MAX {
            return Err(RouteError::Peer { gateway, errno: Errno::ENOSPC });
        }
        let unknown = self.peers.find(gateway).is_none();
        let ni = self
            .peer_ni_or_new(None, gateway, None, Purpose::Ordered)
            .map_err(|errno| RouteError::Peer { gateway, errno })?;
        let Some(pni) = self.peers.nis.get_mut(ni) else {
            return Err(RouteError::Peer { gateway, errno: Errno::EFAULT });
        };
        let peer = pni.peer;
        if self.router.routes.to(net).iter().any(|r| r.gateway == peer) {
            return Err(RouteError::Exists { net, gateway });
        }
        let unproven = self.tunables.check_routers_before_use != 0;
        if unproven && unknown {
            // O-28
            pni.port.status_up = false;
        }
        if hops.is_none() && self.tunables.avoid_asym_router_failure != 0 {
            tracing::info!(%net, %gateway, "hop count undefined: the far side is watched only if \
                the gateway turns out to have an interface there");
        }
        self.router.routes.insert(Route {
            net,
            gateway: peer,
            nid: gateway,
            hops,
            priority,
            cached: !unproven,
            single_hop: false,
            seq: 0,
        });
        self.is_gateway_now(now, peer);
        self.name_gateways();
        self.check_gateways(now);
        Ok(())
    }

    /// Removes routes: to one network or all, through one gateway, by any of its NIDs, or all.
    ///
    /// # Errors
    /// No route leads to the network named.
    pub(crate) fn remove_routes(
        &mut self,
        net: Option<Net>,
        gateway: Option<Nid>,
    ) -> Result<(), RouteError> {
        if let Some(net) = net.filter(|net| !self.router.routes.has_net(*net)) {
            return Err(RouteError::NoSuchNet(net));
        }
        let peer = gateway.map(|nid| self.peers.owner(nid));
        let gone = self.router.routes.take(|r| {
            net.is_none_or(|net| net == r.net) && peer.is_none_or(|p| p == Some(r.gateway))
        });
        self.forget_routes(&gone);
        self.name_gateways();
        Ok(())
    }

    /// Counts a new route through `peer`, which is to be checked now.
    pub(crate) fn is_gateway_now(&mut self, now: Instant, peer: PeerId) {
        let unproven = self.tunables.check_routers_before_use != 0;
        let Some(p) = self.peers.peers.get_mut(peer) else { return };
        if !p.gateway.is_router() {
            p.gateway.life = if unproven { Life::Unproven } else { Life::Assumed };
        }
        p.gateway.routes += 1;
        self.check_soon(now, peer);
    }

    /// O-42: the network of these gateways is not local any more.
    pub(crate) fn del_routes_over(&mut self, net: Net) {
        let gone = self.router.routes.take(|r| r.nid.net() == net);
        self.forget_routes(&gone);
        // Gateways that stay may go by another NID from now on.
        self.rehome_later();
        self.name_gateways();
    }

    /// Rules of the selection policy name gateways by their primary NIDs (U-25).
    pub(crate) fn name_gateways(&mut self) {
        let mut nids: Vec<Nid> = self
            .router
            .routes
            .all()
            .filter_map(|r| self.peers.peers.get(r.gateway))
            .map(|p| p.primary)
            .collect();
        nids.sort_unstable();
        nids.dedup();
        self.policy_gateways_changed(nids);
    }

    /// A gateway without routes is an ordinary peer again.
    pub(crate) fn forget_routes(&mut self, gone: &[Route]) {
        for route in gone {
            if let Some(p) = self.peers.peers.get_mut(route.gateway) {
                p.gateway.routes = p.gateway.routes.saturating_sub(1);
                if !p.gateway.is_router() {
                    self.stop_checks(route.gateway);
                }
            }
        }
    }

    /// Moves the routes of one gateway to another peer, which has turned out to be the same node
    ///
    pub(crate) fn transfer_routes(&mut self, now: Instant, from: PeerId, into: PeerId) {
        let moved = self.router.routes.take(|r| r.gateway == from);
        self.forget_routes(&moved);
        for route in moved {
            self.settle_route(now, route, into);
        }
    }

    /// Gives a route that has lost its peer to `into`, unless that has a better one there.
    fn settle_route(&mut self, now: Instant, route: Route, into: PeerId) {
        if let Some(old) =
            self.router.routes.to(route.net).iter().find(|r| r.gateway == into).cloned()
        {
            let hops = |r: &Route| r.hops.unwrap_or(1);
            if route.priority >= old.priority || hops(&route) >= hops(&old) {
                tracing::warn!(net = %route.net, gateway = %route.nid, kept = %old.nid,
                    "two routes by the same gateway: one is dropped");
                return;
            }
            let gone = self.router.routes.take(|r| r.net == old.net && r.gateway == into);
            self.forget_routes(&gone);
        }
        self.router.routes.insert(Route { gateway: into, ..route });
        self.is_gateway_now(now, into);
    }

    /// Gives such routes to the peer that owns the gateway's NID now; to a new one if none does
    /// (D-42.5, D-48), also where the gateway has given up that NID and then died: it may have it again,
    /// and have been unable to say so. Kernel nodes stay with what they know.
    pub(crate) fn rehome_routes(&mut self, now: Instant) {
        let rehomes = self.tunables.conduct.rehomes_dead_gateways;
        let peers = &self.peers;
        let is_dead = |p: &crate::peer::Peer| p.gateway.life == Life::Dead && rehomes;
        let moved = self.router.routes.take(|r| match peers.owner(r.nid) {
            Some(owner) => owner != r.gateway,
            None => peers.peers.get(r.gateway).is_none_or(is_dead),
        });
        let given_up: Vec<Nid> = moved
            .iter()
            .filter(|r| self.peers.peers.contains_key(r.gateway))
            .filter(|r| self.peers.owner(r.nid).is_none())
            .map(|r| r.nid)
            .collect();
        self.forget_routes(&moved);
        for route in moved {
            let owner = self
                .peer_ni_or_new(None, route.nid, None, Purpose::Ordered)
                .ok()
                .and_then(|ni| self.peers.nis.get(ni))
                .map(|n| n.peer);
            match owner {
                Some(owner) => {
                    let is_dead = given_up.contains(&route.nid);
                    self.settle_route(now, route, owner);
                    if is_dead {
                        self.sign_gateway(owner, Sign::Failed);
                    }
                }
                None => {
                    tracing::error!(net = %route.net, gateway = %route.nid,
                        "route dropped: no record of its gateway can be made");
                }
            }
        }
        self.name_gateways();
        self.check_gateways(now);
    }

    /// Whether every gateway has been checked at least once, whatever came of it. A shell
    /// that honours `check_routers_before_use` waits for this before it opens for business.
    pub fn are_routers_checked(&self) -> bool {
        self.router.routes.all().all(|r| {
            self.peers.peers.get(r.gateway).is_some_and(|p| p.facts.contains(Facts::ROUTER_CHECKED))
        })
    }
}
