//! What each store promises, as a test that any store can be put through: a store that passes may
//! serve a target. Breaches come back as text.

use lnet_types::{IoVec, Memory, RegionId, Span};

use crate::store::{
    Change, DataId, KEY_MAX, Outcome, RECORD_MAX, Source, Space, Store, StoreError, StoreFact,
    StoreOrder, Txn,
};

/// A store under test, with its lives.
pub trait Subject {
    /// The store.
    type Store: Store;

    /// Opens the store: empty the first time, with what survived later.
    ///
    /// # Errors
    /// Why it can't be opened.
    fn open(&mut self) -> Result<Self::Store, String>;

    /// Ends the life of the store at once; what is not committed may be lost.
    fn crash(&mut self, store: Self::Store);

    /// Waits for a fact, if the store works beside its caller.
    fn wait(&mut self, store: &mut Self::Store);
}

/// Bytes for spans, in one region.
#[derive(Debug, Default)]
pub struct Slate(pub Vec<u8>);

impl Slate {
    /// The span of `len` bytes at `offset`.
    pub fn span(offset: usize, len: usize) -> IoVec {
        IoVec::from([Span { region: RegionId(0), len: len as u32, offset: offset as u64 }])
    }

    fn range(span: Span) -> core::ops::Range<usize> {
        span.offset as usize..span.offset as usize + span.len as usize
    }
}

impl Memory for Slate {
    fn bytes(&self, span: Span) -> &[u8] {
        &self.0[Self::range(span)]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.0[Self::range(span)]
    }
}

/// Facts that a store may take before it has reported.
const PATIENCE: usize = 10_000;

struct Trial<'a, S: Subject> {
    subject: &'a mut S,
    store: S::Store,
    slate: Slate,
    applied: u64,
    committed: u64,
    token: u64,
}

type Checked<T = ()> = Result<T, String>;

fn expect<T: PartialEq + core::fmt::Debug>(what: &str, is: &T, should: &T) -> Checked {
    if is == should { Ok(()) } else { Err(format!("{what}: {is:?}, expected {should:?}")) }
}

fn put(key: &str, value: &[u8]) -> Change {
    Change::Put(Space::Objects, key.into(), value.to_vec())
}

impl<S: Subject> Trial<'_, S> {
    fn fact(&mut self) -> Checked<StoreFact> {
        for _ in 0..PATIENCE {
            if let Some(fact) = self.store.poll(&mut self.slate) {
                match fact {
                    StoreFact::Applied { txn, result: Ok(()) } => self.applied = txn,
                    StoreFact::Committed { up_to } => {
                        if up_to < self.committed || up_to > self.applied {
                            let (from, to) = (self.committed, self.applied);
                            return Err(format!("committed {up_to}: expected {from} to {to}"));
                        }
                        self.committed = up_to;
                    }
                    _ => {}
                }
                return Ok(fact);
            }
            self.subject.wait(&mut self.store);
        }
        Err("no fact".to_owned())
    }

    fn apply(&mut self, id: u64, changes: Vec<Change>) -> Checked<Result<(), StoreError>> {
        self.store.order(StoreOrder::Apply(Txn { id, changes }), &self.slate);
        loop {
            match self.fact()? {
                StoreFact::Applied { txn, result } if txn == id => return Ok(result),
                StoreFact::Committed { .. } => {}
                other => return Err(format!("transaction {id}: unexpected {other:?}")),
            }
        }
    }

    fn done(
        &mut self,
        order: impl FnOnce(u64) -> StoreOrder,
    ) -> Checked<Result<Outcome, StoreError>> {
        self.token += 1;
        let mine = self.token;
        self.store.order(order(mine), &self.slate);
        loop {
            match self.fact()? {
                StoreFact::Done { token, outcome } if token == mine => return Ok(outcome),
                StoreFact::Committed { .. } => {}
                other => return Err(format!("order {mine}: unexpected {other:?}")),
            }
        }
    }

    fn record(&mut self, key: &str) -> Checked<Option<Vec<u8>>> {
        let from = Source::Record(Space::Objects, key.into());
        match self.done(|token| StoreOrder::Read { token, from })? {
            Ok(Outcome::Record(record)) => Ok(record),
            other => Err(format!("record {key}: {other:?}")),
        }
    }

    fn write(&mut self, data: DataId, bytes: &[u8]) -> Checked<Result<Outcome, StoreError>> {
        self.slate.0 = bytes.to_vec();
        let bytes = Slate::span(0, bytes.len());
        self.done(|token| StoreOrder::Write { token, data, bytes })
    }

    fn load(&mut self, data: DataId, len: usize) -> Checked<Result<Vec<u8>, StoreError>> {
        self.slate.0 = vec![0xee; len];
        let from = Source::Data(data, Slate::span(0, len));
        let outcome = self.done(|token| StoreOrder::Read { token, from })?;
        Ok(outcome.map(|_| self.slate.0.clone()))
    }

    fn list(&mut self, after: &str, prefix: &str, max: usize) -> Checked<(Vec<String>, bool)> {
        let (after, prefix) = (after.into(), prefix.into());
        let space = Space::Objects;
        match self.done(|token| StoreOrder::List { token, space, after, prefix, max })? {
            Ok(Outcome::Listed { entries, more }) => {
                let name = |key: Vec<u8>| String::from_utf8_lossy(&key).into_owned();
                Ok((entries.into_iter().map(|(key, _)| name(key)).collect(), more))
            }
            other => Err(format!("list: {other:?}")),
        }
    }

    fn sync(&mut self, up_to: u64) -> Checked {
        match self.done(|token| StoreOrder::Sync { token })? {
            Ok(Outcome::Done) => {}
            other => return Err(format!("sync: {other:?}")),
        }
        // The report of the commit may stand behind that of the order.
        while self.committed < up_to {
            let fact = self.fact()?;
            if !matches!(fact, StoreFact::Committed { .. }) {
                return Err(format!("sync: unexpected {fact:?}"));
            }
        }
        expect("committed by sync", &self.committed, &up_to)
    }

    fn next_life(self) -> Checked<Self> {
        let Self { subject, store, slate, .. } = self;
        subject.crash(store);
        let store = subject.open()?;
        Ok(Self { subject, store, slate, applied: 0, committed: 0, token: 0 })
    }
}

/// Puts a store through everything that a target relies on.
///
/// # Errors
/// The first promise that is not kept.
pub fn check<S: Subject>(subject: &mut S) -> Result<(), String> {
    let store = subject.open()?;
    let mut t =
        Trial { subject, store, slate: Slate::default(), applied: 0, committed: 0, token: 0 };

    // A transaction is visible to each later order, and happens whole.
    expect("empty store", &t.record("a")?, &None)?;
    let three = vec![put("a", b"1"), put("b", b"2"), put("a", b"3")];
    expect("first transaction", &t.apply(1, three)?, &Ok(()))?;
    expect("record replaced in its transaction", &t.record("a")?, &Some(b"3".to_vec()))?;
    let wrong = vec![put("a", b"4"), Change::Keep(DataId(99), 5)];
    let refused = t.apply(2, wrong)?;
    expect("data that was never written", &refused, &Err(StoreError::NoData(99)))?;
    expect("after a refused transaction", &t.record("a")?, &Some(b"3".to_vec()))?;

    // Limits have names, and a refusal changes nothing.
    let (value, max) = (KEY_MAX as u64 + 1, KEY_MAX as u64);
    let long = Change::Put(Space::Objects, vec![7; KEY_MAX + 1], vec![]);
    let what = "key";
    expect("long key", &t.apply(3, vec![long])?, &Err(StoreError::Limit { what, value, max }))?;
    let (what, value, max) = ("record", RECORD_MAX as u64 + 1, RECORD_MAX as u64);
    let large = put("c", &vec![0; RECORD_MAX + 1]);
    expect("long record", &t.apply(3, vec![large])?, &Err(StoreError::Limit { what, value, max }))?;
    let full = [Change::Put(Space::Objects, vec![7; KEY_MAX], vec![8; RECORD_MAX])];
    expect("longest record", &t.apply(3, full.into())?, &Ok(()))?;
    let gone = Change::Delete(Space::Objects, vec![7; KEY_MAX]);
    expect("delete", &t.apply(4, vec![gone])?, &Ok(()))?;
    let back = t.apply(4, vec![])?;
    expect("number used twice", &back, &Err(StoreError::Order { id: 4, last: 4 }))?;

    // Spaces are apart; listings are in order and say whether there is more.
    let other = Change::Put(Space::Replies, b"a".to_vec(), b"reply".to_vec());
    let more = ["ab", "ba", "b\u{1}"].map(|key| put(key, b"")).into_iter();
    expect("more", &t.apply(5, more.chain([other]).collect())?, &Ok(()))?;
    expect("spaces are apart", &t.record("a")?, &Some(b"3".to_vec()))?;
    let all = ["a", "ab", "b", "b\u{1}", "ba"].map(String::from).to_vec();
    expect("listing", &t.list("", "", 100)?, &(all.clone(), false))?;
    expect("page", &t.list("", "", 2)?, &(all[..2].to_vec(), true))?;
    expect("second page", &t.list("ab", "", 3)?, &(all[2..].to_vec(), false))?;
    expect("prefix", &t.list("", "a", 100)?, &(all[..2].to_vec(), false))?;
    expect("prefix and page", &t.list("b", "b", 1)?, &(all[3..4].to_vec(), true))?;

    // Data: whole, by name, of the length that was kept; dropped with its record.
    let bytes: Vec<u8> = (0..3u32 << 20).map(|i| (i / 7 % 251) as u8).collect();
    let id = DataId(0x1234_5678_9abc);
    expect("write", &t.write(id, &bytes)?, &Ok(Outcome::Done))?;
    let (data, have, need) = (id.0, bytes.len() as u64, 5);
    let short = t.apply(6, vec![Change::Keep(id, 5)])?;
    expect("data of another length", &short, &Err(StoreError::Length { data, have, need }))?;
    let keep = vec![Change::Keep(id, have), put("large", b"x")];
    expect("keep", &t.apply(6, keep)?, &Ok(()))?;
    expect("load", &(t.load(id, bytes.len())? == Ok(bytes.clone())), &true)?;
    let error = Err(StoreError::Length { data, have, need });
    expect("load of another length", &t.load(id, 5)?, &error)?;
    expect("load of nothing", &t.load(DataId(5), 5)?, &Err(StoreError::NoData(5)))?;
    expect("second data", &t.write(DataId(2), b"second")?, &Ok(Outcome::Done))?;
    expect("keep", &t.apply(7, vec![Change::Keep(DataId(2), 6)])?, &Ok(()))?;
    expect("drop", &t.apply(8, vec![Change::Drop(DataId(2))])?, &Ok(()))?;
    expect("dropped data", &t.load(DataId(2), 6)?, &Err(StoreError::NoData(2)))?;

    // Committed transactions survive; a prefix of the others may; none in part.
    t.sync(8)?;
    let pair = |n: u8| vec![put("left", &[n]), put("right", &[n])];
    for n in 9..20 {
        expect("pair", &t.apply(n, pair(n as u8))?, &Ok(()))?;
    }
    expect("data in doubt", &t.write(DataId(3), b"third")?, &Ok(Outcome::Done))?;
    let floor = t.committed;
    let mut t = t.next_life()?;
    expect("after the crash", &t.record("a")?, &Some(b"3".to_vec()))?;
    expect("data after the crash", &(t.load(id, bytes.len())? == Ok(bytes)), &true)?;
    expect("dropped data", &t.load(DataId(2), 6)?, &Err(StoreError::NoData(2)))?;
    let (left, right) = (t.record("left")?, t.record("right")?);
    expect("both halves of a pair", &left, &right)?;
    let survived = left.and_then(|v| v.first().copied()).map_or(8, u64::from);
    if survived < floor {
        return Err(format!("transaction {floor} was committed, found {survived}"));
    }
    expect("data that was not kept", &t.load(DataId(3), 5)?, &Err(StoreError::NoData(3)))?;
    // Its name is free, and numbers begin anew.
    expect("written again", &t.write(DataId(3), b"again")?, &Ok(Outcome::Done))?;
    expect("kept", &t.apply(1, vec![Change::Keep(DataId(3), 5)])?, &Ok(()))?;
    t.sync(1)?;
    let mut t = t.next_life()?;
    expect("second crash", &t.load(DataId(3), 5)?, &Ok(b"again".to_vec()))
}
