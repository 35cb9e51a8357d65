//! What can be looked at from outside: counters and listings.

use lnet_types::NiId;

use super::SockDriver;
use crate::stats::{ConnInfo, PeerInfo, Refused, Stats, Traffic};
use crate::streams::Streams;

use core::net::SocketAddr;

impl<S: Streams> SockDriver<S> {
    /// Counters of the whole driver.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Who was turned away lately on the way in, at most [`REFUSED_KEPT`] lines, longest ago first.
    /// Counted are all of them: [`Stats::refused`].
    ///
    /// [`REFUSED_KEPT`]: crate::REFUSED_KEPT
    pub fn refused(&self) -> Vec<Refused> {
        self.refused.lines()
    }

    /// Traffic of an interface since it started.
    pub fn ni_traffic(&self, ni: NiId) -> Option<Traffic> {
        self.ni(ni).map(|ni| ni.traffic)
    }

    /// All usable connections.
    pub fn connections(&self) -> Vec<ConnInfo> {
        self.conns
            .values()
            .filter_map(|conn| {
                let up = conn.up().filter(|up| up.parted.is_none())?;
                Some(ConnInfo {
                    ni: conn.ni,
                    peer: up.from,
                    kind: up.kind,
                    version: up.version,
                    local: conn.local,
                    remote: conn.remote,
                    buffers: self.streams.buffers(conn.stream),
                    nagle: self.config.nagle,
                    queued: up.tx.bytes(),
                    traffic: up.traffic,
                })
            })
            .collect()
    }

    /// All peers that the driver has a record of.
    pub fn peers(&self) -> Vec<PeerInfo> {
        self.peers
            .values()
            .map(|peer| PeerInfo {
                ni: peer.ni,
                id: peer.id,
                addr: SocketAddr::new(peer.addr, self.config.port),
                connections: peer.conns.len(),
                waiting: peer.waiting.len(),
                traffic: peer.traffic,
            })
            .collect()
    }
}
