//! What every target with locks does with its lock server: how the lock server begins, and which facts
//! of callbacks reach it. What the locks protect, and when a request waits for them, is each target's own.

use ldlm::server::{LockServer, Under, Values};
use ldlm::space::{Config, Io, Touched};
use ptlrpc::{ExportId, Rpc, ServedId};

use crate::targets::CallbackFact;

/// The lock server of a target that has not begun.
pub(crate) fn idle(values: Values) -> LockServer {
    LockServer::new(Config::new(0), values, false)
}

/// The same, of a target whose clients move data under their locks: which requests do is what `under` says.
pub(crate) fn begun_with(
    values: Values,
    recovers: bool,
    under: Under,
    rpc: &mut Rpc<'_, '_>,
) -> LockServer {
    let mut locks = begun(values, recovers, rpc);
    locks.raise_what_is(under);
    locks
}

/// The lock server of a target that begins. `recovers`: clients of an earlier start are awaited.
pub(crate) fn begun(values: Values, recovers: bool, rpc: &mut Rpc<'_, '_>) -> LockServer {
    let mut config = Config::new(rpc.seed());
    config.enqueue_min = rpc.tunables().ldlm_enqueue_min;
    LockServer::new(config, values, recovers)
}

/// Reports a fact of a callback. `false`: the callback is not one of this lock server.
pub(crate) fn report(locks: &mut LockServer, fact: &CallbackFact, rpc: &mut Rpc<'_, '_>) -> bool {
    match fact {
        CallbackFact::Again(call) => locks.called_again(*call, rpc),
        CallbackFact::Ended(call, result) => locks.called(*call, result, rpc),
    }
}

/// A request finds no slot: if others wait for the lock under which its data move, it goes first (P-114).
/// `false` if its client has no such lock.
pub(crate) fn raise(
    locks: &mut LockServer,
    (served, export): (ServedId, ExportId),
    io: &Io,
    rpc: &mut Rpc<'_, '_>,
) -> bool {
    let touched = locks.touch(served, export, io, rpc);
    if touched == Touched::CalledBack {
        rpc.raise(served);
    }
    touched != Touched::NoLock
}
