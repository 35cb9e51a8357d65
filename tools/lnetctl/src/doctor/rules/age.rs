//! Files that are old, and clocks that differ: what a file says was so when it was written.

use super::{Finding, Level};
use crate::doctor::site::Site;

pub(super) const NAME: &str = "clock";

/// Older files, seconds, may say what is past.
const OLD: i64 = 3600;
/// Files that are written later than now, seconds, come from a clock that differs.
const AHEAD: i64 = 5;

/// The first node is the one that the doctor runs on.
pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    let Some((local, others)) = site.nodes.split_first() else { return };
    let Some(now) = local.saved_s else { return };
    for node in others {
        let Some(age) = node.saved_s.map(|at| now - at) else { continue };
        let text = if age > OLD {
            format!("the file of {} is {} min old: it may say what is past", node.name, age / 60)
        } else if age < -AHEAD {
            format!("the clock of {} is {} s ahead of that of {}", node.name, -age, local.name)
        } else {
            continue;
        };
        let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
        let command = if age > OLD { "lnetctl doctor --save FILE" } else { "date" };
        found.push(finding.fix(&node.name, command));
    }
}
