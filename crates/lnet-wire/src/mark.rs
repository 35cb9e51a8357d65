//! The mark by which two nodes of this kind tell a repeated message from a new one (DEC-6). It stands
//! in the header's `dest_pid`, which receivers do not read on arrival (wire.md 8.4), and only between
//! nodes that have agreed on it; what it means, and how they agree, is in `docs/duplicates.md`.
//!
//! | bits | what |
//! |---|---|
//! | 30, 31 | 1, 0: no process has such a number |
//! | 29 | an earlier copy may have arrived |
//! | 26 … 28 | session, the lowest bits that tell one from the next |
//! | 0 … 25 | number of the message in the session, from the sender's counter |

use core::fmt;

use lnet_types::Pid;

const TAG: u32 = 0b01 << 30;
const TAG_MASK: u32 = 0b11 << 30;
const AGAIN: u32 = 1 << 29;
const SESSION_SHIFT: u32 = 26;
const SESSION_MASK: u32 = 0b111;
const SEQ_MASK: u32 = (1 << SESSION_SHIFT) - 1;

/// What a marked message says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Mark {
    /// An earlier copy of it may have arrived. In a push: the sender has no session of the receiver
    /// and asks for one.
    pub again: bool,
    session: u8,
    seq: u32,
}

impl Mark {
    /// Numbers are counted modulo this.
    pub const SEQS: u32 = SEQ_MASK + 1;

    /// The mark of message `seq` of `session`.
    pub const fn new(session: u64, seq: u64, again: bool) -> Self {
        let session = ((session >> 30) as u32 & SESSION_MASK) as u8;
        Self { again, session, seq: seq as u32 & SEQ_MASK }
    }

    /// The mark that a `dest_pid` holds, if it holds one.
    pub const fn of(pid: Pid) -> Option<Self> {
        let word = pid.0;
        if word & TAG_MASK != TAG {
            return None;
        }
        let session = (word >> SESSION_SHIFT & SESSION_MASK) as u8;
        Some(Self { again: word & AGAIN != 0, session, seq: word & SEQ_MASK })
    }

    /// The `dest_pid` that holds the mark.
    pub const fn pid(self) -> Pid {
        let again = if self.again { AGAIN } else { 0 };
        Pid(TAG | again | (self.session as u32) << SESSION_SHIFT | self.seq)
    }

    /// Whether the mark can be one of `session`.
    pub const fn is_of(self, session: u64) -> bool {
        self.session == Self::new(session, 0, false).session
    }

    /// The bits of the session.
    pub const fn session(self) -> u8 {
        self.session
    }

    /// The number, modulo [`Self::SEQS`].
    pub const fn seq(self) -> u32 {
        self.seq
    }

    /// The whole number nearest to `near` that this one can be.
    pub const fn seq_near(self, near: u64) -> u64 {
        let ahead = self.seq.wrapping_sub(near as u32) & SEQ_MASK;
        if ahead < Self::SEQS / 2 {
            near.saturating_add(ahead as u64)
        } else {
            near.saturating_sub((Self::SEQS - ahead) as u64)
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = if self.again { " again" } else { "" };
        write!(f, "message {} of session {}{again}", self.seq, self.session)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_mark_is_read_as_it_was_written(session: u64, seq: u64, again: bool) {
            let mark = Mark::new(session, seq, again);
            prop_assert_eq!(Mark::of(mark.pid()), Some(mark));
            prop_assert!(mark.is_of(session));
            prop_assert_eq!(u64::from(mark.seq()), seq % u64::from(Mark::SEQS));
        }

        #[test]
        fn any_word_is_a_mark_that_says_the_same_or_none(word: u32) {
            if let Some(mark) = Mark::of(Pid(word)) {
                prop_assert_eq!(mark.pid(), Pid(word));
            }
        }

        #[test]
        fn a_number_is_found_again_within_half_of_all_numbers(
            near in 1u64 << 40..1 << 41,
            off in -(1i64 << 25)..(1 << 25),
        ) {
            let seq = near.saturating_add_signed(off);
            prop_assert_eq!(Mark::new(0, seq, false).seq_near(near), seq);
        }
    }

    #[test]
    fn no_process_that_exists_is_taken_for_a_mark() {
        for pid in [Pid::LUSTRE, Pid::ANY, Pid(0), Pid(u32::from(u16::MAX)), Pid(0x8000_0000 | 77)]
        {
            assert_eq!(Mark::of(pid), None, "{pid:?}");
        }
        assert_eq!(Mark::new(5 << 30, 7, true).to_string(), "message 7 of session 5 again");
    }
}
