//! State as it is shown, copied out whole. Field names are ours; the keys that people see are in the
//! printer of `lnetctl`. Counters of 32 bits wrap (S-net-3).

use core::net::IpAddr;

use lnet_config::text;
use lnet_types::{Net, Nid};
use serde::{Deserialize, Serialize};

use crate::PeerFlags;

/// A local net.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetSnapshot {
    /// Its name.
    #[serde(with = "text::net")]
    pub net: Net,
    /// Its NIs in order of creation.
    pub nis: Vec<NiSnapshot>,
    /// The counters of all of them together, where detail was asked for.
    #[serde(default)]
    pub sum: Option<Box<Traffic>>,
    /// Patterns of the peers that may connect; without any, every peer may.
    #[serde(default)]
    pub accept_from: Vec<String>,
    /// Who was turned away lately, longest ago first, where detail was asked for.
    #[serde(default)]
    pub refused: Vec<RefusedSnapshot>,
}

/// A refused peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedSnapshot {
    /// Where the connection came from.
    pub addr: IpAddr,
    /// The NID that it called itself by, if it came that far.
    #[serde(default, with = "text::nid_option")]
    pub nid: Option<Nid>,
    /// Why.
    pub why: String,
    /// How often.
    pub count: u64,
    /// How long ago the last time was, seconds.
    pub ago_s: u64,
}

/// A local NI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NiSnapshot {
    /// Its NID.
    #[serde(with = "text::nid")]
    pub nid: Nid,
    /// `status`: up or down.
    pub up: bool,
    /// The interface that it was made on; the loopback NI has none.
    #[serde(default)]
    pub interface: Option<String>,
    /// The rest, where it was asked for.
    #[serde(default)]
    pub detail: Option<Box<NiDetail>>,
}

/// What is known of a local NI (S-net-2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NiDetail {
    /// Messages and latencies.
    pub traffic: Traffic,
    /// Its place in selection policies.
    pub udsp: UdspInfo,
    /// Health and failures.
    pub health: NiHealth,
    /// Tunables of its net; all 0 for the loopback NI.
    pub tunables: NetTunablesSnapshot,
    /// What its driver can be tuned by; absent for the loopback NI.
    #[serde(default)]
    pub lnd: Option<LndSnapshot>,
    /// The CPT nearest to the device, -1 if unknown.
    pub dev_cpt: i32,
    /// Its CPTs.
    pub cpts: Vec<u32>,
    /// Values that only this node has.
    #[serde(default)]
    pub more: NiMore,
}

/// What kernel nodes do not know of a local NI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NiMore {
    /// ACTIVE, DEGRADED or FAILED (DEC-26).
    pub state: String,
    /// Transmit credits that it has.
    pub tx_max: i32,
    /// Transmit credits left; negative is the length of the queue.
    pub tx_available: i32,
    /// Fewest that were left.
    pub tx_min: i32,
    /// Network time-outs, which kernels count at the peer's NI alone.
    pub network_timeouts: u32,
    /// Bytes of payload sent and received.
    pub bytes: (u64, u64),
    /// Ups, downs, and use.
    pub usage: UsageSnapshot,
    /// How long ago the last message came in, milliseconds; absent before the first one.
    pub last_received_ms: Option<u64>,
    /// Whether its address is another one than that which its interface alone stands for.
    #[serde(default)]
    pub by_address: bool,
}

/// How an NI or a peer NI is used, and whether it comes and goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageSnapshot {
    /// Times that it went down.
    pub downs: u32,
    /// Times that it came back.
    pub ups: u32,
    /// Whether that happens so often that it is favoured less.
    pub flapping: bool,
    /// Thousandths of a message, halving every minute.
    pub heat_milli: u64,
    /// How many whole seconds the rates are taken over.
    pub rate_seconds: u64,
    /// Messages sent per second.
    pub sent_per_s: u64,
    /// Messages received per second.
    pub received_per_s: u64,
    /// Payload bytes sent per second.
    pub sent_bytes_per_s: u64,
    /// Payload bytes received per second.
    pub received_bytes_per_s: u64,
    /// From the choice of a path to a message with the transport.
    pub send: TimesSnapshot,
    /// From the call of a PUT or GET to its ACK or REPLY.
    pub complete: TimesSnapshot,
}

/// How long something takes, nanoseconds; all 0 without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimesSnapshot {
    /// How many were measured.
    pub samples: u64,
    /// The shortest.
    pub min_nsec: u64,
    /// The average.
    pub avg_nsec: u64,
    /// Half of them took no longer; off by an eighth at most, as the next two.
    pub p50_nsec: u64,
    /// 90 % of them took no longer.
    pub p90_nsec: u64,
    /// 99 % of them took no longer.
    pub p99_nsec: u64,
    /// The longest.
    pub max_nsec: u64,
}

/// Messages and latencies of an NI or a peer NI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Messages sent.
    pub sent: KindCounts,
    /// Messages received.
    pub received: KindCounts,
    /// Messages dropped.
    pub dropped: KindCounts,
    /// Transmission of own PUTs.
    pub put_egress: Latency,
    /// From GET to REPLY.
    pub get_rtt: Latency,
    /// From PUT to ACK.
    pub put_ack: Latency,
}

/// Messages by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindCounts {
    /// PUTs.
    pub put: u32,
    /// GETs.
    pub get: u32,
    /// REPLYs.
    pub reply: u32,
    /// ACKs.
    pub ack: u32,
    /// HELLOs; always 0.
    #[serde(default)]
    pub hello: u32,
}

impl KindCounts {
    /// All kinds together.
    pub const fn sum(&self) -> u32 {
        self.put
            .wrapping_add(self.get)
            .wrapping_add(self.reply)
            .wrapping_add(self.ack)
            .wrapping_add(self.hello)
    }
}

/// Durations, nanoseconds; all 0 without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub samples: u32,
    /// Shortest.
    pub min_nsec: u64,
    /// Longest.
    pub max_nsec: u64,
    /// Average.
    pub avg_nsec: u64,
    /// Sum.
    #[serde(default)]
    pub sum_nsec: u64,
}

/// Priorities by selection policies; `None` where no rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UdspInfo {
    /// Of the net, 0 is highest.
    pub net_priority: Option<u32>,
    /// Of the NID, 0 is highest.
    pub nid_priority: Option<u32>,
}

/// Health of a local NI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NiHealth {
    /// Whether the interface has no link.
    pub fatal_error: bool,
    /// 0 to 1000.
    pub value: i32,
    /// Failures by class.
    pub interrupts: u32,
    /// Failures by class.
    pub dropped: u32,
    /// Failures by class.
    pub aborted: u32,
    /// Failures by class.
    pub no_route: u32,
    /// Failures by class.
    pub timeouts: u32,
    /// Failures by class.
    pub error: u32,
    /// Recovery pings sent since it was last healthy.
    pub ping_count: u32,
    /// When the next recovery ping is due, seconds on the node's clock; 0 for none.
    pub next_ping_s: u64,
}

impl NiHealth {
    /// Failures by class, in the order of `net show`.
    pub const fn classes(&self) -> [(&'static str, u32); 6] {
        [
            ("interrupt", self.interrupts),
            ("dropped", self.dropped),
            ("aborted", self.aborted),
            ("no_route", self.no_route),
            ("timeout", self.timeouts),
            ("error", self.error),
        ]
    }

    /// Failures of all classes.
    pub fn failures(&self) -> u32 {
        self.classes().iter().fold(0, |sum, (_, count)| sum.wrapping_add(*count))
    }
}

/// Tunables of a net in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetTunablesSnapshot {
    /// Seconds.
    pub peer_timeout_s: i32,
    /// Messages.
    pub peer_credits: i32,
    /// Buffers.
    pub peer_buffer_credits: i32,
    /// Messages.
    pub credits: i32,
}

/// Tunables of an NI's driver in force (S-net-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LndSnapshot {
    /// socklnd.
    Sock {
        /// Connections of each bulk kind to one peer NI.
        conns_per_peer: u32,
        /// Seconds.
        timeout_s: u32,
        /// IP type of service, -1 is not set.
        tos: i32,
    },
    /// o2iblnd.
    O2ib {
        /// Credits owed at which a message of its own returns them.
        peercredits_hiw: u32,
        /// Chains of work requests posted at a time on a connection.
        concurrent_sends: u32,
        /// Connections to one peer NI.
        conns_per_peer: u32,
        /// Seconds.
        timeout_s: u32,
        /// IP type of service, -1 is not set.
        tos: i32,
        /// The device, its port, and what is pinned there.
        port: RdmaPortSnapshot,
    },
}

/// An RDMA port in use, where less is known than of a device of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RdmaPortSnapshot {
    /// Whether it carries messages.
    pub active: bool,
    /// Mbit/s, 0 if not known.
    pub rate_mbps: u32,
    /// Whether that is less than it was.
    pub degraded: bool,
    /// Connections in use.
    pub connections: u32,
    /// Bytes of memory that are pinned.
    pub pinned: u64,
    /// Bytes that may be.
    pub pinned_max: u64,
    /// Registrations made.
    pub registered: u64,
    /// Uses of a registration that was there.
    pub found: u64,
    /// Bytes that the daemon may lock; absent if there is no limit.
    pub locked_limit: Option<u64>,
    /// Bytes of a packet, 0 if not known.
    pub mtu: u32,
    /// Whether it is RoCE or iWARP, not InfiniBand.
    pub ethernet: bool,
    /// Its identifier that goes with the address of the interface.
    pub gid: Option<core::net::Ipv6Addr>,
    /// The partition key of the interface, 0 if not known.
    pub pkey: u16,
    /// The version of RoCE that connections of the interface use, 0 for none or if not known.
    pub roce: u8,
    /// Seconds of silence after which a connection shows that it lives, 0 for never; absent if not known.
    pub keepalive_s: Option<u32>,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSnapshot {
    /// Its primary NID.
    #[serde(with = "text::nid")]
    pub primary: Nid,
    /// Whether it is Multi-Rail.
    pub multi_rail: bool,
    /// Flag word (S-peer-3).
    pub state: u32,
    /// It is the node itself.
    #[serde(default)]
    pub own: bool,
    /// Its NIs in order.
    pub nis: Vec<PeerNiSnapshot>,
    /// The counters of all of them together, where detail was asked for.
    #[serde(default)]
    pub sum: Option<Box<Traffic>>,
}

impl PeerSnapshot {
    /// Whether it was configured, not only found.
    pub const fn is_configured(&self) -> bool {
        PeerFlags(self.state).is_configured()
    }

    /// Whether anything was ever heard from it, where detail was asked for.
    pub fn was_reached(&self) -> bool {
        let received =
            |ni: &PeerNiSnapshot| ni.detail.as_ref().is_some_and(|d| d.traffic.received.sum() > 0);
        PeerFlags(self.state).has_answered() || self.nis.iter().any(received)
    }
}

/// A peer NI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerNiSnapshot {
    /// Its NID.
    #[serde(with = "text::nid")]
    pub nid: Nid,
    /// Whether it is alive, where that is watched.
    pub state: PeerNiState,
    /// The rest, where it was asked for.
    #[serde(default)]
    pub detail: Option<Box<PeerNiDetail>>,
}

/// Whether a peer NI is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerNiState {
    /// Not watched: it is no router, and aliveness is off.
    #[default]
    NotWatched,
    /// Alive.
    Up,
    /// Gone.
    Down,
}

/// What is known of a peer NI (S-peer-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerNiDetail {
    /// Its place in selection policies.
    pub udsp: UdspInfo,
    /// Credits and queue.
    pub credits: PeerNiCredits,
    /// How many hold on to it.
    pub refcount: u32,
    /// Messages and latencies.
    pub traffic: Traffic,
    /// Health and failures.
    pub health: PeerNiHealth,
    /// Bytes of payload sent and received.
    #[serde(default)]
    pub bytes: (u64, u64),
    /// Whether it is on a net of ours, not behind routers.
    #[serde(default)]
    pub local: bool,
    /// Whether its node reports it down.
    #[serde(default)]
    pub reported_down: bool,
    /// Ups, downs, and use.
    #[serde(default)]
    pub usage: UsageSnapshot,
    /// How long ago the last message came in, milliseconds; absent before the first one.
    #[serde(default)]
    pub last_received_ms: Option<u64>,
}

/// Credits and queue of a peer NI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerNiCredits {
    /// Transmit credits that its net gives.
    pub tx_max: i32,
    /// Transmit credits left; negative is the length of the queue.
    pub tx_available: i32,
    /// Fewest that were left.
    pub tx_min: i32,
    /// Bytes queued.
    pub tx_queue_bytes: u64,
    /// Router credits left.
    pub rtr_available: i32,
    /// Fewest that were left.
    pub rtr_min: i32,
}

/// Health of a peer NI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerNiHealth {
    /// 0 to 1000.
    pub value: i32,
    /// Failures by class.
    pub dropped: u32,
    /// Failures by class.
    pub timeout: u32,
    /// Failures by class.
    pub error: u32,
    /// Failures by class.
    pub network_timeout: u32,
    /// Recovery pings sent since it was last healthy.
    pub ping_count: u32,
    /// When the next recovery ping is due, seconds on the node's clock; 0 for none.
    pub next_ping_s: u64,
}

impl PeerNiHealth {
    /// Failures by class.
    pub const fn classes(&self) -> [(&'static str, u32); 4] {
        [
            ("dropped", self.dropped),
            ("timeout", self.timeout),
            ("error", self.error),
            ("network_timeout", self.network_timeout),
        ]
    }

    /// Failures of all classes.
    pub fn failures(&self) -> u32 {
        self.classes().iter().fold(0, |sum, (_, count)| sum.wrapping_add(*count))
    }
}

/// The node's tunables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalSnapshot {
    /// Whether LNet is configured. `numa_range` and the LND time-out exist only then (G-18).
    pub configured: bool,
    /// Every tunable with its value, in the order of the node's table.
    pub tunables: Vec<lnet_config::Setting>,
    /// Names of those whose value is not the default of the profile.
    #[serde(default)]
    pub changed: Vec<String>,
    /// The time limit of one transmission, milliseconds.
    pub lnd_timeout_ms: u64,
    /// The profile of defaults in force.
    pub profile: String,
}

impl GlobalSnapshot {
    /// The value of the tunable called `name`.
    pub fn value(&self, name: &str) -> Option<i64> {
        self.tunables.iter().find(|t| t.name == name).map(|t| t.value)
    }
}

macro_rules! stats {
    ($($name:ident: $ty:ty,)*) => {
        /// Counters of the node under the names of `stats show`, in its order (S-stats-1). The
        /// `_length` ones are bytes, the others messages.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(missing_docs)] // The names are the documentation: T-10 and S-stats-1 define them.
        pub struct StatsSnapshot {
            $(pub $name: $ty,)*
        }

        impl StatsSnapshot {
            /// Name and value of each, in order.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), u64::from(self.$name)),)*]
            }

            /// From names and values as a node counts them.
            ///
            /// # Errors
            /// The name that this protocol does not know, or whose value is too large for it.
            pub fn from_rows<'a>(
                rows: impl IntoIterator<Item = (&'a str, u64)>,
            ) -> Result<Self, &'a str> {
                let mut stats = Self::default();
                for (name, value) in rows {
                    match name {
                        $(stringify!($name) => {
                            stats.$name = <$ty>::try_from(value).map_err(|_| name)?;
                        })*
                        _ => return Err(name),
                    }
                }
                Ok(stats)
            }
        }
    };
}

stats! {
    msgs_alloc: u32,
    msgs_max: u32,
    rst_alloc: u32,
    errors: u32,
    send_count: u32,
    resend_count: u32,
    response_timeout_count: u32,
    local_interrupt_count: u32,
    local_dropped_count: u32,
    local_aborted_count: u32,
    local_no_route_count: u32,
    local_timeout_count: u32,
    local_error_count: u32,
    remote_dropped_count: u32,
    remote_error_count: u32,
    remote_timeout_count: u32,
    network_timeout_count: u32,
    failed_resends: u32,
    successful_resends: u32,
    recv_count: u32,
    route_count: u32,
    drop_count: u32,
    send_length: u64,
    recv_length: u64,
    route_length: u64,
    drop_length: u64,
}
