//! What can be seen of locks from outside: by the programs that take them.

use core::fmt;
use core::time::Duration;

use ldlm::Mode;
use ldlm::client::LockError;
use lustre_wire::ldlm::Policy;
use ptlrpc::CallError;

use super::super::seen::{CallNo, KeyNo};

/// What a program locks: a part of a name, in a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWant {
    /// The name: that of a load, and which of its names.
    pub name: KeyNo,
    /// Mode.
    pub mode: Mode,
    /// Part.
    pub part: Policy,
}

impl LockWant {
    /// Whether two programs may not have both at a time: the matrix (L-4), groups, parts that overlap.
    /// Written here once more, as a model knows nothing of what it judges.
    pub fn conflicts(&self, other: &Self) -> bool {
        let group = |want: &Self| match want.part {
            Policy::Extent { gid, .. } | Policy::Ibits { gid, .. } => Some(gid),
            _ => None,
        };
        let beside = match (self.mode, other.mode) {
            (Mode::Group, Mode::Group) => group(self) == group(other),
            (Mode::Cr, Mode::Ex | Mode::Group) | (Mode::Ex | Mode::Group, Mode::Cr) => false,
            (Mode::Cr, _) | (_, Mode::Cr) | (Mode::Nl, _) | (_, Mode::Nl) => true,
            (Mode::Pr, Mode::Pr) | (Mode::Cw, Mode::Cw) => true,
            _ => false,
        };
        let overlap = match (self.part, other.part) {
            (Policy::Extent { start, end, .. }, Policy::Extent { start: from, end: to, .. }) => {
                start <= to && from <= end
            }
            (Policy::Ibits { bits, .. }, Policy::Ibits { bits: others, .. }) => {
                bits.intersects(others)
            }
            _ => true,
        };
        self.name == other.name && overlap && !beside
    }

    /// Whether a lock of this part has all that is wanted.
    pub(super) fn is_within(&self, part: &Policy) -> bool {
        match (self.part, *part) {
            (
                Policy::Extent { start, end, gid },
                Policy::Extent { start: from, end: to, gid: group },
            ) => from <= start && end <= to && (self.mode != Mode::Group || gid == group),
            (Policy::Ibits { bits, .. }, Policy::Ibits { bits: has, .. }) => has.contains(bits),
            (Policy::Plain, Policy::Plain) => true,
            _ => false,
        }
    }
}

impl fmt::Display for LockWant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.mode, self.name)?;
        match self.part {
            Policy::Extent { start: 0, end: u64::MAX, .. } => Ok(()),
            Policy::Extent { start, end, .. } => write!(f, " from {start} to {end}"),
            Policy::Ibits { bits, .. } => write!(f, " bits {:#x}", bits.bits()),
            _ => Ok(()),
        }
    }
}

/// Something that a program has seen of a lock. `ask` is the number by which the program has asked for
/// it; no other ask of the run has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockSeen {
    /// A program asks for a lock.
    Asked {
        /// By which number.
        ask: CallNo,
        /// For what.
        want: LockWant,
    },
    /// It has the lock.
    Granted {
        /// Which one.
        ask: CallNo,
        /// The fencing number, if the lock has one.
        fence: Option<u64>,
        /// Whether the lock has all that was wanted.
        covers: bool,
        /// How long it took.
        took: Duration,
    },
    /// Another client wants the lock.
    CalledBack {
        /// Which one.
        ask: CallNo,
    },
    /// The program reads or writes under the lock.
    Using {
        /// Which one.
        ask: CallNo,
    },
    /// That has ended.
    Used {
        /// Which one.
        ask: CallNo,
        /// How.
        result: Result<(), CallError>,
    },
    /// The program gives a part of the lock back: it does nothing under that from now on.
    Shrunk {
        /// Which one.
        ask: CallNo,
        /// What is left.
        left: Policy,
    },
    /// The program gives the lock back: it does nothing under it from now on.
    Released {
        /// Which one.
        ask: CallNo,
    },
    /// The program does not get the lock.
    Refused {
        /// Which one.
        ask: CallNo,
        /// Why.
        error: LockError,
    },
    /// The program has learnt that the lock is lost.
    Lost {
        /// Which one.
        ask: CallNo,
    },
}

impl LockSeen {
    /// The number of the ask.
    pub const fn ask(&self) -> CallNo {
        match *self {
            Self::Asked { ask, .. }
            | Self::Granted { ask, .. }
            | Self::CalledBack { ask }
            | Self::Using { ask }
            | Self::Used { ask, .. }
            | Self::Shrunk { ask, .. }
            | Self::Released { ask }
            | Self::Refused { ask, .. }
            | Self::Lost { ask } => ask,
        }
    }

    /// Whether it is a moment that a reader of a run wants to see.
    pub(in crate::rpc) const fn is_moment(&self) -> bool {
        matches!(self, Self::Used { result: Err(_), .. } | Self::Refused { .. } | Self::Lost { .. })
    }

    /// A line about it.
    pub(in crate::rpc) fn line(&self, target: &str) -> String {
        let ask = self.ask();
        match self {
            Self::Asked { want, .. } => format!("lock {ask}: asks {target} for {want}"),
            Self::Granted { fence, took, .. } => {
                let number = fence.map(|fence| format!(" with number {fence:#x}"));
                let number = number.unwrap_or_default();
                format!("lock {ask}: granted by {target}{number} after {took:?}")
            }
            Self::CalledBack { .. } => format!("lock {ask}: called back by {target}"),
            Self::Using { .. } => format!("lock {ask}: I/O to {target}"),
            Self::Used { result: Ok(()), .. } => format!("lock {ask}: I/O done"),
            Self::Used { result: Err(e), .. } => format!("lock {ask}: I/O failed: {e}"),
            Self::Shrunk { .. } => format!("lock {ask}: a part given back to {target}"),
            Self::Released { .. } => format!("lock {ask}: given back to {target}"),
            Self::Refused { error, .. } => {
                format!("lock {ask}: refused by {target}: {error}")
            }
            Self::Lost { .. } => format!("lock {ask}: lost at {target}"),
        }
    }

    /// A number that tells it from others, for the hash of a run.
    pub(in crate::rpc) fn word(&self) -> u64 {
        match *self {
            Self::Asked { want, .. } => 1 | (want.mode as u64) << 8 | want.name.0 << 16,
            Self::Granted { fence, .. } => 2 | fence.unwrap_or(0) << 8,
            Self::CalledBack { .. } => 3,
            Self::Using { .. } => 4,
            Self::Used { result, .. } => 5 | u64::from(result.is_ok()) << 8,
            Self::Released { .. } => 6,
            Self::Refused { error, .. } => 7 | (error.errno().0 as u64) << 8,
            Self::Lost { .. } => 8,
            Self::Shrunk { .. } => 9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_model_takes_for_a_conflict_is_what_the_matrix_says() {
        let want = |mode| {
            let part = Policy::Extent { start: 0, end: 9, gid: 7 };
            LockWant { name: KeyNo(1), mode, part }
        };
        let modes = [Mode::Ex, Mode::Pw, Mode::Pr, Mode::Cw, Mode::Cr, Mode::Nl, Mode::Group];
        for (held, wanted) in modes.into_iter().flat_map(|held| modes.map(|mode| (held, mode))) {
            let group = held == Mode::Group && wanted == Mode::Group;
            let allowed = held.allows(wanted) || group;
            assert_eq!(want(held).conflicts(&want(wanted)), !allowed, "{held} {wanted}");
        }
        let (mut one, mut other) = (want(Mode::Group), want(Mode::Group));
        other.part = Policy::Extent { start: 0, end: 9, gid: 8 };
        assert!(one.conflicts(&other));
        other.part = Policy::Extent { start: 10, end: 19, gid: 8 };
        assert!(!one.conflicts(&other));
        (one.name, other.part) = (KeyNo(2), one.part);
        assert!(!one.conflicts(&other));
    }
}
