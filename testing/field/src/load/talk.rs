//! What a harness and its load processes say to each other: lines of JSON, over the standard input
//! and output of the process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::clock::Micros;

/// The first line that a load process gets: what it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sends requests and bulk over LNet.
    Client {
        /// Its node.
        node: NodeSpec,
        /// NID of the server.
        server: String,
        /// What to send.
        load: Load,
    },
    /// Answers and takes them.
    Server {
        /// Its node.
        node: NodeSpec,
        /// Where it notes what it has seen.
        ledger: PathBuf,
        /// Its life, from 1.
        life: u8,
        /// What comes.
        load: Load,
    },
    /// The same client over MPTCP.
    MptcpClient {
        /// Address and port of the server.
        server: String,
        /// What to send.
        load: Load,
    },
    /// The same server over MPTCP.
    MptcpServer {
        /// Address and port to listen on.
        listen: String,
        /// Where it notes what it has seen.
        ledger: PathBuf,
        /// Its life, from 1.
        life: u8,
        /// What comes.
        load: Load,
    },
}

/// A node that a load process embeds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeSpec {
    /// NIDs of its interfaces.
    pub nids: Vec<String>,
    /// TCP port.
    pub port: u16,
    /// Name of the profile.
    pub profile: String,
    /// Tunables that differ from it.
    pub tunables: Vec<(String, i64)>,
    /// Rows of the conduct table that differ from it.
    pub conduct: Vec<(String, String)>,
    /// Routes.
    pub routes: Vec<RouteLine>,
}

/// A route.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteLine {
    /// The network that is reached.
    pub net: String,
    /// NID of the gateway.
    pub gateway: String,
    /// Hops, if defined.
    pub hops: Option<u32>,
    /// 0 is best.
    pub priority: u32,
}

/// What is sent.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// Seed of the bytes.
    pub seed: u64,
    /// Bytes of a request.
    pub request: u32,
    /// Bytes of its reply.
    pub reply: u32,
    /// Whether requests and replies ask for an ACK.
    pub ack: bool,
    /// Time from one request to the next, microseconds.
    pub every: Micros,
    /// Requests that may be under way.
    pub window: u32,
    /// Bytes of a bulk message; 0 for none.
    pub bulk: u32,
    /// Whether bulk messages ask for an ACK; the ledger knows which of the others have come.
    pub bulk_ack: bool,
    /// Time from one bulk message to the next, microseconds.
    pub bulk_every: Micros,
    /// Bulk messages that may be under way; the next one is begun when one has ended.
    pub bulk_window: u32,
    /// The caller's own limit on one message, microseconds; that of the node if `None`.
    pub timeout: Option<Micros>,
}

/// What a harness asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Begin to send at this time.
    Begin(Micros),
    /// Another interface.
    AddNi(String),
    /// One less.
    DelNi(String),
    /// Send no more, wait for what is under way, report, and end.
    Finish,
}

/// What a load process says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is ready for commands.
    Ready,
    /// The command was carried out.
    Done,
    /// It was not, or the process can't go on.
    Failed(String),
    /// The last word of a client.
    Client(Box<ClientReport>),
    /// The last word of a server.
    Server(ServerReport),
}

/// What became of one message.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Its number: requests and bulk are counted together, from 0.
    pub number: u64,
    /// Whether it is a request; bulk otherwise.
    pub request: bool,
    /// When it was due.
    pub due: Micros,
    /// When it was begun.
    pub begun: Micros,
    /// When the caller knew how it ended.
    pub ended: Option<Micros>,
    /// The error that the caller got.
    pub error: Option<i32>,
    /// When the first reply came (requests).
    pub replied: Option<Micros>,
    /// Replies that came.
    pub replies: u32,
}

impl Sample {
    /// Whether nothing more is waited for: its end, and the reply where there is one to come.
    pub fn is_over(&self) -> bool {
        self.ended.is_some() && (!self.request || self.replied.is_some() || self.error.is_some())
    }
}

/// What a client knows at the end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClientReport {
    /// All messages, in order of their numbers.
    pub samples: Vec<Sample>,
    /// Replies with wrong bytes.
    pub corrupt: u64,
    /// Counters of the node, by name.
    pub counters: Vec<(String, u64)>,
    /// When its node was seen to hold something more against a rail, an interface or a route.
    pub noticed: Vec<Micros>,
}

/// What a server knows at the end; the rest is in its ledger.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerReport {
    /// Messages with wrong bytes, or that could not be noted.
    pub corrupt: u64,
    /// Replies that were begun.
    pub replies: u64,
    /// Replies that ended with an error, and when they were begun.
    pub failed: Vec<(Micros, i32)>,
    /// Counters of the node, by name.
    pub counters: Vec<(String, u64)>,
    /// As [`ClientReport::noticed`].
    pub noticed: Vec<Micros>,
}

/// Words in `hdr_data` and frames: which kind of message, beside its number.
pub const KIND_SHIFT: u32 = 56;
/// A request.
pub const REQUEST: u64 = 1;
/// The reply to a request.
pub const REPLY: u64 = 2;
/// Bulk.
pub const BULK: u64 = 3;

/// Kind and number in one word.
pub const fn tag(kind: u64, number: u64) -> u64 {
    kind << KIND_SHIFT | number
}

/// The two parts of a tag.
pub const fn untag(tag: u64) -> (u64, u64) {
    (tag >> KIND_SHIFT, tag & ((1 << KIND_SHIFT) - 1))
}
