//! The store in memory: for targets that need not survive, and for tests. It commits when it is
//! ordered to, or after each order.

use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Memory, iovec_len};

use crate::store::{
    Change, DATA_MAX, DataId, LIST_MAX, Loaded, Outcome, Source, Space, Store, StoreError,
    StoreFact, StoreOrder, Txn, gather, limit, scatter,
};

/// When applied transactions are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// With each order.
    AtOnce,
    /// With [`StoreOrder::Sync`] and [`MemoryStore::commit`].
    Ordered,
}

#[derive(Clone, Debug, Default)]
struct State {
    records: BTreeMap<(Space, Vec<u8>), Vec<u8>>,
    data: BTreeMap<DataId, Vec<u8>>,
    last: u64,
}

/// Records and data in memory.
#[derive(Debug)]
pub struct MemoryStore {
    commit: Commit,
    state: State,
    committed: State,
    /// Applied, and not committed.
    pending: Vec<Txn>,
    /// Written, and not kept: lost with a crash.
    written: BTreeMap<DataId, Vec<u8>>,
    /// Most bytes of records and data.
    max: u64,
    facts: VecDeque<(StoreFact, Loaded)>,
}

impl MemoryStore {
    /// An empty store for at most `max` bytes.
    pub fn new(commit: Commit, max: u64) -> Self {
        Self {
            commit,
            state: State::default(),
            committed: State::default(),
            pending: Vec::new(),
            written: BTreeMap::new(),
            max,
            facts: VecDeque::new(),
        }
    }

    /// The fact that the next poll gives.
    pub fn peek(&self) -> Option<&StoreFact> {
        self.facts.front().map(|(fact, _)| fact)
    }

    /// Changes the most bytes that it may hold.
    pub fn set_max(&mut self, max: u64) {
        self.max = max;
    }

    /// Commits everything that was applied.
    pub fn commit(&mut self) {
        let Some(last) = self.pending.last().map(|txn| txn.id) else { return };
        for txn in core::mem::take(&mut self.pending) {
            self.committed.take(&txn, &self.state.data);
        }
        self.facts.push_back((StoreFact::Committed { up_to: last }, None));
    }

    /// The store after a crash: what was committed, and nothing else.
    #[must_use]
    pub fn crashed(self) -> Self {
        // Numbers of transactions begin anew with each life.
        let state = State { last: 0, ..self.committed };
        Self { state: state.clone(), committed: state, ..Self::new(self.commit, self.max) }
    }

    fn used(&self) -> u64 {
        let records = self.state.records.iter().map(|((_, k), v)| k.len() + v.len());
        let data = self.state.data.values().chain(self.written.values()).map(Vec::len);
        records.chain(data).sum::<usize>() as u64
    }

    fn apply(&mut self, txn: Txn) -> Result<(), StoreError> {
        txn.check(self.state.last)?;
        let mut grows = 0;
        for change in &txn.changes {
            match change {
                // What a target records of its clients always finds room: it is bounded by their
                // number, and a delete needs some.
                Change::Put(Space::Objects, key, value) => {
                    grows += (key.len() + value.len()) as u64
                }
                Change::Put(..) => {}
                Change::Keep(data, need) => {
                    let written = self.written.get(data).ok_or(StoreError::NoData(data.0))?;
                    let (data, need, have) = (data.0, *need, written.len() as u64);
                    if have != need {
                        return Err(StoreError::Length { data, have, need });
                    }
                }
                Change::Delete(..) | Change::Drop(_) => {}
            }
        }
        if grows > 0 && self.used() + grows > self.max {
            return Err(StoreError::Full);
        }
        self.state.take(&txn, &self.written);
        for change in &txn.changes {
            if let Change::Keep(data, _) | Change::Drop(data) = change {
                self.written.remove(data);
            }
        }
        self.pending.push(txn);
        Ok(())
    }

    fn read(&self, from: Source) -> Result<(Outcome, Loaded), StoreError> {
        match from {
            Source::Record(space, key) => {
                Ok((Outcome::Record(self.state.records.get(&(space, key)).cloned()), None))
            }
            Source::Data(data, into) => {
                let bytes = self.state.data.get(&data).ok_or(StoreError::NoData(data.0))?;
                let (have, need) = (bytes.len() as u64, iovec_len(&into));
                if have != need {
                    return Err(StoreError::Length { data: data.0, have, need });
                }
                Ok((Outcome::Done, Some((into, bytes.clone()))))
            }
        }
    }

    fn write(&mut self, data: DataId, bytes: Vec<u8>) -> Result<Outcome, StoreError> {
        limit("data", bytes.len() as u64, DATA_MAX)?;
        if self.used() + bytes.len() as u64 > self.max {
            return Err(StoreError::Full);
        }
        self.written.insert(data, bytes);
        Ok(Outcome::Done)
    }

    fn list(&self, space: Space, after: Vec<u8>, prefix: &[u8], max: usize) -> Outcome {
        let from = if after.as_slice() < prefix { prefix.to_vec() } else { after.clone() };
        let mut found = self
            .state
            .records
            .range((space, from)..)
            .take_while(|((s, key), _)| *s == space && key.starts_with(prefix))
            .filter(|((_, key), _)| after.is_empty() || *key > after)
            .map(|((_, key), value)| (key.clone(), value.clone()));
        let entries = found.by_ref().take(max.min(LIST_MAX)).collect();
        Outcome::Listed { entries, more: found.next().is_some() }
    }
}

impl State {
    /// Data that the transaction keeps is taken from `written`.
    fn take(&mut self, txn: &Txn, written: &BTreeMap<DataId, Vec<u8>>) {
        self.last = txn.id;
        for change in &txn.changes {
            match change {
                Change::Put(space, key, value) => {
                    self.records.insert((*space, key.clone()), value.clone());
                }
                Change::Delete(space, key) => {
                    self.records.remove(&(*space, key.clone()));
                }
                // Data that a later transaction has dropped is not missed.
                Change::Keep(data, _) => {
                    if let Some(bytes) = written.get(data) {
                        self.data.insert(*data, bytes.clone());
                    }
                }
                Change::Drop(data) => {
                    self.data.remove(data);
                }
            }
        }
    }
}

impl Store for MemoryStore {
    fn order(&mut self, order: StoreOrder, memory: &dyn Memory) {
        let mut loaded = None;
        let fact = match order {
            StoreOrder::Apply(txn) => {
                let id = txn.id;
                StoreFact::Applied { txn: id, result: self.apply(txn) }
            }
            StoreOrder::Read { token, from } => {
                let outcome = self.read(from).map(|(outcome, data)| {
                    loaded = data;
                    outcome
                });
                StoreFact::Done { token, outcome }
            }
            StoreOrder::Write { token, data, bytes } => {
                StoreFact::Done { token, outcome: self.write(data, gather(memory, &bytes)) }
            }
            StoreOrder::Sync { token } => {
                self.commit();
                StoreFact::Done { token, outcome: Ok(Outcome::Done) }
            }
            StoreOrder::List { token, space, after, prefix, max } => {
                StoreFact::Done { token, outcome: Ok(self.list(space, after, &prefix, max)) }
            }
        };
        self.facts.push_back((fact, loaded));
        if self.commit == Commit::AtOnce {
            self.commit();
        }
    }

    fn poll(&mut self, memory: &mut dyn Memory) -> Option<StoreFact> {
        let (fact, loaded) = self.facts.pop_front()?;
        if let Some((into, bytes)) = loaded {
            scatter(memory, &into, &bytes);
        }
        Some(fact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Subject, check};

    struct InMemory(Commit, Option<MemoryStore>);

    impl Subject for InMemory {
        type Store = MemoryStore;

        fn open(&mut self) -> Result<MemoryStore, String> {
            Ok(self.1.take().unwrap_or_else(|| MemoryStore::new(self.0, 1 << 30)))
        }

        fn crash(&mut self, store: MemoryStore) {
            self.1 = Some(store.crashed());
        }

        fn wait(&mut self, _: &mut MemoryStore) {}
    }

    #[test]
    fn store_in_memory_conforms_whenever_it_commits() {
        for commit in [Commit::AtOnce, Commit::Ordered] {
            check(&mut InMemory(commit, None)).unwrap();
        }
    }

    #[test]
    fn full_store_refuses_puts_by_name_but_takes_deletes() {
        let mut store = MemoryStore::new(Commit::AtOnce, 20);
        let put = |id, len| Txn {
            id,
            changes: vec![Change::Put(Space::Objects, vec![id as u8], vec![0; len])],
        };
        assert_eq!(store.apply(put(1, 10)), Ok(()));
        assert_eq!(store.apply(put(2, 10)), Err(StoreError::Full));
        let delete = Change::Delete(Space::Objects, vec![1]);
        let record = Change::Put(Space::Replies, vec![1; 10], vec![0; 50]);
        assert_eq!(store.apply(Txn { id: 3, changes: vec![delete, record] }), Ok(()));
        store.set_max(100);
        assert_eq!(store.apply(put(4, 10)), Ok(()));
        store.set_max(0);
        assert_eq!(store.apply(put(5, 0)), Err(StoreError::Full));
    }
}
