//! Memory of writes, named by the program that has written: it is the program's again when none of its
//! bytes is dirty or on its way any more.

use std::collections::BTreeMap;

use lnet_types::{IoVec, iovec_len, iovec_slice};

/// Memory of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BufferId(u64);

#[derive(Debug)]
struct Buffer {
    memory: IoVec,
    /// Bytes that are in use, each as often as it is.
    left: u64,
}

#[derive(Debug, Default)]
pub(super) struct Buffers {
    all: BTreeMap<BufferId, Buffer>,
    last: u64,
}

impl Buffers {
    /// Takes memory, all of which is in use.
    pub(super) fn insert(&mut self, memory: IoVec) -> BufferId {
        self.last += 1;
        let id = BufferId(self.last);
        let left = iovec_len(&memory);
        self.all.insert(id, Buffer { memory, left });
        id
    }

    /// A part of some memory.
    pub(super) fn slice(&self, id: BufferId, at: u64, len: u64) -> IoVec {
        self.all.get(&id).map(|buffer| iovec_slice(&buffer.memory, at, len)).unwrap_or_default()
    }

    /// So many bytes have one more use.
    pub(super) fn claim(&mut self, id: BufferId, len: u64) {
        if let Some(buffer) = self.all.get_mut(&id) {
            buffer.left = buffer.left.saturating_add(len);
        }
    }

    /// So many bytes are not in use any more; the memory, if they were the last ones.
    pub(super) fn release(&mut self, id: BufferId, len: u64) -> Option<IoVec> {
        let buffer = self.all.get_mut(&id)?;
        buffer.left = buffer.left.saturating_sub(len);
        if buffer.left > 0 {
            return None;
        }
        self.all.remove(&id).map(|buffer| buffer.memory)
    }
}
