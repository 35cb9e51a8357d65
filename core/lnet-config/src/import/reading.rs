//! What a text is read for: to configure a node of this kind, or to know what some node is like.
//!
//! A node that is only described may be a kernel's, with drivers that there are none of here, and
//! what its export shows beside its configuration says which of it is one: NIs keep their NIDs, and
//! peers that were found by discovery are no part of it.

use core::fmt;

use lnet_types::Nid;

use crate::config::{Config, ConfigError};
use crate::yaml::Pos;

/// The bit of `peer state` of a configured peer (S-peer-3).
const CONFIGURED: i64 = 1 << 3;

/// Something in an export that a description of its node does without.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PassedOver {
    /// A tunable of a driver that is not here.
    ForeignTunable(String),
    /// A peer that was found by discovery: its primary NID.
    FoundPeer(Nid),
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignTunable(name) => {
                write!(f, "'{name}' is not a tunable of this network's driver here")
            }
            Self::FoundPeer(nid) => write!(f, "peer {nid} was found, not configured"),
        }
    }
}

/// How a text is read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Whether it describes a node, rather than being for one of this kind.
    pub(super) describes: bool,
    /// What was passed over, and its place.
    passed_over: Vec<(Pos, PassedOver)>,
    /// The state of the peer that is being read, where it is shown.
    peer_state: Option<i64>,
}

impl Reading {
    pub(super) fn pass_over(&mut self, pos: Pos, what: PassedOver) {
        self.passed_over.push((pos, what));
    }

    pub(super) fn peer_state(&mut self, bits: i64) {
        self.peer_state = Some(bits);
    }

    /// Whether the peer that has been read was found by discovery and not configured. Backups do
    /// not say: what they hold is configuration.
    pub(super) fn was_only_found(&mut self, pos: Pos, primary: Nid) -> bool {
        let only_found = self.peer_state.take().is_some_and(|bits| bits & CONFIGURED == 0);
        if only_found {
            self.pass_over(pos, PassedOver::FoundPeer(primary));
        }
        only_found
    }
}

impl Config {
    /// Reads what `export` printed, on a node of this kind or on a kernel's, as a description of that
    /// node. Other than [`Self::from_yaml`] it leaves each NI its NID beside its interfaces, and
    /// passes over tunables of drivers that are not here and peers that were only found by
    /// discovery; these are returned with their places.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn from_export(text: &str) -> Result<(Self, Vec<(Pos, PassedOver)>), ConfigError> {
        let mut how = Reading { describes: true, ..Reading::default() };
        let config = Self::read(text, &mut how)?;
        Ok((config, how.passed_over))
    }
}
