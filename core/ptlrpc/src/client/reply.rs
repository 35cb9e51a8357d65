//! What comes back: replies, early replies, bulk data, failures and silence (P-40 … P-43, P-54, P-85,
//! P-86, P-97, P-98).

use core::time::Duration;

use lnet::{Event as LnetEvent, EventKind};
use lnet_types::{Errno, Nid};
use lustre_wire::body::MsgKind;
use lustre_wire::{Body, BodyFlags, HeaderFlags, Msg, Opcode};

use super::decide::{Expiry, Late, Verdict, expiry, verdict};
use super::request::{Direction, Phase, Purpose, Request};
use super::retain::Retained;
use super::{Client, ImportState, Next};
use crate::common::{Cx, Sending};
use crate::error::CallError;
use crate::event::{Event, Reply};
use crate::lose::Part;
use crate::sabotage::Sabotage;
use crate::table::{CallId, ImportId};
use crate::timers::Timer;

/// A request goes again at most once in this time after a failure of the net (P-83, P-87).
const PAUSE: Duration = Duration::from_secs(1);

impl Client {
    /// A request is lost; one that has left has no event (P-43).
    pub(crate) fn sent(
        &mut self,
        cx: &mut Cx<'_, '_>,
        sending: Sending,
        status: Result<(), Errno>,
    ) {
        let id = sending.call;
        let Some(r) = self.current(sending) else { return };
        if status.is_err() && matches!(r.phase, Phase::Sent) {
            // P-87: not at once again.
            r.not_before = r.sent.map(|sent| sent + PAUSE);
            self.stats.net_failed += 1;
            self.expire(cx, id);
        }
    }

    /// Something arrived where the reply is expected (P-40).
    pub(crate) fn reply_event(&mut self, cx: &mut Cx<'_, '_>, sending: Sending, event: &LnetEvent) {
        let id = sending.call;
        let Some(r) = self.current(sending) else { return };
        if event.kind != EventKind::Put || event.status.is_err() || !matches!(r.phase, Phase::Sent)
        {
            return;
        }
        let opcode = r.body.opcode;
        let adaptive = r.header.flags.contains(HeaderFlags::AT_SUPPORT);
        let early = adaptive && event.offset == 0;
        if cx.common.losses.hit(opcode, if early { Part::Early } else { Part::Reply }) {
            return;
        }
        if event.rlength > event.mlength {
            return self.truncated(cx, id, event);
        }
        let (import, xid, ping) =
            (r.import, r.xid, matches!(r.purpose, Purpose::Ping | Purpose::Probe));
        if let Some(im) = self.imports.get_mut(import) {
            // P-40: any reply, an early one too.
            im.replied = im.replied.max(xid);
            if !ping {
                im.last_reply = Some(cx.below.now());
            }
        }
        let spans = cx.below.payload(event);
        let bytes = cx.copy_out(&spans);
        if early && !cx.common.breaks(Sabotage::EarlyIsReply) {
            self.early(cx, id, &bytes);
        } else {
            self.take_reply(cx, id, bytes);
        }
    }

    /// A piece of the bulk data has moved, or its descriptor is gone (P-54).
    pub(crate) fn bulk_event(
        &mut self,
        cx: &mut Cx<'_, '_>,
        id: CallId,
        attempt: u32,
        event: &LnetEvent,
    ) {
        let Some(r) = self.calls.get_mut(id) else { return };
        if event.unlinked {
            r.bulk_open = r.bulk_open.saturating_sub(1);
        }
        if r.attempt != attempt {
            return;
        }
        let moved = r.bulk_moved.take(event).is_ok();
        match (&mut r.phase, r.bulk_open) {
            (Phase::Unlinking(_), 0) => self.released(cx, id),
            (Phase::Unlinking(_), _) => {}
            (Phase::Sent, _) if !moved => {
                r.not_before = r.sent.map(|sent| sent + PAUSE);
                self.stats.net_failed += 1;
                self.expire(cx, id);
            }
            (Phase::Bulk(_), open) => {
                r.bulk_failed |= !moved;
                if open == 0 {
                    self.bulk_moved(cx, id);
                }
            }
            _ => {}
        }
    }

    /// All bulk data of an answered request have moved, or not.
    fn bulk_moved(&mut self, cx: &mut Cx<'_, '_>, id: CallId) {
        let Some(r) = self.calls.get_mut(id) else { return };
        let Phase::Bulk(reply) = core::mem::replace(&mut r.phase, Phase::Delayed) else { return };
        let body = if r.bulk_failed { None } else { reply.msg().and_then(|msg| msg.body()).ok() };
        let result = match body {
            // Not before: until now the request may go again.
            Some(body) => {
                self.retain(cx, id, &body);
                Ok(reply)
            }
            None => Err(CallError::Bulk),
        };
        self.release(cx, id, Next::End(result));
    }

    /// The request of a sending, if it was not sent again since.
    fn current(&mut self, sending: Sending) -> Option<&mut Request> {
        let call = sending.call;
        self.calls.get_mut(call).filter(|r| Sending::new(call, r.attempt) == sending)
    }

    /// P-41: once more, with room for it.
    fn truncated(&mut self, cx: &mut Cx<'_, '_>, id: CallId, event: &LnetEvent) {
        let Some(r) = self.calls.get_mut(id) else { return };
        if let Some(im) = self.imports.get_mut(r.import) {
            im.truncated += 1;
        }
        let need = u32::try_from(event.offset).unwrap_or(u32::MAX).saturating_add(event.rlength);
        // A message is at most 1 MiB, early reply included.
        let replays = matches!(r.purpose, Purpose::Replay | Purpose::LockReplay);
        if !(r.resend || replays) || need > 1 << 20 {
            return self.release(cx, id, Next::End(Err(CallError::TooLong)));
        }
        r.reply_len = need;
        r.header.repsize = need;
        r.resent = true;
        let place = (r.purpose == Purpose::Replay).then_some((r.body.transno, r.xid));
        if let (Some((transno, xid)), Some(im)) = (place, self.imports.get_mut(r.import)) {
            // The next recovery has the room at once.
            let call = im.retained.at(transno, xid).map(|retained| retained.call);
            if let Some(retained) = call.and_then(|call| im.retained.get_mut(call)) {
                (retained.reply_len, retained.header.repsize) = (need, need);
            }
        }
        self.release(cx, id, Next::Again);
    }

    /// An early reply: the server needs longer (P-98). One that is not right is ignored.
    fn early(&mut self, cx: &mut Cx<'_, '_>, id: CallId, bytes: &[u8]) {
        let Ok(msg) = Msg::parse(bytes) else { return };
        let Ok(body) = msg.body() else { return };
        if !msg.checksum_holds() || body.kind != MsgKind::REPLY {
            return;
        }
        self.stats.early += 1;
        self.learn(cx, id, &body, false);
        let Some(r) = self.calls.get_mut(id) else { return };
        let Some(im) = self.imports.get_mut(r.import) else { return };
        let (Some(sent), false) = (r.sent, body.timeout == 0) else { return };
        r.timeout = Duration::from_secs(body.timeout.into());
        let deadline = sent + r.timeout + im.net_time(&cx.common.tunables);
        r.deadline = Some(deadline);
        cx.common.timers.set(Timer::Call(id), deadline);
    }

    /// What a reply says about times (P-97).
    fn learn(&mut self, cx: &mut Cx<'_, '_>, id: CallId, body: &Body, service: bool) {
        let now = Self::now(cx);
        let Some(r) = self.calls.get(id) else { return };
        let Some(im) = self.imports.get_mut(r.import) else { return };
        let tunables = &cx.common.tunables;
        if service {
            let said = Duration::from_secs(body.timeout.into());
            im.service(r.portals.0, tunables).measure(now, said, &tunables.bounds());
        }
        let took = now.saturating_since(r.sent.unwrap_or(now));
        if service && r.purpose == Purpose::Call {
            im.probes = 0;
        }
        if service {
            im.answered = (im.answered.0.saturating_add(took), im.answered.1 + 1);
        }
        let worked = Duration::from_secs(body.service_time.into());
        // A late reply to an earlier sending says nothing about the net.
        if worked <= took + Duration::from_secs(3) {
            let net = took.saturating_sub(worked) + Duration::from_secs(1);
            let bounds = tunables.bounds();
            im.net.measure(now, net, &bounds);
            if let Some(export) = im.callback {
                cx.common.callback_nets.push((export, im.net.get(&bounds)));
            }
        }
    }

    /// The reply (P-85).
    fn take_reply(&mut self, cx: &mut Cx<'_, '_>, id: CallId, bytes: Vec<u8>) {
        let parsed = Msg::parse(&bytes).and_then(|msg| msg.body());
        let Some(r) = self.calls.get(id) else { return };
        let (import, resend, error_reply) = (r.import, r.resend, r.error_reply);
        let callback = self.imports.get(import).is_some_and(|im| im.callback.is_some());
        let full = r.send_state == ImportState::Full && !callback;
        let verdict = verdict(parsed.as_ref().map_err(Clone::clone), resend, full);
        if let (true, Ok(body)) = (verdict.teaches(), &parsed) {
            self.stats.replies += 1;
            self.learn(cx, id, body, true);
        }
        let end = |e| Next::End(Err(e));
        let body = match (verdict, parsed) {
            (Verdict::Bad(e), _) => return self.release(cx, id, end(e)),
            (Verdict::Later, _) => return self.later(cx, id),
            (Verdict::Reconnect(_), _) => return self.reconnect(cx, id),
            (Verdict::Refused(errno), parsed) => {
                self.ended(id);
                let refused = match parsed {
                    Ok(body) if error_reply => {
                        // A message of error type may have another status (P-85).
                        let (status, transno) = (errno.negative(), body.transno);
                        Ok(Reply { status, transno, message: bytes })
                    }
                    _ => Err(CallError::Refused(errno)),
                };
                return self.release(cx, id, Next::End(refused));
            }
            (Verdict::Done, Ok(body)) => body,
            (Verdict::Done, Err(e)) => return self.release(cx, id, end(CallError::BadReply(e))),
        };
        if (body.transno != 0 || body.opcode == Opcode::LDLM_ENQUEUE)
            && let Some(im) = self.imports.get_mut(import)
        {
            im.no_cached_data = false;
        }
        let Some(r) = self.calls.get_mut(id) else { return };
        let reply = Reply { status: body.status, transno: body.transno, message: bytes };
        // A copy of a write may be answered from the record of the first one (P-141), whose data the
        // server has: no data move for the copy.
        let writes = r.bulk.as_ref().is_some_and(|bulk| bulk.direction == Direction::Write);
        let copy = r.resent || r.purpose == Purpose::Replay;
        if r.bulk_open > 0 && !(writes && copy) {
            // Data and reply take different ways: the data may be last.
            r.phase = Phase::Bulk(reply);
        } else {
            self.retain(cx, id, &body);
            self.release(cx, id, Next::End(Ok(reply)));
        }
    }

    /// The server does not know this client, or not yet: it has not done what was asked (P-58, P-85).
    fn reconnect(&mut self, cx: &mut Cx<'_, '_>, id: CallId) {
        let Some(r) = self.calls.get_mut(id) else { return };
        let (import, conn_cnt) = (r.import, r.body.conn_cnt);
        r.refused = true;
        // The first time at once; a server that says it again is given time.
        r.not_before = r.sent.filter(|_| r.attempt > 1).map(|sent| sent + PAUSE);
        let nid = self.imports.get(import).map_or(Nid::ANY, |im| im.nid());
        let resend = self.calls.get(id).is_some_and(|r| r.resend);
        let next = if resend { Next::Again } else { Next::End(Err(CallError::TimedOut(nid))) };
        self.lost(cx, import, conn_cnt);
        self.release(cx, id, next);
        if self.imports.get(import).is_some_and(|im| im.state == ImportState::Disconnected) {
            self.connect(cx, import);
        }
    }

    /// The server is working on it: once more, under a new number, after a pause that grows (P-85).
    fn later(&mut self, cx: &mut Cx<'_, '_>, id: CallId) {
        let Some(r) = self.calls.get_mut(id) else { return };
        r.in_progress += 1;
        let pause = Duration::from_secs(r.in_progress.into()).min(r.timeout);
        let old = core::mem::replace(&mut r.xid, cx.common.xids.next());
        let (import, xid) = (r.import, r.xid);
        // It is a new request, and no copy of one.
        (r.resent, r.refused) = (false, false);
        if let Some(im) = self.imports.get_mut(import) {
            im.calls.remove(old);
            im.calls.insert(xid, id);
        }
        self.release(cx, id, Next::Later(pause));
    }

    /// Keeps what the server may still lose, and forgets what it can't (P-66, P-74, P-75).
    fn retain(&mut self, cx: &mut Cx<'_, '_>, id: CallId, body: &Body) {
        let Some(r) = self.calls.get_mut(id) else { return };
        let Some(im) = self.imports.get_mut(r.import) else { return };
        // Bulk memory is the program's again when a call has ended, if it does not say otherwise.
        // Where nothing is repeated, the eviction after a restart says that such a write is void.
        let retain = (im.replayable || r.retains_bulk)
            && !cx.common.breaks(Sabotage::NotRetained)
            && (r.bulk.is_none() || r.retains_bulk)
            && body.transno != 0
            && (body.transno > body.last_committed || r.keep)
            && r.purpose == Purpose::Call;
        if retain {
            let mut kept = r.body;
            kept.transno = body.transno;
            kept.pre_versions = body.pre_versions;
            kept.flags.insert(BodyFlags::REPLAY);
            kept.flags.remove(BodyFlags::RESENT);
            let retained = Retained {
                call: id,
                header: r.header,
                body: kept,
                // The call has its answer, and no bulk data to wait for: it is not sent again.
                buffers: core::mem::take(&mut r.buffers),
                portals: r.portals,
                reply_len: r.reply_len,
                bulk: r.bulk.clone().map(|bulk| (bulk, r.bulk_portal)),
                status: body.status,
                keep: r.keep,
                ends: r.ends,
            };
            im.retained.insert(r.xid, retained);
        } else {
            self.ended(id);
        }
        let Some(import) = self.calls.get(id).map(|r| r.import) else { return };
        self.committed(cx, import, body.last_committed);
    }

    /// A call has its answer and is not retained: what it ends needs no replay any more.
    fn ended(&mut self, id: CallId) {
        let Some(r) = self.calls.get(id) else { return };
        let (import, ends) = (r.import, r.ends);
        if let (Some(im), Some(call)) = (self.imports.get_mut(import), ends) {
            im.retained.forget(call);
        }
    }

    /// Forgets what is committed, unless the program keeps it.
    pub(super) fn committed(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, last: u64) {
        let Some(im) = self.imports.get_mut(import) else { return };
        im.committed = im.committed.max(last);
        let replay = im.recovering.and_then(|id| self.calls.get(id));
        let busy = replay.map(|r| (r.body.transno, r.xid));
        for call in im.retained.commit(im.committed, busy) {
            cx.common.events.push_back(Event::Unretained { import, call, committed: true });
        }
        self.ping_soon(cx, import);
    }

    /// A deadline has passed, or the net has failed (P-86).
    pub(crate) fn expire(&mut self, cx: &mut Cx<'_, '_>, id: CallId) {
        let Some(r) = self.calls.get_mut(id) else { return };
        let Some(im) = self.imports.get_mut(r.import) else { return };
        im.expired += 1;
        let (import, conn_cnt) = (r.import, r.body.conn_cnt);
        r.resent = true;
        let Expiry { disconnects, end } = expiry(&Late {
            opcode: r.body.opcode,
            send_state: r.send_state,
            xid: r.xid,
            replied: im.replied,
            resend: r.resend,
            callback: im.callback.is_some(),
            probe: r.purpose == Purpose::Probe,
            nid: im.nid(),
        });
        self.stats.expired += 1;
        if disconnects {
            self.lost(cx, import, conn_cnt);
        }
        self.release(cx, id, end.map_or(Next::Again, |e| Next::End(Err(e))));
        if disconnects {
            self.verify(cx, import);
        }
    }
}
