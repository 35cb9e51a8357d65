//! Callbacks that are not under way yet: a round has so many at a time (L-23), and so has the request layer for
//! each client. The timers of their locks run already, and end for none of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ptlrpc::Rpc;

use super::LockServer;
use crate::Cookie;
use crate::space::Callback;

/// Blocking callbacks of one round that are under way at a time (L-23).
const CALLBACKS_MAX: usize = 1024;

/// A callback that the request layer did not take, since as many as it takes are under way to the client.
#[derive(Clone, Copy, Debug)]
enum Refused {
    Block { callback: Callback, because: Cookie },
    Complete(Callback),
}

#[derive(Debug, Default)]
pub(super) struct Delayed {
    /// By the lock whose enqueue waits for them.
    rounds: BTreeMap<Cookie, VecDeque<Callback>>,
    refused: VecDeque<Refused>,
    /// Locks whose holders have not been asked yet.
    locks: BTreeSet<Cookie>,
}

impl Delayed {
    /// Whether the round of a lock has callbacks that wait for others of it.
    pub(super) fn has(&self, because: Cookie) -> bool {
        self.rounds.contains_key(&because)
    }

    /// Whether the holder of a lock has not been asked for it yet.
    pub(super) fn is_unasked(&self, lock: Cookie) -> bool {
        self.locks.contains(&lock)
    }

    fn pop(&mut self, because: Cookie) -> Option<Callback> {
        let queue = self.rounds.get_mut(&because)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.rounds.remove(&because);
        }
        next
    }
}

impl LockServer {
    /// Whether a round has as many callbacks under way as it may have.
    pub(super) fn is_full(&self, because: Cookie) -> bool {
        self.rounds.get(&because).is_some_and(|round| round.open >= CALLBACKS_MAX)
    }

    /// A callback waits for others of its round.
    pub(super) fn delay(&mut self, callback: &Callback, because: Cookie) {
        self.delayed.locks.insert(callback.lock);
        self.delayed.rounds.entry(because).or_default().push_back(*callback);
    }

    /// The request layer takes no callback to the client now. Its round counts it as under way.
    pub(super) fn delay_block(&mut self, callback: &Callback, because: Cookie) {
        self.delayed.locks.insert(callback.lock);
        self.delayed.refused.push_back(Refused::Block { callback: *callback, because });
        if let Some(round) = self.rounds.get_mut(&because) {
            round.open += 1;
        }
    }

    /// The same of the announcement of a grant.
    pub(super) fn delay_completion(&mut self, callback: &Callback) {
        self.delayed.refused.push_back(Refused::Complete(*callback));
    }

    /// A callback of a round has ended: others of it go.
    pub(super) fn send_delayed(&mut self, because: Cookie, rpc: &mut Rpc<'_, '_>) {
        while !self.is_full(because) {
            let Some(callback) = self.delayed.pop(because) else { return };
            self.block_late(&callback, because, rpc);
        }
    }

    /// A callback has ended: one goes that the request layer did not take before.
    pub(super) fn send_refused(&mut self, rpc: &mut Rpc<'_, '_>) {
        while let Some(refused) = self.delayed.refused.pop_front() {
            match refused {
                Refused::Complete(callback) => return self.complete(&callback, rpc),
                Refused::Block { callback, because } => {
                    if let Some(round) = self.rounds.get_mut(&because) {
                        round.open = round.open.saturating_sub(1);
                        self.over.push_back(because);
                    }
                    if self.block_late(&callback, because, rpc) {
                        return;
                    }
                }
            }
        }
    }

    /// Asks the holder of a lock for it, unless that has been given back meanwhile: its time begins now. Whether
    /// it was to be asked.
    fn block_late(&mut self, callback: &Callback, because: Cookie, rpc: &mut Rpc<'_, '_>) -> bool {
        self.delayed.locks.remove(&callback.lock);
        let wanted = self.space.lock(callback.lock).is_some_and(|lock| lock.called_back);
        if wanted {
            self.space.callback_resent(rpc.now(), callback.lock);
            self.block(callback, because, rpc);
        }
        wanted
    }
}
