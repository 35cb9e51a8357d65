//! Peers: configured and never reached, interfaces that do not recover, that come and go.

use lnet_admin::HEALTH_MAX;

use super::{Finding, Level};
use crate::doctor::site::{Node, Peer, Site};

pub(super) const NAME: &str = "peer";

/// An interface that recovers within this time, seconds, needs no help.
pub(super) const RECOVERS_IN: i64 = 60;

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for peer in &node.peers {
            found.extend(never_reached(node, peer));
            interfaces(node, peer, found);
        }
    }
}

/// Gateways are the subject of routes.
fn never_reached(node: &Node, peer: &Peer) -> Option<Finding> {
    let is_gateway = |nid| node.routes.iter().flatten().any(|r| r.gateway == nid);
    let silent = node.silent.contains(&peer.primary);
    if !peer.is_configured()
        || peer.has_answered()
        || !(peer.was_tried() || silent)
        || peer.nis.iter().any(|ni| is_gateway(ni.nid))
    {
        return None;
    }
    let text = format!(
        "{}: the configured peer {} was never reached: its state is unknown",
        node.name, peer.primary
    );
    let finding = Finding::new(NAME, Level::Error, &[&node.name], text);
    Some(
        finding
            .fix(&node.name, format!("lnetctl ping {}", peer.primary))
            .fix(&node.name, format!("lnetctl explain {}", peer.primary)),
    )
}

fn interfaces(node: &Node, peer: &Peer, found: &mut Vec<Finding>) {
    for ni in &peer.nis {
        let nid = ni.nid;
        let for_s = node.recovering_for(ni.pings);
        if let Some(health) = ni.health.filter(|h| *h < HEALTH_MAX && for_s >= RECOVERS_IN) {
            let text = format!(
                "{}: {nid} is degraded (health {health} of {HEALTH_MAX} for {for_s} s or longer): \
                 recovery pings fail",
                node.name
            );
            let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
            found.push(finding.fix(&node.name, format!("lnetctl ping {nid}")));
        }
        if ni.is_flapping {
            let text = format!("{}: {nid} goes down and comes back again and again", node.name);
            let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
            found.push(finding.fix(&node.name, "lnetctl peer show -v 5"));
        }
    }
}
