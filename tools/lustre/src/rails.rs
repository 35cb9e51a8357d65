//! The node of a command: the interfaces that it has, and the routes that it knows.

use std::net::IpAddr;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use lnet_rt::{Errno, Net, Nid, NodeBuilder, NodeHandle, RouteSpec};
use lnet_types::NetType;

/// An address to send from, `IP` or `IP@NET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    ip: IpAddr,
    /// The network of the target if `None`.
    net: Option<Net>,
}

impl FromStr for Source {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if !text.contains('@') {
            let ip = text.parse().with_context(|| format!("source '{text}': expected IP[@NET]"))?;
            return Ok(Self { ip, net: None });
        }
        let nid: Nid = text.parse().with_context(|| format!("source '{text}'"))?;
        Ok(Self { ip: address(nid)?, net: Some(nid.net()) })
    }
}

impl Source {
    /// As the interface of a node whose target is on `net`.
    pub(crate) fn on(self, net: Net) -> (Net, IpAddr) {
        (self.net.unwrap_or(net), self.ip)
    }
}

/// A route, `NET=GATEWAY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    net: Net,
    gateway: Nid,
}

impl FromStr for Route {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (net, gateway) =
            text.split_once('=').ok_or_else(|| anyhow!("route '{text}': expected NET=GATEWAY"))?;
        Ok(Self {
            net: net.parse().with_context(|| format!("network '{net}'"))?,
            gateway: gateway.parse().with_context(|| format!("gateway '{gateway}'"))?,
        })
    }
}

/// Routes of a command's node.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Routes {
    /// Reach a network through a gateway; may be given again
    #[arg(long = "route", value_name = "NET=GATEWAY")]
    routes: Vec<Route>,
}

impl Routes {
    /// A gateway on a network.
    pub(crate) fn gateway_on(&self, net: Net) -> Option<Nid> {
        let mut gateways = self.routes.iter().map(|route| route.gateway);
        gateways.find(|gateway| gateway.net() == net)
    }
}

/// The address of a NID on a tcp network.
pub(crate) fn address(nid: Nid) -> Result<IpAddr> {
    let ip = nid.ip().filter(|_| nid.net().kind == NetType::TCP);
    ip.ok_or_else(|| anyhow!("NID '{nid}': expected one on a tcp network"))
}

/// Starts a node with these interfaces and routes.
///
/// # Errors
/// An address is in use or not of this machine; a gateway is on none of the node's networks.
pub(crate) fn start(
    rails: &[(Net, IpAddr)],
    port: u16,
    Routes { routes }: &Routes,
    thread: &str,
) -> Result<NodeHandle> {
    let mut builder = NodeBuilder::new().thread_name(thread);
    for (net, ip) in rails {
        builder = builder.tcp_on(*net, *ip, port);
    }
    let node = builder.start().map_err(|e| {
        let ips: Vec<String> = rails.iter().map(|(_, ip)| ip.to_string()).collect();
        let taken = e.to_string().ends_with(&Errno::EADDRINUSE.to_string());
        let hint = if taken { " (in use by lnetd? see --help)" } else { "" };
        anyhow!("cannot use {} port {port}{hint}: {e}", ips.join(", "))
    })?;
    for Route { net, gateway } in routes.iter().copied() {
        if rails.iter().all(|(own, _)| *own != gateway.net()) {
            bail!("gateway '{gateway}': expected one on a network of this node");
        }
        let route = RouteSpec { net, gateway, hops: None, priority: 0 };
        let added = node.call(move |stack, now| stack.node_mut().add_route(now, route));
        added.blocking()?.with_context(|| format!("route {net}={gateway}"))?;
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_an_address_of_the_targets_network_or_names_its_own() {
        let tcp: Net = "tcp".parse().unwrap();
        let tcp1: Net = "tcp1".parse().unwrap();
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!("10.0.0.1".parse::<Source>().unwrap().on(tcp1), (tcp1, ip));
        assert_eq!("10.0.0.1@tcp".parse::<Source>().unwrap().on(tcp1), (tcp, ip));
        for (text, part) in
            [("10.0.0", "IP[@NET]"), ("10.0.0.1@x", "'10.0.0.1@x'"), ("1@gni", "tcp")]
        {
            let e = format!("{:#}", text.parse::<Source>().unwrap_err());
            assert!(e.contains(part), "{text}: {e}");
        }
    }

    #[test]
    fn route_has_a_network_and_a_gateway() {
        let route: Route = "tcp1=10.0.0.9@tcp".parse().unwrap();
        assert_eq!(
            (route.net.to_string(), route.gateway.to_string()),
            ("tcp1".into(), "10.0.0.9@tcp".into())
        );
        for (text, part) in [("tcp1", "NET=GATEWAY"), ("x=10.0.0.9@tcp", "'x'"), ("tcp1=y", "'y'")]
        {
            let e = format!("{:#}", text.parse::<Route>().unwrap_err());
            assert!(e.contains(part), "{text}: {e}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_listened_on_is_named_with_one_reason() {
        // Of the documentation's network: no machine has it.
        let rails = [("tcp".parse().unwrap(), "192.0.2.1".parse().unwrap())];
        let e = start(&rails, 7998, &Routes::default(), "test").err().map(|e| format!("{e:#}"));
        let e = e.unwrap_or_default();
        assert!(e.starts_with("cannot use 192.0.2.1 port 7998"), "{e}");
        assert_eq!(e.matches("can't listen on 192.0.2.1:7998").count(), 1, "{e}");
    }

    #[test]
    fn gateway_on_no_network_of_the_node_is_refused() {
        let routes = Routes { routes: vec!["tcp1=10.0.0.9@tcp2".parse().unwrap()] };
        let rails = [("tcp".parse().unwrap(), "127.98.0.1".parse().unwrap())];
        let e =
            start(&rails, 7998, &routes, "test").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(e.contains("10.0.0.9@tcp2"), "{e}");
    }
}
