//! The waiting queue of a resource: in order of arrival, but that locks of one group stand together in
//! front (L-28).

use super::Namespace;
use super::record::Place;
use super::slab::NIL;
use crate::Mode;

impl Namespace {
    /// The waiting locks of a resource before `until`, in their order.
    pub(super) fn waiting(&self, resource: u32, until: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.resources[resource].queue[0];
        core::iter::from_fn(move || {
            let this = at;
            if this == until {
                return None;
            }
            at = self.locks.get(this)?.link[1];
            Some(this)
        })
    }

    /// The waiting lock before which one that waits for a group is to stand: behind its group, or
    /// before the first that waits for no group. [`NIL`] at the end.
    pub(super) fn queue_before(&self, at: u32) -> u32 {
        let lock = &self.locks[at];
        let first_other = |at: &u32| self.locks[*at].mode != Mode::Group;
        if lock.mode != Mode::Group {
            return NIL;
        }
        let mate = |other: &u32| {
            let other = &self.locks[*other];
            other.mode == Mode::Group && other.gid == lock.gid
        };
        match self.waiting(lock.resource, NIL).filter(mate).last() {
            Some(mate) => self.locks[mate].link[1],
            None => self.waiting(lock.resource, NIL).find(first_other).unwrap_or(NIL),
        }
    }

    /// Puts a loose lock into the queue before another one.
    pub(super) fn enqueue_before(&mut self, at: u32, next: u32) {
        let resource = self.locks[at].resource;
        let queue = self.resources[resource].queue;
        let before = self.locks.get(next).map_or(queue[1], |next| next.link[0]);
        let lock = &mut self.locks[at];
        (lock.link, lock.place) = ([before, next], Place::Queue);
        self.link(resource, before, 1, at);
        self.link(resource, next, 0, at);
        self.resources[resource].waiting += 1;
        self.waiting += 1;
    }

    /// Takes a lock out of the queue.
    pub(super) fn dequeue(&mut self, at: u32) {
        let lock = &mut self.locks[at];
        let ([before, next], resource) = (lock.link, lock.resource);
        (lock.link, lock.place) = ([NIL; 2], Place::Loose);
        self.link(resource, before, 1, next);
        self.link(resource, next, 0, before);
        self.resources[resource].waiting -= 1;
        self.waiting -= 1;
    }

    /// Sets a neighbour (0 before, 1 after) of a waiting lock, or, where there is none, the end of the
    /// queue from which its neighbours are reached.
    fn link(&mut self, resource: u32, at: u32, side: usize, to: u32) {
        match self.locks.get_mut(at) {
            Some(lock) => lock.link[side] = to,
            None => self.resources[resource].queue[1 - side] = to,
        }
    }
}
