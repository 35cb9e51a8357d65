//! Disconnects: at the end of an import (P-104), and when it is not used (P-103).
//!
//! A server without a disconnect waits for the client each time that it recovers, and lets no new
//! client in meanwhile (P-146). An end over a lost connection therefore connects again to disconnect, as
//! long as its bound allows.

use core::time::Duration;

use lnet_types::{Errno, Instant};

use super::import::Leaving;
use super::request::{Phase, Purpose};
use super::state::Change;
use super::{Client, ImportState, Next};
use crate::common::Cx;
use crate::error::CallError;
use crate::table::ImportId;
use crate::timers::Timer;
use crate::tunables::SWITCH;
use lustre_wire::Buffers;

impl Client {
    /// No more calls: those under way end, and the server gets a disconnect. `within` bounds the time
    /// for it; the estimate of the service if not given.
    pub(crate) fn disconnect(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        within: Option<Duration>,
    ) {
        let Some(im) = self.imports.get_mut(import) else { return };
        if im.closing {
            return;
        }
        im.closing = true;
        let portal = im.config.kind.portals().0.0;
        let (state, persists) = (im.state, within.is_some());
        let within = within.unwrap_or_else(|| im.server_time(portal, &cx.common.tunables));
        // The answer to the first connect may be on its way: there is an export to be ended then.
        let first = state == ImportState::Connecting && im.handle == 0 && im.conn_cnt == 1;
        // A server that has refused this client for good has nothing of it.
        let known = im.handle != 0 && !im.deactivated;
        let mut calls = self.calls_of(import);
        calls.retain(|id| self.calls.get(*id).is_none_or(|r| r.purpose == Purpose::Call));
        self.end_all(cx, calls, CallError::Closed);
        if !known && !first {
            return self.close(cx, import);
        }
        let full = state == ImportState::Full;
        // P-104: over a connection in use it is sent once, unless the program wants more.
        if !full || persists {
            let within = if first { within.min(SWITCH) } else { within };
            cx.common.timers.set(Timer::Close(import), cx.below.now() + within);
        }
        match state {
            ImportState::Full => self.leave(cx, import, Leaving::Close),
            ImportState::Disconnected => self.connect(cx, import),
            // Its locks are not waited for.
            _ => self.recover(cx, import),
        }
    }

    /// The end of an import has taken as long as it may.
    pub(crate) fn close_due(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get(import) else { return };
        match im.leaving {
            // The disconnect under way has a bound of its own.
            Some(_) => {}
            // What the server has lost is not repeated, but it need not wait for this client.
            None if im.state.is_replay() => self.leave(cx, import, Leaving::Close),
            None => self.close(cx, import),
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
        if let Some(id) = im.recovering.take() {
            self.release(cx, id, Next::End(Err(CallError::Closed)));
        }
        match self.own_request(cx, import, Purpose::Disconnect, opcode, Buffers::new()) {
            Ok(id) => {
                // P-104: its own wait is 5 s, whatever the server is given.
                cx.common.timers.set(Timer::Limit(id), cx.below.now() + SWITCH);
                self.progress(cx, id);
            }
            Err(e) => self.left(cx, import, Err(e)),
        }
    }

    /// A disconnect has ended. One that the server has not carried out goes over another connection, as
    /// long as the end of the import may take.
    pub(super) fn left(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        result: Result<(), CallError>,
    ) {
        let Some(im) = self.imports.get_mut(import) else { return };
        let leaving = im.leaving.take();
        // P-104 takes any answer. A server that has started anew knows the client, and not its handle.
        let known = match result {
            Ok(()) => true,
            Err(CallError::Refused(errno)) => !matches!(errno, Errno::ENOTCONN | Errno::ENODEV),
            Err(_) => false,
        };
        if !known && im.closing && cx.common.timers.at(Timer::Close(import)).is_some() {
            self.change(cx, import, Change::ConnectFailed);
            return self.connect(cx, import);
        }
        im.handle = 0;
        match leaving {
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
        // A connect is not among its calls.
        let connecting = self.imports.get(import).and_then(|im| im.connecting);
        let calls = self.calls_of(import);
        self.end_all(cx, calls.into_iter().chain(connecting), CallError::Closed);
        if self.imports.remove(import).is_some() {
            cx.common.imports_gone.push(import);
        }
    }
}
