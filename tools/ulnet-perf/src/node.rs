//! Stacks for measuring: interfaces on the given addresses, with the credits asked for.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context as _;
use lnet::NetTunables;
use lnet_rt::{IbConfig, IbNi, NodeBuilder, SockConfig, Stack, TcpNi, Wait};
use lnet_types::{Net, NetType, Nid};

use super::options::Common;

/// How who drives a stack waits. It looks up from a sleep soon enough to see that nothing comes.
pub(super) fn wait() -> Wait {
    Wait::eager(Duration::from_secs(1))
}

/// A stack with an interface on a network at each of `addresses`.
pub(super) fn stack(common: &Common, net: Net, addresses: &[IpAddr]) -> anyhow::Result<Stack> {
    let mut stack = NodeBuilder::new().build().context("node")?;
    let is_rdma = net.kind == NetType::O2IB;
    if !is_rdma {
        stack.enable_tcp(SockConfig::on_port(common.port))?;
    }
    stack.node_mut().record(common.record as usize);
    for &ip in addresses {
        let tunables = NetTunables {
            peer_credits: common.peer_credits,
            credits: common.credits,
            ..NetTunables::SOCK
        };
        let nid = Nid::from_ip(net, ip);
        let added = if is_rdma {
            let config = IbConfig { conns_per_peer: common.conns, ..IbConfig::default() };
            stack.add_ib_ni(IbNi { tunables, config, ..IbNi::new(nid) })
        } else {
            let conns_per_peer = Some(common.conns);
            stack.add_tcp_ni(TcpNi { tunables, conns_per_peer, ..TcpNi::new(nid) })
        };
        added.with_context(|| format!("interface at {ip}"))?;
    }
    Ok(stack)
}

/// Bytes that the stack has written to its connections.
pub(super) fn wire_bytes(stack: &Stack) -> u64 {
    let tcp = stack.tcp().into_iter().flat_map(|tcp| tcp.connections());
    let rdma = stack.ib().into_iter().flat_map(|ib| ib.ports());
    tcp.map(|c| c.traffic.bytes_out).chain(rdma.map(|port| port.ib.stats().bytes_out)).sum()
}
