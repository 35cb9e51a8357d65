//! The order of candidates. Each choice that selection makes is the smallest of one kind of key; a
//! key is a list of fields, each with the [`Criterion`] that it stands for, and the order of the
//! fields is the order of the criteria (DEC-12; S-35, S-41, S-43). [`choose`] is the only place
//! where keys are compared, whether reasons are recorded or not.

use core::cmp::Reverse;
use core::fmt;

use crate::Doubt;
use crate::policy::turn::Standing;
use crate::send::trace::{Named, Recorder, Step};

/// What may decide between two candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[derive(serde::Serialize, serde::Deserialize)]
pub enum Criterion {
    /// The interface has no link.
    Usable,
    /// Rails that have fallen silent (DEC-31).
    Silence,
    /// Health, or that of a network's best interface; within `health_range`.
    Health,
    /// Health of the network's best interface of ours.
    LocalHealth,
    /// Comes and goes too often (HL-lnt-115).
    Flapping,
    /// Paths on which this message failed before (DEC-8).
    Tried,
    /// Priority by rules.
    Priority,
    /// Priority of our side of a network by rules.
    LocalPriority,
    /// Routers by rules.
    Router,
    /// Routers on the way.
    Hops,
    /// Pairs by rules.
    Pairing,
    /// Rails that lose or lag (DEC-31).
    Suspicion,
    /// Pairs by which the peer was heard last (D-45).
    Heard,
    /// Numbers of messages by rules.
    Turn,
    /// The same for our side of a network.
    LocalTurn,
    /// Distance from the memory.
    Distance,
    /// Bytes queued.
    QueuedBytes,
    /// Free credits; negative: messages waiting.
    Credits,
    /// Chosen longest ago.
    Rotation,
    /// Our side of a network was chosen longest ago.
    LocalRotation,
    /// A complete tie: the first in the list (S-40).
    ListOrder,
}

impl Criterion {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usable => "state",
            Self::Silence => "silence",
            Self::Health => "health",
            Self::LocalHealth => "local health",
            Self::Flapping => "flapping",
            Self::Tried => "tried before",
            Self::Priority => "priority",
            Self::LocalPriority => "local priority",
            Self::Router => "router rule",
            Self::Hops => "hops",
            Self::Pairing => "pairing",
            Self::Suspicion => "suspicion",
            Self::Heard => "heard last",
            Self::Turn => "turn",
            Self::LocalTurn => "local turn",
            Self::Distance => "distance",
            Self::QueuedBytes => "queued bytes",
            Self::Credits => "credits",
            Self::Rotation => "rotation",
            Self::LocalRotation => "local rotation",
            Self::ListOrder => "list order",
        }
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One value of a candidate, and the criterion that it is for.
pub type Fact = (Criterion, String);

/// A list of fields in the order of importance.
pub(crate) trait Key: Ord {
    /// The first field in which two keys differ.
    fn decides(&self, other: &Self) -> Criterion;
    /// The values, but for those that say nothing.
    fn facts(&self) -> Vec<Fact>;
}

/// How a field is printed; `None` prints nothing.
trait Shown {
    fn shown(&self) -> Option<String>;
}

/// Whether a message failed on a candidate before. A yes or no of another criterion has a type of its
/// own, too: what `true` is printed as depends on the criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tried(pub(crate) bool);

impl Shown for Tried {
    fn shown(&self) -> Option<String> {
        self.0.then(|| "yes".to_owned())
    }
}

/// Whether rules map all interfaces of the peer to other interfaces of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Excluded(pub(crate) bool);

impl Shown for Excluded {
    fn shown(&self) -> Option<String> {
        self.0.then(|| "against rule".to_owned())
    }
}

/// Whether a peer's interface was last heard by another interface of ours, or never, where that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unheard(pub(crate) bool);

impl Shown for Unheard {
    fn shown(&self) -> Option<String> {
        self.0.then(|| "no".to_owned())
    }
}

/// Whether rules name other routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NotPreferred(pub(crate) bool);

impl Shown for NotPreferred {
    fn shown(&self) -> Option<String> {
        self.0.then(|| "no".to_owned())
    }
}

/// Whether a candidate is down: it has no link, or its peer reports it down.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct Down(pub(crate) bool);

impl Shown for Down {
    fn shown(&self) -> Option<String> {
        self.0.then(|| "down".to_owned())
    }
}

impl Shown for usize {
    fn shown(&self) -> Option<String> {
        (*self != 0).then(|| self.to_string())
    }
}

impl Shown for u64 {
    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Shown for Reverse<u32> {
    fn shown(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

impl Shown for Reverse<i32> {
    fn shown(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

impl Shown for Option<u64> {
    fn shown(&self) -> Option<String> {
        self.map(|n| n.to_string())
    }
}

impl Shown for Standing {
    fn shown(&self) -> Option<String> {
        (*self != Self::NONE).then(|| format!("round {}", self.round))
    }
}

/// A priority where it counts, and nothing where the other place counts (`udsp_first`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct Priority(pub(crate) u32);

impl Shown for Priority {
    fn shown(&self) -> Option<String> {
        (self.0 != crate::policy::turn::NO_PRIORITY).then(|| self.0.to_string())
    }
}

/// A NUMA distance. An unknown one counts as the least known one, or as 0 if none is known.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct Distance(pub(crate) u32);

impl Shown for Distance {
    fn shown(&self) -> Option<String> {
        (self.0 != 0).then(|| self.0.to_string())
    }
}

/// Whether an interface comes and goes too often.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct Flapping(pub(crate) bool);

impl Shown for Flapping {
    fn shown(&self) -> Option<String> {
        self.0.then(|| "yes".to_owned())
    }
}

/// What pair rules say of a pair, best first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) enum Pairing {
    /// A rule maps the peer's interface to ours.
    Mapped,
    /// No rule maps it.
    Free,
    /// Rules map it to others.
    Elsewhere,
}

impl Shown for Pairing {
    fn shown(&self) -> Option<String> {
        match self {
            Self::Mapped => Some("by rule".to_owned()),
            Self::Free => None,
            Self::Elsewhere => Some("against rule".to_owned()),
        }
    }
}

/// Doubt about the rails of a candidate, least first.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
pub(crate) struct Doubted {
    /// That about the best of the rails that the candidate could be used on.
    pub(crate) least: Doubt,
    /// The doubts about all rails that end in it, added up. What has silenced one of them has
    /// probably silenced more, on which nothing has been sent yet.
    pub(crate) around: usize,
}

impl Shown for Doubted {
    fn shown(&self) -> Option<String> {
        match (self.least, self.around) {
            (Doubt::None, 0) => None,
            (Doubt::None, n) => Some(format!("nearby ({n})")),
            (doubt @ (Doubt::Unproven | Doubt::Slow), _) => Some(doubt.name().to_owned()),
            (Doubt::Shaky | Doubt::Silent, _) => Some("yes".to_owned()),
        }
    }
}

macro_rules! key {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty => $criterion:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name {
            $(pub(crate) $field: $ty,)*
        }

        impl Key for $name {
            fn decides(&self, other: &Self) -> Criterion {
                $(if self.$field != other.$field {
                    return Criterion::$criterion;
                })*
                Criterion::ListOrder
            }

            fn facts(&self) -> Vec<Fact> {
                let shown = [$((Criterion::$criterion, self.$field.shown()),)*];
                shown.into_iter().filter_map(|(c, text)| Some((c, text?))).collect()
            }
        }
    };
}

key! {
    /// Networks that both sides have (S-35).
    NetKey {
        dead: Down => Usable,
        silent: Doubted => Silence,
        first_peer_priority: Priority => Priority,
        first_local_priority: Priority => LocalPriority,
        peer_health: Reverse<u32> => Health,
        peer_priority: Priority => Priority,
        local_health: Reverse<u32> => LocalHealth,
        flapping: Flapping => Flapping,
        local_priority: Priority => LocalPriority,
        tried: Tried => Tried,
        shaky: Doubted => Suspicion,
        peer_turn: Standing => Turn,
        local_turn: Standing => LocalTurn,
        peer_seq: u64 => Rotation,
        local_seq: u64 => LocalRotation,
    }
}

key! {
    /// Local interfaces on one network (S-41).
    NiKey {
        fatal: Down => Usable,
        silent: Doubted => Silence,
        first_priority: Priority => Priority,
        health: Reverse<u32> => Health,
        flapping: Flapping => Flapping,
        tried: usize => Tried,
        priority: Priority => Priority,
        excluded: Excluded => Pairing,
        shaky: Doubted => Suspicion,
        turn: Standing => Turn,
        path_turn: Standing => Turn,
        distance: Distance => Distance,
        credits: Reverse<i32> => Credits,
        seq: u64 => Rotation,
    }
}

key! {
    /// A peer's interfaces on one network (S-43).
    PeerNiKey {
        silent: Doubted => Silence,
        first_priority: Priority => Priority,
        health: Reverse<u32> => Health,
        flapping: Flapping => Flapping,
        tried: Tried => Tried,
        priority: Priority => Priority,
        pairing: Pairing => Pairing,
        shaky: Doubted => Suspicion,
        unheard: Unheard => Heard,
        turn: Standing => Turn,
        path_turn: Standing => Turn,
        queued_bytes: Option<u64> => QueuedBytes,
        credits: Reverse<i32> => Credits,
        seq: u64 => Rotation,
    }
}

key! {
    /// Routes to one network (S-55, DEC-24).
    RouteKey {
        silent: Doubted => Silence,
        tried: Tried => Tried,
        not_preferred: NotPreferred => Router,
        priority: u64 => Priority,
        hops: u64 => Hops,
        health: Reverse<u32> => Health,
        shaky: Doubted => Suspicion,
        queued_bytes: u64 => QueuedBytes,
        credits: Reverse<i32> => Credits,
        seq: u64 => Rotation,
        // Of equals the later one wins.
        place: Reverse<u32> => ListOrder,
    }
}

key! {
    /// Interfaces of one gateway (S-54).
    GatewayKey {
        down: Down => Usable,
        silent: Doubted => Silence,
        health: Reverse<u32> => Health,
        tried: Tried => Tried,
        priority: Priority => Priority,
        shaky: Doubted => Suspicion,
        credits: Reverse<i32> => Credits,
        seq: u64 => Rotation,
    }
}

/// The candidate with the smallest key; on a complete tie the first one (S-40).
pub(crate) fn choose<T: Copy, K: Key>(
    rec: &mut Recorder<'_>,
    step: Step,
    candidates: impl Iterator<Item = (T, K)> + Clone,
    name: impl Fn(T) -> Named,
) -> Option<T> {
    if let Some(trace) = rec {
        trace.record(step, candidates.clone().map(|(c, key)| (name(c), key)).collect());
    }
    candidates.min_by(|(_, a), (_, b)| a.cmp(b)).map(|(c, _)| c)
}
