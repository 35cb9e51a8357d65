//! What the rules look at: nodes with their interfaces, routes and settings, as plain values. How
//! they are found out is `read.rs` (files) and `local.rs` (this machine).

use std::collections::BTreeMap;
use std::net::IpAddr;

use lnet_admin::{PeerFlags, RailSnapshot, RdmaPortSnapshot};
use lnet_types::{Net, Nid};

/// All nodes that are known of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) nodes: Vec<Node>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// What people call it: where the facts come from.
    pub(crate) name: String,
    pub(crate) nis: Vec<Ni>,
    /// `None`: it is not known (a peer that only answered a ping).
    pub(crate) routes: Option<Vec<Route>>,
    /// Whether it forwards, if that is known.
    pub(crate) forwards: Option<bool>,
    /// Tunables by their names in `global show`.
    pub(crate) tunables: BTreeMap<String, i64>,
    /// Settings of its system.
    pub(crate) devices: BTreeMap<String, Device>,
    /// NIDs that it was asked to reach and could not.
    pub(crate) silent: Vec<Nid>,
    /// Its peers, as far as they say something.
    pub(crate) peers: Vec<Peer>,
    /// Rails that it does not trust now.
    pub(crate) suspects: Vec<RailSnapshot>,
    /// Counters of losses that rose while they were watched, and by how much.
    pub(crate) rising: BTreeMap<String, u64>,
    /// Whether the file or the node itself gave the name; otherwise it is made up.
    pub(crate) is_named: bool,
    /// Which life of the daemon it was.
    pub(crate) incarnation: Option<u64>,
    /// Its request layer, where that is known.
    pub(crate) rpc: Option<Rpc>,
    /// When the facts were written down, seconds since 1970.
    pub(crate) saved_s: Option<i64>,
}

/// The request layer of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rpc {
    /// Whether it has connections or serves targets.
    pub(crate) in_use: bool,
    /// Whether it behaves as kernel nodes do.
    pub(crate) by_kernel_rules: bool,
    /// Tunables by their names as parameters.
    pub(crate) tunables: BTreeMap<String, i64>,
    pub(crate) imports: Vec<RpcImport>,
    pub(crate) services: Vec<RpcService>,
    /// The last evictions.
    pub(crate) evictions: Vec<RpcEviction>,
}

/// A connection to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RpcImport {
    pub(crate) target: String,
    pub(crate) state: String,
    /// For how long, seconds.
    pub(crate) for_s: i64,
    /// Replies that were longer than the room for them.
    pub(crate) truncated: i64,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RpcService {
    pub(crate) name: String,
    /// Request buffers that are posted, and that should be.
    pub(crate) posted: i64,
    pub(crate) buffers: i64,
    /// How long ago it was not able to keep up, seconds.
    pub(crate) behind_ago_s: Option<i64>,
    /// It takes none of the requests that wait.
    pub(crate) unhealthy: bool,
}

/// A client that was evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RpcEviction {
    pub(crate) target: String,
    pub(crate) client: String,
    pub(crate) reason: String,
    /// How long ago, seconds.
    pub(crate) ago_s: i64,
}

impl Rpc {
    /// Names of the tunables that rules look at.
    pub(crate) const TUNABLES: [&'static str; 6] =
        ["timeout", "ping_interval", "at_min", "at_max", "evict_factor", "ldlm_enqueue_min"];

    pub(crate) fn tunable(&self, name: &str) -> Option<i64> {
        self.tunables.get(name).copied()
    }
}

/// A peer of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) primary: Nid,
    /// Flag word (S-peer-3).
    pub(crate) flags: PeerFlags,
    pub(crate) nis: Vec<PeerNi>,
}

/// An interface of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerNi {
    pub(crate) nid: Nid,
    /// Whether it is known to be gone.
    pub(crate) is_down: bool,
    pub(crate) sent: i64,
    pub(crate) received: i64,
    pub(crate) health: Option<i64>,
    /// Recovery pings since it was last healthy.
    pub(crate) pings: i64,
    pub(crate) is_flapping: bool,
}

impl Peer {
    /// Whether it says that it forwards.
    pub(crate) const fn forwards(&self) -> bool {
        self.flags.is_router()
    }

    pub(crate) const fn is_configured(&self) -> bool {
        self.flags.is_configured()
    }

    /// Whether anything was ever heard from it.
    pub(crate) fn has_answered(&self) -> bool {
        self.flags.has_answered() || self.nis.iter().any(|ni| ni.received > 0)
    }

    /// Whether anything was ever sent to it.
    pub(crate) fn was_tried(&self) -> bool {
        self.nis.iter().any(|ni| ni.sent > 0)
    }
}

/// A local interface of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ni {
    pub(crate) nid: Nid,
    /// The device that it stands on.
    pub(crate) device: Option<String>,
    /// Whether its status is `up`; true where that is not known.
    pub(crate) up: bool,
    pub(crate) health: Option<i64>,
    /// Recovery pings since it was last healthy, where that is known.
    pub(crate) pings: Option<i64>,
    pub(crate) is_flapping: bool,
    pub(crate) peer_credits: Option<i64>,
    /// Seconds of silence after which a router takes a peer of its network for dead, 0 for never.
    pub(crate) peer_timeout_s: Option<i64>,
    /// Seconds: the driver's own limit, 0 for none.
    pub(crate) timeout_s: Option<i64>,
    /// Its RDMA port, where it has one and that is known.
    pub(crate) rdma: Option<RdmaPortSnapshot>,
}

/// A route of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) net: Net,
    pub(crate) gateway: Nid,
    /// Whether it is up, where that is known.
    pub(crate) up: Option<bool>,
}

/// A device of a system, as far as LNet minds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) mtu: Option<i64>,
    /// Addresses with the length of their prefixes.
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    /// The mode in force: that of the device or of all, whichever is stricter; 1 is strict.
    pub(crate) rp_filter: Option<i64>,
    pub(crate) arp_ignore: Option<i64>,
    pub(crate) arp_announce: Option<i64>,
    /// Addresses with a rule of their own for what leaves from them.
    pub(crate) source_routed: Vec<IpAddr>,
}

impl Node {
    /// Interfaces that reach other nodes.
    pub(crate) fn outward(&self) -> impl Iterator<Item = &Ni> {
        self.nis.iter().filter(|ni| !ni.nid.is_loopback())
    }

    pub(crate) fn is_on(&self, net: Net) -> bool {
        self.nis.iter().any(|ni| ni.nid.net() == net)
    }

    pub(crate) fn owns(&self, nid: Nid) -> bool {
        self.nis.iter().any(|ni| ni.nid == nid)
    }

    /// The peer that has a NID.
    pub(crate) fn peer(&self, nid: Nid) -> Option<&Peer> {
        self.peers.iter().find(|p| p.nis.iter().any(|ni| ni.nid == nid))
    }

    /// Seconds, at least, over which so many recovery pings were sent: the interval doubles up to its
    /// limit.
    pub(crate) fn recovering_for(&self, pings: i64) -> i64 {
        let max = self.tunable("max_recovery_ping_interval").unwrap_or(1).max(1);
        let interval = |n: i64| 1_i64.checked_shl(n.try_into().unwrap_or(62)).unwrap_or(max);
        // Far more than a minute is a minute too.
        (0..pings.min(1000)).map(|n| interval(n.min(40)).min(max)).sum()
    }

    /// The NIDs that other nodes see.
    pub(crate) fn nids(&self) -> std::collections::BTreeSet<Nid> {
        self.outward().map(|ni| ni.nid).collect()
    }

    pub(crate) fn tunable(&self, name: &str) -> Option<i64> {
        self.tunables.get(name).copied()
    }

    /// The device that an interface stands on, and its name.
    pub(crate) fn device_of<'a>(&'a self, ni: &Ni) -> Option<(&'a str, &'a Device)> {
        let named = ni.device.as_ref().and_then(|name| self.devices.get_key_value(name));
        if let Some((name, device)) = named {
            return Some((name, device));
        }
        let ip = ni.nid.ip()?;
        let at = |d: &Device| d.addresses.iter().any(|(a, _)| *a == ip);
        self.devices.iter().find(|(_, d)| at(d)).map(|(name, d)| (name.as_str(), d))
    }

    /// The IP network that an interface is in.
    pub(crate) fn subnet_of(&self, ni: &Ni) -> Option<Subnet> {
        let ip = ni.nid.ip()?;
        let (_, device) = self.device_of(ni)?;
        let (_, prefix) = device.addresses.iter().find(|(a, _)| *a == ip)?;
        Some(Subnet::of(ip, *prefix))
    }

    /// Interfaces that share an IP network with another one of this node, by that network.
    pub(crate) fn crowded(&self) -> BTreeMap<Subnet, Vec<&Ni>> {
        let mut by_subnet: BTreeMap<Subnet, Vec<&Ni>> = BTreeMap::new();
        for ni in self.outward() {
            if let Some(subnet) = self.subnet_of(ni) {
                let others = by_subnet.entry(subnet).or_default();
                if !others.iter().any(|other| other.nid.ip() == ni.nid.ip()) {
                    others.push(ni);
                }
            }
        }
        by_subnet.retain(|_, nis| nis.len() > 1);
        by_subnet
    }
}

impl Site {
    /// The node that owns a NID.
    pub(crate) fn owner(&self, nid: Nid) -> Option<&Node> {
        self.nodes.iter().find(|node| node.owns(nid))
    }
}

/// An IP network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subnet {
    address: IpAddr,
    prefix: u8,
}

impl Subnet {
    pub(crate) fn of(ip: IpAddr, prefix: u8) -> Self {
        let address = match ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
                IpAddr::V4((ip.to_bits() & mask).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
                IpAddr::V6((ip.to_bits() & mask).into())
            }
        };
        Self { address, prefix }
    }
}

impl core::fmt::Display for Subnet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}
