//! Send buffers: memory that messages are gathered in which do not fit into a queue entry. They are
//! registered by the chunk, and shared by all connections of an adapter.

#![allow(unsafe_code)]

use lnet_types::Errno;
use lnet_wire::ib::MSG_MAX;

use super::pages::Pages;
use super::registrations::{Registrar, Registrations};
use super::sends::BufferId;
use super::sys::Sge;

/// Buffers of a chunk.
const CHUNK: u32 = 64;

/// See the module's head.
#[derive(Default)]
pub(super) struct Buffers {
    chunks: Vec<(Pages, u32)>,
    free: Vec<BufferId>,
}

impl Buffers {
    /// A buffer with these bytes.
    pub(super) fn take<R: Registrar>(
        &mut self,
        registrations: &mut Registrations<R>,
        bytes: &[u8],
    ) -> Result<BufferId, Errno> {
        if bytes.len() > MSG_MAX {
            return Err(Errno::EMSGSIZE);
        }
        if self.free.is_empty() {
            let pages = Pages::new(CHUNK as usize * MSG_MAX);
            let (_, key) = registrations.own(pages.addr(), pages.len() as u64)?;
            let first = self.chunks.len() as u32 * CHUNK;
            self.chunks.push((pages, key));
            self.free.extend((first..first + CHUNK).rev().map(BufferId));
        }
        let id = self.free.pop().ok_or(Errno::ENOMEM)?;
        if let Some((pages, _)) = self.chunks.get_mut((id.0 / CHUNK) as usize) {
            // SAFETY: a free buffer, which no work request names.
            unsafe { pages.put((id.0 % CHUNK) as usize * MSG_MAX, bytes) };
        }
        Ok(id)
    }

    /// Gives a buffer back that no work request names any more.
    pub(super) fn give(&mut self, id: BufferId) {
        debug_assert!(!self.free.contains(&id), "{id:?} is free already");
        self.free.push(id);
    }

    /// Where a buffer lies.
    pub(super) fn place(&self, id: BufferId) -> Sge {
        let Some((pages, lkey)) = self.chunks.get((id.0 / CHUNK) as usize) else {
            return Sge::default();
        };
        let addr = pages.addr() + u64::from(id.0 % CHUNK) * MSG_MAX as u64;
        Sge { addr, length: MSG_MAX as u32, lkey: *lkey }
    }
}
