//! Locks of the targets of this node, as they are shown. Times are counted from the moment of the answer.

use lnet_config::text;
use lnet_types::Nid;
use serde::{Deserialize, Serialize};

/// Which locks are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockSelection {
    /// All.
    All,
    /// Those that wait, and those that others wait for.
    Contended,
    /// Those on this name.
    Named(String),
}

/// A lock that a client of this node's targets has or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockSnapshot {
    /// Uuid of the target.
    pub target: String,
    /// What is locked: the name, or its four words.
    pub resource: String,
    /// The lock's name on this server.
    pub lock: u64,
    /// `PLAIN`, `EXTENT`, `FLOCK` or `IBITS`.
    pub kind: String,
    /// The mode that is granted, or asked for.
    pub mode: String,
    /// What of the resource, for kinds that have parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// `granted`, `called back` or `waiting`.
    pub state: String,
    /// How long it is in this state, or was granted, milliseconds.
    pub since_ms_ago: u64,
    /// Uuid of the client.
    pub client: String,
    /// Where the client is; absent for one that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::nid_option")]
    pub nid: Option<Nid>,
    /// Its fencing number; absent for a lock without one, or with one of an earlier start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// How long until its client is evicted for it, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted_in_ms: Option<u64>,
    /// The locks that it waits for, the first eight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<Self>,
}

/// A page of locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockPage {
    /// The locks.
    pub locks: Vec<LockSnapshot>,
    /// `from` of the request for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// The locks of a target, counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceSnapshot {
    /// Uuid of the target.
    pub target: String,
    /// Resources that have locks.
    pub resources: u64,
    /// Clients that have locks.
    pub clients: u64,
    /// Locks.
    pub locks: u64,
    /// Those that wait.
    pub waiting: u64,
    /// Those whose client is called back.
    pub called_back: u64,
    /// What a lock is worth to the caches of clients (SLV).
    pub slv: u64,
    /// How many locks there should be.
    pub limit: u32,
    /// What has happened: name and number.
    pub counters: Vec<(String, u64)>,
}
