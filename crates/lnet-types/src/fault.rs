//! Failure is data: what a driver reports when a transmission or reception did not succeed. Which
//! interface pays for it and whether the message may go again is decided in one table of the node
//! (H-10), never here and never in a driver.

use core::fmt;

use crate::Errno;

/// Who is to blame, as the wire of causes that LNet distinguishes (V-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum HealthStatus {
    /// Nothing went wrong.
    Ok = 0,
    /// The local interface was interrupted (link went down under the message).
    LocalInterrupt = 1,
    /// Dropped locally before transmission.
    LocalDropped = 2,
    /// Aborted locally.
    LocalAborted = 3,
    /// No local route to the peer.
    LocalNoRoute = 4,
    /// Any other local error.
    LocalError = 5,
    /// Not handed to the transport in time.
    LocalTimeout = 6,
    /// The peer reported an error.
    RemoteError = 7,
    /// The peer certainly did not get it.
    RemoteDropped = 8,
    /// The peer did not take it in time.
    RemoteTimeout = 9,
    /// Handed to the transport, never confirmed: nobody knows.
    NetworkTimeout = 10,
}

impl HealthStatus {
    /// All of them, in the order of their wire values.
    pub const ALL: [Self; 11] = [
        Self::Ok,
        Self::LocalInterrupt,
        Self::LocalDropped,
        Self::LocalAborted,
        Self::LocalNoRoute,
        Self::LocalError,
        Self::LocalTimeout,
        Self::RemoteError,
        Self::RemoteDropped,
        Self::RemoteTimeout,
        Self::NetworkTimeout,
    ];

    /// The name that commands use: `local_timeout`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::LocalInterrupt => "local_interrupt",
            Self::LocalDropped => "local_dropped",
            Self::LocalAborted => "local_aborted",
            Self::LocalNoRoute => "local_no_route",
            Self::LocalError => "local_error",
            Self::LocalTimeout => "local_timeout",
            Self::RemoteError => "remote_error",
            Self::RemoteDropped => "remote_dropped",
            Self::RemoteTimeout => "remote_timeout",
            Self::NetworkTimeout => "network_timeout",
        }
    }
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One failed transmission or reception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it means for health. `Ok` beside an error number is an inconsistent report: no health
    /// action and no retry follow (H-1, X-8).
    pub status: HealthStatus,
    /// What the caller is told.
    pub errno: Errno,
}

impl Fault {
    /// A fault of `status` that the caller sees as `errno`.
    pub const fn new(status: HealthStatus, errno: Errno) -> Self {
        Self { status, errno }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.status, self.errno)
    }
}

impl std::error::Error for Fault {}
