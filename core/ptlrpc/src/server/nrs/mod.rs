//! The order in which a service serves the requests that wait: a head with a fallback policy, which
//! is FIFO, and at most one other (P-116 … P-121). A policy gives a request its rank at arrival; the
//! lowest rank that may go, of a client that may have another slot (`heads.rs`), is served next. `fifo.rs`, `crrn.rs` and `delay.rs` hold the policies,
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
    from: Nid,
    rank: Rank,
}

/// A request whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) id: ServedId,
    /// The primary NID of its client.
    pub(crate) from: Nid,
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

/// Requests by client, and the first one of each client by rank: clients whose turn it is not cost a
/// step each, not one for each of their requests.
#[derive(Debug)]
struct Queue {
    policy: Policy,
    waiting: BTreeMap<(Nid, Rank), ServedId>,
    firsts: BTreeMap<Rank, Nid>,
}

impl Queue {
    const fn new(policy: Policy) -> Self {
        Self { policy, waiting: BTreeMap::new(), firsts: BTreeMap::new() }
    }

    /// The rank of a client's first request.
    fn first_of(&self, from: Nid) -> Option<Rank> {
        let its = self.waiting.range((from, (0, 0))..=(from, (u64::MAX, u64::MAX)));
        its.map(|((_, rank), _)| *rank).next()
    }

    fn insert(&mut self, rank: Rank, from: Nid, id: ServedId) {
        let before = self.first_of(from);
        if before.is_none_or(|before| rank < before) {
            before.map(|before| self.firsts.remove(&before));
            self.firsts.insert(rank, from);
        }
        self.waiting.insert((from, rank), id);
    }

    fn remove(&mut self, rank: Rank, from: Nid) -> Option<ServedId> {
        let id = self.waiting.remove(&(from, rank))?;
        if self.firsts.remove(&rank).is_some()
            && let Some(next) = self.first_of(from)
        {
            self.firsts.insert(next, from);
        }
        self.policy.left(from);
        Some(id)
    }

    /// The first request that may go, of a client that may have another slot.
    fn peek(&self, now: Instant, may: &impl Fn(Nid) -> bool) -> Option<(Rank, Nid)> {
        let due = self.firsts.iter().take_while(|(rank, _)| self.policy.may_go(**rank, now));
        due.map(|(rank, from)| (*rank, *from)).find(|(_, from)| may(*from))
    }

    fn take(&mut self, rank: Rank, from: Nid) -> Option<Next> {
        self.policy.serves(rank);
        let id = self.remove(rank, from)?;
        Some(Next { id, from })
    }

    /// All requests, in the order of their ranks.
    fn drain(self) -> Vec<Next> {
        let all = self.waiting.into_iter().map(|((from, rank), id)| (rank, Next { id, from }));
        let ranked: BTreeMap<Rank, Next> = all.collect();
        ranked.into_values().collect()
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

    /// Whether a request that arrives now would be the next, whatever its rank.
    pub(crate) fn is_open(&self) -> bool {
        self.primary.is_none() && self.fallback.firsts.is_empty()
    }

    /// A request arrives (P-116).
    pub(crate) fn enqueue(&mut self, now: Instant, id: ServedId, from: Nid) -> Place {
        self.arrivals += 1;
        if let Some(queue) = &mut self.primary
            && let Some(first) = queue.policy.rank(now, from)
        {
            let rank = (first, self.arrivals);
            queue.insert(rank, from, id);
            return Place { primary: true, from, rank };
        }
        self.push_back(Next { id, from })
    }

    /// At the end of the fallback's queue, whose first part of ranks is always the same.
    fn push_back(&mut self, Next { id, from }: Next) -> Place {
        let rank = (fifo::FIRST, self.arrivals);
        self.fallback.insert(rank, from, id);
        Place { primary: false, from, rank }
    }

    /// Takes a request out, wherever it stands.
    pub(crate) fn remove(&mut self, place: Place) -> Option<ServedId> {
        let queue = if place.primary { self.primary.as_mut()? } else { &mut self.fallback };
        queue.remove(place.rank, place.from)
    }

    /// Where the next request waits, of a client that `may` have another slot. Queues take turns, so
    /// that neither waits for the other to be empty (P-116).
    pub(crate) fn first(&self, now: Instant, may: &impl Fn(Nid) -> bool) -> Option<Place> {
        let of = |queue: &Queue, primary| {
            let (rank, from) = queue.peek(now, may)?;
            Some(Place { primary, from, rank })
        };
        let fallback = || of(&self.fallback, false);
        let primary = || self.primary.as_ref().and_then(|queue| of(queue, true));
        if self.primary_first { primary().or_else(fallback) } else { fallback().or_else(primary) }
    }

    /// Takes a request out whose turn it is.
    pub(crate) fn take(&mut self, place: Place) -> Option<Next> {
        let Place { primary, from, rank } = place;
        if primary == self.primary_first && self.primary.is_some() {
            self.primary_first = !self.primary_first;
        }
        let queue = if primary { self.primary.as_mut()? } else { &mut self.fallback };
        queue.take(rank, from)
    }

    /// When the next of the requests that wait for a time may go.
    pub(crate) fn due(&self) -> Option<Instant> {
        let queue = self.primary.as_ref()?;
        let Policy::Delay(_) = queue.policy else { return None };
        queue.firsts.first_key_value().map(|((start, _), _)| Instant(*start))
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
        for next in before.into_iter().flat_map(Queue::drain) {
            self.arrivals += 1;
            moved.push((next.id, self.push_back(next)));
        }
        moved
    }
}

#[cfg(test)]
mod tests;
