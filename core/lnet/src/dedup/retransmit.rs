//! Requests that were written, and wait for their answer (DEC-6). A transport that has taken a message
//! may never deliver it: its rail falls silent, its connection is reset. The sender of a PUT with ACK
//! or of a GET would then only learn it from its response timer. Towards a peer that tells copies
//! apart it need not wait for that: the message is kept until it is answered, and another copy of it
//! goes at once when what was written is in doubt.
//!
//! ```text
//!   written ──► Answering ── answered ─► gone
//!                │     ▲
//!        in doubt│     │written, or failed
//!                ▼     │
//!                 Copy ╯
//! ```
//!
//! A copy is silent: the caller has had its SEND event. Copies go until their caller's time is over,
//! whatever `retry_count` says, and only where that is better than where the message is. One that fails, or
//! finds no path, rests before it goes again (`send/rest.rs`).

use core::time::Duration;
use std::collections::BTreeSet;

use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, NiId, PeerId, PeerNiId};

use crate::Node;
use crate::below::Doubt;
use crate::check::live;
use crate::msg::{Msg, Role, Stage};
use crate::outbox::Work;
use crate::output::Output;
use crate::portal::md::Written;
use crate::send::Reason;
use crate::send::select::Tables;
use crate::send::select::standing;
use crate::timers::{Timer, TimerKind};

/// Requests whose answers are overdue are looked for no more often than this.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Tables<'_> {
    /// When the answer to a message that has just been written is overdue.
    #[inline]
    pub(crate) fn overdue_from(&self, now: Instant, msg: &Msg) -> Instant {
        if msg.tx.is_none_or(|tx| !tx.routed) {
            return Instant::FAR_FUTURE;
        }
        now + self.tunables.overdue_after(self.attempt_time(msg))
    }

    /// Whether a message could go by a better rail than `rail`, if nothing gets through there.
    fn has_better_than(&self, msg: &Msg, rail: Option<(NiId, PeerNiId)>) -> bool {
        let t = *self;
        let net = msg.hdr.dst.net();
        let current = rail.map(|(ni, peer_ni)| standing(t, ni, peer_ni, net));
        if current.is_some_and(|current| current < (false, Doubt::Silent)) {
            return false;
        }
        let best = self.best_standing(msg);
        best.is_some_and(|best| current.map_or(best < (false, Doubt::Silent), |now| best < now))
    }
}

impl Node {
    // ---- keeping ----

    /// A request has been written. True if it is kept until it is answered.
    pub(crate) fn keep(&mut self, now: Instant, id: MsgId) -> bool {
        let Some(msg) = self.msgs.get(id).filter(|m| m.numbered.is_some()) else { return false };
        let (md_id, rail) = (msg.md, msg.rail());
        let due = self.tables().overdue_from(now, msg);
        let Some(md_id) = md_id else { return false };
        let Some(md) = self.portals.mds.get_mut(md_id) else { return false };
        // Another answer than the one to this message would be taken for it otherwise.
        let one_answer = md.threshold == Some(1) && md.refs == 0 && !md.zombie;
        let (true, true, Some(tracker)) = (one_answer, md.owner.is_user(), &mut md.tracker) else {
            return false;
        };
        tracker.written = Some(Written { msg: id, rail, due });
        let until = self.timers.at(Timer::Response(md_id));
        self.await_answer(id, due);
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.until_deadline = true;
            // It was sent in time; its caller waits for the answer now (DEC-10).
            msg.deadline = until.unwrap_or(msg.deadline);
        }
        true
    }

    /// A request was written, or a copy of it failed: it holds nothing until its answer comes, or is
    /// overdue.
    pub(crate) fn await_answer(&mut self, id: MsgId, due: Instant) {
        self.timers.hasten(Timer::Retransmit, due);
        self.return_credits(id);
        self.count_out(id);
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.role = Role::Copy;
            msg.stage = Stage::Answering;
            self.msgs.begin_answering();
        }
    }

    /// A request is answered, or no caller waits for the answer any more.
    pub(crate) fn let_go(&mut self, written: Written) {
        let Some(msg) = self.msgs.get(written.msg).filter(|m| m.role == Role::Copy) else { return };
        match msg.stage {
            Stage::Answering => self.discard(written.msg),
            // A copy that no driver has written need not be written.
            Stage::Driver => self.ask_back(written.msg),
            Stage::PeerQueue | Stage::NiQueue | Stage::Held(_) | Stage::Resting(_) => {
                let needless = Fault::new(HealthStatus::Ok, Errno::ECANCELED);
                self.outbox.plan(Work::Finish(written.msg, Err(needless)));
            }
            _ => {}
        }
    }

    /// Whether a copy would still help.
    pub(crate) fn is_wanted(&self, id: MsgId) -> bool {
        self.tracker_of(id).is_some_and(|written| written.msg == id)
    }

    fn tracker_of(&self, id: MsgId) -> Option<&Written> {
        let md = self.portals.mds.get(self.msgs.get(id)?.md?)?;
        md.tracker.as_ref()?.written.as_ref()
    }

    // ---- repeating ----

    /// What a rail's driver had begun to write goes over its next connection from the beginning: there
    /// is no need for it where another copy has taken its place.
    pub(crate) fn recall_remnants(&mut self, ni: NiId, peer_ni: PeerNiId) {
        let is_there = |m: &Msg| m.stage == Stage::Driver && m.rail() == Some((ni, peer_ni));
        let remnants = self.msgs.copies.remnants();
        let ids: Vec<MsgId> =
            remnants.filter(|id| self.msgs.get(*id).is_some_and(is_there)).collect();
        for id in ids {
            self.ask_back(id);
        }
    }

    /// Repeats what is on a way that carries nothing, if there is a better one.
    pub(crate) fn repeat_elsewhere(&mut self, now: Instant, peer: Option<PeerId>) {
        self.repeat(now, |node, msg, written| {
            let hop = || node.peers.nis.get(written.rail?.1).map(|n| n.peer);
            let of_peer = || node.peers.owner(msg.hdr.dst) == peer || hop() == peer;
            (peer.is_none() || of_peer()) && node.tables().has_better_than(msg, written.rail)
        });
    }

    /// The same for what went by interfaces that its peer has no more.
    pub(crate) fn repeat_from(&mut self, now: Instant, gone: &BTreeSet<PeerNiId>) {
        self.repeat(now, |_, _, written| written.rail.is_some_and(|(_, hop)| gone.contains(&hop)));
    }

    /// The same for a message that was written after its rail was given up, before its driver was asked
    /// for it.
    pub(crate) fn repeat_if_elsewhere(&mut self, now: Instant, id: MsgId) {
        self.repeat(now, |node, msg, written| {
            written.msg == id && node.tables().has_better_than(msg, written.rail)
        });
    }

    /// Repeats the requests that went through routers and whose answers are overdue.
    pub(crate) fn repeat_overdue(&mut self, now: Instant) {
        self.repeat(now, |_, _, written| written.due <= now);
        let later = self.written_requests().map(|w| w.due).filter(|due| *due > now);
        let next = later.min().map_or(Instant::FAR_FUTURE, |at| at.max(now + LOOK_EVERY));
        self.timers.set(Timer::Retransmit, next);
    }

    /// The requests that were written and whose responses have a timeout, in no order.
    fn written_requests(&self) -> impl Iterator<Item = Written> + '_ {
        self.timers.of(TimerKind::Response).filter_map(|(_, timer)| {
            let Timer::Response(md) = timer else { return None };
            self.portals.mds.get(md)?.tracker.as_ref()?.written
        })
    }

    pub(crate) fn repeat(&mut self, now: Instant, in_doubt: impl Fn(&Self, &Msg, Written) -> bool) {
        if self.msgs.answering() == 0 {
            return;
        }
        let mut due: Vec<(u32, Instant, MsgId)> = Vec::new();
        for written in self.written_requests() {
            let Some(msg) = self.msgs.get(written.msg) else { continue };
            if msg.stage == Stage::Answering
                && now < msg.deadline
                && !self.tables().is_spent(msg).0
                && self.can_repeat(msg)
                && in_doubt(self, msg, written)
            {
                due.push((msg.hdr.payload_len, msg.born, written.msg));
            }
        }
        // The small ones first: they are not held up much longer by the large ones.
        due.sort_unstable();
        for (.., id) in due {
            self.copy(now, id);
        }
    }

    /// Sends a further copy of a request that waits for its answer.
    pub(crate) fn copy(&mut self, now: Instant, id: MsgId) {
        let rail = self.tracker_of(id).and_then(|written| written.rail);
        let Some(msg) = live!(mut self.msgs, id) else { return };
        let Some(md) = msg.md.and_then(|md| live!(mut self.portals.mds, md)) else { return };
        // Its memory is in use again; how often it may be used is counted already.
        md.refs += 1;
        msg.no_resend = false;
        self.msgs.end_answering();
        self.again(now, id, Reason::Unanswered { rail });
    }

    // ---- what a driver has begun ----

    pub(crate) fn split(&mut self, now: Instant, id: MsgId) {
        let Some(msg) = self.msgs.get(id).filter(|m| m.stage == Stage::Driver) else { return };
        let rail = msg.rail();
        let movable = match msg.role {
            Role::Request | Role::AckOut | Role::GetIn | Role::Repeat => true,
            Role::Copy => self.is_wanted(id),
            _ => false,
        };
        if !movable
            || now >= msg.deadline
            || self.tables().is_spent(msg).0
            || !self.can_repeat(msg)
            || !self.tables().has_better_than(msg, rail)
        {
            return;
        }
        self.again(now, id, Reason::Begun);
    }

    /// Asks a driver for a message back.
    pub(crate) fn ask_back(&mut self, id: MsgId) {
        let Some(msg) = self.msgs.get(id) else { return };
        let Some(tx) = msg.tx else { return };
        let pid = if tx.routed { lnet_types::Pid::LUSTRE } else { msg.hop_pid };
        let to = lnet_types::ProcessId { nid: tx.hop, pid };
        self.outbox.order(Output::Recall { ni: tx.ni, to, msg: id });
    }
}
