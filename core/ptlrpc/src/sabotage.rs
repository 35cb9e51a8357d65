//! Rules that a build for tests breaks, one at a time, so that it is seen whether models notice. Without
//! the feature `sabotage` nothing can be broken, and nothing of this is in the program.

/// A rule to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sabotage"), allow(unreachable_pub))]
pub enum Sabotage {
    /// A copy of a request in work is executed beside it (P-110).
    NoFolding,
    /// A copy of a request that was answered is executed again (P-141).
    RecordForgotten,
    /// An early reply ends its call (P-98).
    EarlyIsReply,
    /// What is answered counts as committed (P-74).
    CommittedEarly,
    /// Nothing is kept to be repeated (P-74).
    NotRetained,
    /// What a server lost is repeated from the last transaction back (P-70).
    ReplayBackwards,
    /// A gap in the transactions is accepted although a client may fill it (P-151).
    GapTooSoon,
    /// A copy of a request does not say that it is one (P-84).
    ResentUnmarked,
}

impl Sabotage {
    /// All of them.
    #[cfg(feature = "sabotage")]
    pub const ALL: [Self; 8] = [
        Self::NoFolding,
        Self::RecordForgotten,
        Self::EarlyIsReply,
        Self::CommittedEarly,
        Self::NotRetained,
        Self::ReplayBackwards,
        Self::GapTooSoon,
        Self::ResentUnmarked,
    ];
}
