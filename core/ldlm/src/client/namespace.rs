//! The locks of one import: a machine without the request layer. What a program asks, what replies
//! and times say goes in; orders for the request layer and events for the program are polled.
//!
//! `lock.rs` is one lock, `callback.rs` what the server wants of them, `replay.rs` what follows when
//! it has lost them, `cache.rs` which unused ones go.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lnet_types::Instant;
use lustre_wire::ldlm::{InodeBits, LockFlags, Policy};
use ptlrpc::{Bounds, Call, CallError, Estimate, Reply, Tunables};
use smallvec::SmallVec;

use super::ask::{Ask, GoneReason, HoldId, LockError, LockEvent, LockId, Share};
use super::cache::{Cache, CacheLimits};
use super::lock::{Conversion, HoldState, Lock, Stage};
use super::replay::Replay;
use super::wire::{self, CANCELS_MAX, EARLY_MAX, Said};
use crate::lookup::Lookup;
use crate::{Kind, Mode};

/// Most locks of one import.
pub const LOCKS_PER_IMPORT_MAX: usize = 1 << 20;

/// Results of an enqueue that are no errors (L-21).
mod status {
    pub(super) const ABORTED: i32 = 301;
    pub(super) const NO_LOCK_DATA: i32 = 303;
    pub(super) const WOULDBLOCK: i32 = 304;
}

/// Which call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ticket {
    Enqueue(LockId),
    /// Of this round of replays.
    Replay(LockId, u32),
    Cancel(u64),
    /// The conversion of this number.
    Convert(LockId, u32),
}

/// What the request layer is to do.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Call(Ticket, Call),
    /// Calls of replays of rounds before this one are to be taken back.
    DropReplays(u32),
    /// The import is held, or not (P-103).
    Hold(bool),
    /// The connection is to be made again.
    Fail,
    /// All locks have been repeated.
    Replayed,
}

/// A time that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A lock has waited for so long (L-37).
    Wait(LockId),
    /// The limit of a hold.
    Limit(HoldId),
}

#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) tunables: Tunables,
    pub(super) locks: Lookup<LockId, Lock>,
    /// Granted locks by resource.
    resources: Lookup<[u64; 4], SmallVec<[LockId; 2]>>,
    pub(super) holds: Lookup<HoldId, HoldState>,
    pub(super) cache: Cache,
    timers: BTreeSet<(Instant, Due)>,
    pub(super) orders: VecDeque<Order>,
    pub(super) events: VecDeque<LockEvent>,
    /// Locks that leave with the next cancel request, those that were called back first.
    pub(super) cancels: VecDeque<LockId>,
    batches: BTreeMap<u64, Vec<LockId>>,
    batch: u64,
    pub(super) replay: Option<Replay>,
    pub(super) round: u32,
    /// Conversions so far.
    conversions: u32,
    estimate: Estimate,
    held: bool,
    /// When it is due, as far as the list of all imports says.
    pub(super) listed: Option<Instant>,
}

impl Namespace {
    pub(super) fn new(tunables: Tunables, limits: CacheLimits) -> Self {
        Self {
            estimate: Estimate::new(tunables.ldlm_enqueue_min),
            tunables,
            locks: Lookup::default(),
            resources: Lookup::default(),
            holds: Lookup::default(),
            cache: Cache::new(limits),
            timers: BTreeSet::new(),
            orders: VecDeque::new(),
            events: VecDeque::new(),
            cancels: VecDeque::new(),
            batches: BTreeMap::new(),
            batch: 0,
            replay: None,
            round: 0,
            conversions: 0,
            held: false,
            listed: None,
        }
    }

    fn bounds(&self) -> Bounds {
        let Tunables { at_min, at_max, at_history, .. } = self.tunables;
        Bounds { min: at_min, max: at_max, history: at_history }
    }

    /// How long a lock is waited for until the connection is made again (L-37).
    pub(super) fn patience(&self) -> Duration {
        if self.tunables.at_max.is_zero() {
            return self.tunables.obd_timeout;
        }
        (self.estimate.get(&self.bounds()) * 3).max(self.tunables.ldlm_enqueue_min)
    }

    /// Asks for a lock: one that is there, or the server (L-36). `id` is the cookie of a new lock.
    ///
    /// # Errors
    /// What is asked for can't be, or there are too many locks.
    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        ask: &Ask,
        hold: HoldId,
        id: LockId,
    ) -> Result<(), LockError> {
        check(ask)?;
        let limit = ask.limit.map(|limit| now + limit);
        let (mode, policy) = (ask.mode, ask.policy);
        if let Some(found) = self.find(ask) {
            self.holds.insert(hold, HoldState { lock: found, mode, policy, limit: None });
            if let Some(lock) = self.locks.get_mut(&found) {
                lock.reused |= self.cache.remove(lock.used_at, found);
                lock.holds.push(hold);
            }
            self.granted(found, hold);
            return Ok(());
        }
        if self.locks.len() >= LOCKS_PER_IMPORT_MAX {
            return Err(LockError::TooMany(LOCKS_PER_IMPORT_MAX));
        }
        let early = self.early(now, ask);
        let lock = Lock::new(now, ask, hold);
        let desc = wire::desc(lock.kind, ask.resource, mode, None, policy.words());
        let call = wire::enqueue(ask.flags, desc, id.0, &early, &ask.beside, ask.lvb_max);
        self.locks.insert(id, lock);
        self.holds.insert(hold, HoldState { lock: id, mode, policy, limit });
        if let Some(limit) = limit {
            self.timers.insert((limit, Due::Limit(hold)));
        }
        self.orders.push_back(Order::Call(Ticket::Enqueue(id), call));
        Ok(())
    }

    /// A lock that is there and will do.
    fn find(&self, ask: &Ask) -> Option<LockId> {
        if ask.share == Share::Never {
            return None;
        }
        let there = self.resources.get(&ask.resource.words)?;
        let fits = |id: &&LockId| {
            let Some(lock) = self.locks.get(*id) else { return false };
            lock.serves(ask) && (ask.share == Share::Client || self.excludes_none(lock, ask))
        };
        there.iter().find(fits).copied()
    }

    /// Whether what is asked for is compatible with all holds of the lock.
    fn excludes_none(&self, lock: &Lock, ask: &Ask) -> bool {
        lock.holds
            .iter()
            .filter_map(|hold| self.holds.get(hold))
            .all(|other| other.mode.allows(ask.mode) || !wire::overlap(&other.policy, &ask.policy))
    }

    /// Server's cookies of unused locks that go along with a request (L-60): those that conflict with
    /// it, then those that are too many.
    fn early(&mut self, now: Instant, ask: &Ask) -> Vec<u64> {
        let there = self.resources.get(&ask.resource.words);
        let mut going: Vec<LockId> = there.into_iter().flatten().copied().collect();
        going.retain(|id| self.locks.get(id).is_some_and(|l| l.is_cached() && l.conflicts(ask)));
        // None of them is among those that are too many as well.
        for id in &going {
            let used = self.locks.get(id).map(|lock| lock.used_at);
            used.map(|used| self.cache.remove(used, *id));
        }
        let mut cookies = Vec::new();
        for id in going.into_iter().chain(self.surplus(now)) {
            match self.locks.get(&id) {
                // What is under it must be written back first: it goes by itself.
                Some(lock) if lock.writes_back || cookies.len() == EARLY_MAX => self.leave(id),
                Some(lock) => {
                    cookies.push(lock.remote);
                    self.gone(id, GoneReason::Dropped);
                }
                None => {}
            }
        }
        cookies
    }

    /// Unused locks that are too many, if any.
    fn surplus(&mut self, now: Instant) -> Vec<LockId> {
        self.cache.round(now)
    }

    /// Gives a hold back. The lock stays, with `keep`, until another client wants it or it is too old;
    /// else it goes with its last hold. A hold that was not granted is given up.
    pub(super) fn release(&mut self, now: Instant, hold: HoldId, keep: bool) {
        let Some(state) = self.holds.remove(&hold) else { return };
        if let Some(limit) = state.limit {
            self.timers.remove(&(limit, Due::Limit(hold)));
        }
        let id = state.lock;
        let Some(lock) = self.locks.get_mut(&id) else { return };
        lock.holds.retain(|other| *other != hold);
        lock.used_at = now;
        if !lock.holds.is_empty() {
            return;
        }
        match lock.stage {
            // The answer, or the end of the conversion, says what follows.
            Stage::Asked { .. } => {}
            Stage::Granted if lock.converting.is_some() => {}
            Stage::Granted if keep && lock.may_stay() => {
                let reused = lock.reused;
                self.cache.insert(now, id, reused);
            }
            Stage::Granted => self.leave(id),
            Stage::Blocked { .. } => self.send_cancel(id),
            Stage::Flushing | Stage::Leaving => {}
        }
    }

    /// A lock without holds goes, unless it is going already: what is under it first (L-44).
    pub(super) fn leave(&mut self, id: LockId) {
        let Some(lock) = self.locks.get_mut(&id) else { return };
        match lock.stage {
            Stage::Flushing | Stage::Leaving => return,
            Stage::Granted if lock.writes_back => {}
            _ => return self.send_cancel(id),
        }
        lock.stage = Stage::Flushing;
        let discard = lock.wanted.is_some_and(|wanted| wanted.discard);
        self.unindex(id);
        self.events.push_back(LockEvent::Flush { lock: id, discard });
    }

    /// What was under a lock is written back.
    pub(super) fn flushed(&mut self, id: LockId) {
        if self.locks.get(&id).is_some_and(|lock| lock.stage == Stage::Flushing) {
            self.send_cancel(id);
        }
    }

    /// The lock goes with the next cancel request (L-43).
    fn send_cancel(&mut self, id: LockId) {
        self.unindex(id);
        let Some(lock) = self.locks.get_mut(&id) else { return };
        let stage = core::mem::replace(&mut lock.stage, Stage::Leaving);
        let (called, alone) = (lock.wanted.is_some(), lock.goes_by_itself());
        self.stop_waiting(id, stage);
        if alone {
            self.gone(id, GoneReason::Released);
        } else if called {
            self.cancels.push_front(id);
        } else {
            self.cancels.push_back(id);
        }
    }

    /// A lock is not granted any more.
    fn unindex(&mut self, id: LockId) {
        let Some(lock) = self.locks.get(&id) else { return };
        self.cache.remove(lock.used_at, id);
        let words = lock.resource.words;
        if let Some(there) = self.resources.get_mut(&words) {
            there.retain(|other| *other != id);
            if there.is_empty() {
                self.resources.remove(&words);
            }
        }
    }

    fn stop_waiting(&mut self, id: LockId, stage: Stage) {
        if let Stage::Blocked { until: Some(until) } = stage {
            self.timers.remove(&(until, Due::Wait(id)));
        }
    }

    /// A lock is no more. Its holds that were granted are lost, the others have been refused.
    pub(super) fn gone(&mut self, id: LockId, reason: GoneReason) {
        self.unindex(id);
        let Some(lock) = self.locks.remove(&id) else { return };
        self.stop_waiting(id, lock.stage);
        for hold in &lock.holds {
            self.holds.remove(hold);
        }
        let holds = lock.holds.to_vec();
        self.events.push_back(LockEvent::Gone { lock: id, holds, reason });
    }

    /// A lock that was not granted will not be.
    pub(super) fn refuse(&mut self, id: LockId, error: LockError) {
        self.end(id, |hold| LockEvent::Refused { hold, error });
    }

    /// A lock that was not granted is no more.
    fn end(&mut self, id: LockId, event: impl Fn(HoldId) -> LockEvent) {
        let Some(lock) = self.locks.remove(&id) else { return };
        self.stop_waiting(id, lock.stage);
        for hold in lock.holds {
            self.drop_hold(hold);
            self.events.push_back(event(hold));
        }
    }

    fn drop_hold(&mut self, hold: HoldId) {
        if let Some(HoldState { limit: Some(limit), .. }) = self.holds.remove(&hold) {
            self.timers.remove(&(limit, Due::Limit(hold)));
        }
    }

    /// What the server has granted is not what was asked for: the holds are refused, the lock goes back.
    fn reject(&mut self, id: LockId, why: &'static str) {
        let Some(lock) = self.locks.get_mut(&id) else { return };
        let holds = core::mem::take(&mut lock.holds);
        let error = LockError::BadAnswer(why);
        for hold in holds {
            self.drop_hold(hold);
            self.events.push_back(LockEvent::Refused { hold, error });
        }
        self.send_cancel(id);
    }

    /// The lock is granted, and the server knows that this is known.
    pub(super) fn grant(&mut self, now: Instant, id: LockId) {
        let Some(lock) = self.locks.get_mut(&id) else { return };
        let stage = core::mem::replace(&mut lock.stage, Stage::Granted);
        let (words, holds, wanted) = (lock.resource.words, lock.holds.clone(), lock.wanted);
        let waited = now.saturating_since(lock.asked_at);
        if let Stage::Blocked { .. } = stage {
            let bounds = self.bounds();
            self.estimate.measure(now, waited, &bounds);
        }
        self.stop_waiting(id, stage);
        self.resources.get_or_insert_with(words, SmallVec::new).push(id);
        for hold in &holds {
            self.granted(id, *hold);
        }
        match wanted {
            _ if holds.is_empty() => self.leave(id),
            Some(wanted) => {
                let (holds, wanted) = (holds.to_vec(), wanted.desc);
                self.events.push_back(LockEvent::CalledBack { lock: id, holds, wanted });
            }
            None => {}
        }
    }

    fn granted(&mut self, id: LockId, hold: HoldId) {
        if let Some(state) = self.holds.get_mut(&hold)
            && let Some(limit) = state.limit.take()
        {
            self.timers.remove(&(limit, Due::Limit(hold)));
        }
        let Some(Lock { mode, policy, lvb, .. }) = self.locks.get(&id) else { return };
        let (mode, policy, lvb) = (*mode, *policy, lvb.clone());
        self.events.push_back(LockEvent::Granted { hold, lock: id, mode, policy, lvb });
    }

    /// A call has ended.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        ticket: Ticket,
        result: Result<&Reply, CallError>,
    ) {
        let said = result.map(Said::of);
        if let Ok(said) = &said {
            // What has fallen is looked at by the timer, which is due then.
            self.cache.volume(now, said.slv);
        }
        match ticket {
            Ticket::Enqueue(id) => self.answered(now, id, said),
            Ticket::Cancel(batch) => {
                // Whatever the end is: the server has cancelled them, has never heard of them, or has
                // dropped this client (L-43).
                for id in self.batches.remove(&batch).into_iter().flatten() {
                    self.gone(id, GoneReason::Released);
                }
            }
            Ticket::Convert(id, number) => self.converted(now, id, number, said),
            Ticket::Replay(id, round) => self.replayed(id, round, said),
        }
    }

    /// The answer to an enqueue (L-36).
    fn answered(&mut self, now: Instant, id: LockId, said: Result<Said, CallError>) {
        let Some(lock) = self.locks.get_mut(&id) else { return };
        let Stage::Asked { granted } = lock.stage else { return };
        let said = match said {
            Ok(said) => said,
            Err(e) if granted => {
                // It was granted, and the answer is lost for good: the lock goes back.
                let holds = core::mem::take(&mut lock.holds);
                for hold in holds {
                    self.drop_hold(hold);
                    self.events.push_back(LockEvent::Refused { hold, error: e.into() });
                }
                return self.send_cancel(id);
            }
            Err(e) => return self.refuse(id, e.into()),
        };
        match said.status {
            status::ABORTED => {
                let results = said.reply.map_or((0, 0), |r| (r.policy_res1, r.policy_res2));
                return self.end(id, |hold| {
                    let lvb = said.lvb.clone();
                    LockEvent::Aborted { hold, results, lvb }
                });
            }
            status::WOULDBLOCK => return self.refuse(id, LockError::Conflict),
            status::NO_LOCK_DATA => {
                return self.refuse(id, LockError::BadAnswer("no lock is there"));
            }
            _ => {}
        }
        let Some(reply) = said.reply.filter(|reply| reply.handle != 0) else {
            return self.refuse(id, LockError::BadAnswer("no lock in it"));
        };
        lock.remote = reply.handle;
        lock.take_flags(reply.flags, reply.desc);
        let blocked = LockFlags::BLOCK_GRANTED | LockFlags::BLOCK_WAIT;
        let waits = reply.flags.intersects(blocked);
        let changed = reply.flags.contains(LockFlags::LOCK_CHANGED);
        if !granted {
            if let Err(why) = lock.take_lvb(&said.lvb) {
                return self.reject(id, why);
            }
            if !waits && let Err(why) = lock.take_desc(&reply.desc, changed) {
                return self.reject(id, why);
            }
        }
        if granted || !waits {
            return self.grant(now, id);
        }
        if lock.holds.is_empty() {
            // Given up meanwhile.
            return self.send_cancel(id);
        }
        let timed = !lock.flags.contains(LockFlags::NO_TIMEOUT);
        let until = timed.then(|| now + self.patience());
        if let Some(lock) = self.locks.get_mut(&id) {
            lock.stage = Stage::Blocked { until };
        }
        if let Some(until) = until {
            self.timers.insert((until, Due::Wait(id)));
        }
    }

    /// Gives bits of a lock back, and keeps the others (L-45).
    ///
    /// # Errors
    /// The lock is not granted or has no bits; none are kept, or others than it has.
    pub(super) fn convert(&mut self, id: LockId, keep: InodeBits) -> Result<(), LockError> {
        let lock = self.locks.get_mut(&id).ok_or(LockError::Invalid("no such lock"))?;
        let Policy::Ibits { bits, .. } = lock.policy else {
            return Err(LockError::Invalid("bits to keep: the lock has none"));
        };
        if lock.stage != Stage::Granted || lock.converting.is_some() {
            return Err(LockError::Invalid("lock to be converted: must be granted"));
        }
        if keep.is_empty() || !bits.contains(keep) {
            return Err(LockError::Invalid("bits to keep: must be some that the lock has"));
        }
        // What was wanted is given; what is wanted from now on is another matter.
        lock.wanted = None;
        let used = lock.used_at;
        self.cache.remove(used, id);
        self.ask_to_convert(id, keep);
        Ok(())
    }

    /// Asks for a conversion, by the name that the lock has at the server now.
    pub(super) fn ask_to_convert(&mut self, id: LockId, keep: InodeBits) {
        let Some(lock) = self.locks.get_mut(&id) else { return };
        let Policy::Ibits { try_bits, gid, initiator, .. } = lock.policy else { return };
        self.conversions += 1;
        let number = self.conversions;
        lock.converting = Some(Conversion { number, keep });
        let kept = Policy::Ibits { bits: keep, try_bits, gid, initiator };
        let desc = wire::desc(lock.kind, lock.resource, lock.mode, Some(lock.mode), kept.words());
        let call = wire::convert(desc, lock.remote);
        self.orders.push_back(Order::Call(Ticket::Convert(id, number), call));
    }

    fn converted(&mut self, now: Instant, id: LockId, number: u32, said: Result<Said, CallError>) {
        let Some(lock) = self.locks.get_mut(&id) else { return };
        // Of one that was asked for again, by the lock's new name, the answer is of no interest.
        if lock.converting.take_if(|conversion| conversion.number == number).is_none() {
            return;
        }
        let result = match said {
            Ok(Said { status: status::NO_LOCK_DATA, .. }) => {
                return self.gone(id, GoneReason::Lost);
            }
            Ok(Said { reply: Some(reply), .. }) => match (reply.desc.policy(), lock.policy) {
                (Some(left @ Policy::Ibits { bits, .. }), Policy::Ibits { bits: old, .. })
                    if old.contains(bits) && !bits.is_empty() =>
                {
                    lock.policy = left;
                    Ok(left)
                }
                _ => Err(LockError::BadAnswer("bits that are left are not those of the lock")),
            },
            Ok(_) => Err(LockError::BadAnswer("no lock in it")),
            Err(e) => Err(e.into()),
        };
        let (unused, stays) = (lock.holds.is_empty(), lock.may_stay() && result.is_ok());
        let reused = lock.reused;
        lock.used_at = now;
        self.events.push_back(LockEvent::Converted { lock: id, result });
        match (unused, stays) {
            (true, true) => self.cache.insert(now, id, reused),
            (true, false) => self.leave(id),
            (false, _) => {}
        }
    }

    /// The server has dropped this client, or its connection has ended: nothing is sent of its locks
    /// (L-63).
    pub(super) fn lost(&mut self) {
        self.orders.clear();
        self.cancels.clear();
        self.batches.clear();
        self.end_replay();
        for id in self.locks.sorted_keys() {
            match self.locks.get(&id).map(|lock| lock.stage) {
                Some(Stage::Asked { .. } | Stage::Blocked { .. }) => {
                    self.refuse(id, LockError::Evicted);
                }
                Some(_) => self.gone(id, GoneReason::Lost),
                None => {}
            }
        }
        self.cache.clear();
    }

    /// When [`Namespace::handle_timeout`] is wanted.
    pub(super) fn due(&self) -> Option<Instant> {
        let first = self.timers.first().map(|(at, _)| *at);
        [first, self.cache.due()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, due)) = self.timers.first().filter(|(at, _)| *at <= now).copied() {
            self.timers.pop_first();
            match due {
                Due::Wait(id) => {
                    let lock = self.locks.get_mut(&id);
                    if let Some(Lock { stage: Stage::Blocked { until }, .. }) = lock {
                        *until = None;
                        self.orders.push_back(Order::Fail);
                    }
                }
                Due::Limit(hold) => {
                    let error = LockError::LimitPassed;
                    self.events.push_back(LockEvent::Refused { hold, error });
                    self.release(now, hold, false);
                }
            }
        }
        if self.cache.due().is_some_and(|due| due <= now) {
            for id in self.surplus(now) {
                self.leave(id);
            }
        }
    }

    /// What the request layer is to do next.
    pub(super) fn poll_order(&mut self, now: Instant) -> Option<Order> {
        let wanted = !self.locks.is_empty();
        if wanted != self.held {
            self.held = wanted;
            return Some(Order::Hold(wanted));
        }
        if let Some(order) = self.orders.pop_front() {
            return Some(order);
        }
        // While locks are repeated their cookies change.
        if self.cancels.is_empty() || self.replay.is_some() {
            return None;
        }
        for id in self.surplus(now) {
            self.leave(id);
        }
        let count = self.cancels.len().min(CANCELS_MAX);
        let batch: Vec<LockId> = self.cancels.drain(..count).collect();
        let cookies: Vec<u64> =
            batch.iter().filter_map(|id| self.locks.get(id)).map(|lock| lock.remote).collect();
        self.batch += 1;
        self.batches.insert(self.batch, batch);
        Some(Order::Call(Ticket::Cancel(self.batch), wire::cancel(&cookies)))
    }
}

impl Lock {
    /// Granted, and in no use.
    fn is_cached(&self) -> bool {
        self.stage == Stage::Granted && self.holds.is_empty() && self.converting.is_none()
    }
}

/// Whether it can be asked for.
fn check(ask: &Ask) -> Result<(), LockError> {
    let wrong = match ask.policy {
        Policy::Extent { start, end, .. } | Policy::Flock { start, end, .. } if end < start => {
            Some("range: the end must not be before the start")
        }
        Policy::Ibits { bits, .. } if bits.is_empty() => Some("inode bits: must be some"),
        _ if !Ask::FLAGS.contains(ask.flags) => Some("flags: expected those that programs set"),
        _ if ask.mode == Mode::Group && !matches!(ask.kind(), Kind::Extent | Kind::Ibits) => {
            Some("mode GROUP: requires an extent or inode bits")
        }
        _ => None,
    };
    wrong.map_or(Ok(()), |what| Err(LockError::Invalid(what)))
}
