//! One node that was seen more than once (itself, by ping, in files) becomes one; names become unique.

use super::site::{Node, Site};

/// Makes one node of the records of one node. The first record of it wins where both say something.
pub(super) fn merge(site: &mut Site) {
    let mut merged: Vec<Node> = Vec::new();
    for node in core::mem::take(&mut site.nodes) {
        match merged.iter_mut().find(|known| are_one(known, &node)) {
            Some(known) => absorb(known, node),
            None => merged.push(node),
        }
    }
    site.nodes = merged;
    distinct(site);
}

/// Whether two records are about one node: the same incarnation, or NIDs of which one record has all
/// that the other has, unless incarnations or given names speak against it.
fn are_one(a: &Node, b: &Node) -> bool {
    if let (Some(one), Some(other)) = (a.incarnation, b.incarnation) {
        return one == other;
    }
    if a.is_named && b.is_named && a.name != b.name {
        return false;
    }
    let (one, other) = (a.nids(), b.nids());
    !one.is_empty() && !other.is_empty() && (one.is_subset(&other) || other.is_subset(&one))
}

fn absorb(known: &mut Node, more: Node) {
    let silent = more.silent.iter().filter(|nid| !known.silent.contains(nid)).copied();
    let silent: Vec<_> = silent.collect();
    known.silent.extend(silent);
    // A record without routes is an answer to a ping: less than any other.
    if known.routes.is_none() && more.routes.is_some() {
        let silent = core::mem::take(&mut known.silent);
        *known = Node { silent, ..more };
    } else if known.devices.is_empty() {
        known.devices = more.devices;
    }
}

/// Gives each node a name of its own: where several share one, with a NID.
fn distinct(site: &mut Site) {
    let names: Vec<String> = site.nodes.iter().map(|n| n.name.clone()).collect();
    for (i, node) in site.nodes.iter_mut().enumerate() {
        if names.iter().filter(|name| **name == node.name).count() > 1 {
            let nid = node.nids().first().map(ToString::to_string);
            node.name = format!("{} {}", node.name, nid.unwrap_or_else(|| format!("({})", i + 1)));
        }
    }
    // The same NID too: two that fight for it.
    for i in 0..site.nodes.len() {
        let name = site.nodes.get(i).map(|n| n.name.clone()).unwrap_or_default();
        let before = site.nodes.iter().take(i).filter(|n| n.name == name).count();
        if let (1.., Some(node)) = (before, site.nodes.get_mut(i)) {
            node.name = format!("{name} ({})", before + 1);
        }
    }
}
