//! Storage as orders and facts: a target orders, the store works in its own time, facts come back by
//! polling. What a store promises stands in `conformance.rs`, as a test; `memory.rs` is the simplest
//! one.
//!
//! ```text
//!  Read, List, Sync, Checksum, Space ──► Done { token, outcome }
//!  Apply(txn) ─────────────────────────► Applied { txn }        visible to each later order
//!                                        Committed { up_to }    survives a crash
//! ```
//!
//! Bytes are written by transactions alone, as records are: they are there with the record that
//! tells of them, or neither is.

use core::any::Any;

use lnet_types::{Errno, IoVec, Memory, Span, iovec_len};
use lustre_wire::Checksum;

/// Most bytes of the key of a record.
pub const KEY_MAX: usize = 512;
/// Most bytes of a record.
pub const RECORD_MAX: usize = 64 << 10;
/// Most changes in one transaction.
pub const CHANGES_MAX: usize = 8192;
/// Most entries in one listing.
pub const LIST_MAX: usize = 1024;
/// Most bytes that one transaction writes.
pub const WRITE_MAX: u64 = 64 << 20;
/// Where data ends at the latest.
pub const DATA_END: u64 = 1 << 56;

/// A set of records with keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// Counters of the target itself.
    Meta = 0,
    /// Clients that the target has admitted (P-131).
    Clients = 1,
    /// Replies that may have to be repeated (P-140).
    Replies = 2,
    /// What the target serves.
    Objects = 3,
}

impl Space {
    /// All spaces, in ascending order.
    pub const ALL: [Self; 4] = [Self::Meta, Self::Clients, Self::Replies, Self::Objects];
}

/// The name of a sequence of bytes beside the records. Each name exists: what was never written
/// reads as zeros, and takes no space. The target chooses names, each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataId(pub u64);

/// Part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A record, new or replaced.
    Put(Space, Vec<u8>, Vec<u8>),
    /// A record is removed; a missing record is no error.
    Delete(Space, Vec<u8>),
    /// Bytes replace those from `offset` on.
    Write {
        /// Of which data.
        data: DataId,
        /// Where the first one goes.
        offset: u64,
        /// The target's memory until the transaction is applied. What is in it changes with the order.
        bytes: IoVec,
    },
    /// What lies at and behind `from` is removed, and reads as zeros; 0 removes all of it.
    Cut {
        /// Of which data.
        data: DataId,
        /// The first byte that is removed.
        from: u64,
    },
}

/// Changes that happen together, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Number of the transaction; each is higher than the one before.
    pub id: u64,
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// Its target has counted on it and can't take it back: a store without room waits for some, where it
    /// refuses others ([`StoreError::Full`]).
    pub must: bool,
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A record.
    Record(Space, Vec<u8>),
    /// As many bytes of data as there is memory for.
    Data {
        /// Which.
        data: DataId,
        /// The first byte.
        offset: u64,
        /// Where they go.
        into: IoVec,
    },
}

/// What a target orders. Orders take effect one after the other, as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOrder {
    /// Reads what was applied last.
    Read {
        /// Comes back with the outcome.
        token: u64,
        /// What.
        from: Source,
    },
    /// Applies a transaction.
    Apply(Txn),
    /// Commits everything that was applied.
    Sync {
        /// Comes back with the outcome.
        token: u64,
    },
    /// Sums bytes up, where they lie.
    Checksum {
        /// Comes back with the outcome.
        token: u64,
        /// How.
        kind: Checksum,
        /// Which.
        bytes: IoVec,
    },
    /// How much space there is.
    Space {
        /// Comes back with the outcome.
        token: u64,
    },
    /// Lists records in ascending order of keys.
    List {
        /// Comes back with the outcome.
        token: u64,
        /// Of which space.
        space: Space,
        /// Keys above this one; all if it is empty.
        after: Vec<u8>,
        /// Keys that begin with this.
        prefix: Vec<u8>,
        /// At most so many; at most [`LIST_MAX`].
        max: usize,
    },
}

/// The outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Read into memory, or committed.
    Done,
    /// A record, if there is one.
    Record(Option<Vec<u8>>),
    /// A checksum.
    Checksum(u32),
    /// Bytes that there are, and those of them that are free.
    Space {
        /// In all.
        total: u64,
        /// Free.
        free: u64,
    },
    /// Keys and records.
    Listed {
        /// In ascending order of keys.
        entries: Vec<(Vec<u8>, Vec<u8>)>,
        /// There are further ones.
        more: bool,
    },
}

/// What a store reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreFact {
    /// An order has ended.
    Done {
        /// Of the order.
        token: u64,
        /// How.
        outcome: Result<Outcome, StoreError>,
    },
    /// A transaction is visible, or has had no effect at all.
    Applied {
        /// Its number.
        txn: u64,
        /// Whether it is.
        result: Result<(), StoreError>,
    },
    /// Each applied transaction up to this one survives a crash.
    Committed {
        /// The highest number.
        up_to: u64,
    },
    /// A commit waits for room, which other programs have taken. The store goes on when there is some.
    Short,
    /// The store is out of service: applied transactions may be lost, further orders fail.
    Failed(StoreError),
}

/// Why a store could not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No space is left.
    #[error("the store is full")]
    Full,
    /// A length is beyond its limit.
    #[error("{what} of {value} bytes: limit {max}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// The length.
        value: u64,
        /// The limit.
        max: u64,
    },
    /// The number of a transaction is not above the one before.
    #[error("transaction {id}: expected a number above {last}")]
    Order {
        /// Its number.
        id: u64,
        /// The one before.
        last: u64,
    },
    /// What was stored is not what is there.
    #[error("{what}: damaged, {why}")]
    Damaged {
        /// Which record or file.
        what: String,
        /// How that shows.
        why: String,
    },
    /// The system refused a read or write.
    #[error("{what}: {why}")]
    Io {
        /// Of which file.
        what: String,
        /// The system's reason.
        why: String,
    },
    /// The store failed before.
    #[error("the store is out of service since an earlier failure")]
    OutOfService,
}

impl StoreError {
    /// The error number that stands for it.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Full => Errno::ENOSPC,
            Self::Limit { .. } | Self::Order { .. } => Errno::EINVAL,
            Self::Damaged { .. } | Self::Io { .. } | Self::OutOfService => Errno::EIO,
        }
    }

    /// Whether the store can go on: the order was refused, and nothing is wrong with the store.
    pub const fn is_refusal(&self) -> bool {
        !matches!(self, Self::Io { .. } | Self::OutOfService)
    }
}

/// Storage of one target. Its host finds its own kind of store again by its type.
pub trait Store: Any + Send {
    /// Takes an order. `memory` holds the bytes of its spans; of those that a transaction writes it holds
    /// anything from then on.
    fn order(&mut self, order: StoreOrder, memory: &mut dyn Memory);

    /// The next fact. Data that was read is written to `memory` by now.
    fn poll(&mut self, memory: &mut dyn Memory) -> Option<StoreFact>;
}

impl Txn {
    /// Whether each change is within the limits, and the number above `last`.
    ///
    /// # Errors
    /// [`StoreError::Order`], [`StoreError::Limit`].
    pub fn check(&self, last: u64) -> Result<(), StoreError> {
        if self.id <= last {
            return Err(StoreError::Order { id: self.id, last });
        }
        limit("transaction of changes", self.changes.len() as u64, CHANGES_MAX as u64)?;
        let mut written = 0;
        for change in &self.changes {
            match change {
                Change::Put(_, key, value) => {
                    limit("key", key.len() as u64, KEY_MAX as u64)?;
                    limit("record", value.len() as u64, RECORD_MAX as u64)?;
                }
                Change::Delete(_, key) => limit("key", key.len() as u64, KEY_MAX as u64)?,
                Change::Write { offset, bytes, .. } => {
                    let len = iovec_len(bytes);
                    limit("end of data", offset.saturating_add(len), DATA_END)?;
                    written += len;
                }
                Change::Cut { .. } => {}
            }
        }
        limit("transaction of data", written, WRITE_MAX)
    }

    /// What each [`Change::Write`] writes.
    pub fn writes(&self) -> impl Iterator<Item = &IoVec> {
        self.changes.iter().filter_map(|change| match change {
            Change::Write { bytes, .. } => Some(bytes),
            _ => None,
        })
    }

    /// Bytes that the transaction may need beside what is there. What a target records of its clients
    /// always finds room: it is bounded by their number, and a delete needs some.
    pub fn grows(&self) -> u64 {
        let grows = self.changes.iter().map(|change| match change {
            Change::Put(Space::Objects, key, value) => (key.len() + value.len()) as u64,
            Change::Write { bytes, .. } => iovec_len(bytes),
            Change::Put(..) | Change::Delete(..) | Change::Cut { .. } => 0,
        });
        grows.sum()
    }
}

impl Source {
    /// Whether it is within the limits.
    ///
    /// # Errors
    /// [`StoreError::Limit`].
    pub fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Record(..) => Ok(()),
            Self::Data { offset, into, .. } => {
                limit("end of data", offset.saturating_add(iovec_len(into)), DATA_END)
            }
        }
    }
}

/// The checksum of some spans, one behind the other.
pub fn checksum(memory: &dyn Memory, kind: Checksum, spans: &IoVec) -> u32 {
    let mut sum = kind.begin();
    for span in spans {
        sum.update(memory.bytes(*span));
    }
    sum.value()
}

/// Refuses a length beyond its limit.
///
/// # Errors
/// [`StoreError::Limit`].
pub fn limit(what: &'static str, value: u64, max: u64) -> Result<(), StoreError> {
    if value > max { Err(StoreError::Limit { what, value, max }) } else { Ok(()) }
}

/// The bytes of some spans, one behind the other.
pub fn gather(memory: &dyn Memory, spans: &[Span]) -> Vec<u8> {
    let mut all = Vec::new();
    spans.iter().for_each(|span| all.extend_from_slice(memory.bytes(*span)));
    all
}
