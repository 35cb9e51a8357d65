//! A client's connection to a target (P-128).

use core::time::Duration;

use lnet_types::{Instant, Nid};
use lustre_wire::{Body, ConnectData, ConnectFlags};

use super::connect::Asked;
use super::evictor::Deadline;
use super::leave::Leaving;
use super::records::Records;
use super::service::Origin;
use crate::numbered::Numbered;
use crate::table::{ImportId, ServedId, TargetId};

/// A connect that is answered when the client's record is stored.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) origin: Origin,
    pub(crate) body: Body,
    pub(crate) asked: Asked,
}

#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) target: TargetId,
    /// The client's name for the connection.
    pub(crate) cookie: u64,
    /// Its admission, if it comes from a life of the target before this one.
    pub(crate) admission: Option<u32>,
    pub(crate) client: String,
    /// The client's own cookie; 0 if it was not connected in this life of the target.
    pub(crate) client_handle: u64,
    pub(crate) conn_cnt: u32,
    pub(crate) from: Nid,
    pub(crate) granted: ConnectData,
    /// When a request came last.
    pub(crate) heard: Instant,
    /// When it is evicted for its silence; `None` if it need not ping.
    pub(crate) deadline: Option<Deadline>,
    /// The way to the client, as callbacks have shown it; zero before the first.
    pub(crate) net: Duration,
    /// The highest xid up to which the client has all answers (P-112).
    pub(crate) last_xid: u64,
    /// What waits or is being served, by xid.
    pub(crate) in_work: Numbered<ServedId>,
    /// Transactions of this client that were not committed when they were answered.
    pub(crate) uncommitted: Numbered<()>,
    /// Highest transaction of this client that is committed: what its replies say (P-11).
    pub(crate) committed: u64,
    /// Bytes of these, as they arrived.
    pub(crate) in_work_bytes: usize,
    /// Answers that may have to be given again.
    pub(crate) records: Records,
    /// It stands for an import of this node, over which its server calls back.
    pub(crate) import: Option<ImportId>,
    /// Its connect waits for its record to be stored.
    pub(crate) joining: Option<Box<Joining>>,
    /// Its disconnect waits for its record to be gone.
    pub(crate) leaving: Option<Box<Leaving>>,
}

impl Export {
    pub(crate) fn new(target: TargetId, cookie: u64, client: String, now: Instant) -> Self {
        Self {
            target,
            cookie,
            admission: None,
            client,
            client_handle: 0,
            conn_cnt: 0,
            from: Nid::ANY,
            granted: ConnectData::default(),
            heard: now,
            deadline: None,
            net: Duration::ZERO,
            last_xid: 0,
            in_work: Numbered::default(),
            uncommitted: Numbered::default(),
            committed: 0,
            in_work_bytes: 0,
            records: Records::default(),
            import: None,
            joining: None,
            leaving: None,
        }
    }

    /// Takes in a transaction of this client (0 for none) and what its target has committed; gives
    /// the highest one of this client that is committed.
    pub(crate) fn commit(&mut self, transno: u64, target: u64) -> u64 {
        if transno != 0 {
            self.uncommitted.insert(transno, ());
        }
        while let Some((first, ())) = self.uncommitted.pop_up_to(target) {
            self.committed = self.committed.max(first);
        }
        self.committed
    }

    /// Takes in what the client has answers for.
    pub(crate) fn acknowledge(&mut self, last_xid: u64) {
        if last_xid > self.last_xid {
            self.last_xid = last_xid;
            self.records.acknowledge(last_xid);
        }
    }

    /// The slot that a request uses; 0 for a client that has one request under way at a time.
    pub(crate) fn slot(&self, body: &Body) -> u16 {
        if self.granted.flags.contains(ConnectFlags::MULTIMODRPCS) { body.tag } else { 0 }
    }
}
