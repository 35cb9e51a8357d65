//! Routes and router buffers as they are shown (S-route-1, S-routing-1).

use lnet_config::text;
use lnet_types::{Net, Nid};
use serde::{Deserialize, Serialize};

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSnapshot {
    /// The network that is reached.
    #[serde(with = "text::net")]
    pub net: Net,
    /// A NID of the router, as configured.
    #[serde(with = "text::nid")]
    pub gateway: Nid,
    /// Routers on the way, as configured.
    #[serde(default)]
    pub hops: Option<u32>,
    /// 0 is best.
    pub priority: u32,
    /// Whether it can be used now.
    pub up: bool,
    /// Whether the router is known to have an interface on the network.
    pub single_hop: bool,
}

/// Some routes, and where to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutePage {
    /// The routes.
    pub routes: Vec<RouteSnapshot>,
    /// `from` of the request for the next page; absent on the last one. Opaque to clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Where forwarding stands. The numbers are those that are shown (S-routing-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingState {
    /// This node is no router.
    #[default]
    Disabled = 0,
    /// It forwards.
    Enabled = 1,
    /// It still does.
    Stopping = 2,
    /// It does already, but that is not yet announced.
    Starting = 3,
}

/// The names of the pools, in the order in which they are shown.
pub const POOL_NAMES: [&str; 3] = ["tiny", "small", "large"];

/// A pool of router buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSnapshot {
    /// Pages of 4096 bytes in each buffer.
    pub npages: u32,
    /// Buffers in existence.
    pub nbuffers: u32,
    /// Free ones; negative: messages waiting.
    pub credits: i32,
    /// The least that were ever free.
    pub mincredits: i32,
}

/// A router and its buffers, in the order tiny, small, large. A node has one CPT, so that there is
/// one pool of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingSnapshot {
    /// Where forwarding stands.
    pub state: RoutingState,
    /// The pools.
    pub pools: [PoolSnapshot; 3],
    /// The numbers of buffers asked for.
    pub wanted: [u32; 3],
    /// Whether the node has ever been a router.
    #[serde(default)]
    pub was_on: bool,
}
