//! The reference model of locks, which knows no callback, no timer and no message:
//!
//! - *Must not*: two programs have locks that conflict; a fencing number is not above that of a lock
//!   that conflicted before; a lock is granted that has less than was asked for, twice, or after its
//!   end; a program loses a lock whose client was not evicted; I/O that began after an eviction is
//!   carried out under a lock that was lost by it, or I/O under a lock in force is refused; a client
//!   that lives is evicted while nothing is wrong with the world.
//! - *Must*: once the world has been left alone for a while each wait ends in a grant, and each program
//!   that was evicted has learnt it.

use std::collections::BTreeMap;

use ldlm::client::LockError;
use lnet_scenario::{LoadKind, NodeId, Scenario, TargetKind};
use lnet_types::{Errno, Instant};
use ptlrpc::{CallError, ImportState};

use super::super::calling::uuid;
use super::super::model::settled_at;
use super::super::seen::{CallNo, KeyNo, RpcSeen};
use super::{LockSeen, LockWant};
use crate::directory::HostId;
use crate::observe::{Observer, Seen, View};

/// Numbers of a name that later ones are compared with.
const FENCES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A program waits for it.
    Asked,
    /// A program has it.
    Held,
    /// Its client was evicted then, and the program does not know it yet.
    Void(Instant),
}

/// A lock that a program has, or waits for.
#[derive(Clone, Copy, Debug)]
struct Lock {
    host: HostId,
    target: usize,
    want: LockWant,
    since: Instant,
    state: State,
    /// When its last I/O began.
    used_at: Instant,
}

/// What a lock was for, whose it was, and its number.
type Fence = (LockWant, HostId, u64);

/// See the module's head.
#[derive(Debug, Default)]
pub struct LockModel {
    /// Which targets have locks.
    targets: Vec<bool>,
    locks: BTreeMap<CallNo, Lock>,
    /// Clients that were evicted, and don't know it yet.
    out: BTreeMap<(HostId, usize), Instant>,
    /// Clients that are connecting, and since when.
    connecting: BTreeMap<(HostId, usize), Instant>,
    /// The last numbers of each name.
    fences: BTreeMap<(usize, KeyNo), Vec<Fence>>,
    /// Loads whose programs give up waiting.
    limited: Vec<bool>,
    /// Until then nothing is wrong; `None`: nothing ever is.
    wrong_from: Option<Instant>,
    /// From then on nothing is wrong; `None`: a fault lasts.
    settled: Option<Instant>,
}

impl LockModel {
    /// The model of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let loads = scenario.rpc.loads.iter();
        let limited =
            |l: &lnet_scenario::RpcLoad| matches!(l.kind, LoadKind::Lock(_)) && l.timeout.is_some();
        Self {
            targets: scenario.rpc.targets.iter().map(|t| t.kind == TargetKind::Lock).collect(),
            limited: loads.map(limited).collect(),
            wrong_from: scenario.faults.iter().map(|fault| Instant::ZERO + fault.at).min(),
            settled: settled_at(scenario),
            ..Self::default()
        }
    }

    /// Whether a scenario has something for it.
    pub(crate) fn is_about(scenario: &Scenario) -> bool {
        scenario.rpc.targets.iter().any(|t| t.kind == TargetKind::Lock)
    }

    /// Nothing is wrong, or has been for long.
    fn is_quiet(&self, now: Instant) -> bool {
        self.wrong_from.is_none_or(|at| now < at) || self.settled.is_some_and(|at| now >= at)
    }

    fn evicted(
        &mut self,
        view: &View<'_>,
        target: usize,
        client: &str,
        reason: ptlrpc::EvictReason,
    ) -> Result<(), String> {
        if !self.targets.get(target).is_some_and(|locks| *locks) {
            return Ok(());
        }
        let world = &view.scenario.world;
        let is = |n: &u32| {
            let host = view.host(HostId(*n));
            let life = host.filter(|h| h.alive).map(|h| h.incarnation);
            life.is_some_and(|life| uuid(world, NodeId(*n), life) == client)
        };
        // A life that is over is no client any more.
        let Some(host) = (0..view.hosts.len() as u32).find(is).map(HostId) else { return Ok(()) };
        self.out.insert((host, target), view.now);
        for lock in self.locks.values_mut() {
            if lock.host == host && lock.target == target && lock.state == State::Held {
                lock.state = State::Void(view.now);
            }
        }
        match self.is_quiet(view.now) {
            true => Err(format!("{client} lives, nothing is wrong, and it is evicted: {reason}")),
            false => Ok(()),
        }
    }

    /// A client learns of its eviction from its connection: all that it had is lost, or nothing was
    /// there, and the connection is made anew without a recovery (P-57).
    ///
    /// # Errors
    /// A target takes back a client whose locks others have.
    fn connected(
        &mut self,
        view: &View<'_>,
        client: (HostId, usize),
        state: ImportState,
    ) -> Result<(), String> {
        if state == ImportState::ReplayLocks && self.out.remove(&client).is_some() {
            self.taken_back(view, client)?;
        }
        let begun = self.connecting.remove(&client);
        let anew = begun.is_some() && state == ImportState::Full;
        // One without locks is connected like another that comes back: what answers an attempt that began
        // behind the eviction is of the connection that followed it.
        let behind = begun.is_some_and(|at| self.out.get(&client).is_some_and(|out| at > *out));
        if anew || state == ImportState::Evicted || behind && state == ImportState::Recover {
            self.out.remove(&client);
        }
        if state == ImportState::Connecting {
            self.connecting.insert(client, view.now);
        }
        Ok(())
    }

    /// A target that has lost an eviction in a crash takes the client back with its locks: none of them
    /// may have gone to another client.
    fn taken_back(&mut self, view: &View<'_>, client: (HostId, usize)) -> Result<(), String> {
        let of = |lock: &Lock| (lock.host, lock.target) == client;
        let void = |lock: &Lock| of(lock) && matches!(lock.state, State::Void(_));
        for (ask, lock) in self.locks.iter().filter(|(_, lock)| void(lock)) {
            let taken = self.locks.iter().find(|(_, other)| {
                let held = other.state == State::Held && other.target == lock.target;
                held && !of(other) && other.want.conflicts(&lock.want)
            });
            if let Some((other, held)) = taken {
                return Err(format!(
                    "{}: is taken back with lock {ask}, {}, which went to lock {other}, {}",
                    view.name(client.0),
                    lock.want,
                    held.want
                ));
            }
        }
        for lock in self.locks.values_mut().filter(|lock| void(lock)) {
            lock.state = State::Held;
        }
        Ok(())
    }

    fn lock(
        &mut self,
        view: &View<'_>,
        host: HostId,
        target: usize,
        seen: LockSeen,
    ) -> Result<(), String> {
        let (now, name, ask) = (view.now, view.name(host), seen.ask());
        if let LockSeen::Asked { want, .. } = seen {
            let lock = Lock { host, target, want, since: now, state: State::Asked, used_at: now };
            return match self.locks.insert(ask, lock) {
                None => Ok(()),
                Some(_) => Err(format!("{name}: lock {ask} is asked for twice")),
            };
        }
        let Some(lock) = self.locks.get(&ask).copied() else {
            return match seen {
                // It may end after its lock.
                LockSeen::Used { .. } => Ok(()),
                _ => Err(format!("{name}: {seen:?} of a lock that is over")),
            };
        };
        match seen {
            LockSeen::Asked { .. } | LockSeen::CalledBack { .. } => Ok(()),
            LockSeen::Granted { fence, covers, .. } => {
                self.granted(&name, ask, &lock, fence, covers)
            }
            LockSeen::Using { .. } => {
                self.set(ask, |lock| lock.used_at = now);
                Ok(())
            }
            LockSeen::Used { result, .. } => match (result, lock.state) {
                (Ok(()), State::Void(at)) if lock.used_at > at => Err(format!(
                    "{name}: I/O under lock {ask}, {}, is carried out after its eviction at {at}",
                    lock.want
                )),
                (Err(CallError::Refused(Errno::ESTALE)), State::Held) => Err(format!(
                    "{name}: its target does not know lock {ask}, {}, which is in force",
                    lock.want
                )),
                _ => Ok(()),
            },
            LockSeen::Shrunk { left, .. } => {
                self.set(ask, |lock| lock.want.part = left);
                Ok(())
            }
            LockSeen::Released { .. } => {
                self.locks.remove(&ask);
                Ok(())
            }
            LockSeen::Refused { error, .. } => {
                self.locks.remove(&ask);
                self.refused(&name, now, ask, &lock, error)
            }
            LockSeen::Lost { .. } => {
                self.locks.remove(&ask);
                match lock.state {
                    State::Void(_) => Ok(()),
                    _ => Err(format!(
                        "{name}: lock {ask}, {}, is lost, and its client was not evicted",
                        lock.want
                    )),
                }
            }
        }
    }

    fn set(&mut self, ask: CallNo, f: impl FnOnce(&mut Lock)) {
        if let Some(lock) = self.locks.get_mut(&ask) {
            f(lock);
        }
    }

    fn granted(
        &mut self,
        name: &str,
        ask: CallNo,
        lock: &Lock,
        fence: Option<u64>,
        covers: bool,
    ) -> Result<(), String> {
        let Lock { host, target, want, state, .. } = *lock;
        if state != State::Asked {
            return Err(format!("{name}: lock {ask}, {want}, is granted twice"));
        }
        if !covers {
            return Err(format!("{name}: lock {ask} has less than {want}"));
        }
        if let Some(at) = self.out.get(&(host, target)).copied() {
            // A message of the time before; what protects something compares numbers.
            self.set(ask, |lock| lock.state = State::Void(at));
            return Ok(());
        }
        let held = self.locks.iter().find(|(_, other)| {
            let held = other.state == State::Held && other.target == target;
            held && other.want.conflicts(&want)
        });
        if let Some((other, held)) = held {
            return Err(format!(
                "{name}: lock {ask}, {want}, is granted beside lock {other}, {}",
                held.want
            ));
        }
        self.set(ask, |lock| lock.state = State::Held);
        let Some(fence) = fence else { return Ok(()) };
        let fences = self.fences.entry((target, want.name)).or_default();
        // A lock that stayed in the cache of its client has its number still.
        let above = fences
            .iter()
            .find(|(other, of, last)| *of != host && other.conflicts(&want) && *last >= fence);
        if let Some((other, _, last)) = above {
            return Err(format!(
                "{name}: lock {ask}, {want}, has number {fence:#x} after {last:#x} of {other}"
            ));
        }
        fences.push((want, host, fence));
        if fences.len() > FENCES_MAX {
            fences.remove(0);
        }
        Ok(())
    }

    fn refused(
        &self,
        name: &str,
        now: Instant,
        ask: CallNo,
        lock: &Lock,
        error: LockError,
    ) -> Result<(), String> {
        let load = (lock.want.name.0 >> 32) as usize;
        let limited = self.limited.get(load).is_some_and(|limited| *limited);
        let gives_up = limited && error == LockError::LimitPassed;
        // A client that asks while its eviction is on its way.
        let evicted = error == LockError::Evicted;
        let peace = self.settled.is_some_and(|at| lock.since >= at) || self.wrong_from.is_none();
        if lock.state != State::Asked {
            return Err(format!("{name}: lock {ask}, {}, is refused, and was granted", lock.want));
        }
        if gives_up || evicted && !peace {
            return Ok(());
        }
        Err(format!("{name}: lock {ask}, {}, is refused at {now}: {error}", lock.want))
    }
}

impl Observer for LockModel {
    fn name(&self) -> &'static str {
        "lock-model"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        match *seen {
            Seen::Rpc { host, seen: RpcSeen::Lock { target, seen } } => {
                self.lock(view, host, *target, *seen)
            }
            Seen::Rpc { seen: RpcSeen::Evicted { target, client, reason }, .. } => {
                self.evicted(view, *target, client, *reason)
            }
            Seen::Rpc { host, seen: RpcSeen::State { target, state } } => {
                self.connected(view, (host, *target), *state)
            }
            Seen::Died { host } => {
                self.locks.retain(|_, lock| lock.host != host);
                self.out.retain(|(of, _), _| *of != host);
                self.connecting.retain(|(of, _), _| *of != host);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, view: &View<'_>) -> Result<(), String> {
        if self.settled.is_none_or(|at| view.now < at) {
            return Ok(());
        }
        for (ask, lock) in &self.locks {
            let (name, since) = (view.name(lock.host), lock.since);
            match lock.state {
                State::Asked => {
                    return Err(format!(
                        "{name}: lock {ask}, {}, is waited for since {since}",
                        lock.want
                    ));
                }
                State::Void(at) => {
                    return Err(format!(
                        "{name}: lock {ask}, {}, is lost since {at}, and its program has not learnt it",
                        lock.want
                    ));
                }
                State::Held => {}
            }
        }
        Ok(())
    }
}
