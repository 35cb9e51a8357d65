//! Interfaces in one IP network with different MTUs: long packets get lost on the way to the smaller
//! one, so that small messages arrive and bulk hangs.

use std::collections::BTreeMap;

use super::{Finding, Level, usual};
use crate::doctor::site::{Site, Subnet};

pub(super) const NAME: &str = "MTU";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    let mut by_subnet: BTreeMap<Subnet, Vec<(&str, &str, i64)>> = BTreeMap::new();
    for node in &site.nodes {
        for ni in node.outward() {
            let Some(subnet) = node.subnet_of(ni) else { continue };
            let Some((device, facts)) = node.device_of(ni) else { continue };
            if let Some(mtu) = facts.mtu {
                let others = by_subnet.entry(subnet).or_default();
                if !others.contains(&(&node.name, device, mtu)) {
                    others.push((&node.name, device, mtu));
                }
            }
        }
    }
    for (subnet, devices) in by_subnet {
        let Some(usual) = usual(devices.iter().map(|(_, _, mtu)| *mtu)) else { continue };
        for (node, device, mtu) in devices.into_iter().filter(|(_, _, mtu)| *mtu != usual) {
            let text = format!(
                "{node}: MTU of {device} is {mtu}, elsewhere in {subnet} {usual}: long packets are \
                 lost while short ones arrive"
            );
            let finding = Finding::new(NAME, Level::Error, &[node], text);
            found.push(finding.fix(node, format!("ip link set dev {device} mtu {usual}")));
        }
    }
}
