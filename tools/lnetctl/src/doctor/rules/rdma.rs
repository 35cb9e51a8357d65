//! RDMA interfaces: ports that carry nothing or are slower than their like, and memory that the adapter
//! is not allowed to lock.

use lnet_admin::RdmaPortSnapshot;

use super::{Finding, Level};
use crate::doctor::site::{Ni, Site};

pub(super) const NAME: &str = "rdma";

/// Receive buffers of some hundred connections; with less a node that gets to work runs out.
const LOCKED_MIN: u64 = 64 << 20;

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        let ports: Vec<(&Ni, RdmaPortSnapshot)> =
            node.nis.iter().filter_map(|ni| Some((ni, ni.rdma?))).collect();
        for (ni, port) in &ports {
            let device = ni.device.as_deref().unwrap_or("DEVICE");
            let mut find = |level, text: String, command: String| {
                let text = format!("{} on {}: {text}", ni.nid, node.name);
                let finding = Finding::new(NAME, level, &[&node.name], text);
                found.push(finding.fix(&node.name, command));
            };
            if !port.active {
                find(
                    Level::Error,
                    "its RDMA port is not active: nothing goes or comes there".to_owned(),
                    "ibv_devinfo".to_owned(),
                );
                continue;
            }
            let of_net = ports.iter().filter(|(other, _)| other.nid.net() == ni.nid.net());
            let best = of_net.map(|(_, other)| other.rate_mbps).max().unwrap_or(0);
            if port.degraded || port.rate_mbps < best {
                let than = if port.degraded { "it was" } else { "others of its network" };
                let text = format!(
                    "its link of {} Mbit/s is slower than {than}: other rails are preferred",
                    port.rate_mbps
                );
                find(Level::Warning, text, format!("rdma link show; ethtool {device}"));
            }
            if let Some(limit) = port.locked_limit.filter(|limit| *limit < LOCKED_MIN) {
                let text = format!(
                    "its daemon may lock {} KiB of memory, at least {} expected: connections and \
                     transfers fail for want of it",
                    limit >> 10,
                    LOCKED_MIN >> 10
                );
                find(
                    Level::Warning,
                    text,
                    "systemctl edit lnetd # LimitMEMLOCK=infinity".to_owned(),
                );
            }
            if port.pinned_max > 0 && port.pinned > port.pinned_max / 10 * 9 {
                let text = format!(
                    "{} of {} bytes that may be pinned are: transfers are refused at the limit",
                    port.pinned, port.pinned_max
                );
                find(Level::Warning, text, "lnetctl net show --net o2ib -v 5".to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::site::Node;

    const GOOD: RdmaPortSnapshot = RdmaPortSnapshot {
        active: true,
        rate_mbps: 100_000,
        degraded: false,
        connections: 1,
        pinned: 1 << 20,
        pinned_max: 1 << 30,
        registered: 0,
        found: 0,
        locked_limit: None,
        mtu: 4096,
        ethernet: false,
        gid: None,
        pkey: 0xffff,
        roce: 0,
        keepalive_s: Some(100),
    };

    fn texts(ports: &[RdmaPortSnapshot]) -> Vec<String> {
        let ni = |(n, port): (usize, &RdmaPortSnapshot)| Ni {
            nid: format!("10.0.0.{}@o2ib", n + 1).parse().unwrap(),
            device: Some(format!("ib{n}")),
            up: true,
            health: None,
            pings: None,
            is_flapping: false,
            peer_credits: None,
            peer_timeout_s: None,
            timeout_s: None,
            rdma: Some(*port),
        };
        let nis = ports.iter().enumerate().map(ni).collect();
        let site = Site { nodes: vec![Node { name: "oss".to_owned(), nis, ..Node::default() }] };
        let mut found = Vec::new();
        check(&site, &mut found);
        found.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn ports_and_limits_that_are_wrong_are_found_and_others_are_not() {
        assert_eq!(texts(&[GOOD, GOOD]), Vec::<String>::new());
        let wrong = [
            (RdmaPortSnapshot { active: false, ..GOOD }, "port is not active"),
            (RdmaPortSnapshot { rate_mbps: 25_000, ..GOOD }, "slower than others of its network"),
            (RdmaPortSnapshot { degraded: true, ..GOOD }, "slower than it was"),
            (RdmaPortSnapshot { locked_limit: Some(8 << 20), ..GOOD }, "may lock 8192 KiB"),
            (RdmaPortSnapshot { pinned: 1000 << 20, ..GOOD }, "transfers are refused at the limit"),
        ];
        for (port, words) in wrong {
            let found = texts(&[GOOD, port]);
            assert_eq!(found.len(), 1, "{words}: {found:?}");
            assert!(found[0].starts_with("10.0.0.2@o2ib on oss: ") && found[0].contains(words));
        }
    }
}
