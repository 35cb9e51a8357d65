//! Services that do not take their requests, were not able to keep up lately, or have lost request
//! buffers; clients that were evicted lately.

use super::{Finding, Level};
use crate::doctor::site::{Node, RpcEviction, RpcService, Site};

pub(super) const NAME: &str = "service";
/// The rule about evictions.
pub(super) const EVICTION: &str = "eviction";

/// What was longer ago, seconds, is over.
const LATELY: i64 = 600;

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for service in node.rpc.iter().flat_map(|rpc| &rpc.services) {
            found.extend(of(node, service));
        }
    }
}

fn of(node: &Node, service: &RpcService) -> Vec<Finding> {
    let RpcService { name, posted, buffers, behind_ago_s, unhealthy } = service;
    let mut found = Vec::new();
    let mut say = |level, text: String, fix: &str| {
        let text = format!("{}: service {name} {text}", node.name);
        found.push(Finding::new(NAME, level, &[&node.name], text).fix(&node.name, fix));
    };
    if *unhealthy {
        let text = "has requests that wait, and takes none";
        say(Level::Error, text.to_owned(), "lnetctl service show");
    }
    if let Some(ago) = behind_ago_s.filter(|ago| *ago < LATELY) {
        let text =
            format!("was not able to keep up {ago} s ago: requests were over before their turn");
        say(Level::Warning, text, "lctl set_param at_early_margin=10");
    }
    if posted.saturating_mul(2) < *buffers {
        let text = format!("has {posted} of {buffers} request buffers: requests wait in LNet");
        say(Level::Error, text, "lnetctl service show");
    }
    found
}

/// Clients that were evicted lately.
pub(super) fn check_evictions(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        let all = node.rpc.iter().flat_map(|rpc| &rpc.evictions);
        for RpcEviction { target, client, reason, ago_s } in all.filter(|e| e.ago_s < LATELY) {
            let text = format!(
                "{}: client {client} of {target} was evicted {ago_s} s ago: {reason}",
                node.name
            );
            let finding = Finding::new(EVICTION, Level::Warning, &[&node.name], text);
            found.push(finding.fix(&node.name, "lnetctl export show"));
        }
    }
}
