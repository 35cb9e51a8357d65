//! Modes of locks, and which of them are compatible (L-3, L-4, L-6). What a mode is applied to (a
//! range, bits of an inode) and the exceptions by client stand in `space/conflict.rs`.

use core::fmt;

use lustre_wire::ldlm::LockMode;

/// Mode of a lock; exactly one bit on the wire (L-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Exclusive.
    Ex,
    /// Protected write.
    Pw,
    /// Protected read.
    Pr,
    /// Concurrent write.
    Cw,
    /// Concurrent read.
    Cr,
    /// Null.
    Nl,
    /// Group: compatible with locks of the same group.
    Group,
    /// Commit on sharing.
    Cos,
    /// Of a transaction.
    Txn,
}

/// The matrix of L-4: row = mode that is held, bit n = the n-th of [`Mode::ALL`] may be granted
/// beside it. Locks of one group are the one case that the matrix does not say.
const COMPATIBLE: [u16; Mode::COUNT] = [
    //TCGNCCPPE
    0b000100000, // EX
    0b000110000, // PW
    0b100110100, // PR
    0b000111000, // CW
    0b100111110, // CR
    0b111111111, // NL
    0b000100000, // GROUP
    0b010100000, // COS
    0b100110100, // TXN
];

impl Mode {
    /// Number of modes.
    pub const COUNT: usize = 9;

    /// All of them, in the order of their bits.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Ex,
        Self::Pw,
        Self::Pr,
        Self::Cw,
        Self::Cr,
        Self::Nl,
        Self::Group,
        Self::Cos,
        Self::Txn,
    ];

    /// The mode of a word; `None` unless the word has exactly one known bit (L-3).
    pub const fn of(word: LockMode) -> Option<Self> {
        let bits = word.0;
        if !bits.is_power_of_two() || bits.trailing_zeros() as usize >= Self::COUNT {
            return None;
        }
        // The bound was checked.
        Some(Self::ALL[bits.trailing_zeros() as usize])
    }

    /// The word on the wire.
    pub const fn word(self) -> LockMode {
        LockMode(1 << self as u32)
    }

    /// Whether the matrix allows `wanted` beside `self` on the same part of an object (L-4). Symmetric.
    pub const fn allows(self, wanted: Self) -> bool {
        COMPATIBLE[self as usize] & 1 << wanted as u32 != 0
    }

    /// Whether a user of the lock counts as a reader; otherwise as a writer (L-6).
    pub const fn reads(self) -> bool {
        matches!(self, Self::Nl | Self::Cr | Self::Pr)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.word(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of L-4 as the reference prints it: rows are held, columns wanted, in the order of
    /// [`Mode::ALL`]; `y` compatible, `n` not, `g` of the same group alone.
    const TABLE: [&str; Mode::COUNT] = [
        "nnnnnynnn", // EX
        "nnnnyynnn", // PW
        "nnynyynny", // PR
        "nnnyyynnn", // CW
        "nyyyyynny", // CR
        "yyyyyyyyy", // NL
        "nnnnnygnn", // GROUP
        "nnnnnynyn", // COS
        "nnynyynny", // TXN
    ];

    #[test]
    fn the_matrix_is_that_of_the_reference() {
        for (row, held) in TABLE.iter().zip(Mode::ALL) {
            for (cell, wanted) in row.bytes().zip(Mode::ALL) {
                assert_eq!(held.allows(wanted), cell == b'y', "{held} held, {wanted} wanted");
            }
        }
    }

    #[test]
    fn a_mode_is_exactly_one_known_bit() {
        for (n, mode) in Mode::ALL.into_iter().enumerate() {
            assert_eq!(mode.word().0, 1 << n);
            assert_eq!(Mode::of(mode.word()), Some(mode));
        }
        for word in [0, 3, 6, 512, 1024, u32::MAX, 1 << 31] {
            assert_eq!(Mode::of(LockMode(word)), None, "{word:#x}");
        }
    }

    #[test]
    fn readers_are_nl_cr_and_pr() {
        let readers: Vec<_> = Mode::ALL.into_iter().filter(|mode| mode.reads()).collect();
        assert_eq!(readers, [Mode::Pr, Mode::Cr, Mode::Nl]);
    }
}
