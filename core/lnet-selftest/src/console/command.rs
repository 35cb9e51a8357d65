//! What people ask of a console and what it answers: data that travels over the control socket.

use core::time::Duration;

use lnet_config::text;
use lnet_types::{Errno, Nid};
use serde::{Deserialize, Serialize};

use crate::Histogram;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Begins a session (L-6). There is one: EEXIST, and it goes on. [`Answer::Session`]
    NewSession {
        /// Its name.
        name: String,
        /// How long it lives without a command, seconds.
        timeout_s: u32,
        /// Ends the one that there is, and takes nodes from sessions of other consoles.
        force: bool,
        /// Feature bits; unknown ones: EOPNOTSUPP.
        features: u32,
    },
    /// Shows the session (L-7). `Session`
    ShowSession,
    /// Ends the session (L-8). [`Answer::Nodes`]: its nodes
    EndSession,
    /// Makes a group without nodes (L-9). There is one: EEXIST. [`Answer::Done`]
    AddGroup {
        /// Its name.
        name: String,
    },
    /// Invites nodes into the session and a group (L-9). `Nodes`
    AddNodes {
        /// The group.
        group: String,
        /// The nodes.
        #[serde(with = "text::nids")]
        nids: Vec<Nid>,
    },
    /// Removes a group; nodes in no other group leave the session (L-10). Used by a test: EBUSY.
    /// `Nodes`
    DelGroup {
        /// The group.
        name: String,
    },
    /// Invites those nodes of a group that are not active (L-11). `Nodes`
    RefreshGroup {
        /// The group.
        name: String,
    },
    /// Removes the nodes of a group in one of these states (L-11). `Nodes`
    CleanGroup {
        /// The group.
        name: String,
        /// The states.
        states: Vec<NodeState>,
    },
    /// Removes nodes from a group (L-11). `Nodes`
    RemoveNodes {
        /// The group.
        group: String,
        /// The nodes.
        #[serde(with = "text::nids")]
        nids: Vec<Nid>,
    },
    /// The names of groups, in the order in which they were made (L-12). [`Answer::Names`]
    ListGroups,
    /// The nodes of a group (L-12). [`Answer::Group`]
    ShowGroup {
        /// The group.
        name: String,
    },
    /// Pings nodes (L-13). `Nodes`: [`Report::Alive`]
    Ping {
        /// The nodes.
        target: Target,
        /// Limit, seconds.
        timeout_s: u32,
    },
    /// Makes a batch without tests (L-14). There is one: EEXIST. `Done`
    AddBatch {
        /// Its name.
        name: String,
    },
    /// Adds a test (L-15). `Nodes`: first the servers, then the clients
    AddTest(TestSpec),
    /// Runs a batch (L-16). `Nodes`
    Run {
        /// The batch.
        batch: String,
        /// A limit that nodes get and do not keep, seconds.
        timeout_s: u32,
    },
    /// Stops a batch (L-17): [`Command::Query`] tells when it has. `Nodes`
    Stop {
        /// The batch.
        batch: String,
        /// Not even waiting for what is in flight.
        force: bool,
    },
    /// The names of batches (L-18). `Names`
    ListBatches,
    /// A batch with its tests and nodes (L-18). [`Answer::Batch`]
    ShowBatch {
        /// The batch.
        name: String,
    },
    /// Queries the state of a batch or test (L-19). `Nodes`: [`Report::Active`]
    Query {
        /// The batch.
        batch: String,
        /// A test from 1, or 0 for the whole batch.
        test: u32,
        /// Ask the servers, not the clients.
        server: bool,
        /// Limit, seconds.
        timeout_s: u32,
    },
    /// Queries the counters of nodes (L-20, L-21). `Nodes`: [`Report::Counters`]
    Stat {
        /// The nodes.
        target: Target,
        /// Limit, seconds.
        timeout_s: u32,
    },
    /// Sets how long the calls of this node may take until it ends its session (else 64 s). 0: EINVAL.
    /// [`Answer::Done`]
    Patience {
        /// Seconds.
        seconds: u32,
    },
    /// Results of the tests that this node itself is a client of, in any session.
    /// [`Answer::Local`]
    Local,
}

impl Command {
    /// The time-out that it names for the nodes that it asks, seconds.
    pub const fn timeout_s(&self) -> u32 {
        match self {
            Self::Ping { timeout_s, .. }
            | Self::Query { timeout_s, .. }
            | Self::Stat { timeout_s, .. } => *timeout_s,
            _ => 0,
        }
    }
}

/// Some nodes of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// All.
    Session,
    /// Those of a group.
    Group(String),
    /// The clients or the servers of a batch.
    Batch {
        /// The batch.
        name: String,
        /// The servers.
        server: bool,
    },
    /// These.
    Nodes(#[serde(with = "text::nids")] Vec<Nid>),
}

/// A test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestSpec {
    /// The batch that it is added to.
    pub batch: String,
    /// The group of clients.
    pub from: String,
    /// The group of servers.
    pub to: String,
    /// How often each unit repeats; `None` is without end.
    pub repeat: Option<u32>,
    /// Units per client and server.
    pub concurrency: u32,
    /// So many clients share …
    pub clients: u32,
    /// … so many servers.
    pub servers: u32,
    /// What is done.
    pub kind: Kind,
}

/// What a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Pings.
    Ping,
    /// Moves data.
    Brw(Brw),
}

impl Kind {
    /// Its word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Brw(_) => "brw",
        }
    }
}

/// A test that moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brw {
    /// From clients to servers; else the other way.
    pub write: bool,
    /// Bytes: a multiple of 8, at most 1 MiB.
    pub size: u32,
    /// Where in its first page a client's buffer begins: a multiple of 8.
    pub offset: u32,
    /// Whether data are looked at.
    pub check: Check,
}

/// Whether data are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// No.
    None,
    /// First and last 8 bytes.
    Simple,
    /// All of it.
    Full,
    /// No, and they may be thrown away.
    Discard,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done,
    /// The session.
    Session(SessionShown),
    /// Names.
    Names(Vec<String>),
    /// The nodes of a group.
    Group(Vec<NodeShown>),
    /// A batch.
    Batch(Box<BatchShown>),
    /// What came of each node that had to be asked.
    Nodes(Nodes),
    /// The tests of this node.
    Local(Vec<LocalTest>),
}

/// What came of each node.
pub type Nodes = Vec<NodeResult>;

/// What came of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeResult {
    /// The node.
    #[serde(with = "text::nid")]
    pub nid: Nid,
    /// Its process.
    pub pid: u32,
    /// Its state now.
    pub state: NodeState,
    /// What was asked of it, as errors say it.
    pub operation: String,
    /// What it said.
    pub outcome: Result<Report, NodeFailure>,
}

/// What a node said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// That it is done.
    Done,
    /// That it lives, and in which session.
    Alive {
        /// The session's name.
        session: String,
        /// Its console.
        #[serde(with = "text::nid")]
        console: Nid,
    },
    /// So many tests, or units of a test, are running.
    Active(u32),
    /// Its counters.
    Counters(Box<Counters>),
}

/// Why a node did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFailure {
    /// Whether the node itself refused; else it was not reached.
    pub refused: bool,
    /// The error number.
    pub errno: i32,
}

impl NodeFailure {
    /// The error number.
    pub const fn errno(&self) -> Errno {
        Errno(self.errno)
    }
}

/// The counters of a node (6.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the wire")]
pub struct Counters {
    pub running_ms: u32,
    pub active_batches: u32,
    pub brw_errors: u32,
    pub ping_errors: u32,
    pub rpc_errors: u32,
    pub rpcs_sent: u32,
    pub rpcs_rcvd: u32,
    pub rpcs_dropped: u32,
    pub rpcs_expired: u32,
    pub bulk_get: u64,
    pub bulk_put: u64,
    pub send_count: u32,
    pub recv_count: u32,
    pub drop_count: u32,
    pub send_length: u64,
    pub recv_length: u64,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionShown {
    /// Its name.
    pub name: String,
    /// The console's NID.
    #[serde(with = "text::nid")]
    pub nid: Nid,
    /// The console's number for it.
    pub stamp: i64,
    /// The key of those who may command it.
    pub key: u32,
    /// Feature bits.
    pub features: u32,
    /// How long it lives without a command, seconds.
    pub timeout_s: u32,
    /// Whether it was forced.
    pub force: bool,
    /// Nodes in it.
    pub nodes: u32,
}

/// How a console sees a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// In the session.
    Active,
    /// In the session of another console.
    Busy,
    /// Not reached.
    Down,
    /// Not asked yet, or it has left the session.
    Unknown,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShown {
    /// The node.
    #[serde(with = "text::nid")]
    pub nid: Nid,
    /// Its process.
    pub pid: u32,
    /// Its state.
    pub state: NodeState,
}

/// A batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchShown {
    /// Whether it runs by the last report.
    pub running: bool,
    /// All clients.
    pub clients: Vec<NodeShown>,
    /// All servers.
    pub servers: Vec<NodeShown>,
    /// The tests, in order.
    pub tests: Vec<TestShown>,
}

/// A test of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestShown {
    /// What it does: `brw` or `ping`.
    pub kind: String,
    /// How often; `None` is without end.
    pub repeat: Option<u32>,
    /// Units per client and server.
    pub concurrency: u32,
    /// Its clients.
    pub clients: Vec<NodeShown>,
    /// Its servers.
    pub servers: Vec<NodeShown>,
}

/// A test of this node's, as client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalTest {
    /// Number of its batch.
    pub batch: u64,
    /// Its number, from 1.
    pub test: u32,
    /// What it does: `brw` or `ping`.
    pub kind: String,
    /// Bytes that one call moves.
    pub bytes: u64,
    /// Running units.
    pub active: u32,
    /// Calls that failed.
    pub errors: u64,
    /// How long those took that did not.
    pub took: Histogram,
    /// Calls in flight for longer than a second.
    pub stalled: u32,
    /// How long the oldest call in flight has been so.
    pub oldest: Duration,
}

/// From this time on a call in flight counts as stalled.
pub(crate) const STALL: Duration = Duration::from_secs(1);
