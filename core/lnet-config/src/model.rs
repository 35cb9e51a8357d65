//! What a configuration is made of: the nouns that the command line, YAML and the control socket
//! share. Values in here are well-formed (a [`Net`] is a net); whether they fit the node that is to
//! have them, the node decides.

use core::num::NonZeroU32;

use lnet_types::{Net, Nid};
use serde::{Deserialize, Serialize};

use crate::text;

/// One interface to be used, with its own CPTs if any (`eth0[0,1]`, C-netadd-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name or alias label, `eth0`, `eth0:1`.
    pub name: String,
    /// CPTs that override those of the net.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpts: Option<Vec<u32>>,
}

/// As it is read.
impl core::fmt::Display for Interface {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.name)?;
        match &self.cpts {
            Some(cpts) => f.write_str(&crate::cpts_text(cpts)),
            None => Ok(()),
        }
    }
}

/// Tunables that a net gets from its first NI (C-netadd-6). `None`: the driver's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetTunables {
    /// Seconds of silence after which a router counts as gone, ≥ 0.
    pub peer_timeout_s: Option<u32>,
    /// Messages to one peer NI at a time, > 0.
    pub peer_credits: Option<u32>,
    /// Router buffers that one peer NI may hold, ≥ 0; 0 lets the driver choose.
    pub peer_buffer_credits: Option<u32>,
    /// Messages of one NI at a time, > 0.
    pub credits: Option<u32>,
}

impl NetTunables {
    /// These, with `other` where nothing is said.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            peer_timeout_s: self.peer_timeout_s.or(other.peer_timeout_s),
            peer_credits: self.peer_credits.or(other.peer_credits),
            peer_buffer_credits: self.peer_buffer_credits.or(other.peer_buffer_credits),
            credits: self.credits.or(other.credits),
        }
    }
}

/// Tunables of one NI that its driver has. `None`: the driver's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LndTunables {
    /// Connections (of each bulk kind) to one peer NI, 0 to 127; 0 lets the driver choose.
    pub conns_per_peer: Option<u8>,
    /// IP type of service, 0 to 255; -1 leaves it alone.
    pub tos: Option<i16>,
    /// Of o2ib alone: credits owed at which a message of its own returns them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peercredits_hiw: Option<u32>,
    /// Of o2ib alone: chains of work requests posted at a time; 0 lets the driver choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_sends: Option<u32>,
}

impl LndTunables {
    /// These, with `other` where nothing is said.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            conns_per_peer: self.conns_per_peer.or(other.conns_per_peer),
            tos: self.tos.or(other.tos),
            peercredits_hiw: self.peercredits_hiw.or(other.peercredits_hiw),
            concurrent_sends: self.concurrent_sends.or(other.concurrent_sends),
        }
    }
}

/// Tunables of o2ib that kernel nodes show and that have one value each on nodes of today, in their
/// order: how memory is registered there.
pub const O2IB_FIXED: [(&str, &str); 5] = [
    ("map_on_demand", "true"),
    ("fmr_pool_size", "512"),
    ("fmr_flush_trigger", "384"),
    ("fmr_cache", "1"),
    ("ntx", "512"),
];

/// NIs to be added to one net (C-netadd-1). One NI for each interface; the interface that owns the
/// address when only `nid` is given; the first usable interface when neither is (I-9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetAdd {
    /// The net.
    #[serde(with = "text::net")]
    pub net: Net,
    /// Interfaces, in order.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// A NID whose address names the interface. Its net is `net`.
    #[serde(default, with = "text::nid_option")]
    pub nid: Option<Nid>,
    /// CPTs of NIs that do not name their own; all if `None`.
    #[serde(default)]
    pub cpts: Option<Vec<u32>>,
    /// Tunables of the net.
    #[serde(default)]
    pub tunables: NetTunables,
    /// Tunables of the NIs.
    #[serde(default)]
    pub lnd: LndTunables,
}

/// A value that no node accepts, whichever way it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value}: must be {min} to {max}")]
pub struct ValueError {
    /// Its name in configurations.
    pub field: &'static str,
    /// The value.
    pub value: i64,
    /// Smallest accepted.
    pub min: i64,
    /// Largest accepted.
    pub max: i64,
}

impl NetAdd {
    /// Checks the bounds of all values: those of [`NetTunables`] and [`LndTunables`]. What passes can be
    /// exported, and imported again.
    ///
    /// # Errors
    /// The first value out of bounds.
    pub fn check(&self) -> Result<(), ValueError> {
        let (t, lnd) = (&self.tunables, &self.lnd);
        let int = i64::from(i32::MAX);
        let values = [
            ("peer_timeout", t.peer_timeout_s.map(i64::from), 0, int),
            ("peer_credits", t.peer_credits.map(i64::from), 0, int),
            ("peer_buffer_credits", t.peer_buffer_credits.map(i64::from), 0, int),
            ("credits", t.credits.map(i64::from), 0, int),
            ("conns_per_peer", lnd.conns_per_peer.map(i64::from), 0, 127),
            ("tos", lnd.tos.map(i64::from), -1, 255),
            ("peercredits_hiw", lnd.peercredits_hiw.map(i64::from), 0, int),
            ("concurrent_sends", lnd.concurrent_sends.map(i64::from), 0, int),
        ];
        for (field, value, min, max) in values {
            if let Some(value) = value.filter(|v| !(min..=max).contains(v)) {
                return Err(ValueError { field, value, min, max });
            }
        }
        Ok(())
    }
}

/// NIs to be removed: those on `interfaces`, the one called `nid`, or with neither the whole net
/// (C-netdel-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetDel {
    /// The net.
    #[serde(with = "text::net")]
    pub net: Net,
    /// Names of interfaces.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// One NI by its NID.
    #[serde(default, with = "text::nid_option")]
    pub nid: Option<Nid>,
}

/// CPTs for NIs that are there already: those on `interfaces`, the one called `nid`, or with neither the
/// whole net.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetCpts {
    /// The net.
    #[serde(with = "text::net")]
    pub net: Net,
    /// Names of interfaces.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// One NI by its NID.
    #[serde(default, with = "text::nid_option")]
    pub nid: Option<Nid>,
    /// The CPTs; `None`: as if none had ever been named.
    pub cpts: Option<Vec<u32>>,
}

/// A peer to be created, or NIDs to be attached to one (C-peer-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAdd {
    /// Its primary NID.
    #[serde(with = "text::nid")]
    pub primary: Nid,
    /// Further NIDs, in order.
    #[serde(with = "text::nids", default)]
    pub nids: Vec<Nid>,
    /// Whether it is Multi-Rail.
    pub multi_rail: bool,
    /// Whether discovery must leave the primary NID as it is.
    #[serde(default)]
    pub lock_primary: bool,
}

/// A peer to be removed (no `nids`), or NIDs to be taken from one (C-peer-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerDel {
    /// Its primary NID.
    #[serde(with = "text::nid")]
    pub primary: Nid,
    /// NIDs to take away.
    #[serde(with = "text::nids", default)]
    pub nids: Vec<Nid>,
    /// Whether the primary NID of a locked peer may go too.
    #[serde(default)]
    pub force: bool,
}

/// One tunable and its new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name, as `lnetctl set` spells it.
    pub name: String,
    /// Value, in the tunable's unit.
    pub value: i64,
}

impl Setting {
    /// `name` to be `value`.
    pub fn new(name: impl Into<String>, value: i64) -> Self {
        Self { name: name.into(), value }
    }
}

/// A rule of the selection policy (C-udsp-1). Patterns are texts; whether they are any, and whether
/// their combination means something, the node decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UdspRule {
    /// Local networks or NIDs.
    pub src: Option<String>,
    /// Peers' networks or NIDs.
    pub dst: Option<String>,
    /// Routers.
    pub rte: Option<String>,
    /// Priority; 0 is the highest.
    pub priority: Option<u32>,
    /// Messages in a row that go the way of this rule before it is the turn of the next.
    pub messages: Option<NonZeroU32>,
}

/// A rule to be added (C-udsp-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdspAdd {
    /// The rule.
    pub rule: UdspRule,
    /// Its place, from 0; the end if absent or beyond it.
    #[serde(default)]
    pub index: Option<u32>,
}

/// Which rules are to go (C-udsp-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UdspDel {
    /// All of them.
    All,
    /// The one at this place.
    Index(u32),
    /// The one about the same `src`, `dst` and `rte`.
    About(UdspRule),
}

/// A route to be added (C-route-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteAdd {
    /// The network that is reached.
    #[serde(with = "text::net")]
    pub net: Net,
    /// A NID of the router, on a local network.
    #[serde(with = "text::nid")]
    pub gateway: Nid,
    /// Routers on the way, 1 to 255; undefined if absent.
    #[serde(default)]
    pub hops: Option<u32>,
    /// 0 is best.
    #[serde(default)]
    pub priority: u32,
}

/// A route to be removed (C-route-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RouteDel {
    /// The network that is reached.
    #[serde(with = "text::net")]
    pub net: Net,
    /// A NID of the router.
    #[serde(with = "text::nid")]
    pub gateway: Nid,
}
