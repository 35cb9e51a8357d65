//! A node with two rails, and what can be done to them.

use std::net::IpAddr;

use anyhow::Context as _;
use lnd_sock::SockConfig;
use lnet_rt::{NodeBuilder, NodeHandle, TcpNi};
use lnet_types::{Net, NiId, Nid};
use serde::{Deserialize, Serialize};

/// One rail, as the table shows it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RailView {
    pub(crate) nid: String,
    /// Payload bytes sent over it.
    pub(crate) bytes: u64,
    /// 0 to 1000.
    pub(crate) health: u32,
}

/// A node with one NI per address.
#[derive(Clone)]
pub(crate) struct Rails {
    pub(crate) node: NodeHandle,
    nis: Vec<NiId>,
}

impl Rails {
    pub(crate) fn start(ips: &[IpAddr], port: u16) -> anyhow::Result<Self> {
        let node = NodeBuilder::new().start().context("node")?;
        let config = SockConfig::on_port(port);
        node.call(move |s, _| s.enable_tcp(config)).blocking()?.context("TCP driver")?;
        let mut nis = Vec::new();
        for &ip in ips {
            let ni = TcpNi { conns_per_peer: Some(1), ..TcpNi::new(Nid::from_ip(Net::TCP, ip)) };
            let added = node.call(move |s, _| s.add_tcp_ni(ni)).blocking()?;
            nis.push(added.with_context(|| format!("interface {ip}, port {port}"))?);
        }
        Ok(Self { node, nis })
    }

    /// Cuts a rail, or restores it: its connections break and no new ones come about.
    pub(crate) fn cut(&self, rail: usize, cut: bool) -> anyhow::Result<()> {
        if let Some(&ni) = self.nis.get(rail) {
            self.node.call(move |s, _| s.block_tcp_ni(ni, cut)).blocking()??;
        }
        Ok(())
    }

    /// The rails and the number of messages that LNet has sent again.
    pub(crate) fn view(&self) -> anyhow::Result<(Vec<RailView>, u64)> {
        let nis = self.nis.clone();
        let view = self.node.call(move |s, _| {
            let views = s.node().net_views();
            let rail = |id: &NiId| {
                let ni = views.iter().flat_map(|v| &v.nis).find(|v| v.id == *id);
                ni.map(|ni| RailView {
                    nid: ni.nid.to_string(),
                    bytes: ni.stats.sent_bytes,
                    health: ni.health,
                })
            };
            let rails = nis.iter().filter_map(rail).collect();
            (rails, u64::from(s.node().stats().resend_count))
        });
        Ok(view.blocking()?)
    }
}

/// NIDs for people.
pub(crate) fn nid_list(ips: &[IpAddr]) -> String {
    ips.iter().map(|ip| Nid::from_ip(Net::TCP, *ip).to_string()).collect::<Vec<_>>().join(", ")
}
