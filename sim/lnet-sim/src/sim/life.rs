//! Hosts come to life, die, and change their interfaces; their health is watched.

use core::time::Duration;

use lnet::upper::Uppers;
use lnet::{Doubt, Link, NiSpec, Node, NodeConfig, RouteView, Tunables};
use lnet_scenario::{Group, NodeId, RailRef};
use lnet_types::{Instant, Net, Nid, Prng};

use std::collections::BTreeMap;

use super::Sim;
use crate::directory::{HostId, RailInfo, RailIx};
use crate::fabric::{Fabric, Happening};
use crate::host::{Clock, Host, HostRail, lnd_timeout};
use crate::memory::Mem;
use crate::observe::Seen;

/// What clocks show when the world begins: a node that has just been switched on is no special case.
pub(super) const CLOCKS_BEGIN: Instant = Instant::from_secs(1000);
/// Wall-clock time at the beginning, for incarnations: nanoseconds.
const WALL_BEGIN: u64 = 1_800_000_000_000_000_000;

impl<F: Fabric> Sim<F> {
    /// All hosts at the beginning.
    pub(super) fn populate(&mut self) {
        for n in 0..self.scenario.world.nodes.len() as u32 {
            let id = HostId(n);
            let clock = Clock::beginning(CLOCKS_BEGIN);
            let host = Host {
                node: self.node(id, 1, clock.local(self.now)),
                mem: Mem::new(F::MOVES_BYTES),
                clock,
                rails: Vec::new(),
                muted: Vec::new(),
                alive: true,
                paused: false,
                resets: false,
                starved: false,
                incarnation: 1,
                lo: lnet::Loopback::new(),
                uppers: Uppers::default(),
                rpc: None,
                armed: Instant::FAR_FUTURE,
                dirty: false,
                health_seen: 0,
                ailing: BTreeMap::new(),
                doubts_seen: 0,
                doubts: BTreeMap::new(),
            };
            self.hosts.push(host);
            let nids: Vec<Nid> =
                self.scenario.world.nodes[n as usize].rails.iter().map(|r| r.nid).collect();
            self.equip(id, &nids);
        }
    }

    fn node(&self, id: HostId, life: u32, local: Instant) -> Node {
        let group = self.scenario.world.group_of(NodeId(id.0));
        let tunables = group.map_or_else(|| Tunables::new(self.scenario.profile), Group::settings);
        let mixed = self.seed ^ u64::from(id.0) << 32 ^ u64::from(life);
        let config = NodeConfig {
            seed: Prng::new(mixed).next_u64(),
            interface_cookie: WALL_BEGIN + self.now.as_nanos() + u64::from(id.0),
            ping_seq: group.map_or(0, |g| g.ping_seq),
            tunables,
        };
        Node::new(config, local)
    }

    /// Gives a new node its interfaces, routes and programs.
    fn equip(&mut self, id: HostId, nids: &[Nid]) {
        let spec = self.scenario.world.nodes[id.0 as usize].rails.clone();
        for ((n, rail), nid) in (0u16..).zip(spec).zip(nids) {
            let origin = RailRef { node: NodeId(id.0), rail: n };
            self.add_rail(id, *nid, rail.net, Some(origin));
        }
        self.configure(id);
        self.programs.set_nids(id, nids.to_vec());
        self.programs.born(self.now, id, &mut self.hosts[id.0 as usize]);
        self.collect();
        let wall = Duration::from_nanos(WALL_BEGIN + self.now.as_nanos());
        self.raise_rpc(id, CLOCKS_BEGIN, wall);
        self.raise_uppers(id);
        self.touch(id);
    }

    /// The routes through `net` went with the last interface on it, as on kernel nodes; its operator
    /// sets them again. Those that are still there stay.
    pub(super) fn restore_routes(&mut self, id: HostId, net: Net) {
        let scenario = self.scenario.clone();
        let Some(group) = scenario.world.group_of(NodeId(id.0)) else { return };
        let host = &mut self.hosts[id.0 as usize];
        let local = host.clock.local(self.now);
        for route in group.routes.iter().filter(|r| r.gateway.net() == net) {
            let _ = host.node.add_route(local, *route);
        }
        self.touch(id);
    }

    /// What the operator of a node sets besides its interfaces. What it refuses is complained about.
    fn configure(&mut self, id: HostId) {
        let scenario = self.scenario.clone();
        let Some(group) = scenario.world.group_of(NodeId(id.0)) else { return };
        let host = &mut self.hosts[id.0 as usize];
        let local = host.clock.local(self.now);
        let mut complaints = Vec::new();
        for route in group.routes.iter() {
            if let Err(e) = host.node.add_route(local, *route) {
                complaints.push(format!("route to {} by {}: {e}", route.net, route.gateway));
            }
        }
        for peer in group.peers.iter() {
            let Some(primary) = peer.nids.first() else { continue };
            if let Err(e) = host.node.peer_add(local, *primary, &peer.nids, peer.multi_rail, false)
            {
                complaints.push(format!("peer {primary}: {e}"));
            }
        }
        for rule in group.rules.iter() {
            if let Err(e) = host.node.udsp_add(local, rule.clone(), None) {
                complaints.push(format!("rule '{rule}': {e}"));
            }
        }
        if group.router
            && let Err(errno) = host.node.enable_routing(local, &mut host.mem)
        {
            complaints.push(format!("routing: {errno}"));
        }
        let name = scenario.world.name(NodeId(id.0));
        self.tally.complaints.extend(complaints.into_iter().map(|c| format!("{name}: {c}")));
    }

    /// A host gets an interface.
    pub(super) fn add_rail(&mut self, id: HostId, nid: Nid, net: u16, origin: Option<RailRef>) {
        let n = id.0 as usize;
        let tunables = self.scenario.world.net_tunables(NodeId(id.0), net);
        let host = &mut self.hosts[n];
        let local = host.clock.local(self.now);
        let limit = lnd_timeout(&host.node, self.links.clocks(net).timeout);
        let spec = NiSpec { nid, interface: None, tunables, lnd_timeout: limit };
        let ni = match host.node.add_ni(local, spec) {
            Ok(ni) => ni,
            Err(errno) => {
                return self.tally.complaints.push(format!("{nid} can't be added: {errno}"));
            }
        };
        let ix = self.directory.add(RailInfo { nid, host: Some(id), net, present: true, origin });
        host.rails.push(HostRail { ix, ni });
        if self.carriers.get(&ix).is_some_and(|n| *n > 0) {
            host.node.link_changed(local, ni, Link::Down);
        }
        self.mute(id);
        self.notify_fabric(&Happening::RailAdded(ix));
        self.touch(id);
    }

    /// An interface of a host goes.
    pub(super) fn remove_rail(&mut self, ix: RailIx) {
        let Some(id) = self.directory.rail(ix).host else { return };
        let Some(ni) = self.hosts[id.0 as usize].ni_of(ix) else { return };
        self.notify_fabric(&Happening::RailRemoved(ix, ni));
        self.directory.set_present(ix, false);
        let host = &mut self.hosts[id.0 as usize];
        host.rails.retain(|r| r.ix != ix);
        let local = host.clock.local(self.now);
        // It is there: this is its id.
        let _ = host.node.del_ni(local, ni);
        self.mute(id);
        self.touch(id);
    }

    /// Nothing passes the rails of a host that is dead or stands still, whichever of both came first;
    /// and whatever rails it has now.
    pub(super) fn mute(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        let silent = !host.is_running() && (host.alive || !host.resets);
        let now = host.rails.iter().map(|r| r.ix).filter(|_| silent).collect();
        for ix in core::mem::replace(&mut host.muted, now) {
            self.links.cut_carrier(ix, false);
        }
        for ix in &host.muted {
            self.links.cut_carrier(*ix, true);
        }
    }

    /// A host dies without a word, or only its process does.
    pub(super) fn kill(&mut self, id: HostId, process: bool) {
        if !self.hosts[id.0 as usize].alive {
            return;
        }
        self.bury_rpc(id);
        self.hosts[id.0 as usize].resets = process;
        self.notify_fabric(&Happening::HostDied(id));
        let host = &mut self.hosts[id.0 as usize];
        host.alive = false;
        host.uppers = Uppers::default();
        self.tally.bury(host);
        self.mute(id);
        self.programs.died(id);
        self.stash.remove(&id);
        self.see(&Seen::Died { host: id });
    }

    /// A host comes back as another incarnation.
    pub(super) fn revive(&mut self, id: HostId, nids: Option<&[Nid]>) {
        let n = id.0 as usize;
        if self.hosts[n].alive {
            return;
        }
        for rail in core::mem::take(&mut self.hosts[n].rails) {
            self.directory.set_present(rail.ix, false);
        }
        let life = self.hosts[n].incarnation + 1;
        let local = self.hosts[n].clock.local(self.now);
        let node = self.node(id, life, local);
        let host = &mut self.hosts[n];
        host.node = node;
        host.mem = Mem::new(F::MOVES_BYTES);
        host.lo = lnet::Loopback::new();
        (host.alive, host.paused, host.incarnation) = (true, false, life);
        (host.armed, host.health_seen, host.doubts_seen) = (Instant::FAR_FUTURE, 0, 0);
        host.ailing.clear();
        host.doubts.clear();
        self.mute(id);
        self.gateways.retain(|(h, _), _| *h != id);
        let own: Vec<Nid> = self.scenario.world.nodes[n].rails.iter().map(|r| r.nid).collect();
        self.equip(id, nids.unwrap_or(&own));
        self.see(&Seen::Born { host: id });
    }

    /// Shows what has changed in the health that a node gives to interfaces, and in its routes.
    pub(super) fn watch_health(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        let count = host.node.health_changes();
        if host.health_seen == count {
            return;
        }
        let seen = core::mem::replace(&mut host.health_seen, count);
        let changed = host.node.health_since(seen).unwrap_or_else(|| {
            // Those known to be degraded, and those that have become so.
            let known = host.ailing.keys();
            let health = |nid: &Nid| host.node.health_of(*nid).unwrap_or(lnet::HEALTH_MAX);
            let all: BTreeMap<Nid, u32> =
                known.map(|nid| (*nid, health(nid))).chain(host.node.ailing()).collect();
            all.into_iter().collect()
        });
        for (nid, to) in BTreeMap::from_iter(changed) {
            let ailing = &mut self.hosts[id.0 as usize].ailing;
            let before = match to {
                lnet::HEALTH_MAX => ailing.remove(&nid),
                to => ailing.insert(nid, to),
            };
            let from = before.unwrap_or(lnet::HEALTH_MAX);
            if from != to {
                self.see(&Seen::Health { host: id, nid, from, to });
            }
        }
    }

    /// Shows changes in a node's judgement of rails.
    pub(super) fn watch_rails(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        let count = host.node.doubt_changes();
        if host.doubts_seen == count {
            return;
        }
        let seen = core::mem::replace(&mut host.doubts_seen, count);
        let changed = host.node.doubts_since(seen).unwrap_or_else(|| {
            let gone = host.doubts.keys().map(|rail| (*rail, Doubt::None));
            let all: BTreeMap<(Nid, Nid), Doubt> = gone.chain(host.node.doubts()).collect();
            all.into_iter().collect()
        });
        for (rail, doubt) in changed {
            let doubts = &mut self.hosts[id.0 as usize].doubts;
            let before = match doubt {
                Doubt::None => doubts.remove(&rail),
                doubt => doubts.insert(rail, doubt),
            };
            if doubt != before.unwrap_or_default() {
                self.see(&Seen::Doubt { host: id, local: rail.0, peer: rail.1, doubt });
            }
        }
    }

    /// Shows which routes went up or down since the last look.
    pub(super) fn watch_routes(&mut self, id: HostId) {
        let views = self.hosts[id.0 as usize].node.route_views();
        let mut up: BTreeMap<Nid, bool> = BTreeMap::new();
        for RouteView { gateway, up: is_up, .. } in views {
            *up.entry(gateway).or_insert(false) |= is_up;
        }
        for (gateway, up) in up {
            let before = self.gateways.insert((id, gateway), up);
            if before.is_some_and(|before| before != up) {
                self.see(&Seen::Route { host: id, gateway, up });
            }
        }
    }
}
