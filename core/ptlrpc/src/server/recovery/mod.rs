//! The recovery of a target after its start, as a pure machine (P-145 … P-153).
//!
//! ```text
//!            all back or gone        all closed, none queued       all closed, none queued
//!  Waiting ──────────────► Requests ──────────────► Locks ──────────────────► Done
//!     └───────────────────────┴────────────────────────┴── no more time ────► Aborted
//! ```
//!
//! Facts go in by methods, orders come out of [`Recovery::next`] until there is none. The caller
//! is `server/recover.rs`; times are in `window.rs`, lines of logs in `change.rs`.

mod change;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeMap, VecDeque};

use core::time::Duration;

use lnet_types::{Errno, Instant};
use lustre_wire::opcode::{Effect, InRecovery};
use lustre_wire::{Body, BodyFlags, Opcode};

use super::target::next_epoch;
use crate::table::{ExportId, ServedId};
use crate::tunables::Tunables;

pub use change::{RecoveryChange, RecoveryOutcome};
pub(crate) use window::{floor_of, prolong_time};

use window::{Expiry, Window};

/// A client can't have seen a transaction so many starts ahead of what is committed.
const EPOCHS_AHEAD: u64 = 1 << 16;

/// Where a recovery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryStage {
    /// Clients are missing; what arrives is queued.
    Waiting,
    /// Requests are executed again.
    Requests,
    /// Locks are taken again.
    Locks,
    /// It is over.
    Done(RecoveryOutcome),
    /// It was given up.
    Aborted(RecoveryOutcome),
}

/// A client that the target knew at its start, and that is not gone.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    connected: bool,
    /// It has repeated all its requests.
    requests_done: bool,
    /// It has repeated all its locks.
    locks_done: bool,
    /// What it repeats did not fit to what the target has (P-152).
    version_failed: bool,
    /// Its requests in the queue.
    requests: usize,
    /// Its locks in the queue.
    locks: usize,
}

/// How many clients have yet to do what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    absent: usize,
    /// Repeating requests.
    replaying: usize,
    /// Repeating requests, with none in the queue: the next one may have any transaction.
    idle: usize,
    locking: usize,
}

impl Counts {
    fn of(member: &Member) -> Self {
        Self {
            absent: usize::from(!member.connected),
            replaying: usize::from(!member.requests_done),
            idle: usize::from(!member.requests_done && member.requests == 0),
            locking: usize::from(!member.locks_done),
        }
    }

    fn change(&mut self, old: Self, new: Self) {
        for (count, old, new) in [
            (&mut self.absent, old.absent, new.absent),
            (&mut self.replaying, old.replaying, new.replaying),
            (&mut self.idle, old.idle, new.idle),
            (&mut self.locking, old.locking, new.locking),
        ] {
            *count = (*count + new).saturating_sub(old);
        }
    }
}

/// What becomes of a request (P-150).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is served as always.
    AtOnce,
    Refuse(Errno),
    /// Another one has its place.
    Drop,
    /// It waits for its turn.
    Queue(Place),
}

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A change of this transaction.
    Request(u64),
    Lock,
    /// The ping that is answered when all is over.
    Final,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// This request's turn has come; [`Recovery::ended`] says how it went.
    Run(ServedId),
    /// A client did not come back in time, or does not get on.
    Evict(ExportId),
    /// A client has repeated what does not fit.
    EvictUnfit(ExportId),
    /// The answer to a final ping.
    Answer(ServedId),
    Report(RecoveryChange),
}

#[derive(Debug)]
pub(crate) struct Recovery {
    stage: RecoveryStage,
    window: Window,
    members: BTreeMap<ExportId, Member>,
    counts: Counts,
    /// Clients that were known at the start.
    clients: usize,
    evicted: usize,
    replayed: u64,
    /// The transaction that is expected next.
    next: u64,
    requests: BTreeMap<u64, (ExportId, ServedId)>,
    locks: VecDeque<(ExportId, ServedId)>,
    finals: BTreeMap<ExportId, ServedId>,
    running: Option<(ExportId, ServedId)>,
    orders: VecDeque<Order>,
}

impl Recovery {
    /// One of a target that has committed up to `last`, and knew these clients.
    pub(crate) fn new(tunables: &Tunables, members: &[ExportId], last: u64) -> Self {
        let mut recovery = Self {
            stage: RecoveryStage::Waiting,
            window: Window::new(tunables),
            members: BTreeMap::new(),
            counts: Counts::default(),
            clients: members.len(),
            evicted: 0,
            replayed: 0,
            next: last.saturating_add(1),
            requests: BTreeMap::new(),
            locks: VecDeque::new(),
            finals: BTreeMap::new(),
            running: None,
            orders: VecDeque::new(),
        };
        for member in members {
            let fresh = Member::default();
            recovery.counts.change(Counts::default(), Counts::of(&fresh));
            recovery.members.insert(*member, fresh);
        }
        recovery
    }

    pub(crate) fn stage(&self) -> RecoveryStage {
        self.stage
    }

    /// Whether the target is in use, with or without all of its clients.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, RecoveryStage::Done(_) | RecoveryStage::Aborted(_))
    }

    /// When [`Recovery::expire`] is wanted.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.window.due().filter(|_| !self.is_over())
    }

    /// How long it waits at first, and at most.
    pub(crate) fn window(&self) -> (Duration, Duration) {
        (self.window.span(), self.window.hard())
    }

    /// What is left of the window; `None` before it has begun.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        self.due().map(|_| self.window.left(now))
    }

    /// How long ago the first client came back; zero before.
    pub(crate) fn since(&self, now: Instant) -> Duration {
        self.window.elapsed(now)
    }

    /// Clients that have not come back.
    pub(crate) fn missing(&self) -> impl Iterator<Item = ExportId> + '_ {
        self.members.iter().filter(|(_, member)| !member.connected).map(|(id, _)| *id)
    }

    /// Clients that were known, of these connected now, and gone.
    pub(crate) fn clients(&self) -> (usize, usize, usize) {
        (self.clients, self.members.len() - self.counts.absent, self.evicted)
    }

    fn change(&mut self, export: ExportId, f: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members.get_mut(&export) {
            let old = Counts::of(member);
            f(member);
            self.counts.change(old, Counts::of(member));
        }
    }

    /// A known client has connected.
    pub(crate) fn connected(&mut self, export: ExportId) {
        self.change(export, |member| member.connected = true);
    }

    /// A client wants to connect, known or not: the time of the others runs (P-129.8), and is at
    /// least `floor` (P-147).
    pub(crate) fn wanted(&mut self, now: Instant, floor: Duration) {
        if self.is_over() {
            return;
        }
        self.window.at_least(floor);
        if self.window.begin(now) {
            let (window, clients) = (self.window.span(), self.clients);
            self.orders.push_back(Order::Report(RecoveryChange::Began { window, clients }));
        }
    }

    /// What becomes of a request of this client (P-150). What may change something and has no
    /// transaction is refused, although P-150 has it handled at once: its effect would stand
    /// before those that are repeated, and its transaction above theirs would have them forgotten.
    pub(crate) fn judge(&self, export: ExportId, body: &Body) -> Verdict {
        let row = body.opcode.row();
        let requests_done = body.flags.contains(BodyFlags::REQ_REPLAY_DONE);
        let repeats = requests_done || body.flags.contains(BodyFlags::REPLAY);
        // A program's own operation is taken when it is a replay.
        let taken = if repeats { InRecovery::Taken } else { InRecovery::Refused };
        match row.map_or(taken, |row| row.recovery) {
            InRecovery::Connect | InRecovery::AtOnce => return Verdict::AtOnce,
            InRecovery::Refused => return Verdict::Refuse(Errno::EAGAIN),
            InRecovery::Taken => {}
        }
        let known = self.members.get(&export);
        let member = known.is_some();
        if body.flags.contains(BodyFlags::LOCK_REPLAY_DONE) {
            return match body.opcode {
                Opcode::OBD_PING if member => Verdict::Queue(Place::Final),
                Opcode::OBD_PING => Verdict::Refuse(Errno::ENOTCONN),
                _ => Verdict::Refuse(Errno::EPROTO),
            };
        }
        if requests_done {
            let queue = Verdict::Queue(Place::Lock);
            return if member { queue } else { Verdict::Refuse(Errno::ENOTCONN) };
        }
        if body.transno == 0 {
            let reads = row.is_some_and(|row| row.effect == Effect::Reads);
            return if reads { Verdict::AtOnce } else { Verdict::Refuse(Errno::EAGAIN) };
        }
        if body.transno >> 32 > (self.next >> 32) + EPOCHS_AHEAD {
            return Verdict::Refuse(Errno::EPROTO);
        }
        if body.transno < self.next {
            return Verdict::AtOnce;
        }
        match known {
            None => return Verdict::Refuse(Errno::ENOTCONN),
            // It has said that there are no more.
            Some(member) if member.requests_done => return Verdict::Refuse(Errno::EPROTO),
            Some(_) => {}
        }
        // Who may still repeat requests does so in their stage: what runs is one of them.
        let runs = self.running.is_some() && body.transno == self.next;
        if runs || self.requests.contains_key(&body.transno) {
            return Verdict::Drop;
        }
        Verdict::Queue(Place::Request(body.transno))
    }

    /// A client says what it has done with a request, whatever becomes of that (P-150.3).
    pub(crate) fn closes(&mut self, export: ExportId, flags: BodyFlags) {
        self.change(export, |member| {
            member.requests_done |= flags.contains(BodyFlags::REQ_REPLAY_DONE);
            member.locks_done |= flags.contains(BodyFlags::LOCK_REPLAY_DONE);
        });
    }

    /// A request takes its place; the one that had it is over.
    pub(crate) fn queue(
        &mut self,
        place: Place,
        export: ExportId,
        served: ServedId,
    ) -> Option<ServedId> {
        match place {
            Place::Final => self.finals.insert(export, served),
            Place::Lock => {
                self.locks.push_back((export, served));
                self.change(export, |member| member.locks += 1);
                None
            }
            Place::Request(transno) => {
                let old = self.requests.insert(transno, (export, served));
                self.change(export, |member| member.requests += 1);
                if let Some((owner, _)) = old {
                    self.change(owner, |member| {
                        member.requests = member.requests.saturating_sub(1)
                    });
                }
                old.map(|(_, served)| served)
            }
        }
    }

    /// What a client has repeated does not fit to what the target has (P-152).
    pub(crate) fn version_failed(&mut self, export: ExportId) {
        self.change(export, |member| member.version_failed = true);
    }

    /// A request that ran is over. One that was not answered (`done` is not set) comes again.
    pub(crate) fn ended(&mut self, served: ServedId, done: bool) {
        if self.running.is_none_or(|(_, running)| running != served) {
            return;
        }
        self.running = None;
        if done && self.stage == RecoveryStage::Requests {
            self.replayed += 1;
            self.next = self.next.saturating_add(1);
        }
    }

    /// A client has done a replay and is not finished: it gets time for the next (P-147).
    pub(crate) fn prolong(&mut self, now: Instant, export: ExportId, time: Duration) {
        let open = |member: &Member| !(member.requests_done && member.locks_done);
        if self.members.get(&export).is_some_and(open) {
            self.window.prolong(now, time);
        }
    }

    /// A client is gone. Its requests that wait are over: they are returned.
    pub(crate) fn left_by(&mut self, export: ExportId) -> Vec<ServedId> {
        let Some(member) = self.members.remove(&export) else { return Vec::new() };
        self.counts.change(Counts::of(&member), Counts::default());
        self.evicted += usize::from(!self.is_over());
        let mut over = Vec::new();
        if member.requests > 0 {
            self.requests.retain(|_, (owner, served)| {
                let gone = *owner == export;
                over.extend(gone.then_some(*served));
                !gone
            });
        }
        if member.locks > 0 {
            self.locks.retain(|(owner, served)| {
                let gone = *owner == export;
                over.extend(gone.then_some(*served));
                !gone
            });
        }
        over.extend(self.finals.remove(&export));
        if let Some((_, served)) = self.running.filter(|(owner, _)| *owner == export) {
            // Its effect may be there: what follows goes on behind it.
            self.ended(served, true);
        }
        over
    }

    /// The timer of the window is due (P-148). The clients that are too late, if there are.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<ExportId> {
        if self.is_over() {
            return Vec::new();
        }
        match self.window.expire(now) {
            Expiry::Running => Vec::new(),
            Expiry::Extended => {
                let runs = self.running.map(|(export, _)| export);
                let stage = self.stage;
                let unhealthy = |(id, member): &(&ExportId, &Member)| match stage {
                    _ if runs == Some(**id) => false,
                    RecoveryStage::Waiting => !member.connected,
                    RecoveryStage::Requests => !member.requests_done && member.requests == 0,
                    _ => !member.locks_done && member.locks == 0,
                };
                let late: Vec<_> =
                    self.members.iter().filter(unhealthy).map(|(id, _)| *id).collect();
                self.orders.extend(late.iter().copied().map(Order::Evict));
                late
            }
            Expiry::Hard => {
                self.abort(now);
                Vec::new()
            }
        }
    }

    /// Ends it without those that have not finished (P-148), or have not brought back all that they had.
    pub(crate) fn abort(&mut self, now: Instant) {
        if self.is_over() {
            return;
        }
        let late: BTreeMap<_, _> = self
            .members
            .iter()
            .filter(|(_, member)| !member.locks_done || member.version_failed)
            .map(|(id, member)| (*id, member.version_failed))
            .collect();
        self.evicted += late.len();
        self.running = None;
        let outcome = self.outcome(now);
        self.stage = RecoveryStage::Aborted(outcome);
        // A client that has finished, and has repeated locks since, is no worse than others.
        let finished = |(owner, _): &&(ExportId, ServedId)| !late.contains_key(owner);
        let locks: Vec<_> = self.locks.iter().filter(finished).map(|(_, id)| *id).collect();
        // They leave with their final pings (`left_by`).
        let (over, answered) = core::mem::take(&mut self.finals)
            .into_iter()
            .partition(|(owner, _)| late.contains_key(owner));
        self.finals = answered;
        self.orders.extend(late.into_iter().map(|(id, unfit)| match unfit {
            true => Order::EvictUnfit(id),
            false => Order::Evict(id),
        }));
        self.orders.extend(locks.into_iter().map(Order::Run));
        self.finish(RecoveryChange::Aborted { outcome });
        self.finals = over;
    }

    fn outcome(&self, now: Instant) -> RecoveryOutcome {
        RecoveryOutcome {
            after: self.window.elapsed(now),
            clients: self.clients,
            recovered: self.clients.saturating_sub(self.evicted),
            evicted: self.evicted,
            replayed: self.replayed,
            last_transno: next_epoch(self.next.saturating_sub(1)),
        }
    }

    /// The last orders: the program hears of the end before what clients then send.
    fn finish(&mut self, change: RecoveryChange) {
        self.orders.push_back(Order::Report(change));
        self.orders.extend(core::mem::take(&mut self.finals).into_values().map(Order::Answer));
    }

    /// Goes to the next stage, when the clients whose versions did not agree are gone (P-149).
    fn close_stage(&mut self, now: Instant, next: RecoveryStage) {
        let unfit = self.members.iter().filter(|(_, member)| member.version_failed);
        let unfit: Vec<_> = unfit.map(|(id, _)| Order::EvictUnfit(*id)).collect();
        if !unfit.is_empty() {
            return self.orders.extend(unfit);
        }
        self.stage = next;
        match next {
            RecoveryStage::Requests => self.report(RecoveryChange::Requests),
            RecoveryStage::Locks => self.report(RecoveryChange::Locks),
            _ => {
                let outcome = self.outcome(now);
                self.stage = RecoveryStage::Done(outcome);
                self.finish(RecoveryChange::Done { outcome });
            }
        }
    }

    fn report(&mut self, change: RecoveryChange) {
        self.orders.push_back(Order::Report(change));
    }

    /// What is to be done next; `None` until something happens. A `hasty` one waits for no gap to be
    /// filled (`Sabotage::GapTooSoon`).
    pub(crate) fn next(&mut self, now: Instant, hasty: bool) -> Option<Order> {
        loop {
            if let Some(order) = self.orders.pop_front() {
                return Some(order);
            }
            if self.running.is_some() {
                return None;
            }
            match self.stage {
                RecoveryStage::Waiting if self.counts.absent == 0 => {
                    self.close_stage(now, RecoveryStage::Requests);
                }
                RecoveryStage::Requests => {
                    if let Some(order) = self.next_request(hasty) {
                        return Some(order);
                    }
                    if !self.requests.is_empty() || self.counts.replaying > 0 {
                        return None;
                    }
                    self.close_stage(now, RecoveryStage::Locks);
                }
                RecoveryStage::Locks => {
                    if let Some((export, served)) = self.locks.pop_front() {
                        self.change(export, |m| m.locks = m.locks.saturating_sub(1));
                        self.running = Some((export, served));
                        return Some(Order::Run(served));
                    }
                    if self.counts.locking > 0 {
                        return None;
                    }
                    self.close_stage(now, RecoveryStage::Done(RecoveryOutcome::default()));
                }
                _ => return None,
            }
        }
    }

    /// The first of the queue, if it is the next transaction, or no client can fill the gap before
    /// it (P-151). P-151 accepts each gap once the window was over; then the second change
    /// of a client that is back would be overtaken while it is on its way, and its versions would not
    /// fit. A client that does not get on is evicted at the end of the window, so that no gap lasts.
    fn next_request(&mut self, hasty: bool) -> Option<Order> {
        let head = self.requests.first_entry()?;
        if *head.key() != self.next && self.counts.idle > 0 && !hasty {
            return None;
        }
        let (transno, (export, served)) = head.remove_entry();
        self.next = transno;
        self.change(export, |m| m.requests = m.requests.saturating_sub(1));
        self.running = Some((export, served));
        Some(Order::Run(served))
    }
}
