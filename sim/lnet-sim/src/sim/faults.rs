//! Faults begin and end.

use core::time::Duration;

use lnet::Link;
use lnet_scenario::{Direction, FaultKind, Links as Ends, NodeId, Place, Share};
use lnet_types::{Instant, Nid};

use super::{Event, Sim, time};
use crate::directory::{HostId, RailIx};
use crate::fabric::{AdapterChange, Fabric, Happening};
use crate::links::{Effect, RailSet, ends};
use crate::observe::Seen;

impl<F: Fabric> Sim<F> {
    pub(super) fn fault_begins(&mut self, index: usize) {
        let scenario = self.scenario.clone();
        let Some(fault) = scenario.faults.get(index) else { return };
        if let Some(until) = fault.until {
            self.queue.push(time(until), Event::FaultEnds(index));
        }
        self.see(&Seen::Fault { index, kind: &fault.kind, begins: true });
        match &fault.kind {
            FaultKind::Cut(links) => self.rule(index, links, Effect::Cut),
            FaultKind::Partition(sides) => self.partition(index, sides),
            FaultKind::Quiesce(nets) => self.suspend(nets, true),
            FaultKind::LinkEvent(event) => self.link_fails(index, event),
            FaultKind::Carrier { on, known_after } => self.carrier(on, Link::Down, *known_after),
            FaultKind::Flap { .. } => self.flap(index, true),
            FaultKind::Refuse(links) => {
                self.rule(index, links, Effect::Refuse);
                self.reset(links);
            }
            FaultKind::Reset(links) => self.reset(links),
            FaultKind::Loss { links, share } => self.rule(index, links, Effect::Loss(*share)),
            FaultKind::Corrupt { links, share, unnoticed } => {
                self.rule(index, links, Effect::Corrupt(*share));
                self.rule(index, links, Effect::Unnoticed(*unnoticed));
            }
            FaultKind::Duplicate { links, share } => {
                self.rule(index, links, Effect::Duplicate(*share));
            }
            FaultKind::Reorder { links, share, by } => {
                self.rule(index, links, Effect::Reorder(*share, *by));
            }
            FaultKind::Drop { links, share, reported } => {
                self.rule(index, links, Effect::Drop(*share, *reported));
            }
            FaultKind::Delay { links, by, jitter } => {
                self.rule(index, links, Effect::Delay(*by, *jitter));
            }
            FaultKind::Slow { links, bandwidth } => {
                self.rule(index, links, Effect::Slow(*bandwidth));
            }
            FaultKind::Device(on) => self.device_fails(on, true),
            FaultKind::Degraded { on, bandwidth } => {
                let links = Ends { on: on.clone(), peer: None, direction: Direction::Both };
                self.rule(index, &links, Effect::Slow(*bandwidth));
                for ix in self.rails(on) {
                    let full = self.full_rate(ix);
                    self.adapter(ix, AdapterChange::Rate(full));
                    self.adapter(ix, AdapterChange::Rate(mbits(*bandwidth)));
                }
            }
            FaultKind::Completions { on, share } => {
                let one_in = u64::from(Share::ALL.0) / u64::from(share.0).max(1);
                self.adapters(on, AdapterChange::Completions(one_in));
            }
            FaultKind::Credits(on) => self.adapters(on, AdapterChange::Credits(true)),
            FaultKind::Kill { nodes, process, .. } => {
                for node in nodes.nodes() {
                    self.kill(HostId(node.0), *process);
                }
            }
            FaultKind::Pause(nodes) => self.pause(nodes, true),
            FaultKind::Drift { nodes, ppm } => self.drift(nodes, *ppm),
            FaultKind::Memory(nodes) => {
                for node in nodes.nodes() {
                    self.hosts[node.0 as usize].starved = true;
                }
            }
            FaultKind::NiAdd { nodes, net, nids } => {
                let mut added = Vec::new();
                for (node, nid) in nodes.nodes().into_iter().zip(nids) {
                    let host = HostId(node.0);
                    if self.hosts[node.0 as usize].alive {
                        self.add_rail(host, *nid, *net, None);
                        added.push((host, *nid, *net));
                    }
                }
                self.moved.insert(index, added);
            }
            FaultKind::NiDel(place) => {
                let mut removed = Vec::new();
                for ix in self.rails(place) {
                    let rail = *self.directory.rail(ix);
                    if let Some(host) = rail.host.filter(|h| self.hosts[h.0 as usize].alive) {
                        self.remove_rail(ix);
                        removed.push((host, rail.nid, rail.net));
                    }
                }
                self.moved.insert(index, removed);
            }
            FaultKind::PeerDel { nodes, peers } => {
                let nids: Vec<_> =
                    self.rails(peers).into_iter().map(|ix| self.directory.rail(ix).nid).collect();
                for node in nodes.nodes() {
                    self.forget(HostId(node.0), &nids);
                }
            }
            FaultKind::Tune { nodes, tunables } => {
                for node in nodes.nodes() {
                    let host = &mut self.hosts[node.0 as usize];
                    if !host.alive {
                        continue;
                    }
                    let local = host.clock.local(self.now);
                    if let Err(e) = host.node.set_tunables(local, tunables) {
                        let name = scenario.world.name(node);
                        self.tally.complaints.push(format!("{name}: {e}"));
                        continue;
                    }
                    let buffers = ["tiny_buffers", "small_buffers", "large_buffers"];
                    if tunables.iter().any(|(name, _)| buffers.contains(name)) {
                        let _ = host.node.fit_router_buffers(local, &mut host.mem);
                    }
                    self.touch(HostId(node.0));
                }
            }
            FaultKind::Failover { nodes, after } => {
                for node in nodes.nodes() {
                    self.kill(HostId(node.0), false);
                }
                self.queue.push(self.now + *after, Event::TakeOver(index));
            }
            kind @ (FaultKind::HandlerDelay { .. }
            | FaultKind::CommitStall(_)
            | FaultKind::RpcLose { .. }
            | FaultKind::StoreFull(_)
            | FaultKind::StoreError { .. }
            | FaultKind::Hang(_)
            | FaultKind::Evict { .. }) => self.rpc_fault(index, kind, true),
        }
        self.notify_fabric(&Happening::LinksChanged);
    }

    pub(super) fn taken_over(&mut self, index: usize) {
        let scenario = self.scenario.clone();
        let Some(fault) = scenario.faults.get(index) else { return };
        if let FaultKind::Failover { nodes, .. } = &fault.kind {
            self.take_over(&nodes.nodes());
        }
    }

    pub(super) fn fault_ends(&mut self, index: usize) {
        let scenario = self.scenario.clone();
        let Some(fault) = scenario.faults.get(index) else { return };
        for id in self.rules.remove(&index).unwrap_or_default() {
            self.links.end(id);
        }
        match &fault.kind {
            FaultKind::Quiesce(nets) => self.suspend(nets, false),
            FaultKind::LinkEvent(event) => self.link_avoided(index, event),
            FaultKind::Device(on) => self.device_fails(on, false),
            FaultKind::Degraded { on, .. } => {
                for ix in self.rails(on) {
                    let full = self.full_rate(ix);
                    self.adapter(ix, AdapterChange::Rate(full));
                }
            }
            FaultKind::Completions { on, .. } => {
                self.adapters(on, AdapterChange::Completions(0));
            }
            FaultKind::Credits(on) => self.adapters(on, AdapterChange::Credits(false)),
            FaultKind::Carrier { on, .. } => self.carrier(on, Link::Up, Duration::ZERO),
            FaultKind::Kill { nodes, nids, .. } => {
                for node in nodes.nodes() {
                    self.revive(HostId(node.0), nids.as_deref());
                }
            }
            FaultKind::Failover { nodes, .. } => {
                for node in nodes.nodes() {
                    self.revive(HostId(node.0), None);
                }
            }
            kind @ (FaultKind::HandlerDelay { .. }
            | FaultKind::CommitStall(_)
            | FaultKind::RpcLose { .. }
            | FaultKind::StoreFull(_)
            | FaultKind::StoreError { .. }
            | FaultKind::Hang(_)) => self.rpc_fault(index, kind, false),
            FaultKind::Pause(nodes) => self.pause(nodes, false),
            FaultKind::Drift { nodes, .. } => self.drift(nodes, 0),
            FaultKind::Memory(nodes) => {
                for node in nodes.nodes() {
                    self.hosts[node.0 as usize].starved = false;
                }
            }
            FaultKind::NiAdd { .. } => {
                for (_, nid, _) in self.moved.remove(&index).unwrap_or_default() {
                    if let Some(ix) = self.directory.find(nid) {
                        self.remove_rail(ix);
                    }
                }
            }
            FaultKind::NiDel(_) => {
                for (host, nid, net) in self.moved.remove(&index).unwrap_or_default() {
                    let origin =
                        self.directory.find(nid).and_then(|ix| self.directory.rail(ix).origin);
                    let h = &self.hosts[host.0 as usize];
                    if h.alive && !h.rails.iter().any(|r| self.directory.rail(r.ix).nid == nid) {
                        self.add_rail(host, nid, net, origin);
                        self.restore_routes(host, nid.net());
                    }
                }
            }
            FaultKind::Cut(_)
            | FaultKind::Partition(_)
            | FaultKind::Flap { .. }
            | FaultKind::Refuse(_)
            | FaultKind::Reset(_)
            | FaultKind::Loss { .. }
            | FaultKind::Corrupt { .. }
            | FaultKind::Duplicate { .. }
            | FaultKind::Reorder { .. }
            | FaultKind::Drop { .. }
            | FaultKind::Delay { .. }
            | FaultKind::Slow { .. }
            | FaultKind::PeerDel { .. }
            | FaultKind::Evict { .. }
            | FaultKind::Tune { .. } => {}
        }
        self.notify_fabric(&Happening::LinksChanged);
        self.see(&Seen::Fault { index, kind: &fault.kind, begins: false });
    }

    /// The rails of a place, as the directory numbers them now.
    pub(crate) fn rails(&self, place: &Place) -> Vec<RailIx> {
        let world = &self.scenario.world;
        let mut all = Vec::new();
        for at in place.rails(world) {
            let host = &self.hosts[at.node.0 as usize];
            let of = |r: &RailIx| self.directory.rail(*r).origin == Some(at);
            let current = host.rails.iter().map(|r| r.ix).find(of);
            let known = || world.rail(at).and_then(|r| self.directory.find(r.nid));
            all.extend(current.or_else(known));
        }
        all
    }

    /// An operator deletes the peers that a node takes for owners of `nids`.
    fn forget(&mut self, id: HostId, nids: &[Nid]) {
        let host = &mut self.hosts[id.0 as usize];
        if !host.alive {
            return;
        }
        let local = host.clock.local(self.now);
        for nid in nids {
            // It may be unknown at this moment, or known as several.
            let Some(peer) = host.node.peer_view_of(*nid) else { continue };
            if let Err(e) = host.node.peer_del(local, peer.primary, &[], true) {
                let name = self.scenario.world.name(NodeId(id.0));
                self.tally.complaints.push(format!("{name}: peer {}: {e}", peer.primary));
            }
        }
        self.touch(id);
    }

    fn adapter(&mut self, ix: RailIx, change: AdapterChange) {
        self.notify_fabric(&Happening::Adapter(ix, change));
    }

    fn adapters(&mut self, on: &Place, change: AdapterChange) {
        for ix in self.rails(on) {
            self.adapter(ix, change);
        }
    }

    /// The devices under rails fail, or are usable again.
    fn device_fails(&mut self, on: &Place, fails: bool) {
        for ix in self.rails(on) {
            self.links.cut_carrier(ix, fails);
            let change = if fails { AdapterChange::Fatal } else { AdapterChange::Recovered };
            self.adapter(ix, change);
        }
    }

    /// The rate of a rail with nothing wrong, Mbit/s.
    fn full_rate(&self, ix: RailIx) -> u32 {
        let net = self.scenario.world.nets.get(usize::from(self.directory.rail(ix).net));
        net.and_then(|net| net.bandwidth).map_or(100_000, mbits)
    }

    pub(super) fn rule(&mut self, index: usize, links: &Ends, effect: Effect) {
        let (on, peer, direction) =
            ends(links, |place| self.rails(place).into_iter().collect::<RailSet>());
        let id = self.links.begin(on, peer, direction, effect);
        self.rules.entry(index).or_default().push(id);
    }

    fn partition(&mut self, index: usize, sides: &[Place]) {
        let sides: Vec<RailSet> =
            sides.iter().map(|s| self.rails(s).into_iter().collect()).collect();
        for (n, one) in sides.iter().enumerate() {
            for other in sides.iter().skip(n + 1) {
                let (one, other) = (one.clone(), Some(other.clone()));
                let id = self.links.begin(one, other, Direction::Both, Effect::Cut);
                self.rules.entry(index).or_default().push(id);
            }
        }
    }

    fn reset(&mut self, links: &Ends) {
        let (on, peer, _) = ends(links, |place| self.rails(place).into_iter().collect::<RailSet>());
        let is_peer = |ix| peer.as_ref().is_none_or(|p| p.contains(ix));
        let is_meant =
            |a: RailIx, b: RailIx| (on.contains(a) && is_peer(b)) || (on.contains(b) && is_peer(a));
        self.notify_fabric(&Happening::Reset(&is_meant));
    }

    /// Interfaces lose their carrier, or get it back; their nodes know it after that time.
    fn carrier(&mut self, place: &Place, link: Link, known_after: Duration) {
        for ix in self.rails(place) {
            self.links.cut_carrier(ix, link == Link::Down);
            let count = self.carriers.entry(ix).or_default();
            let before = *count;
            *count = if link == Link::Down { before + 1 } else { before.saturating_sub(1) };
            if (before == 0) == (*count == 0) {
                continue;
            }
            if link == Link::Up {
                self.notify_fabric(&Happening::CarrierBack(ix));
            }
            if known_after.is_zero() {
                self.link_known(ix, link);
            } else {
                self.queue.push(self.now + known_after, Event::CarrierKnown(ix));
            }
        }
    }

    /// A node learns that an interface has no carrier, if that is so still.
    pub(super) fn carrier_known(&mut self, ix: RailIx) {
        if self.carriers.get(&ix).is_some_and(|count| *count > 0) {
            self.link_known(ix, Link::Down);
        }
    }

    fn link_known(&mut self, ix: RailIx, link: Link) {
        if link == Link::Down {
            self.notify_fabric(&Happening::CarrierGone(ix));
        }
        let Some(id) = self.directory.rail(ix).host else { return };
        let host = &mut self.hosts[id.0 as usize];
        if let Some(ni) = host.ni_of(ix).filter(|_| host.alive) {
            let local = host.clock.local(self.now);
            host.node.link_changed(local, ni, link);
            self.touch(id);
        }
    }

    pub(super) fn flap(&mut self, index: usize, down: bool) {
        let scenario = self.scenario.clone();
        let Some(fault) = scenario.faults.get(index) else { return };
        let FaultKind::Flap { on, down: away, up, known_after } = &fault.kind else { return };
        let end = fault.until.map_or(Instant::FAR_FUTURE, time);
        // It ends with the carrier there.
        match down {
            true => self.carrier(on, Link::Down, *known_after),
            false => self.carrier(on, Link::Up, Duration::ZERO),
        }
        let next = self.now + if down { *away } else { *up };
        if down {
            self.queue.push(next.min(end), Event::Flap { index, down: false });
        } else if next < end {
            self.queue.push(next, Event::Flap { index, down: true });
        }
    }

    fn pause(&mut self, nodes: &Place, pause: bool) {
        for node in nodes.nodes() {
            let id = HostId(node.0);
            let host = &mut self.hosts[node.0 as usize];
            if !host.alive || host.paused == pause {
                continue;
            }
            host.paused = pause;
            self.mute(id);
            if !pause {
                for event in self.stash.remove(&id).unwrap_or_default() {
                    self.queue.push(self.now, event);
                }
                self.touch(id);
            }
        }
    }

    fn drift(&mut self, nodes: &Place, ppm: i32) {
        for node in nodes.nodes() {
            let host = &mut self.hosts[node.0 as usize];
            host.clock.drift(self.now, ppm);
            host.armed = Instant::FAR_FUTURE;
            self.touch(HostId(node.0));
        }
    }
}

/// Bytes per second as Mbit/s.
fn mbits(bandwidth: u64) -> u32 {
    u32::try_from(bandwidth / 125_000).unwrap_or(u32::MAX)
}
