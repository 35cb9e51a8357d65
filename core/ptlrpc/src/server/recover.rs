//! Carries out what the machine of `recovery/` orders, and gives it the facts.

use core::time::Duration;

use lnet_types::{Errno, Instant};
use lustre_wire::{Body, BodyFlags};

use super::Server;
use super::recovery::{Order, Place, Recovery, RecoveryChange, Verdict, floor_of, prolong_time};
use super::service::Work;
use crate::common::Cx;
use crate::event::{Event, EvictReason};
use crate::sabotage::Sabotage;
use crate::table::{ExportId, ServedId, TargetId};
use crate::timers::Timer;
use crate::tunables::Tunables;

impl Server {
    fn recovery_of(&mut self, target: TargetId) -> Option<&mut Recovery> {
        let recovery = self.targets.get_mut(target)?.recovery.as_mut()?;
        (!recovery.is_over()).then_some(recovery)
    }

    /// Whether a target waits for its past.
    pub(super) fn recovers(&self, target: TargetId) -> bool {
        let recovery = self.targets.get(target).and_then(|t| t.recovery.as_ref());
        recovery.is_some_and(|recovery| !recovery.is_over())
    }

    /// A target with clients of an earlier life begins (P-145).
    pub(super) fn begin_recovery(
        &mut self,
        cx: &mut Cx<'_, '_>,
        id: TargetId,
        members: &[ExportId],
    ) {
        let Some(target) = self.targets.get_mut(id) else { return };
        let recovery = Recovery::new(&cx.common.tunables, members, target.committed);
        let (soft, hard) = recovery.window();
        target.last = target.committed;
        target.recovery = Some(recovery);
        let missing = self.names(members);
        let change = RecoveryChange::Waiting { soft, hard, missing };
        cx.common.events.push_back(Event::Recovery { target: id, change });
    }

    fn names(&self, exports: &[ExportId]) -> Vec<String> {
        let name = |id: &ExportId| self.exports.get(*id).map(|e| e.client.clone());
        exports.iter().filter_map(name).collect()
    }

    /// A client connects, and was not connected in this life: a known one takes part (P-129, steps 8
    /// and 14).
    pub(super) fn client_comes(
        &mut self,
        cx: &mut Cx<'_, '_>,
        id: TargetId,
        known: Option<ExportId>,
        body: &Body,
    ) {
        let said = Duration::from_secs(body.service_time.into());
        let floor = floor_of(said, &cx.common.tunables);
        let now = cx.below.now();
        if let Some(recovery) = self.recovery_of(id) {
            recovery.wanted(now, floor);
            if let Some(known) = known {
                recovery.connected(known);
            }
            self.run_recovery(cx, id);
        }
    }

    /// What becomes of a request (P-150).
    pub(super) fn verdict(&mut self, target: TargetId, export: ExportId, body: &Body) -> Verdict {
        let Some(recovery) = self.recovery_of(target) else { return Verdict::AtOnce };
        let verdict = recovery.judge(export, body);
        if matches!(verdict, Verdict::Queue(Place::Lock | Place::Final)) {
            recovery.closes(export, body.flags);
        }
        verdict
    }

    /// A request waits for its turn.
    pub(super) fn hold(
        &mut self,
        cx: &mut Cx<'_, '_>,
        target: TargetId,
        place: Place,
        export: ExportId,
        served: ServedId,
    ) {
        let over = self.recovery_of(target).and_then(|r| r.queue(place, export, served));
        if let Some(over) = over {
            self.forget(cx, over);
        }
        self.run_recovery(cx, target);
    }

    /// A request that was executed again was answered (P-147, P-152).
    pub(super) fn replay_answered(
        &mut self,
        cx: &mut Cx<'_, '_>,
        id: ServedId,
        work: &Work,
        status: i32,
    ) {
        if !self.recovers(work.target) {
            return;
        }
        let now = cx.below.now();
        let time = self.prolong_for(work, now, &cx.common.tunables);
        if let Some(recovery) = self.recovery_of(work.target) {
            if is_replay(&work.body) && status == Errno::EOVERFLOW.negative() {
                recovery.version_failed(work.export);
            }
            recovery.ended(id, true);
            recovery.prolong(now, work.export, time);
        }
        self.run_recovery(cx, work.target);
    }

    /// What the client of a request needs for its next one (P-137).
    fn prolong_for(&self, work: &Work, now: Instant, tunables: &Tunables) -> Duration {
        let bounds = tunables.bounds();
        let service = self.services.get(work.origin.service);
        let service = service.map_or(bounds.min, |s| s.estimate.get(&bounds));
        let net = match self.recovers(work.target) {
            // As the client knows it; nothing that a peer says is longer than the longest estimate.
            true => Duration::from_secs(work.body.service_time.into()).min(tunables.at_max),
            false => self.exports.get(work.export).map_or(bounds.min, |e| e.net.max(bounds.min)),
        };
        prolong_time(service, net, work.origin.deadline.saturating_since(now), tunables)
    }

    /// The same for a request that is being served; nothing if it is over.
    pub(crate) fn prolongation(&self, id: ServedId, now: Instant, tunables: &Tunables) -> Duration {
        self.work.get(id).map_or(Duration::ZERO, |work| self.prolong_for(work, now, tunables))
    }

    /// A request is over without an answer: if it was its turn, the recovery goes on without it.
    pub(super) fn replay_lost(&mut self, cx: &mut Cx<'_, '_>, id: ServedId, target: TargetId) {
        if let Some(recovery) = self.recovery_of(target) {
            recovery.ended(id, false);
            // Not from here, where others are at work.
            cx.common.timers.set(Timer::Recovery(target), cx.below.now());
        }
    }

    /// A client is gone. What waited for it is answered so.
    pub(super) fn client_leaves(
        &mut self,
        cx: &mut Cx<'_, '_>,
        target: TargetId,
        export: ExportId,
    ) {
        let recovery = self.targets.get_mut(target).and_then(|t| t.recovery.as_mut());
        let Some(recovery) = recovery else { return };
        for served in recovery.left_by(export) {
            if let Some(work) = self.forget(cx, served) {
                self.refuse_origin(cx, &work.origin, None, &work.body, Errno::ENOTCONN);
            }
        }
        cx.common.timers.set(Timer::Recovery(target), cx.below.now());
    }

    /// The timer of a recovery: its window is over, or something waits to be done.
    pub(crate) fn recovery_due(&mut self, cx: &mut Cx<'_, '_>, target: TargetId) {
        let now = cx.below.now();
        let Some(recovery) = self.recovery_of(target) else { return };
        if recovery.due().is_some_and(|due| due <= now) {
            let late = recovery.expire(now);
            if !late.is_empty() {
                let change = RecoveryChange::TimedOut { missing: self.names(&late) };
                cx.common.events.push_back(Event::Recovery { target, change });
            }
        }
        self.run_recovery(cx, target);
    }

    /// Ends a recovery without the clients that have not finished.
    pub(crate) fn abort_recovery(&mut self, cx: &mut Cx<'_, '_>, target: TargetId) {
        let now = cx.below.now();
        if let Some(recovery) = self.recovery_of(target) {
            recovery.abort(now);
            self.run_recovery(cx, target);
        }
    }

    /// Does what is ordered.
    fn run_recovery(&mut self, cx: &mut Cx<'_, '_>, id: TargetId) {
        let (now, hasty) = (cx.below.now(), cx.common.breaks(Sabotage::GapTooSoon));
        loop {
            let recovery = self.targets.get_mut(id).and_then(|t| t.recovery.as_mut());
            let Some(recovery) = recovery else { return };
            let Some(order) = recovery.next(now, hasty) else {
                return match recovery.due() {
                    Some(due) => cx.common.timers.set(Timer::Recovery(id), due),
                    None => cx.common.timers.stop(Timer::Recovery(id)),
                };
            };
            match order {
                Order::Run(served) => self.run_again(cx, served, now),
                Order::Evict(export) => self.evict(cx, export, EvictReason::NotRecovered),
                Order::EvictUnfit(export) => self.evict(cx, export, EvictReason::VersionMismatch),
                Order::Answer(served) => {
                    if let Some(work) = self.forget(cx, served) {
                        // Its silence counts from here: it had nothing to say while it waited.
                        self.heard_of(cx, work.export, &work.origin);
                        self.answer_at_once(cx, &work.origin, work.export, &work.body);
                    }
                }
                Order::Report(change) => self.recovery_reports(cx, id, change),
            }
        }
    }

    /// A request's turn has come.
    fn run_again(&mut self, cx: &mut Cx<'_, '_>, served: ServedId, now: Instant) {
        let late = self.work.get(served).is_none_or(|work| work.origin.deadline <= now);
        if late {
            // Its client has connected anew, and sends it again.
            self.stats.late += 1;
            self.forget(cx, served);
        } else {
            self.enqueue(cx, served, false);
        }
    }

    fn recovery_reports(&mut self, cx: &mut Cx<'_, '_>, id: TargetId, change: RecoveryChange) {
        if let RecoveryChange::Done { outcome } | RecoveryChange::Aborted { outcome } = &change
            && let Some(target) = self.targets.get_mut(id)
        {
            target.last = target.last.max(outcome.last_transno);
        }
        cx.common.events.push_back(Event::Recovery { target: id, change });
    }
}

/// The mark of a request that is executed again.
pub(super) const fn is_replay(body: &Body) -> bool {
    body.flags.contains(BodyFlags::REPLAY)
}
