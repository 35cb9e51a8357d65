//! Settings that nodes should share: time-outs, since one side waits for the other; health and
//! discovery, since they decide which reports count; credits, since one side's are the other's
//! buffers.

use lnet_types::Net;

use super::{Finding, Level, usual};
use crate::doctor::site::{Node, Site};

pub(super) const NAME: &str = "tunables differ";

/// Tunables that should be the same, and what follows if they are not.
const SHARED: [(&str, &str); 5] = [
    ("transaction_timeout", "one side gives up while the other still tries"),
    ("retry_count", "one side gives up while the other still tries"),
    ("health_sensitivity", "the two judge the same failures differently"),
    ("discovery", "one side does not learn the other's interfaces"),
    ("drop_asym_route", "one side drops what the other sends"),
];

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for (name, consequence) in SHARED {
        let Some(usual) = usual(site.nodes.iter().filter_map(|node| node.tunable(name))) else {
            continue;
        };
        for node in &site.nodes {
            if let Some(value) = node.tunable(name).filter(|value| *value != usual) {
                let text =
                    format!("{}: {name} is {value}, elsewhere {usual}: {consequence}", node.name);
                let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
                found.push(finding.fix(&node.name, format!("lnetctl set {name} {usual}")));
            }
        }
    }
    let mut nets: Vec<Net> =
        site.nodes.iter().flat_map(|n| n.outward().map(|ni| ni.nid.net())).collect();
    nets.sort_unstable();
    nets.dedup();
    for net in nets {
        credits(site, net, found);
    }
}

fn credits(site: &Site, net: Net, found: &mut Vec<Finding>) {
    let of = |node: &Node| {
        node.outward().filter(|ni| ni.nid.net() == net).find_map(|ni| ni.peer_credits)
    };
    let Some(usual) = usual(site.nodes.iter().filter_map(of)) else { return };
    for node in &site.nodes {
        if let Some(value) = of(node).filter(|value| *value != usual) {
            let text = format!(
                "{}: peer_credits of {net} is {value}, elsewhere {usual}: one side has more \
                 messages in flight than the other has room for",
                node.name
            );
            let device = node.outward().find(|ni| ni.nid.net() == net);
            let device = device.and_then(|ni| ni.device.as_deref()).unwrap_or("DEVICE");
            let command = format!(
                "lnetctl net del --net {net} && \
                 lnetctl net add --net {net} --if {device} --peer-credits {usual}"
            );
            let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
            found.push(finding.fix(&node.name, command));
        }
    }
}
