//! Enqueue and answer (L-22, L-23): which lock is granted, which waits and calls others back, which is
//! refused. What happens to waiting locks later stands in `settle.rs`.

use lnet_types::Instant;
use lustre_wire::ldlm::{LockFlags, LockMode, Policy, ResourceName};

use super::contention::Contention;
use super::record::{Lock, Place};
use super::slab::NIL;
use super::tree::{self, Part};
use super::{Answer, Ask, Callback, Effect, Enqueued, HolderId, Namespace, State};
use crate::{Cookie, Kind, Mode, Refusal};

/// Flags that a request may have (L-17).
const REQUEST_FLAGS: u32 = 0xe08c_131a;
/// Flags of a request that stay with its lock (L-17).
const KEPT_FLAGS: LockFlags = LockFlags::NO_TIMEOUT
    .union(LockFlags::TEST_LOCK)
    .union(LockFlags::CANCEL_ON_BLOCK)
    .union(LockFlags::NO_EXPANSION)
    .union(LockFlags::AST_DISCARD_DATA);

/// A request whose values were checked (L-22.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) kind: Kind,
    pub(super) mode: Mode,
    resource: ResourceName,
    wanted: (u64, u64),
    gid: u64,
    who: u32,
}

impl Want {
    pub(super) fn check(ask: &Ask) -> Result<Self, Refusal> {
        let desc = &ask.desc;
        let unknown = ask.flags.bits() & !REQUEST_FLAGS;
        if unknown != 0 {
            return Err(Refusal::Flags(unknown));
        }
        let policy = desc.policy().ok_or(Refusal::Kind(desc.kind.0))?;
        let kind = Kind::of(desc.kind).ok_or(Refusal::Kind(desc.kind.0))?;
        // A lock that was granted is replayed as it was granted (L-25).
        let granted = ask.flags.contains(LockFlags::REPLAY | LockFlags::BLOCK_GRANTED);
        let word = if granted { desc.granted } else { desc.requested };
        let mode = Mode::of(word).ok_or(Refusal::Mode(word.0))?;
        let (wanted, gid, who, empty) = match policy {
            Policy::Plain => ((0, 0), 0, 0, false),
            Policy::Extent { start, end, gid } => ((start, end), gid, 0, end < start),
            Policy::Flock { start, end, owner, pid } => ((start, end), owner, pid, end < start),
            Policy::Ibits { bits, try_bits, gid, initiator } => {
                let (bits, more) = (bits.bits(), try_bits.bits());
                ((bits, more), gid, initiator, bits | more == 0)
            }
        };
        if empty {
            return Err(Refusal::Empty { start: wanted.0, end: wanted.1 });
        }
        Ok(Self { kind, mode, resource: desc.resource, wanted, gid, who })
    }
}

impl Namespace {
    /// Asks for a lock (L-22, L-23). Callbacks of the round are effects with `because` the new lock.
    /// With TEST_LOCK no lock remains after the answer.
    ///
    /// # Errors
    /// The request is malformed, or refused; no lock remains.
    pub fn enqueue(
        &mut self,
        now: Instant,
        holder: HolderId,
        ask: &Ask,
    ) -> Result<Enqueued, Refusal> {
        let want = Want::check(ask)?;
        let known = self.find_holder(holder).filter(|at| !self.holders[*at].leaving);
        let replay = ask.flags.contains(LockFlags::REPLAY);
        if let Some(holder) = known.filter(|_| replay || ask.resent)
            && let Some(at) = self.find_client(holder, ask.client_cookie)
        {
            self.locks[at].found = true;
            return Ok(self.enqueued(at, replay));
        }
        let limits = self.config.limits;
        if self.locks.len() >= limits.locks {
            return Err(Refusal::Limit { what: "locks", limit: limits.locks });
        }
        let holder = known.ok_or(Refusal::NotConnected)?;
        if self.holders[holder].locks >= limits.locks_per_holder {
            let limit = limits.locks_per_holder;
            return Err(Refusal::Limit { what: "locks of one holder", limit });
        }
        let resource = self.resource(want.resource, want.kind)?;
        let at = self.create(Lock {
            client_cookie: ask.client_cookie,
            since: now,
            start: want.wanted.0,
            end: want.wanted.1,
            wanted: want.wanted,
            gid: want.gid,
            reach: 0,
            asked: Instant::ZERO,
            who: want.who,
            flags: ask.flags & KEPT_FLAGS,
            resource,
            holder,
            link: [NIL; 2],
            mates: [NIL; 2],
            expires: 0,
            mode: want.mode,
            kind: want.kind,
            place: Place::Loose,
            answered: false,
            called_back: false,
            discard: false,
            found: false,
            behind_granted: false,
        });
        let placed = if self.replaying || replay {
            self.place_replayed(now, at, ask.flags)
        } else if want.kind == Kind::Flock {
            self.place_flock(now, at, ask.flags)
        } else {
            self.place(now, at, ask.flags)
        };
        let result = match placed {
            Ok(()) => Ok(self.enqueued(at, replay)),
            Err(refusal) => {
                self.destroy(at);
                Err(refusal)
            }
        };
        self.settle(now);
        result
    }

    fn enqueued(&self, at: u32, replay: bool) -> Enqueued {
        let lock = &self.locks[at];
        let wants_value = !replay && self.resources[lock.resource].value.is_none();
        Enqueued { lock: self.cookie(at), state: lock.state(), found: lock.found, wants_value }
    }

    /// Collects what a lock conflicts with: granted locks, then waiting ones before `until` (L-23). The
    /// number of granted ones.
    pub(super) fn meet(&self, at: u32, until: u32, met: &mut Vec<u32>) -> usize {
        met.clear();
        self.granted_conflicts(at, &mut |other, _| {
            met.push(other);
            false
        });
        let (granted, lock) = (met.len(), &self.locks[at]);
        // A group that holds the resource takes further members at once (L-28).
        if lock.mode == Mode::Group && granted == 0 && self.has_mates(lock) {
            return granted;
        }
        let waiting = self.waiting(lock.resource, until);
        met.extend(waiting.filter(|other| self.locks[*other].conflicts(lock)));
        granted
    }

    fn has_mates(&self, lock: &Lock) -> bool {
        let part = Part { start: lock.start, end: lock.end };
        let sets = &self.resources[lock.resource].granted;
        sets.iter().filter(|set| set.mode == Mode::Group).any(|set| {
            tree::overlapping(&self.locks, set.root, part, &mut |_, held| held.gid == lock.gid)
        })
    }

    /// Decides about a new lock of any kind but those of files' users (L-23).
    pub(super) fn place(&mut self, now: Instant, at: u32, flags: LockFlags) -> Result<(), Refusal> {
        let mut met = core::mem::take(&mut self.met);
        let result = self.place_against(now, at, flags, &mut met);
        self.met = met;
        result
    }

    fn place_against(
        &mut self,
        now: Instant,
        at: u32,
        flags: LockFlags,
        met: &mut Vec<u32>,
    ) -> Result<(), Refusal> {
        let mut counted = false;
        loop {
            let before = self.queue_before(at);
            let granted = self.meet(at, before, met);
            if met.is_empty() {
                return self.admit(now, at, flags);
            }
            if !counted {
                self.count_conflicts(now, at, met);
                counted = true;
            }
            self.may_wait(now, at, flags, met)?;
            if self.press(now, at, flags.contains(LockFlags::AST_DISCARD_DATA), met) {
                continue;
            }
            let lock = &mut self.locks[at];
            lock.behind_granted = granted > 0;
            lock.flags.set(LockFlags::NO_TIMEOUT, lock.kind == Kind::Extent);
            self.enqueue_before(at, before);
            // Locks behind it that it excludes wait for it as well.
            let behind =
                self.waiting(self.locks[at].resource, NIL).skip_while(|other| *other != at);
            let lock = &self.locks[at];
            let awaited = behind.skip(1).any(|other| lock.conflicts(&self.locks[other]));
            self.locks[at].called_back |= awaited;
            return Ok(());
        }
    }

    /// Grants a lock that met no conflict, or lets a test be.
    fn admit(&mut self, now: Instant, at: u32, flags: LockFlags) -> Result<(), Refusal> {
        if flags.contains(LockFlags::TEST_LOCK) {
            return Ok(());
        }
        let lock = &self.locks[at];
        if lock.kind == Kind::Ibits && lock.start | self.free_bits(at) == 0 {
            return Err(Refusal::WouldBlock);
        }
        self.grant(now, at);
        Ok(())
    }

    /// Whether a request that met conflicts waits (L-23).
    fn may_wait(
        &self,
        now: Instant,
        at: u32,
        flags: LockFlags,
        met: &[u32],
    ) -> Result<(), Refusal> {
        let lock = &self.locks[at];
        let resource = &self.resources[lock.resource];
        if flags.intersects(LockFlags::SPECULATIVE | LockFlags::TEST_LOCK) {
            return Err(Refusal::Conflict);
        }
        if flags.contains(LockFlags::BLOCK_NOWAIT) {
            let group = |other: &u32| self.locks[*other].mode == Mode::Group;
            match lock.kind {
                Kind::Ibits => return Err(Refusal::WouldBlock),
                Kind::Extent if !met.iter().any(group) => {}
                _ => return Err(Refusal::Conflict),
            }
        }
        let contended = resource.contention.as_ref().is_some_and(|c| c.holds(now));
        if contended && flags.contains(LockFlags::DENY_ON_CONTENTION) {
            return Err(Refusal::Contended);
        }
        let limit = self.config.limits.waiting_per_resource;
        if resource.waiting as usize >= limit {
            return Err(Refusal::Limit { what: "waiting locks of one resource", limit });
        }
        Ok(())
    }

    /// Counts conflicts (L-31): not those of a reader of the whole file, nor those that growth alone
    /// made.
    fn count_conflicts(&mut self, now: Instant, at: u32, met: &[u32]) {
        let lock = &self.locks[at];
        let (start, end) = lock.wanted;
        if lock.kind == Kind::Extent && lock.mode == Mode::Pr && (start, end) == (0, u64::MAX) {
            return;
        }
        let real = |other: &&u32| {
            let (from, to) = self.locks[**other].wanted;
            lock.kind != Kind::Extent || from <= end && start <= to
        };
        let conflicts = met.iter().filter(real).count();
        let conflicts = u32::try_from(conflicts).unwrap_or(u32::MAX);
        let contention = &mut self.resources[lock.resource].contention;
        contention.get_or_insert_with(|| Box::new(Contention::new(now))).count(now, conflicts);
    }

    /// Calls the locks back that a lock met. Whether one of them is gone by this (CANCEL_ON_BLOCK), so
    /// that the decision is to be repeated; then the others are not called back yet.
    pub(super) fn press(&mut self, now: Instant, at: u32, discard: bool, met: &[u32]) -> bool {
        let drops = |lock: &Lock| {
            let dropped = lock.flags.contains(LockFlags::CANCEL_ON_BLOCK);
            dropped && lock.place == Place::Granted && lock.answered
        };
        let mut dropped = false;
        for other in
            met.iter().filter(|other| drops(&self.locks[**other])).copied().collect::<Vec<_>>()
        {
            self.call_back(now, other, at, discard);
            self.destroy(other);
            dropped = true;
        }
        if !dropped {
            met.iter().for_each(|other| self.call_back(now, *other, at, discard));
        }
        dropped
    }

    /// Calls a lock back, once (L-27): at once if its client knows that it is granted, otherwise with
    /// the answer or completion (L-33).
    pub(super) fn call_back(&mut self, now: Instant, at: u32, because: u32, discard: bool) {
        let lock = &self.locks[at];
        if lock.called_back {
            return;
        }
        let blocker = &self.locks[because];
        let mut desc = blocker.desc(self.resources[blocker.resource].name);
        // It is not granted: that is why the holder is called.
        desc.granted = LockMode::NONE;
        // The second word is filled for every kind; of inode bits alone it means something (L-33).
        desc.policy.end = match lock.kind {
            Kind::Ibits => lock.start & blocker.start,
            _ => desc.policy.start,
        };
        let send = lock.place == Place::Granted && lock.answered;
        let lock = &mut self.locks[at];
        (lock.called_back, lock.discard) = (true, discard);
        if send {
            let callback = Callback { desc, ..self.callback(at) };
            self.effects.push_back(Effect::Block { callback, because: self.cookie(because) });
            self.arm(now, at);
        }
    }

    /// A callback that describes the lock itself.
    pub(super) fn callback(&self, at: u32) -> Callback {
        let lock = &self.locks[at];
        let mut flags = LockFlags::empty();
        flags.set(LockFlags::DISCARD_DATA, lock.called_back && lock.discard);
        Callback {
            holder: self.holders[lock.holder].id,
            lock: self.cookie(at),
            client_cookie: lock.client_cookie,
            flags,
            desc: lock.desc(self.resources[lock.resource].name),
        }
    }

    /// The inode bits that waiting locks want of a lock, all of it if none of them is there any more.
    pub(super) fn contested_bits(&self, at: u32) -> u64 {
        let lock = &self.locks[at];
        let waiting = self.waiting(lock.resource, NIL).map(|other| &self.locks[other]);
        let wanted = waiting.filter(|other| lock.conflicts(other));
        match wanted.fold(0, |bits, other| bits | lock.start & other.start) {
            0 => lock.start,
            bits => bits,
        }
    }

    /// What the reply says (L-22.10, L-22.12). From now on the client knows the lock, and callbacks are
    /// sent for it; if one was due already it is contained, and its timer runs. `None` if the lock is
    /// gone: its holder was evicted, or its callback found that the client does not have it.
    pub fn answer(&mut self, now: Instant, lock: Cookie) -> Option<Answer> {
        let at = self.find(lock)?;
        self.locks[at].answered = true;
        let record = &self.locks[at];
        let resource = &self.resources[record.resource];
        let holder = self.holders[record.holder].id;
        let mut desc = record.desc(resource.name);
        let state = record.state();
        let waits = state == State::Waiting;
        let mut flags = LockFlags::empty();
        flags.set(LockFlags::LOCK_CHANGED, record.changed() && !waits || record.found);
        let blocked = record.behind_granted || record.found;
        flags.set(LockFlags::BLOCK_GRANTED, waits && blocked);
        flags.set(LockFlags::BLOCK_WAIT, waits && !blocked);
        let no_timeout = record.flags.contains(LockFlags::NO_TIMEOUT);
        flags.set(LockFlags::NO_TIMEOUT, no_timeout && (waits || record.found));
        let contended = resource.contention.as_ref().is_some_and(|c| c.holds(now));
        flags.set(LockFlags::CONTENTION, contended);
        flags.set(LockFlags::AST_SENT, record.called_back);
        // A recorded server repeats it.
        let discards = record.flags.contains(LockFlags::AST_DISCARD_DATA);
        flags.set(LockFlags::AST_DISCARD_DATA, discards);
        if record.place == Place::Loose {
            desc.granted = record.mode.word();
            self.destroy(at);
        } else if self.locks[at].called_back {
            if self.locks[at].kind == Kind::Ibits {
                desc.policy.end = self.contested_bits(at);
            }
            if !waits {
                self.contain(now, at);
            }
        }
        self.settle(now);
        Some(Answer { flags, desc, lock, state, holder })
    }

    /// A reply or completion contains the blocking callback of a granted lock: the timer runs, or the
    /// lock is dropped at once (L-46).
    pub(super) fn contain(&mut self, now: Instant, at: u32) {
        if self.locks[at].flags.contains(LockFlags::CANCEL_ON_BLOCK) {
            self.destroy(at);
        } else {
            self.arm(now, at);
        }
    }
}
