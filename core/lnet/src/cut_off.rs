//! Interfaces of ours that a peer does not reach, announced to it as down.
//!
//! This node avoids a silent rail (`suspicion.rs`). A kernel node does not: it goes on writing to it until
//! its transport abandons the connection, after a minute. So a peer that does not suppress duplicates
//! receives ping data that list as down each interface of ours with a rail to it that has been silent for
//! [`LASTING`], if another interface of ours reaches it. The peer does what it does when a link is lost
//! (D-45): it prefers the other interfaces, and pings this one until it answers.
//!
//! Such data are for this peer alone: others may well reach the interface, and what they receive is the
//! condition of the link (`ping.rs`).

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use lnet_types::{Instant, NiId, PeerId};
use lnet_wire::ping::{NiStatus, PingInfo};

use crate::Node;
use crate::blame::{self, Blame};
use crate::peer::cause::Cause;
use crate::timers::Timer;

/// For how long a rail is silent before that is announced: an accident of transmission is over by then,
/// and traffic is to go on within a second.
const LASTING: Duration = Duration::from_millis(400);

impl Node {
    /// The doubt about a rail has changed: a silence counts when it has lasted, its end at once.
    pub(crate) fn plan_cut_off(&mut self, now: Instant, silent: bool) {
        if !self.tunables.conduct.announces_cut_off {
            return;
        }
        if silent {
            self.timers.hasten(Timer::CutOff, now + LASTING);
        } else if !self.rails.cut_off.is_empty() {
            self.timers.set(Timer::CutOff, now);
        }
    }

    /// Decides which interfaces are cut off from which peers, and notifies those peers of changes.
    pub(crate) fn judge_cut_off(&mut self, now: Instant) {
        let mut found = BTreeSet::new();
        let mut next = Instant::FAR_FUTURE;
        for (ni, peer_ni, since) in self.rails.silences() {
            let Some(peer) = self.peers.nis.get(peer_ni).map(|n| n.peer) else { continue };
            if !self.is_blind(peer) {
                continue;
            }
            if now < since + LASTING {
                next = next.min(since + LASTING);
            } else if let Some(Blame::Ours | Blame::Way) = blame::of(self.tables(), ni, peer_ni) {
                found.insert((peer, ni));
            }
        }
        // An announcement helps if it leaves the peer an interface that it reaches.
        let helps = |&(peer, ni): &(PeerId, NiId)| {
            let net = self.nis.get(ni).map(|ni| ni.nid.net());
            let mut others = self.nis.iter().filter(|(id, _)| *id != ni);
            others.any(|(id, other)| {
                Some(other.nid.net()) == net && other.is_up() && !found.contains(&(peer, id))
            })
        };
        let cut_off: BTreeSet<_> = found.iter().copied().filter(helps).collect();
        let undecided: BTreeSet<PeerId> =
            found.difference(&cut_off).map(|(peer, _)| *peer).collect();
        let changed: BTreeSet<PeerId> =
            cut_off.symmetric_difference(&self.rails.cut_off).map(|(peer, _)| *peer).collect();
        self.rails.cut_off = cut_off;
        for peer in changed {
            self.query(now, peer, Cause::Changed { force: true });
        }
        for peer in undecided {
            // A ping shows another rail: it goes by one that is not silent.
            self.query(now, peer, Cause::Silent);
        }
        self.timers.hasten(Timer::CutOff, next);
    }

    /// Whether a peer has several of our interfaces to choose from, and does not find out by itself which of
    /// them it reaches.
    fn is_blind(&self, id: PeerId) -> bool {
        self.peers.peers.get(id).is_some_and(|p| p.is_mr() && !p.numbering.is_able())
    }

    /// The ping data that peer `id` receives by a push.
    pub(crate) fn announcement_for(&self, id: PeerId) -> Arc<[u8]> {
        let is_cut_off = |ni: NiId| self.rails.cut_off.contains(&(id, ni));
        let down: Vec<_> =
            self.nis.iter().filter(|(ni, _)| is_cut_off(*ni)).map(|(_, ni)| ni.nid).collect();
        if down.is_empty() {
            return self.own.bytes().clone();
        }
        let Ok(parsed) = PingInfo::parse(self.own.bytes()) else { return self.own.bytes().clone() };
        let mut info = parsed.info;
        for entry in info.entries.iter_mut().filter(|entry| down.contains(&entry.nid)) {
            entry.status = NiStatus::DOWN;
        }
        info.emit().into()
    }
}
