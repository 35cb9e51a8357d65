//! Locks of the server itself: for requests of clients that have no lock of their own (L-50), and for
//! what removes an object. They have no timer and are not called back: each goes with its request.

use core::time::Duration;

use lnet_types::Errno;
use lustre_wire::ldlm::{
    InodeBits, LockDesc, LockFlags, LockKind, LockMode, LockRequest, Policy, ResourceName,
};
use ptlrpc::{Rpc, Served};

use super::LockServer;
use super::request::cancelled;
use crate::space::{Ask, HolderId, HolderKind, State};
use crate::{Cookie, Mode};

/// The holders that are this server: no export has such a number.
const LOCAL: HolderId = HolderId(u64::MAX);
const REMOVER: HolderId = HolderId(u64::MAX - 1);

pub(super) fn is_local(holder: HolderId) -> bool {
    holder == LOCAL || holder == REMOVER
}

/// A range that the server locks itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAsk {
    /// The object.
    pub resource: ResourceName,
    /// Mode.
    pub mode: Mode,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// Holders may drop what they have not written (L-80).
    pub discard: bool,
    /// The object is removed under the lock (L-35.5).
    pub removes: bool,
}

impl LockServer {
    /// Takes a lock for the server itself, and says whether it is granted. One that waits is granted
    /// when [`Self::poll_local`] says so. [`Self::unlock_locally`] ends both.
    ///
    /// # Errors
    /// `EINPROGRESS` at a limit of locks.
    pub fn lock_locally(
        &mut self,
        ask: &LocalAsk,
        rpc: &mut Rpc<'_, '_>,
    ) -> Result<(Cookie, bool), Errno> {
        let holder = match ask.removes {
            true => (REMOVER, HolderKind::Remover),
            false => (LOCAL, HolderKind::Local),
        };
        let mut flags = LockFlags::NO_EXPANSION;
        flags.set(LockFlags::AST_DISCARD_DATA, ask.discard);
        let policy = Policy::Extent { start: ask.start, end: ask.end, gid: 0 };
        let desc = LockDesc {
            kind: LockKind::EXTENT,
            resource: ask.resource,
            requested: ask.mode.word(),
            granted: LockMode::NONE,
            policy: policy.words(),
        };
        self.take_locally(holder, flags, desc, rpc)
    }

    /// The same for parts of an inode.
    ///
    /// # Errors
    /// `EINPROGRESS` at a limit of locks.
    pub fn lock_bits_locally(
        &mut self,
        resource: ResourceName,
        mode: Mode,
        bits: InodeBits,
        rpc: &mut Rpc<'_, '_>,
    ) -> Result<(Cookie, bool), Errno> {
        let try_bits = InodeBits::empty();
        let policy = Policy::Ibits { bits, try_bits, gid: 0, initiator: 0 };
        let desc = LockDesc {
            kind: LockKind::IBITS,
            resource,
            requested: mode.word(),
            granted: LockMode::NONE,
            policy: policy.words(),
        };
        self.take_locally((LOCAL, HolderKind::Local), LockFlags::empty(), desc, rpc)
    }

    fn take_locally(
        &mut self,
        (holder, kind): (HolderId, HolderKind),
        flags: LockFlags,
        desc: LockDesc,
        rpc: &mut Rpc<'_, '_>,
    ) -> Result<(Cookie, bool), Errno> {
        let now = rpc.now();
        self.space.connect(holder, kind, Duration::ZERO);
        self.locals += 1;
        let ask = Ask { client_cookie: self.locals, flags, desc, resent: false };
        let made = self.space.enqueue(now, holder, &ask);
        let made = made.map_err(|refusal| Errno(refusal.status().saturating_neg()))?;
        // From now on its grant is announced.
        let state = self.space.answer(now, made.lock).map(|answer| answer.state);
        self.work(rpc);
        Ok((made.lock, state == Some(State::Granted)))
    }

    /// The next lock of the server that was granted after a wait.
    pub fn poll_local(&mut self) -> Option<Cookie> {
        self.locals_granted.pop_front()
    }

    /// Ends a lock of the server, granted or not.
    pub fn unlock_locally(&mut self, lock: Cookie, rpc: &mut Rpc<'_, '_>) {
        self.space.abort(rpc.now(), lock);
        self.work(rpc);
    }

    /// Locks that a request other than an enqueue gives back beside, in the buffer of this index, if it
    /// has one (L-60, L-86).
    ///
    /// # Errors
    /// `EPROTO` if the buffer is no lock request.
    pub fn take_back_beside(
        &mut self,
        served: &Served,
        index: usize,
        rpc: &mut Rpc<'_, '_>,
    ) -> Result<(), Errno> {
        let msg = served.msg().map_err(|_| Errno::EPROTO)?;
        if msg.buffer(index).is_none_or(<[u8]>::is_empty) {
            return Ok(());
        }
        let request = LockRequest::of(&msg, index).map_err(|_| Errno::EPROTO)?;
        let locks = if request.count == 0 { Vec::new() } else { cancelled(&request) };
        self.take_back(served.export, &locks, false, rpc);
        self.work(rpc);
        Ok(())
    }
}
