//! Locks end: cancel (L-42), conversion to fewer bits (L-45), the end of a callback (L-55), eviction of
//! a holder (L-52).

use lnet_types::Instant;
use lustre_wire::ldlm::InodeBits;

use super::record::Place;
use super::slab::NIL;
use super::{CallbackEnd, Cancelled, ConvertRefusal, EvictReason, HolderId, Namespace};
use crate::sabotage::Sabotage;
use crate::{Cookie, Kind, Mode};

impl Namespace {
    /// Drops a lock whose request ended with an error or ABORTED (L-22.14). Whether it was there.
    pub fn abort(&mut self, now: Instant, lock: Cookie) -> bool {
        let Some(at) = self.find(lock) else { return false };
        self.destroy(at);
        self.settle(now);
        true
    }

    /// Cancels locks of a holder; those that are unknown or of another holder are passed over (L-42).
    pub fn cancel(&mut self, now: Instant, holder: HolderId, locks: &[Cookie]) -> Cancelled {
        let mut cancelled = Cancelled::default();
        for &lock in locks {
            let Some(at) = self.find_of(holder, lock) else { continue };
            cancelled.found += 1;
            let lock = &self.locks[at];
            let delay = now.saturating_since(lock.asked);
            if lock.expires != 0 && delay.as_secs() > 0 {
                cancelled.delays.push(delay);
            }
            self.destroy(at);
        }
        self.settle(now);
        cancelled
    }

    /// Drops inode bits of a lock (L-45); returns those that are left. With none left the lock is gone.
    /// A lock that still blocks a waiting one is called back again: its holder has given what was wanted
    /// before.
    ///
    /// # Errors
    /// The lock is unknown, or of another holder, kind or mode, or does not have the bits.
    pub fn convert(
        &mut self,
        now: Instant,
        holder: HolderId,
        lock: Cookie,
        mode: Mode,
        keep: InodeBits,
    ) -> Result<InodeBits, ConvertRefusal> {
        let at = self.find_of(holder, lock).ok_or(ConvertRefusal::Gone)?;
        let (held, asked) = (self.locks[at].start, keep.bits());
        let granted = self.locks[at].place == Place::Granted;
        if self.locks[at].kind != Kind::Ibits || self.locks[at].mode != mode || !granted {
            return Err(ConvertRefusal::Differs);
        }
        if asked & !held != 0 {
            return Err(ConvertRefusal::Upwards { asked, held });
        }
        if asked == 0 {
            self.destroy(at);
        } else {
            let resource = self.locks[at].resource;
            let since = self.locks[at].since;
            self.leave_granted(at);
            (self.locks[at].start, self.locks[at].wanted.0) = (asked, asked);
            self.enter_granted(since, at);
            self.locks[at].called_back = false;
            self.disarm(at);
            if self.resources[resource].waiting > 0 && !self.resources[resource].dirty {
                self.resources[resource].dirty = true;
                self.dirty.push(resource);
            }
        }
        self.settle(now);
        if let Some(at) = self.find_of(holder, lock) {
            let blocked = |other: &u32| self.locks[at].conflicts(&self.locks[*other]);
            let other = self.waiting(self.locks[at].resource, NIL).find(blocked);
            if let Some(other) = other {
                self.call_back(now, at, other, false);
            }
        }
        Ok(keep)
    }

    /// A blocking callback, or a completion with AST_SENT, ended (L-55).
    pub fn callback_ended(&mut self, now: Instant, lock: Cookie, end: CallbackEnd) {
        let Some(at) = self.find(lock) else { return };
        match end {
            CallbackEnd::Taken | CallbackEnd::Stopping => {}
            CallbackEnd::NotHeld => {
                self.destroy(at);
                self.settle(now);
            }
            CallbackEnd::Failed => self.ask_eviction(at, EvictReason::CallbackFailed),
        }
    }

    /// Removes a holder and all its locks, those that were called back first (L-52). Number of locks.
    pub fn evict(&mut self, now: Instant, holder: HolderId) -> usize {
        let Some(owner) = self.find_holder(holder) else { return 0 };
        self.effects.retain(|effect| effect.holder() != holder);
        let all = self.holders[owner].locks;
        let spared = usize::from(self.breaks(Sabotage::EvictionKeepsOne));
        for called_back in [true, false] {
            let mut at = self.holders[owner].first;
            while at != NIL && self.holders[owner].locks > spared {
                let next = self.locks[at].mates[1];
                if self.locks[at].called_back == called_back {
                    self.destroy(at);
                }
                at = next;
            }
        }
        let removed = all - self.holders[owner].locks;
        if self.holders[owner].locks == 0 {
            self.drop_holder(owner);
        }
        self.settle(now);
        removed
    }
}
