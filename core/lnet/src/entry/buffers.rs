//! Buffers that users post and take back (behaviour.md 2). Matching is in `portal/`.

use lnet_types::{Instant, MdId};

use crate::output::DropReason;
use crate::record::Input;
use crate::{AttachError, MatchEntry, MdSpec, Node, UnlinkError};

impl Node {
    /// Posts a buffer (M-6 … M-13).
    ///
    /// # Errors
    /// Names what is wrong with the portal, the entry or the descriptor.
    pub fn attach(
        &mut self,
        now: Instant,
        portal: u32,
        me: MatchEntry,
        md: MdSpec,
    ) -> Result<MdId, AttachError> {
        self.note(|| Input::Attach { now, portal, me, md: md.clone() });
        let now = self.clock(now);
        let id = self.portals.attach(portal, me, md)?;
        self.match_delayed(now, portal);
        self.settle(now);
        Ok(id)
    }

    /// Makes a descriptor for a PUT or GET of ours (M-14).
    ///
    /// # Errors
    /// Names what is wrong with it.
    pub fn bind(&mut self, md: MdSpec) -> Result<MdId, AttachError> {
        self.note_usual(|live| live.bind(&md));
        self.portals.bind(md)
    }

    /// Makes a portal lazy: PUTs that match nothing wait for a buffer. Clearing it drops what waits
    /// (M-40).
    ///
    /// # Errors
    /// No such portal, or the reserved one.
    pub fn set_lazy(&mut self, now: Instant, portal: u32, lazy: bool) -> Result<(), AttachError> {
        self.note(|| Input::SetLazy { now, portal, lazy });
        let now = self.clock(now);
        self.portals.set_lazy(portal, lazy)?;
        if !lazy {
            self.flush_delayed(portal, None, DropReason::NotLazy);
        }
        self.settle(now);
        Ok(())
    }

    /// Takes a descriptor back (M-43). If nothing uses it, its UNLINK event follows at once;
    /// otherwise the last operation's event says `unlinked`.
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn unlink(&mut self, now: Instant, md: MdId) -> Result<(), UnlinkError> {
        self.note_usual(|live| live.unlink(now, md));
        let now = self.clock(now);
        if self.portals.mds.get(md).is_none_or(|d| d.aborted) {
            return Err(UnlinkError);
        }
        self.unlink_md(now, md);
        self.settle(now);
        Ok(())
    }

    /// [`Node::unlink`] without the event: if nothing uses the descriptor, it is gone at once, and the
    /// answer is its user word. Otherwise the last operation's event says `unlinked`. Events that were
    /// made before are still to be polled.
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn unlink_at_once(&mut self, now: Instant, md: MdId) -> Result<Option<u64>, UnlinkError> {
        self.note_usual(|live| live.unlink_at_once(now, md));
        let now = self.clock(now);
        if self.portals.mds.get(md).is_none_or(|d| d.aborted) {
            return Err(UnlinkError);
        }
        let gone = self.abort_md(md).map(|owner| owner.user());
        self.settle(now);
        Ok(gone)
    }
}
