//! What peers say of themselves and is not taken: contained here, named, counted. Ping data pass
//! through [`Node::taken`] before anything looks at them, and each peer pays for the work that its
//! data make from a [`Budget`](crate::budget::Budget) of its own, so that one that talks too much slows
//! down only itself. The reasons are in `refusal.rs`.
//!
//! Who may have a NID that two peers claim is decided in `claims.rs`.

use core::time::Duration;
use std::collections::BTreeSet;

use lnet_types::{Errno, Instant, Nid, PeerId};
use lnet_wire::ping::PingInfo;

use crate::Node;
use crate::notice::Notice;
use crate::peer::Facts;
use crate::peer::refusal::Refusal;
use crate::timers::Timer;

/// Time between two notices about the same peer.
const NOTICE_GAP: Duration = Duration::from_secs(1);

/// What merging ping data costs: an entry of the old or the new list is 1, a list at least this.
const MERGE_MIN: usize = 16;

/// So much may be merged of one peer at once …
const MERGE_BURST: u32 = 16_384;

/// … and so much per second: two changes of the largest list, hundreds of an ordinary one.
const MERGE_RATE: u32 = 8192;

/// Peers whose record was made anew and who have a debt from before, at most.
const DEBTORS_MAX: usize = 64;

impl Node {
    /// Counts a rejected announcement of a peer and reports it, for each peer at most
    /// once a second.
    pub(crate) fn reject(&mut self, id: PeerId, nid: Option<Nid>, why: Refusal) {
        self.counts.refused(why);
        let now = self.now();
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        if peer.refusal_reported.is_none_or(|at| now.saturating_since(at) >= NOTICE_GAP) {
            peer.refusal_reported = Some(now);
            let primary = peer.primary;
            self.outbox.notice(Notice::Refused { primary, nid, why });
        }
    }

    /// What peers have said of themselves and was not taken, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        self.counts.refusals()
    }

    /// Ping data of peer `id` without what cannot be: NIDs that are none or ours, NIDs named twice
    /// (the first counts), and more than `max_interfaces`.
    pub(crate) fn taken(&mut self, id: PeerId, mut info: PingInfo) -> PingInfo {
        let Some(peer) = self.peers.peers.get(id) else { return info };
        // This node also meets itself as a peer.
        let ourself = peer.primary.is_loopback() || self.nis.owns(peer.primary);
        let own: BTreeSet<Nid> = self.nis.values().map(|ni| ni.nid).collect();
        let mut seen = BTreeSet::new();
        let mut bad = None;
        info.entries.retain(|e| {
            let why = if e.nid.is_any() || e.nid.is_loopback() {
                Some(Refusal::NoNid)
            } else if !ourself && own.contains(&e.nid) {
                Some(Refusal::OurNid)
            } else {
                None
            };
            bad = bad.or_else(|| why.map(|why| (e.nid, why)));
            why.is_none() && seen.insert(e.nid)
        });
        let limit = self.tunables.max_interfaces as usize;
        if info.entries.len() > limit {
            info.entries.truncate(limit);
            self.reject(id, None, Refusal::TooMany);
        }
        if let Some((nid, why)) = bad {
            self.reject(id, Some(nid), why);
        }
        info
    }

    /// Whether the data that wait at peer `id` may be merged now. If not, that is done when their
    /// time has come; newer ones may take their place until then.
    pub(crate) fn may_merge(&mut self, now: Instant, id: PeerId) -> bool {
        let Some(peer) = self.peers.peers.get_mut(id) else { return false };
        let new = peer.disc.received.as_ref().map_or(0, |said| said.info.entries.len());
        self.may_spend(now, id, new)
    }

    /// The same for a record that is to be made anew.
    pub(crate) fn may_rebuild(&mut self, now: Instant, id: PeerId) -> bool {
        self.may_spend(now, id, 0)
    }

    /// Whether data of peer `id` came too fast and wait.
    pub(crate) fn merge_is_held(&self, now: Instant, id: PeerId) -> bool {
        self.timers.at(Timer::Merge(id)).is_some_and(|until| now < until)
    }

    fn may_spend(&mut self, now: Instant, id: PeerId, new: usize) -> bool {
        if self.merge_is_held(now, id) {
            return false;
        }
        let Some(peer) = self.peers.peers.get_mut(id) else { return false };
        let cost = u32::try_from(MERGE_MIN.max(new + peer.ni_count())).unwrap_or(u32::MAX);
        match peer.disc.merges.take(now, cost, MERGE_BURST, MERGE_RATE) {
            Ok(()) => {
                self.timers.stop(Timer::Merge(id));
                true
            }
            Err(until) => {
                self.timers.set(Timer::Merge(id), until);
                self.reject(id, None, Refusal::TooFast);
                false
            }
        }
    }

    /// Remembers what a peer has spent whose record is made anew.
    pub(crate) fn keep_debt(&mut self, id: PeerId) {
        let Some(peer) = self.peers.peers.get(id) else { return };
        if !peer.disc.merges.is_untouched() {
            self.peers.debts.push_back((peer.primary, peer.disc.merges));
            if self.peers.debts.len() > DEBTORS_MAX {
                self.peers.debts.pop_front();
            }
        }
    }

    /// Counts and reports why a NID that peer `id` lists was not added.
    pub(crate) fn not_added(&mut self, id: PeerId, nid: Nid, errno: Errno) {
        let primary = self.peers.peers.get(id).map_or(Nid::ANY, |p| p.primary);
        match errno {
            Errno::EPERM | Errno::EEXIST => {
                self.counts.refused(Refusal::Configured);
                self.outbox.notice(Notice::Contradicted { primary, announced: nid, errno });
            }
            Errno::ENOSPC => self.reject(id, Some(nid), Refusal::NoRoom),
            _ => tracing::warn!(%nid, %errno, "announced, but not taken"),
        }
    }

    /// Whether there is room for one more NID that is known by a claim alone. Half of the table is
    /// for those that have sent messages themselves, or are configured.
    pub(crate) fn has_room_for_hearsay(&self, id: PeerId) -> bool {
        let configured = |p: &crate::peer::Peer| p.facts.contains(Facts::CONFIGURED);
        self.peers.nis.len() < self.tunables.peers_max as usize / 2
            || self.peers.peers.get(id).is_some_and(configured)
    }
}
