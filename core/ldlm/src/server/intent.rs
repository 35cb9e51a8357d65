//! Locks that go with the result of an intent (L-15, L-22): the target executes the intent, and asks for the
//! lock that its reply brings.

use lnet_types::Errno;
use lustre_wire::BodyFlags;
use lustre_wire::ldlm::{
    InodeBits, LockDesc, LockFlags, LockKind, LockMode, LockReply, LockRequest, Policy,
    ResourceName,
};
use ptlrpc::{Rpc, Served};

use super::request::{early, handle};
use super::{LockServer, holder};
use crate::space::{Ask, State};
use crate::{Cookie, Mode};

/// The lock that a reply is to bring: parts of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitsAsk {
    /// The inode.
    pub resource: ResourceName,
    /// Mode.
    pub mode: Mode,
    /// The parts; without all of them there is no lock.
    pub bits: InodeBits,
    /// Parts that are added as far as no other lock excludes them.
    pub try_bits: InodeBits,
}

impl LockServer {
    /// A request with an intent begins: takes the locks that it gives back beside (L-60). The lock request
    /// is returned.
    ///
    /// # Errors
    /// `EPROTO` for a message that is not one with an intent.
    pub fn begin_intent(
        &mut self,
        served: &Served,
        rpc: &mut Rpc<'_, '_>,
    ) -> Result<LockRequest, Errno> {
        let msg = served.msg().map_err(|_| Errno::EPROTO)?;
        let request = LockRequest::of(&msg, 1).map_err(|_| Errno::EPROTO)?;
        self.take_back(served.export, &early(&request), false, rpc);
        self.work(rpc);
        Ok(request)
    }

    /// The lock for the reply to an intent, if it can be granted at once: no client is called back for it,
    /// and no request waits for it. It excludes others from now on; its client is called back when the
    /// reply has brought it ([`Self::give_beside`]). `None`: the reply brings no lock.
    pub fn reserve_beside(
        &mut self,
        served: &Served,
        request: &LockRequest,
        ask: &BitsAsk,
        rpc: &mut Rpc<'_, '_>,
    ) -> Option<Cookie> {
        if self.replaying || request.flags.contains(LockFlags::REPLAY) {
            return None;
        }
        let client = served.export;
        rpc.granted(client)?;
        self.settle(client, rpc);
        self.stats.enqueues += 1;
        let (bits, try_bits) = (ask.bits, ask.try_bits);
        let policy = Policy::Ibits { bits, try_bits, gid: 0, initiator: 0 };
        let desc = LockDesc {
            kind: LockKind::IBITS,
            resource: ask.resource,
            requested: ask.mode.word(),
            granted: LockMode::NONE,
            policy: policy.words(),
        };
        let ask = Ask {
            client_cookie: handle(request, 0),
            flags: LockFlags::BLOCK_NOWAIT,
            desc,
            resent: served.body.flags.contains(BodyFlags::RESENT),
        };
        let made = self.space.enqueue(rpc.now(), holder(client), &ask);
        self.work(rpc);
        // A lock that waits was asked for by another request of the client: it is not this reply's.
        made.ok().filter(|made| made.state == State::Granted).map(|made| made.lock)
    }

    /// The reply to an intent leaves, with the lock that was reserved for it. If another client wants the
    /// lock by now the reply says so. `None`: the lock is gone.
    pub fn give_beside(&mut self, lock: Cookie, rpc: &mut Rpc<'_, '_>) -> Option<LockReply> {
        let answer = self.space.answer(rpc.now(), lock);
        self.work(rpc);
        let answer = answer?;
        self.stats.granted += 1;
        let (mut flags, desc, handle) = (answer.flags, answer.desc, answer.lock.0);
        Self::mask_contention(&mut flags, answer.holder, rpc);
        Some(LockReply { flags, desc, handle, ..LockReply::default() })
    }
}
