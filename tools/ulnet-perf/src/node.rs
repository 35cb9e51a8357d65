//! Stacks for measuring: interfaces on the given addresses, with the credits asked for.

use std::net::IpAddr;

use anyhow::Context as _;
use lnet::NetTunables;
use lnet_rt::{NodeBuilder, SockConfig, Stack, TcpNi};
use lnet_types::{Net, Nid};

use super::options::Common;

/// A stack with an interface on network `tcp` at each of `addresses`.
pub(super) fn stack(common: &Common, addresses: &[IpAddr]) -> anyhow::Result<Stack> {
    let mut stack = NodeBuilder::new().build().context("node")?;
    stack.enable_tcp(SockConfig::on_port(common.port))?;
    stack.node_mut().record(common.record as usize);
    for &ip in addresses {
        let tunables = NetTunables {
            peer_credits: common.peer_credits,
            credits: common.credits,
            ..NetTunables::SOCK
        };
        stack
            .add_tcp_ni(TcpNi {
                tunables,
                conns_per_peer: Some(common.conns),
                ..TcpNi::new(Nid::from_ip(Net::TCP, ip))
            })
            .with_context(|| format!("interface at {ip}"))?;
    }
    Ok(stack)
}

/// Bytes that the stack has written to its connections.
pub(super) fn wire_bytes(stack: &Stack) -> u64 {
    stack.tcp().map_or(0, |tcp| tcp.connections().iter().map(|c| c.traffic.bytes_out).sum())
}
