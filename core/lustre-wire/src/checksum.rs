//! Checksums of bulk data (L-94, P-30). Of the kinds that have a number, three are computed here;
//! the T10 kinds have names alone ([`checksum_name`](crate::ost::checksum_name)).

/// How bulk data is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Checksum {
    /// CRC-32, from all ones, without the inversion at its end.
    Crc32,
    /// Adler-32, from 1.
    Adler,
    /// CRC-32C, as it is usual.
    Crc32c,
}

/// A checksum that is not complete.
#[derive(Clone, Debug)]
pub enum Sum {
    /// CRC-32.
    Crc32(crc32fast::Hasher),
    /// Adler-32: its two halves.
    Adler(u32, u32),
    /// CRC-32C.
    Crc32c(u32),
}

/// The largest prime below 2¹⁶.
const ADLER: u32 = 65_521;
/// So many bytes of any value do not overflow the halves of Adler-32.
const ADLER_RUN: usize = 5552;

fn adler(a: u32, b: u32, bytes: &[u8]) -> (u32, u32) {
    bytes.chunks(ADLER_RUN).fold((a, b), |(mut a, mut b), run| {
        for byte in run {
            a += u32::from(*byte);
            b += a;
        }
        (a % ADLER, b % ADLER)
    })
}

/// The polynomial of CRC-32C, its highest power in the lowest bit, as all are here.
const CRC32C: u32 = 0x82F6_3B78;

/// A product of polynomials, modulo that of CRC-32C.
fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    for bit in (0..32).rev() {
        sum ^= if a >> bit & 1 == 1 { b } else { 0 };
        b = b >> 1 ^ if b & 1 == 1 { CRC32C } else { 0 };
    }
    sum
}

/// The CRC-32C of some bytes, moved on by so many that follow: with the sum of those it makes that of all.
fn with_zeros(mut crc: u32, mut len: usize) -> u32 {
    // One byte on.
    let mut power = 1 << (31 - 8);
    while crc != 0 && len > 0 {
        if len & 1 == 1 {
            crc = product(power, crc);
        }
        (power, len) = (product(power, power), len >> 1);
    }
    crc
}

impl Checksum {
    /// The kind of this number ([`ObdoFlags::checksum`](crate::ost::ObdoFlags::checksum)). One that is
    /// not computed here counts as Adler-32.
    pub const fn of_number(number: u8) -> Self {
        match number {
            1 => Self::Crc32,
            4 => Self::Crc32c,
            _ => Self::Adler,
        }
    }

    /// The number of the kind.
    pub const fn number(self) -> u8 {
        match self {
            Self::Crc32 => 1,
            Self::Adler => 2,
            Self::Crc32c => 4,
        }
    }

    /// The sum of nothing.
    pub fn begin(self) -> Sum {
        match self {
            Self::Crc32 => Sum::Crc32(crc32fast::Hasher::new()),
            Self::Adler => Sum::Adler(1, 0),
            Self::Crc32c => Sum::Crc32c(0),
        }
    }

    /// The sum of some bytes.
    pub fn of(self, bytes: &[u8]) -> u32 {
        let mut sum = self.begin();
        sum.update(bytes);
        sum.value()
    }
}

impl Sum {
    /// Goes on over further bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(hasher) => hasher.update(bytes),
            Self::Adler(a, b) => (*a, *b) = adler(*a, *b, bytes),
            Self::Crc32c(crc) => {
                *crc = with_zeros(*crc, bytes.len()) ^ crc_fast::crc32_iscsi(bytes);
            }
        }
    }

    /// The sum so far.
    pub fn value(&self) -> u32 {
        match self {
            Self::Crc32(hasher) => !hasher.clone().finalize(),
            Self::Adler(a, b) => b << 16 | a,
            Self::Crc32c(crc) => *crc,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHECK: &[u8] = b"123456789";

    #[test]
    fn sums_are_those_that_are_published() {
        assert_eq!(!Checksum::Crc32.of(CHECK), 0xCBF4_3926);
        assert_eq!(Checksum::Crc32c.of(CHECK), 0xE306_9283);
        assert_eq!(Checksum::Adler.of(b"Wikipedia"), 0x11E6_0398);
        // The longest runs of the largest byte do not overflow.
        assert_eq!(Checksum::Adler.of(&[0xFF; 3 * ADLER_RUN]) >> 16, 10_656);
    }

    #[test]
    fn number_of_a_kind_is_read_back_and_unknown_ones_are_adler() {
        for kind in [Checksum::Crc32, Checksum::Adler, Checksum::Crc32c] {
            assert_eq!(Checksum::of_number(kind.number()), kind);
        }
        for number in [0, 3, 15] {
            assert_eq!(Checksum::of_number(number), Checksum::Adler);
            assert_eq!(crate::ost::checksum_name(number), None);
        }
        for t10 in 5..=8 {
            assert!(crate::ost::checksum_name(t10).is_some_and(|name| name.starts_with("t10")));
            assert_eq!(Checksum::of_number(t10), Checksum::Adler);
        }
    }

    /// CRC-32C bit by bit.
    fn slow(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                crc >> 1 ^ if crc & 1 == 1 { CRC32C } else { 0 }
            })
        })
    }

    #[test]
    fn crc32c_of_each_length_and_beginning_is_that_of_its_polynomial() {
        let bytes: Vec<u8> = (0..6000_u32).map(|n| ((n * n) >> 3) as u8).collect();
        for len in (0..600).chain([1023, 1024, 1025, 4096, 5000]) {
            for from in [0, 1, 7, 63] {
                let part = &bytes[from..from + len];
                assert_eq!(Checksum::Crc32c.of(part), slow(part), "{from} {len}");
            }
        }
    }

    proptest! {
        #[test]
        fn sum_in_pieces_is_the_sum_of_the_whole(bytes in any::<Vec<u8>>(), at in any::<usize>()) {
            let (front, back) = bytes.split_at(at % (bytes.len() + 1));
            for kind in [Checksum::Crc32, Checksum::Adler, Checksum::Crc32c] {
                let mut sum = kind.begin();
                sum.update(front);
                sum.update(back);
                prop_assert_eq!(sum.value(), kind.of(&bytes));
            }
        }
    }
}
