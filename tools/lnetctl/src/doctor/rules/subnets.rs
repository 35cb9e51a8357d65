//! Two interfaces in one IP network: without a rule for each source address the system sends
//! everything through one of them, whatever LNet has chosen.

use super::{Finding, Level};
use crate::doctor::site::{Ni, Node, Site};

pub(super) const NAME: &str = "no source routing";

/// The first number of the tables that the commands make.
const TABLE: usize = 100;

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        for (subnet, nis) in node.crowded() {
            let bare: Vec<&&Ni> = nis.iter().filter(|ni| !is_source_routed(node, ni)).collect();
            if bare.is_empty() {
                continue;
            }
            let names: Vec<String> = nis.iter().map(|ni| ni.nid.to_string()).collect();
            let text = format!(
                "{}: {} are in one IP network, {subnet}, without source routing: the system sends \
                 all of it through one device",
                node.name,
                names.join(" and ")
            );
            let mut finding = Finding::new(NAME, Level::Error, &[&node.name], text);
            for ni in bare {
                let (Some((device, _)), Some(ip)) = (node.device_of(ni), ni.nid.ip()) else {
                    continue;
                };
                let at = node.outward().position(|other| other.nid == ni.nid).unwrap_or(0);
                let table = TABLE + at;
                finding = finding
                    .fix(
                        &node.name,
                        format!("ip route replace {subnet} dev {device} table {table}"),
                    )
                    .fix(&node.name, format!("ip rule add from {ip} table {table}"));
            }
            found.push(finding);
        }
    }
}

fn is_source_routed(node: &Node, ni: &Ni) -> bool {
    let Some(ip) = ni.nid.ip() else { return true };
    node.device_of(ni).is_none_or(|(_, device)| device.source_routed.contains(&ip))
}
