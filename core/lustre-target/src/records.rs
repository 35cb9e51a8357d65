//! What a target stores of its clients, as bytes, and how it is read back when the target starts
//! (P-138 … P-141).

use lnet_types::Memory;
use ptlrpc::{ClientRecord, Past, ReplyRecord};

use crate::store::{
    Change, LIST_MAX, Outcome, Source, Space, Store, StoreError, StoreFact, StoreOrder, Txn,
};

/// Meta record: the highest transaction.
pub(crate) const TRANSNO: &[u8] = b"transno";
/// Meta record: the number that the next piece of data gets.
pub(crate) const NEXT_DATA: &[u8] = b"data";
/// Meta record: how often the target was started.
const STARTS: &[u8] = b"starts";
/// Meta record: what kind of target the store belongs to.
const KIND: &[u8] = b"kind";

/// First byte of a reply record.
const FORMAT: u8 = 2;
/// Bytes of the key of one behind its client.
const PLACE: usize = 11;

/// What a store gave back when its target was started.
#[derive(Debug, Default)]
pub struct Start {
    /// For the request layer.
    pub past: Past,
    /// How often the target was started, this time included: the instance of its connect data.
    pub starts: u32,
    /// The number of the next piece of data.
    pub(crate) next_data: u64,
    /// The number of the next transaction of the store.
    pub(crate) next_txn: u64,
}

/// The key of a reply record: client, then its place: the slot, or the xid where a client has none. A record
/// takes the place of the one before in its slot, so that a commit of many requests has few of them.
pub(crate) fn reply_key(client: &str, xid: u64, tag: u16) -> Vec<u8> {
    let mut key = Vec::with_capacity(client.len() + PLACE);
    key.extend_from_slice(client.as_bytes());
    key.push(0);
    key.extend_from_slice(&tag.to_be_bytes());
    key.extend_from_slice(&if tag == 0 { xid } else { 0 }.to_be_bytes());
    key
}

pub(crate) fn encode(record: &ReplyRecord) -> Vec<u8> {
    let mut out = vec![FORMAT];
    out.extend_from_slice(&record.xid.to_le_bytes());
    out.extend_from_slice(&record.transno.to_le_bytes());
    out.extend_from_slice(&record.tag.to_le_bytes());
    out.extend_from_slice(&record.status.to_le_bytes());
    for version in record.pre_versions {
        out.extend_from_slice(&version.to_le_bytes());
    }
    for buffer in record.buffers.iter() {
        // Buffers of a reply are far below 4 GiB.
        out.extend_from_slice(&(buffer.len() as u32).to_le_bytes());
        out.extend_from_slice(buffer);
    }
    out
}

/// Takes a number off the front of some bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

pub(crate) fn decode(mut bytes: &[u8]) -> Option<ReplyRecord> {
    let b = &mut bytes;
    if take::<1>(b)? != [FORMAT] {
        return None;
    }
    let mut record = ReplyRecord {
        xid: u64::from_le_bytes(take(b)?),
        transno: u64::from_le_bytes(take(b)?),
        tag: u16::from_le_bytes(take(b)?),
        status: i32::from_le_bytes(take(b)?),
        ..ReplyRecord::default()
    };
    for version in &mut record.pre_versions {
        *version = u64::from_le_bytes(take(b)?);
    }
    while !b.is_empty() {
        let len = u32::from_le_bytes(take(b)?) as usize;
        let (buffer, rest) = b.split_at_checked(len)?;
        record.buffers.push(buffer);
        *b = rest;
    }
    Some(record)
}

fn damaged(what: &str, why: &str) -> StoreError {
    StoreError::Damaged { what: what.to_owned(), why: why.to_owned() }
}

/// The request behind a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its client's uuid.
    pub client: String,
    /// Its number.
    pub xid: u64,
}

impl Txn {
    /// The highest transaction number of a request that the target knows, if it is one that changes
    /// what the target serves or begins an epoch.
    pub fn transno(&self) -> Option<u64> {
        self.changes.iter().find_map(|change| match change {
            Change::Put(Space::Meta, key, value) if key == TRANSNO => {
                value.as_slice().try_into().ok().map(u64::from_le_bytes)
            }
            _ => None,
        })
    }

    /// The request whose effect it is, by the record of its reply; `None` where no reply is kept.
    pub fn origin(&self) -> Option<Origin> {
        self.changes.iter().find_map(|change| match change {
            Change::Put(Space::Replies, key, value) => {
                let client = client_of(key)?.to_owned();
                Some(Origin { client, xid: decode(value)?.xid })
            }
            _ => None,
        })
    }
}

/// The client in the key of a reply record.
fn client_of(key: &[u8]) -> Option<&str> {
    let len = key.len().checked_sub(PLACE)?;
    std::str::from_utf8(key.get(..len)?).ok()
}

/// A store that answers at once, asked one thing after the other.
pub(crate) struct Opening<'a> {
    pub(crate) store: &'a mut dyn Store,
}

/// Key and record.
type Entry = (Vec<u8>, Vec<u8>);

struct NoMemory;

impl Memory for NoMemory {
    fn bytes(&self, _: lnet_types::Span) -> &[u8] {
        &[]
    }

    fn bytes_mut(&mut self, _: lnet_types::Span) -> &mut [u8] {
        &mut []
    }
}

impl Opening<'_> {
    fn done(&mut self, order: StoreOrder) -> Result<Outcome, StoreError> {
        self.store.order(order, &mut NoMemory);
        while let Some(fact) = self.store.poll(&mut NoMemory) {
            match fact {
                StoreFact::Done { outcome, .. } => return outcome,
                StoreFact::Applied { result: Err(e), .. } | StoreFact::Failed(e) => return Err(e),
                StoreFact::Applied { .. } | StoreFact::Committed { .. } | StoreFact::Short => {}
            }
        }
        Err(StoreError::OutOfService)
    }

    fn record(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let from = Source::Record(Space::Meta, key.to_vec());
        match self.done(StoreOrder::Read { token: 0, from })? {
            Outcome::Record(record) => Ok(record),
            _ => Err(StoreError::OutOfService),
        }
    }

    fn number(&mut self, key: &[u8]) -> Result<u64, StoreError> {
        let Some(bytes) = self.record(key)? else { return Ok(0) };
        let number = <[u8; 8]>::try_from(bytes.as_slice()).map(u64::from_le_bytes);
        number.map_err(|_| damaged(&String::from_utf8_lossy(key), "expected 8 bytes"))
    }

    /// All records of a space, in ascending order of keys.
    pub(crate) fn all(&mut self, space: Space) -> Result<Vec<Entry>, StoreError> {
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let after = all.last().map(|(key, _)| key.clone()).unwrap_or_default();
            let (prefix, max) = (Vec::new(), LIST_MAX);
            match self.done(StoreOrder::List { token: 0, space, after, prefix, max })? {
                Outcome::Listed { entries, more } => {
                    all.extend(entries);
                    if !more {
                        return Ok(all);
                    }
                }
                _ => return Err(StoreError::OutOfService),
            }
        }
    }
}

/// Reads what a target of this kind left behind, and records that it was started once more. The
/// store answers at once: a store with a thread of its own is read before that begins.
///
/// # Errors
/// The store's, [`StoreError::Damaged`] for records that can't be read or another kind's.
pub fn start(store: &mut dyn Store, kind: &str) -> Result<Start, StoreError> {
    let mut opening = Opening { store };
    if let Some(was) = opening.record(KIND)?
        && was != kind.as_bytes()
    {
        let was = String::from_utf8_lossy(&was).into_owned();
        return Err(damaged("kind of the target", &format!("it is '{was}', expected '{kind}'")));
    }
    let starts = u32::try_from(opening.number(STARTS)?).unwrap_or(u32::MAX).saturating_add(1);
    let last_transno = opening.number(TRANSNO)?;
    let next_data = opening.number(NEXT_DATA)?.max(1);
    let mut clients: Vec<ClientRecord> = Vec::new();
    for (key, value) in opening.all(Space::Clients)? {
        let uuid = String::from_utf8(key).map_err(|_| damaged("client record", "not a uuid"))?;
        let admission = match value.as_slice() {
            // Of a store from before admissions had numbers.
            [] => None,
            &[a, b, c, d] => Some(u32::from_le_bytes([a, b, c, d])),
            other => {
                let why = format!("{} bytes of client {uuid}, expected 4", other.len());
                return Err(damaged("client record", &why));
            }
        };
        clients.push(ClientRecord { uuid, admission, ..ClientRecord::default() });
    }
    let mut changes = vec![
        Change::Put(Space::Meta, STARTS.to_vec(), u64::from(starts).to_le_bytes().to_vec()),
        Change::Put(Space::Meta, KIND.to_vec(), kind.as_bytes().to_vec()),
    ];
    for (key, value) in opening.all(Space::Replies)? {
        let client = client_of(&key);
        let client = client.ok_or_else(|| damaged("reply record", "its key names no client"))?;
        let record = decode(&value);
        let record =
            record.ok_or_else(|| damaged("reply record", &format!("of client {client}")))?;
        // Clients come in the order of their uuids.
        let at = clients.binary_search_by(|known| known.uuid.as_str().cmp(client));
        match at.ok().and_then(|at| clients.get_mut(at)) {
            Some(known) => known.replies.push(record),
            // Left by a store that was full and refused to delete it.
            None => changes.push(Change::Delete(Space::Replies, key)),
        }
    }
    let past = Past { last_transno, clients };
    if past.clients.is_empty() {
        // With clients to await it is stored when the recovery is over (`Cx::new_epoch`).
        let epoch = past.next_epoch().to_le_bytes().to_vec();
        changes.push(Change::Put(Space::Meta, TRANSNO.to_vec(), epoch));
    }
    opening.store.order(StoreOrder::Apply(Txn { id: 1, changes, must: false }), &mut NoMemory);
    opening.done(StoreOrder::Sync { token: 0 })?;
    while opening.store.poll(&mut NoMemory).is_some() {}
    Ok(Start { past, starts, next_data, next_txn: 2 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Commit, MemoryStore};

    fn record() -> impl Strategy<Value = ReplyRecord> {
        let buffers = proptest::collection::vec(any::<Vec<u8>>(), 0..4);
        (any::<(u64, u64, u16, i32)>(), any::<[u64; 4]>(), buffers).prop_map(
            |((xid, transno, tag, status), pre_versions, buffers)| ReplyRecord {
                xid,
                transno,
                tag,
                status,
                pre_versions,
                buffers: buffers.into_iter().collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn reply_record_is_read_as_it_was_written(record in record()) {
            let bytes = encode(&record);
            prop_assert_eq!(decode(&bytes), Some(record));
        }

        #[test]
        fn any_bytes_are_a_reply_record_or_none(bytes in any::<Vec<u8>>()) {
            if let Some(record) = decode(&bytes) {
                prop_assert_eq!(encode(&record), bytes);
            }
        }
    }

    #[test]
    fn record_takes_the_place_of_the_one_before_in_its_slot() {
        let place = |xid, tag| reply_key("c", xid, tag);
        assert_eq!(place(7, 1), place(9, 1));
        // Where a client has no slots each request has a place.
        let all = [place(7, 1), place(7, 2), place(7, 0), place(9, 0), place(1, 0)];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert!(all.iter().all(|key| client_of(key) == Some("c")));
    }

    #[test]
    fn transaction_names_its_request_by_the_record_of_the_reply() {
        let reply = ReplyRecord { xid: 7 << 32, transno: 9, ..ReplyRecord::default() };
        let changes = vec![
            Change::Put(Space::Objects, b"key".to_vec(), b"value".to_vec()),
            Change::Put(Space::Meta, TRANSNO.to_vec(), 9u64.to_le_bytes().to_vec()),
            Change::Put(Space::Replies, reply_key("client-1", 7 << 32, 0), encode(&reply)),
        ];
        let txn = Txn { id: 1, changes, must: false };
        let origin = Origin { client: "client-1".to_owned(), xid: 7 << 32 };
        assert_eq!((txn.transno(), txn.origin()), (Some(9), Some(origin)));
        let joins = vec![Change::Put(Space::Clients, b"client-1".to_vec(), vec![])];
        let txn = Txn { id: 2, changes: joins, must: false };
        assert_eq!((txn.transno(), txn.origin()), (None, None));
    }

    #[test]
    fn p153_a_life_of_which_nothing_was_committed_has_an_epoch_of_its_own() {
        let mut store = MemoryStore::new(Commit::Ordered, 1 << 20);
        let first = start(&mut store, "kv").unwrap().past;
        assert_eq!((first.last_transno, first.next_epoch()), (0, 1 << 32));
        let join = vec![Change::Put(Space::Clients, b"client-1".to_vec(), vec![])];
        store.order(StoreOrder::Apply(Txn { id: 2, changes: join, must: false }), &mut NoMemory);
        store.order(StoreOrder::Sync { token: 0 }, &mut NoMemory);
        for _ in 0..2 {
            // While the client is awaited nothing new is numbered, whatever dies meanwhile.
            store = store.crashed();
            let past = start(&mut store, "kv").unwrap().past;
            assert_eq!((past.last_transno, past.next_epoch()), (1 << 32, 2 << 32));
        }
    }

    #[test]
    fn reply_record_whose_client_is_gone_keeps_no_target_from_its_start() {
        let mut store = MemoryStore::new(Commit::Ordered, 1 << 20);
        let reply = ReplyRecord { xid: 7, transno: 9, ..ReplyRecord::default() };
        let puts = ["c1", "c2"].map(|client| {
            Change::Put(Space::Replies, reply_key(client, reply.xid, reply.tag), encode(&reply))
        });
        let joins = Change::Put(Space::Clients, b"c2".to_vec(), vec![]);
        let changes = puts.into_iter().chain([joins]).collect();
        store.order(StoreOrder::Apply(Txn { id: 1, changes, must: false }), &mut NoMemory);
        store.order(StoreOrder::Sync { token: 0 }, &mut NoMemory);
        let mut store = store.crashed();
        let past = start(&mut store, "kv").unwrap().past;
        let replies: Vec<_> = past.clients.iter().map(|c| (&*c.uuid, &c.replies[..])).collect();
        assert_eq!(replies, [("c2", &[reply.clone()][..])]);
        let mut opening = Opening { store: &mut store };
        let left: Vec<_> =
            opening.all(Space::Replies).unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(left, [reply_key("c2", reply.xid, reply.tag)]);
    }

    #[test]
    fn store_of_another_kind_is_refused() {
        let mut store = MemoryStore::new(Commit::Ordered, 1 << 20);
        assert_eq!(start(&mut store, "kv").map(|s| s.starts), Ok(1));
        let mut store = store.crashed();
        assert_eq!(start(&mut store, "kv").map(|s| s.starts), Ok(2));
        let mut store = store.crashed();
        let refused = start(&mut store, "ost").map(|s| s.starts);
        assert!(matches!(refused, Err(StoreError::Damaged { .. })), "{refused:?}");
    }
}
