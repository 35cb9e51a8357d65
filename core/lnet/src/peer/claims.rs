//! Who has a NID that two peers claim. Kernel nodes believe the last one who says so (O-35): a node
//! that lies, or is configured wrongly, can take another's traffic away with one push. Here a NID that
//! another peer has goes over only if both sides say the same:
//!
//! ```text
//!   A lists n, and n is B's ──► the data came from n itself, or B's data list A, or A is our
//!                          │    gateway to n's network ──► it is A's
//!                          ╰──► n is asked (a ping to just this NID) ─┬─ its answer lists A ──► the
//!                                                                     │  answer is B's data: merged
//!                                                                     ╰─ it does not, or none ──► B
//!                                                                        keeps n; refused, counted
//! ```
//!
//! (Without an answer this is repeated some times: `retry.rs`; then, if the data come from a NID that B
//! had before, B is taken to be there again. If nothing leads from here to n, B is asked at another of
//! its interfaces.)
//!
//! So a node whose interfaces were met one by one is put together as before, one round trip later, and
//! an address that moves from one node to another follows. Profile `kernel` does as kernel nodes do.

use core::cmp::Reverse;

use lnet_types::{Instant, MdId, Net, Nid, PeerId};
use lnet_wire::ping::{Features, PingEntry, PingInfo};

use crate::internal::PingTo;
use crate::peer::Facts;
use crate::peer::cause::Cause;
use crate::peer::merge::primary_of;
use crate::peer::refusal::Refusal;
use crate::peer::sync::{Announcement, is_later};
use crate::portal::owner::Internal;
use crate::{Event, EventKind, Node};

/// Claims of one peer that are remembered at once, and questions per second that they may cause.
const CLAIMS_MAX: usize = 64;

impl Node {
    /// Notes which NIDs of others the data of peer `id` list.
    pub(crate) fn note_claims(&mut self, id: PeerId, info: &PingInfo) {
        let others = info.entries.iter().map(|e| e.nid);
        let others = others.filter(|nid| self.peers.owner(*nid).is_some_and(|o| o != id));
        let claims = others.take(CLAIMS_MAX).collect();
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.disc.claims = claims;
        }
    }

    /// Whether peer `id` may have `nid`, which its data list, said by its NID `by`. If that is not
    /// known, the node at `nid` is asked.
    pub(crate) fn is_conceded(&mut self, now: Instant, id: PeerId, by: Nid, nid: Nid) -> bool {
        if self.tunables.conduct.believes_last_claim || nid == by {
            return true;
        }
        let Some(owner) = self.peers.owner(nid).filter(|owner| *owner != id) else { return true };
        let Some(other) = self.peers.peers.get(owner) else { return true };
        if other.facts.contains(Facts::CONFIGURED) {
            // Refused for that reason by those who add it.
            return true;
        }
        if other.disc.claims.iter().any(|claim| self.peers.owner(*claim) == Some(id)) {
            return true;
        }
        let is_silent = self.peers.peers.get(id).is_some_and(|p| p.disc.silent == Some(owner));
        if self.is_behind(id, nid) || is_silent && self.peers.had(owner, by) {
            return true;
        }
        let at = self.where_to_ask(owner, nid);
        self.ask(now, id, at);
        false
    }

    /// Where to ask peer `owner` about its `nid`: there, or, if nothing leads there from here, at the
    /// best of its interfaces that something does lead to.
    fn where_to_ask(&self, owner: PeerId, nid: Nid) -> Nid {
        let leads_to =
            |nid: Nid| self.is_on(nid.net()) || !self.router.routes.to(nid.net()).is_empty();
        if leads_to(nid) {
            return nid;
        }
        let nis = self.peers.peers.get(owner).into_iter().flat_map(|peer| peer.nis());
        let others = nis.filter_map(|id| self.peers.nis.get(id)).filter(|n| leads_to(n.nid));
        // The first of the best.
        let best = others.min_by_key(|n| (!self.is_on(n.nid.net()), Reverse(n.port.health)));
        best.map_or(nid, |n| n.nid)
    }

    /// Whether this node has an interface on `net`.
    fn is_on(&self, net: Net) -> bool {
        self.nis.nets().iter().any(|n| n.net == net && !n.nis.is_empty())
    }

    /// Whether `nid` is on a network that peer `id` is our gateway to. What lies there is in its
    /// hands anyway, and only it could be queried on the way: no other node can report of its far
    /// side.
    pub(crate) fn is_behind(&self, id: PeerId, nid: Nid) -> bool {
        let net = nid.net();
        !self.is_on(net) && self.router.routes.to(net).iter().any(|route| route.gateway == id)
    }

    /// Whether a push of `source` may come from `sender`: another of its interfaces, or a router of
    /// ours.
    pub(crate) fn speaks_for(&self, sender: Nid, source: Nid) -> bool {
        let (from, named) = (self.peers.owner(sender), self.peers.owner(source));
        let is_router = |id| self.peers.peers.get(id).is_some_and(|p| p.gateway.is_router());
        sender == source
            || from == named
            || from.is_some_and(is_router)
            || self.tunables.conduct.believes_last_claim
    }

    /// Asks the node at `nid` who it is, on account of what `claimant` says.
    pub(crate) fn ask(&mut self, now: Instant, claimant: PeerId, nid: Nid) {
        if !self.may_ask(now, claimant) {
            return self.reject(claimant, Some(nid), Refusal::TooFast);
        }
        let owner = self.peers.owner(nid).and_then(|id| self.peers.peers.get(id));
        let seq = owner.map_or(0, |peer| peer.disc.peer_seq);
        let Some(peer) = self.peers.peers.get(claimant) else { return };
        // If it is the same node, so are its data. To just this NID, whichever node has it.
        let (bytes, to) = (peer.disc.need, PingTo { direct: true, ..PingTo::from(nid) });
        let what = Internal::Ask { claimant, nid, seq };
        let Ok(md) = self.internal_ping(now, to, what, bytes, self.own_limits()) else {
            // Nothing leads there.
            return self.unanswered(now, claimant, nid);
        };
        if let Some(peer) = self.peers.peers.get_mut(claimant) {
            peer.disc.questions.push(md);
        }
    }

    /// Whether pings to NIDs that peer `id` claims are under way: only their answers tell which of these
    /// are its own.
    pub(crate) fn awaits_answers(&mut self, id: PeerId) -> bool {
        let Some(peer) = self.peers.peers.get_mut(id) else { return false };
        peer.disc.questions.retain(|md| self.portals.mds.contains_key(*md));
        !peer.disc.questions.is_empty()
    }

    /// Such a ping has ended. Operations that wait for the last one end as soon as its answer is merged.
    fn question_ended(&mut self, now: Instant, claimant: PeerId, md: MdId) {
        let Some(peer) = self.peers.peers.get_mut(claimant) else { return };
        peer.disc.questions.retain(|question| *question != md);
        if !peer.disc.waiters.is_empty() {
            self.query(now, claimant, Cause::Used);
        }
    }

    /// Whether another question may be asked on account of what `claimant` says.
    pub(crate) fn may_ask(&mut self, now: Instant, claimant: PeerId) -> bool {
        let max = CLAIMS_MAX as u32;
        let peer = self.peers.peers.get_mut(claimant);
        peer.is_some_and(|peer| peer.disc.asks.take(now, 1, max, max).is_ok())
    }

    /// An event on the descriptor of such a question.
    pub(crate) fn ask_event(
        &mut self,
        now: Instant,
        claimant: PeerId,
        (nid, seq): (Nid, u32),
        event: &Event,
        bytes: &[u8],
    ) {
        match (event.kind, event.status) {
            (EventKind::Reply, Ok(())) => self.asked(now, claimant, (nid, seq), bytes),
            (EventKind::Send | EventKind::Reply, Err(_)) => {
                self.abandon(event);
                self.unanswered(now, claimant, nid);
            }
            (EventKind::Unlink, _) => self.unanswered(now, claimant, nid),
            (EventKind::Send, Ok(())) | (EventKind::Put | EventKind::Get | EventKind::Ack, _) => {
                return;
            }
        }
        self.question_ended(now, claimant, event.md);
    }

    fn unanswered(&mut self, now: Instant, claimant: PeerId, nid: Nid) {
        self.query(now, claimant, Cause::Unconfirmed);
        let owner = self.peers.owner(nid);
        if let Some(peer) = self.peers.peers.get_mut(claimant) {
            peer.disc.silent = owner;
        }
        if owner != Some(claimant) {
            self.reject(claimant, Some(nid), Refusal::Claimed);
        }
    }

    fn asked(&mut self, now: Instant, claimant: PeerId, (nid, seq): (Nid, u32), bytes: &[u8]) {
        let Some(owner) = self.peers.owner(nid) else { return };
        if let Some(peer) = self.peers.peers.get_mut(claimant) {
            peer.disc.silent = None;
        }
        let Ok(parsed) = PingInfo::parse(bytes) else {
            return self.reject(owner, Some(nid), Refusal::Malformed);
        };
        let agrees = |e: &PingEntry| self.peers.owner(e.nid) == Some(claimant);
        if !parsed.info.entries.iter().any(agrees) {
            self.reject(claimant, Some(nid), Refusal::Claimed);
            // But what came in its name may have been its own, by a router that is not known at this
            // NID yet. It will not say so again; this is what it says.
        }
        if parsed.truncated().is_some() {
            return self.query(now, owner, Cause::Contradicted);
        }
        let known = self.peers.peers.get(owner).filter(|p| p.disc.discovered);
        let is_overtaken = known.is_some_and(|p| p.disc.peer_seq != seq);
        if is_overtaken && known.is_some_and(|p| is_later(p.disc.peer_seq, parsed.info.seq)) {
            // By a push, or a new incarnation has answered: a further ping says which.
            return self.query(now, owner, Cause::Contradicted);
        }
        // What a node says at this NID is what counts for the owner.
        let info = self.taken(owner, parsed.info);
        if let Some(peer) = self.peers.peers.get_mut(owner)
            && self.tunables.discovery != 0
            && info.features.contains(Features::DISCOVERY)
        {
            peer.facts -= Facts::NO_DISCOVERY;
        }
        self.peers.note_features(owner, info.features, self.tunables.discovery != 0);
        if let Some(peer) = self.peers.peers.get_mut(owner) {
            if primary_of(&info) == Some(peer.primary) {
                peer.disc.peer_seq = info.seq;
            }
            let generation = peer.disc.learn.generation();
            peer.disc.received = Some(Announcement { by: nid, info, generation });
        }
        self.query(now, owner, Cause::Announced);
    }
}
