//! The request layer above LNet, as it is shown: targets, imports, exports, services, and the faults
//! that are injected there. Times are counted from the moment of the answer, so that no clock has to
//! be shared.

use lnet_config::text;
use lnet_types::Nid;
use serde::{Deserialize, Serialize};

/// Most imports, or exports, on a page (an import with its history takes some 2 KiB).
pub const RPC_ROWS_PER_PAGE: usize = 2048;

/// A target that this node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSnapshot {
    /// Its uuid.
    pub name: String,
    /// What it does: `kv`.
    pub kind: String,
    /// Where its store is.
    pub dir: String,
    /// `serving`, `recovering`, `stopping` or `failed`.
    pub state: String,
    /// Why it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How often it was started.
    pub instance: u32,
    /// Clients that it has.
    pub clients: u64,
    /// Highest transaction.
    pub last_transno: u64,
    /// Highest transaction that is committed.
    pub committed: u64,
    /// Transactions since its start that are not committed.
    #[serde(default)]
    pub uncommitted: u64,
    /// Its recovery after the last start, if it had anything to recover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoverySnapshot>,
}

/// The recovery of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoverySnapshot {
    /// `waiting`, `requests`, `locks`, `done` or `aborted`.
    pub stage: String,
    /// Clients that were known at the start.
    pub clients: u64,
    /// Those of them that are connected.
    pub connected: u64,
    /// Those of them that are gone.
    pub evicted: u64,
    /// Uuids of those that are missing, the first hundred.
    pub missing: Vec<String>,
    /// What is left of the window, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

/// A client's end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSnapshot {
    /// Uuid of the target.
    pub target: String,
    /// Uuid of the client.
    pub client: String,
    /// State, by its name on the servers of the kernel.
    pub state: String,
    /// The last changes of state, oldest first: how long ago, milliseconds, and which.
    pub history: Vec<(u64, String)>,
    /// The node in use, or tried last.
    #[serde(with = "text::nid")]
    pub nid: Nid,
    /// How often a connection was made, or tried.
    pub connections: u32,
    /// Why the last connect failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The nodes that may serve the target: each with why it is the next one, or is not.
    pub nodes: Vec<NodeChoice>,
    /// Calls that have not ended.
    pub in_flight: u64,
    /// Calls that wait for a slot.
    pub delayed: u64,
    /// Finished requests that the server may still lose.
    pub retained: u64,
    /// Highest transaction that is committed.
    pub committed: u64,
    /// Replies that were longer than the room for them.
    #[serde(default)]
    pub truncated: u64,
    /// Estimate of the net, milliseconds.
    pub net_ms: u64,
    /// Estimates of the services, by request portal, milliseconds.
    pub services_ms: Vec<(u32, u64)>,
}

/// A node that may serve a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeChoice {
    /// The node.
    #[serde(with = "text::nid")]
    pub nid: Nid,
    /// How often it was tried.
    pub attempts: u32,
    /// How often it answered.
    pub replies: u32,
    /// Why it is the next one, or is not.
    pub reason: String,
}

/// Most imports that one answer explains.
pub const EXPLAINED_MAX: usize = 256;

/// Where an import would connect now, and why (P-60).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportExplanation {
    /// Uuid of the target.
    pub target: String,
    /// Uuid of the client.
    pub client: String,
    /// State.
    pub state: String,
    /// Why it does not connect by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never: Option<String>,
    /// How long until the next connect, milliseconds; absent while it is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_in_ms: Option<u64>,
    /// Whether all nodes were tried since the last success.
    pub all_tried: bool,
    /// Whether the connect is sent.
    pub sent: bool,
    /// The server's part of its deadline, milliseconds.
    pub server_ms: u64,
    /// The net's part of its deadline, milliseconds.
    pub net_ms: u64,
    /// The nodes that may serve the target, in the order in which they are looked at.
    pub nodes: Vec<NodeExplanation>,
    /// The same for people.
    pub text: String,
}

/// Why a node is the next one of an import, or is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeExplanation {
    /// The node.
    #[serde(with = "text::nid")]
    pub nid: Nid,
    /// Whether it is the next one.
    pub next: bool,
    /// Why.
    pub reason: String,
    /// What LNet knows of it.
    pub lnet: String,
    /// How long ago it was tried, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried_ms_ago: Option<u64>,
    /// How often it was tried.
    pub attempts: u32,
    /// How often it answered.
    pub replies: u32,
}

/// A page of imports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportPage {
    /// The imports.
    pub imports: Vec<ImportSnapshot>,
    /// `from` of the request for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A client's connection to a target of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportSnapshot {
    /// Uuid of the target.
    pub target: String,
    /// Uuid of the client.
    pub client: String,
    /// Where the client is; absent for one that has not come back since the start.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::nid_option")]
    pub nid: Option<Nid>,
    /// The client's count of connections.
    pub connections: u32,
    /// How long ago a request came last, milliseconds.
    pub heard_ms_ago: u64,
    /// How long until it is evicted if it stays silent, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted_in_ms: Option<u64>,
    /// Requests that wait or are being served.
    pub in_work: u64,
    /// Answers that are kept for it.
    pub retained: u64,
    /// Its highest transaction that is committed.
    pub committed: u64,
}

/// A client that was evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionSnapshot {
    /// Uuid of the target.
    pub target: String,
    /// Uuid of the client.
    pub client: String,
    /// Why.
    pub reason: String,
    /// How long ago, milliseconds.
    pub ms_ago: u64,
}

/// A page of exports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportPage {
    /// The exports.
    pub exports: Vec<ExportSnapshot>,
    /// The last sixteen evictions, oldest first; on the first page.
    pub evicted: Vec<EvictionSnapshot>,
    /// `from` of the request for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A service: request buffers on a portal, and a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSnapshot {
    /// Its name.
    pub name: String,
    /// Portal of its requests.
    pub portal: u32,
    /// The policy of its regular head.
    pub policy: String,
    /// The policy of its high-priority head, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_high: Option<String>,
    /// Requests that wait, those of high priority among them.
    pub delayed: u64,
    /// Those of high priority.
    pub delayed_high: u64,
    /// Requests that are being served.
    pub in_flight: u64,
    /// Request buffers that are posted.
    pub posted: u32,
    /// How long it takes, as clients hear it, milliseconds.
    pub estimate_ms: u64,
    /// The worst that was ever measured, milliseconds.
    pub worst_ms: u64,
    /// How long ago that was, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_ms_ago: Option<u64>,
    /// The measured peaks, newest first, milliseconds.
    pub bins_ms: Vec<u64>,
    /// How long until it counts as unhealthy if it takes no request, milliseconds; 0: it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_in_ms: Option<u64>,
    /// Request buffers that should be posted.
    #[serde(default)]
    pub buffers: u32,
    /// How long ago it was last not able to keep up, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_ms_ago: Option<u64>,
    /// How long requests have waited before they were taken.
    #[serde(default)]
    pub waited: HistogramSnapshot,
    /// How long they were served.
    #[serde(default)]
    pub served: HistogramSnapshot,
}

/// Counts of durations by size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramSnapshot {
    /// Upper bound of each class, milliseconds, and its count; without a bound: what is beyond.
    pub classes: Vec<(Option<u64>, u64)>,
    /// All durations together, milliseconds.
    pub sum_ms: u64,
}

impl HistogramSnapshot {
    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.classes.iter().map(|(_, count)| count).sum()
    }
}

/// What gets lost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RpcPart {
    /// The request.
    Request,
    /// The reply.
    Reply,
    /// A piece of the bulk data.
    Bulk,
    /// An early reply.
    Early,
}

impl RpcPart {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Request, Self::Reply, Self::Bulk, Self::Early];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Reply => "reply",
            Self::Bulk => "bulk",
            Self::Early => "early",
        }
    }
}

/// Messages of the request layer that are to get lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcLose {
    /// Of requests of this operation, by name or number; absent: of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opcode: Option<String>,
    /// What of them.
    pub part: RpcPart,
    /// How many messages.
    pub count: u32,
}

/// Requests that are to wait, as on a loaded server (P-119).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcDelay {
    /// Name of the service.
    pub service: String,
    /// Shortest delay, seconds.
    pub min_s: u16,
    /// Longest delay, seconds.
    pub max_s: u16,
    /// How many of a hundred requests.
    pub percent: u8,
}

/// Which faults of the request layer are to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RpcFaultDel {
    /// All of them.
    All,
    /// The rule of this number.
    Rule(u64),
    /// The delay of this service.
    Service(String),
}

/// The faults of the request layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcFaults {
    /// What gets lost: the number of the rule, the rule, and how many messages it has lost.
    pub lose: Vec<(u64, RpcLose, u32)>,
    /// What is delayed.
    pub delay: Vec<RpcDelay>,
}
