//! What follows when a local interface comes or goes, or its link changes. Drivers report that to
//! `entry/links.rs`; the data of interfaces are in `local.rs`.

use lnet_types::{Instant, Net, NiId, PeerNiId};

use crate::Link;
use crate::local::NiSpec;
use crate::node::Node;
use crate::port::HEALTH_MAX;

impl Node {
    pub(crate) fn insert_ni(&mut self, spec: NiSpec) -> NiId {
        let id = self.nis.insert(self.now(), spec);
        self.policy_nis_changed();
        id
    }

    /// O-41: peers' interfaces on a network that has become local get their credits.
    pub(crate) fn adopt_peers(&mut self, net: Net) {
        let tunables = self.nis.tunables_of(net);
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
                .find(|n| n.nid.net() != net && self.nis.tunables_of(n.nid.net()).is_some())
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
                    self.peers.lost_sight(&self.tunables, now, peer_id, nid);
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
