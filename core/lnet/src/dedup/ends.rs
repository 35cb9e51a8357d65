//! The end of further copies and of remnants, which are silent: the caller has had its SEND event.

use lnet_types::{Errno, Fault, HealthStatus, Instant, MdId, MsgId};

use crate::Node;
use crate::dedup::numbering::Numbered;
use crate::msg::{Msg, Stage};
use crate::outbox::Work;
use crate::portal::md::Written;

impl Node {
    /// A copy has been written, or has failed for good.
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
            self.report_unlinked(now, id, owner);
        }
    }

    /// A driver has finished a remnant: a copy without a waiter. What it was a copy of has got through with
    /// it, or has one chance less.
    /// `written` is `None` if its driver had not begun with it.
    pub(crate) fn remnant_ended(&mut self, now: Instant, id: MsgId, written: Option<bool>) {
        let msg = self.msgs.get(id);
        let (md, numbered) = (msg.and_then(|m| m.md), msg.and_then(|m| m.numbered));
        let latest = self.msgs.copies.ended(id, numbered);
        self.discard(id);
        if let Some(md) = md {
            self.release_md(now, md);
        }
        if let (Some(numbered), Some(latest)) = (numbered, latest) {
            self.earlier_copy_ended(latest, numbered, written);
        }
    }

    /// A remnant has ended, of which `id` is the latest copy.
    fn earlier_copy_ended(&mut self, id: MsgId, numbered: Numbered, written: Option<bool>) {
        let is_it = |msg: &Msg| {
            let same = msg.numbered.is_some_and(|other| other.number() == numbered.number());
            msg.has_one_end() && same
        };
        let Some(msg) = self.msgs.get_mut(id).filter(|msg| is_it(msg)) else { return };
        let (Some(own), stage) = (&mut msg.numbered, msg.stage) else { return };
        match written {
            Some(true) => own.note_written(),
            Some(false) => own.note_lost(),
            None => {}
        }
        match stage {
            Stage::PeerQueue | Stage::NiQueue | Stage::Resting(_) if own.has_arrived() => {
                let needless = Fault::new(HealthStatus::Ok, Errno::ECANCELED);
                self.end_rest(id);
                self.outbox.plan(Work::Finish(id, Err(needless)));
            }
            // It may have been kept for this copy alone.
            Stage::Resting(_) if !self.msgs.copies.has_earlier(numbered) => self.end_backoff(id),
            _ => {}
        }
    }
}
