//! The store in memory: for targets that need not survive, and for tests. It commits when it is
//! ordered to, or after each order.

use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Memory, iovec_len};

use crate::store::{
    Change, DataId, LIST_MAX, Loaded, Outcome, Source, Space, Store, StoreError, StoreFact,
    StoreOrder, Txn, checksum, scatter,
};

/// Bytes of a block of data.
const BLOCK: u64 = 64 << 10;

/// When applied transactions are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// With each order.
    AtOnce,
    /// With [`StoreOrder::Sync`] and [`MemoryStore::commit`].
    Ordered,
}

/// The place of a block: its data, and its number there.
type Place = (DataId, u64);

#[derive(Clone, Debug, Default)]
struct State {
    records: BTreeMap<(Space, Vec<u8>), Vec<u8>>,
    /// Blocks as far as they were written, zeros behind that.
    blocks: BTreeMap<Place, Vec<u8>>,
    /// Bytes of records and blocks.
    used: u64,
    last: u64,
}

/// A transaction, and the bytes of its writes.
type Whole = (Txn, Vec<Vec<u8>>);

/// Records and data in memory.
#[derive(Debug)]
pub struct MemoryStore {
    commit: Commit,
    state: State,
    /// What survives a crash, if that is not all.
    committed: State,
    /// Applied, and not committed.
    pending: Vec<Whole>,
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
        if self.state.last == self.committed.last {
            return;
        }
        for (txn, bytes) in core::mem::take(&mut self.pending) {
            self.committed.take(txn, bytes);
        }
        self.committed.last = self.state.last;
        self.facts.push_back((StoreFact::Committed { up_to: self.state.last }, None));
    }

    /// The store after a crash: what was committed, and nothing else.
    #[must_use]
    pub fn crashed(self) -> Self {
        let survivor = match self.commit {
            Commit::AtOnce => self.state,
            Commit::Ordered => self.committed,
        };
        // Numbers of transactions begin anew with each life.
        let state = State { last: 0, ..survivor };
        let committed = match self.commit {
            Commit::AtOnce => State::default(),
            Commit::Ordered => state.clone(),
        };
        Self { state, committed, ..Self::new(self.commit, self.max) }
    }

    fn apply(&mut self, txn: Txn, memory: &dyn Memory) -> Result<(), StoreError> {
        txn.check(self.state.last)?;
        let grows = txn.grows();
        if grows > 0 && !txn.must && self.state.used + grows > self.max {
            return Err(StoreError::Full);
        }
        let bytes = txn.gather(memory, Vec::with_capacity);
        match self.commit {
            Commit::AtOnce => self.state.take(txn, bytes),
            Commit::Ordered => {
                self.state.take(txn.clone(), bytes.clone());
                self.pending.push((txn, bytes));
            }
        }
        Ok(())
    }

    fn read(&self, from: Source) -> Result<(Outcome, Loaded), StoreError> {
        from.check()?;
        match from {
            Source::Record(space, key) => {
                Ok((Outcome::Record(self.state.records.get(&(space, key)).cloned()), None))
            }
            Source::Data { data, offset, into } => {
                let bytes = self.state.read(data, offset, iovec_len(&into));
                Ok((Outcome::Done, Some((into, bytes))))
            }
        }
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
    fn take(&mut self, txn: Txn, bytes: Vec<Vec<u8>>) {
        self.last = txn.id;
        let mut bytes = bytes.into_iter();
        for change in txn.changes {
            match change {
                Change::Put(space, key, value) => {
                    let len = (key.len() + value.len()) as u64;
                    self.delete(space, key.clone());
                    self.records.insert((space, key), value);
                    self.used += len;
                }
                Change::Delete(space, key) => self.delete(space, key),
                Change::Write { data, offset, .. } => {
                    self.write(data, offset, &bytes.next().unwrap_or_default());
                }
                Change::Cut { data, from } => self.cut(data, from),
            }
        }
    }

    fn delete(&mut self, space: Space, key: Vec<u8>) {
        let len = key.len();
        if let Some(old) = self.records.remove(&(space, key)) {
            self.used -= (len + old.len()) as u64;
        }
    }

    fn write(&mut self, data: DataId, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (block, at) = (offset / BLOCK, (offset % BLOCK) as usize);
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK as usize - at));
            let stored = self.blocks.entry((data, block)).or_default();
            let before = stored.len();
            stored.resize(before.max(at + part.len()), 0);
            if let Some(to) = stored.get_mut(at..at + part.len()) {
                to.copy_from_slice(part);
            }
            self.used += (stored.len() - before) as u64;
            offset += part.len() as u64;
            bytes = rest;
        }
    }

    fn cut(&mut self, data: DataId, from: u64) {
        let (block, keep) = (from / BLOCK, (from % BLOCK) as usize);
        let gone: Vec<Place> =
            self.blocks.range((data, block)..=(data, u64::MAX)).map(|(place, _)| *place).collect();
        for place in gone {
            let Some(mut bytes) = self.blocks.remove(&place) else { continue };
            let before = bytes.len();
            bytes.truncate(if place.1 == block { keep } else { 0 });
            self.used -= (before - bytes.len()) as u64;
            if !bytes.is_empty() {
                self.blocks.insert(place, bytes);
            }
        }
    }

    fn read(&self, data: DataId, offset: u64, len: u64) -> Vec<u8> {
        // A read is no longer than the memory that it fills.
        let mut out = vec![0; len as usize];
        let (first, end) = (offset / BLOCK, offset + len);
        for ((_, block), bytes) in self.blocks.range((data, first)..(data, end.div_ceil(BLOCK))) {
            let start = block * BLOCK;
            let skip = offset.saturating_sub(start) as usize;
            let to = start.saturating_sub(offset) as usize;
            let (Some(bytes), Some(out)) = (bytes.get(skip..), out.get_mut(to..)) else { continue };
            out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
        }
        out
    }
}

impl Store for MemoryStore {
    fn order(&mut self, order: StoreOrder, memory: &dyn Memory) {
        let mut loaded = None;
        let fact = match order {
            StoreOrder::Apply(txn) => {
                let id = txn.id;
                StoreFact::Applied { txn: id, result: self.apply(txn, memory) }
            }
            StoreOrder::Read { token, from } => {
                let outcome = self.read(from).map(|(outcome, data)| {
                    loaded = data;
                    outcome
                });
                StoreFact::Done { token, outcome }
            }
            StoreOrder::Checksum { token, kind, bytes } => {
                let sum = Outcome::Checksum(checksum(memory, kind, &bytes));
                StoreFact::Done { token, outcome: Ok(sum) }
            }
            StoreOrder::Space { token } => {
                let free = self.max.saturating_sub(self.state.used);
                let outcome = Ok(Outcome::Space { total: self.max, free });
                StoreFact::Done { token, outcome }
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
    use crate::conformance::{Slate, Subject, check};

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
    fn full_store_refuses_what_grows_by_name_but_takes_what_shrinks() {
        let mut store = MemoryStore::new(Commit::AtOnce, 20);
        let slate = Slate(vec![7; 11]);
        let mut apply =
            |id, change| store.apply(Txn { id, changes: vec![change], must: false }, &slate);
        let put = |len| Change::Put(Space::Objects, vec![1], vec![0; len]);
        let write = |len| {
            let bytes = Slate::span(0, len);
            Change::Write { data: DataId(1), offset: 1 << 40, bytes }
        };
        assert_eq!(apply(1, put(9)), Ok(()));
        assert_eq!(apply(2, write(11)), Err(StoreError::Full));
        assert_eq!(apply(3, write(10)), Ok(()));
        assert_eq!(apply(4, put(1)), Err(StoreError::Full));
        assert_eq!(apply(5, Change::Cut { data: DataId(1), from: (1 << 40) + 9 }), Ok(()));
        assert_eq!(apply(6, Change::Delete(Space::Objects, vec![1])), Ok(()));
        assert_eq!(store.state.used, 9);
    }
}
