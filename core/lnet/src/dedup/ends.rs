//! The end of further copies and of remnants, which are silent: the caller has had its SEND event.

use lnet_types::{Errno, Fault, HealthStatus, Instant, MdId, MsgId};

use crate::Node;
use crate::dedup::numbering::Numbered;
use crate::msg::{Msg, Role, Stage};
use crate::outbox::Work;
use crate::portal::md::Written;

impl Node {
    /// A copy has been written, or has failed.
    pub(crate) fn copy_ended(&mut self, now: Instant, id: MsgId, written: bool) {
        let Some(msg) = self.msgs.get(id) else { return };
        if msg.stage == Stage::Answering {
            return self.discard(id);
        }
        let rail = msg.rail().filter(|_| written);
        let due = if written { self.tables().overdue_from(now, msg) } else { Instant::FAR_FUTURE };
        let Some(md_id) = msg.md else { return self.discard(id) };
        if self.is_wanted(id) {
            let Some(md) = self.portals.mds.get_mut(md_id) else { return self.discard(id) };
            md.refs = md.refs.saturating_sub(1);
            if let Some(tracker) = &mut md.tracker {
                tracker.written = Some(Written { msg: id, rail, due });
            }
            return self.await_answer(id, due);
        }
        self.release_md(now, md_id);
        self.discard(id);
    }

    /// One user less of a descriptor, without an event of its own.
    fn release_md(&mut self, now: Instant, id: MdId) {
        let Some(md) = self.portals.mds.get_mut(id) else { return };
        if md.release() {
            let owner = md.owner;
            self.untrack(id);
            self.portals.hide(id);
            self.portals.mds.remove(id);
            self.tell_unlinked(now, id, owner);
        }
    }

    /// A driver has finished a remnant: a copy without a waiter. What it was a copy of has got through with
    /// it, or has one chance less.
    pub(crate) fn remnant_ended(&mut self, now: Instant, id: MsgId, written: bool) {
        let msg = self.msgs.get(id);
        let (md, numbered) = (msg.and_then(|m| m.md), msg.and_then(|m| m.numbered));
        self.msgs.remnant_gone();
        self.discard(id);
        if let Some(md) = md {
            self.release_md(now, md);
        }
        if let Some(numbered) = numbered {
            self.sibling_ended(numbered, written);
        }
    }

    fn sibling_ended(&mut self, numbered: Numbered, written: bool) {
        let is_it = |msg: &Msg| {
            msg.has_one_end() && msg.numbered.is_some_and(|other| other.is_of(numbered))
        };
        let Some(id) = self.msgs.iter().find(|(_, msg)| is_it(msg)).map(|(id, _)| id) else {
            return;
        };
        let Some(msg) = self.msgs.get_mut(id) else { return };
        if written && let Some(numbered) = &mut msg.numbered {
            numbered.note_written();
        }
        let stage = msg.stage;
        match stage {
            Stage::PeerQueue | Stage::NiQueue | Stage::Resting(_) if written => {
                let needless = Fault::new(HealthStatus::Ok, Errno::ECANCELED);
                self.end_rest(id);
                self.outbox.plan(Work::Finish(id, Err(needless)));
            }
            // It may have been kept for this copy alone.
            Stage::Resting(_) if !self.has_remnants(numbered) => self.end_backoff(id),
            _ => {}
        }
    }

    /// Whether drivers still have earlier copies of a message.
    pub(crate) fn has_remnants(&self, numbered: Numbered) -> bool {
        let is_one = |msg: &Msg| {
            msg.role == Role::Remnant && msg.numbered.is_some_and(|other| other.is_of(numbered))
        };
        self.msgs.remnants() > 0 && self.msgs.iter().any(|(_, msg)| is_one(msg))
    }
}
