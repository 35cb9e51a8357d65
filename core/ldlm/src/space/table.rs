//! Records come, are found, and go: by cookie, by the client's name of a lock, by resource name, by
//! holder. The tables hold places of records alone, with a hash that is keyed by the seed, so that no
//! client can aim at one bucket; they are never walked.

use core::time::Duration;

use hashbrown::HashTable;
use lnet_types::Instant;
use lustre_wire::ldlm::ResourceName;

use super::record::{Holder, Lock, Place, Resource, Set};
use super::slab::{NIL, Slab};
use super::tree::{self, Part};
use super::{HolderId, HolderKind, Namespace};
use crate::sabotage::Sabotage;
use crate::{Cookie, Kind, Refusal};

fn hash(key: u64, words: &[u64]) -> u64 {
    words.iter().fold(key, |hash, word| {
        let wide = u128::from(hash ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        (wide as u64) ^ (wide >> 64) as u64 ^ word.rotate_left(32)
    })
}

fn of_client(key: u64, locks: &Slab<Lock>, at: u32) -> u64 {
    locks.get(at).map_or(0, |lock| hash(key, &[lock.holder.into(), lock.client_cookie]))
}

/// Takes a place out of a table.
fn forget(table: &mut HashTable<u32>, hash: u64, at: u32) {
    if let Ok(entry) = table.find_entry(hash, |other| *other == at) {
        entry.remove();
    }
}

impl Namespace {
    pub(super) fn cookie(&self, at: u32) -> Cookie {
        self.cookies.of(at, self.locks.turn(at))
    }

    pub(super) fn find(&self, lock: Cookie) -> Option<u32> {
        let (at, turn) = self.cookies.undo(lock);
        let same = self.locks.turn(at) == turn || self.breaks(Sabotage::ReusedCookie);
        (same && self.locks.get(at).is_some()).then_some(at)
    }

    /// The lock, if it is one of the holder.
    pub(super) fn find_of(&self, holder: HolderId, lock: Cookie) -> Option<u32> {
        let at = self.find(lock)?;
        (self.holders[self.locks[at].holder].id == holder).then_some(at)
    }

    pub(super) fn find_client(&self, holder: u32, client_cookie: u64) -> Option<u32> {
        let hash = hash(self.key, &[holder.into(), client_cookie]);
        let same = |at: &u32| {
            self.locks
                .get(*at)
                .is_some_and(|lock| lock.holder == holder && lock.client_cookie == client_cookie)
        };
        self.by_client.find(hash, same).copied()
    }

    pub(super) fn find_resource(&self, name: &ResourceName) -> Option<u32> {
        let hash = hash(self.key, &name.words);
        let same = |at: &u32| self.resources.get(*at).is_some_and(|other| other.name == *name);
        self.by_name.find(hash, same).copied()
    }

    pub(super) fn find_holder(&self, holder: HolderId) -> Option<u32> {
        let hash = hash(self.key, &[holder.0]);
        let same = |at: &u32| self.holders.get(*at).is_some_and(|other| other.id == holder);
        self.by_holder.find(hash, same).copied()
    }

    pub(super) fn add_holder(&mut self, id: HolderId, kind: HolderKind, estimate: Duration) {
        let holder = Holder { id, kind, estimate, first: NIL, locks: 0, leaving: false };
        let at = self.holders.insert(holder);
        let (key, holders) = (self.key, &self.holders);
        self.by_holder.insert_unique(hash(key, &[id.0]), at, |at| {
            holders.get(*at).map_or(0, |holder| hash(key, &[holder.id.0]))
        });
    }

    pub(super) fn drop_holder(&mut self, at: u32) {
        if let Some(holder) = self.holders.remove(at) {
            forget(&mut self.by_holder, hash(self.key, &[holder.id.0]), at);
        }
    }

    /// The resource with a name, a new one if there is none.
    pub(super) fn resource(&mut self, name: ResourceName, kind: Kind) -> Result<u32, Refusal> {
        if let Some(at) = self.find_resource(&name) {
            let has = self.resources[at].kind;
            let other = Refusal::OtherKind { asked: kind.word().0, has: has.word().0 };
            return if has == kind { Ok(at) } else { Err(other) };
        }
        let at = self.resources.insert(Resource::new(name, kind));
        let (key, resources) = (self.key, &self.resources);
        self.by_name.insert_unique(hash(key, &name.words), at, |at| {
            resources.get(*at).map_or(0, |resource| hash(key, &resource.name.words))
        });
        Ok(at)
    }

    /// A resource without locks goes.
    pub(super) fn drop_resource(&mut self, at: u32) {
        if let Some(resource) = self.resources.remove(at) {
            forget(&mut self.by_name, hash(self.key, &resource.name.words), at);
        }
    }

    /// Adds a lock that has no place yet.
    pub(super) fn create(&mut self, mut lock: Lock) -> u32 {
        let (holder, resource) = (lock.holder, lock.resource);
        let first = self.holders[holder].first;
        lock.mates = [NIL, first];
        let at = self.locks.insert(lock);
        if let Some(first) = self.locks.get_mut(first) {
            first.mates[0] = at;
        }
        let owner = &mut self.holders[holder];
        (owner.first, owner.locks) = (at, owner.locks + 1);
        self.resources[resource].locks += 1;
        let (key, locks) = (self.key, &self.locks);
        let hash = of_client(key, locks, at);
        self.by_client.insert_unique(hash, at, |at| of_client(key, locks, *at));
        at
    }

    /// Removes a lock, wherever it is. Waiting locks that it may have blocked are examined by
    /// [`settle`](Self::settle).
    pub(super) fn destroy(&mut self, at: u32) {
        let place = self.locks[at].place;
        match place {
            Place::Queue => self.leave_queue(at),
            Place::Granted => self.leave_granted(at),
            Place::Loose => {}
        }
        self.disarm(at);
        forget(&mut self.by_client, of_client(self.key, &self.locks, at), at);
        let Some(lock) = self.locks.remove(at) else { return };
        let [before, next] = lock.mates;
        match self.locks.get_mut(before) {
            Some(before) => before.mates[1] = next,
            None => self.holders[lock.holder].first = next,
        }
        if let Some(next) = self.locks.get_mut(next) {
            next.mates[0] = before;
        }
        self.holders[lock.holder].locks -= 1;
        let resource = &mut self.resources[lock.resource];
        resource.locks -= 1;
        if resource.dirty {
            return;
        }
        if resource.locks == 0 {
            self.drop_resource(lock.resource);
        } else if resource.waiting > 0 && place != Place::Loose {
            resource.dirty = true;
            self.dirty.push(lock.resource);
        }
    }

    /// Adds a loose lock to the granted ones of its resource.
    pub(super) fn enter_granted(&mut self, now: Instant, at: u32) {
        let lock = &mut self.locks[at];
        (lock.place, lock.since) = (Place::Granted, now);
        let (mode, resource) = (lock.mode, lock.resource);
        let granted = &mut self.resources[resource].granted;
        match granted.iter_mut().find(|set| set.mode == mode) {
            Some(set) => {
                set.root = tree::insert(&mut self.locks, set.root, at);
                set.count += 1;
            }
            None => {
                let root = tree::insert(&mut self.locks, NIL, at);
                granted.push(Set { mode, root, count: 1 });
            }
        }
    }

    /// Takes a lock from among the granted ones; it is loose then.
    pub(super) fn leave_granted(&mut self, at: u32) {
        let lock = &mut self.locks[at];
        lock.place = Place::Loose;
        let mode = lock.mode;
        let granted = &mut self.resources[lock.resource].granted;
        let Some(n) = granted.iter().position(|set| set.mode == mode) else { return };
        if let Some(set) = granted.get_mut(n) {
            set.root = tree::remove(&mut self.locks, set.root, at);
            set.count -= 1;
            if set.count == 0 {
                granted.swap_remove(n);
            }
        }
    }

    /// Takes a lock out of the queue; it is loose then.
    pub(super) fn leave_queue(&mut self, at: u32) {
        self.dequeue(at);
        self.forget_owner(at);
    }

    /// Visits the granted locks that a lock conflicts with, until `visit` says to stop. Whether it did.
    pub(super) fn granted_conflicts(
        &self,
        at: u32,
        visit: &mut dyn FnMut(u32, &Lock) -> bool,
    ) -> bool {
        let lock = &self.locks[at];
        let part = Part { start: lock.start, end: lock.end };
        let broken = self.breaks(Sabotage::MatrixBit) && lock.mode == crate::Mode::Pw;
        self.resources[lock.resource].against(lock.mode).any(|set| {
            if broken && set.mode == crate::Mode::Pr {
                return false;
            }
            tree::overlapping(&self.locks, set.root, part, &mut |other, held| {
                held.excludes(lock) && visit(other, held)
            })
        })
    }
}
