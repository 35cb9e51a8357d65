//! A NID belongs to one node. Two that claim it get each other's messages. One node that was seen twice
//! has been merged before (`merge.rs`), so these are two.

use super::{Finding, Level};
use crate::doctor::site::{Ni, Node, Site};

pub(super) const NAME: &str = "same NID twice";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for (i, a) in site.nodes.iter().enumerate() {
        for b in site.nodes.iter().skip(i + 1) {
            for ni in a.outward() {
                if let Some(other) = b.outward().find(|other| other.nid == ni.nid) {
                    found.push(finding((a, ni), (b, other)));
                }
            }
        }
    }
}

/// What is known of the NID on a node.
fn evidence(node: &Node, ni: &Ni) -> String {
    let device = ni.device.as_deref().unwrap_or("an unknown device");
    let life = node.incarnation.map(|n| format!(", incarnation {n:x}")).unwrap_or_default();
    let others: Vec<String> =
        node.nids().iter().filter(|nid| **nid != ni.nid).map(ToString::to_string).collect();
    let others = match others.is_empty() {
        true => "no other NID".to_owned(),
        false => format!("also {}", others.join(", ")),
    };
    let address = match has_address(node, ni) {
        Some(false) => ", whose system has no such address",
        _ => "",
    };
    format!("{} ({device}{life}, {others}{address})", node.name)
}

/// Whether the system of a node has the address of an NI, if that is known.
fn has_address(node: &Node, ni: &Ni) -> Option<bool> {
    let ip = ni.nid.ip()?;
    if node.devices.is_empty() {
        return None;
    }
    Some(node.devices.values().any(|d| d.addresses.iter().any(|(address, _)| *address == ip)))
}

fn finding((a, ni): (&Node, &Ni), (b, other): (&Node, &Ni)) -> Finding {
    let nid = ni.nid;
    let text = format!(
        "{nid} is a NID of two nodes, which get each other's messages: {} and {}",
        evidence(a, ni),
        evidence(b, other)
    );
    let mut finding = Finding::new(NAME, Level::Error, &[&a.name, &b.name], text);
    let ip = nid.ip().map(|ip| ip.to_string()).unwrap_or_default();
    for (node, ni) in [(a, ni), (b, other)] {
        // Only the node that has no right to the NID loses it.
        let command = match has_address(node, ni) {
            Some(false) => format!("lnetctl net del --net {} --nid {nid}", nid.net()),
            _ => format!("ip address show to {ip}"),
        };
        finding = finding.fix(&node.name, command);
    }
    finding
}
