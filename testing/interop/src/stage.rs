//! The place where a capture is played: a host with the addresses of the node under test, a host
//! with the others', and the two rails between them.

use std::net::IpAddr;

use netns::{Error, Host, Port, Unavailable, World};

use crate::capture::Capture;

/// Two hosts joined by two rails, eth0 and eth1.
#[derive(Debug)]
pub struct Stage {
    /// Where the node under test runs.
    pub node: Host,
    /// Where the player has its sockets.
    pub player: Host,
    /// Owns both; they go when it goes.
    _world: World,
}

impl Stage {
    /// The stage for `capture`, with `node` as the addresses of the node under test.
    ///
    /// # Errors
    /// Outside: no namespaces here, a reason to skip. Inside: they are not as they should be.
    pub fn set(
        tag: &str,
        capture: &Capture,
        node: &[IpAddr],
    ) -> Result<Result<Self, Error>, Unavailable> {
        let world = World::new(tag)?;
        Ok(Self::build(world, capture, node))
    }

    fn build(world: World, capture: &Capture, own: &[IpAddr]) -> Result<Self, Error> {
        let (node, player) = (world.host("node")?, world.host("player")?);
        let mut all = capture.addresses();
        all.extend(own);
        for (rail, interface) in ["eth0", "eth1"].into_iter().enumerate() {
            let on_rail = all.iter().filter(|ip| rail_of(**ip) == rail);
            let (ours, theirs): (Vec<_>, Vec<_>) = on_rail.partition(|ip| own.contains(ip));
            let cidrs = |ips: Vec<&IpAddr>| -> Vec<String> {
                let len = |ip: &IpAddr| if ip.is_ipv4() { 24 } else { 64 };
                ips.iter().map(|ip| format!("{ip}/{}", len(ip))).collect()
            };
            let (ours, theirs) = (cidrs(ours), cidrs(theirs));
            let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
            let theirs: Vec<&str> = theirs.iter().map(String::as_str).collect();
            let ports =
                [Port::new(&node, interface, &ours), Port::new(&player, interface, &theirs)];
            world.segment(&ports)?;
            for (host, addresses) in [(&node, &ours), (&player, &theirs)] {
                // Both know the way to both rails, whether they have an address there or not.
                if !addresses.iter().any(|cidr| cidr.contains('.')) {
                    let net = format!("10.77.{rail}.0/24");
                    host.run(["ip", "route", "add", &net, "dev", interface])?;
                }
            }
        }
        for host in [&node, &player] {
            // A message may leave by another rail than that of its source address.
            for name in ["all", "default", "eth0", "eth1"] {
                host.run(["sysctl", "-qw", &format!("net.ipv4.conf.{name}.rp_filter=0")])?;
            }
        }
        Ok(Self { node, player, _world: world })
    }
}

/// The captures have rail 1 on 10.77.1.0/24 and all else on rail 0.
fn rail_of(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(v4) => usize::from(v4.octets()[2] == 1),
        IpAddr::V6(_) => 0,
    }
}
