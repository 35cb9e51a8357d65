//! What a node answers.

use lnet_config::{UdspRule, text};
use lnet_types::Nid;
use serde::{Deserialize, Serialize};

use crate::{
    AdminError, DriverPage, ExportPage, FaultSnapshot, GlobalSnapshot, ImportExplanation,
    ImportPage, NetSnapshot, ParamInfo, PeerSnapshot, RoutePage, RoutingSnapshot, RpcFaults,
    ServiceSnapshot, StatsSnapshot, TargetSnapshot,
};

/// The answer to a request that was not refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reply {
    /// It is done; there is nothing to tell.
    Done,
    /// Who is there.
    Status(Status),
    /// The local nets asked for.
    Nets(Vec<NetSnapshot>),
    /// A page of peers.
    Peers(PeerPage),
    /// A page of routes.
    Routes(RoutePage),
    /// Where forwarding stands.
    Routing(RoutingSnapshot),
    /// What became of each NID, in the order asked.
    Contacted(Vec<Contacted>),
    /// All tunables.
    Global(GlobalSnapshot),
    /// The counters of the node.
    Stats(StatsSnapshot),
    /// The rules of the selection policy in their order, patterns in canonical form.
    Udsp(Vec<UdspRule>),
    /// Fault rules.
    Faults(Vec<FaultSnapshot>),
    /// Explanations, each a table for people: what stands in it has no keys.
    Texts(Vec<String>),
    /// What the console of selftest answers.
    Selftest(lnet_selftest::Answer),
    /// A part of a recording.
    Recording(RecordingPart),
    /// How far each NID is, in the order asked: hops (0 is this node itself) and, among equals,
    /// order; absent where no way leads.
    Distances(Vec<Option<(u32, u32)>>),
    /// Rails that are not above doubt; none where suspicion is off.
    Rails(Vec<RailSnapshot>),
    /// A CPU partition for each NID, in the order asked.
    Cpts(Vec<u32>),
    /// A page of a driver's records.
    Driver(DriverPage),
    /// The parameter files.
    Params(Vec<ParamInfo>),
    /// NIDs, in order.
    Nids(#[serde(with = "text::nids")] Vec<Nid>),
    /// The targets, by name.
    Targets(Vec<TargetSnapshot>),
    /// A page of imports.
    Imports(ImportPage),
    /// Why imports would connect where they would.
    ImportExplanations(Vec<ImportExplanation>),
    /// A page of exports.
    Exports(ExportPage),
    /// A page of locks.
    Locks(crate::LockPage),
    /// The locks of each target, counted.
    Namespaces(Vec<crate::NamespaceSnapshot>),
    /// The services.
    Services(Vec<ServiceSnapshot>),
    /// The faults of the request layer.
    RpcFaults(RpcFaults),
    /// How a trial goes.
    Trial {
        /// Its number, for further parts.
        number: u64,
        /// The first step of the part that is refused, and why. The trial has ended.
        refused: Option<(u32, AdminError)>,
    },
    /// The first timers of the node, and how many there are.
    Timers {
        /// In the order in which they are due.
        timers: Vec<TimerSnapshot>,
        /// All that are set.
        total: u64,
    },
}

/// Something that the node does by itself at a certain time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerSnapshot {
    /// What: `response`, `recovery`, `discovery` and so on.
    pub kind: String,
    /// The interface, the primary NID of the peer, or where the message goes.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::nid_option")]
    pub nid: Option<Nid>,
    /// The type of the message that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How long until it is due, milliseconds.
    pub due_in_ms: u64,
}

/// A rail that its driver does not trust (DEC-31).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RailSnapshot {
    /// Our end.
    #[serde(with = "text::nid")]
    pub local: Nid,
    /// The peer's.
    #[serde(with = "text::nid")]
    pub peer: Nid,
    /// How grave it is: `shaky`, `unproven`, `slow` or `silent`.
    pub doubt: String,
    /// For how long, milliseconds.
    pub for_ms: u64,
}

/// Who is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Whether LNet is configured.
    pub configured: bool,
    /// The profile of defaults in force.
    pub profile: String,
    /// A number that no other life of a daemon has; 0 from daemons that have none.
    #[serde(default)]
    pub incarnation: u64,
    /// The name of its host; empty where it is not known.
    #[serde(default)]
    pub host: String,
}

/// Bytes of a recording of the node, for `ulnet sim replay`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingPart {
    /// The number of the recording.
    pub number: u64,
    /// How many parts it has.
    pub parts: u32,
    /// How many calls of the node it holds.
    pub calls: u64,
    /// The bytes, two hexadecimal digits each.
    #[serde(with = "crate::hex")]
    pub bytes: Vec<u8>,
}

/// Some peers, and where to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerPage {
    /// The peers.
    pub peers: Vec<PeerSnapshot>,
    /// `from` of the request for the next page; absent on the last one. Opaque to clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// What became of one NID that was pinged or discovered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contacted {
    /// The NID that was asked for.
    #[serde(with = "text::nid")]
    pub nid: Nid,
    /// What it said.
    pub outcome: Result<Contact, AdminError>,
}

/// A peer that answered (S-ping-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// Its primary NID in this node's record.
    #[serde(with = "text::nid")]
    pub primary: Nid,
    /// Whether this node records it as Multi-Rail.
    pub multi_rail: bool,
    /// Its process id; 12345 for every Lustre service.
    pub pid: u32,
    /// Its NIDs without loopback: after a ping those of the answer, after a discovery those known.
    #[serde(with = "text::nids")]
    pub nids: Vec<Nid>,
}
