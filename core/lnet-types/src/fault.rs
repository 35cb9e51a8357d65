//! Failure is data: what a driver reports when a transmission or reception did not succeed. Which
//! interface pays for it and whether the message may go again is decided in one table of the node
//! (H-10), never here and never in a driver.

use core::fmt;

use crate::Errno;

/// Who is to blame, as the wire of causes that LNet distinguishes (V-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[derive(serde::Serialize, serde::Deserialize)]
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
    /// Handed to the transport, never confirmed: delivery is unknown.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Fault {
    /// What it means for health. `Ok` beside an error number is an inconsistent report: no health
    /// action and no retry follow (H-1, X-8).
    pub status: HealthStatus,
    /// The error that the caller gets.
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

/// The number that stands for "once on every path" where a number of retries is expected (DEC-11).
/// Commands write it as a word.
pub const RETRY_PATHS: i64 = i64::MIN;

/// A set of causes, as tunables and commands name it: `local_timeout+remote_dropped`, `none`. As a
/// number, a bit for each wire value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HealthStatuses(u16);

impl HealthStatuses {
    /// The set of these.
    pub const fn of(list: &[HealthStatus]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < list.len() {
            bits |= 1 << list[i] as u8;
            i += 1;
        }
        Self(bits)
    }

    /// The set with these bits; others than those of known causes are not kept.
    pub const fn from_bits(bits: i64) -> Self {
        Self((bits & ((1 << HealthStatus::ALL.len()) - 1)) as u16)
    }

    /// The set as a number.
    pub const fn bits(self) -> i64 {
        self.0 as i64
    }

    /// Whether the set holds `status`.
    pub const fn contains(self, status: HealthStatus) -> bool {
        self.0 & (1 << status as u8) != 0
    }

    /// The set that `text` names: causes joined by `+` or `,`, or `none`. `None` if a word is no cause.
    pub fn named(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self(0));
        }
        let mut all = Self(0);
        for word in text.split(['+', ',']) {
            let known = HealthStatus::ALL.into_iter().skip(1);
            let status = known.into_iter().find(|s| s.name() == word.trim())?;
            all.0 |= 1 << status as u8;
        }
        Some(all)
    }
}

impl fmt::Display for HealthStatuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        let mut between = "";
        for status in HealthStatus::ALL.into_iter().filter(|s| self.contains(*s)) {
            write!(f, "{between}{status}")?;
            between = "+";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_of_causes_is_read_as_it_is_written() {
        for bits in (0..1 << HealthStatus::ALL.len()).filter(|bits| bits & 1 == 0) {
            let set = HealthStatuses::from_bits(bits);
            assert_eq!(HealthStatuses::named(&set.to_string()), Some(set), "{set}");
            assert_eq!(HealthStatuses::named(&set.to_string().replace('+', ",")), Some(set));
        }
        for wrong in ["", "ok", "local_timeout+", "none+local_timeout", "Local_Timeout", "7"] {
            assert_eq!(HealthStatuses::named(wrong), None, "{wrong:?}");
        }
        assert_eq!(HealthStatuses::from_bits(-1).bits(), 0x7FF);
    }
}
