//! Response tracking: ACKs and REPLYs that do not come (behaviour.md 5.9), and messages that wait
//! for something of ours longer than they may.

use lnet_types::{Errno, Fault, HealthStatus, Instant, MdId};

use core::time::Duration;

use crate::node::Work;
use crate::portal::md::Tracker;
use crate::{Node, UnlinkError};

impl Node {
    /// Begins to wait for the response to an operation on `md` (H-60, H-61).
    pub(crate) fn track(&mut self, md: MdId, tracker: Tracker) {
        let Some(d) = self.portals.mds.get_mut(md) else { return };
        match d.tracker.replace(tracker) {
            Some(old) => {
                self.trackers.remove(&(old.deadline, md));
            }
            None => self.stats.rst_alloc = self.stats.rst_alloc.wrapping_add(1),
        }
        self.trackers.insert((tracker.deadline, md));
    }

    /// Stops waiting.
    pub(crate) fn untrack(&mut self, md: MdId) {
        if let Some(t) = self.portals.mds.get_mut(md).and_then(|d| d.tracker.take()) {
            self.trackers.remove(&(t.deadline, md));
            self.stats.rst_alloc = self.stats.rst_alloc.wrapping_sub(1);
        }
    }

    /// When responses are looked at next.
    pub(crate) fn next_scan(&self) -> Option<Instant> {
        let &(deadline, _) = self.trackers.first()?;
        // H-63: the kernel looks twice per time-out, from its start on.
        Some(if self.tunables.kernel_clocks() { deadline.max(self.scan_at) } else { deadline })
    }

    /// Ends the operations whose response is overdue (H-64, H-65).
    pub(crate) fn scan_responses(&mut self, now: Instant) {
        if self.tunables.kernel_clocks() {
            if now < self.scan_at {
                return;
            }
            let period = (self.tunables.transaction_timeout as u64 / 2).max(1);
            while self.scan_at <= now {
                self.scan_at += Duration::from_secs(period);
            }
        }
        while let Some(&(deadline, md)) = self.trackers.first()
            && deadline <= now
        {
            self.trackers.remove(&(deadline, md));
            let Some(d) = self.portals.mds.get_mut(md) else { continue };
            let Some(t) = d.tracker.take() else { continue };
            self.stats.rst_alloc = self.stats.rst_alloc.wrapping_sub(1);
            if d.aborted || d.zombie {
                continue;
            }
            self.stats.response_timeout_count = self.stats.response_timeout_count.wrapping_add(1);
            if let Some(pni) = t.next_hop.and_then(|nid| self.peers.find(nid)) {
                self.lower_peer(now, pni);
            }
            self.unlink_md(now, md);
        }
    }

    /// Ends what has waited past its deadline for a credit or a discovery (UG-014).
    pub(crate) fn expire_waiting(&mut self, now: Instant) {
        while let Some(&(deadline, id)) = self.waiting.first()
            && deadline <= now
        {
            self.stop_waiting(id);
            self.waiting.remove(&(deadline, id));
            if let Some(msg) = self.msgs.get_mut(id) {
                msg.no_resend = true;
                if let crate::msg::Stage::Parked(peer) = msg.stage
                    && let Some(peer) = self.peers.peers.get_mut(peer)
                {
                    peer.disc.parked.retain(|x| *x != id);
                }
                let late = Fault::new(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT);
                self.work.push_back(Work::Finish(id, Err(late)));
            }
        }
    }

    /// Takes a descriptor back (M-43). If nothing uses it, its UNLINK event follows at once;
    /// otherwise the last operation's event says `unlinked`.
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn unlink(&mut self, now: Instant, md: MdId) -> Result<(), UnlinkError> {
        let now = self.clock(now);
        if self.portals.mds.get(md).is_none_or(|d| d.aborted) {
            return Err(UnlinkError);
        }
        self.unlink_md(now, md);
        self.settle(now);
        Ok(())
    }

    pub(crate) fn unlink_md(&mut self, now: Instant, md: MdId) {
        self.untrack(md);
        self.portals.hide(md);
        let Some(d) = self.portals.mds.get_mut(md) else { return };
        d.aborted = true;
        d.zombie = true;
        if d.refs == 0 {
            let owner = d.owner;
            self.portals.mds.remove(md);
            self.tell_unlinked(now, md, owner);
        }
    }
}
