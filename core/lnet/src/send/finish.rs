//! Where messages end: the only place that turns an outcome into a resend, an event, or silence
//! (behaviour.md 5.1, 5.4; M-29 … M-47).

use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, NiId, Nid, PeerNiId};
use lnet_wire::{Handle, Hdr, Kind, MsgType};

use crate::check::live;
use crate::dedup::marks::expects_answer;
use crate::local::Ni;
use crate::msg::{Msg, Role};
use crate::output::Payload;
use crate::portal::RESERVED_PORTAL;
use crate::portal::owner::Owner;
use crate::send::again::may_have_arrived;
use crate::send::{Next, Reason};
use crate::{Event, EventKind, MdOptions, Node};

impl Node {
    /// One attempt, or one reception, has ended.
    pub(crate) fn finish(&mut self, now: Instant, id: MsgId, outcome: Result<(), Fault>) {
        let next = self.judge(now, id, outcome);
        let (outcome, next) = self.with_earlier_copies(id, outcome, next);
        if let Err(fault) = outcome {
            let next = self.with_time_left(now, id, next);
            let rest = match next {
                Next::Again => Some(None),
                Next::Rest(until) => Some(Some(until)),
                Next::End | Next::Spent => None,
            };
            if let Some(rest) = rest {
                return self.again(now, id, Reason::Failed { status: fault.status, rest });
            }
            self.note_undelivered(id, fault);
        }
        self.complete(now, id, outcome.map_err(|f| f.errno), &[]);
    }

    /// A message whose last attempt has failed has got through all the same if an earlier copy has, which
    /// its driver did not give back when its rail fell silent; as long as a driver has one, it may. Where
    /// two have reached the receiver, the later one takes the place of the other, written or not: if it is
    /// lost, the message goes again as long as it may.
    fn with_earlier_copies(
        &mut self,
        id: MsgId,
        outcome: Result<(), Fault>,
        next: Next,
    ) -> (Result<(), Fault>, Next) {
        let (Err(fault), now) = (outcome, self.now()) else { return (outcome, next) };
        let msg = self.msgs.get_mut(id).filter(|msg| msg.has_one_end());
        let Some((numbered, deadline)) =
            msg.and_then(|msg| Some((msg.numbered.as_mut()?, msg.deadline)))
        else {
            return (outcome, next);
        };
        if may_have_arrived(fault.status) {
            numbered.note_lost();
        }
        let (numbered, ends) = (*numbered, matches!(next, Next::End | Next::Spent));
        if numbered.has_arrived() || (ends && numbered.is_written()) {
            return (Ok(()), Next::End);
        }
        if ends && now < deadline && self.msgs.copies.has_earlier(numbered) {
            return (outcome, Next::Rest(deadline));
        }
        (outcome, next)
    }

    /// A further copy of a message in doubt that would end rests instead, as long as there is time: the
    /// route that it does not find, or the peer that does not listen, may be back until then.
    fn with_time_left(&mut self, now: Instant, id: MsgId, next: Next) -> Next {
        let Some(msg) = self.msgs.get(id) else { return next };
        let is_copy = match msg.role {
            Role::Copy => self.is_wanted(id),
            Role::Repeat => true,
            _ => false,
        };
        if !matches!(next, Next::End | Next::Spent)
            || !is_copy
            || !self.running
            || now >= msg.deadline
            || self.tables().is_spent(msg).0
            || !self.can_repeat(msg)
        {
            return next;
        }
        let until = self.tables().pause_ends(now, msg);
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.no_resend = false;
        }
        Next::Rest(until)
    }

    /// Sends a message again whose attempt has failed, if its receiver is still known.
    pub(crate) fn resend(&mut self, now: Instant, id: MsgId) {
        if self.peers.has_previous_owners(now)
            && let Some(msg) = self.msgs.get_mut(id)
        {
            self.peers.follow(now, msg);
        }
        let Some(msg) = self.msgs.get(id) else { return };
        let errno = if msg.until_deadline && now >= msg.deadline {
            Some(Errno::ETIMEDOUT)
        } else if !msg.hdr.dst.is_loopback() && self.peers.find(msg.hdr.dst).is_none() {
            Some(Errno::EFAULT)
        } else {
            None
        };
        if let Some(errno) = errno {
            if let Some(msg) = self.msgs.get_mut(id) {
                msg.no_resend = true;
            }
            return self.finish(now, id, Err(Fault::new(HealthStatus::Ok, errno)));
        }
        self.depart(now, id);
    }

    /// Ends a message for good: counters, credits, event; and what follows from it. `bytes` are
    /// what it brought, if that was for the node itself.
    pub(crate) fn complete(
        &mut self,
        now: Instant,
        id: MsgId,
        status: Result<(), Errno>,
        bytes: &[u8],
    ) {
        let Some(msg) = self.msgs.get(id) else { return };
        let aborted = msg.md.and_then(|md| self.portals.mds.get(md)).is_some_and(|md| md.aborted);
        // M-44
        let status = if aborted { status.and(Err(Errno::ETIMEDOUT)) } else { status };
        if status.is_ok() {
            self.count_success(now, id);
        }
        let Some(msg) = live!(self.msgs, id) else { return };
        let role = msg.role;
        let kind = match role {
            Role::Request => Some(EventKind::Send),
            Role::PutIn => Some(EventKind::Put),
            Role::GetIn => Some(EventKind::Get),
            Role::AckIn => Some(EventKind::Ack),
            Role::ReplyIn => Some(EventKind::Reply),
            Role::Copy => return self.copy_ended(now, id, status.is_ok()),
            Role::Remnant => return self.remnant_ended(now, id, Some(status.is_ok())),
            Role::Repeat => return self.repeat_ended(id, status.is_ok()),
            Role::AckOut | Role::Forward => None,
        };
        if role == Role::Forward && status.is_err() {
            self.count_lost(id);
        }
        let ack = if role == Role::PutIn && status.is_ok() { self.ack_for(id) } else { None };
        let awaits = kind.is_some_and(|kind| self.end_operation(now, id, kind, status, bytes));
        match ack {
            Some((hdr, own)) => {
                self.return_credits(id);
                if let Some(msg) = self.msgs.get_mut(id) {
                    msg.role = Role::AckOut;
                    msg.hdr = hdr;
                    msg.payload = Payload::empty();
                    msg.md = None;
                    if let Some(rx) = &mut msg.rx {
                        rx.committed = false;
                    }
                }
                self.respond(now, id, own);
            }
            None if awaits && role == Role::Request && status.is_ok() && self.keep(now, id) => {}
            None => self.discard(id),
        }
    }

    /// The ACK that a received PUT asks for, if it gets one, and the NID that it leaves from (M-34).
    fn ack_for(&self, id: MsgId) -> Option<(Hdr, Nid)> {
        let msg = self.msgs.get(id)?;
        let Kind::Put { ack, match_bits, .. } = msg.hdr.kind else { return None };
        let md = self.portals.mds.get(msg.md?)?;
        if ack == Handle::NONE || md.options.contains(MdOptions::ACK_DISABLE) {
            return None;
        }
        let hdr = Hdr {
            dst: msg.hdr.src,
            src: msg.hdr.dst,
            dst_pid: msg.hdr.src_pid,
            src_pid: lnet_types::Pid::LUSTRE,
            payload_len: 0,
            kind: Kind::Ack { dst: ack, match_bits, mlength: msg.ev.mlength, pad: [0; 12] },
        };
        Some((hdr, msg.hdr.dst))
    }

    /// Releases the descriptor of a message and tells its owner (2.5, M-44 … M-46). Whether the descriptor
    /// still awaits a response.
    fn end_operation(
        &mut self,
        now: Instant,
        id: MsgId,
        kind: EventKind,
        status: Result<(), Errno>,
        bytes: &[u8],
    ) -> bool {
        let Some(msg) = live!(self.msgs, id) else { return false };
        let Some(md_id) = msg.md else { return false };
        let Some(md) = live!(mut self.portals.mds, md_id) else { return false };
        let (last, placed) = (md.release(), md.place.is_some());
        let (owner, tracked) = (md.owner, md.tracker.is_some());
        if tracked {
            let rx = msg.rx.as_ref().map(|rx| (rx.ni, rx.peer_ni));
            let is_answer = matches!(kind, EventKind::Ack | EventKind::Reply);
            let fails = kind == EventKind::Send && status.is_err();
            let is_over = is_answer || (fails && expects_answer(&msg.hdr.kind));
            let awaits_more = is_over && self.awaits_less(md_id);
            // H-67: a tracker is done with when all is answered.
            if last || (is_answer && !awaits_more) {
                let user = !matches!(owner, Owner::Internal(_));
                if let Some(t) = self.untrack(md_id)
                    && status.is_ok()
                    && let Some(rail) = rx
                {
                    self.record_round_trip(now, rail, kind, now.nanos_since(t.started), user);
                }
            } else if fails {
                self.request_failed(now, md_id);
            }
        }
        if last {
            if placed {
                self.portals.hide(md_id);
            }
            self.portals.mds.remove(md_id);
        }
        let Some(msg) = live!(self.msgs, id) else { return false };
        let event = || {
            let (ev, rx) = (&msg.ev, &msg.rx);
            Event {
                kind,
                md: md_id,
                user: owner.user(),
                target: ev.target,
                initiator: ev.initiator,
                source: ev.source,
                sender: rx.as_ref().map_or(Nid::ANY, |rx| rx.from),
                msg_type: rx.as_ref().map_or_else(|| msg.hdr.kind.msg_type(), |rx| rx.kind),
                portal: ev.portal,
                match_bits: ev.match_bits,
                hdr_data: ev.hdr_data,
                offset: ev.offset,
                rlength: ev.rlength,
                mlength: ev.mlength,
                status,
                unlinked: last,
            }
        };
        if let Some(what) = self.outbox.report_end(owner, status, last, event) {
            let event = event();
            self.internal_event(now, what, &event, bytes);
        }
        tracked && !last
    }

    fn record_round_trip(
        &mut self,
        now: Instant,
        (ni, peer_ni): (NiId, Option<PeerNiId>),
        kind: EventKind,
        took: u64,
        measured: bool,
    ) {
        // Both in one turn of the caller, for which time stands still: there is no measurement. Over
        // loopback that is always so, and kernel nodes count these samples.
        let is_loopback = self.nis.get(ni).is_some_and(Ni::is_loopback);
        if took == 0 && !is_loopback {
            return;
        }
        self.each_port(ni, peer_ni, |port| {
            let stats = port.stats.get_mut();
            let of = if kind == EventKind::Ack { &mut stats.put_ack } else { &mut stats.get_rtt };
            of.add(took);
            if measured {
                port.meter.completed(now, took);
            }
        });
    }

    /// Whether a message belongs to the node itself: pings, pushes and the answers to them.
    fn is_own_business(&self, msg: &Msg) -> bool {
        match msg.role {
            Role::Request
            | Role::PutIn
            | Role::GetIn
            | Role::AckOut
            | Role::Copy
            | Role::Remnant
            | Role::Repeat => msg.ev.portal == RESERVED_PORTAL,
            Role::AckIn | Role::ReplyIn => {
                let md = msg.md.and_then(|md| self.portals.mds.get(md));
                md.is_some_and(|md| matches!(md.owner, Owner::Internal(_)))
            }
            Role::Forward => false,
        }
    }

    /// T-1, T-10 … T-12.
    fn count_success(&mut self, now: Instant, id: MsgId) {
        let Some(msg) = live!(self.msgs, id) else { return };
        let tx = msg.tx.as_ref().map(|tx| (tx.ni, tx.peer_ni, tx.committed));
        let rx = msg.rx.as_ref().filter(|rx| rx.committed).map(|rx| (rx.ni, rx.peer_ni, rx.kind));
        let (role, retries) = (msg.role, msg.retries);
        let kind = msg.hdr.kind.msg_type();
        let (mlength, sent_len) = (u64::from(msg.ev.mlength), u64::from(msg.hdr.payload_len));
        let as_kind = msg.counted_as_sent();
        let passing = role == Role::Forward;
        let measured = passing || !self.is_own_business(msg);
        if let Some((ni, peer_ni, committed)) = tx {
            self.counts.sent(passing.then_some(sent_len));
            match role {
                Role::Request | Role::Copy if kind == MsgType::Put => {
                    self.counts.sent_bytes(sent_len)
                }
                Role::GetIn => self.counts.sent_bytes(sent_len),
                _ => {}
            }
            let is_egress = role == Role::Request && kind == MsgType::Put && retries == 0;
            let took = now.nanos_since(committed);
            self.each_port(ni, peer_ni, |port| {
                let stats = port.stats.get_mut();
                stats.sent.bump(as_kind);
                stats.sent_bytes += sent_len;
                if is_egress {
                    stats.put_egress.add(took);
                }
                if measured {
                    port.meter.sent(now, sent_len, took);
                }
            });
        }
        if let Some((ni, peer_ni, kind)) = rx {
            let brought = match kind {
                // What passes through brings all of its payload.
                MsgType::Put | MsgType::Reply if passing => sent_len,
                MsgType::Put | MsgType::Reply => mlength,
                MsgType::Ack | MsgType::Get => 0,
            };
            if !passing {
                self.counts.received(brought);
            }
            self.each_port(ni, peer_ni, |port| {
                let stats = port.stats.get_mut();
                stats.received.bump(kind);
                stats.received_bytes += brought;
                if measured {
                    port.meter.received(now, brought);
                }
            });
        }
    }
}
