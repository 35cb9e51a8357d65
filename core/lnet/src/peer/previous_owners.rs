//! Previous owners of NIDs. A message goes to a node: a sender that has just heard from it under a NID
//! that it has released since still means that node.
//!
//! So for `previous_nid_time` a user's message for such a NID goes to its previous owner, unless the
//! NID has a new one. Kernel nodes make a new peer of it, from which no answer comes.
//!
//! The record outlives that time: a node that sends from such a NID and lists what its previous
//! owner had is that node, if no other interface of it answers (`claims.rs`).

use core::time::Duration;
use std::collections::VecDeque;

use lnet_types::{Instant, MsgId, Nid, PeerId};

use crate::Node;
use crate::msg::Role;
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
}

impl Node {
    /// Peer `id` has announced that it has released `nid`.
    pub(crate) fn given_up(&mut self, now: Instant, id: PeerId, nid: Nid) {
        if !self.tunables.conduct.follows_moved_nids || !self.peers.peers.contains_key(id) {
            return;
        }
        let until = now + Duration::from_secs(self.tunables.previous_nid_time as u64);
        let previous: &mut VecDeque<_> = &mut self.peers.previous_owners;
        previous.retain(|f| f.nid != nid);
        previous.push_back(PreviousOwner { until, nid, peer: id });
        if previous.len() > PREVIOUS_MAX {
            previous.pop_front();
        }
    }

    /// `nid` of peer `id` is on a network that we have left, so its record goes. The previous owner stays
    /// recorded: when we are back there, this may be the only NID of that node that we can reach.
    pub(crate) fn lost_sight(&mut self, now: Instant, id: PeerId, nid: Nid) {
        let previous: &mut VecDeque<_> = &mut self.peers.previous_owners;
        if !self.tunables.conduct.follows_moved_nids || previous.len() >= PREVIOUS_MAX {
            return;
        }
        previous.retain(|f| f.nid != nid);
        // No message is redirected, so it does not stand before those that `follow` looks at.
        previous.push_front(PreviousOwner { until: now, nid, peer: id });
    }

    /// Redirects a message for a released NID to its previous owner.
    pub(crate) fn follow(&mut self, now: Instant, id: MsgId) {
        let Some(msg) = self.msgs.get_mut(id) else { return };
        let is_users = matches!(msg.role, Role::Request | Role::Copy);
        if !is_users || is_internal(&msg.hdr.kind) || self.peers.find(msg.hdr.dst).is_some() {
            return;
        }
        let had =
            self.peers.previous_owners.iter().rev().find(|f| f.nid == msg.hdr.dst && now < f.until);
        if let Some(peer) = had.and_then(|f| self.peers.peers.get(f.peer)) {
            msg.hdr.dst = peer.primary;
        }
    }

    /// Whether peer `id` is a previous owner of `nid`.
    pub(crate) fn had(&self, id: PeerId, nid: Nid) -> bool {
        self.peers.previous_owners.iter().any(|f| f.nid == nid && f.peer == id)
    }
}
