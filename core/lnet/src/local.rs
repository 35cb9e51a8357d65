//! The local side: networks and their interfaces (behaviour.md 1.1, 1.3). Data and its upkeep only;
//! adding and removing are in `entry/links.rs`, choosing in `send/select.rs`, judging in `health.rs`.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;

use lnet_types::{Instant, Net, NiId, Nid};

use crate::policy::turn::{Grade, Turn};
use crate::port::{HEALTH_MAX, Port};
use crate::stats::NiFailures;

/// Tunables of a network, fixed by its first interface (C-netadd-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NetTunables {
    /// Seconds; shown, and enables aliveness on routers (V-11).
    pub peer_timeout: i32,
    /// Concurrent sends per peer NI.
    pub peer_credits: u32,
    /// Router buffers per peer; 0 follows the global default.
    pub peer_buffer_credits: u32,
    /// Concurrent sends per interface.
    pub credits: u32,
}

impl NetTunables {
    /// What socklnd uses (K-1).
    pub const SOCK: Self =
        Self { peer_timeout: 180, peer_credits: 8, peer_buffer_credits: 0, credits: 256 };
}

/// A local network.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct LocalNet {
    pub(crate) net: Net,
    pub(crate) nis: Vec<NiId>,
    pub(crate) tunables: NetTunables,
    pub(crate) seq: u64,
    /// What rules say of it, and its turn among local networks.
    pub(crate) grade: Grade,
    pub(crate) turn: Turn,
    /// Floor of the turns of its interfaces.
    pub(crate) floor: u64,
    /// On a router: when it was last heard of from outside.
    pub(crate) last_alive: Instant,
}

/// A local interface.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ni {
    pub(crate) nid: Nid,
    pub(crate) port: Port,
    pub(crate) interface: Option<String>,
    pub(crate) lnd_timeout: Option<Duration>,
    /// It can't be used (H-90): its driver says so, or it plays dead.
    pub(crate) fatal: bool,
    pub(crate) link_down: bool,
    pub(crate) plays_dead: bool,
    /// The status in the last announcement.
    pub(crate) announced_up: bool,
    /// A router's, on a network from which nothing has come for too long.
    pub(crate) aged: bool,
    /// The NUMA node that its device is attached to.
    pub(crate) numa_node: Option<u32>,
    /// The CPU partitions that it was given.
    pub(crate) cpts: Option<BTreeSet<u32>>,
    pub(crate) failures: NiFailures,
    /// When the last message came in on it.
    pub(crate) last_received: Option<Instant>,
    /// The state that was noted last.
    pub(crate) noted: NiState,
}

/// The three states of an interface (DEC-26).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum NiState {
    /// Nothing is wrong.
    #[default]
    Active,
    /// Usable, but not at full health.
    Degraded,
    /// Not usable.
    Failed,
}

impl NiState {
    /// The name that is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Degraded => "DEGRADED",
            Self::Failed => "FAILED",
        }
    }
}

impl fmt::Display for NiState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Ni {
    pub(crate) fn is_loopback(&self) -> bool {
        self.nid.is_loopback()
    }

    /// The status that users and peers see (O-19).
    pub(crate) fn is_up(&self) -> bool {
        self.is_loopback() || (!self.fatal && !self.aged && self.port.status_up)
    }

    /// The state that users see (DEC-26).
    pub(crate) fn state(&self) -> NiState {
        if !self.is_up() {
            NiState::Failed
        } else if self.port.health < HEALTH_MAX && !self.is_loopback() {
            NiState::Degraded
        } else {
            NiState::Active
        }
    }
}

/// A new local interface.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct NiSpec {
    /// Its NID.
    pub nid: Nid,
    /// Name of the device that it stands on.
    pub interface: Option<String>,
    /// Tunables of its network; in force if it is the first one there (C-netadd-6).
    pub tunables: NetTunables,
    /// The driver's own time limit for one transmission, if it has one (H-30).
    pub lnd_timeout: Option<Duration>,
}
