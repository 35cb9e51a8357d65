//! The hosts of a scenario: one namespace per node, one switch per network, one interface per rail.
//!
//! Rails of one network are in no common subnet as far as the hosts know. Each has a route for every
//! other address of its network in a table of its own, chosen by the source address: what leaves
//! from a rail's address leaves by that rail, and answers for an address come from its owner.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, bail};
use lnet_scenario::{FaultKind, NodeId, Scenario, Transport};
use lnet_types::Nid;
use netns::{Host, Port, Switch, World};

/// First routing table of the rails.
const TABLE: usize = 100;
/// What a bucket holds at least, bytes: one large packet.
const BUCKET_MIN: u32 = 16 << 10;
/// How long a packet waits, on a rail with a bandwidth.
const WAIT: &str = "50ms";

/// An interface of a host.
#[derive(Clone, Debug)]
pub(crate) struct Nic {
    pub(crate) node: NodeId,
    pub(crate) device: String,
    pub(crate) address: IpAddr,
    /// Index of the network.
    pub(crate) net: usize,
    /// Whether its node uses it from the beginning.
    used: bool,
    /// Its port on the network's switch.
    port: usize,
}

/// Hosts, switches and interfaces.
#[derive(Debug)]
pub(crate) struct Stage {
    hosts: Vec<Host>,
    switches: Vec<Switch>,
    nics: BTreeMap<Nid, Nic>,
    /// Bytes per second of each network, and bytes at once.
    bandwidths: Vec<Option<(u64, u32)>>,
    /// Last: it ends what runs in the hosts.
    _world: World,
}

impl Stage {
    /// Builds it in an empty `world`.
    pub(crate) fn build(world: World, scenario: &Scenario) -> anyhow::Result<Self> {
        let plan = &scenario.world;
        let mut hosts = Vec::new();
        for node in 0..plan.nodes.len() as u32 {
            let host = world.host(&plan.name(NodeId(node)))?;
            prepare(&host)?;
            hosts.push(host);
        }
        let mut nics: BTreeMap<Nid, Nic> = BTreeMap::new();
        let mut switches = Vec::new();
        for (net, spec) in plan.nets.iter().enumerate() {
            if spec.transport != Transport::Stream {
                bail!("network {}: only streams can be had on real sockets", spec.net);
            }
            let mut of_net: Vec<Nic> = Vec::new();
            for (port, (node, nid, used)) in members(scenario, net).into_iter().enumerate() {
                let Some(address) = nid.ip() else { bail!("{nid}: not an address of TCP") };
                let before = nics.values().filter(|nic| nic.node == node).count();
                let device = format!("eth{before}");
                let nic = Nic { node, device, address, net, used, port };
                of_net.push(nic.clone());
                nics.insert(nid, nic);
            }
            let cidrs: Vec<String> = of_net.iter().map(|n| format!("{}/32", n.address)).collect();
            let cidrs: Vec<[&str; 1]> = cidrs.iter().map(|c| [c.as_str()]).collect();
            let mut ports = Vec::new();
            for (nic, cidr) in of_net.iter().zip(&cidrs) {
                let host = hosts.get(nic.node.0 as usize).context("a node without host")?;
                ports.push(Port::new(host, &nic.device, cidr));
            }
            switches.push(world.switch(&ports)?);
        }
        let bandwidths = plan.nets.iter().map(|net| Some((net.bandwidth?, net.burst))).collect();
        let stage = Self { hosts, switches, nics, bandwidths, _world: world };
        stage.nics.values().try_for_each(|nic| stage.route(nic))?;
        for nic in stage.nics.values() {
            stage.restore_rate(nic)?;
        }
        Ok(stage)
    }

    fn route(&self, nic: &Nic) -> anyhow::Result<()> {
        let host = self.host(nic.node)?;
        let table = (TABLE + self.number_of(nic)).to_string();
        let from = nic.address.to_string();
        host.run(["ip", "rule", "add", "from", &from, "lookup", &table])?;
        let far = self.nics.values().filter(|n| n.net == nic.net && n.node != nic.node);
        for other in far {
            let to = other.address.to_string();
            let way = [to.as_str(), "dev", &nic.device, "src", &from];
            host.run(["ip", "route", "add"].iter().chain(&way).chain(&["table", &table]))?;
            // For sockets that do not bind; the first rail is as good as any.
            let _ = host.run(["ip", "route", "append"].iter().chain(&way));
        }
        Ok(())
    }

    fn number_of(&self, nic: &Nic) -> usize {
        self.nics.values().position(|n| n.address == nic.address).unwrap_or(0)
    }

    /// The host of a node.
    pub(crate) fn host(&self, node: NodeId) -> anyhow::Result<&Host> {
        self.hosts.get(node.0 as usize).with_context(|| format!("no host for node {node}"))
    }

    /// The interface with this NID.
    pub(crate) fn nic(&self, nid: Nid) -> anyhow::Result<&Nic> {
        self.nics.get(&nid).with_context(|| format!("no interface for {nid}"))
    }

    /// The interfaces that a node uses from the beginning.
    pub(crate) fn used(&self, node: NodeId) -> impl Iterator<Item = &Nic> {
        self.nics.values().filter(move |nic| nic.node == node && nic.used)
    }

    /// All interfaces.
    pub(crate) fn nics(&self) -> impl Iterator<Item = &Nic> {
        self.nics.values()
    }

    /// Pulls the cable of an interface, or puts it back.
    pub(crate) fn carrier(&self, nic: &Nic, up: bool) -> anyhow::Result<()> {
        let switch = self.switches.get(nic.net).context("a network without switch")?;
        Ok(if up { switch.plug_in(nic.port) } else { switch.unplug(nic.port) }?)
    }

    /// Gives what leaves by an interface, or what comes to it, this many bytes per second.
    pub(crate) fn slow(&self, nic: &Nic, out: bool, bytes: u64) -> anyhow::Result<()> {
        let rate = format!("{}bit", bytes.saturating_mul(8));
        // A slow link has nothing to give at once.
        let bucket = BUCKET_MIN.to_string();
        if out {
            return Ok(self.host(nic.node)?.shape(&nic.device, &rate, &bucket, WAIT)?);
        }
        let switch = self.switches.get(nic.net).context("a network without switch")?;
        Ok(switch.shape(nic.port, &rate, &bucket, WAIT)?)
    }

    /// Ends [`Self::slow`] both ways: back to what the network has.
    pub(crate) fn restore_rate(&self, nic: &Nic) -> anyhow::Result<()> {
        let host = self.host(nic.node)?;
        match self.bandwidths.get(nic.net).copied().flatten() {
            Some((bytes, burst)) => {
                let rate = format!("{}bit", bytes.saturating_mul(8));
                let bucket = burst.max(BUCKET_MIN).to_string();
                host.shape(&nic.device, &rate, &bucket, WAIT)?;
            }
            // There may be none to clear.
            None => _ = host.qdisc_clear(&nic.device),
        }
        let switch = self.switches.get(nic.net).context("a network without switch")?;
        let _ = switch.unshape(nic.port);
        Ok(())
    }
}

/// Who is on a network, in order: rails of nodes, then interfaces that are added later, which are in
/// their host from the beginning, without a use.
fn members(scenario: &Scenario, net: usize) -> Vec<(NodeId, Nid, bool)> {
    let mut all = Vec::new();
    for (node, spec) in (0..).zip(&scenario.world.nodes) {
        let rails = spec.rails.iter().filter(|rail| usize::from(rail.net) == net);
        all.extend(rails.map(|rail| (NodeId(node), rail.nid, true)));
    }
    for fault in &scenario.faults {
        if let FaultKind::NiAdd { nodes, net: on, nids } = &fault.kind
            && usize::from(*on) == net
        {
            let added = nodes.nodes().into_iter().zip(nids.iter().copied());
            all.extend(added.map(|(node, nid)| (node, nid, false)));
        }
    }
    all
}

/// A host answers for an address on its own interface only, and takes what comes by the way that
/// the rails say.
fn prepare(host: &Host) -> anyhow::Result<()> {
    let settings = [
        "net.ipv4.conf.all.arp_ignore=1",
        "net.ipv4.conf.all.arp_announce=2",
        "net.ipv4.conf.all.rp_filter=0",
        "net.ipv4.conf.default.rp_filter=0",
        "net.ipv6.conf.all.disable_ipv6=1",
        "net.ipv6.conf.default.disable_ipv6=1",
    ];
    host.run(["sysctl", "--quiet", "--write"].iter().chain(&settings))?;
    Ok(())
}
