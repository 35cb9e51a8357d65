//! Messages whose payload is lent to their connection until the peer's transport has acknowledged it
//! (`proto/retained.rs`): asked for in each turn.

use lnet::InDoubt;
use lnet_types::{Instant, Memory, NiId, Nid};

use super::SockDriver;
use super::transmit::RETAINED_LOOK;
use crate::peer::ConnKey;
use crate::proto::retained::Retained;
use crate::streams::Streams;
use crate::upper::Upper;

impl<S: Streams> SockDriver<S> {
    /// Looks what has become of the messages that lend their payload.
    pub(super) fn look_at_lenders(&mut self, now: Instant, mem: &dyn Memory) {
        if self.lenders.is_empty() {
            return;
        }
        let mut lenders = core::mem::take(&mut self.lenders);
        lenders.retain(|key| {
            let Some(conn) = self.conns.get_mut(*key) else { return false };
            let stream = conn.stream;
            let Some(state) = conn.up_mut() else { return false };
            let Some(retained) = &mut state.retained else { return false };
            let acked = state.written.saturating_sub(self.streams.unacked(stream));
            retained.acknowledged(acked, &mut self.repaid);
            retained.call_in(now, mem, &mut self.repaid);
            retained.lends()
        });
        self.lenders = lenders;
        self.lenders_due = now + RETAINED_LOOK;
    }

    /// A connection lends from now on.
    pub(super) fn note_lender(&mut self, now: Instant, key: ConnKey) {
        if self.lenders.is_empty() {
            self.lenders_due = now + RETAINED_LOOK;
        }
        if !self.lenders.contains(&key) {
            self.lenders.push(key);
        }
    }

    /// When they are to be looked at although nothing else calls for a turn.
    pub(super) fn lenders_due(&self) -> Option<Instant> {
        (!self.lenders.is_empty()).then_some(self.lenders_due)
    }

    /// Reports those that have been acknowledged, or copied.
    pub(super) fn end_repaid<U: Upper + ?Sized>(&mut self, now: Instant, up: &mut U) {
        for msg in self.repaid.drain(..) {
            up.tx_done(now, msg, Ok(()));
        }
    }

    /// Reports all that have ended.
    pub(super) fn end_lent<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        up: &mut U,
        mem: &dyn Memory,
    ) {
        if self.repaid.is_empty() && self.orphans.is_empty() {
            return;
        }
        self.end_repaid(now, up);
        let mut in_doubt = Vec::new();
        for orphan in core::mem::take(&mut self.orphans) {
            let msg = orphan.msg;
            in_doubt.push(orphan.copied(mem));
            up.tx_done(now, msg, Ok(()));
        }
        if !in_doubt.is_empty() {
            in_doubt.sort_by_key(|message| message.retention.born);
            up.tx_in_doubt(now, in_doubt);
        }
    }

    /// Takes what a connection retains, for the node. What is lent follows in [`Self::end_lent`], where there
    /// is memory to copy it from; of an interface that stops in order nothing is in doubt.
    pub(super) fn hand_back(
        &mut self,
        retained: &mut Retained,
        ni: NiId,
        to: Nid,
        in_order: bool,
    ) -> Vec<InDoubt> {
        let (in_doubt, orphans) = retained.take(ni, to);
        if in_order {
            self.repaid.extend(orphans.into_iter().map(|orphan| orphan.msg));
            return Vec::new();
        }
        self.stats.msgs_in_doubt += (in_doubt.len() + orphans.len()) as u64;
        self.orphans.extend(orphans);
        in_doubt
    }
}
