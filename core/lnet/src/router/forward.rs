//! A message for another node, on a router: from its header to its departure (behaviour.md 4.2,
//! 7.5).
//!
//! ```text
//!   header ──► credit of the sender's interface ──► buffer ──► Deliver … rx_done ──► depart
//!                  │ none free                        │ none free
//!                  ╰── waits, Defer ── Resume ◄────────╯ something came home
//! ```
//!
//! While the header waits, its driver reads nothing more from that connection: the sender is slowed
//! down, no other. The credit and the buffer come home when the message ends (`discard`), after
//! all its attempts; each lets one waiting message go (`transit.rs`). Headers come in by `recv.rs`.
//!
//! Unlike the kernel, which has one queue for each peer, those that wait for a credit queue at the
//! interface whose credit it is, so that credits and queue always agree (C-4).

use lnet_types::{Instant, MsgId, NiId, RxId};

use crate::Node;
use crate::msg::Stage;
use crate::output::{DropReason, Verdict};

impl Node {
    /// The payload is here: onward (R-51).
    pub(crate) fn forward(&mut self, now: Instant, id: MsgId) {
        self.judge(now, id, Ok(()));
        self.depart(now, id);
    }

    /// A deferred message's connection is gone, and the message with it.
    pub(crate) fn transit_gone(&mut self, ni: NiId, rx: RxId) {
        if let Some(id) = self.router.deferred.get(&(ni, rx)).copied() {
            self.discard(id);
        }
    }

    /// Drops the messages that wait here: all of them (C-26), or what came in through `ni`.
    /// No health is charged for it (Z-6).
    pub(crate) fn drop_transit(&mut self, through: Option<NiId>, reason: DropReason) {
        let waiting: Vec<_> = self
            .router
            .deferred
            .iter()
            .filter(|((ni, _), _)| through.is_none_or(|t| t == *ni))
            .map(|(_, id)| *id)
            .collect();
        for id in waiting {
            // An earlier one may have let it go on.
            let Some(msg) = self.msgs.get(id) else { continue };
            let (hdr, rx) = (msg.hdr, msg.rx);
            if !matches!(msg.stage, Stage::TransitQueue | Stage::PoolQueue) {
                continue;
            }
            if let Some(rx) = rx {
                self.count_drop(rx.ni, &hdr, reason);
            }
            self.resume_transit(id, Verdict::Drop(reason));
            self.discard(id);
        }
    }

    /// A forward has failed for good. Only counters report it (R-54).
    pub(crate) fn count_lost(&mut self, id: MsgId) {
        let Some(msg) = self.msgs.get(id) else { return };
        let Some(rx) = msg.rx else { return };
        if msg.tx.is_none() {
            // What had a path was counted there, if it was dropped and not just lost (C-9).
            let hdr = msg.hdr;
            return self.count_drop(rx.ni, &hdr, DropReason::NoRoute);
        }
        self.counts.drop_reason(DropReason::ForwardFailed);
    }
}
