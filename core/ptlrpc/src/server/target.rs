//! A target, and what it remembers of its life before. Records of replies are kept in `records.rs`,
//! its recovery after a start stands in `recovery/`.

use lustre_wire::{Buffers, ConnectData};

use super::recovery::Recovery;

/// Something that clients connect to.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Its uuid.
    pub uuid: String,
    /// What it supports, and the values that clients are granted; `instance` counts its starts.
    pub offer: ConnectData,
    /// Whether it keeps transactions and records of its clients: clients then keep what is not
    /// committed, to repeat it, and a new one is connected when its record is stored
    /// ([`Event::Joining`](crate::Event::Joining)).
    pub replayable: bool,
    /// What its store gave back at its opening.
    pub past: Past,
}

/// What a target remembers of its life before (P-138, P-139).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Highest transaction that was committed, 0 for none.
    pub last_transno: u64,
    /// The clients that were connected. The target recovers until they are back; without any it
    /// does not recover.
    pub clients: Vec<ClientRecord>,
}

impl Past {
    /// What the transactions of the next life are above, if none is repeated from this one: its epoch
    /// (P-153). A target that awaits no client is to store it before it serves; otherwise a life of
    /// which nothing was committed is followed by one with the same numbers.
    pub const fn next_epoch(&self) -> u64 {
        next_epoch(self.last_transno)
    }
}

/// A client that was connected to a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRecord {
    /// Its uuid.
    pub uuid: String,
    /// Which admission it was ([`Event::Joining`](crate::Event::Joining)). A client that names another
    /// one when it comes back was evicted since, and has not heard that it was admitted anew. `None`: not
    /// known.
    pub admission: Option<u32>,
    /// The highest of its transactions that is committed, as replies say it (P-133). `None`: that of the
    /// target, as whatever the client had done is committed or lost.
    pub committed: Option<u64>,
    /// Answers that it may not have got.
    pub replies: Vec<ReplyRecord>,
}

/// One answer to a request that changed something, as it is stored in the transaction of its effect
/// (P-140, P-141).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyRecord {
    /// Number of the request.
    pub xid: u64,
    /// Its transaction.
    pub transno: u64,
    /// The client's slot that it used, 0 for none.
    pub tag: u16,
    /// Zero, a positive number whose meaning depends on the operation, or a negative errno.
    pub status: i32,
    /// Versions of the objects before the change.
    pub pre_versions: [u64; 4],
    /// Buffers behind the body.
    pub buffers: Buffers,
}

/// The first number of the transactions of a target that was started with `last` as its highest:
/// above all that a life before can have given out, as these shared its upper half (P-153).
pub(super) const fn next_epoch(last: u64) -> u64 {
    ((last >> 32).saturating_add(1)) << 32
}

/// How many transactions up to `last` are above `committed`. Numbers of an earlier epoch count none:
/// they are not consecutive with those of this one.
pub(super) fn uncommitted(last: u64, committed: u64) -> u64 {
    last.saturating_sub(committed.max(last >> 32 << 32))
}

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) config: TargetConfig,
    /// Highest transaction that survives a crash.
    pub(crate) committed: u64,
    /// Highest transaction that was given out, or executed again.
    pub(crate) last: u64,
    /// How its recovery goes, or went; `None` if it had nothing to recover.
    pub(crate) recovery: Option<Recovery>,
    /// What replies say about caches of locks: their value, and how many there should be (L-58).
    pub(crate) lock_volume: (u64, u32),
    /// Another node is about to serve it: each request is refused (P-106, P-109).
    pub(crate) failed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_of_an_earlier_epoch_are_not_counted_as_uncommitted() {
        let epoch = next_epoch(7);
        for (last, committed, wanted) in
            [(epoch, 0, 0), (epoch, 7, 0), (epoch + 3, 7, 3), (epoch + 3, epoch + 1, 2), (7, 9, 0)]
        {
            assert_eq!(uncommitted(last, committed), wanted, "{last:#x} {committed:#x}");
        }
    }
}
