//! Rules that a build for tests breaks, one at a time, so that it is seen whether models notice. Without
//! the feature `sabotage` nothing can be broken, and nothing of this is in the program.

/// A rule to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sabotage"), allow(unreachable_pub))]
pub enum Sabotage {
    /// From the second round of stripes on, bytes lie one place before their own in their object (C-177).
    #[cfg(feature = "sabotage")]
    StripeBorder,
    /// An open is not repeated to a server that has lost it (C-256).
    #[cfg(feature = "sabotage")]
    OpenForgotten,
    /// A file ends where its last object says, though another one knows of more (C-179).
    LastSizeCounts,
    /// A write succeeds though a part of it has failed.
    ErrorLost,
    /// A file that is made whole is written in two parts, and the second one does not wait for its commit
    /// (C-231).
    WholeInParts,
    /// A visit says that all is committed, and has not waited for it (C-261).
    SettledEarly,
}

impl Sabotage {
    /// All of them.
    #[cfg(feature = "sabotage")]
    pub const ALL: [Self; 6] = [
        Self::StripeBorder,
        Self::OpenForgotten,
        Self::LastSizeCounts,
        Self::ErrorLost,
        Self::WholeInParts,
        Self::SettledEarly,
    ];
}
