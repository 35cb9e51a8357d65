//! Reasons for which what a peer says of itself is not taken. `admission.rs` applies them.

use core::fmt;

/// Something that a peer has said and was not taken.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[non_exhaustive]
pub enum Refusal {
    /// What should be ping data are none: magic, features, counts or sizes are impossible.
    Malformed,
    /// It lists a NID of this node as its own.
    OurNid,
    /// It lists the wildcard, or loopback as an interface.
    NoNid,
    /// It lists more NIDs than `max_interfaces`.
    TooMany,
    /// It lists a NID of another peer, and what answers there is not it.
    Claimed,
    /// It contradicts what the administrator has configured (DEC-28).
    Configured,
    /// A push that is older than what was known; the peer is asked instead.
    Stale,
    /// A push in the name of a peer, from a node that is neither the peer nor a router of ours; the
    /// peer is asked instead.
    Impostor,
    /// Its data change faster than they are worked off; the newest are taken when it is their turn.
    TooFast,
    /// The table of peers has no room for NIDs that are only heard of.
    NoRoom,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::Malformed,
        Self::OurNid,
        Self::NoNid,
        Self::TooMany,
        Self::Claimed,
        Self::Configured,
        Self::Stale,
        Self::Impostor,
        Self::TooFast,
        Self::NoRoom,
    ];

    /// Its name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::OurNid => "our_nid",
            Self::NoNid => "no_nid",
            Self::TooMany => "too_many",
            Self::Claimed => "claimed",
            Self::Configured => "configured",
            Self::Stale => "stale",
            Self::Impostor => "impostor",
            Self::TooFast => "too_fast",
            Self::NoRoom => "no_room",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "sent malformed ping data",
            Self::OurNid => "lists a NID of this node as its own",
            Self::NoNid => "lists a NID that no interface can have",
            Self::TooMany => "lists more NIDs than max_interfaces",
            Self::Claimed => "lists a NID where another node answers",
            Self::Configured => "contradicts its configuration",
            Self::Stale => "pushed data older than those on record",
            Self::Impostor => "pushes in the name of another peer",
            Self::TooFast => "changes its interfaces too fast",
            Self::NoRoom => "lists more NIDs than there is room for (peers_max)",
        })
    }
}
