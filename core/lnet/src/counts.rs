//! What the node counts as a whole: messages and bytes by what became of them, drops and refusals by reason.
//! Names and meanings of the public counters are in `stats.rs`; interfaces count for themselves (`port.rs`).

use std::collections::{BTreeMap, VecDeque};

use lnet_types::HealthStatus;

use crate::peer::refusal::Refusal;
use crate::port::PortId;
use crate::{DropReason, InDoubtStats, NodeStats};

/// The counters of a node.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Counts {
    stats: NodeStats,
    drops: BTreeMap<DropReason, u64>,
    refusals: BTreeMap<Refusal, u64>,
    /// What has become of messages in doubt at the first hop.
    in_doubt: InDoubtStats,
    /// How often the health of an interface, ours or a peer's, was set.
    health_changes: u64,
    /// The interfaces whose health was set last, oldest first, at most [`RECENT`].
    #[serde(skip)]
    healths_set: VecDeque<PortId>,
}

/// So many changes of health are known one by one: far more than one event brings.
const RECENT: usize = 64;

/// Counts one more.
fn bump(counter: &mut u32) {
    *counter = counter.wrapping_add(1);
}

impl Counts {
    /// One message more in hand (T-1).
    #[inline]
    pub(crate) fn message_in(&mut self) {
        self.stats.count_in();
    }

    /// One message less in hand.
    #[inline]
    pub(crate) fn message_out(&mut self) {
        self.stats.msgs_alloc = self.stats.msgs_alloc.wrapping_sub(1);
    }

    /// One response tracker more.
    pub(crate) fn tracker_made(&mut self) {
        bump(&mut self.stats.rst_alloc);
    }

    /// One response tracker less.
    pub(crate) fn tracker_gone(&mut self) {
        self.stats.rst_alloc = self.stats.rst_alloc.wrapping_sub(1);
    }

    /// A response has not come in time.
    pub(crate) fn response_timeout(&mut self) {
        bump(&mut self.stats.response_timeout_count);
    }

    /// A message of ours was sent, one that passes through with `forwarded` bytes.
    #[inline]
    pub(crate) fn sent(&mut self, forwarded: Option<u64>) {
        match forwarded {
            Some(bytes) => {
                bump(&mut self.stats.route_count);
                self.stats.route_length += bytes;
            }
            None => bump(&mut self.stats.send_count),
        }
    }

    /// Payload of our own was sent.
    #[inline]
    pub(crate) fn sent_bytes(&mut self, bytes: u64) {
        self.stats.send_length += bytes;
    }

    /// A message for us was received, with so many bytes.
    #[inline]
    pub(crate) fn received(&mut self, bytes: u64) {
        bump(&mut self.stats.recv_count);
        self.stats.recv_length += bytes;
    }

    /// A message with so many bytes was dropped, or refused on its way out (S-82, C-9).
    pub(crate) fn dropped(&mut self, bytes: u32) {
        bump(&mut self.stats.drop_count);
        self.stats.drop_length += u64::from(bytes);
    }

    /// The reason of a drop.
    pub(crate) fn drop_reason(&mut self, reason: DropReason) {
        *self.drops.entry(reason).or_default() += 1;
    }

    /// What a peer has said of itself was not taken.
    pub(crate) fn refused(&mut self, why: Refusal) {
        *self.refusals.entry(why).or_default() += 1;
    }

    /// An attempt has failed (H-14).
    pub(crate) fn failure(&mut self, status: HealthStatus) {
        self.stats.count_failure(status);
    }

    /// A message goes again.
    pub(crate) fn resend(&mut self) {
        bump(&mut self.stats.resend_count);
    }

    /// A message that went again has arrived.
    pub(crate) fn resend_succeeded(&mut self) {
        bump(&mut self.stats.successful_resends);
    }

    /// A message has failed though it went again (H-22).
    pub(crate) fn resend_failed(&mut self) {
        bump(&mut self.stats.failed_resends);
    }

    /// A message in doubt at the first hop leaves as a further copy.
    pub(crate) fn in_doubt_repeated(&mut self) {
        self.in_doubt.repeated += 1;
    }

    /// A message in doubt at the first hop may be lost.
    pub(crate) fn in_doubt_expired(&mut self) {
        self.in_doubt.expired += 1;
    }

    /// The health of an interface was set.
    pub(crate) fn health_changed(&mut self, id: PortId) {
        self.health_changes += 1;
        if self.healths_set.len() == RECENT {
            self.healths_set.pop_front();
        }
        self.healths_set.push_back(id);
    }

    /// Zeroes what `stats reset` zeroes (T-50): gauges stay.
    pub(crate) fn reset(&mut self) {
        let NodeStats { msgs_alloc, rst_alloc, .. } = self.stats;
        self.stats =
            NodeStats { msgs_alloc, msgs_max: msgs_alloc, rst_alloc, ..NodeStats::default() };
        self.drops.clear();
        self.refusals.clear();
    }

    pub(crate) const fn stats(&self) -> NodeStats {
        self.stats
    }

    pub(crate) fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        self.drops.iter().map(|(reason, n)| (*reason, *n))
    }

    pub(crate) fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        self.refusals.iter().map(|(why, n)| (*why, *n))
    }

    pub(crate) const fn in_doubt(&self) -> InDoubtStats {
        self.in_doubt
    }

    pub(crate) const fn health_changes(&self) -> u64 {
        self.health_changes
    }

    /// The interfaces of all changes of health behind the first `seen`; `None` if they are not known any
    /// more.
    pub(crate) fn healths_set_since(&self, seen: u64) -> Option<impl Iterator<Item = PortId> + '_> {
        let missed = usize::try_from(self.health_changes.checked_sub(seen)?).ok()?;
        let known = self.healths_set.len().checked_sub(missed)?;
        Some(self.healths_set.iter().skip(known).copied())
    }
}

#[cfg(test)]
impl Counts {
    /// Messages dropped for one reason.
    pub(crate) fn drops_for(&self, reason: DropReason) -> u64 {
        self.drops.get(&reason).copied().unwrap_or(0)
    }

    /// For tests that put a counter wrong.
    pub(crate) fn stats_mut(&mut self) -> &mut NodeStats {
        &mut self.stats
    }
}
