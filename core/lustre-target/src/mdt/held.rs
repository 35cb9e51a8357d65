//! Data under the locks of their clients: a request that has no lock of the target is carried out under one
//! that its client holds on the bit DOM of the file, which lives as long as data move under it (C-221, L-49).

use ldlm::Cookie;
use ldlm::space::{Io, LockView, Touched};
use lnet_types::Errno;
use lustre_wire::fid::Valid;
use lustre_wire::ldlm::{InodeBits, ResourceName};
use lustre_wire::{BodyFlags, Msg};
use ptlrpc::{ExportId, Served, ServedId, Waiting};

use super::Mdt;
use super::data::{is_data, wanted_lock};
use super::inode::Id;
use crate::journal::Cx;
use crate::lock_server;
use crate::ost::{DataAsk, DataRequest, read_at};

/// What a request needs of its client's locks. What was done once, before a crash, is done again (`replays`)
/// without a look at locks.
pub(super) fn held(request: &DataRequest, file: Id, replays: bool) -> Option<Io> {
    let read = match &request.ask {
        DataAsk::Read(_) => true,
        DataAsk::Write(..) | DataAsk::Punch => false,
        _ => return None,
    };
    if replays || wanted_lock(request).is_some() {
        return None;
    }
    let bits = InodeBits::DOM.bits();
    let body = &request.body;
    let named = body.valid.contains(Valid::HANDLE) && body.handle != 0;
    let (resource, lock) = (ResourceName::of(file.fid()), named.then_some(Cookie(body.handle)));
    Some(Io { resource, start: bits, end: bits, read, lock })
}

/// The same of a request that waits for a slot.
fn waiting(waiting: &Waiting<'_>) -> Option<Io> {
    if !is_data(waiting.body.opcode) {
        return None;
    }
    let msg = Msg::parse(waiting.message).ok()?;
    let request = read_at(waiting.body.opcode, &msg, true).ok()?;
    let file = Id::of(request.body.id.fid()?)?;
    held(&request, file, waiting.body.flags.contains(BodyFlags::REPLAY))
}

/// Whether the data of a request that waits for a slot move under a lock of its client.
pub(super) fn is_under(one: &Waiting<'_>, lock: &LockView) -> bool {
    waiting(one).is_some_and(|io| io.is_under(lock))
}

impl Mdt {
    /// A request for data begins or ends: the lock of its client has more time, if it is wanted by others.
    ///
    /// # Errors
    /// `ESTALE`: the client has lost its lock.
    pub(super) fn touch_held(
        &mut self,
        served: &Served,
        request: &DataRequest,
        file: Id,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<(), Errno> {
        let Some(io) = held(request, file, served.replay.is_some()) else { return Ok(()) };
        match self.locks.touch(served.id, served.export, &io, cx.rpc) {
            Touched::NoLock => Err(Errno::ESTALE),
            Touched::Held | Touched::CalledBack => Ok(()),
        }
    }

    /// A request finds no slot: if others wait for what it does, it goes first (P-114). `false` if it needs no
    /// lock of its client.
    pub(super) fn raise_held(
        &mut self,
        served: ServedId,
        export: ExportId,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        let all = cx.rpc.waiting(export);
        let Some(io) = all.iter().find(|one| one.id == served).and_then(waiting) else {
            return false;
        };
        lock_server::raise(&mut self.locks, (served, export), &io, cx.rpc)
    }

    /// Ends the callback timers whose time has come, but for clients whose data move under the lock (L-52).
    pub(super) fn expire_locks(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let Self { locks, data, .. } = self;
        locks.handle_timeout(cx.rpc, |rpc, export, lock| {
            rpc.waiting(export).iter().any(|one| is_under(one, lock))
                || data.values().any(|work| work.is_under(export, lock))
        });
    }
}
