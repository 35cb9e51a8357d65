//! The end of further copies and of remnants, which are silent: the caller has had its SEND event.

use lnet_types::{Instant, MdId, MsgId};

use crate::Node;
use crate::msg::Stage;
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

    /// A driver has finished a remnant: a copy without a waiter.
    pub(crate) fn remnant_ended(&mut self, now: Instant, id: MsgId) {
        let md = self.msgs.get(id).and_then(|m| m.md);
        self.msgs.remnant_gone();
        self.discard(id);
        if let Some(md) = md {
            self.release_md(now, md);
        }
    }
}
