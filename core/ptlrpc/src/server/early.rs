//! Early replies: "it takes longer than you think" (P-123 … P-126). And the line for the log about
//! requests for which it took too long.

use core::time::Duration;

use lnet_types::Instant;
use lustre_wire::body::MsgKind;
use lustre_wire::msg::{Header, MsgBuilder, checksum};
use lustre_wire::{Body, BodyFlags, Layout};

use super::Server;
use crate::common::Cx;
use crate::estimate::wire_secs;
use crate::event::{Behind, Event};
use crate::lose::Part;
use crate::table::ServedId;
use crate::timers::Timer;

/// The least time between two lines about one service.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Rate limit of the lines about requests whose time was over.
#[derive(Debug, Default)]
pub(crate) struct Behindness {
    last: Option<Instant>,
    /// Requests that were dropped since.
    dropped: u64,
}

impl Behindness {
    /// When the last line was due.
    pub(super) const fn last(&self) -> Option<Instant> {
        self.last
    }
}

impl Server {
    /// When an early reply is due, if one may be sent.
    pub(super) fn plan_early(&self, cx: &mut Cx<'_, '_>, id: ServedId) {
        let Some(work) = self.work.get(id) else { return };
        let tunables = &cx.common.tunables;
        if work.origin.adaptive && !tunables.at_max.is_zero() {
            let left = work.origin.deadline.saturating_since(work.origin.arrival);
            let due = work.origin.deadline - tunables.at_early_margin.min(left);
            cx.common.timers.set(Timer::Early(id), due);
        }
    }

    /// One is due (P-124).
    pub(crate) fn early_due(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) {
        let now = cx.below.now();
        let tunables = &cx.common.tunables;
        let bounds = tunables.bounds();
        let Some(work) = self.work.get_mut(id) else { return };
        if self.exports.get(work.export).is_none() {
            return;
        }
        if work.origin.deadline <= now {
            return self.behind(cx, id, false);
        }
        let Some(service) = self.services.get_mut(work.origin.service) else { return };
        let elapsed = now.saturating_since(work.origin.arrival);
        let done = BodyFlags::REQ_REPLAY_DONE | BodyFlags::LOCK_REPLAY_DONE;
        let whole = if work.body.flags.intersects(BodyFlags::REPLAY | done) {
            elapsed + tunables.extra_in_recovery()
        } else {
            let asked = elapsed + tunables.at_extra;
            service.estimate.measure(now, asked, &bounds);
            let estimate = service.estimate.get(&bounds);
            if tunables.early_reply_defect { estimate.max(asked) } else { estimate }
        };
        let deadline = work.origin.arrival + whole;
        // Nothing is gained: at_max is reached (P-125).
        if deadline <= work.origin.deadline {
            return;
        }
        // The handle stays 0: the recordings say so, against P-124.
        let body = Body {
            kind: MsgKind::REPLY,
            version: lustre_wire::Service::VERSION,
            opcode: work.body.opcode,
            timeout: wire_secs(whole),
            service_time: wire_secs(elapsed),
            ..Body::default()
        };
        let cksum = checksum(&body.to_bytes(lnet_types::ByteOrder::Little));
        let header = Header { cksum, ..Header::default() };
        let Ok(message) = MsgBuilder::new(header, &body).build() else { return };
        let origin = work.origin;
        let lost = cx.common.losses.hit(body.opcode, Part::Early);
        if !lost
            && !self.put(cx, &origin, 0, None, message.len(), |out| out.copy_from_slice(&message))
        {
            return;
        }
        self.stats.early += 1;
        if let Some(work) = self.work.get_mut(id) {
            work.origin.deadline = deadline;
            work.early += 1;
        }
        self.plan_early(cx, id);
    }

    /// The deadline of a request has passed before its turn, or before it could be moved.
    pub(super) fn behind(&mut self, cx: &mut Cx<'_, '_>, id: ServedId, dropped: bool) {
        let now = cx.below.now();
        let Some(work) = self.work.get(id) else { return };
        let Some(export) = self.exports.get(work.export) else { return };
        let Some(service) = self.services.get_mut(work.origin.service) else { return };
        let behind = &mut service.behind;
        behind.dropped += u64::from(dropped);
        if behind.last.is_some_and(|last| now.saturating_since(last) < LINE_EVERY) {
            return;
        }
        behind.last = Some(now);
        let event = Behind {
            service: work.origin.service,
            name: service.config.name.clone(),
            client: export.client.clone(),
            opcode: work.body.opcode,
            xid: work.origin.xid,
            waited: now.saturating_since(work.origin.arrival),
            late: now.saturating_since(work.origin.deadline),
            dropped: core::mem::take(&mut behind.dropped),
        };
        cx.common.events.push_back(Event::Behind(Box::new(event)));
    }
}
