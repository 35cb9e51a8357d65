//! What becomes of a request that arrives (P-105 … P-112).

use core::time::Duration;

use lnet::{Event as LnetEvent, EventKind};
use lnet_types::Errno;
use lustre_wire::body::MsgKind;
use lustre_wire::opcode::Effect;
use lustre_wire::{Body, BodyFlags, ConnectFlags2, HeaderFlags, Msg, Opcode};

use super::recover::is_replay;
use super::recovery::Verdict;
use super::service::{Origin, Work};
use super::{
    QUEUED_BYTES_PER_EXPORT_MAX, QUEUED_BYTES_PER_NODE_MAX, QUEUED_PER_EXPORT_MAX,
    RECORD_BYTES_PER_EXPORT_MAX, RECORDS_PER_EXPORT_MAX, REPLIES_PER_PEER_MAX, Server,
};
use crate::client::Client;
use crate::common::{Cx, Post};
use crate::cut::Cut;
use crate::lose::Part;
use crate::sabotage::Sabotage;
use crate::table::{ExportId, PostId, ServiceId};

impl Server {
    /// An event on a request buffer.
    pub(crate) fn request_event(
        &mut self,
        cx: &mut Cx<'_, '_>,
        client: &Client,
        service: ServiceId,
        post: PostId,
        event: &LnetEvent,
    ) {
        if event.kind == EventKind::Put && event.status.is_ok() {
            let spans = cx.below.payload(event);
            let bytes = cx.copy_out(&spans);
            self.intake(cx, client, service, event, bytes);
        }
        if event.unlinked
            && let Some(Post::RequestBuffer { span, .. }) = cx.common.posts.remove(post)
        {
            cx.below.free(span);
            if let Some(service) = self.services.get_mut(service) {
                service.posted -= 1;
            }
            // Without a buffer requests wait in LNet; the next one that is used up tries again.
            if self.post(cx, service).is_err() {
                self.stats.no_buffer += 1;
            }
        }
    }

    fn intake(
        &mut self,
        cx: &mut Cx<'_, '_>,
        client: &Client,
        service: ServiceId,
        event: &LnetEvent,
        bytes: Vec<u8>,
    ) {
        // A node that takes no replies is not served until it does.
        let peer = event.initiator.nid;
        if self.replies.get(peer) >= REPLIES_PER_PEER_MAX {
            self.stats.not_taken += 1;
            return;
        }
        let now = cx.below.now();
        let parsed = Msg::parse(&bytes).and_then(|msg| Ok((msg.header, msg.body()?)));
        let Ok((header, body)) = parsed else {
            self.stats.malformed += 1;
            return;
        };
        // P-15: another security flavour than null is not spoken here.
        if body.kind != MsgKind::REQUEST || header.secflvr & 0x00ff_ffff != 0 {
            self.stats.malformed += 1;
            return;
        }
        if cx.common.losses.hit(body.opcode, Part::Request) {
            return;
        }
        let export = self.by_cookie.get(&body.handle).copied();
        let export = export.or_else(|| self.caller(cx, client, body.handle));
        let adaptive = header.flags.contains(HeaderFlags::AT_SUPPORT);
        let time = if adaptive {
            Duration::from_secs(body.timeout.into())
        } else {
            cx.common.tunables.obd_timeout
        };
        if body.timeout == 0 {
            self.stats.malformed += 1;
            return;
        }
        let connects = body.opcode.is_connect();
        let by_mbits = !connects
            && export
                .and_then(|id| self.exports.get(id))
                .is_some_and(|e| e.granted.flags2.contains(ConnectFlags2::REP_MBITS));
        let xid = event.match_bits;
        let origin = Origin {
            service,
            from: event.source,
            peer: event.initiator.nid,
            to: event.target.nid,
            xid,
            reply_bits: if by_mbits { body.mbits } else { xid },
            adaptive,
            arrival: now,
            deadline: now + time,
        };
        if connects {
            return self.connect(cx, origin, &body, &bytes, export);
        }
        let Some(id) = export else {
            return self.refuse_origin(cx, &origin, None, &body, Errno::ENOTCONN);
        };
        if self.exports.get(id).is_some_and(|e| e.import.is_some()) {
            return self.called_back(cx, origin, id, body, bytes);
        }
        if self.admit(cx, &origin, id, &body) {
            self.take(cx, origin, id, body, bytes);
        }
    }

    /// P-106 and P-112. `false` if the request ends here.
    fn admit(&mut self, cx: &mut Cx<'_, '_>, origin: &Origin, id: ExportId, body: &Body) -> bool {
        if !self.passes(cx, origin, id, body) {
            return false;
        }
        self.heard_of(cx, id, origin);
        let Some(export) = self.exports.get_mut(id) else { return false };
        if body.opcode.is_disconnect() {
            return true;
        }
        if export.leaving.is_some() {
            self.refuse_origin(cx, origin, None, body, Errno::ENOTCONN);
            return false;
        }
        export.acknowledge(body.last_xid);
        if origin.xid == 0 || origin.xid <= export.last_xid && !is_replay(body) {
            self.stats.bad_xid += 1;
            self.refuse_origin(cx, origin, Some(id), body, Errno::EPROTO);
            return false;
        }
        true
    }

    pub(super) fn take(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: Origin,
        id: ExportId,
        body: Body,
        message: Vec<u8>,
    ) {
        let row = body.opcode.row();
        let service = row.and_then(|row| row.service);
        if service.is_some_and(|s| s.word() >> 16 != body.version >> 16) {
            return self.refuse_origin(cx, &origin, Some(id), &body, Errno::EINVAL);
        }
        if body.opcode.is_disconnect() {
            return self.disconnect(cx, origin, id, body);
        }
        let Some(export) = self.exports.get_mut(id) else { return };
        let first = export.in_work.get(origin.xid).copied();
        let known = first.is_some() || export.records.get(origin.xid).is_some();
        self.stats.unmarked += u64::from(known && !is_marked(&body));
        if let Some(first) = first.filter(|_| !cx.common.breaks(Sabotage::NoFolding)) {
            // P-110: a copy of what is being worked on. The answer goes to the copy.
            self.stats.folded += 1;
            if let Some(work) = self.work.get_mut(first) {
                // Also if it is earlier: by it the client waits, and wants its next early reply.
                work.origin.deadline = origin.deadline;
                work.origin.reply_bits = origin.reply_bits;
                work.origin.from = origin.from;
                work.origin.to = origin.to;
                // It belongs to the copy's connection now, and so do its bulk data.
                work.body.conn_cnt = body.conn_cnt;
                if work.bulk.is_none() {
                    work.body.mbits = body.mbits;
                }
            }
            return self.plan_early(cx, first);
        }
        // P-141: it was done; the answer was lost. What is repeated although it is committed had an
        // effect beside the store, which the program makes again (P-70).
        let committed = self.targets.get(export.target).map_or(0, |target| target.committed);
        let remade = is_replay(&body) && body.transno <= committed;
        let record = export.records.get(origin.xid).filter(|_| !remade);
        if let Some(record) = record.filter(|_| !cx.common.breaks(Sabotage::RecordForgotten)) {
            let parts = record.clone().into();
            self.stats.answered_again += 1;
            return self.answer(cx, &origin, Some(id), &body, parts);
        }
        let target = export.target;
        let place = match self.verdict(target, id, &body) {
            Verdict::AtOnce => None,
            Verdict::Queue(place) => Some(place),
            Verdict::Refuse(errno) => {
                return self.refuse_origin(cx, &origin, Some(id), &body, errno);
            }
            Verdict::Drop => {
                self.stats.stale += 1;
                return;
            }
        };
        if body.opcode == Opcode::OBD_PING && place.is_none() {
            return self.answer_at_once(cx, &origin, id, &body);
        }
        let Some(export) = self.exports.get_mut(id) else { return };
        let bytes = message.len();
        let room = QUEUED_BYTES_PER_EXPORT_MAX.saturating_sub(export.in_work_bytes);
        let of_node = self.queued.get(origin.peer).saturating_add(bytes);
        let full = bytes > room || of_node > QUEUED_BYTES_PER_NODE_MAX;
        if export.in_work.len() >= QUEUED_PER_EXPORT_MAX || full {
            self.stats.too_many += 1;
            return;
        }
        // Only what changes something leaves a record, and a service of one's own may.
        let modifies = row.is_none_or(|row| row.effect != Effect::Reads);
        let kept = &export.records;
        let full =
            kept.len() >= RECORDS_PER_EXPORT_MAX || kept.bytes() >= RECORD_BYTES_PER_EXPORT_MAX;
        if modifies && !is_replay(&body) && full {
            self.stats.too_many += 1;
            return self.refuse_origin(cx, &origin, Some(id), &body, Errno::EINPROGRESS);
        }
        let tag = export.slot(&body);
        if tag != 0 && modifies {
            // P-111: of two requests in one slot the client has given up the older one.
            for older in export.in_work.values() {
                let Some(work) = self.work.get_mut(*older).filter(|w| w.body.tag == tag) else {
                    continue;
                };
                if work.origin.xid > origin.xid {
                    self.stats.stale += 1;
                    return;
                }
                work.obsolete = true;
            }
            export.records.release_slot(tag, origin.xid);
        }
        let cut = Cut::of_message(body.opcode, &message);
        let served = self.work.insert(Work {
            origin,
            export: id,
            target,
            body,
            message,
            bytes,
            cut,
            // P-114: what gives locks back goes before what may wait for them.
            high: body.opcode == Opcode::LDLM_CANCEL,
            place: None,
            slot: false,
            began: None,
            transno: if is_replay(&body) { body.transno } else { 0 },
            obsolete: false,
            early: 0,
            bulk: None,
        });
        if let Some(export) = self.exports.get_mut(id) {
            export.in_work.insert(origin.xid, served);
            export.in_work_bytes += bytes;
        }
        self.queued.change(origin.peer, |queued| *queued += bytes);
        self.plan_early(cx, served);
        match place {
            Some(place) => self.hold(cx, target, place, id, served),
            None => self.enqueue(cx, served, true),
        }
    }
}

/// Whether a request says that it may have come before. A kernel server takes one that does not for a new
/// one (P-110), or refuses it (P-141); here a copy is known by its number.
const fn is_marked(body: &Body) -> bool {
    let marks = BodyFlags::RESENT.union(BodyFlags::REPLAY).union(BodyFlags::REQ_REPLAY_DONE);
    body.flags.intersects(marks)
}
