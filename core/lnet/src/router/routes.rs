//! Routes: which networks are behind which gateways (behaviour.md 7.1), and what becomes of them
//! when gateways turn out to be other peers than was thought (R-16, D-42, D-48).
//!
//! Whether a route may be used is in `alive.rs`, which one is used in `choose.rs`.

use std::collections::BTreeMap;

use lnet_types::{Errno, Net, Nid, PeerId, Prng};
use thiserror::Error;

/// A route as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RouteSpec {
    /// The network that is reached by it.
    pub net: Net,
    /// A NID of the gateway, on a local network.
    pub gateway: Nid,
    /// Routers on the way, 1 to 255; `None` is undefined, and counts as 1 in comparisons.
    pub hops: Option<u32>,
    /// 0 is best.
    pub priority: u32,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Route {
    pub(crate) net: Net,
    pub(crate) gateway: PeerId,
    /// The gateway as configured.
    pub(crate) nid: Nid,
    pub(crate) hops: Option<u8>,
    pub(crate) priority: u32,
    /// What the last check found; decides where the gateway is not discovered.
    pub(crate) cached: bool,
    /// The gateway has an interface on the network itself.
    pub(crate) single_hop: bool,
    pub(crate) seq: u64,
}

/// Most routes of a node: far more than the largest site has, and listings stay short.
pub(super) const ROUTES_MAX: usize = 1 << 16;

/// All routes, by network. Within a network the order is random, so that nodes of the same
/// configuration prefer different gateways.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Routes {
    nets: BTreeMap<Net, Vec<Route>>,
    rng: Prng,
    /// For how many messages all routes were compared.
    #[cfg(test)]
    #[serde(skip)]
    pub(crate) compared: crate::table::Count,
}

/// Why a route was not added or removed. C-route-5 in the words of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The wildcard or loopback as gateway.
    #[error("gateway {0}: expected the NID of one other node")]
    Gateway(Nid),
    /// The wildcard or loopback as remote network.
    #[error("network {0}: expected one that can be remote")]
    Net(Net),
    /// The gateway would be behind itself.
    #[error("gateway {gateway} is on {net} itself")]
    Loop {
        /// The gateway.
        gateway: Nid,
        /// The network.
        net: Net,
    },
    /// The gateway is this node.
    #[error("gateway {0} is this node")]
    Oneself(Nid),
    /// Hop count out of bounds.
    #[error("hop count {0}: expected 1 to 255")]
    Hops(u32),
    /// No route leads to a local network.
    #[error("network {0} is local")]
    Local(Net),
    /// No interface on the gateway's network.
    #[error("no interface on the network of gateway {0}")]
    Unreachable(Nid),
    /// The gateway's peer has a route to that network.
    #[error("there is a route to {net} by {gateway} or another NID of its node")]
    Exists {
        /// The network.
        net: Net,
        /// The gateway.
        gateway: Nid,
    },
    /// No route leads there.
    #[error("there is no route to {0}")]
    NoSuchNet(Net),
    /// No record could be made for the gateway, or there are too many routes.
    #[error("gateway {gateway}: {errno}")]
    Peer {
        /// The gateway.
        gateway: Nid,
        /// Why.
        errno: Errno,
    },
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopping,
}

impl RouteError {
    /// The error number that kernel LNet returns.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Gateway(_)
            | Self::Net(_)
            | Self::Loop { .. }
            | Self::Oneself(_)
            | Self::Hops(_) => Errno::EINVAL,
            Self::Local(_) | Self::Exists { .. } => Errno::EEXIST,
            Self::Unreachable(_) => Errno::EHOSTUNREACH,
            Self::NoSuchNet(_) => Errno::ENOENT,
            Self::Peer { errno, .. } => errno,
            Self::Stopping => Errno::ESHUTDOWN,
        }
    }
}

impl Routes {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            nets: BTreeMap::new(),
            rng: Prng::new(seed ^ 0x726f_7574_6573),
            #[cfg(test)]
            compared: crate::table::Count::default(),
        }
    }

    /// Routes to `net`, in list order.
    pub(crate) fn to(&self, net: Net) -> &[Route] {
        self.nets.get(&net).map_or(&[], Vec::as_slice)
    }

    /// Whether `net` is a remote network.
    pub(crate) fn has_net(&self, net: Net) -> bool {
        self.nets.contains_key(&net)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Route> {
        self.nets.values().flatten()
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Route> {
        self.nets.values_mut().flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.nets.values().map(Vec::len).sum()
    }

    ///
    pub(super) fn insert(&mut self, route: Route) {
        let list = self.nets.entry(route.net).or_default();
        let at = self.rng.below(list.len() as u64 + 1) as usize;
        list.insert(at, route);
    }

    pub(super) fn take(&mut self, mut which: impl FnMut(&Route) -> bool) -> Vec<Route> {
        let mut out = Vec::new();
        for list in self.nets.values_mut() {
            list.retain(|r| {
                let take = which(r);
                if take {
                    out.push(r.clone());
                }
                !take
            });
        }
        self.nets.retain(|_, list| !list.is_empty());
        out
    }

    /// S-57.
    pub(crate) fn used(&mut self, net: Net, gateway: PeerId, seq: u64) {
        let list = self.nets.get_mut(&net).into_iter().flatten();
        if let Some(route) = list.into_iter().find(|r| r.gateway == gateway) {
            route.seq = seq;
        }
    }
}
