//! Replay of locks after a restart (L-25): what was granted is granted again, what waited waits, and no
//! queue moves until all is there.

use lnet_types::Instant;
use lustre_wire::ldlm::LockFlags;

use super::slab::NIL;
use super::{EvictReason, Namespace};
use crate::{Kind, Refusal};

impl Namespace {
    /// From now on locks are replayed: queues stand still (L-25).
    pub fn begin_replay(&mut self) {
        self.replaying = true;
    }

    /// The replay is over: each queue is examined whole, with callbacks (L-30).
    pub fn end_replay(&mut self, now: Instant) {
        self.replaying = false;
        let waiting =
            |(at, resource): (u32, &super::record::Resource)| (resource.waiting > 0).then_some(at);
        let resources: Vec<_> = self.resources.iter().filter_map(waiting).collect();
        for resource in resources {
            self.examine_whole(now, resource);
            if self.resources.get(resource).is_some_and(|resource| resource.kind == Kind::Flock) {
                self.break_deadlocks(resource);
            }
        }
        self.settle(now);
    }

    /// Places a lock that is replayed, or that is asked for while others are replayed. A lock without an
    /// answer waits for the end of the replay, as one that conflicts with it may not have come yet.
    ///
    /// # Errors
    /// The lock conflicts with one that is granted: two clients claim one part, and the second is to be
    /// evicted.
    pub(super) fn place_replayed(
        &mut self,
        now: Instant,
        at: u32,
        flags: LockFlags,
    ) -> Result<(), Refusal> {
        let was_granted = flags.contains(LockFlags::REPLAY | LockFlags::BLOCK_GRANTED);
        if !was_granted && self.replaying {
            let limit = self.config.limits.waiting_per_resource;
            if self.resources[self.locks[at].resource].waiting as usize >= limit {
                return Err(Refusal::Limit { what: "waiting locks of one resource", limit });
            }
            self.enqueue_before(at, self.queue_before(at));
            self.note_owner(at);
            return Ok(());
        }
        if !was_granted {
            return match self.locks[at].kind {
                Kind::Flock => self.place_flock(now, at, flags),
                _ => self.place(now, at, flags),
            };
        }
        if self.granted_conflicts(at, &mut |_, _| true) {
            self.ask_eviction(at, EvictReason::ReplayConflict);
            return Err(Refusal::ReplayConflict);
        }
        if self.locks[at].kind == Kind::Ibits {
            self.locks[at].end = 0;
        }
        self.enter_granted(now, at);
        if !self.replaying && self.resources[self.locks[at].resource].queue[0] != NIL {
            self.mark_awaited(at);
        }
        Ok(())
    }
}
