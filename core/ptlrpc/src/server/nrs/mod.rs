//! The order in which a service serves the requests that wait: a head with a fallback policy, which
//! is FIFO, and at most one other (P-116 … P-121). A policy gives a request its rank at arrival; the
//! lowest rank that may go is served next. `fifo.rs`, `crrn.rs` and `delay.rs` hold the policies,
//! `parameter.rs` their names and values as an administrator writes them.

mod crrn;
mod delay;
mod fifo;
mod parameter;

use std::collections::BTreeMap;

use lnet_types::{Instant, Nid, Prng};

use crate::table::ServedId;

pub use parameter::NrsError;

use crrn::Crrn;
use delay::Delay;
use fifo::Fifo;

/// The policies that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Order of arrival.
    Fifo,
    /// Client round robin: the NIDs of clients take turns.
    Crrn,
    /// Selected requests wait, as they would on a loaded server (P-119).
    Delay,
}

impl PolicyKind {
    /// The name that tools use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Crrn => "crrn",
            Self::Delay => "delay",
        }
    }
}

/// Order of requests in a queue: what the policy says, then the order of arrival.
type Rank = (u64, u64);

/// Where a request waits, so that it can be taken out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    primary: bool,
    rank: Rank,
}

#[derive(Debug)]
enum Policy {
    Fifo(Fifo),
    Crrn(Crrn),
    Delay(Delay),
}

impl Policy {
    const fn kind(&self) -> PolicyKind {
        match self {
            Self::Fifo(_) => PolicyKind::Fifo,
            Self::Crrn(_) => PolicyKind::Crrn,
            Self::Delay(_) => PolicyKind::Delay,
        }
    }

    /// The first part of the rank of a request that arrives; `None` declines it.
    fn rank(&mut self, now: Instant, from: Nid) -> Option<u64> {
        match self {
            Self::Fifo(fifo) => Some(fifo.rank()),
            Self::Crrn(crrn) => Some(crrn.rank(from)),
            Self::Delay(delay) => delay.rank(now),
        }
    }

    /// Whether a request of this rank may be served now.
    const fn may_go(&self, rank: Rank, now: Instant) -> bool {
        match self {
            Self::Fifo(_) | Self::Crrn(_) => true,
            Self::Delay(_) => rank.0 <= now.as_nanos(),
        }
    }

    /// A request of this rank is served.
    fn serves(&mut self, rank: Rank) {
        if let Self::Crrn(crrn) = self {
            crrn.serves(rank.0);
        }
    }

    /// A request of this client waits no longer.
    fn left(&mut self, from: Nid) {
        if let Self::Crrn(crrn) = self {
            crrn.left(from);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: ServedId,
    from: Nid,
}

#[derive(Debug)]
struct Queue {
    policy: Policy,
    waiting: BTreeMap<Rank, Waiting>,
}

impl Queue {
    const fn new(policy: Policy) -> Self {
        Self { policy, waiting: BTreeMap::new() }
    }

    fn ready(&self, now: Instant) -> bool {
        self.waiting.first_key_value().is_some_and(|(rank, _)| self.policy.may_go(*rank, now))
    }

    fn remove(&mut self, rank: Rank) -> Option<ServedId> {
        let gone = self.waiting.remove(&rank)?;
        self.policy.left(gone.from);
        Some(gone.id)
    }

    fn next(&mut self, now: Instant) -> Option<ServedId> {
        let rank = *self.waiting.first_key_value()?.0;
        if !self.policy.may_go(rank, now) {
            return None;
        }
        self.policy.serves(rank);
        self.remove(rank)
    }
}

/// The requests of one kind, regular or high-priority, that wait for a service.
#[derive(Debug)]
pub(crate) struct Head {
    fallback: Queue,
    primary: Option<Queue>,
    /// The queue that did not give the last request is asked first.
    primary_first: bool,
    arrivals: u64,
}

impl Head {
    pub(crate) fn new() -> Self {
        Self {
            fallback: Queue::new(Policy::Fifo(Fifo)),
            primary: None,
            primary_first: true,
            arrivals: 0,
        }
    }

    /// The policy that is asked first.
    pub(crate) fn policy(&self) -> PolicyKind {
        self.primary.as_ref().unwrap_or(&self.fallback).policy.kind()
    }

    pub(crate) fn len(&self) -> usize {
        self.fallback.waiting.len() + self.primary.as_ref().map_or(0, |q| q.waiting.len())
    }

    /// A request arrives (P-116).
    pub(crate) fn enqueue(&mut self, now: Instant, id: ServedId, from: Nid) -> Place {
        self.arrivals += 1;
        let waiting = Waiting { id, from };
        if let Some(queue) = &mut self.primary
            && let Some(first) = queue.policy.rank(now, from)
        {
            let rank = (first, self.arrivals);
            queue.waiting.insert(rank, waiting);
            return Place { primary: true, rank };
        }
        self.push_back(waiting)
    }

    /// At the end of the fallback's queue, whose first part of ranks is always the same.
    fn push_back(&mut self, waiting: Waiting) -> Place {
        let rank = (fifo::FIRST, self.arrivals);
        self.fallback.waiting.insert(rank, waiting);
        Place { primary: false, rank }
    }

    /// Takes a request out, wherever it stands.
    pub(crate) fn remove(&mut self, place: Place) -> Option<ServedId> {
        let queue = if place.primary { self.primary.as_mut()? } else { &mut self.fallback };
        queue.remove(place.rank)
    }

    /// Whether [`Head::next`] would give a request.
    pub(crate) fn ready(&self, now: Instant) -> bool {
        self.fallback.ready(now) || self.primary.as_ref().is_some_and(|q| q.ready(now))
    }

    /// The next request. Queues take turns, so that neither waits for the other to be empty (P-116).
    pub(crate) fn next(&mut self, now: Instant) -> Option<ServedId> {
        let Self { fallback, primary, primary_first, .. } = self;
        let Some(primary) = primary else { return fallback.next(now) };
        let first = if *primary_first { primary.next(now) } else { fallback.next(now) };
        if first.is_some() {
            *primary_first = !*primary_first;
            return first;
        }
        if *primary_first { fallback.next(now) } else { primary.next(now) }
    }

    /// When the next of the requests that wait for a time may go.
    pub(crate) fn due(&self) -> Option<Instant> {
        let queue = self.primary.as_ref()?;
        let Policy::Delay(_) = queue.policy else { return None };
        queue.waiting.first_key_value().map(|((start, _), _)| Instant(*start))
    }

    /// Starts a policy, if another runs. What waits under the one before is drained: it moves to the
    /// fallback in its order, may go at once, and has the new places that are returned.
    pub(crate) fn start(&mut self, kind: PolicyKind, prng: &mut Prng) -> Vec<(ServedId, Place)> {
        if self.policy() == kind {
            return Vec::new();
        }
        let policy = match kind {
            PolicyKind::Fifo => None,
            PolicyKind::Crrn => Some(Policy::Crrn(Crrn::default())),
            PolicyKind::Delay => Some(Policy::Delay(Delay::new(prng.split()))),
        };
        let before = core::mem::replace(&mut self.primary, policy.map(Queue::new));
        let mut moved = Vec::new();
        for waiting in before.into_iter().flat_map(|queue| queue.waiting.into_values()) {
            self.arrivals += 1;
            moved.push((waiting.id, self.push_back(waiting)));
        }
        moved
    }
}

#[cfg(test)]
mod tests;
