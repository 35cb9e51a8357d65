//! The local side: networks and their interfaces (behaviour.md 1.1, 1.3). Data and its upkeep only;
//! adding and removing are in `entry/links.rs`, choosing in `send/select.rs`, judging in `health.rs`.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;

use lnet_types::{Instant, Net, NiId, Nid};
use slotmap::SlotMap;

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

/// The local networks and their interfaces.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Interfaces {
    nets: Vec<LocalNet>,
    nis: SlotMap<NiId, Ni>,
    /// Floor of the turns of local networks.
    floor: u64,
    /// Messages that were bound to an interface: the number of the last one says how long ago that was.
    seq: u64,
}

impl Interfaces {
    /// Adds an interface, and its network if that is new.
    pub(crate) fn insert(&mut self, now: Instant, spec: NiSpec) -> NiId {
        let net = spec.nid.net();
        let at = self.nets.iter().position(|n| n.net == net).unwrap_or_else(|| {
            let mut tunables = spec.tunables;
            // V-11
            tunables.peer_credits = tunables.peer_credits.min(tunables.credits);
            self.nets.push(LocalNet {
                net,
                nis: Vec::new(),
                tunables,
                seq: 0,
                grade: Grade::default(),
                turn: Turn::default(),
                floor: 0,
                last_alive: now,
            });
            self.nets.len() - 1
        });
        let mut port = Port::new(self.nets[at].tunables.credits);
        if spec.nid.is_loopback() {
            // S-net-6: loopback's health means nothing and begins at 0.
            port.health = 0;
        }
        let id = self.nis.insert(Ni {
            nid: spec.nid,
            interface: spec.interface,
            lnd_timeout: spec.lnd_timeout,
            fatal: false,
            link_down: false,
            plays_dead: false,
            port,
            announced_up: true,
            aged: false,
            numa_node: None,
            cpts: None,
            failures: NiFailures::default(),
            last_received: None,
            noted: NiState::Active,
        });
        self.nets[at].nis.push(id);
        id
    }

    /// Removes an interface. True if its network has gone with it.
    pub(crate) fn remove(&mut self, id: NiId) -> bool {
        self.nis.remove(id);
        let of_it = |net: &mut LocalNet| {
            let before = net.nis.len();
            net.nis.retain(|ni| *ni != id);
            net.nis.len() < before && net.nis.is_empty()
        };
        let before = self.nets.len();
        self.nets.retain_mut(|net| !of_it(net));
        self.nets.len() < before
    }

    #[inline]
    pub(crate) fn get(&self, id: NiId) -> Option<&Ni> {
        self.nis.get(id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: NiId) -> Option<&mut Ni> {
        self.nis.get_mut(id)
    }

    pub(crate) fn contains_key(&self, id: NiId) -> bool {
        self.nis.contains_key(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.nis.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NiId, &Ni)> {
        self.nis.iter()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = NiId> {
        self.nis.keys()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Ni> {
        self.nis.values()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Ni> {
        self.nis.values_mut()
    }

    /// The local networks, in the order of listings. Loopback is the first.
    #[inline]
    pub(crate) fn nets(&self) -> &[LocalNet] {
        &self.nets
    }

    /// The interfaces in the order of listings.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Ni> {
        self.nets.iter().flat_map(|net| &net.nis).filter_map(|id| self.nis.get(*id))
    }

    /// Something was heard on a network; on all of them for `None`.
    pub(crate) fn heard(&mut self, now: Instant, net: Option<Net>) {
        for own in self.nets.iter_mut().filter(|own| net.is_none_or(|net| net == own.net)) {
            own.last_alive = now;
        }
    }

    /// Whether `nid` is one of our own.
    pub(crate) fn owns(&self, nid: Nid) -> bool {
        self.nis.values().any(|ni| ni.nid == nid)
    }

    /// The tunables of a local network.
    pub(crate) fn tunables_of(&self, net: Net) -> Option<NetTunables> {
        self.nets.iter().find(|own| own.net == net).map(|own| own.tunables)
    }

    /// Floor of the turns of local networks.
    #[inline]
    pub(crate) const fn floor(&self) -> u64 {
        self.floor
    }

    /// A message is bound to an interface, whose NID it is that is returned.
    #[inline]
    pub(crate) fn bind(&mut self, id: NiId) -> Option<Nid> {
        self.seq += 1;
        let ni = self.nis.get_mut(id)?;
        ni.port.seq = self.seq;
        ni.port.refs += 1;
        let nid = ni.nid;
        if let Some(net) = self.nets.iter_mut().find(|net| net.net == nid.net()) {
            net.seq = self.seq;
        }
        Some(nid)
    }

    /// The message that goes from `own` takes the turn of every rule that led it there. Returns its number.
    pub(crate) fn take_turns(&mut self, own: Nid) -> u64 {
        let seq = self.seq;
        if let Some(net) = self.nets.iter_mut().find(|net| net.net == own.net()) {
            net.turn.take(net.grade.messages, &mut self.floor, seq);
            let ni = net.nis.iter().find(|id| self.nis.get(**id).is_some_and(|ni| ni.nid == own));
            if let Some(ni) = ni.and_then(|id| self.nis.get_mut(*id)) {
                ni.port.turn.take(ni.port.grade.messages, &mut net.floor, seq);
            }
        }
        seq
    }

    /// Notes what the rules say of networks and interfaces; with `forget`, their turns begin anew.
    pub(crate) fn regrade(
        &mut self,
        net_grade: impl Fn(Net) -> Grade,
        ni_grade: impl Fn(Nid) -> Grade,
        forget: bool,
    ) {
        for net in &mut self.nets {
            net.grade = net_grade(net.net);
            if forget {
                (net.turn, net.floor) = (Turn::default(), 0);
            }
        }
        for ni in self.nis.values_mut() {
            ni.port.grade = ni_grade(ni.nid);
            if forget {
                ni.port.turn = Turn::default();
            }
        }
        if forget {
            self.floor = 0;
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
