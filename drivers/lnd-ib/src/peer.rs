//! A peer of the driver: the connections to one NID, the attempt under way, and the messages that
//! wait for either.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use lnet_types::{Instant, Nid};
use lnet_wire::ib::Version;

use crate::tx::TxKey;
use crate::value::ConnId;

/// The second attempt in a row comes at once, the third after this, each later one after twice the
/// time, up to [`BACKOFF_MAX`].
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Connections in use.
    pub(crate) conns: Vec<ConnId>,
    /// The attempt of this side.
    pub(crate) pending: Option<ConnId>,
    /// Connections that were accepted and are not established.
    pub(crate) accepting: BTreeSet<ConnId>,
    /// Messages that wait for a connection.
    pub(crate) queue: VecDeque<TxKey>,
    /// Races in a row that were decided for this side.
    pub(crate) races: u8,
    /// Attempts in a row that were refused and are to be repeated.
    pub(crate) attempts: u32,
    /// When the next attempt is due.
    pub(crate) retry_at: Option<Instant>,
    /// With what the next attempt asks.
    pub(crate) version: Version,
    pub(crate) queue_depth: u16,
    pub(crate) max_frags: u16,
    /// Its incarnation; 0 if unknown.
    pub(crate) stamp: u64,
    pub(crate) last_alive: Instant,
    /// Counts choices of a connection, so that all have their turn (B-33).
    pub(crate) turn: usize,
}

impl Peer {
    /// Whether there is no connection and none is being made.
    pub(crate) fn is_alone(&self) -> bool {
        self.conns.is_empty() && self.pending.is_none() && self.accepting.is_empty()
    }

    /// How long the next attempt waits.
    pub(crate) fn backoff(&self) -> Duration {
        match self.attempts {
            0 => Duration::ZERO,
            n => BACKOFF.saturating_mul(1 << n.min(5)).min(BACKOFF_MAX),
        }
    }
}

/// The rank of a NID in a connection race; the higher one's request stays (wire.md 7.6): the network
/// number and the four words of the address, each as a little-endian machine loads it, by exclusive
/// or.
pub fn rank(nid: Nid) -> u32 {
    let net = u32::from(nid.net().kind.0) << 16 | u32::from(nid.net().num);
    let words = nid.as_wire().chunks_exact(4).skip(1);
    words.fold(net, |sum, word| sum ^ word.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_octet_of_an_address_decides_a_race_first() {
        let rank = |text: &str| rank(text.parse().expect("a NID"));
        assert!(rank("10.77.0.3@o2ib") > rank("10.77.0.2@o2ib"));
        assert!(rank("10.99.9.2@o2ib") < rank("10.1.0.3@o2ib"));
        assert_eq!(rank("1.2.3.4@o2ib7"), 0x0403_0201 ^ 0x0005_0007);
    }
}
