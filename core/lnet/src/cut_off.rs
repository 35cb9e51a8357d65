//! Interfaces of ours that a peer does not reach, or reaches badly, announced to it as down.
//!
//! This node avoids a rail that is silent or slow (`suspicion.rs`). A kernel node does not: it goes on writing
//! to it until its transport abandons the connection, after a minute. So a peer that does not suppress
//! duplicates receives ping data that list as down each interface of ours with a rail to it that has carried
//! little or nothing for [`LASTING`], if another interface of ours reaches it. The peer does what it does when
//! a link is lost (D-45): it prefers the other interfaces, and pings this one until it answers.
//!
//! What was on its way undoes an announcement: a message that the peer reads late from the interface is a sign
//! that it is up (S-81) and makes it healthier (H-7), a REPLY that it has written to it as well, whatever its
//! status (H-9). Since only a status that changes costs health, the announcement is withdrawn for a moment and
//! repeated: the loss of a link, which is announced to all at once (`ping.rs`), to such peers that are in
//! touch; an interface that is cut off, when the peer is heard by it all the same. Then its rail delivers,
//! if late, and may deliver what undoes the announcement; a rail that is silent both ways delivers nothing.
//!
//! A router gets no announcement of a rail that is slow, or is all of its network: it would drop what it
//! forwards to the interface. What is announced of rails is for one peer alone: others may well reach the
//! interface, and what they receive is the condition of the link (`ping.rs`).

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use lnet_types::{Instant, NiId, PeerId};
use lnet_wire::ping::{NiStatus, PingInfo};

use crate::Node;
use crate::blame::{self, Blame};
use crate::peer::Facts;
use crate::peer::cause::Cause;
use crate::timers::Timer;

/// For how long a rail carries little or nothing before that is announced: an accident of transmission is over
/// by then, and traffic is to go on within a second.
const LASTING: Duration = Duration::from_millis(400);

/// When an announcement is repeated, each step after the one before: pairs of a withdrawal and a
/// repetition, since only a status that changes costs health. Each REPLY that the peer had in hand undoes one
/// of them, some within a tenth of a millisecond: so the first pairs follow as fast as a peer takes them in,
/// and cost more than that gives back. Later ones are for a peer that was held up. The last step is for one
/// that had not looked at a withdrawal when its repetition came.
const REMINDERS: [(Duration, Says); 13] = [
    (Duration::from_micros(400), Says::Up),
    (Duration::from_micros(400), Says::Down),
    (Duration::from_micros(400), Says::Up),
    (Duration::from_micros(400), Says::Down),
    (Duration::from_micros(400), Says::Up),
    (Duration::from_micros(400), Says::Down),
    (Duration::from_millis(2), Says::Up),
    (Duration::from_millis(2), Says::Down),
    (Duration::from_millis(15), Says::Up),
    (Duration::from_millis(5), Says::Down),
    (Duration::from_millis(60), Says::Up),
    (Duration::from_millis(10), Says::Down),
    (Duration::from_millis(400), Says::Down),
];

/// What a reminder says of interfaces that have lost their link, or are cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Up,
    Down,
}

fn reminder(nth: u64) -> Option<(Duration, Says)> {
    REMINDERS.get(usize::try_from(nth).ok()?).copied()
}

/// A peer that was not heard for so long before a link was lost has nothing in hand that undoes its announcement.
const IN_TOUCH: Duration = Duration::from_millis(500);

impl Node {
    /// The loss of a link has been announced: it will be again, to those for which it may be undone.
    pub(crate) fn plan_reminders(&mut self, now: Instant) {
        let in_touch = |id: &PeerId| self.is_blind(*id) && self.is_in_touch(now, *id);
        self.rails.reminded = self.peers.by_age.values().copied().filter(in_touch).collect();
        self.begin_reminders(now);
    }

    /// A peer was heard by an interface that is announced to it as down.
    pub(crate) fn announce_again(&mut self, now: Instant, id: PeerId) {
        let is_first = self.rails.reminded.is_empty();
        self.rails.reminded.insert(id);
        if is_first {
            self.begin_reminders(now);
        }
    }

    /// Begins to repeat what is announced.
    fn begin_reminders(&mut self, now: Instant) {
        if !self.tunables.conduct.repeats_announcements {
            return self.rails.reminded.clear();
        }
        // Of an earlier round no step is left: its last one would end this.
        for nth in 0..REMINDERS.len() as u64 {
            self.timers.stop(Timer::Remind(nth));
        }
        self.rails.withdrawn = false;
        self.plan_reminder(now, 0);
    }

    /// Plans the `nth` step of that.
    fn plan_reminder(&mut self, now: Instant, nth: u64) {
        match reminder(nth) {
            Some((after, _)) => self.timers.set(Timer::Remind(nth), now + after),
            None => self.rails.reminded.clear(),
        }
    }

    /// Takes a step of announcing once more which interfaces are lost or cut off.
    pub(crate) fn remind(&mut self, now: Instant, nth: u64) {
        let is_lost = self.nis.values().any(|ni| ni.fatal) || !self.rails.cut_off.is_empty();
        self.rails.withdrawn = is_lost && reminder(nth).is_some_and(|(_, says)| says == Says::Up);
        let peers: Vec<PeerId> = self.rails.reminded.iter().copied().collect();
        for peer in peers {
            self.query(now, peer, Cause::Changed { force: true });
        }
        if is_lost {
            self.plan_reminder(now, nth + 1);
        } else {
            self.rails.reminded.clear();
        }
    }

    fn is_in_touch(&self, now: Instant, id: PeerId) -> bool {
        let nis = self.peers.peers.get(id).into_iter().flat_map(|peer| peer.nis());
        let mut heard = nis.filter_map(|ni| self.peers.nis.get(ni)?.last_alive);
        heard.any(|at| now < at + IN_TOUCH)
    }

    /// The doubt about a rail has changed: that it is lame counts when it has lasted, its end at once.
    pub(crate) fn plan_cut_off(&mut self, now: Instant, lame: bool) {
        if !self.tunables.conduct.announces_cut_off {
            return;
        }
        if lame {
            self.timers.hasten(Timer::CutOff, now + LASTING);
        } else if !self.rails.cut_off.is_empty() {
            self.timers.set(Timer::CutOff, now);
        }
    }

    /// Decides which interfaces are cut off from which peers, and notifies those peers of changes.
    pub(crate) fn judge_cut_off(&mut self, now: Instant) {
        let mut found = BTreeSet::new();
        let mut next = Instant::FAR_FUTURE;
        for (ni, peer_ni, since) in self.rails.lame() {
            let Some(peer) = self.peers.nis.get(peer_ni).map(|n| n.peer) else { continue };
            if !self.is_blind(peer) {
                continue;
            }
            if now < since + LASTING {
                next = next.min(since + LASTING);
                continue;
            }
            let counts = match blame::of(self.tables(), ni, peer_ni) {
                Some(Blame::Ours | Blame::Way) => true,
                Some(Blame::Theirs) => false,
                // A router drops what it would forward to an interface that is down: better late than lost.
                Some(Blame::Undetermined) | None => !self.forwards(peer),
            };
            if counts {
                found.insert((peer, ni));
            }
        }
        // An announcement helps if it leaves the peer an interface that it reaches.
        let helps = |&(peer, ni): &(PeerId, NiId)| {
            let nets = self.peers.peers.get(peer).map(|peer| &peer.nets);
            let shares = |net| nets.is_some_and(|nets| nets.iter().any(|n| n.net == net));
            let mut others = self.nis.iter().filter(|(id, _)| *id != ni);
            others.any(|(id, other)| {
                shares(other.nid.net()) && other.is_up() && !found.contains(&(peer, id))
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
            // A ping shows another rail: it goes by one that is not lame.
            self.query(now, peer, Cause::Silent);
        }
        self.timers.hasten(Timer::CutOff, next);
    }

    fn forwards(&self, id: PeerId) -> bool {
        self.peers.peers.get(id).is_some_and(|p| p.facts.contains(Facts::ROUTER_ENABLED))
    }

    /// Whether a peer has several of our interfaces to choose from, and does not find out by itself which of
    /// them it reaches.
    fn is_blind(&self, id: PeerId) -> bool {
        self.peers.peers.get(id).is_some_and(|p| p.is_mr() && !p.numbering.is_able())
    }

    /// The ping data that peer `id` receives by a push.
    pub(crate) fn announcement_for(&self, id: PeerId) -> Arc<[u8]> {
        let is_withdrawn = self.rails.withdrawn && self.rails.reminded.contains(&id);
        let otherwise = |ni: NiId, lost: bool| {
            if is_withdrawn {
                lost.then_some(NiStatus::UP)
            } else {
                self.rails.cut_off.contains(&(id, ni)).then_some(NiStatus::DOWN)
            }
        };
        let statuses: Vec<_> = self
            .nis
            .iter()
            .filter_map(|(id, ni)| otherwise(id, ni.fatal).map(|status| (ni.nid, status)))
            .collect();
        if statuses.is_empty() {
            return self.own.bytes().clone();
        }
        let Ok(parsed) = PingInfo::parse(self.own.bytes()) else { return self.own.bytes().clone() };
        let mut info = parsed.info;
        for entry in &mut info.entries {
            if let Some((_, status)) = statuses.iter().find(|(nid, _)| *nid == entry.nid) {
                entry.status = *status;
            }
        }
        info.emit().into()
    }
}
