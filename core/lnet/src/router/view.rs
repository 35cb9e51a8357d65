//! What users see of routing: copies, made on request. Rendering is theirs.

use lnet_types::{Errno, Instant, Net, Nid};

use super::buffers::{Pool, PoolKind};
use super::{RoutingState, alive, choose};
use crate::send::select::local_net;
use crate::{Node, Transitions};

/// A route (S-route-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RouteView {
    /// The network that is reached.
    pub net: Net,
    /// The gateway as configured.
    pub gateway: Nid,
    /// As configured; shown as −1 if undefined.
    pub hops: Option<u8>,
    /// As configured.
    pub priority: u32,
    /// Whether it can be used now.
    pub up: bool,
    /// Whether the gateway is known to have an interface on the network: `single-hop`, else
    /// `multi-hop`.
    pub single_hop: bool,
    /// Times that the gateway was lost and came back.
    pub transitions: Transitions,
}

/// A pool of router buffers (S-routing-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PoolView {
    /// Which one.
    pub kind: PoolKind,
    /// Pages of 4096 bytes in each buffer.
    pub npages: u32,
    /// Buffers in existence.
    pub nbuffers: u32,
    /// Free ones; negative: messages waiting.
    pub credits: i32,
    /// The least that were ever free.
    pub mincredits: i32,
}

/// A router's buffers, and whether it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RoutingView {
    /// Where forwarding stands.
    pub state: RoutingState,
    /// The pools: tiny, small, large.
    pub pools: [PoolView; 3],
    /// The numbers of buffers asked for, in the same order.
    pub wanted: [u32; 3],
    /// Whether this node has ever been a router.
    pub was_on: bool,
}

/// How far a NID is (M-51).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Distance {
    /// 0: this node; 1: the next one; more: behind that many routers and one.
    pub hops: u32,
    /// The NID that a message would leave from.
    pub source: Nid,
    /// The smaller, the better, where several NIDs are as far.
    pub order: u32,
}

impl Node {
    /// All routes, by network; within one in the order in which they are compared.
    pub fn route_views(&self) -> Vec<RouteView> {
        let of = |r: &super::routes::Route| self.peers.peers.get(r.gateway);
        let view = |r: &super::routes::Route| RouteView {
            net: r.net,
            gateway: r.nid,
            hops: r.hops,
            priority: r.priority,
            up: alive::is_route_alive(&self.tunables, &self.peers, r),
            single_hop: r.single_hop,
            transitions: of(r).map_or_else(Transitions::default, |p| p.gateway.transitions),
        };
        self.router.routes.all().map(view).collect()
    }

    /// The pools of this router.
    pub fn routing_view(&self) -> RoutingView {
        let [tiny, small, large] = &self.router.pools;
        RoutingView {
            state: self.router.state,
            pools: [pool_view(tiny), pool_view(small), pool_view(large)],
            wanted: PoolKind::ALL.map(|kind| kind.wanted(&self.tunables)),
            was_on: self.router.is_on() || self.router.since != Instant::ZERO,
        }
    }

    /// How far a NID is (M-51).
    ///
    /// # Errors
    /// `EHOSTUNREACH`: no network and no route leads there.
    pub fn distance(&self, nid: Nid) -> Result<Distance, Errno> {
        if nid.is_loopback() {
            return Ok(Distance { hops: 0, source: nid, order: 0 });
        }
        if self.nis.owns(nid) {
            return Ok(Distance { hops: 0, source: nid, order: 1 });
        }
        let t = self.tables();
        let first = |net: Net| {
            let id = local_net(t, net)?.nis.first().copied()?;
            self.nis.get(id).map(|ni| ni.nid)
        };
        if let Some(source) = first(nid.net()) {
            let nids =
                self.nis.nets().iter().flat_map(|n| &n.nis).filter_map(|id| self.nis.get(*id));
            let index = nids.map(|ni| ni.nid).position(|n| n == source).unwrap_or(0);
            return Ok(Distance { hops: 1, source, order: 2 + index as u32 });
        }
        let nearest = choose::nearest(t, nid.net()).ok_or(Errno::EHOSTUNREACH)?;
        let source = first(nearest.nid.net()).ok_or(Errno::EHOSTUNREACH)?;
        Ok(Distance {
            hops: u32::from(nearest.hops.unwrap_or(1)) + 1,
            source,
            order: 2 + self.nis.len() as u32,
        })
    }
}

fn pool_view(pool: &Pool) -> PoolView {
    PoolView {
        kind: pool.kind,
        npages: pool.kind.buffer_bytes() / PoolKind::Small.buffer_bytes(),
        nbuffers: pool.buffers,
        credits: pool.credits(),
        mincredits: pool.credits_min,
    }
}
