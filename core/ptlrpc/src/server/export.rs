//! A target, and a client's connection to it (P-128).

use std::collections::BTreeMap;

use lnet_types::{Instant, Nid};
use lustre_wire::ConnectData;

use crate::table::{ServedId, TargetId};

/// Something that clients connect to.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Its uuid.
    pub uuid: String,
    /// What it supports, and the values that clients are granted.
    pub offer: ConnectData,
    /// Whether it keeps transactions: clients then keep what is not committed, to repeat it.
    pub replayable: bool,
}

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) config: TargetConfig,
    /// Highest transaction that survives a crash.
    pub(crate) committed: u64,
}

/// A reply that may have to be given once more (P-141).
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) message: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) target: TargetId,
    /// The client's name for the connection.
    pub(crate) cookie: u64,
    pub(crate) client: String,
    /// The client's own cookie.
    pub(crate) client_handle: u64,
    pub(crate) conn_cnt: u32,
    pub(crate) from: Nid,
    pub(crate) granted: ConnectData,
    /// When a request came last.
    pub(crate) heard: Instant,
    /// The highest xid up to which the client has all answers (P-112).
    pub(crate) last_xid: u64,
    /// What waits or is being served, by xid.
    pub(crate) in_work: BTreeMap<u64, ServedId>,
    /// Answers to requests that have changed something, until the client has them (P-142).
    pub(crate) records: BTreeMap<u64, Record>,
}

impl Export {
    /// Takes in what the client has answers for.
    pub(crate) fn acknowledge(&mut self, last_xid: u64) {
        if last_xid > self.last_xid {
            self.last_xid = last_xid;
            self.records = self.records.split_off(&last_xid.saturating_add(1));
        }
    }
}
