//! A target of a visit: the connection to it, and calls to it.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use lnet_types::Nid;
use lustre_wire::{ConnectData, Layout};
use ptlrpc::{Call, CallError, CallId, Reply};

use super::fids::Fids;
use super::{End, Moved, VisitError, Wire};

/// A target, and the connection to it.
#[derive(Debug)]
pub(crate) struct Remote<L> {
    pub(super) uuid: String,
    pub(super) nids: Vec<Nid>,
    /// `None` for a target that is not active.
    pub(super) link: Option<L>,
    /// It was not reached once, and is not tried again.
    unreachable: AtomicBool,
    /// It has answered a call.
    asked: AtomicBool,
    /// FIDs for new files, of a metadata target.
    pub(super) fids: Fids,
    unwanted: Mutex<Unwanted>,
}

/// Most locks that one request gives back.
const BACK_MAX: usize = 64;

/// Locks that came with answers, and that the next request gives back.
#[derive(Debug, Default)]
struct Unwanted {
    handles: Vec<u64>,
    /// A caller makes these requests for all.
    carried: bool,
}

/// The turn of one caller to give back the locks of all.
#[derive(Debug)]
pub(super) struct Carrier<'a> {
    unwanted: &'a Mutex<Unwanted>,
    over: bool,
}

impl Carrier<'_> {
    /// Locks to be given back by one request; `None`: the turn is over.
    pub(super) fn next(&mut self) -> Option<Vec<u64>> {
        let mut unwanted = self.unwanted.lock().unwrap_or_else(PoisonError::into_inner);
        let many = unwanted.handles.len().min(BACK_MAX);
        let next: Vec<u64> = unwanted.handles.drain(..many).collect();
        self.over = next.is_empty();
        unwanted.carried = !self.over;
        unwanted.carried.then_some(next)
    }
}

/// A caller that is gone in the middle of its turn leaves the rest to the next one.
impl Drop for Carrier<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.unwanted.lock().unwrap_or_else(PoisonError::into_inner).carried = false;
        }
    }
}

/// An answer to a call.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    /// Bulk data that came, with room behind it, or that went.
    pub(super) bytes: Vec<u8>,
    pub(super) call: Option<CallId>,
}

impl Answer {
    /// The structure in a buffer of the reply.
    pub(super) fn get<T: Layout>(&self, index: usize) -> Option<T> {
        self.reply.msg().ok()?.get(index).ok()
    }
}

impl<L> Remote<L> {
    pub(super) fn new(uuid: String, nids: Vec<Nid>, link: Option<L>, fids: Fids) -> Self {
        let (unreachable, asked) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { uuid, nids, link, unreachable, asked, fids, unwanted: Mutex::default() }
    }

    /// A lock is to be given back. `None`: a caller that does so already takes it along.
    pub(super) fn unwanted(&self, handle: u64) -> Option<Carrier<'_>> {
        let mut unwanted = self.unwanted.lock().unwrap_or_else(PoisonError::into_inner);
        unwanted.handles.push(handle);
        let first = !unwanted.carried;
        unwanted.carried = true;
        first.then(|| Carrier { unwanted: &self.unwanted, over: false })
    }

    pub(super) fn bad(&self, what: &'static str) -> VisitError {
        VisitError::BadReply { target: self.uuid.clone(), what }
    }

    fn lost(&self) -> VisitError {
        VisitError::Unreachable { target: self.uuid.clone(), nids: self.nids.clone() }
    }

    /// Whether it was asked something, and has answered.
    pub(super) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// What the target has granted, as far as it has answered.
    pub(super) async fn terms<W: Wire<Link = L>>(&self, wire: &W) -> ConnectData {
        match &self.link {
            Some(link) => wire.terms(link).await,
            None => ConnectData::default(),
        }
    }

    /// It is to be asked soon: one that was not asked before connects now.
    pub(super) fn will_be_asked<W: Wire<Link = L>>(&self, wire: &W) {
        if let Some(link) = &self.link
            && !self.was_asked()
            && !self.unreachable.load(Ordering::Relaxed)
        {
            wire.connect(link);
        }
    }

    /// A call without bulk data.
    pub(super) async fn ask<W: Wire<Link = L>>(
        &self,
        wire: &W,
        call: Call,
    ) -> Result<Answer, VisitError> {
        self.ask_with(wire, call, Moved::Nothing).await.map_err(|(e, _)| e)
    }

    /// A call. A target that was not reached once is not tried again: each target costs a visit the time
    /// of one call at most. With an error, what was to be written comes back.
    pub(super) async fn ask_with<W: Wire<Link = L>>(
        &self,
        wire: &W,
        call: Call,
        moved: Moved,
    ) -> Result<Answer, (VisitError, Vec<u8>)> {
        let back = |moved| match moved {
            Moved::Write(bytes) => bytes,
            Moved::Nothing | Moved::Read(_) => Vec::new(),
        };
        let target = || self.uuid.clone();
        let Some(link) = &self.link else {
            return Err((VisitError::Inactive { target: target() }, back(moved)));
        };
        if self.unreachable.load(Ordering::Relaxed) {
            return Err((self.lost(), back(moved)));
        }
        let End { result, bytes, call } = wire.call(link, call, moved).await;
        let error = match result {
            Ok(reply) => {
                self.asked.store(true, Ordering::Relaxed);
                return Ok(Answer { reply, bytes, call });
            }
            Err(CallError::LimitPassed) => {
                self.unreachable.store(true, Ordering::Relaxed);
                self.lost()
            }
            Err(CallError::Refused(errno)) => VisitError::Refused { target: target(), errno },
            Err(error) => VisitError::Call { target: target(), error },
        };
        Err((error, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote() -> Remote<()> {
        Remote::new("lfs-MDT0000_UUID".to_owned(), Vec::new(), Some(()), Fids::default())
    }

    #[test]
    fn locks_that_come_while_others_are_given_back_go_with_the_next_request() {
        let remote = remote();
        let mut turn = remote.unwanted(1).expect("nothing is under way");
        assert!(remote.unwanted(2).is_none());
        assert_eq!(turn.next(), Some(vec![1, 2]));
        assert!(remote.unwanted(3).is_none());
        assert_eq!(turn.next(), Some(vec![3]));
        assert_eq!(turn.next(), None);
        let mut other = remote.unwanted(4).expect("the turn is over");
        drop(turn);
        assert!(remote.unwanted(5).is_none(), "the turn of another one has ended this one");
        assert_eq!(other.next(), Some(vec![4, 5]));
    }

    #[test]
    fn caller_that_is_gone_leaves_its_locks_to_the_next_one() {
        let remote = remote();
        drop(remote.unwanted(1));
        let mut turn = remote.unwanted(2).expect("nothing is under way");
        assert_eq!(turn.next(), Some(vec![1, 2]));
    }

    #[test]
    fn request_gives_back_so_many_locks_and_no_more() {
        let remote = remote();
        let mut turn = remote.unwanted(0).expect("nothing is under way");
        for handle in 1..=BACK_MAX as u64 {
            assert!(remote.unwanted(handle).is_none());
        }
        assert_eq!(turn.next().map(|handles| handles.len()), Some(BACK_MAX));
        assert_eq!(turn.next(), Some(vec![BACK_MAX as u64]));
    }
}
