//! The remote side: peers, their networks and interfaces (behaviour.md 1.1, 1.5, 1.8).
//!
//! Tables and upkeep. Configured peers and the rules of adding and removing NIDs are in `config.rs`.
//! Discovery: its state in `sync.rs`, its causes in `cause.rs` and `query.rs`, its course in
//! `discovery.rs` and `replies.rs`, retries in `retry.rs`, the merge of what was learnt in `merge.rs`. What
//! is rejected of it: `admission.rs` and `claims.rs`; which records go where the table is full:
//! `eviction.rs`; previous owners of NIDs: `previous_owners.rs`. Which interface is used is decided in
//! `send/select.rs`.

mod admission;
pub(crate) mod backoff;
pub(crate) mod cause;
pub(crate) mod claims;
pub(crate) mod config;
pub(crate) mod discovery;
pub(crate) mod eviction;
mod features;
mod merge;
mod policy;
mod previous_owners;
pub(crate) mod query;
pub(crate) mod refusal;
mod replies;
mod retry;
pub(crate) mod sync;

use core::time::Duration;
use std::collections::VecDeque;

use lnet_types::{Errno, Instant, MsgId, Net, NiId, Nid, PeerId, PeerNiId};
use slotmap::SlotMap;
use smallvec::SmallVec;

use crate::budget::Budget;
use crate::dedup::numbering::Numbering;
use crate::local::NetTunables;
use crate::policy::turn::{Grade, Turn};
use crate::policy::{Mapping, Policy};
use crate::port::{HEALTH_MAX, Port};
use crate::router::Gateway;
use crate::stats::PeerNiFailures;
use crate::table::Lookup;
use sync::Discovery;

bitflags::bitflags! {
    /// The state of a peer, as `peer show` prints it: a view of its facts and of its discovery.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[derive(serde::Serialize, serde::Deserialize)]
    pub struct PeerFlags: u32 {
        /// Any of its interfaces may be used.
        const MULTI_RAIL = 1 << 0;
        /// It does not take part in discovery.
        const NO_DISCOVERY = 1 << 1;
        /// Its ping data say that it forwards.
        const ROUTER_ENABLED = 1 << 2;
        /// Created or changed by the administrator.
        const CONFIGURED = 1 << 3;
        /// Discovery has succeeded once.
        const DISCOVERED = 1 << 4;
        /// The last discovery failed: do it again on next use.
        const REDISCOVER = 1 << 5;
        /// A discovery is under way.
        const DISCOVERING = 1 << 6;
        /// Its data wait to be merged.
        const DATA_PRESENT = 1 << 7;
        /// Its list of NIDs is the newest that was received.
        const NIDS_UPTODATE = 1 << 8;
        /// A ping is on its way to it.
        const PING_SENT = 1 << 9;
        /// A push is on its way to it.
        const PUSH_SENT = 1 << 10;
        /// Ping even if up to date.
        const FORCE_PING = 1 << 13;
        /// Push even if it has our newest data.
        const FORCE_PUSH = 1 << 14;
        /// A gateway that is being checked.
        const ROUTER_CHECK = 1 << 16;
        /// A gateway that was checked at least once.
        const ROUTER_CHECKED = 1 << 17;
        /// To be rebuilt from scratch.
        const MARK_DELETION = 1 << 18;
        /// The primary NID is fixed.
        const LOCK_PRIMARY = 1 << 20;
        /// Contradicting locked configuration was seen.
        const BAD_CONFIG = 1 << 21;
    }
}

bitflags::bitflags! {
    /// Facts about a peer. Where its discovery stands is no fact but a state (`sync.rs`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(crate) struct Facts: u32 {
        const MULTI_RAIL = PeerFlags::MULTI_RAIL.bits();
        const NO_DISCOVERY = PeerFlags::NO_DISCOVERY.bits();
        const ROUTER_ENABLED = PeerFlags::ROUTER_ENABLED.bits();
        const CONFIGURED = PeerFlags::CONFIGURED.bits();
        const ROUTER_CHECK = PeerFlags::ROUTER_CHECK.bits();
        const ROUTER_CHECKED = PeerFlags::ROUTER_CHECKED.bits();
        const LOCK_PRIMARY = PeerFlags::LOCK_PRIMARY.bits();
        const BAD_CONFIG = PeerFlags::BAD_CONFIG.bits();
    }
}

/// A peer: one node, one identity, several interfaces.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Peer {
    pub(crate) primary: Nid,
    pub(crate) facts: Facts,
    pub(crate) nets: SmallVec<[PeerNet; 1]>,
    pub(crate) seq: u64,
    /// Floor of the turns of its networks.
    pub(crate) net_floor: u64,
    pub(crate) disc: Discovery,
    pub(crate) numbering: Numbering,
    pub(crate) locked_at: Instant,
    pub(crate) gateway: Gateway,
    /// Order of creation: listings go by it.
    pub(crate) born: u64,
    /// Recovery pings to its interfaces.
    pub(crate) pings: Budget,
    /// When a refusal of its claims was last reported.
    pub(crate) refusal_reported: Option<Instant>,
}

/// The interfaces of a peer on one network.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct PeerNet {
    pub(crate) net: Net,
    pub(crate) nis: SmallVec<[PeerNiId; 2]>,
    pub(crate) seq: u64,
    /// What rules say of it, and its turn among the peer's networks.
    pub(crate) grade: Grade,
    pub(crate) turn: Turn,
    /// Floors of the turns of its interfaces, and of the pathways to them.
    pub(crate) floor: u64,
    pub(crate) path_floor: u64,
    /// The best health of its interfaces.
    pub(crate) health: u32,
}

/// For how long an interface of a lost peer has to be usable before its loss is news again. Each message of a
/// peer says that its interface is up, that of an announcement too; and announcements are repeated, and
/// withdrawn in between, for less than this (`cut_off.rs`).
const SETTLED: Duration = Duration::from_secs(1);

/// One interface of a peer.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct PeerNi {
    pub(crate) nid: Nid,
    pub(crate) peer: PeerId,
    /// Tunables of the local network of the same id; `None` if there is none (remote, O-28).
    pub(crate) local: Option<NetTunables>,
    pub(crate) port: Port,
    pub(crate) queued_bytes: u64,
    /// Messages from it that are in hand.
    pub(crate) received: u32,
    pub(crate) last_alive: Option<Instant>,
    /// The interface of ours by which it was heard last.
    pub(crate) heard_by: Option<NiId>,
    /// The local NID that a non-MR peer has for this node (O-7, O-25, S-33).
    pub(crate) preferred: Option<Nid>,
    /// What pair and router rules say of it.
    pub(crate) mapping: Option<Box<Mapping>>,
    /// When its state was last reported.
    pub(crate) notified: Option<Instant>,
    /// When something was last forwarded to it though it is taken for down, or first refused.
    pub(crate) knocked: Option<Instant>,
    /// What passes through this node from it.
    pub(crate) transit: TransitCredits,
    pub(crate) failures: PeerNiFailures,
    /// Its node has announced it as down, and nothing has shown since that it is up. The stored status
    /// is also down when only a connection has ended.
    pub(crate) announced_down: bool,
    /// A notice says that its peer is lost, and it has not been usable for long since.
    pub(crate) noted_lost: bool,
    /// Since when it is usable, if that was not so from the beginning.
    pub(crate) usable_since: Option<Instant>,
    /// Removed from its peer; kept until the last message lets go (O-43).
    pub(crate) deleting: bool,
}

impl PeerNi {
    /// Notes whether it is up, and returns whether it was. `hold_down` is `flap_hold_down`.
    pub(crate) fn set_up(&mut self, now: Instant, hold_down: i64, up: bool) -> bool {
        let was = core::mem::replace(&mut self.port.status_up, up);
        self.announced_down &= !up;
        if was != up {
            self.port.transitions.count(up);
            if !up {
                self.port.flaps.down(now, hold_down);
            }
            self.usability_changed(now);
        }
        was
    }

    /// Whether messages may go to it.
    pub(crate) fn is_usable(&self) -> bool {
        self.port.status_up && self.port.health > 0
    }

    /// Its status or its health has changed. One that was usable for long enough may be lost anew.
    pub(crate) fn usability_changed(&mut self, now: Instant) {
        match (self.is_usable(), self.usable_since) {
            (true, None) => self.usable_since = Some(now),
            (false, Some(since)) => {
                self.usable_since = None;
                self.noted_lost &= now < since + SETTLED;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
}

/// Router credits of a peer's interface (C-20). Their number follows from tunables; kept is who
/// has one.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct TransitCredits {
    /// Messages that have one, or a place in the queue.
    pub(crate) held: i32,
    /// The least that were ever free; `None`: none was ever taken.
    pub(crate) credits_min: Option<i32>,
    pub(crate) queue: VecDeque<MsgId>,
}

impl Peer {
    pub(crate) fn is_mr(&self) -> bool {
        self.facts.contains(Facts::MULTI_RAIL)
    }

    /// S-peer-3.
    pub(crate) fn state(&self) -> PeerFlags {
        let disc = &self.disc;
        let mut state = PeerFlags::from_bits_retain(self.facts.bits());
        for (flag, is_set) in [
            (PeerFlags::DISCOVERED, disc.discovered),
            (PeerFlags::REDISCOVER, disc.error.is_some()),
            (PeerFlags::DISCOVERING, disc.is_running),
            (PeerFlags::DATA_PRESENT, disc.received.is_some()),
            (PeerFlags::NIDS_UPTODATE, !disc.learn.is_behind() && disc.received.is_none()),
            (PeerFlags::PING_SENT, disc.learn.in_flight().is_some()),
            (PeerFlags::PUSH_SENT, disc.teach.in_flight().is_some()),
            (
                PeerFlags::FORCE_PING,
                disc.learn.is_wanted_again() && disc.learn.in_flight().is_some(),
            ),
            (PeerFlags::FORCE_PUSH, disc.teach.is_wanted_again()),
            (PeerFlags::MARK_DELETION, disc.rebuild),
        ] {
            state.set(flag, is_set);
        }
        state
    }

    /// H-82: the facts are set; of its discovery what a user could have brought about.
    pub(crate) fn set_state(&mut self, state: PeerFlags) {
        self.facts = Facts::from_bits_truncate(state.bits());
        let disc = &mut self.disc;
        disc.discovered = state.contains(PeerFlags::DISCOVERED);
        disc.rebuild = state.contains(PeerFlags::MARK_DELETION);
        disc.error = state.contains(PeerFlags::REDISCOVER).then_some(Errno::EAGAIN);
        let is_known = state.contains(PeerFlags::NIDS_UPTODATE);
        disc.learn.set(!is_known || state.contains(PeerFlags::FORCE_PING));
        disc.teach.set(state.contains(PeerFlags::FORCE_PUSH));
    }

    /// All its interfaces, in list order.
    pub(crate) fn nis(&self) -> impl Iterator<Item = PeerNiId> + '_ {
        self.nets.iter().flat_map(|n| n.nis.iter().copied())
    }

    pub(crate) fn ni_count(&self) -> usize {
        self.nets.iter().map(|n| n.nis.len()).sum()
    }

    pub(crate) fn net(&self, net: Net) -> Option<&PeerNet> {
        self.nets.iter().find(|n| n.net == net)
    }
}

/// The tables of the remote side.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Peers {
    pub(crate) peers: SlotMap<PeerId, Peer>,
    pub(crate) nis: SlotMap<PeerNiId, PeerNi>,
    /// The rules, applied to each interface that is linked to a peer.
    pub(crate) policy: Policy,
    by_nid: Lookup<Nid, PeerNiId>,
    /// How often it was asked.
    #[cfg(test)]
    #[serde(skip)]
    pub(crate) lookups: crate::table::Count,
    /// Peers by age, the order of listings.
    pub(crate) by_age: std::collections::BTreeMap<u64, PeerId>,
    births: u64,
    /// The age of the next peer to be looked at for eviction.
    looked_at: u64,
    /// What peers have spent whose records are being made anew.
    pub(crate) debts: VecDeque<(Nid, Budget)>,
    /// Peers that had NIDs which they have released.
    previous_owners: VecDeque<PreviousOwner>,
}

impl Peers {
    pub(crate) fn new(seed: u64, policy: Policy) -> Self {
        Self {
            peers: SlotMap::with_key(),
            nis: SlotMap::with_key(),
            policy,
            by_nid: Lookup::new(seed),
            #[cfg(test)]
            lookups: crate::table::Count::default(),
            by_age: std::collections::BTreeMap::new(),
            births: 0,
            looked_at: 0,
            debts: VecDeque::new(),
            previous_owners: VecDeque::new(),
        }
    }

    pub(crate) fn find(&self, nid: Nid) -> Option<PeerNiId> {
        #[cfg(test)]
        self.lookups.0.update(|n| n + 1);
        self.by_nid.get(&nid).copied()
    }

    /// The interface `nid`, by a name that may be out of date, if there is one.
    #[inline]
    pub(crate) fn find_as(&self, id: Option<PeerNiId>, nid: Nid) -> Option<PeerNiId> {
        let is_it = |id: &PeerNiId| self.nis.get(*id).is_some_and(|n| n.nid == nid && !n.deleting);
        match id {
            Some(id) if is_it(&id) => {
                debug_assert!(self.by_nid.get(&nid) == Some(&id), "two interfaces {nid}");
                Some(id)
            }
            _ => self.find(nid),
        }
    }

    /// How many NIDs are known.
    pub(crate) fn nids(&self) -> usize {
        self.by_nid.len()
    }

    /// The peer that owns `nid`.
    pub(crate) fn owner(&self, nid: Nid) -> Option<PeerId> {
        self.find(nid).and_then(|id| self.nis.get(id)).map(|n| n.peer)
    }

    /// The identity behind `nid`; itself if unknown (O-47).
    pub(crate) fn primary_of(&self, nid: Nid) -> Nid {
        self.owner(nid).and_then(|p| self.peers.get(p)).map_or(nid, |p| p.primary)
    }

    /// What a peer is known by: its primary NID and its interfaces.
    pub(crate) fn identity(&self, id: PeerId) -> Option<(Nid, SmallVec<[PeerNiId; 4]>)> {
        self.peers.get(id).map(|p| (p.primary, p.nis().collect()))
    }

    /// The identity behind an interface.
    pub(crate) fn primary_behind(&self, id: PeerNiId) -> Option<Nid> {
        self.nis.get(id).and_then(|n| self.peers.get(n.peer)).map(|p| p.primary)
    }

    /// Whether two NIDs belong to one known peer (M-21).
    pub(crate) fn same(&self, a: Nid, b: Nid) -> bool {
        matches!((self.owner(a), self.owner(b)), (Some(x), Some(y)) if x == y)
    }

    /// A new peer without interfaces, identified by `primary`.
    pub(crate) fn create(&mut self, primary: Nid, facts: Facts) -> PeerId {
        // O-27
        let facts = if primary.is_loopback() { facts | Facts::NO_DISCOVERY } else { facts };
        let born = self.births;
        self.births += 1;
        let debt = self.debts.iter().position(|(nid, _)| *nid == primary);
        let debt = debt.and_then(|at| self.debts.remove(at)).map(|(_, spent)| spent);
        let disc = Discovery::of_new_peer(debt.unwrap_or_default());
        let id = self.peers.insert(Peer {
            primary,
            facts,
            nets: SmallVec::new(),
            seq: 0,
            net_floor: 0,
            disc,
            numbering: Numbering::default(),
            locked_at: Instant::ZERO,
            gateway: Gateway::default(),
            born,
            pings: Budget::default(),
            refusal_reported: None,
        });
        self.by_age.insert(born, id);
        id
    }

    /// Gives `peer` a new interface `nid` (O-28, O-30).
    pub(crate) fn attach(
        &mut self,
        peer: PeerId,
        nid: Nid,
        local: Option<NetTunables>,
        max: usize,
    ) -> Result<PeerNiId, Errno> {
        if self.nis.len() >= max {
            return Err(Errno::ENOSPC);
        }
        if !self.peers.contains_key(peer) {
            return Err(Errno::ENOENT);
        }
        let credits = local.map_or(0, |t| t.peer_credits);
        let id = self.nis.insert(PeerNi {
            nid,
            peer,
            local,
            port: Port::new(credits),
            queued_bytes: 0,
            received: 0,
            last_alive: None,
            heard_by: None,
            preferred: None,
            mapping: None,
            notified: None,
            knocked: None,
            announced_down: false,
            noted_lost: false,
            usable_since: None,
            transit: TransitCredits::default(),
            failures: PeerNiFailures::default(),
            deleting: false,
        });
        self.by_nid.insert(nid, id);
        self.link(peer, id, nid);
        Ok(id)
    }

    /// Puts an interface into the lists of `peer` (O-4).
    fn link(&mut self, peer: PeerId, id: PeerNiId, nid: Nid) {
        let Some(p) = self.peers.get_mut(peer) else { return };
        match p.nets.iter_mut().find(|n| n.net == nid.net()) {
            Some(n) => n.nis.push(id),
            None => p.nets.push(PeerNet {
                net: nid.net(),
                nis: SmallVec::from_slice(&[id]),
                seq: 0,
                grade: Grade::default(),
                turn: Turn::default(),
                floor: 0,
                path_floor: 0,
                health: HEALTH_MAX,
            }),
        }
        self.grade(peer, id);
        self.primary_first(peer);
        // A list of thousands is not to be looked through for each of them.
        let health = self.nis.get(id).map_or(0, |n| n.port.health);
        if let Some(n) = self.net_mut(peer, nid.net()) {
            n.health = if n.nis.len() == 1 { health } else { n.health.max(health) };
        }
    }

    /// Takes an interface out of its peer's lists. True if the peer has none left.
    pub(crate) fn unlink(&mut self, id: PeerNiId) -> bool {
        let Some((peer, nid)) = self.nis.get(id).map(|n| (n.peer, n.nid)) else { return false };
        let Some(p) = self.peers.get_mut(peer) else { return false };
        if let Some(n) = p.nets.iter_mut().find(|n| n.net == nid.net()) {
            n.nis.retain(|x| *x != id);
        }
        p.nets.retain(|n| !n.nis.is_empty());
        let empty = p.nets.is_empty();
        let health = self.nis.get(id).map_or(0, |n| n.port.health);
        let nis = &self.nis;
        if let Some(n) =
            self.peers.get(peer).and_then(|p| p.nets.iter().find(|n| n.net == nid.net()))
            && n.health <= health
            && !n.nis.iter().filter_map(|id| nis.get(*id)).any(|x| x.port.health >= health)
        {
            self.net_health(peer, nid.net());
        }
        empty
    }

    fn net_mut(&mut self, peer: PeerId, net: Net) -> Option<&mut PeerNet> {
        self.peers.get_mut(peer)?.nets.iter_mut().find(|n| n.net == net)
    }

    /// Moves an interface to another peer (O-35.6).
    pub(crate) fn rehome(&mut self, id: PeerNiId, peer: PeerId) -> bool {
        let emptied = self.unlink(id);
        if let Some(n) = self.nis.get_mut(id) {
            n.peer = peer;
            let nid = n.nid;
            self.link(peer, id, nid);
        }
        emptied
    }

    /// Forgets the NID of an interface, and the interface too unless a message still holds it.
    pub(crate) fn forget_ni(&mut self, id: PeerNiId) {
        let Some(n) = self.nis.get_mut(id) else { return };
        n.deleting = true;
        let (nid, refs) = (n.nid, n.port.refs);
        if self.by_nid.get(&nid) == Some(&id) {
            self.by_nid.remove(&nid);
        }
        if refs == 0 {
            self.nis.remove(id);
        }
    }

    /// Forgets a peer whose interfaces are gone. Its parked messages are returned.
    pub(crate) fn forget(&mut self, id: PeerId) -> Option<Peer> {
        let peer = self.peers.remove(id)?;
        self.by_age.remove(&peer.born);
        Some(peer)
    }

    /// One message less on an interface.
    pub(crate) fn release(&mut self, id: PeerNiId) {
        if let Some(n) = self.nis.get_mut(id) {
            n.port.refs = n.port.refs.saturating_sub(1);
            if n.port.refs == 0 && n.deleting {
                self.nis.remove(id);
            }
        }
    }

    /// One more message is in hand that came from an interface of a peer.
    #[inline]
    pub(crate) fn count_received(&mut self, from: Option<PeerNiId>) {
        if let Some(n) = from.and_then(|id| self.nis.get_mut(id)) {
            n.received += 1;
        }
    }

    /// One less.
    #[inline]
    pub(crate) fn count_answered(&mut self, from: Option<PeerNiId>) {
        if let Some(n) = from.and_then(|id| self.nis.get_mut(id)) {
            n.received = n.received.saturating_sub(1);
        }
    }

    /// One more turn of a peer's interface (S-60), and `refs` more messages that use it. Returns its
    /// NID.
    pub(crate) fn count_turn(&mut self, id: PeerNiId, refs: u32) -> Option<Nid> {
        let pni = self.nis.get_mut(id)?;
        pni.port.refs += refs;
        let nid = pni.nid;
        if let Some(peer) = self.peers.get_mut(pni.peer) {
            peer.seq += 1;
            pni.port.seq = peer.seq;
            let net = nid.net();
            if let Some(net) = peer.nets.iter_mut().find(|n| n.net == net) {
                net.seq = peer.seq;
            }
        }
        Some(nid)
    }

    /// Moves the network and the interface of the primary NID to the front (O-4).
    pub(crate) fn primary_first(&mut self, peer: PeerId) {
        let Some(p) = self.peers.get_mut(peer) else { return };
        let primary = p.primary;
        if let Some(at) = p.nets.iter().position(|n| n.net == primary.net()) {
            let nis = &self.nis;
            let has = |id: &PeerNiId| nis.get(*id).is_some_and(|n| n.nid == primary);
            if let Some(net) = p.nets.get_mut(at)
                && let Some(i) = net.nis.iter().position(has)
                && (at, i) != (0, 0)
            {
                let id = net.nis.remove(i);
                net.nis.insert(0, id);
                let net = p.nets.remove(at);
                p.nets.insert(0, net);
            }
        }
    }

    /// Recomputes the health of a peer's network (O-6).
    pub(crate) fn net_health(&mut self, peer: PeerId, net: Net) {
        let nis = &self.nis;
        if let Some(p) = self.peers.get_mut(peer)
            && let Some(n) = p.nets.iter_mut().find(|n| n.net == net)
        {
            n.health = n
                .nis
                .iter()
                .filter_map(|id| nis.get(*id))
                .map(|n| n.port.health)
                .max()
                .unwrap_or(0);
        }
    }
}

/// The previous owner of a NID.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct PreviousOwner {
    pub(super) until: Instant,
    pub(super) nid: Nid,
    pub(super) peer: PeerId,
}
