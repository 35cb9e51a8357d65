//! Targets and clients on hosts: they come to life and die with them, targets go to other nodes,
//! faults befall them, and what is seen of them goes to observers. Disks are the world's.

use std::sync::Arc;

use lnet_scenario::{FaultKind, NodeId, Scenario};
use lnet_types::{Instant, Prng};
use ptlrpc::ServerStats;

use super::calling::uuid;
use super::host::{Begin, RpcHost};
use super::serving::{Disk, Trouble};
use crate::directory::HostId;
use crate::fabric::Fabric;
use crate::observe::Seen;
use crate::sim::Sim;

/// A target, wherever it is served.
struct Place {
    host: HostId,
    /// What it has committed, while no node serves it.
    disk: Option<Disk>,
    trouble: Trouble,
}

/// What the world keeps of targets.
pub(crate) struct Stage {
    targets: Vec<Place>,
    /// A rule that all nodes break.
    #[cfg(feature = "sabotage")]
    pub(crate) sabotage: Option<ptlrpc::Sabotage>,
}

impl Stage {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let place = |t: &lnet_scenario::TargetSpec| Place {
            host: HostId(t.on.0),
            disk: Some(Disk::default()),
            trouble: Trouble::default(),
        };
        Self {
            targets: scenario.rpc.targets.iter().map(place).collect(),
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }

    /// Takes the disks of all targets whose place is at a host.
    fn take_disks(&mut self, host: HostId) -> Vec<(usize, Disk, Trouble)> {
        let here = self.targets.iter_mut().enumerate().filter(|(_, p)| p.host == host);
        here.filter_map(|(n, p)| Some((n, p.disk.take()?, p.trouble))).collect()
    }
}

impl<F: Fabric> Sim<F> {
    /// All nodes break a rule of the request layer, in this and each later life.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, rule: ptlrpc::Sabotage) {
        self.stage.sabotage = Some(rule);
        for n in 0..self.hosts.len() as u32 {
            self.with_rpc(HostId(n), |rpc, _| rpc.sabotage(rule));
        }
    }

    /// A host comes to life: what stands on its node of targets and clients does, too. `zero` is what
    /// its clock shows when the world begins, `wall_secs` the time since 1970.
    pub(crate) fn raise_rpc(&mut self, id: HostId, zero: Instant, wall_secs: u64) {
        let scenario: Arc<Scenario> = self.scenario.clone();
        let (rpc, node) = (&scenario.rpc, NodeId(id.0));
        let serves = rpc.targets.iter().any(|t| t.on == node || t.failover == Some(node));
        if !serves && rpc.targets_of(node).is_empty() {
            return;
        }
        let disks = self.stage.take_disks(id);
        let host = &mut self.hosts[id.0 as usize];
        let life = host.incarnation;
        let seed = Prng::new(self.seed ^ u64::from(id.0) << 32 ^ u64::from(life) << 8).next_u64();
        let scenario = scenario.clone();
        let begin = Begin { scenario, node, life, seed, wall_secs, zero, serves, disks };
        let rpc = RpcHost::new(begin);
        #[cfg(feature = "sabotage")]
        let rpc = rpc.sabotaged(self.stage.sabotage);
        host.rpc = host.uppers.add(Box::new(rpc));
    }

    /// A host is dying: its targets' disks go back to the world.
    pub(crate) fn bury_rpc(&mut self, id: HostId) {
        let left = self.with_rpc(id, |rpc, _| (rpc.disks(), rpc.stats()));
        self.hosts[id.0 as usize].rpc = None;
        let Some((disks, stats)) = left else { return };
        for (target, disk) in disks {
            if let Some(place) = self.stage.targets.get_mut(target) {
                place.disk = Some(disk);
            }
        }
        self.tally.rpc.add(&stats);
    }

    /// What the servers that live have counted.
    pub(crate) fn rpc_stats(&mut self) -> Vec<ServerStats> {
        let hosts = 0..self.hosts.len() as u32;
        hosts.filter_map(|n| self.with_rpc(HostId(n), |rpc, _| rpc.stats())).collect()
    }

    /// Shows observers what was seen at a host.
    pub(crate) fn collect_rpc(&mut self, id: HostId) {
        let Some((notes, complaint)) = self.with_rpc(id, |rpc, _| rpc.take_notes()) else { return };
        for seen in &notes {
            self.see(&Seen::Rpc { host: id, seen });
        }
        if let Some(errno) = complaint {
            let name = self.scenario.world.name(NodeId(id.0));
            self.tally.complaints.push(format!("{name}: no service for targets: {errno}"));
        }
    }

    /// A fault of targets begins, or ends.
    pub(crate) fn rpc_fault(&mut self, kind: &FaultKind, begins: bool) {
        let targets = match kind {
            FaultKind::HandlerDelay { targets, .. } | FaultKind::CommitStall(targets) => targets,
            FaultKind::Evict { targets, clients } => {
                for node in clients.nodes() {
                    self.rpc_evict(targets, node);
                }
                return;
            }
            _ => return,
        };
        for &target in targets {
            let Some(place) = self.stage.targets.get_mut(target) else { continue };
            match kind {
                FaultKind::HandlerDelay { by, jitter, .. } => {
                    place.trouble.slow = begins.then_some((*by, *jitter));
                }
                _ => place.trouble.stalled = begins,
            }
            let (host, trouble) = (place.host, place.trouble);
            self.with_rpc(host, |rpc, below| rpc.trouble(below, target, trouble));
            self.touch(host);
        }
    }

    fn rpc_evict(&mut self, targets: &[usize], node: NodeId) {
        let scenario = self.scenario.clone();
        let client = uuid(&scenario.world, node, self.hosts[node.0 as usize].incarnation);
        for &target in targets {
            let Some(spec) = scenario.rpc.targets.get(target) else { continue };
            let Some(host) = self.stage.targets.get(target).map(|place| place.host) else {
                continue;
            };
            self.with_rpc(host, |rpc, below| rpc.evict(below, &spec.name, &client));
            self.touch(host);
        }
    }

    /// The targets of hosts that are dead still go to the other nodes that may serve them.
    pub(crate) fn take_over(&mut self, from: &[NodeId]) {
        let scenario = self.scenario.clone();
        for (target, spec) in scenario.rpc.targets.iter().enumerate() {
            let Some(place) = self.stage.targets.get_mut(target) else { continue };
            let Some(partner) = spec.failover else { continue };
            let here = NodeId(place.host.0);
            if !from.contains(&here) || self.hosts[here.0 as usize].alive {
                continue;
            }
            let other = HostId(if here == spec.on { partner.0 } else { spec.on.0 });
            place.host = other;
            let trouble = place.trouble;
            if !self.hosts[other.0 as usize].alive {
                continue;
            }
            if let Some(disk) = place.disk.take() {
                self.with_rpc(other, |rpc, below| rpc.mount(below, (target, disk, trouble)));
                self.touch(other);
            }
        }
    }

    /// Runs `f` on what a host that lives has of targets and clients.
    fn with_rpc<R>(
        &mut self,
        id: HostId,
        f: impl FnOnce(&mut RpcHost, &mut lnet::upper::Below<'_>) -> R,
    ) -> Option<R> {
        let host = self.hosts.get_mut(id.0 as usize).filter(|h| h.alive)?;
        let local = host.clock.local(self.now);
        host.uppers.with(host.rpc?, local, &mut host.node, &mut host.mem, f)
    }
}
