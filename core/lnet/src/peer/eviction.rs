//! Eviction of peers that are known by traffic alone. Any node may send messages under NIDs that it
//! invents, or name such NIDs in its requests, and each of them makes a record (O-24). So that no node
//! fills the table for the others, its last eighth is for what operators name, and where a share is full
//! the oldest record goes of which no more is known than that it was named: its next message makes it
//! anew.

use lnet_types::PeerId;

use crate::peer::{Facts, Peer, Peers};
use crate::timers::{Timer, Timers};

/// Limit of the peers that one eviction looks at.
const LOOKS_MAX: usize = 64;

/// What a record of a peer is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An operator names it.
    Ordered,
    /// A message has come from it, or is for it.
    Traffic,
    /// A message that another node has brought names it as its source or its target.
    Named,
}

impl Purpose {
    /// How many interfaces of `max` there may be with the new one.
    const fn share(self, max: usize) -> usize {
        match self {
            Self::Ordered => max,
            Self::Traffic => max - max / 8,
            Self::Named => max.div_ceil(2),
        }
    }
}

impl Peers {
    /// Whether there is room for one more interface of a peer, perhaps since another peer was evicted.
    pub(crate) fn has_room_for(
        &mut self,
        timers: &mut Timers,
        purpose: Purpose,
        max: usize,
    ) -> bool {
        if self.nis.len() < purpose.share(max) {
            return true;
        }
        let Some(id) = self.next_to_evict() else { return false };
        let nis: Vec<_> = self.peers.get(id).into_iter().flat_map(Peer::nis).collect();
        for ni in nis {
            self.unlink(ni);
            timers.stop(Timer::RecoverPeer(ni));
            self.forget_ni(ni);
        }
        for timer in [Timer::Merge(id), Timer::Discover(id)] {
            timers.stop(timer);
        }
        self.forget(id);
        true
    }

    /// The next peer that may go, oldest first. Where few may, several calls find the next one: each goes
    /// on where the last one has ended.
    fn next_to_evict(&mut self) -> Option<PeerId> {
        for _ in 0..LOOKS_MAX {
            let ahead = self.by_age.range(self.looked_at..).next();
            let (&born, &id) = ahead.or_else(|| self.by_age.first_key_value())?;
            self.looked_at = born + 1;
            if self.peers.get(id).is_some_and(|peer| self.is_expendable(peer)) {
                return Some(id);
            }
        }
        None
    }

    /// Whether no more is known of a peer than its traffic says, and nothing is under way that needs its
    /// record. That it calls itself Multi-Rail is no more than its word; a discovery that succeeded is.
    fn is_expendable(&self, peer: &Peer) -> bool {
        let disc = &peer.disc;
        let is_idle = || {
            peer.nis().all(|id| {
                let pni = self.nis.get(id);
                pni.is_some_and(|pni| pni.port.refs == 0 && pni.received == 0)
            })
        };
        !peer.facts.intersects(Facts::CONFIGURED | Facts::LOCK_PRIMARY)
            && !disc.discovered
            && !peer.gateway.is_router()
            && disc.parked.is_empty()
            && disc.waiters.is_empty()
            && disc.learn.in_flight().is_none()
            && disc.teach.in_flight().is_none()
            && is_idle()
    }
}
