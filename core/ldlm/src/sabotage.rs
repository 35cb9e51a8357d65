//! Rules that a build for tests breaks, one at a time, so that it is seen whether models notice. Without
//! the feature `sabotage` nothing can be broken, and nothing of this is in the program.

/// A rule to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sabotage"), allow(unreachable_pub))]
pub enum Sabotage {
    /// The matrix has one wrong bit: a write lock is granted beside a read lock (L-4).
    MatrixBit,
    /// I/O under a lock that was called back does not move its expiry (L-49).
    TimerNotRefreshed,
    /// An eviction leaves one lock behind (L-52).
    EvictionKeepsOne,
    /// A cookie names whatever has its place, so that a late cancel ends another lock (L-56).
    ReusedCookie,
}

impl Sabotage {
    /// All of them.
    #[cfg(feature = "sabotage")]
    pub const ALL: [Self; 4] =
        [Self::MatrixBit, Self::TimerNotRefreshed, Self::EvictionKeepsOne, Self::ReusedCookie];
}
