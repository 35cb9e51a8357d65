//! A NID belongs to one node. Two that claim it get each other's messages.

use super::{Finding, Level};
use crate::doctor::site::Site;

pub(super) const NAME: &str = "same NID twice";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for (i, a) in site.nodes.iter().enumerate() {
        for b in site.nodes.iter().skip(i + 1) {
            for ni in a.outward().filter(|ni| b.owns(ni.nid)) {
                let text = format!(
                    "{} is a NID of {} and of {}: messages for one reach the other",
                    ni.nid, a.name, b.name
                );
                let command = format!("lnetctl net del --net {} --nid {}", ni.nid.net(), ni.nid);
                let finding = Finding::new(NAME, Level::Error, &[&a.name, &b.name], text);
                found.push(finding.fix(&b.name, command));
            }
        }
    }
}
