//! Any sequence of calls against a model that knows no tree, no queue walk and no growth: only the table
//! of L-4, what clients were answered, and which of two locks came first.

use core::time::Duration;
use std::collections::BTreeMap;

use lnet_types::{Instant, Prng};
use lustre_wire::ldlm::{InodeBits, LockFlags, LockKind, LockMode};
use proptest::prelude::*;

use super::*;
use crate::Mode;

/// L-4, as the reference prints it: rows held, columns wanted.
const TABLE: [&[u8; 9]; 9] = [
    b"nnnnnynnn",
    b"nnnnyynnn",
    b"nnynyynny",
    b"nnnyyynnn",
    b"nyyyyynny",
    b"yyyyyyyyy",
    b"nnnnnynnn",
    b"nnnnnynyn",
    b"nnynyynny",
];

fn conflict(held: &LockView, wanted: &LockView) -> bool {
    let (h, w) = (held.desc, wanted.desc);
    if h.resource != w.resource {
        return false;
    }
    let index = |mode: LockMode| mode.0.trailing_zeros() as usize;
    let (a, b) = (h.policy, w.policy);
    let common = match h.kind {
        LockKind::PLAIN => true,
        LockKind::IBITS => a.start & b.start != 0,
        _ => a.start <= b.end && b.start <= a.end,
    };
    let one = held.holder == wanted.holder;
    let either = |mode| h.requested == mode || w.requested == mode;
    let both = |mode| h.requested == mode && w.requested == mode;
    let initiator = h.kind == LockKind::IBITS && a.who != 0 && a.who == b.who;
    let exempt = match h.kind {
        LockKind::FLOCK => one && a.gid == b.gid,
        _ => {
            both(LockMode::GROUP) && a.gid == b.gid
                || either(LockMode::COS) && one
                || either(LockMode::TXN) && initiator
        }
    };
    common && !exempt && TABLE[index(h.requested)][index(w.requested)] == b'n'
}

/// What a client knows of a lock.
#[derive(Clone, Copy, Debug)]
struct Known {
    holder: HolderId,
    client_cookie: u64,
    granted: bool,
}

#[derive(Debug)]
struct Model {
    space: Namespace,
    now: Instant,
    next: u64,
    known: BTreeMap<Cookie, Known>,
    /// Enqueued and not answered yet.
    open: Vec<Cookie>,
    gone: Vec<(HolderId, Cookie)>,
    restarts: u64,
}

type Check = Result<(), String>;

macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}

/// A step: what, who, and numbers for the rest.
type Step = (u8, u8, u32);

const CLIENTS: u64 = 5;

fn config(seed: u64) -> Config {
    Config { enqueue_min: Duration::from_secs(20), ..Config::new(seed) }
}

fn space(seed: u64) -> Namespace {
    let mut space = Namespace::new(config(seed));
    for client in 0..CLIENTS {
        let kind = if client == 4 { HolderKind::Server } else { HolderKind::Client };
        space.connect(HolderId(client), kind, Duration::from_secs(5));
    }
    space
}

impl Model {
    fn new() -> Self {
        let (known, open, gone) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { space: space(1), now: secs(100), next: 1, known, open, gone, restarts: 0 }
    }

    fn nth_lock(&self, n: u32) -> Option<(Cookie, Known)> {
        let n = n as usize % self.known.len().max(1);
        self.known.iter().nth(n).map(|(lock, known)| (*lock, *known))
    }

    fn request(&mut self, n: u32) -> Ask {
        let mut prng = Prng::new(n.into());
        let mode = Mode::ALL[prng.below(9) as usize].word();
        let (a, b) = (prng.below(8) * 4096, prng.below(8) * 4096);
        let (start, end) = (a.min(b), a.max(b) + if prng.one_in(4) { 0 } else { 4095 });
        let end = if prng.one_in(4) { EOF } else { end };
        let mut request = match prng.below(8) {
            0 => plain(mode),
            1..3 => ibits(mode, prng.below(8), prng.below(8)),
            3 => flock(
                [LockMode::PR, LockMode::PW, LockMode::NL][prng.below(3) as usize],
                prng.below(2),
                start,
                end,
            ),
            _ => {
                let common = [LockMode::PR, LockMode::PW, LockMode::GROUP];
                let mode = if prng.one_in(3) { mode } else { common[prng.below(3) as usize] };
                extent(mode, start, end)
            }
        };
        request.desc.resource = name(u64::from(request.desc.kind.0));
        if request.desc.kind == LockKind::EXTENT {
            request.desc.policy.gid = prng.below(2);
        }
        if request.desc.kind == LockKind::IBITS {
            request.desc.policy.who = prng.below(3) as u32;
        }
        for flag in [
            LockFlags::NO_EXPANSION,
            LockFlags::SPECULATIVE,
            LockFlags::BLOCK_NOWAIT,
            LockFlags::TEST_LOCK,
            LockFlags::CANCEL_ON_BLOCK,
            LockFlags::DENY_ON_CONTENTION,
            LockFlags::AST_DISCARD_DATA,
        ] {
            request.flags.set(flag, prng.one_in(12));
        }
        request.client_cookie = self.next;
        self.next += 1;
        request
    }

    fn enqueue(&mut self, who: u8, n: u32) -> Check {
        let holder = HolderId(u64::from(who) % CLIENTS);
        let mut request = self.request(n);
        request.resent = n.is_multiple_of(7);
        if n.is_multiple_of(11) {
            // A further copy of an earlier request.
            request.client_cookie = u64::from(n) % self.next;
            request.resent = true;
        }
        let before: Vec<LockView> = self.space.locks().collect();
        let Ok(enqueued) = self.space.enqueue(self.now, holder, &request) else { return Ok(()) };
        let test = request.flags.contains(LockFlags::TEST_LOCK);
        if !enqueued.found && enqueued.state == State::Granted && !test {
            self.check_order(enqueued.lock, &before)?;
        }
        if n.is_multiple_of(5) {
            self.open.push(enqueued.lock);
            return Ok(());
        }
        self.answer(enqueued.lock)
    }

    /// No lock is granted that conflicts with one that waited before (L-23), but within a group (L-28).
    fn check_order(&self, lock: Cookie, before: &[LockView]) -> Check {
        let Some(mut new) = self.space.lock(lock) else { return Ok(()) };
        if new.desc.requested == LockMode::GROUP || new.desc.kind == LockKind::FLOCK {
            return Ok(());
        }
        // What was asked for, not what was granted beside it.
        if new.desc.kind == LockKind::EXTENT {
            (new.desc.policy.start, new.desc.policy.end) = self.range_asked(lock);
        }
        let passed = before
            .iter()
            .filter(|other| self.space.lock(other.lock).is_some_and(|o| o.state == State::Waiting))
            .find(|other| other.state == State::Waiting && conflict(other, &new));
        ensure!(passed.is_none(), "{new:?} passed {passed:?}");
        Ok(())
    }

    fn range_asked(&self, lock: Cookie) -> (u64, u64) {
        self.space.find(lock).map_or((0, 0), |at| self.space.locks[at].wanted)
    }

    fn answer(&mut self, lock: Cookie) -> Check {
        let Some(answer) = self.space.answer(self.now, lock) else { return Ok(()) };
        // Dropped with its answer: a test, or CANCEL_ON_BLOCK.
        let Some(view) = self.space.lock(lock) else {
            self.known.remove(&lock);
            return Ok(());
        };
        let (holder, client_cookie) = (view.holder, view.client_cookie);
        let granted = answer.state == State::Granted;
        self.known.insert(lock, Known { holder, client_cookie, granted });
        Ok(())
    }

    fn forget(&mut self, lock: Cookie) {
        if let Some(known) = self.known.remove(&lock) {
            self.gone.push((known.holder, lock));
        }
    }

    fn drain(&mut self, evict: bool) -> Check {
        while let Some(effect) = self.space.poll_effect() {
            match effect {
                Effect::Block { callback, .. } => {
                    let known = self.known.get(&callback.lock);
                    let known = known.is_some_and(|known| known.granted);
                    ensure!(known, "a callback for a lock that its client does not hold");
                }
                Effect::Complete(callback) => {
                    if let Some(known) = self.known.get_mut(&callback.lock) {
                        known.granted = true;
                    } else {
                        return Err("a completion for an unknown lock".to_owned());
                    }
                    if callback.flags.contains(LockFlags::FLOCK_DEADLOCK) {
                        self.forget(callback.lock);
                    }
                }
                Effect::Evict { holder, .. } if evict => self.evict(holder)?,
                Effect::Evict { .. } => {}
            }
        }
        // Those that went without a word: merged, cut, dropped with CANCEL_ON_BLOCK.
        let lost: Vec<_> =
            self.known.keys().filter(|lock| self.space.lock(**lock).is_none()).copied().collect();
        lost.into_iter().for_each(|lock| self.forget(lock));
        self.open.retain(|lock| self.space.lock(*lock).is_some());
        Ok(())
    }

    fn evict(&mut self, holder: HolderId) -> Check {
        self.space.evict(self.now, holder);
        let left = self.space.locks_of(holder).len();
        ensure!(left == 0, "{left} locks of an evicted holder");
        let kind = if holder.0 == 4 { HolderKind::Server } else { HolderKind::Client };
        self.space.connect(holder, kind, Duration::from_secs(5));
        Ok(())
    }

    fn touch(&mut self, who: u8, n: u32) -> Check {
        let holder = HolderId(u64::from(who) % CLIENTS);
        let (start, prolong) = (u64::from(n % 8) * 4096, Duration::from_secs(33));
        let resource = name(LockKind::EXTENT.0.into());
        let io = Io { resource, start, end: start + 4095, read: n.is_multiple_of(2), lock: None };
        let touched = self.space.touch(self.now, holder, &io, prolong);
        let covers = |lock: &LockView| {
            let mode = lock.desc.requested;
            lock.holder == holder
                && lock.state == State::Granted
                && (mode == LockMode::PW
                    || mode == LockMode::GROUP
                    || io.read && mode == LockMode::PR)
                && lock.desc.policy.start <= io.end
                && io.start <= lock.desc.policy.end
        };
        let under: Vec<_> = self.space.locks_on(&resource).into_iter().filter(covers).collect();
        let expected = match (under.is_empty(), under.iter().any(|lock| lock.called_back)) {
            (true, _) => Touched::NoLock,
            (_, true) => Touched::CalledBack,
            _ => Touched::Held,
        };
        ensure!(touched == expected, "{touched:?} instead of {expected:?}");
        let late = under.iter().find(|l| l.expires.is_some_and(|at| at < self.now + prolong));
        ensure!(late.is_none(), "not refreshed: {late:?}");
        Ok(())
    }

    /// The server starts again; every client replays what it knows, in some order.
    fn restart(&mut self, n: u32) -> Check {
        #[cfg(feature = "sabotage")]
        let rule = self.space.sabotage;
        self.restarts += 1;
        let old = core::mem::replace(&mut self.space, space(self.restarts + 1000));
        #[cfg(feature = "sabotage")]
        {
            self.space.sabotage = rule;
        }
        let mut locks: Vec<_> = core::mem::take(&mut self.known).into_iter().collect();
        (self.open, self.gone) = (Vec::new(), Vec::new());
        let mut prng = Prng::new(n.into());
        self.space.begin_replay();
        while !locks.is_empty() {
            let (lock, known) = locks.swap_remove(prng.below(locks.len() as u64) as usize);
            let Some(view) = old.lock(lock) else { continue };
            // Clients drop such locks themselves (L-61).
            if view.flags.contains(LockFlags::CANCEL_ON_BLOCK) {
                continue;
            }
            let mut flags = LockFlags::REPLAY;
            flags |= if known.granted { LockFlags::BLOCK_GRANTED } else { LockFlags::BLOCK_WAIT };
            let mut desc = view.desc;
            if known.granted {
                desc.granted = desc.requested;
            }
            let client_cookie = known.client_cookie;
            let request = Ask { client_cookie, flags, desc, resent: false };
            match self.space.enqueue(self.now, known.holder, &request) {
                Ok(enqueued) => {
                    let state = if known.granted { State::Granted } else { State::Waiting };
                    // One of two parts of a file's user's lock has the other's name.
                    let renamed = enqueued.found;
                    ensure!(renamed || enqueued.state == state, "replayed as {enqueued:?}");
                    self.answer(enqueued.lock)?;
                }
                Err(refusal) => return Err(format!("a replay is refused: {refusal}, {view:?}")),
            }
        }
        ensure!(self.space.poll_effect().is_none(), "an effect while locks are replayed");
        self.space.end_replay(self.now);
        Ok(())
    }

    fn step(&mut self, (what, who, n): Step) -> Check {
        match what % 16 {
            0..7 => self.enqueue(who, n)?,
            7 | 8 => {
                if let Some((lock, known)) = self.nth_lock(n) {
                    let holder = HolderId(u64::from(who) % CLIENTS);
                    let own = holder == known.holder;
                    let found = self.space.cancel(self.now, holder, &[lock]).found;
                    ensure!(found == usize::from(own), "cancelled {found} locks");
                    if own {
                        self.forget(lock);
                    }
                }
            }
            9 => {
                if let Some((lock, known)) = self.nth_lock(n) {
                    self.space.cancel(self.now, known.holder, &[lock]);
                    self.forget(lock);
                }
            }
            10 => {
                if let Some((lock, known)) = self.nth_lock(n) {
                    let mode = self.space.lock(lock).map(|view| view.desc.requested);
                    let mode = mode.and_then(Mode::of).unwrap_or(Mode::Nl);
                    let keep = InodeBits::from_bits_retain(u64::from(n >> 4 & 7));
                    let _ = self.space.convert(self.now, known.holder, lock, mode, keep);
                }
            }
            11 => {
                self.now += Duration::from_secs(u64::from(n % 40));
                self.space.handle_timeout(self.now, &mut |_| n % 5 == 0);
            }
            12 => self.touch(who, n)?,
            13 => {
                if !self.open.is_empty() {
                    let lock = self.open.swap_remove(n as usize % self.open.len());
                    if n % 4 == 0 {
                        self.space.abort(self.now, lock);
                    } else {
                        self.answer(lock)?;
                    }
                }
            }
            14 => {
                // A late cancel: of a lock that is gone.
                let n = n as usize % self.gone.len().max(1);
                if let Some(&(holder, lock)) = self.gone.get(n) {
                    let found = self.space.cancel(self.now, holder, &[lock]).found;
                    ensure!(found == 0, "a late cancel found a lock");
                }
            }
            _ => match n % 8 {
                0 => self.evict(HolderId(u64::from(who) % CLIENTS))?,
                1 => self.restart(n)?,
                _ => {
                    if let Some((lock, _)) = self.nth_lock(n / 8) {
                        let ends = [CallbackEnd::Taken, CallbackEnd::NotHeld, CallbackEnd::Failed];
                        self.space.callback_ended(self.now, lock, ends[n as usize / 8 % 3]);
                        self.space.callback_resent(self.now, lock);
                    }
                }
            },
        }
        self.drain(n % 3 != 0)?;
        self.check()
    }

    fn check(&self) -> Check {
        let all: Vec<LockView> = self.space.locks().collect();
        let loose = |lock: &LockView| {
            let at = self.space.find(lock.lock);
            at.is_some_and(|at| self.space.locks[at].place == record::Place::Loose)
        };
        let (granted, waiting): (Vec<_>, Vec<_>) =
            all.iter().filter(|lock| !loose(lock)).partition(|lock| lock.state == State::Granted);
        for (n, a) in granted.iter().enumerate() {
            let other = granted.iter().skip(n + 1).find(|b| conflict(a, b) || conflict(b, a));
            ensure!(other.is_none(), "conflicting grants: {a:?} and {other:?}");
        }
        for lock in &waiting {
            let blocker = granted.iter().any(|held| conflict(held, lock));
            let queue = self.space.locks_on(&lock.desc.resource);
            let queue = queue.iter().filter(|other| other.state == State::Waiting);
            let mut ahead = queue.take_while(|other| other.lock != lock.lock);
            // The walk stops at the first that cannot be granted (L-30).
            let behind = match lock.desc.kind {
                LockKind::EXTENT | LockKind::PLAIN => ahead.next().is_some(),
                LockKind::IBITS => ahead.any(|o| o.desc.policy.start & lock.desc.policy.start != 0),
                _ => false,
            };
            ensure!(blocker || behind, "{lock:?} waits for no lock");
            let silent = granted.iter().find(|held| {
                conflict(held, lock) && !held.called_back && held.desc.kind != LockKind::FLOCK
            });
            ensure!(silent.is_none(), "{lock:?} waits for {silent:?}, which is not called back");
        }
        for lock in granted.iter().filter(|lock| lock.called_back) {
            let at = self.space.find(lock.lock).expect("a lock that was listed");
            let record = &self.space.locks[at];
            let leaving = self.space.holders[record.holder].leaving;
            let timed = lock.holder.0 != 4 && lock.desc.requested != LockMode::GROUP;
            let runs = lock.expires.is_some() || !record.answered || leaving;
            ensure!(!timed || runs, "{lock:?} is called back without a timer");
        }
        for (lock, known) in &self.known {
            let state = self.space.lock(*lock).map(|view| view.state);
            let granted = state == Some(State::Granted);
            ensure!(known.granted == granted, "{lock} is {state:?}, its client has {known:?}");
        }
        self.check_records()
    }

    /// The trees and counts of the machine itself.
    fn check_records(&self) -> Check {
        let mut locks = 0;
        for (at, resource) in self.space.resources.iter() {
            let mut granted = 0;
            for set in &resource.granted {
                let mut stack = vec![(set.root, (0, 0), (u64::MAX, u32::MAX))];
                let mut count = 0;
                while let Some((node, low, high)) = stack.pop() {
                    let Some(lock) = self.space.locks.get(node) else { continue };
                    let bits = lock.kind == crate::Kind::Ibits || lock.kind == crate::Kind::Plain;
                    let key = (if bits { 0 } else { lock.start }, node);
                    ensure!(low <= key && key <= high, "a tree is out of order");
                    let [l, r] = lock.link.map(|n| self.space.locks.get(n).map_or(0, |l| l.reach));
                    let reach = match lock.kind {
                        crate::Kind::Plain => 1,
                        crate::Kind::Ibits => lock.start | l | r,
                        _ => lock.end.max(l).max(r),
                    };
                    ensure!(lock.reach == reach, "a reach of {:#x}, not {reach:#x}", lock.reach);
                    stack.extend([(lock.link[0], low, key), (lock.link[1], key, high)]);
                    count += 1;
                }
                ensure!(count == set.count && count > 0, "{count} locks in a set of {}", set.count);
                granted += count;
            }
            let queue = self.space.waiting(at, slab::NIL).count() as u32;
            ensure!(queue == resource.waiting, "{queue} of {} wait", resource.waiting);
            ensure!(resource.locks >= granted + queue, "fewer locks than in trees and queue");
            ensure!(resource.locks > 0 && !resource.dirty, "a resource without locks");
            locks += resource.locks as usize;
        }
        ensure!(locks == self.space.locks.len(), "{locks} locks in resources");
        let owned: usize = self.space.holders.iter().map(|(_, holder)| holder.locks).sum();
        ensure!(owned == locks, "{owned} locks of holders");
        Ok(())
    }

    /// Holders go: every waiting lock is granted in the end.
    fn finish(&mut self) -> Check {
        let open = core::mem::take(&mut self.open);
        open.into_iter().try_for_each(|lock| self.answer(lock))?;
        self.drain(true)?;
        let mut rounds = 0;
        while self.space.view().waiting > 0 {
            rounds += 1;
            ensure!(rounds < 1000, "locks wait for ever");
            let granted = self.known.iter().find(|(_, known)| known.granted);
            let Some((&lock, &known)) = granted else {
                // What is left of a cut lock has no client's name of its own.
                for holder in 0..CLIENTS {
                    self.evict(HolderId(holder))?;
                }
                continue;
            };
            self.space.cancel(self.now, known.holder, &[lock]);
            self.forget(lock);
            self.drain(true)?;
            self.check()?;
        }
        Ok(())
    }
}

fn play(mut model: Model, steps: &[Step]) -> Check {
    for (n, step) in steps.iter().enumerate() {
        model.step(*step).map_err(|error| format!("step {n}, {step:?}: {error}"))?;
    }
    model.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]
    #[test]
    fn no_two_conflicting_locks_are_granted_and_every_lock_that_waits_is_in_the_end(
        steps in proptest::collection::vec(any::<Step>(), 1..50),
    ) {
        let result = play(Model::new(), &steps);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}

#[cfg(feature = "sabotage")]
#[test]
fn every_broken_rule_is_noticed() {
    use crate::Sabotage;

    for rule in Sabotage::ALL {
        let noticed = (0..20_000).find_map(|seed| {
            let mut prng = Prng::new(seed);
            let step = |_| (prng.next_u64() as u8, prng.next_u64() as u8, prng.next_u64() as u32);
            let steps: Vec<Step> = (0..50).map(step).collect();
            let mut model = Model::new();
            model.space.sabotage(rule);
            play(model, &steps).err().map(|error| (seed, error))
        });
        let (seed, error) = noticed.unwrap_or_else(|| panic!("{rule:?} is not noticed"));
        println!("{rule:?}: seed {seed}: {error}");
    }
}
