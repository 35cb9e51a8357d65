//! Rails that are not trusted now: silent, lossy or slow.

use super::{Finding, Level};
use crate::doctor::site::Site;

pub(super) const NAME: &str = "rail";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for rail in &node.suspects {
            let seconds = rail.for_ms as f64 / 1000.0;
            let text = format!(
                "{}: the rail from {} to {} is {} for {seconds:.1} s: messages avoid it",
                node.name, rail.local, rail.peer, rail.doubt
            );
            let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
            found.push(finding.fix(&node.name, "lnetctl debug suspicion"));
        }
    }
}
