//! What can be seen of a namespace from outside (`view.rs`), and why a lock waits.

use lustre_wire::ldlm::ResourceName;

use super::record::{Lock, Place};
use super::slab::NIL;
use super::timer::expiry;
use super::{HolderId, LockView, Namespace, SpaceView};
use crate::{Cookie, Kind};

impl Namespace {
    pub(super) fn show(&self, at: u32) -> LockView {
        let lock = &self.locks[at];
        LockView {
            lock: self.cookie(at),
            client_cookie: lock.client_cookie,
            holder: self.holders[lock.holder].id,
            state: lock.state(),
            desc: lock.desc(self.resources[lock.resource].name),
            flags: lock.flags,
            since: lock.since,
            called_back: lock.called_back,
            expires: expiry(lock.expires),
        }
    }

    /// A lock.
    pub fn lock(&self, lock: Cookie) -> Option<LockView> {
        self.find(lock).map(|at| self.show(at))
    }

    /// The locks of a holder, the last one first.
    pub fn locks_of(&self, holder: HolderId) -> Vec<LockView> {
        let mut at = self.find_holder(holder).map_or(NIL, |holder| self.holders[holder].first);
        let mut locks = Vec::new();
        while let Some(lock) = self.locks.get(at) {
            locks.push(self.show(at));
            at = lock.mates[1];
        }
        locks
    }

    /// The locks of a resource, granted ones first, waiting ones in their order.
    pub fn locks_on(&self, resource: &ResourceName) -> Vec<LockView> {
        let Some(resource) = self.find_resource(resource) else { return Vec::new() };
        let mut locks = Vec::new();
        for set in &self.resources[resource].granted {
            let mut stack = vec![set.root];
            while let Some(at) = stack.pop() {
                if let Some(lock) = self.locks.get(at) {
                    locks.push(self.show(at));
                    stack.extend(lock.link);
                }
            }
        }
        let waiting = self.waiting(resource, NIL).map(|at| self.show(at));
        locks.sort_by_key(|lock| (lock.since, lock.lock));
        locks.extend(waiting);
        locks
    }

    /// The names of all resources.
    pub fn resources(&self) -> impl Iterator<Item = ResourceName> + '_ {
        self.resources.iter().map(|(_, resource)| resource.name)
    }

    /// All locks.
    pub fn locks(&self) -> impl Iterator<Item = LockView> + '_ {
        self.locks.iter().map(|(at, _)| self.show(at))
    }

    /// Counts.
    pub fn view(&self) -> SpaceView {
        SpaceView {
            locks: self.locks.len(),
            waiting: self.waiting,
            called_back: self.timers.len(),
            resources: self.resources.len(),
            holders: self.holders.len(),
        }
    }

    /// The locks for which a lock waits, granted ones first (at most `limit`); empty if it is granted or
    /// gone. Found as the decision finds them.
    pub fn blockers(&self, lock: Cookie, limit: usize) -> Vec<LockView> {
        let waits = |at: &u32| self.locks[*at].place == Place::Queue;
        let Some(at) = self.find(lock).filter(waits) else { return Vec::new() };
        let mut met = Vec::new();
        let granted = self.meet(at, at, &mut met);
        let file_lock = |lock: &Lock| lock.kind == Kind::Flock;
        let count = if file_lock(&self.locks[at]) { granted } else { met.len() };
        met.into_iter().take(count.min(limit)).map(|at| self.show(at)).collect()
    }
}
