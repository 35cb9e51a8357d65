//! Disconnects: at the end of an import (P-104), and when it is not used (P-103).

use lnet_types::Instant;

use super::import::Leaving;
use super::request::{Phase, Purpose};
use super::state::Change;
use super::{Client, ImportState, Next};
use crate::common::Cx;
use crate::error::CallError;
use crate::table::ImportId;
use crate::timers::Timer;
use crate::tunables::SWITCH;

impl Client {
    /// No more calls: those under way end, and the server gets a disconnect.
    pub(crate) fn disconnect(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get_mut(import) else { return };
        if im.closing {
            return;
        }
        im.closing = true;
        let portal = im.config.kind.portals().0.0;
        let recovers = im.state.is_replay()
            || matches!(im.state, ImportState::Recover | ImportState::Evicted)
            || (im.state == ImportState::Connecting && im.handle != 0);
        let longest = im.server_time(portal, &cx.common.tunables);
        for id in self.calls_of(import) {
            let own = self.calls.get(id).is_none_or(|r| r.purpose == Purpose::Call);
            if own {
                self.release(cx, id, Next::End(Err(CallError::Closed)));
            }
        }
        if recovers {
            // The server has something of ours: it is to know that it is over.
            cx.common.timers.set(Timer::Close(import), cx.below.now() + longest);
            // Its locks are not waited for.
            self.recover(cx, import);
        } else {
            self.leave(cx, import, Leaving::Close);
        }
    }

    /// The end of an import was waited for long enough.
    pub(crate) fn close_due(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let leaving = self.imports.get(import).is_some_and(|im| im.leaving.is_some());
        if !leaving {
            self.close(cx, import);
        }
    }

    /// Sends a disconnect, if there is a connection.
    pub(super) fn leave(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, why: Leaving) {
        let Some(im) = self.imports.get_mut(import) else { return };
        if im.leaving.is_some() {
            // One for want of use is under way, and does for the end too.
            im.leaving = Some(why);
            return;
        }
        let opcode = im.config.kind.connects().map(|(_, opcode)| opcode);
        let (Some(opcode), true) = (opcode, self.change(cx, import, Change::Leave)) else {
            return self.close(cx, import);
        };
        cx.common.timers.stop(Timer::Import(import));
        let Some(im) = self.imports.get_mut(import) else { return };
        im.leaving = Some(why);
        match self.own_request(cx, import, Purpose::Disconnect, opcode, |builder| builder) {
            Ok(id) => {
                // P-104: its own wait is 5 s, whatever the server is given.
                cx.common.timers.set(Timer::Limit(id), cx.below.now() + SWITCH);
                self.progress(cx, id);
            }
            Err(_) => self.left(cx, import),
        }
    }

    /// A disconnect has ended. Whether it was answered makes no difference.
    pub(super) fn left(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get_mut(import) else { return };
        im.handle = 0;
        match im.leaving.take() {
            Some(Leaving::Idle) if !im.closing => {
                im.no_cached_data = true;
                self.stats.idle += 1;
                self.change(cx, import, Change::LeftIdle);
                self.rouse_waiting(cx, import);
            }
            _ => self.close(cx, import),
        }
    }

    /// Calls that have come while an idle import disconnected are the first of the next connection
    /// (P-103).
    fn rouse_waiting(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let waiting = self.calls_of(import);
        if waiting.is_empty() {
            return;
        }
        let Some(im) = self.imports.get(import) else { return };
        let generation = im.generation + 1;
        for id in waiting {
            if let Some(r) = self.calls.get_mut(id) {
                r.generation = generation;
            }
        }
        self.rouse(cx, import);
    }

    /// Whether an import has not been used for its idle time (P-103).
    pub(super) fn is_idle(&self, import: ImportId, now: Instant) -> bool {
        let Some(im) = self.imports.get(import) else { return false };
        let rests =
            im.last_reply.is_none_or(|at| now.saturating_since(at) >= im.tunables.idle_timeout);
        let busy = self
            .calls_of(import)
            .iter()
            .any(|id| self.calls.get(*id).is_some_and(|r| !matches!(r.phase, Phase::Unlinking(_))));
        !im.tunables.idle_timeout.is_zero() && !im.held && im.retained.is_empty() && !busy && rests
    }

    pub(super) fn close(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        self.change(cx, import, Change::Close);
        cx.common.timers.stop(Timer::Import(import));
        cx.common.timers.stop(Timer::Close(import));
        for id in self.calls_of(import) {
            self.release(cx, id, Next::End(Err(CallError::Closed)));
        }
        if self.imports.remove(import).is_some() {
            cx.common.imports_gone.push(import);
        }
    }
}
