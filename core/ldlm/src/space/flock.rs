//! Locks of files' users (L-5, L-8): an owner's locks never conflict with each other; a new one replaces
//! what it covers of the owner's others, which are cut, split or merged; mode NL releases a range. Their
//! holders are never called back: they end when their users end them. So requests wait for granted locks
//! alone, and a request that would wait for ever is refused.

use std::collections::BTreeSet;

use lnet_types::Instant;
use lustre_wire::ldlm::LockFlags;

use super::record::{Lock, Place};
use super::slab::NIL;
use super::tree::{self, Part};
use super::{Effect, Namespace};
use crate::{Kind, Mode, Refusal};

impl Namespace {
    /// Decides about a request of a file's user. A test describes the lock that stands against it, or
    /// NL.
    pub(super) fn place_flock(
        &mut self,
        now: Instant,
        at: u32,
        flags: LockFlags,
    ) -> Result<(), Refusal> {
        let mut against = NIL;
        self.granted_conflicts(at, &mut |other, _| {
            against = other;
            true
        });
        if flags.contains(LockFlags::TEST_LOCK) {
            let found = self.locks.get(against).map(|o| (o.mode, o.start, o.end, o.gid, o.who));
            let lock = &mut self.locks[at];
            match found {
                Some(found) => (lock.mode, lock.start, lock.end, lock.gid, lock.who) = found,
                None => lock.mode = Mode::Nl,
            }
            return Ok(());
        }
        if against == NIL {
            self.grant_flock(now, at);
            return Ok(());
        }
        if flags.intersects(LockFlags::SPECULATIVE | LockFlags::BLOCK_NOWAIT) {
            return Err(Refusal::Conflict);
        }
        let limit = self.config.limits.waiting_per_resource;
        if self.resources[self.locks[at].resource].waiting as usize >= limit {
            return Err(Refusal::Limit { what: "waiting locks of one resource", limit });
        }
        if self.is_deadlock(at) {
            return Err(Refusal::Deadlock);
        }
        self.locks[at].behind_granted = true;
        self.enqueue_before(at, NIL);
        self.note_owner(at);
        Ok(())
    }

    /// Grants a loose lock of a file's user: it takes the place of what its owner held there.
    pub(super) fn grant_flock(&mut self, now: Instant, at: u32) {
        self.carve(now, at);
        if self.locks[at].mode == Mode::Nl {
            // A release holds nothing: its record ends with its answer or completion.
            if self.locks[at].answered {
                self.complete(now, at);
                self.destroy(at);
            }
            return;
        }
        self.enter_granted(now, at);
        if self.locks[at].answered {
            self.complete(now, at);
        }
    }

    /// Cuts the owner's other locks out of the range of a new one; those of its mode that touch it
    /// become part of it.
    fn carve(&mut self, now: Instant, at: u32) {
        let new = &self.locks[at];
        let (holder, gid, mode, resource) = (new.holder, new.gid, new.mode, new.resource);
        let (start, end) = (new.start, new.end);
        // One byte more on each side, for locks that touch it.
        let part = Part { start: start.saturating_sub(1), end: end.saturating_add(1) };
        let mut own = Vec::new();
        for set in &self.resources[resource].granted {
            tree::overlapping(&self.locks, set.root, part, &mut |other, held| {
                if held.holder == holder && held.gid == gid {
                    own.push(other);
                }
                false
            });
        }
        let mut freed = false;
        for other in own {
            let held = &self.locks[other];
            let (from, to) = (held.start, held.end);
            if held.mode == mode && mode != Mode::Nl {
                let new = &mut self.locks[at];
                (new.start, new.end) = (new.start.min(from), new.end.max(to));
                self.destroy(other);
            } else if from <= end && start <= to {
                freed = true;
                self.cut(now, other, (start, end));
            }
        }
        if freed && self.resources[resource].waiting > 0 && !self.resources[resource].dirty {
            self.resources[resource].dirty = true;
            self.dirty.push(resource);
        }
    }

    /// Cuts a range out of a lock: what is left of it in front keeps its names, a second part behind is
    /// a lock of its own under the same name of the client.
    fn cut(&mut self, now: Instant, at: u32, (start, end): (u64, u64)) {
        let lock = &self.locks[at];
        let (from, to) = (lock.start, lock.end);
        let (front, behind) = (from < start, end < to);
        match (front, behind) {
            (false, false) => self.destroy(at),
            (true, false) => self.reshape(now, at, (from, start - 1)),
            (false, true) => self.reshape(now, at, (end + 1, to)),
            (true, true) => {
                let rest = Lock { place: Place::Loose, link: [NIL; 2], expires: 0, ..lock.clone() };
                self.reshape(now, at, (from, start - 1));
                let rest = self.create(Lock { start: end + 1, wanted: (end + 1, to), ..rest });
                self.enter_granted(now, rest);
            }
        }
    }

    fn reshape(&mut self, now: Instant, at: u32, range: (u64, u64)) {
        self.leave_granted(at);
        let lock = &mut self.locks[at];
        (lock.start, lock.end, lock.wanted) = (range.0, range.1, range);
        self.enter_granted(now, at);
    }

    /// Records that an owner waits.
    pub(super) fn note_owner(&mut self, at: u32) {
        let lock = &self.locks[at];
        if lock.kind == Kind::Flock {
            self.owners_waiting.insert((lock.holder, lock.gid, at));
        }
    }

    pub(super) fn forget_owner(&mut self, at: u32) {
        let lock = &self.locks[at];
        if lock.kind == Kind::Flock {
            self.owners_waiting.remove(&(lock.holder, lock.gid, at));
        }
    }

    /// Whether a request would wait, over any number of owners that wait themselves, for its own owner.
    fn is_deadlock(&self, at: u32) -> bool {
        let owner = |lock: &Lock| (lock.holder, lock.gid);
        let me = owner(&self.locks[at]);
        let (mut seen, mut requests) = (BTreeSet::new(), vec![at]);
        while let Some(request) = requests.pop() {
            let found = self.granted_conflicts(request, &mut |_, held| {
                let (holder, gid) = owner(held);
                if seen.insert((holder, gid)) {
                    let waits = (holder, gid, 0)..=(holder, gid, u32::MAX);
                    requests.extend(self.owners_waiting.range(waits).map(|(.., at)| *at));
                }
                owner(held) == me
            });
            if found {
                return true;
            }
        }
        false
    }

    /// After grants, owners may wait for each other that did not before: such requests end (L-16).
    pub(super) fn break_deadlocks(&mut self, resource: u32) {
        let waiting: Vec<_> = self.waiting(resource, NIL).collect();
        for at in waiting {
            if !self.is_deadlock(at) {
                continue;
            }
            if self.locks[at].answered {
                let mut callback = self.callback(at);
                callback.flags |= LockFlags::FLOCK_DEADLOCK;
                self.effects.push_back(Effect::Complete(callback));
            }
            self.destroy(at);
        }
    }
}
