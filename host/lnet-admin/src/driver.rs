//! The records of a driver: its peers, connections and interfaces, as `lctl` lists them (K-7).

use core::net::{IpAddr, SocketAddr};

use lnet_config::text;
use lnet_types::Nid;
use serde::{Deserialize, Serialize};

/// Lines on a page.
pub const DRIVER_LINES_PER_PAGE: usize = 4096;

/// What may be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverList {
    /// Peers that the driver keeps a record of.
    Peers,
    /// Usable connections.
    Connections,
    /// Interfaces that it serves.
    Interfaces,
}

/// Some lines, and where to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverPage {
    /// The lines.
    pub lines: Vec<DriverLine>,
    /// `from` of the request for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverLine {
    /// A peer.
    Peer {
        /// Its NID.
        #[serde(with = "text::nid")]
        nid: Nid,
        /// Its process id.
        pid: u32,
        /// Our address.
        own: IpAddr,
        /// Where it is connected to.
        addr: SocketAddr,
        /// Usable connections.
        connections: u64,
    },
    /// A connection.
    Connection {
        /// The peer.
        #[serde(with = "text::nid")]
        nid: Nid,
        /// Its process id.
        pid: u32,
        /// A any, C control, I bulk in, O bulk out.
        kind: char,
        /// Our end.
        own: IpAddr,
        /// The other end.
        addr: SocketAddr,
        /// Sizes of the send and receive buffer, bytes.
        buffers: (u32, u32),
        /// Whether small segments may wait for others.
        nagle: bool,
    },
    /// An interface.
    Interface {
        /// Its address.
        addr: IpAddr,
        /// Length of its network's prefix, if the machine has the address.
        prefix: Option<u8>,
        /// Peers reached from it.
        peers: u64,
        /// Connections from it.
        connections: u64,
    },
}

/// A parameter file (T-9 of the tools' reference).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParamInfo {
    /// Its name, in a driver's directory with that before it.
    pub name: String,
    /// Whether it may be written.
    pub writable: bool,
}
