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
//! whatever `retry_count` says, and only where that is better than where the message is.
//!
//! The receiver's part is at the end: a copy of a PUT that was acknowledged is acknowledged again,
//! because the ACK may have been lost with the rail.

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, Instant, MdId, MsgId, NiId, Nid, PeerId, PeerNiId};
use lnet_wire::{Handle, Hdr, Kind};

use crate::below::Doubt;
use crate::check::live;
use crate::msg::{Msg, Role, RxSide, Stage};
use crate::node::Work;
use crate::output::Output;
use crate::portal::md::Written;
use crate::portal::owner::Owner;
use crate::record::Input;
use crate::send::Reason;
use crate::suspicion::standing;
use crate::timers::{Timer, TimerKind};
use crate::{MdOptions, Node, Rx};

/// Requests whose answers are overdue are looked for no more often than this.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Node {
    // ---- keeping ----

    /// A request has been written. True if it is kept until it is answered.
    pub(crate) fn keep(&mut self, now: Instant, id: MsgId) -> bool {
        let Some(msg) = self.msgs.get(id).filter(|m| m.numbered.is_some()) else { return false };
        let (md_id, rail) = (msg.md, msg.rail());
        let due = self.overdue_from(now, msg);
        let Some(md_id) = md_id else { return false };
        let Some(md) = self.portals.mds.get_mut(md_id) else { return false };
        // Another answer than the one to this message would be taken for it otherwise.
        let one_answer = md.threshold == Some(1) && md.refs == 0 && !md.zombie;
        let (true, Owner::User(_), Some(tracker)) = (one_answer, md.owner, &mut md.tracker) else {
            return false;
        };
        tracker.written = Some(Written { msg: id, rail, due });
        let until = self.timers.at(Timer::Response(md_id));
        self.await_answer(id, due);
        if let Some(msg) = self.msgs.get_mut(id) {
            // It was sent in time; its caller waits for the answer now (DEC-10).
            msg.deadline = until.unwrap_or(msg.deadline);
        }
        true
    }

    /// A request was written, or a copy of it failed: it holds nothing until its answer comes, or is
    /// overdue.
    fn await_answer(&mut self, id: MsgId, due: Instant) {
        self.timers.hasten(Timer::Retransmit, due);
        self.return_credits(id);
        self.count_out(id);
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.role = Role::Copy;
            msg.stage = Stage::Answering;
            self.answering += 1;
        }
    }

    /// When the answer to a message that has just been written is overdue.
    fn overdue_from(&self, now: Instant, msg: &Msg) -> Instant {
        if msg.tx.is_none_or(|tx| !tx.routed) {
            return Instant::FAR_FUTURE;
        }
        now + self.tunables.overdue_after(self.attempt_time(msg))
    }

    /// Messages in hand, without those that only wait for their answer.
    pub(crate) fn in_hand(&self) -> usize {
        self.msgs.len().saturating_sub(self.answering)
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
                self.work.push_back(Work::Finish(written.msg, Err(needless)));
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

    /// A connection over which `ni` spoke to the peer's interface `nid` has ended, and not in order:
    /// what was written to it and is not answered may be lost.
    pub fn written_lost(&mut self, now: Instant, ni: NiId, nid: Nid) {
        self.note(|| Input::WrittenLost { now, ni, nid });
        let now = self.clock(now);
        let Some(peer_ni) = self.peers.find(nid) else { return };
        self.repeat(now, |_, _, written| written.rail == Some((ni, peer_ni)));
        self.recall_remnants(ni, peer_ni);
        self.settle(now);
    }

    /// What a rail's driver had begun to write goes over its next connection from the beginning: there
    /// is no need for it where another copy has taken its place.
    fn recall_remnants(&mut self, ni: NiId, peer_ni: PeerNiId) {
        if self.remnants == 0 {
            return;
        }
        let is_there = |m: &Msg| {
            let rail = m.tx.map(|tx| (tx.ni, tx.peer_ni));
            m.role == Role::Remnant && m.stage == Stage::Driver && rail == Some((ni, Some(peer_ni)))
        };
        let ids: Vec<MsgId> =
            self.msgs.iter().filter(|(_, m)| is_there(m)).map(|(id, _)| id).collect();
        for id in ids {
            self.ask_back(id);
        }
    }

    /// Repeats what is on a way that carries nothing, if there is a better one.
    pub(crate) fn repeat_elsewhere(&mut self, now: Instant, peer: Option<PeerId>) {
        self.repeat(now, |node, msg, written| {
            let hop = || node.peers.nis.get(written.rail?.1).map(|n| n.peer);
            let of_peer = || node.peers.owner(msg.hdr.dst) == peer || hop() == peer;
            (peer.is_none() || of_peer()) && node.has_better_than(msg, written.rail)
        });
    }

    /// Whether a message could go by a better rail than `rail`, if nothing gets through there.
    fn has_better_than(&self, msg: &Msg, rail: Option<(NiId, PeerNiId)>) -> bool {
        let t = self.tables();
        let net = msg.hdr.dst.net();
        let current = rail.map(|(ni, peer_ni)| standing(t, ni, peer_ni, net));
        if current.is_some_and(|current| current < (false, Doubt::Silent)) {
            return false;
        }
        let best = self.best_standing(msg);
        best.is_some_and(|best| current.map_or(best < (false, Doubt::Silent), |now| best < now))
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

    fn repeat(&mut self, now: Instant, in_doubt: impl Fn(&Self, &Msg, Written) -> bool) {
        if self.answering == 0 {
            return;
        }
        let mut due: Vec<(u32, Instant, MsgId)> = Vec::new();
        for written in self.written_requests() {
            let Some(msg) = self.msgs.get(written.msg) else { continue };
            if msg.stage == Stage::Answering
                && now < msg.deadline
                && !self.is_spent(msg).0
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
    fn copy(&mut self, now: Instant, id: MsgId) {
        let rail = self.tracker_of(id).and_then(|written| written.rail);
        let Some(msg) = live!(mut self.msgs, id) else { return };
        let Some(md) = msg.md.and_then(|md| live!(mut self.portals.mds, md)) else { return };
        // Its memory is in use again; how often it may be used is counted already.
        md.refs += 1;
        msg.no_resend = false;
        self.answering -= 1;
        self.again(now, id, Reason::Unanswered { rail });
    }

    /// A copy has been written, or has failed.
    pub(crate) fn copy_ended(&mut self, now: Instant, id: MsgId, written: bool) {
        let Some(msg) = self.msgs.get(id) else { return };
        if msg.stage == Stage::Answering {
            return self.discard(id);
        }
        let rail = msg.rail().filter(|_| written);
        let due = if written { self.overdue_from(now, msg) } else { Instant::FAR_FUTURE };
        let Some(md_id) = msg.md else { return self.discard(id) };
        if self.is_wanted(id) {
            let Some(md) = self.portals.mds.get_mut(md_id) else { return self.discard(id) };
            md.refs = md.refs.saturating_sub(1);
            if let Some(tracker) = &mut md.tracker {
                tracker.written = Some(Written { msg: id, rail, due });
            }
            return self.await_answer(id, due);
        }
        self.release_md(now, md_id);
        self.discard(id);
    }

    /// One user less of a descriptor, without an event of its own.
    fn release_md(&mut self, now: Instant, id: MdId) {
        let Some(md) = self.portals.mds.get_mut(id) else { return };
        if md.release() {
            let owner = md.owner;
            self.untrack(id);
            self.portals.hide(id);
            self.portals.mds.remove(id);
            self.tell_unlinked(now, id, owner);
        }
    }

    // ---- what a driver has begun ----

    /// The other answer to [`Output::Recall`]: the driver can't give the message back, because
    /// bytes of it are on their way, or it has ended. If it is known to its receiver, another copy
    /// takes its place; what the driver has is a remnant without a waiter.
    pub fn tx_begun(&mut self, now: Instant, msg: MsgId) {
        self.note(|| Input::TxBegun { now, msg });
        let now = self.clock(now);
        self.split(now, msg);
        self.settle(now);
    }

    fn split(&mut self, now: Instant, id: MsgId) {
        let Some(msg) = self.msgs.get(id).filter(|m| m.stage == Stage::Driver) else { return };
        let rail = msg.rail();
        let movable = match msg.role {
            Role::Request | Role::AckOut | Role::GetIn | Role::Repeat => true,
            Role::Copy => self.is_wanted(id),
            _ => false,
        };
        if !movable
            || now >= msg.deadline
            || self.is_spent(msg).0
            || !self.can_repeat(msg)
            || !self.has_better_than(msg, rail)
        {
            return;
        }
        self.again(now, id, Reason::Begun);
    }

    /// Makes the twin of a message, which uses its descriptor too and whose answer is waited for in its
    /// place.
    pub(crate) fn make_twin(&mut self, id: MsgId) -> Option<MsgId> {
        let twin = self.msgs.get_mut(id)?.twin();
        let (md, is_copy) = (twin.md, twin.role == Role::Copy);
        self.remnants += 1;
        self.free_credits(id);
        let new = self.msgs.insert(twin);
        if let Some(md) = md.and_then(|md| self.portals.mds.get_mut(md)) {
            md.refs += 1;
            if let Some(tracker) = md.tracker.as_mut().filter(|_| is_copy) {
                let due = Instant::FAR_FUTURE;
                tracker.written = Some(Written { msg: new, rail: None, due });
            }
        }
        Some(new)
    }

    /// A driver has finished a remnant: a copy without a waiter.
    pub(crate) fn remnant_ended(&mut self, now: Instant, id: MsgId) {
        let md = self.msgs.get(id).and_then(|m| m.md);
        self.remnants = self.remnants.saturating_sub(1);
        self.discard(id);
        if let Some(md) = md {
            self.release_md(now, md);
        }
    }

    // ---- answering again ----

    /// What the ACK for a PUT that has arrived will say, if that is not the length of its payload:
    /// another length, or that there is no ACK. For the window of its session.
    pub(crate) fn atypical_ack(&self, id: MsgId) -> Option<Option<u32>> {
        let msg = self.msgs.get(id).filter(|m| m.role == Role::PutIn)?;
        let md = self.portals.mds.get(msg.md?)?;
        if md.options.contains(MdOptions::ACK_DISABLE) {
            return Some(None);
        }
        (msg.ev.mlength != msg.hdr.payload_len).then_some(Some(msg.ev.mlength))
    }

    /// Acknowledges a copy of a PUT that was acknowledged with `mlength` before.
    pub(crate) fn acknowledge_again(
        &mut self,
        now: Instant,
        rx: &Rx,
        peer_ni: Option<PeerNiId>,
        hdr: &Hdr,
        mlength: u32,
    ) {
        let Kind::Put { ack, match_bits, portal, .. } = hdr.kind else { return };
        if ack == Handle::NONE {
            return;
        }
        let side = RxSide {
            ni: rx.ni,
            peer_ni,
            from: rx.from,
            id: rx.id,
            kind: hdr.kind.msg_type(),
            committed: false,
            copied: None,
        };
        let answer = Hdr {
            dst: hdr.src,
            src: hdr.dst,
            dst_pid: hdr.src_pid,
            src_pid: lnet_types::Pid::LUSTRE,
            payload_len: 0,
            kind: Kind::Ack { dst: ack, match_bits, mlength, pad: [0; 12] },
        };
        let mut msg = Msg { rx: Some(side), ..Msg::new(Role::AckOut, answer, now) };
        msg.ev.portal = portal;
        let id = self.msgs.insert(msg);
        self.respond(now, id, hdr.dst);
    }

    /// Asks a driver for a message back.
    pub(crate) fn ask_back(&mut self, id: MsgId) {
        let Some(msg) = self.msgs.get(id) else { return };
        let Some(tx) = msg.tx else { return };
        let pid = if tx.routed { lnet_types::Pid::LUSTRE } else { msg.hop_pid };
        let to = lnet_types::ProcessId { nid: tx.hop, pid };
        self.outputs.push_back(Output::Recall { ni: tx.ni, to, msg: id });
    }
}
