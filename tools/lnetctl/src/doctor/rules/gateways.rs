//! Routes whose gateway cannot be what it is used as: on no network of the node, not forwarding, or
//! not on the network that it is to lead to.

use super::{Finding, Level};
use crate::doctor::site::{Node, Route, Site};

pub(super) const NAME: &str = "gateway";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for route in node.routes.iter().flatten() {
            found.extend(wrong(site, node, route));
        }
    }
}

fn wrong(site: &Site, node: &Node, route: &Route) -> Option<Finding> {
    let Route { net, gateway, .. } = route;
    let finding = |nodes: &[&str], why: String| {
        let text =
            format!("the route of {} to {net} through {gateway} leads nowhere: {why}", node.name);
        Finding::new(NAME, Level::Error, nodes, text)
    };
    let remove = format!("lnetctl route del --net {net} --gateway {gateway}");
    if !node.is_on(gateway.net()) {
        let why = format!("{} is not on {} itself", node.name, gateway.net());
        return Some(finding(&[&node.name], why).fix(&node.name, remove));
    }
    if node.owns(*gateway) {
        let why = "the gateway is the node itself".to_owned();
        return Some(finding(&[&node.name], why).fix(&node.name, remove));
    }
    let router = site.owner(*gateway)?;
    if router.forwards == Some(false) {
        let why = format!("{} does not forward", router.name);
        let finding = finding(&[&node.name, &router.name], why);
        return Some(finding.fix(&router.name, "lnetctl set routing 1"));
    }
    let onward = router.is_on(*net)
        || router.routes.as_ref().is_none_or(|routes| routes.iter().any(|r| r.net == *net));
    if !onward {
        let why = format!("{} is not on {net} and has no route there", router.name);
        let finding = finding(&[&node.name, &router.name], why);
        return Some(finding.fix(&router.name, format!("lnetctl net add --net {net} --if DEVICE")));
    }
    None
}
