//! Interfaces that carry nothing, or less than they could.

use super::peers::RECOVERS_IN;
use lnet_admin::HEALTH_MAX;

use super::{Finding, Level};
use crate::doctor::site::{Ni, Node, Site};

pub(super) const NAME: &str = "interface";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for ni in node.outward() {
            let device = ni.device.as_deref().unwrap_or("DEVICE");
            if !ni.up {
                let text = format!("{} on {}: {} is down", ni.nid, node.name, device);
                let finding = Finding::new(NAME, Level::Error, &[&node.name], text);
                found.push(finding.fix(&node.name, format!("ip link set dev {device} up")));
            } else if let Some(health) = ni.health.filter(|h| *h < HEALTH_MAX && lasts(node, ni)) {
                let text = format!(
                    "{} on {} is degraded (health {health} of {HEALTH_MAX} and does not recover): \
                     messages fail there, and others are preferred",
                    ni.nid, node.name
                );
                let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
                found.push(
                    finding
                        .fix(&node.name, "lnetctl debug recovery --local")
                        .fix(&node.name, format!("ip -s link show dev {device}")),
                );
            }
            if ni.is_flapping {
                let text = format!(
                    "{} on {} goes down and comes back again and again: it is favoured less",
                    ni.nid, node.name
                );
                let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
                found.push(finding.fix(&node.name, format!("ip -s link show dev {device}")));
            }
        }
    }
}

/// Whether an interface has not recovered for a minute. Files without a count of recovery pings do not
/// tell.
fn lasts(node: &Node, ni: &Ni) -> bool {
    ni.pings.is_none_or(|pings| node.recovering_for(pings) >= RECOVERS_IN)
}
