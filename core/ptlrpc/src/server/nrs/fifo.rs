//! First come, first served (P-118).

/// The first part of all ranks: the order of arrival decides.
pub(super) const FIRST: u64 = 0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Fifo;

impl Fifo {
    pub(super) const fn rank(self) -> u64 {
        FIRST
    }
}
