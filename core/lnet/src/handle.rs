//! The handles by which ACKs and REPLYs find their descriptor. The holder of one may write into
//! that descriptor, so none can be worked out from others: on the wire the descriptor's number is
//! scrambled by a permutation that is secret to this incarnation of the node, and of the numbers of
//! 64 bits next to none is in use. An answer to a request that was never made, or to another
//! peer's, is dropped with all else that bears no good handle (M-37).
//!
//! A marked request has another handle (`lnet_wire::mark`): its answer bears the name of our
//! session, which only its receiver has, and the number of the request.

use lnet_types::{MdId, Prng};
use lnet_wire::Handle;

/// Rounds of the permutation.
const ROUNDS: usize = 4;

/// The permutation of one incarnation, and its cookie.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Scrambler {
    keys: [u64; ROUNDS],
    cookie: u64,
}

impl Scrambler {
    pub(crate) fn new(seed: u64, cookie: u64) -> Self {
        let mut seeded = Prng::new(seed ^ cookie.rotate_left(29));
        Self { keys: [0; ROUNDS].map(|_| seeded.next_u64() | 1), cookie }
    }

    /// What one half does to the other in a round.
    const fn of_round(key: u64, half: u32) -> u32 {
        let wide = (half as u128 ^ (key >> 32) as u128) * key as u128;
        ((wide >> 32) as u64 ^ (wide >> 64) as u64) as u32
    }

    pub(crate) fn scramble(self, word: u64) -> u64 {
        let (mut high, mut low) = ((word >> 32) as u32, word as u32);
        for key in self.keys {
            (high, low) = (low, high ^ Self::of_round(key, low));
        }
        u64::from(high) << 32 | u64::from(low)
    }

    /// The handle of a descriptor.
    pub(crate) fn handle(self, md: MdId) -> Handle {
        let plain = Handle::of(self.cookie, md);
        Handle { object: self.scramble(plain.object), ..plain }
    }

    /// The descriptor of a handle, if it is one of this incarnation.
    pub(crate) fn md_of(self, handle: Handle) -> Option<MdId> {
        let object = self.restore(handle.object);
        let md = Handle { object, ..handle }.md();
        (self.handle(md) == handle).then_some(md)
    }

    fn restore(self, word: u64) -> u64 {
        let (mut high, mut low) = ((word >> 32) as u32, word as u32);
        for key in self.keys.into_iter().rev() {
            (high, low) = (low ^ Self::of_round(key, high), high);
        }
        u64::from(high) << 32 | u64::from(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrambled_number_is_restored_and_neighbouring_numbers_differ_in_half_their_bits() {
        let (one, other) = (Scrambler::new(1, 7), Scrambler::new(1, 8));
        let mut bits = 0;
        for low in 1..=1000u64 {
            let word = 1 << 32 | low;
            assert_eq!(one.restore(one.scramble(word)), word);
            assert_ne!(one.scramble(word), other.scramble(word), "of another incarnation");
            bits += (one.scramble(word) ^ one.scramble(word + 1)).count_ones();
        }
        assert!((30_000..34_000).contains(&bits), "half of all bits differ: {bits} of 64000");
    }
}
