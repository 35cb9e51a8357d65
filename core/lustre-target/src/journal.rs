//! Transactions of a target: the effect of a request, its transaction number and the record of its
//! reply are stored together; replies and admissions follow when the store has them.

use std::collections::BTreeMap;

use lnet::upper::Below;
use lnet_types::{Errno, IoVec, Memory, Span};
use ptlrpc::{Answer, ExportId, Rpc, Served, ServedId, TargetId};

use crate::records::{NEXT_DATA, Start, TRANSNO, encode, reply_key};
use crate::store::{Change, DataId, Space, Store, StoreError, StoreOrder, Txn};

/// When the reply of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// When the effect is visible. The client repeats the request if the target loses it.
    Applied,
    /// When the effect survives a crash: for requests that the client can't repeat.
    Committed,
}

/// The token of orders whose outcome says nothing.
pub(crate) const NO_TOKEN: u64 = u64::MAX;

/// Bytes of one span of memory for bulk data.
const PIECE: u64 = 1 << 20;

#[derive(Debug)]
enum Then {
    Nothing,
    Reply {
        served: ServedId,
        answer: Answer,
        when: When,
        /// It was answered before a crash.
        replay: bool,
        /// The target completes the answer.
        completes: bool,
    },
    Admit {
        export: ExportId,
    },
    /// A client is gone: if it disconnects it has its answer, and the target learns it.
    Left {
        export: ExportId,
    },
    /// The target learns that its recovery is over.
    Recovered,
}

/// What a target learns when the record of it survives a crash, and not before: what an absent client
/// had goes to others, and a target that begins again must not await that client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// A client is gone.
    Left(ExportId),
    /// The recovery is over.
    Recovered,
    /// An answer that the target completes is to go.
    Answer(ServedId, Answer),
    /// The change of a request was refused that would have put a record in [`Space::Objects`]: its key.
    Refused(Vec<u8>),
}

#[derive(Debug)]
struct Waiting {
    /// 0: a transaction of the target itself.
    transno: u64,
    /// What its writes are made of: the host's again when it is applied.
    memory: IoVec,
    /// The key of the record in [`Space::Objects`] that a request puts.
    object: Option<Vec<u8>>,
    then: Then,
}

/// The transactions of one target that are under way, and the reply records that are stored.
#[derive(Debug)]
pub struct Journal {
    target: TargetId,
    next_txn: u64,
    next_data: u64,
    /// The same as the last transaction has it that was given to the store.
    kept_data: u64,
    /// The highest transaction number given to the store, and the highest that is committed.
    last: u64,
    committed: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// [`Txn::must`] of each transaction.
    must: bool,
    /// Slots by xid, for each client.
    replies: BTreeMap<String, BTreeMap<u64, u16>>,
}

/// What a target works with, for the length of one call.
pub struct Cx<'a, 'b, 'c> {
    /// The request layer.
    pub rpc: &'a mut Rpc<'b, 'c>,
    pub(crate) store: &'a mut dyn Store,
    pub(crate) journal: &'a mut Journal,
}

/// The memory of the host, as stores use it.
pub(crate) struct HostMemory<'a, 'b>(pub(crate) &'a mut Below<'b>);

impl Memory for HostMemory<'_, '_> {
    fn bytes(&self, span: Span) -> &[u8] {
        self.0.bytes(span)
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        self.0.bytes_mut(span)
    }

    fn exchange(&mut self, span: Span, bytes: Vec<u8>) -> Result<Vec<u8>, Vec<u8>> {
        self.0.exchange(span, bytes)
    }
}

impl Journal {
    /// The journal of a target that was started.
    pub(crate) fn new(target: TargetId, start: &Start, replies: Replies, must: bool) -> Self {
        Self {
            target,
            next_txn: start.next_txn.max(1),
            next_data: start.next_data.max(1),
            kept_data: start.next_data.max(1),
            last: replies.last_transno,
            committed: replies.last_transno,
            waiting: BTreeMap::new(),
            must,
            replies: replies.slots,
        }
    }
}

/// The stored reply records, taken down before the past goes to the request layer.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    last_transno: u64,
    slots: BTreeMap<String, BTreeMap<u64, u16>>,
}

impl From<&Start> for Replies {
    fn from(start: &Start) -> Self {
        let slots = start.past.clients.iter().map(|client| {
            let slots = client.replies.iter().map(|reply| (reply.xid, reply.tag)).collect();
            (client.uuid.clone(), slots)
        });
        Self { last_transno: start.past.last_transno, slots: slots.collect() }
    }
}

impl<'c> Cx<'_, '_, 'c> {
    /// The host's memory and the node below.
    pub fn below(&mut self) -> &mut Below<'c> {
        self.rpc.below()
    }

    /// Gives the store an order.
    pub fn order(&mut self, order: StoreOrder) {
        self.store.order(order, &mut HostMemory(self.rpc.below()));
    }

    /// A name for a piece of data that was never used.
    pub fn new_data(&mut self) -> DataId {
        let id = self.journal.next_data;
        self.journal.next_data += 1;
        DataId(id)
    }

    /// The highest transaction that survives a crash.
    pub fn committed(&self) -> u64 {
        self.journal.committed
    }

    /// The highest transaction of a request that was given to the store.
    pub(crate) fn last(&self) -> u64 {
        let waiting = self.journal.waiting.values().map(|waiting| waiting.transno);
        waiting.max().unwrap_or(0).max(self.journal.committed)
    }

    /// Whether a client of this uuid is admitted, or awaited since an earlier start.
    pub(crate) fn knows(&self, client: &str) -> bool {
        self.journal.replies.contains_key(client)
    }

    /// Stores the changes of a request together with the record of its answer, and answers when that
    /// is applied or committed. Returns `false` if the request is over: nothing is changed then.
    pub fn commit(
        &mut self,
        served: &Served,
        answer: Answer,
        changes: Vec<Change>,
        when: When,
    ) -> bool {
        self.commit_data(served, answer, changes, IoVec::new(), when)
    }

    /// The same for changes that write what is in `memory`, which goes back to the host in any case.
    pub fn commit_data(
        &mut self,
        served: &Served,
        answer: Answer,
        changes: Vec<Change>,
        memory: IoVec,
        when: When,
    ) -> bool {
        self.commit_as(served, answer, changes, memory, (when, false))
    }

    /// The same for an answer that the target completes when it goes ([`Kind::answer`]): what is in memory
    /// alone, like a lock, is no part of the record.
    ///
    /// [`Kind::answer`]: crate::Kind::answer
    pub(crate) fn commit_part(
        &mut self,
        served: &Served,
        answer: Answer,
        changes: Vec<Change>,
        when: When,
    ) -> bool {
        self.commit_as(served, answer, changes, IoVec::new(), (when, true))
    }

    fn commit_as(
        &mut self,
        served: &Served,
        mut answer: Answer,
        mut changes: Vec<Change>,
        memory: IoVec,
        (when, completes): (When, bool),
    ) -> bool {
        let transno = self.rpc.transno(served.id);
        if transno == 0 {
            self.free(&memory);
            return false;
        }
        answer.transno = transno;
        self.journal.last = self.journal.last.max(transno);
        let last = self.journal.last.to_le_bytes().to_vec();
        changes.push(Change::Put(Space::Meta, TRANSNO.to_vec(), last));
        // A record may have a new name although nothing is written under it yet.
        let named = self.journal.kept_data != self.journal.next_data;
        if named || changes.iter().any(|change| matches!(change, Change::Write { .. })) {
            self.journal.kept_data = self.journal.next_data;
            let next = self.journal.next_data.to_le_bytes().to_vec();
            changes.push(Change::Put(Space::Meta, NEXT_DATA.to_vec(), next));
        }
        if let Some((client, record)) = self.rpc.record(served.id, &answer)
            && let Some(slots) = self.journal.replies.get_mut(&client)
        {
            // P-142: what the client has, and what used the slot before, goes.
            let had = served.body.last_xid;
            slots.retain(|xid, tag| {
                let same = record.tag != 0 && *tag == record.tag && *xid < record.xid;
                // What was in the slot gives its place to the new record.
                if *xid <= had && !same {
                    let key = reply_key(&client, *xid, *tag);
                    changes.push(Change::Delete(Space::Replies, key));
                }
                *xid > had && !same
            });
            slots.insert(record.xid, record.tag);
            let key = reply_key(&client, record.xid, record.tag);
            changes.push(Change::Put(Space::Replies, key, encode(&record)));
        }
        let object = changes.iter().find_map(|change| match change {
            Change::Put(Space::Objects, key, _) => Some(key.clone()),
            _ => None,
        });
        let replay = served.replay.is_some();
        let then = Then::Reply { served: served.id, answer, when, replay, completes };
        self.apply_of(transno, changes, (memory, object), then);
        if when == When::Committed {
            self.order(StoreOrder::Sync { token: NO_TOKEN });
        }
        true
    }

    /// Ends a request that a store can't carry out: with the store's refusal, or, where the store may do
    /// it another time, without an answer. Its client tries again then, here or where the target is
    /// started next. So it does with a change that is repeated after a crash: that was answered, and the
    /// client would take a refusal for the answer to it, and forget the change (P-71).
    pub(crate) fn not_stored(&mut self, served: ServedId, replay: bool, e: &StoreError) {
        if e.is_refusal() && !replay {
            self.rpc.refuse(served, e.errno());
        } else {
            self.rpc.decline(served);
        }
    }

    /// Memory of the host for bulk data of `len` bytes, in pieces of 1 MiB.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn alloc(&mut self, len: u64) -> Result<IoVec, Errno> {
        let mut memory = IoVec::new();
        let mut left = len;
        while left > 0 {
            let piece = left.min(PIECE);
            match self.below().alloc(piece as u32) {
                Some(span) => memory.push(span),
                None => {
                    self.free(&memory);
                    return Err(Errno::ENOMEM);
                }
            }
            left -= piece;
        }
        Ok(memory)
    }

    /// Gives memory back to the host.
    pub fn free(&mut self, memory: &IoVec) {
        for span in memory {
            self.rpc.below().free(*span);
        }
    }

    /// A new client: its record is stored before it is admitted (P-131).
    pub(crate) fn join(&mut self, export: ExportId, client: String, admission: u32) {
        self.journal.replies.entry(client.clone()).or_default();
        let record = admission.to_le_bytes().to_vec();
        let changes = vec![Change::Put(Space::Clients, client.into_bytes(), record)];
        self.apply(0, changes, IoVec::new(), Then::Admit { export });
        self.order(StoreOrder::Sync { token: NO_TOKEN });
    }

    /// A change that was answered before a crash does not fit to what is there now, and is lost: its
    /// client is evicted when the others have repeated theirs (P-152). If the target dies before that, it
    /// is evicted when it comes back, as its record has another admission from now on.
    pub(crate) fn unfit(&mut self, served: &Served) {
        if let Some((client, admission)) = self.rpc.admission_of(served.export) {
            let (client, record) =
                (client.as_bytes().to_vec(), (!admission).to_le_bytes().to_vec());
            self.batch(vec![Change::Put(Space::Clients, client, record)]);
        }
        self.rpc.refuse(served.id, Errno::EOVERFLOW);
    }

    /// The client of this export was evicted, or disconnects: its records go, then what it had
    /// ([`Recorded::Left`]).
    pub(crate) fn leave(&mut self, client: &str, export: ExportId) {
        let mut changes = vec![Change::Delete(Space::Clients, client.as_bytes().to_vec())];
        for (xid, tag) in self.journal.replies.remove(client).unwrap_or_default() {
            changes.push(Change::Delete(Space::Replies, reply_key(client, xid, tag)));
        }
        self.apply(0, changes, IoVec::new(), Then::Left { export });
        self.order(StoreOrder::Sync { token: NO_TOKEN });
    }

    /// Recovery is over: new transactions have numbers above this one (P-153). The target learns it
    /// when the records of the clients that are missing are gone ([`Recorded::Recovered`]).
    pub(crate) fn new_epoch(&mut self, transno: u64) {
        self.journal.last = self.journal.last.max(transno);
        let last = self.journal.last.to_le_bytes().to_vec();
        let changes = vec![Change::Put(Space::Meta, TRANSNO.to_vec(), last)];
        self.apply(0, changes, IoVec::new(), Then::Recovered);
        self.order(StoreOrder::Sync { token: NO_TOKEN });
    }

    /// Changes without a request, or before the last ones of one.
    pub(crate) fn batch(&mut self, changes: Vec<Change>) {
        self.apply(0, changes, IoVec::new(), Then::Nothing);
    }

    fn apply(&mut self, transno: u64, changes: Vec<Change>, memory: IoVec, then: Then) {
        self.apply_of(transno, changes, (memory, None), then);
    }

    fn apply_of(
        &mut self,
        transno: u64,
        changes: Vec<Change>,
        (memory, object): (IoVec, Option<Vec<u8>>),
        then: Then,
    ) {
        let id = self.journal.next_txn;
        self.journal.next_txn += 1;
        self.journal.waiting.insert(id, Waiting { transno, memory, object, then });
        self.order(StoreOrder::Apply(Txn { id, changes, must: self.journal.must }));
    }

    /// A transaction is visible, or was refused.
    pub(crate) fn applied(&mut self, txn: u64, result: Result<(), StoreError>) -> Option<Recorded> {
        let waiting = self.journal.waiting.get_mut(&txn)?;
        let memory = core::mem::take(&mut waiting.memory);
        self.free(&memory);
        let Err(e) = result else {
            let waiting = self.journal.waiting.get_mut(&txn)?;
            if matches!(waiting.then, Then::Reply { when: When::Applied, .. })
                && let Then::Reply { served, answer, completes, .. } =
                    core::mem::replace(&mut waiting.then, Then::Nothing)
            {
                if completes {
                    return Some(Recorded::Answer(served, answer));
                }
                self.rpc.reply(served, answer);
            }
            return None;
        };
        // The record stays as it was. None is to wait for ever for what a store can't do; one that can do
        // nothing is out of service, and its target with it.
        let refused = self.journal.waiting.remove(&txn)?;
        match refused.then {
            Then::Reply { served, replay, .. } => {
                self.not_stored(served, replay, &e);
                return refused.object.map(Recorded::Refused);
            }
            Then::Admit { export } => self.rpc.admit(export, Err(e.errno())),
            Then::Left { export } => {
                self.rpc.left(export);
                return Some(Recorded::Left(export));
            }
            Then::Recovered => return Some(Recorded::Recovered),
            Then::Nothing => {}
        }
        None
    }

    /// Transactions up to this one survive a crash. What the target learns of it, in order.
    pub(crate) fn settled(&mut self, up_to: u64) -> Vec<Recorded> {
        let rest = self.journal.waiting.split_off(&up_to.saturating_add(1));
        let done = core::mem::replace(&mut self.journal.waiting, rest);
        let transno = done.values().map(|waiting| waiting.transno).max().unwrap_or(0);
        if transno > self.journal.committed {
            self.journal.committed = transno;
            self.rpc.committed(self.journal.target, transno);
        }
        let mut recorded = Vec::new();
        for waiting in done.into_values() {
            // A commit may be reported before what was committed.
            self.free(&waiting.memory);
            match waiting.then {
                Then::Reply { served, answer, completes: true, .. } => {
                    recorded.push(Recorded::Answer(served, answer));
                }
                Then::Reply { served, answer, .. } => self.rpc.reply(served, answer),
                Then::Admit { export } => self.rpc.admit(export, Ok(())),
                Then::Left { export } => {
                    self.rpc.left(export);
                    recorded.push(Recorded::Left(export));
                }
                Then::Recovered => recorded.push(Recorded::Recovered),
                Then::Nothing => {}
            }
        }
        recorded
    }

    /// The store is out of service: what waits for it is given up. Clients try again.
    pub(crate) fn abandon(&mut self) {
        for waiting in core::mem::take(&mut self.journal.waiting).into_values() {
            self.free(&waiting.memory);
            match waiting.then {
                Then::Reply { served, .. } => self.rpc.decline(served),
                Then::Admit { export } => self.rpc.admit(export, Err(Errno::EIO)),
                Then::Left { export } => self.rpc.left(export),
                Then::Recovered | Then::Nothing => {}
            }
        }
    }
}
