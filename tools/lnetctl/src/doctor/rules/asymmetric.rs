//! Ways that lead there and not back, or back through other gateways only. With `drop_asym_route`
//! the messages of the second kind are dropped; without it one router may die unnoticed.

use std::collections::BTreeSet;

use lnet_types::Nid;

use super::reach::{between, gateways, leads, nets, reaches};
use super::{Finding, Level};
use crate::doctor::site::{Node, Site};

pub(super) const NAME: &str = "asymmetric route";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for (i, a) in site.nodes.iter().enumerate() {
        for b in site.nodes.iter().skip(i + 1) {
            if a.routes.is_none() || b.routes.is_none() {
                continue;
            }
            match (reaches(site, a, b), reaches(site, b, a)) {
                (true, false) => found.push(one_way(site, a, b)),
                (false, true) => found.push(one_way(site, b, a)),
                (true, true) => found.extend(other_way_back(site, a, b)),
                (false, false) => {}
            }
        }
    }
}

fn one_way(site: &Site, from: &Node, to: &Node) -> Finding {
    let text = format!(
        "{} has a way to {}, but {} has none back: its answers are lost",
        from.name, to.name, to.name
    );
    let finding = Finding::new(NAME, Level::Error, &[&from.name, &to.name], text);
    match between(site, from, to) {
        Some((near_from, near_to)) => {
            let net = near_from.net();
            finding.fix(&to.name, format!("lnetctl route add --net {net} --gateway {near_to}"))
        }
        None => {
            let net = nets(from).next().map_or_else(String::new, |net| net.to_string());
            finding.fix(&to.name, format!("lnetctl route add --net {net} --gateway NID"))
        }
    }
}

/// The routers that a node uses towards another one, by name; `None` if one of them is not known or
/// no router is needed.
fn routers<'a>(site: &'a Site, from: &Node, to: &Node) -> Option<BTreeSet<&'a str>> {
    if nets(to).any(|net| from.is_on(net)) {
        return None;
    }
    let used: Vec<Nid> = nets(to)
        .flat_map(|net| gateways(from, net).filter(move |g| leads(site, from, *g, net)))
        .collect();
    used.into_iter().map(|nid| site.owner(nid).map(|node| node.name.as_str())).collect()
}

fn other_way_back(site: &Site, a: &Node, b: &Node) -> Option<Finding> {
    let (there, back) = (routers(site, a, b)?, routers(site, b, a)?);
    if there.intersection(&back).next().is_some() {
        return None;
    }
    let drops = |node: &Node| node.tunable("drop_asym_route").unwrap_or(0) != 0;
    let level = if drops(a) || drops(b) { Level::Error } else { Level::Warning };
    let list = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
    let text = format!(
        "{} goes to {} through {}, and the answers come back through {}{}",
        a.name,
        b.name,
        list(&there),
        list(&back),
        if level == Level::Error { ": they are dropped (drop_asym_route)" } else { "" }
    );
    let router = site.nodes.iter().find(|node| there.contains(node.name.as_str()))?;
    let near_b = router.outward().find(|ni| b.is_on(ni.nid.net()))?;
    let near_a = router.outward().find(|ni| a.is_on(ni.nid.net()))?;
    let command = format!("lnetctl route add --net {} --gateway {}", near_a.nid.net(), near_b.nid);
    Some(Finding::new(NAME, level, &[&a.name, &b.name], text).fix(&b.name, command))
}
