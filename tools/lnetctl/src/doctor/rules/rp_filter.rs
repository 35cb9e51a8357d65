//! A strict reverse path filter drops what comes in through another device than the one that the
//! system would answer through: with two interfaces in one IP network, every second packet.

use super::{Finding, Level};
use crate::doctor::site::Site;

pub(super) const NAME: &str = "rp_filter";

/// Strict.
const STRICT: i64 = 1;

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for (subnet, nis) in node.crowded() {
            let strict = nis.iter().filter_map(|ni| node.device_of(ni));
            let strict: Vec<&str> =
                strict.filter(|(_, d)| d.rp_filter == Some(STRICT)).map(|(name, _)| name).collect();
            if strict.is_empty() {
                continue;
            }
            let text = format!(
                "{}: {} filter strictly (rp_filter 1) in {subnet}, where the node has several \
                 interfaces: what comes in through the other one is dropped",
                node.name,
                strict.join(", ")
            );
            let mut finding = Finding::new(NAME, Level::Error, &[&node.name], text);
            for device in strict {
                let command = format!("sysctl -w net.ipv4.conf.{device}.rp_filter=2");
                finding = finding.fix(&node.name, command);
            }
            found.push(finding);
        }
    }
}
