//! With two interfaces in one IP network Linux answers ARP for either address on either device, so
//! that peers send all to one of them (ARP flux).

use super::{Finding, Level};
use crate::doctor::site::Site;

pub(super) const NAME: &str = "ARP";

/// `arp_ignore` from which on a device answers for its own addresses only.
const IGNORE: i64 = 1;
/// `arp_announce` from which on a device asks with its own address only.
const ANNOUNCE: i64 = 2;

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for (subnet, nis) in node.crowded() {
            let mut commands = Vec::new();
            for (name, device) in nis.iter().filter_map(|ni| node.device_of(ni)) {
                if device.arp_ignore.is_some_and(|v| v < IGNORE) {
                    commands.push(format!("sysctl -w net.ipv4.conf.{name}.arp_ignore={IGNORE}"));
                }
                if device.arp_announce.is_some_and(|v| v < ANNOUNCE) {
                    commands
                        .push(format!("sysctl -w net.ipv4.conf.{name}.arp_announce={ANNOUNCE}"));
                }
            }
            if commands.is_empty() {
                continue;
            }
            let text = format!(
                "{}: its devices in {subnet} answer ARP for each other's addresses: peers send to \
                 one device what is meant for the other",
                node.name
            );
            let mut finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
            for command in commands {
                finding = finding.fix(&node.name, command);
            }
            found.push(finding);
        }
    }
}
