//! Locks that are repeated to a server which has lost them (L-61, L-62).

use std::collections::VecDeque;

use lustre_wire::ldlm::LockFlags;
use ptlrpc::CallError;

use super::ask::{GoneReason, LockId};
use super::lock::Stage;
use super::namespace::{Namespace, Order, Ticket};
use super::wire::{self, Said};

/// Most replays under way at a time.
const IN_FLIGHT: usize = 8;

/// A round of replays.
#[derive(Debug)]
pub(super) struct Replay {
    queue: VecDeque<LockId>,
    under_way: usize,
}

impl Namespace {
    /// The import stands where locks are repeated. A round that was under way is void.
    pub(super) fn replay(&mut self) {
        self.end_replay();
        // Those that were about to leave are gone with the server's last life.
        for id in core::mem::take(&mut self.cancels) {
            self.gone(id, GoneReason::Released);
        }
        let mut queue = VecDeque::new();
        for id in self.locks.sorted_keys() {
            let Some(lock) = self.locks.get(&id) else { continue };
            let unused = lock.holds.is_empty();
            match lock.stage {
                Stage::Leaving => {}
                // Its request goes again by itself. A replay beside it would make a second lock if the
                // request has never been sent, and is no copy for the server.
                Stage::Asked { granted: false } => {}
                Stage::Granted if unused && !lock.writes_back && lock.converting.is_none() => {
                    self.gone(id, GoneReason::Dropped);
                }
                Stage::Granted if lock.flags.contains(LockFlags::CANCEL_ON_BLOCK) => {
                    self.gone(id, GoneReason::Lost);
                }
                _ => queue.push_back(id),
            }
        }
        self.replay = Some(Replay { queue, under_way: 0 });
        self.replay_more();
    }

    /// The replays under way are of no interest any more.
    pub(super) fn end_replay(&mut self) {
        self.round += 1;
        if self.replay.take().is_some() {
            self.orders.push_back(Order::DropReplays(self.round));
        }
    }

    fn replay_more(&mut self) {
        while let Some(replay) = &mut self.replay
            && replay.under_way < IN_FLIGHT
        {
            let Some(id) = replay.queue.pop_front() else {
                if replay.under_way == 0 {
                    self.replay = None;
                    self.orders.push_back(Order::Replayed);
                }
                return;
            };
            let Some(lock) = self.locks.get(&id).filter(|lock| lock.stage != Stage::Leaving) else {
                continue;
            };
            replay.under_way += 1;
            let waits = matches!(lock.stage, Stage::Blocked { .. });
            let state = if waits { LockFlags::BLOCK_WAIT } else { LockFlags::BLOCK_GRANTED };
            let flags = LockFlags::REPLAY | state | lock.flags & wire::REQUEST_FLAGS;
            let mode = (!waits).then_some(lock.mode);
            let desc = wire::desc(lock.kind, lock.resource, lock.mode, mode, lock.policy.words());
            let call = wire::enqueue(flags, desc, id.0, &[], &lock.beside, lock.lvb_max);
            self.orders.push_back(Order::Call(Ticket::Replay(id, self.round), call));
        }
    }

    /// A replay has ended: the lock has another name at the server, and nothing else has changed
    /// (L-62). A failure makes the connection anew, and with it the round.
    pub(super) fn replayed(&mut self, id: LockId, round: u32, said: Result<Said, CallError>) {
        let Some(replay) = self.replay.as_mut().filter(|_| round == self.round) else { return };
        replay.under_way = replay.under_way.saturating_sub(1);
        let remote = said.ok().filter(|said| said.status == 0).and_then(|said| said.reply);
        let Some(remote) = remote.map(|reply| reply.handle).filter(|remote| *remote != 0) else {
            self.end_replay();
            self.orders.push_back(Order::Fail);
            return;
        };
        if let Some(lock) = self.locks.get_mut(&id) {
            lock.remote = remote;
            // It was repeated as it was, and the request for less of it names what is no more.
            if let Some(conversion) = lock.converting {
                self.ask_to_convert(id, conversion.keep);
            }
        }
        self.replay_more();
    }
}
