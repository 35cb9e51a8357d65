//! What each store promises, as a test that any store can be put through: a store that passes may
//! serve a target. Breaches come back as text.

use lnet_types::{IoVec, Memory, RegionId, Span};

use lustre_wire::Checksum;

use crate::store::{
    Change, DATA_END, DataId, KEY_MAX, Outcome, RECORD_MAX, Source, Space, Store, StoreError,
    StoreFact, StoreOrder, Txn,
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
        self.store.order(StoreOrder::Apply(Txn { id, changes, must: false }), &mut self.slate);
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
        self.store.order(order(mine), &mut self.slate);
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

    /// A change that writes bytes, and the slate that has them.
    fn write(&mut self, data: DataId, offset: u64, bytes: &[u8]) -> Change {
        self.slate.0 = bytes.to_vec();
        Change::Write { data, offset, bytes: Slate::span(0, bytes.len()) }
    }

    fn load(
        &mut self,
        data: DataId,
        offset: u64,
        len: usize,
    ) -> Checked<Result<Vec<u8>, StoreError>> {
        self.slate.0 = vec![0xee; len];
        let from = Source::Data { data, offset, into: Slate::span(0, len) };
        let outcome = self.done(|token| StoreOrder::Read { token, from })?;
        Ok(outcome.map(|_| self.slate.0.clone()))
    }

    /// Data is what an array of bytes is, or reads otherwise at some place.
    fn same(&mut self, what: &str, data: DataId, from: u64, model: &[u8]) -> Checked {
        let found = self.load(data, from, model.len())?;
        match found {
            Ok(bytes) => match bytes.iter().zip(model).position(|(is, should)| is != should) {
                Some(at) => Err(format!("{what}: other bytes than expected from {at} on")),
                None => Ok(()),
            },
            Err(e) => Err(format!("{what}: {e}")),
        }
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
    let beyond = t.write(DataId(99), DATA_END, b"x");
    let (what, value, max) = ("end of data", DATA_END + 1, DATA_END);
    let refused = t.apply(2, vec![put("a", b"4"), beyond])?;
    expect("data beyond its end", &refused, &Err(StoreError::Limit { what, value, max }))?;
    let read = t.load(DataId(99), u64::MAX - 1, 1)?;
    let value = u64::MAX;
    expect("read beyond its end", &read, &Err(StoreError::Limit { what, value, max }))?;
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

    // Data: any range, zeros where nothing was written, gone from where it is cut.
    let id = DataId(0x1234_5678_9abc);
    t.same("data that was never written", id, 12_345, &[0; 1000])?;
    let mut model: Vec<u8> = (0..3u32 << 20).map(|i| (i / 7 % 251) as u8).collect();
    let whole = t.write(id, 0, &model);
    expect("write", &t.apply(6, vec![whole, put("large", b"x")])?, &Ok(()))?;
    t.same("whole", id, 0, &model)?;
    t.same("part", id, 1_000_001, &model[1_000_001..1_500_000])?;
    let end = model.len();
    model.resize(end + 5000, 0);
    t.same("end of what was written", id, 7, &model[7..])?;
    let ranges = [(0, 1), (65_535, 2), (131_072, 65_536), (200_000, 300_000), (end - 1, 1000)];
    for (n, (at, len)) in ranges.into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 3 + n) as u8).collect();
        model[at..at + len].copy_from_slice(&bytes);
        let change = t.write(id, at as u64, &bytes);
        expect("range", &t.apply(7 + n as u64, vec![change])?, &Ok(()))?;
        t.same("range", id, 0, &model)?;
    }
    // Two writes and a cut of one transaction take effect in their order.
    let far = 1 << 40;
    let (one, two) = (t.write(DataId(2), far, b"first"), Slate::span(0, 2));
    let two = Change::Write { data: DataId(2), offset: far + 1, bytes: two };
    let cut = Change::Cut { data: DataId(2), from: far + 4 };
    expect("hole", &t.apply(12, vec![one, two, cut])?, &Ok(()))?;
    t.same("behind a hole", DataId(2), far - 3, b"\0\0\0ffis\0")?;
    for (txn, from) in [(13, 150_000), (14, 131_072), (15, 131_073)] {
        model[from..].fill(0);
        let cut = Change::Cut { data: id, from: from as u64 };
        expect("cut", &t.apply(txn, vec![cut])?, &Ok(()))?;
        t.same("cut", id, 0, &model)?;
    }
    let change = t.write(id, 140_000, b"behind the cut");
    model[140_000..140_014].copy_from_slice(b"behind the cut");
    expect("write behind a cut", &t.apply(16, vec![change])?, &Ok(()))?;
    t.same("write behind a cut", id, 0, &model)?;
    let cut = Change::Cut { data: DataId(2), from: 0 };
    expect("removal", &t.apply(17, vec![cut])?, &Ok(()))?;
    t.same("removed", DataId(2), far, &[0; 5])?;

    // Sums and space.
    t.slate.0 = b"123456789".to_vec();
    let (kind, bytes) = (Checksum::Crc32c, Slate::span(0, 9));
    let sum = t.done(|token| StoreOrder::Checksum { token, kind, bytes })?;
    expect("checksum", &sum, &Ok(Outcome::Checksum(0xE306_9283)))?;
    match t.done(|token| StoreOrder::Space { token })? {
        Ok(Outcome::Space { total, free }) if free <= total && total > 0 => {}
        other => return Err(format!("space: {other:?}")),
    }

    // Committed transactions survive; a prefix of the others may; none in part.
    t.sync(17)?;
    for n in 18..30 {
        let bytes = t.write(DataId(3), 65_530, &[n as u8; 12]);
        let pair = vec![put("left", &[n as u8]), bytes, put("right", &[n as u8])];
        expect("pair", &t.apply(n, pair)?, &Ok(()))?;
    }
    let floor = t.committed;
    let mut t = t.next_life()?;
    expect("after the crash", &t.record("a")?, &Some(b"3".to_vec()))?;
    t.same("data after the crash", id, 0, &model)?;
    t.same("removed data", DataId(2), far, &[0; 5])?;
    let (left, right) = (t.record("left")?, t.record("right")?);
    expect("both halves of a pair", &left, &right)?;
    let survived = left.and_then(|v| v.first().copied()).map_or(17, u64::from);
    if survived < floor {
        return Err(format!("transaction {floor} was committed, found {survived}"));
    }
    let byte = if survived == 17 { 0 } else { survived as u8 };
    t.same("data of the last transaction that survived", DataId(3), 65_530, &[byte; 12])?;
    // Numbers begin anew.
    let change = t.write(DataId(3), 65_530, b"again");
    expect("written again", &t.apply(1, vec![change])?, &Ok(()))?;
    t.sync(1)?;
    let mut t = t.next_life()?;
    t.same("second crash", DataId(3), 65_530, b"again")
}
