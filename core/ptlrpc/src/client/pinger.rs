//! Keeping idle connections alive, and making lost ones again (P-100 … P-102).

use core::time::Duration;

use lnet_types::Instant;

use super::import::{Import, Leaving};
use super::request::Purpose;
use super::{Client, ImportState};
use crate::common::Cx;
use crate::table::{CallId, ImportId};
use crate::timers::Timer;
use crate::tunables::{Pinger, SWITCH};

/// Imports that a pass of the pinger looks at beside the one whose time has come: pings of a few imports
/// go together (P-102), those of very many stay spread over the interval.
const TOGETHER: usize = 64;
/// Pings that go at one moment: half of the replies that a server keeps on their way to one node, so
/// that it drops none ([`REPLIES_PER_PEER_MAX`](crate::REPLIES_PER_PEER_MAX)).
pub(crate) const AT_ONCE: usize = 4096;
/// Pings beyond that go so much later.
const LATER: Duration = Duration::from_millis(100);

/// Passes of the kernel's pinger are at least so far apart.
const PASSES: Duration = Duration::from_secs(1);

/// How many pings have gone at the last moment at which any has.
#[derive(Debug, Default)]
pub(super) struct Burst {
    at: Option<Instant>,
    pings: usize,
}

impl Burst {
    /// Whether another ping may go now; it is counted.
    fn admits(&mut self, now: Instant) -> bool {
        if self.at.replace(now) != Some(now) {
            self.pings = 0;
        }
        self.pings += 1;
        self.pings <= AT_ONCE
    }
}

impl Client {
    /// The time of an import has come. With a ping the pinger looks at other imports whose time comes
    /// soon, so that those of a node ping together (P-101, P-102).
    pub(crate) fn import_due(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let pings = self.imports.get(import).is_some_and(|im| im.state == ImportState::Full);
        self.look_at(cx, import);
        if pings && cx.common.tunables.pinger == Pinger::Kernel {
            return self.pass_due(cx);
        }
        // What goes at this moment anyway is company enough: the others stay spread.
        if !pings || self.burst.pings > 1 {
            return;
        }
        for other in cx.common.timers.imports_before(cx.below.now() + SWITCH, TOGETHER) {
            let state = self.imports.get(other).map(|im| im.state);
            if matches!(state, Some(ImportState::Full | ImportState::Disconnected)) {
                cx.common.timers.stop(Timer::Import(other));
                self.look_at(cx, other);
            }
        }
    }

    /// A pass of the kernel's pinger over all imports (P-101).
    pub(crate) fn pass_due(&mut self, cx: &mut Cx<'_, '_>) {
        let now = cx.below.now();
        self.pass = None;
        let at = |cx: &Cx<'_, '_>, id| cx.common.timers.at(Timer::Import(id));
        let looked_at =
            |im: &Import| matches!(im.state, ImportState::Full | ImportState::Disconnected);
        let due = self
            .imports
            .iter()
            .filter(|(id, im)| looked_at(im) && at(cx, *id).is_some_and(|at| at < now + SWITCH));
        let due: Vec<ImportId> = due.map(|(id, _)| id).collect();
        for import in due {
            cx.common.timers.stop(Timer::Import(import));
            self.look_at(cx, import);
        }
        let full = self.imports.iter().filter(|(_, im)| im.state == ImportState::Full);
        if let Some(next) = full.filter_map(|(id, _)| at(cx, id)).min() {
            self.plan_pass(cx, next.max(now + PASSES));
        }
    }

    /// A pass of the kernel's pinger is to be made then at the latest.
    fn plan_pass(&mut self, cx: &mut Cx<'_, '_>, at: Instant) {
        let kernel = cx.common.tunables.pinger == Pinger::Kernel;
        if kernel && self.pass.is_none_or(|planned| at < planned) {
            self.pass = Some(at);
            cx.common.timers.set(Timer::Pass, at);
        }
    }

    /// Pings, or connects.
    fn look_at(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        match self.imports.get(import).map(|im| im.state) {
            Some(ImportState::Disconnected | ImportState::New) => {
                if let Some(im) = self.imports.get_mut(import) {
                    im.look_again = Some(cx.below.now() + SWITCH);
                }
                self.plan_pass(cx, cx.below.now() + SWITCH);
                self.connect(cx, import);
            }
            Some(ImportState::Full) if self.is_idle(import, cx.below.now()) => {
                self.leave(cx, import, Leaving::Idle);
            }
            Some(ImportState::Full) if !self.burst.admits(cx.below.now()) => {
                cx.common.timers.set(Timer::Import(import), cx.below.now() + LATER);
            }
            Some(ImportState::Full) => {
                self.ping_later(cx, import);
                self.ping(cx, import);
            }
            // The program has seen the answer to a replay.
            Some(ImportState::Replay) => self.recover(cx, import),
            Some(_) if self.imports.get(import).is_some_and(|im| im.invalidating) => {
                self.warn(cx, import);
            }
            _ => {}
        }
    }

    /// The next ping is due a whole interval from now. A reply that leaves something uncommitted calls it
    /// sooner (P-75, P-100).
    pub(super) fn ping_later(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get(import) else { return };
        if im.state != ImportState::Full || im.callback.is_some() {
            return;
        }
        let at = cx.below.now() + cx.common.tunables.ping_interval;
        cx.common.timers.set(Timer::Import(import), at);
        self.plan_pass(cx, at);
    }

    /// It is due after a short one if a commit is awaited.
    pub(super) fn ping_soon(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        if self.imports.get(import).is_some_and(|im| im.retained.awaits_commit()) {
            let soon = Self::now(cx) + cx.common.tunables.short_ping();
            cx.common.timers.set(Timer::Import(import), soon);
            self.plan_pass(cx, soon);
        }
    }

    /// An import is in use again. What has connected it looks again soon, unless a request goes before
    /// (P-101).
    pub(super) fn look_again(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        self.ping_later(cx, import);
        self.ping_soon(cx, import);
        let look_again = self.imports.get_mut(import).and_then(|im| im.look_again.take());
        if let Some(at) = look_again.filter(|at| *at > cx.below.now()) {
            cx.common.timers.set(Timer::Import(import), at);
        }
    }

    /// A request has gone out: that is as good as a ping.
    pub(super) fn traffic(&mut self, cx: &mut Cx<'_, '_>, id: CallId) {
        let Some(r) = self.calls.get(id) else { return };
        let (import, call) = (r.import, r.purpose == Purpose::Call);
        if call {
            self.expects_answer(cx, import);
        }
        if let Some(im) = self.imports.get_mut(import) {
            im.look_again = None;
        }
        self.ping_later(cx, import);
    }
}
