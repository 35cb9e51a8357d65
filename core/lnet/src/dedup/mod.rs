//! Each message once (DEC-6): a message between two nodes of this kind bears the name of its session
//! and its number, so that the receiver can tell a repeated copy from a new message, and the sender may
//! repeat a message whose fate is unknown. `docs/duplicates.md` has the whole; where the mark stands in
//! a header is in `lnet_wire::mark`. The sender's part is in `marks.rs`, messages that were written and
//! are in doubt in `retransmit.rs`; the receiver's part is here, its table in `sessions.rs`, one
//! session's memory in `window.rs`.
//!
//! The feature bit in the ping data is the whole negotiation: a sender marks what it sends to a peer
//! that has it, a receiver reads the marks that come. Towards other peers nothing differs.

mod ends;
pub(crate) mod marks;
pub(crate) mod numbering;
pub(crate) mod retransmit;
pub(crate) mod sessions;
pub(crate) mod window;

use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, PeerNiId};
use lnet_wire::mark::Mark;
use lnet_wire::{Hdr, Kind};

use crate::check::live;
use crate::msg::{Msg, Role, RxSide, Stage};
use crate::output::{DropReason, Output, Verdict};
use crate::{MdOptions, Node, Rx};
use sessions::{Bringer, Copied};
use window::Judgement;

impl Node {
    /// Judges a message for us that may be a copy. Gives what it is in its session, if it bears a mark.
    ///
    /// # Errors
    /// It is a copy, or may be.
    pub(crate) fn deduplicate(
        &mut self,
        now: Instant,
        rx: &Rx,
        peer_ni: Option<PeerNiId>,
        hdr: &Hdr,
    ) -> Result<Option<Copied>, DropReason> {
        let Some(mark) = Mark::of(&hdr.kind).filter(|_| peer_ni.is_some()) else {
            return Ok(None);
        };
        let is_gateway = hdr.src != rx.from
            && self.peers.owner(rx.from).is_some_and(|id| {
                self.router.routes.to(hdr.src.net()).iter().any(|r| r.gateway == id)
            });
        let bringer = Bringer { nid: rx.from, is_gateway };
        let judged = self.sessions.judge(now, bringer, mark, hdr.payload_len);
        match judged.judgement {
            Judgement::Deliver => {}
            Judgement::Replace(old) => self.give_up(now, old),
            Judgement::Duplicate => {
                if let Some(mlength) = judged.acked.filter(|_| mark.further) {
                    self.acknowledge_again(now, rx, peer_ni, hdr, mlength);
                }
                return Err(DropReason::Duplicate);
            }
            Judgement::Ancient => return Err(DropReason::AncientCopy),
        }
        Ok(Some(judged.copied))
    }

    /// A marked message is here, whole.
    pub(crate) fn copy_arrived(&mut self, id: MsgId) {
        let rx = self.msgs.get_mut(id).and_then(|m| m.rx.as_mut());
        let Some(copied) = rx.and_then(|rx| rx.copied.take()) else { return };
        let atypical = self.atypical_ack(id);
        self.sessions.arrived(copied, id, atypical);
    }

    /// Ends a message that is still arriving, because another copy of it has come.
    fn give_up(&mut self, now: Instant, id: MsgId) {
        let Some(msg) = live!(self.msgs, id) else { return };
        let (Some(rx), stage) = (msg.rx, msg.stage) else { return };
        if stage == Stage::Deferred {
            for portal in 0..lnet_wire::PORTALS {
                self.portals.take_delayed(portal, |d| d.msg == id);
            }
            let verdict = Verdict::Drop(DropReason::Duplicate);
            self.outbox.order(Output::Resume { ni: rx.ni, rx: rx.id, verdict });
            return self.discard(id);
        }
        self.outbox.order(Output::Abandon { ni: rx.ni, rx: rx.id, msg: id });
        if !self.withdraw(id) {
            self.finish(now, id, Err(Fault::new(HealthStatus::Ok, Errno::EIO)));
        }
    }

    /// Takes back that a message was matched, as if it had never come: its sender numbers its
    /// messages, so another copy of it finds the descriptor as it was. False if that is not possible,
    /// or not to be expected.
    pub(crate) fn withdraw(&mut self, id: MsgId) -> bool {
        let Some(msg) = live!(self.msgs, id) else { return false };
        if msg.rx.is_none_or(|rx| rx.copied.is_none()) {
            return false;
        }
        let (ev, stage) = (msg.ev, msg.stage);
        let Some(md_id) = msg.md else { return false };
        let Some(md) = live!(mut self.portals.mds, md_id) else { return false };
        // One that this message has used up is as good as before.
        let used_up = md.zombie && md.auto_unlink && md.is_exhausted();
        if (md.zombie && !used_up) || md.aborted || stage == Stage::Deferred {
            return false;
        }
        if md.place.is_some() && !md.options.contains(MdOptions::MANAGE_REMOTE) {
            // Others may have been put behind it.
            if md.offset != ev.offset + u64::from(ev.mlength) {
                return false;
            }
            md.offset = ev.offset;
        }
        md.refs = md.refs.saturating_sub(1);
        md.threshold = md.threshold.map(|t| t.saturating_add(1));
        if used_up && !md.is_exhausted() {
            md.zombie = false;
            self.portals.unhide(md_id);
        }
        self.discard(id);
        true
    }

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
        if !ack.wants_ack() {
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
        self.peers.count_received(peer_ni);
        let id = self.msgs.insert(msg);
        self.respond(now, id, hdr.dst);
    }
}
