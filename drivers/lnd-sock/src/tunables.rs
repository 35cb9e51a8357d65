//! Settings of the driver: names, units and defaults in one place (K-1), and the limits that bound
//! what peers can cost us.

use core::net::IpAddr;
use core::time::Duration;

use lnet_wire::sock::Version;

use crate::proto::admit::AcceptFrom;
use crate::proto::hello::first_version;

/// Source ports that the acceptor accepts (wire.md 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptMode {
    /// Only connections from privileged source ports.
    #[default]
    Secure,
    /// Any source port; peers on unprivileged ones get an identity made from address and port
    /// (wire.md 3.13).
    All,
    /// None: there is no listener.
    None,
}

/// All settings. `Default` is what a kernel node has, as K-1 lists it.
#[derive(Clone, Debug)]
pub struct SockConfig {
    /// TCP port that we listen on and that peers listen on. 1024 and above makes the net
    /// *unprivileged* (DEC-32): source ports prove nothing there, so none is asked for and none
    /// is offered.
    pub port: u16,
    /// TCP port of peers for connections that are not CONTROL (2.17); equals `port` by default.
    pub bulk_port: u16,
    /// Source ports that the acceptor accepts. Without meaning on an unprivileged net, but for
    /// `None`.
    pub accept: AcceptMode,
    /// Which peers may connect, by address and NID.
    pub accept_from: AcceptFrom,
    /// Limit on reading request and HELLO of an accepted connection.
    pub accept_timeout: Duration,
    /// First delay before another connection attempt after a failure (K-28).
    pub min_reconnect: Duration,
    /// Longest such delay.
    pub max_reconnect: Duration,
    /// Frames of this many bytes, headers included, are bulk (K-14).
    pub min_bulk: u32,
    /// Silence after which a NOOP is sent; zero for never (K-50).
    pub keepalive: Duration,
    /// TCP keepalive: idle time, interval, probes. `None` turns it off.
    pub tcp_keepalive: Option<(Duration, Duration, u32)>,
    /// Whether small segments may wait for others (Nagle).
    pub nagle: bool,
    /// Whether frames to version 2 peers carry a checksum. Received ones are always checked.
    pub checksum: bool,
    /// The version that connections begin with, where nothing is known of the peer (the kernel's
    /// `protocol`); if `None`, the newest that the peer's address calls for (wire.md 3.1).
    pub first_version: Option<Version>,
    /// Send buffer of sockets, bytes; the system's choice if `None`.
    pub send_buffer: Option<u32>,
    /// Receive buffer of sockets, bytes; the system's choice if `None`.
    pub recv_buffer: Option<u32>,
    /// Messages that were not wholly written when their connection ended are reported as the kernel
    /// does, as `local_error`, which is never sent again (K-30a, K-40). Otherwise they are what they
    /// are: timed out here or on the network, or certainly not delivered and so fit to go again.
    pub legacy_close_status: bool,
    /// What peers may cost.
    pub limits: Limits,
}

impl Default for SockConfig {
    fn default() -> Self {
        Self {
            port: 988,
            bulk_port: 988,
            accept: AcceptMode::Secure,
            accept_from: AcceptFrom::default(),
            accept_timeout: Duration::from_secs(5),
            min_reconnect: Duration::from_millis(1000),
            max_reconnect: Duration::from_millis(60_000),
            min_bulk: 1024,
            keepalive: Duration::from_secs(30),
            tcp_keepalive: Some((Duration::from_secs(30), Duration::from_secs(5), 5)),
            nagle: false,
            checksum: false,
            first_version: None,
            send_buffer: None,
            recv_buffer: None,
            legacy_close_status: false,
            limits: Limits::default(),
        }
    }
}

impl SockConfig {
    /// The default with both ports set to `port`.
    pub fn on_port(port: u16) -> Self {
        Self { port, bulk_port: port, ..Self::default() }
    }

    /// The version that a connection to `addr` begins with, where nothing is known of the peer.
    pub(crate) fn first_version(&self, addr: &IpAddr) -> Version {
        self.first_version.unwrap_or_else(|| first_version(addr))
    }

    /// Whether source ports are evidence of privilege on this net (DEC-32).
    pub const fn is_privileged(&self) -> bool {
        self.port < 1024
    }
}

/// When a rail is suspected (DEC-31): `max(after, rtts × its smoothed round-trip time)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// How long a byte may stay unacknowledged, or a connection attempt unanswered, at least.
    pub after: Duration,
    /// The same in round trips.
    pub rtts: u32,
}

/// Time limits of the driver's own, beside the LND timeout of each interface (DEC-46, DEC-47).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimits {
    /// For connection attempts to a peer, all together; zero: the LND timeout.
    pub connect: Duration,
    /// For a connection to a peer that suppresses duplicates, without an acknowledgement; zero: the LND
    /// timeout.
    pub reconnect: Duration,
    /// The longest retransmission timeout of streams; zero: the system's.
    pub rto_max: Duration,
}

/// Bounds on what peers can make us hold.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Accepted connections that have not finished their handshake. Each costs under 1 KiB and lives
    /// [`SockConfig::accept_timeout`] at most.
    pub pending_accepts: usize,
    /// The same, from one address: no single host can fill the table above. A kernel peer opens one
    /// connection at a time per NI.
    pub pending_accepts_per_address: usize,
    /// Connections of one remote address. A kernel peer has at most 1 + 2 × 127 per pair of NIs.
    pub connections_per_address: usize,
    /// Bytes that the connections of one remote address make us hold: [`CONN_BYTES`] for each, and
    /// what was read behind headers whose payload has no buffer yet, at most 64 KiB for each. The
    /// largest kernel peer is below 17 MiB per NI.
    pub memory_per_address: u64,
    /// Messages that wait for a connection to one peer. The node's peer credits (8 by default) keep
    /// it far below.
    pub waiting_per_peer: usize,
    /// Zero-copy acknowledgements owed to one peer and not written yet.
    pub acks_per_peer: usize,
}

impl Limits {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        pending_accepts: 1024,
        pending_accepts_per_address: 128,
        connections_per_address: 4096,
        memory_per_address: 64 << 20,
        waiting_per_peer: 4096,
        acks_per_peer: 4096,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Lines that are kept about peers that were turned away; who came longest ago makes room.
pub const REFUSED_KEPT: usize = 64;

/// What a connection costs while it is idle, bytes: a test holds it to that.
pub const CONN_BYTES: u64 = 1024;

/// Connections per type and peer that one NI may ask for.
pub const CONNS_PER_PEER_MAX: u8 = 127;

/// The connections per peer that suit a link of `gbits` Gbit/s; 1 if the speed is unknown (K-12).
pub const fn conns_per_peer_for(gbits: Option<u32>) -> u8 {
    match gbits {
        None | Some(0) => 1,
        Some(gbits) => (gbits.ilog2() / 2 + 1) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_follow_the_speed_of_the_link() {
        let table = [(1, 1), (4, 2), (10, 2), (25, 3), (100, 4), (400, 5)];
        for (gbits, conns) in table {
            assert_eq!(conns_per_peer_for(Some(gbits)), conns, "{gbits} Gbit/s");
        }
        assert_eq!(conns_per_peer_for(None), 1);
        assert_eq!(conns_per_peer_for(Some(0)), 1);
    }

    #[test]
    fn only_low_ports_are_privileged() {
        assert!(SockConfig::default().is_privileged());
        assert!(SockConfig::on_port(1023).is_privileged());
        assert!(!SockConfig::on_port(1024).is_privileged());
    }
}
