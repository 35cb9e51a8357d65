//! The stage of recovery in which locks are replayed: the program sends them, recovery waits for the
//! answers (P-57, P-69).

use lustre_wire::BodyFlags;

use super::import::LockStage;
use super::request::{Call, Purpose};
use super::slots::Class;
use super::{Client, ImportState, Next};
use crate::common::Cx;
use crate::error::CallError;
use crate::event::Event;
use crate::table::{CallId, ImportId};

impl Client {
    /// The program has locks, or has none any more.
    pub(crate) fn replays_locks(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, replays: bool) {
        let Some(im) = self.imports.get_mut(import) else { return };
        im.replays_locks = replays;
        if im.state == ImportState::ReplayLocks {
            self.recover(cx, import);
        }
    }

    /// Whether locks are still to be replayed; the program is asked for them once.
    pub(super) fn locks_open(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) -> bool {
        let Some(im) = self.imports.get_mut(import) else { return false };
        if !im.replays_locks || im.closing {
            return false;
        }
        if im.lock_stage == LockStage::Ahead {
            im.lock_stage = LockStage::Begun;
            cx.common.events.push_back(Event::ReplayLocks { import });
        }
        im.lock_stage != LockStage::Over || im.lock_replays > 0
    }

    /// A lock of the program's.
    pub(crate) fn replay_lock(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        call: Call,
    ) -> Result<CallId, CallError> {
        let im = self.imports.get(import).ok_or(CallError::NoImport)?;
        if im.state != ImportState::ReplayLocks || im.lock_stage != LockStage::Begun {
            return Err(CallError::NotConnected);
        }
        let call = Call { resend: false, delay: false, bulk: None, ..call };
        let id = self.prepare(import, Purpose::LockReplay, Class::Unlimited, call)?;
        if let (Some(r), Some(im)) = (self.calls.get_mut(id), self.imports.get_mut(import)) {
            // P-13: this client's requests are all replayed.
            r.body.flags.insert(BodyFlags::REQ_REPLAY_DONE);
            im.lock_replays += 1;
        }
        self.number(cx, id, 0);
        self.progress(cx, id);
        Ok(id)
    }

    /// The program has no further lock.
    pub(crate) fn locks_replayed(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get_mut(import) else { return };
        if im.state == ImportState::ReplayLocks && im.lock_stage == LockStage::Begun {
            im.lock_stage = LockStage::Over;
            self.recover(cx, import);
        }
    }

    /// The replay of a lock has ended. One that failed takes the others with it: the next connection
    /// begins with all of them.
    pub(super) fn lock_replayed(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        conn_cnt: u32,
        good: bool,
    ) {
        let Some(im) = self.imports.get_mut(import) else { return };
        im.lock_replays = im.lock_replays.saturating_sub(1);
        if im.state != ImportState::ReplayLocks || im.conn_cnt != conn_cnt {
            return;
        }
        if good {
            return self.recover(cx, import);
        }
        self.connect(cx, import);
        for id in self.calls_of(import) {
            if self.calls.get(id).is_some_and(|r| r.purpose == Purpose::LockReplay) {
                self.release(cx, id, Next::End(Err(CallError::NotConnected)));
            }
        }
    }
}
