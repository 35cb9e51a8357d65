//! Routes that are down, and gateways that answer and do not forward.

use super::{Finding, Level};
use crate::doctor::site::{Node, Route, Site};

pub(super) const NAME: &str = "route";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for route in node.routes.iter().flatten() {
            found.extend(wrong(node, route));
        }
    }
}

fn wrong(node: &Node, route: &Route) -> Option<Finding> {
    let Route { net, gateway, up } = route;
    let peer = node.peer(*gateway);
    let ni = peer.and_then(|p| p.nis.iter().find(|ni| ni.nid == *gateway));
    let answered = peer.is_some_and(|p| p.has_answered());
    let forwards = peer.is_none_or(|p| p.forwards());
    let (level, why, next) = match (up, answered) {
        (Some(false), false) => {
            (Level::Error, "the gateway has never answered", format!("lnetctl ping {gateway}"))
        }
        (_, true) if !forwards => (
            Level::Error,
            "the gateway answers and does not forward: routing is off there",
            format!("lnetctl ping {gateway}"),
        ),
        (Some(false), true) if ni.is_some_and(|ni| ni.is_down) => (
            Level::Error,
            "the gateway does not answer any more",
            format!("lnetctl ping {gateway}"),
        ),
        (Some(false), true) => (
            Level::Error,
            "the gateway answers; its interface on the far side is down or missing",
            format!("lnetctl discover --force {gateway}"),
        ),
        _ => return None,
    };
    let state = if *up == Some(false) { " is down" } else { "" };
    let text = format!("the route of {} to {net} through {gateway}{state}: {why}", node.name);
    Some(Finding::new(NAME, level, &[&node.name], text).fix(&node.name, next))
}
