//! Memory of the driver's own that a device writes: whole pages at a place that does not change. Bytes
//! are looked at only where the device is done with them, which is for the caller to know.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

const PAGE: usize = 4096;

/// So many zeroed bytes.
#[derive(Debug)]
pub(super) struct Pages {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the only owner of its bytes, which have no ties to a thread.
unsafe impl Send for Pages {}

impl Pages {
    pub(super) fn new(len: usize) -> Self {
        let bytes = len.max(1).next_multiple_of(PAGE);
        // A power of two, and a length that is a multiple of it.
        let layout = Layout::from_size_align(bytes, PAGE).unwrap_or(Layout::new::<[u8; PAGE]>());
        // SAFETY: the layout has a size, of at least a page.
        let at = unsafe { alloc_zeroed(layout) };
        let at = NonNull::new(at).unwrap_or_else(|| handle_alloc_error(layout));
        Self { at, layout }
    }

    pub(super) fn addr(&self) -> u64 {
        self.at.as_ptr() as u64
    }

    pub(super) const fn len(&self) -> usize {
        self.layout.size()
    }

    /// Bytes from `from` on; none where they do not all lie inside.
    ///
    /// # Safety
    /// No device writes them while the reference lives.
    pub(super) unsafe fn bytes(&self, from: usize, len: usize) -> &[u8] {
        if from.checked_add(len).is_none_or(|end| end > self.len()) {
            return &[];
        }
        // SAFETY: inside of the allocation, which was zeroed; nothing writes it, says the caller.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr().add(from), len) }
    }

    /// Copies bytes to `from`, as far as they fit.
    ///
    /// # Safety
    /// No device reads or writes these bytes now.
    pub(super) unsafe fn put(&mut self, from: usize, bytes: &[u8]) {
        let len = bytes.len().min(self.len().saturating_sub(from));
        // SAFETY: inside of the allocation, which is this value's alone.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.as_ptr().add(from), len);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not freed before.
        unsafe { dealloc(self.at.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeroed_aligned_and_bounded() {
        let mut pages = Pages::new(5000);
        assert_eq!((pages.len(), pages.addr() % 4096), (8192, 0));
        // SAFETY: there is no device.
        unsafe {
            assert_eq!(pages.bytes(8190, 2), [0, 0]);
            assert_eq!(pages.bytes(8190, 3), [0; 0]);
            assert_eq!(pages.bytes(usize::MAX, 2), [0; 0]);
            pages.put(8190, &[1, 2, 3]);
            pages.put(9000, &[4]);
            assert_eq!(pages.bytes(8190, 2), [1, 2]);
        }
    }
}
