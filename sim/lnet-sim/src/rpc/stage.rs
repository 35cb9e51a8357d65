//! Targets and clients on hosts: they come to life and die with them, targets go to other nodes,
//! faults befall them, and what is seen of them goes to observers. Disks are the world's.

use core::time::Duration;
use std::sync::Arc;

use lnet_scenario::{FaultKind, NodeId, Place, RpcLoss, Scenario, Share};
use lnet_types::{Instant, Prng};
use ptlrpc::ServerStats;

use super::calling::uuid;
use super::disk::{Disk, Trouble};
use super::file::is_visit_of;
use super::host::{Begin, RpcHost};
use super::seen::RpcSeen;
use crate::directory::HostId;
use crate::fabric::Fabric;
use crate::observe::Seen;
use crate::sim::Sim;

/// Where a target is served.
struct Seat {
    host: HostId,
    /// What it has committed, while no node serves it.
    disk: Option<Disk>,
    trouble: Trouble,
}

/// What the world keeps of targets.
pub(crate) struct Stage {
    targets: Vec<Seat>,
    /// Faults that let messages get lost, each by its number.
    losses: Vec<(usize, Place, RpcLoss)>,
    /// Faults by which programs keep their locks.
    hangs: Vec<(usize, Place)>,
    /// Room for what is seen at a host.
    notes: Vec<RpcSeen>,
    /// A rule that all nodes break.
    #[cfg(feature = "sabotage")]
    pub(crate) sabotage: Option<ptlrpc::Sabotage>,
    /// The same of locks.
    #[cfg(feature = "sabotage")]
    lock_sabotage: Option<ldlm::Sabotage>,
    /// The same of visitors.
    #[cfg(feature = "sabotage")]
    file_sabotage: Option<lustre_client::Sabotage>,
    /// The rule of changes over two metadata targets that all of them break.
    #[cfg(feature = "sabotage")]
    across_sabotage: Option<lustre_target::Sabotage>,
}

impl Stage {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let place = |t: &lnet_scenario::TargetSpec| Seat {
            host: HostId(t.on.0),
            disk: Some(Disk::new(t)),
            trouble: Trouble::default(),
        };
        Self {
            targets: scenario.rpc.targets.iter().map(place).collect(),
            losses: Vec::new(),
            hangs: Vec::new(),
            notes: Vec::new(),
            #[cfg(feature = "sabotage")]
            sabotage: None,
            #[cfg(feature = "sabotage")]
            lock_sabotage: None,
            #[cfg(feature = "sabotage")]
            file_sabotage: None,
            #[cfg(feature = "sabotage")]
            across_sabotage: None,
        }
    }

    /// Takes the disks of all targets whose place is at a host.
    fn take_disks(&mut self, host: HostId) -> Vec<(usize, Disk, Trouble)> {
        let here = self.targets.iter_mut().enumerate().filter(|(_, p)| p.host == host);
        here.filter_map(|(n, p)| Some((n, p.disk.take()?, p.trouble))).collect()
    }

    /// Whether programs of a node keep their locks now.
    fn hangs_at(&self, node: NodeId) -> bool {
        self.hangs.iter().any(|(_, nodes)| nodes.nodes().contains(&node))
    }

    /// The losses that befall a node now.
    fn losses_at(&self, node: NodeId) -> Vec<(usize, RpcLoss)> {
        let here = self.losses.iter().filter(|(_, nodes, _)| nodes.nodes().contains(&node));
        here.map(|(fault, _, loss)| (*fault, *loss)).collect()
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

    /// Locks of all targets break a rule. To be called before the world begins.
    #[cfg(feature = "sabotage")]
    pub fn sabotage_locks(&mut self, rule: ldlm::Sabotage) {
        self.stage.lock_sabotage = Some(rule);
        for n in 0..self.hosts.len() as u32 {
            self.with_rpc(HostId(n), |rpc, _| rpc.sabotage_locks(rule));
        }
    }

    /// All metadata targets break a rule of changes over two of them. To be called before the world begins.
    #[cfg(feature = "sabotage")]
    pub fn sabotage_across(&mut self, rule: lustre_target::Sabotage) {
        self.stage.across_sabotage = Some(rule);
        for n in 0..self.hosts.len() as u32 {
            self.with_rpc(HostId(n), |rpc, _| rpc.sabotage_across(rule));
        }
    }

    /// Visitors of all nodes break a rule. To be called before the world begins.
    #[cfg(feature = "sabotage")]
    pub fn sabotage_files(&mut self, rule: lustre_client::Sabotage) {
        self.stage.file_sabotage = Some(rule);
        for n in 0..self.hosts.len() as u32 {
            self.with_rpc(HostId(n), |rpc, _| rpc.sabotage_files(rule));
        }
    }

    /// A host comes to life: what stands on its node of targets and clients does, too. `zero` is what
    /// its clock shows when the world begins, `wall` the time since 1970.
    pub(crate) fn raise_rpc(&mut self, id: HostId, zero: Instant, wall: Duration) {
        let scenario: Arc<Scenario> = self.scenario.clone();
        let (rpc, node) = (&scenario.rpc, NodeId(id.0));
        let serves = rpc.targets.iter().any(|t| t.on == node || t.failover == Some(node));
        if !serves && rpc.targets_of(node).is_empty() {
            return;
        }
        let disks = self.stage.take_disks(id);
        let losses = self.stage.losses_at(node);
        let hangs = self.stage.hangs_at(node);
        let host = &mut self.hosts[id.0 as usize];
        let life = host.incarnation;
        let seed = Prng::new(self.seed ^ u64::from(id.0) << 32 ^ u64::from(life) << 8).next_u64();
        let scenario = scenario.clone();
        let begin = Begin { scenario, node, life, seed, wall, zero, serves, disks, losses, hangs };
        let rpc = RpcHost::new(begin);
        #[cfg(feature = "sabotage")]
        let rpc = {
            let mut rpc = rpc.sabotaged(self.stage.sabotage);
            if let Some(rule) = self.stage.lock_sabotage {
                rpc.sabotage_locks(rule);
            }
            if let Some(rule) = self.stage.across_sabotage {
                rpc.sabotage_across(rule);
            }
            if let Some(rule) = self.stage.file_sabotage {
                rpc.sabotage_files(rule);
            }
            rpc
        };
        host.rpc = host.uppers.add(Box::new(rpc));
    }

    /// A host is dying: its targets' disks go back to the world.
    pub(crate) fn bury_rpc(&mut self, id: HostId) {
        // What a fault made a paused one do stands on its disks.
        self.collect_rpc(id);
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
        let mut notes = core::mem::take(&mut self.stage.notes);
        let complaint = self.with_rpc(id, |rpc, _| rpc.take_notes(&mut notes)).flatten();
        for seen in &notes {
            self.see(&Seen::Rpc { host: id, seen });
        }
        notes.clear();
        self.stage.notes = notes;
        if let Some(complaint) = complaint {
            let name = self.scenario.world.name(NodeId(id.0));
            self.tally.complaints.push(format!("{name}: {complaint}"));
        }
    }

    /// A fault above LNet begins, or ends.
    pub(crate) fn rpc_fault(&mut self, fault: usize, kind: &FaultKind, begins: bool) {
        let targets = match kind {
            FaultKind::HandlerDelay { targets, .. }
            | FaultKind::CommitStall(targets)
            | FaultKind::StoreFull(targets)
            | FaultKind::StoreError { targets, .. } => targets,
            FaultKind::Evict { targets, clients } => {
                for node in clients.nodes() {
                    self.rpc_evict(targets, node);
                }
                return;
            }
            FaultKind::Hang(nodes) => return self.rpc_hang(fault, nodes, begins),
            FaultKind::RpcLose { nodes, loss } => {
                return self.rpc_lose(fault, nodes, *loss, begins);
            }
            _ => return,
        };
        for &target in targets {
            let Some(place) = self.stage.targets.get_mut(target) else { continue };
            let trouble = &mut place.trouble;
            match kind {
                FaultKind::HandlerDelay { by, jitter, .. } => {
                    trouble.slow = begins.then_some((*by, *jitter));
                }
                FaultKind::StoreFull(_) => trouble.full = begins,
                FaultKind::StoreError { share, .. } => {
                    trouble.errors = if begins { *share } else { Share::NONE };
                }
                _ => trouble.stalled = begins,
            }
            let (host, trouble) = (place.host, place.trouble);
            self.with_rpc(host, |rpc, below| rpc.trouble(below, target, trouble));
            self.touch(host);
        }
    }

    fn rpc_lose(&mut self, fault: usize, nodes: &Place, loss: RpcLoss, begins: bool) {
        self.stage.losses.retain(|(of, ..)| *of != fault);
        // One that counts is for the life in which it began.
        if begins && loss.count.is_none() {
            self.stage.losses.push((fault, nodes.clone(), loss));
        }
        for node in nodes.nodes() {
            let host = HostId(node.0);
            self.with_rpc(host, |rpc, below| match begins {
                true => rpc.lose(below, fault, loss),
                false => rpc.mend(below, fault),
            });
            self.touch(host);
        }
    }

    fn rpc_hang(&mut self, fault: usize, nodes: &Place, begins: bool) {
        self.stage.hangs.retain(|(of, _)| *of != fault);
        if begins {
            self.stage.hangs.push((fault, nodes.clone()));
        }
        for node in nodes.nodes() {
            let (host, hangs) = (HostId(node.0), self.stage.hangs_at(node));
            self.with_rpc(host, |rpc, below| rpc.hang(below, hangs));
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
            // The visits of its programs are clients too.
            let is = |name: &str| name == client || is_visit_of(name, node);
            self.with_rpc(host, |rpc, below| rpc.evict(below, &spec.name, is));
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
