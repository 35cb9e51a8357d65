//! The merge of a peer's data into its record (behaviour.md 6.5). The data came by ping or push and
//! passed `admission.rs`; which NIDs of others it may have is decided in `claims.rs`, the rules of adding
//! and removing NIDs are in `config.rs`.

use std::collections::BTreeSet;

use lnet_types::{Errno, Instant, Nid, PeerId};
use lnet_wire::ping::{Features, NiStatus, PingEntry, PingInfo};

use crate::Node;
use crate::outbox::Work;
use crate::peer::Facts;
use crate::peer::config::Change;
use crate::peer::sync::Announcement;
use crate::port::{HEALTH_MAX, PortId};
use crate::router::alive;
use crate::send::rest::News;

impl Node {
    /// Merges the data of peer `id` that wait, and lets the peer that now stands for it go on.
    pub(crate) fn merge_received(&mut self, now: Instant, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let Some(data) = peer.disc.received.take() else { return };
        peer.disc.learn.succeed(data.generation);
        let before = self.peers.identity(id);
        let at = self.process_data(now, id, &data);
        // As a rule a peer says what it has said before, and no route has to be looked at.
        if at != id || self.peers.identity(id) != before {
            self.rehome_later();
        }
        self.resume_discovery(at);
    }

    /// Lets the discovery of a peer go on, whatever it was about.
    fn resume_discovery(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.disc.is_running = true;
            self.outbox.plan(Work::Discover(id));
        }
    }

    /// Merges what a peer says of itself (D-40 … D-43). Returns the peer that now stands for it.
    fn process_data(&mut self, now: Instant, id: PeerId, said: &Announcement) -> PeerId {
        let info = &said.info;
        self.note_claims(id, info);
        let Some(claimed) = primary_of(info) else { return id };
        let Some(peer) = self.peers.peers.get(id) else { return id };
        let in_data = |nid: Nid| info.entries.iter().any(|e| e.nid == nid);
        let known = self.peers.owner(claimed);
        if peer.primary == claimed
            || (in_data(peer.primary) && alive::is_discovery_off(&self.tunables, peer))
        {
            self.merge(now, id, said);
            return id;
        }
        if peer.primary.is_loopback() || known.is_none() || known == Some(id) {
            if let Err(errno) = self.set_primary(now, id, claimed) {
                self.discovery_ends(now, id, Err(errno));
                return id;
            }
            self.merge(now, id, said);
            return id;
        }
        // D-42.5: another peer already stands for it.
        let Some(other) = known else { return id };
        if !self.is_conceded(now, id, said.by, claimed) {
            // Until that one says so too, this one is who it was.
            return id;
        }
        let Some(peer) = self.peers.peers.get(id) else { return id };
        let (facts, via) = (peer.facts, peer.disc.via);
        if facts.contains(Facts::MULTI_RAIL) {
            self.peers.set_multi_rail(other);
        }
        if let Some(q) = self.peers.peers.get_mut(other) {
            if !facts.contains(Facts::NO_DISCOVERY) {
                q.facts -= Facts::NO_DISCOVERY;
            }
            q.disc.via = via;
            q.disc.learn.succeed(q.disc.learn.generation());
            if q.is_mr() {
                q.disc.peer_seq = info.seq;
            }
        }
        self.resume_discovery(other);
        self.merge(now, other, said);
        // What is left of the first peer has nothing more to learn; its waiters wait no longer (its NID
        // usually belongs to the other one by now).
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.disc.discovered = true;
            self.discovery_ends(now, id, Ok(()));
        }
        other
    }

    /// D-44 … D-46.
    fn merge(&mut self, now: Instant, id: PeerId, said: &Announcement) {
        let info = &said.info;
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        if info.features.contains(Features::RTE_DISABLED) {
            peer.facts -= Facts::ROUTER_ENABLED;
        } else {
            peer.facts |= Facts::ROUTER_ENABLED;
        }
        let Some(peer) = self.peers.peers.get(id) else { return };
        let frozen = alive::is_discovery_off(&self.tunables, peer);
        let present: BTreeSet<Nid> =
            peer.nis().filter_map(|n| self.peers.nis.get(n)).map(|n| n.nid).collect();
        let entries = || info.entries.iter().filter(|e| !e.nid.is_loopback());
        for e in entries().filter(|e| present.contains(&e.nid)) {
            self.status_update(now, e);
        }
        if frozen {
            return self.gateway_data(now, id, info);
        }
        let multi_rail = info.features.contains(Features::MULTI_RAIL);
        let change = Change { configured: false, multi_rail };
        for e in entries().filter(|e| !present.contains(&e.nid)) {
            if !self.is_conceded(now, id, said.by, e.nid) {
                continue;
            }
            let is_new = self.peers.find(e.nid).is_none();
            let outcome = if is_new && !self.has_room_for_hearsay(id) {
                Err(Errno::ENOSPC)
            } else {
                self.add_nid(now, id, e.nid, change)
            };
            match outcome {
                // Two that are locked keep what they have (O-35.5).
                Ok(()) if self.peers.owner(e.nid) == Some(id) => self.status_update(now, e),
                Ok(()) => {}
                Err(errno) => self.not_added(id, e.nid, errno),
            }
        }
        let listed: BTreeSet<Nid> = entries().map(|e| e.nid).collect();
        let mut left = BTreeSet::new();
        for nid in present {
            if !nid.is_loopback() && !listed.contains(&nid) {
                left.extend(self.leave_hop(nid));
                let outcome = self.del_nid(now, id, nid, false);
                match outcome {
                    Ok(()) => self.peers.given_up(&self.tunables, now, id, nid),
                    Err(Errno::EPERM) => {
                        self.status_update(now, &PingEntry { nid, status: NiStatus::DOWN });
                    }
                    Err(_) => {}
                }
            }
        }
        self.peers.primary_first(id);
        self.gateway_data(now, id, info);
        self.leave_hops(now, &left);
    }

    /// D-45.
    fn status_update(&mut self, now: Instant, entry: &PingEntry) {
        let Some(id) = self.peers.find(entry.nid) else { return };
        let Some(pni) = self.peers.nis.get_mut(id) else { return };
        let up = entry.status == NiStatus::UP;
        if !up && !core::mem::replace(&mut pni.announced_down, true) {
            // When all of the announcement is merged: its other interfaces may be down as well.
            self.outbox.plan(Work::Leave(PortId::Peer(id)));
        }
        match (pni.port.status_up, up) {
            (true, false) => {
                pni.set_up(now, self.tunables.flap_hold_down, false);
                self.lower(now, PortId::Peer(id));
                self.note_peer(id);
            }
            (false, true) => {
                // Of one that is never heard itself, behind a router, the report is all there will be.
                let reported =
                    pni.last_alive.is_none() && self.tunables.conduct.believes_reported_health;
                pni.set_up(now, self.tunables.flap_hold_down, true);
                let peer = pni.peer;
                if reported {
                    self.set_health(now, PortId::Peer(id), HEALTH_MAX);
                }
                self.notify_resting(now, News::Rail(peer));
            }
            (true, true) if pni.last_alive.is_none() => {
                self.set_health(now, PortId::Peer(id), HEALTH_MAX);
            }
            (true, true) | (false, false) => {}
        }
    }

    /// D-43.
    fn set_primary(&mut self, now: Instant, id: PeerId, nid: Nid) -> Result<(), Errno> {
        let Some(peer) = self.peers.peers.get_mut(id) else { return Err(Errno::ENOENT) };
        let old = peer.primary;
        let fixed = peer.facts.contains(Facts::LOCK_PRIMARY);
        let lenient = peer.facts.intersects(Facts::LOCK_PRIMARY | Facts::CONFIGURED);
        let multi_rail = peer.is_mr();
        if !fixed {
            peer.primary = nid;
        }
        let outcome = self.add_nid(now, id, nid, Change { configured: false, multi_rail });
        match outcome {
            Ok(()) => {
                self.peers.primary_first(id);
                Ok(())
            }
            Err(errno) => {
                if let Some(peer) = self.peers.peers.get_mut(id) {
                    peer.primary = old;
                }
                if lenient { Ok(()) } else { Err(errno) }
            }
        }
    }
}

/// The NID by which a node identifies itself.
pub(crate) fn primary_of(info: &PingInfo) -> Option<Nid> {
    info.entries.first().map(|e| e.nid)
}
