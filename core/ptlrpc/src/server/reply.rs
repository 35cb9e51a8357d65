//! Answers (P-42, P-109, P-122).

use core::time::Duration;

use lnet::{MdOptions, MdSpec, Put};
use lnet_types::{Errno, IoVec, Nid};
use lustre_wire::body::MsgKind;
use lustre_wire::msg::{BODY_ONLY_LEN, Header, message_into, message_size};
use lustre_wire::{Body, BodyFlags, Buffers, ConnectFlags, OpFlags, Portal};

use super::Server;
use super::difficult::{Difficult, Hold, Release};
use super::service::{Origin, Work};
use super::target::ReplyRecord;
use crate::common::{Cx, Post, Word, spec};
use crate::estimate::wire_secs;
use crate::lose::Part;
use crate::sabotage::Sabotage;
use crate::table::{ExportId, ServedId, ServiceId};

/// Portal of the service that cancels locks (P-33).
const CANCEL: u32 = Portal::LDLM_CANCEL.0;

/// What a program answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Zero, a positive number whose meaning depends on the operation, or a negative errno of the
    /// operation itself.
    pub status: i32,
    /// Buffers behind the body.
    pub buffers: Buffers,
    /// Transaction of the operation; 0 if it changed nothing. With one, the answer is kept until the
    /// client has it, so that a copy of the request is not executed again.
    pub transno: u64,
    /// Versions of the objects before the change.
    pub pre_versions: [u64; 4],
    /// How long what the request has locked is kept; [`Event::Released`](crate::Event::Released)
    /// ends it, once.
    pub hold: Hold,
}

impl Answer {
    /// The record of it; `None` if nothing was changed.
    pub(super) fn record(&self, xid: u64, tag: u16) -> Option<ReplyRecord> {
        let &Self { status, ref buffers, transno, pre_versions, hold: _ } = self;
        (transno != 0).then(|| {
            let buffers = buffers.clone();
            ReplyRecord { xid, transno, tag, status, pre_versions, buffers }
        })
    }
}

/// What an answer is made of.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) status: i32,
    pub(super) error: bool,
    pub(super) buffers: Buffers,
    pub(super) transno: u64,
    pub(super) pre_versions: [u64; 4],
    pub(super) op_flags: OpFlags,
    pub(super) handle: u64,
    /// A difficult reply, whose ACK is wanted.
    pub(super) ack: Option<ServedId>,
}

impl From<ReplyRecord> for Parts {
    fn from(record: ReplyRecord) -> Self {
        let ReplyRecord { transno, status, pre_versions, buffers, .. } = record;
        Self { status, buffers, transno, pre_versions, ..Self::default() }
    }
}

/// Errors that are answers, and not failures of the service (P-109).
fn is_answer(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ENOSPC
            | Errno::EACCES
            | Errno::EPERM
            | Errno::ENOENT
            | Errno::EINPROGRESS
            | Errno::EDQUOT
            | Errno::EROFS
    )
}

impl Server {
    /// The program's answer.
    pub(crate) fn reply(&mut self, cx: &mut Cx<'_, '_>, id: ServedId, answer: Answer) {
        let taken = self.take_out(cx, id);
        let Some(work) = &taken else { return };
        self.keep(work, &answer);
        let Answer { status, buffers, transno, pre_versions, hold } = answer;
        let held = Difficult { target: work.target, export: work.export, transno };
        let ack = self.hold_reply(cx, id, hold, held);
        let parts = Parts { status, buffers, transno, pre_versions, ack, ..Parts::default() };
        if self.targets.get(work.target).is_some_and(|target| target.failed) {
            // P-109: the client asks the node that serves it next.
            self.refuse_origin(cx, &work.origin, Some(work.export), &work.body, Errno::ENODEV);
            self.release(cx, id, Release::NotDelivered);
        } else if self.exports.get(work.export).is_some() {
            self.answer(cx, &work.origin, Some(work.export), &work.body, parts);
        }
        self.replay_answered(cx, id, work, status);
        self.dispatch(cx, work.origin.service);
    }

    /// Keeps an answer for copies of its request, and the number of its transaction.
    fn keep(&mut self, work: &Work, answer: &Answer) {
        if let Some(target) = self.targets.get_mut(work.target) {
            target.last = target.last.max(answer.transno);
        }
        let Some(export) = self.exports.get_mut(work.export).filter(|_| !work.obsolete) else {
            return;
        };
        if let Some(record) = answer.record(work.origin.xid, export.slot(&work.body)) {
            export.records.keep(record);
        }
    }

    /// The program can't do it, or does not know the operation.
    pub(crate) fn refuse(&mut self, cx: &mut Cx<'_, '_>, id: ServedId, errno: Errno) {
        let Some(work) = self.take_out(cx, id) else { return };
        if self.exports.get(work.export).is_some() {
            self.refuse_origin(cx, &work.origin, Some(work.export), &work.body, errno);
        }
        self.replay_answered(cx, id, &work, errno.negative());
        self.dispatch(cx, work.origin.service);
    }

    /// No answer: the client sends it again in time (P-53).
    pub(crate) fn decline(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) {
        let Some(work) = self.forget(cx, id) else { return };
        self.dispatch(cx, work.origin.service);
    }

    pub(super) fn refuse_origin(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: &Origin,
        export: Option<ExportId>,
        body: &Body,
        errno: Errno,
    ) {
        let parts =
            Parts { status: errno.negative(), error: !is_answer(errno), ..Parts::default() };
        self.answer(cx, origin, export, body, parts);
    }

    /// Pings and disconnects: success, and what is committed (P-133).
    pub(super) fn answer_at_once(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: &Origin,
        id: ExportId,
        body: &Body,
    ) {
        self.answer(cx, origin, Some(id), body, Parts::default());
    }

    pub(super) fn answer(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: &Origin,
        export: Option<ExportId>,
        request: &Body,
        parts: Parts,
    ) {
        let now = cx.below.now();
        let bounds = cx.common.tunables.bounds();
        let longest =
            if bounds.max.is_zero() { cx.common.tunables.obd_timeout * 3 / 2 } else { bounds.max };
        let took = now.saturating_since(origin.arrival);
        let took = took.clamp(Duration::from_secs(1), longest.max(Duration::from_secs(1)));
        let again = BodyFlags::RESENT | BodyFlags::REPLAY | BodyFlags::REQ_REPLAY_DONE;
        let Some(service) = self.services.get_mut(origin.service) else { return };
        if !parts.error && !request.flags.intersects(again) {
            service.estimate.measure(now, took, &bounds);
        }
        let estimate = service.estimate.get(&bounds);
        let committed = self.committed_of(export, parts.transno, origin.service);
        let early = cx.common.breaks(Sabotage::CommittedEarly);
        let (slv, limit) = self.lock_volume_of(export);
        let body = Body {
            handle: parts.handle,
            kind: if parts.error { MsgKind::ERROR } else { MsgKind::REPLY },
            version: lustre_wire::Service::VERSION,
            opcode: request.opcode,
            status: parts.status,
            transno: parts.transno,
            pre_versions: parts.pre_versions,
            last_committed: if early { committed.max(parts.transno) } else { committed },
            op_flags: parts.op_flags,
            timeout: if parts.error && export.is_none() { 0 } else { wire_secs(estimate) },
            service_time: wire_secs(took),
            slv,
            limit,
            ..Body::default()
        };
        let Ok(size) = message_size(&parts.buffers) else {
            // A program's answer that is too long: the client must hear of a failure.
            self.stats.too_long += 1;
            let failed =
                Parts { status: Errno::EOVERFLOW.negative(), error: true, ..Parts::default() };
            return self.answer(cx, origin, export, request, failed);
        };
        if !cx.common.losses.hit(request.opcode, Part::Reply) {
            self.send(cx, origin, size, parts.ack, |out| {
                message_into(&Header::default(), &body, &parts.buffers, out);
            });
        } else if let Some(id) = parts.ack {
            self.release(cx, id, Release::NotDelivered);
        }
    }

    /// What a reply says about caches of locks: nothing to clients that don't resize theirs.
    fn lock_volume_of(&self, export: Option<ExportId>) -> (u64, u32) {
        let export = export.and_then(|id| self.exports.get(id));
        let resizes = export.filter(|e| e.granted.flags.contains(ConnectFlags::LRU_RESIZE));
        let target = resizes.and_then(|export| self.targets.get(export.target));
        target.map_or((0, 0), |target| target.lock_volume)
    }

    /// The last committed transaction of a client, as a reply says it: that of the client itself and
    /// not of the whole target, and none where locks are cancelled.
    fn committed_of(&mut self, export: Option<ExportId>, transno: u64, service: ServiceId) -> u64 {
        let Some(export) = export.and_then(|id| self.exports.get_mut(id)) else { return 0 };
        let target = self.targets.get(export.target).map_or(0, |t| t.committed);
        let committed = export.commit(transno, target);
        let cancels = self.services.get(service).is_some_and(|s| s.config.portal == CANCEL);
        if cancels { 0 } else { committed }
    }

    /// Nothing of a reply is in use any more.
    pub(crate) fn reply_left(&mut self, to: Nid) {
        self.replies.change(to, |open| *open = open.saturating_sub(1));
    }

    /// A reply, from the NID that was asked to the one that asked (P-42, P-39).
    fn send(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: &Origin,
        size: usize,
        ack: Option<ServedId>,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let offset = if origin.adaptive { BODY_ONLY_LEN as u32 } else { 0 };
        if !self.put(cx, origin, offset, ack, size, fill)
            && let Some(id) = ack
        {
            self.release(cx, id, Release::NotDelivered);
        }
    }

    /// Puts a message of `size` bytes, which `fill` writes, into the client's reply buffer. `false` if
    /// it did not leave.
    pub(super) fn put(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: &Origin,
        offset: u32,
        difficult: Option<ServedId>,
        size: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(service) = self.services.get(origin.service) else { return false };
        let portal = service.config.reply_portal;
        let Ok(span) = cx.message(size, fill) else {
            self.stats.no_memory += 1;
            return false;
        };
        let post = cx.common.posts.insert(Post::Reply { to: origin.peer, difficult });
        // Sent, and acknowledged.
        let events = 1 + u32::from(difficult.is_some());
        let given = spec(IoVec::from([span]), Word::Post(post), MdOptions::ANSWERS, Some(events));
        // That a reply has left says nothing, unless its ACK is waited for.
        let given = MdSpec { events: difficult.is_some(), ..given };
        let put = |md| Put {
            md,
            ack: difficult.is_some(),
            src: Some(origin.to),
            target: origin.from,
            portal,
            match_bits: origin.reply_bits,
            offset,
            hdr_data: 0,
            timeout: None,
        };
        if cx.below.send_block(given, put).is_err() {
            // The client asks again.
            cx.common.posts.remove(post);
            self.stats.no_memory += 1;
            return false;
        }
        self.replies.change(origin.peer, |open| *open += 1);
        true
    }
}
