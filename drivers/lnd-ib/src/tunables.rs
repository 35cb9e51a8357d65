//! Settings of an interface and bounds on what peers can make it hold (B-1, B-2).

use core::time::Duration;

use lnet_wire::ib::{FRAGS_MAX, Version};
use thiserror::Error;

/// Messages in flight that a connection may agree on.
pub(crate) const DEPTH_MIN: u16 = 8;
/// The credits field of a message has one byte.
pub(crate) const DEPTH_MAX: u16 = 255;

/// Settings of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IbConfig {
    /// The version that connections are asked for with; requests of either are accepted.
    pub version: Version,
    /// Messages in flight in each direction of a connection (`peer_credits`), 8 to 255.
    pub queue_depth: u16,
    /// Credits owed at which a message of its own returns them (`peer_credits_hiw`), 1 to
    /// `queue_depth` − 1; half of the queue depth if 0.
    pub highwater: u16,
    /// Chains of work requests posted at a time per connection (`concurrent_sends`); as many as the
    /// queue depth if 0.
    pub concurrent_sends: u16,
    /// Fragments of a descriptor, 1 to 257.
    pub max_frags: u16,
    /// Connections to each peer that this side asks for, 1 to 127.
    pub conns_per_peer: u8,
    /// Limit of one transmission (B-2).
    pub timeout: Duration,
    /// Silence after which a NOOP shows that this side lives; never if zero.
    pub keepalive: Duration,
    /// How long the queue pair of a closed connection may take to drain before it is destroyed with
    /// what is still posted. The kernel sets no limit (B-41).
    pub drain: Duration,
    /// Messages of closed connections end with the status of the kernel (B-20), which says of some
    /// that may have been delivered that they were not.
    pub legacy_status: bool,
    /// The adapter maps one span at a time for a peer to write: the data of a delivery into several
    /// spans go through a buffer of the shell's.
    pub one_span: bool,
    /// Bounds.
    pub limits: Limits,
}

impl Default for IbConfig {
    fn default() -> Self {
        Self {
            version: Version::V12,
            queue_depth: DEPTH_MIN,
            highwater: 0,
            concurrent_sends: 0,
            max_frags: FRAGS_MAX as u16,
            conns_per_peer: 1,
            timeout: Duration::from_secs(50),
            keepalive: Duration::from_secs(100),
            drain: Duration::from_secs(5),
            legacy_status: false,
            one_span: false,
            limits: Limits::DEFAULT,
        }
    }
}

impl IbConfig {
    /// Whether the settings are within their bounds.
    ///
    /// # Errors
    /// The first one that is not.
    pub fn check(&self) -> Result<(), ConfigError> {
        let range = |name, value: u16, min: u16, max: u16| {
            let fits = (min..=max).contains(&value);
            fits.then_some(()).ok_or(ConfigError::Range { name, value, min, max })
        };
        range("queue_depth", self.queue_depth, DEPTH_MIN, DEPTH_MAX)?;
        range("highwater", self.highwater, 0, self.queue_depth - 1)?;
        range("max_frags", self.max_frags, 1, FRAGS_MAX as u16)?;
        range("conns_per_peer", self.conns_per_peer.into(), 1, 127)?;
        for (name, limit) in [("timeout", self.timeout), ("drain", self.drain)] {
            if limit.is_zero() {
                return Err(ConfigError::Zero { name });
            }
        }
        Ok(())
    }

    /// Limit of a connection attempt (B-2).
    pub(crate) fn connect_timeout(&self) -> Duration {
        (self.timeout / 4).max(Duration::from_secs(5))
    }

    /// How long a message waits for a connection at most (B-2).
    pub(crate) fn wait_timeout(&self) -> Duration {
        self.connect_timeout() + Duration::from_secs(10)
    }

    /// Chains of work requests posted at a time on a connection of this depth.
    pub(crate) fn sends(&self, depth: u16) -> u16 {
        if self.concurrent_sends == 0 { depth } else { self.concurrent_sends }
    }
}

/// Receive buffers of a connection: one for each credit of the peer, one for each answer to a request
/// of ours, and in the current version one for each NOOP that takes no credit (wire.md 7.5).
pub(crate) const fn receive_buffers(version: Version, depth: u16) -> u16 {
    match version {
        Version::V11 => 2 * depth,
        Version::V12 => 2 * depth + 2,
    }
}

/// Bounds on what peers can make an interface hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of one peer, whichever side asked for them.
    pub connections_per_peer: usize,
    /// Connections that were accepted and are not established.
    pub accepting: usize,
    /// Connections in all.
    pub connections: usize,
    /// Messages that wait for a connection to one peer.
    pub waiting_per_peer: usize,
    /// Connection races that are decided for the other connection before this side gives in.
    pub races: u8,
}

impl Limits {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        connections_per_peer: 128,
        accepting: 1024,
        connections: 65_536,
        waiting_per_peer: 4096,
        races: 20,
    };
}

/// A setting out of its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number.
    #[error("{name} {value}: must be {min} to {max}")]
    Range {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: u16,
        /// The least.
        min: u16,
        /// The greatest.
        max: u16,
    },
    /// A time limit.
    #[error("{name} 0: must be greater than 0")]
    Zero {
        /// The setting.
        name: &'static str,
    },
    /// More interfaces than one driver serves.
    #[error("interfaces: limit 65536")]
    Interfaces,
    /// An interface whose NID messages of this protocol cannot carry.
    #[error("NID with a 16-byte address: the protocol has 4-byte addresses only")]
    LargeNid,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_held_to_their_bounds() {
        let base = IbConfig::default;
        assert_eq!(base().check(), Ok(()));
        let wrong = [
            (IbConfig { queue_depth: 7, ..base() }, "queue_depth 7: must be 8 to 255"),
            (IbConfig { queue_depth: 256, ..base() }, "queue_depth 256: must be 8 to 255"),
            (IbConfig { highwater: 8, ..base() }, "highwater 8: must be 0 to 7"),
            (IbConfig { max_frags: 0, ..base() }, "max_frags 0: must be 1 to 257"),
            (IbConfig { max_frags: 258, ..base() }, "max_frags 258: must be 1 to 257"),
            (IbConfig { conns_per_peer: 0, ..base() }, "conns_per_peer 0: must be 1 to 127"),
            (IbConfig { timeout: Duration::ZERO, ..base() }, "timeout 0: must be greater than 0"),
            (IbConfig { drain: Duration::ZERO, ..base() }, "drain 0: must be greater than 0"),
        ];
        for (config, text) in wrong {
            assert_eq!(config.check().map_err(|e| e.to_string()), Err(text.to_owned()));
        }
    }

    #[test]
    fn a_connection_attempt_has_a_quarter_of_the_limit_and_a_message_ten_seconds_more() {
        let config = IbConfig::default();
        assert_eq!(config.connect_timeout(), Duration::from_millis(12_500));
        assert_eq!(config.wait_timeout(), Duration::from_millis(22_500));
        let short = IbConfig { timeout: Duration::from_secs(8), ..config };
        assert_eq!(short.connect_timeout(), Duration::from_secs(5));
    }
}
