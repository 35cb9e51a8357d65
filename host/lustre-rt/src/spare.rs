//! Memory of large data that is used again: a page that is fresh from the system costs more than the copy
//! into it.

use std::sync::{Mutex, PoisonError};

/// Buffers shorter than this are left to the allocator.
const LEAST: usize = 64 << 10;
/// Bytes that are kept in all.
const MOST: usize = 32 << 20;

/// Buffers that nothing uses at present.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    /// A buffer of so many bytes, which may be anything.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.kept(len);
        buffer.resize(len, 0);
        buffer
    }

    /// The same, zeros. What is fresh from the system is that already.
    pub(crate) fn zeros(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.kept(len);
        if buffer.capacity() == 0 {
            return vec![0; len];
        }
        buffer.clear();
        buffer.resize(len, 0);
        buffer
    }

    /// A buffer that has room for so many bytes, or none.
    fn kept(&self, len: usize) -> Vec<u8> {
        let mut buffer = Vec::new();
        if len >= LEAST {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // A buffer that is far too long is for longer data.
            let fits = |buffer: &Vec<u8>| (len..=2 * len).contains(&buffer.capacity());
            match all.iter().rposition(fits) {
                Some(place) => buffer = all.swap_remove(place),
                // Another one gives way, so that no more are about than are needed at a time.
                None => drop(all.pop()),
            }
        }
        buffer
    }

    /// Takes a buffer that is not needed any more.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        if buffer.capacity() < LEAST {
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: usize = all.iter().map(Vec::capacity).sum();
        if kept + buffer.capacity() <= MOST {
            all.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_that_is_long_enough_is_used_again() {
        let spare = Spare::default();
        let mut first = spare.take(LEAST * 2);
        first.fill(7);
        let place = first.as_ptr();
        spare.give(first);
        let again = spare.take(LEAST);
        assert_eq!((again.as_ptr(), again.len()), (place, LEAST));
        spare.give(again);
        let zeros = spare.zeros(LEAST);
        assert_eq!((zeros.as_ptr(), zeros), (place, vec![0; LEAST]));
        assert_eq!(spare.zeros(9), [0; 9]);
        for (given, wanted) in [(1, 2), (3, 1)] {
            spare.give(vec![0; LEAST * given]);
            assert_eq!(spare.take(LEAST * wanted).capacity(), LEAST * wanted);
            assert!(spare.0.lock().unwrap().is_empty(), "{given} is kept for {wanted}");
        }
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let spare = Spare::default();
        for _ in 0..3 {
            spare.give(vec![0; MOST / 2]);
        }
        spare.give(vec![0; LEAST - 1]);
        assert_eq!(spare.0.lock().unwrap().len(), 2);
    }
}
