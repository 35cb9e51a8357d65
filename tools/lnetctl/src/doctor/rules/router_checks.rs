//! Routers expect to be pinged: one that expects pings more often than its users send them marks its
//! interfaces down although all is as it should be (PA-140).

use super::{Finding, Level};
use crate::doctor::site::{Node, Site};

pub(super) const NAME: &str = "router checks";

const TIMEOUT: &str = "router_ping_timeout";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for router in site.nodes.iter().filter(|node| node.forwards == Some(true)) {
        let users = || site.nodes.iter().filter(|node| uses(node, router));
        // The slowest user is enough: a router that expects its pings expects all others.
        let slowest = users().filter_map(|user| Some((interval(user)?, user)));
        let (own, slowest) = (interval(router), slowest.max_by_key(|(seconds, _)| *seconds));
        if let (Some((own, name)), Some(((needed, _), user))) = (own, slowest) {
            found.extend(shorter(router, name, own, user, needed));
        }
        let slowest = users().filter_map(|user| Some((user.tunable(TIMEOUT)?, user)));
        let slowest = slowest.max_by_key(|(seconds, _)| *seconds);
        if let (Some(own), Some((needed, user))) = (router.tunable(TIMEOUT), slowest) {
            found.extend(shorter(router, TIMEOUT, own, user, needed));
        }
    }
}

fn uses(node: &Node, router: &Node) -> bool {
    node.routes.iter().flatten().any(|route| router.owns(route.gateway))
}

/// The longest time between two pings of a router that a node has, seconds, with the tunable that
/// says so; `None` if it pings none, or if that is not known.
fn interval(node: &Node) -> Option<(i64, &'static str)> {
    let alive = "alive_router_check_interval";
    // Without it there are no pings, whatever the others say.
    node.tunable(alive).filter(|seconds| *seconds > 0)?;
    let all = [alive, "live_router_check_interval", "dead_router_check_interval"];
    all.into_iter().filter_map(|name| Some((node.tunable(name)?, name))).max_by_key(|(n, _)| *n)
}

fn shorter(router: &Node, name: &str, own: i64, user: &Node, needed: i64) -> Option<Finding> {
    if own >= needed {
        return None;
    }
    let text = format!(
        "{}: {name} is {own} s, and {}, which pings it, has {needed} s: an interface may be marked \
         down between two pings",
        router.name, user.name
    );
    let finding = Finding::new(NAME, Level::Error, &[&router.name, &user.name], text);
    Some(finding.fix(&router.name, format!("lnetctl set {name} {needed}")))
}
