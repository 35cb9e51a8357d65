//! Locks that came with answers and are not wanted (C-67): many opens at a time give them back with few
//! requests. One caller does so for all; what comes meanwhile goes with its next request.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most locks that wait, and that one request gives back.
const MOST: usize = 64;

/// Handles of locks that are to be given back.
#[derive(Debug)]
pub(super) struct Unwanted {
    /// 0 in a place that is free.
    handles: [AtomicU64; MOST],
    /// A caller makes the requests for all.
    carried: AtomicBool,
}

/// The turn of one caller.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    of: &'a Unwanted,
    over: bool,
}

impl Default for Unwanted {
    fn default() -> Self {
        Self { handles: [const { AtomicU64::new(0) }; MOST], carried: AtomicBool::new(false) }
    }
}

impl Unwanted {
    /// A lock is to be given back. `false`: so many wait that its caller has to do it by itself.
    pub(super) fn put(&self, handle: u64) -> bool {
        let order = Ordering::SeqCst;
        self.handles.iter().any(|place| place.compare_exchange(0, handle, order, order).is_ok())
    }

    /// The turn to give all back. `None`: another caller has it, and takes them along.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        let first = !self.carried.swap(true, Ordering::SeqCst);
        first.then(|| Turn { of: self, over: false })
    }
}

impl Turn<'_> {
    /// Locks to be given back by one request; `None`: the turn is over.
    pub(super) fn next(&mut self) -> Option<Vec<u64>> {
        loop {
            let taken = self.of.handles.iter().map(|place| place.swap(0, Ordering::SeqCst));
            let next: Vec<u64> = taken.filter(|handle| *handle != 0).collect();
            if !next.is_empty() {
                return Some(next);
            }
            self.over = true;
            self.of.carried.store(false, Ordering::SeqCst);
            // One that came between the two was left to this turn.
            let none = self.of.handles.iter().all(|place| place.load(Ordering::SeqCst) == 0);
            if none || self.of.carried.swap(true, Ordering::SeqCst) {
                return None;
            }
            self.over = false;
        }
    }
}

impl Turn<'_> {
    /// The request for these has failed: they go with the next one.
    pub(super) fn failed(self, handles: &[u64]) {
        for handle in handles {
            // Where there is no room the server wants it back by itself.
            self.of.put(*handle);
        }
    }
}

/// A caller that is gone in the middle of its turn leaves the rest to the next one.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.of.carried.store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_that_come_while_others_are_given_back_go_with_the_next_request() {
        let unwanted = Unwanted::default();
        assert!(unwanted.put(1));
        let mut turn = unwanted.turn().expect("nothing is under way");
        assert!(unwanted.put(2) && unwanted.turn().is_none());
        assert_eq!(turn.next(), Some(vec![1, 2]));
        assert!(unwanted.put(3) && unwanted.turn().is_none());
        assert_eq!(turn.next(), Some(vec![3]));
        assert_eq!(turn.next(), None);
        assert!(unwanted.put(4));
        let mut other = unwanted.turn().expect("the turn is over");
        drop(turn);
        assert!(unwanted.turn().is_none(), "the turn of another one has ended this one");
        assert_eq!(other.next(), Some(vec![4]));
    }

    #[test]
    fn caller_that_is_gone_leaves_its_locks_to_the_next_one() {
        let unwanted = Unwanted::default();
        assert!(unwanted.put(1));
        drop(unwanted.turn());
        assert!(unwanted.put(2));
        assert_eq!(unwanted.turn().and_then(|mut turn| turn.next()), Some(vec![1, 2]));
    }

    #[test]
    fn locks_whose_request_has_failed_go_with_the_next_one() {
        let unwanted = Unwanted::default();
        assert!(unwanted.put(1) && unwanted.put(2));
        let mut turn = unwanted.turn().expect("nothing is under way");
        let handles = turn.next().expect("two locks");
        turn.failed(&handles);
        assert!(unwanted.put(3));
        assert_eq!(unwanted.turn().and_then(|mut turn| turn.next()), Some(vec![1, 2, 3]));
    }

    #[test]
    fn no_more_locks_wait_than_one_request_gives_back() {
        let unwanted = Unwanted::default();
        assert!((1..=MOST as u64).all(|handle| unwanted.put(handle)));
        assert!(!unwanted.put(100));
        assert_eq!(
            unwanted.turn().and_then(|mut turn| turn.next()).map(|all| all.len()),
            Some(MOST)
        );
        assert!(unwanted.put(100));
    }
}
