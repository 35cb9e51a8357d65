//! Glimpses (L-35): the size of an object is asked of those that may have written to it, instead of a
//! lock that would make them write back.

use lnet_types::Instant;
use lustre_wire::ldlm::LockFlags;
use smallvec::SmallVec;

use super::record::Lock;
use super::tree::{self, Part};
use super::{Ask, Callback, Glimpse, HolderId, HolderKind, Namespace};
use crate::{Kind, Mode, Refusal};

impl Namespace {
    /// Asks for a lock to learn an object's size (L-35). Only a lock that is granted remains.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn glimpse(
        &mut self,
        now: Instant,
        holder: HolderId,
        ask: &Ask,
    ) -> Result<Glimpse, Refusal> {
        let never_wait = ask.flags & !LockFlags::BLOCK_NOWAIT | LockFlags::SPECULATIVE;
        match self.enqueue(now, holder, &Ask { flags: never_wait, ..*ask }) {
            Ok(enqueued) => return Ok(Glimpse::Granted(enqueued)),
            Err(Refusal::Conflict) => {}
            Err(refusal) => return Err(refusal),
        }
        let Some(resource) = self.find_resource(&ask.desc.resource) else {
            return Ok(Glimpse::Aborted(SmallVec::new()));
        };
        if ask.flags.contains(LockFlags::BLOCK_NOWAIT) {
            return Ok(Glimpse::Aborted(SmallVec::new()));
        }
        let part = Part { start: ask.desc.policy.start, end: ask.desc.policy.end };
        Ok(self.ask_size(resource, part))
    }

    /// The holders to be asked: of each mode but PR, from the highest end down to the size that is
    /// known, each once; behind the first whose range would have grown no one can hold more.
    fn ask_size(&self, resource: u32, part: Part) -> Glimpse {
        let record = &self.resources[resource];
        let size = record.value.as_ref().map_or(0, |value| value.size());
        let (mut asked, mut destroyed) = (SmallVec::<[Callback; 1]>::new(), false);
        for set in record.granted.iter().filter(|set| set.mode != Mode::Pr) {
            let mut visit = |at: u32, lock: &Lock| {
                if record.kind == Kind::Extent && lock.end < size {
                    return true;
                }
                let holder = &self.holders[lock.holder];
                match holder.kind {
                    HolderKind::Remover => {
                        destroyed = true;
                        return true;
                    }
                    HolderKind::Local => return false,
                    HolderKind::Client | HolderKind::Server => {}
                }
                if lock.answered && asked.iter().all(|asked| asked.holder != holder.id) {
                    asked.push(self.callback(at));
                }
                record.kind == Kind::Extent && !lock.flags.contains(LockFlags::NO_EXPANSION)
            };
            if record.kind == Kind::Extent {
                tree::from_the_end(&self.locks, set.root, &mut visit);
            } else {
                tree::overlapping(&self.locks, set.root, part, &mut visit);
            }
        }
        if destroyed { Glimpse::Destroyed } else { Glimpse::Aborted(asked) }
    }
}
