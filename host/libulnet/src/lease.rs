//! Memory of the program that is lent to a node: when the node has let go of it is known for certain,
//! also if an operation is cancelled or the node's thread ends.

use core::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use lnet_rt::Buffer;

/// The program's side of a loan.
#[derive(Debug)]
pub struct Lease(Arc<Loan>);

#[derive(Debug, Default)]
struct Loan {
    over: Mutex<bool>,
    ended: Condvar,
}

/// The node's side: the loan ends when it is dropped, with the buffer.
struct Borrower(Arc<Loan>);

impl Drop for Borrower {
    fn drop(&mut self) {
        *self.0.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.ended.notify_all();
    }
}

impl Lease {
    /// Lends `len` bytes at `ptr`.
    ///
    /// # Safety
    /// As [`Buffer::foreign`], until [`Lease::wait`] has returned.
    #[allow(unsafe_code, reason = "memory of the caller")]
    pub unsafe fn new(ptr: NonNull<u8>, len: usize) -> (Self, Buffer) {
        let loan = Arc::new(Loan::default());
        // SAFETY: the caller's promise; the loan is over when the buffer drops its owner.
        let buffer = unsafe { Buffer::foreign(ptr, len, Borrower(Arc::clone(&loan))) };
        (Self(loan), buffer)
    }

    /// Whether nothing uses the memory any more.
    pub fn is_over(&self) -> bool {
        *self.0.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing uses the memory any more.
    pub fn wait(&self) {
        let mut over = self.0.over.lock().unwrap_or_else(PoisonError::into_inner);
        while !*over {
            over = self.0.ended.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn a_loan_ends_with_the_buffer_and_not_before() {
        let mut bytes = [0u8; 4];
        let at = NonNull::from(&mut bytes).cast();
        // SAFETY: `bytes` lives to the end, which waits for the loan, and is not touched before.
        let (lease, mut buffer) = unsafe { Lease::new(at, 4) };
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            buffer[0] = 1;
        });
        assert!(!lease.is_over());
        lease.wait();
        assert!(lease.is_over());
        assert_eq!(bytes[0], 1);
        other.join().unwrap();
    }
}
