//! Interfaces that carry nothing, or less than they could.

use super::{Finding, Level};
use crate::doctor::site::Site;

pub(super) const NAME: &str = "interface";

/// Health of an interface with which nothing is wrong.
const HEALTHY: i64 = 1000;

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for ni in node.outward() {
            let device = ni.device.as_deref().unwrap_or("DEVICE");
            if !ni.up {
                let text = format!("{} on {}: {} is down", ni.nid, node.name, device);
                let finding = Finding::new(NAME, Level::Error, &[&node.name], text);
                found.push(finding.fix(&node.name, format!("ip link set dev {device} up")));
            } else if let Some(health) = ni.health.filter(|h| *h < HEALTHY) {
                let text = format!(
                    "{} on {} has health {health} of {HEALTHY}: messages failed there lately, and \
                     others are preferred",
                    ni.nid, node.name
                );
                let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
                found.push(
                    finding
                        .fix(&node.name, "lnetctl debug recovery --local")
                        .fix(&node.name, format!("ip -s link show dev {device}")),
                );
            }
        }
    }
}
