//! Why a connection ends, and what that makes of its messages: the table B-20.

use core::fmt;

use lnet::{NI_STOPPED, PeerMisbehaved};
use lnet_types::{Errno, Fault, HealthStatus};
use lnet_wire::WireError;

use crate::credits::Excess;
use crate::flags::Flags;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer ended it in order.
    Left,
    /// A message or request comes from another incarnation, or names another one of this node.
    Stale,
    /// A transmit was not complete in time (RS-073).
    Timeout,
    /// A work request failed, or could not be posted.
    Work,
    /// A receive buffer failed while the connection was in use.
    Receive,
    /// Bytes that are no message.
    Wire(WireError),
    /// More credits than were given.
    Credits(Excess),
    /// A message of another version, or one that opens connections.
    Unexpected,
    /// An answer to nothing: its cookie is unknown, used or another's.
    Cookie(u64),
    /// More bytes are said to have been written than there is room for.
    Overrun(i32),
    /// The node finds the message wrong.
    Misbehaved(PeerMisbehaved),
    /// The acceptance of a connection request is not what was asked for.
    Acceptance,
    /// Completions were lost.
    CompletionsLost,
    /// The device is gone.
    DeviceGone,
    /// The interface stops.
    Stopped,
}

impl CloseReason {
    /// The errno of the end; `OK` for an end in order.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Left => Errno::OK,
            Self::Stale => Errno::ESTALE,
            Self::Timeout => Errno::ETIMEDOUT,
            Self::Work | Self::Receive | Self::CompletionsLost => Errno::EIO,
            Self::Wire(_)
            | Self::Credits(_)
            | Self::Unexpected
            | Self::Cookie(_)
            | Self::Overrun(_)
            | Self::Misbehaved(_)
            | Self::Acceptance => Errno::EPROTO,
            Self::DeviceGone => Errno::ENODEV,
            Self::Stopped => Errno::ENETDOWN,
        }
    }

    /// Whether the peer has kept to the protocol, and this side still counts on what it has sent.
    pub(crate) const fn is_innocent(self) -> bool {
        matches!(
            self,
            Self::Left | Self::Timeout | Self::Work | Self::Receive | Self::CompletionsLost
        )
    }

    /// Its name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Stale => "stale",
            Self::Timeout => "timeout",
            Self::Work => "work",
            Self::Receive => "receive",
            Self::Wire(_) => "wire",
            Self::Credits(_) => "credits",
            Self::Unexpected => "unexpected",
            Self::Cookie(_) => "cookie",
            Self::Overrun(_) => "overrun",
            Self::Misbehaved(_) => "misbehaved",
            Self::Acceptance => "acceptance",
            Self::CompletionsLost => "completions_lost",
            Self::DeviceGone => "device_gone",
            Self::Stopped => "stopped",
        }
    }

    /// The fate of a transmit with these flags. A posted one may have been delivered, which the
    /// `legacy` statuses of the kernel deny where a work request failed (DEC-6). What the own device
    /// kept from being posted is no fault of the peer.
    pub const fn fault(self, flags: Flags, legacy: bool) -> Fault {
        let unposted = flags.sending == 0 && !flags.waiting;
        let status = match self {
            Self::Stopped if unposted || legacy => return NI_STOPPED,
            Self::Timeout if flags.queued && unposted => HealthStatus::LocalTimeout,
            Self::Timeout if flags.waiting && flags.sending == 0 => HealthStatus::RemoteTimeout,
            Self::Timeout => HealthStatus::NetworkTimeout,
            Self::DeviceGone | Self::CompletionsLost if unposted => HealthStatus::LocalError,
            _ if unposted && legacy => HealthStatus::LocalError,
            _ if unposted => HealthStatus::RemoteDropped,
            _ if flags.sending > 0 && legacy => HealthStatus::RemoteDropped,
            _ => HealthStatus::NetworkTimeout,
        };
        let errno = match self {
            Self::Timeout => Errno::ETIMEDOUT,
            Self::Stopped => Errno::ENETDOWN,
            _ if unposted => Errno::ECONNABORTED,
            _ => Errno::EIO,
        };
        Fault::new(status, errno)
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("the peer disconnected"),
            Self::Stale => f.write_str("another incarnation"),
            Self::Timeout => f.write_str("a transmit was not complete in time"),
            Self::Work => f.write_str("a work request failed"),
            Self::Receive => f.write_str("a receive buffer failed"),
            Self::Wire(error) => error.fmt(f),
            Self::Credits(excess) => excess.fmt(f),
            Self::Unexpected => f.write_str("message of a type or version that has no place here"),
            Self::Cookie(cookie) => write!(f, "cookie {cookie:#x}: no exchange of that name"),
            Self::Overrun(nob) => write!(f, "status {nob}: more bytes than the buffer has"),
            Self::Misbehaved(how) => how.fmt(f),
            Self::Acceptance => f.write_str("CONNACK differs from what was asked for"),
            Self::CompletionsLost => f.write_str("completions were lost"),
            Self::DeviceGone => f.write_str("the device is gone"),
            Self::Stopped => f.write_str("the interface stops"),
        }
    }
}

/// The fate of messages that waited for a connection when the attempt failed (B-20).
pub const fn connect_fault(errno: Errno) -> Fault {
    let status = match errno {
        Errno::EHOSTUNREACH | Errno::ETIMEDOUT => HealthStatus::NetworkTimeout,
        Errno::ECONNREFUSED => HealthStatus::RemoteDropped,
        _ => HealthStatus::LocalDropped,
    };
    Fault::new(status, errno)
}

/// A message waited for a connection past its limit.
pub(crate) const WAITED: Fault = Fault::new(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT);
/// A message was not posted within a limit of its own.
pub(crate) const UNPOSTED: Fault = Fault::new(HealthStatus::LocalTimeout, Errno::ETIMEDOUT);
/// A limit of ours was reached.
pub(crate) const NO_ROOM: Fault = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
/// The device is gone.
pub(crate) const NO_DEVICE: Fault = Fault::new(HealthStatus::LocalError, Errno::ENODEV);
/// The message cannot be said in this protocol.
pub(crate) const UNSPEAKABLE: Fault = Fault::new(HealthStatus::LocalError, Errno::EPROTO);

/// Memory could not be mapped, or not in few enough fragments.
pub(crate) const fn map_fault(errno: Errno) -> Fault {
    Fault::new(HealthStatus::LocalError, errno)
}

/// The peer's answer carries this negative status.
pub(crate) const fn answer_fault(status: i32) -> Fault {
    Fault::new(HealthStatus::RemoteError, Errno(status.saturating_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUED: Flags = Flags { sending: 0, waiting: false, queued: true };
    const SENDING: Flags = Flags { sending: 1, waiting: false, queued: false };
    const BOTH: Flags = Flags { sending: 1, waiting: true, queued: false };
    const WAITING: Flags = Flags { sending: 0, waiting: true, queued: false };
    const AGAIN: Flags = Flags { sending: 1, waiting: false, queued: true };

    #[test]
    fn fates_of_transmits_are_those_of_the_table() {
        use HealthStatus as H;
        let table = [
            (CloseReason::Timeout, QUEUED, true, H::LocalTimeout, Errno::ETIMEDOUT),
            (CloseReason::Timeout, WAITING, true, H::RemoteTimeout, Errno::ETIMEDOUT),
            (CloseReason::Timeout, SENDING, true, H::NetworkTimeout, Errno::ETIMEDOUT),
            (CloseReason::Timeout, BOTH, true, H::NetworkTimeout, Errno::ETIMEDOUT),
            (CloseReason::Timeout, AGAIN, true, H::NetworkTimeout, Errno::ETIMEDOUT),
            (CloseReason::Timeout, QUEUED, false, H::LocalTimeout, Errno::ETIMEDOUT),
            (CloseReason::Timeout, WAITING, false, H::RemoteTimeout, Errno::ETIMEDOUT),
            (CloseReason::Work, QUEUED, true, H::LocalError, Errno::ECONNABORTED),
            (CloseReason::Work, SENDING, true, H::RemoteDropped, Errno::EIO),
            (CloseReason::Work, QUEUED, false, H::RemoteDropped, Errno::ECONNABORTED),
            (CloseReason::Work, SENDING, false, H::NetworkTimeout, Errno::EIO),
            (CloseReason::Left, WAITING, false, H::NetworkTimeout, Errno::EIO),
            (CloseReason::DeviceGone, QUEUED, true, H::LocalError, Errno::ECONNABORTED),
            (CloseReason::DeviceGone, QUEUED, false, H::LocalError, Errno::ECONNABORTED),
            (CloseReason::DeviceGone, SENDING, false, H::NetworkTimeout, Errno::EIO),
            (CloseReason::CompletionsLost, QUEUED, false, H::LocalError, Errno::ECONNABORTED),
            (CloseReason::Stopped, SENDING, false, H::NetworkTimeout, Errno::ENETDOWN),
            (CloseReason::Stopped, SENDING, true, H::RemoteDropped, Errno::ENETDOWN),
            (CloseReason::Stopped, QUEUED, false, H::RemoteDropped, Errno::ENETDOWN),
        ];
        for (reason, flags, legacy, status, errno) in table {
            let got = reason.fault(flags, legacy);
            assert_eq!(got, Fault::new(status, errno), "{reason:?} {flags:?} {legacy}");
        }
    }

    #[test]
    fn fates_of_waiting_messages_are_those_of_the_table() {
        use HealthStatus as H;
        let table = [
            (Errno::EHOSTUNREACH, H::NetworkTimeout),
            (Errno::ETIMEDOUT, H::NetworkTimeout),
            (Errno::ECONNREFUSED, H::RemoteDropped),
            (Errno::ENETDOWN, H::LocalDropped),
            (Errno::ENOTCONN, H::LocalDropped),
            (Errno::ECONNRESET, H::LocalDropped),
        ];
        for (errno, status) in table {
            assert_eq!(connect_fault(errno), Fault::new(status, errno));
        }
    }
}
