//! Failures and their reports to the node: why a NI does not start, why a connection
//! ends, and the table K-40 that turns the end of a connection into the fate of its messages.

use core::net::SocketAddr;

use lnet::{NI_STOPPED, PeerMisbehaved};
use lnet_types::{Errno, Fault, HealthStatus, NiId};
use thiserror::Error;

use crate::stats::Refusal;

/// Why an interface can't be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// It is being served already.
    #[error("interface {0:?} is already started")]
    AlreadyStarted(NiId),
    /// `conns_per_peer` out of range.
    #[error("conns_per_peer {0}: expected 1 to 127")]
    ConnsPerPeer(u8),
    /// `tos` out of range.
    #[error("tos {0}: expected 0 to 255, or -1 for the system's default")]
    Tos(i16),
    /// A time limit of zero.
    #[error("lnd_timeout 0: must be greater than 0")]
    Timeout,
    /// The listener.
    #[error("can't listen on {at}: {errno}")]
    Listen {
        /// Address and port.
        at: SocketAddr,
        /// What the system says.
        errno: Errno,
    },
}

impl StartError {
    /// The error number that commands show.
    pub const fn errno(self) -> Errno {
        match self {
            Self::AlreadyStarted(_) => Errno::EEXIST,
            Self::ConnsPerPeer(_) | Self::Tos(_) | Self::Timeout => Errno::EINVAL,
            Self::Listen { errno, .. } => errno,
        }
    }
}

/// Why an established connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Another incarnation, or an operator's wish: no error.
    Orderly,
    /// End of file between messages: the peer is through with it, or is gone. No error.
    Left,
    /// End of file inside a message.
    Truncated,
    /// Reading failed, or the system reported an error while idle (K-34).
    Read(Errno),
    /// Writing failed.
    Write(Errno),
    /// Nothing of what we wrote was acknowledged in time (K-30).
    SendTimeout,
    /// The same of a peer that suppresses duplicates: another connection takes its place, and what it
    /// held goes by that one (DEC-47).
    Replaced,
    /// A message stopped arriving (K-31).
    RecvTimeout,
    /// The bytes were wrong (wire.md 8.2).
    Protocol(Refusal),
    /// The node found the message wrong (wire.md 8.3).
    Misbehaved(PeerMisbehaved),
    /// Another connection to the same peer failed.
    Sibling(Errno),
    /// Another connection to the same peer timed out, and this one may be as dead: its messages have
    /// the same right to another path.
    SiblingTimeout,
    /// The interface stops.
    Stopped,
    /// The interface is cut, for a test.
    Cut,
}

impl Why {
    /// The error number that the connection ends with; 0 for none.
    pub(crate) const fn errno(self) -> Errno {
        match self {
            Self::Orderly | Self::Left => Errno::OK,
            Self::Truncated => Errno::EPROTO,
            Self::Read(errno) | Self::Write(errno) | Self::Sibling(errno) => errno,
            Self::SendTimeout | Self::Replaced | Self::RecvTimeout | Self::SiblingTimeout => {
                Errno::ETIMEDOUT
            }
            Self::Protocol(_) | Self::Misbehaved(_) => Errno::EPROTO,
            Self::Stopped => Errno::ENETDOWN,
            Self::Cut => Errno::ENETUNREACH,
        }
    }

    /// Whether all other connections to the peer end with it (wire.md 3.12).
    pub(crate) const fn takes_siblings(self) -> bool {
        match self {
            Self::Orderly
            | Self::Left
            | Self::Sibling(_)
            | Self::SiblingTimeout
            | Self::Stopped
            | Self::Cut => false,
            Self::Truncated
            | Self::Read(_)
            | Self::Write(_)
            | Self::SendTimeout
            | Self::Replaced
            | Self::RecvTimeout
            | Self::Protocol(_)
            | Self::Misbehaved(_) => true,
        }
    }

    /// Whether what has arrived on the connection and is not read is as good as ever.
    pub(crate) const fn leaves_to_read(self) -> bool {
        match self {
            Self::Orderly
            | Self::Read(_)
            | Self::Write(_)
            | Self::Replaced
            | Self::Sibling(_)
            | Self::SiblingTimeout => true,
            Self::Left
            | Self::Truncated
            | Self::SendTimeout
            | Self::RecvTimeout
            | Self::Protocol(_)
            | Self::Misbehaved(_)
            | Self::Stopped
            | Self::Cut => false,
        }
    }

    /// Why the other connections to the peer end.
    pub(crate) const fn for_sibling(self) -> Self {
        match self {
            Self::SendTimeout => Self::SiblingTimeout,
            // A sibling has no siblings left to take.
            Self::Replaced => Self::Replaced,
            other => Self::Sibling(other.errno()),
        }
    }

    /// The fate of a message that was queued on the connection: `sent` bytes of it had been handed
    /// over, `first` says that it was the one being written (K-40, K-30a).
    pub(crate) const fn fault(self, sent: u64, first: bool, legacy: bool) -> Fault {
        let closed = Fault::new(HealthStatus::LocalError, Errno::EIO);
        match self {
            Self::Stopped => NI_STOPPED,
            Self::Write(Errno::ETIMEDOUT) if first => {
                Fault::new(HealthStatus::RemoteTimeout, Errno::EIO)
            }
            Self::SendTimeout | Self::Replaced | Self::SiblingTimeout if !legacy => {
                if sent == 0 {
                    Fault::new(HealthStatus::LocalTimeout, Errno::ETIMEDOUT)
                } else {
                    Fault::new(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT)
                }
            }
            Self::Cut if !legacy => Fault::new(HealthStatus::LocalInterrupt, Errno::ENETUNREACH),
            // What was not wholly written when the connection went, the peer's LNet can't have: it
            // may go again (DEC-6). The kernel calls it a local error.
            Self::Orderly
            | Self::Left
            | Self::Truncated
            | Self::Read(_)
            | Self::Write(_)
            | Self::Sibling(_)
                if !legacy =>
            {
                Fault::new(HealthStatus::RemoteDropped, Errno::ECONNRESET)
            }
            Self::Orderly
            | Self::Left
            | Self::Truncated
            | Self::Read(_)
            | Self::Write(_)
            | Self::SendTimeout
            | Self::Replaced
            | Self::RecvTimeout
            | Self::Protocol(_)
            | Self::Misbehaved(_)
            | Self::Sibling(_)
            | Self::SiblingTimeout
            | Self::Cut => closed,
        }
    }
}

/// The fate of a message that waited for a connection when the attempt failed with `errno` (K-40).
pub(crate) const fn connect_fault(errno: Errno) -> Fault {
    let status = match errno {
        Errno::ETIMEDOUT => HealthStatus::NetworkTimeout,
        Errno::ENETDOWN
        | Errno::EHOSTUNREACH
        | Errno::ENETUNREACH
        | Errno::ECONNREFUSED
        | Errno::ECONNRESET => HealthStatus::RemoteDropped,
        _ => HealthStatus::LocalError,
    };
    Fault::new(status, errno)
}

/// The interface is cut (fault injection): nothing leaves it.
pub(crate) const CUT: Fault = Fault::new(HealthStatus::LocalNoRoute, Errno::ENETUNREACH);
/// No usable connection, and too soon for another attempt (K-15).
pub(crate) const TOO_SOON: Fault = Fault::new(HealthStatus::RemoteError, Errno::EIO);
/// A process that can't be connected to, and has not connected to us (K-11).
pub(crate) const NOT_CONNECTABLE: Fault =
    Fault::new(HealthStatus::RemoteError, Errno::EHOSTUNREACH);
/// A limit of ours was reached (DEC-19).
pub(crate) const NO_ROOM: Fault = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
/// A message waited for a connection past its deadline (K-32).
pub(crate) const WAITED: Fault = Fault::new(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT);
/// The same while suspicion is on: the peer certainly does not have it, so it may go again (DEC-6).
pub(crate) const UNSENT: Fault = Fault::new(HealthStatus::RemoteDropped, Errno::ETIMEDOUT);
/// The connection has a version whose headers can't carry the message's NIDs.
pub(crate) const LARGE_NID: Fault = Fault::new(HealthStatus::LocalError, Errno::EPROTO);
/// A payload that will not come (K-40, last rows).
pub(crate) const RX_BROKEN: Fault = Fault::new(HealthStatus::RemoteError, Errno::EIO);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates_of_queued_messages_are_those_of_the_table() {
        use HealthStatus as H;
        let table = [
            // why, sent, first, legacy → status, errno
            (Why::Write(Errno::ETIMEDOUT), 5, true, false, H::RemoteTimeout, Errno::EIO),
            (Why::Write(Errno::ETIMEDOUT), 0, false, true, H::LocalError, Errno::EIO),
            (Why::Write(Errno::ECONNRESET), 5, true, true, H::LocalError, Errno::EIO),
            (Why::Write(Errno::EPIPE), 0, true, true, H::LocalError, Errno::EIO),
            (Why::Read(Errno::ECONNRESET), 0, true, true, H::LocalError, Errno::EIO),
            (Why::Orderly, 0, true, true, H::LocalError, Errno::EIO),
            (Why::Cut, 0, true, true, H::LocalError, Errno::EIO),
            (Why::Sibling(Errno::ETIMEDOUT), 0, true, true, H::LocalError, Errno::EIO),
            (Why::Write(Errno::ECONNRESET), 5, true, false, H::RemoteDropped, Errno::ECONNRESET),
            (Why::Read(Errno::ECONNRESET), 0, true, false, H::RemoteDropped, Errno::ECONNRESET),
            (Why::Orderly, 0, true, false, H::RemoteDropped, Errno::ECONNRESET),
            (Why::Left, 0, true, false, H::RemoteDropped, Errno::ECONNRESET),
            (Why::Left, 0, true, true, H::LocalError, Errno::EIO),
            (Why::Cut, 5, true, false, H::LocalInterrupt, Errno::ENETUNREACH),
            (Why::Sibling(Errno::EPROTO), 7, true, true, H::LocalError, Errno::EIO),
            (Why::SiblingTimeout, 0, true, false, H::LocalTimeout, Errno::ETIMEDOUT),
            (Why::SiblingTimeout, 1, true, false, H::NetworkTimeout, Errno::ETIMEDOUT),
            (Why::SiblingTimeout, 1, true, true, H::LocalError, Errno::EIO),
            (Why::RecvTimeout, 0, true, false, H::LocalError, Errno::EIO),
            (Why::SendTimeout, 0, true, false, H::LocalTimeout, Errno::ETIMEDOUT),
            (Why::SendTimeout, 1, true, false, H::NetworkTimeout, Errno::ETIMEDOUT),
            (Why::SendTimeout, 0, true, true, H::LocalError, Errno::EIO),
            (Why::SendTimeout, 1, true, true, H::LocalError, Errno::EIO),
            (Why::Stopped, 1, true, false, H::RemoteDropped, Errno::ENETDOWN),
        ];
        for (why, sent, first, legacy, status, errno) in table {
            let got = why.fault(sent, first, legacy);
            assert_eq!(got, Fault::new(status, errno), "{why:?} sent {sent} first {first}");
        }
    }

    #[test]
    fn fates_of_waiting_messages_are_those_of_the_table() {
        use HealthStatus as H;
        let table = [
            (Errno::ETIMEDOUT, H::NetworkTimeout),
            (Errno::ENETDOWN, H::RemoteDropped),
            (Errno::EHOSTUNREACH, H::RemoteDropped),
            (Errno::ENETUNREACH, H::RemoteDropped),
            (Errno::ECONNREFUSED, H::RemoteDropped),
            (Errno::ECONNRESET, H::RemoteDropped),
            (Errno::EPROTO, H::LocalError),
            (Errno::EADDRINUSE, H::LocalError),
        ];
        for (errno, status) in table {
            assert_eq!(connect_fault(errno), Fault::new(status, errno));
        }
    }
}
