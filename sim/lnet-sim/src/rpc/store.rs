//! The store of a key-value target in a world: a store in memory that takes its time, can be full or
//! broken, and commits when its scenario says so. An order takes effect when its time is over, and not
//! before: a host that dies takes the orders that are under way with it.

use core::time::Duration;
use std::collections::VecDeque;

use lnet_scenario::{Share, StoreSpec};
use lnet_types::{Instant, Memory, Prng, iovec_len};
use lustre_target::store::{Change, Source, Space, Txn, gather};
use lustre_target::{MemoryStore, Origin, Store, StoreError, StoreFact, StoreOrder};

use super::seen::CallNo;

/// How a store misbehaves now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreTrouble {
    /// Nothing is committed.
    pub(super) stalled: bool,
    /// No value finds room.
    pub(super) full: bool,
    /// Part of the orders that fail.
    pub(super) errors: Share,
}

/// What was seen of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreSeen {
    /// A change of a key is visible.
    Changed {
        /// Its transaction at the target.
        transno: u64,
        /// The request behind it.
        origin: Option<Origin>,
        /// The number that the value begins with; `None`: the key is gone.
        value: Option<CallNo>,
        key: Vec<u8>,
    },
    /// Transactions of the target up to this one survive.
    Committed { transno: u64 },
}

/// See the module's head.
pub(super) struct SimStore {
    inner: MemoryStore,
    spec: StoreSpec,
    /// How long after a change it is committed.
    commit: Duration,
    trouble: StoreTrouble,
    now: Instant,
    /// Orders, each with the time of its effect.
    orders: VecDeque<(Instant, StoreOrder)>,
    /// Facts that `inner` does not have.
    facts: VecDeque<StoreFact>,
    /// When what was applied is committed.
    commit_at: Option<Instant>,
    /// Orders to commit that wait because nothing is committed now.
    syncs: Vec<u64>,
    /// The target's highest transaction that is applied.
    applied: u64,
    seen: Vec<StoreSeen>,
    rng: Prng,
}

/// The number at the beginning of a value.
fn stamp_of(value: &[u8]) -> CallNo {
    CallNo(value.first_chunk().map_or(0, |first| u64::from_le_bytes(*first)))
}

impl SimStore {
    pub(super) fn new(
        inner: MemoryStore,
        spec: StoreSpec,
        commit: Duration,
        now: Instant,
        rng: Prng,
    ) -> Self {
        Self {
            inner,
            spec,
            commit,
            trouble: StoreTrouble::default(),
            now,
            orders: VecDeque::new(),
            facts: VecDeque::new(),
            commit_at: None,
            syncs: Vec::new(),
            applied: 0,
            seen: Vec::new(),
            rng,
        }
    }

    /// What a crash leaves of it.
    pub(super) fn crashed(self) -> MemoryStore {
        self.inner.crashed()
    }

    /// It is `now`.
    pub(super) fn at(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    pub(super) fn trouble(&mut self, trouble: StoreTrouble) {
        self.trouble = trouble;
        self.inner.set_max(if trouble.full { 0 } else { self.spec.size.into() });
    }

    pub(super) fn take_seen(&mut self) -> Vec<StoreSeen> {
        core::mem::take(&mut self.seen)
    }

    /// When it has something to do.
    pub(super) fn next(&self) -> Option<Instant> {
        let order = self.orders.front().map(|(at, _)| *at);
        let commit = match self.syncs.is_empty() {
            false => Some(self.now),
            true => self.commit_at,
        };
        order.into_iter().chain(commit.filter(|_| !self.trouble.stalled)).min()
    }

    /// How long an order takes.
    fn cost(&self, order: &StoreOrder) -> Duration {
        let written = |change: &Change| match change {
            Change::Write { bytes, .. } => iovec_len(bytes),
            _ => 0,
        };
        let bytes = match order {
            StoreOrder::Apply(txn) => txn.changes.iter().map(written).sum(),
            StoreOrder::Read { from: Source::Data { into, .. }, .. } => iovec_len(into),
            _ => 0,
        };
        let nanos = |rate: u64| u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let moved = self.spec.bandwidth.map_or(0, nanos);
        self.spec.latency + Duration::from_nanos(u64::try_from(moved).unwrap_or(u64::MAX))
    }

    fn fails(&mut self) -> bool {
        let share = u64::from(self.trouble.errors.0);
        share > 0 && self.rng.below(1_000_000) < share
    }

    /// The fact of an order that fails; those to commit wait instead.
    fn failure(order: StoreOrder) -> Result<StoreFact, StoreOrder> {
        let e =
            StoreError::Io { what: "store".to_owned(), why: "broken by the scenario".to_owned() };
        match order {
            StoreOrder::Apply(txn) => Ok(StoreFact::Applied { txn: txn.id, result: Err(e) }),
            StoreOrder::Read { token, .. }
            | StoreOrder::List { token, .. }
            | StoreOrder::Checksum { token, .. }
            | StoreOrder::Space { token } => Ok(StoreFact::Done { token, outcome: Err(e) }),
            StoreOrder::Sync { .. } => Err(order),
        }
    }

    /// The effect of an order.
    fn execute(&mut self, order: StoreOrder, memory: &mut dyn Memory) {
        let order = match self.fails() {
            true => match Self::failure(order) {
                Ok(fact) => return self.facts.push_back(fact),
                Err(order) => order,
            },
            false => order,
        };
        match order {
            StoreOrder::Sync { token } => self.syncs.push(token),
            StoreOrder::Apply(txn) => self.apply(txn, memory),
            order => self.inner.order(order, memory),
        }
    }

    fn apply(&mut self, txn: Txn, memory: &mut dyn Memory) {
        let (transno, origin) = (txn.transno(), txn.origin());
        let written = txn.changes.iter().find_map(|change| match change {
            Change::Write { offset: 0, bytes, .. } => {
                let first = lnet_types::iovec_slice(bytes, 0, iovec_len(bytes).min(8));
                Some(stamp_of(&gather(memory, &first)))
            }
            _ => None,
        });
        let change = txn.changes.iter().find_map(|change| match change {
            Change::Put(Space::Objects, key, record) => {
                // The record of an item begins with its version and the kind of its value.
                let value = written.or_else(|| record.get(9..).map(stamp_of));
                Some((key.clone(), value))
            }
            Change::Delete(Space::Objects, key) => Some((key.clone(), None)),
            _ => None,
        });
        self.inner.order(StoreOrder::Apply(txn), memory);
        if !matches!(self.inner.peek(), Some(StoreFact::Applied { result: Ok(()), .. })) {
            return;
        }
        if let Some(transno) = transno {
            self.applied = self.applied.max(transno);
            if let Some((key, value)) = change {
                self.seen.push(StoreSeen::Changed { transno, origin, value, key });
            }
        }
        self.commit_at.get_or_insert(self.now + self.commit);
    }

    fn commit_due(&self) -> bool {
        let due = !self.syncs.is_empty() || self.commit_at.is_some_and(|at| at <= self.now);
        due && !self.trouble.stalled
    }

    fn commit(&mut self) {
        self.commit_at = None;
        self.inner.commit();
        self.seen.push(StoreSeen::Committed { transno: self.applied });
        for token in core::mem::take(&mut self.syncs) {
            self.facts.push_back(StoreFact::Done {
                token,
                outcome: Ok(lustre_target::store::Outcome::Done),
            });
        }
    }
}

impl Store for SimStore {
    fn order(&mut self, order: StoreOrder, _: &mut dyn Memory) {
        let busy = self.orders.back().map_or(self.now, |(at, _)| (*at).max(self.now));
        let at = busy + self.cost(&order);
        self.orders.push_back((at, order));
    }

    fn poll(&mut self, memory: &mut dyn Memory) -> Option<StoreFact> {
        loop {
            if let Some(fact) = self.inner.poll(memory).or_else(|| self.facts.pop_front()) {
                return Some(fact);
            }
            if self.commit_due() {
                self.commit();
                continue;
            }
            if self.orders.front().is_none_or(|(at, _)| *at > self.now) {
                return None;
            }
            if let Some((_, order)) = self.orders.pop_front() {
                self.execute(order, memory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lustre_target::Commit;
    use lustre_target::conformance::{Slate, Subject, check};

    use super::*;

    const NEVER: Duration = Duration::from_secs(1 << 30);

    fn store(commit: Duration, inner: MemoryStore) -> SimStore {
        let latency = Duration::from_millis(1);
        let spec = StoreSpec { latency, bandwidth: Some(1 << 20), ..StoreSpec::default() };
        SimStore::new(inner, spec, commit, Instant::ZERO, Prng::new(1))
    }

    fn empty() -> MemoryStore {
        MemoryStore::new(Commit::Ordered, 1 << 30)
    }

    struct Simulated(Duration, Option<MemoryStore>);

    impl Subject for Simulated {
        type Store = SimStore;

        fn open(&mut self) -> Result<SimStore, String> {
            Ok(store(self.0, self.1.take().unwrap_or_else(empty)))
        }

        fn crash(&mut self, store: SimStore) {
            self.1 = Some(store.crashed());
        }

        fn wait(&mut self, store: &mut SimStore) {
            let next = store.next().unwrap_or(store.now);
            store.at(next);
        }
    }

    #[test]
    fn simulated_store_conforms_whenever_it_commits() {
        for commit in [Duration::ZERO, Duration::from_millis(3), NEVER] {
            check(&mut Simulated(commit, None)).unwrap();
        }
    }

    fn put(id: u64) -> StoreOrder {
        let changes = vec![Change::Put(Space::Objects, vec![id as u8], vec![0; 20])];
        StoreOrder::Apply(Txn { id, changes, must: false })
    }

    /// What it reports until `secs`.
    fn facts(store: &mut SimStore, secs: u64) -> Vec<StoreFact> {
        store.at(Instant::from_secs(secs));
        let mut slate = Slate::default();
        core::iter::from_fn(|| store.poll(&mut slate)).collect()
    }

    #[test]
    fn order_has_no_effect_before_its_time_and_none_is_left_of_it_after_a_crash() {
        let mut store = store(Duration::ZERO, empty());
        store.order(put(1), &mut Slate::default());
        assert_eq!(facts(&mut store, 0), []);
        let mut store = self::store(Duration::ZERO, store.crashed());
        store.order(
            StoreOrder::Read { token: 5, from: Source::Record(Space::Objects, vec![1]) },
            &mut Slate::default(),
        );
        let outcome = Ok(lustre_target::store::Outcome::Record(None));
        assert_eq!(facts(&mut store, 1), [StoreFact::Done { token: 5, outcome }]);
    }

    #[test]
    fn stalled_store_applies_and_commits_only_when_it_goes_on() {
        let mut store = store(Duration::from_secs(1), empty());
        store.trouble(StoreTrouble { stalled: true, ..StoreTrouble::default() });
        store.order(put(1), &mut Slate::default());
        store.order(StoreOrder::Sync { token: 7 }, &mut Slate::default());
        assert_eq!(facts(&mut store, 9), [StoreFact::Applied { txn: 1, result: Ok(()) }]);
        assert_eq!(store.next(), None);
        store.trouble(StoreTrouble::default());
        let done = StoreFact::Done { token: 7, outcome: Ok(lustre_target::store::Outcome::Done) };
        assert_eq!(facts(&mut store, 9), [StoreFact::Committed { up_to: 1 }, done]);
    }

    #[test]
    fn full_and_broken_stores_refuse_by_name_until_they_are_mended() {
        let mut store = store(Duration::from_secs(1), empty());
        let full = StoreTrouble { full: true, ..StoreTrouble::default() };
        let broken = StoreTrouble { errors: Share::ALL, ..StoreTrouble::default() };
        for (id, trouble) in [(1, full), (2, broken)] {
            store.trouble(trouble);
            store.order(put(id), &mut Slate::default());
            let facts = facts(&mut store, id);
            let [StoreFact::Applied { result: Err(e), .. }] = &facts[..] else {
                panic!("{facts:?}")
            };
            assert_eq!(e.is_refusal(), trouble.full, "{e}");
        }
        store.trouble(StoreTrouble::default());
        store.order(put(3), &mut Slate::default());
        let applied = StoreFact::Applied { txn: 3, result: Ok(()) };
        assert_eq!(facts(&mut store, 9).first(), Some(&applied));
    }
}
