//! Callbacks: how they are sent (L-32, L-33, L-54), and what their ends mean (L-55).

use lnet_types::{ByteOrder, Errno};
use lustre_wire::Opcode;
use lustre_wire::ldlm::{LockFlags, LockRequest};
use lustre_wire::{Buffers, ConnectFlags, Layout as _};
use ptlrpc::{Call, CallError, CallId, Reply, Rpc, ServedId};

use super::{LockServer, export, holder};
use crate::Cookie;
use crate::space::{Callback, CallbackEnd, HolderId};

/// What a callback under way is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Calling {
    /// It asks for a lock; the enqueue of `because` waits for its end.
    Blocking { lock: Cookie, because: Cookie },
    /// It says that a lock was dropped as another one was asked for: nothing waits for its end.
    Dropped { lock: Cookie },
    /// It announces a grant, and may ask for the lock as well.
    Completion { lock: Cookie },
    /// It asks for the size of an object.
    Glimpse { lock: Cookie, served: ServedId },
}

impl Calling {
    const fn lock(self) -> Cookie {
        match self {
            Self::Blocking { lock, .. }
            | Self::Dropped { lock }
            | Self::Completion { lock }
            | Self::Glimpse { lock, .. } => lock,
        }
    }
}

/// What the end of a callback means (L-55).
pub(super) fn end_of(result: &Result<Reply, CallError>) -> CallbackEnd {
    let errno = match result {
        Ok(reply) if reply.status >= 0 => return CallbackEnd::Taken,
        Ok(reply) => Errno(reply.status.saturating_neg()),
        // Its client is gone, or has given the lock back: there is nothing to be learnt.
        Err(CallError::Closed | CallError::Cancelled | CallError::NoImport) => {
            return CallbackEnd::Stopping;
        }
        Err(CallError::Refused(errno)) => *errno,
        Err(_) => return CallbackEnd::Failed,
    };
    match errno {
        Errno::EINVAL => CallbackEnd::NotHeld,
        Errno::ENODEV | Errno::ESHUTDOWN => CallbackEnd::Stopping,
        _ => CallbackEnd::Failed,
    }
}

impl LockServer {
    /// Sends a callback.
    ///
    /// # Errors
    /// The client can't be called, or not yet: as many calls as there may be are under way to it.
    pub(super) fn call(
        &self,
        opcode: Opcode,
        callback: &Callback,
        value: Option<Vec<u8>>,
        limited: bool,
        rpc: &mut Rpc<'_, '_>,
    ) -> Result<CallId, CallError> {
        let handles = [callback.client_cookie, callback.lock.0];
        let handles = if opcode == Opcode::LDLM_GL_CALLBACK { &handles[..1] } else { &handles[..] };
        // The count of a callback is 0 (L-13).
        let request = LockRequest::new(callback.flags, 0, callback.desc, handles);
        let mut buffers = Buffers::from([request.to_bytes(ByteOrder::Little)]);
        buffers.extend(value);
        let mut call = Call::new(opcode, buffers);
        call.modifies = false;
        // A lock that is dropped for the request is gone, whether its client hears of it or not (L-46).
        call.resend =
            opcode != Opcode::LDLM_BL_CALLBACK || self.space.lock(callback.lock).is_some();
        call.limit = limited.then(|| self.space.callback_limit(callback.holder));
        if opcode == Opcode::LDLM_GL_CALLBACK {
            call = call.answered_by(&[lustre_wire::ldlm::Lvb::LEN as u32]);
        }
        rpc.callback(export(callback.holder), call)
    }

    /// Asks the holder of a lock for it: at once, or when others of the round have answered (L-23).
    pub(super) fn block(&mut self, callback: &Callback, because: Cookie, rpc: &mut Rpc<'_, '_>) {
        let lock = callback.lock;
        let there = self.space.lock(lock).is_some();
        if there && self.is_full(because) {
            return self.delay(callback, because);
        }
        match self.call(Opcode::LDLM_BL_CALLBACK, callback, None, true, rpc) {
            Ok(call) if there => {
                self.stats.blocking += 1;
                self.calls.insert(call, Calling::Blocking { lock, because });
                self.called.insert(lock, call);
                if let Some(round) = self.rounds.get_mut(&because) {
                    round.open += 1;
                }
                self.raise_under(lock, callback.holder, rpc);
            }
            // Its server has dropped it, and the request that it was in the way of goes on (L-39, L-46).
            Ok(call) => {
                self.stats.blocking += 1;
                self.calls.insert(call, Calling::Dropped { lock });
            }
            Err(CallError::TooMany { .. }) if there => self.delay_block(callback, because),
            Err(_) => self.space.callback_ended(rpc.now(), lock, CallbackEnd::Failed),
        }
    }

    /// Announces a grant.
    pub(super) fn complete(&mut self, callback: &Callback, rpc: &mut Rpc<'_, '_>) {
        let lock = callback.lock;
        let granted = rpc.granted(export(callback.holder)).unwrap_or_default();
        let short = !granted.flags.contains(ConnectFlags::LVB_TYPE);
        let held = self.space.value(&callback.desc.resource);
        let value = self.values.bytes(lock, &callback.desc, true, held, short);
        // It goes until the client has it, unless it asks for the lock as well (L-54).
        let limited = callback.flags.contains(LockFlags::AST_SENT);
        match self.call(Opcode::LDLM_CP_CALLBACK, callback, Some(value), limited, rpc) {
            Ok(call) => {
                self.stats.completions += 1;
                self.calls.insert(call, Calling::Completion { lock });
                self.called.insert(lock, call);
            }
            Err(CallError::TooMany { .. }) => self.delay_completion(callback),
            Err(_) => self.space.callback_ended(rpc.now(), lock, CallbackEnd::Failed),
        }
    }

    /// The holder of a lock is asked for it: what its data wait for goes first (P-114).
    fn raise_under(&self, lock: Cookie, client: HolderId, rpc: &mut Rpc<'_, '_>) {
        let (Some(under), Some(lock)) = (self.under, self.space.lock(lock)) else { return };
        let waiting = rpc.waiting(export(client));
        let raised = waiting.iter().filter(|one| !one.high && under(one, &lock));
        let raised: Vec<ServedId> = raised.map(|one| one.id).collect();
        for id in raised {
            rpc.raise(id);
        }
    }

    /// A callback has gone again: the client has as much time again (L-51).
    ///
    /// `false` if it is none of these locks.
    pub fn called_again(&mut self, call: CallId, rpc: &mut Rpc<'_, '_>) -> bool {
        let Some(calling) = self.calls.get(&call).copied() else { return false };
        self.stats.again += 1;
        match calling {
            Calling::Blocking { lock, .. } | Calling::Completion { lock } => {
                self.space.callback_resent(rpc.now(), lock);
            }
            Calling::Glimpse { .. } | Calling::Dropped { .. } => {}
        }
        true
    }

    /// A callback has ended.
    ///
    /// `false` if it is none of these locks.
    pub fn called(
        &mut self,
        call: CallId,
        result: &Result<Reply, CallError>,
        rpc: &mut Rpc<'_, '_>,
    ) -> bool {
        let Some(calling) = self.calls.remove(&call) else { return false };
        let lock = calling.lock();
        if self.called.get(&lock) == Some(&call) {
            self.called.remove(&lock);
        }
        match calling {
            Calling::Blocking { because, .. } => {
                self.space.callback_ended(rpc.now(), lock, end_of(result));
                if let Some(round) = self.rounds.get_mut(&because) {
                    round.open = round.open.saturating_sub(1);
                    self.over.push_back(because);
                }
                self.send_delayed(because, rpc);
            }
            Calling::Dropped { .. } => {}
            Calling::Completion { .. } => {
                self.space.callback_ended(rpc.now(), lock, end_of(result));
            }
            Calling::Glimpse { served, .. } => self.glimpsed(served, result, rpc),
        }
        self.send_refused(rpc);
        self.work(rpc);
        true
    }

    /// How long the callback timer of a client runs (L-47).
    pub fn callback_limit(&self, client: ptlrpc::ExportId) -> core::time::Duration {
        self.space.callback_limit(holder(client))
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::Nid;

    use super::*;

    #[test]
    fn l55_each_end_of_a_callback_has_its_meaning() {
        let reply = |status| Ok(Reply { status, transno: 0, message: Vec::new() });
        let refused = |errno| Err(CallError::Refused(errno));
        for (result, end) in [
            (reply(0), CallbackEnd::Taken),
            (reply(-22), CallbackEnd::NotHeld),
            (refused(Errno::EINVAL), CallbackEnd::NotHeld),
            (refused(Errno::ENODEV), CallbackEnd::Stopping),
            (refused(Errno::ESHUTDOWN), CallbackEnd::Stopping),
            (Err(CallError::Closed), CallbackEnd::Stopping),
            (Err(CallError::Cancelled), CallbackEnd::Stopping),
            (refused(Errno::ENOTCONN), CallbackEnd::Failed),
            (refused(Errno::ENOMEM), CallbackEnd::Failed),
            (refused(Errno::EIO), CallbackEnd::Failed),
            (reply(i32::MIN), CallbackEnd::Failed),
            (Err(CallError::LimitPassed), CallbackEnd::Failed),
            (Err(CallError::TimedOut(Nid::LOOPBACK)), CallbackEnd::Failed),
        ] {
            assert_eq!(end_of(&result), end, "{result:?}");
        }
    }
}
