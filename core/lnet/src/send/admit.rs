//! Admission: a committed message takes its credits and goes, or waits for them in a queue, or is refused
//! (behaviour.md 4.1). How credits come back is in `credits.rs`.

use std::collections::VecDeque;

use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId};

use super::credits::queued_bytes;
use crate::Node;
use crate::check::live;
use crate::conduct::Conduct;
use crate::fault::Held;
use crate::messages::Messages;
use crate::msg::{Msg, Role, Stage};
use crate::outbox::Work;
use crate::portal::is_internal;
use crate::timers::Timer;

/// A message's place in a queue. LNet's own requests are first: a push that says which interface is down
/// is of no use behind the messages of a second.
type Place = (bool, Instant);

fn place_of(msg: &Msg, conduct: &Conduct) -> Place {
    let yields = !conduct.queues_own_first || !is_internal(&msg.hdr.kind);
    (yields, if conduct.queues_by_age { msg.born } else { Instant::ZERO })
}

/// Puts a message into a queue at its place, behind those of the same place. By age, one that comes from
/// another path does not lose its place to younger ones, which have more time left.
fn line_up(queue: &mut VecDeque<MsgId>, msgs: &Messages, id: MsgId, conduct: &Conduct) {
    let Some(place) = msgs.get(id).map(|msg| place_of(msg, conduct)) else { return };
    let is_before =
        |other: &MsgId| msgs.get(*other).is_none_or(|msg| place_of(msg, conduct) <= place);
    if queue.back().is_none_or(is_before) {
        return queue.push_back(id);
    }
    let at = queue.partition_point(is_before);
    queue.insert(at, id);
}

impl Node {
    /// The credit stage (C-5): transmits the message, or queues it, or ends it. Called again when a
    /// queued message's turn comes; what it already holds is not taken twice.
    pub(crate) fn admit(&mut self, now: Instant, id: MsgId) {
        if let Some(fault) = self.refuse(now, id) {
            self.outbox.plan(Work::Finish(id, Err(fault)));
        } else if self.take_credits(id)
            && !(self.faults.has_delays() && self.holds_leaving(now, id))
        {
            self.transmit(now, id);
        }
    }

    /// Whether a message that has its credits is held back (C-5.5).
    fn holds_leaving(&mut self, now: Instant, id: MsgId) -> bool {
        let Some(hdr) = self.msgs.get(id).map(|m| m.hdr) else { return false };
        let own = self.own_leaving(id);
        let Some(rule) = self.faults.delay(now, &hdr, own) else { return false };
        let token = self.faults.hold(&mut self.timers, rule, Held::Leaving(id));
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.stage = Stage::Held(token);
        }
        self.wait_until_deadline(id);
        true
    }

    /// The tests before each attempt to go: too late (C-8), or unlinked meanwhile (M-47).
    fn refuse(&mut self, now: Instant, id: MsgId) -> Option<Fault> {
        let msg = self.msgs.get_mut(id)?;
        let passing = msg.role == Role::Forward;
        if now > msg.deadline && !passing {
            msg.no_resend = true;
            self.count_refused(id);
            // Kernel nodes have NETWORK_TIMEOUT here, and judge no failure that is late (H-4).
            return Some(Fault::new(HealthStatus::Ok, Errno::ETIMEDOUT));
        }
        if msg.md.and_then(|md| self.portals.mds.get(md)).is_some_and(|md| md.aborted) {
            msg.no_resend = true;
            // Health `Ok` beside an error: no interface is charged (H-1).
            return Some(Fault::new(HealthStatus::Ok, Errno::ECANCELED));
        }
        // C-9: counted where it was to go; another interface may be tried.
        let fault = if passing { self.is_next_hop_dead(now, id) } else { None };
        if fault.is_some() {
            self.count_refused(id);
        }
        fault
    }

    /// C-9.
    fn count_refused(&mut self, id: MsgId) {
        let Some(msg) = live!(self.msgs, id) else { return };
        self.counts.dropped(msg.hdr.payload_len);
        let Some(tx) = msg.tx else { return };
        let kind = msg.counted_as_sent();
        self.each_port(tx.ni, tx.peer_ni, |port| port.stats.get_mut().dropped.bump(kind));
    }

    /// Takes the credits that a message lacks: of the peer's interface, then of ours. False if it has to
    /// wait for one, in the queue there.
    fn take_credits(&mut self, id: MsgId) -> bool {
        let Some(msg) = self.msgs.get_mut(id) else { return false };
        let bytes = queued_bytes(msg);
        let Some(tx) = &mut msg.tx else { return false };
        let (mut stage, mut credits) = (Stage::Moving, None);
        if !tx.peer_credit
            && let Some(pni) = tx.peer_ni.and_then(|peer_ni| self.peers.nis.get_mut(peer_ni))
        {
            pni.queued_bytes += bytes;
            tx.peer_credit = true;
            if !pni.port.credits.take() {
                (stage, credits) = (Stage::PeerQueue, Some(&mut pni.port.credits));
            }
        }
        if credits.is_none()
            && !tx.ni_credit
            && let Some(ni) = self.nis.get_mut(tx.ni)
        {
            tx.ni_credit = true;
            if !ni.port.credits.take() {
                (stage, credits) = (Stage::NiQueue, Some(&mut ni.port.credits));
            }
        }
        let Some(credits) = credits else { return true };
        msg.stage = stage;
        line_up(&mut credits.queue, &self.msgs, id, &self.tunables.conduct);
        self.wait_until_deadline(id);
        false
    }

    /// Goes on with a message whose turn has come.
    pub(crate) fn resume(&mut self, now: Instant, id: MsgId) {
        self.timers.stop(Timer::Waiting(id));
        self.admit(now, id);
    }

    /// Puts a waiting message under the deadline watch, where the profile has one.
    pub(crate) fn wait_until_deadline(&mut self, id: MsgId) {
        let passing = |m: &Msg| m.role == Role::Forward;
        if !self.tunables.conduct.expires_waiting || self.msgs.get(id).is_some_and(passing) {
            return;
        }
        let transaction = self.tunables.transaction();
        if let Some(msg) = self.msgs.get_mut(id) {
            if msg.deadline == Instant::FAR_FUTURE {
                msg.deadline = msg.born + msg.limit.unwrap_or(transaction);
            }
            self.timers.set(Timer::Waiting(id), msg.deadline);
        }
    }
}
