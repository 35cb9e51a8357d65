//! A whole configuration: what a YAML file says, in its order, checked as far as that goes without
//! a node. `import.rs` reads it, `export.rs` writes it, `plan.rs` turns it into steps.

use lnet_types::{Errno, Net, Nid};
use thiserror::Error;

use crate::yaml::{Pos, YamlError};
use crate::{Interface, LndTunables, NetRules, NetTunables, RouteAdd, Setting, UdspAdd};

/// The tunables that a `global` block may set, in the order in which exporters print them
/// (S-global-1). `lnd_timeout` is derived and printed between `router_sensitivity` and
/// `response_tracking`; importers ignore it.
pub const GLOBAL_KEYS: [&str; 12] = [
    "numa_range",
    "max_interfaces",
    "discovery",
    "drop_asym_route",
    "retry_count",
    "transaction_timeout",
    "health_sensitivity",
    "recovery_interval",
    "router_sensitivity",
    "response_tracking",
    "recovery_limit",
    "max_recovery_ping_interval",
];

/// The tunables that a `buffers` block sets: its keys, and their names as tunables (I-14).
pub const BUFFER_KEYS: [(&str, &str); 3] =
    [("tiny", "tiny_buffers"), ("small", "small_buffers"), ("large", "large_buffers")];

/// The tunables that only nodes of this kind have. They stand in a block `ulnet` of their own, which
/// exporters print only where a value is not the default: what kernel tools read stays as it is.
pub const OWN_KEYS: [&str; 35] = [
    "udsp_first",
    "exclude_at_zero",
    "explain_last",
    "flap_hold_down",
    "resend_on",
    "peer_refresh_interval",
    "rail_suspicion",
    "suppress_duplicates",
    "suspect_after_min",
    "suspect_after_rtts",
    "ping_timeout",
    "connect_timeout",
    "reconnect_timeout",
    "answer_overdue_after",
    "forward_timeout",
    "routing_stop_time",
    "previous_nid_time",
    "tcp_rto_max",
    "retained_per_connection",
    "health_on_success",
    "recovery_step",
    "health_range",
    "alive_router_check_interval",
    "live_router_check_interval",
    "dead_router_check_interval",
    "router_ping_timeout",
    "check_routers_before_use",
    "avoid_asym_router_failure",
    "auto_down",
    "legacy_route_rr",
    "peer_buffer_credits",
    "peers_max",
    "messages_max",
    "parked_max",
    "delayed_max",
];

/// A configuration. Blocks take effect in the order of the text (I-8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The blocks with their places.
    pub blocks: Vec<(Pos, Block)>,
    /// `global: profile:`, the defaults that a daemon is to start with, and its place.
    pub profile: Option<(Pos, String)>,
    /// The numbers that blocks were given by `seq_no`, by their places: older importers name them in
    /// errors (I-21).
    pub seq_nos: Vec<(Pos, i64)>,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// One item of `net`.
    Net(NetBlock),
    /// An `ip2nets` block, or the `ip2net` of an item of `net`: nets by the addresses of the machine.
    NetRules(NetRules),
    /// One item of `peer`.
    Peer(PeerBlock),
    /// A `global` or `numa` block, or tunables at top level. To be applied together, so that the
    /// order of `retry_count` and `transaction_timeout` does not matter (I-15).
    Settings(Vec<Setting>),
    /// A `ulnet` block: tunables of [`OWN_KEYS`], to be applied together.
    Own(Vec<Setting>),
    /// A `buffers` block: router buffers by the names of their tunables. A key that is absent means
    /// 0, the default (I-14).
    Buffers(Vec<Setting>),
    /// One item of `route` and one gateway of it (I-11).
    Route(RouteAdd),
    /// A `routing` block: whether this node forwards (I-13).
    Routing(bool),
    /// One item of `udsp` (I-16).
    Udsp(UdspAdd),
    /// A `ping` block: to be run, not to be configured.
    Ping(PingBlock),
    /// A `discover` block: to be run, not to be configured.
    Discover(DiscoverBlock),
}

/// A net and its NIs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetBlock {
    /// The net; never loopback.
    pub net: Net,
    /// Its NIs, at least one.
    pub nis: Vec<NiBlock>,
    /// Patterns of the peers that may connect, or `any`; nothing is said of it if `None`.
    pub accept_from: Option<Vec<String>>,
}

/// NIs of one net with the same settings: one for each interface, the one that `nid` names, or the
/// one on the first usable interface when neither is given (I-9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NiBlock {
    /// Interfaces.
    pub interfaces: Vec<Interface>,
    /// The NID, where no interface is named or an address of the interface is meant that is not
    /// its first (large NIDs).
    pub nid: Option<Nid>,
    /// Tunables of the net.
    pub tunables: NetTunables,
    /// Tunables of the NIs.
    pub lnd: LndTunables,
    /// CPTs; all if `None`.
    pub cpts: Option<Vec<u32>>,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerBlock {
    /// Its primary NID.
    pub primary: Nid,
    /// Its other NIDs.
    pub nids: Vec<Nid>,
    /// Whether it is Multi-Rail.
    pub multi_rail: bool,
    /// Whether discovery must leave the primary NID as it is.
    pub lock_primary: bool,
    /// NIDs are listed, and the primary one is not among them: removal then takes these NIDs from the
    /// peer and leaves the peer (C-peer-3).
    pub secondary_only: bool,
}

/// NIDs to be pinged (I-17).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PingBlock {
    /// Targets of the pings.
    pub nids: Vec<Nid>,
    /// Limit on each, milliseconds.
    pub timeout_ms: Option<u64>,
    /// The local NID to send from.
    pub source: Option<Nid>,
}

/// NIDs to be discovered (I-17).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoverBlock {
    /// Peers to discover.
    pub nids: Vec<Nid>,
    /// Whether to ask even a peer that is up to date.
    pub force: bool,
}

/// Why a text is not a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not YAML as it is read here.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// YAML that says something wrong. `text` is what scripts see.
    #[error("{text} at {pos}{}", .hint.as_ref().map(|h| format!(": {h}")).unwrap_or_default())]
    Content {
        /// What importers return for it.
        errno: Errno,
        /// What is wrong, as kernel tools say it where they do.
        text: String,
        /// Where.
        pos: Pos,
        /// What was expected there, or may have been meant.
        hint: Option<String>,
    },
}

impl ConfigError {
    /// The error number that importers return.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Yaml(_) => Errno::EINVAL,
            Self::Content { errno, .. } => *errno,
        }
    }

    /// The same with another number.
    pub(crate) fn with_errno(mut self, number: Errno) -> Self {
        if let Self::Content { errno, .. } = &mut self {
            *errno = number;
        }
        self
    }
}
