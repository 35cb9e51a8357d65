//! Previous owners of NIDs. A message goes to a node: a sender that has just heard from it under a NID
//! that it has released since still means that node.
//!
//! So for `previous_nid_time` a user's message for such a NID, or the answer to one, goes to its previous
//! owner, unless the NID has a new one. Kernel nodes make a new peer of it, from which no answer comes.
//!
//! The record outlives that time: a node that sends from such a NID and lists what its previous
//! owner had is that node, if no other interface of it answers (`claims.rs`).

use core::time::Duration;

use lnet_types::{Instant, Nid, PeerId};

use crate::Tunables;
use crate::msg::{Msg, Role};
use crate::peer::{Peers, PreviousOwner};
use crate::portal::is_internal;

/// Limit of records.
const PREVIOUS_MAX: usize = 256;

impl Peers {
    /// Whether messages for some NID go to its previous owner.
    pub(crate) fn has_previous_owners(&self, now: Instant) -> bool {
        // The newest is the last.
        self.previous_owners.back().is_some_and(|f| now < f.until)
    }

    /// Peer `id` has announced that it has released `nid`.
    pub(crate) fn given_up(&mut self, t: &Tunables, now: Instant, id: PeerId, nid: Nid) {
        if !t.conduct.follows_moved_nids || !self.peers.contains_key(id) {
            return;
        }
        let until = now + Duration::from_secs(t.previous_nid_time as u64);
        self.previous_owners.retain(|f| f.nid != nid);
        self.previous_owners.push_back(PreviousOwner { until, nid, peer: id });
        if self.previous_owners.len() > PREVIOUS_MAX {
            self.previous_owners.pop_front();
        }
    }

    /// `nid` of peer `id` is on a network that we have left, so its record goes. The previous owner stays
    /// recorded: when we are back there, this may be the only NID of that node that we can reach.
    pub(crate) fn lost_sight(&mut self, t: &Tunables, now: Instant, id: PeerId, nid: Nid) {
        if !t.conduct.follows_moved_nids || self.previous_owners.len() >= PREVIOUS_MAX {
            return;
        }
        self.previous_owners.retain(|f| f.nid != nid);
        // No message is redirected, so it does not stand before those that `follow` looks at.
        self.previous_owners.push_front(PreviousOwner { until: now, nid, peer: id });
    }

    /// Redirects a message for a released NID to its previous owner. An answer leaves from any interface of
    /// ours then: the one that its request came to may not reach the others of that node (DEC-15).
    pub(crate) fn follow(&self, now: Instant, msg: &mut Msg) {
        let is_users = matches!(
            msg.role,
            Role::Request | Role::Copy | Role::Repeat | Role::GetIn | Role::AckOut
        );
        if !is_users || is_internal(&msg.hdr.kind) || self.find(msg.hdr.dst).is_some() {
            return;
        }
        let had = self.previous_owners.iter().rev().find(|f| f.nid == msg.hdr.dst && now < f.until);
        if let Some(peer) = had.and_then(|f| self.peers.get(f.peer)) {
            msg.hdr.dst = peer.primary;
            if msg.may_move() {
                msg.src = None;
            }
        }
    }

    /// The peer that had `nid` last, if it has no owner now.
    pub(crate) fn last_owner(&self, nid: Nid) -> Option<PeerId> {
        self.previous_owners.iter().rev().find(|f| f.nid == nid).map(|f| f.peer)
    }

    /// Whether peer `id` is a previous owner of `nid`.
    pub(crate) fn had(&self, id: PeerId, nid: Nid) -> bool {
        self.previous_owners.iter().any(|f| f.nid == nid && f.peer == id)
    }
}
