//! Files that a client has open, so that their opens can be repeated to a server that has lost them
//! (C-256 … C-258): what the repetition says, the handle that it brings, and closes that name the one
//! before.

use std::collections::BTreeMap;

use lnet_types::ByteOrder;
use lustre_wire::ldlm::{LockFlags, LockRequestHead};
use lustre_wire::mds::{CreateRecord, Epoch, MdtBody};
use lustre_wire::{Buffers, Layout};
use ptlrpc::{CallError, CallId, ImportId, Reply, Rpc};

const LITTLE: ByteOrder = ByteOrder::Little;
/// At least so many closed files are looked through for those whose close is committed.
const CLOSED_LEAST: usize = 64;

/// An open file.
#[derive(Clone, Debug)]
struct Open {
    handle: u64,
    /// A close that names it.
    close: Option<CallId>,
}

/// The open files of a node's imports.
#[derive(Clone, Debug, Default)]
pub struct Opens {
    files: BTreeMap<(ImportId, CallId), Open>,
    /// How many of them have a close.
    closed: usize,
    /// How many had one when they were looked through last, and were left. There are twice as many before that
    /// is done again: each close costs as much as two looks, however many wait for their commit.
    left: usize,
    #[cfg(feature = "sabotage")]
    broken: bool,
}

/// The handle in a reply to an open.
fn handle_of(reply: &Reply) -> Option<u64> {
    let body: MdtBody = reply.msg().ok()?.get(2).ok()?;
    Some(body.open_handle)
}

/// What an open that was answered in this way says when it is repeated: the intent alone, the file that
/// was opened by its FID, the handle, the layout.
fn repeated(reply: &Reply, buffers: &Buffers) -> Option<Buffers> {
    let msg = reply.msg().ok()?;
    let body: MdtBody = msg.get(2).ok()?;
    let layout = msg.buffer(3).unwrap_or_default();
    let layout = layout.get(..body.eadatasize as usize).unwrap_or(layout);
    let mut buffers = buffers.clone();
    let lock = buffers.get_mut(0)?;
    let head = LockRequestHead::parse(LITTLE, lock).ok()?;
    LockRequestHead { flags: head.flags | LockFlags::INTENT_ONLY, ..head }.put(LITTLE, lock);
    let record = buffers.get_mut(2)?;
    let mut opened = CreateRecord::parse(LITTLE, record).ok()?;
    (opened.old_handle, opened.head.fid2) = (body.open_handle, body.fid1);
    opened.put(LITTLE, record);
    buffers.replace(6, layout);
    Some(buffers)
}

impl Opens {
    /// [`Sabotage::OpenForgotten`](crate::Sabotage::OpenForgotten).
    #[cfg(feature = "sabotage")]
    pub const fn sabotage(&mut self) {
        self.broken = true;
    }

    /// A call with [`keep`](ptlrpc::Call::keep) has opened a file.
    pub fn opened(&mut self, import: ImportId, call: CallId, reply: &Reply, rpc: &mut Rpc<'_, '_>) {
        // Refused, with a reply.
        if reply.status < 0 {
            return;
        }
        let Some(handle) = handle_of(reply) else { return };
        #[cfg(feature = "sabotage")]
        if self.broken {
            rpc.forget(import, call);
            return;
        }
        let sent = rpc.buffers(import, call);
        let repeated = sent.and_then(|buffers| repeated(reply, buffers));
        // A server that keeps no files for its clients.
        if repeated.is_some_and(|buffers| rpc.amend(import, call, buffers)) {
            self.files.insert((import, call), Open { handle, close: None });
        }
    }

    /// A call that ends an open is about to begin: it names the handle that the file has now.
    pub fn end(&self, import: ImportId, open: CallId, buffers: &mut Buffers) {
        if let (Some(handle), Some(epoch)) = (self.handle(import, open), buffers.get_mut(0)) {
            Epoch { handle }.put(LITTLE, epoch);
        }
    }

    /// A call that ends an open has begun.
    pub fn closing(
        &mut self,
        import: ImportId,
        open: CallId,
        close: CallId,
        rpc: &mut Rpc<'_, '_>,
    ) {
        let Some(file) = self.files.get_mut(&(import, open)) else { return };
        let first = file.close.replace(close).is_none();
        self.closed += usize::from(first);
        if self.closed > CLOSED_LEAST.max(2 * self.left) {
            self.files.retain(|(import, _), file| match file.close {
                None => true,
                // Neither under way nor repeated any more: it is committed, or has failed.
                Some(close) => rpc.buffers(*import, close).is_some(),
            });
            self.count();
            self.left = self.closed;
        }
    }

    fn count(&mut self) {
        self.closed = self.files.values().filter(|file| file.close.is_some()).count();
    }

    /// The handle of an open file, if its server knows it for its client.
    pub fn handle(&self, import: ImportId, open: CallId) -> Option<u64> {
        self.files.get(&(import, open)).map(|file| file.handle)
    }

    /// An open was repeated: the file has another handle, in its close too (C-257).
    pub fn replayed(
        &mut self,
        import: ImportId,
        open: CallId,
        result: &Result<Reply, CallError>,
        rpc: &mut Rpc<'_, '_>,
    ) {
        let Some(file) = self.files.get_mut(&(import, open)) else { return };
        let Some(handle) = result.as_ref().ok().and_then(handle_of) else { return };
        file.handle = handle;
        let Some(close) = file.close else { return };
        let Some(mut buffers) = rpc.buffers(import, close).cloned() else { return };
        if let Some(epoch) = buffers.get_mut(0) {
            Epoch { handle }.put(LITTLE, epoch);
        }
        rpc.amend(import, close, buffers);
    }

    /// An import is closed.
    pub fn forget(&mut self, import: ImportId) {
        self.files.retain(|(of, _), _| *of != import);
        self.count();
    }
}
