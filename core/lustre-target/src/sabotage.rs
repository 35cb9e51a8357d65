//! Rules of changes over two metadata targets that a build for tests breaks, one at a time, so that it is seen
//! whether models notice. Without the feature `sabotage` nothing can be broken, and nothing of this is in the
//! program.

/// A rule to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sabotage"), allow(unreachable_pub))]
pub enum Sabotage {
    /// A change that was made before a crash is not asked of the second target again.
    #[cfg(feature = "sabotage")]
    HalfForgotten,
    /// The first target says that none of its changes is made: their names are let go.
    MadeNotNamed,
    /// The second target lets no name go: what was not decided holds its name for ever.
    NameKept,
    /// A client has its answer before the second target has made the change.
    AnsweredEarly,
    /// No request waits for a name that is held.
    HeldNotWaited,
    /// A directory that is about to be removed gets names.
    DyingTakesNames,
    /// The name of a removed directory stays.
    NameStays,
}

impl Sabotage {
    /// All of them.
    #[cfg(feature = "sabotage")]
    pub const ALL: [Self; 7] = [
        Self::HalfForgotten,
        Self::MadeNotNamed,
        Self::NameKept,
        Self::AnsweredEarly,
        Self::HeldNotWaited,
        Self::DyingTakesNames,
        Self::NameStays,
    ];
}
