//! What users see of a node: copies of its tables, made on request. Rendering is theirs.

use core::time::Duration;
use std::collections::BTreeSet;

use lnet_types::{Errno, Instant, Net, Nid, PeerId, PeerNiId};

use crate::api::Reset;
use crate::local::{NetTunables, Ni, NiState};
use crate::meter::Usage;
use crate::peer::{PeerNet, PeerNi};
use crate::port::PortId;
use crate::record::Input;
use crate::stats::{InterfaceStats, NiFailures, NodeStats, PeerNiFailures, Transitions};
use crate::timers::{Timer, TimerKind};
use crate::{DropReason, Node, PeerFlags};

/// A local network and its interfaces (S-net-2).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NetView {
    /// The network.
    pub net: Net,
    /// Its tunables.
    pub tunables: NetTunables,
    /// Its priority, if a rule gives it one (U-44); 0 is the highest.
    pub priority: Option<u32>,
    /// Its interfaces in order of creation.
    pub nis: Vec<NiView>,
    /// How long ago something was heard on it, where that is watched: on routers.
    pub silent: Option<Duration>,
}

/// A local interface.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NiView {
    /// Its id.
    pub id: lnet_types::NiId,
    /// Its NID.
    pub nid: Nid,
    /// Whether its status is `up`.
    pub up: bool,
    /// Its state (DEC-26).
    pub state: NiState,
    /// The device.
    pub interface: Option<String>,
    /// Counters and latencies.
    pub stats: InterfaceStats,
    /// Failures.
    pub failures: NiFailures,
    /// Whether the driver says that it can't be used.
    pub fatal: bool,
    /// 0 to 1000.
    pub health: u32,
    /// Its priority, if a rule gives it one (U-44); 0 is the highest.
    pub priority: Option<u32>,
    /// The NUMA node that its device is attached to, if known.
    pub numa_node: Option<u32>,
    /// The CPU partition of its device, if known.
    pub device_cpt: Option<u32>,
    /// The CPU partitions that it uses.
    pub cpts: BTreeSet<u32>,
    /// Recovery pings sent.
    pub ping_count: u32,
    /// When the next one is due.
    pub next_ping: Option<Instant>,
    /// Free credits; negative: messages waiting.
    pub credits: i32,
    /// The least that were ever free.
    pub credits_min: i32,
    /// Messages waiting for a credit.
    pub queued: u32,
    /// References: 1, and one per message bound to it.
    pub refs: u32,
    /// Times that it went down and came back.
    pub transitions: Transitions,
    /// Whether that happens so often that it is favoured less (HL-lnt-115).
    pub flapping: bool,
    /// When the last message came in, if one ever did.
    pub last_received: Option<Instant>,
    /// Heat, rates and times.
    pub usage: Usage,
    /// The driver's own time limit.
    pub lnd_timeout: Option<Duration>,
}

/// Whether an interface of a peer is there, where the node keeps track of that (T-32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PeerNiState {
    /// Not tracked: the peer is no gateway, and this node is no router. Shown as `NA`.
    NotTracked,
    /// It is.
    Up,
    /// It is not.
    Down,
}

/// A peer (S-peer-2).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PeerView {
    /// Its identity.
    pub primary: Nid,
    /// Whether it is Multi-Rail.
    pub multi_rail: bool,
    /// The flag word of S-peer-3.
    pub state: u32,
    /// Its interfaces.
    pub nis: Vec<PeerNiView>,
    /// It is this node.
    pub own: bool,
}

/// An interface of a peer.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PeerNiView {
    /// Its NID.
    pub nid: Nid,
    /// `peer_credits` of the local network; 0 if there is none.
    pub credits_max: u32,
    /// Free credits; negative: messages waiting.
    pub credits: i32,
    /// The least that were ever free.
    pub credits_min: i32,
    /// Bytes queued.
    pub queued_bytes: u64,
    /// Router credits free and the least ever.
    pub router_credits: i32,
    /// The least router credits that were ever free.
    pub router_credits_min: i32,
    /// References: 1, and one per message bound to it.
    pub refs: u32,
    /// Counters and latencies.
    pub stats: InterfaceStats,
    /// Failures.
    pub failures: PeerNiFailures,
    /// 0 to 1000.
    pub health: u32,
    /// Priority of its network, if a rule gives it one (U-44); 0 is the highest.
    pub net_priority: Option<u32>,
    /// Its own priority, likewise.
    pub priority: Option<u32>,
    /// NIDs of ours that rules map it to; none: all.
    pub preferred: Vec<Nid>,
    /// Primary NIDs of the routers that rules map it to; none: all.
    pub preferred_routers: Vec<Nid>,
    /// Whether the peer says that it is up.
    pub up: bool,
    /// The same as far as it is shown.
    pub state: PeerNiState,
    /// Whether it is reached over a network of ours, not through routers (MR-dbg-060).
    pub local: bool,
    /// Recovery pings sent.
    pub ping_count: u32,
    /// When the next one is due.
    pub next_ping: Option<Instant>,
    /// Times that it went down and came back, as far as that is known.
    pub transitions: Transitions,
    /// Whether that happens so often that it is favoured less (HL-lnt-115).
    pub flapping: bool,
    /// When the last message came in, if one ever did.
    pub last_received: Option<Instant>,
    /// Heat, rates and times.
    pub usage: Usage,
}

impl NetView {
    /// The counters of all its interfaces together (MR-dbg-085).
    pub fn sum(&self) -> InterfaceStats {
        self.nis.iter().map(|ni| ni.stats).sum()
    }
}

impl PeerView {
    /// The counters of all its interfaces together (MR-dbg-090).
    pub fn sum(&self) -> InterfaceStats {
        self.nis.iter().map(|ni| ni.stats).sum()
    }
}

impl Node {
    /// All local networks, loopback first.
    pub fn net_views(&self) -> Vec<NetView> {
        self.nis
            .nets()
            .iter()
            .map(|n| NetView {
                net: n.net,
                tunables: n.tunables,
                priority: n.grade.given_priority(),
                silent: self.router.is_on().then(|| self.now().saturating_since(n.last_alive)),
                nis: n.nis.iter().filter_map(|id| self.ni_view(*id)).collect(),
            })
            .collect()
    }

    /// A local interface.
    pub fn ni_view(&self, id: lnet_types::NiId) -> Option<NiView> {
        self.nis.get(id).map(|ni| ni_view(self, id, ni))
    }

    /// The interface at a place of a network's list, which begins at 0 (MR-dbg-040).
    pub fn ni_view_at(&self, net: Net, index: usize) -> Option<NiView> {
        let net = self.nis.nets().iter().find(|n| n.net == net)?;
        net.nis.get(index).and_then(|id| self.ni_view(*id))
    }

    /// Peers by age, at most `limit`, from the one after `after` on: pages of a long list. With
    /// each comes the number to go on from. The record of this node itself is none of them; see
    /// [`Self::peer_views_and_own`].
    pub fn peer_views(&self, after: Option<u64>, limit: usize) -> Vec<(u64, PeerView)> {
        let all = self.views_from(after).filter(|(_, view)| !self.nis.owns(view.primary));
        all.take(limit).collect()
    }

    /// [`Self::peer_views`] with a configured peer of this node's own NIDs, as kernel nodes list it. The
    /// record that a ping or discovery of an own NID leaves is not listed, as there.
    pub fn peer_views_and_own(&self, after: Option<u64>, limit: usize) -> Vec<(u64, PeerView)> {
        let configured = PeerFlags::CONFIGURED.bits();
        let is_listed = |view: &PeerView| !view.own || view.state & configured != 0;
        self.views_from(after).filter(|(_, view)| is_listed(view)).take(limit).collect()
    }

    /// Whether the record of a peer is about this node.
    fn is_this_node(&self, id: PeerId) -> bool {
        self.peers.peers.get(id).is_some_and(|peer| self.nis.owns(peer.primary))
    }

    fn views_from(&self, after: Option<u64>) -> impl Iterator<Item = (u64, PeerView)> {
        let from = after.map_or(0, |a| a.saturating_add(1));
        let all = self.peers.by_age.range(from..);
        all.filter_map(|(age, id)| self.peer_view(*id).map(|v| (*age, v)))
    }

    /// The peer that owns `nid`.
    pub fn peer_view_of(&self, nid: Nid) -> Option<PeerView> {
        self.peers.owner(nid).and_then(|id| self.peer_view(id))
    }

    /// The primary NID of the peer that has `nid`; `nid` itself if no peer is known to have it.
    pub fn primary_of(&self, nid: Nid) -> Nid {
        self.peers.primary_of(nid)
    }

    fn peer_view(&self, id: PeerId) -> Option<PeerView> {
        let peer = self.peers.peers.get(id)?;
        let tracked = peer.gateway.is_router();
        // A peer that is this node itself keeps the loopback NID by which it was asked for.
        let nis = peer.nets.iter().flat_map(|net| {
            let nis = net.nis.iter().filter_map(|id| Some((*id, self.peers.nis.get(*id)?)));
            nis.filter(|(_, n)| !n.nid.is_loopback())
                .map(move |(id, n)| self.peer_ni_view(net, id, n, tracked))
        });
        let nis = nis.collect();
        Some(PeerView {
            primary: peer.primary,
            multi_rail: peer.is_mr(),
            state: peer.state().bits(),
            nis,
            own: self.nis.owns(peer.primary),
        })
    }

    fn peer_ni_view(&self, net: &PeerNet, id: PeerNiId, n: &PeerNi, tracked: bool) -> PeerNiView {
        let router = self.router_credits_max(n);
        PeerNiView {
            nid: n.nid,
            credits_max: n.local.map_or(0, |t| t.peer_credits),
            credits: n.port.credits.free,
            credits_min: n.port.credits.least,
            queued_bytes: n.queued_bytes,
            router_credits: router - n.transit.held,
            router_credits_min: n.transit.credits_min.unwrap_or(router),
            refs: n.port.refs + 1,
            stats: n.port.stats.get(),
            failures: n.failures,
            health: n.port.health,
            net_priority: net.grade.given_priority(),
            priority: n.port.grade.given_priority(),
            preferred: n.mapping.iter().flat_map(|m| &m.preferred).map(|p| p.nid).collect(),
            preferred_routers: n.mapping.iter().flat_map(|m| &m.routers).copied().collect(),
            up: n.port.status_up,
            state: match (tracked || self.watches_aliveness(n), n.port.status_up) {
                (false, _) => PeerNiState::NotTracked,
                (true, true) => PeerNiState::Up,
                (true, false) => PeerNiState::Down,
            },
            local: n.local.is_some(),
            ping_count: n.port.recovery.sent,
            next_ping: self.timers.at(Timer::RecoverPeer(id)),
            transitions: n.port.transitions,
            flapping: n.port.flaps.is_flapping(self.now(), self.tunables.flap_hold_down),
            last_received: n.last_alive,
            usage: n.port.meter.view(self.now()),
        }
    }

    /// Peers and their interfaces, as [`Node::peer_views`] shows them.
    pub fn peer_count(&self) -> (usize, usize) {
        let mut own: Vec<PeerId> =
            self.nis.values().filter_map(|ni| self.peers.owner(ni.nid)).collect();
        own.sort_unstable();
        own.dedup();
        own.retain(|id| self.is_this_node(*id));
        let peers = own.iter().filter_map(|id| self.peers.peers.get(*id));
        let nis: usize = peers.flat_map(|peer| &peer.nets).map(|net| net.nis.len()).sum();
        (self.peers.peers.len() - own.len(), self.peers.nis.len() - nis)
    }

    /// Health of the local interfaces.
    pub fn ni_healths(&self) -> impl Iterator<Item = (Nid, u32)> + '_ {
        self.nis.values().map(|ni| (ni.nid, ni.port.health))
    }

    /// Health of the interfaces of at most `limit` peers, by age, from the one after `after` on, and
    /// the number to go on from: what [`Node::peer_views`] shows, for those who look often.
    pub fn peer_ni_healths(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> (Vec<(Nid, u32)>, Option<u64>) {
        let from = after.map_or(0, |a| a.saturating_add(1));
        let (mut found, mut next) = (Vec::new(), None);
        for (age, id) in self.peers.by_age.range(from..).take(limit) {
            next = Some(*age);
            if self.is_this_node(*id) {
                continue;
            }
            let Some(peer) = self.peers.peers.get(*id) else { continue };
            let nis = peer.nets.iter().flat_map(|net| &net.nis);
            found.extend(
                nis.filter_map(|id| self.peers.nis.get(*id)).map(|ni| (ni.nid, ni.port.health)),
            );
        }
        (found, next)
    }

    /// Counters of the whole node.
    pub fn stats(&self) -> NodeStats {
        self.counts.stats()
    }

    /// Messages dropped, by reason.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        self.counts.drops()
    }

    /// Zeroes all counters but those of failures (T-50).
    pub fn reset_stats(&mut self) {
        // Only one interface can be missing.
        let _ = self.reset_counters(Reset::All, false);
    }

    /// Zeroes counters (T-50) and forgets times. Gauges, health and credit minima stay: they are
    /// facts. So do failures, as in the kernel, unless they are meant too.
    ///
    /// # Errors
    /// `ENOENT`: there is no such interface.
    pub fn reset_counters(&mut self, what: Reset, failures: bool) -> Result<(), Errno> {
        self.note(|| Input::ResetCounters { what, failures });
        let nid = match what {
            Reset::All | Reset::Node => None,
            Reset::Interface(nid) => Some(nid),
        };
        if what != Reset::Node {
            let mut found = nid.is_none();
            for ni in self.nis.values_mut().filter(|ni| nid.is_none_or(|n| n == ni.nid)) {
                found = true;
                ni.port.reset_counters();
                if failures {
                    ni.failures = NiFailures::default();
                }
            }
            // A NID of ours may also stand among the peers: as itself.
            for pni in self.peers.nis.values_mut().filter(|n| nid.is_none_or(|x| x == n.nid)) {
                found = true;
                pni.port.reset_counters();
                if failures {
                    pni.failures = PeerNiFailures::default();
                }
            }
            if !found {
                return Err(Errno::ENOENT);
            }
        }
        if nid.is_none() {
            self.counts.reset();
        }
        Ok(())
    }

    /// From now on the least credits of our interfaces are those free now (T-33).
    pub fn reset_ni_minima(&mut self) {
        self.note(|| Input::ResetNiMinima {});
        for ni in self.nis.values_mut() {
            ni.port.reset_minimum();
        }
    }

    /// The same for interfaces of peers.
    pub fn reset_peer_minima(&mut self) {
        self.note(|| Input::ResetPeerMinima {});
        for pni in self.peers.nis.values_mut() {
            pni.port.credits.least = pni.port.credits.free;
            pni.transit.credits_min = None;
        }
    }

    /// NIDs in recovery: local interfaces, then peers' (H-83).
    pub fn recovery_queues(&self) -> (Vec<Nid>, Vec<Nid>) {
        let nids = |kind| self.recovering(kind).map(|(nid, _)| nid).collect();
        (nids(TimerKind::RecoverNi), nids(TimerKind::RecoverPeer))
    }

    /// Interfaces in recovery, ours or peers', with their health, in the order of their pings.
    fn recovering(&self, kind: TimerKind) -> impl Iterator<Item = (Nid, u32)> + '_ {
        let ports = self.timers.sorted(kind).into_iter().filter_map(|(_, timer)| match timer {
            Timer::RecoverNi(id) => Some(PortId::Local(id)),
            Timer::RecoverPeer(id) => Some(PortId::Peer(id)),
            _ => None,
        });
        ports.filter_map(|id| Some((self.nid_of_port(id)?, self.port(id)?.health)))
    }

    /// How often the health of an interface, ours or a peer's, was set: who watches many nodes looks
    /// again only where this has moved.
    pub fn health_changes(&self) -> u64 {
        self.counts.health_changes()
    }

    /// The health now of the interfaces whose health was set behind the first `seen` changes
    /// ([`Self::health_changes`]), in no order; `None` if that is not known any more, and [`Self::ailing`]
    /// is to be read whole.
    pub fn health_since(&self, seen: u64) -> Option<Vec<(Nid, u32)>> {
        let now = |id| Some((self.nid_of_port(id)?, self.port(id)?.health));
        self.counts.healths_set_since(seen)?.map(now).collect()
    }

    /// Interfaces in recovery with their health, local ones first. (A degraded interface that is
    /// not in recovery is so because recovery is off, or has been abandoned.)
    pub fn ailing(&self) -> impl Iterator<Item = (Nid, u32)> + '_ {
        self.recovering(TimerKind::RecoverNi).chain(self.recovering(TimerKind::RecoverPeer))
    }

    /// The health of an interface, ours or a peer's, if it is known.
    pub fn health_of(&self, nid: Nid) -> Option<u32> {
        let own = self.nis.values().find(|ni| ni.nid == nid).map(|ni| ni.port.health);
        own.or_else(|| {
            self.peers.find(nid).and_then(|id| self.peers.nis.get(id)).map(|n| n.port.health)
        })
    }

    /// The sequence number of the node's own ping data.
    pub fn ping_seq(&self) -> u32 {
        self.own.seq()
    }

    /// Overwrites the flag word of a peer (H-82): for tests.
    ///
    /// # Errors
    /// No peer owns `nid`.
    pub fn set_peer_state(&mut self, nid: Nid, state: u32) -> Result<(), Errno> {
        self.note(|| Input::SetPeerState { nid, state });
        let id = self.peers.owner(nid).ok_or(Errno::ENOENT)?;
        let peer = self.peers.peers.get_mut(id).ok_or(Errno::ENOENT)?;
        peer.set_state(PeerFlags::from_bits_truncate(state));
        Ok(())
    }
}

fn ni_view(node: &Node, id: lnet_types::NiId, ni: &Ni) -> NiView {
    let now = node.now();
    NiView {
        id,
        nid: ni.nid,
        up: ni.is_up(),
        state: ni.state(),
        interface: ni.interface.clone(),
        stats: ni.port.stats.get(),
        failures: ni.failures,
        fatal: ni.fatal,
        health: ni.port.health,
        priority: ni.port.grade.given_priority(),
        numa_node: ni.numa_node,
        device_cpt: ni.numa_node.and_then(|at| node.numa.cpts().of_numa_node(at).next()),
        cpts: node.cpts_of(ni),
        ping_count: ni.port.recovery.sent,
        next_ping: node.timers.at(Timer::RecoverNi(id)),
        credits: ni.port.credits.free,
        credits_min: ni.port.credits.least,
        queued: u32::try_from(ni.port.credits.queue.len()).unwrap_or(u32::MAX),
        refs: ni.port.refs + 1,
        transitions: ni.port.transitions,
        flapping: ni.port.flaps.is_flapping(now, node.tunables.flap_hold_down),
        last_received: ni.last_received,
        usage: ni.port.meter.view(now),
        lnd_timeout: ni.lnd_timeout,
    }
}
