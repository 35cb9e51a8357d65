//! Nodes of which neither has a way to the other: no common network, and no route there nor back.
//! Also what was tried and got no answer.

use lnet_types::{Net, Nid};

use super::{Finding, Level};
use crate::doctor::site::{Node, Site};

pub(super) const NAME: &str = "unreachable";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for (i, a) in site.nodes.iter().enumerate() {
        for b in site.nodes.iter().skip(i + 1) {
            if a.outward().next().is_none() || b.outward().next().is_none() {
                continue;
            }
            if !reaches(site, a, b) && !reaches(site, b, a) {
                found.push(neither(site, a, b));
            }
        }
        for nid in &a.silent {
            let text = format!("{nid} does not answer {}", a.name);
            let owner = site.owner(*nid).map(|node| node.name.as_str());
            let nodes: Vec<&str> = [Some(a.name.as_str()), owner].into_iter().flatten().collect();
            let finding = Finding::new(NAME, Level::Error, &nodes, text);
            found.push(finding.fix(&a.name, format!("lnetctl explain {nid}")));
        }
    }
}

/// Whether `from` has a way to one of `to`'s networks without any known obstacle. Of a node
/// whose routes are not known, the best is assumed.
pub(super) fn reaches(site: &Site, from: &Node, to: &Node) -> bool {
    nets(to).any(|net| from.is_on(net))
        || from.routes.as_ref().is_none_or(|_| {
            nets(to).any(|net| gateways(from, net).any(|gateway| leads(site, from, gateway, net)))
        })
}

/// The gateways through which a node goes to a network.
pub(super) fn gateways(node: &Node, net: Net) -> impl Iterator<Item = Nid> + '_ {
    node.routes.iter().flatten().filter(move |r| r.net == net).map(|r| r.gateway)
}

/// The networks of a node.
pub(super) fn nets(node: &Node) -> impl Iterator<Item = Net> + '_ {
    node.outward().map(|ni| ni.nid.net())
}

/// Whether a gateway can do what it is used for, as far as it is known.
pub(super) fn leads(site: &Site, from: &Node, gateway: Nid, net: Net) -> bool {
    from.is_on(gateway.net())
        && site.owner(gateway).is_none_or(|router| {
            let onward =
                |routes: &Vec<_>| routes.iter().any(|r: &crate::doctor::site::Route| r.net == net);
            router.forwards != Some(false)
                && (router.is_on(net) || router.routes.as_ref().is_none_or(onward))
        })
}

/// A node that stands between the two, and its NIDs on either side.
pub(super) fn between(site: &Site, a: &Node, b: &Node) -> Option<(Nid, Nid)> {
    site.nodes.iter().filter(|r| r.name != a.name && r.name != b.name).find_map(|router| {
        let near = |node: &Node| router.outward().find(|ni| node.is_on(ni.nid.net()));
        Some((near(a)?.nid, near(b)?.nid))
    })
}

fn neither(site: &Site, a: &Node, b: &Node) -> Finding {
    let list = |node: &Node| {
        let mut names: Vec<String> = nets(node).map(|net| net.to_string()).collect();
        names.dedup();
        names.join(", ")
    };
    let text = format!(
        "{} ({}) and {} ({}) cannot reach each other: they have no network in common and no routes",
        a.name,
        list(a),
        b.name,
        list(b)
    );
    let finding = Finding::new(NAME, Level::Error, &[&a.name, &b.name], text);
    match between(site, a, b) {
        Some((near_a, near_b)) => {
            let finding = finding
                .fix(
                    &a.name,
                    format!("lnetctl route add --net {} --gateway {near_a}", near_b.net()),
                )
                .fix(
                    &b.name,
                    format!("lnetctl route add --net {} --gateway {near_b}", near_a.net()),
                );
            match site.owner(near_a).filter(|router| router.forwards == Some(false)) {
                Some(router) => finding.fix(&router.name, "lnetctl set routing 1"),
                None => finding,
            }
        }
        None => {
            let net = nets(a).next().map_or_else(String::new, |net| net.to_string());
            finding.fix(&b.name, format!("lnetctl net add --net {net} --if DEVICE"))
        }
    }
}
