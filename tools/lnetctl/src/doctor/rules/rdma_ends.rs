//! RDMA ports of one network that do not fit each other: fabrics, versions of RoCE, partitions,
//! packets, rates, and keepalives that are longer than a router waits.

use core::net::Ipv6Addr;
use std::collections::BTreeMap;

use lnet_admin::RdmaPortSnapshot;
use lnet_types::Net;

use super::{Finding, Level, usual};
use crate::doctor::site::{Ni, Node, Site, Subnet};

pub(super) const NAME: &str = "RDMA ends";

/// The bit of a partition key that makes a port a full member; two limited ones do not reach each other.
const FULL_MEMBER: u16 = 0x8000;

/// A port with its place.
#[derive(Clone, Copy)]
struct End<'a> {
    node: &'a Node,
    ni: &'a Ni,
    port: RdmaPortSnapshot,
}

/// What a port is connected to: the link layer, and of InfiniBand the prefix that its subnet manager
/// gives all ports of a fabric.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fabric {
    Ethernet,
    InfiniBand(Option<u64>),
}

impl core::fmt::Display for Fabric {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Ethernet => f.write_str("Ethernet"),
            Self::InfiniBand(None) => f.write_str("InfiniBand"),
            Self::InfiniBand(Some(prefix)) => {
                write!(f, "InfiniBand with GIDs of {}", Ipv6Addr::from(u128::from(*prefix) << 64))
            }
        }
    }
}

impl End<'_> {
    fn fabric(&self) -> Fabric {
        if self.port.ethernet {
            return Fabric::Ethernet;
        }
        Fabric::InfiniBand(self.port.gid.map(|gid| (u128::from(gid) >> 64) as u64))
    }

    fn device(&self) -> &str {
        self.ni.device.as_deref().unwrap_or("DEVICE")
    }
}

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    let mut nets: BTreeMap<(Net, Option<Subnet>), Vec<End<'_>>> = BTreeMap::new();
    for node in &site.nodes {
        for ni in node.outward() {
            if let Some(port) = ni.rdma.filter(|port| port.active) {
                let place = (ni.nid.net(), node.subnet_of(ni));
                nets.entry(place).or_default().push(End { node, ni, port });
            }
        }
    }
    for ends in nets.values().filter(|ends| ends.len() > 1) {
        check_net(ends, found);
        check_keepalives(ends, found);
    }
}

/// A router takes a peer for dead that is silent for longer than its `peer_timeout` (C-10). An idle
/// connection is silent from one keepalive to the next.
fn check_keepalives(ends: &[End<'_>], found: &mut Vec<Finding>) {
    let limit = |end: &End<'_>| {
        let routes = end.node.forwards == Some(true);
        end.ni.peer_timeout_s.filter(|seconds| routes && *seconds > 0)
    };
    for end in ends {
        let others = ends.iter().filter(|other| !core::ptr::eq(other.node, end.node));
        let router = others.filter_map(|other| Some((limit(other)?, other))).min_by_key(|o| o.0);
        let (Some((limit, router)), Some(keepalive)) = (router, end.port.keepalive_s) else {
            continue;
        };
        if keepalive > 0 && i64::from(keepalive) < limit {
            continue;
        }
        let silent = match keepalive {
            0 => "its idle connections show no sign of life".to_owned(),
            seconds => format!("its idle connections show a sign of life every {seconds} s"),
        };
        let text = format!(
            "{} on {}: {silent}, and the router {} takes a peer for dead after {limit} s",
            end.ni.nid, end.node.name, router.node.name
        );
        let finding =
            Finding::new(NAME, Level::Warning, &[&end.node.name, &router.node.name], text);
        // Half of it, so that one may be late.
        let command =
            format!("editor /etc/modprobe.d/lnet.conf # options ko2iblnd keepalive={}", limit / 2);
        found.push(finding.fix(&end.node.name, command));
    }
}

fn check_net(ends: &[End<'_>], found: &mut Vec<Finding>) {
    let mut find = |end: &End<'_>, level, text: String, command: String| {
        let text = format!("{} on {}: {text}", end.ni.nid, end.node.name);
        let finding = Finding::new(NAME, level, &[&end.node.name], text);
        found.push(finding.fix(&end.node.name, command));
    };
    // Ends of different fabrics have no more to be compared.
    let Some(fabric) = usual(ends.iter().map(End::fabric)) else { return };
    let (ends, others): (Vec<&End<'_>>, Vec<_>) =
        ends.iter().partition(|end| end.fabric() == fabric);
    for end in others {
        let text = format!(
            "its port is on {}, others of the network are on {fabric}: no connection is possible",
            end.fabric()
        );
        find(end, Level::Error, text, "ibv_devinfo -v".to_owned());
    }
    let versions = || ends.iter().filter(|end| end.port.roce > 0);
    if let Some(usual) = usual(versions().map(|end| end.port.roce)) {
        for end in versions().filter(|end| end.port.roce != usual) {
            let text = format!(
                "its connections use RoCE v{}, those of others v{usual}: no connection is possible",
                end.port.roce
            );
            find(end, Level::Error, text, format!("cma_roce_mode -d DEVICE -m {usual}; show_gids"));
        }
    }
    let keys = ends.iter().map(|end| end.port.pkey & !FULL_MEMBER).filter(|key| *key != 0);
    let usual_key = usual(keys);
    for end in &ends {
        let pkey = end.port.pkey;
        if let Some(key) = usual_key.filter(|key| ![0, *key].contains(&(pkey & !FULL_MEMBER))) {
            let text = format!(
                "its partition key is {pkey:#06x}, that of others {:#06x}: no connection is possible",
                key | FULL_MEMBER
            );
            find(end, Level::Error, text, format!("ip -d link show dev {}", end.device()));
        }
    }
    let limited = |end: &&&End<'_>| end.port.pkey != 0 && end.port.pkey & FULL_MEMBER == 0;
    if let Some(end) = ends.iter().filter(limited).nth(1) {
        let text = format!(
            "its partition key {:#06x} is that of a limited member, and so is another one's: the two \
             do not reach each other",
            end.port.pkey
        );
        find(end, Level::Error, text, format!("ip -d link show dev {}", end.device()));
    }
    let mtus = || ends.iter().filter(|end| end.port.mtu > 0);
    if let Some(usual) = usual(mtus().map(|end| end.port.mtu)) {
        for end in mtus().filter(|end| end.port.mtu != usual) {
            let text = format!(
                "packets of its port have {} bytes, those of others {usual}: connections fail, or long \
                 messages are lost",
                end.port.mtu
            );
            // InfiniBand has it from the subnet manager, the other ones from the network interface.
            let command = match fabric {
                Fabric::Ethernet => format!("ip link set dev {} mtu MTU", end.device()),
                Fabric::InfiniBand(_) => "ibv_devinfo -v".to_owned(),
            };
            find(end, Level::Error, text, command);
        }
    }
    let rates = || ends.iter().filter(|end| end.port.rate_mbps > 0);
    if let Some(usual) = usual(rates().map(|end| end.port.rate_mbps)) {
        // A port that is slower than another one of its own node is found there.
        let alone = |end: &&&End<'_>| {
            let own = ends.iter().filter(|other| core::ptr::eq(other.node, end.node));
            own.map(|other| other.port.rate_mbps).max() == Some(end.port.rate_mbps)
        };
        for end in rates().filter(|end| end.port.rate_mbps < usual && !end.port.degraded) {
            if alone(&end) {
                let text = format!(
                    "its link of {} Mbit/s is slower than the {usual} Mbit/s of others",
                    end.port.rate_mbps
                );
                find(
                    end,
                    Level::Warning,
                    text,
                    format!("rdma link show; ethtool {}", end.device()),
                );
            }
        }
    }
}
