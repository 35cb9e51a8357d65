//! Slots for the calls that wait for one (P-82, P-88).
//!
//! A call that gets a slot may end at once, and its slot goes to the next one. That is a loop, and no
//! recursion: as many as [`super::CALLS_PER_IMPORT_MAX`] calls may wait.

use super::slots::Class;
use super::{Client, Next};
use crate::common::Cx;
use crate::error::CallError;
use crate::table::{CallId, ImportId};

/// Imports of which calls may have slots.
#[derive(Debug, Default)]
pub(super) struct Pump {
    /// Slots are being given, or are held back: what ends meanwhile only adds its import.
    busy: bool,
    due: Vec<ImportId>,
}

impl Client {
    /// Calls that wait for slots have them now, as far as there are any.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        if self.imports.get(import).is_none_or(|im| !im.slots.has_waiting()) {
            return;
        }
        if !self.pump.due.contains(&import) {
            self.pump.due.push(import);
        }
        if !self.pump.busy {
            self.run_pump(cx);
        }
    }

    fn run_pump(&mut self, cx: &mut Cx<'_, '_>) {
        self.pump.busy = true;
        while let Some(import) = self.pump.due.pop() {
            for class in [Class::Modify, Class::Read, Class::Write] {
                while let Some(im) = self.imports.get_mut(import)
                    && let Some((id, slot)) = im.slots.next(class, im.limits())
                {
                    self.number(cx, id, slot);
                    self.progress(cx, id);
                }
            }
        }
        self.pump.busy = false;
    }

    /// Ends calls for one reason. The slot of the first is not for the last: no call gets one before all
    /// have ended.
    pub(super) fn end_all(
        &mut self,
        cx: &mut Cx<'_, '_>,
        calls: impl IntoIterator<Item = CallId>,
        reason: CallError,
    ) {
        let busy = core::mem::replace(&mut self.pump.busy, true);
        for id in calls {
            self.release(cx, id, Next::End(Err(reason)));
        }
        self.pump.busy = busy;
        if !busy {
            self.run_pump(cx);
        }
    }
}
