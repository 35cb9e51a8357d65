//! The steps of an enqueue (L-22): before the lock machine and behind it.

use lnet_types::Errno;
use lustre_wire::ldlm::{Intent, LockFlags, LockReply};
use lustre_wire::{BodyFlags, Buffers, ConnectFlags, ConnectFlags2};
use ptlrpc::{Answer, Rpc, Served};

use super::request::{Request, early, handle};
use super::{LockServer, Round, export, holder};
use crate::space::{Ask, HolderId, State, Value};
use crate::{Cookie, Refusal};

impl LockServer {
    pub(super) fn enqueue(
        &mut self,
        served: &Served,
        request: &Request<'_>,
        value: Result<Option<Value>, Errno>,
        rpc: &mut Rpc<'_, '_>,
    ) {
        let client = served.export;
        let Some(granted) = rpc.granted(client) else {
            return rpc.refuse(served.id, Errno::ENOTCONN);
        };
        self.stats.enqueues += 1;
        self.settle(client, rpc);
        // 1. What is given back beside counts for no estimate (L-42). If it is the last lock of the resource,
        // the value goes with it that the new lock needs.
        let given_back = early(&request.lock);
        let kept = match given_back.is_empty() {
            true => None,
            false => self.space.value(&request.lock.desc.resource).cloned(),
        };
        self.take_back(client, &given_back, false, rpc);
        let replay = request.lock.flags.contains(LockFlags::REPLAY);
        let repeats = served.body.flags.contains(BodyFlags::REQ_REPLAY_DONE);
        // Only a target that recovers grants a lock as the client describes it (L-25).
        if replay && !(self.replaying && repeats) {
            return rpc.refuse(served.id, Errno::EPROTO);
        }
        let ask = Ask {
            client_cookie: handle(&request.lock, 0),
            flags: request.lock.flags,
            desc: request.lock.desc,
            resent: served.body.flags.contains(BodyFlags::RESENT),
        };
        let value = match value {
            Ok(value) => value.or(kept),
            Err(_) if replay => None,
            Err(errno) => return rpc.refuse(served.id, errno),
        };
        let short = !granted.flags.contains(ConnectFlags::LVB_TYPE);
        match request.intent {
            None => {}
            Some(Intent::GLIMPSE) if self.values.are_objects() => {
                return self.glimpse(served, &ask, value, short, rpc);
            }
            Some(_) => return rpc.refuse(served.id, Errno::EOPNOTSUPP),
        }
        let made = match self.space.enqueue(rpc.now(), holder(client), &ask) {
            Ok(made) => made,
            Err(refusal) => return self.refused(served, refusal, rpc),
        };
        self.stats.resent += u64::from(made.found);
        if made.wants_value
            && !replay
            && let Some(value) = value
        {
            self.space.set_value(&ask.desc.resource, value);
        }
        let round = Round { served: served.id, open: 0, replay, glimpse: false, short };
        self.begin_round(made.lock, round, rpc);
    }

    /// A request whose lock is there: its reply leaves when the callbacks of its round have ended.
    pub(super) fn begin_round(&mut self, lock: Cookie, round: Round, rpc: &mut Rpc<'_, '_>) {
        if let Some(before) = self.rounds.get_mut(&lock) {
            // Another request for the same lock: its client has given up the one before.
            rpc.decline(core::mem::replace(&mut before.served, round.served));
            return;
        }
        self.rounds.insert(lock, round);
        // The callbacks of the round count themselves before it is seen as over.
        self.over.push_back(lock);
    }

    pub(super) fn refused(&mut self, served: &Served, refusal: Refusal, rpc: &mut Rpc<'_, '_>) {
        self.stats.refused += 1;
        match refusal.status() {
            status if status < 0 => rpc.refuse(served.id, Errno(status.saturating_neg())),
            status => rpc.reply(served.id, Answer { status, ..Answer::default() }),
        }
    }

    /// Of contention a client that has not agreed on it hears nothing (L-31).
    pub(super) fn mask_contention(flags: &mut LockFlags, client: HolderId, rpc: &Rpc<'_, '_>) {
        if flags.contains(LockFlags::CONTENTION) {
            let granted = rpc.granted(export(client)).unwrap_or_default();
            let hears = granted.flags2.contains(ConnectFlags2::LOCK_CONTENTION);
            flags.set(LockFlags::CONTENTION, hears);
        }
    }

    /// Steps 10 to 13, when no callback of the round is open.
    pub(super) fn answer(&mut self, lock: Cookie, rpc: &mut Rpc<'_, '_>) {
        if self.rounds.get(&lock).is_none_or(|round| round.open > 0) || self.delayed.has(lock) {
            return;
        }
        let Some(round) = self.rounds.remove(&lock) else { return };
        let Some(answer) = self.space.answer(rpc.now(), lock) else {
            // Its client is gone, or has no such lock.
            return rpc.refuse(round.served, Errno::ESTALE);
        };
        match answer.state {
            State::Granted => self.stats.granted += 1,
            State::Waiting => self.stats.waited += 1,
        }
        let mut flags = answer.flags;
        Self::mask_contention(&mut flags, answer.holder, rpc);
        if round.glimpse {
            // L-35.1: that it is a lock is what has changed.
            flags |= LockFlags::LOCK_CHANGED | LockFlags::HAS_INTENT;
        }
        let reply =
            LockReply { flags, desc: answer.desc, handle: answer.lock.0, ..LockReply::default() };
        let mut buffers = Buffers::new().layout(&reply);
        if !round.replay {
            let granted = answer.state == State::Granted;
            let held = self.space.value(&answer.desc.resource);
            buffers.push(self.values.bytes(lock, &answer.desc, granted, held, round.short));
        }
        self.tidy_values();
        rpc.reply(round.served, Answer { buffers, ..Answer::default() });
    }
}
