//! Early replies: "it takes longer than you think" (P-123 … P-126).

use lustre_wire::body::MsgKind;
use lustre_wire::msg::{Header, MsgBuilder, checksum};
use lustre_wire::{Body, Layout};

use super::Server;
use crate::common::Cx;
use crate::estimate::wire_secs;
use crate::table::ServedId;
use crate::timers::Timer;

impl Server {
    /// When an early reply is due, if one may be sent.
    pub(super) fn plan_early(&self, cx: &mut Cx<'_, '_>, id: ServedId) {
        let Some(work) = self.work.get(id) else { return };
        let tunables = &cx.common.tunables;
        if work.origin.adaptive && !tunables.at_max.is_zero() {
            let margin = tunables.at_early_margin;
            let due = work.origin.deadline
                - margin.min(work.origin.deadline.saturating_since(work.origin.arrival));
            cx.common.timers.set(Timer::Early(id), due);
        }
    }

    /// One is due (P-124).
    pub(crate) fn early_due(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) {
        let now = cx.below.now();
        let tunables = cx.common.tunables.clone();
        let bounds = tunables.bounds();
        let Some(work) = self.work.get_mut(id) else { return };
        if work.origin.deadline <= now || self.exports.get(work.export).is_none() {
            return;
        }
        let Some(service) = self.services.get_mut(work.origin.service) else { return };
        let elapsed = now.saturating_since(work.origin.arrival);
        service.estimate.measure(now, tunables.at_extra + elapsed, &bounds);
        let estimate = service.estimate.get(&bounds);
        let deadline = work.origin.arrival + estimate;
        // Nothing is gained: at_max is reached (P-125).
        if deadline <= work.origin.deadline {
            return;
        }
        let cookie = self.exports.get(work.export).map_or(0, |e| e.cookie);
        let body = Body {
            handle: cookie,
            kind: MsgKind::REPLY,
            version: lustre_wire::Service::VERSION,
            opcode: work.body.opcode,
            timeout: wire_secs(estimate),
            service_time: wire_secs(elapsed),
            ..Body::default()
        };
        let cksum = checksum(&body.to_bytes(lnet_types::ByteOrder::Little));
        let header = Header { cksum, ..Header::default() };
        let Ok(message) = MsgBuilder::new(header, &body).build() else { return };
        work.origin.deadline = deadline;
        work.early += 1;
        let origin = work.origin;
        self.stats.early += 1;
        self.put(cx, &origin, &message, 0, None);
        self.plan_early(cx, id);
    }
}
