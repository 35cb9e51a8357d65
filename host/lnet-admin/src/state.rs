//! The one word for the state of an interface, used by every view but the kernel's YAML: `top`, the
//! status page, `doctor` and `explain`. The words stand in the glossary of `CONTRIBUTING.md`.

use core::fmt;

use crate::{NiSnapshot, PeerNiSnapshot, PeerNiState};

/// Health of an interface with which nothing is wrong.
pub const HEALTH_MAX: i64 = 1000;

/// The state of an interface, ours or a peer's, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterfaceState {
    /// Full health.
    Up,
    /// Usable, below full health.
    Degraded,
    /// The end of a rail under suspicion: avoided before anything has failed (DEC-31).
    Suspect,
    /// Its peer was never reached: nothing is known of it.
    Unknown,
    /// No link, or reported down.
    Down,
}

impl InterfaceState {
    /// All of them, best first.
    pub const ALL: [Self; 5] = [Self::Up, Self::Degraded, Self::Suspect, Self::Unknown, Self::Down];

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Degraded => "degraded",
            Self::Suspect => "suspect",
            Self::Unknown => "unknown",
            Self::Down => "down",
        }
    }

    /// Of an interface of ours. `health` is `None` where it means nothing: loopback.
    pub fn local(up: bool, health: Option<i64>) -> Self {
        match health {
            _ if !up => Self::Down,
            Some(..HEALTH_MAX) => Self::Degraded,
            _ => Self::Up,
        }
    }

    /// Of an interface of a peer. `down`: its peer or its driver says so; of a peer that was never reached
    /// that is no news. `reached`: a message has come from the peer. `suspect`: one of the rails that end in it is under suspicion.
    pub fn remote(down: bool, reached: bool, suspect: bool, health: i64) -> Self {
        match (down, reached, suspect, health) {
            (_, false, ..) => Self::Unknown,
            (true, ..) => Self::Down,
            (_, _, true, _) => Self::Suspect,
            (.., ..HEALTH_MAX) => Self::Degraded,
            _ => Self::Up,
        }
    }
}

impl fmt::Display for InterfaceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The flag word of a peer (S-peer-3), as far as views read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFlags(pub u32);

impl PeerFlags {
    /// Its ping data say that it forwards.
    pub const ROUTER: u32 = 1 << 2;
    /// Created or changed by the administrator.
    pub const CONFIGURED: u32 = 1 << 3;
    /// Discovery has succeeded, or the list of NIDs is the newest that was received.
    pub const ANSWERED: u32 = 1 << 4 | 1 << 8;
    /// Its primary NID is locked.
    pub const PRIMARY_LOCKED: u32 = 1 << 20;

    /// Whether the peer reports that it forwards.
    pub const fn is_router(self) -> bool {
        self.0 & Self::ROUTER != 0
    }

    /// Whether the peer was configured, not only found.
    pub const fn is_configured(self) -> bool {
        self.0 & Self::CONFIGURED != 0
    }

    /// Whether the peer has answered a ping.
    pub const fn has_answered(self) -> bool {
        self.0 & Self::ANSWERED != 0
    }
}

impl NiSnapshot {
    /// Its state, where detail was asked for.
    pub fn interface_state(&self) -> InterfaceState {
        let health = self.detail.as_ref().map(|d| i64::from(d.health.value));
        InterfaceState::local(self.up, health.filter(|_| !self.nid.is_loopback()))
    }
}

impl PeerNiSnapshot {
    /// Its state, where detail was asked for. `reached`: [`crate::PeerSnapshot::was_reached`].
    pub fn interface_state(&self, reached: bool, suspect: bool) -> InterfaceState {
        let health = self.detail.as_ref().map_or(HEALTH_MAX, |d| i64::from(d.health.value));
        InterfaceState::remote(self.is_down(), reached, suspect, health)
    }

    /// Whether it is down, or reported down by its node.
    pub fn is_down(&self) -> bool {
        self.state == PeerNiState::Down || self.detail.as_ref().is_some_and(|d| d.reported_down)
    }
}

/// The name of this host, as exports and views show it; `None` where the system does not say.
pub fn host_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = text.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_one_word_and_the_gravest_cause_decides() {
        use InterfaceState::{Degraded, Down, Suspect, Unknown, Up};
        assert_eq!(InterfaceState::local(true, Some(1000)), Up);
        assert_eq!(InterfaceState::local(true, None), Up, "loopback");
        assert_eq!(InterfaceState::local(true, Some(999)), Degraded);
        assert_eq!(InterfaceState::local(false, Some(1000)), Down);
        assert_eq!(InterfaceState::remote(false, true, false, 1000), Up);
        assert_eq!(InterfaceState::remote(false, true, false, 0), Degraded);
        assert_eq!(InterfaceState::remote(false, true, true, 0), Suspect);
        assert_eq!(InterfaceState::remote(false, false, true, 1000), Unknown);
        assert_eq!(InterfaceState::remote(true, false, true, 1000), Unknown);
        assert_eq!(InterfaceState::remote(true, true, true, 1000), Down);
        let words = InterfaceState::ALL.map(InterfaceState::name);
        assert_eq!(words, ["up", "degraded", "suspect", "unknown", "down"]);
    }
}
