//! What a server wants of a lock that it has given: completion, blocking, glimpse (L-38 … L-41). A
//! callback is answered at once; what follows of it comes after the answer, since orders and events
//! are polled.

use core::time::Duration;

use lnet_types::{Errno, Instant};
use lustre_wire::Opcode;
use lustre_wire::ldlm::{LockFlags, LockRequest};

use super::ask::{GlimpseId, LockError, LockEvent, LockId};
use super::lock::{Stage, Wanted};
use super::namespace::Namespace;
use crate::Mode;

/// The client has nothing to say of the object (L-40).
pub(super) const NO_LOCK_DATA: i32 = -303;
/// A lock for writing that is unused for so long goes after a glimpse.
const STALE: Duration = Duration::from_secs(10);
/// Flags of a callback (L-17).
const CALLBACK_FLAGS: LockFlags = LockFlags::from_bits_retain(0x1_8020);

/// The answer to a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallbackAnswer {
    /// At once.
    Status(i32),
    /// The program answers this glimpse.
    Glimpse(LockId),
}

const UNKNOWN: CallbackAnswer = CallbackAnswer::Status(Errno::EINVAL.negative());
const TAKEN: CallbackAnswer = CallbackAnswer::Status(0);

impl Namespace {
    /// A callback with the lock request and the attributes that came with it. `glimpse` is the name of
    /// the glimpse if it is one; `full`: the program has too many to answer.
    pub(super) fn callback(
        &mut self,
        now: Instant,
        opcode: Opcode,
        request: &LockRequest,
        lvb: &[u8],
        glimpse: GlimpseId,
        full: bool,
    ) -> CallbackAnswer {
        let id = LockId(request.handles.first().copied().unwrap_or_default());
        if !self.locks.contains(&id) {
            return UNKNOWN;
        }
        match opcode {
            Opcode::LDLM_BL_CALLBACK => self.called_back(id, request),
            Opcode::LDLM_CP_CALLBACK => self.completed(now, id, request, lvb),
            Opcode::LDLM_GL_CALLBACK => self.glimpsed(now, id, glimpse, full),
            _ => CallbackAnswer::Status(Errno::EOPNOTSUPP.negative()),
        }
    }

    /// Another client wants the lock (L-39).
    fn called_back(&mut self, id: LockId, request: &LockRequest) -> CallbackAnswer {
        let Some(lock) = self.locks.get_mut(&id) else { return UNKNOWN };
        if lock.stage == Stage::Leaving {
            return UNKNOWN;
        }
        let discard = request.flags.contains(LockFlags::DISCARD_DATA);
        let first = lock.wanted.is_none();
        let wanted = lock.wanted.get_or_insert(Wanted { desc: request.desc, discard });
        wanted.discard |= discard;
        let desc = wanted.desc;
        // One that is not granted yet is said to be called back when it is.
        if lock.stage != Stage::Granted || !first {
            return TAKEN;
        }
        let (used, holds, converting) =
            (lock.used_at, lock.holds.to_vec(), lock.converting.is_some());
        self.cache.remove(used, id);
        if holds.is_empty() && !converting {
            self.leave(id);
        } else {
            self.events.push_back(LockEvent::CalledBack { lock: id, holds, wanted: desc });
        }
        TAKEN
    }

    /// A lock that waited is granted (L-38).
    fn completed(
        &mut self,
        now: Instant,
        id: LockId,
        request: &LockRequest,
        lvb: &[u8],
    ) -> CallbackAnswer {
        let Some(lock) = self.locks.get_mut(&id) else { return UNKNOWN };
        let asked = match lock.stage {
            Stage::Asked { granted: false } => true,
            Stage::Blocked { .. } => false,
            _ => return TAKEN,
        };
        if request.flags.contains(LockFlags::FLOCK_DEADLOCK) {
            self.refuse(id, LockError::Deadlock);
            return TAKEN;
        }
        let taken = lock.take_lvb(lvb).and_then(|()| lock.take_desc(&request.desc, false));
        if let Err(why) = taken {
            // The server drops it for this answer (L-55.3).
            self.refuse(id, LockError::BadAnswer(why));
            return UNKNOWN;
        }
        if let Some(&remote) = request.handles.get(1).filter(|remote| **remote != 0) {
            lock.remote = remote;
        }
        lock.take_flags(request.flags & CALLBACK_FLAGS, request.desc);
        if asked {
            // Its request goes again until it is answered: a lock that left before that would be made
            // once more by a copy.
            lock.stage = Stage::Asked { granted: true };
        } else {
            self.grant(now, id);
        }
        TAKEN
    }

    /// The server asks for what belongs to the lock (L-40).
    fn glimpsed(
        &mut self,
        now: Instant,
        id: LockId,
        glimpse: GlimpseId,
        full: bool,
    ) -> CallbackAnswer {
        let Some(lock) = self.locks.get(&id) else { return UNKNOWN };
        let idle = now.saturating_since(lock.used_at) >= STALE;
        let stale = idle
            && lock.mode == Mode::Pw
            && lock.stage == Stage::Granted
            && lock.holds.is_empty()
            && lock.converting.is_none();
        // What is being written back is not at the server yet: the program knows it still.
        let knows = matches!(lock.stage, Stage::Granted | Stage::Flushing);
        let answer = if lock.glimpses && !full && knows {
            self.events.push_back(LockEvent::Glimpse { glimpse, lock: id });
            CallbackAnswer::Glimpse(id)
        } else {
            CallbackAnswer::Status(NO_LOCK_DATA)
        };
        if stale {
            self.leave(id);
        }
        answer
    }
}
