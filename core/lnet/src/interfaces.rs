//! What follows when a local interface comes or goes, or its link changes. Drivers report that to
//! `entry/links.rs`; the data of interfaces are in `local.rs`.

use lnet_types::{Instant, Net, NiId, PeerNiId};

use crate::local::{LocalNet, Ni, NiSpec};
use crate::node::Node;
use crate::policy::turn::{Grade, Turn};
use crate::port::{HEALTH_MAX, Port};
use crate::stats::NiFailures;
use crate::{Link, NiState};

impl Node {
    pub(crate) fn insert_ni(&mut self, spec: NiSpec) -> NiId {
        let now = self.now();
        let net = spec.nid.net();
        let at = self.nets.iter().position(|n| n.net == net).unwrap_or_else(|| {
            let mut tunables = spec.tunables;
            // V-11
            tunables.peer_credits = tunables.peer_credits.min(tunables.credits);
            self.nets.push(LocalNet {
                net,
                nis: Vec::new(),
                tunables,
                seq: 0,
                grade: Grade::default(),
                turn: Turn::default(),
                floor: 0,
                last_alive: now,
            });
            self.nets.len() - 1
        });
        let mut port = Port::new(self.nets[at].tunables.credits);
        if spec.nid.is_loopback() {
            // S-net-6: loopback's health means nothing and begins at 0.
            port.health = 0;
        }
        let id = self.nis.insert(Ni {
            nid: spec.nid,
            interface: spec.interface,
            lnd_timeout: spec.lnd_timeout,
            fatal: false,
            link_down: false,
            plays_dead: false,
            port,
            announced_up: true,
            aged: false,
            numa_node: None,
            cpts: None,
            failures: NiFailures::default(),
            last_received: None,
            noted: NiState::Active,
        });
        self.nets[at].nis.push(id);
        self.policy_nis_changed();
        id
    }

    /// O-41: peers' interfaces on a network that has become local get their credits.
    pub(crate) fn adopt_peers(&mut self, net: Net) {
        let tunables = self.net_tunables(net);
        for pni in self.peers.nis.values_mut().filter(|n| n.nid.net() == net) {
            pni.local = tunables;
            pni.port.credits.refill(tunables.map_or(0, |t| t.peer_credits));
        }
    }

    /// O-42: peers lose their interfaces on a network that is not local any more, unless they can
    /// still be reached on another one.
    pub(crate) fn abandon_peers(&mut self, now: Instant, net: Net) {
        let ids: Vec<PeerNiId> = self
            .peers
            .nis
            .iter()
            .filter(|(_, n)| n.nid.net() == net && !n.deleting)
            .map(|(id, _)| id)
            .collect();
        for id in ids {
            let Some(pni) = self.peers.nis.get(id) else { continue };
            let (nid, peer_id) = (pni.nid, pni.peer);
            let Some(peer) = self.peers.peers.get(peer_id) else { continue };
            let other = peer
                .nis()
                .filter_map(|n| self.peers.nis.get(n))
                .find(|n| n.nid.net() != net && self.nets.iter().any(|l| l.net == n.nid.net()))
                .map(|n| n.nid);
            let locked = peer.facts.contains(crate::peer::Facts::LOCK_PRIMARY);
            match other {
                Some(survivor) => {
                    let was_primary = peer.primary == nid;
                    if let Some(pni) = self.peers.nis.get_mut(id) {
                        pni.local = None;
                        pni.port.credits.refill(0);
                    }
                    if was_primary && !locked {
                        if let Some(peer) = self.peers.peers.get_mut(peer_id) {
                            peer.primary = survivor;
                        }
                        self.peers.primary_first(peer_id);
                    }
                }
                None if peer.primary == nid || peer.ni_count() == 1 => {
                    self.delete_peer(now, peer_id);
                }
                None => {
                    self.remove_peer_ni(now, id);
                    self.lost_sight(now, peer_id, nid);
                }
            }
        }
    }

    /// What the driver says of a link, or a simulated fault, has changed: what it is now, if that is
    /// news.
    pub(crate) fn link_noted(&mut self, now: Instant, id: NiId) -> Option<Link> {
        let ni = self.nis.get_mut(id)?;
        let fatal = ni.link_down || ni.plays_dead;
        if ni.fatal == fatal {
            return None;
        }
        ni.fatal = fatal;
        ni.port.transitions.count(!fatal);
        if !fatal && ni.port.health == HEALTH_MAX {
            ni.port.status_up = true;
        }
        let is_announced_now = self.announce_link(now);
        if fatal {
            self.penalize(now, id);
        } else if is_announced_now {
            // D-7, as recorded: announced at once with the status in place, and with the next
            // number afterwards.
            self.refresh_ping();
            self.push_to_peers(now, true);
        }
        self.note_ni(id);
        Some(if fatal { Link::Down } else { Link::Up })
    }
}
