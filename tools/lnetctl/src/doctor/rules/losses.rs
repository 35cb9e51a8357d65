//! Counters of losses that rose while the doctor watched.

use super::{Finding, Level};
use crate::doctor::site::Site;

pub(super) const NAME: &str = "losses";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for (counter, by) in &node.rising {
            let text = format!("{}: {counter} rises, by {by} within a second", node.name);
            let command = match counter.starts_with("connections refused") {
                true => "lnetctl net show -v 5",
                false => "lnetctl stats show",
            };
            let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
            found.push(finding.fix(&node.name, command));
        }
    }
}
