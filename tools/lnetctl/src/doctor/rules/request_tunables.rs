//! Tunables of the request layer that nodes should share: what one side grants, the other waits for.

use super::{Finding, Level, usual};
use crate::doctor::site::{Node, Site};

pub(super) const NAME: &str = "request tunables differ";

/// Tunables that should be the same, and what follows if they are not.
const SHARED: [(&str, &str); 4] = [
    ("timeout", "windows of recovery, pings and evictions do not fit together"),
    ("at_min", "one side gives up a request that the other counts as in time"),
    ("at_max", "one side asks for more time than the other grants"),
    ("ldlm_enqueue_min", "one side gives a lock up while the other still waits for it"),
];

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    let of = |node: &Node, name| node.rpc.as_ref()?.tunable(name);
    for (name, consequence) in SHARED {
        let Some(usual) = usual(site.nodes.iter().filter_map(|node| of(node, name))) else {
            continue;
        };
        for node in &site.nodes {
            if let Some(value) = of(node, name).filter(|value| *value != usual) {
                let text =
                    format!("{}: {name} is {value}, elsewhere {usual}: {consequence}", node.name);
                let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
                found.push(finding.fix(&node.name, format!("lctl set_param {name}={usual}")));
            }
        }
    }
}
