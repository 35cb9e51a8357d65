//! Adding and removing the NIDs of peers: by the administrator and by discovery, under one set of
//! rules (behaviour.md 1.6). Configuration wins over what is discovered (DEC-28).

use lnet_types::{Errno, Instant, Nid, PeerId};

use crate::Node;
use crate::outbox::Work;
use crate::peer::Facts;
use crate::peer::cause::Cause;
use crate::peer::eviction::Purpose;
use crate::timers::Timer;

/// Who changes a peer's NIDs, and what is said about it.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Change {
    /// The administrator does.
    pub(crate) configured: bool,
    /// The peer is Multi-Rail.
    pub(crate) multi_rail: bool,
}

impl Node {
    /// O-33.
    pub(crate) fn create_configured(
        &mut self,
        now: Instant,
        primary: Nid,
        multi_rail: bool,
        lock_primary: bool,
    ) -> Result<(), Errno> {
        if let Some(id) = self.peers.owner(primary)
            && let Some(peer) = self.peers.peers.get(id)
        {
            let f = peer.facts;
            if f.contains(Facts::CONFIGURED) {
                return if peer.primary != primary {
                    Err(Errno::EEXIST)
                } else if peer.is_mr() != multi_rail {
                    Err(Errno::EPERM)
                } else {
                    Ok(())
                };
            }
            if f.contains(Facts::LOCK_PRIMARY) {
                return Err(if peer.primary == primary { Errno::EEXIST } else { Errno::EALREADY });
            }
            if peer.gateway.is_router() {
                // To make it anew would take its routes along, as in O-37.
                return Err(Errno::EBUSY);
            }
            self.delete_peer(now, id);
        }
        if !self.has_room_for(Purpose::Ordered) {
            return Err(Errno::ENOSPC);
        }
        let mut facts = Facts::CONFIGURED;
        facts.set(Facts::MULTI_RAIL, multi_rail);
        facts.set(Facts::LOCK_PRIMARY, lock_primary);
        let id = self.peers.create(primary, facts);
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.locked_at = now;
        }
        let (local, max) = (self.nis.tunables_of(primary.net()), self.tunables.peers_max as usize);
        self.peers.attach(id, primary, local, max).map(|_| ()).inspect_err(|_| {
            self.peers.forget(id);
        })
    }

    /// O-34.
    pub(crate) fn add_configured(
        &mut self,
        now: Instant,
        primary: Nid,
        nid: Nid,
        multi_rail: bool,
    ) -> Result<(), Errno> {
        let id = self.peers.owner(primary).ok_or(Errno::ENOENT)?;
        let peer = self.peers.peers.get(id).ok_or(Errno::ENOENT)?;
        if !peer.facts.contains(Facts::CONFIGURED) {
            return Err(Errno::ENOENT);
        }
        if peer.primary != primary {
            return Err(Errno::ENODEV);
        }
        if peer.is_mr() != multi_rail {
            return Err(Errno::EPERM);
        }
        self.add_nid(now, id, nid, Change { configured: true, multi_rail })
    }

    /// Gives a peer one more NID (O-35).
    pub(crate) fn add_nid(
        &mut self,
        now: Instant,
        id: PeerId,
        nid: Nid,
        change: Change,
    ) -> Result<(), Errno> {
        if nid.is_any() || nid.is_loopback() {
            return Err(Errno::EINVAL);
        }
        let peer = self.peers.peers.get(id).ok_or(Errno::ENOENT)?;
        if !change.configured && peer.facts.contains(Facts::CONFIGURED) {
            return Err(Errno::EPERM);
        }
        if change.multi_rail && !peer.is_mr() {
            self.peers.set_multi_rail(id);
        } else if !change.multi_rail && peer.is_mr() {
            return Err(Errno::EPERM);
        }
        let peer = self.peers.peers.get(id).ok_or(Errno::ENOENT)?;
        let (mine, locked_at) = (peer.facts, peer.locked_at);
        let is_full = peer.ni_count() >= self.tunables.max_interfaces as usize;
        let known = self.peers.find(nid);
        let owner = known.and_then(|ni| self.peers.nis.get(ni)).map(|n| n.peer);
        if owner == Some(id) {
            return Ok(());
        }
        if is_full {
            return Err(Errno::ENOSPC);
        }
        if let Some(ni) = known {
            let Some(owner) = owner else { return Err(Errno::EFAULT) };
            let Some(other) = self.peers.peers.get(owner) else { return Err(Errno::EFAULT) };
            if other.facts.contains(Facts::CONFIGURED) {
                return Err(Errno::EEXIST);
            }
            if other.primary == nid {
                let locked = other.facts.contains(Facts::LOCK_PRIMARY);
                if locked && other.ni_count() > 1 {
                    return self.both_locked(id, owner);
                }
                let theirs = other.locked_at;
                if locked
                    && (!mine.contains(Facts::LOCK_PRIMARY) || theirs < locked_at)
                    && let Some(peer) = self.peers.peers.get_mut(id)
                {
                    peer.primary = nid;
                    peer.facts |= Facts::LOCK_PRIMARY;
                    peer.locked_at = theirs;
                }
                self.absorb(now, owner, id);
            } else {
                if !change.multi_rail && self.has_net(id, nid) {
                    return Err(Errno::ENOTUNIQ);
                }
                self.peers.rehome(ni, id);
                return Ok(());
            }
        }
        if !change.multi_rail && self.has_net(id, nid) {
            return Err(Errno::ENOTUNIQ);
        }
        if change.configured && !self.has_room_for(Purpose::Ordered) {
            return Err(Errno::ENOSPC);
        }
        let (local, max) = (self.nis.tunables_of(nid.net()), self.tunables.peers_max as usize);
        self.peers.attach(id, nid, local, max).map(|_| ())
    }

    fn has_net(&self, id: PeerId, nid: Nid) -> bool {
        self.peers.peers.get(id).is_some_and(|p| p.net(nid.net()).is_some())
    }

    /// O-35.5: two locked identities contradict each other; neither is touched.
    fn both_locked(&mut self, a: PeerId, b: PeerId) -> Result<(), Errno> {
        for id in [a, b] {
            if let Some(peer) = self.peers.peers.get_mut(id) {
                tracing::error!(peer = %peer.primary, "locked primary NIDs contradict each other");
                peer.facts |= Facts::BAD_CONFIG;
            }
        }
        Ok(())
    }

    /// Deletes `from` in favour of `into`, which takes over who waited for it.
    fn absorb(&mut self, now: Instant, from: PeerId, into: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(from) else { return };
        let waiters = core::mem::take(&mut peer.disc.waiters);
        // Round trips under way end by themselves: the node is there, and will respond.
        peer.disc.learn.land();
        peer.disc.teach.land();
        let is_router = peer.gateway.is_router();
        self.transfer_routes(now, from, into);
        self.delete_peer(now, from);
        if is_router {
            // Rules name its routes' gateway by another NID now (U-25).
            self.name_gateways();
        }
        match self.peers.peers.get_mut(into) {
            Some(peer) => peer.disc.waiters.extend(waiters),
            None => {
                for op in waiters {
                    self.discovered(now, op, Err(Errno::ENOENT));
                }
            }
        }
    }

    /// Takes a NID from a peer (O-36). `configured`: the administrator does.
    pub(crate) fn del_nid(
        &mut self,
        now: Instant,
        id: PeerId,
        nid: Nid,
        configured: bool,
    ) -> Result<(), Errno> {
        let peer = self.peers.peers.get(id).ok_or(Errno::ENOENT)?;
        if !configured && peer.facts.contains(Facts::CONFIGURED) {
            return Err(Errno::EPERM);
        }
        let is_primary = peer.primary == nid;
        let router = peer.gateway.is_router();
        if router && configured {
            //
            return Err(Errno::EBUSY);
        }
        if is_primary && peer.facts.contains(Facts::LOCK_PRIMARY) {
            return Err(Errno::EPERM);
        }
        let ni = self.peers.find(nid).ok_or(Errno::ENOENT)?;
        if self.peers.nis.get(ni).is_none_or(|n| n.peer != id) {
            return Err(Errno::ECHILD);
        }
        if is_primary && peer.ni_count() > 1 {
            if !router {
                return Err(Errno::EBUSY);
            }
            // O-36: a gateway that has lost its first interface goes by the next.
            let next = peer.nis().find(|id| *id != ni).and_then(|id| self.peers.nis.get(id));
            let next = next.map(|n| n.nid);
            self.remove_peer_ni(now, ni);
            if let (Some(next), Some(peer)) = (next, self.peers.peers.get_mut(id)) {
                peer.primary = next;
            }
            self.peers.primary_first(id);
            return Ok(());
        }
        if is_primary {
            self.delete_peer(now, id);
            return Ok(());
        }
        self.remove_peer_ni(now, ni);
        Ok(())
    }

    /// Removes one interface of a peer from all lists; messages bound to it end on their own.
    pub(crate) fn remove_peer_ni(&mut self, _now: Instant, ni: lnet_types::PeerNiId) {
        self.peers.unlink(ni);
        self.timers.stop(Timer::RecoverPeer(ni));
        self.peers.forget_ni(ni);
    }

    /// Removes a peer and all its interfaces. What waited for its discovery is sent from scratch
    /// and may find its NID under another peer (O-44).
    pub(crate) fn delete_peer(&mut self, now: Instant, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let flights = [peer.disc.learn.in_flight(), peer.disc.teach.in_flight()];
        let parked = core::mem::take(&mut peer.disc.parked);
        let waiters = core::mem::take(&mut peer.disc.waiters);
        let router = peer.gateway.is_router();
        let nis: Vec<_> = peer.nis().collect();
        for ni in nis {
            self.remove_peer_ni(now, ni);
        }
        if router {
            // D-48: its routes find their gateway anew.
            self.stop_checks(id);
            self.rehome_later();
        }
        for timer in [Timer::Check(id), Timer::Merge(id), Timer::Discover(id)] {
            self.timers.stop(timer);
        }
        self.peers.forget(id);
        for md in flights.into_iter().flatten() {
            self.unlink_md(now, md);
        }
        self.release_parked(parked, None);
        for op in waiters {
            self.discovered(now, op, Err(Errno::ENOENT));
        }
    }

    /// O-37: a locked peer keeps its identity and forgets the rest.
    pub(crate) fn reset_peer(&mut self, now: Instant, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let (primary, nis) = (peer.primary, peer.nis().collect::<Vec<_>>());
        // What its data say that wait, or that are on their way, it was reset to forget.
        let disc = &mut peer.disc;
        let flights = [disc.learn.in_flight(), disc.teach.in_flight()];
        disc.learn.land();
        disc.teach.land();
        (disc.received, disc.rebuild) = (None, false);
        let runs = disc.is_running;
        for md in flights.into_iter().flatten() {
            self.unlink_md(now, md);
        }
        self.query(now, id, Cause::Reset);
        for ni in nis {
            if self.peers.nis.get(ni).is_some_and(|n| n.nid != primary) {
                self.remove_peer_ni(now, ni);
            }
        }
        if runs {
            // Messages and operations that wait for a discovery wait for the next one.
            self.outbox.plan(Work::Discover(id));
        }
    }
}
