//! Connections to targets that stay broken, and replies that do not fit into the room planned for them.

use super::{Finding, Level};
use crate::doctor::site::{RpcImport, Site};

pub(super) const NAME: &str = "import";

/// A connection that is made again within this time, seconds, needs no help: the slowest round of a
/// reconnect.
const RECONNECTS_IN: i64 = 60;

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for import in node.rpc.iter().flat_map(|rpc| &rpc.imports) {
            let RpcImport { target, state, for_s, truncated } = import;
            if !matches!(&**state, "FULL" | "IDLE" | "NEW") && *for_s > RECONNECTS_IN {
                let text = format!(
                    "{}: the import of {target} is {state} for {for_s} s: calls wait",
                    node.name
                );
                let finding = Finding::new(NAME, Level::Error, &[&node.name], text);
                found.push(finding.fix(&node.name, format!("lnetctl explain import {target}")));
            }
            if *truncated > 0 {
                let text = format!(
                    "{}: {truncated} replies of {target} did not fit into their buffers: each such \
                     request was sent again with a larger one",
                    node.name
                );
                let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
                found.push(finding.fix(&node.name, "lnetctl import show"));
            }
        }
    }
}
