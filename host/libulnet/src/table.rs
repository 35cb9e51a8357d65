//! What handles stand for. A handle is a number that is never used twice, in the clothes of a pointer:
//! one that is NULL, closed or of another kind is not found.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use lnet_rt::Errno;

use crate::failure::Failure;

/// All handles of one kind. What is taken out lives on for the calls that have it in hand.
pub(crate) struct Table<T> {
    /// What errors call it.
    name: &'static str,
    entries: RwLock<BTreeMap<usize, Arc<T>>>,
}

/// Numbers of all kinds come from here, so that a handle of another kind is not found either.
static NEXT: AtomicUsize = AtomicUsize::new(1);

impl<T> Table<T> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, entries: RwLock::new(BTreeMap::new()) }
    }

    /// A handle for `value`.
    pub(crate) fn insert(&self, value: Arc<T>) -> usize {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(number, value);
        number
    }

    pub(crate) fn get(&self, number: usize) -> Result<Arc<T>, Failure> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&number).map(Arc::clone).ok_or_else(|| self.missing(number))
    }

    pub(crate) fn remove(&self, number: usize) -> Result<Arc<T>, Failure> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&number).ok_or_else(|| self.missing(number))
    }

    fn missing(&self, number: usize) -> Failure {
        match number {
            0 => Failure::new(Errno::EINVAL, format!("{} NULL: must be a handle", self.name)),
            _ => {
                let text = format!("{} {number:#x}: must be an open handle of its kind", self.name);
                Failure::new(EBADF, text)
            }
        }
    }
}

/// A handle that is not open.
const EBADF: Errno = Errno(9);
