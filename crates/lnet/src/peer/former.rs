//! NIDs that nodes have given up: a message goes to a node, and whoever has just heard from it, under
//! a name that it has no more since, still means that node.
//!
//! So for one transaction time a message of the user's for such a NID goes to the node that had it,
//! unless the NID is somebody's again. Kernel nodes make a new peer of it, which nobody answers for.
//!
//! And for longer: whoever speaks at such a NID and says that it is that node, is it, if nobody can be
//! asked (`claims.rs`).

use std::collections::VecDeque;

use lnet_types::{Instant, MsgId, Nid, PeerId};

use crate::Node;
use crate::msg::Role;
use crate::peer::Peers;
use crate::send::is_internal;

/// More than so many are not remembered.
const FORMER_MAX: usize = 256;

/// Who had a NID.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Former {
    until: Instant,
    nid: Nid,
    peer: PeerId,
}

impl Peers {
    /// Who had `nid` last, if that is known.
    pub(crate) fn who_had(&self, nid: Nid) -> Option<PeerId> {
        self.former.iter().rev().find(|f| f.nid == nid).map(|f| f.peer)
    }
}

impl Node {
    /// Peer `id` has said that it has `nid` no more, and goes on without.
    pub(crate) fn given_up(&mut self, now: Instant, id: PeerId, nid: Nid) {
        if !self.tunables.conduct.follows_moved_nids || !self.peers.peers.contains_key(id) {
            return;
        }
        let until = now + self.tunables.transaction();
        let former: &mut VecDeque<_> = &mut self.peers.former;
        former.retain(|f| f.nid != nid);
        former.push_back(Former { until, nid, peer: id });
        if former.len() > FORMER_MAX {
            former.pop_front();
        }
    }

    /// `nid` of peer `id` is on a network that we have left, and so is forgotten. That it had it is not:
    /// when we are back, it may be what is known of that node to whom we can speak.
    pub(crate) fn lost_sight(&mut self, now: Instant, id: PeerId, nid: Nid) {
        let former: &mut VecDeque<_> = &mut self.peers.former;
        if !self.tunables.conduct.follows_moved_nids || former.len() >= FORMER_MAX {
            return;
        }
        former.retain(|f| f.nid != nid);
        // Nothing is led there, so it does not stand before what is looked at first.
        former.push_front(Former { until: now, nid, peer: id });
    }

    /// Leads a message to the node that had the NID that it is for.
    pub(crate) fn follow(&mut self, now: Instant, id: MsgId) {
        // The newest is the last.
        if self.peers.former.back().is_none_or(|f| f.until <= now) {
            return;
        }
        let Some(msg) = self.msgs.get_mut(id) else { return };
        let is_users = matches!(msg.role, Role::Request | Role::Copy);
        if !is_users || is_internal(&msg.hdr.kind) || self.peers.find(msg.hdr.dst).is_some() {
            return;
        }
        let had = self.peers.former.iter().rev().find(|f| f.nid == msg.hdr.dst && now < f.until);
        if let Some(peer) = had.and_then(|f| self.peers.peers.get(f.peer)) {
            msg.hdr.dst = peer.primary;
        }
    }

    /// Whether peer `id` had `nid` before, by its own word or as far as we saw.
    pub(crate) fn had(&self, id: PeerId, nid: Nid) -> bool {
        self.peers.former.iter().any(|f| f.nid == nid && f.peer == id)
    }
}
