//! Grants to waiting locks: the walk over a queue after a lock went or shrank (L-30), and the grant
//! itself with its completion (L-32).

use lnet_types::Instant;
use lustre_wire::ldlm::LockFlags;

use super::record::Place;
use super::slab::NIL;
use super::tree::{self, Part};
use super::{Effect, Namespace};
use crate::{Kind, Mode};

impl Namespace {
    /// Examines the resources whose locks changed. While locks are replayed their queues stand still
    /// (L-25).
    pub(super) fn settle(&mut self, now: Instant) {
        let mut next = 0;
        while let Some(&resource) = self.dirty.get(next) {
            next += 1;
            self.resources[resource].dirty = false;
            if !self.replaying {
                // Counted as a lock, so that it outlives the last one of them.
                self.resources[resource].locks += 1;
                self.examine(now, resource);
                self.resources[resource].locks -= 1;
            }
            let record = &self.resources[resource];
            if record.locks == 0 && !record.dirty {
                self.drop_resource(resource);
            }
        }
        self.dirty.clear();
    }

    /// Grants waiting locks from the head of the queue to the first that meets a conflict. Of inode
    /// bits the walk goes on with locks whose bits touch no blocked bit; locks of files' users do not
    /// wait for each other, so that theirs goes on in any case.
    fn examine(&mut self, now: Instant, resource: u32) {
        let kind = self.resources[resource].kind;
        let (mut at, mut blocked, mut granted) = (self.resources[resource].queue[0], 0, false);
        while let Some(lock) = self.locks.get(at) {
            let (this, bits) = (at, lock.start);
            at = lock.link[1];
            let free = (kind != Kind::Ibits || bits & blocked == 0)
                && !self.granted_conflicts(this, &mut |_, _| true);
            if free {
                granted = true;
                self.grant(now, this);
                continue;
            }
            match kind {
                Kind::Plain | Kind::Extent => break,
                Kind::Ibits => blocked |= bits,
                Kind::Flock => {}
            }
        }
        if granted && kind == Kind::Flock {
            self.break_deadlocks(resource);
        }
    }

    /// Examines a whole queue at the end of a replay: a lock is granted or waits, and calls back what it
    /// meets (L-30).
    pub(super) fn examine_whole(&mut self, now: Instant, resource: u32) {
        let mut met = core::mem::take(&mut self.met);
        let mut at = self.resources[resource].queue[0];
        while let Some(lock) = self.locks.get(at) {
            let (this, kind) = (at, lock.kind);
            at = lock.link[1];
            loop {
                let granted = self.meet(this, this, &mut met);
                let waits = if kind == Kind::Flock { granted > 0 } else { !met.is_empty() };
                if !waits {
                    self.grant(now, this);
                    break;
                }
                self.locks[this].behind_granted = granted > 0;
                if kind == Kind::Flock || !self.press(now, this, false, &met) {
                    break;
                }
            }
        }
        self.met = met;
    }

    /// Grants a lock that waits or was not placed yet.
    pub(super) fn grant(&mut self, now: Instant, at: u32) {
        if self.locks[at].place == Place::Queue {
            self.leave_queue(at);
        }
        match self.locks[at].kind {
            Kind::Plain => {}
            Kind::Extent => {
                let (start, end) = self.grown(at);
                let lock = &mut self.locks[at];
                (lock.start, lock.end) = (start, end);
            }
            Kind::Ibits => {
                let more = self.free_bits(at);
                let lock = &mut self.locks[at];
                (lock.start, lock.end) = (lock.start | more, 0);
            }
            Kind::Flock => return self.grant_flock(now, at),
        }
        self.enter_granted(now, at);
        // A member of a group may be granted in front of locks that wait (L-28).
        if self.locks[at].mode == Mode::Group {
            self.mark_awaited(at);
        }
        if self.locks[at].answered {
            self.complete(now, at);
        }
    }

    /// A lock that a waiting one conflicts with is to be called back.
    pub(super) fn mark_awaited(&mut self, at: u32) {
        let lock = &self.locks[at];
        let mut waiting = self.waiting(lock.resource, NIL);
        let awaited = waiting.any(|other| lock.conflicts(&self.locks[other]));
        drop(waiting);
        self.locks[at].called_back |= awaited;
    }

    /// Announces a grant to a client that waits for it (L-32).
    pub(super) fn complete(&mut self, now: Instant, at: u32) {
        let mut callback = self.callback(at);
        let called_back = self.locks[at].called_back;
        callback.flags.set(LockFlags::AST_SENT, called_back);
        if called_back && self.locks[at].kind == Kind::Ibits {
            callback.desc.policy.end = self.contested_bits(at);
        }
        self.effects.push_back(Effect::Complete(callback));
        if called_back {
            self.contain(now, at);
        }
    }

    /// The inode bits that are nice to have and that no other lock excludes.
    pub(super) fn free_bits(&self, at: u32) -> u64 {
        let lock = &self.locks[at];
        let wanted = lock.wanted.1 & !lock.start;
        if wanted == 0 || lock.kind != Kind::Ibits {
            return 0;
        }
        let (part, mut taken) = (Part { start: wanted, end: 0 }, 0);
        for set in self.resources[lock.resource].against(lock.mode) {
            tree::overlapping(&self.locks, set.root, part, &mut |_, held| {
                taken |= if held.excludes(lock) { held.start } else { 0 };
                false
            });
        }
        for other in self.waiting(lock.resource, NIL).map(|other| &self.locks[other]) {
            taken |= if other.excludes(lock) { other.start } else { 0 };
        }
        wanted & !taken
    }
}
