//! What a lost or dropped connection makes void (P-58, P-76).

use core::time::Duration;

use super::state::Change;
use super::{Client, LogLine};
use crate::common::Cx;
use crate::error::CallError;
use crate::event::Event;
use crate::table::ImportId;
use crate::timers::Timer;

impl Client {
    /// Ends all requests of the generation so far, and lets nothing but connects go.
    pub(super) fn abort_older(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get_mut(import) else { return };
        im.invalid = true;
        im.generation += 1;
        im.retained.clear();
        let calls = self.calls_of(import);
        self.end_all(cx, calls, CallError::Evicted);
    }

    /// The server has dropped this client: all that was under way is void.
    pub(super) fn invalidate(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get_mut(import) else { return };
        if im.invalidating {
            return;
        }
        im.invalidating = true;
        im.no_cached_data = true;
        im.version_failed = false;
        im.lost = u32::try_from(im.retained.uncommitted()).unwrap_or(u32::MAX);
        self.abort_older(cx, import);
        self.warn_later(cx, import);
        self.invalidated(cx, import);
    }

    /// Goes on when nothing of the time before is under way any more.
    pub(super) fn invalidated(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get_mut(import) else { return };
        if !im.invalidating || im.under_way() > 0 {
            return;
        }
        im.invalidating = false;
        im.invalid = im.deactivated;
        cx.common.timers.stop(Timer::Import(import));
        let lost = core::mem::take(&mut im.lost);
        for call in im.retained.take_void() {
            cx.common.events.push_back(Event::Unretained { import, call, committed: false });
        }
        cx.common.events.push_back(Event::Invalidated { import, lost });
        if self.change(cx, import, Change::Invalidated) {
            self.recover(cx, import);
        }
    }

    /// Calls are slow to end: a line in the log each four thirds of the longest of their deadlines.
    pub(super) fn warn_later(&self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let now = cx.below.now();
        if !self.imports.get(import).is_some_and(|im| im.invalidating) {
            return;
        }
        let calls = self.calls_of(import);
        let left = calls.iter().filter_map(|id| self.calls.get(*id)?.deadline);
        let left = left.map(|at| at.saturating_since(now)).max().unwrap_or_default();
        let left = if left.is_zero() { cx.common.tunables.obd_timeout } else { left };
        cx.common.timers.set(Timer::Import(import), now + left * 4 / 3 + Duration::from_secs(1));
    }

    /// They still have not ended.
    pub(super) fn warn(&self, cx: &mut Cx<'_, '_>, import: ImportId) {
        self.log(cx, import, |im| LogLine::StillEnding {
            target: im.config.target.to_string(),
            calls: im.under_way(),
        });
        self.warn_later(cx, import);
    }
}
