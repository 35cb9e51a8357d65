//! The store in memory: for targets that need not survive, and for tests. It commits when it is
//! ordered to, or after each order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lnet_types::{IoVec, Memory, Span, iovec_len, iovec_slice};

use crate::store::{
    Change, DataId, LIST_MAX, Outcome, Source, Space, Store, StoreError, StoreFact, StoreOrder,
    Txn, checksum, gather,
};

/// Bytes of a block of data.
const BLOCK: u64 = 64 << 10;
/// Pieces of memory that are kept for later.
const SPARE_MAX: usize = 16;

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
    /// Blocks as far as they were written, zeros behind that. A read has them as they were when it was
    /// ordered, without a copy.
    blocks: BTreeMap<Place, Block>,
    /// Bytes of records and blocks.
    used: u64,
    last: u64,
}

/// The bytes of a block: all of their memory, or a part of what was written at once and came here as it was.
#[derive(Clone, Debug, Default)]
struct Block {
    bytes: Arc<Vec<u8>>,
    from: usize,
    len: usize,
}

impl Block {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(self.from..self.from + self.len).unwrap_or_default()
    }

    /// Changes the bytes, in memory of their own.
    fn change(&mut self, f: impl FnOnce(&mut Vec<u8>)) {
        if self.len != self.bytes.len() {
            (self.bytes, self.from) = (Arc::new(self.bytes().to_vec()), 0);
        }
        let bytes = Arc::make_mut(&mut self.bytes);
        f(bytes);
        self.len = bytes.len();
    }
}

/// A transaction, and the bytes of its writes.
type Whole = (Txn, Vec<Vec<u8>>);

/// A part of a block, to be copied to where it was read to.
#[derive(Debug)]
struct Part {
    block: Block,
    /// Where it begins in the block, and in what was read.
    skip: usize,
    to: u64,
}

/// The memory that data is read to, and what there is of them; the rest is zeros.
type Loaded = Option<(IoVec, Vec<Part>)>;

/// Copies what was read to its memory.
fn deliver(memory: &mut dyn Memory, into: &IoVec, parts: &[Part]) {
    let zero = |memory: &mut dyn Memory, from: u64, to: u64| {
        let spans = iovec_slice(into, from, to.saturating_sub(from));
        spans.into_iter().for_each(|span| memory.bytes_mut(span).fill(0));
    };
    let mut at = 0;
    for Part { block, skip, to } in parts {
        zero(memory, at, *to);
        let mut bytes = block.bytes().get(*skip..).unwrap_or_default();
        at = *to;
        for span in iovec_slice(into, *to, bytes.len() as u64) {
            let (here, behind) = bytes.split_at(bytes.len().min(span.len as usize));
            memory.bytes_mut(span).copy_from_slice(here);
            (bytes, at) = (behind, at + u64::from(span.len));
        }
    }
    zero(memory, at, iovec_len(into));
}

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
    /// Memory that no block has any more, for what is written next.
    spare: Vec<Vec<u8>>,
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
            spare: Vec::new(),
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
            let mut bytes = bytes.into_iter();
            self.committed.take(txn, |state, data, offset, _| {
                state.write(data, offset, &bytes.next().unwrap_or_default());
            });
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

    fn apply(&mut self, txn: Txn, memory: &mut dyn Memory) -> Result<(), StoreError> {
        txn.check(self.state.last)?;
        let grows = txn.grows();
        if grows > 0 && !txn.must && self.state.used + grows > self.max {
            return Err(StoreError::Full);
        }
        if self.commit == Commit::Ordered {
            let bytes = txn.writes().map(|spans| gather(memory, spans)).collect();
            self.pending.push((txn.clone(), bytes));
        }
        let Self { state, spare, .. } = self;
        state.take(txn, |state, data, mut offset, spans| {
            for span in spans {
                match exchanged(memory, *span, offset, spare) {
                    Some(bytes) => state.adopt(data, offset, bytes, spare),
                    None => state.write(data, offset, memory.bytes(*span)),
                }
                offset += u64::from(span.len);
            }
        });
        Ok(())
    }

    fn read(&self, from: Source) -> Result<(Outcome, Loaded), StoreError> {
        from.check()?;
        match from {
            Source::Record(space, key) => {
                Ok((Outcome::Record(self.state.records.get(&(space, key)).cloned()), None))
            }
            Source::Data { data, offset, into } => {
                let parts = self.state.read(data, offset, iovec_len(&into));
                Ok((Outcome::Done, Some((into, parts))))
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

/// The bytes of a span, if they are whole blocks and the memory gives them away.
fn exchanged(
    memory: &mut dyn Memory,
    span: Span,
    offset: u64,
    spare: &mut Vec<Vec<u8>>,
) -> Option<Vec<u8>> {
    if span.len == 0 || !offset.is_multiple_of(BLOCK) || !u64::from(span.len).is_multiple_of(BLOCK)
    {
        return None;
    }
    let len = span.len as usize;
    let other = spare.pop().filter(|bytes| bytes.len() == len).unwrap_or_else(|| vec![0; len]);
    memory.exchange(span, other).map_err(|other| spare.push(other)).ok()
}

impl State {
    /// Carries a transaction out; `write` carries out its writes.
    fn take(&mut self, txn: Txn, mut write: impl FnMut(&mut Self, DataId, u64, &IoVec)) {
        self.last = txn.id;
        for change in txn.changes {
            match change {
                Change::Put(space, key, value) => {
                    let len = (key.len() + value.len()) as u64;
                    self.delete(space, key.clone());
                    self.records.insert((space, key), value);
                    self.used += len;
                }
                Change::Delete(space, key) => self.delete(space, key),
                Change::Write { data, offset, bytes } => write(self, data, offset, &bytes),
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
            let before = stored.len;
            stored.change(|stored| {
                stored.resize(before.max(at), 0);
                let (over, behind) = part.split_at(part.len().min(stored.len() - at));
                if let Some(to) = stored.get_mut(at..at + over.len()) {
                    to.copy_from_slice(over);
                }
                stored.extend_from_slice(behind);
            });
            self.used += (stored.len - before) as u64;
            offset += part.len() as u64;
            bytes = rest;
        }
    }

    /// Writes whole blocks, whose bytes stay where they are.
    fn adopt(&mut self, data: DataId, offset: u64, bytes: Vec<u8>, spare: &mut Vec<Vec<u8>>) {
        let (bytes, len) = (Arc::new(bytes), BLOCK as usize);
        for (number, from) in (offset / BLOCK..).zip((0..bytes.len()).step_by(len)) {
            let block = Block { bytes: Arc::clone(&bytes), from, len };
            self.used += BLOCK;
            let Some(before) = self.blocks.insert((data, number), block) else { continue };
            self.used -= before.len as u64;
            if spare.len() < SPARE_MAX {
                spare.extend(Arc::into_inner(before.bytes).filter(|b| b.len() == bytes.len()));
            }
        }
    }

    fn cut(&mut self, data: DataId, from: u64) {
        let (block, keep) = (from / BLOCK, (from % BLOCK) as usize);
        let gone: Vec<Place> =
            self.blocks.range((data, block)..=(data, u64::MAX)).map(|(place, _)| *place).collect();
        for place in gone {
            let Some(mut bytes) = self.blocks.remove(&place) else { continue };
            let left = if place.1 == block { keep.min(bytes.len) } else { 0 };
            self.used -= (bytes.len - left) as u64;
            if left > 0 {
                bytes.change(|bytes| bytes.truncate(left));
                self.blocks.insert(place, bytes);
            }
        }
    }

    /// What there is of a range.
    fn read(&self, data: DataId, offset: u64, len: u64) -> Vec<Part> {
        let (first, end) = (offset / BLOCK, offset + len);
        let blocks = self.blocks.range((data, first)..(data, end.div_ceil(BLOCK)));
        let part = |((_, number), block): (&Place, &Block)| {
            let start = number * BLOCK;
            let (skip, to) = (offset.saturating_sub(start), start.saturating_sub(offset));
            // Less than a block.
            Part { block: block.clone(), skip: skip as usize, to }
        };
        blocks.map(part).collect()
    }
}

impl Store for MemoryStore {
    fn order(&mut self, order: StoreOrder, memory: &mut dyn Memory) {
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
        if let Some((into, parts)) = loaded {
            deliver(memory, &into, &parts);
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

    /// One region, which gives its bytes away.
    struct Region(Vec<u8>);

    impl Memory for Region {
        fn bytes(&self, span: Span) -> &[u8] {
            &self.0[span.offset as usize..][..span.len as usize]
        }

        fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
            &mut self.0[span.offset as usize..][..span.len as usize]
        }

        fn exchange(&mut self, span: Span, bytes: Vec<u8>) -> Result<Vec<u8>, Vec<u8>> {
            assert_eq!((span.len as usize, bytes.len()), (self.0.len(), self.0.len()));
            Ok(core::mem::replace(&mut self.0, bytes))
        }
    }

    #[test]
    fn whole_blocks_stay_where_they_came_and_change_each_by_itself() {
        let (mut store, block) = (MemoryStore::new(Commit::AtOnce, 1 << 30), BLOCK as usize);
        let mut id = 0;
        let mut apply = |store: &mut MemoryStore, memory: &mut dyn Memory, change| {
            id += 1;
            let txn = Txn { id, changes: vec![change], must: false };
            store.apply(txn, memory).unwrap();
        };
        let write =
            |offset, len| Change::Write { data: DataId(1), offset, bytes: Slate::span(0, len) };
        let read = |store: &mut MemoryStore| {
            let (mut slate, into) = (Slate(vec![9; 4 * block]), Slate::span(0, 4 * block));
            let from = Source::Data { data: DataId(1), offset: 0, into };
            store.order(StoreOrder::Read { token: 1, from }, &mut slate);
            while store.poll(&mut slate).is_some() {}
            slate.0
        };
        let mut memory = Region(vec![1; 2 * block]);
        let places: Vec<*const u8> = vec![memory.0.as_ptr()];
        apply(&mut store, &mut memory, write(BLOCK, 2 * block));
        assert_eq!(store.state.blocks[&(DataId(1), 1)].bytes.as_ptr(), places[0]);
        let zeros = || vec![0; block];
        assert_eq!(read(&mut store), [zeros(), vec![1; 2 * block], zeros()].concat());
        // A part of the second one, and a cut in the first.
        apply(&mut store, &mut Slate(vec![2; 10]), write(2 * BLOCK + 5, 10));
        let expected = [zeros(), vec![1; block + 5], vec![2; 10], vec![1; block - 15], zeros()];
        assert_eq!(read(&mut store), expected.concat());
        apply(&mut store, &mut Slate(vec![]), Change::Cut { data: DataId(1), from: BLOCK + 7 });
        assert_eq!(read(&mut store), [zeros(), vec![1; 7], vec![0; 3 * block - 7]].concat());
        assert_eq!(store.state.used, 7);
        // What was ordered to be read before a write is read as it was.
        memory.0.fill(3);
        apply(&mut store, &mut memory, write(0, 2 * block));
        let (mut slate, into) = (Slate(vec![9; 8]), Slate::span(0, 8));
        let from = Source::Data { data: DataId(1), offset: 0, into };
        store.order(StoreOrder::Read { token: 1, from }, &mut slate);
        memory.0.fill(4);
        apply(&mut store, &mut memory, write(0, 2 * block));
        while store.poll(&mut slate).is_some() {}
        assert_eq!((slate.0, &read(&mut store)[..8]), (vec![3; 8], &[4; 8][..]));
        assert_eq!(store.state.used, 2 * BLOCK);
    }

    #[test]
    fn full_store_refuses_what_grows_by_name_but_takes_what_shrinks() {
        let mut store = MemoryStore::new(Commit::AtOnce, 20);
        let mut slate = Slate(vec![7; 11]);
        let mut apply =
            |id, change| store.apply(Txn { id, changes: vec![change], must: false }, &mut slate);
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
