//! Process ids: which service at a node. The kernel has exactly one, 12345.

use core::fmt;

use crate::Nid;

/// An LNet process id (V-4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Pid(pub u32);

impl Pid {
    /// The pid of every Lustre service.
    pub const LUSTRE: Self = Self(12345);
    /// The wildcard.
    pub const ANY: Self = Self(u32::MAX);
    /// Marks a peer on an unprivileged port that can't be connected to.
    pub const USER_FLAG: u32 = 0x8000_0000;

    /// Whether this pid names a user-space peer (V-4).
    pub const fn is_user(self) -> bool {
        self.0 & Self::USER_FLAG != 0 && self.0 != u32::MAX
    }
}

/// A process at a NID.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct ProcessId {
    /// Where.
    pub nid: Nid,
    /// Which.
    pub pid: Pid,
}

impl ProcessId {
    /// The Lustre service at `nid`.
    pub const fn lustre(nid: Nid) -> Self {
        Self { nid, pid: Pid::LUSTRE }
    }
}

impl From<Nid> for ProcessId {
    fn from(nid: Nid) -> Self {
        Self::lustre(nid)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == Pid::ANY {
            write!(f, "LNET_PID_ANY-{}", self.nid)
        } else if self.pid.is_user() {
            write!(f, "U{}-{}", self.pid.0 & !Pid::USER_FLAG, self.nid)
        } else {
            write!(f, "{}-{}", self.pid.0, self.nid)
        }
    }
}
