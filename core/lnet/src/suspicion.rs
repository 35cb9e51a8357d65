//! Rail suspicion (DEC-31): what drivers think of the way from one interface of ours to one of a
//! peer, and what follows from it. Suspicion is not failure: it lowers no health, ends no message and
//! counts no attempt. It does two things:
//!
//! * `send/select.rs` prefers other rails for new messages (`rails.rs`);
//! * messages of which the transport has not one byte yet are taken back and find another path
//!   ([`Node::rail_changed`]). They provably did not reach the peer, so nothing can arrive twice.
//!
//! What was written and not acknowledged stays with its driver. Towards a peer that suppresses
//! duplicates (DEC-6) another copy of it goes another way (`in_doubt.rs`, and `dedup/retransmit.rs` for
//! requests that wait for their answer); towards others it ends when its driver gives it up.

use core::fmt;
use std::collections::BTreeSet;

use lnet_types::{Instant, MsgId, NiId, Nid, PeerId, PeerNiId};

use crate::Node;
use crate::below::Doubt;
use crate::blame::{self, Blame};
use crate::msg::{Msg, Stage};
use crate::port::PortId;
use crate::send::Reason;

/// A rail that is not above doubt, for listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RailView {
    /// Our interface.
    pub local: Nid,
    /// The peer's.
    pub peer: Nid,
    /// Its driver's judgement.
    pub doubt: Doubt,
    /// Since when.
    pub since: Instant,
    /// If it is silent, what seems to be broken (RS-028).
    pub blame: Option<Blame>,
}

/// All that is known about suspicion, for listings.
/// Displays as a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SuspicionView {
    /// Whether rails are suspected at all.
    pub on: bool,
    /// When this was so.
    pub at: Instant,
    /// The rails that are not above doubt.
    pub rails: Vec<RailView>,
    /// Times that a rail fell under suspicion, or under a graver one.
    pub falls: u64,
    /// Messages that were taken off a rail unsent, to go another way.
    pub moved: u64,
}

impl fmt::Display for SuspicionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.on {
            return writeln!(f, "rail suspicion is off: the tunable rail_suspicion is 0");
        }
        let Self { falls, moved, .. } = self;
        writeln!(f, "rails suspected {falls} times, messages moved unsent {moved}")?;
        for RailView { local, peer, doubt, since, blame } in &self.rails {
            let secs = self.at.saturating_since(*since).as_secs_f64();
            let (local, peer) = (local.to_string(), peer.to_string());
            write!(f, "  {local:<24} to {peer:<24}  {doubt} for {secs:.3} s")?;
            match blame {
                Some(blame) => writeln!(f, "; seems to be {blame}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

impl Node {
    /// A gateway does not lead everywhere any more: messages bound to it go by another one, if there
    /// is a better one, and so does what was handed to it and is not answered.
    pub(crate) fn leave_gateway(&mut self, now: Instant, id: PeerId) {
        if !self.tunables.conduct.moves_waiting {
            return;
        }
        self.move_messages(now, |node, msg| node.hop_of(msg) == Some(id));
        self.repeat_elsewhere(now, Some(id));
        self.reclaim_from_gateway(id);
    }

    /// An interface is known to be down: ours has lost its link, or a peer announces one of its own as
    /// down. Messages on their way from or to it find another one (MR-snd-085).
    pub(crate) fn leave_port(&mut self, now: Instant, id: PortId) {
        if !self.tunables.conduct.moves_waiting {
            return;
        }
        self.move_messages(now, |_, msg| msg.tx.is_some_and(|tx| tx.ends_in(id)));
        let peer = match id {
            PortId::Local(_) => None,
            PortId::Peer(id) => match self.peers.nis.get(id) {
                Some(pni) => Some(pni.peer),
                None => return,
            },
        };
        self.repeat_elsewhere(now, peer);
        match id {
            PortId::Local(ni) => self.reclaim_interface(ni),
            PortId::Peer(id) => self.reclaim_from_hop(id),
        }
    }

    /// An interface of a peer is about to be taken from it. What drivers have written to it and not seen
    /// acknowledged is asked for while it has a name; the rest follows when its peer's other interfaces are
    /// known ([`Self::leave_hops`]).
    pub(crate) fn leave_hop(&mut self, nid: Nid) -> Option<PeerNiId> {
        let hop = self.peers.find(nid).filter(|_| self.tunables.conduct.moves_waiting)?;
        self.reclaim_from_hop(hop);
        Some(hop)
    }

    /// Interfaces have been taken from their peer: what was to go by them goes by its others, and requests
    /// that did go by them are repeated.
    pub(crate) fn leave_hops(&mut self, now: Instant, gone: &BTreeSet<PeerNiId>) {
        if gone.is_empty() {
            return;
        }
        let goes_there = |msg: &Msg| msg.rail().is_some_and(|(_, hop)| gone.contains(&hop));
        self.move_messages(now, |_, msg| goes_there(msg));
        self.repeat_from(now, gone);
    }

    pub(crate) fn hop_of(&self, msg: &Msg) -> Option<PeerId> {
        self.peers.nis.get(msg.tx?.peer_ni?).map(|n| n.peer)
    }

    /// Forgets all suspicion: it has been switched off.
    pub(crate) fn trust_all(&mut self) {
        self.rails.clear();
        self.plan_cut_off(self.now(), false);
    }

    /// Whether any rail is not above doubt: [`Self::suspicion`] lists them.
    pub fn has_doubts(&self) -> bool {
        !self.rails.is_clean()
    }

    /// How often the doubt about a rail has changed: a host that watches many nodes looks again only
    /// where this has moved.
    pub fn doubt_changes(&self) -> u64 {
        self.rails.changes()
    }

    /// The rails that are not above doubt, by our NID and the peer's. [`Self::suspicion`] says more of
    /// each.
    pub fn doubts(&self) -> impl Iterator<Item = ((Nid, Nid), Doubt)> + '_ {
        self.rails.all().filter_map(|((ni, peer_ni), doubt, _)| {
            Some(((self.nis.get(ni)?.nid, self.peers.nis.get(peer_ni)?.nid), doubt))
        })
    }

    /// What is thought now of the rails that have changed behind the first `seen` changes
    /// ([`Self::doubt_changes`]); `None` if that is not known any more, and [`Self::doubts`] is to be
    /// read whole.
    pub fn doubts_since(&self, seen: u64) -> Option<Vec<((Nid, Nid), Doubt)>> {
        let now = |(ni, peer_ni): (NiId, PeerNiId)| {
            let nids = (self.nis.get(ni)?.nid, self.peers.nis.get(peer_ni)?.nid);
            Some((nids, self.rails.of(ni, peer_ni)))
        };
        self.rails.changed_since(seen)?.map(now).collect()
    }

    /// Whether an answer to the node at `to` had better not be bound to the interface of ours that it
    /// addressed: it is Multi-Rail, so that the interface does not matter to it, and it deduplicates, so
    /// that what a rail loses may go again by others. Towards others an answer is bound to that interface
    /// as one that [`MdOptions::ANSWERS`](crate::MdOptions::ANSWERS).
    pub fn may_answer_by_any(&self, to: Nid) -> bool {
        let peer = self.peers.owner(to).and_then(|id| self.peers.peers.get(id));
        peer.is_some_and(|peer| peer.is_mr() && peer.numbering.is_able())
    }

    /// What drivers think of rails.
    pub fn suspicion(&self) -> SuspicionView {
        let view = |((ni, pni), doubt, since): ((NiId, PeerNiId), Doubt, Instant)| {
            let (local, peer) = (self.nis.get(ni)?.nid, self.peers.nis.get(pni)?.nid);
            let blame = blame::of(self.tables(), ni, pni);
            Some(RailView { local, peer, doubt, since, blame })
        };
        SuspicionView {
            on: self.tunables.rail_suspicion != 0,
            at: self.now(),
            rails: self.rails.all().filter_map(view).collect(),
            falls: self.rails.falls(),
            moved: self.rails.moved(),
        }
    }

    /// Moves the messages among `these` that are not with the transport and would do better
    /// elsewhere. A message never moves to a rail as bad as its own, so it can't go in circles.
    ///
    /// What the driver has begun to write stays there, but leaves its credits to the others.
    pub(crate) fn move_messages(&mut self, now: Instant, these: impl Fn(&Self, &Msg) -> bool) {
        let mut ids: Vec<(Instant, MsgId)> = self
            .msgs
            .iter()
            .filter(|(_, msg)| {
                matches!(msg.stage, Stage::PeerQueue | Stage::NiQueue | Stage::Driver)
                    && !msg.recovery
                    && these(self, msg)
            })
            .map(|(id, msg)| (msg.born, id))
            .collect();
        // Oldest first, as they would have gone.
        ids.sort_unstable();
        ids.retain(|(_, id)| {
            self.msgs.get(*id).is_some_and(|msg| self.tables().has_better_path(msg))
        });
        for &(_, id) in &ids {
            self.take_back(now, id);
        }
        // After all have left the queues of the rail: a credit is for a message that stays.
        for (_, id) in ids {
            if self.msgs.get(id).is_some_and(|m| m.stage == Stage::Driver) {
                self.free_credits(id);
            }
        }
    }

    /// Takes a message off its rail, or asks the driver for it.
    fn take_back(&mut self, now: Instant, id: MsgId) {
        if self.msgs.get(id).is_some_and(|m| m.stage == Stage::Driver) {
            self.ask_back(id);
        } else {
            self.again(now, id, Reason::Unsent);
        }
    }
}
